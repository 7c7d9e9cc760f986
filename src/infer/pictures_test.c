/* pictures_test.c - prompts and dialogues whose pictures stand in the conversation: places, pieces,
 * pixels, and the same from a file. */
#include "tests/files.h"
#include "tests/heard.h"
#include "tests/pictures.h"
#include "tests/tensors.h"

#include "base/file.h"
#include "infer/dialogue.h"
#include "infer/prompts.h"
#include "inputs/image.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROW = 263 };

static sheaf_config config_of(const char *family)
{
    const sheaf__family *f = sheaf__family_named(family);
    sheaf_config c;
    assert_non_null(f);
    const char *text = sheaf__spec_config(f->specs[0].name);
    CHECK_OK(sheaf_config_parse(&c, text, strlen(text)));
    return c;
}

static void put_pictures(void)
{
    put_picture(at("a.png"), 60, 40, 1);
    put_picture(at("b.png"), 90, 150, 2); /* and two slices */
}

/* The model of a test, its prompts and a dialogue with it. */
static sheaf_config config;
static sheaf__codec codec;
static sheaf__prompts prompts;
static sheaf__dialogue talk;

static void open_model(const char *family, const char *version)
{
    config = config_of(family);
    talk = (sheaf__dialogue){ .codec = &codec };
    prompts = (sheaf__prompts){ 0 };
    CHECK_OK(sheaf__codec_open(&codec, &config, &(sheaf__codec_options){ .version = version }));
}

static void close_model(void)
{
    sheaf__prompts_release(&prompts);
    sheaf__dialogue_release(&talk);
    sheaf__codec_close(&codec);
    sheaf_config_release(&config);
}

/* A prompt as text: marks and rows of pictures as in {260}. */
static void check_prompt(const sheaf__prompt *p, const char *want)
{
    char got[4096];
    size_t n = 0;
    for (int64_t i = 0; i < p->n; i++) {
        const bool run = i > 0 && p->ids[i] == ROW && p->ids[i - 1] == ROW;
        if (p->embed != NULL)
            assert_int_equal(p->embed[i], p->ids[i] == ROW);
        if (p->ids[i] >= 256 && !run)
            n += (size_t)snprintf(got + n, 8, "{%d}", (int)p->ids[i]);
        else if (p->ids[i] < 256)
            got[n++] = (char)p->ids[i];
    }
    got[n] = '\0';
    assert_string_equal(got, want);
}

#define WHOLE "{259}{263}{260}"
#define SLICE "{261}{263}{262}"
#define NUMBER(N) "{264}" #N "{265}"

TEST(test_prompts__a_question_about_several_pictures)
{
    put_pictures();
    open_model("minicpmv", NULL);
    const char *const images[] = { at("a.png"), at("b.png") };
    CHECK_OK(sheaf__prompts_read(
        &prompts, &codec, &(sheaf_prompts_options){ .text = "Q", .images = images, .nimages = 2 }));
    check_prompt(&prompts.prompt[0],
                 "{256}<用户>" NUMBER(0) WHOLE "\n" NUMBER(1) WHOLE SLICE "\n" SLICE "\nQ<AI>");
    assert_int_equal(prompts.prompt[0].pictures, 4);
    assert_null(prompts.prompt[0].picture[0].of[0].pixels);
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &config);
    sheaf__picture *room = sheaf__picture_room_like(prompts.prompt[0].picture, 4, tower, 1);
    assert_non_null(room);
    CHECK_OK(sheaf__prompts_load(&prompts, 0, room, 4));
    sheaf_image image;
    const sheaf_image_scale halves = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
    const sheaf__view *view = &room[1].of[0];
    float *want = malloc((size_t)(3 * view->width * view->height) * sizeof *want);
    assert_non_null(want);
    CHECK_OK(sheaf_image_load(&image, images[1]));
    CHECK_OK(sheaf_image_prepare(want, &image, view->width, view->height, &halves));
    CHECK_BYTES("overview of b.png", view->pixels, want,
                (size_t)(3 * view->width * view->height) * sizeof *want);
    sheaf_image_release(&image);
    free(want);
    free(room);
    sheaf__prompts_release(&prompts);
    CHECK_FAILS(sheaf__prompts_read(
                    &prompts, &codec,
                    &(sheaf_prompts_options){ .text = "<image>Q", .images = images, .nimages = 2 }),
                SHEAF_E_DATA, "1 of 2 that do not");
    close_model();
}

