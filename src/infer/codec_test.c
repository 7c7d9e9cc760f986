/* codec_test.c - which tokenizer and template it is, prompts with and without an image,
 * answers. */

#include "infer/dialogue.h"
#include "infer/answer_stream.h"
#include "tests/files.h"
#include "tests/pictures.h"
#include "tests/sources.h"

enum { PATCHES = 4, BOS = 256, EOS = 257 };

static sheaf_config config_of(sheaf_family family)
{
    sheaf_config c = { .family = family,
                       .vocab = 259,
                       .bos = BOS,
                       .pad = 258,
                       .eos = { EOS },
                       .neos = 1,
                       .byte_vocab = true };
    if (family == SHEAF_COGVLM || family == SHEAF_COGAGENT) {
        c.patches = PATCHES;
        c.vit = (sheaf_vit){ .height = 28, .width = 28, .patch = 14, .channels = 3 };
        c.encoder = (sheaf_encoder){ .image = 42, .patch = 14, .channels = 3 };
    }
    return c;
}

/* Of a test: a model, its codec and a dialogue with it; a prompt, and its memory. */
static sheaf_config config;
static sheaf__codec codec;
static sheaf__dialogue talk;
static sheaf__prompt prompt;
static void *block;

static void open_codec(sheaf_family family, const char *version)
{
    config = config_of(family);
    talk = (sheaf__dialogue){ .codec = &codec };
    CHECK_OK(sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .version = version }));
}

static void close_codec(void)
{
    sheaf__dialogue_release(&talk);
    sheaf__codec_close(&codec);
}

static sheaf_status *ask(const char *query, bool image)
{
    return sheaf__codec_prompt(&prompt, &block, &codec, &(sheaf__turn){ query, NULL }, 1, image);
}

TEST(test_open__which_template_it_is)
{
    char chat[] = "{\"text_processor_version\": \"chat\"}",
         unknown[] = "{\"text_processor_version\": \"chat_v9\"}", none[] = "{}";
    const struct {
        sheaf_family family;
        char *json;
        const char *given;
        bool conversation, templated;
        sheaf__template want;
    } rows[] = {
        { SHEAF_COGVLM, chat, NULL, false, true, SHEAF__CHAT },
        { SHEAF_COGVLM, chat, "vqa", false, true, SHEAF__VQA },
        { SHEAF_COGVLM, unknown, NULL, false, true, SHEAF__BASE },
        { SHEAF_COGAGENT, none, NULL, true, true, SHEAF__BASE },
        { SHEAF_COGAGENT, NULL, NULL, false, true, SHEAF__BASE },
        { SHEAF_LLAMA, none, NULL, false, false, SHEAF__BASE },
        { SHEAF_LLAMA, none, "chat_old", false, true, SHEAF__CHAT_OLD },
        { SHEAF_LLAMA, none, NULL, true, true, SHEAF__CHAT },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config config = config_of(rows[i].family);
        sheaf__codec own, w;
        config.json = rows[i].json;
        CHECK_OK(
            sheaf__codec_open(&own, &config, &(sheaf__codec_options){ .version = rows[i].given }));
        w = own;
        if (rows[i].conversation)
            CHECK_OK(sheaf__codec_open_chat(&w, &own, NULL));
        if (w.templated != rows[i].templated || w.version != rows[i].want)
            fail_msg("row %d: %s", (int)i, sheaf__template_name(w.version));
        sheaf__codec_close(&w);
    }
    const sheaf_config config = config_of(SHEAF_COGVLM);
    sheaf__codec w;
    CHECK_FAILS(sheaf__codec_open(&w, &config, &(sheaf__codec_options){ .version = "chatt" }),
                SHEAF_E_ARG, "chat");
    sheaf__codec_close(&w);
}

static sheaf_status *answer_of(char **text, const sheaf__codec *w, const int32_t *ids, int64_t n)
{
    sheaf__answer_stream s = { .codec = w, .laid_out = w->templated };
    return sheaf__answer_stream_end(NULL, text, &s, ids, n);
}

