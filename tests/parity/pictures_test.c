/* pictures_test.c - the ops on pictures give what the original programs recorded: positions of
 * OmniLMM's tower and resampler, MiniCPM-V's table of sines, and the embedded patches of its
 * pictures, each of its own size. The full collection only. */

#include "tests/parity/recorded.h"

#include "tape/pictures.h"
#include "tests/golden.h"
#include "tests/tape_ends.h"

typedef struct tensor {
    float *x;
    int64_t shape[4];
} tensor;

static tensor tensor_of(const char *file, const char *name)
{
    const sheaf_safetensors_entry *e;
    tensor t = { raw_of(record(golden(file)), name, &e), { 1, 1, 1, 1 } };
    assert_true(e->ndim <= 4 && sheaf_dtype_bytes(e->dtype) == 4); /* sizes are int32 */
    memcpy(t.shape, e->shape, (size_t)e->ndim * sizeof *t.shape);
    return t;
}

static void near(const char *what, const float *got, const float *want, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(what, got[i], want[i], 1e-6 + 1e-5 * fabs((double)want[i]));
}

/* x with positions; x [rows of all pictures, width]. */
static void placed(float *y, const float *x, const sheaf__pictures *of,
                   const sheaf__position_grid *grid, int64_t width)
{
    sheaf__device *device;
    sheaf__tape *tape;
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 2, NULL, 0));
    sheaf__context c = { .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 } };
    c.dtype = SHEAF_F32;
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *v = source_of(tape, sheaf__pictures_rows(of), width, true, x, NULL, width, 0);
    sink_of(tape, sheaf__record_grid_positions(tape, v, of, grid), NULL, y, width, 0);
    CHECK_OK(sheaf__tape_compile(tape, false, false));
    CHECK_OK(sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    sheaf__device_close(device);
}

/* Positions alone, of one picture with `side` patches each way. */
static void alone(const char *what, sheaf__position_kind kind, tensor table, int64_t from,
                  bool class_row, tensor want, int64_t side)
{
    const int64_t width = want.shape[0] * want.shape[1] * want.shape[2] / (side * side + class_row);
    sheaf__picture picture = { .of[0] = { NULL, side, side } };
    const sheaf__images_in in = { .picture = &picture };
    const sheaf__pictures of = {
        &in, 1, side * side, { .patch = 1, .ragged = true }, 0, class_row
    };
    sheaf__vector vector = { what, from * from + class_row, width, table.x, NULL };
    const sheaf__position_grid grid = { kind, table.x == NULL ? NULL : &vector, from, from,
                                        class_row };
    const int64_t n = sheaf__pictures_rows(&of) * width;
    float *zeros = room((size_t)n * sizeof *zeros), *y = room((size_t)n * sizeof *y);
    placed(y, zeros, &of, &grid, width);
    near(what, y, want.x, n);
}

TEST(test_pictures__positions_of_omnilmm)
{
    if (!golden_is_full())
        return;
    static const char model[] = "omnilmm/model.safetensors", file[] = "omnilmm/single.safetensors";
    alone("tower", SHEAF__GRID_CUBIC_SMOOTH, tensor_of(model, "model.vision_tower.pos_embed"), 4,
          true, tensor_of(file, "eva_pos_embed_used"), 6);
    alone("resampler", SHEAF__GRID_CUBIC, tensor_of(model, "model.resampler.pos_embed"), 4, false,
          tensor_of(file, "resampler_pos_embed_keys"), 6);
}

TEST(test_pictures__sines_of_minicpmv)
{
    if (!golden_is_full())
        return;
    tensor corner = tensor_of("minicpmv/v2_6/resampler_only.safetensors", "pos_embed_corner");
    assert_int_equal(corner.shape[0], corner.shape[1]);
    alone("corner", SHEAF__GRID_SINCOS, (tensor){ NULL, { 0 } }, 0, false, corner, corner.shape[0]);
}

/* The convolution over one patch, in double. */
static void convolve(float *out, const tensor *weight, const tensor *bias, const float *pixels,
                     int64_t height, int64_t width, int64_t y0, int64_t x0)
{
    const int64_t channels = weight->shape[1], patch = weight->shape[2];
    const float *w = weight->x;
    for (int64_t o = 0; o < weight->shape[0]; o++) {
        double sum = bias->x[o];
        for (int64_t c = 0; c < channels; c++)
            for (int64_t y = 0; y < patch; y++)
                for (int64_t x = 0; x < patch; x++)
                    sum += (double)*w++ * pixels[(c * height + y0 + y) * width + x0 + x];
        out[o] = (float)sum;
    }
}

TEST(test_pictures__embedded_patches_of_minicpmv)
{
    enum { IMAGES = 3 };
    if (!golden_is_full())
        return;
    static const char model[] = "minicpmv/v2_6/model.safetensors",
                      file[] = "minicpmv/v2_6/one_row.safetensors";
    tensor weight = tensor_of(model, "vpm.embeddings.patch_embedding.weight"),
           bias = tensor_of(model, "vpm.embeddings.patch_embedding.bias"),
           table = tensor_of(model, "vpm.embeddings.position_embedding.weight"),
           want = tensor_of(file, "vit_embeddings");
    const int64_t patch = weight.shape[2], width = want.shape[2];
    float x[75 * 64], y[75 * 64];
    sheaf__picture picture[IMAGES] = { 0 };
    sheaf__pictures of = { &(sheaf__images_in){ .picture = picture }, IMAGES, 0,
                           { .patch = patch, .ragged = true },        0,      false };
    assert_true(width <= 64 && want.shape[0] == IMAGES && want.shape[1] <= 25);
    for (int i = 0; i < IMAGES; i++) {
        const char *name = textf("image_0_%d_chw", i);
        tensor image = tensor_of(file, name);
        const int64_t h = image.shape[1], w = image.shape[2];
        picture[i].of[0] = (sheaf__view){ NULL, h, w };
        for (int64_t r = 0; r < h / patch; r++)
            for (int64_t k = 0; k < w / patch; k++)
                convolve(x + of.patches++ * width, &weight, &bias, image.x, h, w, r * patch,
                         k * patch);
    }
    sheaf__vector vector = { "table", table.shape[0], width, table.x, NULL };
    placed(y, x, &of, &(sheaf__position_grid){ SHEAF__GRID_BUCKETS, &vector, 8, 8, false }, width);
    const float *at = y;
    for (int i = 0; i < IMAGES; i++) { /* theirs are padded to the largest */
        const int64_t n =
            picture[i].of[0].height / patch * (picture[i].of[0].width / patch) * width;
        near("embedded", at, want.x + i * want.shape[1] * width, n);
        at += n;
    }
}
