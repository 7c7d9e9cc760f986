/* tools_test.c - calls of tools in answers, in the form that each template writes them in. */
#include "serve/tools.h"
#include "tests/check.h"

static const char tools[] =
    "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"description\": \"d\", "
    "\"parameters\": {\"type\": \"object\", \"properties\": {\"a\": {\"type\": "
    "\"integer\", \"description\": \"e\"}}, \"required\": [\"a\"]}}}]";

static const struct {
    const char *template, *text;
    size_t content, sure; /* bytes; sure: of the text without its last eight bytes */
    int calls;
    const char *before; /* of a call that must be; NULL: it cannot be forced */
} rows[] = {
    { "qwen2.5",
      "See<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>\n<tool_call>\n{\"name\": "
      "\"f\", \"arguments\": {\"a\": 1}}\n</tool_call>",
      3, 3, 2, "<tool_call>\n" },
    { "qwen2.5", "<tool_call>\n{\"name\": \"g\", \"arguments\": {}}\n</tool_call>", 55, 0, 0,
      "<tool_call>\n" },
    { "qwen3", "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": 1}}\n</tool_call>", 0, 0, 1,
      "<tool_call>\n" },
    { "llama3.1", "{\"name\": \"f\", \"parameters\": {\"a\": 2, \"a\": 1}}", 0, 0, 1, "" },
    { "llama3.1", "f is a function", 15, 7, 0, "" },
    { "mistral-v3", "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": 1}}]", 0, 0, 1,
      "[TOOL_CALLS] " },
};

TEST(test_tools__calls_are_read_in_the_form_of_the_template)
{
    json_t *list = json_loads(tools, 0, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf__codec codec = { .stored = { .bos = "<s>", .eos = "</s>" } };
        sheaf__tool_form form;
        json_t *calls;
        size_t content;
        char *schema = NULL, *before = NULL, *after = NULL;
        CHECK_OK(sheaf__chat_template_find(&codec.chat, rows[i].template));
        CHECK_OK(sheaf__chat_template_set_today(codec.chat));
        CHECK_OK(sheaf__tool_form_read(&form, &codec, list));
        CHECK_OK(sheaf__tool_calls(&calls, &content, &form, list, rows[i].text));
        if (content != rows[i].content || (int)json_array_size(calls) != rows[i].calls)
            fail_msg("%s: %d calls behind %d bytes of %s", rows[i].template,
                     (int)json_array_size(calls), (int)content, rows[i].text);
        for (size_t k = 0; k < json_array_size(calls); k++)
            assert_string_equal(
                json_string_value(json_object_get(json_array_get(calls, k), "arguments")),
                "{\"a\": 1}");
        assert_int_equal(sheaf__tool_sure(&form, rows[i].text, strlen(rows[i].text) - 8),
                         rows[i].sure);
        CHECK_OK(sheaf__tool_forced(&schema, &before, &after, &form, &codec, list, "f"));
        assert_string_equal(before, rows[i].before);
        assert_non_null(strstr(schema, "\"const\":\"f\""));
        CHECK_FAILS(sheaf__tool_forced(&schema, &before, &after, &form, &codec, list, "g"),
                    SHEAF_E_DATA, "'g'");
        free(schema);
        free(before);
        free(after);
        json_decref(calls);
        sheaf__tool_form_release(&form);
        sheaf__chat_template_free(codec.chat);
    }
    json_decref(list);
}
