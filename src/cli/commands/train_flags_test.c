/* train_flags_test.c - the flags that design and documents promise are there. */
#include "tests/check.h"

#include "cli/lib/cli.h"
#include "library/train_settings.h"

static const cli_command command = { "train", "fine-tune", "usage: sheaf train\n", NULL, 0, 0 };

static sheaf_status *parse(sheaf_train_options *o, const char *line)
{
    static char copy[2048]; /* values point into it */
    snprintf(copy, sizeof copy, "%s", line);
    char *argv[96] = { (char *)"train" };
    int argc = 1;
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    sheaf_train_options_default(o);
    cli_option table[CLI_MAX_OPTIONS];
    sheaf__train_settings(table, o, false);
    cli cli = { .out = stdout, .err = stderr, .command = &command };
    sheaf_status *st = cli_parse(&cli, table, NULL, argc, argv);
    TRY(st, sheaf__train_settings_check(&cli.settings, table, o));
    return sheaf__status_spell(st, NULL);
}

TEST(test_train__every_promised_flag)
{
    sheaf_train_options o;
    CHECK_OK(parse(
        &o,
        "--model M --data D --out O --tp 3 --dp 1 --slices 4 --transport threads --threads 5 --method lora "
        "--adapter A --lora-rank 4 --lora-alpha 7.5 --lora-targets a,b,c --steps 9 --micro-batch 2 "
        "--accumulate 3 --seq 64 --no-shuffle --lr 1e-3 --schedule cosine --warmup 2 --weight-decay .1 "
        "--beta1 .8 --beta2 .95 --eps 1e-6 --clip 0.5 --dtype bfloat16 --seed 7 --save-every 4 --keep 1 "
        "--json --config C --sums tiles"));
    assert_string_equal(o.model, "M");
    assert_string_equal(o.data, "D");
    assert_string_equal(o.out, "O");
    assert_string_equal(o.adapter, "A");
    assert_string_equal(o.config, "C");
    assert_string_equal(o.lora_targets, "a,b,c");
    assert_true(o.tp == 3 && o.dp == 1 && o.slices == 4 && o.transport == SHEAF_TRANSPORT_THREADS &&
                o.threads == 5);
    assert_true(o.method == SHEAF_METHOD_LORA && o.lora_rank == 4 && o.lora_alpha == 7.5 &&
                o.steps == 9);
    assert_true(o.micro_batch == 2 && o.accumulate == 3 && o.seq == 64 && !o.shuffle &&
                o.lr == 1e-3);
    assert_true(o.schedule == SHEAF_SCHEDULE_COSINE && o.warmup == 2 && o.weight_decay == .1 &&
                o.beta1 == .8);
    assert_true(o.beta2 == .95 && o.eps == 1e-6 && o.clip == .5 && o.dtype == SHEAF_BF16 &&
                o.seed == 7);
    assert_true(o.save_every == 4 && o.keep == 1 && !o.resume && o.sums == SHEAF_SUMS_TILES);
}

TEST(test_train__defaults_are_the_trainers)
{
    sheaf_train_options o;
    CHECK_OK(parse(&o, "--model M --data D --out O --steps 1"));
    assert_true(o.lr == 5e-5 && o.beta1 == .9 && o.beta2 == .999 && o.eps == 1e-8 &&
                o.weight_decay == 0);
    assert_true(o.clip == 1 && o.schedule == SHEAF_SCHEDULE_LINEAR && o.warmup == 0 &&
                o.slices == 8 && o.shuffle);
    assert_true(o.lora_rank == 8 && o.lora_alpha == 8 &&
                o.dtype == SHEAF_BOOL); /* the model's own */
}

TEST(test_train__what_recipes_of_vision_models_need)
{
    sheaf_train_options o;
    CHECK_OK(parse(
        &o,
        "--model M --data D --out O --steps 10 --train *vit*.{46..54}.mlp*,*boi --lr-scale *vit*=0.1 --schedule sat-linear "
        "--warmup-ratio .02"));
    assert_string_equal(o.train, "*vit*.{46..54}.mlp*,*boi");
    assert_string_equal(o.lr_scale, "*vit*=0.1");
    const sheaf_schedule s = sheaf_train_options_schedule(&o);
    assert_true(s.kind == SHEAF_SCHEDULE_SAT_LINEAR && s.steps == 10 && s.warmup == 0 &&
                s.warmup_ratio == .02);
    assert_true(s.decay_ratio == .1 && s.held_steps == 100 && s.held_rate == .05); /* SAT's */
    CHECK_OK(
        parse(&o, "--model M --data D --out O --steps 10 --schedule sat-cosine --min-lr-ratio .2"));
    assert_true(sheaf_train_options_schedule(&o).decay_ratio == .2);
    CHECK_OK(parse(
        &o,
        "--model M --data D --out O --steps 10 --schedule wsd --decay-steps 4 --min-lr-ratio .2"));
    assert_true(sheaf_train_options_schedule(&o).decay == 4 &&
                sheaf_train_options_schedule(&o).min_ratio == .2);
    CHECK_OK(parse(
        &o, "--model M --data D --out O --steps 10 --warmup 20")); /* stops while it warms up */
}

