/* data_records_test.c - folders and JSON records with images: the batches they give, what is
 * refused, and that neither threads nor what was announced change anything. */
#include "tests/byte_config.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/pictures.h"

#include <inttypes.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

#include "formats/safetensors.h"
#include "inputs/image.h"
#include "inputs/tokenizer/tokenizer.h"
#include "data/data.h"
#include "data/data_pictures.h"
#include "data/data_rows.h"

enum { P = 4, SIDE = 28, CROSS = 56, PIXELS = 3 * SIDE * SIDE, CROSSED = 3 * CROSS * CROSS };

static sheaf_config model(bool second_tower)
{
    sheaf_config c = byte_config;
    c.family = second_tower ? SHEAF_COGAGENT : SHEAF_COGVLM;
    c.patches = P;
    c.vit = (sheaf_vit){ .channels = 3, .height = SIDE, .width = SIDE, .patch = 14 };
    c.encoder.image = CROSS;
    c.encoder.channels = 3;
    return c;
}

static sheaf_status *open_with(sheaf_data **data, const char *path, const sheaf_config *config,
                               int64_t seq)
{
    return sheaf_data_open(
        data, path,
        &(sheaf_data_options){ .config = config, .seq = seq, .threads = 3, .micro_batch = 1 });
}

static sheaf_data *opened(const char *path, bool second_tower)
{
    const sheaf_config config = model(second_tower);
    sheaf_data *data = NULL;
    CHECK_OK(open_with(&data, path, &config, 0));
    return data;
}

/* A folder of captchas with different sizes of pictures; "NAME.k.png". */
static const char *const answers[] = { "7", "1234", "ab", "xyz12", "Q", "00", "long-answer", "e" };
enum { ROWS = ARRAY_LEN(answers) };

static const char *picture(int row)
{
    return at_format("captcha/%d/%s.%d.png", row, answers[row], row);
}

static void make_captchas(void)
{
    mkdir(at("captcha"), 0777);
    for (int r = 0; r < ROWS; r++) {
        mkdir(at_format("captcha/%d", r), 0777);
        put_picture(picture(r), 10 + 7 * r, 40 - 3 * r, (uint32_t)r + 1);
    }
}

/* ---- equality with pre-tokenised data ---- */

/* Row by row as CogVLM's data set builds them: bos, BOI, patches, EOI, prompt, answer, eos;
 * position ids stand still within the patches. */
typedef struct tables {
    int64_t ids[ROWS][64], labels[ROWS][64], position[ROWS][64], mask[ROWS][64], embed[ROWS][64],
        expert[ROWS][64];
} tables;

static void lay_out(tables *t, int64_t seq)
{
    for (int r = 0; r < ROWS; r++) {
        char text[64];
        snprintf(text, sizeof text, "CAPTCHA:%s", answers[r]);
        const int prompt = 8, n = (int)strlen(text), image = P + 2, used = 1 + image + n + 1;
        assert_true(used <= seq && seq <= 64);
        for (int64_t i = 0; i < seq; i++) {
            const bool inside = i >= 3 && i < 2 + P;
            const int64_t before = i == 0 ? -1 : t->position[r][i - 1];
            const bool trained = i >= 1 + image + prompt && i < used;
            t->ids[r][i] = i == 0          ? BOS
                           : i <= image    ? 0
                           : i < used - 1  ? text[i - 1 - image]
                           : i == used - 1 ? EOS
                                           : PAD;
            t->labels[r][i] = trained ? t->ids[r][i] : -100;
            t->position[r][i] = before + !inside;
            t->mask[r][i] = i < used;
            t->embed[r][i] = i >= 1 && i <= image;
            t->expert[r][i] = i >= 1 && i < image;
        }
    }
}

static void write_rows(sheaf_safetensors_writer *w, int64_t tensor, const int64_t from[ROWS][64],
                       int64_t seq)
{
    for (int r = 0; r < ROWS; r++)
        CHECK_OK(sheaf__safetensors_write(w, tensor, r * seq * 8, from[r], seq * 8));
}

