/* injected.c - a fault at an exchange of the command of the tests: before the n-th call of some
 * kind, one rank dies, is stopped, fails, loses its connections, makes another call, comes late or
 * never. The linker (--wrap) puts this before sheaf__grid_run() and sheaf__process_record(), where
 * groups of ranks come to be; their transports, whichever they are, are wrapped there.
 *
 * SHEAF_INJECT=RANK:CALL:N:FAULT; the command has the flag --inject for it. CALL is as messages
 * name it ("sum", "agree", ..., "any call"), "collect", what it is made for ("forwards",
 * "backwards", "gradients", "weights", "norm", "others") or when ("loading", "update", "saving",
 * "evaluating", and of other commands "reading", "comparing", "writing", "finishing"). FAULT is
 * kill, stop, fail (as if there were no memory), memory (the system gives no more from now on),
 * cut, hang, stray (a call of another group, which nobody else makes), or MS, milliseconds that the
 * N-th and every later one comes late. */
#include "tests/faults/injected.h"

#include <dirent.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "comm/grid.h"
#include "comm/process.h"
#include "comm/transport.h"

/* Calls by name, then by what they are for, then by what the rank is at. */
enum { COLLECT = SHEAF__OP_LEFT + 1, FOR, AT = FOR + SHEAF__TRAFFICS, NAMES = AT + 8 };
/* Those of a grid, and that of all processes. */
enum { ALL_PROCESSES = 4, GROUPS };

static const char *const call_names[NAMES] = {
    "any call",   "sum",     "max",       "select",  "broadcast", "gather",    "agree",
    "any",        "barrier", "no call",   "collect", "forwards",  "backwards", "selects",
    "gradients",  "weights", "norm",      "others",  "loading",   "saving",    "update",
    "evaluating", "reading", "comparing", "writing", "finishing"
};

typedef enum kind { KILL, STOP, FAIL, CUT, HANG, STRAY, MEMORY, KINDS, LATE = KINDS } kind;
static const char *const kind_names[KINDS] = { "kill", "stop",  "fail",  "cut",
                                               "hang", "stray", "memory" };

/* A group's transport: its own, with the fault before it. */
typedef struct wrapped {
    sheaf__transport shown; /* first: how a call finds the rest */
    const sheaf__transport *inner;
    sheaf_comm *comm;
} wrapped;

/* Of the one rank that it is meant for, whose thread alone looks here. */
static struct injected {
    int rank, call;
    long n, seen;
    kind kind;
    long ms;
    wrapped wrapped[GROUPS];
    bool any, trains;
} plan;
typedef struct injected injected;

/* ---- what happens ---- */

static void doze(long ms)
{
    nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 }, NULL);
}

/* Every connection over a network that this process has. */
static void cut(void)
{
    DIR *dir = opendir("/proc/self/fd");
    for (const struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        struct sockaddr_storage name = { 0 };
        socklen_t size = sizeof name;
        const int fd = atoi(entry->d_name);
        if (fd > 2 && getpeername(fd, (struct sockaddr *)&name, &size) == 0 &&
            (name.ss_family == AF_INET || name.ss_family == AF_INET6))
            shutdown(fd, SHUT_RDWR);
    }
    if (dir != NULL)
        closedir(dir);
}

/* A call of another group, which nobody else makes. */
static sheaf_status *stray(const injected *f, const sheaf_comm *comm)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < GROUPS && st == NULL; i++)
        if (f->wrapped[i].comm != NULL && f->wrapped[i].comm != comm)
            st = sheaf_comm_barrier(f->wrapped[i].comm);
    return st;
}

/* Comes late to a call: that is time of its own, not of waiting for others. */
static void be_late(const injected *f, sheaf_comm *comm, int call)
{
    doze(f->ms);
    if (call != COLLECT)
        sheaf__comm_count(comm, (sheaf__comm_op)call)->waiting -= 1e-3 * (double)f->ms;
}

/* From now on the system gives this process no memory any more. */
static void starve(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_DATA, &limit) == 0) {
        limit.rlim_cur = 1 << 20;
        setrlimit(RLIMIT_DATA, &limit);
    }
}

static bool is_at(const sheaf_comm *comm, const char *name)
{
    const char *phase = comm->activity == NULL ? NULL : SHEAF__LOAD(comm->activity->phase);
    if (comm->activity == NULL)
        return false;
    if (strcmp(name, "evaluating") == 0) /* no micro-batch of a step */
        return comm->counters.purpose == SHEAF__TRAFFIC_FORWARD &&
               SHEAF__LOAD(comm->activity->micro) == 0;
    return phase != NULL && strcmp(phase, name) == 0;
}

static bool is_meant(const injected *f, const sheaf_comm *comm, int call)
{
    if (f->call >= AT)
        return is_at(comm, call_names[f->call]);
    if (f->call >= FOR)
        return comm->counters.purpose == (sheaf__traffic)(f->call - FOR);
    return f->call == 0 || f->call == call;
}

