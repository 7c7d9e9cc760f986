/* work.h - private: what one call of encode needs, kept by the tokenizer for the next call. */
#pragma once

#include "parts.h"
#include "word_cache.h"

struct sheaf__work {
    sheaf__prepared prepared;
    sheaf__ids_out out;
    /* The piece at hand: its bytes, and where they came from. */
    const char *bytes;
    size_t size;
    const sheaf__span *from; /* of its bytes; NULL: they lie in the user's text from `origin` on */
    size_t origin;
    int64_t emitted;               /* ids of it so far */
    uint8_t ends[SHEAF__WORD_IDS]; /* where the first of them end in it, if it is a word */
    sheaf__word_cache *cache;
    char *barred; /* a long word with bars for blanks */
    int64_t barred_size;
    sheaf__span *barred_from;
    int64_t barred_from_size;
    void *scratch;
    int64_t scratch_size;
    sheaf__work *next; /* in the pool */
};

/* sheaf__work_take - one that no other thread has; NULL: no memory. sheaf__work_give - back. */
sheaf__work *sheaf__work_take(struct sheaf__works *pool);
void sheaf__work_give(struct sheaf__works *pool, sheaf__work *work);

/* sheaf__work_scratch - for a model, until its encode returns. NULL: no memory. */
void *sheaf__work_scratch(sheaf__work *work, size_t size);

/* sheaf__emit_word - the ids of the piece at hand, a word that came before. */
void sheaf__emit_word(sheaf__work *work, sheaf__word *word);
