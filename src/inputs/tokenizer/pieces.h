/* pieces.h - private: encodes the pieces of a text, by the model or from a cache of words. */
#pragma once

#include "parts.h"

/* ---- the cache of words: each has two possible places by its hash; a later word replaces it
 * ---- */

enum { SHEAF__WORD_BYTES = 24, SHEAF__WORD_IDS = 20, SHEAF__WORD_PLACES = 1 << 16 };

typedef struct sheaf__word { /* two cache lines; most words need only the first */
    uint64_t key[3];         /* its bytes, and zeros */
    uint8_t size, count;     /* bytes, 0: free; ids */
    uint8_t end[6];          /* ends of the ids in the word */
    int32_t id[SHEAF__WORD_IDS];
    uint8_t more_end[16]; /* of the ids after the sixth */
} sheaf__word;

static inline uint8_t *sheaf__word_end(sheaf__word *w, int64_t i)
{
    return i < 6 ? &w->end[i] : &w->more_end[i - 6];
}

typedef struct sheaf__word_cache {
    sheaf__word place[SHEAF__WORD_PLACES];
} sheaf__word_cache;

/* Bytes 8i .. 8i + 7 of a word, zeros behind its end; `readable` bytes may be read. */
static inline uint64_t sheaf__word_part(const char *bytes, size_t size, size_t readable, size_t i)
{
    uint64_t x = 0;
    if (size <= i * 8)
        return 0;
    const size_t left = size - i * 8;
    if (readable >= i * 8 + 8) {
        memcpy(&x, bytes + i * 8, 8);
        return left >= 8 ? x : x & ((UINT64_C(1) << (left * 8)) - 1); /* the first byte is lowest */
    }
    for (size_t k = left < 8 ? left : 8; k > 0; k--)
        x = x << 8 | (unsigned char)bytes[i * 8 + k - 1];
    return x;
}

/* sheaf__word_key - the key of a word of 1 to SHEAF__WORD_BYTES bytes; its hash. */
static inline uint64_t sheaf__word_key(uint64_t key[3], const char *bytes, size_t size,
                                       size_t readable)
{
    for (size_t i = 0; i < 3; i++)
        key[i] = sheaf__word_part(bytes, size, readable, i);
    uint64_t h = (key[0] ^ size) * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 32 ^ key[1]) * UINT64_C(0xd6e8feb86659fd93);
    return (h ^ h >> 32 ^ key[2]) * UINT64_C(0xa0761d6478bd642f);
}

/* sheaf__word_prefetch - begins to load what sheaf__word_find() will look at. */
static inline void sheaf__word_prefetch(const sheaf__word_cache *cache, uint64_t hash)
{
    const sheaf__word *place = &cache->place[(hash >> 40) % SHEAF__WORD_PLACES];
    __builtin_prefetch(place);
    __builtin_prefetch(&cache->place[((hash >> 40) ^ 1) % SHEAF__WORD_PLACES]);
}

/* sheaf__word_find - the word's place, or (*found false) the place to store it. */
static inline sheaf__word *sheaf__word_find(sheaf__word_cache *cache, const uint64_t key[3],
                                            size_t size, uint64_t h, bool *found)
{
    sheaf__word *first = &cache->place[(h >> 40) % SHEAF__WORD_PLACES];
    sheaf__word *second = &cache->place[((h >> 40) ^ 1) % SHEAF__WORD_PLACES];
    for (int i = 0; i < 2; i++) {
        sheaf__word *w = i == 0 ? first : second;
        if (w->size == size && w->key[0] == key[0] && w->key[1] == key[1] && w->key[2] == key[2]) {
            *found = true;
            return w;
        }
    }
    *found = false;
    return first->size == 0 || (second->size != 0 && (h & 1) != 0) ? first : second;
}

/* ---- the workspace of one encode call, reused by later calls (work.c) ---- */

struct sheaf__work {
    sheaf__prepared prepared;
    sheaf__ids_out out;
    /* The current piece: its bytes and their origin. */
    const char *bytes;
    size_t size;
    const sheaf__span *from; /* origins of its bytes; NULL: the user's text from `origin` on */
    size_t origin;
    int64_t emitted;               /* ids of it so far */
    uint8_t ends[SHEAF__WORD_IDS]; /* ends of the first ids in it, if it is a word */
    sheaf__word_cache *cache;
    char *barred; /* a long word with bars for blanks */
    int64_t barred_size;
    sheaf__span *barred_from;
    int64_t barred_from_size;
    void *scratch;
    int64_t scratch_size;
    sheaf__work *next; /* in the pool */
};

/* sheaf__work_take - an idle workspace; NULL: no memory. sheaf__work_give - returns it. */
sheaf__work *sheaf__work_take(struct sheaf__works *pool);
void sheaf__work_give(struct sheaf__works *pool, sheaf__work *work);

/* sheaf__work_scratch - scratch for a model until its encode returns. NULL: no memory. */
void *sheaf__work_scratch(sheaf__work *work, size_t size);

/* sheaf__emit_word - emits the ids of the current piece from the cached word. */
void sheaf__emit_word(sheaf__work *work, sheaf__word *word);

/* ---- pieces ---- */

/* A queue of pieces before the model. The cache of words exceeds the processor's, so the entry of a
 * word is prefetched some words ahead. */
typedef struct sheaf__piece_here {
    const char *bytes;
    size_t size, origin;     /* as in sheaf__work */
    const sheaf__span *from; /* likewise */
    uint64_t key[3], hash;
} sheaf__piece_here;

/* Encodes the piece in `w`. */
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

/* sheaf__queue_begin - for pieces that go to the model unchanged. */
static inline void sheaf__queue_begin(sheaf__queue *q, const sheaf__tokenizer *t, sheaf__work *w,
                                      bool raw)
{
    q->t = t;
    q->w = w;
    q->encode = sheaf__encode_by_model;
    q->raw = raw;
    q->count = 0;
}

/* sheaf__queue_end - encodes and removes all pieces of the queue. */
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

/* sheaf__steps_run - runs the first `count` steps. */
sheaf_status *sheaf__steps_run(const sheaf__steps *steps, int64_t count, sheaf__prepared *text);
/* sheaf__emit_added - emits an added token at `where`. */
void sheaf__emit_added(sheaf__work *w, int32_t id, sheaf__text_range where);
/* sheaf__encode_pieces - encodes the pieces of w->prepared. */
sheaf_status *sheaf__encode_pieces(const sheaf__tokenizer *t, sheaf__work *w);

/* sheaf__blanks_find - sets t->blanks of an open tokenizer.
 *   normalizers, pre  its steps of both kinds, as tokenizer.json has them */
void sheaf__blanks_find(sheaf_tokenizer *t, const json_t *normalizers, const json_t *pre);
/* sheaf__encode_blanks - bytes [begin, begin + size) of the user's text or of normalized text, by
 * t->blanks: a word gets its bars only if it is not in the cache. `readable` bytes may be read at
 * `bytes`. */
sheaf_status *sheaf__encode_blanks(const sheaf__tokenizer *t, sheaf__work *w, const char *bytes,
                                   size_t size, size_t readable, size_t begin);
