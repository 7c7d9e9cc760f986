/* prompts_test.c - prompts in every form, what is refused, and tokens back as text. */
#include "tests/byte_config.h"
#include "tests/check.h"

#include <unistd.h>

#include "infer/prompts.h"

static sheaf_status *read_lines(sheaf__prompts *p, const char *lines, size_t size)
{
    char path[] = "/tmp/sheaf-prompts-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, lines, size) == (ssize_t)size);
    close(fd);
    sheaf__codec w;
    CHECK_OK(sheaf__codec_open(&w, &byte_config, &(sheaf__codec_options){ 0 }));
    sheaf_status *st = sheaf__prompts_read(p, &w, &(sheaf_prompts_options){ .data = path });
    sheaf__codec_close(&w);
    unlink(path);
    return st;
}

TEST(test_prompts__records_become_tokens)
{
    static const char lines[] =
        "{\"prompt\": \"a\\u00e9\", \"completion\": \"b\"}\n\n{\"tokens\": [0, 258], \"id\": {\"x\": [1.5]}}\r\n{\"prompt\": \"\"}";
    static const int32_t first[] = { BOS, 'a', 0xC3, 0xA9 }, second[] = { 0, 258 };
    sheaf__prompts p;
    CHECK_OK(read_lines(&p, lines, sizeof lines - 1));
    assert_int_equal(p.count, 3);
    assert_int_equal(p.prompt[0].n, 4);
    CHECK_BYTES("text", p.prompt[0].ids, first, sizeof first);
    assert_string_equal(p.about[0].text, "a\xC3\xA9");
    assert_string_equal(p.about[0].expected, "b");
    assert_int_equal(p.prompt[1].n, 2);
    CHECK_BYTES("ids", p.prompt[1].ids, second, sizeof second);
    assert_null(p.about[1].text);
    assert_null(p.about[1].expected);
    assert_int_equal(p.prompt[2].n, 1); /* bos alone */
    sheaf__prompts_release(&p);
    static const char array[] =
        "\xEF\xBB\xBF[{\"prompt\": \"a\\u00e9\", \"completion\": \"b\"},\n {\"tokens\": [0, 258]}]";
    CHECK_OK(read_lines(&p, array, sizeof array - 1));
    assert_int_equal(p.count, 2);
    CHECK_BYTES("text of an entry", p.prompt[0].ids, first, sizeof first);
    CHECK_BYTES("ids of an entry", p.prompt[1].ids, second, sizeof second);
    sheaf__prompts_release(&p);
    static const char columns[] = /* of a table, empty ones too */
        "{\"prompt\": null, \"tokens\": [0, 258]}\n{\"messages\": null, \"tokens\": null, "
        "\"conversations\": null, \"prompt\": \"a\\u00e9\", \"completion\": \"b\"}";
    CHECK_OK(read_lines(&p, columns, sizeof columns - 1));
    assert_int_equal(p.count, 2);
    CHECK_BYTES("ids of a row", p.prompt[0].ids, second, sizeof second);
    CHECK_BYTES("text of a row", p.prompt[1].ids, first, sizeof first);
    sheaf__prompts_release(&p);
}

TEST(test_prompts__no_picture_is_none)
{
    static const char lines[] =
        "{\"tokens\": [1], \"images\": []}\n{\"tokens\": [2], \"image\": \"\"}\n"
        "{\"tokens\": [3], \"image\": null, \"images\": []}\n";
    sheaf__prompts p;
    CHECK_OK(read_lines(&p, lines, sizeof lines - 1));
    assert_int_equal(p.count, 3);
    sheaf__prompts_release(&p);
}

