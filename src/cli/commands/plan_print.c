/* plan_print.c - the answer of `sheaf plan`: see plan_print.h. */
#include "plan_print.h"

#include "base/print.h"
#include "library/train_settings.h"
#include "lora/sizes.h"
#include "schema/family.h"

int64_t cli_plan_image(const cli_plan *q)
{
    return q->ask.images > 0 ? sheaf__image_positions(&q->ask.opened.config) : 0;
}

double cli_plan_mib(size_t bytes)
{
    return (double)bytes / 1048576;
}

void cli_plan_object(const cli *cli, json_t *object)
{
    json_dumpf(object, cli->out, JSON_COMPACT);
    fputc('\n', cli->out);
    json_decref(object);
}

/* ---- for programs ---- */

static json_t *components_json(const sheaf_plan_rank *rank)
{
    static const sheaf_memory kinds[] = { SHEAF_MEM_WEIGHTS, SHEAF_MEM_TRAINED, SHEAF_MEM_GRADIENTS,
                                          SHEAF_MEM_OPTIMIZER };
    json_t *all = json_object();
    for (int c = 0; c < SHEAF_PLAN_COMPONENTS; c++) {
        json_t *one = json_object();
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            json_object_set_new(one, sheaf_plan_kind(kinds[k]),
                                json_integer((json_int_t)rank->component[c][kinds[k]]));
        json_object_set_new(all, sheaf_plan_component((sheaf_component)c), one);
    }
    return all;
}

/* Whose memory it is. */
static const char *whose(const cli_plan *q)
{
    return q->slots == NULL ? "machine" : q->slots[0] == 0 ? "rank" : "host";
}

/* With --memory: what is proposed, or what is missing. */
static void add_fit(json_t *to, const cli_plan *q)
{
    const sheaf_train_options *o = &q->ask.o;
    json_object_set_new(to, "memory", json_integer((json_int_t)q->memory));
    json_object_set_new(to, "memory_of", json_string(whose(q)));
    json_object_set_new(to, "fits", json_boolean(q->fit.fits));
    if (q->fit.fits) {
        json_object_set_new(to, "proposal",
                            json_pack("{s:i, s:i, s:I, s:I, s:b, s:I}", "tp", o->tp, "dp", o->dp,
                                      "micro_batch", (json_int_t)o->micro_batch, "accumulate",
                                      (json_int_t)o->accumulate, "checkpointing", o->checkpointing,
                                      "seq", (json_int_t)q->ask.seq));
        if (q->fit.larger_micro_batch > 0)
            json_object_set_new(to, "larger_micro_batch",
                                json_integer((json_int_t)q->fit.larger_micro_batch));
        return;
    }
    json_object_set_new(to, "misses_by", json_integer((json_int_t)(q->fit.need - q->memory)));
    json_t *helps = json_array();
    for (int i = 0; i < q->fit.nhelps; i++)
        json_array_append_new(helps, json_pack("{s:s, s:I, s:b}", "flags", q->fit.help[i].flags,
                                               "largest_rank", (json_int_t)q->fit.help[i].need,
                                               "fits", q->fit.help[i].need <= q->memory));
    json_object_set_new(to, "would_help", helps);
}

