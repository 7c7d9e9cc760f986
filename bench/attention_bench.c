/* attention_bench.c - how fast is causal attention at some lengths, beside the products of a layer?
 *
 *   build/bench/attention_bench [--threads N] [--isa NAME] [--sums ORDER] [--dtype f32|bf16|f16]
 *                               [--heads KV,GROUP,WIDTH] [--rounds N] [LENGTH...]
 *
 * One sequence of each length, forward and backward, times the least of several rounds; with one
 * thread they are processor time. A rate counts what is visible: 2 multiply-adds for a query, a key
 * it sees and a channel forward, 5 backward (which takes p from the logits again). "Of a product"
 * is beside a packed product of 1024 x 2048 x 2048 in the same rounds. `device` is the memory that
 * attention itself takes: scratch of the threads and two floats for each row and head. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "ops/attention/attention.h"
#include "ops/math/round.h"
#include "ops/matmul/matmul.h"

typedef struct settings {
    int threads, rounds;
    const char *isa;
    sheaf_sums sums;
    sheaf_dtype dtype;
    int64_t kv, group, width;
} settings;

static double now(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void stop(sheaf_status *st)
{
    if (st == NULL)
        return;
    fprintf(stderr, "attention_bench: out of memory, or no such kernels here\n");
    exit(3);
}

static void *take(sheaf__device *device, size_t bytes)
{
    void *p = NULL;
    stop(sheaf__device_alloc(&p, device, bytes, SHEAF_MEM_ACTIVATIONS));
    return p;
}

static void *filled(sheaf__device *device, int64_t count, sheaf_dtype dtype)
{
    static uint32_t u = 1;
    void *p = take(device, (size_t)count * sheaf_dtype_bytes(dtype));
    for (int64_t i = 0; i < count; i++) {
        u = u * 1664525u + 1013904223u;
        sheaf__store(p, i, (float)(int32_t)u * 0x1p-31f, dtype);
    }
    return p;
}

/* GFLOP/s of a product that is far from any limit but the kernel's own. */
static double product_seconds(sheaf__device *device, sheaf_dtype dtype)
{
    enum { M = 1024, N = 2048, K = 2048 };
    static sheaf__packed w;
    static void *a, *b, *y;
    if (a == NULL) {
        a = filled(device, (int64_t)M * K, dtype);
        b = filled(device, (int64_t)N * K, dtype);
        y = take(device, (size_t)M * N * 4);
        w = (sheaf__packed){ .dtype = dtype, .n = N, .k = K };
        w.ahead = take(device, sheaf__packed_bytes(dtype, N, K));
        sheaf__pack(&w, b, dtype, K, 0, N);
    }
    const sheaf__term term = { .a = a, .lda = K, .form = SHEAF__B_AHEAD, .w = &w, .k = K };
    const sheaf__product job = { .m = M,
                                 .n = N,
                                 .dtype = dtype,
                                 .nslices = 1,
                                 .term = &term,
                                 .nterms = 1,
                                 .y = y,
                                 .ldy = N,
                                 .out = dtype,
                                 .alpha = 1,
                                 .round_to = SHEAF_F32 };
    const double start = now(device->threads);
    sheaf__products(device, &job, 1);
    return (now(device->threads) - start) / (2.0 * M * N * K);
}

