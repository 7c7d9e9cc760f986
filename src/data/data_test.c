/* data_test.c - data sets: what is read, in which order, and what is refused. */
#include <inttypes.h>

#include "ops/kernels.h"
#include "tests/byte_config.h"
#include "tests/heard.h"
#include "tests/tensors.h"
#include "data/data.h"

enum { NO = SHEAF__IGNORED };

static sheaf_status *open_lines(sheaf_data **data, const char *content, size_t size, int64_t seq)
{
    return sheaf_data_open(data, file_with("data.jsonl", content, size),
                           &(sheaf_data_options){ .config = &byte_config, .seq = seq });
}

/* ---- JSON Lines ---- */

TEST(test_jsonl__records_become_tokens_and_labels)
{
    static const char lines[] = "{\"prompt\": \"ab\", \"completion\": \"c\"}\n\n"
                                "{\"text\": \"d\\u0000\\u00e9\"}\r\n"
                                "{\"prompt\": \"\", \"completion\": \"x\", \"id\": 7}";
    static const int32_t tokens[3][5] = { { BOS, 'a', 'b', 'c', EOS },
                                          { BOS, 'd', 0, 0xC3, 0xA9 },
                                          { BOS, 'x', EOS, PAD, PAD } };
    static const int32_t labels[3][6] = { { NO, NO, 'c', EOS, NO, NO },
                                          { 'd', 0, 0xC3, 0xA9, EOS, NO },
                                          { 'x', EOS, NO, NO, NO, NO } };
    sheaf_data *data;
    CHECK_OK(open_lines(&data, lines, sizeof lines - 1, 0));
    assert_int_equal(sheaf_data_rows(data), 3);
    assert_int_equal(sheaf_data_seq(data), 6); /* bos d 0 C3 A9 eos */
    int32_t t[18], l[18], p[18];
    uint8_t m[18];
    const int64_t rows[] = { 0, 1, 2 };
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ t, l, p, m }, data, rows, 3));
    for (int r = 0; r < 3; r++) {
        CHECK_BYTES("tokens", t + r * 6, tokens[r], sizeof tokens[r]);
        CHECK_BYTES("labels", l + r * 6, labels[r], sizeof labels[r]);
        for (int i = 0; i < 6; i++)
            assert_int_equal(p[r * 6 + i], i);
    }
    static const uint8_t mask[18] = { 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0 };
    CHECK_BYTES("mask", m, mask, 18);
    assert_int_equal(t[5], PAD);
    assert_int_equal(sheaf_data_labels(data, rows, 3), 2 + 5 + 2);
    assert_int_equal(sheaf_data_tokens(data, rows, 3), 5 + 6 + 3);
    sheaf_data_close(data);
}

#define SOME_TEXT                                                                                  \
    "0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghij" \
    "klmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz0123" \
    "456789abcdefghijklmnopqrstuvwxyz"

