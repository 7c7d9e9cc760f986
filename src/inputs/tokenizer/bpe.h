/* bpe.h - private: byte pair encoding. */
#pragma once

#include "parts.h"

/* A pair of adjacent tokens becomes one. */
typedef struct sheaf__merge {
    uint32_t left, right; /* ids; left UINT32_MAX: the slot is free */
    uint32_t rank, id;    /* the lowest rank is merged first; id of the result */
} sheaf__merge;

enum { SHEAF__BPE_BAR = 128 };

struct sheaf__bpe_model {
    const sheaf__vocab *vocab;
    sheaf__merge *slot; /* open addressing */
    uint64_t mask;
    int64_t merges;
    uint64_t *may;            /* a Bloom filter of the merges, sixteen bits for each */
    int may_shift;            /* shift of a hash to its bit */
    int32_t byte_id[256];     /* id of the character for the byte; -1: none */
    int32_t fallback_id[256]; /* of "<0x00>" ...; -1: none */
    char *unk;                /* NULL: none */
    int32_t unk_id;           /* -1: no such token */
    bool fuse_unk, byte_fallback, ignore_merges;
    /* [0x110000] id + 1 of the token of this character; 0: none. (Only pages of
     * characters in use take memory.) */
    uint32_t *character;
    /* A text can be divided between two characters that are tokens if no merge has the first at the
     * end of its left side and the second at the beginning of its right side. `joined` is a hashed
     * set of the pairs with such a merge, with false positives. With `lone_bytes` a character that
     * is no token becomes bytes without merges, and a text can be divided around it. */
    uint64_t joined[0x100000 / 64];
    bool lone_bytes;
    /* A table of the same for ASCII and, as SHEAF__BPE_BAR, U+2581: bit `right` of row `left`.
     * (Inverted while merges are read.) */
    uint64_t apart[SHEAF__BPE_BAR + 1][SHEAF__BPE_BAR / 64 + 1];
};

static inline uint64_t sheaf__pair_hash(uint32_t left, uint32_t right)
{
    const uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static inline uint64_t sheaf__joint(uint32_t before, uint32_t after)
{
    return sheaf__pair_hash(before, after) >> 40 & 0xfffff;
}

/* sheaf__bpe_row - row of a character in sheaf__bpe_model.apart; above SHEAF__BPE_BAR: none. */
static inline uint32_t sheaf__bpe_row(uint32_t code)
{
    return code < SHEAF__BPE_BAR ? code : code == 0x2581 ? SHEAF__BPE_BAR : UINT32_MAX;
}

/* sheaf__bpe_apart - may a text be divided between these two characters? */
static inline bool sheaf__bpe_apart(const sheaf__bpe_model *b, uint32_t before, uint32_t after)
{
    const uint64_t bit = sheaf__joint(before, after);
    if (b->character[before] == 0 || b->character[after] == 0)
        return b->lone_bytes;
    return (b->joined[bit / 64] >> bit % 64 & 1) == 0;
}

/* sheaf__may_merge - false: no merge has the pair. Reads fewer bytes than sheaf__merge_find(),
 * which stay in the cache. */
static inline bool sheaf__may_merge(const sheaf__bpe_model *b, uint64_t hash)
{
    const uint64_t bit = hash >> b->may_shift;
    return (b->may[bit / 64] >> bit % 64 & 1) != 0;
}

/* sheaf__merge_find - NULL: no merge. */
static inline const sheaf__merge *sheaf__merge_find(const sheaf__bpe_model *b, uint32_t left,
                                                    uint32_t right)
{
    for (uint64_t i = sheaf__pair_hash(left, right) & b->mask;; i = (i + 1) & b->mask) {
        const sheaf__merge *m = &b->slot[i];
        if (m->left == left && m->right == right)
            return m;
        if (m->left == UINT32_MAX)
            return NULL;
    }
}
