/* probe.c - does a GPU compute as the processor does? Asked of each one as it is opened: float32
 * near 2^-126, where results are flushed to zero, and instructions of its tensor cores, whose order
 * of sums it is named by. One that does anything else is refused. */
#include <math.h>

#include "base/base.h"
#include "base/thread.h"
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/probe.h"
#include "ops/math/denormals.h"
#include "ops/matmul/mma.h"

static uint32_t next(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8 | *state << 24;
}

/* ---- float32 ---- */

/* A float32 of either sign with exponent `e`, often of few bits. */
static float number(uint32_t *state, int e)
{
    const uint32_t bits = next(state), rare = next(state) % 4;
    const uint32_t fraction = rare == 0   ? 0
                              : rare == 1 ? 0x7fffff
                              : rare == 2 ? bits & 0x7ff000
                                          : bits;
    if (e < -126) /* a denormal one */
        return sheaf__float((bits & 0x80000000) |
                            (fraction & 0x7fffff) >> (-126 - e < 23 ? -126 - e : 22));
    return sheaf__float((bits & 0x80000000) | (uint32_t)(e + 127) << 23 | (fraction & 0x7fffff));
}

/* Sums, products, quotients that lie at 2^-126, from above and below. */
static void make_floats(float (*in)[3])
{
    uint32_t state = 43;
    for (int64_t i = 0; i < SHEAF__PROBE_CASES; i++) {
        const int wide = (int)(next(&state) % 120), near = (int)(next(&state) % 6);
        float *x = in[i];
        switch (i % 4) {
        case 0: /* a sum */
            x[0] = number(&state, -128 + near);
            x[1] = number(&state, -128 + (int)(next(&state) % 6));
            break;
        case 1: /* a product */
            x[0] = number(&state, -wide);
            x[1] = number(&state, wide - 129 + near);
            break;
        case 2: /* a quotient */
            x[0] = number(&state, wide - 129 + near > 120 ? 120 : wide - 126);
            x[1] = number(&state, wide + 3 - near);
            break;
        default: /* anything */
            x[0] = number(&state, (int)(next(&state) % 250) - 130);
            x[1] = number(&state, (int)(next(&state) % 250) - 130);
        }
        x[2] = number(&state, -130 + near + (i % 8 == 7 ? wide : 0));
    }
}

static const char *const operation[] = { "a + b",       "a * b",     "fma(a, b, c)",
                                         "a / b",       "sqrt(|c|)", "a * b, denormals kept",
                                         "bfloat16(a)", "float16(a)" };

static float result(const float *x, int which)
{
    switch (which) {
    case SHEAF__PROBE_SUM: return x[0] + x[1];
    case SHEAF__PROBE_PRODUCT: return x[0] * x[1];
    case SHEAF__PROBE_FMA: return fmaf(x[0], x[1], x[2]);
    case SHEAF__PROBE_QUOTIENT: return x[0] / x[1];
    case SHEAF__PROBE_ROOT: return sqrtf(x[2] < 0 ? -x[2] : x[2]);
    case SHEAF__PROBE_KEPT: return sheaf__kept_product(x[0], x[1]);
    case SHEAF__PROBE_BF16: return sheaf__from_bf16(sheaf__bf16(x[0]));
    default: return sheaf__from_f16(sheaf__f16(x[0]));
    }
}

static sheaf_status *refused(const sheaf__gpu *gpu)
{
    return sheaf_fail(SHEAF_E_UNSUPPORTED, "GPU %d (%s): how it computes", gpu->number, gpu->name);
}

static sheaf_status *advise(sheaf_status *st)
{
    return sheaf_try_this(st,
                          "another GPU (`device cuda:N`) or `device cpu`: this one would not give "
                          "the bytes that are promised; a GPU that is damaged does so, too "
                          "(nvidia-smi -q shows ECC errors)");
}

/* By any NaN all are meant. */
static bool is_same(uint32_t a, uint32_t b)
{
    const bool nan = (a & 0x7fffffff) > 0x7f800000 && (b & 0x7fffffff) > 0x7f800000;
    return a == b || nan;
}

static sheaf_status *compare_floats(sheaf__gpu *gpu, float (*in)[3],
                                    float (*out)[SHEAF__PROBE_RESULTS])
{
    int64_t differ = 0, first = 0;
    int which = 0;
    float want = 0;
    const unsigned mode = sheaf__compute_mode_enter();
    for (int64_t i = 0; i < SHEAF__PROBE_CASES; i++)
        for (int k = 0; k < SHEAF__PROBE_RESULTS; k++) {
            const float is = result(in[i], k);
            if (is_same(sheaf__bits(is), sheaf__bits(out[i][k])) || differ++ > 0)
                continue;
            first = i;
            which = k;
            want = is;
        }
    sheaf__compute_mode_leave(mode);
    if (differ == 0)
        return NULL;
    const float *x = in[first];
    sheaf_status *st = refused(gpu);
    sheaf_expected(st, "%s = %a, as on processors, of a = %a, b = %a, c = %a", operation[which],
                   (double)want, (double)x[0], (double)x[1], (double)x[2]);
    sheaf_found(st, "%a; %lld of %d results near 2^-126 differ", (double)out[first][which],
                (long long)differ, SHEAF__PROBE_CASES * SHEAF__PROBE_RESULTS);
    return advise(st);
}

/* ---- tensor cores ---- */

