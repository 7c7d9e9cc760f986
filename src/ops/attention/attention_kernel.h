/* attention_kernel.h - the body of the fast attention, compiled once per instruction set.
 *
 * The file that includes this has defined what attention_tile.h asks for. Everything
 * is laid out in 32-bit words, so that float32 and bfloat16 share the code: a
 * word is one float, or the pair (2i, 2i + 1) of the index that is summed ("step"
 * i). A panel is 16 columns: [steps][16] words. float16 is widened where it is packed,
 * and keys that are read where they lie are widened a strip at a time. So is bfloat16 where its
 * pairs go by fma and meet many others, as picking halves out of words costs half as much again as
 * the fma; of each pair the odd number comes first then, so that an ascending chain is the order
 * `pairs`.
 *
 * Scores are computed transposed, a row per key and a lane per query: softmax is
 * then 16 queries side by side, without sums across a register, and what it
 * leaves is at once the operand of the next product. */
#include <assert.h>
#include <math.h>

#include "ops/math/math.h"
#include "ops/matmul/matmul_transpose.h"
#include "ops/matmul/mma.h"

#define PANEL 16
#define BLOCK SHEAF__ATTENTION_BLOCK
#define STRIP SHEAF__ATTENTION_STRIP
#define LD SHEAF__ATTENTION_LD

static inline int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static inline int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
static inline int64_t up_to(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

/* Whole vectors: nearly all of them are. */
SHEAF__INLINE vec load(const float *x)
{
    return v_load(x, PANEL);
}
SHEAF__INLINE void store(float *x, vec v)
{
    v_store(x, v, PANEL);
}

/* Tiles of the unit that lie side by side, c + a b: two of a below each other, if rows32, and two
 * of b beside each other, if wide. */
typedef struct squares {
    float *c;
    int64_t c_down, c_right; /* floats between tiles */
    const char *a;
    int64_t a_row, a_down, a_chunk; /* bytes between rows, tiles, and chunks of 16 words */
    const uint32_t *b;
    int64_t b_right; /* words between tiles */
    int64_t chunks;
    bool on; /* else c begins with zeros */
} squares;

#define SQUARE 256 /* words of a tile of the unit */

#ifdef HAS_UNIT
#include "ops/attention/attention_unit.h"
#else
static inline void begin_unit(void)
{
}
static inline void end_unit(void)
{
}
static inline void product_unit(const tile *t, int64_t rows, int64_t panels)
{
}
static inline void turn_square(uint32_t *to, const char *from, int64_t step, int64_t count)
{
}
static inline void squares_unit(const squares *s, const bool rows32, const bool wide)
{
}
#endif

/* ---- products ---- */

SHEAF__INLINE vec odd_of(vec words)
{
    return v_float(vi_and(v_bits(words), vi_set(0xffff0000u)));
}
SHEAF__INLINE vec even_of(vec words)
{
    return v_float(vi_left(v_bits(words), 16));
}

/* Two chains for each sum, and their sum after every 16 words. The zeros that fill up a last
 * chunk are left out: they change nothing but the sign of a zero. */
SHEAF__INLINE void run_chains(const tile *t, const int rows, const int panels)
{
    vec c[TILE_ROWS][TILE_PANELS];
    const uint32_t *b = t->b;
    const char *a = t->a;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < panels; p++) c[r][p] =
        t->on ? load(t->c + r * t->c_row + p * t->c_panel) : v_zero();
    for (int64_t left = t->steps; left > 0; left -= CHUNK_WORDS) {
        vec odd[TILE_ROWS][TILE_PANELS], even[TILE_ROWS][TILE_PANELS];
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < panels; p++) odd[r][p] =
            even[r][p] = v_zero();
        for (int64_t n = left < CHUNK_WORDS ? left : CHUNK_WORDS; n > 0;
             n--, a += t->a_step, b += 16) {
            vec b_odd[TILE_PANELS], b_even[TILE_PANELS];
            UNROLL for (int p = 0; p < panels; p++)
            {
                const vec bk = v_float(vi_load(b + p * t->b_panel));
                b_odd[p] = odd_of(bk);
                b_even[p] = even_of(bk);
            }
            UNROLL for (int r = 0; r < rows; r++)
            {
                const vec ak = v_float(vi_set(mm_load_word(a + r * t->a_row))), a_odd = odd_of(ak),
                          a_even = even_of(ak);
                UNROLL for (int p = 0; p < panels; p++)
                {
                    odd[r][p] = v_fma(a_odd, b_odd[p], odd[r][p]);
                    even[r][p] = v_fma(a_even, b_even[p], even[r][p]);
                }
            }
        }
        UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < panels; p++) c[r][p] =
            v_add(c[r][p], v_add(even[r][p], odd[r][p]));
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < panels; p++) if (t->on)
        store(t->c + r * t->c_row + p * t->c_panel, c[r][p]);
    else end_tile(t, r, p, c[r][p]);
}

