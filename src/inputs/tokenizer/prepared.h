/* prepared.h - private: a text on its way to the model, divided into pieces.
 *
 * Offsets follow `tokenizers`: each byte knows the bytes of the user's text that it came from, and
 * what is put in shares those of the byte before it. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"

typedef struct sheaf__span { /* of the user's text, whose size fits */
    uint32_t begin, end;
} sheaf__span;

typedef struct sheaf__piece {
    size_t begin, end; /* bytes of the prepared text */
    uint32_t origin;   /* where in the user's text it begins */
    int32_t id;        /* the added token that stands here; -1: it is text */
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
    sheaf__layer now, next; /* what steps read, and what they write */
    bool aligned;
    bool raw;    /* ByteLevel came last and left the bytes to the model: parts.h */
    bool failed; /* no memory, or */
    bool grown;  /* more than `most` bytes came of it, sheaf__growth() */
    size_t most;
    struct sheaf__matching *matching; /* what PCRE2 needs for one thread: pattern.h */
} sheaf__prepared;

enum { SHEAF__PREPARED_SPARE = 32 };

/* sheaf__growth - the bytes that the steps of a tokenizer may make of a text of `size`, far more
 * than those of published ones do. sheaf__grown - the error of a step, by its name. */
size_t sheaf__growth(size_t size);
sheaf_status *sheaf__grown(const char *step, size_t most);
/* sheaf__prepared_begin - one piece, a text that begins at `origin` of the user's. */
void sheaf__prepared_begin(sheaf__prepared *p, const char *bytes, size_t size, uint32_t origin,
                           bool aligned);
void sheaf__prepared_release(sheaf__prepared *p);

/* sheaf__prepared_split - divides every piece that is text: `split` calls sheaf__prepared_put() for
 * each part of it, in order; parts without a byte are left out, and so is what it does not put. */
typedef sheaf_status *sheaf__splitter(const void *state, sheaf__prepared *p,
                                      const sheaf__piece *piece);
sheaf_status *sheaf__prepared_split(sheaf__prepared *p, const void *state, sheaf__splitter *split);
void sheaf__prepared_put(sheaf__prepared *p, const sheaf__piece *of, size_t begin, size_t end,
                         int32_t id);

/* sheaf__prepared_rewrite - replaces the bytes of every piece that is text: `rewrite` goes through
 * them with the functions below; what it has not taken at its end is gone. */
typedef struct sheaf__edit {
    sheaf__prepared *p;
    const char *bytes; /* of the piece */
    size_t size, at;   /* `at`: the first byte that was not taken */
    size_t first;      /* of the piece in p->now */
    uint32_t origin;
} sheaf__edit;
typedef sheaf_status *sheaf__rewriter(const void *state, sheaf__edit *edit);
sheaf_status *sheaf__prepared_rewrite(sheaf__prepared *p, const void *state,
                                      sheaf__rewriter *rewrite);
/* sheaf__edit_keep - takes `size` bytes as they are. */
void sheaf__edit_keep(sheaf__edit *e, size_t size);
/* sheaf__edit_skip - takes `size` bytes and leaves them out. */
void sheaf__edit_skip(sheaf__edit *e, size_t size);
/* sheaf__edit_replace - takes `take` bytes; `bytes`, one character, stand for the first character
 * of them. (In `tokenizers`: a change of 0, or below with more than one character taken.) */
void sheaf__edit_replace(sheaf__edit *e, size_t take, const char *bytes, size_t size);
/* sheaf__edit_insert - puts in characters that share the origin of the byte before `at`. (A change
 * above 0.) */
void sheaf__edit_insert(sheaf__edit *e, const char *bytes, size_t size);
