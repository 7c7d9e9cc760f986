/* pictures_test.c - patches, class rows, vectors and copies, and attention inside pictures of their
 * own sizes. */
#include "tests/tape_pictures.h"

/* ---- patches ---- */

TEST(test_pictures__patches_of_each_picture)
{
    picture_env e = sets[0];
    enum { WIDTH = CHANNELS * PATCH * PATCH, ALL = 17 };
    float *pixels[MOST], got[ALL * WIDTH];
    const sheaf__pictures of = pictures_of(&e);
    for (int64_t i = 0; i < e.images; i++) {
        pixels[i] = numbers(patches_of(&e, i) * WIDTH, 10 + (uint64_t)i);
        e.picture[i].of[1].pixels = pixels[i];
    }
    assert_int_equal(of.patches, ALL);
    for (int threads = 1; threads <= 3; threads++) {
        sheaf__device *device;
        sheaf__tape *tape;
        CHECK_OK(sheaf__device_open(&device, threads == 3 ? &checked_device : &sheaf__cpu, threads,
                                    NULL, 0));
        sheaf__context c = { .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 } };
        c.dtype = threads == 2 ? SHEAF_BF16 : SHEAF_F32;
        CHECK_OK(sheaf__tape_new(&tape, &c));
        sheaf__value *x = sheaf__record_picture_patches(tape, &of);
        assert_int_equal(x->rows, ALL);
        sink_of(tape, x, NULL, got, WIDTH, 0);
        CHECK_OK(sheaf__tape_compile(tape, true, false));
        CHECK_OK(sheaf__tape_run(tape));
        int64_t at = 0;
        for (int64_t i = 0; i < e.images; i++)
            for (int64_t r = 0; r < e.down[i]; r++)
                for (int64_t k = 0; k < e.across[i]; k++)
                    for (int64_t n = 0; n < WIDTH; n++, at++) {
                        const int64_t line = n / 4 * e.down[i] * PATCH + r * PATCH + n / 2 % 2;
                        CHECK_NEAR("patch", got[at],
                                   pixels[i][line * e.across[i] * PATCH + k * PATCH + n % 2], 0);
                    }
        e.picture[2].of[1].width = 5;
        CHECK_FAILS(sheaf__tape_run(tape), SHEAF_E_ARG, "image 3 | sides that are multiples of 2");
        e.picture[2].of[1].width = 4;
        CHECK_FAILS(sheaf__tape_run(tape), SHEAF_E_ARG, "images | 17 patches in all | 20");
        e.picture[2].of[1].width = 2;
        sheaf__tape_free(tape);
        sheaf__device_close(device);
    }
    for (int64_t i = 0; i < e.images; i++)
        free(pixels[i]);
}

/* ---- class rows ---- */

static sheaf__value *record_class(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                  const problem *p)
{
    const sheaf__pictures of = pictures_of(p->env);
    return sheaf__record_class_rows(tape, value[0], &of, &vector[1]);
}
static void plain_class(double *y, double *const *x, const problem *p)
{
    const picture_env *e = p->env;
    const double *from = x[0];
    for (int64_t i = 0; i < e->images; i++) {
        memcpy(y, x[1], (size_t)p->cols * sizeof *y);
        memcpy(y + p->cols, from, (size_t)(patches_of(e, i) * p->cols) * sizeof *y);
        y += (patches_of(e, i) + 1) * p->cols;
        from += patches_of(e, i) * p->cols;
    }
}

static sheaf__value *record_without(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                    const problem *p)
{
    const sheaf__pictures of = pictures_of(p->env);
    return sheaf__record_without_class(tape, value[0], &of);
}
static void plain_without(double *y, double *const *x, const problem *p)
{
    const picture_env *e = p->env;
    const double *from = x[0];
    for (int64_t i = 0; i < e->images; i++) {
        memcpy(y, from + p->cols, (size_t)(patches_of(e, i) * p->cols) * sizeof *y);
        y += patches_of(e, i) * p->cols;
        from += (patches_of(e, i) + 1) * p->cols;
    }
}

TEST(test_pictures__class_rows)
{
    for (size_t s = 0; s < ARRAY_LEN(sets); s++) {
        picture_env e = sets[s];
        e.class_row = false; /* is not looked at */
        const int64_t n = rows_of(&e), wide = n + e.images;
        const problem list[] = {
            { "class", wide, 5, LIST({ n, 5 }, { 1, 5, true }), false, record_class, plain_class,
              &e },
            { "without class", n, 5, { { wide, 5 } }, false, record_without, plain_without, &e },
        };
        check_all(list, ARRAY_LEN(list));
    }
}

