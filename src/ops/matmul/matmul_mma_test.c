/* matmul_mma_test.c - products in the orders mma8 and mma16 are the chains that matmul.h says, of
 * all forms of operands, over slices, terms and chains, on all machines. */
#include "tests/matmul_twin.h"

#include "ops/matmul/mma.h"

/* What a product is worked out from here: the elements of a term as they are stored. */
static uint16_t a_at(const sheaf__term *t, int64_t i, int64_t k)
{
    return ((const uint16_t *)t->a)[t->a_km ? k * t->lda + i : i * t->lda + k];
}

/* An element of a packed weight, whose last row that was asked for is kept: of no weight at first.
 */
static struct {
    const sheaf__packed *w;
    int64_t row;
    uint16_t x[20000];
} unpacked;

static uint16_t packed_at(const sheaf__packed *w, int64_t row, int64_t col)
{
    if (unpacked.w != w || unpacked.row != row)
        sheaf__packed_row(unpacked.x, w, row);
    unpacked.w = w;
    unpacked.row = row;
    return unpacked.x[col];
}

static uint16_t b_at(const sheaf__term *t, int64_t j, int64_t k)
{
    switch (t->form) {
    case SHEAF__B_NK: return ((const uint16_t *)t->b)[j * t->ldb + k];
    case SHEAF__B_KN: return ((const uint16_t *)t->b)[k * t->ldb + j];
    case SHEAF__B_AHEAD: return packed_at(t->w, j, k);
    default: return packed_at(t->w, k, j);
    }
}

/* Element by element: a group when it is full or its term ends, a chain where matmul.h says. */
static float slice_of(const sheaf__product *job, sheaf_sums sums, int first, int end, int64_t i,
                      int64_t j)
{
    const int length = sums == SHEAF_SUMS_MMA8 ? 8 : 16;
    uint32_t chain = 0;
    float sum = 0;
    int chains = 0;
    bool begun = false;
    for (int n = first; n < end; n++) {
        const sheaf__term *t = &job->term[n];
        uint16_t a[16] = { 0 }, b[16] = { 0 };
        for (int64_t k = 0; k < t->k; k++) {
            if (k == 0 ? begun && t->apart : k % 4096 == 0) {
                sum = chains++ == 0 ? sheaf__float(chain) : sum + sheaf__float(chain);
                chain = 0;
            }
            begun = true;
            a[k % length] = a_at(t, i, k);
            b[k % length] = b_at(t, j, k);
            if ((k + 1) % length != 0 && k + 1 < t->k)
                continue;
            chain = sheaf__mma_group(sums, job->dtype, chain, a, b, length);
            memset(a, 0, sizeof a);
            memset(b, 0, sizeof b);
        }
    }
    return chains == 0 ? sheaf__float(chain) : sum + sheaf__float(chain);
}

static float tree_of(const sheaf__product *job, sheaf_sums sums, int begin, int end, int64_t i,
                     int64_t j)
{
    if (end - begin == 1)
        return slice_of(job, sums, job->first[begin], job->first[end], i, j);
    const int middle = (begin + end) / 2;
    return tree_of(job, sums, begin, middle, i, j) + tree_of(job, sums, middle, end, i, j);
}

/* y as a float32; alpha, which is 1, drops a denormal. */
static void check_definition(const char *name, const sheaf__product *job, sheaf_sums sums)
{
    run_ref(job, sums);
    unpacked.w = NULL;
    const unsigned before = sheaf__compute_mode_enter();
    for (int64_t i = 0; i < job->m; i++)
        for (int64_t j = 0; j < job->n; j++) {
            const float sum = job->tree != NULL ? tree_of(job, sums, 0, job->tree->slices, i, j)
                                                : slice_of(job, sums, 0, job->nterms, i, j),
                        want = mm_quiet(job->alpha * sum),
                        got = ((float *)job->y)[i * job->ldy + j];
            if (sheaf__bits(got) != sheaf__bits(want))
                fail_msg("%s, %s, row %d, column %d: %a, wanted %a", name, sheaf__sums_text(sums),
                         (int)i, (int)j, (double)got, (double)want);
        }
    sheaf__compute_mode_leave(before);
}

static const sheaf_sums orders[] = { SHEAF_SUMS_MMA8, SHEAF_SUMS_MMA16 };
static const sheaf_dtype types[] = { SHEAF_BF16, SHEAF_F16 };

/* Of one type alone: random_term() packs weights of any type. */
static sheaf__term term_of(sheaf_dtype dtype, int form, bool a_km, int64_t m, int64_t n, int64_t k,
                           kind kind)
{
    sheaf__term t = random_term(SHEAF_BF16, form, a_km, m, n, k, kind);
    if (dtype == SHEAF_BF16)
        return t;
    t.a = random_matrix(dtype, a_km ? k : m, a_km ? m : k, t.lda, kind);
    if (t.b != NULL)
        t.b = random_matrix(dtype, form == SHEAF__B_NK ? n : k, form == SHEAF__B_NK ? k : n, t.ldb,
                            kind);
    else
        t.w = form == SHEAF__B_AHEAD ? packed_matrix(dtype, n, k, MM_PANEL, kind)
                                     : packed_matrix(dtype, k, n, 8, kind);
    return t;
}

