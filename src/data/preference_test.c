/* preference_test.c - pairs of answers: ids and learnt tokens of every form, which TRL gives too
 * (preference/formats/formats.json), pairs of token ids, and what is refused. */
#include "data/preference.h"

#include "base/json.h"
#include "data/data.h"
#include "ops/kernels.h"
#include "tests/heard.h"
#include "tests/recordings.h"
#include "tests/tensors.h"

/* ---- data ---- */

enum { MOST = 512 };

typedef struct row {
    int64_t n;
    int32_t id[MOST];
    bool learnt[MOST];
} row;

static sheaf_config config_of(bool llama)
{
    return llama ? (sheaf_config){ .vocab = 315, .bos = 0, .pad = 1, .eos = { 1 }, .neos = 1 }
                 : (sheaf_config){ .vocab = 335, .bos = -1, .pad = 0, .eos = { 2 }, .neos = 1 };
}

static sheaf_status *open_pairs(sheaf_data **data, const char *text, sheaf_data_options options)
{
    const bool llama = options.folder != NULL && strstr(options.folder, "llama") != NULL;
    const sheaf_config config = config_of(llama);
    options.config = &config;
    options.pairs = true;
    if (options.folder == NULL)
        options.folder = recording("preference/models/qwen2");
    return sheaf_data_open(data, file_with("pairs.jsonl", text, strlen(text)), &options);
}

static row row_of(const sheaf_data *data, int64_t index)
{
    row out = { .n = sheaf_data_used(data, &index, 1) };
    int32_t label[MOST];
    assert_in_range(out.n, 1, MOST);
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = out.id, .labels = label, .seq = out.n },
                              data, &index, 1));
    for (int64_t i = 0; i + 1 < out.n; i++) {
        out.learnt[i + 1] = label[i] != SHEAF__IGNORED;
        if (out.learnt[i + 1])
            assert_int_equal(label[i], out.id[i + 1]);
    }
    return out;
}

static int64_t labels_of(const sheaf_data *data, int64_t index)
{
    return sheaf_data_labels(data, &index, 1);
}

/* ---- against TRL ---- */

/* Differences from TRL 1.16, by its message, NULL: only in its labels, answers without the user's
 * turns between them. */
static const struct {
    const char *name, *error;
} others[] = {
    { "empty answer", "an answer | an empty string" },
    { "implicit, first answers differ", NULL },
    { "turns behind the prompt", NULL },
};

static int find_other(const char *name)
{
    for (int i = 0; i < (int)ARRAY_LEN(others); i++)
        if (strcmp(others[i].name, name) == 0)
            return i;
    return -1;
}

/* TRL learns the line feed behind ChatML's end mark, the last token of a row; sheaf ends before. */
static void check_side(const char *name, const row *got, const json_t *trl, const char *side,
                       bool between)
{
    static const int32_t line_feed = 201;
    const json_t *prompt = json_object_get(trl, "prompt_ids"), *answer = json_object_get(trl, side);
    const int64_t p = (int64_t)json_array_size(prompt), n = p + (int64_t)json_array_size(answer);
    int64_t gaps = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t want = (int32_t)json_integer_value(
            i < p ? json_array_get(prompt, (size_t)i) : json_array_get(answer, (size_t)(i - p)));
        const bool end = i + 1 == n && want == line_feed;
        if (end && i >= got->n)
            return;
        if (i >= got->n || got->id[i] != want)
            fail_msg("%s, %s: id %d at %" PRId64 " of %" PRId64 ", not %d", name, side,
                     (int)got->id[i], i, n, (int)want);
        if (!between && got->learnt[i] != (i >= p && !end))
            fail_msg("%s, %s: learnt at %" PRId64 ": %d", name, side, i, (int)got->learnt[i]);
        assert_true(i >= p || !got->learnt[i]);
        gaps += i >= p && !got->learnt[i] && !end;
    }
    assert_int_equal(got->n, n);
    if (between) /* first answer, question, second answer */
        assert_true(got->learnt[p] && got->learnt[n - 2] && gaps > 5);
}

/* The tokenizer of a record; "tools" is Qwen's with another template. */
static const char *folder_of(const char *kind)
{
    static const char *const files[] = { "tokenizer.json", "tokenizer_config.json",
                                         "config.json" }; /* its family splits digits */
    char *text, from[64], to[64];
    size_t size;
    if (strcmp(kind, "tools") != 0)
        return recording(strcmp(kind, "inst") == 0 ? "preference/models/llama"
                                                   : "preference/models/qwen2");
    CHECK_OK(sheaf__make_dirs(at("tools")));
    CHECK_OK(sheaf__file_read_all(&text, &size, recording("preference/formats/tools.jinja"), 9999));
    file_with("tools/chat_template.jinja", text, size);
    free(text);
    for (size_t i = 0; i < ARRAY_LEN(files); i++) {
        snprintf(from, sizeof from, "preference/models/qwen2/%s", files[i]);
        snprintf(to, sizeof to, "tools/%s", files[i]);
        CHECK_OK(sheaf__file_read_all(&text, &size, recording(from), 1 << 20));
        file_with(to, text, size);
        free(text);
    }
    return at("tools");
}

