/* matmul_test.c - fast products equal the definition bit for bit, and nothing about
 * how they are run can be seen in the result. */
#include <immintrin.h>

#include "ops/matmul/matmul_private.h"
#include "ops/pool.h"
#include "tests/check.h"

#define FLUSH 0x8040u /* DAZ and FTZ, as every compute thread has them */

/* ---- machines to run on: every instruction set this CPU has, 1, 2 and 5 threads ---- */

static const int thread_counts[] = { 1, 2, 5 };
static sheaf__device machines[ARRAY_LEN(thread_counts)];
static const mm_isa *isas[4];
static int nisas;

static int make_machines(void **state)
{
    (void)state;
    isas[nisas++] = &sheaf__mm_ref;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
        isas[nisas++] = &sheaf__mm_avx2;
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw"))
        isas[nisas++] = &sheaf__mm_avx512;
    if (__builtin_cpu_supports("avx512bf16"))
        isas[nisas++] = &sheaf__mm_avx512bf16;
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        sheaf__device *d = &machines[i];
        d->threads = thread_counts[i];
        CHECK_OK(sheaf__pool_new(&d->pool, d->threads));
        d->scratch = calloc((size_t)d->threads, sizeof *d->scratch);
        for (int t = 0; t < d->threads; t++) {
            d->scratch[t] = aligned_alloc(4096, SHEAF__THREAD_SCRATCH);
            memset(d->scratch[t], 0xff, SHEAF__THREAD_SCRATCH); /* NaN, should it leak */
        }
    }
    return 0;
}

static int free_machines(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(machines); i++) {
        for (int t = 0; t < machines[i].threads; t++)
            free(machines[i].scratch[t]);
        free(machines[i].scratch);
        sheaf__pool_free(machines[i].pool);
    }
    return 0;
}

/* ---- operands ---- */

static uint64_t seed;

static uint32_t random_u32(void)
{
    uint64_t z = seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (uint32_t)((z ^ (z >> 31)) >> 16);
}

static int64_t below(int64_t n) { return (int64_t)(random_u32() % (uint64_t)n); }

/* Everything a case allocates, freed together. */
static void *kept[4096];
static int nkept;

static void *keep(size_t bytes)
{
    void *p = aligned_alloc(64, (bytes + 127) / 64 * 64);
    assert_non_null(p);
    assert_true(nkept < (int)ARRAY_LEN(kept));
    kept[nkept++] = p;
    return p;
}

static void drop_all(void)
{
    while (nkept > 0)
        free(kept[--nkept]);
}

typedef enum kind { ORDINARY, SPECIAL, TINY } kind;

/* Values in (-1, 1); SPECIAL mixes in infinities, NaN and zeros of both signs, TINY has
 * magnitudes around the square root of the smallest normal number, and denormals. */
static float random_float(kind kind)
{
    static const uint32_t special[] = { 0x7f800000, 0xff800000, 0x7fc01234, 0xffc00000, 0x7f812345,
                                        0x80000000, 0x00000000, 0x7f7fffff, 0x00800000, 0x80400000 };
    const uint32_t u = random_u32();
    if (kind == SPECIAL && u % 64 == 0)
        return mm_float(special[random_u32() % ARRAY_LEN(special)]);
    if (kind == TINY)
        return mm_float((u & 0x807fffffu) | (u % 16 == 0 ? 0 : (58 + random_u32() % 10) << 23));
    return (float)(int32_t)u * 0x1p-31f;
}

static void *random_matrix(sheaf_dtype dtype, int64_t count, kind kind)
{
    void *p = keep((size_t)count * (dtype == SHEAF_F32 ? 4 : 2));
    for (int64_t i = 0; i < count; i++) {
        const float x = random_float(kind);
        if (dtype == SHEAF_F32)
            ((float *)p)[i] = x;
        else
            ((uint16_t *)p)[i] = (uint16_t)(mm_bits(x) >> 16);
    }
    return p;
}

enum { BACK_REPACKED = SHEAF__B_BACK + 1, FORMS }; /* B_BACK without stored back panels */

