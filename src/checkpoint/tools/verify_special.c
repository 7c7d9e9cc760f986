/* verify_special.c - see verify.h: NaN and Inf. */
#include "base/base.h"
#include "checkpoint/tools/verify.h"

typedef struct found {
    int64_t nan, inf;
} found;

/* Most tensors have none, so that the first loop, which vectorises, is all. */
#define COUNT(bits)                                                                                \
    static void count_##bits(found *f, const uint##bits##_t *x, size_t n, uint##bits##_t exponent) \
    {                                                                                              \
        size_t special = 0;                                                                        \
        for (size_t i = 0; i < n; i++)                                                             \
            special += (x[i] & exponent) == exponent;                                              \
        for (size_t i = 0; i < n && special > 0; i++)                                              \
            if ((x[i] & exponent) == exponent)                                                     \
                *((x[i] & (UINT##bits##_MAX >> 1)) == exponent ? &f->inf : &f->nan) += 1;          \
    }
COUNT(16)
COUNT(32)
COUNT(64)

static void count_8(found *f, const uint8_t *x, size_t n, sheaf_dtype dtype)
{
    for (size_t i = 0; i < n; i++) {
        const uint8_t low = x[i] & 0x7f;
        if (dtype == SHEAF_F8_E5M2 && low >= 0x7c)
            *(low == 0x7c ? &f->inf : &f->nan) += 1;
        else if (dtype == SHEAF_F8_E4M3 && low == 0x7f)
            f->nan++;
        else if (dtype == SHEAF_F8_E8M0 && x[i] == 0xff)
            f->nan++;
        else if ((dtype == SHEAF_F8_E4M3FNUZ || dtype == SHEAF_F8_E5M2FNUZ) && x[i] == 0x80)
            f->nan++;
    }
}

void sheaf__count_special(sheaf__special *to, const void *data, size_t bytes, sheaf_dtype dtype)
{
    found f = { 0, 0 };
    switch (dtype) {
    case SHEAF_F16: count_16(&f, data, bytes / 2, 0x7c00); break;
    case SHEAF_BF16: count_16(&f, data, bytes / 2, 0x7f80); break;
    case SHEAF_F32:
    case SHEAF_C64: count_32(&f, data, bytes / 4, 0x7f800000u); break;
    case SHEAF_F64: count_64(&f, data, bytes / 8, 0x7ff0000000000000u); break;
    case SHEAF_F8_E5M2:
    case SHEAF_F8_E4M3:
    case SHEAF_F8_E8M0:
    case SHEAF_F8_E4M3FNUZ:
    case SHEAF_F8_E5M2FNUZ: count_8(&f, data, bytes, dtype); break;
    default: return;
    }
    atomic_fetch_add(&to->nan, f.nan);
    atomic_fetch_add(&to->inf, f.inf);
}

/* Counts only parts that are numbers: no codes in 4 bits, in whatever type their bytes are. */
void sheaf__count_part(sheaf__special *to, const sheaf__coded *q, int part, const void *data,
                       size_t bytes)
{
    const bool exponents =
        part == SHEAF__SCALES_PART && (q->packing->scale_types >> SHEAF_F8_E8M0 & 1) != 0;
    const sheaf_dtype dtype = exponents ? SHEAF_F8_E8M0 : q->part[part].entry.dtype;
    const bool sizes = q->packing->sizes;
    int64_t negative = 0;
    if (part != SHEAF__CODES_PART || dtype == SHEAF_F8_E4M3)
        sheaf__count_special(to, data, bytes, dtype);
    if (!sizes || dtype != SHEAF_F32 || (part != SHEAF__SCALES_PART && part != SHEAF__NESTED_PART))
        return;
    for (size_t i = 0; i < bytes / 4; i++)
        negative += ((const float *)data)[i] < 0;
    atomic_fetch_add(&to->negative, negative);
}
