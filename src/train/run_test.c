/* run_test.c - whole runs of a very small model: which sample a row is, what clipping does, what a
 * checkpoint says, what an evaluation finds. */
#include "tests/tensors.h"

#include <errno.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/json.h"
#include "base/memory.h"
#include "checkpoint/store/checkpoint.h"
#include "checkpoint/tools/init.h"
#include "formats/safetensors.h"
#include "models/team.h"
#include "train/evaluate.h"
#include "train/usage.h"
#include "train/train.h"

enum { LENGTH = 6, VOCAB = 13, MOST_STEPS = 4 };

static const char config[] =
    "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"attention_bias\": false, \"mlp_bias\": false, "
    "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": null, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
    "\"max_position_embeddings\": 64, \"initializer_range\": 0.1, \"rope_theta\": 10000.0, \"dtype\": \"float32\", \"head_dim\": 4, "
    "\"hidden_size\": 8, \"intermediate_size\": 11, \"num_attention_heads\": 2, \"num_key_value_heads\": 2, "
    "\"num_hidden_layers\": 1, \"vocab_size\": 13, \"tie_word_embeddings\": false}\n";

static int words = VOCAB;

/* Rows of the same length; labels in those of `labelled` alone. */
static void make_data(const char *path, int rows, unsigned labelled)
{
    int64_t ids[16 * LENGTH], labels[16 * LENGTH];
    for (int i = 0; i < rows * LENGTH; i++) {
        ids[i] = words == 2 ? (i * i + i / LENGTH) / 3 % 2 : 1 + (i * 5 + i / LENGTH) % (words - 1);
        labels[i] = labelled >> (i / LENGTH) & 1 ? ids[i] : -100;
    }
    write_rows(path, rows, LENGTH, ids, labels);
}

/* The config with other texts of the same length in it. */
static void make_model(const char *name, uint64_t seed, const char *const changed[][2])
{
    sheaf_weights_init_report report;
    char text[sizeof config];
    strcpy(text, config);
    for (int i = 0; changed != NULL && changed[i][0] != NULL; i++)
        memcpy(strstr(text, changed[i][0]), changed[i][1], strlen(changed[i][1]));
    put(at("config.json"), text);
    CHECK_OK(sheaf_init(&report, &(sheaf_weights_init_options){
                                     .spec = at("config.json"), .dst = at(name), .seed = seed }));
}

static int make_sources(void **state)
{
    if (make_scratch(state) != 0)
        return 1;
    make_model("model", 5, NULL);
    make_data(at("two.safetensors"), 6, 1u << 0 | 1u << 3);
    make_data(at("all.safetensors"), 6, ~0u);
    return 0;
}

/* The events of a run's steps. */
typedef struct told {
    double loss[MOST_STEPS], norm[MOST_STEPS];
    int n;
} told;

static void hear(void *self, const sheaf_event *event)
{
    told *t = self;
    if (event->kind != SHEAF_EVENT_STEP)
        return;
    assert_in_range(t->n, 0, MOST_STEPS - 1);
    t->loss[t->n] = event->step.loss;
    t->norm[t->n++] = event->step.grad_norm;
}

static sheaf_train_options options_of(const char *data, const char *out, sheaf_method method)
{
    sheaf_train_options o;
    sheaf_train_options_default(&o);
    o.model = at("model");
    o.data = data;
    o.out = out;
    o.threads = 1;
    o.slices = 2;
    o.method = method;
    o.lora_rank = 2;
    o.lora_alpha = 8;
    o.lora_targets = "all-linear";
    o.shuffle = false;
    o.lr = 0.05;
    return o;
}

static sheaf_status *try_train(const sheaf_train_options *o, const sheaf_train_hooks *hooks)
{
    char steps[40];
    sheaf_train_result result = { 0 };
    snprintf(steps, sizeof steps, "steps: %d\n", (int)o->steps);
    sheaf_status *st = sheaf_train(&result, o, "settings: none\n", steps, hooks);
    sheaf_train_result_release(&result);
    return st;
}

