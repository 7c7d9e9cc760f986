/* qwenvl_test.c - what configs of Qwen-VL say, the tensors of the published models, positions and
 * sizes of pictures worked out by hand. */
#include "families/qwenvl/qwenvl.h"
#include "inputs/slices.h"
#include "schema/config_text.h"
#include "tests/families.h"

#define VISION_2                                                                                   \
    "\"vision_config\":{\"depth\":3,\"hidden_act\":\"silu\",\"hidden_size\":48,"                   \
    "\"intermediate_size\":76,\"num_heads\":3,\"out_hidden_size\":96,\"patch_size\":14,"           \
    "\"window_size\":56,\"fullatt_block_indexes\":[1],\"in_chans\":3}"
#define TEXT                                                                                       \
    "\"hidden_size\":96,\"intermediate_size\":172,\"num_hidden_layers\":2,"                        \
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"vocab_size\":331"
#define FLAT(rope, more)                                                                           \
    "{\"model_type\":\"qwen2_5_vl\"," TEXT ",\"rope_scaling\":" rope ",\"image_token_id\":316,"    \
    "\"video_token_id\":317," VISION_2 more "}"
#define MROPE "{\"type\":\"mrope\",\"mrope_section\":[2,3,3]}"
#define NESTED(more)                                                                               \
    "{\"model_type\":\"qwen2_5_vl\",\"text_config\":{\"model_type\":\"qwen2_5_vl_text\"," TEXT     \
    ",\"rope_parameters\":{\"rope_theta\":1000000.0,\"rope_type\":\"default\","                    \
    "\"mrope_section\":[2,3,3]}" more "},\"image_token_id\":316,\"video_token_id\":317," VISION_2  \
    "}"

TEST(test_config__both_forms_are_one_model)
{
    static const char *const forms[] = { FLAT(MROPE, ""), NESTED("") };
    char *said[2];
    for (int i = 0; i < 2; i++) {
        sheaf_config c;
        CHECK_OK(parse_config(&c, forms[i]));
        assert_null(c.unknown_keys);
        assert_true(c.family == SHEAF_QWEN2_5_VL && c.qkv_bias && !c.o_bias && !c.tied);
        assert_true(c.rope.section[0] == 2 && c.rope.section[2] == 3 && !c.rope.interleaved);
        assert_true(c.qwen_vit.window == 2 && sheaf__layer_in(c.qwen_vit.full_blocks, 1) &&
                    !sheaf__layer_in(c.qwen_vit.full_blocks, 0));
        CHECK_OK(sheaf__config_text(&said[i], &c));
        sheaf_config_release(&c);
    }
    assert_string_equal(said[0], said[1]);
    free(said[0]);
    free(said[1]);
}

TEST(test_config__keys_that_are_refused)
{
    static const refused_config rows[] = {
        { FLAT("{\"type\":\"mrope\",\"mrope_section\":[2,3,4]}", ""), SHEAF_E_LAYOUT,
          "mrope_section' | three numbers, of which the first is not 0, that sum to 8" },
        { FLAT("{\"type\":\"mrope\",\"mrope_section\":[2,3]}", ""), SHEAF_E_FORMAT,
          "mrope_section" },
        { FLAT("{\"type\":\"dynamic\",\"factor\":2,\"mrope_section\":[2,3,3]}", ""),
          SHEAF_E_UNSUPPORTED, "rope_type" },
        { NESTED(",\"hidden_act\":\"gelu\""), SHEAF_E_UNSUPPORTED, "text_config.hidden_act" },
        { "{\"model_type\":\"qwen2_5_vl\"," TEXT ",\"rope_scaling\":" MROPE "}", SHEAF_E_FORMAT,
          "'vision_config'" },
    };
    check_refused(rows, ARRAY_LEN(rows));
}

/* Bytes of the published files over those of a number. */
TEST(test_rows__of_the_published_models)
{
    static const struct {
        const char *file;
        int64_t numbers, places;
    } rows[] = { { "qwen2.5-vl-7b", 8292166656, 1024 }, { "qwen3-vl-8b", 8767123696, 784 } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        sheaf_schema *schema;
        CHECK_OK(sheaf_config_read(&c, in_sources("tests/data/configs/%s.json", rows[i].file)));
        assert_null(c.unknown_keys);
        assert_int_equal(sheaf__image_positions(&c), rows[i].places);
        CHECK_OK(sheaf_schema_new(&schema, &c, 8));
        assert_int_equal(count_numbers(schema, true), rows[i].numbers);
        sheaf_schema_free(schema);
        sheaf_config_release(&c);
    }
}