static const struct {
    const char *more, *part;
} bad[] = {
    { "--method full --train a", "--method lora or head beside it" },
    { "--method full --quantize nf4", "--quantize | --method lora or head beside it" },
    { "--offload-dir a", "--offload-dir | --offload beside it" },
    { "--offload none --offload-dir a", "--offload-dir | --offload beside it" },
    { "--min-lr-ratio .1", "--schedule cosine, wsd or sat-cosine beside it | linear" },
    { "--schedule sat-linear --min-lr-ratio .1", "--schedule cosine, wsd or sat-cosine beside it" },
    { "--schedule cosine --min-lr-ratio 2", "--min-lr-ratio" },
    { "--schedule wsd", "--schedule wsd | --decay-steps N beside it" },
    { "--schedule cosine --decay-steps 3", "--decay-steps | --schedule wsd beside it | cosine" },
    { "--warmup 3 --warmup-ratio .1", "--warmup and --warmup-ratio" },
    { "--warmup-ratio 1.1", "at most 1" },
    { "--schedule sat", "sat-cosine" },
    { "--slices 3", "a power of two" },
    { "--slices 4 --tp 5", "at most 4, the number of slices | 5" },
    { "--tp 9", "at most 8" },
    { "--dp 3", "a divisor of 4" },
    { "--loss-scale 1024", "--loss-scale | --dtype float16 beside it" },
    { "--loss-scale-window 9 --dtype bfloat16", "--dtype float16 and a scale that is dynamic" },
    { "--dtype float16 --loss-scale 512 --loss-scale-min 2", "a scale that is dynamic" },
    { "--dtype float16 --loss-scale 1000", "a power of two" },
    { "--dtype float16 --loss-scale-init 3", "--loss-scale-init | a power of two" },
    { "--dtype float12", "--dtype | float32, bfloat16 or float16 | float12" },
    { "--method full --lora-rank 3", "--method lora beside it" },
    { "--method head --adapter A", "--method lora beside it" },
    { "--lora-rank 0", "at least 1" },
    { "--lora-targets=", "--lora-targets | a text | nothing" },
    { "--lora-dropout 1", "below 1" },
    { "--beta1 1", "below 1" },
    { "--eps 0", "above 0" },
    { "--micro-batch 0", "at least 1" },
    { "--epochs 2", "--steps and --epochs | one of the two" },
    { "--epochs -1", "above 0" },
    { "--eval-split 1", "below 1" },
    { "--min-delta 0.1 --eval-split 0.1", "--eval-every" },
    { "--max-time 2m1h", "--max-time | a time" },
    { "--max-time 30m5", "--max-time | a time" },
    { "--max-time .", "--max-time | a time" },
    { "--max-time m", "--max-time | a time" },
};

TEST(test_train__what_cannot_be_is_refused)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        char line[256];
        sheaf_train_options o;
        snprintf(line, sizeof line, "--model M --data D --out O --steps 1 %s", bad[i].more);
        CHECK_FAILS(parse(&o, line), SHEAF_E_ARG, bad[i].part);
    }
    sheaf_train_options o;
    CHECK_FAILS(parse(&o, "--model M --data D --out O"), SHEAF_E_ARG, "--steps is missing");
    CHECK_FAILS(parse(&o, "M"), SHEAF_E_ARG,
                "--data (or --rollouts), --out and --steps (or --epochs) are missing");
    CHECK_OK(parse(&o, "M D -o O --steps 1"));
    assert_string_equal(o.data, "D");
    assert_string_equal(o.out, "O");
    CHECK_FAILS(parse(&o, "--resume"), SHEAF_E_ARG, "--out is missing");
    CHECK_OK(parse(&o, "M --rollouts R -o O --steps 1"));
    assert_string_equal(o.data, "R");
    CHECK_FAILS(parse(&o, "M --data D --rollouts R -o O --steps 1"), SHEAF_E_ARG, "stands twice");
    CHECK_FAILS(parse(&o, "M D --rollouts R -o O --steps 1"), SHEAF_E_ARG, "D");
    CHECK_FAILS(parse(&o, "--model M --data D --out O --steps 1 --transport pigeons"), SHEAF_E_ARG,
                "--transport");
    CHECK_FAILS(
        parse(&o, "--resume --out O"), SHEAF_E_ARG,
        "--model, --data (or --rollouts) and --steps (or --epochs) are missing"); /* nothing stored
                                                                                     here */
}

