/* crew.c - the threads that merge, and what each works in; see plan.h. */
#include "base/base.h"
#include "checkpoint/merge/plan.h"
#include "checkpoint/store/stream.h"

enum { MOST_THREADS = 16 };

sheaf_status *sheaf__merge_crew_init(sheaf__merge_crew *crew, const sheaf__merge_plan *plan,
                                     const sheaf_weights_merge_options *o)
{
    crew->stop = sheaf__control_stop(o->control);
    crew->threads = o->threads < 1 ? 1 : o->threads > MOST_THREADS ? MOST_THREADS : o->threads;
    crew->rows.other_copy = &crew->other_copy;
    crew->scratch = calloc((size_t)crew->threads, sizeof *crew->scratch);
    sheaf_status *st = crew->scratch == NULL ? sheaf__no_memory("merge") : NULL;
    TRY(st, sheaf__merge_rows_init(&crew->rows, plan->base, o->mode, (sheaf_peft_cpu)o->peft_cpu));
    for (int i = 0; i < crew->threads && st == NULL; i++)
        st = sheaf__merge_scratch_init(&crew->scratch[i]);
    return st != NULL ? st : sheaf__pool_new(&crew->pool, crew->threads);
}

void sheaf__merge_crew_release(sheaf__merge_crew *crew)
{
    for (int i = 0; crew->scratch != NULL && i < crew->threads; i++)
        sheaf__merge_scratch_release(&crew->scratch[i]);
    free(crew->scratch);
    sheaf__merge_rows_release(&crew->rows);
    sheaf__pool_free(crew->pool);
}
