/* sets_test.c - which rows are trained on and which are held out, how many steps epochs are, and
 * what evaluations say of the best. */
#include "tests/byte_config.h"
#include "tests/tensors.h"

#include "train/run.h"
#include "train/sampler.h"
#include "train/sets.h"

enum { ROWS = 37 };

/* Row r has r + 1 bytes of text. */
static int make_rows(void **state)
{
    char text[ROWS * (ROWS + 20)] = "";
    if (make_scratch(state) != 0)
        return 1;
    for (int r = 0; r < ROWS; r++)
        sprintf(text + strlen(text), "{\"text\": \"%0*d\"}\n", r + 1, 0);
    put(at("rows.jsonl"), text);
    return 0;
}

static sheaf_train_options options_of(double split, uint64_t seed)
{
    sheaf_train_options o;
    sheaf_train_options_default(&o);
    o.data = at("rows.jsonl");
    o.eval_split = split;
    o.seed = seed;
    return o;
}

TEST(test_split__takes_each_row_once)
{
    static const struct {
        double share;
        int64_t held;
    } cases[] = { { .001, 1 }, { .25, 10 }, { .5, 19 }, { .97, 36 } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_train_options o = options_of(cases[i].share, 7);
        sheaf__sets s;
        int seen[ROWS] = { 0 };
        CHECK_OK(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL));
        assert_int_equal(sheaf__subset_rows(&s.eval), cases[i].held);
        assert_int_equal(sheaf__subset_rows(&s.train), ROWS - cases[i].held);
        for (int64_t r = 0; r < s.eval.rows; r++)
            seen[s.eval.row[r]]++;
        int64_t longest = 0;
        for (int64_t n = 0; n < s.train.rows; n++) { /* an epoch */
            const int64_t row = sheaf__subset_row(&s.train, n, 5, true);
            seen[row]++;
            longest = row > longest ? row : longest;
        }
        for (int r = 0; r < ROWS; r++)
            assert_int_equal(seen[r], 1);
        assert_int_equal(sheaf__subset_longest(&s.train),
                         longest + 3); /* bos, and bytes, and eos */
        sheaf__sets_close(&s);
    }
}

TEST(test_split__is_chosen_by_the_seed_alone)
{
    int64_t row[3][10];
    for (int i = 0; i < 3; i++) {
        sheaf_train_options o = options_of(.25, i == 2 ? 8 : 7);
        o.shuffle = i == 0;
        o.micro_batch = i + 1;
        sheaf__sets s;
        CHECK_OK(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL));
        memcpy(row[i], s.eval.row, sizeof row[i]);
        sheaf__sets_close(&s);
    }
    CHECK_BYTES("the same seed", row[1], row[0], sizeof row[0]);
    assert_true(memcmp(row[2], row[0], sizeof row[0]) != 0);
    static const int64_t frozen[] = { 1, 6, 10, 11, 12, 21, 22, 24, 27, 35 };
    for (size_t i = 0; i < ARRAY_LEN(frozen); i++)
        assert_int_equal(row[0][i], frozen[i]);
}

/* Held-out records are the same as without packing, and judged as they stand. */
TEST(test_split__comes_before_packing)
{
    sheaf_train_options o = options_of(.25, 7);
    sheaf__sets plain, packed;
    int seen[ROWS] = { 0 };
    CHECK_OK(sheaf__sets_open(&plain, &o, &byte_config, NULL, NULL));
    o.pack = true;
    o.seq = 60;
    CHECK_OK(sheaf__sets_open(&packed, &o, &byte_config, NULL, NULL));
    assert_int_equal(packed.eval.rows, plain.eval.rows);
    CHECK_BYTES("held out", packed.eval.row, plain.eval.row,
                (size_t)plain.eval.rows * sizeof *plain.eval.row);
    assert_true(!sheaf_data_is_packed(packed.eval.data) && sheaf_data_is_packed(packed.train.data));
    assert_string_equal(sheaf_data_hash(packed.train.data), sheaf_data_hash(plain.train.data));
    int64_t positions = 0, apart = 0;
    for (int64_t p = 0; p < sheaf__subset_rows(&packed.train); p++)
        for (int64_t i = 0; i < sheaf_data_parts(packed.train.data, p); i++) {
            const sheaf_data_part part = sheaf_data_part_of(packed.train.data, p, i, p, 7, false);
            seen[plain.train.row[part.sample]]++;
            positions += part.positions;
        }
    for (int64_t i = 0; i < plain.train.rows; i++) {
        assert_int_equal(seen[plain.train.row[i]], 1);
        apart += sheaf_data_used(plain.train.data, plain.train.row + i, 1);
    }
    assert_int_equal(positions, apart);
    sheaf__sets_close(&plain);
    sheaf__sets_close(&packed);
}

