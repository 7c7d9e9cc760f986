/* data_text_test.c - texts as people have them: forms, packed files, labels as transformers gives
 * them (tests/data/text), and what is refused. */
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>
#include <zlib.h>
#include <zstd.h>

#include "base/json.h"
#include "data/data.h"
#include "data/text_record.h"
#include "data/text_rows.h"
#include "data/text_sources.h"
#include "ops/kernels.h"
#include "tests/byte_config.h"
#include "tests/files.h"
#include "tests/heard.h"
#include "tests/sources.h"

static const char *recorded(void)
{
    const char *live = getenv("SHEAF_TEXT_CASES"); /* of make_text.py, just made */
    return live != NULL ? live : in_sources("tests/data/text");
}

static sheaf_status *read_record(sheaf__text_record *out, const char *json, size_t size,
                                 const sheaf__fields *fields)
{
    sheaf_status *st = sheaf__text_record_json(&out->json, json, size, fields);
    return st == NULL ? sheaf__text_record_take(out) : st;
}

static const sheaf_config words = { .vocab = 400, .bos = -1, .pad = -1 };

static sheaf_status *open_text(sheaf_data **data, const char *content,
                               const sheaf_data_options *options)
{
    return sheaf_data_open(data, file_with("data.jsonl", content, strlen(content)), options);
}

/* ---- against transformers ---- */

static void check_ids(size_t index, const json_t *want, const int32_t *got, int64_t n,
                      int64_t shift)
{
    for (int64_t i = 0; i + shift < n; i++) {
        json_int_t w = json_integer_value(json_array_get(want, (size_t)(i + shift)));
        w = shift == 1 && w == -100 ? SHEAF__IGNORED : w;
        if (w != got[i])
            fail_msg("case %zu: %s at %" PRId64 ": wanted %lld, got %d", index,
                     shift == 1 ? "label" : "id", i, (long long)w, (int)got[i]);
    }
}

static void check_case(size_t index, const json_t *one)
{
    static const char *const losses[] = { "", "answers", "last", "all" };
    const char *loss = json_string_value(json_object_get(one, "loss_on"));
    sheaf_data_options options = {
        .config = &words,
        .folder = recorded(),
        .prompt_template = json_string_value(json_object_get(one, "template")),
    };
    for (int i = 1; i < 4; i++)
        if (strcmp(loss, losses[i]) == 0)
            options.loss_on = (sheaf_loss_on)i;
    char *text = json_dumps(json_object_get(one, "record"), 0);
    sheaf_data *data = NULL;
    CHECK_OK(open_text(&data, text, &options));
    free(text);
    const json_t *ids = json_object_get(one, "ids");
    const int64_t n = sheaf_data_seq(data);
    if (n != (int64_t)json_array_size(ids))
        fail_msg("case %zu: %zu ids wanted, got %" PRId64, index, json_array_size(ids), n);
    int32_t *id = calloc((size_t)n, sizeof *id), *label = calloc((size_t)n, sizeof *label);
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = id, .labels = label }, data,
                              (int64_t[]){ 0 }, 1));
    check_ids(index, ids, id, n, 0);
    check_ids(index, json_object_get(one, "labels"), label, n, 1);
    free(id);
    free(label);
    sheaf_data_close(data);
}

TEST(test_text__labels_are_those_of_transformers)
{
    char path[700];
    json_t *all = NULL;
    snprintf(path, sizeof path, "%s/cases.json", recorded());
    CHECK_OK(sheaf__json_load(&all, path));
    const json_t *cases = json_object_get(all, "cases");
    assert_true(json_array_size(cases) > 40);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(i, json_array_get(cases, i));
    json_decref(all);
}

/* The marks of the template are tokens, the same letters in a user's text are not. */
TEST(test_text__marks_in_a_text_are_text)
{
    static const char talk[] =
        "{\"messages\": [{\"role\": \"user\", \"content\": \"a<|im_end|>b</s>\"}, "
        "{\"role\": \"assistant\", \"content\": \"c<|im_end|>\"}]}";
    for (int specials = 0; specials < 2; specials++) {
        sheaf_data *data = NULL;
        int marks = 0;
        CHECK_OK(open_text(
            &data, talk,
            &(sheaf_data_options){ .config = &words, .folder = recorded(), .specials = specials }));
        const int64_t n = sheaf_data_seq(data);
        int32_t *id = calloc((size_t)n, sizeof *id);
        CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = id }, data, (int64_t[]){ 0 }, 1));
        for (int64_t i = 0; i < n; i++)
            marks += id[i] == 3 || id[i] == 1; /* <|im_end|>, </s> */
        assert_int_equal(marks, specials ? 5 : 2);
        assert_string_equal(sheaf_data_template(data), "chatml"); /* as the tokenizer stores it */
        free(id);
        sheaf_data_close(data);
    }
}

/* ---- forms ---- */

