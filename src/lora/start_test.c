/* start_test.c - factors that begin as a part of W, or orthogonal. */
#include "tests/check.h"

#include "tests/fake_source.h"

#include "base/random.h"
#include "lora/start.h"

enum { MOST = 70 };

/* Rank 0: of full rank; -1: of one value alone, which takes all directions, more than numbers
 * usually do. */
static const struct {
    int64_t out, in, rank, of_rank;
} shapes[] = {
    { 9, 6, 4, 0 },  { 6, 9, 4, 0 },   { 1, 5, 1, 0 },    { 70, 64, 3, 0 },  { 64, 70, 8, 0 },
    { 12, 7, 5, 2 }, { 20, 31, 4, 3 }, { 13, 13, 4, -1 }, { 64, 64, 2, -1 },
};

static float w[MOST * MOST], a[MOST * MOST], b[MOST * MOST], rest[MOST * MOST];

static void make_weight(int64_t out, int64_t in, int64_t of_rank)
{
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < in; k++) {
            float x = of_rank < 0 && o == k ? 0.5f : 0;
            for (int64_t r = 0; r < of_rank; r++)
                x += sheaf__random_normal(1, (uint64_t)r, (uint64_t)o) *
                     sheaf__random_normal(2, (uint64_t)r, (uint64_t)k);
            w[o * in + k] = of_rank == 0 ? sheaf__random_normal(3, 0, (uint64_t)(o * in + k)) : x;
        }
}

/* sum over i < n of x[i * dx] * y[i * dy] */
static double dot(const float *x, int64_t dx, const float *y, int64_t dy, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i * dx] * y[i * dy];
    return sum;
}

/* The largest value of `rest`, by power iteration. */
static double largest(int64_t out, int64_t in)
{
    float x[MOST], y[MOST];
    double length = 0;
    for (int64_t k = 0; k < in; k++)
        x[k] = sheaf__random_normal(4, 0, (uint64_t)k);
    for (int step = 0; step < 400; step++) {
        for (int64_t o = 0; o < out; o++)
            y[o] = (float)dot(rest + o * in, 1, x, 1, in);
        for (int64_t k = 0; k < in; k++)
            x[k] = (float)dot(rest + k, in, y, 1, out);
        length = sqrt(dot(x, 1, x, 1, in));
        for (int64_t k = 0; k < in && length > 0; k++)
            x[k] = (float)(x[k] / length);
    }
    return sqrt(length);
}

static void begin(sheaf_lora_init init, size_t i, int threads)
{
    const int64_t out = shapes[i].out, in = shapes[i].in, rank = shapes[i].rank;
    sheaf__pool *pool;
    CHECK_OK(sheaf__pool_new(&pool, threads));
    make_weight(out, in, shapes[i].of_rank);
    CHECK_OK(
        sheaf__start_make(a, b, rank, init, &(sheaf__start){ w, out, in, rank, 2, 5, 6, pool }));
    sheaf__pool_free(pool);
    for (int64_t o = 0; o < out; o++)
        for (int64_t k = 0; k < in; k++)
            rest[o * in + k] = (float)(w[o * in + k] - 2 * dot(b + o * rank, 1, a + k, in, rank));
}

/* Rows of A and columns of B are orthogonal, and their products stand for the largest values: what
 * is left of W has none that is larger than the least of them. */
TEST(test_pissa__takes_the_largest_values)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t out = shapes[i].out, in = shapes[i].in, rank = shapes[i].rank;
        float again[2][MOST * MOST];
        begin(SHEAF_LORA_PISSA, i, 3);
        memcpy(again[0], a, sizeof a);
        memcpy(again[1], b, sizeof b);
        begin(SHEAF_LORA_PISSA, i, 1);
        CHECK_BYTES("A of other threads", again[0], a, (size_t)(rank * in) * sizeof *a);
        CHECK_BYTES("B of other threads", again[1], b, (size_t)(out * rank) * sizeof *b);
        double least = 1e30;
        for (int64_t r = 0; r < rank; r++) {
            const double value = 2 * dot(a + r * in, 1, a + r * in, 1, in);
            CHECK_NEAR("lengths", value, 2 * dot(b + r, rank, b + r, rank, out), 1e-5);
            for (int64_t q = 0; q < r; q++) {
                CHECK_NEAR("rows of A", dot(a + r * in, 1, a + q * in, 1, in), 0, 1e-5);
                CHECK_NEAR("columns of B", dot(b + r, rank, b + q, rank, out), 0, 1e-5);
            }
            least = value < least ? value : least;
        }
        if (largest(out, in) > least + 1e-5)
            fail_msg("%zu: %g is left, more than %g", i, largest(out, in), least);
    }
}

/* A = R: what is left of the first columns of W is nothing; and B is orthonormal. */
TEST(test_olora__takes_the_first_columns)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t out = shapes[i].out, in = shapes[i].in, rank = shapes[i].rank;
        begin(SHEAF_LORA_OLORA, i, 2);
        for (int64_t r = 0; r < rank; r++) {
            for (int64_t q = 0; q <= r; q++)
                CHECK_NEAR("columns of B", dot(b + r, rank, b + q, rank, out), q == r, 1e-6);
            for (int64_t o = 0; o < out; o++) /* its scale is 2, and PEFT does not divide by it */
                CHECK_NEAR("left", rest[o * in + r], -w[o * in + r], 1e-5);
        }
    }
}

