/* matmul_bench.c - how fast are the products of a training step, as a share of what
 * this core can do, and beside oneDNN and OpenBLAS?
 *
 *   build/bench/matmul_bench [--threads N] [--isa avx2|avx512|avx512bf16|amx]
 *                            [--sums pairs|tiles|mma8|mma16|groups|'tiles in groups']
 *                            [--dtype f32|bf16|f16] [--alone] [PART OF A NAME]
 *   build/bench/matmul_bench --peak [--threads N] [--isa ...]
 *   build/bench/matmul_bench --quantised nf4|nf4-double|fp4|q4_1|int4|int8|f8
 *                            [--threads N] [--isa ...]
 *                            [--sums ...] [--dtype ...] [PART OF A NAME]
 *
 * --peak prints one number: GFLOP/s of float32 fma that N threads reach at once, which may share a
 * core.
 * The peak is a loop of fma (or pair) instructions on registers, measured around
 * every line. Times are the least of several repetitions taken in rotation; with one
 * thread they are CPU time, so that neighbours on the machine cost less truth. */
#include <immintrin.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "bench/matmul_quantised.h"
#include "bench/matmul_rivals.h"
#include "ops/matmul/matmul_private.h"
#include "ops/pool.h"

typedef struct shape {
    const char *name;
    int64_t m, n, k; /* of one job, or of one slice */
    int jobs;        /* column slices: jobs side by side, a product of n * jobs */
    int slices;      /* row slices: summed by the tree, a product of k * slices */
    sheaf__right form;
    bool a_km;
    bool f32_out;
} shape;

static const shape shapes[] = {
    { "square, packed", 2048, 2048, 2048, 1, 1, SHEAF__B_AHEAD, false, true },
    { "square, plain [n,k]", 2048, 2048, 2048, 1, 1, SHEAF__B_NK, false, true },
    { "square, plain [k,n]", 2048, 2048, 2048, 1, 1, SHEAF__B_KN, false, true },
    { "attention out, S 1", 1024, 2048, 2048, 1, 1, SHEAF__B_AHEAD, false, false },
    { "gate, S 8", 1024, 704, 2048, 8, 1, SHEAF__B_AHEAD, false, false },
    { "down, S 8 tree", 1024, 2048, 704, 1, 8, SHEAF__B_AHEAD, false, false },
    { "dx of gate", 1024, 2048, 704, 1, 8, SHEAF__B_BACK, false, false },
    { "dh of down", 1024, 704, 2048, 8, 1, SHEAF__B_BACK, false, false },
    { "dh of down, S 1", 1024, 5632, 2048, 1, 1, SHEAF__B_BACK, false, false },
    { "dx of gate, 256", 256, 2048, 704, 1, 8, SHEAF__B_BACK, false, false },
    { "head, 256 tokens", 256, 4000, 2048, 8, 1, SHEAF__B_AHEAD, false, true },
    { "mini gate", 1024, 176, 512, 8, 1, SHEAF__B_AHEAD, false, false },
    { "mini down", 1024, 512, 176, 1, 8, SHEAF__B_AHEAD, false, false },
    { "mini dx", 1024, 512, 176, 1, 8, SHEAF__B_BACK, false, false },
    { "mini o", 1024, 512, 64, 1, 8, SHEAF__B_AHEAD, false, false },
    { "dW", 704, 2048, 1024, 8, 1, SHEAF__B_KN, true, true },
    { "LoRA x A^T", 1024, 16, 2048, 1, 1, SHEAF__B_NK, false, false },
    { "LoRA x A^T, S 8", 1024, 16, 256, 1, 8, SHEAF__B_NK, false, false },
    { "LoRA h B^T", 1024, 2048, 16, 1, 1, SHEAF__B_NK, false, false },
    { "LoRA dy B", 1024, 16, 2048, 1, 1, SHEAF__B_KN, false, false },
    { "LoRA g A", 1024, 2048, 16, 1, 1, SHEAF__B_KN, false, false },
    { "dA = g^T x", 16, 2048, 1024, 1, 1, SHEAF__B_KN, true, true },
    { "dB = dy^T h", 2048, 16, 1024, 1, 1, SHEAF__B_KN, true, true },
    { "decode 1", 1, 2048, 2048, 1, 1, SHEAF__B_AHEAD, false, false },
    { "decode 2", 2, 2048, 2048, 1, 1, SHEAF__B_AHEAD, false, false },
    { "decode 4", 4, 2048, 2048, 1, 1, SHEAF__B_AHEAD, false, false },
    { "decode 8", 8, 2048, 2048, 1, 1, SHEAF__B_AHEAD, false, false },
    { "decode 1, S 8 columns", 1, 256, 2048, 8, 1, SHEAF__B_AHEAD, false, false },
    { "decode 1, S 8 tree", 1, 2048, 256, 1, 8, SHEAF__B_AHEAD, false, false },
    { "long, 512 columns", 512, 512, 4096, 1, 1, SHEAF__B_AHEAD, false, true },
    { "long, 64 rows", 64, 4096, 4096, 1, 1, SHEAF__B_AHEAD, false, true },
};
#define MAX_JOBS 8

