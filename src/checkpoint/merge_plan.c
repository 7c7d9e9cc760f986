/* merge_plan.c - see merge_plan.h. */
#include "checkpoint/merge_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/stream.h"
#include "dialects/peft.h"

#define PREFIX "base_model.model."
static const char head_in_adapter[] = PREFIX "lm_head.weight";

/* PEFT can keep a tie: both uses get one trained table. What counts is what the file
 * holds, name by name, so a head that is there is one more saved module. */
static sheaf_status *head_by_name(sheaf_lora_options *o, sheaf_source *adapter)
{
    if (!o->keep_tie || adapter->find(adapter, head_in_adapter) == NULL)
        return NULL;
    char **list = realloc(o->modules_to_save, (size_t)(o->nmodules_to_save + 1) * sizeof *list);
    if (list == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "merge");
    o->modules_to_save = list;
    if ((list[o->nmodules_to_save] = strdup("lm_head")) == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "merge");
    o->nmodules_to_save++;
    o->keep_tie = false;
    return NULL;
}

static sheaf_status *open_base(sheaf__merge_plan *p, const sheaf_merge_options *o)
{
    char *path = NULL;
    sheaf_status *st = o->config == NULL ? sheaf_hf_config_path(&path, o->base) : NULL;
    if (st == NULL)
        st = sheaf_config_read(&p->config, o->config != NULL ? o->config : path);
    free(path);
    if (st == NULL)
        st = sheaf_hf_open(&p->base, o->base);
    sheaf_schema *as_stored = NULL;
    if (st == NULL)
        st = sheaf_schema_new(&as_stored, &p->config, 1);
    if (st == NULL)
        st = sheaf_in(sheaf_hf_check(p->base, as_stored), "%s", o->base);
    sheaf_schema_free(as_stored);
    return st;
}

static sheaf_status *open_adapter(sheaf__merge_plan *p, const sheaf_merge_options *o)
{
    char *path = NULL;
    sheaf_lora_options options;
    sheaf_status *st = sheaf_peft_config_path(&path, o->adapter);
    if (st == NULL)
        st = sheaf_lora_options_read(&options, path);
    free(path);
    if (st != NULL)
        return st;
    st = sheaf_peft_open(&p->adapter, o->adapter);
    if (st == NULL)
        st = head_by_name(&options, p->adapter);
    if (options.unknown_keys != NULL)
        sheaf_warn(o->events, "adapter_config.json has keys sheaf does not know: %s", options.unknown_keys);
    sheaf_config output = p->config;
    p->was_tied = p->config.tied;
    output.tied = p->config.tied && !sheaf_lora_unties(&options, &p->config);
    if (st == NULL)
        st = sheaf_schema_new(&p->schema, &output, 1);
    if (st == NULL)
        st = sheaf_in(sheaf_lora_resolve(&p->lora, p->schema, &options), "%s", o->adapter);
    sheaf_lora_options_release(&options);
    return st != NULL ? st : sheaf_in(sheaf_lora_check(p->lora, p->adapter), "%s", o->adapter);
}

/* What the adapter has for a tensor, beside A and B. */
static sheaf_status *find_whole(sheaf__merge_tensor *t, const sheaf__merge_plan *p, const sheaf_tensor *logical)
{
    for (int i = 0; i < p->lora->nsaved; i++)
        if (p->lora->saved[i] == logical) {
            t->whole = p->lora->saved_name[i];
            t->saved = true;
        }
    for (int i = 0; i < p->lora->nmodules; i++)
        if (p->lora->module[i].base == logical)
            t->module = &p->lora->module[i];
    if (t->module != NULL && t->whole == NULL) {
        /* PEFT stores a copy of a targeted table, and on loading puts it over the base's. */
        char name[256];
        snprintf(name, sizeof name, PREFIX "%s.base_layer.weight", logical->module);
        const sheaf_source_entry *copy = p->adapter->find(p->adapter, name);
        t->whole = copy != NULL ? copy->name : NULL;
    }
    if (t->whole == NULL)
        return NULL;
    const sheaf_source_entry *e = p->adapter->find(p->adapter, t->whole);
    t->whole_dtype = e->dtype;
    bool same = e->ndim == logical->ndim;
    for (int i = 0; i < e->ndim && same; i++)
        same = e->shape[i] == logical->shape[i];
    if (same && (e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", t->whole);
    sheaf_expected(st, "%" PRId64 " rows, as the base has", logical->shape[0]);
    sheaf_found(st, "%" PRId64 " rows of %s", e->ndim > 0 ? e->shape[0] : 1, sheaf_dtype_name(e->dtype));
    return sheaf_try_this(st, "a base whose vocabulary was resized in the same way; sheaf does not resize tables yet");
}

static sheaf_status *plan_tensor(sheaf__merge_plan *p, int64_t i, const sheaf_merge_options *o)
{
    sheaf__merge_tensor *t = &p->tensor[i];
    const sheaf_tensor *logical = sheaf_schema_find(p->schema, p->specs[i].name);
    *t = (sheaf__merge_tensor){ .name = logical->name, .base_name = logical->name, .ndim = logical->ndim };
    if (p->was_tied && logical->role == SHEAF_HEAD)
        t->base_name = "model.embed_tokens.weight";
    const sheaf_source_entry *e = p->base->find(p->base, t->base_name);
    t->base_dtype = e->dtype;
    t->out_dtype = o->dtype != NULL ? *o->dtype : e->dtype;
    p->specs[i].dtype = t->out_dtype;
    t->rows = logical->shape[0];
    t->cols = logical->ndim > 1 ? logical->shape[1] : 1;
    memcpy(t->shape, logical->shape, sizeof logical->shape);
    t->chunk = sheaf__stream_chunk(t->rows, t->cols);
    sheaf_status *st = find_whole(t, p, logical);
    if (st != NULL)
        return st;
    if (t->chunk * t->cols > p->most_elements)
        p->most_elements = t->chunk * t->cols;
    if (t->module != NULL && t->chunk * t->module->rank > p->most_rank)
        p->most_rank = t->chunk * t->module->rank;
    return NULL;
}

sheaf_status *sheaf__merge_plan_open(sheaf__merge_plan *p, const sheaf_merge_options *o)
{
    *p = (sheaf__merge_plan){ 0 };
    sheaf_status *st = open_base(p, o);
    if (st == NULL)
        st = open_adapter(p, o);
    if (st == NULL)
        st = sheaf_hf_specs(&p->specs, &p->count, p->schema, NULL, SHEAF_F32);
    if (st == NULL && (p->tensor = calloc((size_t)p->count, sizeof *p->tensor)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "merge");
    for (int64_t i = 0; i < p->count && st == NULL; i++)
        st = plan_tensor(p, i, o);
    if (st != NULL)
        sheaf__merge_plan_close(p);
    return st;
}

void sheaf__merge_plan_close(sheaf__merge_plan *p)
{
    free(p->tensor);
    free(p->specs);
    sheaf_lora_free(p->lora);
    if (p->adapter != NULL)
        p->adapter->close(p->adapter);
    if (p->base != NULL)
        p->base->close(p->base);
    sheaf_schema_free(p->schema);
    sheaf_config_release(&p->config);
    *p = (sheaf__merge_plan){ 0 };
}
