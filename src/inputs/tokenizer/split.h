/* split.h - private: dividing pieces at the matches of a pattern. */
#pragma once

#include "pattern.h"
#include "prepared.h"

/* What becomes of the matches: as in `tokenizers`. */
typedef enum sheaf__behavior {
    SHEAF__REMOVED,
    SHEAF__ISOLATED,
    SHEAF__MERGED_WITH_PREVIOUS,
    SHEAF__MERGED_WITH_NEXT,
    SHEAF__CONTIGUOUS,
} sheaf__behavior;

/* Parts of one piece, in order, matches and what lies between them; all zero but the first three.
 */
typedef struct sheaf__dividing {
    sheaf__prepared *text;
    const sheaf__piece *piece;
    sheaf__behavior behavior;
    size_t begin, end; /* the part that is held back */
    bool held, match;  /* there is one; the part before was a match */
} sheaf__dividing;
/* sheaf__divide - one part, in bytes of the prepared text. */
void sheaf__divide(sheaf__dividing *d, size_t begin, size_t end, bool match);
void sheaf__divide_end(sheaf__dividing *d);

/* sheaf__divide_by - the matches of `pattern` in `piece`, and what lies between. */
sheaf_status *sheaf__divide_by(sheaf__prepared *text, const sheaf__piece *piece,
                               const sheaf__pattern *pattern, sheaf__behavior behavior,
                               bool invert);

/* The scanner that is all that the step does with a text; NULL: it does something else. Of a step
 * of the kind sheaf__split, and of sheaf__byte_level_splitting that leaves the bytes raw:
 * *nothing says that it does not divide. */
const sheaf__scanner *sheaf__split_scanner(const void *state);
const sheaf__scanner *sheaf__byte_level_scanner(const void *state, bool *nothing);