TEST(test_split__leaves_rows_on_both_sides)
{
    sheaf_train_options o = options_of(.99, 7);
    sheaf__sets s;
    CHECK_FAILS(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL), SHEAF_E_DATA, "no row is left");
    sheaf__sets_close(&s);
}

TEST(test_epochs__are_the_fewest_steps_that_read_the_rows)
{
    static const struct {
        double epochs;
        int64_t micro_batch, accumulate, steps;
    } cases[] = {
        { 1, 1, 1, 37 },         { 3, 1, 1, 111 },  { 1, 37, 1, 1 },    { 1, 5, 2, 4 },
        { 3, 5, 2, 12 },         { 0.5, 1, 1, 19 }, { 0.001, 1, 1, 1 }, { 1e-9, 8, 8, 1 },
        { 10.0 / 37, 1, 1, 10 }, /* 0.27027... * 37 is a little more than 10 in double, or less */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_train_options o = options_of(0, 7);
        o.epochs = cases[i].epochs;
        o.micro_batch = cases[i].micro_batch;
        o.accumulate = cases[i].accumulate;
        sheaf__sets s;
        CHECK_OK(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL));
        assert_int_equal(o.steps, cases[i].steps);
        o.epochs = 0;
        o.steps = 99;
        assert_int_equal(sheaf__subset_steps(&s.train, &o), 99);
        sheaf__sets_close(&s);
    }
    sheaf_train_options o = options_of(.25, 7); /* of the 27 that are left */
    o.epochs = 2;
    sheaf__sets s;
    CHECK_OK(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL));
    assert_int_equal(o.steps, 54);
    sheaf__sets_close(&s);
}

/* Of 37 rows; packed by 60 tokens they are 18. A warm-up of a step begins at a rate of 0. */
TEST(test_little_data__lower_what_yields)
{
    enum {
        P = SHEAF__YIELDS_PACK,
        A = SHEAF__YIELDS_ACCUMULATE,
        M = SHEAF__YIELDS_MICRO_BATCH,
        W = SHEAF__YIELDS_WARMUP
    };
    static const struct {
        unsigned yields;
        double epochs;
        bool pack;
        int64_t micro, accumulate, warmup; /* as given */
        bool packed;
        int64_t is_micro, is_accumulate, is_warmup, steps;
    } cases[] = {
        { 0, 1, true, 4, 4, 1, true, 4, 4, 1, 2 },
        { A, 1, false, 1, 16, 1, false, 1, 1, 1, 37 },
        { A, 3, false, 1, 16, 1, false, 1, 5, 1, 23 },
        { A, 30, false, 1, 16, 1, false, 1, 16, 1, 70 }, /* enough as it is */
        { A, .5, false, 4, 4, 1, false, 4, 1, 1, 5 },
        { A | M, .5, false, 4, 4, 1, false, 1, 1, 1, 19 },
        { A | M, 3, false, 4, 4, 1, false, 4, 1, 1, 28 },
        { M, 1, false, 2, 2, 1, false, 2, 2, 1, 10 }, /* the flag's accumulate is not 1 */
        { P | A, 1, true, 1, 16, 1, false, 1, 1, 1, 37 },
        { P | A, 2, true, 1, 16, 1, true, 1, 1, 1, 36 },
        { P, 1, true, 1, 16, 1, false, 1, 16, 1, 3 },
        { P | W, 1, true, 1, 16, 1, false, 1, 16, 0, 3 },
        { W, 1, false, 1, 37, 1, false, 1, 37, 0, 1 },
        { W, 2, false, 1, 16, 5, false, 1, 16, 5, 5 }, /* steps 2 to 5 learn */
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_train_options o = options_of(0, 7);
        sheaf__sets s;
        o.yields = cases[i].yields;
        o.epochs = cases[i].epochs;
        o.pack = cases[i].pack;
        o.seq = 60;
        o.micro_batch = cases[i].micro;
        o.accumulate = cases[i].accumulate;
        o.warmup = cases[i].warmup;
        CHECK_OK(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL));
        if (o.pack != cases[i].packed || sheaf_data_is_packed(s.train.data) != o.pack ||
            o.micro_batch != cases[i].is_micro || o.accumulate != cases[i].is_accumulate ||
            o.warmup != cases[i].is_warmup || o.steps != cases[i].steps)
            fail_msg("case %zu: %" PRId64 " steps of %" PRId64 " x %" PRId64, i, o.steps,
                     o.micro_batch, o.accumulate);
        sheaf__sets_close(&s);
    }
}

