/* sets.c - see sets.h. */
#include "train/sets.h"

#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "base/random.h"
#include "train/sampler.h"

int64_t sheaf__subset_rows(const sheaf__subset *subset)
{
    return subset->row == NULL ? sheaf_data_samples(subset->data) : subset->rows;
}

int64_t sheaf__subset_row(const sheaf__subset *subset, int64_t index, uint64_t seed, bool shuffle)
{
    return sheaf_data_sample_of(subset->data, subset->row, subset->rows, index, seed, shuffle);
}

int64_t sheaf__subset_longest(const sheaf__subset *subset)
{
    int64_t longest = 1;
    if (subset->row == NULL)
        return sheaf_data_longest(subset->data);
    for (int64_t i = 0; i < subset->rows; i++)
        for (int side = 0; side < sheaf_data_sides(subset->data); side++) {
            const int64_t row = sheaf_data_side(subset->data, subset->row[i], side),
                          used = sheaf_data_used(subset->data, &row, 1);
            longest = used > longest ? used : longest;
        }
    return longest;
}

double sheaf__subset_padding(const sheaf__subset *subset, const sheaf_train_options *o,
                             int64_t samples)
{
    return sheaf_data_padding(subset->data, &(sheaf_data_order){ .micro_batch = o->micro_batch,
                                                                 .samples = samples,
                                                                 .seed = o->seed,
                                                                 .shuffle = o->shuffle,
                                                                 .row = subset->row,
                                                                 .rows = subset->rows });
}

/* ---- the sets of a run ---- */

/* 0.07 * 100 in double is a little more than 7, and means 7. */
static double whole_up(double x)
{
    return ceil(x * (1 - 1e-12));
}

static int ascending(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static sheaf_status *too_few(const char *what, int64_t n)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "`eval-split`");
    sheaf_expected(st, "rows with labels on both sides");
    sheaf_found(st, "%s of %" PRId64, what, n);
    return sheaf_try_this(st,
                          "another share or `seed`, more data, or a file of its own: `eval-data`");
}

/* Does any row of these samples have a label? */
static bool learns(const sheaf_data *data, const int64_t *sample, int64_t n)
{
    for (int64_t i = 0; i < n * sheaf_data_sides(data); i++) {
        const int64_t row = sheaf_data_side(data, sample[i % n], (int)(i / n));
        if (sheaf_data_labels(data, &row, 1) > 0)
            return true;
    }
    return false;
}

static sheaf_status *split(sheaf__sets *s, const sheaf_train_options *o)
{
    static const uint64_t held = 0x68656c64; /* "held" */
    const int64_t n = sheaf_data_samples(s->data),
                  out = (int64_t)whole_up(o->eval_split * (double)n);
    if (out >= n)
        return too_few("no row is left to train on", n);
    s->held = malloc((size_t)n * sizeof *s->held);
    if (s->held == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "list of %" PRId64 " rows", n);
    for (int64_t i = 0; i < n; i++)
        s->held[i] = (int64_t)sheaf__permute((uint64_t)i, (uint64_t)n, o->seed ^ held, 0);
    qsort(s->held, (size_t)out, sizeof *s->held, ascending);
    qsort(s->held + out, (size_t)(n - out), sizeof *s->held, ascending);
    s->eval = (sheaf__subset){ s->data, s->held, out };
    s->train = (sheaf__subset){ s->data, s->held + out, n - out };
    if (sheaf__sets_samples(o)) /* prompts have none */
        return NULL;
    if (!learns(s->data, s->held, out))
        return too_few("no label among the rows held out", n);
    return learns(s->data, s->held + out, n - out)
               ? NULL
               : too_few("no label among the rows that are left", n);
}