SHEAF__INLINE void run(const tile *t, const int rows, const int panels, const kind kind)
{
    if (kind == TILES) {
        run_chains(t, rows, panels);
        return;
    }
    vec c[TILE_ROWS][TILE_PANELS];
    const uint32_t *b = t->b;
    const char *a = t->a;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < panels; p++) c[r][p] =
        v_zero();
    for (int64_t k = 0; k < t->steps; k++, a += t->a_step, b += 16) {
        vec bk[TILE_PANELS];
        UNROLL for (int p = 0; p < panels; p++) bk[p] = v_float(vi_load(b + p * t->b_panel));
        UNROLL for (int r = 0; r < rows; r++)
        {
            const vec ak = v_float(vi_set(mm_load_word(a + r * t->a_row)));
            UNROLL for (int p = 0; p < panels; p++) if (kind == PAIRS) c[r][p] =
                STEP_PAIRS(c[r][p], ak, bk[p]);
            else if (kind == SPLIT) c[r][p] =
                v_fma(even_of(ak), even_of(bk[p]), v_fma(odd_of(ak), odd_of(bk[p]), c[r][p]));
            else c[r][p] = v_fma(ak, bk[p], c[r][p]);
        }
    }
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int p = 0; p < panels; p++)
        end_tile(t, r, p, c[r][p]);
}

#define TILE_CASE(rows, panels, kind)                                                              \
    case (kind)*64 + (panels)*8 + (rows)-1: run(t, rows, panels, kind); break;

static void run_tile(const tile *t, int rows, int panels)
{
    switch (t->kind * 64 + panels * 8 + rows - 1) {
        EACH_TILE(TILE_CASE, FLOATS)
        EACH_TILE(TILE_CASE, PAIRS)
        EACH_TILE(TILE_CASE, SPLIT)
        EACH_TILES(TILE_CASE, TILES)
    }
}

static void product_mma(const tile *t, int64_t rows, int64_t panels)
{
    PRODUCT_MMA(&(sheaf__mma_product){ .c = t->c,
                                       .c_row = t->c_row,
                                       .c_panel = t->c_panel,
                                       .a = t->a,
                                       .a_row = t->a_row,
                                       .a_step = t->a_step,
                                       .b = t->b,
                                       .b_panel = t->b_panel,
                                       .rows = rows,
                                       .panels = panels,
                                       .steps = t->steps,
                                       .sums = t->call->sums,
                                       .dtype = t->call->shape->dtype,
                                       .on = t->add,
                                       .scale = t->scale });
}

/* Panels outside, so that they stay in the first-level cache while rows stream past;
 * rows are shared out evenly, because a tile of one row waits for its own sums. */
