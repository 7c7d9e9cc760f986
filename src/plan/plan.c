/* plan.c - see plan.h. */
#include "plan/plan.h"

#include "base/base.h"
#include "catalog/boxes.h"
#include "catalog/quantising.h"
#include "checkpoint/store/checkpoint.h"
#include "infer/batch_rows.h"
#include "models/build.h"
#include "models/rope.h"
#include "models/team.h"
#include "tape/moments.h"

const char *sheaf_plan_kind(sheaf_memory kind)
{
    return sheaf__memory_key(kind);
}

const char *sheaf_plan_component(sheaf_component component)
{
    static const char *const name[SHEAF_PLAN_COMPONENTS] = {
        "text", "embeddings", "vit", "adapter", "experts", "tower", "cross_attention"
    };
    return name[component];
}

int64_t sheaf_plan_seq(const sheaf_config *config)
{
    const int64_t image = sheaf__image_positions(config);
    if (image > 0)
        return image + 256;
    return config->max_position < 4096 ? config->max_position : 4096;
}

size_t sheaf_plan_fullest(const sheaf_plan *plan)
{
    size_t most = 0;
    for (int r = 0; r < plan->ranks; r++)
        most = plan->rank[r].peak > most ? plan->rank[r].peak : most;
    return most;
}

double sheaf_plan_sent(const sheaf_plan_rank *rank)
{
    return rank->sent + (double)rank->exchange[SHEAF__TRAFFIC_GRADIENTS].sent +
           (double)rank->exchange[SHEAF__TRAFFIC_WEIGHTS].sent;
}

/* ---- memory by component ---- */

static void count_components(sheaf_plan_rank *out, const sheaf__model *model)
{
    const sheaf__trained_set *set = model->trained;
    const sheaf__family *family = sheaf__family_for(&model->schema->config);
    for (int64_t i = 0; i < model->nblocks; i++) {
        sheaf_memory kind;
        const sheaf__block *b = &model->block[i];
        const size_t size =
            (b->host ? sheaf__host_size : sheaf__device_size)(model->context->device, b->at, &kind);
        out->component[sheaf__family_component(family, b->name)][kind] += size;
    }
    for (int i = 0; i < set->count; i++) {
        const sheaf__trained *t = set->item[i];
        size_t *bytes = out->component[sheaf__family_component(family, t->name)],
               mine[SHEAF_MEM_KINDS] = { 0 };
        const bool copy = sheaf_schema_find(model->schema, t->name) != NULL;
        for (int s = t->first; s < t->first + t->count; s++) {
            const size_t one = (size_t)t->numel[s] * sizeof(float);
            mine[SHEAF_MEM_GRADIENTS] += one * (size_t)set->nsums;
            if (!sheaf__trained_keeps(set, t, s))
                continue;
            mine[SHEAF_MEM_TRAINED] += one;
            if (!sheaf__trained_away(set, t))
                mine[SHEAF_MEM_OPTIMIZER] += t->eight ? sheaf__trained8_bytes(t, s) : 2 * one;
        }
        for (int k = 0; k < SHEAF_MEM_KINDS; k++) {
            bytes[k] += mine[k];
            out->copies[k] += copy ? mine[k] : 0;
        }
    }
}

/* ---- the plan ---- */

static void exchanged(sheaf__count out[SHEAF__TRAFFICS], const sheaf__costs *before,
                      const sheaf__costs *after)
{
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        const sheaf__count world = sheaf__count_since(&after->world.of[t], &before->world.of[t]),
                           peers = sheaf__count_since(&after->peers.of[t], &before->peers.of[t]);
        out[t] = sheaf__count_since(&after->comm.of[t], &before->comm.of[t]);
        sheaf__count_add(&out[t], &world);
        sheaf__count_add(&out[t], &peers);
    }
}