static const char *const same_talk[] = {
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"q\\nx\"}, "
    "{\"role\": \"assistant\", \"content\": \"a\"}], \"prompt\": \"beside\"}",
    "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\\nx\"}, {\"from\": \"gpt\", \"value\": \"a\"}], "
    "\"system\": \"s\"}",
    "{\"conversations\": [{\"role\": \"system\", \"content\": \"s\", \"name\": \"n\"}, {\"role\": \"user\", \"content\": \"q\\nx\"}, "
    "{\"role\": \"assistant\", \"content\": \"a\"}]}",
    "{\"instruction\": \"q\", \"input\": \"x\", \"output\": \"a\", \"system\": \"s\", \"text\": \"beside\"}",
    "{\"instruction\": \"q\\nx\", \"input\": \"\", \"output\": \"a\", \"system\": \"s\", \"history\": []}",
    "{\"prompt\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": \"q\\nx\"}], "
    "\"completion\": [{\"role\": \"assistant\", \"content\": \"a\"}]}",
    "{\"messages\": [{\"role\": \"system\", \"content\": \"s\"}, {\"role\": \"user\", \"content\": "
    "[{\"type\": \"text\", \"text\": \"q\\n\"}, {\"type\": \"text\", \"text\": \"x\"}]}, "
    "{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 1}]}",
};

TEST(test_text__one_conversation_in_every_form)
{
    char hash[33] = "";
    for (size_t i = 0; i < ARRAY_LEN(same_talk); i++) {
        sheaf_data *data = NULL;
        CHECK_OK(open_text(&data, same_talk[i],
                           &(sheaf_data_options){ .config = &words,
                                                  .events = hear_warnings(),
                                                  .folder = recorded(),
                                                  .prompt_template = "chatml" }));
        if (i == 0)
            snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
        if (strcmp(hash, sheaf_data_hash(data)) != 0)
            fail_msg("form %zu is another one", i);
        if (strstr(same_talk[i], "name") != NULL)
            assert_non_null(strstr(heard, ": line 1: field 'conversations[].name' is not used"));
        sheaf_data_close(data);
    }
}

#define MESSAGES(...) "{\"messages\": [" __VA_ARGS__ "]}"
#define USER "{\"role\": \"user\", \"content\": \"q\"}"
#define ANSWER "{\"role\": \"assistant\", \"content\": \"a\"}"
#define SYSTEM "{\"role\": \"system\", \"content\": \"s\"}"
#define SAYS(field) "{\"role\": \"assistant\", \"content\": \"a\", " field "}"

TEST(test_text__what_is_learned_of_a_record)
{
    static const struct {
        const char *json;
        const char *trained; /* one letter a message */
    } by_hand[] = {
        { "{\"instruction\": \"i\", \"output\": \"o\", \"history\": [[\"a\", \"b\"], [\"c\", \"d\"]]}",
          ".x.x.x" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {\"role\": \"assistant\", \"content\": \"b\", "
          "\"weight\": 0}, {\"role\": \"user\", \"content\": \"c\"}, {\"role\": \"assistant\", \"content\": \"d\"}]}",
          "...x" },
        { "{\"prompt\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", \"content\": \"b\"}, "
          "{\"role\": \"user\", \"content\": \"c\"}], \"completion\": [{\"role\": \"assistant\", \"content\": \"d\"}]}",
          "...x" },
        /* in any order that the template takes */
        { MESSAGES(ANSWER "," USER "," USER "," ANSWER "," SYSTEM "," SYSTEM "," ANSWER),
          "x..x..x" },
        { MESSAGES("{\"role\": \"developer\", \"content\": \"a\"}," USER "," ANSWER
                   ",{\"role\": \"ipython\", \"content\": \"a\"}," ANSWER),
          "..x.x" },
        /* the fields by which programs leave an answer out */
        { MESSAGES(
              USER
              "," SAYS("\"loss_mask\": 0") "," SAYS("\"train\": false") "," SAYS("\"trainable\": 0.0") "," SAYS(
                  "\"training\": false") "," SAYS("\"loss\": false") "," SAYS("\"weight\": false, \"train\": 0") "," ANSWER),
          ".......x" },
        { MESSAGES(
              USER
              "," SAYS("\"loss_mask\": 1") "," SAYS("\"train\": true") "," SAYS("\"trainable\": 1.0") "," SAYS(
                  "\"training\": null") "," SAYS("\"loss\": true") "," SAYS("\"weight\": true, \"train\": 1")),
          ".xxxxxx" },
    };
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        sheaf__text_record r = { 0 };
        CHECK_OK(read_record(&r, by_hand[i].json, strlen(by_hand[i].json), NULL));
        assert_int_equal(r.messages, strlen(by_hand[i].trained));
        for (int64_t k = 0; k < r.messages; k++)
            assert_int_equal(r.message[k].trained, by_hand[i].trained[k] == 'x');
        sheaf__text_record_release(&r);
    }
}

