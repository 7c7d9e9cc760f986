/* tokenizer_test.c - tokenizers against what `tokenizers` wrote (tests/data/tokenizers/bpe). */
#include "tests/check.h"

#include <inttypes.h>
#include <pthread.h>

#include "base/file.h"
#include "kinds.h"
#include "parts.h"
#include "pattern.h"
#include "tests/faults/denied_memory.h"
#include "tests/made_tokenizer.h"
#include "tests/sources.h"
#include "unicode.h"

static json_t *recorded; /* {"texts": [...], "tokenizers": {NAME: {"specials", "plain", ...}}} */

static const char *data(const char *name)
{
    return in_sources("tests/data/tokenizers/bpe/%s.json", name);
}

static int setup(void **state)
{
    char *text = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&text, &size, data("recorded"), 1 << 20));
    CHECK_OK(sheaf__json_parse_line(&recorded, text, size)); /* strings hold NUL */
    free(text);
    return 0;
}

static int teardown(void **state)
{
    json_decref(recorded);
    return 0;
}

static sheaf__tokenizer *open_recorded(const char *name)
{
    sheaf__tokenizer *t = NULL;
    CHECK_OK(sheaf__tokenizer_open(&t, data(name)));
    return t;
}

/* ---- recordings ---- */

static bool same_ids(const int32_t *ids, int64_t count, const json_t *want)
{
    if ((size_t)count != json_array_size(want))
        return false;
    for (int64_t i = 0; i < count; i++)
        if (ids[i] != json_integer_value(json_array_get(want, (size_t)i)))
            return false;
    return true;
}

static void check_where(const char *name, size_t text, const sheaf__text_range *where,
                        int64_t count, const json_t *want)
{
    assert_int_equal(json_array_size(want), count * 2);
    for (int64_t i = 0; i < count; i++)
        if ((int64_t)where[i].begin != json_integer_value(json_array_get(want, (size_t)i * 2)) ||
            (int64_t)where[i].end != json_integer_value(json_array_get(want, (size_t)i * 2 + 1)))
            fail_msg("%s, text %zu: id %" PRId64 " is at [%zu, %zu)", name, text, i, where[i].begin,
                     where[i].end);
}

/* Token by token: whole characters, and joined the same. */
static void check_stream(const sheaf__tokenizer *t, const int32_t *ids, int64_t count,
                         const char *whole, size_t size)
{
    sheaf__token_stream *s = NULL;
    const char *piece;
    size_t n, at = 0;
    CHECK_OK(sheaf__token_stream_new(&s, t, false));
    for (int64_t i = 0; i <= count; i++) {
        if (i < count)
            CHECK_OK(sheaf__token_stream_push(&piece, &n, s, ids[i]));
        else
            CHECK_OK(sheaf__token_stream_rest(&piece, &n, s));
        assert_int_equal(sheaf__utf8_valid(piece, n), n);
        assert_true(at + n <= size);
        CHECK_BYTES("a piece", piece, whole + at, n);
        at += n;
    }
    assert_int_equal(at, size);
    sheaf__token_stream_free(s);
}

static void check_decoded(const char *name, size_t i, const sheaf__tokenizer *t, const int32_t *ids,
                          int64_t count, const json_t *want)
{
    char *text = NULL;
    size_t size;
    CHECK_OK(sheaf__tokenizer_decode(&text, &size, t, ids, count, false));
    if (size != json_string_length(want) || memcmp(text, json_string_value(want), size) != 0)
        fail_msg("%s, text %zu: decoded to '%s'", name, i, text);
    check_stream(t, ids, count, text, size);
    free(text);
}

static void check_text(const char *name, const sheaf__tokenizer *t, const json_t *record, size_t i)
{
    const json_t *text = json_array_get(json_object_get(recorded, "texts"), i);
    const json_t *plain = json_array_get(json_object_get(record, "plain"), i);
    const json_t *specials = json_array_get(json_object_get(record, "specials"), i);
    const json_t *where = json_array_get(json_object_get(record, "where"), i);
    const json_t *decoded = json_array_get(json_object_get(record, "decoded"), i);
    const size_t size = json_string_length(text);
    int32_t *ids;
    int64_t count;
    sheaf__text_range *range;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, json_string_value(text), size,
                                     &(sheaf__encode_options){ .plain = true }));
    if (!same_ids(ids, count, plain != NULL ? plain : specials))
        fail_msg("%s, text %zu: other ids", name, i);
    free(ids);
    CHECK_OK(sheaf__tokenizer_encode(&ids, &range, &count, t, json_string_value(text), size, NULL));
    if (!same_ids(ids, count, specials))
        fail_msg("%s, text %zu: other ids with special tokens", name, i);
    if (where != NULL)
        check_where(name, i, range, count, where);
    check_decoded(name, i, t, ids, count, json_is_null(decoded) ? text : decoded);
    free(ids);
    free(range);
}

