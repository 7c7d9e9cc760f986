/* match.c - which tensor of the model each tensor of an adapter belongs to; and once all of them
 * are matched the orientation of square weights, and whether the file has all that
 * adapter_config.json requires.
 *
 * The tensors of an adapter name their modules, so no schema is needed. sheaf_lora_check_file() has
 * checked each against the adapter's config. */
#include "base/base.h"
#include "base/text.h"
#include "catalog/boxes.h"
#include "checkpoint/merge/plan.h"
#include "lora/check_file.h"
#include "lora/match.h"
#include "lora/names.h"
#include "schema/family.h"

enum { NAMED = 8 };

typedef struct matcher {
    sheaf__merge_plan *plan;
    sheaf__merge_adapter *adapter;
    int number;
    bool leaves_named; /* sheaf__lora_leaves_named() */
    bool experts;      /* the adapter has LoRA on experts */
    sheaf_text lost;   /* tensors of the adapter that match nothing */
    int nlost;
    char packed[256]; /* of a quantized base: the first packed tensor in place of a weight; "" =
                         none */
} matcher;

static void lose(matcher *m, const char *name)
{
    if (m->nlost++ < NAMED)
        sheaf__text_add(&m->lost, "%s%.200s", m->nlost > 1 ? ", " : "", name);
}

/* The tensor of the output that is called PATH + end; NULL: none. */
static sheaf_status *place(sheaf__merge_tensor **out, const matcher *m, const char *path,
                           const char *end)
{
    char *name = NULL;
    if (asprintf(&name, "%s%s", path, end) < 0)
        return sheaf__no_memory("merge");
    *out = sheaf__merge_find(m->plan, name);
    free(name);
    return NULL;
}

static sheaf_status *wrong_shape(const matcher *m, const sheaf_source_entry *e,
                                 const sheaf__merge_tensor *t, const char *what)
{
    char got[128], want[128];
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", e->name);
    sheaf_expected(st, "%s '%s' %s", what, t->name, sheaf__show_shape(want, t->ndim, t->shape));
    sheaf_found(st, "shape %s", sheaf__show_shape(got, e->ndim, e->shape));
    return sheaf__lora_try_base(st, &m->adapter->options, "");
}

static sheaf_status *check_base_type(const matcher *m, const sheaf__merge_tensor *t)
{
    if (sheaf__merge_is_float(t->base->dtype))
        return NULL;
    if (m->plan->quantized[0] != '\0')
        return sheaf__merge_refuse_quantized(m->plan, t->base->name);
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s' of the base", t->base->name);
    sheaf_found(sheaf_expected(st, "F32, BF16 or F16, because the adapter changes it"), "%s",
                sheaf_dtype_name(t->base->dtype));
    return sheaf_try_this(
        st, "a base that is not quantized: the one the adapter was trained for, in 16 or 32 bits");
}

static sheaf_status *add_step(sheaf__merge_step **out, matcher *m, sheaf__merge_tensor *t)
{
    if (!SHEAF_GROW(&t->step, NULL, t->nsteps + 1))
        return sheaf__no_memory("merge");
    *out = &t->step[t->nsteps++];
    **out = (sheaf__merge_step){ .number = m->number, .adapter = m->adapter->source };
    return check_base_type(m, t);
}

/* ---- what replaces a tensor ---- */

static bool same_shape(const sheaf_source_entry *e, const sheaf__merge_tensor *t)
{
    return sheaf__same_shape(e->ndim, e->shape, t->ndim, t->shape);
}

static sheaf_status *refuse_second(const sheaf__merge_tensor *t, const sheaf_source_entry *e,
                                   int number)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", e->name);
    sheaf_expected(st, "one adapter that changes '%s' before it is replaced", t->name);
    sheaf_found(st, "adapter %d, which replaces the result of an earlier adapter", number + 1);
    return sheaf_try_this(
        st, "if the last one shall win, merge one adapter and then the other into the result");
}

