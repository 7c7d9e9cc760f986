/* scaled.h - rows times a number: embeddings, MiniCPM's residual branches and logits. The number is
 * float32 and is not rounded to the compute dtype, as a number of Python is not by torch. */
#pragma once

#include "tape/tape.h"

/* sheaf__record_times_number - x = round(x * by) in place. */
void sheaf__record_times_number(sheaf__tape *tape, sheaf__value *x, float by);
/* sheaf__record_scale - the same, `by` rounded to the compute dtype: of Gemma's embedding. */
void sheaf__record_scale(sheaf__tape *tape, sheaf__value *x, float by);
/* sheaf__record_divide - round(x / by), a division. */
sheaf__value *sheaf__record_divide(sheaf__tape *tape, sheaf__value *x, float by);
/* sheaf__record_add_scaled - y = round(h + round(y * by)), over y, which it returns. Nothing may
 * keep y as it was. */
sheaf__value *sheaf__record_add_scaled(sheaf__tape *tape, sheaf__value *h, sheaf__value *y,
                                       float by);