static void check_record(const json_t *one)
{
    const char *name = json_string_value(json_object_get(one, "name"));
    const json_t *trl = json_object_get(one, "dpo");
    const int other = find_other(name);
    char *text = json_dumps(json_object_get(one, "record"), 0);
    sheaf_data *data = NULL;
    const sheaf_data_options options = {
        .folder = folder_of(json_string_value(json_object_get(one, "template"))), .specials = true
    };
    if (other >= 0 && others[other].error != NULL) {
        CHECK_FAILS(open_pairs(&data, text, options), SHEAF_E_DATA, others[other].error);
        free(text);
        return;
    }
    CHECK_OK(open_pairs(&data, text, options));
    free(text);
    assert_true(sheaf_data_rows(data) == 2 && sheaf_data_samples(data) == 1);
    for (int side = 0; side < 2; side++) {
        const row got = row_of(data, sheaf_data_side(data, 0, side));
        check_side(name, &got, trl, side == 0 ? "chosen_ids" : "rejected_ids", other >= 0);
    }
    sheaf_data_close(data);
}

TEST(test_preference__ids_are_those_of_trl)
{
    json_t *all;
    int checked = 0;
    CHECK_OK(sheaf__json_load(&all, recording("preference/formats/formats.json")));
    const json_t *records = json_object_get(all, "records");
    for (size_t i = 0; i < json_array_size(records); i++) {
        const json_t *one = json_array_get(records, i);
        if (json_object_get(one, "dpo") == NULL) /* not a pair */
            continue;
        check_record(one);
        checked++;
    }
    json_decref(all);
    assert_int_equal(checked, 33);
}

/* ---- forms ---- */

#define SYS "{\"role\": \"system\", \"content\": \"Be brief.\"}"
#define ASK "{\"role\": \"user\", \"content\": \"Is ice cold?\"}"
#define SAY(text) "{\"role\": \"assistant\", \"content\": \"" text "\"}"
#define GPT(text) "{\"from\": \"gpt\", \"value\": \"" text "\"}"
#define LISTS(yes, no) "\"chosen\": [" yes "], \"rejected\": [" no "]"
#define BOTH LISTS(SAY("Yes."), SAY("No."))
#define PAIR(prompt, yes, no) "{\"prompt\": [" prompt "], " LISTS(SAY(yes), SAY(no)) "}\n"

static const char *const same_pair[] = {
    "{\"prompt\": [" ASK "], " BOTH "}",
    "{\"prompt\": [" ASK "], \"chosen\": \"Yes.\", \"rejected\": \"No.\"}",
    "{\"prompt\": [" ASK "], \"chosen\": " SAY("Yes.") ", \"rejected\": " SAY("No.") "}",
    "{" LISTS(ASK "," SAY("Yes."), ASK "," SAY("No.")) "}",
    "{\"prompt\": \"Is ice cold?\", " LISTS(ASK "," SAY("Yes."), ASK "," SAY("No.")) "}",
    /* as published, with the chosen conversation once more */
    "{\"prompt\": \"Is ice cold?\", \"messages\": [" ASK
    "," SAY("Yes.") "], " LISTS(ASK "," SAY("Yes."), ASK "," SAY("No.")) "}",
    "{\"conversations\": [{\"from\": \"human\", \"value\": \"Is ice cold?\"}], \"chosen\": " GPT(
        "Yes.") ", \"rejected\": " GPT("No.") "}",
    "{\"messages\": [" ASK "], \"chosen\": " SAY("Yes.") ", \"rejected\": " SAY("No.") "}",
    "{\"instruction\": \"Is ice cold?\", \"input\": \"\", \"chosen\": \"Yes.\", \"rejected\": \"No.\"}",
    "{\"instruction\": \"Is ice cold?\", \"output\": [\"Yes.\", \"No.\"]}",
    "{\"messages\": [" ASK "," SAY("Yes.") "], \"rejected_response\": \"No.\"}",
    "{\"messages\": [" ASK "," SAY("Yes.") "], \"rejected_response\": [" SAY("No.") "]}",
    "{\"messages\": [" ASK "," SAY("Yes.") "], \"rejected_messages\": [" ASK "," SAY("No.") "]}",
};

/* A system's text and an answer within the prompt, which is not learnt. */
#define EARLIER "{\"role\": \"user\", \"content\": \"Hi\"}," SAY("Hello.")
static const char *const same_turns[] = {
    "{\"prompt\": [" SYS "," EARLIER "," ASK "], " BOTH "}",
    "{" LISTS(SYS "," EARLIER "," ASK "," SAY("Yes."), SYS "," EARLIER "," ASK "," SAY("No.")) "}",
    "{\"prompt\": \"Hi\", " LISTS(SYS "," EARLIER "," ASK "," SAY("Yes."),
                                  SYS "," EARLIER "," ASK "," SAY("No.")) "}",
    "{\"system\": \"Be brief.\", \"conversations\": [{\"from\": \"human\", \"value\": \"Hi\"}, " GPT(
        "Hello.") ", {\"from\": \"human\", \"value\": \"Is ice cold?\"}], \"chosen\": " GPT("Yes.") ", \"rejected\": " GPT("No.") "}",
    "{\"system\": \"Be brief.\", \"history\": [[\"Hi\", \"Hello.\"]], \"instruction\": \"Is ice cold?\", "
    "\"output\": [\"Yes.\", \"No.\"]}",
    "{\"messages\": [" SYS "," EARLIER "," ASK "," SAY("Yes.") "], \"rejected_response\": \"No.\"}",
};

