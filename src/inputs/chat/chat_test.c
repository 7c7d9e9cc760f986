/* chat_test.c - every named template against what transformers wrote (tests/data/templates). */
#include "tests/check.h"

#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "inputs/chat/date.h"
#include "inputs/chat/messages.h"
#include "inputs/chat/recognise.h"
#include "inputs/chat/style.h"

static json_t *recorded; /* {"conversations": [...], "texts": {NAME: [...]}} */

static const char *data_path(char path[512], const char *name)
{
    const char *root = getenv("SHEAF_SOURCE_ROOT");
    snprintf(path, 512, "%s/tests/data/templates/%s", root != NULL ? root : ".", name);
    return path;
}

static int setup(void **state)
{
    char path[512];
    char *text = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&text, &size, data_path(path, "recorded.json"), 1 << 20));
    CHECK_OK(sheaf__json_parse_line(&recorded, text, size)); /* strings may hold NUL */
    free(text);
    return 0;
}
static int teardown(void **state)
{
    json_decref(recorded);
    return 0;
}

/* By its name; with the date, if it is one that wants one. */
static sheaf__chat_template *template_on(const char *date, const char *name)
{
    sheaf__chat_template *t = NULL;
    CHECK_OK(sheaf__chat_template_find(&t, name));
    if (sheaf__chat_template_wants_date(t))
        CHECK_OK(sheaf__chat_template_set_date(t, date));
    return t;
}

static sheaf_status *render(sheaf__rendered *out, const sheaf__chat_template *t,
                            const json_t *messages, bool prompt)
{
    sheaf__messages c;
    json_t *record = json_pack("{s:O}", "messages", messages);
    sheaf_status *st = sheaf__messages_read(&c, record);
    const sheaf__chat_options options = { .generation_prompt = prompt,
                                          .bos = "<s>",
                                          .eos = "</s>" };
    TRY(st, sheaf__chat_render(out, t, c.message, c.count, &options));
    sheaf__messages_release(&c);
    json_decref(record);
    return st;
}

/* Of this code, and the parts are in its text. */
static void check_status(sheaf_status *st, sheaf_code code, const char *one, const char *other)
{
    sheaf_status *copy = st == NULL ? NULL : sheaf_status_copy(st);
    CHECK_FAILS(st, code, one);
    CHECK_FAILS(copy, code, other);
}

static bool ends_with_answer(const json_t *messages)
{
    const json_t *last = json_array_get(messages, json_array_size(messages) - 1);
    return strcmp(json_string_value(json_object_get(last, "role")), "assistant") == 0;
}

/* Spans lie in the text; an answer ends with what stops a model; content is a part of its message.
 */
static void check_spans(const sheaf__rendered *r, const sheaf__chat_template *t,
                        const json_t *messages)
{
    const char *stop = sheaf__chat_template_stop(t, "</s>");
    for (int64_t i = 0; i < r->spans; i++) {
        const sheaf__span *s = &r->span[i];
        assert_true(s->begin <= s->end && s->end <= r->size);
        const json_t *message = json_array_get(messages, (size_t)s->message);
        const json_t *content = json_object_get(message, "content");
        if (s->kind == SHEAF__CONTENT)
            assert_true(s->begin == s->end ||
                        memmem(json_string_value(content), json_string_length(content),
                               r->text + s->begin, s->end - s->begin) != NULL);
        else
            assert_memory_equal(r->text + s->end - strlen(stop), stop, strlen(stop));
        assert_true(i == 0 || s[-1].begin <= s->begin || s->kind == SHEAF__CONTENT);
    }
}

static void check_one(const sheaf__chat_template *t, size_t i, const json_t *messages,
                      const json_t *want)
{
    sheaf__rendered r = { 0 };
    sheaf_status *st = render(&r, t, messages, !ends_with_answer(messages));
    if (json_is_null(want)) {
        if (st == NULL)
            fail_msg("%s, conversation %zu: rendered, but the program raises",
                     sheaf__chat_template_name(t), i);
        assert_true(strncmp(sheaf_status_where(st), "message ", 8) == 0);
        sheaf_status_free(st);
        return;
    }
    CHECK_OK(st);
    if (r.size != json_string_length(want) || memcmp(r.text, json_string_value(want), r.size) != 0)
        fail_msg("%s, conversation %zu:\n%s\nwanted:\n%s", sheaf__chat_template_name(t), i, r.text,
                 json_string_value(want));
    check_spans(&r, t, messages);
    sheaf__rendered_release(&r);
}

