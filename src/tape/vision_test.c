/* vision_test.c - the ops of vision-language models on small tapes (tests/tape_problem.h). */
#include "tape/layers.h"
#include "tape/linear.h"
#include "tests/tape_problem.h"
#include "tape/vision.h"
#include "base/status.h"

/* ---- images ---- */

typedef struct image_env {
    int64_t images, patches, heads, head_dim;
    sheaf__images_in in;
} image_env;

static sheaf__value *record_tokens(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                   const problem *p)
{
    const image_env *env = p->env;
    return sheaf__record_tokens(tape, value[0], env->images, &vector[1], &vector[2]);
}

static void plain_tokens(double *y, double *const *x, const problem *p)
{
    const image_env *env = p->env;
    for (int64_t i = 0; i < env->images; i++)
        for (int64_t t = 0; t <= env->patches; t++)
            for (int64_t c = 0; c < p->cols; c++)
                *y++ = (t == 0 ? x[1][c] : x[0][(i * env->patches + t - 1) * p->cols + c]) +
                       x[2][t * p->cols + c];
}

static sheaf__value *record_grid(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                 const problem *p)
{
    return sheaf__record_grid(tape, value[0], ((image_env *)p->env)->images,
                              p->operand[1].rows > 0 ? &vector[1] : NULL);
}

static void plain_grid(double *y, double *const *x, const problem *p)
{
    const image_env *env = p->env;
    for (int64_t i = 0; i < env->images; i++)
        for (int64_t t = 0; t < env->patches; t++)
            for (int64_t c = 0; c < p->cols; c++)
                *y++ = x[0][(i * (env->patches + 1) + 1 + t) * p->cols + c] +
                       (p->operand[1].rows > 0 ? x[1][t * p->cols + c] : 0);
}

typedef struct block_env {
    int64_t grids, down, across, side;
} block_env;

static sheaf__value *record_blocks(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                   const problem *p)
{
    const block_env *env = p->env;
    return sheaf__record_blocks(tape, value[0], env->across, env->side);
}

static void plain_blocks(double *y, double *const *x, const problem *p)
{
    const block_env *e = p->env;
    const int64_t width = p->operand[0].cols;
    for (int64_t g = 0; g < e->grids; g++)
        for (int64_t r = 0; r < e->down; r += e->side)
            for (int64_t k = 0; k < e->across; k += e->side)
                for (int64_t c = 0; c < width; c++)
                    for (int64_t dy = 0; dy < e->side; dy++)
                        for (int64_t dx = 0; dx < e->side; dx++)
                            *y++ = x[0][((g * e->down + r + dy) * e->across + k + dx) * width + c];
}

static sheaf__value *record_place(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                  const problem *p)
{
    const image_env *env = p->env;
    const bool ends = p->operand[2].rows > 0;
    sheaf__record_place_images(tape, value[0], value[1], env->images, ends ? &vector[2] : NULL,
                               ends ? &vector[3] : NULL, &env->in);
    return value[0];
}

static void plain_place(double *y, double *const *x, const problem *p)
{
    const image_env *env = p->env;
    memcpy(y, x[0], (size_t)(p->rows * p->cols) * sizeof *y);
    for (int64_t i = 0; i < env->images; i++)
        for (int64_t t = 0; t < env->patches + 2; t++) {
            const double *from = t == 0              ? x[2]
                                 : t <= env->patches ? x[1] + (i * env->patches + t - 1) * p->cols
                                                     : x[3];
            memcpy(y + env->in.image_row[i * (env->patches + 2) + t] * p->cols, from,
                   (size_t)p->cols * sizeof *y);
        }
}

static void plain_place_alone(double *y, double *const *x, const problem *p)
{
    const image_env *env = p->env;
    memcpy(y, x[0], (size_t)(p->rows * p->cols) * sizeof *y);
    for (int64_t r = 0; r < env->images * env->patches; r++)
        memcpy(y + env->in.image_row[r] * p->cols, x[1] + r * p->cols, (size_t)p->cols * sizeof *y);
}

static sheaf__value *record_around(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                   const problem *p)
{
    const image_env *env = p->env;
    return sheaf__record_around(tape, value[0], env->images, &vector[1], &vector[2]);
}

static void plain_around(double *y, double *const *x, const problem *p)
{
    const image_env *env = p->env;
    const size_t row = (size_t)p->cols * sizeof *y;
    for (int64_t i = 0; i < env->images; i++)
        for (int64_t t = 0; t < env->patches + 2; t++, y += p->cols)
            memcpy(y,
                   t == 0              ? x[1]
                   : t <= env->patches ? x[0] + (i * env->patches + t - 1) * p->cols
                                       : x[2],
                   row);
}

