/* successors_frames_test.c - pictures and frames of videos of the families that were recorded with
 * the programs of their hubs: the pieces that upstream's image processor made of PNGs; a row with
 * groups of frames; the resampler alone, with frames of unequal size.
 *
 * Folders of $SHEAF_RECORDINGS/successors with `hf/` and pieces of `pictures/`, or
 * `video_inputs.safetensors`, are run; at least one must hold each. In the committed subset the
 * latter is made by make_frames.py. Tolerances are those of the recordings' READMEs; pixels are the
 * same bytes. */
#include "base/hash.h"
#include "families/llama/tower.h"
#include "models/team.h"
#include "schema/grid.h"
#include "tests/parity/pieces.h"
#include "tests/recordings.h"
#include "tests/tape_ends.h"

/* Were pieces of pictures recorded: as tensors, or (of a part of the recordings) as their hashes?
 */
static bool has_pieces(const char *dir)
{
    if (!exists(in_dir(dir, "pictures/0.png")))
        return false;
    if (!exists(in_dir(dir, "inputs.safetensors")))
        return exists(in_dir(dir, "pieces.json"));
    return sheaf__safetensors_find(record_of(dir, "inputs.safetensors"), "image_0_0_chw") != NULL;
}

static bool has_frames(const char *dir)
{
    return exists(in_dir(dir, "video_inputs.safetensors"));
}

static int find_families(void **state)
{
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    find_in(recording("successors"), "hf/config.json", NULL);
    const int found = models;
    models = 0;
    for (int i = 0; i < found; i++)
        if (has_pieces(model_dir[i]) || has_frames(model_dir[i]))
            model_dir[models++] = model_dir[i];
    if (models == 0)
        fail_msg("no family under %s", recording("successors"));
    return 0;
}

/* ---- pixels ---- */

/* Of one piece against the recorded tensor, or its hash. */
static void check_piece(const sheaf__view *view, const sheaf_safetensors *in, const char *name,
                        const json_t *hashes)
{
    const size_t bytes = (size_t)(3 * view->height * view->width) * sizeof(float);
    char text[33];
    int64_t n;
    const float *want = in == NULL ? NULL : values(in, name, &n);
    if (in == NULL) {
        assert_string_equal(sheaf__hash_text(text, sheaf__hash(view->pixels, bytes)),
                            json_string_value(json_object_get(hashes, name)));
        return;
    }
    if (want == NULL || (size_t)n * sizeof(float) != bytes)
        fail_msg("%s: not recorded, or of another size", name);
    CHECK_BYTES(name, view->pixels, want, bytes);
}

static void check_row_of_pieces(const char *dir, const json_t *numbers, int row,
                                const sheaf_safetensors *in, const json_t *hashes)
{
    int64_t number[16];
    const pieces p =
        pieces_of(dir, config_of(dir, "hf/config.json"), number, picture_numbers(number, numbers));
    for (int64_t j = 0; j < p.n; j++) {
        const char *name = textf("image_%d_%d_chw", row, (int)j);
        check_piece(&p.picture[j].of[0], in, name, hashes);
    }
}

TEST(test_pixels__pieces_are_upstreams)
{
    int found = 0;
    for (int m = 0; m < models; m++) {
        if (!has_pieces(model_dir[m]))
            continue;
        found++;
        const bool part = exists(in_dir(model_dir[m], "pieces.json"));
        sheaf_safetensors *in = part ? NULL : record_of(model_dir[m], "inputs.safetensors");
        json_t *info = json_of(model_dir[m], part ? "pieces.json" : "info.json");
        const json_t *rows = json_object_get(info, "rows");
        assert_true(json_array_size(rows) > 0);
        for (size_t r = 0; r < json_array_size(rows); r++)
            check_row_of_pieces(model_dir[m], json_object_get(json_array_get(rows, r), "pictures"),
                                (int)r, in, info);
    }
    assert_true(found > 0);
}

