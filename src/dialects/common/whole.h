/* whole.h - files of whole tensors, by themselves or as the shards of a folder.
 *
 * Every part that is missing, foreign, stale, duplicate or truncated becomes a finding. */
#pragma once

#include "catalog/catalog.h"
#include "schema/family.h"

/* ---- one file (whole_file.c) ---- */

typedef struct sheaf__whole {
    sheaf_catalog *c;
    sheaf_status *(*rename)(char **out, const char *stored); /* NULL: names stay */
    sheaf_kind kind;
    int rank;       /* of the pieces; -1 = whole */
    bool as_stored; /* dtypes with elements below a byte too, which cannot be read */
    bool buffers;   /* keep rotary_emb.inv_freq of the text layers too */
    /* called before a tensor is taken; false leaves it out. NULL: all are taken. */
    bool (*wants)(void *context, const char *path, const char *name);
    void *context;
} sheaf__whole;

/* sheaf__whole_file - the tensors of a .safetensors or PyTorch file (dicts inside are followed;
 * names in them are joined with dots). A duplicate name becomes a finding. *read is false if the
 * file could not be read, which is a finding too. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__whole_file(bool *read, const sheaf__whole *whole, const char *path);
/* sheaf__is_old_buffer - a constant that follows from config.json, as in files from before 2023? */
bool sheaf__is_old_buffer(const char *name);
/* sheaf__is_torch_name - .bin, .pt, .pth */
bool sheaf__is_torch_name(const char *name);

/* ---- a folder of them ---- */

typedef struct sheaf__names {
    char **at;
    int64_t count;
} sheaf__names; /* of a folder, sorted */
bool sheaf__names_has(const sheaf__names *names, const char *name);

/* sheaf__whole_folder - the weights in `dir`, whose files are `names`, by an index or by their
 * names. `stem` is "model", or "" for any. Sets *damaged when a part could not be read, which
 * explains missing tensors. */
sheaf_status *sheaf__whole_folder(bool *damaged, sheaf__whole *whole, const char *dir,
                                  const sheaf__names *names);
/* sheaf__is_weights - is it, by its name, a file of weights, not an adapter's or an optimizer's? */
bool sheaf__is_weights(const char *name);
/* sheaf__is_weights_index - is it, by its name, an index of shards? */
bool sheaf__is_weights_index(const char *name);
/* sheaf__shard_of - the number of shards in a shard's name; 0 = none. */
int64_t sheaf__shard_of(const char *path);

/* sheaf__rank_parts_join - the tensors of single ranks in `first` (NULL: none) and `also` (folders
 * and files, ends with NULL, or NULL; except those that satisfy `is_other`) into the catalog:
 * completes tables that have only rank 0's rows, or joins all tensors if it is empty. */
sheaf_status *sheaf__rank_parts_join(sheaf_catalog *catalog, const char *first,
                                     const char *const *also, bool (*is_other)(const char *path));
