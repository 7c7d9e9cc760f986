/* vocabulary.h - the two tables of the vocabulary, and how programs pad their rows. */
#pragma once

#include "base/base.h"

/* sheaf__is_vocabulary - is it one of the two tables? */
bool sheaf__is_vocabulary(const char *name);
/* sheaf__vocabulary_ways - the number of ranks for which `rows` is one rank's part of `vocab` rows
 * and padding; 0 = none. */
int sheaf__vocabulary_ways(int64_t rows, int64_t vocab, int64_t *padded);
/* sheaf__vocabulary_part - could `rows` be one rank's part of `ways`? sheaf__vocabulary_ways()
 * returns the least of several possible numbers, as padding may fill whole ranks. */
bool sheaf__vocabulary_part(int64_t rows, int64_t vocab, int ways);
/* sheaf__vocabulary_padded - could `rows` be `vocab` rows and padding? */
bool sheaf__vocabulary_padded(int64_t rows, int64_t vocab);
