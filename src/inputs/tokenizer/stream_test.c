/* stream_test.c - texts that come id by id are those of all ids at once, for every decoder. */
#include "tests/made_tokenizer.h"

#include <inttypes.h>

#include "parts.h"
#include "unicode.h"

static uint32_t chance(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(*seed >> 33) % below;
}

#define BAR "\xe2\x96\x81"
#define REPLACE "{\"type\":\"Replace\",\"pattern\":{\"String\":\"" BAR "\"},\"content\":\" \"}"
#define UNKNOWN "{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xef\xbf\xbd\"},\"content\":\"?\"}"
#define STRIP(start, stop)                                                                         \
    "{\"type\":\"Strip\",\"content\":\" \",\"start\":" start ",\"stop\":" stop "}"
#define SEQUENCE(members) "{\"type\":\"Sequence\",\"decoders\":[" members "]}"
#define BYTES "{\"type\":\"ByteFallback\"}"
#define FUSE "{\"type\":\"Fuse\"}"
#define BYTE_LEVEL                                                                                 \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":false,\"use_regex\":true}"

static const char *const decoders[] = {
    "null",
    SEQUENCE(REPLACE "," BYTES "," FUSE "," STRIP("1", "0")),
    SEQUENCE(REPLACE "," BYTES "," FUSE "," STRIP("3", "0")),
    SEQUENCE(REPLACE "," BYTES "," FUSE "," STRIP("1", "1")),
    STRIP("1", "0"),
    BYTES,
    FUSE,
    BYTE_LEVEL,
    SEQUENCE(BYTE_LEVEL "," STRIP("1", "0")),
    SEQUENCE(BYTE_LEVEL "," REPLACE),
    SEQUENCE(BYTE_LEVEL "," STRIP("3", "0")),
    SEQUENCE(BYTE_LEVEL "," UNKNOWN),
};

static const char *const tokens[] = { "a", "b", BAR, BAR BAR, BAR "a", "##b", "<0xE2>", "<0x82>",
                                      "<0xAC>", "<0x41>", "\xef\xbf\xbd", " ", ".", "n't", "|",
                                      "<pad>", "a</w>", "</w>", "\xc3\xa9", "\xc3\xa2", "\xc4\xa4",
                                      "\xc2\xac", "", "long" BAR "word",
                                      /* 0xf0 0x9f 0x98 0x80 of ByteLevel */
                                      "\xc3\xb0", "\xc5\x81", "\xc4\xba", "\xc4\xa2" };
enum { TOKENS = ARRAY_LEN(tokens) };

static sheaf__tokenizer *made(const char *decoder)
{
    sheaf_text json = { 0 };
    sheaf__text_add(&json, "{\"version\":\"1.0\",\"decoder\":%s,\"model\":{", decoder);
    sheaf__text_add(&json, "\"type\":\"BPE\",\"merges\":[],\"vocab\":{");
    for (int i = 0; i < TOKENS; i++)
        sheaf__text_add(&json, "%s\"%s\":%d", i > 0 ? "," : "", tokens[i], i);
    sheaf__text_add(&json, "}}}");
    return tokenizer_made(&json);
}

/* Uncertain text is shown ahead: behind `at` bytes, all of the ids so far. */
static void check_rest(sheaf__token_stream *s, const sheaf__tokenizer *t, const int32_t *ids,
                       int64_t count, const char *whole, size_t at)
{
    const char *rest;
    char *so_far = NULL;
    size_t size, n;
    CHECK_OK(sheaf__token_stream_rest(&rest, &n, s));
    CHECK_OK(sheaf__tokenizer_decode(&so_far, &size, t, ids, count, false));
    if (n > 0 &&
        (size != at + n || memcmp(so_far, whole, at) != 0 || memcmp(so_far + at, rest, n) != 0))
        fail_msg("of '%s' '%.*s' is shown ahead", so_far, (int)n, rest);
    free(so_far);
}

