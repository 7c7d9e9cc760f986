/* sampling.c - see sampling.h. */
#include "infer/sampling.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "ops/math/math.h"

size_t sheaf__sampling_scratch(int64_t vocab) { return (size_t)vocab + 1; }

void sheaf__sampling_penalty(float *logits, int64_t vocab, const int64_t *ids, int64_t n, float c, float *scratch)
{
    /* scratch marks ids already punished: a prompt may repeat them */
    memset(scratch, 0, (size_t)vocab * sizeof *scratch);
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= vocab || scratch[ids[i]] != 0)
            continue;
        float *l = &logits[ids[i]];
        *l = *l > 0 ? *l / c : *l * c;
        scratch[ids[i]] = 1;
    }
}

void sheaf__sampling_temperature(float *logits, int64_t vocab, float t)
{
    for (int64_t i = 0; i < vocab; i++)
        logits[i] /= t;
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

void sheaf__sampling_top_k(float *logits, int64_t vocab, int64_t k, float *scratch)
{
    if (k <= 0 || k >= vocab)
        return;
    memcpy(scratch, logits, (size_t)vocab * sizeof *scratch);
    qsort(scratch, (size_t)vocab, sizeof *scratch, ascending);
    const float threshold = scratch[vocab - k];
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] < threshold)
            logits[i] = -INFINITY;
}

/* Probability masses are added in double, smallest first. Equal logits share their fate:
 * where the cut falls among them, all stay. */
void sheaf__sampling_top_p(float *logits, int64_t vocab, float p, float *scratch)
{
    if (p >= 1)
        return;
    memcpy(scratch, logits, (size_t)vocab * sizeof *scratch);
    qsort(scratch, (size_t)vocab, sizeof *scratch, ascending);
    const float max = scratch[vocab - 1];
    double total = 0, seen = 0;
    for (int64_t i = 0; i < vocab; i++)
        total += (double)sheaf__exp(scratch[i] - max);
    float threshold = max;
    for (int64_t i = 0; i < vocab; i++) {
        seen += (double)sheaf__exp(scratch[i] - max);
        if (seen > (1 - (double)p) * total) {
            threshold = scratch[i];
            break;
        }
    }
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] < threshold)
            logits[i] = -INFINITY;
}

static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

/* The id at which the cumulated probability passes u, ids ascending. */
static int64_t draw(const float *logits, int64_t vocab, double u)
{
    const float max = logits[largest(logits, vocab)];
    double total = 0, seen = 0;
    int64_t last = 0;
    for (int64_t i = 0; i < vocab; i++)
        total += (double)sheaf__exp(logits[i] - max);
    for (int64_t i = 0; i < vocab; i++) {
        const double mass = (double)sheaf__exp(logits[i] - max);
        seen += mass;
        if (mass > 0)
            last = i;
        if (mass > 0 && seen > u * total)
            return i;
    }
    return last;
}

int64_t sheaf__sampling_next(float *logits, int64_t vocab, const int64_t *ids, int64_t n, const sheaf__sampling *how,
                             uint64_t sample, uint64_t step, float *scratch)
{
    if (how->repetition_penalty != 1)
        sheaf__sampling_penalty(logits, vocab, ids, n, how->repetition_penalty, scratch);
    if (how->greedy)
        return largest(logits, vocab);
    if (how->temperature != 1)
        sheaf__sampling_temperature(logits, vocab, how->temperature);
    sheaf__sampling_top_k(logits, vocab, how->top_k, scratch);
    sheaf__sampling_top_p(logits, vocab, how->top_p, scratch);
    const uint32_t number = sheaf__random_u32(how->seed, sheaf__name_key("sampling"), step, sample, 0, 0);
    return draw(logits, vocab, ((double)number + 0.5) / 4294967296.0);
}