static const char *tokens_file(const tables *t, int64_t seq)
{
    sheaf_safetensors_spec spec[8];
    static const char *const name[] = {
        "input_ids",      "labels",           "position_ids",
        "attention_mask", "image_embed_mask", "vision_expert_mask"
    };
    for (int i = 0; i < 6; i++)
        spec[i] = (sheaf_safetensors_spec){
            .name = name[i], .dtype = SHEAF_I64, .ndim = 2, .shape = { ROWS, seq }
        };
    spec[6] = (sheaf_safetensors_spec){
        .name = "vision_image", .dtype = SHEAF_F32, .ndim = 4, .shape = { ROWS, 3, SIDE, SIDE }
    };
    spec[7] = (sheaf_safetensors_spec){
        .name = "cross_image", .dtype = SHEAF_F32, .ndim = 4, .shape = { ROWS, 3, CROSS, CROSS }
    };
    sheaf_safetensors_writer *w;
    CHECK_OK(sheaf__safetensors_begin(&w, at("same.safetensors"), spec, 8, NULL, 0));
    write_rows(w, 0, t->ids, seq);
    write_rows(w, 1, t->labels, seq);
    write_rows(w, 2, t->position, seq);
    write_rows(w, 3, t->mask, seq);
    write_rows(w, 4, t->embed, seq);
    write_rows(w, 5, t->expert, seq);
    for (int r = 0; r < ROWS; r++) {
        static float pixels[PIXELS], cross[CROSSED];
        sheaf_image image;
        CHECK_OK(sheaf_image_load(&image, picture(r)));
        CHECK_OK(sheaf_image_prepare(pixels, &image, SIDE, SIDE, &sheaf_image_clip_scale));
        CHECK_OK(sheaf_image_prepare(cross, &image, CROSS, CROSS, &sheaf_image_clip_scale));
        CHECK_OK(sheaf__safetensors_write(w, 6, r * (int64_t)sizeof pixels, pixels, sizeof pixels));
        CHECK_OK(sheaf__safetensors_write(w, 7, r * (int64_t)sizeof cross, cross, sizeof cross));
        sheaf_image_release(&image);
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    return at("same.safetensors");
}

static void place(sheaf__picture *out, int64_t n, float *pixels, float *cross)
{
    const sheaf__tower tower[] = { { .channels = 3, .height = SIDE, .width = SIDE },
                                   { .channels = 3, .height = CROSS, .width = CROSS } };
    sheaf__picture_place(out, n, (float *[]){ pixels, cross }, tower, 2);
}

/* Everything a run reads of a data set, in one block. */
typedef struct whole {
    int32_t tokens[ROWS * 64], labels[ROWS * 64], position[ROWS * 64], image_row[ROWS * (P + 2)],
        stream[2][ROWS * 64];
    uint8_t mask[ROWS * 64];
    float pixels[ROWS * PIXELS], cross[ROWS * CROSSED];
    sheaf_batch_images holds;
} whole;

static whole *read_whole(const sheaf_data *data, const int64_t *row, int64_t n)
{
    whole *w = calloc(1, sizeof *w);
    assert_non_null(w);
    sheaf__picture picture[ROWS];
    place(picture, ROWS, w->pixels, w->cross);
    const sheaf_batch batch = { w->tokens, w->labels,    w->position,
                                w->mask,   w->image_row, { w->stream[0], w->stream[1] },
                                picture };
    w->holds = sheaf_data_images(data, row, n);
    CHECK_OK(sheaf_data_batch(&batch, data, row, n));
    CHECK_OK(sheaf_data_pixels(&batch, data, row, n));
    int64_t next = 0;
    for (int64_t i = 0; i < n; i++)
        if (row[i] >= 0)
            assert_int_equal(picture[next++].row, i);
    return w;
}

TEST(test_folder__gives_the_batch_of_the_same_rows_as_tensors)
{
    const sheaf_config config = model(true);
    sheaf_data *folder = opened(at("captcha"), true), *tensors = NULL;
    const int64_t seq = sheaf_data_seq(folder);
    assert_int_equal(seq, 1 + P + 2 + 8 + 11 + 4); /* of "long-answer" */
    static tables t;
    static float room[PIXELS + CROSSED];
    lay_out(&t, seq);
    CHECK_OK(open_with(&tensors, tokens_file(&t, seq), &config, 0));
    assert_int_equal(sheaf_data_rows(folder), ROWS);
    const int64_t some[] = { 3, 0, -1, 6, 5 }, all[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    const struct {
        const int64_t *row;
        int64_t n;
    } batch[] = { { some, 5 }, { all, 8 }, { some + 2, 1 } };
    for (size_t i = 0; i < ARRAY_LEN(batch); i++) {
        whole *a = read_whole(folder, batch[i].row, batch[i].n),
              *b = read_whole(tensors, batch[i].row, batch[i].n);
        CHECK_BYTES("batch", a, b, sizeof *a);
        assert_int_equal(sheaf_data_labels(folder, batch[i].row, batch[i].n),
                         sheaf_data_labels(tensors, batch[i].row, batch[i].n));
        assert_int_equal(sheaf_data_tokens(folder, batch[i].row, batch[i].n),
                         sheaf_data_tokens(tensors, batch[i].row, batch[i].n));
        assert_int_equal(a->holds.pictures.images, i == 0 ? 4 : i == 1 ? 8 : 0);
        free(a);
        free(b);
    }
    sheaf__picture small;
    place(&small, 1, room, room + PIXELS);
    small.of[1].width--;
    CHECK_FAILS(sheaf_data_pixels(&(sheaf_batch){ .picture = &small }, tensors, all, 1),
                SHEAF_E_ARG, "room for an image");
    sheaf_data_close(folder);
    sheaf_data_close(tensors);
}

/* ---- images ahead of the step ---- */

typedef struct reading {
    const sheaf_data *data;
    const float *want;
    unsigned seed;
    int wrong;
} reading;

static void *read_at_random(void *arg)
{
    reading *r = arg;
    float *pixels = malloc((PIXELS + CROSSED) * sizeof *pixels), *cross = pixels + PIXELS;
    sheaf__picture picture;
    place(&picture, 1, pixels, cross);
    for (int i = 0; i < 150; i++) {
        const int64_t row = rand_r(&r->seed) % ROWS,
                      next[] = { rand_r(&r->seed) % ROWS, -1, rand_r(&r->seed) % ROWS };
        if (i % 3 == 0)
            sheaf_data_announce(r->data, next, 3);
        sheaf_status *st =
            sheaf_data_pixels(&(sheaf_batch){ .picture = &picture }, r->data, &row, 1);
        r->wrong += st != NULL || memcmp(pixels, r->want + row * (PIXELS + CROSSED),
                                         (PIXELS + CROSSED) * sizeof *pixels) != 0;
        sheaf_status_free(st);
    }
    free(pixels);
    return NULL;
}

TEST(test_pixels__are_the_same_in_any_order_from_many_threads)
{
    enum { THREADS = 6 };
    sheaf_data *data = opened(at("captcha"), true);
    float *want = malloc(ROWS * (PIXELS + CROSSED) * sizeof *want);
    for (int64_t r = 0; r < ROWS; r++) {
        sheaf_image image;
        CHECK_OK(sheaf_image_load(&image, picture((int)r)));
        CHECK_OK(sheaf_image_prepare(want + r * (PIXELS + CROSSED), &image, SIDE, SIDE,
                                     &sheaf_image_clip_scale));
        CHECK_OK(sheaf_image_prepare(want + r * (PIXELS + CROSSED) + PIXELS, &image, CROSS, CROSS,
                                     &sheaf_image_clip_scale));
        sheaf_image_release(&image);
    }
    pthread_t thread[THREADS];
    reading r[THREADS];
    for (int i = 0; i < THREADS; i++) {
        r[i] = (reading){ data, want, (unsigned)i, 0 };
        assert_int_equal(pthread_create(&thread[i], NULL, read_at_random, &r[i]), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_int_equal(r[i].wrong, 0);
    }
    sheaf_data_close(data);
    free(want);
}

/* Announced rows are decoded without a request, and no more of them than fit. */
TEST(test_announce__decodes_in_the_background_within_bounds)
{
    sheaf_data *data = opened(at("captcha"), true);
    const int64_t all[] = { 0, 1, 2, 3, 4, 5, 6, 7 };
    int held = 0;
    assert_int_equal(sheaf__pictures_held(data->images->self), 0);
    sheaf_data_announce(data, all, ROWS);
    for (int wait = 0; wait < 2000 && held < 3; wait++, usleep(5000))
        held = (int)sheaf__pictures_held(data->images->self);
    assert_int_equal(held, 3); /* three times --micro-batch 1 */
    usleep(50000);
    assert_int_equal(sheaf__pictures_held(data->images->self), 3);
    const int64_t bytes = sheaf_data_memory(data), image = 3 * (SIDE * SIDE + CROSS * CROSS);
    sheaf_data_close(data);
    const sheaf_config config = model(true);
    CHECK_OK(sheaf_data_open(
        &data, at("captcha"),
        &(sheaf_data_options){ .config = &config, .threads = 1, .micro_batch = 2 }));
    assert_true(sheaf_data_memory(data) - bytes >= 3 * image &&
                sheaf_data_memory(data) - bytes < 3 * image + 1024);
    sheaf_data_close(data);
}

TEST(test_images__the_check_stops_when_it_is_asked_to)
{
    const sheaf_config config = model(false);
    sheaf_data *data = NULL;
    for (int threads = 1; threads <= 3; threads += 2) {
        atomic_int stop = 15;
        const sheaf_data_options options = {
            .config = &config, .threads = threads, .micro_batch = 1, .stop = &stop
        };
        CHECK_FAILS(sheaf_data_open(&data, at("captcha"), &options), SHEAF_E_STOPPED,
                    "while images were checked");
        assert_null(data);
        atomic_store(&stop, 0);
        CHECK_OK(sheaf_data_open(&data, at("captcha"), &options));
        sheaf_data_close(data);
        data = NULL;
    }
}

/* A rank that announces and goes, and a data set that is closed while workers decode. */
TEST(test_announce__a_data_set_may_be_closed_at_any_time)
{
    for (int i = 0; i < 20; i++) {
        sheaf_data *data = opened(at("captcha"), i % 2 == 0);
        const int64_t row[] = { i % ROWS, (i + 1) % ROWS, (i + 2) % ROWS };
        sheaf_data_announce(data, row, 3);
        usleep((unsigned)(i * 100));
        sheaf_data_close(data);
    }
}

/* ---- files that change after they were checked ---- */

static sheaf_status *load_one(const sheaf_data *data, int64_t row)
{
    static float pixels[PIXELS], cross[CROSSED];
    sheaf__picture picture;
    place(&picture, 1, pixels, cross);
    return sheaf_data_pixels(&(sheaf_batch){ .picture = &picture }, data, &row, 1);
}

static void *load_second(void *arg)
{
    return load_one(arg, 2);
}

TEST(test_pixels__a_file_that_is_gone_or_changed_stops_everyone)
{
    sheaf_data *data = opened(at("captcha"), true);
    const int64_t row = 2;
    CHECK_OK(sheaf__rename(picture(2), at("kept.png")));
    for (int again = 0; again < 2; again++) {
        pthread_t thread[4];
        sheaf_data_announce(data, &row, 1);
        for (int i = 0; i < 4; i++)
            assert_int_equal(pthread_create(&thread[i], NULL, load_second, data), 0);
        for (int i = 0; i < 4; i++) {
            void *st = NULL;
            pthread_join(thread[i], &st);
            CHECK_FAILS((sheaf_status *)st, again ? SHEAF_E_DATA : SHEAF_E_IO,
                        again ? "ab.2.png: changed" : "ab.2.png");
        }
        put_picture(picture(2), 12, 12, 77);
    }
    CHECK_OK(load_one(data, 3));
    CHECK_OK(sheaf__rename(at("kept.png"), picture(2)));
    CHECK_OK(load_one(data, row)); /* it is as it was */
    sheaf_data_close(data);
}

TEST(test_hash__knows_the_bytes_of_the_images_not_their_place)
{
    char first[33];
    sheaf_data *data = opened(at("captcha"), true);
    strcpy(first, sheaf_data_hash(data));
    sheaf_data_close(data);
    CHECK_OK(sheaf__rename(at("captcha"), at("moved")));
    data = opened(at("moved"), true);
    assert_string_equal(sheaf_data_hash(data), first);
    sheaf_data_close(data);
    CHECK_OK(sheaf__rename(at("moved"), at("captcha")));
    put_picture(picture(5), 10 + 7 * 5, 40 - 3 * 5, 99); /* another picture of the same size */
    data = opened(at("captcha"), true);
    assert_string_not_equal(sheaf_data_hash(data), first);
    sheaf_data_close(data);
    put_picture(picture(5), 10 + 7 * 5, 40 - 3 * 5, 6);
    data = opened(at("captcha"), true);
    assert_string_equal(sheaf_data_hash(data), first);
    sheaf_data_close(data);
}

/* ---- what is refused ---- */

TEST(test_seq__is_what_the_longest_record_needs)
{
    const sheaf_config config = model(false);
    sheaf_data *data = NULL;
    const int64_t need = 1 + P + 2 + 8 + 11 + 4;
    CHECK_OK(open_with(&data, at("captcha"), &config, need));
    assert_int_equal(sheaf_data_seq(data), need);
    sheaf_data_close(data);
    CHECK_OK(open_with(&data, at("captcha"), &config, 2 * need));
    assert_int_equal(sheaf_data_seq(data), 2 * need);
    sheaf_data_close(data);
    data = NULL;
    CHECK_FAILS(
        open_with(&data, at("captcha"), &config, need - 1), SHEAF_E_DATA,
        "long-answer.6.png: text | at most 29 positions, the value of `seq` | 30: 15 before the answer (1 for bos, 6 for the "
        "image, 8 for the prompt), 15 for the answer, its end and what must be left | `seq 30`");
    CHECK_FAILS(open_with(&data, at("captcha"), &config, 20), SHEAF_E_DATA,
                "8 of 8 records are bad");
    CHECK_FAILS(open_with(&data, at("captcha"), &config, 16), SHEAF_E_ARG,
                "at least 17 and the tokens of the prompt");
    assert_null(data);
}

TEST(test_check__bad_records_are_all_named)
{
    const sheaf_config config = model(false);
    sheaf_data *data = NULL;
    mkdir(at("bad"), 0777);
    put_picture(at("bad/1.png"), 5, 5, 1);
    put_picture(at("bad/2.png"), 5, 5, 2);
    truncate(at("bad/2.png"), 90);
    put(at("bad/3.png"), "this is text");
    put(at("bad/4.jpg"), "");
    put_picture(at("bad/.5.png"), 5, 5, 1); /* no answer */
    const char *const part[] = { "4 of 5 records are bad", "/bad/2.png", "/bad/3.png: ",
                                 "/bad/4.jpg: ", "/bad/.5.png: expected an answer" };
    for (size_t i = 0; i < ARRAY_LEN(part); i++)
        CHECK_FAILS(open_with(&data, at("bad"), &config, 0), SHEAF_E_DATA, part[i]);
    for (int i = 100; i < 130; i++) /* twenty are listed */
        put(at_format("bad/%d.png", i), "no picture");
    CHECK_FAILS(open_with(&data, at("bad"), &config, 0), SHEAF_E_DATA, "34 of 35 records are bad");
    CHECK_FAILS(open_with(&data, at("bad"), &config, 0), SHEAF_E_DATA, "and 14 more");
    mkdir(at("alone"), 0777);
    put(at("alone/x.png"), "this is text");
    put(at("alone.jsonl"),
        "\n{\"image\": \"alone/x.png\", \"prompt\": \"a\", \"completion\": \"b\"}\n");
    char want[500];
    snprintf(want, sizeof want, "%s: %s: image | ", at("alone"), at("alone/x.png"));
    CHECK_FAILS(open_with(&data, at("alone"), &config, 0), SHEAF_E_FORMAT, want);
    snprintf(want, sizeof want, "%s: line 2: %s: image | ", at("alone.jsonl"), at("alone/x.png"));
    CHECK_FAILS(open_with(&data, at("alone.jsonl"), &config, 0), SHEAF_E_FORMAT, want);
    assert_null(data);
}

TEST(test_json__lines_are_named_and_text_alone_is_for_cogvlm)
{
    const sheaf_config vlm = model(false), agent = model(true);
    sheaf_data *data = NULL;
    put_picture(at("one.png"), 9, 9, 3);
    put(at("one.jsonl"),
        "{\"image\": \"one.png\", \"conversations\": [{\"from\": \"human\", \"value\": \"<image>\\nWhat?\"}, "
        "{\"from\": \"gpt\", \"value\": \"A dot.\"}]}\n"
        "{\"prompt\": \"Hello\", \"completion\": \"you\"}\n");
    CHECK_OK(open_with(&data, at("one.jsonl"), &vlm, 0));
    const int64_t row[] = { 0, 1 };
    const sheaf_batch_images holds = sheaf_data_images(data, row, 2);
    assert_int_equal(holds.pictures.images, 1);
    assert_int_equal(holds.image_rows, P + 1);
    int32_t tokens[64];
    assert_int_equal(sheaf_data_seq(data), 1 + P + 2 + 5 + 10);
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = tokens }, data, row + 1, 1));
    static const int32_t text[] = { BOS, 'H', 'e', 'l', 'l', 'o', 'y', 'o', 'u', EOS, PAD };
    CHECK_BYTES("text alone", tokens, text, sizeof text);
    sheaf_data_close(data);
    data = NULL;
    CHECK_FAILS(open_with(&data, at("one.jsonl"), &agent, 0), SHEAF_E_DATA,
                "one.jsonl: line 2: image | one: the cross-attention of cogagent");
    put(at("two.jsonl"), "{\"image\": \"one.png\", \"prompt\": \"a\", \"completion\": \"b\"}\n"
                         "{\"image\": \"none.png\", \"prompt\": \"a\", \"completion\": \"b\"}\n");
    CHECK_FAILS(open_with(&data, at("two.jsonl"), &vlm, 0), SHEAF_E_DATA, "line 2: ");
    CHECK_FAILS(open_with(&data, at("two.jsonl"), &vlm, 0), SHEAF_E_DATA, "none.png");
    put(at("three.jsonl"),
        "{\"image\": \"one.png\", \"prompt\": \"a\", \"completion\": \"\"}\n{\"prompt\": 3}\n");
    CHECK_FAILS(open_with(&data, at("three.jsonl"), &vlm, 0), SHEAF_E_DATA,
                "2 of 2 records are bad");
    assert_null(data);
}

