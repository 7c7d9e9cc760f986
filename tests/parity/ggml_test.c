/* ggml_test.c - blocks of ggml's types: recorded bytes from recorded numbers, and recorded numbers
 * from recorded bytes, bit for bit. */
#include "tests/parity/recorded.h"
#include "tests/recordings.h"

#include "base/base.h"
#include "ops/quant/ggml.h"

static const sheaf_safetensors *file;

/* NULL: there is none. */
static void *read_whole(const char *name, const char *part, int64_t *bytes)
{
    const char *full = textf("%s%s", name, part);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, full);
    *bytes = e == NULL ? 0 : e->bytes;
    return e == NULL ? NULL : raw_of(file, full, NULL);
}

TEST(test_blocks__are_ggmls)
{
    int64_t size = 0, want_size = 0, values_size = 0;
    float *x = read_whole("x", "", &size);
    int read = 0, written = 0;
    for (int type = 0; type < SHEAF__GGML_TYPES; type++) {
        const sheaf__gguf_type_row *row = sheaf__gguf_type_at(type);
        void *bytes = row->elements > 1 ? read_whole(row->name, ".bytes", &want_size) : NULL;
        if (bytes == NULL)
            continue;
        float *values = read_whole(row->name, ".values", &values_size);
        const int64_t n = size / 4;
        assert_int_equal(values_size, size);
        assert_int_equal(want_size, n / row->elements * row->bytes);
        float *got = room((size_t)size);
        sheaf__ggml_values(got, bytes, (sheaf__gguf_type)type, n);
        CHECK_BYTES(row->name, got, values, (size_t)size);
        read++;
        if (sheaf__ggml_writes((sheaf__gguf_type)type)) {
            void *made = room((size_t)want_size);
            sheaf__ggml_blocks(made, x, (sheaf__gguf_type)type, n);
            CHECK_BYTES(row->name, made, bytes, (size_t)want_size);
            written++;
        }
    }
    assert_int_equal(read, 8);
    assert_int_equal(written, 6);
}

/* Numbers as halves, recorded as integers. */
TEST(test_halves__are_ggmls)
{
    static const struct {
        const char *name;
        sheaf__gguf_type type;
    } rows[] = { { "half.f16", SHEAF__GGML_F16 }, { "half.bf16", SHEAF__GGML_BF16 } };
    int64_t size = 0, other = 0;
    float *x = read_whole("half.x", "", &size);
    const int64_t n = size / 4;
    uint16_t *got = room((size_t)n * 2);
    for (size_t k = 0; k < ARRAY_LEN(rows); k++) {
        int32_t *want = read_whole(rows[k].name, "", &other);
        assert_int_equal(other, size);
        sheaf__ggml_blocks(got, x, rows[k].type, n);
        for (int64_t i = 0; i < n; i++)
            if (x[i] == x[i] && got[i] != (uint16_t)want[i])
                fail_msg("%s: %a gives %04x, wanted %04x", rows[k].name, (double)x[i], got[i],
                         (unsigned)want[i] & 0xffff);
    }
}

/* Values of two types that no recording has, worked out by hand. */
TEST(test_values__q2_k_and_q3_k_by_hand)
{
    uint8_t q2[84] = { 0 }, q3[110] = { 0 };
    float y[256];
    q2[0] = 0x35;      /* elements 0 to 15: s 5, n 3 */
    q2[2] = 0x21;      /* 32 to 47: s 1, n 2 */
    q2[16] = 0x0e;     /* element 0: 2; 32: 3 */
    q2[80 + 1] = 0x38; /* d: 0.5 */
    q2[82 + 1] = 0x3c; /* m: 1 */
    sheaf__ggml_values(y, q2, SHEAF__GGML_Q2_K, 256);
    assert_true(y[0] == 0.5f * 5 * 2 - 3 && y[1] == -3 && y[32] == 0.5f * 3 - 2 && y[33] == -2 &&
                y[128] == 0);
    q3[0] = 0x02;  /* the third bit of element 32 */
    q3[32] = 0x06; /* element 0: 2; 32: 1 */
    q3[96] = 0x07; /* s of elements 0 to 15: 7 and 16 twice, of 128 to 143: 0 */
    q3[104] = 0x02;
    q3[98] = 0x05;      /* of 32 to 47: 5 */
    q3[108 + 1] = 0x3c; /* d: 1 */
    sheaf__ggml_values(y, q3, SHEAF__GGML_Q3_K, 256);
    assert_true(y[0] == (7 + 32 - 32) * (2 - 4) && y[32] == (5 - 32) * 1);
    assert_true(y[1] == 7 * -4 && y[33] == (5 - 32) * -4 && y[128] == -32 * -4);
}

static int open_file(void **state)
{
    file = record(recording("gguf/blocks.safetensors"));
    return 0;
}

FIXTURE(open_file, NULL);