static sheaf_status *read(sheaf_data **out, const char *path, const sheaf_train_options *o,
                          const sheaf_config *config, const sheaf_events *events,
                          const atomic_int *stop, bool trains, const sheaf__objective *objective)
{
    const bool own = o->tokens_in == NULL;
    char beside[SHEAF_PATH_SIZE];
    return sheaf_data_open(
        out, path,
        &(sheaf_data_options){ .config = config,
                               .seq = o->seq,
                               .events = events,
                               .folder = own ? o->model : o->tokens_in,
                               .tokenizer = own ? o->tokenizer : NULL,
                               .prompt_template = o->prompt_template,
                               .date = o->date,
                               .query = o->query,
                               .loss_on = o->loss_on,
                               .on_long = o->on_long,
                               .on_bad = o->on_bad,
                               .fields = o->fields,
                               .specials = o->specials,
                               .pack = trains && o->pack,
                               .pairs = objective->pairs,
                               .judged = objective->judged,
                               .rollouts = objective->grouped,
                               .scores = objective->scores,
                               .by_length = trains && o->by_length,
                               .cache = o->data_cache,
                               .cache_beside = sheaf__is_given(o->out)
                                                   ? sheaf__path_in(beside, o->out, "cache")
                                                   : NULL,
                               .micro_batch = o->micro_batch,
                               .weights = trains,
                               .threads = o->threads,
                               .stop = stop });
}

/* What a recipe has for supervised training yields. */
static void yield_to(const sheaf__objective *objective, sheaf_train_options *o)
{
    if (sheaf__objective_prefers(objective) && (o->yields & SHEAF__YIELDS_PACK))
        o->pack = false;
    if (objective->grouped && !sheaf__sets_samples(o)) /* a group stays in one step */
        o->shuffle = false;
    if (objective->mismatched && (o->yields & SHEAF__YIELDS_MICRO_BATCH) && o->micro_batch < 2)
        o->micro_batch = 2;
}

typedef struct member {
    int64_t group, row;
} member;

static int by_group(const void *a, const void *b)
{
    const member *x = a, *y = b;
    return x->group != y->group ? ascending(&x->group, &y->group) : ascending(&x->row, &y->row);
}

/* member: room for all rows. */
static sheaf_status *check_steps(member *member, const sheaf_data *data,
                                 const sheaf_train_options *o)
{
    const int64_t rows = sheaf_data_rows(data), each = o->micro_batch * o->accumulate;
    int64_t first = 0; /* of the group */
    for (int64_t i = 0; i < rows; i++) {
        member[i].group = sheaf_data_rollout_of(data, i).group;
        member[i].row = i;
    }
    qsort(member, (size_t)rows, sizeof *member, by_group);
    for (int64_t i = 0; i < rows; i++) {
        first = member[i].group == member[first].group ? first : i;
        if (member[i].row / each != member[first].row / each)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", o->data),
                                              "groups of completions that each lie in one step "
                                              "of `micro-batch` * `accumulate` = %" PRId64
                                              " of them",
                                              each),
                               "completions %" PRId64 " and %" PRId64 " in one group",
                               member[first].row + 1, member[i].row + 1);
    }
    return NULL;
}

/* Every group of completions lies in one step, and one of them has a reward. */
static sheaf_status *check_groups(const sheaf_data *data, const sheaf_train_options *o)
{
    const int64_t rows = sheaf_data_rows(data), each = o->micro_batch * o->accumulate;
    member *member = malloc((size_t)rows * sizeof *member);
    bool any = false;
    sheaf_status *st = member == NULL ? sheaf__no_memory("groups of completions") : NULL;
    for (int64_t i = 0; i < rows; i++)
        any = any || !isnan(sheaf_data_rollout_of(data, i).reward);
    TRY(st, check_steps(member, data, o));
    free(member);
    if (st == NULL && rows % each != 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", o->data),
                                        "whole steps of `micro-batch` * `accumulate` = %" PRId64
                                        " completions",
                                        each),
                         "%" PRId64 " completions", rows);
    return st != NULL || any ? st
                             : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", o->data),
                                                          "a reward of a completion"),
                                           "none");
}

