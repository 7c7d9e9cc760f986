/* rank.c - see rank.h. */
#include "train/rank.h"

#include "base/base.h"
#include "catalog/boxes.h"
#include "comm/process.h"
#include "models/build.h"
#include "models/team.h"
#include "models/rope.h"

int sheaf__accumulators_of(const sheaf_train_options *o)
{
    return o->accumulators > 0 ? o->accumulators : o->method == SHEAF_METHOD_FULL ? 1 : 4;
}

bool sheaf__evaluates(const sheaf_train_options *o)
{
    return (o->eval_data != NULL && o->eval_data[0] != '\0') || o->eval_split > 0;
}

int64_t sheaf__parameters(const sheaf_schema *schema)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (!t->buffer)
            sum += sheaf__elements(t->ndim, t->shape);
    }
    return sum;
}

void sheaf__count_trained(int64_t *trained, int64_t *added, const sheaf__model *model)
{
    *trained = *added = 0;
    for (int i = 0; i < model->trained->count; i++) {
        const sheaf__trained *t = model->trained->item[i];
        const int64_t n = t->shape[0] * t->shape[1] / (t->band > 0 ? 2 : 1);
        *trained += n;
        *added += sheaf_schema_find(model->schema, t->name) == NULL ? n : 0;
    }
}

/* Of the ranks that load, the status of all: what they exchange then they do in their groups. */
static sheaf_status *agree(const sheaf__grid *grid, sheaf_status *st)
{
    return grid == NULL ? st : sheaf_comm_agree(grid->all, st);
}

/* Reward models, each beside the model: weights, and no more until they score. */
static sheaf_status *open_judges(sheaf__rank *out, const sheaf__sampler *sampler,
                                 const sheaf__job *job, const sheaf__grid *grid)
{
    sheaf_status *st = NULL;
    for (int i = 0; sampler != NULL && i < sampler->judges && st == NULL; i++) {
        const sheaf__judge *j = &sampler->judge[i];
        const sheaf__model_options how = { .lora = j->opened->lora,
                                           .forms = sheaf__opened_forms(j->opened),
                                           .positions = j->seq > 0 ? j->positions : job->seq };
        st = sheaf__model_new(&out->judge[i], &out->judging, j->opened->schema, &how);
        st = agree(grid, st);
        if (st == NULL && grid != NULL)
            st = sheaf__model_load(out->judge[i], j->opened->weights, j->opened->adapter);
        st = agree(grid, st);
    }
    return st;
}

/* Of a plan: what loading takes beside the model for factors that are made of its weights. */
static sheaf_status *plan_start(sheaf__model *model)
{
    const size_t bytes = sheaf__model_start_bytes(model);
    void *room = NULL;
    sheaf_status *st =
        bytes == 0 ? NULL
                   : sheaf__host_alloc(&room, model->context->device, bytes, SHEAF_MEM_SCRATCH);
    sheaf__host_free(model->context->device, room);
    return st;
}

