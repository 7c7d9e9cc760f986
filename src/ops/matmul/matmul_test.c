/* matmul_test.c - fast products equal the definition bit for bit, and nothing about
 * how they are run can be seen in the result. */
#include "tests/matmul_twin.h"

/* ---- worked by hand ---- */

static const float big = 16777216.0f; /* 2^24: adding 1 to it rounds back to it */
static const struct {
    const char *name;
    sheaf_dtype dtype;
    int count;
    struct {
        int at;
        float value;
    } a[4]; /* times ones */
    int64_t k;
    float want;
    sheaf_sums sums;
} by_hand[] = {
    { "plain sum", SHEAF_F32, 3, { { 0, 1 }, { 1, 2 }, { 2, 3 } }, 3, 6 },
    { "a chain ascends", SHEAF_F32, 3, { { 0, big }, { 1, 1 }, { 2, 1 } }, 3, 16777216 },
    { "blocks of 256 are added", SHEAF_F32, 3, LIST({ 0, big }, { 256, 1 }, { 257, 1 }), 258,
      16777218 },
    { "255 is in the first block", SHEAF_F32, 3, LIST({ 0, big }, { 255, 1 }, { 256, 1 }), 258,
      16777216 },
    { "blocks ascend", SHEAF_F32, 3, { { 0, big }, { 256, 1 }, { 512, 1 } }, 600, 16777216 },
    { "pairs, odd element first", SHEAF_BF16, 4, LIST({ 0, 1 }, { 1, big }, { 2, -big }, { 3, 1 }),
      4, 0 },
    { "the same, ascending", SHEAF_F32, 4, { { 0, 1 }, { 1, big }, { 2, -big }, { 3, 1 } }, 4, 1 },
    { "odd last element", SHEAF_BF16, 3, { { 0, 1 }, { 1, 2 }, { 2, 3 } }, 3, 6 },
    { "no element", SHEAF_F32, 0, { { 0, 0 } }, 0, 0 },
    { "tiles: even and odd apart", SHEAF_BF16, 3, LIST({ 0, big }, { 1, 1 }, { 3, 1 }), 4, 16777218,
      SHEAF_SUMS_TILES },
    { "tiles: a chain ascends", SHEAF_BF16, 3, LIST({ 0, big }, { 2, 1 }, { 4, 1 }), 6, 16777216,
      SHEAF_SUMS_TILES },
    { "tiles: chunks of 32 are added", SHEAF_BF16, 3, LIST({ 0, big }, { 32, 1 }, { 34, 1 }), 36,
      16777218, SHEAF_SUMS_TILES },
    { "tiles: 31 is in the first chunk", SHEAF_BF16, 3, LIST({ 1, big }, { 31, 1 }, { 32, 1 }), 33,
      16777216, SHEAF_SUMS_TILES },
    { "tiles: even + odd before the chunks", SHEAF_BF16, 3, LIST({ 0, big }, { 32, 1 }, { 33, 1 }),
      34, 16777218, SHEAF_SUMS_TILES },
    { "tiles: chunks ascend", SHEAF_BF16, 3, LIST({ 0, big }, { 32, 1 }, { 64, 1 }), 65, 16777216,
      SHEAF_SUMS_TILES },
    { "tiles: blocks of 256 are added", SHEAF_BF16, 3, LIST({ 0, big }, { 256, 1 }, { 288, 1 }),
      300, 16777218, SHEAF_SUMS_TILES },
    { "tiles: float32 has no such order", SHEAF_F32, 3, LIST({ 0, big }, { 1, 1 }, { 3, 1 }), 4,
      16777216, SHEAF_SUMS_TILES },
};

static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };

TEST(test_product_ref__sums_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float a[1024] = { 0 }, ones[1024], y = -1;
        uint16_t a16[1024] = { 0 }, ones16[1024];
        for (int k = 0; k < 1024; k++) {
            ones[k] = 1;
            ones16[k] = 0x3f80;
        }
        for (int c = 0; c < by_hand[i].count; c++) {
            a[by_hand[i].a[c].at] = by_hand[i].a[c].value;
            a16[by_hand[i].a[c].at] = mm_to_bf16(by_hand[i].a[c].value);
        }
        const bool bf16 = by_hand[i].dtype == SHEAF_BF16;
        const sheaf__term t = { .a = bf16 ? (void *)a16 : a,
                                .lda = 1024,
                                .b = bf16 ? (void *)ones16 : ones,
                                .ldb = 1024,
                                .form = SHEAF__B_NK,
                                .k = by_hand[i].k };
        sheaf__product job = plain_job(by_hand[i].dtype, 1, 1, &t, 1);
        job.y = &y;
        run_ref(&job, by_hand[i].sums);
        CHECK_NEAR(by_hand[i].name, y, by_hand[i].want, 0);
        drop_all();
    }
}

