/* sampling.c - see sampling.h. */
#include "infer/sampling.h"

#include <math.h>
#include <string.h>

#include "base/random.h"
#include "ops/math/elementary.h"
#include "ops/math/math.h"
#include "sheaf/cut.h"

/* Marks the ids that occurred, in `scratch`. */
static const unsigned char *mark_seen(int64_t vocab, const int64_t *ids, int64_t n, float *scratch)
{
    unsigned char *seen = (unsigned char *)scratch;
    memset(seen, 0, (size_t)vocab);
    for (int64_t i = 0; i < n; i++)
        if (ids[i] >= 0 && ids[i] < vocab)
            seen[ids[i]] = 1;
    return seen;
}

/* Weight relative to the largest; equal values, also infinities, weigh 1. */
static double weight(float logit, float max)
{
    return logit == max ? 1.0 : (double)sheaf__exp(logit - max);
}

/* ---- ids by descending logit, as far as needed: a heap, followed by the ids popped from it, the
 * largest last. Vocabularies are large, and most cuts keep few. */
typedef struct ranking {
    const float *logits;
    int32_t *order;
    int64_t left, all; /* ids in the heap; ids */
} ranking;

static bool above(const ranking *r, int32_t a, int32_t b)
{
    return r->logits[a] > r->logits[b] || (r->logits[a] == r->logits[b] && a > b);
}

static void sift(const ranking *r, int64_t at)
{
    const int32_t id = r->order[at];
    for (int64_t child; (child = 2 * at + 1) < r->left; at = child) {
        if (child + 1 < r->left && above(r, r->order[child + 1], r->order[child]))
            child++;
        if (!above(r, r->order[child], id))
            break;
        r->order[at] = r->order[child];
    }
    r->order[at] = id;
}

static ranking rank(const float *logits, int64_t vocab, float *scratch)
{
    ranking r = { logits, (int32_t *)(void *)scratch, vocab, vocab };
    for (int64_t i = 0; i < vocab; i++)
        r.order[i] = (int32_t)i;
    for (int64_t i = vocab / 2; i-- > 0;)
        sift(&r, i);
    return r;
}

static void take_next(ranking *r)
{
    const int32_t first = r->order[0];
    r->order[0] = r->order[--r->left];
    r->order[r->left] = first;
    sift(r, 0);
}

/* The n-th largest, n from 0; pops as many as needed. */
static int32_t nth(ranking *r, int64_t n)
{
    while (r->all - r->left <= n)
        take_next(r);
    return r->order[r->all - 1 - n];
}

/* How many are at least as large as the k-th largest. */
static int64_t count_largest(ranking *r, int64_t k)
{
    const float edge = r->logits[nth(r, k - 1)];
    while (r->left > 0 && r->logits[r->order[0]] == edge)
        take_next(r);
    return r->all - r->left;
}

/* How many of the `from` largest reach a share >= p (`beyond`: > p) of their total mass. */
static int64_t count_mass(ranking *r, int64_t from, double p, bool beyond)
{
    const float max = r->logits[nth(r, 0)];
    double total = 0, mass = 0;
    int64_t kept = 0;
    /* those popped, or all: `from` is one of the two; the order does not matter */
    for (int64_t i = r->all - from; i < r->all; i++)
        total += weight(r->logits[r->order[i]], max);
    while (kept < from &&
           (mass < p * total ||
            (beyond && mass == p * total))) /* runs at least once: the largest weighs 1 */
        mass += weight(r->logits[nth(r, kept++)], max);
    return kept;
}

static void cut(float *logits, int64_t vocab, const sheaf__sampling *how, float *scratch)
{
    const bool by_count = how->top_k > 0 && how->top_k < vocab;
    const bool by_mass = how->top_p > 0 && how->top_p < 1 && (!how->sat || how->top_k > 0);
    int64_t kept = vocab;
    if (vocab == 0 || (!by_count && !by_mass))
        return;
    ranking r = rank(logits, vocab, scratch);
    if (by_count)
        kept = count_largest(&r, how->top_k);
    if (by_mass)
        kept = count_mass(&r, kept, (double)how->top_p, how->sat);
    for (int64_t i = 0; i < vocab - kept; i++)
        logits[r.order[i]] = -INFINITY;
}

static bool any_nan(const float *logits, int64_t vocab)
{
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] != logits[i])
            return true;
    return false;
}

static void divide(float *logits, int64_t vocab, const int64_t *ids, int64_t n,
                   const sheaf__sampling *how, float *scratch)
{
    const bool penalty = how->repetition_penalty != 0 && how->repetition_penalty != 1;
    const bool temperature = how->temperature != 0 && how->temperature != 1 && !how->greedy;
    const float by = how->repetition_penalty;
    const unsigned char *seen = penalty ? mark_seen(vocab, ids, n, scratch) : NULL;
    if (penalty && how->sat && temperature) { /* one division, as in SAT */
        for (int64_t i = 0; i < vocab; i++)
            logits[i] /= seen[i] ? by * how->temperature : how->temperature;
        return;
    }
    for (int64_t i = 0; i < vocab && penalty; i++)
        if (seen[i])
            logits[i] = how->sat || logits[i] > 0 ? logits[i] / by : logits[i] * by;
    if (temperature)
        for (int64_t i = 0; i < vocab; i++)
            logits[i] /= how->temperature;
}

