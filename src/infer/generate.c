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

/* ---- answers to the ranks that did not make them ---- */

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

/* Exchanges answers: rank r of `comm` has those of range[r]. */
static sheaf_status *gather(sheaf__continuation *out, sheaf_comm *comm, const sheaf_range *range,
                            int64_t count, int64_t best)
{
    const int ranks = sheaf_comm_ranks(comm);
    size_t size[SHEAF_MAX_SLICES], total = 0;
    int64_t *length = malloc((2 * (size_t)count + 1) * sizeof *length); /* then why it ended */
    if (length == NULL)
        return sheaf__no_memory("answers of other ranks");
    for (int64_t i = 0; i < count; i++) {
        length[2 * i] = out[i].n;
        length[2 * i + 1] = (int64_t)out[i].ending;
    }
    for (int r = 0; r < ranks; r++)
        size[r] = (size_t)(range[r].end - range[r].begin) * 2 * sizeof *length;
    sheaf_status *st = sheaf_comm_gather(comm, length, size);
    for (int r = 0; r < ranks && st == NULL; r++) {
        size[r] = 0;
        for (int64_t i = range[r].begin; i < range[r].end; i++) {
            out[i].n = length[2 * i];
            out[i].ending = (sheaf_ending)length[2 * i + 1];
            size[r] += move(NULL, &out[i], best, false);
        }
        total += size[r];
    }
    char *all = st == NULL ? malloc(total + 1) : NULL, *at = all;
    if (st == NULL && all == NULL)
        st = sheaf__no_memory("answers of other ranks");
    for (int64_t i = 0; i < count && st == NULL; i++)
        at += move(at, &out[i], best, false);
    TRY(st, sheaf_comm_gather(comm, all, size));
    at = all;
    for (int64_t i = 0; i < count && st == NULL; i++)
        at += move(at, &out[i], best, true);
    free(all);
    free(length);
    return st;
}

/* Within a group the leader has all answers. */
static sheaf_status *gather_group(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                                  int64_t best)
{
    sheaf_range range[SHEAF_MAX_SLICES] = { { 0, count } };
    sheaf_comm *comm = sheaf__model_comm(c);
    return comm == NULL ? NULL : gather(out, comm, range, count, best);
}

static sheaf_status *gather_groups(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                                   int64_t best)
{
    sheaf_range range[SHEAF_MAX_SLICES];
    for (int g = 0; g < c->groups; g++)
        range[g] = sheaf__share_of(count, c, g);
    return gather(out, c->peers, range, count, best);
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
    TRY(failed, gather_groups(out, c, count, best));
    if (failed != NULL) {
        sheaf_status_free(st);
        return failed;
    }
    return st == NULL && over ? sheaf_fail(SHEAF_E_STOPPED, "generation") : st;
}

/* ---- slots, on every rank ---- */

static sheaf_status *open_slots(sheaf__slots *out, sheaf__model *model, const sheaf__order *order,
                                sheaf__rank_cache *cache, const atomic_int *stop)
{
    sheaf__slots_options o = { .model = &model,
                               .models = 1,
                               .places = order->open.places,
                               .length = order->open.length,
                               .prompt = order->open.prompt,
                               .asks = order->open.asks,
                               .stop = stop };
    sheaf_status *st = NULL;
    if (order->open.single) {
        st = sheaf__prefix_cache_hold(&cache->prefix, model, o.length);
        o.kv_cache = &cache->prefix.kv_cache;
        o.length = cache->prefix.length;
    }
    if (order->open.single && order->open.look != 0) {
        TRY(st, sheaf__rank_cache_look(cache, model, order->open.look, &order->open.pictures));
        o.image_cache = &cache->image_cache;
    }
    return TRY(st, sheaf__slots_open(out, &o));
}

/* Obeys one order; *done: it was the last of a job. A failure is settled. */
static sheaf_status *obey(bool *done, bool *over, sheaf__slots *slots, sheaf__order *order,
                          char *bytes, sheaf__model *model, const sheaf__follower *f)
{
    const char *weight;
    sheaf_status *st = NULL;
    if (order->kind == SHEAF__ORDER_PASS)
        return sheaf__slots_obey(slots, order, bytes);
    if (order->kind == SHEAF__ORDER_OPEN)
        st = open_slots(slots, model, order, f->cache, f->stop);
    else if (order->kind == SHEAF__ORDER_WAIT)
        st = sheaf__lead_stopped(over, model->context, f->stop);
    else if (order->names)
        st = sheaf__model_bad_weight(&weight, model);
    *over = order->kind == SHEAF__ORDER_END;
    *done = order->kind == SHEAF__ORDER_CLOSE || *over ||
            (order->kind == SHEAF__ORDER_WAIT && slots->model == NULL);
    return sheaf__lead_settle(model->context, st);
}

