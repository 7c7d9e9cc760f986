/* chat_encoder_test.c - texts with pictures are upstream's, byte for byte; marks become their
 * tokens and nothing that people wrote does; what an answer teaches. */
#include "tests/files.h"

#include "inputs/chat_encoder.h"

static const sheaf__picture_form v2_0 = {
    .mark = { { "<image>", NULL },
              { "<unk>", NULL },
              { "</image>", NULL },
              { "<slice>", NULL },
              { "</slice>", NULL } },
    .rows = 2,
    .together = true,
};
static const sheaf__picture_form v2_6 = {
    .mark = { { "<image>", NULL },
              { "<unk>", NULL },
              { "</image>", NULL },
              { "<slice>", NULL },
              { "</slice>", NULL },
              { "<image_id>", NULL },
              { "</image_id>", NULL } },
    .rows = 2,
};

#define UNKS "<unk><unk>"
#define WHOLE "<image>" UNKS "</image>"
#define SLICE "<slice>" UNKS "</slice>"
#define USER(TEXT)                                                                                 \
    {                                                                                              \
        "user", TEXT, sizeof TEXT - 1                                                              \
    }
#define ANSWER(TEXT)                                                                               \
    {                                                                                              \
        "assistant", TEXT, sizeof TEXT - 1                                                         \
    }

/* ---- places ---- */

static const struct {
    const char *name;
    const sheaf__picture_form *form;
    sheaf__place_options how;
    sheaf__message message[3];
    int64_t messages;
    sheaf__chat_picture shown[3];
    int64_t pictures;
    const char *want[3];
    int64_t order[3];
} placed[] = {
    { "no picture", &v2_0, LIST(0), LIST(USER("a <image_> b"), ANSWER("<image>")), 2, LIST({ 0 }),
      0, LIST("a <image_> b", "<image>"), LIST(0) },
    { "in its place", &v2_0, LIST(0), LIST(USER("a<image>b"), ANSWER("<image>")), 2,
      LIST({ "<image>", 0, 0, 0 }), 1, LIST("a" WHOLE "b", "<image>"), LIST(0) },
    { "in front", &v2_0, LIST(0), LIST(USER("what?")), 1, LIST({ "<image>", 0, 0, 0 }), 1,
      LIST(WHOLE "\nwhat?"), LIST(0) },
    { "in a later turn", &v2_0, LIST(0), LIST(USER("a"), ANSWER("b"), USER("c <image>")), 3,
      LIST({ "<image>", 0, 0, 0 }), 1, LIST("a", "b", "c " WHOLE), LIST(0) },
    { "slices of 2.0", &v2_0, LIST(0), LIST(USER("x")), 1, LIST({ "<image>", 0, 2, 2 }), 1,
      LIST(WHOLE "<slice>" WHOLE WHOLE "\n" WHOLE WHOLE "</slice>\nx"), LIST(0) },
    { "slices of 2.6", &v2_6, LIST(0), LIST(USER("x")), 1, LIST({ "<image>", 0, 2, 2 }), 1,
      LIST("<image_id>0</image_id>" WHOLE SLICE SLICE "\n" SLICE SLICE "\nx"), LIST(0) },
    { "no number without slices", &v2_6, LIST(0), LIST(USER("<image_01>")), 1,
      LIST({ "<image_01>", 0, 0, 0 }), 1, LIST(WHOLE), LIST(0) },
    { "a number for each", &v2_6, LIST(.number_all = true), LIST(USER("x"), ANSWER("y"), USER("z")),
      3, LIST({ NULL, 0, 0, 0 }, { NULL, 2, 0, 0 }, { NULL, 2, 1, 2 }), 3,
      LIST("<image_id>0</image_id>" WHOLE "\nx", "y",
           "<image_id>1</image_id>" WHOLE "\n<image_id>2</image_id>" WHOLE SLICE "\n" SLICE "\nz"),
      LIST(0, 1, 2) },
    { "names of their own", &v2_6, LIST(.lines = true), LIST(USER("<image_01>is <image_00>?")), 1,
      LIST({ "<image_00>", 0, 1, 2 }, { "<image_01>", 0, 0, 0 }), 2,
      LIST("\n" WHOLE "\nis \n<image_id>0</image_id>" WHOLE SLICE "\n" SLICE "\n?"), LIST(1, 0) },
    { "names that stand nowhere", &v2_0, LIST(.lines = true), LIST(USER("x")), 1,
      LIST({ "<image_00>", 0, 0, 0 }, { "<image_01>", 0, 0, 0 }), 2, LIST(WHOLE "\n" WHOLE "\nx"),
      LIST(0, 1) },
    { "several of one name", &v2_0, LIST(0), LIST(USER("<image><image>")), 1,
      LIST({ "<image>", 0, 0, 0 }, { "<image>", 0, 0, 0 }), 2, LIST(WHOLE WHOLE), LIST(0, 1) },
};

