/* operations.c - the operations that `cuda` has kernels for: a row each, by number; their functions
 * stand in launch_*.c. What has no row is run by the processor, on copies. */
#include "ops/devices/cuda/launch.h"
#include "ops/devices/cuda/launch_elements.h"

sheaf__cuda_operation *const sheaf__cuda_operations[SHEAF__OPERATIONS] = {
    [SHEAF__OP_ADD] = sheaf__cuda_op_add,
    [SHEAF__OP_ACCUMULATE] = sheaf__cuda_op_accumulate,
    [SHEAF__OP_CONVERT] = sheaf__cuda_op_convert,
    [SHEAF__OP_ZERO] = sheaf__cuda_op_zero,
    [SHEAF__OP_REFRESH] = sheaf__cuda_op_refresh,
    [SHEAF__OP_WIDEN] = sheaf__cuda_op_widen,
    [SHEAF__OP_ADAMW] = sheaf__cuda_op_adamw,
    [SHEAF__OP_MOVE_ROWS] = sheaf__cuda_op_move_rows,
    [SHEAF__OP_COPY_BOXES] = sheaf__cuda_op_copy_boxes,
    [SHEAF__OP_TRANSPOSE] = sheaf__cuda_op_transpose,
    [SHEAF__OP_SWIGLU] = sheaf__cuda_op_swiglu,
    [SHEAF__OP_SWIGLU_BACK] = sheaf__cuda_op_swiglu_back,
    [SHEAF__OP_GELU] = sheaf__cuda_op_gelu,
    [SHEAF__OP_GELU_BACK] = sheaf__cuda_op_gelu_back,
    [SHEAF__OP_SCALED] = sheaf__cuda_op_scaled,
    [SHEAF__OP_ROPE] = sheaf__cuda_op_rope,
    [SHEAF__OP_ROPE_GRID] = sheaf__cuda_op_rope_grid,
    [SHEAF__OP_FINISH] = sheaf__cuda_op_finish,
    [SHEAF__OP_DROPOUT] = sheaf__cuda_op_dropout,
    [SHEAF__OP_NOISE] = sheaf__cuda_op_noise,
    [SHEAF__OP_ADD_ROWS] = sheaf__cuda_op_add_rows,
    [SHEAF__OP_ADD_POSITIONS] = sheaf__cuda_op_add_positions,
    [SHEAF__OP_SOFTCAP] = sheaf__cuda_op_softcap,
    [SHEAF__OP_SOFTCAP_BACK] = sheaf__cuda_op_softcap_back,
    [SHEAF__OP_ROW_LABELS] = sheaf__cuda_op_row_labels,
    [SHEAF__OP_ROW_FIRST] = sheaf__cuda_op_row_first,
    [SHEAF__OP_TABLE_ROWS] = sheaf__cuda_op_table_rows,
    [SHEAF__OP_FACTOR_COLUMNS] = sheaf__cuda_op_factor_columns,
};