static told train(const sheaf_train_options *o)
{
    told t = { .n = 0 };
    const sheaf_events events = { hear, &t };
    CHECK_OK(try_train(o, &(sheaf_train_hooks){ .events = &events }));
    assert_int_equal(t.n, o->steps);
    return t;
}

/* What a run leaves that was killed while its hosts looked whether they share OUT: no obstacle, and
 * gone with the next. A file of another name is one. Half-written sums of a reference go, too. */
TEST(test_out__what_a_look_left_is_swept)
{
    sheaf_train_options o = options_of(at("two.safetensors"), at("looked"), SHEAF_METHOD_LORA);
    char *left = NULL;
    o.steps = 1;
    o.accumulate = 1;
    CHECK_OK(sheaf__make_dirs(o.out));
    CHECK_OK(sheaf__partial_path(&left, at("looked/seen-0123"), "partial", 0));
    put(left, "00112233");
    put(at("looked/seen-0123"), "somebody's");
    CHECK_FAILS(try_train(&o, NULL), SHEAF_E_ARG, "a folder with files in it");
    assert_int_equal(unlink(at("looked/seen-0123")), 0);
    train(&o);
    assert_int_equal(sheaf__path_kind(left), SHEAF_PATH_NONE);
    free(left);
    CHECK_OK(sheaf__partial_path(&left, at("looked/reference"), "partial", 0));
    put(left, "half of the sums");
    o.steps = 2;
    o.resume = true;
    CHECK_OK(try_train(&o, NULL));
    assert_int_equal(sheaf__path_kind(left), SHEAF_PATH_NONE);
    free(left);
}

/* Who comes while another run holds OUT changes nothing there: the settings are those of the run
 * that goes on. (The command asks for the lock when it looks what OUT holds, which is long before
 * it writes.) */
TEST(test_out__another_run_keeps_its_settings)
{
    sheaf_train_options o = options_of(at("all.safetensors"), at("twice"), SHEAF_METHOD_LORA);
    char *settings = NULL;
    size_t size = 0;
    int lock = -1;
    o.steps = 1;
    train(&o);
    o.steps = 2;
    o.resume = true;
    CHECK_OK(sheaf_checkpoints_lock(&lock, o.out, NULL));
    CHECK_FAILS(try_train(&o, NULL), SHEAF_E_ARG, "another process holds this lock");
    CHECK_OK(sheaf__file_read_all(&settings, &size, at("twice/settings"), 100));
    assert_string_equal(settings, "steps: 1\n");
    free(settings);
    close(lock);
    CHECK_OK(try_train(&o, NULL));
    CHECK_OK(sheaf_checkpoints_lock(&lock, o.out, NULL)); /* the run has released it */
    close(lock);
}

/* A change of OUT after the first of three steps. */
typedef struct mishap {
    const char *from, *to; /* to NULL: removed */
    char said[400];
} mishap;

static void befall(void *self, const sheaf_event *event)
{
    mishap *m = self;
    if (event->kind == SHEAF_EVENT_WARNING)
        snprintf(m->said, sizeof m->said, "%s", event->text);
    if (m->from == NULL || event->kind != SHEAF_EVENT_STEP || event->step.step != 1)
        return;
    if (m->to == NULL)
        CHECK_OK(sheaf__remove_tree(m->from));
    else
        assert_int_equal(rename(m->from, m->to), 0);
}

/* A file system that has no locks, as some of networks are mounted. */
static bool without_locks;

int flock(int fd, int how)
{
    errno = ENOLCK;
    return without_locks ? -1 : (int)syscall(SYS_flock, fd, how);
}

TEST(test_out__without_locks_two_runs_cannot_be_told_apart)
{
    mishap m = { 0 };
    const sheaf_events events = { befall, &m };
    sheaf_train_options o = options_of(at("all.safetensors"), at("nolock"), SHEAF_METHOD_LORA);
    o.steps = 0;
    for (int i = 1; i >= 0; i--) {
        without_locks = i != 0;
        o.resume = i == 0;
        o.steps++;
        m = (mishap){ 0 };
        CHECK_OK(try_train(&o, &(sheaf_train_hooks){ .events = &events }));
        assert_int_equal(strstr(m.said, "this file system has no locks") != NULL, i);
    }
}

