/* attention_backward.h - part of attention_kernel.h: dq, dk and dv of a range.
 *
 * Works on (query head, 256 queries, 256 keys) at a time. Within it scores and
 * dp are made for a strip of 32 keys, [key][query], turned into p and ds at once, and
 * used: as rows [key][query] they add to dk and dv; ds is also kept as panels
 * [16 queries][step over keys][16], which add to dq when the 256 keys are done.
 * Only panels with a visible pair are touched. The loops run over heads, then queries,
 * then keys, each ascending, so every sum grows in the order of the contract.
 *
 * Full attention never multiplies what is not finite by +0: k is packed with zeros for
 * hidden keys, and dk and dv of those are set to zero at the end. */

typedef struct walk {
    bool want_dq, want_dkv;
    int64_t g, i0, count, panels;  /* head; 256 queries or fewer; in panels of 16 */
    int64_t k0, k1;                /* keys of the part (want_dkv), or of the whole sequence */
    uint32_t *q_across, *o_across; /* [panel][depth][16] of q and d_o */
    uint32_t *q_along, *o_along;   /* [panel of head_dim][256 / step][16] */
    uint32_t *k;                   /* the same of the current 256 keys */
    float *max, *sum, *whole;      /* [256] of each query: stats, and D */
    int32_t *minus_first, *span;   /* [256], see limits */
    float *s, *dp;                 /* [32][LD]; if words are floats, p and ds take their place */
    uint16_t *p16, *ds16;          /* [32][LD] if words are pairs */
    uint32_t *ds;                  /* [16 panels][256 / step][16] */
    float *dq;                     /* [256][wide] */
    float *dk, *dv;                /* [keys of the part][wide] */
    float *dq_total, *dk_total, *dv_total; /* of chains that have ended, if some end */
} walk;

/* words_without_keys() of attention.c adds up the same. */
static void plan_walk(job *w, walk *t)
{
    const int64_t steps = BLOCK / w->step;
    take_strip(w);
    t->q_across = take(w, BLOCK * w->depth);
    t->o_across = take(w, BLOCK * w->depth);
    t->q_along = take(w, steps * w->wide);
    t->o_along = take(w, steps * w->wide);
    t->k = take(w, steps * w->wide);
    t->max = take(w, BLOCK);
    t->sum = take(w, BLOCK);
    t->whole = take(w, BLOCK);
    t->minus_first = take(w, BLOCK);
    t->span = take(w, BLOCK);
    t->s = take(w, STRIP * LD);
    t->dp = take(w, STRIP * LD);
    t->p16 = take(w, STRIP * LD / 2);
    t->ds16 = take(w, STRIP * LD / 2);
    t->ds = take(w, BLOCK * steps);
    t->dq = take(w, BLOCK * w->wide);
    if (t->want_dkv) {
        t->dk = take(w, (t->k1 - t->k0) * w->wide);
        t->dv = take(w, (t->k1 - t->k0) * w->wide);
    }
    if (w->ends)
        t->dq_total = take(w, BLOCK * w->wide);
    if (w->query_ends && t->want_dkv) {
        t->dk_total = take(w, (t->k1 - t->k0) * w->wide);
        t->dv_total = take(w, (t->k1 - t->k0) * w->wide);
    }
}

/* The queries of one panel in memory. */
typedef struct panel {
    int64_t n, count;           /* first, from the first of the 256; how many exist */
    const char *q, *o, *d_o;    /* rows */
    int64_t q_stride, o_stride; /* bytes */
} panel;

static panel panel_at(const job *w, const walk *t, int64_t n)
{
    const int64_t i = t->i0 + n;
    return (panel){ n,
                    least(PANEL, t->count - n),
                    q_row(w, w->call->q, i, t->g),
                    o_row(w, w->call->o, i, t->g),
                    o_row(w, w->call->d_o, i, t->g),
                    w->s->ldq * w->size,
                    w->s->ldo * w->size };
}

