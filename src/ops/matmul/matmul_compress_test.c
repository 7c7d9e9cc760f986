/* matmul_compress_test.c - weights in 12 bits an element: nothing is lost, products have the bytes
 * of those with plain panels, and what cannot be compressed says so. */

#include "tests/matmul_twin.h"

/* Normally distributed, as trained weights are. */
static uint16_t normal(void)
{
    const float u = ((float)random_u32() + 1) * 0x1p-32f, v = (float)random_u32() * 0x1p-32f;
    return (uint16_t)(sheaf__bits(0.02f * sqrtf(-2 * logf(u)) * cosf(6.2831853f * v)) >> 16);
}

typedef enum numbers { NORMAL, ZEROS, OUTLIERS, ALIKE, SMALLEST, LARGEST, KINDS } numbers;
static const char *const kinds[] = { "normal",    "mostly zeros", "outliers",
                                     "all alike", "denormal",     "largest" };

static uint16_t number_of(numbers kind)
{
    const uint16_t half = normal();
    switch (kind) {
    case ZEROS: return below(4) ? (uint16_t)(half & 0x8000) : half;
    case OUTLIERS: return below(3000) ? half : (uint16_t)((half & 0x807f) | (50 + below(100)) << 7);
    case ALIKE: return 0xbf80;
    case SMALLEST: return (uint16_t)(half & 0x80ff);           /* exponents 0 and 1 */
    case LARGEST: return (uint16_t)((half | 0x7f00) & ~0x80u); /* exponent 254 */
    default: return half;
    }
}

/* The same numbers in plain panels and compressed ones. */
typedef struct twins {
    uint16_t *row;
    int64_t n, k;
    sheaf__packed plain, small;
} twins;

static sheaf__packed room_for(int64_t n, int64_t k)
{
    sheaf__packed w = { .dtype = SHEAF_BF16, .n = n, .k = k };
    const size_t bytes = sheaf__packed_bytes(SHEAF_BF16, n, k);
    w.ahead = aligned_alloc(64, bytes);
    assert_non_null(w.ahead);
    kept[nkept++] = w.ahead;
    memset(w.ahead, 0xff, bytes);
    return w;
}

/* In runs of whole panels, the last one first: any order is one. */
static void pack_backwards(sheaf__packed *w, const uint16_t *row, int64_t apart)
{
    for (int64_t first = (w->n - 1) / apart * apart; first >= 0; first -= apart)
        sheaf__pack(w, row + first * w->k, SHEAF_BF16, w->k, first, mm_min(apart, w->n - first));
}

static twins make_twins(int64_t n, int64_t k, numbers kind)
{
    twins t = { .row = keep((size_t)(n * k) * 2), .n = n, .k = k };
    for (int64_t i = 0; i < n * k; i++)
        t.row[i] = number_of(kind);
    t.plain = room_for(n, k);
    t.small = room_for(n, k);
    sheaf__pack(&t.plain, t.row, SHEAF_BF16, k, 0, n);
    sheaf__packed_compress(&t.small);
    pack_backwards(&t.small, t.row, MM_PANEL * (1 + below(3)));
    if (!sheaf__packed_as_wanted(&t.small))
        fail_msg("%s, %d x %d: not compressed", kinds[kind], (int)n, (int)k);
    return t;
}

static void check_rows(const char *name, const sheaf__packed *w, const uint16_t *row)
{
    uint16_t *got = keep((size_t)w->k * 2);
    for (int64_t r = 0; r < w->n; r++) {
        sheaf__packed_row(got, w, r);
        CHECK_BYTES(name, got, row + r * w->k, w->k * 2);
    }
}

