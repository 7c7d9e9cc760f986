/* adapter.c - the options of an adapter against the tensors of a model. */
#include "lora/adapter.h"

#include <math.h>

#include "base/base.h"
#include "lora/check_file.h"
#include "lora/names.h"
#include "lora/paths.h"
#include "lora/match.h"
#include "lora/start.h"
#include "schema/family.h"

enum { MOST_RANK = 65536 }; /* also what adapter_config.json may say */

float sheaf_lora_scale(double alpha, int64_t rank, bool rslora)
{
    return (float)(rslora ? alpha / sqrt((double)rank) : alpha / (double)rank);
}

/* "q_proj" of "model.layers.0.self_attn.q_proj" */
static const char *last_name(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot != NULL ? dot + 1 : path;
}

/* ---- targets that are not linear layers ---- */

static sheaf_status *check_container(const sheaf_lora_options *options, const char *path)
{
    sheaf_hit hit;
    sheaf_status *st = sheaf__lora_hit(&hit, options, path);
    if (st != NULL || hit != SHEAF_HIT_TARGET)
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "target '%s'", path), "linear layers");
    return sheaf_try_this(st, "name the layers themselves (q_proj, up_proj, ...), or all-linear");
}

/* PEFT also walks modules that hold no tensor and refuses to adapt them; a pattern that
 * matches one would make an adapter that PEFT cannot load. Each once: tensors of a module stand
 * next to each other. */
static sheaf_status *check_containers(const sheaf_schema *schema, const sheaf_lora_options *options)
{
    sheaf_status *st = NULL;
    const char *before = "";
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const char *path = t->module, *end = strrchr(path, '.');
        char around[256];
        for (const char *dot = strchr(path, '.'); dot != NULL && st == NULL;
             dot = strchr(dot + 1, '.')) {
            const size_t n = (size_t)(dot - path);
            if (strncmp(before, path, n + 1) == 0)
                continue;
            snprintf(around, sizeof around, "%.*s", (int)n, path);
            st = check_container(options, around);
        }
        before = path;
        if (t->bias ||
            (t->role != SHEAF_GATE && t->role != SHEAF_GATE_UP && t->role != SHEAF_EMBED))
            continue;
        snprintf(around, sizeof around, "%.*s.%s", end == NULL ? 0 : (int)(end - path), path,
                 t->role == SHEAF_EMBED ? "rotary_emb" : "act_fn");
        TRY(st, check_container(options, around));
    }
    return st;
}

static sheaf_status *refuse_kind(const sheaf_tensor *tensor)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "target '%s'", tensor->module);
    sheaf_expected(st, "linear layers and the table of embeddings");
    sheaf_found(st, sheaf__is_norm(tensor->role)
                        ? "a norm"
                        : "a convolution, or a part of torch's attention, which does not look at "
                          "factors");
    return sheaf_try_this(st, "name linear layers (q_proj, up_proj, ...), all-linear, or an "
                              "expression for whole paths that leaves this one out");
}

/* The norms of a table are sums over the vocabulary, which is read by rows; the head runs in parts
 * of rows; and PEFT has no DoRA of parameters. */
static sheaf_status *refuse_dora(const sheaf_lora_module *m)
{
    const sheaf_tensor *base = m->base;
    const char *is = base->role == SHEAF_EMBED  ? "the table of embeddings"
                     : base->role == SHEAF_HEAD ? "the output head"
                     : m->parameter != NULL     ? "a parameter of experts"
                                                : NULL;
    if (is == NULL)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "target '%s' with DoRA", base->module);
    sheaf_found(sheaf_expected(st, "linear layers of the model's layers and towers"), "%s", is);
    return sheaf_try_this(st, "new adapters: leave it out, or train it without DoRA; one that is "
                              "there: sheaf merge BASE ADAPTER MERGED");
}

static sheaf_status *bad_rank(const sheaf_lora_module *m, const char *expected, int64_t rank)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "rank of '%s'", m->base->module);
    sheaf_found(sheaf_expected(st, "%s", expected), "%" PRId64, rank);
    return sheaf_try_this(st, "another `lora-rank` or `lora-rank-pattern`, or another `init`");
}

