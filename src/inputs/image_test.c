/* image_test.c - recorded pictures give Pillow's bytes, upstream's tensors are met bit for bit, and
 * bytes that are no picture, a part of one or a hostile one are errors. tests/data/record_images.py
 * made the recordings. */
#include "tests/files.h"
#include "tests/sources.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdatomic.h>
#include <unistd.h>
#include <xxhash.h>

#include "inputs/image_decode.h"
#include "inputs/viewing.h"

/* ---- recordings ---- */

static const char *recorded(const char *name)
{
    return in_sources("tests/data/images/%s", name);
}

static json_t *expected(void)
{
    json_t *root = json_load_file(recorded("expected.json"), 0, NULL);
    assert_non_null(root);
    return root;
}

typedef struct bytes {
    char *at;
    size_t size;
} bytes;

static bytes file_bytes(const char *path)
{
    bytes b;
    CHECK_OK(sheaf__file_read_all(&b.at, &b.size, path, SHEAF_IMAGE_MAX_FILE));
    return b;
}

static void check_hash(const char *name, const void *data, size_t size, const char *want)
{
    char got[17];
    snprintf(got, sizeof got, "%016" PRIx64, (uint64_t)XXH3_64bits(data, size));
    if (strcmp(got, want) != 0)
        fail_msg("%s: hash %s, wanted %s", name, got, want);
}

/* Calls `look` with each recorded picture: its row is [name, width, height, hash], and of one with
 * transparency the hash of what is laid on white. */
static void each_picture(void (*look)(const char *, const bytes *, const json_t *))
{
    json_t *root = expected(), *row;
    size_t i;
    json_array_foreach(json_object_get(root, "pictures"), i, row)
    {
        const char *name = json_string_value(json_array_get(row, 0));
        const bytes b = file_bytes(recorded(name));
        look(name, &b, row);
        free(b.at);
    }
    assert_true(i >= 70);
    json_decref(root);
}

static void check_size(const char *name, const sheaf_image *image, const json_t *row)
{
    if (image->width != json_integer_value(json_array_get(row, 1)) ||
        image->height != json_integer_value(json_array_get(row, 2)))
        fail_msg("%s: %d x %d", name, (int)image->width, (int)image->height);
}

static int clear; /* pictures with transparency */

static void check_pixels(const char *name, const bytes *b, const json_t *row)
{
    for (int white = 0; white < 2; white++) {
        const json_t *laid = white ? json_array_get(row, 4) : NULL;
        sheaf_image image;
        CHECK_OK(sheaf_image_decode(&image, b->at, b->size,
                                    &(sheaf_image_decoding){ .on_white = white }));
        clear += laid != NULL;
        check_size(name, &image, row);
        check_hash(name, image.pixels, (size_t)(image.width * image.height * 3),
                   json_string_value(laid != NULL ? laid : json_array_get(row, 3)));
        sheaf_image_release(&image);
    }
}

/* With transparency dropped, and laid on white. */
TEST(test_decode__gives_pillows_pixels_for_every_kind)
{
    each_picture(check_pixels);
    assert_true(clear >= 15);
}

static void check_views(const char *name, const bytes *b, const json_t *row)
{
    enum { WIDTH = 17, HEIGHT = 13 };
    for (int white = 0; white < 2 && strcmp(name, "rgba8.png") == 0; white++, clear++) {
        const sheaf__viewing viewing = {
            .form = { .on_white = white },
            .tower = { { .channels = 3, .width = WIDTH, .height = HEIGHT } },
            .towers = 1,
        };
        uint8_t got[WIDTH * HEIGHT * 3];
        sheaf__viewed viewed;
        CHECK_OK(sheaf__view_file(&viewed, recorded(name), &viewing));
        CHECK_OK(sheaf__view_bytes(got, &viewed, &viewing));
        check_hash(name, got, sizeof got,
                   json_string_value(json_array_get(row, 3 + (size_t)white)));
        sheaf__viewed_release(&viewed);
    }
}

/* By the family's form, which a model's towers read by. */
TEST(test_view__lays_on_white_where_the_family_does)
{
    clear = 0;
    each_picture(check_views);
    assert_int_equal(clear, 2);
}

static void check_size_alone(const char *name, const bytes *b, const json_t *row)
{
    sheaf_image image;
    CHECK_OK(
        sheaf_image_decode(&image, b->at, b->size, &(sheaf_image_decoding){ .size_only = true }));
    assert_null(image.pixels);
    check_size(name, &image, row);
}

