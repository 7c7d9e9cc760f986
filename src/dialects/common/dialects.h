/* dialects.h - the table of what can be read, and how a folder is recognised. */
#pragma once

#include "catalog/catalog.h"
#include "formats/pickle.h"

struct sheaf_dialect;

typedef enum sheaf_want { SHEAF_WANT_ANY, SHEAF_WANT_MODEL, SHEAF_WANT_ADAPTER } sheaf_want;

typedef struct sheaf_dialect_hints {
    const char *from;                /* --from: the dialect by its name; NULL = recognise it */
    const struct sheaf_dialect *own; /* asked before those of the table: sheaf's own, which knows
                                        the manifest of a higher room; NULL */
    sheaf_want want;                 /* anything else is refused, with what it is */
    bool as_stored;   /* tensors of Hugging Face's and PEFT's files as they lie there: neither held
                         against a config nor spelled or cut by it, because the caller does */
    bool buffers;     /* with as_stored: rotary_emb.inv_freq of old files too */
    bool moments;     /* with as_stored: optimizer.safetensors beside a model too */
    bool config_only; /* no weights are wanted, where the config does without them */
    const char *config;      /* --config FILE: the model's config where the folder has none; NULL */
    const char *model;       /* --model-class, when the user insists; NULL */
    bool drop_unread;        /* what cannot be read ("unread") is left out, with a warning */
    const char *const *also; /* further folders that may hold parts of the same checkpoint, ends
                                with NULL; or NULL */
} sheaf_dialect_hints;

/* The rows; what each program writes stands at the top of its part. */
extern const sheaf_dialect sheaf__dialect_hf, sheaf__dialect_peft, sheaf__dialect_sat,
    sheaf__dialect_deepspeed, sheaf__dialect_megatron, sheaf__dialect_dcp, sheaf__dialect_fsdp,
    sheaf__dialect_colossalai;
/* All that are known, the most particular first; ends with NULL. */
extern const sheaf_dialect *const sheaf__dialects[];

/* sheaf__dialect_of - the first whose is() says yes; NULL when none does. */
const sheaf_dialect *sheaf__dialect_of(const char *path);
/* sheaf__dialect_named - NULL when there is none; see sheaf__nearest() for a better name. */
const sheaf_dialect *sheaf__dialect_named(const char *name);

/* sheaf__dialect_read - a catalog of what lies at `path`, as the dialect's read() fills it. */
sheaf_status *sheaf__dialect_read(sheaf_catalog **out, const sheaf_dialect *dialect,
                                  const char *path, const sheaf_dialect_hints *hints);
/* sheaf__dialect_check - what follows a dialect's read(): sheaf__catalog_check() and _ranks(), and
 * are the weights of a dtype that can be run? */
sheaf_status *sheaf__dialect_check(sheaf_catalog *catalog, const sheaf_dialect_hints *hints);
/* sheaf__dialect_denied - SHEAF_E_IO with the first path, of those with a defect (catalog may be
 * NULL) and of what lies at or up to four folders below `path`, that this process may not read;
 * NULL when there is none. */
sheaf_status *sheaf__dialect_denied(const char *path, const sheaf_catalog *catalog);
/* sheaf__dialect_unread - a value at `name` of a PyTorch file that is no tensor here: a finding
 * "unread" where it is, or holds, one for its program. *noted (may be NULL) says whether there
 * was one. */
sheaf_status *sheaf__dialect_unread(bool *noted, sheaf_catalog *catalog, const char *path,
                                    const char *name, const sheaf_pickle *value);
