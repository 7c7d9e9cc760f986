/* llama_test.c - the golden Llama-family models: forward, loss, gradients, long forward,
 * generation and the training runs agree with what transformers and PEFT recorded, at one and
 * at three ranks, with the same bytes. Every folder of $SHEAF_GOLDEN/llama (or of the
 * committed subset) that holds hf/config.json is run; none found is a failure. With the argument
 * `families` it is every folder of tests/data/families, the other families of Llama's kind.
 *
 * Tolerances are those of the recordings' README: logits 2e-5, loss 1e-5, gradients 1e-5 +
 * 1e-4 relative, weights after five Adam steps 1e-4. */

#include "checkpoint/merge/merge.h"
#include "tests/golden.h"
#include "tests/parity/evaluated.h"
#include "tests/parity/generated.h"
#include "tests/parity/trained.h"
#include "tests/parity/trial.h"
#include "tests/sources.h"

static bool kin; /* the argument */

static int find_models(void **state)
{
    const char *root = kin ? in_sources("tests/data/families") : golden("llama");
    find_in(root, "hf/config.json", "fwd_inputs.safetensors");
    if (models == 0)
        fail_msg("no model under %s", root);
    return make_scratch(state);
}

/* ---- forward ---- */

/* Logits of `data` file by the model in hf/ (with an adapter), at `ranks`; seq: 0, or more
 * positions than the model was made for. */
static forward forward_of(const char *hf, const char *config, const char *adapter,
                          const char *data_path, int ranks, int64_t seq)
{
    return evaluate(
        &(sheaf__open_options){ .model = hf, .config = config, .slices = 8, .adapter = adapter },
        data_path, seq, (sheaf__team_options){ .ranks = ranks, .threads = 2, .dtype = SHEAF_F32 });
}

static forward forward_at(const char *hf, const char *config, const char *adapter,
                          const char *data_path, int ranks)
{
    return forward_of(hf, config, adapter, data_path, ranks, 0);
}

/* [n], 0 where there is padding. */
static const int64_t *mask_of(const sheaf_safetensors *inputs, int64_t *n)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(inputs, "attention_mask");
    *n = e->shape[0] * e->shape[1];
    return integers(inputs, "attention_mask");
}

static void check_forward(const char *dir, const char *config)
{
    sheaf_safetensors *in = record_of(dir, "fwd_inputs.safetensors"),
                      *out = record_of(dir, "fwd_outputs.safetensors");
    json_t *info = json_of(dir, "info.json");
    int64_t n, nmask;
    const float *want = values_of(out, "logits", &n);
    const int64_t *mask = mask_of(in, &nmask);
    forward one =
        forward_at(in_dir(dir, "hf"), config, NULL, in_dir(dir, "fwd_inputs.safetensors"), 1);
    for (const int *ranks = kin ? (const int[]){ 2, 3, 5, 0 } : (const int[]){ 3, 0 }; *ranks > 0;
         ranks++) {
        forward other = forward_at(in_dir(dir, "hf"), config, NULL,
                                   in_dir(dir, "fwd_inputs.safetensors"), *ranks);
        CHECK_BYTES(dir, other.logits, one.logits, (size_t)n * sizeof(float));
        CHECK_BYTES(dir, &other.result.loss, &one.result.loss, sizeof one.result.loss);
    }
    for (int64_t i = 0; i < n; i++)
        if (mask[i / (n / nmask)] != 0)
            CHECK_NEAR(dir, one.logits[i], want[i], 2e-5);
    CHECK_NEAR(dir, one.result.loss, json_real_value(json_object_get(info, "loss")), 1e-5);
    assert_int_equal(one.result.tokens, json_integer_value(json_object_get(info, "label_tokens")));
}

static void test_forward__both_config_styles(void **state)
{
    for (int i = 0; i < models; i++) {
        check_forward(model_dir[i], NULL);
        if (exists(in_dir(model_dir[i], "config_4x_style.json")))
            check_forward(model_dir[i], in_dir(model_dir[i], "config_4x_style.json"));
    }
}

