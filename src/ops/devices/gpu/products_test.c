/* products_test.c - products by tensor cores with tiles of every size: chains that end, trees that
 * wait, odd sizes, special values, and calls of several jobs have the processor's bytes. The
 * emulated GPUs have no wgmma: tests/ptx.sh runs this on nvcc's code of it. */
#include "tests/devices/far_on_cuda.h"

#include "ops/devices/gpu/gpu.h"
#include "tests/gpu/stand_in.h"
#include "ops/matmul/mma.h"

enum { JOBS = 4, SLICES = 16 };

/* The first one has mma8; the second one mma16, and takes everything in turned order. */
enum { GPUS = 2 };

static int open_devices(void **state)
{
    return open_gpus("8.0,9.0", GPUS);
}

/* That it was a kernel of this name that ran last, where there is wgmma. */
static void assert_ran(const char *kernel)
{
    const sheaf__gpu *of = gpu[1]->reserved->own;
    if (!sheaf__driver_stands_in() && !sheaf__cuda_has_maps(of))
        fail_msg("no wgmma");
    if (sheaf__cuda_has_maps(of) && strncmp(of->last, kernel, strlen(kernel)) != 0)
        fail_msg("%s ran, not %s", of->last, kernel);
}

/* ---- jobs ---- */

static sheaf_dtype any_half(void)
{
    return below(2) ? SHEAF_BF16 : SHEAF_F16;
}

static sheaf_sums any_order(void)
{
    return below(2) ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16;
}

static void make_even(sheaf__term *t, sheaf_dtype dtype, int64_t m, int64_t n, kind kind)
{
    const bool nk = t->form == SHEAF__B_NK;
    t->lda = ((t->a_km ? m : t->k) + 15) / 8 * 8;
    t->a = random_matrix(dtype, t->a_km ? t->k : m, t->a_km ? m : t->k, t->lda, kind);
    if (t->w == NULL) {
        t->ldb = ((nk ? t->k : n) + 15) / 8 * 8;
        t->b = random_matrix(dtype, nk ? n : t->k, nk ? t->k : n, t->ldb, kind);
    }
}

/* even: all rows begin at multiples of 16 bytes. */
static sheaf__term some_term(sheaf_dtype dtype, int64_t m, int64_t n, int64_t k, kind kind,
                             bool even)
{
    sheaf__term t;
    do
        t = random_term(dtype, (int)below(FORMS), below(2), m, n, k, kind);
    while (t.w != NULL && t.w->dtype != dtype);
    t.apart = below(2);
    if (even)
        make_even(&t, dtype, m, n, kind);
    return t;
}

static const int64_t sizes[] = { 1, 5, 16, 31, 40, 65, 129, 200, 300 };

static int64_t any_size(void)
{
    return sizes[below(ARRAY_LEN(sizes))];
}

static sheaf__product some_job(sheaf__term *term, int terms, int64_t m, int64_t n, int64_t most_k,
                               kind kind)
{
    const sheaf_dtype dtype = any_half();
    const bool even = below(2);
    for (int t = 0; t < terms; t++)
        term[t] = some_term(dtype, m, n, below(12) == 0 ? 0 : 1 + below(most_k), kind, even);
    sheaf__product job = plain_job(dtype, m, n, term, terms);
    random_ending(&job, kind);
    return job;
}

TEST(test_products__sizes_and_special_values)
{
    for (int of = 1; of < in_soak(120, 45); of++) {
        static const kind kinds[] = { ORDINARY, SPECIAL, TINY };
        sheaf__term term[4];
        seed = (uint64_t)of;
        const int64_t m = any_size(), n = any_size();
        const sheaf__product job =
            some_job(term, 1 + (int)below(4), m, n, m * n < 9000 ? 600 : 80, kinds[of % 3]);
        check_jobs("sizes", &job, 1, any_order());
    }
}