TEST(test_tokenizer__ids_and_texts_are_those_of_tokenizers)
{
    const char *name;
    json_t *record;
    const size_t texts = json_array_size(json_object_get(recorded, "texts"));
    assert_true(texts > 20);
    json_object_foreach(json_object_get(recorded, "tokenizers"), name, record)
    {
        sheaf__tokenizer *t = open_recorded(name);
        for (int twice = 0; twice < 2; twice++) /* the second time words are remembered */
            for (size_t i = 0; i < texts; i++)
                check_text(name, t, record, i);
        sheaf__tokenizer_close(t);
    }
}

/* ---- streams ---- */

TEST(test_tokenizer__a_stream_shows_a_character_with_its_last_byte)
{
    sheaf__tokenizer *t = open_recorded("gpt2");
    sheaf__token_stream *s = NULL;
    const char *piece;
    size_t n;
    const int32_t euro[] = { sheaf__tokenizer_find(t, "\xc3\xa2"),
                             sheaf__tokenizer_find(t, "\xc4\xa4"),
                             sheaf__tokenizer_find(t, "\xc2\xac") }; /* bytes e2 82 ac */
    CHECK_OK(sheaf__token_stream_new(&s, t, true));
    for (int i = 0; i < 3; i++) {
        assert_true(euro[i] >= 0);
        CHECK_OK(sheaf__token_stream_push(&piece, NULL, s, euro[i]));
        assert_string_equal(piece, i < 2 ? "" : "\xe2\x82\xac");
    }
    CHECK_OK(sheaf__token_stream_push(&piece, NULL, s, euro[0]));
    assert_string_equal(piece, "");
    CHECK_OK(sheaf__token_stream_rest(&piece, &n, s));
    assert_string_equal(piece, "\xef\xbf\xbd");
    CHECK_FAILS(sheaf__token_stream_push(&piece, NULL, s, -1), SHEAF_E_DATA, "id 5");
    sheaf__token_stream_free(s);
    sheaf__tokenizer_close(t);
}

/* ---- special tokens in what people write ---- */

static bool is_special(const sheaf__tokenizer *t, int32_t id)
{
    const sheaf__added_token *added = sheaf__added_of(&t->added, id);
    return added != NULL && added->special;
}

TEST(test_tokenizer__special_tokens_in_plain_ranges_are_text)
{
    static const char text[] = "<|im_start|>a<|im_end|>b<|im_end|>";
    sheaf__tokenizer *t = open_recorded("added");
    const int32_t start = sheaf__tokenizer_find(t, "<|im_start|>"),
                  end = sheaf__tokenizer_find(t, "<|im_end|>");
    const sheaf__text_range content[] = { { 12, 24 } }; /* a person's words: a<|im_end|>b */
    const sheaf__text_range touching[] = { { 0, 1 }, { 33, 34 } };
    sheaf__encode_options o = { .plain_range = content, .plain_ranges = 1 };
    int32_t *ids;
    int64_t count;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, strlen(text), &o));
    assert_int_equal(ids[0], start);
    assert_int_equal(ids[count - 1], end);
    for (int64_t i = 1; i + 1 < count; i++)
        assert_false(is_special(t, ids[i]));
    free(ids);
    o = (sheaf__encode_options){ .plain_range = touching, .plain_ranges = 2 };
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, strlen(text), &o));
    int64_t specials = 0;
    for (int64_t i = 0; i < count; i++)
        specials += is_special(t, ids[i]);
    assert_int_equal(specials, 1); /* the one in the middle */
    free(ids);
    sheaf__tokenizer_close(t);
}

/* ---- many threads ---- */

