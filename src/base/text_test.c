/* text_test.c - growing strings, JSON strings, UTF-8, nearest names. */
#include "tests/check.h"

#include "base/text.h"

TEST(test_text__grows_and_is_taken)
{
    sheaf_text text = { 0 };
    char *got = NULL, want[5001];
    for (int i = 0; i < 1000; i++) {
        sheaf__text_add(&text, "%s%d", "abcd", i % 10);
        memcpy(want + 5 * i, (char[6]){ 'a', 'b', 'c', 'd', (char)('0' + i % 10), 0 }, 6);
    }
    CHECK_OK(sheaf__text_take(&got, &text));
    assert_string_equal(got, want);
    assert_null(text.at);
    free(got);
}

TEST(test_text__empty_is_an_empty_string)
{
    sheaf_text text = { 0 };
    char *got = NULL;
    CHECK_OK(sheaf__text_take(&got, &text));
    assert_string_equal(got, "");
    free(got);
}

TEST(test_text__a_failed_addition_is_told_at_the_end)
{
    sheaf_text text = { 0 };
    char *got = NULL;
    sheaf__text_add(&text, "start");
    sheaf__text_bytes(&text, "x", SIZE_MAX / 2); /* never read: there is no space for it */
    sheaf__text_add(&text, "end");
    CHECK_FAILS(sheaf__text_take(&got, &text), SHEAF_E_MEMORY, "building a text");
    assert_null(got);
    assert_null(text.at);
}

TEST(test_text__json_strings_are_escaped)
{
    static const struct {
        const char *in, *want;
    } rows[] = {
        { "", "\"\"" },
        { "model.norm", "\"model.norm\"" },
        { "a\"b\\c", "\"a\\\"b\\\\c\"" },
        { "\b\f\n\r\t", "\"\\b\\f\\n\\r\\t\"" },
        { "\x01\x1f", "\"\\u0001\\u001f\"" },
        { "w\xc3\xa9\xe4\xb8\xad", "\"w\xc3\xa9\xe4\xb8\xad\"" },
        { "/ a b", "\"/ a b\"" },
        { "a\xff.jpg\xc3", "\"a\xef\xbf\xbd.jpg\xef\xbf\xbd\"" }, /* no UTF-8, the last one cut */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_text text = { 0 };
        char *got = NULL;
        sheaf__text_json(&text, rows[i].in);
        CHECK_OK(sheaf__text_take(&got, &text));
        assert_string_equal(got, rows[i].want);
        free(got);
    }
}

