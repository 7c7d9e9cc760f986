/* team.c - see team.h. */
#include "models/team.h"

#include "base/status.h"
#include "base/thread.h"
#include "comm/activity.h"
#include "comm/grid.h"
#include "comm/process.h"
#include "models/placement.h"

typedef struct team {
    const sheaf__opened *opened;
    const sheaf__team_options *options;
    sheaf_status *(*body)(void *self, sheaf__model *model);
    void *self;
    sheaf__placement place;
} team;

int sheaf__threads_of(const sheaf_comm *processes, int total, int ranks, int rank)
{
    if (processes != NULL)
        return sheaf__process_threads(processes, total);
    total = sheaf__cores(total);
    const int share = total * (rank + 1) / ranks - total * rank / ranks;
    return share < 1 ? 1 : share;
}

bool sheaf__team_keeps_result(const sheaf__context *context)
{
    return sheaf__is_first(context) || context->own_process;
}

static sheaf_status *team_rank(void *arg, const sheaf__grid *grid)
{
    sheaf_comm *all = grid->all;
    const team *c = arg;
    const sheaf__team_options *o = c->options;
    const int world = sheaf_comm_rank(all), rank = world % o->ranks,
              stage = world / o->ranks % c->place.stages, slices = c->opened->schema->slices;
    sheaf__device *device = NULL;
    sheaf__model *model = NULL;
    sheaf__activity *activity = sheaf_comm_activity(o->all);
    sheaf__grid_record(grid, activity);
    sheaf__activity_phase(activity, "loading");
    int local = world;
    if (o->all != NULL)
        (void)sheaf__process_local(o->all, &local);
    sheaf_status *st = sheaf__device_for(
        &device, o->device, local, o->all != NULL ? 1 : sheaf_comm_ranks(all),
        sheaf__threads_of(o->all, o->threads, sheaf_comm_ranks(all), world), o->isa);
    sheaf__context context = { .device = device,
                               .own_process = o->all != NULL,
                               .comm = grid->stage,
                               .rank = rank,
                               .ranks = o->ranks,
                               .slices = slices,
                               .own = sheaf_owner_slices(slices, o->ranks, rank),
                               .dtype = o->dtype,
                               .stages = c->place.stages,
                               .stage = stage,
                               .head_stage = c->place.head_stage,
                               .world = grid->group,
                               .groups = grid->groups,
                               .group = grid->number,
                               .peers = grid->peers,
                               .activity = activity };
    const sheaf__model_options options = { .lora = c->opened->lora,
                                           .forms = sheaf__opened_forms(c->opened),
                                           .positions = o->positions,
                                           .sequences = o->sequences,
                                           .place = &c->place };
    TRY(st, sheaf__device_order(device, o->sums, o->dtype));
    TRY(st, sheaf__model_new(&model, &context, c->opened->schema, &options));
    st = sheaf_comm_agree(all, st); /* loading may exchange in this rank's group alone */
    TRY(st, sheaf__model_load(model, c->opened->weights, c->opened->adapter));
    st = sheaf_comm_agree(all, st);
    TRY(st, sheaf__opened_check(c->opened, all));
    TRY(st, c->body(c->self, model));
    sheaf__model_free(model);
    sheaf__device_close(device);
    return st;
}

sheaf_status *sheaf__team_run(const sheaf__opened *opened, const sheaf__team_options *options,
                              sheaf_status *(*body)(void *self, sheaf__model *model), void *self)
{
    team c = { .opened = opened, .options = options, .body = body, .self = self };
    if (options->ranks > opened->schema->slices) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "tp");
        sheaf_expected(st, "at most %d, the number of slices", opened->schema->slices);
        return sheaf_found(st, "%d", options->ranks);
    }
    sheaf_status *st =
        sheaf_in(sheaf__placement_read(&c.place, options->place, opened->schema), "place");
    if (st != NULL)
        return st;
    sheaf__balance_note(opened->schema, options->ranks, options->events);
    sheaf__process_settle(options->all, options->threads, options->events);
    return sheaf__grid_run(
        &(sheaf__grid_options){ .processes = options->all,
                                .transport = options->transport,
                                .groups = options->groups > 0 ? options->groups : 1,
                                .stages = c.place.stages,
                                .ranks = options->ranks },
        team_rank, &c);
}
