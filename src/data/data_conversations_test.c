/* data_conversations_test.c - conversations with pictures as rows: tokens, labels, pictures in
 * their order and sizes, and what is refused. */
#include "tests/pictures.h"
#include "tests/tensors.h"

#include "data/data_rows.h"
#include "inputs/image.h"
#include "inputs/slices.h"
#include "schema/family.h"

enum { NONE = SHEAF__NO_LABEL };

static const char of_qwen[] =
    "{\"model_type\":\"qwen2_5_vl\",\"sheaf_tokenizer\":\"bytes\",\"hidden_size\":96,"
    "\"intermediate_size\":172,\"num_hidden_layers\":2,\"num_attention_heads\":6,"
    "\"num_key_value_heads\":3,\"vocab_size\":350,\"bos_token_id\":256,\"eos_token_id\":257,\"max_position_embeddings\":2048,"
    "\"rope_scaling\":{\"type\":\"mrope\",\"mrope_section\":[2,3,3]},\"vision_start_token_id\":330,"
    "\"vision_end_token_id\":331,\"image_token_id\":332,\"video_token_id\":333,\"vision_config\":"
    "{\"depth\":1,\"hidden_act\":\"silu\",\"hidden_size\":48,\"intermediate_size\":76,"
    "\"num_heads\":3,\"out_hidden_size\":96,\"patch_size\":14,\"window_size\":56,"
    "\"fullatt_block_indexes\":[0],\"in_chans\":3}}";

/* Of small models. */
static sheaf_config omnilmm, minicpmv, with_videos,
    qwen, *const configs[] = { &omnilmm, &minicpmv, &with_videos, &qwen };

static int read_configs(void **state)
{
    const char *const text[] = { sheaf__spec_config("omnilmm-tiny"),
                                 sheaf__spec_config("minicpmv-tiny"),
                                 sheaf__spec_config("minicpmv-4.5-tiny"), of_qwen };
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        CHECK_OK(sheaf_config_parse(configs[i], text[i], strlen(text[i])));
    return make_scratch(state);
}

static int release_configs(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(configs); i++)
        sheaf_config_release(configs[i]);
    return remove_scratch(state);
}

static sheaf_status *open_data(sheaf_data **out, const sheaf_config *c, const char *text,
                               sheaf_data_options how)
{
    how.config = c;
    how.threads = 2;
    return sheaf_data_open(out, file_with("conversations.json", text, strlen(text)), &how);
}

/* Tokens from a text in which {N} stands for token N, and {N*M} for M of them. */
static int64_t ids_of(int32_t *out, const char *text)
{
    int64_t n = 0;
    for (char *end; *text != '\0';) {
        if (*text != '{') {
            out[n++] = (unsigned char)*text++;
            continue;
        }
        const int32_t id = (int32_t)strtol(text + 1, &end, 10);
        const int64_t times = *end == '*' ? strtol(end + 1, &end, 10) : 1;
        for (int64_t i = 0; i < times; i++)
            out[n++] = id;
        text = end + 1;
    }
    return n;
}

static void check_row(const sheaf_data *d, int64_t row, const char *want, const char *labels)
{
    int32_t ids[4096];
    const int64_t n = ids_of(ids, want), begin = d->begin[row];
    assert_int_equal(d->begin[row + 1] - begin, n);
    assert_memory_equal(d->token + begin, ids, (size_t)n * sizeof *ids);
    assert_int_equal(ids_of(ids, labels), n);
    for (int64_t i = 0; i < n; i++)
        if (d->label[begin + i] != (ids[i] == '.' ? NONE : ids[i]))
            fail_msg("row %d: label %d is %d", (int)row, (int)i, (int)d->label[begin + i]);
}

/* The pixels of a row, which must be those of `path` at these sizes, one picture after another. */
static void check_pixels(const sheaf_data *d, int64_t row, const char *const *path,
                         const int64_t (*size)[2], int64_t n, const sheaf_image_scale *scale)
{
    const sheaf_batch_images has = sheaf_data_images(d, &row, 1);
    static float got[4 << 20], want[4 << 20];
    sheaf__picture picture[8] = { { .of = { { .pixels = got } } } };
    const sheaf_batch batch = { .picture = picture, .room = { ARRAY_LEN(got) } };
    assert_int_equal(has.pictures.images, n);
    if (sheaf_data_images(d, &row, 1).pictures.images > 0 && scale == &sheaf_image_clip_scale)
        for (int64_t i = 0; i < n; i++)
            picture[i].of[0] =
                (sheaf__view){ got + i * 3 * size[i][0] * size[i][1], size[i][1], size[i][0] };
    CHECK_OK(sheaf_data_pixels(&batch, d, &row, 1));
    for (int64_t i = 0; i < n; i++) {
        sheaf_image image;
        assert_int_equal(picture[i].of[0].width, size[i][0]);
        assert_int_equal(picture[i].of[0].height, size[i][1]);
        if (path[i] == NULL)
            continue;
        CHECK_OK(sheaf_image_load(&image, path[i]));
        CHECK_OK(sheaf_image_prepare(want, &image, size[i][0], size[i][1], scale));
        CHECK_BYTES(path[i], picture[i].of[0].pixels, want,
                    (size_t)(3 * size[i][0] * size[i][1]) * sizeof *want);
        sheaf_image_release(&image);
    }
}

