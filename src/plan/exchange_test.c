/* exchange_test.c - what a step exchanges is what the plan says, byte for byte and call for call:
 * the counters of real ranks, that share memory and that pass messages, against the same step on
 * the dry device. SHEAF_SOAK=1 takes all settings, else a cover. */
#include <unistd.h>

#include "checkpoint/tools/init.h"
#include "comm/grid.h"
#include "models/open.h"
#include "plan/plan.h"
#include "tests/golden.h"
#include "tests/stored.h"
#include "tests/sources.h"
#include "train/usage.h"
#include "train/train.h"

enum { SLICES = 8, ROWS = 7, LENGTH = 23, STEPS = 2, MAX_RANKS = SLICES };

/* The vocabularies are uneven over eight slices; rows differ in length. */
static const struct {
    const char *name, *config; /* NULL: the one below, or a recorded model */
} families[] = {
    { "llama", NULL },
    { "qwen3", "tests/data/families/qwen3/hf/config.json" },
    { "mixtral", "tests/data/families/mixtral/hf/config.json" },
    { "gemma3", "tests/data/families/gemma3/hf/config.json" },
    { "olmo2", "tests/data/families/olmo2/hf/config.json" },
    { "phi3", "tests/data/families/phi3/hf/config.json" },
    { "cogagent", NULL },
    { "cogvlm", NULL },
};

