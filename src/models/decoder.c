/* decoder.c - the decoder of all families: from embedded rows to logits. It reads like the formula:
 *
 *   h += N(o(attention(rope(N q(N h)), rope(N k(N h)), v(N h))))
 *   h += cross_o(attention(cross_q(N h), cross_k(image), cross_v(image)))
 *   h += N(down(silu(gate(N h)) * up(N h)))     (or gelu)
 *   or, where the layer has a mixture of experts e, with weights w of the row's own:
 *   h += sum_e w_e down_e(silu(gate_e(N h)) * up_e(N h))
 *
 * with the norms N, an RMSNorm each, and the rotary embedding that the layer has (sheaf__layer);
 * the second line in layers with cross-attention, q, k, v, o, gate, up and down of each row's
 * stream: text, or image where the layer has visual experts. Without image rows there is one
 * stream, and nothing is split or joined. A model may have a factor for all that is added in the
 * first and third line, and a divisor for what the head reads; behind its first layers a tower may
 * add to the rows of images. */
#include "models/build.h"
#include "tape/angles.h"
#include "tape/transfer.h"
#include "tape/windows.h"
#include "tape/mixture.h"
#include "tape/head_rows.h"
#include "tape/shards.h"

typedef struct pass {
    sheaf__model *m;
    sheaf__tape *tape;
    const sheaf__pass *of;
    int64_t rows[SHEAF__STREAMS];
    sheaf__value *image_memory; /* the keys' source of cross-attention, or NULL */
    sheaf__value *image;        /* of which layers are given columns, or NULL */
    int64_t behind;             /* how many layers */
    sheaf__turns turns;         /* of a model whose positions have three axes */
    /* Rows that the head reads; after the last attention only these are computed. NULL: all. */
    const sheaf__head_rows *wanted;
    sheaf__balance *balance; /* of a mixture whose router has a loss of its own; else NULL */
    const sheaf__row_shards *shards[SHEAF__STREAMS]; /* NULL: every rank has all rows */
} pass;

typedef struct streams {
    sheaf__value *x[SHEAF__STREAMS];
} streams;

static streams split(const pass *p, sheaf__value *x)
{
    streams s = { { NULL } };
    sheaf__record_split(p->tape, s.x, x, p->rows, p->of->images_in);
    return s;
}

static sheaf__value *join(const pass *p, streams s)
{
    return sheaf__record_join(p->tape, s.x, p->rows, p->of->images_in);
}

static streams rmsnorm(const pass *p, streams h, sheaf__norm *norm)
{
    streams y = { { NULL } };
    if (norm->name == NULL)
        return h;
    for (int i = 0; i < SHEAF__STREAMS; i++)
        if (h.x[i] != NULL)
            y.x[i] = sheaf__record_rmsnorm(p->tape, h.x[i], norm);
    return y;
}

static sheaf__expert *expert_of(sheaf__layer *l, int stream)
{
    return &l->expert[l->has_expert ? stream : SHEAF__TEXT];
}

/* h + layer(x), for the layer of each stream; with a norm h + norm(layer(x)). */
static streams residual(const pass *p, streams x, sheaf__linear *const layer[SHEAF__STREAMS],
                        sheaf__layernorm *norm, streams h)
{
    const bool normed = norm != NULL && norm->name != NULL, scaled = p->m->branch > 0;
    streams y = { { NULL } };
    for (int i = 0; i < SHEAF__STREAMS; i++) {
        if (h.x[i] == NULL)
            continue;
        y.x[i] = sheaf__record_rows(p->tape, x.x[i], layer[i], normed || scaled ? NULL : h.x[i],
                                    h.x[i]->shards, &p->of->info[i]);
        if (normed)
            y.x[i] = sheaf__record_layernorm(p->tape, y.x[i], norm, h.x[i]);
        else if (scaled)
            y.x[i] = sheaf__record_add_scaled(p->tape, h.x[i], y.x[i], p->m->branch);
    }
    return y;
}

/* Queries or keys with norm and rotary embedding. */
static sheaf__value *turned(const pass *p, sheaf__layer *l, sheaf__value *x, sheaf__norm *of_head,
                            sheaf__layernorm *of_all, const sheaf__linear *like)
{
    const int64_t width = p->m->schema->config.head_dim;
    if (of_head->name != NULL)
        x = sheaf__record_head_norm(p->tape, x, of_head, like);
    if (of_all->name != NULL)
        x = sheaf__record_layernorm(p->tape, x, of_all, NULL);
    if (l->rope != NULL && p->turns.cos != NULL)
        sheaf__record_turned(p->tape, x, p->turns, width);
    else if (l->rope != NULL)
        sheaf__record_rope(p->tape, x, l->rope, x->cols / width, width, p->of->queries, p->of->in);
    return x;
}