TEST(test_train__times_have_units)
{
    static const struct {
        const char *text, *shown;
        double seconds;
    } times[] = {
        { "90", "90", 90 },        { "0.25", "0.25", .25 },  { "1d12h", "129600", 129600 },
        { "2h30m", "9000", 9000 }, { "1.5h", "5400", 5400 }, { "1h1s", "3601", 3601 }
    };
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        sheaf_train_options o;
        cli_option table[CLI_MAX_OPTIONS];
        sheaf__train_settings(table, &o, false);
        const cli_option *option = sheaf__setting_find(table, "max-time");
        CHECK_OK(sheaf__setting_set(option, times[i].text, "--max-time"));
        assert_true(o.max_time == times[i].seconds);
        char *shown = sheaf__setting_show(option);
        assert_string_equal(shown, times[i].shown);
        free(shown);
    }
}

/* Of one that came later nothing is written down while it is not used. */
TEST(test_train__late_settings_are_silent)
{
    sheaf_train_options o;
    cli_option table[CLI_MAX_OPTIONS];
    char *text = NULL;
    sheaf_train_options_default(&o);
    sheaf__train_settings(table, &o, false);
    o.steps = 3;
    CHECK_OK(sheaf__settings_text(&text, table, false));
    for (const cli_option *x = table; x->name != NULL; x++) {
        char line[64];
        snprintf(line, sizeof line, "\n%s:", x->name);
        if ((x->kind & SHEAF__IS_LATE) && strcmp(x->name, "steps") != 0)
            assert_null(strstr(text, line));
    }
    assert_non_null(strstr(text, "\nsteps: 3\n"));
    free(text);
    o.eval_split = .5;
    o.use_best = true;
    CHECK_OK(sheaf__settings_text(&text, table, false));
    assert_non_null(strstr(text, "\neval-split: 0.5\n"));
    assert_non_null(strstr(text, "\nuse-best: true\n"));
    free(text);
}

TEST(test_train__only_these_may_change_on_resume)
{
    static const char may_change[] =
        "tp dp transport threads checkpointing isa steps save-every export-every keep resume "
        "recipe model config data tokenizer out adapter began-in force epochs eval-data "
        "patience use-best max-time data-cache mpi hosts hostfile heartbeat hang-after "
        "restarts device offload offload-dir tensorboard metrics-port add-tokens rollouts "
        "reward-time reference-cache";
    sheaf_train_options o;
    sheaf_train_options_default(&o);
    cli_option table[CLI_MAX_OPTIONS];
    sheaf__train_settings(table, &o, false);
    for (const cli_option *x = table; x->name != NULL; x++)
        if (!(x->kind & CLI_FIXED) != sheaf__is_listed(may_change, x->name, strlen(x->name)))
            fail_msg("%s", x->name);
}