TEST(test_open__a_tokenizer_is_given_found_or_missing)
{
    config = config_of(SHEAF_COGVLM);
    config.byte_vocab = false;
    CHECK_OK(
        sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .folder = "/nonexistent" }));
    CHECK_FAILS(sheaf__codec_check_tokenizer(&codec), SHEAF_E_UNSUPPORTED, "`tokenizer FILE`");
    CHECK_FAILS(ask("q", true), SHEAF_E_UNSUPPORTED, "`tokenizer FILE`");
    char *text;
    CHECK_OK(answer_of(&text, &codec, (int32_t[]){ 1 }, 1));
    assert_null(text);
    sheaf__codec_close(&codec);
    CHECK_FAILS(
        sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .tokenizer = "/nonexistent" }),
        SHEAF_E_IO, "/nonexistent");
    sheaf__codec_close(&codec);

    const char *path = in_sources("tests/data/cogvlm/tiny_tokenizer.model");
    config.vocab = 100000;
    config.bos = -1;
    config.neos = 0;
    CHECK_OK(sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .tokenizer = path }));
    assert_int_equal(codec.bos, 1); /* the tokenizer's, as the config has none */
    assert_int_equal(codec.eos, 2);
    CHECK_OK(sheaf__codec_check_tokenizer(&codec));
    const int64_t pieces = sheaf__tokenizer_size(codec.tokenizer);
    sheaf__codec_close(&codec);
    for (config.vocab = pieces + 1; config.vocab >= pieces - 1;
         config.vocab--) { /* each piece has a row of the table */
        if (config.vocab >= pieces)
            CHECK_OK(
                sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .tokenizer = path }));
        else
            CHECK_FAILS(
                sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .tokenizer = path }),
                SHEAF_E_LAYOUT, "tokens, the model's vocabulary");
        sheaf__codec_close(&codec);
    }
}

TEST(test_prompt__leaves_room_within_max_length)
{
    const char *path = in_sources("tests/data/tokenizers/gpt2.json");
    for (int i = 0; i < 2; i++) { /* bytes, and a tokenizer's */
        config = config_of(SHEAF_LLAMA);
        config.byte_vocab = i == 0;
        config.vocab = 100000;
        CHECK_OK(sheaf__codec_open(&codec, &config,
                                   &(sheaf__codec_options){ .version = i == 0 ? "base" : NULL,
                                                            .tokenizer = i == 0 ? NULL : path }));
        codec.max_length = 2;
        CHECK_FAILS(ask("7!7!7!", false), SHEAF_E_DATA,
                    i == 0 ? "at most 1 positions before the answer, with max_length 2"
                           : "fewer positions than max_length 2");
        sheaf__codec_close(&codec);
    }
}

/* bos, BOI, patches, EOI, then the bytes of the template; "<EOI>" in the question is five of
 * them. */
TEST(test_prompt__an_image_and_a_question)
{
    static const char words[] = " [INST] a<EOI>b [/INST] ";
    enum { N = 1 + PATCHES + 2 + sizeof words - 1 };
    open_codec(SHEAF_COGVLM, "chat");
    CHECK_OK(ask("a<EOI>b", true));
    assert_int_equal(prompt.n, N);
    assert_int_equal(prompt.ids[0], BOS);
    for (int i = 0; i < N; i++) {
        assert_int_equal(prompt.embed[i], i >= 1 && i <= PATCHES + 2);
        assert_int_equal(prompt.expert[i], i >= 1 && i <= PATCHES + 1);
        if (i > PATCHES + 2)
            assert_int_equal(prompt.ids[i], words[i - PATCHES - 3]);
    }
    assert_int_equal(prompt.position[PATCHES + 1], 2);
    assert_int_equal(prompt.position[PATCHES + 2], 3);
    assert_int_equal(prompt.position[N - 1], N - PATCHES);
    free(block);
    CHECK_OK(ask("a", false));
    assert_null(prompt.embed);
    assert_null(prompt.expert);
    free(block);
    codec.max_length = N;
    CHECK_FAILS(ask("a<EOI>b", true), SHEAF_E_DATA, "6 for the image (4 patches)");
    close_codec();
}

TEST(test_prompt__what_a_model_cannot_see)
{
    static const struct {
        sheaf_family family;
        bool image;
        const char *part;
    } rows[] = {
        { SHEAF_LLAMA, true, "no image: llama has no vision tower" },
        { SHEAF_COGAGENT, false, "cross-attention of cogagent looks at it" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        open_codec(rows[i].family, NULL);
        CHECK_FAILS(ask("a", rows[i].image), SHEAF_E_UNSUPPORTED, rows[i].part);
        close_codec();
    }
}

/* Of a model without bos a laid-out prompt begins with its text. */
TEST(test_prompt__without_bos)
{
    config = config_of(SHEAF_LLAMA);
    config.bos = -1;
    CHECK_OK(sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .version = "base" }));
    CHECK_OK(ask("ab", false));
    assert_int_equal(prompt.n, 2);
    assert_int_equal(prompt.ids[0], 'a');
    free(block);
    CHECK_FAILS(ask("", false), SHEAF_E_DATA, "at least one token");
    sheaf__codec_close(&codec);
}