static void add_work(json_t *to, const cli_plan_work *w)
{
    json_object_set_new(to, "rows", json_integer((json_int_t)w->rows));
    json_object_set_new(to, "epoch_tokens", json_integer((json_int_t)w->tokens));
    json_object_set_new(to, "epoch_labels", json_integer((json_int_t)w->labels));
    json_object_set_new(to, "epoch_steps", json_integer((json_int_t)w->epoch_steps));
    json_object_set_new(to, "steps", json_integer((json_int_t)w->steps));
    json_object_set_new(to, "tokens", json_real(w->all_tokens));
    if (w->trial.steps == 0)
        return;
    json_object_set_new(to, "trial",
                        json_pack("{s:I, s:f, s:f}", "steps", (json_int_t)w->trial.steps, "seconds",
                                  w->trial.seconds, "tokens_per_s",
                                  (double)w->trial.tokens / w->trial.seconds));
    json_object_set_new(to, "hours", json_real(w->hours));
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

/* An adapter's sizes; false: none is made. */
static bool find_sizes(sheaf__lora_sizes *out, const cli_plan *q)
{
    const sheaf__opened *o = &q->ask.opened;
    if (q->ask.place_text != NULL || o->lora == NULL)
        return false;
    sheaf__lora_sizes_of(out, o->lora, o->schema, sheaf__selected, (void *)&q->ask.selection);
    return true;
}

/* What full copies hold of a kind, in all ranks of all groups. */
static size_t copies_hold(const sheaf_plan *plan, sheaf_memory kind)
{
    size_t bytes = 0;
    for (int r = 0; r < plan->ranks; r++)
        bytes += plan->rank[r].copies[kind];
    return bytes;
}

static void add_sizes(json_t *to, const cli_plan *q, const sheaf_plan *plan)
{
    sheaf__lora_sizes sizes;
    json_t *list = json_array();
    if (!find_sizes(&sizes, q)) {
        json_decref(list);
        return;
    }
    for (int i = 0; i < sizes.n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "module", sizes.copy[i].name,
                                              "parameters", (json_int_t)sizes.copy[i].elements));
    json_object_set_new(
        to, "adapter",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "factors", (json_int_t)sizes.factors,
                  "copies", (json_int_t)sizes.copies, "bytes", (json_int_t)sizes.bytes,
                  "copies_bytes", (json_int_t)sizes.copies_bytes, "copies_trained",
                  (json_int_t)copies_hold(plan, SHEAF_MEM_TRAINED), "copies_gradients",
                  (json_int_t)copies_hold(plan, SHEAF_MEM_GRADIENTS), "copies_optimizer",
                  (json_int_t)copies_hold(plan, SHEAF_MEM_OPTIMIZER), "modules", list));
}

/* What a rank holds of each kind. Buffers of exchanges have a longer name, as `exchange` is what is
 * exchanged. */
static void add_bytes(json_t *to, const sheaf_plan_rank *rank)
{
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        json_object_set_new(
            to, k == SHEAF_MEM_EXCHANGE ? "exchange_buffers" : sheaf_plan_kind((sheaf_memory)k),
            json_integer((json_int_t)rank->bytes[k]));
}

typedef struct part {
    const char *name, *key;
    double seconds;
} part;

enum { PARTS = SHEAF__WORK_KINDS + 3 };

static void parts_of(part out[PARTS], const sheaf_time *is)
{
    const part all[PARTS] = {
        { "products", "products", is->kind[SHEAF__WORK_PRODUCTS] },
        { "attention", "attention", is->kind[SHEAF__WORK_ATTENTION] },
        { "head and loss", "head", is->kind[SHEAF__WORK_HEAD] },
        { "element-wise", "elements", is->kind[SHEAF__WORK_ELEMENTS] },
        { "optimizer", "optimizer", is->update },
        { "reading", "beside", is->beside },
        { "waiting", "waiting", is->waiting },
    };
    for (int i = 0; i < PARTS; i++)
        out[i] = all[i];
}

static double all_answers(const sheaf__timing *t)
{
    return t->is.step + t->next.step * (double)(t->max_new - 1);
}

static json_t *seconds_json(const sheaf_time *is)
{
    part all[PARTS];
    json_t *seconds = json_object();
    parts_of(all, is);
    for (int i = 0; i < PARTS; i++)
        json_object_set_new(seconds, all[i].key, json_real(all[i].seconds));
    return seconds;
}

static json_t *time_json(const sheaf__timing *t, int64_t steps)
{
    if (t->next.step > 0)
        return json_pack("{s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:o, s:o}", "prompt", t->is.step,
                         "prompt_tokens", t->tokens, "prompt_tokens_per_s", t->tokens / t->is.step,
                         "token", t->next.step, "tokens_per_s", (double)t->batch / t->next.step,
                         "batch", (json_int_t)t->batch, "max_new", (json_int_t)t->max_new, "all",
                         all_answers(t), "prompt_seconds", seconds_json(&t->is), "seconds",
                         seconds_json(&t->next));
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:o}", "step", t->is.step, "tokens", t->tokens, "tokens_per_s",
                  t->tokens / t->is.step, "seconds", seconds_json(&t->is));
    if (steps > 0) {
        json_object_set_new(object, "steps", json_integer((json_int_t)steps));
        json_object_set_new(object, "hours", json_real(t->is.step * (double)steps / 3600));
    }
    return object;
}