#define PREFERENCE(field)                                                                          \
    "field '" field "' | none: every answer is learned | an answer to be avoided, as for DPO or KTO"
static const struct {
    const char *json, *want;
} bad_records[] = {
    { MESSAGES(USER),
      "field 'messages' | an answer at the end, to be trained | 1 messages, the last is of user" },
    { MESSAGES(USER "," ANSWER "," USER), "3 messages" },
    { MESSAGES(USER "," ANSWER "," SYSTEM), "an answer at the end, to be trained | 3 messages" },
    { "{\"system\": \"s\", \"messages\": [" SYSTEM "," USER "," ANSWER "]}",
      "messages[0].role' | no system: the field 'system' beside the list is one | 'system'" },
    { "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}", PREFERENCE("rejected") },
    { "{\"chosen\": [" USER "," ANSWER "], \"rejected\": [" USER "," ANSWER "]}",
      PREFERENCE("rejected") },
    { "{\"conversations\": [" USER "], \"chosen\": " ANSWER ", \"rejected\": " ANSWER "}",
      PREFERENCE("rejected") },
    { "{\"instruction\": \"i\", \"chosen\": \"b\", \"rejected\": \"c\"}", PREFERENCE("rejected") },
    { "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": false}", PREFERENCE("label") },
    { "{\"messages\": [" USER "," ANSWER "], \"kto_tag\": false}", PREFERENCE("kto_tag") },
    { MESSAGES("{\"role\": 1, \"content\": \"q\"}"), "messages[0].role' | a string" },
    { MESSAGES(USER ",{\"role\": \"tool\", \"content\": \"q\"}"), "the last is of tool" },
    { MESSAGES(USER ",{\"role\": \"assistant\", \"content\": null, \"tool_calls\": []}"),
      "field 'messages[1].content' | a string" },
    { MESSAGES(USER ",{\"role\": \"assistant\", \"content\": \" \\n\"}"),
      "messages[1].content' | an answer | nothing but blanks" },
    { MESSAGES(USER ",{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}"),
      "an answer that is trained" },
    { MESSAGES(USER ",{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 2}"),
      "messages[1].weight" },
    { MESSAGES(USER ",{\"role\": \"assistant\", \"content\": \"a\", \"train\": \"no\"}"),
      "messages[1].train' | 0 or 1, false or true | a string" },
    { MESSAGES(USER ",{\"role\": \"assistant\", \"content\": \"a\", \"loss_mask\": [1]}"),
      "messages[1].loss_mask' | 0 or 1, false or true | an array" },
    { MESSAGES(USER ",{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 1, "
                    "\"trainable\": false}"),
      "messages[1].trainable' | what 'weight' beside it says: learned | 0" },
    { MESSAGES("{\"role\": \"user\", \"content\": 7}"),
      "messages[0].content' | a string | a number" },
    { MESSAGES("{\"role\": \"user\", \"content\": [{\"type\": \"image_url\"}]}"),
      "messages[0].content[0]' | a part of type text" },
    { MESSAGES(), "1 to 10000 messages" },
    { "{\"messages\": 1}", "a list of messages" },
    { "{\"messages\": [], \"conversations\": []}", "both in one record" },
    { "{\"messages\": [], \"tools\": {}}", "field 'tools' | a list of descriptions" },
    { "{\"conversations\": [{\"from\": \"human\", \"value\": \"q\"}]}", "the last is of human" },
    { "{\"conversations\": [{\"from\": \"function_call\", \"value\": \"q\"}]}",
      "conversations[0].from' | system, human or gpt" },
    { "{\"instruction\": \"i\"}", "field 'output' | a string | no such field" },
    { "{\"instruction\": \"i\", \"output\": \"\"}",
      "field 'output' | an answer | an empty string" },
    { "{\"instruction\": \"i\", \"input\": 1, \"output\": \"o\"}", "field 'input'" },
    { "{\"instruction\": \"i\", \"output\": \"o\", \"history\": [[\"a\"]]}",
      "field 'history[0]' | a pair" },
    { "{\"prompt\": [" USER "], \"completion\": \"c\"}", "field 'prompt' | a string | an array" },
    { "{\"prompt\": [" USER "], \"completion\": [" USER "]}",
      "field 'completion' | an answer at the end" },
};

TEST(test_text__a_bad_record_is_named)
{
    for (size_t i = 0; i < ARRAY_LEN(bad_records); i++) {
        sheaf__text_record r = { 0 };
        CHECK_FAILS(read_record(&r, bad_records[i].json, strlen(bad_records[i].json), NULL),
                    SHEAF_E_DATA, bad_records[i].want);
        sheaf__text_record_release(&r);
    }
}

