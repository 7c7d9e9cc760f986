/* row_kinds_test.c - which sample and place the rows of streams and images stand for. */
#include "tests/check.h"

#include "train/row_kinds.h"

enum { SEQ = 7, ROWS = 3, PATCHES = 4, TOKENS = ROWS * SEQ, IMAGES = 2, EMBEDDED = PATCHES + 2 };

/* Of three samples the first and the third have an image. */
static void test_fill__an_images_rows_are_its_samples(void **state)
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
    const sheaf__model model = { .schema = &schema };
    const sheaf__step_info tokens = {
        .training = true, .seed = 5, .step = 9, .sample = sample, .position = position
    };
    const sheaf_batch batch = { .image_row = image_row, .stream = { text, image } };
    sheaf__row_kinds k = { 0 };
    for (int i = 0; i < SHEAF__ROW_KINDS; i++) {
        k.sample[i] = malloc(100 * sizeof(int64_t));
        k.position[i] = malloc(100 * sizeof(int64_t));
    }
    sheaf__row_kinds_fill(&k, &model, &tokens, &batch,
                          (sheaf_batch_images){ .images = IMAGES, .image_rows = n[1] }, TOKENS);
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        for (int64_t r = 0; r < IMAGES * kinds[i].rows; r++) {
            const sheaf__step_info *of = &k.of[kinds[i].kind];
            assert_int_equal(of->sample[r], r < kinds[i].rows ? 40 : 42);
            assert_int_equal(of->position[r], r % kinds[i].rows);
            assert_true(of->seed == 5 && of->step == 9 && of->training);
        }
    for (int64_t r = 0; r < n[0]; r++)
        assert_true(k.of[SHEAF__TEXT].sample[r] == sample[text[r]] &&
                    k.of[SHEAF__TEXT].position[r] == position[text[r]]);
    for (int64_t r = 0; r < n[1]; r++)
        assert_true(k.of[SHEAF__IMAGE].sample[r] == sample[image[r]] &&
                    k.of[SHEAF__IMAGE].position[r] == position[image[r]]);
    for (int i = 0; i < SHEAF__ROW_KINDS; i++) {
        free(k.sample[i]);
        free(k.position[i]);
    }
}

/* Three images of own sizes, two of them of one sample: no two rows of it draw alike. */
static void test_fill__images_of_a_sample_are_counted_on(void **state)
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
    const sheaf__model model = { .schema = &schema };
    const sheaf__step_info tokens = { .training = true, .sample = sample, .position = position };
    const sheaf_batch batch = { .image_row = (int32_t *)image_row, .picture = picture };
    sheaf__row_kinds k = { 0 };
    for (int i = 0; i < 2 * SEQUENCE; i++) {
        sample[i] = 70 + i / SEQUENCE;
        position[i] = i % SEQUENCE;
    }
    for (size_t i = 0; i < ARRAY_LEN(image); i++)
        picture[i] = (sheaf__picture){ .of[0] = { NULL, 2, 2 * image[i].patches } };
    for (int i = SHEAF__STREAMS; i < SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER; i++) {
        k.sample[i] = malloc(20 * sizeof(int64_t));
        k.position[i] = malloc(20 * sizeof(int64_t));
    }
    sheaf__row_kinds_fill(&k, &model, &tokens, &batch, (sheaf_batch_images){ .images = 3 }, 16);
    for (int i = SHEAF__STREAMS; i < SHEAF__STREAMS + SHEAF__KINDS_OF_TOWER; i++) {
        const bool given = i == sheaf__rows_given(0);
        int64_t at = 0, next = 0;
        for (size_t j = 0; j < ARRAY_LEN(image); j++) {
            next = j == 2 ? 0 : next;
            for (int64_t r = 0; r < (given ? GIVES : image[j].patches); r++, at++, next++) {
                assert_int_equal(k.of[i].sample[at], image[j].sample);
                assert_int_equal(k.of[i].position[at], next);
            }
        }
        free(k.sample[i]);
        free(k.position[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill__an_images_rows_are_its_samples),
        cmocka_unit_test(test_fill__images_of_a_sample_are_counted_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