static void test_chat__every_template_gives_the_bytes_of_transformers(void **state)
{
    const json_t *conversations = json_object_get(recorded, "conversations");
    const json_t *texts = json_object_get(recorded, "texts");
    assert_int_equal(json_object_size(texts), sheaf__style_count - 5); /* see styles.c */
    for (int k = 0; k < sheaf__style_count; k++) {
        sheaf__chat_template *t = template_on("2024-07-26", sheaf__styles[k].name);
        const bool alike = strcmp(sheaf__styles[k].name, "llama3.2") == 0; /* on that day */
        const json_t *want = json_object_get(texts, alike ? "llama3.1" : sheaf__styles[k].name);
        for (size_t i = 0; i < json_array_size(want); i++)
            check_one(t, i, json_array_get(conversations, i), json_array_get(want, i));
        sheaf__chat_template_free(t);
    }
}

static void test_chat__the_list_of_names_is_that_of_the_table(void **state)
{
    sheaf_text names = { 0 };
    for (int k = 0; k < sheaf__style_count; k++)
        sheaf__text_add(&names, "%s%s",
                        k == 0                        ? ""
                        : k + 1 == sheaf__style_count ? " or "
                                                      : ", ",
                        sheaf__styles[k].name);
    assert_string_equal(names.at, sheaf__chat_template_names());
    sheaf__text_release(&names);
    sheaf__chat_template *t = NULL;
    check_status(sheaf__chat_template_find(&t, "lama3"), SHEAF_E_ARG, "llama3, llama3.1", "lama3");
}

/* What is learnt is [..], what is text (..). */
static void test_chat__spans_worked_by_hand(void **state)
{
    static const struct {
        const char *name, *want;
    } cases[] = {
        { "llama2", "<s>[INST] <<SYS>>\n(Be brief.)\n<</SYS>>\n\n(2+2?) [/INST][ (4) </s>]" },
        { "llama3", "<s><|start_header_id|>system<|end_header_id|>\n\n(Be brief.)<|eot_id|>"
                    "<|start_header_id|>user<|end_header_id|>\n\n(2+2?)<|eot_id|>"
                    "<|start_header_id|>assistant<|end_header_id|>\n\n[(4)<|eot_id|>]" },
        { "chatml", "<|im_start|>system\n(Be brief.)<|im_end|>\n<|im_start|>user\n(2+2?)<|im_end|>"
                    "\n<|im_start|>assistant\n[(4)<|im_end|>]\n" },
        { "qwen3", "<|im_start|>system\n(Be brief.)<|im_end|>\n<|im_start|>user\n(2+2?)<|im_end|>"
                   "\n<|im_start|>assistant\n[<think>\n()\n</think>\n\n(4)<|im_end|>]\n" },
        { "vicuna", "(Be brief.) USER: (2+2?) ASSISTANT:[ (4)</s>]" },
        { "mistral-v3", "<s>[INST] (2+2?)[/INST][ (4)</s>]" }, /* and no system message */
        { "gemma3", "<s><start_of_turn>user\n(Be brief.)\n\n(2+2?)<end_of_turn>\n"
                    "<start_of_turn>model\n[(4)<end_of_turn>]\n" },
        { "smollm3", "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
                     "Today Date: 01 May 2026\nReasoning Mode: /think\n\n## Custom Instructions\n\n"
                     "(Be brief.)\n\n<|im_start|>user\n(2+2?)<|im_end|>\n"
                     "<|im_start|>assistant\n[(4)<|im_end|>]\n" },
        { "qwen3-thoughts",
          "<|im_start|>system\n(Be brief.)<|im_end|>\n<|im_start|>user\n(2+2?)<|im_end|>"
          "\n<|im_start|>assistant\n[<think>\n\n</think>\n\n(4)<|im_end|>]\n" },
        { "plain", "(Be brief.)(2+2?)[(4)</s>]" },
    };
    const json_t *messages = json_array_get(json_object_get(recorded, "conversations"), 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = template_on("2026-05-01", cases[i].name);
        sheaf__rendered r = { 0 };
        sheaf_text marked = { 0 };
        CHECK_OK(render(&r, t, messages, false));
        for (size_t at = 0; at <= r.size; at++) {
            for (int64_t s = r.spans - 1; s >= 0; s--)
                if (r.span[s].end == at && r.span[s].begin < at)
                    sheaf__text_add(&marked, r.span[s].kind == SHEAF__ANSWER ? "]" : ")");
            for (int64_t s = 0; s < r.spans; s++)
                if (r.span[s].begin == at)
                    sheaf__text_add(&marked, r.span[s].kind == SHEAF__ANSWER ? "["
                                             : r.span[s].end == at           ? "()"
                                                                             : "(");
            sheaf__text_bytes(&marked, r.text + at, at < r.size);
        }
        assert_string_equal(marked.at, cases[i].want);
        assert_int_equal(r.left_out, strcmp(cases[i].name, "mistral-v3") == 0);
        sheaf__text_release(&marked);
        sheaf__rendered_release(&r);
        sheaf__chat_template_free(t);
    }
}

