/* request_test.c - what requests say, and what is refused, by hand. */
#include <unistd.h>

#include "tests/check.h"

#include "serve/request.h"

#define SAYS "\"messages\": [{\"role\": \"user\", \"content\": \"hello\"}]"

static sheaf_status *read_text(sheaf__request *r, const char *text, sheaf__request_kind kind)
{
    return sheaf__request_read(r, text, strlen(text), kind);
}

TEST(test_request__says_what_was_given)
{
    sheaf__request r;
    CHECK_OK(read_text(&r,
                       "{" SAYS ", \"model\": \"m\", \"temperature\": 0.5, \"top_p\": 0.25, "
                       "\"top_k\": 7, \"repetition_penalty\": 2, \"seed\": 9, \"n\": 3, "
                       "\"max_tokens\": 4, \"max_completion_tokens\": 5, \"stop\": [\"a\", \"b\"], "
                       "\"logprobs\": true, \"top_logprobs\": 2, \"stream\": true, "
                       "\"stream_options\": {\"include_usage\": true}, \"user\": \"me\"}",
                       true));
    assert_string_equal(r.model, "m");
    assert_int_equal(r.how.sampled, 0);
    assert_true(r.how.temperature == 0.5 && r.how.top_p == 0.25);
    assert_true(r.how.repetition_penalty == 2);
    assert_int_equal(r.how.top_k, 7);
    assert_true(r.seeded && r.how.seed == 9 && r.stream && r.usage && r.logprobs);
    assert_int_equal(r.each, 3);
    assert_int_equal(r.how.max_new, 5); /* the newer name */
    assert_int_equal(r.how.nstop, 2);
    assert_string_equal(r.how.stop[1], "b");
    assert_int_equal(r.how.top_logprobs, 2);
    sheaf__request_release(&r);
}

TEST(test_request__leaves_the_rest_to_the_model)
{
    sheaf__request r;
    CHECK_OK(read_text(&r, "{" SAYS ", \"seed\": null}", true));
    assert_true(r.model == NULL && !r.seeded && !r.stream && !r.logprobs && r.each == 1);
    assert_true(r.how.temperature == 0 && r.how.top_k == 0 && r.how.top_p == 0 &&
                r.how.max_new == 0 && r.how.sampled == 0 && r.how.model_defaults);
    sheaf__request_release(&r);
    CHECK_OK(read_text(&r, "{" SAYS ", \"temperature\": 0}", true));
    assert_int_equal(r.how.sampled, -1);
    sheaf__request_release(&r);
    CHECK_OK(read_text(&r, "{\"prompt\": \"a\", \"logprobs\": 0}", false));
    assert_true(r.logprobs && r.top == 0);
    sheaf__request_release(&r);
}

