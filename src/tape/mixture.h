/* mixture.h - a mixture of experts: routing of rows, weights, and the weighted sum.
 *
 *   p = softmax(logits) in float32; the top_k largest p are chosen, of equal ones the first
 *   w_e = p_e / (sum of the chosen p, the largest first), or with of_all p_e; 0 for the others
 *   y = round(residual + s), s = 0, then for each expert in ascending order, in rows that took it,
 *       s = round(s + round(w_e * y_e))
 * Backward: dy_e = round(w_e * ds); dw_e = the sum of y_e * ds over a row;
 *   dlogit_e = round(v_e * (dw_e - sum_j w_j dw_j)), v = w, or with of_all p
 * All of it lies whole on every rank, and each computes all. */
#pragma once

#include "tape/balance.h"
#include "tape/tape.h"

/* sheaf__record_router - weights [rows, experts], float32. balance: the pass's, of which this is
 * the layer with experts number `layer`; NULL: the router has no loss of its own. */
sheaf__value *sheaf__record_router(sheaf__tape *tape, sheaf__value *logits, int64_t top_k,
                                   bool of_all, sheaf__balance *balance, int64_t layer);
/* sheaf__record_mixture - the sum, zero. flows: some expert's output needs a gradient. */
sheaf__value *sheaf__record_mixture(sheaf__tape *tape, int64_t rows, int64_t cols, bool flows);
/* sheaf__record_expert_rows - the rows of x that took expert `expert`: a value of which as many are
 * there. *which: their numbers, for sheaf__record_add_expert().
 *   unknown  so many count as taken on dry, which sees no weights (sheaf__expert_rows())
 *   summed  something of the expert is trained: sums over these rows are to be those over all rows
 *           in which the others are zero. The value has their blocks, and of bfloat16 they stand in
 *           the order in which a chain by pairs meets them in all rows. Not for the order `tiles`.
 */
sheaf__value *sheaf__record_expert_rows(sheaf__tape *tape, sheaf__value **which, sheaf__value *x,
                                        sheaf__value *weights, int64_t expert, int64_t unknown,
                                        bool summed);
/* sheaf__expert_rows - the rows of expert `expert` in the choice that takes the most memory where
 * all experts take as much for a row: each of `rows` rows takes top_k of them, the last one, which
 * goes back first, while all is kept, takes every row, and the others share the rest. */
int64_t sheaf__expert_rows(int64_t rows, int64_t top_k, int64_t experts, int64_t expert);
/* sheaf__record_add_expert - adds what expert `expert` made: of the rows `which`, or with NULL of
 * all.
 */
void sheaf__record_add_expert(sheaf__tape *tape, sheaf__value *sum, sheaf__value *y,
                              sheaf__value *which, sheaf__value *weights, int64_t expert);
/* sheaf__record_mixture_end - adds the residual; the sum is then the layer's output. */
void sheaf__record_mixture_end(sheaf__tape *tape, sheaf__value *sum, sheaf__value *residual);