TEST(test_text__the_last_answer_of_weight_0_is_named)
{
    const sheaf_data_options options = { .config = &words,
                                         .folder = recorded(),
                                         .prompt_template = "chatml",
                                         .loss_on = SHEAF_LOSS_LAST };
    static const char record[] =
        "{\"system\": \"s\", \"messages\": [" USER "," ANSWER "," USER
        ",{\"role\": \"assistant\", \"content\": \"a\", \"weight\": 0}]}\n";
    sheaf_data *data = NULL;
    CHECK_FAILS(open_text(&data, record, &options), SHEAF_E_DATA,
                "line 1: field 'messages[3].weight' | 1: with `loss-on last` nothing else");
}

TEST(test_text__forms_are_not_mixed)
{
    const sheaf_data_options options = { .config = &words, .folder = recorded() };
    sheaf_data *data = NULL;
    CHECK_FAILS(open_text(&data, "{\"text\": \"a\"}\n\n" MESSAGES(USER "," ANSWER), &options),
                SHEAF_E_DATA,
                "line 3: field 'messages' | records of one form: 'text', as line 1 has");
    CHECK_FAILS(open_text(&data, "{\"text\": \"a\"}\n{\"prompt\": \"a\", \"completion\": \"b\"}\n",
                          &options),
                SHEAF_E_DATA, "line 2: field 'prompt'");
}

/* ---- files ---- */

static const char two[] = "{\"text\": \"one two\"}\n{\"text\": \"three\"}\n";

static size_t gzip_of(unsigned char *to, size_t room, const char *text)
{
    z_stream z = { 0 };
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)text;
    z.avail_in = (unsigned)strlen(text);
    z.next_out = to;
    z.avail_out = (unsigned)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    const size_t n = room - z.avail_out;
    deflateEnd(&z);
    return n;
}

static void check_packed(const char *hash, const void *bytes, size_t size)
{
    const sheaf_data_options options = { .config = &words, .folder = recorded() };
    sheaf_data *data = NULL;
    /* the name tells nothing */
    CHECK_OK(sheaf_data_open(&data, file_with("packed.jsonl", bytes, size), &options));
    assert_string_equal(sheaf_data_hash(data), hash);
    sheaf_data_close(data);
    CHECK_FAILS(sheaf_data_open(&data, file_with("packed.jsonl", bytes, size - 3), &options),
                SHEAF_E_FORMAT, "middle of the packed data");
}

TEST(test_text__packed_files_are_the_same_data)
{
    unsigned char packed[1000];
    const sheaf_data_options options = { .config = &words, .folder = recorded() };
    sheaf_data *data = NULL;
    char hash[33];
    CHECK_OK(open_text(&data, two, &options));
    snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
    sheaf_data_close(data);
    check_packed(hash, packed, gzip_of(packed, sizeof packed, two));
    size_t n = gzip_of(packed, sizeof packed, "{\"text\": \"one two\"}\n{\"te"); /* two members */
    n += gzip_of(packed + n, sizeof packed - n, "xt\": \"three\"}\n");
    check_packed(hash, packed, n);
    n = gzip_of(packed, sizeof packed, "{\"text\": \"one two\"}\n");
    memcpy(packed + n, "{\"text\": \"three\"}\n", 18); /* not packed: nothing is left out */
    CHECK_FAILS(sheaf_data_open(&data, file_with("packed.jsonl", packed, n + 18), &options),
                SHEAF_E_FORMAT, "gzip packed");
    n = gzip_of(packed, sizeof packed, two);
    ZSTD_CCtx *zstd = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(zstd, ZSTD_c_checksumFlag, 1);
    n = ZSTD_compress2(zstd, packed, sizeof packed, two, strlen(two));
    ZSTD_freeCCtx(zstd);
    check_packed(hash, packed, n);
    memmove(packed + 12, packed, n); /* as pzstd has it: a frame to be skipped comes first */
    memcpy(packed, "\x50\x2a\x4d\x18\4\0\0\0abc\n", 12);
    n += 12;
    check_packed(hash, packed, n);
    packed[n / 2] ^= 0x55;
    sheaf_status *st = sheaf_data_open(&data, file_with("packed.jsonl", packed, n), &options);
    assert_non_null(st); /* damage is never data */
    sheaf_status_free(st);
    static const char wide[] = "\x28\xb5\x2f\xfd\4\xa8"; /* a header, of a window of 2 GiB */
    CHECK_FAILS(sheaf_data_open(&data, file_with("wide.zst", wide, sizeof wide - 1), &options),
                SHEAF_E_UNSUPPORTED, "at most 128 MiB");
}

