/* quantising_test.c - every box of a tensor that is quantised while it is read has the codes,
 * scales and values of the whole tensor, whatever its width, and from several threads. */
#include "tests/check.h"

#include <pthread.h>

#include "base/base.h"
#include "catalog/quantising.h"
#include "ops/quant/quantise.h"
#include "tests/fake_source.h"

enum { MOST = 40 * 200, LARGE = 3000 * 192 };

typedef struct plain {
    fake_source fake; /* first */
    float x[LARGE];
    uint16_t half[MOST];
    int reads, closed;
} plain;

static plain base;

static sheaf_status *read_plain(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, void *dst)
{
    plain *p = (plain *)self;
    const sheaf_source_entry *e = fake_find(self, name);
    const size_t bytes = sheaf_dtype_bytes(e->dtype);
    const char *from = e->dtype == SHEAF_F32 ? (const char *)p->x : (const char *)p->half;
    p->reads++;
    for (int64_t r = 0; r < rows; r++)
        memcpy((char *)dst + (size_t)(r * cols) * bytes,
               from + (size_t)((row0 + r) * e->shape[1] + col0) * bytes, (size_t)cols * bytes);
    return NULL;
}

static void close_plain(sheaf_source *self)
{
    ((plain *)self)->closed++;
}

static bool all(void *self, const char *name)
{
    return strcmp(name, "not") != 0;
}

/* One tensor of this shape, quantised. */
static sheaf_source *quantised(sheaf_quantize as, sheaf_dtype dtype, int64_t rows, int64_t cols)
{
    uint32_t state = 7;
    for (int64_t i = 0; i < rows * cols; i++) {
        state = state * 1664525u + 1013904223u;
        base.x[i] = ((float)(state >> 8) / 16777216.0f - 0.5f) * (float)(1 + i % 67);
        if (dtype == SHEAF_BF16)
            base.half[i] = (uint16_t)(state >> 20 | 0x3c00);
    }
    base.fake =
        (fake_source){ .source = { fake_find, fake_count, fake_entry, read_plain, close_plain },
                       .n = 2,
                       .entry = { { "a", dtype, 2, { rows, cols } },
                                  { "not", dtype, 2, { rows, cols } } } };
    base.closed = base.reads = 0;
    sheaf_source *source = &base.fake.source;
    CHECK_OK(sheaf__quantise(&source, as, all, NULL));
    return source;
}

/* The whole tensor at once. */
typedef struct whole {
    uint8_t codes[MOST], scale_codes[MOST];
    float scales[MOST], nested[64], offset;
} whole;

static void quantise_whole(whole *w, const sheaf__quant *q, sheaf_dtype dtype, int64_t rows,
                           int64_t cols)
{
    static sheaf__map8 map;
    const void *x = dtype == SHEAF_F32 ? (const void *)base.x : (const void *)base.half;
    const int64_t n = rows * cols;
    if (q->block == 0) {
        sheaf__quantise_rows(w->codes, w->scales, x, dtype, rows, cols);
        return;
    }
    sheaf__quantise4(w->codes, w->scales, x, dtype, n, q->block, q->codes);
    sheaf__map8_init(&map, true);
    sheaf__double_scales(w->scale_codes, w->nested, &w->offset, w->scales,
                         (n + q->block - 1) / q->block, &map);
}

static void check_box(sheaf_source *s, const sheaf__quant *q, const whole *w, sheaf__quant_box b)
{
    static uint8_t codes[MOST], scale_codes[MOST];
    static float scales[MOST];
    const int64_t groups = sheaf__quant_groups(q, &b);
    const sheaf__quant_parts parts = { codes, scales, scale_codes, NULL };
    CHECK_OK(sheaf__source_codes(s, "a", b.row0, b.rows, b.col0, b.cols, &parts));
    for (int64_t r = 0; r < b.rows; r++)
        for (int64_t c = 0; c < b.cols; c++) {
            const int64_t at = (b.row0 + r) * b.in + b.col0 + c,
                          g = q->block == 0 ? 0 : (sheaf__quant_phase(q, &b, r) + c) / q->block,
                          want = q->block == 0 ? b.row0 + r : at / q->block;
            assert_int_equal(codes[r * b.cols + c], w->codes[at]);
            if (q->doubled)
                assert_int_equal(scale_codes[r * groups + g], w->scale_codes[want]);
            else if (q->block == 0)
                assert_true(scales[r] == sheaf__int8_scale(w->scales[want]));
            else
                assert_true(scales[r * groups + g] == w->scales[want]);
        }
}

