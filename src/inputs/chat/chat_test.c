/* chat_test.c - every named template against what transformers wrote (tests/data/templates). */

#include "base/status.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "inputs/chat/date.h"
#include "inputs/chat/named.h"
#include "inputs/chat/stored.h"
#include "tests/files.h"
#include "tests/sources.h"

static json_t *recorded; /* {"conversations": [...], "texts": {NAME: [...]}} */

/* Strings in it may hold NUL. */
static json_t *recording(const char *name)
{
    char *text = NULL;
    size_t size = 0;
    json_t *all = NULL;
    CHECK_OK(
        sheaf__file_read_all(&text, &size, in_sources("tests/data/templates/%s", name), 1 << 20));
    CHECK_OK(sheaf__json_parse_line(&all, text, size));
    free(text);
    return all;
}

static int setup(void **state)
{
    recorded = recording("recorded.json");
    return make_scratch(state);
}
static int teardown(void **state)
{
    json_decref(recorded);
    return remove_scratch(state);
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

/* Messages of a list in JSON: texts, or (parts, other fields) as objects. */
static sheaf__message *messages_of(int64_t *n, const json_t *list)
{
    sheaf__message *m = calloc(json_array_size(list), sizeof *m);
    assert_non_null(m);
    for (*n = 0; *n < (int64_t)json_array_size(list); (*n)++) {
        const json_t *one = json_array_get(list, (size_t)*n);
        const json_t *content = json_object_get(one, "content");
        m[*n] = (sheaf__message){ .role = json_string_value(json_object_get(one, "role")),
                                  .content = json_string_value(content),
                                  .size = json_string_length(content),
                                  .json = one };
    }
    return m;
}

static sheaf_status *render_with(sheaf__rendered *out, const sheaf__chat_template *t,
                                 const json_t *messages, bool prompt, bool answers)
{
    int64_t n;
    sheaf__message *m = messages_of(&n, messages);
    const sheaf__chat_options options = {
        .generation_prompt = prompt, .answers = answers, .bos = "<s>", .eos = "</s>"
    };
    sheaf_status *st = sheaf__chat_render(out, t, m, n, &options);
    free(m);
    return st;
}

static sheaf_status *render(sheaf__rendered *out, const sheaf__chat_template *t,
                            const json_t *messages, bool prompt)
{
    return render_with(out, t, messages, prompt, true);
}

static void check_text(sheaf_status *st, sheaf__rendered *r, const char *want)
{
    CHECK_OK(st);
    assert_string_equal(r->text, want);
    sheaf__rendered_release(r);
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
        const sheaf_span *s = &r->span[i];
        assert_true(s->begin <= s->end && s->end <= r->size);
        const json_t *message = json_array_get(messages, (size_t)s->message);
        const json_t *content = json_object_get(message, "content");
        if (s->kind == SHEAF_SPAN_CONTENT)
            assert_true(s->begin == s->end ||
                        memmem(json_string_value(content), json_string_length(content),
                               r->text + s->begin, s->end - s->begin) != NULL);
        else
            assert_memory_equal(r->text + s->end - strlen(stop), stop, strlen(stop));
        assert_true(i == 0 || s[-1].begin <= s->begin || s->kind == SHEAF_SPAN_CONTENT);
    }
}

static void check_one(const sheaf__chat_template *t, size_t i, const json_t *messages,
                      const json_t *want)
{
    sheaf__rendered r = { 0 };
    sheaf_status *st = render_with(&r, t, messages, !ends_with_answer(messages), false);
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
    sheaf__rendered_release(&r);
    st = render(&r, t, messages, !ends_with_answer(messages));
    if (st == NULL)
        check_spans(&r, t, messages);
    else /* thoughts in the first of two answers; an answer behind an answer */
        CHECK_FAILS(st, SHEAF_E_DATA,
                    i == 11 && t->divides                      ? "message 2"
                    : i == 12 && strcmp(t->name, "olmo2") == 0 ? "message 3"
                                                               : "none");
    sheaf__rendered_release(&r);
}

TEST(test_chat__every_template_gives_the_bytes_of_transformers)
{
    const json_t *conversations = json_object_get(recorded, "conversations");
    const json_t *texts = json_object_get(recorded, "texts");
    assert_int_equal(json_object_size(texts), sheaf__named_count - 6); /* see record.py */
    for (int k = 0; k < sheaf__named_count; k++) {
        sheaf__chat_template *t = template_on("2024-07-26", sheaf__named_programs[k].name);
        const bool alike = strcmp(sheaf__named_programs[k].name, "llama3.2") == 0; /* on that day */
        const json_t *want =
            json_object_get(texts, alike ? "llama3.1" : sheaf__named_programs[k].name);
        for (size_t i = 0; i < json_array_size(want); i++)
            check_one(t, i, json_array_get(conversations, i), json_array_get(want, i));
        sheaf__chat_template_free(t);
    }
}

TEST(test_chat__the_list_of_names_is_that_of_the_table)
{
    sheaf_text names = { 0 };
    for (int k = 0; k < sheaf__named_count; k++)
        sheaf__text_add(&names, "%s%s",
                        k == 0                        ? ""
                        : k + 1 == sheaf__named_count ? " or "
                                                      : ", ",
                        sheaf__named_programs[k].name);
    assert_string_equal(names.at, sheaf__chat_template_names());
    sheaf__text_release(&names);
    sheaf__chat_template *t = NULL;
    check_status(sheaf__chat_template_find(&t, "lama3"), SHEAF_E_ARG, "llama3, llama3.1", "lama3");
}

/* In `want` labels are in [..], text in (..). */
static void check_marked(sheaf_status *st, sheaf__rendered *r, const char *want)
{
    sheaf_text out = { 0 };
    CHECK_OK(st);
    for (size_t at = 0; at <= r->size; at++) {
        for (int64_t s = r->spans - 1; s >= 0; s--)
            if (r->span[s].end == at && r->span[s].begin < at)
                sheaf__text_add(&out, r->span[s].kind == SHEAF_SPAN_ANSWER ? "]" : ")");
        for (int64_t s = 0; s < r->spans; s++)
            if (r->span[s].begin == at)
                sheaf__text_add(&out, "%.*s", r->span[s].end == at ? 2 : 1,
                                r->span[s].kind == SHEAF_SPAN_ANSWER ? "[]" : "()");
        sheaf__text_bytes(&out, r->text + at, at < r->size);
    }
    assert_string_equal(out.at, want);
    sheaf__text_release(&out);
    sheaf__rendered_release(r);
}

