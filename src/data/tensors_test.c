/* tensors_test.c - files of token ids with images: marked by tokens, by bounds, and what is
 * refused. Images are few: patches of 2, the towers' own size 4 x 4, each given 2 rows. */
#include "data/data.h"
#include "ops/kernels.h"
#include "tests/tensors.h"

enum { BEGIN = 10, PATCH = 11, END = 12, QUERIES = 2, NO = -100, MOST = 24 };

static sheaf_config of_family(sheaf_family family)
{
    return (sheaf_config){ .family = family,
                           .vocab = 20,
                           .hidden = 8,
                           .pad = 0,
                           .bos = -1,
                           .patches = 4,
                           .vit = { .height = 4, .width = 4, .patch = 2, .channels = 3 },
                           .resampler = { .queries = QUERIES },
                           .image_mark = { BEGIN, PATCH, END } };
}

static sheaf_minicpmv version; /* of MiniCPM-V in open_as() */

static sheaf_status *open_as(sheaf_data **data, sheaf_family family, const tensor *list, int n)
{
    sheaf_config config = of_family(family);
    config.minicpmv = version;
    return sheaf_data_open(data, tensors_file(list, n), &(sheaf_data_options){ .config = &config });
}

/* ---- what a batch has of images ---- */

typedef struct got {
    int32_t image_row[MOST], stream[MOST];
    sheaf__picture picture[8];
    float pixels[512];
} got;

static sheaf_batch_images take(got *g, const sheaf_data *data, const int64_t *row, int64_t n,
                               bool ragged)
{
    sheaf_batch batch = {
        .image_row = g->image_row, .stream = { g->stream }, .picture = g->picture, .room = { 512 }
    };
    for (int i = 0; i < 4; i++)
        g->picture[i] = (sheaf__picture){ .of[0] = { g->pixels + (ragged ? 0 : 48 * i), 4, 4 } };
    CHECK_OK(sheaf_data_batch(&batch, data, row, n));
    CHECK_OK(sheaf_data_pixels(&batch, data, row, n));
    return sheaf_data_images(data, row, n);
}

static void check_picture(const sheaf__picture *p, int64_t row, int64_t height, int64_t width,
                          float first)
{
    assert_int_equal(p->row, row);
    assert_int_equal(p->of[0].height, height);
    assert_int_equal(p->of[0].width, width);
    for (int64_t i = 0; i < 3 * height * width; i++)
        assert_true(p->of[0].pixels[i] == first + (float)i);
}

/* ---- marked by tokens ---- */

static const int64_t marked[3 * 10] = {
    BEGIN, PATCH, PATCH, END,   3,   4,     5,     6,     7,   0, /* one image */
    1,     2,     3,     4,     5,   6,     0,     0,     0,   0, /* none */
    1,     BEGIN, PATCH, PATCH, END, BEGIN, PATCH, PATCH, END, 5, /* two */
};
static const int64_t marked_labels[3 * 10] = {
    NO, NO, NO, NO, NO, NO, 5,  6,  7,  NO, NO, NO, NO, 4,  5,
    6,  NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, NO, 5,
};
static const int64_t marked_mask[3 * 10] = {
    1, 1, 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
};
#define MARKED                                                                                     \
    { "input_ids", "I64", { 3, 10 }, marked }, { "labels", "I64", { 3, 10 }, marked_labels },      \
    {                                                                                              \
        "attention_mask", "I64", { 3, 10 }, marked_mask                                            \
    }

TEST(test_marked__images_are_where_the_tokens_say)
{
    const tensor list[] = { MARKED,
                            { "images", "F32", { 3, 3, 4, 4 } },
                            { "logits", "F32", { 2, 2 } } }; /* a recording's */
    const int64_t rows[] = { 2, 0 }, without[] = { 1, -1 };
    static const int32_t at[] = { 2, 3, 6, 7, 11, 12 };
    static got g;
    sheaf_data *data;
    CHECK_OK(open_as(&data, SHEAF_OMNILMM, list, ARRAY_LEN(list)));
    const sheaf_batch_images holds = take(&g, data, rows, 2, false);
    assert_int_equal(holds.pictures.images, 3);
    assert_int_equal(holds.pictures.patches[0], 3 * 4);
    assert_int_equal(holds.image_rows, 0);
    CHECK_BYTES("image_row", g.image_row, at, sizeof at);
    check_picture(&g.picture[0], 0, 4, 4, 48);
    check_picture(&g.picture[1], 0, 4, 4, 96);
    check_picture(&g.picture[2], 1, 4, 4, 0);
    assert_int_equal(take(&g, data, without, 2, false).pictures.images, 0);
    const sheaf_config config = of_family(SHEAF_OMNILMM);
    sheaf_batch_images fewest, most;
    sheaf_data_images_range(&fewest, &most, data, 1);
    assert_int_equal(fewest.pictures.images, 0);
    assert_int_equal(most.pictures.images, 2);
    const sheaf__picture_counts room = sheaf_data_images_room(data, &config, 2);
    assert_int_equal(room.images, 4);
    assert_int_equal(room.patches[0], 16);
    sheaf_data_close(data);
}

