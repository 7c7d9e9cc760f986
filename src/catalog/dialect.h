/* dialect.h - properties of a program's checkpoints: one row of the table of dialects.
 *
 * Code tests a dialect's properties by its row, never by its name. The table lies in
 * dialects/ (dialects/common/dialects.h); a catalog points at the row that it was read by. */
#pragma once

#include <stdbool.h>

#include "sheaf/status.h"

struct sheaf_catalog;
struct sheaf_dialect_hints;

/* Outputs of sheaf convert in this form; 0 = it is only read. */
enum {
    SHEAF_WRITES_MODEL = 1,
    SHEAF_WRITES_MOMENTS = 2,
    SHEAF_WRITES_RANKS = 4, /* a model as parts of tensor-parallel ranks */
    SHEAF_WRITES_SLICES = 8,
    SHEAF_WRITES_ADAPTER = 16,
    SHEAF_WRITES_QUANTISED = 32, /* weights in 4 or 8 bits, as bitsandbytes stores them */
    SHEAF_WRITES_BLOCKS = 64,    /* one file, in ggml's types */
};

typedef struct sheaf_dialect {
    const char *name;  /* as --from and --to spell it: "sat" */
    const char *title; /* "SwissArmyTransformer (SAT)" */
    /* is - could `path` be of this dialect? Looks at names of files and first bytes only. */
    bool (*is)(const char *path);
    /* read - everything there is into an empty catalog, with findings; a status only when nothing
     * can be read at all (no such path, no memory). See sheaf__dialect_read(). */
    sheaf_status *(*read)(struct sheaf_catalog *catalog, const char *path,
                          const struct sheaf_dialect_hints *hints);
    const char *config; /* the file that says which model it is; NULL = "config.json" */
    unsigned writes;    /* SHEAF_WRITES_... */
    bool adapter;       /* an adapter, no model */
    bool plain;         /* whole tensors: may be taken as they are stored */
    bool whole;         /* no tensor is divided over ranks */
    bool folders;       /* parts may lie in several folders, given as further sources */
    bool training;      /* a training state without a config: its layers give the model's size */
    bool manifest;      /* has a hash of each of its slices */
    bool hf_config;     /* its config has the keys of Hugging Face's */
    bool own_lora;      /* LoRA may lie beside the weights, of CogVLM and CogAgent, and is merged as
                           its own program does */
} sheaf_dialect;
