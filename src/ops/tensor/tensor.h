/* tensor.h - operations on whole tensors: what the tape's ops are made of.
 *
 * Every pointer is an address of the device's memory, unless it says otherwise; only what runs
 * behind call.h reads or writes there. Each operation has the bits of a plain loop over the kernels
 * of kernels.h, whatever the device and its threads. Shapes are in elements; `ld` is the distance
 * of two rows. Operands that are not listed as allowed to coincide must not overlap. */
#pragma once

#include "ops/device.h"
#include "ops/tensor/activation.h"
#include "ops/tensor/elements.h"
#include "ops/tensor/experts.h"
#include "ops/tensor/images.h"
#include "ops/tensor/linear.h"
#include "ops/tensor/loss.h"
#include "ops/tensor/norm.h"
#include "ops/tensor/rope.h"
#include "ops/tensor/rows.h"
#include "ops/tensor/shrink.h"
#include "ops/tensor/table.h"
#include "ops/tensor/trained.h"

/* ---- n elements ---- */

/* dst += src, float32 */
void sheaf__op_add(sheaf__device *device, float *dst, const float *src, int64_t n);
/* The same for each of a list of up to SHEAF__ADDITIONS, in its order: what one adds to may be what
 * another adds, as in a tree of sums. */
void sheaf__op_add_list(sheaf__device *device, const sheaf__addition *list, int32_t count,
                        int64_t n);
/* dst = round(dst + src), both of `dtype` */
void sheaf__op_accumulate(sheaf__device *device, void *dst, const void *src, int64_t n,
                          sheaf_dtype dtype);
/* dst = src, rounded; dst may be src where the types are the same */
void sheaf__op_convert(sheaf__device *device, void *dst, sheaf_dtype to, const void *src,
                       sheaf_dtype from, int64_t n);
/* The same for each of a list, which are many and small: in as few passes as the device needs. */
void sheaf__op_convert_list(sheaf__device *device, sheaf_dtype to, sheaf_dtype from,
                            const sheaf__conversion *list, int64_t count);
/* x = 0 */
void sheaf__op_zero(sheaf__device *device, void *x, int64_t n, sheaf_dtype dtype);
/* dst = src, float32, rounded to `dtype`; one: plus 1. dst may be src. */
void sheaf__op_refresh(sheaf__device *device, float *dst, const float *src, int64_t n, bool one,
                       sheaf_dtype dtype);
/* n numbers of `dtype`, of 2 bytes, at the end of an array of n floats become that array */
void sheaf__op_widen(sheaf__device *device, float *wide, int64_t n, sheaf_dtype dtype);

/* ---- a matrix in 8 bits ---- */

/* sheaf__shrunk_init - all but the addresses, of rows whose columns are `parts` parts, or one (0);
 * bytes of codes, behind which are the scales. */
size_t sheaf__shrunk_init(sheaf__shrunk *out, int64_t rows, int64_t cols, const int64_t *part,
                          int parts, sheaf_dtype dtype);
/* Codes and scales of x; and x of them, rounded. */
void sheaf__op_shrink(sheaf__device *device, const sheaf__shrunk *s);
void sheaf__op_expand(sheaf__device *device, const sheaf__shrunk *s);

/* ---- numbers for the host ---- */

/* sheaf__op_is_finite - are all of n elements, rounded to `to`? x NULL: yes. On dry, and after a
 * failure of the device, yes, too. */
bool sheaf__op_is_finite(sheaf__device *device, const void *x, sheaf_dtype from, int64_t n,
                         sheaf_dtype to);
/* sheaf__is_finite, sheaf__is_finite_as - the same of the host's memory. */
bool sheaf__is_finite(const void *x, int64_t n, sheaf_dtype dtype);
bool sheaf__is_finite_as(const sheaf__kernels *kernels, const void *x, sheaf_dtype from, int64_t n,
                         sheaf_dtype to);

/* Of each of `count` arrays the sum of squares (kernels.h); 0 on dry. The structs are the host's.
 */
void sheaf__op_squares(sheaf__device *device, sheaf__squares *of, int64_t count);

/* ---- what is trained ---- */

/* One step, see kernels.h. */
void sheaf__op_adamw(sheaf__device *device, sheaf__update of);
void sheaf__op_adamw8(sheaf__device *device, sheaf__update8 of);

/* ---- rows ---- */

/* For each row: to = from, zeros or `row`, or (add) to = round(to + from). */
void sheaf__op_move_rows(sheaf__device *device, sheaf__move how);
/* grad[cols] += column sums of dy, rows ascending in blocks of 256 (kernels.h) */
void sheaf__op_column_sums(sheaf__device *device, float *grad, const void *dy, int64_t ld,
                           int64_t rows, int64_t cols, sheaf_dtype dtype);
/* One box: [rows, cols] out of one matrix into another. */
void sheaf__op_copy_box(sheaf__device *device, void *dst, int64_t ld_dst, const void *src,
                        int64_t ld_src, int64_t rows, int64_t cols, sheaf_dtype dtype);