TEST(test_marked__what_is_not_whole_is_named)
{
    static int64_t ids[30];
    static const struct {
        int at, is;
        const char *want;
    } bad[] = {
        { 2, 7,
          "'input_ids': row 1, position 1 | an image as 10, 2 times 11, 12 | 7 at position 3" },
        { 3, PATCH, "row 1, position 1 | an image as 10, 2 times 11, 12 | 11 at position 4" },
        { 9, BEGIN,
          "position 10 | an image as 10, 2 times 11, 12 | the end of the row after 1 of these" },
        { 5, PATCH, "row 1, position 6 | an image as 10, 2 times 11, 12 | 11 without a beginning" },
        { 15, END, "row 2, position 6 | an image as 10, 2 times 11, 12 | 12 without a beginning" },
    };
    tensor list[] = { MARKED, { "images", "F32", { 3, 3, 4, 4 } } };
    sheaf_data *data = NULL;
    list[0].value = ids;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        memcpy(ids, marked, sizeof ids);
        ids[bad[i].at] = bad[i].is;
        CHECK_FAILS(open_as(&data, SHEAF_OMNILMM, list, 4), SHEAF_E_DATA, bad[i].want);
    }
    memcpy(ids, marked, sizeof ids);
    CHECK_FAILS(open_as(&data, SHEAF_OMNILMM, list, 3), SHEAF_E_DATA,
                "'images' | [3, 3, 4, 4], an image for each that input_ids marks | no such tensor");
    list[3].shape[0] = 2;
    CHECK_FAILS(open_as(&data, SHEAF_OMNILMM, list, 4), SHEAF_E_DATA, "[2, 3, 4, 4]");
    list[3] = (tensor){ "images", "F32", { 3, 3, 4, 6 } };
    CHECK_FAILS(open_as(&data, SHEAF_OMNILMM, list, 4), SHEAF_E_DATA, "[3, 3, 4, 6]");
    list[3] = (tensor){ "images", "I32", { 3, 3, 4, 4 } };
    CHECK_FAILS(open_as(&data, SHEAF_OMNILMM, list, 4), SHEAF_E_DATA, "F32, BF16 or F16");
    assert_null(data);
}

/* ---- folded: one token for all rows ---- */

static sheaf_status *open_folded(sheaf_data **data, const tensor *list, int n)
{
    sheaf_config config = of_family(SHEAF_CHATGLM);
    config.patches = 16; /* of which each four give a row */
    config.vit = (sheaf_vit){ .layers = 1, .height = 8, .width = 8, .patch = 2, .channels = 3 };
    config.pad = 13;
    config.image_mark.patch = -1;
    return sheaf_data_open(data, tensors_file(list, n), &(sheaf_data_options){ .config = &config });
}

/* Row 0 is padded on the left; row 1 has no image, so that its end is padding here. */
static const int64_t folded[2 * 8] = {
    13, 1, BEGIN, 13, END, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7, 8,
};
static const int64_t folded_labels[2 * 8] = {
    NO, NO, NO, NO, NO, NO, 4, 5, NO, NO, 3, 4, NO, NO, NO, NO,
};
static const int64_t folded_mask[2 * 8] = { 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
static const int64_t folded_position[2 * 8] = { 0, 0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6, 7 };
#define FOLDED                                                                                     \
    { "input_ids", "I64", { 2, 8 }, folded }, { "labels", "I64", { 2, 8 }, folded_labels },        \
    {                                                                                              \
        "images", "F32",                                                                           \
        {                                                                                          \
            1, 3, 8, 8                                                                             \
        }                                                                                          \
    }

TEST(test_folded__rows_stand_in_the_place_of_one_token)
{
    const tensor list[] = { FOLDED,
                            { "attention_mask", "I64", { 2, 8 }, folded_mask },
                            { "position_ids", "I64", { 2, 8 }, folded_position } };
    static const int32_t want[22] = { 13, 1, BEGIN, 13, 13, 13, 13, END, 3,  4,  5,
                                      1,  2, 3,     4,  5,  6,  7,  8,   13, 13, 13 },
                         labels[22] = { NO, NO, NO, NO, NO, NO, NO, NO, 4,  5,  NO,
                                        NO, 3,  4,  NO, NO, NO, NO, NO, NO, NO, NO },
                         place[22] = { 0, 0, 1, 2, 2, 2, 2, 3, 4, 5, 6,
                                       0, 1, 2, 3, 4, 5, 6, 7, 7, 7, 7 },
                         image[6] = { 2, 3, 4, 5, 6, 7 };
    static const uint8_t seen[22] = { 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                      1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0 };
    const int64_t rows[] = { 0, 1 };
    int32_t token[22], label[22], position[22], at[6];
    uint8_t mask[22];
    sheaf_data *data;
    for (int given = 0; given < 2; given++) { /* without positions they count from the padding on */
        CHECK_OK(open_folded(&data, list, given ? 5 : 4));
        assert_int_equal(sheaf_data_seq(data), 11);
        CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = token,
                                                  .labels = label,
                                                  .position = position,
                                                  .mask = mask,
                                                  .image_row = at },
                                  data, rows, 2));
        assert_int_equal(sheaf_data_images(data, rows, 2).pictures.images, 1);
        CHECK_BYTES("ids", token, want, sizeof want);
        for (int i = 0; i < 22; i++)
            assert_int_equal(label[i], labels[i] == NO ? SHEAF__IGNORED : labels[i]);
        CHECK_BYTES("mask", mask, seen, sizeof seen);
        CHECK_BYTES("image rows", at, image, sizeof image);
        for (int i = 0; i < 22; i++)
            assert_int_equal(position[i], place[i] + (!given && i > 0 && i < 11));
        sheaf_data_close(data);
    }
}

