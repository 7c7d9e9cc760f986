/* crew.c - see crew.h. */
#include "models/crew.h"

#include <sched.h>

#include "models/balance.h"

typedef struct crew {
    const sheaf__opened *opened;
    const sheaf__crew_options *options;
    sheaf_status *(*body)(void *self, sheaf__model *model);
    void *self;
} crew;

int sheaf__threads_of(int total, int ranks, int rank)
{
    if (total <= 0) {
        cpu_set_t set;
        total = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    const int share = total * (rank + 1) / ranks - total * rank / ranks;
    return share < 1 ? 1 : share;
}

static sheaf_status *crew_rank(void *arg, sheaf_comm *comm)
{
    const crew *c = arg;
    const sheaf__crew_options *o = c->options;
    const int rank = sheaf_comm_rank(comm), slices = c->opened->schema->slices;
    sheaf__device *device = NULL;
    sheaf__model *model = NULL;
    sheaf_status *st = sheaf__device_open(&device, SHEAF_CPU, sheaf__threads_of(o->threads, o->ranks, rank), o->isa, 0);
    sheaf__context context = { .device = device, .comm = o->ranks == 1 ? NULL : comm, .rank = rank, .ranks = o->ranks,
                               .slices = slices, .own = sheaf_owner_slices(slices, o->ranks, rank), .dtype = o->dtype };
    const sheaf__model_options options = { .lora = c->opened->lora, .positions = o->positions };
    if (st == NULL)
        st = sheaf__model_new(&model, &context, c->opened->schema, &options);
    if (st == NULL)
        st = sheaf__model_load(model, c->opened->weights, c->opened->adapter);
    st = sheaf_comm_agree(comm, st);
    if (st == NULL)
        st = c->body(c->self, model);
    sheaf__model_free(model);
    sheaf__device_close(device);
    return st;
}

sheaf_status *sheaf__crew_run(const sheaf__opened *opened, const sheaf__crew_options *options,
                              sheaf_status *(*body)(void *self, sheaf__model *model), void *self)
{
    if (options->ranks > opened->schema->slices) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--tp");
        sheaf_expected(st, "at most %d, the number of slices", opened->schema->slices);
        return sheaf_found(st, "%d", options->ranks);
    }
    sheaf__balance_note(opened->schema, options->ranks, options->events);
    crew c = { opened, options, body, self };
    return sheaf_comm_run_threads(options->ranks, crew_rank, &c);
}
