/* measure.c - sheaf_machine_measure() of sheaf/machine.h. */
#include <time.h>

#include "base/base.h"
#include "base/inside.h"
#include "ops/matmul/matmul.h"
#include "sheaf/machine.h"

enum { M = 512, N = 1024, K = 1024, TURNS = 8 };

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID,
                  &t); /* one thread computes: others on the machine cost less truth */
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fill(void *x, int64_t n, sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        if (dtype == SHEAF_BF16)
            ((uint16_t *)x)[i] = (uint16_t)(0x3f00 + i % 97); /* between 0.5 and 1.5 */
        else
            ((float *)x)[i] = 0.5f + (float)(i % 97) / 97;
    }
}

/* Seconds of the fastest repetition. */
static double best_of(sheaf__device *device, const sheaf__product *job)
{
    double best = 1e9;
    for (int i = 0; i < TURNS; i++) {
        const double begin = now();
        sheaf__products(device, job, 1);
        const double took = now() - begin;
        best = took < best ? took : best;
    }
    return best;
}

static sheaf_status *measure(double *gflops, const char *isa, sheaf_dtype dtype, sheaf__sums sums)
{
    sheaf__device *device = NULL;
    sheaf__packed w = { .dtype = dtype, .n = N, .k = K };
    void *a = NULL, *b = NULL, *y = NULL;
    sheaf_status *st = sheaf__device_open(&device, SHEAF_CPU, 1, isa, 0);
    TRY(st, sheaf__device_alloc(&a, device, (size_t)M * K * 4, SHEAF_MEM_INPUTS));
    TRY(st, sheaf__device_alloc(&b, device, (size_t)N * K * 4, SHEAF_MEM_INPUTS));
    TRY(st, sheaf__device_alloc(&y, device, (size_t)M * N * 4, SHEAF_MEM_INPUTS));
    TRY(st,
        sheaf__device_alloc(&w.ahead, device, sheaf__packed_bytes(dtype, N, K), SHEAF_MEM_WEIGHTS));
    if (st == NULL) {
        fill(a, (int64_t)M * K, dtype);
        fill(b, (int64_t)N * K, dtype);
        sheaf__pack(&w, b, dtype, K, 0, N);
        device->sums = sums;
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
        *gflops = 2e-9 * M * N * K / best_of(device, &job);
    }
    sheaf__device_close(device);
    return st;
}

sheaf_status *sheaf_machine_measure(sheaf_machine_rate rates[SHEAF_MACHINE_RATES])
{
    SHEAF__INSIDE;
    const char *const widest =
        sheaf__kernels_for(NULL) == NULL ? NULL : sheaf__kernels_for(NULL)->isa;
    const struct {
        const char *name, *key, *isa;
        sheaf_dtype dtype;
        sheaf__sums sums;
    } way[SHEAF_MACHINE_RATES] = {
        { "float32", "float32", widest, SHEAF_F32, SHEAF__PAIRS },
        { "bfloat16, pairs, fma", "pairs_fma", widest, SHEAF_BF16, SHEAF__PAIRS },
        { "bfloat16, pairs, vdpbf16ps", "pairs_vdpbf16ps", "avx512bf16", SHEAF_BF16, SHEAF__PAIRS },
        { "bfloat16, tiles, fma", "tiles_fma", widest, SHEAF_BF16, SHEAF__TILES },
        { "bfloat16, tiles, AMX", "tiles_amx", "amx", SHEAF_BF16, SHEAF__TILES },
    };
    sheaf_status *st = NULL;
    for (int i = 0; i < SHEAF_MACHINE_RATES && st == NULL; i++) {
        rates[i] = (sheaf_machine_rate){ way[i].name, way[i].key, 0 };
        if (way[i].isa != NULL && sheaf__kernels_for(way[i].isa) != NULL)
            st = measure(&rates[i].gflops, way[i].isa, way[i].dtype, way[i].sums);
    }
    return st;
}
