/* Converting: numbers, there and back through every form, what is refused, what a failure
 * leaves. */
#include "tests/made_sat.h"

#include <inttypes.h>

#include "base/thread.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/tools/verify.h"
#include "checkpoint/tools/init.h"
#include "formats/safetensors.h"
#include "tests/faults/faults.h"

/* ---- numbers ---- */

/* The value of a finite float16 or bfloat16's bits without sign; of the first infinite ones, the
 * next number. */
static double half_value(uint32_t h)
{
    return h < 0x400 ? ldexp(h, -24) : ldexp(1024 + (h & 0x3ff), (int)(h >> 10) - 25);
}
static double bfloat_value(uint32_t h)
{
    return h < 0x80 ? ldexp(h, -133) : ldexp(128 + (h & 0x7f), (int)(h >> 7) - 134);
}

/* The number nearest to x, even where two are, by looking at both neighbours. */
static uint16_t nearest(double x, double (*value)(uint32_t), uint32_t infinite)
{
    const double size = fabs(x);
    uint32_t low = 0, high = infinite;
    if (isinf(x) || size >= value(infinite))
        return (uint16_t)(infinite | (signbit(x) ? 0x8000 : 0));
    while (high - low > 1) { /* low <= size < high */
        const uint32_t middle = (low + high) / 2;
        *(value(middle) <= size ? &low : &high) = middle;
    }
    const double down = size - value(low), up = value(high) - size;
    const uint32_t near = down < up || (down == up && low % 2 == 0) ? low : high;
    return (uint16_t)(near | (signbit(x) ? 0x8000 : 0));
}

static uint16_t half_of(double x)
{
    return nearest(x, half_value, 0x7c00);
}
static uint16_t bfloat_of(double x)
{
    return nearest(x, bfloat_value, 0x7f80);
}

TEST(test_convert__small_numbers_survive_the_way_up_and_down)
{
    for (uint32_t i = 0; i < 0x10000; i++) {
        uint16_t h = (uint16_t)i, back;
        float f;
        const float size = (h & 0x7fff) < 0x7c00 ? (float)half_value(h & 0x7fff) : INFINITY,
                    want = h & 0x8000 ? -size : size;
        assert_true(sheaf__dtype_convert(&f, SHEAF_F32, &h, SHEAF_F16, 1));
        if ((i & 0x7fff) <= 0x7c00)
            CHECK_BYTES("up", &f, &want, 4);
        assert_true(sheaf__dtype_convert(&back, SHEAF_F16, &f, SHEAF_F32, 1));
        if ((i & 0x7fff) <= 0x7c00)
            assert_int_equal(back, h);
        else
            assert_true((back & 0x7c00) == 0x7c00 && (back & 0x3ff) != 0);
        assert_true(sheaf__dtype_convert(&f, SHEAF_F32, &h, SHEAF_BF16, 1));
        assert_true(sheaf__dtype_convert(&back, SHEAF_BF16, &f, SHEAF_F32, 1));
        assert_true(back == h || ((h & 0x7fff) > 0x7f80 && back == (h | 0x40)));
    }
}

static void check_number(double d)
{
    const float f = (float)d;
    float single;
    uint16_t half, bfloat;
    const bool fits = sheaf__dtype_convert(&single, SHEAF_F32, &d, SHEAF_F64, 1);
    CHECK_BYTES("double to float32", &single, &f, 4);
    assert_int_equal(fits, !isinf(f) || isinf(d));
    const bool half_fits = sheaf__dtype_convert(&half, SHEAF_F16, &d, SHEAF_F64, 1);
    if (half != half_of(d))
        fail_msg("%a in float16: %04x, not %04x", d, half, half_of(d));
    assert_int_equal(half_fits, (half & 0x7fff) != 0x7c00 || isinf(d));
    sheaf__dtype_convert(&half, SHEAF_F16, &f, SHEAF_F32, 1);
    if (half != half_of(f))
        fail_msg("%a in float16: %04x, not %04x", f, half, half_of(f));
    sheaf__dtype_convert(&bfloat, SHEAF_BF16, &d, SHEAF_F64, 1);
    if (bfloat != bfloat_of(d))
        fail_msg("%a in bfloat16: %04x, not %04x", d, bfloat, bfloat_of(d));
    sheaf__dtype_convert(&bfloat, SHEAF_BF16, &f, SHEAF_F32, 1);
    if (bfloat != bfloat_of(f))
        fail_msg("%a in bfloat16: %04x, not %04x", f, bfloat, bfloat_of(f));
}