TEST(test_train__its_lora_options)
{
    sheaf_train_options o;
    CHECK_OK(parse(
        &o,
        "--model M --data D --out O --steps 1 --lora-targets q_proj,v_proj --lora-rank 4 --lora-rslora "
        "--lora-bias lora_only --lora-layers 0,2 --lora-rank-pattern q_proj=2,layers.1=6 "
        "--lora-alpha-pattern v_proj=2.5 --modules-to-save lm_head --lora-exclude .*mlp.* --lora-dropout .1"));
    sheaf_lora_options l;
    CHECK_OK(sheaf_train_options_lora(&l, &o));
    assert_true(l.rank == 4 && l.alpha == 8 && l.rslora && l.dropout == .1 &&
                l.bias == SHEAF_BIAS_LORA_ONLY);
    assert_true(l.targets.n == 2 && l.targets.regex == NULL && !l.all_linear);
    assert_string_equal(l.targets.list[1], "v_proj");
    assert_true(l.nlayers == 2 && l.layers[1] == 2);
    assert_true(l.rank_pattern.n == 2 && l.rank_pattern.at[1].value == 6 && l.alpha_pattern.n == 1);
    assert_string_equal(l.rank_pattern.at[0].key, "q_proj");
    assert_true(l.alpha_pattern.at[0].value == 2.5 && l.modules_to_save.n == 1);
    assert_string_equal(l.exclude.regex, ".*mlp.*");
    assert_string_equal(l.base_name, "M");
    sheaf_lora_options_release(&l);
    o.lora_targets = "all-linear";
    CHECK_OK(sheaf_train_options_lora(&l, &o));
    assert_true(l.all_linear);
    sheaf_lora_options_release(&l);
    o.lora_targets = ".*(q|v)_proj";
    CHECK_OK(sheaf_train_options_lora(&l, &o));
    assert_string_equal(l.targets.regex, ".*(q|v)_proj");
    sheaf_lora_options_release(&l);
    o.lora_rank_pattern = "q_proj";
    CHECK_FAILS(sheaf_train_options_lora(&l, &o), SHEAF_E_ARG, "`lora-rank-pattern`");
    o.lora_rank_pattern = "q_proj=1.5";
    CHECK_FAILS(sheaf_train_options_lora(&l, &o), SHEAF_E_ARG, "`lora-rank-pattern`");
    o.lora_rank_pattern = NULL;
    o.lora_layers = "1,x";
    CHECK_FAILS(sheaf_train_options_lora(&l, &o), SHEAF_E_ARG, "`lora-layers`");
}

/* Of what a run keeps only int8 is part of its result: the rest is not stored as such, and may
 * change. */
#define REFUSED "`keep-activations` cannot change when a run is resumed | "
TEST(test_train__what_is_recomputed_may_change_on_resume)
{
    static const struct {
        const char *given, *stored, *fails; /* fails: NULL: it goes on with `then` */
        sheaf__kept then;
    } cases[] = {
        { "", "", NULL, SHEAF__KEPT_ALL },
        { "", "int8", NULL, SHEAF__KEPT_INT8 },
        { "int8", "int8", NULL, SHEAF__KEPT_INT8 },
        { "", "attention", NULL, SHEAF__KEPT_ATTENTION },
        { "all", "attention", NULL, SHEAF__KEPT_ALL },
        { "attention", "", NULL, SHEAF__KEPT_ATTENTION },
        { "none", "attention", NULL, SHEAF__KEPT_NONE },
        { "int8", "", REFUSED "all, as the run began | int8 |" },
        { "int8", "attention", REFUSED "all, as the run began | int8 |" },
        { "all", "int8", REFUSED "int8, as the run began | all |" },
        { "none", "int8", REFUSED "int8, as the run began | none |" },
        { "attention", "int8", REFUSED "int8, as the run began | attention |" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        sheaf_train_options o;
        cli_option table[CLI_MAX_OPTIONS];
        sheaf__settings settings = { 0 };
        char *began, *stored, *fixed;
        sheaf_train_options_default(&o);
        sheaf__train_settings(table, &o, false);
        CHECK_OK(sheaf__settings_text(&began, table, true));
        const sheaf__setting *kept = sheaf__setting_find(table, "keep-activations");
        if (cases[i].given[0] != '\0') {
            CHECK_OK(sheaf__setting_set(kept, cases[i].given, "--keep-activations"));
            settings.given[kept - table] = true;
        }
        const bool any = cases[i].stored[0] != '\0';
        assert_true(asprintf(&stored, "%s%s%s%s", began, any ? "keep-activations: " : "",
                             cases[i].stored, any ? "\n" : "") > 0);
        sheaf_status *st = sheaf__settings_resume(&settings, table, stored, "settings");
        if (cases[i].fails != NULL) {
            CHECK_FAILS(st, SHEAF_E_ARG, cases[i].fails);
        } else {
            CHECK_OK(st);
            assert_int_equal(o.kept, cases[i].then);
            CHECK_OK(sheaf__settings_text(&fixed, table, true));
            assert_int_equal(strstr(fixed, "keep-activations") != NULL, o.kept == SHEAF__KEPT_INT8);
            free(fixed);
        }
        sheaf__settings_release(&settings);
        free(began);
        free(stored);
    }
}