/* A table whose vocabulary was resized before training has the adapter's size. */
static bool is_resized(const sheaf_source_entry *e, const sheaf__merge_tensor *t)
{
    return e->ndim == t->ndim && e->shape[0] > 0 &&
           (e->ndim == 2 ? e->shape[1] == t->shape[1] : e->ndim == 1 && t->table);
}

static sheaf_status *replace(matcher *m, sheaf__merge_tensor *t, const sheaf_source_entry *e,
                             bool saved)
{
    sheaf_status *st = check_base_type(m, t);
    if (st != NULL)
        return st;
    if (saved && (t->nsteps > 0 || t->saved))
        return refuse_second(t, e, m->number);
    if (t->whole != NULL && t->whole_number == m->number) { /* in two spellings, as PEFT's biases */
        st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", e->name);
        return sheaf_found(sheaf_expected(st, "one tensor that replaces '%s'", t->name), "'%s' too",
                           t->whole->name);
    }
    if (!same_shape(e, t)) {
        if (!is_resized(e, t))
            return wrong_shape(m, e, t, "the shape of");
        if (t->nsteps > 0 || t->whole != NULL)
            return refuse_second(t, e, m->number);
        t->shape[0] = t->rows = e->shape[0];
    }
    if (t->saved) /* a later adapter's copy of the base is older than that */
        return NULL;
    t->whole_from = m->adapter->source;
    t->whole = e;
    t->whole_number = m->number;
    t->saved = saved;
    return NULL;
}

/* First pass: tensors that replace the base's. */
static sheaf_status *match_whole(matcher *m, const sheaf_source_entry *e, sheaf_lora_part kind,
                                 const char *path)
{
    sheaf__merge_tensor *t = NULL;
    sheaf_status *st = NULL;
    if (kind == SHEAF_PART_WHOLE) {
        st = place(&t, m, path, "");
        const sheaf_lora_options *o = &m->adapter->options;
        const bool requested = t != NULL && (sheaf__lora_asks_whole(o, path) ||
                                             (o->keep_tie && sheaf__merge_is_other(m->plan, t)));
        if (t == NULL || (!requested && !t->table))
            lose(m, e->name);
        else
            st = replace(m, t, e, requested);
    } else if (kind == SHEAF_PART_BIAS || kind == SHEAF_PART_COPY) {
        st = place(&t, m, path, kind == SHEAF_PART_BIAS ? ".bias" : ".weight");
        const bool trained = m->adapter->options.bias != SHEAF_BIAS_NONE;
        if (st == NULL && t == NULL)
            lose(m, e->name);
        else if (st == NULL)
            st = replace(m, t, e, kind == SHEAF_PART_BIAS && trained);
    }
    return st;
}

/* ---- A and B ---- */

static sheaf_status *set_scale(matcher *m, sheaf__merge_step *s, const char *path)
{
    const sheaf_lora_options *o = &m->adapter->options;
    const sheaf_lora_module *named = sheaf__merge_parameter(m->adapter, path);
    if (named != NULL) {
        s->scale = named->scale;
        return NULL;
    }
    double rank = 0, alpha = 0;
    sheaf_status *st = sheaf__lora_pattern_value(&rank, &o->rank_pattern, path, (double)o->rank);
    TRY(st, sheaf__lora_pattern_value(&alpha, &o->alpha_pattern, path, o->alpha));
    if (st == NULL)
        s->scale = sheaf_lora_scale(alpha, (int64_t)rank, o->rslora);
    return st;
}

/* Do A [r, in], B [out, r] fit the tensor, and which way round? */
static sheaf_status *set_shape(const matcher *m, sheaf__merge_step *s, const sheaf__merge_tensor *t,
                               bool table)
{
    const int64_t in = sheaf__elements(s->a->ndim - 1, s->a->shape + 1), out = s->b->shape[0];
    bool along = !table && t->ndim >= 2 && t->shape[0] == out && t->cols == in;
    const bool across = t->ndim == 2 && s->a->ndim == 2 && t->shape[0] == in && t->cols == out;
    for (int i = 1; i < t->ndim && along; i++) /* a convolution's A has its kernel */
        along = s->a->ndim == t->ndim && s->a->shape[i] == t->shape[i];
    if (!along && !across)
        return wrong_shape(m, s->a, t, "factors that fit");
    s->across = !along;
    s->square = along && across;
    s->rounded = table;
    return NULL;
}