TEST(test_folded__what_is_not_whole_is_named)
{
    static const struct {
        int64_t id[8];
        const char *part;
    } bad[] = {
        { { 1, BEGIN, 13, 13, END, 2, 3, 4 },
          "row 1, position 2 | an image as 10, one token for all its rows" },
        { { 1, 2, 3, 4, 5, 6, BEGIN, 13 }, "row 1, position 7" },
        { { 1, END, 3, 4, 5, 6, 7, 8 }, "row 1, position 2" },
        { { BEGIN, 13, END, BEGIN, 13, END, 7, 8 }, "'images' | [2, 3, 8, 8], an image for each" },
    };
    sheaf_data *data;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        int64_t ids[16];
        memcpy(ids, folded, sizeof ids);
        memcpy(ids, bad[i].id, sizeof bad[i].id);
        tensor list[] = { FOLDED };
        list[0].value = ids;
        CHECK_FAILS(open_folded(&data, list, 3), SHEAF_E_DATA, bad[i].part);
    }
}

/* ---- bounds ---- */

static const int64_t bound_ids[2 * 8] = { 1, 0, 0, 2, 3, 4, 5, 0, 1, 0, 0, 0, 0, 6, 7, 0 };
static const int64_t shifted[2 * 8] = {
    NO, NO, NO, NO, NO, 5, NO, NO, NO, NO, NO, NO, NO, 7, 8, NO
};
static const int64_t seen[2 * 8] = { 1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 0 };
static const int64_t bounds[3 * 2] = { 1, 3, 3, 5, 1, 3 }; /* of row 2 the second one comes first */
static const int64_t per_row[2] = { 1, 2 };
#define BOUND                                                                                      \
    { "input_ids", "I64", { 2, 8 }, bound_ids }, { "labels_shifted", "I64", { 2, 8 }, shifted },   \
        { "image_bound", "I64", { 3, 2 }, bounds }, { "images_per_row", "I64", { 2 }, per_row },   \
        { "image_0_0_chw", "F32", { 3, 4, 2 } },                                                   \
        { "image_1_0_chw", "F32", { 3, 2, 6 }, NULL, 100 },                                        \
    {                                                                                              \
        "image_1_1_chw", "F32", { 3, 4, 4 }, NULL, 200                                             \
    }

TEST(test_bound__images_of_own_sizes)
{
    const tensor list[] = { BOUND, { "tgt_sizes", "I32", { 1 }, per_row } };
    const int64_t rows[] = { 1, 0 };
    static const int32_t at[] = { 1, 2, 3, 4, 9, 10 };
    static got g;
    sheaf_data *data;
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, list, ARRAY_LEN(list)));
    const sheaf_batch_images holds = take(&g, data, rows, 2, true);
    assert_int_equal(holds.pictures.images, 3);
    assert_int_equal(holds.pictures.patches[0], 4 + 3 + 2);
    CHECK_BYTES("image_row", g.image_row, at, sizeof at);
    check_picture(&g.picture[0], 0, 4, 4, 200); /* in order of their places */
    check_picture(&g.picture[1], 0, 2, 6, 100);
    check_picture(&g.picture[2], 1, 4, 2, 0);
    assert_true(g.picture[1].of[0].pixels == g.picture[0].of[0].pixels + 3 * 4 * 4);
    sheaf__picture first[1], *room;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const sheaf_config config = of_family(SHEAF_MINICPMV);
    const int towers = sheaf__towers_of(tower, &config);
    sheaf_data_row_sizes(first, 1, data, 1);
    room = sheaf__picture_room_like(first, 1, tower, towers);
    CHECK_OK(sheaf_data_row_pixels(room, 1, data, 1)); /* the first of two */
    check_picture(room, 0, 4, 4, 200);
    free(room);
    const sheaf__picture_counts most = sheaf_data_images_room(data, &config, 3);
    assert_int_equal(most.images, 6);
    assert_int_equal(most.patches[0], 3 * 7);
    sheaf_batch small = { .picture = g.picture, .room = { 3 * 4 * 4 } };
    CHECK_FAILS(sheaf_data_pixels(&small, data, rows, 1), SHEAF_E_ARG, "less than they need");
    sheaf_data_close(data);
}

