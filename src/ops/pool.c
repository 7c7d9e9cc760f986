/* pool.c - see pool.h.
 *
 * One job at a time. Workers take indices from a shared counter; the caller takes
 * part and returns once the job is closed and no worker is inside. A worker that was
 * asleep, or not scheduled, during a whole job is never waited for: on a machine
 * with more threads than cores the caller does the work itself instead. */
#include "ops/pool.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>

#include "base/base.h"
#include "base/spin.h"
#include "base/thread.h"

/* `state`: 1 while a job is open, plus 2 for each worker inside it, plus the number
 * of the job in the high half. The number keeps a worker that read an old state
 * from entering a new job by accident. */
#define OPEN ((uint64_t)1)
#define INSIDE ((uint64_t)2)
#define JOB ((uint64_t)1 << 32)

typedef struct worker {
    struct sheaf__pool *pool;
    pthread_t thread;
    int number;
    sheaf__spin patience;
} worker;

struct sheaf__pool {
    int threads;
    int started;    /* threads that run, without the caller */
    worker *worker; /* [threads]; worker 0 is the caller and has no thread */
    /* the job; written by the caller while the state is closed and no worker inside */
    void (*task)(void *context, int64_t index, int worker);
    void *context;
    int64_t tasks;
    _Alignas(64) _Atomic int64_t next; /* index to take next */
    _Alignas(64) _Atomic uint64_t state;
    _Alignas(64) _Atomic uint32_t bell; /* rises with each job: what idle workers sleep on */
    _Atomic uint32_t sleepers;
    _Alignas(64) _Atomic uint32_t done; /* rises when the last worker leaves a closed job */
    _Atomic uint32_t caller_sleeps;
    _Atomic bool quit;
};

static void work(sheaf__pool *pool, int number)
{
    for (;;) {
        const int64_t index = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (index >= pool->tasks)
            return;
        pool->task(pool->context, index, number);
    }
}

/* ---- workers ---- */

static bool enter(sheaf__pool *pool)
{
    uint64_t state = atomic_load(&pool->state);
    while (state & OPEN)
        if (atomic_compare_exchange_weak(&pool->state, &state, state + INSIDE))
            return true;
    return false;
}

static void leave(sheaf__pool *pool)
{
    const uint64_t now = atomic_fetch_sub(&pool->state, INSIDE) - INSIDE;
    if ((uint32_t)now != 0)
        return; /* still open, or others inside */
    atomic_fetch_add(&pool->done, 1);
    if (atomic_load(&pool->caller_sleeps) != 0)
        sheaf__wake(&pool->done, 1);
}

typedef struct last_bell {
    sheaf__pool *pool;
    uint32_t seen;
} last_bell;

static bool has_rung(void *of)
{
    const last_bell *last = of;
    return atomic_load(&last->pool->bell) != last->seen;
}

static void wait_for_bell(sheaf__pool *pool, uint32_t seen, sheaf__spin *patience)
{
    if (sheaf__spin_wait(patience, has_rung, &(last_bell){ pool, seen }))
        return;
    atomic_fetch_add(&pool->sleepers, 1);
    while (atomic_load(&pool->bell) == seen)
        sheaf__sleep_while(&pool->bell, seen);
    atomic_fetch_sub(&pool->sleepers, 1);
}

static void *worker_main(void *argument)
{
    worker *self = argument;
    sheaf__pool *pool = self->pool;
    (void)sheaf__compute_mode_enter();
    uint32_t seen = 0;
    while (!atomic_load(&pool->quit)) {
        if (enter(pool)) {
            work(pool, self->number);
            leave(pool);
        }
        /* A bell between `enter` and here ends the wait at once. */
        wait_for_bell(pool, seen, &self->patience);
        seen = atomic_load(&pool->bell);
    }
    return NULL;
}

/* ---- the caller ---- */

static void ring(sheaf__pool *pool, int wanted)
{
    atomic_fetch_add(&pool->bell, 1);
    if (atomic_load(&pool->sleepers) != 0)
        sheaf__wake(&pool->bell, wanted);
}

static bool is_done(void *of)
{
    sheaf__pool *pool = of;
    return (uint32_t)atomic_load(&pool->state) == 0;
}