static sheaf_status *three_prompts(void *self, sheaf_data **out, int64_t *bytes,
                                   const sheaf_train_options *o, const sheaf_config *of,
                                   const sheaf_events *events)
{
    static const int32_t id[] = { 5 };
    static const sheaf_data_prompt one = { .ids = id, .n = 1 };
    (void)self, (void)o, (void)events, (void)bytes;
    return sheaf_data_prompts(&out[0], of, (sheaf_data_prompt[]){ one, one, one }, 3, NULL, NULL);
}

/* 4 completions of each of 3 prompts, and 2 steps learn from each. */
TEST(test_epochs__count_what_is_sampled)
{
    static const struct {
        int64_t accumulate, iterations, steps, warmup, is_warmup;
    } cases[] = { { 4, 0, 3, 2, 0 }, { 4, 2, 6, 2, 2 }, { 12, 1, 1, 1, 0 }, { 12, 2, 2, 3, 0 } };
    const sheaf__sampler sampler = { .open = three_prompts };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_train_options o = options_of(0, 7);
        sheaf__sets s;
        o.objective = (sheaf__objective_options){ .name = "grpo",
                                                  .group = { .reward = "exact",
                                                             .generations = 4,
                                                             .max_new = 4,
                                                             .iterations = cases[i].iterations } };
        o.yields = SHEAF__YIELDS_WARMUP;
        o.epochs = 1;
        o.micro_batch = 1;
        o.accumulate = cases[i].accumulate;
        o.warmup = cases[i].warmup;
        CHECK_OK(sheaf__sets_sample(&s, &o, &byte_config, &sampler, NULL));
        if (o.steps != cases[i].steps || o.warmup != cases[i].is_warmup)
            fail_msg("case %zu: %" PRId64 " steps, warm-up %" PRId64, i, o.steps, o.warmup);
        sheaf__sets_close(&s);
    }
}

/* Neither in the data nor in those of evaluations. */
TEST(test_reference__is_not_in_the_data_too)
{
    static const int64_t ids[] = { 5, 6 }, labels[] = { -100, 6 };
    static const tensor list[] = {
        { "chosen.input_ids", "I64", { 1, 2 }, ids },
        { "chosen.labels", "I64", { 1, 2 }, labels },
        { "rejected.input_ids", "I64", { 1, 2 }, ids },
        { "rejected.labels", "I64", { 1, 2 }, labels },
        { "ref_chosen_logps", "F32", { 1 }, NULL, -3 },
        { "ref_rejected_logps", "F32", { 1 }, NULL, -9 },
    };
    char *own = strdup(tensors_file(list, ARRAY_LEN(list)));
    for (int k = 0; k < 3; k++) {
        sheaf_train_options o = options_of(0, 7);
        sheaf__sets s;
        o.objective =
            (sheaf__objective_options){ .name = "dpo", .reference = k == 0 ? NULL : "base" };
        put(at("pairs.jsonl"), "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n");
        o.data = k == 1 ? own : at("pairs.jsonl");
        o.eval_data = k == 1 ? at("pairs.jsonl") : own;
        if (k == 0)
            CHECK_OK(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL));
        else
            CHECK_FAILS(sheaf__sets_open(&s, &o, &byte_config, NULL, NULL), SHEAF_E_ARG,
                        k == 1 ? "`reference` | none beside" : "`eval-data`: `reference` | none");
        sheaf__sets_close(&s);
    }
    free(own);
}

