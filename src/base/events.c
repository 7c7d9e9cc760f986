/* events.c - see events.h. */
#include "base/events.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/numeric_env.h"

void sheaf_emit(const sheaf_events *events, const sheaf_event *event)
{
    if (events == NULL || events->emit == NULL)
        return;
    sheaf__numeric_env before = sheaf__callback_env();
    events->emit(events->context, event);
    sheaf__numeric_env_restore(&before);
}

static void emit_text(const sheaf_events *events, sheaf_event_kind kind, const char *fmt,
                      va_list args)
{
    char *text = NULL;
    if (events == NULL || events->emit == NULL || vasprintf(&text, fmt, args) < 0)
        return;
    sheaf_emit(events, &(sheaf_event){ .kind = kind, .text = text });
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
