/* Prototype: one pass, blocks of 64 keys, running maximum in chunks of 1,024 keys. */
#ifndef ROWS
#define ROWS 64
#endif
#ifndef KEYS
#define KEYS 64 /* block of the order */
#endif
#ifndef RUN
#define RUN 256 /* keys whose scores are made at once */
#endif
#define CHUNK_KEYS 1024
#ifndef UNIT_ROWS
#define UNIT_ROWS 128
#endif
#ifndef LAZY
#define LAZY 8
#endif

typedef struct rows {
    int64_t begin, count, panels;
    int64_t from, to, all_from, all_to;
    int32_t *minus_first, *span;
    float *max, *factor;   /* [rows] of the chunk */
    float *all_max, *all_sum; /* [rows] of chunks before */
    float *lane;           /* [panel][16][16] */
    uint32_t *q;           /* [panel][depth][16] */
    float *score;          /* [panel][RUN][16] */
    float *p;              /* [panel][KEYS/step][16] */
    float *out, *all;      /* [row][wide]; of UNIT [panel][wide][16] */
    uint32_t *v;           /* [panel of head_dim][v_steps][16]; of UNIT [chunk of 32 keys][wide][16] */
    uint32_t *block;       /* UNIT: [panel of head_dim][16 steps][16] */
    int64_t v_from, v_steps;
    bool v_whole;
} rows;

static int64_t first_seen(const job *w, int64_t row)
{
    return sheaf__attention_first(w->s, row / w->s->group);
}
static int64_t last_seen(const job *w, int64_t row)
{
    return sheaf__attention_last(w->s, row / w->s->group);
}

static bool by_unit(const job *w)
{
#ifdef HAS_UNIT
    return w->kind == UNIT && w->s->head_dim % 32 == 0;
#else
    return false;
#endif
}

static int64_t plan_rows(job *w, rows *r)
{
    const int64_t count = w->part.end - w->part.begin;
    const int64_t from = first_seen(w, w->part.begin) / BLOCK * BLOCK;
    const int64_t to = last_seen(w, w->part.end - 1) + 1;
    const int64_t size = least(by_unit(w) ? UNIT_ROWS : ROWS, up_to(count, PANEL));
    take_strip(w);
    r->minus_first = take(w, size);
    r->span = take(w, size);
    r->max = take(w, size);
    r->factor = take(w, size);
    r->all_max = take(w, size);
    r->all_sum = take(w, size);
    r->p = take(w, by_unit(w) ? CHUNK_KEYS * PANEL : size * KEYS);
    r->lane = take(w, size * 16);
    r->q = take(w, size * w->depth);
    r->out = take(w, size * w->wide);
    r->all = take(w, size * w->wide);
    r->score = take(w, by_unit(w) ? 2 * CHUNK_KEYS * PANEL : size * RUN);
    r->block = take(w, 16 * w->wide);
    r->v_from = from;
    r->v_steps = up_to(to - from, 32) / w->step;
    r->v_whole = count > size && r->v_steps * w->wide <= (w->end - w->free) / 4;
    if (!r->v_whole)
        r->v_steps = (by_unit(w) ? CHUNK_KEYS : RUN) / w->step;
    r->v = take(w, r->v_steps * w->wide);
    return size;
}

static void pack_rows(const job *w, const rows *r)
{
    const int64_t group = w->s->group;
    if (r->count % PANEL != 0)
        memset(r->q + (r->panels - 1) * w->depth * PANEL, 0, (size_t)(w->depth * PANEL) * 4);
    for (int64_t i = 0, n; i < r->count; i += n) {
        const int64_t row = r->begin + i, g = row % group;
        n = least(least(PANEL - i % PANEL, r->count - i), group == 1 ? PANEL : group - g);
        turn_rows(w, r->q + i / PANEL * w->depth * PANEL + i % PANEL,
                  q_row(w, w->call->q, row / group, g),
                  (group == 1 ? w->s->ldq : w->s->head_dim) * w->size, n);
    }
}

