/* verify_adapter.c - see verify.h. merge, eval and train check shapes against the base model. */
#include "base/base.h"
#include "catalog/over_source.h"
#include "checkpoint/tools/verify.h"

#include "lora/check_file.h"

/* Once for each tensor and code: two tensors of a layer may lack the same one. */
static sheaf_status *tell(void *self, const char *code, const char *tensor, sheaf_status *wrong)
{
    sheaf_catalog *c = self;
    const sheaf_logical *t = sheaf__catalog_find(c, tensor);
    bool again = false;
    for (int64_t i = 0; i < c->nfindings && !again; i++)
        again = strcmp(c->finding[i].code, code) == 0 && strcmp(c->finding[i].tensor, tensor) == 0;
    sheaf_status *st =
        again ? NULL
              : sheaf__defect(c, code, t != NULL ? sheaf__catalog_path_of(c, t) : c->root, tensor,
                              sheaf_status_expected(wrong), sheaf_status_try(wrong), "%s",
                              sheaf_status_found(wrong));
    sheaf_status_free(wrong);
    return st;
}

typedef sheaf_status *check(const sheaf_lora_options *options, sheaf_source *adapter,
                            sheaf_lora_report *tell, void *self);

static sheaf_status *run(check *of, sheaf_catalog *c, const sheaf_lora_options *options)
{
    sheaf__over_source list = { 0 }; /* the tensors without their values */
    sheaf_status *st = sheaf__over_init(&list, c->count);
    for (int64_t i = 0; i < c->count && st == NULL; i++)
        st = sheaf__over_add(&list, strdup(c->tensor[i].entry.name), c->tensor[i].entry);
    TRY(st, sheaf__catalog_sort(c));
    if (st == NULL)
        sheaf__over_sort(&list);
    TRY(st, of(options, &list.source, tell, c));
    sheaf__over_release(&list);
    return st != NULL && sheaf_status_code(st) == SHEAF_E_ARG /* an invalid regular expression */
               ? sheaf__catalog_defect(c, c->config_path, st)
               : st;
}

static bool is_told(const sheaf_catalog *c)
{
    bool reported = c->config == NULL || c->config_path == NULL;
    for (int64_t i = 0; i < c->nfindings && !reported; i++) /* not JSON */
        reported = c->finding[i].severity == SHEAF_DEFECT &&
                   strcmp(c->finding[i].path, c->config_path) == 0;
    return reported;
}

sheaf_status *sheaf__verify_adapter(sheaf_catalog *c)
{
    sheaf_lora_options options;
    if (is_told(c))
        return NULL;
    sheaf_status *st = sheaf_lora_options_read(&options, c->config_path, NULL);
    if (st != NULL)
        return sheaf__catalog_defect(c, c->config_path, st);
    if (options.unknown_keys != NULL)
        st = sheaf__warning(c, "foreign", c->config_path, "", "keys of an adapter's config", "",
                            "keys that sheaf does not know: %s", options.unknown_keys);
    TRY(st, run(sheaf_lora_check_parts, c, &options));
    sheaf_lora_options_release(&options);
    return st;
}

sheaf_status *sheaf__verify_alone(sheaf_catalog *c, const sheaf_lora_options *options)
{
    return run(sheaf_lora_check_alone, c, options);
}