static void check_stream(const char *decoder, const sheaf__tokenizer *t, const int32_t *ids,
                         int64_t count)
{
    sheaf__token_stream *s = NULL;
    const char *piece;
    char *whole = NULL;
    size_t size, n, at = 0;
    CHECK_OK(sheaf__tokenizer_decode(&whole, &size, t, ids, count, false));
    CHECK_OK(sheaf__token_stream_new(&s, t, false));
    for (int64_t i = 0; i <= count; i++) {
        if (i < count)
            CHECK_OK(sheaf__token_stream_push(&piece, &n, s, ids[i]));
        else
            CHECK_OK(sheaf__token_stream_rest(&piece, &n, s));
        assert_int_equal(sheaf__utf8_valid(piece, n), n);
        if (at + n > size || memcmp(piece, whole + at, n) != 0)
            fail_msg("%s: after id %" PRId64 " '%s' is shown, of '%s'", decoder, i, piece, whole);
        at += n;
        if (i < count && count <= 60)
            check_rest(s, t, ids, i + 1, whole, at);
    }
    assert_int_equal(at, size);
    sheaf__token_stream_free(s);
    free(whole);
}

/* As bytes: each id gives its own, which are the same if it is only looked at. */
static void check_bytes(const char *decoder, const sheaf__tokenizer *t, const int32_t *ids,
                        int64_t count)
{
    sheaf__token_stream *s = NULL;
    sheaf_text joined = { 0 };
    char *whole = NULL;
    size_t size, n, ahead;
    const char *piece;
    CHECK_OK(sheaf__tokenizer_decode(&whole, &size, t, ids, count, false));
    CHECK_OK(sheaf__token_stream_new(&s, t, false));
    sheaf__token_stream_set_bytes(s);
    for (int64_t i = 0; i <= count; i++) {
        char shown[64] = "";
        if (i < count) {
            CHECK_OK(sheaf__token_stream_push_if(&piece, &ahead, s, ids[i]));
            memcpy(shown, ahead > 0 ? piece : "", ahead);
            CHECK_OK(sheaf__token_stream_push(&piece, &n, s, ids[i]));
            assert_int_equal(n, ahead);
            assert_memory_equal(piece, shown, n);
        } else {
            CHECK_OK(sheaf__token_stream_rest(&piece, &n, s));
        }
        sheaf__text_bytes(&joined, piece, n);
    }
    if (sheaf__utf8_valid(joined.at, joined.size) == joined.size &&
        (joined.size != size || memcmp(joined.at, whole, size) != 0))
        fail_msg("%s: the bytes are '%s', of '%s'", decoder, joined.at, whole);
    sheaf__text_release(&joined);
    sheaf__token_stream_free(s);
    free(whole);
}

TEST(test_stream__bytes_of_each_id_join_to_the_whole)
{
    uint64_t seed = 5;
    int characters = 0;
    for (size_t d = 0; d < ARRAY_LEN(decoders); d++) {
        sheaf__tokenizer *t = made(decoders[d]);
        for (int round = 0; round < 300; round++) {
            int32_t ids[20];
            for (size_t i = 0; i < ARRAY_LEN(ids); i++)
                ids[i] = (int32_t)chance(&seed, TOKENS + 1);
            if (round % 3 == 0) /* a character in parts */
                for (int i = 0; i < 4; i++, characters++)
                    ids[4 + i] = round % 2 ? 24 + i : 6 + i;
            check_bytes(decoders[d], t, ids, 1 + chance(&seed, ARRAY_LEN(ids)));
        }
        sheaf__tokenizer_close(t);
    }
    assert_true(characters > 0);
}