/* In every form that train reads, with an answer or without; a file, or the folder that it is in.
 */
TEST(test_prompts__records_with_pictures)
{
    put_pictures();
    put(at("asked.jsonl"),
        "{\"image\": {\"<image_01>\": \"a.png\"}, \"conversations\": [{\"role\": \"user\", "
        "\"content\": \"see <image_01>\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n"
        "{\"prompt\": \"P\"}\n{\"prompt\": \"P\", \"image\": \"a.png\"}\n"
        "{\"tokens\": [1, 2]}\n"
        "{\"instruction\": \"I\", \"input\": \"<image>\", \"output\": \"O\", \"images\": "
        "[\"a.png\"]}\n"
        "{\"instruction\": \"I\", \"history\": [[\"q\", \"r\"]], \"image\": \"a.png\"}\n"
        "{\"prompt\": [{\"role\": \"user\", \"content\": \"Q\"}], \"completion\": [{\"role\": "
        "\"assistant\", \"content\": \"B\"}], \"image\": \"a.png\"}\n");
    open_model("minicpmv", NULL);
    char folder[512];
    snprintf(folder, sizeof folder, "%.*s", (int)(strlen(at("x")) - 2), at("x"));
    for (int i = 0; i < 2; i++) {
        CHECK_OK(sheaf__prompts_read(
            &prompts, &codec,
            &(sheaf_prompts_options){ .data = i == 0 ? at("asked.jsonl") : folder }));
        assert_int_equal(prompts.count, 7);
        check_prompt(&prompts.prompt[0], "{256}<用户>see \n" NUMBER(0) WHOLE "\n<AI>");
        assert_string_equal(prompts.about[0].expected, "A");
        check_prompt(&prompts.prompt[1], "{256}<用户>P<AI>");
        assert_int_equal(prompts.prompt[1].pictures, 0);
        check_prompt(&prompts.prompt[2], "{256}<用户>" NUMBER(0) WHOLE "\nP<AI>");
        assert_null(prompts.about[2].expected);
        assert_int_equal(prompts.prompt[3].n, 2);
        check_prompt(&prompts.prompt[4], "{256}<用户>I\n" NUMBER(0) WHOLE "<AI>");
        assert_string_equal(prompts.about[4].expected, "O");
        check_prompt(&prompts.prompt[5], "{256}<用户>" NUMBER(0) WHOLE "\nq<AI>r<用户>I<AI>");
        assert_null(prompts.about[5].expected);
        check_prompt(&prompts.prompt[6], "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>");
        assert_string_equal(prompts.about[6].expected, "B");
        sheaf__prompts_release(&prompts);
    }
    unlink(at("asked.jsonl"));
    close_model();
}

/* The first picture is two frames in one place; the last stands in the answer. */
TEST(test_prompts__a_row_of_tensors_has_the_pictures_before_its_answer)
{
    static const int64_t ids[] = { 'a', ROW, ROW, 'b', ROW, ROW, 'c', 'd', ROW, ROW },
                         labels[] = { -100, -100, -100, -100, -100, -100, -100, 'd', -100, -100 },
                         bounds[] = { 1, 3, 4, 6, 8, 10 }, frames[] = { 0, 3, -1, -1, -1, -1 };
    const tensor list[] = {
        { "input_ids", "I64", { 1, 10 }, ids },       { "labels", "I64", { 1, 10 }, labels },
        { "image_bound.0", "I64", { 3, 2 }, bounds }, { "temporal_ids.0", "I64", { 3, 2 }, frames },
        { "image_0_0_chw", "F32", { 3, 14, 14 } },    { "image_0_1_chw", "F32", { 3, 14, 14 } },
        { "image_0_2_chw", "F32", { 3, 14, 28 } },    { "image_0_3_chw", "F32", { 3, 14, 14 } }
    };
    open_model("minicpmv", NULL);
    config.minicpmv = SHEAF_MINICPMV_4_5;
    config.resampler.queries = 2;
    CHECK_OK(sheaf__prompts_read(
        &prompts, &codec, &(sheaf_prompts_options){ .data = tensors_file(list, ARRAY_LEN(list)) }));
    check_prompt(&prompts.prompt[0], "a{263}b{263}c");
    assert_string_equal(prompts.about[0].expected, "d");
    assert_int_equal(prompts.prompt[0].pictures, 3);
    close_model();
}

