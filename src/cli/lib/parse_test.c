/* parse_test.c - flags, words and values as a user types them. */
#include <glob.h>

#include "tests/check.h"
#include "tests/sources.h"

#include "base/file.h"
#include "cli.h"

typedef struct settings {
    bool shuffle, resume;
    int tp;
    int64_t steps;
    uint64_t seed;
    double lr, beta;
    int method;
    const char *out, *text;
} settings;

static const cli_choice methods[] = { { "lora", 3 }, { "head", 5 }, { "full", 7 }, { 0 } };
static const settings defaults = { .shuffle = true, .tp = 1, .lr = 0.5, .method = 3 };

static int parse(settings *s, cli_paths *paths, sheaf_status **st, cli *cli, int argc,
                 const char **args)
{
    *s = defaults;
    const cli_option options[] = {
        { "shuffle", CLI_FLAG, &s->shuffle, "file order" },
        { "resume", CLI_FLAG, &s->resume, "go on" },
        { "tp", CLI_INT, &s->tp, "ranks", .min = 1, .max = 64 },
        { "steps", CLI_COUNT | CLI_NEEDED, &s->steps, "steps", .max = 1e15 },
        { "seed", CLI_SEED, &s->seed, "seed" },
        { "lr", CLI_NUMBER, &s->lr, "rate", .above = true },
        { "beta", CLI_NUMBER, &s->beta, "memory", .max = 1, .below = true },
        { "method", CLI_CHOICE, &s->method, "what", .choices = methods },
        { "out", CLI_PATH, &s->out, "folder" },
        { "text", CLI_TEXT, &s->text, "text" },
        { 0 },
    };
    static char *argv[32]; /* paths point into it */
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)args[i];
    argv[argc] = NULL;
    *st = sheaf__status_spell(cli_parse(cli, options, paths, argc, argv), NULL);
    return 0;
}

static const cli_command command = { "try", "a try", "usage: sheaf try A B\n", NULL, 0, 2 };

#define ARGS(...) ((const char *[]){ "try", __VA_ARGS__ })
#define PARSE(s, paths, st, ...)                                                                   \
    cli cli_ = { .out = stdout, .err = stderr, .command = &command };                              \
    parse(s, paths, st, &cli_, (int)ARRAY_LEN(ARGS(__VA_ARGS__)), ARGS(__VA_ARGS__))

TEST(test_flags__every_kind_in_both_forms)
{
    settings s;
    cli_paths paths;
    sheaf_status *st;
    PARSE(&s, &paths, &st, "first", "--tp", "3", "--lr=1e-4", "--no-shuffle", "--method", "full",
          "--steps=10", "second", "--seed", "18446744073709551615", "--out", "a b",
          "--text=", "--resume", "--beta", "0");
    CHECK_OK(st);
    assert_int_equal(s.tp, 3);
    assert_true(s.lr == 1e-4 && s.beta == 0);
    assert_false(s.shuffle);
    assert_true(s.resume);
    assert_int_equal(s.method, 7);
    assert_int_equal(s.steps, 10);
    assert_true(s.seed == UINT64_MAX);
    assert_string_equal(s.out, "a b");
    assert_string_equal(s.text, "");
    assert_int_equal(paths.count, 2);
    assert_string_equal(paths.first[0], "first");
    assert_string_equal(paths.last, "second");
}

/* Processes that are begun anew get the words again: none is lost, none there twice. */
TEST(test_flags__all_words_are_still_there)
{
    const cli_option options[] = { { "tp", CLI_INT, &(int){ 1 }, "ranks", .max = 64 }, { 0 } };
    cli cli = { .out = stdout, .err = stderr, .command = &command };
    char words[][8] = { "try", "--tp", "3", "a", "b" };
    char *argv[] = { words[0], words[1], words[2], words[3], words[4], NULL };
    static const char *const want[] = { "try", "a", "b", "--tp", "3" };
    cli_paths paths;
    CHECK_OK(cli_parse(&cli, options, &paths, 5, argv));
    for (int i = 0; i < 5; i++)
        assert_string_equal(argv[i], want[i]);
    driver_release(&cli);
}

TEST(test_flags__double_dash_ends_them)
{
    settings s;
    cli_paths paths;
    sheaf_status *st;
    PARSE(&s, &paths, &st, "--steps", "1", "--", "--json", "-");
    CHECK_OK(st);
    assert_int_equal(paths.count, 2);
    assert_string_equal(paths.word[0], "--json");
    assert_string_equal(paths.word[1], "-");
    assert_false(cli_.json);
}

TEST(test_flags__defaults_stay_when_not_given)
{
    settings s;
    sheaf_status *st;
    PARSE(&s, NULL, &st, "--steps", "1");
    CHECK_OK(st);
    assert_true(s.shuffle && s.tp == 1 && s.lr == 0.5 && s.method == 3 && s.out == NULL);
}