TEST(test_folder__is_refused_for_a_model_of_text)
{
    sheaf_data *data = NULL;
    CHECK_FAILS(
        open_with(&data, at("captcha"), &byte_config, 0), SHEAF_E_UNSUPPORTED,
        "a folder with none | of images (a folder of them is for CogVLM and CogAgent) a file "
        "of records that name them: {\"image\": PATH");
}

/* ---- tokenizer and template ---- */

static void first_tokens(int32_t *to, int n, const sheaf_data_options *options)
{
    sheaf_data *data = NULL;
    CHECK_OK(sheaf_data_open(&data, at("one.png.jsonl"), options));
    int32_t tokens[200];
    assert_true(sheaf_data_seq(data) <= 200);
    const int64_t row = 0;
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = tokens }, data, &row, 1));
    memcpy(to, tokens, (size_t)n * sizeof *to);
    sheaf_data_close(data);
}

typedef struct told {
    int notes, warnings;
    char text[200];
} told;

static void keep_told(void *context, const sheaf_event *event)
{
    told *t = context;
    t->notes += event->kind == SHEAF_EVENT_NOTE;
    t->warnings += event->kind == SHEAF_EVENT_WARNING;
    if (event->kind == SHEAF_EVENT_NOTE)
        snprintf(t->text, sizeof t->text, "%s", event->text);
}

