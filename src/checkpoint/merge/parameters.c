/* parameters.c - adapters on parameters that hold several tensors of the base: the matrices of all
 * experts of a layer. Each tensor gets the factors that are its own (lora/stacked.h), after which
 * it is merged as any other. Needs the base's schema. */
#include "base/base.h"
#include "checkpoint/merge/plan.h"
#include "lora/match.h"
#include "lora/names.h"
#include "lora/stacked.h"

sheaf_status *sheaf__merge_refuse_parameters(const sheaf__merge_adapter *a, const char *what)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED,
                                  "%s: 'target_parameters' (LoRA on bare parameters)", a->path);
    sheaf_expected(st, "experts of a base that sheaf runs, and one adapter after the other");
    sheaf_found(st, "%s", what);
    return sheaf_try_this(st, "PEFT's merge_and_unload()");
}

/* Every entry must name a tensor, or a parameter of several. */
static sheaf_status *check_entries(const sheaf__merge_adapter *a, const sheaf_schema *schema)
{
    for (int i = 0; i < a->options.parameters.n; i++) {
        const char *item = a->options.parameters.list[i];
        bool found = false;
        for (int64_t k = 0; k < schema->count && !found; k++)
            found = sheaf__lora_parameter(&schema->tensor[k], item) != NULL;
        if (!found)
            return sheaf__merge_refuse_parameters(a, item);
    }
    return NULL;
}

/* Has the file, saved whole, a parameter that several tensors of the base are, or one of another
 * name? */
static bool saves_parameter(const sheaf__merge_adapter *a, const sheaf_schema *schema)
{
    char name[512];
    bool any = false;
    for (int64_t i = 0; i < schema->count && !any; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (t->stack.of == NULL || t->stack.member > 0)
            continue;
        snprintf(name, sizeof name, SHEAF_PEFT_PREFIX "%s", t->stack.of);
        any = a->source->find(a->source, name) != NULL;
    }
    return any;
}

sheaf_status *sheaf__merge_spread_parameters(sheaf__merge_adapter *a, sheaf_schema *schema)
{
    if (a->options.parameters.n == 0 && (schema == NULL || !saves_parameter(a, schema))) {
        sheaf_schema_free(schema);
        return NULL;
    }
    a->schema = schema;
    if (schema == NULL)
        return sheaf__merge_refuse_parameters(a, "a base whose config.json sheaf does not read");
    sheaf_status *st = check_entries(a, schema);
    if (st != NULL)
        return st;
    st = sheaf_lora_resolve(&a->lora, schema, &a->options);
    return sheaf_in(TRY(st, sheaf__lora_unstack(&a->source, a->lora, true)), "%s", a->path);
}

const sheaf_lora_module *sheaf__merge_parameter(sheaf__merge_adapter *a, const char *path)
{
    const int n = a->lora == NULL ? 0 : a->lora->nmodules;
    for (int i = 0; i < n; i++) { /* factors are matched in about this order */
        const sheaf_lora_module *m = &a->lora->module[(a->at + i) % n];
        if (m->parameter != NULL && strcmp(m->base->module, path) == 0) {
            a->at = (int)(m - a->lora->module);
            return m;
        }
    }
    return NULL;
}