static sheaf__packed *packed_matrix(sheaf_dtype dtype, int64_t n, int64_t k, bool back, kind kind)
{
    sheaf__packed *w = keep(sizeof *w);
    *w = (sheaf__packed){ .dtype = dtype, .n = n, .k = k };
    w->ahead = keep(sheaf__packed_bytes(dtype, n, k));
    w->back = back ? keep(sheaf__packed_back_bytes(dtype, n, k)) : NULL;
    const int64_t ld = k + below(5);
    sheaf__pack(w, random_matrix(dtype, n * ld + 1, kind), dtype, ld, 0, n);
    return w;
}

static sheaf__term random_term(sheaf_dtype dtype, int form, bool a_km, int64_t m, int64_t n,
                               int64_t k, kind kind)
{
    sheaf__term t = { .a_km = a_km, .k = k, .form = form == BACK_REPACKED ? SHEAF__B_BACK : (sheaf__right)form };
    t.lda = (a_km ? m : k) + below(4);
    t.a = random_matrix(dtype, t.lda * (a_km ? k : m) + 1, kind);
    switch (form) {
    case SHEAF__B_NK: t.ldb = k + below(4); t.b = random_matrix(dtype, t.ldb * n + 1, kind); break;
    case SHEAF__B_KN: t.ldb = n + below(4); t.b = random_matrix(dtype, t.ldb * k + 1, kind); break;
    case SHEAF__B_AHEAD: t.w = packed_matrix(dtype, n, k, false, kind); break;
    default: t.w = packed_matrix(dtype, k, n, form == SHEAF__B_BACK, kind); break;
    }
    return t;
}

/* ---- running and comparing ---- */

typedef struct output {
    void *at;
    size_t bytes;
} output;

static int outputs_of(output out[SHEAF_MAX_SLICES], const sheaf__product *job)
{
    if (job->roots == NULL) {
        out[0] = (output){ job->y, (size_t)(job->m * job->ldy) * (job->out == SHEAF_F32 ? 4 : 2) };
        return 1;
    }
    int count;
    sheaf_tree_own(job->tree, job->rank, &count);
    for (int r = 0; r < count; r++)
        out[r] = (output){ job->roots[r], (size_t)(job->m * job->n) * 4 };
    return count;
}

static void run_ref(const sheaf__product *job)
{
    const unsigned before = _mm_getcsr();
    _mm_setcsr(before | FLUSH);
    sheaf__product_ref(job);
    _mm_setcsr(before);
}

/* All instruction sets and thread counts against the reference; what lies between the
 * columns of y has to stay as it was. */
static void check_job(const char *name, const sheaf__product *job)
{
    output out[SHEAF_MAX_SLICES];
    const int count = outputs_of(out, job);
    void *before[SHEAF_MAX_SLICES], *want[SHEAF_MAX_SLICES];
    for (int o = 0; o < count; o++)
        before[o] = memcpy(keep(out[o].bytes), out[o].at, out[o].bytes);
    run_ref(job);
    for (int o = 0; o < count; o++)
        want[o] = memcpy(keep(out[o].bytes), out[o].at, out[o].bytes);
    for (int isa = 0; isa < nisas; isa++)
        for (size_t d = 0; d < ARRAY_LEN(machines); d++) {
            for (int o = 0; o < count; o++)
                memcpy(out[o].at, before[o], out[o].bytes);
            sheaf__mm_products_with(isas[isa], &machines[d], job, 1);
            for (int o = 0; o < count; o++)
                if (memcmp(out[o].at, want[o], out[o].bytes) != 0) {
                    print_error("%s, %s%s, %d threads, m %d n %d\n", isas[isa]->name, name,
                                isas[isa] == &sheaf__mm_avx512bf16 ? " pairs" : "",
                                machines[d].threads, (int)job->m, (int)job->n);
                    CHECK_BYTES(name, out[o].at, want[o], out[o].bytes);
                }
        }
}

static sheaf__product plain_job(sheaf_dtype dtype, int64_t m, int64_t n, const sheaf__term *term,
                                int nterms)
{
    sheaf__product job = { .m = m, .n = n, .dtype = dtype, .nslices = 1, .term = term,
                           .nterms = nterms, .out = SHEAF_F32, .alpha = 1, .round_to = SHEAF_F32 };
    job.ldy = n + below(4);
    job.y = random_matrix(SHEAF_F32, m * job.ldy + 1, ORDINARY);
    return job;
}

/* ---- worked by hand ---- */