static void close_job(sheaf__pool *pool)
{
    const uint64_t state = atomic_fetch_sub(&pool->state, OPEN) - OPEN;
    if ((uint32_t)state == 0 || sheaf__spin_wait(&pool->worker[0].patience, is_done, pool))
        return;
    while (!is_done(pool)) {
        const uint32_t done = atomic_load(&pool->done);
        atomic_store(&pool->caller_sleeps, 1);
        if (!is_done(pool))
            sheaf__sleep_while(&pool->done, done);
        atomic_store(&pool->caller_sleeps, 0);
    }
}

void sheaf__pool_run(sheaf__pool *pool, int64_t tasks,
                     void (*task)(void *context, int64_t index, int worker), void *context)
{
    const unsigned mode = sheaf__compute_mode_enter();
    if (pool->threads == 1 || tasks == 1) {
        for (int64_t i = 0; i < tasks; i++)
            task(context, i, 0);
    } else if (tasks > 0) {
        assert((uint32_t)atomic_load(&pool->state) == 0 &&
               "one caller at a time, and not from a task");
        pool->task = task;
        pool->context = context;
        pool->tasks = tasks;
        atomic_store(&pool->next, 0);
        atomic_fetch_add(&pool->state, JOB + OPEN);
        ring(pool, tasks < pool->threads ? (int)tasks - 1 : pool->threads - 1);
        work(pool, 0);
        close_job(pool);
    }
    sheaf__compute_mode_leave(mode);
}

typedef struct rows_job {
    int64_t rows, grain;
    void (*body)(void *context, int64_t begin, int64_t end, int worker);
    void *context;
} rows_job;

static void rows_task(void *context, int64_t index, int number)
{
    const rows_job *job = context;
    const int64_t begin = index * job->grain;
    const int64_t end = job->rows - begin < job->grain ? job->rows : begin + job->grain;
    job->body(job->context, begin, end, number);
}

void sheaf__pool_rows(sheaf__pool *pool, int64_t rows, int64_t grain,
                      void (*body)(void *context, int64_t begin, int64_t end, int worker),
                      void *context)
{
    rows_job job = {
        .rows = rows, .grain = grain < 1 ? 1 : grain, .body = body, .context = context
    };
    if (rows > 0)
        sheaf__pool_run(pool, (rows - 1) / job.grain + 1, rows_task, &job);
}

/* ---- life ---- */

/* Signals are for the thread that the program knows; a handler must not find itself
 * on a worker. */
static int start_threads(sheaf__pool *pool)
{
    sigset_t all, before;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = 1; i < pool->threads && error == 0; i++) {
        pool->worker[i] = (worker){ .pool = pool, .number = i };
        error = sheaf__thread_start(&pool->worker[i].thread, worker_main, &pool->worker[i]);
        if (error == 0)
            pool->started++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

sheaf_status *sheaf__pool_new(sheaf__pool **out, int threads)
{
    if (threads < 1)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "compute threads"), "1 or more"),
                           "%d", threads);
    sheaf__pool *pool = aligned_alloc(64, sizeof *pool);
    worker *workers = calloc((size_t)threads, sizeof *workers);
    if (pool == NULL || workers == NULL) {
        free(pool);
        free(workers);
        return sheaf__no_memory("out of memory");
    }
    memset(pool, 0, sizeof *pool);
    pool->threads = threads;
    pool->worker = workers;
    const int error = start_threads(pool);
    if (error != 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_MEMORY, "starting compute thread %d of %d",
                                      pool->started + 2, threads);
        sheaf__found_errno(st, error);
        sheaf__pool_free(pool);
        return sheaf_try_this(
            st, "fewer threads (`threads`), or a higher limit on processes (ulimit -u) or memory");
    }
    *out = pool;
    return NULL;
}

void sheaf__pool_free(sheaf__pool *pool)
{
    if (pool == NULL)
        return;
    atomic_store(&pool->quit, true);
    atomic_fetch_add(&pool->bell, 1);
    sheaf__wake(&pool->bell, pool->threads);
    for (int i = 1; i <= pool->started; i++)
        pthread_join(pool->worker[i].thread, NULL);
    free(pool->worker);
    free(pool);
}

int sheaf__pool_threads(const sheaf__pool *pool)
{
    return pool->threads;
}