/* Factors of a table begin otherwise, those of experts share an A. */
static sheaf_status *check_start(const sheaf_lora_module *m, sheaf_lora_init init)
{
    const sheaf_tensor *base = m->base;
    const bool held = sheaf__start_is_held(init);
    int64_t least = base->shape[m->parts > 1 && !m->dense ? base->in_axis : base->out_axis];
    char expected[64];
    if (!sheaf__start_is_whole(init))
        return NULL;
    if (base->role == SHEAF_EMBED || m->stacked) {
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "target '%s' with `init`", base->module);
        sheaf_found(sheaf_expected(st, "linear layers"), "%s",
                    m->stacked ? "a parameter of experts" : "the table of embeddings");
        return sheaf_try_this(st, "leave it out, or begin with `init default`");
    }
    if (m->rank % 2 != 0)
        return bad_rank(m,
                        held ? "an even number, as half of it is what is kept of the start"
                             : "an even number",
                        m->rank);
    for (int p = 0; p < m->parts && !m->dense && m->parts > 1; p++) {
        const int64_t rows = base->cut.part[p].units * base->cut.part[p].rows_per_unit;
        least = rows < least ? rows : least;
    }
    least = base->shape[base->in_axis] < least ? base->shape[base->in_axis] : least;
    snprintf(expected, sizeof expected, "at most %" PRId64 ", as W has no more values", least);
    return held && m->rank / 2 > least ? bad_rank(m, expected, m->rank / 2) : NULL;
}

/* ---- entries that match nothing ---- */

/* Is it a parameter of a module, as the resampler's query, and no module itself? */
static bool is_parameter(const sheaf_tensor *t)
{
    return strcmp(t->name, t->module) == 0;
}

static sheaf_status *check_target(const sheaf_schema *schema, const char *item)
{
    if (sheaf__lora_by_paths(schema))
        return sheaf__lora_paths_target(schema, item);
    for (int64_t t = 0; t < schema->count; t++)
        if (sheaf__ends_with_item(schema->tensor[t].module, strlen(schema->tensor[t].module), item))
            return NULL;
    return sheaf__lora_no_module(schema, "target", item);
}

static sheaf_status *check_saved(const sheaf_schema *schema, char **item)
{
    const sheaf_lora_options one = { .modules_to_save = { item, 1 } };
    for (int64_t i = 0; i < schema->count; i++)
        if (sheaf__lora_by_paths(schema) ? sheaf__lora_saves_whole(&one, schema, &schema->tensor[i])
                                         : sheaf__lora_saves(&one, schema->tensor[i].module))
            return NULL; /* PEFT has no names of single tensors */
    return sheaf__lora_no_module(schema, "module to save", *item);
}

static sheaf_status *check_items(const sheaf_schema *schema, const sheaf_lora_options *o)
{
    const bool cog = sheaf__lora_by_paths(schema);
    int64_t layers = schema->config.layers;
    sheaf_status *st = NULL;
    if (!cog && o->sat_set != SHEAF_SAT_SET_NONE)
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "the set of layers that SAT adapts, as target"),
                           "a model of CogVLM or CogAgent in SAT's form"),
            "name modules with `lora-targets`; of a folder from the hub first sheaf convert DIR OUT "
            "--to sat");
    if (o->tolerant)
        return NULL;
    for (int i = 0; i < o->targets.n && st == NULL; i++)
        st = check_target(schema, o->targets.list[i]);
    for (int i = 0; i < o->modules_to_save.n && st == NULL; i++)
        st = check_saved(schema, &o->modules_to_save.list[i]);
    for (int64_t i = 0; i < schema->count && cog; i++) /* the ViT may have more */
        layers = schema->tensor[i].layer >= layers ? schema->tensor[i].layer + 1 : layers;
    for (int i = 0; i < o->nlayers && st == NULL; i++)
        if (o->layers[i] >= layers)
            st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "layer %" PRId64 " to adapt", o->layers[i]),
                                "0 to %" PRId64 ", the layers of this model", layers - 1);
    return st;
}

/* ---- parameters ---- */

/* The parameters that are `item`, or that the module `item` holds ("experts"), where that is no
 * layer by itself. */
