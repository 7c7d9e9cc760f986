/* grad_rows_test.c - pictures placed in rows of a frozen embedding: what gets gradients through the
 * first norm and the layers behind it gets the same ones, to the bit, as if the gradients of all
 * rows were computed. */
#include "tests/tape_layer.h"
#include "tape/vision.h"

enum { TOKENS = 11, WIDTH = 10, IMAGES = 2, PATCHES = 2, OUT = 8, RANK = 2 };

typedef struct setting {
    sheaf_dtype dtype;
    bool ends, trains_norm; /* BOI and EOI around each picture */
    bool trains_text;       /* then all rows are read */
    bool all;               /* compute all rows */
} setting;

typedef struct outcome {
    float picture[IMAGES * PATCHES * WIDTH], text[TOKENS * WIDTH];
    float norm[WIDTH], boi[WIDTH], eoi[WIDTH];
    float a[RANK * WIDTH], b[OUT * RANK]; /* b by slice */
} outcome;

static const int32_t WITH_ENDS[] = { 9, 2, 0, 3, 5, 7, 6, 10 }, ALONE[] = { 7, 2, 9, 4 };

static sheaf__trained trained_of(float *grad)
{
    return (sheaf__trained){ .count = 1, .numel = { WIDTH }, .grad = { grad } };
}

static outcome run(const setting *how)
{
    outcome o = { .norm = { 0 } };
    sheaf__device *device;
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0));
    sheaf__context c = { .device = device,
                         .ranks = 1,
                         .slices = LAYER_SLICES,
                         .own = { 0, LAYER_SLICES },
                         .dtype = how->dtype };
    tensor weight, a, b, none = { 0 };
    layer l;
    fill(&weight, OUT, WIDTH, 1);
    fill(&a, RANK, WIDTH, 2);
    fill(&b, OUT, RANK, 3);
    layer_init(&l, &c, &(layer_of){ false, OUT, 1, &weight, &none, &a, &b, 0.5, 0, 7, TRAIN_LORA });

    float *text = numbers(TOKENS * WIDTH, 4), *picture = numbers(IMAGES * PATCHES * WIDTH, 5),
          *factor = numbers(WIDTH, 6), *end = numbers(WIDTH, 8), *dy = numbers(TOKENS * OUT, 9),
          *more = numbers(TOKENS * WIDTH, 10), seen[TOKENS * WIDTH];
    sheaf__trained norm_trained = trained_of(o.norm), boi_trained = trained_of(o.boi),
                   eoi_trained = trained_of(o.eoi);
    sheaf__norm norm = { .name = "norm",
                         .width = WIDTH,
                         .eps = 1e-5f,
                         .weight = factor,
                         .trained = how->trains_norm ? &norm_trained : NULL };
    sheaf__vector boi = { "boi", 1, WIDTH, end, &boi_trained }, eoi = boi;
    eoi.trained = &eoi_trained;
    const sheaf__images_in in = { .image_row = how->ends ? WITH_ENDS : ALONE };
    const sheaf__step_info info = { .training = true };

    sheaf__tape *tape;
    sheaf__linear *linear = &l.linear;
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *x = source_of(tape, TOKENS, WIDTH, !how->trains_text, text, o.text, WIDTH, 0), *y,
                 *v = source_of(tape, IMAGES * PATCHES, WIDTH, false, picture, o.picture, WIDTH, 0);
    sheaf__record_place_images(tape, x, v, IMAGES, how->ends ? &boi : NULL, how->ends ? &eoi : NULL,
                               &in);
    assert_true((x->grad_rows.list == NULL) == how->trains_text);
    if (!how->trains_text)
        assert_int_equal(x->grad_rows.count, how->ends ? ARRAY_LEN(WITH_ENDS) : ARRAY_LEN(ALONE));
    if (how->all)
        x->grad_rows.list = NULL;
    sheaf__value *normed = sheaf__record_rmsnorm(tape, x, &norm);
    assert_true((normed->grad_rows.list != NULL) ==
                !(how->all || how->trains_norm || how->trains_text));
    sheaf__record_columns(tape, &y, normed, &linear, 1, &info);
    sink_of(tape, y, dy, seen, OUT, 0);
    sink_of(tape, x, more, seen, WIDTH, 0); /* the residual */
    CHECK_OK(sheaf__tape_compile(tape, true, false));
    CHECK_OK(sheaf__tape_run(tape));
    sheaf__tape_free(tape);

    boxes_download(&l.a);
    boxes_download(&l.b);
    memcpy(o.a, l.a.grad[0], sizeof o.a);
    for (int s = 0, at = 0; s < LAYER_SLICES; s++)
        for (int64_t e = 0; e < l.b.trained.numel[s]; e++)
            o.b[at++] = l.b.grad[s][e];
    layer_free(&l);
    tensor_free(&weight);
    tensor_free(&a);
    tensor_free(&b);
    free(text);
    free(picture);
    free(factor);
    free(end);
    free(dy);
    free(more);
    sheaf__device_close(device);
    return o;
}

TEST(test_gradients)
{
    for (int way = 0; way < 16; way++) {
        setting how = { way & 1 ? SHEAF_BF16 : SHEAF_F32, way & 2, way & 4, way & 8, false };
        const outcome some = run(&how);
        how.all = true;
        const outcome all = run(&how);
        assert_memory_equal(&some, &all, sizeof all);
        for (int i = 0; i < IMAGES * PATCHES * WIDTH; i++)
            assert_true(all.picture[i] != 0);
        assert_true((all.norm[0] != 0) == how.trains_norm && (all.boi[0] != 0) == how.ends &&
                    (all.eoi[0] != 0) == how.ends && all.a[0] != START && all.b[0] != START);
    }
}
