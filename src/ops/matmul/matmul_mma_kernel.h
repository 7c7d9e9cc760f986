/* matmul_mma_kernel.h - the orders mma8 and mma16 by vectors; the body of matmul_avx512mma.c and
 * matmul_avx2mma.c.
 *
 * Four vectors of sums grow side by side: UNIT rows of A and the columns of a panel, or twice as
 * many rows where half a panel is left. Of one group of products (mma.h), for each sum:
 *   - E from the largest sum of exponents, which are bytes, and from the sum's own;
 *   - every product, exact as a float32, times 2^(F - E) becomes an integer toward zero, and so
 *     does the sum before; they are added as integers;
 *   - the result becomes a float32 toward zero, times 2^(E - F).
 * With factors up to 2^25 and E from MMA_LOW on each step is exact but the two that are to round.
 * Where E is lower, a sum of integers has no room, a factor is rare, or a sum is not finite, the
 * rule itself computes those sums.
 * Sums of one group of 16: products are below 63.94 * 2^25, c is below 2 * 2^25. So what is from
 * 62 * 2^25 on may have gone past 2^31.
 *
 * B comes into elements as A does (matmul_mma.h), DEEP elements of a panel at a time, which all
 * rows of a band meet. */
#include "base/thread.h"
#include "base/unroll.h"
#include "ops/matmul/matmul_finish.h"
#include "ops/matmul/matmul_mma.h"
#include "ops/matmul/matmul_transpose.h"
#include "ops/matmul/mma.h"
#include "ops/matmul/mma_product.h"

#define DEEP 64
#define FULL (MM_PANEL / LANES) /* vectors of a panel */
#define SUMS 4                  /* vectors */
#define UNIT (SUMS / FULL)

/* Elements of a panel, or of half of it. */
typedef struct right {
    float value[DEEP][MM_PANEL];
    uint32_t exps[DEEP][LANES]; /* of the same lane of all four sums */
    uint8_t flag[DEEP / 8];
} right;

/* A tile's rows and the elements they are multiplied by at a time. */
typedef struct meeting {
    const mma_left *left;
    const right *right;
    float *sums;         /* [rows][32] */
    int64_t rows, at, n; /* at: of left's elements; n of them */
    sheaf_sums order;
    sheaf_dtype dtype;
    const uint32_t *a, *b; /* as they are stored: the first of n / 2 steps, or of fewer */
    int64_t lda, ldb, steps;
} meeting;

/* ---- B into elements ---- */

/* Exponents of the two halves of each word; *any gathers bits of those that are not zero, *most the
 * largest one. */
static inline __attribute__((always_inline)) ivec exponents(ivec words, ivec *any, ivec *most,
                                                            const bool f16)
{
    const ivec all = SLL16(words, 1), field = SRL16(all, f16 ? 11 : 8), none = ISET(0);
    ivec e = SUB16(f16 ? MAX16(field, ISET16(1)) : field, ISET16(f16 ? 15 : 127));
    lanes16 rare = ABOVE16(e, ISET16(f16 ? 15 : MMA_MOST));
    if (!f16)
        rare = EITHER(rare, EQUAL16(field, none));
    e = PICK16(rare, ISET16(MMA_RARE), e);
    e = PICK16(EQUAL16(all, none), ISET16(MMA_ZERO), e);
    *any = IOR(*any, all);
    *most = MAX16(*most, e);
    return e;
}

/* The exponents of a step, of `vectors` vectors of words. */
static inline __attribute__((always_inline)) void put_exponents(uint32_t *even, uint32_t *odd,
                                                                const ivec *e, const int vectors)
{
    const ivec byte = ISET(0x00ff00ff), half = ISET(0xffff);
    ivec two[2];
    UNROLL for (int i = 0; i < 2; i++)
    {
        const ivec first = e[vectors == 4 ? 2 * i : 0], second = e[vectors == 4   ? 2 * i + 1
                                                                   : vectors == 2 ? 1
                                                                                  : 0];
        two[i] = IOR(IAND(first, byte), SLL16(second, 8));
    }
    ISTORE(even, IOR(IAND(two[0], half), SLL(two[1], 16)));
    ISTORE(odd, IOR(SRL(two[0], 16), IXOR(two[1], IAND(two[1], half))));
}

