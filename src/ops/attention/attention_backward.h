/* attention_backward.h - part of attention_kernel.h: dq, dk and dv of a range.
 *
 * Works on (query head, 256 queries, 256 keys) at a time. Within it scores and
 * dp are made for a strip of 32 keys, [key][query], turned into p and ds at once, and
 * used: as rows [key][query] they add to dk and dv; ds is also kept as panels
 * [16 queries][step over keys][16], which add to dq when the 256 keys are done.
 * Only panels with a visible pair are touched. The loops run over heads, then queries,
 * then keys, each ascending, so every sum grows in the order of the contract. */

typedef struct walk {
    bool want_dq, want_dkv;
    int64_t g, i0, count, panels; /* head; 256 queries or fewer; in panels of 16 */
    int64_t k0, k1;               /* keys of the part (want_dkv), or of the whole sequence */
    uint32_t *q_across, *o_across; /* [panel][depth][16] of q and d_o */
    uint32_t *q_along, *o_along;  /* [panel of head_dim][256 / step][16] */
    uint32_t *k;                  /* [panel of head_dim][256 / step][16], of the current 256 keys */
    float *max, *sum, *whole;     /* [256] of each query: stats, and D */
    int32_t *first, *last;        /* [256] keys that each query sees */
    float *s, *dp;                /* [32][LD]; in float32 p and ds take their place */
    uint16_t *p16, *ds16;         /* [32][LD] in bfloat16 */
    uint32_t *ds;                 /* [16 panels][256 / step][16] */
    float *dq;                    /* [256][wide] */
    float *dk, *dv;               /* [keys of the part][wide] */
} walk;

/* sheaf__attention_keys_held() adds up the same. */
static void plan_walk(job *w, walk *t)
{
    const int64_t steps = BLOCK / w->step;
    t->q_across = take(w, BLOCK * w->depth);
    t->o_across = take(w, BLOCK * w->depth);
    t->q_along = take(w, steps * w->wide);
    t->o_along = take(w, steps * w->wide);
    t->k = take(w, steps * w->wide);
    t->max = take(w, BLOCK);
    t->sum = take(w, BLOCK);
    t->whole = take(w, BLOCK);
    t->first = take(w, BLOCK);
    t->last = take(w, BLOCK);
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
}

/* D of one query: 16 lanes, filled up with zeros, which change no sum but a zero's sign. */
static float whole_of(const job *w, const char *x, const char *y)
{
    const int64_t d = w->s->head_dim;
    float lane[PANEL];
    v16 sum = v_set(0.0f);
    for (int64_t c = 0; c < d; c += PANEL) {
        char xs[PANEL * 4] = { 0 }, ys[PANEL * 4] = { 0 };
        const char *a = x + c * w->size, *b = y + c * w->size;
        if (d - c < PANEL) {
            a = memcpy(xs, a, (size_t)((d - c) * w->size));
            b = memcpy(ys, b, (size_t)((d - c) * w->size));
        }
        sum = w->pairs ? v_fma(widen(load_halves((const void *)a)), widen(load_halves((const void *)b)), sum)
                       : v_fma(v_load((const void *)a), v_load((const void *)b), sum);
    }
    v_store(lane, sum);
    for (int apart = 8; apart >= 1; apart /= 2)
        for (int l = 0; l < apart; l++)
            lane[l] += lane[l + apart];
    return lane[0];
}

/* Panel p of the queries, transposed: from [query][step] to [step][query]. */
static void pack_across(const job *w, const walk *t, uint32_t *to, const char *from, int64_t ld, int64_t p)
{
    const int64_t rows = least(PANEL, t->count - p * PANEL);
    to += p * w->depth * PANEL;
    if (rows < PANEL)
        memset(to, 0, (size_t)(w->depth * PANEL) * 4);
    mm_transpose(to, PANEL, from, ld * w->size, rows, w->depth);
}

static void begin_queries(const job *w, walk *t, int64_t g, int64_t i0)
{
    t->g = g;
    t->i0 = i0;
    t->count = least(BLOCK, w->s->queries - i0);
    t->panels = (t->count + PANEL - 1) / PANEL;
    for (int64_t p = 0; p < t->panels; p++) {
        for (int64_t n = p * PANEL; n < (p + 1) * PANEL; n++) {
            const bool exists = n < t->count;
            t->max[n] = t->whole[n] = 0.0f;
            t->sum[n] = 1.0f;
            t->first[n] = 0;
            t->last[n] = -1;
            if (exists) {
                const float *stats = sheaf__attention_stats(w->call, w->part.batch,
                                                            w->part.kv * w->s->group + g, i0 + n);
                t->max[n] = stats[0];
                t->sum[n] = stats[1];
                t->whole[n] = whole_of(w, o_row(w, w->call->d_o, i0 + n, g), o_row(w, w->call->o, i0 + n, g));
                t->first[n] = (int32_t)sheaf__attention_first(w->s, i0 + n);
                t->last[n] = (int32_t)sheaf__attention_last(w->s, i0 + n);
            }
        }
        pack_across(w, t, t->q_across, q_row(w, w->call->q, i0 + p * PANEL, g), w->s->ldq, p);
        pack_across(w, t, t->o_across, o_row(w, w->call->d_o, i0 + p * PANEL, g), w->s->ldo, p);
    }
    if (t->want_dq)
        memset(t->dq, 0, (size_t)(BLOCK * w->wide) * sizeof(float));
}

