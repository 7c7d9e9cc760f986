/* matmul_far_test.c - products on devices whose memory or kernels are not the host's have the bytes
 * of the processor's: every operand is named, with all of its elements and no more. */
#include "tests/devices/far_codes.h"

enum { TERMS = 8 };

/* The processor, but for kernels of its own, of which it has none. */
static sheaf__device_class asked_device;
static int asked;

static bool note_products(sheaf__device *device, sheaf__reserved *range, const sheaf__call *call)
{
    asked += call->operation == SHEAF__OP_PRODUCTS;
    return false;
}

/* Units of cuda: the first one has mma8, the second one mma16 and takes everything in turned order.
 */
static const char gpus[] = "8.6,9.0";
enum { MMA8_UNIT, MMA16_UNIT };
static const struct {
    const sheaf__device_class *class;
    int unit;
} on_far[] = {
    { &checked_device, 0 },
    { &copied_device, 0 },
    { &same_edges, 0 },
    { &same_rows, 0 },
    { &asked_device, 0 },
#ifndef SHEAF_NO_X86
    { &sheaf__cuda_class, MMA8_UNIT },
    { &sheaf__cuda_class, MMA16_UNIT },
#endif
};
enum { GPUS = 5 }; /* the first of them */
static sheaf__device *here, *far[ARRAY_LEN(on_far)];
static int all_far, first_far; /* of those that run the jobs */

static int open_devices(void **state)
{
    asked_device = sheaf__cpu;
    asked_device.run = note_products;
    setenv("SHEAF_EMULATED_GPU", gpus, 1);
    CHECK_OK(sheaf__device_open(&here, &sheaf__cpu, 3, NULL, 16 * SMALL_DEVICE));
    all_far = same_devices(ARRAY_LEN(on_far), on_far[ARRAY_LEN(on_far) - 1].unit);
    for (int d = 0; d < all_far; d++)
        CHECK_OK(sheaf__device_open_of(&far[d], on_far[d].class,
                                       &(sheaf__reserved){ .unit = on_far[d].unit }, 3, NULL,
                                       16 * SMALL_DEVICE));
    return 0;
}

static int close_devices(void **state)
{
    sheaf__device_close(here);
    for (int d = 0; d < all_far; d++)
        sheaf__device_close(far[d]);
    return 0;
}

/* ---- running and comparing ---- */

/* Had the device to leave it to the processor? Else cuda has run it by a kernel. */
static void check_ran(int d, const sheaf__product *job, sheaf_sums sums)
{
    static int64_t ran[ARRAY_LEN(on_far)];
    if (far[d]->class != &sheaf__cuda_class)
        return;
    ran[d] += !mm_by_mma(job, sums) || sheaf__gpu_computes(far[d]->reserved->own, sums);
    assert_int_equal(sheaf__gpu_ran(far[d], SHEAF__OP_PRODUCTS), ran[d]);
}

static void check_far(const char *name, const sheaf__product *job, sheaf_sums sums)
{
    output out[SHEAF_MAX_SLICES];
    sheaf__product copy[ARRAY_LEN(on_far)];
    there on[ARRAY_LEN(on_far)] = { 0 };
    const int count = outputs_of(out, job);
    for (int d = first_far; d < all_far; d++) {
        on[d].device = far[d];
        copy[d] = put_job(&on[d], job);
    }
    here->sums = sums;
    sheaf__products(here, job, 1);
    for (int d = first_far; d < all_far; d++) {
        const double flops = far[d]->flops;
        far[d]->sums = sums;
        sheaf__products(far[d], &copy[d], 1);
        assert_true(far[d]->flops - flops == sheaf__mm_flops(job));
        CHECK_OK(sheaf__device_check(far[d]));
        check_ran(d, job, sums);
        for (int o = 0; o < count; o++) {
            void *got = keep(out[o].bytes);
            CHECK_OK(sheaf__download(far[d], got, job->roots == NULL ? copy[d].y : on[d].root[o],
                                     out[o].bytes));
            CHECK_BYTES(name, got, out[o].at, out[o].bytes);
        }
        for (int b = 0; b < on[d].blocks; b++)
            sheaf__device_free(far[d], on[d].block[b]);
    }
    drop_all();
}

/* ---- cases ---- */

static sheaf_sums any_order(void)
{
    static const sheaf_sums orders[] = { SHEAF_SUMS_PAIRS, SHEAF_SUMS_TILES, SHEAF_SUMS_MMA8,
                                         SHEAF_SUMS_MMA16 };
    return orders[below(ARRAY_LEN(orders))];
}

