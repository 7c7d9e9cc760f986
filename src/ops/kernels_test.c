/* kernels_test.c - the table is whole; each column has the bits of the reference, whatever the size
 * and the numbers; and these bits are those of the contract. What a kernel is worked out to be by
 * hand, and that it is a gradient, is in the test of its folder. */
#include "tests/ops_twin.h"

#include "ops/adamw/adamw.h"
#include "ops/quant/quantise.h"
#include "ops/shrink/shrink.h"

TEST(test_kernels__every_cell_is_filled)
{
    static const char *const columns[] = { "ref", "avx2", "avx512" };
    for (size_t i = 0; i < ARRAY_LEN(columns); i++) {
        const sheaf__kernels *k = sheaf__kernels_for(columns[i]);
        if (k == NULL)
            continue;
        assert_string_equal(k->isa, columns[i]);
        void (*cell[sizeof *k / sizeof(void (*)(void))])(void);
        assert_int_equal(sizeof cell, sizeof *k);
        memcpy(cell, k, sizeof *k);
        for (size_t c = 0; c < ARRAY_LEN(cell); c++)
            assert_true(cell[c] != NULL);
    }
    assert_null(sheaf__kernels_for("sse"));
    assert_null(sheaf__kernels_for(""));
    assert_ptr_equal(sheaf__kernels_for(NULL), sheaf__kernels_for(sheaf__kernels_for(NULL)->isa));
}

/* ---- a run of some kernels ---- */

enum { A, B, C, F, G, W, OPERANDS, MADE = 2 * OPERANDS, BLOCKS = MADE + 5, MOST = 5 * 6148 };

/* Operands, of rows of `cols` numbers that are `ld` apart: a, b, c in the activation type, f, g, w
 * in float32. All that kernels make of them is logged. */
typedef struct probe {
    sheaf_dtype dtype;
    int64_t rows, cols, ld, n; /* n: with the gaps */
    size_t bytes;              /* of n in the activation type */
    void *a, *b, *c;
    float *f, *g, *w;
    char *log;
    size_t logged;
} probe;

/* Memory that ends where a page begins that may not be touched. */
static void *block_end(int which, size_t bytes)
{
    static void *block[BLOCKS];
    if (block[which] == NULL)
        block[which] = twin_take(MOST * sizeof(float));
    return twin_end(block[which], MOST * sizeof(float), bytes);
}

/* Space for what a kernel makes: zeros. */
static void *made(int which, size_t bytes)
{
    return memset(block_end(MADE + which, bytes), 0, bytes);
}

static void take(probe *p, const void *bytes, size_t size)
{
    memcpy(p->log + p->logged, bytes, size);
    p->logged += size;
}

static void take_floats(probe *p, const float *x)
{
    take(p, x, (size_t)p->n * sizeof *x);
}

/* A number of each column: the last ones of an operand. */
static float *columns_of(const probe *p, float *x)
{
    return x + p->n - p->cols;
}

static size_t floats(int64_t n)
{
    return (size_t)n * sizeof(float);
}

static void run_moves(probe *p, const sheaf__kernels *k)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    float *wide = made(0, floats(p->n)), *converted = made(1, floats(p->n));
    void *narrow = made(2, p->bytes);
    k->widen(wide, p->a, p->dtype, p->n);
    k->convert(converted, SHEAF_F32, p->a, p->dtype, p->n);
    assert_true(memcmp(wide, converted, floats(p->n)) == 0);
    k->round(narrow, p->dtype, p->f, p->n);
    take(p, narrow, p->bytes);
    for (int i = 0; i < 9; i++) { /* the bits of floats are halves of any kind */
        const sheaf_dtype from = types[i % 3], to = types[i / 3];
        const size_t bytes = (size_t)p->n * twin_bytes(to);
        void *y = made(0, bytes);
        k->convert(y, to, twin_end(p->f, floats(p->n), (size_t)p->n * twin_bytes(from)), from,
                   p->n);
        take(p, y, bytes);
    }
}

