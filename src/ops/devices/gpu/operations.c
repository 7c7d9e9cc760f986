/* operations.c - the operations that `cuda` has kernels for. One that launches one kernel with its
 * own arguments is a row here; the functions of others stand in launch_*.c. What is in neither is
 * run by the processor, on copies. */
#include "ops/devices/gpu/kernels/experts.h"
#include "ops/devices/gpu/kernels/loss.h"
#include "ops/devices/gpu/launch.h"
#include "ops/shrink/shrink.h"
#include "ops/tensor/activation.h"
#include "ops/tensor/elements.h"
#include "ops/tensor/images.h"
#include "ops/tensor/linear.h"
#include "ops/tensor/norm.h"
#include "ops/tensor/rope.h"
#include "ops/tensor/rows.h"
#include "ops/tensor/shrink.h"
#include "ops/tensor/table.h"

/* The kernel of the type that a field of the arguments says. */
#define OF(kernel, field) SHEAF__TYPED(kernel, a->field)
/* Blocks in x and y, threads of a block, bytes of shared memory: n threads; */
#define EACH(n) ((n) + 255) / 256, 1, 256, 0
/* those for n elements of a type, or of the narrower of two; */
#define ELEMENTS(n, type) EACH(sheaf__gpu_threads(n, type))
#define NARROW(n, type, other) ELEMENTS(n, sheaf__gpu_narrow(type, other))
/* the same in each of some rows; */
#define IN_ROWS(rows, n, type) EACH((rows)*sheaf__gpu_threads(n, type))
#define NARROW_ROWS(rows, n, type, other) IN_ROWS(rows, n, sheaf__gpu_narrow(type, other))
/* a block a row, a thread eight columns at a time; */
#define DRAWN                                                                                      \
    a->cols > 0 ? a->rows : 0, 1, a->cols > 7 * 256 ? 256 : 32 * (int)((a->cols + 255) / 256),     \
        sizeof(uint64_t)
/* a block a row, or a list's entry, and 256 columns; */
#define ACROSS(rows, cols) (cols) > 0 ? (rows) : 0, ((cols) + 255) / 256, 256, 0
#define LISTED(n, count) ((n) + 255) / 256, count, 256, 0
/* a block some rows of choices; */
#define CHOICES                                                                                    \
    (a->rows + choice_rows(a->experts) - 1) / choice_rows(a->experts), 1, CHOICE_THREADS,          \
        choice_rows(a->experts) * (choice_pitch(a->experts) + 1) * sizeof(float)
/* a block a square of a matrix. */
enum { SIDE = 32 };
#define TILES(rows, cols)                                                                          \
    ((rows) + SIDE - 1) / SIDE *(((cols) + SIDE - 1) / SIDE), 1, 256,                              \
        SIDE *(SIDE + 1) * sizeof(float)