/* One step: two elements of each column. */
static inline __attribute__((always_inline)) void right_step(right *to, int64_t at,
                                                             const uint32_t *words, ivec *any,
                                                             ivec *most, const int vectors,
                                                             const bool f16)
{
    ivec e[SUMS];
    UNROLL for (int v = 0; v < vectors; v++)
    {
        const ivec w = ILOAD(words + v * LANES), low = IAND(w, ISET(0xffff)), high = IXOR(w, low);
        const vec even = f16 ? WIDEN_F16(low) : FLOATS(SLL(w, 16)),
                  odd = f16 ? WIDEN_F16(SRL(w, 16)) : FLOATS(high);
        STORE(to->value[at] + v * LANES, even);
        STORE(to->value[at + 4] + v * LANES, odd);
        e[v] = exponents(w, any, most, f16);
    }
    put_exponents(to->exps[at], to->exps[at + 4], e, vectors);
}

/* `steps` steps; what is missing of a last group is zero. */
static inline __attribute__((always_inline)) void into_right(right *to, const uint32_t *words,
                                                             int64_t ldb, int64_t steps,
                                                             const int length, const int vectors,
                                                             const bool f16)
{
    static const uint32_t zeros[MM_PANEL];
    for (int64_t s = 0; s < steps; s += length / 2) {
        ivec any = ISET(0), most = ISET16(MMA_ZERO);
        for (int64_t i = s; i < s + length / 2; i++)
            right_step(to, i / 4 * 8 + i % 4, i < steps ? words + i * ldb : zeros, &any, &most,
                       vectors, f16);
        const ivec rare = EQUAL8(most, ISET16(MMA_RARE));
        to->flag[2 * s / length] = (uint8_t)((IS_ZERO(any) ? MMA_NOTHING : 0) |
                                             (IS_ZERO(SRL16(SLL16(rare, 8), 8)) ? 0 : MMA_CARE));
    }
}

/* Columns from `cols` on are not there. */
static void free_right(right *to, int64_t n, int64_t cols, int64_t all)
{
    const int64_t vectors = all / LANES;
    for (int64_t k = 0; k < n; k++)
        for (int64_t c = cols; c < all; c++) {
            to->value[k][c] = 0;
            for (int64_t q = c / LANES; q < SUMS; q += vectors)
                ((uint8_t *)&to->exps[k][c % LANES])[q] = MMA_FREE;
        }
}

/* ---- a group that needs care ---- */

/* Group g of a meeting and a unit's sums: before it, and after it as vectors gave them. */
typedef struct care {
    const meeting *m;
    int64_t unit, group;
    vec sum[SUMS], before[SUMS];
    ivec integer[SUMS];
} care;

static uint32_t by_rule(const meeting *m, int64_t row, int64_t column, int64_t group, uint32_t c)
{
    uint16_t x[SHEAF__MMA_MOST], y[SHEAF__MMA_MOST];
    if (row >= m->rows)
        return c;
    const int length = sheaf__mma_length(m->order);
    const int64_t first = group * length / 2, end = mm_min(m->steps, first + length / 2);
    int n = 0;
    for (int64_t s = first; s < end; s++) {
        const uint32_t a = m->a[row * m->lda + s], b = m->b[s * m->ldb + column];
        x[n] = (uint16_t)a;
        y[n++] = (uint16_t)b;
        x[n] = (uint16_t)(a >> 16);
        y[n++] = (uint16_t)(b >> 16);
    }
    return sheaf__mma_group(m->order, m->dtype, c, x, y, n);
}

/* Of each byte of exps: the largest sum; whether some product is not zero; whether some factor is
 * rare. */
static void look_at(const care *o, uint8_t top[SUMS * LANES], uint8_t some[SUMS * LANES],
                    uint8_t rare[SUMS * LANES])
{
    const int length = sheaf__mma_length(o->m->order);
    const int64_t k = o->group * length;
    const uint32_t *a = &o->m->left->exps[o->unit][o->m->at + k];
    ivec most = ISET(0x80808080u), zeros = ISET(-1), odd = ISET(0);
    for (int p = 0; p < length; p++) {
        const ivec x = IWORD(a + p), y = ILOAD(o->m->right->exps[k + p]);
        const ivec zero = ISET(0x80808080u), special = ISET(0x7f7f7f7f);
        most = MAX8(most, ADD8(x, y));
        zeros = IAND(zeros, IOR(EQUAL8(x, zero), EQUAL8(y, zero)));
        odd = IOR(odd, IOR(EQUAL8(x, special), EQUAL8(y, special)));
    }
    ISTORE(top, IXOR(most, ISET(0x80808080u)));
    ISTORE(some, IXOR(zeros, ISET(-1)));
    ISTORE(rare, odd);
}