/* ---- vectors, copies ---- */

static sheaf__value *record_query(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                  const problem *p)
{
    return sheaf__record_repeat(tape, sheaf__record_vector(tape, &vector[0]),
                                ((picture_env *)p->env)->times);
}
static sheaf__value *record_copies(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                   const problem *p)
{
    return sheaf__record_repeat(tape, value[0], ((picture_env *)p->env)->times);
}
static void plain_copies(double *y, double *const *x, const problem *p)
{
    const int64_t n = numel(&p->operand[0]);
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        y[i] = x[0][i % n];
}

TEST(test_pictures__vectors_and_copies)
{
    for (int64_t n = 1; n <= 3; n++) {
        picture_env e = { .times = n };
        const problem list[] = {
            { "query", n * 3, 150, { { 3, 150, true } }, true, record_query, plain_copies, &e },
            { "copies", n * 3, 150, { { 3, 150 } }, false, record_copies, plain_copies, &e },
        };
        check_all(list, ARRAY_LEN(list));
    }
}

/* ---- attention ---- */

static sheaf__value *record_attention(sheaf__tape *tape, sheaf__value **value,
                                      sheaf__vector *vector, const problem *p)
{
    picture_env *e = p->env;
    const sheaf__pictures of = pictures_of(e);
    const sheaf__heads heads = { .kv_heads = e->kv_heads,
                                 .group = e->group,
                                 .head_dim = e->head_dim };
    return sheaf__record_picture_attention(tape, value[0], value[1], value[2], &heads, &of,
                                           e->queries_each);
}

/* One query of one head over the keys of a picture. */
static void attend(double *o, const double *q, const double *k, const double *v, int64_t keys_n,
                   int64_t ld, int64_t head_dim)
{
    double p[64], sum = 0;
    for (int64_t j = 0; j < keys_n; j++) {
        double s = 0;
        for (int64_t c = 0; c < head_dim; c++)
            s += q[c] * k[j * ld + c];
        p[j] = exp(s / sqrt((double)head_dim));
        sum += p[j];
    }
    for (int64_t c = 0; c < head_dim; c++) {
        o[c] = 0;
        for (int64_t j = 0; j < keys_n; j++)
            o[c] += p[j] / sum * v[j * ld + c];
    }
}

static void plain_attention(double *y, double *const *x, const problem *p)
{
    const picture_env *e = p->env;
    const int64_t ld = e->kv_heads * e->head_dim;
    int64_t key = 0, query = 0;
    for (int64_t i = 0, next; i < e->images; i = next) {
        int64_t n = patches_of(e, i) + e->class_row;
        for (next = i + 1; next < e->images && e->joins[next]; next++)
            n += patches_of(e, next);
        const int64_t m = e->queries_each > 0 ? e->queries_each : n;
        for (int64_t r = query; r < query + m; r++)
            for (int64_t h = 0; h < e->kv_heads * e->group; h++)
                attend(y + r * p->cols + h * e->head_dim, x[0] + r * p->cols + h * e->head_dim,
                       x[1] + key * ld + h / e->group * e->head_dim,
                       x[2] + key * ld + h / e->group * e->head_dim, n, ld, e->head_dim);
        key += n;
        query += m;
    }
}

TEST(test_pictures__attention)
{
    static const struct {
        int64_t queries_each, kv_heads, group, head_dim;
    } shapes[] = { { 0, 2, 1, 4 }, { 0, 1, 2, 6 }, { 3, 2, 1, 4 }, { 9, 1, 1, 3 } };
    for (size_t s = 0; s < ARRAY_LEN(sets); s++)
        for (size_t k = 0; k < ARRAY_LEN(shapes); k++)
            for (int frozen = 0; frozen < 8; frozen += s == 1 ? every(3) : 3) {
                picture_env e = sets[s];
                e.queries_each = shapes[k].queries_each;
                e.kv_heads = shapes[k].kv_heads;
                e.group = shapes[k].group;
                e.head_dim = shapes[k].head_dim;
                const int64_t keys_n = rows_of(&e),
                              rows = e.queries_each > 0 ? e.images * e.queries_each : keys_n,
                              owned = e.kv_heads * e.head_dim;
                check(&(problem){ "attention in pictures",
                                  rows,
                                  owned * e.group,
                                  { { rows, owned * e.group, false, frozen & 1 },
                                    { keys_n, owned, false, frozen & 2 },
                                    { keys_n, owned, false, frozen & 4 } },
                                  false,
                                  record_attention,
                                  plain_attention,
                                  &e });
            }
}

