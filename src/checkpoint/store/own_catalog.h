/* own_catalog.h - sheaf's own checkpoints as a dialect: one folder of slices, or the --out of a run
 * (its newest complete one). It lies here and not among the dialects because the manifest is this
 * room's.
 *
 * Names: "master/NAME" of training is NAME, "exp_avg/NAME" is the moment "exp_avg.NAME". */
#pragma once

#include "dialects/common/dialects.h"

extern const sheaf_dialect sheaf__dialect_own; /* "sheaf" */

/* sheaf__own_catalog - one folder of slices; `raw`: names as they are stored. */
sheaf_status *sheaf__own_catalog(sheaf_catalog **out, const char *dir, bool raw);

/* Hears of damages (sheaf_damages.found), and makes findings of those that are not reported yet. */
typedef struct sheaf__own_damages {
    sheaf_catalog *catalog;
    const char *dir;
    sheaf_status *st;
} sheaf__own_damages;
void sheaf__own_found(void *context, const char *file, const char *tensor, const char *expected,
                      const char *is);

/* sheaf__any_read - sheaf__open() with sheaf's own as hints->own. */
sheaf_status *sheaf__any_read(sheaf_catalog **out, const char *path,
                              const sheaf_dialect_hints *hints);
