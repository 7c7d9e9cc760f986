/* activity.h - what each rank does, for the message of a run that does not go on.
 *
 * A record belongs to one rank. That rank alone writes it, with stores that wait for nothing;
 * a watching thread may read it at any moment, and gets a value of each field
 * that was true a moment ago, not of all fields at once. Texts that records point to are static;
 * that of an item is in the record itself, which several threads of the rank may write. */
#pragma once

#include <stdatomic.h>
#include <time.h>

#include "base/base.h"

enum { SHEAF__ITEM = 96 }; /* bytes of an item's name */

typedef struct sheaf__activity {
    _Alignas(64) atomic_int rank; /* of all ranks of the run */
    char host[64];                /* written before others see the record */
    /* The call that it is in; NULL: it computes, or reads, or writes. */
    _Atomic(const char *) call;
    _Atomic uint64_t calls;      /* of all its groups, with the one it is in */
    _Atomic(const char *) phase; /* "loading", "forward", "backward", ...; NULL: before any */
    _Atomic(const char *) op;    /* of the tape; NULL: none */
    _Atomic int64_t step, micro; /* counted from 1, 0: none */
    atomic_int layer;            /* -1: none */
    _Atomic int64_t since;  /* when the call began, or the last one ended: sheaf__activity_now() */
    _Atomic uint64_t ticks; /* grows with all that it gets done */
    atomic_flag naming;     /* a thread writes the item */
    _Atomic char item[SHEAF__ITEM]; /* the current item: "row 17", a tensor's name; empty: none */
    atomic_bool idle;               /* it waits for the user: that is no hang */
} sheaf__activity;

/* A copy of one record, to be kept, sent and shown. All zero: nothing is known. */
typedef struct sheaf__report {
    int32_t rank, layer;
    int64_t step, micro;
    uint64_t calls, ticks;
    int64_t for_ms; /* since when, before now */
    int32_t idle;
    char host[64], call[16], phase[24], op[64], item[SHEAF__ITEM];
} sheaf__report;

/* sheaf__activity_now - milliseconds since some fixed moment; coarse and cheap. */
static inline int64_t sheaf__activity_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* sheaf__activity_init - a record of `rank` on this host that does nothing yet. */
void sheaf__activity_init(sheaf__activity *activity, int rank);

#define SHEAF__STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define SHEAF__LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)

/* It alone writes the record: no need of one indivisible addition. */
static inline void sheaf__activity_tick(sheaf__activity *d)
{
    SHEAF__STORE(d->ticks, SHEAF__LOAD(d->ticks) + 1);
}

/* The functions below accept NULL for a rank that is not watched. sheaf__activity_call, _return - a
 * call of one of its groups begins, and has returned. */
static inline void sheaf__activity_call(sheaf__activity *d, const char *call)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->calls, SHEAF__LOAD(d->calls) + 1);
    SHEAF__STORE(d->since, sheaf__activity_now());
    SHEAF__STORE(d->call, call);
    sheaf__activity_tick(d);
}
static inline void sheaf__activity_return(sheaf__activity *d)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->call, (const char *)NULL);
    SHEAF__STORE(d->since, sheaf__activity_now());
    sheaf__activity_tick(d);
}
/* sheaf__activity_op - an op of the tape begins; layer -1: outside layers. */
static inline void sheaf__activity_op(sheaf__activity *d, const char *phase, const char *op,
                                      int layer)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->phase, phase);
    SHEAF__STORE(d->op, op);
    SHEAF__STORE(d->layer, layer);
    sheaf__activity_tick(d);
}
/* sheaf__activity_phase - what is no op of the tape: "loading", "update", "saving". */
static inline void sheaf__activity_phase(sheaf__activity *d, const char *phase)
{
    sheaf__activity_op(d, phase, NULL, -1);
}
/* sheaf__activity_item - the current item, cut where it is too long; NULL: nothing that has a name.
 * Any thread of the rank may call it: of two at once one is recorded. */
void sheaf__activity_item(sheaf__activity *activity, const char *item);
/* sheaf__activity_number - the same as "WHAT NUMBER". */
void sheaf__activity_number(sheaf__activity *activity, const char *what, int64_t number);
/* sheaf__activity_idle - does it wait for the user, as for a question or a full pipe?
 */
static inline void sheaf__activity_idle(sheaf__activity *d, bool idle)
{
    if (d != NULL)
        SHEAF__STORE(d->idle, idle);
}
/* sheaf__activity_step - step and micro-batch, counted from 1; 0: none. */
static inline void sheaf__activity_step(sheaf__activity *d, int64_t step, int64_t micro)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->step, step);
    SHEAF__STORE(d->micro, micro);
    sheaf__activity_tick(d);
}

/* sheaf__activity_report - a copy of the record now. */
void sheaf__activity_report(sheaf__report *out, const sheaf__activity *activity);
/* sheaf__report_show - "rank 1 (host n2): in sum, call 17, for 12 s; step 3,
 * micro-batch 2, layer 5, backward of attention". */
void sheaf__report_show(sheaf_text *out, const sheaf__report *report);