static void run_sums(probe *p, const sheaf__kernels *k)
{
    const double squares = k->squares(p->f, p->n);
    float *sum = made(0, floats(p->n));
    take(p, &squares, sizeof squares);
    k->add(sum, p->f, p->g, p->n);
    k->scale(sum, 0.3f, p->n);
    take_floats(p, sum);
    k->add(p->f, p->f, p->g, p->n);
    k->scale(p->g, 0.3f, p->n);
    take_floats(p, p->f);
    take_floats(p, p->g);
    k->accumulate(p->a, p->b, p->n, p->dtype);
    take(p, p->a, p->bytes);
}

static void run_column_sums(probe *p, const sheaf__kernels *k)
{
    k->column_sums(columns_of(p, p->w), p->a, p->ld, p->rows, p->cols, p->dtype);
    take_floats(p, p->w);
}

static void run_finish(probe *p, const sheaf__kernels *k)
{
    for (int i = 0; i < 8; i++) {
        void *y = made(0, p->bytes);
        k->finish(y, p->ld, p->g, p->ld, i == 3 ? 1 : 0.7f, i & 4 ? columns_of(p, p->f) : NULL,
                  i & 1 ? columns_of(p, p->w) : NULL, i & 2 ? p->a : NULL, p->ld, p->rows, p->cols,
                  p->dtype);
        take(p, y, p->bytes);
    }
}

/* Of dense rows. */
static void run_rmsnorm(probe *p, const sheaf__kernels *k)
{
    const int64_t rows = p->rows, cols = p->cols;
    const size_t bytes = (size_t)(rows * cols) * twin_bytes(p->dtype);
    void *x = twin_end(p->a, p->bytes, bytes), *dy = twin_end(p->b, p->bytes, bytes),
         *dx = twin_end(p->c, p->bytes, bytes), *y = made(0, bytes);
    float *w = columns_of(p, p->w), *rstd = made(1, floats(rows));
    for (int once = 0; once < 2; once++) {
        k->rmsnorm(y, rstd, x, w, rows, cols, 1e-5f, once, p->dtype);
        take(p, y, bytes);
        take(p, rstd, floats(rows));
    }
    for (int add = 0; add < 2; add++) {
        k->rmsnorm_back(dx, dy, x, w, rstd, rows, cols, add, p->dtype);
        take(p, dx, bytes);
    }
    k->layernorm_dw(columns_of(p, p->f), NULL, dy, cols, x, cols, NULL, rstd, rows, cols / 3,
                    cols - cols / 7, p->dtype);
    take_floats(p, p->f);
    k->rmsnorm_back(dy, dy, x, w, rstd, rows, cols, false, p->dtype);
    k->rmsnorm(x, rstd, x, w, rows, cols, 1e-5f, false, p->dtype);
    take(p, dy, bytes);
    take(p, x, bytes);
}

static void run_layernorm(probe *p, const sheaf__kernels *k)
{
    const int64_t rows = p->rows, cols = p->cols, ld = p->ld;
    const size_t row = floats(rows);
    float *mean = made(0, row), *rstd = made(1, row), *w = columns_of(p, p->w),
          *b = columns_of(p, p->g);
    k->layernorm_sum(mean, p->a, ld, rows, cols, p->dtype);
    take(p, mean, row);
    for (int64_t r = 0; r < rows; r++)
        mean[r] /= (float)cols;
    k->layernorm_squares(rstd, p->a, ld, mean, rows, cols, p->dtype);
    take(p, rstd, row);
    for (int64_t r = 0; r < rows; r++)
        rstd[r] = 1 / sqrtf(rstd[r] / (float)cols + 1e-6f);
    for (int with = 0; with < 2; with++) {
        void *y = made(2, p->bytes);
        k->layernorm(y, ld, p->a, ld, mean, rstd, w, b, with ? p->c : NULL, rows, cols, p->dtype);
        take(p, y, p->bytes);
    }
    float *sum_a = made(2, row), *sum_an = made(3, row);
    k->layernorm_back_sums(sum_a, sum_an, p->b, ld, p->a, ld, mean, rstd, w, rows, cols, p->dtype);
    take(p, sum_a, row);
    take(p, sum_an, row);
    void *dx = memcpy(made(4, p->bytes), p->c, p->bytes);
    for (int add = 0; add < 2; add++) {
        k->layernorm_back(dx, p->b, ld, p->a, ld, mean, rstd, w, sum_a, sum_an, rows, cols, add,
                          p->dtype);
        take(p, dx, p->bytes);
    }
    for (int with = 0; with < 2; with++)
        k->layernorm_dw(columns_of(p, p->f), with ? b : NULL, p->b, ld, p->a, ld, mean, rstd, rows,
                        cols / 3, cols - cols / 7, p->dtype);
    take_floats(p, p->f);
    take_floats(p, p->g);
    k->layernorm(p->c, ld, p->a, ld, mean, rstd, w, b, p->c, rows, cols, p->dtype);
    k->layernorm(p->a, ld, p->a, ld, mean, rstd, w, b, p->b, rows, cols, p->dtype);
    take(p, p->c, p->bytes);
    take(p, p->a, p->bytes);
}

