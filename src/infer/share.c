/* share.c - groups that answered a share of the prompts each tell one another what they found. */
#include "base/base.h"
#include "infer/generate.h"

/* Of one prompt. */
typedef struct told {
    int64_t n, ending;
} told;

/* What is told of every token: from `of` bytes on in an answer's array `at`. */
typedef struct column {
    size_t array; /* offset in a continuation */
    size_t bytes; /* of one token */
} column;

static char *array_of(const sheaf__continuation *one, size_t array)
{
    return *(char *const *)((const char *)one + array);
}

/* One array of all answers, those of a group after those of the one before it. */
static sheaf_status *tell_column(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                                 column of)
{
    size_t size[SHEAF_MAX_SLICES], total = 0;
    for (int g = 0; g < c->groups; g++) {
        const sheaf_range share = sheaf__share_of(count, c, g);
        size[g] = 0;
        for (int64_t i = share.begin; i < share.end; i++)
            size[g] += (size_t)out[i].n * of.bytes;
        total += size[g];
    }
    char *all = malloc(total + 1), *at = all;
    if (all == NULL)
        return sheaf__no_memory("answers of other groups");
    for (int64_t i = 0; i < count; at += (size_t)out[i++].n * of.bytes)
        memcpy(at, array_of(&out[i], of.array), (size_t)out[i].n * of.bytes);
    sheaf_status *st = sheaf_comm_gather(c->peers, all, size);
    at = all;
    for (int64_t i = 0; i < count && st == NULL; at += (size_t)out[i++].n * of.bytes)
        memcpy(array_of(&out[i], of.array), at, (size_t)out[i].n * of.bytes);
    free(all);
    return st;
}

static sheaf_status *tell_lengths(sheaf__continuation *out, const sheaf__context *c, int64_t count)
{
    size_t size[SHEAF_MAX_SLICES];
    told *all = calloc((size_t)count + 1, sizeof *all);
    if (all == NULL)
        return sheaf__no_memory("answers of other groups");
    for (int g = 0; g < c->groups; g++) {
        const sheaf_range share = sheaf__share_of(count, c, g);
        size[g] = (size_t)(share.end - share.begin) * sizeof *all;
    }
    for (int64_t i = 0; i < count; i++)
        all[i] = (told){ out[i].n, (int64_t)out[i].ending };
    sheaf_status *st = sheaf_comm_gather(c->peers, all, size);
    for (int64_t i = 0; i < count && st == NULL; i++) {
        out[i].n = all[i].n;
        out[i].ending = (sheaf_ending)all[i].ending;
    }
    free(all);
    return st;
}

sheaf_status *sheaf__share_answers(sheaf__continuation *out, const sheaf__context *c, int64_t count,
                                   int64_t best, sheaf_status *st)
{
    int over = st != NULL;
    if (st != NULL && sheaf_status_code(st) != SHEAF_E_STOPPED)
        return st;
    sheaf_status *failed = sheaf_comm_any(c->peers, &over);
    if (failed == NULL)
        failed = tell_lengths(out, c, count);
    if (failed == NULL)
        failed = tell_column(out, c, count,
                             (column){ offsetof(sheaf__continuation, ids), sizeof *out->ids });
    if (failed == NULL && out[0].logprob != NULL) {
        const size_t one = sizeof(float), many = (size_t)best;
        const column columns[] = { { offsetof(sheaf__continuation, logprob), one },
                                   { offsetof(sheaf__continuation, best_ids),
                                     many * sizeof *out->best_ids },
                                   { offsetof(sheaf__continuation, best_logprob), many * one } };
        for (int i = 0; i < (best > 0 ? 3 : 1) && failed == NULL; i++)
            failed = tell_column(out, c, count, columns[i]);
    }
    if (failed != NULL) {
        sheaf_status_free(st);
        return failed;
    }
    return st == NULL && over ? sheaf_fail(SHEAF_E_STOPPED, "generation") : st;
}
