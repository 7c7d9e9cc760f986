/* hold.h - checkpoints that are read while the run that writes them goes on, and with --keep
 * removes the older ones: one that is held stays until it is read. */
#pragma once

#include <dirent.h>
#include <stdbool.h>

#include "sheaf/status.h"

/* sheaf__step_hold - the folder of a step is not removed before closedir(). NULL: it is being
 * removed, or cannot be opened. */
DIR *sheaf__step_hold(const char *path);
/* sheaf__step_take - for who removes it: *read: somebody holds it. The caller closes what is given,
 * after it has given the folder another name; -1: it cannot be opened. */
int sheaf__step_take(bool *read, const char *path);
/* sheaf__step_newest - the newest of OUT/checkpoints (malloc'd), held; *path NULL: there is none.
 * Takes no lock of the run. Errors: SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf__step_newest(char **path, DIR **held, const char *out);
