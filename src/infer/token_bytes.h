/* token_bytes.h - the bytes that each token adds to a text, in the order of these bytes. */
#pragma once

#include "infer/codec.h"

typedef struct sheaf__token_bytes {
    int64_t ids, count;  /* tokens; those that add some bytes */
    unsigned char *byte; /* of all of them, one after the other */
    uint32_t *at;        /* [ids + 1] where those of an id begin */
    int32_t *id;         /* [count] ascending by bytes */
    uint16_t *same;      /* [count] bytes that it begins with as the one before does */
    /* [count] characters, of tokens that are whole characters and stand in a JSON string as they
     * are: no quote, backslash or control; else SHEAF__NOT_PLAIN */
    uint8_t *plain;
    int64_t longest;
} sheaf__token_bytes;

enum { SHEAF__NOT_PLAIN = 255 };

/* sheaf__token_bytes_open - special tokens are 0xFF and their name, and no other has 0xFF. Close
 * also after a failure. Errors: SHEAF_E_UNSUPPORTED without a tokenizer; SHEAF_E_MEMORY. */
sheaf_status *sheaf__token_bytes_open(sheaf__token_bytes *out, const sheaf__codec *codec);
void sheaf__token_bytes_close(sheaf__token_bytes *tokens);
