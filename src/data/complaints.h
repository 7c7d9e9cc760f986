/* complaints.h - the errors of a data set's records, collected so that one pass reports all of
 * them. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "sheaf/status.h"

/* The errors of a data set: the first SHEAF__COMPLAINTS_LISTED in full, the others counted. All
 * zero: none. Not thread-safe. */
typedef struct sheaf__complaints {
    int64_t count;
    sheaf_text list, cure;       /* cure: the advice of the first error that has one */
    sheaf_status *first, *fatal; /* fatal: a failure that concerns no single record */
    bool skip; /* bad records are left out, with a warning, where not all are bad */
    const sheaf_events *events; /* get that warning; may be NULL */
    int64_t left_out;           /* records, by the last verdict */
} sheaf__complaints;

enum { SHEAF__COMPLAINTS_LISTED = 20 };

/* sheaf__complain - adds `st` and owns it; NULL adds nothing. A status other than SHEAF_E_DATA,
 * SHEAF_E_FORMAT, SHEAF_E_UNSUPPORTED and SHEAF_E_IO concerns no record: the first becomes the
 * verdict.
 */
void sheaf__complain(sheaf__complaints *complaints, sheaf_status *st);
/* sheaf__complaints_verdict - NULL where there is none, or where bad records are left out; empties
 * the list. `records`: how many were checked. */
sheaf_status *sheaf__complaints_verdict(sheaf__complaints *complaints, const char *path,
                                        int64_t records);
void sheaf__complaints_release(sheaf__complaints *complaints);

/* sheaf__try_path - sheaf_try_this() with `path`, as a word of the shell, between two texts. */
sheaf_status *sheaf__try_path(sheaf_status *st, const char *before, const char *path,
                              const char *behind);
/* sheaf__bad_field - SHEAF_E_DATA "field 'NAME'" with `expected` and what was found. */
sheaf_status *sheaf__bad_field(const char *name, const char *expected, const char *found, ...)
    SHEAF_PRINTF(3, 4);
