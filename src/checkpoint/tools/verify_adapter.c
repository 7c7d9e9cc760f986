/* verify_adapter.c - see verify.h. Shapes against a base model are for who has one: merge,
 * eval, train. */
#include "base/base.h"
#include "checkpoint/tools/verify.h"

#include "lora/check_file.h"

/* A catalog's tensors as a source without values. */
typedef struct listing {
    sheaf_source source; /* first */
    sheaf_catalog *catalog;
} listing;

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const sheaf_logical *t = sheaf__catalog_find(((listing *)self)->catalog, name);
    return t == NULL ? NULL : &t->told;
}

static int64_t count(sheaf_source *self)
{
    return ((listing *)self)->catalog->count;
}

static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    return &((listing *)self)->catalog->tensor[i].told;
}

/* Once for each tensor and code: two neighbours of a layer may miss the same. */
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
                            sheaf_lora_tell *tell, void *self);

static sheaf_status *run(check *of, sheaf_catalog *c, const sheaf_lora_options *options)
{
    listing l = { .source = { .find = find, .count = count, .entry = entry }, .catalog = c };
    sheaf_status *st = sheaf__catalog_sort(c);
    TRY(st, of(options, &l.source, tell, c));
    return st != NULL && sheaf_status_code(st) == SHEAF_E_ARG /* an expression that is none */
               ? sheaf__catalog_defect(c, c->config_path, st)
               : st;
}

static bool is_told(const sheaf_catalog *c)
{
    bool told = c->config == NULL || c->config_path == NULL;
    for (int64_t i = 0; i < c->nfindings && !told; i++) /* it is no JSON */
        told = c->finding[i].severity == SHEAF_DEFECT &&
               strcmp(c->finding[i].path, c->config_path) == 0;
    return told;
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
