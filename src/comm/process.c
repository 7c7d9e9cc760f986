/* process.c - see process.h. */
#include "comm/process.h"

#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/base.h"
#include "base/thread.h"
#include "base/hash.h"
#include "comm/transport.h"
#include "comm/plugins.h"
#include "comm/watch/self.h"

enum {
    HOST = 64, /* bytes of a host's name */
    TAGS_OF_RUN = 2 * SHEAF__MOST_GROUPS,
    RUNS = 2000, /* then their tags come again; an MPI has 32,768 at least */
};

typedef struct place {
    char host[HOST];
    uint64_t machine; /* the same on all hosts of one kernel, be they containers */
    uint64_t cores;   /* its cores of that machine: the same for processes that share them */
} place;

/* This process among the others of its run; see process.h. */
typedef struct sheaf__processes {
    const sheaf__mpi *mpi;
    sheaf_comm *comm; /* of all processes */
    int number, count;
    unsigned runs;
    bool broken;
    sheaf_status *why; /* of its own failure, which the others get as it leaves */
    void (*finishing)(void);
    place place[SHEAF_MAX_SLICES];
    const char *host[SHEAF_MAX_SLICES];
} processes;

/* Processes on this machine, or those of them that may use the same cores. */
static int neighbours(const sheaf_comm *all, int *number, bool same_cores)
{
    int count = 0, mine = 0;
    *number = 0;
    if (all == NULL)
        return 1;
    const processes *of = all->processes;
    const place *self = &of->place[of->number];
    for (int i = 0; i < of->count; i++) {
        const place *p = &of->place[i];
        if (p->machine == self->machine && (!same_cores || p->cores == self->cores)) {
            mine += i < of->number;
            count++;
        }
    }
    *number = mine;
    return count;
}

int sheaf__process_local(const sheaf_comm *all, int *number)
{
    return neighbours(all, number, false);
}

static int share_of(int total, int parts, int part)
{
    return (int)((int64_t)total * (part + 1) / parts - (int64_t)total * part / parts);
}

int sheaf__process_threads(const sheaf_comm *all, int total)
{
    int number;
    const int count = neighbours(all, &number, total == 0),
              share = share_of(sheaf__cores(total), count, number);
    return share < 1 ? 1 : share;
}

bool sheaf__process_pin(const sheaf_comm *all)
{
    cpu_set_t given, mine;
    int number;
    const int count = neighbours(all, &number, true);
    if (count == 1 || sched_getaffinity(0, sizeof given, &given) != 0 || CPU_COUNT(&given) < count)
        return false;
    const int cores = CPU_COUNT(&given), first = (int)((int64_t)cores * number / count),
              end = (int)((int64_t)cores * (number + 1) / count);
    CPU_ZERO(&mine);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &given)) {
            if (seen >= first && seen < end)
                CPU_SET(cpu, &mine);
            seen++;
        }
    if (sched_setaffinity(0, sizeof mine, &mine) != 0)
        return false;
    all->processes->place[all->processes->number].cores =
        ~(uint64_t)number; /* its own from now on */
    return true;
}

void sheaf__process_settle(const sheaf_comm *all, int total, const sheaf_events *events)
{
    const int count = sheaf__all_count(all);
    sheaf_text hosts = { 0 };
    if (count == 1)
        return;
    const bool pinned = total == 0 && sheaf__process_pin(all);
    const int threads = sheaf__process_threads(all, total);
    for (int i = 0; i < count; i++) {
        bool listed = false;
        for (int k = 0; k < i; k++)
            listed |= strcmp(sheaf__all_host(all, k), sheaf__all_host(all, i)) == 0;
        if (!listed)
            sheaf__text_add(&hosts, "%s%s", i == 0 ? "" : ", ", sheaf__all_host(all, i));
    }
    if (sheaf__all_first(all))
        sheaf_note(events, "%d processes on %s: %d compute thread%s in the first%s", count,
                   hosts.at == NULL ? "" : hosts.at, threads, threads == 1 ? "" : "s",
                   pinned ? ", on cores of its own" : "");
    sheaf__text_release(&hosts);
}

bool sheaf__process_checks_memory(const sheaf_comm *all, double *share)
{
    int number;
    const int here = neighbours(all, &number, false);
    *share = (double)here / sheaf__all_count(all);
    return number == 0;
}

