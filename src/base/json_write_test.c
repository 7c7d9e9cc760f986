/* json_write_test.c - the bytes that the writer makes, and its numbers. */
#include "tests/check.h"

#include <jansson.h>

#include "base/json_write.h"

TEST(test_write__bytes_by_hand)
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

TEST(test_write__several_entries_at_once)
{
    static const char *const want[] = {
        "{\"i\": -1, \"d\": 4294967296, \"of\": [{\"s\": \"\\u001f\\\\u00a\"}, {\"s\": null}], \"f\": 0.1, "
        "\"none\": null, \"two\": 2, \"small\": 1e-07, \"b\": true, \"none\": []}",
        "{\"i\":-1,\"d\":4294967296,\"of\":[{\"s\":\"\\u001F\\\\u00a\"},{\"s\":null}],\"f\":0.10000000000000001,"
        "\"none\":null,\"two\":2.0,\"small\":9.9999999999999995e-8,\"b\":true,\"none\":[]}"
    };
    for (int i = 0; i < 2; i++) {
        sheaf_json_writer j = { .compact = i == 1 };
        sheaf__json_put(&j, "{ i:i d:d of:[ { s:s }", -1, INT64_C(1) << 32, "\x1f\\u00a");
        sheaf__json_put(&j, "");
        sheaf__json_put(&j, "{ s:s } ] f:f none:f two:f small:f b:b none:[ ] }", (char *)NULL, 0.1,
                        INFINITY, 2.0, 1e-7, true);
        assert_string_equal(j.text.at, want[i]);
        sheaf__text_release(&j.text);
    }
}

/* Compact numbers are those of jansson, whose texts other programs have kept; others are the same
 * numbers. */
TEST(test_write__compact_reals_are_janssons)
{
    uint64_t bits = 1;
    for (int i = 0; i < 20000; i++) {
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        double x = i < 40 ? pow(10, i - 20) : i < 80 ? i - 60 : 0;
        if (i >= 80)
            memcpy(&x, &bits, sizeof x);
        json_t *value = json_real(x);
        char *want = json_dumps(value, JSON_ENCODE_ANY);
        sheaf_json_writer j = { .compact = true };
        sheaf__json_put_real(&j, NULL, x);
        assert_string_equal(j.text.at, want == NULL ? "null" : want);
        sheaf__text_release(&j.text);
        char b[SHEAF__JSON_NUMBER];
        assert_true(!isfinite(x) || strtod(sheaf__number_json(b, x), NULL) == x);
        json_decref(value);
        free(want);
    }
}

TEST(test_number__texts_by_hand)
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
