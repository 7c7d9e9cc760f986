/* generate.c - see generate.h. */
#include "comm/activity.h"
#include "infer/scheduler.h"

#include "base/base.h"

/* Names a weight that is not finite. */
static sheaf_status *name_weight(sheaf_status *st, const sheaf__model *model)
{
    const char *weight = NULL;
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_NUMBER)
        return st;
    sheaf_status *lost = sheaf__model_bad_weight(&weight, model);
    if (lost != NULL) {
        sheaf_status_free(st);
        return lost;
    }
    return weight == NULL
               ? st
               : sheaf_try_this(st,
                                "the weight '%s' holds a number that is not finite: sheaf verify "
                                "counts such numbers of each tensor",
                                weight);
}

/* ---- groups that each answered a share of the prompts ---- */

/* Copies an answer's numbers into a block, or out of one; returns their bytes. */
static size_t move(char *block, const sheaf__continuation *one, int64_t best, bool out)
{
    const size_t n = (size_t)one->n, many = n * (size_t)best;
    void *const array[] = { one->ids, one->logprob, one->best_ids, one->best_logprob };
    const size_t bytes[] = { 4 * n, 4 * n, 4 * many, 4 * many };
    size_t at = 0;
    for (int i = 0; i < (one->logprob != NULL ? 4 : 1); at += bytes[i++])
        if (block != NULL && bytes[i] > 0)
            memcpy(out ? array[i] : block + at, out ? block + at : array[i], bytes[i]);
    return at;
}

/* All answers, group after group. */
static sheaf_status *gather(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                            int64_t best)
{
    size_t size[SHEAF_MAX_SLICES], total = 0;
    int64_t *length = malloc((2 * (size_t)count + 1) * sizeof *length); /* then why it ended */
    if (length == NULL)
        return sheaf__no_memory("answers of other groups");
    for (int64_t i = 0; i < count; i++) {
        length[2 * i] = out[i].n;
        length[2 * i + 1] = (int64_t)out[i].ending;
    }
    for (int g = 0; g < c->groups; g++) {
        const sheaf_range share = sheaf__share_of(count, c, g);
        size[g] = (size_t)(share.end - share.begin) * 2 * sizeof *length;
    }
    sheaf_status *st = sheaf_comm_gather(c->peers, length, size);
    for (int g = 0; g < c->groups && st == NULL; g++) {
        const sheaf_range share = sheaf__share_of(count, c, g);
        size[g] = 0;
        for (int64_t i = share.begin; i < share.end; i++) {
            out[i].n = length[2 * i];
            out[i].ending = (sheaf_ending)length[2 * i + 1];
            size[g] += move(NULL, &out[i], best, false);
        }
        total += size[g];
    }
    char *all = st == NULL ? malloc(total + 1) : NULL, *at = all;
    if (st == NULL && all == NULL)
        st = sheaf__no_memory("answers of other groups");
    for (int64_t i = 0; i < count && st == NULL; i++)
        at += move(at, &out[i], best, false);
    TRY(st, sheaf_comm_gather(c->peers, all, size));
    at = all;
    for (int64_t i = 0; i < count && st == NULL; i++)
        at += move(at, &out[i], best, true);
    free(all);
    free(length);
    return st;
}

/* Exchanges the groups' shares of `out`, also incomplete ones after a stop, which all then return
 * as SHEAF_E_STOPPED; `st` is this group's status, consumed. Collective among peers, except for a
 * rank that failed otherwise. */
static sheaf_status *share_answers(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                                   int64_t best, sheaf_status *st)
{
    int over = st != NULL;
    if (st != NULL && sheaf_status_code(st) != SHEAF_E_STOPPED)
        return st;
    sheaf_status *failed = sheaf_comm_any(c->peers, &over);
    TRY(failed, gather(out, c, count, best));
    if (failed != NULL) {
        sheaf_status_free(st);
        return failed;
    }
    return st == NULL && over ? sheaf_fail(SHEAF_E_STOPPED, "generation") : st;
}

/* ---- sheaf__generate ---- */

/* Rows of the longest sequence: its last token is not an input. */
static int64_t rows_of(const sheaf__generate_options *o, int64_t longest)
{
    const int64_t all = longest + o->max_new;
    if (o->max_length == 0 || all <= o->max_length)
        return all;
    return o->max_length > longest ? o->max_length : longest + 1;
}

/* Was a stop requested on any rank? */
static sheaf_status *stopped(const sheaf__context *c, const sheaf__generate_options *o)
{
    if (o->stop_now == NULL)
        return NULL;
    int flag = atomic_load(o->stop_now) != 0;
    sheaf_status *st =
        sheaf__model_comm(c) == NULL ? NULL : sheaf_comm_any(sheaf__model_comm(c), &flag);
    return st == NULL && flag ? sheaf_fail(SHEAF_E_STOPPED, "generation") : st;
}

