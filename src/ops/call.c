/* call.c - see call.h: operations by the processor, on the operands as they are or on copies. */
#include "ops/call.h"

#include <stdatomic.h>

#include "ops/device.h"
#include "ops/pool.h"

typedef struct running {
    const sheaf__call *call;
    const sheaf__kernels *kernels;
} running;

static void run_part(void *arg, int64_t begin, int64_t end, int worker)
{
    const running *r = arg;
    r->call->part(r->kernels, r->call->arguments, begin, end);
}

void sheaf__run_here(sheaf__device *device, const sheaf__call *call)
{
    if (call->whole != NULL)
        call->whole(device, call->arguments);
    else if (call->rows > 0)
        sheaf__pool_rows(device->pool, call->rows, call->grain, run_part,
                         &(running){ call, device->kernels });
}

/* ---- on copies ---- */

/* Operands that overlap, as one. */
typedef struct span {
    char *at, *copy;
    size_t bytes;
    bool written;
} span;

static void *pointer_of(const sheaf__operand *o)
{
    void *at;
    memcpy(&at, o->field, sizeof at);
    return at;
}

static void point(const sheaf__operand *o, const void *at)
{
    memcpy(o->field, &at, sizeof at);
}

static int by_address(const void *left, const void *right)
{
    const span *a = left, *b = right;
    return a->at < b->at ? -1 : a->at > b->at;
}

/* The spans of a call's operands, ascending; returns how many. */
static int spans_of(span *out, const sheaf__call *call)
{
    int all = 0, n = 0;
    for (int i = 0; i < call->operands; i++) {
        const sheaf__operand *o = &call->operand[i];
        if (pointer_of(o) != NULL && o->bytes > 0)
            out[all++] = (span){ pointer_of(o), NULL, o->bytes, o->written };
    }
    qsort(out, (size_t)all, sizeof *out, by_address);
    for (int i = 0; i < all; i++) {
        span *last = n > 0 ? &out[n - 1] : NULL;
        if (last != NULL && out[i].at < last->at + last->bytes) {
            const size_t end = (size_t)(out[i].at - last->at) + out[i].bytes;
            last->bytes = end > last->bytes ? end : last->bytes;
            last->written |= out[i].written;
        } else {
            out[n++] = out[i];
        }
    }
    return n;
}

static const span *span_with(const span *of, int n, const char *at)
{
    for (int i = 0; i < n; i++)
        if (at >= of[i].at && at < of[i].at + of[i].bytes)
            return &of[i];
    return NULL;
}

static sheaf_status *run_on_copies(sheaf__device *device, sheaf__reserved *range,
                                   const sheaf__call *call)
{
    const size_t most = (size_t)call->operands + 1;
    span *of = calloc(most, sizeof *of);
    void **was = calloc(most, sizeof *was);
    sheaf_status *st =
        of == NULL || was == NULL ? sheaf__no_memory("operands of an operation") : NULL;
    const int n = st == NULL ? spans_of(of, call) : 0;
    for (int i = 0; i < n && st == NULL; i++) {
        of[i].copy = malloc(of[i].bytes);
        st = of[i].copy == NULL ? sheaf__no_memory("operands of an operation")
                                : device->class->download(range, of[i].copy, of[i].at, of[i].bytes);
    }
    for (int i = 0; i < call->operands && st == NULL; i++) {
        const sheaf__operand *o = &call->operand[i];
        was[i] = pointer_of(o);
        const span *in = span_with(of, n, was[i]);
        point(o, in == NULL ? was[i] : in->copy + ((char *)was[i] - in->at));
    }
    if (st == NULL) {
        sheaf__run_here(device, call);
        for (int i = 0; i < call->operands; i++)
            point(&call->operand[i], was[i]);
    }
    for (int i = 0; i < n; i++) {
        if (st == NULL && of[i].written)
            st = device->class->upload(range, of[i].at, of[i].copy, of[i].bytes);
        free(of[i].copy);
    }
    free(of);
    free(was);
    return st;
}

/* One at a time: several threads may load rows of one weight. */
static sheaf_status *run_alone(sheaf__device *device, const sheaf__call *call)
{
    pthread_mutex_lock(&device->copying);
    sheaf_status *st = run_on_copies(device, device->reserved, call);
    pthread_mutex_unlock(&device->copying);
    return st;
}

void sheaf__run(sheaf__device *device, const sheaf__call *call)
{
    if (device->class->counts || atomic_load(&device->failed) != NULL)
        return;
    if (device->class->run != NULL && device->class->run(device, device->reserved, call))
        return;
    const sheaf__spending on = sheaf__spending_of(call->operation);
    const double began = sheaf__spend_begin(device, on);
    if (device->class->shared)
        sheaf__run_here(device, call);
    else
        sheaf__device_fail(device, run_alone(device, call));
    sheaf__spend_end(device, on, began);
}
