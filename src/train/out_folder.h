/* out_folder.h - checks and prepares OUT, and what a run writes there besides checkpoints. */
#pragma once

#include <jansson.h>

#include "checkpoint/store/checkpoint.h"
#include "comm/comm.h"
#include "train/options.h"

typedef struct sheaf__out_folder {
    const sheaf_train_options *options;
    const sheaf_events *events;
    bool made; /* the run created OUT */
    bool anew; /* OUT existed, from a run that failed before its first step */
    int lock;  /* of OUT/checkpoints, held from prepare to release; -1: none */
    int dir;   /* OUT itself, likewise */
} sheaf__out_folder;

/* sheaf__out_check - a new run needs no folder, an empty one, or that of a run which ended in its
 * first step; a resumed one needs a folder. OUT may have OUT/cache of --data-cache. Errors:
 * SHEAF_E_ARG, SHEAF_E_IO (also where OUT cannot be written), and the lock's. */
sheaf_status *sheaf__out_check(sheaf__out_folder *folder);
/* sheaf__out_prepare - checks again, makes OUT, takes its lock, and writes OUT/settings of a new
 * run; another run's settings stay unchanged. */
sheaf_status *sheaf__out_prepare(sheaf__out_folder *folder, const char *recipe);
/* sheaf__out_settings - writes OUT/settings: of a resumed run once it is known that it can go on
 * with them. */
sheaf_status *sheaf__out_settings(const sheaf__out_folder *folder, const char *recipe);
/* sheaf__out_check_held - before anything is written: OUT may have been moved, removed or
 * unmounted, and its path may name another folder now. Errors: SHEAF_E_IO if it does, or if its
 * lock is another one. */
sheaf_status *sheaf__out_check_held(const sheaf__out_folder *folder);
/* sheaf__out_release - releases the lock after all is written. */
void sheaf__out_release(sheaf__out_folder *folder);
/* sheaf__out_sweep - removes partial files that a killed run left outside of its checkpoints. The
 * lock must be held. */
void sheaf__out_sweep(const sheaf__out_folder *folder);
/* sheaf__out_undo - after a failure before the first step: removes what this run made in OUT, so
 * that it can be tried again, but no folder with other files. The lock is still held.
 */
void sheaf__out_undo(const sheaf__out_folder *folder);

/* sheaf__progress_of - parses the progress that the training loop saved in it. */
sheaf_status *sheaf__progress_of(json_t **out, const sheaf_checkpoint *checkpoint);

/* Seconds until hosts that share a file system see each other's files. */
enum { SHEAF__OUT_SEEN_WITHIN = 10 };

/* sheaf__out_shared - do all hosts see the same OUT? The first rank writes a file with a random
 * name, the others look for it, and it is removed with the folders made for it. Collective.
 *   all    all ranks
 *   out    OUT as this rank has it
 *   wait   seconds until a file must be visible (network file systems)
 * Errors, on all ranks: SHEAF_E_ARG if a rank does not see it; SHEAF_E_IO if it cannot be
 * written. */
sheaf_status *sheaf__out_shared(sheaf_comm *all, const char *out, double wait);
