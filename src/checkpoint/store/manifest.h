/* manifest.h - private: the file manifest.json of a training checkpoint.
 *
 * It is written last, is a function of the state alone, and holds a hash of
 * everything, itself included: two checkpoints are equal exactly when these files
 * are. docs/checkpoints.md gives the form byte by byte. */
#pragma once

#include "base/base.h"
#include "base/hash.h"
#include "formats/safetensors.h"
#include "sheaf/cut.h"
#include "sheaf/dtype.h"
#include "sheaf/status.h"

/* Version of this format; of the numeric contract, that of docs/contract.md. Every dtype of at
 * least a byte and up to eight axes; tensors of more than two are not cut. */
enum { SHEAF__MANIFEST_VERSION = 1, SHEAF__CONTRACT = 2, SHEAF__MANIFEST_DIMS = 8 };

typedef struct sheaf_manifest_tensor {
    char *name;
    sheaf_dtype dtype; /* SHEAF_F32 from sheaf__manifest_new() */
    int ndim;
    int64_t shape[SHEAF__MANIFEST_DIMS]; /* with one axis, shape[1] = 1 */
    sheaf_cut cut;                       /* nparts 0: replicated */
    sheaf_hash hash;   /* replicated: of the data; cut: of the hashes in `slice`, as bytes */
    sheaf_hash *slice; /* [S], NULL for a replicated one */
} sheaf_manifest_tensor;

typedef struct sheaf_manifest {
    int slices;
    int64_t step;
    char *progress; /* JSON object, keys sorted, one line */
    int64_t *bytes; /* [S + 1] size of each slice's file, then of the replicated one */
    int64_t count;
    sheaf_manifest_tensor *tensor; /* ascending by name */
} sheaf_manifest;

/* sheaf__manifest_new - space for `count` tensors; `slice` of each is NULL. */
sheaf_status *sheaf__manifest_new(sheaf_manifest **out, int slices, int64_t count);
void sheaf__manifest_free(sheaf_manifest *manifest);
/* sheaf__manifest_set - tensor i without its hashes. cut NULL or of no parts: replicated. */
sheaf_status *sheaf__manifest_set(sheaf_manifest *manifest, int64_t i, const char *name,
                                  sheaf_dtype dtype, int ndim, const int64_t *shape,
                                  const sheaf_cut *cut);
/* sheaf__manifest_joined - of a cut tensor: the hash of its slices' hashes. */
sheaf_hash sheaf__manifest_joined(const sheaf_manifest *manifest, int64_t i);
/* sheaf__manifest_join - sets the hash of every cut tensor to that. */
void sheaf__manifest_join(sheaf_manifest *manifest);
/* sheaf__manifest_write - the text, malloc'd. `progress` may be formatted in any way. */
sheaf_status *sheaf__manifest_write(char **text, size_t *size, const sheaf_manifest *manifest);
/* sheaf__manifest_read - errors: SHEAF_E_FORMAT (not a manifest, or its own hash is wrong),
 * SHEAF_E_UNSUPPORTED (another version). */
sheaf_status *sheaf__manifest_read(sheaf_manifest **out, const char *text, size_t size);
/* sheaf__manifest_find - NULL if there is no such tensor. */
const sheaf_manifest_tensor *sheaf__manifest_find(const sheaf_manifest *manifest, const char *name);

/* Name of the file of `slice`, of the replicated tensors when slice == slices. */
const char *sheaf__manifest_file(char buffer[32], int slices, int slice);
/* Bytes of a tensor in the file of `slice`, and their hash. */
int64_t sheaf__manifest_bytes(const sheaf_manifest_tensor *tensor, int slice);
sheaf_hash *sheaf__manifest_hash(const sheaf_manifest_tensor *tensor, int slice);
/* sheaf__manifest_agrees - does an entry of the file of `slice` (NULL: none) match the manifest? */
bool sheaf__manifest_agrees(const sheaf_manifest_tensor *tensor,
                            const sheaf_safetensors_entry *entry, int slice);
/* sheaf__manifest_holds - does the file of `slice` have this tensor? */
bool sheaf__manifest_holds(const sheaf_manifest *manifest, const sheaf_manifest_tensor *tensor,
                           int slice);
/* sheaf__manifest_specs - the tensors of that file, in its order (malloc'd). */
sheaf_status *sheaf__manifest_specs(sheaf_safetensors_spec **out, int64_t *count,
                                    const sheaf_manifest *manifest, int slice);
/* sheaf__manifest_begin - begins the file of `slice` in `dir`, and sets its size in the manifest.
 */
sheaf_status *sheaf__manifest_begin(sheaf_safetensors_writer **out, sheaf_manifest *manifest,
                                    int slice, const char *dir);
