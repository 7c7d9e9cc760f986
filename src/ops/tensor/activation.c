/* activation.c - activations and rows times a number, see tensor.h; formulas in ops/kernels.h. */
#include "ops/call.h"
#include "ops/math/round.h"
#include "ops/tensor/tensor.h"

enum { ELEMENTS = 1 << 14, PART = 256 };

static void run(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                sheaf__activation *a, int64_t n)
{
    a->n = n;
    const size_t bytes = (size_t)n * sheaf_dtype_bytes(a->dtype);
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a->y, bytes), SHEAF__WRITES(a->dx, bytes), SHEAF__WRITES(a->dup, bytes),
        SHEAF__READS(a->x, bytes),  SHEAF__READS(a->up, bytes),  SHEAF__READS(a->dy, bytes),
    };
    sheaf__run(device, &(sheaf__call){ operation, a, SHEAF__OPERANDS(operand), part, n, ELEMENTS });
}

/* Address of element `i`. */
static void *at(const sheaf__activation *a, const void *data, int64_t i)
{
    return sheaf__at(data, i, a->dtype);
}

static void swiglu_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__activation *a = arg;
    k->swiglu(at(a, a->y, begin), at(a, a->x, begin), at(a, a->up, begin), end - begin, a->gelu,
              a->dtype);
}

void sheaf__op_swiglu(sheaf__device *device, void *h, const void *gate, const void *up, int64_t n,
                      bool gelu, sheaf_dtype dtype)
{
    run(device, SHEAF__OP_SWIGLU, swiglu_part,
        &(sheaf__activation){ .y = h, .x = gate, .up = up, .gelu = gelu, .dtype = dtype }, n);
}

static void swiglu_back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__activation *a = arg;
    k->swiglu_back(at(a, a->dx, begin), at(a, a->dup, begin),
                   a->y == NULL ? NULL : at(a, a->y, begin), at(a, a->dy, begin),
                   at(a, a->x, begin), at(a, a->up, begin), end - begin, a->gelu, a->dtype);
}

void sheaf__op_swiglu_back(sheaf__device *device, void *dgate, void *dup, void *h, const void *dh,
                           const void *gate, const void *up, int64_t n, bool gelu,
                           sheaf_dtype dtype)
{
    run(device, SHEAF__OP_SWIGLU_BACK, swiglu_back_part,
        &(sheaf__activation){ h, dgate, dup, gate, up, dh, .gelu = gelu, .dtype = dtype }, n);
}

static void gelu_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__activation *a = arg;
    k->gelu(at(a, a->y, begin), at(a, a->x, begin), end - begin, a->tanh, a->dtype);
}

void sheaf__op_gelu(sheaf__device *device, void *y, const void *x, int64_t n, bool tanh,
                    sheaf_dtype dtype)
{
    run(device, SHEAF__OP_GELU, gelu_part,
        &(sheaf__activation){ .y = y, .x = x, .tanh = tanh, .dtype = dtype }, n);
}

static void gelu_back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__activation *a = arg;
    k->gelu_back(at(a, a->dx, begin), at(a, a->dy, begin), at(a, a->x, begin), end - begin, a->add,
                 a->tanh, a->dtype);
}

void sheaf__op_gelu_back(sheaf__device *device, void *dx, const void *dy, const void *x, int64_t n,
                         bool add, bool tanh, sheaf_dtype dtype)
{
    run(device, SHEAF__OP_GELU_BACK, gelu_back_part,
        &(sheaf__activation){
            .dx = dx, .dy = dy, .x = x, .add = add, .tanh = tanh, .dtype = dtype },
        n);
}

static void scaled_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__activation *a = arg;
    const sheaf_dtype t = a->dtype;
    float part[PART], other[PART];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < PART ? end - i : PART;
        void *to = at(a, a->y, i);
        k->widen(part, at(a, a->x, i), t, n);
        if (a->divide)
            for (int64_t e = 0; e < n; e++)
                part[e] = sheaf__one_nan(part[e] / a->by);
        else
            k->scale(part, a->by, n);
        if (a->up != NULL) {
            k->round(to, t, part, n);
            k->widen(part, to, t, n);
        }
        if (a->up != NULL || a->add) {
            k->widen(other, a->add ? to : at(a, a->up, i), t, n);
            k->add(part, other, part, n);
        }
        k->round(to, t, part, n);
    }
}

void sheaf__op_scaled(sheaf__device *device, void *y, const void *x, const void *h, float by,
                      int64_t n, bool divide, bool add, sheaf_dtype dtype)
{
    run(device, SHEAF__OP_SCALED, scaled_part,
        &(sheaf__activation){
            .y = y, .x = x, .up = h, .divide = divide, .add = add, .by = by, .dtype = dtype },
        n);
}
