/* megatron_model.h - what Megatron's args say about a model, and where its tensors' rows go.
 *
 * Megatron fuses q, k and v group by group (the query rows of a key/value head, its key rows, its
 * value rows), and gate and up; a target says which box of a fused tensor is which box of a tensor
 * of the Llama schema, whose cuts it follows. */
#pragma once

#include "catalog/catalog.h"
#include "formats/pickle.h"
#include "schema/schema.h"

typedef struct sheaf__megatron {
    int64_t layers, hidden, ffn, heads, groups, head_dim; /* 0 = not said */
    int64_t vocab;                                        /* rows of the tables; -1 = not known */
    int64_t padded;                                       /* as stored; -1 = not said */
    int64_t multiple; /* that rows are padded to, times tp; 0 = not said */
    int64_t tp, pp;   /* 0 = not said */
    bool tied;
    sheaf_schema *rows; /* of one layer and of what is around the layers; owned */
} sheaf__megatron;

/* sheaf__megatron_args - reads the Namespace. Args that make another model than a Llama are defects
 * ("unsupported"), with `path`; c->config becomes a config.json of what was said, unless it has
 * one, whose vocabulary then counts; contradictions to it become findings ("class"). */
sheaf_status *sheaf__megatron_args(sheaf__megatron *out, sheaf_catalog *c, const sheaf_pickle *args,
                                   const char *path, const char *config_path);

/* sheaf__megatron_of_config - the sizes of c->config, where there are no args. Without a config, or
 * with one that is not understood, a defect, and m->layers is 0. */
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

/* sheaf__megatron_targets - where the rows of a tensor go that rank `rank` of `ranks` holds.
 *
 *   name   as it stands in the file; of a layer's tensor with its number, or (torch_dist) without
 *   layer  number of the layer in the whole model; replaces that in the name; -1 = outside layers
 *   shape  of the rank's tensor; of torch_dist the whole one with rank 0 of 1
 * The targets are added to *out. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__megatron_targets_of(sheaf__megatron_targets *out, sheaf__megatron_word *word,
                                         const sheaf__megatron *m, const char *name, int64_t layer,
                                         int ndim, const int64_t *shape, int rank, int ranks);
/* sheaf__megatron_layer - the layer number in a name, or -1; *stacked: it is a layer's, but has no
 * number. */
int64_t sheaf__megatron_layer(const char *name, bool *stacked);

/* sheaf__megatron_add - `piece`, whose box counts in Megatron's tensor, as pieces of its
 * targets. */
sheaf_status *sheaf__megatron_add(sheaf_catalog *c, const sheaf__megatron_targets *targets,
                                  const sheaf_piece *piece);
/* sheaf__megatron_complete - vocabulary and padding into the catalog; findings for tensors that the
 * config wants and that are not here. */
sheaf_status *sheaf__megatron_complete(sheaf_catalog *c, const sheaf__megatron *m,
                                       const char *path);