/* Bytes by rank of all, in groups of `tp`: those of its group, and of its peers in others. */
static void by_peer(uint64_t out[SHEAF_MAX_SLICES], const sheaf__costs *before,
                    const sheaf__costs *after, int rank, int tp)
{
    memset(out, 0, SHEAF_MAX_SLICES * sizeof *out);
    for (int p = 0; p < tp; p++)
        out[rank - rank % tp + p] += after->comm.to[p] - before->comm.to[p];
    for (int g = 0; g < SHEAF_MAX_SLICES / tp; g++)
        out[rank % tp + g * tp] += after->peers.to[g] - before->peers.to[g];
}

static void note_rank(sheaf_plan_rank *out, const sheaf__model *model)
{
    static const sheaf__costs nothing;
    const sheaf__device *device = model->context->device;
    sheaf__costs all;
    sheaf__costs_of(&all, model->context);
    memcpy(out->bytes, device->at_peak, sizeof out->bytes);
    out->peak = device->peak;
    out->flops = device->flops;
    out->sent = sheaf__costs_sent(&all);
    exchanged(out->exchange, &nothing, &all);
    count_components(out, model);
}

/* Micro-batches with the fewest images that the data can give, with few, and with the most. Images
 * cost two streams of rows once, and a linear amount each, so no other number needs more. Returns
 * their count. */
static int choose_images(sheaf_batch_images of[3], const sheaf__subset *subset, int64_t rows)
{
    const int64_t longest = sheaf__subset_longest(subset);
    sheaf_batch_images fewest, most;
    int n = 0;
    sheaf_data_images_range(&fewest, &most, subset->data, rows);
    fewest.seq = fewest.seq < longest ? fewest.seq : longest;
    most.seq = most.seq < longest ? most.seq : longest;
    const int64_t groups = most.pictures.groups;
    if (fewest.pictures.images < most.pictures.images)
        of[n++] = fewest;
    if (fewest.pictures.groups == 0 && groups > 1) { /* one of them: a picture, or some frames */
        sheaf_batch_images *few = &of[n++];
        *few = (sheaf_batch_images){ .pictures = { .images = most.pictures.images / groups,
                                                   .groups = 1 },
                                     .image_rows = most.image_rows / groups,
                                     .seq = longest };
        for (int t = 0; t < SHEAF__MOST_TOWERS; t++) {
            few->pictures.patches[t] = most.pictures.patches[t] / groups;
            few->pictures.behind[t] = most.pictures.behind[t] / groups;
        }
    }
    of[n++] = most;
    for (int i = 0; i < n; i++)
        of[i].read = sheaf_data_read_most(subset->data, rows, sheaf__subset_rows(subset));
    return n;
}

static sheaf_status *run_generation(sheaf__model *model, const sheaf_plan_generation *g);
static sheaf_status *run_evaluation(sheaf__model *model, const sheaf__subset *subset,
                                    const sheaf_batch_images *each, int64_t rows, int64_t seq,
                                    bool padded);

/* Completions of a batch of `rows` of `data` (NULL: not known), `each` of a prompt, of which the
 * group makes its share. */
static sheaf_status *run_answers(const sheaf__rank *held, const sheaf__job *job,
                                 const sheaf_data *data, int64_t rows, int64_t each)
{
    const sheaf_range own = sheaf__share_of(rows, &held->context, held->context.group);
    const int64_t all = own.end - own.begin,
                  batch = all < SHEAF__SAMPLED_TOGETHER ? all : SHEAF__SAMPLED_TOGETHER,
                  whole = own.begin % each == 0 && all == batch,
                  most = (batch + each - 2 + whole) / each + 1 - whole; /* prompts that meet */
    const int64_t distinct = sheaf__rope_follows_length(&job->schema->config) ? batch : most;
    sheaf_batch_images fewest, fullest = { .seq = 0 };
    if (data != NULL)
        sheaf_data_images_range(&fewest, &fullest, data, distinct);
    return all == 0
               ? NULL
               : run_generation(held->model,
                                &(sheaf_plan_generation){
                                    .batch = batch,
                                    .distinct = distinct,
                                    .seq = job->seq,
                                    .pictures = fullest.pictures,
                                    .prompt = job->seq - job->options->objective.group.max_new });
}