static double now(int threads)
{
    struct timespec t;
    clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- the peak ---- */

#define TURNS 200000 /* a millisecond or so: clocks are coarse on a shared machine */
__attribute__((target("avx2,fma"))) static float peak_avx2(void)
{
    __m256 acc[12], a = _mm256_set1_ps(1.0f), b = _mm256_set1_ps(1e-30f);
#pragma GCC unroll 12
    for (int i = 0; i < 12; i++)
        acc[i] = _mm256_set1_ps((float)i);
    for (int t = 0; t < TURNS; t++)
#pragma GCC unroll 12
        for (int i = 0; i < 12; i++) {
            acc[i] = _mm256_fmadd_ps(a, b, acc[i]);
            __asm__ volatile("" : "+x"(acc[i]));
        }
#pragma GCC unroll 12
    for (int i = 1; i < 12; i++)
        acc[0] = _mm256_add_ps(acc[0], acc[i]);
    return _mm256_cvtss_f32(acc[0]);
}

__attribute__((target("avx512f"))) static float peak_avx512(void)
{
    __m512 acc[24], a = _mm512_set1_ps(1.0f), b = _mm512_set1_ps(1e-30f);
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int t = 0; t < TURNS; t++)
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++) {
            acc[i] = _mm512_fmadd_ps(a, b, acc[i]);
            __asm__ volatile("" : "+v"(acc[i]));
        }
#pragma GCC unroll 24
    for (int i = 1; i < 24; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    return _mm512_cvtss_f32(acc[0]);
}

__attribute__((target("avx512f,avx512bf16"))) static float peak_pairs(void)
{
    __m512 acc[24];
    const __m512i a = _mm512_set1_epi32(0x3f803f80);
#pragma GCC unroll 24
    for (int i = 0; i < 24; i++)
        acc[i] = _mm512_set1_ps((float)i);
    for (int t = 0; t < TURNS; t++)
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++) {
            acc[i] = _mm512_dpbf16_ps(acc[i], (__m512bh)a, (__m512bh)a);
            __asm__ volatile("" : "+v"(acc[i]));
        }
#pragma GCC unroll 24
    for (int i = 1; i < 24; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    return _mm512_cvtss_f32(acc[0]);
}

static double peak_gflops(const mm_isa *isa, sheaf_sums sums, bool bf16)
{
    const bool tiles = sums == SHEAF_SUMS_TILES,
               pairs = bf16 && !tiles && isa->pairs == sheaf__mm_avx512bf16.pairs;
    if (bf16 && tiles && isa->tiles == sheaf__mm_amx.tiles) {
        double rate[SHEAF__RATES];
        sheaf__units_measure(rate, true, true);
        return 2e-9 * rate[SHEAF__RATE_TILES];
    }
    float (*run)(void) = isa == &sheaf__mm_avx2 ? peak_avx2 : pairs ? peak_pairs : peak_avx512;
    const double flops = TURNS * (isa == &sheaf__mm_avx2 ? 12 * 16.0 : 24 * (pairs ? 64.0 : 32.0));
    double best = 1e9;
    static volatile float sink;
    for (int i = 0; i < 3; i++) {
        const double t = now(1);
        sink = run();
        const double took = now(1) - t;
        best = took < best ? took : best;
    }
    (void)sink;
    return flops / best * 1e-9;
}