/* Sums over images go in blocks of 256. */
TEST(test_sums_over_images)
{
    enum { IMAGES = 600, WIDTH = 3 };
    int32_t rows[IMAGES * 3];
    for (int i = 0; i < IMAGES * 3; i++)
        rows[i] = i;
    image_env env = { .images = IMAGES, .patches = 1, .in = { .image_row = rows } };
    const problem placed = {
        "sums",
        IMAGES * 3,
        WIDTH,
        { { IMAGES * 3, WIDTH }, { IMAGES, WIDTH }, { 1, WIDTH, true }, { 1, WIDTH, true } },
        true,
        record_place,
        plain_place,
        &env,
        .wild = true
    };
    const problem tokens = {
        "sums",       IMAGES * 2,
        WIDTH,        { { IMAGES, WIDTH }, { 1, WIDTH, true }, { 2, WIDTH, true } },
        true,         record_tokens,
        plain_tokens, &env,
        .wild = true
    };
    outcome o[2] = { run(&placed, &sheaf__cpu, SHEAF_F32, false),
                     run(&tokens, &sheaf__cpu, SHEAF_F32, false) };
    const struct {
        const char *name;
        int run;
        const float *got;
        int64_t first, stride;
    } sums[] = { { "boi", 0, o[0].grad[2], 0, 3 },
                 { "eoi", 0, o[0].grad[3], 2, 3 },
                 { "class token", 1, o[1].grad[1], 0, 2 },
                 { "first position", 1, o[1].grad[2], 0, 2 },
                 { "second position", 1, o[1].grad[2] + WIDTH, 1, 2 } };
    int differ = 0;
    for (size_t k = 0; k < ARRAY_LEN(sums); k++)
        for (int c = 0; c < WIDTH; c++) {
            float want = START, plain = START;
            for (int64_t block = 0; block < IMAGES; block += 256) {
                float sum = 0;
                for (int64_t i = block; i < IMAGES && i < block + 256; i++) {
                    const float w =
                        o[sums[k].run].weight[(i * sums[k].stride + sums[k].first) * WIDTH + c];
                    sum += w;
                    plain += w;
                }
                want += sum;
            }
            CHECK_BYTES(sums[k].name, &sums[k].got[c], &want, sizeof want);
            differ += want != plain;
        }
    assert_true(differ > 0);
    drop(&o[0]);
    drop(&o[1]);
}

TEST(test_patches)
{
    enum {
        IMAGES = 2,
        CHANNELS = 3,
        HEIGHT = 4,
        SIDE = 6,
        PATCH = 2,
        DOWN = HEIGHT / PATCH,
        GRID = SIDE / PATCH,
        WIDTH = CHANNELS * PATCH * PATCH
    };
    float *pixels = numbers(IMAGES * CHANNELS * HEIGHT * SIDE, 4);
    sheaf__picture seen[IMAGES] = { 0 };
    for (int i = 0; i < IMAGES; i++)
        seen[i].of[1] = (sheaf__view){ pixels + i * CHANNELS * HEIGHT * SIDE, HEIGHT, SIDE };
    const sheaf__tower tower = {
        .channels = CHANNELS, .height = HEIGHT, .width = SIDE, .patch = PATCH
    };
    float got[IMAGES * DOWN * GRID * WIDTH];
    for (int half = 0; half < 2; half++) {
        sheaf__device *device;
        sheaf__tape *tape;
        CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 2, NULL, 0));
        sheaf__context c = { .device = device,
                             .ranks = 1,
                             .slices = 8,
                             .own = { 0, 8 },
                             .dtype = half ? SHEAF_BF16 : SHEAF_F32 };
        CHECK_OK(sheaf__tape_new(&tape, &c));
        sheaf__value *x =
            sheaf__record_patches(tape, &(sheaf__images_in){ .picture = seen }, IMAGES, &tower, 1);
        assert_false(x->needs_grad);
        assert_int_equal(x->rows, IMAGES * DOWN * GRID);
        assert_int_equal(x->cols, WIDTH);
        sink_of(tape, x, NULL, got, WIDTH, 0);
        CHECK_OK(sheaf__tape_compile(tape, true, false));
        CHECK_OK(sheaf__tape_run(tape));
        int64_t at = 0;
        for (int i = 0; i < IMAGES; i++)
            for (int y = 0; y < DOWN; y++)
                for (int x0 = 0; x0 < GRID; x0++)
                    for (int channel = 0; channel < CHANNELS; channel++)
                        for (int py = 0; py < PATCH; py++)
                            for (int px = 0; px < PATCH; px++, at++)
                                CHECK_NEAR(
                                    "patch", got[at],
                                    pixels[((i * CHANNELS + channel) * HEIGHT + y * PATCH + py) *
                                               SIDE +
                                           x0 * PATCH + px],
                                    0);
        seen[1].of[1].height = SIDE;
        CHECK_FAILS(sheaf__tape_run(tape), SHEAF_E_ARG, "image 2 | 6 x 4 pixels | 6 x 6");
        seen[1].of[1].height = HEIGHT;
        sheaf__tape_free(tape);
        sheaf__device_close(device);
    }
    free(pixels);
}

