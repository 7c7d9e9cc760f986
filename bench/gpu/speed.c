/* speed.c - how fast the device `cuda` is at the products, with quantised weights too, and the
 * attention of a model of 8B, one line of JSON each; `--small` takes shapes for a device that is
 * emulated.
 *
 *   gpu_speed [--small] [--sums mma8|mma16|pairs]
 *
 * Operations run ten times behind two that are not counted, between two small downloads, which
 * wait. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "ops/attention/attention.h"
#include "ops/devices/gpu/launch.h"
#include "ops/matmul/matmul.h"
#include "ops/tensor/tensor.h"

enum { ROUNDS = 10, MOST_SLICES = 8 };

static sheaf__device *device;
static int64_t part = 1; /* by which lengths are divided */

static void stop(sheaf_status *st)
{
    if (st == NULL)
        return;
    sheaf_status_print(st, stderr);
    exit(3);
}

/* bfloat16 from 0.0078 to 0.5 in size, of either sign. */
static void *filled(int64_t count)
{
    static uint32_t u = 1;
    void *at;
    uint16_t *host = malloc((size_t)count * sizeof *host);
    stop(host == NULL ? sheaf__no_memory("operands") : NULL);
    for (int64_t i = 0; i < count; i++) {
        u = u * 1664525u + 1013904223u;
        host[i] = (uint16_t)(0x3c00 + (u >> 8) % 0x300 + (u >> 31 << 15));
    }
    stop(sheaf__device_alloc(&at, device, (size_t)count * 2, SHEAF_MEM_ACTIVATIONS));
    stop(sheaf__upload(device, at, host, (size_t)count * 2));
    free(host);
    return at;
}

static void *blank(int64_t bytes)
{
    void *at;
    stop(sheaf__device_alloc(&at, device, (size_t)bytes, SHEAF_MEM_ACTIVATIONS));
    return at;
}

static void wait_for(const void *at)
{
    char byte[16];
    stop(sheaf__device_check(device));
    stop(sheaf__download(device, byte, at, sizeof byte));
}

static double seconds_of(void (*run)(const void *), const void *what, const void *result)
{
    for (int i = 0; i < 2; i++)
        run(what);
    wait_for(result);
    const double began = sheaf__seconds();
    for (int i = 0; i < ROUNDS; i++)
        run(what);
    wait_for(result);
    return (sheaf__seconds() - began) / ROUNDS;
}

/* ---- products ---- */

static void run_product(const void *job)
{
    sheaf__products(device, job, 1);
}

/* y [m, n] of a term for each of `slices`. */
static sheaf__product job_of(int64_t m, int64_t n, const sheaf__term *term, int slices, void *y)
{
    return (sheaf__product){ .m = m,
                             .n = n,
                             .dtype = SHEAF_BF16,
                             .nslices = slices,
                             .term = term,
                             .nterms = slices,
                             .y = y,
                             .ldy = n,
                             .out = SHEAF_BF16,
                             .alpha = 1,
                             .round_to = SHEAF_F32 };
}

/* m rows by a weight [n, k], forward or (back) dy W, k in `slices`. */
static void product(const char *name, int64_t m, int64_t n, int64_t k, int slices, bool back)
{
    if (m > 64)
        m /= part;
    n = n > 64 ? n / part : n;
    k = k > 64 ? k / part : k;
    void *a = filled(m * k), *b = filled(n * k), *y = blank(m * n * 2);
    sheaf__term term[MOST_SLICES];
    int first[MOST_SLICES + 1], slice_of[MOST_SLICES];
    for (int s = 0; s < slices; s++) {
        const int64_t begin = k * s / slices;
        first[s] = slice_of[s] = s;
        term[s] = (sheaf__term){ .a = (uint16_t *)a + begin,
                                 .lda = k,
                                 .form = back ? SHEAF__B_KN : SHEAF__B_NK,
                                 .b = (uint16_t *)b + (back ? begin * n : begin),
                                 .ldb = back ? n : k,
                                 .k = k * (s + 1) / slices - begin };
    }
    first[slices] = slices;
    sheaf_tree tree;
    sheaf_tree_init(&tree, slices, 1, NULL);
    sheaf__product job = job_of(m, n, term, slices, y);
    job.slice_of = slice_of;
    job.first = first;
    job.tree = &tree;
    const double s = seconds_of(run_product, &job, y);
    printf("{\"product\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"slices\": %d, \"us\": "
           "%.1f, \"tflops\": %.1f, \"gb_per_s\": %.0f}\n",
           name, (long long)m, (long long)n, (long long)k, slices, s * 1e6,
           2e-12 * (double)m * (double)n * (double)k / s,
           2e-9 * (double)(m * k + n * k + m * n) / s);
    fflush(stdout);
    sheaf__device_free(device, y);
    sheaf__device_free(device, b);
    sheaf__device_free(device, a);
}

