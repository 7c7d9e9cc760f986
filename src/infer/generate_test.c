/* generate_test.c - pictures on their way into a generation: who loads them, what comes of one that
 * cannot be had, and what the towers made of one, used again. */
#include "tests/made_sat.h"

#include "infer/prefix_cache.h"
#include "models/team.h"

enum { PATCHES = 4, SIDE = 28, LENGTH = 10, NEW = 4, PICTURES = 3, MOST_RANKS = 8 };

#define GREEDY                                                                                     \
    {                                                                                              \
        .greedy = true, .temperature = 1, .top_p = 1, .repetition_penalty = 1                      \
    }

/* The model of a test. */
static made m;
static sheaf_schema *schema;

static void open_model(bool agent, int64_t layers, uint64_t seed)
{
    m = (made){ .agent = agent, .layers = layers, .seed = seed };
    made_init(&m);
    CHECK_OK(sheaf_schema_new(&schema, &m.config, 4));
}

static void close_model(void)
{
    sheaf_schema_free(schema);
    made_release(&m);
}

/* `work` on each rank. */
static sheaf_status *on_ranks(int ranks, const char *place, sheaf_dtype dtype,
                              sheaf_status *(*work)(void *self, sheaf__model *model), void *self)
{
    sheaf__opened opened = {
        .config = m.config, .schema = schema, .base = &m.source, .weights = &m.source
    };
    return sheaf__team_run(&opened,
                           &(sheaf__team_options){ .ranks = ranks,
                                                   .threads = 1,
                                                   .dtype = dtype,
                                                   .positions = LENGTH + NEW,
                                                   .place = place },
                           work, self);
}

/* Prompts about pictures: BOI, patches, EOI and some text; the first has none, where the model can
 * do without. */
typedef struct asked {
    int32_t ids[PICTURES][LENGTH];
    uint8_t embed[LENGTH], expert[LENGTH];
    sheaf__prompt prompt[PICTURES];
} asked;

static void ask(asked *a, bool agent)
{
    memset(a, 0, sizeof *a);
    for (int j = 1; j < PATCHES + 3; j++) {
        a->embed[j] = 1;
        a->expert[j] = j < PATCHES + 2;
    }
    for (int i = 0; i < PICTURES; i++) {
        for (int j = 0; j < LENGTH; j++)
            a->ids[i][j] = (int32_t)(7 + 31 * i + 5 * j);
        a->prompt[i] = (sheaf__prompt){ .ids = a->ids[i], .n = LENGTH - i % 2 };
        if (i > 0 || agent) {
            a->prompt[i].embed = a->embed;
            a->prompt[i].expert = a->expert;
        }
    }
}

typedef struct trial {
    asked asked;
    int64_t broken; /* picture that cannot be had; -1: none */
    int ranks;      /* of a stage */
    int32_t ids[MOST_RANKS][PICTURES][NEW];
    sheaf__continuation out[MOST_RANKS][PICTURES];
    atomic_int loads[MOST_RANKS], ended;
} trial;

typedef struct member {
    trial *t;
    int world;
} member;

static sheaf_status *load(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n)
{
    const member *m = self;
    atomic_fetch_add(&m->t->loads[m->world], 1);
    if (prompt == m->t->broken)
        return sheaf_fail(SHEAF_E_DATA, "picture %d", (int)prompt);
    made_pixels(picture->of[0].pixels, 3 * SIDE * SIDE, prompt);
    made_pixels(picture->of[1].pixels, 3 * SIDE * SIDE, prompt + 50);
    return NULL;
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    trial *t = self;
    member m = { t, model->context->stage * t->ranks + model->context->rank };
    for (int i = 0; i < PICTURES; i++)
        t->out[m.world][i] = (sheaf__continuation){ t->ids[m.world][i], 0 };
    const sheaf__generate_options how = {
        .sampling = GREEDY, .max_new = NEW, .batch = 2, .load = load, .self = &m
    };
    sheaf_status *st = sheaf__generate(t->out[m.world], model, t->asked.prompt, PICTURES, &how);
    atomic_fetch_add(&t->ended, 1);
    return st;
}

static sheaf_status *run(trial *t, const char *place, int ranks, int64_t broken)
{
    memset(t, 0, sizeof *t);
    t->broken = broken;
    t->ranks = ranks;
    ask(&t->asked, m.agent);
    return on_ranks(ranks, place, SHEAF_F32, on_rank, t);
}

static const struct {
    const char *place;
    int ranks, stages;
} arrangements[] = {
    { NULL, 1, 1 }, { NULL, 2, 1 }, { "2", 1, 2 }, { "0-0,1-2", 2, 2 }, { "3", 2, 3 }
};