/* Sums that vectors cannot compute, by the rule. */
static __attribute__((noinline)) void with_care(care *o, int vectors)
{
    uint8_t top[SUMS * LANES], some[SUMS * LANES], rare[SUMS * LANES];
    look_at(o, top, some, rare);
    for (int q = 0; q < SUMS; q++) {
        uint32_t sum[LANES], before[LANES];
        int32_t integer[LANES];
        ISTORE(sum, BITS(o->sum[q]));
        ISTORE(before, BITS(o->before[q]));
        ISTORE(integer, o->integer[q]);
        for (int l = 0; l < LANES; l++) {
            const int at = 4 * l + q, own = (int)(before[l] >> 23 & 255);
            const uint32_t size = before[l] & 0x7fffffff,
                           much = (uint32_t)(integer[l] < 0 ? -(uint32_t)integer[l]
                                                            : (uint32_t)integer[l]);
            if (size > 0x7f800000)
                sum[l] = 0x7fffffff;
            else if (!some[at] && !rare[at])
                sum[l] = before[l];
            else if (rare[at] || own >= 127 + 100 || much >= 62u << 25 ||
                     (own > top[at] ? own : top[at]) < 127 + MMA_LOW)
                sum[l] = by_rule(o->m, o->unit * (SUMS / vectors) + q / vectors,
                                 q % vectors * LANES + l, o->group, before[l]);
        }
        o->sum[q] = LOAD((const float *)sum);
    }
}

/* ---- rows by columns ---- */

/* One group; false: some sums need care. */
static inline __attribute__((always_inline)) bool add_group(vec c[SUMS], ivec sum[SUMS],
                                                            const float *a, const uint32_t *ae,
                                                            const float *b, const uint32_t *be,
                                                            const int length, const int vectors)
{
    const int kept = length == 8 ? 24 : 25; /* F */
    ivec e = ISET(0x80808080u), least = ISET(-1), most = ISET(0);
    vec scale[SUMS];
    UNROLL for (int p = 0; p < length; p++) e = MAX8(e, ADD8(IWORD(ae + p), ILOAD(be + p * LANES)));
    e = IXOR(e, ISET(0x80808080u));
    UNROLL for (int q = 0; q < SUMS; q++)
    {
        const ivec top = MAXU(SLL(e, 24 - 8 * q), SLL(BITS(c[q]), 1));
        least = MINU(least, top);
        scale[q] =
            FLOATS(ISUB(ISET((254u + (uint32_t)kept) << 23), IAND(SRL(top, 1), ISET(0x7f800000))));
        sum[q] = TOWARD_ZERO(MUL(c[q], scale[q]));
    }
    UNROLL for (int p = 0; p < length; p++)
    {
        UNROLL for (int q = 0; q < SUMS; q++)
        {
            const vec x = SPLAT(a[q / vectors * MMA_ELEMENTS + p]),
                      y = LOAD(b + p * MM_PANEL + q % vectors * LANES);
            sum[q] = IADD(sum[q], TOWARD_ZERO(MUL(MUL(x, y), scale[q])));
            IN_ORDER(sum[q]);
        }
    }
    UNROLL for (int q = 0; q < SUMS; q++)
    {
        most = length == 8 ? most : MAXU(most, IABS(sum[q]));
        c[q] = MUL(FROM_INT(sum[q]), FLOATS(ISUB(ISET(254 << 23), BITS(scale[q]))));
    }
    return !OUTSIDE(least, ISET((uint32_t)(127 + MMA_LOW) << 24), most, ISET(62u << 25));
}

