/* memory_bench.c - how fast does this machine read memory, as decoding has to read its weights?
 *
 *   build/bench/memory_bench [THREADS [MEGABYTES]]
 *
 * Prints one line: gigabytes a second that the threads together read of a buffer that no cache
 * holds, the best of several rounds, and the same by processor time: bytes that a thread reads in
 * a second in which it runs, times the threads. On a busy machine the second one is of use.
 * Two rounds of three ask for what lies a page of 4 KB or two ahead, as the processor by itself
 * fetches ahead within pages only. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define ROUNDS 15
#define MOST_THREADS 256

typedef struct share {
    const uint64_t *at;
    size_t words, ahead; /* ahead: bytes, 0: it does not ask */
    double seconds;      /* of processor time */
    uint64_t sum;
} share;

static double now(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void *read_share(void *context)
{
    share *s = context;
    uint64_t a[16] = { 0 };
    const double start = now(CLOCK_THREAD_CPUTIME_ID);
    for (size_t i = 0; i < s->words; i += 16) {
        const char *line = (const char *)&s->at[i];
        if (s->ahead > 0) {
            __builtin_prefetch(line + s->ahead, 0, 2);
            __builtin_prefetch(line + s->ahead + 64, 0, 2);
        }
        for (int j = 0; j < 16; j++)
            a[j] |= s->at[i + (size_t)j];
    }
    s->seconds = now(CLOCK_THREAD_CPUTIME_ID) - start;
    for (int j = 0; j < 16; j++)
        s->sum |= a[j];
    return NULL;
}

int main(int argc, char **argv)
{
    const int threads = argc > 1 ? atoi(argv[1]) : 1;
    const size_t bytes = (size_t)(argc > 2 ? atoi(argv[2]) : 512) << 20, huge = (size_t)2 << 20;
    static share shares[MOST_THREADS];
    pthread_t thread[MOST_THREADS];
    if (threads < 1 || threads > MOST_THREADS || bytes == 0) {
        fprintf(stderr, "usage: memory_bench [THREADS [MEGABYTES]]\n");
        return 2;
    }
    void *buffer = aligned_alloc(huge, bytes);
    if (buffer == NULL)
        return 3;
    (void)madvise(buffer, bytes, MADV_HUGEPAGE);
    memset(buffer, 1, bytes);
    double wall = 1e9, processor = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        const double start = now(CLOCK_MONOTONIC);
        for (int t = 0; t < threads; t++) {
            const size_t words = bytes / 8 / (size_t)threads / 16 * 16;
            shares[t] = (share){ .at = (const uint64_t *)buffer + (size_t)t * words,
                                 .words = words,
                                 .ahead = (size_t)(round % 3) * 4096 };
            if (pthread_create(&thread[t], NULL, read_share, &shares[t]) != 0)
                return 3;
        }
        double mean = 0;
        for (int t = 0; t < threads; t++) {
            pthread_join(thread[t], NULL);
            mean += shares[t].seconds / threads;
        }
        const double took = now(CLOCK_MONOTONIC) - start;
        wall = took < wall ? took : wall;
        processor = mean < processor ? mean : processor;
    }
    printf("%.2f GB/s, %.2f by processor time\n", (double)bytes / wall * 1e-9,
           (double)bytes / processor * 1e-9);
    free(buffer);
    return shares[0].sum == 0;
}