/* As the picture stands upright, without a pixel decoded: the data behind the headers may lack. */
TEST(test_decode__reads_the_size_alone)
{
    static const uint8_t bomb[] = { /* 1 bit a pixel, 12000 x 12000 */
                                    0x89, 'P',  'N', 'G', '\r', '\n', 0x1a, '\n', 0,    0,    0,
                                    13,   'I',  'H', 'D', 'R',  0,    0,    0x2e, 0xe0, 0,    0,
                                    0x2e, 0xe0, 1,   0,   0,    0,    0,    0x79, 0x3e, 0xb1, 0x5c,
                                    0,    0,    0,   9,   'I',  'D',  'A',  'T'
    };
    sheaf_image image;
    each_picture(check_size_alone);
    CHECK_OK(sheaf_image_decode(&image, bomb, sizeof bomb,
                                &(sheaf_image_decoding){ .size_only = true }));
    assert_true(image.pixels == NULL && image.width == 12000 && image.height == 12000);
    CHECK_FAILS(sheaf_image_decode(
                    &image, bomb, sizeof bomb,
                    &(sheaf_image_decoding){ .size_only = true, .max_pixels = 12000 * 11999 }),
                SHEAF_E_UNSUPPORTED, "12000 x 12000");
}

static bool third(void *self)
{
    return ++*(int *)self == 3;
}

TEST(test_decode__stops_between_rows)
{
    static const char *const names[] = { "rgb8.png", "adam7_rgb8.png", "444.jpg",
                                         "444_progressive.jpg" };
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        const bytes b = file_bytes(recorded(names[i]));
        sheaf_image image;
        int calls = 0;
        CHECK_FAILS(
            sheaf_image_decode(&image, b.at, b.size,
                               &(sheaf_image_decoding){ .unwanted = third, .self = &calls }),
            SHEAF_E_STOPPED, "request was cancelled");
        assert_int_equal(calls, 3);
        free(b.at);
    }
}

/* A picture in memory is divided by its size and decoded once; several have a budget. */
TEST(test_view__of_a_picture_in_memory)
{
    enum { WIDTH = 20, HEIGHT = 10, N = WIDTH * HEIGHT * 3 };
    const bytes b = file_bytes(recorded("rgb8.png"));
    sheaf__pixel_budget budget = { .used = 0 };
    sheaf__viewing viewing = {
        .tower = { { .channels = 3, .width = WIDTH, .height = HEIGHT } },
        .towers = 1,
    };
    sheaf__viewed file, memory;
    uint8_t want[N], got[N];
    CHECK_OK(sheaf__view_file(&file, recorded("rgb8.png"), &viewing));
    CHECK_OK(sheaf__view_bytes(want, &file, &viewing));
    viewing.bytes = (sheaf__picture_bytes){ b.at, b.size };
    viewing.budget = &budget;
    CHECK_OK(sheaf__view_file(&memory, "picture 1", &viewing));
    CHECK_OK(sheaf__view_bytes(got, &memory, &viewing));
    CHECK_BYTES("by its bytes", got, want, N);
    CHECK_OK(sheaf__view_keep(&memory, &viewing));
    CHECK_BYTES("kept", memory.pixels, want, N);
    memory.bytes.size = 0; /* not read again */
    static float numbers[2][N];
    sheaf__picture picture[2] = { { .of[0] = { .pixels = numbers[0] } },
                                  { .of[0] = { .pixels = numbers[1] } } };
    CHECK_OK(sheaf__view_pixels(&picture[0], &file, &viewing));
    CHECK_OK(sheaf__view_pixels(&picture[1], &memory, &viewing));
    CHECK_BYTES("numbers", numbers[1], numbers[0], sizeof numbers[0]);
    sheaf__viewed_release(&file);
    sheaf__viewed_release(&memory);

    sheaf_image size;
    CHECK_OK(sheaf_image_load(&size, recorded("rgb8.png")));
    budget = (sheaf__pixel_budget){ .most = 2 * size.width * size.height };
    sheaf_image_release(&size);
    for (int k = 0; k < 2; k++) {
        CHECK_OK(sheaf__view_file(&memory, "picture 1", &viewing));
        sheaf__viewed_release(&memory);
    }
    CHECK_FAILS(sheaf__view_file(&memory, "picture 3", &viewing), SHEAF_E_UNSUPPORTED,
                "picture 3: image size");
    viewing.bytes.size /= 2; /* damage behind the headers is found later */
    viewing.budget = NULL;
    CHECK_OK(sheaf__view_file(&memory, "picture 1", &viewing));
    CHECK_FAILS(sheaf__view_keep(&memory, &viewing), SHEAF_E_FORMAT, "picture 1: PNG: image data");
    sheaf__viewed_release(&memory);
    free(b.at);
}