sheaf_status *sheaf__rank_open(sheaf__rank *out, const sheaf__grid *grid, int rank,
                               const sheaf__job *job)
{
    const sheaf_train_options *o = job->options;
    const int world = grid == NULL ? rank : sheaf_comm_rank(grid->all),
              threads = sheaf__threads_of(grid == NULL ? NULL : grid->processes, o->threads,
                                          o->tp * o->dp, world);
    const sheaf__device_class *class;
    *out = (sheaf__rank){ 0 };
    int local = world;
    sheaf_status *st = sheaf__device_find(&class, o->device);
    if (grid != NULL && grid->processes != NULL)
        (void)sheaf__process_local(grid->processes, &local);
    TRY(st, grid == NULL
                ? sheaf__device_plan(&out->device, class, threads, o->isa)
                : sheaf__device_for(&out->device, o->device, local,
                                    grid->processes != NULL ? 1 : o->tp * o->dp, threads, o->isa));
    TRY(st, sheaf__device_order(out->device, o->sums, o->dtype));
    if ((st = agree(grid, st)) != NULL)
        return st;
    out->context = (sheaf__context){ .device = out->device,
                                     .own_process = grid != NULL && grid->processes != NULL,
                                     .comm = grid == NULL ? NULL : grid->group,
                                     .rank = world % o->tp,
                                     .ranks = o->tp,
                                     .slices = o->slices,
                                     .own = sheaf_owner_slices(o->slices, o->tp, world % o->tp),
                                     .dtype = o->dtype,
                                     .groups = o->dp,
                                     .group = world / o->tp,
                                     .peers = grid == NULL ? NULL : grid->peers };
    if (grid == NULL) {
        if (o->tp > 1)
            st = sheaf_comm_dry_new(&out->dry[0], out->context.rank, o->tp);
        if (st == NULL && o->dp > 1)
            st = sheaf_comm_dry_new(&out->dry[1], out->context.group, o->dp);
        out->context.comm = out->dry[0];
        out->context.peers = out->dry[1];
    }
    out->judging = out->context;
    unsigned offloads = 0;
    TRY(st, sheaf__offloads(&offloads, o->offload));
    out->offloads = offloads != 0;
    const bool given = o->offload_dir != NULL && o->offload_dir[0] != '\0';
    const int64_t judged = job->eval.data == NULL ? 0 : sheaf__subset_longest(&job->eval);
    const int64_t mixed = !job->objective.mismatched ? 0
                          : job->train.data == NULL  ? 2 * job->seq
                                                     : sheaf_data_mixed_most(job->train.data),
                  longest = job->seq > mixed ? job->seq : mixed;
    const sheaf__model_options model = { .lora = job->lora,
                                         .train_lora = true,
                                         .trains = job->selection != NULL ? sheaf__selected : NULL,
                                         .self = (void *)job->selection,
                                         .forms = job->forms,
                                         .divided = o->method != SHEAF_METHOD_LORA,
                                         .eight_bits = o->optimizer == SHEAF_OPTIMIZER_ADAMW8BIT,
                                         .backward = true,
                                         .away = offloads & SHEAF__OFFLOADS_WEIGHTS,
                                         .moments_away = offloads & SHEAF__OFFLOADS_MOMENTS,
                                         .activations_away = offloads & SHEAF__OFFLOADS_ACTIVATIONS,
                                         .folder = given           ? o->offload_dir
                                                   : class->shared ? (o->out == NULL ? "." : o->out)
                                                                   : NULL,
                                         .positions = longest > judged ? longest : judged,
                                         .seed = o->seed };
    if (st == NULL && o->dtype == SHEAF_F16) {
        sheaf__scaler_options scale;
        st = sheaf__scaler_options_read(&scale, o->loss_scale, o->loss_scale_init,
                                        o->loss_scale_window, o->loss_scale_hysteresis,
                                        o->loss_scale_min);
        sheaf__scaler_init(&out->scaler, &scale);
    }
    const sheaf__step_options step = { .run = o,
                                       .seq = job->seq,
                                       .mixed = mixed,
                                       .each = job->each,
                                       .accumulators = sheaf__accumulators_of(o),
                                       .scaler = o->dtype == SHEAF_F16 ? &out->scaler : NULL,
                                       .plans = grid == NULL,
                                       .sampler = grid == NULL ? NULL : job->sampler,
                                       .judge = out->judge,
                                       .objective = &job->objective };
    TRY(st, sheaf__model_new(&out->model, &out->context, job->schema, &model));
    if (st == NULL && job->selection != NULL)
        sheaf__learning_set(out->model->trained, job->selection);
    st = agree(grid, st);
    if (st == NULL && grid != NULL)
        st = sheaf__model_load(out->model, job->base,
                               job->objective.base || job->objective.folder != NULL ? NULL
                                                                                    : job->adapter);
    st = agree(grid, st);
    if (st == NULL && grid == NULL && !sheaf__is_given(o->adapter))
        st = plan_start(out->model);
    TRY(st, open_judges(out, job->sampler, job, grid));
    return st == NULL ? sheaf__stepper_new(&out->stepper, out->model, &job->train, &step) : st;
}

void sheaf__rank_close(sheaf__rank *rank)
{
    sheaf__stepper_free(rank->stepper);
    for (int i = 0; i < SHEAF__MOST_JUDGES; i++)
        sheaf__model_free(rank->judge[i]);
    sheaf__model_free(rank->model);
    sheaf__device_close(rank->device);
    sheaf_comm_dry_free(rank->dry[0]);
    sheaf_comm_dry_free(rank->dry[1]);
    free(rank->reference[0].row); /* all of them */
    *rank = (sheaf__rank){ 0 };
}