static void print_json(const cli *cli, const cli_plan *q, const sheaf_plan *plan)
{
    json_t *ranks = json_array();
    for (int r = 0; r < plan->ranks; r++) {
        json_t *one = json_object();
        add_bytes(one, &plan->rank[r]);
        if (q->ask.place_text != NULL) {
            const int stage = r / q->ask.o.tp;
            json_object_set_new(one, "stage", json_integer(stage));
            json_object_set_new(one, "first_layer", json_integer(q->ask.place.begin[stage]));
            json_object_set_new(
                one, "layers",
                json_integer(q->ask.place.begin[stage + 1] - q->ask.place.begin[stage]));
        }
        json_object_set_new(one, "components", components_json(&plan->rank[r]));
        json_object_set_new(one, "peak", json_integer((json_int_t)plan->rank[r].peak));
        json_object_set_new(one, "flops_per_step", json_real(plan->rank[r].flops));
        json_object_set_new(one, "sent_per_step", json_real(sheaf_plan_sent(&plan->rank[r])));
        if (q->ask.o.dp > 1) {
            json_object_set_new(one, "group", json_integer(r / q->ask.o.tp));
            json_object_set_new(one, "sent_sums", json_real(plan->rank[r].sent));
            json_object_set_new(one, "sent_gradients", json_real(plan->rank[r].sent_gradients));
            json_object_set_new(one, "sent_weights", json_real(plan->rank[r].sent_weights));
        }
        json_object_set_new(one, "exchange", exchange_json(plan->rank[r].exchange));
        if (q->first != NULL)
            json_object_set_new(one, "exchange_first_step", exchange_json(q->first[r]));
        json_array_append_new(ranks, one);
    }
    json_t *all =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:i, s:I, s:I, s:I, s:I, s:f, s:b}",
                  "ranks", ranks, "peak", (json_int_t)plan->process, "host", (json_int_t)plan->host,
                  "largest_rank", (json_int_t)sheaf_plan_fullest(plan), "parameters",
                  (json_int_t)plan->parameters, "trained", (json_int_t)plan->trained,
                  "trained_share", (double)plan->trained / (double)(plan->parameters + plan->added),
                  "trained_bytes", (json_int_t)(4 * plan->trained), "tp", q->ask.o.tp,
                  "micro_batch", (json_int_t)q->ask.o.micro_batch, "seq", (json_int_t)q->ask.seq,
                  "image", (json_int_t)cli_plan_image(q), "images", (json_int_t)q->ask.images,
                  "padding", q->ask.padding, "checkpointing", q->ask.o.checkpointing);
    const char *sums = sheaf__sums_name(q->ask.o.dtype, q->ask.o.sums);
    if (sums != NULL)
        json_object_set_new(all, "bf16_sums", json_string(sums));
    if (q->ask.place_text == NULL)
        json_object_set_new(all, "dp", json_integer(q->ask.o.dp));
    add_sizes(all, q, plan);
    if (q->memory > 0)
        add_fit(all, q);
    if (q->work.rows > 0)
        add_work(all, &q->work);
    if (q->timing.is.step > 0)
        json_object_set_new(all, "time", time_json(&q->timing, q->timed_steps));
    cli_plan_object(cli, all);
}

/* ---- for people ---- */

static size_t held(const sheaf_plan_rank *rank, int component)
{
    size_t bytes = 0;
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        bytes += rank->component[component][k];
    return bytes;
}

