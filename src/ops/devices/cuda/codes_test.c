/* codes_test.c - products with quantised weights have the processor's bytes: of every form, in
 * every order of sums, at odd sizes, in several turns, of few rows. */
#include "ops/devices/cuda/cuda.h"
#include "ops/matmul/mma.h"
#include "tests/devices/far_products.h"

enum { JOBS = 3 };

/* The first one has mma8; the second one mma16, and takes everything in turned order. */
enum { GPUS = 2 };
static sheaf__device *here, *gpu[GPUS];

static int open_devices(void **state)
{
    setenv("SHEAF_EMULATED_GPU", "8.0,9.0", 1);
    CHECK_OK(sheaf__device_open(&here, &sheaf__cpu, 2, NULL, 0));
    for (int g = 0; g < GPUS; g++)
        CHECK_OK(sheaf__device_open_unit(&gpu[g], &sheaf__cuda_class, g, 1, NULL, 0));
    return 0;
}

static int close_devices(void **state)
{
    sheaf__device_close(here);
    for (int g = 0; g < GPUS; g++)
        sheaf__device_close(gpu[g]);
    return 0;
}

static sheaf__cuda *of(sheaf__device *device)
{
    return device->reserved->own;
}

/* ---- weights ---- */

static float random_scale(kind kind)
{
    const uint32_t u = random_u32();
    if (kind == TINY) /* values around the smallest normal number */
        return sheaf__float((u & 0x7fffff) | (u >> 24) % 8 << 23);
    return (float)(1 + u % 1000000) * 1e-6f;
}

/* even: as programs that quantise make them. */
static sheaf__quant random_form(bool even)
{
    static const int64_t blocks[] = { 64, 128, 32, 256, 4096, 16, 100, 7 };
    static const sheaf_dtype types[] = { SHEAF_BF16, SHEAF_F16, SHEAF_F32 };
    sheaf__quant q = { .codes = (sheaf__codes)below(even ? SHEAF__INT4 + 1 : SHEAF__CODES),
                       .grouping = (sheaf__groups)below(even ? 2 : 3),
                       .block = blocks[below(even ? 5 : 8)],
                       .dtype = types[below(3)] };
    q.zeros = q.codes == SHEAF__INT4 && below(2);
    q.doubled = q.grouping == SHEAF__GROUPS_FLAT && q.codes != SHEAF__INT8 && below(2);
    if (q.grouping == SHEAF__GROUPS_OF_ROW && below(4) == 0)
        q.block = 0;
    if (q.grouping == SHEAF__GROUPS_INDEXED) {
        q.block = 0;
        q.groups = 1 + below(9);
    }
    return q;
}

/* Rows [0, n) of W, which is all of a box or a part of it. */
static coded *random_codes(sheaf_dtype dtype, int64_t n, int64_t k, bool even, kind kind)
{
    const sheaf__quant q = random_form(even);
    const int64_t before = below(2) ? 32 * below(4) : 0, after = below(2) ? below(70) : 0,
                  col0 = below(2) ? 0
                         : even   ? 32 * below(5)
                                  : below(90),
                  unit = even ? 32 : 1;
    const sheaf__quant_box box = { .in = (col0 + k + below(100) + unit - 1) / unit * unit,
                                   .row0 = below(50),
                                   .rows = before + n + after,
                                   .col0 = col0,
                                   .cols = k };
    const int64_t groups = sheaf__quant_groups(&q, &box),
                  nested = sheaf__quant_nested(&q, (box.row0 + box.rows) * box.in);
    coded *c = keep(sizeof *c);
    *c = (coded){ .before = before,
                  .parts = { .codes = keep((size_t)(n * k)),
                             .scales = keep((size_t)(n * groups) * 4),
                             .scale_codes = keep((size_t)(n * groups)),
                             .zeros = keep((size_t)(n * groups)) },
                  .whole = { .index = keep((size_t)box.in * 2),
                             .nested = keep((size_t)nested * 4),
                             .offset = kind == TINY ? 0 : random_scale(ORDINARY) } };
    for (int64_t i = 0; i < n * k; i++)
        c->parts.codes[i] = (uint8_t)below(sheaf__code_bits(q.codes) == 4 ? 16 : 256);
    for (int64_t i = 0; i < n * groups; i++) {
        c->parts.scales[i] = random_scale(kind);
        c->parts.scale_codes[i] = (uint8_t)below(256);
        c->parts.zeros[i] = (uint8_t)below(17);
    }
    for (int64_t i = 0; i < box.in; i++)
        c->whole.index[i] = (uint16_t)below(q.groups > 0 ? q.groups : 1);
    for (int64_t i = 0; i < nested; i++)
        c->whole.nested[i] = random_scale(kind);
    c->all = sheaf__packed_quantised(here, dtype, &q, &box);
    c->all.ahead = aligned_alloc(64, mm_up((int64_t)sheaf__packed_size(&c->all), 64) + 64);
    kept[nkept++] = memset(c->all.ahead, 0xff, sheaf__packed_size(&c->all));
    c->w = load_coded(here, c, &c->all, n);
    return c;
}

/* ---- jobs ---- */

static sheaf__term coded_term(sheaf_dtype dtype, bool back, int64_t m, int64_t n, int64_t k,
                              bool even, kind kind)
{
    const sheaf_dtype stored = dtype == SHEAF_BF16 || below(2) ? dtype : random_type();
    sheaf__term t = random_term(dtype, SHEAF__B_NK, below(4) == 0, m, 1, k, kind);
    if (even) {
        t.a_km = false;
        t.lda = (k + 15) / 8 * 8;
        t.a = random_matrix(dtype, m, k, t.lda, kind);
    }
    coded *c = random_codes(even ? dtype : stored, back ? k : n, back ? n : k, even, kind);
    t.form = back ? SHEAF__B_BACK : SHEAF__B_AHEAD;
    t.b = NULL;
    t.w = &c->w;
    t.apart = below(4) == 0;
    return t;
}

