/* timed.c - see timed.h. */
#include "library/timed.h"

#include <time.h>

/* Of all threads of this process. */
static double processor_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void sheaf__timed_begin(sheaf__timed_turn *turn, bool processor)
{
    *turn = (sheaf__timed_turn){ .now = { .processor = processor } };
    turn->used = processor_seconds();
    turn->began = sheaf__work_now(&turn->now);
}

double sheaf__timed_end(const sheaf__timed_turn *turn)
{
    return sheaf__work_now(&turn->now) - turn->began;
}

void sheaf__timed_keep(sheaf__timed *timed, sheaf__timed_turn *turn, double seconds, int threads)
{
    if (!sheaf__turns_add(&timed->turns, seconds))
        return;
    const sheaf__work slower = timed->work;
    timed->work = turn->now;
    timed->busy = (processor_seconds() - turn->used) / (seconds * threads);
    turn->now = slower;
}

sheaf_status *sheaf__timed_leave(sheaf__timed_turn *turn, sheaf_status *st)
{
    if (st == NULL && turn->now.no_memory)
        st = sheaf_fail(SHEAF_E_MEMORY, "list of ops");
    sheaf__work_release(&turn->now);
    return st;
}

double sheaf__timed_ops(const sheaf__timed *timed)
{
    double seconds = 0;
    for (int64_t i = 0; i < timed->work.n; i++)
        seconds += timed->work.entry[i].seconds;
    return seconds;
}

double sheaf__timed_as_middle(sheaf__timed *timed, const sheaf__turns *plain)
{
    const double whole = sheaf__turns_middle(plain), ops = sheaf__timed_ops(timed),
                 longer = sheaf__turns_middle(&timed->turns) / timed->turns.fastest,
                 share = ops * longer > whole ? whole / ops : longer;
    for (int64_t i = 0; i < timed->work.n; i++) {
        timed->work.entry[i].seconds *= share;
        timed->work.entry[i].waiting *= share;
    }
    return whole > ops * share ? whole - ops * share : 0;
}