#define GOOD "{\"text\": \"good\"}\n"
static const struct {
    const char *name, *content, *want, *also;
} bad_lines[] = {
    { "not JSON", GOOD "{\"text\": \"a\"\n", "line 2: not a record", "one JSON object" },
    { "two objects", "{\"text\": \"a\"} {\"text\": \"b\"}\n", "line 1", "one JSON object" },
    { "an array", GOOD GOOD "[\"a\"]\n", "line 3", "an array" },
    { "a bare string", "\"a\"\n", "line 1", "a string" },
    { "no field", GOOD "{\"txt\": \"a\"}\n", "line 2: field 'prompt'", "no such field" },
    { "no completion", "{\"prompt\": \"a\"}\n", "line 1: field 'completion'", "no such field" },
    { "no prompt", "{\"completion\": \"a\"}\n", "line 1: field 'prompt'", "no such field" },
    { "both forms", "{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"c\"}\n", "field 'text'",
      "both" },
    { "text is a number", "{\"text\": 5}\n", "field 'text'", "a number" },
    { "prompt is null", "{\"prompt\": null, \"completion\": \"b\"}\n", "field 'prompt'",
      "no such field" },
    { "text is null", GOOD "{\"text\": null}\n", "line 2: field 'prompt'", "no such field" },
    { "completion is a list", "{\"prompt\": \"a\", \"completion\": [\"b\"]}\n",
      "field 'completion'", "an array" },
    { "empty completion", "{\"prompt\": \"a\", \"completion\": \"\"}\n", "field 'completion'",
      "an empty string" },
    { "empty text", "{\"text\": \"\"}\n", "field 'text'", "an empty string" },
    { "duplicate field", "{\"text\": \"a\", \"text\": \"b\"}\n", "line 1", "duplicate" },
    { "latin-1", GOOD "{\"text\": \"\xE9t\"}\n", "line 2", "0xE9 at column 11" },
    { "cut character", "{\"text\": \"\xE2\x82\n", "line 1", "0xE2" },
    { "lone surrogate escape", "{\"text\": \"\\ud800\"}\n", "line 1", "JSON" },
    { "byte order mark inside", GOOD "\xEF\xBB\xBF" GOOD, "line 2", "one JSON object" },
    { "bad ones are counted", GOOD "[]\n" GOOD "{}\n7\n", "3 of 5 records are bad",
      "\"instruction\", found an array\n            line 4: field 'prompt'" },
    { "nothing", "", "empty data set", "at least one record" },
    { "only blanks", "\n  \n\t\n", "empty data set", "none" },
    { "an empty array", "[ ]\n", "empty data set", "at least one record" },
    { "an entry that is no object", "[{\"text\": \"a\"}, [1], 5]", "2 of 3 records are bad",
      "entry 2: not a record" },
    { "an entry without its fields", "\xEF\xBB\xBF [{\"text\": \"a\"},\n{\"txt\": \"a\"}]",
      "entry 2: field 'prompt'", "no such field" },
};

TEST(test_jsonl__a_bad_record_is_named)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_lines); i++) {
        sheaf_data *data = NULL;
        const char *content = bad_lines[i].content;
        CHECK_FAILS(open_lines(&data, content, strlen(content), 0), SHEAF_E_DATA,
                    bad_lines[i].want);
        CHECK_FAILS(open_lines(&data, content, strlen(content), 0), SHEAF_E_DATA,
                    bad_lines[i].also);
        assert_null(data);
    }
    sheaf_data *data = NULL;
    static const char raw_nul[] = "{\"text\": \"a\0b\"}\n";
    CHECK_FAILS(open_lines(&data, raw_nul, sizeof raw_nul - 1, 0), SHEAF_E_DATA, "line 1");
}

/* Only the array itself; an entry that is broken is named as one. */
static const struct {
    const char *content, *want;
} broken_arrays[] = {
    { "[" GOOD, "line 2, column 1 | ',' or ']' after entry 1 of the list | the end of the file" },
    { "[" GOOD "]x", "line 2, column 2 | nothing after entry 1 of the list | x" },
    { "[" GOOD GOOD "]", "line 2, column 1 | ',' or ']' after entry 1 of the list | {" },
    { "[" GOOD ",]", "line 2, column 2 | another entry after entry 1 of the list | ]" },
    { "[,]", "line 1, column 2 | an entry or ']', as the file begins with [ | ," },
    { "[{\"text\": \"a",
      "the end of a text that begins after entry 1 of the list | the end of the file" },
    { "[{\"text\": [\"a\"",
      "the end of what begins after entry 1 of the list | the end of the file" },
};

TEST(test_jsonl__an_array_is_read_as_lines_are)
{
    static const char *const same[] = {
        "{\"text\": \"a]\\\"}\"}\n{\"prompt\": \"p\", \"completion\": \"c\"}\n",
        "\xEF\xBB\xBF{\"text\": \"a]\\\"}\"}\n{\"prompt\": \"p\", \"completion\": \"c\"}\n",
        "[{\"text\": \"a]\\\"}\"},{\"prompt\": \"p\", \"completion\": \"c\"}]",
        "\xEF\xBB\xBF\n [ {\n \"text\" :\n\"a]\\\"}\"\n} \n,\n {\"prompt\": \"p\", \"n\": [{}, [1, \"]\"]], \"completion\": \"c\"} ] \n",
    };
    char hash[33] = "";
    for (size_t i = 0; i < ARRAY_LEN(same); i++) {
        sheaf_data *data;
        CHECK_OK(open_lines(&data, same[i], strlen(same[i]), 0));
        if (i == 0)
            snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
        assert_int_equal(sheaf_data_rows(data), 2);
        assert_string_equal(sheaf_data_hash(data), hash);
        sheaf_data_close(data);
    }
    for (size_t i = 0; i < ARRAY_LEN(broken_arrays); i++) {
        sheaf_data *data = NULL;
        CHECK_FAILS(
            open_lines(&data, broken_arrays[i].content, strlen(broken_arrays[i].content), 0),
            SHEAF_E_FORMAT, broken_arrays[i].want);
    }
}