/* Killed between the lock, which is the first thing, and the settings. */
TEST(test_out__a_lock_alone_is_no_run)
{
    sheaf_train_options o = options_of(at("all.safetensors"), at("locked"), SHEAF_METHOD_LORA);
    o.steps = 1;
    CHECK_OK(sheaf__make_dirs(at("locked/checkpoints")));
    put(at("locked/checkpoints/lock"), "");
    put(at("locked/checkpoints/mine"), "");
    CHECK_FAILS(try_train(&o, NULL), SHEAF_E_ARG, "a folder with files in it");
    assert_int_equal(unlink(at("locked/checkpoints/mine")), 0);
    train(&o);
}

/* The folder at the old name would be one without lock, settings and metrics. */
TEST(test_out__a_run_keeps_to_the_folder_that_it_holds)
{
    static const struct {
        const char *out, *gone, *to;
    } cases[] = { { "left/o", "left/o", NULL },
                  { "left/o", "left", NULL },
                  { "left/o", "left/o/checkpoints", NULL },
                  { "left/o", "left/o/checkpoints/lock", NULL },
                  { "left/o", "left/o/checkpoints", "left/elsewhere" },
                  { "moved/o", "moved/o", "there" },
                  { "above/o", "above", "further" } };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char *out = strdup(at(cases[i].out)), *from = strdup(at(cases[i].gone)),
             *to = cases[i].to == NULL ? NULL : strdup(at(cases[i].to));
        const bool moves = strncmp(cases[i].out, "left", 4) != 0;
        mishap m = { .from = from, .to = to };
        const sheaf_events events = { befall, &m };
        sheaf_train_options o = options_of(at("all.safetensors"), out, SHEAF_METHOD_LORA);
        sheaf_train_result result = { 0 };
        o.steps = 3;
        o.save_every = 2;
        o.slices = o.tp = 2;
        sheaf_status *st = sheaf_train(&result, &o, "settings: none\n", "steps: 3\n",
                                       &(sheaf_train_hooks){ .events = &events });
        CHECK_FAILS(st, SHEAF_E_IO, "the folder that this run holds");
        sheaf_status_free(sheaf__remove_tree(at("left/elsewhere")));
        assert_int_equal(result.step, 1);
        if (moves || i < 2)
            assert_int_equal(sheaf__path_kind(out), SHEAF_PATH_NONE);
        CHECK_OK(sheaf__remove_tree(at("left")));
        sheaf_train_result_release(&result);
        free(out);
        free(from);
        free(to);
    }
}

/* Sample 3 is the second row of the second step of two rows, and the first of that of three. What
 * is dropped from it is the same, whatever comes with it. (Row 1, 2, 4 and 5 have no labels, and
 * add nothing.) */
TEST(test_dropout__a_sample_counts_within_the_whole_run)
{
    static const struct {
        int64_t micro_batch, accumulate;
    } ways[] = { { 1, 2 }, { 1, 3 }, { 2, 1 }, { 3, 1 } };
    told first = { .n = 0 };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        sheaf_train_options o =
            options_of(at("two.safetensors"), at_format("sample-%zu", i), SHEAF_METHOD_LORA);
        o.lora_dropout = 0.4;
        o.steps = 2;
        o.micro_batch = ways[i].micro_batch;
        o.accumulate = ways[i].accumulate;
        const told t = train(&o);
        first = i == 0 ? t : first;
        CHECK_NEAR("step 1", t.loss[0], first.loss[0], 0);
        CHECK_NEAR("step 2", t.loss[1], first.loss[1], 0);
    }
}

