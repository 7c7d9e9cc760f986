/* Folders are opened as AutoTokenizer of transformers opens them, as recorded by
 * tests/data/tokenizers/make_folders.py. */
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "parts.h"
#include "tests/files.h"
#include "tests/made_tokenizer.h"
#include "tests/sources.h"

/* ---- folders ---- */

/* A link to a tokenizer of the sources. */
static void link_to(const char *name, const char *path)
{
    char *real = realpath(in_sources("tests/data/tokenizers/%s", name), NULL);
    assert_non_null(real);
    assert_int_equal(symlink(real, path), 0);
    free(real);
}

/* The folder of a case, with a link to its tokenizer. */
static void make_folder(char folder[96], size_t number, const json_t *one)
{
    const char *file = json_string_value(json_object_get(one, "file")), *name;
    char path[512];
    json_t *beside;
    snprintf(folder, 96, "%.60s/%zu", scratch.dir, number);
    assert_int_equal(mkdir(folder, 0700), 0);
    snprintf(path, sizeof path, "%s/tokenizer%s", folder, strrchr(file, '.'));
    link_to(file, path);
    json_object_foreach(json_object_get(one, "beside"), name, beside)
    {
        char *text = json_dumps(beside, 0);
        snprintf(path, sizeof path, "%s/%s", folder, name);
        put(path, text);
        free(text);
    }
}

static void check_ids(size_t number, const sheaf__tokenizer *t, const char *text,
                      const json_t *want)
{
    const sheaf__encode_options around = { .add_special = true };
    int32_t *ids;
    int64_t count;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, text, strlen(text), &around));
    bool same = (size_t)count == json_array_size(want);
    for (int64_t i = 0; same && i < count; i++)
        same = ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    if (!same)
        fail_msg("case %zu: ids of '%s'", number, text);
    free(ids);
}

TEST(test_folder__ids_and_names_are_those_of_transformers)
{
    char folder[96];
    json_t *all, *one;
    size_t i;
    CHECK_OK(sheaf__json_load(&all, in_sources("tests/data/tokenizers/folders.json")));
    json_array_foreach(json_object_get(all, "cases"), i, one)
    {
        const json_t *texts = json_object_get(all, "texts"), *ids = json_object_get(one, "ids"),
                     *named = json_object_get(one, "named");
        sheaf__tokenizer *t = NULL;
        make_folder(folder, i, one);
        CHECK_OK(sheaf__tokenizer_open(&t, folder));
        for (size_t k = 0; k < json_array_size(texts); k++)
            check_ids(i, t, json_string_value(json_array_get(texts, k)), json_array_get(ids, k));
        const int32_t got[2] = { sheaf__tokenizer_bos(t), sheaf__tokenizer_eos(t) };
        for (size_t k = 0; k < 2; k++)
            if (got[k] != json_integer_value(json_array_get(named, k)))
                fail_msg("case %zu: name %zu is %" PRId32, i, k, got[k]);
        sheaf__tokenizer_close(t);
    }
    assert_true(i >= 20);
    json_decref(all);
}

/* As transformers: what extra_special_tokens lists, or a key names, stays as the file has it (here:
 * a word by itself); to a Qwen2Tokenizer all special tokens are plain. */
