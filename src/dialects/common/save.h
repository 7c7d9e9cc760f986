/* save.h - what the saves of training programs have in common: a tracker file with the newest step,
 * steps and ranks in names of folders and files, missing parts. */
#pragma once

#include "catalog/catalog.h"

enum { SHEAF__MOST_RANKS = 65536 }; /* of any kind */

/* sheaf__has_file - is dir/name a file? */
bool sheaf__has_file(const char *dir, const char *name);
/* sheaf__last_part - of a path: the name of its file or folder. */
const char *sheaf__last_part(const char *path);
/* sheaf__take_word, sheaf__take_number - is `word`, or a number below SHEAF__MOST_RANKS, at *at?
 * Then *at moves behind it. */
bool sheaf__take_word(const char **at, const char *word);
bool sheaf__take_number(int *out, const char **at);
/* sheaf__step_of_name - the number behind `before` ("iter_") in the last part of a path, and the
 * rest after it; -1: none. */
int64_t sheaf__step_of_name(const char **rest, const char *path, const char *before);

/* sheaf__tracker_read - the text of dir/name, such as DeepSpeed's and SAT's `latest`, without
 * blanks around it (malloc'd); NULL if it cannot be read. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__tracker_read(char **out, const char *dir, const char *name);
/* sheaf__tracker_iteration - the folder that Megatron's tracker in `dir` names; false without a
 * tracker, or with neither a number nor "release" in it. */
bool sheaf__tracker_iteration(char folder[SHEAF_PATH_SIZE], const char *dir);
extern const char sheaf__iteration_tracker[];

/* sheaf__missing_file - a finding "missing" for a file of a save; its path by printf. */
sheaf_status *sheaf__missing_file(sheaf_catalog *catalog, const char *tensor, const char *expected,
                                  const char *path, ...) SHEAF_PRINTF(4, 5);
/* sheaf__holds_file - is `path` a file, or a folder with a file, whose name satisfies `is`? */
bool sheaf__holds_file(const char *path, bool (*is)(const char *name));
