/* process.c - see process.h. */
#include "comm/process.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/cores.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/status.h"
#include "base/text.h"
#include "comm/doing.h"
#include "comm/messages.h"
#include "comm/plugins.h"
#include "comm/segments.h"

enum {
    HOST = 64, /* bytes of a host's name */
    TAGS_OF_RUN = 2 * SHEAF__MOST_GROUPS,
    RUNS = 2000, /* then their tags come again; an MPI has 32,768 at least */
};

typedef struct place {
    char host[HOST];
    uint64_t machine; /* the same on all hosts of one kernel, be they containers */
    uint64_t cores;   /* which of its cores: the same where processes share them */
} place;

/* What this process is to the others; see process.h. */
static struct {
    const sheaf__mpi *mpi; /* NULL: it is alone */
    sheaf_comm *comm;      /* of all processes */
    int number, count;
    unsigned runs;
    bool broken;
    sheaf__doing *doing; /* where its calls are told; NULL: nowhere */
    bool apart;          /* what started it and its MPI do not belong together */
    sheaf_status *why;   /* of its own failure, which the others are told as it leaves */
    void (*joining)(void), (*finishing)(void);
    place place[SHEAF_MAX_SLICES];
    const char *host[SHEAF_MAX_SLICES];
} process_view = { .count = 1 };

int sheaf__process_count(void)
{
    return process_view.count;
}
int sheaf__process_number(void)
{
    return process_view.number;
}
bool sheaf__process_first(void)
{
    return process_view.number == 0;
}

static const char *host_of(int number)
{
    return process_view.place[number].host;
}

/* Processes on this machine, or those of them that may use the same cores. */
static int neighbours(int *number, bool same_cores)
{
    const place *self = &process_view.place[process_view.number];
    int count = 0, mine = 0;
    for (int i = 0; i < process_view.count; i++) {
        const place *p = &process_view.place[i];
        if (p->machine == self->machine && (!same_cores || p->cores == self->cores)) {
            mine += i < process_view.number;
            count++;
        }
    }
    *number = mine;
    return count;
}

int sheaf__process_local(int *number)
{
    return neighbours(number, false);
}

static int share_of(int total, int parts, int part)
{
    return (int)((int64_t)total * (part + 1) / parts - (int64_t)total * part / parts);
}

int sheaf__process_threads(int total)
{
    int number;
    const int count = neighbours(&number, total == 0),
              share = share_of(sheaf__cores(total), count, number);
    return share < 1 ? 1 : share;
}

bool sheaf__process_pin(void)
{
    cpu_set_t all, mine;
    int number;
    const int count = neighbours(&number, true);
    if (count == 1 || sched_getaffinity(0, sizeof all, &all) != 0 || CPU_COUNT(&all) < count)
        return false;
    const int cores = CPU_COUNT(&all), first = (int)((int64_t)cores * number / count),
              end = (int)((int64_t)cores * (number + 1) / count);
    CPU_ZERO(&mine);
    for (int cpu = 0, seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            if (seen >= first && seen < end)
                CPU_SET(cpu, &mine);
            seen++;
        }
    if (sched_setaffinity(0, sizeof mine, &mine) != 0)
        return false;
    process_view.place[process_view.number].cores = ~(uint64_t)number; /* its own from now on */
    return true;
}

void sheaf__process_settle(int total, const sheaf_events *events)
{
    const int count = process_view.count;
    sheaf_text hosts = { 0 };
    if (count == 1)
        return;
    const bool pinned = total == 0 && sheaf__process_pin();
    const int threads = sheaf__process_threads(total);
    for (int i = 0; i < count; i++) {
        bool told = false;
        for (int k = 0; k < i; k++)
            told |= strcmp(host_of(k), host_of(i)) == 0;
        if (!told)
            sheaf__text_add(&hosts, "%s%s", i == 0 ? "" : ", ", host_of(i));
    }
    if (sheaf__process_first())
        sheaf_note(events, "%d processes on %s: %d compute thread%s in the first%s", count,
                   hosts.at == NULL ? "" : hosts.at, threads, threads == 1 ? "" : "s",
                   pinned ? ", on cores of its own" : "");
    sheaf__text_release(&hosts);
}

bool sheaf__process_asks(double *share)
{
    int number;
    const int here = neighbours(&number, false);
    *share = (double)here / process_view.count;
    return number == 0;
}

void sheaf__process_tell(struct sheaf__doing *doing)
{
    if (process_view.comm == NULL)
        return;
    sheaf_comm_tell(process_view.comm, doing, SHEAF__ALL_PROCESSES);
    process_view.doing = doing;
}

sheaf__doing *sheaf__process_doing(void)
{
    return process_view.doing;
}

/* ---- all processes together ---- */

sheaf_comm *sheaf__process_all(void)
{
    return process_view.comm;
}