#define SMOLLM3(MODE, INSTRUCTIONS)                                                                \
    "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: "            \
    "09 February 1999\nReasoning Mode: " MODE "\n\n## Custom Instructions\n\n" INSTRUCTIONS        \
    "\n\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"

/* As transformers writes them; what it says of itself by default is long. */
static void test_chat__smollm3_takes_its_mode_from_the_system_message(void **state)
{
    static const char quiet[] =
        "You are a helpful AI assistant named SmolLM, trained by Hugging Face.";
    static const struct {
        const char *system, *answer, *want;
    } cases[] = {
        { "Be\u00a0kind. /no_think\n", "\n\nA\n",
          SMOLLM3("/no_think", "Be\u00a0kind.") "<think>\n\n</think>\nA\n<|im_end|>\n" },
        { "/no_think", "A",
          SMOLLM3("/no_think", "You are a helpful AI assistant named SmolLM, trained by Hugging "
                               "Face.") "<think>\n\n</think>\nA<|im_end|>\n" },
        { " /thinkS/think \n", "\nA", SMOLLM3("/think", " S") "A<|im_end|>\n" },
        { "/no_think /think", "A",
          SMOLLM3("/no_think",
                  "You are a helpful AI assistant named "
                  "SmolLM, trained by Hugging Face.") "<think>\n\n</think>\nA<|im_end|>\n" },
        { "/thi/no_thinknk S", "A",
          SMOLLM3("/no_think", " S") "<think>\n\n</think>\nA<|im_end|>\n" },
        { "S /system_override /think", "A",
          "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nQ<|im_end|>\n"
          "<|im_start|>assistant\nA<|im_end|>\n" },
        { "/system_over/thinkride", "A", SMOLLM3("/think", "/system_override") "A<|im_end|>\n" },
    };
    sheaf__chat_template *t = template_on("1999-02-09", "smollm3");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__rendered r = { 0 };
        json_t *messages = json_pack("[{s:s, s:s}, {s:s, s:s}, {s:s, s:s}]", "role", "system",
                                     "content", cases[i].system, "role", "user", "content", "Q",
                                     "role", "assistant", "content", cases[i].answer);
        CHECK_OK(render(&r, t, messages, false));
        assert_string_equal(r.text, cases[i].want);
        sheaf__rendered_release(&r);
        json_decref(messages);
    }
    sheaf__rendered r = { 0 };
    json_t *alone = json_pack("[{s:s, s:s}]", "role", "user", "content", "Q");
    CHECK_OK(render(&r, t, alone, true));
    assert_non_null(strstr(r.text, t->style.system));
    assert_string_equal(t->style.quiet_system, quiet);
    assert_string_equal(r.text + r.size - strlen("<|im_start|>assistant\n"),
                        "<|im_start|>assistant\n");
    sheaf__rendered_release(&r);
    json_decref(alone);
    sheaf__chat_template_free(t);
}

/* As LLaMA-Factory's template qwen3 trains: thoughts stay in every answer, or are empty. */
static void test_chat__qwen3_thoughts_stay_in_every_answer(void **state)
{
    sheaf__chat_template *t = template_on("", "qwen3-thoughts");
    sheaf__rendered r = { 0 };
    json_t *talk = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content",
                             "Q", "role", "assistant", "content", "<think>T</think>A", "role",
                             "user", "content", "R", "role", "assistant", "content", "B");
    CHECK_OK(render(&r, t, talk, false));
    assert_string_equal(r.text, "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
                                "<think>T</think>A<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
                                "<|im_start|>assistant\n<think>\n\n</think>\n\nB<|im_end|>\n");
    sheaf__rendered_release(&r);
    json_decref(talk);
    talk = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "Q", "role",
                     "assistant", "content", "A", "role", "user", "content", "R");
    CHECK_OK(render(&r, t, talk, true));
    assert_string_equal(r.text,
                        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
                        "<think>\n\n</think>\n\nA<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
                        "<|im_start|>assistant\n");
    sheaf__rendered_release(&r);
    json_decref(talk);
    sheaf__chat_template_free(t);
}

/* What a model writes, what of it is its thoughts and what the rest; `+` where more could make the
 * beginning a block without thoughts. */
