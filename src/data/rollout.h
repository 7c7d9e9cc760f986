/* rollout.h - records of completions and their rewards (docs/preference.md):
 *
 *   a group   {"prompt": P, "completions": [C, ...], "rewards": [X, ...]}
 *   one       {"prompt": P, "completion": C, "reward": X}; lines that follow each other are a group
 *             as long as their prompts are the same tokens, or where "group" is one number
 *
 * P and C are texts, or lists of messages (P also as "messages", C also a text behind such a list).
 * Tokens are "prompt_ids" and "completion_ids", of a group a list of lists. A reward may be null:
 * none. Optional are "logps", the log-probability of each token when it was sampled, and
 * "truncated": no end was reached; without it a completion of tokens is truncated unless its last
 * one is an end, one of text never. */
#pragma once

#include <jansson.h>

#include "data/text_encode.h"
#include "data/text_rows.h"

/* A completion, behind its prompt. */
typedef struct sheaf__rollout {
    sheaf__text_row row;
    double reward; /* NaN: none */
    bool ended;
    float *logp; /* [logps] of its labels; NULL: none */
    int64_t logps;
} sheaf__rollout;

typedef struct sheaf__rollouts {
    int64_t count;
    sheaf__rollout *of; /* [count] */
    bool whole;         /* a group of its own, */
    int64_t group;      /* or of this number; -1: that of the line before where prompts agree */
} sheaf__rollouts;

/* sheaf__rollouts_read - encodes a record. record: for notes on what it has; the caller releases
 * it. Errors: SHEAF_E_DATA (field), those of sheaf__text_encode(). Release also after a failure.
 * Thread-safe. */
sheaf_status *sheaf__rollouts_read(sheaf__rollouts *out, sheaf__text_record *record, json_t *json,
                                   const sheaf__text_encoder *encoder);
/* sheaf__rollouts_put - into the data set, whose logps it takes; left out whole where one is too
 * long. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__rollouts_put(sheaf__rollouts *of, sheaf__row_writer *writer,
                                  sheaf__text_counts *counts, const sheaf_data_options *options,
                                  int64_t place);
void sheaf__rollouts_release(sheaf__rollouts *of);

/* A completion to be scored: behind a conversation, or behind a text. */
typedef struct sheaf__to_score {
    const sheaf__message *message; /* [messages] */
    int64_t messages;              /* 0: a text */
    const char *prompt, *completion;
} sheaf__to_score;

/* sheaf__data_to_score - rows of a reward model, as sheaf_data_open() makes them of such records
 * (`scores`). Errors: those of sheaf__text_encode(). */
sheaf_status *sheaf__data_to_score(sheaf_data **out, const sheaf__text_encoder *encoder,
                                   const sheaf__to_score *of, int64_t n);
