/* time.h - how long a step takes: the work that the dry device counts in it, priced with what the
 * same work of a shorter model was measured to need.
 *
 * Layers of one model are alike, so seconds of each kind of op (tape/work.h) go by the operations
 * of its products, and where it has none by the bytes of its values. */
#pragma once

#include "tape/work.h"

/* Seconds. */
typedef struct sheaf_time {
    double step;                    /* all that follow */
    double kind[SHEAF__WORK_KINDS]; /* without waiting */
    double update;                  /* norm of the gradient, AdamW, new compute copies */
    double beside;                  /* reading rows, clearing gradients */
    double waiting;                 /* for other ranks */
} sheaf_time;

/* sheaf_time_predict - of `times` as much as `work`, and one update of its trained elements.
 *   measured   a micro-batch with the update, or a pass of generation */
sheaf_time sheaf_time_predict(const sheaf__work *measured, const sheaf__work *work, double times);