/* Words 1 to 12 are in the data, 0 is not. */
TEST(test_padding__its_row_learns_nothing)
{
    static const struct {
        const char *pad, *targets;
        sheaf_method method;
    } cases[] = {
        { "null", "all-linear", SHEAF_METHOD_FULL }, { "6", "all-linear", SHEAF_METHOD_FULL },
        { "0", "all-linear", SHEAF_METHOD_FULL },    { "null", "embed_tokens", SHEAF_METHOD_LORA },
        { "6", "embed_tokens", SHEAF_METHOD_LORA },
    };
    double norm[ARRAY_LEN(cases)];
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[sizeof config + 8];
        const char *null = strstr(config, "null");
        snprintf(text, sizeof text, "%.*s%s%s", (int)(null - config), config, cases[i].pad,
                 null + 4);
        put(at("pad.json"), text);
        sheaf_train_options o =
            options_of(at("all.safetensors"), at_format("pad-%zu", i), cases[i].method);
        o.config = at("pad.json");
        o.lora_targets = cases[i].targets;
        o.steps = 1;
        norm[i] = train(&o).norm[0];
    }
    assert_true(norm[1] < 0.999 * norm[0] && norm[4] < 0.999 * norm[3]); /* a row less */
    assert_true(norm[2] == norm[0]);
}

/* Five micro-batches fall into accumulators of 1, 1, 1 and 2; where the fifth has no labels, the
 * sum is that of the first four. */
TEST(test_accumulators__take_the_micro_batches_that_are_left_last)
{
    make_data(at("five.safetensors"), 5, 0xf);
    told t[2];
    for (int five = 0; five < 2; five++) {
        sheaf_train_options o = options_of(
            at("five.safetensors"), at_format("accumulators-%d", 4 + five), SHEAF_METHOD_LORA);
        o.lora_targets = "all-linear";
        o.micro_batch = 1;
        o.accumulate = 4 + five;
        o.steps = 1;
        t[five] = train(&o);
    }
    CHECK_NEAR("loss", t[1].loss[0], t[0].loss[0], 0);
    CHECK_NEAR("gradient norm", t[1].norm[0], t[0].norm[0], 0);
}

/* Two words in four slices: half of the ranks have none, and where both logits of a row are below
 * zero they must not say 0. */
TEST(test_head__ranks_without_words)
{
    static const char *const of_two[][2] = { { "size\": 13", "size\":  2" },
                                             { "eos_token_id\": 2", "eos_token_id\": 0" },
                                             { NULL } };
    words = 2;
    make_data(at("words.safetensors"), 6, ~0u);
    words = VOCAB;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        told first = { .n = 0 };
        char model[20];
        snprintf(model, sizeof model, "two-%d", (int)seed);
        make_model(model, seed, of_two);
        for (int tp = 1; tp <= 4; tp += 3) {
            sheaf_train_options o =
                options_of(at("words.safetensors"), at_format("words-%d-%d", (int)seed, tp),
                           SHEAF_METHOD_FULL);
            o.model = at(model);
            o.slices = 4;
            o.tp = tp;
            o.steps = 3;
            const told t = train(&o);
            first = tp == 1 ? t : first;
            for (int i = 0; i < t.n; i++)
                CHECK_NEAR("loss", t.loss[i], first.loss[i], 0);
        }
    }
}

/* ---- a stop that comes with the last step ---- */

typedef struct stopping {
    sheaf_control control;
    int64_t at;
} stopping;

static void stop_at(void *self, const sheaf_event *event)
{
    stopping *s = self;
    if (event->kind == SHEAF_EVENT_STEP && event->step.step == s->at)
        sheaf__control_note(&s->control, 15);
}

TEST(test_stop__after_the_last_step_a_run_is_done)
{
    for (int64_t at_step = 1; at_step <= 2; at_step++) {
        stopping s = { .at = at_step };
        const sheaf_events events = { stop_at, &s };
        const sheaf_train_hooks hooks = { .events = &events, .control = &s.control };
        sheaf_train_options o = options_of(at("all.safetensors"),
                                           at_format("stop-%d", (int)at_step), SHEAF_METHOD_LORA);
        o.steps = 2;
        sheaf_status *st = try_train(&o, &hooks);
        if (at_step == 1)
            CHECK_FAILS(st, SHEAF_E_STOPPED, "after step 1");
        else
            CHECK_OK(st);
        assert_int_equal(sheaf__path_kind(at_format("stop-%d/adapter", (int)at_step)),
                         at_step == 1 ? SHEAF_PATH_NONE : SHEAF_PATH_DIR);
    }
}