TEST(test_folder__an_extra_token_keeps_what_the_file_says_of_it)
{
    static const struct {
        const char *config;
        int64_t count;    /* of ids */
        const char *left; /* of the token, without special ones */
    } cases[] = {
        { "{}", 4, "<x>" },
        { "{\"additional_special_tokens\": [\"<x>\"]}", 4, "<x>" },
        { "{\"extra_special_tokens\": [{\"content\": \"<x>\", \"special\": true}]}", 4, "<x>" },
        { "{\"image_token\": \"<x>\"}", 4, "" },
        { "{\"extra_special_tokens\": {\"image_token\": \"<x>\"}}", 4, "" },
        { "{\"extra_special_tokens\": {\"image_token\": \"<i>\"}, "
          "\"additional_special_tokens\": [\"a<\"]}",
          3, "<x>" },
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\"}", 4, "<x>" },
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"extra_special_tokens\": [\"<x>\"]}", 2, "" },
        { "{\"tokenizer_class\": \"Qwen2Tokenizer\", \"eos_token\": \"<x>\"}", 2, "" },
    };
    assert_int_equal(mkdir(at("extra"), 0700), 0);
    put(at("extra/tokenizer.json"),
        "{\"added_tokens\":[{\"id\":4,\"content\":\"<x>\",\"single_word\":true,\"lstrip\":false,"
        "\"rstrip\":false,\"normalized\":false,\"special\":false}],\"model\":{\"type\":\"BPE\","
        "\"vocab\":{\"a\":0,\"<\":1,\"x\":2,\">\":3},\"merges\":[]}}");
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__tokenizer *t = NULL;
        int32_t *ids, token = 4;
        int64_t count;
        char *text;
        size_t size;
        put(at("extra/tokenizer_config.json"), cases[i].config);
        CHECK_OK(sheaf__tokenizer_open(&t, at("extra")));
        CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, "a<x>", 4, NULL));
        assert_int_equal(count, cases[i].count);
        free(ids);
        CHECK_OK(sheaf__tokenizer_decode(&text, &size, t, &token, 1, true));
        assert_string_equal(text, cases[i].left);
        free(text);
        sheaf__tokenizer_close(t);
    }
}

TEST(test_folder__what_cannot_be_opened_is_named)
{
    sheaf__tokenizer *t = NULL;
    assert_int_equal(mkdir(at("none"), 0700), 0);
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none")), SHEAF_E_IO, "a tokenizer.json or a");
    link_to("gpt2.json", at("none/tokenizer.json"));
    put(at("none/tokenizer_config.json"), "{\"tokenizer_class\": \"CodeLlamaTokenizerFast\"}");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none")), SHEAF_E_UNSUPPORTED,
                "whose own are known (LlamaTokenizer, ...) | 'CodeLlamaTokenizerFast'");
    CHECK_OK(sheaf__tokenizer_open(&t, at("none/tokenizer.json")));
    sheaf__tokenizer_close(t);
    put(at("none/config.json"), "{\"model_type\": \"mistral\"}");
    CHECK_OK(sheaf__tokenizer_open(&t, at("none")));
    sheaf__tokenizer_close(t);
    t = NULL;
    assert_int_equal(unlink(at("none/config.json")), 0);
    put(at("none/tokenizer_config.json"), "{\"bos_token\": 7}");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none")), SHEAF_E_FORMAT, "bos_token");
    put(at("none/tokenizer_config.json"), "{\"split_special_tokens\": true}");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none")), SHEAF_E_UNSUPPORTED, "split_special");
    put(at("none/tokenizer_config.json"), "{\"bos_token\": \"a\", \"bos_token\": \"b\"}");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none")), SHEAF_E_FORMAT, "bos_token");
    put(at("none/tokenizer_config.json"), "{}");
    put(at("none/tokenizer.model"), "\n\x03\n\x01"
                                    "a\n\x03\n\x01"
                                    "a\x12\x02\x18\x02");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none/tokenizer.model")), SHEAF_E_FORMAT, "'a'");
    put(at("none/tokenizer.model"), "\n\x03\n\x01"
                                    "a\x12\x02\x18\x03");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none/tokenizer.model")), SHEAF_E_UNSUPPORTED,
                "2 (BPE) | 3");
    put(at("none/tokenizer_config.json"), "{\"tokenizer_class\": \"GPT2Tokenizer\"}");
    assert_int_equal(unlink(at("none/tokenizer.json")), 0);
    CHECK_FAILS(
        sheaf__tokenizer_open(&t, at("none")), SHEAF_E_UNSUPPORTED,
        "tokenizer_class 'GPT2Tokenizer' | a tokenizer.json: the tokenizer of this name reads no");
    put(at("none/tokenizer_config.json"), "{}");
    put(at("none/tokenizer.model"), "\n\x03\n\x01"
                                    "a\x12\x02\x18\x02\x1a\x03\x12\x01z");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none")), SHEAF_E_UNSUPPORTED, "normalizer_spec");
    put(at("none/tokenizer.model"), "\n\x09\n\x01"
                                    "a");
    CHECK_FAILS(sheaf__tokenizer_open(&t, at("none/tokenizer.model")), SHEAF_E_FORMAT, "byte 2");
}