static sheaf_status *add_parameters(sheaf_lora_names *to, const sheaf_schema *schema,
                                    const char *item)
{
    char name[256];
    for (int64_t i = 0; i < schema->count; i++)
        if (sheaf__ends_with_item(schema->tensor[i].module, strlen(schema->tensor[i].module), item))
            return NULL;
    for (int64_t i = 0; i < schema->count; i++) {
        const char *of = schema->tensor[i].stack.of;
        const size_t all = of == NULL ? 0 : strlen(of),
                     holder = of == NULL ? 0 : (size_t)(last_name(of) - of - 1);
        const bool held = of != NULL && sheaf__ends_with_item(of, holder, item);
        if (of == NULL || (!held && !sheaf__ends_with_item(of, all, item)))
            continue;
        snprintf(name, sizeof name, "%s%s", item, held ? of + holder : "");
        if (!sheaf__lora_add_name(to, name))
            return sheaf__no_memory("LoRA options");
    }
    return NULL;
}

/* Targets that are parameters become target_parameters: in a file PEFT ignores such targets. */
static sheaf_status *take_parameters(sheaf_lora_options *o, const sheaf_schema *schema)
{
    sheaf_lora_names *targets = &o->targets;
    sheaf_status *st = NULL;
    for (int i = 0; i < targets->n && st == NULL;) {
        const int before = o->parameters.n;
        char *item = targets->list[i];
        st = add_parameters(&o->parameters, schema, item);
        if (o->parameters.n == before) {
            i++;
            continue;
        }
        memmove(&targets->list[i], &targets->list[i + 1],
                (size_t)(--targets->n - i) * sizeof *targets->list);
        if (o->dropout > 0 || o->nlayers > 0)
            st = sheaf_try_this(
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "target '%s'", item),
                                           "no dropout, and no list of layers, which PEFT does not "
                                           "have of parameters"),
                            "%s", o->dropout > 0 ? "`lora-dropout`" : "`lora-layers`"),
                o->dropout > 0 ? "`lora-dropout 0`"
                               : "whole paths: model.layers.0.mlp.experts.down_proj");
        free(item);
    }
    return st;
}

/* ---- tied tables ---- */

/* The module of a weight, which `tensor` names. */
static const char *path_of(char path[128], const char *tensor)
{
    snprintf(path, 128, "%.*s", (int)(strlen(tensor) - strlen(".weight")), tensor);
    return path;
}

static sheaf_status *names_module(bool *out, const sheaf_lora_options *o, const char *tensor)
{
    char path[128];
    *out = sheaf__lora_saves(o, path_of(path, tensor));
    if (*out || o->all_linear)
        return NULL;
    sheaf_hit hit;
    sheaf_status *st = sheaf__lora_hit(&hit, o, path);
    *out = hit == SHEAF_HIT_TARGET;
    return st;
}

bool sheaf_lora_unties(const sheaf_lora_options *o, const sheaf_config *config)
{
    bool embed = false, head = false;
    if (!config->tied || o->keep_tie)
        return false;
    /* An unsound pattern is sheaf_lora_resolve()'s to report. */
    const sheaf__family *family = sheaf__family_for(config);
    sheaf_status_free(names_module(&embed, o, family->table));
    sheaf_status_free(names_module(&head, o, family->head));
    return embed || head;
}

/* ---- resolving ---- */

/* An alpha for all parts together that gives the same scale, bit for bit. */
static double alpha_of_all(const sheaf_lora_module *m, bool rslora)
{
    const double by = rslora ? sqrt((double)m->parts) : (double)m->parts, alpha = m->alpha * by;
    double up = alpha, down = alpha;
    for (int i = 0; i < 4; i++, up = nextafter(up, INFINITY), down = nextafter(down, 0)) {
        if (sheaf_lora_scale(up, m->file_rank, rslora) == m->scale)
            return up;
        if (sheaf_lora_scale(down, m->file_rank, rslora) == m->scale)
            return down;
    }
    return alpha;
}

/* Rank and scale of `m`, whose base is set, from the options: for each part, or for all
 * together. */