TEST(test_chat__spans_worked_by_hand)
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
                   "\n<|im_start|>assistant\n[<think>\n\n</think>\n\n(4)<|im_end|>]\n" },
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
        { "glm4",
          "[gMASK]<sop><|system|>\n(Be brief.)<|user|>\n(2+2?)<|assistant|>[\n(4)<|user|>]" },
        { "plain", "(Be brief.)(2+2?)[(4)</s>]" },
    };
    const json_t *messages = json_array_get(json_object_get(recorded, "conversations"), 2);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = template_on("2026-05-01", cases[i].name);
        sheaf__rendered r = { 0 };
        sheaf_status *st = render(&r, t, messages, false);
        assert_int_equal(r.left_out, strcmp(cases[i].name, "mistral-v3") == 0);
        check_marked(st, &r, cases[i].want);
        sheaf__chat_template_free(t);
    }
}

#define SMOLLM3(MODE, INSTRUCTIONS)                                                                \
    "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\nToday Date: "            \
    "09 February 1999\nReasoning Mode: " MODE "\n\n## Custom Instructions\n\n" INSTRUCTIONS        \
    "\n\n<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"

/* As transformers writes them; what it says of itself by default is long. */
TEST(test_chat__smollm3_takes_its_mode_from_the_system_message)
{
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
        check_text(render(&r, t, messages, false), &r, cases[i].want);
        json_decref(messages);
    }
    sheaf__rendered r = { 0 };
    json_t *alone = json_pack("[{s:s, s:s}]", "role", "user", "content", "Q");
    CHECK_OK(render(&r, t, alone, true));
    assert_non_null(strstr(r.text, "named SmolLM, trained by Hugging Face. Your role as"));
    assert_string_equal(r.text + r.size - strlen("<|im_start|>assistant\n"),
                        "<|im_start|>assistant\n");
    sheaf__rendered_release(&r);
    json_decref(alone);
    sheaf__chat_template_free(t);
}

/* As LLaMA-Factory's template qwen3 trains: thoughts stay in every answer, or are empty. */
TEST(test_chat__qwen3_thoughts_stay_in_every_answer)
{
    sheaf__chat_template *t = template_on("", "qwen3-thoughts");
    sheaf__rendered r = { 0 };
    json_t *talk = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content",
                             "Q", "role", "assistant", "content", "<think>T</think>A", "role",
                             "user", "content", "R", "role", "assistant", "content", "B");
    check_text(render(&r, t, talk, false), &r,
               "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
               "<think>T</think>A<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
               "<|im_start|>assistant\n<think>\n\n</think>\n\nB<|im_end|>\n");
    json_decref(talk);
    talk = json_pack("[{s:s,s:s},{s:s,s:s},{s:s,s:s}]", "role", "user", "content", "Q", "role",
                     "assistant", "content", "A", "role", "user", "content", "R");
    check_text(render(&r, t, talk, true), &r,
               "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
               "<think>\n\n</think>\n\nA<|im_end|>\n<|im_start|>user\nR<|im_end|>\n"
               "<|im_start|>assistant\n");
    json_decref(talk);
    sheaf__chat_template_free(t);
}

/* What a model writes, what of it is its thoughts and what the rest; `+` where more could make the
 * beginning a block without thoughts. */
TEST(test_chat__thoughts_that_are_none_are_no_text)
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

TEST(test_chat__a_date_is_given_or_the_templates_own)
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
            check_status(st, SHEAF_E_ARG, "`date", "");
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
    check_status(render(&r, t, alone, true), SHEAF_E_ARG, "llama3.2", "`date 2024");
    CHECK_OK(sheaf__chat_template_set_today(t));
    CHECK_OK(render(&r, t, alone, true));
    assert_non_null(strstr(r.text, sheaf__chat_template_date(t)));
    sheaf__rendered_release(&r);
    json_decref(alone);
    sheaf__chat_template_free(t);
}

TEST(test_date__fields_worked_by_hand)
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

TEST(test_chat__a_token_that_the_tokenizer_lacks_is_named)
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

/* The program that models publish, as tokenizers store it; ours where there is none. */
static char *program_of(const char *name)
{
    const char *path = in_sources("tests/data/templates/%s.jinja", name);
    char *text = NULL;
    size_t size = 0;
    if (sheaf__path_kind(path) != SHEAF_PATH_FILE)
        path = in_sources("src/inputs/chat/templates/%s.jinja", name);
    CHECK_OK(sheaf__file_read_all(&text, &size, path, 1 << 20));
    return text;
}

static sheaf__chat_template *stored(const char *program)
{
    sheaf__chat_template *t = NULL;
    CHECK_OK(sheaf__chat_template_stored(&t, program, "tokenizer_config.json"));
    return t;
}

TEST(test_stored__a_program_has_the_name_of_the_one_that_writes_the_same)
{
    for (int k = 0; k < sheaf__named_count; k++) {
        char *text = program_of(sheaf__named_programs[k].name);
        sheaf__chat_template *t = stored(text);
        assert_string_equal(sheaf__chat_template_name(t), sheaf__named_programs[k].name);
        sheaf__chat_template_free(t);
        free(text);
    }
}

/* Conversations with tools, calls and thoughts: what one program writes of them, or that it raises,
 * the other does, spans and all. */
