/* inner.h - private to comm/watch: what the watching thread knows, and the two sides that it may be
 * on: the first process's (first.c), which hears of all others, and that of any other (other.c).
 * Both call known.c, and neither calls the thread (watch.c). */
#pragma once

#include <pthread.h>

#include "comm/watch/self.h"
#include "comm/watch/verdict.h"
#include "comm/watch/watch.h"

/* Frames. From the others to the first: HELLO, BEAT, BYE; from the first: WELCOME, BEAT, END, BYE.
 */
enum { SHEAF__HELLO = 1, SHEAF__WELCOME, SHEAF__BEAT, SHEAF__END, SHEAF__BYE };

enum { SHEAF__BEAT_MS = 250, SHEAF__LAST_WORDS_MS = 300 };

typedef struct sheaf__watch_hello {
    unsigned char token[16];
    int32_t process;
    sheaf__self self;
} sheaf__watch_hello;

typedef struct sheaf__watch_ending {
    int32_t victims;
    sheaf__self victim[SHEAF_MAX_SLICES];
} sheaf__watch_ending;

/* A connection: of the first process one for each of the others, of another that to the first. */
typedef struct sheaf__watch_peer {
    int fd;       /* -1: none */
    int process;  /* -1: it has not said */
    double heard; /* when */
    double died;  /* when; 0: it lives */
    bool silent;  /* before that, for long: it was stopped, and another process killed it */
    bool bye;
    sheaf__self self;
    sheaf__line_in in;
} sheaf__watch_peer;

struct sheaf__watch {
    sheaf__watch_options o;
    int listens, wake;
    pthread_t thread;
    sheaf__self self;
    sheaf__line_place place;
    sheaf__watch_peer *peer; /* [peers] */
    int peers;
    sheaf__ranks ranks;
    double looked, beaten; /* when */
    uint64_t progress;     /* of all ranks, when it last changed, and when that was */
    double progressed;
    atomic_bool closing;
};

static inline bool sheaf__watch_is_first(const sheaf__watch *w)
{
    return w->o.process == 0;
}

static inline bool sheaf__watch_alone(const sheaf__watch *w)
{
    return w->o.processes == 1;
}

static inline int sheaf__watch_first_rank(const sheaf__watch *w)
{
    return sheaf__watch_alone(w) ? 0 : w->o.process;
}

/* Both sides (known.c).
 * sheaf__watch_take_told - what a frame tells of a rank.
 * sheaf__watch_tell_own - takes what this process's records say into w->ranks.
 * sheaf__watch_kill_here - kills what is on this machine of those that do not answer. */
void sheaf__watch_take_told(sheaf__watch *watch, int rank, const void *told);
void sheaf__watch_tell_own(sheaf__watch *watch);
void sheaf__watch_kill_here(const sheaf__watch *watch, const sheaf__watch_ending *ending);

/* The first process (first.c).
 * sheaf__watch_lost - `peer` is gone or silent: tells it, and ends all.
 * sheaf__watch_judge_hang - do ranks hang? Ends all.
 * sheaf__watch_hear_other - a frame of `peer`.
 * sheaf__watch_welcome - somebody calls. */
void sheaf__watch_lost(sheaf__watch *watch, sheaf__verdict_kind kind, const sheaf__watch_peer *peer,
                       double now);
void sheaf__watch_judge_hang(sheaf__watch *watch, double now);
void sheaf__watch_hear_other(sheaf__watch *watch, sheaf__watch_peer *peer, int kind,
                             const void *bytes, size_t size);
void sheaf__watch_welcome(sheaf__watch *watch, double now);

/* Any other (other.c).
 * sheaf__watch_lost_first - nobody else can tell this process anything: it ends.
 * sheaf__watch_hear_first - a frame of the first.
 * sheaf__watch_call_first - connects to it. */
void sheaf__watch_lost_first(sheaf__watch *watch, sheaf__verdict_kind kind);
void sheaf__watch_hear_first(sheaf__watch *watch, int kind, const void *bytes, size_t size);
sheaf_status *sheaf__watch_call_first(sheaf__watch *watch);
