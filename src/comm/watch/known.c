/* known.c - what a process of the watch knows of its own ranks and of others, on whichever side it
 * is. See inner.h. */
#include "base/base.h"
#include "comm/watch/inner.h"

/* The records of this process: of all ranks where it is alone, of its own where not. */
static int own_ranks(const sheaf__watch *w)
{
    return sheaf__watch_alone(w) ? w->o.ranks : 1;
}

void sheaf__watch_take_told(sheaf__watch *w, int rank, const void *bytes)
{
    sheaf__told *told = &w->ranks.told[rank];
    if (rank >= w->o.ranks)
        return;
    memcpy(told, bytes, sizeof *told);
    told->host[sizeof told->host - 1] = told->call[sizeof told->call - 1] = '\0';
    told->group[sizeof told->group - 1] = told->phase[sizeof told->phase - 1] = '\0';
    told->op[sizeof told->op - 1] = told->item[sizeof told->item - 1] = '\0';
    w->ranks.known[rank] = true;
}

void sheaf__watch_tell_own(sheaf__watch *w)
{
    uint64_t busy = 0;
    for (int i = 0; i < own_ranks(w); i++) {
        sheaf__told *told = &w->ranks.told[sheaf__watch_first_rank(w) + i];
        sheaf__doing_tell(told, &w->o.doing[i]);
        w->ranks.known[sheaf__watch_first_rank(w) + i] = true;
        if (told->call[0] == '\0' && told->op[0] == '\0')
            busy = sheaf__self_busy();
    }
    w->ranks.told[sheaf__watch_first_rank(w)].ticks += busy;
}

void sheaf__watch_kill_here(const sheaf__watch *w, const sheaf__watch_ending *e)
{
    for (int i = 0; i < e->victims && i < SHEAF_MAX_SLICES; i++)
        if (e->victim[i].machine == w->self.machine && e->victim[i].pid != w->self.pid)
            sheaf__self_kill(&e->victim[i]);
}