static void check_alike(const char *name, const sheaf__chat_template *published,
                        const sheaf__chat_template *ours, const json_t *conversation)
{
    int64_t n;
    sheaf__message *m = messages_of(&n, json_object_get(conversation, "messages"));
    const sheaf__chat_options options = { .answers = true,
                                          .lenient = true,
                                          .generation_prompt = strcmp(m[n - 1].role, "user") == 0,
                                          .bos = "<s>",
                                          .eos = "</s>",
                                          .tools = json_object_get(conversation, "tools") };
    sheaf__rendered want = { 0 }, got = { 0 };
    sheaf_status *refused = sheaf__chat_render(&want, published, m, n, &options);
    sheaf_status *st = sheaf__chat_render(&got, ours, m, n, &options);
    if ((st == NULL) != (refused == NULL))
        fail_msg("%s: %s", name, st == NULL ? got.text : sheaf_status_where(st));
    if (st == NULL && strcmp(got.text, want.text) != 0)
        fail_msg("%s:\n%s\nwanted:\n%s", name, got.text, want.text);
    assert_int_equal(got.spans, want.spans);
    for (int64_t i = 0; i < got.spans; i++) {
        assert_int_equal(got.span[i].begin, want.span[i].begin);
        assert_int_equal(got.span[i].end, want.span[i].end);
        assert_int_equal(got.span[i].message, want.span[i].message);
        assert_int_equal(got.span[i].kind, want.span[i].kind);
    }
    sheaf_status_free(st);
    sheaf_status_free(refused);
    sheaf__rendered_release(&got);
    sheaf__rendered_release(&want);
    free(m);
}

#define CALL(ID)                                                                                   \
    "{'type': 'function', 'id': '" ID "', 'function': "                                            \
    "{'name': 'add', 'arguments': {'a': 1, 'b': 'zwei'}}}"
#define TOOL(MORE)                                                                                 \
    "{'type': 'function', 'function': {'name': 'add', "                                            \
    "'description': 'Adds <|im_end|>.', 'parameters': {'type': 'object'}" MORE "}}"
#define ANSWERS "{'role': 'tool', 'tool_call_id': 'abcdefghi', 'content': '3'}"

TEST(test_stored__the_named_one_writes_tools_and_thoughts_as_the_published)
{
    static const char *const talks[] = {
        "{'messages': [{'role': 'system', 'content': ' S '}, {'role': 'user', 'content': 'Q '}, "
        "{'role': 'assistant', 'content': '', 'tool_calls': [" CALL(
            "abcdefghi") "]}, " ANSWERS
                         ", {'role': 'assistant', 'content': ' A '}], 'tools': [" TOOL("") "]}",
        "{'messages': [{'role': 'user', 'content': 'Q'}, {'role': 'assistant', 'content': 'Wait.', "
        "'reasoning_content': '\\nT\\n', 'tool_calls': [" CALL("abcdefghi") ", " CALL(
            "ihgfedcba") "]}, " ANSWERS ", " ANSWERS ", {'role': 'assistant', 'content': 'A'}, "
                         "{'role': 'user', 'content': 'Q'}], 'tools': [" TOOL(
                             ", 'return': 1") ", " TOOL("") "]}",
        "{'messages': [{'role': 'user', 'content': 'Q'}, {'role': 'assistant', 'content': '', "
        "'tool_calls': [" CALL("1") "]}]}",
        "{'messages': [{'role': 'system', 'content': 'S'}], 'tools': [" TOOL("") "]}",
        "{'messages': [{'role': 'user', 'content': 'Q'}], 'tools': []}",
        "{'messages': [{'role': 'system', 'content': 'S', 'tools': '[T]'}, "
        "{'role': 'user', 'content': 'Q'}, {'role': 'developer', 'content': 'D'}]}",
        "{'messages': [{'role': 'user', 'content': [{'type': 'text', 'text': ' T '}, "
        "{'type': 'image'}]}, {'role': 'assistant', 'content': 'A', 'reasoning_content': 'T'}]}",
    };
    for (int k = 0; k < sheaf__named_count; k++) {
        char *text = program_of(sheaf__named_programs[k].name);
        sheaf__chat_template *published = stored(text);
        sheaf__chat_template *ours = template_on("2024-07-26", sheaf__named_programs[k].name);
        if (sheaf__chat_template_wants_date(published))
            CHECK_OK(sheaf__chat_template_set_date(published, "2024-07-26"));
        for (size_t i = 0; i < ARRAY_LEN(talks); i++) {
            char *quoted = strdup(talks[i]);
            for (char *at = quoted; (at = strchr(at, '\'')) != NULL;)
                *at = '"';
            json_t *conversation = NULL;
            CHECK_OK(sheaf__json_parse_line(&conversation, quoted, strlen(quoted)));
            check_alike(sheaf__named_programs[k].name, published, ours, conversation);
            json_decref(conversation);
            free(quoted);
        }
        sheaf__chat_template_free(published);
        sheaf__chat_template_free(ours);
        free(text);
    }
}

TEST(test_stored__a_date_that_is_always_the_same_cannot_be_given)
{
    char *text = program_of("llama3.1"), *fixed = NULL;
    assert_true(asprintf(&fixed, "{%%- set date_string = '26 Jul 2024' %%}%s", text) > 0);
    sheaf__chat_template *t = stored(fixed);
    check_status(sheaf__chat_template_set_date(t, "2024-07-27"), SHEAF_E_ARG, "`date 2024-07-27`",
                 "writes none");
    sheaf__chat_template_free(t);
    free(fixed);
    free(text);
}

#define CHATML(HEAD, CONTENT)                                                                      \
    HEAD "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + " CONTENT       \
         " + '<|im_end|>' + '\n'}}{% endfor %}{% if add_generation_prompt %}"                      \
         "{{ '<|im_start|>assistant\n' }}{% endif %}"

