/* settle.c - what an adapter's tensors tell only once all are matched: which way round its square
 * weights lie, and whether the file has all that adapter_config.json asks for. See matcher.h. */
#include "checkpoint/merge/matcher.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lora/check_file.h"
#include "lora/match.h"
#include "schema/family.h"

/* ---- square weights: stored [out, in], or as GPT-2's Conv1D [in, out]? ---- */

static const char *last_name(char buffer[128], const char *tensor)
{
    const char *end = strrchr(tensor, '.'), *begin = end;
    while (begin != NULL && begin > tensor && begin[-1] != '.')
        begin--;
    snprintf(buffer, 128, "%.*s", end == NULL ? 0 : (int)(end - begin), begin == NULL ? "" : begin);
    return buffer;
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
    static const char *const types[] = { "gpt2", "openai-gpt",  "imagegpt", "decision_transformer",
                                         "clvp", "clvp_decoder" };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i], model_type) == 0)
            return true;
    return false;
}

/* Weights of the same last name that are not square tell; then the kind of model; then the flag. */
bool sheaf__merge_is_across(const sheaf__matcher *m, const sheaf__merge_tensor *t)
{
    char mine[128], other[128];
    last_name(mine, t->name);
    for (int64_t i = 0; i < m->plan->count; i++) {
        const sheaf__merge_step *s = step_of(&m->plan->tensor[i], m->number);
        if (s != NULL && !s->square && !s->rounded &&
            strcmp(mine, last_name(other, m->plan->tensor[i].name)) == 0)
            return s->across;
    }
    if (m->plan->model_type[0] == '\0')
        return m->adapter->options.fan_in_fan_out;
    return has_conv1d(m->plan->model_type) && strncmp(mine, "c_", 2) == 0;
}

/* ---- the config against the tensors ---- */

/* Has the output a tensor whose name begins so? */
static bool has_name(const void *self, const char *begin)
{
    const sheaf__matcher *m = self;
    for (int64_t i = 0; i < m->plan->count; i++)
        if (strncmp(m->plan->tensor[i].name, begin, strlen(begin)) == 0)
            return true;
    return false;
}

/* No training changes them, so an adapter may name their modules and not hold them. */
static bool is_never_trained(const sheaf__matcher *m, const char *name)
{
    const sheaf__family *family;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->idle != NULL && family->idle(name, has_name, m))
            return true;
    return false;
}

sheaf_status *sheaf__merge_check_asked(sheaf__matcher *m, const sheaf__merge_tensor *t,
                                       bool may_lack)
{
    const sheaf_lora_options *o = &m->adapter->options;
    const bool mine = t->whole != NULL && t->whole_number == m->number && t->saved;
    const char *const name = sheaf__merge_alias(m, t), *const dot = strrchr(name, '.');
    if (dot == NULL || may_lack || !sheaf__merge_is_float(t->base->dtype))
        return NULL;
    char *module = NULL;
    sheaf_status *st = sheaf__merge_module(&module, name, (size_t)(dot - name), "");
    if (st != NULL)
        return st;
    const bool saved = sheaf__lora_saves(o, module), bias = strcmp(dot, ".bias") == 0;
    const bool all = o->bias == SHEAF_BIAS_ALL && sheaf__lora_saves_bias(o, name) &&
                     !(m->leaves_named && sheaf__lora_named_bias(o, name));
    bool lacks = (saved || all) && !mine;
    if (bias && o->bias == SHEAF_BIAS_LORA_ONLY && !mine &&
        sheaf__merge_part(m, module, strlen(module), ".lora_A.weight") != NULL)
        lacks = true;
    if (lacks && !is_never_trained(m, t->name)) {
        st = sheaf_lora_missing(name, strlen(name), "");
    } else if (!lacks && strcmp(dot, ".weight") == 0 && t->ndim >= 2 && !saved && !o->all_linear) {
        sheaf_hit hit;
        st = sheaf__lora_hit(&hit, o, module);
        if (st == NULL && hit == SHEAF_HIT_TARGET && step_of(t, m->number) == NULL)
            st = sheaf_lora_missing(name, (size_t)(dot - name), ".lora_A.weight");
    }
    free(module);
    return st;
}
