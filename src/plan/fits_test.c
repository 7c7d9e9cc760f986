/* fits_test.c - what needs more memory than is left is not begun, and what needs no more is. */
#include <sys/resource.h>

#include "tests/made_sat.h"

#include "infer/generate.h"
#include "models/open.h"
#include "models/team.h"
#include "plan/fits.h"
#include "tests/devices/checked.h"
#include "tests/heard.h"
#include "tests/sources.h"

static struct {
    sheaf__opened opened;
    sheaf_lora_options fresh;
    sheaf_train_options o;
    sheaf_data *data;
    sheaf__placement place;
} t;

static int open_all(void **state)
{
    if (make_scratch(state) != 0)
        return 1;
    const char *path = in_sources("tests/data/configs/mini.json");
    sheaf_train_options_default(&t.o);
    t.o.lora_targets = "all-linear";
    t.o.threads = 1;
    t.o.micro_batch = 2;
    t.o.steps = 1;
    CHECK_OK(sheaf_train_options_lora(&t.fresh, &t.o));
    CHECK_OK(sheaf__open_model(
        &t.opened, &(sheaf__open_options){
                       .config = path, .config_only = true, .slices = 8, .fresh = &t.fresh }));
    put(at("data.jsonl"), "{\"text\": \"abc\"}\n{\"text\": \"abcdefghij\"}\n{\"text\": \"a\"}\n");
    CHECK_OK(sheaf_data_open(&t.data, at("data.jsonl"),
                             &(sheaf_data_options){ .config = &t.opened.config }));
    CHECK_OK(sheaf__placement_read(&t.place, NULL, t.opened.schema));
    return 0;
}

static int close_all(void **state)
{
    sheaf_data_close(t.data);
    sheaf_lora_options_release(&t.fresh);
    sheaf__opened_close(&t.opened);
    return remove_scratch(state);
}

static sheaf_status *train_with(const sheaf__memory *memory, bool force, const sheaf_events *events)
{
    const sheaf__job job = { .options = &t.o,
                             .schema = t.opened.schema,
                             .lora = t.opened.lora,
                             .train = { .data = t.data },
                             .seq = sheaf_data_longest(t.data),
                             .data_bytes = sheaf_data_memory(t.data) };
    return sheaf_fits_train(
        &job, &(sheaf_fits_options){ .force = force, .events = events, .memory = memory });
}

static sheaf_plan_generation asked(int64_t prompt, int64_t seq)
{
    return (sheaf_plan_generation){ .schema = t.opened.schema,
                                    .place = &t.place,
                                    .tp = 2,
                                    .threads = 1,
                                    .dtype = SHEAF_F32,
                                    .batch = 2,
                                    .seq = seq,
                                    .prompt = prompt };
}

static sheaf_status *answer_with(const sheaf__memory *memory)
{
    const sheaf_plan_generation g = asked(30, 40);
    return sheaf_fits_generate(&g, &(sheaf_fits_options){ .memory = memory });
}

static sheaf_status *evaluate_with(const sheaf__memory *memory)
{
    const sheaf_plan_generation g = asked(0, 12);
    return sheaf_fits_evaluate(&g, t.data, false, &(sheaf_fits_options){ .memory = memory });
}

static int64_t needed_by(sheaf_status *(*with)(const sheaf__memory *))
{
    sheaf_plan plan;
    if (with == answer_with) {
        const sheaf_plan_generation g = asked(30, 40);
        CHECK_OK(sheaf_plan_generate(&plan, &g));
        return (int64_t)plan.process;
    }
    const sheaf_plan_generation g = asked(0, 12);
    CHECK_OK(sheaf_plan_evaluate(&plan, &g, t.data, false));
    return (int64_t)plan.process + sheaf_data_memory(t.data);
}

static sheaf_status *train_plainly(const sheaf__memory *memory)
{
    return train_with(memory, false, NULL);
}

