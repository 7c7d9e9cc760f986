/* row_kinds_test.c - which sample and place the rows of streams and images stand for. */
#include "tests/check.h"

#include "tests/devices/checked.h"
#include "train/row_kinds.h"

/* Kinds from `first` on have lists of MOST rows on a device whose memory is not the host's. */
enum { MOST = 100 };

static sheaf__row_kinds take_kinds(sheaf__context *context, int first, int end)
{
    sheaf__row_kinds k = { 0 };
    CHECK_OK(sheaf__device_open(&context->device, &checked_device, 1, NULL, 0));
    for (int i = first; i < end; i++) {
        CHECK_OK(sheaf__mirror_alloc(&k.sample[i], context->device, MOST * 8, SHEAF_MEM_INPUTS));
        CHECK_OK(sheaf__mirror_alloc(&k.position[i], context->device, MOST * 8, SHEAF_MEM_INPUTS));
    }
    return k;
}

/* The rows that operations find there. */
static void seen(int64_t to[MOST], const sheaf__context *context, const int64_t *at)
{
    CHECK_OK(sheaf__download(context->device, to, at, MOST * 8));
}

static void give_kinds(sheaf__row_kinds *k, sheaf__model *model)
{
    sheaf__row_kinds_release(k, model);
    sheaf__device_close(model->context->device);
}

enum { SEQ = 7, ROWS = 3, PATCHES = 4, TOKENS = ROWS * SEQ, IMAGES = 2, EMBEDDED = PATCHES + 2 };

/* Of three samples the first and the third have an image. */
TEST(test_fill__an_images_rows_are_its_samples)
{
    const struct {
        int kind;
        int64_t rows;
    } kinds[] = {
        { sheaf__rows_inside(0), PATCHES + 1 },
        { sheaf__rows_after(0), PATCHES },
        { sheaf__rows_inside(1), 9 + 1 },
        { sheaf__rows_after(1), 9 },
    };
    int64_t sample[TOKENS], position[TOKENS];
    int32_t image_row[IMAGES * EMBEDDED], text[TOKENS], image[TOKENS];
    int64_t n[2] = { 0 };
    for (int i = 0; i < TOKENS; i++) {
        sample[i] = 40 + i / SEQ;
        position[i] = i % SEQ;
        const bool seen = i / SEQ != 1 && i % SEQ < EMBEDDED;
        if (seen)
            image_row[n[1]] = i;
        (seen ? image : text)[n[seen]++] = i;
    }
    sheaf_schema schema = { .config = { .family = SHEAF_COGAGENT,
                                        .patches = PATCHES,
                                        .encoder = { .image = 6, .patch = 2 } } };
    sheaf__context context = { .ranks = 1 };
    sheaf__model model = { .schema = &schema, .context = &context };
    const sheaf__step_info tokens = {
        .training = true, .seed = 5, .step = 9, .host = { sample, position }
    };
    const sheaf_batch batch = { .image_row = image_row, .stream = { text, image } };
    sheaf__row_kinds k = take_kinds(&context, 0, SHEAF__ROW_KINDS);
    int64_t samples[MOST], positions[MOST];
    CHECK_OK(sheaf__row_kinds_fill(
        &k, &model, &tokens, &batch,
        (sheaf_batch_images){ .pictures = { IMAGES, IMAGES, { IMAGES * PATCHES, IMAGES * 9 } },
                              .image_rows = n[1] },
        TOKENS));
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        const sheaf__step_info *of = &k.of[kinds[i].kind];
        seen(samples, &context, of->sample);
        seen(positions, &context, of->position);
        assert_true(of->seed == 5 && of->step == 9 && of->training);
        for (int64_t r = 0; r < IMAGES * kinds[i].rows; r++) {
            assert_int_equal(samples[r], r < kinds[i].rows ? 40 : 42);
            assert_int_equal(positions[r], r % kinds[i].rows);
        }
    }
    for (int stream = 0; stream < 2; stream++) {
        const int32_t *row = stream == 0 ? text : image;
        seen(samples, &context, k.of[stream == 0 ? SHEAF__TEXT : SHEAF__IMAGE].sample);
        seen(positions, &context, k.of[stream == 0 ? SHEAF__TEXT : SHEAF__IMAGE].position);
        for (int64_t r = 0; r < n[stream]; r++)
            assert_true(samples[r] == sample[row[r]] && positions[r] == position[row[r]]);
    }
    give_kinds(&k, &model);
}

/* Three images of own sizes, two of them of one sample: no two rows of it draw alike. */
TEST(test_fill__images_of_a_sample_are_counted_on)
{
    enum { GIVES = 2, SEQUENCE = 8 };
    static const struct {
        int64_t patches, sample;
    } image[] = { { 2, 70 }, { 3, 70 }, { 1, 71 } };
    const int32_t image_row[] = { 1, 2, 4, 5, 8 + 3, 8 + 4 };
    int64_t sample[2 * SEQUENCE], position[2 * SEQUENCE];
    sheaf__picture picture[ARRAY_LEN(image)];
    const sheaf_schema schema = { .config = { .family = SHEAF_MINICPMV,
                                              .patches = 4,
                                              .vit = { .patch = 2, .channels = 3 },
                                              .resampler = { .queries = GIVES } } };
    sheaf__context context = { .ranks = 1 };
    sheaf__model model = { .schema = &schema, .context = &context };
    const sheaf__step_info tokens = { .training = true, .host = { sample, position } };
    const sheaf_batch batch = { .image_row = (int32_t *)image_row, .picture = picture };
    sheaf__row_kinds k =
        take_kinds(&context, SHEAF__STREAMS, SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER);
    int64_t samples[MOST], positions[MOST];
    for (int i = 0; i < 2 * SEQUENCE; i++) {
        sample[i] = 70 + i / SEQUENCE;
        position[i] = i % SEQUENCE;
    }
    for (size_t i = 0; i < ARRAY_LEN(image); i++)
        picture[i] = (sheaf__picture){ .of[0] = { NULL, 2, 2 * image[i].patches } };
    CHECK_OK(sheaf__row_kinds_fill(&k, &model, &tokens, &batch,
                                   (sheaf_batch_images){ .pictures = { 3, 3, { 6 } } }, 16));
    for (int i = SHEAF__STREAMS; i < SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER; i++) {
        const bool given = i == sheaf__rows_given(0);
        int64_t at = 0, next = 0;
        seen(samples, &context, k.of[i].sample);
        seen(positions, &context, k.of[i].position);
        for (size_t j = 0; j < ARRAY_LEN(image); j++) {
            next = j == 2 ? 0 : next;
            for (int64_t r = 0; r < (given ? GIVES : image[j].patches); r++, at++, next++) {
                assert_int_equal(samples[at], image[j].sample);
                assert_int_equal(positions[at], next);
            }
        }
    }
    give_kinds(&k, &model);
}
