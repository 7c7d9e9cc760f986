/* codes_test.c - products with quantised weights have the processor's bytes: of every form, in
 * every order of sums, at odd sizes, in several turns, of few rows. */
#include "ops/devices/gpu/gpu.h"
#include "tests/devices/far_codes.h"
#include "tests/devices/far_on_cuda.h"

enum { JOBS = 3 };

/* The first one has mma8; the second one mma16, and takes everything in turned order. */
enum { GPUS = 2 };

static int open_devices(void **state)
{
    return open_gpus("8.0,9.0", GPUS);
}

static sheaf__gpu *of(sheaf__device *device)
{
    return device->reserved->own;
}

/* ---- jobs ---- */

/* Some terms, of which the first one is quantised. */
static sheaf__product some_job(sheaf__term *term, int terms, sheaf_dtype dtype, int64_t m,
                               int64_t n, int64_t most_k, kind kind)
{
    for (int t = 0; t < terms; t++)
        if (t == 0 || below(2))
            term[t] = coded_term(here, dtype, below(2), m, n, 1 + below(most_k), false, kind);
        else
            term[t] = random_term(dtype, (int)below(2), below(2), m, n, 1 + below(40), kind);
    sheaf__product job = plain_job(dtype, m, n, term, terms);
    random_ending(&job, kind);
    return job;
}

static sheaf_sums any_order(void)
{
    static const sheaf_sums orders[] = { SHEAF_SUMS_PAIRS,  SHEAF_SUMS_TILES,
                                         SHEAF_SUMS_MMA8,   SHEAF_SUMS_MMA16,
                                         SHEAF_SUMS_GROUPS, SHEAF_SUMS_TILES_GROUPS };
    return orders[below(6)];
}

static const int64_t sizes[] = { 1, 5, 8, 17, 31, 40, 65, 130, 300 };

static int64_t any_size(void)
{
    return sizes[below(ARRAY_LEN(sizes))];
}

TEST(test_codes__forms_and_sizes)
{
    for (uint64_t i = 1; i < (uint64_t)in_soak(160, 80); i++) {
        static const kind kinds[] = { ORDINARY, ORDINARY, TINY };
        sheaf__term term[3];
        seed = i;
        const int64_t m = any_size(), n = any_size();
        const sheaf__product job = some_job(term, 1 + (int)below(3), random_type(), m, n,
                                            m * n < 9000 ? 500 : 70, kinds[i % 3]);
        check_jobs("forms", &job, 1, any_order());
    }
}

/* ---- of few rows ---- */

/* That kernel ran last on the device of the order. */
static void assert_ran(sheaf_sums sums, const char *kernel)
{
    const char *last = of(gpu[sums == SHEAF_SUMS_MMA16])->last;
    if (strncmp(last, kernel, strlen(kernel)) != 0)
        fail_msg("%s ran, not %s", last, kernel);
}

/* Even forms, with plain terms before and behind, as adapters are; chains that end. */
TEST(test_codes__few_rows)
{
    for (uint64_t i = 1; i < (uint64_t)in_soak(60, 40); i++) {
        sheaf__term term[3];
        seed = 10000 + i;
        const sheaf_dtype dtype = below(2) ? SHEAF_BF16 : SHEAF_F16;
        const int64_t m = 1 + below(i % 3 ? 4 : 16), n = any_size();
        const sheaf_sums sums = i % 2 ? SHEAF_SUMS_MMA8 : SHEAF_SUMS_MMA16;
        const kind kind = i % 5 == 0 ? TINY : ORDINARY;
        const int terms = 1 + (int)below(3), first = (int)below(terms);
        for (int t = 0; t < terms; t++)
            if (t == first)
                term[t] = coded_term(here, dtype, false, m, n,
                                     i % 10 == 0 ? 4000 + below(5000)
                                     : i % 2     ? 128 * (1 + below(9))
                                                 : 1 + below(1500),
                                     true, kind);
            else
                term[t] = random_term(dtype, (int)below(2), below(2), m, n, 1 + below(40), kind);
        sheaf__product job = plain_job(dtype, m, n, term, terms);
        random_ending(&job, kind);
        check_jobs("few rows", &job, 1, sums);
        assert_ran(sums, "products_codes_");
    }
}

/* ---- panel by panel ---- */

/* Room for few columns: several turns for each job, and jobs that share one. */
TEST(test_codes__in_turns)
{
    for (uint64_t i = 1; i < (uint64_t)in_soak(24, 12); i++) {
        sheaf__term term[JOBS][2];
        sheaf__product job[JOBS];
        seed = 20000 + i;
        for (int g = 0; g < GPUS; g++)
            of(gpu[g])->panels = i % 2 ? 96 << 10 : 400 << 10;
        for (int j = 0; j < JOBS; j++)
            job[j] = some_job(term[j], 1 + (int)below(2), random_type(), 20 + below(20),
                              1 + below(700), 90, ORDINARY);
        check_jobs("in turns", job, JOBS, any_order());
    }
    for (int g = 0; g < GPUS; g++)
        of(gpu[g])->panels = SHEAF__GPU_SCRATCH / 2;
}

/* ---- slices ---- */

enum { SLICES = 8 };

/* Slices of several ranks: what one has of them goes to roots, whose rows are of all columns. */
TEST(test_codes__slices_by_the_tree)
{
    for (uint64_t i = 1; i < (uint64_t)in_soak(40, 24); i++) {
        sheaf_tree tree;
        bool present[SLICES];
        int slice_of[SLICES], first[SLICES + 1] = { 0 }, terms = 0;
        sheaf__term term[2 * SLICES];
        float *root[SHEAF_MAX_SLICES];
        seed = 30000 + i;
        const int ranks = 1 + (int)below(4), rank = (int)below(ranks);
        const sheaf_range own = sheaf_owner_slices(SLICES, ranks, rank);
        const sheaf_dtype dtype = random_type();
        const int64_t m = i % 2 ? 1 + below(9) : any_size(), n = any_size();
        for (int p = 0; p < SLICES; p++)
            present[p] = below(5) > 0 || p == own.begin;
        sheaf_tree_init(&tree, SLICES, ranks, present);
        int slices = 0;
        for (int p = (int)own.begin; p < own.end; p++) {
            if (!present[p])
                continue;
            slice_of[slices] = p;
            term[terms++] =
                coded_term(here, dtype, i % 4 == 2, m, n, 32 * (1 + below(6)), true, ORDINARY);
            if (below(3) == 0)
                term[terms++] = random_term(dtype, SHEAF__B_NK, false, m, n, 8, ORDINARY);
            first[++slices] = terms;
        }
        sheaf__product job = plain_job(dtype, m, n, term, terms);
        job.nslices = slices;
        job.slice_of = slice_of;
        job.first = first;
        give_slices(&job, &tree, ranks, rank, root);
        for (int g = 0; g < GPUS; g++)
            of(gpu[g])->panels = i % 3 ? SHEAF__GPU_SCRATCH / 2 : 128 << 10;
        check_jobs("slices", &job, 1, any_order());
    }
}

FIXTURE(open_devices, close_gpus);
