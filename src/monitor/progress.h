/* progress.h - how a command shows what the events of an operation say (sheaf/progress.h).
 *
 * Notes and warnings are lines of their own. Progress is one of
 *   bar    on a terminal: one line that is rewritten in place, without the fields that do not fit:
 *            bytes converted: 25% [=====               ]  3.00 MiB of 12.0 MiB  312 MiB/s  5 s left
 *   plain  lines, one every ten seconds; of steps also one at each tenth, the first and the last
 *   json   each event one object on a line: progress once a second, the first and the last always
 *            {"command": "convert", "what": "bytes converted", "unit": "bytes", "done": 1048576,
 *             "total": 4194304, "rate": 327155712, "eta_s": 5.2, "elapsed_s": 1.7}
 *          rate: units a second, null until it is known, as is eta_s. A step of training also has
 *          loss, grad_norm, lr and tokens_per_s; other lines have "note", "warning", or those of
 *          an evaluation in metrics.jsonl
 *   quiet  warnings alone
 * There are no colours, and a line is rewritten without escape sequences. */
#pragma once

#include "sheaf/progress.h"

typedef enum sheaf__progress_style {
    SHEAF__PROGRESS_AUTO, /* bar on a terminal (base/terminal.h), else plain */
    SHEAF__PROGRESS_PLAIN,
    SHEAF__PROGRESS_BAR,
    SHEAF__PROGRESS_JSON,
    SHEAF__PROGRESS_QUIET,
} sheaf__progress_style;

/* sheaf__progress_use - what is shown from now on. `command`: for json; borrowed, may be NULL.
 * interval_ms: between two lines of progress; 0: as above. */
void sheaf__progress_use(sheaf_progress *progress, sheaf__progress_style style, const char *command,
                         int interval_ms);
/* sheaf__progress_end - what is printed next, by others too, begins a line: the newest progress
 * stays above it. Accepts NULL. */
void sheaf__progress_end(sheaf_progress *progress);
/* sheaf__progress_clear - the same, but a bar, which goes on, is drawn below it. Accepts NULL. */
void sheaf__progress_clear(sheaf_progress *progress);
