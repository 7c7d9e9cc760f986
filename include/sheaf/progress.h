/* progress.h - events as lines for people: on a terminal one line of progress that is rewritten in
 * place, else plain lines, one every ten seconds. Notes and warnings are lines of their own. */
#pragma once

#include <stdio.h>

#include "sheaf/events.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_progress sheaf_progress;

/* sheaf_progress_open - lines to `stream`, which stays the caller's. Errors: SHEAF_E_MEMORY. */
SHEAF_API sheaf_status *sheaf_progress_open(sheaf_progress **out, FILE *stream);
/* sheaf_progress_events - for the options of an operation; valid until it is closed. */
SHEAF_API const sheaf_events *sheaf_progress_events(sheaf_progress *progress);
/* sheaf_progress_close - ends the line. Accepts NULL. */
SHEAF_API void sheaf_progress_close(sheaf_progress *progress);

#ifdef __cplusplus
}
#endif
