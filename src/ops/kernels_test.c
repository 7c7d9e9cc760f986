/* kernels_test.c - the table is whole, and its numbers are those of the contract. */
#include "tests/ops_twin.h"

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

enum { ROWS = 5, COLS = 203, N = ROWS * COLS };

/* Operands of the probe; a, b, c in the activation type, f, g, w in float32. */
typedef struct probe {
    sheaf_dtype dtype;
    uint32_t a[N], b[N], c[N], out[2 * N];
    float f[N], g[N], w[N], row[ROWS], sum[ROWS];
    uint64_t hash;
} probe;

static void refill(probe *p, twin_numbers numbers)
{
    twin_fill(p->a, N, p->dtype, numbers, 1);
    twin_fill(p->b, N, p->dtype, numbers, 2);
    twin_fill(p->c, N, p->dtype, numbers, 3);
    twin_fill(p->f, N, SHEAF_F32, numbers, 4);
    twin_fill(p->g, N, SHEAF_F32, numbers, 5);
    twin_fill(p->w, N, SHEAF_F32, numbers, 6);
    memset(p->out, 0, sizeof p->out);
}

static void take(probe *p, const void *bytes, size_t size) /* 64-bit FNV-1a */
{
    for (size_t i = 0; i < size; i++)
        p->hash = (p->hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
}

static void run_moves(probe *p, const sheaf__kernels *k)
{
    static const sheaf_dtype types[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (int i = 0; i < 9; i++) {
        k->convert(p->out, types[i / 3], p->f, types[i % 3], N);
        take(p, p->out, sizeof p->out);
    }
    k->round(p->out, p->dtype, p->f, N);
    k->widen((float *)p->out + N, p->a, p->dtype, N);
    take(p, p->out, sizeof p->out);
}

static void run_sums(probe *p, const sheaf__kernels *k)
{
    const double squares = k->squares(p->f, N);
    take(p, &squares, sizeof squares);
    k->add(p->f, p->f, p->g, N);
    k->scale(p->f, 0.3f, N);
    take(p, p->f, sizeof p->f);
    k->finish(p->out, COLS, p->g, COLS, 0.7f, NULL, p->w, p->a, COLS, ROWS, COLS, p->dtype);
    k->accumulate(p->out, p->b, N, p->dtype);
    k->column_sums(p->w, p->a, COLS, ROWS, COLS, p->dtype);
    take(p, p->out, sizeof p->out);
    take(p, p->w, sizeof p->w);
}

static void run_rmsnorm(probe *p, const sheaf__kernels *k)
{
    k->rmsnorm(p->out, p->row, p->a, p->w, ROWS, COLS, 1e-5f, false, p->dtype);
    k->rmsnorm_back(p->out + N, p->b, p->a, p->w, p->row, ROWS, COLS, true, p->dtype);
    k->layernorm_dw(p->w, NULL, p->b, COLS, p->a, COLS, NULL, p->row, ROWS, 3, COLS - 1, p->dtype);
    take(p, p->out, sizeof p->out);
    take(p, p->row, sizeof p->row);
    take(p, p->w, sizeof p->w);
}

static void run_rope_swiglu(probe *p, const sheaf__kernels *k)
{
    const int32_t pos[ROWS] = { 0, 4, 2, 2, 1 };
    k->rope(p->a, COLS, p->f, p->g, pos, ROWS, 3, 66, 64, false, p->dtype);
    k->rope(p->b, COLS, p->f, p->g, pos, ROWS, 3, 66, 36, true, p->dtype);
    k->swiglu(p->out, p->a, p->b, N, false, p->dtype);
    k->swiglu_back(p->a, p->b, NULL, p->c, p->a, p->b, N, false, p->dtype);
    take(p, p->out, sizeof p->out);
    take(p, p->a, sizeof p->a);
    take(p, p->b, sizeof p->b);
}

static void run_layernorm(probe *p, const sheaf__kernels *k)
{
    float a[ROWS], an[ROWS], *db = p->f;
    k->layernorm_sum(p->row, p->a, COLS, ROWS, COLS - 3, p->dtype);
    take(p, p->row, sizeof p->row);
    for (int r = 0; r < ROWS; r++)
        p->row[r] /= COLS - 3;
    k->layernorm_squares(p->sum, p->a, COLS, p->row, ROWS, COLS - 3, p->dtype);
    take(p, p->sum, sizeof p->sum);
    for (int r = 0; r < ROWS; r++)
        p->sum[r] = 1 / sqrtf(p->sum[r] / (COLS - 3) + 1e-6f);
    k->layernorm(p->out, COLS, p->a, COLS, p->row, p->sum, p->w, p->g, NULL, ROWS, COLS, p->dtype);
    k->layernorm(p->out + N, COLS, p->a, COLS, p->row, p->sum, p->w, p->g, p->c, ROWS, COLS - 1,
                 p->dtype);
    take(p, p->out, sizeof p->out);
    k->layernorm_back_sums(a, an, p->b, COLS, p->a, COLS, p->row, p->sum, p->w, ROWS, COLS,
                           p->dtype);
    take(p, a, sizeof a);
    take(p, an, sizeof an);
    for (int add = 0; add < 2; add++)
        k->layernorm_back(p->c, p->b, COLS, p->a, COLS, p->row, p->sum, p->w, p->f, p->g, ROWS,
                          COLS, add, p->dtype);
    k->layernorm_dw(p->w, db, p->b, COLS, p->a, COLS, p->row, p->sum, ROWS, 3, COLS - 1, p->dtype);
    take(p, p->c, sizeof p->c);
    take(p, p->w, sizeof p->w);
    take(p, p->f, sizeof p->f);
}

static void run_gelu_pairs(probe *p, const sheaf__kernels *k)
{
    const int32_t pos[ROWS] = { 0, 4, -1, 2, 1 };
    k->rope_pairs(p->a, COLS, p->f, p->g, pos, ROWS, 3, 66, 66, false, p->dtype);
    k->rope_pairs(p->b, COLS, p->f, p->g, pos, ROWS, 4, 50, 50, true, p->dtype);
    k->gelu(p->out, p->a, N, false, p->dtype);
    k->gelu_back(p->c, p->b, p->a, N, true, false, p->dtype);
    k->gelu_back(p->out + N, p->b, p->a, N, false, false, p->dtype);
    take(p, p->a, sizeof p->a);
    take(p, p->b, sizeof p->b);
    take(p, p->c, sizeof p->c);
    take(p, p->out, sizeof p->out);
}

static const float weight[ROWS] = { 0.01f, 0.01f, 0.01f, 0.01f, 0.01f };

static void run_cross_entropy(probe *p, const sheaf__kernels *k)
{
    const int32_t target[ROWS] = { 0, 200, SHEAF__IGNORED, -1, 300 };
    k->row_max(p->row, p->f, COLS, ROWS, COLS);
    k->row_sumexp(p->sum, p->f, COLS, p->row, ROWS, COLS);
    k->row_dlogits(p->out, COLS, p->f, COLS, p->row, p->sum, target,
                   &(sheaf__label_weights){ weight, 1, 0 }, ROWS, COLS, p->dtype);
    take(p, p->row, sizeof p->row);
    take(p, p->sum, sizeof p->sum);
    take(p, p->out, sizeof p->out);
}

static void run_adamw_dropout(probe *p, const sheaf__kernels *k)
{
    const sheaf__adamw how = { .lr = 1e-3,
                               .beta1 = 0.9,
                               .beta2 = 0.999,
                               .eps = 1e-8,
                               .weight_decay = 0.1,
                               .bias1 = 0.19,
                               .bias2_sqrt = 0.0447,
                               .grad_scale = 0.5f };
    k->adamw(p->f, p->g, p->w, (const float *)p->f, 0, &how);
    float gradient[N];
    twin_fill(gradient, N, SHEAF_F32, TWIN_PLAIN, 7);
    k->adamw(p->f, p->g, p->w, gradient, N, &how);
    take(p, p->f, sizeof p->f);
    take(p, p->g, sizeof p->g);
    take(p, p->w, sizeof p->w);
    const int64_t sample[ROWS] = { 0, 1, 1, 9, 7 }, position[ROWS] = { 0, 0, 1, 77, 5 };
    const sheaf__dropout drop = { .seed = 1,
                                  .purpose = 2,
                                  .step = 3,
                                  .sample = sample,
                                  .position = position,
                                  .channel0 = 31,
                                  .threshold = 0x20000000,
                                  .scale = 1 / 0.875f };
    k->dropout(p->out, p->a, COLS, ROWS, COLS, &drop, p->dtype);
    take(p, p->out, sizeof p->out);
}

static void run_smoothing_noise(probe *p, const sheaf__kernels *k)
{
    static const float half[ROWS] = { 0, 1, 0.01f, 3e8f, -0.5f };
    const int32_t target[ROWS] = { 0, 200, SHEAF__IGNORED, -1, 300 };
    const sheaf__label_weights how = { weight, 0.9f, 0.1f / COLS };
    k->row_max(p->row, p->f, COLS, ROWS, COLS);
    k->row_sumexp(p->sum, p->f, COLS, p->row, ROWS, COLS);
    k->row_dlogits(p->out, COLS, p->f, COLS, p->row, p->sum, target, &how, ROWS, COLS, p->dtype);
    take(p, p->out, sizeof p->out);
    const int64_t sample[ROWS] = { 0, 1, 1, 9, 7 }, position[ROWS] = { 0, 0, 1, 77, 5 };
    k->noise(p->a, COLS, ROWS, COLS,
             &(sheaf__noise){ .seed = 1,
                              .purpose = 2,
                              .step = 3,
                              .sample = sample,
                              .position = position,
                              .half = half },
             p->dtype);
    take(p, p->a, sizeof p->a);
}

static void run_geglu_softcap(probe *p, const sheaf__kernels *k)
{
    k->swiglu(p->out, p->a, p->b, N, true, p->dtype);
    k->swiglu_back(p->a, p->b, NULL, p->c, p->a, p->b, N, true, p->dtype);
    k->softcap(p->f, 2.5f, N, p->dtype);
    k->softcap_back(p->c, p->f, 2.5f, N, p->dtype);
    take(p, p->out, sizeof p->out);
    take(p, p->a, sizeof p->a);
    take(p, p->b, sizeof p->b);
    take(p, p->c, sizeof p->c);
    take(p, p->f, sizeof p->f);
}

static void run_gelu_tanh(probe *p, const sheaf__kernels *k)
{
    k->gelu(p->out, p->a, N, true, p->dtype);
    k->gelu_back(p->b, p->c, p->a, N, true, true, p->dtype);
    k->gelu_back(p->a, p->c, p->a, N, false, true, p->dtype);
    take(p, p->out, sizeof p->out);
    take(p, p->b, sizeof p->b);
    take(p, p->a, sizeof p->a);
}

static void run_shrink(probe *p, const sheaf__kernels *k)
{
    int8_t codes[N];
    uint8_t scales[(N + 31) / 32];
    k->shrink(codes, scales, p->a, N, p->dtype);
    k->expand(p->out, codes, scales, N, p->dtype);
    take(p, codes, sizeof codes);
    take(p, scales, sizeof scales);
    take(p, p->out, sizeof p->out);
}

static const struct {
    const char *name;
    void (*run)(probe *p, const sheaf__kernels *k);
    uint64_t want; /* of float32 and bfloat16; changes only with the contract's version */
    uint64_t half; /* of float16 */
} probes[] = {
    { "round, widen, convert", run_moves, UINT64_C(0x5bc0093083fe7e11),
      UINT64_C(0x789725e3fe2cfe75) },
    { "add, scale, finish, accumulate, squares, column_sums", run_sums,
      UINT64_C(0x7e2b19965265e925), UINT64_C(0x16baeb3e5cec6265) },
    { "rmsnorm", run_rmsnorm, UINT64_C(0x5a7675c7a212a39c), UINT64_C(0xe0968ed4e2a325f1) },
    { "rope, swiglu", run_rope_swiglu, UINT64_C(0x40e15f8c0e437eb9), UINT64_C(0xfb50eaab89dfcf69) },
    { "layernorm", run_layernorm, UINT64_C(0x61c12f123c2acbcc), UINT64_C(0x8d0bf039714c07bd) },
    { "rope of pairs, gelu", run_gelu_pairs, UINT64_C(0xc1b684f25f6bcadc),
      UINT64_C(0x648e5d2e32d33f17) },
    { "cross-entropy", run_cross_entropy, UINT64_C(0x2fc3bf92d04d4c25),
      UINT64_C(0x914abe2a84b6c325) },
    { "adamw, dropout", run_adamw_dropout, UINT64_C(0x2b5bb29a7540f4b1),
      UINT64_C(0xb4db4c50f2a5d8f5) },
    { "smoothing, noise", run_smoothing_noise, UINT64_C(0x52961b73f91dc949),
      UINT64_C(0xdaa6a5e9b8844a95) },
    { "geglu, softcap", run_geglu_softcap, UINT64_C(0xd0a7e23d5f4fe174),
      UINT64_C(0x98153ee907fddd09) },
    { "gelu by tanh", run_gelu_tanh, UINT64_C(0x0bd9cdfc97835a21), UINT64_C(0xcc3679610bf89535) },
    { "shrink, expand", run_shrink, UINT64_C(0x9f61c492590c4989), UINT64_C(0x800b64e6099e59ed) },
};

/* One or two types, every kind of number, with and without DAZ and FTZ: one hash. */
static uint64_t probe_hash(size_t which, const sheaf__kernels *k, sheaf_dtype even, sheaf_dtype odd)
{
    static probe p;
    const unsigned before = sheaf__mode();
    p.hash = UINT64_C(0xcbf29ce484222325);
    for (int code = 0; code < 4 * TWIN_KINDS; code += even == odd ? 2 : 1) {
        p.dtype = code & 1 ? odd : even;
        refill(&p, (twin_numbers)(code / 4));
        sheaf__mode_set(code & 2 ? SHEAF__COMPUTE_MODE : SHEAF__MERGE_MODE);
        probes[which].run(&p, k);
        sheaf__compute_mode_leave(before);
    }
    return p.hash;
}

static void same_hash(const char *name, const char *column, uint64_t got, uint64_t want)
{
    if (got != want)
        fail_msg("%s, %s: hash %016llx, frozen %016llx", name, column, (unsigned long long)got,
                 (unsigned long long)want);
}

TEST(test_kernels__give_the_bytes_of_the_contract)
{
    static const char *const columns[] = { "ref", "avx2", "avx512" };
    for (size_t c = 0; c < ARRAY_LEN(columns); c++) {
        const sheaf__kernels *k = sheaf__kernels_for(columns[c]);
        for (size_t i = 0; k != NULL && i < ARRAY_LEN(probes); i++) {
            same_hash(probes[i].name, columns[c], probe_hash(i, k, SHEAF_F32, SHEAF_BF16),
                      probes[i].want);
            same_hash(probes[i].name, columns[c], probe_hash(i, k, SHEAF_F16, SHEAF_F16),
                      probes[i].half);
        }
    }
}
