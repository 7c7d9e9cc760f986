/* slices.h - a source as sheaf's own folder: a file for each slice, one for what is not cut, and
 * the manifest.
 *
 * The same form as a training checkpoint (checkpoint.h): what reads, verifies and compares those
 * reads this. */
#pragma once

#include "checkpoint/convert/copy.h"
#include "schema/schema.h"

typedef struct sheaf_slices_write {
    sheaf_source *source;
    const sheaf_schema *schema; /* cut for `slices`; NULL: nothing is cut */
    int slices;
    int64_t step;         /* at least 0 */
    const char *progress; /* JSON object */
    int threads;
    const sheaf_events *events;
    _Atomic int64_t *done;
    int64_t total;
} sheaf_slices_write;

/* sheaf__slices_write - complete at `dst`, or nothing. Moments ("exp_avg.NAME") are cut as NAME
 * is. */
sheaf_status *sheaf__slices_write(const char *dst, const sheaf_slices_write *how);