static const struct {
    const char *text;
    sheaf__request_kind kind; /* true: of a chat */
    sheaf_code code;
    const char *part;
} refused[] = {
    { "", true, SHEAF_E_FORMAT, "request" },
    { "{", true, SHEAF_E_FORMAT, "request" },
    { "[]", true, SHEAF_E_FORMAT, "object" },
    { "{\"a\": \"\xff\"}", true, SHEAF_E_FORMAT, "request" },
    { "{\"n\": 1, \"n\": 1}", true, SHEAF_E_FORMAT, "'n'" },
    { "{" SAYS ", \"temprature\": 1}", true, SHEAF_E_UNSUPPORTED, "'temperature'" },
    { "{" SAYS ", \"prompt\": \"a\"}", true, SHEAF_E_UNSUPPORTED, "'prompt'" },
    { "{\"prompt\": \"a\", " SAYS "}", false, SHEAF_E_UNSUPPORTED, "'messages'" },
    { "{" SAYS ", \"presence_penalty\": 0.5}", true, SHEAF_E_UNSUPPORTED, "'presence_penalty'" },
    { "{" SAYS ", \"logit_bias\": {\"5\": 1}}", true, SHEAF_E_UNSUPPORTED, "'logit_bias'" },
    { "{" SAYS ", \"response_format\": {\"type\": \"regex\"}}", true, SHEAF_E_DATA,
      "`response-format`" },
    { "{" SAYS ", \"response_format\": {\"type\": \"json_schema\", \"json_schema\": {}}}", true,
      SHEAF_E_DATA, "\"schema\"" },
    { "{" SAYS ", \"tools\": [{\"type\": \"function\"}]}", true, SHEAF_E_DATA, "`tools`" },
    { "{" SAYS ", \"tool_choice\": \"required\"}", true, SHEAF_E_DATA, "`tools` beside it" },
    { "{" SAYS ", \"tool_choice\": \"any\"}", true, SHEAF_E_DATA, "none, auto, required" },
    { "{" SAYS ", \"continue_final_message\": true}", true, SHEAF_E_UNSUPPORTED,
      "'continue_final_message'" },
    { "{" SAYS ", \"temperature\": -0.5}", true, SHEAF_E_FORMAT, "temperature" },
    { "{" SAYS ", \"temperature\": 1e-9}", true, SHEAF_E_DATA, "temperature" },
    { "{" SAYS ", \"top_p\": 1.5}", true, SHEAF_E_FORMAT, "top_p" },
    { "{" SAYS ", \"max_tokens\": 0}", true, SHEAF_E_FORMAT, "max_tokens" },
    { "{" SAYS ", \"max_tokens\": \"7\"}", true, SHEAF_E_FORMAT, "max_tokens" },
    { "{" SAYS ", \"max_tokens\": 1.5}", true, SHEAF_E_FORMAT, "max_tokens" },
    { "{" SAYS ", \"seed\": 1e30}", true, SHEAF_E_FORMAT, "seed" },
    { "{" SAYS ", \"n\": 65}", true, SHEAF_E_FORMAT, "'n'" },
    { "{" SAYS ", \"parallel_tool_calls\": \"no\"}", true, SHEAF_E_FORMAT, "parallel_tool_calls" },
    { "{" SAYS ", \"stream\": 1}", true, SHEAF_E_FORMAT, "stream" },
    { "{" SAYS ", \"stream_options\": {\"include_usage\": 1}}", true, SHEAF_E_FORMAT,
      "include_usage" },
    { "{" SAYS ", \"top_logprobs\": 2}", true, SHEAF_E_DATA, "top_logprobs" },
    { "{" SAYS ", \"logprobs\": true, \"top_logprobs\": 21}", true, SHEAF_E_FORMAT,
      "top_logprobs" },
    { "{" SAYS ", \"stop\": \"\"}", true, SHEAF_E_DATA, "`stop`" },
    { "{" SAYS ", \"stop\": [1]}", true, SHEAF_E_DATA, "`stop`" },
    { "{" SAYS ", \"stop\": {}}", true, SHEAF_E_DATA, "`stop`" },
    { "{}", false, SHEAF_E_DATA, "`prompt`" },
    { "{\"prompt\": []}", false, SHEAF_E_DATA, "`prompt`" },
    { "{\"prompt\": 5}", false, SHEAF_E_DATA, "`prompt`" },
    { "{\"prompt\": [\"a\", 5]}", false, SHEAF_E_DATA, "`prompt`" },
    { "{\"prompt\": [null]}", false, SHEAF_E_DATA, "`prompt`" },
#define INPUT(fields) "{\"input\": \"a\", " fields "}", SHEAF__ASKS_RESPONSE
    { INPUT("\"n\": 2"), SHEAF_E_UNSUPPORTED, "'n'" },
    { INPUT("\"previous_response_id\": \"x\""), SHEAF_E_UNSUPPORTED, "'previous_response_id'" },
    { INPUT("\"background\": true"), SHEAF_E_UNSUPPORTED, "'background'" },
    { INPUT("\"max_output_tokens\": 0"), SHEAF_E_FORMAT, "'max_output_tokens'" },
    { INPUT("\"instructions\": 5"), SHEAF_E_DATA, "`instructions`" },
    { INPUT("\"text\": 5"), SHEAF_E_DATA, "`text`" },
    { INPUT("\"text\": {\"format\": {\"type\": \"json_schema\"}}"), SHEAF_E_DATA, "`text`" },
    { INPUT("\"tools\": [{\"type\": \"web_search\"}]"), SHEAF_E_DATA, "`tools`" },
    { INPUT("\"tool_choice\": {\"type\": \"mcp\"}"), SHEAF_E_DATA, "`tool-choice`" },
    { INPUT("\"tool_choice\": \"required\""), SHEAF_E_DATA, "`tools` beside it" },
    { "{}", SHEAF__ASKS_RESPONSE, SHEAF_E_DATA, "`input`" },
    { "{\"input\": []}", SHEAF__ASKS_RESPONSE, SHEAF_E_DATA, "`input`" },
    { "{\"input\": [5]}", SHEAF__ASKS_RESPONSE, SHEAF_E_DATA, "`input`" },
    { "{\"input\": [{\"role\": \"user\"}]}", SHEAF__ASKS_RESPONSE, SHEAF_E_DATA, "`input`" },
    { "{\"input\": [{\"type\": \"item_reference\"}]}", SHEAF__ASKS_RESPONSE, SHEAF_E_DATA,
      "`input`" },
    { "{\"input\": [{\"type\": \"function_call\"}]}", SHEAF__ASKS_RESPONSE, SHEAF_E_DATA,
      "\"call_id\"" },
    { "{\"input\": [{\"type\": \"function_call_output\", \"output\": \"a\"}]}",
      SHEAF__ASKS_RESPONSE, SHEAF_E_DATA, "\"call_id\"" },
};