TEST(test_resize__gives_pillows_pixels)
{
    json_t *root = expected(), *row;
    size_t i;
    json_array_foreach(json_object_get(root, "resized"), i, row)
    {
        const int64_t width = json_integer_value(json_array_get(row, 1)),
                      height = json_integer_value(json_array_get(row, 2));
        const size_t size = (size_t)(width * height * 3);
        char name[100];
        sheaf_image image;
        snprintf(name, sizeof name, "%s to %d x %d", json_string_value(json_array_get(row, 0)),
                 (int)width, (int)height);
        CHECK_OK(sheaf_image_load(&image, recorded(json_string_value(json_array_get(row, 0)))));
        uint8_t *out = malloc(size);
        assert_non_null(out);
        CHECK_OK(sheaf_image_resize(out, &image, width, height));
        check_hash(name, out, size, json_string_value(json_array_get(row, 3)));
        free(out);
        sheaf_image_release(&image);
    }
    assert_true(i >= 16);
    json_decref(root);
}

/* Each axis is filtered on its own, so two resizes of one axis each are one of both. */
TEST(test_resize__which_axis_comes_first)
{
    enum { SIDE = 48, MOST = SIDE * SIDE * 3 };
    static const struct {
        int64_t width, height;
        bool rows_first;
    } cases[] = {
        { 38, 28, false }, /* the height shrinks by exactly twice as many pixels */
        { 38, 27, true },  { 38, 29, false }, { 52, 47, true }, { 47, 52, false },
    };
    uint8_t pixels[MOST], half[MOST * 2], across_first[MOST * 2], down_first[MOST * 2],
        got[MOST * 2];
    for (size_t i = 0; i < sizeof pixels; i++)
        pixels[i] = (uint8_t)(i * i * 31 + i / 7 * 57);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const int64_t width = cases[i].width, height = cases[i].height;
        const size_t size = (size_t)(width * height * 3);
        CHECK_OK(sheaf_image_resize(
            got, &(sheaf_image){ .width = SIDE, .height = SIDE, .pixels = pixels }, width, height));
        CHECK_OK(sheaf_image_resize(
            half, &(sheaf_image){ .width = SIDE, .height = SIDE, .pixels = pixels }, width, SIDE));
        CHECK_OK(sheaf_image_resize(
            across_first, &(sheaf_image){ .width = width, .height = SIDE, .pixels = half }, width,
            height));
        CHECK_OK(sheaf_image_resize(
            half, &(sheaf_image){ .width = SIDE, .height = SIDE, .pixels = pixels }, SIDE, height));
        CHECK_OK(sheaf_image_resize(
            down_first, &(sheaf_image){ .width = SIDE, .height = height, .pixels = half }, width,
            height));
        assert_memory_not_equal(across_first, down_first, size); /* or nothing would be shown */
        CHECK_BYTES("both", got, cases[i].rows_first ? down_first : across_first, size);
    }
}

TEST(test_prepare__gives_upstreams_tensors)
{
    json_t *root = expected(), *row;
    size_t i;
    json_array_foreach(json_object_get(root, "prepared"), i, row)
    {
        const char *name = json_string_value(json_array_get(row, 0));
        const int64_t size = json_integer_value(json_array_get(row, 1));
        sheaf_image image;
        CHECK_OK(sheaf_image_load(&image, recorded(name)));
        float *out = malloc((size_t)(3 * size * size) * sizeof *out);
        assert_non_null(out);
        CHECK_OK(sheaf_image_prepare(out, &image, size, size, &sheaf_image_clip_scale));
        check_hash(name, out, (size_t)(3 * size * size) * sizeof *out,
                   json_string_value(json_array_get(row, 2)));
        free(out);
        sheaf_image_release(&image);
    }
    assert_true(i >= 1);
    json_decref(root);
}