static const float big = 16777216.0f; /* 2^24: adding 1 to it rounds back to it */
static const struct {
    const char *name;
    sheaf_dtype dtype;
    int count;
    struct { int at; float value; } a[4]; /* times ones */
    int64_t k;
    float want;
} by_hand[] = {
    { "plain sum", SHEAF_F32, 3, { { 0, 1 }, { 1, 2 }, { 2, 3 } }, 3, 6 },
    { "a chain ascends", SHEAF_F32, 3, { { 0, big }, { 1, 1 }, { 2, 1 } }, 3, 16777216 },
    { "blocks of 256 are added", SHEAF_F32, 3, { { 0, big }, { 256, 1 }, { 257, 1 } }, 258, 16777218 },
    { "255 is in the first block", SHEAF_F32, 3, { { 0, big }, { 255, 1 }, { 256, 1 } }, 258, 16777216 },
    { "blocks ascend", SHEAF_F32, 3, { { 0, big }, { 256, 1 }, { 512, 1 } }, 600, 16777216 },
    { "pairs, odd element first", SHEAF_BF16, 4, { { 0, 1 }, { 1, big }, { 2, -big }, { 3, 1 } }, 4, 0 },
    { "the same, ascending", SHEAF_F32, 4, { { 0, 1 }, { 1, big }, { 2, -big }, { 3, 1 } }, 4, 1 },
    { "odd last element", SHEAF_BF16, 3, { { 0, 1 }, { 1, 2 }, { 2, 3 } }, 3, 6 },
    { "no element", SHEAF_F32, 0, { { 0, 0 } }, 0, 0 },
};

static void test_product_ref__sums_worked_by_hand(void **state)
{
    (void)state;
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
        const sheaf__term t = { .a = bf16 ? (void *)a16 : a, .lda = 1024, .b = bf16 ? (void *)ones16 : ones,
                                .ldb = 1024, .form = SHEAF__B_NK, .k = by_hand[i].k };
        sheaf__product job = plain_job(by_hand[i].dtype, 1, 1, &t, 1);
        job.y = &y;
        run_ref(&job);
        CHECK_NEAR(by_hand[i].name, y, by_hand[i].want, 0);
        drop_all();
    }
}

static void test_product_ref__slices_meet_in_the_tree(void **state)
{
    (void)state;
    const float x[5] = { big, 1, 1, 1, 3 }, one = 1;
    /* finished: round(0.5 * sum + 0.5) + 2 */
    static const struct { const char *name; bool present[4]; float want, finished; } trees[] = {
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
            t[s] = (sheaf__term){ .a = &x[s], .lda = 1, .b = &one, .ldb = 1, .form = SHEAF__B_NK, .k = 1 };
        float y = -1, bias = 0.5f, residual = 2;
        sheaf__product job = plain_job(SHEAF_F32, 1, 1, t, 4);
        job.nslices = 4;
        job.slice_of = slice_of;
        job.first = first;
        job.tree = &tree;
        job.y = &y;
        job.ldy = 1;
        run_ref(&job);
        CHECK_NEAR(trees[i].name, y, trees[i].want, 0);
        job.alpha = 0.5f;
        job.bias = &bias;
        job.residual = &residual;
        run_ref(&job);
        CHECK_NEAR(trees[i].name, y, trees[i].finished, 0);
        drop_all();
    }
}

/* ---- every form against the definition ---- */

static const int64_t odd_sizes[] = { 1, 3, 15, 17, 33, 173, 255, 256, 257, 511, 513 };

static void test_product__every_form_and_odd_size_equals_the_reference(void **state)
{
    (void)state;
    for (int dtype = 0; dtype < 2; dtype++)
        for (int form = 0; form < FORMS; form++)
            for (int a_km = 0; a_km < 2; a_km++)
                for (size_t i = 0; i < ARRAY_LEN(odd_sizes); i++) {
                    /* each size once as m, n and k; the other two small */
                    for (int axis = 0; axis < 3; axis++) {
                        int64_t size[3] = { 1 + below(20), 1 + below(40), 1 + below(70) };
                        size[axis] = odd_sizes[i];
                        char name[80];
                        snprintf(name, sizeof name, "dtype %d form %d a_km %d k %d", dtype, form,
                                 a_km, (int)size[2]);
                        const sheaf_dtype type = dtype ? SHEAF_BF16 : SHEAF_F32;
                        const sheaf__term t = random_term(type, form, a_km, size[0], size[1],
                                                          size[2], ORDINARY);
                        const sheaf__product job = plain_job(type, size[0], size[1], &t, 1);
                        check_job(name, &job);
                        drop_all();
                    }
                }
}