static void put_pictures(void)
{
    put_picture(at("a.png"), 60, 40, 1);
    put_picture(at("b.png"), 90, 150, 2);
}

#define ROWS_16 "{260}{259*16}{261}"

TEST(test_omnilmm__pictures_in_any_turn)
{
    sheaf_data *d;
    put_pictures();
    CHECK_OK(open_data(
        &d, &omnilmm,
        "[{\"id\": \"0\", \"image\": \"a.png\", \"conversations\": [{\"from\": \"human\", \"value\": "
        "\"<image>\\nQ\"}, {\"from\": \"gpt\", \"value\": \"A\"}]},\n"
        "{\"image\": {\"<image_00>\": \"a.png\", \"<image_01>\": \"b.png\"}, \"conversations\": "
        "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\"}, "
        "{\"role\": \"user\", \"content\": \"<image_01><image_00>\"}, {\"role\": \"assistant\", "
        "\"content\": \"z\"}]},\n"
        "{\"conversations\": [{\"role\": \"user\", \"content\": \"image\"}, {\"role\": "
        "\"assistant\", \"content\": \"<image>\"}]}]",
        (sheaf_data_options){ 0 }));
    assert_int_equal(sheaf_data_rows(d), 3);
    check_row(d, 0, "{256}<|user|>\n" ROWS_16 "\nQ{257}\n<|assistant|>\nA{257}\n",
              "{46*46}A{257}.");
    check_row(d, 1,
              "{256}<|user|>\nx{257}\n<|assistant|>\ny{257}\n<|user|>\n\n" ROWS_16 "\n\n" ROWS_16
              "\n{257}\n<|assistant|>\nz{257}\n",
              "{46*27}y{257}{46*66}z{257}.");
    check_row(d, 2, "{256}<|user|>\nimage{257}\n<|assistant|>\n<image>{257}\n",
              "{46*31}<image>{257}.");
    const char *const first[] = { at("a.png") }, *const second[] = { at("b.png"), at("a.png") };
    static const int64_t size[][2] = { { 84, 84 }, { 84, 84 } };
    check_pixels(d, 0, first, size, 1, &sheaf_image_clip_scale);
    check_pixels(d, 1, second, size, 2, &sheaf_image_clip_scale);
    assert_string_equal(sheaf_data_template(d), "zephyr");
    sheaf_data_close(d);
    char folder[512]; /* with this one file of JSON, and pictures beside it */
    snprintf(folder, sizeof folder, "%.*s", (int)(strlen(at("x")) - 2), at("x"));
    CHECK_OK(
        sheaf_data_open(&d, folder, &(sheaf_data_options){ .config = &omnilmm, .threads = 2 }));
    assert_int_equal(sheaf_data_rows(d), 3);
    sheaf_data_close(d);
}

#define WHOLE_16 "{259}{263*16}{260}"
#define SLICE_16 "{261}{263*16}{262}"

TEST(test_minicpmv__slices_are_pictures_of_their_own)
{
    sheaf_data *d;
    put_pictures();
    CHECK_OK(open_data(
        &d, &minicpmv,
        "{\"image\": \"a.png\", \"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": "
        "\"assistant\", \"content\": \"A\"}, {\"role\": \"user\", \"content\": \"R\"}, {\"role\": "
        "\"assistant\", \"content\": \"B\"}]}\n"
        "{\"images\": [\"b.png\", \"file://a.png\"], \"prompt\": \"P\", \"completion\": \"C\"}\n",
        (sheaf_data_options){ 0 }));
    check_row(d, 0, "{256}<用户>" WHOLE_16 "\nQ<AI>A<用户>R<AI>B{257}",
              "{46*33}A{257}{46*12}B{257}");
    check_row(d, 1,
              "{256}<用户>{264}0{265}" WHOLE_16 SLICE_16 "\n" SLICE_16 "\n" WHOLE_16
              "\nP<AI>C{257}",
              "{46*92}C{257}");
    const char *const pictures[] = { at("b.png"), NULL, NULL, at("a.png") };
    sheaf__sliced b, a;
    CHECK_OK(sheaf__slice(&b, 90, 150, &(sheaf__slicing){ 84, 14, 9 }));
    CHECK_OK(sheaf__slice(&a, 60, 40, &(sheaf__slicing){ 84, 14, 9 }));
    assert_true(b.columns == 1 && b.rows == 2 && a.columns == 0);
    const int64_t size[][2] = { { b.width, b.height },
                                { b.slice_width, b.slice_height },
                                { b.slice_width, b.slice_height },
                                { a.width, a.height } };
    const sheaf_image_scale halves = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
    check_pixels(d, 1, pictures, size, 4, &halves);
    /* announced, held and not held any more */
    const int64_t rows[] = { 0, 1 };
    for (int i = 0; i < 3; i++) {
        sheaf_data_announce(d, rows, 2);
        check_pixels(d, 0, pictures + 3, size + 3, 1, &halves);
        check_pixels(d, 1, pictures, size, 4, &halves);
    }
    sheaf_data_close(d);
}

