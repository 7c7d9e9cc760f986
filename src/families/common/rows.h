/* rows.h - the tensors of a family, written as tables. */
#pragma once

#include "schema/family.h"

/* How a tensor is cut: not; along its output, in one part or in several (fused gate and up, or q, k
 * and v); along its input. */
typedef enum sheaf__split {
    SHEAF__WHOLE,
    SHEAF__BY_OUT,
    SHEAF__BY_OUT2,
    SHEAF__BY_OUT3,
    SHEAF__BY_IN
} sheaf__split;

typedef struct sheaf__tensor_row {
    const char *name;                     /* the name after the prefix */
    int64_t shape[SHEAF_TENSOR_MAX_DIMS]; /* ends with 0 */
    sheaf_role role;
    sheaf__split split;
    int64_t units; /* of the cut axis, or of each of its parts; 0: each row is a unit */
    bool zero, buffer, bare;
    const sheaf_part *part; /* of a fused weight, where they differ in size; else NULL */
    /* sheaf_tensor.stack: the parameter's name after the prefix; members 0: it has this name alone
     */
    const char *stack;
    int64_t member, members, stack_row, stack_rows;
} sheaf__tensor_row;

/* sheaf__rows_add - appends tensors to the schema; `prefix` begins each name. layer -1: outside
 * layers. */
sheaf_status *sheaf__rows_add(sheaf_schema *schema, const char *prefix, int layer,
                              const sheaf__tensor_row *rows, size_t n);

/* sheaf__rows_size - SHEAF_E_LAYOUT for a config value that is not 1 to `most`. */
sheaf_status *sheaf__rows_size(const char *name, int64_t value, int64_t most);
/* sheaf__resampler_rows - the tensors of config.resampler, from a tower of width `from`, with a
 * projection if the widths differ, to config.hidden; table: the positions of its queries are in the
 * files. */
sheaf_status *sheaf__resampler_rows(sheaf_schema *schema, const char *prefix, int64_t from,
                                    bool table);
/* sheaf__eva_rows - the tensors of config.vit as EVA2-CLIP's tower with a convolution of 2 x 2
 * patches behind it, from its width to `joined`, and of the adapter (eva_clip.h). */
sheaf_status *sheaf__eva_rows(sheaf_schema *schema, const char *prefix, int64_t joined);
