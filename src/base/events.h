/* events.h - reports a long operation's progress to a sink: sheaf/events.h. Emitting to a NULL
 * sink, or to one whose emit is NULL, does nothing. */
#pragma once

#include "sheaf/events.h"
#include "sheaf/status.h"

void sheaf_emit(const sheaf_events *events, const sheaf_event *event);
/* printf-like; a text that cannot be built for want of memory is dropped. */
void sheaf_note(const sheaf_events *events, const char *fmt, ...) SHEAF_PRINTF(2, 3);
void sheaf_warn(const sheaf_events *events, const char *fmt, ...) SHEAF_PRINTF(2, 3);
