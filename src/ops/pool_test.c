/* pool_test.c - every index runs exactly once, whatever the threads do; denormals
 * count as zero inside and only inside; idle workers sleep. */
#include "tests/check.h"

#include <fenv.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/thread.h"
#include "ops/pool.h"

typedef struct tally {
    _Atomic int *count;
    int threads;
    _Atomic int bad;
} tally;

static void count_one(void *context, int64_t index, int worker)
{
    tally *t = context;
    atomic_fetch_add(&t->count[index], 1);
    if (worker < 0 || worker >= t->threads)
        atomic_fetch_add(&t->bad, 1);
}

static void check_run(sheaf__pool *pool, int64_t tasks)
{
    _Atomic int count[600] = { 0 };
    tally t = { .count = count, .threads = sheaf__pool_threads(pool) };
    sheaf__pool_run(pool, tasks, count_one, &t);
    for (int64_t i = 0; i < 600; i++)
        assert_int_equal(count[i], i < tasks ? 1 : 0);
    assert_int_equal(t.bad, 0);
}

TEST(test_pool__each_index_once)
{
    for (int threads = 1; threads <= 9; threads++) {
        sheaf__pool *pool;
        CHECK_OK(sheaf__pool_new(&pool, threads));
        assert_int_equal(sheaf__pool_threads(pool), threads);
        for (int64_t tasks = 0; tasks < 600; tasks = tasks < 20 ? tasks + 1 : tasks * 3 / 2)
            for (int repeat = 0; repeat < 20; repeat++)
                check_run(pool, tasks);
        sheaf__pool_free(pool);
    }
    sheaf__pool_free(NULL);
    sheaf__pool *none = NULL;
    CHECK_FAILS(sheaf__pool_new(&none, 0), SHEAF_E_ARG, "compute threads");
}

static void count_rows(void *context, int64_t begin, int64_t end, int worker)
{
    _Atomic int *count = context;
    for (int64_t r = begin; r < end; r++)
        atomic_fetch_add(&count[r], 1);
    atomic_fetch_add(&count[999], 1);
}

TEST(test_pool__rows_in_chunks)
{
    sheaf__pool *pool;
    CHECK_OK(sheaf__pool_new(&pool, 3));
    const int64_t grains[] = { -1, 0, 1, 2, 7, 64, 100, 101, INT64_MAX };
    for (size_t g = 0; g < ARRAY_LEN(grains); g++)
        for (int64_t rows = 0; rows <= 101; rows++) {
            _Atomic int count[1000] = { 0 };
            sheaf__pool_rows(pool, rows, grains[g], count_rows, count);
            for (int64_t r = 0; r < 999; r++)
                assert_int_equal(count[r], r < rows ? 1 : 0);
            const int64_t grain = grains[g] < 1 ? 1 : grains[g];
            assert_int_equal(count[999], rows / grain + (rows % grain != 0));
        }
    sheaf__pool_free(pool);
}

/* ---- jobs end to end: no worker enters a job that is over, or leaves one unfinished ---- */

typedef struct slow_job {
    _Atomic int over;
    int64_t tasks;
    int done[16]; /* plain: the end of the run must make them visible */
    _Atomic int *bad;
} slow_job;

static void slow_task(void *context, int64_t index, int worker)
{
    slow_job *job = context;
    for (int i = 0; i < (int)(index * 37 % 120); i++)
        sheaf__pause();
    if (atomic_load(&job->over) || index >= job->tasks)
        atomic_fetch_add(job->bad, 1);
    else
        job->done[index]++;
}

TEST(test_pool__jobs_do_not_run_into_each_other)
{
    for (int threads = 2; threads <= 4; threads++) {
        sheaf__pool *pool;
        _Atomic int bad = 0;
        CHECK_OK(sheaf__pool_new(&pool, threads));
        static slow_job job[20000];
        for (int i = 0; i < 20000; i++) {
            job[i] = (slow_job){ .tasks = 2 + i % 14, .bad = &bad };
            sheaf__pool_run(pool, job[i].tasks, slow_task, &job[i]);
            for (int64_t t = 0; t < job[i].tasks; t++)
                assert_int_equal(job[i].done[t], 1);
            job[i].over = 1;
            for (int pause = 0; pause < i % 61; pause++) /* workers asleep, spinning, or leaving */
                sheaf__pause();
        }
        assert_int_equal(bad, 0);
        sheaf__pool_free(pool);
    }
}

