/* new_tokens_test.c - lists of tokens to add, and the tokenizer's files with them. */
#include "dialects/hf/new_tokens.h"

#include <sys/stat.h>
#include <unistd.h>

#include "inputs/tokenizer/tokenizer.h"
#include "tests/files.h"

#define MODEL                                                                                      \
    "\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0, \"b\": 1, \"<x>\": 2}, \"merges\": []}"
#define X                                                                                          \
    "{\"id\": 2, \"content\": \"<x>\", \"single_word\": false, \"lstrip\": false, \"rstrip\": "    \
    "false, \"normalized\": false, \"special\": true}"

/* A folder with a tokenizer of three tokens; config: its tokenizer_config.json, or NULL. */
static const char *folder(const char *name, const char *config)
{
    const char *path = textf("%s", at(name));
    mkdir(path, 0700);
    put(textf("%s/tokenizer.json", path),
        "{\"version\": \"1.0\", \"added_tokens\": [" X "], " MODEL "}\n");
    const char *file = textf("%s/tokenizer_config.json", path);
    unlink(file);
    if (config != NULL)
        put(file, config);
    return at(name);
}

TEST(test_new_tokens__a_wrong_list_is_refused_by_its_place)
{
    static const struct {
        const char *file, *text, *part;
    } cases[] = {
        { "t.txt", "", "tokens to add" },
        { "t.txt", "<y>\n\n", "line 2" },
        { "t.txt", "\n", "nothing" },
        { "t.txt", "<y>\n<x>\n", "its token 2" },
        { "t.txt", "a", "its token 0" },
        { "t.txt", "<y>\n<z>\r\n<y>\n", "as in line 1" },
        { "t.txt", "<\t>", "0x09" },
        { "t.txt", "<\x7f>", "0x7f" },
        { "t.txt", "<\xff>", "UTF-8" },
        { "t.txt", "<\xc3", "UTF-8" },
        { "t.json", "", "line 1" },
        { "t.json", "{}", "a list of tokens" },
        { "t.json", "[]", "tokens to add" },
        { "t.json", "[\"\"]", "token 1" },
        { "t.json", "[\"<y>\", 1]", "token 2" },
        { "t.json", "[{}]", "\"content\"" },
        { "t.json", "[{\"content\": 1}]", "\"content\"" },
        { "t.json", "[{\"content\": \"<y>\", \"special\": 1}]", "'special'" },
        { "t.json", "[{\"content\": \"<y>\", \"id\": 3}]", "'id'" },
        { "t.json", "[\"<y>\", \"<y>\"]", "as in token 1" },
        { "t.json", "[\"<y>\"] []", "line 1" },
        { "t.json", "[\"<\\u0000>\"]", "t.json" },
        { "t.json", "[\"<\\n>\"]", "0x0a" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__new_tokens tokens;
        put(at(cases[i].file), cases[i].text);
        sheaf_status *st =
            sheaf__new_tokens_read(&tokens, at(cases[i].file), folder("plain", NULL));
        char all[1000] = "";
        if (st != NULL)
            snprintf(all, sizeof all, "%s|%s|%s", sheaf_status_where(st), sheaf_status_expected(st),
                     sheaf_status_found(st));
        if (strstr(all, cases[i].part) == NULL)
            fail_msg("%zu: no '%s' in '%s'", i, cases[i].part, all);
        sheaf_status_free(st);
        sheaf__new_tokens_release(&tokens);
    }
}

TEST(test_new_tokens__only_a_tokenizer_json_gets_them)
{
    sheaf__new_tokens tokens;
    put(at("one.txt"), "<y>");
    mkdir(at("none"), 0700);
    put(at("none/tokenizer.model"), "");
    CHECK_FAILS(sheaf__new_tokens_read(&tokens, at("one.txt"), at("none")), SHEAF_E_UNSUPPORTED,
                "its tokenizer");
    sheaf__new_tokens_release(&tokens);
    CHECK_FAILS(sheaf__new_tokens_read(&tokens, at("one.txt"), folder("plain", NULL)) != NULL
                    ? NULL
                    : sheaf__new_tokens_write(at("nowhere"), &tokens, at("plain")),
                SHEAF_E_IO, "nowhere");
    sheaf__new_tokens_release(&tokens);
}

static char *text_of(const char *path)
{
    char *text = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&text, &size, path, 1 << 20));
    return text;
}