/* Whether some sum is from 2^100 on, or not finite. */
static inline __attribute__((always_inline)) bool is_large(const vec c[SUMS])
{
    ivec most = ISET(0);
    UNROLL for (int q = 0; q < SUMS; q++) most = MAXU(most, SLL(BITS(c[q]), 1));
    return ANY_ABOVE(most, ISET((127u + 100) << 24));
}

/* A unit of rows. */
static inline __attribute__((always_inline)) void meet(const meeting *m, int64_t unit,
                                                       const int length, const int vectors)
{
    const int64_t row = unit * (SUMS / vectors);
    const mma_left *left = m->left;
    const uint8_t *flag = &left->flag[unit][m->at / length];
    float *sums = m->sums + row * MM_PANEL;
    vec c[SUMS];
    UNROLL for (int q = 0; q < SUMS; q++) c[q] =
        LOAD(sums + q / vectors * MM_PANEL + q % vectors * LANES);
    bool large = is_large(c);
    for (int64_t g = 0; g < m->n / length; g++) {
        const int f = flag[g] | m->right->flag[g];
        if (f == MMA_NOTHING)
            continue;
        vec before[SUMS];
        ivec integer[SUMS];
        UNROLL for (int q = 0; q < SUMS; q++) before[q] = c[q];
        const int64_t k = g * length;
        const bool fine =
            add_group(c, integer, &left->value[row][m->at + k], &left->exps[unit][m->at + k],
                      m->right->value[k], m->right->exps[k], length, vectors);
        if (__builtin_expect(!fine || large || f != 0, 0)) {
            care o;
            o.m = m;
            o.unit = unit;
            o.group = g;
            UNROLL for (int q = 0; q < SUMS; q++)
            {
                o.sum[q] = c[q];
                o.before[q] = before[q];
                o.integer[q] = integer[q];
            }
            with_care(&o, vectors);
            UNROLL for (int q = 0; q < SUMS; q++) c[q] = o.sum[q];
            large = is_large(c);
        }
    }
    UNROLL for (int q = 0; q < SUMS; q++)
        STORE(sums + q / vectors * MM_PANEL + q % vectors * LANES, c[q]);
}

/* Functions for one length of groups, and for a width beside it. */
#define MEET(length, name, vectors)                                                                \
    static __attribute__((noinline)) void meet_##length##_##name(const meeting *m)                 \
    {                                                                                              \
        for (int64_t u = 0; u < mm_div_up(m->rows, SUMS / (vectors)); u++)                         \
            meet(m, u, length, vectors);                                                           \
    }
#define INTO_RIGHT(length, name, vectors, type)                                                    \
    static __attribute__((noinline)) void right_##length##_##name##_##type(                        \
        right *to, const uint32_t *words, int64_t ldb, int64_t steps)                              \
    {                                                                                              \
        into_right(to, words, ldb, steps, length, vectors, type);                                  \
    }
#define WIDTH(length, name, vectors)                                                               \
    MEET(length, name, vectors)                                                                    \
    INTO_RIGHT(length, name, vectors, 0) INTO_RIGHT(length, name, vectors, 1)
WIDTH(8, whole, FULL)
WIDTH(8, half, FULL / 2)
WIDTH(16, whole, FULL)
WIDTH(16, half, FULL / 2)

/* ---- a band ---- */

/* How one type is computed in one order, of a whole panel's width or half of it. */
typedef struct mma_way {
    sheaf_sums order;
    sheaf_dtype dtype;
    struct {
        void (*meet)(const meeting *m);
        void (*into_right)(right *to, const uint32_t *words, int64_t ldb, int64_t steps);
    } width[2];
} mma_way;
/* A tile: columns [j, j + cols) of the band, at most `all`. */
typedef struct tile {
    const mm_band *band;
    const mma_way *way;
    const mma_left *left;
    int64_t j, cols, all;
    int half; /* of a panel, 1 */
} tile;

