/* layout.h - one sequence of CogVLM or CogAgent: the places of image, prompt, answer and padding,
 * and the masks of each position (upstream: utils/language.py).
 *
 *   bos, [BOI, patches, EOI,] prompt, [answer, eos,] pad ...
 *
 * BOI, patches and EOI hold one id that stands for no text; the masks tell them apart. Position ids
 * count up from 0 through the padding, but all patches share one. Works on ids of any tokenizer. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

typedef struct sheaf__sequence_options {
    int64_t patches;    /* P of the model; 0: a sequence without an image */
    int64_t max_length; /* for training the length; for inference a limit, 0 = none */
    int32_t bos, eos, pad;
    int32_t image_id; /* of BOI, patches and EOI */
} sheaf__sequence_options;

typedef struct sheaf__ids {
    const int32_t *id;
    int64_t count;
} sheaf__ids;

typedef struct sheaf__sequence {
    int64_t length;         /* positions, padding included */
    int64_t used;           /* positions before the padding */
    int64_t context;        /* positions from bos to the end of the prompt */
    int64_t image_position; /* of EOI, -1 without an image */
    int64_t cut;            /* tokens of the answer that were truncated */
    /* [length]; labels are not shifted, -100 = ignored */
    int32_t *input_ids, *labels, *position_ids;
    /* [length] BOI..EOI; BOI and patches; patches */
    uint8_t *image_embed_mask, *vision_expert_mask, *image_rope_mask;
    void *block; /* holds all of them */
} sheaf__sequence;

/* sheaf__sequence_train - prompt and answer without bos and eos. As upstream, a sequence whose
 * context leaves fewer than 10 positions is refused, and an answer that would leave fewer than 2
 * pads is cut (see `cut`). Errors: SHEAF_E_DATA with the counts and a sufficient max_length. *out
 * untouched on failure. */
sheaf_status *sheaf__sequence_train(sheaf__sequence *out, sheaf__ids prompt, sheaf__ids answer,
                                    const sheaf__sequence_options *options);
/* sheaf__sequence_prompt - no answer, no padding, labels all -100. Errors: SHEAF_E_DATA when there
 * is no position left for an answer. */
sheaf_status *sheaf__sequence_prompt(sheaf__sequence *out, sheaf__ids prompt,
                                     const sheaf__sequence_options *options);
void sheaf__sequence_release(sheaf__sequence *sequence);

/* sheaf__sequence_needs - the smallest max_length without an error or a truncated answer. */
int64_t sheaf__sequence_needs(int64_t prompt, int64_t answer,
                              const sheaf__sequence_options *options);
