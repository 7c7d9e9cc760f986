/* gradients.h - arguments of kernels for gradients of tables, whose rows receive what is theirs in
 * ascending order: of tokens, or of pictures' patches. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "ops/tensor/table.h"

/* Tokens sorted by their id, those of one id ascending: at place p, number order[p] of id key[p].
 */
typedef struct tokens_sort_arguments {
    sheaf__tokens tokens;
    int32_t *order, *key;
} tokens_sort_arguments;

/* Blocks in x are places, of which the first of an id adds up all of it; those in y are columns. A
 * factor's columns are what a table's rows are. */
typedef struct tokens_add_arguments {
    sheaf__lookup of;
    const int32_t *order, *key;
    bool factor;
} tokens_add_arguments;
