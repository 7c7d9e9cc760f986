/* reward.h - what completions are worth: rewards by rules and by programs (docs/preference.md).
 *
 * A list with ";" of: "exact", 1 where a completion is the record's answer, else 0;
 * "regex:PATTERN", 1 where it has a match of the extended regular expression; the folder of a
 * reward model, its score (reward_model.h); else a command for the shell, which reads a JSON object
 * a line, {"prompt", "completion", "expected", "truncated", "step"}, with pictures also "images",
 * their paths, and writes for each a line
 * with a number, or null: none. Every batch starts it anew; it ends with its batch, with all that
 * it started; where the run is killed, only the shell does, or what it becomes by "exec". Blanks
 * around an entry do not count, but behind a pattern. */
#pragma once

#include <regex.h>
#include <stdatomic.h>

#include "base/base.h"
#include "inputs/viewing.h"
#include "train/sampler.h"

enum { SHEAF__MOST_REWARDS = SHEAF__MOST_JUDGES };

typedef struct sheaf__rewards {
    int count;
    struct sheaf__reward {
        enum {
            SHEAF__REWARD_EXACT,
            SHEAF__REWARD_REGEX,
            SHEAF__REWARD_MODEL,
            SHEAF__REWARD_PROGRAM
        } kind;
        char *text; /* owned: as given */
        regex_t pattern;
        double weight;
    } of[SHEAF__MOST_REWARDS];
    double seconds;            /* that a program has for a batch */
    const atomic_int *stop[2]; /* one is not 0: it is killed; each may be NULL */
} sheaf__rewards;

/* One completion. Texts may be NULL. */
typedef struct sheaf__judged {
    const char *prompt, *completion, *expected;
    bool truncated, equal;       /* equal: it is the expected answer */
    const sheaf__viewed *viewed; /* [nviewed] pictures of the prompt */
    int64_t nviewed;
    int64_t step;
} sheaf__judged;

/* sheaf__reward_entry - the entry of a list at *list without blanks around it (malloc'd), and
 * whether it is "exact" or a pattern; *list then is at its ";" or at the end. */
sheaf_status *sheaf__reward_entry(char **text, bool *rule, const char **list);
/* sheaf__rewards_open - weights: with ","; NULL or empty: 1 each; `stop` is NULL. Errors:
 * SHEAF_E_ARG. Close also after a failure. */
sheaf_status *sheaf__rewards_open(sheaf__rewards *out, const char *list, const char *weights,
                                  double seconds);
void sheaf__rewards_close(sheaf__rewards *rewards);
/* sheaf__rewards_judge - out[n]: the weighted sum of what is not none; NaN: all are. score: [n] of
 * each reward model, in order. Errors:
 * SHEAF_E_DATA naming the program and line, SHEAF_E_IO, SHEAF_E_STOPPED. */
sheaf_status *sheaf__rewards_judge(double *out, const sheaf__rewards *rewards,
                                   const sheaf__judged *of, int64_t n, const double *score);