static void fetch_next(const job *w, const rows *r)
{
    const int64_t group = w->s->group, end = r->begin + r->count;
    for (int64_t row = r->begin; row < end; row++)
        fetch_row_to_write(w, o_row(w, w->call->o, row / group, row % group));
    for (int64_t row = end; row < least(end + r->count, w->part.end); row++)
        fetch_rows(w, q_row(w, w->call->q, row / group, row % group), 0, 1);
}

static void begin_rows(const job *w, rows *r, int64_t begin, int64_t count)
{
    r->begin = begin;
    r->count = count;
    r->panels = up_to(count, PANEL) / PANEL;
    r->from = first_seen(w, begin) / KEYS * KEYS;
    r->to = last_seen(w, begin + count - 1) + 1;
    r->all_from = first_seen(w, begin + count - 1);
    r->all_to = last_seen(w, begin) + 1;
    if (w->s->key_mask != NULL || (count % PANEL != 0 && !w->s->full))
        r->all_to = r->all_from;
    for (int64_t i = 0; i < r->panels * PANEL; i++) {
        const int64_t first = first_seen(w, begin + i);
        r->minus_first[i] = i < count ? (int32_t)-first : SEES_NONE;
        r->span[i] = i < count ? (int32_t)(last_seen(w, begin + i) - first) : 0;
        r->all_max[i] = -INFINITY;
        r->all_sum[i] = 0;
    }
    pack_rows(w, r);
}

#ifdef HAS_UNIT
/* Scores of panels p and p + 1, unscaled, of whole 16s of keys. */
static void score_unit(const job *w, const rows *r, int64_t p, int64_t j0, int64_t j1)
{
    const int64_t stride = w->s->ldk * w->size, chunks = w->depth / 16;
    const bool wide = p + 1 < r->panels;
    for (int64_t j = j0; j < j1; j += 32) {
        const bool two = j + 16 < j1;
        const char *a0 = k_row(w, j), *a1 = a0 + 16 * stride;
        const uint32_t *b0 = r->q + p * w->depth * PANEL, *b1 = b0 + w->depth * PANEL;
        float *c = r->score + (j - j0) * PANEL;
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        for (int64_t i = 0; i < chunks; i++) {
            _tile_loadd(6, b0 + i * SQUARE, 64);
            _tile_loadd(4, a0 + i * 64, stride);
            _tile_dpbf16ps(0, 4, 6);
            if (wide) {
                _tile_loadd(7, b1 + i * SQUARE, 64);
                _tile_dpbf16ps(1, 4, 7);
            }
            if (two) {
                _tile_loadd(5, a1 + i * 64, stride);
                _tile_dpbf16ps(2, 5, 6);
            }
            if (two && wide)
                _tile_dpbf16ps(3, 5, 7);
        }
        _tile_stored(0, c, 64);
        if (wide)
            _tile_stored(1, c + CHUNK_KEYS * PANEL, 64);
        if (two)
            _tile_stored(2, c + SQUARE, 64);
        if (two && wide)
            _tile_stored(3, c + CHUNK_KEYS * PANEL + SQUARE, 64);
    }
}
static void score_unit_pair(const job *w, const rows *r, int64_t p, int64_t j0, int64_t j1)
{
    if (j0 + up_to(j1 - j0, 16) <= w->s->kv_rows) { /* may read rows past j1 */
        score_unit(w, r, p, j0, j1);
        return;
    }
    const tile t = { .c = r->score,
                     .c_row = PANEL,
                     .c_panel = CHUNK_KEYS * PANEL,
                     .a = k_row(w, j0),
                     .a_row = w->s->ldk * w->size,
                     .a_step = 4,
                     .b = r->q + p * w->depth * PANEL,
                     .b_panel = w->depth * PANEL,
                     .steps = w->depth,
                     .scale = 1,
                     .kind = w->kind,
                     .call = w->call };
    product_of_rows(w, &t, j1 - j0, least(2, r->panels - p));
}
#endif