/* A line for each kind, or for each component of what is held from the first step to the last. */
static void print_bytes(const cli *cli, const cli_plan *q, const sheaf_plan *plan)
{
    const bool kinds = q->by == CLI_PLAN_BY_KIND;
    size_t all = 0;
    for (int k = 0; k < (kinds ? SHEAF_MEM_KINDS : SHEAF_PLAN_COMPONENTS); k++) {
        for (int r = 0; r < plan->ranks && !kinds; r++)
            all += held(&plan->rank[r], k);
        if (!kinds && all == 0)
            continue;
        all = 0;
        sheaf__print(cli->out, "\n  %-15s",
                     kinds ? sheaf_plan_kind((sheaf_memory)k)
                           : sheaf_plan_component((sheaf_component)k));
        for (int r = 0; r < plan->ranks; r++)
            sheaf__print(cli->out, "%10.1f",
                         cli_plan_mib(kinds ? plan->rank[r].bytes[k] : held(&plan->rank[r], k)));
    }
    if (!kinds) {
        sheaf__print(cli->out, "\n  %-15s", "during a step");
        for (int r = 0; r < plan->ranks; r++) {
            size_t rest = plan->rank[r].peak;
            for (int k = 0; k < SHEAF_PLAN_COMPONENTS; k++)
                rest -= held(&plan->rank[r], k);
            sheaf__print(cli->out, "%10.1f", cli_plan_mib(rest));
        }
    }
}

/* Of groups also what it is: sums within one, then gradients and weights between them. */
static void print_sent(const cli *cli, const cli_plan *q, const sheaf_plan *plan)
{
    static const char *const kind[] = { "MiB sent", "  sums", "  gradients", "  weights" };
    for (int k = 0; k < (q->ask.o.dp > 1 ? 4 : 1); k++) {
        sheaf__print(cli->out, "\n%-17s", kind[k]);
        for (int r = 0; r < plan->ranks; r++) {
            const sheaf_plan_rank *rank = &plan->rank[r];
            const double sent[] = { sheaf_plan_sent(rank), rank->sent, rank->sent_gradients,
                                    rank->sent_weights };
            sheaf__print(cli->out, "%10.1f", sent[k] / 1048576);
        }
    }
}

static void print_sizes(const cli *cli, const cli_plan *q, const sheaf_plan *plan)
{
    sheaf__lora_sizes sizes;
    sheaf_text text = { 0 };
    if (!find_sizes(&sizes, q) || sizes.copies == 0)
        return;
    sheaf__lora_sizes_text(&text, &sizes);
    sheaf__print(
        cli->out,
        "%s; in training the copies take %.1f MiB of masters, %.1f of gradients and %.1f of moments, all ranks together\n",
        text.at != NULL ? text.at : "", cli_plan_mib(copies_hold(plan, SHEAF_MEM_TRAINED)),
        cli_plan_mib(copies_hold(plan, SHEAF_MEM_GRADIENTS)),
        cli_plan_mib(copies_hold(plan, SHEAF_MEM_OPTIMIZER)));
    sheaf__text_release(&text);
}

