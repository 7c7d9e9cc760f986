/* settle.c - decisions once all tensors of an adapter are matched: the orientation of square
 * weights, and whether the file has all that adapter_config.json requires. See matcher.h. */
#include "base/base.h"
#include "checkpoint/merge/matcher.h"

#include "lora/check_file.h"
#include "lora/match.h"
#include "schema/family.h"

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
static bool is_across(const sheaf__matcher *m, const sheaf__merge_tensor *t)
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

void sheaf__merge_settle_squares(sheaf__matcher *m)
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
    const sheaf__matcher *m = self;
    for (int64_t i = 0; i < m->plan->count; i++)
        if (strncmp(m->plan->tensor[i].name, begin, strlen(begin)) == 0)
            return true;
    return false;
}

/* Tensors without a gradient: an adapter may name their modules and not hold them. */
static bool is_never_trained(const sheaf__matcher *m, const char *name)
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

sheaf_status *sheaf__merge_check_required(sheaf__matcher *m, const sheaf__merge_tensor *t,
                                          bool may_lack)
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