static void *encode_all(void *context)
{
    const sheaf__tokenizer *t = context;
    const json_t *texts = json_object_get(recorded, "texts");
    const json_t *record = json_object_get(json_object_get(recorded, "tokenizers"), "llama3");
    for (int round = 0; round < 5; round++)
        for (size_t i = 0; i < json_array_size(texts); i++) {
            const json_t *text = json_array_get(texts, i);
            int32_t *ids;
            int64_t count;
            sheaf_status *st = sheaf__tokenizer_encode(
                &ids, NULL, &count, t, json_string_value(text), json_string_length(text), NULL);
            if (st != NULL ||
                !same_ids(ids, count, json_array_get(json_object_get(record, "specials"), i)))
                return context;
            free(ids);
        }
    return NULL;
}

TEST(test_tokenizer__threads_share_one)
{
    sheaf__tokenizer *t = open_recorded("llama3");
    pthread_t thread[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, encode_all, t), 0);
    for (int i = 0; i < 4; i++) {
        void *failed = t;
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    sheaf__tokenizer_close(t);
}

/* ---- long words ---- */

static int64_t count_ids(const sheaf__tokenizer *t, const char *text, size_t size)
{
    int32_t *ids;
    int64_t count;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, size, NULL));
    free(ids);
    return count;
}

TEST(test_tokenizer__a_word_of_a_megabyte_takes_no_square_of_it)
{
    const size_t size = (size_t)16 << 20;
    char *text = malloc(size + 1);
    sheaf__tokenizer *t = open_recorded("gpt2");
    int32_t *ids;
    int64_t count;
    assert_non_null(text);
    for (size_t i = 0; i <= size; i++)
        text[i] = "ntherat"[i % 7];
    assert_true(count_ids(t, text, 1 << 20) < 1 << 20);
    CHECK_FAILS(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, size + 1, NULL), SHEAF_E_DATA,
                "16777216 bytes without a place to divide it");
    CHECK_FAILS(
        sheaf__tokenizer_encode(&ids, NULL, &count, t, text, SHEAF_TOKENIZER_TEXT_MAX + 1, NULL),
        SHEAF_E_DATA, "divide it into several texts");
    text[77] = '\xff';
    CHECK_FAILS(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, size, NULL), SHEAF_E_DATA,
                "byte 77 of the text");
    free(text);
    sheaf__tokenizer_close(t);
}

/* ---- patterns ---- */

static uint32_t chance(uint64_t *seed, uint32_t below)
{
    *seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % below;
}

/* Random text of the characters that patterns distinguish. */
static size_t some_text(char *text, size_t most, uint64_t *seed)
{
    static const char *const bits[] = { "'", "'s", "'LL", "'\xc5\xbf", "re", "a", "Zz", " ", "  ",
                                        "\n", "\r\n", "\t", "1", "23456", ".", "!?", "_",
                                        /* of other scripts */
                                        "\xc2\xa0", "\xe2\x80\xa8", "\xc3\xa9", "\xcc\x81",
                                        "\xe4\xb8\xad", "\xd9\xa3", "\xf0\x9f\x98\x80",
                                        "\xf0\x9e\x93\x90", "\xe1\xa0\x8e" };
    size_t size = 0;
    while (size + 8 < most) {
        const char *bit = bits[chance(seed, ARRAY_LEN(bits))];
        memcpy(text + size, bit, strlen(bit));
        size += strlen(bit);
    }
    return size;
}

static void check_scanner(const char *text, size_t size, const sheaf__pattern *ours,
                          const sheaf__pattern *theirs, sheaf__matching **matching)
{
    sheaf__matches a = { .pattern = ours, .text = text, .size = size, .matching = matching };
    sheaf__matches b = { .pattern = theirs, .text = text, .size = size, .matching = matching };
    for (bool found = true, other = true; found;) {
        size_t begin = 0, end = 0, begin_b = 0, end_b = 0;
        CHECK_OK(sheaf__matches_next(&a, &found, &begin, &end));
        CHECK_OK(sheaf__matches_next(&b, &other, &begin_b, &end_b));
        if (found != other || (found && (begin != begin_b || end != end_b)))
            fail_msg("a match at [%zu, %zu), by PCRE2 at [%zu, %zu): %.40s", begin, end, begin_b,
                     end_b, text + begin);
    }
}

