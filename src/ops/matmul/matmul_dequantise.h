/* matmul_dequantise.h - codes of a cell (matmul_quant.h) to panels by vectors; the body of
 * matmul_avx2quant.c, matmul_avx512quant.c and matmul_avx512bf16quant.c.
 *
 * A vector has two columns of LANES / 2 rows, VECTORS of them a panel's step of pairs. Scales that
 * are tiny or not finite go the slow way: vectors flush what is denormal.
 *
 * The file that includes it defines NAME(x), LANES and
 *   vec ivec MUL FMA(a, b, c) SUB SPLAT(x) LOAD(p) ILOAD(p)
 *   SHIFT(i, n) NEXT(i, n)        NEXT by a number that the compiler knows
 *   TWICE(p)                      LANES / 2 words, each in two lanes; in the second one its upper
 *                                 half is lowest
 *   table TABLE(p) LOOKUP(t, i)   of 16 numbers that of the lowest 4 bits of each word
 *   SIGNED(i) FLOAT8(i)           the lowest 8 bits of each word as numbers
 *   INTERLEAVE(s, a, b)           a[32], b[32] to s[VECTORS]
 *   ORDINARY(s)                   nothing in a vector is tiny or not finite
 *   THROUGH(x, type)              rounded to 16 bits and widened
 *   STORE_FLOATS(to, x)           two steps of [32] from x[VECTORS]
 *   STORE_WORDS(to, x, type)      [32] pairs */
#include "base/unroll.h"
#include "ops/matmul/matmul_quant.h"
#include "ops/quant/quantise.h"
#include "ops/quant/values.h"

#define VECTORS (2 * MM_PANEL / LANES)

/* How a code becomes a number: by a table, or by arithmetic. */
typedef enum way { TABLED, ZEROED, ADDED, SIGNED_BYTES, ADDED_BYTES, FLOAT_BYTES } way;
#define BITS(way) ((way) <= ADDED ? 4 : 8)
#define IS_ADDED(way) ((way) == ADDED || (way) == ADDED_BYTES)

typedef struct todo {
    uint32_t *to;
    int64_t col, cols; /* of the block */
    sheaf_dtype dtype, between;
    const float *numbers;
    bool plain; /* numbers alone, not scaled */
} todo;

/* Scales at hand, and zeros or what is added. */
typedef struct held {
    vec scale[VECTORS], other[VECTORS];
    int64_t next;
} held;

/* Scales lie between codes, and there the processor by itself loses the stream: what lies at the
 * same place of the next panel's cell. */