void sheaf__op_copy_boxes(sheaf__device *device, sheaf__boxes boxes);
/* to[cols, rows] = from[rows, cols], float32 */
void sheaf__op_transpose(sheaf__device *device, float *to, const float *from, int64_t rows,
                         int64_t cols);

/* ---- norms ---- */

/* y and rstd */
void sheaf__op_rmsnorm(sheaf__device *device, const sheaf__rmsnorm *norm);
/* dx, or (add) adds to it; NULL: not wanted. again: then y takes the place of its gradient, and
 * rstd is made again. */
void sheaf__op_rmsnorm_back(sheaf__device *device, const sheaf__rmsnorm *norm, void *dx, bool add,
                            bool again);

void sheaf__op_norm_weight(sheaf__device *device, sheaf__norm_weight how);

void sheaf__op_heads_weight(sheaf__device *device, sheaf__heads_weight how);

/* y, and mean and rstd, which are given if the width is cut. */
void sheaf__op_layernorm(sheaf__device *device, const sheaf__layer_norm *norm);
/* dx, or (add) adds to it. total: of a width that is cut the totals of SUMS_BACK, [2][rows], which
 * become means; else NULL. */
void sheaf__op_layernorm_back(sheaf__device *device, const sheaf__layer_norm *norm, void *dx,
                              bool add, float *total);
/* part[slice][rows], of BACK [slice][2][rows]; those of slices without columns are left alone. */
void sheaf__op_layernorm_sums(sheaf__device *device, const sheaf__layer_norm *norm, float *part,
                              sheaf__norm_sums which);
/* mean from the totals of X (plain: NULL), or rstd from those of SQUARES. */
void sheaf__op_layernorm_statistics(sheaf__device *device, const sheaf__layer_norm *norm,
                                    const float *total, sheaf__norm_sums which);

/* ---- activations, n elements; formulas in kernels.h ---- */

/* h = round(silu(gate) * up), or with `gelu` round(gelu(gate) * up) */
void sheaf__op_swiglu(sheaf__device *device, void *h, const void *gate, const void *up, int64_t n,
                      bool gelu, sheaf_dtype dtype);
/* h again, where it is not NULL; dgate may be gate, dup may be up, h may be dh */
void sheaf__op_swiglu_back(sheaf__device *device, void *dgate, void *dup, void *h, const void *dh,
                           const void *gate, const void *up, int64_t n, bool gelu,
                           sheaf_dtype dtype);
/* y = gelu(x), by erf or by tanh. y may be x. */
void sheaf__op_gelu(sheaf__device *device, void *y, const void *x, int64_t n, bool tanh,
                    sheaf_dtype dtype);
/* dx, or (add) adds to it; without, dx may be x. */
void sheaf__op_gelu_back(sheaf__device *device, void *dx, const void *dy, const void *x, int64_t n,
                         bool add, bool tanh, sheaf_dtype dtype);
/* y = round(x * by), or (divide) round(x / by); h not NULL: y = round(h + that); add: y = round(y +
 * x * by), rounded once. y may be x. */
void sheaf__op_scaled(sheaf__device *device, void *y, const void *x, const void *h, float by,
                      int64_t n, bool divide, bool add, sheaf_dtype dtype);

/* ---- rotary embedding, in place ---- */

/* Halves (j, j + rot / 2) of each head. */
void sheaf__op_rope(sheaf__device *device, sheaf__rope how);
/* Pairs (2 i, 2 i + 1). Without positions rows are those of images, each a row that is left alone,
 * then one for each position. */
void sheaf__op_rope_pairs(sheaf__device *device, sheaf__rope how);

/* ---- linear layers ---- */

/* y = round(round(by * sum + bias) + residual), dense; by [cols], bias [cols] and residual may be
 * NULL. y may be sum where both are float32. */
void sheaf__op_finish(sheaf__device *device, void *y, const float *sum, const float *by,
                      const float *bias, const void *residual, int64_t rows, int64_t cols,
                      sheaf_dtype dtype);
/* y = round(scale * sum), both of row stride ld */
void sheaf__op_scale_round(sheaf__device *device, void *y, const float *sum, float scale,
                           int64_t rows, int64_t ld, int64_t cols, sheaf_dtype dtype);
/* The factors of DoRA's outputs. */
void sheaf__op_magnitudes(sheaf__device *device, sheaf__magnitudes of);
/* Dropout and NEFTune's noise (kernels.h), dense; pointers in `how` are the device's, too. y may be
 * x; noise is in place. */
void sheaf__op_dropout(sheaf__device *device, void *y, const void *x, int64_t rows, int64_t cols,
                       const sheaf__dropout *how, sheaf_dtype dtype);
void sheaf__op_noise(sheaf__device *device, void *x, int64_t rows, int64_t cols,
                     const sheaf__noise *how, sheaf_dtype dtype);