typedef struct loops {
    float (*run)(void);
    float sink[64];
} loops;

static void loop_once(void *self, int64_t index, int worker)
{
    loops *l = self;
    (void)index;
    l->sink[worker % 64] = l->run();
}

/* Of all threads at once, by the clock; the best of some tenths of a second. */
static double peak_together(const mm_isa *isa, sheaf__pool *pool)
{
    enum { EACH = 4, ROUNDS = 40 };
    const bool narrow = isa == &sheaf__mm_avx2;
    const int threads = sheaf__pool_threads(pool);
    loops all = { .run = narrow ? peak_avx2 : peak_avx512 };
    double best = 1e9;
    for (int i = 0; i < ROUNDS; i++) {
        const double begin = now(2);
        sheaf__pool_run(pool, (int64_t)EACH * threads, loop_once, &all);
        const double took = now(2) - begin;
        best = took < best ? took : best;
    }
    return 1e-9 * EACH * threads * TURNS * (narrow ? 12 * 16.0 : 24 * 32.0) / best;
}

/* ---- operands ---- */

void *bench_memory(int64_t bytes)
{
    const size_t huge = (size_t)2 << 20, size = ((size_t)bytes + 4096 + huge) / huge * huge;
    void *p = aligned_alloc(huge, size);
    if (p == NULL) {
        fprintf(stderr, "matmul_bench: out of memory\n");
        exit(3);
    }
    (void)madvise(p, size, MADV_HUGEPAGE);
    return p;
}

static void *filled(int64_t count, sheaf_dtype dtype)
{
    static uint32_t u = 1;
    void *p = bench_memory(count * mm_size(dtype));
    for (int64_t i = 0; i < count; i++) {
        u = u * 1664525u + 1013904223u;
        const float x = (float)(int32_t)u * 0x1p-31f;
        sheaf__store(p, i, x, dtype);
    }
    return p;
}

typedef struct work {
    sheaf__product job[MAX_JOBS];
    int jobs;
    sheaf__term term[MAX_JOBS];
    sheaf__packed w[MAX_JOBS];
    int slice_of[MAX_JOBS], first[MAX_JOBS + 1];
    sheaf_tree tree;
    rival_product whole;
    void *own[3 + 2 * MAX_JOBS];
    int owned;
} work;

/* The i-th slice of B; stored whole [n, k] or [k, n] for plain forms, packed for others. */
static void make_term(work *w, const shape *s, int i, sheaf_dtype dtype)
{
    const int64_t size = mm_size(dtype), all_n = s->n * s->jobs, all_k = s->k * s->slices;
    const int64_t n0 = s->jobs > 1 ? i * s->n : 0, k0 = s->slices > 1 ? i * s->k : 0;
    sheaf__term *t = &w->term[i];
    *t =
        (sheaf__term){ .a_km = s->a_km, .lda = s->a_km ? s->m : all_k, .form = s->form, .k = s->k };
    t->a = (const char *)w->whole.a + k0 * size * (s->a_km ? s->m : 1);
    if (s->form == SHEAF__B_NK || s->form == SHEAF__B_KN) {
        const bool nk = s->form == SHEAF__B_NK;
        t->ldb = nk ? all_k : all_n;
        t->b = (const char *)w->whole.b + (nk ? n0 * all_k + k0 : k0 * all_n + n0) * size;
        return;
    }
    sheaf__packed *p = &w->w[i];
    const bool ahead = s->form == SHEAF__B_AHEAD;
    *p = (sheaf__packed){ .dtype = dtype, .n = ahead ? s->n : s->k, .k = ahead ? s->k : s->n };
    p->ahead = w->own[w->owned++] = bench_memory((int64_t)sheaf__packed_bytes(dtype, p->n, p->k));
    const int64_t ld = ahead ? all_k : all_n, at = ahead ? n0 * ld + k0 : k0 * ld + n0;
    sheaf__pack(p, (const char *)w->whole.b + at * size, dtype, ld, 0, p->n);
    t->w = p;
}

