/* train_report.c - what a run of training came to: for programs and for people. */
#include "base/base.h"
#include "base/json.h"
#include "base/print.h"
#include "library/session.h"
#include "models/sums.h"
#include "plan/plan.h"
#include "train/usage.h"

static double rate_of(const sheaf_train_result *r)
{
    return r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
}

/* ---- for programs ---- */

/* Where one rank sent to and received from: bytes, and bytes a second of the time that it
 * exchanged, all its peers together. */
static json_t *peers_json(const sheaf__usage_total *one, int ranks, int me)
{
    json_t *list = json_array();
    for (int p = 0; p < ranks; p++)
        if (p != me && one->to[p] + one->from[p] > 0)
            json_array_append_new(
                list, json_pack("{s:i, s:I, s:I, s:f}", "rank", p, "sent", (json_int_t)one->to[p],
                                "received", (json_int_t)one->from[p], "bytes_per_s",
                                one->sum.exchange > 0
                                    ? (double)(one->to[p] + one->from[p]) / one->sum.exchange
                                    : 0.0));
    return list;
}

static json_t *rank_json(const sheaf__usage_total *one, int ranks, int me)
{
    json_t *memory = json_object(), *exchange = json_object();
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        json_object_set_new(memory, sheaf_plan_kind((sheaf_memory)k),
                            json_pack("{s:I, s:I}", "held", (json_int_t)one->held[k], "most",
                                      (json_int_t)one->most[k]));
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        const sheaf__count *c = &one->exchange[t];
        json_object_set_new(exchange, sheaf__traffic_name((sheaf__traffic)t),
                            json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "calls",
                                      (json_int_t)c->calls, "sent", (json_int_t)c->sent, "received",
                                      (json_int_t)c->received, "waiting", c->waiting, "moving",
                                      c->moving, "summing", c->summing));
    }
    json_t *rank = json_pack(
        "{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:I, s:o, s:o, s:o}",
        "steps", (json_int_t)one->steps, "seconds", one->seconds, "compute", one->sum.compute,
        "wait", one->sum.wait, "exchange", one->sum.exchange, "read", one->sum.read, "save",
        one->sum.save, "sent", (json_int_t)one->sum.sent, "received", (json_int_t)one->sum.received,
        "memory", (json_int_t)one->sum.memory, "process", (json_int_t)one->sum.process, "products",
        one->products, "attention", one->attention, "transfers", one->transfers, "timed",
        (json_int_t)one->timed, "kinds", memory, "exchanges", exchange, "peers",
        peers_json(one, ranks, me));
    const sheaf_event_offload *o = &one->offload;
    if (o->read + o->written > 0)
        json_object_set_new(rank, "offload",
                            json_pack("{s:I, s:I, s:f, s:f, s:f}", "read", (json_int_t)o->read,
                                      "written", (json_int_t)o->written, "reading", o->reading,
                                      "writing", o->writing, "waiting", o->waiting));
    return rank;
}

static void add_ranks(json_t *to, const sheaf_train_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->ranks; i++)
        json_array_append_new(list, rank_json(&r->rank[i], r->ranks, i));
    json_object_set_new(to, "ranks", list);
    if (r->ranks > 1)
        json_object_set_new(to, "slowest", json_integer(sheaf__usage_slowest(r->rank, r->ranks)));
}

sheaf_status *sheaf__train_json(char **out, const sheaf_train_result *r,
                                const sheaf_train_options *o)
{
    const double share =
        r->parameters == 0 ? 0 : (double)r->trained / (double)(r->parameters + r->added);
    json_t *object =
        json_pack("{s:I, s:I, s:o, s:f, s:I, s:f, s:f, s:I, s:I, s:f, s:I, s:o, s:o}", "step",
                  (json_int_t)r->step, "resumed_at", (json_int_t)r->first, "loss",
                  sheaf__json_finite(r->loss), "seconds", r->seconds, "tokens",
                  (json_int_t)r->tokens, "tokens_per_s", rate_of(r), "padding", r->padding,
                  "parameters", (json_int_t)r->parameters, "trained", (json_int_t)r->trained,
                  "trained_share", share, "trained_bytes", (json_int_t)(4 * r->trained), "result",
                  sheaf__json_utf8(r->result), "checkpoint", sheaf__json_utf8(r->checkpoint));
    if (r->evaluated)
        json_object_update_new(object, json_pack("{s:o, s:f, s:I}", "eval_loss",
                                                 sheaf__json_finite(r->eval_loss), "eval_accuracy",
                                                 r->eval_accuracy, "eval_tokens",
                                                 (json_int_t)r->eval_tokens));
    if (r->best_step > 0)
        json_object_update_new(object,
                               json_pack("{s:I, s:f, s:b}", "best_step", (json_int_t)r->best_step,
                                         "best_loss", r->best_loss, "stopped_early", r->early));
    if (r->loss_scale > 0)
        json_object_update_new(object, json_pack("{s:I, s:f}", "skipped", (json_int_t)r->skipped,
                                                 "loss_scale", r->loss_scale));
    const char *sums = sheaf__sums_name(o->dtype, o->sums);
    if (sums != NULL)
        json_object_set_new(object, "sums", json_string(sums));
    if (r->ranks > 0 && r->rank[0].steps > 0)
        add_ranks(object, r);
    sheaf_status *st = object == NULL ? sheaf__no_memory("the report")
                                      : sheaf__json_text(out, object, JSON_COMPACT);
    json_decref(object);
    return st;
}

