/* curves.c - see curves.h. */
#include "report/curves.h"

#include <jansson.h>
#include <math.h>

static const char *const names[SHEAF__CURVES] = { "loss",
                                                  "grad_norm",
                                                  "lr",
                                                  "tokens",
                                                  "seconds",
                                                  "compute",
                                                  "wait",
                                                  "exchange",
                                                  "read",
                                                  "save",
                                                  "sent",
                                                  "memory",
                                                  "reward",
                                                  "reward_std",
                                                  "frac_reward_zero_std",
                                                  "completions/mean_length",
                                                  "entropy" };

const char *sheaf__curve_name(sheaf__curve curve)
{
    return names[curve];
}

double sheaf__curve_at(const sheaf__curve_point *point, sheaf__curve curve)
{
    return point->count[curve] == 0 ? NAN : point->sum[curve] / (double)point->count[curve];
}

/* ---- points ---- */

static void merge(sheaf__curve_point *into, const sheaf__curve_point *next)
{
    const bool had = into->count[SHEAF__CURVE_LOSS] > 0, has = next->count[SHEAF__CURVE_LOSS] > 0;
    if (has && (!had || next->lowest < into->lowest))
        into->lowest = next->lowest;
    if (has && (!had || next->highest > into->highest))
        into->highest = next->highest;
    for (int c = 0; c < SHEAF__CURVES; c++) {
        into->sum[c] += next->sum[c];
        into->count[c] += next->count[c];
    }
    into->step = next->step;
}

/* Each two points become one. */
static void thin(sheaf__curves *curves)
{
    for (int64_t i = 0; i < curves->points; i++) {
        sheaf__curve_point *to = &curves->point[i / 2];
        if (i % 2 == 0)
            *to = curves->point[i];
        else
            merge(to, &curves->point[i]);
    }
    curves->points = (curves->points + 1) / 2;
    curves->merged *= 2;
}

static sheaf_status *add_point(sheaf__curves *curves, const sheaf__curve_point *point)
{
    if (curves->steps++ % curves->merged != 0) {
        merge(&curves->point[curves->points - 1], point);
        return NULL;
    }
    if (curves->points == SHEAF__CURVE_POINTS) {
        thin(curves); /* a multiple of the new `merged` steps: the next one begins a point */
        curves->steps--;
        return add_point(curves, point);
    }
    if (!SHEAF_GROW(&curves->point, &curves->capacity, curves->points + 1))
        return sheaf__no_memory("the points of curves");
    curves->point[curves->points++] = *point;
    return NULL;
}

/* ---- ranks ---- */