static const char llama[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"attention_bias\": false, \"mlp_bias\": false, "
    "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": 0, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
    "\"max_position_embeddings\": 64, \"initializer_range\": 0.1, \"rope_theta\": 10000.0, \"dtype\": \"float32\", \"head_dim\": 4, "
    "\"hidden_size\": 24, \"intermediate_size\": 43, \"num_attention_heads\": 6, \"num_key_value_heads\": 3, "
    "\"num_hidden_layers\": 2, \"vocab_size\": 259, \"tie_word_embeddings\": false}\n";

/* Rows of 5 to 23 tokens, of which the first few have no label. */
static void make_data(const char *path, int vocab)
{
    static const int64_t shape[] = { ROWS, LENGTH };
    made_tensors made = { .count = 0 };
    int32_t mask[ROWS * LENGTH], ids[ROWS * LENGTH], labels[ROWS * LENGTH];
    for (int i = 0; i < ROWS * LENGTH; i++) {
        const int row = i / LENGTH, t = i % LENGTH;
        mask[i] = t < 5 + row * 18 / (ROWS - 1);
        ids[i] = mask[i] ? 3 + (i * i * 7 + row) % (vocab - 3) : 0;
        labels[i] = mask[i] && t > row ? ids[i] : -100;
    }
    made_add(&made, "attention_mask", SHEAF_I32, 2, shape, mask);
    made_add(&made, "input_ids", SHEAF_I32, 2, shape, ids);
    made_add(&made, "labels", SHEAF_I32, 2, shape, labels);
    made_write(&made, path);
}

/* A run as sheaf_train() makes it. */
typedef struct asked {
    char name[200];
    sheaf_train_options o;
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
    sheaf__sets sets;
    sheaf__job job;
    sheaf__counters counted[MAX_RANKS][STEPS][2]; /* of each step: in its group, among its peers */
} asked;

static void open_asked(asked *a)
{
    sheaf_train_options *o = &a->o;
    const bool lora = o->method == SHEAF_METHOD_LORA;
    if (lora)
        CHECK_OK(sheaf_train_options_lora(&a->fresh, o));
    CHECK_OK(
        sheaf__open_model(&a->opened, &(sheaf__open_options){ .model = o->model,
                                                              .slices = SLICES,
                                                              .for_training = true,
                                                              .fresh = lora ? &a->fresh : NULL }));
    CHECK_OK(sheaf__select(&a->selection, a->opened.schema, a->opened.lora, o, NULL));
    if (a->opened.lora != NULL)
        CHECK_OK(
            sheaf_lora_save_also(a->opened.lora, a->opened.schema, sheaf__selected, &a->selection));
    CHECK_OK(sheaf__sets_open(&a->sets, o, &a->opened.config, NULL, NULL));
    a->job = (sheaf__job){ .options = o,
                           .schema = a->opened.schema,
                           .lora = a->opened.lora,
                           .selection = &a->selection,
                           .train = a->sets.train,
                           .seq = sheaf__subset_longest(&a->sets.train) };
}

static void close_asked(asked *a)
{
    sheaf__sets_close(&a->sets);
    sheaf__selection_release(&a->selection);
    sheaf_lora_options_release(&a->fresh);
    sheaf__opened_close(&a->opened);
}

static sheaf_status *train_rank(void *arg, const sheaf__grid *grid)
{
    asked *a = arg;
    const int me = sheaf_comm_rank(grid->all);
    sheaf_comm *const comm[2] = { grid->group, grid->peers };
    sheaf__rank rank = { 0 };
    sheaf__job job = a->job;
    job.base = a->opened.weights;
    sheaf_status *st = sheaf__rank_open(&rank, grid, me, &job);
    if (grid->group != NULL)
        st = sheaf_comm_agree(grid->group, st);
    if (grid->peers != NULL)
        st = sheaf_comm_agree(grid->peers, st);
    for (int64_t done = 0; done < STEPS && st == NULL; done++) {
        sheaf__step_result unused;
        for (int i = 0; i < 2; i++)
            if (comm[i] != NULL)
                *sheaf_comm_counters(comm[i]) = (sheaf__counters){ 0 };
        st = sheaf__stepper_run(&unused, rank.stepper, done, 1e-3);
        for (int i = 0; i < 2; i++)
            if (comm[i] != NULL)
                a->counted[me][done][i] = *sheaf_comm_counters(comm[i]);
    }
    sheaf__rank_close(&rank);
    return st;
}

/* Bytes sent are received, each by some rank. */
static void compare_peers(const asked *a, int world, int64_t done)
{
    for (int i = 0; i < 2; i++) {
        const sheaf__counters *mine = &a->counted[world][done][i];
        const sheaf__count all = sheaf__counters_all(mine);
        const int n = i == 0 ? a->o.tp : a->o.dp, me = i == 0 ? world % n : world / a->o.tp;
        uint64_t to = 0, from = 0;
        for (int p = 0; p < n; p++) {
            const int other = i == 0 ? world - me + p : p * a->o.tp + world % a->o.tp;
            to += mine->to[p];
            from += mine->from[p];
            assert_true(mine->to[p] == a->counted[other][done][i].from[me]);
        }
        assert_true(to == all.sent && from == all.received);
        assert_true((all.sent > 0) == (n > 1));
    }
}

/* Which rows an expert has a plan does not know, only how many all have together. What one rank
 * sends of them depends on how they fall, as it has a share of each exchange. */
static bool is_bound(const asked *a)
{
    return strncmp(a->name, "mixtral", 7) == 0;
}

static bool as_planned(const sheaf__count *real, const sheaf__count *want, bool bound,
                       bool messages)
{
    if (bound)
        return real->calls <= want->calls && real->sent <= want->sent &&
               real->received <= want->received && (want->sent == 0 || real->sent > 0);
    return real->calls == want->calls && real->sent == want->sent &&
           real->received == want->received && (!messages || real->exchanges == want->exchanges);
}

/* Of ranks [first, first + n) together. Messages need more exchanges where ranks that share memory
 * sum in place. */
static void compare(const asked *a, int first, int n, int64_t done, bool messages)
{
    sheaf__count plan[SHEAF__TRAFFICS], wants[SHEAF__TRAFFICS] = { 0 },
                                        reals[SHEAF__TRAFFICS] = { 0 };
    for (int world = first; world < first + n; world++) {
        CHECK_OK(sheaf_plan_step(plan, NULL, NULL, &a->job, world, done));
        for (int t = 0; t < SHEAF__TRAFFICS; t++) {
            sheaf__count_add(&wants[t], &plan[t]);
            for (int i = 0; i < 2; i++)
                sheaf__count_add(&reals[t], &a->counted[world][done][i].of[t]);
        }
        compare_peers(a, world, done);
    }
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        const sheaf__count *want = &wants[t], real = reals[t];
        if (!as_planned(&real, want, is_bound(a), messages))
            fail_msg("%s, ranks from %d, step %d, %s: %llu calls (%llu exchanges), %llu bytes "
                     "sent, %llu received; planned %llu (%llu), %llu, %llu",
                     a->name, first, (int)done + 1, sheaf__traffic_name((sheaf__traffic)t),
                     (unsigned long long)real.calls, (unsigned long long)real.exchanges,
                     (unsigned long long)real.sent, (unsigned long long)real.received,
                     (unsigned long long)want->calls, (unsigned long long)want->exchanges,
                     (unsigned long long)want->sent, (unsigned long long)want->received);
    }
}

