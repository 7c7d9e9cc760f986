/* exclude.c - does each entry of --lora-exclude match a module of the model? */
#include "base/base.h"
#include "lora/adapter.h"
#include "lora/paths.h"

/* Does `one`, of one entry, exclude the module of this tensor? */
static sheaf_status *is_excluded(bool *yes, const sheaf_schema *schema,
                                 const sheaf_lora_options *one, const sheaf_tensor *t)
{
    sheaf_hit hit = SHEAF_HIT_NONE;
    *yes = false;
    if (t->bias || strcmp(t->name, t->module) == 0)
        return NULL;
    sheaf_status *st = sheaf__lora_by_paths(schema) ? sheaf__lora_paths_hit(&hit, one, schema, t)
                                                    : sheaf__lora_hit(&hit, one, t->module);
    *yes = hit == SHEAF_HIT_EXCLUDED;
    return st;
}

/* The names of what is around layers mean nothing themselves: an expression reaches inside. */
static sheaf_status *excludes_nothing(const sheaf_schema *schema, const char *item, bool expression)
{
    char inside[160];
    snprintf(inside, sizeof inside, ".%.150s.", item);
    if (expression) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "expression '%s'", item);
        sheaf_expected(st, "one that matches the whole path of a module, for example %s",
                       schema->tensor[schema->count / 2].module);
        return sheaf_found(st, "no module that it matches");
    }
    for (int64_t i = 0; i < schema->count; i++) {
        const char *path = schema->tensor[i].module;
        if (strstr(path, inside) == NULL && strncmp(path, inside + 1, strlen(inside) - 1) != 0)
            continue;
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "module to exclude '%s'", item);
        sheaf_found(sheaf_expected(st, "a module with weights"), "one around others, as %s", path);
        return sheaf_try_this(st, "an expression for what is inside: \"(.*\\.)?%s\\..*\"", item);
    }
    return sheaf__lora_no_module(schema, "module to exclude", item);
}

sheaf_status *sheaf_lora_check_exclude(const sheaf_schema *schema, const sheaf_lora_options *o)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < o->exclude.n + (o->exclude.regex != NULL) && st == NULL; i++) {
        const sheaf_lora_options one = {
            .exclude = { i < o->exclude.n ? &o->exclude.list[i] : NULL, i < o->exclude.n,
                         i < o->exclude.n ? NULL : o->exclude.regex }
        };
        bool met = false;
        for (int64_t t = 0; t < schema->count && !met && st == NULL; t++)
            st = is_excluded(&met, schema, &one, &schema->tensor[t]);
        if (st == NULL && !met)
            st = excludes_nothing(schema, i < o->exclude.n ? o->exclude.list[i] : o->exclude.regex,
                                  i == o->exclude.n);
    }
    return st;
}
