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
    const sheaf_events *events; /* warnings of what is odd in the files; may be NULL */
} sheaf_report_options;

/* sheaf_report_json - one object (malloc'd text): {"version": "0.1.0", "written": seconds since
 * 1970, "runs": [...]}, where each run has its curves, thinned to 2048 points, settings, starts and
 * what its ranks spent (docs/report.md). Errors: SHEAF_E_ARG where no run is; SHEAF_E_IO,
 * SHEAF_E_MEMORY. */
SHEAF_API sheaf_status *sheaf_report_json(char **json, const sheaf_report_options *options);
/* sheaf_report_page - the same in a page (malloc'd HTML) that needs nothing else. */
SHEAF_API sheaf_status *sheaf_report_page(char **html, const sheaf_report_options *options);

#ifdef __cplusplus
}
#endif