TEST(test_pattern__known_ones_are_read_as_pcre2_reads_them)
{
    const char *llama3 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}"
                         "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const char *qwen2 = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
                        "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const char *const known[] = { sheaf__gpt2_pattern, llama3, qwen2 };
    static char text[1 << 15];
    uint64_t seed = 11;
    for (size_t k = 0; k < ARRAY_LEN(known); k++) {
        char other[300];
        sheaf__pattern *ours = NULL, *theirs = NULL;
        sheaf__matching *matching = NULL;
        snprintf(other, sizeof other, "(?:%s)", known[k]);
        CHECK_OK(sheaf__pattern_open(&ours, known[k], false));
        CHECK_OK(sheaf__pattern_open(&theirs, other, false));
        assert_non_null(sheaf__pattern_scanner(ours));
        assert_null(sheaf__pattern_scanner(theirs));
        for (int round = 0; round < 8; round++)
            check_scanner(text, some_text(text, sizeof text >> round, &seed), ours, theirs,
                          &matching);
        sheaf__matching_free(matching);
        sheaf__pattern_close(ours);
        sheaf__pattern_close(theirs);
    }
}

TEST(test_pattern__what_oniguruma_reads_otherwise_is_refused)
{
    static const struct {
        const char *pattern, *found; /* NULL: the same in both */
    } cases[] = {
        { "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{M}]*[\\p{Ll}\\p{M}]+(?i:'s|'t|'re|'ve)?",
          NULL },
        { "[\u4e00-\u9fa5]+|[!\"#\\[\\\\\\]^_`{|}~][A-Za-z]+| ?[\\p{P}\\p{S}]++[\\r\\n/]*", NULL },
        { "'(?i:[sdmt]|ll|ve|re)ss|[^\\s\\d]?+a{2}b{2,}c{2,3}d{x}(?!\\S)(?<=b)c{2,3}?", NULL },
        { "(?:(?i:x)|ss)\\P{^Nd}[]a\\-]\\p{lu}", NULL },
        { "\\p{L}{2}+", "of a repeat, at byte 5" },
        { "a{2}?", "of a repeat, at byte 1" },
        { "a{,3}", "of a repeat, at byte 1" },
        { "\\u00e9", "an escape that is not known, at byte 0" },
        { "[\\xe9]", "an escape that is not known, at byte 1" },
        { "a\\w", "an escape that is not known" },
        { "\\0", "an escape that is not known" },
        { "\\", "an escape that is not known" },
        { "[a[b]]", "a set in a set, at byte 2" },
        { "[[:alpha:]]", "a set in a set" },
        { "[a&&b]", "an intersection of sets" },
        { "(?m:.)", "an option that is not known" },
        { "a(?i)b|c", "an option that is not known, at byte 1" },
        { "(?<n>a)", "a group or an option that is not known" },
        { "(?|a)", "a group or an option that is not known" },
        { "(*UTF)a", "a verb" },
        { "\\p{Han}", "no general category, at byte 0" },
        { "a|\\p{L&}", "no general category, at byte 2" },
        { "(?i:x|aSs)", "letters under (?i) that one character may stand for, at byte 8" },
        { "(?i:a|(?:f)i|fi)", "that one character may stand for" },
        { "(?i:\u00df)", "no ASCII under (?i)" },
        { "(?i:[\u00df])", "no ASCII under (?i)" },
        { "(?i:[\\p{Lu}])", "a property under (?i)" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *pattern = cases[i].pattern;
        sheaf_status *st = sheaf__oniguruma_check(pattern);
        if (cases[i].found != NULL)
            CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, cases[i].found);
        else
            CHECK_OK(st);
    }
}

/* An empty match is taken if no other ends there; behind it the next character is looked at. */
TEST(test_pattern__an_empty_match_stands_apart)
{
    static const char text[] = "xyz\u00e9b\u00e9"; /* without its first three letters */
    static const size_t want[][2] = { { 0, 0 }, { 2, 3 }, { 5, 5 } };
    sheaf__pattern *p = NULL;
    sheaf__matching *matching = NULL;
    CHECK_OK(sheaf__pattern_open(&p, "b*", false));
    sheaf__matches m = { .pattern = p, .text = text + 3, .size = 5, .matching = &matching };
    bool found = true;
    size_t n = 0;
    for (size_t begin, end; found; n += found) {
        CHECK_OK(sheaf__matches_next(&m, &found, &begin, &end));
        if (found)
            assert_true(n < ARRAY_LEN(want) && begin == want[n][0] && end == want[n][1]);
    }
    assert_int_equal(n, ARRAY_LEN(want));
    sheaf__matching_free(matching);
    sheaf__pattern_close(p);
}

