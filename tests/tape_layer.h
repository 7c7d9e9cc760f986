/* tape_layer.h - a linear layer made from logical tensors, and its gradients in them. For the tests
 * of this folder. */
#pragma once

#include "tests/tape_ends.h"
#include "tape/linear.h"
#include "tape/rows.h"

enum { LAYER_SLICES = 8 };

static const float START = 0.25f; /* what gradients of trained tensors hold before */

/* A logical tensor [rows, cols] of a formula, exact in bfloat16. */
typedef struct tensor {
    int64_t rows, cols; /* 0 rows: absent */
    float *x;
    double *wide;
} tensor;

static inline int64_t numel(const tensor *t)
{
    return t->rows * t->cols;
}

static void fill(tensor *t, int64_t rows, int64_t cols, uint64_t salt)
{
    *t = (tensor){ rows, cols, numbers(rows * cols, salt),
                   malloc((size_t)(rows * cols) * sizeof(double) + 1) };
    for (int64_t i = 0; i < rows * cols; i++)
        t->wide[i] = t->x[i];
}

static void tensor_free(tensor *t)
{
    free(t->x);
    free(t->wide);
}

/* ---- the layer as the tape wants it ---- */

/* A tensor that may be cut: by slice a dense box of its own, copied from and to the logical one.
 * Masters and gradients are the host's copies of what the device has in `trained`. */
typedef struct boxes {
    int axis; /* that is cut, -1: none */
    int64_t rows, cols, begin[LAYER_SLICES], extent[LAYER_SLICES];
    float *master[LAYER_SLICES], *grad[LAYER_SLICES];
    sheaf__trained trained;
    sheaf__device *device;
} boxes;

static int64_t box_numel(const boxes *b, int s)
{
    return b->axis < 0    ? (s == 0) * b->rows * b->cols
           : b->axis == 0 ? b->extent[s] * b->cols
                          : b->rows * b->extent[s];
}

/* Where element e of slice s's box lies in the logical tensor. */
static int64_t logical(const boxes *b, int s, int64_t e)
{
    if (b->axis < 0)
        return e;
    if (b->axis == 0)
        return b->begin[s] * b->cols + e;
    return e / b->extent[s] * b->cols + b->begin[s] + e % b->extent[s];
}

/* Gradients as they are before a run. */
static void boxes_reset(boxes *b)
{
    for (int s = 0; s < LAYER_SLICES; s++) {
        for (int64_t e = 0; e < b->trained.numel[s]; e++)
            b->grad[s][e] = START;
        if (b->trained.numel[s] > 0)
            CHECK_OK(sheaf__upload(b->device, b->trained.grad[s], b->grad[s],
                                   (size_t)b->trained.numel[s] * sizeof(float)));
    }
}

/* Gradients as they are after it. */
static void boxes_download(const boxes *b)
{
    for (int s = 0; s < LAYER_SLICES; s++)
        if (b->trained.numel[s] > 0)
            CHECK_OK(sheaf__download(b->device, b->grad[s], b->trained.grad[s],
                                     (size_t)b->trained.numel[s] * sizeof(float)));
}

static void cut_into(boxes *b, sheaf__device *device, const tensor *t, int axis,
                     const sheaf__linear *l)
{
    *b = (boxes){ .axis = axis, .rows = t->rows, .cols = t->cols, .device = device };
    for (int s = 0; s < LAYER_SLICES; s++) {
        b->begin[s] = l->begin[s];
        b->extent[s] = l->extent[s];
        const int64_t n = b->trained.numel[s] = box_numel(b, s);
        b->master[s] = malloc((size_t)n * sizeof(float) + 1);
        b->grad[s] = malloc((size_t)n * sizeof(float) + 1);
        for (int64_t e = 0; e < n; e++)
            b->master[s][e] = t->x[logical(b, s, e)];
        b->trained.weight[s] = device_copy(device, b->master[s], (size_t)n * sizeof(float));
        b->trained.grad[s] = device_copy(device, NULL, (size_t)n * sizeof(float));
    }
    boxes_reset(b);
    b->trained.count = axis < 0 ? 1 : LAYER_SLICES;
}

static void boxes_free(boxes *b)
{
    for (int s = 0; s < LAYER_SLICES; s++) {
        free(b->master[s]);
        free(b->grad[s]);
    }
}

typedef struct layer {
    sheaf__linear linear;
    sheaf__lora_part lora;
    boxes weight, bias, a, b;
    void *b_copy; /* lora.b_copy, slice after slice */
} layer;

/* What a layer is made of: logical tensors, absent where they have no rows. */
typedef struct layer_of {
    bool rows;               /* cut along the input */
    int64_t units, per_unit; /* of the axis that is cut */
    const tensor *weight, *bias, *a, *b;
    double scale, dropout;
    uint64_t purpose;
    int trains; /* TRAIN_WEIGHT, ... */
} layer_of;

