/* bpe.h - private: byte pair encoding. */
#ifndef SHEAF_INPUTS_TOKENIZER_BPE_H
#define SHEAF_INPUTS_TOKENIZER_BPE_H

#include "parts.h"

/* A pair of tokens that stand side by side become one. */
typedef struct sheaf__merge {
    uint32_t left, right; /* ids; left UINT32_MAX: the slot is free */
    uint32_t rank, id;    /* the least rank goes first; what they become */
} sheaf__merge;

typedef struct sheaf__bpe_model {
    const sheaf__vocab *vocab;
    sheaf__merge *slot; /* open addressing */
    uint64_t mask;
    int64_t merges;
    int32_t byte_id[256];        /* of the character that stands for the byte; -1: none */
    int32_t fallback_id[256];    /* of "<0x00>" ...; -1: none */
    char *unk, *prefix, *suffix; /* NULL: none */
    size_t unk_size, prefix_size, suffix_size;
    int32_t unk_id; /* -1: there is no such token */
    bool fuse_unk, byte_fallback, ignore_merges;
    size_t longest; /* bytes of a token, at most */
    /* Where a text falls into words that no merge joins: between two characters that are tokens
     * (a bit of `known` each), of which no merge has one at the end of its left side and the other
     * at the beginning of its right side (a bit of `joined`; some have it for another pair). */
    uint64_t known[0x10000 / 64], joined[0x20000 / 64];
} sheaf__bpe_model;

/* bpe_open.c */
sheaf_status *sheaf__bpe_open(void **state, sheaf__vocab *vocab, const sheaf__model_file *file);
void sheaf__bpe_close(void *state);

static inline uint64_t sheaf__pair_hash(uint32_t left, uint32_t right)
{
    const uint64_t h = ((uint64_t)left << 32 | right) * UINT64_C(0x9e3779b97f4a7c15);
    return h ^ h >> 29;
}

static inline uint64_t sheaf__joint(uint32_t before, uint32_t after)
{
    return sheaf__pair_hash(before, after) >> 40 & 0x1ffff;
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

#endif
