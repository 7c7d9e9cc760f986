/* scaler.h - the scale of the loss in a run in float16, which keeps small gradients above the
 * smallest float16 and large ones below infinity.
 *
 * The gradient of the loss is multiplied by the scale, and gradients are divided by it before the
 * update; a scale is a power of two, so both are exact. It falls when a step's gradients overflow
 * (the step is then skipped) and rises after `window` steps without overflow. With hysteresis 1
 * that is torch's GradScaler (growth factor 2, backoff factor 1/2), with more it is DeepSpeed's
 * DynamicLossScaler, which SAT uses. Its state is the same on every rank and part of a checkpoint.
 */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "sheaf/status.h"

typedef struct sheaf__scaler_options {
    bool dynamic;       /* else the scale is constant */
    double scale;       /* at first */
    int64_t window;     /* steps without overflow after which it doubles */
    int64_t hysteresis; /* overflows it takes to halve it; 1: each does */
    double least;       /* lower bound of the scale */
} sheaf__scaler_options;

typedef struct sheaf__scaler {
    sheaf__scaler_options options;
    double scale;    /* 0: losses are not scaled */
    int64_t good;    /* steps without overflow since it last changed, or since the last overflow */
    int64_t left;    /* overflows left until it is halved */
    int64_t skipped; /* skipped steps of the whole run */
} sheaf__scaler;

/* sheaf__scaler_options_read - from the flags of a run: `how` is NULL, "dynamic", or a constant
 * scale; zeros are the defaults: 65536, 2000 steps, 1 overflow, at least 1. Errors: SHEAF_E_ARG
 * that names the flag. */
sheaf_status *sheaf__scaler_options_read(sheaf__scaler_options *out, const char *how, double scale,
                                         int64_t window, int64_t hysteresis, double least);
void sheaf__scaler_init(sheaf__scaler *scaler, const sheaf__scaler_options *options);

/* sheaf__scaler_good - after a step that was not skipped. */
void sheaf__scaler_good(sheaf__scaler *scaler);
/* sheaf__scaler_overflow - after one whose gradients were not finite. False, without a change, if
 * the scale cannot fall: then scaling is not the cause. */
bool sheaf__scaler_overflow(sheaf__scaler *scaler);

/* sheaf__scaler_text - for the progress of a checkpoint: a JSON object. */
void sheaf__scaler_text(sheaf_text *text, const sheaf__scaler *scaler);
/* sheaf__scaler_read - reads that object; absent keys keep their values. */
void sheaf__scaler_read(sheaf__scaler *scaler, const json_t *object);
