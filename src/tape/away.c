/* away.c - what lies in a file, or in the host's memory, between the steps that use it: weights,
 * and values between the forward and the backward pass. The tape knows its steps, and so the order
 * in which context->away brings weights, and context->activations takes values and brings them. */
#include "base/base.h"
#include "ops/offload.h"
#include "tape/kept.h"
#include "tape/tape_inner.h"

/* ---- weights ---- */

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
            tape->away[tape->naway++] = (sheaf__offload_use){ op->away[k]->block, .reads = true };
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
                                                   tape->away_most);
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

/* ---- values ---- */

static sheaf_status *add_leaving(sheaf__tape *tape, sheaf__value *value)
{
    if (!SHEAF_GROW(&tape->leaving, &tape->leaving_capacity, tape->nleaving + 1))
        return sheaf__no_memory("list of activations that are away");
    value->block = tape->nleaving;
    tape->leaving[tape->nleaving++] = value;
    return NULL;
}

/* As sheaf__offload_begin() takes it: half of its ring, in which there is room for one layer's
 * values. These are written, or read, while another layer is computed. */
static size_t half_ring(const sheaf__tape *tape)
{
    size_t most = 0, layer = 0;
    for (int64_t i = 0; i < tape->nleaving; i++) {
        const size_t bytes = sheaf__offload_size(tape->context->activations, i);
        const bool same = i > 0 && tape->leaving[i]->layer == tape->leaving[i - 1]->layer;
        layer = same ? layer + bytes : bytes;
        most = 2 * bytes > most ? 2 * bytes : most;
        most = layer > most ? layer : most;
    }
    return most / 2;
}

/* The steps forward take values away as they die, those behind want them back as they reserve
 * memory (tape_run.c). */
sheaf_status *sheaf__tape_list_leaving(sheaf__tape *tape)
{
    int64_t n = 0;
    sheaf_status *st = NULL;
    tape->nleaving = 0;
    for (int64_t i = 0; i < tape->nsteps; i++) {
        const sheaf__step *s = &tape->steps[i];
        for (int k = 0; k < s->ndead && !s->backward && !s->again && st == NULL; k++)
            if (tape->dead[s->first_dead + k]->leaves)
                st = add_leaving(tape, tape->dead[s->first_dead + k]);
    }
    free(tape->leaving_use);
    tape->leaving_use = malloc(2 * (size_t)tape->nleaving * sizeof *tape->leaving_use + 1);
    if (st != NULL || tape->leaving_use == NULL)
        return sheaf__first_of(st, sheaf__no_memory("list of activations that are away"));
    for (int64_t i = 0; i < tape->nleaving; i++) {
        tape->leaving[i]->stored = true;
        tape->leaving_use[n++] = (sheaf__offload_use){ i, .writes = true };
    }
    for (int64_t i = 0; i < tape->nsteps; i++)
        for (int a = 0; a < sheaf__step_args(&tape->steps[i]); a++) {
            const sheaf__arg arg = sheaf__step_arg(&tape->steps[i], a);
            const bool wants = (tape->steps[i].backward || tape->steps[i].again) &&
                               sheaf__step_wants(&tape->steps[i], arg);
            if (wants && arg.value->stored && arg.value->leaves)
                tape->leaving_use[n++] = (sheaf__offload_use){ arg.value->block, .reads = true };
            if (wants)
                arg.value->stored = false;
        }
    if (n != 2 * tape->nleaving)
        abort(); /* our mistake: one that leaves is not read again */
    if (n == 0)
        return NULL;
    st = sheaf__tape_claim_leaving(tape);
    tape->leaving_ring = half_ring(tape);
    return st;
}

sheaf_status *sheaf__tape_claim_leaving(sheaf__tape *tape)
{
    sheaf__offload *of = tape->context->activations;
    int64_t block;
    sheaf_status *st = sheaf__offload_clear(of);
    for (int64_t i = 0; i < tape->nleaving && st == NULL; i++)
        st = sheaf__offload_add(&block, of, sheaf__value_kept_most(tape->leaving[i]));
    return TRY(st, sheaf__offload_claim(of));
}

sheaf_status *sheaf__tape_begin_leaving(sheaf__tape *tape)
{
    if (tape->nleaving == 0)
        return NULL;
    sheaf_status *st = sheaf__tape_claim_leaving(tape);
    return TRY(st, sheaf__offload_begin(tape->context->activations, tape->leaving_use,
                                        2 * tape->nleaving, tape->leaving_ring));
}

sheaf_status *sheaf__tape_end_leaving(sheaf__tape *tape)
{
    return tape->nleaving == 0 ? NULL : sheaf__offload_rest(tape->context->activations);
}