/* Labels that stand at the position that predicts them; the last position may predict one too. */
TEST(test_bound__labels_may_be_shifted)
{
    static int64_t after[16], plain[16];
    tensor list[] = { BOUND, { "labels", "I64", { 2, 8 }, plain } };
    const int64_t rows[] = { 0, 1 };
    int32_t labels[16];
    char hash[33];
    sheaf_data *data;
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, list, 7));
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .labels = labels }, data, rows, 2));
    for (int i = 0; i < 16; i++)
        assert_int_equal(labels[i], shifted[i] == NO ? SHEAF__IGNORED : shifted[i]);
    assert_int_equal(sheaf_data_labels(data, rows, 2), 3);
    assert_int_equal(sheaf_data_used(data, &rows[1], 1), 8);
    strcpy(hash, sheaf_data_hash(data));
    sheaf_data_close(data);
    memcpy(after, shifted, sizeof after);
    after[15] = 9;
    list[1].value = after;
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, list, 7));
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .labels = labels }, data, rows, 2));
    assert_int_equal(labels[15], 9);
    assert_int_equal(labels[7], SHEAF__IGNORED);
    assert_int_equal(sheaf_data_labels(data, rows, 2), 4);
    assert_string_not_equal(sheaf_data_hash(data), hash);
    sheaf_data_close(data);
    for (int i = 0; i < 16; i++)
        plain[i] = i % 8 == 0 ? NO : shifted[i - 1];
    /* both agree on what labels can hold: the token behind the last position is not used */
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, list, 8));
    assert_string_equal(sheaf_data_hash(data), hash);
    sheaf_data_close(data);
    plain[6] = 4;
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 8), SHEAF_E_DATA,
                "'labels_shifted': row 1, position 6 | 4, the label of the position behind it");
}

/* Their program masks no padding: its logits are then those of positions that see it. */
TEST(test_bound__padding_is_seen_in_whole_rows)
{
    tensor list[] = { BOUND, { "attention_mask", "BOOL", { 2, 8 }, seen } };
    const int64_t row = 0;
    uint8_t mask[10], want[10] = { 1, 1, 1, 1, 1, 1, 1, 0, 0, 0 };
    sheaf_data *data;
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, list, 8));
    assert_int_equal(sheaf_data_used(data, &row, 1), 7);
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .mask = mask, .seq = 10 }, data, &row, 1));
    CHECK_BYTES("mask", mask, want, sizeof want);
    want[7] = 1;
    CHECK_OK(
        sheaf_data_batch(&(sheaf_batch){ .mask = mask, .seq = 10, .whole = true }, data, &row, 1));
    CHECK_BYTES("mask of whole rows", mask, want, sizeof want);
    sheaf_data_close(data);
    const tensor other[] = { MARKED, { "images", "F32", { 3, 3, 4, 4 } } };
    CHECK_OK(open_as(&data, SHEAF_OMNILMM, other, 4));
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .mask = mask, .whole = true }, data, &row, 1));
    assert_int_equal(mask[9], 0); /* OmniLMM masks it */
    sheaf_data_close(data);
}

TEST(test_bound__what_does_not_fit_is_named)
{
    static const struct {
        int64_t bound[6], per_row[2];
        const char *want;
    } bad[] = {
        { { 1, 3, 3, 5, 1, 4 },
          { 1, 2 },
          "'image_bound': image 3 | 2 positions of row 2, from 0 to 8 | [1, 4]" },
        { { 1, 3, 7, 9, 1, 3 },
          { 1, 2 },
          "'image_bound': image 2 | 2 positions of row 2, from 0 to 8 | [7, 9]" },
        { { -1, 1, 3, 5, 1, 3 },
          { 1, 2 },
          "'image_bound': image 1 | 2 positions of row 1, from 0 to 8 | [-1, 1]" },
        { { 3, 1, 3, 5, 1, 3 },
          { 1, 2 },
          "'image_bound': image 1 | 2 positions of row 1, from 0 to 8 | [3, 1]" },
        { { 1, 3, 3, 5, 2, 4 },
          { 1, 2 },
          "row 2 | images that do not overlap | one from 2 to 4 and one from 3" },
        { { 1, 3, 3, 5, 1, 3 },
          { 1, 1 },
          "'images_per_row' | 3 in all, as many as there are bounds | 2" },
        { { 1, 3, 3, 5, 1, 3 },
          { 1, 3 },
          "'images_per_row': row 2 | 0 to 2, the bounds that are left | 3" },
        { { 1, 3, 3, 5, 1, 3 },
          { -1, 3 },
          "'images_per_row': row 1 | 0 to 3, the bounds that are left | -1" },
        { { 1, 3, 3, 5, 1, 3 },
          { 2, 1 },
          "'image_0_1_chw' | the pixels of image 2 of row 1 | no such tensor" },
    };
    tensor list[] = { BOUND, { "more", "F32", { 3, 2, 2 } } };
    sheaf_data *data = NULL;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        list[2].value = bad[i].bound;
        list[3].value = bad[i].per_row;
        CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 7), SHEAF_E_DATA, bad[i].want);
    }
    list[2].value = bounds;
    list[3].value = per_row;
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 6), SHEAF_E_DATA,
                "'image_1_1_chw' | the pixels of image 2 of row 2 | no such tensor");
    list[6].shape[1] = 3;
    CHECK_FAILS(
        open_as(&data, SHEAF_MINICPMV, list, 7), SHEAF_E_DATA,
        "'image_1_1_chw' | [3, height, width], each side a multiple of 2 and at most 1048576 | [3, 3, 4]");
    list[6].shape[1] = 4;
    list[7].name = "image_2_0_chw";
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 8), SHEAF_E_DATA,
                "'image_2_0_chw' | a bound of this image in image_bound | none");
    list[7].name = "image_0_chw"; /* for files of one row */
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 8), SHEAF_E_DATA, "'image_0_chw'");
    list[3].name = "images_in_row";
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 7), SHEAF_E_DATA,
                "'images_per_row' | how many images each row has | no such tensor, and 2 rows");
    list[2].name = "bounds"; /* pictures without any */
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 7), SHEAF_E_DATA, "'image_0_0_chw' | a bound");
    list[2] = (tensor){ "image_bounds", "F32", { 3, 2 } };
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 7), SHEAF_E_DATA, "'image_bounds'");
    assert_null(data);
}