static void fetch_panel(const job *w, const walk *t, int64_t n)
{
    const panel x = panel_at(w, t, n);
    fetch_rows(w, x.q, x.q_stride, x.count);
    fetch_rows(w, x.o, x.o_stride, x.count);
    fetch_rows(w, x.d_o, x.o_stride, x.count);
}

/* The 16 lanes of D of one query, filled up with zeros, which change no sum but a zero's sign. */
static vec lanes_of(const job *w, const char *x, const char *y)
{
    const sheaf_dtype dtype = w->s->dtype;
    const int64_t d = w->s->head_dim;
    vec sum = v_zero();
    int64_t c = 0;
    for (; c + PANEL <= d; c += PANEL)
        sum = v_fma(v_read(x, c, PANEL, dtype), v_read(y, c, PANEL, dtype), sum);
    if (c < d)
        sum = v_fma(v_read(x, c, d - c, dtype), v_read(y, c, d - c, dtype), sum);
    return sum;
}

/* D of a panel: [query][lane] is turned to [lane][query], then joined for all at once. */
static void find_whole(const job *w, const walk *t, const panel *x)
{
    float lane[PANEL * PANEL] = { 0 }, turned[PANEL * PANEL];
    for (int64_t h = 0; h < x->count; h++)
        store(lane + h * PANEL, lanes_of(w, x->d_o + h * x->o_stride, x->o + h * x->o_stride));
    turn((uint32_t *)(void *)turned, (const char *)lane, PANEL * 4, PANEL, PANEL);
    join_lanes(turned);
    store(t->whole + x->n, v_one_nan(load(turned)));
}

static void find_limits(const job *w, const walk *t, const panel *x)
{
    const int64_t head = w->part.kv * w->s->group + t->g;
    const float *stats = sheaf__attention_stats(w->call, w->part.batch, head, t->i0 + x->n);
    for (int64_t h = 0; h < PANEL; h++) {
        const int64_t n = x->n + h, first = sheaf__attention_first(w->s, t->i0 + n);
        const bool exists = h < x->count;
        t->max[n] = exists ? stats[2 * h] : 0.0f;
        t->sum[n] = exists ? stats[2 * h + 1] : 1.0f;
        t->minus_first[n] = exists ? (int32_t)-first : SEES_NONE;
        t->span[n] = exists ? (int32_t)(sheaf__attention_last(w->s, t->i0 + n) - first) : 0;
    }
}

/* Transposed, from [query][step] to [step][query]. */
static void pack_across(const job *w, uint32_t *to, const char *from, int64_t stride,
                        const panel *x)
{
    to += x->n * w->depth;
    if (x->count < PANEL)
        memset(to, 0, (size_t)(w->depth * PANEL) * 4);
    turn_rows(w, to, from, stride, x->count);
}

/* As operands that are summed over queries. Returns overflow(). */
static veci pack_along(const job *w, const walk *t, const panel *x)
{
    const int64_t words = BLOCK / w->step * PANEL, start = x->n / w->step * PANEL;
    veci bad = vi_set(0);
    for (int64_t h = 0; h < PANEL; h += w->step) {
        const int64_t at = start + step_of(w, h) * PANEL;
        const bool even = h < x->count, odd = h + 1 < x->count;
        const char *q = x->q + h * x->q_stride, *o = x->d_o + h * x->o_stride;
        const veci bad_q =
            pack_step(w, t->q_along + at, words, even ? q : NULL, odd ? q + x->q_stride : NULL);
        const veci bad_o =
            pack_step(w, t->o_along + at, words, even ? o : NULL, odd ? o + x->o_stride : NULL);
        bad = either(bad, either(bad_q, bad_o));
    }
    return bad;
}

/* Packs the queries. All that is done with a panel of them is done at once: its rows, a
 * power of two bytes apart, soon push each other out of the caches. False if something
 * that will be multiplied by +0 is not finite. */