static void score_keys(const job *w, const rows *r, int64_t j0, int64_t j1)
{
    const tile t = { .c = r->score,
                     .c_row = PANEL,
                     .c_panel = RUN * PANEL,
                     .a = k_row(w, j0),
                     .a_row = w->s->ldk * w->size,
                     .a_step = 4,
                     .b = r->q,
                     .b_panel = w->depth * PANEL,
                     .steps = w->depth,
                     .scale = w->s->scale,
                     .kind = w->kind,
                     .call = w->call };
    product_of_rows(w, &t, j1 - j0, r->panels);
}

/* ---- softmax ---- */
static void values_unit_pair(const job *w, const rows *r, int64_t p, int64_t j0, int64_t b0, int64_t b1);

typedef struct column {
    float *score; /* of key j0 */
    float *lane, *p;
    int64_t j0;
    limits seen;
    vec max;
} column;

SHEAF__INLINE vec score_of(const float *s, const bool unit, vec scale)
{
    return unit ? v_mul(load(s), scale) : load(s);
}

SHEAF__INLINE vec max_free(const float *s, int64_t count, vec max, const bool unit, vec scale)
{
    vec a = max, b = a, c = a, d = a;
    int64_t j = 0;
    for (; j + 4 <= count; j += 4, s += 4 * PANEL) {
        a = larger(score_of(s, unit, scale), a);
        b = larger(score_of(s + PANEL, unit, scale), b);
        c = larger(score_of(s + 2 * PANEL, unit, scale), c);
        d = larger(score_of(s + 3 * PANEL, unit, scale), d);
    }
    for (; j < count; j++, s += PANEL)
        a = larger(score_of(s, unit, scale), a);
    return larger(larger(a, b), larger(c, d));
}

static vec max_limited(const job *w, const column *c, int64_t j0, int64_t j1, const bool unit)
{
    vec max = c->max;
    const vec scale = v_set(w->s->scale);
    for (int64_t j = j0; j < j1; j++)
        if (!is_hidden(w, j))
            max = v_select(sees(c->seen, vi_set((uint32_t)j)),
                           larger(score_of(c->score + (j - c->j0) * PANEL, unit, scale), max), max);
    return max;
}

/* e of key j, which counts in its lane. */
SHEAF__INLINE vec exp_key(const job *w, const column *c, int64_t j, const bool limited,
                          const bool unit, vec scale)
{
    const vec e = exp_of(v_sub(score_of(c->score + (j - c->j0) * PANEL, unit, scale), c->max));
    if (!limited)
        return e;
    return is_hidden(w, j) ? v_zero() : v_select(sees(c->seen, vi_set((uint32_t)j)), e, v_zero());
}
SHEAF__INLINE void count_key(const column *c, int64_t j, vec e)
{
    float *lane = c->lane + j % 16 * PANEL;
    store(lane, v_add(load(lane), e));
}

/* exponentials of keys [j0, j1) of one block, j0 a multiple of the step, as words. */
SHEAF__INLINE void exp_keys(const job *w, const column *c, int64_t j0, int64_t j1,
                            const bool limited, const bool unit)
{
    const sheaf_dtype dtype = w->s->dtype;
    const vec scale = v_set(w->s->scale);
    float *to = c->p + (j0 - c->j0) / w->step * PANEL;
    if (dtype == SHEAF_F32 || (dtype == SHEAF_F16 && !w->pairs)) {
        for (int64_t j = j0; j < j1; j++, to += PANEL) {
            const vec e = exp_key(w, c, j, limited, unit, scale);
            count_key(c, j, e);
            store(to, dtype == SHEAF_F32 ? e : v_rounded(e, SHEAF_F16));
        }
        return;
    }
    for (int64_t j = j0; j < j1; j += 2) {
        const vec e = exp_key(w, c, j, limited, unit, scale);
        const vec f = j + 1 < j1 ? exp_key(w, c, j + 1, limited, unit, scale) : v_zero();
        count_key(c, j, e);
        if (j + 1 < j1)
            count_key(c, j + 1, f);
        const veci words = round_two(e, f, dtype).words;
        if (w->odd_first) {
            store(to, v_float(vi_and(words, vi_set(0xffff0000u))));
            store(to + PANEL, v_float(vi_left(words, 16)));
            to += 2 * PANEL;
        } else {
            vi_store((uint32_t *)(void *)to, words);
            to += PANEL;
        }
    }
}

