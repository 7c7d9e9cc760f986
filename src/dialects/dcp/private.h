/* private.h - between the files of the reader of torch.distributed.checkpoint. */
#pragma once

#include "catalog/boxes.h"
#include "dialects/common/dialects.h"
#include "dialects/common/megatron_model.h"

/* A file that .metadata names. */
typedef struct dcp_file {
    char *path;      /* owned */
    int64_t size;    /* -1 = missing */
    int64_t wanted;  /* end of its last item, in bytes */
    int64_t lost;    /* tensors that lack a chunk */
    char first[256]; /* the name of one of them */
} dcp_file;

/* The place of an item. */
typedef struct dcp_item {
    const char *key, *name; /* of its tensor; of its file, NULL = ignored */
    int ndim;               /* -1: no tensor */
    int64_t offset[SHEAF_PICKLE_MAX_DIMS];
    int64_t file; /* -1 = its name leads out of the folder */
    int64_t begin, length;
    bool changed; /* compressed or otherwise transformed */
} dcp_item;

typedef struct dcp_path {
    const char *key;
    const sheaf_pickle *path;
} dcp_path;

typedef struct dcp_reading {
    sheaf_catalog *c;
    const sheaf_dialect_hints *hints;
    const char *dir;
    sheaf_pickle_doc *meta; /* .metadata */
    dcp_file *file;
    int64_t nfiles;
    dcp_item *item; /* by key, then offsets */
    int64_t nitems;
    dcp_path *path; /* of planner_data, by key */
    int64_t npaths;
    sheaf_torch *common; /* common.pt; NULL = none */
    bool megatron;
    sheaf__megatron model;
    const char *wrapper; /* key of the dict around those of model and optimizer; NULL = none */
    const char *top;     /* key of the dict with the model's tensors; NULL = keys are names */
    bool top_within;     /* it is in `wrapper` */
    int64_t optimizer, others; /* unread tensors */
    char *other;               /* name of one of the others */
} dcp_reading;

/* sheaf__dcp_metadata - reads `meta`; NULL, with a finding, if that fails. sheaf__dcp_items - then
 * fills item, file and path from it. */
sheaf_status *sheaf__dcp_metadata(dcp_reading *r);
sheaf_status *sheaf__dcp_items(dcp_reading *r);
/* sheaf__dcp_chunk - a chunk of a tensor as a piece; *found false when it is missing (with a
 * finding). */
sheaf_status *sheaf__dcp_chunk(sheaf_piece *out, bool *found, dcp_reading *r, const char *key,
                               int ndim, const int64_t *offsets, const int64_t *sizes,
                               sheaf_dtype *dtype);
/* sheaf__dcp_path - the path of a key in the saved dict; NULL: unknown. */
const sheaf_pickle *sheaf__dcp_path(const dcp_reading *r, const char *key);
/* sheaf__dcp_value - a number stored under `key`; false when there is none. */
bool sheaf__dcp_value(int64_t *out, dcp_reading *r, const char *key);
/* sheaf__dcp_wrapper - sets `wrapper`. sheaf__dcp_tensors - adds every tensor of .metadata to the
 * catalog. */
void sheaf__dcp_wrapper(dcp_reading *r);
sheaf_status *sheaf__dcp_tensors(dcp_reading *r);