static void test_product__few_rows_and_few_columns_equal_the_reference(void **state)
{
    (void)state;
    static const int64_t wide[] = { 31, 64, 127, 128, 129, 257, 300 }, narrow[] = { 1, 15, 16, 17, 48, 64, 65 };
    for (int64_t m = 1; m <= 9; m++)
        for (size_t i = 0; i < ARRAY_LEN(wide); i++) {
            const sheaf_dtype type = (m + (int)i) % 2 ? SHEAF_BF16 : SHEAF_F32;
            const sheaf__term t = random_term(type, (int)below(FORMS), below(2), m, wide[i], 257 + below(99), ORDINARY);
            sheaf__product job = plain_job(type, m, wide[i], &t, 1);
            check_job("few rows", &job);
            job.residual = random_matrix(SHEAF_F32, m * wide[i], ORDINARY);
            job.ldr = wide[i];
            check_job("few rows, finished", &job);
            drop_all();
        }
    for (int64_t m = 97; m < 130; m += 8)
        for (size_t i = 0; i < ARRAY_LEN(narrow); i++)
            for (int type = 0; type < 2; type++) {
                sheaf__term t[3];
                for (int j = 0; j < 3; j++) /* k odd and even, A as it lies and transposed */
                    t[j] = random_term(type ? SHEAF_BF16 : SHEAF_F32,
                                       (int)below(i % 3 == 0 ? 2 : FORMS), i % 3 == 0, m, narrow[i], below(2) ? 512 : below(300), ORDINARY);
                sheaf__product job = plain_job(type ? SHEAF_BF16 : SHEAF_F32, m, narrow[i], t, 1 + (int)below(3));
                check_job("few columns", &job);
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

static void random_ending(sheaf__product *job, kind kind)
{
    job->out = below(2) ? SHEAF_BF16 : SHEAF_F32;
    job->add = job->out == SHEAF_F32 && below(3) == 0;
    job->alpha = below(2) ? 1.0f : random_float(ORDINARY);
    job->round_to = below(2) ? SHEAF_BF16 : SHEAF_F32;
    job->ldy = job->n + below(9);
    job->y = random_matrix(job->out, job->m * job->ldy + 1, kind);
    if (job->add)
        return;
    if (below(2))
        job->bias = random_matrix(SHEAF_F32, job->n, kind);
    if (below(2)) {
        job->ldr = job->n + below(9);
        job->residual = random_matrix(job->out, job->m * job->ldr + 1, kind);
    }
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
    *job = (sheaf__product){ .m = m, .n = n, .dtype = below(2) ? SHEAF_BF16 : SHEAF_F32,
                             .term = s->term, .slice_of = s->slice_of, .first = s->first,
                             .tree = &s->tree, .alpha = 1, .round_to = SHEAF_F32 };
    bool present[SHEAF_MAX_SLICES];
    for (int i = 0; i < slices; i++)
        present[i] = below(6) != 0;
    for (int i = 0; i < slices; i++)
        if (present[i] || below(2)) /* absent slices may be named, they do not count */
            add_slice(s, i, most_k, kind);
    sheaf_tree_init(&s->tree, slices, 1, present);
}

static void test_product__slices_terms_and_endings_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 250; i++) {
        sliced s;
        random_sliced(&s, 1 + below(40), 1 + below(80), i % 5 ? 60 : 600, 1 << below(5), ORDINARY);
        random_ending(&s.job, ORDINARY);
        char name[40];
        snprintf(name, sizeof name, "random job %d", i);
        check_job(name, &s.job);
        drop_all();
    }
}

static void test_product__special_and_tiny_values_equal_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 160; i++) {
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
            all[at + r] = random_matrix(SHEAF_F32, size, ORDINARY);
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

static void test_product__ranks_do_not_show(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 5, 8 };
    for (int i = 0; i < 12; i++) {
        sliced s;
        random_sliced(&s, 1 + below(40), 1 + below(80), i % 3 ? 60 : 300, 8, ORDINARY);
        s.job.y = random_matrix(SHEAF_F32, s.job.m * s.job.n, ORDINARY);
        s.job.ldy = s.job.n;
        s.job.out = SHEAF_F32;
        check_job("all slices", &s.job);
        for (size_t t = 0; t < ARRAY_LEN(ranks); t++)
            check_ranks(&s, s.job.y, ranks[t]);
        drop_all();
    }
}