TEST(test_orthogonal__has_no_product)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t out = shapes[i].out, in = shapes[i].in, rank = shapes[i].rank;
        if (rank % 2 != 0)
            continue;
        begin(SHEAF_LORA_ORTHOGONAL, i, 1);
        for (int64_t o = 0; o < out; o++)
            for (int64_t k = 0; k < in; k++)
                CHECK_NEAR("B A", dot(b + o * rank, 1, a + k, in, rank), 0, 1e-7);
        assert_true(dot(a, 1, a, 1, in) > 0 && dot(b, rank, b, rank, out) > 0);
    }
}

/* ---- adapters that PEFT saved with its start in the base ---- */

enum { OUT = 6, IN = 5, RANK = 2 };

static float stored[FAKE_MOST][OUT * IN];

static sheaf_status *read_stored(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const fake_source *f = (fake_source *)self;
    const int i = fake_index(f, name);
    for (int64_t r = 0; r < rows; r++)
        memcpy((float *)dst + r * cols,
               stored[f->entry[i].name[0] == 'w' ? FAKE_MOST - 1 : i] +
                   (row0 + r) * f->entry[i].shape[1] + col0,
               (size_t)cols * sizeof(float));
    return NULL;
}

static void nothing(sheaf_source *self)
{
    (void)self;
}

static void add(fake_source *f, const char *name, int64_t rows, int64_t cols)
{
    f->entry[f->n++] = (sheaf_source_entry){ name, SHEAF_F32, 2, { rows, cols } };
}

TEST(test_take_start__puts_what_the_base_lost_beside_the_factors)
{
    static const char *const a_names[] = { "base_model.model.w.lora_A.weight",
                                           "base_model.model.w.lora_embedding_A" };
    for (int trial = 0; trial < 6; trial++) { /* one as it should be, and others that are not */
        fake_source adapter = { .source = { fake_find, fake_count, fake_entry, read_stored,
                                            nothing } },
                    base = adapter;
        sheaf_source *is = &adapter.source;
        sheaf_lora_options o;
        add(&adapter, a_names[trial == 1], RANK, IN);
        add(&adapter, "base_model.model.w.lora_B.weight", OUT, RANK);
        add(&base, trial == 2 ? "wider.weight" : "w.weight", OUT, trial == 3 ? IN + 1 : IN);
        for (int i = 0; i < FAKE_MOST; i++)
            sheaf__random_normals(stored[i], 8, (uint64_t)i, 0, OUT * IN);
        CHECK_OK(sheaf__lora_options_default(&o));
        o.rank = RANK, o.alpha = trial == 4 ? 0 : 6, o.init = SHEAF_LORA_PISSA;
        stored[FAKE_MOST - 1][7] = trial == 5 ? INFINITY : 7;
        if (trial > 0) {
            CHECK_FAILS(sheaf__lora_take_start(&is, &o, &base.source),
                        trial < 4 ? SHEAF_E_UNSUPPORTED : SHEAF_E_NUMBER,
                        trial < 4    ? "lora_"
                        : trial == 4 ? "'w.weight' | an alpha above 0"
                                     : "'w.weight' | finite numbers");
            assert_true(is == &adapter.source && o.rank == RANK);
            continue;
        }
        CHECK_OK(sheaf__lora_take_start(&is, &o, &base.source));
        assert_true(o.rank == 2 * RANK && o.alpha == 12 && o.init == SHEAF_LORA_DEFAULT);
        assert_true(is->count(is) == 2 && is->find(is, a_names[0])->shape[0] == 2 * RANK);
        float got_a[2 * RANK * IN], got_b[OUT * 2 * RANK], want_b[OUT * RANK], want_a[RANK * IN];
        sheaf__pool *pool;
        CHECK_OK(sheaf__pool_new(&pool, 1));
        CHECK_OK(sheaf__start_make(
            want_a, want_b, RANK, SHEAF_LORA_PISSA,
            &(sheaf__start){ stored[FAKE_MOST - 1], OUT, IN, RANK, 3, 0, 0, pool }));
        sheaf__pool_free(pool);
        CHECK_OK(is->read(is, a_names[0], 0, 2 * RANK, 0, IN, got_a));
        CHECK_OK(is->read(is, adapter.entry[1].name, 0, OUT, 0, 2 * RANK, got_b));
        CHECK_BYTES("A", got_a, stored[0], RANK * IN * sizeof *got_a);
        CHECK_BYTES("A0", got_a + RANK * IN, want_a, sizeof want_a);
        for (int i = 0; i < OUT * RANK; i++) {
            const int row = i / RANK, col = i % RANK;
            assert_true(got_b[row * 2 * RANK + col] == stored[1][i]);
            assert_true(got_b[row * 2 * RANK + RANK + col] == -want_b[i]);
        }
        is->close(is);
    }
}