static bool recorded(const char *family)
{
    return strncmp(family, "cog", 3) == 0;
}

static void ask(asked *a, const char *family, sheaf_method method, int tp, int dp, bool again,
                int64_t accumulate)
{
    static const char *const methods[] = {
        [SHEAF_METHOD_LORA] = "lora", [SHEAF_METHOD_HEAD] = "head", [SHEAF_METHOD_FULL] = "full"
    };
    const char *model = textf(recorded(family) ? "%s/mp1" : "model-%s", family);
    const char *data =
        textf(recorded(family) ? "%s/inputs.safetensors" : "data-%s.safetensors", family);
    snprintf(a->name, sizeof a->name, "%s, %s, T = %d, D = %d%s, %d micro-batches", family,
             methods[method], tp, dp, again ? ", checkpointing" : "", (int)accumulate);
    sheaf_train_options_default(&a->o);
    a->o.model = recorded(family) ? golden(model) : at(model);
    a->o.data = recorded(family) ? golden(data) : at(data);
    a->o.method = method;
    a->o.slices = SLICES;
    a->o.tp = tp;
    a->o.dp = dp;
    a->o.threads = tp * dp;
    a->o.accumulators = dp == 1 ? 0 : 4;
    a->o.kept = again ? SHEAF__KEPT_NONE : SHEAF__KEPT_ALL;
    a->o.micro_batch = 2;
    a->o.accumulate = accumulate;
    a->o.steps = STEPS;
    a->o.lora_rank = 3;
    a->o.lora_targets = "all-linear";
    /* rows are divided by blocks then, of which dA is a sum */
    a->o.train = method == SHEAF_METHOD_LORA && again ? "*layernorm*" : NULL;
    a->o.seed = 3;
}

static void try(const char *family, sheaf_method method, int tp, int dp, bool again,
                int64_t accumulate)
{
    asked *a = room(sizeof *a);
    assert_non_null(a);
    ask(a, family, method, tp, dp, again, accumulate);
    open_asked(a);
    const int together = is_bound(a) ? tp * dp : 1;
    for (int messages = 0; messages < 2; messages++) {
        CHECK_OK(sheaf__grid_run(
            &(sheaf__grid_options){ .groups = dp, .ranks = tp, .messages = messages }, train_rank,
            a));
        for (int r = 0; r < tp * dp; r += together)
            for (int64_t done = 0; done < STEPS; done++)
                compare(a, r, together, done, messages);
    }
    close_asked(a);
}

static int make_sources(void **state)
{
    if (make_scratch(state) != 0)
        return 1;
    put(at("llama.json"), llama);
    for (size_t f = 0; f < ARRAY_LEN(families); f++) {
        sheaf_weights_init_report report;
        sheaf_config config;
        const char *spec =
            families[f].config == NULL ? at("llama.json") : in_sources("%s", families[f].config);
        if (recorded(families[f].name))
            continue;
        const char *model = textf("model-%s", families[f].name);
        const char *data = textf("data-%s.safetensors", families[f].name);
        CHECK_OK(sheaf_init(
            &report, &(sheaf_weights_init_options){ .spec = spec, .dst = at(model), .seed = 5 }));
        CHECK_OK(sheaf_config_read(&config, spec));
        make_data(at(data), (int)config.vocab);
        sheaf_config_release(&config);
    }
    return 0;
}

/* D divides the accumulators. */
TEST(test_exchange__is_what_the_plan_says)
{
    const bool all = getenv("SHEAF_SOAK") != NULL;
    static const sheaf_method methods[] = { SHEAF_METHOD_LORA, SHEAF_METHOD_HEAD,
                                            SHEAF_METHOD_FULL };
    int i = 0;
    for (int f = 0; f < (int)ARRAY_LEN(families); f++)
        for (int m = 0; m < 3; m++)
            for (int dp = 1; dp <= 4; dp *= 2)
                for (int tp = 1; tp * dp <= MAX_RANKS; tp++)
                    for (int again = 0; again < 2; again++, i++)
                        if ((all || i % (23 * every(5)) == f) &&
                            (strcmp(families[f].name, "cogvlm") != 0 || golden_is_full()))
                            try(families[f].name, methods[m], tp, dp, again, tp % 2 == 0 ? 5 : 4);
}

/* ---- what a run tells ---- */

typedef struct told {
    int64_t steps;
    int ranks;
    sheaf_event_rank sum[MAX_RANKS];
    uint64_t sent[STEPS][MAX_RANKS];
} told;