TEST(test_prompts__a_lost_picture_is_told)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        { "{\"imges\": \"a.png\", \"prompt\": \"P <image>\"}\n",
          "line 1: message 1 | a picture for '<image>' | none: a field 'imges', which is not read" },
        { "{\"tokens\": [1, 2], \"image\": \"a.png\"}\n",
          "line 1: field 'image' | no picture beside \"tokens\" | one | \"prompt\" or" },
    };
    put_pictures();
    open_model("minicpmv", NULL);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put(at("asked.jsonl"), cases[i].text);
        CHECK_FAILS(sheaf__prompts_read(&prompts, &codec,
                                        &(sheaf_prompts_options){ .data = at("asked.jsonl") }),
                    SHEAF_E_DATA, cases[i].want);
        sheaf__prompts_release(&prompts);
    }
    unlink(at("asked.jsonl"));
    close_model();
}

/* As of records that are trained: the first field that is not read, of every form. */
TEST(test_prompts__fields_that_are_not_read_are_told)
{
    static const struct {
        const char *family, *text, *want;
    } cases[] = {
        { "omnilmm", "{\"prompt\": \"Hi\", \"completion\": \"x\", \"imgs\": [\"a.png\"]}",
          "line 1: field 'imgs' is not used" },
        { "omnilmm", "{\"tokens\": [1], \"completion\": \"x\"}\n{\"tokens\": [1], \"imgs\": 1}",
          "line 2: field 'imgs' is not used" },
        { "omnilmm",
          "{\"id\": 1, \"image\": \"a.png\", \"messages\": [{\"role\": \"user\", "
          "\"content\": \"Q\", \"name\": \"N\"}]}",
          "line 1: field 'messages[].name' is not used" },
        { "omnilmm", /* as UltraChat has it: messages count, as in training */
          "{\"prompt\": \"P\", \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}",
          "line 1: field 'prompt' is not used" },
        { "omnilmm",
          "{\"functions\": [{\"name\": \"f\"}], "
          "\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}",
          "line 1: field 'functions' is not used" },
        { "omnilmm",
          "{\"functions\": [], \"tools\": \"\", "
          "\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}]}",
          "" },
        { "llama", "{\"prompt\": \"Q\", \"completion\": \"x\", \"width\": 1}",
          "line 1: field 'width' is not used" },
        { "llama", "{\"prompt\": \"Q\", \"completion\": \"x\", \"image\": \"a.png\"}",
          "line 1: field 'image' is not used: llama has no pictures" },
        { "minicpmv",
          "{\"conversations\": [{\"from\": \"human\", \"value\": \"Q\"}], "
          "\"id\": 1, \"images\": [\"a.png\"], \"imgs\": null, \"system\": \"\"}",
          "" },
    };
    put_pictures();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        put(at("asked.jsonl"), cases[i].text);
        open_model(cases[i].family, NULL);
        CHECK_OK(sheaf__prompts_read(
            &prompts, &codec,
            &(sheaf_prompts_options){ .data = at("asked.jsonl"), .events = hear_warnings() }));
        if (cases[i].want[0] == '\0' ? heard[0] != '\0' : strstr(heard, cases[i].want) == NULL)
            fail_msg("case %zu: '%s'", i, heard);
        close_model();
    }
    unlink(at("asked.jsonl"));
}

/* Of a folder each file is counted on its own. */
TEST(test_prompts__complaints_count_one_file)
{
    char folder[512];
    snprintf(folder, sizeof folder, "%s", at("files"));
    assert_int_equal(mkdir(folder, 0700), 0);
    put(at("files/a.jsonl"), "\"a\"\n\"b\"\n\"c\"\n");
    put(at("files/b.jsonl"), "\"a\"\n7\n8\n");
    open_model("minicpmv", NULL);
    CHECK_FAILS(sheaf__prompts_read(&prompts, &codec, &(sheaf_prompts_options){ .data = folder }),
                SHEAF_E_DATA, "b.jsonl: 2 of 3 records are bad");
    sheaf__prompts_release(&prompts);
    unlink(at("files/a.jsonl"));
    unlink(at("files/b.jsonl"));
    rmdir(folder);
    close_model();
}