static void test_chat__thoughts_that_are_none_are_no_text(void **state)
{
    static const struct {
        const char *name, *text, *thoughts, *rest;
    } rows[] = {
        { "qwen3", "<think>\n\n</think>\n\ntwo", "", "\n\ntwo" },
        { "qwen3", "two", "", "two" },
        { "qwen3", "<think>why</think>two", "why", "two" },
        { "qwen3", "<think>\nwhy\n</think>\n\ntwo", "why", "two" },
        { "qwen3", "<thi", "", "<thi+" },
        { "qwen3", "", "", "+" },
        { "qwen3", "<think>\n", "", "<think>\n+" },
        { "qwen3", "<think>\nw", "", "<think>\nw" },
        { "qwen3", "<think>\n\n</think>", "", "" },
        { "qwen3-thoughts", "<think>\n\n</think>\n\ntwo", "", "\n\ntwo" },
        { "qwen3-thoughts", "<think>why</think>two", "", "<think>why</think>two" },
        { "smollm3", "\n<think>\n\n</think>two", "", "two" },
        { "chatml", "<think>\n\n</think>two", "", "<think>\n\n</think>two" },
        { "chatml", "<thi", "", "<thi" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf__chat_template *t;
        sheaf__text_piece thoughts, rest = { rows[i].text, strlen(rows[i].text) };
        char got[2][64];
        bool more;
        CHECK_OK(sheaf__chat_template_find(&t, rows[i].name));
        sheaf__chat_no_thoughts(&more, t, rest.at, rest.size);
        sheaf__chat_divide(&thoughts, &rest, t);
        snprintf(got[0], sizeof got[0], "%.*s", (int)thoughts.size, thoughts.at);
        snprintf(got[1], sizeof got[1], "%.*s%s", (int)rest.size, rest.at, more ? "+" : "");
        if (strcmp(got[0], rows[i].thoughts) != 0 || strcmp(got[1], rows[i].rest) != 0)
            fail_msg("row %zu: '%s' and '%s'", i, got[0], got[1]);
        sheaf__chat_template_free(t);
    }
}

static void test_chat__a_date_is_given_or_the_templates_own(void **state)
{
    static const struct {
        const char *name, *date, *want; /* NULL: refused */
    } cases[] = {
        { "llama3.1", NULL, "26 Jul 2024" },
        { "llama3.1", "2026-11-02", "02 Nov 2026" },
        { "llama3.1", "01 Januar 2042", "01 Januar 2042" },
        { "llama3.2", "2024-02-29", "29 Feb 2024" },
        { "llama3.2", "some day", "some day" },
        { "smollm3", "2025-12-01", "01 December 2025" },
        { "llama3.2", "2023-02-29", NULL },
        { "llama3.2", "2024-13-01", NULL },
        { "smollm3", "01 December 2025", NULL },
        { "chatml", "2025-12-01", NULL },
        { "llama3.2", "today", NULL },
        { "smollm3", "Today", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = NULL;
        CHECK_OK(sheaf__chat_template_find(&t, cases[i].name));
        sheaf_status *st = sheaf__chat_template_set_date(t, cases[i].date);
        if (cases[i].want == NULL) {
            check_status(st, SHEAF_E_ARG, "--date", "");
        } else {
            CHECK_OK(st);
            assert_string_equal(sheaf__chat_template_date(t), cases[i].want);
        }
        sheaf__chat_template_free(t);
    }
    sheaf__chat_template *t = NULL;
    sheaf__rendered r = { 0 };
    json_t *alone = json_pack("[{s:s, s:s}]", "role", "user", "content", "Q");
    CHECK_OK(sheaf__chat_template_find(&t, "llama3.2"));
    check_status(render(&r, t, alone, true), SHEAF_E_ARG, "llama3.2", "--date");
    CHECK_OK(sheaf__chat_template_set_today(t));
    CHECK_OK(render(&r, t, alone, true));
    assert_non_null(strstr(r.text, sheaf__chat_template_date(t)));
    sheaf__rendered_release(&r);
    json_decref(alone);
    sheaf__chat_template_free(t);
}

static void test_date__fields_worked_by_hand(void **state)
{
    static const struct {
        sheaf__date date;
        const char *format, *want;
    } cases[] = {
        { { 2024, 7, 26 }, "%d %b %Y", "26 Jul 2024" },
        { { 2026, 5, 1 }, "%A, %B %-d, %Y (%a %e.%-m.%y)", "Friday, May 1, 2026 (Fri  1.5.26)" },
        { { 2000, 12, 31 }, "%F %j %h %a%%", "2000-12-31 366 Dec Sun%" },
        { { 1900, 3, 1 }, "%j %-j %A", "060 60 Thursday" },
        { { 2024, 7, 26 }, "%H:%M", NULL },
        { { 2024, 7, 26 }, "%", NULL },
    };
    char text[SHEAF__DATE_SIZE];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const char *format = cases[i].format;
        assert_int_equal(sheaf__date_write(text, format, strlen(format), cases[i].date),
                         cases[i].want != NULL);
        if (cases[i].want != NULL)
            assert_string_equal(text, cases[i].want);
    }
}

static void test_messages__refusals_name_the_message(void **state)
{
    static const struct {
        const char *json, *where, *found;
        sheaf_code code;
    } cases[] = {
        { "[]", "'record'", "list", SHEAF_E_DATA },
        { "{}", "'messages'", "no such field", SHEAF_E_DATA },
        { "{\"messages\": []}", "'messages'", "", SHEAF_E_DATA },
        { "{\"messages\": [{\"role\": \"user\"}]}", "message 1: 'content'", "no such field",
          SHEAF_E_DATA },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"tool\", "
          "\"content\": \"b\"}]}",
          "message 2: 'role'", "tool", SHEAF_E_UNSUPPORTED },
        { "{\"messages\": [{\"role\": \"function\", \"content\": \"b\"}]}", "message 1", "function",
          SHEAF_E_UNSUPPORTED },
        { "{\"messages\": [{\"role\": \"User\", \"content\": \"b\"}]}", "message 1", "User",
          SHEAF_E_DATA },
        { "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"tool_calls\": [1]}]}",
          "message 1: 'tool_calls'", "", SHEAF_E_UNSUPPORTED },
        { "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"image\"}]}]}",
          "message 1: 'content'", "image", SHEAF_E_UNSUPPORTED },
        { "{\"conversations\": [{\"from\": \"observation\", \"value\": \"b\"}]}",
          "message 1: 'from'", "observation", SHEAF_E_UNSUPPORTED },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"b\"}], \"tools\": [1]}", "'tools'",
          "", SHEAF_E_UNSUPPORTED },
    };
    sheaf__chat_template *t = NULL;
    CHECK_OK(sheaf__chat_template_find(&t, "chatml"));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        json_t *record = NULL;
        sheaf__messages c;
        sheaf__rendered r = { 0 };
        const sheaf__chat_options options = { 0 };
        CHECK_OK(sheaf__json_parse_line(&record, cases[i].json, strlen(cases[i].json)));
        sheaf_status *st = sheaf__messages_read(&c, record);
        TRY(st, sheaf__chat_render(&r, t, c.message, c.count, &options));
        check_status(st, cases[i].code, cases[i].where, cases[i].found);
        sheaf__messages_release(&c);
        json_decref(record);
    }
    sheaf__chat_template_free(t);
}