/* Of one to three heads, all of which turns or half; some rows of pairs are left alone. */
static void run_rope(probe *p, const sheaf__kernels *k)
{
    const int64_t heads = p->cols < 6 ? 1 : 1 + p->cols % 3, dim = p->cols / heads,
                  rot = (p->rows % 2 ? dim : dim / 2) / 2 * 2, table = p->rows * rot;
    int32_t *pos = made(0, (size_t)p->rows * sizeof *pos);
    for (int inverse = 0; inverse < 2; inverse++) {
        for (int64_t r = 0; r < p->rows; r++)
            pos[r] = (int32_t)((r * 7 + 3) % p->rows);
        k->rope(p->a, p->ld, p->f + p->n - table / 2, p->g + p->n - table / 2, pos, p->rows, heads,
                dim, rot, inverse, p->dtype);
        for (int64_t r = 0; r < p->rows; r += 3)
            pos[r] = -1;
        k->rope_pairs(p->b, p->ld, p->f + p->n - table, p->g + p->n - table, pos, p->rows, heads,
                      dim, rot, inverse, p->dtype);
        take(p, p->a, p->bytes);
        take(p, p->b, p->bytes);
    }
}

static void run_gelu(probe *p, const sheaf__kernels *k)
{
    void *y = made(0, p->bytes), *dx = memcpy(made(1, p->bytes), p->c, p->bytes);
    for (int tanh = 0; tanh < 2; tanh++) {
        k->gelu(y, p->a, p->n, tanh, p->dtype);
        take(p, y, p->bytes);
        for (int add = 0; add < 2; add++) {
            k->gelu_back(dx, p->b, p->a, p->n, add, tanh, p->dtype);
            take(p, dx, p->bytes);
        }
        k->gelu_back(p->c, p->b, p->c, p->n, false, tanh, p->dtype);
        take(p, p->c, p->bytes);
    }
    k->gelu(p->a, p->a, p->n, p->n % 2, p->dtype);
    take(p, p->a, p->bytes);
}

static void run_swiglu(probe *p, const sheaf__kernels *k)
{
    void *h = made(0, p->bytes), *dgate = made(1, p->bytes), *dup = made(2, p->bytes);
    for (int gelu = 0; gelu < 2; gelu++) {
        k->swiglu(h, p->a, p->b, p->n, gelu, p->dtype);
        k->swiglu_back(dgate, dup, NULL, p->c, p->a, p->b, p->n, gelu, p->dtype);
        take(p, h, p->bytes);
        take(p, dgate, p->bytes);
        take(p, dup, p->bytes);
    }
    k->swiglu_back(p->a, p->b, p->c, p->c, p->a, p->b, p->n, p->n % 2, p->dtype);
    take(p, p->a, p->bytes);
    take(p, p->b, p->bytes);
    take(p, p->c, p->bytes);
}

static void run_softcap(probe *p, const sheaf__kernels *k)
{
    k->softcap(p->f, 2.5f, p->n, p->dtype);
    k->softcap_back(p->c, p->f, 2.5f, p->n, p->dtype);
    take_floats(p, p->f);
    take(p, p->c, p->bytes);
}