static void product(const tile *all, int64_t rows, int64_t panels)
{
    if (all->kind == UNIT) {
        product_unit(all, rows, panels);
        return;
    }
    if (all->kind == MMA) {
        product_mma(all, rows, panels);
        return;
    }
    for (int64_t p = 0, wide; p < panels; p += wide) {
        wide = least(panels - p, TILE_PANELS);
        const int64_t most_rows = tile_rows((int)wide, all->kind),
                      tiles = up_to(rows, most_rows) / most_rows;
        tile t = *all;
        t.b += p * all->b_panel;
        for (int64_t i = 0, row = 0, end; i < tiles; i++, row = end) {
            end = rows * (i + 1) / tiles;
            t.c = all->c + p * all->c_panel + row * all->c_row;
            t.a = all->a + row * all->a_row;
            run_tile(&t, (int)(end - row), (int)wide);
        }
    }
}

/* Both kinds of tiles: few are at an edge. */
static void run_squares(const squares *s, bool rows32, bool wide)
{
    if (rows32 && wide)
        squares_unit(s, true, true);
    else if (rows32)
        squares_unit(s, true, false);
    else if (wide)
        squares_unit(s, false, true);
    else
        squares_unit(s, false, false);
}

/* ---- numbers ---- */

/* sheaf__exp of x <= 80, or NaN; anything for other x. Softmax needs no more, and it costs
 * a third less than the whole. */
SHEAF__INLINE vec exp_of(vec x)
{
    const vec shifted = v_fma(x, v_set(0x1.715476p+0f), v_set(0x1.8p23f));
    const vec n = v_sub(shifted, v_set(0x1.8p23f));
    vec r = v_fma(n, v_set(-0x1.62e430p-1f), x);
    r = v_fma(n, v_set(0x1.05c610p-29f), r);
    vec q = v_set(0x1.6a217cp-10f);
    q = v_fma(q, r, v_set(0x1.123b8ap-7f));
    q = v_fma(q, r, v_set(0x1.5558fcp-5f));
    q = v_fma(q, r, v_set(0x1.555490p-3f));
    q = v_fma(q, r, v_set(0x1.fffffcp-2f));
    return power(x, v_add(v_fma(v_mul(r, r), q, r), v_set(1)), n, shifted);
}

/* exp(before - now), 1 where they are the same. */
SHEAF__INLINE vec factor_of(vec before, vec now)
{
    return v_select(v_less(before, now), exp_of(v_sub(before, now)), v_set(1));
}

/* cap * tanh(s / cap) of `count` numbers, whole panels of them. */
static void cap_scores(float *s, float cap, int64_t count)
{
    const vec by = v_set(cap);
    for (int64_t i = 0; i < count; i += PANEL) {
        vec t = v_div(load(s + i), by);
        v_tanh(&t, &t, 1);
        store(s + i, v_mul(by, t));
    }
}

/* sheaf__lanes_join of 16 sums side by side, [lane][16], into the first row; NaN as it comes. */
static void join_lanes(float *lane)
{
    for (int64_t apart = 8 * PANEL; apart >= PANEL; apart /= 2)
        for (int64_t l = 0; l < apart; l += PANEL)
            store(lane + l, v_add(load(lane + l), load(lane + l + apart)));
}

/* Words of floats, or of pairs of 16 bits from two rows; columns from count on are zero. */
SHEAF__INLINE veci words_of(const char *even, const char *odd, int64_t count, sheaf_dtype dtype,
                            bool pairs)
{
    if (!pairs)
        return v_bits(v_read(even, 0, count, dtype));
    const veci a = v_bits(v_read(even, 0, count, SHEAF_BF16)); /* in upper halves */
    return vi_xor(vi_right(a, 16), v_bits(v_read(odd, 0, count, SHEAF_BF16)));
}

/* Has sign bits set where a number in the word is inf or NaN: an exponent of all ones carries
 * into the sign, no other does. Words are collected with either(), then tested once. */
SHEAF__INLINE veci overflow(veci word, uint32_t exponents)
{
    const uint32_t lowest = exponents & ~(exponents << 1);
    return vi_add(vi_and(word, vi_set(exponents)), vi_set(lowest));
}
static bool all_finite(veci overflows, uint32_t exponents)
{
    uint32_t word[PANEL], all = 0;
    vi_store(word, overflows);
    for (int i = 0; i < PANEL; i++)
        all |= word[i];
    return (all & (exponents << 1 & ~exponents)) == 0;
}