TEST(test_pixels__that_are_not_finite_are_named)
{
    tensor list[] = { BOUND };
    const tensor by_marks[] = { MARKED, { "images", "F32", { 3, 3, 4, 4 }, NULL, 0, 2 * 48 + 22 } };
    static const int64_t embed[2 * 8] = { [8] = 1, 1, 1, 1, 1, 1 };
    tensor by_masks[] = { { "input_ids", "I64", { 2, 8 }, bound_ids },
                          { "labels_shifted", "I64", { 2, 8 }, shifted },
                          { "image_embed_mask", "I64", { 2, 8 }, embed },
                          { "vision_image", "F32", { 2, 3, 4, 4 }, NULL, 0, 48 + 22 } };
    sheaf_data *data = NULL;
    list[5].wild = 2 * 12 + 6 + 4;
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 7), SHEAF_E_DATA,
                "'image_1_0_chw': channel 3, row 2, column 5 | finite numbers | nan");
    CHECK_FAILS(open_as(&data, SHEAF_OMNILMM, by_marks, ARRAY_LEN(by_marks)), SHEAF_E_DATA,
                "'images': image 3, channel 2, row 2, column 3 | finite numbers | nan");
    CHECK_FAILS(open_as(&data, SHEAF_COGVLM, by_masks, 4), SHEAF_E_DATA,
                "'vision_image': image 2, channel 2, row 2, column 3 | finite numbers | nan");
    by_masks[3].wild = 22; /* of the row without an image, which is never looked at */
    CHECK_OK(open_as(&data, SHEAF_COGVLM, by_masks, 4));
    sheaf_data_close(data);
}

