/* random_state.h - training states of random shapes, cuts and slices, saved by one rank.
 *
 * Shapes follow from one number, values from another: two states of one shape differ in
 * every tensor that has an element. Empty tensors and slices are among them. */
#pragma once

#include "checkpoint/store/checkpoint.h"
#include "tests/faults/folder.h"

enum { RANDOM_TENSORS = 8, RANDOM_SLICES = 8 };

/* splitmix64: any seed will do. */
static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

/* 0 .. n - 1 */
static inline int64_t random_below(uint64_t *state, int64_t n)
{
    return (int64_t)(random_next(state) % (uint64_t)n);
}

typedef struct random_state {
    char name[RANDOM_TENSORS][48];
    sheaf_cut cut[RANDOM_TENSORS];
    sheaf_state_tensor tensor[RANDOM_TENSORS];
    float *slice[RANDOM_TENSORS][RANDOM_SLICES];
    char progress[128];
    sheaf_state state;
} random_state;

/* The shape and cut of tensor i. */
static inline void random_shape(random_state *r, int i, uint64_t *s)
{
    static const char *const group[] = { "master", "exp_avg", "exp_avg_sq" };
    sheaf_state_tensor *t = &r->tensor[i];
    sheaf_cut *cut = &r->cut[i];
    snprintf(r->name[i], sizeof r->name[i], "%s/layer.%d.%s", group[random_below(s, 3)], i,
             i % 2 == 0 ? "weight" : "\303\274");
    *t = (sheaf_state_tensor){
        r->name[i], 1 + (int)random_below(s, 2), { 1 + random_below(s, 9), 1 }, cut, r->slice[i]
    };
    if (t->ndim == 2)
        t->shape[1] = 1 + random_below(s, 12);
    if (random_below(s, 12) == 0)
        t->shape[random_below(s, t->ndim)] = 0;
    *cut = (sheaf_cut){ 0 };
    if (random_below(s, 3) == 0)
        return;
    *cut = (sheaf_cut){
        (int)random_below(s, t->ndim), r->state.slices, 1 + (int)random_below(s, 3), { { 0, 0 } }
    };
    int64_t rows = 0;
    for (int p = 0; p < cut->nparts; p++) {
        cut->part[p] = (sheaf_part){ random_below(s, 7), 1 + random_below(s, 3) };
        rows += cut->part[p].units * cut->part[p].rows_per_unit;
    }
    t->shape[cut->axis] = rows;
}

static inline int64_t random_elements(const random_state *r, int i, int slice)
{
    int64_t shape[2] = { r->tensor[i].shape[0], r->tensor[i].shape[1] };
    if (r->cut[i].nparts > 0)
        shape[r->cut[i].axis] = sheaf_cut_slice_rows(&r->cut[i], slice);
    return shape[0] * shape[1];
}

/* Release it after use. */
static inline void random_init(random_state *r, uint64_t shapes, uint64_t values, int64_t step)
{
    memset(r, 0, sizeof *r);
    r->state = (sheaf_state){ 1 << random_below(&shapes, 4), step,
                              1 + random_below(&shapes, RANDOM_TENSORS), r->tensor, r->progress };
    snprintf(r->progress, sizeof r->progress,
             "{\"step\": %d, \"seed\": %u, \"text\": \"a \\u00fc\", \"list\": [1, 2.5, null]}",
             (int)step, (unsigned)values);
    for (int i = 0; i < r->state.count; i++) {
        random_shape(r, i, &shapes);
        const int copies = r->cut[i].nparts > 0 ? r->state.slices : 1;
        for (int s = 0; s < copies; s++) {
            const int64_t n = random_elements(r, i, s);
            r->slice[i][s] = malloc((size_t)n * sizeof(float) + 1);
            for (int64_t k = 0; k < n; k++)
                r->slice[i][s][k] = (float)(int32_t)random_next(&values) / 1024.0f;
        }
    }
}

static inline void random_release(random_state *r)
{
    for (int i = 0; i < RANDOM_TENSORS; i++)
        for (int s = 0; s < RANDOM_SLICES; s++)
            free(r->slice[i][s]);
}

typedef struct random_save_job {
    const char *out;
    const random_state *state;
    int keep;
} random_save_job;

static inline sheaf_status *random_save_rank(void *context, sheaf_comm *comm)
{
    const random_save_job *job = context;
    sheaf_checkpoints *store = NULL;
    sheaf_status *st = sheaf_checkpoints_open(&store, comm, job->out,
                                              &(sheaf_checkpoints_options){ .keep = job->keep });
    if (st == NULL)
        st = sheaf_checkpoints_save(store, comm, &job->state->state);
    sheaf_checkpoints_close(store);
    return st;
}

/* random_save - OUT/checkpoints/step-N, by a run of one rank. */
static inline sheaf_status *random_save(const char *out, const random_state *state, int keep)
{
    random_save_job job = { out, state, keep };
    return sheaf_comm_run_threads(1, random_save_rank, &job);
}