/* Of a question and an answer. */
TEST(test_stored__any_program_is_run)
{
    static const struct {
        const char *program, *name, *want;
    } cases[] = {
        { CHATML("{{ bos_token }}", "message['content']"), "stored",
          "<s><|im_start|>user\n( Q)<|im_end|>\n<|im_start|>assistant\n[(A )<|im_end|>]\n" },
        { CHATML("", "message['content']|trim"), "stored",
          "<|im_start|>user\n(Q)<|im_end|>\n<|im_start|>assistant\n[(A)<|im_end|>]\n" },
        { CHATML("{% if messages[0].role != 'system' %}<|im_start|>system\nBe\nkind.<|im_end|>\n"
                 "{{ '' }}{% endif %}",
                 "message['content']"),
          "stored",
          "<|im_start|>system\nBe\nkind.<|im_end|>\n<|im_start|>user\n( Q)<|im_end|>\n"
          "<|im_start|>assistant\n[(A )<|im_end|>]\n" },
        { "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}"
          "{{ raise_exception('no') }}{% elif m.role == 'user' %}{{ '[INST] ' + m.content + "
          "' [/INST]' }}{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}",
          "mistral-2023", "<s>[INST] ( Q) [/INST][(A )</s>]" },
        { "{% for m in messages if m.role != 'system' %}{% if m.role == 'user' %}{{ bos_token + "
          "'[INST] ' + (('<<SYS>>\\n' + (messages[0].content if messages[0].role == 'system' else "
          "'Be kind.') + '\\n<</SYS>>\\n\\n' if loop.first else '') + m.content).strip() + "
          "' [/INST]' }}{% else %}{{ ' ' + m.content.strip() + ' ' + eos_token }}{% endif %}"
          "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('order') }}"
          "{% endif %}{% endfor %}",
          "stored", "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\n( Q) [/INST][ (A) </s>]" },
        { "{% for m in messages %}{{ '### ' + m.role|title + ':\n' + m.content + '\n\n' }}"
          "{% endfor %}{% if add_generation_prompt %}### Assistant:\n{{ '' }}{% endif %}",
          "stored", "### User:\n( Q)\n\n### Assistant:\n[(A )]\n\n" },
        { "{% for m in messages %}{{ m.role + m.content }}{% endfor %}", "stored",
          "user( Q)[assistant(A )]" },
        { CHATML("", "message['content']|upper"), "stored",
          "<|im_start|>user\n( Q)<|im_end|>\n<|im_start|>assistant\n[(A )<|im_end|>]\n" },
        { "{% macro turn(m) %}<{{ m.role }}>{{ m.content }}</{{ m.role }}>{% endmacro %}"
          "{% for m in messages %}{{ turn(m) }}\n{% endfor %}"
          "{% if add_generation_prompt %}<assistant>{% endif %}",
          "stored", "<user>( Q)</user>\n<assistant>[(A )</assistant>]\n" },
        { "{% for i in range(0, messages|length, 2) %}Q:{{ messages[i].content }}\nA:"
          "{% if i + 1 < messages|length %}{{ messages[i + 1].content }}{{ eos_token }}\n"
          "{% endif %}{% endfor %}",
          "stored", "Q:( Q)\nA:[(A )</s>]\n" },
        { "{% set ns = namespace(t='') %}{% for m in messages %}{% set ns.t = ns.t + m.role[0] + "
          "'=' + m.content + eos_token + ' ' %}{% endfor %}{{ ns.t }}"
          "{% if add_generation_prompt %}a={% endif %}",
          "stored", "u=( Q)</s> a=[(A )</s>] " },
        { "{% for m in messages %}{% if m.role == 'assistant' %}<a>{% generation %}"
          "{{ m.content }}</a>\n{% endgeneration %}{% else %}<u>{{ m.content }}</u>{% endif %}"
          "{% endfor %}",
          "stored", "<u>( Q)</u><a>[(A )</a>\n]" },
    };
    static const sheaf__message talk[] = { { "user", " Q", 2 }, { "assistant", "A ", 2 } };
    static const sheaf__chat_options options = { .answers = true, .bos = "<s>", .eos = "</s>" };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = stored(cases[i].program);
        sheaf__rendered r = { 0 };
        assert_string_equal(sheaf__chat_template_name(t), cases[i].name);
        check_marked(sheaf__chat_render(&r, t, talk, 2, &options), &r, cases[i].want);
        sheaf__chat_template_free(t);
        /* its name, as settings keep it, means what is stored */
        const sheaf__stored_chat folder = { .program = (char *)cases[i].program, .file = "x" };
        CHECK_OK(sheaf__chat_template_choose(&t, cases[i].name, &folder));
        assert_ptr_equal(sheaf__chat_template_name(t), sheaf__chat_template_known(cases[i].name));
        sheaf__chat_template_free(t);
    }
}

TEST(test_stored__what_cannot_be_run_is_named_with_its_line)
{
    static const struct {
        const char *program, *found;
        sheaf_code code;
    } cases[] = {
        { CHATML("\n\n{{ strftime_now('%H:%M') }}", "message['content']"),
          "line 3: strftime_now('%H:%M')", SHEAF_E_UNSUPPORTED },
        { "\n{% include 'x' %}", "line 2: the statement include", SHEAF_E_UNSUPPORTED },
        { CHATML("{{ pad_token }}", "message['content']"), "line 1: the name pad_token",
          SHEAF_E_UNSUPPORTED },
        { "{% for %}", "line 1", SHEAF_E_FORMAT },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = NULL;
        check_status(sheaf__chat_template_stored(&t, cases[i].program, "chat_template.jinja"),
                     cases[i].code, "llama2, llama3", cases[i].found);
        assert_null(t);
    }
}

/* An error of the template is reported for the records that raise it, never for all. */
TEST(test_stored__a_program_that_wants_tools_gets_them)
{
    static const char program[] =
        "{% for t in tools %}{{ t.function.name }} {% endfor %}{% for m in messages %}"
        "{{ m.role + ': ' + m.content + '<|end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}";
    static const sheaf__message talk[] = { { "user", "Q", 1 }, { "assistant", "A", 1 } };
    sheaf__chat_template *t = stored(program);
    sheaf__rendered r = { 0 };
    json_t *tools = json_pack("[{s:{s:s}}]", "function", "name", "look");
    CHECK_OK(sheaf__chat_render(&r, t, talk, 2,
                                &(sheaf__chat_options){ .answers = true, .tools = tools }));
    assert_string_equal(r.text, "look user: Q<|end|>\nassistant: A<|end|>\n");
    assert_int_equal(r.span[r.spans - 2].kind, SHEAF_SPAN_ANSWER);
    assert_string_equal(sheaf__chat_template_stop(t, NULL), "<|end|>");
    sheaf__rendered_release(&r);
    check_status(sheaf__chat_render(&r, t, talk, 2, &(sheaf__chat_options){ .answers = true }),
                 SHEAF_E_DATA, "'NoneType' object is not iterable", "line 1");
    sheaf__chat_template_free(t);
    t = stored("{{ raise_exception('never') }}");
    check_status(sheaf__chat_render(&r, t, talk, 2, &(sheaf__chat_options){ 0 }), SHEAF_E_DATA,
                 "message 1", "line 1: never");
    sheaf__chat_template_free(t);
    json_decref(tools);
}