static float *out_at(const job *w, float *out, int64_t p)
{
    return out + p * PANEL * w->wide;
}

static void rescale(const job *w, float *out, const float *factor, bool unit)
{
    if (unit) {
        const vec f = load(factor);
        for (int64_t c = 0; c < w->wide; c++)
            store(out + c * PANEL, v_mul(load(out + c * PANEL), f));
        return;
    }
    for (int64_t i = 0; i < PANEL; i++, out += w->wide)
        if (factor[i] != 1) {
            const vec f = v_set(factor[i]);
            for (int64_t c = 0; c < w->wide; c += PANEL)
                store(out + c, v_mul(load(out + c), f));
        }
}

/* exp(old - new), 1 where they are the same, infinite too. */
SHEAF__INLINE vec factor_of(vec old, vec new)
{
    return v_select(v_less(old, new), exp_of(v_sub(old, new)), v_set(1));
}
static bool differ(vec a, vec b)
{
#ifdef __AVX512F__
    return _mm512_cmp_ps_mask(a, b, _CMP_NEQ_UQ) != 0;
#else
    return (_mm256_movemask_ps(_mm256_cmp_ps(a.a, b.a, _CMP_NEQ_UQ)) |
            _mm256_movemask_ps(_mm256_cmp_ps(a.b, b.b, _CMP_NEQ_UQ))) != 0;
#endif
}

SHEAF__INLINE void soften(const job *w, const rows *r, int64_t p, int64_t run0, int64_t j0,
                          int64_t j1, const bool first, const bool unit, int64_t *done)
{
    const int64_t a = least(most(j0, r->all_from), j1), b = most(a, least(j1, r->all_to));
    const int64_t a2 = a % 2 != 0 ? least(a + 1, j1) : a, b2 = most(a2, b - b % 2);
    float *score = unit ? r->score + (p % 2 * CHUNK_KEYS + j0 - run0) * PANEL : r->score + (p * RUN + j0 - run0) * PANEL;
    const vec old = load(r->max + p * PANEL);
    column c = { score, r->lane + p * PANEL * 16, unit ? r->p + (p % 2 * CHUNK_KEYS + j0 - run0) / 2 * PANEL : r->p + p * KEYS / w->step * PANEL, j0,
                 limits_at(r->minus_first + p * PANEL, r->span + p * PANEL), old };
    if (a == j0 && b == j1)
        c.max = max_free(score, j1 - j0, c.max, unit, v_set(w->s->scale));
    else {
        c.max = max_limited(w, &c, j0, a, unit);
        c.max = max_free(score + (a - j0) * PANEL, b - a, c.max, unit, v_set(w->s->scale));
        c.max = max_limited(w, &c, b, j1, unit);
    }
    c.max = v_add(c.max, v_zero());
    if (first)
        store(r->max + p * PANEL, c.max);
    else {
        c.max = v_select(v_less(v_add(old, v_set(LAZY)), c.max), c.max, old);
        if (differ(old, c.max)) {
            const vec f = factor_of(old, c.max);
            if (unit && *done < j0) {
                values_unit_pair(w, r, p, run0, *done, j0);
                *done = j0;
            }
            store(r->max + p * PANEL, c.max);
            store(r->factor + p * PANEL, f);
            for (int i = 0; i < 16; i++)
                store(c.lane + i * PANEL, v_mul(load(c.lane + i * PANEL), f));
            rescale(w, out_at(w, r->out, p), r->factor + p * PANEL, unit);
        }
    }
    if (a2 == j0 && b2 == j1) {
        exp_keys(w, &c, j0, j1, false, unit);
        return;
    }
    exp_keys(w, &c, j0, a2, true, unit);
    exp_keys(w, &c, a2, b2, false, unit);
    exp_keys(w, &c, b2, j1, true, unit);
}

