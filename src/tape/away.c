/* away.c - weights that lie in a file, or in the host's memory, between the steps that read them:
 * the tape knows its steps, and so the order in which context->away brings them. */
#include "base/base.h"
#include "ops/offload.h"
#include "tape/tape_inner.h"

void sheaf__op_away(sheaf__tape *tape, sheaf__op *op, sheaf__away *away)
{
    if (away->place == NULL || tape->no_memory)
        return;
    if (SHEAF_GROW(&op->away, &op->away_capacity, op->naway + 1))
        op->away[op->naway++] = away;
    else
        tape->no_memory = true;
}

sheaf_status *sheaf__tape_list_away(sheaf__tape *tape)
{
    int64_t all = 0;
    free(tape->away);
    tape->away = NULL;
    tape->naway = 0;
    tape->away_most = 0;
    for (int64_t i = 0; i < tape->nsteps; i++)
        all += tape->steps[i].op->naway;
    if (all > 0 && (tape->away = malloc((size_t)all * sizeof *tape->away)) == NULL)
        return sheaf__no_memory("list of weights that are away");
    for (int64_t i = 0; i < tape->nsteps; i++) {
        const sheaf__op *op = tape->steps[i].op;
        size_t together = 0;
        for (int64_t k = 0; k < op->naway; k++) {
            tape->away[tape->naway++] = op->away[k]->block;
            together += sheaf__offload_size(tape->context->away, op->away[k]->block);
        }
        tape->away_most = together > tape->away_most ? together : tape->away_most;
    }
    return NULL;
}

sheaf_status *sheaf__tape_begin_away(sheaf__tape *tape)
{
    return tape->naway == 0 ? NULL
                            : sheaf__offload_begin(tape->context->away, tape->away, tape->naway,
                                                   tape->away_most, false);
}

sheaf_status *sheaf__step_bring(sheaf__tape *tape, const sheaf__step *s)
{
    sheaf_status *st = NULL;
    for (int64_t k = 0; k < s->op->naway && st == NULL; k++) {
        void *at;
        st = sheaf__offload_take(&at, tape->context->away);
        if (st == NULL)
            s->op->away[k]->place(s->op->away[k], at);
    }
    return st;
}

/* After a failure fewer may have been taken; the next run begins its list anew then. */
void sheaf__step_leave(sheaf__tape *tape, const sheaf__step *s)
{
    for (int64_t k = 0; k < s->op->naway; k++) {
        s->op->away[k]->place(s->op->away[k], NULL);
        sheaf__offload_give(tape->context->away);
    }
}
