/* bpe.h - private: byte pair encoding. */
#pragma once

#include "parts.h"

/* A pair of tokens that stand side by side become one. */
typedef struct sheaf__merge {
    uint32_t left, right; /* ids; left UINT32_MAX: the slot is free */
    uint32_t rank, id;    /* the least rank goes first; what they become */
} sheaf__merge;

enum { SHEAF__BPE_BAR = 128 };

struct sheaf__bpe_model {
    const sheaf__vocab *vocab;
    sheaf__merge *slot; /* open addressing */
    uint64_t mask;
    int64_t merges;
    uint64_t
        *may; /* bits, sixteen a merge: of all pairs that are one, those at their hash are set */
    int may_shift;            /* of a hash, for its bit */
    int32_t byte_id[256];     /* of the character that stands for the byte; -1: none */
    int32_t fallback_id[256]; /* of "<0x00>" ...; -1: none */
    char *unk;                /* NULL: none */
    int32_t unk_id;           /* -1: there is no such token */
    bool fuse_unk, byte_fallback, ignore_merges;
    /* [0x110000] of the token that is this character, its id + 1; 0: none is. (Only the pages of
     * characters in use take memory.) */
    uint32_t *character;
    /* Where a text falls into words that no merge joins: between two characters that are tokens, of
     * which no merge has one at the end of its left side and the other at the beginning of its
     * right side (a bit of `joined`; some have it for another pair). With `lone_bytes` what is no
     * token becomes its bytes, which no merge has: it stands alone. */
    uint64_t joined[0x100000 / 64];
    bool lone_bytes;
    /* The same at once for ASCII and, as SHEAF__BPE_BAR, U+2581: bit `right` of row `left`. (While
     * merges are read: the bits are of those that merges join.) */
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

/* sheaf__bpe_row - of a character in sheaf__bpe_model.apart; more than SHEAF__BPE_BAR: none. */
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

/* sheaf__may_merge - false: no merge has the pair. Fewer bytes are looked at than by
 * sheaf__merge_find(), so that they are at hand. */
static inline bool sheaf__may_merge(const sheaf__bpe_model *b, uint64_t hash)
{
    const uint64_t bit = hash >> b->may_shift;
    return (b->may[bit / 64] >> bit % 64 & 1) != 0;
}

/* sheaf__merge_find - NULL: the pair stays two. */
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

/* ---- words of many symbols, of any vocabulary ---- */

typedef struct sheaf__symbol {
    uint32_t id;
    uint32_t end;       /* of its bytes in the word; they begin where the one before it ends */
    int32_t prev, next; /* -1: none */
} sheaf__symbol;

/* A pair that may become one: least rank first, of equals the first in the word. */
typedef struct sheaf__candidate {
    uint32_t rank;
    int32_t at; /* the left symbol */
    uint32_t id;
} sheaf__candidate;

/* sheaf__merge_many - joins pairs until none is left; the number of symbols then.
 *   space  [3 * count]
 *   find   rank and id of the pair that begins at out->at; false: it stays two */
int32_t sheaf__merge_many(sheaf__symbol *s, int32_t count, sheaf__candidate *space,
                          bool (*find)(sheaf__candidate *out, const void *self,
                                       const sheaf__symbol *s),
                          const void *self);