/* ---- a row with groups of frames ---- */

/* "temporal_ids.ROW" of recorded lists, -1 behind each. */
static void add_ids(made_tensors *t, int row, const json_t *groups)
{
    int64_t id[64], most = 0;
    const int64_t n = (int64_t)json_array_size(groups);
    for (int64_t g = 0; g < n; g++) {
        const int64_t size = (int64_t)json_array_size(json_array_get(groups, (size_t)g));
        most = size > most ? size : most;
    }
    assert_true(n * most <= 64);
    for (int64_t g = 0; g < n; g++)
        for (int64_t i = 0; i < most; i++) {
            const json_t *one = json_array_get(json_array_get(groups, (size_t)g), (size_t)i);
            id[g * most + i] = one == NULL ? -1 : json_integer_value(one);
        }
    const char *name = textf("temporal_ids.%d", row);
    made_add(t, name, SHEAF_I64, 2, (const int64_t[]){ n, most }, id);
}

/* The images and bounds of row `from` of a file as those of row `to`. */
static void add_images(made_tensors *t, int to, const sheaf_safetensors *file, int from)
{
    const char *name;
    made_copy(t, textf("image_bound.%d", to), file, textf("image_bound.%d", from));
    for (int j = 0;
         name = textf("image_%d_%d_chw", from, j), sheaf__safetensors_find(file, name) != NULL; j++)
        made_copy(t, textf("image_%d_%d_chw", to, j), file, name);
}

enum { FIELDS = 3 };
static const char *const field[FIELDS] = { "input_ids", "labels_shifted", "position_ids" };

/* Row `from` of a file's ids, labels and positions as row `to` of [rows, length]; what is behind is
 * padding. */
static void put_row(int64_t *const out[FIELDS], int64_t to, int64_t length,
                    const sheaf_safetensors *file, int64_t from)
{
    for (int f = 0; f < FIELDS; f++) {
        int64_t cols;
        const int64_t *x = integer_rows(file, field[f], &cols);
        for (int64_t i = 0; i < length; i++)
            out[f][to * length + i] = i < cols ? x[from * cols + i] : f == 1 ? -100 : 0;
    }
}

static int64_t length_of(const sheaf_safetensors *file)
{
    return sheaf__safetensors_find(file, field[0])->shape[1];
}

static const json_t *groups_of(const json_t *info)
{
    return json_object_get(json_object_get(info, "groups_of_frames"), "temporal_ids");
}

/* The row with frames, of so many positions, and a row with a picture (row `other` of the inputs;
 * -1: none) before it or behind it. */
static const char *make_rows(const char *dir, const json_t *info, int64_t length, int other,
                             bool before)
{
    static int made;
    const int rows = other < 0 ? 1 : 2, video = before ? 1 : 0;
    sheaf_safetensors *frames = record_of(dir, "video_inputs.safetensors"),
                      *in = record_of(dir, "inputs.safetensors");
    made_tensors t = { .count = 0 };
    int64_t *x[FIELDS];
    for (int f = 0; f < FIELDS; f++)
        x[f] = room((size_t)(rows * length) * sizeof **x);
    put_row(x, video, length, frames, 0);
    add_images(&t, video, frames, 0);
    add_ids(&t, video, groups_of(info));
    if (other >= 0) {
        put_row(x, 1 - video, length, in, other);
        add_images(&t, 1 - video, in, other);
    }
    for (int f = 0; f < FIELDS; f++)
        made_add(&t, field[f], SHEAF_I64, 2, (const int64_t[]){ rows, length }, x[f]);
    return made_write(&t, at(textf("rows%d.safetensors", made++)));
}

static void compare_stage(const trial *t, const char *ours, const sheaf_safetensors *want,
                          const char *theirs)
{
    int64_t n;
    const float *x = values_of(want, theirs, &n);
    compare(theirs, stage_of(t, ours, n), x, n, 2e-5, 1e-4);
}

