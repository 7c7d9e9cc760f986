/* names.c - finds the tensor of the base that a name in the adapter refers to; see matcher.h. */
#include "base/base.h"
#include "checkpoint/merge/matcher.h"
#include "lora/names.h"
#include "lora/match.h"

sheaf__merge_tensor *sheaf__merge_find(sheaf__merge_plan *p, const char *name)
{
    return SHEAF_FIND(sheaf__merge_tensor, name, p->tensor, p->count, name);
}

bool sheaf__merge_is_float(sheaf_dtype dtype)
{
    return dtype == SHEAF_F32 || dtype == SHEAF_BF16 || dtype == SHEAF_F16;
}

static sheaf_status *find(sheaf__merge_tensor **out, sheaf__matcher *m, const char *name)
{
    char *new = NULL;
    *out = NULL;
    if (m->alias == NULL) {
        *out = sheaf__merge_find(m->plan, name);
        return NULL;
    }
    const sheaf__alias *alias = SHEAF_FIND(sheaf__alias, name, m->alias, m->plan->count, name);
    sheaf_status *st = alias == NULL ? sheaf__renames_apply(&new, m->renames, name) : NULL;
    if (alias == NULL && st == NULL) {
        alias = SHEAF_FIND(sheaf__alias, name, m->alias, m->plan->count, new);
        m->old_names |= alias != NULL;
    }
    free(new);
    *out = alias == NULL ? NULL : alias->tensor;
    return st;
}

sheaf_status *sheaf__merge_place(sheaf__merge_tensor **out, sheaf__matcher *m, const char *path,
                                 const char *end)
{
    *out = NULL;
    if (m->ndrop > 0 && strlen(path) > m->ndrop && strncmp(path, m->drop, m->ndrop) == 0)
        path += m->ndrop;
    sheaf_status *st = NULL;
    for (int added = 0; added < (m->add != NULL ? 2 : 1) && st == NULL && *out == NULL; added++) {
        char *name = NULL;
        if (asprintf(&name, "%s%s%s", added ? m->add : "", path, end) < 0)
            return sheaf__no_memory("merge");
        st = find(out, m, name);
        free(name);
    }
    return st;
}

const char *sheaf__merge_alias(const sheaf__matcher *m, const sheaf__merge_tensor *t)
{
    return m->alias != NULL ? t->alias : t->name;
}

void sheaf__merge_forget_names(sheaf__matcher *m)
{
    for (int64_t i = 0; m->alias != NULL && i < m->plan->count; i++)
        free(m->alias[i].name);
    free(m->alias);
    sheaf__renames_free(m->renames);
    m->alias = NULL;
    m->renames = NULL;
    m->old_names = false;
}

/* Does the base have a weight for every module of the adapter? */
static sheaf_status *all_placed(bool *yes, sheaf__matcher *m)
{
    sheaf_source *source = m->adapter->source;
    sheaf_status *st = NULL;
    *yes = true;
    for (int64_t i = 0; i < source->count(source) && *yes && st == NULL; i++) {
        const char *begin;
        size_t length;
        sheaf__merge_tensor *t = NULL;
        const sheaf_lora_part kind =
            sheaf__lora_part(&begin, &length, source->entry(source, i)->name);
        const bool whole = kind == SHEAF_PART_WHOLE;
        if (!whole && kind != SHEAF_PART_A && kind != SHEAF_PART_TABLE_A &&
            kind != SHEAF_PART_TOKENS)
            continue;
        char *path = strndup(begin, length);
        st = path == NULL ? sheaf__no_memory("merge")
                          : sheaf__merge_place(&t, m, path, whole ? "" : ".weight");
        free(path);
        *yes = t != NULL;
    }
    return st;
}

/* "transformer.h.0" is "h.0" in files of the bare model; an adapter of the bare model has
 * "layers.0" for "model.layers.0". Such a difference is accepted if it explains all names. */
static sheaf_status *try_prefixes(bool *yes, sheaf__matcher *m, const sheaf_events *events)
{
    static const char *const before[] = { "transformer.",    "model.",    "base_model.",
                                          "language_model.", "encoder.",  "bert.",
                                          "roberta.",        "gpt_neox.", "vit.",
                                          "deit.",           "beit.",     "dinov2.",
                                          "swin.",           "segformer." };
    sheaf_status *st = all_placed(yes, m);
    for (size_t i = 0; i < 2 * (sizeof before / sizeof *before) && st == NULL && !*yes; i++) {
        const char *prefix = before[i / 2];
        m->drop = i % 2 == 0 ? prefix : NULL;
        m->ndrop = m->drop != NULL ? strlen(prefix) : 0;
        m->add = i % 2 == 1 ? prefix : NULL;
        st = all_placed(yes, m);
        if (*yes)
            sheaf_note(events, "%s: its names %s '%s', which the base's %s", m->adapter->path,
                       m->drop != NULL ? "begin with" : "lack", prefix,
                       m->drop != NULL ? "lack" : "begin with");
    }
    if (!*yes) {
        m->drop = m->add = NULL;
        m->ndrop = 0;
    }
    return st;
}

/* Renames all tensors by one group of rules; *apart: no two get the same name. */
static sheaf_status *make_aliases(bool *apart, sheaf__matcher *m, int group)
{
    const int64_t n = m->plan->count;
    sheaf_status *st = sheaf__renames_new(&m->renames, group);
    *apart = true;
    if (st == NULL)
        m->alias = calloc((size_t)n + 1, sizeof *m->alias);
    if (st == NULL && m->alias == NULL)
        st = sheaf__no_memory("merge");
    for (int64_t i = 0; i < n && st == NULL; i++) {
        m->alias[i].tensor = &m->plan->tensor[i];
        st = sheaf__renames_apply(&m->alias[i].name, m->renames, m->plan->tensor[i].name);
        m->plan->tensor[i].alias = m->alias[i].name;
    }
    if (st != NULL)
        return st;
    qsort(m->alias, (size_t)n, sizeof *m->alias, sheaf__by_name);
    for (int64_t i = 1; i < n; i++)
        *apart = *apart && strcmp(m->alias[i].name, m->alias[i - 1].name) != 0;
    return NULL;
}

static void tell_renamed(const sheaf__matcher *m, const sheaf_events *events)
{
    const char *form = sheaf__renames_form(m->renames, m->old_names);
    if (form != NULL) {
        sheaf_note(events, "%s: its names are those of %s of this model", m->adapter->path, form);
        return;
    }
    if (m->old_names) {
        sheaf_note(events, "%s: its names are those of an older transformers than the base's",
                   m->adapter->path);
        return;
    }
    for (int64_t i = 0; i < m->plan->count; i++)
        if (strcmp(m->alias[i].name, m->alias[i].tensor->name) != 0) {
            sheaf_note(
                events,
                "%s: its names are those that transformers gives this model on load: '%s' is '%s' in the base",
                m->adapter->path, m->alias[i].name, m->alias[i].tensor->name);
            return;
        }
}

sheaf_status *sheaf__merge_settle_names(sheaf__matcher *m, const sheaf_events *events)
{
    bool yes = false;
    sheaf_status *st = try_prefixes(&yes, m, events);
    for (int group = 0; group < sheaf__renames_groups() && st == NULL && !yes; group++) {
        bool apart = false;
        st = make_aliases(&apart, m, group);
        TRY(st, apart ? try_prefixes(&yes, m, events) : NULL);
        if (st == NULL && yes)
            tell_renamed(m, events);
        else
            sheaf__merge_forget_names(m);
    }
    return st;
}
