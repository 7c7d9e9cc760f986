/* qwenvl_videos_test.c - videos of Qwen2.5-VL and Qwen3-VL as transformers has them
 * (bench/record_qwenvl_video.py): logits, loss and a gradient of a row with a video of three groups
 * of frames and a picture, with the same bytes at every number of ranks; and what the processors
 * make of frames of many sizes, numbers and rates: which are taken, grids, texts, positions.
 *
 * Recordings are of the committed part alone. Tolerances are those of successors_hf_test.c. */
#include "tests/parity/pieces.h"
#include "tests/pictures.h"
#include "tests/sources.h"

#include "data/record_pictures.h"
#include "schema/family.h"

static const char *const family[] = { "qwen2_5_vl", "qwen3_vl" };

static const char *recorded(const char *name)
{
    return in_sources("tests/data/successors/%s", name);
}

/* ---- the model ---- */

TEST(test_videos__logits_loss_and_gradient)
{
    for (int i = 0; i < 2; i++) {
        const char *dir = recorded(family[i]), *hf = in_dir(dir, "hf"),
                   *inputs = in_dir(dir, "videos.safetensors");
        const sheaf_safetensors *want = record_of(dir, "videos_outputs.safetensors");
        int64_t n, one_loss;
        const float *logits = values_of(want, "logits", &n),
                    *loss = values_of(want, "loss", &one_loss);
        trial one = run_forward(hf, NULL, inputs, SHEAF_F32),
              back = run_backward(hf, NULL, inputs, ranks_to_try, ARRAY_LEN(ranks_to_try));
        compare(dir, one.logits, logits, n, 2e-5, 1e-4);
        CHECK_NEAR(dir, one.loss, (double)loss[0], 1e-5);
        assert_int_equal(compare_gradients(&back, want, "grad.", (tolerance){ .largest = 1e-4 }),
                         1);
        release(&one);
        release(&back);
    }
}

/* ---- the processors ---- */

#define TEXT                                                                                       \
    "\"hidden_size\":96,\"intermediate_size\":172,\"num_hidden_layers\":2,"                        \
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"vocab_size\":350,"
static const char *const config_text[] = {
    "{\"model_type\":\"qwen2_5_vl\"," TEXT
    "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,3,3]},\"vision_config\":"
    "{\"depth\":1,\"hidden_act\":\"silu\",\"hidden_size\":48,\"intermediate_size\":76,"
    "\"num_heads\":3,\"out_hidden_size\":96,\"patch_size\":14,\"window_size\":56,"
    "\"fullatt_block_indexes\":[0],\"in_chans\":3,\"tokens_per_second\":2}}",
    "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"model_type\":\"qwen3_vl_text\"," TEXT
    "\"head_dim\":16,\"rope_scaling\":{\"rope_type\":\"default\",\"mrope_section\":[4,2,2]}},"
    "\"vision_config\":{\"depth\":1,\"hidden_size\":48,\"intermediate_size\":76,\"num_heads\":3,"
    "\"out_hidden_size\":96,\"patch_size\":16,\"in_channels\":3,\"spatial_merge_size\":2,"
    "\"temporal_patch_size\":2,\"num_position_embeddings\":16,\"deepstack_visual_indexes\":[]}}"
};

