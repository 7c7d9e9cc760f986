/* step.h - the name of a checkpoint's folder: "step-00000010". */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { SHEAF__STEP_NAME = 32 };

const char *sheaf__step_name(char name[SHEAF__STEP_NAME], int64_t step);
/* sheaf__step_of - is `name` "step-" and a number, and nothing after it? *step is untouched
 * otherwise. With `ours` only as sheaf__step_name() writes it, 8 digits or more: what a run may
 * resume from or remove. Without, any number: a folder that is only read may have been renamed. */
bool sheaf__step_of(int64_t *step, const char *name, bool ours);