/* Without memory it is neither a bad pattern nor another one. */
TEST(test_pattern__says_that_memory_is_short)
{
    static const char pattern[] = "\\p{Lu}+|\\d[ab]{2,9}";
    long n = 1;
    if (!DENIED_MEMORY_WORKS)
        return; /* see tests/faults/denied_memory.h */
    for (bool done = false; !done; n++) {
        sheaf__pattern *p = NULL;
        deny_begin(n);
        sheaf_status *st = sheaf__pattern_open(&p, pattern, false);
        deny_end();
        done = atomic_load(&deny_seen) < n;
        if (st != NULL)
            CHECK_FAILS(st, SHEAF_E_MEMORY, "");
        else
            sheaf__pattern_close(p);
    }
    assert_true(n > 3);
}

/* ---- files that are wrong ---- */

#define BPE(vocab, merges) "{\"type\":\"BPE\",\"vocab\":" vocab ",\"merges\":" merges "}"
#define WITH(more) "{\"model\":" BPE("{\"a\":0,\"b\":1,\"ab\":2}", "[\"a b\"]") "," more "}"
#define ADDED(id, content)                                                                         \
    "{\"id\":" id ",\"content\":\"" content "\",\"single_word\":false,\"lstrip\":false,"           \
    "\"rstrip\":false,\"normalized\":false,\"special\":true}"