/* q and d_o of the queries as operands that are summed over queries. */
static bool pack_queries(const job *w, const walk *t)
{
    const int64_t words = BLOCK / w->step * PANEL;
    w16 bad = w_set(0);
    for (int64_t n = 0; n < t->panels * PANEL; n += w->step) {
        const char *q[2] = { NULL, NULL }, *o[2] = { NULL, NULL };
        for (int64_t h = 0; h < w->step; h++)
            if (n + h < t->count) {
                q[h] = q_row(w, w->call->q, t->i0 + n + h, t->g);
                o[h] = o_row(w, w->call->d_o, t->i0 + n + h, t->g);
            }
        bad = w_or(bad, pack_step(w, t->q_along + n / w->step * PANEL, words, q[0], q[1]));
        bad = w_or(bad, pack_step(w, t->o_along + n / w->step * PANEL, words, o[0], o[1]));
    }
    return !w_any(bad);
}

/* Panels of queries with one that sees a key of [j0, j1): order and window only. */
static void live_panels(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t *p0, int64_t *p1)
{
    const int64_t last = w->s->window > 0 ? least(j1 + w->s->window - 1, w->s->queries) : w->s->queries;
    *p0 = most(j0 - t->i0, 0) / PANEL;
    *p1 = least((most(last - t->i0, 0) + PANEL - 1) / PANEL, t->panels);
}

/* p and ds of one key and 16 queries. */
typedef struct weights {
    v16 p, ds;
} weights;

static inline weights weigh(const walk *t, int64_t at, int64_t query, seen16 seen, v16 scale)
{
    const v16 e = v_exp(v_sub(v_load(t->s + at), v_load(t->max + query)));
    const v16 p = only(seen, v_div(e, v_load(t->sum + query)));
    const v16 more = v_sub(v_load(t->dp + at), v_load(t->whole + query));
    return (weights){ p, only(seen, v_mul(v_mul(scale, p), more)) };
}

/* A key as weigh_strip compares it: -1, which no query's limits admit, when it is hidden
 * or past the end. */
static w16 key_of(const job *w, int64_t j)
{
    return w_set(j < w->s->keys && !is_hidden(w, j) ? (uint32_t)j : UINT32_MAX);
}

/* Turns scores and dp of keys [j0, j1) into p and ds; b0 is the first key of the block. */
static void weigh_strip(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t b0, int64_t p0,
                        int64_t p1)
{
    const v16 scale = v_set(w->s->scale);
    const int64_t panel = BLOCK / w->step * PANEL;
    for (int64_t j = j0; j < j1; j += w->step) {
        const w16 key = key_of(w, j), next = key_of(w, j + 1);
        for (int64_t p = p0; p < p1; p++) {
            const int64_t query = p * PANEL, at = (j - j0) * LD + query;
            const w16 first = w_load(t->first + query), last = w_load(t->last + query);
            uint32_t *ds = t->ds + p * panel + (j - b0) / w->step * PANEL;
            const weights a = weigh(t, at, query, between(first, key, last), scale);
            if (!w->pairs) {
                v_store(t->s + at, a.p);
                v_store(t->dp + at, a.ds);
                v_store((float *)(void *)ds, a.ds);
                continue;
            }
            const weights b = weigh(t, at + LD, query, between(first, next, last), scale);
            const w16 even = halves(a.ds), odd = halves(b.ds);
            store_halves(t->p16 + at, halves(a.p));
            store_halves(t->p16 + at + LD, halves(b.p));
            store_halves(t->ds16 + at, even);
            store_halves(t->ds16 + at + LD, odd);
            w_store(ds, pair(even, odd));
        }
    }
}

static void score_strip(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t p0, int64_t p1)
{
    tile m = { .c = t->s + p0 * PANEL, .c_row = LD, .c_panel = PANEL,
               .a = k_row(w, j0), .a_row = w->s->ldk * w->size, .a_step = 4,
               .b = t->q_across + p0 * w->depth * PANEL, .b_panel = w->depth * PANEL,
               .steps = w->depth, .scale = w->s->scale, .pairs = w->pairs };
    product(&m, j1 - j0, p1 - p0);
    m.c = t->dp + p0 * PANEL;
    m.a = v_row(w, j0);
    m.a_row = w->s->ldv * w->size;
    m.b = t->o_across + p0 * w->depth * PANEL;
    m.scale = 1.0f;
    product(&m, j1 - j0, p1 - p0);
}

