/* recipes_test.c - the recipes cogvlm-lora and cogagent-lora do what SAT did: from the recorded
 * LoRA factors, the losses, gradient norms and rates of every recorded step, and its factors at the
 * end, at 1, 3 and 8 ranks with the same adapter.
 *
 * Every folder of $SHEAF_GOLDEN with train_lora_mp1_train.json and mp1/ is run; none found is a
 * failure. Tolerances are those of the recordings' README. */
#include "tests/golden.h"
#include "tests/parity/trial.h"

#include "checkpoint/convert/convert.h"
#include "cli/lib/cli.h"
#include "dialects/peft/peft.h"

/* ---- the recorded factors as a PEFT adapter ---- */

typedef struct factors {
    sheaf_safetensors *file;
    const sheaf_lora *lora;
    const sheaf_safetensors_spec *spec;
} factors;

/* Rows of A: part after part. B was zero when the recording began. */
static sheaf_status *factor_rows(void *context, int64_t index, int64_t row0, int64_t rows,
                                 void *dst)
{
    const factors *f = context;
    const sheaf_lora_module *m = &f->lora->module[index / 2];
    const int64_t cols = f->spec[index].shape[1];
    float *out = dst;
    memset(dst, 0, (size_t)(rows * cols) * sizeof *out);
    for (int64_t r = row0; r < row0 + rows && index % 2 == 0; r++) {
        const char *name = textf("%s.matrix_A.%d", m->base->module, (int)(r / m->rank));
        const sheaf_safetensors_entry *e = sheaf__safetensors_find(f->file, name);
        if (e == NULL)
            return sheaf_fail(SHEAF_E_LAYOUT, "%s", name);
        const int64_t bytes = cols * (int64_t)sizeof *out;
        sheaf_status *st = sheaf__safetensors_read(f->file, e, r % m->rank * bytes,
                                                   out + (r - row0) * cols, bytes);
        if (st != NULL)
            return st;
    }
    return NULL;
}

static void make_adapter(const char *dir, int64_t rank, const char *dst)
{
    sheaf__opened opened;
    sheaf_lora_options options;
    factors f = { 0 };
    CHECK_OK(sheaf__lora_options_default(&options));
    options.rank = rank;
    options.alpha = 1;
    CHECK_OK(sheaf__lora_set_targets(&options, "sat-vit"));
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = in_dir(dir, "mp1"),
                                                                .config_only = true,
                                                                .slices = 8,
                                                                .fresh = &options }));
    CHECK_OK(sheaf__safetensors_open(&f.file, in_dir(dir, "train_lora_mp1_init_lora.safetensors")));
    const int64_t count = 2 * (int64_t)opened.lora->nmodules;
    sheaf_safetensors_spec *spec = calloc((size_t)count, sizeof *spec);
    assert_non_null(spec);
    f.lora = opened.lora;
    f.spec = spec;
    for (int64_t i = 0; i < count; i++) {
        const sheaf_lora_module *m = &opened.lora->module[i / 2];
        spec[i] = i % 2 == 0 ? (sheaf_safetensors_spec){ m->a_name,
                                                         SHEAF_F32,
                                                         2,
                                                         { m->a_shape[0], m->a_shape[1] } }
                             : (sheaf_safetensors_spec){
                                   m->b_name, SHEAF_F32, 2, { m->b_shape[0], m->file_rank }
                               };
    }
    char *config;
    sheaf_folder *folder;
    CHECK_OK(sheaf_lora_options_json(&config, &opened.lora->options));
    CHECK_OK(sheaf_peft_begin(&folder, dst, config, NULL, spec, count, true));
    CHECK_OK(sheaf__folder_write_all(folder, factor_rows, &f, 0));
    CHECK_OK(sheaf__folder_commit(folder));
    free(config);
    free(spec);
    sheaf__safetensors_close(f.file);
    sheaf__opened_close(&opened);
    sheaf_lora_options_release(&options);
}

/* ---- the run ---- */

