/* ask.h - what generate, chat and eval share: the flags that name a model and say how it is asked,
 * prompts from a data set of tokens. */
#pragma once

#include <jansson.h>

#include "cli/lib/cli.h"
#include "data/data.h"
#include "infer/prompts.h"
#include "library/model.h"
#include "models/crew.h"

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
/* ask_open - the model without its weights, for `positions` (0: as many as its first prompts take).
 */
sheaf_status *ask_open(sheaf_model **out, const cli *cli, sheaf_model_open_options *model,
                       const ask_flags *flags, int64_t positions, sheaf_comm *all);
/* ask_asking - what the flags of `table` say, and where they say nothing what the model's
 * generation_config.json does; `texts`: or, of what it leaves open, the family's own program.
 * Errors: SHEAF_E_ARG for flags that do not go together. */
sheaf_status *ask_asking(sheaf__asking *out, const cli *cli, const cli_option *table,
                         const ask_flags *flags, const sheaf_model *model, bool texts);
/* ask_piece - prints a piece of text that comes: as it is, or (--json) as {"piece": ...} in a line.
 */
void ask_piece(const cli *cli, const char *text);
/* ask_streams - are pieces printed? */
bool ask_streams(const cli *cli, const ask_flags *flags);
/* ask_answer_json - "tokens", "text", "end" and, where they were asked for, "logprobs". */
json_t *ask_answer_json(const sheaf_answer *answer);
/* ask_json - `text` as a JSON string, null without one. What is no UTF-8 in it, a path, becomes
 * U+FFFD. */
json_t *ask_json(const char *text);
/* ask_images_json - "images" of an answer: the paths of all of them, where there are several. */
void ask_images_json(json_t *answer, const sheaf__prompt_about *about);
json_t *ask_json_real(double value); /* what is not finite is null */

/* ask_data - every row up to its first label is a prompt; the text of its labels, where there are
 * any and the model has text, is what is expected. Rows without labels are prompts as a whole. */
sheaf_status *ask_data(sheaf__prompts *out, const sheaf__wording *wording, const sheaf_data *data);
/* ask_data_load - sheaf__generate_options.load for them; self is the data set. */
sheaf_status *ask_data_load(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n);

#define ASK_SLICES "parts every tensor falls into, a power of two (default the run's, else 8)"
#define ASK_FORCE "begin even where the planner says that memory does not suffice"

/* ask_reach - refuses prompts that alone are longer than the model was made for, unless max_length
 * (0: not given) allows them by name; warns where prompts and answers may come to be. */
sheaf_status *ask_reach(const sheaf_config *config, const sheaf__prompts *prompts, int64_t max_new,
                        int64_t max_length, const sheaf_events *events);
