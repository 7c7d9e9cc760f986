/* attention_forward.h - part of attention_kernel.h: the output of a range of rows.
 *
 * A row is a (query, query head) of one key head, the heads of a query side by side, so that all
 * rows of a block see almost the same keys. For a block of rows, a run of keys at a time: scores
 * [panel][key][16]. Of each 64 of them: e and its 16 sums, round(e) as words [step][panel][16],
 * o + e v. m seldom moves once some keys are known: where chains go on from key to key, values wait
 * for the end of a run, or for the key where it does.
 *
 * By the unit a run is a part, so that vectors work while the unit rests: for 0.6 us after each of
 * its products they have half their rate. There o is [channel][row]: e is an operand as it lies,
 * and what rows are multiplied by is a vector. */

#define PART SHEAF__ATTENTION_PART
#define KEYS SHEAF__ATTENTION_KEYS
#define ROWS 64       /* of a block: they read keys and values once */
#define UNIT_ROWS 128 /* by the unit, of which two panels meet scores and values together */

typedef struct rows {
    int64_t begin, count, panels;
    int64_t from, to;            /* keys that a row may see; from is a multiple of KEYS */
    int64_t all_from, all_to;    /* keys that every row sees */
    int64_t run, together;       /* keys, and panels, whose scores are held at once */
    int64_t weights;             /* keys whose e are, */
    int64_t p_step, p_panel;     /* floats between steps of them, and between panels */
    int64_t part;                /* key that this part begins with */
    bool unit;                   /* by the unit */
    bool waits;                  /* values are added when m moves, or at the end of a run */
    float scale;                 /* of scores as they are held */
    int32_t *minus_first, *span; /* [rows], see limits */
    float *max, *factor;         /* [rows], of this part */
    float *all_max, *all_sum;    /* [rows], of the parts so far */
    float *lane;                 /* [panel][16 lanes][16 rows] */
    uint32_t *q;                 /* [panel][depth][16] */
    float *score;                /* [together][run][16] */
    float *p;                    /* [weights / step][together][16], of the unit panels outside */
    float *out, *all;            /* [row][wide], of the unit [panel][wide][16] */
    uint32_t *v;             /* [panel of head_dim][v_steps][16], of the unit [chunk][wide][16] */
    uint32_t *square;        /* [panel of head_dim][16][16], of a chunk before it is turned */
    int64_t v_from, v_steps; /* packed once for the part if v_whole, else run by run */
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

/* Divides the scratch. Returns the rows of a block. */
static int64_t plan_rows(job *w, rows *r)
{
    const int64_t count = w->part.end - w->part.begin;
    const int64_t from = first_seen(w, w->part.begin) / KEYS * KEYS;
    const int64_t to = last_seen(w, w->part.end - 1) + 1;
    r->unit = w->kind == UNIT;
    const int64_t size = least(r->unit ? UNIT_ROWS : ROWS, up_to(count, PANEL));
    r->run = r->unit ? PART : BLOCK;
    r->waits = w->kind == UNIT || w->kind == TILES || w->kind == MMA;
    r->weights = r->waits ? r->run : KEYS;
    r->together = r->unit ? 2 : size / PANEL;
    r->p_step = r->unit ? PANEL : r->together * PANEL;
    r->p_panel = r->unit ? r->weights / w->step * PANEL : PANEL;
    r->scale = r->unit && w->s->cap == 0 ? w->s->scale : 1;
    take_strip(w);
    r->minus_first = take(w, size);
    r->span = take(w, size);
    r->max = take(w, size);
    r->factor = take(w, size);
    r->all_max = take(w, size);
    r->all_sum = take(w, size);
    r->lane = take(w, size * 16);
    r->q = take(w, size * w->depth);
    r->out = take(w, size * w->wide);
    r->all = take(w, size * w->wide);
    r->score = take(w, r->together * r->run * PANEL);
    r->p = take(w, r->together * r->weights / w->step * PANEL);
    r->square = take(w, 16 * w->wide);
    r->v_from = from;
    r->v_steps = up_to(to - from, 32) / w->step;
    r->v_whole = count > size && r->v_steps * w->wide <= (w->end - w->free) / 4;
    if (!r->v_whole)
        r->v_steps = r->run / w->step;
    r->v = take(w, r->v_steps * w->wide);
    return size;
}

/* The rows' queries, transposed. Within a panel, rows that lie evenly spaced go together:
 * the heads of a query, or the queries of the only head. */
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

/* While these rows are computed: those of the next block, and where this one goes. */
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
        r->all_to = r->all_from; /* hidden keys, or rows that do not exist and see nothing */
    for (int64_t i = 0; i < r->panels * PANEL; i++) {
        const int64_t first = first_seen(w, begin + i);
        r->minus_first[i] = i < count ? (int32_t)-first : SEES_NONE;
        r->span[i] = i < count ? (int32_t)(last_seen(w, begin + i) - first) : 0;
    }
    pack_rows(w, r);
}

