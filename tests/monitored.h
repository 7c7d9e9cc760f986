/* monitored.h - for tests of what is told of a run: its steps, and what was written. */
#pragma once

#include "base/events.h"
#include "tests/check.h"

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
