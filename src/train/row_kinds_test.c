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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(
        test_fill__an_images_rows_are_its_samples) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