static const struct {
    const char *text;
    sheaf_code code;
    const char *part;
} wrong[] = {
    { "", SHEAF_E_FORMAT, "an object: a tokenizer.json" },
    { "[]", SHEAF_E_FORMAT, "an object: a tokenizer.json" },
    { "{", SHEAF_E_FORMAT, "a string" },
    { "{}", SHEAF_E_FORMAT, "'model'" },
    { "{\"model\":", SHEAF_E_FORMAT, "model: line 1, column 10" },
    { "{\"model\":{}}", SHEAF_E_FORMAT, "model: 'type' | a name" },
    { "{\"model\":{\"type\":\"LSTM\"}}", SHEAF_E_UNSUPPORTED, "'LSTM'" },
    { "{\"model\":" BPE("{\"a\":0}", "[]") ",\"model\":1}", SHEAF_E_FORMAT, "'model' again" },
    { "{\"model\":" BPE("{\"a\":0,\"a\":1}", "[]") "}", SHEAF_E_FORMAT,
      "token 'a' | each token once | a duplicate: ids 0 and 1" },
    { "{\"model\":" BPE("{\"a\":0,\"b\":0}", "[]") "}", SHEAF_E_FORMAT,
      "each id once | 0, the id of 'a'" },
    { "{\"model\":" BPE("{\"a\":-1}", "[]") "}", SHEAF_E_FORMAT, "a whole number" },
    { "{\"model\":" BPE("{\"a\":99999999}", "[]") "}", SHEAF_E_UNSUPPORTED, "an id of at most" },
    { "{\"model\":" BPE("{\"a\":0,}", "[]") "}", SHEAF_E_FORMAT, "a string" },
    { "{\"model\":" BPE("[]", "[]") "}", SHEAF_E_FORMAT, "an object of tokens" },
    { "{\"model\":" BPE("{\"a\":0}", "{}") "}", SHEAF_E_FORMAT, "a list of merges" },
    { "{\"model\":" BPE("{\"a\":0}", "[\"a\"]") "}", SHEAF_E_FORMAT, "merge 1" },
    { "{\"model\":" BPE("{\"a\":0}", "[\"a a\"]") "}", SHEAF_E_FORMAT, "'aa'" },
    { "{\"model\":" BPE("{\"a\":0,\"ab\":1}", "[[\"a\",\"b\"]]") "}", SHEAF_E_FORMAT,
      "merge 1 | tokens of the vocabulary | 'b'" },
    { "{\"model\":" BPE("{\"a\":0}", "[[\"a\"]]") "}", SHEAF_E_FORMAT, "the second token" },
    { "{\"model\":" BPE("{\"a\":0}", "[1]") "}", SHEAF_E_FORMAT, "a merge" },
    { "{\"model\":{\"type\":\"BPE\",\"dropout\":0.1,\"vocab\":{},\"merges\":[]}}",
      SHEAF_E_UNSUPPORTED, "'dropout'" },
    { "{\"model\":{\"type\":\"BPE\",\"speed\":9,\"vocab\":{},\"merges\":[]}}", SHEAF_E_UNSUPPORTED,
      "'speed'" },
    { "{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", SHEAF_E_FORMAT, "'merges'" },
    { WITH("\"version\":\"2.0\""), SHEAF_E_UNSUPPORTED, "'version'" },
    { WITH("\"beauty\":1"), SHEAF_E_FORMAT, "'beauty'" },
    { WITH("\"pre_tokenizer\":{\"type\":\"Guess\"}"), SHEAF_E_UNSUPPORTED,
      "pre_tokenizer: Guess: type" },
    { WITH("\"pre_tokenizer\":{}"), SHEAF_E_UNSUPPORTED, "'type'" },
    { WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"tall\":1}"), SHEAF_E_UNSUPPORTED,
      "'tall'" },
    { WITH("\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"use_regex\":1}"), SHEAF_E_FORMAT,
      "'use_regex'" },
    { WITH("\"pre_tokenizer\":{\"type\":\"Sequence\"}"), SHEAF_E_FORMAT, "'pretokenizers'" },
    { WITH(
          "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}"),
      SHEAF_E_FORMAT, "a regular expression" },
    { WITH(
          "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Glob\":\"(\"},\"behavior\":\"Isolated\"}"),
      SHEAF_E_UNSUPPORTED, "'pattern'" },
    { WITH(
          "\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"(\"},\"behavior\":\"Doubled\"}"),
      SHEAF_E_UNSUPPORTED, "'behavior'" },
    { WITH("\"normalizer\":{\"type\":\"Upside\"}"), SHEAF_E_UNSUPPORTED, "normalizer: Upside" },
    { WITH("\"decoder\":{\"type\":\"Upside\"}"), SHEAF_E_UNSUPPORTED, "decoder: Upside" },
    { WITH("\"post_processor\":{\"type\":\"Upside\"}"), SHEAF_E_UNSUPPORTED,
      "post_processor: Upside" },
#define TEMPLATE(more)                                                                             \
    "{\"type\":\"TemplateProcessing\",\"single\":[" more                                           \
    "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"pair\":[],\"special_tokens\":"                 \
    "{\"a\":{\"id\":\"a\",\"ids\":[0],\"tokens\":[\"a\"]}}}"
#define TEMPLATE_A TEMPLATE("{\"SpecialToken\":{\"id\":\"a\",\"type_id\":0}},")
    { WITH("\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" TEMPLATE_A
           "," TEMPLATE("") "]}"),
      SHEAF_E_UNSUPPORTED,
      "TemplateProcessing: 'type' | nothing but ByteLevel behind a TemplateProcessing" },
    { WITH("\"post_processor\":{\"type\":\"Sequence\",\"processors\":[" TEMPLATE_A
           ",{\"type\":\"ByteLevel\"}," TEMPLATE("") "]}"),
      SHEAF_E_UNSUPPORTED, "TemplateProcessing: 'type' | nothing but ByteLevel" },
    { WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\"},"
           "\"added_tokens\":[{\"id\":3,\"content\":\"  \",\"single_word\":false,\"lstrip\":false,"
           "\"rstrip\":false,\"normalized\":true,\"special\":false}]"),
      SHEAF_E_UNSUPPORTED, "added_tokens: '  ' | a token that is not empty after the normalizer" },
    { WITH(
          "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"\\u0000b\"}"),
      SHEAF_E_UNSUPPORTED, "strings without NUL" },
    { WITH(
          "\"decoder\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\\u0000\"},\"content\":\"b\"}"),
      SHEAF_E_UNSUPPORTED, "strings without NUL" },
    { "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"a\\u0000\",\"vocab\":{\"a\":0},\"merges\":[]}}",
      SHEAF_E_UNSUPPORTED, "'unk_token': " },
    { WITH("\"added_tokens\":{}"), SHEAF_E_FORMAT, "added_tokens" },
    { WITH("\"added_tokens\":[{\"id\":3,\"content\":\"x\"}]"), SHEAF_E_FORMAT,
      "token 1: 'single_word'" },
    { WITH("\"added_tokens\":[" ADDED("7", "x") "]"), SHEAF_E_LAYOUT, "3, the next one | 7" },
    { WITH("\"added_tokens\":[" ADDED("1", "a") "]"), SHEAF_E_LAYOUT,
      "0, its id in the model | 1" },
    { WITH("\"added_tokens\":[" ADDED("3", "x") "," ADDED("4", "x") "]"), SHEAF_E_FORMAT,
      "'x' again: ids 3 and 4" },
    { WITH("\"padding\":nil"), SHEAF_E_FORMAT, "a JSON value" },
    /* parts */
    { WITH("\"normalizer\":{\"type\":\"Lowercased\"}"), SHEAF_E_UNSUPPORTED, "'Lowercased'" },
    { WITH("\"normalizer\":{\"type\":\"NFC\",\"form\":1}"), SHEAF_E_UNSUPPORTED, "'form'" },
    { WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}"),
      SHEAF_E_UNSUPPORTED, "'pattern'" },
    { WITH("\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"}}"), SHEAF_E_FORMAT,
      "'content'" },
    { WITH("\"normalizer\":{\"type\":\"Prepend\"}"), SHEAF_E_FORMAT, "'prepend'" },
    { WITH("\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true}"), SHEAF_E_UNSUPPORTED,
      "normalizer: BertNormalizer: type | one of Sequence, NFC" },
    { WITH("\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAA\"}"),
      SHEAF_E_UNSUPPORTED, "'Precompiled'" },
    { WITH("\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"__\"}"), SHEAF_E_FORMAT,
      "'replacement'" },
    { WITH(
          "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"last\"}"),
      SHEAF_E_UNSUPPORTED, "'prepend_scheme'" },
    { WITH(
          "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}"),
      SHEAF_E_FORMAT, "'add_prefix_space'" },
    { WITH("\"pre_tokenizer\":{\"type\":\"Digits\"}"), SHEAF_E_FORMAT, "'individual_digits'" },
    { WITH("\"pre_tokenizer\":{\"type\":\"Scripts\"}"), SHEAF_E_UNSUPPORTED, "'Scripts'" },
    { WITH("\"decoder\":{\"type\":\"CTC\"}"), SHEAF_E_UNSUPPORTED, "decoder: CTC: type" },
    { WITH("\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":-1,\"stop\":0}"),
      SHEAF_E_FORMAT, "'start'" },
    { WITH(
          "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"x\"}}]}"),
      SHEAF_E_FORMAT, "'x'" },
    { WITH(
          "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}"),
      SHEAF_E_UNSUPPORTED, "'single'" },
    { WITH("\"post_processor\":{\"type\":\"RobertaProcessing\",\"sep\":[\"a\",1]}"), SHEAF_E_FORMAT,
      "'cls'" },
    { WITH("\"post_processor\":{\"type\":\"BertProcessing\",\"sep\":[\"a\"],\"cls\":[\"b\",1]}"),
      SHEAF_E_FORMAT, "'sep'" },
    { "{\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"u\",\"vocab\":{}}}", SHEAF_E_UNSUPPORTED,
      "model: type | BPE | 'WordPiece'" },
};

