/* launch_weights.h - launches of operations on packed weights (ops/matmul/matmul_weight.h). Those
 * of `cuda` lie row by row, and are loaded by transfers. */
#pragma once

#include "ops/devices/cuda/launch.h"

sheaf__cuda_operation sheaf__cuda_op_weight_refresh, sheaf__cuda_op_packed_rows;