TEST(test_words__tokenizer_and_template_are_found_or_given)
{
    static const char pads[] = "\x12\x07\x82\x03\x04</s>"; /* its pad_piece */
    const char *tokenizer = golden("cogvlm/tiny_tokenizer.model");
    put(at("one.png.jsonl"),
        "{\"image\": \"one.png\", \"prompt\": \"dog\", \"completion\": \"cat\"}\n");
    put_picture(at("one.png"), 9, 9, 3);
    sheaf__tokenizer *own;
    CHECK_OK(sheaf__tokenizer_open_pieces(&own, tokenizer));
    static const struct {
        const char *given, *config, *prompt;
    } cases[] = {
        { NULL, "{}", "dog" },
        { NULL, "{\"text_processor_version\": \"vqa\"}", "Question: dog Short answer:" },
        { "chat", "{\"text_processor_version\": \"vqa\"}", " [INST] dog [/INST] " },
        { "", "{\"text_processor_version\": \"chat_old\"}", "Question: dog Answer:" },
        { NULL, "{\"text_processor_version\": \"another\"}", "dog" },
    };
    sheaf_config config = model(false);
    config.vocab = 1000;
    config.byte_vocab = false;
    config.bos = 1;
    config.eos[0] = 2;
    config.pad = 0;
    told told = { 0 };
    const sheaf_events events = { keep_told, &told };
    sheaf_data_options options = {
        .config = &config, .tokenizer = tokenizer, .threads = 1, .events = &events
    };
    sheaf_data *data = NULL;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        int32_t *want, got[100];
        int64_t n;
        config.json = (char *)cases[i].config;
        options.prompt_template = cases[i].given;
        CHECK_OK(sheaf__tokenizer_encode(&want, NULL, &n, own, cases[i].prompt,
                                         strlen(cases[i].prompt), NULL));
        first_tokens(got, 1 + P + 2 + (int)n, &options);
        CHECK_BYTES(cases[i].prompt, got + 1 + P + 2, want, (size_t)n * sizeof *want);
        assert_int_equal(got[0], 1);
        free(want);
    }
    assert_int_equal(told.notes, 4); /* all but the one that was given */
    assert_int_equal(told.warnings, 1);
    assert_non_null(strstr(told.text, "prompt template base, as the model's config names none"));
    options.prompt_template = "chatty";
    CHECK_FAILS(sheaf_data_open(&data, at("one.png.jsonl"), &options), SHEAF_E_ARG, "chat");
    options.prompt_template = options.tokenizer = NULL;
    options.folder = scratch.dir;
    CHECK_FAILS(sheaf_data_open(&data, at("one.png.jsonl"), &options), SHEAF_E_UNSUPPORTED,
                "`tokenizer FILE`");
    char *bytes;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, tokenizer, 1 << 24));
    bytes = realloc(bytes, size + sizeof pads);
    assert_non_null(bytes);
    memcpy(bytes + size, pads, sizeof pads - 1);
    CHECK_OK(sheaf__file_write_whole(at("tokenizer.model"), bytes, size + sizeof pads - 1));
    free(bytes);
    int32_t one[1];
    first_tokens(one, 1, &options);
    config.vocab = 100;
    CHECK_FAILS(sheaf_data_open(&data, at("one.png.jsonl"), &options), SHEAF_E_LAYOUT,
                "at most 100 tokens");
    config.vocab = 1000;
    config.bos = config.pad = -1; /* the tokenizer knows them */
    config.neos = 0;
    first_tokens(one, 1, &options);
    assert_int_equal(one[0], sheaf__tokenizer_bos(own));
    CHECK_OK(sheaf_data_open(&data, at("one.png.jsonl"), &options));
    assert_int_equal(data->pad, 2);
    sheaf_data_close(data);
    data = NULL;
    sheaf__tokenizer_close(own);
    assert_null(data);
}

static int begin(void **state)
{
    const int failed = make_scratch(state);
    if (!failed)
        make_captchas();
    return failed;
}

FIXTURE(begin, remove_scratch);
