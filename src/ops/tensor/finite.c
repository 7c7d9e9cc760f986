/* finite.c - do tensors hold finite numbers alone? See tensor.h. */
#include <stdatomic.h>

#include "ops/call.h"
#include "ops/tensor/finite.h"
#include "ops/tensor/tensor.h"

enum { CHUNK = 1 << 15, PART = 1024 };

bool sheaf__is_finite(const void *x, int64_t n, sheaf_dtype dtype)
{
    const uint32_t *full = x;
    const uint16_t *half = x;
    const uint32_t exponent = dtype == SHEAF_F16   ? 0x7c00u
                              : dtype == SHEAF_F32 ? 0x7f800000u
                                                   : 0x7f80u;
    for (int64_t i = 0; i < n; i++)
        if (((dtype == SHEAF_F32 ? full[i] : half[i]) & exponent) == exponent)
            return false;
    return true;
}

bool sheaf__is_finite_as(const sheaf__kernels *k, const void *x, sheaf_dtype from, int64_t n,
                         sheaf_dtype to)
{
    uint32_t part[PART]; /* space for either type */
    if (from == to)
        return sheaf__is_finite(x, n, to);
    for (int64_t i = 0, m; i < n; i += m) {
        m = n - i < PART ? n - i : PART;
        k->convert(part, to, sheaf__at(x, i, from), from, m);
        if (!sheaf__is_finite(part, m, to))
            return false;
    }
    return true;
}

struct sheaf__infinite {
    atomic_bool found;
};

void sheaf__look_found(const sheaf__look *look)
{
    atomic_store_explicit(&look->infinite->found, true, memory_order_relaxed);
}

static void look_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__look *l = arg;
    if (!atomic_load_explicit(&l->infinite->found, memory_order_relaxed) &&
        !sheaf__is_finite_as(k, sheaf__at(l->x, begin, l->from), l->from, end - begin, l->to))
        sheaf__look_found(l);
}

bool sheaf__op_is_finite(sheaf__device *device, const void *x, sheaf_dtype from, int64_t n,
                         sheaf_dtype to)
{
    struct sheaf__infinite infinite = { false };
    sheaf__look l = { x, n, from, to, &infinite };
    const sheaf__operand operand = SHEAF__READS(l.x, (size_t)n * sheaf_dtype_bytes(from));
    if (x == NULL)
        return true;
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_FINITE, &l, &operand, 1, look_part, n, CHUNK });
    return !infinite.found;
}
