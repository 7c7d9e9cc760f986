/* driver.h - the functions of NVIDIA's driver API that sheaf uses, loaded at run time.
 *
 * Declarations of our own: no header of CUDA is needed. Names, numbers and layouts are those of the
 * interface of libcuda.so.1, whose functions keep theirs (a changed one gets a name that ends in
 * _v2). A stand-in (tests/gpu/stand_in.h) has the same table over the emulation of kernels. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sheaf/status.h"

typedef int sheaf__gpu_error; /* CUresult; 0: success */
/* The next call of several, as TRY() for statuses: not after one that failed. */
#define SHEAF__GPU_TRY(e, ...) ((e) = (e) != 0 ? (e) : (__VA_ARGS__))
typedef uint64_t sheaf__gpu_address;
typedef uint64_t sheaf__gpu_block; /* of memory that is to be mapped */
typedef struct sheaf__gpu_context_s *sheaf__gpu_context;
typedef struct sheaf__gpu_stream_s *sheaf__gpu_stream;
typedef struct sheaf__gpu_event_s *sheaf__gpu_event;
typedef struct sheaf__gpu_module_s *sheaf__gpu_module;
typedef struct sheaf__gpu_function_s *sheaf__gpu_function;

enum {
    SHEAF__GPU_INVALID = 1,
    SHEAF__GPU_NO_MEMORY = 2,
    SHEAF__GPU_OLD_DRIVER = 36,
    SHEAF__GPU_NONE = 100,
    SHEAF__GPU_NO_SUCH = 101,
    SHEAF__GPU_BAD_IMAGE = 200,
    SHEAF__GPU_NO_IMAGE = 209, /* no code for this GPU */
    SHEAF__GPU_ECC = 214,
    SHEAF__GPU_NEW_PTX = 222,
    SHEAF__GPU_NOT_FOUND = 500,
    SHEAF__GPU_NOT_READY = 600,
    SHEAF__GPU_ILLEGAL_ADDRESS = 700,
    SHEAF__GPU_IN_USE = 46,     /* by a process that has it alone */
    SHEAF__GPU_NO_FABRIC = 802, /* GPUs on NVSwitch without their manager */
    SHEAF__GPU_MISMATCH = 803,  /* of the driver's library and its kernel module */
    SHEAF__GPU_UNKNOWN = 999
};

/* Attributes of a GPU. */
enum {
    SHEAF__GPU_PROCESSORS = 16,
    SHEAF__GPU_MAJOR = 75,
    SHEAF__GPU_MINOR = 76,
    SHEAF__GPU_MOST_SHARED = 97, /* bytes of a block */
    SHEAF__GPU_CAN_MAP = 102,    /* memory into reserved addresses */
    SHEAF__GPU_CAN_RDMA = 110,   /* network adapters reach such memory, if it is made for them */
    /* of a pair */
    SHEAF__GPU_PEER_ATOMICS = 3, /* NVLink has them, PCI Express has not */
    /* of a kernel */
    SHEAF__GPU_DYNAMIC_SHARED = 8,
    /* flags */
    SHEAF__GPU_OWN_ORDER = 1,  /* a stream that does not wait for the default one */
    SHEAF__GPU_UNTIMED = 2,    /* an event */
    SHEAF__GPU_READ_WRITE = 3, /* access */
    /* of a tensor map: what is fetched to the cache at once, in bytes */
    SHEAF__GPU_MAP_BF16 = 9,
    SHEAF__GPU_MAP_SWIZZLE_128 = 3,
    SHEAF__GPU_MAP_FETCH_256 = 3,
};

typedef struct sheaf__gpu_place {
    int type; /* 1: a GPU */
    int number;
} sheaf__gpu_place;

typedef struct sheaf__gpu_memory { /* CUmemAllocationProp */
    int type;                      /* 1: pinned */
    int handles;                   /* 0: for this process; 1: as a file descriptor */
    sheaf__gpu_place place;
    void *unused;
    struct {
        unsigned char compression, rdma;
        unsigned short usage;
        unsigned char reserved[4];
    } flags;
} sheaf__gpu_memory;

