/* pictures_test.c - prompts with several pictures, each of its own size where the family has such:
 * a prompt in a batch has the bits it has alone, what was seen and read is used again, and who
 * loads pictures is given room for all of a prompt's. */
#include "tests/check.h"

#include "infer/prefix_cache.h"
#include "plan/timing.h"
#include "models/team.h"
#include "models/open.h"
#include "base/status.h"

enum { LONGEST = 90, NEW = 5, PICTURES = 3, PROMPTS = 4, WAYS = 4, MOST_RANKS = 4 };

typedef struct said {
    int32_t ids[NEW], best[NEW];
    float logprob[NEW], best_logprob[NEW];
} said;

typedef struct asked {
    sheaf_config config;
    int32_t ids[LONGEST];
    uint8_t embed[LONGEST];
    sheaf__picture *picture; /* [PICTURES + 1], the last in place of the first */
    sheaf__prompt prompt[PROMPTS];
    said out[MOST_RANKS][WAYS][PROMPTS];
    int ranks;
} asked;

/* 28 x 14, 14 x 42, ... of ragged towers; else the tower's own. */
static void paint_all(asked *a)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &a->config);
    const int64_t p = tower[0].patch;
    sheaf__picture like[PICTURES + 1] = { 0 };
    uint32_t state = 1;
    for (int64_t i = 0; i <= PICTURES; i++)
        like[i].of[0] = (sheaf__view){ NULL, p * (1 + i % 2), p * (2 + i) };
    a->picture = sheaf__picture_room_like(like, PICTURES + 1, tower, towers);
    assert_non_null(a->picture);
    for (int64_t i = 0; i <= PICTURES; i++)
        for (int64_t k = 0; k < sheaf__view_numbers(&a->picture[i].of[0], &tower[0]); k++) {
            state = state * 1664525u + 1013904223u;
            a->picture[i].of[0].pixels[k] = (float)(state >> 8) / 8388608.0f - 1;
        }
}

/* All are the beginning of one sequence with a picture here and there: one, two, three, and more
 * text after them. */
static void ask(asked *a)
{
    const int64_t rows = sheaf__image_positions(&a->config);
    int64_t n = 0;
    paint_all(a);
    for (int i = 0; i < PROMPTS; i++) {
        for (int k = 0; k < 2 + i; k++)
            a->ids[n++] = 40 + 7 * i + k;
        for (int64_t k = 0; k < rows && i < PICTURES; k++) {
            a->embed[n] = 1;
            a->ids[n++] = 0;
        }
        assert_true(n + 2 < LONGEST);
        a->ids[n++] = 99;
        a->prompt[i] = (sheaf__prompt){ .ids = a->ids,
                                        .n = n,
                                        .embed = a->embed,
                                        .picture = a->picture,
                                        .pictures = i < PICTURES ? i + 1 : PICTURES };
    }
}

static sheaf__continuation into(said *s)
{
    return (sheaf__continuation){
        .ids = s->ids, .logprob = s->logprob, .best_ids = s->best, .best_logprob = s->best_logprob
    };
}

static sheaf_status *load(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n)
{
    const asked *a = self;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &a->config);
    assert_int_equal(n, a->prompt[prompt].pictures);
    for (int64_t k = 0; k < n; k++) {
        const sheaf__view *from = &a->picture[k].of[0], *to = &picture[k].of[0];
        assert_true(to->height == from->height && to->width == from->width);
        memcpy(to->pixels, from->pixels,
               (size_t)sheaf__view_numbers(from, &tower[0]) * sizeof(float));
    }
    return NULL;
}