TEST(test_answer__of_a_template_is_what_follows_it)
{
    static const struct {
        const char *version, *tokens, *want;
    } rows[] = {
        { "chat", "  yes </s>\n", "yes" },    { "chat", "no [/INST] yes", "yes" },
        { "vqa", "x Short answer: 7", "7" },  { "base", " a [/INST] b ", "a [/INST] b" },
        { NULL, " as it is ", " as it is " },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int32_t ids[64];
        char *text;
        const int64_t n = (int64_t)strlen(rows[i].tokens);
        for (int64_t k = 0; k < n; k++)
            ids[k] = rows[i].tokens[k];
        ids[n] = EOS;
        open_codec(SHEAF_LLAMA, rows[i].version);
        CHECK_OK(answer_of(&text, &codec, ids, n + 1));
        assert_string_equal(text, rows[i].want);
        free(text);
        close_codec();
    }
}

TEST(test_same_answer__with_and_without_case)
{
    static const struct {
        const char *a, *b;
        bool exact, nocase;
    } rows[] = {
        { "aB3", "aB3", true, true },
        { "aB3", "ab3", false, true },
        { " aB3\n", "aB3\t", true, true },
        { "", " ", true, true },
        { "a b", "ab", false, false },
        { "ab", "abc", false, false },
        { "abc", "ab", false, false },
        { "[", "{", false, false },
        { "@", "`", false, false },
        { "\xC3\x84", "\xC3\xA4", false, false },         /* letters of ASCII only */
        { "\xE3\x80\x80two", "two\xC2\xA0", true, true }, /* blanks are those of Python */
        { NULL, "ab", false, false },
    };
    const sheaf__codec w = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (sheaf__codec_answers_equal(&w, rows[i].a, rows[i].b, false) != rows[i].exact ||
            sheaf__codec_answers_equal(&w, rows[i].a, rows[i].b, true) != rows[i].nocase)
            fail_msg("'%s' and '%s'", rows[i].a, rows[i].b);
}

/* ---- a conversation ---- */

static void check_ids(const sheaf__prompt *p, const char *want)
{
    assert_int_equal(p->n, 1 + strlen(want));
    for (int64_t i = 1; i < p->n; i++)
        assert_int_equal(p->ids[i], want[i - 1]);
}

TEST(test_dialogue__turns_are_kept_where_the_template_has_a_place)
{
    static const struct {
        const char *version, *first, *second;
    } rows[] = {
        { "chat", " [INST] q [/INST] ", " [INST] q [/INST] a [INST] r [/INST] " },
        { "vqa", "Question: q Short answer:", "Question: r Short answer:" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        open_codec(SHEAF_COGVLM, rows[i].version);
        CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &talk, "q"));
        check_ids(&prompt, rows[i].first);
        free(block);
        CHECK_OK(sheaf__dialogue_add_turn(&talk, "q", "a"));
        CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &talk, "r"));
        check_ids(&prompt, rows[i].second);
        free(block);
        sheaf__dialogue_reset(&talk);
        CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &talk, "q"));
        check_ids(&prompt, rows[i].first);
        free(block);
        close_codec();
    }
}

TEST(test_dialogue__another_picture_begins_anew)
{
    char *picture = strdup(at("picture.png"));
    put_picture(picture, 9, 5, 7);
    open_codec(SHEAF_COGAGENT, "chat");
    CHECK_OK(sheaf__dialogue_picture(&talk, picture, 7));
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "q", "a"));
    CHECK_FAILS(sheaf__dialogue_picture(&talk, at("none.png"), 8), SHEAF_E_IO, "none.png");
    assert_int_equal(talk.count, 2);
    assert_int_equal(talk.look, 7);
    CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &talk, "r"));
    assert_ptr_equal(prompt.picture, talk.picture);
    assert_int_equal(prompt.pictures, 1);
    assert_non_null(prompt.picture->of[1].pixels);
    assert_non_null(prompt.embed);
    assert_int_equal(prompt.look, 7);
    free(block);
    CHECK_OK(sheaf__dialogue_picture(&talk, picture, 9));
    assert_int_equal(talk.count, 0);
    assert_non_null(talk.picture);
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "q", "a"));
    CHECK_OK(sheaf__dialogue_picture(&talk, NULL, 10));
    assert_int_equal(talk.count, 0);
    assert_null(talk.picture);
    CHECK_FAILS(sheaf__dialogue_picture(&talk, NULL, 11), SHEAF_E_ARG, "no picture");
    close_codec();
    free(picture);
}