TEST(test_convert__numbers_are_rounded_once_to_nearest_even)
{
    for (int64_t i = 0; i < 100000; i++) {
        const uint64_t a = made_mix((uint64_t)i), b = made_mix(a);
        const int exponent =
            (int)(a % 300) - 160; /* float32's range, its denormals, and beyond both */
        const double fraction = 1 + (double)(b >> 12) * 0x1p-52;
        check_number(ldexp(b & 1 ? -fraction : fraction, exponent));
        check_number(ldexp(1 + (double)(b >> 60) / 16, exponent)); /* ties */
        check_number(ldexp(1 + (double)(b >> 56) / 256 + (b & 1) * 0x1p-50,
                           exponent)); /* and next to them */
    }
    static const double special[] = { 0,
                                      -0.0,
                                      INFINITY,
                                      -INFINITY,
                                      65504,
                                      65519.99,
                                      65520,
                                      0x1p-24,
                                      0x1p-25,
                                      0x1.000001p-25,
                                      0x1p-149,
                                      0x1p-150,
                                      0x1.8p-150,
                                      3.4028234663852886e38,
                                      3.4028235677973366e38,
                                      0x1p-1074,
                                      -0x1p-1030 };
    for (size_t i = 0; i < ARRAY_LEN(special); i++)
        check_number(special[i]);
    const unsigned mode = sheaf__compute_mode_enter();
    uint16_t h;
    const float tiny = 0x1p-130f;
    sheaf__dtype_convert(&h, SHEAF_BF16, &tiny, SHEAF_F32, 1);
    sheaf__compute_mode_leave(mode);
    assert_int_equal(h, 0x0008); /* 2^-130 = 8 * 2^-133 */
}

/* ---- there and back ---- */

static sheaf_status *convert_to(const char *src, const char *dst, const char *to,
                                sheaf_weights_convert_options how)
{
    sheaf_weights_convert_report report;
    how.src = src;
    how.dst = dst;
    how.to = to;
    how.step = how.step == 0 ? -1 : how.step;
    return sheaf_convert(&report, &how);
}

static void print_difference(void *context, const sheaf_diff_item *item)
{
    print_message("%s differs\n", item->name);
}

static void same_models(const char *a, const char *b)
{
    sheaf_weights_diff_report report;
    CHECK_OK(
        sheaf_diff(&report, a, b, &(sheaf_weights_diff_options){ .on_item = print_difference }));
    if (report.different > 0 || report.tensors == 0)
        fail_msg("%s and %s differ", a, b);
}

static int64_t step_of(const char *path)
{
    sheaf_verify_report report;
    CHECK_OK(sheaf_verify(&report, path, &(sheaf_weights_verify_options){ .threads = 2 }));
    const int64_t step = report.catalog->step;
    want_defects(report.catalog, 0);
    sheaf_verify_release(&report);
    return step;
}

static uint64_t draw(uint64_t *state, uint64_t below)
{
    return (*state = made_mix(*state)) % below;
}

TEST(test_convert__sat_there_and_back_keeps_everything)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    uint64_t seed = 20261121;
    for (int trial = 0; trial < 12; trial++) {
        made m = { .agent = draw(&seed, 2) == 1,
                   .layers = 1 + (int64_t)draw(&seed, 3),
                   .heads = 4 << draw(&seed, 2),
                   .ffn = 8 + 8 * (int64_t)draw(&seed, 3),
                   .vocab = 1000 + 8 * (int64_t)draw(&seed, 20),
                   .dtype = dtypes[draw(&seed, 3)],
                   .seed = seed };
        static const int possible[] = { 1, 2, 4 };
        const int first = possible[draw(&seed, 3)], last = possible[draw(&seed, 3)];
        const int64_t step = 1 + (int64_t)draw(&seed, 100000);
        const char *a = textf("%s-%d", at("sat-a"), trial);
        const char *b = textf("%s-%d", at("sat-b"), trial);
        const char *c = textf("%s-%d", at("sat-c"), trial);
        const char *d = textf("%s-%d", at("sat-d"), trial);
        made_init(&m);
        made_write(&m, a, first, step);
        CHECK_OK(convert_to(a, b, "hf",
                            (sheaf_weights_convert_options){
                                .threads = 2, .shard_bytes = trial % 2 == 0 ? 3000 : 0 }));
        same_models(a, b);
        step_of(b);
        CHECK_OK(convert_to(a, c, "sheaf",
                            (sheaf_weights_convert_options){ .slices = 1 << draw(&seed, 5),
                                                             .threads = 1 + (int)draw(&seed, 3) }));
        same_models(b, c);
        assert_int_equal(step_of(c), step);
        CHECK_OK(convert_to(c, d, "sat", (sheaf_weights_convert_options){ .tp = last }));
        assert_int_equal(step_of(d), step);
        sheaf_source *back = as_source(sat_read_at(d));
        same_sources(&m.source, back, 0);
        back->close(back);
        made_release(&m);
    }
}