/* As `tokenizers` prints them. The rest of the files keeps its spelling. */
static const char two_more[] =
    "    {\n      \"id\": 3,\n      \"content\": \"<y>\",\n      \"single_word\": false,\n"
    "      \"lstrip\": false,\n      \"rstrip\": true,\n      \"normalized\": true,\n"
    "      \"special\": false\n    },\n"
    "    {\n      \"id\": 4,\n      \"content\": \"\xc3\xa4\\\"\",\n      \"single_word\": false,\n"
    "      \"lstrip\": false,\n      \"rstrip\": false,\n      \"normalized\": false,\n"
    "      \"special\": true\n    }\n  ], " MODEL "}\n";

static void expect_text(const char *folder_name, const char *file, const char *want)
{
    const char *name = textf("%s/%s", folder_name, file);
    assert_int_equal(sheaf__path_kind(at(name)) == SHEAF_PATH_FILE, want != NULL);
    char *text = want == NULL ? NULL : text_of(at(name));
    if (text != NULL && strstr(text, want) == NULL)
        fail_msg("%s: no '%s' in '%s'", name, want, text);
    free(text);
}

/* The token has this id. */
static void expect_id(const char *path, int32_t id)
{
    sheaf__tokenizer *t = NULL;
    CHECK_OK(sheaf__tokenizer_open(&t, at(path)));
    assert_int_equal(sheaf__tokenizer_find(t, "<y>"), id);
    assert_int_equal(sheaf__tokenizer_size(t), id + 2);
    sheaf__tokenizer_close(t);
}

/* A list in tokenizer_config.json goes on, and a class that the model's config.json decided is
 * written down, with the tokens that it adds. */
TEST(test_new_tokens__files_are_as_transformers_saves_them)
{
    static const struct {
        const char *config, *model, *want; /* the written tokenizer_config.json; NULL: none */
        int first;                         /* id: Qwen2's class adds <|endoftext|> */
    } cases[] = {
        { NULL, NULL, NULL, 3 },
        { "{\"model_max_length\": 1000000000000000019884624838656}", NULL,
          "{\"model_max_length\": 1000000000000000019884624838656}", 3 },
        { "{\"added_tokens_decoder\": {\"2\": {\"content\": \"<x>\", \"special\": true}}}", NULL,
          "\"4\": {\n      \"content\"", 3 },
        { NULL, "{\"model_type\": \"qwen2\"}", "\"tokenizer_class\": \"Qwen2Tokenizer\"", 4 },
        { "{\"tokenizer_class\": \"LlamaTokenizer\"}", "{\"model_type\": \"phi3\"}",
          "\"tokenizer_class\": \"PreTrainedTokenizerFast\"", 3 },
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", "{\"model_type\": \"qwen2\"}",
          "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", 4 },
    };
    put(at("two.json"), "[{\"content\": \"<y>\", \"rstrip\": true}, {\"content\": \"\\u00e4\\\"\", "
                        "\"special\": true}]");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__new_tokens tokens;
        const char *from = textf("from%zu", i);
        const char *to = textf("to%zu", i);
        folder(from, cases[i].config);
        if (cases[i].model != NULL)
            put(at(textf("%s/config.json", from)), cases[i].model);
        CHECK_OK(sheaf__new_tokens_read(&tokens, at("two.json"), at(from)));
        assert_int_equal(tokens.first, cases[i].first);
        assert_int_equal(tokens.count, 2);
        mkdir(at(to), 0700);
        CHECK_OK(sheaf__new_tokens_write(at(to), &tokens, at(from)));
        if (cases[i].first == 3)
            expect_text(to, "tokenizer.json", two_more);
        expect_text(to, "tokenizer_config.json", cases[i].want);
        const char *name = textf("%s/tokenizer.json", to);
        expect_id(to, cases[i].first);
        expect_id(name, cases[i].first); /* without its class */
        sheaf__new_tokens_release(&tokens);
    }
}

FIXTURE(make_scratch, remove_scratch);