TEST(test_product_ref__slices_meet_in_the_tree)
{
    const float x[5] = { big, 1, 1, 1, 3 }, one = 1;
    /* finished: round(0.5 * sum + 0.5) + 2 */
    static const struct {
        const char *name;
        bool present[4];
        float want, finished;
    } trees[] = {
        { "(big + 1) + (1 + 1)", { true, true, true, true }, 16777218, 8388612 },
        { "big + (1 + 1)", { true, false, true, true }, 16777218, 8388612 },
        { "(big + 1) + 1", { true, true, false, true }, 16777216, 8388610 },
        { "nothing", { false, false, false, false }, 0, 2.5f },
    };
    for (size_t i = 0; i < ARRAY_LEN(trees); i++) {
        sheaf_tree tree;
        sheaf_tree_init(&tree, 4, 1, trees[i].present);
        sheaf__term t[4];
        const int slice_of[4] = { 0, 1, 2, 3 }, first[5] = { 0, 1, 2, 3, 4 };
        for (int s = 0; s < 4; s++)
            t[s] = (sheaf__term){
                .a = &x[s], .lda = 1, .b = &one, .ldb = 1, .form = SHEAF__B_NK, .k = 1
            };
        float y = -1, bias = 0.5f, residual = 2;
        sheaf__product job = plain_job(SHEAF_F32, 1, 1, t, 4);
        job.nslices = 4;
        job.slice_of = slice_of;
        job.first = first;
        job.tree = &tree;
        job.y = &y;
        job.ldy = 1;
        run_ref(&job, SHEAF_SUMS_PAIRS);
        CHECK_NEAR(trees[i].name, y, trees[i].want, 0);
        job.alpha = 0.5f;
        job.bias = &bias;
        job.residual = &residual;
        run_ref(&job, SHEAF_SUMS_PAIRS);
        CHECK_NEAR(trees[i].name, y, trees[i].finished, 0);
        drop_all();
    }
}

/* ---- every form against the definition ---- */

static const int64_t odd_sizes[] = { 1, 3, 15, 17, 33, 173, 255, 256, 257, 511, 513 };

TEST(test_product__every_form_and_odd_size_equals_the_reference)
{
    for (int dtype = 0; dtype < 3; dtype++)
        for (int form = 0; form < FORMS; form++)
            for (int a_km = 0; a_km < 2; a_km++)
                for (size_t i = 0; i < ARRAY_LEN(odd_sizes); i++) {
                    /* each size once as m, n and k; the other two small */
                    for (int axis = 0; axis < 3; axis++) {
                        /* float16 differs from float32 by what packs it: a sixth of the cases */
                        if (types[dtype] == SHEAF_F16 && (i + (size_t)(axis + form)) % 6 != 0)
                            continue;
                        int64_t size[3] = { 1 + below(20), 1 + below(40), 1 + below(70) };
                        size[axis] = odd_sizes[i];
                        char name[80];
                        snprintf(name, sizeof name, "dtype %d form %d a_km %d k %d", dtype, form,
                                 a_km, (int)size[2]);
                        const sheaf_dtype type = types[dtype];
                        const sheaf__term t =
                            random_term(type, form, a_km, size[0], size[1], size[2], ORDINARY);
                        const sheaf__product job = plain_job(type, size[0], size[1], &t, 1);
                        check_job(name, &job);
                        drop_all();
                    }
                }
}

TEST(test_product__few_rows_and_few_columns_equal_the_reference)
{
    static const int64_t wide[] = { 31, 64, 127, 128, 129, 257, 300 },
                         narrow[] = { 1, 15, 16, 17, 48, 64, 65 };
    for (int64_t m = 1; m <= 9; m++)
        for (size_t i = (size_t)(m % every(3)); i < ARRAY_LEN(wide); i += every(3)) {
            const sheaf_dtype type = types[(m + (int)i) % 3];
            const sheaf__term t = random_term(type, (int)below(FORMS), below(2), m, wide[i],
                                              257 + below(99), ORDINARY);
            sheaf__product job = plain_job(type, m, wide[i], &t, 1);
            check_job("few rows", &job);
            job.residual = random_matrix(SHEAF_F32, m, wide[i], wide[i], ORDINARY);
            job.ldr = wide[i];
            check_job("few rows, finished", &job);
            drop_all();
        }
    for (int64_t m = 97; m < 130; m += 8)
        for (size_t i = (size_t)(m / 8 % every(3)); i < ARRAY_LEN(narrow); i += (size_t)every(3))
            for (int type = 0; type < (i % 3 == 0 ? 3 : 2); type++) {
                sheaf__term t[3];
                for (int j = 0; j < 3; j++) /* k odd and even, A as it lies and transposed */
                    t[j] = random_term(types[type], (int)below(i % 3 == 0 ? 2 : FORMS), i % 3 == 0,
                                       m, narrow[i], below(2) ? 512 : below(300), ORDINARY);
                sheaf__product job = plain_job(types[type], m, narrow[i], t, 1 + (int)below(3));
                check_job("few columns", &job);
                drop_all();
            }
}