/* The cases that tell the orders apart, then any, with special numbers among them. */
static void make_groups(sheaf__probe_group *in, bool f16)
{
    const uint16_t one = f16 ? 0x3c00 : 0x3f80, small = f16 ? 0x0c00 : 0x3980, /* 2^-12 */
        smaller = f16 ? 0x0800 : 0x3900,                                       /* 2^-13 */
        infinite = f16 ? 0x7c00 : 0x7f80;
    uint32_t state = 16;
    memset(in, 0, SHEAF__PROBE_GROUPS * sizeof *in);
    in[0] = (sheaf__probe_group){ { small }, { (uint16_t)(smaller | 0x8000) }, 0x3f800000 };
    in[1] = (sheaf__probe_group){ { small, small, small, small },
                                  { smaller, smaller, smaller, smaller },
                                  0x3f800000 };
    in[2] = (sheaf__probe_group){ { small }, { small }, 0x3f800000 };
    in[2].a[8] = in[2].b[8] = small;
    in[3] = (sheaf__probe_group){ { 1 }, { one }, 0 };
    in[4] = (sheaf__probe_group){ { infinite }, { 0 }, 0x3f800000 };
    for (int i = 5; i < SHEAF__PROBE_GROUPS; i++) {
        const uint32_t keep = i % 3 == 0 ? 0xffff
                              : f16      ? 0x83ff
                                         : 0x80ff,
                       set = i % 3 == 0 ? 0 : one & ~keep;
        for (int k = 0; k < 16; k++) {
            in[i].a[k] = (uint16_t)((next(&state) & keep) | set);
            in[i].b[k] = (uint16_t)((next(&state) & keep) | set);
        }
        in[i].c = i % 3 == 0 ? next(&state) : (next(&state) & 0x83ffffff) | 0x3c000000;
    }
}

/* How many of the results are not those of an order. */
static int count_other(const sheaf__probe_group *in, const uint32_t (*out)[128], sheaf_dtype dtype,
                       sheaf_sums sums)
{
    int other = 0;
    for (int i = 0; i < SHEAF__PROBE_GROUPS; i++) {
        const uint32_t want = sheaf__mma_chain(sums, dtype, in[i].c, in[i].a, in[i].b, 16);
        for (int e = 0; e < 128; e++)
            other += out[i][e] != want;
    }
    return other;
}

static sheaf_status *compare_groups(sheaf__gpu *gpu, const sheaf__probe_group *in,
                                    const uint32_t (*out)[128], sheaf_dtype dtype)
{
    const sheaf_sums own = gpu->major >= 9 ? SHEAF_SUMS_MMA16 : SHEAF_SUMS_MMA8;
    const int other = count_other(in, out, dtype, own);
    if (other == 0)
        return NULL;
    const bool is_turned =
        count_other(in, out, dtype, own == SHEAF_SUMS_MMA16 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16) ==
        0;
    sheaf_status *st = refused(gpu);
    sheaf_expected(st, "%s of tensor cores in the order %s, that of compute capability %d.%d",
                   sheaf_dtype_name(dtype), sheaf__sums_text(own), gpu->major, gpu->minor);
    sheaf_found(st, "%d of %d results that are not%s", other, SHEAF__PROBE_GROUPS * 128,
                is_turned ? ", but those of the other order" : "");
    return advise(st);
}

/* ---- asking ---- */

/* Of its first bytes of memory, which nothing has yet. */
static sheaf_status *ask(sheaf__gpu *gpu, const char *kernel, int blocks, int threads, void *in,
                         size_t in_bytes, void *out, size_t out_bytes)
{
    const size_t behind = (in_bytes + 255) / 256 * 256;
    struct {
        sheaf__gpu_address in, out;
    } arguments = { gpu->base, gpu->base + behind }; /* of both: two pointers */
    sheaf_status *st = sheaf__gpu_send(gpu, gpu->base, in, in_bytes);
    TRY(st, sheaf__gpu_queue(gpu, SHEAF__LAUNCHED(kernel, blocks, 1, threads, 0, &arguments)));
    TRY(st, sheaf__gpu_await(gpu, gpu->stream,
                             "another GPU (`device cuda:N`), or `device cpu`; dmesg has the "
                             "driver's own report (Xid), and a restart may cure it"));
    return TRY(st, sheaf__gpu_fetch(gpu, out, gpu->base + behind, out_bytes));
}

typedef struct exam {
    float in[SHEAF__PROBE_CASES][3], out[SHEAF__PROBE_CASES][SHEAF__PROBE_RESULTS];
    sheaf__probe_group group[SHEAF__PROBE_GROUPS];
    uint32_t sum[SHEAF__PROBE_GROUPS][128];
} exam;

/* Tensor cores of a type. */
static sheaf_status *ask_groups(sheaf__gpu *gpu, exam *a, sheaf_dtype dtype)
{
    const bool f16 = dtype == SHEAF_F16;
    make_groups(a->group, f16);
    sheaf_status *st = ask(gpu, f16 ? "probe_f16" : "probe_bf16", SHEAF__PROBE_GROUPS, 32, a->group,
                           sizeof a->group, a->sum, sizeof a->sum);
    return TRY(st, compare_groups(gpu, a->group, (const uint32_t(*)[128])a->sum, dtype));
}

sheaf_status *sheaf__gpu_probe(sheaf__gpu *gpu)
{
    exam *a = malloc(sizeof *a);
    if (a == NULL)
        return sheaf__no_memory("questions to a GPU");
    make_floats(a->in);
    sheaf_status *st = ask(gpu, "probe_floats", SHEAF__PROBE_CASES / 256, 256, a->in, sizeof a->in,
                           a->out, sizeof a->out);
    TRY(st, compare_floats(gpu, a->in, a->out));
    TRY(st, ask_groups(gpu, a, SHEAF_BF16));
    TRY(st, ask_groups(gpu, a, SHEAF_F16));
    free(a);
    return st;
}
