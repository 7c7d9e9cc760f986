/* filled.c - see filled.h. */
#include "formats/filled.h"

#include <inttypes.h>

sheaf_status *sheaf__inside(const char *path, const char *name, int64_t begin, int64_t bytes,
                            int64_t whole)
{
    if (begin >= 0 && bytes >= 0 && begin <= whole && bytes <= whole - begin)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s: tensor '%s': bytes", path, name);
    return sheaf_found(sheaf_expected(st, "within 0 to %" PRId64, whole),
                       "%" PRId64 " from %" PRId64, bytes, begin);
}

/* begin + (begin + 1) + ... , `n` terms, mod 2^64. */
static uint64_t sum_of_positions(int64_t begin, int64_t n)
{
    const uint64_t b = (uint64_t)begin, m = (uint64_t)n;
    return b * m + (m % 2 == 0 ? m / 2 * (m - 1) : m * ((m - 1) / 2));
}

void sheaf__filled_add(sheaf__filled *filled, int64_t begin, int64_t bytes)
{
    filled->written += bytes;
    filled->positions += sum_of_positions(begin, bytes);
}

sheaf_status *sheaf__filled_check(const sheaf__filled *filled, const char *path, const char *name,
                                  int64_t whole)
{
    const int64_t written = filled->written;
    if (written == whole && filled->positions == sum_of_positions(0, whole))
        return NULL;
    sheaf_status *st =
        sheaf_fail(SHEAF_E_LAYOUT, "%s: tensor '%s' was not written as a whole", path, name);
    return sheaf_found(sheaf_expected(st, "%" PRId64 " bytes, each once", whole),
                       written == whole ? "%" PRId64 " bytes, some twice" : "%" PRId64 " bytes",
                       written);
}
