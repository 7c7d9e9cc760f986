/* inputs.h - inputs of a plan: the setting of training, or of generation, with its model and data.
 */
#pragma once

#include "models/open.h"
#include "plan/plan.h"
#include "train/options.h"
#include "train/tokenizer.h"

typedef struct sheaf__plan_inputs {
    sheaf_train_options o;  /* input; the rest is set when it is opened */
    const char *place_text; /* input. NULL: a training step; else generation */
    int64_t max_new;        /* input. For generation: tokens of the answer; 0: not given */
    bool positions;         /* input. So is called what is else `seq`, the positions of a row */
    bool whole;             /* input. Without steps: padding is that of an epoch */
    /* input. Without data: pictures of each row, "N" or "N:WIDTHxHEIGHT"; NULL: one */
    const char *images_text;
    const sheaf__sampler *sampler; /* input. Of completions that are sampled; NULL: without data */
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
    sheaf__run_tokenizer tokenizer;
    sheaf__sets sets;
    int64_t data_bytes, seq;
    int64_t images;          /* of the rows of a micro-batch, at most */
    sheaf_batch_images each; /* of each row, without data */
    bool warned;             /* of assumed images */
    double padding;          /* share of the positions, with data */
    sheaf__placement place;
} sheaf__plan_inputs;

/* sheaf__plan_inputs_open - opens the model's config and the data. Close also after a failure; it
 * can be opened again with other options. */
sheaf_status *sheaf__plan_inputs_open(sheaf__plan_inputs *inputs, const sheaf_events *events);
/* sheaf__plan_inputs_count - counts images, padding and positions of a row again, after the
 * micro-batch changed. */
void sheaf__plan_inputs_count(sheaf__plan_inputs *inputs, const sheaf_events *events);
/* sheaf__plan_inputs_job - the planned run; borrows from the inputs. */
sheaf__job sheaf__plan_inputs_job(const sheaf__plan_inputs *inputs);
/* sheaf__plan_inputs_generation - the planned generation, borrowed: with max_new > 0 prompts have
 * the positions less those of the answer. Errors: SHEAF_E_ARG if that leaves no room for a prompt,
 * or for the model's image. */
sheaf_status *sheaf__plan_inputs_generation(sheaf_plan_generation *out,
                                            const sheaf__plan_inputs *inputs, int64_t max_new);
sheaf_status *sheaf__plan_inputs_answer(sheaf_plan *plan, const sheaf__plan_inputs *inputs);
void sheaf__plan_inputs_close(sheaf__plan_inputs *inputs);

/* sheaf__warn_positions - warns that the model was made for fewer positions. */
void sheaf__warn_positions(const sheaf_config *config, const char *what, int64_t positions,
                           const sheaf_events *events);