static void print_ranks(const cli *cli, const cli_plan *q, const sheaf_plan *plan)
{
    sheaf__print(cli->out,
                 "%.2f million parameters, %.3f million trained (%.4g %%); %lld x %lld tokens",
                 (double)plan->parameters / 1e6, (double)plan->trained / 1e6,
                 100 * (double)plan->trained / (double)(plan->parameters + plan->added),
                 (long long)q->ask.o.micro_batch, (long long)q->ask.seq);
    if (q->ask.images == q->ask.o.micro_batch)
        sheaf__print(cli->out, " (%lld of each an image)", (long long)cli_plan_image(q));
    else if (q->ask.images > q->ask.o.micro_batch)
        sheaf__print(cli->out, " (at most %lld images, each %lld of them)",
                     (long long)q->ask.images, (long long)cli_plan_image(q));
    else if (sheaf__image_positions(&q->ask.opened.config) > 0)
        sheaf__print(cli->out,
                     q->ask.images == 0 ? " (no images)" : " (%lld of at most %lld an image)",
                     (long long)cli_plan_image(q), (long long)q->ask.images);
    if (q->ask.padding >= 0.0005)
        sheaf__print(cli->out, " in the longest micro-batch, %.1f %% of all positions padding",
                     100 * q->ask.padding);
    const char *sums = sheaf__sums_name(q->ask.o.dtype, q->ask.o.sums);
    sheaf__print(cli->out, ", %s%s%s, ", sheaf_dtype_torch_name(q->ask.o.dtype),
                 sums == NULL ? "" : " by ", sums == NULL ? "" : sums);
    if (q->ask.o.dp > 1)
        sheaf__print(cli->out, "%d groups of %d rank%s", q->ask.o.dp, q->ask.o.tp,
                     q->ask.o.tp == 1 ? "" : "s");
    else
        sheaf__print(cli->out, "%d rank%s", plan->ranks, plan->ranks == 1 ? "" : "s");
    sheaf__print(cli->out, " of %d slice%s%s\n", q->ask.o.slices, q->ask.o.slices == 1 ? "" : "s",
                 q->ask.o.checkpointing ? ", checkpointing" : "");
    for (int s = 0; q->ask.place_text != NULL && s < q->ask.place.stages; s++)
        sheaf__print(cli->out, "stage %d, ranks %d to %d: layers %lld to %lld\n", s,
                     s * q->ask.o.tp, (s + 1) * q->ask.o.tp - 1, (long long)q->ask.place.begin[s],
                     (long long)q->ask.place.begin[s + 1] - 1);
    sheaf__print(cli->out, "MiB by rank      ");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10d", r);
    print_bytes(cli, q, plan);
    sheaf__print(cli->out, "\n  %-15s", "peak");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10.1f", cli_plan_mib(plan->rank[r].peak));
    sheaf__print(cli->out, "\n%-17s", q->ask.place_text == NULL ? "GFLOP a step" : "GFLOP");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10.1f", plan->rank[r].flops / 1e9);
    print_sent(cli, q, plan);
    sheaf__print(cli->out,
                 "\nall ranks in one process: %.1f MiB (%.1f MiB of it beside the ranks)\n",
                 cli_plan_mib(plan->process), cli_plan_mib(plan->host));
    print_sizes(cli, q, plan);
}

/* ---- what fits ---- */

static double gib_or_mib(size_t bytes, const char **unit)
{
    *unit = bytes >= (size_t)1 << 30 ? "GiB" : "MiB";
    return cli_plan_mib(bytes) / (bytes >= (size_t)1 << 30 ? 1024 : 1);
}

/* The flags that the proposal changes, beside --tp. */
static void print_fit(const cli *cli, const cli_plan *q, const sheaf_train_options *asked)
{
    const sheaf_train_options *o = &q->ask.o;
    const sheaf__fit *f = &q->fit;
    const char *unit, *missing_unit;
    const double memory = gib_or_mib(q->memory, &unit);
    if (f->fits) {
        sheaf__print(cli->err, "fits: --tp %d", o->tp);
        if (o->dp != asked->dp)
            sheaf__print(cli->err, " --dp %d", o->dp);
        sheaf__print(cli->err, "%s", o->checkpointing ? " --checkpointing" : "");
        if (o->micro_batch != asked->micro_batch)
            sheaf__print(cli->err, " --micro-batch %lld --accumulate %lld",
                         (long long)o->micro_batch, (long long)o->accumulate);
        if (o->seq != asked->seq)
            sheaf__print(cli->err, " --seq %lld%s", (long long)o->seq,
                         q->ask.sets.data != NULL ? " (longer rows must be cut)" : "");
        if (f->larger_micro_batch > 0)
            sheaf__print(cli->err, "; --micro-batch %lld --accumulate %lld fits too",
                         (long long)f->larger_micro_batch,
                         (long long)(o->micro_batch * o->accumulate / f->larger_micro_batch));
        const double need = gib_or_mib(f->need, &unit);
        sheaf__print(cli->err, " (%.4g %s of one %s)\n", need, unit, whose(q));
        return;
    }
    const double missing = gib_or_mib(f->need - q->memory, &missing_unit);
    sheaf__print(cli->err, "no setting");
    if (q->slots != NULL)
        sheaf__print(cli->err, " up to %d ranks", o->tp);
    sheaf__print(cli->err, " fits %.4g %s of one %s; the smallest misses by %.4g %s\n", memory,
                 unit, whose(q), missing, missing_unit);
    for (int i = 0; i < f->nhelps; i++) {
        const double then = gib_or_mib(f->help[i].need, &unit);
        sheaf__print(cli->err, "with %s: %.4g %s, which %s\n", f->help[i].flags, then, unit,
                     f->help[i].need <= q->memory ? "fits" : "does not fit either");
    }
}

