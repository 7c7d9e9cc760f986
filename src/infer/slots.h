/* slots.h - passes over sequences that stand each in its own place of one cache of keys and values.
 * The leader lays a pass out (lead.h), and every rank computes it.
 *
 * A pass reads rows of sequences, or gives some of them one more token each. A row's bits do not
 * depend on the others (generate.h), so an answer is the same in whatever company its tokens were
 * computed. Which pass is next the scheduler says (scheduler.h). */
#pragma once

#include "infer/lead.h"
#include "infer/next_token.h"

/* A rank's part in every job. */
typedef struct sheaf__member {
    sheaf__model *const *model; /* [models] that share the cache of the first: its base with several
                                   adapters; borrowed */
    int models;
    sheaf__rank_cache *cache; /* as of sheaf__generate_options: of a job of one place */
    const atomic_int *stop;   /* other than 0: a request to stop; may be NULL */
} sheaf__member;

/* One rank's. */
typedef struct sheaf__slots {
    sheaf__member member;
    sheaf__slots_size size;
    sheaf__model *model; /* the one that owns the memory; NULL: they are not open */
    sheaf__kv_cache own;
    const sheaf__kv_cache *kv_cache; /* `own`, or the member's */
    /* The member's output of the towers: filled by a pass over a single sequence, then used while
     * `full`. NULL: they run each time. */
    sheaf__image_cache *image_cache;
    sheaf__batch_rows row;
    sheaf__batch_images image;
    sheaf__chooser chooser;
    /* [models] The recorded pass that gives n sequences a token; tape NULL: none yet. */
    struct sheaf__slots_decode {
        sheaf__tape *tape;
        int64_t n;
    } * decode;
    sheaf__rows_in in; /* of the running pass */
    sheaf__head_run head;
    int64_t *keys, *place;      /* [places] of the running pass */
    int32_t *pick;              /* [places] */
    sheaf__slots_step step;     /* that pass */
    sheaf__sequence *const *of; /* [n] by the leader */
    bool chooses;               /* by the leader: it gives tokens */
    bool stopped;               /* a rank has a request to stop */
    int64_t prompt;             /* by the leader: as in `step` */
} sheaf__slots;

/* sheaf__slots_open - close also after a failure; they must not move. */
sheaf_status *sheaf__slots_open(sheaf__slots *out, const sheaf__member *member,
                                const sheaf__slots_size *size);
void sheaf__slots_close(sheaf__slots *slots);

/* A pass: of model `model`, over n sequences. */
typedef struct sheaf__slots_pass {
    int model;
    sheaf__sequence *const *of; /* [n] */
    int64_t n;
    /* Rows that are read of each, shorter ones padded: they have as many cached, and of several all
     * that is known is read. With the last that is known the next token is chosen. 0: the last
     * token of each is read, which alone of its rows is not cached, and the next is chosen. */
    int64_t rows;
} sheaf__slots_pass;

/* sheaf__slots_run - by the leader; the others receive the order, which sheaf__slots_obey() takes.
 * The caller then counts the rows in sequence->read. A failure is settled (lead.h). */
sheaf_status *sheaf__slots_run(sheaf__slots *slots, const sheaf__slots_pass *pass);
/* sheaf__slots_copy - by the leader: rows that are cached in one place, of text, are in another. */
sheaf_status *sheaf__slots_copy(sheaf__slots *slots, const struct sheaf__slots_copy *copy);
sheaf_status *sheaf__slots_obey(sheaf__slots *slots, sheaf__order *order, char *bytes);