/* ---- scores ---- */

/* Of panels [p, p + n) and keys [j0, j1), the first of a run. By the unit where each 16 keys are in
 * memory, and each 16 words are of channels. */
static void score_keys(const job *w, const rows *r, int64_t p, int64_t n, int64_t j0, int64_t j1)
{
    const uint32_t *q = r->q + p * w->depth * PANEL;
    const int64_t stride = w->s->ldk * w->size;
    if (r->unit && w->s->cap == 0 && w->depth % 16 == 0 && up_to(j1, PANEL) <= w->s->kv_rows) {
        for (int64_t j = j0; j < j1; j += 2 * PANEL) {
            const squares s = { .c = r->score + (j - j0) * PANEL,
                                .c_down = SQUARE,
                                .c_right = r->run * PANEL,
                                .a = k_row(w, j),
                                .a_row = stride,
                                .a_down = PANEL * stride,
                                .a_chunk = 64,
                                .b = q,
                                .b_right = w->depth * PANEL,
                                .chunks = w->depth / 16 };
            run_squares(&s, j + PANEL<j1, n> 1);
        }
        return;
    }
    const tile t = { .c = r->score,
                     .c_row = PANEL,
                     .c_panel = r->run * PANEL,
                     .a = k_row(w, j0),
                     .a_row = stride,
                     .a_step = 4,
                     .b = q,
                     .b_panel = w->depth * PANEL,
                     .steps = w->depth,
                     .scale = r->scale == 1 ? w->s->scale : 1,
                     .kind = w->kind,
                     .call = w->call };
    product_of_rows(w, &t, j1 - j0, n);
    for (int64_t i = 0; w->s->cap > 0 && i < n; i++)
        cap_scores(r->score + i * r->run * PANEL, w->s->cap, (j1 - j0) * PANEL);
}

/* ---- exponentials ---- */

/* One panel of rows at a block of keys. */
typedef struct column {
    const float *score; /* of key `j0` */
    float *lane, *p;
    int64_t p_step, j0;
    limits seen;
    vec max, scale;
} column;

SHEAF__INLINE vec score_of(const column *c, int64_t j, const bool unit)
{
    const vec s = load(c->score + (j - c->j0) * PANEL);
    return unit ? v_mul(s, c->scale) : s;
}

/* Keys [j0, j1) that every row sees. */
SHEAF__INLINE void max_free(column *c, int64_t j0, int64_t j1, const bool unit)
{
    vec x[4] = { c->max, c->max, c->max, c->max };
    int64_t j = j0;
    for (; j + 4 <= j1; j += 4)
        UNROLL for (int i = 0; i < 4; i++) x[i] = larger(score_of(c, j + i, unit), x[i]);
    for (; j < j1; j++)
        x[0] = larger(score_of(c, j, unit), x[0]);
    c->max = larger(larger(x[0], x[1]), larger(x[2], x[3]));
}

SHEAF__INLINE void max_limited(const job *w, column *c, int64_t j0, int64_t j1, const bool unit)
{
    for (int64_t j = j0; j < j1; j++)
        if (!is_hidden(w, j))
            c->max = v_select(sees(c->seen, vi_set((uint32_t)j)),
                              larger(score_of(c, j, unit), c->max), c->max);
}

/* e of key j, which its lane takes. */
SHEAF__INLINE vec exp_key(const job *w, const column *c, int64_t j, const bool limited,
                          const bool unit)
{
    float *lane = c->lane + (j & 15) * PANEL;
    vec e = exp_of(v_sub(score_of(c, j, unit), c->max));
    if (limited)
        e = is_hidden(w, j) ? v_zero() : v_select(sees(c->seen, vi_set((uint32_t)j)), e, v_zero());
    store(lane, v_add(load(lane), e));
    return e;
}

