/* talk_row.h - private: a conversation with pictures as a row: read from JSON, its pictures looked
 * at, put in their places, encoded, and which tokens are learned.
 *
 * A record is one of text_record.h's with a conversation (or a prompt and its completion), and with
 * pictures as talk_pictures.h has them. Those that no message names stand in front of the first.
 * Paths are relative to the file's folder. */
#pragma once

#include "data/data.h"
#include "data/fields.h"
#include "inputs/speech.h"
#include "inputs/viewing.h"

typedef struct sheaf__talk_reader {
    const sheaf_config *config;
    const char *folder; /* that paths are relative to */
    sheaf__speech speech;
    sheaf__viewing viewing;
    sheaf_loss_on loss_on;
    const sheaf__fields *fields; /* borrowed */
} sheaf__talk_reader;

typedef struct sheaf__talk_row {
    int32_t *id, *label; /* [count] */
    uint8_t *row;        /* [count] places of a picture's rows */
    int32_t behind;      /* label behind the last */
    int64_t count;
    int64_t left_out;       /* messages that the template writes nowhere */
    const char *written;    /* the first special token that is learned as text, or NULL */
    sheaf__viewed *picture; /* [pictures], as they stand in the text */
    int64_t pictures;
    char ignored[64]; /* name of a field that is not read, or "" */
    const char *lost; /* as sheaf__text_record has it */
} sheaf__talk_row;

/* sheaf__talk_row_read - errors: SHEAF_E_DATA (field), those of pictures,
 * template and tokenizer. Empty after a failure. Thread-safe. */
sheaf_status *sheaf__talk_row_read(sheaf__talk_row *out, const sheaf__talk_reader *reader,
                                   const char *json, size_t size);
void sheaf__talk_row_release(sheaf__talk_row *row);