static sheaf_status *set_magnitude(matcher *m, sheaf__merge_step *s, const sheaf__merge_tensor *t,
                                   const char *path)
{
    const sheaf_source_entry *e =
        sheaf__lora_find_part(m->adapter->source, path, strlen(path), ".lora_magnitude_vector");
    s->magnitude = e;
    return e == NULL || sheaf__elements(e->ndim, e->shape) == s->b->shape[0]
               ? NULL
               : wrong_shape(m, e, t, "one magnitude for each output of");
}

/* GPTQ, AWQ and compressed-tensors have other names in place of X.weight. */
static sheaf_status *find_packed(matcher *m, const char *path)
{
    static const char *const ends[] = { ".qweight", ".weight_packed", ".W_q" };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof ends / sizeof *ends && st == NULL && m->packed[0] == '\0'; i++) {
        sheaf__merge_tensor *t = NULL;
        st = place(&t, m, path, ends[i]);
        if (t != NULL)
            snprintf(m->packed, sizeof m->packed, "%s", t->name);
    }
    return st;
}

static sheaf_status *match_delta(matcher *m, const sheaf_source_entry *a, const char *path,
                                 bool table)
{
    sheaf__merge_tensor *t = NULL;
    sheaf__merge_step *s = NULL;
    const sheaf_source_entry *b = sheaf__lora_find_part(
        m->adapter->source, path, strlen(path), table ? ".lora_embedding_B" : ".lora_B.weight");
    sheaf_status *st = place(&t, m, path, ".weight");
    if (st == NULL && t == NULL) {
        lose(m, a->name);
        lose(m, b->name);
        return find_packed(m, path);
    }
    TRY(st, add_step(&s, m, t));
    if (st != NULL)
        return st;
    s->a = a;
    s->b = b;
    s->rank = a->shape[0];
    st = set_shape(m, s, t, table);
    TRY(st, set_scale(m, s, path));
    return st != NULL ? st : set_magnitude(m, s, t, path);
}

static sheaf_status *match_bias(matcher *m, const sheaf_source_entry *e, const char *path)
{
    sheaf__merge_tensor *t = NULL;
    sheaf__merge_step *s = NULL;
    const sheaf_source_entry *a =
        sheaf__lora_find_part(m->adapter->source, path, strlen(path), ".lora_A.weight");
    if (a == NULL) { /* it is a table's */
        lose(m, e->name);
        return NULL;
    }
    sheaf_status *st = place(&t, m, path, ".bias");
    if (st == NULL && t == NULL) {
        st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", e->name);
        sheaf_found(sheaf_expected(st, "a bias of this layer in the base to add it to"),
                    "a layer without bias");
        return sheaf__lora_try_base(st, &m->adapter->options, "");
    }
    TRY(st, !same_shape(e, t) ? wrong_shape(m, e, t, "the shape of") : NULL);
    TRY(st, add_step(&s, m, t));
    if (st != NULL)
        return st;
    s->kind = SHEAF__MERGE_BIAS;
    s->values = e;
    s->a = a;
    s->rank = a->shape[0];
    return set_scale(m, s, path);
}

/* ---- trained rows ---- */

static int by_row(const void *x, const void *y)
{
    const int64_t a = ((const sheaf__merge_pick *)x)->row, b = ((const sheaf__merge_pick *)y)->row;
    return (a > b) - (a < b);
}

/* Rows beyond the base's last come from a resized vocabulary; all of them must be in the adapter,
 * as nothing else has their values. */