static void put_llama(const char *path, uint64_t *seed, bool tied)
{
    const int64_t kv = 1 + (int64_t)draw(seed, 3), groups = 1 + (int64_t)draw(seed, 3),
                  head = 2 * (1 + (int64_t)draw(seed, 4));
    const char *text = textf(
        "{\"model_type\": \"%s\", \"vocab_size\": %d, \"hidden_size\": %d, \"intermediate_size\": %d, \"num_hidden_layers\": %d,"
        " \"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"rms_norm_eps\": 1e-5, \"max_position_embeddings\": 64,"
        " \"tie_word_embeddings\": %s}",
        draw(seed, 2) == 0 ? "llama" : "qwen2", 11 + (int)draw(seed, 300),
        (int)(kv * groups * head), 7 + (int)draw(seed, 40), 1 + (int)draw(seed, 3),
        (int)(kv * groups), (int)kv, tied ? "true" : "false");
    put(path, text);
}

TEST(test_convert__llama_there_and_back_keeps_everything)
{
    static const sheaf_dtype dtypes[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    uint64_t seed = 42;
    for (int trial = 0; trial < 12; trial++) {
        sheaf_weights_init_report made;
        const char *spec = textf("%s-%d.json", at("spec"), trial);
        const char *a = textf("%s-%d", at("hf-a"), trial);
        const char *b = textf("%s-%d", at("hf-b"), trial);
        const char *c = textf("%s-%d", at("hf-c"), trial);
        const char *d = textf("%s-%d", at("hf-d"), trial);
        put_llama(spec, &seed, trial % 3 == 0);
        CHECK_OK(sheaf_init(
            &made, &(sheaf_weights_init_options){
                       .spec = spec, .dst = a, .seed = seed, .dtype = dtypes[trial % 3] }));
        CHECK_OK(convert_to(
            a, b, "sheaf",
            (sheaf_weights_convert_options){ .slices = 1 << draw(&seed, 6), .threads = 2 }));
        CHECK_OK(convert_to(b, c, "hf",
                            (sheaf_weights_convert_options){ .threads = 1, .shard_bytes = 2000 }));
        CHECK_OK(convert_to(c, d, "hf", (sheaf_weights_convert_options){ .threads = 3 }));
        same_models(a, b);
        same_models(a, c);
        step_of(b);
        check_same_files(textf("%s/model.safetensors", a), textf("%s/model.safetensors", d));
    }
}

/* ---- dtypes ---- */

TEST(test_convert__what_would_become_infinite_is_refused)
{
    static const sheaf_safetensors_spec spec = { "x", SHEAF_F32, 1, { 4 } };
    static const float big[4] = { 1, -70000, 2, 3 };
    sheaf_safetensors_writer *w = NULL;
    CHECK_OK(sheaf__make_dirs(at("big")));
    CHECK_OK(sheaf__safetensors_begin(&w, at("big/model.safetensors"), &spec, 1, NULL, 0));
    CHECK_OK(sheaf__safetensors_write(w, 0, 0, big, sizeof big));
    CHECK_OK(sheaf__safetensors_finish(w));
    CHECK_FAILS(convert_to(at("big"), at("big-half"), "hf",
                           (sheaf_weights_convert_options){ .dtype = SHEAF_F16 }),
                SHEAF_E_NUMBER, "tensor 'x'");
    assert_int_equal(sheaf__path_kind(at("big-half")), SHEAF_PATH_NONE);
    CHECK_OK(convert_to(at("big"), at("big-bf"), "hf",
                        (sheaf_weights_convert_options){ .dtype = SHEAF_BF16 }));
}

/* ---- what is refused ---- */

TEST(test_convert__refuses_what_cannot_be)
{
    made m = { .seed = 3 };
    made_init(&m);
    made_write(&m, at("r"), 2, 5);
    const int64_t before = entries(scratch.dir);
    CHECK_FAILS(convert_to(at("r"), at("r-out"), "dcp", (sheaf_weights_convert_options){ 0 }),
                SHEAF_E_ARG, "hf, sat, peft, sheaf, gguf, gguf-lora or gguf-mmproj");
    CHECK_FAILS(convert_to(at("r"), at("r-out"), "sat", (sheaf_weights_convert_options){ .tp = 3 }),
                SHEAF_E_ARG, "");
    CHECK_FAILS(convert_to(at("r"), at("r-out"), "hf", (sheaf_weights_convert_options){ .tp = 2 }),
                SHEAF_E_ARG, "`tp 2`");
    CHECK_FAILS(convert_to(at("r"), at("r-out"), "hf",
                           (sheaf_weights_convert_options){ .optimizer = true }),
                SHEAF_E_LAYOUT, "moments");
    CHECK_FAILS(convert_to(at("r"), at("r-out"), "peft", (sheaf_weights_convert_options){ 0 }),
                SHEAF_E_LAYOUT, "");
    CHECK_FAILS(convert_to(at("r"), at("r-out"), "hf",
                           (sheaf_weights_convert_options){ .from = "nothing" }),
                SHEAF_E_ARG, "`from nothing`");
    CHECK_FAILS(convert_to(at("r"), at("r"), "hf", (sheaf_weights_convert_options){ 0 }),
                SHEAF_E_ARG, "which is read");
    CHECK_FAILS(convert_to(at("nowhere"), at("r-out"), "hf", (sheaf_weights_convert_options){ 0 }),
                SHEAF_E_IO, "nothing there");
    CHECK_OK(sheaf__remove_tree(at("r/5/mp_rank_01_model_states.pt")));
    CHECK_FAILS(convert_to(at("r"), at("r-out"), "hf", (sheaf_weights_convert_options){ 0 }),
                SHEAF_E_LAYOUT, "missing");
    assert_int_equal(entries(scratch.dir), before);
    made_release(&m);
}

TEST(test_convert__stops_when_asked_and_leaves_nothing)
{
    static const char *const forms[] = { "hf", "sat", "sheaf" };
    sheaf_control stop = { .stop = 1 };
    made m = { .seed = 4 };
    made_init(&m);
    made_write(&m, at("s"), 1, 5);
    const int64_t before = entries(scratch.dir);
    for (int i = 0; i < 3; i++)
        CHECK_FAILS(convert_to(at("s"), at("s-out"), forms[i],
                               (sheaf_weights_convert_options){ .control = &stop }),
                    SHEAF_E_STOPPED, "stop");
    assert_int_equal(entries(scratch.dir), before);
    made_release(&m);
}

/* ---- failures ---- */

TEST(test_convert__each_call_that_writes_fails_once)
{
    static const char *const forms[] = { "hf", "sat", "sheaf" };
    made m = { .layers = 1, .vit_layers = 1, .seed = 5 };
    made_init(&m);
    made_write(&m, at("f"), 2, 7);
    for (int i = 0; i < 3; i++) {
        sheaf_faults count = { .op = SHEAF_FAULT_ANY };
        CHECK_OK(UNDER(&count, convert_to(at("f"), at("f-out"), forms[i],
                                          (sheaf_weights_convert_options){ 0 })));
        CHECK_OK(sheaf__remove_tree(at("f-out")));
        const int64_t calls = atomic_load(&count.seen), before = entries(scratch.dir);
        assert_true(calls > 10);
        for (int64_t n = 1; n <= calls; n += calls > 120 ? 5 : 1) {
            sheaf_faults faults = { .op = SHEAF_FAULT_ANY, .action = SHEAF_FAULT_FAIL, .n = n };
            sheaf_status *st = UNDER(&faults, convert_to(at("f"), at("f-out"), forms[i],
                                                         (sheaf_weights_convert_options){ 0 }));
            const bool there = sheaf__path_kind(at("f-out")) != SHEAF_PATH_NONE;
            if (there)
                same_models(at("f"), at("f-out")); /* only the last fsync may have failed */
            if (st == NULL && !there)
                fail_msg("%s, call %" PRId64 ": no failure and no output", forms[i], n);
            sheaf_status_free(st);
            CHECK_OK(sheaf__remove_tree(at("f-out")));
            char **names =
                NULL; /* a partial folder whose removal failed is the next one's to remove */
            int64_t left = 0;
            CHECK_OK(sheaf__list_dir(&names, &left, scratch.dir));
            for (int64_t k = 0; k < left; k++)
                if (sheaf__path_is_partial(names[k]))
                    CHECK_OK(sheaf__remove_tree(at(names[k])));
            sheaf__names_free(names, left);
            assert_int_equal(entries(scratch.dir), before);
        }
    }
    made_release(&m);
}

FIXTURE(make_scratch, remove_scratch);
