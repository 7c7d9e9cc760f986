/* chat_encoder.h - conversations with pictures as token ids: placed (places.h), laid out by the
 * chat template, encoded as one text. Marks are tokens; what people wrote is text, whatever it
 * looks like. Where the vocabulary is bytes, marks, bos and eos are ids above them, which the
 * config names. */
#pragma once

#include "inputs/places.h"
#include "inputs/tokenizer/tokenizer.h"

typedef struct sheaf__chat_encoder {
    sheaf__picture_form form;
    const sheaf__tokenizer *tokenizer; /* borrowed; NULL: bytes */
    const sheaf__chat_template *chat;  /* borrowed */
    const char *bos, *eos;             /* the tokenizer's as text, or NULL; borrowed */
    int32_t bos_id, eos_id;            /* -1: none */
    int32_t mark[SHEAF__MARKS];        /* ids; -1: none */
    bool specials;                     /* special tokens that people wrote are tokens */
} sheaf__chat_encoder;

/* sheaf__chat_encoder_marks - finds the ids of the family's marks, and *encoder's `form`;
 * `tokenizer` and the ids of bos and eos are set before. Errors: SHEAF_E_UNSUPPORTED for a
 * tokenizer, or (of bytes) SHEAF_E_LAYOUT for a config, without one. */
sheaf_status *sheaf__chat_encoder_marks(sheaf__chat_encoder *encoder, const sheaf_config *config);

typedef struct sheaf__chat_ids {
    int32_t *id;              /* [count] */
    sheaf__text_range *where; /* [count] in the text; begin == end: what stands for none of it */
    uint8_t *row;             /* [count] 1: the place of a row of a picture */
    int64_t count;
    const char *written; /* the first special token that people wrote as text, borrowed; or NULL */
    sheaf__rendered text;
} sheaf__chat_ids;

/* sheaf__chat_encode - `prompt`: it ends with what makes a model answer. Release also after a
 * failure. Errors: those of template and tokenizer; SHEAF_E_LAYOUT where the tokenizer makes other
 * tokens of marks. Thread-safe. */
sheaf_status *sheaf__chat_encode(sheaf__chat_ids *out, const sheaf__chat_encoder *encoder,
                                 const sheaf__placed *placed, bool prompt);
void sheaf__chat_ids_release(sheaf__chat_ids *said);

/* sheaf__chat_ids_targets - which of them an answer teaches: target[i] is the id that is to come at
 * place i, or `none`. An answer is learned with its end; where the template writes none, eos is
 * learned behind it, in place of what the next message begins with (or as *behind, which may be
 * left, where nothing follows). `message_counts` (NULL: all) says of which messages, by number. */
void sheaf__chat_ids_targets(int32_t *target, int32_t *behind, int32_t none,
                             const sheaf__chat_encoder *encoder, const sheaf__chat_ids *said,
                             bool (*message_counts)(const void *self, int64_t message),
                             const void *self);
