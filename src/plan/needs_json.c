/* needs_json.c - the answer of a plan as JSON: see needs.h, and docs/plan.md for the keys. */
#include "plan/needs.h"

#include "base/json_write.h"
#include "models/sums.h"
#include "ops/device.h"

/* ---- one rank ---- */

static void put_components(sheaf_json_writer *j, const sheaf_plan_rank *rank)
{
    static const sheaf_memory kinds[] = { SHEAF_MEM_WEIGHTS, SHEAF_MEM_TRAINED, SHEAF_MEM_GRADIENTS,
                                          SHEAF_MEM_OPTIMIZER };
    sheaf__json_open(j, "components", '{');
    for (int c = 0; c < SHEAF_PLAN_COMPONENTS; c++) {
        sheaf__json_open(j, sheaf_plan_component((sheaf_component)c), '{');
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            sheaf__json_put_int(j, sheaf_plan_kind(kinds[k]),
                                (int64_t)rank->component[c][kinds[k]]);
        sheaf__json_close(j, '}');
    }
    sheaf__json_close(j, '}');
}

static void put_exchange(sheaf_json_writer *j, const char *key, const sheaf__count *of)
{
    sheaf__json_open(j, key, '{');
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        sheaf__json_open(j, sheaf__traffic_name((sheaf__traffic)t), '{');
        sheaf__json_put(j, "calls:d exchanges:d sent:d received:d }", of[t].calls, of[t].exchanges,
                        of[t].sent, of[t].received);
    }
    sheaf__json_close(j, '}');
}

static void put_sent_to(sheaf_json_writer *j, const char *key, const uint64_t *to, int ranks)
{
    sheaf__json_open(j, key, '[');
    for (int r = 0; r < ranks; r++)
        sheaf__json_put_int(j, NULL, (int64_t)to[r]);
    sheaf__json_close(j, ']');
}

static void put_rank(sheaf_json_writer *j, const sheaf__plan_request *a,
                     const sheaf_plan_rank *rank, int r)
{
    const sheaf__plan_inputs *q = &a->q;
    const int ranks = q->o.tp * q->o.dp;
    sheaf__json_open(j, NULL, '{');
    for (int k = 0; k < SHEAF_MEM_KINDS; k++) /* `exchange` is what is exchanged */
        sheaf__json_put_int(
            j, k == SHEAF_MEM_EXCHANGE ? "exchange_buffers" : sheaf_plan_kind((sheaf_memory)k),
            (int64_t)rank->bytes[k]);
    if (q->place_text != NULL) {
        const int stage = r / q->o.tp;
        const int64_t first = q->place.begin[stage];
        sheaf__json_put(j, "stage:i first_layer:d layers:d", stage, first,
                        q->place.begin[stage + 1] - first);
    }
    put_components(j, rank);
    sheaf__json_put(j, "peak:d flops_per_step:f sent_per_step:f", rank->peak, rank->flops,
                    sheaf_plan_sent(rank));
    if (q->o.dp > 1)
        sheaf__json_put(j, "group:i sent_sums:f sent_gradients:f sent_weights:f", r / q->o.tp,
                        rank->sent, (double)rank->exchange[SHEAF__TRAFFIC_GRADIENTS].sent,
                        (double)rank->exchange[SHEAF__TRAFFIC_WEIGHTS].sent);
    put_exchange(j, "exchange", rank->exchange);
    if (q->place_text == NULL && ranks > 1)
        put_sent_to(j, "sent_to", rank->sent_to, ranks);
    if (a->first != NULL) {
        put_exchange(j, "exchange_first_step", a->first[r]);
        if (ranks > 1)
            put_sent_to(j, "sent_to_first_step", a->first_to[r], ranks);
    }
    sheaf__json_close(j, '}');
}

/* ---- the adapter ---- */

bool sheaf__needs_sizes(sheaf__lora_sizes *out, const sheaf__plan_request *a)
{
    const sheaf__opened *o = &a->q.opened;
    if (a->q.place_text != NULL || o->lora == NULL)
        return false;
    sheaf__lora_sizes_of(out, o->lora, o->schema, sheaf__selected, (void *)&a->q.selection);
    return true;
}

/* Bytes of a kind in full copies, in all ranks of all groups. */
static int64_t copies_hold(const sheaf_plan *plan, sheaf_memory kind)
{
    int64_t bytes = 0;
    for (int r = 0; r < plan->ranks; r++)
        bytes += (int64_t)plan->rank[r].copies[kind];
    return bytes;
}

static void put_sizes(sheaf_json_writer *j, const sheaf__plan_request *a, const sheaf_plan *plan)
{
    sheaf__lora_sizes sizes;
    if (!sheaf__needs_sizes(&sizes, a))
        return;
    sheaf__json_put(j,
                    "adapter:{ factors:d copies:d bytes:d copies_bytes:d copies_trained:d "
                    "copies_gradients:d copies_optimizer:d modules:[",
                    sizes.factors, sizes.copies, sizes.bytes, sizes.copies_bytes,
                    copies_hold(plan, SHEAF_MEM_TRAINED), copies_hold(plan, SHEAF_MEM_GRADIENTS),
                    copies_hold(plan, SHEAF_MEM_OPTIMIZER));
    for (int i = 0; i < sizes.n; i++)
        sheaf__json_put(j, "{ module:s parameters:d }", sizes.copy[i].name, sizes.copy[i].elements);
    sheaf__json_put(j, "] }");
}