bool sheaf__objective_keeps(const sheaf__objective *objective, const sheaf_train_options *o)
{
    unsigned offloads = 0;
    sheaf_status_free(sheaf__offloads(&offloads, o->offload)); /* a valid one */
    return objective->pairs && !objective->weighting &&
           (offloads & ~(unsigned)SHEAF__OFFLOADS_MOMENTS) == 0;
}

sheaf_status *sheaf__objective_check(const sheaf__objective *objective,
                                     const sheaf_train_options *o)
{
    unsigned offloads = 0;
    sheaf_status *st = sheaf__offloads(&offloads, o->offload);
    if (st != NULL)
        return st;
    const bool given = objective->grouped && !sheaf__sets_samples(o);
    const struct {
        const char *flag, *why;
        bool given;
    } of[] = {
        { "`keep-activations pairs`",
          "it is for pairs, without `use-weighting` and without `offload` of weights or activations",
          o->kept == SHEAF__KEPT_PAIRS && !sheaf__objective_keeps(objective, o) },
        { "`pack`", "a pair's loss needs both answers whole, each in a row of its own", o->pack },
        { "`loss-on all`", "the answers alone are compared", o->loss_on == SHEAF_LOSS_ALL },
        { "`loss-on last`", "answers of several turns are compared whole",
          o->loss_on == SHEAF_LOSS_LAST && !objective->judged },
        { "`on-long cut`", "a completion has its reward as a whole",
          o->on_long == SHEAF_LONG_CUT && objective->grouped },
        { "`eval-data`", "an evaluation has no rewards, but those of `reward`",
          sheaf__is_given(o->eval_data) && given },
        { "`eval-split`", "an evaluation has no rewards, but those of `reward`",
          o->eval_split > 0 && given },
        { "`group-by-length`", "groups of completions stay together",
          o->by_length && objective->grouped },
        { "`add-tokens`", "a reward model has no head for them",
          objective->scores && sheaf__is_given(o->add_tokens) },
        { "`neftune-alpha`", "the reference's sums are those without noise", o->neftune_alpha > 0 },
    };
    const size_t n = sheaf__objective_prefers(objective) ? sizeof of / sizeof *of : 1;
    for (size_t i = 0; i < n; i++)
        if (of[i].given)
            return sheaf_try_this(
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", of[i].flag),
                                           "none with `objective %s`", objective->name),
                            "%s", of[i].why),
                "leave it out");
    return NULL;
}

static sheaf_status *check_drift(const sheaf__objective *objective, const sheaf_train_options *o)
{
    return !objective->mismatched || o->micro_batch > 1
               ? NULL
               : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`micro-batch`"),
                                            "at least 2 with kto, which puts each prompt before "
                                            "another one's answer"),
                             "1");
}

int64_t sheaf__subset_times(const sheaf_train_options *o)
{
    return (o->objective.group.iterations > 0 ? o->objective.group.iterations : 1) *
           (sheaf__sets_samples(o) ? sheaf__sets_generations(o) : 1);
}

int64_t sheaf__subset_steps(const sheaf__subset *subset, const sheaf_train_options *o)
{
    const double samples = o->epochs * (double)sheaf__subset_rows(subset) *
                           (double)sheaf__subset_times(o),
                 of_step = (double)o->micro_batch * (double)o->accumulate;
    const double steps = whole_up(samples / of_step);
    return o->epochs <= 0 ? o->steps
           : steps < 1    ? 1
           : steps > 1e15 ? (int64_t)1e15
                          : (int64_t)steps;
}

/* ---- what little data lower ---- */