/* ---- gradients ---- */

static void test_gradients__equal_the_originals(void **state)
{
    for (int m = 0; m < models; m++)
        for (int ranks = 1; ranks <= (kin ? 5 : 3); ranks += 2) {
            sheaf_safetensors *want = record_of(model_dir[m], "fwd_grads.safetensors");
            trial t = run(in_dir(model_dir[m], "hf"), NULL,
                          in_dir(model_dir[m], "fwd_inputs.safetensors"), ranks, SHEAF_F32, true);
            assert_true(compare_gradients(&t, want, "", (tolerance){ 1e-5, 1e-4, 0 }) > 0);
            release(&t);
        }
}

static void test_long_forward__last_positions(void **state)
{
    for (int i = 0; i < models; i++) {
        sheaf_safetensors *r = record_of(model_dir[i], "long_forward.safetensors");
        int64_t n, nlogits;
        const int64_t *ids = integer_rows(r, "input_ids", &n);
        const float *want = values_of(r, "logits_last8", &nlogits);
        const char *data = rows_file("long.safetensors", ids, ids, NULL, 1, n);
        for (int ranks = 1; ranks <= 3; ranks += 2) {
            forward f = forward_at(in_dir(model_dir[i], "hf"), NULL, NULL, data, ranks);
            compare(model_dir[i], f.logits + (n - 8) * f.vocab, want, nlogits, 2e-5, 0);
        }
    }
}

/* ---- adapters as they are, and merged ---- */

/* Recorded logits of rows with an adapter, at some numbers of ranks. */
static void check_logits(const char *dir, const char *adapter, const sheaf_safetensors *recorded,
                         const char *name, int most_ranks)
{
    int64_t n, nmask;
    const float *want = values_of(recorded, name, &n);
    const int64_t *mask = mask_of(record_of(dir, "fwd_inputs.safetensors"), &nmask);
    for (int ranks = 1; ranks <= most_ranks; ranks += 2) {
        forward f = forward_at(in_dir(dir, "hf"), NULL, adapter,
                               in_dir(dir, "fwd_inputs.safetensors"), ranks);
        for (int64_t k = 0; k < n; k++)
            if (k / f.vocab >= nmask || mask[k / f.vocab] != 0)
                CHECK_NEAR(adapter, f.logits[k], want[k], 2e-5);
    }
}

static void test_adapters__logits_without_merging(void **state)
{
    static const char *const variants[] = {
        "rslora",   "rank_pattern",   "layers_to_transform", "modules_to_save",
        "bias_all", "bias_lora_only", "embedding_target"
    };
    int ran = 0;
    for (int i = 0; i < models; i++)
        for (size_t v = 0; v < ARRAY_LEN(variants); v++) {
            const char *dir = textf("%s/lora_variants/%s", model_dir[i], variants[v]);
            if (!exists(in_dir(dir, "adapter/adapter_config.json")))
                continue;
            check_logits(model_dir[i], in_dir(dir, "adapter"), record_of(dir, "logits.safetensors"),
                         "logits_row0", 3);
            ran++;
        }
    assert_true(ran > 0 || kin);
}

/* ---- generation ---- */

static void check_sequence(const char *what, const json_t *want, const sheaf__prompt *p,
                           const sheaf__continuation *got)
{
    const size_t total = json_array_size(want);
    int64_t skip = 0;
    while (skip < (int64_t)total && (int64_t)total - skip > p->n &&
           json_integer_value(json_array_get(want, (size_t)skip)) == 0 &&
           json_integer_value(json_array_get(want, (size_t)skip + (size_t)p->n)) != got->ids[0])
        skip++; /* left padding of a recorded batch */
    for (int64_t i = 0; i < got->n; i++)
        if (json_integer_value(json_array_get(want, (size_t)(skip + p->n + i))) != got->ids[i])
            fail_msg(
                "%s: token %lld is %d, recorded %lld", what, (long long)i, (int)got->ids[i],
                (long long)json_integer_value(json_array_get(want, (size_t)(skip + p->n + i))));
    assert_int_equal((int64_t)total, skip + p->n + got->n);
}

