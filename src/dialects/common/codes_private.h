/* codes_private.h - between codes.c (which tensors belong together), codes_make.c (one tensor by
 * its row of catalog/packing.h), codes_bnb.c (what bitsandbytes stores beside) and codes_parts.c
 * (findings). */
#pragma once

#include "catalog/coded.h"
#include "dialects/common/codes.h"
#include "schema/quantization.h"

enum { SHEAF__CODES_NAME = 600 };

/* A catalog whose codes are put together. */
typedef struct sheaf__codes_of {
    sheaf_catalog *c;
    bool damaged; /* parts may be in files that could not be read */
    bool failed;  /* a tensor could not be made */
    sheaf__quantization how;
    json_t *config, *beside; /* the JSON behind `how` */
    sheaf_dtype dtype;       /* of the config; BF16 where it does not say */
    /* Symmetric GPTQ whose zeros are all the same: how many tensors there are, and of which value
     * as they are stored */
    int64_t with_zeros, sevens, eights;
} sheaf__codes_of;

/* One tensor that is put together. */
typedef struct sheaf__codes_weight {
    sheaf__codes_of *x;
    const sheaf__packing *packing;
    const char *stem;                  /* "X", of X.weight, X.qweight, ... */
    char weight[SHEAF__CODES_NAME];    /* "X.weight" */
    sheaf__quantization how;           /* of X */
    sheaf_logical *part[SHEAF__PARTS]; /* that the files have */
    sheaf__coded *q;
    sheaf_dtype dtype; /* of its values */
    bool wrong;        /* a finding says why it cannot be made */
} sheaf__codes_weight;

/* sheaf__codes_make - fills g->q and takes the parts, with findings for what is wrong. */
sheaf_status *sheaf__codes_make(sheaf__codes_weight *g);
/* sheaf__codes_state - of NF4 and FP4: form, sizes and dtype as the quant_state has them.
 * sheaf__codes_tables - whether its tables are the known ones. sheaf__codes_order - of int8:
 * whether its rows are in order. */
sheaf_status *sheaf__codes_state(sheaf__codes_weight *g);
sheaf_status *sheaf__codes_tables(sheaf__codes_weight *g);
sheaf_status *sheaf__codes_order(sheaf__codes_weight *g);

/* sheaf__codes_is_part - is it by its name what a quantizer leaves, and taken by nothing yet? */
bool sheaf__codes_is_part(const sheaf_logical *tensor);
/* sheaf__codes_find - the tensor "X" + suffix, if the file has it. */
sheaf_logical *sheaf__codes_find(const sheaf__codes_weight *g, const char *suffix);
/* sheaf__codes_need - finds part `part`; a finding "missing" where there is none. */
sheaf_status *sheaf__codes_need(sheaf__codes_weight *g, int part);
/* sheaf__codes_take - makes a part that was found that of g->q, and if it is not X.weight itself
 * takes it out of the catalog. */
sheaf_status *sheaf__codes_take(sheaf__codes_weight *g, int part);
/* sheaf__codes_read - sheaf__part_bytes(); that it cannot be read is a finding and g->wrong. */
sheaf_status *sheaf__codes_read(void *dst, sheaf__codes_weight *g, int part, int64_t begin,
                                int64_t size);
/* sheaf__codes_drop - takes out the rest of a tensor that cannot be made: it would be reported
 * again, as foreign. */
void sheaf__codes_drop(sheaf__codes_weight *g);
/* sheaf__codes_wrong - a finding about a part; `code`, `expected` and `cure` as sheaf__finding()
 * has them. Sets g->wrong. */
sheaf_status *sheaf__codes_wrong(sheaf__codes_weight *g, const char *code,
                                 const sheaf_logical *part, const char *expected, const char *cure,
                                 const char *found, ...) SHEAF_PRINTF(6, 7);
/* sheaf__codes_shape - a finding unless the part has one of these dtypes (bits: 1 << dtype) and
 * this shape. */
sheaf_status *sheaf__codes_shape(sheaf__codes_weight *g, const sheaf_logical *part, uint64_t dtypes,
                                 int ndim, int64_t d0, int64_t d1);
