/* picture_settings_test.c - settings beside a config: what transformers 5.24 makes of a picture of
 * 200 x 100 pixels of the colour 10, 20, 30 (AutoImageProcessor.from_pretrained(), grid and first
 * number), and what is refused by name. */
#include "models/picture_settings.h"

#include <unistd.h>

#include "data/record_pictures.h"
#include "inputs/viewing.h"
#include "tests/files.h"

#define TEXT                                                                                       \
    "\"hidden_size\":96,\"intermediate_size\":172,\"num_hidden_layers\":2,"                        \
    "\"num_attention_heads\":6,\"num_key_value_heads\":3,\"vocab_size\":331,"
static const char second[] =
    "{\"model_type\":\"qwen2_5_vl\"," TEXT
    "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,3,3]},\"vision_config\":"
    "{\"depth\":3,\"hidden_act\":\"silu\",\"hidden_size\":48,\"intermediate_size\":76,"
    "\"num_heads\":3,\"out_hidden_size\":96,\"patch_size\":14,\"window_size\":56,"
    "\"fullatt_block_indexes\":[1],\"in_chans\":3}}";
static const char third[] =
    "{\"model_type\":\"qwen3_vl\",\"text_config\":{\"model_type\":\"qwen3_vl_text\"," TEXT
    "\"head_dim\":16,\"rope_scaling\":{\"rope_type\":\"default\",\"mrope_section\":[4,2,2]}},"
    "\"vision_config\":{\"depth\":3,\"hidden_size\":48,\"intermediate_size\":76,\"num_heads\":3,"
    "\"out_hidden_size\":96,\"patch_size\":16,\"in_channels\":3,\"spatial_merge_size\":2,"
    "\"temporal_patch_size\":2,\"num_position_embeddings\":16,\"deepstack_visual_indexes\":[]}}";

static char noted[2048];

static void keep(void *context, const sheaf_event *event)
{
    snprintf(noted + strlen(noted), sizeof noted - strlen(noted), "%s\n", event->text);
}

/* NULL: no such file. */
static void put_files(const char *processor, const char *preprocessor)
{
    unlink(at("processor_config.json"));
    unlink(at("preprocessor_config.json"));
    unlink(at("video_preprocessor_config.json"));
    if (processor != NULL)
        put(at("processor_config.json"), processor);
    if (preprocessor != NULL)
        put(at("preprocessor_config.json"), preprocessor);
}

static sheaf_status *read_settings(sheaf_config *c, const char *config)
{
    const sheaf_events events = { .emit = keep };
    char folder[512];
    snprintf(folder, sizeof folder, "%s", at("."));
    noted[0] = '\0';
    CHECK_OK(sheaf_config_parse(c, config, strlen(config)));
    return sheaf__picture_settings_read(c, folder, NULL, &events);
}

static void check_grid(const sheaf_config *c, int64_t rows, int64_t columns, double first)
{
    const uint8_t colour[3] = { 10, 20, 30 };
    float number[3];
    sheaf__viewing v;
    sheaf__sliced s;
    sheaf__viewing_of(&v, c);
    CHECK_OK(sheaf__view_divide(&s, 200, 100, &v));
    sheaf_image_normalise(number, colour, 1, &v.scale);
    assert_int_equal(s.height, rows * c->vit.patch);
    assert_int_equal(s.width, columns * c->vit.patch);
    CHECK_NEAR("first number", number[0], first, 1e-6); /* as printed */
}

#define CLASS "\"image_processor_type\":\"Qwen2VLImageProcessor\""