/* A stop ends the evaluation that is due after its step: what it would have said is asked when the
 * run goes on, and the step's checkpoint becomes that of a run which was not stopped. */
TEST(test_stop__an_evaluation_that_was_due_is_made_up_for)
{
    for (int64_t at_step = 0; at_step <= 3; at_step++) {
        stopping s = { .at = at_step };
        const sheaf_events events = { stop_at, &s };
        const sheaf_train_hooks hooks = { .events = &events, .control = &s.control };
        sheaf_train_result result = { 0 };
        sheaf_train_options o =
            options_of(at("all.safetensors"), at_format("due-%d", (int)at_step), SHEAF_METHOD_LORA);
        o.steps = 3;
        o.tp = 1 + (int)at_step % 2;
        o.eval_split = 0.4;
        o.eval_every = 1;
        o.save_every = 1;
        o.keep = 0;
        sheaf_status *st = sheaf_train(&result, &o, "settings: none\n", "steps: 3\n", &hooks);
        if (at_step > 0) {
            char *early, last[24];
            size_t size;
            CHECK_OK(sheaf__file_read_all(
                &early, &size,
                at_format("due-%d/checkpoints/step-%08d/manifest.json", (int)at_step, (int)at_step),
                1 << 20));
            snprintf(last, sizeof last, "\"last\": %d", (int)at_step - 1);
            assert_non_null(strstr(early, last));
            free(early);
            CHECK_FAILS(st, SHEAF_E_STOPPED, "asked to stop after step");
            o.resume = true;
            o.tp = 3 - o.tp;
            CHECK_OK(sheaf_train(&result, &o, "settings: none\n", "steps: 3\n", NULL));
        } else {
            CHECK_OK(st);
        }
        assert_true(result.evaluated && result.best_step > 0);
        sheaf_train_result_release(&result);
        for (int step = 1; step <= 3; step++)
            check_same_file(at_format("due-%d/checkpoints/step-%08d", (int)at_step, step),
                            at_format("due-0/checkpoints/step-%08d", step), "manifest.json");
    }
}

/* ---- evaluation ---- */

typedef struct judged {
    const sheaf_data *data;
    int64_t micro_batch;
    sheaf__evaluation found;
} judged;

static sheaf_status *judge(void *self, sheaf__model *model)
{
    judged *j = self;
    sheaf__evaluation found;
    sheaf_status *st = sheaf__evaluate(&found, model, j->data,
                                       &(sheaf__evaluate_options){ .micro_batch = j->micro_batch });
    if (sheaf__is_first(model->context))
        j->found = found;
    return st;
}

static judged evaluate(const char *model, const char *path, int64_t micro_batch, int ranks)
{
    sheaf__opened opened = { 0 };
    sheaf_data *data = NULL;
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = model, .slices = 2 }));
    CHECK_OK(sheaf_data_open(&data, path, &(sheaf_data_options){ .config = &opened.config }));
    judged j = { data, micro_batch, { 0 } };
    CHECK_OK(
        sheaf__team_run(&opened,
                        &(sheaf__team_options){
                            .ranks = ranks, .threads = 1, .dtype = SHEAF_F32, .positions = LENGTH },
                        judge, &j));
    sheaf_data_close(data);
    sheaf__opened_close(&opened);
    return j;
}

TEST(test_evaluate__every_row_once_at_any_micro_batch)
{
    const sheaf__evaluation all = evaluate(at("model"), at("all.safetensors"), 1, 1).found;
    assert_int_equal(all.tokens, 6 * (LENGTH - 1));
    for (int64_t micro_batch = 2; micro_batch <= 7; micro_batch++) {
        const sheaf__evaluation found =
            evaluate(at("model"), at("all.safetensors"), micro_batch, 1 + (int)micro_batch % 2)
                .found;
        assert_int_equal(found.tokens, all.tokens);
        assert_int_equal(found.correct, all.correct);
        CHECK_NEAR("loss", found.loss, all.loss, 1e-12); /* of sums in double */
    }
}