static sheaf_status *set_rank(sheaf_lora_module *m, double rank, double alpha,
                              const sheaf_lora_options *o, bool always_dense)
{
    const sheaf_tensor *base = m->base;
    m->parts = base->cut.nparts > 1 && base->cut.axis == base->out_axis ? base->cut.nparts : 1;
    m->rank = (int64_t)rank;
    m->alpha = alpha;
    m->scale = sheaf_lora_scale(alpha, m->rank, o->rslora);
    m->file_rank = m->rank;
    m->file_alpha = alpha;
    if (m->parts > 1 && always_dense) {
        m->dense = m->always_dense = true;
    } else if (m->parts > 1 && o->whole_rank) {
        m->dense = m->rank % m->parts != 0;
        if (!m->dense) {
            m->rank /= m->parts;
            m->alpha = alpha / (o->rslora ? sqrt((double)m->parts) : (double)m->parts);
        }
    } else if (m->parts > 1) {
        m->file_rank = m->parts * m->rank;
        m->file_alpha = alpha_of_all(m, o->rslora);
    }
    if (m->parts == 1 || (m->rank >= 1 && m->file_rank <= MOST_RANK))
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "rank of '%s'", base->module),
                                      "1 to %d, over its %d parts", MOST_RANK / m->parts, m->parts);
    return sheaf_found(st, "%" PRId64, m->rank);
}

/* Names of the factors: after the path of the module; A of experts after their number in the stack.
 */
static sheaf_status *name_factors(sheaf_lora_module *m, bool dora)
{
    const sheaf_tensor *base = m->base;
    const char *kind = base->role == SHEAF_EMBED ? "_embedding" : "",
               *end = base->role == SHEAF_EMBED ? "" : ".weight", *of = base->stack.of;
    sheaf_text a = { 0 };
    sheaf__text_add(&a, SHEAF_PEFT_PREFIX);
    if (m->stacked && base->stack.ndim > 2) {
        const char *leaf = strrchr(of, '.');
        sheaf__text_add(&a, "%.*s.%" PRId64 "%s", (int)(leaf - of), of, base->stack.member, leaf);
    } else {
        sheaf__text_add(&a, "%s", base->module);
    }
    sheaf__text_add(&a, ".lora%s_A%s", kind, end);
    sheaf_status_free(sheaf__text_take(&m->a_name, &a));
    if (asprintf(&m->b_name, SHEAF_PEFT_PREFIX "%s.lora%s_B%s", base->module, kind, end) < 0)
        m->b_name = NULL;
    if (dora &&
        asprintf(&m->m_name, SHEAF_PEFT_PREFIX "%s.lora_magnitude_vector", base->module) < 0)
        m->m_name = NULL;
    return m->a_name != NULL && m->b_name != NULL && (m->m_name != NULL) == dora
               ? NULL
               : sheaf_fail(SHEAF_E_MEMORY, "adapter of '%s'", base->module);
}

/* The module before this one whose A it shares: of the same member of a stack. */
static const sheaf_lora_module *shared_a(const sheaf_lora *lora, const sheaf_lora_module *m)
{
    for (const sheaf_lora_module *n = m; m->stacked && n-- > lora->module;) {
        if (!n->stacked || n->base->layer != m->base->layer ||
            n->base->stack.member != m->base->stack.member)
            return NULL;
        if (strcmp(n->base->stack.of, m->base->stack.of) == 0)
            return n;
    }
    return NULL;
}

static sheaf_status *add_module(sheaf_lora *lora, const sheaf_tensor *base, bool by_paths,
                                /* PEFT excludes modules alone. */
                                const char *parameter)
{
    const sheaf_lora_options *o = &lora->options;
    sheaf_lora_module *m = &lora->module[lora->nmodules];
    const char *path = parameter != NULL ? parameter : base->module;
    double rank, alpha;
    sheaf_status *st = sheaf__lora_pattern_value(&rank, &o->rank_pattern, path, (double)o->rank);
    TRY(st, sheaf__lora_pattern_value(&alpha, &o->alpha_pattern, path, o->alpha));
    if (st != NULL)
        return st;
    const int slices = base->cut.slices;
    *m = (sheaf_lora_module){ .base = base,
                              .parameter = parameter,
                              .stacked = parameter != NULL && parameter == base->stack.of,
                              .a_cut = { .slices = slices },
                              .b_cut = { .slices = slices } };
    st = set_rank(m, rank, alpha, o, !by_paths);
    if (st != NULL)
        return st;
    m->a_of = shared_a(lora, m);
    m->a_shape[0] = m->file_rank;
    m->a_shape[1] = base->shape[base->in_axis];
    m->b_shape[0] = base->shape[base->out_axis];
    m->b_shape[1] = m->rank;
    if (base->cut.nparts > 0 && base->cut.axis == base->in_axis) {
        m->a_cut = base->cut;
        m->a_cut.axis = 1;
    } else if (base->cut.nparts > 0) {
        m->b_cut = base->cut;
        m->b_cut.axis = 0;
    }
    lora->nmodules++; /* from here on sheaf_lora_free() sees it */
    st = name_factors(m, o->dora);
    TRY(st, o->dora ? refuse_dora(m) : NULL);
    return TRY(st, check_start(m, o->init));
}

