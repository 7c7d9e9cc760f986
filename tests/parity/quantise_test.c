/* quantise_test.c - codes, scales and restored numbers are bitsandbytes' own, byte for byte.
 *
 * blocks.safetensors and eight_bit.safetensors of $SHEAF_RECORDINGS/quant/bnb_blocks (or of the
 * committed part) were recorded with bitsandbytes on a processor: 4-bit blocks of 32 to 256 with
 * ties, denormals, NaN and incomplete blocks, doubled scales, 8-bit blocks, int8 rows. Which NaN is
 * restored is not compared; and `.dequant_library_avx512` is a mistake of the library (rows that
 * are no multiple of the block), kept beside what its rule gives. */
#include "tests/parity/recorded.h"

#include "catalog/packing.h"
#include "ops/kernels.h"
#include "ops/quant/quantise.h"
#include "tests/recordings.h"

static const sheaf_safetensors *file;

/* NULL where the committed part lacks it. */
static const void *tensor(const char *format, const char *a, const char *b,
                          const sheaf_safetensors_entry **entry)
{
    const char *name = textf(format, a, b);
    *entry = sheaf__safetensors_find(file, name);
    return *entry == NULL ? NULL : raw_of(file, name, NULL);
}

static int64_t elements(const sheaf_safetensors_entry *e)
{
    int64_t n = 1;
    for (int i = 0; i < e->ndim; i++)
        n *= e->shape[i];
    return n;
}

/* Equal, or NaN at the same places. */
static void same_numbers(const char *name, const void *got, const void *want, int64_t n,
                         sheaf_dtype dtype)
{
    for (int64_t i = 0; i < n; i++) {
        const float a = sheaf__load(got, i, dtype), b = sheaf__load(want, i, dtype);
        if (sheaf__bits(a) != sheaf__bits(b) && !(a != a && b != b))
            fail_msg("%s: element %lld is %a, wanted %a", name, (long long)i, a, b);
    }
}

static const struct {
    const char *name;
    int64_t block;
} cases[] = {
    { "normal", 64 },    { "bf16", 64 },
    { "fp16", 64 },      { "block32", 32 },
    { "block128", 128 }, { "block256", 256 },
    { "odd_count", 64 }, { "ragged_last_block", 64 },
    { "ties_nf4", 64 },  { "one_short_block", 64 },
    { "ties_fp4", 64 },  { "zeros", 64 },
    { "denormal", 64 },  { "huge", 64 },
    { "nan_inf", 64 },   { "rows_not_multiple_of_block", 64 },
};

enum { MOST = 128 * 256 };

/* From what the library stored, as one row. */
static void restore(const char *name, const char *suffix, const sheaf__dequantised *of, int64_t n)
{
    static float got[MOST];
    const sheaf_safetensors_entry *e;
    const void *want = tensor("%s.%s", name, suffix, &e);
    if (want == NULL)
        return;
    assert_int_equal(elements(e), n);
    sheaf__dequantised from = *of;
    from.to = e->dtype;
    sheaf__dequantise(got, n, &from, 0, 1);
    same_numbers(name, got, want, n, e->dtype);
}