TEST(test_text__other_files_are_refused_with_the_command)
{
    const sheaf_data_options options = { .config = &words, .folder = recorded() };
    sheaf_data *data = NULL;
    CHECK_FAILS(sheaf_data_open(&data, file_with("a b.parquet", "PAR1....PAR1", 12), &options),
                SHEAF_E_UNSUPPORTED, "a Parquet file | python3 -c 'import pandas");
    CHECK_FAILS(sheaf_data_open(&data, file_with("a b.parquet", "PAR1....PAR1", 12), &options),
                SHEAF_E_UNSUPPORTED, "a b.jsonl'");
    CHECK_FAILS(sheaf_data_open(&data, file_with("x", "BZh9....", 8), &options),
                SHEAF_E_UNSUPPORTED, "bzip2 -dc");
    CHECK_FAILS(sheaf_data_open(&data, file_with("a b.txt", "\xff\xfe{\0", 4), &options),
                SHEAF_E_FORMAT, "begins with byte 0xff | if it is UTF-16: iconv -f UTF-16");
}

/* A gigabyte of blanks and letters in one line takes a megabyte packed: memory must not follow. */
TEST(test_text__a_line_without_end_is_refused)
{
    const size_t block = 1 << 20;
    char *letters = malloc(block);
    memset(letters, 'x', block);
    gzFile file = gzopen(at("long.jsonl"), "wb1");
    assert_non_null(file);
    gzputs(file, "{\"text\": \"a\"}\n{\"text\": \"");
    for (int i = 0; i < 65; i++)
        assert_int_equal(gzwrite(file, letters, (unsigned)block), block);
    assert_int_equal(gzclose(file), Z_OK);
    free(letters);
    sheaf_data *data = NULL;
    CHECK_FAILS(sheaf_data_open(&data, at("long.jsonl"),
                                &(sheaf_data_options){ .config = &words, .folder = recorded() }),
                SHEAF_E_FORMAT, "line 2 | a record of at most 64 MiB");
}

/* ---- too long ---- */

/* Nothing predicts the first token: a row that would learn it alone learns nothing. */
TEST(test_text__what_is_learnt_first_alone_is_cut_to_nothing)
{
    int32_t id[4] = { 5, 6, 7, 8 };
    uint8_t trained[4] = { 1, 0, 0, 1 };
    sheaf__text_row row = { .id = id, .trained = trained, .count = 4 };
    const sheaf_data_options options = { .on_long = SHEAF_LONG_CUT };
    sheaf__row_writer writer = { 0 };
    sheaf__text_counts c = { .limit = 3 };
    CHECK_OK(sheaf__row_writer_put(&writer, &c, &options, &row, 1, 1));
    assert_true(c.too_long == 1 && c.emptied == 1 && c.cut == 0 && c.rows == 0);
}

TEST(test_text__on_long_cuts_or_leaves_out_and_says_so)
{
    static const char lines[] = "{\"prompt\": \"abc\", \"completion\": \"d\"}\n"
                                "{\"prompt\": \"ab\", \"completion\": \"cdefgh\"}\n"
                                "{\"prompt\": \"abcdefgh\", \"completion\": \"i\"}\n";
    sheaf_data_options options = { .config = &byte_config, .seq = 6, .events = hear_warnings() };
    sheaf_data *data = NULL;
    CHECK_FAILS(open_text(&data, lines, &options), SHEAF_E_DATA,
                "line 2 | at most 6 tokens, the value of `seq` | 10 tokens; 2 lines are longer");
    options.on_long = SHEAF_LONG_SKIP;
    CHECK_OK(open_text(&data, lines, &options));
    assert_int_equal(sheaf_data_rows(data), 1);
    sheaf_data_close(data);
    assert_non_null(strstr(heard, "2 of 3 records are longer than 6 tokens and left out"));
    options.on_long = SHEAF_LONG_CUT;
    CHECK_OK(open_text(&data, lines, &options));
    assert_int_equal(sheaf_data_rows(data), 2);
    int32_t id[12], label[12];
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = id, .labels = label }, data,
                              (int64_t[]){ 0, 1 }, 2));
    static const int32_t want[6] = { BOS, 'a', 'b', 'c', 'd', 'e' },
                         learned[6] = { -1, -1, 'c', 'd', 'e', -1 };
    CHECK_BYTES("ids", id + 6, want, sizeof want);
    for (int i = 0; i < 6; i++)
        assert_int_equal(label[6 + i], learned[i] < 0 ? SHEAF__IGNORED : learned[i]);
    sheaf_data_close(data);
    assert_non_null(strstr(heard, "1 of these had no answer before it"));
    options.seq = 2;
    options.on_long = SHEAF_LONG_SKIP;
    CHECK_FAILS(open_text(&data, lines, &options), SHEAF_E_DATA, "nothing is left of it");
}