/* The recorded run's own numbers over the recipe's, so that other recordings are reproduced too. */
static void run_recipe(const char *dir, const json_t *recorded, bool agent, int tp, const char *out)
{
    const json_t *deepspeed = json_object_get(recorded, "deepspeed_config"),
                 *schedule = json_object_get(recorded, "scheduler");
    const json_t *adamw = json_object_get(json_object_get(deepspeed, "optimizer"), "params"),
                 *betas = json_object_get(adamw, "betas");
    const double warmup = number_in(schedule, "warmup") * number_in(schedule, "train_iters");
    int n = 3;
    char *argv[40] = { (char *)"sheaf", (char *)"train", (char *)"--no-shuffle" };
#define FLAG(...) (argv[n++] = (char *)textf(__VA_ARGS__))
    FLAG("--recipe=%s", in_sources("recipes/%s-lora.recipe", agent ? "cogagent" : "cogvlm"));
    FLAG("--model=%s/mp1", dir);
    FLAG("--data=%s/inputs.safetensors", dir);
    FLAG("--adapter=%s", at("adapter"));
    FLAG("--out=%s", out);
    FLAG("--tp=%d", tp);
    FLAG("--dtype=float32");
    FLAG("--seq=0");
    FLAG("--micro-batch=%d", (int)number_in(deepspeed, "train_micro_batch_size_per_gpu"));
    FLAG("--accumulate=%d", (int)number_in(deepspeed, "gradient_accumulation_steps"));
    FLAG("--clip=%.17g", number_in(deepspeed, "gradient_clipping"));
    FLAG("--lr=%.17g", number_in(adamw, "lr"));
    FLAG("--beta1=%.17g", json_number_value(json_array_get(betas, 0)));
    FLAG("--beta2=%.17g", json_number_value(json_array_get(betas, 1)));
    FLAG("--eps=%.17g", number_in(adamw, "eps"));
    FLAG("--weight-decay=%.17g", number_in(adamw, "weight_decay"));
    FLAG("--schedule=sat-%s", json_string_value(json_object_get(schedule, "style")));
    FLAG("--steps=%d", (int)json_array_size(json_object_get(
                           recorded, "steps"))); /* fewer than train_iters, within warm-up */
    FLAG("--warmup=%.0f", warmup);
    FLAG("--warmup-ratio=0");
#undef FLAG
    FILE *output = tmpfile(), *errors = tmpfile();
    assert_true(output != NULL && errors != NULL);
    if (cli_main(n, argv, output, errors) != 0) {
        char told[2000];
        rewind(errors);
        told[fread(told, 1, sizeof told - 1, errors)] = '\0';
        fail_msg("%s at %d ranks: %s", dir, tp, told);
    }
    fclose(output);
    fclose(errors);
}

static void check_steps(const char *dir, const json_t *recorded, const char *out)
{
    char *text;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&text, &size, in_dir(out, "metrics.jsonl"), 1 << 20));
    const json_t *steps = json_object_get(recorded, "steps");
    char *line = text;
    for (size_t i = 0; i < json_array_size(steps); i++) {
        const json_t *want = json_array_get(steps, i);
        char *end = strchr(line, '\n');
        assert_non_null(end);
        json_t *got;
        CHECK_OK(sheaf__json_parse(&got, line, (size_t)(end - line)));
        const char *name = textf("%s, step %d", dir, (int)i + 1);
        CHECK_NEAR(name, number_in(got, "loss"), number_in(want, "loss"), 1e-5);
        CHECK_NEAR(name, number_in(got, "grad_norm") / number_in(want, "global_grad_norm"), 1,
                   1e-4);
        CHECK_NEAR(name, number_in(got, "lr"),
                   json_number_value(json_array_get(json_object_get(want, "lr_used_by_group"), 0)),
                   1e-15);
        json_decref(got);
        line = end + 1;
    }
    free(text);
}

/* SAT's own result of the same run, where it is recorded: its factors and ours. */
static void compare_with_sat(const char *dir, const char *adapter)
{
    const char *theirs = in_dir(dir, "train_lora_mp1"), *peft = at("sat");
    sheaf_weights_convert_report report;
    if (!exists(in_dir(theirs, "latest")))
        return;
    CHECK_OK(sheaf_convert(
        &report, &(sheaf_weights_convert_options){ .src = theirs, .dst = peft, .to = "peft" }));
    compare_adapters(adapter, peft, &(tolerance){ 2e-6, 1e-4, 0 });
    CHECK_OK(sheaf__remove_tree(peft));
}

static void check_recording(const char *dir, const json_t *recorded)
{
    static const int ranks[] = { 1, 3, 8 };
    json_t *config = json_of(dir, "mp1/model_config.json");
    const bool agent = json_object_get(config, "cross_image_pix") != NULL;
    const char *first = at("out1");
    make_adapter(dir, json_integer_value(json_object_get(recorded, "lora_rank")), at("adapter"));
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        const char *out = at(textf("out%d", ranks[i]));
        run_recipe(dir, recorded, agent, ranks[i], out);
        check_steps(dir, recorded, out);
        if (i == 0)
            compare_with_sat(dir, in_dir(out, "adapter"));
        else
            compare_adapters(in_dir(out, "adapter"), in_dir(first, "adapter"), NULL);
    }
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++)
        CHECK_OK(sheaf__remove_tree(at(textf("out%d", ranks[i]))));
    CHECK_OK(sheaf__remove_tree(at("adapter")));
}

TEST(test_recipes__reproduce_the_recorded_runs)
{
    find_in(golden(""), "train_lora_mp1_train.json", "mp1");
    for (int m = 0; m < models; m++) {
        json_t *recorded = json_of(model_dir[m], "train_lora_mp1_train.json");
        check_recording(model_dir[m], recorded);
    }
    assert_true(models > 0);
}

FIXTURE(make_scratch, remove_scratch);