TEST(test_masked__images_without_a_place_are_named)
{
    static const int64_t embed[2 * 8] = { [8] = 1, 1, 1, 1, 1, 1 };
    static const int64_t other[2 * 8] = { [8] = 1, 1, 1, 1, 1, 0, 1 };
    tensor list[] = { { "input_ids", "I64", { 2, 8 }, bound_ids },
                      { "labels_shifted", "I64", { 2, 8 }, shifted },
                      { "vision_image", "F32", { 2, 3, 4, 4 } },
                      { "token_type_ids", "I64", { 2, 8 }, embed },
                      { "image_embed_mask", "I64", { 2, 8 }, embed } };
    sheaf_data *data = NULL;
    CHECK_FAILS(open_as(&data, SHEAF_COGVLM, list, 3), SHEAF_E_DATA,
                "'vision_image' | image_embed_mask or token_type_ids beside it, which marks BOI, "
                "patches and EOI of the image in each row | neither | write one of them");
    for (int n = 4; n <= 5; n++) { /* one of the masks, or two that agree */
        CHECK_OK(open_as(&data, SHEAF_COGVLM, list, n));
        assert_int_equal(sheaf_data_images(data, (const int64_t[]){ 0, 1 }, 2).pictures.images, 1);
        sheaf_data_close(data);
        data = NULL;
    }
    /* An image that ends a row, before one that begins the next: each has 5 positions of experts,
     * BOI and 4 patches, whose numbers are those of any image. */
    static const int64_t ends[2 * 8] = { 0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    static const int32_t want[2 * 8] = { 0, 1, 2, 3, 3, 3, 3, 4, 0, 1, 1, 1, 1, 2, 3, 4 };
    list[3].value = ends;
    CHECK_OK(open_as(&data, SHEAF_COGVLM, list, 4));
    assert_int_equal(sheaf_data_images(data, (const int64_t[]){ 0, 1 }, 2).image_rows, 10);
    int32_t ids[2 * 8], position[2 * 8];
    CHECK_OK(sheaf_data_batch(&(sheaf_batch){ .tokens = ids, .position = position }, data,
                              (const int64_t[]){ 0, 1 }, 2));
    CHECK_BYTES("positions", position, want, sizeof want);
    sheaf_data_close(data);
    data = NULL;
    list[3].value = other;
    CHECK_FAILS(open_as(&data, SHEAF_COGVLM, list, 5), SHEAF_E_DATA,
                "'token_type_ids': row 2, position 6 | 1, as image_embed_mask has it");
    CHECK_OK(open_as(&data, SHEAF_COGVLM, list, 2)); /* no image at all */
    sheaf_data_close(data);
}

/* Their positions may stand still, and records may not share a row. */
TEST(test_masked__an_image_for_each_row_that_marks_one)
{
    static const int64_t embed[2 * 8] = { [8] = 1, 1, 1, 1, 1, 1 }, none[2 * 8] = { 0 };
    tensor list[] = { { "input_ids", "I64", { 2, 8 }, bound_ids },
                      { "labels_shifted", "I64", { 2, 8 }, shifted },
                      { "token_type_ids", "I64", { 2, 8 }, embed },
                      { "images", "F32", { 1, 3, 4, 4 } } };
    sheaf_data *data = NULL;
    CHECK_OK(open_as(&data, SHEAF_COGVLM, list, 4));
    assert_int_equal(sheaf_data_images(data, (const int64_t[]){ 0, 1 }, 2).pictures.images, 1);
    sheaf_data_close(data);
    data = NULL;
    list[3].shape[0] = 2;
    CHECK_FAILS(open_as(&data, SHEAF_COGVLM, list, 4), SHEAF_E_DATA,
                "'images' | [1, 3, 4, 4], an image for each row that marks one | [2, 3, 4, 4]");
    list[2].value = none; /* would be ignored */
    CHECK_FAILS(open_as(&data, SHEAF_COGVLM, list, 4), SHEAF_E_DATA,
                "'images' | [0, 3, 4, 4], an image for each row that marks one | [2, 3, 4, 4]");
}

TEST(test_masked__positions_that_restart_are_refused)
{
    static const int64_t still[2 * 8] = { 0, 1, 2, 2, 2, 3, 4, 5, 0, 1, 2, 2, 2, 3, 4, 5 },
                                   restart[2 * 8] = {
                                       0, 1, 2, 2, 2, 3, 4, 5, 0, 1, 2, 2, 2, 0, 1, 2
                                   };
    tensor list[] = { { "input_ids", "I64", { 2, 8 }, bound_ids },
                      { "labels_shifted", "I64", { 2, 8 }, shifted },
                      { "position_ids", "I64", { 2, 8 }, still } };
    static const sheaf_family families[] = { SHEAF_COGVLM, SHEAF_OMNILMM, SHEAF_MINICPMV };
    for (size_t i = 0; i < ARRAY_LEN(families); i++) {
        sheaf_data *data = NULL;
        list[2].value = still;
        CHECK_OK(open_as(&data, families[i], list, 3));
        assert_false(sheaf_data_is_packed(data));
        sheaf_data_close(data);
        list[2].value = restart;
        CHECK_FAILS(open_as(&data, families[i], list, 3), SHEAF_E_DATA,
                    "'position_ids': row 2, position 6 | more than 2, the one before it: models "
                    "that read pictures have one record a row | 0 | write a record in each row");
    }
}

/* One row needs no list of how many images are whose; its pictures have the short names. */
TEST(test_bound__of_one_row)
{
    const tensor list[] = { { "input_ids", "I32", { 1, 8 }, bound_ids },
                            { "labels_shifted", "I64", { 1, 8 }, shifted },
                            { "image_bounds", "I64", { 2, 2 }, bounds },
                            { "image_0_chw", "F32", { 3, 4, 2 } },
                            { "image_1_chw", "F32", { 3, 2, 2 }, NULL, 30 } };
    static const int64_t ids[8] = { 1, 0, 2, 0, 3, 0, 4, 0 };
    const int64_t row = 0;
    static got g;
    sheaf_data *data;
    tensor narrow[5];
    memcpy(narrow, list, sizeof list);
    narrow[0] = (tensor){ "input_ids", "I64", { 1, 8 }, ids };
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, narrow, 5));
    assert_int_equal(take(&g, data, &row, 1, true).pictures.patches[0], 3);
    check_picture(&g.picture[1], 0, 2, 2, 30);
    sheaf_data_close(data);
    const tensor both[] = { narrow[0], narrow[1], narrow[2],
                            narrow[3], narrow[4], { "image_0_1_chw", "F32", { 3, 2, 2 } } };
    data = NULL;
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, both, 6), SHEAF_E_DATA,
                "'image_1_chw' | a bound of this image in image_bound | none");
    const tensor text[] = { narrow[0], narrow[1] }; /* no image at all */
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, text, 2));
    assert_int_equal(take(&g, data, &row, 1, true).pictures.images, 0);
    sheaf_data_close(data);
}

/* ---- bounds of each row, and frames of videos ---- */

static const int64_t bounds_of_second[2 * 2] = { 3, 5, 1, 3 },
                                          frames_of_second[2 * 3] = { 7, 7, -1, 0, 3, 9 };