TEST(test_compress__nothing_is_lost)
{
    static const struct {
        int64_t n, k;
    } sizes[] = { { 1, 900 }, { 33, 257 }, { 64, 513 }, { 95, 300 }, { 200, 1030 }, { 31, 4 } };
    for (size_t i = 0; i < ARRAY_LEN(sizes) * KINDS; i++) {
        const int64_t n = sizes[i / KINDS].n, k = sizes[i / KINDS].k;
        twins t = make_twins(n, k, (numbers)(i % KINDS));
        assert_non_null(t.small.code);
        check_rows(kinds[i % KINDS], &t.small, t.row);
        const int64_t from = below(n);
        const sheaf__packed part = sheaf__packed_part(&t.small, from, n - from);
        check_rows("a part", &part, t.row + from * k);
        sheaf__packed_expand(&t.small);
        assert_null(t.small.code);
        CHECK_BYTES(kinds[i % KINDS], t.small.ahead, t.plain.ahead,
                    (int64_t)sheaf__packed_bytes(SHEAF_BF16, n, k));
        drop_all();
    }
}

/* Layout: halves of two steps and more in 12 bits each, with headers of boxes. */
TEST(test_compress__takes_three_quarters)
{
    twins t = make_twins(640, 2048, NORMAL);
    const size_t bytes = sheaf__packed_bytes(SHEAF_BF16, 640, 2048);
    size_t touched = bytes;
    while (touched > 0 && ((unsigned char *)t.small.ahead)[touched - 1] == 0xff)
        touched--;
    if (touched > bytes / 4 * 3 + bytes / 500 || touched < bytes / 4 * 3)
        fail_msg("%zu of %zu bytes", touched, bytes);
    drop_all();
}

/* Numbers of a weight that cannot be compressed. */
static uint16_t infinite(int64_t row, int64_t col)
{
    return row == 214 && col == 200 ? 0x7f80 : normal();
}
static uint16_t not_a_number(int64_t row, int64_t col)
{
    return row == 399 && col == 699 ? 0xffc1 : normal();
}
static uint16_t all_infinite(int64_t row, int64_t col)
{
    return 0x7f80;
}
static uint16_t any_exponent(int64_t row, int64_t col)
{
    return (uint16_t)((random_u32() & 0xffff) % 0x7f80);
}
static uint16_t one_box_of_any(int64_t row, int64_t col)
{
    return row / MM_PANEL == 5 && col / MM_BLOCK == 2 ? any_exponent(row, col) : normal();
}
static uint16_t some_far(int64_t row, int64_t col)
{
    return below(200) ? normal() : 0x3f80 | 20 << 7;
}

TEST(test_compress__says_where_it_cannot)
{
    static const struct {
        const char *name;
        uint16_t (*half)(int64_t row, int64_t col);
        int64_t n, k;
    } cases[] = { { "infinite", infinite, 400, 700 },
                  { "not a number", not_a_number, 400, 700 },
                  { "all of them", all_infinite, 400, 700 },
                  { "any exponent", any_exponent, 400, 700 },
                  { "one box of any", one_box_of_any, 1024, 1300 },
                  { "one in two hundred far away", some_far, 1024, 1300 } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        twins t = { .n = cases[i].n, .k = cases[i].k };
        t.row = keep((size_t)(t.n * t.k) * 2);
        t.small = room_for(t.n, t.k);
        for (int64_t j = 0; j < t.n * t.k; j++)
            t.row[j] = cases[i].half(j / t.k, j % t.k);
        sheaf__packed_compress(&t.small);
        assert_non_null(t.small.code);
        pack_backwards(&t.small, t.row, MM_PANEL);
        if (sheaf__packed_as_wanted(&t.small))
            fail_msg("%s: compressed", cases[i].name);
        assert_null(t.small.code);
        pack_backwards(&t.small, t.row, MM_PANEL);
        check_rows(cases[i].name, &t.small, t.row);
        drop_all();
    }
    /* other types, parts, and too little room: nothing is begun */
    sheaf__packed w = room_for(64, 2);
    sheaf__packed_compress(&w);
    assert_null(w.code);
    w = room_for(64, 512);
    w.dtype = SHEAF_F16;
    sheaf__packed_compress(&w);
    assert_null(w.code);
    w.dtype = SHEAF_BF16;
    sheaf__packed part = sheaf__packed_part(&w, 0, 32);
    sheaf__packed_compress(&part);
    assert_null(part.code);
    drop_all();
}

