/* vocabulary.c - the two tables of the vocabulary, and how programs pad their rows; see
 * vocabulary.h. */
#include "dialects/common/vocabulary.h"

#include "base/base.h"

enum { MOST_WAYS = 64 };

static int64_t round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

static const int64_t multiples[] = { 64, 128, 8, 1 }; /* ColossalAI, Megatron, tensor cores, none */

int sheaf__vocabulary_ways(int64_t rows, int64_t vocab, int64_t *padded)
{
    for (size_t m = 0;
         m < sizeof multiples / sizeof *multiples && rows > 0 && rows < vocab && vocab < INT32_MAX;
         m++)
        for (int p = 2; p <= MOST_WAYS; p++) {
            *padded = round_up(vocab, multiples[m] * p);
            if (rows * p == *padded)
                return p;
        }
    return 0;
}

bool sheaf__vocabulary_part(int64_t rows, int64_t vocab, int ways)
{
    bool yes = false;
    if (rows <= 0 || rows >= vocab || vocab >= INT32_MAX || ways < 2 || ways > MOST_WAYS)
        return false;
    for (size_t m = 0; m < sizeof multiples / sizeof *multiples; m++)
        yes = yes || rows * ways == round_up(vocab, multiples[m] * ways);
    return yes;
}

bool sheaf__vocabulary_padded(int64_t rows, int64_t vocab)
{
    for (size_t m = 0; m < sizeof multiples / sizeof *multiples && rows > vocab && rows < INT32_MAX;
         m++)
        for (int p = 1; p <= MOST_WAYS;
             p += multiples[m] > 1 ? 1 : p) /* without a multiple only powers of two */
            if (rows == round_up(vocab, multiples[m] * p))
                return true;
    return false;
}

bool sheaf__is_vocabulary(const char *name)
{
    return sheaf__ends_with(name, "embed_tokens.weight") ||
           sheaf__ends_with(name, "lm_head.weight") ||
           strcmp(name, "transformer.word_embeddings.weight") == 0;
}
