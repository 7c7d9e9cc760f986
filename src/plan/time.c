/* time.c - see time.h. */
#include "plan/time.h"

#include <stddef.h>

static double part(double of, double whole)
{
    return whole > 0 ? of / whole : 0;
}

/* Rates that a short model lacks: recomputed ops have the rate of forward ones, other kinds that of
 * products, or of values. */
static const sheaf__work_sum *rate(const sheaf__work *measured, int kind, int way, int counted)
{
    const sheaf__work_sum *own = &measured->sum[kind][way][counted],
                          *forward = &measured->sum[kind][SHEAF__WORK_FORWARD][counted];
    if (own->runs > 0 || forward->runs > 0)
        return own->runs > 0 ? own : forward;
    return &measured->sum[counted ? SHEAF__WORK_PRODUCTS : SHEAF__WORK_ELEMENTS]
                         [SHEAF__WORK_FORWARD][counted];
}

sheaf_time sheaf_time_predict(const sheaf__work *measured, const sheaf__work *work, double times)
{
    sheaf_time t = { 0 };
    double ops = 0, runs = 0, ran = 0;
    for (int kind = 0; kind < SHEAF__WORK_KINDS; kind++)
        for (int i = 0; i < 2 * SHEAF__WORK_WAYS; i++) {
            const sheaf__work_sum *needed = &work->sum[kind][i / 2][i % 2],
                                  *own = &measured->sum[kind][i / 2][i % 2],
                                  *of = rate(measured, kind, i / 2, i % 2);
            const double scale = times * (i % 2 == 1 ? part(needed->flops, of->flops)
                                                     : part(needed->bytes, of->bytes));
            t.kind[kind] += scale * (of->seconds - of->waiting);
            t.waiting += scale * of->waiting;
            ops += own->seconds;
            ran += own->runs;
            runs += needed->runs;
        }
    const double scale = part(work->trained, measured->trained),
                 beside = measured->all - ops - measured->update;
    t.update = scale * (measured->update - measured->update_waiting);
    t.waiting += scale * measured->update_waiting;
    t.beside = times * part(runs, ran) * (beside > 0 ? beside : 0);
    t.step = t.update + t.beside + t.waiting;
    for (int kind = 0; kind < SHEAF__WORK_KINDS; kind++)
        t.step += t.kind[kind];
    return t;
}
