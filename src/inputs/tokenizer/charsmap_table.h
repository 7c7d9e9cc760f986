/* charsmap_table.h - private: a model's precompiled_charsmap, checked before the library
 * follows it. */
#ifndef SHEAF_INPUTS_TOKENIZER_CHARSMAP_TABLE_H
#define SHEAF_INPUTS_TOKENIZER_CHARSMAP_TABLE_H

#include <stddef.h>

#include "sheaf/status.h"

/* sheaf__sentencepiece_table - NULL where whatever text without NUL may be looked up in it: no step
 * leads outside, no text begins with more than 32 of its keys (the library keeps no more), and what
 * stands for a key is UTF-8 of at most 128 bytes. Errors: SHEAF_E_FORMAT, SHEAF_E_MEMORY. */
sheaf_status *sheaf__sentencepiece_table(const unsigned char *bytes, size_t size);

#endif