/* Each alone; all in one batch; all loaded, by twos; one after the other with what is kept. */
static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    asked *a = self;
    const int world = model->context->stage * a->ranks + model->context->rank;
    sheaf__continuation out[WAYS][PROMPTS];
    sheaf__generate_options how = {
        .sampling = { .greedy = true, .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
        .max_new = NEW,
        .batch = 1,
        .best = 1
    };
    sheaf__prompt loaded[PROMPTS];
    sheaf__picture sizes[PICTURES];
    sheaf__rank_cache cache = { .prefix.least = LONGEST + NEW };
    for (int w = 0; w < WAYS; w++)
        for (int i = 0; i < PROMPTS; i++)
            out[w][i] = into(&a->out[world][w][i]);
    sheaf_status *st = sheaf__generate(out[0], model, a->prompt, PROMPTS, &how);
    how.batch = PROMPTS;
    TRY(st, sheaf__generate(out[1], model, a->prompt, PROMPTS, &how));
    memcpy(sizes, a->picture, sizeof sizes);
    memcpy(loaded, a->prompt, sizeof loaded);
    for (int k = 0; k < PICTURES; k++)
        sizes[k].of[0].pixels = NULL;
    for (int i = 0; i < PROMPTS; i++)
        loaded[i].picture = sizes;
    how.batch = 2;
    how.load = load;
    how.self = a;
    TRY(st, sheaf__generate(out[2], model, loaded, PROMPTS, &how));
    how.load = NULL;
    how.cache = &cache;
    for (int i = 0; i < PROMPTS && st == NULL; i++) { /* the last two have the same pictures */
        sheaf__prompt p = a->prompt[i];
        p.look = p.pictures;
        if (i == PROMPTS - 1)
            p.picture = a->picture + 1; /* not read */
        st = sheaf__generate(&out[3][i], model, &p, 1, &how);
    }
    sheaf__rank_cache_release(&cache, model);
    return st;
}

static void run(asked *a, const char *family, const char *place, int ranks, sheaf_dtype dtype)
{
    const sheaf__family *f = sheaf__family_named(family);
    sheaf_schema *schema;
    sheaf_source *source;
    assert_non_null(f);
    const char *text = sheaf__spec_config(f->specs[0].name);
    CHECK_OK(sheaf_config_parse(&a->config, text, strlen(text)));
    CHECK_OK(sheaf_schema_new(&schema, &a->config, 4));
    CHECK_OK(sheaf__made_source(&source, schema, NULL));
    a->ranks = ranks;
    ask(a);
    const sheaf__opened opened = {
        .config = a->config, .schema = schema, .base = source, .weights = source
    };
    CHECK_OK(sheaf__team_run(&opened,
                             &(sheaf__team_options){ .ranks = ranks,
                                                     .threads = ranks,
                                                     .dtype = dtype,
                                                     .positions = LONGEST + NEW,
                                                     .place = place },
                             on_rank, a));
    free(a->picture);
    a->picture = NULL;
    memset(a->embed, 0, sizeof a->embed);
    source->close(source);
    sheaf_schema_free(schema);
    sheaf_config_release(&a->config);
}

TEST(test_generate__several_pictures)
{
    static const char *const families[] = { "omnilmm", "minicpmv" };
    static const struct {
        const char *place;
        int ranks, stages;
    } ways[] = { { NULL, 1, 1 }, { NULL, 3, 1 }, { "2", 2, 2 } };
    for (size_t f = 0; f < ARRAY_LEN(families); f++)
        for (int half = 0; half < 2; half++) {
            asked *one = calloc(1, sizeof *one), *a = calloc(1, sizeof *a);
            for (size_t k = 0; k < ARRAY_LEN(ways); k++) {
                asked *to = k == 0 ? one : a;
                run(to, families[f], ways[k].place, ways[k].ranks, half ? SHEAF_BF16 : SHEAF_F32);
                for (int world = 0; world < ways[k].ranks * ways[k].stages; world++)
                    for (int w = 0; w < WAYS; w++)
                        CHECK_BYTES("answers", to->out[world][w], one->out[0][0],
                                    sizeof one->out[0][0]);
            }
            for (int i = 1; i < PROMPTS; i++) /* or nothing would be shown */
                assert_memory_not_equal(one->out[0][0][i].logprob, one->out[0][0][i - 1].logprob,
                                        sizeof one->out[0][0][i].logprob);
            free(one);
            free(a);
        }
}