/* ---- GELU, rotation ---- */

static sheaf__value *record_gelu(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                 const problem *p)
{
    return sheaf__record_gelu(tape, value[0], false);
}

static double gelu_of(double x)
{
    return 0.5 * x * (1 + erf(x / sqrt(2)));
}

static void plain_gelu(double *y, double *const *x, const problem *p)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        y[i] = gelu_of(x[0][i]);
}

static sheaf__value *record_gelu_tanh(sheaf__tape *tape, sheaf__value **value,
                                      sheaf__vector *vector, const problem *p)
{
    return sheaf__record_gelu(tape, value[0], true);
}

static void plain_gelu_tanh(double *y, double *const *x, const problem *p)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        const double v = x[0][i];
        y[i] = 0.5 * v * (1 + tanh(sqrt(2 / acos(-1)) * (v + 0.044715 * v * v * v)));
    }
}

/* Angles of the test: any table will do. */
static double angle(int64_t position, int64_t pair)
{
    return 0.3 * (double)(position + 1) * (double)(pair + 1);
}

typedef struct turn_env {
    image_env image;
    float cos[4 * 6], sin[4 * 6];
} turn_env;

static sheaf__value *record_turn(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                 const problem *p)
{
    const turn_env *env = p->env;
    sheaf__record_rope_grid(tape, value[0], env->cos, env->sin, env->image.images, env->image.heads,
                            env->image.head_dim);
    return value[0];
}

static void plain_turn(double *y, double *const *x, const problem *p)
{
    const image_env *env = &((turn_env *)p->env)->image;
    memcpy(y, x[0], (size_t)(p->rows * p->cols) * sizeof *y);
    for (int64_t r = 0; r < p->rows; r++)
        for (int64_t i = 0; i < p->cols && r % (env->patches + 1) > 0; i += 2) {
            const double a = angle(r % (env->patches + 1) - 1, i % env->head_dim / 2);
            const double u = x[0][r * p->cols + i], v = x[0][r * p->cols + i + 1];
            y[r * p->cols + i] = u * cos(a) - v * sin(a);
            y[r * p->cols + i + 1] = v * cos(a) + u * sin(a);
        }
}

/* ---- streams ---- */

typedef struct stream_env {
    int64_t rows[2];
    sheaf__images_in in;
} stream_env;

static sheaf__value *record_streams(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                    const problem *p)
{
    const stream_env *env = p->env;
    sheaf__value *stream[2];
    sheaf__record_split(tape, stream, value[0], env->rows, &env->in);
    assert_int_equal(stream[0]->rows, env->rows[0]);
    assert_int_equal(stream[1]->rows, env->rows[1]);
    stream[1] = sheaf__record_gelu(tape, stream[1], false);
    return sheaf__record_join(tape, stream, env->rows, &env->in);
}

static void plain_streams(double *y, double *const *x, const problem *p)
{
    const stream_env *env = p->env;
    memcpy(y, x[0], (size_t)(p->rows * p->cols) * sizeof *y);
    for (int64_t r = 0; r < env->rows[1]; r++)
        for (int64_t c = 0; c < p->cols; c++)
            y[env->in.stream[1][r] * p->cols + c] =
                gelu_of(x[0][env->in.stream[1][r] * p->cols + c]);
}

static sheaf__value *record_join(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                 const problem *p)
{
    const stream_env *env = p->env;
    return sheaf__record_join(tape, value, env->rows, &env->in);
}

static void plain_join(double *y, double *const *x, const problem *p)
{
    const stream_env *env = p->env;
    for (int i = 0; i < 2; i++)
        for (int64_t r = 0; r < env->rows[i]; r++)
            memcpy(y + env->in.stream[i][r] * p->cols, x[i] + r * p->cols,
                   (size_t)p->cols * sizeof *y);
}

TEST(test_one_stream)
{
    sheaf__device *device;
    sheaf__tape *tape;
    CHECK_OK(sheaf__device_open(&device, &sheaf__dry, 1, NULL, 0));
    sheaf__context c = { .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 } };
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *x = sheaf__tape_value(tape, "x", 4, 2, SHEAF_F32);
    for (int i = 0; i < 2; i++) {
        const int64_t rows[2] = { i == 0 ? 4 : 0, i == 0 ? 0 : 4 };
        sheaf__value *stream[2] = { NULL };
        sheaf__record_split(tape, stream, x, rows, &(sheaf__images_in){ 0 });
        assert_ptr_equal(stream[i], x);
        assert_null(stream[1 - i]);
        assert_ptr_equal(sheaf__record_join(tape, stream, rows, &(sheaf__images_in){ 0 }), x);
    }
    sheaf__tape_free(tape);
    sheaf__device_close(device);
}