TEST(test_request__refuses_by_name)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        sheaf__request r;
        sheaf_status *st = read_text(&r, refused[i].text, refused[i].kind);
        if (st == NULL)
            fail_msg("taken: %s", refused[i].text);
        CHECK_FAILS(st, refused[i].code, refused[i].part);
        sheaf__request_release(&r);
    }
}

static const char *content(const sheaf__request *r, size_t i)
{
    return json_string_value(
        json_object_get(json_array_get(json_object_get(r->messages, "messages"), i), "content"));
}

static const sheaf__picture_form joins = { .joined = true, .video.fps = 2 };

#define PICTURE(url) "{\"type\": \"image_url\", \"image_url\": {\"url\": \"" url "\"}}"
#define USER(parts) "{\"messages\": [{\"role\": \"user\", \"content\": [" parts "]}]}"
#define WORD(text) "{\"type\": \"text\", \"text\": \"" text "\"}"

TEST(test_messages__join_their_parts_and_keep_pictures)
{
    static const char two[] =
        USER(WORD("a ") "," PICTURE("data:image/png;base64,aGVsbG8=") "," WORD(" b") "," PICTURE(
            "data:image/jpeg;base64,aGVsbG8h"));
    sheaf__request r;
    for (int placed = 0; placed < 2; placed++) {
        CHECK_OK(read_text(&r, two, true));
        CHECK_OK(sheaf__request_take_messages(&r, placed ? &joins : NULL, true));
        assert_string_equal(content(&r, 0), placed ? "a <image> b<image>" : "a  b");
        assert_int_equal(r.images, 2);
        assert_string_equal(r.image[1], "picture 2");
        assert_int_equal(r.picture[0].size, 5);
        assert_memory_equal(r.picture[0].at, "hello", 5);
        assert_int_equal(r.picture[1].size, 6);
        sheaf__request_release(&r);
    }
    CHECK_OK(read_text(&r,
                       "{\"messages\": [{\"role\": \"user\", \"content\": []}, {\"role\": "
                       "\"assistant\", \"content\": [" WORD("a") ", {\"type\": \"refusal\", "
                                                                 "\"refusal\": \"b\"}]}]}",
                       true));
    CHECK_OK(sheaf__request_take_messages(&r, &joins, true));
    assert_string_equal(content(&r, 0), "");
    assert_string_equal(content(&r, 1), "ab");
    sheaf__request_release(&r);
}