/* Terms of some 4096 elements, one after the other: 4095, 4096, 4097, 8192, ... */
TEST(test_products__chains_end)
{
    static const struct {
        int64_t m, n;
    } of[] = { { 3, 9 }, { 40, 33 }, { 129, 130 } };
    for (int i = 0; i < 12; i++) {
        sheaf__term term[3];
        seed = 100 + (uint64_t)i;
        const sheaf_dtype dtype = any_half();
        const int64_t m = of[i / 4].m, n = of[i / 4].n;
        const int terms = i / 4 == 2 ? 1 : 1 + (int)below(3);
        for (int t = 0; t < terms; t++) {
            const int64_t k = SHEAF__MMA_CHAIN * (i / 4 == 2 ? 1 : 1 + below(2)) - 1 + below(3);
            term[t] = some_term(dtype, m, n, k, ORDINARY, below(2));
        }
        sheaf__product job = plain_job(dtype, m, n, term, terms);
        random_ending(&job, ORDINARY);
        check_jobs("chains", &job, 1, i % 2 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16);
    }
}

/* ---- slices ---- */

typedef struct sliced {
    sheaf_tree tree;
    int slice_of[SLICES], first[SLICES + 1];
    float *root[SHEAF_MAX_SLICES];
    sheaf__term term[2 * SLICES];
} sliced;

static sheaf__term sliced_term(sheaf_dtype dtype, int64_t m, int64_t n, int64_t k, kind kind,
                               bool even)
{
    sheaf__term t;
    do
        t = some_term(dtype, m, n, k, kind, even || below(2));
    while (even && t.w != NULL && t.w->k % 8 != 0);
    return t;
}

/* Own slices, of which some have no term, or two; the first may have more than a chain. */
static sheaf__product sliced_job(sliced *s, int ranks, int64_t m, int64_t n, kind kind, bool even)
{
    bool present[SLICES];
    int slices = 0, terms = 0;
    const int rank = (int)below(ranks);
    const sheaf_range own = sheaf_owner_slices(SLICES, ranks, rank);
    const sheaf_dtype dtype = any_half();
    for (int p = 0; p < SLICES; p++)
        present[p] = below(6) > 0 || p == own.begin;
    sheaf_tree_init(&s->tree, SLICES, ranks, present);
    for (int p = (int)own.begin; p < own.end; p++) {
        if (!present[p] || below(8) == 0)
            continue;
        s->slice_of[slices] = p;
        s->first[slices++] = terms;
        for (int t = (int)below(6) == 0 ? 0 : 1 + (int)below(2); t > 0; t--)
            s->term[terms++] =
                sliced_term(dtype, m, n, below(20) == 0 && m < 40 ? 4500 : below(50), kind, even);
    }
    s->first[slices] = terms;
    sheaf__product job = plain_job(dtype, m, n, s->term, terms);
    random_ending(&job, kind);
    job.nslices = slices;
    job.slice_of = s->slice_of;
    job.first = s->first;
    give_slices(&job, &s->tree, ranks, rank, s->root);
    return job;
}

/* The tree's sums wait, also where there are more tiles than blocks. */
TEST(test_products__slices_by_the_tree)
{
    for (int of = 1; of < in_soak(40, 16); of++) {
        sliced s;
        seed = (uint64_t)of * 1000;
        const int64_t m = any_size(), n = any_size();
        const sheaf__product job =
            sliced_job(&s, 1 + (int)below(6), m, n, of % 3 == 0 ? TINY : ORDINARY, false);
        check_jobs("slices", &job, 1, any_order());
    }
}

/* Of any sizes, and of both types: several kernels in one call, one after the other. */
TEST(test_products__jobs_of_one_call)
{
    for (int of = 1; of < in_soak(20, 8); of++) {
        sheaf__term term[JOBS][2];
        sheaf__product job[JOBS];
        seed = (uint64_t)of * 77;
        for (int j = 0; j < JOBS; j++) {
            const int64_t m = any_size(), n = any_size();
            job[j] = some_job(term[j], 1 + (int)below(2), m, n, 60, ORDINARY);
        }
        check_jobs("jobs", job, JOBS, any_order());
    }
}

/* ---- by wgmma ---- */

/* [m, k] or [k, m], and [n, k] or [k, n]. */
static sheaf__term wide_term(sheaf_dtype dtype, int way, int64_t m, int64_t n, int64_t k, kind kind)
{
    sheaf__term t = random_term(dtype, way & 1 ? SHEAF__B_KN : SHEAF__B_NK, way & 2, m, n, k, kind);
    t.apart = below(2);
    make_even(&t, dtype, m, n, kind);
    return t;
}

