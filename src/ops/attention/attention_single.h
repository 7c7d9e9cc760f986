/* attention_single.h - part of attention_kernel.h: the output of a sequence's only query, as
 * decoding has it, for the heads of one key head.
 *
 * With one query the lanes of attention_forward.h would mostly be empty. Here they are keys: keys
 * are transposed, 16 to a panel, scores lie [head][key], so that lanes of softmax are lanes of a
 * vector, and values are read where they lie, 16 channels at a time. A part of the keys goes from
 * scores to values before the next. No term is there that the query does not see, so what is not
 * finite needs no slow path. */

#define KEY_PANELS 4    /* transposed at a time */
#define AHEAD 16        /* keys whose values are prefetched */
#define KEYS_AHEAD 4096 /* bytes: what the processor asks for by itself ends with a page */

typedef struct single {
    int64_t head, heads; /* of the group */
    int64_t from, to;    /* keys that order and window let through */
    int64_t first, end;  /* keys of this part's scores; the first is a multiple of 16 */
    limits seen;
    const uint8_t *mask; /* of this sequence, or NULL */
    uint32_t *keys;      /* [panel][depth][16] */
    float *score;        /* [head][PART], in the end round(e) */
    float *factor;       /* [head][PART / KEYS], what the sums so far meet before a block */
    float *max, *sum, *all_max, *all_sum; /* [head], of this part, and of those so far */
    float *out, *all;                     /* [head][wide], the same */
    uint16_t *weight;                     /* [head][KEYS], round(e) of a block, and */
    uint32_t *value; /* [panel of head_dim][KEYS / 2][16], its values, of mma8 and mma16 */
} single;

enum { MOST_HEADS = 64 }; /* of a part at a time: what scratch has room for */

static void plan_single(job *w, single *one)
{
    const int64_t i = 0, heads = w->part.end - w->part.begin;
    one->from = sheaf__attention_first(w->s, i);
    one->to = sheaf__attention_last(w->s, i) + 1;
    one->heads = least(heads, MOST_HEADS);
    one->seen =
        (limits){ vi_set((uint32_t)-one->from), vi_set((uint32_t)(one->to - 1 - one->from)) };
    one->mask = w->s->key_mask == NULL ? NULL : w->s->key_mask + w->part.batch * w->s->mask_ld;
    take_strip(w);
    one->keys = take(w, KEY_PANELS * w->depth * PANEL);
    one->score = take(w, one->heads * PART);
    one->factor = take(w, one->heads * (PART / KEYS));
    one->max = take(w, one->heads);
    one->sum = take(w, one->heads);
    one->all_max = take(w, one->heads);
    one->all_sum = take(w, one->heads);
    one->out = take(w, one->heads * w->wide);
    one->all = take(w, one->heads * w->wide);
    if (w->mma) {
        one->weight = take(w, one->heads * KEYS / 2);
        one->value = take(w, KEYS / 2 * w->wide);
    }
}

/* ---- scores ---- */

/* Keys [j0, j1), at most KEY_PANELS panels of them; lanes past the last are zero. A cache has a
 * head's keys one behind the other, so bytes ahead are keys ahead; elsewhere they are fewer. */
static void turn_keys(const job *w, const single *one, int64_t j0, int64_t j1)
{
    const int64_t stride = w->s->ldk * w->size;
    uint32_t *to = one->keys;
    for (int64_t j = j0; j < j1; j += PANEL, to += w->depth * PANEL) {
        fetch_rows(w, k_row(w, j) + KEYS_AHEAD, stride, PANEL);
        if (j1 - j < PANEL)
            memset(to, 0, (size_t)(w->depth * PANEL) * 4);
        turn_rows(w, to, k_row(w, j), stride, least(PANEL, j1 - j));
    }
}

