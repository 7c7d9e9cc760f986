/* engine.h - a loaded model, with several adapters, that answers many requests side by side.
 *
 * The first rank leads the others (lead.h), threads or processes. Answers take places of one cache
 * of keys and values as they become free, in the order of arrival once their pictures are decoded
 * (decoder.h), and join and leave between two tokens (slots.h). Each is what `sheaf generate` gives
 * for the same prompt, flags and seed. */
#pragma once

#include <stdatomic.h>

#include "infer/answer.h"
#include "infer/decoder.h"
#include "infer/next_token.h"
#include "models/ranks.h"

typedef struct sheaf__engine sheaf__engine;

typedef struct sheaf__engine_options {
    sheaf__model_ranks *ranks;    /* borrowed: of the first model */
    sheaf__opened *const *opened; /* [models] borrowed: it, and adapters of it */
    const char *const *name;      /* [models] borrowed */
    int models, processes;        /* of several processes the first alone gets requests */
    int64_t positions;            /* of every prompt with its answer */
    int64_t places;               /* answers computed side by side */
    int64_t waiting;              /* requests that wait, at most */
    double seconds;               /* that a request may take, from its arrival on; 0: no limit */
    const atomic_int *stop;       /* of this process, if it is not the first: a request to end */
} sheaf__engine_options;

/* A request: `each` answers to prompts[0], then to prompts[1] ... The engine borrows it from
 * sheaf__engine_submit() until `on_end` has been called, which is once, by another thread. */
typedef struct sheaf__engine_request {
    int model;              /* 0: without an adapter; i: with number i - 1 */
    sheaf__prompts prompts; /* the caller's to release; pictures in memory */
    sheaf__answer_options how;
    const char *const *stop; /* of `how` */
    int64_t each;            /* answers to each prompt; sampling counts them, from 0 */
    sheaf__on_delta *on_delta;
    bool (*cancelled)(void *context); /* the client disconnected */
    /* All answers are over, or (st, which it takes) it failed. */
    void (*on_end)(void *context, sheaf_status *st);
    void *context; /* of all three */
    /* The engine's. */
    sheaf__answers answers;
    sheaf__sequence *s; /* [answers.count] */
    sheaf__decoding pictures;
    double arrived;
    bool too_long;       /* the prompt leaves no room for an answer */
    bool waits, dropped; /* waits: it counts among those that wait */
    struct sheaf__engine *engine;
    struct sheaf__engine_request *next;
} sheaf__engine_request;

/* sheaf__engine_open - loads the adapters. In other processes than the first it returns when the
 * first one's engine is closed, or with a failure. Collective. */
sheaf_status *sheaf__engine_open(sheaf__engine **out, const sheaf__engine_options *options);
/* sheaf__engine_close - requests must be over; accepts NULL. */
void sheaf__engine_close(sheaf__engine *engine);

/* sheaf__engine_submit - *full: too many wait already; then, and after an error, nothing is kept.
 * Errors: SHEAF_E_DATA for a prompt that leaves no room for an answer, or pictures that the model
 * does not take; SHEAF_E_STOPPED after sheaf__engine_drain(). */
sheaf_status *sheaf__engine_submit(bool *full, sheaf__engine *engine,
                                   sheaf__engine_request *request);
/* sheaf__engine_drain - no more requests are taken; returns when those that were are over. */
void sheaf__engine_drain(sheaf__engine *engine);
/* sheaf__engine_counts - requests that wait, and answers that are computed. */
void sheaf__engine_counts(sheaf__engine *engine, int64_t *waiting, int64_t *running);
/* sheaf__engine_lost - *over: it is to end: another process asks for that, or (then with this
 * error) is gone. */
sheaf_status *sheaf__engine_lost(bool *over, sheaf__engine *engine);