/* ---- experts ---- */

/* weights [rows, experts] of logits of `dtype`: p = softmax(logits) in float32; of the top_k
 * largest (of equal ones the first) p / their sum, the largest added first, or with of_all p; 0 of
 * the others */
void sheaf__op_choice(sheaf__device *device, sheaf__choice choice);
/* dlogits = round(v * (dw - the sum of w * dw over the row) + p * (add - the sum of p * add)), v =
 * w or with of_all p */
void sheaf__op_choice_back(sheaf__device *device, sheaf__choice choice);

/* sum = round(sum + round(w * y)), in rows with w != 0 */
void sheaf__op_share(sheaf__device *device, sheaf__share share);
/* dy = round(w * ds), dw = the sum of y * ds over the row, in double and ascending; both 0 where w
 * is. */
void sheaf__op_share_back(sheaf__device *device, sheaf__share share);

/* ---- pictures ---- */

/* x = round(x + rows), the n numbers of `rows` `times` times, one after the other */
void sheaf__op_add_rows(sheaf__device *device, void *x, const float *rows, int64_t n, int64_t times,
                        sheaf_dtype dtype);
/* dx = round(the sum of n elements' copies in dy, as column sums); add: of dx, then that sum */
void sheaf__op_sum_copies(sheaf__device *device, void *dx, const void *dy, int64_t n,
                          int64_t copies, bool add, sheaf_dtype dtype);

/* y = round(x + round(position)), [rows, width]; class rows: + the table's first, if it has one;
 * rows behind a picture's own: x. y may be x. */
void sheaf__op_add_positions(sheaf__device *device, void *y, const void *x, sheaf__positions of,
                             int64_t rows, int64_t width, sheaf_dtype dtype);
/* grad of the table += weight * dy for each row that a position is made of: rows of dy ascending */
void sheaf__op_add_positions_back(sheaf__device *device, float *grad, const void *dy,
                                  sheaf__positions of, int64_t rows, int64_t width,
                                  sheaf_dtype dtype);

/* ---- logits and the loss (docs/contract.md, section 1.6) ---- */

/* x = round(cap * tanh(x / cap)), infinity becomes NaN; and the gradient from the capped y */
void sheaf__op_softcap(sheaf__device *device, float *x, float cap, int64_t rows, int64_t cols,
                       sheaf_dtype dtype);
void sheaf__op_softcap_back(sheaf__device *device, void *dx, const float *y, float cap,
                            int64_t rows, int64_t cols, sheaf_dtype dtype);
/* max[rows], of no columns -inf; what is compared is the bits (kernels.h) */
void sheaf__op_row_max(sheaf__device *device, float *max, sheaf__logits logits);

void sheaf__op_row_sums(sheaf__device *device, const sheaf__row_sums *how, const float *max,
                        sheaf__logits logits);
/* logit[rows] of the labels; 0 where the column is not here */
void sheaf__op_row_labels(sheaf__device *device, float *logit, const int32_t *label,
                          sheaf__logits logits);
/* first[rows]: minus the word whose logit is the first that equals max, -inf if none does */
void sheaf__op_row_first(sheaf__device *device, float *first, const float *max,
                         sheaf__logits logits);

void sheaf__op_row_gradient(sheaf__device *device, const sheaf__row_gradient *how,
                            sheaf__logits logits);

void sheaf__op_losses(sheaf__device *device, const sheaf__losses *of);

/* ---- vocabulary tables ---- */

/* x[i] = the row of token i, pieces [rows of it, width] of type `from`, rounded to `to` */
void sheaf__op_table_rows(sheaf__device *device, void *x, sheaf_dtype to,
                          const sheaf__pieces *table, sheaf_dtype from, int64_t width,
                          sheaf__tokens tokens);
/* The same of a table whose pieces are packed (matmul.h), w[piece]; where they begin is `pieces`'.
 */
struct sheaf__packed;
void sheaf__op_packed_rows(sheaf__device *device, void *x, sheaf_dtype to,
                           const struct sheaf__packed *w, const sheaf__pieces *pieces,
                           sheaf__tokens tokens);
/* the row of token i of a float32 gradient += dy[i], tokens ascending */
void sheaf__op_table_gradient(sheaf__device *device, const sheaf__pieces *grad, const void *dy,
                              sheaf_dtype dtype, int64_t width, sheaf__tokens tokens);
/* h[i] = round(scale * the column of token i), pieces [rank, rows of it] of `dtype` */
void sheaf__op_factor_columns(sheaf__device *device, void *h, const sheaf__pieces *a,
                              sheaf_dtype dtype, int64_t rank, float scale, sheaf__tokens tokens);
/* the column of token i of a float32 gradient += g[i], tokens ascending */
void sheaf__op_factor_gradient(sheaf__device *device, const sheaf__pieces *grad, const void *g,
                               sheaf_dtype dtype, int64_t rank, sheaf__tokens tokens);
