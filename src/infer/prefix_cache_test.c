/* prefix_cache_test.c - a prompt in a batch, and one whose beginning was read before, have the bits
 * they have alone; what is told of probabilities is what transformers computes. */
#include "tests/devices/checked.h"
#include "tests/made_sat.h"
#include "tests/sources.h"

#include "infer/prefix_cache.h"
#include "models/team.h"
#include "base/status.h"

enum { PROMPTS = 5, LONGEST = 37, NEW = 9, BEST = 3, SIDE = 28, PATCHES = 4 };

typedef struct said {
    int32_t ids[NEW], best[NEW][BEST];
    float logprob[NEW], best_logprob[NEW][BEST];
} said;

static sheaf__continuation into(said *s)
{
    memset(s, 0, sizeof *s);
    return (sheaf__continuation){ .ids = s->ids,
                                  .logprob = s->logprob,
                                  .best_ids = s->best[0],
                                  .best_logprob = s->best_logprob[0] };
}

static void open_tiny(sheaf__opened *opened, const char *name)
{
    const char *path = in_sources("tests/data/llama/%s/hf", name);
    CHECK_OK(sheaf__open_model(opened, &(sheaf__open_options){ .model = path, .slices = 8 }));
}

/* ---- a prompt in a batch ---- */

static const int64_t lengths[PROMPTS] = { 4, LONGEST, 9, 9, 1 };

typedef struct batches {
    int32_t ids[PROMPTS][LONGEST];
    sheaf__prompt prompt[PROMPTS];
    sheaf__generate_options how;
    said *out; /* [PROMPTS], of the first rank */
} batches;

static sheaf_status *in_batches(void *self, sheaf__model *model)
{
    const batches *b = self;
    const sheaf__context *c = model->context;
    said own[PROMPTS], again[PROMPTS];
    sheaf__continuation out[PROMPTS], more[PROMPTS];
    for (int i = 0; i < PROMPTS; i++) {
        out[i] = into(sheaf__is_first(c) ? &b->out[i] : &own[i]);
        more[i] = into(&again[i]);
    }
    const bool few = c->dtype == SHEAF_BF16 && b->how.batch <= sheaf__packed_few(c->device);
    assert_true((model->head.all.code != NULL) == few);
    sheaf_status *st = sheaf__generate(out, model, b->prompt, PROMPTS, &b->how);
    if (st != NULL || !few)
        return st;
    sheaf__model_set_sequences(model, sheaf__packed_few(c->device));
    assert_non_null(model->head.all.code);
    sheaf__model_set_sequences(model, sheaf__packed_few(c->device) + 1);
    assert_null(model->head.all.code);
    st = sheaf__generate(more, model, b->prompt, PROMPTS, &b->how);
    if (st == NULL)
        CHECK_BYTES("expanded", again, sheaf__is_first(c) ? b->out : own, sizeof again);
    return st;
}

TEST(test_generate__a_prompt_in_a_batch_has_the_bits_it_has_alone)
{
    static const char *const models[] = { "tiny_llama", "tiny_mistral", "tiny_qwen2" };
    static const struct {
        int batch, ranks;
    } ways[] = { { 1, 1 }, { 2, 1 }, { 5, 1 }, { 3, 3 }, { 5, 2 } };
    for (size_t k = 0; k < 2 * ARRAY_LEN(models); k++) {
        sheaf__opened opened;
        batches b = { .how = { .max_new = NEW, .best = BEST } };
        said alone[PROMPTS], out[PROMPTS];
        open_tiny(&opened, models[k / 2]);
        b.how.sampling = (sheaf__sampling){ .greedy = k % 2 == 0, .temperature = 2, .seed = 5 };
        for (int i = 0; i < PROMPTS; i++) {
            for (int j = 0; j < lengths[i]; j++)
                b.ids[i][j] = (int32_t)(made_mix((uint64_t)(100 * i + j)) % 200);
            b.prompt[i] = (sheaf__prompt){ b.ids[i], lengths[i] };
        }
        for (size_t w = 0; w < ARRAY_LEN(ways); w++) {
            b.how.batch = ways[w].batch;
            b.out = w == 0 ? alone : out;
            CHECK_OK(sheaf__team_run(
                &opened,
                &(sheaf__team_options){ .ranks = ways[w].ranks,
                                        .threads = 2,
                                        .dtype = k % 2 == 0 ? SHEAF_F32 : SHEAF_BF16,
                                        .positions = LONGEST + NEW,
                                        .sequences = ways[w].batch },
                in_batches, &b));
            CHECK_BYTES(models[k / 2], b.out, alone, sizeof alone);
        }
        sheaf__opened_close(&opened);
    }
}

/* ---- log probabilities: log_softmax of out.logits of transformers 5.23.0, in float32, of
 * generate(output_logits=True) with the first prompt of tiny_llama/generation.json ---- */

static const struct {
    int32_t id, best[BEST];
    double logprob[BEST];
} recorded[] = {
    { 60, { 60, 271, 257 }, { -4.563227, -4.577949, -4.695398 } },
    { 39, { 39, 150, 254 }, { -4.526652, -4.784592, -4.921679 } },
    { 41, { 41, 49, 27 }, { -4.488487, -4.521888, -4.800692 } },
    { 27, { 27, 206, 75 }, { -4.666272, -4.683685, -4.767325 } },
};

