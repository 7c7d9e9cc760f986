/* ask.h - shared by generate, chat and eval: the flags of the model and of generation.
 */
#pragma once

#include "base/json_write.h"

#include "cli/lib/cli.h"
#include "sheaf/generate.h"

/* ask_model_table - appends the rows of the model and its loading to a table that ends with a zero
 * entry. */
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
/* ask_open - opens the model without its weights, for the processes `all`; *facts describes it. */
sheaf_status *ask_open(sheaf_model **out, sheaf_model_facts *facts, const cli *cli,
                       sheaf_model_open_options *model, const ask_flags *flags,
                       struct sheaf_comm *all);
/* ask_options - generation options from the flags of `table`; others are the model's own. Errors:
 * SHEAF_E_ARG for flags that exclude each other. */
sheaf_status *ask_options(sheaf_model_generate_options *out, const cli *cli,
                          const cli_option *table, const ask_flags *flags,
                          const sheaf_model_facts *model);
/* ask_piece - prints a piece of streamed text: unchanged, or (--json) as a line {"piece": ...}.
 */
void ask_piece(const cli *cli, const char *text);
/* ask_streams - are pieces printed? */
bool ask_streams(const cli *cli, const ask_flags *flags);
/* ask_answer_json - "tokens", "text", "end" and, if requested, "logprobs", into an open object. */
void ask_answer_json(sheaf_json_writer *to, const sheaf_answer *answer);
/* ask_facts - of a prompt; all zero where there is none. */
sheaf_prompt_facts ask_facts(const sheaf_prompts *prompts, int64_t prompt);
/* ask_images_json - "images" of an answer to this prompt: the paths, if there are several. */
void ask_images_json(sheaf_json_writer *to, const sheaf_prompts *prompts, int64_t prompt);

#define ASK_SLICES                                                                                 \
    "slices that every tensor is divided into, a power of two (default the run's, else 8)"
#define ASK_FORCE "start even if the planner says that memory does not suffice"