bool sheaf__lora_adapts(const sheaf_lora *lora, const char *path, size_t length)
{
    for (int i = 0; i < lora->nmodules; i++) {
        const char *module = lora->module[i].base->module;
        if (strncmp(module, path, length) == 0 && module[length] == '\0')
            return true;
    }
    return false;
}

/* The path by which target_parameters names it; NULL: it does not. */
static const char *named_parameter(const sheaf_lora_options *o, const sheaf_tensor *t)
{
    const char *path = NULL;
    for (int i = 0; i < o->parameters.n && path == NULL; i++)
        path = sheaf__lora_parameter(t, o->parameters.list[i]);
    return path;
}

static sheaf_status *find_modules(sheaf_lora *lora, const sheaf_schema *schema)
{
    const sheaf_lora_options *o = &lora->options;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const bool cog = sheaf__lora_by_paths(schema);
        if (t->bias || (!cog && is_parameter(t)))
            continue;
        sheaf_hit hit = SHEAF_HIT_NONE;
        sheaf_status *st =
            cog ? sheaf__lora_paths_hit(&hit, o, schema, t) : sheaf__lora_hit(&hit, o, t->module);
        if (st == NULL && !cog && o->all_linear && hit == SHEAF_HIT_NONE &&
            sheaf__is_linear(t->role) && t->role != SHEAF_HEAD) {
            bool wanted;
            st = sheaf__lora_layer_wanted(&wanted, o, t->module);
            hit = wanted ? SHEAF_HIT_TARGET : SHEAF_HIT_NONE;
        }
        const char *parameter =
            hit != SHEAF_HIT_TARGET && sheaf__is_linear(t->role) ? named_parameter(o, t) : NULL;
        if (st == NULL && (hit == SHEAF_HIT_TARGET || parameter != NULL))
            st = sheaf__is_linear(t->role) || t->role == SHEAF_EMBED
                     ? add_module(lora, t, cog, parameter)
                     : refuse_kind(t);
        if (st != NULL)
            return st;
    }
    return NULL;
}

