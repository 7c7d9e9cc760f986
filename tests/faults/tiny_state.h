/* tiny_state.h - a small training state with every kind of tensor, for tests that save it.
 *
 * Four slices; a value depends on (seed, tensor, element) alone. A rank holds its own
 * slices in its own memory, as in training. */
#pragma once

#include <inttypes.h>

#include "checkpoint/store/checkpoint.h"
#include "tests/faults/faults.h"
#include "tests/faults/folder.h"

enum { TINY_SLICES = 4, TINY_TENSORS = 6, TINY_CAPACITY = 64 };

typedef struct tiny_kind {
    const char *name;
    int ndim;
    int64_t shape[2];
    sheaf_cut cut;
} tiny_kind;

static const tiny_kind tiny_kinds[TINY_TENSORS] = {
    { "master/rows", 2, { 6, 5 }, { 0, TINY_SLICES, 1, { { 3, 2 } } } }, /* slice 0 is empty */
    { "master/columns", 2, { 3, 7 }, { 1, TINY_SLICES, 1, { { 7, 1 } } } },
    { "master/fused", 2, { 12, 3 }, { 0, TINY_SLICES, 3, { { 4, 1 }, { 2, 2 }, { 2, 2 } } } },
    { "master/bias", 1, { 9, 1 }, { 0, TINY_SLICES, 1, { { 9, 1 } } } },
    { "master/norm", 1, { 5, 1 }, { 0 } },
    { "exp_avg/norm", 1, { 5, 1 }, { 0 } },
};

/* Tensors in a different order than their names, on purpose. */
typedef struct tiny_state {
    sheaf_cut cut[TINY_TENSORS];
    sheaf_state_tensor tensor[TINY_TENSORS];
    float *slice[TINY_TENSORS][TINY_SLICES];
    float data[TINY_TENSORS][TINY_SLICES][TINY_CAPACITY];
    char progress[80];
    sheaf_state state;
} tiny_state;

static inline float tiny_value(int seed, int tensor, int64_t row, int64_t col)
{
    return (float)(seed * 1000003 + tensor * 10007 + row * 101 + col) / 7.0f;
}

static inline int tiny_owns(int ranks, int rank, int slice)
{
    const sheaf_range own = sheaf_owner_slices(TINY_SLICES, ranks, rank);
    return slice >= own.begin && slice < own.end;
}

/* Calls with (element of the slice's buffer, row, column of the undivided tensor). */
static inline void tiny_fill_slice(float *out, int seed, int index, int slice)
{
    const tiny_kind *k = &tiny_kinds[index];
    bool mine[16] = { false };
    const int axis = k->cut.axis;
    for (int p = 0; p < k->cut.nparts; p++) {
        sheaf_range rows;
        CHECK_OK(sheaf_cut_rows(&rows, &k->cut, p, slice));
        for (int64_t r = rows.begin; r < rows.end; r++)
            mine[r] = true;
    }
    for (int64_t r = 0; r < k->shape[0]; r++)
        for (int64_t c = 0; c < k->shape[1]; c++)
            if (k->cut.nparts == 0 || mine[axis == 0 ? r : c])
                *out++ = tiny_value(seed, index, r, c);
}

/* seed < 0: buffers of NaN, to be loaded into. */
static inline void tiny_init(tiny_state *t, int seed, int64_t step, int ranks, int rank)
{
    for (int i = 0; i < TINY_TENSORS; i++) {
        const tiny_kind *k = &tiny_kinds[i];
        t->cut[i] = k->cut;
        for (int s = 0; s < TINY_SLICES; s++) {
            const int replicated = k->cut.nparts == 0;
            t->slice[i][s] = replicated ? (s == 0 ? t->data[i][s] : NULL)
                                        : (tiny_owns(ranks, rank, s) ? t->data[i][s] : NULL);
            for (int j = 0; j < TINY_CAPACITY; j++)
                t->data[i][s][j] = NAN;
            if (seed >= 0 && t->slice[i][s] != NULL)
                tiny_fill_slice(t->data[i][s], seed, i, s);
        }
        t->tensor[i] = (sheaf_state_tensor){ k->name,
                                             k->ndim,
                                             { k->shape[0], k->shape[1] },
                                             k->cut.nparts == 0 ? NULL : &t->cut[i],
                                             t->slice[i] };
    }
    snprintf(t->progress, sizeof t->progress, "{\"step\": %" PRId64 ", \"seed\": %d, \"lr\": 0.1}",
             step, seed);
    t->state = (sheaf_state){ TINY_SLICES, step, TINY_TENSORS, t->tensor, t->progress };
}