static void hear(void *self, const sheaf_event *event)
{
    told *t = self;
    if (event->kind != SHEAF_EVENT_STEP)
        return;
    assert_int_equal(event->ranks, t->ranks);
    assert_true(t->steps < STEPS);
    for (int r = 0; r < event->ranks; r++) {
        const sheaf_event_rank *one = &event->rank[r];
        const double all = one->compute + one->wait + one->exchange + one->read;
        assert_true(one->compute > 0 && one->wait >= 0 && one->exchange >= 0 && one->read > 0);
        /* ranks end a step together, but for the update */
        assert_true(r > 0 || all <= event->step.seconds);
        assert_true(one->memory > 0 && one->process > 0);
        assert_true((one->sent > 0) == (t->ranks > 1));
        t->sent[t->steps][r] = one->sent;
        t->sum[r].compute += one->compute;
        t->sum[r].sent += one->sent;
    }
    t->steps++;
}

TEST(test_run__tells_of_every_rank_what_the_plan_says)
{
    static const struct {
        int tp, dp;
    } grids[] = { { 1, 1 }, { 3, 1 }, { 1, 2 }, { 2, 2 } };
    for (size_t i = 0; i < ARRAY_LEN(grids); i++) {
        const int tp = grids[i].tp, dp = grids[i].dp;
        asked *a = calloc(1, sizeof *a);
        assert_non_null(a);
        const char *out = textf("out-%zu", i);
        ask(a, "llama", SHEAF_METHOD_LORA, tp, dp, false, 4);
        a->o.out = at(out);
        a->o.lr = 1e-3;
        open_asked(a);
        told t = { .ranks = tp * dp };
        const sheaf_events events = { hear, &t };
        sheaf_train_result result;
        CHECK_OK(sheaf_train(&result, &a->o, "settings: none\n", "steps: 2\n",
                             &(sheaf_train_hooks){ .events = &events }));
        assert_int_equal(t.steps, STEPS);
        assert_int_equal(result.ranks, tp * dp);
        for (int r = 0; r < tp * dp; r++) {
            const sheaf__usage_total *all = &result.rank[r];
            uint64_t to = 0;
            for (int64_t done = 0; done < STEPS; done++) {
                sheaf__count plan[SHEAF__TRAFFICS], sum = { 0 };
                CHECK_OK(sheaf_plan_step(plan, NULL, NULL, &a->job, r, done));
                for (int k = 0; k < SHEAF__TRAFFICS; k++)
                    sheaf__count_add(&sum, &plan[k]);
                assert_true(t.sent[done][r] == sum.sent);
            }
            for (int p = 0; p < tp * dp; p++) {
                to += all->to[p];
                assert_true(all->to[p] == result.rank[p].from[r]);
            }
            assert_int_equal(all->steps, STEPS);
            CHECK_NEAR("what a step's time is made of",
                       all->sum.compute + all->sum.wait + all->sum.exchange + all->sum.read,
                       all->seconds, all->sum.read / 2);
            assert_true(all->sum.sent == t.sum[r].sent && all->sum.compute == t.sum[r].compute);
            assert_true(to >= all->sum.sent && all->sum.save > 0);
            assert_true(all->most[SHEAF_MEM_WEIGHTS] > 0);
        }
        const int slowest = sheaf__usage_slowest(result.rank, tp * dp);
        assert_in_range(slowest, 0, tp * dp - 1);
        sheaf_train_result_release(&result);
        close_asked(a);
        free(a);
    }
}

/* By hand: two steps of three ranks. */
TEST(test_slowest__computes_or_reads_longest)
{
    sheaf__usage_total list[3] = { { .sum = { .compute = 2, .wait = 1 }, .steps = 2 },
                                   { .sum = { .compute = 1, .wait = 0, .read = 2 }, .steps = 2 },
                                   { .sum = { .compute = 2.4, .wait = 0.6 }, .steps = 2 } };
    sheaf_text text = { 0 };
    assert_int_equal(sheaf__usage_slowest(list, 3), 1);
    sheaf__usage_why(&text, list, 3);
    assert_string_equal(text.at,
                        "slowest: rank 1 computes 1.5 s a step, reading included, and waits 0 s; "
                        "the others compute 1.1 s and wait 0.4 s");
    sheaf__text_release(&text);
}

FIXTURE(make_sources, remove_scratch);
