/* attention_kernel.h - the body of the fast attention, compiled once per instruction set.
 *
 * The file that includes this has defined v16, w16 and their functions, run(), EACH_TILE(),
 * tile_rows() and TABLE. Everything is laid out in 32-bit words, so that float32 and
 * bfloat16 share the code: a word is one float, or the pair (2i, 2i + 1) of the
 * index that is summed ("step" i). A panel is 16 columns: [steps][16] words.
 *
 * Scores are computed transposed, a row per key and a lane per query: softmax is
 * then 16 queries side by side, without sums across a register, and what it
 * leaves is at once the operand of the next product. */

#include <assert.h>
#include <math.h>

#include "ops/matmul/matmul_transpose.h"

#define PANEL 16
#define BLOCK SHEAF__ATTENTION_BLOCK
#define STRIP SHEAF__ATTENTION_STRIP
#define LD SHEAF__ATTENTION_LD

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t up_to(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/* ---- products ---- */
#define TILE_CASE(rows, panels, pairs) \
    case (pairs) * 64 + (panels) * 8 + (rows) - 1: run(t, rows, panels, pairs); break;

static void run_tile(const tile *t, int rows, int panels)
{
    switch (t->pairs * 64 + panels * 8 + rows - 1) {
        EACH_TILE(TILE_CASE, 0)
        EACH_TILE(TILE_CASE, 1)
    }
}

/* Panels outside, so that they stay in the first-level cache while rows stream past;
 * rows are shared out evenly, because a tile of one row waits for its own sums. */
static void product(const tile *all, int64_t rows, int64_t panels)
{
    for (int64_t p = 0, wide; p < panels; p += wide) {
        wide = least(panels - p, TILE_PANELS);
        const int64_t tiles = up_to(rows, tile_rows((int)wide)) / tile_rows((int)wide);
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

/* ---- numbers ---- */

/* sheaf__exp(x) for x <= 0 or NaN; for other x anything */
static inline v16 v_exp(v16 x)
{
    const v16 shifted = v_fma(x, v_set(0x1.715476p+0f), v_set(0x1.8p23f));
    const v16 n = v_sub(shifted, v_set(0x1.8p23f));
    v16 r = v_fma(n, v_set(-0x1.62e430p-1f), x);
    r = v_fma(n, v_set(0x1.05c610p-29f), r);
    v16 q = v_set(0x1.6a217cp-10f);
    q = v_fma(q, r, v_set(0x1.123b8ap-7f));
    q = v_fma(q, r, v_set(0x1.5558fcp-5f));
    q = v_fma(q, r, v_set(0x1.555490p-3f));
    q = v_fma(q, r, v_set(0x1.fffffcp-2f));
    const v16 y = v_add(v_fma(v_mul(r, r), q, r), v_set(1.0f));
    return pick(below(x, v_set(-0x1.5d589ep+6f)), v_set(0.0f), v_scale(y, n, shifted));
}

static inline v16 only(seen16 seen, v16 x) { return pick(seen, x, v_set(0.0f)); }
static inline v16 one_nan(v16 x) { return pick(is_nan(x), v_set(sheaf__float(SHEAF__NAN_BITS)), x); }

/* Not zero in its top bits when a number in the word is inf or NaN: an exponent of all
 * ones carries into the sign, no other does. */
static inline w16 overflow(w16 word, bool pairs)
{
    return pairs ? w_and(w_add(w_and(word, w_set(0x7f807f80u)), w_set(0x00800080u)), w_set(0x80008000u))
                 : w_and(w_add(w_and(word, w_set(0x7f800000u)), w_set(0x00800000u)), w_set(0x80000000u));
}

/* ---- what every part knows ---- */
typedef struct job {
    const sheaf__attention_call *call;
    const sheaf__attention *s;
    sheaf__attention_part part;
    bool pairs;          /* bfloat16 */
    int64_t step;        /* elements of a word */
    int64_t size;        /* bytes of an element */
    int64_t depth;       /* steps over head_dim */
    int64_t panels;      /* of head_dim */
    int64_t wide;        /* head_dim in whole panels */
    char *free, *end;    /* scratch not yet given out */
} job;

static job job_of(const sheaf__attention_call *call, const sheaf__attention_part *part, void *scratch,
                  size_t bytes)
{
    const sheaf__attention *s = call->shape;
    job w = { call, s, *part, s->dtype == SHEAF_BF16, 1, 4, 0, 0, 0, scratch, (char *)scratch + bytes };
    if (w.pairs) {
        w.step = 2;
        w.size = 2;
    }
    w.depth = s->head_dim / w.step;
    w.panels = (s->head_dim + PANEL - 1) / PANEL;
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

static const char *row_of(const job *w, const void *x, int64_t row, int64_t ld, int64_t head)
{
    return (const char *)x + sheaf__attention_at(row, ld, head, w->s->head_dim) * w->size;
}
static const char *k_row(const job *w, int64_t j)
{
    return row_of(w, w->call->k, w->part.batch * w->s->kv_rows + j, w->s->ldk, w->part.kv);
}
static const char *v_row(const job *w, int64_t j)
{
    return row_of(w, w->call->v, w->part.batch * w->s->kv_rows + j, w->s->ldv, w->part.kv);
}
static bool is_hidden(const job *w, int64_t j) { return sheaf__attention_masked(w->s, w->part.batch, j); }
static const char *q_row(const job *w, const void *q, int64_t i, int64_t g)
{
    return row_of(w, q, w->part.batch * w->s->queries + i, w->s->ldq, w->part.kv * w->s->group + g);
}
static const char *o_row(const job *w, const void *o, int64_t i, int64_t g)
{
    return row_of(w, o, w->part.batch * w->s->queries + i, w->s->ldo, w->part.kv * w->s->group + g);
}

/* ---- packing ---- */

/* One step of an operand that is summed over rows: a row, or two of them as pairs,
 * into all panels of head_dim. A NULL row is zero. Returns overflow(). */
static w16 pack_step(const job *w, uint32_t *to, int64_t panel_words, const char *even, const char *odd)
{
    static const uint32_t zeros[SHEAF__HEAD_DIM_MAX];
    const int64_t d = w->s->head_dim, whole = d / PANEL * PANEL;
    w16 bad = w_set(0);
    even = even != NULL ? even : (const char *)zeros;
    odd = odd != NULL ? odd : (const char *)zeros;
    for (int64_t c = 0; c < whole; c += PANEL, to += panel_words) {
        const w16 word = w->pairs ? pair(load_halves((const void *)(even + c * 2)),
                                         load_halves((const void *)(odd + c * 2)))
                                  : w_load(even + c * 4);
        bad = w_or(bad, overflow(word, w->pairs));
        w_store(to, word);
    }
    if (whole < d) {
        char last[2][PANEL * 4] = { { 0 }, { 0 } };
        memcpy(last[0], even + whole * w->size, (size_t)((d - whole) * w->size));
        memcpy(last[1], odd + whole * w->size, (size_t)((d - whole) * w->size));
        const w16 word = w->pairs ? pair(load_halves((const void *)last[0]), load_halves((const void *)last[1]))
                                  : w_load(last[0]);
        bad = w_or(bad, overflow(word, w->pairs));
        w_store(to, word);
    }
    return bad;
}

/* Keys [j0, j1) of k or v as an operand that is summed over keys; j0 is a multiple of
 * 16. Keys that key_mask hides are zero, whatever the memory holds. False if another
 * holds a number that is not finite. */
static bool pack_keys(const job *w, uint32_t *to, int64_t panel_words,
                      const char *(*row)(const job *, int64_t), int64_t j0, int64_t j1)
{
    w16 bad = w_set(0);
    for (int64_t j = j0; j < j1; j += w->step, to += PANEL) {
        const char *from[2] = { NULL, NULL };
        for (int64_t h = 0; h < w->step && j + h < j1; h++)
            if (!is_hidden(w, j + h))
                from[h] = row(w, j + h);
        bad = w_or(bad, pack_step(w, to, panel_words, from[0], from[1]));
    }
    return !w_any(bad);
}

/* head_dim numbers of `sum`, + 0.0f, rounded */
static void finish_row(const job *w, char *to, const float *sum)
{
    const int64_t d = w->s->head_dim;
    int64_t c = 0;
    for (; c + PANEL <= d; c += PANEL) {
        const v16 x = one_nan(v_add(v_load(sum + c), v_set(0.0f)));
        if (w->pairs)
            store_halves((uint16_t *)(void *)(to + c * 2), halves(x));
        else
            v_store((float *)(void *)(to + c * 4), x);
    }
    for (; c < d; c++)
        sheaf__store(to, c, sum[c] + 0.0f, w->s->dtype);
}

#include "ops/attention/attention_forward.h"
#include "ops/attention/attention_backward.h"

const sheaf__attention_kernels TABLE = { attend, give_dkv, give_dq };