/* The program decides which roles there are, and in which order; a mistyped one is refused. */
TEST(test_stored__roles_are_the_programs)
{
    static const char programs[][160] = {
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}</s>{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}",
        "{% for m in messages %}{{ raise_exception('no ' + m.role) if m.role == 'critic' }}"
        "{% if m.role == 'usr' %}{{ m.content }}{% endif %}{{ m.content }}{% endfor %}"
    };
    static const sheaf__message talk[] = { { "assistant", "Hi", 2 },  { "user", "a", 1 },
                                           { "user", "b", 1 },        { "assistant", "c", 1 },
                                           { "system", "d", 1 },      { "critic", "e", 1 },
                                           { "observation", "f", 1 }, { "assistant", "g", 1 } };
    static const sheaf__message typed = { "usr", "Q", 1 };
    static const sheaf__chat_options options = { .answers = true };
    sheaf__chat_template *t = stored(programs[0]);
    sheaf__rendered r = { 0 };
    check_marked(sheaf__chat_render(&r, t, talk, ARRAY_LEN(talk), &options), &r,
                 "<assistant>[(Hi)</s>]<user>(a)</s><user>(b)</s><assistant>[(c)</s>]"
                 "<system>(d)</s><critic>(e)</s><observation>(f)</s><assistant>[(g)</s>]");
    check_status(sheaf__chat_render(&r, t, &typed, 1, &options), SHEAF_E_DATA, "message 1",
                 "role 'usr'");
    sheaf__chat_template_free(t);
    t = stored(programs[1]);
    CHECK_OK(sheaf__chat_render(&r, t, &typed, 1, &options));
    sheaf__rendered_release(&r);
    check_status(sheaf__chat_render(&r, t, talk, ARRAY_LEN(talk), &options), SHEAF_E_DATA,
                 "message 6", "no critic");
    sheaf__chat_template_free(t);
}

/* A turn that is written otherwise once others follow is not learnt, unless it is read alone. */
TEST(test_stored__answers_that_change_are_refused)
{
    static const char think[] = "<think>T</think>A";
    char *qwen3 = program_of("qwen3");
    const char *const programs[] = {
        qwen3,
        "{% for m in messages %}{{ m.role + ':' + (m.content.split('</think>')[-1] if m.role == "
        "'assistant' and messages[-1].role == 'user' else m.content) + eos_token }}{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}",
    };
    sheaf__message talk[] = { { "user", "Q", 1 },
                              { "assistant", think, sizeof think - 1 },
                              { "user", "R", 1 },
                              { "assistant", think, sizeof think - 1 } };
    static const sheaf__chat_options options = { .answers = true, .bos = "<s>", .eos = "</s>" };
    for (size_t i = 0; i < ARRAY_LEN(programs); i++) {
        sheaf__chat_template *t = stored(programs[i]);
        sheaf__rendered r = { 0 };
        talk[1].unlearnt = false;
        check_status(sheaf__chat_render(&r, t, talk, 4, &options), SHEAF_E_DATA,
                     i == 0 ? "message 2" : "message 4", "`loss-on last`");
        talk[1].unlearnt = true;
        if (i == 0)
            CHECK_OK(sheaf__chat_render(&r, t, talk, 4, &options));
        sheaf__rendered_release(&r);
        CHECK_OK(sheaf__chat_render(&r, t, talk, 2, &options));
        sheaf__rendered_release(&r);
        sheaf__chat_template_free(t);
    }
    free(qwen3);
}

/* Programs that write a part of a message in the turn of another, or divide a mark; u and a without
 * more are a question and an answer. */
