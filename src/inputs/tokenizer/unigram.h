/* unigram.h - private: scores of the model Unigram. */
#pragma once

/* sheaf__unigram_score - a number as serde_json reads it, which `tokenizers` does: all digits that
 * fit 64 bits, then one product or quotient with a power of ten. It may differ from the nearest
 * number in the last bit, and scores decide between ways of equal sums. */
double sheaf__unigram_score(const char *at, const char *end);