#define FRAMES                                                                                     \
    { "input_ids", "I64", { 2, 8 }, bound_ids }, { "labels_shifted", "I64", { 2, 8 }, shifted },   \
        { "image_bound.1", "I64", { 2, 2 }, bounds_of_second },                                    \
        { "temporal_ids.1", "I64", { 2, 3 }, frames_of_second },                                   \
        { "image_1_0_chw", "F32", { 3, 4, 4 }, NULL, 0 },                                          \
        { "image_1_1_chw", "F32", { 3, 4, 4 }, NULL, 100 },                                        \
        { "image_1_2_chw", "F32", { 3, 2, 6 }, NULL, 200 },                                        \
        { "image_1_3_chw", "F32", { 3, 2, 6 }, NULL, 300 },                                        \
    {                                                                                              \
        "image_1_4_chw", "F32", { 3, 4, 4 }, NULL, 400                                             \
    }

TEST(test_frames__of_a_group_join_the_first)
{
    const tensor list[] = { FRAMES };
    const int64_t rows[] = { 0, 1 };
    static const int32_t at[] = { 9, 10, 11, 12 };
    static got g;
    sheaf_data *data;
    char hash[33];
    version = SHEAF_MINICPMV_4_5;
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, list, 9));
    const sheaf_batch_images holds = take(&g, data, rows, 2, true);
    assert_true(holds.pictures.images == 5 && holds.pictures.groups == 2);
    CHECK_BYTES("image_row", g.image_row, at, sizeof at);
    check_picture(&g.picture[0], 1, 2, 6, 200); /* the group that comes first, as it is */
    check_picture(&g.picture[1], 1, 2, 6, 300);
    check_picture(&g.picture[2], 1, 4, 4, 400);
    check_picture(&g.picture[3], 1, 4, 4, 0);
    static const int32_t frame[] = { 1, 4, 10, 8, 8 };
    static const bool joins[] = { false, true, true, false, true };
    for (int i = 0; i < 5; i++)
        assert_true(g.picture[i].frame == frame[i] && g.picture[i].joins == joins[i]);
    const sheaf_config config = of_family(SHEAF_MINICPMV);
    const sheaf__picture_counts most = sheaf_data_images_room(data, &config, 2);
    assert_true(most.images == 10 && most.groups == 4);
    strcpy(hash, sheaf_data_hash(data));
    sheaf_data_close(data);
    int64_t other[6];
    tensor changed[] = { FRAMES };
    memcpy(other, frames_of_second, sizeof other);
    other[0] = 8;
    changed[3].value = other;
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, changed, 9));
    assert_string_not_equal(sheaf_data_hash(data), hash);
    sheaf_data_close(data);
    version = SHEAF_MINICPMV_NONE;
}

TEST(test_frames__what_does_not_fit_is_named)
{
    static const struct {
        int64_t frames[6];
        const char *want;
    } bad[] = {
        { { 0, 1, 2, 3, 4, 5 }, "'image_1_5_chw' | the pixels of image 6 of row 2" },
        { { -1, -1, -1, 0, 3, 9 }, "'image_1_4_chw' | a bound of this image in image_bound" },
        { { -1, 2, -1, 0, 3, 9 },
          "'temporal_ids.1': image 1 | numbers of frames from 0 to 16777215, then -1 | 2" },
        { { 1, -2, -1, 0, 3, 9 },
          "'temporal_ids.1': image 1 | numbers of frames from 0 to 16777215, then -1 | -2" },
        { { 1, 2, -1, 0, 3, 1 << 24 },
          "'temporal_ids.1': image 2 | numbers of frames from 0 to 16777215, then -1 | 16777216" },
    };
    tensor list[] = { FRAMES };
    sheaf_data *data = NULL;
    version = SHEAF_MINICPMV_4_5;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        list[3].value = bad[i].frames;
        CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 9), SHEAF_E_DATA, bad[i].want);
    }
    static const int64_t seven[2 * 7] = { 0, 1, 2, 3, 4, 5, 6, -1, -1, -1, -1, -1, -1, -1 };
    list[3] = (tensor){ "temporal_ids.1", "I64", { 2, 7 }, seven };
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 9), SHEAF_E_DATA,
                "image 1 | at most 6 frames in a group | 7");
    list[3] = (tensor){ "temporal_ids.1", "I64", { 1, 6 }, seven };
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 9), SHEAF_E_DATA,
                "'temporal_ids.1' | [images");
    list[3] = (tensor){ "images_per_row", "I64", { 2 }, per_row };
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 9), SHEAF_E_DATA,
                "'images_per_row': row 1 | 0, as many as there are bounds | 1");
    list[3] = (tensor){ "temporal_ids.1", "I64", { 2, 3 }, frames_of_second };
    version = SHEAF_MINICPMV_2_6;
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 9), SHEAF_E_UNSUPPORTED,
                "'temporal_ids.1': video | none: MiniCPM-V 2.6 reads no videos | one");
    version = SHEAF_MINICPMV_NONE;
    assert_null(data);
}

