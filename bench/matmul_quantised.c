/* matmul_quantised.c - see matmul_quantised.h.
 *
 * Weights are many, as those of a model, so that none is in a cache when its turn comes. */
#include "bench/matmul_quantised.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALL ((int64_t)256 << 20) /* bytes of plain weights */
#define ROUNDS 9

static const struct {
    const char *name;
    sheaf__quant quant;
} forms[] = {
    { "nf4", { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, 0, false, false, SHEAF_BF16 } },
    { "nf4-double", { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, 0, false, true, SHEAF_BF16 } },
    { "fp4", { SHEAF__FP4, SHEAF__GROUPS_FLAT, 64, 0, false, false, SHEAF_BF16 } },
    { "q4_1", { SHEAF__UINT4, SHEAF__GROUPS_OF_ROW, 32, 0, false, false, SHEAF_F32, true, true } },
    { "int4", { SHEAF__INT4, SHEAF__GROUPS_OF_ROW, 128, 0, true, false, SHEAF_F16 } },
    { "int8", { SHEAF__INT8, SHEAF__GROUPS_OF_ROW, 0, 0, false, false, SHEAF_F16 } },
    { "f8", { SHEAF__F8_E4M3, SHEAF__GROUPS_OF_ROW, 128, 0, false, false, SHEAF_BF16 } },
};

static const struct {
    const char *name;
    int64_t m, n, k; /* of W: n = out, k = in */
    sheaf__right way;
} shapes[] = {
    { "decode 1, 4096 x 4096", 1, 4096, 4096, SHEAF__B_AHEAD },
    { "decode 2, 4096 x 4096", 2, 4096, 4096, SHEAF__B_AHEAD },
    { "decode 4, 4096 x 4096", 4, 4096, 4096, SHEAF__B_AHEAD },
    { "decode 8, 4096 x 4096", 8, 4096, 4096, SHEAF__B_AHEAD },
    { "decode 1, 11008 x 4096", 1, 11008, 4096, SHEAF__B_AHEAD },
    { "decode 4, 11008 x 4096", 4, 11008, 4096, SHEAF__B_AHEAD },
    { "x W^T 512, 4096 x 4096", 512, 4096, 4096, SHEAF__B_AHEAD },
    { "dy W 512, 4096 x 4096", 512, 4096, 4096, SHEAF__B_BACK },
    { "x W^T 512, 11008 x 4096", 512, 11008, 4096, SHEAF__B_AHEAD },
    { "dy W 512, 11008 x 4096", 512, 11008, 4096, SHEAF__B_BACK },
};

static uint32_t any(void)
{
    static uint32_t u = 1;
    u = u * 1664525u + 1013904223u;
    return u >> 8;
}

/* Four of a sum of uniform ones: few exponents, as trained weights have. */
static float normal(void)
{
    float x = 0;
    for (int i = 0; i < 4; i++)
        x += (float)any() * 0x1p-24f - 0.5f;
    return 0.03f * x;
}

enum { PLAIN, COMPRESSED, CODES, KINDS };

static void *copy_of(const void *from, size_t bytes)
{
    return memcpy(bench_memory((int64_t)bytes), from, bytes);
}

static sheaf__packed panels_of(int64_t n, int64_t k, bool small)
{
    sheaf__packed w = { .dtype = SHEAF_BF16, .n = n, .k = k };
    float *rows = malloc((size_t)(n * k) * sizeof *rows);
    w.ahead = bench_memory((int64_t)sheaf__packed_size(&w));
    for (int64_t i = 0; i < n * k; i++)
        rows[i] = normal();
    if (small)
        sheaf__packed_compress(&w);
    sheaf__pack(&w, rows, SHEAF_F32, k, 0, n);
    (void)sheaf__packed_as_wanted(&w);
    free(rows);
    return w;
}

static sheaf__packed codes_of(sheaf__device *device, const sheaf__quant *q, sheaf_dtype dtype,
                              int64_t n, int64_t k)
{
    const sheaf__quant_box box = { k, 0, n, 0, k };
    sheaf__packed w = sheaf__packed_quantised(device, dtype, q, &box);
    const int64_t groups = sheaf__quant_groups(q, &box);
    uint8_t *codes = malloc((size_t)(n * k)), *zeros = malloc((size_t)(n * groups)),
            *scale_codes = malloc((size_t)(n * groups));
    float *scales = malloc((size_t)(2 * n * groups) * sizeof *scales),
          *nested = malloc((size_t)(sheaf__quant_nested(q, n * k) + 1) * sizeof *nested);
    for (int64_t i = 0; i < n * k; i++)
        codes[i] = (uint8_t)(any() & (sheaf__code_bits(q->codes) == 4 ? 15 : 0xbf));
    for (int64_t i = n * groups; i < 2 * n * groups; i++)
        scales[i] = 0.01f;
    for (int64_t i = 0; i < n * groups; i++) {
        scales[i] = 0.01f + (float)any() * 0x1p-30f;
        scale_codes[i] = (uint8_t)any();
        zeros[i] = (uint8_t)(any() & 15);
    }
    for (int64_t i = 0; i < sheaf__quant_nested(q, n * k); i++)
        nested[i] = 0.01f;
    w.ahead = bench_memory((int64_t)sheaf__packed_size(&w));
    const sheaf__quant_whole whole = { NULL, nested, 0.02f };
    sheaf__weight_load_whole(device, &w, &whole);
    sheaf__weight_load_codes(device, &w, &(sheaf__quant_parts){ codes, scales, scale_codes, zeros },
                             0, n);
    free(codes);
    free(zeros);
    free(scale_codes);
    free(scales);
    free(nested);
    return w;
}