static inline __attribute__((always_inline)) void ask(const mm_cell *c, const void *at,
                                                      const int64_t bytes)
{
    enum { LINE = 64 };
    UNROLL for (int64_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch((const char *)at + c->l->cell + i, 0, 3);
}

static inline __attribute__((always_inline)) bool hold(held *h, mm_cell *c, int64_t col,
                                                       const todo *d, const way way)
{
    mm_scales s;
    bool ordinary = true;
    if (d->plain) {
        UNROLL for (int v = 0; v < VECTORS; v++) h->scale[v] = SPLAT(1.0f);
        h->next = MM_BLOCK;
        return true;
    }
    h->next = sheaf__mm_cell_scales(&s, c, col);
    ask(c, s.scale[0], MM_PANEL * sizeof *s.scale[0] * (IS_ADDED(way) ? 2 : 1));
    INTERLEAVE(h->scale, s.scale[0], s.scale[1]);
    if (way == ZEROED || IS_ADDED(way))
        INTERLEAVE(h->other, s.other[0], s.other[1]);
    for (int side = 0; side < 1 + (s.scale[1] != s.scale[0]); side++)
        UNROLL for (int v = 0; v < VECTORS / 2; v++) ordinary &=
            ORDINARY(LOAD(s.scale[side] + v * LANES)) &&
            (!IS_ADDED(way) || ORDINARY(LOAD(s.other[side] + v * LANES)));
    return ordinary;
}

static inline __attribute__((always_inline)) vec number(ivec words, const table *t, const way way)
{
    return way == FLOAT_BYTES ? FLOAT8(words) : BITS(way) == 8 ? SIGNED(words) : LOOKUP(*t, words);
}

/* One step of codes that lie lowest in words: to a panel's next step of pairs. */
static inline __attribute__((always_inline)) uint32_t *
step(uint32_t *to, const ivec words[VECTORS], const held *h, const table *t, const todo *d,
     const way way, const sheaf_dtype dtype, const bool between)
{
    vec x[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++)
    {
        x[v] = number(words[v], t, way);
        if (way == ZEROED)
            x[v] = SUB(x[v], h->other[v]);
        /* Products to which something is added are exact: whole numbers and scales of 17 bits. */
        x[v] = IS_ADDED(way) ? FMA(x[v], h->scale[v], h->other[v]) : MUL(x[v], h->scale[v]);
        if (between)
            x[v] = THROUGH(x[v], d->between);
    }
    if (dtype == SHEAF_F32)
        STORE_FLOATS(to, x);
    else
        STORE_WORDS(to, x, dtype);
    return to + (dtype == SHEAF_F32 ? 2 : 1) * MM_PANEL;
}

/* Codes of vector v, of the unit that has column `col`. */
static inline __attribute__((always_inline)) ivec codes_of(const mm_cell *c, int64_t col, int v,
                                                           const way way)
{
    const uint32_t *unit = c->codes + col / MM_UNIT * MM_PANEL * (BITS(way) / 4);
    return BITS(way) == 4 ? TWICE(unit + v * LANES / 2) : ILOAD(unit + v * LANES);
}

/* Column `col` and, unless it is the last one, the next. */
static inline __attribute__((always_inline)) uint32_t *
step_at(uint32_t *to, const mm_cell *c, int64_t col, const held *h, const table *t, const todo *d,
        const way way, const sheaf_dtype dtype, const bool between)
{
    uint32_t last[2 * MM_PANEL];
    ivec words[VECTORS];
    UNROLL for (int v = 0; v < VECTORS; v++) words[v] =
        SHIFT(codes_of(c, col, v, way), mm_code_shift(BITS(way), (int)(col % MM_UNIT / 2)));
    if (col + 1 < d->col + d->cols)
        return step(to, words, h, t, d, way, dtype, between);
    (void)step(last, words, h, t, d, way, dtype, between);
    for (int i = 0; i < MM_PANEL; i++)
        to[i] = dtype == SHEAF_F32 ? last[i] : last[i] & 0xffff;
    return to;
}

static inline __attribute__((always_inline)) bool
expand(mm_cell *c, const todo *d, const way way, const sheaf_dtype dtype, const bool between)
{
    const int64_t end = d->col + d->cols;
    const table t = TABLE(d->numbers);
    uint32_t *to = d->to;
    held h = { .next = d->col };
    for (int64_t col = d->col; col < end;) {
        if (col >= h.next && !hold(&h, c, col, d, way))
            return false;
        if (col % MM_UNIT != 0 || col + MM_UNIT > end || col + MM_UNIT > h.next) {
            to = step_at(to, c, col, &h, &t, d, way, dtype, between);
            col += 2;
            continue;
        }
        ivec words[VECTORS];
        ask(c, c->codes + col / MM_UNIT * MM_PANEL * (BITS(way) / 4), MM_PANEL * BITS(way));
        UNROLL for (int v = 0; v < VECTORS; v++) words[v] = codes_of(c, col, v, way);
        UNROLL for (int s = 0; s < MM_UNIT / 2; s++)
        {
            ivec now[VECTORS];
            UNROLL for (int v = 0; v < VECTORS; v++) now[v] =
                NEXT(words[v], mm_code_shift(BITS(way), s));
            to = step(to, now, &h, &t, d, way, dtype, between);
        }
        col += MM_UNIT;
    }
    return true;
}

typedef bool expand_fn(mm_cell *c, const todo *d);

#define EXPAND(way, dtype, between)                                                                \
    static bool expand_##way##_##dtype##_##between(mm_cell *c, const todo *d)                      \
    {                                                                                              \
        return expand(c, d, way, dtype, between);                                                  \
    }
#define EXPANDS(way, dtype) EXPAND(way, dtype, 0) EXPAND(way, dtype, 1)
#define EXPANDS_OF(way) EXPANDS(way, SHEAF_F32) EXPANDS(way, SHEAF_BF16) EXPANDS(way, SHEAF_F16)
EXPANDS_OF(TABLED)
EXPANDS_OF(ZEROED)
EXPANDS_OF(ADDED)
EXPANDS_OF(SIGNED_BYTES)
EXPANDS_OF(ADDED_BYTES)
EXPANDS_OF(FLOAT_BYTES)

#define PAIR(way, dtype)                                                                           \
    {                                                                                              \
        expand_##way##_##dtype##_0, expand_##way##_##dtype##_1                                     \
    }
#define ROW(way)                                                                                   \
    {                                                                                              \
        PAIR(way, SHEAF_F32), PAIR(way, SHEAF_BF16), PAIR(way, SHEAF_F16)                          \
    }
static expand_fn *const expands[6][3][2] = {
    ROW(TABLED), ROW(ZEROED), ROW(ADDED), ROW(SIGNED_BYTES), ROW(ADDED_BYTES), ROW(FLOAT_BYTES)
};

/* Numbers of 4 bits; INT4's from 0 on where zeros are taken from them. */
static void numbers_of(float numbers[16], const sheaf__quant *q)
{
    memcpy(numbers, sheaf__code_numbers(q->codes), 16 * sizeof *numbers);
    for (int i = 0; q->zeros && i < 16; i++)
        numbers[i] = (float)i;
}

void NAME(mm_values)(uint32_t *to, const mm_codes *l, int64_t row, int64_t col, int64_t cols,
                     mm_made made)
{
    const sheaf__packed *w = l->w;
    const sheaf__quant *q = &w->quant;
    const int64_t k0 = col / MM_BLOCK * MM_BLOCK;
    const bool between = made == MM_BACK && !sheaf__quant_of_rows(q) && q->dtype != SHEAF_F32 &&
                         q->dtype != w->dtype;
    const way way = q->codes == SHEAF__INT8          ? (q->added ? ADDED_BYTES : SIGNED_BYTES)
                    : q->codes == SHEAF__F8_E4M3     ? FLOAT_BYTES
                    : q->zeros                       ? ZEROED
                    : q->added && made != MM_NUMBERS ? ADDED
                                                     : TABLED;
    const int type = w->dtype == SHEAF_F32 ? 0 : w->dtype == SHEAF_BF16 ? 1 : 2;
    float numbers[16];
    numbers_of(numbers, q);
    const todo d = { to, col - k0, cols, w->dtype, q->dtype, numbers, made == MM_NUMBERS };
    mm_cell c;
    if (!sheaf__mm_cell(&c, l, row, k0, col - k0, col - k0 + cols) ||
        !expands[way][type][between](&c, &d))
        sheaf__mm_values(to, l, row, col, cols, made);
}
