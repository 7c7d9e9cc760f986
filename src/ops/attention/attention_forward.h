/* attention_forward.h - part of attention_kernel.h: the output of a range of rows.
 *
 * A row is a (query, query head) of one key head, the heads of a query side by
 * side, so that all rows of a block see almost the same keys. For a block of rows:
 * scores [panel][key][16], their maximum, e and its 16 sums, p as words [step][16], o = p v. What
 * is made of a block of 256 keys is used before the next: scores for the maximum, p for o. When the
 * scores of all keys do not fit in the scratch they are computed again for each of the three
 * passes, a run of keys at a time. */

#define MAX_ROWS 64

typedef struct rows {
    int64_t begin, count, panels;
    int64_t from, to; /* keys that a row may see; from is a multiple of 32, where chunks begin */
    int64_t all_from, all_to;    /* keys that every row sees */
    int64_t run;                 /* keys whose scores are held at once: a multiple of 256 */
    int32_t *minus_first, *span; /* [rows], see limits */
    float *max, *sum;            /* [rows] */
    float *inverse, *rest;       /* [rows], see divisor_of() */
    float *lane;                 /* [panel][16 lanes][16 rows] */
    uint32_t *q;                 /* [panel][depth][16] */
    float *score;                /* [panel][run][16] */
    float *p;                    /* [BLOCK / step][panels together][16] */
    float *out;                  /* [row][wide] */
    float *total;                /* the same, of chains that have ended; NULL if none ends */
    uint32_t *v;                 /* [panel of head_dim][v_steps][16] */
    int64_t v_from, v_steps;     /* packed once for the part if v_whole, else block by block */
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

/* Panels of rows that meet the values together: the unit takes two, and mma brings values into
 * elements for each. */
static int64_t together(const job *w)
{
    return w->kind == UNIT || w->mma ? 2 : 1;
}

/* Rows of a block, of which keys and values are read once: so many that their scores for all keys
 * fit in the scratch, though they leave the second-level cache, as less is read that way. Where
 * they do not fit for 32 rows, computing them again costs less. */
static int64_t rows_at_once(const job *w, int64_t longest)
{
    const int64_t row = longest + w->depth + w->wide * (w->ends ? 2 : 1) + 16 + 6,
                  rest = (BLOCK + STRIP) * w->wide + (BLOCK * together(w) + 10) * PANEL;
    for (int64_t size = MAX_ROWS; size >= MAX_ROWS / 2; size -= PANEL)
        if (size * row + rest <= (w->end - w->free) / 4)
            return size;
    return MAX_ROWS;
}

/* Divides the scratch. Returns the rows of a block. */
static int64_t plan_rows(job *w, rows *r)
{
    const int64_t count = w->part.end - w->part.begin;
    const int64_t from = first_seen(w, w->part.begin) / BLOCK * BLOCK;
    const int64_t to = last_seen(w, w->part.end - 1) + 1;
    const int64_t window = sheaf__attention_window(w->s);
    const int64_t reach = window > 0 ? window + MAX_ROWS + BLOCK : to;
    const int64_t longest = most(up_to(least(to - from, reach), BLOCK), BLOCK);
    const int64_t size = least(rows_at_once(w, longest), up_to(count, PANEL));
    take_strip(w);
    r->minus_first = take(w, size);
    r->span = take(w, size);
    r->max = take(w, size);
    r->sum = take(w, size);
    r->inverse = take(w, size);
    r->rest = take(w, size);
    r->p = take(w, BLOCK / w->step * together(w) * PANEL);
    r->lane = take(w, size * 16);
    r->q = take(w, size * w->depth);
    r->out = take(w, size * w->wide);
    r->total = w->ends ? take(w, size * w->wide) : NULL;
    const int64_t capacity = (w->end - w->free) / 4 - BLOCK * w->wide;
    r->run = least(longest, capacity / size / BLOCK * BLOCK);
    assert(r->run > 0);
    r->score = take(w, size * r->run);
    r->v_from = from;
    r->v_steps = up_to(to - from, 2) / w->step;
    r->v_whole = count > size && r->v_steps * w->wide <= (w->end - w->free) / 4;
    if (!r->v_whole)
        r->v_steps = BLOCK / w->step;
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
    r->from = first_seen(w, begin) / SHEAF__ATTENTION_CHUNK * SHEAF__ATTENTION_CHUNK;
    r->to = last_seen(w, begin + count - 1) + 1;
    r->all_from = first_seen(w, begin + count - 1);
    r->all_to = last_seen(w, begin) + 1;
    if (w->s->key_mask != NULL || (count % PANEL != 0 && !w->s->full))
        r->all_to = r->all_from; /* hidden keys, or rows that do not exist and see nothing */
    for (int64_t i = 0; i < r->panels * PANEL; i++) {
        const int64_t first = first_seen(w, begin + i);
        r->minus_first[i] = i < count ? (int32_t)-first : SEES_NONE;
        r->span[i] = i < count ? (int32_t)(last_seen(w, begin + i) - first) : 0;
        r->max[i] = -INFINITY;
    }
    pack_rows(w, r);
    memset(r->lane, 0, (size_t)(r->panels * PANEL * 16) * sizeof(float));
}

/* Of keys [j0, j1) in the run that starts at key `run0`. */
static void score_keys(const job *w, const rows *r, int64_t run0, int64_t j0, int64_t j1)
{
    float *to = r->score + (j0 - run0) * PANEL;
    const tile t = { .c = to,
                     .c_row = PANEL,
                     .c_panel = r->run * PANEL,
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
    for (int64_t p = 0; w->s->cap > 0 && p < r->panels; p++)
        cap_scores(to + p * r->run * PANEL, w->s->cap, (j1 - j0) * PANEL);
}

/* ---- softmax ---- */

/* One panel of rows while it walks over a run of keys. */
typedef struct column {
    float *score; /* of key `run0` */
    float *lane;
    int64_t run0;
    limits seen;
    vec max;
} column;

static column column_of(const rows *r, int64_t p, int64_t run0)
{
    return (column){ r->score + p * r->run * PANEL, r->lane + p * PANEL * 16, run0,
                     limits_at(r->minus_first + p * PANEL, r->span + p * PANEL),
                     load(r->max + p * PANEL) };
}

/* Keys [j0, j1) that every row sees. */
static void max_free(column *c, int64_t j0, int64_t j1)
{
    const float *s = c->score + (j0 - c->run0) * PANEL;
    vec a = c->max, b = a;
    int64_t j = j0;
    for (; j + 2 <= j1; j += 2, s += 2 * PANEL) {
        a = larger(load(s), a);
        b = larger(load(s + PANEL), b);
    }
    if (j < j1)
        a = larger(load(s), a);
    c->max = larger(a, b);
}

static void max_limited(const job *w, column *c, int64_t j0, int64_t j1)
{
    const float *s = c->score + (j0 - c->run0) * PANEL;
    for (int64_t j = j0; j < j1; j++, s += PANEL)
        if (!is_hidden(w, j))
            c->max = v_select(sees(c->seen, vi_set((uint32_t)j)), larger(load(s), c->max), c->max);
}

SHEAF__INLINE void exp_keys(const job *w, column *c, int64_t j0, int64_t j1, const bool limited)
{
    float *s = c->score + (j0 - c->run0) * PANEL;
    for (int64_t j = j0; j < j1; j++, s += PANEL) {
        float *lane = c->lane + j % 16 * PANEL;
        vec e = v_zero();
        if (!limited)
            e = exp_of(v_sub(load(s), c->max));
        else if (!is_hidden(w, j))
            e = v_select(sees(c->seen, vi_set((uint32_t)j)), exp_of(v_sub(load(s), c->max)), e);
        store(lane, v_add(load(lane), e));
        store(s, e);
    }
}

/* Keys [j0, j1) of the run that starts at key `run0`, those in the middle seen by every row: their
 * maximum, or, in place of scores, the exponentials and their 16 sums. */
static void each_panel(const job *w, const rows *r, int64_t run0, int64_t j0, int64_t j1,
                       const bool exponentials)
{
    const int64_t a = least(most(j0, r->all_from), j1), b = most(a, least(j1, r->all_to));
    for (int64_t p = 0; p < r->panels; p++) {
        column c = column_of(r, p, run0);
        if (exponentials) {
            exp_keys(w, &c, j0, a, true);
            exp_keys(w, &c, a, b, false);
            exp_keys(w, &c, b, j1, true);
        } else {
            max_limited(w, &c, j0, a);
            max_free(&c, a, b);
            max_limited(w, &c, b, j1);
            store(r->max + p * PANEL, c.max);
        }
    }
}

static void end_sums(const job *w, const rows *r)
{
    for (int64_t p = 0; p < r->panels; p++) {
        float *lane = r->lane + p * PANEL * 16;
        join_lanes(lane);
        store(r->sum + p * PANEL, v_one_nan(load(lane)));
    }
    for (int64_t i = 0; w->call->stats != NULL && i < r->count; i++) {
        const int64_t row = r->begin + i, head = w->part.kv * w->s->group + row % w->s->group;
        float *stats = sheaf__attention_stats(w->call, w->part.batch, head, row / w->s->group);
        stats[0] = r->max[i];
        stats[1] = r->sum[i];
    }
    for (int64_t i = 0; i < r->panels * PANEL; i += PANEL) {
        const vec sum = load(r->sum + i);
        /* at least 1, the e of the largest, unless the row sees nothing: then all e are 0 */
        const divisor by = divisor_of(v_select(v_less(sum, v_set(1)), v_set(1), sum));
        store(r->sum + i, by.sum);
        store(r->inverse + i, by.inverse);
        store(r->rest + i, by.rest);
    }
}

/* e / sum for the rows of panel p. */
static divisor divisor_at(const rows *r, int64_t p)
{
    return (divisor){ load(r->sum + p * PANEL), load(r->inverse + p * PANEL),
                      load(r->rest + p * PANEL) };
}

SHEAF__INLINE veci quotients_of_two(vec even, vec odd, const divisor *by, sheaf_dtype dtype)
{
    return dtype == SHEAF_BF16
               ? quotient_pair(even, odd, by)
               : round_two(v_div(even, by->sum), v_div(odd, by->sum), SHEAF_F16).words;
}

/* p of `count` keys of panel p as words, at `to` and every `apart` floats. */
static void quotients(const job *w, const rows *r, int64_t p, float *to, int64_t apart,
                      const float *e, int64_t count)
{
    const divisor by = divisor_at(r, p);
    if (w->s->dtype == SHEAF_F32)
        for (int64_t j = 0; j < count; j++)
            store(to + j * apart, quotient(load(e + j * PANEL), &by));
    else if (w->s->dtype == SHEAF_F16 && !w->pairs)
        for (int64_t j = 0; j < count; j++)
            store(to + j * apart, v_rounded(v_div(load(e + j * PANEL), by.sum), SHEAF_F16));
    else if (w->odd_first)
        for (; count > 0; count -= 2, e += 2 * PANEL, to += 2 * apart) {
            const vec next = count > 1 ? load(e + PANEL) : v_zero();
            const veci words = quotient_pair(load(e), next, &by);
            store(to, v_float(vi_and(words, vi_set(0xffff0000u))));
            store(to + apart, v_float(vi_left(words, 16)));
        }
    else {
        uint32_t *words = (uint32_t *)(void *)to;
        const sheaf_dtype dtype = w->s->dtype;
        for (; count >= 2; count -= 2, e += 2 * PANEL, words += apart)
            vi_store(words, quotients_of_two(load(e), load(e + PANEL), &by, dtype));
        if (count > 0)
            vi_store(words, quotients_of_two(load(e), v_zero(), &by, dtype));
    }
}

/* ---- the output ---- */

/* o += p v over keys [j0, j1) of the run that starts at key `run0`, all in one block. */
static bool add_block(const job *w, const rows *r, int64_t run0, int64_t j0, int64_t j1)
{
    bool finite = true;
    const uint32_t *v = r->v + (j0 - r->v_from) / w->step * PANEL;
    if (!r->v_whole) {
        v = r->v;
        finite = pack_keys(w, r->v, r->v_steps * PANEL, v_row, j0, j1);
    }
    for (int64_t p = 0, n; p < r->panels; p += n) {
        n = least(r->panels - p, together(w));
        for (int64_t i = 0; i < n; i++)
            quotients(w, r, p + i, r->p + i * PANEL, n * PANEL,
                      r->score + ((p + i) * r->run + j0 - run0) * PANEL, j1 - j0);
        const tile t = { .c = r->out + p * PANEL * w->wide,
                         .c_row = w->wide,
                         .c_panel = PANEL,
                         .a = (const char *)r->p,
                         .a_row = 4,
                         .a_step = n * PANEL * 4,
                         .b = v,
                         .b_panel = r->v_steps * PANEL,
                         .steps = steps_of(w, j1 - j0),
                         .add = true,
                         .kind = w->kind,
                         .call = w->call };
        product(&t, least(n * PANEL, r->count - p * PANEL), w->panels);
    }
    if (w->ends && ends_at(j1))
        end_chains(r->total, r->out, r->panels * PANEL * w->wide);
    return finite;
}

/* Runs end where blocks of the contract end. */
static int64_t run_end(const rows *r, int64_t j0)
{
    const int64_t base = r->from / BLOCK * BLOCK;
    return least(r->to, base + ((j0 - base) / r->run + 1) * r->run);
}

static bool weigh_values(const job *w, const rows *r, bool again)
{
    bool finite = true;
    memset(r->out, 0, (size_t)(r->panels * PANEL * w->wide) * sizeof(float));
    if (w->ends)
        memset(r->total, 0, (size_t)(r->panels * PANEL * w->wide) * sizeof(float));
    for (int64_t j0 = r->from, j1; j0 < r->to; j0 = j1) {
        j1 = run_end(r, j0);
        if (again) {
            score_keys(w, r, j0, j0, j1);
            each_panel(w, r, j0, j0, j1, true); /* adds to lanes that are not read again */
        }
        for (int64_t b0 = j0, b1; b0 < j1; b0 = b1) {
            b1 = least(j1, (b0 / BLOCK + 1) * BLOCK);
            finite &= add_block(w, r, j0, b0, b1);
        }
    }
    return finite;
}

static bool attend_rows(const job *w, const rows *r)
{
    const bool again = run_end(r, r->from) < r->to;
    for (int64_t j0 = r->from, j1; j0 < r->to; j0 = j1) {
        j1 = run_end(r, j0);
        for (int64_t b0 = j0, b1; b0 < j1; b0 = b1) {
            b1 = least(j1, (b0 / BLOCK + 1) * BLOCK);
            score_keys(w, r, j0, b0, b1);
            each_panel(w, r, j0, b0, b1, false);
        }
    }
    for (int64_t i = 0; i < r->panels * PANEL; i += PANEL)
        store(r->max + i, v_add(load(r->max + i), v_zero()));
    for (int64_t j0 = r->from, j1; j0 < r->to; j0 = j1) {
        j1 = run_end(r, j0);
        if (again)
            score_keys(w, r, j0, j0, j1);
        each_panel(w, r, j0, j0, j1, true);
    }
    end_sums(w, r);
    if (!weigh_values(w, r, again))
        return false;
    if (w->ends)
        end_chains(r->out, r->total, r->panels * PANEL * w->wide);
    for (int64_t i = 0; i < r->count; i++) {
        const int64_t row = r->begin + i;
        finish_row(w, (char *)o_row(w, w->call->o, row / w->s->group, row % w->s->group),
                   r->out + i * w->wide);
    }
    return true;
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
        finite = pack_keys(&w, r.v, r.v_steps * PANEL, v_row, r.v_from,
                           last_seen(&w, part->end - 1) + 1);
    for (int64_t begin = part->begin; finite && begin < part->end; begin += size) {
        begin_rows(&w, &r, begin, least(size, part->end - begin));
        fetch_next(&w, &r);
        finite = attend_rows(&w, &r);
    }
    return finite;
}