/* 1; 0 where the committed part lacks it. */
static int one_case(const char *of, int64_t block, const char *kind_name)
{
    static uint8_t codes[MOST + 1], packed[MOST];
    static float absmax[MOST / 32];
    const sheaf_safetensors_entry *in, *e;
    const sheaf__codes kind = kind_name[0] == 'n' ? SHEAF__NF4 : SHEAF__FP4;
    const void *x = tensor("%s.%s", of, "input", &in);
    if (x == NULL)
        return 0;
    const int64_t n = elements(in);
    const char *name = textf("%s.%s", of, kind_name);
    assert_true(n <= MOST);
    sheaf__quantise4(codes, absmax, x, in->dtype, n, block, kind);
    codes[n] = kind == SHEAF__NF4 ? 7 : 0;
    sheaf__plane_put(packed, sheaf__packing_of(SHEAF__BITSANDBYTES, kind)->plane, 1, n, 0, 0, codes,
                     n + n % 2);
    const void *want = tensor("%s.%s", name, "packed", &e);
    CHECK_BYTES(name, packed, want, (n + 1) / 2);
    assert_int_equal(e->bytes, (n + 1) / 2);
    want = tensor("%s.%s", name, "absmax", &e);
    CHECK_BYTES(name, absmax, want, (n + block - 1) / block * 4);
    const sheaf__quant quant = {
        .codes = kind, .grouping = SHEAF__GROUPS_FLAT, .block = block, .dtype = SHEAF_F32
    };
    const sheaf__dequantised whole = { .quant = &quant,
                                       .box = { .in = n, .rows = 1, .cols = n },
                                       .parts = { .codes = codes, .scales = absmax } };
    restore(name, "dequant", &whole, n);
    restore(name, "dequant_bf16", &whole, n);
    return 1;
}

TEST(test_quantise__four_bits_are_those_of_the_library)
{
    file = record(recording("quant/bnb_blocks/blocks.safetensors"));
    int compared = 0;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        compared += one_case(cases[i].name, cases[i].block, "nf4") +
                    one_case(cases[i].name, cases[i].block, "fp4");
    assert_true(compared >= (recordings_are_full() ? 2 * (int)ARRAY_LEN(cases) : 28));
}

/* From the recorded scales, and where the numbers are there from these on. */
static void one_doubled(const char *of, const sheaf__map8 *map)
{
    static uint8_t codes[MOST], scale_codes[MOST];
    static float absmax[MOST / 32], restored[MOST / 32], nested[MOST / 256], offset;
    const sheaf_safetensors_entry *in, *e;
    const float *scales = tensor("%s.%s", of, "nf4.absmax_before", &e);
    const int64_t groups = elements(e), n = groups * 64;
    sheaf__double_scales(scale_codes, nested, &offset, scales, groups, map);
    CHECK_BYTES(of, &offset, tensor("%s.%s", of, "nf4.nested_offset", &e), 4);
    CHECK_BYTES(of, nested, tensor("%s.%s", of, "nf4.nested_absmax", &e), (groups + 255) / 256 * 4);
    CHECK_BYTES(of, scale_codes, tensor("%s.%s", of, "nf4.absmax", &e), groups);
    for (int64_t i = 0; i < groups; i++)
        restored[i] = sheaf__doubled_scale(map->value[scale_codes[i]], nested[i / 256], offset);
    CHECK_BYTES(of, restored, tensor("%s.%s", of, "nf4.absmax_restored", &e), groups * 4);
    const void *x = tensor("%s.%s", of, "input", &in);
    if (x == NULL)
        return;
    sheaf__quantise4(codes, absmax, x, in->dtype, n, 64, SHEAF__NF4);
    CHECK_BYTES(of, absmax, scales, groups * 4);
    const sheaf__quant quant = { .codes = SHEAF__NF4,
                                 .grouping = SHEAF__GROUPS_FLAT,
                                 .block = 64,
                                 .doubled = true,
                                 .dtype = in->dtype };
    restore(of, "nf4.dequant_f32",
            &(sheaf__dequantised){ .quant = &quant,
                                   .box = { .in = n, .rows = 1, .cols = n },
                                   .parts = { .codes = codes, .scale_codes = scale_codes },
                                   .whole = { .nested = nested, .offset = offset } },
            n);
}

TEST(test_quantise__doubled_scales_are_those_of_the_library)
{
    static sheaf__map8 map;
    sheaf__map8_init(&map, true);
    file = record(recording("quant/bnb_blocks/blocks.safetensors"));
    one_doubled("double_quant", &map);
    one_doubled("double_quant_small", &map);
}