/* A picture of 2 x 3 squares that begins at 1 stands at (1, 1 + row, 1 + column); what follows at
 * 4. Hidden tokens do not count. */
TEST(test_positions__of_a_picture_between_words)
{
    static const uint8_t embed[] = { 0, 0, 1, 1, 1, 1, 1, 1, 0, 0 },
                         seen[] = { 0, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
    static const int32_t want[3][10] = { { 0, 0, 1, 1, 1, 1, 1, 1, 4, 5 },
                                         { 0, 0, 1, 1, 1, 2, 2, 2, 4, 5 },
                                         { 0, 0, 1, 2, 3, 1, 2, 3, 4, 5 } };
    const sheaf__tower tower = { .patch = 7, .merge = 2 };
    const sheaf__picture picture = { .of = { { .height = 28, .width = 42 } } };
    int32_t position[3][10];
    assert_int_equal(sheaf__grid_positions(position[0], 10, 10, embed, seen, &picture, &tower), 6);
    CHECK_BYTES("positions", position, want, sizeof want);
}

/* A video of two groups, one whose groups share a position, two pictures and a video. */
TEST(test_positions__without_words_between)
{
    enum { N = 7 };
    static const uint8_t embed[N] = { 1, 1, 1, 1, 1, 1, 1 };
    static const int32_t frame[N] = { 1, 2, 1, 1, 0, 0, 1 }, want[3][N] = {
        { 0, 1, 2, 2, 3, 4, 5 }, { 0, 0, 2, 2, 3, 4, 5 }, { 0, 0, 2, 2, 3, 4, 5 }
    };
    const sheaf__tower tower = { .patch = 7, .merge = 2 };
    sheaf__picture picture[N];
    int32_t position[3][N];
    for (int i = 0; i < N; i++)
        picture[i] = (sheaf__picture){ .of = { { .height = 14, .width = 14 } }, .frame = frame[i] };
    assert_int_equal(sheaf__grid_positions(position[0], N, N, embed, NULL, picture, &tower), 6);
    CHECK_BYTES("positions", position, want, sizeof want);
}

/* As the families' own programs: docs/images.md. */
TEST(test_pictures__transparency_is_laid_on_white)
{
    static const sheaf_family family[] = { SHEAF_QWEN2_5_VL, SHEAF_QWEN3_VL, SHEAF_OMNILMM,
                                           SHEAF_MINICPMV };
    for (int i = 0; i < 4; i++) {
        const sheaf_config c = { .family = family[i], .minicpmv = SHEAF_MINICPMV_2_6 };
        sheaf__picture_form form;
        sheaf__family_for(&c)->pictures(&form, &c);
        assert_true(form.on_white == (i < 2));
    }
}

/* As smart_resize() of transformers gives them. */
TEST(test_pictures__sizes)
{
    static const struct {
        int64_t width, height, unit, least, most, to_width, to_height;
    } rows[] = {
        { 300, 190, 28, 3136, 12544, 140, 84 }, /* too large: down */
        { 60, 62, 28, 3136, 12544, 56, 56 },
        { 30, 70, 28, 3136, 12544, 56, 112 }, /* too small: up */
        { 70, 42, 28, 784, 12544, 56, 56 },   /* halves go to the even number: 2.5, 1.5 */
        { 1000, 6, 28, 784, 12544, 0, 0 },    /* a ratio of 167 */
        { 2000, 9, 28, 784, 12544, 0, 0 },    /* of 222 */
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf__sliced s;
        sheaf_status *st = sheaf__fit_pixels(&s, rows[i].width, rows[i].height,
                                             &(sheaf__fitting){ .unit = rows[i].unit,
                                                                .least = rows[i].least,
                                                                .most = rows[i].most });
        if (rows[i].width > 200 * rows[i].height) {
            CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, "200 times");
            continue;
        }
        CHECK_OK(st);
        if (rows[i].to_width > 0)
            assert_true(s.width == rows[i].to_width && s.height == rows[i].to_height);
        assert_true(s.width % 28 == 0 && s.height % 28 == 0 && s.columns == 0);
    }
}
