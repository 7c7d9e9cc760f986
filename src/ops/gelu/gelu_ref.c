/* gelu_ref.c - GELU of n elements, see gelu.h. */
#include "ops/columns.h"

#include "ops/gelu/gelu.h"

void sheaf__gelu_ref(void *y, const void *x, int64_t n, bool tanh, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        sheaf__store(y, i, sheaf__gelu_of(sheaf__load(x, i, dtype), tanh), dtype);
}

void sheaf__gelu_back_ref(void *dx, const void *dy, const void *x, int64_t n, bool add, bool tanh,
                          sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float g =
            sheaf__load(dy, i, dtype) * sheaf__gelu_slope(sheaf__load(x, i, dtype), tanh);
        sheaf__store(dx, i, add ? sheaf__load(dx, i, dtype) + g : g, dtype);
    }
}
