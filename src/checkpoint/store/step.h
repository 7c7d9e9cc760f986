/* step.h - the folder of a checkpoint, "step-00000010", and the one that is read while the run that
 * writes them goes on, and with --keep removes the older ones: it stays until it is read. */
#pragma once

#include <dirent.h>

#include "base/base.h"
#include "sheaf/status.h"

enum { SHEAF__STEP_NAME = 32 };

const char *sheaf__step_name(char name[SHEAF__STEP_NAME], int64_t step);
/* sheaf__step_of - is `name` "step-" and a number, and nothing after it? *step is untouched
 * otherwise. With `ours` only as sheaf__step_name() writes it, 8 digits or more: what a run may
 * resume from or remove. Without, any number: a folder that is only read may have been renamed. */
bool sheaf__step_of(int64_t *step, const char *name, bool ours);

/* sheaf__step_hold - the folder of a step is not removed before closedir(). NULL: it is being
 * removed, or cannot be opened. */
DIR *sheaf__step_hold(const char *path);
/* sheaf__step_take - for who removes it: *read: somebody holds it. The caller closes what is given,
 * after it has given the folder another name; -1: it cannot be opened. */
int sheaf__step_take(bool *read, const char *path);
/* sheaf__step_newest - the newest of OUT/checkpoints (malloc'd), held; *path NULL: there is none.
 * Takes no lock of the run. Errors: SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf__step_newest(char **path, DIR **held, const char *out);
