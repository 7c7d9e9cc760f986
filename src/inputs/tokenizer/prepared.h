/* prepared.h - private: a text between the steps before the model, divided into pieces.
 *
 * Offsets follow `tokenizers`: each byte knows the bytes of the user's text that it came from, and
 * inserted bytes share the origin of the byte before them. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

typedef struct sheaf__span { /* of the user's text, whose size fits */
    uint32_t begin, end;
} sheaf__span;

typedef struct sheaf__piece {
    size_t begin, end; /* bytes of the prepared text */
    uint32_t origin;   /* its begin in the user's text */
    int32_t id;        /* an added token; -1: text */
} sheaf__piece;

/* One state of the text: bytes and pieces. */
typedef struct sheaf__layer {
    char *bytes;       /* UTF-8; `spare` bytes more may be read after the last */
    sheaf__span *from; /* [size] when aligned, else NULL */
    size_t size;
    int64_t capacity, from_capacity;
    sheaf__piece *piece;
    int64_t pieces, piece_capacity;
} sheaf__layer;

typedef struct sheaf__prepared {
    sheaf__layer now, next; /* read and written by a step */
    bool aligned;
    bool raw;    /* the last step was ByteLevel, which left raw bytes to the model: parts.h */
    bool failed; /* no memory */
    bool grown;  /* the text exceeds `most` bytes, sheaf__growth() */
    size_t most;
    struct sheaf__matching *matching; /* PCRE2's data for one thread: pattern.h */
} sheaf__prepared;

enum { SHEAF__PREPARED_SPARE = 32 };

/* sheaf__growth - the most bytes that the steps of a tokenizer may produce from a text of `size`,
 * far more than those of published ones do. sheaf__grown - the error of a step, by its name. */
size_t sheaf__growth(size_t size);
sheaf_status *sheaf__grown(const char *step, size_t most);
/* sheaf__prepared_begin - starts with one piece, a text from `origin` of the user's text on. */
void sheaf__prepared_begin(sheaf__prepared *p, const char *bytes, size_t size, uint32_t origin,
                           bool aligned);
void sheaf__prepared_release(sheaf__prepared *p);

/* sheaf__prepared_split - divides every text piece: `split` calls sheaf__prepared_put() for each
 * part in order; empty parts and bytes outside the parts are dropped. */
typedef sheaf_status *sheaf__splitter(const void *state, sheaf__prepared *p,
                                      const sheaf__piece *piece);
sheaf_status *sheaf__prepared_split(sheaf__prepared *p, const void *state, sheaf__splitter *split);
void sheaf__prepared_put(sheaf__prepared *p, const sheaf__piece *of, size_t begin, size_t end,
                         int32_t id);

/* sheaf__prepared_rewrite - replaces the bytes of every text piece: `rewrite` walks through them
 * with the functions below; bytes that it does not take are dropped. */
typedef struct sheaf__edit {
    sheaf__prepared *p;
    const char *bytes; /* of the piece */
    size_t size, at;   /* `at`: the first byte that is not taken yet */
    size_t first;      /* of the piece in p->now */
    uint32_t origin;
} sheaf__edit;
typedef sheaf_status *sheaf__rewriter(const void *state, sheaf__edit *edit);
sheaf_status *sheaf__prepared_rewrite(sheaf__prepared *p, const void *state,
                                      sheaf__rewriter *rewrite);
/* sheaf__edit_keep - copies `size` bytes. */
void sheaf__edit_keep(sheaf__edit *e, size_t size);
/* sheaf__edit_skip - drops `size` bytes. */
void sheaf__edit_skip(sheaf__edit *e, size_t size);
/* sheaf__edit_replace - replaces `take` bytes; `bytes`, one character, stand for the first
 * character of them. (In `tokenizers`: a change of 0, or below with more than one character
 * taken.) */
void sheaf__edit_replace(sheaf__edit *e, size_t take, const char *bytes, size_t size);
/* sheaf__edit_insert - inserts characters that share the origin of the byte before `at`. (A change
 * above 0.) */
void sheaf__edit_insert(sheaf__edit *e, const char *bytes, size_t size);