/* ---- full attention ---- */

typedef struct full_env {
    sheaf__heads heads;
    int64_t keys;
    bool cached;
    sheaf__cache cache;
} full_env;

static sheaf__value *record_full(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                 const problem *p)
{
    full_env *env = p->env;
    sheaf__value *o =
        sheaf__record_full_attention(tape, value[0], value[1], value[2], &env->heads, env->keys,
                                     NULL, env->cached ? &env->cache : NULL);
    return o;
}

static void plain_full(double *y, double *const *x, const problem *p)
{
    const full_env *env = p->env;
    const sheaf__heads *h = &env->heads;
    const int64_t owned = h->kv_heads * h->head_dim;
    for (int64_t row = 0; row < p->rows; row++)
        for (int64_t head = 0; head < h->kv_heads * h->group; head++) {
            const double *q = x[0] + row * p->cols + head * h->head_dim;
            const int64_t first = row / h->queries * env->keys, col = head / h->group * h->head_dim;
            double *o = y + row * p->cols + head * h->head_dim, sum = 0;
            memset(o, 0, (size_t)h->head_dim * sizeof *o);
            for (int64_t j = first; j < first + env->keys; j++) {
                double s = 0;
                for (int64_t c = 0; c < h->head_dim; c++)
                    s += q[c] * x[1][j * owned + col + c];
                const double e = exp(s / sqrt((double)h->head_dim));
                sum += e;
                for (int64_t c = 0; c < h->head_dim; c++)
                    o[c] += e * x[2][j * owned + col + c];
            }
            for (int64_t c = 0; c < h->head_dim; c++)
                o[c] /= sum;
        }
}

static sheaf__value *record_cached(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                   const problem *p)
{
    full_env *env = p->env;
    return sheaf__record_full_attention(tape, value[0], NULL, NULL, &env->heads, env->keys, NULL,
                                        &env->cache);
}

/* With a cache: the bytes of a run without, when keys are stored and when they are read again. */
TEST(test_cached_attention)
{
    for (int half = 0; half < 2; half++) {
        const sheaf_dtype dtype = half ? SHEAF_BF16 : SHEAF_F32;
        full_env env = {
            { 2, 3, 2, 1, 4, 0 }, 7, false, { calloc(14 * 8, 4), calloc(14 * 8, 4), 7 }
        };
        problem p = { "cache", 6,           8,          { { 6, 8 }, { 14, 8 }, { 14, 8 } },
                      true,    record_full, plain_full, &env };
        outcome plain = run(&p, &sheaf__cpu, dtype, false);
        env.cached = true;
        for (int i = 0; i < 3; i++)
            p.operand[i].frozen = true;
        outcome stored = run(&p, &sheaf__cpu, dtype, false);
        p.record = record_cached;
        p.operand[1].rows = 0; /* the run without keys has only queries */
        outcome again = run(&p, &sheaf__cpu, dtype, false);
        CHECK_BYTES("stored", stored.y, plain.y, 48 * sizeof(float));
        CHECK_BYTES("read", again.y, plain.y, 48 * sizeof(float));
        drop(&plain);
        drop(&stored);
        drop(&again);
        free(env.cache.k);
        free(env.cache.v);
    }
}

/* ---- LayerNorm ---- */

typedef struct norm_env {
    sheaf__layernorm norm;
    bool residual;
} norm_env;

/* x, weight, bias, residual */
static sheaf__value *record_norm(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                 const problem *p)
{
    norm_env *env = p->env;
    env->norm = (sheaf__layernorm){ "norm",
                                    .width = p->cols,
                                    .eps = 1e-3f,
                                    .count = 1,
                                    .extent[0] = p->cols,
                                    .owned = p->cols,
                                    .weight = vector[1].data,
                                    .bias = vector[2].data,
                                    .weight_trained = vector[1].trained,
                                    .bias_trained = vector[2].trained };
    return sheaf__record_layernorm(tape, value[0], &env->norm, env->residual ? value[3] : NULL);
}

static void plain_norm(double *y, double *const *x, const problem *p)
{
    for (int64_t r = 0; r < p->rows; r++) {
        const double *row = x[0] + r * p->cols;
        double mean = 0, squares = 0;
        for (int64_t c = 0; c < p->cols; c++)
            mean += row[c] / (double)p->cols;
        for (int64_t c = 0; c < p->cols; c++)
            squares += (row[c] - mean) * (row[c] - mean) / (double)p->cols;
        for (int64_t c = 0; c < p->cols; c++)
            y[r * p->cols + c] = x[1][c] * (row[c] - mean) / sqrt(squares + 1e-3f) + x[2][c] +
                                 (((norm_env *)p->env)->residual ? x[3][r * p->cols + c] : 0);
    }
}