static void check_same(const char *const *form, size_t n)
{
    char hash[33] = "";
    int64_t labels[2] = { 0 };
    for (size_t i = 0; i < n; i++) {
        sheaf_data *data = NULL;
        CHECK_OK(open_pairs(&data, form[i], (sheaf_data_options){ .events = hear_warnings() }));
        if (i == 0)
            snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
        if (strcmp(hash, sheaf_data_hash(data)) != 0 || heard[0] != '\0')
            fail_msg("form %zu is another one, '%s'", i, heard);
        for (int side = 0; side < 2; side++)
            labels[side] = labels_of(data, side);
        sheaf_data_close(data);
    }
    assert_true(labels[0] == 5 && labels[1] == 3); /* TRL's 6 and 4 without the line feed */
}

/* Texts whose first characters in common have a blank at their end, or part within one. */
TEST(test_preference__texts_begin_with_their_prompt)
{
    static const char *const alike[][2] = {
        { "{\"chosen\": \"Is ice cold? Yes.\", \"rejected\": \"Is ice cold? No.\"}",
          "{\"prompt\": \"Is ice cold?\", \"chosen\": \" Yes.\", \"rejected\": \" No.\"}" },
        { "{\"chosen\": \"Wei\u00df\", \"rejected\": \"Wei\u00e9\"}",
          "{\"prompt\": \"Wei\", \"chosen\": \"\u00df\", \"rejected\": \"\u00e9\"}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(alike); i++) {
        sheaf_data *data[2];
        for (int k = 0; k < 2; k++)
            CHECK_OK(open_pairs(&data[k], alike[i][k], (sheaf_data_options){ 0 }));
        assert_string_equal(sheaf_data_hash(data[0]), sheaf_data_hash(data[1]));
        sheaf_data_close(data[0]);
        sheaf_data_close(data[1]);
    }
}

TEST(test_preference__one_pair_in_every_form)
{
    check_same(same_pair, ARRAY_LEN(same_pair));
    check_same(same_turns, ARRAY_LEN(same_turns));
}

static const char *const same_judged[] = {
    "{\"prompt\": [" SYS "," EARLIER "," ASK
    "], \"completion\": [" SAY("Yes.") "], \"label\": true}",
    "{\"messages\": [" SYS "," EARLIER "," ASK "," SAY("Yes.") "], \"label\": true}",
    "{\"messages\": [" SYS "," EARLIER "," ASK "," SAY("Yes.") "], \"kto_tag\": true}",
    "{\"system\": \"Be brief.\", \"conversations\": [{\"from\": \"human\", \"value\": \"Hi\"}, " GPT(
        "Hello.") ", {\"from\": \"human\", \"value\": \"Is ice cold?\"}, " GPT("Yes.") "], \"kto_tag\": true}",
    ("{\"system\": \"Be brief.\", \"history\": [[\"Hi\", \"Hello.\"]], \"instruction\": \"Is ice cold?\", "
     "\"output\": \"Yes.\", \"kto_tag\": true}"),
};

static sheaf_status *open_judged(sheaf_data **data, const char *text)
{
    const sheaf_config config = config_of(false);
    return sheaf_data_open(data, file_with("judged.jsonl", text, strlen(text)),
                           &(sheaf_data_options){ .config = &config,
                                                  .folder = recording("preference/models/qwen2"),
                                                  .judged = true });
}

TEST(test_preference__one_judged_answer_in_every_form)
{
    char hash[33] = "";
    for (size_t i = 0; i < ARRAY_LEN(same_judged); i++) {
        sheaf_data *data = NULL;
        CHECK_OK(open_judged(&data, same_judged[i]));
        if (i == 0)
            snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
        if (strcmp(hash, sheaf_data_hash(data)) != 0)
            fail_msg("form %zu is another one", i);
        assert_int_equal(labels_of(data, 0), 5); /* the last answer alone */
        assert_true(sheaf_data_desirable(data, 0));
        sheaf_data_close(data);
    }
}

/* TRL's unpair_preference_dataset in blocks of 1000 pairs; an answer that is judged stays where it
 * is. */
TEST(test_preference__rejected_answers_follow_a_block_of_chosen_ones)
{
    enum { PAIRS = 1002, LINE = 100 };
    static char text[PAIRS * LINE];
    sheaf_data *data = NULL, *pairs = NULL;
    int n = 0;
    for (int i = 0; i < PAIRS; i++)
        n += i == 1 ? sprintf(text + n,
                              "{\"prompt\": \"1\", \"completion\": \"j\", \"label\": false}\n")
                    : sprintf(text + n,
                              "{\"prompt\": \"%d\", \"chosen\": \"c\", \"rejected\": \"r\"}\n", i);
    CHECK_OK(open_judged(&data, text));
    assert_int_equal(sheaf_data_rows(data), 2 * PAIRS - 1);
    char *judged = strstr(text, "completion"), *end = strchr(judged, '\n');
    while (judged[-1] != '\n')
        judged--;
    memset(judged, ' ', (size_t)(end - judged)); /* a line of nothing */
    CHECK_OK(open_pairs(&pairs, text, (sheaf_data_options){ 0 }));
    for (int64_t r = 0; r < sheaf_data_rows(data); r++) {
        const bool second = r >= 2001; /* the block of the last pair */
        const int64_t k = r == 1 ? -1 : r < 1001 ? r - (r > 1) : second ? 1000 : r - 1001;
        const int side = second ? r > 2001 : r >= 1001;
        assert_int_equal(sheaf_data_desirable(data, r), r != 1 && side == 0);
        if (k < 0)
            continue;
        const row got = row_of(data, r), want = row_of(pairs, 2 * k + side);
        assert_int_equal(got.n, want.n);
        CHECK_BYTES("ids", got.id, want.id, (size_t)got.n * sizeof *got.id);
    }
    sheaf_data_close(data);
    sheaf_data_close(pairs);
}

/* " is" is one token across the boundary, " x" two: both answers begin with the blank, so that
 * their prompts are of one length. */
TEST(test_preference__both_answers_begin_where_ids_part)
{
    sheaf_data *data = NULL;
    row side[2];
    int64_t first[2] = { 0 };
    CHECK_OK(open_pairs(&data,
                        "{\"prompt\": \"The sky \", \"chosen\": \"is\", \"rejected\": \"xyz\"}",
                        (sheaf_data_options){ 0 }));
    for (int k = 0; k < 2; k++) {
        side[k] = row_of(data, k);
        while (!side[k].learnt[first[k]])
            first[k]++;
    }
    assert_int_equal(first[0], first[1]);
    assert_int_equal(side[0].id[first[0]], 269); /* " is" */
    assert_int_equal(side[1].id[first[1]], 223); /* " " */
    CHECK_BYTES("prompt", side[0].id, side[1].id, (size_t)first[0] * sizeof *side->id);
    sheaf_data_close(data);
}

/* ---- refusals ---- */

static const struct {
    const char *json, *want;
} bad_records[] = {
    { "[1]", "an object with \"chosen\" and \"rejected\" | an array" },
    { "{\"prompt\": [" ASK "], \"chosen\": [" SAY("Yes.") "]}",
      "field 'rejected' | two answers, \"chosen\" and \"rejected\" | no such field" },
    { "{\"prompt\": [" ASK "], \"rejected\": [" SAY("No.") "]}", "field 'chosen' | two answers" },
    { "{\"messages\": [" ASK "," SAY("Yes.") "]}", "field 'chosen' | two answers" },
    { "{\"prompt\": \"a\", \"completion\": \"b\"}", "field 'chosen' | two answers" },
    { "{\"prompt\": [" ASK "], " LISTS(SAY("Yes."), ) "}",
      "field 'rejected' | an answer behind the prompt | none" },
    { "{\"prompt\": [" ASK "], " LISTS(SAY("Yes."), SAY("")) "}",
      "messages[1].content' | an answer | an empty string" },
    { "{\"prompt\": \"a\", \"chosen\": \"\", \"rejected\": \"b\"}",
      "field 'chosen' | an answer | an empty string" },
    { "{\"instruction\": \"a\", \"chosen\": \"b\", \"rejected\": \"\"}",
      "field 'rejected' | an answer | an empty string" },
    { "{\"instruction\": \"a\", \"chosen\": [" SAY("b") "], \"rejected\": \"c\"}",
      "field 'chosen' | a string | an array" },
    { "{\"instruction\": \"a\", \"output\": [\"b\", \"\"]}",
      "field 'output[1]' | an answer | an empty string" },
    { "{" LISTS(ASK "," SAY("Yes."), EARLIER "," SAY("No.")) "}",
      "field 'chosen' | messages that both sides begin with, the prompt | none" },
    { "{" LISTS(ASK "," SAY("Yes."), ASK "," SAY("Yes.")) "}",
      "field 'chosen' | an answer behind the prompt | none" },
    { "{" LISTS(ASK "," SAY("Yes.") "," ASK "," SAY("No."), ASK "," SAY("Yes.")) "}",
      "field 'prompt' | a user's message at its end, or a tool's" },
    { "{\"prompt\": [" ASK "," SAY("Well,") "], " BOTH "}",
      "field 'prompt' | a user's message at its end, or a tool's | the assistant's" },
    { "{\"messages\": [" ASK "," SAY("Well,") "," SAY("Yes.") "], \"rejected_response\": \"No.\"}",
      "field 'prompt' | a user's message at its end" },
    { "{\"messages\": [], \"rejected_response\": \"No.\"}", "field 'messages' | an answer behind" },
    { "{\"messages\": [" ASK "," SAY("Yes.") "], \"rejected_response\": 7}",
      "field 'rejected_response' | a message, a list of them, or a text | a number" },
    { "{\"messages\": [" ASK "," SAY("Yes.") "], \"rejected_response\": [\"No.\", \"Never.\"]}",
      "field 'rejected_response' | one answer | a list of texts | a record with the same messages" },
    { "{\"prompt\": \"Is it?\", " LISTS(ASK "," SAY("Yes."), ASK "," SAY("No.")) "}",
      "field 'prompt' | the text of the first user's message in \"chosen\" | another text" },
    { "{\"prompt\": \"Is ice cold?\", \"chosen\": \"Yes.\", \"rejected\": [" SAY("No.") "]}",
      "or lists of messages that begin with it in both | another kind of value" },
    { "{\"chosen\": \"Yes.\", \"rejected\": \"No.\"}",
      "field 'chosen' | a text that both sides begin with, the prompt | none" },
    { "{\"chosen\": \"It is.\", \"rejected\": \"It is.\"}",
      "field 'chosen' | an answer behind the text that both sides begin with | none" },
    { "{\"chosen\": \"It is blue.\", \"rejected\": \"It is\"}",
      "an answer behind the text that both sides begin with | none" },
    { "{\"chosen\": \"It is.\", \"rejected\": [" SAY("No.") "]}",
      "field 'prompt' | a prompt beside" },
    { "{\"prompt\": 7, \"chosen\": \"Yes.\", \"rejected\": \"No.\"}", "another kind of value" },
    { "{\"prompt\": [" ASK "], \"chosen\": 7, \"rejected\": \"No.\"}",
      "field 'chosen' | a message, a list of them, or a text | a number" },
    { "{\"prompt\": [{\"content\": \"a\"}], " BOTH "}", "messages[0].role' | a string" },
    { "{\"prompt\": [{\"role\": 1, \"content\": \"a\"}], " BOTH "}", "messages[0].role'" },
    { "{\"prompt\": [\"a\"], " BOTH "}",
      "messages[0].role' | a string, the name of a role | a string" },
    { "{\"prompt\": [" ASK "], " LISTS(ASK, SAY("No.")) "}", "an answer at the end" },
};

TEST(test_preference__a_bad_record_is_named)
{
    sheaf_data *data = NULL;
    for (size_t i = 0; i < ARRAY_LEN(bad_records); i++) {
        char text[2000];
        snprintf(text, sizeof text, "%s\n%s\n", same_pair[0], bad_records[i].json);
        if (bad_records[i].json[0] == '{')
            CHECK_FAILS(open_pairs(&data, text, (sheaf_data_options){ 0 }), SHEAF_E_DATA, "line 2");
        CHECK_FAILS(open_pairs(&data, text, (sheaf_data_options){ 0 }), SHEAF_E_DATA,
                    bad_records[i].want);
    }
}

/* No token stands before ChatML's texts; Llama's begin with <s>. */
TEST(test_preference__an_empty_prompt_has_a_token)
{
    static const char line[] = "{\"prompt\": \"\", \"chosen\": \"Yes.\", \"rejected\": \"No.\"}";
    sheaf_data *data = NULL;
    CHECK_FAILS(open_pairs(&data, line, (sheaf_data_options){ 0 }), SHEAF_E_DATA,
                "line 1: field 'prompt' | a token that the answer's first one follows | none");
    CHECK_OK(open_pairs(&data, line,
                        (sheaf_data_options){ .folder = recording("preference/models/llama") }));
    sheaf_data_close(data);
}

/* Conversations and texts, in one file. */
TEST(test_preference__forms_are_not_mixed)
{
    sheaf_data *data = NULL;
    CHECK_FAILS(open_pairs(&data,
                           "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
                           "{\"prompt\": [" ASK "], " BOTH "}\n",
                           (sheaf_data_options){ 0 }),
                SHEAF_E_DATA, "line 2: field 'messages' | records of one form");
}

TEST(test_preference__bad_pairs_are_skipped_whole)
{
    static const char lines[] =
        "{\"prompt\": [" ASK
        "], " LISTS(SAY("Yes."), SAY("")) "}\n"
                                          "{\"prompt\": [" ASK "], " BOTH "}\n"
                                          "{\"prompt\": [" ASK
                                          "], \"chosen\": [" SAY("Yes.") "]}\n";
    sheaf_data *data = NULL, *only = NULL;
    CHECK_OK(open_pairs(&only, same_pair[0], (sheaf_data_options){ 0 }));
    CHECK_OK(open_pairs(
        &data, lines, (sheaf_data_options){ .on_bad = SHEAF_BAD_SKIP, .events = hear_warnings() }));
    assert_string_equal(sheaf_data_hash(data), sheaf_data_hash(only));
    assert_non_null(strstr(heard, "2 of 3"));
    sheaf_data_close(data);
    sheaf_data_close(only);
}

TEST(test_preference__equal_answers_are_warned_of)
{
    sheaf_data *data = NULL;
    CHECK_OK(open_pairs(&data,
                        "{\"prompt\": [" ASK "], " BOTH "}\n"
                        "{\"prompt\": [" ASK
                        "], " LISTS(SAY("No."), SAY("No.")) "}\n"
                                                            "{\"prompt\": [" ASK "], " LISTS(
                                                                SAY("Yes."), SAY("Yes.")) "}\n",
                        (sheaf_data_options){ .events = hear_warnings() }));
    assert_non_null(strstr(heard, ": line 2, the first of 2: both answers are equal"));
    assert_int_equal(sheaf_data_samples(data), 3);
    sheaf_data_close(data);
}

/* Also those that are equal as they are cut. */
TEST(test_preference__equal_answers_may_be_left_out)
{
    static const char lines[] =
        PAIR(ASK, "Yes.", "No.") PAIR(ASK, "No.", "No.") PAIR(ASK, "It is ice.", "It is.");
    sheaf_data *data = NULL;
    for (int cut = 0; cut < 2; cut++) {
        CHECK_OK(open_pairs(&data, lines,
                            (sheaf_data_options){ .on_bad = SHEAF_BAD_SKIP,
                                                  .seq = cut ? 24 : 0,
                                                  .on_long = SHEAF_LONG_CUT,
                                                  .events = hear_warnings() }));
        assert_int_equal(sheaf_data_samples(data), 2 - cut);
        sheaf_data_close(data);
    }
    CHECK_OK(open_pairs(
        &data, lines,
        (sheaf_data_options){ .seq = 24, .on_long = SHEAF_LONG_CUT, .events = hear_warnings() }));
    assert_non_null(strstr(heard, ": line 2, the first of 2: both answers are equal"));
    sheaf_data_close(data);
}

/* ---- lengths ---- */

/* Of the four pairs the first has both answers within 28 positions, the next two only one of them;
 * the last one's prompt leaves no room for any. */
TEST(test_preference__long_pairs_are_cut_or_skipped_whole)
{
    static const char lines[] = PAIR(ASK, "Yes.", "No.")
        PAIR(ASK, "Yes, it is frozen water.", "No.") PAIR(ASK, "Yes.", "No, it is not cold.")
            PAIR(ASK "," SAY("Yes.") "," ASK, "Yes.", "No.");
    static const struct {
        sheaf_on_long how;
        int64_t samples;
        const char *want;
    } rows[] = {
        { SHEAF_LONG_CUT, 3,
          "3 of 4 records are longer than 28 tokens and cut there (`on-long "
          "cut`); 1 of these had no answer" },
        { SHEAF_LONG_SKIP, 1, "3 of 4 records are longer than 28 tokens and left out" },
    };
    sheaf_data *whole = NULL;
    CHECK_OK(open_pairs(&whole, lines, (sheaf_data_options){ 0 }));
    CHECK_FAILS(open_pairs(&(sheaf_data *){ NULL }, lines, (sheaf_data_options){ .seq = 28 }),
                SHEAF_E_DATA, "28");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_data *data = NULL;
        CHECK_OK(open_pairs(
            &data, lines,
            (sheaf_data_options){ .seq = 28, .on_long = rows[i].how, .events = hear_warnings() }));
        assert_int_equal(sheaf_data_samples(data), rows[i].samples);
        if (strstr(heard, rows[i].want) == NULL)
            fail_msg("'%s'", heard);
        for (int64_t r = 0; r < sheaf_data_rows(data); r++) {
            const row got = row_of(data, r), uncut = row_of(whole, r);
            assert_int_equal(got.n, uncut.n < 28 ? uncut.n : 28);
            CHECK_BYTES("ids", got.id, uncut.id, (size_t)got.n * sizeof *got.id);
            CHECK_BYTES("learnt", got.learnt, uncut.learnt, (size_t)got.n);
            assert_true(labels_of(data, r) > 0);
        }
        sheaf_data_close(data);
    }
    sheaf_data_close(whole);
}