TEST(test_places__texts_are_upstreams)
{
    for (size_t i = 0; i < ARRAY_LEN(placed); i++) {
        sheaf__placed p;
        CHECK_OK(sheaf__place_pictures(&p, placed[i].form, placed[i].message, placed[i].messages,
                                       placed[i].shown, placed[i].pictures, &placed[i].how));
        for (int64_t m = 0; m < p.messages; m++)
            if (p.message[m].size != strlen(placed[i].want[m]) ||
                memcmp(p.message[m].content, placed[i].want[m], p.message[m].size) != 0)
                fail_msg("%s: message %d is '%s'", placed[i].name, (int)m, p.message[m].content);
        assert_int_equal(p.pictures, placed[i].pictures);
        for (int64_t k = 0; k < p.pictures; k++)
            assert_int_equal(p.order[k], placed[i].order[k]);
        for (int64_t k = 0; k < p.marks; k++) {
            const char *token = placed[i].form->mark[p.mark[k].mark].token;
            assert_memory_equal(p.message[p.mark[k].message].content + p.mark[k].begin, token,
                                strlen(token));
        }
        sheaf__placed_release(&p);
    }
}

TEST(test_places__say_what_does_not_fit)
{
    static const sheaf__chat_picture one = { "<image>", 0, 0, 0 }, video = { "<video>", 0, 0, 0 },
                                     both[] = { { "<image_00>", 0, 0, 0 },
                                                { "<image_01>", 0, 0, 0 } };
    static const struct {
        sheaf__message message;
        const sheaf__chat_picture *shown;
        int64_t pictures;
        sheaf__place_options how;
        const char *want;
    } cases[] = {
        { USER("<image><image>"), &one, 1, LIST(0),
          "message 1 | names of the pictures that were given (1), each once | another '<image>' | "
          "\"<image>\" for the one picture" },
        { USER("<video><video>"), &video, 1, LIST(0), "each once | another '<video>'" },
        { USER("<image_00>"), both, 2, LIST(.lines = true),
          "1 of 2 that do not, first '<image_01>' | write the name of each" },
        { USER("<image_00><image_02><image_01>"), both, 2, LIST(.lines = true),
          "another '<image_02>'" },
        { USER("<image_00>"), &one, 1, { 0 }, "another '<image_00>'" },
        { USER("<image_00><image><image_01>"), both, 2, { .lines = true }, "another '<image>'" },
        { USER("is <image> one?"), NULL, 0, LIST(0),
          "message 1 | a picture for '<image>' | none | give the picture (`image FILE`, or" },
        { USER("<image_7>"), NULL, 0, LIST(.unread = "imges"),
          "a picture for '<image_7>' | none: a field 'imges', which is not read" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__placed p;
        CHECK_FAILS(sheaf__place_pictures(&p, &v2_0, &cases[i].message, 1, cases[i].shown,
                                          cases[i].pictures, &cases[i].how),
                    SHEAF_E_DATA, cases[i].want);
        sheaf__placed_release(&p);
    }
}

/* ---- tokens ---- */

enum { VOCAB_BYTES = 262 };

static sheaf_config byte_config(void)
{
    sheaf_config c = { .family = SHEAF_OMNILMM,
                       .vocab = VOCAB_BYTES,
                       .byte_vocab = true,
                       .resampler = { .queries = 2 },
                       .json = "{\"im_start_token\": 260, \"im_patch_token\": 259, "
                               "\"im_end_token\": 261}" };
    return c;
}

/* The ids of a text in which {N} is token N. */
static int64_t ids_of(int32_t *out, const char *text)
{
    int64_t n = 0;
    for (char *end; *text != '\0'; n++)
        if (*text == '{') {
            out[n] = (int32_t)strtol(text + 1, &end, 10);
            text = end + 1;
        } else {
            out[n] = (unsigned char)*text++;
        }
    return n;
}

static void check_ids(const int32_t *got, int64_t n, const char *want)
{
    int32_t ids[512];
    assert_int_equal(n, ids_of(ids, want));
    assert_memory_equal(got, ids, (size_t)n * sizeof *ids);
}

/* As the named template, with the marks of the config. */
static sheaf__chat_encoder encoder_of(const sheaf_config *config, const char *name, int bos)
{
    sheaf__chat_encoder s = { .bos_id = bos, .eos_id = 257 };
    sheaf__chat_template *chat;
    CHECK_OK(sheaf__chat_template_find(&chat, name));
    CHECK_OK(sheaf__chat_encoder_marks(&s, config));
    s.chat = chat;
    return s;
}

/* Says one conversation with a picture, as training data or as a prompt. */
static void say(sheaf__chat_ids *out, sheaf__chat_encoder *s, const sheaf__message *m, int64_t n,
                bool prompt)
{
    const sheaf__chat_picture one = { "<image>", 0, 0, 0 };
    sheaf__placed p;
    CHECK_OK(sheaf__place_pictures(&p, &s->form, m, n, &one, 1, &(sheaf__place_options){ 0 }));
    CHECK_OK(sheaf__chat_encode(out, s, &p, prompt));
    sheaf__placed_release(&p);
}

TEST(test_say__bytes_and_marks_of_the_config)
{
    const sheaf__message m[] = { USER("<image>a</s>"), ANSWER("b<im_patch>"), USER("c"),
                                 ANSWER("d") };
    sheaf_config config = byte_config();
    sheaf__chat_encoder s = encoder_of(&config, "zephyr", 256);
    sheaf__chat_ids said;
    int32_t target[256], behind;
    say(&said, &s, m, 4, false);
    check_ids(said.id, said.count,
              "{256}<|user|>\n{260}{259}{259}{261}a</s>{257}\n<|assistant|>\nb<im_patch>{257}\n"
              "<|user|>\nc{257}\n<|assistant|>\nd{257}\n");
    for (int64_t i = 0; i < said.count; i++)
        assert_int_equal(said.row[i], said.id[i] == 259);
    sheaf__chat_ids_targets(target, &behind, '.', &s, &said, NULL, NULL);
    check_ids(target, said.count,
              "..................................."
              "b<im_patch>{257}...........................d{257}.");
    assert_int_equal(behind, '.');
    sheaf__chat_ids_release(&said);
    say(&said, &s, m, 1, true);
    check_ids(said.id, said.count,
              "{256}<|user|>\n{260}{259}{259}{261}a</s>{257}\n<|assistant|>\n");
    sheaf__chat_ids_release(&said);
    sheaf__chat_template_free((sheaf__chat_template *)s.chat);
    config.json = "{\"im_start_token\": 260, \"im_patch_token\": 255, \"im_end_token\": 261}";
    CHECK_FAILS(sheaf__chat_encoder_marks(&s, &config), SHEAF_E_LAYOUT,
                "im_patch_token: the id of <im_patch>, from 256 to 261");
}

/* Llama 3 trims what a user wrote; marks move with it. */
TEST(test_say__marks_move_with_a_trimmed_text)
{
    const sheaf__message m[] = { USER("  a <image></s> ") };
    const sheaf_config config = byte_config();
    sheaf__chat_encoder s = encoder_of(&config, "llama3", 256);
    sheaf__chat_ids said;
    say(&said, &s, m, 1, false);
    check_ids(
        said.id, said.count,
        "{256}<|start_header_id|>user<|end_header_id|>\n\na {260}{259}{259}{261}</s><|eot_id|>");
    sheaf__chat_ids_release(&said);
    sheaf__chat_template_free((sheaf__chat_template *)s.chat);
}

/* MiniCPM's form writes no end behind an answer that another message follows. */
TEST(test_targets__an_answer_without_an_end_teaches_eos)
{
    const sheaf__message m[] = { USER("<image>"), ANSWER("b"), USER("c"), ANSWER("d") };
    const sheaf_config config = byte_config();
    sheaf__chat_encoder s = encoder_of(&config, "minicpm", -1);
    sheaf__chat_ids said;
    int32_t target[128], behind;
    say(&said, &s, m, 4, false);
    check_ids(said.id, said.count, "<用户>{260}{259}{259}{261}<AI>b<用户>c<AI>d{257}");
    sheaf__chat_ids_targets(target, &behind, '.', &s, &said, NULL, NULL);
    check_ids(target, said.count, "................b{257}............d{257}");
    s.eos_id = 0;
    sheaf__chat_ids_targets(target, &behind, '.', &s, &said, NULL, NULL);
    assert_int_equal(target[17], 0);
    sheaf__chat_ids_release(&said);
    sheaf__chat_template_free((sheaf__chat_template *)s.chat);
}

/* ---- a tokenizer ---- */

#define SPECIAL(ID, TEXT)                                                                          \
    ",{\"id\":" #ID ",\"content\":\"" TEXT                                                         \
    "\",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"                                  \
    "\"normalized\":false,\"special\":true}"

/* Bytes as in GPT-2, those of ASCII alone, and a few special tokens behind them. */
static const char *write_tokenizer(const char *with)
{
    FILE *f = fopen(at("tokenizer.json"), "w");
    assert_non_null(f);
    fprintf(f,
            "{\"version\":\"1.0\",\"added_tokens\":[%s],\"normalizer\":null,\"pre_tokenizer\":"
            "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,"
            "\"use_regex\":false},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\"},"
            "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
            "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
            "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{",
            with);
    for (int c = 33; c < 127; c++)
        fprintf(f, "\"%s%c\":%d,", c == '"' || c == '\\' ? "\\" : "", c, c - 33);
    fprintf(f, "\"\xc4\xa0\":94,\"\xc4\x8a\":95},\"merges\":[]}}");
    fclose(f);
    return at("tokenizer.json");
}

TEST(test_say__a_tokenizer_reads_marks_as_tokens)
{
    const sheaf__message m[] = { USER("<im_end> <image>a<im_end>") };
    sheaf_config config = byte_config();
    sheaf__tokenizer *t;
    sheaf__chat_template *chat;
    sheaf__chat_ids said;
    config.byte_vocab = false;
    static const char tokens[] = SPECIAL(96, "<im_start>") SPECIAL(97, "<im_patch>")
        SPECIAL(98, "<im_end>") SPECIAL(99, "<s>") SPECIAL(100, "</s>");
    CHECK_OK(sheaf__tokenizer_open(&t, write_tokenizer(tokens + 1)));
    CHECK_OK(sheaf__chat_template_find(&chat, "zephyr"));
    sheaf__chat_encoder s = {
        .tokenizer = t, .bos = "<s>", .eos = "</s>", .bos_id = 99, .eos_id = 100
    };
    CHECK_OK(sheaf__chat_encoder_marks(&s, &config));
    s.chat = chat;
    s.form.system = "S";
    say(&said, &s, m, 1, false);
    static const char want[] = "<s><|system|>\nS</s>\n<|user|>\n";
    int32_t *ids;
    int64_t n;
    CHECK_OK(sheaf__tokenizer_encode(&ids, NULL, &n, t, want, sizeof want - 1, NULL));
    assert_true(said.count > n);
    assert_memory_equal(said.id, ids, (size_t)n * sizeof *ids);
    assert_int_equal(said.id[n], '<' - 33); /* a person's words are text */
    int64_t ends = 0;
    for (int64_t i = 0; i < said.count; i++)
        ends += said.id[i] == 98;
    assert_int_equal(ends, 1);
    for (int64_t i = 0; i < said.count; i++)
        assert_int_equal(said.row[i], said.id[i] == 97);
    free(ids);
    sheaf__chat_ids_release(&said);
    sheaf__tokenizer_close(t);
    CHECK_OK(sheaf__tokenizer_open(&t, write_tokenizer("")));
    s.tokenizer = t;
    CHECK_FAILS(sheaf__chat_encoder_marks(&s, &config), SHEAF_E_UNSUPPORTED,
                "a tokenizer with the token <im_start>");
    sheaf__tokenizer_close(t);
    sheaf__chat_template_free(chat);
}

FIXTURE(make_scratch, remove_scratch);