/* Rows, their order and the complaints do not show how many threads read them. */
TEST(test_text__threads_change_nothing)
{
    enum { LINES = 4000 };
    char hash[33] = "", *text = malloc(LINES * 80), *p = text;
    for (int i = 0; i < LINES; i++)
        p += sprintf(p, "{\"prompt\": \"number %d\", \"completion\": \"fox %d and %d dogs\"}\n", i,
                     i * 7, i % 13);
    file_with("data.jsonl", text, (size_t)(p - text));
    for (int threads = 1; threads <= 4; threads++) {
        sheaf_data *data = NULL;
        CHECK_OK(sheaf_data_open(
            &data, at("data.jsonl"),
            &(sheaf_data_options){ .config = &words, .folder = recorded(), .threads = threads }));
        assert_int_equal(sheaf_data_rows(data), LINES);
        if (threads == 1)
            snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
        assert_string_equal(sheaf_data_hash(data), hash);
        sheaf_data_close(data);
    }
    free(text);
}

/* ---- the cache ---- */

static sheaf_status *open_cached(sheaf_data **data, const char *file)
{
    return sheaf_data_open(data, at(file),
                           &(sheaf_data_options){ .config = &byte_config,
                                                  .cache = at("caches"),
                                                  .events = hear_warnings(),
                                                  .threads = 2 });
}

/* Opens, compares with `hash` and tells how many caches there are then (a tag lies beside them). */
static int64_t check_cached(const char *hash, const char *file)
{
    sheaf_data *data = NULL;
    CHECK_OK(open_cached(&data, file));
    assert_string_equal(sheaf_data_hash(data), hash);
    assert_int_equal(sheaf_data_labels(data, (int64_t[]){ 0, 1 }, 2), 4 + 6);
    assert_int_equal(sheaf_data_tokens(data, (int64_t[]){ 0, 1 }, 2), 5 + 9);
    assert_int_equal(sheaf_data_longest(data), 9);
    sheaf_data_close(data);
    return entries(at("caches")) - 1;
}

/* Changes byte `where` of a file of the only cache, counted behind the text `from` if there is one.
 */
static void damage(const char *name, const char *from, long where)
{
    char **names = NULL, path[600], content[2000] = { 0 };
    int64_t n = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, at("caches")));
    assert_int_equal(n, 2); /* CACHEDIR.TAG comes first or last */
    const char *key = names[strcmp(names[0], "CACHEDIR.TAG") == 0];
    snprintf(path, sizeof path, "%s/%s/%s", at("caches"), key, name);
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    if (from != NULL) {
        assert_true(fread(content, 1, sizeof content - 1, file) > 0);
        assert_non_null(strstr(content, from));
        where += (long)(strstr(content, from) - content) + (long)strlen(from);
    }
    fseek(file, where, SEEK_SET);
    const int c = fgetc(file);
    fseek(file, where, SEEK_SET);
    fputc(c ^ 1, file);
    assert_int_equal(fclose(file), 0);
    sheaf__names_free(names, n);
}

TEST(test_cache__rows_are_those_of_memory_and_damage_is_noticed)
{
    static const char lines[] = "{\"prompt\": \"abc\", \"completion\": \"\"}\n";
    static const char *const parts[][2] = {
        { "begin" },
        { "labels" },
        { "token" },
        { "trained" },
        { "manifest.json", "\"key\": \"" },
        { "manifest.json", "\"longest\": " },
        { "manifest.json", "\"records\": " },
        { "manifest.json", "\"left_out\": " },
    };
    static const char good[] =
        "{\"text\": \"abc\"}\n{\"prompt\": \"ab\", \"completion\": \"cdefg\"}\n";
    char hash[33];
    sheaf_data *data = NULL;
    CHECK_OK(open_text(&data, good, &(sheaf_data_options){ .config = &byte_config }));
    snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
    sheaf_data_close(data);
    file_with("bad.jsonl", lines, sizeof lines - 1);
    CHECK_FAILS(open_cached(&data, "bad.jsonl"), SHEAF_E_DATA, "line 1");
    assert_int_equal(sheaf__path_kind(at("caches")), SHEAF_PATH_NONE); /* nothing stays of it */
    for (int i = 0; i < 2; i++)
        assert_int_equal(check_cached(hash, "data.jsonl"), 1);
    for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
        damage(parts[i][0], parts[i][1], parts[i][1] == NULL);
        assert_int_equal(check_cached(hash, "data.jsonl"), 1);
        if (strstr(heard, "is damaged and made anew") == NULL)
            fail_msg("damage in %s was not noticed (%s)", parts[i][0], parts[i][1]);
        assert_int_equal(check_cached(hash, "data.jsonl"), 1);
        assert_string_equal(heard, "");
    }
    file_with("copy.jsonl", good, sizeof good - 1); /* the same content by another name */
    assert_int_equal(check_cached(hash, "copy.jsonl"), 1);
    file_with("other.jsonl", "{\"text\": \"abd\"}\n", 16);
    CHECK_OK(open_cached(&data, "other.jsonl"));
    sheaf_data_close(data);
    assert_int_equal(entries(at("caches")), 3);
}

/* Ids of the recorded tokenizer in letters: E is eos, / a line feed, . no label. */
static char letter(int32_t id)
{
    return id == SHEAF__IGNORED ? '.' : id == 1 ? 'E' : id == 203 ? '/' : (char)('a' + id - 69);
}