TEST(test_spoken__a_token_says_what_is_certain)
{
    static const struct {
        int32_t id;
        const char *more;
    } rows[] = {
        { ' ', "" },
        { 'h', "h" },
        { 'i', "i" },
        { ' ', "" },
        { 0xC3, "" },
        { 0xA9, " \xC3\xA9" },
        { 0xFF, "" },
        { 'x', "\xEF\xBF\xBDx" },
        { 0xF0, "" },
        { 0x9F, "" },
        { 0x98, "" },
        { 0x80, "\xF0\x9F\x98\x80" },
        { 0xFE, "" },
        { 0xFF, "" },
        { 'y', "\xEF\xBF\xBD\xEF\xBF\xBDy" },
        { '\n', "" },
        { EOS, "" },
    };
    int32_t ids[ARRAY_LEN(rows)];
    char *more, *answer;
    open_codec(SHEAF_LLAMA, "chat");
    sheaf__answer_stream s = { .codec = &codec, .laid_out = codec.templated };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        ids[i] = rows[i].id;
        CHECK_OK(sheaf__answer_stream_more(&more, &s, ids, (int64_t)i + 1));
        assert_string_equal(more, rows[i].more);
        free(more);
    }
    CHECK_OK(sheaf__answer_stream_end(&more, &answer, &s, ids, ARRAY_LEN(rows)));
    assert_string_equal(more, "");
    assert_string_equal(answer,
                        "hi \xC3\xA9\xEF\xBF\xBDx\xF0\x9F\x98\x80\xEF\xBF\xBD\xEF\xBF\xBDy");
    free(more);
    free(answer);
    CHECK_OK(sheaf__answer_stream_end(&more, &answer, &s, ids,
                                      5)); /* the half character is said in the end */
    assert_string_equal(answer, "hi \xEF\xBF\xBD");
    free(more);
    free(answer);
    sheaf__answer_stream_release(&s);
    close_codec();
}

TEST(test_spoken__an_answer_that_was_not_said_is_said_again)
{
    static const char tokens[] = "no [/INST] yes";
    int32_t ids[sizeof tokens];
    char *more, *answer;
    open_codec(SHEAF_LLAMA, "chat");
    sheaf__answer_stream s = { .codec = &codec, .laid_out = codec.templated };
    for (size_t i = 0; i < sizeof tokens - 1; i++)
        ids[i] = tokens[i];
    CHECK_OK(sheaf__answer_stream_more(&more, &s, ids, 2));
    free(more);
    CHECK_OK(sheaf__answer_stream_end(&more, &answer, &s, ids, sizeof tokens - 1));
    assert_string_equal(more, "\nyes");
    assert_string_equal(answer, "yes");
    free(more);
    free(answer);
    sheaf__answer_stream_release(&s);
    close_codec();
}

/* Each row: texts that end an answer, what the tokens are, and what comes of them one by one; `|`
 * stands between what is said after one token and after the next, `!` where the answer is over. */
TEST(test_spoken__texts_that_end_an_answer_are_never_said)
{
    static const struct {
        const char *stop[3], *tokens, *said, *answer;
    } rows[] = {
        { { "END" }, "aENbEND c", "a|||ENb|||!", "aENb" },
        { { "\n\n" }, "a\nb\n\nc", "a||\nb||!", "a\nb" },
        { { "abab", "bx" }, "aababx", "|a|||!", "a" },
        { { "xyz", "y" }, "wxy", "w||x!", "wx" },
        { { "\xC3\xA9" }, "a\xC3\xA9", "a||!", "a" },
        { { "long" }, "lon", "||", "lon" },
        { { NULL }, "ab", "a|b", "ab" },
    };
    open_codec(SHEAF_LLAMA, NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf__answer_stream s = { .codec = &codec, .stop = rows[i].stop };
        sheaf__answer_stream silent = s;
        const int64_t n = (int64_t)strlen(rows[i].tokens);
        int32_t ids[16];
        char said[64] = "", *more, *answer;
        while (s.nstop < 3 && rows[i].stop[s.nstop] != NULL)
            s.nstop++;
        silent.nstop = s.nstop;
        int64_t j = 0;
        for (; j < n && !s.over; j++) {
            ids[j] = (unsigned char)rows[i].tokens[j];
            CHECK_OK(sheaf__answer_stream_more(&more, &s, ids, j + 1));
            snprintf(said + strlen(said), sizeof said - strlen(said), "%s%s%s", j == 0 ? "" : "|",
                     more, s.over ? "!" : "");
            free(more);
            CHECK_OK(sheaf__answer_stream_more(NULL, &silent, ids, j + 1));
            assert_int_equal(silent.over, s.over);
        }
        assert_string_equal(said, rows[i].said);
        CHECK_OK(sheaf__answer_stream_end(&more, &answer, &s, ids, j));
        assert_string_equal(answer, rows[i].answer);
        free(more);
        free(answer);
        CHECK_OK(sheaf__answer_stream_end(NULL, &answer, &silent, ids, j));
        assert_string_equal(answer, rows[i].answer);
        free(answer);
        sheaf__answer_stream_release(&s);
    }
    close_codec();
}

