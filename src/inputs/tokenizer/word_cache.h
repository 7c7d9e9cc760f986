/* word_cache.h - private: the ids of words that came before. A word stands at one of two places
 * that follow from its bytes, and makes room for a later one. */
#pragma once

#include "base/base.h"

enum { SHEAF__WORD_BYTES = 24, SHEAF__WORD_IDS = 20, SHEAF__WORD_PLACES = 1 << 16 };

typedef struct sheaf__word { /* two lines of a processor's cache; most words need but the first */
    uint64_t key[3];         /* its bytes, and zeros */
    uint8_t size, count;     /* of bytes, 0: nothing is here; of ids */
    uint8_t end[6];          /* where ids end in the word */
    int32_t id[SHEAF__WORD_IDS];
    uint8_t more_end[16]; /* of those behind the sixth */
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

/* sheaf__word_find - where the word is, or (*found false) may be put. */
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
