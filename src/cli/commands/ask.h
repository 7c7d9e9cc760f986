/* ask.h - what generate, chat and eval share: the flags that name a model and say how it answers.
 */
#pragma once

#include "base/json.h"

#include "cli/lib/cli.h"
#include "sheaf/generate.h"

/* ask_append - rows of so many bytes, the last of them zero, to a table that ends with a zero
 * entry.
 */
void ask_append(cli_option *table, const cli_option *rows, size_t bytes);
/* ask_model_table - as ask_table(): which model, and how it is loaded. */
void ask_model_table(cli_option *table, sheaf_model_open_options *model);

typedef struct ask_flags {
    const char *system;
    sheaf__texts stop;
    bool greedy, stream, specials;
    int order; /* of --sampling: 0 = transformers' */
    double temperature, top_p, penalty;
    int64_t top_k, max_new, max_length, logprobs;
    uint64_t seed;
} ask_flags;

/* ask_table - appends the rows of these flags to a table that ends with a zero entry; sets the
 * defaults. */
void ask_table(cli_option *table, ask_flags *flags, sheaf_model_open_options *model,
               int64_t max_new);
/* ask_open - the model without its weights, of the processes `all`, and what it is. */
sheaf_status *ask_open(sheaf_model **out, sheaf_model_facts *facts, const cli *cli,
                       sheaf_model_open_options *model, const ask_flags *flags,
                       struct sheaf_comm *all);
/* ask_options - of answers, as the flags of `table` say; other than theirs is the model's own.
 * Errors: SHEAF_E_ARG for flags that do not go together. */
sheaf_status *ask_options(sheaf_model_generate_options *out, const cli *cli,
                          const cli_option *table, const ask_flags *flags,
                          const sheaf_model_facts *model);
/* ask_piece - prints a piece of text that comes: as it is, or (--json) as {"piece": ...} in a line.
 */
void ask_piece(const cli *cli, const char *text);
/* ask_streams - are pieces printed? */
bool ask_streams(const cli *cli, const ask_flags *flags);
/* ask_answer_json - "tokens", "text", "end" and, where they were asked for, "logprobs". */
json_t *ask_answer_json(const sheaf_answer *answer);
/* ask_images_json - "images" of an answer to this prompt: the paths, where there are several. */
void ask_images_json(json_t *to, const sheaf_prompts *prompts, int64_t prompt);

#define ASK_SLICES                                                                                 \
    "slices that every tensor is divided into, a power of two (default the run's, else 8)"
#define ASK_FORCE "start even if the planner says that memory does not suffice"