TEST(test_products__wide_tiles)
{
    static const struct {
        int64_t m, n;
    } of[] = { { 257, 129 }, { 130, 300 }, { 300, 264 }, { 520, 136 }, { 256, 512 } };
    static const kind kinds[] = { ORDINARY, SPECIAL, TINY };
    for (int i = 0; i < in_soak(36, 12); i++) {
        sheaf__term term[3];
        seed = 3000 + (uint64_t)i;
        const int64_t m = of[i % 5].m, n = of[i % 5].n;
        const int terms = 1 + (int)below(3);
        const sheaf_dtype dtype = any_half();
        for (int t = 0; t < terms; t++)
            term[t] = wide_term(dtype, t == 0 ? i % 4 : (int)below(4), m, n,
                                1 + below(i % 7 ? 90 : 400), kinds[i % 3]);
        sheaf__product job = plain_job(dtype, m, n, term, terms);
        random_ending(&job, kinds[i % 3]);
        check_jobs("wide", &job, 1, SHEAF_SUMS_MMA16);
        assert_ran("products_wide_");
    }
}

TEST(test_products__wide_chains_end)
{
    for (int i = 0; i < 4; i++) {
        sheaf__term term[2];
        seed = 4000 + (uint64_t)i;
        const sheaf_dtype dtype = any_half();
        term[0] = wide_term(dtype, i, 257, 130, SHEAF__MMA_CHAIN * (1 + i % 2) + i % 3, ORDINARY);
        term[1] = wide_term(dtype, 3 - i, 257, 130, 40, ORDINARY);
        const sheaf__product job = plain_job(dtype, 257, 130, term, 2);
        check_jobs("wide chains", &job, 1, SHEAF_SUMS_MMA16);
        assert_ran("products_wide_256");
    }
}

/* So many steps that the ring of stages goes round, in each loop of each kernel. */
TEST(test_products__wide_rings_turn)
{
    for (int i = 0; i < 16; i++) {
        const sheaf_dtype dtype = i & 4 ? SHEAF_F16 : SHEAF_BF16;
        sheaf__term term[2];
        seed = 4200 + (uint64_t)i;
        for (int t = 0; t < 2; t++) {
            term[t] = wide_term(dtype, i % 4, 257, 136, 64 * 7, ORDINARY);
            term[t].apart = true;
        }
        const sheaf__product job = plain_job(dtype, 257, 136, term, 1 + i / 8);
        check_jobs("wide rings", &job, 1, SHEAF_SUMS_MMA16);
        assert_ran(i < 8 ? "products_wide_256" : "products_wide_128");
    }
}

/* Four and more sums wait; jobs of one call share blocks. */
TEST(test_products__wide_slices)
{
    for (int of = 1; of < in_soak(16, 8); of++) {
        sliced s[2];
        sheaf__product job[2];
        seed = (uint64_t)of * 5000;
        for (int j = 0; j < 2; j++)
            job[j] = sliced_job(&s[j], of % 2 ? 1 : 1 + (int)below(6), of % 3 ? 264 : 136,
                                of % 3 ? 72 : 300, of % 5 == 0 ? TINY : ORDINARY, true);
        check_jobs("wide slices", job, 2, SHEAF_SUMS_MMA16);
        assert_ran(of % 3 ? "products_wide_128" : "products_wide_");
    }
}

TEST(test_products__without_wgmma)
{
    sheaf__device *device, *was = gpu[1];
    setenv("SHEAF_WGMMA", "off", 1);
    CHECK_OK(sheaf__device_open_of(&device, &sheaf__cuda_class, &(sheaf__reserved){ .unit = 1 }, 1,
                                   NULL, 0));
    unsetenv("SHEAF_WGMMA");
    sheaf__term term;
    seed = 6000;
    term = wide_term(SHEAF_BF16, 0, 300, 264, 72, ORDINARY);
    const sheaf__product job = plain_job(SHEAF_BF16, 300, 264, &term, 1);
    gpu[1] = device;
    check_jobs("without wgmma", &job, 1, SHEAF_SUMS_MMA16);
    const sheaf__gpu *of = device->reserved->own;
    assert_string_equal(of->last, "products_mma_128_bf16");
    gpu[1] = was;
    sheaf__device_close(device);
}

FIXTURE(open_devices, close_gpus);
