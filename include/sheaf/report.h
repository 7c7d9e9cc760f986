/* report.h - what runs of training left, as numbers and as a page for a browser; also while they go
 * on. */
#pragma once

#include <stddef.h>

#include "sheaf/events.h"
#include "sheaf/options.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_report_options {
    size_t size;
    const char *const *run; /* folders of runs, at least one */
    int runs;
    const sheaf_events *events; /* hear once of what is odd in the files; may be NULL */
} sheaf_report_options;

typedef struct sheaf_report sheaf_report;

/* sheaf_report_open - reads the runs, whose names and events stay the caller's until it is closed.
 * Errors: SHEAF_E_ARG where no run is; SHEAF_E_IO, SHEAF_E_MEMORY. */
SHEAF_API sheaf_status *sheaf_report_open(sheaf_report **out, const sheaf_report_options *options);
/* sheaf_report_update - reads what the runs have written since. One report is used by one thread at
 * a time. After a failure what was read before is still there. Errors: those of opening. */
SHEAF_API sheaf_status *sheaf_report_update(sheaf_report *report);
/* sheaf_report_json - one object, borrowed until the next update: {"version": "0.1.0", "written":
 * seconds since 1970, "runs": [...]}, where each run has its curves, thinned to 2048 points,
 * settings, starts and what its ranks spent (docs/report.md). */
SHEAF_API const char *sheaf_report_json(const sheaf_report *report);
/* sheaf_report_page - the same in a page (malloc'd HTML) that needs nothing else. Errors:
 * SHEAF_E_MEMORY. */
SHEAF_API sheaf_status *sheaf_report_page(char **html, const sheaf_report *report);
/* sheaf_report_close - accepts NULL. */
SHEAF_API void sheaf_report_close(sheaf_report *report);

#ifdef __cplusplus
}
#endif