static bool is_last(const pass *p, int index)
{
    return index + 1 == p->m->schema->config.layers;
}

/* In the last layer, of x the rows that the head reads. */
static sheaf__value *read_rows_of(const pass *p, int index, sheaf__value *x)
{
    return p->wanted != NULL && is_last(p, index)
               ? sheaf__record_index_select(p->tape, p->wanted, x)
               : x;
}

static streams self_attention(const pass *p, int index, streams h)
{
    const sheaf_config *config = &p->m->schema->config;
    sheaf__layer *l = &p->m->layer[index];
    const int64_t kv_heads = l->expert[SHEAF__TEXT].k.owned / config->head_dim,
                  group = config->heads / config->kv_heads;
    const sheaf__heads heads = { .batch = p->of->batch,
                                 .queries = p->of->queries,
                                 .kv_heads = kv_heads,
                                 .group = group,
                                 .head_dim = config->head_dim,
                                 .window = l->window,
                                 .scalar = config->query_scalar,
                                 .cap = (float)config->attention_cap };
    const streams a = rmsnorm(p, h, &l->norm_in);
    streams qkv[3] = { { { NULL } } };
    for (int i = 0; i < SHEAF__STREAMS; i++) {
        sheaf__expert *e = expert_of(l, i);
        sheaf__value *y[3];
        if (a.x[i] == NULL)
            continue;
        sheaf__record_columns(p->tape, y, a.x[i], (sheaf__linear *const[]){ &e->q, &e->k, &e->v },
                              3, &p->of->info[i]);
        for (int j = 0; j < 3; j++)
            qkv[j].x[i] = y[j];
    }
    sheaf__value *q = join(p, qkv[0]), *k = join(p, qkv[1]), *v = join(p, qkv[2]);
    q = turned(p, l, q, &l->norm_q, &l->whole_q, &l->expert[SHEAF__TEXT].q);
    k = turned(p, l, k, &l->norm_k, &l->whole_k, &l->expert[SHEAF__TEXT].k);
    sheaf__value *o =
        sheaf__record_attention(p->tape, q, k, v, &heads, p->of->in,
                                p->of->kv_cache == NULL ? NULL : &p->of->kv_cache->self[index]);
    o = read_rows_of(p, index, o);
    h.x[SHEAF__TEXT] = read_rows_of(p, index, h.x[SHEAF__TEXT]);
    return residual(
        p, split(p, o),
        (sheaf__linear *const[]){ &expert_of(l, SHEAF__TEXT)->o, &expert_of(l, SHEAF__IMAGE)->o },
        &l->norm_after[0], h);
}

/* All rows take part with the same weights. */
static streams cross_attention(const pass *p, int index, streams h)
{
    sheaf__layer *l = &p->m->layer[index];
    const sheaf_config *config = &p->m->schema->config;
    const int64_t width = config->cross_head_dim;
    const sheaf__heads heads = { .batch = p->of->batch,
                                 .queries = p->of->queries,
                                 .kv_heads = l->cross_k.owned / width,
                                 .group = 1,
                                 .head_dim = width };
    sheaf__tower tower;
    const int beside = sheaf__tower_beside(&tower, config);
    const streams a = rmsnorm(p, h, &l->norm_cross);
    streams q = { { NULL } };
    for (int i = 0; i < SHEAF__STREAMS; i++)
        if (a.x[i] != NULL)
            sheaf__record_columns(p->tape, &q.x[i], a.x[i], (sheaf__linear *const[]){ &l->cross_q },
                                  1, &p->of->info[i]);
    sheaf__value *kv[2] = { NULL };
    if (p->image_memory != NULL)
        sheaf__record_columns(p->tape, kv, p->image_memory,
                              (sheaf__linear *const[]){ &l->cross_k, &l->cross_v }, 2,
                              &p->of->info[sheaf__rows_after(beside)]);
    sheaf__value *o = sheaf__record_full_attention(
        p->tape, join(p, q), kv[0], kv[1], &heads, tower.gives, p->of->in,
        p->of->kv_cache == NULL ? NULL : &p->of->kv_cache->cross[index]);
    return residual(p, split(p, o), (sheaf__linear *const[]){ &l->cross_o, &l->cross_o }, NULL, h);
}