/* The keys that a lane's query sees by order and window: key j if j - first, as an unsigned number,
 * is at most last - first. */
typedef struct limits {
    veci minus_first, span;
} limits;

#define NO_KEY UINT32_MAX   /* is seen by none */
#define SEES_NONE INT32_MIN /* minus_first of a query that does not exist; its span is 0 */

SHEAF__INLINE limits limits_at(const int32_t *minus_first, const int32_t *span)
{
    return (limits){ vi_load((const uint32_t *)minus_first), vi_load((const uint32_t *)span) };
}
SHEAF__INLINE vecm sees(limits l, veci key)
{
    return vi_at_least(l.span, vi_add(key, l.minus_first));
}

/* ---- the state of a part ---- */
typedef struct job {
    const sheaf__attention_call *call;
    const sheaf__attention *s;
    sheaf__attention_part part;
    bool pairs;         /* words are pairs of 16 bits */
    bool mma;           /* in the orders mma8 and mma16 */
    bool ends;          /* so that chains over keys end before these do, */
    bool query_ends;    /* and over queries */
    uint32_t exponents; /* the bits of them in a word */
    bool odd_first;     /* bfloat16 widened: element e of what is summed is step e ^ 1 */
    float *strip;       /* if 16-bit numbers are widened: rows of them, [STRIP][wide]; else NULL */
    kind kind;          /* of all products */
    int64_t step;       /* elements of a word */
    int64_t size;       /* bytes of an element */
    int64_t depth;      /* steps over head_dim */
    int64_t panels;     /* of head_dim */
    int64_t wide;       /* head_dim in whole panels */
    char *free, *end;   /* scratch not yet given out */
} job;

/* It widens bfloat16 where that pays: where each number is used more than once. */
static job job_of(const sheaf__attention_call *call, const sheaf__attention_part *part, bool widens,
                  void *scratch, size_t bytes)
{
    const sheaf__attention *s = call->shape;
    job w = {
        .call = call, .s = s, .part = *part, .free = scratch, .end = (char *)scratch + bytes
    };
    w.mma = sheaf__by_mma(call->sums, s->dtype);
    w.ends = sheaf__attention_ends(s, call->sums, s->keys);
    w.query_ends = sheaf__attention_ends(s, call->sums, s->queries);
    w.pairs = w.mma || (s->dtype == SHEAF_BF16 && (!widens || sheaf__attention_by_pairs(call)));
    w.kind = w.mma ? MMA : w.pairs ? kind_of(call) : FLOATS;
    w.exponents = !w.pairs ? 0x7f800000u : s->dtype == SHEAF_F16 ? 0x7c007c00u : 0x7f807f80u;
    w.odd_first = s->dtype == SHEAF_BF16 && !w.pairs;
    w.step = w.pairs ? 2 : 1;
    w.size = s->dtype == SHEAF_F32 ? 4 : 2;
    w.depth = s->head_dim / w.step;
    w.panels = up_to(s->head_dim, PANEL) / PANEL;
    w.wide = w.panels * PANEL;
    return w;
}

static void *take(job *w, int64_t words)
{
    char *got = w->free;
    w->free += up_to(words, PANEL) * 4;
    assert(w->free <= w->end);
    return got;
}

static void take_strip(job *w)
{
    if ((w->s->dtype == SHEAF_F16 && !w->pairs) || w->odd_first)
        w->strip = take(w, STRIP * w->wide);
}

/* The step of element e of what is summed, and the steps of `count` elements: a last one without
 * another is paired with zero. */
static inline int64_t step_of(const job *w, int64_t e)
{
    return w->odd_first ? e ^ 1 : e / w->step;
}
static inline int64_t steps_of(const job *w, int64_t count)
{
    return w->odd_first ? up_to(count, 2) : up_to(count, w->step) / w->step;
}

static bool is_hidden(const job *w, int64_t j)
{
    return sheaf__attention_masked(w->s, w->part.batch, j);
}