/* Frames lie in the list of pictures. */
TEST(test_messages__have_videos)
{
    sheaf__request r;
    CHECK_OK(read_text(
        &r,
        "{\"messages\": [{\"role\": \"user\", \"content\": [" PICTURE(
            "data:image/png;base64,AAAA") ", {\"type\": \"video\", \"fps\": 4, \"video\": "
                                          "[\"data:image/png;base64,AAAA\", {\"url\": "
                                          "\"data:image/jpeg;base64,AAAA\"}]}, " WORD("b") "]}]}",
        true));
    CHECK_OK(sheaf__request_take_messages(&r, &joins, true));
    assert_string_equal(content(&r, 0), "<image><video>b");
    assert_true(r.images == 3 && r.videos == 1 && r.video[0].first == 1 && r.video[0].count == 2);
    assert_int_equal(json_integer_value(json_object_get(r.video[0].about[1], "fps")), 4);
    sheaf__request_release(&r);
    /* for a model without videos "<video>" is a text */
    static const char word[] = USER(WORD("<video> ") "," PICTURE("data:image/png;base64,AAAA"));
    CHECK_OK(read_text(&r, word, true));
    CHECK_OK(sheaf__request_take_messages(&r, &(sheaf__picture_form){ .joined = true }, true));
    assert_string_equal(content(&r, 0), "<video> <image>");
    sheaf__request_release(&r);
    CHECK_OK(read_text(&r, word, true));
    CHECK_FAILS(sheaf__request_take_messages(&r, &joins, true), SHEAF_E_DATA, "marks their places");
    sheaf__request_release(&r);
    static const char *const bad[][2] = {
        { "\"video\": []", "'video' | a list of frames" },
        { "\"video\": \"data:video/mp4;base64,AAAA\"", "'video' | a list of frames" },
        { "\"video\": [\"https://a.b/c.png\"]", "'video': frame 1" },
        { "\"video\": [7]", "'video': frame 1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{\"messages\": [{\"role\": \"user\", \"content\": [{\"type\": \"video\", %s}]}]}",
                 bad[i][0]);
        CHECK_OK(read_text(&r, text, true));
        CHECK_FAILS(sheaf__request_take_messages(&r, &joins, true), SHEAF_E_DATA, bad[i][1]);
        sheaf__request_release(&r);
    }
}

/* As OpenAI's client sends an answer back: with every field that it has. */
TEST(test_messages__are_whole_but_for_nulls)
{
    static const char text[] =
        "{\"messages\": [{\"role\": \"assistant\", \"content\": null, \"refusal\": null, "
        "\"audio\": null, \"function_call\": null, \"reasoning_content\": \"hm\", \"tool_calls\": "
        "[{\"id\": \"c\", \"function\": {\"name\": \"f\", \"arguments\": \"{}\"}}]}, {\"role\": "
        "\"tool\", \"tool_call_id\": \"c\", \"name\": \"f\", \"content\": [" WORD(
            "x") "]}, "
                 "{\"role\": \"developer\", \"content\": \"s\"}, {\"role\": \"assistant\", \"tool_calls\": [], "
                 "\"content\": \"a\"}]}";
    static const char want[] =
        "[{\"content\":null,\"reasoning_content\":\"hm\",\"role\":\"assistant\",\"tool_calls\":[{"
        "\"function\":{\"arguments\":\"{}\",\"name\":\"f\"},\"id\":\"c\"}]},{\"content\":[{\"text\":"
        "\"x\",\"type\":\"text\"}],\"name\":\"f\",\"role\":\"tool\",\"tool_call_id\":\"c\"},{"
        "\"content\":\"s\",\"role\":\"developer\"},{\"content\":\"a\",\"role\":\"assistant\"}]";
    for (int placed = 0; placed < 2; placed++) { /* there parts are one text */
        sheaf__request r;
        CHECK_OK(read_text(&r, text, true));
        CHECK_OK(sheaf__request_take_messages(&r, placed ? &joins : NULL, true));
        json_t *list = json_object_get(r.messages, "messages");
        if (placed) {
            assert_string_equal(content(&r, 1), "x");
            json_object_set_new(json_array_get(list, 1), "content",
                                json_pack("[{s:s, s:s}]", "type", "text", "text", "x"));
        }
        char *got = json_dumps(list, JSON_SORT_KEYS | JSON_COMPACT);
        assert_string_equal(got, want);
        free(got);
        sheaf__request_release(&r);
    }
}