/* ---- for people ---- */

/* Of the steps of all ranks. */
static void print_offload(FILE *to, const sheaf_train_result *r)
{
    sheaf_event_offload sum = { 0 };
    double slowest = 0, steps = 0;
    for (int i = 0; i < r->ranks; i++) {
        const sheaf_event_offload *one = &r->rank[i].offload;
        sum.read += one->read;
        sum.written += one->written;
        sum.reading += one->reading;
        sum.writing += one->writing;
        slowest = one->waiting > slowest ? one->waiting : slowest;
        steps = (double)r->rank[i].steps;
    }
    if (sum.read + sum.written == 0 || steps == 0)
        return;
    sheaf__print(to, "offload, a step: %.3f GB read at %.2f GB/s", (double)sum.read / 1e9 / steps,
                 sum.reading > 0 ? (double)sum.read / 1e9 / sum.reading : 0);
    if (sum.written > 0)
        sheaf__print(to, ", %.3f GB written at %.2f GB/s", (double)sum.written / 1e9 / steps,
                     sum.writing > 0 ? (double)sum.written / 1e9 / sum.writing : 0);
    sheaf__print(to, "; %.3g s waited for it\n", slowest / steps);
}

static void print_spent(FILE *to, const sheaf_train_result *r)
{
    sheaf_text why = { 0 };
    sheaf__print(
        to,
        "of a step in ms:  compute (products attention) transfers      wait  exchange      read  MiB sent;  of "
        "the run:  saving s  MiB at most\n");
    for (int i = 0; i < r->ranks; i++) {
        const sheaf__usage_total *one = &r->rank[i];
        const double steps = (double)one->steps, ms = 1e3 / steps,
                     timed = one->timed == 0 ? 0 : 1e3 / (double)one->timed;
        sheaf__print(to,
                     "  rank %-10d%8.2f%10.2f%10.2f%11.2f%10.2f%10.2f%10.2f%10.3f%23.2f%13.1f\n", i,
                     one->sum.compute * ms, one->products * timed, one->attention * timed,
                     one->transfers * timed, one->sum.wait * ms, one->sum.exchange * ms,
                     one->sum.read * ms, (double)one->sum.sent / 1048576 / steps, one->sum.save,
                     (double)one->sum.memory / 1048576);
    }
    sheaf__usage_why(&why, r->rank, r->ranks);
    if (why.at != NULL)
        sheaf__print(to, "%s\n", why.at);
    sheaf__text_release(&why);
}

sheaf_status *sheaf__train_text(char **out, const sheaf_train_result *r,
                                const sheaf_train_options *o)
{
    size_t size = 0;
    FILE *to = open_memstream(out, &size);
    if (to == NULL)
        return sheaf__no_memory("the report");
    if (r->first == r->step)
        sheaf__print(to, "all %lld steps were done before\n", (long long)r->step);
    else if (isnan(r->loss))
        sheaf__print(to, "%lld steps done, none with a label\n", (long long)r->step);
    else
        sheaf__print(to, "%lld steps done, last loss %.6g, %.0f tokens/s\n", (long long)r->step,
                     r->loss, rate_of(r));
    if (r->evaluated)
        sheaf__print(to, "evaluation: loss %.6g, %.2f %% of %lld tokens right\n", r->eval_loss,
                     100 * r->eval_accuracy, (long long)r->eval_tokens);
    if (r->best_step > 0)
        sheaf__print(to, "best:       step %lld, loss %.6g%s\n", (long long)r->best_step,
                     r->best_loss, o->use_best ? ", which is the result" : "");
    sheaf__print(to, "result:     %s\ncheckpoint: %s\n", r->result, r->checkpoint);
    if (r->ranks > 1 && r->rank[0].steps > 0)
        print_spent(to, r);
    print_offload(to, r);
    return fclose(to) == 0 ? NULL : sheaf__no_memory("the report");
}