TEST(test_tokenizer__wrong_files_are_named_by_what_is_wrong)
{
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        sheaf__tokenizer *t = NULL;
        char *text = strdup(wrong[i].text); /* so that nothing behind it can be read */
        CHECK_FAILS(parse_tokenizer(&t, text), wrong[i].code, wrong[i].part);
        assert_null(t);
        free(text);
    }
}

/* Ten steps that write `times` a for each make more than any memory of a few letters. */
static sheaf__tokenizer *growing(const char *member, const char *list, int steps, int times)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text,
                    "{\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0}},"
                    "\"%s\":{\"type\":\"Sequence\",\"%s\":[",
                    member, list);
    for (int i = 0; i < steps; i++) {
        sheaf__text_add(&text,
                        "%s{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"",
                        i > 0 ? "," : "");
        for (int k = 0; k < times; k++)
            sheaf__text_add(&text, "a");
        sheaf__text_add(&text, "\"}");
    }
    sheaf__text_add(&text, "]}}");
    return tokenizer_made(&text);
}

TEST(test_tokenizer__steps_that_make_ever_more_are_refused)
{
    static const char letters[] = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"; /* 42 */
    static const int32_t id[42] = { 0 };
    static const char found[] =
        "tokenizer: Replace | at most 3712 bytes of a text of 42 | steps that make more";
    static const struct {
        int steps, times;
        bool much;
    } cases[] = {
        { 10, 1000, true }, { 1, 1000, true }, { 10, 2, true }, { 1, 88, false }, { 2, 9, false }
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int32_t *ids = NULL;
        char *text = NULL;
        int64_t n = 0;
        size_t size = 0;
        sheaf__tokenizer *in = growing("normalizer", "normalizers", cases[i].steps, cases[i].times),
                         *out = growing("decoder", "decoders", cases[i].steps, cases[i].times);
        sheaf_status *encoded = sheaf__tokenizer_encode(&ids, NULL, &n, in, letters, 42, NULL),
                     *decoded = sheaf__tokenizer_decode(&text, &size, out, id, 42, false);
        if (cases[i].much) {
            CHECK_FAILS(encoded, SHEAF_E_UNSUPPORTED, found);
            CHECK_FAILS(decoded, SHEAF_E_UNSUPPORTED, "tokenizer: Replace");
        } else {
            CHECK_OK(encoded);
            CHECK_OK(decoded);
        }
        free(ids);
        free(text);
        sheaf__tokenizer_close(in);
        sheaf__tokenizer_close(out);
    }
}