static void products(void)
{
    static const struct {
        const char *name;
        int64_t m, n, k;
        bool back;
    } shape[] = {
        { "q, 4096 tokens", 4096, 4096, 4096, false },
        { "gate", 4096, 14336, 4096, false },
        { "down", 4096, 4096, 14336, false },
        { "dx of gate", 4096, 4096, 14336, true },
        { "dx of down", 4096, 14336, 4096, true },
        { "A x, rank 16", 4096, 16, 4096, false },
        { "B h, rank 16", 4096, 14336, 16, false },
        { "head, 512 tokens", 512, 128256, 4096, false },
        { "gate, one token", 1, 14336, 4096, false },
        { "gate, 8 tokens", 8, 14336, 4096, false },
        { "down, one token", 1, 4096, 14336, false },
    };
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int slices = 1; slices <= 8; slices += 7)
            if (shape[i].k >= 4096)
                product(shape[i].name, shape[i].m, shape[i].n, shape[i].k, slices, shape[i].back);
            else if (slices == 1)
                product(shape[i].name, shape[i].m, shape[i].n, shape[i].k, slices, shape[i].back);
}

/* ---- quantised weights ---- */

/* bfloat16, or as codes. */
static sheaf__packed weight_of(const sheaf__quant *q, int64_t n, int64_t k)
{
    const sheaf__quant_box box = { .in = k, .rows = n, .cols = k };
    sheaf__packed w = q == NULL ? sheaf__packed_on(device, SHEAF_BF16, n, k)
                                : sheaf__packed_quantised(device, SHEAF_BF16, q, &box);
    if (q == NULL) {
        w.ahead = filled(n * k);
        return w;
    }
    const int64_t groups = n * sheaf__quant_groups(q, &box), nested = sheaf__quant_nested(q, n * k);
    const sheaf__quant_parts parts = { .codes = malloc((size_t)(n * k)),
                                       .scales = malloc((size_t)groups * 4),
                                       .scale_codes = malloc((size_t)groups),
                                       .zeros = malloc((size_t)groups) };
    const sheaf__quant_whole whole = { .nested = malloc((size_t)nested * 4 + 1), .offset = 0.05f };
    stop(parts.codes == NULL || parts.scales == NULL || parts.scale_codes == NULL ||
                 parts.zeros == NULL || whole.nested == NULL
             ? sheaf__no_memory("a weight")
             : NULL);
    for (int64_t i = 0; i < n * k; i++)
        parts.codes[i] = (uint8_t)((uint64_t)i * 2654435761u >> 16) &
                         (sheaf__code_bits(q->codes) == 4 ? 15 : 255);
    for (int64_t i = 0; i < groups; i++) {
        parts.scales[i] = 0.01f + (float)(i % 64) * 0.001f;
        parts.scale_codes[i] = (uint8_t)i;
        parts.zeros[i] = (uint8_t)(i % 17);
    }
    for (int64_t i = 0; i < nested; i++)
        whole.nested[i] = 0.03f;
    stop(sheaf__device_alloc(&w.ahead, device, sheaf__packed_size(&w), SHEAF_MEM_ACTIVATIONS));
    sheaf__weight_load_whole(device, &w, &whole);
    sheaf__weight_load_codes(device, &w, &parts, 0, n);
    void *const used[] = { parts.codes, parts.scales, parts.scale_codes, parts.zeros,
                           whole.nested };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        free(used[i]);
    return w;
}

/* x W^T of m rows, or dy W. */
static double seconds_with(const sheaf__packed *w, int64_t m, bool back)
{
    const int64_t k = back ? w->n : w->k, n = back ? w->k : w->n;
    void *a = filled(m * k), *y = blank(m * n * 2);
    const sheaf__term term = {
        .a = a, .lda = k, .form = back ? SHEAF__B_BACK : SHEAF__B_AHEAD, .w = w, .k = k
    };
    const sheaf__product job = job_of(m, n, &term, 1, y);
    const double s = seconds_of(run_product, &job, y);
    sheaf__device_free(device, y);
    sheaf__device_free(device, a);
    return s;
}

/* Each form beside bfloat16, of the same shape. */
static void quantised(int64_t n, int64_t k)
{
    static const struct {
        const char *name;
        sheaf__quant q;
    } form[] = {
        { "bfloat16", { 0 } },
        { "nf4", { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, .dtype = SHEAF_BF16 } },
        { "nf4-double",
          { SHEAF__NF4, SHEAF__GROUPS_FLAT, 64, .doubled = true, .dtype = SHEAF_BF16 } },
        { "int4", { SHEAF__INT4, SHEAF__GROUPS_OF_ROW, 128, .zeros = true, .dtype = SHEAF_F16 } },
        { "int8", { SHEAF__INT8, SHEAF__GROUPS_OF_ROW, 0, .dtype = SHEAF_BF16 } },
    };
    static const int64_t rows[] = { 1, 8, 512, 2048 };
    double plain[2][4];
    for (size_t f = 0; f < sizeof form / sizeof *form; f++) {
        sheaf__packed w = weight_of(f == 0 ? NULL : &form[f].q, n / part, k / part);
        for (int i = 0; i < 8; i++) {
            const int64_t m = rows[i / 2] > 64 ? rows[i / 2] / part : rows[i / 2];
            const double s = seconds_with(&w, m, i % 2);
            plain[i % 2][i / 2] = f == 0 ? s : plain[i % 2][i / 2];
            printf("{\"quantised\": \"%s\", \"m\": %lld, \"n\": %lld, \"k\": %lld, \"back\": %s, "
                   "\"us\": %.1f, \"times_bfloat16\": %.3f}\n",
                   form[f].name, (long long)m, (long long)w.n, (long long)w.k,
                   i % 2 ? "true" : "false", s * 1e6, s / plain[i % 2][i / 2]);
            fflush(stdout);
        }
        sheaf__device_free(device, w.ahead);
    }
}

