/* checkpoint.h - training checkpoints: atomic, and the same bytes at any number of ranks.
 *
 *   OUT/checkpoints/lock locked by the run that writes here
 *   OUT/checkpoints/step-00000010/ complete when it appears, by one rename
 *       slice_000.safetensors ...           one per slice, empty ones too
 *       replicated.safetensors
 *       manifest.json                       hashes, sizes, progress; written last
 *   OUT/checkpoints/step-...partial-PID     an unfinished one; removed at the next start
 *
 * Nothing in these files depends on the number of ranks, the machine or the time: two
 * checkpoints are equal exactly when their manifests are (docs/checkpoints.md). */
#pragma once

#include <dirent.h>

#include "base/base.h"
#include "base/events.h"
#include "checkpoint/store/manifest.h"
#include "comm/comm.h"
#include "ops/device.h"
#include "sheaf/cut.h"
#include "sheaf/status.h"

/* ---- the state ---- */

/* The saved state of a tensor, as "GROUP/NAME". Moments in 8 bits are codes with scales. */
typedef enum sheaf_state_group {
    SHEAF_STATE_MASTER,
    SHEAF_STATE_MOMENT1,
    SHEAF_STATE_MOMENT2,
    SHEAF_STATE_SCALES1,
    SHEAF_STATE_SCALES2,
    SHEAF_STATE_GROUPS
} sheaf_state_group;

extern const char *const sheaf__state_groups[SHEAF_STATE_GROUPS]; /* "master", "exp_avg", ... */

/* sheaf__state_group_of - the group that `name` begins with, before a `separator`, and in *rest
 * what stands behind that; SHEAF_STATE_GROUPS: none, and *rest is the name. */
sheaf_state_group sheaf__state_group_of(const char **rest, const char *name, char separator);

/* The state that a training run saves: tensors in slices, and a JSON text.
 *
 * The names are the caller's (sheaf__state_groups), distinct, in any order. Of a cut tensor a rank
 * passes the slices it owns, each dense and row-major: the rows (axis 0) or columns (axis 1) of the
 * slice, part after part. Every rank passes all of a replicated tensor. */
typedef struct sheaf_state_tensor {
    const char *name;
    int ndim;             /* 1 or 2 */
    int64_t shape[2];     /* of the undivided tensor; shape[1] = 1 when ndim is 1 */
    const sheaf_cut *cut; /* NULL or nparts 0: replicated */
    float *const *slice;  /* [S] data of the slices of this rank, others NULL (one that holds no
                             rows may be NULL too); replicated: slice[0] alone. Addresses of the
                             state's device, which go through the host in pieces. */
    sheaf_dtype dtype;    /* SHEAF_BOOL, which is 0: F32 */
} sheaf_state_tensor;

static inline sheaf_dtype sheaf__state_dtype(const sheaf_state_tensor *t)
{
    return t->dtype == SHEAF_BOOL ? SHEAF_F32 : t->dtype;
}

typedef struct sheaf_state {
    int slices;   /* S */
    int64_t step; /* steps done */
    int64_t count;
    const sheaf_state_tensor *tensor;
    const char *progress;  /* a JSON object: counters, settings, seed, hashes of data and base; no
                              rank count, host, path or time. The same text on every rank. Loading
                              ignores it: see manifest->progress. */
    sheaf__device *device; /* memory of the tensors; NULL: the host's */
} sheaf_state;

/* The most that goes through the host at a time. */
#define SHEAF__STATE_PIECE ((int64_t)4 << 20)

/* ---- the folder of one run; collective ---- */

typedef struct sheaf_checkpoints sheaf_checkpoints;

typedef struct sheaf_checkpoints_options {
    int keep;          /* how many of the newest complete ones to keep; 0 = all */
    const int *writer; /* [S] the rank that writes each slice, the same on all ranks,
                          borrowed until close; NULL: its owner */
    bool locked;       /* the caller holds the lock, on rank 0, until it has closed the store */
    /* notes on checkpoints found, removed, saved: on rank 0 only; may be NULL */
    const sheaf_events *events;
} sheaf_checkpoints_options;

/* sheaf_checkpoints_lock - local, in one process: makes OUT/checkpoints and takes its lock, for
 * work in OUT before ranks start and after they end. *lock, for close(): -1 where the file system
 * has no locks, and after a failure. Errors: SHEAF_E_ARG if another run holds it; SHEAF_E_IO. */
sheaf_status *sheaf_checkpoints_lock(int *lock, const char *out_dir, const sheaf_events *events);

/* sheaf__checkpoints_busy - does a run hold the lock of OUT/checkpoints now? False too where the
 * file system has no locks. */
bool sheaf__checkpoints_busy(const char *out_dir);
/* sheaf__step_is_partial - in OUT/checkpoints: is it a save's until the save is complete? */
bool sheaf__step_is_partial(const char *name);

/* sheaf_checkpoints_open - every rank of `comm` calls it. Rank 0 makes OUT/checkpoints,
 * takes its lock and removes what a killed run left unfinished.
 * Errors: SHEAF_E_ARG when another run holds the lock; SHEAF_E_IO. */
sheaf_status *sheaf_checkpoints_open(sheaf_checkpoints **out, sheaf_comm *comm, const char *out_dir,
                                     const sheaf_checkpoints_options *options);
/* sheaf_checkpoints_close - local. Accepts NULL. */
void sheaf_checkpoints_close(sheaf_checkpoints *store);

/* sheaf_checkpoints_protect - local: never remove the checkpoint of this step, however many newer
 * ones there are; 0: none. Rank 0 removes. */