/* ---- floating-point mode ---- */

typedef struct mode_seen {
    volatile float tiny, half; /* volatile: computed when run, not when compiled */
    _Atomic int kept;
    _Atomic unsigned workers; /* bit set */
} mode_seen;

static void use_denormal(void *context, int64_t index, int worker)
{
    mode_seen *m = context;
    const float from_denormal = m->tiny * 1.0f;   /* DAZ */
    const float to_denormal = 1.5e-38f * m->half; /* FTZ */
    if (from_denormal != 0.0f || to_denormal != 0.0f)
        atomic_fetch_add(&m->kept, 1);
    if ((sheaf__mode() & SHEAF__TOWARD_ZERO) != 0) /* rounding: nearest */
        atomic_fetch_add(&m->kept, 1);
    atomic_fetch_or(&m->workers, 1u << worker);
    usleep(200); /* so that all workers get some */
}

TEST(test_pool__denormals_are_zero_inside_only)
{
    const unsigned before = sheaf__mode_set(SHEAF__MERGE_MODE);
    fesetround(FE_DOWNWARD);
    const unsigned callers = sheaf__mode();
    for (int threads = 1; threads <= 3; threads++) {
        sheaf__pool *pool;
        CHECK_OK(sheaf__pool_new(&pool, threads));
        mode_seen m = { .tiny = 1e-40f, .half = 0.5f };
        for (int repeat = 0; repeat < 50 && m.workers != (1u << threads) - 1; repeat++)
            sheaf__pool_run(pool, 30, use_denormal, &m);
        sheaf__pool_run(pool, 1, use_denormal, &m);
        assert_int_equal(m.kept, 0);
        assert_int_equal(m.workers, (1u << threads) - 1);
        assert_int_equal(sheaf__mode() & ~0x3fu, callers & ~0x3fu);
        sheaf__pool_free(pool);
    }
    fesetround(FE_TONEAREST);
    sheaf__compute_mode_leave(before);
}

/* ---- behaviour when there are more threads than cores ---- */

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *run_many(void *bad)
{
    sheaf__pool *pool;
    if (sheaf__pool_new(&pool, 4) != NULL)
        return bad;
    for (int i = 0; i < 3000; i++) {
        _Atomic int count[8] = { 0 };
        tally t = { .count = count, .threads = 4 };
        sheaf__pool_run(pool, 8, count_one, &t);
        for (int j = 0; j < 8; j++)
            if (count[j] != 1)
                return bad;
    }
    sheaf__pool_free(pool);
    return NULL;
}

TEST(test_pool__eight_pools_of_four_on_few_cores)
{
    pthread_t thread[8];
    int bad; /* its address says so */
    const double begin = now(CLOCK_MONOTONIC);
    for (int i = 0; i < 8; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, run_many, &bad), 0);
    for (int i = 0; i < 8; i++) {
        void *result;
        pthread_join(thread[i], &result);
        assert_null(result);
    }
    const double s = now(CLOCK_MONOTONIC) - begin;
    print_message("24000 runs of 8 tasks, 8 pools of 4 threads: %.0f ms\n", s * 1e3);
    assert_true(s < 5); /* busy waiting takes a time slice, milliseconds, per run: over 30 s */
}

TEST(test_pool__idle_workers_sleep)
{
    sheaf__pool *pool;
    CHECK_OK(sheaf__pool_new(&pool, 8));
    check_run(pool, 100);
    usleep(20000);
    const double begin = now(CLOCK_PROCESS_CPUTIME_ID);
    usleep(200000);
    assert_true(now(CLOCK_PROCESS_CPUTIME_ID) - begin < 0.02);
    sheaf__pool_free(pool);
}