#ifdef HAS_UNIT
/* out[channel][row] += v^T p of keys [b0, b1) of the run that starts at j0; p of steps up to a
 * multiple of 16 is zero. Of the panel that p is in, or of both of the pair. */
SHEAF__INLINE void values_tiles(const job *w, float *o, const uint32_t *pw, const uint32_t *v, int64_t chunks, const bool wide, const bool two)
{
    const int64_t p_panel = CHUNK_KEYS / 2 * PANEL, o_panel = w->wide * PANEL;
            _tile_loadd(0, o, 64);
            if (wide)
                _tile_loadd(1, o + o_panel, 64);
            if (two)
                _tile_loadd(2, o + SQUARE, 64);
            if (two && wide)
                _tile_loadd(3, o + o_panel + SQUARE, 64);
            for (int64_t i = 0; i < chunks; i++) {
                const uint32_t *a = v + i * w->wide * 16;
                _tile_loadd(6, pw + i * SQUARE, 64);
                _tile_loadd(4, a, 64);
                _tile_dpbf16ps(0, 4, 6);
                if (wide) {
                    _tile_loadd(7, pw + p_panel + i * SQUARE, 64);
                    _tile_dpbf16ps(1, 4, 7);
                }
                if (two) {
                    _tile_loadd(5, a + SQUARE, 64);
                    _tile_dpbf16ps(2, 5, 6);
                }
                if (two && wide)
                    _tile_dpbf16ps(3, 5, 7);
            }
            _tile_stored(0, o, 64);
            if (wide)
                _tile_stored(1, o + o_panel, 64);
            if (two)
                _tile_stored(2, o + SQUARE, 64);
            if (two && wide)
                _tile_stored(3, o + o_panel + SQUARE, 64);
}
static void values_unit(const job *w, const rows *r, int64_t p, int64_t run0, int64_t b0, int64_t b1, bool wide)
{
    const int64_t base = r->v_whole ? r->v_from : run0;
    const int64_t steps = (b1 - b0 + 1) / 2, whole = up_to(steps, 16);
    const uint32_t *v = r->v + (b0 - base) / 32 * w->wide * 16;
    uint32_t *pw = (uint32_t *)(void *)(r->p + (p % 2 * CHUNK_KEYS + b0 - run0) / 2 * PANEL);
    for (int i = 0; i < 1 + wide && whole > steps; i++)
        memset(pw + (i * CHUNK_KEYS / 2 + steps) * PANEL, 0, (size_t)((whole - steps) * PANEL) * 4);
    for (int64_t c = 0; c < w->panels; c += 2) {
        float *o = r->out + p * w->wide * PANEL + c * SQUARE;
        if (wide)
            values_tiles(w, o, pw, v + c * SQUARE, whole / 16, true, true);
        else
            values_tiles(w, o, pw, v + c * SQUARE, whole / 16, false, true);
    }
}
static void values_unit_pair(const job *w, const rows *r, int64_t p, int64_t run0, int64_t b0, int64_t b1)
{
    values_unit(w, r, p, run0, b0, b1, false);
}