TEST(test_tokenizer__tokens_are_found_by_text_and_by_id)
{
    static const char text[] = WITH("\"added_tokens\":[" ADDED("3", "<x>") "]");
    sheaf__tokenizer *t = tokenizer_of(text);
    assert_int_equal(sheaf__tokenizer_size(t), 4);
    assert_int_equal(sheaf__tokenizer_find(t, "ab"), 2);
    assert_int_equal(sheaf__tokenizer_find(t, "<x>"), 3);
    assert_int_equal(sheaf__tokenizer_find(t, "c"), -1);
    assert_string_equal(sheaf__tokenizer_token(t, 3), "<x>");
    assert_null(sheaf__tokenizer_token(t, 4));
    assert_null(sheaf__tokenizer_token(t, -1));
    assert_true(is_special(t, 3));
    assert_false(is_special(t, 0));
    assert_int_equal(sheaf__tokenizer_bos(t), -1);
    sheaf__tokenizer_close(t);
}

/* ---- by hand ---- */

static void check_hand(const char *file, const char *text, const int32_t *want, int64_t count)
{
    sheaf__tokenizer *t = tokenizer_of(file);
    int32_t *ids;
    int64_t n;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &n, t, text, strlen(text), NULL));
    assert_int_equal(n, count);
    CHECK_BYTES(text, ids, want, (size_t)count * sizeof *want);
    free(ids);
    sheaf__tokenizer_close(t);
}

TEST(test_bpe__of_equal_pairs_the_first_is_merged_first)
{
    static const char file[] = "{\"model\":" BPE("{\"a\":0,\"aa\":1}", "[\"a a\"]") "}";
    char text[102] = "";
    int32_t want[51];
    check_hand(file, "aaaaa", (int32_t[]){ 1, 1, 0 }, 3);
    memset(text, 'a', 101); /* so many are kept in a heap */
    for (int i = 0; i < 50; i++)
        want[i] = 1;
    want[50] = 0;
    check_hand(file, text, want, 51);
}

TEST(test_bpe__unknown_characters_side_by_side_are_one_where_they_are_fused)
{
#define UNKNOWN(fuse)                                                                              \
    "{\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"fuse_unk\":" fuse                          \
    ",\"vocab\":{\"?\":0,\"a\":1},\"merges\":[]}}"
    check_hand(UNKNOWN("true"), "axyza", (int32_t[]){ 1, 0, 1 }, 3);
    check_hand(UNKNOWN("false"), "axyza", (int32_t[]){ 1, 0, 0, 0, 1 }, 5);
    /* Without unk_token they are left out, as tokenizers does. */
    check_hand("{\"model\":" BPE("{\"a\":0,\"aa\":1}", "[\"a a\"]") "}", "axa", (int32_t[]){ 1 },
               1);
}

TEST(test_decode__bytes_become_characters_as_rust_reads_them)
{
    static const char *const cases[][2] = {
        { "\xe2\x82\xac", "\xe2\x82\xac" },
        { "\xe2\x82", "?" },
        { "\xe2\x82z", "?z" },
        { "\xe0\x80z", "??z" },
        { "\xed\xa0\x80", "???" },
        { "\xf0\x9f\x98z", "?z" },
        { "\xf0\x8f\x98", "???" },
        { "\xf4\x90z", "??z" },
        { "\xf5\xc0\xaf", "???" },
        { "\x80z\xff", "?z?" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_text got = { 0 }, want = { 0 };
        sheaf__text_lossy(&got, cases[i][0], strlen(cases[i][0]), true);
        for (const char *p = cases[i][1]; *p != '\0'; p++)
            sheaf__text_bytes(&want, *p == '?' ? "\xef\xbf\xbd" : p, *p == '?' ? 3 : 1);
        assert_string_equal(got.at, want.at);
        sheaf__text_release(&got);
        sheaf__text_release(&want);
    }
}

FIXTURE(setup, teardown);
