/* launch_elements.h - launches of kernels that go over elements and rows (kernels/vectors.h). */
#pragma once

#include "ops/devices/cuda/launch.h"

/* Threads for n elements where the narrowest operand is of `dtype`: a thread has 16 bytes of it. */
static inline int64_t sheaf__cuda_threads(int64_t n, sheaf_dtype dtype)
{
    const int64_t per = dtype == SHEAF_F32 ? 4 : 8;
    return (n + per - 1) / per;
}

/* The narrower of two types. */
static inline sheaf_dtype sheaf__cuda_narrow(sheaf_dtype a, sheaf_dtype b)
{
    return a == SHEAF_F32 ? b : a;
}

/* Operations over elements, */
sheaf__cuda_operation sheaf__cuda_op_add, sheaf__cuda_op_add_list, sheaf__cuda_op_accumulate,
    sheaf__cuda_op_convert, sheaf__cuda_op_convert_list, sheaf__cuda_op_zero,
    sheaf__cuda_op_refresh, sheaf__cuda_op_widen, sheaf__cuda_op_swiglu, sheaf__cuda_op_swiglu_back,
    sheaf__cuda_op_gelu, sheaf__cuda_op_gelu_back, sheaf__cuda_op_scaled, sheaf__cuda_op_adamw,
    sheaf__cuda_op_adamw8, sheaf__cuda_op_shrink, sheaf__cuda_op_expand;
/* over rows, */
sheaf__cuda_operation sheaf__cuda_op_move_rows, sheaf__cuda_op_copy_boxes, sheaf__cuda_op_transpose,
    sheaf__cuda_op_rope, sheaf__cuda_op_rope_pairs, sheaf__cuda_op_finish, sheaf__cuda_op_dropout,
    sheaf__cuda_op_noise, sheaf__cuda_op_table_rows, sheaf__cuda_op_factor_columns;
/* on logits and pictures. */
sheaf__cuda_operation sheaf__cuda_op_softcap, sheaf__cuda_op_softcap_back,
    sheaf__cuda_op_row_labels, sheaf__cuda_op_row_first, sheaf__cuda_op_add_rows,
    sheaf__cuda_op_add_positions;