static void check_question(const sheaf__dialogue *d, const char *query, const char *want,
                           int64_t pieces)
{
    sheaf__prompt prompt;
    void *block;
    CHECK_OK(sheaf__dialogue_ask(&prompt, &block, d, query));
    check_prompt(&prompt, want);
    assert_int_equal(prompt.pictures, pieces);
    for (int64_t i = 0; i < pieces; i++)
        assert_non_null(prompt.picture[i].of[0].pixels);
    free(block);
}

TEST(test_dialogue__pictures_join_the_conversation)
{
    sheaf__dialogue again = { .codec = &codec };
    put_pictures();
    open_model("minicpmv", NULL);
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 1));
    check_question(&talk, "Q", "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>", 1);
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "Q", "A"));
    check_question(&talk, "R", "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>A<用户>R<AI>", 1);
    CHECK_OK(sheaf__dialogue_picture(&talk, at("b.png"), 2));
    CHECK_FAILS(sheaf__dialogue_picture(&talk, at("none.png"), 3), SHEAF_E_IO, "none.png");
    static const char both[] =
        "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>A<用户>in " NUMBER(1) WHOLE SLICE "\n" SLICE "?<AI>";
    check_question(&talk, "in <image>?", both, 4);
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "in <image>?", "B"));
    unlink(at("talk.json"));
    CHECK_OK(sheaf__dialogue_save(&talk, at("talk.json")));
    CHECK_OK(sheaf__dialogue_load(&again, at("talk.json"), 4));
    assert_int_equal(again.count, 4);
    static const char more[] = "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>A<用户>in " NUMBER(1)
        WHOLE SLICE "\n" SLICE "?<AI>B<用户>S<AI>";
    check_question(&talk, "S", more, 4);
    check_question(&again, "S", more, 4);
    for (int i = 0; i < 4; i++) { /* one joined, the others were read together */
        const sheaf__view *one = &talk.picture[i].of[0], *other = &again.picture[i].of[0];
        assert_int_equal(one->width, other->width);
        CHECK_BYTES("pixels of a piece", one->pixels, other->pixels,
                    (size_t)(3 * one->width * one->height) * sizeof *one->pixels);
    }
    sheaf__dialogue_reset(&talk); /* pictures stay, in front of the next question */
    check_question(&talk, "Q",
                   "{256}<用户>" NUMBER(0) WHOLE "\n" NUMBER(1) WHOLE SLICE "\n" SLICE "\nQ<AI>",
                   4);
    sheaf__dialogue_release(&again);
    close_model();
}

/* Training data of one picture that no message names: it stands in front of the first. */
TEST(test_dialogue__a_file_that_names_no_place)
{
    put_pictures();
    FILE *f = fopen(at("one.json"), "w");
    assert_non_null(f);
    fputs("{\"image\": \"a.png\", \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, "
          "{\"role\": \"assistant\", \"content\": \"A\"}]}",
          f);
    fclose(f);
    open_model("omnilmm", NULL);
    CHECK_OK(sheaf__dialogue_load(&talk, at("one.json"), 1));
    assert_string_equal(talk.message[0].content, "<image>\nQ");
    sheaf__prompt prompt;
    void *block;
    CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &talk, "R"));
    assert_int_equal(prompt.pictures, 1);
    assert_int_equal(prompt.picture[0].of[0].width, 84);
    free(block);
    CHECK_OK(sheaf__dialogue_system(&talk, "S")); /* forgets, but the picture */
    CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &talk, "R"));
    assert_int_equal(prompt.pictures, 1);
    free(block);
    close_model();
}

#define ASKED(TEXT) "{\"role\": \"user\", \"content\": \"" TEXT "\"}, "
#define SAID(TEXT) "{\"role\": \"assistant\", \"content\": \"" TEXT "\"}"