static sheaf_status *run_pass(void *slots, const sheaf__slots_pass *pass)
{
    return sheaf__slots_run(slots, pass);
}

/* Takes the failure of a sequence, of which all are released. */
static sheaf_status *take_failure(sheaf__sequence *s, int64_t count)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < count; i++) {
        if (st == NULL)
            st = s[i].failed;
        else
            sheaf_status_free(s[i].failed);
        s[i].failed = NULL;
    }
    return st;
}

/* How many are over. */
static int64_t count_over(const sheaf__sequence *s, int64_t count)
{
    int64_t over = 0;
    for (int64_t i = 0; i < count; i++)
        over += s[i].over;
    return over;
}

/* Passes until all sequences are over. */
static sheaf_status *run_all(sheaf__scheduler *e, const sheaf__model *model, sheaf__sequence *s,
                             int64_t count, const sheaf__generate_options *o)
{
    sheaf_status *st = NULL;
    int64_t over = 0;
    while (st == NULL && !sheaf__scheduler_idle(e)) {
        sheaf__activity_number(model->context->activity, "prompt",
                               o->number + s->number + over + 1);
        sheaf__scheduler_step(e);
        st = name_weight(take_failure(s, count), model);
        const int64_t before = over;
        over = count_over(s, count);
        if (st == NULL && over > before && count > 1) /* else its text shows it */
            sheaf_emit(o->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                  .text = "prompts",
                                                  .done = over,
                                                  .total = count });
        if (st == NULL && !sheaf__scheduler_idle(e))
            st = stopped(model->context, o);
    }
    for (int64_t i = 0; i < count && st != NULL; i++)
        if (!s[i].over)
            s[i].out->ending = SHEAF_ENDS_STOPPED;
    return st;
}

static sheaf_status *answer(sheaf__sequence *s, int64_t count, sheaf__model *model,
                            const sheaf__generate_options *o)
{
    sheaf__prefix_cache *prefix = o->prefix;
    const int64_t places = o->batch < count ? o->batch : count;
    int64_t longest = 1, reused;
    sheaf__slots slots = { 0 };
    sheaf__scheduler *e = NULL;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < count; i++)
        longest = s[i].prompt->n > longest ? s[i].prompt->n : longest;
    const int64_t length = rows_of(o, longest);
    if (prefix != NULL)
        st = sheaf__prefix_cache_begin(&reused, prefix, model, s->prompt, length);
    TRY(st, sheaf__slots_open(&slots, &(sheaf__slots_options){
                                          .model = &model,
                                          .models = 1,
                                          .places = places,
                                          .length = prefix != NULL ? prefix->length : length,
                                          .prompt = longest,
                                          .kv_cache = prefix != NULL ? &prefix->kv_cache : NULL }));
    TRY(st, sheaf__scheduler_open(&e, &(sheaf__scheduler_options){ .config = &model->schema->config,
                                                                   .models = 1,
                                                                   .places = places,
                                                                   .length = length,
                                                                   .past = prefix,
                                                                   .run = run_pass,
                                                                   .self = &slots }));
    for (int64_t i = 0; i < count && st == NULL; i++)
        sheaf__scheduler_add(e, &s[i]);
    TRY(st, run_all(e, model, s, count, o));
    sheaf__scheduler_close(e);
    sheaf__slots_close(&slots);
    sheaf__activity_item(model->context->activity, NULL);
    return st;
}

sheaf_status *sheaf__generate(sheaf__continuation *out, sheaf__model *model,
                              const sheaf__prompt *prompt, int64_t count,
                              const sheaf__generate_options *options)
{
    const bool divided = options->divided && model->context->peers != NULL;
    const sheaf_range own = divided ? sheaf__share_of(count, model->context, model->context->group)
                                    : (sheaf_range){ 0, count };
    const int64_t n = own.end - own.begin;
    sheaf__generate_options o = *options;
    sheaf__sequence *s = calloc((size_t)n + 1, sizeof *s);
    sheaf_status *st =
        s == NULL ? sheaf_fail(SHEAF_E_MEMORY, "generation of %lld sequences", (long long)n) : NULL;
    if (o.prefix != NULL && count != 1)
        sheaf__prefix_cache_release(o.prefix, model);
    if (count != 1) { /* both are of a single prompt */
        o.prefix = NULL;
        o.image_cache = NULL;
    }
    for (int64_t i = 0; i < count && st == NULL; i++) {
        out[i].n = 0;
        st = sheaf__batch_images_check(model, &prompt[i], i, &o);
    }
    for (int64_t i = 0; i < n && st == NULL; i++)
        s[i] = (sheaf__sequence){ .prompt = &prompt[own.begin + i],
                                  .options = &o,
                                  .out = &out[own.begin + i],
                                  .number = own.begin + i };
    if (n > 0)
        TRY(st, answer(s, n, model, &o));
    free(s);
    return divided ? share_answers(out, model->context, count, o.best, st) : st;
}