/* ---- videos ---- */

#define VIDEO(FIELDS, USER)                                                                        \
    "{" FIELDS ", \"messages\": [{\"role\": \"user\", \"content\": \"" USER                        \
    "\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}\n"
#define LIST_3 "[\"a.png\", \"b.png\", \"a.png\"]"
#define FRAMES_3 "\"video\": " LIST_3
/* A record of more fields whose question has these parts. */
#define PARTS(MORE, CONTENT)                                                                       \
    "{" MORE ", \"messages\": [{\"role\": \"user\", \"content\": [" CONTENT                        \
    "]}, {\"role\": \"assistant\", \"content\": \"A\"}]}"

static void check_frames(const sheaf_data *d, int64_t row, const int32_t *frame, const bool *joins,
                         int64_t n)
{
    sheaf__picture picture[8];
    assert_int_equal(sheaf_data_images(d, &row, 1).pictures.images, n);
    sheaf_data_row_sizes(picture, n, d, row);
    for (int64_t i = 0; i < n; i++)
        if (picture[i].frame != frame[i] || picture[i].joins != joins[i])
            fail_msg("row %d, frame %d: %d%s", (int)row, (int)i, (int)picture[i].frame,
                     picture[i].joins ? ", joined" : "");
}

static void put_frames(void)
{
    CHECK_OK(sheaf__make_dirs(at("frames")));
    put_picture(at("frames/02.png"), 60, 40, 1);
    put_picture(at("frames/01.png"), 90, 150, 2);
    put(at("frames/notes.txt"), "");
}

TEST(test_videos__frames_stand_in_groups)
{
    sheaf_data *d;
    char hash[33];
    put_pictures();
    put_frames();
    static const char rows[] = VIDEO(FRAMES_3 ", \"temporal_ids\": [[0, 3], [71999]]",
                                     "see <video> Q") VIDEO("\"video\": \"frames\"", "Q")
        VIDEO("\"images\": [\"b.png\", \"b.png\", \"a.png\"], \"temporal_ids\": [[-1], [4, 4]]",
              "<image>,<image>") VIDEO("\"image\": \"a.png\", " FRAMES_3 ", \"fps\": 0.5", "Q")
            PARTS("\"images\": [\"b.png\", \"b.png\", \"a.png\"], \"temporal_ids\": [[-1], [4, 4]]",
                  "{\"type\": \"image\"}, {\"type\": \"image\"}") "\n"
        /* 0.5 frames in a second, said in each place that counts */
        PARTS("\"fps\": 0.5", "{\"type\": \"video\", " FRAMES_3 "}") "\n" PARTS(
            "\"fps\": 3",
            "{\"type\": \"video\", \"fps\": 0.5, \"video\": {\"frames\": " LIST_3
            "}}") "\n" PARTS(FRAMES_3,
                             "{\"type\": \"video\", \"fps\": 0.5}") "\n" VIDEO("\"fps\": 0.5, \"video\": {\"frames\": " LIST_3
                                                                               "}",
                                                                               "Q");
    CHECK_OK(
        open_data(&d, &with_videos, rows, (sheaf_data_options){ .prompt_template = "minicpm" }));
    check_row(d, 0, "{256}<用户>see " WHOLE_16 "\n" WHOLE_16 " Q<AI>A{257}", "{46*56}A{257}");
    check_row(d, 1, "{256}<用户>" WHOLE_16 "\n" WHOLE_16 "\nQ<AI>A{257}", "{46*52}A{257}");
    check_row(d, 2, "{256}<用户>" WHOLE_16 SLICE_16 "\n" SLICE_16 "," WHOLE_16 "<AI>A{257}",
              "{46*87}A{257}");
    check_row(d, 3,
              "{256}<用户>" WHOLE_16 "\n" WHOLE_16 "\n" WHOLE_16 "\n" WHOLE_16 "\nQ<AI>A{257}",
              "{46*90}A{257}");
    check_frames(d, 0, (const int32_t[]){ 1, 4, 72000 }, (const bool[]){ false, true, false }, 3);
    check_frames(d, 1, (const int32_t[]){ 1, 3 }, (const bool[]){ false, false }, 2);
    for (int64_t row = 2; row <= 4; row += 2)
        check_frames(d, row, (const int32_t[]){ 0, 0, 0, 5, 5 },
                     (const bool[]){ false, false, false, false, true }, 5);
    check_frames(d, 3, (const int32_t[]){ 0, 1, 21, 41 },
                 (const bool[]){ false, false, false, false }, 4);
    for (int64_t row = 5; row < 9; row++)
        check_frames(d, row, (const int32_t[]){ 1, 21, 41 }, (const bool[]){ false, false, false },
                     3);
    sheaf__sliced b, a; /* whole, however large */
    CHECK_OK(sheaf__slice(&b, 90, 150, &(sheaf__slicing){ 84, 14, 1 }));
    CHECK_OK(sheaf__slice(&a, 60, 40, &(sheaf__slicing){ 84, 14, 1 }));
    const char *const pictures[] = { at("frames/01.png"), at("frames/02.png") };
    const int64_t size[][2] = { { b.width, b.height }, { a.width, a.height } };
    const sheaf_image_scale halves = { { 0.5f, 0.5f, 0.5f }, { 0.5f, 0.5f, 0.5f } };
    check_pixels(d, 1, pictures, size, 2, &halves);
    strcpy(hash, sheaf_data_hash(d));
    sheaf_data_close(d);
    char other[sizeof rows];
    strcpy(other, rows);
    *strstr(other, "71999") = '6';
    CHECK_OK(
        open_data(&d, &with_videos, other, (sheaf_data_options){ .prompt_template = "minicpm" }));
    assert_string_not_equal(sheaf_data_hash(d), hash);
    sheaf_data_close(d);
}

