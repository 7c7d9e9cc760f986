/* charsmap_table.h - private: a sentencepiece model's precompiled_charsmap. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "sheaf/status.h"

typedef struct sheaf__charsmap { /* borrows the bytes */
    const unsigned char *units;
    const char *texts;
} sheaf__charsmap;

/* sheaf__charsmap_open - checks that whatever text without NUL may be looked up: no step leads
 * outside, no text begins with more than 32 of the keys (sentencepiece keeps no more), and what
 * stands for a key is UTF-8 of at most 128 bytes. `out` NULL: no more than that. Errors:
 * SHEAF_E_FORMAT, SHEAF_E_MEMORY. */
sheaf_status *sheaf__charsmap_open(sheaf__charsmap *out, const unsigned char *bytes, size_t size);
/* sheaf__charsmap_find - what stands for the longest key, or the shortest, that `text` begins with,
 * and the bytes of that key; NULL: no key fits. */
const char *sheaf__charsmap_find(size_t *used, const sheaf__charsmap *map, const char *text,
                                 size_t size, bool longest);
