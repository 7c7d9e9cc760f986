/* scripts.h - private: the scripts of characters, as UnicodeScripts of `tokenizers` sees them. */
#ifndef SHEAF_INPUTS_TOKENIZER_SCRIPTS_H
#define SHEAF_INPUTS_TOKENIZER_SCRIPTS_H

#include <stdint.h>

/* Each is code point << 8 | script, ascending: from here up to the next, characters are of this
 * script. 0, which those before the first have too: of any. (scripts_table.c) */
extern const uint32_t sheaf__script_points[];
extern const int sheaf__script_points_count;

#endif
