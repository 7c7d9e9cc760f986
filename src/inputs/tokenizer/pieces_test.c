/* pieces_test.c - texts that are divided into words before the model, and whose blanks become bars
 * word by word, have the ids and ranges that they have as a whole. */
#include "tests/made_tokenizer.h"

#include <inttypes.h>

#include "bpe.h"

static uint32_t chance(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

/* ---- tokenizers ---- */

#define BAR "\xe2\x96\x81"
#define METASPACE(scheme, split)                                                                   \
    "null,\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"" BAR                        \
    "\",\"prepend_scheme\":\"" scheme "\",\"split\":" split "}"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"" BAR "\"}"

static const char *const forms[] = {
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Prepend\",\"prepend\":\"" BAR
    "\"}," REPLACE "]},\"pre_tokenizer\":null",
    REPLACE ",\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},\"behavior\":"
            "\"MergedWithPrevious\",\"invert\":false}",
    "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"}," REPLACE
    "]},\"pre_tokenizer\":null",
    METASPACE("always", "true"),
    METASPACE("always", "false"),
    METASPACE("first", "true"),
    METASPACE("first", "false"),
    METASPACE("never", "false"),
};

static const char *const merges[] = {
    "",
    "[\"a\",\"b\"],[\"" BAR "\",\"a\"],[\"" BAR "\",\"" BAR "\"],[\"ab\",\"c\"],[\"" BAR
    "a\",\"b\"]",
    /* over a bar; of bytes, with a character on either side */
    "[\"b\",\"" BAR "\"],[\"b" BAR "\",\"a\"],[\"a\",\"b\"],[\"" BAR "\",\"a\"]",
    "[\"<0x0A>\",\"<0x0A>\"],[\"<0xC3>\",\"b\"],[\"a\",\"b\"]",
    "[\"a\",\"<0x0A>\"],[\"a\",\"b\"]",
};

static const char *const tokens[] = {
    "<unk>", "a",      "b",     "c",         BAR,        "ab",           BAR "a",   BAR BAR,
    "abc",   BAR "ab", "b" BAR, "b" BAR "a", "\xc3\xa9", "<0x0A><0x0A>", "a<0x0A>", "<0xC3>b"
};

static sheaf__tokenizer *made(const char *form, const char *merge, const char *byte_fallback)
{
    sheaf_text json = { 0 };
    sheaf__text_add(&json, "{\"version\":\"1.0\",\"normalizer\":%s,\"model\":{\"type\":\"BPE\",",
                    form);
    sheaf__text_add(&json, "\"unk_token\":\"<unk>\",\"fuse_unk\":true,\"byte_fallback\":%s,",
                    byte_fallback);
    sheaf__text_add(&json, "\"merges\":[%s],\"vocab\":{", merge);
    for (int i = 0; i < 256; i++)
        sheaf__text_add(&json, "\"<0x%02X>\":%d,", (unsigned)i, i);
    for (size_t i = 0; i < ARRAY_LEN(tokens); i++)
        sheaf__text_add(&json, "%s\"%s\":%d", i > 0 ? "," : "", tokens[i], 256 + (int)i);
    sheaf__text_add(&json, "}}}");
    return tokenizer_made(&json);
}

/* ---- as a whole ---- */

static size_t some_text(char *text, size_t most, uint64_t *seed)
{
    static const char *const bits[] = { "a", "b",  "c",        "A",         "ab", "abc",
                                        " ", "  ", BAR,        "\xc3\xa9",  "\n", "\n\n",
                                        "d", " a", "\xc3\xaf", "         ", "b a" };
    size_t size = 0;
    const size_t until = chance(seed, (uint32_t)most);
    while (size < until && size + 16 < most) {
        const char *bit = bits[chance(seed, ARRAY_LEN(bits))];
        memcpy(text + size, bit, strlen(bit));
        size += strlen(bit);
    }
    return size;
}

static void check_same(const sheaf__tokenizer *t, const sheaf__tokenizer *whole, const char *text,
                       size_t size)
{
    int32_t *ids, *want, *again;
    sheaf__text_range *where, *want_where;
    int64_t count, wanted, count_again;
    CHECK_OK(sheaf__tokenizer_encode(&ids, &where, &count, t, text, size, NULL));
    CHECK_OK(sheaf__tokenizer_encode(&again, NULL, &count_again, t, text, size, NULL));
    CHECK_OK(sheaf__tokenizer_encode(&want, &want_where, &wanted, whole, text, size, NULL));
    for (int64_t i = 0; i < wanted; i++)
        if (i >= count || i >= count_again || ids[i] != want[i] || again[i] != want[i] ||
            where[i].begin != want_where[i].begin || where[i].end != want_where[i].end)
            fail_msg("'%.*s': id %" PRId64 " is other than in the whole", (int)size, text, i);
    assert_int_equal(count, wanted);
    assert_int_equal(count_again, wanted);
    free(ids);
    free(again);
    free(where);
    free(want);
    free(want_where);
}

static void check_form(const char *form, const char *merge, const char *byte_fallback)
{
    uint64_t seed = 1;
    char text[300];
    sheaf__tokenizer *t = made(form, merge, byte_fallback),
                     *whole = made(form, merge, byte_fallback);
    assert_true(t->blanks.on);
    whole->blanks.on = false;
    memset(whole->model->joined, 0xff, sizeof whole->model->joined); /* it is not cut */
    memset(whole->model->apart, 0, sizeof whole->model->apart);
    whole->model->lone_bytes = false;
    for (int i = 0; i < 400; i++) {
        const size_t size = some_text(text, i < 200 ? 40 : sizeof text, &seed);
        check_same(t, whole, text, size);
    }
    sheaf__tokenizer_close(t);
    sheaf__tokenizer_close(whole);
}

TEST(test_pieces__words_with_bars_are_those_of_the_whole_text)
{
    for (size_t f = 0; f < ARRAY_LEN(forms); f++)
        for (size_t m = 0; m < ARRAY_LEN(merges); m++)
            check_form(forms[f], merges[m], "true");
}

/* Characters that do not become their bytes: unknown ones side by side are one. */
TEST(test_pieces__unknown_characters_are_not_parted)
{
    for (size_t f = 0; f < ARRAY_LEN(forms); f++)
        check_form(forms[f], "[\"a\",\"b\"],[\"" BAR "\",\"a\"]", "false");
}
