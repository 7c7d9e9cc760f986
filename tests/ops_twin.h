/* ops_twin.h - for the tests of ops: operands, and the columns a kernel is compared in.
 *
 * Operands end where a page that may not be touched begins, so a kernel that
 * reads or writes past a row's end dies. twin_each() goes through every fast
 * column of this CPU, the activation types float32 and bfloat16, the thread flags with
 * and without DAZ and FTZ, and three kinds of numbers; float16 shares its kernels' code
 * with bfloat16 but for reading and writing, so of it two of the six. */
#pragma once

#include "base/thread.h"
#include <stdbool.h>
#include <sys/mman.h>

#include "tests/check.h"

#include "base/random.h"
#include "ops/kernels.h"
#include "ops/math/round.h"

typedef enum twin_numbers {
    TWIN_PLAIN,
    TWIN_FINITE_EDGES,
    TWIN_ALL_EDGES,
    TWIN_KINDS
} twin_numbers;

typedef struct twin {
    const sheaf__kernels *ref, *fast;
    sheaf_dtype dtype;
    bool flush;           /* DAZ and FTZ are set */
    twin_numbers numbers; /* the last kind has infinities and several NaN */
    char name[64];        /* for messages */
} twin;

static const int64_t twin_sizes[] = {
    1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11,  12,  13,  14,  15,   16,   17,   18,   19,
    20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30,  31,  32,  33,  34,   35,   36,   37,   38,
    39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49,  50,  51,  52,  53,   54,   55,   56,   57,
    58, 59, 60, 61, 62, 63, 64, 65, 66, 67, 255, 256, 257, 511, 2048, 2304, 5632, 6145,
};

