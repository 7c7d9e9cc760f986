/* listing.h - a tokenizer taken apart, for files of other programs that hold one. */
#pragma once

#include "base/text.h"
#include "inputs/tokenizer/tokenizer.h"

/* Numbered as sentencepiece does, and GGUF. */
typedef enum sheaf__token_kind {
    SHEAF__TOKEN_NONE, /* no token has this id */
    SHEAF__TOKEN_NORMAL,
    SHEAF__TOKEN_UNKNOWN,
    SHEAF__TOKEN_CONTROL, /* special, of no text */
    SHEAF__TOKEN_USER,    /* found in a text before all else */
    SHEAF__TOKEN_UNUSED,
    SHEAF__TOKEN_BYTE,
} sheaf__token_kind;

typedef struct sheaf__listed_token {
    char *text; /* owned; NULL: none. Of a byte-level tokenizer in the alphabet of its bytes */
    size_t size;
    sheaf__token_kind kind;
    float score; /* of those that are not byte-level: what is merged into the highest comes first */
} sheaf__listed_token;

typedef struct sheaf__listing {
    sheaf__listed_token *token; /* [count] */
    int64_t count;
    bool byte_level;
    /* Of a byte-level tokenizer: its merges, the first ones first, as pairs of ids; how it divides
     * a text before, step by step, a line each: "gpt2", "llama3", "qwen2", "tekken" for their
     * patterns, "digits", "blank" for one put before a text, else the pattern. */
    int32_t (*merge)[2];
    int64_t merges;
    char *splitting;
    int32_t bos, eos, unk, pad; /* -1: none */
    /* Ids that encoding puts before a text and behind it, so many each, of which two are kept. */
    struct {
        int64_t count;
        int32_t id[2];
    } before, behind;
    int space_prefix; /* 1, 0; -1: its files say neither */
} sheaf__listing;

/* sheaf__listing_read - of the tokenizer of a folder; release also after a failure. Errors: those
 * of sheaf__tokenizer_open(). */
sheaf_status *sheaf__listing_read(sheaf__listing *out, const char *folder);
/* sheaf__listing_bytes - the tokenizer of a vocabulary of bytes: `count` tokens, of which the first
 * 256 are the bytes, and `named` (three: bos, eos, pad; -1: none) are special; release as that. */
sheaf_status *sheaf__listing_bytes(sheaf__listing *out, int64_t count, const int64_t named[3]);
void sheaf__listing_release(sheaf__listing *listing);