/* bfloat16 on both sides of the rows up to which B is taken in pairs, and each size of their tiles,
 * of every width. */
TEST(test_product__rows_in_pairs_equal_the_reference)
{
    static const int64_t rows[] = { 4, 5, 6, 7, 8, 11, 14, 15, 24, 25, 48, 49, 128, 129 },
                         wide[] = { 16, 17, 64, 97, 144 };
    for (size_t r = 0; r < ARRAY_LEN(rows); r++)
        for (size_t i = r % (size_t)every(3); i < ARRAY_LEN(wide); i += (size_t)every(3)) {
            sheaf__term t[2];
            for (int j = 0; j < 2; j++)
                t[j] = random_term(SHEAF_BF16, (int)(r + i + (size_t)j) % FORMS, below(2), rows[r],
                                   wide[i], 1 + below(j == 0 ? 300 : 20), ORDINARY);
            sheaf__product job = plain_job(SHEAF_BF16, rows[r], wide[i], t, 2);
            check_job("rows in pairs", &job);
            drop_all();
        }
}

/* Slices of any size, several terms each, any way out, any number of ranks. */
typedef struct sliced {
    bool tall; /* all terms as in a gradient of B: few columns, A stored transposed */
    sheaf__product job;
    sheaf_tree tree;
    sheaf__term term[SHEAF_MAX_SLICES * 3];
    int slice_of[SHEAF_MAX_SLICES], first[SHEAF_MAX_SLICES + 1];
    float *roots[SHEAF_MAX_SLICES];
} sliced;

static void add_slice(sliced *s, int slice, int64_t most_k, kind kind)
{
    sheaf__product *job = &s->job;
    const int terms = (int)below(3) + (below(8) != 0);
    for (int t = 0; t < terms; t++)
        s->term[job->nterms++] =
            random_term(job->dtype, (int)below(s->tall ? 2 : FORMS), s->tall || below(2), job->m,
                        job->n, below(6) ? below(most_k) : 0, kind);
    s->slice_of[job->nslices++] = slice;
    s->first[job->nslices] = job->nterms;
}

static void random_sliced(sliced *s, int64_t m, int64_t n, int64_t most_k, int slices, kind kind)
{
    memset(s, 0, sizeof *s);
    sheaf__product *job = &s->job;
    s->tall = below(4) == 0;
    if (s->tall) {
        n = 1 + n % 20;
        m += 4 * n;
    }
    *job = (sheaf__product){ .m = m,
                             .n = n,
                             .dtype = random_type(),
                             .term = s->term,
                             .slice_of = s->slice_of,
                             .first = s->first,
                             .tree = &s->tree,
                             .alpha = 1,
                             .round_to = SHEAF_F32 };
    bool present[SHEAF_MAX_SLICES];
    for (int i = 0; i < slices; i++)
        present[i] = below(6) != 0;
    for (int i = 0; i < slices; i++)
        if (present[i] || below(2)) /* absent slices may be named, they do not count */
            add_slice(s, i, most_k, kind);
    sheaf_tree_init(&s->tree, slices, 1, present);
}

TEST(test_product__slices_terms_and_endings_equal_the_reference)
{
    for (int i = 0; i < 250; i += every(13)) {
        sliced s;
        random_sliced(&s, 1 + below(40), 1 + below(80), i % 5 ? 60 : 600, 1 << below(5), ORDINARY);
        random_ending(&s.job, ORDINARY);
        char name[40];
        snprintf(name, sizeof name, "random job %d", i);
        check_job(name, &s.job);
        drop_all();
    }
}

TEST(test_product__special_and_tiny_values_equal_the_reference)
{
    for (int i = 0; i < 160; i += every(7)) {
        sliced s;
        const kind kind = i % 2 ? SPECIAL : TINY;
        random_sliced(&s, 1 + below(30), 1 + below(70), 40, 1 << below(4), kind);
        random_ending(&s.job, kind);
        char name[40];
        snprintf(name, sizeof name, "%s job %d", i % 2 ? "special" : "tiny", i);
        check_job(name, &s.job);
        drop_all();
    }
}