/* The first seven are those of RFC 4648, section 10. */
TEST(test_base64__whole_groups_and_nothing_else)
{
    static const struct {
        const char *text, *want; /* NULL: refused */
    } rows[] = {
        { "", NULL },
        { "Zg==", "f" },
        { "Zm8=", "fo" },
        { "Zm9v", "foo" },
        { "Zm9vYg==", "foob" },
        { "Zm9vYmE=", "fooba" },
        { "Zm9vYmFy", "foobar" },
        { "+/+/", "\xFB\xFF\xBF" },
        { "Zm9", NULL },
        { "Zm9vYg", NULL },
        { "Zg==Zg==", NULL },
        { "Z===", NULL },
        { "====", NULL },
        { "Zm=v", NULL },
        { "Zm9*", NULL },
        { "Zm9 ", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        unsigned char out[16];
        const char *want = rows[i].want == NULL ? "" : rows[i].want;
        assert_int_equal(sheaf__base64_decode(out, rows[i].text, strlen(rows[i].text)),
                         strlen(want));
        if (want[0] != '\0')
            assert_memory_equal(out, want, strlen(want));
    }
}

TEST(test_utf8__the_shortest_form_of_characters)
{
    static const struct {
        const char *text;
        size_t left, want;
    } rows[] = {
        { "a", 1, 1 },
        { "", 1, 1 },
        { "\xC3\xA9", 2, 2 },
        { "\xE2\x82\xAC", 3, 3 },
        { "\xF0\x9F\x98\x80", 4, 4 },
        { "\xC3\xA9", 1, 0 },
        { "\xE2\x82\xAC", 2, 0 },
        { "\xF0\x9F\x98\x80", 3, 0 }, /* cut */
        { "\xC0\x80", 2, 0 },
        { "\xC1\xBF", 2, 0 },
        { "\xE0\x9F\xBF", 3, 0 },
        { "\xF0\x8F\xBF\xBF", 4, 0 }, /* too long */
        { "\xED\x9F\xBF", 3, 3 },
        { "\xED\xA0\x80", 3, 0 },
        { "\xEE\x80\x80", 3, 3 }, /* around surrogates */
        { "\xC2\x80", 2, 2 },
        { "\xE0\xA0\x80", 3, 3 },
        { "\xEF\xBF\xBF", 3, 3 },
        { "\xF4\x8F\xBF\xBF", 4, 4 },
        { "\xF4\x90\x80\x80", 4, 0 },
        { "\xF5\x80\x80\x80", 4, 0 },
        { "\x80", 1, 0 },
        { "\xFF", 1, 0 },
        { "\xC3(", 2, 0 },
        { "\xE2(\xAC", 3, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (sheaf__utf8_length(rows[i].text, rows[i].left) != rows[i].want)
            fail_msg("row %zu: %zu", i, sheaf__utf8_length(rows[i].text, rows[i].left));
    assert_true(sheaf__is_utf8("") && sheaf__is_utf8("a\xC3\xA9z"));
    assert_false(sheaf__is_utf8("a\xFFz") || sheaf__is_utf8("a\xC3"));
}

static void check_guess(const char *name, const char *got, const char *want)
{
    if ((got == NULL) != (want == NULL) || (got != NULL && strcmp(got, want) != 0))
        fail_msg("'%s' gave %s", name, got == NULL ? "nothing" : got);
}

TEST(test_nearest__typing_errors_and_strangers)
{
    static const char *const list[] = { "llama", "mistral", "qwen2", "q_proj", "down_proj" };
    static const struct {
        const char *name, *want;
    } rows[] = {
        { "llama", "llama" },
        { "lama", "llama" },
        { "LLaMA", "llama" },
        { "lalma", "llama" },
        { "mixtral", "mistral" },
        { "qwen", "qwen2" },
        { "qwen3", "qwen2" },
        { "qproj", "q_proj" },
        { "p_proj", "q_proj" },
        { "down_porj", "down_proj" },
        { "downproj", "down_proj" },
        { "gpt2", NULL },
        { "", NULL },
        { "x", NULL },
        { "cogvlm", NULL },
        { "mistral_large_three", NULL },
    };
    char endless[4096];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_guess(rows[i].name, sheaf__nearest(rows[i].name, list, ARRAY_LEN(list)),
                    rows[i].want);
    memset(endless, 'a', sizeof endless - 1);
    endless[sizeof endless - 1] = '\0';
    assert_null(sheaf__nearest(endless, list, ARRAY_LEN(list)));
    assert_null(sheaf__nearest("llama", list, 0));
}

TEST(test_nearest__the_first_of_equals)
{
    static const char *const list[] = { "k_proj", "v_proj", "q_proj" };
    assert_string_equal(sheaf__nearest("x_proj", list, 3), "k_proj");
    assert_string_equal(sheaf__nearest("v_prj", list, 3), "v_proj");
    static const char *const swaps[] = {
        "abxc", "abcd"
    }; /* one changed, one swapped: both one difference */
    assert_string_equal(sheaf__nearest("abdc", swaps, 2), "abxc");
    assert_string_equal(sheaf__nearest("abdc", swaps + 1, 1), "abcd");
    char long_name[129], longer[131];
    memset(long_name, 'n', 128);
    memset(longer, 'n', 130);
    long_name[128] = longer[130] = '\0';
    const char *const lengths[] = { longer, long_name }; /* 128 is the longest that is compared */
    assert_string_equal(sheaf__nearest(long_name, lengths, 2), long_name);
}

TEST(test_misspelt__a_name_of_another_model_is_none)
{
    static const char *const list[] = { "llama", "mistral", "qwen2", "LlamaForCausalLM" };
    static const struct {
        const char *name, *meant;
    } rows[] = {
        { "lama", "llama" },
        { "llamaa", "llama" },
        { "LLaMA", "llama" },
        { "lalma", "llama" },
        { "qwen-2", "qwen2" },
        { "Mistrla", "mistral" },
        { "llama_for_causal_lm", "LlamaForCausalLM" },
        { "llama", "llama" },
        { "llam", "llama" },
        { "mixtral", NULL },
        { "qwen3", NULL },
        { "qwen", NULL },
        { "qwen22", NULL },
        { "llama4", NULL },
        { "ministral", NULL },
        { "llava", NULL },
        { "", NULL },
        { "-", NULL },
        { "l", NULL },
        { "gemma", NULL },
        { "qwne3", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        check_guess(rows[i].name, sheaf__misspelt(rows[i].name, list, ARRAY_LEN(list)),
                    rows[i].meant);
    char endless[400];
    memset(endless, 'x', sizeof endless);
    endless[sizeof endless - 1] = '\0';
    assert_null(sheaf__misspelt(endless, list, ARRAY_LEN(list)));
}

TEST(test_ends_with__the_whole_the_end_and_neither)
{
    assert_true(sheaf__ends_with("a.bin", ".bin"));
    assert_true(sheaf__ends_with(".bin", ".bin"));
    assert_true(sheaf__ends_with("a", ""));
    assert_false(sheaf__ends_with("a.bin", "a.bi"));
    assert_false(sheaf__ends_with("bin", ".bin"));
    assert_false(sheaf__ends_with("", "a"));
}