static bool expert_trains(const sheaf__mixture *mix, int64_t i)
{
    return sheaf__linear_trains(&mix->expert[i].gate) || sheaf__linear_trains(&mix->expert[i].up) ||
           sheaf__linear_trains(&mix->expert[i].down);
}

static bool mixture_flows(const sheaf__mixture *mix, const sheaf__value *weights)
{
    bool flows = weights->needs_grad;
    for (int64_t i = 0; i < mix->num_experts; i++)
        flows = flows || expert_trains(mix, i);
    return flows;
}

static bool drops(const sheaf__linear *l)
{
    return l->lora != NULL && l->lora->dropout > 0;
}

static bool expert_drops(const sheaf__mixture *mix, int64_t i)
{
    return drops(&mix->expert[i].gate) || drops(&mix->expert[i].up) || drops(&mix->expert[i].down);
}

/* Gradients of weights are sums over all rows in blocks, in which the rows of others are zero. That
 * equals the sum over an expert's own rows, block by block, but not by tiles or tensor cores, where
 * a row's place among 32 or 16 matters. Dropout masks cover all rows. */
static bool sees_all(const pass *p, const sheaf__mixture *mix, int64_t i)
{
    const sheaf__context *c = sheaf__tape_context(p->tape);
    return expert_trains(mix, i) &&
           (expert_drops(mix, i) || sheaf__by_mma(c->device->sums, c->dtype) ||
            (c->dtype == SHEAF_BF16 && sheaf__sums_of_values(c->device->sums) == SHEAF_SUMS_TILES));
}

static bool same_training(const sheaf__linear *a, const sheaf__linear *b)
{
    return (a->lora != NULL) == (b->lora != NULL) &&
           sheaf__linear_trains(a) == sheaf__linear_trains(b);
}

/* If some experts keep more of a row than others, a plan counts all rows for each. */
static bool equal_experts(const sheaf__mixture *mix)
{
    bool all = mix->num_experts > 1;
    for (int64_t i = 1; i < mix->num_experts && all; i++)
        all = same_training(&mix->expert[i].gate, &mix->expert[0].gate) &&
              same_training(&mix->expert[i].up, &mix->expert[0].up) &&
              same_training(&mix->expert[i].down, &mix->expert[0].down);
    return all;
}

/* One expert after the other in ascending order; each computes the rows routed to it, or all. */
static sheaf__value *mixture(const pass *p, sheaf__mixture *mix, sheaf__value *x, sheaf__value *h)
{
    const sheaf__step_info *info = &p->of->info[SHEAF__TEXT];
    sheaf__value *logits;
    sheaf__record_columns(p->tape, &logits, x, (sheaf__linear *const[]){ &mix->router }, 1, info);
    sheaf__value *weights =
        sheaf__record_router(p->tape, logits, mix->top_k, mix->of_all, p->balance, mix->number);
    sheaf__value *sum =
        sheaf__record_mixture(p->tape, x->rows, x->cols, mixture_flows(mix, weights));
    const bool even = equal_experts(mix);
    for (int64_t i = 0; i < mix->num_experts; i++) {
        sheaf__value *gate_up[2], *which = NULL;
        const int64_t unknown =
            even ? sheaf__expert_rows(x->rows, mix->top_k, mix->num_experts, i) : x->rows;
        sheaf__value *in = sees_all(p, mix, i)
                               ? x
                               : sheaf__record_expert_rows(p->tape, &which, x, weights, i, unknown,
                                                           expert_trains(mix, i));
        sheaf__record_columns(p->tape, gate_up, in,
                              (sheaf__linear *const[]){ &mix->expert[i].gate, &mix->expert[i].up },
                              2, info);
        sheaf__value *y = sheaf__record_swiglu(p->tape, gate_up[0], gate_up[1], false);
        y = sheaf__record_rows(p->tape, y, &mix->expert[i].down, NULL, NULL, info);
        sheaf__record_add_expert(p->tape, sum, y, which, weights, i);
    }
    sum = sheaf__record_shard(p->tape, sum, h->shards);
    sheaf__record_mixture_end(p->tape, sum, h);
    return sum;
}