/* ---- what is no picture ---- */

static const struct {
    const char *name, *text;
    size_t size;
    sheaf_code code;
    const char *part;
} foreign[] = {
    { "empty", "", 0, SHEAF_E_FORMAT, "an empty file" },
    { "text", "captcha: 1234\nmore\n", 19, SHEAF_E_FORMAT,
      "JPEG, PNG or WebP | text that begins 'captcha: 1234'" },
    { "long text", "0123456789012345678901234567890123456789x", 41, SHEAF_E_FORMAT,
      "'0123456789012345678901234567890123456789'" },
    { "UTF-8, cut between characters", "012345678901234567890123456789012345678\xc3\xa9\xc3\xa9",
      43, SHEAF_E_FORMAT, "'012345678901234567890123456789012345678'" },
    { "LFS pointer", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", 56,
      SHEAF_E_FORMAT, "git lfs pull" },
    { "text that begins BM", "BMW and others", 14, SHEAF_E_FORMAT, "text that begins 'BMW" },
    { "GIF", "GIF89a\1\0\1\0", 10, SHEAF_E_UNSUPPORTED, "a GIF image" },
    { "BMP", "BM\x46\0\0\0\0\0\0\0", 10, SHEAF_E_UNSUPPORTED, "a BMP image" },
    { "TIFF", "II*\0\x08\0\0\0", 8, SHEAF_E_UNSUPPORTED, "a TIFF image | convert it to PNG" },
    { "AVIF",
      "\0\0\0\x1c"
      "ftypavif",
      12, SHEAF_E_UNSUPPORTED, "AVIF" },
    { "RIFF that is a sound", "RIFF\x10\0\0\0WAVEfmt ", 16, SHEAF_E_FORMAT,
      "bytes that begin 52 49 46 46 10 00 00 00" },
    { "a control character beyond ASCII's others",
      "abc\x7f"
      "def",
      7, SHEAF_E_FORMAT, "bytes that begin 61 62 63 7f 64 65 66" },
    { "an escape", "ab\x1b[2J", 6, SHEAF_E_FORMAT, "bytes that begin 61 62 1b" },
    { "one byte", "\xff", 1, SHEAF_E_FORMAT, "bytes that begin ff" },
    { "zeros", "\0\0\0", 3, SHEAF_E_FORMAT, "bytes that begin 00 00 00" },
    { "JPEG, only its mark", "\xff\xd8", 2, SHEAF_E_FORMAT,
      "JPEG: image data | a whole file | the end of the file after 2 bytes | " },
    { "PNG, only its mark", "\x89PNG\r\n\x1a\n", 8, SHEAF_E_FORMAT,
      "PNG: image data | a whole file | the end of the file after 8 bytes | " },
    { "PNG, ends of lines changed", "\x89PNG\n\x1a\n\0\0\0\0", 11, SHEAF_E_FORMAT,
      "PNG: image data | a PNG without damage" },
};

TEST(test_decode__says_what_it_found)
{
    for (size_t i = 0; i < ARRAY_LEN(foreign); i++) {
        sheaf_image image = { 7, 7, NULL };
        print_message("%s\n", foreign[i].name);
        CHECK_FAILS(sheaf_image_decode(&image, foreign[i].text, foreign[i].size, NULL),
                    foreign[i].code, foreign[i].part);
        assert_true(image.width == 7 && image.pixels == NULL); /* untouched */
    }
}

TEST(test_load__names_the_file)
{
    sheaf_image image;
    put(at("words.jpg"), "not a picture");
    CHECK_FAILS(sheaf_image_load(&image, at("words.jpg")), SHEAF_E_FORMAT,
                "words.jpg: image | JPEG, PNG or WebP");
    CHECK_FAILS(sheaf_image_load(&image, at("nowhere.png")), SHEAF_E_IO, "nowhere.png");
    const bytes b = file_bytes(recorded("420.jpg"));
    CHECK_OK(
        sheaf__file_write_whole(at("half.png"), b.at, b.size / 2)); /* the name does not matter */
    CHECK_FAILS(sheaf_image_load(&image, at("half.png")), SHEAF_E_FORMAT,
                "half.png: JPEG: image data | a whole file | the end");
    free(b.at);
}

/* ---- damage ---- */