static sheaf_sums sums_of(const char *name)
{
    for (sheaf_sums sums = SHEAF_SUMS_TILES; sums <= SHEAF_SUMS_MMA16; sums++)
        if (strcmp(name, sheaf__sums_text(sums)) == 0)
            return sums;
    return SHEAF_SUMS_PAIRS;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void bench(sheaf__device *device, const settings *s, int64_t length)
{
    const int64_t heads = s->kv * s->group, wide = heads * s->width, narrow = s->kv * s->width;
    const size_t size = sheaf_dtype_bytes(s->dtype), before = device->peak;
    void *q = filled(device, length * wide, s->dtype),
         *k = filled(device, length * narrow, s->dtype),
         *v = filled(device, length * narrow, s->dtype),
         *d_o = filled(device, length * wide, s->dtype);
    void *o = take(device, (size_t)(length * wide) * size),
         *dq = take(device, (size_t)(length * wide) * size),
         *dk = take(device, (size_t)(length * narrow) * size),
         *dv = take(device, (size_t)(length * narrow) * size);
    float *stats = take(device, (size_t)(heads * length * 2) * 4);
    const sheaf__attention shape = { .dtype = s->dtype,
                                     .batch = 1,
                                     .queries = length,
                                     .keys = length,
                                     .kv_heads = s->kv,
                                     .group = s->group,
                                     .head_dim = s->width,
                                     .scale = 0.125f,
                                     .ldq = wide,
                                     .ldk = narrow,
                                     .ldv = narrow,
                                     .ldo = wide,
                                     .kv_rows = length };
    double forward = 1e9, backward = 1e9, product = 1e9;
    for (int round = 0; round < s->rounds; round++) {
        product = least(product, product_seconds(device, s->dtype));
        double start = now(s->threads);
        sheaf__attention_forward(device, &shape, o, stats, q, k, v);
        forward = least(forward, now(s->threads) - start);
        start = now(s->threads);
        sheaf__attention_backward(device, &shape, dq, dk, dv, d_o, o, stats, q, k, v);
        backward = least(backward, now(s->threads) - start);
    }
    const double pairs = (double)length * (double)(length + 1) / 2 * (double)(heads * s->width),
                 rate = 1 / product, f = 4 * pairs / forward, b = 10 * pairs / backward;
    printf(
        "%6lld  %9.2f ms %7.1f GFLOP/s %5.1f %%  %9.2f ms %7.1f GFLOP/s %5.1f %%  %7.1f  %7.1f MB, %.0f bytes a row\n",
        (long long)length, forward * 1e3, f * 1e-9, 100 * f / rate, backward * 1e3, b * 1e-9,
        100 * b / rate, rate * 1e-9, (double)(device->peak - before) * 1e-6,
        (double)(device->peak - before) / (double)length);
    fflush(stdout);
    void *all[] = { q, k, v, d_o, o, dq, dk, dv, stats };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sheaf__device_free(device, all[i]);
}

int main(int argc, char **argv)
{
    settings s = {
        .threads = 1, .rounds = 5, .dtype = SHEAF_BF16, .kv = 1, .group = 8, .width = 64
    };
    int64_t lengths[16], count = 0;
    for (int i = 1; i < argc; i++) {
        const char *next = i + 1 < argc ? argv[i + 1] : "";
        long long kv, group, width;
        if (strcmp(argv[i], "--threads") == 0)
            s.threads = atoi(next), i++;
        else if (strcmp(argv[i], "--rounds") == 0)
            s.rounds = atoi(next), i++;
        else if (strcmp(argv[i], "--isa") == 0)
            s.isa = next, i++;
        else if (strcmp(argv[i], "--sums") == 0)
            s.sums = sums_of(next), i++;
        else if (strcmp(argv[i], "--dtype") == 0)
            s.dtype = strcmp(next, "f32") == 0   ? SHEAF_F32
                      : strcmp(next, "f16") == 0 ? SHEAF_F16
                                                 : SHEAF_BF16,
            i++;
        else if (strcmp(argv[i], "--heads") == 0 &&
                 sscanf(next, "%lld,%lld,%lld", &kv, &group, &width) == 3)
            s.kv = kv, s.group = group, s.width = width, i++;
        else if (count < 16 && atoll(argv[i]) > 0)
            lengths[count++] = atoll(argv[i]);
    }
    if (count == 0)
        lengths[count++] = 512, lengths[count++] = 2048, lengths[count++] = 8192;
    sheaf__device *device = NULL;
    stop(sheaf__device_open(&device, &sheaf__cpu, s.threads, s.isa, 0));
    device->sums = s.sums;
    printf("# %s, %d thread(s), %lld key heads of %lld query heads, width %lld, %s\n",
           device->kernels->isa, s.threads, (long long)s.kv, (long long)s.group, (long long)s.width,
           s.dtype == SHEAF_F32 ? "f32" : "bf16");
    printf(
        "length       forward             of a product      backward            of a product  GFLOP/s   memory\n");
    (void)product_seconds(device, s.dtype);
    for (int64_t i = 0; i < count; i++)
        bench(device, &s, lengths[i]);
    sheaf__device_close(device);
    return 0;
}
