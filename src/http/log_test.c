/* log_test.c - one line for each request, whatever a client puts into it. */
#include "tests/check.h"

#include "http/log.h"

static const struct {
    const char *name;
    sheaf__log_entry entry;
    const char *want;
} rows[] = {
    { "a reply",
      { 1764368103, "127.0.0.1", "GET", "/v1/models", 200, NULL },
      "2025-11-28T22:15:03Z 127.0.0.1 GET /v1/models 200" },
    { "an answer",
      { 0, "::1", "POST", "/v1/completions", 200, " model=bytes finish=stop" },
      "1970-01-01T00:00:00Z ::1 POST /v1/completions 200 model=bytes finish=stop" },
    { "a client that has gone",
      { 0, "10.0.0.7", "GET", "/", 0, NULL },
      "1970-01-01T00:00:00Z 10.0.0.7 GET / closed" },
    { "a path that would be another line, or steer a terminal",
      { 0, "::", "GET", "/a\n2026 b\x1b[31m\x7f\xc3\xa9", 404, NULL },
      "1970-01-01T00:00:00Z :: GET /a%0A2026%20b%1B[31m%7F%C3%A9 404" },
    { "a method with a blank",
      { 0, "::", "A B", "*", 405, NULL },
      "1970-01-01T00:00:00Z :: A%20B * 405" },
    { "a percent sign",
      { .client = "::", .method = "GET", .path = "/%41", .status = 404 },
      "1970-01-01T00:00:00Z :: GET /%2541 404" },
};

TEST(test_log__a_request_is_a_line)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_text text = { 0 };
        sheaf__log_line(&text, &rows[i].entry);
        if (strcmp(text.at, rows[i].want) != 0)
            fail_msg("%s: %s", rows[i].name, text.at);
        sheaf__text_release(&text);
    }
}

TEST(test_log__a_long_word_is_cut)
{
    static const size_t sizes[][2] = { { 199, 199 }, { 200, 200 }, { 201, 203 }, { 5000, 203 } };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        char word[5001] = "";
        sheaf_text text = { 0 };
        memset(word, 'a', sizes[i][0]);
        sheaf__log_word(&text, word);
        assert_int_equal(text.size, sizes[i][1]);
        assert_true(sheaf__ends_with(text.at, "...") == (sizes[i][0] > 200));
        sheaf__text_release(&text);
    }
}