/* Any job with compressed weights, and the same with plain ones by the reference. */
TEST(test_compress__products_are_the_same)
{
    for (int i = 0; i < in_soak(120, 60 / every(2)); i++) {
        const int64_t m = i % 4 == 0 ? 1 + below(40) : 1 + below(5),
                      n = below(3) ? 1 + below(500) : 16 * (1 + below(20));
        sheaf__term plain[4], small[4];
        int slice_of[4], first[5] = { 0 };
        sheaf_tree tree;
        sheaf__product job = plain_job(SHEAF_BF16, m, n, plain, 1 + (int)below(4));
        for (int t = 0; t < job.nterms; t++) {
            /* a slice with another type of B beside, as LoRA's */
            const bool other = t > 0 && below(4) == 0;
            const int64_t k = below(5) ? 1 + below(700) : 256 * (1 + below(4));
            plain[t] = small[t] =
                random_term(SHEAF_BF16, other ? SHEAF__B_NK : SHEAF__B_AHEAD, false, m, n,
                            other ? 16 : k, below(8) ? ORDINARY : SPECIAL);
            slice_of[t] = t;
            first[t + 1] = t + 1;
            if (other)
                continue;
            const int64_t before = below(2) ? MM_PANEL * below(3) : 0;
            const twins w =
                make_twins(before + n + (below(2) ? below(70) : 0), k, (numbers)below(SMALLEST));
            sheaf__packed *both = keep(2 * sizeof *both);
            both[0] = before > 0 || w.n > n ? sheaf__packed_part(&w.plain, before, n) : w.plain;
            both[1] = before > 0 || w.n > n ? sheaf__packed_part(&w.small, before, n) : w.small;
            assert_true(k < 16 || both[1].code != NULL);
            plain[t].w = &both[0];
            small[t].w = &both[1];
        }
        if (job.nterms != 3 && below(2)) { /* of slices, or of one with several terms */
            sheaf_tree_init(&tree, job.nterms, 1, NULL);
            job.nslices = job.nterms;
            job.slice_of = slice_of;
            job.first = first;
            job.tree = &tree;
        }
        if (below(2)) /* else sums are only stored */
            random_ending(&job, ORDINARY);
        const sheaf_sums sums = i % 2 ? SHEAF_SUMS_TILES : SHEAF_SUMS_PAIRS;
        const size_t bytes = (size_t)extent(m, n, job.ldy) * (job.out == SHEAF_F32 ? 4 : 2);
        const void *before = memcpy(keep(bytes), job.y, bytes);
        run_ref(&job, sums);
        const void *want = memcpy(keep(bytes), job.y, bytes);
        job.term = small;
        for (int isa = 0; isa < nisas; isa++)
            for (size_t d = 0; d < ARRAY_LEN(machines); d++) {
                if (!takes_job(isa, d, i))
                    continue;
                memcpy(job.y, before, bytes);
                machines[d].sums = sums;
                for (int q = 0; q < machines[d].threads;
                     q++) /* NaN, should what lies there count */
                    memset(machines[d].scratch[q], 0xff, 1 << 19);
                sheaf__mm_products_with(isas[isa], &machines[d], &job, 1);
                if (memcmp(job.y, want, bytes) != 0)
                    print_error("%s, %s, %d threads, m %d n %d\n", isas[isa]->name,
                                sheaf__sums_text(sums), machines[d].threads, (int)m, (int)n);
                CHECK_BYTES("product", job.y, want, (int64_t)bytes);
            }
        drop_all();
    }
}

/* The last chunk of `tiles` has two elements, whose products are flushed to -0, and the sum before
 * it is -0 as well: what is missing of the chunk is zeros, which make +0 of it. */