/* Some terms, of which the first one is quantised. */
static sheaf__product some_job(sheaf__term *term, int terms, sheaf_dtype dtype, int64_t m,
                               int64_t n, int64_t most_k, kind kind)
{
    for (int t = 0; t < terms; t++)
        if (t == 0 || below(2))
            term[t] = coded_term(dtype, below(2), m, n, 1 + below(most_k), false, kind);
        else
            term[t] = random_term(dtype, (int)below(2), below(2), m, n, 1 + below(40), kind);
    sheaf__product job = plain_job(dtype, m, n, term, terms);
    random_ending(&job, kind);
    return job;
}

static void check_on(sheaf__device *device, const char *name, const sheaf__product *job, int jobs,
                     const sheaf__product *before)
{
    static there on[JOBS];
    sheaf__product copy[JOBS];
    const int64_t ran = sheaf__cuda_ran(device, SHEAF__OP_PRODUCTS);
    for (int j = 0; j < jobs; j++) {
        on[j] = (there){ .device = device };
        copy[j] = put_job(&on[j], &before[j]);
    }
    sheaf__products(device, copy, jobs);
    CHECK_OK(sheaf__device_check(device));
    assert_int_equal(sheaf__cuda_ran(device, SHEAF__OP_PRODUCTS), ran + 1);
    for (int j = 0; j < jobs; j++)
        check_there(name, &job[j], &copy[j], &on[j]);
}

static void check_jobs(const char *name, const sheaf__product *job, int jobs, sheaf__sums sums)
{
    sheaf__product before[JOBS];
    copy_jobs(before, job, jobs);
    here->sums = gpu[0]->sums = gpu[1]->sums = sums;
    sheaf__products(here, job, jobs);
    for (int g = 0; g < GPUS; g++)
        if (sums == SHEAF__MMA8 || sums == SHEAF__MMA16 ? (g > 0) == (sums == SHEAF__MMA16)
                                                        : g == (int)below(GPUS))
            check_on(gpu[g], name, job, jobs, before);
    drop_all();
}

static sheaf__sums any_order(void)
{
    static const sheaf__sums orders[] = { SHEAF__PAIRS, SHEAF__TILES, SHEAF__MMA8, SHEAF__MMA16 };
    return orders[below(4)];
}

static const int64_t sizes[] = { 1, 5, 8, 17, 31, 40, 65, 130, 300 };

static int64_t any_size(void)
{
    return sizes[below(ARRAY_LEN(sizes))];
}

static void test_codes__forms_and_sizes(void **state)
{
    for (uint64_t i = 1; i < 160; i++) {
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
static void assert_ran(sheaf__sums sums, const char *kernel)
{
    const char *last = of(gpu[sums == SHEAF__MMA16])->last;
    if (strncmp(last, kernel, strlen(kernel)) != 0)
        fail_msg("%s ran, not %s", last, kernel);
}

/* Even forms, with plain terms before and behind, as adapters are; chains that end. */
static void test_codes__few_rows(void **state)
{
    for (uint64_t i = 1; i < 60; i++) {
        sheaf__term term[3];
        seed = 10000 + i;
        const sheaf_dtype dtype = below(2) ? SHEAF_BF16 : SHEAF_F16;
        const int64_t m = 1 + below(i % 3 ? 4 : 16), n = any_size();
        const sheaf__sums sums = i % 2 ? SHEAF__MMA8 : SHEAF__MMA16;
        const kind kind = i % 5 == 0 ? TINY : ORDINARY;
        const int terms = 1 + (int)below(3), first = (int)below(terms);
        for (int t = 0; t < terms; t++)
            if (t == first)
                term[t] = coded_term(dtype, false, m, n,
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
static void test_codes__in_turns(void **state)
{
    for (uint64_t i = 1; i < 24; i++) {
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
        of(gpu[g])->panels = SHEAF__CUDA_SCRATCH / 2;
}

/* ---- slices ---- */

enum { SLICES = 8 };

/* Slices of several ranks: what one has of them goes to roots, whose rows are of all columns. */
static void test_codes__slices_by_the_tree(void **state)
{
    for (uint64_t i = 1; i < 40; i++) {
        sheaf_tree tree;
        bool present[SLICES];
        int slice_of[SLICES], first[SLICES + 1] = { 0 }, terms = 0, count = 0;
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
                coded_term(dtype, i % 4 == 2, m, n, 32 * (1 + below(6)), true, ORDINARY);
            if (below(3) == 0)
                term[terms++] = random_term(dtype, SHEAF__B_NK, false, m, n, 8, ORDINARY);
            first[++slices] = terms;
        }
        sheaf__product job = plain_job(dtype, m, n, term, terms);
        job.nslices = slices;
        job.slice_of = slice_of;
        job.first = first;
        job.tree = &tree;
        job.rank = rank;
        if (ranks > 1) {
            sheaf_tree_own(&tree, rank, &count);
            for (int r = 0; r < count; r++)
                root[r] = random_matrix(SHEAF_F32, m, n, n, ORDINARY);
            job.y = NULL;
            job.roots = root;
        }
        for (int g = 0; g < GPUS; g++)
            of(gpu[g])->panels = i % 3 ? SHEAF__CUDA_SCRATCH / 2 : 1 << 20;
        check_jobs("slices", &job, 1, any_order());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_codes__forms_and_sizes),
                                        cmocka_unit_test(test_codes__few_rows),
                                        cmocka_unit_test(test_codes__in_turns),
                                        cmocka_unit_test(test_codes__slices_by_the_tree) };
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