static void test_products__jobs_of_one_call_do_not_meet(void **state)
{
    (void)state;
    enum { JOBS = 140 }; /* more than one parallel region takes */
    static sheaf__product job[JOBS];
    static sheaf__term term[JOBS];
    static float *want[JOBS];
    for (int j = 0; j < JOBS; j++) {
        const sheaf_dtype type = below(2) ? SHEAF_BF16 : SHEAF_F32;
        const int64_t m = below(60), n = below(70), k = below(50); /* empty ones too */
        if (j % 3 == 0)
            term[j] = random_term(type, (int)below(FORMS), below(2), m, n, k, ORDINARY);
        else
            term[j] = random_term(type, SHEAF__B_NK, false, m, n, k, ORDINARY);
        job[j] = plain_job(type, m, n, &term[j], 1);
        run_ref(&job[j]);
        want[j] = memcpy(malloc((size_t)(m * job[j].ldy) * 4 + 1), job[j].y, (size_t)(m * job[j].ldy) * 4);
    }
    for (int isa = 0; isa < nisas; isa++)
        for (size_t d = 0; d < ARRAY_LEN(machines); d++) {
            for (int j = 0; j < JOBS; j++)
                for (int64_t i = 0; i < job[j].m; i++)
                    memset((float *)job[j].y + i * job[j].ldy, 0, (size_t)job[j].n * 4);
            sheaf__mm_products_with(isas[isa], &machines[d], job, JOBS);
            for (int j = 0; j < JOBS; j++)
                CHECK_BYTES("job", job[j].y, want[j], job[j].m * job[j].ldy * 4);
        }
    for (int j = 0; j < JOBS; j++)
        free(want[j]);
    drop_all();
}

/* ---- production sizes: samples against the reference, the whole across machines ---- */

static const struct {
    const char *name;
    sheaf_dtype dtype;
    int form;
    bool a_km;
    int64_t m, n, k;
    int slices; /* of k */
} production[] = {
    { "down, row-cut", SHEAF_BF16, SHEAF__B_AHEAD, false, 1030, 2304, 6145, 8 },
    { "down, row-cut", SHEAF_F32, SHEAF__B_AHEAD, false, 517, 2304, 6145, 8 },
    { "dx of gate", SHEAF_BF16, BACK_REPACKED, false, 1030, 2304, 6145, 8 },
    { "dx of gate, stored", SHEAF_F32, SHEAF__B_BACK, false, 300, 2304, 6145, 8 },
    { "dx of gate", SHEAF_F32, BACK_REPACKED, false, 300, 2304, 6145, 8 },
    { "up", SHEAF_BF16, SHEAF__B_AHEAD, false, 4200, 769, 2304, 1 },
    { "LoRA A", SHEAF_BF16, SHEAF__B_NK, false, 4200, 16, 2304, 1 },
    { "LoRA A", SHEAF_F32, SHEAF__B_NK, false, 4200, 16, 2304, 1 },
    { "LoRA B", SHEAF_BF16, SHEAF__B_NK, false, 4200, 2304, 16, 1 },
    { "dA", SHEAF_BF16, SHEAF__B_KN, true, 16, 2304, 4200, 1 },
    { "dA", SHEAF_F32, SHEAF__B_KN, true, 16, 2304, 4200, 1 },
    { "dB", SHEAF_F32, SHEAF__B_KN, true, 6145, 16, 4200, 1 },
    { "dW", SHEAF_BF16, SHEAF__B_KN, true, 769, 2304, 4200, 1 },
    { "decoding", SHEAF_BF16, SHEAF__B_AHEAD, false, 1, 6145, 2304, 1 },
    { "decoding", SHEAF_F32, SHEAF__B_AHEAD, false, 5, 6145, 2304, 1 },
};

