/* slices_test.c - grids, sizes and pixels are those of upstream's slice_image();
 * tests/record_slices.py printed the tables. */
#include "tests/check.h"

#include <inttypes.h>
#include <xxhash.h>

#include "inputs/slices.h"

/* Width and height, resolution, patch and most slices; then the plan. */
static const int64_t plans[][11] = {
    { 1, 1, 448, 14, 9, 448, 448, 0, 0, 0, 0 },
    { 1, 2, 448, 14, 9, 322, 630, 0, 0, 0, 0 },
    { 2, 1, 448, 14, 9, 630, 322, 0, 0, 0, 0 },
    { 448, 448, 448, 14, 9, 448, 448, 0, 0, 0, 0 },
    { 449, 448, 448, 14, 9, 448, 448, 2, 1, 322, 630 },
    { 448, 449, 448, 14, 9, 448, 448, 1, 2, 630, 322 },
    { 1344, 1344, 448, 14, 9, 448, 448, 3, 3, 448, 448 },
    { 896, 448, 448, 14, 9, 630, 322, 2, 1, 448, 448 },
    { 448, 896, 448, 14, 9, 322, 630, 1, 2, 448, 448 },
    { 65535, 64, 448, 14, 9, 14336, 14, 9, 1, 4662, 42 },
    { 4096, 1, 448, 14, 9, 28672, 14, 0, 0, 0, 0 },
    { 12000, 9000, 448, 14, 9, 518, 392, 3, 3, 518, 392 },
    { 10, 3000, 448, 14, 9, 28, 7756, 0, 0, 0, 0 },
    { 3000, 10, 448, 14, 9, 7504, 28, 0, 0, 0, 0 },
    { 7, 7, 448, 14, 9, 448, 448, 0, 0, 0, 0 },
    { 1097, 1097, 448, 14, 9, 448, 448, 3, 2, 364, 546 },
    { 1120, 1120, 448, 14, 6, 448, 448, 3, 2, 364, 546 },
};

static const struct {
    int64_t width, height, resolution, patch, most;
    const char *hash; /* XXH3-64 of the pieces' bytes */
} pictures[] = {
    { 1, 1, 448, 14, 9, "8ab3bd8cb396e3b5" },    { 30, 20, 448, 14, 9, "a9f99c6a6502601c" },
    { 90, 61, 28, 7, 9, "5c34667b491c5023" },    { 61, 90, 28, 7, 9, "06b4921c3a94d413" },
    { 100, 100, 40, 14, 6, "c77fbcee6737d282" }, { 33, 300, 42, 14, 4, "ca2dd741531f7f86" },
    { 300, 7, 42, 14, 9, "8591f89e3fbf6eb4" },   { 640, 480, 448, 14, 9, "b9e376a10b6984c2" },
    { 97, 97, 56, 14, 9, "a571865a3e9a2996" },   { 56, 56, 56, 14, 9, "c21bb4b9bc7943e5" },
};

TEST(test_slice__gives_upstreams_grids)
{
    for (size_t i = 0; i < ARRAY_LEN(plans); i++) {
        const int64_t *p = plans[i];
        sheaf__sliced s;
        CHECK_OK(sheaf__slice(&s, p[0], p[1], &(sheaf__slicing){ p[2], p[3], p[4] }));
        const int64_t got[] = {
            s.width, s.height, s.columns, s.rows, s.slice_width, s.slice_height
        };
        for (size_t k = 0; k < ARRAY_LEN(got); k++)
            if (got[k] != p[5 + k])
                fail_msg("%" PRId64 " x %" PRId64 ": number %zu is %" PRId64, p[0], p[1], k,
                         got[k]);
    }
}

