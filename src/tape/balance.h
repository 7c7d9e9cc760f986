/* balance.h - the router's own loss: it rewards experts that are taken evenly.
 *
 *   aux = experts * sum_e f_e P_e
 *   f_e = times that e was taken / n
 *   P_e = mean of p_e (mixture.h)
 *
 * over the n rows with mask 1 of all layers with experts together. The loss, a mean over label
 * tokens, gets coefficient * aux: that of a micro-batch counts as often as it has labels. f is not
 * differentiated, so p_e of each such row gets coefficient * experts * f_e / n. Sums ascend by
 * layer and row, in double. Everything is whole on every rank. */
#pragma once

#include "tape/head.h"
#include "tape/layers.h"

/* Of one pass; the tape's memory. */
typedef struct sheaf__balance {
    int64_t layers, experts, queries;
    double coefficient;
    const sheaf__rows_in *in;
    sheaf__head_run *head;
    int64_t *taken, *rows; /* [layers, experts], [layers] */
    double *sum;           /* [layers, experts] of p */
} sheaf__balance;

/* sheaf__balance_new - for a pass with this head; layers: with experts. NULL: no memory, which
 * compile reports. */
sheaf__balance *sheaf__balance_new(sheaf__tape *tape, int64_t layers, int64_t experts,
                                   int64_t queries, double coefficient, const sheaf__rows_in *in,
                                   sheaf__head_run *head);
/* sheaf__record_balance - counts what was chosen in the layer with experts number `layer`. */
void sheaf__record_balance(sheaf__tape *tape, sheaf__balance *balance, int64_t layer,
                           sheaf__value *weights, sheaf__value *all);
/* sheaf__record_balance_loss - behind the head: adds the loss to head->loss_sum. */
void sheaf__record_balance_loss(sheaf__tape *tape, sheaf__balance *balance);
/* sheaf__balance_gradient - of p_e in each row with mask 1, [experts]. */
void sheaf__balance_gradient(float *out, const sheaf__balance *balance);