TEST(test_generate__only_the_first_rank_loads_pictures)
{
    for (int agent = 0; agent < 2; agent++) {
        trial *one = malloc(sizeof *one), *t = malloc(sizeof *t);
        open_model(agent, 3, 0);
        for (size_t k = 0; k < ARRAY_LEN(arrangements); k++) {
            CHECK_OK(run(k == 0 ? one : t, arrangements[k].place, arrangements[k].ranks, -1));
            for (int world = 0; k > 0 && world < arrangements[k].ranks * arrangements[k].stages;
                 world++) {
                assert_int_equal(atomic_load(&t->loads[world]), world == 0 ? PICTURES - !agent : 0);
                for (int i = 0; i < PICTURES; i++) {
                    assert_true(t->out[world][i].n == NEW && one->out[0][i].n == NEW);
                    CHECK_BYTES("tokens", t->ids[world][i], one->ids[0][i], sizeof one->ids[0][i]);
                }
            }
        }
        free(one);
        free(t);
        close_model();
    }
}

TEST(test_generate__a_picture_that_cannot_be_had_ends_all_ranks)
{
    for (size_t k = 0; k < ARRAY_LEN(arrangements); k++) {
        trial *t = malloc(sizeof *t);
        open_model(k % 2 != 0, 3, 0);
        CHECK_FAILS(run(t, arrangements[k].place, arrangements[k].ranks, 2), SHEAF_E_DATA,
                    "picture 2");
        assert_int_equal(atomic_load(&t->ended), arrangements[k].ranks * arrangements[k].stages);
        free(t);
        close_model();
    }
}

/* ---- how long, and which number a sequence has ---- */

typedef struct limits {
    asked asked;
    int32_t ids[3][PICTURES][NEW];
    int64_t n[3][PICTURES];
} limits;

static sheaf_status *look_at_one(void *self, int64_t prompt, const sheaf__picture *picture,
                                 int64_t n)
{
    made_pixels(picture->of[0].pixels, 3 * SIDE * SIDE, 1);
    made_pixels(picture->of[1].pixels, 3 * SIDE * SIDE, 51);
    return NULL;
}

static sheaf_status *three_ways(void *self, sheaf__model *model)
{
    limits *t = self;
    sheaf_status *st = NULL;
    for (int way = 0; way < 3 && st == NULL; way++) {
        sheaf__continuation out[PICTURES];
        sheaf__generate_options how = { .sampling = { .greedy = way == 0,
                                                      .temperature = 1,
                                                      .top_p = 1,
                                                      .repetition_penalty = 1,
                                                      .seed = 3 },
                                        .max_new = NEW,
                                        .max_length = way == 0 ? LENGTH + 1 : 0,
                                        .batch = 2,
                                        .load = look_at_one,
                                        .number = way == 2 ? PICTURES - 1 : 0 };
        for (int i = 0; i < PICTURES; i++)
            out[i] = (sheaf__continuation){ t->ids[way][i], 0 };
        st = sheaf__generate(out, model, t->asked.prompt + (way == 2 ? PICTURES - 1 : 0),
                             way == 2 ? 1 : PICTURES, &how);
        for (int i = 0; i < PICTURES; i++)
            t->n[way][i] = out[i].n;
    }
    return st;
}

TEST(test_generate__lengths_and_numbers_of_sequences)
{
    limits *t = calloc(1, sizeof *t);
    open_model(1, 1, 4);
    ask(&t->asked, true);
    CHECK_OK(on_ranks(1, NULL, SHEAF_F32, three_ways, t));
    for (int i = 0; i < PICTURES;
         i++) /* prompts of 10, 9 and 10 tokens, of 11 at most with what is new */
        assert_int_equal(t->n[0][i], 1 + i % 2);
    assert_int_equal(t->n[2][0], NEW);
    CHECK_BYTES("the third of a run, alone", t->ids[2][0], t->ids[1][2], sizeof t->ids[1][2]);
    assert_memory_not_equal(t->ids[1][0], t->ids[1][2], sizeof t->ids[1][0]);
    free(t);
    close_model();
}

/* ---- one picture, asked about again ---- */

enum { CALLS = 5 };

typedef struct again {
    asked asked;
    int ranks;
    int32_t ids[MOST_RANKS][CALLS][NEW];
    atomic_int loads;
} again;

typedef struct shown {
    again *a;
    int picture;
} shown;

static sheaf_status *look(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n)
{
    const shown *s = self;
    atomic_fetch_add(&s->a->loads, 1);
    made_pixels(picture->of[0].pixels, 3 * SIDE * SIDE, s->picture);
    made_pixels(picture->of[1].pixels, 3 * SIDE * SIDE, s->picture + 50);
    return NULL;
}