static int64_t read_prompt(const json_t *list, int32_t *ids)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        ids[i] = (int32_t)json_integer_value(json_array_get(list, i));
    return (int64_t)json_array_size(list);
}

static void check_generation(const char *dir, const char *hf, const json_t *cases)
{
    for (size_t k = 0; k < json_array_size(cases); k++) {
        const json_t *one = json_array_get(cases, k),
                     *batch = json_object_get(one, "batch_prompts"),
                     *settings = json_object_get(one, "settings"),
                     *eos = json_object_get(settings, "eos_token_id");
        const int64_t stop = json_integer_value(eos);
        int32_t ids[8][128];
        sheaf__prompt prompt[8];
        answers a = {
            .prompt = prompt,
            .count = batch == NULL ? 1 : (int64_t)json_array_size(batch),
            .how = { .sampling.repetition_penalty =
                         (float)number_or(settings, "repetition_penalty", 1),
                     .max_new =
                         settings == NULL
                             ? (int64_t)(json_array_size(json_object_get(one, "sequence")) -
                                         json_array_size(json_object_get(one, "prompt")))
                             : json_integer_value(json_object_get(settings, "max_new_tokens")),
                     .batch = 8,
                     .stop = &stop,
                     .nstop = json_is_integer(eos) },
        };
        for (int64_t i = 0; i < a.count; i++)
            prompt[i] = (sheaf__prompt){ ids[i], read_prompt(batch == NULL
                                                                 ? json_object_get(one, "prompt")
                                                                 : json_array_get(batch, (size_t)i),
                                                             ids[i]) };
        for (int ranks = 1; ranks <= 3; ranks += 2) {
            answer(&a, opened_of(hf), ranks, 1024);
            for (int64_t i = 0; i < a.count; i++)
                check_sequence(dir,
                               batch == NULL
                                   ? json_object_get(one, "sequence")
                                   : json_array_get(json_object_get(one, "sequences"), (size_t)i),
                               &prompt[i], &a.out[i]);
        }
    }
}

static void test_generation__greedy_cases(void **state)
{
    for (int i = 0; i < models; i++) {
        json_t *cases = json_of(model_dir[i], "generation.json");
        assert_true(json_array_size(cases) > 0);
        check_generation(model_dir[i], in_dir(model_dir[i], "hf"), cases);
    }
}

/* ---- training ---- */

/* The batches that all trainings of a family see: [step, micro-batch, field, row, position]. */
static const char *shared_batches_file(const char *dir, int64_t *rows_per_micro)
{
    sheaf_safetensors *r = record_of(dir, "batches.safetensors");
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(r, "batches");
    assert_int_equal(e->ndim, 5);
    const int64_t times = e->shape[0] * e->shape[1], rows = e->shape[3], length = e->shape[4];
    const int64_t *x = integers(r, "batches");
    int64_t *all[3];
    for (int f = 0; f < 3; f++) {
        all[f] = room((size_t)(times * rows * length) * sizeof **all);
        for (int64_t k = 0; k < times; k++)
            memcpy(all[f] + k * rows * length, x + (k * 3 + f) * rows * length,
                   (size_t)(rows * length) * sizeof *x);
    }
    *rows_per_micro = rows;
    return rows_file("batches.safetensors", all[0], all[1], all[2], times * rows, length);
}