/* Do the buffers of this rank hold the values of `seed`, bit for bit? */
static inline int tiny_equal(const tiny_state *t, int seed, int ranks, int rank)
{
    static _Thread_local tiny_state want;
    tiny_init(&want, seed, 0, ranks, rank);
    return memcmp(t->data, want.data, sizeof want.data) == 0;
}

/* ---- saving and loading on thread ranks ---- */

typedef struct tiny_run {
    const char *out;
    int seed, ranks, keep;
    bool groups; /* rank s mod ranks writes slice s, as with data-parallel groups of one rank */
    int64_t step;
    sheaf_faults *faults;
    const sheaf_events *events;
    int spoil; /* which disagreement a rank brings in */
    sheaf_status *(*check)(void *context, const sheaf_checkpoint *checkpoint);
    int64_t found_step;
} tiny_run;

static inline sheaf_status *tiny_save_rank(void *context, sheaf_comm *comm)
{
    tiny_run *run = context;
    static _Thread_local tiny_state t;
    sheaf_checkpoints *store = NULL;
    int writer[TINY_SLICES];
    for (int s = 0; s < TINY_SLICES; s++)
        writer[s] = s % sheaf_comm_ranks(comm);
    tiny_init(&t, run->seed, run->step, run->groups ? 1 : sheaf_comm_ranks(comm),
              run->groups ? 0 : sheaf_comm_rank(comm));
    for (int i = 0; i < TINY_TENSORS && run->groups; i++)
        for (int s = 0; s < TINY_SLICES; s++)
            if (tiny_kinds[i].cut.nparts > 0 && writer[s] != sheaf_comm_rank(comm))
                t.slice[i][s] = NULL; /* others have it too; this rank need not */
    if (sheaf_comm_rank(comm) == 1 && run->spoil == 1)
        strcpy(t.progress, "{\"step\": 99}");
    if (sheaf_comm_rank(comm) == 1 && run->spoil == 2)
        t.tensor[1].name = "master/other";
    if (sheaf_comm_rank(comm) == 1 && run->spoil == 3)
        t.data[4][0][3] += 1.0f; /* a replicated tensor */
    if (run->spoil == 6)         /* on every rank: the first two by name */
        t.tensor[0].name = t.tensor[1].name = "a";
    if (sheaf_comm_rank(comm) == 1 && run->spoil == 4)
        memset(t.slice[0], 0, sizeof t.slice[0]);
    sheaf_status *st = sheaf_checkpoints_open(
        &store, comm, run->out,
        &(sheaf_checkpoints_options){
            .keep = run->keep, .events = run->events, .writer = run->groups ? writer : NULL });
    if (st == NULL)
        st = sheaf_checkpoints_save(store, comm, &t.state);
    sheaf_checkpoints_close(store);
    return st;
}

static inline sheaf_status *tiny_save(const tiny_run *run)
{
    return UNDER(run->faults, sheaf_comm_run_threads(run->ranks, tiny_save_rank, (void *)run));
}

/* Loads the newest and checks that it is the state of seed == step; found_step 0: none. */
static inline sheaf_status *tiny_load_rank(void *context, sheaf_comm *comm)
{
    tiny_run *run = context;
    static _Thread_local tiny_state t;
    sheaf_checkpoints *store = NULL;
    sheaf_checkpoint *newest = NULL;
    const int ranks = sheaf_comm_ranks(comm), rank = sheaf_comm_rank(comm);
    sheaf_status *st = sheaf_checkpoints_open(
        &store, comm, run->out,
        &(sheaf_checkpoints_options){ .keep = run->keep, .events = run->events });
    tiny_init(&t, -1, 0, ranks, rank);
    if (rank == 2 && run->spoil == 5)
        t.tensor[1].name = "master/other";
    if (st == NULL)
        st = sheaf_checkpoints_load_latest(&newest, store, comm, &t.state, run->check, NULL);
    if (st == NULL && newest != NULL) {
        const int step = (int)newest->manifest->step;
        if (!tiny_equal(&t, step, ranks, rank))
            st = sheaf_fail(SHEAF_E_NUMBER, "the values of step %d are wrong", step);
        if (rank == 0)
            run->found_step = step;
    }
    st = sheaf_comm_agree(comm, st);
    sheaf_checkpoint_close(newest);
    sheaf_checkpoints_close(store);
    return st;
}

static inline sheaf_status *tiny_load(tiny_run *run)
{
    run->found_step = 0;
    return sheaf_comm_run_threads(run->ranks, tiny_load_rank, run);
}