/* If turns end in blanks or in nothing, eos is the label behind each answer: in place of the next
 * token, or as one more at the end; also with rows read from a cache. */
TEST(test_cache__an_answer_without_an_end_is_labelled_with_eos)
{
    static const char lines[] = "{% for m in messages %}{{ m.content + '\n' }}{% endfor %}",
                      bare[] = "{% for m in messages %}{{ m.content }}{% endfor %}";
    static const struct {
        const char *program;
        sheaf_loss_on loss;
        const char *tokens, *labels;
    } by_hand[] = {
        { lines, SHEAF_LOSS_ANSWERS, "q/a/q/b/", ".aE..bE." },
        { lines, SHEAF_LOSS_LAST, "q/a/q/b/", ".....bE." },
        { lines, SHEAF_LOSS_ALL, "q/a/q/b/E", "/a/q/b/E." },
        { bare, SHEAF_LOSS_ANSWERS, "qaqbE", "aEbE." },
    };
    static const char talk[] =
        MESSAGES(USER "," ANSWER "," USER ",{\"role\": \"assistant\", \"content\": \"b\"}");
    file_with("data.jsonl", talk, sizeof talk - 1);
    CHECK_OK(sheaf__make_dirs(at("open")));
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = { "tokenizer.json", "tokenizer_config.json" };
        char from[700], to[700];
        snprintf(from, sizeof from, "%s/%s", recorded(), names[i]);
        snprintf(to, sizeof to, "%s/%s", at("open"), names[i]);
        assert_int_equal(symlink(from, to), 0);
    }
    for (size_t i = 0; i < 3 * ARRAY_LEN(by_hand); i++) {
        const size_t k = i / 3; /* in memory, in a new cache, in one that is found */
        const int64_t n = (int64_t)strlen(by_hand[k].tokens);
        sheaf_data_options options = { .config = &words,
                                       .folder = at("open"),
                                       .cache = i % 3 == 0 ? NULL : at("ends"),
                                       .loss_on = by_hand[k].loss };
        int32_t id[16], label[16];
        sheaf_data *data = NULL;
        file_with("open/chat_template.jinja", by_hand[k].program, strlen(by_hand[k].program));
        CHECK_OK(sheaf_data_open(&data, at("data.jsonl"), &options));
        assert_int_equal(sheaf_data_seq(data), n);
        CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = id, .labels = label }, data,
                                  (int64_t[]){ 0 }, 1));
        int64_t labels = 0;
        for (int64_t t = 0; t < n; t++) {
            if (letter(id[t]) != by_hand[k].tokens[t] || letter(label[t]) != by_hand[k].labels[t])
                fail_msg("case %zu at %" PRId64 ": %c with label %c", k, t, letter(id[t]),
                         letter(label[t]));
            labels += label[t] != SHEAF__IGNORED;
        }
        assert_int_equal(sheaf_data_labels(data, (int64_t[]){ 0 }, 1), labels);
        sheaf_data_close(data);
    }
}

/* The key with a tokenizer in the folder "key". */
static void check_key(char key[33], const char *before, const char *what)
{
    char *path[] = { (char *)at("data.jsonl") };
    CHECK_OK(sheaf__text_key(key, &(sheaf__text_sources){ .path = path, .paths = 1 },
                             &(sheaf_data_options){ .config = &words, .folder = at("key") }));
    if (before != NULL && (strcmp(key, before) == 0) == (what != NULL))
        fail_msg("the key with %s", what == NULL ? "nothing changed" : what);
}

TEST(test_cache__each_file_of_a_tokenizer_counts)
{
    static const char *const names[] = { "tokenizer.json",    "tokenizer.model",
                                         "added_tokens.json", "special_tokens_map.json",
                                         "vocab.json",        "chat_template.json",
                                         "merges.txt",        "chat_template.jinja",
                                         "config.json" };
    char key[2 * ARRAY_LEN(names) + 1][33];
    file_with("data.jsonl", "{}", 2);
    CHECK_OK(sheaf__make_dirs(at("key")));
    check_key(key[0], NULL, NULL);
    check_key(key[1], key[0], NULL);
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const char *path = at_format("key/%s", names[i]);
        put(path, "{}");
        check_key(key[2 * i + 1], key[2 * i], i + 1 < ARRAY_LEN(names) ? names[i] : NULL);
        put(path, "{\"model_type\": \"x\"}");
        check_key(key[2 * i + 2], key[2 * i + 1], names[i]);
    }
}

/* What another process does to the files meanwhile is an error where they are read, never the end
 * of this process; files that are removed are read on. */
