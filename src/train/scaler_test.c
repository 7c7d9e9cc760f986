/* scaler_test.c - the scale over patterns of overflows, against torch's GradScaler (recorded by
 * tests/data/float16/make_float16.py) and against DeepSpeed's rule worked by hand. */
#include "tests/check.h"

#include "train/scaler.h"

/* 'x': the step's gradients overflow. scale: before each step, and after the last. */
static const struct {
    const char *name, *steps;
    int64_t window, hysteresis;
    double least;
    double scale[20];
} table[] = {
    { "torch, growth after 3", "x.....x..xx....", 3, 1, 0,
      LIST(65536, 32768, 32768, 32768, 65536, 65536, 65536, 32768, 32768, 32768, 16384, 8192, 8192,
           8192, 16384, 16384) },
    { "torch, an overflow begins the count anew", "....x..........", 5, 1, 0,
      LIST(65536, 65536, 65536, 65536, 65536, 32768, 32768, 32768, 32768, 32768, 65536, 65536,
           65536, 65536, 65536, 131072) },
    { "torch, four in a row", "xxxx", 1, 1, 0, { 65536, 32768, 16384, 8192, 4096 } },
    { "torch, growth each step", "...", 1, 1, 0, { 65536, 131072, 262144, 524288 } },
    /* an overflow that only wears hysteresis down begins the count of good steps anew, too */
    { "DeepSpeed, hysteresis 2", "x.x..x...x", 3, 2, 0,
      LIST(65536, 65536, 65536, 32768, 32768, 32768, 16384, 16384, 16384, 32768, 32768) },
    { "DeepSpeed, it ends at the least", "xxx", 3, 1, 16384, { 65536, 32768, 16384, 0 } },
};

static sheaf__scaler scaler_of(int64_t window, int64_t hysteresis, double least)
{
    sheaf__scaler s;
    sheaf__scaler_options o;
    CHECK_OK(sheaf__scaler_options_read(&o, NULL, 0, window, hysteresis, least));
    sheaf__scaler_init(&s, &o);
    return s;
}

static void again(sheaf__scaler *s) /* as a checkpoint keeps it */
{
    sheaf_text text = { 0 };
    sheaf__scaler_text(&text, s);
    sheaf__text_bytes(&text, "", 0);
    json_t *object = json_loads(text.at, 0, NULL);
    assert_non_null(object);
    sheaf__scaler_init(s, &(sheaf__scaler_options){ s->options.dynamic, 2, s->options.window,
                                                    s->options.hysteresis, s->options.least });
    sheaf__scaler_read(s, object);
    json_decref(object);
    sheaf__text_release(&text);
}

TEST(test_scaler__goes_as_those_of_torch_and_deepspeed)
{
    for (size_t i = 0; i < 2 * ARRAY_LEN(table); i++) {
        const size_t row = i / 2;
        sheaf__scaler s = scaler_of(table[row].window, table[row].hysteresis, table[row].least);
        int64_t skipped = 0;
        for (int n = 0;; n++) {
            const char c = table[row].steps[n];
            if (table[row].scale[n] == 0) /* the scale could not fall */
                break;
            CHECK_NEAR(table[row].name, s.scale, table[row].scale[n], 0);
            if (c == '\0')
                break;
            if (c == '.')
                sheaf__scaler_good(&s);
            else if (sheaf__scaler_overflow(&s))
                skipped++;
            else
                CHECK_NEAR(table[row].name, s.scale, table[row].least, 0);
            if (i % 2 == 1)
                again(&s);
        }
        assert_int_equal(s.skipped, skipped);
    }
}

TEST(test_scaler__one_that_stays_explains_nothing)
{
    sheaf__scaler s;
    sheaf__scaler_options o;
    CHECK_OK(sheaf__scaler_options_read(&o, "1024", 0, 0, 0, 0));
    sheaf__scaler_init(&s, &o);
    for (int i = 0; i < 5000; i++)
        sheaf__scaler_good(&s);
    assert_false(sheaf__scaler_overflow(&s));
    assert_true(s.scale == 1024 && s.skipped == 0);
}

TEST(test_scaler__options_that_cannot_be)
{
    sheaf__scaler_options o;
    CHECK_OK(sheaf__scaler_options_read(&o, "dynamic", 0, 0, 0, 0));
    assert_true(o.dynamic && o.scale == 65536 && o.window == 2000 && o.hysteresis == 1);
    CHECK_FAILS(sheaf__scaler_options_read(&o, "static", 0, 0, 0, 0), SHEAF_E_ARG, "dynamic, or");
    CHECK_FAILS(sheaf__scaler_options_read(&o, "1000", 0, 0, 0, 0), SHEAF_E_ARG, "power of two");
    CHECK_FAILS(sheaf__scaler_options_read(&o, "inf", 0, 0, 0, 0), SHEAF_E_ARG, "power of two");
    CHECK_FAILS(sheaf__scaler_options_read(&o, "-2", 0, 0, 0, 0), SHEAF_E_ARG, "power of two");
    CHECK_FAILS(sheaf__scaler_options_read(&o, NULL, 3, 0, 0, 0), SHEAF_E_ARG, "loss-scale-init");
    CHECK_FAILS(sheaf__scaler_options_read(&o, NULL, 2, 0, 0, 4), SHEAF_E_ARG, "at most 2");
}
