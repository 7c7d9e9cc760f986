/* dialects.h - the table of dialects, and how a folder is recognised. */
#pragma once

#include "catalog/catalog.h"
#include "formats/pickle.h"

struct sheaf_dialect;

typedef enum sheaf_want { SHEAF_WANT_ANY, SHEAF_WANT_MODEL, SHEAF_WANT_ADAPTER } sheaf_want;

typedef struct sheaf_dialect_hints {
    const char *from;                /* --from: the dialect by its name; NULL = recognise it */
    const struct sheaf_dialect *own; /* tried before the table: sheaf's own dialect, which reads the
                                        manifest of a higher room; NULL */
    sheaf_want want;                 /* anything else is refused by its kind */
    bool as_stored; /* tensors of Hugging Face's and PEFT's files as stored: neither checked against
                       a config nor renamed or cut by it; the caller does that */
    bool buffers;   /* with as_stored: rotary_emb.inv_freq of old files too */
    bool moments;   /* with as_stored: optimizer.safetensors beside a model too */
    bool raw; /* with as_stored: weights in 4 or 8 bits as the tensors that their files hold */
    bool config_only;   /* only the config is needed */
    const char *config; /* --config FILE: the model's config where the folder has none; NULL */
    const char *model;  /* --model-class; NULL: not given */
    bool drop_unread;   /* leave out what cannot be read ("unread"), with a warning */
    const char *const
        *also; /* more folders with parts of the checkpoint, ends with NULL; or NULL */
} sheaf_dialect_hints;

/* The rows; the file of each describes what its program writes. */
extern const sheaf_dialect sheaf__dialect_hf, sheaf__dialect_peft, sheaf__dialect_sat,
    sheaf__dialect_deepspeed, sheaf__dialect_megatron, sheaf__dialect_dcp, sheaf__dialect_fsdp,
    sheaf__dialect_colossalai, sheaf__dialect_gguf, sheaf__dialect_gguf_lora,
    sheaf__dialect_gguf_mmproj;
/* All dialects, the most specific first; ends with NULL. */
extern const sheaf_dialect *const sheaf__dialects[];

/* sheaf__dialect_of - the first whose is() says yes; NULL when none does. */
const sheaf_dialect *sheaf__dialect_of(const char *path);
/* sheaf__dialect_named - NULL when there is none; see sheaf__nearest() for a suggestion. */
const sheaf_dialect *sheaf__dialect_named(const char *name);

/* sheaf__dialect_read - a catalog of `path`, filled by the dialect's read(). */
sheaf_status *sheaf__dialect_read(sheaf_catalog **out, const sheaf_dialect *dialect,
                                  const char *path, const sheaf_dialect_hints *hints);
/* sheaf__dialect_check - the checks after a dialect's read(): sheaf__catalog_check() and _ranks(),
 * and the dtypes of weights. */
sheaf_status *sheaf__dialect_check(sheaf_catalog *catalog, const sheaf_dialect_hints *hints);
/* sheaf__dialect_denied - SHEAF_E_IO with the first path that this process may not read, among
 * those with a defect (catalog may be NULL) and those at `path` or up to four folders below; NULL
 * when there is none. */
sheaf_status *sheaf__dialect_denied(const char *path, const sheaf_catalog *catalog);
/* sheaf__dialect_unread - for a value `name` of a PyTorch file that is no tensor for sheaf: a
 * finding "unread" if it is or contains a tensor for its program. *noted (may be NULL): there was a
 * finding. */
sheaf_status *sheaf__dialect_unread(bool *noted, sheaf_catalog *catalog, const char *path,
                                    const char *name, const sheaf_pickle *value);
