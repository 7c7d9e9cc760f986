/* generate.c - see generate.h. */
#include "comm/activity.h"
#include "infer/job.h"

#include "base/base.h"

/* ---- answers to the ranks that did not make them ---- */

/* Copies an answer's numbers into a block, or out of one; returns their bytes. */
static size_t move(char *block, const sheaf__continuation *one, int64_t best, bool out)
{
    const size_t n = (size_t)one->n, many = n * (size_t)best;
    void *const array[] = { one->ids, one->logprob, one->best_ids, one->best_logprob };
    const size_t bytes[] = { 4 * n, 4 * n, 4 * many, 4 * many };
    return sheaf__lead_move(block, array, bytes, one->logprob != NULL ? 4 : 1, out);
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

/* ---- sheaf__generate ---- */

/* Rows of the longest sequence: its last token is not an input. */
static int64_t rows_of(const sheaf__generate_options *o, int64_t longest)
{
    const int64_t all = longest + o->max_new;
    if (o->max_length == 0 || all <= o->max_length)
        return all;
    return o->max_length > longest ? o->max_length : longest + 1;
}

/* How many are over; *st: the failure of one. */
static int64_t count_over(sheaf_status **st, sheaf__sequence *s, int64_t count)
{
    int64_t over = 0;
    for (int64_t i = 0; i < count; i++) {
        over += s[i].over;
        if (*st != NULL || s[i].failed == NULL)
            continue;
        *st = s[i].failed;
        s[i].failed = NULL;
    }
    return over;
}

/* Passes until all sequences are over. */
static sheaf_status *run_all(sheaf__slots_job *job, sheaf__sequence *s, int64_t count,
                             const sheaf__generate_options *o)
{
    sheaf__scheduler *e = job->scheduler;
    sheaf_status *st = NULL;
    int64_t over = 0;
    while (st == NULL && !sheaf__scheduler_idle(e)) {
        job->slots.prompt = o->number + s->number + over + 1;
        sheaf__scheduler_step(e);
        const int64_t before = over;
        over = count_over(&st, s, count);
        if (st == NULL && over > before && count > 1) /* else its text shows it */
            sheaf_emit(o->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                  .text = "prompts",
                                                  .done = over,
                                                  .total = count });
        if (st == NULL && !sheaf__scheduler_idle(e) && job->slots.stopped)
            st = sheaf_fail(SHEAF_E_STOPPED, "generation");
    }
    for (int64_t i = 0; i < count && st != NULL; i++)
        if (!s[i].over)
            s[i].out->ending = SHEAF_ENDS_STOPPED;
    return st;
}

static sheaf_status *lead(sheaf__sequence *s, int64_t count, const sheaf__member *m,
                          const sheaf__generate_options *o)
{
    sheaf__slots_job job;
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++)
        longest = s[i].prompt->n > longest ? s[i].prompt->n : longest;
    const sheaf__slots_size size = { .places = o->batch < count ? o->batch : count,
                                     .length = rows_of(o, longest),
                                     .prompt = longest,
                                     .asks = m->stop != NULL,
                                     .single = m->cache != NULL,
                                     .look = s->prompt->look,
                                     .pictures = sheaf__prompts_images(
                                         s->prompt, 1, 1, &m->model[0]->schema->config) };
    sheaf_status *st = sheaf__slots_job_open(&job, m, &size, 0, NULL);
    for (int64_t i = 0; i < count && st == NULL; i++)
        sheaf__scheduler_add(job.scheduler, &s[i]);
    TRY(st, run_all(&job, s, count, o));
    return sheaf__slots_job_close(&job, st, m);
}

/* Checks the prompts, and answers those of this group. */
static sheaf_status *lead_all(sheaf__continuation *out, const sheaf__member *m,
                              const sheaf__prompt *prompt, int64_t count, sheaf_range own,
                              const sheaf__generate_options *o)
{
    const int64_t n = own.end - own.begin;
    sheaf__sequence *s = calloc((size_t)n + 1, sizeof *s);
    sheaf_status *st =
        s == NULL ? sheaf_fail(SHEAF_E_MEMORY, "generation of %lld sequences", (long long)n) : NULL;
    for (int64_t i = 0; i < count && st == NULL; i++)
        st = sheaf__batch_images_check(m->model[0], &prompt[i], i, o);
    for (int64_t i = 0; i < n && st == NULL; i++)
        s[i] = (sheaf__sequence){ .prompt = &prompt[own.begin + i],
                                  .options = o,
                                  .out = &out[own.begin + i],
                                  .number = own.begin + i };
    if (st != NULL || n == 0)
        sheaf_status_free(sheaf__lead_close(m->model[0]->context));
    else
        st = lead(s, n, m, o);
    for (int64_t i = 0; i < n && s != NULL; i++)
        sheaf_status_free(s[i].failed);
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
    const sheaf__member member = { .model = &model,
                                   .models = 1,
                                   .cache = count == 1 ? options->cache : NULL,
                                   .stop = options->stop_now };
    bool over;
    if (options->cache != NULL && count != 1)
        sheaf__prefix_cache_release(&options->cache->prefix, model);
    for (int64_t i = 0; i < count; i++)
        out[i].n = 0;
    sheaf_status *st = sheaf__is_first_of_group(c)
                           ? lead_all(out, &member, prompt, count, own, options)
                           : sheaf__slots_follow(&over, &member);
    sheaf__activity_item(c->activity, NULL);
    if (options->followed)
        return st;
    st = sheaf__agree_all(c, st);
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_STOPPED)
        st = sheaf__first_of(gather_group(out + own.begin, c, own.end - own.begin, options->best),
                             st);
    return divided ? share_answers(out, c, count, options->best, st) : st;
}