/* Labels here, in other slices and none; plain and smoothed. Some exponentials vanish. */
static void run_cross_entropy(probe *p, const sheaf__kernels *k)
{
    const int64_t rows = p->rows, cols = p->cols, ld = p->ld;
    const int32_t targets[] = { (int32_t)cols - 1, SHEAF__IGNORED, -3, (int32_t)cols + 2, 0 };
    static const float weights[] = { 0.37f, 2, -1.5f, 0, 0.01f };
    float *max = made(0, floats(rows)), *sum = made(1, floats(rows)),
          *weight = made(2, floats(rows));
    int32_t *target = made(3, floats(rows));
    for (int64_t r = 0; r < rows; r++) {
        target[r] = targets[r % 5];
        weight[r] = weights[r % 5];
    }
    k->scale(p->f, 20, p->n);
    k->row_max(max, p->f, ld, rows, cols);
    k->row_sumexp(sum, p->f, ld, max, rows, cols);
    take(p, max, floats(rows));
    take(p, sum, floats(rows));
    const sheaf__label_weights how[] = { { weight, 1, 0 }, { weight, 0.9f, 0.1f / (float)cols } };
    for (int i = 0; i < 2; i++) {
        void *d = made(4, p->bytes);
        k->row_dlogits(d, ld, p->f, ld, max, sum, target, &how[i], rows, cols, p->dtype);
        take(p, d, p->bytes);
    }
    k->row_dlogits(p->f, ld, p->f, ld, max, sum, target, &how[rows % 2], rows, cols, SHEAF_F32);
    take_floats(p, p->f);
}

/* Second moments of any sign, too; the decay of the first one from either end. */
static void run_adamw(probe *p, const sheaf__kernels *k)
{
    sheaf__adamw how = { 0.1, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.0316, 1 };
    float *master = memcpy(made(0, floats(p->n)), p->f, floats(p->n)),
          *moment1 = memcpy(made(1, floats(p->n)), p->g, floats(p->n)),
          *moment2 = memcpy(made(2, floats(p->n)), p->w, floats(p->n));
    for (int i = 0; i < 2; i++) {
        const float *gradient = i == 0 ? p->g : p->f;
        k->adamw(master, moment1, moment2, gradient, p->n, &how);
        take_floats(p, master);
        take_floats(p, moment1);
        take_floats(p, moment2);
        for (int64_t e = 0; e < p->n; e++)
            moment2[e] = fabsf(p->w[e]);
        how.grad_scale = 0.37f;
        how.beta1 = 0.3;
    }
}

static void run_adamw8(probe *p, const sheaf__kernels *k)
{
    static sheaf__map8 map[2];
    const sheaf__adamw how = { 0.1, 0.9, 0.999, 1e-8, 0.01, 0.1, 0.0316, 0.5f };
    const size_t n = (size_t)p->n, scales = floats((p->n + 255) / SHEAF__ADAMW8_BLOCK);
    const sheaf__moments8 to = { made(0, n), made(1, n), made(2, scales), made(3, scales), map };
    for (int m = 0; m < 2 && map[m].value[255] == 0; m++) /* takes a while */
        sheaf__map8_init(&map[m], m == 0);
    for (int step = 0; step < 3; step++) {
        k->adamw8(p->f, &to, step == 1 ? p->w : p->g, p->n, &how);
        take_floats(p, p->f);
        take(p, to.m, n);
        take(p, to.v, n);
        take(p, to.m_absmax, scales);
        take(p, to.v_absmax, scales);
    }
}

static void name_rows(const probe *p, int64_t *sample, int64_t *position)
{
    for (int64_t r = 0; r < p->rows; r++) {
        sample[r] = r % 3 == 1 ? INT64_C(1) << 40 : r;
        position[r] = r * 77 % 512;
    }
}

