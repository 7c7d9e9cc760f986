/* scheduler.h - the decode loop: sequences wait in the order of their arrival, take places of one
 * cache as those become free, are read, get one token each in every pass, and leave.
 *
 * It decides, on the leader alone, and runs nothing itself: slots.h computes a pass. A place
 * remembers its rows: a prompt that begins with them is read from there on, in another place behind
 * a copy of them. */
#pragma once

#include "infer/prefix_cache.h"
#include "infer/slots.h"

typedef struct sheaf__scheduler sheaf__scheduler;

typedef struct sheaf__scheduler_options {
    const sheaf_config *config;
    int models;             /* sequences choose one of them */
    int64_t places, length; /* of the cache: sequences, and positions of each */
    /* Rows of one prompt that are read between two tokens of the others; 0: all, and prompts that
     * wait together are read together. */
    int64_t chunk;
    sheaf__prefix_cache *past; /* borrowed: what the only place holds, from one to the next; NULL:
                                  its own notes */
    /* May a sequence that waits begin? Others pass it until it may. NULL: always. */
    bool (*ready)(sheaf__sequence *sequence);
    /* Runs a pass. A failure ends the sequences that took part in it. */
    sheaf_status *(*run)(void *self, const sheaf__slots_pass *pass);
    /* Copies rows from place to place, so that what prompts have in common is read once; NULL: each
     * is read whole. */
    sheaf_status *(*copy)(void *self, const struct sheaf__slots_copy *copy);
    void *self;
} sheaf__scheduler_options;

/* sheaf__scheduler_open - close also after a failure. */
sheaf_status *sheaf__scheduler_open(sheaf__scheduler **out,
                                    const sheaf__scheduler_options *options);
/* sheaf__scheduler_close - forgets its sequences; accepts NULL. */
void sheaf__scheduler_close(sheaf__scheduler *scheduler);

/* sheaf__scheduler_add - the sequence, borrowed until it is over, waits for a place. Its answer
 * fits the cache. */
void sheaf__scheduler_add(sheaf__scheduler *scheduler, sheaf__sequence *sequence);
/* sheaf__scheduler_idle - has every sequence left? */
bool sheaf__scheduler_idle(const sheaf__scheduler *scheduler);
/* sheaf__scheduler_step - lets sequences take free places; reads a chunk of a prompt and gives each
 * answer that has begun a token, or without chunks reads all that wait, or gives the tokens. Places
 * of sequences that are over, by their end or because the caller has set `over`, are free then. */
void sheaf__scheduler_step(sheaf__scheduler *scheduler);
/* sheaf__scheduler_leave - only the last of it, for sequences whose memory is to be freed: those
 * that wait leave, too. */
void sheaf__scheduler_leave(sheaf__scheduler *scheduler);