/* ---- the cache ---- */

/* The same file read as plain records, whose prompts ignore what is beside "completion". */
TEST(test_preference__a_cache_of_pairs_is_not_one_of_rows)
{
    static const char line[] =
        "{\"prompt\": \"The sky is\", \"completion\": \" blue.\", \"chosen\": "
        "\" blue.\", \"rejected\": \" green.\"}\n";
    static const char plain[] = "{\"prompt\": \"The sky is\", \"completion\": \" blue.\"}\n";
    const sheaf_config config = config_of(false);
    char hash[33] = "", cache[400], folder[1536];
    snprintf(cache, sizeof cache, "%s", at("caches"));
    snprintf(folder, sizeof folder, "%s", recording("preference/models/qwen2"));
    sheaf_data_options options = { .config = &config, .folder = folder, .cache = cache };
    sheaf_data *data = NULL;
    for (int again = 0; again < 2; again++) {
        CHECK_OK(open_pairs(&data, line, options));
        assert_true(sheaf_data_reads_files(data));
        assert_true(sheaf_data_rows(data) == 2 && sheaf_data_samples(data) == 1);
        if (again)
            assert_string_equal(sheaf_data_hash(data), hash);
        snprintf(hash, sizeof hash, "%s", sheaf_data_hash(data));
        sheaf_data_close(data);
        assert_int_equal(entries(cache), 2); /* and a tag */
    }
    CHECK_FAILS(sheaf_data_open(&data, at("pairs.jsonl"), &options), SHEAF_E_DATA, "rejected");
    CHECK_OK(sheaf_data_open(&data, file_with("plain.jsonl", plain, sizeof plain - 1), &options));
    assert_true(sheaf_data_rows(data) == 1 && sheaf_data_samples(data) == 1);
    sheaf_data_close(data);
    CHECK_FAILS(open_pairs(&data, plain, options), SHEAF_E_DATA, "field 'chosen'");
    options.pairs = true;
    CHECK_OK(sheaf_data_open(&data, file_with("pairs.jsonl", line, sizeof line - 1), &options));
    assert_string_equal(sheaf_data_hash(data), hash);
    sheaf_data_close(data);
}