/* ---- what fits, and how long it takes ---- */

/* The proposal, or the missing memory. */
static void put_fit(sheaf_json_writer *j, const sheaf__plan_request *a, int ranks)
{
    const sheaf_train_options *o = &a->q.o;
    const sheaf__fit *fit = &a->fit;
    const int *slots = a->how.slots;
    sheaf__json_put(j, "memory:d memory_of:s fits:b", a->how.memory,
                    sheaf__fit_apart(o->device) ? "GPU"
                    : slots == NULL             ? "machine"
                    : slots[0] == 0             ? "rank"
                                                : "host",
                    fit->fits);
    if (sheaf__fit_apart(o->device))
        sheaf__json_put_int(j, "gpus", sheaf__fit_gpus(o->device, ranks, slots));
    if (fit->fits) {
        sheaf__json_put(j, "proposal:{ tp:i dp:i micro_batch:d accumulate:d checkpointing:b seq:d",
                        o->tp, o->dp, o->micro_batch, o->accumulate, o->kept == SHEAF__KEPT_NONE,
                        a->q.seq);
        if (o->kept != SHEAF__KEPT_ALL && o->kept != SHEAF__KEPT_NONE)
            sheaf__json_put_text(j, "keep_activations",
                                 o->kept == SHEAF__KEPT_INT8    ? "int8"
                                 : o->kept == SHEAF__KEPT_PAIRS ? "pairs"
                                                                : "attention");
        if (sheaf__is_given(o->offload))
            sheaf__json_put_text(j, "offload", o->offload);
        sheaf__json_close(j, '}');
        if (fit->larger_micro_batch > 0)
            sheaf__json_put_int(j, "larger_micro_batch", fit->larger_micro_batch);
        if (fit->nhelps == 0)
            return;
    } else {
        sheaf__json_put_int(j, "misses_by", (int64_t)(fit->need - a->how.memory));
    }
    sheaf__json_open(j, "would_help", '[');
    for (int i = 0; i < fit->nhelps; i++)
        sheaf__json_put(j, "{ flags:s largest_rank:d fits:b }", fit->help[i].flags,
                        fit->help[i].need, fit->help[i].need <= a->how.memory);
    sheaf__json_close(j, ']');
}

static void put_work(sheaf_json_writer *j, const sheaf__data_work *w)
{
    sheaf__json_put(j, "rows:d epoch_tokens:d epoch_labels:d epoch_steps:d steps:d tokens:f",
                    w->rows, w->tokens, w->labels, w->epoch_steps, w->steps, w->all_tokens);
    if (w->trial.steps > 0)
        sheaf__json_put(j, "trial:{ steps:d seconds:f tokens_per_s:f } hours:f", w->trial.steps,
                        w->trial.seconds, (double)w->trial.tokens / w->trial.seconds, w->hours);
}

static void put_seconds(sheaf_json_writer *j, const char *key, const sheaf_time *is)
{
    sheaf__json_open(j, key, '{');
    sheaf__json_put(j, "products:f attention:f head:f elements:f optimizer:f beside:f waiting:f }",
                    is->kind[SHEAF__WORK_PRODUCTS], is->kind[SHEAF__WORK_ATTENTION],
                    is->kind[SHEAF__WORK_HEAD], is->kind[SHEAF__WORK_ELEMENTS], is->update,
                    is->beside, is->waiting);
}

static void put_time(sheaf_json_writer *j, const sheaf__timing *t, int64_t steps)
{
    sheaf__json_open(j, "time", '{');
    if (t->next.step > 0) {
        sheaf__json_put(j,
                        "prompt:f prompt_tokens:f prompt_tokens_per_s:f token:f tokens_per_s:f "
                        "batch:d max_new:d all:f",
                        t->is.step, t->tokens, t->tokens / t->is.step, t->next.step,
                        (double)t->batch / t->next.step, t->batch, t->max_new,
                        t->is.step + t->next.step * (double)(t->max_new - 1));
        put_seconds(j, "prompt_seconds", &t->is);
        put_seconds(j, "seconds", &t->next);
    } else {
        sheaf__json_put(j, "step:f tokens:f tokens_per_s:f", t->is.step, t->tokens,
                        t->tokens / t->is.step);
        put_seconds(j, "seconds", &t->is);
        if (steps > 0)
            sheaf__json_put(j, "steps:d hours:f", steps, t->is.step * (double)steps / 3600);
    }
    sheaf__json_close(j, '}');
}

/* ---- the whole ---- */

/* Positions that an image takes in its row; 0 where there is none. */
static int64_t image_of(const sheaf__plan_inputs *q)
{
    return q->images > 0 ? sheaf__image_positions(&q->opened.config) : 0;
}