/* Says what a recipe's step became; `was` has it as it stood there. */
static void note_lowered(const sheaf_train_options *o, const sheaf_train_options *was,
                         int64_t steps, const sheaf_events *events)
{
    const int64_t step = o->micro_batch * o->accumulate,
                  before = was->micro_batch * was->accumulate;
    const bool warms = was->warmup != o->warmup || was->warmup_ratio != o->warmup_ratio;
    char rows[96] = "", list[160];
    if (step != before)
        snprintf(rows, sizeof rows, "steps of %" PRId64 " row%s in place of %" PRId64, step,
                 step == 1 ? "" : "s", before);
    snprintf(list, sizeof list, "%s%s%s%s%s", was->pack != o->pack ? "rows are not packed" : "",
             was->pack != o->pack && (step != before || warms) ? ", " : "", rows,
             step != before && warms ? ", " : "", warms ? "no warm-up" : "");
    if (list[0] != '\0')
        sheaf_note(events,
                   "little data for this recipe, which would take %" PRId64
                   " step%s: %s (a flag's value stays)",
                   steps, steps == 1 ? "" : "s", list);
}

/* Packed rows yield first, where even a row a step makes too few, then the rows of a step. */
static void lower(sheaf__sets *s, const sheaf__subset *records, sheaf_train_options *o)
{
    const double want = SHEAF__SENSIBLE_STEPS;
    if ((o->yields & SHEAF__YIELDS_PACK) && s->packed != NULL &&
        o->epochs * (double)sheaf__subset_rows(&s->train) < want) {
        sheaf_data_close(s->packed);
        s->packed = NULL;
        s->train = *records;
        o->pack = false;
    }
    const int64_t least = s->objective.mismatched ? 2 : 1;
    const double rows = floor(o->epochs * (double)sheaf__subset_rows(&s->train) / want),
                 each = floor(rows / (double)o->micro_batch);
    if ((o->yields & SHEAF__YIELDS_ACCUMULATE) && each < (double)o->accumulate)
        o->accumulate = each < 1 ? 1 : (int64_t)each;
    if ((o->yields & SHEAF__YIELDS_MICRO_BATCH) && o->accumulate == 1 && !o->by_length &&
        rows < (double)o->micro_batch)
        o->micro_batch = rows < (double)least ? least : (int64_t)rows;
}

/* Of the training rows. */
static sheaf_status *pack_and_count(sheaf__sets *s, sheaf_train_options *o,
                                    const sheaf_events *events)
{
    const sheaf_train_options was = *o;
    const sheaf__subset records = s->train;
    if (o->pack) {
        sheaf_status *st = sheaf_data_pack(&s->packed, s->data, s->train.row, s->train.rows);
        if (st != NULL)
            return st;
        s->train = (sheaf__subset){ .data = s->packed };
    }
    const int64_t steps = sheaf__subset_steps(&s->train, o);
    if (o->epochs > 0 && steps < SHEAF__SENSIBLE_STEPS)
        lower(s, &records, o);
    o->steps = sheaf__subset_steps(&s->train, o);
    sheaf__warmup_yield(o);
    note_lowered(o, &was, steps, events);
    if (o->pack)
        sheaf_note(events,
                   "%" PRId64 " records are packed into %" PRId64 " rows of at most %" PRId64
                   " tokens",
                   sheaf__subset_rows(&records), sheaf_data_rows(s->packed), o->seq);
    return NULL;
}

/* What is learnt, before anything is read. */
static sheaf_status *begin(sheaf__sets *s, sheaf_train_options *o)
{
    *s = (sheaf__sets){ 0 };
    sheaf_status *st = sheaf__objective_read(&s->objective, &o->objective, o->label_smoothing);
    if (st == NULL)
        yield_to(&s->objective, o);
    return TRY(st, sheaf__objective_check(&s->objective, o));
}

sheaf_status *sheaf__reference_check_data(const char *reference, const sheaf_data *data)
{
    if (!sheaf__is_given(reference) || !sheaf_data_reference(&(double){ 0 }, data, 0))
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`reference`"),
                                      "none beside the data's own, ref_chosen_logps"),
                       "%s", reference);
}