static const char *row_of(const job *w, const void *x, int64_t row, int64_t ld, int64_t head)
{
    return (const char *)x + sheaf__attention_at(row, ld, head, w->s->head_dim) * w->size;
}
static const char *key_row(const job *w, const void *x, int64_t j, int64_t ld)
{
    return (const char *)x +
           sheaf__attention_key_at(w->s, w->part.batch, w->part.kv, j, ld) * w->size;
}
static const char *k_row(const job *w, int64_t j)
{
    return key_row(w, w->call->k, j, w->s->ldk);
}
static const char *v_row(const job *w, int64_t j)
{
    return key_row(w, w->call->v, j, w->s->ldv);
}
/* Of query i and head g of the group: in q or dq, in o or d_o. */
static const char *q_row(const job *w, const void *q, int64_t i, int64_t g)
{
    return row_of(w, q, w->part.batch * w->s->queries + i, w->s->ldq, w->part.kv * w->s->group + g);
}
static const char *o_row(const job *w, const void *o, int64_t i, int64_t g)
{
    return row_of(w, o, w->part.batch * w->s->queries + i, w->s->ldo, w->part.kv * w->s->group + g);
}

/* Rows of one head lie thousands of bytes apart, where the hardware sees no stream: they
 * are prefetched while those before them are used. */
