/* version.h - versions of what sheaf writes: each format, and the numeric contract, has one that is
 * read. */
#pragma once

#include "base/base.h"

/* sheaf__version_check - SHEAF_E_UNSUPPORTED where what was found has another version than `reads`.
 * what: "format", "numeric contract". */
static inline sheaf_status *sheaf__version_check(const char *what, int64_t found, int reads)
{
    if (found == reads)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "written by another version of sheaf");
    sheaf_expected(st, "%s %d, which this one reads", what, reads);
    return sheaf_found(st, "%s %" PRId64, what, found);
}