static void check_samples(const char *name, const sheaf__product *job)
{
    sheaf__product sample = *job;
    sample.y = keep((size_t)(job->m * job->ldy) * 4);
    for (int r = 0; r < 12; r++) {
        const int64_t i = r == 0 ? job->m - 1 : below(job->m), j0 = r % 2 ? below(job->n) : job->n - 1;
        const int64_t j1 = mm_min(job->n, j0 + 20);
        const unsigned before = _mm_getcsr();
        _mm_setcsr(before | FLUSH);
        sheaf__product_ref_part(&sample, i, i + 1, j0, j1);
        _mm_setcsr(before);
        CHECK_BYTES(name, (float *)job->y + i * job->ldy + j0, (float *)sample.y + i * job->ldy + j0,
                    (j1 - j0) * 4);
    }
}

static void production_job(sliced *s, size_t p)
{
    memset(s, 0, sizeof *s);
    const int64_t m = production[p].m, n = production[p].n, k = production[p].k;
    const int slices = production[p].slices;
    for (int i = 0; i < slices; i++) {
        const int64_t from = k * i / slices, to = k * (i + 1) / slices;
        s->term[i] = random_term(production[p].dtype, production[p].form, production[p].a_km, m, n,
                                 to - from, ORDINARY);
        s->slice_of[i] = i;
        s->first[i + 1] = i + 1;
    }
    sheaf_tree_init(&s->tree, slices, 1, NULL);
    s->job = plain_job(production[p].dtype, m, n, s->term, slices);
    s->job.nslices = slices;
    s->job.slice_of = s->slice_of;
    s->job.first = s->first;
    s->job.tree = &s->tree;
}

static void test_product__production_sizes_agree_everywhere(void **state)
{
    (void)state;
    for (size_t p = 0; p < ARRAY_LEN(production); p++) {
        sliced s;
        production_job(&s, p);
        const size_t bytes = (size_t)(s.job.m * s.job.ldy) * 4;
        void *want = NULL;
        for (int isa = 1; isa < nisas; isa++)
            for (int d = 0; d < 2; d++) {
                if (isas[isa] == &sheaf__mm_avx512bf16 && production[p].dtype == SHEAF_F32)
                    continue; /* the kernels of avx512 */
                if (isa < nisas - 1 && d != isa % 2)
                    continue; /* one thread count for all but the best */
                sheaf__mm_products_with(isas[isa], &machines[d + 1], &s.job, 1);
                if (want == NULL)
                    want = memcpy(keep(bytes), s.job.y, bytes);
                CHECK_BYTES(production[p].name, s.job.y, want, bytes);
            }
        if (nisas > 1)
            check_samples(production[p].name, &s.job);
        drop_all();
    }
}

/* ---- packing ---- */

static void test_pack__any_split_gives_the_same_panels(void **state)
{
    (void)state;
    static const struct { int64_t n, k; } sizes[] = {
        { 1, 1 }, { 31, 5 }, { 32, 64 }, { 33, 257 }, { 95, 511 }, { 200, 33 } };
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (size_t i = 0; i < ARRAY_LEN(sizes) * 6; i++) {
        const int64_t n = sizes[i / 6].n, k = sizes[i / 6].k, ld = k + 3;
        const sheaf_dtype to = i % 2 ? SHEAF_BF16 : SHEAF_F32, from = types[i / 2 % 3];
        const void *src = random_matrix(from, n * ld, ORDINARY);
        const size_t ahead = sheaf__packed_bytes(to, n, k), back = sheaf__packed_back_bytes(to, n, k);
        sheaf__packed one = { to, n, k, keep(ahead), keep(back) };
        sheaf__packed two = { to, n, k, keep(ahead), keep(back) };
        memset(two.ahead, 0xee, ahead);
        memset(two.back, 0xee, back);
        sheaf__pack(&one, src, from, ld, 0, n);
        bool done[256] = { false };
        for (int64_t left = n; left > 0;) { /* single rows and runs, in any order, the last one last */
            int64_t r = below(n), rows = 0;
            while (r < n && !done[r] && (r < n - 1 || left == 1 || rows == left - 1) && rows < 40) {
                done[r++] = true;
                rows++;
            }
            if (rows > 0)
                sheaf__pack(&two, (const char *)src + (r - rows) * ld * (from == SHEAF_F32 ? 4 : 2),
                            from, ld, r - rows, rows);
            left -= rows;
        }
        CHECK_BYTES("ahead", two.ahead, one.ahead, ahead);
        CHECK_BYTES("back", two.back, one.back, back);
        drop_all();
    }
}

