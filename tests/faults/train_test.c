/* train_test.c - a training run whose process dies at any of its calls goes on, when it is resumed,
 * as if nothing had happened: the checkpoints, the result and the metrics of an unbroken run.
 *
 * What lies there after the death is whole: every checkpoint that has its name is undamaged, and
 * the result is absent or complete. SHEAF_SOAK=1: every call, otherwise a sample. */
#include <sys/wait.h>

#include "calls.h"
#include "tests/faults/random_state.h"
#include "tests/tensors.h"

#include "checkpoint/tools/init.h"
#include "formats/safetensors.h"
#include "monitor/monitor.h"
#include "monitor/provenance.h"
#include "train/train.h"

enum { ROWS = 5, LENGTH = 6, STEPS = 4, MOST_STEPS = STEPS + 1 };

static uint64_t dice;
static sheaf_method method;

/* ---- model and data ---- */

static void make_sources(void)
{
    static const char config[] =
        "{\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", \"attention_bias\": false, \"mlp_bias\": false, "
        "\"bos_token_id\": 1, \"eos_token_id\": 2, \"pad_token_id\": null, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-05, "
        "\"max_position_embeddings\": 64, \"initializer_range\": 0.1, \"rope_theta\": 10000.0, \"dtype\": \"float32\", \"head_dim\": 4, "
        "\"hidden_size\": 8, \"intermediate_size\": 11, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
        "\"num_hidden_layers\": 1, \"vocab_size\": 13, \"tie_word_embeddings\": false}\n";
    int64_t tokens[ROWS * LENGTH];
    sheaf_weights_init_report report;
    put(at("src/config.json"), config);
    CHECK_OK(sheaf_init(&report, &(sheaf_weights_init_options){ .spec = at("src/config.json"),
                                                                .dst = at("src/model"),
                                                                .seed = 5 }));
    for (int i = 0; i < ROWS * LENGTH; i++)
        tokens[i] = random_below(&dice, 13);
    write_rows(at("src/data.safetensors"), ROWS, LENGTH, tokens, tokens);
}

/* ---- a run, as the command makes it ---- */

static void forward(void *self, const sheaf_event *event)
{
    sheaf_monitor *const *monitor = self;
    if (*monitor != NULL)
        sheaf_emit(sheaf_monitor_events(*monitor), event);
}

static sheaf_status *begin(void *self, int64_t keep_steps, int64_t keep_evaluations)
{
    sheaf_monitor **monitor = self;
    sheaf_status *st = sheaf_monitor_open(
        monitor, &(sheaf_monitor_options){ .metrics = at("out/metrics.jsonl"),
                                           .keep_steps = keep_steps,
                                           .keep_evaluations = keep_evaluations });
    if (st == NULL)
        st = sheaf_provenance_add(
            at("out/run.json"),
            &(sheaf_provenance){
                .step = keep_steps, .ranks = 1, .threads = 1, .transport = "threads" },
            NULL);
    return st;
}

static sheaf_status *before_save(void *self)
{
    return sheaf_monitor_sync(*(sheaf_monitor **)self);
}

static sheaf_status *train(bool resume)
{
    sheaf_train_options o;
    sheaf_train_result result = { 0 };
    sheaf_monitor *monitor = NULL;
    const sheaf_events events = { forward, &monitor };
    const sheaf_train_hooks hooks = {
        .begin = begin, .events = &events, .before_save = before_save, .self = &monitor
    };
    sheaf_train_options_default(&o);
    o.model = at("src/model");
    o.data = at("src/data.safetensors");
    o.out = at("out");
    o.threads = 1;
    o.slices = 2;
    o.method = method;
    o.lora_rank = 2;
    o.steps = STEPS;
    o.save_every = 1;
    o.keep = 2;
    if (method == SHEAF_METHOD_LORA) { /* judged: the best step is kept and becomes the result */
        o.eval_split = 0.3;
        o.eval_every = 2;
        o.use_best = true;
        o.keep = 1;
        o.steps = STEPS + 1; /* after the last one no evaluation is due */
    }
    o.lr = 0.01;
    o.resume = resume;
    sheaf_status *st = sheaf_train(&result, &o, "settings: none\n", "steps: 4\n", &hooks);
    sheaf_status *closed = sheaf_monitor_close(monitor);
    sheaf_train_result_release(&result);
    if (st != NULL)
        sheaf_status_free(closed);
    return st != NULL ? st : closed;
}

/* ---- what lies there ---- */

static const char *result_name(void)
{
    return method == SHEAF_METHOD_LORA ? "out/adapter" : "out/model";
}

