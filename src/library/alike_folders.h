/* alike_folders.h - processes that convert or merge together read the same files, which is proven
 * before anything is written: parts of two checkpoints would make a model, too. */
#ifndef SHEAF_LIBRARY_ALIKE_FOLDERS_H
#define SHEAF_LIBRARY_ALIKE_FOLDERS_H

#include "sheaf/status.h"

/* A folder, or a file, that is read. */
typedef struct sheaf__alike_folder {
    const char *path; /* NULL: none */
    const char *word; /* what messages call it: "SRC" */
    int number;       /* of several that are called so, from 1; 0: it is the only one */
} sheaf__alike_folder;

/* sheaf__alike_folders - names and lengths of all files, of each up to 64 KB of its bytes, in 16
 * places from the first to the last, and the version of sheaf, compared with the first process's.
 * Files that grow or tell of one process (*.jsonl, *.log, TensorBoard's, locks, run.json), hidden
 * and unfinished ones, the checkpoints and the cache of a run are passed over. Collective of all
 * processes; with one nothing is read. Errors: the same in all, SHEAF_E_ARG naming the file and the
 * host that has another. */
sheaf_status *sheaf__alike_folders(const sheaf__alike_folder *folder, int count);

#endif
