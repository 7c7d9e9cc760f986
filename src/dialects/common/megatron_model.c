/* megatron_model.c - Megatron's names, and where the rows of its tensors go; see megatron_model.h.
 */
#include "dialects/common/megatron_model.h"

#include <ctype.h>

#include "base/base.h"
#include "catalog/boxes.h"

/* ---- names ---- */

/* Old names of the modules of a layer. */
static const char *const renamed[][2] = {
    { "self_attention.query_key_value.", "self_attention.linear_qkv." },
    { "attention.query_key_value.", "self_attention.linear_qkv." },
    { "self_attention.dense.", "self_attention.linear_proj." },
    { "attention.dense.", "self_attention.linear_proj." },
    { "mlp.dense_h_to_4h.", "mlp.linear_fc1." },
    { "mlp.dense_4h_to_h.", "mlp.linear_fc2." },
    { "input_norm.", "input_layernorm." },
    { "post_attention_layernorm.", "pre_mlp_layernorm." },
    { "post_attention_norm.", "pre_mlp_layernorm." },
    /* Transformer Engine fuses a norm with the linear layer behind it. */
    { "self_attention.linear_qkv.layer_norm_", "input_layernorm." },
    { "mlp.linear_fc1.layer_norm_", "pre_mlp_layernorm." },
    /* torch_dist with singleton_local_shards: the halves have names of their own */
    { "mlp.linear_fc1.weight_w", "mlp.linear_gate.weight" },
    { "mlp.linear_fc1.weight_v", "mlp.linear_up.weight" },
};
static const char *const layer_prefixes[] = {
    "decoder.layers.",
    "language_model.encoder.layers.",
    "language_model.transformer.layers.",
    "language_model.decoder.layers.",
};

static const char *bare(const char *name)
{
    return strncmp(name, "module.", 7) == 0 ? name + 7 : name;
}

/* The name behind the prefix of layers; NULL: not in a layer. */
static const char *in_layers(const char *name)
{
    name = bare(name);
    for (size_t i = 0; i < sizeof layer_prefixes / sizeof *layer_prefixes; i++)
        if (strncmp(name, layer_prefixes[i], strlen(layer_prefixes[i])) == 0)
            return name + strlen(layer_prefixes[i]);
    return NULL;
}

int64_t sheaf__megatron_layer(const char *name, bool *stacked)
{
    const char *rest = in_layers(name);
    *stacked = false;
    if (rest == NULL)
        return -1;
    const size_t digits = strspn(rest, "0123456789");
    *stacked = digits == 0;
    return digits == 0 || digits > 9 || rest[digits] != '.' ? -1 : strtoll(rest, NULL, 10);
}

/* ---- targets ---- */

/* A module of Megatron's, which may hold several of the schema's tensors. The schema has their
 * cuts; their order within a rank's part is Megatron's. */
typedef struct module {
    const char *name;
    int count;
    sheaf_role role[3];
    bool by_unit; /* interleaved by unit: the query rows of a key/value head, its key rows, its
                     value rows; else one tensor after the other */
} module;
static const module in_layer[] = {
    { "self_attention.linear_qkv", 3, { SHEAF_Q, SHEAF_K, SHEAF_V }, true },
    { "self_attention.linear_proj", 1, { SHEAF_O } },
    { "mlp.linear_fc1", 2, { SHEAF_GATE, SHEAF_UP } },
    { "mlp.linear_gate", 1, { SHEAF_GATE } },
    { "mlp.linear_up", 1, { SHEAF_UP } },
    { "mlp.linear_fc2", 1, { SHEAF_DOWN } },
    { "input_layernorm", 1, { SHEAF_NORM_IN } },
    { "pre_mlp_layernorm", 1, { SHEAF_NORM_POST } },
    { NULL },
};
static const module around[] = {
    { "embedding.word_embeddings", 1, { SHEAF_EMBED } },
    { "language_model.embedding.word_embeddings", 1, { SHEAF_EMBED } },
    { "output_layer", 1, { SHEAF_HEAD } },
    { "language_model.output_layer", 1, { SHEAF_HEAD } },
    { "word_embeddings_for_head", 1, { SHEAF_HEAD } },
    { "word_embeddings", 1, { SHEAF_HEAD } },
    { "decoder.final_layernorm", 1, { SHEAF_NORM_FINAL } },
    { "decoder.final_norm", 1, { SHEAF_NORM_FINAL } },
    { "language_model.encoder.final_layernorm", 1, { SHEAF_NORM_FINAL } },
    { "language_model.encoder.final_norm", 1, { SHEAF_NORM_FINAL } },
    { "language_model.transformer.final_layernorm", 1, { SHEAF_NORM_FINAL } },
    { NULL },
};