/* Keys [j0, j1), from a whole step on. */
SHEAF__INLINE void exp_keys(const job *w, const column *c, int64_t j0, int64_t j1,
                            const bool limited, const bool unit)
{
    const sheaf_dtype dtype = w->s->dtype;
    const int64_t apart = unit ? PANEL : c->p_step;
    float *to = c->p + (j0 - c->j0) / w->step * apart;
    if (!w->pairs && !w->odd_first) {
        for (int64_t j = j0; j < j1; j++, to += apart)
            store(to, v_rounded(exp_key(w, c, j, limited, unit), dtype));
        return;
    }
    for (int64_t j = j0; j < j1; j += 2, to += 2 / w->step * apart) {
        const vec e = exp_key(w, c, j, limited, unit),
                  next = j + 1 < j1 ? exp_key(w, c, j + 1, limited, unit) : v_zero();
        const veci words = round_two(e, next, dtype).words;
        if (w->pairs) {
            vi_store((uint32_t *)(void *)to, words);
        } else {
            store(to, v_float(vi_and(words, vi_set(0xffff0000u))));
            store(to + apart, v_float(vi_left(words, 16)));
        }
    }
}

/* ---- the output ---- */

static float *out_of(const job *w, float *out, int64_t p)
{
    return out + p * PANEL * w->wide;
}

/* Rows of panel p times their factor. */
static void multiply_rows(const job *w, const rows *r, int64_t p)
{
    const float *factor = r->factor + p * PANEL;
    float *o = out_of(w, r->out, p);
    for (int64_t i = 0; i < PANEL * w->wide; i += PANEL) {
        const float *one = factor + i / w->wide;
        if (r->unit || *one != 1)
            store(o + i, v_mul(load(o + i), r->unit ? load(factor) : v_set(*one)));
    }
}

/* Where e of panel p and key j, the one numbered `from_run` of a run, is. */
static float *weight_at(const job *w, const rows *r, int64_t p, int64_t from_run)
{
    return r->p + p % r->together * r->p_panel + from_run % r->weights / w->step * r->p_step;
}

/* out += e v of panels [p, p + n) and keys [j0, j1) of the run from run0 on, the first of a part
 * out = e v, but by mma, whose chain may be denormal; no more than a block of them, but by the
 * unit.
 */
static void weigh_values(const job *w, const rows *r, int64_t p, int64_t n, int64_t run0,
                         int64_t j0, int64_t j1)
{
    const int64_t v_from = r->v_whole ? r->v_from : run0;
    const bool on = w->mma || j0 > r->part;
    float *e = weight_at(w, r, p, j0 - run0);
    if (!r->unit) {
        const tile t = { .c = out_of(w, r->out, p),
                         .c_row = w->wide,
                         .c_panel = PANEL,
                         .a = (const char *)e,
                         .a_row = 4,
                         .a_step = r->p_step * 4,
                         .b = (const uint32_t *)r->v + (j0 - v_from) / w->step * PANEL,
                         .b_panel = r->v_steps * PANEL,
                         .steps = steps_of(w, j1 - j0),
                         .scale = 1,
                         .add = on,
                         .on = on && w->kind == TILES,
                         .kind = w->kind,
                         .call = w->call };
        product(&t, least(n * PANEL, r->count - p * PANEL), w->panels);
        return;
    }
    const int64_t steps = (j1 - j0 + 1) / 2, whole = up_to(steps, 16);
    for (int64_t i = 0; i < n && whole > steps; i++)
        memset(e + i * r->p_panel + steps * PANEL, 0, (size_t)((whole - steps) * PANEL) * 4);
    for (int64_t c = 0; c < w->panels; c += 2) {
        const uint32_t *v = r->v + ((j0 - v_from) / 32 * w->wide + c * PANEL) * PANEL;
        const squares s = { .c = out_of(w, r->out, p) + c * SQUARE,
                            .c_down = SQUARE,
                            .c_right = w->wide * PANEL,
                            .a = (const char *)v,
                            .a_row = 64,
                            .a_down = SQUARE * 4,
                            .a_chunk = w->wide * 64,
                            .b = (const uint32_t *)(void *)e,
                            .b_right = r->p_panel,
                            .chunks = whole / 16,
                            .on = on };
        run_squares(&s, c + 1 < w->panels, n > 1);
    }
}