void sheaf_checkpoints_protect(sheaf_checkpoints *store, int64_t step);

/* sheaf_checkpoints_replace - local, on all ranks: the next save may replace the checkpoint of this
 * step, which was saved before the step's evaluation; 0: none. */
void sheaf_checkpoints_replace(sheaf_checkpoints *store, int64_t step);

/* sheaf_checkpoints_save - every rank calls it with its part of one state. When it returns
 * NULL on any rank, the checkpoint is complete and on disk and older ones beyond `keep` are
 * gone. On failure every rank gets a status, the older ones are untouched and the new one
 * is absent - or, if only the last fsync failed, complete. Never a mixture.
 * A checkpoint of this step that is already there is accepted if it is equal (all of it is
 * read), replaced if it is damaged, and otherwise SHEAF_E_ARG.
 * Errors besides: SHEAF_E_IO, SHEAF_E_LAYOUT when ranks disagree about names, shapes or
 * progress, SHEAF_E_NUMBER when copies of a replicated tensor differ between ranks. */
sheaf_status *sheaf_checkpoints_save(sheaf_checkpoints *store, sheaf_comm *comm,
                                     const sheaf_state *state);

typedef struct sheaf_checkpoint {
    char *dir;
    sheaf_manifest *manifest;
    char *text; /* of manifest.json */
    size_t size;
} sheaf_checkpoint;

/* sheaf_checkpoints_latest - every rank calls it; *out is NULL if none was ever saved. Rank 0
 * chooses the newest complete one, and notes it and the newer ones that it skips with the reason
 * (no manifest, damaged manifest, file missing or of another size). Errors: SHEAF_E_FORMAT when
 * there are some and none is complete; SHEAF_E_IO. */
sheaf_status *sheaf_checkpoints_latest(sheaf_checkpoint **out, sheaf_checkpoints *store,
                                       sheaf_comm *comm);

/* sheaf_checkpoints_load_latest - latest and load in one: every rank calls it with its buffers.
 * One whose data is damaged is skipped like an incomplete one, and the one before it is loaded.
 * When the newest was sound, older ones beyond `keep` are removed as after a save. check(context,
 * checkpoint) is called on every rank before a load (is it a checkpoint of this run?) and its
 * status ends the search; it may be NULL. Errors: those of latest, load and check. */
sheaf_status *sheaf_checkpoints_load_latest(
    sheaf_checkpoint **out, sheaf_checkpoints *store, sheaf_comm *comm, const sheaf_state *state,
    sheaf_status *(*check)(void *context, const sheaf_checkpoint *checkpoint), void *context);

/* ---- one checkpoint, for reading; local ---- */

/* sheaf_checkpoint_open - local: the one in `dir`, whose manifest and file sizes are checked.
 * Errors: SHEAF_E_IO, SHEAF_E_FORMAT, SHEAF_E_UNSUPPORTED. */
sheaf_status *sheaf_checkpoint_open(sheaf_checkpoint **out, const char *dir);
void sheaf_checkpoint_close(sheaf_checkpoint *checkpoint);
/* sheaf_checkpoint_load - local: reads the slices that `state` has buffers for, and every
 * replicated tensor, and checks the hash of each. state->step and ->progress are ignored;
 * names, shapes, cuts, and slices must be those of the checkpoint. On failure the
 * buffers hold anything.
 * Errors: SHEAF_E_LAYOUT (names the tensor), SHEAF_E_ARG for another number of slices,
 * SHEAF_E_FORMAT for damage, SHEAF_E_IO. */
sheaf_status *sheaf_checkpoint_load(sheaf_checkpoint *checkpoint, const sheaf_state *state);

/* ---- damage ---- */

/* Receiver of damage reports. found(context, file, tensor, expected, is) is called for each; tensor
 * is "" for a whole file, file is a name in the folder. */
typedef struct sheaf_damages {
    int64_t count;
    void (*found)(void *context, const char *file, const char *tensor, const char *expected,
                  const char *is); /* or NULL */
    void *context;
} sheaf_damages;

/* sheaf_checkpoint_examine - local: checks every byte in `dir` against its manifest: files missing,
 * foreign or of another size, headers, and each tensor by its hash at its computed offset. With
 * `quick` no tensor is read. In a truncated or foreign file each missing tensor is reported. If the
 * manifest itself is damaged, only that is reported. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf_checkpoint_examine(sheaf_damages *damages, const char *dir, bool quick);

/* ---- the folder of one step ---- */

enum { SHEAF__STEP_NAME = 32 };

const char *sheaf__step_name(char name[SHEAF__STEP_NAME], int64_t step);
/* sheaf__step_of - is `name` "step-" and a number, and nothing after it? *step is untouched
 * otherwise. With `ours` only as sheaf__step_name() writes it, 8 digits or more: folders that a run
 * may resume from or remove. Without, any number: a folder that is only read may have been renamed.
 */
bool sheaf__step_of(int64_t *step, const char *name, bool ours);

/* sheaf__step_open - opens the folder of a step with a shared lock, so that it is not removed
 * before closedir(). NULL: it is being removed, or cannot be opened. */
DIR *sheaf__step_open(const char *path);
/* sheaf__step_lock - opens the folder with an exclusive lock, to remove it; *read: a reader has it
 * open. The caller renames the folder, then closes the descriptor; -1: it cannot be opened. */
int sheaf__step_lock(bool *read, const char *path);
/* sheaf__step_newest - the newest in OUT/checkpoints (malloc'd), opened by sheaf__step_open();
 * *path NULL: none. Does not take the run's lock. Errors: SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf__step_newest(char **path, DIR **held, const char *out);