static sheaf_status *happen(injected *f, sheaf_comm *comm, int call)
{
    if (!is_meant(f, comm, call))
        return NULL;
    if (++f->seen != f->n && !(f->kind == LATE && f->seen > f->n))
        return NULL;
    switch (f->kind) {
    case KILL: raise(SIGKILL); break;
    case STOP: raise(SIGSTOP); break;
    case CUT: cut(); break;
    case FAIL:
        return sheaf_found(sheaf_fail(SHEAF_E_MEMORY, "%s", call_names[call]),
                           "no memory (injected)");
    case HANG:
        for (;;)
            doze(1000);
    case STRAY: return stray(f, comm);
    case MEMORY: starve(); break;
    case LATE: be_late(f, comm, call); break;
    }
    return NULL;
}

/* ---- the wrapper ---- */

static wrapped *wrapped_of(const sheaf_comm *comm)
{
    return (wrapped *)(void *)comm->transport;
}

static sheaf_status *post(sheaf_comm *comm, const sheaf__heading *mine, const sheaf__move *send,
                          int count)
{
    const wrapped *w = wrapped_of(comm);
    sheaf_status *st = happen(&plan, comm, mine->op);
    return st != NULL ? st : w->inner->post(comm, mine, send, count);
}

static sheaf_status *collect(sheaf_comm *comm, const sheaf__move *receive, int count)
{
    const wrapped *w = wrapped_of(comm);
    sheaf_status *st = happen(&plan, comm, COLLECT),
                 *moved = w->inner->collect(comm, receive, count);
    if (st == NULL)
        return moved;
    sheaf_status_free(moved);
    return st;
}

static void wrap(injected *f, int i, sheaf_comm *comm)
{
    if (comm == NULL)
        return;
    wrapped *w = &f->wrapped[i];
    *w = (wrapped){ .shown = *comm->transport, .inner = comm->transport, .comm = comm };
    w->shown.post = post;
    w->shown.collect = collect;
    comm->transport = &w->shown;
}

static void wrap_grid(injected *f, const sheaf__grid *grid)
{
    wrap(f, 0, grid->all);
    wrap(f, 1, grid->group);
    if (grid->stage != grid->group) /* a stage may be the group */
        wrap(f, 2, grid->stage);
    wrap(f, 3, grid->peers);
}

/* ---- the plan ---- */

static int find(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    return -1;
}

static bool read_plan(injected *f, const char *text)
{
    char call[16] = "", kind[16] = "";
    int end = 0;
    if (sscanf(text, "%d:%15[^:]:%ld:%15s%n", &f->rank, call, &f->n, kind, &end) != 4 ||
        text[end] != '\0' || f->n < 1)
        return false;
    f->call = find(call_names, sizeof call_names / sizeof *call_names, call);
    const int named = find(kind_names, KINDS, kind);
    char *rest = NULL;
    f->ms = strtol(kind, &rest, 10);
    f->kind = named >= 0 ? (enum kind)named : LATE;
    return f->call >= 0 && (named >= 0 || (*rest == '\0' && f->ms > 0));
}

bool injected_read(const char *text, bool trains)
{
    plan.trains = trains;
    plan.any = read_plan(&plan, text);
    return plan.any;
}

/* ---- where groups come to be ---- */

typedef struct inner {
    sheaf_status *(*body)(void *context, const sheaf__grid *grid);
    void *context;
} inner;

static sheaf_status *run_body(void *context, const sheaf__grid *grid)
{
    const inner *in = context;
    const bool mine = plan.any && plan.rank == sheaf_comm_rank(grid->all);
    if (mine)
        wrap_grid(&plan, grid);
    sheaf_status *st = in->body(in->context, grid);
    for (int i = 0; mine && i < ALL_PROCESSES; i++) {
        if (plan.wrapped[i].comm != NULL)
            plan.wrapped[i].comm->transport = plan.wrapped[i].inner;
        plan.wrapped[i].comm = NULL;
    }
    return st;
}

sheaf_status *__real_sheaf__grid_run(const sheaf__grid_options *options,
                                     sheaf_status *(*body)(void *context, const sheaf__grid *grid),
                                     void *context);
sheaf_status *__wrap_sheaf__grid_run(const sheaf__grid_options *options,
                                     sheaf_status *(*body)(void *context, const sheaf__grid *grid),
                                     void *context);
sheaf_status *__wrap_sheaf__grid_run(const sheaf__grid_options *options,
                                     sheaf_status *(*body)(void *context, const sheaf__grid *grid),
                                     void *context)
{
    return __real_sheaf__grid_run(options, run_body, &(inner){ body, context });
}

/* Of a training run only its ranks' own calls count. */
void __real_sheaf__process_record(sheaf_comm *all, sheaf__activity *activity);
void __wrap_sheaf__process_record(sheaf_comm *all, sheaf__activity *activity);
void __wrap_sheaf__process_record(sheaf_comm *all, sheaf__activity *activity)
{
    __real_sheaf__process_record(all, activity);
    if (activity != NULL && plan.any && !plan.trains && plan.rank == sheaf__all_number(all) &&
        plan.wrapped[ALL_PROCESSES].comm == NULL)
        wrap(&plan, ALL_PROCESSES, all);
}