static void test_messages__forms_give_the_same_messages(void **state)
{
    static const char *const forms[] = {
        "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
        "\"content\": \"A\"}, {\"role\": \"assistant\", \"content\": \"B\"}]}",
        "{\"conversations\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", "
        "\"content\": \"A\"}, {\"role\": \"assistant\", \"content\": \"B\"}]}",
        "{\"system\": \"S\", \"conversations\": [{\"from\": \"human\", \"value\": \"A\"}, "
        "{\"from\": \"gpt\", \"value\": \"B\"}]}",
        "{\"messages\": [{\"role\": \"system\", \"content\": [{\"type\": \"text\", \"text\": "
        "\"S\"}]}, {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"A\"}, "
        "{\"type\": \"text\", \"text\": \"\"}]}, {\"role\": \"assistant\", \"content\": \"B\"}]}",
    };
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        json_t *record = NULL;
        sheaf__messages c;
        CHECK_OK(sheaf__json_parse_line(&record, forms[i], strlen(forms[i])));
        CHECK_OK(sheaf__messages_read(&c, record));
        assert_int_equal(c.count, 3);
        static const char *const roles[] = { "system", "user", "assistant" };
        for (int k = 0; k < 3; k++) {
            assert_string_equal(c.message[k].role, roles[k]);
            assert_int_equal(c.message[k].size, 1);
            assert_true(c.message[k].content[0] == "SAB"[k]);
        }
        sheaf__messages_release(&c);
        json_decref(record);
    }
}

static void test_chat__a_token_that_the_tokenizer_lacks_is_named(void **state)
{
    static const sheaf__message hi[] = { { "user", "Hi", 2 }, { "assistant", "Ho", 2 } };
    static const struct {
        const char *name, *expected;
    } cases[] = { { "llama3", "a bos" }, { "zephyr", "an eos" } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = NULL;
        sheaf__rendered r;
        const sheaf__chat_options options = { 0 };
        CHECK_OK(sheaf__chat_template_find(&t, cases[i].name));
        check_status(sheaf__chat_render(&r, t, hi, 2, &options), SHEAF_E_ARG, cases[i].name,
                     "none in tokenizer_config.json");
        sheaf__chat_template_free(t);
    }
}

/* ---- stored programs ---- */

static char *program_of(const char *name)
{
    char path[512], file[64], *text = NULL;
    size_t size = 0;
    snprintf(file, sizeof file, "%s.jinja", name);
    CHECK_OK(sheaf__file_read_all(&text, &size, data_path(path, file), 1 << 20));
    return text;
}

static void test_recognise__every_published_program_is_its_row(void **state)
{
    for (int k = 0; k < sheaf__style_count - 3; k++) {
        char *text = program_of(sheaf__styles[k].name);
        sheaf__chat_template *t = NULL;
        CHECK_OK(sheaf__chat_template_recognise(&t, text, strlen(text), "<s>", "</s>"));
        assert_string_equal(sheaf__chat_template_name(t), sheaf__styles[k].name);
        assert_true(t->style.flags == sheaf__styles[k].flags);
        sheaf__chat_template_free(t);
        free(text);
    }
}