/* operation, arguments (a), kernel, blocks and threads */
/* clang-format off */
#define ROWS(X)                                                                                    \
    X(ADD, sheaf__pair, "accumulate_f32", ELEMENTS(a->n, SHEAF_F32))                               \
    X(ADD_LIST, sheaf__additions, "add_list", ELEMENTS(a->n, SHEAF_F32))                           \
    X(ACCUMULATE, sheaf__pair, OF(accumulate, to), ELEMENTS(a->n, a->to))                          \
    X(CONVERT, sheaf__pair, OF(convert, to),                                                       \
      NARROW(a->to == a->from && a->dst == a->src ? 0 : a->n, a->to, a->from))                     \
    X(CONVERT_LIST, sheaf__conversions, OF(convert_list, to),                                      \
      LISTED(sheaf__gpu_threads(longest(a), sheaf__gpu_narrow(a->to, a->from)), a->count))         \
    X(ZERO, sheaf__pair, OF(zero, to), ELEMENTS(a->n, a->to))                                      \
    X(REFRESH, sheaf__pair, OF(refresh, from), ELEMENTS(a->n, SHEAF_F32))                          \
    X(SHRINK, sheaf__shrunk, OF(shrink, dtype), EACH(a->rows * a->blocks * SHEAF__SHRINK_BLOCK))   \
    X(EXPAND, sheaf__shrunk, OF(expand, dtype), EACH(a->rows * a->blocks * SHEAF__SHRINK_BLOCK))   \
    X(MOVE_ROWS, sheaf__move, OF(move_rows, dtype), IN_ROWS(a->rows, a->cols, a->dtype))           \
    X(TRANSPOSE, sheaf__transposed, "transpose", TILES(a->rows, a->cols))                          \
    X(LAYERNORM_STATISTICS, sheaf__layer_call, "norm_statistics", EACH(a->of.rows))                \
    X(SWIGLU, sheaf__activation, OF(swiglu, dtype), ELEMENTS(a->n, a->dtype))                      \
    X(SWIGLU_BACK, sheaf__activation, OF(swiglu_back, dtype), ELEMENTS(a->n, a->dtype))            \
    X(GELU, sheaf__activation, OF(gelu, dtype), ELEMENTS(a->n, a->dtype))                          \
    X(GELU_BACK, sheaf__activation, OF(gelu_back, dtype), ELEMENTS(a->n, a->dtype))                \
    X(SCALED, sheaf__activation, OF(scaled, dtype), ELEMENTS(a->n, a->dtype))                      \
    X(ROPE, sheaf__rope, OF(rope, dtype), IN_ROWS(a->rows * a->heads, a->rot / 2, a->dtype))       \
    X(ROPE_PAIRS, sheaf__rope, OF(rope_pairs, dtype),                                              \
      IN_ROWS(a->rows * a->heads, a->rot, a->dtype))                                               \
    X(FINISH, sheaf__finishing, OF(finish, dtype), IN_ROWS(a->rows, a->cols, a->dtype))            \
    X(MAGNITUDES, sheaf__magnitudes, "magnitudes", EACH(a->n))                                     \
    X(DROPOUT, sheaf__dropping, OF(dropout, dtype), DRAWN)                                         \
    X(NOISE, sheaf__noisy, OF(noise, dtype), DRAWN)                                                \
    X(CHOICE, sheaf__choice, OF(choice, dtype), CHOICES)                                           \
    X(CHOICE_BACK, sheaf__choice, OF(choice_back, dtype), CHOICES)                                 \
    X(SHARE, sheaf__share, OF(share, dtype), IN_ROWS(a->rows, a->cols, a->dtype))                  \
    X(ADD_ROWS, sheaf__repeats, OF(add_rows, dtype), IN_ROWS(a->copies, a->n, a->dtype))           \
    X(SUM_COPIES, sheaf__repeats, OF(sum_copies, dtype), ELEMENTS(a->n, a->dtype))                 \
    X(ADD_POSITIONS, sheaf__placed, OF(add_positions, dtype),                                      \
      IN_ROWS(a->rows, a->width, a->dtype))                                                        \
    X(ADD_POSITIONS_BACK, sheaf__placed, OF(add_positions_back, dtype),                            \
      ACROSS(a->of.rows * a->of.cols + a->of.first, a->width))                                     \
    X(SOFTCAP, sheaf__capped, OF(softcap, dtype), ELEMENTS(a->rows * a->cols, SHEAF_F32))          \
    X(SOFTCAP_BACK, sheaf__capped, OF(softcap_back, dtype),                                        \
      ELEMENTS(a->rows * a->cols, a->dtype))                                                       \
    X(ROW_MAX, sheaf__of_rows, "row_max", a->l.rows, 1, ROW_MAX_THREADS,                           \
      ROW_MAX_THREADS / 32 * sizeof(int32_t))                                                      \
    X(ROW_LABELS, sheaf__of_rows, "row_labels", EACH(a->l.rows))                                   \
    X(ROW_FIRST, sheaf__of_rows, "row_first", a->l.rows, 1, 256, 256 / 32 * sizeof(int32_t))       \
    X(ROW_GRADIENT, sheaf__gradient_call, OF(row_gradient, g.dtype),                               \
      a->l.cols > 0 ? a->l.rows : 0, (a->l.cols + GRADIENT_COLUMNS - 1) / GRADIENT_COLUMNS,        \
      GRADIENT_THREADS, 0)                                                                         \
    X(TABLE_ROWS, sheaf__lookup, OF(table_rows, dtype),                                            \
      NARROW_ROWS(a->tokens.n, a->cols, a->dtype, a->from))                                        \
    X(FACTOR_COLUMNS, sheaf__lookup, OF(factor_columns, dtype), EACH(a->tokens.n * a->cols))
/* clang-format on */

/* Numbers of the longest of a list's conversions. */
static int64_t longest(const sheaf__conversions *c)
{
    int64_t most = 0;
    for (int32_t i = 0; i < c->count; i++)
        most = c->each[i].n > most ? c->each[i].n : most;
    return most;
}

/* A kernel that needs more shared memory than a block has is left to the processor. */
static bool launch(sheaf__gpu *gpu, const sheaf__launch *l)
{
    if (l->shared > SHEAF__GPU_SHARED)
        return false;
    sheaf__gpu_launch(gpu, l);
    return true;
}

#define FUNCTION(number, type, kernel, ...)                                                        \
    static bool run_##number(sheaf__gpu *gpu, const sheaf__call *call)                             \
    {                                                                                              \
        const type *a = call->arguments;                                                           \
        return launch(gpu, SHEAF__LAUNCHED(kernel, __VA_ARGS__, a));                               \
    }
ROWS(FUNCTION)

#define RUN(number, ...) [SHEAF__OP_##number] = run_##number,
#define OWN(number, name) [SHEAF__OP_##number] = sheaf__gpu_op_##name,
sheaf__gpu_operation *const sheaf__gpu_operations[SHEAF__OPERATIONS] = { ROWS(
    RUN) SHEAF__GPU_FUNCTIONS(OWN) };