/* Queries see all frames of a group; others see their own picture. */
TEST(test_pictures__attention_over_groups)
{
    static const picture_env groups[] = {
        { .images = 5,
          .down = LIST(2, 3, 3, 1, 2),
          .across = LIST(3, 1, 1, 5, 2),
          .joins = LIST(false, true, true, false, true),
          .groups = 2,
          .ragged = true },
        { .images = 6, /* two equal ones, and a picture */
          .down = LIST(2, 2, 2, 2, 2, 1),
          .across = LIST(2, 2, 2, 2, 2, 1),
          .joins = LIST(false, true, false, true, false, true),
          .groups = 3,
          .ragged = true },
    };
    for (size_t s = 0; s < ARRAY_LEN(groups); s++) {
        picture_env e = groups[s];
        e.queries_each = 3;
        e.kv_heads = 2;
        e.group = 1;
        e.head_dim = 4;
        const int64_t owned = e.kv_heads * e.head_dim, rows = e.groups * e.queries_each;
        check(&(problem){ "attention over groups",
                          rows,
                          owned,
                          { { rows, owned, false, false },
                            { rows_of(&e), owned, false, false },
                            { rows_of(&e), owned, false, false } },
                          false,
                          record_attention,
                          plain_attention,
                          &e });
    }
}

/* Attention of the pictures of e on x[i] [rows, WIDTH], into y. */
enum { WIDTH = 16 };

static void attended(float *y, picture_env *e, float *const x[3], sheaf_dtype dtype, int threads)
{
    sheaf__device *device;
    sheaf__tape *tape;
    const sheaf__pictures of = pictures_of(e);
    const sheaf__heads heads = { .kv_heads = 2, .group = 1, .head_dim = WIDTH / 2 };
    CHECK_OK(sheaf__device_open(&device, &sheaf__cpu, threads, NULL, 0));
    sheaf__context c = { .device = device, .ranks = 1, .slices = 8, .own = { 0, 8 } };
    c.dtype = dtype;
    CHECK_OK(sheaf__tape_new(&tape, &c));
    sheaf__value *v[3];
    for (int k = 0; k < 3; k++)
        v[k] = source_of(tape, of.patches, WIDTH, true, x[k], NULL, WIDTH, 0);
    sheaf__value *o = sheaf__record_picture_attention(tape, v[0], v[1], v[2], &heads, &of, 0);
    sink_of(tape, o, NULL, y, WIDTH, 0);
    CHECK_OK(sheaf__tape_compile(tape, false, false));
    CHECK_OK(sheaf__tape_run(tape));
    sheaf__tape_free(tape);
    sheaf__device_close(device);
}

/* A picture has the same bytes alone, and beside equal and other ones. */
TEST(test_pictures__neighbours_change_no_byte)
{
    picture_env all = {
        .images = 5, .down = { 6, 9, 9, 9, 2 }, .across = { 7, 4, 4, 4, 1 }, .ragged = true
    };
    const int64_t n = rows_of(&all) * WIDTH;
    float *x[3], *y = calloc((size_t)n, sizeof *y), *alone = calloc((size_t)n, sizeof *alone);
    for (int i = 0; i < 3; i++)
        x[i] = numbers(n, 30 + (uint64_t)i);
    for (int half = 0; half < 2; half++) {
        const sheaf_dtype dtype = half ? SHEAF_BF16 : SHEAF_F32;
        attended(y, &all, x, dtype, 2);
        for (int64_t i = 0, at = 0; i < all.images; at += patches_of(&all, i++) * WIDTH) {
            picture_env e = all;
            e.images = 1;
            e.down[0] = all.down[i];
            e.across[0] = all.across[i];
            attended(alone + at, &e, (float *const[]){ x[0] + at, x[1] + at, x[2] + at }, dtype,
                     1 + (int)i % 3);
        }
        CHECK_BYTES("pictures alone", alone, y, (size_t)n * sizeof *y);
    }
    for (int i = 0; i < 3; i++)
        free(x[i]);
    free(y);
    free(alone);
}
