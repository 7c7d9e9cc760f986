/* catalog.h - Hugging Face folders as catalogs, and what other dialects of whole files share.
 *
 * hf.h opens a folder that must be right; this reads one that may be wrong: every part that is
 * missing, foreign, stale, double, cut short or of another shape becomes a finding. */
#ifndef SHEAF_DIALECTS_HF_CATALOG_H
#define SHEAF_DIALECTS_HF_CATALOG_H

#include "dialects/common/dialects.h"
#include "sheaf/config.h"

extern const sheaf_dialect sheaf__dialect_hf;

/* ---- whole tensors in files (catalog_files.c) ---- */

typedef struct sheaf__whole {
    sheaf_catalog *catalog;
    sheaf_status *(*rename)(char **out, const char *stored); /* NULL: names stay */
    const char *prefix; /* put before each name ("exp_avg."), or NULL */
    sheaf_kind kind;
    int rank;     /* of the pieces; -1 = whole */
    bool buffers; /* keep rotary_emb.inv_freq of the text layers too */
    /* told of each tensor before it is taken; false leaves it out. NULL: all are taken. */
    bool (*wants)(void *context, const char *path, const char *name);
    void *context;
} sheaf__whole;

/* sheaf__whole_file - the tensors of a .safetensors or PyTorch file (dicts inside are followed;
 * names in them are joined with dots). One that is there already becomes a finding. *read is false
 * when the file could not be read: then a finding says why. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__whole_file(bool *read, const sheaf__whole *whole, const char *path);
/* sheaf__is_torch_name - .bin, .pt, .pth */
bool sheaf__is_torch_name(const char *name);
bool sheaf__ends_with(const char *text, const char *end);

/* ---- the index of shards ---- */

typedef struct sheaf__names {
    char **at;
    int64_t count;
} sheaf__names; /* of a folder, sorted */
bool sheaf__names_has(const sheaf__names *names, const char *name);

/* sheaf__whole_folder - the weights in `dir`, whose files are `names`, by an index or by their
 * names. `stem` is "model", or "" for any. Sets *damaged when a part could not be read: what is
 * missing then has its reason. */
sheaf_status *sheaf__whole_folder(bool *damaged, sheaf__whole *whole, const char *dir,
                                  const sheaf__names *names);

/* ---- which model (catalog_model.c) ---- */

/* sheaf__catalog_take_config - the text of `path` into catalog->config; what is wrong with it
 * becomes a finding. */
sheaf_status *sheaf__catalog_take_config(sheaf_catalog *catalog, const char *path);
/* sheaf__catalog_find_config - hints->config, else dir/name where there is one. */
sheaf_status *sheaf__catalog_find_config(sheaf_catalog *catalog, const sheaf_dialect_hints *hints,
                                         const char *dir, const char *name);
/* sheaf__catalog_check_model - recognises the model by its tensors, holds them against the config:
 * class, names, shapes, rows of the vocabulary (padding is cut off, a part of a divided table is
 * named). `damaged`: parts could not be read, so missing tensors are not listed one by one. */
sheaf_status *sheaf__catalog_check_model(sheaf_catalog *catalog, bool damaged);
/* sheaf__catalog_check_layers - a Llama whose layers differ from each other, or from what is around
 * them, is not whole: for checkpoints of training, which have no config. */
sheaf_status *sheaf__catalog_check_layers(sheaf_catalog *catalog);
/* sheaf__config_cure - what to do about a config that is missing or another model's (malloc'd): the
 * command that verifies with one that lies in or beside the root and fits the tensors, else where
 * to put one. */
sheaf_status *sheaf__config_cure(char **out, const sheaf_catalog *catalog);
/* sheaf__config_note - a finding with this cure. */
sheaf_status *sheaf__config_note(sheaf_catalog *catalog, sheaf_severity severity, const char *code,
                                 const char *path, const char *tensor, const char *expected,
                                 const char *found);
/* sheaf__family_of - by the names of the tensors: "llama", "qwen2", "cogvlm", "cogagent"; NULL. */
const char *sheaf__family_of(const sheaf_catalog *catalog);
/* sheaf__vocabulary_ways - p for which `rows` is one rank's part of `vocab` rows that were padded
 * first; 0 = none. */
int sheaf__vocabulary_ways(int64_t rows, int64_t vocab, int64_t *padded);
/* sheaf__vocabulary_padded - could `rows` be `vocab` rows and padding? */
bool sheaf__vocabulary_padded(int64_t rows, int64_t vocab);
/* sheaf__tokenizer_rows - tokens that the tokenizer in `dir` knows, and the file that says so
 * (malloc'd); -1 and NULL where there is none that can be read. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__tokenizer_rows(int64_t *rows, char **path, const char *dir);
/* sheaf__catalog_check_rows - holds the rows of a table against the vocabulary: cuts padding off,
 * notes what is missing. */
sheaf_status *sheaf__catalog_check_rows(sheaf_catalog *catalog, sheaf_logical *tensor,
                                        int64_t vocab);
/* sheaf__is_vocabulary - is it one of the two tables? */
bool sheaf__is_vocabulary(const char *name);
/* sheaf__show_shape - "[511, 64]" */
const char *sheaf__show_shape(char text[128], int ndim, const int64_t *shape);

#endif