/* By hand: a part of a character, a blank that a text loses at its beginning. */
TEST(test_stream__bytes_worked_by_hand)
{
    static const struct {
        int decoder, id;
        const char *first, *later;
    } rows[] = {
        { 1, 4, "a", " a" },       /* BAR "a" */
        { 1, 6, "\xe2", "\xe2" },  /* <0xE2> */
        { 7, 24, "\xf0", "\xf0" }, /* the first of four bytes of ByteLevel */
        { 7, 18, "\xe9", "\xe9" }, /* e with an acute accent of ByteLevel */
        { 5, 18, "\u00e9", "\u00e9" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf__tokenizer *t = made(decoders[rows[i].decoder]);
        sheaf__token_stream *s = NULL;
        const char *piece;
        size_t n;
        CHECK_OK(sheaf__token_stream_new(&s, t, false));
        sheaf__token_stream_set_bytes(s);
        for (int k = 0; k < 2; k++) {
            const char *want = k == 0 ? rows[i].first : rows[i].later;
            CHECK_OK(sheaf__token_stream_push(&piece, &n, s, rows[i].id));
            assert_int_equal(n, strlen(want));
            assert_memory_equal(piece, want, n);
        }
        sheaf__token_stream_free(s);
        sheaf__tokenizer_close(t);
    }
}

TEST(test_stream__any_ids_join_to_the_whole)
{
    uint64_t seed = 3;
    for (size_t d = 0; d < ARRAY_LEN(decoders); d++) {
        sheaf__tokenizer *t = made(decoders[d]);
        for (int round = 0; round < 600; round++) {
            int32_t ids[60];
            const uint32_t few = 1 + chance(&seed, TOKENS); /* of the tokens, some more often */
            for (size_t i = 0; i < ARRAY_LEN(ids); i++)
                ids[i] = (int32_t)((round + chance(&seed, few)) % (TOKENS + 1));
            check_stream(decoders[d], t, ids, 1 + chance(&seed, ARRAY_LEN(ids)));
        }
        sheaf__tokenizer_close(t);
    }
}

/* A window that lets go of bytes in the middle of a character. */
TEST(test_stream__many_bytes_that_are_no_character_join_to_the_whole)
{
    uint64_t seed = 9;
    for (size_t d = 0; d < ARRAY_LEN(decoders); d++) {
        sheaf__tokenizer *t = made(decoders[d]);
        for (int round = 0; round < 60; round++) {
            int32_t ids[160];
            for (size_t i = 0; i < ARRAY_LEN(ids);
                 i++) /* 0x82; then characters and parts of some */
                ids[i] = i % 40 < 28 + chance(&seed, 8) ? 20
                         : round % 2 == 0               ? 19 + (int32_t)chance(&seed, 3)
                                                        : TOKENS - 4 + (int32_t)(i % 4);
            check_stream(decoders[d], t, ids, ARRAY_LEN(ids));
        }
        sheaf__tokenizer_close(t);
    }
}

TEST(test_stream__many_ids_join_to_the_whole)
{
    const int count = 40000 / every(10);
    int32_t *ids = malloc((size_t)count * sizeof *ids);
    uint64_t seed = 5;
    assert_non_null(ids);
    for (size_t d = 0; d < ARRAY_LEN(decoders); d++) {
        sheaf__tokenizer *t = made(decoders[d]);
        for (int i = 0; i < count; i++)
            ids[i] = (int32_t)chance(&seed, TOKENS + 1); /* the last is none */
        check_stream(decoders[d], t, ids, count);
        for (int i = 0; i < count; i++)
            ids[i] = 7; /* a byte that begins no character, or six letters */
        check_stream(decoders[d], t, ids, count);
        for (int i = 0; i < count; i++)
            ids[i] = 20; /* the same of ByteLevel */
        check_stream(decoders[d], t, ids, count);
        for (int i = 0; i < count; i++)
            ids[i] = i % 2 == 0 ? 0 : 20; /* letters between them */
        check_stream(decoders[d], t, ids, count);
        sheaf__tokenizer_close(t);
    }
    free(ids);
}

TEST(test_stream__strip_takes_both_ends_of_the_whole)
{
    static const int32_t ids[] = { 4, 3, 0, 3 };
    char *text = NULL;
    size_t size;
    sheaf__tokenizer *t = made(SEQUENCE(REPLACE "," FUSE "," STRIP("1", "1")));
    CHECK_OK(sheaf__tokenizer_decode(&text, &size, t, ids, ARRAY_LEN(ids), false));
    assert_string_equal(text, "a  a ");
    free(text);
    sheaf__tokenizer_close(t);
}

TEST(test_stream__bytes_that_wait_are_shown_ahead)
{
    static const int32_t ids[] = { 0, 9, 9 };
    sheaf__token_stream *s = NULL;
    sheaf__tokenizer *t = made(BYTES);
    const char *text;
    size_t n;
    CHECK_OK(sheaf__token_stream_new(&s, t, false));
    for (int i = 0; i < 3; i++) {
        CHECK_OK(sheaf__token_stream_push(&text, &n, s, ids[i]));
        assert_int_equal(n, i == 0);
        CHECK_OK(sheaf__token_stream_rest(&text, &n, s));
        assert_memory_equal(text, "AA", n);
        assert_int_equal(n, i);
    }
    sheaf__token_stream_free(s);
    sheaf__tokenizer_close(t);
}