/* m of a row moves: what waits meets m as it was. Of the first keys of a part nothing does. */
static void move_max(const job *w, const rows *r, int64_t p, int64_t run0, int64_t *done,
                     int64_t j0, vec max)
{
    float *lane = r->lane + p * PANEL * 16, *m = r->max + p * PANEL;
    const vec factor = factor_of(load(m), max);
    store(m, max);
    if (j0 == r->part)
        return;
    if (r->waits && *done < j0)
        weigh_values(w, r, p, 1, run0, *done, j0);
    *done = j0;
    store(r->factor + p * PANEL, factor);
    for (int64_t i = 0; i < 16 * PANEL; i += PANEL)
        store(lane + i, v_mul(load(lane + i), factor));
    multiply_rows(w, r, p);
}

/* A block of keys [j0, j1) of the run from run0 on, those in the middle seen by every row. */
SHEAF__INLINE void attend_block(const job *w, const rows *r, int64_t p, int64_t run0, int64_t *done,
                                int64_t j0, int64_t j1, const bool unit)
{
    const int64_t a = least(most(j0, r->all_from), j1), b = most(a, least(j1, r->all_to)),
                  a_whole = least(up_to(a, 2), j1), b_whole = most(a_whole, b / 2 * 2);
    const vec max = load(r->max + p * PANEL);
    column c = { r->score + (p % r->together * r->run + j0 - run0) * PANEL,
                 r->lane + p * PANEL * 16,
                 weight_at(w, r, p, j0 - run0),
                 r->p_step,
                 j0,
                 limits_at(r->minus_first + p * PANEL, r->span + p * PANEL),
                 v_set(SHEAF__ATTENTION_LEAST),
                 v_set(r->scale) };
    max_limited(w, &c, j0, a, unit);
    max_free(&c, a, b, unit);
    max_limited(w, &c, b, j1, unit);
    const vec above = v_add(max, v_set(SHEAF__ATTENTION_MARGIN));
    c.max = v_select(v_less(above, c.max), v_add(c.max, v_zero()), max);
    if (any_less(max, c.max))
        move_max(w, r, p, run0, done, j0, c.max);
    exp_keys(w, &c, j0, a_whole, true, unit);
    exp_keys(w, &c, a_whole, b_whole, false, unit);
    exp_keys(w, &c, b_whole, j1, true, unit);
}

/* Keys [j0, j1) of a part, a run, and panels [p, p + n). Values that wait are added together from
 * where all panels have them; others with each block, while it is in the nearest cache. */
static void attend_run(const job *w, const rows *r, int64_t p, int64_t n, int64_t j0, int64_t j1)
{
    int64_t done[ROWS / PANEL], end = j0;
    score_keys(w, r, p, n, j0, j1);
    for (int64_t i = 0; i < n; i++)
        done[i] = j0;
    for (int64_t b0 = j0, b1; b0 < j1; b0 = b1) {
        b1 = least(j1, b0 + KEYS);
        for (int64_t i = 0; i < n; i++) {
            if (r->unit)
                attend_block(w, r, p + i, j0, &done[i], b0, b1, true);
            else
                attend_block(w, r, p + i, j0, &done[i], b0, b1, false);
            end = most(end, done[i]);
        }
        if (!r->waits)
            weigh_values(w, r, p, n, j0, b0, b1);
    }
    if (!r->waits)
        return;
    for (int64_t i = 0; i < n; i++)
        if (done[i] < end)
            weigh_values(w, r, p + i, 1, j0, done[i], end);
    if (end < j1)
        weigh_values(w, r, p, n, j0, end, j1);
}

/* Values of keys [j0, j1), for the unit [chunk of 32][channel][16 words]. False where one is not
 * finite. */
static bool pack_values(const job *w, const rows *r, int64_t j0, int64_t j1)
{
    bool finite = true;
    uint32_t *to = r->v;
    if (!r->unit)
        return pack_keys(w, to, r->v_steps * PANEL, v_row, j0, j1);
    for (int64_t j = j0; j < j1; j += 32, to += w->wide * PANEL) {
        const int64_t end = least(j + 32, j1);
        finite &= pack_keys(w, r->square, SQUARE, v_row, j, end);
        for (int64_t c = 0; c < w->panels; c++)
            turn_square(to + c * SQUARE, (const char *)(r->square + c * SQUARE), 64,
                        (end - j + 1) / 2);
    }
    return finite;
}

