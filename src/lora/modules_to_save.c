/* modules_to_save.c - base tensors that are trained in full beside the factors. */
#include "base/base.h"
#include "lora/adapter.h"
#include "lora/match.h"
#include "lora/names.h"

bool sheaf__lora_is_saved(const sheaf_lora *lora, const sheaf_tensor *t)
{
    for (int i = 0; i < lora->nsaved; i++)
        if (lora->saved[i] == t)
            return true;
    return false;
}

void sheaf__lora_save(sheaf_lora *lora, const sheaf_tensor *t, char *name)
{
    int at = lora->nsaved++;
    for (; at > 0 && lora->saved[at - 1] > t; at--) { /* pointers into the schema's array */
        lora->saved[at] = lora->saved[at - 1];
        lora->saved_name[at] = lora->saved_name[at - 1];
    }
    lora->saved[at] = t; /* there is space for every tensor of the schema */
    lora->saved_name[at] = name;
}

/* Tensors of one module stand next to each other. */
static bool whole_module(const sheaf_schema *schema, int64_t at,
                         bool (*trains)(void *self, const sheaf_tensor *tensor), void *self)
{
    const sheaf_tensor *t = schema->tensor;
    int64_t first = at, end = at + 1;
    while (first > 0 && strcmp(t[first - 1].module, t[at].module) == 0)
        first--;
    while (end < schema->count && strcmp(t[end].module, t[at].module) == 0)
        end++;
    for (int64_t i = first; i < end; i++)
        if (!t[i].buffer && !trains(self, &t[i]))
            return false;
    return true;
}

sheaf_status *sheaf_lora_save_also(sheaf_lora *lora, const sheaf_schema *schema,
                                   bool (*trains)(void *self, const sheaf_tensor *tensor),
                                   void *self)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (t->buffer || !trains(self, t) || sheaf__lora_is_saved(lora, t))
            continue;
        const bool module = !sheaf__lora_adapts(lora, t->module, strlen(t->module)) &&
                            whole_module(schema, i, trains, self);
        char *name = NULL;
        if (!sheaf__lora_add_name(&lora->options.modules_to_save, module ? t->module : t->name) ||
            asprintf(&name, SHEAF_PEFT_PREFIX "%s", t->name) < 0)
            st = sheaf__no_memory("tensors trained beside the adapter");
        else
            sheaf__lora_save(lora, t, name);
    }
    return st;
}
