/* json_test.c - hostile JSON, and keys of the wrong kind. */
#include "tests/check.h"

#include <unistd.h>

#include "base/file.h"
#include "base/json.h"

static sheaf_status *parse(const char *text)
{
    json_t *root = NULL;
    sheaf_status *st = sheaf__json_parse(&root, text, strlen(text));
    if (st == NULL)
        json_decref(root);
    return st;
}

static void test_parse__refuses_with_a_position(void **state)
{
    static const struct { const char *text, *part; } rows[] = {
        { "", "line" },
        { "{\"a\": 1,\n \"b\": }", "line 2, column" },
        { "{\"a\": 1,\n\n \"a\": 2}", "line 3, column" }, /* a duplicate */
        { "{\"a\": 1} x", "end of file expected" },
        { "{\"a\": 1, }", "line 1" },
        { "{'a': 1}", "line 1" },
        { "{\"a\": NaN}", "line 1" },
        { "{\"a\": 1e999}", "overflow" },
        { "{\"a\": 123456789012345678901234567890}", "too big integer" },
        { "{\"a\": \"\xff\"}", "unable to decode byte 0xff" },
        { "{\"a\": \"\xc0\x80\"}", "unable to decode byte" },  /* overlong NUL */
        { "{\"a\": \"\\ud800\"}", "line 1" },                   /* half a surrogate pair */
        { "{\"\\u0000\": 1}", "line 1" },
        { "[1]", "a list of 1" },
        { "17", "top level" },
        { "\"x\"", "an object" },
        { "{\"a\": [1, 2}", "line 1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(parse(rows[i].text), SHEAF_E_FORMAT, rows[i].part);
}

static void test_parse__depth_is_limited(void **state)
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
            CHECK_FAILS(parse(text), SHEAF_E_FORMAT, "line 1: too many levels");
    }
    char many[2000] = "{\"a\":[";
    for (int i = 0; i < 300; i++)
        strcat(many, "[],");
    CHECK_OK(parse(strcat(many, "{}]}"))); /* side by side is not deep */
    CHECK_OK(parse("{\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\": 1}"));
}

static void test_load__names_the_file(void **state)
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

/* What one getter says about one value under the key "k". */
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

static void test_keys__are_read(void **state)
{
    static const struct { getter getter; const char *value; double want; } rows[] = {
        { INT, "0", 0 },      { INT, "100", 100 },  { INT, NULL, 7 },     { INT, "null", 7 },
        { REAL, "1.5", 1.5 }, { REAL, "-1", -1 },   { REAL, "1e1", 10 },  { REAL, NULL, 7 },
        { REAL, "null", 7 },  { BOOL, "false", 0 }, { BOOL, "true", 1 },  { BOOL, NULL, 1 },
        { STRING, "\"\"", 1 }, { STRING, NULL, 0 }, { STRING, "null", 0 }, { LIST, "[]", 1 },
        { LIST, NULL, 0 },    { OBJECT, "{}", 1 },  { OBJECT, "null", 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double got = -99;
        CHECK_OK(get(rows[i].getter, rows[i].value, &got));
        CHECK_NEAR(rows[i].value == NULL ? "absent" : rows[i].value, got, rows[i].want, 0);
    }
}

static void test_keys__of_the_wrong_kind_are_named(void **state)
{
    static const struct { getter getter; const char *value, *found; } rows[] = {
        { INT, "1.0", "1.0 (a fraction)" },  { INT, "1.5", "1.5 (a fraction)" }, { INT, "true", "true (a boolean)" },
        { INT, "\"5\"", "\"5\" (a string)" }, { INT, "-1", "-1" },              { INT, "101", "101" },
        { INT, "[]", "a list of 0" },        { INT, "{\"a\":1}", "an object of 1" },
        { REAL, "true", "true" },            { REAL, "\"1\"", "(a string)" },   { REAL, "100.5", "100.5" },
        { REAL, "-2", "-2" },                { BOOL, "0", "true or false" },    { BOOL, "\"true\"", "(a string)" },
        { STRING, "1", "a string" },         { LIST, "{}", "a list" },          { OBJECT, "[]", "an object" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        double got;
        CHECK_FAILS(get(rows[i].getter, rows[i].value, &got), SHEAF_E_FORMAT, "'in.k' | ");
        CHECK_FAILS(get(rows[i].getter, rows[i].value, &got), SHEAF_E_FORMAT, rows[i].found);
    }
}

static void test_keys__needed_ones_and_the_first_failure(void **state)
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse__refuses_with_a_position),
        cmocka_unit_test(test_parse__depth_is_limited),
        cmocka_unit_test(test_load__names_the_file),
        cmocka_unit_test(test_keys__are_read),
        cmocka_unit_test(test_keys__of_the_wrong_kind_are_named),
        cmocka_unit_test(test_keys__needed_ones_and_the_first_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