/* ---- token ids ---- */

#define I64S(...)                                                                                  \
    (const int64_t[])                                                                              \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
static const tensor two_pairs[] = {
    { "chosen.input_ids", "I64", { 2, 4 }, I64S(5, 6, 7, 0, 5, 8, 9, 4) },
    { "chosen.labels", "I64", { 2, 4 }, I64S(-100, -100, 7, -100, -100, 8, 9, -100) },
    { "chosen.attention_mask", "I64", { 2, 4 }, I64S(1, 1, 1, 0, 1, 1, 1, 1) },
    { "rejected.input_ids", "I64", { 2, 3 }, I64S(5, 6, 4, 5, 8, 3) },
    { "rejected.labels", "I64", { 2, 3 }, I64S(-100, -100, 4, -100, 8, 3) },
};

static sheaf_status *open_tensors(sheaf_data **data, const tensor *list, int n)
{
    const sheaf_config config = config_of(false);
    return sheaf_data_open(data, tensors_file(list, n),
                           &(sheaf_data_options){ .config = &config, .pairs = true });
}

/* In turns, up to the last label. */
TEST(test_preference__sides_of_token_ids_need_not_be_of_one_length)
{
    static const int32_t want[4][3] = { { 5, 6, 7 }, { 5, 6, 4 }, { 5, 8, 9 }, { 5, 8, 3 } };
    sheaf_data *data = NULL;
    CHECK_OK(open_tensors(&data, two_pairs, ARRAY_LEN(two_pairs)));
    assert_true(sheaf_data_rows(data) == 4 && sheaf_data_samples(data) == 2);
    for (int64_t r = 0; r < 4; r++) {
        const row got = row_of(data, r);
        assert_int_equal(got.n, 3);
        CHECK_BYTES("ids", got.id, want[r], sizeof want[r]);
        assert_true(!got.learnt[0] && got.learnt[1] == (r > 1) && got.learnt[2]);
    }
    sheaf_data_close(data);
}

