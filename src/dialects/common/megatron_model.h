/* megatron_model.h - the model described by Megatron's args, and the destinations of its tensors'
 * rows.
 *
 * Megatron fuses q, k and v group by group (the query rows of a key/value head, its key rows, its
 * value rows), and gate and up; a target maps a box of a fused tensor to a box of a tensor of the
 * Llama schema, whose cuts it follows. */
#pragma once

#include "catalog/catalog.h"
#include "formats/pickle.h"
#include "schema/schema.h"

typedef struct sheaf__megatron {
    int64_t layers, hidden, ffn, heads, groups, head_dim; /* 0 = unknown */
    int64_t vocab;                                        /* rows of the tables; -1 = unknown */
    int64_t padded;                                       /* as stored; -1 = unknown */
    int64_t multiple; /* rows are padded to this times tp; 0 = unknown */
    int64_t tp, pp;   /* 0 = unknown */
    bool tied;
    sheaf_schema *rows; /* of one layer and of the tensors outside of layers; owned */
} sheaf__megatron;

/* sheaf__megatron_args - reads the Namespace. Args of another model than a Llama are defects
 * ("unsupported"), with `path`. c->config becomes a config.json made of the args; a given config
 * stays and its vocabulary counts, and contradictions to it become findings ("class"). */
sheaf_status *sheaf__megatron_args(sheaf__megatron *out, sheaf_catalog *c, const sheaf_pickle *args,
                                   const char *path, const char *config_path);

/* sheaf__megatron_of_config - the sizes in c->config, if there are no args. Without a valid config
 * it is a defect, and m->layers is 0. */
sheaf_status *sheaf__megatron_of_config(sheaf__megatron *m, sheaf_catalog *c, const char *path);

void sheaf__megatron_release(sheaf__megatron *m);

typedef struct sheaf__megatron_target {
    char name[96]; /* of the Llama schema */
    int ndim;
    int64_t shape[2]; /* of the whole tensor */
    bool replicated;
    int64_t from[2], size[2]; /* the box in Megatron's tensor */
    int64_t to[2];
} sheaf__megatron_target;

typedef struct sheaf__megatron_targets {
    sheaf__megatron_target *at;
    int64_t count, capacity;
} sheaf__megatron_targets;

typedef enum sheaf__megatron_word {
    SHEAF_MEGATRON_MAPPED,
    SHEAF_MEGATRON_IGNORED, /* nothing of the model: _extra_state, rotary tables */
    SHEAF_MEGATRON_UNKNOWN, /* no tensor of a Llama model */
    SHEAF_MEGATRON_MISFIT,  /* of a shape that the args rule out */
} sheaf__megatron_word;

/* sheaf__megatron_targets - the targets of a tensor that rank `rank` of `ranks` holds.
 *
 *   name   as stored; with the number of its layer, or (torch_dist) without
 *   layer  number of the layer in the whole model, in place of that in the name; -1: outside layers
 *   shape  of the rank's tensor; for torch_dist of the whole one, with rank 0 of 1
 * The targets are added to *out. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__megatron_targets_of(sheaf__megatron_targets *out, sheaf__megatron_word *word,
                                         const sheaf__megatron *m, const char *name, int64_t layer,
                                         int ndim, const int64_t *shape, int rank, int ranks);
/* sheaf__megatron_layer - the layer number in a name, or -1; *stacked: a layer's tensor without a
 * number. */
int64_t sheaf__megatron_layer(const char *name, bool *stacked);

/* sheaf__megatron_add - adds `piece`, a box of Megatron's tensor, as pieces of its targets. */
sheaf_status *sheaf__megatron_add(sheaf_catalog *c, const sheaf__megatron_targets *targets,
                                  const sheaf_piece *piece);
/* sheaf__megatron_complete - sets vocabulary and padding of the catalog; findings for tensors of
 * the config that are missing. */
sheaf_status *sheaf__megatron_complete(sheaf_catalog *c, const sheaf__megatron *m,
                                       const char *path);