TEST(test_videos__what_is_refused)
{
    static const struct {
        const char *text, *part;
        sheaf_code code; /* 0: of data */
    } rows[] = {
        { VIDEO(FRAMES_3 ", \"temporal_ids\": [[0, 3]]", "Q"),
          "'temporal_ids' | 3 numbers in all, one for each of the frames | 2" },
        { VIDEO(FRAMES_3 ", \"temporal_ids\": [[0, 3, 4], []]", "Q"),
          "'temporal_ids' | groups of 1 to 6 frames | 0" },
        { VIDEO(FRAMES_3 ", \"temporal_ids\": [[0, -1, 4]]", "Q"),
          "numbers of frames from 0 on; -1 alone for a picture | -1" },
        { VIDEO(FRAMES_3 ", \"temporal_ids\": [[0, 1.5, 4]]", "Q"),
          "numbers of frames from 0 on; -1 alone for a picture | 1.5" },
        { VIDEO(FRAMES_3 ", \"temporal_ids\": [0, 3, 4]", "Q"),
          "a list of groups, each a list of numbers: [[0, 3, 7], [12]] | 0" },
        { VIDEO(FRAMES_3 ", \"temporal_ids\": 3", "Q"),
          "a list of groups, each a list of numbers: [[0, 3, 7], [12]] | 3" },
        { VIDEO(FRAMES_3 ", \"fps\": 0", "Q"), "'fps' | frames in a second" },
        { VIDEO(FRAMES_3 ", \"fps\": 2, \"times\": [0, 1, 2]", "Q"), "either \"fps\" or" },
        { VIDEO(FRAMES_3 ", \"times\": [0, 1]", "Q"), "'times' | 3 ascending seconds" },
        { VIDEO(FRAMES_3 ", \"times\": [0, 2, 1]", "Q"), "'times' | 3 ascending seconds" },
        { VIDEO(FRAMES_3 ", \"target_fps\": 1", "Q"), "'target_fps' | none" },
        { VIDEO("\"video\": {\"frames\": [\"a.png\"], \"nframes\": 8}", "Q"),
          "'video' | frames, with fps, times, target_fps or temporal_ids | 'nframes'" },
        { VIDEO(FRAMES_3 ", \"videos\": [\"empty\"]", "Q"), "either \"video\" or \"videos\"" },
        { VIDEO("\"videos\": \"empty\"", "Q"), "'videos' | a list of videos" },
        { PARTS("\"id\": 1", "{\"type\": \"video\", \"video\": [\"a.png\"], \"nframes\": 8}"),
          "| 'nframes'" },
        { PARTS("\"id\": 1", "{\"type\": \"video\"}"), "a picture for '<video>'" },
        { VIDEO("\"video\": []", "Q"), "'video' | a folder of frames, or a list" },
        { VIDEO("\"video\": \"a.png\"", "Q"), "ffmpeg -i" },
        { VIDEO("\"video\": \"empty\"", "Q"),
          "a folder with frames: .png, .jpg, .jpeg or .webp | none in" },
        { VIDEO("\"video\": [\"a.png\", \"none.png\"]", "Q"), "none.png", SHEAF_E_IO },
        { VIDEO(FRAMES_3, "<video> and <video>"), "another '<video>'" },
        { VIDEO("\"image\": {\"<image_00>\": \"a.png\"}, \"temporal_ids\": [[1]]", "<image_00>"),
          "a list of pictures beside it" },
    };
    sheaf_data *d = NULL;
    put_pictures();
    CHECK_OK(sheaf__make_dirs(at("empty")));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(open_data(&d, &with_videos, rows[i].text, (sheaf_data_options){ 0 }),
                    rows[i].code == 0 ? SHEAF_E_DATA : rows[i].code, rows[i].part);
    CHECK_FAILS(open_data(&d, &omnilmm, VIDEO(FRAMES_3, "Q"), (sheaf_data_options){ 0 }),
                SHEAF_E_DATA, "'video' | none: this model reads pictures alone | one");
    CHECK_FAILS(open_data(&d, &omnilmm, PARTS("\"id\": 1", "{\"type\": \"video\"}"),
                          (sheaf_data_options){ 0 }),
                SHEAF_E_DATA, "'messages[0].content[0]' | none: this model reads pictures alone");
    CHECK_FAILS(open_data(&d, &omnilmm, VIDEO("\"image\": \"a.png\", \"temporal_ids\": [[1]]", "Q"),
                          (sheaf_data_options){ 0 }),
                SHEAF_E_DATA, "'temporal_ids' | none: this model reads pictures alone");
}

