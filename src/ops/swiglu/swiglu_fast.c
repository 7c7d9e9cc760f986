/* swiglu_fast.c - swiglu_ref.c on vectors. */
#include "ops/columns.h"

#include "ops/vec.h"

SHEAF__INLINE void ahead(void *h, const void *gate, const void *up, int64_t i, int64_t count,
                         sheaf_dtype dtype)
{
    const vec g = v_read(gate, i, count, dtype), u = v_read(up, i, count, dtype);
    const vec silu = v_div(g, v_add(v_set(1), v_exp(v_negate(g))));
    v_write(h, i, v_mul(silu, u), count, dtype);
}

SHEAF__INLINE void swiglu(void *h, const void *gate, const void *up, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        ahead(h, gate, up, i, 16, dtype);
    if (i < n)
        ahead(h, gate, up, i, n - i, dtype);
}

void SHEAF__FAST(swiglu)(void *h, const void *gate, const void *up, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        swiglu(h, gate, up, n, SHEAF_BF16);
    else
        swiglu(h, gate, up, n, SHEAF_F32);
}

SHEAF__INLINE void back(void *dgate, void *dup, const void *dh, const void *gate, const void *up,
                        int64_t i, int64_t count, sheaf_dtype dtype)
{
    const vec one = v_set(1), d = v_read(dh, i, count, dtype);
    const vec g = v_read(gate, i, count, dtype), u = v_read(up, i, count, dtype);
    const vec p = v_div(one, v_add(one, v_exp(v_negate(g))));
    const vec slope = v_mul(p, v_add(one, v_mul(g, v_sub(one, p))));
    v_write(dup, i, v_mul(d, v_mul(g, p)), count, dtype);
    v_write(dgate, i, v_mul(v_mul(d, u), slope), count, dtype);
}

SHEAF__INLINE void swiglu_back(void *dgate, void *dup, const void *dh, const void *gate,
                               const void *up, int64_t n, sheaf_dtype dtype)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        back(dgate, dup, dh, gate, up, i, 16, dtype);
    if (i < n)
        back(dgate, dup, dh, gate, up, i, n - i, dtype);
}

void SHEAF__FAST(swiglu_back)(void *dgate, void *dup, const void *dh, const void *gate,
                              const void *up, int64_t n, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        swiglu_back(dgate, dup, dh, gate, up, n, SHEAF_BF16);
    else
        swiglu_back(dgate, dup, dh, gate, up, n, SHEAF_F32);
}