static sheaf_status *ask_again(void *self, sheaf__model *model)
{
    static const struct {
        int picture;
        bool keep;
        int look;
    } call[CALLS] = {
        { 1, false, 0 }, { 2, false, 0 }, /* each alone */
        { 1, true, 1 },  { 2, true, 1 },  /* the second is not looked at */
        { 2, true, 2 },                   /* until it has another number */
    };
    again *a = self;
    const int world = model->context->stage * a->ranks + model->context->rank;
    sheaf__rank_cache cache = { 0 };
    sheaf_status *st = NULL;
    for (int i = 0; i < CALLS && st == NULL; i++) {
        shown from = { a, call[i].picture };
        sheaf__continuation out = { a->ids[world][i], 0 };
        sheaf__generate_options how = { .sampling = GREEDY,
                                        .max_new = NEW,
                                        .batch = 1,
                                        .load = look,
                                        .self = &from,
                                        .cache = call[i].keep ? &cache : NULL };
        sheaf__prompt p = a->asked.prompt[1];
        p.look = call[i].look;
        cache.prefix.n = 0; /* its rows are read again */
        st = sheaf__generate(&out, model, &p, 1, &how);
        assert_true(!call[i].keep || cache.image_cache.full);
    }
    sheaf__rank_cache_release(&cache, model);
    return st;
}

TEST(test_generate__what_was_seen_is_used_again)
{
    int differ = 0;
    for (int agent = 0; agent < 2; agent++)
        for (int half = 0; half < 2; half++) {
            open_model(agent, 3, 4);
            for (size_t k = 0; k < ARRAY_LEN(arrangements); k++) {
                again *a = calloc(1, sizeof *a);
                a->ranks = arrangements[k].ranks;
                ask(&a->asked, true);
                CHECK_OK(on_ranks(a->ranks, arrangements[k].place, half ? SHEAF_BF16 : SHEAF_F32,
                                  ask_again, a));
                for (int world = 0; world < a->ranks * arrangements[k].stages; world++) {
                    CHECK_BYTES("kept while it is filled", a->ids[world][2], a->ids[0][0],
                                sizeof a->ids[0][0]);
                    CHECK_BYTES("kept", a->ids[world][3], a->ids[0][0], sizeof a->ids[0][0]);
                    CHECK_BYTES("another picture", a->ids[world][4], a->ids[0][1],
                                sizeof a->ids[0][0]);
                }
                assert_int_equal(atomic_load(&a->loads), 4);
                differ += memcmp(a->ids[0][0], a->ids[0][1], sizeof a->ids[0][0]) != 0;
                free(a);
            }
            close_model();
        }
    assert_int_equal(differ, 4 * (int)ARRAY_LEN(arrangements)); /* or nothing would be shown */
}

/* ---- images that a family does not take ---- */

static const struct {
    int64_t pictures;
    int height; /* more than the tower's */
    bool gone;  /* the last tower's */
    const char *says;
} refused[] = {
    { 1, 0, false, NULL },
    { 0, 0, false, "prompt 1: images | 1 to 1" },
    { 2, 0, false, "prompt 1: images | one: cog" },
    { 1, 1, false, "prompt 1: image 1 | " },
    { 1, 0, true, "| none |" },
};

static sheaf_status *show(void *self, sheaf__model *model)
{
    asked *a = self;
    sheaf__generate_options how = {
        .sampling = GREEDY, .max_new = NEW, .batch = 1, .load = look_at_one
    };
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, &model->schema->config);
    sheaf__picture *picture = sheaf__picture_room_like(NULL, 2, tower, towers);
    int32_t ids[2][NEW];
    sheaf__continuation loaded = { ids[0], 0 }, out = { ids[1], 0 };
    CHECK_OK(sheaf__generate(&loaded, model, &a->prompt[1], 1, &how));
    CHECK_OK(look_at_one(NULL, 0, picture, 1));
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        sheaf__picture list[2] = { picture[0], picture[1] };
        sheaf__prompt p = a->prompt[1];
        p.picture = list;
        p.pictures = refused[i].pictures;
        list[0].of[0].height += refused[i].height;
        if (refused[i].gone)
            list[0].of[towers - 1].pixels = NULL;
        how.load = refused[i].gone ? NULL : look_at_one; /* could give it */
        sheaf_status *st = sheaf__generate(&out, model, &p, 1, &how);
        if (refused[i].says == NULL) {
            CHECK_OK(st);
            CHECK_BYTES("a picture of the prompt's own", ids[1], ids[0], sizeof ids[0]);
        } else
            CHECK_FAILS(st, SHEAF_E_DATA, refused[i].says);
    }
    free(picture);
    return NULL;
}

TEST(test_generate__refuses_images_that_the_family_does_not_take)
{
    for (int agent = 0; agent < 2; agent++) {
        asked a;
        open_model(agent, 1, 4);
        ask(&a, true);
        CHECK_OK(on_ranks(1, NULL, SHEAF_F32, show, &a));
        close_model();
    }
}
