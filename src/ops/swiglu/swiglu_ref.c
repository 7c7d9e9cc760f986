/* swiglu_ref.c - SwiGLU and GeGLU of n elements, see swiglu.h. */
#include "ops/columns.h"

#include "ops/swiglu/swiglu.h"

void sheaf__swiglu_ref(void *h, const void *gate, const void *up, int64_t n, bool gelu,
                       sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float g = sheaf__load(gate, i, dtype), u = sheaf__load(up, i, dtype);
        sheaf__store(h, i, sheaf__swiglu_of(g, u, gelu), dtype);
    }
}

void sheaf__swiglu_back_ref(void *dgate, void *dup, void *h, const void *dh, const void *gate,
                            const void *up, int64_t n, bool gelu, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        float again, to_gate, to_up;
        sheaf__swiglu_back_of(&again, &to_gate, &to_up, sheaf__load(dh, i, dtype),
                              sheaf__load(gate, i, dtype), sheaf__load(up, i, dtype), gelu);
        if (h != NULL)
            sheaf__store(h, i, again, dtype);
        sheaf__store(dup, i, to_up, dtype);
        sheaf__store(dgate, i, to_gate, dtype);
    }
}
