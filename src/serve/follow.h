/* follow.h - the page of a report on a port, which follows its runs (docs/report.md). */
#pragma once

#include "base/base.h"
#include "http/http.h"
#include "sheaf/report.h"

typedef struct sheaf__follow_options {
    const sheaf_report_options *report;
    const char *host; /* address, or "localhost" */
    int port;         /* 0: any */
    const char
        *token_file; /* its first line is the token; NULL: none, of loopback addresses alone */
    /* Called once it listens; a failure ends it. */
    sheaf_status *(*ready)(void *self, const sheaf__http *http);
    void *self;
} sheaf__follow_options;

/* sheaf__follow - returns only with an error, of the runs at the start, address, port or token: it
 * has nothing to save, so a signal may end the process. */
sheaf_status *sheaf__follow(const sheaf__follow_options *options);
