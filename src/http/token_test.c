/* token_test.c - which files hold a token, and where one is needed. */
#include "tests/files.h"

#include "http/token.h"

static const struct {
    const char *name, *text, *want; /* want NULL: refused, as `part` says */
    const char *part;
} files[] = {
    { "a line", "0123456789abcdef\n", "0123456789abcdef", NULL },
    { "without a line feed", "0123456789abcdef", "0123456789abcdef", NULL },
    { "of another system", "0123456789abcdef\r\nrest", "0123456789abcdef", NULL },
    { "the first of several", "0123456789abcdef\nother", "0123456789abcdef", NULL },
    { "signs", "!~#$%&'()*+,-./:;", "!~#$%&'()*+,-./:;", NULL },
    { "short", "0123456789abcde\n", NULL, "16 characters" },
    { "empty", "", NULL, "16 characters" },
    { "an empty line", "\n0123456789abcdef", NULL, "16 characters" },
    { "a blank", "0123456789 abcdef", NULL, "ASCII" },
    { "no ASCII", "0123456789abcd\xc3\xa9", NULL, "ASCII" },
};

TEST(test_token__is_the_first_line)
{
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        char *token = NULL;
        const char *path = at("token");
        put(path, files[i].text);
        if (files[i].want == NULL) {
            CHECK_FAILS(sheaf__http_token(&token, "0.0.0.0", path), SHEAF_E_DATA, files[i].part);
            assert_null(token);
            continue;
        }
        CHECK_OK(sheaf__http_token(&token, "0.0.0.0", path));
        assert_string_equal(token, files[i].want);
        free(token);
    }
    char *token = NULL, long_text[4200];
    memset(long_text, 'a', sizeof long_text);
    long_text[sizeof long_text - 1] = '\0';
    put(at("long"), long_text);
    CHECK_FAILS(sheaf__http_token(&token, "::", at("long")), SHEAF_E_FORMAT, "token");
    CHECK_FAILS(sheaf__http_token(&token, "::", at("none")), SHEAF_E_IO, "token");
}

TEST(test_token__is_needed_where_others_reach)
{
    char *token = NULL;
    CHECK_OK(sheaf__http_token(&token, "127.0.0.1", NULL));
    assert_null(token);
    CHECK_FAILS(sheaf__http_token(&token, "0.0.0.0", NULL), SHEAF_E_ARG, "only this machine");
}

FIXTURE(make_scratch, remove_scratch);
