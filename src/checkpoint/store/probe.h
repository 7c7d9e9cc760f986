/* probe.h - the kind of checkpoint at a path, and its tensors as one source.
 *
 * The contents of a folder decide: adapter_config.json or adapter_model.safetensors (PEFT),
 * manifest.json (a training checkpoint of sheaf), checkpoints/ (the --out of a run), otherwise a
 * model in any dialect (dialects/common/dialects.h), whose tensors are undivided and have their
 * canonical names. A .safetensors file is a kind of its own. */
#pragma once

#include "checkpoint/store/checkpoint.h"
#include "dialects/common/dialects.h"
#include "sheaf/checkpoint.h"

typedef struct sheaf_probe {
    sheaf_weights_kind kind;
    sheaf_source *source; /* NULL for a run */
    char *config;         /* path of config.json or adapter_config.json, NULL if there is none */
    sheaf_checkpoint *checkpoint; /* of SHEAF_WEIGHTS_CHECKPOINT */
    bool tied;                    /* a model whose config ties lm_head to embed_tokens */
    const char *dialect;          /* "hf", "sat", ...; a literal */
} sheaf_probe;

/* sheaf_probe_open - all: include unmerged LoRA factors and optimizer moments ("exp_avg.NAME") in a
 * model's folder. Errors: SHEAF_E_IO if nothing is there; those of the dialect; the first defect of
 * a checkpoint that is not whole. */
sheaf_status *sheaf_probe_open(sheaf_probe *out, const char *path, bool all);
/* sheaf_probe_open_as - by a given dialect or config. */
sheaf_status *sheaf_probe_open_as(sheaf_probe *out, const char *path,
                                  const sheaf_dialect_hints *hints);
void sheaf_probe_close(sheaf_probe *probe);
const char *sheaf_probe_kind_name(sheaf_weights_kind kind); /* "model", "adapter", ... */

/* sheaf__entry_view - rows and columns of a tensor in a source's read(): two axes as they are; one
 * axis is n rows of 1; of more axes all but the last are rows. */
void sheaf__entry_view(int64_t *rows, int64_t *cols, const sheaf_source_entry *entry);

/* sheaf__checkpoint_source - the undivided tensors of a checkpoint, which must stay open. */
sheaf_status *sheaf__checkpoint_source(sheaf_source **out, sheaf_checkpoint *checkpoint);

/* ---- sheaf's own checkpoints as a dialect ---- */

extern const sheaf_dialect sheaf__dialect_own; /* "sheaf" */

/* Context of sheaf__own_found(), a sheaf_damages.found that adds a finding for each new damage. */
typedef struct sheaf__own_damages {
    sheaf_catalog *catalog;
    const char *dir;
    sheaf_status *st;
} sheaf__own_damages;
void sheaf__own_found(void *context, const char *file, const char *tensor, const char *expected,
                      const char *is);

/* sheaf__any_read - sheaf__open() with sheaf's own dialect as hints->own. */
sheaf_status *sheaf__any_read(sheaf_catalog **out, const char *path,
                              const sheaf_dialect_hints *hints);