static void score_heads(const job *w, const single *one)
{
    const int64_t many = KEY_PANELS * PANEL;
    for (int64_t j = one->first; j < one->end; j += many) {
        const int64_t end = least(j + many, one->end);
        turn_keys(w, one, j, end);
        const tile t = { .c = one->score + j - one->first,
                         .c_row = PART,
                         .c_panel = PANEL,
                         .a = q_row(w, w->call->q, 0, one->head),
                         .a_row = w->s->head_dim * w->size,
                         .a_step = 4,
                         .b = one->keys,
                         .b_panel = w->depth * PANEL,
                         .steps = w->depth,
                         .scale = w->s->scale,
                         .kind = w->kind,
                         .call = w->call };
        product_of_rows(w, &t, one->heads, up_to(end - j, PANEL) / PANEL);
    }
    for (int64_t h = 0; w->s->cap > 0 && h < one->heads; h++)
        cap_scores(one->score + h * PART, w->s->cap, up_to(one->end - one->first, PANEL));
}

/* ---- softmax ---- */

/* Of keys j .. j + 15. */
static vecm sees_keys(const single *one, int64_t j)
{
    uint32_t key[PANEL];
    if (one->mask == NULL)
        return sees(one->seen, vi_add(vi_counting(), vi_set((uint32_t)j)));
    for (int64_t i = 0; i < PANEL; i++)
        key[i] = j + i < one->to && one->mask[j + i] != 0 ? (uint32_t)(j + i) : NO_KEY;
    return sees(one->seen, vi_load(key));
}

static float across(vec all)
{
    float lane[PANEL], max = SHEAF__ATTENTION_LEAST;
    store(lane, all);
    for (int i = 0; i < PANEL; i++)
        max = lane[i] > max ? lane[i] : max;
    return max + 0.0f;
}

static float one_factor(float before, float now)
{
    float by[PANEL];
    store(by, factor_of(v_set(before), v_set(now)));
    return by[0];
}

/* Scores of a head to round(e); `whole`: the query sees each of them. */
SHEAF__INLINE void take_exponentials(const job *w, const single *one, int64_t h, const bool whole)
{
    float *factor = one->factor + h * (PART / KEYS), max = SHEAF__ATTENTION_LEAST, lane[PANEL];
    vec sum = v_zero();
    for (int64_t j0 = one->first, j1; j0 < one->end; j0 = j1, factor++) {
        float *s = one->score + h * PART + j0 - one->first;
        vec largest = v_set(SHEAF__ATTENTION_LEAST);
        j1 = least(one->end, (j0 / KEYS + 1) * KEYS);
        for (int64_t j = j0; j < j1; j += PANEL) {
            const vec found = larger(load(s + j - j0), largest);
            largest = whole ? found : v_select(sees_keys(one, j), found, largest);
        }
        *factor = 1;
        if (any_less(v_set(max + SHEAF__ATTENTION_MARGIN), largest)) {
            const float before = max;
            max = across(largest);
            *factor = one_factor(before, max);
            sum = v_mul(sum, v_set(*factor));
        }
        for (int64_t j = j0; j < j1; j += PANEL) {
            vec e = exp_of(v_sub(load(s + j - j0), v_set(max)));
            if (!whole)
                e = v_select(sees_keys(one, j), e, v_zero());
            sum = v_add(sum, e);
            store(s + j - j0, v_rounded(e, w->s->dtype));
        }
    }
    store(lane, sum);
    one->max[h] = max;
    one->sum[h] = sheaf__lanes_join(lane);
}

/* ---- values ---- */

/* Sums of some heads over keys of a block, for some panels of channels. */
typedef struct sums {
    const job *w;
    const single *one;
    const float *p;  /* of the first head and key `first` */
    const char *v;   /* of key `first` and the first channel */
    int64_t stride;  /* bytes between keys */
    int64_t columns; /* of the last panel */
    float *out;
} sums;