sheaf_status *sheaf__needs_json(char **out, const sheaf__plan_request *a, const sheaf_plan *plan)
{
    const sheaf__plan_inputs *q = &a->q;
    const char *sums = sheaf__sums_name(q->o.dtype, q->o.sums);
    sheaf_json_writer j = { .compact = true };
    sheaf__json_put(&j, "{ ranks:[");
    for (int r = 0; r < plan->ranks; r++)
        put_rank(&j, a, &plan->rank[r], r);
    sheaf__json_put(
        &j,
        "] peak:d host:d largest_rank:d parameters:d trained:d trained_share:f trained_bytes:d tp:i "
        "micro_batch:d seq:d image:d images:d padding:f checkpointing:b",
        plan->process, plan->host, sheaf_plan_fullest(plan), plan->parameters, plan->trained,
        (double)plan->trained / (double)(plan->parameters + plan->added), 4 * plan->trained,
        q->o.tp, q->o.micro_batch, q->seq, image_of(q), q->images, q->padding,
        q->o.kept == SHEAF__KEPT_NONE);
    if (sums != NULL)
        sheaf__json_put_text(&j, "sums", sums);
    if (plan->away > 0)
        sheaf__json_put_int(&j, "offloaded", (int64_t)plan->away);
    if (sheaf__fit_apart(q->o.device))
        sheaf__json_put_bool(&j, "apart", true);
    if (q->place_text == NULL)
        sheaf__json_put_int(&j, "dp", q->o.dp);
    put_sizes(&j, a, plan);
    if (q->place_text == NULL) {
        const sheaf__job job = sheaf__plan_inputs_job(q);
        const sheaf_plan_files f = sheaf_plan_disk(plan, &job);
        sheaf__json_put(&j, "checkpoint_bytes:d result_bytes:d", (int64_t)f.checkpoint,
                        (int64_t)f.result);
    }
    if (a->how.memory > 0)
        put_fit(&j, a, plan->ranks);
    if (a->work.rows > 0)
        put_work(&j, &a->work);
    if (a->timing.is.step > 0)
        put_time(&j, &a->timing, a->timed_steps);
    sheaf__json_put(&j, "}");
    return sheaf__text_take(out, &j.text);
}

/* ---- every number of ranks ---- */

/* A column of the table: `of` is [ranks - 1][checkpointing]. */
typedef struct column {
    sheaf_method method;
    const char *name;
    struct {
        size_t fullest; /* 0: not planned */
        int64_t trained;
    } of[SHEAF_MAX_SLICES][2];
} column;

static sheaf_status *fill_column(column *c, sheaf__plan_request *a, int most)
{
    sheaf__plan_inputs *q = &a->q;
    const sheaf__kept kept = q->o.kept == SHEAF__KEPT_NONE ? SHEAF__KEPT_ALL : q->o.kept;
    sheaf_plan plan;
    sheaf_status *st = sheaf__plan_inputs_open(q, a->events);
    for (int tp = 1; tp <= most && st == NULL; tp++)
        for (int again = 0; again < 2 && st == NULL; again++) {
            q->o.tp = tp;
            q->o.kept = again ? SHEAF__KEPT_NONE : kept;
            st = sheaf__plan_inputs_answer(&plan, q);
            if (st == NULL) {
                c->of[tp - 1][again].fullest = sheaf_plan_fullest(&plan);
                c->of[tp - 1][again].trained = plan.trained;
            }
        }
    return st;
}

/* Settings of LoRA and patterns go with their methods. */
sheaf_status *sheaf__needs_table(char **out, sheaf__plan_request *a)
{
    column all[] = { { .method = SHEAF_METHOD_LORA, .name = "lora" },
                     { .method = SHEAF_METHOD_HEAD, .name = "head" },
                     { .method = SHEAF_METHOD_FULL, .name = "full" } };
    const sheaf_train_options requested = a->q.o;
    const int each = SHEAF_MAX_SLICES / requested.dp,
              most = requested.slices < each ? requested.slices : each;
    sheaf_json_writer j = { .compact = true };
    sheaf_status *st = NULL;
    for (int m = 0; m < 3 && st == NULL; m++) {
        if (a->how.table == SHEAF_PLAN_TABLE_RANKS && all[m].method != requested.method)
            continue;
        sheaf__plan_inputs_close(&a->q);
        a->q.o = requested;
        a->q.o.method = all[m].method;
        if (all[m].method != requested.method)
            a->q.o.train = NULL;
        st = fill_column(&all[m], a, most);
    }
    if (st != NULL)
        return st;
    sheaf__json_put(&j, "{ table:[");
    for (int i = 0; i < most * 3 * 2; i++) { /* in the order of its rows */
        const column *c = &all[i / 2 % 3];
        if (c->of[i / 6][i % 2].fullest > 0)
            sheaf__json_put(&j, "{ tp:i method:s checkpointing:b largest_rank:d trained:d }",
                            i / 6 + 1, c->name, i % 2, c->of[i / 6][i % 2].fullest,
                            c->of[i / 6][i % 2].trained);
    }
    sheaf__json_put(&j, "] micro_batch:d seq:d image:d }", a->q.o.micro_batch, a->q.seq,
                    image_of(&a->q));
    return sheaf__text_take(out, &j.text);
}