static void test_recognise__a_date_that_is_always_the_same_cannot_be_given(void **state)
{
    char *text = program_of("llama3.1"), *fixed = NULL;
    sheaf__chat_template *t = NULL;
    assert_true(asprintf(&fixed, "{%%- set date_string = '26 Jul 2024' %%}%s", text) > 0);
    CHECK_OK(sheaf__chat_template_recognise(&t, fixed, strlen(fixed), "<s>", "</s>"));
    assert_string_equal(sheaf__chat_template_name(t), "llama3.1");
    check_status(sheaf__chat_template_set_date(t, "2024-07-27"), SHEAF_E_ARG, "--date 2024-07-27",
                 "always writes 26 Jul 2024");
    sheaf__chat_template_free(t);
    free(fixed);
    free(text);
}

#define CHATML(HEAD, CONTENT)                                                                      \
    HEAD "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + " CONTENT       \
         " + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"                      \
         "{{ '<|im_start|>assistant\n' }}{% endif %}"

static void test_recognise__what_a_row_can_say_differently(void **state)
{
    static const struct {
        const char *program, *name, *want; /* of a question and an answer */
    } cases[] = {
        { CHATML("{{ bos_token }}", "message['content']"), "chatml-stored",
          "<s><|im_start|>user\n Q<|im_end|>\n<|im_start|>assistant\nA <|im_end|>\n" },
        { CHATML("", "message['content']|trim"), "chatml-stored",
          "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\nA<|im_end|>\n" },
        { CHATML("{% if messages[0].role != 'system' %}<|im_start|>system\nBe\nkind.<|im_end|>\n"
                 "{{ '' }}{% endif %}",
                 "message['content']"),
          "chatml-stored",
          "<|im_start|>system\nBe\nkind.<|im_end|>\n<|im_start|>user\n Q<|im_end|>\n"
          "<|im_start|>assistant\nA <|im_end|>\n" },
        { "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
          "{{ raise_exception('no') }}{% elif m.role == 'user' %}{{ '[INST] ' + m.content + "
          "' [/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
          "mistral-2023-stored", "<s>[INST]  Q [/INST]A </s>" },
        { "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}{{ bos_token + "
          "'[INST] ' + (('<<SYS>>\\n' + (messages[0].content if messages[0].role == 'system' else "
          "'Be kind.') + '\\n<</SYS>>\\n\\n' if loop.first else '') + m.content).strip() + "
          "' [/INST]' }}{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}"
          "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}"
          "{% endif %}{% endfor %}",
          "llama2-stored", "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\n Q [/INST] A </s>" },
    };
    static const sheaf__message talk[] = { { "user", " Q", 2 }, { "assistant", "A ", 2 } };
    static const sheaf__chat_options options = { .bos = "<s>", .eos = "</s>" };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = NULL;
        sheaf__rendered r = { 0 };
        CHECK_OK(sheaf__chat_template_recognise(&t, cases[i].program, strlen(cases[i].program),
                                                "<s>", "</s>"));
        assert_string_equal(sheaf__chat_template_name(t), cases[i].name);
        CHECK_OK(sheaf__chat_render(&r, t, talk, 2, &options));
        assert_string_equal(r.text, cases[i].want);
        sheaf__rendered_release(&r);
        sheaf__chat_template_free(t);
        /* its name, as settings keep it, means the same as long as the program does */
        sheaf__stored_chat stored = {
            .program = (char *)cases[i].program, .bos = "<s>", .eos = "</s>", .file = "x"
        };
        CHECK_OK(sheaf__chat_template_choose(&t, cases[i].name, &stored));
        assert_ptr_equal(sheaf__chat_template_name(t), sheaf__chat_template_known(cases[i].name));
        sheaf__chat_template_free(t);
        stored.program = CHATML("", "message['content']");
        CHECK_FAILS(sheaf__chat_template_choose(&t, cases[i].name, &stored), SHEAF_E_ARG,
                    "now it is chatml");
    }
}

