/* probe_peers.c - is what a GPU reads and writes in its mates' memory right? Asked as it is opened.
 *
 * cuDeviceCanAccessPeer() says yes also where what stands between two GPUs on PCI Express (an
 * IOMMU, ACS, some drivers) loses or changes what one writes, without an error (pytorch#84803,
 * nccl#2335). So each GPU adds, by the kernel of exchanges, numbers of a mate to its own, writes
 * the sums to both, and has its copies fetch the mate's numbers; the mate itself gives and takes
 * what the host compares. */
#include "base/base.h"
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/exchange.h"

#define REMEDY                                                                                     \
    "SHEAF_PEERS=off: GPUs exchange through the host's memory, with the same bytes; what loses "   \
    "writes is often the machine's IOMMU or ACS, which its BIOS turns off"

enum { NUMBERS = 16 << 10 };

/* Memory of a mate, with a stream of its own. */
typedef struct visited {
    int handle;
    sheaf__gpu_context context;
    sheaf__gpu_stream stream;
    sheaf__gpu_block block;
    sheaf__gpu_address base;
    bool retained, made, mapped;
} visited;

static sheaf__gpu_error visit(visited *mate, const sheaf__gpu *gpu, int handle)
{
    const sheaf__driver *d = gpu->driver;
    const sheaf__gpu_memory memory = { .type = 1, .place = { 1, handle } };
    const sheaf__gpu_access access[2] = { { { 1, handle }, SHEAF__GPU_READ_WRITE },
                                          { { 1, gpu->handle }, SHEAF__GPU_READ_WRITE } };
    *mate = (visited){ .handle = handle };
    sheaf__gpu_error e = d->retain(&mate->context, handle);
    mate->retained = e == 0;
    SHEAF__GPU_TRY(e, d->set_context(mate->context));
    SHEAF__GPU_TRY(e, d->stream_new(&mate->stream, SHEAF__GPU_OWN_ORDER, 0));
    SHEAF__GPU_TRY(e, d->reserve(&mate->base, gpu->granularity, 0, 0, 0));
    if (e == 0 && (e = d->create(&mate->block, gpu->granularity, &memory, 0)) == 0)
        mate->made = true;
    if (e == 0 && (e = d->map(mate->base, gpu->granularity, 0, mate->block, 0)) == 0)
        mate->mapped = true;
    return e == 0 ? d->allow(mate->base, gpu->granularity, access, 2) : e;
}

/* Also after a failure, with something under way. */
static void leave(visited *mate, const sheaf__gpu *gpu)
{
    const sheaf__driver *d = gpu->driver;
    (void)d->stream_finish(gpu->stream);
    if (mate->stream != NULL && d->set_context(mate->context) == 0) {
        (void)d->stream_finish(mate->stream);
        (void)d->stream_free(mate->stream);
    }
    if (mate->mapped)
        (void)d->unmap(mate->base, gpu->granularity);
    if (mate->made)
        (void)d->destroy(mate->block);
    if (mate->base != 0)
        (void)d->unreserve(mate->base, gpu->granularity);
    (void)d->set_context(gpu->context);
    if (mate->retained)
        (void)d->give_back(mate->handle);
}

/* From the host's memory to the mate's, or back, by the mate. */
static sheaf__gpu_error move(const sheaf__gpu *gpu, visited *mate, sheaf__gpu_address at,
                             float *pinned, bool back)
{
    const sheaf__driver *d = gpu->driver;
    const size_t bytes = NUMBERS * sizeof(float);
    sheaf__gpu_error e = d->set_context(mate->context);
    SHEAF__GPU_TRY(e, back ? d->download(pinned, at, bytes, mate->stream)
                           : d->upload(at, pinned, bytes, mate->stream));
    SHEAF__GPU_TRY(e, d->stream_finish(mate->stream));
    return e == 0 ? d->set_context(gpu->context) : e;
}

static float number(int i, int which)
{
    return (float)(i * 2 + which + (which == 0 ? 1 : 7 * (i % 1021)));
}

/* How many are not as they should be; which: 0: the mate's; 2: the sums. */
static int count_wrong(const float *is, int which)
{
    int wrong = 0;
    for (int i = 0; i < NUMBERS; i++)
        wrong += is[i] != (which == 0 ? number(i, 0) : number(i, 0) + number(i, 1));
    return wrong;
}

/* Wrong numbers of each way. */
typedef struct found {
    int written, read, copied;
} found;

static sheaf_status *exchange_with(sheaf__gpu *gpu, visited *mate, found *wrong)
{
    enum { BYTES = NUMBERS * sizeof(float) };
    float *pinned = (float *)(void *)gpu->ring.pinned;
    const sheaf__gpu_address own = gpu->base, theirs = mate->base;
    const sheaf__exchange sum = {
        .out = { (float *)(uintptr_t)(own + BYTES), (float *)(uintptr_t)(theirs + BYTES) },
        .operand = { (const float *)(uintptr_t)theirs, (const float *)(uintptr_t)own },
        .to = { SHEAF__COMBINED },
        .b = { 1 },
        .ranks = 2,
        .operands = 2,
        .steps = 1,
        .end = NUMBERS
    };
    float *got = malloc(2 * BYTES);
    if (got == NULL)
        return sheaf__no_memory("questions to a GPU");
    for (int i = 0; i < NUMBERS; i++)
        pinned[i] = number(i, 0);
    sheaf_status *st = sheaf__gpu_failed(gpu, move(gpu, mate, theirs, pinned, false), "a mate");
    for (int i = 0; i < NUMBERS; i++)
        got[i] = number(i, 1);
    TRY(st, sheaf__gpu_send(gpu, own, got, BYTES));
    TRY(st, sheaf__gpu_queue(gpu, SHEAF__LAUNCHED("exchange_sum", 8, 1, 256,
                                                  SHEAF__EXCHANGE_SHARED(256), &sum)));
    TRY(st, sheaf__gpu_failed(gpu, gpu->driver->copy(own + 2 * BYTES, theirs, BYTES, gpu->stream),
                              "copying from a mate"));
    TRY(st, sheaf__gpu_await(gpu, gpu->stream, REMEDY));
    TRY(st, sheaf__gpu_fetch(gpu, got, own + BYTES, 2 * BYTES));
    TRY(st, sheaf__gpu_failed(gpu, move(gpu, mate, theirs + BYTES, pinned, true), "a mate"));
    if (st == NULL)
        *wrong =
            (found){ count_wrong(pinned, 2), count_wrong(got, 2), count_wrong(got + NUMBERS, 0) };
    free(got);
    return st;
}

sheaf_status *sheaf__gpu_probe_peers(sheaf__gpu *gpu)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < gpu->mates && st == NULL; i++) {
        visited mate;
        found wrong = { 0 };
        if (gpu->mate[i] == gpu->handle)
            continue;
        st = sheaf__gpu_failed(gpu, visit(&mate, gpu, gpu->mate[i]), "memory of a mate");
        TRY(st, sheaf__gpu_failed(gpu, gpu->driver->set_context(gpu->context), "using it"));
        TRY(st, exchange_with(gpu, &mate, &wrong));
        if (!gpu->hangs)
            leave(&mate, gpu);
        if (st != NULL || wrong.written + wrong.read + wrong.copied == 0)
            continue;
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "GPU %d (%s): the memory of another GPU", gpu->number,
                        gpu->name);
        sheaf_expected(st, "the numbers that were written there");
        sheaf_found(st, "of %d, %d written, %d read and %d copied are others", NUMBERS,
                    wrong.written, wrong.read, wrong.copied);
        sheaf_try_this(st, "%s", REMEDY);
    }
    return st;
}
