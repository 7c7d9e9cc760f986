/* matmul_rivals.h - the same products by oneDNN and OpenBLAS, where they are installed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

typedef struct rival_product {
    int64_t m, n, k;
    bool bf16, out_bf16;
    bool a_km;         /* A stored [k, m] */
    bool b_nk;         /* B stored [n, k] */
    const void *a, *b; /* dense */
    void *c;           /* dense [m, n] */
} rival_product;

typedef struct rival rival;
/* NULL: not installed, or it cannot do this one. packed: B in the rival's own layout,
 * prepared outside the timed part. */
rival *rival_onednn(const rival_product *product, bool packed);
rival *rival_openblas(const rival_product *product);
void rival_run(rival *r);
void rival_free(rival *r);
void rivals_set_threads(int threads);
