/* recipes_test.c - the recipes cogvlm-lora and cogagent-lora do what SAT did: from the recorded
 * LoRA factors, the losses, gradient norms and rates of every recorded step, at 1, 3 and 8 ranks
 * with the same adapter.
 *
 * Every folder of $SHEAF_GOLDEN with train_lora_mp1_train.json and mp1/ is run; none found is a
 * failure. Tolerances are those of the recordings' README. */
#include "tests/files.h"
#include "tests/golden.h"

#include "base/json.h"
#include "cli/lib/cli.h"
#include "dialects/peft/peft.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "models/open.h"

/* "dir/name"; the last eight results stay valid. */
static const char *in_dir(const char *dir, const char *name)
{
    static char path[8][1600];
    static int next;
    char *p = path[next++ % 8];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

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
        char name[600];
        snprintf(name, sizeof name, "%s.matrix_A.%d", m->base->module, (int)(r / m->rank));
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

static double number(const json_t *object, const char *key)
{
    return json_number_value(json_object_get(object, key));
}

/* The recorded run's own numbers over the recipe's, so that other recordings are reproduced too. */
static void run(const char *dir, const json_t *recorded, bool agent, int tp, const char *out)
{
    const json_t *deepspeed = json_object_get(recorded, "deepspeed_config"),
                 *schedule = json_object_get(recorded, "scheduler");
    const json_t *adamw = json_object_get(json_object_get(deepspeed, "optimizer"), "params"),
                 *betas = json_object_get(adamw, "betas");
    const double warmup = number(schedule, "warmup") * number(schedule, "train_iters");
    const char *source = getenv("SHEAF_SOURCE_ROOT");
    static char text[24][1700];
    int n = 0;
    char *argv[40] = { (char *)"sheaf", (char *)"train", (char *)"--no-shuffle" };
#define FLAG(...) (snprintf(text[n], sizeof text[0], __VA_ARGS__), argv[3 + n] = text[n], n++)
    FLAG("--recipe=%s/recipes/%s.recipe", source == NULL ? "." : source,
         agent ? "cogagent-lora" : "cogvlm-lora");
    FLAG("--model=%s/mp1", dir);
    FLAG("--data=%s/inputs.safetensors", dir);
    FLAG("--adapter=%s", at("adapter"));
    FLAG("--out=%s", out);
    FLAG("--tp=%d", tp);
    FLAG("--dtype=float32");
    FLAG("--seq=0");
    FLAG("--micro-batch=%d", (int)number(deepspeed, "train_micro_batch_size_per_gpu"));
    FLAG("--accumulate=%d", (int)number(deepspeed, "gradient_accumulation_steps"));
    FLAG("--clip=%.17g", number(deepspeed, "gradient_clipping"));
    FLAG("--lr=%.17g", number(adamw, "lr"));
    FLAG("--beta1=%.17g", json_number_value(json_array_get(betas, 0)));
    FLAG("--beta2=%.17g", json_number_value(json_array_get(betas, 1)));
    FLAG("--eps=%.17g", number(adamw, "eps"));
    FLAG("--weight-decay=%.17g", number(adamw, "weight_decay"));
    FLAG("--schedule=sat-%s", json_string_value(json_object_get(schedule, "style")));
    FLAG("--steps=%d", (int)json_array_size(json_object_get(
                           recorded, "steps"))); /* fewer than train_iters, within warm-up */
    FLAG("--warmup=%.0f", warmup);
    FLAG("--warmup-ratio=0");
#undef FLAG
    FILE *output = tmpfile(), *errors = tmpfile();
    assert_true(output != NULL && errors != NULL);
    if (cli_main(3 + n, argv, output, errors) != 0) {
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
        char *end = strchr(line, '\n'), name[1700];
        assert_non_null(end);
        json_t *got;
        CHECK_OK(sheaf__json_parse(&got, line, (size_t)(end - line)));
        snprintf(name, sizeof name, "%s, step %d", dir, (int)i + 1);
        CHECK_NEAR(name, number(got, "loss"), number(want, "loss"), 5e-5);
        CHECK_NEAR(name, number(got, "grad_norm") / number(want, "global_grad_norm"), 1, 1e-4);
        CHECK_NEAR(name, number(got, "lr"),
                   json_number_value(json_array_get(json_object_get(want, "lr_used_by_group"), 0)),
                   1e-15);
        json_decref(got);
        line = end + 1;
    }
    free(text);
}

static int check_recording(const char *dir)
{
    static const int ranks[] = { 1, 3, 8 };
    json_t *config, *recorded;
    if (sheaf__path_kind(in_dir(dir, "train_lora_mp1_train.json")) != SHEAF_PATH_FILE ||
        sheaf__path_kind(in_dir(dir, "mp1")) != SHEAF_PATH_DIR)
        return 0;
    CHECK_OK(sheaf__json_load(&recorded, in_dir(dir, "train_lora_mp1_train.json")));
    CHECK_OK(sheaf__json_load(&config, in_dir(dir, "mp1/model_config.json")));
    const bool agent = json_object_get(config, "cross_image_pix") != NULL;
    json_decref(config);
    make_adapter(dir, json_integer_value(json_object_get(recorded, "lora_rank")), at("adapter"));
    char *first = NULL, *bytes;
    size_t first_size = 0, size;
    for (size_t i = 0; i < ARRAY_LEN(ranks); i++) {
        const char *out = at("out");
        run(dir, recorded, agent, ranks[i], out);
        check_steps(dir, recorded, out);
        CHECK_OK(sheaf__file_read_all(&bytes, &size,
                                      in_dir(out, "adapter/adapter_model.safetensors"), 1 << 28));
        if (first == NULL) {
            first = bytes;
            first_size = size;
        } else {
            assert_int_equal(size, first_size);
            CHECK_BYTES(dir, bytes, first, size);
            free(bytes);
        }
        CHECK_OK(sheaf__remove_tree(out));
    }
    free(first);
    json_decref(recorded);
    CHECK_OK(sheaf__remove_tree(at("adapter")));
    return 1;
}

TEST(test_recipes__reproduce_the_recorded_runs)
{
    assert_true(golden_each("*/", check_recording) > 0 || !golden_is_full());
}

FIXTURE(make_scratch, remove_scratch);