/* A template that reads no thoughts gets them as the model wrote them. */
TEST(test_messages__thoughts_go_back_to_the_content)
{
    sheaf__request r;
    CHECK_OK(read_text(&r,
                       "{\"messages\": [{\"role\": \"assistant\", \"content\": \"A\", "
                       "\"reasoning_content\": \"T\"}, {\"role\": \"assistant\", \"content\": "
                       "null, \"reasoning\": \"T\"}, {\"role\": \"assistant\", \"content\": "
                       "[" WORD("A") "], \"thinking\": \"T\"}, {\"role\": \"assistant\", "
                                     "\"content\": \"A\", \"reasoning_content\": \"\"}]}",
                       true));
    CHECK_OK(sheaf__request_take_messages(&r, NULL, false));
    assert_string_equal(content(&r, 0), "<think>\nT\n</think>\n\nA");
    assert_string_equal(content(&r, 1), "<think>\nT\n</think>\n\n");
    assert_string_equal(content(&r, 3), "A");
    char *all = json_dumps(r.messages, JSON_SORT_KEYS);
    assert_non_null(strstr(all, "[{\"text\": \"<think>\\nT\\n</think>\\n\\n\", \"type\": "
                                "\"text\"}, {\"text\": \"A\""));
    assert_null(strstr(all, "reasoning"));
    assert_null(strstr(all, "thinking"));
    free(all);
    sheaf__request_release(&r);
}

/* Items become the messages that a chat would have. */
TEST(test_request__items_are_messages)
{
    static const char text[] =
        "{\"instructions\": \"I\", \"max_output_tokens\": 5, \"input\": [{\"role\": \"user\", "
        "\"content\": [{\"type\": \"input_text\", \"text\": \"Q\"}]}, {\"type\": \"reasoning\", "
        "\"id\": \"r\", \"summary\": [], \"content\": [{\"type\": \"reasoning_text\", \"text\": "
        "\"T\"}]}, {\"type\": \"function_call\", \"call_id\": \"c\", \"name\": \"f\", "
        "\"arguments\": \"{}\"}, {\"type\": \"function_call_output\", \"call_id\": \"c\", "
        "\"output\": \"O\"}], \"tools\": [{\"type\": \"function\", \"name\": \"f\"}], "
        "\"tool_choice\": {\"type\": \"function\", \"name\": \"f\"}}";
    static const char want[] =
        "[{\"content\":\"I\",\"role\":\"system\"},{\"content\":[{\"text\":\"Q\",\"type\":\"text\"}]"
        ",\"role\":\"user\"},{\"content\":null,\"reasoning_content\":\"T\",\"role\":\"assistant\","
        "\"tool_calls\":[{\"function\":{\"arguments\":\"{}\",\"name\":\"f\"},\"id\":\"c\",\"type\":"
        "\"function\"}]},{\"content\":\"O\",\"role\":\"tool\",\"tool_call_id\":\"c\"}]";
    sheaf__request r;
    CHECK_OK(read_text(&r, text, SHEAF__ASKS_RESPONSE));
    CHECK_OK(sheaf__request_take_messages(&r, NULL, true));
    char *got = json_dumps(json_object_get(r.messages, "messages"), JSON_SORT_KEYS | JSON_COMPACT);
    assert_string_equal(got, want);
    assert_string_equal(r.tool, "f");
    assert_int_equal(r.how.max_new, 5);
    assert_int_equal(json_array_size(json_object_get(r.messages, "tools")), 1);
    free(got);
    sheaf__request_release(&r);
}

