/* characters.h - private: code points as the Rust crates behind `tokenizers` see them, each of
 * which brings Unicode tables of its own age. (Those of its regular expressions are in unicode.h.)
 * tests/data/tokenizers/make_characters.py measures them over all code points. */
#ifndef SHEAF_INPUTS_TOKENIZER_CHARACTERS_H
#define SHEAF_INPUTS_TOKENIZER_CHARACTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    SHEAF__NUMERIC = 1,    /* category N */
    SHEAF__PUNCT = 2,      /* category P, or ASCII punctuation */
    SHEAF__OTHER = 4,      /* what BertNormalizer takes away: Cc, Cf, Co, but tab and line ends */
    SHEAF__NONSPACING = 8, /* category Mn; nothing is said of what NFD changes */
    SHEAF__MARK = 16,      /* category M */
    SHEAF__RUST_WORD = 32, /* \w of the crate regex */
};

/* sheaf__character_class - a set of the above. */
unsigned sheaf__character_class(uint32_t c);
/* sheaf__is_white - White_Space. */
bool sheaf__is_white(uint32_t c);
/* sheaf__form_unknown - does the crate of the normal forms not know this decomposition or mark yet?
 */
bool sheaf__form_unknown(uint32_t c, bool is_mark);
/* sheaf__lower - the lower case of `c` in at most 2 code points; how many. */
int sheaf__lower(uint32_t out[2], uint32_t c);

/* The tables, ascending (characters_table.c). */
typedef struct sheaf__character_range {
    uint32_t first : 21, class : 11;
    uint32_t last;
} sheaf__character_range;
extern const sheaf__character_range sheaf__character_ranges[], sheaf__character_unknown[];
extern const int sheaf__character_ranges_count, sheaf__character_unknown_count;
typedef struct sheaf__character_lower {
    uint32_t first, last;
    int32_t add; /* to the code point, for its lower case */
} sheaf__character_lower;
extern const sheaf__character_lower sheaf__character_lowers[];
extern const int sheaf__character_lowers_count;

#endif