/* ---- parts ---- */

static void begin_part(const job *w, rows *r, int64_t j0)
{
    r->part = j0;
    if (w->mma || j0 >= r->to)
        memset(r->out, 0, (size_t)(r->panels * PANEL * w->wide) * sizeof(float));
    for (int64_t i = 0; i < r->panels * PANEL; i += PANEL)
        store(r->max + i, v_set(SHEAF__ATTENTION_LEAST));
    memset(r->lane, 0, (size_t)(r->panels * PANEL * 16) * sizeof(float));
}

/* The first one is all there is so far. */
static void end_part(const job *w, rows *r, bool first)
{
    for (int64_t p = 0; p < r->panels; p++) {
        float *lane = r->lane + p * PANEL * 16, *all_max = r->all_max + p * PANEL,
              *all_sum = r->all_sum + p * PANEL, by[PANEL], before[PANEL];
        const vec max = load(r->max + p * PANEL);
        join_lanes(lane);
        if (first) {
            store(all_max, max);
            store(all_sum, load(lane));
            continue;
        }
        const vec old = load(all_max), now = larger(max, old), x = factor_of(max, now),
                  y = factor_of(old, now);
        store(all_max, now);
        store(all_sum, v_fma(load(lane), x, v_mul(load(all_sum), y)));
        store(by, x);
        store(before, y);
        const float *o = out_of(w, r->out, p);
        float *all = out_of(w, r->all, p);
        for (int64_t i = 0; i < PANEL * w->wide; i += PANEL) {
            const int64_t row = i / w->wide;
            store(all + i, v_fma(load(o + i), r->unit ? x : v_set(by[row]),
                                 v_mul(load(all + i), r->unit ? y : v_set(before[row]))));
        }
    }
    if (first) {
        float *out = r->out;
        r->out = r->all;
        r->all = out;
    }
}

/* Stats and o of query i and head g of the group, of M and sums; o is used up. */
static void end_row(const job *w, float max, float sum, int64_t i, int64_t g, float *o)
{
    const vec by = v_set(1 / (sum < 1 ? 1 : sum)); /* below 1 only where nothing is seen */
    if (w->call->stats != NULL) {
        float *stats =
            sheaf__attention_stats(w->call, w->part.batch, w->part.kv * w->s->group + g, i);
        stats[0] = max == SHEAF__ATTENTION_LEAST ? -INFINITY : max;
        stats[1] = sum == sum ? sum : sheaf__float(SHEAF__NAN_BITS);
    }
    for (int64_t c = 0; c < w->wide; c += PANEL)
        store(o + c, v_mul(load(o + c), by));
    finish_row(w, (char *)o_row(w, w->call->o, i, g), o);
}

static void end_rows(const job *w, const rows *r)
{
    float turned[SHEAF__HEAD_DIM_MAX * PANEL];
    for (int64_t i = 0; i < r->count; i++) {
        float *o = r->all + i * w->wide;
        if (r->unit) {
            if (i % PANEL == 0)
                for (int64_t c = 0; c < w->wide; c += PANEL)
                    mm_transpose((uint32_t *)(void *)(turned + c), w->wide, o + c * PANEL, 64,
                                 PANEL, PANEL, 0);
            o = turned + i % PANEL * w->wide;
        }
        end_row(w, r->all_max[i], r->all_sum[i], (r->begin + i) / w->s->group,
                (r->begin + i) % w->s->group, o);
    }
}

static bool attend_rows(const job *w, rows *r)
{
    bool finite = true;
    int64_t c0 = r->from;
    do { /* once, too, where no key is seen */
        const int64_t c1 = least(r->to, (c0 / PART + 1) * PART);
        begin_part(w, r, c0);
        for (int64_t j0 = c0, j1; j0 < c1; j0 = j1) {
            j1 = least(c1, (j0 / r->run + 1) * r->run);
            if (!r->v_whole)
                finite &= pack_values(w, r, j0, j1);
            for (int64_t p = 0; p < r->panels; p += r->together)
                attend_run(w, r, p, least(r->together, r->panels - p), j0, j1);
        }
        end_part(w, r, c0 == r->from);
        c0 = c1;
    } while (c0 < r->to);
    end_rows(w, r);
    return finite;
}

/* False where something is not finite. */
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