static sheaf_status *decode_copy(const char *data, size_t size, bool white)
{
    char *copy = malloc(size + (size == 0)); /* so that a sanitizer sees a read past the end */
    sheaf_image image = { 0 };
    assert_non_null(copy);
    memcpy(copy, data, size);
    sheaf_status *st = sheaf_image_decode(
        &image, copy, size, &(sheaf_image_decoding){ .max_pixels = 1 << 16, .on_white = white });
    sheaf_image_release(&image);
    free(copy);
    return st;
}

static void cut_everywhere(const char *name, const bytes *b, const json_t *row)
{
    if (strstr(name, "more_after") != NULL)
        return;
    for (size_t n = 0; n < b->size; n++) {
        sheaf_status *st = decode_copy(b->at, n, n % 2 == 0);
        if (st == NULL)
            fail_msg("%s: the first %zu of %zu bytes were accepted", name, n, b->size);
        if (n > 12 && strstr(sheaf_status_found(st), "the end of the file after") == NULL)
            fail_msg("%s: of %zu bytes: %s", name, n, sheaf_status_found(st));
        sheaf_status_free(st);
    }
}

TEST(test_decode__refuses_every_part_of_a_file)
{
    each_picture(cut_everywhere);
}

static void change_bytes(const char *name, const bytes *b, const json_t *row)
{
    for (size_t i = 0; i<b->size; i += b->size> 600 ? 3 : 1)
        for (int change = 0x01; change <= 0x80; change *= 0x80) {
            b->at[i] = (char)(b->at[i] ^ change);
            sheaf_status_free(decode_copy(b->at, b->size, change == 0x01));
            b->at[i] = (char)(b->at[i] ^ change);
        }
}

TEST(test_decode__bears_changed_bytes)
{
    each_picture(change_bytes);
}

TEST(test_decode__refuses_a_jpeg_whose_data_are_damaged)
{
    sheaf_image image;
    const bytes b = file_bytes(recorded("restarts.jpg"));
    char *mark = memmem(b.at, b.size, "\xff\xd1", 2);
    assert_non_null(mark);
    mark[1] = (char)0xd9; /* the picture ends in its middle: Pillow makes the rest grey */
    CHECK_FAILS(sheaf_image_decode(&image, b.at, b.size, NULL), SHEAF_E_FORMAT,
                "libjpeg says: Corrupt JPEG data");
    free(b.at);
}

TEST(test_decode__refuses_a_png_whose_data_are_damaged)
{
    sheaf_image image;
    const bytes b = file_bytes(recorded("rgb8.png"));
    b.at[b.size - 20] = (char)(b.at[b.size - 20] ^ 1);
    CHECK_FAILS(sheaf_image_decode(&image, b.at, b.size, NULL), SHEAF_E_FORMAT,
                "libpng says: IDAT: incorrect data check");
    free(b.at);
}

/* ---- limits ---- */

/* PNG files up to where their data begin: all that is read of them. */
static const struct {
    char header[33 + 12];
    const char *part;
} large[] = {
    { "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x00\x00\x4e\x20\x00\x00\x4e\x20\x08\2\0\0\0\x6c\x12\xd1\x6e\0\0\0\0IDAT\x35\xaf\x06\x1e",
      "PNG: image size | at most 178956970 pixels, no side above 65535 | 20000 x 20000 | make the picture smaller" },
    { "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x00\x01\x00\x00\x00\x00\x00\x01\x08\2\0\0\0\xe4\x10\x74\x8f\0\0\0\0IDAT\x35\xaf\x06\x1e",
      "65536 x 1" },
    { "\x89PNG\r\n\x1a\n\0\0\0\rIHDR\x00\x00\x00\x01\x00\x01\x00\x00\x08\2\0\0\0\x97\x81\x80\xe5\0\0\0\0IDAT\x35\xaf\x06\x1e",
      "1 x 65536" },
};