/* Positions that the model was not made for: never unasked, and with a warning where --seq asks for
 * them. */
TEST(test_positions__beyond_the_model_are_refused_or_warned_of)
{
    static const char lines[] =
        GOOD "{\"text\": \"0123456789\"}\n{\"text\": \"012345678\"}\n"; /* 6, 12 and 11 tokens */
    sheaf_config config = byte_config;
    config.max_position = 10;
    sheaf_data_options options = { .config = &config, .events = hear_warnings() };
    sheaf_data *data = NULL;
    const char *file = file_with("data.jsonl", lines, sizeof lines - 1);
    CHECK_FAILS(
        sheaf_data_open(&data, file, &options), SHEAF_E_DATA,
        "line 2 | at most 10 tokens, the model's max_position_embeddings | 12 tokens; 2 lines are longer than max_position_embeddings, the "
        "longest has 12 | split these records, or say what becomes of them: `on-long cut` or `on-long skip`; `seq 12` is more than the model was trained for");
    assert_string_equal(heard, "");
    options.seq = 12;
    CHECK_OK(sheaf_data_open(&data, file, &options));
    sheaf_data_close(data);
    assert_non_null(strstr(
        heard, "rows of up to 12 positions, more than the model's max_position_embeddings of 10"));
    heard[0] = '\0';
    config.max_position = 12;
    options.seq = 100; /* no row is as long */
    CHECK_OK(sheaf_data_open(&data, file, &options));
    sheaf_data_close(data);
    assert_string_equal(heard, "");
}

TEST(test_jsonl__too_long_is_an_error_never_a_cut)
{
    static const char lines[] =
        "{\"text\": \"abcd\"}\n{\"text\": \"abcde\"}\n{\"text\": \"abcdefgh\"}\n";
    sheaf_data *data = NULL;
    CHECK_FAILS(open_lines(&data, lines, sizeof lines - 1, 6), SHEAF_E_DATA,
                "line 2 | at most 6 tokens, the value of `seq` | 7 tokens; 2 lines are longer than "
                "`seq`, the longest has 10 | `seq 10`");
    CHECK_FAILS(open_lines(&data, lines, sizeof lines - 1, 9), SHEAF_E_DATA, "1 line is longer");
    CHECK_OK(open_lines(&data, lines, sizeof lines - 1, 10));
    assert_int_equal(sheaf_data_seq(data), 10);
    sheaf_data_close(data);
    CHECK_OK(open_lines(&data, lines, sizeof lines - 1, 16)); /* shapes follow --seq */
    assert_int_equal(sheaf_data_seq(data), 16);
    sheaf_data_close(data);
}

TEST(test_jsonl__the_model_must_fit)
{
    sheaf_config config = byte_config;
    sheaf_data *data = NULL;
    const sheaf_data_options options = { .config = &config };
    const char *path = file_with("data.jsonl", GOOD, strlen(GOOD));
    config.byte_vocab = false;
    CHECK_FAILS(sheaf_data_open(&data, path, &options), SHEAF_E_UNSUPPORTED, "needs a tokenizer");
    config = byte_config;
    config.vocab = 257;
    CHECK_FAILS(sheaf_data_open(&data, path, &options), SHEAF_E_LAYOUT, "eos_token_id");
    config = byte_config;
    config.neos = 0;
    CHECK_FAILS(sheaf_data_open(&data, path, &options), SHEAF_E_LAYOUT, "eos_token_id -1");
    config = byte_config;
    config.bos = -1; /* no bos, nothing before the text */
    CHECK_OK(sheaf_data_open(&data, path, &options));
    assert_int_equal(sheaf_data_seq(data), 5);
    sheaf_data_close(data);
    CHECK_FAILS(sheaf_data_open(&data, "/nowhere/x.jsonl", &options), SHEAF_E_IO,
                "/nowhere/x.jsonl");
    CHECK_FAILS(sheaf_data_open(&data, "/proc/self/fd", &options), SHEAF_E_UNSUPPORTED,
                "a folder of .json or .jsonl files (also .gz, .zst) | a folder with none");
}