static void test_pack__rows_come_back_converted(void **state)
{
    (void)state;
    static const struct { const char *name; sheaf_dtype from; uint32_t bits; uint32_t f32; uint16_t bf16; }
    value[] = {
        { "one", SHEAF_F16, 0x3c00, 0x3f800000, 0x3f80 },
        { "minus the smallest half", SHEAF_F16, 0x8001, 0xb3800000, 0xb380 },
        { "largest denormal half", SHEAF_F16, 0x03ff, 0x387fc000, 0x3880 },
        { "largest half", SHEAF_F16, 0x7bff, 0x477fe000, 0x4780 },
        { "half infinity", SHEAF_F16, 0xfc00, 0xff800000, 0xff80 },
        { "half NaN", SHEAF_F16, 0x7e00, 0x7fc00000, 0xffc0 },
        { "minus zero", SHEAF_F16, 0x8000, 0x80000000, 0x8000 },
        { "tie to even", SHEAF_F32, 0x3f808000, 0x3f808000, 0x3f80 },
        { "tie to even, up", SHEAF_F32, 0x3f818000, 0x3f818000, 0x3f82 },
        { "above a tie", SHEAF_F32, 0x3f808001, 0x3f808001, 0x3f81 },
        { "denormal", SHEAF_F32, 0x80018000, 0x80018000, 0x8002 },
        { "overflow", SHEAF_F32, 0x7f7fffff, 0x7f7fffff, 0x7f80 },
        { "bfloat16 as it is", SHEAF_BF16, 0x4049, 0x40490000, 0x4049 },
        { "bfloat16 denormal", SHEAF_BF16, 0x0001, 0x00010000, 0x0001 },
    };
    for (size_t i = 0; i < ARRAY_LEN(value); i++)
        for (int flush = 0; flush < 2; flush++) { /* bits do not depend on the thread */
            const unsigned before = _mm_getcsr();
            _mm_setcsr(flush ? before | FLUSH : before);
            uint32_t room[32], f32 = 1;
            uint16_t bf16 = 1;
            sheaf__packed w = { SHEAF_F32, 1, 1, room, NULL };
            sheaf__pack(&w, &value[i].bits, value[i].from, 1, 0, 1);
            sheaf__packed_row(&f32, &w, 0);
            w.dtype = SHEAF_BF16;
            sheaf__pack(&w, &value[i].bits, value[i].from, 1, 0, 1);
            sheaf__packed_row(&bf16, &w, 0);
            _mm_setcsr(before);
            if (f32 != value[i].f32 || bf16 != value[i].bf16)
                fail_msg("%s: %08x %04x", value[i].name, f32, bf16);
        }
    /* and in place, row by row */
    for (int i = 0; i < 20; i++) {
        const sheaf_dtype type = i % 2 ? SHEAF_BF16 : SHEAF_F32;
        const int64_t n = 1 + below(100), k = 1 + below(600), size = i % 2 ? 2 : 4;
        const char *src = random_matrix(type, n * k, ORDINARY);
        sheaf__packed w = { type, n, k, keep(sheaf__packed_bytes(type, n, k)), NULL };
        sheaf__pack(&w, src, type, k, 0, n);
        char *row = keep((size_t)(k * size));
        for (int64_t r = 0; r < n; r++) {
            sheaf__packed_row(row, &w, r);
            CHECK_BYTES("row", row, src + r * k * size, k * size);
        }
        drop_all();
    }
}

/* ---- tiles for attention ---- */

