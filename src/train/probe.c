/* probe.c - see probe.h. */
#include "train/probe.h"

#include <math.h>

#include "base/hash.h"
#include "base/status.h"
#include "base/random.h"
#include "base/thread.h"
#include "ops/matmul/matmul.h"

enum { ROWS = 5, WIDTH = 523, OUT = 19 }; /* odd, and longer than two blocks of a sum */

typedef struct probe {
    sheaf__device *device;
    sheaf_hasher *hash;
    sheaf_dtype dtype;
    float wide[ROWS * WIDTH], other[ROWS * WIDTH], w[WIDTH], sum[ROWS], y32[ROWS * WIDTH];
    uint16_t or_half[2 * ROWS * WIDTH]; /* in `dtype` */
    uint16_t weight[2 * OUT * WIDTH], result[2 * ROWS * WIDTH];
} probe;

/* Magnitudes from 2^-20 to 2^4, of both signs: another order of a sum shows. */
static void fill(float *x, int64_t n, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++) {
        const uint32_t r = sheaf__random_u32(seed, 1, 2, 3, 4, i);
        x[i] = ldexpf((float)((int32_t)(r & 0xffffff) - 0x800000), (int)(r >> 24) % 24 - 43);
    }
}

static void add(probe *p, const void *bytes, size_t size)
{
    sheaf__hasher_add(p->hash, bytes, size);
}

static void take_products(probe *p)
{
    const sheaf__term term = {
        .a = p->or_half, .lda = WIDTH, .form = SHEAF__B_NK, .b = p->weight, .ldb = WIDTH, .k = WIDTH
    };
    const sheaf__product job = { .m = ROWS,
                                 .n = OUT,
                                 .dtype = p->dtype,
                                 .nslices = 1,
                                 .term = &term,
                                 .nterms = 1,
                                 .y = p->y32,
                                 .ldy = OUT,
                                 .out = SHEAF_F32,
                                 .alpha = 1,
                                 .round_to = SHEAF_F32 };
    sheaf__products(p->device, &job, 1);
    add(p, p->y32, sizeof(float) * ROWS * OUT);
}

static void take_rows(probe *p)
{
    const sheaf__kernels *k = p->device->kernels;
    const int64_t n = ROWS * WIDTH;
    const size_t bytes = (size_t)n * sheaf_dtype_bytes(p->dtype);
    const float zero[ROWS] = { 0 };
    k->rmsnorm(p->result, p->sum, p->or_half, p->w, ROWS, WIDTH, 1e-5f, false, p->dtype);
    add(p, p->result, bytes);
    add(p, p->sum, sizeof p->sum);
    k->gelu(p->result, p->or_half, n, p->dtype);
    add(p, p->result, bytes);
    k->swiglu(p->result, p->or_half, p->or_half, n, p->dtype);
    add(p, p->result, bytes);
    k->row_sumexp(p->sum, p->wide, WIDTH, zero, ROWS, WIDTH);
    add(p, p->sum, sizeof p->sum);
    k->softcap(p->wide, 3, n, p->dtype);
    add(p, p->wide, sizeof p->wide);
    const double squares = k->squares(p->other, n);
    add(p, &squares, sizeof squares);
}

static void take_step(probe *p)
{
    const sheaf__adamw how = { .lr = 1e-3,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = 0.1,
                               .bias1 = 0.1,
                               .bias2_sqrt = 0.03,
                               .grad_scale = 0.7f };
    float m[WIDTH] = { 0 }, v[WIDTH] = { 0 };
    p->device->kernels->adamw(p->w, m, v, p->other, WIDTH, &how);
    add(p, p->w, sizeof p->w);
    add(p, v, sizeof v);
}

sheaf_status *sheaf__probe(char out[33], const sheaf_train_options *o)
{
    probe *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__no_memory("a probe of the arithmetic");
    p->dtype = o->dtype;
    p->hash = sheaf__hasher_new();
    sheaf_status *st = p->hash == NULL ? sheaf__no_memory("a probe of the arithmetic")
                                       : sheaf__device_open(&p->device, SHEAF_CPU, 1, o->isa, 0);
    if (st == NULL) {
        float wide[OUT * WIDTH];
        const unsigned mode = sheaf__compute_mode_enter();
        p->device->sums = o->sums == SHEAF_SUMS_TILES ? SHEAF__TILES : SHEAF__PAIRS;
        fill(p->wide, ROWS * WIDTH, 1);
        fill(p->other, ROWS * WIDTH, 2);
        fill(p->w, WIDTH, 3);
        fill(wide, OUT * WIDTH, 4);
        p->device->kernels->convert(p->or_half, p->dtype, p->wide, SHEAF_F32, ROWS * WIDTH);
        p->device->kernels->convert(p->weight, p->dtype, wide, SHEAF_F32, OUT * WIDTH);
        take_products(p);
        take_rows(p);
        take_step(p);
        sheaf__compute_mode_leave(mode);
        sheaf__hash_text(out, sheaf__hasher_end(p->hash));
    }
    sheaf__device_close(p->device);
    sheaf__hasher_free(p->hash);
    free(p);
    return st;
}
