/* omnilmm_made_test.c - OmniLMMs whose sizes nothing divides agree with plain torch: two or three
 * heads of the resampler, a window shorter than the rows, pictures that do not fall into patches,
 * two of them in one row; the tower of `made_equal` is as wide as the text model, so that nothing
 * is projected between them. Their weights, pictures and tokens are hashes of names and places, as
 * tests/data/omnilmm/made/record.py makes them, so that no file holds them. */
#include "tests/parity/trial.h"

#include "schema/family.h"

/* One model: the name of the folder of what is recorded, paths of what is made. */
typedef struct made {
    const char *name;
    char *model, *data;
    json_t *told;
    int64_t vocab;
    bool projected;
} made;

static made all[] = {
    { "made", .projected = true },
    { "made_equal", .projected = false },
};

static void unit_numbers(float *out, const char *name, int64_t n)
{
    uint32_t hash = 2166136261u;
    for (const char *c = name; *c != '\0'; c++)
        hash = (hash ^ (unsigned char)*c) * 16777619u;
    for (int64_t i = 0; i < n; i++) {
        uint32_t x = hash + (uint32_t)i * 2654435761u;
        x ^= x >> 16;
        x *= 2246822507u;
        x ^= x >> 13;
        x *= 3266489909u;
        x ^= x >> 16;
        out[i] = (float)(x >> 8) / 16777216.0f;
    }
}

static int64_t numel_of(const sheaf_tensor *t)
{
    return t->shape[0] * t->shape[1] * t->shape[2] * t->shape[3];
}

static void make_tensor(float *x, const sheaf_tensor *t, const sheaf_config *c)
{
    const bool norm = !t->bias && sheaf__is_norm(t->role);
    unit_numbers(x, t->name, numel_of(t));
    for (int64_t i = 0; i < numel_of(t); i++)
        x[i] = t->buffer ? sheaf__family_for(c)->buffer(t, c, i)
               : norm    ? 1 + 0.5f * (x[i] - 0.5f)
                         : 0.25f * (x[i] - 0.5f);
}

static void make_model(const char *model, const sheaf_schema *schema)
{
    sheaf_safetensors_spec *spec = calloc((size_t)schema->count, sizeof *spec);
    sheaf_safetensors_writer *w;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        spec[i] = (sheaf_safetensors_spec){ t->name, SHEAF_F32, t->ndim, { 0 } };
        memcpy(spec[i].shape, t->shape, sizeof t->shape);
    }
    CHECK_OK(sheaf__safetensors_begin(&w, in_dir(model, "model.safetensors"), spec, schema->count,
                                      NULL, 0));
    for (int64_t i = 0; i < schema->count; i++) {
        const int64_t n = numel_of(&schema->tensor[i]);
        float *x = malloc((size_t)n * sizeof *x);
        make_tensor(x, &schema->tensor[i], &schema->config);
        CHECK_OK(sheaf__safetensors_write(w, i, 0, x, n * 4));
        free(x);
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    free(spec);
}

static int64_t *integers_of(const json_t *told, const char *key, int64_t n)
{
    const json_t *list = json_object_get(told, key);
    int64_t *x = malloc((size_t)n * sizeof *x);
    assert_int_equal(json_array_size(list), n);
    for (int64_t i = 0; i < n; i++)
        x[i] = json_integer_value(json_array_get(list, (size_t)i));
    return x;
}

