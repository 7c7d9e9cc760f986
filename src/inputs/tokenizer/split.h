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

/* sheaf__divide_by - the matches of `pattern` in `piece`, and what lies between. */
sheaf_status *sheaf__divide_by(sheaf__prepared *text, const sheaf__piece *piece,
                               const sheaf__pattern *pattern, sheaf__behavior behavior,
                               bool invert);

/* The scanner that is all that the step does with a text; NULL: it does something else. Of a step
 * of the kind sheaf__split, and of sheaf__byte_level_splitting that leaves the bytes raw:
 * *nothing says that it does not divide. */
const sheaf__scanner *sheaf__split_scanner(const void *state);
const sheaf__scanner *sheaf__byte_level_scanner(const void *state, bool *nothing);