static streams mlp(const pass *p, int index, streams h)
{
    sheaf__layer *l = &p->m->layer[index];
    sheaf__value *image = h.x[SHEAF__IMAGE];
    const bool unread = p->of->image_rows_unread && is_last(p, index) && h.x[SHEAF__TEXT] != NULL;
    if (unread) /* nothing reads image rows after this: they pass unchanged */
        h.x[SHEAF__IMAGE] = NULL;
    const streams n = rmsnorm(p, h, &l->norm_post);
    streams y = { { NULL } };
    if (l->mixture != NULL) { /* experts read rows of all ranks */
        y.x[SHEAF__TEXT] = mixture(p, l->mixture, sheaf__record_whole(p->tape, n.x[SHEAF__TEXT]),
                                   h.x[SHEAF__TEXT]);
        return y;
    }
    for (int i = 0; i < SHEAF__STREAMS; i++) {
        sheaf__expert *e = expert_of(l, i);
        sheaf__value *gate_up[2];
        if (n.x[i] == NULL)
            continue;
        sheaf__record_columns(p->tape, gate_up, n.x[i],
                              (sheaf__linear *const[]){ &e->gate, &e->up }, 2, &p->of->info[i]);
        y.x[i] = sheaf__record_swiglu(p->tape, gate_up[0], gate_up[1], l->gelu);
    }
    y = residual(p, y,
                 (sheaf__linear *const[]){ &expert_of(l, SHEAF__TEXT)->down,
                                           &expert_of(l, SHEAF__IMAGE)->down },
                 &l->norm_after[1], h);
    if (unread)
        y.x[SHEAF__IMAGE] = image;
    return y;
}

static streams staged(const pass *p, const char *stage, int layer, streams h)
{
    for (int i = 0; i < SHEAF__STREAMS; i++)
        sheaf__stage(p->of, p->tape, stage, layer, i, h.x[i]);
    return h;
}

/* The tower's output, added to the rows of images behind a layer. */
static streams from_tower(const pass *p, int64_t index, streams h)
{
    const int64_t width = p->m->schema->config.hidden;
    if (p->image != NULL && index < p->behind)
        sheaf__record_add_images(p->tape, h.x[SHEAF__TEXT],
                                 sheaf__record_part(p->tape, p->image, (index + 1) * width, width),
                                 p->of->images_in);
    return h;
}

/* The layers of this stage: from rows of the sequences to rows of the sequences, of one stream as
 * they are divided. */
static sheaf__value *record_layers(const pass *p, sheaf__value *x)
{
    streams h = split(p, x);
    for (int64_t i = p->m->first_layer; i < p->m->end_layer; i++) {
        for (int s = 0; s < SHEAF__STREAMS && i == p->behind; s++)
            if (h.x[s] != NULL)
                h.x[s] = sheaf__record_shard(p->tape, h.x[s], p->shards[s]);
        sheaf__tape_segment_begin(p->tape, (int)i);
        h = staged(p, "attention", (int)i, self_attention(p, (int)i, h));
        if (p->m->layer[i].has_cross)
            h = staged(p, "cross_attention", (int)i, cross_attention(p, (int)i, h));
        sheaf__tape_mlp(p->tape);
        h = staged(p, "mlp", (int)i, from_tower(p, i, mlp(p, (int)i, h)));
        sheaf__tape_segment_end(p->tape);
    }
    for (int i = 0; i < SHEAF__STREAMS && p->rows[0] > 0 && p->rows[1] > 0; i++)
        h.x[i] = sheaf__record_whole(p->tape, h.x[i]);
    return join(p, h);
}

/* Each stage's rows go to all: to the next, which goes on with them, and after the last to the
 * head, where that is on another (a tied table is, with the embedding). */
static sheaf__value *record_stages(const pass *p, sheaf__value *x, int64_t rows)
{
    const sheaf__context *c = p->m->context;
    for (int s = 0; s < c->stages; s++) {
        x = s == c->stage ? record_layers(p, x) : NULL;
        if (s + 1 < c->stages || c->head_stage != s)
            x = sheaf__record_transfer(p->tape, x, s, "rows of a stage", rows,
                                       p->m->schema->config.hidden);
    }
    return x;
}

/* Can the last layer be computed for some rows only? Sums over rows must know their blocks, as
 * gradients of weights do and those of biases, norms and magnitudes do not, and nothing may count
 * rows, as dropout does. */
static bool takes_some(const pass *p)
{
    const sheaf__model *m = p->m;
    const sheaf__layer *l = &m->layer[m->schema->config.layers - 1];
    const sheaf__expert *e = &l->expert[SHEAF__TEXT];
    const sheaf__linear *const part[] = { &e->o, &e->gate, &e->up, &e->down };
    if (l->mixture != NULL || l->has_cross || l->norm_post.trained != NULL ||
        m->norm.trained != NULL)
        return false;
    for (int i = 0; i < 2; i++)
        if (l->norm_after[i].weight_trained != NULL || l->norm_after[i].bias_trained != NULL)
            return false;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        if (part[i]->bias_trained != NULL || drops(part[i]) || sheaf__linear_trains_dora(part[i]))
            return false;
    return true;
}