/* One element equals the threshold. */
static void run_dropout(probe *p, const sheaf__kernels *k)
{
    static const int64_t first[] = { 0, 1, 15, 16, 63, 64, 100, 2048, INT64_C(5000000000), 1375 };
    int64_t *sample = made(0, 2 * floats(p->rows)), *position = made(1, 2 * floats(p->rows));
    void *y = made(2, p->bytes);
    name_rows(p, sample, position);
    sheaf__dropout how = { 7, 11, 13, sample, position, first[p->cols % 10], 0, 1 / 0.75f };
    how.threshold = sheaf__random_u32(7, 11, 13, 0, 0, (uint64_t)(how.channel0 + p->cols / 2));
    k->dropout(y, p->a, p->ld, p->rows, p->cols, &how, p->dtype);
    k->dropout(p->b, p->b, p->ld, p->rows, p->cols, &how, p->dtype);
    take(p, y, p->bytes);
    take(p, p->b, p->bytes);
}

static void run_noise(probe *p, const sheaf__kernels *k)
{
    static const float sizes[] = { 0.125f, 3, 1e-30f, 0, 3e8f, -0.5f };
    int64_t *sample = made(0, 2 * floats(p->rows)), *position = made(1, 2 * floats(p->rows));
    float *half = made(2, floats(p->rows));
    name_rows(p, sample, position);
    for (int64_t r = 0; r < p->rows; r++)
        half[r] = sizes[r % 6];
    k->noise(p->a, p->ld, p->rows, p->cols, &(sheaf__noise){ 7, 11, 13, sample, position, half },
             p->dtype);
    take(p, p->a, p->bytes);
}

static void run_shrink(probe *p, const sheaf__kernels *k)
{
    const size_t n = (size_t)p->n, blocks = (n + SHEAF__SHRINK_BLOCK - 1) / SHEAF__SHRINK_BLOCK;
    int8_t *codes = made(0, n);
    uint8_t *scales = made(1, blocks);
    void *x = made(2, p->bytes);
    k->shrink(codes, scales, p->a, p->n, p->dtype);
    k->expand(x, codes, scales, p->n, p->dtype);
    take(p, codes, n);
    take(p, scales, blocks);
    take(p, x, p->bytes);
}

static const struct {
    const char *name;
    void (*run)(probe *p, const sheaf__kernels *k);
    bool of_rows;  /* else of one row, which is as good as several */
    uint64_t want; /* the hash of 5 rows of 203; changes only with the contract's version */
} probes[] = {
    { "convert, round, widen", run_moves, false, UINT64_C(0x4c96c852228582c5) },
    { "squares, add, scale, accumulate", run_sums, false, UINT64_C(0x621a22330df1fa6d) },
    { "column_sums", run_column_sums, true, UINT64_C(0x1a7a11367d8dc551) },
    { "finish", run_finish, true, UINT64_C(0x2597789cdd3e352d) },
    { "rmsnorm", run_rmsnorm, true, UINT64_C(0x450e831726110379) },
    { "layernorm", run_layernorm, true, UINT64_C(0x6793503136aa82a9) },
    { "rope", run_rope, true, UINT64_C(0xce195836e26420d9) },
    { "gelu", run_gelu, false, UINT64_C(0x869ebfa9ade4b43d) },
    { "swiglu", run_swiglu, false, UINT64_C(0x8241c8991a292b80) },
    { "softcap", run_softcap, false, UINT64_C(0x939f9ff4534ce251) },
    { "cross-entropy", run_cross_entropy, true, UINT64_C(0x78d10530a9129d6a) },
    { "adamw", run_adamw, false, UINT64_C(0xf4649f9564dffd73) },
    { "adamw8", run_adamw8, false, UINT64_C(0x38d0ba13c19b6c82) },
    { "dropout", run_dropout, true, UINT64_C(0xc624d145f3d716d5) },
    { "noise", run_noise, true, UINT64_C(0x0f2ecb0ac220c9f9) },
    { "shrink, expand", run_shrink, false, UINT64_C(0xfda1b2d800202fb7) },
};

/* ---- comparing ---- */

static probe probe_of(sheaf_dtype dtype, int64_t rows, int64_t cols, int64_t ld)
{
    const int64_t n = (rows - 1) * ld + cols;
    assert_true(n <= MOST);
    return (probe){ .dtype = dtype,
                    .rows = rows,
                    .cols = cols,
                    .ld = ld,
                    .n = n,
                    .bytes = (size_t)n * twin_bytes(dtype) };
}