static sheaf_status *first_case(void *self, sheaf__model *model)
{
    static const int32_t ids[] = { 57, 449, 134, 417 };
    sheaf__continuation out = into(self);
    return sheaf__generate(
        &out, model, &(sheaf__prompt){ ids, 4 }, 1,
        &(sheaf__generate_options){
            .sampling = { .greedy = true }, .max_new = NEW, .batch = 1, .best = BEST });
}

TEST(test_generate__probabilities_are_those_of_transformers)
{
    sheaf__opened opened;
    said got;
    open_tiny(&opened, "tiny_llama");
    CHECK_OK(
        sheaf__team_run(&opened,
                        &(sheaf__team_options){
                            .ranks = 1, .threads = 1, .dtype = SHEAF_F32, .positions = LONGEST },
                        first_case, &got));
    for (size_t i = 0; i < ARRAY_LEN(recorded); i++) {
        assert_int_equal(got.ids[i], recorded[i].id);
        assert_true(got.logprob[i] == got.best_logprob[i][0]);
        for (int j = 0; j < BEST; j++) {
            assert_int_equal(got.best[i][j], recorded[i].best[j]);
            /* logits of two implementations differ by 2e-6 (tests/parity/llama_test.c) */
            CHECK_NEAR("logprob", got.best_logprob[i][j], recorded[i].logprob[j], 1e-5);
        }
    }
    sheaf__opened_close(&opened);
}

/* ---- what was read before ---- */

/* Turns of a conversation, and what else may come: what of the one before is used again. */
static const struct {
    int64_t n, alike; /* tokens; of these as in the one before (its answer included) */
    int64_t reused;
} calls[] = {
    { 7, 0, 0 },
    { 23, 15, 15 }, /* 7 of the prompt and 8 of the answer: the ninth was not read */
    { 23, 23, 22 }, /* the same again: its last row is computed */
    { 12, 12, 11 }, /* a part of it */
    { 20, 5, 5 },   /* changed from the sixth token on */
    { 30, 0, 0 },   /* another one */
    { 60, 38, 38 }, /* more than there was space for: all of it anew (below) */
};
enum { CALLS = ARRAY_LEN(calls), MOST = 60 + NEW };

typedef struct turns {
    int64_t least;
    said with[CALLS], without[CALLS];
    double flops[CALLS][2];
} turns;

static sheaf_status *in_turns(void *self, sheaf__model *model)
{
    turns *t = self, own;
    const bool first = sheaf__is_first(model->context);
    sheaf__rank_cache cache = { .prefix.least = t->least };
    int32_t ids[MOST] = { 0 };
    int64_t known = 0;
    sheaf_status *st = NULL;
    for (size_t i = 0; i < CALLS && st == NULL; i++) {
        assert_true(calls[i].alike <= known);
        for (int64_t j = calls[i].alike; j < calls[i].n; j++)
            ids[j] = (int32_t)(1 + made_mix((uint64_t)(1000 * i) + (uint64_t)j) % 200);
        for (int keep = 0; keep < 2 && st == NULL; keep++) {
            turns *to = first ? t : &own;
            sheaf__continuation out = into(keep ? &to->with[i] : &to->without[i]);
            const double before = model->context->device->flops;
            st = sheaf__generate(&out, model, &(sheaf__prompt){ ids, calls[i].n }, 1,
                                 &(sheaf__generate_options){ .sampling = { .greedy = true },
                                                             .max_new = NEW,
                                                             .batch = 1,
                                                             .best = BEST,
                                                             .number = (int64_t)i,
                                                             .max_length = MOST,
                                                             .cache = keep ? &cache : NULL });
            to->flops[i][keep] = model->context->device->flops - before;
            memcpy(ids + calls[i].n, out.ids, NEW * sizeof *ids);
        }
        known = calls[i].n + NEW - 1;
        assert_int_equal(cache.prefix.n, first ? known : 0); /* the others are told what to read */
    }
    /* answers that max_length cuts short take no more space than it says */
    for (int keep = 0; keep < 2 && st == NULL; keep++) {
        said cut;
        sheaf__continuation out = into(&cut);
        st = sheaf__generate(&out, model, &(sheaf__prompt){ ids, MOST - 3 }, 1,
                             &(sheaf__generate_options){ .sampling = { .greedy = true },
                                                         .max_new = NEW,
                                                         .max_length = MOST,
                                                         .batch = 1,
                                                         .best = BEST,
                                                         .cache = keep ? &cache : NULL });
        assert_int_equal(out.n, 3);
        assert_int_equal(cache.prefix.length, MOST);
    }
    sheaf__rank_cache_release(&cache, model);
    return st;
}

