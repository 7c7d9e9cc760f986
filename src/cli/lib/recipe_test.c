/* recipe_test.c - settings as text, there and back. */
#include "tests/check.h"

#include <unistd.h>

#include "cli.h"

typedef struct settings {
    bool shuffle;
    int tp;
    int64_t steps;
    double lr;
    const char *model, *targets, *recipe;
} settings;

static int table(cli_option *to, settings *s)
{
    *s = (settings){ .shuffle = true, .tp = 1, .lr = 0.1 };
    const cli_option options[] = {
        { "shuffle", CLI_FLAG | CLI_FIXED, &s->shuffle, "" },
        { "tp", CLI_INT, &s->tp, "", .min = 1, .max = 64 },
        { "steps", CLI_COUNT, &s->steps, "" },
        { "lr", CLI_NUMBER | CLI_FIXED, &s->lr, "" },
        { "model", CLI_PATH | CLI_CONTENT, &s->model, "" },
        { "lora-targets", CLI_TEXT | CLI_FIXED, &s->targets, "" },
        { "recipe", CLI_PATH | CLI_UNSAVED, &s->recipe, "" },
        { 0 },
    };
    memcpy(to, options, sizeof options);
    return (int)ARRAY_LEN(options) - 1;
}

static const cli_command command = { "try", "a try", "usage: sheaf try\n", NULL, 0, 0 };

static sheaf_status *with_recipe(cli *cli, cli_option *options, settings *s, const char *text,
                                 int argc, char **args)
{
    char path[] = "/tmp/sheaf-recipe-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_true(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    table(options, s);
    *cli = (driver){ .out = stdout, .err = stderr, .command = &command };
    char *argv[16] = { (char *)"try", (char *)"--recipe", path };
    for (int i = 0; i < argc; i++)
        argv[3 + i] = args[i];
    sheaf_status *st = cli_parse(cli, options, NULL, 3 + argc, argv);
    unlink(path);
    return st;
}

TEST(test_recipe__all_forms_of_a_line)
{
    cli cli;
    settings s;
    cli_option options[CLI_MAX_OPTIONS];
    CHECK_OK(with_recipe(&cli, options, &s,
                         "\xef\xbb\xbf# a comment\n---\n\n  lr : 3e-5   # end\r\nno-shuffle: true\n"
                         "lora_targets: '.*\\.(q|k)_proj # ''x'''  # why\nmodel: a#b c\nsteps:\t7",
                         0, NULL));
    assert_true(s.lr == 3e-5);
    assert_false(s.shuffle);
    assert_string_equal(s.targets, ".*\\.(q|k)_proj # 'x'");
    assert_string_equal(s.model, "a#b c");
    assert_int_equal(s.steps, 7);
    driver_release(&cli);
}

TEST(test_recipe__a_flag_wins)
{
    cli cli;
    settings s;
    cli_option options[CLI_MAX_OPTIONS];
    char *args[] = { (char *)"--tp=5", (char *)"--no-shuffle" };
    CHECK_OK(with_recipe(&cli, options, &s, "tp: 2\nshuffle: true\nlr: 2\n", 2, args));
    assert_int_equal(s.tp, 5);
    assert_false(s.shuffle);
    assert_true(s.lr == 2);
    driver_release(&cli);
    CHECK_FAILS(with_recipe(&cli, options, &s, "tp: 99\n", 2, args), SHEAF_E_ARG, ":1: 'tp'");
    driver_release(&cli);
}

static const struct {
    const char *text, *part;
} bad[] = {
    { "lr: 1\nlearning_rat: 3\n", ":2: 'learning-rat'" },
    { "stepps: 3\n", "steps" },
    { "lr: 1\nlr: 2\n", "stands twice" },
    { "lr: 1\nno-shuffle: true\nshuffle: true\n", "stands twice" },
    { "lr\n", "key: value" },
    { ": 3\n", "key: value" },
    { "lr:3\n", "key: value" },
    { "lr: fast\n", ":1: 'lr'" },
    { "lora-targets: [a, b]\n", "a list without brackets | [a, b] | lora-targets: a, b" },
    { "lora-targets: [a-z]+\n", "single quotes" },
    { "lora-targets: \"a\"\n", "single quotes" },
    { "lora-targets: 'a\n", "| a closing single quote" },
    { "lora-targets: 'a' b\n", "nothing after a closing single quote" },
    { "recipe: other\n", ":1: 'recipe'" },
    { "recipe: other\n", "give `recipe` on the command line" },
    { "json: true\n", ":1: 'json'" },
    { "resume: true\n", ":1: 'resume'" },
};