#define TALK(IMAGE, USER)                                                                          \
    "{\"image\": " IMAGE ", \"messages\": [{\"role\": \"user\", \"content\": \"" USER              \
    "\"}, {\"role\": \"assistant\", \"content\": \"A\"}]}"

#define SHOWN(IMAGES, USER)                                                                        \
    "{\"images\": " IMAGES ", \"prompt\": \"" USER "\", \"completion\": \"A\"}"

TEST(test_open__names_what_is_bad)
{
    static const struct {
        const char *text;
        sheaf_code code;
        const char *want;
    } cases[] = {
        { TALK("\"none.png\"", "Q"), SHEAF_E_IO, "none.png" },
        { TALK("7", "Q"), SHEAF_E_DATA, "line 1: field 'image' | a path, a list of paths" },
        { TALK("\"\\u0000\"", "Q"), SHEAF_E_DATA, "field 'image'" },
        { TALK("{\"picture\": \"a.png\"}", "Q"), SHEAF_E_DATA, "names as \"<image_00>\"" },
        { TALK("{\"<image_00>\": \"a.png\"}", "<image_01>"), SHEAF_E_DATA,
          "line 1: message 1 | names of the pictures that were given (1), each once" },
        { TALK("[\"a.png\", \"b.png\"]", "<image>"), SHEAF_E_DATA, "1 of 2 that do not" },
        { TALK("\"conversations.json\"", "Q"), SHEAF_E_FORMAT, "JPEG, PNG or WebP" },
        { "{\"image\": \"a.png\", \"text\": \"T\"}", SHEAF_E_DATA, "a conversation, or a prompt" },
        { TALK("\"https://a.b/c.png\"", "Q"), SHEAF_E_DATA,
          "line 1: field 'image' | the path of a file, or data:image/png" },
        { PARTS("\"id\": 1", "{\"type\": \"image\"}"), SHEAF_E_DATA,
          "line 1: message 1 | a picture for '<image>' | none" },
        { PARTS("\"images\": [\"a.png\", \"b.png\"]", "{\"type\": \"image\"}"), SHEAF_E_DATA,
          "line 1: pictures | each to stand in a user's message" },
        { PARTS("\"images\": [\"a.png\"]", "{\"type\": \"image\"}, {\"text\": \"<image>\"}"),
          SHEAF_E_DATA, "line 1: message 1 | names of the pictures that were given (1)" },
        { PARTS("\"image\": {\"<image_00>\": \"a.png\"}", "{\"type\": \"image\"}"), SHEAF_E_DATA,
          "a list of pictures, which parts of contents place | an object of names" },
        { PARTS("\"id\": 1", "{\"image\": \"a.png\", \"min_pixels\": 3136}"), SHEAF_E_DATA,
          "'messages[0].content[0]' | a picture without a size of its own | min_pixels" },
        { PARTS("\"id\": 1", "{\"type\": \"audio\", \"audio\": \"a.mp3\"}"), SHEAF_E_DATA,
          "'messages[0].content[0]' | a part of type text, image, image_url or video | type 'audio'" },
        { PARTS("\"id\": 1",
                "{\"type\": \"image_url\", \"image_url\": {\"url\": \"http://a/b.png\"}}"),
          SHEAF_E_DATA, "'messages[0].content[0]' | the path of a file, or data:image/png" },
        { PARTS("\"id\": 1", "{\"type\": \"image\", \"image\": \"data:image/png;base64,@@@@\"}"),
          SHEAF_E_DATA, "line 1: data:image/png;base64,@@@@ | data:image/png;base64,..." },
        { PARTS("\"id\": 1", "{\"type\": \"image\", \"image\": \"data:,aGVsbG8h\"}"), SHEAF_E_DATA,
          "line 1: data:,aGVsbG8h" },
        { PARTS("\"id\": 1", "{\"type\": \"image\", \"base64\": \"aGVsbG8h\"}"), SHEAF_E_FORMAT,
          "line 1: data:;base64,aGVsbG8h: image | JPEG, PNG or WebP" },
        { "{\"messages\": [{\"role\": \"user\", \"content\": \"Q\"}, {\"role\": \"assistant\", "
          "\"content\": [{\"type\": \"image\", \"image\": \"a.png\"}]}]}",
          SHEAF_E_DATA, "'messages[1].content[0]' | pictures in messages of the user only" },
        /* a picture's name in an answer is no place */
        { "{\"image\": \"a.png\", \"prompt\": \"Q\", \"completion\": \"an <image>\"}", SHEAF_E_DATA,
          "line 1: message 2 | the picture's name in a message of the user, where pictures stand | "
          "in one of the assistant alone" },
        { "{\"image\": \"a.png\", \"system\": \"<image>\", \"conversations\": [{\"from\": \"human\", "
          "\"value\": \"Q\"}, {\"from\": \"gpt\", \"value\": \"A\"}]}",
          SHEAF_E_DATA, "line 1: message 1 | the picture's name in a message of the user" },
        { "{\"image\": {\"<image_00>\": \"a.png\"}, \"instruction\": \"Q\", \"output\": "
          "\"<image_00>\"}",
          SHEAF_E_DATA, "line 1: message 2 | the picture's name in a message of the user" },
        { TALK("[]", "<image>"), SHEAF_E_DATA,
          "line 1: message 1 | a picture for '<image>' | none | give" },
        { "{\"Imges\": \"a.png\", \"prompt\": \"<image>\", \"completion\": \"C\"}", SHEAF_E_DATA,
          "line 1: message 1 | a picture for '<image>' | none: a field 'Imges', which is not read" },
        { TALK("\"a.png\"", "<image_00>"), SHEAF_E_DATA, "another '<image_00>'" },
        { "[" TALK("null", "Q") ", {", SHEAF_E_FORMAT, "the end of what begins after entry 2" },
        { "\n", SHEAF_E_DATA, "empty data set | at least one record" },
        { TALK("null", "Q") "\n" TALK("\"a.png\"", "Q") "\n" TALK("[1]", "Q"), SHEAF_E_DATA,
          "line 3: field 'image' | a path, a list of paths" },
        { SHOWN("[1]", "Q"), SHEAF_E_DATA, "line 1: field 'images' | a path, a list of paths" },
        { SHOWN("\"http://a/b.png\"", "Q"), SHEAF_E_DATA,
          "line 1: field 'images' | the path of a file, or" },
        { SHOWN("{\"a\": \"a.png\"}", "Q"), SHEAF_E_DATA,
          "line 1: field 'images' | names as \"<image_00>\"" },
    };
    put_pictures();
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_data *d = NULL;
        sheaf_status *st = open_data(&d, &minicpmv, cases[i].text, (sheaf_data_options){ 0 });
        if (st == NULL)
            fail_msg("case %zu was read", i);
        CHECK_FAILS(st, cases[i].code, cases[i].want);
    }
}