/* Between two steps: the completions of a batch, and of an evaluation. */
static sheaf_status *run_sampling(const sheaf__rank *held, const sheaf__job *job)
{
    const sheaf_train_options *o = job->options;
    const int64_t rows = o->micro_batch * o->accumulate,
                  held_out = job->eval.data == NULL ? 0 : sheaf__subset_rows(&job->eval);
    sheaf_status *st = run_answers(held, job, job->train.data, rows, sheaf__sets_generations(o));
    TRY(st, run_answers(held, job, job->eval.data, rows < held_out ? rows : held_out, 1));
    for (int i = 0; job->sampler != NULL && i < job->sampler->judges; i++) {
        const int64_t seq = job->sampler->judge[i].seq;
        TRY(st, run_evaluation(held->judge[i], &(sheaf__subset){ 0 }, NULL, o->micro_batch,
                               seq > 0 ? seq : job->seq, false));
    }
    return st;
}

/* Two steps, as what one leaves in the device's memory lies beside what the next one samples. */
static sheaf_status *run_sampled(sheaf__costs *before, sheaf__rank *held, const sheaf__job *job)
{
    const sheaf_train_options *o = job->options;
    const int64_t most = o->objective.group.max_new + 2 * (SHEAF_DATA_READ_UNIT - 1);
    sheaf__step_result unused;
    sheaf_batch_images of[3] = { { .seq = 0 } };
    const int n = job->train.data == NULL ? 1 : choose_images(of, &job->train, o->micro_batch);
    sheaf_status *st = NULL;
    for (int i = 0; i < 2 * n; i++) {
        of[i / 2].seq = job->seq;
        of[i / 2].read = o->micro_batch * most;
        sheaf__stepper_hold(held->stepper, of[i / 2]);
        TRY(st, run_sampling(held, job));
        sheaf__costs_of(before, &held->context);
        TRY(st, sheaf__stepper_run(&unused, held->stepper, 0, 0));
    }
    return st;
}

/* before: counts before the last of the steps. */
static sheaf_status *run_steps(sheaf__costs *before, sheaf__rank *held, const sheaf__job *job)
{
    sheaf__step_result unused;
    sheaf_batch_images of[3];
    if (sheaf__sets_samples(job->options))
        return run_sampled(before, held, job);
    if (job->train.data == NULL)
        return sheaf__stepper_run(&unused, held->stepper, 0, 0);
    const int n = choose_images(of, &job->train, job->options->micro_batch);
    sheaf_status *st = NULL;
    for (int i = 0; i < n && st == NULL; i++) {
        if (job->objective.prompts) /* the head reads all rows */
            of[i].read = 0;
        sheaf__costs_of(before, &held->context);
        sheaf__stepper_hold(held->stepper, of[i]);
        st = sheaf__stepper_run(&unused, held->stepper, 0, 0);
    }
    return st;
}

static sheaf_status *unheard(void *self, int64_t row0, const int32_t *row, int64_t n,
                             const float *logits)
{
    return NULL;
}

/* Micro-batches of an evaluation, as sheaf__evaluate() runs them; subset->data NULL: not known,
 * rows of `seq` positions, with images as `each` says (sheaf__runner_options). */
static sheaf_status *run_evaluation(sheaf__model *model, const sheaf__subset *subset,
                                    const sheaf_batch_images *each, int64_t rows, int64_t seq,
                                    bool padded)
{
    sheaf__runner runner;
    sheaf_batch_images of[3];
    const int n = subset->data == NULL ? 1 : choose_images(of, subset, rows);
    sheaf_status *st = sheaf__runner_open(
        &runner, model, subset->data,
        &(sheaf__runner_options){
            .rows = rows, .seq = seq, .longest = !padded, .each = each, .plans = true });
    runner.head.all_rows = padded;
    runner.head.judge = true;
    runner.head.take = padded ? unheard : NULL;
    for (int i = 0; i < n && st == NULL; i++) {
        if (subset->data != NULL)
            runner.holds = of[i];
        st = sheaf__runner_run(&runner, NULL);
    }
    sheaf__runner_release(&runner);
    return st;
}