void sheaf__process_record(sheaf_comm *all, sheaf__activity *activity)
{
    if (all != NULL)
        sheaf_comm_record(all, activity);
}

/* ---- joining ---- */

static place here(void)
{
    place p = { .host = "" };
    gethostname(p.host, sizeof p.host - 1);
    p.machine = sheaf__self_kernel(p.host);
    cpu_set_t set;
    memset(&set, 0, sizeof set);
    sched_getaffinity(0, sizeof set, &set);
    p.cores = sheaf__hash(&set, sizeof set).low;
    return p;
}

/* At the end of the program. Where a connection is lost the others are ended, too: they could wait
 * for ever. */
static void leave(int code, void *self)
{
    processes *p = self;
    if (p->broken) {
        p->mpi->abort(3);
        return;
    }
    if (p->comm != NULL)
        sheaf__messages_leave(p->comm, p->why);
    sheaf_status *st = sheaf__messages_close(&p->comm, 1);
    if (st == NULL && p->finishing != NULL)
        p->finishing();
    sheaf_status_free(p->why);
    if (st == NULL)
        p->mpi->finish();
    else
        p->mpi->abort(3);
    sheaf_status_free(st);
    free(p);
}

static sheaf_status *not_together(const sheaf__launcher *launcher, int found, const char *library)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "`transport mpi`");
    sheaf_expected(st, "%d processes that %s started together", launcher->processes,
                   launcher->name);
    sheaf_found(st, "each for itself: %s finds %d", library, found);
    return sheaf_try_this(st,
                          "the launcher and the MPI must be of one kind: `mpi openmpi` with Open "
                          "MPI's mpirun or srun --mpi=pmix, `mpi mpich` with MPICH's mpirun or "
                          "srun --mpi=pmi2");
}

static sheaf_status *too_many(int found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "processes");
    sheaf_expected(st, "at most %d", SHEAF_MAX_SLICES);
    return sheaf_found(st, "%d", found);
}

static sheaf_status *join(processes *p, const sheaf__launcher *launcher, sheaf__process_join *how)
{
    char text[SHEAF__MPI_TEXT];
    int number = 0, count = 1;
    if (how->joining != NULL)
        how->joining();
    const int error = p->mpi->start(&number, &count);
    if (error == SHEAF__MPI_BEGUN)
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "transport mpi"),
                           "the first run of this process with it: an MPI can be started once"),
            "another process for each run, or the transport threads");
    if (error != 0) {
        p->mpi->explain(text, error);
        return sheaf_found(sheaf_fail(SHEAF_E_PEER, "starting the MPI"), "%s", text);
    }
    p->mpi->library(text);
    const bool mismatch = launcher->processes > 1 && count != launcher->processes;
    if (mismatch || count > SHEAF_MAX_SLICES) {
        p->mpi->finish();
        how->mismatch = mismatch;
        return mismatch ? not_together(launcher, count, text) : too_many(count);
    }
    p->number = number;
    p->count = count;
    return NULL;
}

/* Exchanges the places of all processes; the first exchange. */
static sheaf_status *meet(processes *p)
{
    int process[SHEAF_MAX_SLICES];
    for (int i = 0; i < p->count; i++)
        process[i] = i;
    sheaf_status *st =
        sheaf__messages_open(&p->comm, &(sheaf__messages_options){ .mpi = p->mpi,
                                                                   .rank = p->number,
                                                                   .ranks = p->count,
                                                                   .process = process,
                                                                   .oversubscribed = true });
    p->place[p->number] = here();
    TRY(st, sheaf__all_gather(p->comm, p->place, sizeof *p->place));
    for (int i = 0; i < p->count; i++)
        p->host[i] = p->place[i].host;
    if (st == NULL) {
        p->comm->host = p->host;
        p->comm->processes = p;
    }
    return st;
}

void sheaf__process_failed(sheaf_comm *all, const sheaf_status *why)
{
    if (all != NULL && all->processes->why == NULL)
        all->processes->why = sheaf_status_copy(why);
}

bool sheaf__process_awaited(const sheaf__process_join *join)
{
    return sheaf__launcher_look().processes > 1 && join->all == NULL && !join->mismatch;
}

