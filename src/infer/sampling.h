/* sampling.h - from one row of logits to the next token.
 *
 * Processors in the order of transformers: repetition penalty, temperature, top-k, top-p,
 * softmax, sample. The penalty acts in greedy mode too; temperature, top-k and top-p only
 * when sampling (reference llama.md, section 6). Everything is a function of its arguments:
 * random numbers are counter-based, so every rank picks the same token. */
#ifndef SHEAF_INFER_SAMPLING_H
#define SHEAF_INFER_SAMPLING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct sheaf__sampling {
    bool greedy;
    float temperature;        /* > 0; 1 = none */
    int64_t top_k;            /* 0 = all */
    float top_p;              /* (0, 1]; 1 = all */
    float repetition_penalty; /* > 0; 1 = none */
    uint64_t seed;
} sheaf__sampling;

/* sheaf__sampling_scratch - floats of scratch the functions below need for `vocab`. */
size_t sheaf__sampling_scratch(int64_t vocab);

/* Each changes logits [vocab] in place; what is removed becomes -inf. */
/* l = l > 0 ? l / c : l * c, once for every id that occurs in ids[0..n). */
void sheaf__sampling_penalty(float *logits, int64_t vocab, const int64_t *ids, int64_t n, float c, float *scratch);
void sheaf__sampling_temperature(float *logits, int64_t vocab, float t);
/* Everything below the k-th largest goes; ties with it stay. */
void sheaf__sampling_top_k(float *logits, int64_t vocab, int64_t k, float *scratch);
/* Ascending, with cumulative softmax: what has cumulated to no more than 1 - p goes; the largest stays. */
void sheaf__sampling_top_p(float *logits, int64_t vocab, float p, float *scratch);

/* sheaf__sampling_next - applies what `how` asks for and gives the next id: the first largest when
 * greedy, else one drawn with the number for (seed, sample, step).
 *   ids  the n tokens so far, prompt included */
int64_t sheaf__sampling_next(float *logits, int64_t vocab, const int64_t *ids, int64_t n, const sheaf__sampling *how,
                             uint64_t sample, uint64_t step, float *scratch);

#endif