/* ---- RMSNorm, of rows added to a residual and of heads ---- */

/* x, weight, residual */
static sheaf__value *record_plain_norm(sheaf__tape *tape, sheaf__value **value,
                                       sheaf__vector *vector, const problem *p)
{
    static float zeros[64];
    sheaf__layernorm *norm = p->env;
    *norm = (sheaf__layernorm){ "norm",           .width = p->cols,
                                .eps = 1e-3f,     .plain = true,
                                .count = 1,       .extent[0] = p->cols,
                                .owned = p->cols, .weight = vector[1].data,
                                .bias = zeros,    .weight_trained = vector[1].trained };
    return sheaf__record_layernorm(tape, value[0], norm, value[2]);
}

/* Rows of `width`, a weight each column. */
static void plain_rms(double *y, const double *x, const double *w, int64_t rows, int64_t width)
{
    for (int64_t r = 0; r < rows; r++, x += width, y += width) {
        double squares = 0;
        for (int64_t c = 0; c < width; c++)
            squares += x[c] * x[c] / (double)width;
        for (int64_t c = 0; c < width; c++)
            y[c] = w[c] * x[c] / sqrt(squares + 1e-3f);
    }
}

static void plain_norm_without_mean(double *y, double *const *x, const problem *p)
{
    plain_rms(y, x[0], x[1], p->rows, p->cols);
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        y[i] += x[2][i];
}

typedef struct head_env {
    sheaf__norm norm;
    sheaf__linear like;
} head_env;

/* x of six heads, weight of one: the slices hold none or one of 2 units of 3 heads. */
static sheaf__value *record_heads(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                  const problem *p)
{
    head_env *env = p->env;
    bool present[8];
    const int64_t width = vector[1].width;
    env->norm = (sheaf__norm){ .name = "norm",
                               .width = width,
                               .eps = 1e-3f,
                               .once = true,
                               .weight = vector[1].data,
                               .trained = vector[1].trained };
    env->like = (sheaf__linear){ .name = "q", .out = p->cols, .count = 8, .owned = p->cols };
    for (int s = 0; s < 8; s++) {
        env->like.begin[s] = 2 * s / 8 * 3 * width;
        env->like.extent[s] = 2 * (s + 1) / 8 * 3 * width - env->like.begin[s];
        present[s] = env->like.extent[s] > 0;
    }
    sheaf_tree_init(&env->like.tree, 8, 1, present);
    return sheaf__record_head_norm(tape, value[0], &env->norm, &env->like);
}

static void plain_heads(double *y, double *const *x, const problem *p)
{
    plain_rms(y, x[0], x[1], p->rows * 6, p->cols / 6);
}

/* ---- values and gradients of all of these ---- */