/* "q_proj", "dense_list.0": from the last dot before what is not a number. */
static const char *short_name(const char *path)
{
    const char *name = path;
    for (const char *dot = strchr(path, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        if (strspn(dot + 1, "0123456789") == 0)
            name = dot + 1;
    return name;
}

static sheaf_status *idle_pattern(const sheaf_lora *lora, const char *what, const char *key)
{
    const bool path = strchr(key, '.') != NULL;
    const char **name = malloc((size_t)lora->nmodules * sizeof *name);
    for (int i = 0; name != NULL && i < lora->nmodules; i++)
        name[i] = path ? lora->module[i].base->module : short_name(lora->module[i].base->module);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s pattern '%s'", what, key);
    sheaf_expected(st, "one that the end of an adapted module's path matches, for example of %s",
                   lora->module[0].base->module);
    sheaf_found(st, "none of %d adapted modules", lora->nmodules);
    const char *near =
        name == NULL ? NULL : sheaf__nearest(key + (*key == '^'), name, lora->nmodules);
    if (near != NULL)
        sheaf_try_this(st, "%s", near);
    free(name);
    return st;
}

/* Refuses a rank or an alpha that matches no module; PEFT ignores those of a file. */
static sheaf_status *check_patterns(const sheaf_lora *lora, const char *what,
                                    const sheaf_patterns *patterns)
{
    for (int p = 0; p < patterns->n; p++) {
        sheaf_pattern one = { patterns->at[p].key, 1 };
        double value = 0;
        sheaf_status *st = NULL;
        for (int i = 0; i < lora->nmodules && value == 0 && st == NULL; i++)
            st = sheaf__lora_pattern_value(&value, &(sheaf_patterns){ &one, 1 },
                                           lora->module[i].base->module, 0);
        if (st == NULL && value == 0)
            st = idle_pattern(lora, what, one.key);
        if (st != NULL)
            return st;
    }
    return NULL;
}

/* Of a saved table that stays tied PEFT writes, and wants to read, both names. */
static sheaf_status *name_twin(sheaf_lora *lora, const sheaf_schema *schema)
{
    const char *head = sheaf__family_for(&schema->config)->head;
    if (asprintf(&lora->twin_name, SHEAF_PEFT_PREFIX "%s", head) >= 0)
        return NULL;
    lora->twin_name = NULL;
    return sheaf__no_memory(head);
}

static sheaf_status *find_saved(sheaf_lora *lora, const sheaf_schema *schema)
{
    const sheaf_lora_options *o = &lora->options;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const bool whole = sheaf__lora_saves_whole(o, schema, t),
                   bias = sheaf__lora_saves_bias(o, t->name) && !t->idle && !t->buffer;
        if (!whole && !bias)
            continue;
        const bool adapted = sheaf__lora_adapts(lora, t->module, strlen(t->module));
        if (!whole && !adapted && o->bias != SHEAF_BIAS_ALL)
            continue;
        const int n = lora->nsaved++;
        lora->saved[n] = t;
        const char *inner = adapted && !whole ? ".base_layer" : "";
        if (asprintf(&lora->saved_name[n], SHEAF_PEFT_PREFIX "%s%s%s", t->module, inner,
                     t->name + strlen(t->module)) < 0) {
            lora->saved_name[n] = NULL;
            return sheaf_fail(SHEAF_E_MEMORY, "name of '%s'", t->name);
        }
        if (whole && t->role == SHEAF_EMBED && o->keep_tie && schema->config.tied)
            st = name_twin(lora, schema);
    }
    return st;
}

/* Does a module around this one have a path that ends with the name? */
static bool is_inside(const char *module, const char *name)
{
    const size_t n = strlen(name);
    for (const char *p = module; (p = strstr(p, name)) != NULL; p++)
        if ((p == module || p[-1] == '.') && p[n] == '.')
            return true;
    return false;
}

/* Would a target of this name reach a module that cannot be adapted? */
static bool reaches_others(const sheaf_schema *schema, const char *name)
{
    const size_t n = strlen(name);
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (is_inside(t->module, name))
            return true;
        const size_t m = strlen(t->module);
        const bool ends =
            m > n && t->module[m - n - 1] == '.' && strcmp(t->module + m - n, name) == 0;
        if (ends && !t->bias && !is_parameter(t) && !sheaf__is_linear(t->role))
            return true;
    }
    return false;
}

/* The shortest end of a module's path that no other, unadaptable module has. */
static const char *target_name(const sheaf_schema *schema, const char *module)
{
    const char *name = last_name(module);
    while (name > module && reaches_others(schema, name)) {
        name--; /* the dot */
        while (name > module && name[-1] != '.')
            name--;
    }
    return name;
}

/* PEFT stores all-linear as a list of names. */
static sheaf_status *spell_out(sheaf_lora *lora, const sheaf_schema *schema)
{
    sheaf_lora_options *o = &lora->options;
    for (int i = 0; i < lora->nmodules; i++) {
        const char *module = lora->module[i].base->module;
        if (sheaf__lora_has_name(&o->targets, last_name(module))) /* reaches no others */
            continue;
        if (!sheaf__lora_add_name(&o->targets, target_name(schema, module)))
            return sheaf__no_memory("LoRA options");
    }
    o->all_linear = false;
    return NULL;
}

/* PEFT refuses such a config: it reads only the expression. */
static sheaf_status *check_layers(const sheaf_schema *schema, const sheaf_lora_options *o)
{
    if (o->nlayers == 0 || o->targets.regex == NULL || o->tolerant || sheaf__lora_by_paths(schema))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "layers of '%s'", o->targets.regex);
    sheaf_expected(st, "a list of targets, or an expression that says by itself which layers");
    return sheaf_try_this(st, "for layers 0 and 1: .*layers\\.(0|1)\\..*");
}

