/* out_folder.h - OUT as a run finds it, and what it leaves there besides checkpoints. */
#pragma once

#include <jansson.h>

#include "checkpoint/store/checkpoint.h"
#include "comm/comm.h"
#include "train/options.h"

typedef struct sheaf__out_folder {
    const sheaf_train_options *options;
    const sheaf_events *events;
    bool made; /* there was no folder */
    bool anew; /* there was one, of a run that came to nothing */
    int lock;  /* of OUT/checkpoints, held from prepare to release; -1: none */
    int dir;   /* OUT itself, likewise */
} sheaf__out_folder;

/* sheaf__out_check - a run that begins needs no folder, an empty one, or that of a run which was
 * ended in its first step; one that goes on needs a folder. Of --data-cache OUT may hold OUT/cache
 * alone. Errors: SHEAF_E_ARG, SHEAF_E_IO, and the lock's. */
sheaf_status *sheaf__out_check(sheaf__out_folder *folder);
/* sheaf__out_prepare - checks again, makes it, takes its lock, and writes OUT/settings: a run that
 * finds another one there leaves that one's as they are. */
sheaf_status *sheaf__out_prepare(sheaf__out_folder *folder, const char *recipe);
/* sheaf__out_check_held - before anything is written: OUT may have been moved or removed, or the
 * file system that it is on unmounted, and what lies at its name now is no folder of this run.
 * Errors: SHEAF_E_IO where it is, or where its lock is another one. */
sheaf_status *sheaf__out_check_held(const sheaf__out_folder *folder);
/* sheaf__out_release - the lock: all is written. */
void sheaf__out_release(sheaf__out_folder *folder);
/* sheaf__out_sweep - removes what a killed run left of the files that it was writing beside its
 * checkpoints. The lock must be held. */
void sheaf__out_sweep(const sheaf__out_folder *folder);
/* sheaf__out_undo - a new run that fails before anything of it began can be tried again:
 * of OUT goes what this run made, and no folder with something else in it. The lock is still held.
 */
void sheaf__out_undo(const sheaf__out_folder *folder);

/* sheaf__progress_of - what the training loop saved in it. */
sheaf_status *sheaf__progress_of(json_t **out, const sheaf_checkpoint *checkpoint);

/* Seconds within which hosts that share a file system see what one of them has written. */
enum { SHEAF__OUT_SEEN_WITHIN = 10 };

/* sheaf__out_shared - the first rank writes a file into OUT with a name that cannot be guessed, the
 * others look for it, and it goes away again, as do the folders that were made for it. Collective.
 *   all    every rank
 *   out    as this rank names it
 *   wait   seconds that a file may take to be seen (network file systems)
 * Errors, on all ranks: SHEAF_E_ARG of a rank that does not see it; SHEAF_E_IO where nothing can be
 * written. */
sheaf_status *sheaf__out_shared(sheaf_comm *all, const char *out, double wait);