static double number(const json_t *object, const char *key)
{
    const json_t *value = json_object_get(object, key);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* As a sum: a number that is missing, negative or not finite adds nothing. */
static double amount(const json_t *object, const char *key)
{
    const double value = number(object, key);
    return isfinite(value) && value > 0 ? value : 0;
}

static void release_ranks(sheaf__curves *curves)
{
    for (int r = 0; r < curves->ranks; r++)
        free(curves->rank[r].sent_to);
    free(curves->rank);
    curves->rank = NULL;
    curves->ranks = 0;
}

static sheaf_status *begin_ranks(sheaf__curves *curves, int ranks, int64_t step)
{
    release_ranks(curves);
    curves->rank = calloc((size_t)ranks, sizeof *curves->rank);
    if (curves->rank == NULL)
        return sheaf__no_memory("ranks");
    for (curves->ranks = 0; curves->ranks < ranks; curves->ranks++) {
        sheaf__curve_rank *rank = &curves->rank[curves->ranks];
        if ((rank->sent_to = calloc((size_t)ranks, sizeof(double))) == NULL)
            return sheaf__no_memory("ranks");
    }
    curves->ranks_since = step;
    curves->ranks_steps = 0;
    return NULL;
}

static void add_rank(sheaf__curve_rank *to, const json_t *rank, int ranks)
{
    to->compute += amount(rank, "compute");
    to->wait += amount(rank, "wait");
    to->exchange += amount(rank, "exchange");
    to->read += amount(rank, "read");
    to->save += amount(rank, "save");
    to->products += amount(rank, "products");
    to->attention += amount(rank, "attention");
    to->transfers += amount(rank, "transfers");
    to->timed += json_object_get(rank, "products") != NULL;
    to->sent += amount(rank, "sent");
    to->received += amount(rank, "received");
    to->memory = fmax(to->memory, amount(rank, "memory"));
    to->process = fmax(to->process, amount(rank, "process"));
    const json_t *kinds = json_object_get(rank, "kinds"),
                 *sent_to = json_object_get(rank, "sent_to");
    for (int k = 0; k < SHEAF_MEM_KINDS && json_is_object(kinds); k++)
        to->kind[k] = amount(kinds, sheaf__memory_key((sheaf_memory)k));
    for (int r = 0; r < ranks && json_is_array(sent_to); r++) {
        const double bytes = json_number_value(json_array_get(sent_to, (size_t)r));
        to->sent_to[r] += bytes > 0 && isfinite(bytes) ? bytes : 0;
    }
}

static void put(sheaf__curve_point *point, sheaf__curve curve, double value)
{
    if (isfinite(value)) {
        point->sum[curve] = value;
        point->count[curve] = 1;
    }
}

static sheaf_status *add_ranks(sheaf__curves *curves, sheaf__curve_point *point, const json_t *list)
{
    static const sheaf__curve times[] = { SHEAF__CURVE_COMPUTE, SHEAF__CURVE_WAIT,
                                          SHEAF__CURVE_EXCHANGE, SHEAF__CURVE_READ,
                                          SHEAF__CURVE_SAVE };
    const size_t n = json_array_size(list);
    sheaf_status *st = NULL;
    if (n == 0 || n > SHEAF_EVENT_RANKS)
        return NULL;
    if ((int)n != curves->ranks && (st = begin_ranks(curves, (int)n, point->step)) != NULL)
        return st;
    double sent = 0, memory = 0;
    for (size_t r = 0; r < n; r++) {
        const json_t *rank = json_array_get(list, r);
        add_rank(&curves->rank[r], rank, (int)n);
        for (size_t t = 0; t < sizeof times / sizeof *times; t++) {
            point->sum[times[t]] += amount(rank, names[times[t]]) / (double)n;
            point->count[times[t]] = 1;
        }
        sent += amount(rank, "sent");
        memory = fmax(memory, amount(rank, "memory"));
    }
    curves->ranks_steps++;
    put(point, SHEAF__CURVE_SENT, sent);
    put(point, SHEAF__CURVE_MEMORY, memory > 0 ? memory : NAN);
    return NULL;
}

/* ---- lines ---- */

static sheaf_status *add_odd(sheaf__curves *curves, int64_t line, const char *why)
{
    sheaf_text text = { 0 };
    if (curves->nodd++ >= SHEAF__CURVE_ODD)
        return NULL;
    sheaf__text_add(&text, "line %" PRId64 ": %s", line, why);
    return sheaf__text_take(&curves->odd[curves->nodd - 1], &text);
}

static sheaf_status *add_step(sheaf__curves *curves, const json_t *line, int64_t step)
{
    sheaf__curve_point point = { .step = step };
    put(&point, SHEAF__CURVE_LOSS, number(line, "loss"));
    put(&point, SHEAF__CURVE_GRAD_NORM, number(line, "grad_norm"));
    put(&point, SHEAF__CURVE_LR, number(line, "lr"));
    for (sheaf__curve c = SHEAF__CURVE_REWARD; c < SHEAF__CURVES; c++)
        put(&point, c, number(line, names[c]));
    point.lowest = point.highest = point.sum[SHEAF__CURVE_LOSS];
    const double tokens = number(line, "tokens"), rate = number(line, "tokens_per_s");
    if (tokens > 0 && rate > 0 && isfinite(tokens / rate)) {
        put(&point, SHEAF__CURVE_TOKENS, tokens);
        put(&point, SHEAF__CURVE_SECONDS, tokens / rate);
        curves->tokens += tokens;
        curves->seconds += tokens / rate;
    }
    curves->skipped += json_is_true(json_object_get(line, "skipped"));
    curves->last_step = step;
    sheaf_status *st = add_ranks(curves, &point, json_object_get(line, "ranks"));
    return st != NULL ? st : add_point(curves, &point);
}

static sheaf_status *add_evaluation(sheaf__curves *curves, const json_t *line, int64_t step)
{
    if (!SHEAF_GROW(&curves->evaluation, &curves->evaluation_capacity, curves->evaluations + 1))
        return sheaf__no_memory("evaluations");
    const json_t *tokens = json_object_get(line, "eval_tokens");
    curves->evaluation[curves->evaluations++] = (sheaf__curve_evaluation){
        .step = step,
        .loss = number(line, "eval_loss"),
        .accuracy = number(line, "eval_accuracy"),
        .reward = number(line, "eval_reward"),
        .tokens = json_integer_value(tokens),
    };
    return NULL;
}

static sheaf_status *add_line(sheaf__curves *curves, const json_t *line, int64_t at)
{
    const json_t *number = json_object_get(line, "step"); /* NULL if the line is no object */
    const int64_t step = json_is_integer(number) ? json_integer_value(number) : 0;
    const bool evaluation = json_object_get(line, "eval_loss") != NULL;
    if (step < 1 || (!evaluation && json_object_get(line, "loss") == NULL))
        return add_odd(curves, at, "neither a step nor an evaluation");
    if (evaluation) {
        const int64_t before =
            curves->evaluations == 0 ? 0 : curves->evaluation[curves->evaluations - 1].step;
        return step > before ? add_evaluation(curves, line, step)
                             : add_odd(curves, at, "an evaluation before the one above it");
    }
    return step > curves->last_step ? add_step(curves, line, step)
                                    : add_odd(curves, at, "a step before the one above it");
}

static sheaf_status *take(void *self, const json_t *value, int64_t number, const char *odd)
{
    return value == NULL ? add_odd(self, number, odd) : add_line(self, value, number);
}

static void begin(void *self)
{
    sheaf__curves *curves = self;
    sheaf__curves_release(curves);
    curves->merged = 1;
}

sheaf_status *sheaf__curves_read(sheaf__curves *curves, const char *path)
{
    return sheaf__lines_read(&curves->at, path, &(sheaf__lines_reader){ curves, begin, take });
}

void sheaf__curves_release(sheaf__curves *curves)
{
    release_ranks(curves);
    for (int i = 0; i < SHEAF__CURVE_ODD; i++)
        free(curves->odd[i]);
    free(curves->point);
    free(curves->evaluation);
    *curves = (sheaf__curves){ 0 };
}