/* The same settings, as either file holds them. */
TEST(test_settings__give_what_transformers_gives)
{
    static const struct {
        const char *config, *more;
        int64_t rows, columns;
        double first;
    } cases[] = {
        { second, "", 8, 14, -1.646278 },
        { second, ",\"size\":{\"shortest_edge\":3136,\"longest_edge\":12544}", 4, 10, -1.646278 },
        { second, ",\"min_pixels\":65536", 14, 26, -1.646278 },
        { second, ",\"max_pixels\":6272", 4, 8, -1.646278 },
        { second,
          ",\"min_pixels\":3136,\"max_pixels\":6272,"
          "\"size\":{\"shortest_edge\":50000,\"longest_edge\":60000}",
          4, 8, -1.646278 },
        { second, ",\"max_pixels\":6272,\"size\":{\"shortest_edge\":3136}", 4, 8, -1.646278 },
        { second,
          ",\"min_pixels\":3136,\"max_pixels\":12544,"
          "\"size\":{\"min_pixels\":3136,\"max_pixels\":12544}",
          4, 10, -1.646278 },
        { second, ",\"size\":{\"shortest_edge\":20000,\"longest_edge\":10000}", 4, 10, -1.646278 },
        { second, ",\"size\":null", 8, 14, -1.646278 },
        { second, ",\"image_mean\":[0.5,0.5,0.5],\"image_std\":[0.5,0.5,0.5]", 8, 14, -0.921569 },
        { second, ",\"image_mean\":0.5,\"image_std\":0.5", 8, 14, -0.921569 },
        { second, ",\"image_mean\":[0,0,0],\"image_std\":[1,1,1]", 8, 14, 0.039216 },
        { second, ",\"do_center_crop\":true,\"crop_size\":{\"height\":56,\"width\":56}", 8, 14,
          -1.646278 },
        { second,
          ",\"do_resize\":true,\"do_rescale\":true,\"do_normalize\":true,\"do_convert_rgb\":true,"
          "\"resample\":3,\"rescale_factor\":0.00392156862745098,\"do_pad\":null,"
          "\"merge_size\":2,\"temporal_patch_size\":2,\"patch_size\":14",
          8, 14, -1.646278 },
        { third, ",\"patch_size\":16", 6, 12, -1.646278 },
        { third, ",\"patch_size\":16,\"image_mean\":[0.5,0.5,0.5],\"image_std\":[0.5,0.5,0.5]", 6,
          12, -0.921569 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (int nested = 0; nested < 2; nested++) {
            sheaf_config c;
            char inner[512], text[640];
            snprintf(inner, sizeof inner, "{" CLASS "%s}", cases[i].more);
            snprintf(
                text, sizeof text,
                nested
                    ? "{\"image_processor\":%s,\"video_processor\":{\"size\":{\"shortest_edge\":7,\"longest_edge\":70}}}"
                    : "%s",
                inner);
            put_files(nested ? text : NULL, nested ? NULL : text);
            CHECK_OK(read_settings(&c, cases[i].config));
            check_grid(&c, cases[i].rows, cases[i].columns, cases[i].first);
            assert_string_equal(noted, "");
            sheaf_config_release(&c);
        }
}

TEST(test_settings__of_transformers_5_count_before_the_older_file)
{
    static const char nested[] = "{\"image_processor\":{" CLASS ",\"max_pixels\":6272}}";
    static const struct {
        const char *processor, *preprocessor;
        int64_t rows, columns;
        const char *note;
    } cases[] = {
        { nested, "{\"max_pixels\":12544}", 4, 8,
          "processor_config.json counts, as in transformers 5; preprocessor_config.json says" },
        { nested, "{\"do_resize\":false}", 4, 8, "processor_config.json counts" },
        { nested, "{\"max_pixels\":6272,\"do_resize\":true}", 4, 8, NULL },
        { "{\"processor_class\":\"Qwen2_5_VLProcessor\"}", "{\"max_pixels\":12544}", 4, 10, NULL },
        { "{\"image_processor\":null}", "{\"max_pixels\":12544}", 4, 10, NULL },
        { NULL, NULL, 8, 14,
          "no processor_config.json and no preprocessor_config.json: pictures have 3136 to "
          "1003520 pixels, mean 0.481455, " },
        { "{\"chat_template\":\"a\"}", NULL, 8, 14, "3136 to 1003520 pixels" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_config c;
        put_files(cases[i].processor, cases[i].preprocessor);
        CHECK_OK(read_settings(&c, second));
        check_grid(&c, cases[i].rows, cases[i].columns, -1.646278);
        if (cases[i].note == NULL ? noted[0] != '\0' : strstr(noted, cases[i].note) == NULL)
            fail_msg("%zu: %s", i, noted);
        sheaf_config_release(&c);
    }
}

static void check_refused(sheaf_status *st, const char *part)
{
    const sheaf_code code = st == NULL ? SHEAF_E_MEMORY : sheaf_status_code(st);
    assert_true(code == SHEAF_E_FORMAT || code == SHEAF_E_LAYOUT || code == SHEAF_E_UNSUPPORTED);
    CHECK_FAILS(st, code, part);
}

TEST(test_settings__that_are_not_followed_are_refused)
{
    static const struct {
        const char *config, *settings, *part;
    } cases[] = {
        { second, "\"do_resize\":false", "config.json: 'image_processor.do_resize' | true" },
        { second, "\"do_rescale\":false", "do_rescale" },
        { second, "\"do_normalize\":false",
          "do_normalize' | true, or no such key: another value "
          "leaves out mean and deviation | false" },
        { second, "\"do_normalize\":null", "do_normalize" }, /* false to transformers */
        { second, "\"do_convert_rgb\":false", "do_convert_rgb" },
        { second, "\"resample\":2", "resample' | 3, or no such key: bicubic | 2" },
        { second, "\"resample\":null", "resample" }, /* bilinear to transformers */
        { second, "\"rescale_factor\":0.0078125", "rescale_factor' | 1/255" },
        { second, "\"size\":256", "size' | an object with shortest_edge and longest_edge" },
        { second, "\"size\":[56,56]", "size'" },
        { second, "\"size\":{\"shortest_edge\":3136}", "size'" },
        { second, "\"size\":{\"longest_edge\":3136}", "size'" },
        { second, "\"size\":{\"height\":56,\"width\":56}", "size'" },
        { second, "\"size\":{\"min_pixels\":3136,\"max_pixels\":12544}", "size'" },
        { second, "\"size\":{\"shortest_edge\":\"3136\",\"longest_edge\":5}", "shortest_edge" },
        { second, "\"patch_size\":16", "patch_size' | 14, as config.json has it | 16" },
        { second, "\"merge_size\":4", "merge_size" },
        { second, "\"temporal_patch_size\":1", "temporal_patch_size" },
        { second, "\"image_mean\":[0.5,0.5]", "image_mean' | a list of three numbers" },
        { second, "\"image_std\":[0.5,0.5,0]", "image_std' | numbers above 0" },
        { second, "\"image_processor_type\":\"CLIPImageProcessor\"",
          "image_processor_type' | \"Qwen2VLImageProcessor\" | \"CLIPImageProcessor\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_config c;
        char text[512];
        snprintf(text, sizeof text, "{\"image_processor\":{%s}}", cases[i].settings);
        put_files(text, NULL);
        sheaf_status *st = read_settings(&c, cases[i].config);
        print_message("%s\n", cases[i].settings);
        check_refused(st, cases[i].part);
        sheaf_config_release(&c);
    }
}

/* Of programs that look at no such file, or only at some keys: refused is what is done otherwise.
 */
TEST(test_settings__of_the_other_families)
{
    static const struct {
        const char *config, *settings, *part; /* part NULL: accepted */
    } cases[] = {
        { "cogvlm-chat-hf", "\"size\":490,\"image_std\":[0.26862954,0.26130258,0.27577711]", NULL },
        { "cogvlm-chat-hf", "\"size\":{\"height\":224,\"width\":224}", "size' | {\"height\": 490" },
        { "cogvlm-chat-hf", "\"size\":{\"shortest_edge\":490}", "whatever their shape" },
        { "cogagent-chat-hf", "\"image_mean\":[0.5,0.5,0.5]", "image_mean' | [0.481454" },
        { "cogagent-9b", "\"do_center_crop\":true", "do_center_crop' | 0, false or null" },
        { "cogvlm-490", "\"do_normalize\":false", "do_normalize" },
        { "omnilmm-12b", "\"resample\":2", "resample" },
        { "omnilmm-12b", "\"size\":{\"height\":448,\"width\":448},\"do_center_crop\":false", NULL },
        { "minicpmv-2.6",
          "\"norm_mean\":[0.5,0.5,0.5],\"norm_std\":[0.5,0.5,0.5],\"patch_size\":14,"
          "\"image_feature_size\":64,\"version\":2.6,\"slice_mode\":true",
          NULL },
        { "minicpmv-2.6", "\"norm_mean\":[0.48,0.45,0.4]", "norm_mean' | [0.5, 0.5, 0.5]" },
        { "minicpmv-2.5", "\"norm_std\":[0.2,0.2,0.2]", "norm_std" },
        { "minicpmv-4.5", "\"image_feature_size\":96", "image_feature_size' | 64, as query_num" },
        { "minicpmv-2.0", "\"patch_size\":16", "patch_size' | 14" },
        { "minicpmv-4.5", "\"do_rescale\":false", "do_rescale" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_config c;
        char text[512], file[512];
        const char *root = getenv("SHEAF_SOURCE_ROOT");
        snprintf(text, sizeof text, "{%s}", cases[i].settings);
        snprintf(file, sizeof file, "%s/tests/data/configs/%s.json", root == NULL ? "." : root,
                 cases[i].config);
        put_files(NULL, text);
        CHECK_OK(sheaf_config_read(&c, file));
        sheaf_status *st = sheaf__picture_settings_read(&c, at("."), NULL, NULL);
        print_message("%s: %s\n", cases[i].config, cases[i].settings);
        if (cases[i].part == NULL)
            CHECK_OK(st);
        else
            check_refused(st, cases[i].part);
        sheaf_config_release(&c);
    }
}

/* Beside a config that is given by itself, too. */
TEST(test_settings__lie_beside_a_config_that_is_given)
{
    sheaf_config c;
    put_files("{\"image_processor\":{\"max_pixels\":6272}}", NULL);
    CHECK_OK(sheaf_config_parse(&c, second, strlen(second)));
    CHECK_OK(sheaf__picture_settings_read(&c, NULL, at("config.json"), NULL));
    check_grid(&c, 4, 8, -1.646278);
    sheaf_config_release(&c);
}

/* Of which file, with the classes' defaults: size, frames of a second, and how many. */
TEST(test_videos__settings)
{
    static const char own[] = "{\"size\":{\"shortest_edge\":7,\"longest_edge\":70},\"fps\":3,"
                              "\"do_sample_frames\":true,\"min_frames\":2,\"max_frames\":8}";
    static const struct {
        const char *config, *processor, *video;
        int64_t least, most;
        double sampled;
        int64_t few, many;
    } cases[] = {
        { second, NULL, NULL, 100352, 602112, 0, 4, 768 },
        { third, NULL, NULL, 131072, 786432, 2, 4, 768 },
        { second, NULL, own, 7, 70, 3, 2, 8 },
        { third, NULL, "{\"do_sample_frames\":false}", 131072, 786432, 0, 4, 768 },
        { third, "{\"video_processor\":{\"fps\":5}}", own, 131072, 786432, 5, 4, 768 },
        { second, "{\"image_processor\":{\"min_pixels\":9,\"max_pixels\":90}}", NULL, 9, 90, 0, 4,
          768 },
    };
    sheaf_config c;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf__viewing v;
        put_files(cases[i].processor, NULL);
        if (cases[i].video != NULL)
            put(at("video_preprocessor_config.json"), cases[i].video);
        CHECK_OK(read_settings(&c, cases[i].config));
        sheaf__viewing_of(&v, &c);
        const sheaf__video_form *f = &v.form.video;
        assert_true(f->least == cases[i].least && f->most == cases[i].most &&
                    f->sampled == cases[i].sampled && f->few == cases[i].few &&
                    f->many == cases[i].many);
        sheaf_config_release(&c);
    }
    put_files(NULL, NULL);
}

/* What is not supported is refused to videos alone. */
TEST(test_videos__refuse_what_is_not_supported)
{
    static const char *const cases[][2] = {
        { "{\"cap_pixels_per_frame\":true}", "cap_pixels_per_frame" },
        { "{\"video_processor_type\":\"LlavaProcessor\"}", "\"Qwen3VLVideoProcessor\"" },
        { "{}", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_config c;
        sheaf__viewing v;
        sheaf__record_pictures none = { 0 };
        put_files(NULL, NULL);
        put(at("video_preprocessor_config.json"), cases[i][0]);
        CHECK_OK(read_settings(&c, third));
        sheaf__viewing_of(&v, &c);
        CHECK_FAILS(sheaf__record_pictures_video(&none, &(sheaf__frames){ .field = "video" }, &v),
                    SHEAF_E_DATA, cases[i][1] == NULL ? "1 to 1000 frames" : cases[i][1]);
        sheaf_config_release(&c);
    }
    put_files(NULL, NULL);
}

FIXTURE(make_scratch, remove_scratch);