TEST(test_recipe__bad_lines_are_named)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        cli cli;
        settings s;
        cli_option options[CLI_MAX_OPTIONS];
        CHECK_FAILS(with_recipe(&cli, options, &s, bad[i].text, 0, NULL), SHEAF_E_ARG, bad[i].part);
        driver_release(&cli);
    }
}

TEST(test_recipe__missing_file_is_an_io_error)
{
    cli_option options[CLI_MAX_OPTIONS];
    settings s;
    table(options, &s);
    cli cli = { .command = &command };
    CHECK_FAILS(cli_recipe_read(&cli, options, "/nonexistent/recipe"), SHEAF_E_IO,
                "/nonexistent/recipe");
}

TEST(test_settings__written_text_reads_back_to_the_same_values)
{
    static const char *const texts[] = { "plain", ".*\\.(q|k)", "it's", " spaces ", "a: b",
                                         "-x",    "a #b",       "'",    "x:" };
    static const double numbers[] = {
        0.1, 1e-4, 1.0 / 3, 5e-324, 1.7976931348623157e308, 12345678901234567.0
    };
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        settings a, b;
        cli_option one[CLI_MAX_OPTIONS], two[CLI_MAX_OPTIONS];
        table(one, &a);
        a = (settings){ .tp = 3,
                        .steps = 1000000,
                        .lr = numbers[i % ARRAY_LEN(numbers)],
                        .targets = texts[i],
                        .model = texts[(i + 3) % ARRAY_LEN(texts)] };
        char *text, *again;
        CHECK_OK(sheaf__settings_text(&text, one, false));
        cli cli;
        CHECK_OK(with_recipe(&cli, two, &b, text, 0, NULL));
        assert_true(b.shuffle == a.shuffle && b.tp == a.tp && b.steps == a.steps && b.lr == a.lr);
        assert_string_equal(a.targets, b.targets);
        assert_string_equal(a.model, b.model);
        CHECK_OK(sheaf__settings_text(&again, two, false));
        assert_string_equal(text, again);
        free(text);
        free(again);
        driver_release(&cli);
    }
}

TEST(test_settings__only_fixed_ones_hold_no_path_or_rank)
{
    settings s;
    cli_option options[CLI_MAX_OPTIONS];
    table(options, &s);
    s.model = "/some/where";
    char *text;
    CHECK_OK(sheaf__settings_text(&text, options, true));
    assert_string_equal(text, "shuffle: true\nlr: 0.1\n");
    free(text);
    s.targets = "a\nb";
    CHECK_FAILS(sheaf__settings_text(&text, options, true), SHEAF_E_ARG, "`lora-targets`");
}

/* Flags of the second start, and what is wrong with them (NULL = nothing). */
static const struct {
    const char *flag, *part;
} resumed[] = {
    { "--tp=7", NULL },
    { "--steps=11", NULL },
    { "--model=elsewhere", NULL },
    { "--lr=0.250", NULL },
    { "--lr=0.5", "0.25, as the run began | 0.5" },
    { "--no-shuffle", "true, as the run began | false" },
    { "--lora-targets=x", "nothing, as the run began | x" },
};

TEST(test_settings__resume_takes_stored_values_and_refuses_changes)
{
    for (size_t i = 0; i < ARRAY_LEN(resumed); i++) {
        settings s;
        cli_option options[CLI_MAX_OPTIONS];
        table(options, &s);
        cli cli = { .out = stdout, .err = stderr, .command = &command };
        char *argv[] = { (char *)"try", (char *)resumed[i].flag, NULL };
        CHECK_OK(cli_parse(&cli, options, NULL, 2, argv));
        sheaf_status *st = sheaf__settings_resume(
            &cli.settings, options, "shuffle: true\ntp: 2\nsteps: 9\nlr: 0.25\nmodel: here\n",
            "run");
        if (resumed[i].part != NULL) {
            CHECK_FAILS(st, SHEAF_E_ARG, resumed[i].part);
        } else {
            CHECK_OK(st);
            assert_int_equal(s.tp, i == 0 ? 7 : 2);
            assert_int_equal(s.steps, i == 1 ? 11 : 9);
            assert_string_equal(s.model, i == 2 ? "elsewhere" : "here");
            assert_true(s.lr == 0.25);
        }
        driver_release(&cli);
    }
}
