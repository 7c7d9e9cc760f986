/* needs_json.c - the answer of a plan as JSON: see needs.h, and docs/plan.md for the keys. */
#include "plan/needs.h"

#include "base/json.h"
#include "models/sums.h"
#include "ops/device.h"

static void set_int(json_t *to, const char *key, int64_t value)
{
    json_object_set_new(to, key, json_integer((json_int_t)value));
}

/* ---- one rank ---- */

static json_t *components_json(const sheaf_plan_rank *rank)
{
    static const sheaf_memory kinds[] = { SHEAF_MEM_WEIGHTS, SHEAF_MEM_TRAINED, SHEAF_MEM_GRADIENTS,
                                          SHEAF_MEM_OPTIMIZER };
    json_t *all = json_object();
    for (int c = 0; c < SHEAF_PLAN_COMPONENTS; c++) {
        json_t *one = json_object();
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            set_int(one, sheaf_plan_kind(kinds[k]), (int64_t)rank->component[c][kinds[k]]);
        json_object_set_new(all, sheaf_plan_component((sheaf_component)c), one);
    }
    return all;
}

static json_t *exchange_json(const sheaf__count *of)
{
    json_t *all = json_object();
    for (int t = 0; t < SHEAF__TRAFFICS; t++)
        json_object_set_new(all, sheaf__traffic_name((sheaf__traffic)t),
                            json_pack("{s:I, s:I, s:I, s:I}", "calls", (json_int_t)of[t].calls,
                                      "exchanges", (json_int_t)of[t].exchanges, "sent",
                                      (json_int_t)of[t].sent, "received",
                                      (json_int_t)of[t].received));
    return all;
}

static json_t *sent_to_json(const uint64_t *to, int ranks)
{
    json_t *list = json_array();
    for (int r = 0; r < ranks; r++)
        json_array_append_new(list, json_integer((json_int_t)to[r]));
    return list;
}

static json_t *rank_json(const sheaf__plan_request *a, const sheaf_plan_rank *rank, int r)
{
    const sheaf__plan_inputs *q = &a->q;
    json_t *one = json_object();
    for (int k = 0; k < SHEAF_MEM_KINDS; k++) /* `exchange` is what is exchanged */
        set_int(one,
                k == SHEAF_MEM_EXCHANGE ? "exchange_buffers" : sheaf_plan_kind((sheaf_memory)k),
                (int64_t)rank->bytes[k]);
    if (q->place_text != NULL) {
        const int stage = r / q->o.tp;
        const int64_t first = q->place.begin[stage];
        json_object_update_new(one, json_pack("{s:i, s:I, s:I}", "stage", stage, "first_layer",
                                              (json_int_t)first, "layers",
                                              (json_int_t)(q->place.begin[stage + 1] - first)));
    }
    json_object_update_new(one,
                           json_pack("{s:o, s:I, s:f, s:f}", "components", components_json(rank),
                                     "peak", (json_int_t)rank->peak, "flops_per_step", rank->flops,
                                     "sent_per_step", sheaf_plan_sent(rank)));
    if (q->o.dp > 1)
        json_object_update_new(
            one, json_pack("{s:i, s:f, s:f, s:f}", "group", r / q->o.tp, "sent_sums", rank->sent,
                           "sent_gradients", (double)rank->exchange[SHEAF__TRAFFIC_GRADIENTS].sent,
                           "sent_weights", (double)rank->exchange[SHEAF__TRAFFIC_WEIGHTS].sent));
    json_object_set_new(one, "exchange", exchange_json(rank->exchange));
    if (q->place_text == NULL && q->o.tp * q->o.dp > 1)
        json_object_set_new(one, "sent_to", sent_to_json(rank->sent_to, q->o.tp * q->o.dp));
    if (a->first == NULL)
        return one;
    json_object_set_new(one, "exchange_first_step", exchange_json(a->first[r]));
    if (q->o.tp * q->o.dp > 1)
        json_object_set_new(one, "sent_to_first_step",
                            sent_to_json(a->first_to[r], q->o.tp * q->o.dp));
    return one;
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

/* What full copies hold of a kind, in all ranks of all groups. */
static json_int_t copies_hold(const sheaf_plan *plan, sheaf_memory kind)
{
    size_t bytes = 0;
    for (int r = 0; r < plan->ranks; r++)
        bytes += plan->rank[r].copies[kind];
    return (json_int_t)bytes;
}

static void add_sizes(json_t *to, const sheaf__plan_request *a, const sheaf_plan *plan)
{
    sheaf__lora_sizes sizes;
    if (!sheaf__needs_sizes(&sizes, a))
        return;
    json_t *list = json_array();
    for (int i = 0; i < sizes.n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "module", sizes.copy[i].name,
                                              "parameters", (json_int_t)sizes.copy[i].elements));
    json_object_set_new(to, "adapter",
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "factors",
                                  (json_int_t)sizes.factors, "copies", (json_int_t)sizes.copies,
                                  "bytes", (json_int_t)sizes.bytes, "copies_bytes",
                                  (json_int_t)sizes.copies_bytes, "copies_trained",
                                  copies_hold(plan, SHEAF_MEM_TRAINED), "copies_gradients",
                                  copies_hold(plan, SHEAF_MEM_GRADIENTS), "copies_optimizer",
                                  copies_hold(plan, SHEAF_MEM_OPTIMIZER), "modules", list));
}