static void grow(sheaf__merge_tensor *t, const sheaf__merge_step *s)
{
    int64_t n = 0;
    for (int64_t i = 0; i < s->npicks; i++)
        n += s->pick[i].row >= t->rows;
    if (n > 0 && s->pick[s->npicks - 1].row == t->rows + n - 1)
        t->shape[0] = t->rows = t->rows + n;
}

static sheaf_status *match_rows(matcher *m, const sheaf_source_entry *e, const char *path)
{
    sheaf__merge_tensor *t = NULL;
    sheaf__merge_step *s = NULL;
    const sheaf_lora_tokens *tokens = sheaf__lora_tokens(&m->adapter->options, path, strlen(path));
    sheaf_status *st = place(&t, m, path, ".weight");
    if (st != NULL || t == NULL) {
        lose(m, e->name);
        return st;
    }
    if (t->nsteps > 0 || (t->whole != NULL && t->saved))
        return refuse_second(t, e, m->number);
    if (t->ndim != 2 || e->shape[1] != t->shape[1])
        return wrong_shape(m, e, t, "rows of");
    TRY(st, add_step(&s, m, t));
    if (st != NULL)
        return st;
    s->kind = SHEAF__MERGE_PICKS;
    s->values = e;
    s->npicks = tokens->nrows;
    s->pick = calloc((size_t)tokens->nrows + 1, sizeof *s->pick);
    if (s->pick == NULL)
        return sheaf__no_memory("merge");
    for (int64_t i = 0; i < tokens->nrows; i++)
        s->pick[i] = (sheaf__merge_pick){ tokens->row[i], i };
    qsort(s->pick, (size_t)s->npicks, sizeof *s->pick, by_row);
    if (t->whole == NULL)
        grow(t, s);
    for (int64_t i = 0; i < s->npicks; i++)
        if (s->pick[i].row >= t->rows || (i > 0 && s->pick[i].row == s->pick[i - 1].row)) {
            st = sheaf_fail(SHEAF_E_LAYOUT, "trainable_token_indices");
            sheaf_expected(st, "different rows below %" PRId64 ", the rows of '%s'", t->rows,
                           t->name);
            return sheaf_found(st, "%" PRId64, s->pick[i].row);
        }
    return NULL;
}

/* ---- square weights: stored [out, in], or as GPT-2's Conv1D [in, out]? ---- */

/* "q_proj.weight" of "layers.0.q_proj.weight". */
static const char *last_name(const char *tensor)
{
    int dots = 0;
    const char *at = tensor + strlen(tensor);
    while (at > tensor && (at[-1] != '.' || ++dots < 2))
        at--;
    return at;
}

static const sheaf__merge_step *step_of(const sheaf__merge_tensor *t, int number)
{
    for (int i = 0; i < t->nsteps; i++)
        if (t->step[i].number == number && t->step[i].kind == SHEAF__MERGE_DELTA)
            return &t->step[i];
    return NULL;
}

static bool has_conv1d(const char *model_type)
{
    static const char types[] = "gpt2 openai-gpt imagegpt decision_transformer clvp clvp_decoder";
    return sheaf__is_listed(types, model_type, strlen(model_type));
}

/* Decided by the first non-square weight with the same last name; else by the kind of model; else
 * by the flag. */
static bool is_across(const matcher *m, const sheaf__merge_tensor *t)
{
    const char *name = last_name(t->name);
    for (int64_t i = 0; i < m->plan->count; i++) {
        const sheaf__merge_step *s = step_of(&m->plan->tensor[i], m->number);
        if (s != NULL && !s->square && !s->rounded &&
            strcmp(last_name(m->plan->tensor[i].name), name) == 0)
            return s->across;
    }
    if (m->plan->model_type[0] == '\0')
        return m->adapter->options.fan_in_fan_out;
    return has_conv1d(m->plan->model_type) && strncmp(name, "c_", 2) == 0;
}

