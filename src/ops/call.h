/* call.h - one operation on whole tensors, as a device gets it.
 *
 * An operation has a number, a struct of arguments whose pointers are addresses of the device's
 * memory, and a list that says of each of these pointers how many bytes behind it are read or
 * written. A device that has a kernel of its own for the number runs that. The processor runs the
 * operation's body, divided over its threads; and any other device runs the body too, by way of
 * copies: operands are downloaded, the pointers in the arguments point to the copies meanwhile, and
 * what was written is uploaded (docs/devices.md). */
#pragma once

#include "base/base.h"
#include "ops/kernels.h"
#include "ops/operations.h"

struct sheaf__device;

/* One pointer among the arguments. */
typedef struct sheaf__operand {
    void *field;  /* place of the pointer in the arguments; one that is NULL is no operand */
    size_t bytes; /* from where it points, over all rows and the gaps between them */
    bool written; /* else only read */
} sheaf__operand;

#define SHEAF__READS(pointer, n) ((sheaf__operand){ &(pointer), (size_t)(n), false })
#define SHEAF__WRITES(pointer, n) ((sheaf__operand){ &(pointer), (size_t)(n), true })
/* An array of them, and how many it has. */
#define SHEAF__OPERANDS(list) (list), sizeof(list) / sizeof *(list)

/* Bytes of a matrix of `rows` rows, `ld` elements apart, of which `cols` are meant. */
static inline size_t sheaf__extent(int64_t rows, int64_t ld, int64_t cols, sheaf_dtype dtype)
{
    return rows == 0 || cols == 0 ? 0 : (size_t)((rows - 1) * ld + cols) * sheaf_dtype_bytes(dtype);
}

/* Rows, or whatever the operation divides, [begin, end) of it. */
typedef void sheaf__part_fn(const sheaf__kernels *kernels, const void *arguments, int64_t begin,
                            int64_t end);

typedef struct sheaf__call {
    sheaf__operation operation;
    void *arguments; /* of the type that the operation has */
    const sheaf__operand *operand;
    int operands;
    /* The processor's way: parts of `rows`, `grain` at a time; or all at once, which divides it
     * itself. */
    sheaf__part_fn *part;
    int64_t rows, grain;
    void (*whole)(struct sheaf__device *device, void *arguments);
} sheaf__call;

/* sheaf__run - by the device's own kernel or the processor's. What a device cannot do it remembers
 * as its failure (sheaf__device_check); operations after it do nothing. */
void sheaf__run(struct sheaf__device *device, const sheaf__call *call);
/* sheaf__run_here - by the processor, on the pointers as they are. */
void sheaf__run_here(struct sheaf__device *device, const sheaf__call *call);

/* Address of an element in an array of `dtype`. */
static inline char *sheaf__at(const void *data, int64_t element, sheaf_dtype dtype)
{
    return (char *)data + element * (int64_t)sheaf_dtype_bytes(dtype);
}
