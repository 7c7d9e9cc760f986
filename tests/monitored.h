/* monitored.h - for tests of what is told of a run: its steps, and what was written. */
#pragma once

#include <signal.h>
#include <sys/resource.h>

#include "base/events.h"
#include "tests/files.h"

/* What is written, which a test begins with or without. */
static char path[400];

/* For FIXTURE(), before all tests; remove_scratch() comes after them. */
static inline int make_path(void **state)
{
    const int failed = make_scratch(state);
    snprintf(path, sizeof path, "%s", at("written"));
    return failed;
}

/* limit_files - to so many bytes, as on a full disk; 0: to none any more. */
static inline void limit_files(rlim_t bytes)
{
    struct rlimit limit;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = bytes > 0 ? bytes : limit.rlim_max;
    setrlimit(RLIMIT_FSIZE, &limit);
}

static inline const char *text_of(const char *file)
{
    static char text[1 << 16];
    FILE *f = fopen(file, "rb");
    assert_non_null(f);
    text[fread(text, 1, sizeof text - 1, f)] = '\0';
    fclose(f);
    return text;
}

static int64_t in_all = 10;

static inline void emit_steps(const sheaf_events *events, int64_t from, int64_t to)
{
    for (int64_t s = from; s <= to; s++)
        sheaf_emit(events, &(sheaf_event){ .kind = SHEAF_EVENT_STEP,
                                           .step = { .step = s,
                                                     .steps = in_all,
                                                     .loss = (float)(6.1 / (double)s),
                                                     .grad_norm = 1.0 / 3,
                                                     .lr = 0.02,
                                                     .tokens = 60,
                                                     .seconds = 0.5,
                                                     .skipped = s == 3 } });
}