/* After all were matched: which square weights are stored as GPT-2's Conv1D, [in, out]. */
static void settle_squares(matcher *m)
{
    enum { KNOWN = 16 }; /* cache by last name: experts are many, their names few */
    struct {
        const char *name;
        bool across;
    } known[KNOWN];
    int n = 0, i;
    for (int64_t at = 0; at < m->plan->count; at++) {
        sheaf__merge_tensor *t = &m->plan->tensor[at];
        for (int k = 0; k < t->nsteps; k++) {
            if (t->step[k].number != m->number || !t->step[k].square)
                continue;
            for (i = 0; i < n && strcmp(known[i].name, last_name(t->name)) != 0; i++) {
            }
            t->step[k].across = i < n ? known[i].across : is_across(m, t);
            if (i == n && n < KNOWN) {
                known[n].name = last_name(t->name);
                known[n++].across = t->step[k].across;
            }
        }
    }
}

/* ---- the config against the tensors ---- */

/* Does the output have a tensor with this prefix? */
static bool has_name(const void *self, const char *begin)
{
    const matcher *m = self;
    for (int64_t i = 0; i < m->plan->count; i++)
        if (strncmp(m->plan->tensor[i].name, begin, strlen(begin)) == 0)
            return true;
    return false;
}

/* Tensors without a gradient: an adapter may name their modules and not hold them. */
static bool is_never_trained(const matcher *m, const char *name)
{
    const sheaf__family *family;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->idle != NULL && family->idle(name, has_name, m))
            return true;
    return false;
}

/* Layers behind the last, for multi-token prediction (MTP), which transformers leaves out. */
static bool is_spare(const sheaf__merge_plan *p, const char *name)
{
    static const char *const before[] = { "",
                                          "model.",
                                          "transformer.",
                                          "language_model.",
                                          "model.language_model.",
                                          "language_model.model." };
    if (strncmp(name, "mtp", 3) == 0 ||
        strstr(name, ".mtp") != NULL) /* mtp_block, mtp_layers too */
        return true;
    for (size_t i = 0; i < sizeof before / sizeof *before && p->layers > 0; i++) {
        long long layer = -1;
        const size_t n = strlen(before[i]);
        if (strncmp(name, before[i], n) == 0 && sscanf(name + n, "layers.%lld.", &layer) == 1)
            return layer >= p->layers;
    }
    return false;
}

/* The adapter's file must have what adapter_config.json requires for this tensor of the base, under
 * any of the tensor's names. */
static sheaf_status *check_required(matcher *m, const sheaf__merge_tensor *t, bool may_lack)
{
    const sheaf_lora_options *o = &m->adapter->options;
    const bool mine = t->whole != NULL && t->whole_number == m->number && t->saved;
    const char *const name = t->name, *const dot = strrchr(name, '.');
    if (dot == NULL || may_lack || is_spare(m->plan, name) ||
        !sheaf__merge_is_float(t->base->dtype))
        return NULL;
    char *module = strndup(name, (size_t)(dot - name));
    sheaf_status *st = NULL;
    if (module == NULL)
        return sheaf__no_memory("merge");
    const bool saved = sheaf__lora_saves(o, module), bias = strcmp(dot, ".bias") == 0;
    const bool all = o->bias == SHEAF_BIAS_ALL && sheaf__lora_saves_bias(o, name) &&
                     !(m->leaves_named && sheaf__lora_named_bias(o, name));
    bool lacks = (saved || all) && !mine;
    if (bias && o->bias == SHEAF_BIAS_LORA_ONLY && !mine &&
        sheaf__lora_find_part(m->adapter->source, module, strlen(module), ".lora_A.weight") != NULL)
        lacks = true;
    if (lacks && !is_never_trained(m, t->name)) {
        st = sheaf_lora_missing(name, strlen(name), "");
    } else if (!lacks && strcmp(dot, ".weight") == 0 && t->ndim >= 2 && !saved && !o->all_linear) {
        sheaf_hit hit;
        st = sheaf__lora_hit(&hit, o, module);
        /* in transformers 5 experts are parameters, not modules: target_modules cannot match them
         */
        const bool fused = !m->experts && strstr(name, ".experts.") != NULL;
        if (st == NULL && hit == SHEAF_HIT_TARGET && !fused && step_of(t, m->number) == NULL)
            st = sheaf_lora_missing(name, (size_t)(dot - name), ".lora_A.weight");
    }
    free(module);
    return st;
}