static void make_data(const made *m, const sheaf_config *c)
{
    const int64_t rows = json_integer_value(json_object_get(m->told, "rows")),
                  length = json_integer_value(json_object_get(m->told, "length")),
                  side = c->vit.height, n = 3 * c->vit.channels * side * side;
    const sheaf_safetensors_spec spec[] = {
        { "images", SHEAF_F32, 4, { 3, c->vit.channels, side, side } },
        { "input_ids", SHEAF_I64, 2, { rows, length } },
        { "labels", SHEAF_I64, 2, { rows, length } },
        { "attention_mask", SHEAF_I64, 2, { rows, length } },
    };
    static const char *const key[] = { NULL, "ids", "labels", "mask" };
    sheaf_safetensors_writer *w;
    float *pixels = malloc((size_t)n * sizeof *pixels);
    unit_numbers(pixels, "images", n);
    for (int64_t i = 0; i < n; i++)
        pixels[i] = (pixels[i] - 0.5f) * 4;
    CHECK_OK(sheaf__safetensors_begin(&w, m->data, spec, 4, NULL, 0));
    CHECK_OK(sheaf__safetensors_write(w, 0, 0, pixels, n * 4));
    for (int i = 1; i < 4; i++) {
        int64_t *x = integers_of(m->told, key[i], rows * length);
        CHECK_OK(sheaf__safetensors_write(w, i, 0, x, rows * length * 8));
        free(x);
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    free(pixels);
}

static void make_one(made *m, const char *source)
{
    char folder[PATH_MAX], name[64];
    snprintf(folder, sizeof folder, "%s/tests/data/omnilmm/%s", source, m->name);
    m->model = strdup(at(m->name));
    snprintf(name, sizeof name, "%s.safetensors", m->name);
    m->data = strdup(at(name));
    m->told = json_of(folder, "expected.json");
    CHECK_OK(sheaf__make_dirs(m->model));
    assert_int_equal(symlink(in_dir(folder, "config.json"), in_dir(m->model, "config.json")), 0);
    sheaf_config c;
    sheaf_schema *schema;
    CHECK_OK(sheaf_config_read(&c, in_dir(folder, "config.json")));
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    m->vocab = c.vocab;
    assert_int_equal(c.vit.hidden != c.hidden, m->projected);
    make_model(m->model, schema);
    make_data(m, &c);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
}

static int make(void **state)
{
    const char *source = getenv("SHEAF_SOURCE_ROOT");
    if (make_scratch(state) != 0 || source == NULL)
        return 1;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        make_one(&all[i], source);
    return 0;
}

static int unmake(void **state)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        json_decref(all[i].told);
        free(all[i].model);
        free(all[i].data);
    }
    return remove_scratch(state);
}

/* A number of all elements: their sum, each times a number of its own. */
static double along(const float *x, int64_t n, const char *name)
{
    float *of = malloc((size_t)n * sizeof *of);
    double sum = 0;
    unit_numbers(of, name, n);
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * ((double)of[i] - 0.5);
    free(of);
    return sum;
}

static void check_logits(const made *m, const trial *t)
{
    const json_t *rows = json_object_get(m->told, "logits"), *row, *want;
    size_t r, i;
    int compared = 0;
    json_array_foreach((json_t *)rows, r, row) json_array_foreach((json_t *)row, i, want)
    {
        if (json_is_null(want))
            continue;
        const int64_t at = (int64_t)(r * json_array_size(row) + i);
        CHECK_NEAR("logits", along(t->logits + at * m->vocab, m->vocab, "logits"),
                   json_number_value(want), 1e-4);
        compared++;
    }
    assert_true(compared > 50);
    CHECK_NEAR("loss", t->loss, json_number_value(json_object_get(m->told, "loss")), 1e-5);
}

static void check_forward(const made *m)
{
    trial one = run_forward(m->model, NULL, m->data, SHEAF_F32);
    check_logits(m, &one);
    release(&one);
}

TEST(test_made__forward)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        check_forward(&all[i]);
}

/* One that is zero but for rounding (a bias of keys moves no probability) has nothing to compare.
 */
static void check_gradient(const char *name, const float *x, int64_t n, const json_t *want)
{
    const double norm = json_number_value(json_array_get(want, 0));
    CHECK_NEAR(name, norm_of(x, n), norm, 1e-4 * norm + 1e-7);
    CHECK_NEAR(name, along(x, n, name), json_number_value(json_array_get(want, 1)),
               1e-4 * norm + 1e-7);
}

static void check_gradients(const made *m)
{
    const json_t *gradients = json_object_get(m->told, "gradients");
    trial one = run_backward(m->model, NULL, m->data, ranks_to_try, ARRAY_LEN(ranks_to_try));
    assert_int_equal(one.trained, json_object_size(gradients));
    for (int i = 0; i < one.trained; i++)
        check_gradient(one.name[i], one.grad[i], one.numel[i],
                       json_object_get(gradients, one.name[i]));
    release(&one);
}

TEST(test_made__gradients)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        check_gradients(&all[i]);
}

FIXTURE(make, unmake);
