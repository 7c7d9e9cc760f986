/* shown_test.c - prompts and dialogues whose pictures stand in the conversation: places, pieces,
 * pixels, and the same from a file. */
#include "tests/check.h"
#include "tests/files.h"
#include "tests/pictures.h"

#include "base/file.h"
#include "infer/dialogue.h"
#include "infer/prompts.h"
#include "inputs/image.h"

#include <unistd.h>

enum { ROW = 263 };

static sheaf_config config_of(const char *family)
{
    const sheaf__family *f = sheaf__family_named(family);
    char *text = NULL;
    sheaf_config c;
    assert_non_null(f);
    CHECK_OK(f->spec_config(&text, 0));
    CHECK_OK(sheaf_config_parse(&c, text, strlen(text)));
    free(text);
    return c;
}

static void put_pictures(void)
{
    put_picture(at("a.png"), 60, 40, 1);
    put_picture(at("b.png"), 90, 150, 2); /* and two slices */
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

static void test_prompts__a_question_about_several_pictures(void **state)
{
    sheaf_config c = config_of("minicpmv");
    sheaf__wording w;
    sheaf__prompts p;
    put_pictures();
    CHECK_OK(sheaf__wording_open(&w, &c, &(sheaf__wording_options){ 0 }));
    const char *const images[] = { at("a.png"), at("b.png") };
    CHECK_OK(sheaf__prompts_read(
        &p, &w, &(sheaf__prompts_from){ .text = "Q", .image = images, .images = 2 }));
    check_prompt(&p.prompt[0],
                 "{256}<用户>" NUMBER(0) WHOLE "\n" NUMBER(1) WHOLE SLICE "\n" SLICE "\nQ<AI>");
    assert_int_equal(p.prompt[0].pictures, 4);
    assert_null(p.prompt[0].picture[0].of[0].pixels);
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &c);
    sheaf__picture *room = sheaf__picture_room_like(p.prompt[0].picture, 4, tower, 1);
    assert_non_null(room);
    CHECK_OK(sheaf__prompts_load(&p, 0, room, 4));
    sheaf_image image;
    const sheaf_image_scale halves = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
    const sheaf__view *view = &room[1].of[0];
    float *want = malloc((size_t)(3 * view->width * view->height) * sizeof *want);
    assert_non_null(want);
    CHECK_OK(sheaf_image_load(&image, images[1], NULL));
    CHECK_OK(sheaf_image_prepare(want, &image, view->width, view->height, &halves));
    CHECK_BYTES("overview of b.png", view->pixels, want,
                (size_t)(3 * view->width * view->height) * sizeof *want);
    sheaf_image_release(&image);
    free(want);
    free(room);
    sheaf__prompts_release(&p);
    CHECK_FAILS(
        sheaf__prompts_read(
            &p, &w, &(sheaf__prompts_from){ .text = "<image>Q", .image = images, .images = 2 }),
        SHEAF_E_DATA, "1 of 2 that do not");
    sheaf__prompts_release(&p);
    sheaf__wording_close(&w);
    sheaf_config_release(&c);
}