typedef struct sheaf__gpu_access { /* CUmemAccessDesc */
    sheaf__gpu_place place;
    int flags;
} sheaf__gpu_access;

/* field of the table, name in the library, parameters */
/* clang-format off */
#define SHEAF__DRIVER_LIST(X)                                                                      \
    X(init, cuInit, (unsigned flags))                                                              \
    X(version, cuDriverGetVersion, (int *out))                                                     \
    X(error_name, cuGetErrorName, (sheaf__gpu_error e, const char **out))                          \
    X(error_text, cuGetErrorString, (sheaf__gpu_error e, const char **out))                        \
    X(count, cuDeviceGetCount, (int *out))                                                         \
    X(device, cuDeviceGet, (int *out, int number))                                                 \
    X(name, cuDeviceGetName, (char *out, int bytes, int device))                                   \
    X(pci_address, cuDeviceGetPCIBusId, (char *out, int bytes, int device))                        \
    X(memory_size, cuDeviceTotalMem_v2, (size_t *out, int device))                                 \
    X(attribute, cuDeviceGetAttribute, (int *out, int which, int device))                          \
    X(can_reach, cuDeviceCanAccessPeer, (int *out, int device, int peer))                          \
    X(peer_attribute, cuDeviceGetP2PAttribute, (int *out, int which, int device, int peer))        \
    X(retain, cuDevicePrimaryCtxRetain, (sheaf__gpu_context *out, int device))                     \
    X(give_back, cuDevicePrimaryCtxRelease_v2, (int device))                                       \
    X(set_context, cuCtxSetCurrent, (sheaf__gpu_context context))                                  \
    X(memory_left, cuMemGetInfo_v2, (size_t *left, size_t *all))                                   \
    X(granularity, cuMemGetAllocationGranularity,                                                  \
      (size_t *out, const sheaf__gpu_memory *of, int recommended))                                 \
    X(reserve, cuMemAddressReserve,                                                                \
      (sheaf__gpu_address *out, size_t bytes, size_t alignment, sheaf__gpu_address at,             \
       uint64_t flags))                                                                            \
    X(unreserve, cuMemAddressFree, (sheaf__gpu_address at, size_t bytes))                          \
    X(create, cuMemCreate,                                                                         \
      (sheaf__gpu_block *out, size_t bytes, const sheaf__gpu_memory *of, uint64_t flags))          \
    X(destroy, cuMemRelease, (sheaf__gpu_block block))                                             \
    X(map, cuMemMap,                                                                               \
      (sheaf__gpu_address at, size_t bytes, size_t offset, sheaf__gpu_block block, uint64_t flags))\
    X(unmap, cuMemUnmap, (sheaf__gpu_address at, size_t bytes))                                    \
    X(allow, cuMemSetAccess,                                                                       \
      (sheaf__gpu_address at, size_t bytes, const sheaf__gpu_access *access, size_t n))            \
    X(pin, cuMemAllocHost_v2, (void **out, size_t bytes))                                          \
    X(unpin, cuMemFreeHost, (void *block))                                                         \
    X(upload, cuMemcpyHtoDAsync_v2,                                                                \
      (sheaf__gpu_address to, const void *from, size_t bytes, sheaf__gpu_stream stream))           \
    X(download, cuMemcpyDtoHAsync_v2,                                                              \
      (void *to, sheaf__gpu_address from, size_t bytes, sheaf__gpu_stream stream))                 \
    X(copy, cuMemcpyDtoDAsync_v2,                                                                  \
      (sheaf__gpu_address to, sheaf__gpu_address from, size_t bytes, sheaf__gpu_stream stream))    \
    X(stream_new, cuStreamCreateWithPriority,                                                    \
      (sheaf__gpu_stream *out, unsigned flags, int priority))                                      \
    X(stream_free, cuStreamDestroy_v2, (sheaf__gpu_stream stream))                                 \
    X(stream_finish, cuStreamSynchronize, (sheaf__gpu_stream stream))                              \
    X(event_new, cuEventCreate, (sheaf__gpu_event *out, unsigned flags))                           \
    X(event_free, cuEventDestroy_v2, (sheaf__gpu_event event))                                     \
    X(event_record, cuEventRecord, (sheaf__gpu_event event, sheaf__gpu_stream stream))             \
    X(event_finish, cuEventSynchronize, (sheaf__gpu_event event))                                  \
    X(event_elapsed, cuEventElapsedTime,                                                           \
      (float *ms, sheaf__gpu_event from, sheaf__gpu_event to))                                     \
    X(module_load, cuModuleLoadData, (sheaf__gpu_module *out, const void *image))                  \
    X(module_free, cuModuleUnload, (sheaf__gpu_module module))                                     \
    X(find, cuModuleGetFunction,                                                                   \
      (sheaf__gpu_function *out, sheaf__gpu_module module, const char *name))                      \
    X(set_kernel, cuFuncSetAttribute, (sheaf__gpu_function kernel, int which, int value))          \
    X(launch, cuLaunchKernel,                                                                      \
      (sheaf__gpu_function kernel, unsigned x, unsigned y, unsigned z, unsigned threads_x,         \
       unsigned threads_y, unsigned threads_z, unsigned shared, sheaf__gpu_stream stream,          \
       void **arguments, void **extra))
