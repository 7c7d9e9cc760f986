/* save.h - what the saves of training programs have in common: a file that names the newest step,
 * steps and ranks in the names of folders and files, parts that are not there. */
#pragma once

#include "catalog/catalog.h"

enum { SHEAF__MOST_RANKS = 65536 }; /* of any kind; more is no number of ranks */

/* sheaf__has_file - is dir/name a file? */
bool sheaf__has_file(const char *dir, const char *name);
/* sheaf__last_part - of a path: the name of its file or folder. */
const char *sheaf__last_part(const char *path);
/* sheaf__take_word, sheaf__take_number - does `word`, do digits, stand at *at? Then *at is behind
 * them. A number of SHEAF__MOST_RANKS or more is none. */
bool sheaf__take_word(const char **at, const char *word);
bool sheaf__take_number(int *out, const char **at);
/* sheaf__step_of_name - the number behind `before` ("iter_") in the last part of a path, and what
 * comes after it; -1: none. */
int64_t sheaf__step_of_name(const char **rest, const char *path, const char *before);

/* sheaf__tracker_read - the text of dir/name, as DeepSpeed's and SAT's `latest`, without blanks
 * around it (malloc'd); NULL where there is none that can be read. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__tracker_read(char **out, const char *dir, const char *name);
/* sheaf__tracker_iteration - the folder that Megatron's tracker in `dir` names; false without one,
 * or where it says neither a number nor "release". */
bool sheaf__tracker_iteration(char folder[SHEAF_PATH_SIZE], const char *dir);
extern const char sheaf__iteration_tracker[];

/* sheaf__missing_file - a finding "missing" for a file that a save consists of; its path by printf.
 */
sheaf_status *sheaf__missing_file(sheaf_catalog *catalog, const char *tensor, const char *expected,
                                  const char *path, ...) SHEAF_PRINTF(4, 5);
/* sheaf__holds_file - is it a file, or a folder with a file, whose name `is`? */
bool sheaf__holds_file(const char *path, bool (*is)(const char *name));