typedef struct mapping {
    sheaf__megatron_targets *out;
    const sheaf__megatron *m;
    int64_t layer;
    int ndim, rank, ranks;
    const int64_t *shape;
    sheaf_status *st;
} mapping;

/* Rows [from, from + rows) of the tensor are rows [to, to + rows) of `t`, which has `of` rows;
 * `axis` is cut, -1: a copy. */
static void add(mapping *g, const sheaf_tensor *t, int64_t from, int64_t rows, int64_t to,
                int64_t of, int axis)
{
    static const char prefix[] = "model.layers.0.";
    sheaf__megatron_targets *list = g->out;
    if (g->st != NULL)
        return;
    if (!SHEAF_GROW(&list->at, &list->capacity, list->count + 1)) {
        g->st = sheaf__no_memory("tensors of a Megatron checkpoint");
        return;
    }
    sheaf__megatron_target *o = &list->at[list->count++];
    *o = (sheaf__megatron_target){ .ndim = g->ndim, .replicated = axis < 0 && g->ranks > 1 };
    if (g->layer >= 0)
        snprintf(o->name, sizeof o->name, "model.layers.%" PRId64 ".%s", g->layer,
                 t->name + sizeof prefix - 1);
    else
        snprintf(o->name, sizeof o->name, "%s", t->name);
    for (int i = 0; i < g->ndim; i++)
        o->shape[i] = o->size[i] = g->shape[i];
    if (axis >= 0) {
        o->shape[axis] = of;
        o->from[axis] = from;
        o->size[axis] = rows;
        o->to[axis] = to;
    }
}

/* A table is padded until each rank has equally many rows, more than in the schema: maps only rows
 * that are no padding. */
static bool map_table(mapping *g, const sheaf_tensor *t)
{
    int64_t all;
    if (g->shape[1] != t->shape[1] || __builtin_mul_overflow(g->shape[0], (int64_t)g->ranks, &all))
        return false;
    const int64_t mine = g->shape[0], begin = g->rank * mine,
                  rows = g->m->vocab >= 0 ? g->m->vocab : all;
    const int64_t left = rows - begin < 0 ? 0 : rows - begin < mine ? rows - begin : mine;
    add(g, t, 0, left, begin, rows, 0);
    return true;
}

/* With more ranks than key/value heads a rank has its share of the rows, which may begin anywhere
 * in a head's query, key and value rows: megatron/core gathers them before it splits heads. */
static bool map_share(mapping *g, const module *at, const sheaf_tensor *const *t)
{
    const int axis = t[0]->cut.axis;
    const int64_t units = t[0]->cut.part[0].units;
    int64_t all = 0;
    for (int k = 0; k < at->count; k++)
        all += units * t[k]->cut.part[0].rows_per_unit;
    const int64_t mine = all / g->ranks, begin = g->rank * mine, end = begin + mine;
    if (all % g->ranks != 0 || g->shape[axis] != mine ||
        (g->ndim == 2 && g->shape[1 - axis] != t[0]->shape[1 - axis]))
        return false;
    for (int64_t u = 0, row = 0; u < units; u++)
        for (int k = 0; k < at->count; k++) {
            const int64_t wide = t[k]->cut.part[0].rows_per_unit, from = row > begin ? row : begin,
                          to = row + wide < end ? row + wide : end;
            if (from < to)
                add(g, t[k], from - begin, to - from, u * wide + from - row, t[k]->shape[axis],
                    axis);
            row += wide;
        }
    return true;
}

/* The tensors of a module, which are cut along one axis in as many units each. */
static bool map_cut(mapping *g, const module *at, const sheaf_tensor *const *t)
{
    const int axis = t[0]->cut.axis;
    const int64_t units = t[0]->cut.part[0].units, mine = units / g->ranks,
                  blocks = at->by_unit ? mine : 1;
    int64_t rows = 0, from = 0;
    if (g->ranks > units && g->ranks % units == 0 && (at->by_unit || at->count == 1))
        return map_share(g, at, t);
    for (int k = 0; k < at->count; k++)
        rows += mine * t[k]->cut.part[0].rows_per_unit;
    if (units % g->ranks != 0 || g->shape[axis] != rows ||
        (g->ndim == 2 && g->shape[1 - axis] != t[0]->shape[1 - axis]))
        return false;
    for (int64_t b = 0; b < blocks; b++)
        for (int k = 0; k < at->count; k++) {
            const int64_t wide = mine / blocks * t[k]->cut.part[0].rows_per_unit;
            add(g, t[k], from, wide, (g->rank * blocks + b) * wide, t[k]->shape[axis], axis);
            from += wide;
        }
    return true;
}

