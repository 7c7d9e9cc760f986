/* noise.c - see noise.h. */
#include "tape/noise.h"

#include <math.h>

#include "base/random.h"
#include "tape/rows.h"

typedef struct noise_params {
    const sheaf__noise_in *in;
    sheaf__value *x;
} noise_params;

typedef struct noise_args {
    const sheaf__context *c;
    sheaf__value *x;
    sheaf__noise how;
} noise_args;

static void noise_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const noise_args *a = arg;
    sheaf__noise how = a->how;
    how.sample += begin;
    how.position += begin;
    how.half += begin;
    a->c->device->kernels->noise(sheaf__at(a->x->data, begin * a->x->cols, a->x->dtype), a->x->cols,
                                 end - begin, a->x->cols, &how, a->x->dtype);
}

static sheaf_status *noise_forward(sheaf__tape *tape, sheaf__op *op)
{
    const sheaf__context *c = sheaf__tape_context(tape);
    const noise_params *p = op->params;
    const sheaf__step_info *info = p->in->info;
    noise_args args = { c,
                        p->x,
                        { .seed = info->seed,
                          .purpose = sheaf__name_key("neftune"),
                          .step = info->step,
                          .sample = info->sample,
                          .position = info->position,
                          .half = p->in->half } };
    sheaf__rows(c, p->x->rows, 32, noise_rows, &args);
    return NULL;
}

void sheaf__record_noise(sheaf__tape *tape, sheaf__value *x, const sheaf__noise_in *in)
{
    sheaf__op *op =
        sheaf__tape_op(tape, "noise on the embedding", noise_forward, NULL, sizeof(noise_params));
    *(noise_params *)op->params = (noise_params){ in, x };
    sheaf__op_arg(op, x, SHEAF__CHANGE);
}

float sheaf__noise_half(double alpha, int64_t tokens, int64_t width)
{
    return tokens <= 0 ? 0 : (float)(alpha / sqrt((double)tokens * (double)width));
}