/* Without weights all logits are equal, and the answer is the first word. */
TEST(test_evaluate__of_equal_logits_the_first_is_the_answer)
{
    static const char *const of_none[][2] = { { "range\": 0.1", "range\": 0.0" }, { NULL } };
    static const int64_t ids[LENGTH] = { 1, 2, 3, 4, 5, 6 },
                         labels[LENGTH] = { 1, 0, VOCAB - 1, 0, VOCAB - 1, VOCAB - 1 };
    make_model("none", 0, of_none);
    write_rows(at("ties.safetensors"), 1, LENGTH, ids, labels);
    for (int ranks = 1; ranks <= 2; ranks++) {
        const sheaf__evaluation found =
            evaluate(at("none"), at("ties.safetensors"), 1, ranks).found;
        assert_int_equal(found.tokens, 5);
        assert_int_equal(found.correct, 2);
        CHECK_NEAR("loss", found.loss, log(VOCAB), 1e-6);
    }
}

/* ---- what a checkpoint holds ---- */

static sheaf_checkpoint *checkpoint_at(const char *out, int64_t step)
{
    sheaf_checkpoint *c = NULL;
    CHECK_OK(sheaf_checkpoint_open(&c, at_format("%s/checkpoints/step-%08d", out, (int)step)));
    return c;
}

/* The final norm's first moment, which with beta1 = 0 is its gradient, scaled. */
static void moment_of(float moment[8], const char *out)
{
    sheaf_safetensors *file = NULL;
    CHECK_OK(sheaf__safetensors_open(
        &file, at_format("%s/checkpoints/step-00000001/replicated.safetensors", out)));
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, "exp_avg/model.norm.weight");
    assert_non_null(e);
    assert_int_equal(e->bytes, 32);
    CHECK_OK(sheaf__safetensors_read(file, e, 0, moment, 32));
    sheaf__safetensors_close(file);
}

/* torch's clip_grad_norm_: by max_norm / (norm + 1e-6), in float32. */
TEST(test_clip__adds_torchs_epsilon_to_the_norm)
{
    float plain[8], clipped[8];
    int without = 0;
    sheaf_train_options o = options_of(at("all.safetensors"), at("plain"), SHEAF_METHOD_FULL);
    o.steps = 1;
    o.beta1 = 0;
    o.clip = 0;
    const float norm = (float)train(&o).norm[0];
    moment_of(plain, "plain");
    o.out = at("clipped");
    o.clip = norm / 3;
    train(&o);
    moment_of(clipped, "clipped");
    const float most = (float)o.clip, scale = most / (norm + 1e-6f);
    for (int i = 0; i < 8; i++) {
        CHECK_NEAR("clipped gradient", clipped[i], plain[i] * scale, 0);
        without += plain[i] * (most / norm) == clipped[i];
    }
    assert_true(without < 8); /* or nothing would be shown */
    o.out = at("larger");
    o.clip = norm * 2; /* never makes a gradient larger */
    train(&o);
    moment_of(clipped, "larger");
    CHECK_BYTES("below the limit", clipped, plain, sizeof plain);
}

TEST(test_progress__next_sample_counts_rows)
{
    sheaf_train_options o = options_of(at("all.safetensors"), at("progress"), SHEAF_METHOD_LORA);
    o.steps = 3;
    o.save_every = 1;
    o.keep = 0;
    o.micro_batch = 2;
    o.accumulate = 5;
    train(&o);
    for (int64_t step = 1; step <= 3; step++) {
        sheaf_checkpoint *c = checkpoint_at("progress", step);
        json_t *progress = NULL;
        CHECK_OK(
            sheaf__json_parse(&progress, c->manifest->progress, strlen(c->manifest->progress)));
        assert_int_equal(json_integer_value(json_object_get(progress, "step")), step);
        assert_int_equal(json_integer_value(json_object_get(progress, "next_sample")),
                         step * 2 * 5);
        json_decref(progress);
        sheaf_checkpoint_close(c);
    }
}