static bool begin_queries(const job *w, walk *t, int64_t g, int64_t i0)
{
    veci bad = vi_set(0);
    t->g = g;
    t->i0 = i0;
    t->count = least(BLOCK, w->s->queries - i0);
    t->panels = up_to(t->count, PANEL) / PANEL;
    fetch_panel(w, t, 0);
    for (int64_t n = 0; n < t->count; n += PANEL) {
        const panel x = panel_at(w, t, n);
        if (n + PANEL < t->count)
            fetch_panel(w, t, n + PANEL);
        pack_across(w, t->q_across, x.q, x.q_stride, &x);
        pack_across(w, t->o_across, x.d_o, x.o_stride, &x);
        if (t->want_dkv)
            bad = either(bad, pack_along(w, t, &x));
        find_whole(w, t, &x);
        find_limits(w, t, &x);
    }
    if (t->want_dq)
        memset(t->dq, 0, (size_t)(BLOCK * w->wide) * sizeof(float));
    if (t->want_dq && w->ends)
        memset(t->dq_total, 0, (size_t)(BLOCK * w->wide) * sizeof(float));
    return w->s->full || all_finite(bad, w->exponents);
}

/* First query that may see key j, and one past the last query that may. */
static int64_t first_query(const job *w, int64_t j)
{
    return w->s->full ? 0 : j;
}
static int64_t end_query(const job *w, int64_t j)
{
    const int64_t window = sheaf__attention_window(w->s);
    return window > 0 ? least(j + window, w->s->queries) : w->s->queries;
}

/* Panels [p0, p1) of queries with one that may see a key of [j0, j1). p0 is even, as j0 is a
 * multiple of 32: a chunk of queries begins there. */
static void live_panels(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t *p0,
                        int64_t *p1)
{
    *p0 = most(first_query(w, j0) - t->i0, 0) / PANEL;
    assert(*p0 % 2 == 0);
    *p1 = least(up_to(most(end_query(w, j1 - 1) - t->i0, 0), PANEL) / PANEL, t->panels);
}

/* ---- p and ds ---- */

/* Of one key and 16 queries. */
typedef struct weights {
    vec p, ds;
} weights;

SHEAF__INLINE weights weigh(const float *s, const float *dp, vec max, vec sum, vec whole, vecm seen,
                            vec scale, float cap)
{
    const vec p = v_div(exp_of(v_sub(load(s), max)), sum);
    vec ds = v_mul(v_mul(scale, p), v_sub(load(dp), whole));
    if (cap > 0) {
        const vec t = v_div(load(s), v_set(cap));
        ds = v_mul(ds, v_sub(v_set(1), v_mul(t, t)));
    }
    return (weights){ v_select(seen, p, v_zero()), v_select(seen, ds, v_zero()) };
}

static veci key_of(const job *w, int64_t j)
{
    return vi_set(j < w->s->keys && !is_hidden(w, j) ? (uint32_t)j : NO_KEY);
}

/* p of the same two keys, or ds: the rows that are summed over queries, two of a strip. */
SHEAF__INLINE void store_pair(const rounded *x, float *floats, uint16_t *halves,
                              const bool odd_first)
{
    if (odd_first) {
        store(floats, v_swap_pairs(v_from_bf16(x->even)));
        store(floats + LD, v_swap_pairs(v_from_bf16(x->odd)));
    } else {
        v_store_halves(halves, x->even, PANEL);
        v_store_halves(halves + LD, x->odd, PANEL);
    }
}

/* Turns scores and dp of key j, in bfloat16 and in pairs of j and j + 1, at offset `at` of the
 * strip, into p and ds for the queries of panels [p0, p1); `to` is the first of their steps in ds
 * of panel 0. */
