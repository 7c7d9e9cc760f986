/* share.c - groups that answered a share of the prompts each tell one another what they found. */
#include "base/base.h"
#include "infer/generate.h"

/* Moves an answer's numbers into a block, or out of one; returns their bytes. */
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

/* All answers, those of a group after those of the one before it. */
static sheaf_status *gather(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                            int64_t best)
{
    size_t size[SHEAF_MAX_SLICES], total = 0;
    int64_t *length = malloc((2 * (size_t)count + 1) * sizeof *length); /* and why it ended */
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

sheaf_status *sheaf__share_answers(sheaf__continuation *out, const sheaf__context *c, int64_t count,
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