/* dk += ds q, dv += p d_o of keys [j0, j1) over the queries of panels [p0, p1) */
static void add_dkv(const job *w, const walk *t, int64_t j0, int64_t j1, int64_t p0, int64_t p1)
{
    const int64_t query = p0 * PANEL, skip = query / w->step * PANEL;
    tile m = { .c = t->dk + (j0 - t->k0) * w->wide, .c_row = w->wide, .c_panel = PANEL,
               .a = w->pairs ? (const char *)(t->ds16 + query) : (const char *)(t->dp + query),
               .a_row = LD * w->size, .a_step = 4,
               .b = t->q_along + skip, .b_panel = BLOCK / w->step * PANEL,
               .steps = (p1 - p0) * PANEL / w->step, .add = true, .pairs = w->pairs };
    product(&m, j1 - j0, w->panels);
    m.c = t->dv + (j0 - t->k0) * w->wide;
    m.a = w->pairs ? (const char *)(t->p16 + query) : (const char *)(t->s + query);
    m.b = t->o_along + skip;
    product(&m, j1 - j0, w->panels);
}

/* dq += ds k over keys [b0, b1) of one block */
static void add_dq(const job *w, const walk *t, int64_t b0, int64_t b1)
{
    for (int64_t p = 0; p < t->panels; p++) {
        const int64_t last_query = t->i0 + least(t->count, (p + 1) * PANEL) - 1;
        const int64_t from = most(b0, sheaf__attention_first(w->s, t->i0 + p * PANEL)) / STRIP * STRIP;
        const int64_t to = least(b1, up_to(sheaf__attention_last(w->s, last_query) + 1, STRIP));
        if (from >= to)
            continue;
        const int64_t skip = (from - b0) / w->step * PANEL;
        const tile m = { .c = t->dq + p * PANEL * w->wide, .c_row = w->wide, .c_panel = PANEL,
                         .a = (const char *)(t->ds + p * (BLOCK / w->step) * PANEL + skip),
                         .a_row = 4, .a_step = PANEL * 4,
                         .b = t->k + skip, .b_panel = BLOCK / w->step * PANEL,
                         .steps = (to - from + w->step - 1) / w->step, .add = true, .pairs = w->pairs };
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
    return finite;
}

static bool walk_queries(const job *w, walk *t, int64_t g, int64_t i0)
{
    bool finite = true;
    begin_queries(w, t, g, i0);
    if (t->want_dkv)
        finite = pack_queries(w, t);
    const int64_t from = most(t->k0, sheaf__attention_first(w->s, i0) / BLOCK * BLOCK);
    const int64_t to = least(t->k1, sheaf__attention_last(w->s, i0 + t->count - 1) + 1);
    for (int64_t b0 = from; finite && b0 < to; b0 += BLOCK)
        finite = walk_block(w, t, b0, least(b0 + BLOCK, t->k1));
    for (int64_t n = 0; finite && t->want_dq && n < t->count; n++)
        finish_row(w, (char *)q_row(w, w->call->dq, i0 + n, g), t->dq + n * w->wide);
    return finite;
}

/* Queries past this one see no key of the part. */
static int64_t last_query(const walk *t, const sheaf__attention *s)
{
    return s->window > 0 ? least(s->queries, t->k1 + s->window - 1) : s->queries;
}

static void give_dkv(const sheaf__attention_call *call, const sheaf__attention_part *part, bool both,
                     void *scratch, size_t bytes)
{
    job w = job_of(call, part, scratch, bytes);
    walk t = { .want_dq = both, .want_dkv = true, .k0 = part->begin, .k1 = part->end };
    bool finite = true;
    plan_walk(&w, &t);
    memset(t.dk, 0, (size_t)((t.k1 - t.k0) * w.wide) * sizeof(float));
    memset(t.dv, 0, (size_t)((t.k1 - t.k0) * w.wide) * sizeof(float));
    for (int64_t g = part->g0; finite && g < part->g1; g++)
        for (int64_t i0 = t.k0; finite && i0 < last_query(&t, w.s); i0 += BLOCK)
            finite = walk_queries(&w, &t, g, i0);
    for (int64_t j = t.k0; finite && j < t.k1; j++) {
        const int64_t row = part->batch * w.s->kv_rows + j;
        finish_row(&w, (char *)row_of(&w, call->dk, row, w.s->ldk, part->kv), t.dk + (j - t.k0) * w.wide);
        finish_row(&w, (char *)row_of(&w, call->dv, row, w.s->ldv, part->kv), t.dv + (j - t.k0) * w.wide);
    }
    if (finite)
        return;
    sheaf__attention_ref_dkv(call, part);
    if (both)
        sheaf__attention_ref_dq(call, part);
}

static void give_dq(const sheaf__attention_call *call, const sheaf__attention_part *part, void *scratch,
                    size_t bytes)
{
    job w = job_of(call, part, scratch, bytes);
    walk t = { .want_dq = true, .k0 = 0, .k1 = call->shape->keys };
    bool finite = true;
    plan_walk(&w, &t);
    for (int64_t g = part->g0; finite && g < part->g1; g++)
        for (int64_t i0 = part->begin; finite && i0 < part->end; i0 += BLOCK)
            finite = walk_queries(&w, &t, g, i0);
    if (!finite)
        sheaf__attention_ref_dq(call, part);
}
