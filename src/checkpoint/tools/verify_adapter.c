/* verify_adapter.c - see verify_adapter.h. Shapes against a base model are for who has one: merge,
 * eval, train. */
#include "checkpoint/tools/verify_adapter.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lora/adapter.h"
#include "lora/match.h"
#include "lora/names.h"

static const char *path_of(const sheaf_catalog *c, const sheaf_logical *t)
{
    return t->npieces > 0 ? c->file[t->piece[0].file].path : c->root;
}

/* The rank that a factor has: rows of A, columns of B; -1 for a shape that is none. */
static int64_t rank_of(const sheaf_logical *t, sheaf_lora_part part)
{
    const bool a = part == SHEAF_PART_A || part == SHEAF_PART_TABLE_A;
    return t->told.ndim < 2 ? -1 : t->told.shape[a ? 0 : 1];
}

static sheaf_status *check_rank(sheaf_catalog *c, const sheaf_logical *t,
                                const sheaf_lora_options *o, sheaf_lora_part part, const char *path,
                                size_t length)
{
    char *module = strndup(path, length), expected[64];
    double rank = 0;
    sheaf_status *st = module == NULL
                           ? sheaf_fail(SHEAF_E_MEMORY, "%s", c->root)
                           : sheaf__lora_pattern_value(&rank, o->rank_pattern, o->nrank_pattern,
                                                       module, (double)o->rank);
    free(module);
    if (st != NULL)
        return sheaf__catalog_defect(c, c->config_path, st);
    const int64_t is = rank_of(t, part);
    if (is == (int64_t)rank)
        return NULL;
    snprintf(expected, sizeof expected, "rank %" PRId64 ", by adapter_config.json", (int64_t)rank);
    static const char cure[] = "give the adapter_config.json that belongs to these factors";
    return is < 0 ? sheaf__catalog_note(c, SHEAF_DEFECT, "shape", path_of(c, t), t->told.name,
                                        expected, "no two axes", cure)
                  : sheaf__catalog_notef(c, SHEAF_DEFECT, "shape", path_of(c, t), t->told.name,
                                         expected, cure, "rank %" PRId64, is);
}

static sheaf_status *check_tensor(sheaf_catalog *c, const sheaf_logical *t,
                                  const sheaf_lora_options *o)
{
    const char *path;
    size_t length;
    const sheaf_lora_part part = sheaf__lora_part(&path, &length, t->told.name);
    const sheaf_dtype d = t->told.dtype;
    sheaf_status *st = NULL;
    if (part == SHEAF_PART_FOREIGN)
        st = sheaf__catalog_note(c, SHEAF_DEFECT, "foreign", path_of(c, t), t->told.name,
                                 "a part of LoRA that sheaf knows", "a name like one", "");
    if (st == NULL && d != SHEAF_F32 && d != SHEAF_BF16 && d != SHEAF_F16)
        st = sheaf__catalog_note(c, SHEAF_DEFECT, "unsupported", path_of(c, t), t->told.name,
                                 "F32, BF16 or F16", sheaf_dtype_name(d), "");
    if (st == NULL && (part == SHEAF_PART_A || part == SHEAF_PART_B || part == SHEAF_PART_TABLE_A ||
                       part == SHEAF_PART_TABLE_B))
        st = check_rank(c, t, o, part, path, length);
    return st;
}

sheaf_status *sheaf__verify_adapter(sheaf_catalog *c)
{
    sheaf_lora_options options;
    if (c->config == NULL || c->config_path == NULL)
        return NULL; /* told when it was read */
    for (int64_t i = 0; i < c->nfindings; i++)
        if (c->finding[i].severity == SHEAF_DEFECT &&
            strcmp(c->finding[i].path, c->config_path) == 0)
            return NULL; /* likewise: it is no JSON */
    sheaf_status *st = sheaf_lora_options_read_merge(&options, c->config_path);
    if (st != NULL)
        return sheaf__catalog_defect(c, c->config_path, st);
    for (int64_t i = 0; st == NULL && i < c->count; i++)
        st = check_tensor(c, &c->tensor[i], &options);
    sheaf_lora_options_release(&options);
    return st;
}