TEST(test_ops__against_their_formulas)
{
    /* a sequence need not hold an image in one piece */
    static const int32_t placed[] = { 1, 2, 3, 4, 5, 8, 9, 11, 12, 13 },
                         alone[] = { 1, 2, 3, 8, 9, 10 }, text[] = { 0, 4, 5, 6, 10 },
                         image[] = { 1, 2, 3, 7, 8, 9, 11 };
    image_env four = { .images = 3, .patches = 4 }, two = { .images = 3, .patches = 2 },
              three = { .images = 2, .patches = 3, .in = { .image_row = placed } },
              without = { .images = 2, .patches = 3, .in = { .image_row = alone } };
    block_env of_four = { 3, 4, 6, 2 }, of_nine = { 2, 3, 9, 3 };
    turn_env turn = { { .images = 30, .patches = 4, .heads = 2, .head_dim = 6 }, { 0 }, { 0 } };
    stream_env streams = { { 5, 7 }, { .stream = { text, image } } };
    /* the window is ignored; a cross-attention has more queries than keys, or fewer */
    full_env tower = { { 2, 5, 2, 1, 4, 2 }, 5, false, { 0 } },
             more = { { 2, 9, 2, 2, 6, 0 }, 7, false, { 0 } },
             fewer = { { 2, 3, 2, 2, 6, 0 }, 7, false, { 0 } };
    norm_env norm = { .residual = false }, added = { .residual = true };
    sheaf__layernorm rms;
    head_env heads;
    for (int i = 0; i < 24; i++) {
        turn.cos[i] = (float)cos(angle(i / 6, i % 6 / 2));
        turn.sin[i] = (float)sin(angle(i / 6, i % 6 / 2));
    }
#define V true /* a vector */
#define OF(op) record_##op, plain_##op
    const problem list[] = {
        { "tokens", 15, 7, { { 12, 7 }, { 1, 7, V }, { 5, 7, V } }, false, OF(tokens), &four },
        { "wide tokens", 15, 300, LIST({ 12, 300 }, { 1, 300, V }, { 5, 300, V }), false,
          OF(tokens), &four },
        { "grid", 12, 5, { { 15, 5 } }, false, OF(grid), &four },
        { "grid with positions", 12, 5, { { 15, 5 }, { 4, 5, V } }, false, OF(grid), &four },
        { "blocks of four", 18, 20, { { 72, 5 } }, false, OF(blocks), &of_four },
        { "blocks of nine", 6, 63, { { 54, 7 } }, false, OF(blocks), &of_nine },
        { "images", 16, 6, LIST({ 16, 6 }, { 6, 6 }, { 1, 6, V }, { 1, 6, V }), true, OF(place),
          &three },
        { "images without ends", 12, 6, LIST({ 12, 6 }, { 6, 6 }), true, record_place,
          plain_place_alone, &without },
        { "rows around images", 12, 5, LIST({ 6, 5 }, { 1, 5, V }, { 1, 5, V }), false, OF(around),
          &two },
        { "gelu", 9, 11, { { 9, 11 } }, false, OF(gelu) },
        /* differs from erf's by up to 5e-4, which float32's tolerance sees */
        { "gelu by tanh", 9, 11, { { 9, 11 } }, false, OF(gelu_tanh) },
        { "rotation", 150, 12, { { 150, 12 } }, true, OF(turn), &turn },
        { "streams", 12, 5, { { 12, 5 } }, false, OF(streams), &streams },
        { "join", 12, 5, { { 5, 5 }, { 7, 5 } }, false, OF(join), &streams },
        { "tower attention", 10, 8, { { 10, 8 }, { 10, 8 }, { 10, 8 } }, false, OF(full), &tower },
        { "cross-attention", 18, 24, LIST({ 18, 24 }, { 14, 12 }, { 14, 12 }), false, OF(full),
          &more },
        { "more keys", 6, 24, { { 6, 24 }, { 14, 12 }, { 14, 12 } }, false, OF(full), &fewer },
        { "norm", 19, 33, { { 19, 33 }, { 1, 33, V }, { 1, 33, V } }, false, OF(norm), &norm },
        { "norm, added", 35, 21, LIST({ 35, 21 }, { 1, 21, V }, { 1, 21, V }, { 35, 21 }), false,
          OF(norm), &added },
        { "RMSNorm and residual", 19, 33, LIST({ 19, 33 }, { 1, 33, V }, { 19, 33 }), false,
          record_plain_norm, plain_norm_without_mean, &rms },
        { "RMSNorm of heads", 13, 30, { { 13, 30 }, { 1, 5, V } }, false, OF(heads), &heads },
    };
#undef OF
#undef V
    check_all(list, ARRAY_LEN(list));
}

/* ---- LayerNorm on a cut width: the same bytes for any number of ranks ---- */

enum { SLICES = 8 };

typedef struct cut_run {
    sheaf_cut cut;
    int64_t rows, width;
    sheaf_dtype dtype;
    int ranks, threads;
    const char *isa;
    bool twice, dry;
    const float *x, *weight, *second; /* [rows, width] */
    float *w, *b;                     /* [width] */
    float *y, *dx, *dw, *db, *seen;   /* out, each rank its columns */
    double sent[SLICES];
    size_t peak[SLICES][SHEAF_MEM_KINDS];
} cut_run;

static void cut_norm(sheaf__layernorm *norm, sheaf__trained *trained, const cut_run *r,
                     const sheaf__context *c)
{
    bool present[SLICES];
    *norm = (sheaf__layernorm){
        "cut norm",  .width = r->width,          .eps = 1e-3f,
        .cut = true, .first = (int)c->own.begin, .count = (int)(c->own.end - c->own.begin)
    };
    for (int s = 0; s < SLICES; s++) {
        sheaf_range of;
        CHECK_OK(sheaf_cut_rows(&of, &r->cut, 0, s));
        present[s] = of.end > of.begin;
        if (s < norm->first || s >= norm->first + norm->count)
            continue;
        if (s == norm->first)
            norm->logical0 = of.begin;
        norm->begin[s] = norm->owned;
        norm->extent[s] = of.end - of.begin;
        norm->owned += norm->extent[s];
        trained[0].grad[s] = r->dw + of.begin;
        trained[1].grad[s] = r->db + of.begin;
    }
    sheaf_tree_init(&norm->tree, SLICES, c->ranks, present);
    norm->weight = r->w + norm->logical0;
    norm->bias = r->b + norm->logical0;
    norm->weight_trained = &trained[0];
    norm->bias_trained = &trained[1];
}

