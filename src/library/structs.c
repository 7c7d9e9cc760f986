/* structs.c - see structs.h, and sheaf/version.h. */
#include "library/structs.h"

#include "base/base.h"
#include "sheaf/version.h"

sheaf_status *sheaf__struct_read(void *to, size_t known, const void *from, const char *what)
{
    size_t size;
    memset(to, 0, known);
    if (from == NULL)
        return NULL;
    memcpy(&size, from, sizeof size);
    sheaf_status *st = sheaf__struct_check(from, what);
    if (st != NULL)
        return st;
    for (size_t i = known; i < size; i++)
        if (((const unsigned char *)from)[i] != 0)
            return sheaf_try_this(
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", what),
                                           "fields that sheaf %s knows", sheaf_version()),
                            "one of a later version that is not zero"),
                "run with the library that the program was compiled for, or a later one");
    memcpy(to, from, size < known ? size : known);
    return NULL;
}

sheaf_status *sheaf__struct_check(const void *to, const char *what)
{
    size_t size = sizeof size + 1;
    if (to != NULL)
        memcpy(&size, to, sizeof size);
    if (size > sizeof size && size <= (size_t)1 << 20)
        return NULL;
    return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", what),
                                                     "its size in its first field"),
                                      "%zu", size),
                          "SHEAF_INIT(&it) before it is filled");
}

void sheaf__struct_fill(void *to, const void *from, size_t known)
{
    size_t size;
    if (to == NULL)
        return;
    memcpy(&size, to, sizeof size);
    memset((char *)to + sizeof size, 0, size - sizeof size);
    memcpy((char *)to + sizeof size, (const char *)from + sizeof size,
           (size < known ? size : known) - sizeof size);
}

sheaf_status *sheaf__check_dtype(const char *what, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BOOL || dtype == SHEAF_F32 || dtype == SHEAF_BF16 || dtype == SHEAF_F16)
        return NULL;
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: dtype", what), "float32, bfloat16 or float16"),
        "%d", (int)dtype);
}

sheaf_status *sheaf__check_count(const char *what, const char *field, int64_t value, int64_t most)
{
    if (value >= 0 && value <= most)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s: %s", what, field);
    if (most == INT64_MAX)
        sheaf_expected(st, "no number below 0");
    else
        sheaf_expected(st, "0 to %" PRId64, most);
    return sheaf_found(st, "%" PRId64, value);
}

const char *sheaf_version(void)
{
    return SHEAF_VERSION;
}
