/* timing_find.c - a profile is read or measured, and prices the question: sheaf__timing_find() of
 * timing.h. */
#include "library/timing.h"

#include <string.h>

#include "comm/process.h"
#include "library/elapsed.h"
#include "models/crew.h"

#define FIRST_NOTE 3.0 /* seconds: most that is measured takes two */

double sheaf__timing_tokens(const sheaf__question *q)
{
    const sheaf__subset *set = &q->sets.train;
    const int64_t rows = set->data == NULL ? 0 : sheaf__subset_rows(set);
    double tokens = rows > 0 ? 0 : (double)q->seq;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = sheaf__subset_row(set, i, 0, false);
        tokens += (double)sheaf_data_tokens(set->data, &row, 1) / (double)rows;
    }
    return tokens * (double)q->o.micro_batch * (double)q->o.accumulate;
}

static sheaf_status *predict(sheaf__timing_found *out, const sheaf__question *q,
                             const sheaf__timing_how *how)
{
    sheaf__timing_answers answers;
    out->tokens = sheaf__timing_tokens(q);
    if (q->place_text == NULL)
        return sheaf__timing_predict(&out->is, q, &out->from, how);
    sheaf_status *st = sheaf__timing_predict_answers(&answers, q, &out->from, how);
    out->is = answers.read;
    out->next = answers.next;
    out->batch = q->o.micro_batch;
    out->max_new = q->max_new > 0 ? q->max_new : 1;
    out->tokens = (double)out->batch * (double)(q->seq - out->max_new);
    return st;
}

/* Where one rank stands for all, it is the one that the others wait for: with the most operations
 * for each of its threads. */
static sheaf_status *find_rank(int *rank, const sheaf__question *q)
{
    sheaf_plan plan;
    double most = 0;
    sheaf_status *st = sheaf__question_answer(&plan, q);
    for (int r = 0; st == NULL && r < plan.ranks; r++) {
        const double flops = plan.rank[r].flops / sheaf__threads_of(q->o.threads, plan.ranks, r);
        if (flops > most) {
            most = flops;
            *rank = r;
        }
    }
    return st;
}

static sheaf_status *measure(sheaf_profile *out, const sheaf__question *q,
                             const sheaf__timing_how *how)
{
    sheaf__elapsed elapsed;
    sheaf__elapsed_begin(&elapsed, "measuring", FIRST_NOTE,
                         sheaf__process_first() ? how->events : NULL);
    sheaf_status *st = q->place_text != NULL ? sheaf__timing_measure_answers(out, q, how)
                                             : sheaf__timing_measure(out, q, how);
    sheaf__elapsed_end(&elapsed);
    return st;
}

sheaf_status *sheaf__timing_find(sheaf__timing_found *out, const sheaf__question *q,
                                 const sheaf__timing_asked *asked)
{
    sheaf__timing_how how = asked->how;
    *out = (sheaf__timing_found){ 0 };
    how.rank = 0;
    sheaf_status *st = NULL;
    if (asked->save != NULL) /* measuring takes long: it is known before */
        st = sheaf__process_agree(sheaf__process_first() ? sheaf_profile_may_replace(asked->save)
                                                         : NULL);
    if (st == NULL && how.link != NULL)
        st = find_rank(&how.rank, q);
    out->rank = how.rank;
    if (st == NULL && asked->profile != NULL)
        st = sheaf_profile_read(&out->from, asked->profile);
    else if (st == NULL)
        st = measure(&out->from, q, &how);
    if (st != NULL || !sheaf__process_first())
        return st;
    if (asked->save != NULL)
        out->unsaved = sheaf_profile_write(&out->from, asked->save);
    return predict(out, q, &how);
}