TEST(test_fits__what_is_left_is_enough_or_not)
{
    sheaf__memory m = { .left = INT64_MAX };
    sheaf_plan plan;
    const sheaf__job job = { .options = &t.o,
                             .schema = t.opened.schema,
                             .lora = t.opened.lora,
                             .train = { .data = t.data },
                             .seq = 12 };
    CHECK_OK(sheaf_plan_train(&plan, &job, (size_t)sheaf_data_memory(t.data)));
    sheaf_status *(*const with[])(const sheaf__memory *) = { train_plainly, answer_with,
                                                             evaluate_with };
    static const char *const what[] = { "memory for this run", "memory for these answers",
                                        "memory for this evaluation" };
    for (int i = 0; i < 3; i++) {
        const int64_t need = i == 0 ? (int64_t)plan.process : needed_by(with[i]);
        m = (sheaf__memory){ .left = INT64_MAX };
        CHECK_OK(with[i](&m)); /* nothing is known */
        m.left = need;
        CHECK_OK(with[i](&m));
        m.left = need - 1;
        CHECK_FAILS(with[i](&m), SHEAF_E_MEMORY, what[i]);
        CHECK_FAILS(with[i](&m), SHEAF_E_MEMORY, "the available memory of this machine");
        m.held = 1; /* memory held already is not needed again */
        CHECK_OK(with[i](&m));
        m = (sheaf__memory){ .left = 5 << 20, .by_group = true };
        CHECK_FAILS(with[i](&m), SHEAF_E_MEMORY,
                    "at most 5.00 MiB, the limit of its control group");
    }
}

/* A model of 16 bits an element gets no advice to use them. */
TEST(test_fits__what_is_so_already_is_no_advice)
{
    const sheaf__memory m = { .left = 5 << 20 };
    const sheaf_train_options kept = t.o;
    sheaf_plan_generation g = asked(30, 40);
    t.o.dtype = g.dtype = SHEAF_BF16;
    CHECK_FAILS(train_with(&m, false, NULL), SHEAF_E_MEMORY, "weights | a machine with more");
    CHECK_FAILS(sheaf_fits_generate(&g, &(sheaf_fits_options){ .memory = &m }), SHEAF_E_MEMORY,
                "weights | a machine with more");
    t.o.micro_batch = 1000;
    CHECK_FAILS(train_with(&m, false, NULL), SHEAF_E_MEMORY, "shorter rows or `checkpointing`;");
    g.batch = 10000;
    CHECK_FAILS(sheaf_fits_generate(&g, &(sheaf_fits_options){ .memory = &m }), SHEAF_E_MEMORY,
                "or shorter ones (`max-new`);");
    t.o = kept;
}

/* A share of the ranks is what the machine must hold. */
TEST(test_fits__of_ranks_elsewhere_nothing_is_needed)
{
    sheaf_plan plan;
    sheaf_plan_generation g = asked(30, 40);
    g.tp = 3;
    CHECK_OK(sheaf_plan_generate(&plan, &g));
    sheaf__memory m = { .left = (int64_t)(plan.process / 4) + 1 };
    const sheaf_fits_options how = { .memory = &m, .share = 0.25 };
    CHECK_OK(sheaf_fits_generate(&g, &how));
    m.left -= 2;
    CHECK_FAILS(sheaf_fits_generate(&g, &how), SHEAF_E_MEMORY, "memory for these answers");
}

TEST(test_fits__force_makes_it_a_warning)
{
    const sheaf__memory m = { .left = 5 << 20 };
    CHECK_OK(train_with(&m, true, hear_warnings()));
    assert_non_null(strstr(
        heard,
        "the available memory of this machine is 5.00 MiB; it starts all the same (`force`)"));
}

/* A run holds its planned memory from the start, unless it was forced. */
TEST(test_fits__tells_what_each_rank_takes)
{
    const sheaf_train_options kept = t.o;
    const sheaf__memory m = { .left = INT64_MAX }, little = { .left = 5 << 20 };
    size_t footprint[SHEAF_MAX_SLICES] = { 0 };
    sheaf_plan plan;
    sheaf__job job = {
        .options = &t.o, .schema = t.opened.schema, .lora = t.opened.lora, .seq = 150
    };
    t.o.tp = 2;
    CHECK_OK(sheaf_plan_train(&plan, &job, 0));
    sheaf_fits_options how = { .memory = &little, .footprint = footprint };
    CHECK_FAILS(sheaf_fits_train(&job, &how), SHEAF_E_MEMORY, "memory for this run");
    how = (sheaf_fits_options){ .memory = &m, .force = true, .footprint = footprint };
    CHECK_OK(sheaf_fits_train(&job, &how));
    for (int r = 0; r < SHEAF_MAX_SLICES; r++)
        assert_int_equal(footprint[r], 0);
    how.force = false;
    CHECK_OK(sheaf_fits_train(&job, &how));
    for (int r = 0; r < SHEAF_MAX_SLICES; r++)
        assert_int_equal(footprint[r], r < 2 ? plan.rank[r].peak : 0);
    t.o = kept;
}