void sheaf__sampling_process(float *logits, int64_t vocab, const int64_t *ids, int64_t n,
                             const sheaf__sampling *how, float *scratch)
{
    if (any_nan(logits, vocab)) {
        for (int64_t i = 0; i < vocab; i++)
            logits[i] = -INFINITY;
        return;
    }
    divide(logits, vocab, ids, n, how, scratch);
    if (!how->greedy)
        cut(logits, vocab, how, scratch);
}

float sheaf__sampling_log_sum(float *max, const float *logits, int64_t vocab,
                              const sheaf__kernels *kernels)
{
    float sum;
    kernels->row_max(max, logits, vocab, 1, vocab);
    kernels->row_sumexp(&sum, logits, vocab, max, 1, vocab);
    return sheaf__log(sum);
}

/* The sums of slices [begin, begin + n) by the tree; false: these have no words. */
static bool tree_sum(float *out, const float *sum, const sheaf_cut *cut, int begin, int n)
{
    float half[2];
    if (n == 1) {
        *out = sum[begin];
        return sheaf_cut_slice_rows(cut, begin) > 0;
    }
    const bool left = tree_sum(&half[0], sum, cut, begin, n / 2),
               right = tree_sum(&half[1], sum, cut, begin + n / 2, n / 2);
    *out = left && right ? half[0] + half[1] : half[left ? 0 : 1];
    return left || right;
}

float sheaf__sampling_logprob(const float *logits, int64_t vocab, int64_t id, int slices,
                              double temperature, const sheaf__sampling_room *room)
{
    const sheaf_cut cut = { .slices = slices, .nparts = 1, .part = { { vocab, 1 } } };
    const float by = (float)(1 / temperature);
    float max, sum[SHEAF_MAX_SLICES] = { 0 }, all;
    for (int64_t i = 0; i < vocab && temperature != 1; i++)
        room->scratch[i] = logits[i] * by;
    logits = temperature == 1 ? logits : room->scratch;
    room->kernels->row_max(&max, logits, vocab, 1, vocab);
    for (int64_t s = 0, at = 0, n; s < slices; s++, at += n)
        if ((n = sheaf_cut_slice_rows(&cut, (int)s)) > 0)
            room->kernels->row_sumexp(&sum[s], logits + at, n, &max, 1, n);
    tree_sum(&all, sum, &cut, 0, slices);
    return -(sheaf__log_of(all) + max - logits[id]);
}

void sheaf__sampling_best(int32_t *ids, int64_t best, const float *logits, int64_t vocab)
{
    int64_t n = 0;
    for (int64_t i = 0; i < vocab; i++) {
        int64_t at = n;
        while (at > 0 && logits[ids[at - 1]] < logits[i])
            at--;
        if (at == best)
            continue;
        n += n < best;
        memmove(ids + at + 1, ids + at, (size_t)(n - 1 - at) * sizeof *ids);
        ids[at] = (int32_t)i;
    }
}

int64_t sheaf__sampling_greedy(const float *logits, int64_t vocab)
{
    int64_t best = -1;
    float max = -INFINITY;
    for (int64_t i = 0; i < vocab; i++)
        if (logits[i] > max) {
            max = logits[i];
            best = i;
        }
    return best;
}

/* out = weight() of each logit: the gradient of a softmax whose sum is 1, without a label. */
static void weigh(float *out, const float *logits, int64_t vocab, float max,
                  const sheaf__kernels *kernels)
{
    const float one = 1;
    const int32_t elsewhere = -1;
    const sheaf__label_weights plain = { .weight = &one };
    if (isinf(max))
        for (int64_t i = 0; i < vocab; i++)
            out[i] = logits[i] == max;
    else
        kernels->row_dlogits(out, vocab, logits, vocab, &max, &one, &elsewhere, &plain, 1, vocab,
                             SHEAF_F32);
}

int64_t sheaf__sampling_draw(const float *logits, int64_t vocab, uint32_t u,
                             const sheaf__sampling_room *room)
{
    const float *weights = room->scratch;
    float max;
    double total = 0, sum = 0;
    int64_t id = -1;
    room->kernels->row_max(&max, logits, vocab, 1, vocab);
    if (max == -INFINITY)
        return -1;
    weigh(room->scratch, logits, vocab, max, room->kernels);
    for (int64_t i = 0; i < vocab; i++)
        total += (double)weights[i];
    const double goal = (double)u * 0x1p-32 * total; /* below the total, which the sum reaches */
    while (sum <= goal)
        sum += (double)weights[++id];
    return id;
}

int64_t sheaf__sampling_next(float *logits, int64_t vocab, const int64_t *ids, int64_t n,
                             const sheaf__sampling *how, uint64_t sample, uint64_t step,
                             const sheaf__sampling_room *room)
{
    sheaf__sampling_process(logits, vocab, ids, n, how, room->scratch);
    if (how->greedy)
        return sheaf__sampling_greedy(logits, vocab);
    return sheaf__sampling_draw(
        logits, vocab, sheaf__random_u32(how->seed, SHEAF__PURPOSE_SAMPLING, 0, sample, step, 0),
        room);
}