static void test_recognise__others_are_refused_with_the_names(void **state)
{
    static const struct {
        const char *program, *found;
        sheaf_code code;
    } cases[] = {
        { "{% for m in messages %}{{ m.role + m.content }}{% endfor %}", "another one",
          SHEAF_E_UNSUPPORTED },
        { CHATML("{{ strftime_now('%Y') }}", "message['content']"), "another one",
          SHEAF_E_UNSUPPORTED },
        { CHATML("{% if messages[0].role != 'system' %}<|im_start|>system\nToday is "
                 "{{ strftime_now('%d %b %Y') }}.<|im_end|>\n{{ '' }}{% endif %}",
                 "message['content']"),
          "chatml writes", SHEAF_E_UNSUPPORTED },
        { CHATML("{{ strftime_now('%H:%M') }}", "message['content']"), "strftime_now('%H:%M')",
          SHEAF_E_UNSUPPORTED },
        { CHATML("", "message['content'].replace('two', '2')"), "chatml writes",
          SHEAF_E_UNSUPPORTED },
        { CHATML("", "message['content']") "!", "another one", SHEAF_E_UNSUPPORTED },
        /* what only longer conversations and texts show, blanks without a system, other tokens */
        { CHATML("{% set messages = messages[-6:] %}", "message['content']"), "chatml writes",
          SHEAF_E_UNSUPPORTED },
        { CHATML("", "message['content'][:200]"), "chatml writes", SHEAF_E_UNSUPPORTED },
        { CHATML("", "message['content']") "{% if messages|length > 8 %}{{ eos_token }}{% endif %}",
          "chatml writes", SHEAF_E_UNSUPPORTED },
        { CHATML("{{ pad_token }}", "message['content']"), "another one", SHEAF_E_UNSUPPORTED },
        { "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
          "{{ raise_exception('no') }}{% elif m.role == 'user' %}{{ '[INST] ' + m.content[:1] + "
          "m.content[1:].strip() + ' [/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}"
          "{% endfor %}",
          "mistral-2023 writes", SHEAF_E_UNSUPPORTED },
        { "{{ raise_exception('never') }}", "raises for each of 31, first line 1: never",
          SHEAF_E_UNSUPPORTED },
        { "{% for %}", "line 1", SHEAF_E_FORMAT },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = NULL;
        check_status(sheaf__chat_template_recognise(&t, cases[i].program, strlen(cases[i].program),
                                                    "<s>", "</s>"),
                     cases[i].code, "llama2, llama3", cases[i].found);
    }
}

/* Rows refuse without a bos token too, but are not what raises for another reason. */
static void test_recognise__what_always_raises_is_no_row(void **state)
{
    static const char never[] = "{{ raise_exception('never') }}";
    char *text = program_of("llama3");
    sheaf__chat_template *t = NULL;
    check_status(sheaf__chat_template_recognise(&t, never, strlen(never), NULL, "</s>"),
                 SHEAF_E_UNSUPPORTED, "raises for each of 31, first line 1: never", "bos_token in");
    check_status(sheaf__chat_template_recognise(&t, text, strlen(text), NULL, "</s>"),
                 SHEAF_E_UNSUPPORTED, "'bos_token' is undefined",
                 "a bos_token in tokenizer_config.json");
    assert_null(t);
    free(text);
}

/* ---- what is stored beside a row ---- */

static sheaf__chat_template *recognised(const char *program)
{
    sheaf__chat_template *t = NULL;
    CHECK_OK(sheaf__chat_template_recognise(&t, program, strlen(program), "<s>", "</s>"));
    return t;
}

/* All that was recorded, by the row and by the program that it is held to. */
static void test_hold__every_published_program_agrees_with_its_row(void **state)
{
    const json_t *conversations = json_object_get(recorded, "conversations");
    const json_t *texts = json_object_get(recorded, "texts");
    for (int k = 0; k < sheaf__style_count - 3; k++) {
        char *text = program_of(sheaf__styles[k].name);
        sheaf__chat_template *t = recognised(text);
        const bool alike = strcmp(sheaf__styles[k].name, "llama3.2") == 0;
        const json_t *want = json_object_get(texts, alike ? "llama3.1" : sheaf__styles[k].name);
        assert_non_null(t->program);
        if (t->style.date_format != NULL)
            CHECK_OK(sheaf__chat_template_set_date(t, "2024-07-26"));
        for (size_t i = 0; i < json_array_size(want); i++)
            check_one(t, i, json_array_get(conversations, i), json_array_get(want, i));
        if ((t->style.flags & SHEAF__DATE_TEXT) != 0) {
            sheaf__rendered r = { 0 };
            CHECK_OK(sheaf__chat_template_set_date(t, "some day"));
            CHECK_OK(render(&r, t, json_array_get(conversations, 0), false));
            assert_non_null(strstr(r.text, "Today Date: some day\n"));
            sheaf__rendered_release(&r);
        }
        sheaf__chat_template_free(t);
        free(text);
    }
}

