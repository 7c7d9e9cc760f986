/* slots.h - passes of one rank over sequences that stand each in its own place of one cache of keys
 * and values.
 *
 * A pass reads rows of sequences, or gives some of them one more token each. A row's bits do not
 * depend on the others (generate.h), so an answer is the same in whatever company its tokens were
 * computed. Which pass is next the scheduler says (scheduler.h). */
#pragma once

#include "infer/batch_images.h"
#include "infer/next_token.h"

typedef struct sheaf__slots_line sheaf__slots_line;

typedef struct sheaf__slots_options {
    sheaf__model *const *model; /* [models] that share the cache of the first: its base with several
                                   adapters */
    int models;
    int64_t places, length;          /* of the cache: sequences, and positions of each */
    int64_t prompt;                  /* rows of the longest prompt that is read beside others */
    const sheaf__kv_cache *kv_cache; /* borrowed, of one place; NULL: its own */
    bool first_chooses; /* the sequences are the same memory for all ranks: only the first one fills
                           them */
} sheaf__slots_options;

/* One rank's. */
typedef struct sheaf__slots {
    sheaf__slots_options o;
    sheaf__model *model; /* borrowed: the one that owns the memory */
    sheaf__kv_cache own;
    sheaf__batch_rows row;
    sheaf__batch_images image;
    sheaf__chooser chooser;
    sheaf__slots_line *line; /* two of each model */
} sheaf__slots;

/* sheaf__slots_open - close also after a failure. */
sheaf_status *sheaf__slots_open(sheaf__slots *out, const sheaf__slots_options *options);
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

/* sheaf__slots_run - collective. The caller then counts the rows in sequence->read. */
sheaf_status *sheaf__slots_run(sheaf__slots *slots, const sheaf__slots_pass *pass);