TEST(test_cache__that_changes_in_use_is_an_error)
{
    static const char good[] = "{\"text\": \"abc\"}\n{\"text\": \"defg\"}\n";
    char path[600], **names = NULL;
    int32_t id[16];
    int64_t n = 0;
    sheaf_data *data = NULL;
    const sheaf_batch batch = { .tokens = id, .seq = 8 };
    file_with("data.jsonl", good, sizeof good - 1);
    CHECK_OK(sheaf__remove_tree(at("caches")));
    CHECK_OK(open_cached(&data, "data.jsonl"));
    assert_true(sheaf_data_reads_files(data));
    CHECK_OK(sheaf_data_batch(&batch, data, (int64_t[]){ 0, 1 }, 2));
    assert_int_equal(id[8 + 4], 'g');
    damage("token", NULL, 4 * 6 + 1); /* 'd' of the second row, and 256 */
    CHECK_OK(sheaf_data_batch(&batch, data, (int64_t[]){ 0 }, 1));
    CHECK_FAILS(sheaf_data_batch(&batch, data, (int64_t[]){ 0, 1 }, 2), SHEAF_E_FORMAT,
                "token: row 1 (counted from 0) | tokens below 259, as they were written | 356 | "
                "something changed this cache");
    CHECK_OK(sheaf__list_dir(&names, &n, at("caches")));
    snprintf(path, sizeof path, "%s/%s/token", at("caches"),
             names[strcmp(names[0], "CACHEDIR.TAG") == 0]);
    assert_int_equal(truncate(path, 4 * 7), 0);
    sheaf__names_free(names, n);
    CHECK_FAILS(sheaf_data_batch(&batch, data, (int64_t[]){ 1 }, 1), SHEAF_E_FORMAT,
                "token: the file ends too early");
    CHECK_OK(sheaf__remove_tree(at("caches")));
    CHECK_OK(sheaf_data_batch(&batch, data, (int64_t[]){ 0 }, 1));
    assert_int_equal(id[3], 'c');
    sheaf_data_close(data);
}

/* A record's fields by the names of another program. */
TEST(test_fields__are_read_by_the_names_given)
{
    static const struct {
        const char *fields, *json, *prompt, *text; /* or of a conversation its first two */
    } good[] = {
        { "question=prompt,answer=completion", "{\"question\": \"Q\", \"answer\": \"A\"}", "Q",
          "A" },
        { "question=prompt,answer=completion", "{\"prompt\": \"Q\", \"answer\": \"A\"}", "Q", "A" },
        { "prompt=completion,completion=prompt", "{\"prompt\": \"A\", \"completion\": \"Q\"}", "Q",
          "A" },
        { "dialog=conversations,speaker=from,text=value",
          "{\"dialog\": [{\"speaker\": \"human\", \"text\": \"Q\"}, {\"speaker\": \"gpt\", \"text\": \"A\"}]}",
          "Q", "A" },
        { "said=content", /* of entries: the record has both */
          "{\"said\": 1, \"content\": 2, \"messages\": [{\"role\": \"user\", \"said\": \"Q\"}, "
          "{\"role\": \"assistant\", \"said\": \"A\"}]}",
          "Q", "A" },
        { "said=content",
          "{\"prompt\": [{\"role\": \"user\", \"said\": \"Q\"}], "
          "\"completion\": [{\"role\": \"assistant\", \"said\": \"A\"}]}",
          "Q", "A" },
        { "", "{\"prompt\": \"Q\", \"completion\": \"A\"}", "Q", "A" },
    };
    static const char *const bad[] = { "question",         "=prompt",        "question=",
                                       "question=prompts", "a=prompt,",      "a=prompt,b=prompt",
                                       ",a=prompt",        "a=prompt,a=text" };
    sheaf__fields fields;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        sheaf__text_record r = { 0 };
        CHECK_OK(sheaf__fields_read(&fields, good[i].fields));
        CHECK_OK(read_record(&r, good[i].json, strlen(good[i].json), &fields));
        assert_string_equal(r.messages > 0 ? r.message[0].content : r.prompt, good[i].prompt);
        assert_string_equal(r.messages > 0 ? r.message[1].content : r.text, good[i].text);
        sheaf__text_record_release(&r);
        sheaf__fields_release(&fields);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        CHECK_FAILS(sheaf__fields_read(&fields, bad[i]), SHEAF_E_ARG, "`fields` | THEIRS=OURS");
        sheaf__fields_release(&fields);
    }
    static const char both[] = "{\"q\": \"Q\", \"prompt\": \"P\", \"completion\": \"A\"}";
    sheaf__text_record r = { 0 };
    CHECK_OK(sheaf__fields_read(&fields, "q=prompt"));
    CHECK_FAILS(read_record(&r, both, sizeof both - 1, &fields), SHEAF_E_DATA,
                "field 'prompt' | no field of this name, which `fields` gives to another | one");
    sheaf__text_record_release(&r);
    sheaf__fields_release(&fields);
}

FIXTURE(make_scratch, remove_scratch);