TEST(test_quantise__eight_bits_are_those_of_the_library)
{
    static const char *const of[] = { "normal", "wide", "zeros" };
    static sheaf__map8 map;
    static uint8_t codes[1000];
    static float absmax[4], x[1000];
    const sheaf__kernels *k = sheaf__kernels_for(NULL);
    const sheaf_safetensors_entry *in, *e;
    file = record(recording("quant/bnb_blocks/eight_bit.safetensors"));
    for (int i = 0; i < 6; i++) {
        const char *sign = i % 2 == 0 ? "signed" : "unsigned";
        const char *name = textf("%s.%s", of[i / 2], sign);
        sheaf__map8_init(&map, i % 2 == 0);
        CHECK_BYTES(sign, map.value, tensor("%s.%s", "map", sign, &e), 1024);
        const float *input = tensor("%s.%s", name, "input", &in);
        if (input == NULL && !recordings_are_full())
            continue;
        const int64_t n = elements(in);
        for (int64_t at = 0; at < n; at += 256) {
            const int64_t count = n - at < 256 ? n - at : 256;
            float *largest = &absmax[at / 256];
            *largest = k->codes8(codes + at, input + at, count, map.code);
            k->values8(x + at, codes + at, count, *largest, map.value);
        }
        CHECK_BYTES(name, absmax, tensor("%s.%s", name, "absmax", &e), (n + 255) / 256 * 4);
        CHECK_BYTES(name, codes, tensor("%s.%s", name, "q_cpu", &e), n);
        const void *want = tensor("%s.%s", name, "dequant", &e);
        if (want != NULL || recordings_are_full())
            CHECK_BYTES(name, x, want, n * 4);
    }
}

TEST(test_quantise__rows_of_int8_are_those_of_the_library)
{
    enum { ROWS = 24, COLS = 64 };
    static const char *const types[] = { "float32", "bfloat16", "float16" };
    static uint8_t codes[ROWS * COLS];
    static float scb[ROWS], scales[ROWS], merged[ROWS * COLS];
    static uint16_t trained[ROWS * COLS];
    const sheaf_safetensors_entry *in, *e;
    file = record(recording("quant/bnb_blocks/eight_bit.safetensors"));
    for (size_t i = 0; i < ARRAY_LEN(types); i++) {
        const char *t = types[i];
        const void *x = tensor("%s.%s.input", "int8", t, &in);
        if (x == NULL && !recordings_are_full())
            continue;
        sheaf__quantise_rows(codes, scb, x, in->dtype, ROWS, COLS);
        CHECK_BYTES(t, scb, tensor("%s.%s.SCB", "int8", t, &e), sizeof scb);
        CHECK_BYTES(t, codes, tensor("%s.%s.weight", "int8", t, &e), sizeof codes);
        for (int r = 0; r < ROWS; r++)
            scales[r] = sheaf__int8_scale(scb[r]);
        const sheaf__quant quant = { .codes = SHEAF__INT8, .dtype = SHEAF_F32 };
        sheaf__dequantised from = { .quant = &quant,
                                    .box = { .in = COLS, .rows = ROWS, .cols = COLS },
                                    .parts = { .codes = codes, .scales = scb },
                                    .what = SHEAF__VALUES_PROGRAM,
                                    .to = SHEAF_F32 };
        sheaf__dequantise(merged, COLS, &from, 0, ROWS);
        CHECK_BYTES(t, merged, tensor("%s.%s.dequant_f32", "int8", t, &e), sizeof merged);
        from.parts.scales = scales, from.what = SHEAF__VALUES_BACK, from.to = SHEAF_BF16;
        sheaf__dequantise(trained, COLS, &from, 0, ROWS);
        CHECK_BYTES(t, trained, tensor("%s.%s.dequant_bf16_as_in_training", "int8", t, &e),
                    sizeof trained);
    }
}