/* ---- parts of contents ---- */

static char *base64_of(const char *path)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *bytes = NULL;
    size_t size = 0;
    CHECK_OK(sheaf__file_read_all(&bytes, &size, path, 1 << 20));
    char *out = calloc(size / 3 + 2, 4), *to = out;
    assert_non_null(out);
    for (size_t i = 0; i < size; i += 3) {
        uint32_t x = 0;
        for (size_t k = 0; k < 3; k++)
            x = x << 8 | (i + k < size ? (unsigned char)bytes[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            *to++ = (char)(i + k > size ? '=' : digits[x >> (18 - 6 * k) & 63]);
    }
    *to = '\0';
    free(bytes);
    return out;
}

/* Hashes are those of tokens, labels and pictures. */
static void check_same(const sheaf_config *c, const char *text, const char *plain)
{
    sheaf_data *d, *want;
    CHECK_OK(open_data(&want, c, plain, (sheaf_data_options){ 0 }));
    CHECK_OK(open_data(&d, c, text, (sheaf_data_options){ 0 }));
    if (strcmp(sheaf_data_hash(d), sheaf_data_hash(want)) != 0)
        fail_msg("%s: not what %s has", text, plain);
    sheaf_data_close(d);
    sheaf_data_close(want);
}

/* Each row: a record's other fields, the parts of its question, and the same as a text that names
 * the pictures, with and without lines around them. */
TEST(test_parts__have_their_places)
{
    const sheaf_config *const c[] = { &omnilmm, &minicpmv, &qwen };
    char *a, text[1 << 16], plain[512];
    /* of different sizes, so that tokens differ where their order does */
    put_picture(at("a.png"), 24, 20, 1);
    put_picture(at("b.png"), 90, 150, 2);
    a = base64_of(at("a.png"));
    static const struct {
        const char *more, *parts; /* with %s: the bytes of a.png */
        const char *images, *lines, *joined;
    } rows[] = {
        { "\"id\": 1",
          "{\"type\": \"image\", \"image\": \"a.png\"}, {\"type\": \"text\", \"text\": \"Q\"}",
          "\"a.png\"", "<image>\\nQ", "<image>Q" },
        { "\"id\": 1",
          "{\"type\": \"text\", \"text\": \"Q\"}, {\"type\": \"image\", \"image\": \"file://a.png\"}",
          "\"a.png\"", "Q\\n<image>", "Q<image>" },
        { "\"id\": 1",
          "{\"type\": \"image_url\", \"image_url\": {\"url\": \"b.png\", \"detail\": \"low\"}}, {\"type\": "
          "\"text\", \"text\": \"P\"}, {\"type\": \"image_url\", \"image_url\": \"a.png\"}",
          "\"b.png\", \"a.png\"", "<image>\\nP\\n<image>", "<image>P<image>" },
        { "\"id\": 1", "{\"image\": \"a.png\"}, {\"text\": \"Q\"}", "\"a.png\"", "<image>\\nQ",
          "<image>Q" },
        { "\"images\": [\"b.png\", {\"path\": \"a.png\", \"bytes\": null}]",
          "{\"type\": \"image\", \"text\": null}, {\"type\": \"image\"}, {\"type\": \"text\", \"text\": \"Q\", "
          "\"image\": null}",
          "\"b.png\", \"a.png\"", "<image>\\n<image>\\nQ", "<image><image>Q" },
        { "\"images\": [\"b.png\"]", /* each takes the next, but what has its own */
          "{\"type\": \"image\", \"path\": \"a.png\"}, {\"type\": \"text\", \"text\": \"in <image>\"}",
          "\"a.png\", \"b.png\"", "<image>\\nin <image>", "<image>in <image>" },
        { "\"id\": 1",
          "{\"type\": \"image_url\", \"image_url\": {\"url\": \"data:image/png;base64,%s\"}}",
          "\"a.png\"", "<image>", "<image>" },
        { "\"image\": {\"bytes\": \"%s\", \"path\": \"x.png\"}", "{\"type\": \"image\"}",
          "\"a.png\"", "<image>", "<image>" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        for (size_t k = 0; k < ARRAY_LEN(c); k++) {
            char record[2048];
            snprintf(record, sizeof record, PARTS("%s", "%s"), rows[i].more, rows[i].parts);
            char *here = strstr(record, "%s");
            snprintf(text, sizeof text, "%.*s%s%s",
                     here == NULL ? (int)strlen(record) : (int)(here - record), record,
                     here == NULL ? "" : a, here == NULL ? "" : here + 2);
            snprintf(plain, sizeof plain, TALK("[%s]", "%s"), rows[i].images,
                     k < 2 ? rows[i].lines : rows[i].joined);
            check_same(c[k], text, plain);
        }
    free(a);
}

/* In later turns, and in a prompt that is a list of messages. */
TEST(test_parts__of_other_forms)
{
    put_picture(at("a.png"), 24, 20, 1);
    put_picture(at("b.png"), 90, 150, 2);
#define TURNS(FIRST, SECOND)                                                                       \
    "[{\"role\": \"user\", \"content\": " FIRST                                                    \
    "}, {\"role\": \"assistant\", \"content\": \"A\"}, "                                           \
    "{\"role\": \"user\", \"content\": " SECOND "}]"
#define END "[{\"role\": \"assistant\", \"content\": [{\"type\": \"text\", \"text\": \"B\"}]}]"
    check_same(&minicpmv,
               "{\"images\": [\"b.png\"], \"prompt\": " TURNS(
                   "\"<image>P\"",
                   "[{\"type\": \"image\", \"image\": \"a.png\"}]") ", \"completion\": " END "}",
               "{\"images\": [\"b.png\", \"a.png\"], \"prompt\": " TURNS(
                   "\"<image>P\"", "\"<image>\"") ", \"completion\": " END "}");
}

static void keep_words(void *context, const sheaf_event *event)
{
    char *to = context;
    snprintf(to + strlen(to), 2048 - strlen(to), "%s\n", event->text);
}

/* If a question names the picture, or there is none, the name in an answer is learnt as text, with
 * a note. */
TEST(test_open__says_that_a_name_in_an_answer_is_text)
{
    sheaf_data *d;
    char said[2048] = "";
    const sheaf_events events = { keep_words, said };
    put_pictures();
    CHECK_OK(open_data(
        &d, &minicpmv,
        TALK("\"a.png\"", "<image>Q") "\n" SHOWN(
            "\"a.png\"",
            "<image>\", \"x\": \"") "\n"
                                    "{\"image\": \"a.png\", \"prompt\": \"<image>\", \"completion\": \"<image>\"}\n"
                                    "{\"prompt\": \"Q\", \"completion\": \"an <image_00>\"}",
        (sheaf_data_options){ .events = &events }));
    check_row(d, 2, "{256}<用户>" WHOLE_16 "<AI><image>{257}", "{46*31}<image>{257}");
    if (strstr(said, "conversations.json: line 3 (records: 2): '<image>' in an answer is text, and "
                     "learnt") == NULL)
        fail_msg("%s", said);
    sheaf_data_close(d);
}

/* --seq helps what is too long, and nothing else. */
TEST(test_open__seq_is_no_help_for_a_stop)
{
    sheaf_data *d = NULL;
    atomic_int stop = 1;
    put_pictures();
    sheaf_status *st =
        open_data(&d, &minicpmv, TALK("\"a.png\"", "Q"),
                  (sheaf_data_options){ .seq = 3, .on_long = SHEAF_LONG_CUT, .stop = &stop });
    assert_non_null(st);
    assert_int_equal(sheaf_status_code(st), SHEAF_E_STOPPED);
    assert_string_equal(sheaf_status_try(st), "");
    sheaf_status_free(st);
}

TEST(test_open__a_field_that_is_null_is_none)
{
    sheaf_data *d;
    put_pictures();
    CHECK_OK(open_data(&d, &minicpmv,
                       "{\"image\": null, \"images\": [\"a.png\"], \"text\": null, \"messages\": "
                       "null, \"prompt\": \"P\", \"completion\": \"C\"}",
                       (sheaf_data_options){ 0 }));
    check_row(d, 0, "{256}<用户>" WHOLE_16 "\nP<AI>C{257}", "{46*33}C{257}");
    sheaf_data_close(d);
}

/* A text may be cut, a picture may not. */
TEST(test_open__cuts_behind_pictures_alone)
{
    static const char text[] = "{\"image\": \"a.png\", \"prompt\": \"P\", \"completion\": "
                               "\"0123456789\"}\n{\"prompt\": \"P\", \"completion\": \"C\"}";
    sheaf_data *d;
    put_pictures();
    CHECK_FAILS(open_data(&d, &minicpmv, text, (sheaf_data_options){ .seq = 36 }), SHEAF_E_DATA,
                "36");
    CHECK_OK(open_data(&d, &minicpmv, text,
                       (sheaf_data_options){ .seq = 36, .on_long = SHEAF_LONG_CUT }));
    check_row(d, 0, "{256}<用户>" WHOLE_16 "\nP<AI>012", "{46*33}012");
    sheaf_data_close(d);
    CHECK_OK(open_data(&d, &minicpmv, text,
                       (sheaf_data_options){ .seq = 36, .on_long = SHEAF_LONG_SKIP }));
    assert_int_equal(sheaf_data_rows(d), 1);
    sheaf_data_close(d);
    CHECK_FAILS(open_data(&d, &minicpmv, text,
                          (sheaf_data_options){ .seq = 20, .on_long = SHEAF_LONG_CUT }),
                SHEAF_E_DATA,
                "all pictures within 20 positions: they are not cut | 44 positions, the last of a "
                "picture at 26 | `seq 27` or more, `on-long skip`");
}

/* Here every row has room for a label behind its last token, there only where one is given. */
TEST(test_hash__that_of_the_same_row_in_tensors)
{
    sheaf_data *conversation, *tensors;
    CHECK_OK(open_data(&conversation, &minicpmv, "{\"prompt\": \"P\", \"completion\": \"C\"}",
                       (sheaf_data_options){ 0 }));
    const int64_t n = conversation->begin[1];
    int64_t id[64], label[64];
    assert_true(n <= 64);
    for (int64_t i = 0; i < n; i++) {
        id[i] = conversation->token[i];
        label[i] = conversation->label[i];
    }
    const tensor row[] = { { "input_ids", "I32", { 1, n }, id },
                           { "labels", "I32", { 1, n }, label } };
    CHECK_OK(sheaf_data_open(&tensors, tensors_file(row, 2),
                             &(sheaf_data_options){ .config = &minicpmv }));
    assert_string_equal(sheaf_data_hash(conversation), sheaf_data_hash(tensors));
    sheaf_data_close(conversation);
    sheaf_data_close(tensors);
}

TEST(test_pixels__a_changed_file_is_told)
{
    sheaf_data *d;
    put_pictures();
    CHECK_OK(open_data(&d, &omnilmm, TALK("\"a.png\"", "Q"), (sheaf_data_options){ 0 }));
    put_picture(at("a.png"), 60, 40, 9);
    static float got[3 * 84 * 84];
    sheaf__picture picture = { .of = { { got, 84, 84 } } };
    const int64_t row = 0;
    CHECK_FAILS(sheaf_data_pixels(&(sheaf_batch){ .picture = &picture }, d, &row, 1), SHEAF_E_DATA,
                "changed while the run went on");
    sheaf_data_close(d);
}

FIXTURE(read_configs, release_configs);