/* The evaluations of a run. */
static sheaf_status *run_judging(const sheaf__rank *held, const sheaf__job *job)
{
    const sheaf__subset *eval = &job->eval;
    const int64_t most = job->options->micro_batch,
                  rows = eval->data == NULL ? most : sheaf__subset_rows(eval);
    return sheaf__evaluates(job->options)
               ? run_evaluation(held->model, eval, job->each, rows < most ? rows : most,
                                eval->data == NULL ? job->seq : sheaf__subset_longest(eval), false)
               : NULL;
}

/* Trained tensors, and their slices that are not empty, as all ranks record them. */
typedef struct records {
    size_t tensors, slices;
    size_t away;     /* bytes that --offload keeps elsewhere, */
    size_t host;     /* and of the host's memory that it takes */
    int64_t threads; /* of all ranks */
} records;

static void add_records(records *to, const sheaf__trained_set *set)
{
    to->tensors += (size_t)set->count;
    for (int i = 0; i < set->count; i++) {
        const sheaf__trained *t = set->item[i];
        for (int s = t->first; s < t->first + t->count; s++)
            to->slices += t->numel[s] > 0;
    }
}

/* Of moments some goes through the host's memory, where they lie in a file. */
static void add_away(records *to, const sheaf__rank *held)
{
    const sheaf__trained_set *set = held->model->trained;
    const sheaf__offload *of[] = { held->model->away, sheaf__moments_offload(set->moments),
                                   held->model->activations };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        to->away += of[i] == NULL ? 0 : sheaf__offload_bytes(of[i]);
        to->host += of[i] == NULL ? 0 : sheaf__offload_host(of[i]);
    }
    to->host += sheaf__moments_host(set, (size_t)SHEAF__STATE_PIECE);
}

/* Of an objective that learns from rewards: bytes of a rank outside its device for the completions
 * of a batch. They are kept twice, as a step learns from one batch while the next is made, and
 * once as a text of up to 7 bytes an id and 22 a log-probability, which the first rank copies as it
 * grows. */
static size_t completions_bytes(const sheaf__rank *held, const sheaf__job *job)
{
    const sheaf_train_options *o = job->options;
    const sheaf__objective *objective = &job->objective;
    const bool samples = sheaf__sets_samples(o);
    const int old = samples || objective->group.iterations > 1 ||
                    (objective->group.leave_one_out && objective->reference),
              texts = sheaf__is_first(&held->context) ? 2 : 1;
    const double rows = (double)o->micro_batch * (double)o->accumulate, seq = (double)job->seq,
                 most = (double)o->objective.group.max_new,
                 arrays = sizeof(float) * seq * (old + objective->reference),
                 answer = 2 * sizeof(float) * most, row = 5 * seq + 4 * most,
                 text = 7 * seq + 22 * most,
                 chooser = 2 * sizeof(float) * (double)job->schema->config.vocab;
    if (!objective->grouped)
        return 0;
    return (size_t)(rows * arrays +
                    (samples ? rows * (answer + 2 * row + texts * text) + chooser : 0));
}

/* One pinned block serves all groups of a rank. */
static size_t pinned_bytes(const sheaf__device *device, sheaf_transport transport,
                           const sheaf_comm *one, const sheaf_comm *other)
{
    if (transport != SHEAF_TRANSPORT_MPI || device->planned->peers == NULL)
        return 0;
    const size_t a = sheaf_comm_pinned(one), b = sheaf_comm_pinned(other);
    return a > b ? a : b;
}