TEST(test_boxes__are_those_of_the_whole_tensor)
{
    static const int64_t width[] = { 1, 17, 63, 64, 65, 100, 128, 192, 200 };
    static whole w;
    for (int as = SHEAF_QUANTIZE_NF4; as <= SHEAF_QUANTIZE_INT8; as++)
        for (size_t i = 0; i < ARRAY_LEN(width); i++) {
            const sheaf_dtype dtype = i % 2 == 0 ? SHEAF_F32 : SHEAF_BF16;
            const int64_t in = width[i], rows = 37;
            sheaf_source *s = quantised((sheaf_quantize)as, dtype, rows, in);
            const sheaf__quant *q = sheaf__source_form(s, "a");
            assert_non_null(q);
            assert_null(sheaf__source_form(s, "not"));
            assert_int_equal(q->dtype, dtype);
            quantise_whole(&w, q, dtype, rows, in);
            for (int64_t row0 = 0; row0 < rows; row0 += 9)
                for (int64_t col0 = 0; col0 < in; col0 += 1 + in / 5)
                    for (int64_t cols = 1; col0 + cols <= in; cols += 1 + in / 3)
                        check_box(s, q, &w,
                                  (sheaf__quant_box){ in, row0, rows - row0, col0, cols });
            check_box(s, q, &w, (sheaf__quant_box){ in, 0, rows, 0, in });
            float nested[64] = { 0 };
            sheaf__quant_whole of = { .nested = nested };
            CHECK_OK(sheaf__source_whole(s, "a", &of));
            for (int64_t k = 0; k < sheaf__quant_nested(q, rows * in); k++)
                assert_true(nested[k] == w.nested[k] && of.offset == w.offset);
            s->close(s);
            assert_int_equal(base.closed, 1);
        }
}

/* read() gives what the codes stand for, in the stored type. */
TEST(test_values__are_dequantised)
{
    static whole w;
    static float got[MOST], want[MOST];
    for (int as = SHEAF_QUANTIZE_NF4; as <= SHEAF_QUANTIZE_INT8; as++) {
        const int64_t rows = 20, in = 100;
        sheaf_source *s = quantised((sheaf_quantize)as, SHEAF_F32, rows, in);
        const sheaf__quant *q = sheaf__source_form(s, "a");
        quantise_whole(&w, q, SHEAF_F32, rows, in);
        float map[256];
        sheaf__dynamic_map(map, true);
        for (int64_t i = 0; q->doubled && i < (rows * in + 63) / 64; i++)
            w.scales[i] = sheaf__doubled_scale(map[w.scale_codes[i]], w.nested[i / 256], w.offset);
        for (int64_t i = 0; i < rows * in; i++) {
            const float v = sheaf__code_value(q->codes, w.codes[i]);
            want[i] = q->block == 0 ? v * w.scales[i / in] * 0x1.020408p-7f : v * w.scales[i / 64];
        }
        for (int64_t col0 = 0; col0 < in; col0 += 33) {
            CHECK_OK(s->read(s, "a", 3, rows - 3, col0, in - col0, got));
            for (int64_t r = 3; r < rows; r++)
                CHECK_BYTES("values", got + (r - 3) * (in - col0), want + r * in + col0,
                            (size_t)(in - col0) * sizeof *got);
        }
        s->close(s);
    }
}

static void *ask(void *arg)
{
    sheaf_source *s = arg;
    float *nested = calloc(64, sizeof *nested);
    uint8_t *memory = calloc(2, LARGE);
    sheaf__quant_whole of = { .nested = nested };
    CHECK_OK(sheaf__source_whole(s, "a", &of));
    CHECK_OK(sheaf__source_codes(
        s, "a", 0, 3000, 0, 192,
        &(sheaf__quant_parts){ .codes = memory, .scale_codes = memory + LARGE }));
    free(nested);
    return memory;
}

TEST(test_doubled_scales__are_made_once_for_all_threads)
{
    enum { THREADS = 4 };
    pthread_t thread[THREADS];
    void *got[THREADS];
    sheaf_source *s = quantised(SHEAF_QUANTIZE_NF4_DOUBLE, SHEAF_F32, 3000, 192);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, ask, s), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(thread[i], &got[i]);
    for (int i = 1; i < THREADS; i++) {
        CHECK_BYTES("threads", got[i], got[0], 2 * LARGE);
        free(got[i]);
    }
    free(got[0]);
    const int each = 72; /* 2.3 MB, 32 KiB at a time */
    assert_in_range(base.reads, each, each * (THREADS + 1) + 1);
    s->close(s);
}

TEST(test_bad_bases__are_refused)
{
    sheaf_source *s = quantised(SHEAF_QUANTIZE_NF4, SHEAF_F32, 8, 64);
    CHECK_FAILS(sheaf__quantise(&s, SHEAF_QUANTIZE_INT8, all, NULL), SHEAF_E_UNSUPPORTED,
                "quantised already");
    float values[64];
    uint8_t codes[64];
    base.x[5 * 64] = NAN;
    CHECK_FAILS(sheaf__source_codes(s, "a", 5, 1, 0, 64,
                                    &(sheaf__quant_parts){ .codes = codes, .scales = values }),
                SHEAF_E_NUMBER, "'a', row 5");
    s->close(s);
    base.fake.entry[0].ndim = 1;
    s = &base.fake.source;
    CHECK_FAILS(sheaf__quantise(&s, SHEAF_QUANTIZE_INT8, all, NULL), SHEAF_E_UNSUPPORTED, "axes");
    assert_ptr_equal(s, &base.fake.source);
    s = quantised(SHEAF_QUANTIZE_INT8, SHEAF_F32, 8, 64);
    base.x[64] = 1e6f; /* no float16 */
    CHECK_FAILS(s->read(s, "a", 0, 8, 0, 64, values), SHEAF_E_NUMBER, "float16's range");
    s->close(s);
}