TEST(test_decode__bounds_the_size)
{
    sheaf_image image = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(large); i++)
        CHECK_FAILS(sheaf_image_decode(&image, large[i].header, sizeof large[i].header, NULL),
                    SHEAF_E_UNSUPPORTED, large[i].part);
    bytes b = file_bytes(recorded("420.jpg"));
    char *frame = memmem(b.at, b.size, "\xff\xc0", 2);
    assert_non_null(frame);
    memcpy(frame + 5, "\x4e\x20\x4e\x20", 4);
    CHECK_FAILS(sheaf_image_decode(&image, b.at, b.size, NULL), SHEAF_E_UNSUPPORTED,
                "JPEG: image size");
    free(b.at);
    b = file_bytes(recorded("animated.webp"));
    memcpy(b.at + 24, "\xff\x3f\0\xff\x3f\0", 6); /* 16384 x 16384 */
    CHECK_FAILS(sheaf_image_decode(&image, b.at, b.size, NULL), SHEAF_E_UNSUPPORTED,
                "16384 x 16384");
    free(b.at);
    b = file_bytes(recorded("rgb8.png"));
    CHECK_FAILS(sheaf_image_decode(&image, b.at, b.size,
                                   &(sheaf_image_decoding){ .max_pixels = 17 * 13 - 1 }),
                SHEAF_E_UNSUPPORTED, "at most 220 pixels");
    CHECK_OK(
        sheaf_image_decode(&image, b.at, b.size, &(sheaf_image_decoding){ .max_pixels = 17 * 13 }));
    free(b.at);
    uint8_t out[3];
    CHECK_FAILS(sheaf_image_resize(out, &image, 0, 1), SHEAF_E_ARG, "0 x 1");
    CHECK_FAILS(sheaf_image_resize(out, &image, 1, 65536), SHEAF_E_ARG, "1 x 65536");
    CHECK_FAILS(sheaf_image_prepare(NULL, &image, -1, -1, &sheaf_image_clip_scale), SHEAF_E_ARG,
                "-1 x -1");
    CHECK_FAILS(sheaf_image_prepare(NULL, &image, INT64_C(1) << 40, INT64_C(1) << 40,
                                    &sheaf_image_clip_scale),
                SHEAF_E_ARG, "1 to 65535");
    sheaf_image_release(&image);
}

typedef struct looking {
    sheaf__viewing viewing;
    atomic_bool done;
} looking;

static void *look_aside(void *arg)
{
    looking *l = arg;
    sheaf__viewed viewed;
    sheaf_status_free(sheaf__view_file(&viewed, at("large.jpg"), &l->viewing));
    sheaf__viewed_release(&viewed);
    atomic_store(&l->done, true);
    return NULL;
}

/* While a large picture is decoded, small ones are too, but no other large one. */
TEST(test_decode__large_pictures_take_turns)
{
    pthread_mutex_t large = PTHREAD_MUTEX_INITIALIZER;
    looking l = { .viewing = { .tower = { { .channels = 3 } }, .towers = 1, .large = &large } };
    sheaf_image image;
    pthread_t thread;
    bytes b = file_bytes(recorded("420.jpg"));
    pthread_mutex_lock(&large);
    CHECK_OK(sheaf_image_decode(&image, b.at, b.size, &(sheaf_image_decoding){ .large = &large }));
    sheaf_image_release(&image);
    char *frame = memmem(b.at, b.size, "\xff\xc0", 2);
    assert_non_null(frame);
    memcpy(frame + 5, "\x13\x88\x13\x88", 4); /* 5000 x 5000, of which most is missing */
    FILE *f = fopen(at("large.jpg"), "wb");
    assert_true(f != NULL && fwrite(b.at, 1, b.size, f) == b.size && fclose(f) == 0);
    free(b.at);
    assert_int_equal(pthread_create(&thread, NULL, look_aside, &l), 0);
    for (int i = 0; i < 50 && !atomic_load(&l.done); i++)
        usleep(10000);
    assert_false(atomic_load(&l.done));
    pthread_mutex_unlock(&large);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&l.done));
    pthread_mutex_destroy(&large);
}

/* The first scan of a progressive picture, said `times` times. */
static bytes repeated_scan(const bytes *b, int times)
{
    char *begin = memmem(b->at, b->size, "\xff\xda", 2), *end = begin + 2;
    while (end[0] != '\xff' || end[1] == 0)
        end++;
    const size_t head = (size_t)(begin - b->at), scan = (size_t)(end - begin),
                 rest = b->size - head - scan;
    bytes out = { malloc(b->size + scan * (size_t)times), 0 };
    assert_non_null(out.at);
    memcpy(out.at, b->at, head);
    out.size = head;
    for (int i = 0; i < times; i++, out.size += scan)
        memcpy(out.at + out.size, begin, scan);
    memcpy(out.at + out.size, end, rest);
    out.size += rest;
    return out;
}