enum { OF_TENSOR = 10240 }; /* see host_bytes() */

static sheaf_status *plan_rank(sheaf_plan_rank *out, sheaf_plan *plan, records *trained,
                               const sheaf__job *job, int rank)
{
    sheaf__rank held;
    sheaf__costs before = { 0 }, after = { 0 };
    sheaf_status *st = sheaf__rank_open(&held, NULL, rank, job);
    TRY(st, run_steps(&before, &held, job));
    if (st == NULL) {
        sheaf__costs_of(&after, &held.context);
        st = run_judging(&held, job);
    }
    if (st == NULL) {
        note_rank(out, held.model);
        for (int i = 0; i < SHEAF__MOST_JUDGES && held.judge[i] != NULL; i++) {
            count_components(out, held.judge[i]);
            trained->host += (size_t)held.judge[i]->schema->count * OF_TENSOR;
        }
        out->flops = after.flops - before.flops;
        out->sent = sheaf__costs_sent(&after) - sheaf__costs_sent(&before);
        exchanged(out->exchange, &before, &after);
        by_peer(out->sent_to, &before, &after, rank, job->options->tp);
        sheaf__count_trained(&plan->trained, &plan->added, held.model);
        add_records(trained, held.model->trained);
        trained->threads += held.device->threads;
        add_away(trained, &held);
        trained->host += completions_bytes(&held, job);
        if (!held.device->planned->shared && !sheaf__is_given(job->options->adapter))
            trained->host += sheaf__model_start_bytes(held.model);
        trained->host +=
            pinned_bytes(held.device, job->options->transport, held.dry[0], held.dry[1]);
    }
    sheaf__rank_close(&held);
    return st;
}

sheaf_status *sheaf_plan_step(sheaf__count exchange[SHEAF__TRAFFICS], uint64_t *sent_to,
                              sheaf__work *work, const sheaf__job *job, int rank, int64_t done)
{
    sheaf__rank held;
    sheaf__costs before = { 0 }, after = { 0 };
    sheaf__step_result unused;
    sheaf_status *st = sheaf__rank_open(&held, NULL, rank, job);
    if (st == NULL) {
        sheaf__stepper_follow(held.stepper);
        sheaf__costs_of(&before, &held.context);
        held.context.work = work;
        st = sheaf__stepper_run(&unused, held.stepper, done, 0);
        sheaf__costs_of(&after, &held.context);
        exchanged(exchange, &before, &after);
        if (sent_to != NULL)
            by_peer(sent_to, &before, &after, rank, job->options->tp);
    }
    if (st == NULL && work != NULL)
        work->trained = (double)held.model->trained->numel;
    sheaf__rank_close(&held);
    return st;
}

/* Memory of all threads while they load codes. */
static size_t codes_room(const sheaf_schema *schema, sheaf_source *forms, int64_t threads)
{
    size_t most = 0;
    for (int64_t i = 0; forms != NULL && i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const sheaf__quant *q = sheaf__source_form(forms, t->name);
        const size_t room = q == NULL ? 0 : sheaf__codes_room(q, t->shape[0], t->shape[1], threads);
        most = room > most ? room : most;
    }
    return most;
}

/* Memory of a process outside its devices, measured over small and large settings, models of four
 * to 64 layers, one to 64 slices and up to 16 ranks (tests/soak_plan.sh has some of them): on every
 * rank records of tensors and of the ops that read them, of its trained tensors with a list of all
 * slices and the offsets of its own; allocator arenas, stacks of threads, buffers of files being
 * written; and a 256th of the rest, to err on the safe side. */
