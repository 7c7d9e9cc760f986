/* operations.c - the operations that `cuda` has kernels for: a row each, by number; their functions
 * stand in launch_*.c. What has no row is run by the processor, on copies. */
#include "ops/devices/cuda/launch.h"

sheaf__cuda_operation *const sheaf__cuda_operations[SHEAF__OPERATIONS] = {
    [SHEAF__OP_ZERO] = NULL,
};