/* ---- joining ---- */

static place here(void)
{
    place p = { .host = "" };
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    gethostname(p.host, sizeof p.host - 1);
    const size_t size = file == NULL ? 0 : fread(boot, 1, sizeof boot, file);
    if (file != NULL)
        fclose(file);
    const sheaf_hash hash =
        size == 0 ? sheaf__hash(p.host, strlen(p.host)) : sheaf__hash(boot, size);
    p.machine = hash.high ^ hash.low;
    cpu_set_t set;
    memset(&set, 0, sizeof set);
    sched_getaffinity(0, sizeof set, &set);
    p.cores = sheaf__hash(&set, sizeof set).low;
    return p;
}

/* At the end of the program. Where a connection is lost the others are ended, too: they could wait
 * for ever. */
static void leave(void)
{
    if (process_view.broken) {
        process_view.mpi->abort(3);
        return;
    }
    if (process_view.comm != NULL)
        sheaf__messages_leave(process_view.comm, process_view.why);
    sheaf_status *st = sheaf__messages_close(&process_view.comm, 1);
    if (st == NULL && process_view.finishing != NULL)
        process_view.finishing();
    sheaf_status_free(process_view.why);
    if (st == NULL)
        process_view.mpi->finish();
    else
        process_view.mpi->abort(3);
    sheaf_status_free(st);
}

static sheaf_status *not_together(const sheaf__launcher *launcher, int found, const char *library)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "--transport mpi");
    sheaf_expected(st, "%d processes that %s started together", launcher->processes,
                   launcher->name);
    sheaf_found(st, "each for itself: %s finds %d", library, found);
    return sheaf_try_this(st,
                          "the launcher and the MPI must be of one kind: --mpi openmpi with Open "
                          "MPI's mpirun or srun --mpi=pmix, --mpi mpich with MPICH's mpirun or "
                          "srun --mpi=pmi2");
}

static sheaf_status *too_many(int found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "processes");
    sheaf_expected(st, "at most %d", SHEAF_MAX_SLICES);
    return sheaf_found(st, "%d", found);
}

static sheaf_status *join(const sheaf__launcher *launcher)
{
    const sheaf__mpi *mpi = process_view.mpi;
    char text[SHEAF__MPI_TEXT];
    int number = 0, count = 1;
    if (process_view.joining != NULL)
        process_view.joining();
    const int error = mpi->start(&number, &count);
    if (error != 0) {
        mpi->explain(text, error);
        return sheaf_found(sheaf_fail(SHEAF_E_PEER, "starting the MPI"), "%s", text);
    }
    mpi->library(text);
    const bool apart = launcher->processes > 1 && count != launcher->processes;
    if (apart || count > SHEAF_MAX_SLICES) {
        mpi->finish();
        process_view.apart = apart;
        return apart ? not_together(launcher, count, text) : too_many(count);
    }
    process_view.number = number;
    process_view.count = count;
    return NULL;
}

/* Who is where; the first exchange of all. */
static sheaf_status *meet(void)
{
    size_t size[SHEAF_MAX_SLICES];
    int process[SHEAF_MAX_SLICES];
    for (int i = 0; i < process_view.count; i++) {
        size[i] = sizeof *process_view.place;
        process[i] = i;
    }
    sheaf_status *st = sheaf__messages_open(&process_view.comm,
                                            &(sheaf__messages_options){ .mpi = process_view.mpi,
                                                                        .rank = process_view.number,
                                                                        .ranks = process_view.count,
                                                                        .process = process,
                                                                        .crowded = true });
    process_view.place[process_view.number] = here();
    TRY(st, sheaf_comm_gather(process_view.comm, process_view.place, size));
    for (int i = 0; i < process_view.count; i++)
        process_view.host[i] = process_view.place[i].host;
    if (st == NULL)
        process_view.comm->host = process_view.host;
    return st;
}

void sheaf__process_failed(const sheaf_status *why)
{
    if (process_view.comm == NULL || process_view.why != NULL)
        return;
    process_view.why = sheaf_status_copy(why);
}

void sheaf__process_on_join(void (*call)(void))
{
    process_view.joining = call;
}

void sheaf__process_on_finish(void (*call)(void))
{
    process_view.finishing = call;
}

bool sheaf__process_awaited(void)
{
    return sheaf__launcher_look().processes > 1 && process_view.comm == NULL && !process_view.apart;
}