/* Random shapes, and among them squares and others half way between two grids. */
static void every_shape(int64_t *width, int64_t *height, sheaf__slicing *how, uint64_t *random,
                        int i)
{
    static const int64_t resolution[] = { 448, 448, 56, 980 }, patch[] = { 14, 14, 7 },
                         times_w[] = { 1, 1, 4, 9 }, times_h[] = { 1, 4, 1, 4 };
    int64_t some[5];
    for (int k = 0; k < 5; k++) {
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        some[k] = (int64_t)(*random >> 33);
    }
    const int bits = 1 + (int)(some[0] % 12);
    *width = 1 + some[1] % (INT64_C(1) << bits);
    *height = 1 + some[2] % 4096;
    *how = (sheaf__slicing){ resolution[some[3] % 4], patch[some[3] % 3], 1 + some[4] % 36 };
    if (i % 3 == 0) {
        *height = *width * times_h[some[2] % 4];
        *width *= times_w[some[2] % 4];
    }
}

TEST(test_slice__gives_upstreams_grids_for_many_shapes)
{
    XXH3_state_t *hash = XXH3_createState();
    uint64_t random = 1;
    assert_non_null(hash);
    XXH3_64bits_reset(hash);
    for (int i = 0; i < 20000; i++) {
        int64_t width, height;
        sheaf__slicing how;
        sheaf__sliced s;
        every_shape(&width, &height, &how, &random, i);
        sheaf_status *st = sheaf__slice(&s, width, height, &how);
        const int64_t got[] = {
            s.width, s.height, s.columns, s.rows, s.slice_width, s.slice_height
        };
        if (st == NULL)
            XXH3_64bits_update(hash, got, sizeof got);
        sheaf_status_free(st);
    }
    assert_true(XXH3_64bits_digest(hash) == UINT64_C(0x6bb0c45ad6bb8eaf));
    XXH3_freeState(hash);
}

/* picture() of the script. */
static sheaf_image picture(int64_t width, int64_t height)
{
    sheaf_image image = { width, height, malloc((size_t)(width * height) * 3) };
    assert_non_null(image.pixels);
    for (uint64_t i = 0; i < (uint64_t)(width * height) * 3; i++)
        image.pixels[i] = (uint8_t)(i * i * 31 + i / 7 * 57);
    return image;
}

TEST(test_slice__gives_upstreams_pixels)
{
    for (size_t i = 0; i < ARRAY_LEN(pictures); i++) {
        sheaf__sliced s;
        CHECK_OK(sheaf__slice(
            &s, pictures[i].width, pictures[i].height,
            &(sheaf__slicing){ pictures[i].resolution, pictures[i].patch, pictures[i].most }));
        const size_t size = (size_t)sheaf__sliced_pixels(&s) * 3;
        sheaf_image image = picture(pictures[i].width, pictures[i].height);
        uint8_t *out = malloc(size);
        char got[17];
        assert_non_null(out);
        CHECK_OK(sheaf__slice_image(out, &image, &s));
        snprintf(got, sizeof got, "%016" PRIx64, (uint64_t)XXH3_64bits(out, size));
        if (strcmp(got, pictures[i].hash) != 0)
            fail_msg("picture %zu: hash %s", i, got);
        free(out);
        sheaf_image_release(&image);
    }
}

TEST(test_slice__pieces_are_counted)
{
    sheaf__sliced s;
    const sheaf__slicing how = { 448, 14, 9 };
    CHECK_OK(sheaf__slice(&s, 896, 448, &how));
    assert_int_equal(sheaf__sliced_count(&s), 3);
    assert_int_equal(sheaf__sliced_width(&s, 0), 630);
    assert_int_equal(sheaf__sliced_height(&s, 0), 322);
    assert_int_equal(sheaf__sliced_width(&s, 2), 448);
    assert_int_equal(sheaf__sliced_pixels(&s), 630 * 322 + 2 * 448 * 448);
    CHECK_OK(sheaf__slice(&s, 1, 1, &how));
    assert_int_equal(sheaf__sliced_count(&s), 1);
}

TEST(test_slice__refuses_what_becomes_too_long)
{
    sheaf__sliced s;
    const sheaf__slicing how = { 448, 14, 9 };
    CHECK_FAILS(
        sheaf__slice(&s, 1, 65535, &how), SHEAF_E_UNSUPPORTED,
        "image | a shape whose longer side stays below 65536 pixels once resized | 1 x 65535 | "
        "cut the picture into pieces");
    CHECK_OK(sheaf__slice(&s, 65535, 1, &how));
    assert_int_equal(s.width, 65534);
}