/* Each form of a record of pictures; what is saved then is a list, in the order of the text. */
TEST(test_dialogue__every_form_of_pictures_is_loaded)
{
    static const struct {
        const char *record, *saved, *prompt;
        int64_t pieces;
    } rows[] = {
        { "{\"images\": \"a.png\", \"messages\": [" ASKED("Q") SAID("A") "]}",
          "{\"messages\": [" ASKED("<image>\\nQ") SAID("A") "], \"images\": [\"a.png\"]}\n",
          "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>A<用户>R<AI>", 1 },
        { "{\"images\": {\"<image_00>\": \"a.png\", \"<image_01>\": \"b.png\"}, "
          "\"conversations\": [" ASKED("<image_01> or <image_00>") SAID("A") "]}",
          "{\"messages\": [" ASKED("\\n<image>\\n or \\n<image>\\n")
              SAID("A") "], \"images\": [\"b.png\", \"a.png\"]}\n",
          "{256}<用户>\n" NUMBER(0) WHOLE SLICE "\n" SLICE "\n or \n" NUMBER(1) WHOLE
          "\n<AI>A<用户>R<AI>",
          4 },
        { "{\"image\": {\"<image>\": \"a.png\"}, \"messages\": [" ASKED("Q")
              SAID("A") ", " ASKED("<image>") SAID("B") "]}",
          "{\"messages\": [" ASKED("Q") SAID("A") ", " ASKED("<image>")
              SAID("B") "], \"images\": [\"a.png\"]}\n",
          "{256}<用户>Q<AI>A<用户>" NUMBER(0) WHOLE "<AI>B<用户>R<AI>", 1 },
        { "{\"image\": null, \"images\": null, \"conversations\": null, \"messages\": [" ASKED("Q")
              SAID("A") "]}",
          "{\"messages\": [" ASKED("Q") SAID("A") "]}\n", "{256}<用户>Q<AI>A<用户>R<AI>", 0 },
    };
    put_pictures();
    open_model("minicpmv", NULL);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        put(at("form.json"), rows[i].record);
        CHECK_OK(sheaf__dialogue_load(&talk, at("form.json"), 1));
        check_question(&talk, "R", rows[i].prompt, rows[i].pieces);
        CHECK_OK(sheaf__dialogue_save(&talk, at("form.json")));
        const char *text = file_text(at("form.json"), NULL);
        assert_string_equal(text, rows[i].saved);
        CHECK_OK(sheaf__dialogue_load(&talk, at("form.json"), 2));
        check_question(&talk, "R", rows[i].prompt, rows[i].pieces);
        sheaf__dialogue_release(&talk);
    }
    close_model();
}

/* A picture of the working folder, a file in another one, loaded from a third. */
TEST(test_dialogue__is_loaded_from_anywhere)
{
    static const char *const families[] = { "minicpmv", "cogvlm" };
    static const char *const wants[] = { "\"images\": [\"../a.png\"]}",
                                         "\"image\": \"../a.png\"}" };
    char *here = getcwd(NULL, 0);
    put_pictures();
    CHECK_OK(sheaf__make_dirs(at("talks")));
    for (int i = 0; i < 2; i++) {
        open_model(families[i], i == 0 ? NULL : "chat");
        assert_int_equal(chdir(at(".")), 0);
        CHECK_OK(sheaf__dialogue_picture(&talk, "a.png", 1));
        CHECK_OK(sheaf__dialogue_add_turn(&talk, "Q", "A"));
        unlink("talks/t.json");
        CHECK_OK(sheaf__dialogue_save(&talk, "talks/t.json"));
        const char *text = file_text("talks/t.json", NULL);
        assert_non_null(strstr(text, wants[i]));
        CHECK_OK(sheaf__dialogue_load(&talk, "talks/t.json", 2));
        assert_int_equal(chdir("talks"), 0);
        CHECK_OK(sheaf__dialogue_load(&talk, "t.json", 3));
        assert_int_equal(chdir("/"), 0);
        CHECK_OK(sheaf__dialogue_load(&talk, at("talks/t.json"), 4));
        assert_non_null(talk.picture);
        unlink(at("t.json"));
        CHECK_OK(sheaf__dialogue_save(&talk, at("t.json")));
        CHECK_OK(sheaf__dialogue_load(&talk, at("t.json"), 5));
        close_model();
    }
    assert_int_equal(chdir(here), 0);
    free(here);
}