static sheaf_status *check_tied(const sheaf_schema *schema, const sheaf_lora_options *o)
{
    if (!schema->config.tied)
        return NULL;
    char path[128];
    sheaf_hit hit = SHEAF_HIT_NONE;
    sheaf_status *st =
        o->all_linear
            ? NULL
            : sheaf__lora_hit(&hit, o, path_of(path, sheaf__family_for(&schema->config)->head));
    if (st != NULL || (hit != SHEAF_HIT_TARGET && !sheaf_lora_unties(o, &schema->config)))
        return st;
    st = sheaf_fail(SHEAF_E_UNSUPPORTED, "an adapter for one use of the tied table");
    sheaf_expected(st, "adapters elsewhere; embed_tokens and lm_head of this model are one tensor");
    return sheaf_try_this(st, "leave lm_head and embed_tokens out");
}

static sheaf_status *no_layer(const sheaf_lora_options *o)
{
    const sheaf_lora_names *asked = &o->targets;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "no layer is adapted: target '%s'",
                                  asked->regex != NULL ? asked->regex
                                  : asked->n > 0       ? asked->list[0]
                                                       : "all-linear");
    sheaf_expected(st, "a layer of this model, among the chosen ones and not excluded");
    sheaf_found(st, "none that is left");
    return o->tolerant ? sheaf__lora_try_base(st, o,
                                              ", or the adapter_config.json that belongs to "
                                              "these tensors")
                       : sheaf_try_this(st, "exclude less, or choose other targets or layers");
}

sheaf_status *sheaf_lora_resolve(sheaf_lora **out, const sheaf_schema *schema,
                                 const sheaf_lora_options *options)
{
    sheaf_lora *lora = calloc(1, sizeof *lora);
    if (lora == NULL)
        return sheaf__no_memory("adapter");
    sheaf_status *st = sheaf__lora_options_copy(&lora->options, options);
    lora->options.fan_in_fan_out = false; /* as PEFT sets it for linear layers */
    lora->module = calloc((size_t)schema->count + 1, sizeof *lora->module);
    lora->saved = calloc((size_t)schema->count + 1, sizeof *lora->saved);
    lora->saved_name = calloc((size_t)schema->count + 1, sizeof *lora->saved_name);
    if (st == NULL && (lora->module == NULL || lora->saved == NULL || lora->saved_name == NULL))
        st = sheaf__no_memory("adapter");
    if (st == NULL && !options->tolerant && !sheaf__lora_by_paths(schema))
        st = take_parameters(&lora->options, schema);
    TRY(st, check_layers(schema, options));
    TRY(st, check_tied(schema, options));
    TRY(st, check_items(schema, &lora->options));
    if (st == NULL && options->targets.regex != NULL && !sheaf__lora_by_paths(schema))
        st = check_containers(schema, options);
    TRY(st, find_modules(lora, schema));
    TRY(st, find_saved(lora, schema));
    if (st == NULL && lora->nmodules == 0)
        st = no_layer(options);
    if (st == NULL && !options->tolerant)
        st = check_patterns(lora, "rank", &options->rank_pattern);
    if (st == NULL && !options->tolerant)
        st = check_patterns(lora, "alpha", &options->alpha_pattern);
    if (st == NULL && sheaf__lora_by_paths(schema))
        st = sheaf__lora_paths_spell(lora);
    else if (st == NULL && options->all_linear)
        st = spell_out(lora, schema);
    if (st != NULL) {
        sheaf_lora_free(lora);
        return st;
    }
    *out = lora;
    return NULL;
}

void sheaf_lora_free(sheaf_lora *lora)
{
    if (lora == NULL)
        return;
    for (int i = 0; i < lora->nmodules; i++) {
        free(lora->module[i].a_name);
        free(lora->module[i].b_name);
        free(lora->module[i].m_name);
    }
    for (int i = 0; i < lora->nsaved; i++)
        free(lora->saved_name[i]);
    free(lora->module);
    free(lora->saved);
    free(lora->saved_name);
    free(lora->twin_name);
    sheaf_lora_options_release(&lora->options);
    free(lora);
}

/* ---- checking a file ---- */

