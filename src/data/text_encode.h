/* text_encode.h - a record of text as a row: ids and labels.
 *
 * A conversation is rendered by the chat template and encoded as one text, as transformers'
 * apply_chat_template() does; the template writes bos and the ends of turns itself. A token is a
 * label if at least one of its bytes belongs to an answer or its end of turn, as in transformers'
 * return_assistant_tokens_mask. Where the template writes no end of turn, eos is the label behind
 * the answer. prompt and completion are encoded as one text too, without a
 * template, between what the tokenizer adds in front (bos) and eos; a token across the boundary is
 * a label. Of a text all tokens are labels. Special tokens that are written in a text are text,
 * unless `specials` says otherwise. */
#pragma once

#include "data/data.h"
#include "data/text_record.h"
#include "inputs/chat/chat.h"
#include "inputs/tokenizer/tokenizer.h"

typedef struct sheaf__text_encoder {
    const sheaf_config *config;        /* borrowed, as what follows */
    const sheaf__tokenizer *tokenizer; /* NULL: the bytes of a text are its ids */
    const sheaf__chat_template *chat;  /* NULL: conversations cannot be read */
    const char *bos, *eos; /* the tokenizer's tokens as text, for the template; NULL: none */
    int32_t eos_id;        /* behind texts and open answers; -1: none */
    sheaf_loss_on loss_on;
    bool specials;
} sheaf__text_encoder;

typedef struct sheaf__text_row {
    int32_t *id;      /* [count], malloc'd like all arrays here */
    uint8_t *trained; /* [count] 0, 1 or SHEAF__END_HERE; NULL: see `label` */
    int64_t count;
    int64_t left_out;    /* messages that the template does not write */
    const char *written; /* the first special token that is encoded as text, borrowed from the
                            tokenizer; or NULL */
    /* With pictures (data_conversations.h). */
    int32_t *label;                /* [count] */
    int32_t behind;                /* the label after the last token */
    uint8_t *place;                /* [count] 1: a row of a picture */
    struct sheaf__viewed *picture; /* [pictures] in the order of the text */
    int64_t pictures;
} sheaf__text_row;

/* sheaf__text_encode - errors: SHEAF_E_DATA, SHEAF_E_UNSUPPORTED (a conversation without a
 * template), those of template and tokenizer. *out is empty after a failure. Thread-safe. */
sheaf_status *sheaf__text_encode(sheaf__text_row *out, const sheaf__text_encoder *encoder,
                                 const sheaf__text_record *record);
/* sheaf__text_leave_second - drops one of two bos at the beginning, where the tokenizer adds one
 * and the text has its own; sets *n. */
void sheaf__text_leave_second(int32_t *id, sheaf__text_range *where, int64_t *n);
void sheaf__text_row_release(sheaf__text_row *row);
