/* events.c - see events.h. */
#include "base/events.h"

#include <stdarg.h>
#include <stdlib.h>

void sheaf_emit(const sheaf_events *events, const sheaf_event *event)
{
    if (events != NULL && events->emit != NULL)
        events->emit(events->context, event);
}

static void emit_text(const sheaf_events *events, sheaf_event_kind kind, const char *fmt,
                      va_list args)
{
    char *text = NULL;
    if (events == NULL || events->emit == NULL || vasprintf(&text, fmt, args) < 0)
        return;
    const sheaf_event event = { .kind = kind, .text = text };
    events->emit(events->context, &event);
    free(text);
}

void sheaf_note(const sheaf_events *events, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    emit_text(events, SHEAF_EVENT_NOTE, fmt, args);
    va_end(args);
}

void sheaf_warn(const sheaf_events *events, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    emit_text(events, SHEAF_EVENT_WARNING, fmt, args);
    va_end(args);
}
