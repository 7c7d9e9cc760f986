/* plan_time.c - see plan_time.h. */
#include "plan_time.h"

#include "base/print.h"

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

static void print_parts(const cli *cli, const sheaf_time *is)
{
    part all[PARTS];
    parts_of(all, is);
    for (int i = 0; i < PARTS; i++)
        if (all[i].seconds >= 0.0005 * is->step)
            sheaf__print(cli->out, "  %-15s%10.4g ms%7.1f %%\n", all[i].name, 1e3 * all[i].seconds,
                         100 * all[i].seconds / is->step);
}

static double all_answers(const sheaf__timing *t)
{
    return t->is.step + t->next.step * (double)(t->max_new - 1);
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

void cli_time_print(const cli *cli, const sheaf__timing *t, int64_t steps)
{
    const double hours = t->is.step * (double)steps / 3600;
    if (t->next.step > 0) {
        print_answers(cli, t);
        return;
    }
    sheaf__print(cli->out, "time: %.4g ms a step, %.4g tokens/s\n", 1e3 * t->is.step,
                 t->tokens / t->is.step);
    print_parts(cli, &t->is);
    if (steps > 0)
        sheaf__print(cli->out, "  %lld step%s would take %.3g %s\n", (long long)steps,
                     steps == 1 ? "" : "s",
                     hours < 1.0 / 60 ? 3600 * hours
                     : hours < 2      ? 60 * hours
                                      : hours,
                     hours < 1.0 / 60 ? "seconds"
                     : hours < 2      ? "minutes"
                                      : "hours");
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

json_t *cli_time_json(const sheaf__timing *t, int64_t steps)
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