static int64_t whole(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static int64_t item(const json_t *list, size_t i)
{
    return json_integer_value(json_array_get(list, i));
}

/* The frames of a case, as a record names them: all the same file. */
static void read_case(sheaf__record_pictures *out, const json_t *one, const sheaf__viewing *viewing)
{
    const int64_t n = whole(one, "frames");
    put_picture(at("frame.png"), (int)whole(one, "width"), (int)whole(one, "height"), 7);
    json_t *frames = json_array(), *record;
    for (int64_t i = 0; i < n; i++)
        json_array_append_new(frames, json_string("frame.png"));
    record =
        json_pack("{s:{s:o,s:O,s:O}}", "video", "frames", frames, "fps",
                  json_object_get(one, "fps"), "target_fps", json_object_get(one, "target_fps"));
    CHECK_OK(sheaf__record_pictures_read(out, record, at("."), viewing));
    json_decref(record);
}

/* The text that stands for a video. */
static void check_text(const sheaf__record_pictures *p, const json_t *one,
                       const sheaf__viewing *viewing)
{
    const json_t *grid = json_object_get(one, "grid"), *texts = json_object_get(one, "text");
    const sheaf__message message = { "user", SHEAF__VIDEO_HERE "?", strlen(SHEAF__VIDEO_HERE "?") };
    sheaf__placed placed;
    sheaf_text want = { 0 };
    for (int64_t t = 0; t < item(grid, 0); t++) {
        sheaf__text_add(&want, "%s%s",
                        texts == NULL ? "" : json_string_value(json_array_get(texts, (size_t)t)),
                        texts != NULL || t == 0 ? "<|vision_start|>" : "");
        for (int64_t k = 0; k < item(grid, 1) * item(grid, 2) / 4; k++)
            sheaf__text_add(&want, "<|video_pad|>");
        sheaf__text_add(&want, "%s",
                        texts != NULL || t + 1 == item(grid, 0) ? "<|vision_end|>" : "");
    }
    sheaf__text_add(&want, "?");
    CHECK_OK(sheaf__record_pictures_place(&placed, &viewing->form, &message, 1, p, false));
    assert_int_equal(placed.message[0].size, want.size);
    assert_memory_equal(placed.message[0].content, want.at, want.size);
    sheaf__text_release(&want);
    sheaf__placed_release(&placed);
}

/* A token before the video and its beginning, its end and a token. */
static void check_positions(const sheaf__record_pictures *p, const json_t *one,
                            const sheaf__viewing *viewing)
{
    const json_t *grid = json_object_get(one, "grid"),
                 *want = json_object_get(one, "positions 4.49");
    const int64_t rows = item(grid, 0) * item(grid, 1) * item(grid, 2) / 4, n = rows + 4;
    sheaf__picture *picture = room((size_t)p->count * sizeof *picture);
    int32_t *position = room((size_t)(3 * n) * sizeof *position);
    uint8_t *embed = room((size_t)n);
    for (int64_t i = 0; i < p->count; i++) {
        picture[i] = sheaf__view_piece(&p->viewed[i].pieces, 0);
        picture[i].frame = p->viewed[i].frame;
        picture[i].joins = p->viewed[i].joins;
    }
    memset(embed + 2, 1, (size_t)rows);
    sheaf__grid_positions(position, n, n, embed, NULL, picture, viewing->tower);
    size_t at = 0;
    for (int64_t i = 0; i < n; i++)
        if (i == 0 || position[i] != position[i - 1])
            assert_int_equal(position[i], item(want, at++));
    assert_int_equal(at, json_array_size(want));
}

TEST(test_videos__frames_are_taken_sized_and_placed_as_there)
{
    const json_t *cases = json_of(recorded(""), "qwenvl_videos.json"), *one;
    size_t c;
    assert_true(json_array_size(cases) > 10);
    json_array_foreach((json_t *)cases, c, one)
    {
        const bool third =
            strcmp(json_string_value(json_object_get(one, "family")), family[1]) == 0;
        const json_t *grid = json_object_get(one, "grid"), *kept = json_object_get(one, "kept");
        sheaf_config config;
        sheaf__viewing viewing;
        sheaf__record_pictures p;
        int64_t groups = 0;
        CHECK_OK(sheaf_config_parse(&config, config_text[third], strlen(config_text[third])));
        config.qwen_vit.video.least = whole(one, "least");
        config.qwen_vit.video.most = whole(one, "most");
        sheaf__viewing_of(&viewing, &config);
        read_case(&p, one, &viewing);
        assert_int_equal(p.count, json_array_size(kept));
        for (int64_t i = 0; i < p.count; i++) {
            const sheaf__sliced *s = &p.viewed[i].pieces;
            assert_int_equal(s->height, item(grid, 1) * viewing.tower[0].patch);
            assert_int_equal(s->width, item(grid, 2) * viewing.tower[0].patch);
            CHECK_NEAR("second", p.viewed[i].second,
                       (double)item(kept, (size_t)i) /
                           json_number_value(json_object_get(one, "fps")),
                       1e-12);
            groups += !p.viewed[i].joins;
        }
        assert_int_equal(groups, item(grid, 0));
        check_text(&p, one, &viewing);
        if (!third)
            check_positions(&p, one, &viewing);
        sheaf__record_pictures_release(&p);
        sheaf_config_release(&config);
    }
}

FIXTURE(make_scratch, remove_scratch);
