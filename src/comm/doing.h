/* doing.h - what each rank is doing, for the message of a run that does not go on.
 *
 * A record belongs to one rank. That rank alone writes it, with stores that wait for nothing;
 * a watching thread may read it at any moment, and gets a value of each field
 * that was true a moment ago, not of all fields at once. Texts that records point to are static;
 * that of an item is in the record itself, which several threads of the rank may write. */
#pragma once

#include <stdatomic.h>
#include <time.h>

#include "base/base.h"

/* The groups of ranks that a rank makes calls with. */
typedef enum sheaf__circle {
    SHEAF__ANY_RANKS, /* of a group that has no name here */
    SHEAF__ALL_RANKS,
    SHEAF__ITS_GROUP,
    SHEAF__ITS_STAGE,
    SHEAF__ITS_PEERS,
    SHEAF__ALL_PROCESSES,
    SHEAF__CIRCLES
} sheaf__circle;
extern const char *const sheaf__circle_names[SHEAF__CIRCLES]; /* "its group"; NULL: none */

enum { SHEAF__ITEM = 96 }; /* bytes of an item's name */

typedef struct sheaf__doing {
    _Alignas(64) atomic_int rank; /* of all ranks of the run */
    char host[64];                /* written before others see the record */
    /* The call that it is in; NULL: it computes, or reads, or writes. */
    _Atomic(const char *) call;
    atomic_int group;                      /* which of its groups makes the call */
    _Atomic uint64_t calls;                /* of all its groups, with the one it is in */
    _Atomic uint64_t made[SHEAF__CIRCLES]; /* number of the last call in each of them */
    _Atomic(const char *) phase; /* "loading", "forward", "backward", ...; NULL: before any */
    _Atomic(const char *) op;    /* of the tape; NULL: none */
    _Atomic int64_t step, micro; /* counted from 1, 0: none */
    atomic_int layer;            /* -1: none */
    _Atomic int64_t since;  /* when the call began, or the last one ended: sheaf__doing_now() */
    _Atomic uint64_t ticks; /* grows with all that it gets done */
    atomic_flag naming;     /* a thread writes the item */
    _Atomic char item[SHEAF__ITEM]; /* what it is at: "row 17", a tensor's name; empty: none */
    atomic_bool idle;               /* it waits for who uses the program: that is no hang */
} sheaf__doing;

/* A copy of one record, to be kept, sent and shown. All zero: nothing is known. */
typedef struct sheaf__report {
    int32_t rank, layer;
    int64_t step, micro;
    uint64_t calls, ticks;
    uint64_t made[SHEAF__CIRCLES];
    int64_t for_ms;      /* since when, before now */
    int32_t idle, group; /* a sheaf__circle */
    char host[64], call[16], phase[24], op[64], item[SHEAF__ITEM];
} sheaf__report;

/* sheaf__doing_now - milliseconds since some fixed moment; coarse and cheap. */
static inline int64_t sheaf__doing_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* sheaf__doing_begin - a record of `rank` on this host that does nothing yet. */
void sheaf__doing_begin(sheaf__doing *doing, int rank);

#define SHEAF__STORE(field, value) atomic_store_explicit(&(field), (value), memory_order_relaxed)
#define SHEAF__LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)

/* It alone writes the record: no need of one indivisible addition. */
static inline void sheaf__doing_tick(sheaf__doing *d)
{
    SHEAF__STORE(d->ticks, SHEAF__LOAD(d->ticks) + 1);
}

/* What follows accepts NULL, which stands for a rank that is not watched.
 * sheaf__doing_call, _back - a call of one of its groups begins, and has returned; number: of this
 * call in that group, the same on all its ranks. */
static inline void sheaf__doing_call(sheaf__doing *d, const char *call, sheaf__circle group,
                                     uint64_t number)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->calls, SHEAF__LOAD(d->calls) + 1);
    SHEAF__STORE(d->since, sheaf__doing_now());
    SHEAF__STORE(d->group, (int)group);
    SHEAF__STORE(d->made[group], number);
    SHEAF__STORE(d->call, call);
    sheaf__doing_tick(d);
}
static inline void sheaf__doing_back(sheaf__doing *d)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->call, (const char *)NULL);
    SHEAF__STORE(d->since, sheaf__doing_now());
    sheaf__doing_tick(d);
}
/* sheaf__doing_op - an op of the tape begins; layer -1: outside layers. */
static inline void sheaf__doing_op(sheaf__doing *d, const char *phase, const char *op, int layer)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->phase, phase);
    SHEAF__STORE(d->op, op);
    SHEAF__STORE(d->layer, layer);
    sheaf__doing_tick(d);
}
/* sheaf__doing_phase - what is no op of the tape: "loading", "update", "saving". */
static inline void sheaf__doing_phase(sheaf__doing *d, const char *phase)
{
    sheaf__doing_op(d, phase, NULL, -1);
}
/* sheaf__doing_item - what it is at, cut where it is too long; NULL: nothing that has a name. Any
 * thread of the rank may call it: of two at once one is heard. */
void sheaf__doing_item(sheaf__doing *doing, const char *item);
/* sheaf__doing_number - the same as "WHAT NUMBER". */
void sheaf__doing_number(sheaf__doing *doing, const char *what, int64_t number);
/* sheaf__doing_idle - does it wait for who uses the program, as for a question or a full pipe? */
static inline void sheaf__doing_idle(sheaf__doing *d, bool idle)
{
    if (d != NULL)
        SHEAF__STORE(d->idle, idle);
}
/* sheaf__doing_step - step and micro-batch, counted from 1; 0: none. */
static inline void sheaf__doing_step(sheaf__doing *d, int64_t step, int64_t micro)
{
    if (d == NULL)
        return;
    SHEAF__STORE(d->step, step);
    SHEAF__STORE(d->micro, micro);
    sheaf__doing_tick(d);
}

/* sheaf__doing_report - what the record says now. */
void sheaf__doing_report(sheaf__report *out, const sheaf__doing *doing);
/* sheaf__report_show - "rank 1 (host n2): in sum, call 17 (with its group), for 12 s; step 3,
 * micro-batch 2, layer 5, backward of attention". */
void sheaf__report_show(sheaf_text *out, const sheaf__report *report);
