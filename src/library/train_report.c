/* train_report.c - what a run of training came to: for programs and for people. */
#include <math.h>

#include "base/base.h"
#include "base/json_write.h"
#include "base/print.h"
#include "library/session.h"
#include "models/sums.h"
#include "plan/plan.h"
#include "train/sets.h"
#include "train/usage.h"

static double rate_of(const sheaf_train_result *r)
{
    return r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
}

/* ---- for programs ---- */

/* Traffic of one rank with each peer: bytes, and bytes a second of the time that it exchanged, all
 * its peers together. */
static void put_peers(sheaf_json_writer *j, const sheaf__usage_total *one, int ranks, int me)
{
    sheaf__json_open(j, "peers", '[');
    for (int p = 0; p < ranks; p++)
        if (p != me && one->to[p] + one->from[p] > 0)
            sheaf__json_put(
                j, "{ rank:i sent:d received:d bytes_per_s:f }", p, one->to[p], one->from[p],
                one->sum.exchange > 0 ? (double)(one->to[p] + one->from[p]) / one->sum.exchange
                                      : 0.0);
    sheaf__json_close(j, ']');
}

static void put_rank(sheaf_json_writer *j, const sheaf__usage_total *one, int ranks, int me)
{
    const sheaf_event_offload *o = &one->offload;
    sheaf__json_put(j,
                    "{ steps:d seconds:f compute:f wait:f exchange:f read:f save:f sent:d "
                    "received:d memory:d process:d products:f attention:f transfers:f timed:d "
                    "kinds:{",
                    one->steps, one->seconds, one->sum.compute, one->sum.wait, one->sum.exchange,
                    one->sum.read, one->sum.save, one->sum.sent, one->sum.received, one->sum.memory,
                    one->sum.process, one->products, one->attention, one->transfers, one->timed);
    for (int k = 0; k < SHEAF_MEM_KINDS; k++) {
        sheaf__json_open(j, sheaf_plan_kind((sheaf_memory)k), '{');
        sheaf__json_put(j, "held:d most:d }", one->held[k], one->most[k]);
    }
    sheaf__json_put(j, "} exchanges:{");
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        const sheaf__count *c = &one->exchange[t];
        sheaf__json_open(j, sheaf__traffic_name((sheaf__traffic)t), '{');
        sheaf__json_put(j, "calls:d sent:d received:d waiting:f moving:f summing:f }", c->calls,
                        c->sent, c->received, c->waiting, c->moving, c->summing);
    }
    sheaf__json_close(j, '}');
    put_peers(j, one, ranks, me);
    if (one->sent_from != SHEAF__SENT_FROM_HOST)
        sheaf__json_put_text(j, "sent_from",
                             one->sent_from == SHEAF__SENT_FROM_GPU ? "gpu" : "pinned");
    if (o->read + o->written > 0)
        sheaf__json_put(j, "offload:{ read:d written:d reading:f writing:f waiting:f }", o->read,
                        o->written, o->reading, o->writing, o->waiting);
    sheaf__json_close(j, '}');
}

sheaf_status *sheaf__train_json(char **out, const sheaf_train_result *r,
                                const sheaf_train_options *o)
{
    const double share =
        r->parameters == 0 ? 0 : (double)r->trained / (double)(r->parameters + r->added);
    const char *sums = sheaf__sums_name(o->dtype, o->sums);
    sheaf_json_writer j = { .compact = true };
    sheaf__json_put(&j,
                    "{ step:d resumed_at:d loss:f seconds:f tokens:d tokens_per_s:f padding:f "
                    "parameters:d trained:d trained_share:f trained_bytes:d result:s checkpoint:s",
                    r->step, r->first, r->loss, r->seconds, r->tokens, rate_of(r), r->padding,
                    r->parameters, r->trained, share, 4 * r->trained, r->result, r->checkpoint);
    if (r->evaluated)
        sheaf__json_put(&j, "eval_loss:f eval_accuracy:f eval_tokens:d", r->eval_loss,
                        r->eval_accuracy, r->eval_tokens);
    if (r->best_step > 0)
        sheaf__json_put(&j, "best_step:d best_loss:f stopped_early:b", r->best_step, r->best_loss,
                        r->early);
    if (r->loss_scale > 0)
        sheaf__json_put(&j, "skipped:d loss_scale:f", r->skipped, r->loss_scale);
    if (sums != NULL)
        sheaf__json_put_text(&j, "sums", sums);
    if (r->ranks > 0 && r->rank[0].steps > 0) {
        sheaf__json_open(&j, "ranks", '[');
        for (int i = 0; i < r->ranks; i++)
            put_rank(&j, &r->rank[i], r->ranks, i);
        sheaf__json_close(&j, ']');
        if (r->ranks > 1)
            sheaf__json_put_int(&j, "slowest", sheaf__usage_slowest(r->rank, r->ranks));
    }
    sheaf__json_put(&j, "}");
    return sheaf__text_take(out, &j.text);
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
    const bool rewards = sheaf__sets_samples(o);
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
    if (r->evaluated && rewards)
        sheaf__print(to, "evaluation: reward %.6g, mean of %lld prompts\n", -r->eval_loss,
                     (long long)r->eval_tokens);
    else if (r->evaluated)
        sheaf__print(to, "evaluation: loss %.6g, %.2f %% of %lld %s right\n", r->eval_loss,
                     100 * r->eval_accuracy, (long long)r->eval_tokens,
                     r->eval_pairs ? "samples" : "tokens");
    if (r->best_step > 0)
        sheaf__print(to, "best:       step %lld, %s %.6g%s\n", (long long)r->best_step,
                     rewards ? "reward" : "loss", rewards ? -r->best_loss : r->best_loss,
                     o->use_best ? ", which is the result" : "");
    sheaf__print(to, "result:     %s\ncheckpoint: %s\n", r->result, r->checkpoint);
    if (r->ranks > 1 && r->rank[0].steps > 0)
        print_spent(to, r);
    print_offload(to, r);
    return fclose(to) == 0 ? NULL : sheaf__no_memory("the report");
}
