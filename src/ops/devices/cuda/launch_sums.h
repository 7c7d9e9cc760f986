/* launch_sums.h - launches of kernels whose operations add up: norms, losses, experts, gradients of
 * tables. */
#pragma once

#include "ops/devices/cuda/kernels/lanes_shape.h"
#include "ops/devices/cuda/launch.h"

/* Norms, */
sheaf__cuda_operation sheaf__cuda_op_rmsnorm, sheaf__cuda_op_rmsnorm_back, sheaf__cuda_op_layernorm,
    sheaf__cuda_op_layernorm_back, sheaf__cuda_op_layernorm_sums,
    sheaf__cuda_op_layernorm_statistics;
/* sums of columns, */
sheaf__cuda_operation sheaf__cuda_op_column_sums, sheaf__cuda_op_norm_weight,
    sheaf__cuda_op_heads_weight, sheaf__cuda_op_sum_copies;
/* of rows, */
sheaf__cuda_operation sheaf__cuda_op_row_max, sheaf__cuda_op_row_sums, sheaf__cuda_op_row_gradient,
    sheaf__cuda_op_losses, sheaf__cuda_op_squares, sheaf__cuda_op_is_finite;
/* of experts, and gradients of tables. */
sheaf__cuda_operation sheaf__cuda_op_choice, sheaf__cuda_op_choice_back, sheaf__cuda_op_share,
    sheaf__cuda_op_share_back, sheaf__cuda_op_table_gradient, sheaf__cuda_op_factor_gradient,
    sheaf__cuda_op_add_positions_back;