SHEAF__INLINE void weigh_step(const job *w, const walk *t, int64_t j, int64_t at, uint32_t *to,
                              int64_t p0, int64_t p1, const sheaf_dtype dtype, const bool pairs)
{
    const bool odd_first = dtype == SHEAF_BF16 && !pairs;
    const vec scale = v_set(w->s->scale);
    const float cap = w->s->cap;
    const veci key = key_of(w, j), next = key_of(w, j + 1);
    float *s = t->s + at, *dp = t->dp + at;
    const float *max = t->max, *sum = t->sum, *whole = t->whole;
    const int32_t *minus_first = t->minus_first, *span = t->span;
    uint16_t *p16 = t->p16 + at, *ds16 = t->ds16 + at;
    for (int64_t n = p0 * PANEL; n < p1 * PANEL; n += PANEL) {
        const limits see = limits_at(minus_first + n, span + n);
        const vec m = load(max + n), e = load(sum + n), d = load(whole + n);
        const weights a = weigh(s + n, dp + n, m, e, d, sees(see, key), scale, cap);
        if (pairs || odd_first) {
            const weights b = weigh(s + LD + n, dp + LD + n, m, e, d, sees(see, next), scale, cap);
            const rounded p = round_two(a.p, b.p, dtype), ds = round_two(a.ds, b.ds, dtype);
            store_pair(&p, s + n, p16 + n, odd_first);
            store_pair(&ds, dp + n, ds16 + n, odd_first);
            if (odd_first) {
                vi_store(to + n * BLOCK, v_bits(v_from_bf16(ds.odd)));
                vi_store(to + n * BLOCK + PANEL, v_bits(v_from_bf16(ds.even)));
            } else
                vi_store(to + n * (BLOCK / 2), ds.words);
        } else {
            const vec p = v_rounded(a.p, dtype), ds = v_rounded(a.ds, dtype);
            store(s + n, p);
            store(dp + n, ds);
            vi_store(to + n * BLOCK, v_bits(ds));
        }
    }
}

/* The same for keys [j0, j1); b0 is the first key of the block. */
static void weigh_strip(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t b0, int64_t p0,
                        int64_t p1)
{
    for (int64_t j = j0; j < j1; j += w->pairs || w->odd_first ? 2 : 1) {
        uint32_t *to = t->ds + (j - b0) / w->step * PANEL;
        if (w->pairs && w->s->dtype == SHEAF_F16)
            weigh_step(w, t, j, (j - j0) * LD, to, p0, p1, SHEAF_F16, true);
        else if (w->pairs)
            weigh_step(w, t, j, (j - j0) * LD, to, p0, p1, SHEAF_BF16, true);
        else if (w->odd_first)
            weigh_step(w, t, j, (j - j0) * LD, to, p0, p1, SHEAF_BF16, false);
        else if (w->s->dtype == SHEAF_F16)
            weigh_step(w, t, j, (j - j0) * LD, to, p0, p1, SHEAF_F16, false);
        else
            weigh_step(w, t, j, (j - j0) * LD, to, p0, p1, SHEAF_F32, false);
    }
}

static void score_strip(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t p0, int64_t p1)
{
    tile m = { .c = t->s + p0 * PANEL,
               .c_row = LD,
               .c_panel = PANEL,
               .a = k_row(w, j0),
               .a_row = w->s->ldk * w->size,
               .a_step = 4,
               .b = t->q_across + p0 * w->depth * PANEL,
               .b_panel = w->depth * PANEL,
               .steps = w->depth,
               .scale = w->s->scale,
               .kind = w->kind,
               .call = w->call };
    product_of_rows(w, &m, j1 - j0, p1 - p0);
    for (int64_t j = 0; w->s->cap > 0 && j < j1 - j0; j++)
        cap_scores(t->s + j * LD + p0 * PANEL, w->s->cap, (p1 - p0) * PANEL);
    m.c = t->dp + p0 * PANEL;
    m.a = v_row(w, j0);
    m.a_row = w->s->ldv * w->size;
    m.b = t->o_across + p0 * w->depth * PANEL;
    m.scale = 1.0f;
    product_of_rows(w, &m, j1 - j0, p1 - p0);
}

/* ---- sums ---- */

