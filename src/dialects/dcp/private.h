/* private.h - between the files of the reader of torch.distributed.checkpoint. */
#pragma once

#include "catalog/boxes.h"
#include "dialects/common/dialects.h"
#include "dialects/common/megatron_model.h"

/* A file that .metadata names. */
typedef struct dcp_file {
    char *path;      /* owned */
    int64_t size;    /* -1 = not there */
    int64_t wanted;  /* bytes that the items reach */
    int64_t lost;    /* tensors of which a chunk could not be had */
    char first[256]; /* one of them */
} dcp_file;

/* Where an item lies. */
typedef struct dcp_item {
    const char *key, *name; /* its tensor's; its file's, NULL = none that is taken */
    int ndim;               /* -1: no tensor */
    int64_t offset[SHEAF_PICKLE_MAX_DIMS];
    int64_t file; /* -1 = a name that leaves the folder */
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
    const char *wrapper;       /* the dict around the model's and the optimizer's; NULL = none */
    const char *top;           /* the dict that holds the model's tensors; NULL = keys are names */
    bool top_within;           /* it is in `wrapper` */
    int64_t optimizer, others; /* tensors that are not read */
    char *other;               /* one of the latter */
} dcp_reading;

/* sheaf__dcp_metadata - fills `meta`; NULL where it cannot be had, with a finding.
 * sheaf__dcp_items - then item, file and path of what it says. */
sheaf_status *sheaf__dcp_metadata(dcp_reading *r);
sheaf_status *sheaf__dcp_items(dcp_reading *r);
/* sheaf__dcp_chunk - the chunk of a tensor as a piece of it; *found false when it is not there
 * (with a finding). */
sheaf_status *sheaf__dcp_chunk(sheaf_piece *out, bool *found, dcp_reading *r, const char *key,
                               int ndim, const int64_t *offsets, const int64_t *sizes,
                               sheaf_dtype *dtype);
/* sheaf__dcp_path - the path of a key in the dict that was saved; NULL when it is not known. */
const sheaf_pickle *sheaf__dcp_path(const dcp_reading *r, const char *key);
/* sheaf__dcp_value - a number stored under `key`; false when there is none. */
bool sheaf__dcp_value(int64_t *out, dcp_reading *r, const char *key);
/* sheaf__dcp_wrapper - finds `wrapper`. sheaf__dcp_tensors - every tensor of .metadata into the
 * catalog. */
void sheaf__dcp_wrapper(dcp_reading *r);
sheaf_status *sheaf__dcp_tensors(dcp_reading *r);