/* Metrics but for the speed. */
static void list_metrics(FILE *out)
{
    char *text = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&text, &size, at("out/metrics.jsonl"), 1 << 20));
    for (char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        const char *speed = strstr(line, ", \"tokens_per_s\"");
        const bool judged = strncmp(strchr(line, ','), ", \"eval_loss\"", 13) == 0;
        if (judged ? end[-1] != '}' : speed == NULL || speed > end)
            fail_msg("a line of metrics without its end: %s", line);
        fprintf(out, "%.*s\n", (int)((judged ? end : speed) - line), line);
    }
    free(text);
}

/* All that an unbroken run and a broken one have in common. */
static char *listing(bool metrics)
{
    char *text = NULL;
    size_t size;
    const size_t skip = strlen(scratch.dir);
    FILE *out = open_memstream(&text, &size);
    list_tree(out, at(result_name()), skip);
    if (metrics) {
        list_tree(out, at("out/checkpoints"), skip);
        list_tree(out, at("out/best.json"), skip);
        list_metrics(out);
    }
    fclose(out);
    return text;
}

/* Every checkpoint that has its name is whole. Returns how many there are. */
static int check_steps(long n)
{
    int found = 0;
    for (int step = 1; step <= MOST_STEPS; step++) {
        const char *name = at_format("out/checkpoints/step-%08d", step);
        sheaf_damages damages = { 0 };
        if (sheaf__path_kind(name) == SHEAF_PATH_NONE)
            continue;
        CHECK_OK(sheaf_checkpoint_examine(&damages, name, false));
        if (damages.count != 0)
            fail_msg("dies at call %ld: %s is damaged", n, name);
        found++;
    }
    return found;
}

static void fresh(void)
{
    CHECK_OK(sheaf__remove_tree(at("out")));
    CHECK_OK(sheaf__make_dir(at("out")));
}

/* Dies at call n, of `kind`; false when there are fewer. */
static bool broken(call_kind kind, call_fate fate, long n, bool resume)
{
    int status = 0;
    const pid_t pid = fork();
    if (pid == 0) {
        calls_begin(kind, n, false, fate, 0);
        sheaf_status *st = train(resume);
        _exit(st == NULL ? 0 : 1);
    }
    assert_true(pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    if (WEXITSTATUS(status) == 1)
        fail_msg("call %ld: a run that nothing disturbed failed", n);
    return WEXITSTATUS(status) == CALL_DIED;
}

static void check_and_go_on(long n, const char *wanted, const char *wanted_result)
{
    char *result = listing(false);
    if (*result != '\0' && strcmp(result, wanted_result) != 0)
        fail_msg("dies at call %ld: half a result:\n%s", n, result);
    free(result);
    if (check_steps(n) > 0) {
        CHECK_OK(train(true));
    } else { /* nothing was saved: there is nothing to go on from */
        fresh();
        CHECK_OK(train(false));
    }
    char *now = listing(true);
    if (strcmp(now, wanted) != 0)
        fail_msg(
            "dies at call %ld: what is there after going on is not that of an unbroken run:\n%s\nwanted:\n%s",
            n, now, wanted);
    free(now);
}

static long tried, died_again;

static void try_all(call_kind kind, call_fate fate, long some)
{
    fresh();
    calls_begin(CALL_ANY, 0, false, FATE_PASS, 0);
    CHECK_OK(train(false));
    calls_end();
    const long all = calls.seen[kind];
    char *wanted = listing(true), *wanted_result = listing(false);
    for (long n = 1; n <= all; n += some <= 0 ? 1 : 1 + (long)random_below(&dice, 2 * all / some)) {
        fresh();
        if (!broken(kind, fate, n, false))
            fail_msg("call %ld of %ld was not reached", n, all);
        tried++;
        if (random_below(&dice, 3) == 0 && check_steps(n) > 0) /* and once more on the way on */
            died_again += broken(kind, fate, 1 + (long)random_below(&dice, all), true);
        check_and_go_on(n, wanted, wanted_result);
    }
    free(wanted);
    free(wanted_result);
}

TEST(test_train__dies_at_any_call_and_goes_on)
{
    static const sheaf_method methods[] = { SHEAF_METHOD_LORA, SHEAF_METHOD_HEAD,
                                            SHEAF_METHOD_FULL };
    const bool soak = getenv("SHEAF_SOAK") != NULL;
    new_folder(scratch.dir);
    scratch.open_files = count_open_files();
    CHECK_OK(sheaf__make_dir(at("src")));
    dice = 11;
    make_sources();
    for (size_t i = 0; i < ARRAY_LEN(methods); i++) {
        method = methods[i];
        try_all(CALL_ANY, FATE_DIE, soak ? 0 : 12);
        try_all(CALL_WRITE, FATE_TORN, soak ? 0 : 6);
    }
    printf("# %ld deaths of a run, %ld of another while it went on: the bytes of an unbroken one\n",
           tried, died_again);
}

FIXTURE(NULL, remove_scratch);
