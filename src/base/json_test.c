/* json_test.c - hostile JSON, and keys of the wrong kind. */
#include "tests/check.h"

#include <locale.h>
#include <unistd.h>

#include "base/json.h"

static sheaf_status *parse(const char *text)
{
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_parse(&root, text, strlen(text));
    if (st == NULL)
        json_decref(root);
    return st;
}

TEST(test_parse__refuses_with_a_position)
{
    static const struct {
        const char *text, *part;
    } rows[] = {
        { "", "line 1, column 1 | a JSON value | the end of the text" },
        { "{\"a\": 1,\n \"b\": }", "line 2, column 7 | a JSON value | }" },
        { "{\"a\": 1,\n\n \"a\": 2}", "line 3, column 6 | each key once | a duplicate, 'a'" },
        { "{\"x\": [{\"a\": 1, \"b\": 2, \"a\": 1}]}", "a duplicate, 'a'" },
        { "{\"a\": 1} x", "line 1, column 10 | nothing after the JSON but blanks | x" },
        { "{\"a\": 1, }", "line 1, column 10 | a string | }" },
        { "{'a': 1}", "a string | 'a': 1}" },
        { "{\"a\": NaN}", "a JSON value | NaN}" },
        { "{\"a\": 1e999}", "a number that a double can hold | 1e999}" },
        { "{\"a\": -1e999}", "a number that a double can hold" },
        { "{\"a\": 123456789012345678901234567890}", "a whole number from -2^63 to 2^63 - 1" },
        { "{\"a\": 9223372036854775809}", "a whole number from -2^63" },
        { "{\"a\": -9223372036854775809}", "a whole number from -2^63" },
        { "{\"a\": 01}", "a number" },
        { "{\"a\":\n\"\xff\"}", "line 2, column 2 | UTF-8 | byte 0xff" },
        { "{\"a\": \"\xc0\x80\"}", "UTF-8 | byte 0xc0" }, /* overlong NUL */
        { "{\"a\": \"\\ud800\"}", "surrogate" },          /* half a pair */
        { "{\"a\": \"\\udc00\"}", "surrogate" },          /* its other half */
        { "{\"a\": \"\\ud800\\ud800\"}", "surrogate" },
        { "{\"a\": \"\\ud800x\"}", "surrogate" },
        { "[1]", "a list of 1" },
        { "17", "top level" },
        { "\"x\"", "an object" },
        { "{\"a\": [1, 2}", "',' or ']'" },
        { "{\"a\": [1,, 2]}", "a JSON value" },
        { "{\"a\": truth}", "a JSON value | truth}" },
        { "{\"a\": xy\n", "a JSON value | xy | " }, /* shown without the end of its line */
        { "{\"a\": \"b\tc\"}", "control character" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(parse(rows[i].text), SHEAF_E_FORMAT, rows[i].part);
}

TEST(test_parse__values_are_what_was_written)
{
    json_t *root = NULL,
           *want = json_pack("{s:i, s:I, s:I, s:f, s:f, s:[b, b, n, s, {}, []], s:i, s:f}", "zero",
                             0, "least", INT64_MIN, "most", INT64_MAX, "half", -0.5, "third", 1e-05,
                             "list", 1, 0, "w\xc3\xa9\"\n", "w\xc3\xa9", -7, "no limit", 1e30);
    static const char text[] =
        " {\"zero\": 0, \"least\": -9223372036854775808,\n\"most\": 9223372036854775807, \"half\": -5e-1, \"third\": 1e-05,"
        "\"list\": [true, false, null, \"w\\u00e9\\\"\\n\", {}, []], \"w\xc3\xa9\": -7,\n"
        "\"no limit\": 1000000000000000019884624838656}\n"; /* int(1e30) of transformers */
    CHECK_OK(sheaf__json_parse(&root, text, sizeof text - 1));
    assert_true(json_equal(root, want));
    assert_string_equal(json_object_iter_key(json_object_iter(root)),
                        "zero"); /* in the order of the text */
    assert_true(json_is_integer(json_object_get(root, "zero")) &&
                json_is_real(json_object_get(root, "half")));
    json_decref(root);
    json_decref(want);
    CHECK_FAILS(parse("{\"a\\u0000\": 1}"), SHEAF_E_UNSUPPORTED, "strings without NUL");
}

/* A program may have chosen a locale with a decimal comma; files do not change with it. */
TEST(test_parse__numbers_do_not_follow_the_locale)
{
    json_t *root = NULL;
    const char *const commas[] = { "de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8", "de_DE" };
    for (size_t i = 0; i < ARRAY_LEN(commas) && setlocale(LC_NUMERIC, commas[i]) == NULL; i++)
        ;
    CHECK_OK(sheaf__json_parse(&root, "{\"a\": 1.5, \"b\": 2.25e1}", 23));
    setlocale(LC_NUMERIC, "C");
    CHECK_NEAR("1.5", json_real_value(json_object_get(root, "a")), 1.5, 0);
    CHECK_NEAR("22.5", json_real_value(json_object_get(root, "b")), 22.5, 0);
    json_decref(root);
}

TEST(test_parse__depth_is_limited)
{
    char text[2 * 200 + 16];
    for (int depth = 1; depth <= 200; depth++) {
        size_t n = (size_t)sprintf(text, "{\"a\":");
        memset(text + n, '[', (size_t)depth);
        memset(text + n + depth, ']', (size_t)depth);
        strcpy(text + n + 2 * depth, "}");
        if (depth < SHEAF_JSON_MAX_DEPTH)
            CHECK_OK(parse(text));
        else
            CHECK_FAILS(parse(text), SHEAF_E_FORMAT, "fewer levels of JSON");
    }
    char many[2000] = "{\"a\":[";
    for (int i = 0; i < 300; i++)
        strcat(many, "[],");
    CHECK_OK(parse(strcat(many, "{}]}"))); /* side by side is not deep */
    CHECK_OK(parse(
        "{\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\": 1}"));
}

TEST(test_line__any_value_with_nul_in_strings)
{
    static const struct {
        const char *text, *part;
    } bad[] = {
        { "{\"a\": 1",
          "not a record | one JSON object; at column 8: ',' or '}' | the end of the text" },
        { "{\"a\": 1} {\"b\": 2}", "at column 10: nothing after the JSON but blanks | {\"b\": 2}" },
        { "{\"a\": 1, \"a\": 2}", "at column 14: each key once | a duplicate, 'a'" },
        { "{\"a\\u0000\": 1}", "strings without NUL" }, /* a key */
        { "\"\xff\"", "at column 2: UTF-8 | byte 0xff" },
        { "", "at column 1: a JSON value | the end of the text" },
    };
    json_t *value = NULL;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_FAILS(sheaf__json_parse_line(&value, bad[i].text, strlen(bad[i].text)), SHEAF_E_DATA,
                    bad[i].part);
    assert_null(value);
    static const char line[] = " [\"a\\u0000b\\ud83d\\ude00\", {\"k\": \"\\u0000\"}]\r\n";
    CHECK_OK(sheaf__json_parse_line(&value, line, sizeof line - 1));
    const json_t *text = json_array_get(value, 0),
                 *one = json_object_get(json_array_get(value, 1), "k");
    assert_int_equal(json_string_length(text), 7);
    CHECK_BYTES("text", json_string_value(text), "a\0b\xF0\x9F\x98\x80", 7);
    assert_int_equal(json_string_length(one), 1);
    json_decref(value);
    CHECK_OK(sheaf__json_parse_line(&value, "7", 1));
    assert_int_equal(json_integer_value(value), 7);
    json_decref(value);
    CHECK_OK(sheaf__json_parse_line(&value, "18446744073709551615", 20)); /* a hash as a name */
    assert_true(json_real_value(value) == 0x1p64);
    json_decref(value);
    CHECK_FAILS(parse("{\"a\": \"\\u0000\"}"), SHEAF_E_UNSUPPORTED,
                "strings without NUL"); /* elsewhere */
}

TEST(test_text__reads_back)
{
    json_t *root = json_pack("{s:[f, f, I, s%, n], s:{}}", "b", 0.1, -1e300, INT64_MIN,
                             "\xC3\xA9\0", (size_t)3, "a");
    char *text = NULL;
    CHECK_OK(sheaf__json_text(&text, root, JSON_SORT_KEYS | JSON_ENSURE_ASCII));
    assert_string_equal(
        text,
        "{\"a\": {}, \"b\": [0.10000000000000001, -1.0000000000000001e300, -9223372036854775808, \"\\u00E9\\u0000\", null]}");
    free(text);
    CHECK_OK(sheaf__json_text(&text, json_array_get(json_object_get(root, "b"), 4), 0));
    assert_string_equal(text, "null");
    free(text);
    json_decref(root);
}

TEST(test_load__names_the_file)
{
    char path[] = "/tmp/sheaf-json-XXXXXX";
    json_t *root = NULL;
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "{\"a\":\n", 6) == 6);
    CHECK_FAILS(sheaf__json_load(&root, path), SHEAF_E_FORMAT, path);
    assert_true(write(fd, "1}", 2) == 2);
    CHECK_OK(sheaf__json_load(&root, path));
    assert_int_equal(json_integer_value(json_object_get(root, "a")), 1);
    json_decref(root);
    assert_int_equal(ftruncate(fd, SHEAF_JSON_MAX_BYTES + 1), 0);
    CHECK_FAILS(sheaf__json_load(&root, path), SHEAF_E_FORMAT, "at most 67108864 bytes");
    close(fd);
    unlink(path);
    CHECK_FAILS(sheaf__json_load(&root, path), SHEAF_E_IO, "No such file");
    CHECK_FAILS(sheaf__json_load(&root, "/tmp"), SHEAF_E_IO, "a folder");
}

