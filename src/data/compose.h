/* compose.h - a record to a sequence: template, tokenizer and layout in one call.
 *
 * Errors name the field or the text, not the record: sheaf__record_in() does. */
#pragma once

#include <stdbool.h>

#include "inputs/layout.h"
#include "data/records.h"
#include "inputs/tokenizer/tokenizer.h"

typedef struct sheaf__compose_options {
    sheaf__template version;
    const sheaf__tokenizer *tokenizer; /* NULL: the bytes of a text are its ids */
    bool specials;                     /* special tokens in texts are tokens, not text */
    sheaf__sequence_options layout; /* patches are used for records with an image only; a max_length
                                       of 0 is as long as the record needs */
    bool no_answer;                 /* for inference: without the last turn's answer */
} sheaf__compose_options;

/* sheaf__compose - an answer beyond max_length is truncated, as upstream: out->cut. Errors:
 * SHEAF_E_DATA for a prompt that does not fit, for "<image>" in a question without an image or not
 * once in the first, and for several turns with a template that has no place for them; the
 * tokenizer's. *out untouched on failure. Thread-safe. */
sheaf_status *sheaf__compose(sheaf__sequence *out, const sheaf__record *record,
                             const sheaf__compose_options *options);