/* The numbers that all runs begin with. */
static void fill(const probe *p, twin_numbers numbers)
{
    for (int i = 0; i < OPERANDS; i++)
        twin_fill(block_end(OPERANDS + i, i < F ? p->bytes : floats(p->n)), p->n,
                  i < F ? p->dtype : SHEAF_F32, numbers, (uint64_t)i + 1);
}

/* Returns what was logged. */
static const char *run_probe(probe *p, size_t which, const sheaf__kernels *k, bool second)
{
    static char log[2][12 * MOST * sizeof(float)];
    void *at[OPERANDS];
    for (int i = 0; i < OPERANDS; i++) {
        const size_t bytes = i < F ? p->bytes : floats(p->n);
        at[i] = memcpy(block_end(i, bytes), block_end(OPERANDS + i, bytes), bytes);
    }
    p->a = at[A], p->b = at[B], p->c = at[C], p->f = at[F], p->g = at[G], p->w = at[W];
    p->log = log[second];
    p->logged = 0;
    probes[which].run(p, k);
    assert_true(p->logged <= sizeof log[0]);
    return p->log;
}

static void check_shape(const twin *t, int64_t rows, int64_t cols, int64_t ld)
{
    const probe all = probe_of(t->dtype, rows, cols, ld);
    fill(&all, t->numbers);
    for (size_t i = 0; i < ARRAY_LEN(probes); i++) {
        probe p = probes[i].of_rows ? all : probe_of(t->dtype, 1, cols, cols);
        const char *want = run_probe(&p, i, t->ref, false), *got = run_probe(&p, i, t->fast, true);
        char name[120];
        snprintf(name, sizeof name, "%s, %d rows of %d", probes[i].name, (int)p.rows, (int)cols);
        twin_same(t, name, got, want, p.logged);
    }
}

/* Every tail of a vector; what models have; and more rows than a sum takes at a time. */
static void check_twin(const twin *t)
{
    static const int64_t rows[] = { 1, 4, 5, 7 }, wide[] = { 1792, 2730, 4096, 15360 },
                         tall[][2] = { { 255, 17 }, { 256, 33 }, { 257, 20 }, { 600, 20 } };
    for (size_t i = 0; i < ARRAY_LEN(twin_sizes); i += (size_t)every(3)) {
        const int64_t cols = twin_sizes[i];
        check_shape(t, cols < 600 ? rows[i % 4] : 1 + (int64_t)i % 2 * 4, cols,
                    cols + (int64_t)(i % 3));
    }
    for (size_t i = 0; i < ARRAY_LEN(wide); i++)
        check_shape(t, i == 0 ? 5 : 1, wide[i], wide[i] + 3);
    for (size_t i = 0; i < ARRAY_LEN(tall); i++)
        check_shape(t, tall[i][0], tall[i][1], tall[i][1] + 1);
}

TEST(test_kernels__each_column_has_the_bits_of_the_reference)
{
    twin_each(check_twin);
}

/* Every type, every kind of number, with and without DAZ and FTZ: one hash (64-bit FNV-1a). */
static uint64_t hash_of(size_t which)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    const unsigned before = sheaf__mode();
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int code = 0; code < 2 * 3 * TWIN_KINDS; code++) {
        probe p = probe_of(types[code / 2 % 3], 5, 203, 203);
        fill(&p, (twin_numbers)(code / 6));
        sheaf__mode_set(code & 1 ? SHEAF__COMPUTE_MODE : SHEAF__MERGE_MODE);
        const char *log = run_probe(&p, which, sheaf__kernels_for("ref"), false);
        sheaf__compute_mode_leave(before);
        for (size_t i = 0; i < p.logged; i++)
            hash = (hash ^ (unsigned char)log[i]) * UINT64_C(0x100000001b3);
    }
    return hash;
}

TEST(test_kernels__give_the_bytes_of_the_contract)
{
    for (size_t i = 0; i < ARRAY_LEN(probes); i++)
        if (hash_of(i) != probes[i].want)
            fail_msg("%s: hash %016llx, frozen %016llx", probes[i].name,
                     (unsigned long long)hash_of(i), (unsigned long long)probes[i].want);
}