TEST(test_stored__answers_end_where_others_speak)
{
#define ROLE "{{ '<' + m.role + '>' }}"
#define ASK "{% if add_generation_prompt %}<assistant>{% endif %}"
#define CALLS_F "{'role': 'assistant', 'tool_calls': [{'function': {'name': 'f'}}]}"
    static const struct {
        const char *program, *messages, *want; /* NULL: refused */
        bool prompt;
    } cases[] = {
        /* the name of a call in the turn of its result */
        { "{% set ns = namespace(name='') %}{% for m in messages %}{% if m.tool_calls %}<assistant>"
          "{% set ns.name = m.tool_calls[0].function.name %}{{ ns.name }}!{% elif m.role == 'tool' "
          "%}<{{ ns.name }}>{{ m.content }};{% else %}" ROLE "{{ m.content }};{% endif %}"
          "{% endfor %}" ASK,
          "[u, " CALLS_F ", {'role': 'tool', 'content': 'T'}, a]",
          "<user>(Q);<assistant>[(f)!]<(f)>(T);<assistant>[(A);]" },
        /* the result in the turn of the call */
        { "{% for m in messages %}{% if m.tool_calls %}<assistant>{{ m.tool_calls[0].function.name "
          "}}!{{ messages[loop.index].content ~ m.tool_calls[0].function.name if not loop.last "
          "}}{% elif m.role != 'tool' %}" ROLE "{{ m.content }};{% endif %}{% endfor %}" ASK,
          "[u, " CALLS_F ", {'role': 'tool', 'content': 'T'}, a]",
          "<user>(Q);<assistant>[(f)!](T)(f)<assistant>[(A);]" },
        /* the conversation so far, with each question */
        { "{% for m in messages %}" ROLE "{{ m.content }}{% if m.role == 'user' %}{% for n in "
          "messages[:loop.index0] %}{{ n.content }}{% endfor %}{% endif %};{% endfor %}" ASK,
          "[u, a, u, a]", "<user>(Q);<assistant>[(A);]<user>(Q)(Q)(A);<assistant>[(A);]" },
        { "{% for m in messages %}" ROLE "{{ m.content }}{% if m.role == 'user' and not loop.first "
          "%}{{ messages[0].content }}{% endif %};{% endfor %}" ASK,
          "[u, a, u, a]", "<user>(Q);<assistant>[(A);]<user>(Q)(Q);<assistant>[(A);]" },
        /* text behind an answer is no lead of another */
        { "{% for m in messages %}{{ '<%s>' | replace('%s', m.role) }}{{ m.content|lower }};"
          "{% endfor %}{% if add_generation_prompt and messages[-1].role == 'user' %}<assistant>"
          "{% endif %}",
          "[u, a, a, u, a]",
          "<user>(q);<assistant>[(a);][<assistant>(a);]<user>(q);<assistant>[(a);]" },
        /* the end has a mark of its own */
        { "{% for m in messages %}" ROLE "{% if m.role == 'user' %}{{ m.content }}{% else %}"
          "{% generation %}{{ m.content }}{% endgeneration %}.{% endif %}{% endfor %}"
          "{% generation %}{{ eos_token }}{% endgeneration %}",
          "[u, a, {'role': 'user', 'content': ''}, {'role': 'assistant'}]",
          "<user>(Q)<assistant>[(A)].<user>()<assistant>[].[</s>]" },
        /* thoughts under each name; a program that has one of them as a part of another name */
        { "{% for m in messages %}" ROLE "{{ m.reasoning_content }}|{{ m.thinking }}|{{ m.content "
          "}};{% endfor %}" ASK,
          "[u, {'role': 'assistant', 'content': 'A', 'reasoning': 'T'}]",
          "<user>||(Q);<assistant>[(T)|(T)|(A);]" },
        { "{% for m in messages %}" ROLE "{{ '' if enable_thinking else m.content }}{% endfor %}",
          "[u, {'role': 'assistant', 'content': 'A', 'thinking': 'T'}]", NULL },
        { "{% for m in messages %}" ROLE "Stop thinking. {{ m.content }}{% endfor %}",
          "[u, {'role': 'assistant', 'content': 'A', 'thinking': 'T'}]", NULL },
        { "{% for m in messages %}" ROLE "{{ m['thinking'] }}|{{ m.get('reasoning_content') }}|"
          "{{ m.content }};{% endfor %}" ASK,
          "[u, {'role': 'assistant', 'content': 'A', 'thinking': 'T'}]",
          "<user>|None|(Q);<assistant>[(T)|(T)|(A);]" },
        /* contents that are read as lists of parts alone: a text is lost, or raises */
        { "{% for m in messages %}" ROLE "{% for p in m.content|selectattr('type', 'eq', 'image') "
          "%}^{% endfor %}{% for p in m.content|selectattr('type', 'eq', 'text') %}{{ p.text }},"
          "{% endfor %};{% endfor %}" ASK,
          "[{'role': 'user', 'content': [{'type': 'text', 'text': 'Q'}, {'type': 'image'}]}, "
          "{'role': 'assistant', 'content': [{'type': 'text', 'text': 'A'}]}, u]",
          "<user>^(Q),;<assistant>[(A),;]<user>;" },
        { "{% for m in messages %}" ROLE "{{ m.content[0]['text'] + ';' }}{% endfor %}" ASK,
          "[{'role': 'user', 'content': [{'type': 'text', 'text': 'Q'}]}, a]", NULL },
        /* a prompt behind the text changes what is before it */
        { "{% for m in messages %}" ROLE "{{ m.content }}{{ '!' * 99 if not add_generation_prompt "
          "}};{% endfor %}" ASK,
          "[u, a]", "<user>(Q);<assistant>[(A);]<assistant>", true },
        /* thoughts in a field that others cut, though the content is longer */
        { "{% for m in messages %}" ROLE "{{ m.thinking if loop.last }}{{ m.content }};{% endfor "
          "%}" ASK,
          "[u, {'role': 'assistant', 'content': 'A', 'thinking': 'T'}, u, a]", NULL },
    };
    json_t *u = json_pack("{s:s, s:s}", "role", "user", "content", "Q"),
           *a = json_pack("{s:s, s:s}", "role", "assistant", "content", "A");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char list[512], *to = list;
        for (const char *at = cases[i].messages; *at != '\0'; at++)
            if (strchr("ua", *at) != NULL && strchr("[ ", at[-1]) != NULL)
                to += sprintf(to, "%d", *at == 'u');
            else
                *to++ = *at == '\'' ? '"' : *at;
        *to = '\0';
        json_t *messages = json_loads(list, 0, NULL);
        assert_non_null(messages);
        for (size_t k = 0; k < json_array_size(messages); k++) {
            const json_t *one = json_array_get(messages, k);
            if (json_is_integer(one))
                json_array_set(messages, k, json_integer_value(one) == 1 ? u : a);
        }
        sheaf__chat_template *t = stored(cases[i].program);
        sheaf__rendered r = { 0 };
        sheaf_status *st = render(&r, t, messages, cases[i].prompt);
        if (cases[i].want == NULL) {
            assert_non_null(st);
            const sheaf_code code = sheaf_status_code(st);
            CHECK_FAILS(st, code, "message 2");
        } else {
            check_marked(st, &r, cases[i].want);
        }
        sheaf__chat_template_free(t);
        json_decref(messages);
    }
    json_decref(u);
    json_decref(a);
}

/* A program that is told whether an answer has thoughts: one without them is learnt behind empty
 * ones, and asked for there; what is before the last answer stays as it was. */
TEST(test_stored__thinking_by_the_answer)
{
    static const char program[] =
        "{% for m in messages %}<{{ m.role }}>{% if m.role == 'assistant' and loop.last and "
        "'</think>' not in m.content %}<think></think>{% endif %}{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and "
        "enable_thinking is false %}<think></think>{% endif %}{% endif %}";
    static const struct {
        const char *said[4]; /* by turns */
        sheaf__thinking thinking;
        const char *want;
    } cases[] = {
        { { "Q", "A" }, SHEAF__THINKING_UNSET, "<user>(Q);<assistant>[<think></think>(A);]" },
        { { "Q", "A" }, SHEAF__THINKING_BY_ANSWER, "<user>(Q);<assistant><think></think>[(A);]" },
        { { "Q", "<think>T</think>A" },
          SHEAF__THINKING_BY_ANSWER,
          "<user>(Q);<assistant>[(<think>T</think>A);]" },
        { { "Q", "A", "R", "B" },
          SHEAF__THINKING_BY_ANSWER,
          "<user>(Q);<assistant>[(A);]<user>(R);<assistant><think></think>[(B);]" },
        { { "Q", "A", "R", "<think>T</think>B" },
          SHEAF__THINKING_BY_ANSWER,
          "<user>(Q);<assistant>[(A);]<user>(R);<assistant>[(<think>T</think>B);]" },
        { { "Q" }, SHEAF__THINKING_BY_ANSWER, "<user>(Q);<assistant><think></think>" },
        { { "Q" }, SHEAF__THINKING_UNSET, "<user>(Q);<assistant>" },
    };
    sheaf__chat_template *t = stored(program);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__message message[4];
        int64_t n = 0;
        for (; n < 4 && cases[i].said[n] != NULL; n++)
            message[n] = (sheaf__message){ .role = n % 2 == 0 ? "user" : "assistant",
                                           .content = cases[i].said[n],
                                           .size = strlen(cases[i].said[n]) };
        sheaf__rendered r = { 0 };
        const sheaf__chat_options options = { .generation_prompt = n % 2 == 1,
                                              .answers = n % 2 == 0,
                                              .thinking = cases[i].thinking };
        check_marked(sheaf__chat_render(&r, t, message, n, &options), &r, cases[i].want);
    }
    sheaf__chat_template_free(t);
}