/* May the head skip rows, as far as is known before the labels? */
static bool reads_some(const pass *p)
{
    const sheaf__head_run *run = p->of->head;
    return p->m->context->stages <= 1 && p->of->queries > 1 && p->of->image_rows == 0 &&
           p->behind < p->m->schema->config.layers && p->of->stages == NULL &&
           (run->pick != NULL || !run->all_rows) && takes_some(p);
}

static sheaf__balance *balance_of(const pass *p)
{
    const sheaf_config *config = &p->m->schema->config;
    int64_t layers = 0;
    for (int64_t i = 0; i < config->layers; i++)
        layers += p->m->layer[i].mixture != NULL;
    return sheaf__balance_new(p->tape, layers, config->num_experts, p->of->queries,
                              config->router_loss, p->of->in, p->of->head);
}

/* Layers that are given columns of a tower. */
static int64_t layers_behind(const sheaf_config *config)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    int64_t most = 0;
    for (int i = 0; i < towers; i++)
        most = tower[i].behind > most ? tower[i].behind : most;
    return most;
}

/* Would values be kept that only rounding in 8 bits tells from those that one rank keeps: rows that
 * the experts of a mixture read, which one rank makes again? */
static bool rounds_otherwise(const pass *p)
{
    const sheaf__model *m = p->m;
    bool otherwise = false;
    for (int64_t i = m->first_layer; i < m->end_layer; i++)
        otherwise |= m->layer[i].mixture != NULL;
    return p->of->kept == SHEAF__KEPT_INT8 && otherwise;
}

/* Is a gradient a sum over the rows of the residual stream? Those of other tensors read all rows of
 * what a layer cut along its input gave, or of columns. */
static bool sums_rows(const sheaf__module *module)
{
    const sheaf__layernorm *norm = module->part;
    switch (module->kind) {
    case SHEAF__RMSNORM: return ((const sheaf__norm *)module->part)->trained != NULL;
    case SHEAF__LAYERNORM: return norm->weight_trained != NULL || norm->bias_trained != NULL;
    case SHEAF__LINEAR: return sheaf__linear_trains_dora(module->part);
    default: return false;
    }
}

/* Rows between the layers' products are divided over the ranks, behind the layers in which a tower
 * adds to some; but not where few are new, nor where the caller looks at them. Sums over rows take
 * whole blocks of 256. */
static void shard_rows(pass *p)
{
    const sheaf__model *m = p->m;
    bool blocks = false;
    for (int i = 0; i < m->nmodules; i++)
        blocks |= sums_rows(&m->module[i]);
    if (m->context->ranks == 1 || m->context->stages > 1 || p->of->kv_cache != NULL ||
        p->of->stages != NULL || rounds_otherwise(p))
        return;
    for (int i = 0; i < SHEAF__STREAMS; i++)
        if (p->rows[i] > 0)
            p->shards[i] = sheaf__row_shards_new(p->tape, p->rows[i], blocks);
}

void sheaf__decoder_record(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                           sheaf__value *image_memory, const sheaf__pass *of)
{
    const int64_t rows = of->batch * of->queries;
    pass p = { .m = m,
               .tape = tape,
               .of = of,
               .rows = { rows - of->image_rows, of->image_rows },
               .image_memory = image_memory,
               .image = image,
               .behind = layers_behind(&m->schema->config) };
    sheaf__head_rows wanted;
    if (m->angles.pairs > 0)
        p.turns = sheaf__record_token_turns(tape, &m->angles, of->in, rows);
    shard_rows(&p);
    if (reads_some(&p)) {
        wanted = sheaf__record_head_rows(tape, rows, p.shards[SHEAF__TEXT], of->head);
        p.wanted = &wanted;
    }
    if (m->schema->config.router_loss > 0 && of->kv_cache == NULL)
        p.balance = balance_of(&p);
    x = m->context->stages > 1 ? record_stages(&p, x, rows) : record_layers(&p, x);
    if (!m->ends) {
        sheaf__record_remote_head(tape, rows, m->schema->config.vocab, of->head);
        return;
    }
    x = sheaf__record_rmsnorm(tape, x, &m->norm);
    sheaf__stage(of, tape, "final_norm", -1, SHEAF__TEXT, x);
    if (m->divide > 0)
        x = sheaf__record_divide(tape, x, m->divide);
    sheaf__record_head(tape, x, &m->head, of->head, p.wanted == NULL ? NULL : p.wanted->place);
    if (p.balance != NULL)
        sheaf__record_balance_loss(tape, p.balance);
}