/* ---- what fits, and how long it takes ---- */

/* What is proposed, or what is missing. */
static void add_fit(json_t *to, const sheaf__plan_request *a)
{
    const sheaf_train_options *o = &a->q.o;
    const sheaf__fit *fit = &a->fit;
    const int *slots = a->how.slots;
    json_object_update_new(to, json_pack("{s:I, s:s, s:b}", "memory", (json_int_t)a->how.memory,
                                         "memory_of",
                                         sheaf__fit_apart(o->device) ? "GPU"
                                         : slots == NULL             ? "machine"
                                         : slots[0] == 0             ? "rank"
                                                                     : "host",
                                         "fits", fit->fits));
    if (fit->fits) {
        json_object_set_new(to, "proposal",
                            json_pack("{s:i, s:i, s:I, s:I, s:b, s:I}", "tp", o->tp, "dp", o->dp,
                                      "micro_batch", (json_int_t)o->micro_batch, "accumulate",
                                      (json_int_t)o->accumulate, "checkpointing",
                                      o->kept == SHEAF__KEPT_NONE, "seq", (json_int_t)a->q.seq));
        if (o->kept != SHEAF__KEPT_ALL && o->kept != SHEAF__KEPT_NONE)
            json_object_set_new(json_object_get(to, "proposal"), "keep_activations",
                                json_string(o->kept == SHEAF__KEPT_INT8 ? "int8" : "attention"));
        if (o->offload != NULL && o->offload[0] != '\0')
            json_object_set_new(json_object_get(to, "proposal"), "offload",
                                json_string(o->offload));
        if (fit->larger_micro_batch > 0)
            set_int(to, "larger_micro_batch", fit->larger_micro_batch);
        if (!fit->offloads)
            return;
    } else {
        set_int(to, "misses_by", (int64_t)(fit->need - a->how.memory));
    }
    json_t *helps = json_array();
    for (int i = 0; i < fit->nhelps; i++)
        json_array_append_new(helps, json_pack("{s:s, s:I, s:b}", "flags", fit->help[i].flags,
                                               "largest_rank", (json_int_t)fit->help[i].need,
                                               "fits", fit->help[i].need <= a->how.memory));
    json_object_set_new(to, "would_help", helps);
}

static void add_work(json_t *to, const sheaf__data_work *w)
{
    json_object_update_new(to, json_pack("{s:I, s:I, s:I, s:I, s:I, s:f}", "rows",
                                         (json_int_t)w->rows, "epoch_tokens", (json_int_t)w->tokens,
                                         "epoch_labels", (json_int_t)w->labels, "epoch_steps",
                                         (json_int_t)w->epoch_steps, "steps", (json_int_t)w->steps,
                                         "tokens", w->all_tokens));
    if (w->trial.steps > 0)
        json_object_update_new(
            to, json_pack("{s:{s:I, s:f, s:f}, s:f}", "trial", "steps", (json_int_t)w->trial.steps,
                          "seconds", w->trial.seconds, "tokens_per_s",
                          (double)w->trial.tokens / w->trial.seconds, "hours", w->hours));
}

static json_t *seconds_json(const sheaf_time *is)
{
    return json_pack("{s:f, s:f, s:f, s:f, s:f, s:f, s:f}", "products",
                     is->kind[SHEAF__WORK_PRODUCTS], "attention", is->kind[SHEAF__WORK_ATTENTION],
                     "head", is->kind[SHEAF__WORK_HEAD], "elements", is->kind[SHEAF__WORK_ELEMENTS],
                     "optimizer", is->update, "beside", is->beside, "waiting", is->waiting);
}

static json_t *time_json(const sheaf__timing *t, int64_t steps)
{
    if (t->next.step > 0)
        return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:o, s:o}", "prompt", t->is.step,
                         "prompt_tokens", t->tokens, "prompt_tokens_per_s", t->tokens / t->is.step,
                         "token", t->next.step, "tokens_per_s", (double)t->batch / t->next.step,
                         "batch", (json_int_t)t->batch, "max_new", (json_int_t)t->max_new, "all",
                         t->is.step + t->next.step * (double)(t->max_new - 1), "prompt_seconds",
                         seconds_json(&t->is), "seconds", seconds_json(&t->next));
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:o}", "step", t->is.step, "tokens", t->tokens, "tokens_per_s",
                  t->tokens / t->is.step, "seconds", seconds_json(&t->is));
    if (steps > 0)
        json_object_update_new(object, json_pack("{s:I, s:f}", "steps", (json_int_t)steps, "hours",
                                                 t->is.step * (double)steps / 3600));
    return object;
}