static void check_video(const char *dir, const char *hf, const json_t *info)
{
    sheaf_safetensors *want = record_of(dir, "video_outputs.safetensors"),
                      *frames = record_of(dir, "video_inputs.safetensors");
    const char *path = make_rows(dir, info, length_of(frames), -1, false);
    int64_t n, one_loss;
    const float *logits = values_of(want, "video.logits", &n),
                *loss = values_of(want, "video.loss", &one_loss);
    assert_int_equal(one_loss, 1);
    trial one = run_forward(hf, NULL, path, SHEAF_F32);
    compare(dir, one.logits, logits, n, 2e-5, 1e-4);
    CHECK_NEAR(dir, one.loss, (double)loss[0], 1e-5);
    compare_stage(&one, "adapter_in", want, "video.vit_last_hidden");
    compare_stage(&one, "adapter", want, "video.resampler_out");
    compare_stage(&one, "embedding", want, "video.inputs_embeds");
    release(&one);
}

/* The last row of the inputs that has an image; with its logits alone. */
static int with_picture(const char *dir)
{
    sheaf_safetensors *in = record_of(dir, "inputs.safetensors");
    int row = -1;
    for (int r = 0; r < 8; r++) {
        const char *name = textf("image_bound.%d", r);
        row = sheaf__safetensors_find(in, name) != NULL ? r : row;
    }
    assert_true(row >= 0);
    return row;
}

/* A row has the same bytes beside a row with frames, before it and behind it, and back again. */
static void check_neighbours(const char *dir, const char *hf, const json_t *info)
{
    sheaf_safetensors *in = record_of(dir, "inputs.safetensors");
    const int64_t length = length_of(in);
    const char *alone = make_rows(dir, info, length, -1, false),
               *behind = make_rows(dir, info, length, with_picture(dir), false),
               *before = make_rows(dir, info, length, with_picture(dir), true);
    trial a = run(hf, NULL, alone, 1, SHEAF_F32, false),
          b = run(hf, NULL, behind, 2, SHEAF_F32, false),
          c = run(hf, NULL, before, 3, SHEAF_F32, false);
    const size_t row = (size_t)(length * a.vocab);
    CHECK_BYTES("frames, then a picture", b.logits, a.logits, row * sizeof(float));
    CHECK_BYTES("a picture, then frames", c.logits + row, a.logits, row * sizeof(float));
    CHECK_BYTES("the picture", c.logits, b.logits + row, row * sizeof(float));
    sheaf_safetensors *want = record_of(dir, "outputs.safetensors");
    int64_t n;
    const float *logits = values_of(want, "logits", &n);
    compare("the picture, as alone", c.logits, logits + with_picture(dir) * (int64_t)row,
            (int64_t)row, 2e-5, 1e-4);
    release(&a);
    release(&b);
    release(&c);
}

TEST(test_frames__groups_give_rows_together)
{
    int found = 0;
    for (int m = 0; m < models; m++) {
        if (!has_frames(model_dir[m]))
            continue;
        const char *hf = in_dir(model_dir[m], "hf");
        json_t *info = json_of(model_dir[m], "info.json");
        check_video(model_dir[m], hf, info);
        check_neighbours(model_dir[m], hf, info);
        found++;
    }
    assert_true(found > 0);
}

/* ---- the resampler alone ---- */

typedef struct alone {
    const char *dir;
    const json_t *groups;
    float *got;
    int64_t rows;
} alone;

