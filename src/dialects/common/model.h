/* model.h - which model is it, and are these its tensors? Checks of every dialect's catalog: the
 * config, names and shapes, rows of the vocabulary. */
#pragma once

#include "dialects/common/dialects.h"
#include "schema/family.h"
#include "schema/schema.h"

/* sheaf__catalog_take_config - reads the text of `path` into catalog->config; its errors become
 * findings. */
sheaf_status *sheaf__catalog_take_config(sheaf_catalog *catalog, const char *path);
/* sheaf__catalog_drop_config - removes a text that is no config. */
void sheaf__catalog_drop_config(sheaf_catalog *catalog);
/* sheaf__catalog_find_config - hints->config, else dir/name where there is one. */
sheaf_status *sheaf__catalog_find_config(sheaf_catalog *catalog, const sheaf_dialect_hints *hints,
                                         const char *dir, const char *name);
/* sheaf__catalog_read_model - for states of training: --config, or config.json in the first of
 * `dirs` (ends with NULL) that has one, determines the model and its vocabulary; `schema` (may be
 * NULL) gets its tensors, NULL without a usable config. Errors of the config become findings. */
sheaf_status *sheaf__catalog_read_model(sheaf_schema **schema, sheaf_catalog *catalog,
                                        const sheaf_dialect_hints *hints, const char *const *dirs);
/* sheaf__catalog_keeps_buffers - do files of the config's family hold the frequencies of the rotary
 * embedding, so that they count? false without a config. */
bool sheaf__catalog_keeps_buffers(const sheaf_catalog *catalog);
/* sheaf__catalog_unstack - by the config, where there is a usable one: parameters as transformers 5
 * has them in memory (sheaf_tensor.stack) become the tensors of the model, and their moments
 * theirs. A parameter of another shape becomes a finding. */
sheaf_status *sheaf__catalog_unstack(sheaf_catalog *catalog);
sheaf_status *sheaf__catalog_unstack_by(sheaf_catalog *catalog, const sheaf_schema *schema);
/* sheaf__catalog_recognise - determines the model and its vocabulary from the names of whole
 * tensors, where there is no config. */
sheaf_status *sheaf__catalog_recognise(sheaf_catalog *catalog);
/* sheaf__catalog_check_model - recognises the model by its tensors and checks them against the
 * config: class, names, shapes, rows of the vocabulary (removes padding, reports a part of a
 * divided table). `damaged`: parts could not be read, so missing tensors are not listed. */
sheaf_status *sheaf__catalog_check_model(sheaf_catalog *catalog, bool damaged);
/* sheaf__catalog_check_schema - checks names and shapes against the schema: findings for missing
 * tensors (unless `damaged`), other shapes, and further tensors. `vocab`: rows of the vocabulary,
 * where a table may have others; -1: it may not. */
sheaf_status *sheaf__catalog_check_schema(sheaf_catalog *catalog, const sheaf_schema *schema,
                                          int64_t vocab, bool damaged);
/* sheaf__catalog_check_layers - for training checkpoints without a config: findings if the layers
 * of a Llama differ from each other or do not fit the tensors around them. */
sheaf_status *sheaf__catalog_check_layers(sheaf_catalog *catalog);
/* sheaf__config_cure - the remedy for a config that is missing or another model's. */
static inline const char *sheaf__config_cure(const sheaf_catalog *c)
{
    return c->dialect->config == NULL
               ? "give the path of this model's config.json with `config`, or put it beside the weights"
               : "give the path of this model's model_config.json with `config`, or put it beside the "
                 "weights";
}
/* sheaf__family_of - by the names of the tensors: "llama", "qwen2", "cogvlm", "cogagent"; NULL. */
const char *sheaf__family_of(const sheaf_catalog *catalog);
/* sheaf__tokenizer_rows - number of tokens of the tokenizer in `dir`, and the file that says so; -1
 * without a readable one. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__tokenizer_rows(int64_t *rows, char path[SHEAF_PATH_SIZE], const char *dir);
/* sheaf__catalog_check_rows - checks the rows of a table against the vocabulary: removes padding,
 * reports missing rows. */
sheaf_status *sheaf__catalog_check_rows(sheaf_catalog *catalog, sheaf_logical *tensor,
                                        int64_t vocab);

extern const char sheaf__head_name[]; /* "lm_head.weight" */

/* sheaf__tied_head - SHEAF_E_LAYOUT where the head is neither the table nor the table rounded to 16
 * bits, as some programs store it. *copy (may be NULL): it is the table in another precision. */
sheaf_status *sheaf__tied_head(bool *copy, sheaf_source *source, const char *table);

/* sheaf__catalog_tied_head - the same for a catalog whose config ties them, which a note of
 * sheaf__catalog_check_model() says: another head becomes a defect, a rounded one is left out. */
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