/* ---- attention: 32 heads of 128 on 8 ---- */

typedef struct attention {
    sheaf__attention shape;
    void *q, *k, *v, *o, *d_o, *dq, *dk, *dv;
    float *stats;
} attention;

/* As training has one, also where it hides no key. */
static void *mask_of(int64_t keys)
{
    void *at = blank(keys), *host = malloc((size_t)keys);
    stop(host == NULL ? sheaf__no_memory("a mask") : NULL);
    memset(host, 1, (size_t)keys);
    stop(sheaf__upload(device, at, host, (size_t)keys));
    free(host);
    return at;
}

static void run_forward(const void *of)
{
    const attention *a = of;
    sheaf__attention_forward(device, &a->shape, a->o, a->stats, a->q, a->k, a->v);
}

static void run_backward(const void *of)
{
    const attention *a = of;
    sheaf__attention_backward(device, &a->shape, a->dq, a->dk, a->dv, a->d_o, a->o, a->stats, a->q,
                              a->k, a->v);
}

static void say(const char *name, int64_t queries, int64_t keys, double s, double products)
{
    const double seen =
        queries == keys ? (double)keys * (double)keys / 2 : (double)(queries * keys);
    printf("{\"attention\": \"%s\", \"queries\": %lld, \"keys\": %lld, \"us\": %.1f, \"tflops\": "
           "%.1f}\n",
           name, (long long)queries, (long long)keys, s * 1e6,
           products * 2e-12 * 32 * 128 * seen / s);
    fflush(stdout);
}

static void attention_of(int64_t queries, int64_t keys)
{
    enum { KV = 8, GROUP = 4, WIDTH = 128, WIDE = KV * GROUP * WIDTH, NARROW = KV * WIDTH };
    attention a = { .shape = { .dtype = SHEAF_BF16,
                               .batch = 1,
                               .queries = queries,
                               .keys = keys,
                               .kv_heads = KV,
                               .group = GROUP,
                               .head_dim = WIDTH,
                               .scale = 0.0883883461f,
                               .ldq = WIDE,
                               .ldk = NARROW,
                               .ldv = NARROW,
                               .ldo = WIDE,
                               .kv_rows = keys } };
    void *mask = queries > 1 ? mask_of(keys) : NULL;
    a.shape.key_mask = mask;
    a.shape.mask_ld = keys;
    a.q = filled(queries * WIDE);
    a.k = filled(keys * NARROW);
    a.v = filled(keys * NARROW);
    a.o = blank(queries * WIDE * 2);
    a.stats = blank(queries * KV * GROUP * 8);
    say("forward", queries, keys, seconds_of(run_forward, &a, a.o), 2);
    if (queries == keys) {
        a.d_o = filled(queries * WIDE);
        a.dq = blank(queries * WIDE * 2);
        a.dk = blank(keys * NARROW * 2);
        a.dv = blank(keys * NARROW * 2);
        say("backward", queries, keys, seconds_of(run_backward, &a, a.dv), 5);
    }
    void *const used[] = { a.dv, a.dk, a.dq, a.d_o, a.stats, a.o, a.v, a.k, a.q, mask };
    for (size_t i = 0; i < sizeof used / sizeof *used; i++)
        sheaf__device_free(device, used[i]);
}

int main(int count, char **word)
{
    sheaf_sums sums = SHEAF_SUMS_MMA16;
    for (int i = 1; i < count; i++) {
        if (strcmp(word[i], "--small") == 0)
            part = 32;
        for (sheaf_sums s = SHEAF_SUMS_PAIRS; s <= SHEAF_SUMS_MMA16; s++)
            if (strcmp(word[i], sheaf__sums_text(s)) == 0)
                sums = s;
    }
    stop(sheaf__device_open(&device, &sheaf__cuda_class, 1, NULL, 0));
    device->sums = sums;
    printf("{\"wgmma\": %s}\n", sheaf__cuda_has_maps(device->reserved->own) ? "true" : "false");
    products();
    quantised(4096, 4096);
    quantised(14336, 4096);
    quantised(4096, 14336);
    attention_of(2048 / part, 2048 / part);
    attention_of(8192 / part, 8192 / part);
    attention_of(1, 4096 / part);
    sheaf__device_close(device);
    return 0;
}