static size_t host_bytes(const sheaf_schema *schema, int nranks, records trained, size_t devices,
                         size_t data_bytes)
{
    enum {
        BESIDE = 2688 << 10,
        OF_RANK = 352 << 10,
        OF_TRAINED = 8704,
        OF_TRAINED_EACH = 80, /* slice of the model */
        OF_HELD = 1408
    };
    /* A mixture has three more layers for each expert; other layers are in the measured bytes. */
    const size_t tensors =
        (size_t)schema->count + (size_t)(3 * schema->config.num_experts * schema->config.layers);
    const size_t pictures = sheaf__image_positions(&schema->config) > 0
                                ? (size_t)1 << 20
                                : 0; /* of the libraries that read them */
    return data_bytes + pictures + BESIDE + (size_t)nranks * (OF_RANK + tensors * OF_TENSOR) +
           trained.tensors * (OF_TRAINED + OF_TRAINED_EACH * (size_t)schema->slices) +
           trained.slices * OF_HELD + devices / 256;
}

/* A data set has already refused rows that do not fit. */
static sheaf_status *check_seq(const sheaf_config *config, int64_t seq,
                               const sheaf__picture_counts *pictures)
{
    const int64_t all = sheaf__counts_positions(config, pictures), images = pictures->images,
                  image = images > 0 ? all / images : 0;
    if (seq > all)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`seq`, the positions of a row");
    if (images == 1)
        sheaf_expected(st, "at least %" PRId64 ": an image takes %" PRId64 " tokens of its row",
                       image + 1, image);
    else
        sheaf_expected(st, "at least %" PRId64 ": %" PRId64 " images take %" PRId64 " tokens each",
                       image * images + 1, images, image);
    sheaf_found(st, "%" PRId64, seq);
    return sheaf_try_this(st,
                          "more by what the texts need, or `images` with fewer or smaller ones");
}

sheaf_status *sheaf_plan_train(sheaf_plan *out, const sheaf__job *job, size_t data_bytes)
{
    *out = (sheaf_plan){ .ranks = job->options->tp * job->options->dp,
                         .parameters = sheaf__parameters(job->schema) };
    records trained = { 0 };
    const sheaf__picture_counts ordinary = sheaf__counts_ordinary(&job->schema->config, 1);
    if (job->options->dp > SHEAF_MAX_SLICES / job->options->tp)
        return sheaf_expected(
            sheaf_fail(SHEAF_E_ARG, "tp %d, dp %d", job->options->tp, job->options->dp),
            "at most %d ranks in all", SHEAF_MAX_SLICES);
    sheaf_status *st = job->train.data == NULL
                           ? check_seq(&job->schema->config, job->seq,
                                       job->each == NULL ? &ordinary : &job->each->pictures)
                           : NULL;
    for (int r = 0; r < out->ranks && st == NULL; r++) {
        st = sheaf_in(plan_rank(&out->rank[r], out, &trained, job, r), "rank %d of %d", r,
                      out->ranks);
        out->process += out->rank[r].peak;
    }
    out->host = host_bytes(job->schema, out->ranks, trained, out->process, data_bytes) +
                trained.host + codes_room(job->schema, job->forms, trained.threads);
    out->away = trained.away;
    out->process += out->host;
    return st;
}

/* ---- generation ---- */