/* Adds what key j gives, if the query sees it. */
SHEAF__INLINE void add_key(const sums *s, vec c[SINGLE_HEADS][SINGLE_WIDE], int64_t j,
                           const int heads, const int panels, const sheaf_dtype dtype)
{
    const single *one = s->one;
    const int64_t at = j - one->first;
    if (j < one->from || j >= one->to || (one->mask != NULL && one->mask[j] == 0))
        return;
    vec v[SINGLE_WIDE];
    UNROLL for (int p = 0; p < panels; p++) v[p] =
        v_read(s->v + at * s->stride, p * PANEL, panels == 1 ? s->columns : PANEL, dtype);
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int p = 0; p < panels; p++) c[h][p] =
        v_fma(v_set(s->p[h * PART + at]), v[p], c[h][p]);
}

/* Asks for values that come soon. */
SHEAF__INLINE void ask_values(const sums *s, int64_t j, const int keys, const int panels,
                              const sheaf_dtype dtype)
{
    const int bytes = panels * PANEL * (dtype == SHEAF_F32 ? 4 : 2);
    const char *row = s->v + (j + AHEAD - s->one->first) * s->stride;
    if (j + AHEAD + keys > s->one->to)
        return;
    for (const char *end = row + keys * s->stride; row < end; row += s->stride)
        for (int at = 0; at < bytes; at += 64)
            __builtin_prefetch(row + at);
}

SHEAF__INLINE void clear(vec c[SINGLE_HEADS][SINGLE_WIDE], const int heads, const int panels)
{
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int p = 0; p < panels; p++) c[h][p] =
        v_zero();
}

/* c = the sum over keys [j0, j1) of a block, in the order of `dtype`: the odd key of a pair before
 * the even one. */
SHEAF__INLINE void chain_keys(const sums *s, vec c[SINGLE_HEADS][SINGLE_WIDE], int64_t j0,
                              int64_t j1, const int heads, const int panels,
                              const sheaf_dtype dtype)
{
    const int step = dtype == SHEAF_BF16 ? 2 : 1;
    clear(c, heads, panels);
    for (int64_t j = j0 / step * step; j < j1; j += step) {
        ask_values(s, j, step, panels, dtype);
        if (step == 2 && j + 1 < j1)
            add_key(s, c, j + 1, heads, panels, dtype);
        add_key(s, c, j, heads, panels, dtype);
    }
}

/* The same in the order `tiles`: two chains for each chunk, which c goes on with. */
SHEAF__INLINE void chunk_keys(const sums *s, vec c[SINGLE_HEADS][SINGLE_WIDE], int64_t j0,
                              int64_t j1, const int heads, const int panels)
{
    const int64_t chunk = SHEAF__ATTENTION_CHUNK;
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int p = 0; p < panels; p++) c[h][p] =
        load(s->out + h * s->w->wide + p * PANEL);
    for (int64_t c0 = j0 / chunk * chunk; c0 < j1; c0 += chunk) {
        vec odd[SINGLE_HEADS][SINGLE_WIDE], even[SINGLE_HEADS][SINGLE_WIDE];
        const int64_t end = least(c0 + chunk, j1);
        clear(odd, heads, panels);
        clear(even, heads, panels);
        for (int64_t j = c0; j < end; j += 2) {
            ask_values(s, j, 2, panels, SHEAF_BF16);
            add_key(s, even, j, heads, panels, SHEAF_BF16);
            if (j + 1 < end)
                add_key(s, odd, j + 1, heads, panels, SHEAF_BF16);
        }
        UNROLL for (int h = 0; h < heads; h++) UNROLL for (int p = 0; p < panels; p++) c[h][p] =
            v_add(c[h][p], v_add(even[h][p], odd[h][p]));
    }
}

typedef enum order { ORDER_F32, ORDER_F16, ORDER_PAIRS, ORDER_TILES } order;

SHEAF__INLINE void add_values(const sums *s, int64_t j0, int64_t j1, const int heads,
                              const int panels, const order order)
{
    vec c[SINGLE_HEADS][SINGLE_WIDE];
    if (order == ORDER_TILES)
        chunk_keys(s, c, j0, j1, heads, panels);
    else
        chain_keys(s, c, j0, j1, heads, panels,
                   order == ORDER_F32   ? SHEAF_F32
                   : order == ORDER_F16 ? SHEAF_F16
                                        : SHEAF_BF16);
    UNROLL for (int h = 0; h < heads; h++) UNROLL for (int p = 0; p < panels; p++)
    {
        float *to = s->out + h * s->w->wide + p * PANEL;
        store(to, order == ORDER_TILES ? c[h][p] : v_add(load(to), c[h][p]));
    }
}