/* Every field of OpenAI's three requests, and one of nobody's. */
TEST(test_request__takes_null_as_absent)
{
    char fields[] =
        "audio best_of echo frequency_penalty function_call functions logit_bias logprobs max_completion_tokens max_tokens metadata modalities model n "
        "parallel_tool_calls prediction presence_penalty prompt_cache_key prompt_cache_retention reasoning_effort response_format safety_identifier seed service_tier stop store stream "
        "stream_options suffix temperature tool_choice tools top_logprobs top_p user verbosity web_search_options top_k repetition_penalty of_nobody "
        "background conversation include instructions max_output_tokens max_tool_calls previous_response_id prompt reasoning text truncation";
    for (const char *field = strtok(fields, " "); field != NULL; field = strtok(NULL, " "))
        for (int kind = SHEAF__ASKS_TEXT; kind <= SHEAF__ASKS_RESPONSE; kind++) {
            static const char *const asks[] = { "\"prompt\": \"a\"", SAYS, "\"input\": \"a\"" };
            char text[160];
            sheaf__request r;
            if (kind == SHEAF__ASKS_TEXT && strcmp(field, "prompt") == 0)
                continue;
            snprintf(text, sizeof text, "{%s, \"%s\": null}", asks[kind], field);
            CHECK_OK(read_text(&r, text, kind));
            assert_true(r.model == NULL && !r.seeded && !r.stream && !r.logprobs && r.each == 1);
            sheaf__request_release(&r);
        }
}

/* Fields that ask for nothing. */
TEST(test_request__takes_what_is_done_anyway)
{
    sheaf__request r;
    CHECK_OK(read_text(&r,
                       "{" SAYS ", \"tools\": [], \"tool_choice\": \"none\", \"functions\": [], "
                       "\"function_call\": \"none\", \"response_format\": {\"type\": \"text\"}, "
                       "\"presence_penalty\": 0.0, \"stream_options\": {\"include_usage\": null}, "
                       "\"add_generation_prompt\": true, \"continue_final_message\": false}",
                       true));
    sheaf__request_release(&r);
    CHECK_OK(read_text(&r, "{\"prompt\": \"a\", \"tools\": [], \"tool_choice\": \"none\"}", false));
    sheaf__request_release(&r);
    CHECK_OK(
        read_text(&r, "{\"input\": \"a\", \"text\": {\"format\": null}}", SHEAF__ASKS_RESPONSE));
    sheaf__request_release(&r);
}

static const struct {
    const char *text, *part;
} bad[] = {
    { "{}", "`messages`" },
    { "{\"messages\": []}", "`messages`" },
    { "{\"messages\": [5]}", "message 1" },
    { "{\"messages\": [{\"role\": \"user\"}]}", "'content'" },
    { "{\"messages\": [{\"role\": \"user\", \"content\": null}]}", "'content'" },
    { "{\"messages\": [{\"role\": \"assistant\", \"content\": {}}]}", "'content'" },
    { "{\"messages\": [{\"content\": \"a\"}]}", "\"role\"" },
    { "{\"messages\": [{\"role\": \"user\", \"content\": 5}]}", "'content'" },
    { USER("5"), "'content'" },
    { USER("{\"type\": \"audio\"}"), "'content'" },
    { USER(PICTURE("http://a.example/b.png")), "nothing is fetched" },
    { USER(PICTURE("/etc/passwd")), "nothing is fetched" },
    { USER(PICTURE("data:image/svg+xml;base64,aGVsbG8=")), "nothing is fetched" },
    { USER(PICTURE("data:image/png;base64,")), "base64" },
    { USER(PICTURE("data:image/png;base64,aGVsbG8")), "base64" },
    { USER(PICTURE("data:image/png;base64,aGV=bG8=")), "base64" },
    { USER(PICTURE("data:image/png;base64,aGVsb G8")), "base64" },
    { USER(PICTURE("data:image/png;base64,====")), "base64" },
    { USER(WORD("<image>") "," PICTURE("data:image/png;base64,aGVsbG8=")), "marks their places" },
};

TEST(test_messages__refuse_what_is_no_message)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        sheaf__request r;
        CHECK_OK(read_text(&r, bad[i].text, true));
        sheaf_status *st = sheaf__request_take_messages(&r, &joins, true);
        if (st == NULL)
            fail_msg("taken: %s", bad[i].text);
        CHECK_FAILS(st, SHEAF_E_DATA, bad[i].part);
        sheaf__request_release(&r);
    }
}