static void check_tile(sheaf_dtype type, int64_t m, int64_t n, int64_t k, bool add, kind kind)
{
    const int64_t lda = k + below(5), ldc = n + below(9), ldb = k + below(3);
    const void *a = random_matrix(type, m * lda + 1, kind);
    const uint16_t *b = random_matrix(type, n * ldb + 1, kind);
    void *turned = random_matrix(type, k * (n + 2) + 1, ORDINARY);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < k; i++) {
            if (type == SHEAF_BF16)
                ((uint16_t *)turned)[i * (n + 2) + j] = b[j * ldb + i];
            else
                ((float *)turned)[i * (n + 2) + j] = ((const float *)b)[j * ldb + i];
        }
    const size_t room = sheaf__tile_bytes(type, n, k), bytes = (size_t)(m * ldc) * 4;
    void *panels = keep(room), *other = keep(room);
    sheaf__tile_pack_nk(panels, b, ldb, n, k, type);
    sheaf__tile_pack_kn(other, turned, n + 2, n, k, type);
    CHECK_BYTES("panels of the transpose", other, panels, room);
    const float *before = random_matrix(SHEAF_F32, m * ldc, kind);
    float *want = memcpy(keep(bytes), before, bytes), *c = keep(bytes);
    const unsigned csr = _mm_getcsr();
    _mm_setcsr(csr | FLUSH);
    sheaf__tile_ref(want, ldc, a, lda, panels, m, n, k, add, type);
    for (int isa = 0; isa < nisas; isa++) {
        memcpy(c, before, bytes);
        sheaf__mm_tile_with(isas[isa])(c, ldc, a, lda, panels, m, n, k, add, type);
        CHECK_BYTES(isas[isa]->name, c, want, bytes);
    }
    if (!add) { /* the tile and the product are one definition */
        const sheaf__term t = { .a = a, .lda = lda, .form = SHEAF__B_NK, .b = b, .ldb = ldb, .k = k };
        sheaf__product job = plain_job(type, m, n, &t, 1);
        job.y = c;
        job.ldy = ldc;
        sheaf__product_ref(&job);
        CHECK_BYTES("as a product", c, want, bytes);
    }
    _mm_setcsr(csr);
    drop_all();
}

static void test_tile__equals_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++)
        check_tile(i % 2 ? SHEAF_BF16 : SHEAF_F32, 1 + below(70), 1 + below(100),
                   i < 12 ? i / 2 : 1 + below(i % 7 ? 140 : 600), below(2),
                   i % 5 == 0 ? SPECIAL : i % 5 == 1 ? TINY : ORDINARY);
    for (int i = 0; i < 4; i++) { /* scores and values of a head of 64 over 4200 keys */
        check_tile(i % 2 ? SHEAF_BF16 : SHEAF_F32, 36, 4200, 64, false, ORDINARY);
        check_tile(i % 2 ? SHEAF_BF16 : SHEAF_F32, 36, 64, 4200, i / 2, ORDINARY);
    }
}

/* ---- the device ---- */

static void test_products__dry_counts_and_touches_nothing(void **state)
{
    (void)state;
    sheaf__device dry = { .kind = SHEAF_DRY, .threads = 4, .kernels = &(sheaf__kernels){ .isa = "ref" } };
    const sheaf__term t[2] = { { .k = 10 }, { .k = 7 } };
    sheaf__product job = { .m = 3, .n = 5, .nslices = 1, .term = t, .nterms = 2, .alpha = 1 };
    sheaf__products(&dry, &job, 1);
    CHECK_NEAR("flops", dry.flops, 2.0 * 3 * 5 * 17, 0);
}

static void test_isa__names_select_kernels(void **state)
{
    (void)state;
    assert_ptr_equal(sheaf__mm_isa_for("ref"), &sheaf__mm_ref);
    assert_ptr_equal(sheaf__mm_isa_for("avx2"), &sheaf__mm_avx2);
    assert_string_equal(sheaf__mm_isa_for("avx512")->name, "avx512");
}

int main(void)
{
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_product_ref__sums_worked_by_hand),
        cmocka_unit_test(test_product_ref__slices_meet_in_the_tree),
        cmocka_unit_test(test_product__every_form_and_odd_size_equals_the_reference),
        cmocka_unit_test(test_product__few_rows_and_few_columns_equal_the_reference),
        cmocka_unit_test(test_product__slices_terms_and_endings_equal_the_reference),
        cmocka_unit_test(test_product__special_and_tiny_values_equal_the_reference),
        cmocka_unit_test(test_product__ranks_do_not_show),
        cmocka_unit_test(test_products__jobs_of_one_call_do_not_meet),
        cmocka_unit_test(test_product__production_sizes_agree_everywhere),
        cmocka_unit_test(test_pack__any_split_gives_the_same_panels),
        cmocka_unit_test(test_pack__rows_come_back_converted),
        cmocka_unit_test(test_tile__equals_the_reference),
        cmocka_unit_test(test_products__dry_counts_and_touches_nothing),
        cmocka_unit_test(test_isa__names_select_kernels),
    };
    return cmocka_run_group_tests(all, make_machines, free_machines);
}
