/* model.h - which model is it, and are these its tensors? What every dialect asks once it has a
 * catalog: the config, names and shapes, rows of the vocabulary. */
#pragma once

#include "dialects/common/dialects.h"
#include "schema/family.h"
#include "schema/schema.h"

/* sheaf__catalog_take_config - the text of `path` into catalog->config; what is wrong with it
 * becomes a finding. */
sheaf_status *sheaf__catalog_take_config(sheaf_catalog *catalog, const char *path);
/* sheaf__catalog_drop_config - there is none: what was taken is no config. */
void sheaf__catalog_drop_config(sheaf_catalog *catalog);
/* sheaf__catalog_find_config - hints->config, else dir/name where there is one. */
sheaf_status *sheaf__catalog_find_config(sheaf_catalog *catalog, const sheaf_dialect_hints *hints,
                                         const char *dir, const char *name);
/* sheaf__catalog_read_model - for states of training: --config, or config.json in the first of
 * `dirs` (ends with NULL) that has one, says the model and its vocabulary; `schema` (may be NULL)
 * gets its tensors, NULL where no config says them. What is wrong with it becomes a finding. */
sheaf_status *sheaf__catalog_read_model(sheaf_schema **schema, sheaf_catalog *catalog,
                                        const sheaf_dialect_hints *hints, const char *const *dirs);
/* sheaf__catalog_recognise - what the names of whole tensors say the model is, where no config
 * does; its vocabulary. */
sheaf_status *sheaf__catalog_recognise(sheaf_catalog *catalog);
/* sheaf__catalog_check_model - recognises the model by its tensors, holds them against the config:
 * class, names, shapes, rows of the vocabulary (padding is cut off, a part of a divided table is
 * named). `damaged`: parts could not be read, so missing tensors are not listed one by one. */
sheaf_status *sheaf__catalog_check_model(sheaf_catalog *catalog, bool damaged);
/* sheaf__catalog_check_schema - names and shapes against the tensors that a config asks for: what
 * is missing (unless `damaged`), of another shape, or more. `vocab`: rows of the vocabulary, where
 * a table may have others; -1: it may not. */
sheaf_status *sheaf__catalog_check_schema(sheaf_catalog *catalog, const sheaf_schema *schema,
                                          int64_t vocab, bool damaged);
/* sheaf__catalog_check_layers - a Llama whose layers differ from each other, or from what is around
 * them, is not whole: for checkpoints of training, which have no config. */
sheaf_status *sheaf__catalog_check_layers(sheaf_catalog *catalog);
/* sheaf__config_cure - what to do about a config that is missing or another model's. */
const char *sheaf__config_cure(const sheaf_catalog *catalog);
/* sheaf__family_of - by the names of the tensors: "llama", "qwen2", "cogvlm", "cogagent"; NULL. */
const char *sheaf__family_of(const sheaf_catalog *catalog);
/* sheaf__tokenizer_rows - tokens that the tokenizer in `dir` knows, and the file that says so; -1
 * where there is none that can be read. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__tokenizer_rows(int64_t *rows, char path[SHEAF_PATH_SIZE], const char *dir);
/* sheaf__catalog_check_rows - holds the rows of a table against the vocabulary: cuts padding off,
 * notes what is missing. */
sheaf_status *sheaf__catalog_check_rows(sheaf_catalog *catalog, sheaf_logical *tensor,
                                        int64_t vocab);

extern const char sheaf__head_name[]; /* "lm_head.weight" */

/* sheaf__tied_head - SHEAF_E_LAYOUT where the head is neither the table nor the table rounded to 16
 * bits, which programs leave there that store it from the rounded weights. *copy (may be NULL): it
 * has the table's numbers in other bits. */
sheaf_status *sheaf__tied_head(bool *copy, sheaf_source *source, const char *table);

/* sheaf__catalog_tied_head - the same of a catalog whose config ties them, as a note says that the
 * check of the model left: another head becomes a defect, a rounded one is left out. */
sheaf_status *sheaf__catalog_tied_head(sheaf_catalog *catalog);

/* ---- the names of all tensors ---- */

static inline const char *sheaf__name_in_catalog(const void *self, int64_t i)
{
    return ((const sheaf_catalog *)self)->tensor[i].entry.name;
}
static inline sheaf__tensor_names sheaf__catalog_names(const sheaf_catalog *c)
{
    return (sheaf__tensor_names){ sheaf__name_in_catalog, c, c->count };
}

static inline const char *sheaf__name_in_source(const void *self, int64_t i)
{
    sheaf_source *source = (sheaf_source *)self;
    return source->entry(source, i)->name;
}
static inline sheaf__tensor_names sheaf__source_names(sheaf_source *source)
{
    return (sheaf__tensor_names){ sheaf__name_in_source, source, source->count(source) };
}
