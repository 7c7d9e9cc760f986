/* events.h - what a long operation tells while it runs.
 *
 * The library never prints: it hands events to a sink that the caller gives.
 * The command's sink turns them into lines on stderr and into metrics.jsonl
 * (monitor/); a program that embeds sheaf makes its own. An event is borrowed
 * for the length of the call. Emitting to a NULL sink, or to one whose emit is
 * NULL, does nothing. A sink may be called from several threads at once. */
#ifndef SHEAF_BASE_EVENTS_H
#define SHEAF_BASE_EVENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/status.h"

typedef enum sheaf_event_kind {
    SHEAF_EVENT_NOTE,     /* text: what was decided or done */
    SHEAF_EVENT_WARNING,  /* text: what the user should look at; the operation goes on */
    SHEAF_EVENT_STEP,     /* step: one optimizer step is done */
    SHEAF_EVENT_PROGRESS, /* done of total units of `text` ("rows", "bytes read") */
} sheaf_event_kind;

typedef struct sheaf_event_step {
    int64_t step, steps; /* from 1; steps of the whole run */
    double loss, grad_norm, lr;
    int64_t tokens;  /* positions with mask 1 that this step read */
    double seconds;  /* wall time of this step */
    uint64_t memory; /* bytes of the fullest rank, 0 = not known */
    bool skipped;    /* a float16 step whose gradients were not finite */
} sheaf_event_step;

typedef struct sheaf_event {
    sheaf_event_kind kind;
    const char *text;
    int64_t done, total;
    sheaf_event_step step;
} sheaf_event;

typedef struct sheaf_events {
    void (*emit)(void *context, const sheaf_event *event);
    void *context;
} sheaf_events;

void sheaf_emit(const sheaf_events *events, const sheaf_event *event);
/* printf-like; a text that cannot be built for want of memory is dropped. */
void sheaf_note(const sheaf_events *events, const char *fmt, ...) SHEAF_PRINTF(2, 3);
void sheaf_warn(const sheaf_events *events, const char *fmt, ...) SHEAF_PRINTF(2, 3);

#endif
