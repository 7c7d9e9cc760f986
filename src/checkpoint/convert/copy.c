/* copy.c - see copy.h. */
#include "checkpoint/convert/copy.h"

#include "base/base.h"
#include "catalog/catalog.h"
#include "dialects/common/quantised.h"
#include "ops/math/round.h"

/* ---- numbers ---- */

/* A NaN keeps its sign and payload. */
static uint16_t to_bfloat(uint32_t f)
{
    return (f & 0x7fffffffu) > 0x7f800000u ? (uint16_t)(f >> 16 | 0x40)
                                           : sheaf__bf16(sheaf__float(f));
}

/* A double in float32; `odd`: what is lost leaves the last bit set, so that a second rounding comes
 * out as one would. */
static uint32_t double_to_single(uint64_t d, bool odd)
{
    const uint32_t sign = (uint32_t)(d >> 32 & 0x80000000u);
    const uint64_t size = d & 0x7fffffffffffffffu, fraction = size & 0xfffffffffffffu;
    const int exponent = (int)(size >> 52) - 1023 + 127; /* in float32 */
    if (size > 0x7ff0000000000000u)
        return sign | 0x7fc00000u | (uint32_t)(fraction >> 29 & 0x3fffff);
    if (exponent >= 255)
        return size == 0x7ff0000000000000u || !odd ? sign | 0x7f800000u : sign | 0x7f7fffffu;
    const int lost = exponent > 0 ? 29 : 30 - exponent; /* bits that do not fit */
    const uint64_t whole = exponent > 0 ? (uint64_t)exponent << 52 | fraction
                                        : fraction | (size >> 52 != 0 ? 1ull << 52 : 0);
    if (lost > 60)
        return sign | (odd && size != 0);
    uint64_t kept = whole >> lost;
    const uint64_t rest = whole & ((1ull << lost) - 1), half = 1ull << (lost - 1);
    if (odd)
        kept |= rest != 0;
    else
        kept += rest > half || (rest == half && (kept & 1) != 0);
    return sign | (uint32_t)kept;
}

bool sheaf__dtype_can(sheaf_dtype from, sheaf_dtype to)
{
    const bool known =
        from == SHEAF_F64 || from == SHEAF_F32 || from == SHEAF_BF16 || from == SHEAF_F16;
    return from == to || (known && (to == SHEAF_F32 || to == SHEAF_BF16 || to == SHEAF_F16));
}

enum { BLOCK = 256 };

/* Up to BLOCK numbers as float32. */
static void widen(uint32_t *out, const char *src, sheaf_dtype from, int64_t n, bool odd)
{
    for (int64_t i = 0; i < n; i++) {
        uint64_t d;
        if (from == SHEAF_F64) {
            memcpy(&d, src + 8 * i, 8);
            out[i] = double_to_single(d, odd);
        } else
            out[i] = sheaf__bits(sheaf__load(src, i, from));
    }
}

bool sheaf__dtype_convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n)
{
    const size_t wide = sheaf_dtype_bytes(from), narrow = sheaf_dtype_bytes(to);
    bool finite = true;
    if (from == to) {
        memcpy(dst, src, (size_t)n * wide);
        return true;
    }
    for (int64_t at = 0; at < n; at += BLOCK) {
        uint32_t f[BLOCK];
        uint16_t h[BLOCK];
        const int64_t m = n - at < BLOCK ? n - at : BLOCK;
        const char *from_here = (const char *)src + (size_t)at * wide;
        char *to_here = (char *)dst + (size_t)at * narrow;
        int64_t lost = 0;
        widen(f, from_here, from, m, to != SHEAF_F32);
        if (to == SHEAF_F32) {
            for (int64_t i = 0; i < m; i++) {
                uint64_t d = 0;
                if (from == SHEAF_F64)
                    memcpy(&d, from_here + 8 * i, 8);
                lost += (f[i] & 0x7fffffffu) == 0x7f800000u && from == SHEAF_F64 &&
                        (d & 0x7fffffffffffffffu) != 0x7ff0000000000000u;
            }
            memcpy(to_here, f, (size_t)m * 4);
        } else {
            for (int64_t i = 0; i < m; i++) {
                h[i] = to == SHEAF_F16 ? sheaf__f16(sheaf__float(f[i])) : to_bfloat(f[i]);
                lost += (h[i] & 0x7fff) == (to == SHEAF_F16 ? 0x7c00 : 0x7f80) &&
                        (f[i] & 0x7fffffffu) != 0x7f800000u;
            }
            memcpy(to_here, h, (size_t)m * 2);
        }
        finite = finite && lost == 0;
    }
    return finite;
}