/* Some terms of every form. */
static sheaf__product some_job(sheaf__term term[TERMS], int nterms)
{
    static const int64_t sizes[] = { 1, 2, 7, 31, 32, 33, 65, 130 };
    const sheaf_dtype dtype = random_type();
    const int64_t m = sizes[below(ARRAY_LEN(sizes))], n = sizes[below(ARRAY_LEN(sizes))];
    for (int i = 0; i < nterms; i++) {
        const int64_t big = below(5) == 0 ? 256 + below(300) : sizes[below(ARRAY_LEN(sizes))],
                      k = below(12) == 0 ? 0 : big;
        term[i] = random_term(dtype, (int)below(FORMS), below(2), m, n, k, ORDINARY);
    }
    sheaf__product job = plain_job(dtype, m, n, term, nterms);
    random_ending(&job, ORDINARY);
    return job;
}

TEST(test_far__sums_of_one_slice)
{
    for (uint64_t of = 1; of < (uint64_t)in_soak(400, 140); of++) {
        sheaf__term term[TERMS];
        seed = of;
        const sheaf__product job = some_job(term, 1 + (int)below(4));
        check_far("one slice", &job, any_order());
        assert_int_equal(asked, of); /* also where memory is shared */
    }
}

/* On GPUs alone: sizes with which every kernel runs, all kinds of numbers, operands whose rows all
 * begin at multiples of 16 bytes, and others. */
TEST(test_far__kernels_of_gpus)
{
    static const int64_t rows[] = { 1, 5, 24, 70, 132, 257 }, even[] = { 32, 64, 256, 544 };
    first_far = GPUS;
    for (uint64_t of = 1; of < (uint64_t)in_soak(300, 130); of++) {
        sheaf__term term[TERMS];
        seed = of * 7777;
        const kind numbers = (kind)(of % 3);
        const sheaf_dtype dtype = random_type();
        const int64_t m = rows[below(ARRAY_LEN(rows))], n = rows[below(ARRAY_LEN(rows))];
        const int nterms = 1 + (int)below(2);
        for (int i = 0; i < nterms; i++)
            term[i] = random_term(dtype, (int)below(FORMS), below(2), m, n,
                                  even[below(ARRAY_LEN(even))] + (below(4) == 0 ? below(32) : 0),
                                  numbers);
        sheaf__product job = plain_job(dtype, m, n, term, nterms);
        random_ending(&job, numbers);
        check_far("kernels", &job, any_order());
    }
    first_far = 0;
}

/* Own slices, whose roots go to other ranks, or a tree that is this rank's alone. */
TEST(test_far__slices_and_roots)
{
    for (uint64_t of = 1; of < (uint64_t)in_soak(200, 90); of++) {
        enum { SLICES = 8 };
        sheaf__term term[TERMS];
        sheaf_tree tree;
        bool present[SLICES];
        int slice_of[SLICES], first[SLICES + 1], nslices = 0;
        float *root[SHEAF_MAX_SLICES];
        seed = of * 1000;
        const int ranks = 1 + (int)below(5), rank = (int)below(ranks);
        for (int s = 0; s < SLICES; s++)
            present[s] = s == 0 || below(4) > 0;
        sheaf_tree_init(&tree, SLICES, ranks, present);
        const sheaf_range own = sheaf_owner_slices(SLICES, ranks, rank);
        for (int64_t s = own.begin; s < own.end; s++)
            if (present[s]) {
                slice_of[nslices] = (int)s;
                first[nslices] = nslices;
                nslices++;
            }
        first[nslices] = nslices;
        if (nslices == 0)
            continue;
        sheaf__product job = some_job(term, nslices);
        job.nslices = nslices;
        job.slice_of = slice_of;
        job.first = first;
        give_slices(&job, &tree, ranks, rank, root);
        check_far("slices", &job, any_order());
    }
}

/* Beside plain terms; few rows of them, too. */
TEST(test_far__quantised_weights)
{
    static const int64_t sizes[] = { 1, 7, 8, 33, 70 };
    for (uint64_t of = 1; of < (uint64_t)in_soak(60, 40); of++) {
        sheaf__term term[3];
        seed = of * 91;
        const bool even = below(2);
        const sheaf_dtype dtype = random_type();
        const int64_t m = sizes[below(5)], n = sizes[below(5)];
        const int terms = 1 + (int)below(3);
        for (int t = 0; t < terms; t++)
            term[t] =
                t == 0
                    ? coded_term(here, dtype, below(3) == 0, m, n, 1 + below(400), even, ORDINARY)
                    : random_term(dtype, (int)below(2), below(2), m, n, 1 + below(40), ORDINARY);
        sheaf__product job = plain_job(dtype, m, n, term, terms);
        random_ending(&job, ORDINARY);
        check_far("quantised weights", &job, any_order());
    }
}

FIXTURE(open_devices, close_devices);