/* One pass of a tile, on from what is in `sums`. */
static void add_products(const tile *t, const mm_pass *pass, const uint32_t *panel, float *sums)
{
    right right;
    const int length = sheaf__mma_length(t->way->order);
    for (int64_t s = 0; s < pass->steps; s += DEEP / 2) {
        const int64_t steps = mm_min(DEEP / 2, pass->steps - s), n = mm_up(2 * steps, length);
        const uint32_t *b = panel + s * MM_PANEL;
        t->way->width[t->half].into_right(&right, b, MM_PANEL, steps);
        if (t->cols < t->all)
            free_right(&right, n, t->cols, t->all);
        const meeting m = { t->left,
                            &right,
                            sums,
                            t->band->rows,
                            2 * (pass->at + s),
                            n,
                            t->way->order,
                            t->way->dtype,
                            (const uint32_t *)t->band->a + pass->at + s,
                            b,
                            t->band->words,
                            MM_PANEL,
                            steps };
        t->way->width[t->half].meet(&m);
    }
}

/* The sums of a pass go where they belong. */
static void put(const tile *t, const mm_pass *pass, float *sums, bool last)
{
    const mm_band *band = t->band;
    float *to = last ? sums : mm_sums_at(band, pass->to, t->j);
    for (int64_t r = 0; r < band->rows; r++)
        for (int64_t c = 0; c < t->all; c += LANES) {
            const int64_t at = r * MM_PANEL + c;
            vec v = LOAD(sums + at);
            if (pass->ends)
                v = WITHOUT_DENORMALS(v); /* an operand like any other */
            for (int q = 0; q < pass->addends; q++)
                v = ADD(LOAD(mm_sums_at(band, pass->addend[q], t->j) + at), v);
            STORE(to + at, v);
        }
    if (last)
        finish_panel(band->finish, sums, band->row0, band->col0 + t->j, band->rows, t->cols);
}

static void run_tile(const tile *t)
{
    const mm_band *band = t->band;
    float sums[MMA_ROWS * MM_PANEL] __attribute__((aligned(64)));
    for (int p = 0; p < band->passes; p++) {
        const mm_pass *pass = &band->pass[p];
        const int64_t rows = mm_up(band->rows, SUMS); /* a unit's last ones may not be there */
        const bool last = band->finish != NULL && p + 1 == band->passes;
        memset(sums, 0, (size_t)(rows * MM_PANEL) * sizeof *sums);
        for (int64_t r = 0; pass->goes_on && r < band->rows; r++)
            memcpy(sums + r * MM_PANEL, mm_sums_at(band, pass->chain, t->j) + r * MM_PANEL,
                   (size_t)t->all * sizeof *sums);
        if (last)
            ask_addend(band->finish, band->row0, band->col0 + t->j, band->rows, t->cols);
        if (pass->steps > 0) {
#ifdef ROUNDS_BY_MODE
            const unsigned before = sheaf__mode_set(sheaf__mode() | SHEAF__TOWARD_ZERO);
#endif
            add_products(t, pass,
                         band->b[p] + t->j / MM_PANEL * MM_PANEL * pass->steps + t->j % MM_PANEL,
                         sums);
#ifdef ROUNDS_BY_MODE
            sheaf__mode_set(before);
#endif
        }
        put(t, pass, sums, last);
    }
}

static void run(const mm_band *band, const mma_way *way)
{
    mma_left left;
    const int length = sheaf__mma_length(way->order);
    mm_soon *list = band->soon;
    const int64_t tiles = mm_div_up(band->cols, MM_PANEL), lines = mm_div_up(band->lines, tiles);
    int unit = 0; /* that `left` is for */
    for (int64_t j = 0; j < band->cols; j += MM_PANEL) {
        const int64_t cols = mm_min(MM_PANEL, band->cols - j);
        const int half = cols <= MM_PANEL / 2, wanted = half ? 2 * UNIT : UNIT;
        if (wanted != unit)
            sheaf__mma_left(&left, band, way->dtype == SHEAF_F16, length, unit = wanted);
        mm_ask(&list, lines);
        run_tile(&(tile){ band, way, &left, j, cols, half ? MM_PANEL / 2 : MM_PANEL, half });
    }
}