static const struct {
    const char *flag, *value, *part;
} bad[] = {
    { "--tp", "0", "a whole number, at least 1 and at most 64 | 0" },
    { "--tp", "65", "at most 64" },
    { "--tp", "3x", "3x" },
    { "--tp", "", "nothing" },
    { "--tp", " 3", "a whole number" },
    { "--tp", "99999999999999999999", "a whole number" },
    { "--tp", "+3", "a whole number" },
    { "--tp", "0x10", "a whole number" },
    { "--steps", "-1", "at least 0" },
    { "--steps", "1e3", "a whole number" },
    { "--steps", "9223372036854775807", "at most 1e+15" },
    { "--seed", "-1", "a whole number, 0 to 18446744073709551615" },
    { "--seed", "18446744073709551616", "a whole number" },
    { "--lr", "0", "a number, above 0" },
    { "--lr", "nan", "a number, above 0" },
    { "--lr", "inf", "a number" },
    { "--lr", "1e999", "a number" },
    { "--lr", "0x1p3", "a number" },
    { "--lr", "1e-4 ", "a number" },
    { "--lr", "1,5", "a number" },
    { "--beta", "1", "at least 0 and below 1" },
    { "--method", "lara", "lora, head or full | lara | lora" },
    { "--method", "zzzzzz", "lora, head or full" },
    { "--out", "", "a path" },
    { "--shuffle=maybe", "x", "true or false" },
    { "--stepps", "3", "--steps" },
    { "--no-shufle", "3", "--shuffle" },
    { "--no-tp", "3", "a flag of sheaf try" },
    { "--qqqqqqqqqqqqqqqq", "3", "sheaf try --help" },
    { "-x", "3", "a flag of sheaf try" },
    { "--=3", "3", "a flag of sheaf try" },
};

TEST(test_flags__wrong_values_are_refused_with_what_is_allowed)
{
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        settings s;
        cli_paths paths;
        sheaf_status *st;
        PARSE(&s, &paths, &st, "--text", "a", bad[i].flag, bad[i].value);
        CHECK_FAILS(st, SHEAF_E_ARG, bad[i].part);
    }
}

/* Whole lines; `part` NULL: sound, with that value of --text. */
static const struct {
    const char *words[5], *part, *text;
} lines[] = {
    { { "--steps" }, "a value after it" },
    { { "--steps", "--tp", "2" }, "a value before --tp" },
    { { "--text", "--steps", "2" }, "a value before --steps |  | --text=--steps" },
    { { "--text", "--no-shuffle" }, "a value before --no-shuffle" },
    { { "--text", "--json" }, "a value before --json" },
    { { "--text=--tp", "--steps", "2" }, NULL, "--tp" },
    { { "--steps", "2", "--text", "--more" }, NULL, "--more" },
    { { "--steps", "2", "a", "b", "stray" }, "3 words beside flags, 'stray' the last" },
    { { "--steps", "2", "a", "" },
      "sheaf try | the name of a file or folder | an empty word, number 2 of 2" },
    { { "--tp", "2", "--tp=2" }, "stands twice" },
    { { "--tp", "2" }, "--steps is missing" },
    { { "--text", "a\xff" }, "a text in UTF-8" },
    { { "--resume" }, NULL, NULL }, /* a resumed run has its steps stored */
    { { "a", "b", "c" }, "sheaf try A B | 3 words" },
};

TEST(test_flags__missing_value_word_and_repetition)
{
    for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
        settings s;
        sheaf_status *st;
        cli cli = { .out = stdout, .err = stderr, .command = &command };
        const char *args[6] = { "try" };
        int argc = 1;
        for (; argc < 6 && lines[i].words[argc - 1] != NULL; argc++)
            args[argc] = lines[i].words[argc - 1];
        parse(&s, NULL, &st, &cli, argc, args);
        if (lines[i].part != NULL) {
            CHECK_FAILS(st, SHEAF_E_ARG, lines[i].part);
            continue;
        }
        CHECK_OK(st);
        assert_true(lines[i].text == NULL || strcmp(s.text, lines[i].text) == 0);
    }
}

TEST(test_cpu__too_old_is_told_by_name)
{
    CHECK_OK(cli_need_cpu(true, true));
    CHECK_FAILS(cli_need_cpu(false, true), SHEAF_E_UNSUPPORTED, "no AVX2");
    CHECK_FAILS(cli_need_cpu(true, false), SHEAF_E_UNSUPPORTED, "no FMA");
    CHECK_FAILS(cli_need_cpu(false, false), SHEAF_E_UNSUPPORTED, "no AVX2 and no FMA");
}