#define VALUES_CASE(heads, panels, order)                                                          \
    case (order)*256 + (panels)*16 + (heads): add_values(s, j0, j1, heads, panels, order); break;

static void run_values(const sums *s, int64_t j0, int64_t j1, int heads, int panels, order order)
{
    switch (order * 256 + panels * 16 + heads) {
        EACH_SINGLE(VALUES_CASE, ORDER_F32)
        EACH_SINGLE(VALUES_CASE, ORDER_F16)
        EACH_SINGLE(VALUES_CASE, ORDER_PAIRS)
        EACH_SINGLE(VALUES_CASE, ORDER_TILES)
        EACH_SINGLE_WIDE(VALUES_CASE, ORDER_F32)
        EACH_SINGLE_WIDE(VALUES_CASE, ORDER_F16)
        EACH_SINGLE_WIDE(VALUES_CASE, ORDER_PAIRS)
    }
}

static order order_of(const job *w)
{
    if (w->s->dtype != SHEAF_BF16)
        return w->s->dtype == SHEAF_F32 ? ORDER_F32 : ORDER_F16;
    return w->call->sums == SHEAF_SUMS_TILES ? ORDER_TILES : ORDER_PAIRS;
}

/* Panels of channels that are summed at once, of `d` that are left. */
static int panels_at_once(int64_t d, bool wide)
{
    return wide && d >= SINGLE_WIDE * PANEL ? SINGLE_WIDE
           : d >= SINGLE_PANELS * PANEL     ? SINGLE_PANELS
                                            : 1;
}

/* out = p v over keys [j0, j1) of one block more; panels of channels outside, so that sums stay in
 * registers. All channels of fewer heads read memory from one end to the other. */
static void add_single_block(const job *w, const single *one, int64_t j0, int64_t j1)
{
    const order order = order_of(w);
    const int64_t d = w->s->head_dim;
    const bool wide =
        SINGLE_WIDE > SINGLE_PANELS && d >= SINGLE_WIDE * PANEL && order != ORDER_TILES;
    const int64_t most_heads = order == ORDER_TILES || wide ? SINGLE_HEADS / 2 : SINGLE_HEADS;
    for (int64_t h = 0; h < one->heads; h += most_heads)
        for (int64_t c = 0; c < d;) {
            const int panels = panels_at_once(d - c, wide);
            const sums s = { .w = w,
                             .one = one,
                             .p = one->score + h * PART,
                             .v = v_row(w, one->first) + c * w->size,
                             .stride = w->s->ldv * w->size,
                             .columns = least(d - c, PANEL),
                             .out = one->out + h * w->wide + c };
            run_values(&s, j0, j1, (int)least(most_heads, one->heads - h), panels, order);
            c += panels * PANEL;
        }
}

/* The same of mma8 and mma16: chains go on. What the query does not see is a zero. */
static void add_single_groups(const job *w, const single *one, int64_t j0, int64_t j1)
{
    const int64_t from = j0 / PANEL * PANEL, steps = up_to(j1 - from, 2) / 2;
    for (int64_t s = 0; s < steps; s++) {
        const char *row[2];
        for (int64_t h = 0, j = from + 2 * s; h < 2; h++, j++)
            row[h] = j < j0 || j >= j1 || is_hidden(w, j) ? NULL : v_row(w, j);
        pack_step(w, one->value + s * PANEL, KEYS / 2 * PANEL, row[0], row[1]);
    }
    for (int64_t h = 0; h < one->heads; h++)
        for (int64_t j = from; j < j1; j += PANEL)
            v_write(one->weight + h * KEYS, j - from, load(one->score + h * PART + j - one->first),
                    PANEL, w->s->dtype);
    const tile t = { .c = one->out,
                     .c_row = w->wide,
                     .c_panel = PANEL,
                     .a = (const char *)one->weight,
                     .a_row = KEYS * 2,
                     .a_step = 4,
                     .b = one->value,
                     .b_panel = KEYS / 2 * PANEL,
                     .steps = steps,
                     .add = true,
                     .kind = w->kind,
                     .call = w->call };
    product(&t, one->heads, w->panels);
}