static sheaf__megatron_word map(mapping *g, const module *at, bool bias)
{
    const sheaf_tensor *t[3];
    for (int k = 0; k < at->count; k++)
        if ((t[k] = sheaf_schema_get(g->m->rows, at->role[k], g->layer >= 0 ? 0 : -1, bias)) ==
            NULL)
            return SHEAF_MEGATRON_UNKNOWN;
    bool fits = g->ndim == t[0]->ndim;
    if (fits && (at->role[0] == SHEAF_EMBED || at->role[0] == SHEAF_HEAD))
        fits = map_table(g, t[0]);
    else if (fits && t[0]->cut.nparts > 0)
        fits = map_cut(g, at, t);
    else if ((fits = fits && g->shape[0] == t[0]->shape[0]))
        add(g, t[0], 0, 0, 0, 0, -1);
    return fits ? SHEAF_MEGATRON_MAPPED : SHEAF_MEGATRON_MISFIT;
}

/* The module whose weight or bias has this name; NULL. */
static const module *module_of(bool *bias, const module *list, const char *name)
{
    for (; list->name != NULL; list++) {
        const size_t n = strlen(list->name);
        if (strncmp(name, list->name, n) != 0)
            continue;
        *bias = strcmp(name + n, ".bias") == 0;
        if (*bias || strcmp(name + n, ".weight") == 0)
            return list;
    }
    return NULL;
}

sheaf_status *sheaf__megatron_targets_of(sheaf__megatron_targets *out, sheaf__megatron_word *word,
                                         const sheaf__megatron *m, const char *name, int64_t layer,
                                         int ndim, const int64_t *shape, int rank, int ranks)
{
    const char *rest = in_layers(name);
    char today[160];
    bool bias = false;
    mapping g = { .out = out,
                  .m = m,
                  .layer = rest != NULL ? layer : -1,
                  .ndim = ndim,
                  .shape = shape,
                  .rank = rank,
                  .ranks = ranks };
    *word = SHEAF_MEGATRON_UNKNOWN;
    if (strstr(name, "_extra_state") != NULL || strstr(name, "rotary_pos_emb") != NULL ||
        strstr(name, "rotary_emb.inv_freq") != NULL) {
        *word = SHEAF_MEGATRON_IGNORED;
        return NULL;
    }
    if (rest != NULL && isdigit((unsigned char)*rest) && rest[strspn(rest, "0123456789")] == '.')
        rest += strspn(rest, "0123456789") + 1;
    snprintf(today, sizeof today, "%s", rest != NULL ? rest : bare(name));
    for (size_t i = 0; rest != NULL && i < sizeof renamed / sizeof *renamed; i++)
        if (strncmp(rest, renamed[i][0], strlen(renamed[i][0])) == 0)
            snprintf(today, sizeof today, "%s%s", renamed[i][1], rest + strlen(renamed[i][0]));
    const module *at = module_of(&bias, rest != NULL ? in_layer : around, today);
    if (at != NULL && ndim >= 1 && ndim <= 2)
        *word = map(&g, at, bias);
    return g.st;
}

/* ---- into the catalog ---- */

sheaf_status *sheaf__megatron_add(sheaf_catalog *c, const sheaf__megatron_targets *targets,
                                  const sheaf_piece *piece)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < targets->count; i++) {
        const sheaf__megatron_target *t = &targets->at[i];
        sheaf_logical *out;
        sheaf_piece moved;
        st = sheaf__catalog_tensor(&out, c, t->name, piece->dtype, t->ndim, t->shape);
        if (st == NULL &&
            !sheaf__same_shape(out->entry.ndim, out->entry.shape, t->ndim, t->shape)) {
            st = sheaf__defect(c, "shape", c->file[piece->file].path, t->name,
                               "the shape of the other parts", "", "another one");
            continue;
        }
        if (st == NULL)
            out->replicated = t->replicated;
        if (st == NULL && sheaf__piece_move(&moved, piece, t->ndim, t->from, t->size, t->to))
            st = sheaf__catalog_piece(c, out, &moved);
    }
    return st;
}
