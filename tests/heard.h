/* heard.h - for tests: the warnings that were told, one behind the other. */
#pragma once

#include <stdio.h>
#include <string.h>

#include "base/events.h"

static char heard[4000];

static inline void hear_warning(void *context, const sheaf_event *event)
{
    const size_t n = strlen(heard);
    (void)context;
    if (event->kind == SHEAF_EVENT_WARNING)
        snprintf(heard + n, sizeof heard - n, "%s\n", event->text);
}

/* hear_warnings - from now on; there was none yet. */
static inline const sheaf_events *hear_warnings(void)
{
    static const sheaf_events events = { hear_warning, NULL };
    heard[0] = '\0';
    return &events;
}