/* One run of `queries` tokens of each sequence, some with an image. */
static sheaf_status *run_tokens(sheaf__model *m, const sheaf__batch_rows *rows,
                                const sheaf__kv_cache *kv_cache, int64_t batch, int64_t queries,
                                int64_t keys, sheaf__picture_counts pictures)
{
    static const sheaf__step_info info[SHEAF__ROW_KINDS] = { { .training = false } };
    static const int32_t last[1] = { 0 }; /* only how many there are is read: rows are not known */
    const sheaf__images_in images_in = { .image_row = rows->image_row.device,
                                         .stream = { rows->stream[0].device,
                                                     rows->stream[1].device } };
    sheaf__rows_in in = sheaf__batch_rows_in(rows);
    in.host.ids = NULL; /* tokens are not known */
    in.mask_ld = in.keys = keys;
    sheaf__head_run head = { .forward_alone = true,
                             .all_rows = true,
                             .unknown = true,
                             .pick = last,
                             .npick = batch,
                             .take = unheard };
    sheaf__tape *tape = NULL;
    sheaf_status *st = sheaf__tape_new(&tape, m->context);
    if (st != NULL)
        return st;
    sheaf__pass pass = { .batch = batch,
                         .queries = queries,
                         .in = &in,
                         .info = info,
                         .head = &head,
                         .kv_cache = kv_cache,
                         .pictures = pictures,
                         .images_in = &images_in,
                         .image_rows = pictures.images * sheaf__image_experts(&m->schema->config) };
    sheaf__model_record(m, tape, &pass);
    st = sheaf__tape_compile(tape, false, false);
    TRY(st, sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    return st;
}

static sheaf_status *run_generation(sheaf__model *model, const sheaf_plan_generation *g)
{
    const int64_t prompt = g->prompt > 0 ? g->prompt : g->seq;
    sheaf__kv_cache kv_cache = { 0 };
    sheaf__batch_rows rows;
    const bool counts = g->work != NULL && model->context->rank == 0;
    sheaf_status *st = sheaf__batch_rows_open(&rows, model, g->batch, prompt, g->seq);
    TRY(st, sheaf__kv_cache_new(&kv_cache, model, g->batch, g->seq));
    model->context->work = counts ? &g->work->prompts : NULL;
    TRY(st, run_tokens(model, &rows, &kv_cache, g->distinct > 0 ? g->distinct : g->batch, prompt,
                       prompt, g->pictures));
    model->context->work = counts ? &g->work->token : NULL;
    TRY(st, run_tokens(model, &rows, &kv_cache, g->batch, 1,
                       g->work == NULL ? g->seq : (prompt + g->seq + 1) / 2,
                       (sheaf__picture_counts){ 0 }));
    sheaf__kv_cache_release(&kv_cache, model);
    sheaf__batch_rows_release(&rows, model);
    return st;
}

static int groups_of(const sheaf_plan_generation *g)
{
    return g->groups > 1 ? g->groups : 1;
}

/* Rank `world` of all: its groups only count calls. */
static sheaf_status *infer_rank(sheaf_plan_rank *out, int64_t *threads, size_t *pinned,
                                const sheaf_plan_generation *g, const sheaf_data *data, bool padded,
                                int world)
{
    const int rank = world % g->tp, slices = g->schema->slices, stages = g->place->stages,
              ranks = groups_of(g) * stages * g->tp;
    const sheaf__device_class *class;
    sheaf__device *device = NULL;
    sheaf__model *model = NULL;
    sheaf_comm *group = NULL, *all = NULL;
    sheaf_status *st = sheaf__device_find(&class, g->device);
    TRY(st, sheaf__device_plan(&device, class, sheaf__threads_of(NULL, g->threads, ranks, world),
                               NULL));
    if (st == NULL && g->tp > 1)
        st = sheaf_comm_dry_new(&group, rank, g->tp);
    if (st == NULL && stages > 1)
        st = sheaf_comm_dry_new(&all, world % (stages * g->tp), stages * g->tp);
    sheaf__context context = { .device = device,
                               .comm = group,
                               .world = all,
                               .rank = rank,
                               .ranks = g->tp,
                               .slices = slices,
                               .own = sheaf_owner_slices(slices, g->tp, rank),
                               .dtype = g->dtype,
                               .stages = stages,
                               .stage = world / g->tp % stages,
                               .head_stage = g->place->head_stage };
    const sheaf__model_options options = { .lora = g->lora,
                                           .forms = g->forms,
                                           .positions = g->seq,
                                           .sequences = g->batch,
                                           .place = g->place };
    TRY(st, sheaf__model_new(&model, &context, g->schema, &options));
    if (data == NULL)
        TRY(st, run_generation(model, g));
    else
        TRY(st, run_evaluation(model, &(sheaf__subset){ .data = data }, NULL, g->batch,
                               padded ? sheaf_data_seq(data) : sheaf_data_longest(data), padded));
    if (st == NULL) {
        note_rank(out, model);
        *threads += device->threads;
        *pinned += pinned_bytes(device, g->transport, group, all);
    }
    sheaf__model_free(model);
    sheaf__device_close(device);
    sheaf_comm_dry_free(group);
    sheaf_comm_dry_free(all);
    return st;
}

/* Images of a batch are outside the device, on every rank. */
static size_t pictures_of(const sheaf_plan_generation *g)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &g->schema->config);
    int64_t numbers = 0;
    for (int i = 0; i < towers; i++)
        numbers += sheaf__counts_numbers(&g->pictures, tower, i);
    return (size_t)numbers * sizeof(float);
}