/* dk += ds q, dv += p d_o of keys [j0, j1) over the queries of panels [p0, p1) */
static void add_dkv(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t p0, int64_t p1)
{
    const int64_t query = p0 * PANEL, skip = query / w->step * PANEL;
    const char *p = w->pairs ? (const char *)(t->p16 + query) : (const char *)(t->s + query);
    const char *ds = w->pairs ? (const char *)(t->ds16 + query) : (const char *)(t->dp + query);
    tile m = { .c = t->dk + (j0 - t->k0) * w->wide,
               .c_row = w->wide,
               .c_panel = PANEL,
               .a = ds,
               .a_row = LD * (w->pairs ? 2 : 4),
               .a_step = 4,
               .b = t->q_along + skip,
               .b_panel = BLOCK / w->step * PANEL,
               .steps = (p1 - p0) * PANEL / w->step,
               .add = true,
               .kind = w->kind,
               .call = w->call };
    product(&m, j1 - j0, w->panels);
    m.c = t->dv + (j0 - t->k0) * w->wide;
    m.a = p;
    m.b = t->o_along + skip;
    product(&m, j1 - j0, w->panels);
}

/* dq += ds k over keys [b0, b1) of one block: of each panel the strips that were made */
static void add_dq(const job *w, const walk *t, int64_t b0, int64_t b1)
{
    const int64_t steps = BLOCK / w->step;
    for (int64_t p = 0; p < t->panels; p++) {
        const int64_t i = t->i0 + p * PANEL, last = t->i0 + least(t->count, (p + 1) * PANEL) - 1;
        const int64_t from = most(b0, sheaf__attention_first(w->s, i)) / STRIP * STRIP;
        const int64_t to = least(b1, up_to(sheaf__attention_last(w->s, last) + 1, STRIP));
        if (from >= to)
            continue;
        const int64_t skip = (from - b0) / w->step * PANEL;
        const tile m = { .c = t->dq + p * PANEL * w->wide,
                         .c_row = w->wide,
                         .c_panel = PANEL,
                         .a = (const char *)(t->ds + p * steps * PANEL + skip),
                         .a_row = 4,
                         .a_step = PANEL * 4,
                         .b = t->k + skip,
                         .b_panel = steps * PANEL,
                         .steps = steps_of(w, to - from),
                         .add = true,
                         .kind = w->kind,
                         .call = w->call };
        product(&m, PANEL, w->panels);
    }
}

/* The current queries against keys [b0, b1) of one block. */
static bool walk_block(const job *w, const walk *t, int64_t b0, int64_t b1)
{
    bool finite = true, any = false;
    for (int64_t j0 = b0; j0 < b1; j0 += STRIP) {
        const int64_t j1 = least(j0 + STRIP, b1);
        int64_t p0, p1;
        live_panels(w, t, j0, j1, &p0, &p1);
        if (p0 >= p1)
            continue;
        any = true;
        score_strip(w, t, j0, j1, p0, p1);
        weigh_strip(w, t, j0, j1, b0, p0, p1);
        if (t->want_dkv)
            add_dkv(w, t, j0, j1, p0, p1);
    }
    if (t->want_dq && any) {
        finite = pack_keys(w, t->k, BLOCK / w->step * PANEL, k_row, b0, b1);
        add_dq(w, t, b0, b1);
    }
    if (t->want_dq && w->ends && ends_at(b1))
        end_chains(t->dq_total, t->dq, BLOCK * w->wide);
    return finite;
}