/* Fresh factors are a function of the tensor, not of how it is cut. */
TEST(test_fresh__factors_do_not_know_the_slices)
{
    for (int slices = 1; slices <= 2; slices++) {
        sheaf_train_options o =
            options_of(at("all.safetensors"), at_format("fresh-%d", slices), SHEAF_METHOD_LORA);
        o.slices = slices;
        o.lr = 0;
        o.steps = 1;
        train(&o);
    }
    check_same_file(at("fresh-1"), at("fresh-2"), "adapter/adapter_model.safetensors");
}

typedef struct holding {
    size_t device; /* bytes to hold from the start */
    int64_t process;
} holding;

static sheaf_status *plan_holding(void *self, const struct sheaf__job *job, size_t *footprint,
                                  sheaf__kept *kept)
{
    const holding *h = self;
    (void)job;
    (void)kept;
    footprint[0] = h->device;
    return NULL;
}

static sheaf_status *begin_holding(void *self, int64_t keep_steps, int64_t keep_evaluations)
{
    holding *h = self;
    (void)keep_steps;
    (void)keep_evaluations;
    h->process = sheaf__memory_look("").held;
    return NULL;
}

/* Before its first step, and so that no byte of the result shows it. */
TEST(test_run__holds_its_memory_from_the_start)
{
    const size_t device = (size_t)96 << 20;
    holding h[2] = { { 0 }, { device } };
    for (int i = 0; i < 2; i++) {
        sheaf_train_options o =
            options_of(at("all.safetensors"), at(i ? "held" : "not_held"), SHEAF_METHOD_LORA);
        o.steps = 1;
        CHECK_OK(try_train(&o, &(sheaf_train_hooks){ .planned = plan_holding,
                                                     .begin = begin_holding,
                                                     .self = &h[i] }));
    }
    assert_true(h[1].process > h[0].process + (int64_t)device / 2);
    check_same_file(at("held"), at("not_held"), "adapter/adapter_model.safetensors");
}

TEST(test_run__needs_no_hooks)
{
    sheaf_train_options o = options_of(at("all.safetensors"), at("no_hooks"), SHEAF_METHOD_LORA);
    sheaf_train_result result = { 0 };
    o.steps = 1;
    CHECK_OK(sheaf_train(&result, &o, "settings: none\n", "steps: 1\n", NULL));
    assert_int_equal(result.step, 1);
    sheaf_train_result_release(&result);
    o.steps = 2;
    o.resume = true;
    CHECK_OK(sheaf_train(&result, &o, "settings: none\n", "steps: 2\n", NULL));
    assert_int_equal(result.first, 1);
    sheaf_train_result_release(&result);
}

/* Steps of a second; rank 2 computes so much of it, the others wait for it. */
static bool is_told(sheaf__slow *slow, int steps, double slowest, double others)
{
    sheaf_event_rank list[3] = { { .compute = others, .wait = 1 - others },
                                 { .read = others, .wait = 1 - others },
                                 { .compute = slowest, .wait = 1 - slowest } };
    sheaf_text text = { 0 };
    bool told = false;
    for (int i = 0; i < steps; i++)
        sheaf__slow_step(&text, slow, list, 3, 1, NULL);
    told = text.at != NULL;
    if (told)
        assert_non_null(strstr(text.at, "rank 2 is slow: in the last 5 s"));
    sheaf__text_release(&text);
    return told;
}

TEST(test_slow__a_rank_that_others_wait_for_is_told)
{
    sheaf__slow slow = { .window = 5 }, off = { 0 }, even = { .window = 5 };
    assert_false(is_told(&slow, 4, 0.9, 0.5)); /* not yet */
    assert_true(is_told(&slow, 1, 0.9, 0.5));
    assert_false(is_told(&slow, 95, 0.9, 0.5)); /* once */
    assert_true(is_told(&slow, 10, 0.9, 0.5));  /* and again */
    assert_false(is_told(&even, 50, 0.9, 0.7));
    assert_false(is_told(&even, 50, 0.2, 0.1)); /* all wait, for something else */
    assert_false(is_told(&off, 50, 0.9, 0.1));
}

FIXTURE(make_sources, remove_scratch);