/* out times what each head's sums meet before a block. */
static void multiply_heads(const job *w, const single *one, int64_t block)
{
    for (int64_t h = 0; h < one->heads; h++) {
        const float by = one->factor[h * (PART / KEYS) + block];
        float *o = one->out + h * w->wide;
        for (int64_t c = 0; by != 1 && c < w->wide; c += PANEL)
            store(o + c, v_mul(load(o + c), v_set(by)));
    }
}

static void end_single_part(const job *w, const single *one)
{
    for (int64_t h = 0; h < one->heads; h++) {
        const float old = one->all_max[h], max = one->max[h] > old ? one->max[h] : old;
        const vec by = factor_of(v_set(one->max[h]), v_set(max)),
                  before = factor_of(v_set(old), v_set(max));
        float *all = one->all + h * w->wide, sum[PANEL];
        for (int64_t c = 0; c < w->wide; c += PANEL)
            store(all + c,
                  v_fma(load(one->out + h * w->wide + c), by, v_mul(load(all + c), before)));
        store(sum, v_fma(v_set(one->sum[h]), by, v_mul(v_set(one->all_sum[h]), before)));
        one->all_sum[h] = sum[0];
        one->all_max[h] = max;
    }
}

/* Keys [c0, one->end) of a part, heads one->head and on of the group. */
static void attend_single_part(const job *w, const single *one, int64_t c0)
{
    const bool whole = one->mask == NULL && c0 == one->first && one->end % PANEL == 0;
    score_heads(w, one);
    fetch_rows(w, v_row(w, c0), w->s->ldv * w->size, least(KEYS, one->end - c0));
    for (int64_t h = 0; h < one->heads; h++)
        if (whole)
            take_exponentials(w, one, h, true);
        else
            take_exponentials(w, one, h, false);
    memset(one->out, 0, (size_t)(one->heads * w->wide) * sizeof(float));
    for (int64_t j0 = c0, j1, block = 0; j0 < one->end; j0 = j1, block++) {
        j1 = least(one->end, (j0 / KEYS + 1) * KEYS);
        multiply_heads(w, one, block);
        if (w->mma)
            add_single_groups(w, one, j0, j1);
        else
            add_single_block(w, one, j0, j1);
    }
    end_single_part(w, one);
}

static void attend_single(const job *w, single *one)
{
    memset(one->all, 0, (size_t)(one->heads * w->wide) * sizeof(float));
    for (int64_t h = 0; h < one->heads; h++) {
        one->all_max[h] = SHEAF__ATTENTION_LEAST;
        one->all_sum[h] = 0;
    }
    for (int64_t c0 = one->from; c0 < one->to; c0 = one->end) {
        one->first = c0 / PANEL * PANEL;
        one->end = least(one->to, (c0 / PART + 1) * PART);
        attend_single_part(w, one, c0);
    }
    for (int64_t h = 0; h < one->heads; h++)
        end_row(w, one->all_max[h], one->all_sum[h], 0, one->head + h, one->all + h * w->wide);
}

/* False if it did nothing: more queries than one. */
static bool attend_alone(const sheaf__attention_call *call, const sheaf__attention_part *part,
                         void *scratch, size_t bytes)
{
    job w = job_of(call, part, false, scratch, bytes);
    single one;
    if (call->shape->queries != 1)
        return false;
    plan_single(&w, &one);
    if (w.kind == UNIT) /* for one row there is no gain in it */
        w.kind = TILES;
    for (one.head = part->begin; one.head < part->end; one.head += one.heads) {
        one.heads = least(one.heads, part->end - one.head);
        attend_single(&w, &one);
    }
    return true;
}