static const char *more(int64_t n)
{
    return n == 1 ? "" : "s";
}

/* "3.2 hours" */
static void print_duration(FILE *to, double hours)
{
    const double minutes = 60 * hours;
    sheaf__print(to, "%.3g %s\n",
                 minutes < 1     ? 60 * minutes
                 : minutes < 120 ? minutes
                                 : hours,
                 minutes < 1     ? "seconds"
                 : minutes < 120 ? "minutes"
                                 : "hours");
}

static void print_work(const cli *cli, const cli_plan_work *w)
{
    const bool many = w->all_tokens >= 1e5;
    sheaf__print(cli->out,
                 "data: %lld row%s, %lld tokens, %lld of them labels; an epoch is %lld step%s; "
                 "%lld step%s read %.*f%s tokens\n",
                 (long long)w->rows, more(w->rows), (long long)w->tokens, (long long)w->labels,
                 (long long)w->epoch_steps, more(w->epoch_steps), (long long)w->steps,
                 more(w->steps), many ? 2 : 0, many ? w->all_tokens / 1e6 : w->all_tokens,
                 many ? " million" : "");
    if (w->trial.steps == 0)
        return;
    sheaf__print(cli->out, "trial: %lld step%s in %.1f s, %.0f tokens/s; the run would take ",
                 (long long)w->trial.steps, more(w->trial.steps), w->trial.seconds,
                 (double)w->trial.tokens / w->trial.seconds);
    print_duration(cli->out, w->hours);
}

static void print_parts(const cli *cli, const sheaf_time *is)
{
    part all[PARTS];
    parts_of(all, is);
    for (int i = 0; i < PARTS; i++)
        if (all[i].seconds >= 0.0005 * is->step)
            sheaf__print(cli->out, "  %-15s%10.4g ms%7.1f %%\n", all[i].name, 1e3 * all[i].seconds,
                         100 * all[i].seconds / is->step);
}

static void print_answers(const cli *cli, const sheaf__timing *t)
{
    sheaf__print(cli->out, "time: %lld prompt%s of %.0f tokens in %.4g ms, %.4g tokens/s\n",
                 (long long)t->batch, t->batch == 1 ? "" : "s", t->tokens / (double)t->batch,
                 1e3 * t->is.step, t->tokens / t->is.step);
    print_parts(cli, &t->is);
    sheaf__print(
        cli->out, "a token of each: %.4g ms, %.4g tokens/s; %lld of them after a prompt: %.4g s\n",
        1e3 * t->next.step, (double)t->batch / t->next.step, (long long)t->max_new, all_answers(t));
    print_parts(cli, &t->next);
}

static void print_time(const cli *cli, const sheaf__timing *t, int64_t steps)
{
    if (t->next.step > 0) {
        print_answers(cli, t);
        return;
    }
    sheaf__print(cli->out, "time: %.4g ms a step, %.4g tokens/s\n", 1e3 * t->is.step,
                 t->tokens / t->is.step);
    print_parts(cli, &t->is);
    if (steps == 0)
        return;
    sheaf__print(cli->out, "  %lld step%s would take ", (long long)steps, more(steps));
    print_duration(cli->out, t->is.step * (double)steps / 3600);
}

void cli_plan_print(const cli *cli, const cli_plan *q, const sheaf_plan *plan,
                    const sheaf_train_options *asked)
{
    const bool fits = q->memory == 0 || q->fit.fits;
    if (cli->json)
        print_json(cli, q, plan);
    else
        print_ranks(cli, q, plan);
    if (!cli->json && q->work.rows > 0)
        print_work(cli, &q->work);
    if (!cli->json && q->time && fits)
        print_time(cli, &q->timing, q->timed_steps);
    if (q->memory > 0)
        print_fit(cli, q, asked);
}
