/* balance.c - see balance.h. */
#include "tape/balance.h"

#include "base/base.h"
#include "ops/device.h"

sheaf__balance *sheaf__balance_new(sheaf__tape *tape, int64_t layers, int64_t experts,
                                   int64_t queries, double coefficient, const sheaf__rows_in *in,
                                   sheaf__head_run *head)
{
    const size_t all = (size_t)(layers * experts);
    sheaf__balance *b = sheaf__tape_host_memory(tape, sizeof *b);
    double *sum = sheaf__tape_host_memory(tape, all * sizeof *sum);
    int64_t *taken = sheaf__tape_host_memory(tape, (all + (size_t)layers) * sizeof *taken);
    if (b == NULL || sum == NULL || taken == NULL)
        return NULL;
    *b = (sheaf__balance){
        layers, experts, queries, coefficient, in, head, taken, taken + all, sum
    };
    return b;
}

static int64_t all_rows(const sheaf__balance *b)
{
    int64_t n = 0;
    for (int64_t l = 0; l < b->layers; l++)
        n += b->rows[l];
    return n;
}

/* f_e */
static double share_taken(const sheaf__balance *b, int64_t e)
{
    int64_t taken = 0;
    for (int64_t l = 0; l < b->layers; l++)
        taken += b->taken[l * b->experts + e];
    return (double)taken / (double)all_rows(b);
}

/* ---- one layer ---- */

typedef struct layer_params {
    sheaf__balance *balance;
    int64_t layer;
    sheaf__value *weights, *all;
} layer_params;

static void count(const layer_params *p, const float *weights, const float *all)
{
    sheaf__balance *b = p->balance;
    const sheaf__rows_in *in = b->in;
    const int64_t n = b->experts;
    int64_t *taken = b->taken + p->layer * n, *rows = &b->rows[p->layer];
    double *sum = b->sum + p->layer * n;
    memset(taken, 0, (size_t)n * sizeof *taken);
    memset(sum, 0, (size_t)n * sizeof *sum);
    *rows = 0;
    if (weights == NULL || all == NULL)
        return; /* on dry */
    for (int64_t r = 0; r < p->weights->rows; r++) {
        const uint8_t *mask = in->host.key_mask;
        if (mask != NULL && mask[r / b->queries * in->mask_ld + r % b->queries] == 0)
            continue;
        (*rows)++;
        for (int64_t e = 0; e < n; e++) {
            taken[e] += weights[r * n + e] != 0;
            sum[e] += (double)all[r * n + e];
        }
    }
}

static sheaf_status *layer_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const layer_params *p = op->params;
    const size_t bytes = (size_t)(p->weights->rows * p->weights->cols) * sizeof(float);
    float *weights = NULL, *all = NULL;
    sheaf_status *st = sheaf__borrow(&weights, c->device, p->weights->data, bytes, true);
    TRY(st, sheaf__borrow(&all, c->device, p->all->data, bytes, true));
    if (st == NULL)
        count(p, weights, all);
    st = sheaf__first_of(st, sheaf__return(all, c->device, p->all->data, bytes, false));
    return sheaf__first_of(st, sheaf__return(weights, c->device, p->weights->data, bytes, false));
}

void sheaf__record_balance(sheaf__tape *tape, sheaf__balance *balance, int64_t layer,
                           sheaf__value *weights, sheaf__value *all)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "balance of experts", layer_forward, NULL, sizeof(layer_params));
    *(layer_params *)op->params = (layer_params){ balance, layer, weights, all };
    sheaf__op_arg(op, weights, SHEAF__READ);
    sheaf__op_arg(op, all, SHEAF__READ);
}

/* ---- all layers ---- */

typedef struct loss_params {
    sheaf__balance *balance;
} loss_params;

static sheaf_status *loss_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__balance *b = ((const loss_params *)op->params)->balance;
    const double n = (double)all_rows(b);
    double aux = 0;
    for (int64_t e = 0; e < b->experts && n > 0; e++) {
        double p = 0;
        for (int64_t l = 0; l < b->layers; l++)
            p += b->sum[l * b->experts + e];
        aux += share_taken(b, e) * (p / n);
    }
    b->head->loss_sum += b->coefficient * (double)b->experts * aux * (double)b->head->labels;
    return NULL;
}

void sheaf__record_balance_loss(sheaf__tape *tape, sheaf__balance *balance)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "loss of the router", loss_forward, NULL, sizeof(loss_params));
    ((loss_params *)op->params)->balance = balance;
}

void sheaf__balance_gradient(float *out, const sheaf__balance *b)
{
    const double n = (double)all_rows(b), scale = (double)b->head->gradient_scale *
                                                  (double)b->head->labels * b->coefficient *
                                                  (double)b->experts;
    for (int64_t e = 0; e < b->experts; e++)
        out[e] = n > 0 ? (float)(scale * share_taken(b, e) / n) : 0;
}