/* In the order `tiles` both terms underflow: the first ends as -0, chunk by chunk, the second is +0
 * as the sum of a block, and -0 where a unit forgets that a block begins at +0. They do so in the
 * second half of each panel alone, and not in the second band of rows. */
TEST(test_product__underflow_keeps_the_sign_of_zero)
{
    enum { M = 72, N = 64, K = 64, SHORT = 16, BAND = 32 };
    const uint16_t tiny = 0x2000 /* 2^-63 */, more = 0xa040 /* -1.5 of it */, one = 0x3f80;
    uint16_t *a = keep(M * K * 2), *b = keep(N * K * 2), *c = keep(N * SHORT * 2);
    memset(b, 0, N * K * 2);
    memset(c, 0, N * SHORT * 2);
    for (int i = 0; i < M * K; i++)
        a[i] = i / K / BAND == 1 ? one : tiny;
    for (int j = 0; j < N; j++) {
        const bool under = j % MM_PANEL >= MM_PANEL / 2;
        b[j * K] = c[j * SHORT] = under ? tiny : one;
        b[j * K + MM_CHUNK] = c[j * SHORT + 1] = under ? more : one;
    }
    const sheaf__term term[2] = {
        { .a = a, .lda = K, .form = SHEAF__B_NK, .b = b, .ldb = K, .k = K },
        { .a = a, .lda = K, .form = SHEAF__B_NK, .b = c, .ldb = SHORT, .k = SHORT }
    };
    const sheaf__product job = plain_job(SHEAF_BF16, M, N, term, 2);
    check_job("underflow", &job);
    run_ref(&job, SHEAF_SUMS_TILES);
    assert_int_equal(sheaf__bits(((const float *)job.y)[MM_PANEL / 2]), 0);
    drop_all();
}

/* What rank r of T makes of its slices, joined as the ranks would, is what one rank makes. */
static void check_ranks(sliced *s, const float *want, int ranks)
{
    const int slices = s->tree.slices;
    const int64_t size = s->job.m * s->job.n;
    bool present[SHEAF_MAX_SLICES];
    memcpy(present, s->tree.present, sizeof present);
    sheaf_tree tree;
    sheaf_tree_init(&tree, slices, ranks, present);
    float *all[SHEAF_MAX_SLICES];
    for (int rank = 0; rank < ranks; rank++) {
        const sheaf_range own = sheaf_owner_slices(slices, ranks, rank);
        sheaf__product job = s->job;
        int from = 0, count;
        while (from < s->job.nslices && s->slice_of[from] < own.begin)
            from++;
        job.slice_of = s->slice_of + from;
        job.first = s->first + from;
        job.nslices = 0;
        while (from + job.nslices < s->job.nslices && s->slice_of[from + job.nslices] < own.end)
            job.nslices++;
        job.tree = &tree;
        job.rank = rank;
        const int at = sheaf_tree_own(&tree, rank, &count);
        for (int r = 0; r < count; r++)
            all[at + r] = random_vector(SHEAF_F32, size, ORDINARY);
        job.roots = all + at;
        job.y = NULL;
        check_job("roots", &job);
    }
    sheaf_tree_add add[SHEAF_MAX_SLICES];
    const int adds = sheaf_tree_program_roots(&tree, add);
    for (int i = 0; i < adds; i++)
        for (int64_t e = 0; e < size; e++)
            all[add[i].a][e] += all[add[i].b][e];
    if (tree.nroots > 0)
        CHECK_BYTES("joined roots", all[0], want, size * 4);
}

TEST(test_product__ranks_do_not_show)
{
    static const int ranks[] = { 1, 2, 3, 5, 8 };
    for (int i = 0; i < 12; i += every(3)) {
        sliced s;
        random_sliced(&s, 1 + below(40), 1 + below(80), i % 3 ? 60 : 300, 8, ORDINARY);
        s.job.y = random_vector(SHEAF_F32, s.job.m * s.job.n, ORDINARY);
        s.job.ldy = s.job.n;
        s.job.out = SHEAF_F32;
        check_job("all slices", &s.job);
        for (size_t t = 0; t < ARRAY_LEN(ranks); t++)
            check_ranks(&s, s.job.y, ranks[t]);
        drop_all();
    }
}