/* ---- tiktoken's ranks ---- */

static void write_ranks(const char *more)
{
    static const char alphabet[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char text[2048];
    size_t n = 0;
    for (int byte = 0; byte < 128; byte++) /* of ASCII */
        n += (size_t)snprintf(text + n, sizeof text - n, "%c%c== %d\n", alphabet[byte >> 2],
                              alphabet[(byte & 3) << 4], byte);
    snprintf(text + n, sizeof text - n, "%s", more);
    put(at("ranks/tokenizer.model"), text);
}

/* aa 128, aaa 129, "a b" 130: what has the lowest rank is joined first, of equals the first; a
 * piece that is a token needs no merges; and special tokens follow tokenizer_config.json. */
TEST(test_ranks__are_tiktokens)
{
    static const struct {
        const char *text;
        int32_t id[6];
        int64_t n;
    } cases[] = {
        { "a", { 97 }, 1 },
        { "aa", { 128 }, 1 },
        { "aaa", { 129 }, 1 },
        { "aaaa", { 128, 128 }, 2 },
        { "aaaaa", { 128, 129 }, 2 },
        { "ab", { 97, 98 }, 2 },
        { "<|user|>\n1234", { 132, 10, 49, 50, 51, 52 }, 6 },
        { "xyz", { 131 }, 1 }, /* of no merge: its halves are no tokens */
    };
    sheaf__tokenizer *t = NULL;
    assert_int_equal(mkdir(at("ranks"), 0700), 0);
    write_ranks("YWE= 128\nYWFh 129\nYSBi 130\r\neHl6 131");
    put(at("ranks/tokenizer_config.json"),
        "{\"added_tokens_decoder\":{\"132\":{\"content\":\"<|user|>\",\"special\":true}},"
        "\"tokenizer_class\":\"ChatGLM4Tokenizer\"}");
    CHECK_OK(sheaf__tokenizer_open(&t, at("ranks")));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int32_t *ids;
        int64_t n;
        CHECK_OK(
            sheaf__tokenizer_encode(&ids, NULL, &n, t, cases[i].text, strlen(cases[i].text), NULL));
        assert_int_equal(n, cases[i].n);
        CHECK_BYTES(cases[i].text, ids, cases[i].id, (size_t)n * sizeof *ids);
        free(ids);
    }
    sheaf__tokenizer_close(t);
    static const struct {
        const char *more, *part;
    } bad[] = { { "YWE=\n", "line 129: ranks | a token in base64" },
                { "YW=E 128\n", "line 129" },
                { "YWE= 12x\n", "line 129" },
                { "YWE= 128\nYWE= 129\n", "line 130" },
                { "YWE= 127\n", "line 129" } };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        write_ranks(bad[i].more);
        CHECK_FAILS(sheaf__tokenizer_open(&t, at("ranks")), SHEAF_E_FORMAT, bad[i].part);
    }
}

/* Two blanks are a token that takes the blanks around it, so the next two are none. */
TEST(test_parts__blanks_that_a_token_took_are_no_token)
{
    static const char text[] =
        "{\"added_tokens\":[{\"id\":2,\"content\":\"  \",\"single_word\":false,\"lstrip\":true,"
        "\"rstrip\":true,\"normalized\":false,\"special\":true}],\"model\":{\"type\":\"BPE\","
        "\"merges\":[],\"unk_token\":\"u\",\"vocab\":{\"u\":0,\"a\":1}}}";
    static const int32_t want[] = { 1, 2, 1, 2 };
    sheaf__tokenizer *t = tokenizer_of(text);
    int32_t *ids;
    int64_t count;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &count, t, "a      \ta    ", 13, NULL));
    assert_int_equal(count, ARRAY_LEN(want));
    CHECK_BYTES("ids", ids, want, sizeof want);
    free(ids);
    sheaf__tokenizer_close(t);
}

FIXTURE(make_scratch, remove_scratch);