enum { TRAIN_WEIGHT = 1, TRAIN_BIAS = 2, TRAIN_LORA = 4 };

/* layer_init - one rank's layer over all slices, in the device's memory; its compute copies come
 * from the masters, by sheaf__linear_refresh(). */
static void layer_init(layer *l, sheaf__context *c, const layer_of *of)
{
    sheaf__linear *n = &l->linear;
    bool present[LAYER_SLICES];
    *l = (layer){ .linear = { .name = "layer",
                              .in = of->weight->cols,
                              .out = of->weight->rows,
                              .rows = of->rows,
                              .count = LAYER_SLICES } };
    if (!of->rows) {
        n->all = sheaf__packed_on(c->device, c->dtype, n->out, n->in);
        n->all.ahead = device_copy(c->device, NULL, sheaf__packed_size(&n->all));
    }
    for (int k = 0; k < LAYER_SLICES; k++) {
        n->begin[k] = of->units * k / LAYER_SLICES * of->per_unit;
        n->extent[k] = of->units * (k + 1) / LAYER_SLICES * of->per_unit - n->begin[k];
        n->owned += n->extent[k];
        present[k] = n->extent[k] > 0;
        n->w[k] = of->rows ? sheaf__packed_on(c->device, c->dtype, n->out, n->extent[k])
                           : sheaf__packed_part(&n->all, n->begin[k], n->extent[k]);
        if (of->rows)
            n->w[k].ahead = device_copy(c->device, NULL, sheaf__packed_size(&n->w[k]));
    }
    sheaf_tree_init(&n->tree, LAYER_SLICES, 1, present);
    cut_into(&l->weight, c->device, of->weight, of->rows ? 1 : 0, n);
    n->weight_trained = &l->weight.trained;
    if (of->bias->rows > 0) {
        boxes *b = &l->bias; /* of columns: by slice, [1, extent] */
        cut_into(b, c->device, of->bias, of->rows ? -1 : 1, n);
        n->bias = device_copy(c->device, NULL, (size_t)n->out * sizeof(float));
        n->bias_trained = &b->trained;
    }
    if (of->a->rows > 0) {
        cut_into(&l->a, c->device, of->a, of->rows ? 1 : -1, n);
        cut_into(&l->b, c->device, of->b, of->rows ? -1 : 0, n);
        l->lora = (sheaf__lora_part){ .rank = of->a->rows,
                                      .scale = (float)of->scale,
                                      .dropout = of->dropout,
                                      .purpose = of->purpose,
                                      .a = &l->a.trained,
                                      .b = &l->b.trained };
        l->b_copy = device_copy(c->device, NULL, (size_t)(of->b->rows * of->b->cols) * 4);
        for (int64_t k = 0, at = 0; k < LAYER_SLICES; k++, at += l->lora.b_numel[k - 1]) {
            l->lora.a_numel[k] = box_numel(&l->a, (int)k);
            l->lora.b_numel[k] = box_numel(&l->b, (int)k);
            l->lora.a_copy[k] = device_copy(c->device, NULL, (size_t)l->lora.a_numel[k] * 4);
            l->lora.b_copy[k] = sheaf__at(l->b_copy, at, c->dtype);
        }
        n->lora = &l->lora;
    }
    sheaf__linear_refresh(c, n);
    if (!(of->trains & TRAIN_WEIGHT))
        n->weight_trained = NULL;
    if (!(of->trains & TRAIN_BIAS))
        n->bias_trained = NULL;
    if (!(of->trains & TRAIN_LORA))
        l->lora.a = l->lora.b = NULL;
}

static void layer_free(layer *l)
{
    boxes_free(&l->weight);
    boxes_free(&l->bias);
    boxes_free(&l->a);
    boxes_free(&l->b);
}

/* check_gradient - a gradient held in boxes equals what `slope` says, or is untouched where it was
 * not to be trained. */
static inline void check_gradient(const char *what, const tensor *t, const boxes *b, bool trained,
                                  double tolerance,
                                  double (*slope)(void *problem, const tensor *t, int64_t e),
                                  void *problem)
{
    char name[200];
    boxes_download(b);
    for (int s = 0; s < LAYER_SLICES && t->rows > 0; s++)
        for (int64_t e = 0; e < b->trained.numel[s]; e++) {
            const int64_t at = logical(b, s, e);
            const double want = trained ? START + slope(problem, t, at) : START;
            snprintf(name, sizeof name, "gradient of %s, element %lld", what, (long long)at);
            CHECK_NEAR(name, b->grad[s][e], want, tolerance * (1 + fabs(want)));
        }
}