static sheaf_status *resample(void *self, sheaf__model *model)
{
    alone *a = self;
    sheaf_safetensors *file = record_of(a->dir, "resampler_only.safetensors");
    const sheaf_config *config = &model->schema->config;
    const int64_t patch = config->vit.patch, width = config->vit.hidden, hidden = config->hidden;
    int64_t cols, n, images = 0, patches = 0;
    const int64_t *size = integer_rows(file, "tgt_sizes", &cols);
    float *x = values_of(file, "x", &n);
    const int64_t padded = sheaf__safetensors_find(file, "x")->shape[1];
    sheaf__picture picture[16] = { { .row = 0 } };
    for (size_t g = 0; g < json_array_size(a->groups); g++) {
        const json_t *group = json_array_get(a->groups, g);
        for (size_t i = 0; i < json_array_size(group); i++, images++) {
            const int64_t rows = size[2 * images] * size[2 * images + 1];
            picture[images].of[0] =
                (sheaf__view){ NULL, size[2 * images] * patch, size[2 * images + 1] * patch };
            picture[images].frame = (int32_t)json_integer_value(json_array_get(group, i)) + 1;
            picture[images].joins = i > 0;
            memmove(x + patches * width, x + images * padded * width,
                    (size_t)(rows * width) * sizeof *x);
            patches += rows;
        }
    }
    static const sheaf__step_info info[SHEAF__ROW_KINDS] = { { .training = false } };
    const sheaf__images_in in = { .picture = picture };
    sheaf__pass pass = { .batch = 1,
                         .info = info,
                         .pictures = sheaf__counts_of(picture, images, &model->schema->config),
                         .images_in = &in };
    const sheaf__pictures pictures = sheaf__pass_pictures(model, &pass, 0);
    sheaf__tape *tape;
    CHECK_OK(sheaf__tape_new(&tape, model->context));
    sheaf__value *from = source_of(tape, patches, width, true, x, NULL, width, 0),
                 *to = sheaf__resampler_record(model, &model->towers->resampler, tape, &pass, from,
                                               &pictures, SHEAF__GRID_SINCOS);
    const int64_t rows = to->rows;
    float *got = room((size_t)(rows * hidden) * sizeof *got);
    sink_of(tape, to, NULL, got, hidden, 0);
    CHECK_OK(sheaf__tape_compile(tape, false, false));
    CHECK_OK(sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    if (model->context->rank == 0) {
        a->got = got;
        a->rows = rows;
    }
    return NULL;
}

/* numpy's powers in float32 differ by a unit in the last place from machine to machine: of a frame
 * two hours after the first that is 0.004 of the angle. */
static bool is_late(const json_t *group)
{
    bool late = false;
    for (size_t i = 0; i < json_array_size(group); i++)
        late = late || json_integer_value(json_array_get(group, i)) > 1000;
    return late;
}

static void check_resampler(const char *dir, const json_t *info)
{
    const sheaf__opened *opened = opened_of(in_dir(dir, "hf"));
    const sheaf_safetensors *file = record_of(dir, "resampler_only.safetensors");
    const float *first = NULL;
    int64_t n;
    const float *want = values_of(file, "batch", &n);
    const int64_t groups = sheaf__safetensors_find(file, "batch")->shape[0];
    for (int ranks = 1; ranks <= 3; ranks++) {
        alone a = { .dir = dir,
                    .groups =
                        json_object_get(json_object_get(info, "resampler_only"), "temporal_ids") };
        CHECK_OK(
            sheaf__team_run(opened,
                            &(sheaf__team_options){
                                .ranks = ranks, .threads = 2, .dtype = SHEAF_F32, .positions = 64 },
                            resample, &a));
        assert_int_equal(a.rows * opened->config.hidden, n);
        for (int64_t g = 0, size = n / groups; g < groups && ranks == 1; g++)
            compare("resampler", a.got + g * size, want + g * size, size,
                    is_late(json_array_get(a.groups, (size_t)g)) ? 2e-3 : 2e-5, 1e-4);
        first = ranks == 1 ? a.got : first;
        CHECK_BYTES("resampler", a.got, first, (size_t)n * sizeof(float));
    }
}

TEST(test_resampler__frames_of_unequal_size)
{
    int found = 0;
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "resampler_only.safetensors")))
            continue;
        check_resampler(model_dir[m], json_of(model_dir[m], "info.json"));
        found++;
    }
    assert_true(found > 0);
}

FIXTURE(find_families, remove_scratch);
