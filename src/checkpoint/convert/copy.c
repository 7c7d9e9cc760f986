/* copy.c - see convert.h. */
#include "checkpoint/convert/convert.h"

#include <math.h>

#include "base/base.h"
#include "base/thread.h"
#include "catalog/catalog.h"
#include "catalog/over_source.h"
#include "dialects/common/quantised.h"
#include "ops/math/round.h"

/* ---- numbers ---- */

/* A NaN keeps its sign and payload. */
static uint16_t to_bfloat(uint32_t f)
{
    return (f & 0x7fffffffu) > 0x7f800000u ? (uint16_t)(f >> 16 | 0x40)
                                           : sheaf__bf16(sheaf__float(f));
}

/* A double as float32; `odd`: rounds to odd (lost bits set the last bit), so that a second rounding
 * gives the result of a single one. */
static float single(double d, bool odd)
{
    const float f = (float)d;
    if (!odd || (double)f == d || isnan(d))
        return f;
    return sheaf__float((sheaf__bits(f) - (fabs((double)f) > fabs(d))) | 1);
}

bool sheaf__dtype_can(sheaf_dtype from, sheaf_dtype to)
{
    const bool known =
        from == SHEAF_F64 || from == SHEAF_F32 || from == SHEAF_BF16 || from == SHEAF_F16;
    return from == to || (known && (to == SHEAF_F32 || to == SHEAF_BF16 || to == SHEAF_F16));
}

bool sheaf__dtype_convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n)
{
    if (from == to) {
        memcpy(dst, src, (size_t)n * sheaf_dtype_bytes(from));
        return true;
    }
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE); /* denormals are kept */
    const uint16_t infinite = to == SHEAF_F16 ? 0x7c00 : 0x7f80;
    int64_t lost = 0;
    for (int64_t i = 0; i < n; i++) {
        const double d = from == SHEAF_F64 ? ((const double *)src)[i] : 0;
        const float x = from == SHEAF_F64 ? single(d, to != SHEAF_F32) : sheaf__load(src, i, from);
        const bool finite = from == SHEAF_F64 ? !isinf(d) : !isinf(x);
        if (to == SHEAF_F32) {
            ((float *)dst)[i] = x;
            lost += finite && isinf(x);
        } else {
            const uint16_t h = to == SHEAF_F16 ? sheaf__f16(x) : to_bfloat(sheaf__bits(x));
            ((uint16_t *)dst)[i] = h;
            lost += finite && (h & 0x7fff) == infinite;
        }
    }
    sheaf__mode_set(before);
    return lost == 0;
}

/* ---- a source in another dtype ---- */

static sheaf_status *cast_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const sheaf__over_source *s = (sheaf__over_source *)self;
    const int64_t i = sheaf__over_find(s, name);
    if (i < 0)
        return s->under->read(s->under, name, row0, rows, col0, cols, dst);
    const sheaf_dtype from = s->under->find(s->under, name)->dtype, to = s->own[i].dtype;
    char *raw = malloc((size_t)(rows * cols) * sheaf_dtype_bytes(from) + 1);
    sheaf_status *st = raw == NULL ? sheaf_fail(SHEAF_E_MEMORY, "tensor '%s'", name)
                                   : s->under->read(s->under, name, row0, rows, col0, cols, raw);
    if (st == NULL && !sheaf__dtype_convert(dst, to, raw, from, rows * cols)) {
        st = sheaf_fail(SHEAF_E_NUMBER, "tensor '%s'", name);
        sheaf_expected(st, "numbers that %s can hold", sheaf_dtype_name(to));
        sheaf_found(st, "one that would become infinite");
        sheaf_try_this(st, "`dtype bfloat16` or float32");
    }
    free(raw);
    return st;
}

sheaf_status *sheaf__cast_source(sheaf_source **out, sheaf_source *inner, const sheaf_dtype *dtype,
                                 const char *config)
{
    sheaf__quantised packed = { 0 };
    const int64_t n = dtype != NULL ? inner->count(inner) : 0;
    sheaf__over_source *s = sheaf__over_new(sizeof *s, inner, n, cast_read, NULL);
    sheaf_status *st = s == NULL ? sheaf__no_memory("list of tensors") : NULL;
    TRY(st, dtype != NULL ? sheaf__quantised_find(&packed, inner, config) : NULL);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        sheaf_source_entry e = *inner->entry(inner, i);
        if (e.dtype == *dtype || !sheaf__dtype_can(e.dtype, *dtype) || sheaf__is_moment(e.name) ||
            sheaf__quantised_keeps(&packed, e.name))
            continue;
        e.dtype = *dtype;
        st = sheaf__over_add(s, strdup(e.name), e);
    }
    sheaf__quantised_release(&packed);
    if (st == NULL)
        sheaf__over_sort(s);
    else
        inner->close(inner);
    return sheaf__over_end(out, s, st);
}