TEST(test_past__answers_are_those_without_it)
{
    static const char *const models[] = { "tiny_mistral", "tiny_qwen2" }, *const devices[] = {
        NULL, NULL, NULL, NULL, "checked"
    };
    said by_cpu[CALLS];
    for (size_t k = 0; k < ARRAY_LEN(devices); k++) {
        sheaf__opened opened;
        turns *t = calloc(1, sizeof *t);
        t->least = k < 2 ? MOST : 40;
        open_tiny(&opened, models[k % 2]);
        CHECK_OK(sheaf__team_run(&opened,
                                 &(sheaf__team_options){ .ranks = k < 2 ? 1 : 3,
                                                         .threads = 2,
                                                         .device = devices[k],
                                                         .dtype = k == 1 ? SHEAF_BF16 : SHEAF_F32,
                                                         .positions = MOST },
                                 in_turns, t));
        CHECK_BYTES("answers", t->with, t->without, sizeof t->with);
        if (k == 0)
            memcpy(by_cpu, t->with, sizeof by_cpu);
        if (devices[k] != NULL)
            CHECK_BYTES("answers of another device", t->with, by_cpu, sizeof by_cpu);
        for (size_t i = 0; i < CALLS; i++)
            if (calls[i].reused == 0 || (t->least < MOST && i == CALLS - 1))
                assert_true(t->flops[i][1] == t->flops[i][0]);
            else
                assert_true(t->flops[i][1] < t->flops[i][0]);
        free(t);
        sheaf__opened_close(&opened);
    }
}

/* ---- and seen ---- */

/* The picture, the number it is known by, tokens of the prompt, and rows that are used again. */
static const struct {
    int picture, look;
    int64_t n, reused;
} looks[] = {
    { 1, 1, 10, 0 },  { 1, 1, 15, 10 }, { 2, 2, 15, 0 },
    { 2, 2, 15, 14 }, { 1, 0, 15, 0 }, /* one that has no number is looked at */
    { 1, 0, 15, 0 },
};
enum { LOOKS = ARRAY_LEN(looks), ROWS = 15 };

typedef struct seeing {
    said with[LOOKS], without[LOOKS];
} seeing;

static sheaf_status *in_sight(void *self, sheaf__model *model)
{
    seeing *s = self;
    sheaf__rank_cache cache = { .prefix.least = ROWS + NEW };
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &model->schema->config);
    sheaf__picture *picture = sheaf__picture_room_like(NULL, 1, tower, towers);
    int32_t ids[ROWS];
    uint8_t embed[ROWS] = { 0 }, expert[ROWS] = { 0 };
    sheaf_status *st = NULL;
    for (int j = 0; j < ROWS; j++) {
        ids[j] = (int32_t)(7 + 5 * j);
        embed[j] = j > 0 && j < PATCHES + 3;
        expert[j] = j > 0 && j < PATCHES + 2;
    }
    for (size_t i = 0; i < LOOKS && st == NULL; i++) {
        made_pixels(picture->of[0].pixels, 3 * SIDE * SIDE, looks[i].picture);
        made_pixels(picture->of[1].pixels, 3 * SIDE * SIDE, looks[i].picture + 50);
        for (int keep = 0; keep < 2 && st == NULL; keep++) {
            sheaf__continuation out = into(keep ? &s->with[i] : &s->without[i]);
            const sheaf__prompt p = { .ids = ids,
                                      .n = looks[i].n,
                                      .embed = embed,
                                      .expert = expert,
                                      .picture = picture,
                                      .pictures = 1,
                                      .look = looks[i].look };
            int64_t reused = 0;
            if (keep && cache.prefix.n > 0)
                reused = sheaf__prefix_cache_usable(&cache.prefix, &model->schema->config, &p);
            if (keep)
                assert_int_equal(reused, looks[i].reused);
            TRY(st, sheaf__generate(&out, model, &p, 1,
                                    &(sheaf__generate_options){ .sampling = { .greedy = true },
                                                                .max_new = NEW,
                                                                .batch = 1,
                                                                .best = BEST,
                                                                .cache = keep ? &cache : NULL }));
        }
    }
    sheaf__rank_cache_release(&cache, model);
    free(picture);
    return st;
}

TEST(test_past__a_picture_is_used_again_as_long_as_it_is_the_same)
{
    for (int agent = 0; agent < 2; agent++) {
        made m = { .agent = agent, .layers = 2, .seed = 4 };
        sheaf_schema *schema;
        seeing *s = calloc(1, sizeof *s);
        made_init(&m);
        CHECK_OK(sheaf_schema_new(&schema, &m.config, 4));
        sheaf__opened opened = {
            .config = m.config, .schema = schema, .base = &m.source, .weights = &m.source
        };
        CHECK_OK(sheaf__team_run(
            &opened,
            &(sheaf__team_options){
                .ranks = 1, .threads = 1, .dtype = SHEAF_F32, .positions = ROWS + NEW },
            in_sight, s));
        CHECK_BYTES("answers", s->with, s->without, sizeof s->with);
        assert_memory_not_equal(&s->with[1], &s->with[2], sizeof s->with[1]);
        free(s);
        sheaf_schema_free(schema);
        made_release(&m);
    }
}

const sheaf__device_class *const sheaf__more_devices[] = { &checked_device, NULL };
