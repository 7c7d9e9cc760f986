/* json_write_test.c - the bytes that the writer makes, and its numbers. */
#include "tests/check.h"

#include "base/json_write.h"

static void test_write__bytes_by_hand(void **state)
{
    sheaf_json_writer j = { 0 };
    char *text = NULL;
    sheaf__text_add(&j.text, "before\n");
    sheaf__json_begin(&j);
    sheaf__json_put_text(&j, "name", "a \"b\"\n");
    sheaf__json_put_text(&j, "none", NULL);
    sheaf__json_open(&j, "list", '[');
    sheaf__json_put_int(&j, NULL, INT64_MIN);
    sheaf__json_open(&j, NULL, '{');
    sheaf__json_put_bool(&j, "yes", true);
    sheaf__json_put_bool(&j, "no", false);
    sheaf__json_close(&j, '}');
    sheaf__json_close(&j, ']');
    sheaf__json_open(&j, "empty", '{');
    sheaf__json_close(&j, '}');
    sheaf__json_put_real(&j, "real", 0.1);
    sheaf__json_put_raw(&j, "raw", "[1,2]");
    sheaf__json_put_raw(&j, "lines", "[1,\n 2]");
    sheaf__json_put_raw(&j, "not", "[1,");
    sheaf__json_end(&j);
    CHECK_OK(sheaf__text_take(&text, &j.text));
    assert_string_equal(text, "before\n{\"name\": \"a \\\"b\\\"\\n\", \"none\": null, "
                              "\"list\": [-9223372036854775808, {\"yes\": true, \"no\": false}], "
                              "\"empty\": {}, \"real\": 0.1, \"raw\": [1,2], \"lines\": [1,2], "
                              "\"not\": \"[1,\"}");
    free(text);
}

static void test_number__texts_by_hand(void **state)
{
    char b[SHEAF__JSON_NUMBER];
    assert_string_equal(sheaf__number_json(b, 0.1), "0.1");
    assert_string_equal(sheaf__number_json(b, 120), "120");
    assert_string_equal(sheaf__number_json(b, 0.1f), "0.10000000149011612");
    assert_string_equal(sheaf__number_json(b, -1e300), "-1e+300");
    assert_string_equal(sheaf__number_json(b, 999999999999999), "999999999999999");
    assert_string_equal(sheaf__number_json(b, 1e15), "1e+15");
    assert_string_equal(sheaf__number_json(b, -INFINITY), "null");
}

static void test_number__json_reads_back_exactly(void **state)
{
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double x;
        char b[SHEAF__JSON_NUMBER];
        memcpy(&x, &bits, sizeof x);
        if (isfinite(x))
            assert_true(strtod(sheaf__number_json(b, x), NULL) == x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write__bytes_by_hand),
        cmocka_unit_test(test_number__texts_by_hand),
        cmocka_unit_test(test_number__json_reads_back_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
