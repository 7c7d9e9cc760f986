/* context.c - what ops are made with (tape.h): threads, memory, sums over ranks, what was spent. */
#include "tape/tape.h"

#include <time.h>

void sheaf__rows(const sheaf__context *context, int64_t rows, int64_t grain, sheaf__body *body,
                 void *arg)
{
    if (context->device->pool != NULL)
        sheaf__pool_rows(context->device->pool, rows, grain, body, arg);
}

/* ---- what was spent ---- */

double sheaf__work_now(const sheaf__work *work)
{
    struct timespec t;
    clock_gettime(work->processor ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double sheaf__context_now(const sheaf__context *c)
{
    sheaf__device *device = c->device;
    if (!device->class->counts && device->class->peers != NULL)
        sheaf__device_fail(device, device->class->peers->mover.lend(device->reserved));
    return sheaf__work_now(c->work);
}

void sheaf__costs_of(sheaf__costs *out, const sheaf__context *c)
{
    *out = (sheaf__costs){ .flops = c->device->flops,
                           .uploaded = c->device->uploaded,
                           .downloaded = c->device->downloaded };
    if (c->comm != NULL)
        out->comm = *sheaf_comm_counters(c->comm);
    if (c->world != NULL && c->world != c->comm) /* with one stage they are one group */
        out->world = *sheaf_comm_counters(c->world);
    if (c->peers != NULL)
        out->peers = *sheaf_comm_counters(c->peers);
}

void sheaf__costs_repeat(sheaf__context *c, const sheaf__costs *before, int64_t times)
{
    c->device->flops += (double)times * (c->device->flops - before->flops);
    c->device->uploaded += (uint64_t)times * (c->device->uploaded - before->uploaded);
    c->device->downloaded += (uint64_t)times * (c->device->downloaded - before->downloaded);
    if (c->comm != NULL)
        sheaf__counters_repeat(sheaf_comm_counters(c->comm), &before->comm, (uint64_t)times);
    if (c->world != NULL)
        sheaf__counters_repeat(sheaf_comm_counters(c->world), &before->world, (uint64_t)times);
}

double sheaf__costs_sent(const sheaf__costs *costs)
{
    return (double)sheaf__counters_all(&costs->comm).sent +
           (double)sheaf__counters_all(&costs->world).sent;
}

double sheaf__costs_waiting(const sheaf__costs *costs)
{
    const sheaf__counters *const of[] = { &costs->comm, &costs->world, &costs->peers };
    double seconds = 0;
    for (int i = 0; i < 3; i++) {
        const sheaf__count all = sheaf__counters_all(of[i]);
        seconds += all.waiting + all.moving;
    }
    return seconds;
}

/* ---- sums and memory ---- */

static void run_on_pool(void *pool, int64_t tasks,
                        void (*task)(void *context, int64_t index, int worker), void *context)
{
    sheaf__pool_run(pool, tasks, task, context);
}

/* The operand of an exchange, as the host's; on dry the address itself, which no exchange touches.
 */
static sheaf_status *borrow(void *host, const sheaf__context *c, void *at, size_t bytes, bool reads)
{
    void *at_host;
    sheaf_status *st = sheaf__borrow(&at_host, c->device, at, bytes, reads);
    if (st == NULL && at_host == NULL)
        at_host = at;
    memcpy(host, &at_host, sizeof at_host);
    return st;
}

/* Do ranks of `comm` exchange device memory as it lies, or as messages out of it? A plan takes it
 * that they do. */
static bool on_device(const sheaf__context *c, const sheaf_comm *comm)
{
    const sheaf__device *device = c->device;
    if (device->planned->peers == NULL)
        return false;
    return device->class->counts || c->own_process ||
           (device->class->peers->reach(device->reserved) && sheaf_comm_sees_memory(comm));
}

/* Then, until settle(), the device moves and adds. */
static bool moves_itself(const sheaf__context *c, sheaf_comm *comm)
{
    const sheaf__device *device = c->device;
    if (!on_device(c, comm))
        return false;
    if (device->class->counts)
        sheaf_comm_would_move(comm);
    else
        sheaf_comm_move_by(comm, &device->class->peers->mover, device->reserved);
    return true;
}

static sheaf_status *settle(sheaf_comm *comm, sheaf_status *st)
{
    sheaf_comm_move_by(comm, NULL, NULL);
    return st;
}

bool sheaf__exchanges_beside(const sheaf__context *c)
{
    return c->ranks > 1 && on_device(c, c->comm);
}

void sheaf__exchange_mark(const sheaf__context *c)
{
    sheaf__device *device = c->device;
    if (!device->class->counts)
        sheaf__device_fail(device, device->class->peers->mark(device->reserved));
}

static sheaf_comm_adder adder_of(const sheaf__context *c)
{
    return (sheaf_comm_adder){ c->device->kernels->add, run_on_pool, c->device->pool };
}

sheaf_status *sheaf__sum_among(sheaf__context *context, sheaf_comm *comm, const sheaf_tree *tree,
                               float *const *roots, int64_t rows, int64_t cols,
                               const int64_t *first)
{
    if (comm == NULL)
        return NULL;
    sheaf__device *device = context->device;
    const sheaf_comm_adder adder = adder_of(context);
    if (moves_itself(context, comm))
        return settle(comm, sheaf_comm_sum(comm, tree, roots[0], roots, rows, cols, first, &adder));
    const size_t bytes = (size_t)(rows * cols) * sizeof(float);
    float *host[SHEAF_MAX_SLICES] = { NULL };
    int own;
    sheaf_tree_own(tree, sheaf_comm_rank(comm), &own);
    sheaf_status *st = NULL;
    for (int r = 0; r < (own == 0 ? 1 : own); r++)
        TRY(st, borrow(&host[r], context, roots[r], bytes, r < own));
    TRY(st, sheaf_comm_sum(comm, tree, host[0], host, rows, cols, first, &adder));
    for (int r = 0; r < (own == 0 ? 1 : own); r++) {
        const bool writes = st == NULL && r == 0;
        st = sheaf__first_of(st, sheaf__return(host[r], device, roots[r], bytes, writes));
    }
    return st;
}

sheaf_status *sheaf__chain_among(const sheaf__context *c, float *out, float *part,
                                 const int64_t *first, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof *out,
                 mine = (size_t)((first[c->rank + 1] - first[c->rank]) * sheaf_comm_part(n)) *
                        sizeof *part;
    const sheaf_comm_adder adder = adder_of(c);
    float *host = NULL, *parts = NULL;
    if (moves_itself(c, c->comm))
        return settle(c->comm, sheaf_comm_chain(c->comm, out, part, first, n, &adder));
    sheaf_status *st = borrow(&host, c, out, bytes, false);
    TRY(st, borrow(&parts, c, part, mine, true));
    TRY(st, sheaf_comm_chain(c->comm, host, parts, first, n, &adder));
    st = sheaf__first_of(st, sheaf__return(parts, c->device, part, mine, false));
    return sheaf__first_of(st, sheaf__return(host, c->device, out, bytes, st == NULL));
}

/* After an exchange. */
static sheaf_status *give_back(const sheaf__context *c, sheaf_status *st, void *host, void *at,
                               size_t bytes)
{
    return sheaf__first_of(st, sheaf__return(host, c->device, at, bytes, st == NULL));
}

sheaf_status *sheaf__max_among(const sheaf__context *c, sheaf_comm *comm, float *x, int64_t n)
{
    const size_t bytes = (size_t)n * sizeof(float);
    float *host;
    if (comm == NULL)
        return NULL;
    sheaf_status *st = borrow(&host, c, x, bytes, true);
    TRY(st, sheaf_comm_max(comm, host, n));
    return give_back(c, st, host, x, bytes);
}

sheaf_status *sheaf__select_among(const sheaf__context *c, sheaf_comm *comm, void *rows,
                                  size_t row_bytes, int64_t n, const int32_t *owner)
{
    const size_t bytes = row_bytes * (size_t)n;
    void *host;
    if (comm == NULL)
        return NULL;
    sheaf_status *st = borrow(&host, c, rows, bytes, true);
    TRY(st, sheaf_comm_select(comm, host, row_bytes, n, owner));
    return give_back(c, st, host, rows, bytes);
}

sheaf_status *sheaf__gather_among(const sheaf__context *c, sheaf_comm *comm, void *all,
                                  const size_t *size)
{
    size_t bytes = 0;
    void *host;
    if (comm == NULL)
        return NULL;
    for (int r = 0; r < sheaf_comm_ranks(comm); r++)
        bytes += size[r];
    if (moves_itself(c, comm))
        return settle(comm, sheaf_comm_gather(comm, all, size));
    sheaf_status *st = borrow(&host, c, all, bytes, true);
    TRY(st, sheaf_comm_gather(comm, host, size));
    return give_back(c, st, host, all, bytes);
}

sheaf_status *sheaf__broadcast_among(const sheaf__context *c, sheaf_comm *comm, void *x,
                                     size_t bytes, int root)
{
    void *host;
    if (comm == NULL)
        return NULL;
    if (moves_itself(c, comm))
        return settle(comm, sheaf_comm_broadcast(comm, x, bytes, root));
    sheaf_status *st = borrow(&host, c, x, bytes, true);
    TRY(st, sheaf_comm_broadcast(comm, host, bytes, root));
    return give_back(c, st, host, x, bytes);
}

sheaf_status *sheaf__alloc(void *out, sheaf__context *context, size_t bytes, sheaf_memory kind)
{
    void *block = NULL;
    sheaf_status *st = sheaf__device_alloc(&block, context->device, bytes, kind);
    *(void **)out = block;
    return st;
}

void sheaf__free(sheaf__context *context, void *block)
{
    sheaf__device_free(context->device, block);
}
