/* combine.h - several adapters as one: PEFT's add_weighted_adapter, for the combinations that need
 * no decomposition. The result is a sheaf_source that computes tensors on reading, in float32 and
 * with PEFT's bits. */
#pragma once

#include "lora/adapter.h"

typedef enum sheaf_combine {
    SHEAF_COMBINE_NONE,
    SHEAF_COMBINE_LINEAR, /* A = sum of sign(w) root(|w s|) A_i, B = sum of root(|w s|) B_i: equal
                             ranks; has cross terms */
    SHEAF_COMBINE_CAT,    /* A = the w s A_i one below the other, B = the B_i side by side: exact,
                             ranks add up */
} sheaf_combine;

/* sheaf_combine_parse - "linear" or "cat". Errors: SHEAF_E_UNSUPPORTED for PEFT's other
 * combinations, by name; SHEAF_E_ARG. */
sheaf_status *sheaf_combine_parse(sheaf_combine *out, const char *text);

/* sheaf_lora_combine - *out and *options are the new adapter: alpha = r, so its scale is 1.
 *   out      close it before its sources; options: sheaf_lora_options_release()
 *   sources, from, weights  n of each; sources of adapters as sheaf__open_source() gives them,
 * borrowed Errors: SHEAF_E_UNSUPPORTED for what cannot be combined (modules saved whole, DoRA,
 * ...); SHEAF_E_LAYOUT when shapes or, with LINEAR, ranks differ. */
sheaf_status *sheaf_lora_combine(sheaf_source **out, sheaf_lora_options *options,
                                 sheaf_source *const *sources, const sheaf_lora_options *from,
                                 const double *weights, int n, sheaf_combine how);

/* sheaf__lora_read_view - a box of a tensor whose rows are its first axis and whose columns are all
 * other axes; with more than two axes `col0` and `cols` are multiples of the last one. */
sheaf_status *sheaf__lora_read_view(sheaf_source *source, const sheaf_source_entry *e, int64_t row0,
                                    int64_t rows, int64_t col0, int64_t cols, void *dst);