/* Runs the whole command; gives its exit code and what it wrote. */
static int whole(char **out, char **err, int argc, const char **args)
{
    size_t nout, nerr;
    FILE *o = open_memstream(out, &nout), *e = open_memstream(err, &nerr);
    char *argv[16];
    for (int i = 0; i < argc; i++)
        argv[i] = (char *)args[i];
    argv[argc] = NULL;
    const int code = cli_main(argc, argv, o, e);
    fclose(o);
    fclose(e);
    return code;
}

TEST(test_command__each_explains_itself)
{
    for (const cli_command *c = cli_commands; c->name != NULL; c++) {
        char *out, *err, *out2, *err2;
        assert_int_equal(whole(&out, &err, 3, (const char *[]){ "sheaf", c->name, "--help" }), 0);
        assert_int_equal(whole(&out2, &err2, 3, (const char *[]){ "sheaf", "help", c->name }), 0);
        assert_string_equal(out, out2);
        assert_string_equal(err, "");
        assert_non_null(strstr(out, "usage: sheaf "));
        assert_non_null(strstr(out, "--json"));
        assert_non_null(strstr(out, "exit codes: 0"));
        for (const char *at = out, *flag; (flag = strstr(at, "\n  --")) != NULL;) {
            /* the text of one flag says one default at most */
            const char *end = strstr(flag + 5, "\n  --"), *default_at = strstr(flag, "(default ");
            end = end != NULL ? end : out + strlen(out);
            if (default_at != NULL && default_at < end) {
                const char *second = strstr(default_at + 9, "default ");
                if (second != NULL && second < end && strncmp(second - 1, "(", 1) == 0)
                    fail_msg("sheaf %s: two defaults: %.*s", c->name, (int)(end - flag), flag);
            }
            at = flag + 5;
        }
        free(out), free(err), free(out2), free(err2);
    }
}

/* ---- pages ---- */

static bool is_flag_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
}

/* The next "--name" in *text, without a "no-" in front; false at the end. */
static bool next_flag(char name[64], const char **text)
{
    while ((*text = strstr(*text, "--")) != NULL) {
        const char *from = *text + 2;
        int n = 0;
        while (n < 63 && is_flag_letter(from[n]))
            n++;
        *text = from + n;
        if (n == 0 || from[0] == '-')
            continue;
        const bool no = strncmp(from, "no-", 3) == 0;
        snprintf(name, 64, "%.*s", n - (no ? 3 : 0), from + (no ? 3 : 0));
        return true;
    }
    return false;
}

/* Is it in the help of a command? */
static bool has_flag(const char *flag)
{
    static char *help[32];
    char *err, name[64];
    for (int i = 0; cli_commands[i].name != NULL; i++) {
        const char *all[] = { "sheaf", cli_commands[i].name, "--help", "all" };
        if (help[i] == NULL) {
            assert_int_equal(whole(&help[i], &err, 4, all), 0);
            free(err);
        }
        for (const char *at = help[i]; next_flag(name, &at);)
            if (strcmp(name, flag) == 0)
                return true;
    }
    return false;
}

/* `text`: an example of the command, or what stands between two backticks. */
static void check_flags(const char *page, const char *text)
{
    static const char *const others[] = { /* of mpirun, meson, Megatron, the demo, sheaf itself */
                                          "mca",   "bind-to", "static", "ckpt-format",
                                          "agent", "minicpm", "version"
    };
    char name[64];
    if (strncmp(text, "--", 2) != 0 && strncmp(text, "sheaf ", 6) != 0)
        return;
    while (next_flag(name, &text)) {
        bool known = *text == '_'; /* --max_length: another program's */
        for (size_t i = 0; i < ARRAY_LEN(others); i++)
            known = known || strcmp(name, others[i]) == 0;
        if (!known && !has_flag(name))
            fail_msg("%s names --%s, which no command has", page, name);
    }
}

TEST(test_docs__name_no_flag_that_no_command_has)
{
    glob_t pages;
    assert_int_equal(glob(in_sources("{README.md,docs/*.md}"), GLOB_BRACE, NULL, &pages), 0);
    assert_true(pages.gl_pathc > 20);
    for (size_t i = 0; i < pages.gl_pathc; i++) {
        char *page, *rest;
        size_t size;
        CHECK_OK(sheaf__file_read_all(&page, &size, pages.gl_pathv[i], 1 << 20));
        for (char *line = strtok_r(page, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
            check_flags(pages.gl_pathv[i], line + strspn(line, " "));
            char *spans; /* what is between backticks is every other part of a line */
            for (int n = 0; (spans = strsep(&line, "`")) != NULL; n++)
                if (n % 2 == 1)
                    check_flags(pages.gl_pathv[i], spans);
        }
        free(page);
    }
    globfree(&pages);
}