static void test_prompts__records_with_pictures(void **state)
{
    sheaf_config c = config_of("minicpmv");
    sheaf__wording w;
    sheaf__prompts p;
    put_pictures();
    FILE *f = fopen(at("asked.jsonl"), "w");
    assert_non_null(f);
    fputs("{\"image\": {\"<image_01>\": \"a.png\"}, \"conversations\": [{\"role\": \"user\", "
          "\"content\": \"see <image_01>\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n"
          "{\"prompt\": \"P <image>\"}\n{\"prompt\": \"P\", \"image\": \"a.png\"}\n"
          "{\"tokens\": [1, 2]}\n",
          f);
    fclose(f);
    CHECK_OK(sheaf__wording_open(&w, &c, &(sheaf__wording_options){ 0 }));
    CHECK_OK(sheaf__prompts_read(&p, &w, &(sheaf__prompts_from){ .file = at("asked.jsonl") }));
    assert_int_equal(p.count, 4);
    check_prompt(&p.prompt[0], "{256}<用户>see \n" NUMBER(0) WHOLE "\n<AI>");
    assert_string_equal(p.about[0].expected, "A");
    check_prompt(&p.prompt[1], "{256}<用户>P <image><AI>");
    assert_int_equal(p.prompt[1].pictures, 0);
    check_prompt(&p.prompt[2], "{256}<用户>" NUMBER(0) WHOLE "\nP<AI>");
    assert_int_equal(p.prompt[3].n, 2);
    sheaf__prompts_release(&p);
    sheaf__wording_close(&w);
    sheaf_config_release(&c);
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

static void test_dialogue__pictures_join_the_conversation(void **state)
{
    sheaf_config c = config_of("minicpmv");
    sheaf__wording w;
    sheaf__dialogue d = { .wording = &w }, again = { .wording = &w };
    put_pictures();
    CHECK_OK(sheaf__wording_open(&w, &c, &(sheaf__wording_options){ 0 }));
    CHECK_OK(sheaf__dialogue_look(&d, at("a.png"), 1));
    check_question(&d, "Q", "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>", 1);
    CHECK_OK(sheaf__dialogue_keep(&d, "Q", "A"));
    check_question(&d, "R", "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>A<用户>R<AI>", 1);
    CHECK_OK(sheaf__dialogue_look(&d, at("b.png"), 2));
    CHECK_FAILS(sheaf__dialogue_look(&d, at("none.png"), 3), SHEAF_E_IO, "none.png");
    static const char both[] =
        "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>A<用户>in " NUMBER(1) WHOLE SLICE "\n" SLICE "?<AI>";
    check_question(&d, "in <image>?", both, 4);
    CHECK_OK(sheaf__dialogue_keep(&d, "in <image>?", "B"));
    unlink(at("talk.json"));
    CHECK_OK(sheaf__dialogue_save(&d, at("talk.json")));
    CHECK_OK(sheaf__dialogue_load(&again, at("talk.json"), 4));
    assert_int_equal(again.count, 4);
    static const char more[] = "{256}<用户>" NUMBER(0) WHOLE "\nQ<AI>A<用户>in " NUMBER(1)
        WHOLE SLICE "\n" SLICE "?<AI>B<用户>S<AI>";
    check_question(&d, "S", more, 4);
    check_question(&again, "S", more, 4);
    sheaf__dialogue_reset(&d); /* pictures stay, in front of the next question */
    check_question(
        &d, "Q", "{256}<用户>" NUMBER(0) WHOLE "\n" NUMBER(1) WHOLE SLICE "\n" SLICE "\nQ<AI>", 4);
    sheaf__dialogue_release(&d);
    sheaf__dialogue_release(&again);
    sheaf__wording_close(&w);
    sheaf_config_release(&c);
}

/* Training data of one picture that no message names: it stands in front of the first. */
static void test_dialogue__a_file_that_names_no_place(void **state)
{
    sheaf_config c = config_of("omnilmm");
    sheaf__wording w;
    sheaf__dialogue d = { .wording = &w };
    put_pictures();
    FILE *f = fopen(at("one.json"), "w");
    assert_non_null(f);
    fputs("{\"image\": \"a.png\", \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, "
          "{\"role\": \"assistant\", \"content\": \"A\"}]}",
          f);
    fclose(f);
    CHECK_OK(sheaf__wording_open(&w, &c, &(sheaf__wording_options){ 0 }));
    CHECK_OK(sheaf__dialogue_load(&d, at("one.json"), 1));
    assert_string_equal(d.said[0].content, "<image>\nQ");
    sheaf__prompt prompt;
    void *block;
    CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &d, "R"));
    assert_int_equal(prompt.pictures, 1);
    assert_int_equal(prompt.picture[0].of[0].width, 84);
    free(block);
    CHECK_OK(sheaf__dialogue_system(&d, "S")); /* forgets, but the picture */
    CHECK_OK(sheaf__dialogue_ask(&prompt, &block, &d, "R"));
    assert_int_equal(prompt.pictures, 1);
    free(block);
    sheaf__dialogue_release(&d);
    sheaf__wording_close(&w);
    sheaf_config_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prompts__a_question_about_several_pictures),
        cmocka_unit_test(test_prompts__records_with_pictures),
        cmocka_unit_test(test_dialogue__pictures_join_the_conversation),
        cmocka_unit_test(test_dialogue__a_file_that_names_no_place),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