/* ---- scores ---- */

/* The one label of a row, 0, is behind its last token that is not padding (0 in this config),
 * whatever its labels are. */
TEST(test_preference__a_score_is_of_all_but_padding)
{
    const struct {
        tensor chosen, margin;
        int64_t used[4];
        double of[2];
    } rows[] = {
        { two_pairs[0], { NULL }, { 3, 3, 4, 3 }, { 0 } },
        { { "chosen.input_ids", "I64", { 2, 4 }, I64S(5, 6, 7, 3, 5, 8, 0, 0) },
          { "margin", "F32", { 2 }, NULL, 2 },
          { 3, 3, 2, 3 },
          { 2, 3 } },
    };
    const sheaf_config config = config_of(false);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_data *data = NULL;
        tensor list[ARRAY_LEN(two_pairs) + 1];
        memcpy(list, two_pairs, sizeof two_pairs);
        list[0] = rows[i].chosen;
        list[ARRAY_LEN(two_pairs)] = rows[i].margin;
        CHECK_OK(sheaf_data_open(
            &data, tensors_file(list, ARRAY_LEN(two_pairs) + (rows[i].margin.name != NULL)),
            &(sheaf_data_options){ .config = &config, .pairs = true, .scores = true }));
        for (int64_t r = 0; r < 4; r++) {
            int32_t id[5], label[5], want[5];
            const int64_t n = rows[i].used[r];
            assert_int_equal(sheaf_data_used(data, &r, 1), n);
            assert_int_equal(labels_of(data, r), 1);
            CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = id, .labels = label, .seq = 5 },
                                      data, &r, 1));
            for (int64_t t = 0; t < 5; t++)
                want[t] = t + 1 == n ? 0 : SHEAF__IGNORED;
            CHECK_BYTES("labels", label, want, sizeof want);
            assert_true(sheaf_data_margin(data, r) == rows[i].of[r / 2]);
        }
        sheaf_data_close(data);
    }
}