TEST(test_fits__both_sides_of_pairs_are_kept_where_they_fit)
{
    const sheaf_train_options was = t.o;
    sheaf__memory m = { .left = INT64_MAX };
    size_t footprint[SHEAF_MAX_SLICES] = { 0 };
    sheaf_fits_options how = { .memory = &m, .footprint = footprint };
    sheaf_plan one, both;
    sheaf__job job = {
        .options = &t.o, .schema = t.opened.schema, .lora = t.opened.lora, .seq = 150
    };
    assert_false(sheaf_fits_pairs(&job, &how)); /* there are none */
    job.objective.pairs = true;
    CHECK_OK(sheaf_plan_train(&one, &job, 0));
    t.o.kept = SHEAF__KEPT_PAIRS;
    CHECK_OK(sheaf_plan_train(&both, &job, 0));
    t.o.kept = SHEAF__KEPT_ALL;
    assert_true(both.process > one.process);
    assert_false(sheaf_fits_pairs(&job, &how)); /* it is not known */
    m.left = (int64_t)(both.process / 3 * 4 + 4);
    t.o.device = "apart";
    assert_false(sheaf_fits_pairs(&job, &how));
    t.o.device = was.device;
    m.left -= 8;
    assert_false(sheaf_fits_pairs(&job, &how));
    assert_int_equal(footprint[0], 0);
    m.left += 8;
    assert_true(sheaf_fits_pairs(&job, &how));
    assert_int_equal(footprint[0], both.rank[0].peak);
    t.o.kept_given = true;
    assert_false(sheaf_fits_pairs(&job, &how));
    t.o.kept_given = false;
    t.o.transport = SHEAF_TRANSPORT_MPI;
    assert_false(sheaf_fits_pairs(&job, &how));
    t.o.transport = SHEAF_TRANSPORT_THREADS;
    t.o.offload = "activations";
    assert_false(sheaf_fits_pairs(&job, &how));
    t.o = was;
}

/* A checkpoint and the adapter, 16 bytes for each element that is trained. */
TEST(test_fits__room_on_the_disk)
{
    const sheaf__job job = { .options = &t.o,
                             .schema = t.opened.schema,
                             .lora = t.opened.lora,
                             .train = { .data = t.data },
                             .seq = sheaf_data_longest(t.data) };
    const char *kept = t.o.out;
    sheaf_plan plan;
    CHECK_OK(sheaf_plan_train(&plan, &job, 0));
    sheaf_fits_options how = { .disk = 16.0 * (double)plan.trained };
    t.o.out = at("not/yet/there");
    CHECK_OK(sheaf_fits_train(&job, &how));
    how.disk -= 1;
    CHECK_FAILS(sheaf_fits_train(&job, &how), SHEAF_E_IO, "room on its disk");
    how.force = true;
    CHECK_OK(sheaf_fits_train(&job, &how));
    how = (sheaf_fits_options){ 0 };
    CHECK_OK(sheaf_fits_train(&job, &how)); /* the free memory here */
    t.o.out = kept;
}

/* Answers are not read at once: a long answer needs its cache, not the activations of a long
 * prompt. */
TEST(test_fits__a_long_answer_needs_less_than_a_long_prompt)
{
    sheaf_plan answer, prompt, all;
    sheaf_plan_generation g = asked(1, 4001);
    CHECK_OK(sheaf_plan_generate(&answer, &g));
    g = asked(4000, 4001);
    CHECK_OK(sheaf_plan_generate(&prompt, &g));
    g = asked(0, 4001);
    CHECK_OK(sheaf_plan_generate(&all, &g));
    assert_true(answer.process < prompt.process && prompt.process <= all.process);
    assert_true(answer.rank[0].bytes[SHEAF_MEM_CACHE] == prompt.rank[0].bytes[SHEAF_MEM_CACHE]);
}

/* Keys and values lie in the type of the run. */
TEST(test_fits__a_cache_of_16_bits_is_half_of_one_of_32)
{
    sheaf_plan wide, narrow;
    sheaf_plan_generation g = asked(1, 4096);
    CHECK_OK(sheaf_plan_generate(&wide, &g));
    for (int i = 0; i < 2; i++) {
        g.dtype = i == 0 ? SHEAF_BF16 : SHEAF_F16;
        CHECK_OK(sheaf_plan_generate(&narrow, &g));
        assert_true(2 * narrow.rank[0].bytes[SHEAF_MEM_CACHE] ==
                    wide.rank[0].bytes[SHEAF_MEM_CACHE]);
    }
}

