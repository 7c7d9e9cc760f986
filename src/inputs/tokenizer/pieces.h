/* pieces.h - private: the ids of the pieces of a text, by the model or by words that came before.
 */
#pragma once

#include "work.h"

/* Pieces on their way to the model. What is known of a word begins to be loaded some words ahead,
 * as the words that came before fill more than a processor's cache. */
typedef struct sheaf__piece_here {
    const char *bytes;
    size_t size, origin;     /* as in sheaf__work */
    const sheaf__span *from; /* likewise */
    uint64_t key[3], hash;
} sheaf__piece_here;

/* What makes ids of the piece that is in `w`. */
typedef sheaf_status *sheaf__encoder(const sheaf__tokenizer *t, sheaf__work *w, bool raw);

sheaf_status *sheaf__encode_by_model(const sheaf__tokenizer *t, sheaf__work *w, bool raw);

typedef struct sheaf__queue {
    const sheaf__tokenizer *t;
    sheaf__work *w;
    sheaf__encoder *encode;
    bool raw;
    int count;
    sheaf__piece_here piece[8];
} sheaf__queue;

/* sheaf__queue_begin - for pieces that the model takes as they are. */
static inline void sheaf__queue_begin(sheaf__queue *q, const sheaf__tokenizer *t, sheaf__work *w,
                                      bool raw)
{
    q->t = t;
    q->w = w;
    q->encode = sheaf__encode_by_model;
    q->raw = raw;
    q->count = 0;
}

/* sheaf__queue_end - makes ids of all that are in the queue, which then is empty. */
sheaf_status *sheaf__queue_end(sheaf__queue *q);

/* sheaf__queue_put - one more piece; `readable` bytes may be read at `bytes`. */
static inline sheaf_status *sheaf__queue_put(sheaf__queue *q, const char *bytes, size_t size,
                                             size_t readable, size_t origin,
                                             const sheaf__span *from)
{
    sheaf_status *st = q->count == 8 ? sheaf__queue_end(q) : NULL;
    sheaf__piece_here *p = &q->piece[q->count++];
    p->bytes = bytes;
    p->size = size;
    p->origin = origin;
    p->from = from;
    if (size <= SHEAF__WORD_BYTES) {
        p->hash = sheaf__word_key(p->key, bytes, size, readable);
        sheaf__word_prefetch(q->w->cache, p->hash);
    }
    return st;
}

/* sheaf__steps_run - the first `count` of them. */
sheaf_status *sheaf__steps_run(const sheaf__steps *steps, int64_t count, sheaf__prepared *text);
/* sheaf__emit_added - an added token that stands at `where`. */
void sheaf__emit_added(sheaf__work *w, int32_t id, sheaf__text_range where);
/* sheaf__encode_pieces - those of w->prepared. */
sheaf_status *sheaf__encode_pieces(const sheaf__tokenizer *t, sheaf__work *w);

/* sheaf__blanks_find - how `t`, which is open, ends with its bars: t->blanks. */
void sheaf__blanks_find(sheaf__tokenizer *t);
/* sheaf__encode_blanks - bytes [begin, begin + size) of the user's text or of what normalizers made
 * of it, as t->blanks has it: they become words with bars one at a time, and those that came before
 * never do. Behind `bytes`, `readable` may be read. */
sheaf_status *sheaf__encode_blanks(const sheaf__tokenizer *t, sheaf__work *w, const char *bytes,
                                   size_t size, size_t readable, size_t begin);
