/* said_test.c - thoughts, content and calls of answers, whole and as they grow. */
#include "serve/said.h"
#include "tests/check.h"

static const struct {
    const char *text;
    bool begun;
    const char *thoughts, *content;
    int calls;
} rows[] = {
    { "plain <think>", false, "", "plain <think>", 0 },
    { "<think>\n why\n\n</think>\n\ntwo</think>", false, "why", "two</think>", 0 },
    { "<think>why</thin", false, "why</thin", "", 0 },
    { "<thin", false, "", "<thin", 0 },
    { "why\n</think> two", true, "why", "two", 0 },
    { "<think>why</think>two", true, "why", "two", 0 },
    { "</think>two", true, "", "two", 0 },
    { "why", true, "why", "", 0 },
    { "", true, "", "", 0 },
    { "<think>{}</think>see<call>{\"name\": \"f\", \"arguments\": {\"a\": 1}}</call><call>"
      "{\"name\": \"f\", \"arguments\": {}}",
      false, "{}", "see", 2 },
    { "<call>{\"name\": \"g\", \"arguments\": {}}", false, "",
      "<call>{\"name\": \"g\", \"arguments\": {}}", 0 },
};

static void add(sheaf_text *to, sheaf__text_piece piece)
{
    assert_true(piece.size >= to->size); /* nothing that was certain changes */
    sheaf__text_add(to, "%.*s", (int)(piece.size - to->size), piece.at + to->size);
}

TEST(test_said__thoughts_content_and_calls_whole_and_byte_by_byte)
{
    json_t *tools = json_loads("[{\"function\": {\"name\": \"f\"}}]", 0, NULL);
    for (size_t i = 0; i < 2 * ARRAY_LEN(rows); i++) {
        const char *text = rows[i / 2].text;
        const sheaf__said_rules rules = { .form = { "<call>", "</call>", "name", "arguments",
                                                    .mark = -1 },
                                          .tools = tools,
                                          .one_call = i % 2 != 0,
                                          .thoughts = true,
                                          .begun = rows[i / 2].begun };
        const sheaf__continuation none = { .n = 0 };
        sheaf__said said = { .marked = false };
        sheaf_text thoughts = { .size = 0 }, content = { .size = 0 };
        for (size_t at = 0; i % 2 == 0 && text[at] != '\0'; at++) {
            const char one[] = { text[at], '\0' };
            CHECK_OK(sheaf__said_more(&said, &rules, &(sheaf__delta){ &none, one, NULL }, false));
            add(&thoughts, said.thoughts);
            add(&content, said.content);
        }
        CHECK_OK(sheaf__said_more(&said, &rules,
                                  &(sheaf__delta){ &none, i % 2 == 0 ? "" : text, text }, true));
        add(&thoughts, said.thoughts);
        add(&content, said.content);
        assert_string_equal(thoughts.at, rows[i / 2].thoughts);
        assert_string_equal(content.at, rows[i / 2].content);
        assert_int_equal(json_array_size(said.calls),
                         i % 2 != 0 && rows[i / 2].calls > 1 ? 1 : rows[i / 2].calls);
        sheaf__text_release(&thoughts);
        sheaf__text_release(&content);
        sheaf__said_release(&said);
    }
    json_decref(tools);
}