/* All of a chunk of keys for the panels p and p + 1. */
static void attend_unit(const job *w, const rows *r, int64_t p, int64_t c0, int64_t c1)
{
    int64_t done[2] = { c0, c0 };
    const int64_t n = least(2, r->panels - p);
    score_unit_pair(w, r, p, c0, c1);
    for (int64_t i = 0; i < n; i++)
        for (int64_t b0 = c0, b1; b0 < c1; b0 = b1) {
            b1 = least(c1, (b0 / KEYS + 1) * KEYS);
            soften(w, r, p + i, c0, b0, b1, b0 == c0, true, &done[i]);
        }
    if (n == 2) { /* to where both are equally far */
        if (done[0] < done[1])
            values_unit(w, r, p, c0, done[0], done[1], false);
        else if (done[1] < done[0])
            values_unit(w, r, p + 1, c0, done[1], done[0], false);
    }
    values_unit(w, r, p, c0, most(done[0], done[1]), c1, n == 2);
}
/* Keys [j0, j1), j0 a multiple of 32, as [chunk][wide][16 words of keys]. */
static bool pack_turned(const job *w, const rows *r, uint32_t *to, int64_t j0, int64_t j1)
{
    bool finite = true;
    for (int64_t j = j0; j < j1; j += 32, to += w->wide * 16) {
        const int64_t end = least(j + 32, j1);
        finite &= pack_keys(w, r->block, 16 * PANEL, v_row, j, end);
        for (int64_t c = 0; c < w->panels; c++)
            turn_square(to + c * SQUARE, (char *)(r->block + c * SQUARE), 64, (end - j + 1) / 2);
    }
    return finite;
}
#else
static void values_unit_pair(const job *w, const rows *r, int64_t p, int64_t run0, int64_t b0, int64_t b1)
{
}
#endif

static bool pack_values(const job *w, const rows *r, int64_t j0, int64_t j1)
{
#ifdef HAS_UNIT
    if (by_unit(w))
        return pack_turned(w, r, r->v, j0, j1);
#endif
    return pack_keys(w, r->v, r->v_steps * PANEL, v_row, j0, j1);
}

static void add_block(const job *w, const rows *r, int64_t run0, int64_t j0, int64_t j1)
{
    const int64_t base = r->v_whole ? r->v_from : run0;
    for (int64_t p = 0; p < r->panels; p++) {
        const tile t = { .c = out_at(w, r->out, p),
                         .c_row = w->wide,
                         .c_panel = PANEL,
                         .a = (const char *)(r->p + p * KEYS / w->step * PANEL),
                         .a_row = 4,
                         .a_step = PANEL * 4,
                         .b = r->v + (j0 - base) / w->step * PANEL,
                         .b_panel = r->v_steps * PANEL,
                         .steps = steps_of(w, j1 - j0),
                         .add = true,
                         .on = w->kind == TILES,
                         .kind = w->kind,
                         .call = w->call };
        product(&t, least(PANEL, r->count - p * PANEL), w->panels);
    }
}

static void join_chunk(const job *w, const rows *r, bool only)
{
    const bool unit = by_unit(w);
    for (int64_t p = 0; only && p < r->panels; p++) {
        join_lanes(r->lane + p * PANEL * 16);
        store(r->all_max + p * PANEL, load(r->max + p * PANEL));
        store(r->all_sum + p * PANEL, load(r->lane + p * PANEL * 16));
    }
    if (only)
        return;
    for (int64_t p = 0; p < r->panels; p++) {
        float *lane = r->lane + p * PANEL * 16, factor[2][PANEL];
        float *out = out_at(w, r->out, p), *all = out_at(w, r->all, p);
        join_lanes(lane);
        const vec old = load(r->all_max + p * PANEL), now = load(r->max + p * PANEL),
                  max = v_select(v_less(now, old), old, now);
        const vec a = factor_of(old, max), b = factor_of(now, max);
        store(r->all_max + p * PANEL, max);
        store(r->all_sum + p * PANEL,
              v_fma(load(lane), b, v_mul(load(r->all_sum + p * PANEL), a)));
        store(factor[0], a);
        store(factor[1], b);
        for (int64_t i = 0; i < w->wide * PANEL; i += PANEL) {
            const vec x = unit ? a : v_set(factor[0][i / w->wide]),
                      y = unit ? b : v_set(factor[1][i / w->wide]);
            store(all + i, v_fma(load(out + i), y, v_mul(load(all + i), x)));
        }
    }
}