#define WAY(name, order, dtype, length, type)                                                      \
    static const mma_way way_##name = {                                                            \
        order,                                                                                     \
        dtype,                                                                                     \
        { { meet_##length##_whole, right_##length##_whole_##type },                                \
          { meet_##length##_half, right_##length##_half_##type } }                                 \
    };                                                                                             \
    void ISA(mm_run_##name)(const mm_band *band)                                                   \
    {                                                                                              \
        run(band, &way_##name);                                                                    \
    }
WAY(mma8_bf16, SHEAF_SUMS_MMA8, SHEAF_BF16, 8, 0)
WAY(mma8_f16, SHEAF_SUMS_MMA8, SHEAF_F16, 8, 1)
WAY(mma16_bf16, SHEAF_SUMS_MMA16, SHEAF_BF16, 16, 0)
WAY(mma16_f16, SHEAF_SUMS_MMA16, SHEAF_F16, 16, 1)

/* ---- a product for attention (mma_product.h) ---- */

#define HALF (MM_PANEL / 2)

/* Rows [row, row + rows) of A, one after the other, and into elements. */
static void take_rows(mma_left *left, uint32_t *words, const sheaf__mma_product *p, int64_t row,
                      int64_t rows)
{
    const char *from = p->a + row * p->a_row;
    const mm_pass pass = { .steps = p->steps };
    const mm_band band = {
        .a = words, .words = MM_STRIDE_PAIRS, .pass = &pass, .passes = 1, .rows = rows
    };
    if (p->a_step == sizeof *words)
        for (int64_t r = 0; r < rows; r++)
            memcpy(words + r * MM_STRIDE_PAIRS, from + r * p->a_row,
                   (size_t)p->steps * sizeof *words);
    else
        mm_transpose(words, MM_STRIDE_PAIRS, from, p->a_step, p->steps, rows, 0);
    sheaf__mma_left(left, &band, p->dtype == SHEAF_F16, sheaf__mma_length(p->sums), 2 * UNIT);
}

/* These rows by one panel, on from what is in `sums`. */
static void meet_panel(const sheaf__mma_product *p, const mma_way *way, const mma_left *left,
                       const uint32_t *words, int64_t rows, const uint32_t *b, float *sums)
{
    right right;
    const int length = sheaf__mma_length(p->sums);
    for (int64_t s = 0; s < p->steps; s += DEEP / 2) {
        const int64_t steps = mm_min(DEEP / 2, p->steps - s);
        way->width[1].into_right(&right, b + s * HALF, HALF, steps);
        way->width[1].meet(&(meeting){ left, &right, sums, rows, 2 * s, mm_up(2 * steps, length),
                                       p->sums, p->dtype, words + s, b + s * HALF, MM_STRIDE_PAIRS,
                                       HALF, steps });
    }
}

/* Rows of a panel of c; `out`: from sums to it. */
static void move_sums(const sheaf__mma_product *p, float *sums, float *c, int64_t rows, bool out)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < HALF; i += LANES) {
            float *to = c + r * p->c_row + i, *at = sums + r * MM_PANEL + i;
            if (!out)
                STORE(at, p->on ? LOAD(to) : FLOATS(ISET(0)));
            else
                STORE(to, p->on ? LOAD(at) : MUL(SPLAT(p->scale), LOAD(at)));
        }
}

void ISA(sheaf__mma_product)(const sheaf__mma_product *p)
{
    static const mma_way *const ways[2][2] = { { &way_mma8_bf16, &way_mma8_f16 },
                                               { &way_mma16_bf16, &way_mma16_f16 } };
    const mma_way *way = ways[p->sums == SHEAF_SUMS_MMA16][p->dtype == SHEAF_F16];
    mma_left left;
    uint32_t words[MMA_ROWS * MM_STRIDE_PAIRS];
    float sums[MMA_ROWS * MM_PANEL] __attribute__((aligned(64))) = { 0 };
    for (int64_t row = 0, rows; row < p->rows; row += rows) {
        rows = mm_min(MMA_ROWS, p->rows - row);
        take_rows(&left, words, p, row, rows);
        for (int64_t i = 0; i < p->panels; i++) {
            float *c = p->c + row * p->c_row + i * p->c_panel;
            move_sums(p, sums, c, rows, false);
#ifdef ROUNDS_BY_MODE
            const unsigned before = sheaf__mode_set(sheaf__mode() | SHEAF__TOWARD_ZERO);
#endif
            meet_panel(p, way, &left, words, rows, p->b + i * p->b_panel, sums);
#ifdef ROUNDS_BY_MODE
            sheaf__mode_set(before);
#endif
            move_sums(p, sums, c, rows, true);
        }
    }
}