sheaf_status *sheaf__process_start(sheaf__process_join *how, const char *mpi)
{
    const sheaf__launcher launcher = sheaf__launcher_look();
    char *path = NULL;
    if (how->all != NULL)
        return NULL;
    processes *p = calloc(1, sizeof *p);
    sheaf_status *st =
        p == NULL ? sheaf__no_memory("the processes of a run") : sheaf__plugin_find(&path, mpi);
    TRY(st, sheaf__plugin_load(&p->mpi, path));
    free(path);
    TRY(st, join(p, &launcher, how));
    if (st != NULL) {
        free(p);
        return st;
    }
    p->finishing = how->finishing;
    prctl(PR_SET_TIMERSLACK, 1000UL); /* ns: short sleeps are to be short */
    on_exit(leave, p);
    st = meet(p);
    p->broken = st != NULL;
    if (st != NULL)
        return st;
    how->all = p->comm;
    return NULL;
}

/* ---- ranks ---- */

static bool oversubscribed(const sheaf_comm *all)
{
    int number;
    return sheaf__process_local(all, &number) > sheaf__cores(0);
}

static sheaf_status *open_group(sheaf_comm **out, const processes *p, const int *color, int tag,
                                int ranks)
{
    int process[SHEAF_MAX_SLICES], count = 0, mine = 0;
    const char *host[SHEAF_MAX_SLICES];
    const int number = p->number;
    for (int i = 0; i < ranks; i++)
        if (color[i] == color[number]) {
            mine = i == number ? count : mine;
            host[count] = p->host[i];
            process[count++] = i;
        }
    if (count == 1)
        return NULL;
    return sheaf__messages_open(
        out, &(sheaf__messages_options){ .mpi = p->mpi,
                                         .rank = mine,
                                         .ranks = count,
                                         .process = process,
                                         .host = host,
                                         .tag = tag,
                                         .oversubscribed = oversubscribed(p->comm) });
}

sheaf_status *sheaf__process_name_own(const sheaf_comm *all, sheaf_status *st)
{
    if (st == NULL || all == NULL || !sheaf__all_first(all))
        return st;
    const sheaf_code code = sheaf_status_code(st);
    const bool named = strstr(sheaf_status_where(st), "rank ") != NULL; /* a failure of all ranks */
    return !named && (code == SHEAF_E_MEMORY || code == SHEAF_E_IO)
               ? sheaf_in(st, "rank 0 on %s", sheaf__all_host(all, 0))
               : st;
}

sheaf_status *sheaf__process_check(const sheaf_comm *all, int ranks)
{
    if (ranks == sheaf__all_count(all))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`transport mpi`");
    sheaf_expected(st, "%d process%s, one for each rank", ranks, ranks == 1 ? "" : "es");
    sheaf_found(st, "%d", sheaf__all_count(all));
    return sheaf_try_this(st, "start as many with mpirun -n or srun -n, or none: with `transport "
                              "mpi` sheaf starts them itself");
}

sheaf_status *sheaf__process_run(sheaf_comm *all, int ranks, const int *color, int groups,
                                 sheaf_status *(*body)(void *context, sheaf_comm *const *comm),
                                 void *context)
{
    sheaf_comm *comm[SHEAF__MOST_GROUPS] = { NULL };
    sheaf_status *st = NULL;
    if ((st = sheaf__process_check(all, ranks)) != NULL)
        return st;
    processes *p = all->processes;
    const int tag = 2 + 2 * TAGS_OF_RUN * (int)(p->runs++ % RUNS);
    for (int k = 0; k < groups && st == NULL; k++)
        st = open_group(&comm[k], p, color + k * ranks, tag + 2 * k, ranks);
    st = sheaf__all_agree(all, st);
    TRY(st, body(context, comm));
    for (int k = 0; k < groups; k++)
        if (comm[k] != NULL)
            sheaf__messages_leave(comm[k], st);
    sheaf_status *lost = sheaf__messages_close(comm, groups);
    p->broken |= lost != NULL;
    st = sheaf__first_of(st, lost);
    return sheaf__process_name_own(all, p->broken ? st : sheaf__all_agree(all, st));
}