/* Upstream's data collator gives padding the position 0. */
TEST(test_bound__padding_may_have_position_0)
{
    static const int64_t position[2 * 8] = { 0, 1, 2, 3, 4, 5, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7 };
    static int64_t labels[2 * 8];
    const tensor list[] = { { "input_ids", "I64", { 2, 8 }, bound_ids },
                            { "labels_shifted", "I64", { 2, 8 }, labels },
                            { "position_ids", "I64", { 2, 8 }, position } };
    sheaf_data *data = NULL;
    memcpy(labels, shifted, sizeof labels);
    CHECK_OK(open_as(&data, SHEAF_MINICPMV, list, 3));
    sheaf_data_close(data);
    data = NULL;
    labels[6] = 3; /* it would be another record */
    CHECK_FAILS(open_as(&data, SHEAF_MINICPMV, list, 3), SHEAF_E_DATA,
                "row 1, position 7 | more than 5, the one before it");
}

/* ---- grids, as Qwen-VL's processor lists them ---- */

TEST(test_grids__what_does_not_fit_is_named)
{
    static const struct {
        int64_t grid[3];
        sheaf_code code;
        const char *want;
    } bad[] = {
        { { 2, 2, 2 }, SHEAF_E_DATA, "image 1 | 1, and two multiples of 2" },
        { { 0, 2, 2 },
          SHEAF_E_DATA,
          "image 1 | 1, and two multiples of 2 up to 1048576 | 0, 2, 2" },
        { { 1, 0, 2 }, SHEAF_E_DATA, "image 1 | 1, and two multiples of 2" },
        { { 1, 2, -2 }, SHEAF_E_DATA, "image 1 | 1, and two multiples of 2" },
        { { 1, 3, 2 }, SHEAF_E_DATA, "image 1 | 1, and two multiples of 2" },
        { { 1, 2, 3 }, SHEAF_E_DATA, "image 1 | 1, and two multiples of 2" },
        { { 1, 1048578, 2 }, SHEAF_E_DATA, "image 1 | 1, and two multiples of 2" },
        { { 1, 2, 1048578 }, SHEAF_E_DATA, "image 1 | 1, and two multiples of 2" },
        { { 1, 1048576, 2 }, SHEAF_E_DATA, "'pixel_values' | 2097152 patches" },
        { { 1, 2, 4 }, SHEAF_E_DATA, "'pixel_values' | 8 patches, as image_grid_thw says | 4" },
    };
    static const int64_t ids[4] = { 5, PATCH, 6, 7 };
    sheaf_config config = of_family(SHEAF_QWEN2_5_VL);
    config.qwen_vit.merge = 2;
    config.qwen_vit.frames = 1;
    for (size_t i = 0; i <= ARRAY_LEN(bad); i++) {
        const bool good = i == ARRAY_LEN(bad);
        const int64_t fits[3] = { 1, 2, 2 };
        const tensor list[] = { { "input_ids", "I64", { 1, 4 }, ids },
                                { "image_grid_thw", "I64", { 1, 3 }, good ? fits : bad[i].grid },
                                { "pixel_values", "F32", { 4, 12 } } };
        const sheaf_data_options options = { .config = &config, .prompts = true };
        sheaf_data *data = NULL;
        const char *path = tensors_file(list, ARRAY_LEN(list));
        if (good)
            CHECK_OK(sheaf_data_open(&data, path, &options));
        else
            CHECK_FAILS(sheaf_data_open(&data, path, &options), bad[i].code, bad[i].want);
        sheaf_data_close(data);
    }
}

/* Seconds are those of videos alone. */
TEST(test_grids__of_two_pictures_and_a_video)
{
    enum { VIDEO = PATCH + 8 };
    static const int64_t ids[5] = { PATCH, 6, PATCH, VIDEO, 7 },
                         grids[2 * 3] = { 1, 2, 2, 1, 2, 2 };
    sheaf_config config = of_family(SHEAF_QWEN2_5_VL);
    config.qwen_vit.merge = 2;
    config.qwen_vit.frames = config.qwen_vit.steps = 1;
    config.image_mark.video = VIDEO;
    for (int64_t n = 1; n <= 2; n++) {
        const tensor list[] = { { "input_ids", "I64", { 1, 5 }, ids },
                                { "image_grid_thw", "I64", { 2, 3 }, grids },
                                { "pixel_values", "F32", { 8, 12 } },
                                { "video_grid_thw", "I64", { 1, 3 }, grids },
                                { "pixel_values_videos", "F32", { 4, 12 } },
                                { "second_per_grid_ts", "F32", { n } } };
        sheaf_data *data = NULL;
        sheaf_status *st =
            sheaf_data_open(&data, tensors_file(list, ARRAY_LEN(list)),
                            &(sheaf_data_options){ .config = &config, .prompts = true });
        if (n == 1)
            CHECK_OK(st);
        else
            CHECK_FAILS(st, SHEAF_E_DATA, "'second_per_grid_ts' | [videos]");
        sheaf_data_close(data);
    }
}

FIXTURE(make_scratch, remove_scratch);