/* ---- one adapter ---- */

/* Second pass: changes to tensors. */
static sheaf_status *match_change(matcher *m, const sheaf_source_entry *e, sheaf_lora_part kind,
                                  const char *path)
{
    switch (kind) {
    case SHEAF_PART_A: return match_delta(m, e, path, false);
    case SHEAF_PART_TABLE_A: return match_delta(m, e, path, true);
    case SHEAF_PART_B_BIAS: return match_bias(m, e, path);
    case SHEAF_PART_TOKENS: return match_rows(m, e, path);
    default: return NULL;
    }
}

/* Runs one of the passes over all tensors of the adapter, each with the module path in its name. */
static sheaf_status *match_each(matcher *m,
                                sheaf_status *(*pass)(matcher *m, const sheaf_source_entry *e,
                                                      sheaf_lora_part kind, const char *path))
{
    sheaf_source *source = m->adapter->source;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < source->count(source) && st == NULL; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        const char *begin;
        size_t length;
        const sheaf_lora_part kind = sheaf__lora_part(&begin, &length, e->name);
        char *path = strndup(begin, length);
        st = path == NULL ? sheaf__no_memory("merge") : pass(m, e, kind, path);
        free(path);
    }
    return st;
}

static sheaf_status *tell_lost(matcher *m)
{
    const int64_t all = m->adapter->source->count(m->adapter->source);
    if (m->plan->quantized[0] != '\0' && m->packed[0] != '\0')
        return sheaf__merge_refuse_quantized(m->plan, m->packed);
    sheaf_status *st =
        sheaf_fail(SHEAF_E_LAYOUT, "%d of %" PRId64 " tensors of the adapter", m->nlost, all);
    sheaf_expected(st,
                   "tensors that adapter_config.json asks for and this base model has a place for");
    if (m->nlost > NAMED)
        sheaf_found(st, "%s and %d more", m->lost.at != NULL ? m->lost.at : "", m->nlost - NAMED);
    else
        sheaf_found(st, "%s", m->lost.at != NULL ? m->lost.at : "");
    return sheaf__lora_try_base(
        st, &m->adapter->options,
        m->nlost == all
            ? ": none of its tensors has a place in this one. If it is that one, transformers "
              "loads it under other names than its files have, or takes weights apart that they hold as one: merge it with PEFT"
            : ", and its own adapter_config.json");
}

sheaf_status *sheaf__merge_match(sheaf__merge_plan *plan, sheaf__merge_adapter *adapter, int number)
{
    matcher m = { .plan = plan,
                  .adapter = adapter,
                  .number = number,
                  .leaves_named = sheaf__lora_leaves_named(&adapter->options, adapter->source) };
    sheaf_source *source = adapter->source;
    const int64_t n = source->count(source);
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && !m.experts; i++)
        m.experts = strstr(source->entry(source, i)->name, ".experts.") != NULL;
    TRY(st, match_each(&m, match_whole));
    TRY(st, match_each(&m, match_change));
    TRY(st, m.nlost > 0 ? tell_lost(&m) : NULL);
    sheaf__text_release(&m.lost);
    if (st == NULL)
        settle_squares(&m);
    for (int64_t i = 0; i < plan->count && st == NULL; i++) {
        sheaf__merge_tensor *t = &plan->tensor[i];
        if (!adapter->made)
            st = check_required(&m, t, t->made || sheaf__merge_is_other(plan, t));
    }
    return sheaf_in(st, "%s", adapter->path);
}
