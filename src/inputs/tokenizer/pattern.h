/* pattern.h - private: patterns that texts are divided by: hand-written scanners for known ones,
 * PCRE2 for all others. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"
#include "unicode.h"

/* A pattern whose matches follow each other without a gap, as those of GPT-2, Llama 3 and Qwen2:
 *
 *   contractions | letters | digits | other characters | spaces
 */
typedef struct sheaf__scanner {
    /* Since Llama 3. Contractions: 'S as well as 's; letters: after any one character but a digit,
     * \r and \n, else after a blank; \r and \n belong to the characters before them. */
    bool newer;
    int digits; /* of one match, at most; 0: any number, with an optional blank before */
    uint8_t class_of[SHEAF__UNICODE_TABLE];
} sheaf__scanner;

/* sheaf__scanner_find - the scanner of a known pattern (free()); *out NULL: it is not known.
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__scanner_find(sheaf__scanner **out, const char *pattern);
/* sheaf__scanner_next - the end of the match that begins at `at`, which is before `size`. */
size_t sheaf__scanner_next(const sheaf__scanner *s, const char *text, size_t size, size_t at);

extern const char sheaf__gpt2_pattern[], sheaf__llama3_pattern[], sheaf__qwen2_pattern[],
    sheaf__tekken_pattern[];

/* PCRE2's data for one thread. */
typedef struct sheaf__matching sheaf__matching;
void sheaf__matching_free(sheaf__matching *m);

typedef struct sheaf__pattern sheaf__pattern;
/* sheaf__pattern_open - a regular expression, or with `literal` a fixed string. Errors:
 * SHEAF_E_FORMAT, SHEAF_E_UNSUPPORTED, SHEAF_E_MEMORY. */
sheaf_status *sheaf__pattern_open(sheaf__pattern **out, const char *pattern, bool literal);
void sheaf__pattern_close(sheaf__pattern *p);
const sheaf__scanner *sheaf__pattern_scanner(const sheaf__pattern *p); /* NULL: PCRE2's */
const char *sheaf__pattern_text(const sheaf__pattern *p);              /* as it was given */

/* sheaf__oniguruma_check - SHEAF_E_UNSUPPORTED for a pattern of Oniguruma that PCRE2 reads
 * differently, with the place. */
sheaf_status *sheaf__oniguruma_check(const char *pattern);

/* All matches of a text, one after the other; all zero but the first three and `matching`. */
typedef struct sheaf__matches {
    const sheaf__pattern *pattern;
    const char *text; /* borrowed */
    size_t size, at, last_end;
    bool any, started;
    const char *shown;          /* the text for PCRE2 */
    sheaf__matching **matching; /* created on demand; for one text at a time */
} sheaf__matches;
/* sheaf__matches_next - *found false: no more matches. Errors: SHEAF_E_DATA when the search takes
 * too long; SHEAF_E_MEMORY. */
sheaf_status *sheaf__matches_next(sheaf__matches *m, bool *found, size_t *begin, size_t *end);