/* All micro-batches of a recorded run, in order, as one data file. */
static const char *batches_file(const char *dir, int64_t steps, int64_t micros,
                                int64_t *rows_per_micro)
{
    const sheaf_safetensors *r = record_of(dir, "batches.safetensors");
    static const char *const field[3] = { "input_ids", "labels", "attention_mask" };
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(r, "step0.micro0.input_ids");
    assert_non_null(e);
    const int64_t count = steps * micros, n = e->shape[0] * e->shape[1];
    int64_t *all[3];
    *rows_per_micro = e->shape[0];
    for (int f = 0; f < 3; f++) {
        all[f] = room((size_t)(count * n) * sizeof **all);
        for (int64_t k = 0; k < count; k++) {
            const char *name =
                textf("step%d.micro%d.%s", (int)(k / micros), (int)(k % micros), field[f]);
            e = sheaf__safetensors_find(r, name);
            assert_true(e != NULL && e->shape[0] * e->shape[1] == n);
            memcpy(all[f] + k * n, integers(r, name), (size_t)n * sizeof **all);
        }
    }
    return rows_file("batches.safetensors", all[0], all[1], all[2], count * e->shape[0],
                     e->shape[1]);
}

static void on_event(void *self, const sheaf_event *event)
{
    const json_t *want = recorded_step(self, event);
    if (want == NULL)
        return;
    /* Of the third step of gemma3 it moves by up to 6e-5 of 7.6 with the number of slices. */
    const double norm = number_in(want, "grad_norm_before_clip");
    CHECK_NEAR("gradient norm", event->step.grad_norm, norm, norm > 2 ? 1e-5 * norm : 2e-5);
    CHECK_NEAR("learning rate", event->step.lr, number_in(want, "lr"), 1e-12);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Of each tensor of `like` that is there, in the order of names, eight elements of its weight and
 * moments: the form that make_families.py beside the recordings says. */
static void compare_sample(sheaf_source *got, const sheaf_safetensors *like,
                           const sheaf_safetensors *want)
{
    static const char *const what[] = { "master", "exp_avg", "exp_avg_sq" };
    const int64_t count = like->header.count;
    const char **names = room((size_t)count * sizeof *names);
    for (int64_t i = 0; i < count; i++)
        names[i] = like->header.entry[i].name;
    qsort(names, (size_t)count, sizeof *names, by_name);
    for (size_t w = 0; w < ARRAY_LEN(what); w++) {
        int64_t n, row = 0;
        const float *x = values_of(want, what[w], &n);
        for (int64_t i = 0; i < count; i++) {
            const sheaf_safetensors_entry *e = sheaf__safetensors_find(like, names[i]);
            const char *name = textf("%s/%s", what[w], names[i]);
            if (got->find(got, name) == NULL)
                continue;
            const int64_t cols = e->ndim == 2 ? e->shape[1] : 1, rows = e->shape[0];
            float *y = room((size_t)(rows * cols) * sizeof *y);
            CHECK_OK(got->read(got, name, 0, rows, 0, cols, y));
            for (int k = 0; k < 8 && row < n / 8; k++)
                CHECK_NEAR(name, y[k * (rows * cols - 1) / 7], x[row * 8 + k],
                           w == 0 ? 1e-4 : 1e-5);
            row++;
        }
        assert_int_equal(row, n / 8);
    }
}

/* Checkpoints are equal when their manifests are: they hold hashes, and no number of ranks. */
static void check_manifest(const char *dir, const char *checkpoint, int ranks)
{
    static const char *first;
    const char *text = file_text(in_dir(checkpoint, "manifest.json"), NULL);
    first = ranks == 1 ? text : first;
    if (strcmp(first, text) != 0)
        fail_msg("%s: %d ranks give other bytes than one", dir, ranks);
}

/* Where a training is recorded, by sheaf_method. */
static const char *const run_of[] = { "lora", "head_train", "full_train" };

/* "a,b" of a list of names. */
static const char *joined(const json_t *names)
{
    const char *text = "";
    for (size_t i = 0; i < json_array_size(names); i++)
        text =
            textf("%s%s%s", text, i == 0 ? "" : ",", json_string_value(json_array_get(names, i)));
    return text;
}

static void check_training(const char *dir, sheaf_method method, int ranks)
{
    static int runs;
    const bool lora = method == SHEAF_METHOD_LORA;
    const char *run_dir = in_dir(dir, run_of[method]), *hf = in_dir(dir, "hf");
    const json_t *log = json_of(run_dir, "log.json"), *steps = json_object_get(log, "steps");
    const int64_t micros =
        lora || kin ? json_integer_value(json_object_get(log, "gradient_accumulation")) : 1;
    const char *schedule = json_string_value(json_object_get(log, "schedule"));
    sheaf_train_options o = adamw_options(json_object_get(log, "optimizer"));
    int64_t rows = 0;
    o.model = hf;
    o.data = kin ? shared_batches_file(dir, &rows)
                 : batches_file(run_dir, (int64_t)json_array_size(steps), micros, &rows);
    o.out = at(textf("run-%d", runs++));
    o.method = method;
    o.train = method == SHEAF_METHOD_HEAD ? joined(json_object_get(log, "train")) : NULL;
    o.adapter = lora ? in_dir(run_dir, "adapter_init") : NULL;
    o.tp = ranks;
    o.steps = (int64_t)json_array_size(steps);
    o.micro_batch = rows;
    o.accumulate = micros;
    o.clip = json_number_value(json_object_get(log, "max_grad_norm"));
    o.warmup = json_integer_value(json_object_get(log, "warmup_steps"));
    o.schedule =
        strncmp(schedule, "cosine", 6) == 0 ? SHEAF_SCHEDULE_COSINE : SHEAF_SCHEDULE_LINEAR;
    trace t = { steps, 1e-5, 0 };
    const char *path = train_as(&o, on_event, &t);
    assert_int_equal(t.seen, (int)json_array_size(steps));
    check_manifest(run_dir, path, ranks);
    sheaf_checkpoint *checkpoint;
    sheaf_source *state;
    CHECK_OK(sheaf_checkpoint_open(&checkpoint, path));
    CHECK_OK(sheaf__checkpoint_source(&state, checkpoint));
    sheaf_safetensors *final = record_of(lora  ? run_dir
                                         : kin ? hf
                                               : run_dir,
                                         lora  ? "adapter_final/adapter_model.safetensors"
                                         : kin ? "model.safetensors"
                                               : "final_model.safetensors"),
                      *rest = record_of(run_dir, kin    ? "sample.safetensors"
                                                 : lora ? "final_adam_state.safetensors"
                                                        : "final_adam_state_part.safetensors");
    if (lora || !kin)
        compare_state(state, final, "", "master", 1, (tolerance){ 1e-4, 0, 0 });
    if (kin)
        compare_sample(state, final, rest);
    else {
        compare_state(state, rest, "exp_avg.", "exp_avg", 1, (tolerance){ 1e-5, 0, 0 });
        compare_state(state, rest, "exp_avg_sq.", "exp_avg_sq", 1, (tolerance){ 1e-5, 0, 0 });
    }
    state->close(state);
    sheaf_checkpoint_close(checkpoint);
}

static void test_training__recorded_runs(void **state)
{
    static const int of_llama[] = { 1, 3, 0 }, of_kin[] = { 1, 2, 3, 5, 8, 0 };
    int ran[3] = { 0 };
    for (int i = 0; i < models; i++)
        for (sheaf_method method = SHEAF_METHOD_LORA; method <= SHEAF_METHOD_FULL; method++) {
            if (!kin && !exists(in_dir(in_dir(model_dir[i], run_of[method]), "log.json")))
                continue; /* every family of Llama's kin has all three */
            const int *ranks = kin ? of_kin : of_llama;
            for (int k = 0; ranks[k] > 0; k++)
                if (!kin || k % every(4) == 0) /* with sanitizers the fewest and the most */
                    check_training(model_dir[i], method, ranks[k]);
            ran[method]++;
        }
    assert_true(ran[SHEAF_METHOD_LORA] > 0 &&
                (ran[SHEAF_METHOD_FULL] > 0 || (!kin && !golden_is_full())));
}

/* The base with the trained adapter merged into it, as sheaf merges; "ROOT/merged". */
static const char *merged_model(const char *dir)
{
    const char *base = in_dir(dir, "hf"), *adapter = in_dir(dir, "lora/adapter_final"),
               *out = at("merged");
    sheaf_weights_merge_report report;
    CHECK_OK(sheaf__remove_tree(out));
    CHECK_OK(
        sheaf_merge(&report, &(sheaf_weights_merge_options){
                                 .base = base, .adapters = &adapter, .nadapters = 1, .dst = out }));
    return out;
}

static void test_adapters__trained_and_merged_generation(void **state)
{
    int ran = 0, merged = 0;
    for (int i = 0; i < models; i++) {
        const char *dir = model_dir[i];
        if (!exists(in_dir(dir, "lora/logits_final.safetensors")))
            continue;
        check_logits(dir, in_dir(dir, "lora/adapter_final"),
                     record_of(dir, "lora/logits_final.safetensors"), "logits_adapter",
                     kin ? 5 : 3);
        ran++;
        if (!exists(in_dir(dir, "lora/merged_generation.json")))
            continue;
        const json_t *cases = json_of(dir, "lora/merged_generation.json");
        check_generation(dir, merged_model(dir), cases);
        if (exists(in_dir(dir, "lora/merged/model.safetensors")))
            check_generation(dir, in_dir(dir, "lora/merged"), cases);
        merged++;
    }
    assert_true(ran > 0 && (merged > 0 || kin));
}

/* ---- types of rotary embeddings ---- */

/* One Llama under several configs, at a length it was made for and beyond it. */
static void test_ropes__logits_at_both_lengths(void **state)
{
    static const char *const types[] = { "linear",         "dynamic",        "yarn",
                                         "yarn_scaled",    "yarn_attention", "longrope",
                                         "longrope_factor" };
    const char *dir = in_sources("tests/data/families/ropes");
    const sheaf_safetensors *r = record_of(dir, "logits.safetensors");
    const int64_t *ids = integers(r, "input_ids");
    int64_t n;
    for (size_t t = 0; t < ARRAY_LEN(types); t++)
        for (int64_t length = 12; length <= 40; length += 28) {
            const char *name = textf("%s.%d", types[t], (int)length),
                       *data = rows_file("rope.safetensors", ids, ids, NULL, 1, length);
            const float *want = values_of(r, name, &n);
            forward f = forward_of(in_dir(dir, "hf"), in_dir(dir, textf("%s.json", types[t])), NULL,
                                   data, 1, length);
            compare(name, f.logits + (length - 4) * f.vocab, want, n, 2e-5, 0);
        }
}

int main(int argc, char **argv)
{
    kin = argc > 1 && strcmp(argv[1], "families") == 0;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward__both_config_styles),
        cmocka_unit_test(test_gradients__equal_the_originals),
        cmocka_unit_test(test_long_forward__last_positions),
        cmocka_unit_test(test_adapters__logits_without_merging),
        cmocka_unit_test(test_adapters__trained_and_merged_generation),
        cmocka_unit_test(test_generation__greedy_cases),
        cmocka_unit_test(test_training__recorded_runs),
        cmocka_unit_test(test_ropes__logits_at_both_lengths),
    };
    const struct CMUnitTest of_llama[] = {
        tests[0], tests[1], tests[2], tests[3], tests[4], tests[5], tests[6],
    };
    return kin ? cmocka_run_group_tests(tests, find_models, remove_scratch)
               : cmocka_run_group_tests(of_llama, find_models, remove_scratch);
}
