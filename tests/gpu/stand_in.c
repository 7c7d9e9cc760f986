/* stand_in.c - see stand_in.h. */
#include "tests/gpu/stand_in.h"

#include <stdatomic.h>
#include <sys/mman.h>

#include "base/base.h"
#include "tests/gpu/stand_in_fence.h"
#include "tests/gpu/stand_in_queue.h"
#include "tests/gpu/stand_in_state.h"

static _Thread_local int current = -1; /* the GPU of this thread's context */

#define all sheaf__stand_in

#define MAY_FAIL()                                                                                 \
    const sheaf__gpu_error fault_ = sheaf__stand_in_fault(__func__);                               \
    if (fault_ != 0)                                                                               \
    return fault_

/* ---- devices ---- */

static sheaf__gpu_error cuInit(unsigned flags)
{
    MAY_FAIL();
    return all.gpus == 0 ? SHEAF__GPU_NONE : 0;
}

static sheaf__gpu_error cuDriverGetVersion(int *out)
{
    MAY_FAIL();
    *out = all.version;
    return 0;
}

static const struct {
    sheaf__gpu_error error;
    const char *name, *text;
} texts[] = {
    { SHEAF__GPU_INVALID, "CUDA_ERROR_INVALID_VALUE", "invalid argument" },
    { SHEAF__GPU_NO_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory" },
    { SHEAF__GPU_NONE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected" },
    { SHEAF__GPU_NO_SUCH, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal" },
    { SHEAF__GPU_BAD_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid" },
    { SHEAF__GPU_NO_IMAGE, "CUDA_ERROR_NO_BINARY_FOR_GPU",
      "no kernel image is available for execution on the device" },
    { SHEAF__GPU_ECC, "CUDA_ERROR_ECC_UNCORRECTABLE", "uncorrectable ECC error encountered" },
    { SHEAF__GPU_NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found" },
    { SHEAF__GPU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
      "an illegal memory access was encountered" },
    { SHEAF__GPU_MISMATCH, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
      "system has unsupported display driver / cuda driver combination" },
    { SHEAF__GPU_UNKNOWN, "CUDA_ERROR_UNKNOWN", "unknown error" },
};

static sheaf__gpu_error find_text(sheaf__gpu_error e, const char **name, const char **text)
{
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].error == e) {
            *name = texts[i].name;
            *text = e == SHEAF__GPU_ILLEGAL_ADDRESS && *all.why != '\0' ? all.why : texts[i].text;
            return 0;
        }
    return SHEAF__GPU_INVALID;
}

static sheaf__gpu_error cuGetErrorName(sheaf__gpu_error e, const char **out)
{
    return find_text(e, out, &(const char *){ NULL });
}

static sheaf__gpu_error cuGetErrorString(sheaf__gpu_error e, const char **out)
{
    return find_text(e, &(const char *){ NULL }, out);
}

static sheaf__gpu_error cuDeviceGetCount(int *out)
{
    MAY_FAIL();
    *out = all.gpus;
    return 0;
}

static sheaf__gpu_error cuDeviceGet(int *out, int number)
{
    MAY_FAIL();
    *out = number;
    return number < 0 || number >= all.gpus ? SHEAF__GPU_NO_SUCH : 0;
}

static sheaf__gpu_error cuDeviceGetName(char *out, int bytes, int device)
{
    MAY_FAIL();
    snprintf(out, (size_t)bytes, "Emulated GPU");
    return 0;
}

static sheaf__gpu_error cuDeviceGetPCIBusId(char *out, int bytes, int device)
{
    MAY_FAIL();
    snprintf(out, (size_t)bytes, "0000:%02x:00.0", device + 1);
    return 0;
}

static sheaf__gpu_error cuDeviceTotalMem_v2(size_t *out, int device)
{
    MAY_FAIL();
    *out = all.gpu[device].memory;
    return 0;
}

static sheaf__gpu_error cuDeviceGetAttribute(int *out, int which, int device)
{
    MAY_FAIL();
    const sheaf__stand_in_gpu *g = &all.gpu[device];
    const bool large = g->minor == 0; /* 8.0 and 9.0: more shared memory than 8.6, 8.9 */
    switch (which) {
    case SHEAF__GPU_PROCESSORS: *out = 4; break;
    case SHEAF__GPU_MAJOR: *out = g->major; break;
    case SHEAF__GPU_MINOR: *out = g->minor; break;
    case SHEAF__GPU_MOST_SHARED: *out = (!large ? 99 : g->major == 8 ? 163 : 227) << 10; break;
    case SHEAF__GPU_CAN_MAP: *out = 1; break;
    default: *out = 0;
    }
    return 0;
}

static sheaf__gpu_error cuDeviceCanAccessPeer(int *out, int device, int peer)
{
    MAY_FAIL();
    *out = device != peer && device != all.apart && peer != all.apart;
    return 0;
}

static sheaf__gpu_error cuDeviceGetP2PAttribute(int *out, int which, int device, int peer)
{
    MAY_FAIL();
    *out = 1;
    return 0;
}

/* ---- contexts ---- */

static sheaf__gpu_error cuDevicePrimaryCtxRetain(sheaf__gpu_context *out, int device)
{
    MAY_FAIL();
    *out = (sheaf__gpu_context)&all.gpu[device];
    all.made++;
    return 0;
}

static sheaf__gpu_error cuDevicePrimaryCtxRelease_v2(int device)
{
    MAY_FAIL();
    all.made--;
    return 0;
}

static sheaf__gpu_error cuCtxSetCurrent(sheaf__gpu_context context)
{
    MAY_FAIL();
    current = context == NULL ? -1 : (int)((sheaf__stand_in_gpu *)context - all.gpu);
    return 0;
}

/* ---- memory ---- */

static sheaf__gpu_error cuMemGetInfo_v2(size_t *left, size_t *memory)
{
    MAY_FAIL();
    if (current < 0)
        return SHEAF__GPU_INVALID;
    sheaf__stand_in_gpu *g = &all.gpu[current];
    *memory = g->memory;
    *left = g->memory - g->taken - g->used;
    return 0;
}

static sheaf__gpu_error cuMemGetAllocationGranularity(size_t *out, const sheaf__gpu_memory *of,
                                                      int recommended)
{
    MAY_FAIL();
    *out = SHEAF__STAND_IN_GRANULARITY;
    return 0;
}

static sheaf__gpu_error cuMemAddressReserve(sheaf__gpu_address *out, size_t bytes, size_t alignment,
                                            sheaf__gpu_address at, uint64_t flags)
{
    MAY_FAIL();
    char *base = mmap(NULL, bytes + SHEAF__STAND_IN_GRANULARITY, PROT_NONE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED || bytes % SHEAF__STAND_IN_GRANULARITY != 0)
        return SHEAF__GPU_NO_MEMORY;
    const size_t before =
        (SHEAF__STAND_IN_GRANULARITY - (uintptr_t)base % SHEAF__STAND_IN_GRANULARITY) %
        SHEAF__STAND_IN_GRANULARITY;
    munmap(base, before); /* so that what is left begins as it is to */
    munmap(base + before + bytes, SHEAF__STAND_IN_GRANULARITY - before);
    *out = (uintptr_t)base + before;
    all.made++;
    return 0;
}

static sheaf__gpu_error cuMemAddressFree(sheaf__gpu_address at, size_t bytes)
{
    MAY_FAIL();
    munmap((void *)(uintptr_t)at, bytes);
    all.made--;
    return 0;
}

/* A block of GPU g with n bytes, as a number. */
static sheaf__gpu_error cuMemCreate(sheaf__gpu_block *out, size_t bytes,
                                    const sheaf__gpu_memory *of, uint64_t flags)
{
    MAY_FAIL();
    sheaf__stand_in_gpu *g = &all.gpu[of->place.number];
    if (bytes % SHEAF__STAND_IN_GRANULARITY != 0)
        return SHEAF__GPU_INVALID;
    if (atomic_fetch_add(&g->used, bytes) + bytes > g->memory - g->taken) {
        g->used -= bytes;
        return SHEAF__GPU_NO_MEMORY;
    }
    *out = bytes / SHEAF__STAND_IN_GRANULARITY * SHEAF__STAND_IN_GPUS + (uint64_t)of->place.number;
    all.made++;
    return 0;
}

static sheaf__gpu_error cuMemRelease(sheaf__gpu_block block)
{
    MAY_FAIL();
    all.gpu[block % SHEAF__STAND_IN_GPUS].used -=
        block / SHEAF__STAND_IN_GPUS * SHEAF__STAND_IN_GRANULARITY;
    all.made--;
    return 0;
}

static sheaf__gpu_error cuMemMap(sheaf__gpu_address at, size_t bytes, size_t offset,
                                 sheaf__gpu_block block, uint64_t flags)
{
    MAY_FAIL();
    return bytes != block / SHEAF__STAND_IN_GPUS * SHEAF__STAND_IN_GRANULARITY ? SHEAF__GPU_INVALID
                                                                               : 0;
}

static sheaf__gpu_error cuMemUnmap(sheaf__gpu_address at, size_t bytes)
{
    MAY_FAIL();
    return sheaf__fence_remove(at, bytes) ? 0 : SHEAF__GPU_INVALID;
}

static sheaf__gpu_error cuMemSetAccess(sheaf__gpu_address at, size_t bytes,
                                       const sheaf__gpu_access *access, size_t n)
{
    MAY_FAIL();
    return sheaf__fence_add(at, bytes) ? 0 : SHEAF__GPU_NO_MEMORY;
}

static sheaf__gpu_error cuMemAllocHost_v2(void **out, size_t bytes)
{
    MAY_FAIL();
    *out = malloc(bytes);
    all.made += *out != NULL;
    return *out == NULL ? SHEAF__GPU_NO_MEMORY : 0;
}

static sheaf__gpu_error cuMemFreeHost(void *block)
{
    MAY_FAIL();
    free(block);
    all.made--;
    return 0;
}

/* ---- modules ---- */

static const char images[] = "kernels of the emulation";

const void *sheaf__stand_in_image(int major, int minor)
{
    return images;
}

static sheaf__gpu_error cuModuleLoadData(sheaf__gpu_module *out, const void *image)
{
    MAY_FAIL();
    if (image != images)
        return SHEAF__GPU_BAD_IMAGE;
    *out = (sheaf__gpu_module)image;
    all.made++;
    return 0;
}

static sheaf__gpu_error cuModuleUnload(sheaf__gpu_module module)
{
    MAY_FAIL();
    all.made--;
    return 0;
}

static sheaf__gpu_error cuModuleGetFunction(sheaf__gpu_function *out, sheaf__gpu_module module,
                                            const char *name)
{
    MAY_FAIL();
    *out = (sheaf__gpu_function)sheaf__emu_find(name);
    return *out == NULL ? SHEAF__GPU_NOT_FOUND : 0;
}

static sheaf__gpu_error cuFuncSetAttribute(sheaf__gpu_function kernel, int which, int value)
{
    MAY_FAIL();
    int most = 0;
    (void)cuDeviceGetAttribute(&most, SHEAF__GPU_MOST_SHARED, current);
    return which == SHEAF__GPU_DYNAMIC_SHARED && value > most ? SHEAF__GPU_INVALID : 0;
}

/* ---- streams and events ---- */

typedef struct copy {
    char *to;
    const char *from;
    size_t bytes;
} copy;

static void do_copy(void *with)
{
    const copy *c = with;
    memmove(c->to, c->from, c->bytes);
}

static sheaf__gpu_error queued(bool done)
{
    return done ? 0 : SHEAF__GPU_NO_MEMORY;
}

static sheaf__gpu_error add_copy(sheaf__gpu_stream stream, void *to, const void *from, size_t bytes)
{
    return queued(sheaf__queue_add((sheaf__queue *)stream, do_copy, &(copy){ to, from, bytes },
                                   sizeof(copy)));
}

static sheaf__gpu_error cuMemcpyHtoDAsync_v2(sheaf__gpu_address to, const void *from, size_t bytes,
                                             sheaf__gpu_stream stream)
{
    MAY_FAIL();
    return add_copy(stream, (void *)(uintptr_t)to, from, bytes);
}

static sheaf__gpu_error cuMemcpyDtoHAsync_v2(void *to, sheaf__gpu_address from, size_t bytes,
                                             sheaf__gpu_stream stream)
{
    MAY_FAIL();
    return add_copy(stream, to, (const void *)(uintptr_t)from, bytes);
}

static sheaf__gpu_error cuMemcpyDtoDAsync_v2(sheaf__gpu_address to, sheaf__gpu_address from,
                                             size_t bytes, sheaf__gpu_stream stream)
{
    MAY_FAIL();
    return add_copy(stream, (void *)(uintptr_t)to, (const void *)(uintptr_t)(from + all.loses),
                    bytes);
}

static sheaf__gpu_error cuStreamCreateWithPriority(sheaf__gpu_stream *out, unsigned flags,
                                                   int priority)
{
    MAY_FAIL();
    *out = (sheaf__gpu_stream)sheaf__queue_new();
    all.made += *out != NULL;
    return queued(*out != NULL);
}

static sheaf__gpu_error cuStreamDestroy_v2(sheaf__gpu_stream stream)
{
    MAY_FAIL();
    sheaf__queue_free((sheaf__queue *)stream);
    all.made--;
    return 0;
}

static sheaf__gpu_error cuStreamSynchronize(sheaf__gpu_stream stream)
{
    MAY_FAIL();
    sheaf__queue_finish((sheaf__queue *)stream);
    return 0;
}

static sheaf__gpu_error cuEventCreate(sheaf__gpu_event *out, unsigned flags)
{
    MAY_FAIL();
    *out = (sheaf__gpu_event)sheaf__mark_new((flags & SHEAF__GPU_UNTIMED) == 0);
    all.made += *out != NULL;
    return queued(*out != NULL);
}

static sheaf__gpu_error cuEventDestroy_v2(sheaf__gpu_event event)
{
    MAY_FAIL();
    sheaf__mark_free((sheaf__queue_mark *)event);
    all.made--;
    return 0;
}

static sheaf__gpu_error cuEventRecord(sheaf__gpu_event event, sheaf__gpu_stream stream)
{
    MAY_FAIL();
    return queued(sheaf__mark_set((sheaf__queue_mark *)event, (sheaf__queue *)stream));
}

static sheaf__gpu_error cuEventSynchronize(sheaf__gpu_event event)
{
    MAY_FAIL();
    sheaf__mark_finish((sheaf__queue_mark *)event);
    return 0;
}

/* Nothing goes on by itself. */
static sheaf__gpu_error cuEventQuery(sheaf__gpu_event event)
{
    MAY_FAIL();
    sheaf__mark_finish((sheaf__queue_mark *)event);
    return 0;
}

static sheaf__gpu_error cuEventElapsedTime(float *ms, sheaf__gpu_event from, sheaf__gpu_event to)
{
    MAY_FAIL();
    const int64_t a = sheaf__mark_time((sheaf__queue_mark *)from),
                  b = sheaf__mark_time((sheaf__queue_mark *)to);
    *ms = (float)(1e-6 * (double)(b - a));
    return a < 0 || b < 0 ? SHEAF__GPU_NOT_READY : 0;
}

/* ---- launches ---- */

typedef struct launch {
    sheaf__emu_launch what;
    _Alignas(64) char arguments[SHEAF__EMU_ARGUMENTS]; /* as many as are used */
} launch;

/* A kernel that the emulation stops is what a GPU would stop, or not notice. */
static void do_launch(void *with)
{
    launch *l = with;
    char text[SHEAF__EMU_TEXT];
    l->what.arguments = l->arguments;
    if (!sheaf__emulate(&l->what, text))
        sheaf__stand_in_stop(text);
}

static sheaf__gpu_error cuLaunchKernel(sheaf__gpu_function kernel, unsigned x, unsigned y,
                                       unsigned z, unsigned threads_x, unsigned threads_y,
                                       unsigned threads_z, unsigned shared,
                                       sheaf__gpu_stream stream, void **arguments, void **extra)
{
    MAY_FAIL();
    const sheaf__emu_kernel *k = (const sheaf__emu_kernel *)kernel;
    size_t bytes;
    if (arguments != NULL || extra == NULL || extra[0] != (void *)1 || extra[2] != (void *)2)
        return SHEAF__GPU_INVALID;
    memcpy(&bytes, extra[3], sizeof bytes);
    if (current < 0 || bytes != k->bytes || bytes > SHEAF__EMU_ARGUMENTS || threads_y != 1 ||
        threads_z != 1 || threads_x == 0 || threads_x > (unsigned)k->threads || x == 0 || y == 0 ||
        z == 0)
        return SHEAF__GPU_INVALID;
    launch l = { .what = { .kernel = k,
                           .bytes = bytes,
                           .blocks = { x, y, z },
                           .threads = (int)threads_x,
                           .shared = shared,
                           .group = all.group != 0                ? all.group
                                    : all.gpu[current].major >= 9 ? 16
                                                                  : 8,
                           .turned = current % 2 == 1,
                           .keeps_denormals = all.keeps_denormals } };
    memcpy(l.arguments, extra[1], bytes);
    return queued(sheaf__queue_add((sheaf__queue *)stream, do_launch, &l,
                                   offsetof(launch, arguments) + bytes));
}

const sheaf__driver *sheaf__stand_in_driver(void)
{
#define ENTRY(field, symbol, parameters) .field = symbol,
    static const sheaf__driver table = { SHEAF__DRIVER_LIST(ENTRY).event_ready =
                                             cuEventQuery }; /* and no maps */
#undef ENTRY
    return &table;
}
