/* check_values.c - is every number of an adapter finite? */
#include "base/base.h"
#include "catalog/boxes.h"
#include "lora/check_file.h"
#include "lora/combine.h"
#include "lora/names.h"

enum { BLOCK = 1 << 16 };

/* The first of n numbers that is infinite or NaN; n: none. */
static int64_t first_wild(const void *at, sheaf_dtype dtype, int64_t n)
{
    const uint16_t exponent = dtype == SHEAF_BF16 ? 0x7f80 : 0x7c00;
    int64_t i = 0;
    if (dtype == SHEAF_F32)
        for (const uint32_t *x = at; i < n && (x[i] & 0x7f800000) != 0x7f800000; i++) {
        }
    else
        for (const uint16_t *x = at; i < n && (x[i] & exponent) != exponent; i++) {
        }
    return i;
}

static sheaf_status *check_tensor(sheaf_source *adapter, const sheaf_source_entry *e, void *buffer)
{
    const int64_t rows = e->ndim > 0 ? e->shape[0] : 1,
                  cols = sheaf__elements(e->ndim - 1, e->shape + 1),
                  last = e->ndim > 2 ? e->shape[e->ndim - 1] : 1;
    const int64_t wide = cols <= BLOCK               ? cols
                         : last > 0 && last <= BLOCK ? BLOCK / last * last
                                                     : 0,
                  high = wide > 0 ? BLOCK / wide : 0;
    sheaf_status *st = NULL;
    if (cols > 0 && rows > 0 && wide == 0)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': last axis", e->name),
                           "at most %d elements", BLOCK),
            "%" PRId64, last);
    for (int64_t r = 0; r < rows && wide > 0 && st == NULL; r += high)
        for (int64_t c = 0; c < cols && st == NULL; c += wide) {
            const int64_t h = rows - r < high ? rows - r : high,
                          w = cols - c < wide ? cols - c : wide;
            st = sheaf__lora_read_view(adapter, e, r, h, c, w, buffer);
            const int64_t wild = st == NULL ? first_wild(buffer, e->dtype, h * w) : h * w;
            if (wild < h * w) {
                st = sheaf_fail(SHEAF_E_NUMBER, "'%s', row %" PRId64 ", column %" PRId64, e->name,
                                r + wild / w, c + wild % w);
                sheaf_found(sheaf_expected(st, "finite numbers"), "Inf or NaN");
                sheaf_try_this(
                    st,
                    "an adapter from before its training went wrong; sheaf verify names all numbers that are not finite");
            }
        }
    return st;
}

sheaf_status *sheaf__lora_check_values(sheaf_source *adapter)
{
    void *buffer = malloc((size_t)BLOCK * 4);
    sheaf_status *st = buffer == NULL ? sheaf__no_memory("adapter") : NULL;
    for (int64_t i = 0; i < adapter->count(adapter) && st == NULL; i++) {
        const sheaf_source_entry *e = adapter->entry(adapter, i);
        const char *path;
        size_t length;
        if (sheaf__lora_part(&path, &length, e->name) != SHEAF_PART_COPY)
            st = check_tensor(adapter, e, buffer);
    }
    free(buffer);
    return st;
}