TEST(test_compress__a_chunk_that_is_not_whole)
{
    enum { K = 66, N = 33 };
    uint16_t a[K] = { 0 }, w[N * K];
    float y[N];
    for (int i = 0; i < N * K; i++)
        w[i] = 0xa180;      /* -2^-60 */
    a[0] = 0x9e80;          /* -2^-66: 2^-126 */
    a[32] = 0x1ec0;         /* 1.5 * 2^-66: the sum is -2^-127 */
    a[64] = a[65] = 0x1780; /* 2^-80 */
    sheaf__packed small = room_for(N, K);
    sheaf__packed_compress(&small);
    pack_backwards(&small, w, MM_PANEL);
    assert_true(small.code != NULL && sheaf__packed_as_wanted(&small));
    const sheaf__term term = { .a = a, .lda = K, .k = K, .form = SHEAF__B_AHEAD, .w = &small };
    sheaf__product job = plain_job(SHEAF_BF16, 1, N, &term, 1);
    job.y = y;
    for (int isa = 0; isa < nisas; isa++) {
        machines[0].sums = SHEAF_SUMS_TILES;
        memset(y, 0xff, sizeof y);
        sheaf__mm_products_with(isas[isa], &machines[0], &job, 1);
        for (int i = 0; i < N; i++)
            if (sheaf__bits(y[i]) != 0)
                fail_msg("%s: %08x", isas[isa]->name, sheaf__bits(y[i]));
    }
    drop_all();
}

/* Production sizes, all boxes of which are met; half of the jobs run beside each other on one x. */
TEST(test_compress__jobs_beside_each_other)
{
    enum { JOBS = 5, ROWS = 5 };
    static const int64_t n[JOBS] = { 2048, 256, 40, 5632, 1000 }, depths[] = { 704, 2048 };
    for (size_t i = 0; i < ARRAY_LEN(depths); i += (size_t)every(2)) {
        sheaf__product job[JOBS], compressed[JOBS];
        sheaf__term term[2 * JOBS];
        sheaf__packed w[2 * JOBS];
        const int64_t k = depths[i];
        for (int j = 0; j < JOBS; j++) {
            const twins t = make_twins(n[j], k, j == 4 ? OUTLIERS : NORMAL);
            w[j] = t.plain;
            w[JOBS + j] = t.small;
            term[j] = random_term(SHEAF_BF16, SHEAF__B_NK, false, ROWS, 1, k, ORDINARY);
            term[j].form = SHEAF__B_AHEAD;
            if (j > 0 && j < 4) {
                term[j].a = term[0].a;
                term[j].lda = term[0].lda;
            }
            term[JOBS + j] = term[j];
            term[j].w = &w[j];
            term[JOBS + j].w = &w[JOBS + j];
            job[j] = compressed[j] = plain_job(SHEAF_BF16, ROWS, n[j], &term[j], 1);
            compressed[j].term = &term[JOBS + j];
            compressed[j].y = random_matrix(SHEAF_F32, ROWS, n[j], job[j].ldy, ORDINARY);
        }
        for (int code = 0; code < 2 * ROWS * nisas; code++) {
            const int64_t m = 1 + code / 2 % ROWS;
            const int isa = code / 2 / ROWS;
            sheaf__device *d = &machines[(isa + m) % (int64_t)ARRAY_LEN(machines)];
            if (isa == 0) /* plain ones are held to the reference elsewhere */
                continue;
            d->sums = (sheaf_sums)(code % 2);
            for (int j = 0; j < JOBS; j++)
                job[j].m = compressed[j].m = m;
            sheaf__mm_products_with(isas[isa], d, job, JOBS);
            sheaf__mm_products_with(isas[isa], d, compressed, JOBS);
            for (int j = 0; j < JOBS; j++)
                for (int64_t r = 0; r < m; r++)
                    CHECK_BYTES(isas[isa]->name, (float *)compressed[j].y + r * job[j].ldy,
                                (float *)job[j].y + r * job[j].ldy, n[j] * 4);
        }
        drop_all();
    }
}

FIXTURE(make_machines, free_machines);