/* ---- safetensors ---- */

static sheaf_status *open_tensors(sheaf_data **data, const tensor *list, int n, int64_t seq)
{
    const sheaf_config config = { .vocab = 100, .pad = 3, .bos = -1 };
    return sheaf_data_open(data, tensors_file(list, n),
                           &(sheaf_data_options){ .config = &config, .seq = seq });
}

static const int64_t ids[8] = { 5, 6, 7, 8, 9, 10, 3, 3 };
static const int64_t want_labels[8] = { -100, 6, 7, 99, -100, 10, -100, -100 };
static const int64_t masks[8] = { 1, 1, 1, 1, 1, 1, 0, 0 };

/* Positions of a micro-batch that lie in one unit with a label. */
static int64_t in_units(const int32_t *label, int64_t n)
{
    int64_t in = 0;
    for (int64_t unit = 0, end; unit < n; unit = end) {
        bool any = false;
        end = unit + SHEAF_DATA_READ_UNIT < n ? unit + SHEAF_DATA_READ_UNIT : n;
        for (int64_t i = unit; i < end; i++)
            any |= label[i] != NO;
        in += any ? end - unit : 0;
    }
    return in;
}

/* Answers of 1 to 40 bytes behind prompts of up to 200. */
static size_t write_answers(char *lines, int records)
{
    size_t size = 0;
    for (int r = 0; r < records; r++)
        size += (size_t)sprintf(lines + size, "{\"prompt\": \"%.*s\", \"completion\": \"%.*s\"}\n",
                                r * 67 % 200, SOME_TEXT, 1 + r * 13 % 40, SOME_TEXT);
    return size;
}

TEST(test_read__is_never_more_than_said)
{
    enum { RECORDS = 12, MOST = 25, LONGEST = 256 };
    static int32_t label[MOST * LONGEST];
    static char lines[RECORDS * 400];
    sheaf_data *data;
    CHECK_OK(open_lines(&data, lines, write_answers(lines, RECORDS), 0));
    assert_true(sheaf_data_seq(data) <= LONGEST);
    for (int64_t n = 1; n <= MOST; n++) {
        const int64_t most = sheaf_data_read_most(data, n, RECORDS);
        int64_t row[MOST], seen = 0;
        for (int64_t micro = 0; micro < 60; micro++) {
            for (int64_t i = 0; i < n; i++)
                row[i] = sheaf_data_sample_of(data, NULL, 0, micro * n + i, 3, micro % 2 > 0);
            const int64_t seq = sheaf_data_used(data, row, n);
            CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .labels = label, .seq = seq }, data, row, n));
            const int64_t in = in_units(label, n * seq);
            seen = in > seen ? in : seen;
        }
        if (seen > most)
            fail_msg("%lld rows: %lld positions, said were %lld", (long long)n, (long long)seen,
                     (long long)most);
        /* the longest answer, its end among it, and beside it what a unit may have */
        if (n == 1)
            assert_int_equal(most, 40 + 1 + 2 * (SHEAF_DATA_READ_UNIT - 1));
    }
    sheaf_data_close(data);
}