/* Groups may have any numbers: each lies in one step of 4, wherever its rows are in it. */
TEST(test_groups__lie_in_one_step)
{
    static const struct {
        int64_t group[12];
        const char *found;
    } cases[] = {
        { { 7, 7, 7, 7, 2, 9, 2, 9, 5, 5, 5, 5 }, NULL },
        { { 7, 7, 7, 7, 2, 2, 2, 2, 2, 5, 5, 5 }, "completions 5 and 9 in one group" },
        { { 7, 7, 9, 9, 2, 2, 2, 2, 5, 5, 5, 9 }, "completions 3 and 12 in one group" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[2000] = "";
        sheaf_train_options o = options_of(0, 7);
        sheaf__sets s;
        for (int k = 0; k < 12; k++)
            sprintf(text + strlen(text),
                    "{\"prompt_ids\": [1], \"completion_ids\": [2], \"reward\": 1, "
                    "\"group\": %d}\n",
                    (int)cases[i].group[k]);
        put(at("groups.jsonl"), text);
        o.data = at("groups.jsonl");
        o.objective.name = "grpo";
        o.micro_batch = 2;
        o.accumulate = 2;
        sheaf_status *st = sheaf__sets_open(&s, &o, &byte_config, NULL, NULL);
        if (cases[i].found == NULL)
            CHECK_OK(st);
        else
            CHECK_FAILS(st, SHEAF_E_DATA, cases[i].found);
        sheaf__sets_close(&s);
    }
}

/* transformers' EarlyStoppingCallback, and its Trainer's best metric, on the same losses. */
TEST(test_judged__best_and_patience)
{
    static const struct {
        double loss;
        bool best;
        int64_t worse;
    } told[] = {
        { NAN, false, 1 }, { 5, true, 0 },          { 5, false, 1 },
        { 4.95, true, 2 }, { 4.5, true, 0 },        { 4.45, true, 1 },
        { 9, false, 2 },   { -INFINITY, false, 3 }, { 4.3, true, 0 },
    };
    sheaf__eval_state j = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(told); i++) {
        assert_int_equal(sheaf__eval_state_add(&j, 10 * (int64_t)i + 10, told[i].loss, .1),
                         told[i].best);
        assert_int_equal(j.worse, told[i].worse);
        assert_int_equal(j.last, 10 * i + 10);
    }
    assert_true(j.best == 90 && j.best_loss == 4.3);
    sheaf_text text = { 0 };
    sheaf__eval_state_text(&text, &j);
    json_t *object = json_loads(text.at, 0, NULL);
    sheaf__eval_state again;
    sheaf__eval_state_read(&again, object);
    assert_true(again.last == 90 && again.best == 90 && again.best_loss == 4.3 && again.worse == 0);
    json_decref(object);
    sheaf__text_release(&text);
    /* a gain of min_delta itself is none, as abs(metric - best) > threshold has it */
    assert_true(sheaf__eval_state_add(&j, 100, 4.25, .0625) && j.worse == 1);
    assert_true(sheaf__eval_state_add(&j, 110, 4.1875, .0625) && j.worse == 2);
    assert_true(sheaf__eval_state_add(&j, 120, 4.0625, .0625) && j.worse == 0);
    sheaf__eval_state_read(&again, NULL);
    assert_true(again.last == 0 && again.best == 0 && again.worse == 0);
}

FIXTURE(make_rows, remove_scratch);