/* Blocks of block x block elements: a block row's scale is each of its rows'. */
static void float8_blocks(const char *name, int64_t block)
{
    static float scales[256 * 8], got[256 * 256];
    const sheaf_safetensors_entry *w, *e;
    const void *codes = tensor("%s%s", name, ".weight", &w);
    if (codes == NULL && !recordings_are_full())
        return;
    const int64_t rows = w->shape[0], cols = w->shape[1], groups = (cols + block - 1) / block;
    const float *inverse = tensor("%s%s", name, ".weight_scale_inv", &e);
    for (int64_t i = 0; i < rows * groups; i++)
        scales[i] = inverse[i / groups / block * groups + i % groups];
    const sheaf__quant quant = { .codes = SHEAF__F8_E4M3, .block = block, .dtype = SHEAF_F32 };
    const sheaf__dequantised from = { .quant = &quant,
                                      .box = { .in = cols, .rows = rows, .cols = cols },
                                      .parts = { .codes = (uint8_t *)codes, .scales = scales },
                                      .to = SHEAF_F32 };
    sheaf__dequantise(got, cols, &from, 0, rows);
    same_numbers(name, got, tensor("%s%s", name, ".dequant", &e), rows * cols, SHEAF_F32);
}

TEST(test_quantise__float8_is_that_of_its_rule)
{
    const sheaf_safetensors_entry *e;
    float got[256];
    file = record(recording("quant/fp8_block/tensors.safetensors"));
    const uint8_t *bytes = tensor("%s%s", "e4m3_all_256_bytes", "", &e);
    for (int i = 0; i < 256; i++)
        got[i] = sheaf__f8_value(bytes[i]);
    same_numbers("all", got, tensor("%s%s", "e4m3_all_256_values", "", &e), 256, SHEAF_F32);
    float8_blocks("even", 32);
    float8_blocks("ragged", 128);
}

/* Three steps of AdamW8bit: codes and absmax as they are, weights at most one rounding off, of
 * which the library's order has no name (of 4,648 numbers at most 3 were, where it was found). */
TEST(test_quantise__the_optimizer_is_that_of_the_library)
{
    enum { N = 4648, BLOCKS = (N + 255) / 256, OFF = 3 }; /* two blocks of the committed part */
    static sheaf__map8 map[2];
    static float p[N], absmax[2][BLOCKS];
    static uint8_t codes[2][N];
    const sheaf_safetensors_entry *e;
    sheaf__map8_init(&map[0], true);
    sheaf__map8_init(&map[1], false);
    file = record(recording("quant/bnb_blocks/adamw8bit.safetensors"));
    const float *first = tensor("%s%s", "param.0", "", &e);
    const int64_t n = elements(e), blocks = (n + 255) / 256;
    assert_true(n <= N && (n == N || !recordings_are_full()));
    memcpy(p, first, (size_t)n * sizeof *p);
    for (int step = 1; step <= 3; step++) {
        char t[2] = { (char)('0' + step) };
        const float *grad = tensor("%s.%s", "grad", t, &e);
        const sheaf__adamw how = { .lr = 0.003,
                                   .beta1 = 0.9,
                                   .beta2 = 0.995,
                                   .eps = 1e-8,
                                   .weight_decay = 0.05,
                                   .bias1 = 1 - pow(0.9, step),
                                   .bias2_sqrt = sqrt(1 - pow(0.995, step)),
                                   .grad_scale = 1 };
        const sheaf__moments8 to = { codes[0], codes[1], absmax[0], absmax[1], map };
        sheaf__kernels_for(NULL)->adamw8(p, &to, grad, n, &how);
        CHECK_BYTES("m", codes[0], tensor("%s.%s", "state1", t, &e), n);
        CHECK_BYTES("v", codes[1], tensor("%s.%s", "state2", t, &e), n);
        CHECK_BYTES("m's absmax", absmax[0], tensor("%s.%s", "absmax1", t, &e), blocks * 4);
        CHECK_BYTES("v's absmax", absmax[1], tensor("%s.%s", "absmax2", t, &e), blocks * 4);
        const float *want = tensor("%s.%s", "param", t, &e);
        int off = 0;
        for (int64_t i = 0; i < n; i++) {
            off += p[i] != want[i];
            CHECK_NEAR("parameter", p[i], want[i], fabsf(want[i]) * 0x1p-22);
        }
        assert_true(off <= OFF);
        memcpy(p, want, (size_t)n * sizeof *p);
    }
}