TEST(test_safetensors__both_widths_with_and_without_mask)
{
    static const int32_t labels[8] = { 6, 7, 99, NO, 10, NO, NO, NO };
    static const char *const dtype[] = { "I32", "I64" };
    char hash[2][33];
    for (int wide = 0; wide < 2; wide++) {
        const tensor list[] = { { "input_ids", dtype[wide], { 2, 4 }, ids },
                                { "labels", dtype[!wide], { 2, 4 }, want_labels },
                                { "attention_mask", dtype[wide], { 2, 4 }, masks } };
        for (int n = 2; n <= 3; n++) {
            sheaf_data *data;
            CHECK_OK(open_tensors(&data, list, n, 0));
            assert_int_equal(sheaf_data_rows(data), 2);
            assert_int_equal(sheaf_data_seq(data), 4);
            int32_t t[12], l[12];
            uint8_t m[12];
            const int64_t rows[] = { 1, -1, 0 };
            CHECK_OK(sheaf_data_batch(&(sheaf_batch){ t, l, NULL, m }, data, rows, 3));
            for (int i = 0; i < 4; i++) {
                assert_int_equal(t[i], ids[4 + i]);
                assert_int_equal(t[4 + i], 3);
                assert_int_equal(l[4 + i], NO);
                assert_int_equal(t[8 + i], ids[i]);
                assert_int_equal(m[i], n == 2 || i < 2);
                assert_int_equal(m[4 + i], 0);
            }
            CHECK_BYTES("labels of row 1", l, labels + 4, 16);
            CHECK_BYTES("labels of row 0", l + 8, labels, 16);
            assert_int_equal(sheaf_data_labels(data, rows, 3), 4);
            assert_int_equal(sheaf_data_tokens(data, rows, 3), n == 2 ? 8 : 6);
            strcpy(hash[n - 2], sheaf_data_hash(data));
            sheaf_data_close(data);
        }
        assert_string_not_equal(hash[0], hash[1]); /* the mask is content */
    }
}

TEST(test_safetensors__seq_may_cut_padding_but_no_token)
{
    static const int64_t two[8] = { 1, 1, 1, 0, 1, 1, 0, 0 };
    static const int64_t labels[8] = { -100, 6, 7, -100, -100, 10, -100, -100 };
    const tensor list[] = { { "input_ids", "I64", { 2, 4 }, ids },
                            { "labels", "I64", { 2, 4 }, labels },
                            { "attention_mask", "I64", { 2, 4 }, two } };
    sheaf_data *data = NULL;
    CHECK_FAILS(open_tensors(&data, list, 3, 2), SHEAF_E_DATA,
                "row 1 | at most 2 tokens, the value of `seq` | 3 tokens; 1 row is longer");
    CHECK_FAILS(sheaf_data_open(&data, at("made.safetensors"),
                                &(sheaf_data_options){
                                    .config = &byte_config, .seq = 2, .on_long = SHEAF_LONG_CUT }),
                SHEAF_E_DATA, "none is cut off or left out (`on-long` is of texts)");
    CHECK_FAILS(open_tensors(&data, list, 2, 3), SHEAF_E_DATA, "2 rows are longer");
    const int64_t rows[] = { 0, 1 };
    for (int64_t seq = 3; seq <= 6; seq++) {
        CHECK_OK(open_tensors(&data, list, 3, seq));
        int32_t t[12], l[12];
        CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = t, .labels = l }, data, rows, 2));
        assert_int_equal(t[2], 7);
        assert_int_equal(l[1], 7);
        assert_int_equal(t[seq + 1], 10);
        assert_int_equal(t[2 * seq - 1], 3);
        assert_int_equal(sheaf_data_labels(data, rows, 2), 3);
        sheaf_data_close(data);
    }
}