sheaf_status *sheaf__slots_follow(bool *over, sheaf__model *model, const sheaf__follower *f)
{
    sheaf__slots own = { 0 }, *slots = f->slots != NULL ? f->slots : &own;
    sheaf_status *st = NULL;
    bool done = false;
    *over = false;
    while (!done && st == NULL) {
        sheaf__order order;
        char *bytes;
        st =
            sheaf__lead_settle(model->context, sheaf__lead_receive(&order, &bytes, model->context));
        TRY(st, obey(&done, over, slots, &order, bytes, model, f));
        free(bytes);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_PEER) {
            sheaf_status_free(st); /* the leader has it, too, and goes on or ends the job */
            st = NULL;
        }
    }
    sheaf__slots_close(&own);
    return st;
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
static sheaf_status *run_all(sheaf__scheduler *e, sheaf__slots *slots, sheaf__sequence *s,
                             int64_t count, const sheaf__generate_options *o)
{
    sheaf_status *st = NULL;
    int64_t over = 0;
    while (st == NULL && !sheaf__scheduler_idle(e)) {
        slots->prompt = o->number + s->number + over + 1;
        sheaf__scheduler_step(e);
        st = take_failure(s, count);
        const int64_t before = over;
        over = count_over(s, count);
        if (st == NULL && over > before && count > 1) /* else its text shows it */
            sheaf_emit(o->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                  .text = "prompts",
                                                  .done = over,
                                                  .total = count });
        if (st == NULL && !sheaf__scheduler_idle(e) && slots->stopped)
            st = sheaf_fail(SHEAF_E_STOPPED, "generation");
    }
    for (int64_t i = 0; i < count && st != NULL; i++)
        if (!s[i].over)
            s[i].out->ending = SHEAF_ENDS_STOPPED;
    return st;
}

/* The job of the leader, from its first order to the last. */
static sheaf_status *lead(sheaf__sequence *s, int64_t count, sheaf__model *model,
                          const sheaf__generate_options *o)
{
    const sheaf__context *c = model->context;
    const sheaf_config *config = &model->schema->config;
    sheaf__order order = { .kind = SHEAF__ORDER_OPEN }, last = { .kind = SHEAF__ORDER_CLOSE };
    sheaf__slots slots = { 0 };
    sheaf__scheduler *e = NULL;
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++)
        longest = s[i].prompt->n > longest ? s[i].prompt->n : longest;
    order.open.places = o->batch < count ? o->batch : count;
    order.open.length = rows_of(o, longest);
    order.open.prompt = longest;
    order.open.asks = o->stop_now != NULL;
    order.open.single = o->cache != NULL;
    order.open.look = s->prompt->look;
    order.open.pictures = sheaf__prompts_images(s->prompt, 1, 1, config);
    sheaf_status *st = sheaf__lead_settle(c, sheaf__lead_send(c, &order, NULL));
    TRY(st, open_slots(&slots, model, &order, o->cache, o->stop_now));
    TRY(st, sheaf__scheduler_open(&e, &(sheaf__scheduler_options){
                                          .config = config,
                                          .models = 1,
                                          .places = order.open.places,
                                          .length = order.open.length,
                                          .past = o->cache == NULL ? NULL : &o->cache->prefix,
                                          .run = run_pass,
                                          .self = &slots }));
    for (int64_t i = 0; i < count && st == NULL; i++)
        sheaf__scheduler_add(e, &s[i]);
    TRY(st, run_all(e, &slots, s, count, o));
    sheaf__scheduler_close(e);
    sheaf__slots_close(&slots);
    last.names = st != NULL && sheaf_status_code(st) == SHEAF_E_NUMBER;
    sheaf_status *lost = sheaf__lead_order(c, &last);
    if (st == NULL)
        return lost;
    sheaf_status_free(lost);
    return name_weight(st, model);
}

/* Checks the prompts, and answers those of this group. */
static sheaf_status *lead_all(sheaf__continuation *out, sheaf__model *model,
                              const sheaf__prompt *prompt, int64_t count, sheaf_range own,
                              const sheaf__generate_options *o)
{
    const int64_t n = own.end - own.begin;
    sheaf__sequence *s = calloc((size_t)n + 1, sizeof *s);
    sheaf_status *st =
        s == NULL ? sheaf_fail(SHEAF_E_MEMORY, "generation of %lld sequences", (long long)n) : NULL;
    for (int64_t i = 0; i < count && st == NULL; i++)
        st = sheaf__batch_images_check(model, &prompt[i], i, o);
    for (int64_t i = 0; i < n && st == NULL; i++)
        s[i] = (sheaf__sequence){ .prompt = &prompt[own.begin + i],
                                  .options = o,
                                  .out = &out[own.begin + i],
                                  .number = own.begin + i };
    if (st != NULL || n == 0)
        sheaf_status_free(sheaf__lead_close(model->context));
    else
        st = lead(s, n, model, o);
    free(s);
    return st;
}

sheaf_status *sheaf__generate(sheaf__continuation *out, sheaf__model *model,
                              const sheaf__prompt *prompt, int64_t count,
                              const sheaf__generate_options *options)
{
    const sheaf__context *c = model->context;
    const bool divided = options->divided && c->peers != NULL;
    const sheaf_range own =
        divided ? sheaf__share_of(count, c, c->group) : (sheaf_range){ 0, count };
    sheaf__generate_options o = *options;
    bool over;
    if (o.cache != NULL && count != 1) {
        sheaf__prefix_cache_release(&o.cache->prefix, model);
        o.cache = NULL;
    }
    for (int64_t i = 0; i < count; i++)
        out[i].n = 0;
    sheaf_status *st =
        sheaf__is_first_of_group(c)
            ? lead_all(out, model, prompt, count, own, &o)
            : sheaf__slots_follow(&over, model,
                                  &(sheaf__follower){ .cache = o.cache, .stop = o.stop_now });
    sheaf__activity_item(c->activity, NULL);
    if (o.followed)
        return st;
    st = sheaf__agree_all(c, st);
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_STOPPED) {
        sheaf_status *lost = gather_group(out + own.begin, c, own.end - own.begin, o.best);
        if (lost != NULL) {
            sheaf_status_free(st);
            st = lost;
        }
    }
    return divided ? share_answers(out, c, count, o.best, st) : st;
}