sheaf_status *sheaf__sets_open(sheaf__sets *s, sheaf_train_options *o, const sheaf_config *config,
                               const sheaf_events *events, const atomic_int *stop)
{
    sheaf_status *st = begin(s, o);
    TRY(st, check_drift(&s->objective, o));
    if (st == NULL && sheaf__sets_samples(o))
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`reward`"),
                              "`rollouts`, completions that are given");
    TRY(st, read(&s->data, o->data, o, config, events, stop, true, &s->objective));
    if (st != NULL)
        return st;
    if (s->objective.grouped && (st = check_groups(s->data, o)) != NULL)
        return st;
    sheaf_data_note_unused(s->data, o->data, o->prompt_template, o->date, o->query, events);
    s->train.data = s->data;
    if ((st = sheaf__reference_check_data(o->objective.reference, s->data)) != NULL)
        return st;
    if (sheaf__is_given(o->eval_data)) {
        st = read(&s->eval_data, o->eval_data, o, config, events, stop, false, &s->objective);
        TRY(st, sheaf__reference_check_data(o->objective.reference, s->eval_data));
        st = sheaf_in(st, "`eval-data`");
        s->eval.data = s->eval_data;
    } else if (o->eval_split > 0) {
        st = split(s, o);
    }
    TRY(st, pack_and_count(s, o, events));
    return TRY(st, sheaf_data_check_shares(s->train.data, s->train.row, s->train.rows));
}

bool sheaf__sets_samples(const sheaf_train_options *o)
{
    return sheaf__is_given(o->objective.group.reward);
}

int64_t sheaf__sets_generations(const sheaf_train_options *o)
{
    return o->objective.group.generations > 0 ? o->objective.group.generations : 8;
}

sheaf_status *sheaf__sets_sample(sheaf__sets *s, sheaf_train_options *o, const sheaf_config *config,
                                 const sheaf__sampler *sampler, const sheaf_events *events)
{
    const int64_t each = sheaf__sets_generations(o), rows = o->micro_batch * o->accumulate;
    sheaf_status *st = begin(s, o);
    if (st == NULL && !s->objective.grouped)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`reward`"), "`objective grpo` or rloo");
    if (st == NULL && s->objective.group.max_new < 1)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`reward`"),
                            "`max-new` beside it, the most tokens of a completion");
    if (st == NULL && (each < 2 || rows % each != 0))
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`generations`"),
                                        "2 or more, a divisor of `micro-batch` * `accumulate` = "
                                        "%" PRId64 " completions of a step",
                                        rows),
                         "%" PRId64, each);
    if (st != NULL || sampler == NULL)
        return st;
    sheaf_data *opened[2] = { NULL, NULL };
    st = sampler->open(sampler->self, opened, &s->sampler, o, config, events);
    s->train.data = s->data = opened[0];
    s->eval.data = s->eval_data = opened[1];
    if (st == NULL && s->data != NULL && o->eval_split > 0)
        st = split(s, o);
    if (st != NULL || s->data == NULL)
        return st;
    const sheaf_train_options was = *o;
    o->steps = sheaf__subset_steps(&s->train, o);
    sheaf__warmup_yield(o);
    note_lowered(o, &was, o->steps, events);
    return NULL;
}

int64_t sheaf__sets_seq(const sheaf__sets *s, const sheaf_train_options *o)
{
    const int64_t longest = sheaf__subset_longest(&s->train),
                  judged = s->eval.data == NULL ? 0 : sheaf__subset_longest(&s->eval);
    return !sheaf__sets_samples(o)
               ? longest
               : (longest > judged ? longest : judged) + o->objective.group.max_new;
}

void sheaf__sets_close(sheaf__sets *s)
{
    sheaf_data_close(s->packed);
    sheaf_data_close(s->data);
    sheaf_data_close(s->eval_data);
    free(s->held);
    *s = (sheaf__sets){ 0 };
}

int64_t sheaf__sets_memory(const sheaf__sets *s)
{
    return sheaf_data_memory(s->data) + s->sampler +
           (s->eval_data == NULL ? 0 : sheaf_data_memory(s->eval_data)) +
           (s->packed == NULL ? 0 : sheaf_data_memory(s->packed)) +
           (s->held == NULL ? 0 : sheaf_data_samples(s->data) * (int64_t)sizeof *s->held);
}