static sheaf_status *cut_body(void *arg, sheaf_comm *comm, int rank)
{
    cut_run *r = arg;
    sheaf__device *device = NULL;
    sheaf__tape *tape = NULL;
    sheaf__layernorm norm;
    sheaf__trained trained[2] = { { NULL } };
    sheaf_status *st =
        sheaf__device_open(&device, r->dry ? &sheaf__dry : &sheaf__cpu, r->threads, r->isa, 0);
    if (st != NULL)
        return st;
    sheaf__context c = { .device = device,
                         .comm = r->ranks == 1 ? NULL : comm,
                         .rank = rank,
                         .ranks = r->ranks,
                         .slices = SLICES,
                         .own = sheaf_owner_slices(SLICES, r->ranks, rank),
                         .dtype = r->dtype };
    cut_norm(&norm, trained, r, &c);
    st = sheaf__tape_new(&tape, &c);
    if (st == NULL) {
        sheaf__value *x =
            source_of(tape, r->rows, norm.owned, false, r->x, r->dx, r->width, norm.logical0);
        sheaf__tape_segment_begin(tape, 0);
        sheaf__value *y = sheaf__record_layernorm(tape, x, &norm, NULL);
        sheaf__tape_segment_end(tape);
        sink_of(tape, y, r->weight, r->y, r->width, norm.logical0);
        if (r->twice)
            sink_of(tape, x, r->second, r->seen, r->width, norm.logical0);
        st = sheaf__tape_compile(tape, true, r->twice);
    }
    TRY(st, sheaf__tape_run(tape));
    r->sent[rank] =
        c.comm == NULL ? 0 : (double)sheaf__counters_all(sheaf_comm_counters(c.comm)).sent;
    memcpy(r->peak[rank], device->peak_of, sizeof r->peak[rank]);
    sheaf__tape_free(tape);
    sheaf__device_close(device);
    return st;
}

static sheaf_status *cut_rank(void *arg, sheaf_comm *comm)
{
    return cut_body(arg, comm, sheaf_comm_rank(comm));
}

static void run_cut(cut_run *r)
{
    const size_t n = (size_t)(r->rows * r->width);
    float *const out[] = { r->y, r->dx, r->dw, r->db };
    for (int i = 0; i < 4; i++)
        for (size_t e = 0; e < (i < 2 ? n : (size_t)r->width); e++)
            out[i][e] = START;
    if (!r->dry)
        CHECK_OK(sheaf_comm_run_threads(r->ranks, cut_rank, r));
    for (int rank = 0; rank < r->ranks && r->dry; rank++) {
        sheaf_comm *comm = NULL;
        CHECK_OK(sheaf_comm_dry_new(&comm, rank, r->ranks));
        CHECK_OK(cut_body(r, comm, rank));
        sheaf_comm_dry_free(comm);
    }
}

/* The result of one rank against the formula, by way of a problem with the same numbers. */
static void check_cut_formula(const cut_run *r)
{
    norm_env env = { .residual = false };
    const problem p = {
        "cut norm", r->rows,
        r->width,   { { r->rows, r->width }, { 1, r->width, true }, { 1, r->width, true } },
        false,      record_norm,
        plain_norm, &env
    };
    const double tolerance = r->dtype == SHEAF_F32 ? 2e-5 : 0.04;
    outcome o = run(&p, &sheaf__cpu, r->dtype, r->twice); /* checked above */
    for (int64_t i = 0; i < r->rows * r->width; i++) {
        CHECK_NEAR("y of a cut width", r->y[i], o.y[i], tolerance * (1 + fabs(o.y[i])));
        CHECK_NEAR("dx of a cut width", r->dx[i], o.grad[0][i],
                   tolerance * (1 + fabs(o.grad[0][i])));
    }
    for (int64_t i = 0; i < r->width; i++) {
        CHECK_NEAR("dw of a cut width", r->dw[i], o.grad[1][i],
                   tolerance * (1 + fabs(o.grad[1][i])));
        CHECK_NEAR("db of a cut width", r->db[i], o.grad[2][i],
                   tolerance * (1 + fabs(o.grad[2][i])));
    }
    drop(&o);
}