/* ---- parts ---- */
static bool walk_queries(const job *w, walk *t, int64_t g, int64_t i0)
{
    bool finite = begin_queries(w, t, g, i0);
    const int64_t from = most(t->k0, sheaf__attention_first(w->s, i0) / BLOCK * BLOCK);
    const int64_t to = least(t->k1, sheaf__attention_last(w->s, i0 + t->count - 1) + 1);
    for (int64_t b0 = from; finite && b0 < to; b0 += BLOCK)
        finite = walk_block(w, t, b0, least(b0 + BLOCK, t->k1));
    if (t->want_dq && w->ends)
        end_chains(t->dq, t->dq_total, BLOCK * w->wide);
    for (int64_t n = 0; finite && t->want_dq && n < t->count; n++) {
        if (n + PANEL < t->count)
            fetch_row_to_write(w, q_row(w, w->call->dq, i0 + n + PANEL, g));
        finish_row(w, (char *)q_row(w, w->call->dq, i0 + n, g), t->dq + n * w->wide);
    }
    return finite;
}

static void end_dkv(const job *w, walk *t, bool last)
{
    const int64_t count = (t->k1 - t->k0) * w->wide;
    end_chains(last ? t->dk : t->dk_total, last ? t->dk_total : t->dk, count);
    end_chains(last ? t->dv : t->dv_total, last ? t->dv_total : t->dv, count);
}

/* Of one head. Chains end at the same queries whether these see the keys or not: the next head
 * goes on. */
static bool walk_head(const job *w, walk *t, int64_t g)
{
    const int64_t start = first_query(w, t->k0), end = end_query(w, t->k1 - 1);
    bool finite = true;
    for (int64_t i0 = w->query_ends ? 0 : start; finite && i0 < w->s->queries; i0 += BLOCK) {
        if (i0 >= start && i0 < end)
            finite = walk_queries(w, t, g, i0);
        if (w->query_ends && ends_at(i0 + BLOCK) && i0 + BLOCK < w->s->queries)
            end_dkv(w, t, false);
    }
    return finite;
}

/* Both are false where something is not finite. */
static bool give_dkv(const sheaf__attention_call *call, const sheaf__attention_part *part,
                     bool both, void *scratch, size_t bytes)
{
    job w = job_of(call, part, true, scratch, bytes);
    walk t = { .want_dq = both, .want_dkv = true, .k0 = part->begin, .k1 = part->end };
    bool finite = true;
    plan_walk(&w, &t);
    if (w.query_ends) {
        memset(t.dk_total, 0, (size_t)((t.k1 - t.k0) * w.wide) * sizeof(float));
        memset(t.dv_total, 0, (size_t)((t.k1 - t.k0) * w.wide) * sizeof(float));
    }
    memset(t.dk, 0, (size_t)((t.k1 - t.k0) * w.wide) * sizeof(float));
    memset(t.dv, 0, (size_t)((t.k1 - t.k0) * w.wide) * sizeof(float));
    for (int64_t g = part->g0; finite && g < part->g1; g++)
        finite = walk_head(&w, &t, g);
    if (w.query_ends)
        end_dkv(&w, &t, true);
    for (int64_t j = t.k0; finite && j < t.k1; j++) {
        const int64_t row = part->batch * w.s->kv_rows + j, from = (j - t.k0) * w.wide;
        if (w.s->full && is_hidden(&w, j)) {
            memset(t.dk + from, 0, (size_t)w.wide * sizeof(float));
            memset(t.dv + from, 0, (size_t)w.wide * sizeof(float));
        }
        finish_row(&w, (char *)row_of(&w, call->dk, row, w.s->ldk, part->kv), t.dk + from);
        finish_row(&w, (char *)row_of(&w, call->dv, row, w.s->ldv, part->kv), t.dv + from);
    }
    return finite;
}

static bool give_dq(const sheaf__attention_call *call, const sheaf__attention_part *part,
                    void *scratch, size_t bytes)
{
    job w = job_of(call, part, true, scratch, bytes);
    walk t = { .want_dq = true, .k0 = 0, .k1 = call->shape->keys };
    bool finite = true;
    plan_walk(&w, &t);
    for (int64_t g = part->g0; finite && g < part->g1; g++)
        for (int64_t i0 = part->begin; finite && i0 < part->end; i0 += BLOCK)
            finite = walk_queries(&w, &t, g, i0);
    return finite;
}