static void make_work(work *w, const shape *s, sheaf_dtype dtype)
{
    const bool bf16 = dtype == SHEAF_BF16;
    const int64_t all_n = s->n * s->jobs, all_k = s->k * s->slices;
    const bool nk = s->form == SHEAF__B_NK || s->form == SHEAF__B_AHEAD;
    memset(w, 0, sizeof *w);
    w->whole = (rival_product){ .m = s->m,
                                .n = all_n,
                                .k = all_k,
                                .bf16 = bf16,
                                .out_bf16 = bf16 && !s->f32_out,
                                .a_km = s->a_km,
                                .b_nk = nk };
    w->whole.a = w->own[w->owned++] = filled(s->m * all_k, dtype);
    w->whole.b = w->own[w->owned++] = filled(all_n * all_k, dtype);
    w->whole.c = w->own[w->owned++] = bench_memory(s->m * all_n * 4);
    w->jobs = s->jobs;
    sheaf_tree_init(&w->tree, s->slices, 1, NULL);
    for (int i = 0; i < s->jobs * s->slices; i++) {
        make_term(w, s, i, dtype);
        w->slice_of[i] = i;
        w->first[i + 1] = i + 1;
    }
    for (int j = 0; j < s->jobs; j++)
        w->job[j] =
            (sheaf__product){ .m = s->m,
                              .n = s->n,
                              .dtype = dtype,
                              .nslices = s->slices,
                              .slice_of = w->slice_of,
                              .first = w->first,
                              .term = w->term + j,
                              .nterms = s->slices,
                              .tree = &w->tree,
                              .y = (char *)w->whole.c + j * s->n * (w->whole.out_bf16 ? 2 : 4),
                              .ldy = all_n,
                              .out = w->whole.out_bf16 ? SHEAF_BF16 : SHEAF_F32,
                              .alpha = 1,
                              .round_to = SHEAF_F32 };
}

/* ---- timing ---- */

typedef struct machine {
    const mm_isa *isa;
    sheaf__device device;
    int threads;
    bool alone; /* without rivals */
} machine;

enum { OURS, ONEDNN_PACKED, ONEDNN_PLAIN, OPENBLAS, RUNNERS };

/* Least seconds of one run, `least` before; about 30 ms are spent. */
static double repetition(machine *m, work *w, rival *r, bool ours, double least)
{
    const double start = now(m->threads);
    double t = start;
    do {
        const double before = t;
        if (ours)
            sheaf__mm_products_with(m->isa, &m->device, w->job, w->jobs);
        else
            rival_run(r);
        t = now(m->threads);
        least = t - before < least ? t - before : least;
    } while (t - start < 0.03);
    return least;
}

static void bench(machine *m, const shape *s, sheaf_dtype dtype)
{
    static const char *const names[] = {
        [SHEAF_F32] = "f32", [SHEAF_BF16] = "bf16", [SHEAF_F16] = "f16"
    };
    static work w;
    const bool bf16 = dtype == SHEAF_BF16;
    make_work(&w, s, dtype);
    rival *r[RUNNERS] = { NULL };
    if (!m->alone && dtype != SHEAF_F16) {
        r[ONEDNN_PACKED] = rival_onednn(&w.whole, true);
        r[ONEDNN_PLAIN] = rival_onednn(&w.whole, false);
        r[OPENBLAS] = rival_openblas(&w.whole);
    }
    double least[RUNNERS] = { 1e9, 1e9, 1e9, 1e9 };
    double peak = 0;
    for (int round = 0; round < 6; round++) {
        const double p = peak_gflops(m->isa, m->device.sums, bf16) * m->threads;
        peak = p > peak ? p : peak;
        for (int i = 0; i < RUNNERS; i++)
            if (i == OURS || r[i])
                least[i] = repetition(m, &w, r[i], i == OURS, least[i]);
    }
    const double flops = 2.0 * (double)w.whole.m * (double)w.whole.n * (double)w.whole.k;
    printf("%-26s %-4s %9.1f us %7.1f GFLOP/s %5.1f %%", s->name, names[dtype], least[OURS] * 1e6,
           flops / least[OURS] * 1e-9, 100 * flops / least[OURS] * 1e-9 / peak);
    for (int i = 1; i < RUNNERS; i++) {
        if (r[i])
            printf("  %7.1f (%5.2fx)", flops / least[i] * 1e-9, least[i] / least[OURS]);
        else
            printf("  %17s", "-");
        rival_free(r[i]);
    }
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < w.owned; i++)
        free(w.own[i]);
}