static void fetch_rows(const job *w, const char *row, int64_t stride, int64_t count)
{
    const int64_t bytes = w->s->head_dim * w->size;
    for (int64_t i = 0; i < count; i++, row += stride)
        for (int64_t at = 0; at < bytes; at += 64)
            __builtin_prefetch(row + at);
}
static void fetch_row_to_write(const job *w, const char *row)
{
    const int64_t bytes = w->s->head_dim * w->size;
    for (int64_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(row + at, 1);
}

/* ---- packing ---- */

/* Rows of `words` words each become columns of a panel: to[word * 16 + row]. */
static void turn(uint32_t *to, const char *from, int64_t stride, int64_t count, int64_t words)
{
    mm_transpose(to, PANEL, from, stride, count, words, 0);
}

/* `count` rows of head_dim numbers in float32, [row][wide], as steps. */
static void widen_rows(const job *w, float *to, const char *from, int64_t stride, int64_t count)
{
    for (int64_t r = 0; r < count; r++, to += w->wide, from += stride)
        for (int64_t c = 0; c < w->s->head_dim; c += PANEL) {
            const int64_t n = least(PANEL, w->s->head_dim - c);
            store(to + c, w->odd_first ? v_swap_pairs(v_read(from, c, n, SHEAF_BF16))
                                       : v_read(from, c, n, SHEAF_F16));
        }
}

/* turn() of rows of head_dim numbers in the type of the call; no more than a panel of them. */
static void turn_rows(const job *w, uint32_t *to, const char *from, int64_t stride, int64_t count)
{
    if (w->strip == NULL) {
        turn(to, from, stride, count, w->depth);
        return;
    }
    widen_rows(w, w->strip, from, stride, count);
    turn(to, (const char *)w->strip, w->wide * 4, count, w->depth);
}

/* The product of a tile whose a are `rows` rows that lie in the type of the call. */
static void product_of_rows(const job *w, const tile *t, int64_t rows, int64_t panels)
{
    if (w->strip == NULL) {
        product(t, rows, panels);
        return;
    }
    for (int64_t r = 0, n; r < rows; r += n) {
        tile part = *t;
        n = least(STRIP, rows - r);
        widen_rows(w, w->strip, t->a + r * t->a_row, t->a_row, n);
        part.a = (const char *)w->strip;
        part.a_row = w->wide * 4;
        part.c += r * t->c_row;
        product(&part, n, panels);
    }
}

/* One step of an operand that is summed over rows: a row, or two of them as pairs,
 * into all panels of head_dim. A NULL row is zero. Returns overflow(). */
static veci pack_step(const job *w, uint32_t *to, int64_t panel_words, const char *even,
                      const char *odd)
{
    static const uint32_t zeros[SHEAF__HEAD_DIM_MAX];
    const bool pairs = w->pairs;
    const int64_t bytes = PANEL * w->size;
    int64_t left = w->s->head_dim;
    veci bad = vi_set(0);
    even = even != NULL ? even : (const char *)zeros;
    odd = odd != NULL ? odd : (const char *)zeros;
    for (; left >= PANEL; left -= PANEL, even += bytes, odd += bytes, to += panel_words) {
        const veci word = words_of(even, odd, PANEL, w->s->dtype, pairs);
        bad = either(bad, overflow(word, w->exponents));
        vi_store(to, word);
    }
    if (left > 0) {
        const veci word = words_of(even, odd, left, w->s->dtype, pairs);
        bad = either(bad, overflow(word, w->exponents));
        vi_store(to, word);
    }
    return bad;
}

/* Keys [j0, j1) of k or v as an operand that is summed over keys; j0 is a multiple of
 * 16. Keys that key_mask hides are zero, whatever the memory holds. False if another
 * holds a number that is not finite and will be multiplied by +0 somewhere. */
static bool pack_keys(const job *w, uint32_t *to, int64_t panel_words,
                      const char *(*row)(const job *, int64_t), int64_t j0, int64_t j1)
{
    veci bad = vi_set(0);
    for (int64_t j = j0; j < j0 + steps_of(w, j1 - j0) * w->step; j += w->step) {
        const char *from[2] = { NULL, NULL };
        for (int64_t h = 0; h < w->step && j + h < j1; h++)
            if (!is_hidden(w, j + h))
                from[h] = row(w, j + h);
        bad = either(bad,
                     pack_step(w, to + step_of(w, j - j0) * PANEL, panel_words, from[0], from[1]));
    }
    return w->s->full || all_finite(bad, w->exponents);
}

/* head_dim numbers of `sum`, + 0.0f, rounded */
static void finish_row(const job *w, char *to, const float *sum)
{
    const int64_t d = w->s->head_dim;
    int64_t c = 0;
    for (; c + PANEL <= d; c += PANEL)
        v_write(to, c, v_add(load(sum + c), v_zero()), PANEL, w->s->dtype);
    if (c < d)
        v_write(to, c, v_add(load(sum + c), v_zero()), d - c, w->s->dtype);
}

/* Both rounded to 16 bits; a NaN becomes any. */
SHEAF__INLINE rounded round_two(vec even, vec odd, const sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        return round_pair(even, odd);
    const __m256i a = v_f16(even), b = v_f16(odd);
    return (rounded){ a, b, vi_xor(vi_halves(a), vi_left(vi_halves(b), 16)) };
}

/* Chains end: `count` whole panels of them are added to the sums of those before. */
static void end_chains(float *total, float *chain, int64_t count)
{
    for (int64_t i = 0; i < count; i += PANEL) {
        store(total + i, v_add(load(total + i), load(chain + i)));
        store(chain + i, v_zero());
    }
}
/* Before key or query n. */
static bool ends_at(int64_t n)
{
    return n % SHEAF__MMA_CHAIN == 0;
}

#include "ops/attention/attention_forward.h"
#include "ops/attention/attention_single.h"
#include "ops/attention/attention_backward.h"

void KERNEL(const sheaf__attention_call *call, const sheaf__attention_part *part,
            sheaf__attention_what what, void *scratch, size_t bytes)
{
    const bool unit = call->shape->dtype == SHEAF_BF16 && kind_of(call) == UNIT;
    if (what == SHEAF__ATTENTION_ROWS && attend_alone(call, part, scratch, bytes))
        return;
    if (unit)
        begin_unit();
    const bool finite = what == SHEAF__ATTENTION_ROWS ? attend(call, part, scratch, bytes)
                        : what == SHEAF__ATTENTION_DQ
                            ? give_dq(call, part, scratch, bytes)
                            : give_dkv(call, part, what == SHEAF__ATTENTION_DKV_DQ, scratch, bytes);
    if (unit)
        end_unit();
    if (!finite)
        sheaf__attention_ref(call, part, what, NULL, 0);
}
