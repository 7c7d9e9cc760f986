/* time.h - predicts the time of a step: the work counted by the dry device, at the rates measured
 * on a shorter model.
 *
 * Layers of one model are equal, so the seconds of each kind of op (tape/work.h) are proportional
 * to the operations of its products, or if it has none to the bytes of its values. */
#pragma once

#include "tape/work.h"

/* Seconds. */
typedef struct sheaf_time {
    double step;                    /* the sum of the following */
    double kind[SHEAF__WORK_KINDS]; /* without waiting */
    double update;                  /* norm of the gradient, AdamW, new compute copies */
    double beside;                  /* reading rows, clearing gradients */
    double waiting;                 /* waiting for other ranks */
} sheaf_time;

/* sheaf_time_predict - for `times` as much as `work`, and one update of its trained elements.
 *   measured   a micro-batch with the update, or a pass of generation */
sheaf_time sheaf_time_predict(const sheaf__work *measured, const sheaf__work *work, double times);