/* More than any machine has is found out at once, and is no overflow. */
TEST(test_fits__millions_of_rows_are_counted_at_once)
{
    sheaf__memory m = { .left = INT64_C(1) << 50 };
    const sheaf_train_options kept = t.o;
    t.o.micro_batch = 1000000;
    t.o.accumulate = 1000000;
    CHECK_OK(train_with(&m, false, NULL));
    sheaf_plan plan;
    const sheaf__job job = {
        .options = &t.o, .schema = t.opened.schema, .lora = t.opened.lora, .seq = 100000000
    };
    CHECK_FAILS(sheaf_plan_train(&plan, &job, 0), SHEAF_E_MEMORY, "allocating");
    t.o = kept;
}

/* Lists of their positions are counted, not made: one of four bytes a patch would be 100 MiB. */
TEST(test_fits__any_number_of_pictures_is_counted)
{
    static const char *const configs[] = { "cogvlm-224", "minicpmv-2.0", "minicpmv-2.6",
                                           "omnilmm-12b" };
    for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
        sheaf__opened opened;
        sheaf_plan plan;
        sheaf_train_options o = t.o;
        struct rusage before, after;
        const char *path = in_sources("tests/data/configs/%s.json", configs[i]);
        CHECK_OK(sheaf__open_model(
            &opened, &(sheaf__open_options){
                         .config = path, .config_only = true, .slices = 8, .fresh = &t.fresh }));
        const sheaf__job job = {
            .options = &o, .schema = opened.schema, .lora = opened.lora, .seq = 2048
        };
        CHECK_OK(sheaf_plan_train(&plan, &job, 0));
        o.micro_batch = 100000;
        getrusage(RUSAGE_SELF, &before);
        CHECK_OK(sheaf_plan_train(&plan, &job, 0));
        getrusage(RUSAGE_SELF, &after);
        if (after.ru_maxrss - before.ru_maxrss > 50 << 10)
            fail_msg("%s: %ld KiB more", configs[i], after.ru_maxrss - before.ru_maxrss);
        sheaf__opened_close(&opened);
    }
}

/* The tape of one micro-batch and one block of the head stand for all that are alike. */
TEST(test_fits__operations_are_those_of_every_micro_batch_and_block)
{
    sheaf_plan one, many;
    const sheaf_train_options kept = t.o;
    sheaf__job job = {
        .options = &t.o, .schema = t.opened.schema, .lora = t.opened.lora, .seq = 150
    };
    t.o.micro_batch = 8; /* 1200 rows: four blocks and a rest */
    t.o.tp = 2;
    CHECK_OK(sheaf_plan_train(&one, &job, 0));
    t.o.accumulate = 23;
    CHECK_OK(sheaf_plan_train(&many, &job, 0));
    for (int r = 0; r < 2; r++) {
        CHECK_NEAR("operations", many.rank[r].flops, 23 * one.rank[r].flops,
                   1e-12 * many.rank[r].flops);
        assert_true(many.rank[r].sent > 22.9 * one.rank[r].sent &&
                    many.rank[r].sent < 23.1 * one.rank[r].sent);
    }
    t.o.accumulate = 1;
    t.o.tp = 1;
    sheaf_plan eight;
    job.seq = 64;
    t.o.micro_batch = 4; /* one block */
    CHECK_OK(sheaf_plan_train(&one, &job, 0));
    t.o.micro_batch = 32; /* eight: all products have eight times the rows */
    CHECK_OK(sheaf_plan_train(&eight, &job, 0));
    CHECK_NEAR("operations", eight.rank[0].flops, 8 * one.rank[0].flops,
               1e-12 * eight.rank[0].flops);
    t.o = kept;
}

/* ---- what a generation takes ---- */

enum { SEQUENCES = 3, PROMPT = 30, ANSWER = 10, PATCHES = 4 };

typedef struct taken {
    bool looks;
    size_t bytes[2][SHEAF_MEM_KINDS]; /* by rank, when it had most */
} taken;