/* ---- as a file ---- */

TEST(test_dialogue__is_saved_and_goes_on)
{
    const char *path = at("talk.json");
    sheaf__prompt p[2];
    void *block[2];
    open_codec(SHEAF_LLAMA, "chat");
    sheaf__dialogue other = { .codec = &codec };
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "q \"1\"\n", "a\xC3\xA9"));
    CHECK_OK(sheaf__dialogue_save(&talk, path));
    const char *text = file_text(path, NULL);
    assert_string_equal(text,
                        "{\"messages\": [{\"role\": \"user\", \"content\": \"q \\\"1\\\"\\n\"}, "
                        "{\"role\": \"assistant\", \"content\": \"a\xC3\xA9\"}]}\n");
    CHECK_FAILS(sheaf__dialogue_save(&other, path), SHEAF_E_ARG, "does not exist");
    CHECK_OK(sheaf__dialogue_load(&other, path, 1));
    CHECK_OK(sheaf__dialogue_ask(&p[0], &block[0], &talk, "r"));
    CHECK_OK(sheaf__dialogue_ask(&p[1], &block[1], &other, "r"));
    assert_int_equal(p[0].n, p[1].n);
    CHECK_BYTES("prompt", p[0].ids, p[1].ids, (size_t)p[0].n * sizeof *p[0].ids);
    free(block[0]);
    free(block[1]);
    CHECK_OK(sheaf__dialogue_add_turn(&other, "r", "b"));
    CHECK_OK(sheaf__dialogue_save(&other, path)); /* the file it was loaded from */
    CHECK_OK(sheaf__dialogue_save(&other, path));
    CHECK_OK(sheaf__dialogue_load(&talk, path, 1));
    assert_int_equal(talk.count, 4);
    sheaf__dialogue_release(&other);
    close_codec();
}

#define SAYS(role) "{\"role\": \"" role "\", \"content\": \"a\"}"
#define USER SAYS("user")
#define ASSISTANT SAYS("assistant")
#define SYSTEM SAYS("system")

TEST(test_dialogue__says_what_a_file_is_not)
{
    static const struct {
        const char *text, *says;
        sheaf_code code;
    } rows[] = {
        { "[]", "", SHEAF_E_FORMAT },
        { "{}", "'messages' | a list", SHEAF_E_DATA },
        { "{\"messages\": []}", "1 to 10000 messages", SHEAF_E_DATA },
        { "{\"messages\": [3]}", "messages[0]", SHEAF_E_DATA },
        { "{\"messages\": [{\"role\": \"tool\", \"content\": \"a\"}]}", "user or system | tool",
          SHEAF_E_DATA },
        { "{\"messages\": [{\"role\": \"user\", \"content\": 4}]}", "messages[0].content",
          SHEAF_E_DATA },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"a\\u0000\"}]}", "NUL",
          SHEAF_E_UNSUPPORTED },
        { "{\"messages\": [" USER "]}", "message 1 | an answer", SHEAF_E_DATA },
        { "{\"messages\": [" ASSISTANT "]}", "user or system", SHEAF_E_DATA },
        { "{\"messages\": [" USER ", " USER "]}", "message 2: role | assistant", SHEAF_E_DATA },
        { "{\"messages\": [" SYSTEM ", " USER ", " ASSISTANT "]}", "a system message",
          SHEAF_E_UNSUPPORTED },
        { "{\"messages\": [" USER ", " ASSISTANT "], \"image\": \"a.png\"}", "no image",
          SHEAF_E_UNSUPPORTED },
        { "{\"messages\": [" USER ", " ASSISTANT "], \"image\": 3}", "'image' | a path",
          SHEAF_E_DATA },
        { "{\"messages\": []}\n{\"messages\": []}", "line 2", SHEAF_E_FORMAT },
    };
    open_codec(SHEAF_LLAMA, "chat");
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "q", "a"));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        put(at("bad.json"), rows[i].text);
        CHECK_FAILS(sheaf__dialogue_load(&talk, at("bad.json"), 1), rows[i].code, rows[i].says);
        assert_int_equal(talk.count, 2);
    }
    close_codec();
}

FIXTURE(make_scratch, remove_scratch);
