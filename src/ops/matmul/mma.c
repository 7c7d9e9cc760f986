/* mma.c - see mma.h. */
#include "ops/matmul/mma.h"

/* How numbers of 16 bits are stored, and what an order keeps of a summand. */
typedef struct form {
    int fraction, bias; /* of the type */
    int kept, least;    /* F, and the floor of E */
} form;

/* sig * 2^(exp - fraction), |sig| < 2^(fraction + 1) */
typedef struct number {
    int sig, exp;
    bool special; /* NaN or infinity */
} number;

static inline number split(const form *f, uint16_t half)
{
    const int fraction = half & ((1 << f->fraction) - 1), top = 2 * f->bias + 1,
              field = half >> f->fraction & top,
              size = field ? fraction | 1 << f->fraction : fraction;
    return (number){ half >> 15 ? -size : size, (field ? field : 1) - f->bias, field == top };
}

static inline number split_c(uint32_t c)
{
    const int fraction = (int)(c & 0x7fffff), field = (int)(c >> 23 & 255),
              size = field ? fraction | 0x800000 : fraction;
    return (number){ c >> 31 ? -size : size, (field ? field : 1) - 127, field == 255 };
}

/* x * 2^by, truncated toward zero. */
static inline int64_t scaled(int64_t x, int by)
{
    if (by >= 0)
        return x * ((int64_t)1 << by);
    const int64_t size = (x < 0 ? -x : x) >> (by < -63 ? 63 : -by);
    return x < 0 ? -size : size;
}

/* sum * 2^unit as a float32, truncated toward zero. */
static inline uint32_t truncated(int64_t sum, int unit)
{
    if (sum == 0)
        return 0;
    const uint32_t sign = sum < 0 ? 0x80000000u : 0;
    const uint64_t size = (uint64_t)(sum < 0 ? -sum : sum);
    const int exp = 63 - __builtin_clzll(size) + unit;
    if (exp > 127)
        return sign | 0x7f800000u;
    const int last = (exp < -126 ? -126 : exp) - 23 - unit; /* the last bit kept */
    const uint32_t kept = (uint32_t)(last >= 0 ? size >> last : size << -last);
    if (kept == 0)
        return 0;
    return exp < -126 ? sign | kept : sign | (uint32_t)(exp + 127) << 23 | (kept & 0x7fffff);
}

/* Some number is not finite. */
static uint32_t group_special(const form *f, uint32_t c, const uint16_t *a, const uint16_t *b,
                              int n)
{
    const int one = 1 << f->fraction; /* significand of an infinity, and of no NaN */
    bool nan = false, plus = false, minus = false;
    if ((c & 0x7f800000) == 0x7f800000) {
        nan = (c & 0x7fffff) != 0;
        plus = !nan && c >> 31 == 0;
        minus = !nan && c >> 31 != 0;
    }
    for (int i = 0; i < n; i++) {
        const number x = split(f, a[i]), y = split(f, b[i]);
        if (!x.special && !y.special)
            continue;
        nan |= (x.special && x.sig != one && x.sig != -one) ||
               (y.special && y.sig != one && y.sig != -one) || x.sig == 0 || y.sig == 0;
        plus |= (x.sig < 0) == (y.sig < 0);
        minus |= (x.sig < 0) != (y.sig < 0);
    }
    return nan || (plus && minus) ? 0x7fffffff : plus ? 0x7f800000 : 0xff800000;
}

static inline uint32_t group(const form *f, uint32_t c, const uint16_t *a, const uint16_t *b, int n)
{
    int product[SHEAF__MMA_MOST], exp[SHEAF__MMA_MOST];
    const number z = split_c(c);
    int top = z.sig != 0 && z.exp > f->least ? z.exp : f->least;
    bool special = z.special;
    for (int i = 0; i < n; i++) {
        const number x = split(f, a[i]), y = split(f, b[i]);
        product[i] = x.sig * y.sig;
        exp[i] = product[i] != 0 ? x.exp + y.exp : f->least;
        top = exp[i] > top ? exp[i] : top;
        special |= x.special || y.special;
    }
    if (special)
        return group_special(f, c, a, b, n);
    const int unit = top - f->kept; /* of what is summed */
    int64_t sum = z.sig == 0 ? 0 : scaled(z.sig, z.exp - 23 - unit);
    for (int i = 0; i < n; i++)
        sum += scaled(product[i], exp[i] - 2 * f->fraction - unit);
    return truncated(sum, unit);
}

static const form forms[2][2] = { { { 7, 127, 24, -132 }, { 7, 127, 25, -133 } },
                                  { { 10, 15, 24, -132 }, { 10, 15, 25, -133 } } };

static const form *form_of(sheaf_sums sums, sheaf_dtype dtype)
{
    return &forms[dtype == SHEAF_F16][sums == SHEAF_SUMS_MMA16];
}

uint32_t sheaf__mma_group(sheaf_sums sums, sheaf_dtype dtype, uint32_t c, const uint16_t *a,
                          const uint16_t *b, int n)
{
    return group(form_of(sums, dtype), c, a, b, n);
}

uint32_t sheaf__mma_chain(sheaf_sums sums, sheaf_dtype dtype, uint32_t c, const uint16_t *a,
                          const uint16_t *b, int64_t n)
{
    const form *f = form_of(sums, dtype);
    const int length = sheaf__mma_length(sums);
    for (int64_t i = 0; i < n; i += length)
        c = group(f, c, a + i, b + i, n - i < length ? (int)(n - i) : length);
    return c;
}