/* The getters for a value under the key "k". */
typedef enum getter { INT, REAL, BOOL, STRING, LIST, OBJECT } getter;

static sheaf_status *get(getter getter, const char *value, double *number)
{
    char text[256];
    snprintf(text, sizeof text, value == NULL ? "{}" : "{\"k\": %s}", value);
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_parse(&root, text, strlen(text));
    if (st != NULL)
        return st;
    sheaf_json_reader r = { root, "in.", NULL };
    switch (getter) {
    case INT: *number = (double)sheaf__json_int(&r, "k", 0, 100, 7); break;
    case REAL: *number = sheaf__json_real(&r, "k", -1, 100, 7); break;
    case BOOL: *number = sheaf__json_bool(&r, "k", true); break;
    case STRING: *number = sheaf__json_string(&r, "k") != NULL; break;
    case LIST: *number = sheaf__json_list(&r, "k") != NULL; break;
    case OBJECT: *number = sheaf__json_object(&r, "k") != NULL; break;
    }
    json_decref(root);
    return r.st;
}

TEST(test_keys__are_read)
{
    static const struct {
        getter getter;
        const char *value;
        double want;
    } rows[] = {
        { INT, "0", 0 },       { INT, "100", 100 },  { INT, NULL, 7 },      { INT, "null", 7 },
        { REAL, "1.5", 1.5 },  { REAL, "-1", -1 },   { REAL, "1e1", 10 },   { REAL, NULL, 7 },
        { REAL, "null", 7 },   { BOOL, "false", 0 }, { BOOL, "true", 1 },   { BOOL, NULL, 1 },
        { STRING, "\"\"", 1 }, { STRING, NULL, 0 },  { STRING, "null", 0 }, { LIST, "[]", 1 },
        { LIST, NULL, 0 },     { OBJECT, "{}", 1 },  { OBJECT, "null", 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double got = -99;
        CHECK_OK(get(rows[i].getter, rows[i].value, &got));
        CHECK_NEAR(rows[i].value == NULL ? "absent" : rows[i].value, got, rows[i].want, 0);
    }
}

TEST(test_keys__of_the_wrong_kind_are_named)
{
    static const struct {
        getter getter;
        const char *value, *found;
    } rows[] = {
        { INT, "1.0", "1.0 (a fraction)" },
        { INT, "1.5", "1.5 (a fraction)" },
        { INT, "true", "true (a boolean)" },
        { INT, "\"5\"", "\"5\" (a string)" },
        { INT, "-1", "-1" },
        { INT, "101", "101" },
        { INT, "[]", "a list of 0 values" },
        { INT, "[7]", "a list of 1 value" },
        { INT, "{\"a\":1}", "an object of 1 key" },
        { INT, "{\"a\":1,\"b\":2}", "an object of 2 keys" },
        { INT, "{}", "an object of 0 keys" },
        { REAL, "true", "true" },
        { REAL, "\"1\"", "(a string)" },
        { REAL, "100.5", "100.5" },
        { REAL, "-2", "-2" },
        { BOOL, "0", "true or false" },
        { BOOL, "\"true\"", "(a string)" },
        { STRING, "1", "a string" },
        { LIST, "{}", "a list" },
        { OBJECT, "[]", "an object" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double got;
        CHECK_FAILS(get(rows[i].getter, rows[i].value, &got), SHEAF_E_FORMAT, "'in.k' | ");
        CHECK_FAILS(get(rows[i].getter, rows[i].value, &got), SHEAF_E_FORMAT, rows[i].found);
    }
}

TEST(test_keys__needed_ones_and_the_first_failure)
{
    json_t *root = json_pack("{s:i, s:s}", "a", 1, "b", "x");
    sheaf_json_reader r = { root, NULL, NULL };
    assert_int_equal(sheaf__json_int(&r, "a", 0, 9, SHEAF_JSON_NEEDED), 1);
    assert_int_equal(sheaf__json_int(&r, "missing", 0, 9, SHEAF_JSON_NEEDED), 0);
    assert_int_equal(sheaf__json_int(&r, "b", 0, 9, 5), 5); /* not looked at any more */
    assert_int_equal(sheaf__json_int(&r, "a", 0, 9, 5), 5);
    assert_true(sheaf__json_fail(&r, SHEAF_E_DATA, "c", "anything") == NULL);
    CHECK_FAILS(r.st, SHEAF_E_FORMAT, "'missing' | a whole number from 0 to 9 | nothing");
    r.st = NULL;
    CHECK_NEAR("needed", sheaf__json_real(&r, "missing", 0, 9, SHEAF_JSON_NEEDED_REAL), 0, 0);
    CHECK_FAILS(r.st, SHEAF_E_FORMAT, "'missing' | a number from 0 to 9 | nothing");
    json_decref(root);
}