static void compare_cut(int64_t units, int64_t per_unit, int64_t rows, sheaf_dtype dtype,
                        bool twice)
{
    static const struct {
        int ranks, threads;
        const char *isa;
    } how[] = { { 1, 1, NULL }, { 2, 2, NULL },  { 3, 1, NULL },
                { 8, 1, NULL }, { 1, 3, "ref" }, { 3, 2, "ref" } };
    const int64_t width = units * per_unit;
    const size_t n = (size_t)(rows * width);
    cut_run first = { 0 };
    for (size_t k = 0; k < ARRAY_LEN(how); k++) {
        cut_run r = { .cut = { .slices = SLICES, .nparts = 1, .part[0] = { units, per_unit } },
                      .rows = rows,
                      .width = width,
                      .dtype = dtype,
                      .ranks = how[k].ranks,
                      .threads = how[k].threads,
                      .isa = how[k].isa,
                      .twice = twice,
                      .x = numbers((int64_t)n, 0),
                      .weight = numbers((int64_t)n, 99),
                      .second = numbers((int64_t)n, 50),
                      .w = numbers(width, 1),
                      .b = numbers(width, 2),
                      .y = malloc(n * 4),
                      .dx = malloc(n * 4),
                      .seen = malloc(n * 4),
                      .dw = malloc((size_t)width * 4),
                      .db = malloc((size_t)width * 4) };
        run_cut(&r);
        if (k == 0) {
            first = r;
            check_cut_formula(&r);
            continue;
        }
        char what[96];
        snprintf(what, sizeof what, "%lld x %lld columns, %d ranks", (long long)units,
                 (long long)per_unit, r.ranks);
        CHECK_BYTES(what, r.y, first.y, n * 4);
        CHECK_BYTES(what, r.dx, first.dx, n * 4);
        CHECK_BYTES(what, r.dw, first.dw, (size_t)width * 4);
        CHECK_BYTES(what, r.db, first.db, (size_t)width * 4);
        cut_run dry = r;
        dry.dry = true;
        run_cut(&dry);
        CHECK_BYTES("sent on dry", dry.sent, r.sent, sizeof r.sent);
        CHECK_BYTES("memory on dry", dry.peak, r.peak, sizeof r.peak);
        float *const held[] = {
            (float *)r.x, (float *)r.weight, (float *)r.second, r.w, r.b, r.y, r.dx, r.seen, r.dw,
            r.db
        };
        for (size_t i = 0; i < ARRAY_LEN(held); i++)
            free(held[i]);
    }
    float *const held[] = { (float *)first.x,
                            (float *)first.weight,
                            (float *)first.second,
                            first.w,
                            first.b,
                            first.y,
                            first.dx,
                            first.seen,
                            first.dw,
                            first.db };
    for (size_t i = 0; i < ARRAY_LEN(held); i++)
        free(held[i]);
}

TEST(test_cut_norm)
{
    static const struct {
        int64_t units, per_unit, rows;
    } shapes[] = { { 5, 9, 37 },   /* three slices are empty */
                   { 2, 16, 300 }, /* most are */
                   { 173, 1, 5 },  /* uneven */
                   { 1, 3, 1 },    /* one slice has all */
                   { 16, 40, 19 } };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++)
        for (int k = (int)i % every(2); k < 4; k += every(2))
            compare_cut(shapes[i].units, shapes[i].per_unit, shapes[i].rows,
                        k & 1 ? SHEAF_BF16 : SHEAF_F32, k & 2);
}

/* ---- compute copies ---- */

TEST(test_refresh)
{
    enum { WIDTH = 300 };
    sheaf__device *device;
    float master[2][WIDTH], copy[2][WIDTH] = { { 0 } };
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, 1, NULL, 0));
    sheaf__context c = {
        .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 }, .dtype = SHEAF_BF16
    };
    for (int i = 0; i < 2 * WIDTH; i++)
        master[i / WIDTH][i % WIDTH] =
            1.0f + (float)(i % 256) / 4096; /* bfloat16 has steps of 32 of these */
    sheaf__trained trained[2] = { { .weight = { [1] = master[0], [2] = master[0] + 100 } },
                                  { .weight = { [1] = master[1], [2] = master[1] + 100 } } };
    sheaf__layernorm norm = { .cut = true,
                              .first = 1,
                              .count = 2,
                              .begin = { [2] = 100 },
                              .extent = { 0, 100, 200 },
                              .owned = WIDTH,
                              .weight = copy[0],
                              .bias = copy[1],
                              .weight_trained = &trained[0],
                              .bias_trained = &trained[1] };
    sheaf__layernorm_refresh(&c, &norm);
    sheaf__trained table = { .weight[0] = master[0] };
    float of_table[WIDTH] = { 0 };
    sheaf__vector_refresh(&c, &(sheaf__vector){ "table", 3, WIDTH / 3, of_table, &table });
    for (int i = 0; i < 2 * WIDTH; i++) {
        uint32_t rounded;
        float want;
        device->kernels->round(&rounded, SHEAF_BF16, &master[i / WIDTH][i % WIDTH], 1);
        device->kernels->widen(&want, &rounded, SHEAF_BF16, 1);
        CHECK_NEAR("copy", copy[i / WIDTH][i % WIDTH], want, 0);
        if (i < WIDTH)
            CHECK_NEAR("table", of_table[i], want, 0);
    }
    float untouched = 7;
    sheaf__vector_refresh(&c, &(sheaf__vector){ "frozen", 1, 1, &untouched, NULL });
    CHECK_NEAR("frozen", untouched, 7, 0);
    sheaf__device_close(device);
}