/* The template's variables, by record. */
TEST(test_preference__a_record_has_variables_of_its_template)
{
    static const char program[] =
        "{% for m in messages %}{{ mark ~ m.role ~ ':' ~ m.content ~ '.' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ mark ~ 'assistant:' }}{% endif %}",
                      with[] = "{\"chat_template_kwargs\": %s, \"prompt\": [" ASK "], " BOTH "}";
    static const char *const marks[] = { "{\"mark\": \"~\"}", "{\"mark\": \"~^~\"}", "7",
                                         "{\"tools\": [1]}" };
    int64_t used[2];
    folder_of("tools");
    file_with("tools/chat_template.jinja", program, sizeof program - 1);
    for (int i = 0; i < 4; i++) {
        sheaf_data *data = NULL;
        char text[400];
        snprintf(text, sizeof text, with, marks[i]);
        sheaf_status *st = open_pairs(&data, text, (sheaf_data_options){ .folder = at("tools") });
        if (i >= 2) {
            CHECK_FAILS(st, SHEAF_E_DATA,
                        i == 2 ? "field 'chat_template_kwargs' | an object | a number"
                               : "variables that have no place of their own | 'tools'");
            continue;
        }
        CHECK_OK(st);
        used[i] = sheaf_data_used(data, &(int64_t){ 0 }, 1);
        sheaf_data_close(data);
    }
    assert_int_equal(used[1] - used[0], 2 * 2); /* two marks, of two signs more each */
}

