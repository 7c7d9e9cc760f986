/* chat_encoder.h - conversations with pictures as token ids: with pictures in place (places.h),
 * rendered by the chat template, encoded as one text. Marks become tokens; what people wrote is
 * encoded as text, even where it looks like a mark. In a vocabulary of bytes, marks, bos and eos
 * are ids above the bytes, from the config. */
#pragma once

#include "inputs/places.h"
#include "inputs/tokenizer/tokenizer.h"

typedef struct sheaf__chat_encoder {
    sheaf__picture_form form;
    const sheaf__tokenizer *tokenizer; /* borrowed; NULL: bytes */
    const sheaf__chat_template *chat;  /* borrowed */
    const json_t *tools;               /* descriptions of tools, or NULL; borrowed */
    const char *bos, *eos;             /* the tokenizer's tokens as text, or NULL; borrowed */
    int32_t bos_id, eos_id;            /* -1: none */
    int32_t mark[SHEAF__MARKS];        /* ids; -1: none */
    bool begins, ends;                 /* rows of a tower stand in the place of these marks, too */
    bool specials;                     /* special tokens in what people wrote are tokens */
} sheaf__chat_encoder;

/* sheaf__chat_encoder_marks - sets `form` and the ids of the family's marks; `tokenizer` and the
 * ids of bos and eos are set before. Errors for a missing mark: SHEAF_E_UNSUPPORTED with a
 * tokenizer, SHEAF_E_LAYOUT with a vocabulary of bytes. */
sheaf_status *sheaf__chat_encoder_marks(sheaf__chat_encoder *encoder, const sheaf_config *config);

typedef struct sheaf__chat_ids {
    int32_t *id;              /* [count] */
    sheaf__text_range *where; /* [count] in the text; begin == end: stands for no text */
    uint8_t *row;             /* [count] 1: a row of a tower stands here */
    int64_t count;
    const char *written; /* the first special token in what people wrote, encoded as text; borrowed,
                            or NULL */
    sheaf__rendered text;
} sheaf__chat_ids;

/* sheaf__chat_encode - `prompt`: end with the prompt for an answer. Release also after a failure.
 * Errors: those of template and tokenizer; SHEAF_E_LAYOUT where the tokenizer does not encode marks
 * as their tokens. Thread-safe. */
sheaf_status *sheaf__chat_encode(sheaf__chat_ids *out, const sheaf__chat_encoder *encoder,
                                 const sheaf__placed *placed, bool prompt);
void sheaf__chat_ids_release(sheaf__chat_ids *encoded);

/* sheaf__chat_ids_targets - labels: target[i] is the label of position i, or `none`. An answer is
 * labelled with its end mark; where the template writes none, eos is the label after it, in place
 * of the next message's first token (or *behind, which stays unset otherwise, at the end of the
 * text). `message_counts` selects messages by number; NULL: all. */
void sheaf__chat_ids_targets(int32_t *target, int32_t *behind, int32_t none,
                             const sheaf__chat_encoder *encoder, const sheaf__chat_ids *encoded,
                             bool (*message_counts)(const void *self, int64_t message),
                             const void *self);