/* A copy at another address; `code` points into the panels. */
static sheaf__packed again(const sheaf__packed *w)
{
    sheaf__packed out = *w;
    out.ahead = copy_of(w->ahead, sheaf__packed_size(w));
    if (w->code != NULL)
        out.code = (struct mm_code *)((char *)out.ahead + ((char *)w->code - (char *)w->ahead));
    return out;
}

typedef struct run {
    sheaf__packed *w[KINDS];
    int copies, next[KINDS];
    sheaf__term term;
    sheaf__product job;
} run;

static double once(const mm_isa *isa, sheaf__device *device, run *r, int kind,
                   double (*now)(int threads))
{
    r->term.w = &r->w[kind][r->next[kind]++ % r->copies];
    const double began = now(device->threads);
    sheaf__mm_products_with(isa, device, &r->job, 1);
    return now(device->threads) - began;
}

static void bench(const mm_isa *isa, sheaf__device *device, const sheaf__quant *q,
                  sheaf_dtype dtype, size_t s, double (*now)(int threads))
{
    const bool back = shapes[s].way == SHEAF__B_BACK;
    const int64_t n = shapes[s].n, k = shapes[s].k, m = shapes[s].m, in = back ? n : k,
                  out = back ? k : n;
    run r = { .copies = (int)(m > 64 ? 1 : ALL / (n * k * 2)) };
    double least[KINDS] = { 1e9, 1e9, 1e9 };
    for (int kind = 0; kind < KINDS; kind++) {
        r.w[kind] = malloc((size_t)r.copies * sizeof(sheaf__packed));
        if (kind != COMPRESSED || !back)
            r.w[kind][0] = kind == CODES ? codes_of(device, q, SHEAF_BF16, n, k)
                                         : panels_of(n, k, kind == COMPRESSED);
        for (int c = 1; c < r.copies; c++)
            r.w[kind][c] = again(&r.w[kind][0]);
    }
    const size_t size = dtype == SHEAF_F32 ? 4 : 2;
    char *x = calloc((size_t)(m * in), size), *y = calloc((size_t)(m * out), 4);
    for (int64_t i = 0; i < m * in; i++)
        sheaf__store(x, i, normal(), dtype);
    r.term = (sheaf__term){ .a = x, .lda = in, .k = in, .form = shapes[s].way };
    r.job = (sheaf__product){ .m = m,
                              .n = out,
                              .dtype = dtype,
                              .nslices = 1,
                              .term = &r.term,
                              .nterms = 1,
                              .y = y,
                              .ldy = out,
                              .out = dtype,
                              .alpha = 1,
                              .round_to = SHEAF_F32 };
    for (int round = 0; round < (m > 64 ? 4 : ROUNDS) * r.copies; round++)
        for (int kind = 0; kind < KINDS; kind++) {
            if (kind == COMPRESSED && back)
                continue;
            const double took = once(isa, device, &r, kind, now);
            least[kind] = took < least[kind] ? took : least[kind];
        }
    const double flops = 2.0 * (double)m * (double)n * (double)k;
    printf("%-24s", shapes[s].name);
    for (int kind = 0; kind < KINDS; kind++) {
        if (kind == COMPRESSED && back) {
            printf("  %34s", "-");
            continue;
        }
        const double bytes =
            kind == COMPRESSED ? 1.5 * (double)(n * k) : (double)sheaf__packed_size(&r.w[kind][0]);
        printf("  %9.1f us %6.1f GF/s %5.1f GB/s", least[kind] * 1e6, flops / least[kind] * 1e-9,
               bytes / least[kind] * 1e-9);
    }
    printf("  %5.2fx %5.2fx\n", least[PLAIN] / least[CODES],
           back ? 0 : least[COMPRESSED] / least[CODES]);
    fflush(stdout);
    for (int kind = 0; kind < KINDS; kind++) {
        for (int c = 0; c < r.copies && !(kind == COMPRESSED && back); c++)
            free(r.w[kind][c].ahead);
        free(r.w[kind]);
    }
    free(x);
    free(y);
}

bool bench_quantised(const mm_isa *isa, sheaf__device *device, const char *form, sheaf_dtype dtype,
                     const char *only, double (*now)(int threads))
{
    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++) {
        if (strcmp(forms[f].name, form) != 0)
            continue;
        printf("%-24s  %34s  %34s  %34s  %6s %6s\n", form, "plain bf16", "12 bits", "codes",
               "plain", "12 b.");
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
            if (strstr(shapes[s].name, only) != NULL)
                bench(isa, device, &forms[f].quant, dtype, s, now);
        return true;
    }
    return false;
}