/* In the file's order, by side; both of them or none. */
TEST(test_preference__pairs_may_have_their_reference)
{
    tensor list[ARRAY_LEN(two_pairs) + 2];
    sheaf_data *data = NULL, *other = NULL;
    memcpy(list, two_pairs, sizeof two_pairs);
    list[ARRAY_LEN(two_pairs)] = (tensor){ "ref_chosen_logps", "F32", { 2 }, NULL, -3 };
    list[ARRAY_LEN(two_pairs) + 1] = (tensor){ "ref_rejected_logps", "F32", { 2 }, NULL, -9 };
    CHECK_OK(open_tensors(&data, list, ARRAY_LEN(list)));
    for (int64_t r = 0; r < 4; r++) {
        double value = 0;
        assert_true(sheaf_data_reference(&value, data, r));
        assert_true(value == (r % 2 ? -9 : -3) + (double)(r / 2));
    }
    CHECK_OK(open_tensors(&other, two_pairs, ARRAY_LEN(two_pairs)));
    assert_true(!sheaf_data_reference(&(double){ 0 }, other, 0));
    assert_string_not_equal(sheaf_data_hash(data), sheaf_data_hash(other));
    sheaf_data_close(data);
    sheaf_data_close(other);
    CHECK_FAILS(open_tensors(&data, list, ARRAY_LEN(list) - 1), SHEAF_E_DATA,
                "'ref_rejected_logps' | F32, one number for each pair | no such tensor");
    list[ARRAY_LEN(two_pairs)].shape[0] = 1;
    CHECK_FAILS(open_tensors(&data, list, ARRAY_LEN(list)), SHEAF_E_DATA,
                "'ref_chosen_logps' | F32, one number for each pair | another form");
}

TEST(test_preference__margins_of_texts)
{
    static const char with[] = "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", "
                               "\"margin\": %s}\n";
    static const struct {
        const char *value, *want;
    } rows[] = { { "-1.5", NULL },
                 { "null", NULL },
                 { "\"1\"", "field 'margin' | a number | a string" },
                 { "1e300", "field 'margin' | a number" } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_data *data = NULL;
        char text[200];
        snprintf(text, sizeof text, with, rows[i].value);
        sheaf_status *st = open_pairs(&data, text, (sheaf_data_options){ .scores = true });
        if (rows[i].want != NULL) {
            CHECK_FAILS(st, SHEAF_E_DATA, rows[i].want);
            continue;
        }
        CHECK_OK(st);
        assert_true(sheaf_data_margin(data, 0) == (i == 0 ? -1.5 : 0));
        sheaf_data_close(data);
    }
}

TEST(test_preference__bad_tensors_are_named)
{
    const struct {
        int at; /* of two_pairs */
        tensor instead;
        const char *want;
    } rows[] = {
        { 2,
          { "chosen.position_ids", "I64", { 2, 4 }, I64S(0, 1, 2, 3, 0, 1, 2, 3) },
          "'chosen.position_ids' | chosen.input_ids, chosen.labels, the same of rejected" },
        { 2,
          { "input_ids", "I64", { 2, 4 }, I64S(0, 1, 2, 3, 0, 1, 2, 3) },
          "'input_ids' | chosen.input_ids" },
        { 2,
          { "chosen.attention_mask", "I64", { 2, 4 }, I64S(0, 1, 1, 0, 1, 1, 1, 1) },
          "'attention_mask': row 1, position 1 | 1, but for padding at the end | 0 | pad on the right" },
        { 4, { "rejected.attention_mask", "I64", { 2, 3 }, I64S(1, 1, 1, 1, 1, 1) }, "labels" },
        { 3, { "rejected.input_ids", "I64", { 2, 3 }, I64S(5, 6, 4, 5, 8, 335) }, "335" },
        { 4,
          { "rejected.labels", "I64", { 2, 3 }, I64S(-100, -100, 4, -100, -100, -100) },
          "rejected.labels' | a label in every row, behind its first position | none in row 2" },
        { 1,
          { "chosen.labels", "I64", { 2, 4 }, I64S(5, -100, -100, -100, -100, 8, 9, -100) },
          "chosen.labels' | a label in every row, behind its first position | none in row 1" },
    };
    sheaf_data *data = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        tensor list[ARRAY_LEN(two_pairs)];
        memcpy(list, two_pairs, sizeof list);
        list[rows[i].at] = rows[i].instead;
        CHECK_FAILS(open_tensors(&data, list, ARRAY_LEN(list)), SHEAF_E_DATA, rows[i].want);
    }
    const tensor fewer[] = { two_pairs[0],
                             two_pairs[1],
                             { "rejected.input_ids", "I64", { 1, 3 }, I64S(5, 6, 4) },
                             { "rejected.labels", "I64", { 1, 3 }, I64S(-100, -100, 4) } };
    CHECK_FAILS(open_tensors(&data, fewer, 4), SHEAF_E_DATA,
                "'rejected.input_ids' | as many rows as chosen.input_ids | 1 and 2");
}

FIXTURE(make_scratch, remove_scratch);