/* ---- programs in the style of models of 2025 and 2026 (tests/data/templates/programs.py) ---- */

/* Would a part of the conversation be lost? */
static bool is_lost(const json_t *conversation, const char *program)
{
    static const char *const fields[] = { "reasoning_content", "tool_calls" };
    const json_t *messages = json_object_get(conversation, "messages");
    bool lost = json_object_get(conversation, "tools") != NULL && strstr(program, "tools") == NULL;
    for (size_t i = 0; i < json_array_size(messages); i++)
        for (size_t k = 0; k < ARRAY_LEN(fields); k++)
            lost |= json_object_get(json_array_get(messages, i), fields[k]) != NULL &&
                    strstr(program, fields[k]) == NULL;
    return lost;
}

static bool same_spans(const sheaf__rendered *r, const json_t *want)
{
    size_t n = 0;
    for (int64_t i = 0; i < r->spans; i++) {
        const json_t *one = json_array_get(want, n);
        if (r->span[i].kind != SHEAF_SPAN_ANSWER)
            continue;
        n++;
        if (json_integer_value(json_array_get(one, 0)) != r->span[i].message ||
            json_integer_value(json_array_get(one, 1)) != (json_int_t)r->span[i].begin ||
            json_integer_value(json_array_get(one, 2)) != (json_int_t)r->span[i].end)
            return false;
    }
    return n == json_array_size(want);
}

static void check_program(const char *name, const char *program, json_t *conversation,
                          const json_t *text, const json_t *spans)
{
    sheaf__chat_template *t = stored(program);
    int64_t n;
    sheaf__message *m = messages_of(&n, json_object_get(conversation, "messages"));
    sheaf__rendered r = { 0 };
    sheaf__chat_options options = { .answers = true,
                                    .lenient = true,
                                    .bos = "<s>",
                                    .eos = "</s>",
                                    .tools = json_object_get(conversation, "tools") };
    sheaf_status *st = sheaf__chat_render(&r, t, m, n, &options);
    if (is_lost(conversation, program)) {
        CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, "does not write");
    } else if (json_is_null(text)) {
        CHECK_FAILS(st, SHEAF_E_DATA, "message ");
    } else {
        CHECK_OK(st);
        if (strcmp(r.text, json_string_value(text)) != 0 ||
            (!json_is_null(spans) && !same_spans(&r, spans)))
            fail_msg("%s:\n%s\nwanted:\n%s\n%s", name, r.text, json_string_value(text),
                     json_dumps(spans, JSON_ENCODE_ANY));
        sheaf__rendered_release(&r);
        options.lenient = false;
        st = sheaf__chat_render(&r, t, m, n, &options);
        if (json_is_null(spans))
            CHECK_FAILS(st, SHEAF_E_DATA, "message ");
        else
            CHECK_OK(st);
    }
    sheaf__rendered_release(&r);
    free(m);
    sheaf__chat_template_free(t);
}

TEST(test_stored__programs_of_newer_models_as_transformers_has_them)
{
    json_t *all = recording("programs.json");
    const json_t *cases = json_object_get(all, "cases");
    assert_true(json_array_size(cases) > 140);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i);
        const char *name = json_string_value(json_array_get(one, 0));
        check_program(name,
                      json_string_value(json_object_get(json_object_get(all, "programs"), name)),
                      json_array_get(json_object_get(all, "conversations"),
                                     (size_t)json_integer_value(json_array_get(one, 1))),
                      json_array_get(one, 2), json_array_get(one, 3));
    }
    json_decref(all);
}

/* The bounds of a program grow with what it reads; NUL is a character as others. */
TEST(test_stored__long_conversations_are_no_reason_to_refuse)
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
        sheaf__chat_template *t = stored(text);
        sheaf__rendered r = { 0 };
        CHECK_OK(sheaf__chat_render(
            &r, t, message, MANY,
            &(sheaf__chat_options){ .answers = true, .bos = "<s>", .eos = "</s>" }));
        assert_true(r.size > (size_t)400 * LONG);
        sheaf__rendered_release(&r);
        sheaf__chat_template_free(t);
        free(text);
    }
    free(message);
    free(content);
}

#define CALLS(written)                                                                             \
    "{% for m in messages %}{{ m.content or '' }}{% for c in m.tool_calls or [] %}" written        \
    "{% endfor %}{% endfor %}"