/* A picture without a question is no part of the conversation. */
TEST(test_dialogue__pictures_that_wait_are_not_saved)
{
    put_pictures();
    open_model("omnilmm", NULL);
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 1));
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "Q", "A"));
    CHECK_OK(sheaf__dialogue_picture(&talk, at("b.png"), 2));
    unlink(at("wait.json"));
    CHECK_OK(sheaf__dialogue_save(&talk, at("wait.json")));
    assert_int_equal(talk.pieces, 2);
    CHECK_OK(sheaf__dialogue_load(&talk, at("wait.json"), 3));
    assert_int_equal(talk.pieces, 1);
    close_model();
}

/* Another process has the folder: a save waits for it. */
TEST(test_dialogue__a_save_waits_for_another)
{
    int ends[2];
    char byte;
    open_model("omnilmm", NULL);
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "Q", "A"));
    assert_int_equal(pipe2(ends, O_NONBLOCK | O_CLOEXEC), 0);
    const int dir = open(scratch.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(dir, LOCK_EX), 0);
    const pid_t other = fork();
    if (other == 0) {
        const struct timespec nap = { .tv_nsec = 300000000 };
        nanosleep(&nap, NULL);
        _exit(write(ends[1], "x", 1) != 1 || flock(dir, LOCK_UN) != 0);
    }
    CHECK_OK(sheaf__dialogue_save(&talk, at("alone.json")));
    assert_int_equal(read(ends[0], &byte, 1), 1);
    assert_int_equal(waitpid(other, NULL, 0), other);
    close(dir);
    close(ends[0]);
    close(ends[1]);
    close_model();
}

/* A field that was perhaps meant is told while the file is read; it is gone with the record. */
TEST(test_dialogue__a_field_of_the_file_is_not_kept)
{
    sheaf__prompt prompt;
    void *block = NULL;
    put(at("form.json"), "{\"imgs\": [\"a.png\"], \"messages\": [" ASKED("Q") SAID("A") "]}");
    open_model("minicpmv", NULL);
    CHECK_OK(sheaf__dialogue_load(&talk, at("form.json"), 1));
    CHECK_FAILS(sheaf__dialogue_ask(&prompt, &block, &talk, "What is <image_00>?"), SHEAF_E_DATA,
                "a picture for '<image_00>' | none | give the picture");
    close_model();
}

/* Of a model that reads one picture, by the name that the record gives it. */
TEST(test_dialogue__one_picture_is_refused_by_its_field)
{
    static const char *const fields[] = { "image", "images" };
    put_pictures();
    open_model("cogvlm", NULL);
    for (int i = 0; i < 2; i++) {
        char record[200], want[100];
        snprintf(record, sizeof record, "{\"%s\": 3, \"messages\": [" ASKED("Q") SAID("A") "]}",
                 fields[i]);
        snprintf(want, sizeof want, "field '%s' | a path: this model reads one picture | 3",
                 fields[i]);
        put(at("bad.json"), record);
        CHECK_FAILS(sheaf__dialogue_load(&talk, at("bad.json"), 1), SHEAF_E_DATA, want);
    }
    const char *const two[] = { at("a.png"), at("b.png") };
    CHECK_FAILS(
        sheaf__prompts_read(&prompts, &codec,
                            &(sheaf_prompts_options){ .text = "Q", .images = two, .nimages = 2 }),
        SHEAF_E_UNSUPPORTED, "one: cogvlm reads no more in a prompt | 2 | a prompt for each image");
    sheaf__prompts_release(&prompts);
    close_model();
}