/* Most jobs have their first A or B from the job before, so that they run side by side. */
static void check_many_jobs(sheaf_sums sums)
{
    enum { JOBS = 140 }; /* more than one parallel region takes */
    static sheaf__product job[JOBS];
    static sheaf__term term[JOBS][2];
    for (int j = 0; j < JOBS; j++) {
        const bool beside = j > 0 && below(8), same_b = beside && job[j - 1].n <= 32;
        const sheaf__term *last = beside ? term[j - 1] : NULL;
        const sheaf_dtype type = beside ? job[j - 1].dtype : random_type();
        const int64_t k = beside ? last->k : below(8) ? below(50) : 200 + below(200);
        const int64_t m = beside && !same_b ? job[j - 1].m : below(same_b ? 200 : 60),
                      n = same_b ? job[j - 1].n : below(70); /* empty ones too */
        const sheaf__right form = same_b ? last->form : (sheaf__right)below(FORMS);
        const bool a_km = beside ? last->a_km : below(2);
        term[j][0] = random_term(type, (int)form, a_km, m, n, k, ORDINARY);
        term[j][1] =
            random_term(type, SHEAF__B_NK, a_km, m, n, beside ? last[1].k : below(40), ORDINARY);
        if (same_b) {
            term[j][0].b = last->b;
            term[j][0].ldb = last->ldb;
            term[j][0].w = last->w;
        } else if (beside) {
            term[j][0].a = last->a;
            term[j][0].lda = last->lda;
        }
        job[j] = plain_job(type, m, n, term[j], 2);
    }
    check_together("job", job, JOBS, sums);
    drop_all();
}

TEST(test_products__jobs_of_one_call_do_not_meet)
{
    check_many_jobs(SHEAF_SUMS_PAIRS);
    check_many_jobs(SHEAF_SUMS_TILES);
}

/* As in decoding: few rows meet the slices of several layers, whose panels are there. */
TEST(test_products__few_rows_meet_many_narrow_layers)
{
    enum { LAYERS = 80 };
    static sheaf__product job[LAYERS];
    static sheaf__term term[LAYERS];
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    static const int64_t rows[] = { 1, 3, 8, 14, 15 };
    for (size_t i = 0; i < ARRAY_LEN(types) * ARRAY_LEN(rows); i += (size_t)every(4)) {
        const sheaf_dtype type = types[i % ARRAY_LEN(types)];
        const int64_t m = rows[i / ARRAY_LEN(types)], k = 250 + below(300);
        for (int j = 0; j < LAYERS; j++) {
            const int64_t n = j == 7 ? 700 : 1 + below(40);
            term[j] = random_term(type, SHEAF__B_AHEAD, false, m, n, k, ORDINARY);
            if (j > 0) {
                term[j].a = term[0].a;
                term[j].lda = term[0].lda;
            }
            job[j] = plain_job(type, m, n, &term[j], 1);
        }
        check_together("layer", job, LAYERS, SHEAF_SUMS_PAIRS);
        check_together("layer", job, LAYERS, SHEAF_SUMS_TILES);
        drop_all();
    }
}

/* ---- the device ---- */

TEST(test_products__dry_counts_and_touches_nothing)
{
    sheaf__device dry = { .class = &sheaf__dry,
                          .planned = &sheaf__cpu,
                          .threads = 4,
                          .kernels = &(sheaf__kernels){ .isa = "ref" } };
    const sheaf__term t[2] = { { .k = 10 }, { .k = 7 } };
    sheaf__product job = { .m = 3, .n = 5, .nslices = 1, .term = t, .nterms = 2, .alpha = 1 };
    sheaf__products(&dry, &job, 1);
    CHECK_NEAR("flops", dry.flops, 2.0 * 3 * 5 * 17, 0);
}

TEST(test_isa__names_select_kernels)
{
    const sheaf__units both = { true, true };
    assert_ptr_equal(sheaf__mm_isa_for("ref", both), &sheaf__mm_ref);
    assert_ptr_equal(sheaf__mm_isa_for("avx2", both), &sheaf__mm_avx2);
#ifndef SHEAF_NO_X86
    const sheaf__units none = { false, false }, pairs = { true, false }, tiles = { false, true };
    assert_ptr_equal(sheaf__mm_isa_for("avx512", none), &sheaf__mm_avx512);
    assert_ptr_equal(sheaf__mm_isa_for("avx512", pairs), &sheaf__mm_avx512bf16);
    assert_ptr_equal(sheaf__mm_isa_for("avx512", tiles), &sheaf__mm_amx);
    assert_ptr_equal(sheaf__mm_isa_for("avx512", both)->tiles, sheaf__mm_amx.tiles);
    assert_ptr_equal(sheaf__mm_isa_for("avx512", both)->pairs, sheaf__mm_avx512bf16.pairs);
#endif
}

FIXTURE(make_machines, free_machines);