/* Those that older drivers, or other libraries in their place, do not have: NULL. */
#define SHEAF__DRIVER_LATER(X)                                                                     \
    X(event_ready, cuEventQuery, (sheaf__gpu_event event))                                         \
    X(tensor_map, cuTensorMapEncodeTiled,                                                          \
      (struct sheaf__tensor_map *out, int type, uint32_t dimensions, sheaf__gpu_address base,      \
       const uint64_t *size, const uint64_t *stride, const uint32_t *box, const uint32_t *each,    \
       int interleave, int swizzle, int fetch, int fill))
/* clang-format on */

struct sheaf__tensor_map;

typedef struct sheaf__driver {
#define SHEAF__DRIVER_FIELD(field, symbol, parameters) sheaf__gpu_error(*field) parameters;
    SHEAF__DRIVER_LIST(SHEAF__DRIVER_FIELD)
    SHEAF__DRIVER_LATER(SHEAF__DRIVER_FIELD)
#undef SHEAF__DRIVER_FIELD
} sheaf__driver;

/* The driver of a test or of a build of -Dcuda=emulated; elsewhere there is no such function. */
const sheaf__driver *sheaf__stand_in_driver(void) __attribute__((weak));

/* sheaf__driver_stands_in - is that the driver? Not where the environment says SHEAF_GPU=real, so
 * that tests run on a GPU, too. */
bool sheaf__driver_stands_in(void);

/* Drivers from this version on (as 12040 is 12.4) have all that is used: virtual memory. */
#define SHEAF__DRIVER_LEAST 11020

/* sheaf__driver_get - the driver, initialised; loaded at the first call and never unloaded. Errors
 * (SHEAF_E_UNSUPPORTED) tell apart: no driver, one that is too old, one that does not start, none
 * of the GPUs visible. Thread-safe. */
sheaf_status *sheaf__driver_get(const sheaf__driver **out);

/* Its parts: the table, of a library's symbols; and starting. */
sheaf_status *sheaf__driver_fill(sheaf__driver *out, void *library,
                                 void *(*symbol)(void *library, const char *name));
sheaf_status *sheaf__driver_start(const sheaf__driver *driver);

/* sheaf__driver_error - "CUDA_ERROR_NAME (2): out of memory", of the driver's own texts. */
enum { SHEAF__DRIVER_TEXT = 600 };
const char *sheaf__driver_error(const sheaf__driver *driver, sheaf__gpu_error e,
                                char text[SHEAF__DRIVER_TEXT]);
/* sheaf__driver_failed - a status of SHEAF_E_UNSUPPORTED that says so. */
sheaf_status *sheaf__driver_failed(const sheaf__driver *driver, sheaf__gpu_error e,
                                   const char *what, ...) __attribute__((format(printf, 3, 4)));