sheaf_status *sheaf__process_start(const char *mpi)
{
    const sheaf__launcher launcher = sheaf__launcher_look();
    char *path = NULL;
    if (process_view.mpi != NULL)
        return NULL;
    process_view.number = launcher.number; /* whoever is not the first fails in silence */
    sheaf_status *st = sheaf__plugin_find(&path, mpi);
    TRY(st, sheaf__plugin_load(&process_view.mpi, path));
    free(path);
    TRY(st, join(&launcher));
    if (st != NULL) {
        process_view.mpi = NULL;
        return st;
    }
    prctl(PR_SET_TIMERSLACK, 1000UL); /* ns: short sleeps are to be short */
    atexit(leave);
    st = meet();
    process_view.broken = st != NULL;
    int local = 0;
    sheaf__process_local(&local);
    if (st == NULL && local == 0)
        sheaf__segments_sweep(SHEAF__SEGMENTS);
    return st;
}

/* ---- ranks ---- */

static bool crowded(void)
{
    int number;
    return sheaf__process_local(&number) > sheaf__cores(0);
}

static sheaf_status *open_group(sheaf_comm **out, const int *color, int tag, int ranks)
{
    int process[SHEAF_MAX_SLICES], count = 0, mine = 0;
    const char *host[SHEAF_MAX_SLICES];
    const int number = process_view.number;
    for (int i = 0; i < ranks; i++)
        if (color[i] == color[number]) {
            mine = i == number ? count : mine;
            host[count] = process_view.host[i];
            process[count++] = i;
        }
    if (count == 1)
        return NULL;
    return sheaf__messages_open(out, &(sheaf__messages_options){ .mpi = process_view.mpi,
                                                                 .rank = mine,
                                                                 .ranks = count,
                                                                 .process = process,
                                                                 .host = host,
                                                                 .tag = tag,
                                                                 .crowded = crowded() });
}

/* Where a text names a rank and its host, be it behind what all did: "saving step 2: rank 1 on n2:
 * ..."; NULL: nowhere. */
static const char *named_rank(const char *where)
{
    for (const char *at = where; (at = strstr(at, "rank ")) != NULL; at++) {
        const size_t digits = strspn(at + 5, "0123456789");
        const bool begins = at == where || (at >= where + 2 && strncmp(at - 2, ": ", 2) == 0);
        if (begins && digits > 0 && strncmp(at + 5 + digits, " on ", 4) == 0)
            return at;
    }
    return NULL;
}

/* The rank in front of what all did. Consumes `st`. */
static sheaf_status *rank_first(sheaf_status *st, const char *rank)
{
    const char *where = sheaf_status_where(st), *rest = strstr(rank, ": ");
    if (rank == where || rest == NULL)
        return st;
    sheaf_status *out = sheaf_fail(sheaf_status_code(st), "%.*s%.*s%s", (int)(rest + 2 - rank),
                                   rank, (int)(rank - where), where, rest + 2);
    if (*sheaf_status_expected(st) != '\0')
        sheaf_expected(out, "%s", sheaf_status_expected(st));
    if (*sheaf_status_found(st) != '\0')
        sheaf_found(out, "%s", sheaf_status_found(st));
    if (*sheaf_status_try(st) != '\0')
        sheaf_try_this(out, "%s", sheaf_status_try(st));
    sheaf_status_free(st);
    return out;
}

sheaf_status *sheaf__process_name_own(sheaf_status *st)
{
    if (st == NULL || !sheaf__process_first() || process_view.count == 1)
        return st;
    const char *rank = named_rank(sheaf_status_where(st));
    if (rank != NULL)
        return rank_first(st, rank);
    const sheaf_code code = sheaf_status_code(st);
    return code == SHEAF_E_MEMORY || code == SHEAF_E_IO
               ? sheaf_in(st, "rank 0 on %s", process_view.host[0])
               : st;
}

sheaf_status *sheaf__process_run(int ranks, const int *color, int groups,
                                 sheaf_status *(*body)(void *context, sheaf_comm *const *comm),
                                 void *context)
{
    sheaf_comm *comm[SHEAF__MOST_GROUPS] = { NULL };
    sheaf_status *st = NULL;
    if (ranks != process_view.count) {
        st = sheaf_fail(SHEAF_E_ARG, "processes");
        sheaf_expected(st, "%d, one for each rank", ranks);
        return sheaf_found(st, "%d", process_view.count);
    }
    const int tag = 2 + 2 * TAGS_OF_RUN * (int)(process_view.runs++ % RUNS);
    for (int k = 0; k < groups && st == NULL; k++)
        st = open_group(&comm[k], color + k * ranks, tag + 2 * k, ranks);
    st = sheaf__all_agree(process_view.comm, st);
    TRY(st, body(context, comm));
    for (int k = 0; k < groups; k++)
        if (comm[k] != NULL)
            sheaf__messages_leave(comm[k], st);
    sheaf_status *lost = sheaf__messages_close(comm, groups);
    process_view.broken |= lost != NULL;
    if (st == NULL)
        st = lost;
    else
        sheaf_status_free(lost);
    return sheaf__process_name_own(process_view.broken ? st
                                                       : sheaf__all_agree(process_view.comm, st));
}