/* A file with pictures in other places fails at once, and nothing changes. */
TEST(test_dialogue__says_where_pictures_do_not_stand)
{
    static const struct {
        const char *record, *says;
    } rows[] = {
        { "{\"image\": [\"a.png\", \"a.png\"], \"messages\": [" ASKED("<image>") SAID("A") "]}",
          "stand in front) | 1 of 2 that do not, first '<image>' | in users' messages the name of each" },
        { "{\"image\": \"a.png\", \"messages\": [" ASKED("<image>") SAID("A") ", " ASKED("<image>")
              SAID("A") "]}",
          "bad.json: message 3 | names of the pictures that were given (1), each once | another '<image>'" },
        { "{\"messages\": [" ASKED("<image>") SAID("A") "]}",
          "bad.json: message 1 | a picture for '<image>' | none | in users' messages the name of each" },
        { "{\"img\": \"a.png\", \"messages\": [" ASKED("<image>") SAID("A") "]}",
          "none: a field 'img', which is not read" },
        { "{\"image\": {\"<image_00>\": \"a.png\"}, \"messages\": [" ASKED("<image> <image_00>")
              SAID("A") "]}",
          "each once | another '<image>'" },
        { "{\"image\": {\"<image_00>\": \"a.png\"}, \"messages\": [" ASKED("<image_01>")
              SAID("A") "]}",
          "each once | another '<image_01>'" },
        { "{\"image\": 3, \"messages\": [" ASKED("Q") SAID("A") "]}",
          "bad.json: field 'image' | a path, a list of paths" },
        { "{\"image\": \"a.png\", \"images\": [], \"messages\": [" ASKED("Q") SAID("A") "]}",
          "bad.json: field 'images' | either" },
    };
    put_pictures();
    open_model("minicpmv", NULL);
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "Q", "A"));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        put(at("bad.json"), rows[i].record);
        CHECK_FAILS(sheaf__dialogue_load(&talk, at("bad.json"), 1), SHEAF_E_DATA, rows[i].says);
        assert_int_equal(talk.count, 2);
    }
    close_model();
}

TEST(test_dialogue__pictures_are_taken_back)
{
    sheaf__prompt prompt;
    void *block = NULL;
    put_pictures();
    open_model("minicpmv", NULL);
    CHECK_FAILS(sheaf__dialogue_picture(&talk, NULL, 1), SHEAF_E_ARG, "that no question has shown");
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 2));
    CHECK_OK(sheaf__dialogue_picture(&talk, NULL, 3));
    check_question(&talk, "Q", "{256}<用户>Q<AI>", 0);
    CHECK_OK(sheaf__dialogue_picture(&talk, at("b.png"), 4));
    CHECK_OK(sheaf__dialogue_add_turn(&talk, "Q", "A"));
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 5));
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 6));
    CHECK_OK(sheaf__dialogue_picture(&talk, NULL, 7));
    static const char want[] = "{256}<用户>" NUMBER(0) WHOLE SLICE "\n" SLICE "\nQ<AI>A<用户>R<AI>";
    check_question(&talk, "R", want, 3);
    assert_int_equal(talk.look, 7);
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 8));
    static const char more[] =
        "{256}<用户>" NUMBER(0) WHOLE SLICE "\n" SLICE "\nQ<AI>A<用户>" NUMBER(1) WHOLE "\nR<AI>";
    check_question(&talk, "R", more, 4);
    CHECK_OK(sheaf__dialogue_ask_alone(&prompt, &block, &talk, "R"));
    check_prompt(&prompt,
                 "{256}<用户>" NUMBER(0) WHOLE SLICE "\n" SLICE "\n" NUMBER(1) WHOLE "\nR<AI>");
    free(block);
    check_question(&talk, "R", more, 4);
    close_model();
}

TEST(test_dialogue__a_question_without_its_pictures)
{
    sheaf__prompt prompt;
    void *block = NULL;
    put_pictures();
    open_model("minicpmv", NULL);
    CHECK_FAILS(sheaf__dialogue_ask(&prompt, &block, &talk, "<image>?"), SHEAF_E_DATA,
                "question | no '<image>', as no picture waits for a question | 1 of them | "
                "one more picture (/image FILE in sheaf chat)");
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 1));
    CHECK_OK(sheaf__dialogue_picture(&talk, at("a.png"), 2));
    CHECK_FAILS(sheaf__dialogue_ask(&prompt, &block, &talk, "<image>?"), SHEAF_E_DATA,
                "waits for a question (2), or nowhere: then they stand in front | 1 of them");
    check_question(&talk, "<image> <image>",
                   "{256}<用户>" NUMBER(0) WHOLE " " NUMBER(1) WHOLE "<AI>", 2);
    codec.max_length = 10;
    CHECK_FAILS(sheaf__dialogue_ask(&prompt, &block, &talk, "<image> <image>"), SHEAF_E_DATA,
                "a max_length above ");
    close_model();
}

FIXTURE(make_scratch, remove_scratch);
