/* complaints.h - what is wrong with the records of a data set, collected so that one reading tells
 * all. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "sheaf/status.h"

/* What is wrong with a data set: the first SHEAF__COMPLAINTS_LISTED in full, the rest counted. All
 * zero is none. Not for several threads at once. */
typedef struct sheaf__complaints {
    int64_t count;
    sheaf_text list, cure;       /* cure: what the first that knows one says to try */
    sheaf_status *first, *fatal; /* fatal: a failure that is not one record's */
    bool skip; /* bad records are left out, with a warning, where not all are bad */
    const sheaf_events *events; /* of that warning; may be NULL */
    int64_t left_out;           /* by the last verdict */
} sheaf__complaints;

enum { SHEAF__COMPLAINTS_LISTED = 20 };

/* sheaf__complain - takes `st`. NULL is no complaint. A status that is neither SHEAF_E_DATA,
 * SHEAF_E_FORMAT, SHEAF_E_UNSUPPORTED nor SHEAF_E_IO is not about a record: it is kept as the
 * verdict. */
void sheaf__complain(sheaf__complaints *complaints, sheaf_status *st);
/* sheaf__complaints_verdict - NULL without complaints, or where they are left out; empties them.
 * `records`: how many were looked at. */
sheaf_status *sheaf__complaints_verdict(sheaf__complaints *complaints, const char *path,
                                        int64_t records);
void sheaf__complaints_release(sheaf__complaints *complaints);

/* sheaf__bad_field - SHEAF_E_DATA "field 'NAME'" with `expected` and what was found. */
sheaf_status *sheaf__bad_field(const char *name, const char *expected, const char *found, ...)
    SHEAF_PRINTF(3, 4);