/* As transformers' find_packed_sequence_indices() has it. */
TEST(test_safetensors__positions_that_restart_are_records_apart)
{
    static const int64_t apart[8] = { 0, 1, 0, 0, 0, 1, 2, 2 }, on[8] = { 0, 1, 2, 3, 0, 1, 2, 3 },
                         labels[8] = { -100, -100, -100, 8, -100, 9, 10, 3 },
                         all[8] = { 1, 1, 1, 1, 1, 1, 1, 1 }, left[8] = { 0, 1, 0, 1, 0, 1, 2, 0 },
                         behind[8] = { 0, 0, 1, 1, 1, 1, 1, 0 };
    static const int64_t segment[] = { 0, 3, 4, 5, 10, 12, 13, 14, 15 };
    tensor list[] = { { "input_ids", "I64", { 2, 4 }, ids },
                      { "labels", "I64", { 2, 4 }, labels },
                      { "position_ids", "I64", { 2, 4 }, apart },
                      { "attention_mask", "I64", { 2, 4 }, all } };
    const sheaf_config config = { .vocab = 100, .pad = 3, .bos = -1, .max_position = 3 };
    const sheaf_data_options options = { .config = &config, .events = hear_warnings(), .seq = 5 };
    const int64_t rows[] = { 1, -1, 0 };
    sheaf_data *data = NULL;
    int32_t p[15];
    int64_t s[16], n = 7;
    CHECK_OK(sheaf_data_open(&data, tensors_file(list, 3), &options));
    assert_true(sheaf_data_is_packed(data));
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .position = p, .segment = s, .segments = &n }, data,
                              rows, 3));
    assert_int_equal(n, ARRAY_LEN(segment) - 1);
    CHECK_BYTES("segments", s, segment, sizeof segment);
    assert_int_equal(p[3], 2);
    assert_int_equal(p[12], 0);
    assert_non_null(strstr(heard, "2 labels stand where position_ids restart")); /* not "rows of" */
    sheaf_data_close(data);
    const sheaf_config shorter = { .vocab = 100, .pad = 3, .bos = -1, .max_position = 2 };
    CHECK_FAILS(sheaf_data_open(&data, tensors_file(list, 3), &(sheaf_data_options){ &shorter }),
                SHEAF_E_DATA, "row 2");
    CHECK_FAILS(sheaf_data_open(&data, tensors_file(list, 4), &options), SHEAF_E_DATA,
                "'position_ids': row 1, position 3 | more than 1, the one before it: only "
                "without attention_mask records of one row are kept apart | 0 | leave");
    list[2].value = left; /* hidden positions count for nothing */
    list[3].value = behind;
    CHECK_OK(sheaf_data_open(&data, tensors_file(list, 4), &(sheaf_data_options){ &config, 4 }));
    assert_false(sheaf_data_is_packed(data));
    sheaf_data_close(data);
    list[2].value = on;
    list[3].value = masks;
    CHECK_OK(sheaf_data_open(&data, tensors_file(list, 3), &(sheaf_data_options){ &config, 4 }));
    assert_false(sheaf_data_is_packed(data));
    sheaf_data_close(data);
}

