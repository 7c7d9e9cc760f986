/* records_read.h - private: what the readers of records.c share. */
#pragma once

#include "data/fields.h"
#include "data/records.h"

typedef struct sheaf__records_reader {
    sheaf__records *out;
    const char *path; /* of the data set */
    const sheaf__records_options *options;
    sheaf__complaints *complaints;
    sheaf__fields fields; /* as options->fields says */
    bool told;            /* of a field of a label that is not read */
} sheaf__records_reader;

/* Puts `path` before its own failures, but not before complaints. */
sheaf_status *sheaf__records_read_json(sheaf__records_reader *in);

/* sheaf__records_take_label - the record of `image` that the JSON file `label` holds; a bad one is
 * a complaint. */
sheaf_status *sheaf__records_take_label(sheaf__records_reader *in, const char *image,
                                        const char *label);

/* sheaf__records_put - copies all of it. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__records_put(sheaf__records *out, int64_t place, const char *image,
                                 const sheaf__turn *turn, int64_t turns);