TEST(test_products__are_chains_of_groups)
{
    static const int64_t ks[] = { 0, 1, 7, 8, 9, 15, 16, 17, 255, 256, 257, 300, 700 };
    for (int round = 0; round < 160; round++) {
        const sheaf_dtype dtype = types[round % 2];
        const kind kind = (enum kind)(round / 2 % 3);
        const int64_t m = 1 + below(6), n = 1 + below(40);
        sheaf__term term[3];
        const int terms = 1 + (int)below(3);
        for (int t = 0; t < terms; t++) {
            term[t] = term_of(dtype, (int)below(FORMS), below(2) == 0, m, n,
                              ks[below(ARRAY_LEN(ks))], kind);
            term[t].apart = below(3) == 0;
        }
        const sheaf__product job = plain_job(dtype, m, n, term, terms);
        for (size_t o = 0; o < ARRAY_LEN(orders); o++)
            check_definition("terms", &job, orders[o]);
        drop_all();
    }
}

TEST(test_products__chains_end_after_4096_elements)
{
    static const int64_t ks[][3] = {
        { 4095, 20 }, { 4096, 20 }, { 4097, 4100 }, { 8192 }, { 12000, 16, 300 }
    };
    const int step = every(FORMS); /* a second each */
    for (size_t i = 0; i < ARRAY_LEN(ks); i++)
        for (int form = (int)i % step; form < FORMS; form += step) {
            sheaf__term term[3];
            int terms = 0;
            const sheaf_dtype dtype = types[(i + (size_t)form) % 2];
            for (; terms < 3 && ks[i][terms] > 0; terms++)
                term[terms] = term_of(dtype, form, terms % 2 == 1, 2, 3, ks[i][terms], ORDINARY);
            const sheaf__product job = plain_job(dtype, 2, 3, term, terms);
            for (size_t o = 0; o < ARRAY_LEN(orders); o++)
                check_definition("long terms", &job, orders[o]);
            drop_all();
        }
}

/* Four slices of two terms, on one rank. */
TEST(test_products__slices_meet_in_the_tree)
{
    enum { SLICES = 4 };
    for (int round = 0; round < 40; round++) {
        const sheaf_dtype dtype = types[round % 2];
        sheaf__term term[2 * SLICES];
        int slice_of[SLICES], first[SLICES + 1] = { 0 };
        bool present[SLICES];
        for (int s = 0; s < SLICES; s++) {
            for (int t = 0; t < 2; t++)
                term[2 * s + t] = term_of(dtype, (int)below(FORMS), t == 0, 5, 35, 1 + below(60),
                                          round % 3 == 0 ? TINY : ORDINARY);
            slice_of[s] = s;
            first[s + 1] = 2 * s + 2;
            present[s] = true;
        }
        sheaf_tree tree;
        sheaf_tree_init(&tree, SLICES, 1, present);
        sheaf__product job = plain_job(dtype, 5, 35, term, 2 * SLICES);
        job.nslices = SLICES;
        job.slice_of = slice_of;
        job.first = first;
        job.tree = &tree;
        for (size_t o = 0; o < ARRAY_LEN(orders); o++)
            check_definition("slices", &job, orders[o]);
        drop_all();
    }
}

/* With every ending, on all machines and thread counts. float16 that meets a weight of another type
 * is widened; so are all in float32. */
TEST(test_products__on_all_machines)
{
    for (int round = 0; round < 60; round++) {
        const sheaf_dtype dtype = round % 3 == 2 ? SHEAF_F32 : types[round % 3];
        const kind kind = (enum kind)below(3);
        const int64_t m = 1 + below(40), n = 1 + below(70);
        sheaf__term term[2];
        for (int t = 0; t < 2; t++)
            term[t] = random_term(dtype, (int)below(FORMS), below(2) == 0, m, n, below(90), kind);
        sheaf__product job = plain_job(dtype, m, n, term, 2);
        random_ending(&job, kind);
        for (size_t o = 0; o < ARRAY_LEN(orders); o++)
            check_order("endings", &job, orders[o]);
        drop_all();
    }
}

/* The same numbers in float16 and bfloat16 have the same sums, and one chain of small whole numbers
 * is exact, as it is in every order. */
TEST(test_products__of_small_whole_numbers_are_exact)
{
    enum { M = 3, N = 4, K = 500 };
    for (size_t d = 0; d < ARRAY_LEN(types); d++) {
        uint16_t a[M * K], b[N * K];
        float want[M * N], y[M * N];
        for (int i = 0; i < M * K; i++)
            sheaf__store(a, i, (float)(i * 31 % 17 - 8), types[d]);
        for (int i = 0; i < N * K; i++)
            sheaf__store(b, i, (float)(i * 29 % 19 - 9), types[d]);
        const sheaf__term term = {
            .a = a, .lda = K, .form = SHEAF__B_NK, .b = b, .ldb = K, .k = K
        };
        sheaf__product job = plain_job(types[d], M, N, &term, 1);
        job.ldy = N;
        job.y = want;
        run_ref(&job, SHEAF_SUMS_TILES);
        job.y = y;
        for (size_t o = 0; o < ARRAY_LEN(orders); o++) {
            run_ref(&job, orders[o]);
            CHECK_BYTES("whole numbers", y, want, sizeof y);
        }
        drop_all();
    }
}

FIXTURE(make_machines, free_machines);