static void end_rows(const job *w, const rows *r, const float *all)
{
    float row_out[SHEAF__HEAD_DIM_MAX], turned[SHEAF__HEAD_DIM_MAX * PANEL];
    for (int64_t i = 0; i < r->count; i++) {
        const int64_t row = r->begin + i, head = w->part.kv * w->s->group + row % w->s->group;
        if (w->call->stats != NULL) {
            float *stats = sheaf__attention_stats(w->call, w->part.batch, head, row / w->s->group);
            stats[0] = r->all_max[i];
            stats[1] = r->all_sum[i];
        }
        const float *o = all + i * w->wide;
        if (by_unit(w)) {
            if (i % PANEL == 0)
                for (int64_t c = 0; c < w->wide; c += PANEL)
                    mm_transpose((uint32_t *)(void *)(turned + c), w->wide,
                         (const char *)(all + i / PANEL * PANEL * w->wide + c * PANEL), 64, PANEL, PANEL, 0);
            o = turned + i % PANEL * w->wide;
        }
        const vec by = v_set(1 / (r->all_sum[i] == 0 ? 1 : r->all_sum[i]));
        for (int64_t c = 0; c < w->wide; c += PANEL)
            store(row_out + c, v_mul(load(o + c), by));
        finish_row(w, (char *)o_row(w, w->call->o, row / w->s->group, row % w->s->group), row_out);
    }
}

static bool attend_rows(const job *w, const rows *r)
{
    const bool unit = by_unit(w);
    const bool only = r->to <= (r->from / CHUNK_KEYS + 1) * CHUNK_KEYS;
    bool finite = true;
    if (!only)
        memset(r->all, 0, (size_t)(r->panels * PANEL * w->wide) * sizeof(float));
    for (int64_t c0 = r->from, c1; c0 < r->to; c0 = c1) {
        c1 = least(r->to, (c0 / CHUNK_KEYS + 1) * CHUNK_KEYS);
        for (int64_t i = 0; i < r->panels * PANEL; i++)
            r->max[i] = -INFINITY;
        memset(r->lane, 0, (size_t)(r->panels * PANEL * 16) * sizeof(float));
        memset(r->out, 0, (size_t)(r->panels * PANEL * w->wide) * sizeof(float));
#ifdef HAS_UNIT
        if (unit) {
            if (!r->v_whole)
                finite &= pack_values(w, r, c0, c1);
            for (int64_t p = 0; p < r->panels; p += 2)
                attend_unit(w, r, p, c0, c1);
            join_chunk(w, r, only);
            continue;
        }
#endif
        for (int64_t j0 = c0, j1; j0 < c1; j0 = j1) {
            j1 = least(c1, j0 + RUN);
            score_keys(w, r, j0, j1);
            if (!r->v_whole)
                finite &= pack_values(w, r, j0, j1);
            for (int64_t b0 = j0, b1; b0 < j1; b0 = b1) {
                b1 = least(j1, (b0 / KEYS + 1) * KEYS);
                for (int64_t p = 0; p < r->panels; p++)
                        soften(w, r, p, j0, b0, b1, b0 == c0, false, NULL);
                add_block(w, r, j0, b0, b1);
            }
        }
        join_chunk(w, r, only);
    }
    end_rows(w, r, only ? r->out : r->all);
    return finite;
}

static bool attend(const sheaf__attention_call *call, const sheaf__attention_part *part,
                   void *scratch, size_t bytes)
{
    job w = job_of(call, part, true, scratch, bytes);
    rows r;
    bool finite = true;
    const int64_t size = plan_rows(&w, &r);
    if (r.v_whole)
        finite = pack_values(&w, &r, r.v_from, last_seen(&w, part->end - 1) + 1);
    for (int64_t begin = part->begin; finite && begin < part->end; begin += size) {
        begin_rows(&w, &r, begin, least(size, part->end - begin));
        fetch_next(&w, &r);
        finite = attend_rows(&w, &r);
    }
    return finite;
}