TEST(test_safetensors__a_bad_tensor_is_named)
{
    static const int64_t over[8] = { 5, 6, 7, 8, 9, 100, 3, 3 },
                         negative[8] = { 5, 6, 7, 8, 9, -1, 3, 3 };
    static const int64_t huge[8] = { 5, 6, 7, 8, 9, (1LL << 32) + 5, 3, 3 };
    static const int64_t label_100[8] = { 0, 0, 0, 0, 0, 0, 100, 0 },
                         label_neg[8] = { 0, 0, 0, -1, 0, 0, 0, 0 };
    static const int64_t two[8] = { 1, 1, 1, 1, 1, 1, 2, 0 }, left[8] = { 0, 1, 1, 1, 1, 1, 1, 1 };
    static const int64_t none[8] = { 5, -100, -100, -100, 5, -100, -100, -100 };
    const tensor good_ids = { "input_ids", "I64", { 2, 4 }, ids },
                 good_labels = { "labels", "I64", { 2, 4 }, want_labels };
    const struct {
        const char *name;
        int n;
        tensor list[4];
        const char *want;
    } bad[] = {
        { "no labels", 1, { good_ids }, "'labels'" },
        { "no ids", 1, { good_labels }, "'input_ids'" },
        { "float ids", 2, { { "input_ids", "F32", { 2, 4 }, ids }, good_labels }, "F32" },
        { "one axis", 2, { { "input_ids", "I64", { 8 }, ids }, good_labels }, "[rows, length]" },
        { "no rows", 2,
          LIST({ "input_ids", "I64", { NO_ROWS, 4 }, ids },
               { "labels", "I64", { NO_ROWS, 4 }, ids }),
          "at least one row" },
        { "other shape", 2, { good_ids, { "labels", "I64", { 4, 2 }, want_labels } }, "[4, 2]" },
        { "mask of other shape", 3,
          LIST(good_ids, good_labels, { "attention_mask", "I64", { 2, 3 }, masks }),
          "'attention_mask'" },
        { "unknown input", 3, LIST(good_ids, good_labels, { "position_ids", "I64", { 2, 4 }, ids }),
          "'position_ids'" },
        { "id = vocabulary", 2, LIST({ "input_ids", "I64", { 2, 4 }, over }, good_labels),
          "'input_ids': row 2, position 2 | a token id from 0 to 99 | 100" },
        { "negative id", 2, LIST({ "input_ids", "I64", { 2, 4 }, negative }, good_labels),
          "'input_ids': row 2, position 2" },
        { "id whose low half is good", 2, LIST({ "input_ids", "I64", { 2, 4 }, huge }, good_labels),
          "4294967301" },
        { "label = vocabulary", 2, LIST(good_ids, { "labels", "I64", { 2, 4 }, label_100 }),
          "'labels': row 2, position 3" },
        { "label -1", 2, LIST(good_ids, { "labels", "I32", { 2, 4 }, label_neg }),
          "'labels': row 1, position 4" },
        { "mask 2", 3, LIST(good_ids, good_labels, { "attention_mask", "I64", { 2, 4 }, two }),
          "'attention_mask': row 2, position 3 | 0 or 1 | 2 | if it numbers the records" },
        { "hidden position predicts", 3,
          LIST(good_ids, good_labels, { "attention_mask", "I32", { 2, 4 }, left }),
          "'labels': row 1, position 2" },
        { "nothing to train", 2, LIST(good_ids, { "labels", "I64", { 2, 4 }, none }),
          "trains nothing" },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        sheaf_data *data = NULL;
        CHECK_FAILS(open_tensors(&data, bad[i].list, bad[i].n, 0), SHEAF_E_DATA, bad[i].want);
        assert_null(data);
    }
    sheaf_data *data = NULL;
    const sheaf_config config = { .vocab = 100 };
    const sheaf_data_options options = { .config = &config };
    const char *path = file_with("bad.safetensors", "\x10\0\0\0\0\0\0\0{}", 10);
    CHECK_FAILS(sheaf_data_open(&data, path, &options), SHEAF_E_FORMAT, path);
}

/* Lines and tensors with the same rows have one hash, which covers every part. */
TEST(test_hash__is_of_the_content)
{
    static const int64_t row[3] = { BOS, 'a', EOS }, label[3] = { -100, 'a', EOS },
                         all[3] = { BOS, 'a', EOS };
    sheaf_data *lines, *same, *other;
    static const char line[] = "{\"prompt\": \"\", \"completion\": \"a\"}";
    CHECK_OK(open_lines(&lines, line, sizeof line - 1, 0));
    tensor list[] = { { "input_ids", "I32", { 1, 3 }, row }, { "labels", "I32", { 1, 3 }, label } };
    const sheaf_data_options options = { .config = &byte_config };
    CHECK_OK(sheaf_data_open(&same, tensors_file(list, 2), &options));
    list[1].value = all;
    CHECK_OK(sheaf_data_open(&other, tensors_file(list, 2), &options));
    assert_int_equal(strlen(sheaf_data_hash(lines)), 32);
    assert_string_equal(sheaf_data_hash(lines), sheaf_data_hash(same));
    assert_string_not_equal(sheaf_data_hash(lines), sheaf_data_hash(other));
    sheaf_data *rows[2]; /* the same numbers in two rows of four and in four of two */
    for (int i = 0; i < 2; i++) {
        const tensor list[] = { { "input_ids", "I32", { i == 0 ? 2 : 4, i == 0 ? 4 : 2 }, ids },
                                { "labels", "I32", { i == 0 ? 2 : 4, i == 0 ? 4 : 2 }, ids } };
        CHECK_OK(open_tensors(&rows[i], list, 2, 0));
    }
    assert_string_not_equal(sheaf_data_hash(rows[0]), sheaf_data_hash(rows[1]));
    sheaf_data_close(rows[0]);
    sheaf_data_close(rows[1]);
    sheaf_data_close(lines);
    sheaf_data_close(same);
    sheaf_data_close(other);
}

FIXTURE(make_scratch, remove_scratch);