/* `rank_axis`: that of the rank; -1: a tensor of the base. */
static sheaf_status *check_shape(const sheaf_lora *lora, sheaf_source *adapter, const char *name,
                                 const int64_t *shape, int ndim, int rank_axis)
{
    const sheaf_source_entry *e = adapter->find(adapter, name);
    char want[128], found[128];
    if (e == NULL) {
        const char *path;
        size_t length;
        sheaf__lora_part(&path, &length, name);
        return sheaf_lora_missing(path, length, path + length);
    }
    if (sheaf__same_shape(e->ndim, e->shape, ndim, shape))
        return sheaf__lora_check_type(e);
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", name);
    sheaf_expected(st, "shape %s%s", sheaf__show_shape(want, ndim, shape),
                   rank_axis >= 0 ? "" : ", the base's");
    sheaf_found(st, "shape %s", sheaf__show_shape(found, e->ndim, e->shape));
    const bool matrix = e->ndim == 2 && ndim == 2;
    if (matrix && rank_axis < 0 && e->shape[1] == shape[1])
        return sheaf_try_this(
            st,
            "where the vocabulary was resized before training: sheaf merge BASE ADAPTER MERGED, and go on with MERGED without the adapter; or give the base resized in the same way");
    if (matrix && rank_axis >= 0 && e->shape[1 - rank_axis] == shape[1 - rank_axis])
        return sheaf_try_this(st,
                              "the rank differs from r and rank_pattern in adapter_config.json");
    return sheaf__lora_try_base(st, &lora->options, "");
}

static bool is_expected(const sheaf_lora *lora, const char *name)
{
    const char *path;
    size_t length;
    for (int i = 0; i < lora->nmodules; i++)
        if (strcmp(name, lora->module[i].a_name) == 0 ||
            strcmp(name, lora->module[i].b_name) == 0 ||
            (lora->module[i].m_name != NULL && strcmp(name, lora->module[i].m_name) == 0))
            return true;
    for (int i = 0; i < lora->nsaved; i++)
        if (strcmp(name, lora->saved_name[i]) == 0)
            return true;
    /* PEFT writes both names of a table that stays tied. */
    if (lora->twin_name != NULL && strcmp(name, lora->twin_name) == 0)
        return true;
    if (lora->options.keep_tie && sheaf__ends_with_item(name, strlen(name), "lm_head.weight"))
        return true;
    /* And a copy of the base's weight beside a targeted table. */
    return sheaf__lora_part(&path, &length, name) == SHEAF_PART_COPY &&
           sheaf__lora_adapts(lora, path, length);
}

/* Optional in files: training does not change it, and the base has it. */
static bool is_fixed(const sheaf_tensor *t)
{
    return t->buffer || t->idle;
}

sheaf_status *sheaf_lora_check(const sheaf_lora *lora, sheaf_source *adapter)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        const int64_t a_shape[] = { m->file_rank, m->a_shape[1] },
                      b_shape[] = { m->b_shape[0], m->file_rank };
        st = check_shape(lora, adapter, m->a_name, a_shape, 2, 0);
        TRY(st, check_shape(lora, adapter, m->b_name, b_shape, 2, 1));
        if (m->m_name != NULL)
            TRY(st, check_shape(lora, adapter, m->m_name, b_shape, 1, -1));
    }
    for (int i = 0; i < lora->nsaved && st == NULL; i++)
        if (!is_fixed(lora->saved[i]) || adapter->find(adapter, lora->saved_name[i]) != NULL)
            st = check_shape(lora, adapter, lora->saved_name[i], lora->saved[i]->shape,
                             lora->saved[i]->ndim, -1);
    if (st != NULL)
        return st;
    sheaf_text foreign = { 0 };
    int n = 0;
    for (int64_t i = 0; i < adapter->count(adapter); i++) {
        const char *name = adapter->entry(adapter, i)->name;
        if (!is_expected(lora, name) && n++ < 8)
            sheaf__text_add(&foreign, "%s%s", n == 1 ? "" : ", ", name);
    }
    if (n == 0)
        return NULL;
    st = sheaf_fail(SHEAF_E_LAYOUT, "%d tensor%s of the adapter", n, n == 1 ? "" : "s");
    sheaf_expected(st, "tensors that adapter_config.json and this base model ask for");
    sheaf_found(st, "%s%s", foreign.at != NULL ? foreign.at : "", n > 8 ? ", ..." : "");
    const bool tie =
        lora->options.keep_tie && foreign.at != NULL && strstr(foreign.at, "lm_head.") != NULL;
    sheaf__text_release(&foreign);
    if (tie)
        return sheaf_try_this(
            st,
            "LoRA on a table that stays tied (ensure_weight_tying) is merged, not run: sheaf merge BASE ADAPTER MERGED, then MERGED without the adapter");
    return sheaf__lora_try_base(st, &lora->options, "");
}
