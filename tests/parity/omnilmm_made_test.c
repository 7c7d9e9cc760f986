/* omnilmm_made_test.c - OmniLMMs whose sizes nothing divides agree with plain torch: two or three
 * heads of the resampler, a window shorter than the rows, pictures that do not fall into patches,
 * two of them in one row; the tower of `made_equal` is as wide as the text model, so that nothing
 * is projected between them. Their weights, pictures and tokens are hashes of names and places, as
 * tests/data/omnilmm/made/record.py makes them, so that no file holds them. */
#include "tests/parity/trial.h"
#include "tests/sources.h"

#include "schema/family.h"

/* One model: the name of the folder of what is recorded, paths of what is made. */
typedef struct made {
    const char *name, *model, *data;
    const json_t *told;
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

static void make_tensor(float *x, const sheaf_tensor *t, int64_t n, const sheaf_config *c)
{
    const bool norm = !t->bias && sheaf__is_norm(t->role);
    unit_numbers(x, t->name, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = t->buffer ? sheaf__family_for(c)->buffer(t, c, i)
               : norm    ? 1 + 0.5f * (x[i] - 0.5f)
                         : 0.25f * (x[i] - 0.5f);
}

static void add_integers(made_tensors *data, const char *name, const json_t *told, const char *key)
{
    const int64_t shape[] = { json_integer_value(json_object_get(told, "rows")),
                              json_integer_value(json_object_get(told, "length")) },
                  n = shape[0] * shape[1];
    const json_t *list = json_object_get(told, key);
    int64_t *x = room((size_t)n * sizeof *x);
    assert_int_equal(json_array_size(list), n);
    for (int64_t i = 0; i < n; i++)
        x[i] = json_integer_value(json_array_get(list, (size_t)i));
    made_add(data, name, SHEAF_I64, 2, shape, x);
}

static const char *make_data(const made *m, const sheaf_config *c)
{
    const int64_t shape[] = { 3, c->vit.channels, c->vit.height, c->vit.height },
                  n = shape[0] * shape[1] * shape[2] * shape[3];
    float *pixels = room((size_t)n * sizeof *pixels);
    made_tensors data = { .count = 0 };
    unit_numbers(pixels, "images", n);
    for (int64_t i = 0; i < n; i++)
        pixels[i] = (pixels[i] - 0.5f) * 4;
    made_add(&data, "images", SHEAF_F32, 4, shape, pixels);
    add_integers(&data, "input_ids", m->told, "ids");
    add_integers(&data, "labels", m->told, "labels");
    add_integers(&data, "attention_mask", m->told, "mask");
    return made_write(&data, at(textf("%s.safetensors", m->name)));
}

static int make(void **state)
{
    if (make_scratch(state) != 0)
        return 1;
    for (made *m = all; m < all + ARRAY_LEN(all); m++) {
        const char *folder = in_sources("tests/data/omnilmm/%s", m->name);
        const sheaf_config *c = config_of(folder, "config.json");
        sheaf_schema *schema;
        m->model = at(m->name);
        m->told = json_of(folder, "expected.json");
        m->vocab = c->vocab;
        assert_int_equal(c->vit.hidden != c->hidden, m->projected);
        CHECK_OK(sheaf__make_dirs(m->model));
        copy_file(in_dir(m->model, "config.json"), in_dir(folder, "config.json"));
        CHECK_OK(sheaf_schema_new(&schema, c, 8));
        write_model(in_dir(m->model, "model.safetensors"), schema, SHEAF_F32, make_tensor);
        sheaf_schema_free(schema);
        m->data = make_data(m, c);
    }
    return 0;
}

/* A number of all elements: their sum, each times a number of its own. */
static double along(const float *x, int64_t n, const char *name)
{
    float *of = room((size_t)n * sizeof *of);
    double sum = 0;
    unit_numbers(of, name, n);
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * ((double)of[i] - 0.5);
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

FIXTURE(make, remove_scratch);