/* ---- the whole ---- */

/* Positions that an image takes in its row; 0 where there is none. */
static json_int_t image_of(const sheaf__plan_inputs *q)
{
    return q->images > 0 ? sheaf__image_positions(&q->opened.config) : 0;
}

static sheaf_status *give(char **out, json_t *object)
{
    sheaf_status *st = sheaf__json_text(out, object, JSON_COMPACT);
    json_decref(object);
    return st;
}

/* Is the ranks' memory that of GPUs, and not the host's? */
static bool is_apart(const char *device)
{
    sheaf__device_choice choice;
    sheaf_status *st = sheaf__device_choose(&choice, device);
    const bool apart = st == NULL && choice.class->count != NULL;
    sheaf_status_free(st);
    return apart;
}

sheaf_status *sheaf__needs_json(char **out, const sheaf__plan_request *a, const sheaf_plan *plan)
{
    const sheaf__plan_inputs *q = &a->q;
    const char *sums = sheaf__sums_name(q->o.dtype, q->o.sums);
    json_t *ranks = json_array();
    for (int r = 0; r < plan->ranks; r++)
        json_array_append_new(ranks, rank_json(a, &plan->rank[r], r));
    json_t *all = json_pack(
        "{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:i, s:I, s:I, s:I, s:I, s:f, s:b}", "ranks",
        ranks, "peak", (json_int_t)plan->process, "host", (json_int_t)plan->host, "largest_rank",
        (json_int_t)sheaf_plan_fullest(plan), "parameters", (json_int_t)plan->parameters, "trained",
        (json_int_t)plan->trained, "trained_share",
        (double)plan->trained / (double)(plan->parameters + plan->added), "trained_bytes",
        (json_int_t)(4 * plan->trained), "tp", q->o.tp, "micro_batch", (json_int_t)q->o.micro_batch,
        "seq", (json_int_t)q->seq, "image", image_of(q), "images", (json_int_t)q->images, "padding",
        q->padding, "checkpointing", q->o.kept == SHEAF__KEPT_NONE);
    if (sums != NULL)
        json_object_set_new(all, "sums", json_string(sums));
    if (plan->away > 0)
        set_int(all, "offloaded", (int64_t)plan->away);
    if (is_apart(q->o.device))
        json_object_set_new(all, "apart", json_true());
    if (q->place_text == NULL)
        set_int(all, "dp", q->o.dp);
    add_sizes(all, a, plan);
    if (a->how.memory > 0)
        add_fit(all, a);
    if (a->work.rows > 0)
        add_work(all, &a->work);
    if (a->timing.is.step > 0)
        json_object_set_new(all, "time", time_json(&a->timing, a->timed_steps));
    return give(out, all);
}

/* ---- every number of ranks ---- */

/* A column of the table: `of` gets [ranks - 1][checkpointing]. */
typedef struct column {
    sheaf_method method;
    const char *name;
    json_t *of[SHEAF_MAX_SLICES][2];
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
            if (st == NULL)
                c->of[tp - 1][again] = json_pack("{s:i, s:s, s:b, s:I, s:I}", "tp", tp, "method",
                                                 c->name, "checkpointing", again, "largest_rank",
                                                 (json_int_t)sheaf_plan_fullest(&plan), "trained",
                                                 (json_int_t)plan.trained);
        }
    return st;
}

/* Settings of LoRA and patterns go with their methods. */
sheaf_status *sheaf__needs_table(char **out, sheaf__plan_request *a)
{
    column all[] = { { SHEAF_METHOD_LORA, "lora", { { 0 } } },
                     { SHEAF_METHOD_HEAD, "head", { { 0 } } },
                     { SHEAF_METHOD_FULL, "full", { { 0 } } } };
    const sheaf_train_options asked = a->q.o;
    const int each = SHEAF_MAX_SLICES / asked.dp, most = asked.slices < each ? asked.slices : each;
    json_t *list = json_array();
    sheaf_status *st = NULL;
    for (int m = 0; m < 3 && st == NULL; m++) {
        if (a->how.table == SHEAF_PLAN_TABLE_RANKS && all[m].method != asked.method)
            continue;
        sheaf__plan_inputs_close(&a->q);
        a->q.o = asked;
        a->q.o.method = all[m].method;
        if (all[m].method != asked.method)
            a->q.o.train = NULL;
        st = fill_column(&all[m], a, most);
    }
    for (int i = 0; i < most * 3 * 2; i++) { /* a list takes them in the order of its rows */
        json_t *cell = all[i / 2 % 3].of[i / 6][i % 2];
        if (cell != NULL)
            json_array_append_new(list, cell);
    }
    json_t *object = json_pack("{s:o, s:I, s:I, s:I}", "table", list, "micro_batch",
                               (json_int_t)a->q.o.micro_batch, "seq", (json_int_t)a->q.seq, "image",
                               image_of(&a->q));
    if (st == NULL)
        return give(out, object);
    json_decref(object);
    return st;
}