static sheaf_status *look(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n)
{
    for (int t = 0; t < 2 && picture->of[t].pixels != NULL; t++)
        memset(picture->of[t].pixels, 0,
               sizeof(float) * 3 * (size_t)(picture->of[t].width * picture->of[t].height));
    return NULL;
}

static sheaf_status *answer_three(void *self, sheaf__model *model)
{
    taken *to = self;
    int32_t ids[SEQUENCES][PROMPT] = { 0 }, said[SEQUENCES][ANSWER];
    uint8_t embed[PROMPT] = { 0 }, expert[PROMPT] = { 0 };
    sheaf__prompt prompt[SEQUENCES];
    sheaf__continuation out[SEQUENCES];
    memset(embed + 1, 1, PATCHES + 2);
    memset(expert + 1, 1, PATCHES + 1);
    for (int i = 0; i < SEQUENCES; i++) {
        ids[i][0] = i + 1; /* no prompt is another's */
        prompt[i] = (sheaf__prompt){ .ids = ids[i],
                                     .n = PROMPT - i,
                                     .embed = to->looks ? embed : NULL,
                                     .expert = to->looks ? expert : NULL };
        out[i] = (sheaf__continuation){ said[i], 0 };
    }
    sheaf_status *st = sheaf__generate(
        out, model, prompt, SEQUENCES,
        &(sheaf__generate_options){
            .sampling = { .greedy = true }, .max_new = ANSWER, .batch = SEQUENCES, .load = look });
    const sheaf__device *device = model->context->device;
    memcpy(to->bytes[model->context->rank], device->at_peak, sizeof to->bytes[0]);
    return st;
}

static void check_generation(const sheaf__opened *opened, bool looks)
{
    sheaf__placement place;
    sheaf_plan plan;
    taken got = { .looks = looks };
    CHECK_OK(sheaf__placement_read(&place, NULL, opened->schema));
    for (int k = 0; k < 4; k++) {
        const int tp = 1 + k % 2;
        const char *device = k < 2 ? "cpu" : "checked";
        CHECK_OK(sheaf__team_run(opened,
                                 &(sheaf__team_options){ .ranks = tp,
                                                         .threads = tp,
                                                         .device = device,
                                                         .dtype = SHEAF_F32,
                                                         .positions = PROMPT + ANSWER,
                                                         .sequences = SEQUENCES },
                                 answer_three, &got));
        CHECK_OK(sheaf_plan_generate(
            &plan, &(sheaf_plan_generation){
                       .schema = opened->schema,
                       .place = &place,
                       .tp = tp,
                       .threads = tp,
                       .device = device,
                       .dtype = SHEAF_F32,
                       .batch = SEQUENCES,
                       .prompt = PROMPT,
                       .pictures = sheaf__counts_ordinary(&opened->config, looks ? SEQUENCES : 0),
                       .seq = PROMPT + ANSWER }));
        for (int r = 0; r < tp; r++)
            for (int kind = 0; kind < SHEAF_MEM_KINDS; kind++)
                if (got.bytes[r][kind] != plan.rank[r].bytes[kind])
                    fail_msg("%s, rank %d of %d, %s: %zu bytes, planned %zu", device, r, tp,
                             sheaf__memory_name((sheaf_memory)kind), got.bytes[r][kind],
                             plan.rank[r].bytes[kind]);
    }
}

TEST(test_fits__a_generation_takes_what_was_planned)
{
    sheaf__opened opened;
    const char *path = in_sources("tests/data/llama/tiny_llama/hf");
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = path, .slices = 8 }));
    check_generation(&opened, false);
    sheaf__opened_close(&opened);
    for (int agent = 0; agent < 2; agent++) {
        made m = { .agent = agent, .layers = 2 };
        sheaf_schema *schema;
        made_init(&m);
        CHECK_OK(sheaf_schema_new(&schema, &m.config, 4));
        check_generation(
            &(sheaf__opened){
                .config = m.config, .schema = schema, .base = &m.source, .weights = &m.source },
            true);
        sheaf_schema_free(schema);
        made_release(&m);
    }
}

static sheaf_status *plenty(size_t *bytes, int unit)
{
    (void)unit;
    *bytes = SIZE_MAX / 2;
    return NULL;
}

static const sheaf__device_class apart = { .name = "apart", .left = plenty };
const sheaf__device_class *const sheaf__more_devices[] = { &checked_device, &apart, NULL };

FIXTURE(open_all, close_all);
