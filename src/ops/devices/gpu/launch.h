/* launch.h - what operations on GPUs are written with: each takes the arguments of the call
 * (call.h) and launches kernels (kernel.h). */
#pragma once

#include "ops/call.h"
#include "ops/device.h"

/* One GPU as one rank has it: a stream, on which all it is told happens in order. */
typedef struct sheaf__gpu sheaf__gpu;

/* One launch. The struct of arguments and the name are copied. */
typedef struct sheaf__launch {
    const char *kernel;
    int64_t blocks[3]; /* a 0 behind the first is a 1; none at all: nothing is launched */
    int threads;
    size_t shared; /* bytes of dynamic shared memory, SHEAF__GPU_SHARED at most on any GPU */
    const void *arguments;
    size_t bytes;
    bool exchange; /* beside operations (peers.c) */
} sheaf__launch;

/* Shared memory of a block on every GPU from sm_80 on: those of sm_86 and sm_89 have no more. */
#define SHEAF__GPU_SHARED ((size_t)99 << 10)

/* The kernel of a type among those that KERNELS() makes. */
#define SHEAF__TYPED(name, dtype)                                                                  \
    ((dtype) == SHEAF_F32 ? #name "_f32" : (dtype) == SHEAF_BF16 ? #name "_bf16" : #name "_f16")

/* sheaf__gpu_launch - queues it. What fails is the device's failure (sheaf__device_fail). */
void sheaf__gpu_launch(sheaf__gpu *gpu, const sheaf__launch *launch);
/* A launch of x blocks times y, with `per` threads and `room` bytes of shared memory each. */
#define SHEAF__LAUNCHED(name, x, y, per, room, a)                                                  \
    (&(sheaf__launch){ .kernel = (name),                                                           \
                       .blocks = { x, y },                                                         \
                       .threads = (per),                                                           \
                       .shared = (room),                                                           \
                       .arguments = (a),                                                           \
                       .bytes = sizeof *(a) })
#define SHEAF__LAUNCH(gpu, ...) sheaf__gpu_launch(gpu, SHEAF__LAUNCHED(__VA_ARGS__))
/* The same for n items, one a thread, 256 threads a block. */
#define SHEAF__EACH(gpu, name, n, a) SHEAF__LAUNCH(gpu, name, ((n) + 255) / 256, 1, 256, 0, a)
/* sheaf__gpu_stage - an address of the GPU with a copy of `bytes` bytes of the host's, which the
 * launches after it may read until the next operation. NULL: it failed, and is the device's
 * failure. */
void *sheaf__gpu_stage(sheaf__gpu *gpu, const void *from, size_t bytes);
/* sheaf__gpu_scratch - SHEAF__GPU_SCRATCH bytes of the GPU's memory for what an operation's
 * launches leave each other; of the device's memory, and planned. */
#define SHEAF__GPU_SCRATCH ((size_t)64 << 20)
void *sheaf__gpu_scratch(sheaf__gpu *gpu);
/* sheaf__gpu_panels - bytes at its end for panels of quantised weights, while there are some. */
size_t sheaf__gpu_panels(const sheaf__gpu *gpu);
/* sheaf__gpu_kept - bytes at its beginning for what attention's backward pass keeps of queries. */
size_t sheaf__gpu_kept(const sheaf__gpu *gpu);
/* sheaf__gpu_read - bytes of the GPU's memory for the host, after all launches before it: waits.
 * For the few operations that give the host a number. */
void sheaf__gpu_read(sheaf__gpu *gpu, void *to, const void *from, size_t bytes);

/* The order of sums of its device; and whether its tensor cores compute an order: mma8 of sm_80 to
 * sm_89, mma16 later. */
sheaf_sums sheaf__gpu_sums(const sheaf__gpu *gpu);
bool sheaf__gpu_computes(const sheaf__gpu *gpu, sheaf_sums sums);
/* Multiprocessors: how many blocks run side by side. */
int sheaf__gpu_processors(const sheaf__gpu *gpu);

/* Whether it has the copy engine and wgmma: compute capability 9.0, with a driver that makes maps,
 * and products as they should be. */
bool sheaf__cuda_has_maps(const sheaf__gpu *gpu);

/* Threads for n elements where the narrowest operand is of `dtype`: a thread has 16 bytes of it
 * (kernels/vectors.h). */
static inline int64_t sheaf__gpu_threads(int64_t n, sheaf_dtype dtype)
{
    const int64_t per = dtype == SHEAF_F32 ? 4 : 8;
    return (n + per - 1) / per;
}

/* The narrower of two types. */
static inline sheaf_dtype sheaf__gpu_narrow(sheaf_dtype a, sheaf_dtype b)
{
    return a == SHEAF_F32 ? b : a;
}

/* An operation; false: it has no kernel for these arguments, and launched nothing. */
typedef bool sheaf__gpu_operation(sheaf__gpu *gpu, const sheaf__call *call);

/* Of all operations; NULL: none. */
extern sheaf__gpu_operation *const sheaf__gpu_operations[SHEAF__OPERATIONS];

/* Those that have a function of their own, in launch_*.c; others are rows of operations.c. */
/* clang-format off */
#define SHEAF__GPU_FUNCTIONS(X)                                                                   \
    X(PRODUCTS, products) X(WEIGHT_REFRESH, weight_refresh) X(PACKED_ROWS, packed_rows)            \
    X(ATTENTION, attention) X(ATTENTION_BACK, attention_back)                                      \
    X(WIDEN, widen) X(ADAMW, adamw) X(ADAMW8, adamw8)                \
    X(COPY_BOXES, copy_boxes) X(COLUMN_SUMS, column_sums) X(NORM_WEIGHT, norm_weight)              \
    X(HEADS_WEIGHT, heads_weight) X(RMSNORM, rmsnorm) X(RMSNORM_BACK, rmsnorm_back)                \
    X(LAYERNORM, layernorm) X(LAYERNORM_BACK, layernorm_back) X(LAYERNORM_SUMS, layernorm_sums)    \
    X(ROW_SUMS, row_sums) X(LOSSES, losses) X(SQUARES, squares) X(FINITE, is_finite)               \
    X(SHARE_BACK, share_back)                        \
    X(TABLE_GRADIENT, table_gradient) X(FACTOR_GRADIENT, factor_gradient)
/* clang-format on */
#define SHEAF__GPU_DECLARED(number, name) sheaf__gpu_operation sheaf__gpu_op_##name;
SHEAF__GPU_FUNCTIONS(SHEAF__GPU_DECLARED)
#undef SHEAF__GPU_DECLARED