/* twin_take - `bytes` that end at a forbidden page; lives as long as the program. */
static inline void *twin_take(size_t bytes)
{
    const size_t page = 4096, whole = (bytes + page - 1) / page * page;
    char *block =
        mmap(NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(block != MAP_FAILED);
    assert_int_equal(mprotect(block + whole, page, PROT_NONE), 0);
    return block + whole - bytes;
}

/* twin_give - gives a block of so many bytes back. */
static inline void twin_give(void *block, size_t bytes)
{
    const size_t page = 4096, whole = (bytes + page - 1) / page * page;
    assert_int_equal(munmap((char *)block + bytes - whole, whole + page), 0);
}

/* The last `bytes` of a block of `size` from twin_take. */
static inline void *twin_end(void *block, size_t size, size_t bytes)
{
    return (char *)block + (size - bytes);
}

static inline size_t twin_bytes(sheaf_dtype dtype)
{
    return dtype == SHEAF_F32 ? 4 : 2;
}

static inline float twin_number(uint64_t index, twin_numbers numbers)
{
    static const float finite[] = {
        0.0f,        -0.0f,       0x1p-149f,    -0x1p-149f,    0x1.fffffcp-127f,
        0x1p-126f,   -0x1p-126f,  0x1p-100f,    1e-30f,        1.0f,
        -1.0f,       87.3365f,    -87.33655f,   -87.3366f,     16.5f,
        65503.9f,    65519.9f,    65520.0f,     0x1p-25f,      0x1.000002p-25f,
        0x1p-24f,    0x1.8p-24f,  0x1.008p-14f, -0x1.ffcp-15f, 256.5f,
        1.00390625f, 1.01171875f,
    };
    static const uint32_t others[] = {
        0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001, 0xffbfffff, 0x7fffffff,
        0x7f7fffff, 0xff7fffff, 0x42b17218, 0x42b17219, 0xc2aeac50, 0x7f7f8000, 0x7149f2ca,
    };
    const uint32_t u = sheaf__random_tensor_u32(1, 2, index),
                   pick = numbers == TWIN_PLAIN ? 0 : sheaf__random_tensor_u32(3, 4, index);
    if (numbers >= TWIN_FINITE_EDGES && pick % 8 == 0)
        return finite[pick / 8 % ARRAY_LEN(finite)];
    if (numbers == TWIN_ALL_EDGES && pick % 64 == 1)
        return sheaf__float(others[pick / 64 % ARRAY_LEN(others)]);
    const float size = u & 1 ? 1.0f : 8.0f;
    return (sheaf__unit_float(u) - 0.5f) * size;
}

/* twin_fill - n elements of `dtype`, different for each salt. */
static inline void twin_fill(void *x, int64_t n, sheaf_dtype dtype, twin_numbers numbers,
                             uint64_t salt)
{
    for (int64_t i = 0; i < n; i++) {
        const float value = twin_number(salt << 32 | (uint64_t)i, numbers);
        if (dtype == SHEAF_F32)
            memcpy((float *)x + i, &value, 4); /* as bits: a signalling NaN stays one */
        else if (dtype == SHEAF_F16)
            ((uint16_t *)x)[i] = sheaf__f16(value);
        else
            ((uint16_t *)x)[i] = sheaf__bits(value) == 0x7f800001 ? 0x7f81 : sheaf__bf16(value);
    }
}

static inline void twin_same(const twin *t, const char *what, const void *got, const void *want,
                             size_t bytes)
{
    if (memcmp(got, want, bytes) == 0)
        return;
    const unsigned char *g = got, *w = want;
    size_t i = 0;
    while (g[i] == w[i])
        i++;
    sheaf__mode_set(SHEAF__MERGE_MODE);
    fail_msg("%s, %s: differs from the reference at byte %zu of %zu", what, t->name, i, bytes);
}

static inline void twin_each(void (*check)(const twin *t))
{
    static const char *const columns[] = { "avx2", "avx512" };
    const unsigned before = sheaf__mode();
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        const sheaf__kernels *fast = sheaf__kernels_for(columns[i]);
        if (fast == NULL) {
            print_message("%s: not on this CPU, not compared\n", columns[i]);
            continue;
        }
        for (int code = 0; code < 2 * 2 * TWIN_KINDS + 2; code += every(3)) {
            const bool f16 = code >= 2 * 2 * TWIN_KINDS;
            twin t = { .ref = sheaf__kernels_for("ref"),
                       .fast = fast,
                       .dtype = f16        ? SHEAF_F16
                                : code & 1 ? SHEAF_BF16
                                           : SHEAF_F32,
                       .flush = f16 ? code & 1 : code & 2,
                       .numbers = f16 && (code & 1) ? TWIN_FINITE_EDGES
                                  : f16             ? TWIN_ALL_EDGES
                                                    : (twin_numbers)(code / 4) };
            snprintf(t.name, sizeof t.name, "%s %s%s numbers %d", columns[i],
                     sheaf_dtype_name(t.dtype), t.flush ? " flushed" : "", t.numbers);
            sheaf__mode_set(t.flush ? SHEAF__COMPUTE_MODE : SHEAF__MERGE_MODE);
            check(&t);
            sheaf__compute_mode_leave(before);
        }
    }
}

/* twin_gradient - gradient[i] against the central difference of f at x, in double. */
static inline void twin_gradient(const char *name, double (*f)(const double *x), double *x, int n,
                                 const double *gradient)
{
    for (int i = 0; i < n; i++) {
        const double at = x[i], h = 1e-5;
        x[i] = at + h;
        const double above = f(x);
        x[i] = at - h;
        const double below = f(x);
        x[i] = at;
        /* the difference is off by about h^2 and 1e-16/h: well below 1e-6 */
        CHECK_NEAR(name, gradient[i], (above - below) / (2 * h), 1e-6 * (1 + fabs(gradient[i])));
    }
}

/* twin_close - float results against double ones, relative to the largest. */
static inline void twin_close(const char *name, const float *got, const double *want, int n,
                              double relative)
{
    double largest = 0;
    for (int i = 0; i < n; i++)
        largest = fmax(largest, fabs(want[i]));
    for (int i = 0; i < n; i++)
        CHECK_NEAR(name, got[i], want[i], relative * largest);
}
