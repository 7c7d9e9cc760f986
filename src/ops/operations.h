/* operations.h - the numbers of the operations on whole tensors (docs/devices.md): products and
 * attention, then those of tensor/tensor.h in its order. */
#pragma once

/* clang-format off */
#define SHEAF__OPERATION_LIST(X)                                                                   \
    X(PRODUCTS) X(WEIGHT_LOAD) X(WEIGHT_REFRESH) X(WEIGHT_CODES) X(WEIGHT_WHOLE)                       \
    X(ATTENTION) X(ATTENTION_BACK)                                                                  \
    X(ADD) X(ADD_LIST) X(ACCUMULATE) X(CONVERT) X(CONVERT_LIST) X(ZERO) X(REFRESH) X(WIDEN)        \
    X(SHRINK) X(EXPAND)                                                                            \
    X(FINITE) X(SQUARES) X(ADAMW) X(ADAMW8)                                                                  \
    X(MOVE_ROWS) X(COLUMN_SUMS) X(COPY_BOXES) X(TRANSPOSE)                                         \
    X(RMSNORM) X(RMSNORM_BACK) X(NORM_WEIGHT) X(HEADS_WEIGHT) X(LAYERNORM) X(LAYERNORM_BACK)       \
    X(LAYERNORM_SUMS) X(LAYERNORM_STATISTICS)                                                      \
    X(SWIGLU) X(SWIGLU_BACK) X(GELU) X(GELU_BACK) X(SCALED) X(ROPE) X(ROPE_PAIRS)                   \
    X(FINISH) X(MAGNITUDES) X(DROPOUT) X(NOISE) X(CHOICE) X(CHOICE_BACK) X(SHARE) X(SHARE_BACK)                  \
    X(ADD_ROWS) X(SUM_COPIES) X(ADD_POSITIONS) X(ADD_POSITIONS_BACK)                               \
    X(SOFTCAP) X(SOFTCAP_BACK) X(ROW_MAX) X(ROW_SUMS) X(ROW_LABELS) X(ROW_FIRST) X(ROW_GRADIENT)   \
    X(LOSSES)                                                                                      \
    X(TABLE_ROWS) X(PACKED_ROWS) X(TABLE_GRADIENT) X(FACTOR_COLUMNS) X(FACTOR_GRADIENT)
/* clang-format on */

typedef enum sheaf__operation {
#define SHEAF__OPERATION_NAME(name) SHEAF__OP_##name,
    SHEAF__OPERATION_LIST(SHEAF__OPERATION_NAME)
#undef SHEAF__OPERATION_NAME
        SHEAF__OPERATIONS
} sheaf__operation;