/* No probe has what these programs look at. */
static void test_hold__a_program_that_writes_otherwise_is_named(void **state)
{
    static const struct {
        const char *program, *content, *one, *other; /* NULL: it is written */
    } cases[] = {
        { CHATML("{% if 'zebra' in messages[-1].content %}{{ bos_token }}{% endif %}",
                 "message['content']"),
          "A zebra", "message 1, byte 1 of the text", "\"s><|im_start|>user" },
        { CHATML("", "message['content'] + ('!' if 'ê' in message['content'] else '')"),
          "caf\303\251\303\252", "message 2, byte 64", "\"!<|im_end|>" },
        { CHATML("", "message['content'].replace('z\303\251', 'z\303\250')"), "z\303\251",
          "message 2, byte 58", "\"\303\250<|im_end|>" },
        { CHATML("", "message['content']") "{% if 'zebra' in messages[-1].content %}|{% endif %}",
          "zebra", "byte 73", "nothing more" },
        { CHATML("{% if 'zebra' in messages[-1].content %}{{ raise_exception('not so') }}"
                 "{% endif %}",
                 "message['content']"),
          "zebra", "line 1: not so", "--template chatml" },
        { CHATML("{% if 'zebra' in messages[-1].content %}{{ range(10) | rejectattr('a') }}"
                 "{% endif %}",
                 "message['content']"),
          "zebra", "the stored program", "--template chatml" },
        { CHATML("", "message['content']"), "zebra \303\251", NULL, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = recognised(cases[i].program);
        const sheaf__message talk[] = {
            { "user", "A horse", 7 }, { "assistant", cases[i].content, strlen(cases[i].content) }
        };
        static const sheaf__message other[] = { { "user", "Q", 1 }, { "assistant", "A", 1 } };
        static const sheaf__chat_options options = { .bos = "<s>", .eos = "</s>" };
        sheaf__rendered r = { 0 };
        assert_string_equal(sheaf__chat_template_name(t), "chatml");
        CHECK_OK(sheaf__chat_render(&r, t, other, 2, &options));
        sheaf__rendered_release(&r);
        sheaf_status *st = sheaf__chat_render(&r, t, talk, 2, &options);
        if (cases[i].one == NULL)
            CHECK_OK(st);
        else
            check_status(st, i == 5 ? SHEAF_E_UNSUPPORTED : SHEAF_E_DATA, cases[i].one,
                         cases[i].other);
        assert_true((r.text == NULL) == (cases[i].one != NULL));
        sheaf__rendered_release(&r);
        sheaf__chat_template_free(t);
    }
}

/* The bounds of a program grow with what it reads; NUL is a character as others. */
static void test_hold__long_conversations_are_no_reason_to_refuse(void **state)
{
    enum { LONG = 1 << 16, MANY = 2001 };
    static const char *const names[] = { "chatml", "qwen3", "llama3", "mistral-v3" };
    char *content = malloc(LONG);
    sheaf__message *message = calloc(MANY, sizeof *message);
    assert_non_null(content);
    assert_non_null(message);
    memset(content, 'x', LONG);
    content[LONG / 2] = '\0';
    for (int i = 0; i < MANY; i++)
        message[i] = (sheaf__message){ i % 2 == 0 ? "user" : "assistant", content,
                                       i < 400 ? LONG : (size_t)i };
    for (size_t k = 0; k < ARRAY_LEN(names); k++) {
        char *text = program_of(names[k]);
        sheaf__chat_template *t = recognised(text);
        sheaf__rendered r = { 0 };
        CHECK_OK(sheaf__chat_render(
            &r, t, message, MANY,
            &(sheaf__chat_options){ .generation_prompt = true, .bos = "<s>", .eos = "</s>" }));
        assert_true(r.size > (size_t)400 * LONG);
        sheaf__rendered_release(&r);
        sheaf__chat_template_free(t);
        free(text);
    }
    free(message);
    free(content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chat__every_template_gives_the_bytes_of_transformers),
        cmocka_unit_test(test_chat__the_list_of_names_is_that_of_the_table),
        cmocka_unit_test(test_chat__spans_worked_by_hand),
        cmocka_unit_test(test_chat__smollm3_takes_its_mode_from_the_system_message),
        cmocka_unit_test(test_chat__qwen3_thoughts_stay_in_every_answer),
        cmocka_unit_test(test_chat__thoughts_that_are_none_are_no_text),
        cmocka_unit_test(test_chat__a_date_is_given_or_the_templates_own),
        cmocka_unit_test(test_date__fields_worked_by_hand),
        cmocka_unit_test(test_chat__a_token_that_the_tokenizer_lacks_is_named),
        cmocka_unit_test(test_recognise__every_published_program_is_its_row),
        cmocka_unit_test(test_recognise__a_date_that_is_always_the_same_cannot_be_given),
        cmocka_unit_test(test_recognise__what_a_row_can_say_differently),
        cmocka_unit_test(test_recognise__others_are_refused_with_the_names),
        cmocka_unit_test(test_recognise__what_always_raises_is_no_row),
        cmocka_unit_test(test_hold__every_published_program_agrees_with_its_row),
        cmocka_unit_test(test_hold__a_program_that_writes_otherwise_is_named),
        cmocka_unit_test(test_hold__long_conversations_are_no_reason_to_refuse),
        cmocka_unit_test(test_messages__refusals_name_the_message),
        cmocka_unit_test(test_messages__forms_give_the_same_messages),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
