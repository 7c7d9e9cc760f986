/* softcap_ref.c - the cap of n elements, see softcap.h. */
#include "ops/columns.h"

#include "ops/softcap/softcap.h"

void sheaf__softcap_ref(float *x, float cap, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = sheaf__softcap_of(x[i], cap, dtype);
}

void sheaf__softcap_back_ref(void *dx, const float *y, float cap, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++)
        sheaf__store(dx, i, sheaf__softcap_back_of(sheaf__load(dx, i, dtype), y[i], cap), dtype);
}