TEST(test_decode__bounds_the_scans_of_a_jpeg)
{
    const bytes b = file_bytes(recorded("420_progressive.jpg"));
    const bytes some = repeated_scan(&b, 50), many = repeated_scan(&b, 120);
    sheaf_image image;
    CHECK_OK(sheaf_image_decode(&image, some.at, some.size, NULL));
    sheaf_image_release(&image);
    CHECK_FAILS(sheaf_image_decode(&image, many.at, many.size, NULL), SHEAF_E_FORMAT,
                "at most 100 scans");
    free(b.at);
    free(some.at);
    free(many.at);
}

/* ---- EXIF ---- */

static const struct {
    const char *name, *exif;
    size_t size;
    int want;
} directories[] = {
    { "big", "MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0", 22, 6 },
    { "little", "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22, 6 },
    { "its JPEG mark before it", "Exif\0\0MM\0*\0\0\0\x08\0\1\x01\x12\0\3\0\0\0\1\0\6\0\0", 28, 6 },
    { "as a long", "II*\0\x08\0\0\0\1\0\x12\1\4\0\1\0\0\0\5\0\0\0", 22, 5 },
    { "as a byte", "II*\0\x08\0\0\0\1\0\x12\1\1\0\1\0\0\0\5\0\0\0", 22, 1 },
    { "two values", "II*\0\x08\0\0\0\1\0\x12\1\3\0\2\0\0\0\6\0\5\0", 22, 6 },
    { "values elsewhere", "II*\0\x08\0\0\0\1\0\x12\1\3\0\3\0\0\0\x16\0\0\0\7\0\1\0\1\0", 28, 7 },
    { "values outside", "II*\0\x08\0\0\0\1\0\x12\1\3\0\3\0\0\0\x16\0\0\0\7\0\1\0\1", 27, 1 },
    { "more values than fit", "II*\0\x08\0\0\0\1\0\x12\1\4\0\xff\xff\xff\xff\x16\0\0\0\7\0\0\0", 26,
      1 },
    { "no value", "II*\0\x08\0\0\0\1\0\x12\1\3\0\0\0\0\0\6\0\0\0", 22, 1 },
    { "as a short with a sign", "II*\0\x08\0\0\0\1\0\x12\1\x08\0\1\0\0\0\6\0\0\0", 22, 6 },
    { "as a long with a sign", "MM\0*\0\0\0\x08\0\1\x01\x12\0\x09\0\0\0\1\0\0\0\3", 22, 3 },
    { "as a byte with a sign", "MM\0*\0\0\0\x08\0\1\x01\x12\0\6\0\0\0\1\x08\0\0\0", 22, 8 },
    { "below zero", "II*\0\x08\0\0\0\1\0\x12\1\x08\0\1\0\0\0\xfa\xff\0\0", 22, 1 },
    { "a text", "II*\0\x08\0\0\0\1\0\x12\1\2\0\1\0\0\0\6\0\0\0", 22, 1 },
    { "zero", "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\0\0\0\0", 22, 1 },
    { "nine", "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\x09\0\0\0", 22, 1 },
    { "more entries said than there are", "II*\0\x08\0\0\0\xff\xff\x12\1\3\0\1\0\0\0\6\0\0\0", 22,
      6 },
    { "entry cut", "II*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0", 21, 1 },
    { "directory at the end", "II*\0\x08\0\0\0", 8, 1 },
    { "directory outside", "II*\0\xff\xff\xff\xff\1\0", 10, 1 },
    { "mark only", "Exif\0\0", 6, 1 },
    { "nothing", "", 0, 1 },
    { "not TIFF", "IM*\0\x08\0\0\0\1\0\x12\1\3\0\1\0\0\0\6\0\0\0", 22, 1 },
};

TEST(test_orientation__reads_a_directory)
{
    for (size_t i = 0; i < ARRAY_LEN(directories); i++) {
        const size_t size = directories[i].size;
        uint8_t *copy = malloc(size + (size == 0));
        assert_non_null(copy);
        memcpy(copy, directories[i].exif, size);
        const int got = sheaf__image_orientation(copy, size);
        if (got != directories[i].want)
            fail_msg("%s: %d, wanted %d", directories[i].name, got, directories[i].want);
        free(copy);
    }
}

FIXTURE(make_scratch, remove_scratch);