/* ---- a source in another dtype ---- */

typedef struct cast_source {
    sheaf_source source; /* first */
    sheaf_source *inner;
    int64_t count;
    sheaf_source_entry *entry; /* in the order of inner */
} cast_source;

static bool is_float(sheaf_dtype d)
{
    return d == SHEAF_F64 || d == SHEAF_F32 || d == SHEAF_BF16 || d == SHEAF_F16;
}

static const sheaf_source_entry *cast_find(sheaf_source *self, const char *name)
{
    const cast_source *s = (cast_source *)self;
    /* every source has its entries by name */
    return SHEAF_FIND(const sheaf_source_entry, name, s->entry, s->count, name);
}

static int64_t cast_count(sheaf_source *self)
{
    return ((cast_source *)self)->count;
}
static const sheaf_source_entry *cast_entry(sheaf_source *self, int64_t i)
{
    return &((cast_source *)self)->entry[i];
}

static sheaf_status *cast_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const cast_source *s = (cast_source *)self;
    const sheaf_source_entry *is = cast_find(self, name), *was = s->inner->find(s->inner, name);
    if (is == NULL || was == NULL)
        return sheaf_found(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name),
                           "no tensor of this name");
    if (is->dtype == was->dtype)
        return s->inner->read(s->inner, name, row0, rows, col0, cols, dst);
    char *raw = malloc((size_t)(rows * cols) * sheaf_dtype_bytes(was->dtype) + 1);
    sheaf_status *st = raw == NULL ? sheaf_fail(SHEAF_E_MEMORY, "tensor '%s'", name)
                                   : s->inner->read(s->inner, name, row0, rows, col0, cols, raw);
    if (st == NULL && !sheaf__dtype_convert(dst, is->dtype, raw, was->dtype, rows * cols)) {
        st = sheaf_fail(SHEAF_E_NUMBER, "tensor '%s'", name);
        sheaf_expected(st, "numbers that %s can hold", sheaf_dtype_name(is->dtype));
        sheaf_found(st, "one that would become infinite");
        sheaf_try_this(st, "--dtype bfloat16 or float32");
    }
    free(raw);
    return st;
}

static void cast_close(sheaf_source *self)
{
    cast_source *s = (cast_source *)self;
    s->inner->close(s->inner);
    free(s->entry);
    free(s);
}

sheaf_status *sheaf__cast_source(sheaf_source **out, sheaf_source *inner, const sheaf_dtype *dtype,
                                 const char *config)
{
    sheaf__quantised packed = { 0 };
    sheaf_status *st = dtype != NULL ? sheaf__quantised_find(&packed, inner, config) : NULL;
    if (st != NULL) {
        inner->close(inner);
        return st;
    }
    const int64_t n = inner->count(inner);
    cast_source *s = calloc(1, sizeof *s);
    sheaf_source_entry *entry = calloc((size_t)n + 1, sizeof *entry);
    if (s == NULL || entry == NULL) {
        free(s);
        free(entry);
        inner->close(inner);
        sheaf__quantised_release(&packed);
        return sheaf__no_memory("list of tensors");
    }
    for (int64_t i = 0; i < n; i++) {
        entry[i] = *inner->entry(inner, i);
        if (dtype != NULL && is_float(entry[i].dtype) && !sheaf__is_moment(entry[i].name) &&
            !sheaf__quantised_keeps(&packed, entry[i].name))
            entry[i].dtype = *dtype;
    }
    sheaf__quantised_release(&packed);
    *s = (cast_source){
        { cast_find, cast_count, cast_entry, cast_read, cast_close }, inner, n, entry
    };
    *out = &s->source;
    return NULL;
}