static void open_machine(machine *m, const char *isa)
{
    const sheaf__kernels *kernels = sheaf__kernels_for(isa);
    if (kernels == NULL) {
        fprintf(stderr, "matmul_bench: no %s here\n", isa);
        exit(2);
    }
    m->isa = sheaf__mm_isa_for(kernels->isa, sheaf__units_for(isa));
    m->device.class = m->device.planned = &sheaf__cpu;
    m->device.threads = m->threads;
    if (sheaf__pool_new(&m->device.pool, m->threads) != NULL)
        exit(3);
    m->device.scratch = calloc((size_t)m->threads, sizeof(void *));
    for (int t = 0; t < m->threads; t++)
        m->device.scratch[t] = bench_memory((int64_t)SHEAF__THREAD_SCRATCH);
    rivals_set_threads(m->threads);
}

static void print_machine(const machine *m)
{
    char line[256], name[256] = "unknown CPU";
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "model name : %255[^\n]", name) == 1)
            break;
    if (f)
        fclose(f);
    printf("# %s, %s, %d thread(s), compiler " __VERSION__ "\n", name, m->isa->name, m->threads);
    printf("# peak, register loop: f32 %.0f, bf16 %.0f GFLOP/s per core\n",
           peak_gflops(m->isa, m->device.sums, false), peak_gflops(m->isa, m->device.sums, true));
    printf("%-26s %-4s %12s %15s %7s  %17s  %17s  %17s\n", "product", "", "time", "rate", "of peak",
           "oneDNN packed", "oneDNN plain", "OpenBLAS");
}

static sheaf_sums order_of(const char *name)
{
    sheaf_sums sums = SHEAF_SUMS_TILES_GROUPS;
    while (sums > SHEAF_SUMS_PAIRS && strcmp(name, sheaf__sums_text(sums)) != 0)
        sums--;
    return sums;
}

int main(int argc, char **argv)
{
    static const char *const types[] = { "f32", "bf16", "f16" }; /* the last one if asked for */
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    static machine m = { .threads = 1 };
    const char *isa = NULL, *dtype = NULL, *only = "", *quantised = NULL;
    bool peak = false;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--threads") == 0 && i + 1 < argc)
            m.threads = atoi(argv[++i]);
        else if (strcmp(argv[i], "--isa") == 0 && i + 1 < argc)
            isa = argv[++i];
        else if (strcmp(argv[i], "--sums") == 0 && i + 1 < argc)
            m.device.sums = order_of(argv[++i]);
        else if (strcmp(argv[i], "--dtype") == 0 && i + 1 < argc)
            dtype = argv[++i];
        else if (strcmp(argv[i], "--quantised") == 0 && i + 1 < argc)
            quantised = argv[++i];
        else if (strcmp(argv[i], "--alone") == 0)
            m.alone = true;
        else if (strcmp(argv[i], "--peak") == 0)
            peak = true;
        else
            only = argv[i];
    }
    open_machine(&m, isa);
    if (peak) {
        printf("%.1f\n", peak_together(m.isa, m.device.pool));
        return 0;
    }
    if (quantised != NULL)
        return bench_quantised(m.isa, &m.device, quantised,
                               dtype == NULL || strcmp(dtype, "f32") != 0 ? SHEAF_BF16 : SHEAF_F32,
                               only, now)
                   ? 0
                   : 2;
    print_machine(&m);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (int t = 0; t < (dtype ? 3 : 2); t++)
            if (strstr(shapes[s].name, only) && (!dtype || !strcmp(dtype, types[t])))
                bench(&m, &shapes[s], dtypes[t]);
    return 0;
}