#define GOOD "{\"prompt\": \"a\"}\n"
TEST(test_prompts__a_bad_record_is_named)
{
    static const struct {
        const char *lines, *part;
    } rows[] = {
        { GOOD "{\"prompt\": \"a\"\n",
          "line 2: not a record | one JSON object; at column 15: ',' or '}' | the end of the text" },
        { GOOD GOOD "{\"prompt\": \"\xE9\"}\n",
          "line 3: not a record | one JSON object; at column 13: UTF-8 | byte 0xe9" },
        { "{\"prompt\": \"a\", \"prompt\": \"b\"}\n",
          "line 1: not a record | one JSON object; at column 26: each key once" },
        { GOOD "[1, 2]\n",
          "line 2: record | a text, \"prompt\", \"instruction\", a list \"messages\" or "
          "\"conversations\", or a list \"tokens\"" },
        { "7\n", "line 1: record" },
        { "[" GOOD ", 7]", "entry 2: record | a text, \"prompt\"" },
        { "\xEF\xBB\xBF[1, 2]\n", "2 of 2 records are bad" },
        { GOOD "7\n{}\n", "2 of 3 records are bad" },
        { "[]", "at least one prompt" },
        { "{\"text\": \"a\"}\n", "line 1: record" },
        { "{\"prompt\": 7}\n", "line 1: field 'prompt' | a string | a number" },
        { "{\"prompt\": \"a\", \"completion\": 7}\n", "field 'completion' | a string | a number" },
        { "{\"tokens\": [1], \"images\": [\"a.png\"]}\n",
          "field 'images' | no picture beside \"tokens\"" },
        { "{\"prompt\": \"a\\u0000b\"}\n", "line 1: field 'prompt' | text without NUL" },
        { "{\"prompt\": \"a\", \"completion\": \"\\u0000\"}\n",
          "line 1: field 'completion' | text without NUL" },
        { "{\"tokens\": [1, 2], \"completion\": \"ab\\u0000cd\"}\n",
          "line 1: field 'completion' | text without NUL" },
        { "{\"tokens\": [1], \"completion\": 7}\n", "field 'completion' | a string | 7" },
        { "{\"prompt\": \"A\", \"tokens\": [1]}\n",
          "line 1: field 'tokens' | a prompt as text or as tokens, one of the two | both in one record | take one of them out" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"B\"}], \"tokens\": [1]}\n",
          "one of the two | both in one record" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"B\"}, {\"role\": \"assistant\", "
          "\"content\": null, \"tool_calls\": [{}]}, {\"role\": \"user\", \"content\": \"C\"}]}\n",
          "line 1: message 2: 'tool_calls' | no calls of tools | some" },
        { "{\"prompt\": null}\n", "line 1: record | a text, \"prompt\"" },
        { "{\"tokens\": []}\n", "line 1: field 'tokens' | at least one token id" },
        { "{\"tokens\": [1, 2.0]}\n", "line 1: field 'tokens', entry 1 | an integer" },
        { "{\"tokens\": [1, 259]}\n",
          "line 1: field 'tokens' | token ids from 0 to 258, the rows of the table | 259" },
        { "{\"tokens\": [-1]}\n", "line 1: field 'tokens' | token ids from 0 to 258" },
        { "{\"tokens\": [4294967297]}\n", "4294967297" },
        { "\n\n", "at least one prompt" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf__prompts p;
        CHECK_FAILS(read_lines(&p, rows[i].lines, strlen(rows[i].lines)), SHEAF_E_DATA,
                    rows[i].part);
        sheaf__prompts_release(&p);
    }
}

TEST(test_prompts__from_the_command_line)
{
    sheaf_config config = byte_config;
    sheaf__prompts p;
    sheaf__codec w;
    CHECK_OK(sheaf__codec_open(&w, &config, &(sheaf__codec_options){ 0 }));
    CHECK_OK(sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .tokens = "1,2,258" }));
    assert_int_equal(p.prompt[0].n, 3);
    assert_int_equal(p.prompt[0].ids[2], 258);
    sheaf__prompts_release(&p);
    static const char *const bad[] = { "", "1,", ",1", "1 ,2", "x", "1;2", "99999999999999999999" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        CHECK_FAILS(sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .tokens = bad[i] }),
                    SHEAF_E_ARG, "numbers with commas");
    CHECK_FAILS(sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .tokens = "259" }),
                SHEAF_E_DATA, "259");
    CHECK_FAILS(sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .text = "a", .tokens = "1" }),
                SHEAF_E_ARG, "one of `prompt TEXT`");
    CHECK_FAILS(sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .data = "a,b:0.5" }),
                SHEAF_E_ARG, "one file or folder of prompts");
    config.byte_vocab = false;
    CHECK_FAILS(sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .text = "a" }),
                SHEAF_E_UNSUPPORTED, "--tokens 1,2,3");
    config.byte_vocab = true;
    CHECK_FAILS(sheaf__prompts_read(
                    &p, &w,
                    &(sheaf_prompts_options){
                        .text = "a", .images = (const char *const[]){ "a.png" }, .nimages = 1 }),
                SHEAF_E_UNSUPPORTED, "llama has no vision tower");
    CHECK_FAILS(sheaf__prompts_read(
                    &p, &w,
                    &(sheaf_prompts_options){
                        .tokens = "1", .images = (const char *const[]){ "a.png" }, .nimages = 1 }),
                SHEAF_E_ARG, "`prompt`");
    w.bos = -1;
    CHECK_FAILS(sheaf__prompts_read(&p, &w, &(sheaf_prompts_options){ .text = "" }), SHEAF_E_DATA,
                "at least one token");
    sheaf__codec_close(&w);
}

/* Up to the first special token; NUL and what is not UTF-8 become U+FFFD, byte by byte. */
TEST(test_decode__bytes_become_text)
{
    static const int32_t ids[] = { 'a',  0xC3, 0xA9, 0,    0xF0, 0x9F, 0x98, 0x80,
                                   0xED, 0xA0, 0x80, 0xE2, 0x82, EOS,  'b' };
    sheaf__codec w;
    char *text = NULL;
    CHECK_OK(sheaf__codec_open(&w, &byte_config, &(sheaf__codec_options){ 0 }));
    CHECK_OK(sheaf__codec_decode(&text, &w, ids, ARRAY_LEN(ids)));
#define BAD "\xEF\xBF\xBD"
    assert_string_equal(text, "a\xC3\xA9" BAD "\xF0\x9F\x98\x80" BAD BAD BAD BAD BAD);
    free(text);
}