/* data NULL: generation; else evaluation. */
static sheaf_status *infer(sheaf_plan *out, const sheaf_plan_generation *g, const sheaf_data *data,
                           bool padded)
{
    *out = (sheaf_plan){ .parameters = sheaf__parameters(g->schema) };
    if (g->tp > g->schema->slices || g->place->stages > SHEAF_MAX_SLICES / g->tp ||
        groups_of(g) > SHEAF_MAX_SLICES / (g->place->stages * g->tp)) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, groups_of(g) > 1            ? "dp"
                                                   : g->tp > g->schema->slices ? "tp"
                                                                               : "place");
        sheaf_expected(st, "at most %d ranks in all, %d in a stage", SHEAF_MAX_SLICES,
                       g->schema->slices);
        return sheaf_found(st, "%d groups of %d stages of %d", groups_of(g), g->place->stages,
                           g->tp);
    }
    out->ranks = groups_of(g) * g->place->stages * g->tp;
    sheaf_status *st = NULL;
    int64_t threads = 0;
    size_t pinned = 0;
    for (int r = 0; r < out->ranks && st == NULL; r++) {
        st = sheaf_in(infer_rank(&out->rank[r], &threads, &pinned, g, data, padded, r),
                      "rank %d of %d", r, out->ranks);
        out->process += out->rank[r].peak;
    }
    out->host = host_bytes(g->schema, out->ranks, (records){ 0 }, out->process,
                           data == NULL ? (size_t)out->ranks * pictures_of(g) : 0) +
                codes_room(g->schema, g->forms, threads) + pinned;
    out->process += out->host;
    return st;
}

sheaf_status *sheaf_plan_generate(sheaf_plan *out, const sheaf_plan_generation *g)
{
    const sheaf_config *config = &g->schema->config;
    sheaf__picture_counts most = g->pictures; /* of the prompt with most */
    most.images = most.groups = (most.images + g->batch - 1) / g->batch;
    for (int t = 0; t < SHEAF__MOST_TOWERS; t++)
        most.patches[t] = (most.patches[t] + g->batch - 1) / g->batch;
    sheaf_status *st = most.images > 0 ? check_seq(config, g->seq, &most) : NULL;
    return st == NULL ? infer(out, g, NULL, false) : st;
}

sheaf_status *sheaf_plan_evaluate(sheaf_plan *out, const sheaf_plan_generation *g,
                                  const sheaf_data *data, bool padded)
{
    return infer(out, g, data, padded);
}

sheaf_plan_files sheaf_plan_disk(const sheaf_plan *plan, const sheaf__job *job)
{
    const bool eight = job->options->optimizer == SHEAF_OPTIMIZER_ADAMW8BIT;
    const double masters = 4.0 * (double)plan->trained;
    sheaf_plan_files f = { .checkpoint = masters + (eight ? 2.1 : 8.0) * (double)plan->trained,
                           .result = masters };
    if (job->options->method != SHEAF_METHOD_LORA && job->forms == NULL)
        f.result = (double)plan->parameters * (double)sheaf_dtype_bytes(job->schema->config.dtype);
    return f;
}