/* As OpenAI's clients send them: JSON in a text. The objects by hand, as Python's json reads it. */
TEST(test_arguments__are_opened_for_programs_that_would_quote_them)
{
    static const struct {
        const char *program, *arguments, *want;
    } cases[] = {
        { CALLS("{{ c.function.arguments }}"), "{ \"a\":1}", "{ \"a\":1}" },
        { CALLS("{{ c.function.arguments|tojson }}"), "{ \"b\":1, \"a\":\"x\"}",
          "{\"b\": 1, \"a\": \"x\"}" },
        { CALLS("{{ c.function|tojson }}"), "{}", "{\"name\": \"f\", \"arguments\": {}}" },
        { CALLS("{{ c.function.arguments|tojson }}"), "", "{}" },
        { CALLS("{{ c.function.arguments|tojson }}"), "{\"a\": ", "\"{\\\"a\\\": \"" },
        { CALLS("{{ c.function.arguments|tojson }}"), "[1]", "\"[1]\"" },
        { CALLS("{% for k, v in c.function.arguments.items() %}<{{ k }}>{{ v }}{% endfor %}"),
          "{\"a\": 1, \"b\": 2}", "<a>1<b>2" },
        { CALLS("{% if c.function.arguments is string %}{{ c.function.arguments }}{% else %}"
                "{{ c.function.arguments|tojson }}{% endif %}"),
          "{\"a\":1}", "{\"a\":1}" },
        { CALLS("{{ '```' + c.function.arguments + '```' }}"), "{\"a\":1}", "```{\"a\":1}```" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__chat_template *t = stored(cases[i].program);
        sheaf__rendered r = { 0 };
        json_t *list = json_pack("[{s:s, s:s}, {s:s, s:n, s:[{s:{s:s, s:s}}]}]", "role", "user",
                                 "content", "", "role", "assistant", "content", "tool_calls",
                                 "function", "name", "f", "arguments", cases[i].arguments);
        const sheaf__message talk[] = {
            { .role = "user", .content = "" },
            { .role = "assistant", .json = json_array_get(list, 1) },
        };
        CHECK_OK(sheaf__chat_open_arguments(list, t, talk, 2, &(sheaf__chat_options){ 0 }));
        check_text(sheaf__chat_render(&r, t, talk, 2, &(sheaf__chat_options){ 0 }), &r,
                   cases[i].want);
        sheaf__chat_template_free(t);
        json_decref(list);
    }
}

/* Of a folder or a file of it: its program, and the only other one, both maybe NULL. */
static void check_stored(const char *path, const char *program, const char *other,
                         const char *other_program)
{
    sheaf__stored_chat stored;
    CHECK_OK(sheaf__stored_chat_read(&stored, path));
    if (program == NULL)
        assert_null(stored.program);
    else
        assert_string_equal(stored.program, program);
    assert_int_equal(stored.others, other != NULL);
    if (other != NULL) {
        assert_string_equal(stored.other[0].name, other);
        assert_string_equal(stored.other[0].program, other_program);
    }
    sheaf__stored_chat_release(&stored);
}

TEST(test_stored__a_template_file_counts_before_the_config)
{
    sheaf__stored_chat stored;
    put(at("tokenizer_config.json"),
        "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T\"}, "
        "{\"name\": \"default\", \"template\": \"D\"}], \"bos_token\": {\"content\": \"<s>\"}}");
    put(at("special_tokens_map.json"), "{\"eos_token\": \"</s>\"}");
    check_stored(scratch.dir, "D", "tool_use", "T");
    CHECK_OK(sheaf__stored_chat_read(&stored, scratch.dir));
    assert_string_equal(stored.bos, "<s>");
    assert_string_equal(stored.eos, "</s>");
    sheaf__stored_chat_release(&stored);
    put(at("chat_template.jinja"), "J"); /* files take the place of all that the config has */
    check_stored(at("tokenizer_config.json"), "J", NULL, NULL);
    CHECK_OK(sheaf__make_dir(at("additional_chat_templates")));
    put(at("additional_chat_templates/rag.jinja"), "R");
    put(at("additional_chat_templates/rag.txt"), "X");
    check_stored(scratch.dir, "J", "rag", "R");
    CHECK_OK(sheaf__remove_tree(at("chat_template.jinja")));
    check_stored(scratch.dir, NULL, "rag", "R");
    CHECK_OK(sheaf__remove_tree(at("additional_chat_templates")));
    put(at("chat_template.json"), "{\"chat_template\": \"P\"}");
    check_stored(scratch.dir, "D", "tool_use", "T");
    put(at("tokenizer_config.json"), "{}");
    CHECK_OK(sheaf__stored_chat_read(&stored, scratch.dir));
    assert_string_equal(stored.program, "P");
    assert_string_equal(stored.file, "chat_template.json");
    sheaf__stored_chat_release(&stored);
}

/* As transformers does: where there are tools the template tool_use counts, if there is one. */
TEST(test_stored__tool_use_is_for_tools)
{
#define SAYS(head)                                                                                 \
    head "{% for m in messages %}{{ m.role + ':' + m.content + '</s>' }}{% endfor %}"              \
         "{% if add_generation_prompt %}assistant:{% endif %}"
    static const sheaf__message talk[] = { { "user", "Q", 1 }, { "assistant", "A", 1 } };
    sheaf__other_template other[] = {
        { (char *)"rag", (char *)"R" },
        { (char *)"tool_use", (char *)SAYS("{{ strftime_now('%Y') }}T{{ tools|length }}") }
    };
    sheaf__stored_chat folder = {
        .program = (char *)SAYS("D"), .other = other, .others = 2, .file = "x"
    };
    json_t *tools = json_pack("[{s:s}]", "name", "look");
    sheaf__chat_template *t = NULL;
    sheaf__rendered r = { 0 };
    for (int i = 0; i < 2; i++) { /* at the second time there is no default */
        CHECK_OK(sheaf__chat_template_choose(&t, NULL, &folder));
        assert_true(sheaf__chat_template_wants_date(t));
        CHECK_OK(sheaf__chat_template_set_date(t, "2024-07-26"));
        assert_false(sheaf__chat_template_wants_date(t));
        CHECK_OK(sheaf__chat_render(&r, t, talk, 2,
                                    &(sheaf__chat_options){ .answers = true, .tools = tools }));
        assert_string_equal(r.text, "2024T1user:Q</s>assistant:A</s>");
        assert_int_equal(r.span[r.spans - 2].kind, SHEAF_SPAN_ANSWER);
        sheaf__rendered_release(&r);
        const sheaf__chat_options without = { .answers = true };
        if (i == 0) {
            check_text(sheaf__chat_render(&r, t, talk, 2, &without), &r,
                       "Duser:Q</s>assistant:A</s>");
        } else {
            check_status(sheaf__chat_render(&r, t, talk, 2, &without), SHEAF_E_DATA, "'tools'",
                         "none called default");
        }
        sheaf__chat_template_free(t);
        folder.program = NULL;
    }
    folder.others = 1;
    assert_false(sheaf__stored_chat_has_program(&folder));
    check_status(sheaf__chat_template_choose(&t, NULL, &folder), SHEAF_E_ARG,
                 "several, none of them called default", "");
    json_decref(tools);
#undef SAYS
}

FIXTURE(setup, teardown);
