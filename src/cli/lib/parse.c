/* parse.c - argv against a table of options. */
#include <assert.h>

#include "base/base.h"
#include "base/cpu.h"
#include "base/file.h"
#include "cli.h"
#include "devices.h"

/* ---- the flags of every command ---- */

typedef struct common {
    bool json, quiet;
    sheaf__progress_style style;
} common;

/* all: the table of a command, with those behind its own rows. */
static void add_common(cli_option all[CLI_MAX_OPTIONS], const cli_option *options, common *c)
{
    static const cli_choice styles[] = { { "plain", SHEAF__PROGRESS_PLAIN },
                                         { "bar", SHEAF__PROGRESS_BAR },
                                         { "json", SHEAF__PROGRESS_JSON },
                                         { 0 } };
    int n = 0;
    unsigned kind = CLI_UNSAVED; /* in the short help, where there is one */
    for (; options[n].name != NULL; n++)
        kind |= options[n].kind & CLI_COMMON;
    const cli_option rows[] = {
        { "json", CLI_FLAG | kind, &c->json, "results as one JSON object on standard output",
          .heading = "every command" },
        { "quiet", CLI_FLAG | kind, &c->quiet,
          "no notes and no progress; warnings and errors stay" },
        { "progress", CLI_CHOICE | kind, &c->style,
          "how progress is shown; default: a bar on a terminal, else plain lines",
          .choices = styles },
        { 0 },
    };
    assert(n + sizeof rows / sizeof *rows <= CLI_MAX_OPTIONS);
    memcpy(all, options, ((size_t)n + 1) * sizeof *options);
    sheaf__settings_append(all, rows);
}

static sheaf_status *take_common(cli *cli, const common *c)
{
    cli->json = cli->json || c->json; /* cli_main() has seen the plain word */
    cli->quiet = c->quiet;
    cli->style = c->style;
    driver_progress(cli);
    return !c->quiet || c->style == SHEAF__PROGRESS_AUTO
               ? NULL
               : sheaf_found(
                     sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--quiet"), "no --progress beside it"),
                     "both");
}

/* ---- flags ---- */

static sheaf_status *unknown_flag(const cli *cli, const cli_option *options, const char *word)
{
    const char *names[CLI_MAX_OPTIONS + 1];
    int n = 0;
    for (const cli_option *o = options; o->name != NULL; o++)
        if (!(o->kind & CLI_HIDDEN))
            names[n++] = o->name;
    names[n++] = "help";
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", word);
    sheaf_expected(st, "a flag of sheaf %s", cli->command->name);
    const char *bare = word + strspn(word, "-");
    if (sheaf__peer_advise(st, options, bare, "--"))
        return st;
    if (sheaf__peer_is_out(bare) && strstr(cli->command->usage, " DST") != NULL)
        return sheaf_try_this(st, "no flag: DST, the last word, says where to");
    const char *near = sheaf__nearest(bare, names, n);
    if (near == NULL && strncmp(bare, "no-", 3) == 0)
        near = sheaf__nearest(bare + 3, names, n);
    return near != NULL ? sheaf_try_this(st, "--%s", near)
                        : sheaf_try_this(st, "sheaf %s --help all lists them", cli->command->name);
}

/* The option that a flag names, or NULL; *off: as "--no-NAME". */
static const cli_option *option_of(const cli_option *options, const char *word, bool *off)
{
    char name[64];
    const char *equals = strchr(word, '=');
    const size_t all = equals != NULL ? (size_t)(equals - word) : strlen(word),
                 length = all > 2 ? all - 2 : 0;
    *off = false;
    if (word[1] != '-') { /* -o */
        for (const cli_option *o = options; o->name != NULL; o++)
            if (o->letter == word[1] && word[2] == '\0')
                return o;
        return NULL;
    }
    if (length == 0 || length >= sizeof name)
        return NULL;
    memcpy(name, word + 2, length);
    name[length] = '\0';
    const cli_option *o = sheaf__setting_find(options, name);
    if (o != NULL || strncmp(name, "no-", 3) != 0 || equals != NULL)
        return o;
    o = sheaf__setting_find(options, name + 3);
    *off = o != NULL && (o->kind & CLI_KIND) == CLI_FLAG;
    return *off ? o : NULL;
}

/* Names the other unknown flags behind the first, so that one message has them all. */
static sheaf_status *unknown_flags(const cli *cli, const cli_option *options, char *const *word,
                                   int count)
{
    sheaf_status *st = unknown_flag(cli, options, word[0]);
    sheaf_text more = { 0 };
    bool off;
    for (int i = 1; i < count && strcmp(word[i], "--") != 0; i++)
        if (strncmp(word[i], "--", 2) == 0 && strcmp(word[i], "--help") != 0 &&
            option_of(options, word[i], &off) == NULL)
            sheaf__text_add(&more, "%s%.*s", more.size > 0 ? ", " : "", (int)strcspn(word[i], "="),
                            word[i]);
    if (more.size > 0 && !more.failed)
        sheaf_found(st, "it, and %s, which are none either", more.at);
    sheaf__text_release(&more);
    return st;
}

/* A value that is a flag of the command was forgotten. */
static sheaf_status *check_value(const cli_option *options, const char *from, const char *value)
{
    bool off;
    if (value == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", from), "a value after it");
    if (strncmp(value, "--", 2) != 0 || option_of(options, value, &off) == NULL)
        return NULL;
    sheaf_status *st =
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", from), "a value before %s", value);
    return sheaf_try_this(st, "%s=%s, if that is the value", from, value);
}

/* One word that begins with "-", the first of `count`; *next is the word after it or NULL, and
 * becomes NULL when it was used as the value. */
static sheaf_status *take_flag(cli *cli, const cli_option *options, char *const *words, int count,
                               char **next)
{
    const char *word = words[0];
    const char *equals = strchr(word, '=');
    bool off;
    const cli_option *o = option_of(options, word, &off);
    if (o == NULL)
        return unknown_flags(cli, options, words, count);
    char from[80];
    snprintf(from, sizeof from, "%.*s", equals != NULL ? (int)(equals - word) : 79, word);
    if (cli->settings.given[o - options] && (o->kind & CLI_KIND) != CLI_TEXTS)
        return sheaf_try_this(sheaf_fail(SHEAF_E_ARG, "%s", from), "it stands twice; give it once");
    cli->settings.given[o - options] = true;
    if (equals != NULL)
        return sheaf__setting_set(o, equals + 1, from);
    if ((o->kind & CLI_KIND) == CLI_FLAG)
        return sheaf__setting_set(o, off ? "false" : "true", from);
    sheaf_status *st = check_value(options, from, *next);
    if (st != NULL)
        return st;
    st = sheaf__setting_set(o, *next, from);
    if (st != NULL && strncmp(*next, "--", 2) == 0)
        sheaf_try_this(st, "a value before %s", *next);
    *next = NULL;
    return st;
}

/* A command that takes no words takes values of the options that are WORDs as such, in their order:
 * sheaf train MODEL DATA. */
static sheaf_status *take_words(cli *cli, const cli_option *options, char *const *word, int *count)
{
    int room = 0, at = 0;
    for (const cli_option *o = options; o->name != NULL; o++)
        room += (o->kind & CLI_WORD) && !cli->settings.given[o - options];
    if (cli->command->max_words != 0 || *count > room)
        return NULL;
    sheaf_status *st = NULL;
    for (const cli_option *o = options; o->name != NULL && at < *count && st == NULL; o++) {
        if (!(o->kind & CLI_WORD) || cli->settings.given[o - options])
            continue;
        if (sheaf__ends_with(word[at], ".recipe") && sheaf__setting_find(options, "recipe") != NULL)
            return sheaf_try_this(
                sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", word[at]), "a %s", o->name),
                "--recipe %s", word[at]);
        const cli_option *of = o, *config = sheaf__setting_find(options, "config");
        if (strcmp(o->name, "model") == 0 && strcmp(cli->command->name, "plan") == 0 &&
            sheaf__ends_with(word[at], ".json") && config != NULL)
            of = config; /* its weights need not be here */
        char from[80];
        snprintf(from, sizeof from, "the %s", of->name);
        cli->settings.given[of - options] = true;
        st = sheaf__setting_set(of, word[at++], from);
    }
    *count = 0;
    return st;
}

/* "--lora-targets q_proj, v_proj": the word at `i` goes on with a value that ends in a comma. */
static sheaf_status *check_list(const cli *cli, char *const *argv, int argc, int i)
{
    const size_t n = strlen(argv[i - 1]);
    const bool joined = strncmp(argv[i - 1], "--", 2) == 0;
    if (cli->command->max_words != 0 || n == 0 || argv[i - 1][n - 1] != ',' ||
        sheaf__path_kind(argv[i]) != SHEAF_PATH_NONE || /* the model */
        (!joined && (i < 3 || strncmp(argv[i - 2], "--", 2) != 0)))
        return NULL;
    sheaf_text list = { 0 }, word = { 0 };
    int last = i;
    const char *value = joined ? strchr(argv[i - 1], '=') : argv[i - 1];
    sheaf__text_add(&list, "%s", value == NULL ? "" : value + joined);
    for (bool more = true; more && last < argc; last++) {
        more = sheaf__ends_with(argv[last], ",");
        sheaf__text_add(&list, " %s", argv[last]);
    }
    char flag[80];
    const char *from = joined ? argv[i - 1] : argv[i - 2];
    snprintf(flag, sizeof flag, "%.*s", (int)strcspn(from, "="), from);
    sheaf__text_word(&word, list.failed ? "" : list.at);
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", flag);
    sheaf_expected(st, "its value as one word");
    sheaf_found(st, "spaces in it: %s", list.failed ? "" : list.at);
    sheaf_try_this(st, "%s %s", flag, word.failed ? "LIST" : word.at);
    sheaf__text_release(&list);
    sheaf__text_release(&word);
    return st;
}

/* The flag that a word without one was probably meant for, by what it names; NULL: none of them. */
static const char *meant_flag(const cli_option *options, const char *word)
{
    static const char *const pictures[] = { ".png", ".jpg", ".jpeg", ".webp" };
    const sheaf_path_kind kind = sheaf__path_kind(word);
    bool picture = false;
    for (size_t i = 0; i < sizeof pictures / sizeof *pictures; i++)
        picture = picture || sheaf__ends_with(word, pictures[i]);
    const char *flag = picture                   ? "image"
                       : kind == SHEAF_PATH_DIR  ? "adapter"
                       : kind == SHEAF_PATH_NONE ? "prompt"
                                                 : "data";
    return sheaf__setting_find(options, flag) == NULL ? NULL : flag;
}

static sheaf_status *check_words(const cli *cli, const cli_option *options, char *const *word,
                                 int count)
{
    const cli_command *c = cli->command;
    if (count >= c->min_words && (c->max_words < 0 || count <= c->max_words))
        return NULL;
    const char *usage = c->usage + strlen("usage: ");
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "sheaf %s", c->name);
    sheaf_expected(st, "%.*s", (int)strcspn(usage, "\n"), usage);
    if (count == 0)
        return sheaf_found(st, "nothing beside flags");
    if (count == 1)
        sheaf_found(st, "'%s' beside flags", word[0]);
    else
        sheaf_found(st, "%d words beside flags, '%s' the last", count, word[count - 1]);
    const char *flag = c->max_words == 0 ? meant_flag(options, word[count - 1]) : NULL;
    return flag == NULL                  ? st
           : strcmp(flag, "prompt") == 0 ? sheaf_try_this(st, "--prompt \"TEXT\", in quotes")
                                         : sheaf_try_this(st, "--%s %s", flag, word[count - 1]);
}

static sheaf_status *check_empty(const cli *cli, char *const *word, int count)
{
    for (int i = 0; i < count; i++)
        if (word[i][0] == '\0') /* as of a variable that is not set */
            return sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf %s", cli->command->name),
                               "the name of a file or folder"),
                "an empty word, number %d of %d", i + 1, count);
    return NULL;
}

static sheaf_status *is_settings(const char *path)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", path);
    sheaf__peer_advise_file(sheaf_expected(st, "a model, or a checkpoint"), path);
    if (sheaf_status_try(st)[0] != '\0')
        return st;
    sheaf_status_free(st);
    return NULL;
}

/* The settings of another program in place of a model; what reads any text, its one word, may. */
static sheaf_status *check_settings(const cli *cli, const cli_option *options, char *const *word,
                                    int count)
{
    const cli_option *o = sheaf__setting_find(options, "model");
    const char *model = o == NULL ? NULL : *(const char *const *)o->value;
    sheaf_status *st = model == NULL ? NULL : is_settings(model);
    for (int i = 0; i < count && st == NULL && cli->command->max_words != 1; i++)
        st = is_settings(word[i]);
    return st;
}

static sheaf_status *take_recipe(cli *cli, const cli_option *options)
{
    const cli_option *o = sheaf__setting_find(options, "recipe");
    if (o == NULL || !cli->settings.given[o - options])
        return NULL;
    return cli_recipe_read(cli, options, *(const char *const *)o->value);
}

static bool resuming(const cli_option *options)
{
    const cli_option *o = sheaf__setting_find(options, "resume");
    return o != NULL && *(const bool *)o->value;
}

/* A missing option is reported with the usage of the command, or of --resume. */
static sheaf_status *check_required(const cli *cli, const cli_option *options)
{
    sheaf_status *st = sheaf__settings_required(&cli->settings, options, !resuming(options));
    const char *usage = cli->command->usage + strlen("usage: ");
    if (st != NULL && resuming(options))
        return sheaf_try_this(st, "sheaf %s --resume -o OUT", cli->command->name);
    return st == NULL ? NULL : sheaf_try_this(st, "%.*s", (int)strcspn(usage, "\n"), usage);
}

/* Does this build, on this processor, have what the command needs? */
static sheaf_status *check_build(const cli_command *command)
{
#ifdef SHEAF_NO_X86
    return NULL;
#else
    return command->computes ? cli_need_cpu(SHEAF__CPU_HAS("avx2"), SHEAF__CPU_HAS("fma")) : NULL;
#endif
}

/* "--device list" or "--device=list", where there is such a flag. */
static bool lists_devices(const cli_option *options, const char *flag, const char *next)
{
    const bool listed =
        strcmp(flag, "--device=list") == 0 ||
        (strcmp(flag, "--device") == 0 && next != NULL && strcmp(next, "list") == 0);
    for (; listed && options->name != NULL; options++)
        if (strcmp(options->name, "device") == 0)
            return true;
    return false;
}

sheaf_status *cli_parse(cli *cli, const cli_option *own, cli_paths *paths, int argc, char **argv)
{
    common common = { 0 };
    cli_option options[CLI_MAX_OPTIONS];
    add_common(options, own, &common);
    char **words = argv + 1; /* words are moved to the front as they are met */
    int count = 0;
    bool flags = true;
    for (int i = 1; i < argc; i++) {
        if (flags && (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)) {
            const bool all = i + 1 < argc && strcmp(argv[i + 1], "all") == 0;
            if (cli->explain != NULL)
                cli->explain(cli->command, options, cli->out);
            else
                cli_help(cli->command, options, all, cli->out);
            cli->helped = true;
            return sheaf_fail(SHEAF_E_STOPPED, "help was printed");
        }
        if (flags && lists_devices(options, argv[i], i + 1 < argc ? argv[i + 1] : NULL)) {
            sheaf_status *st = cli_list_devices(cli);
            cli->helped = st == NULL;
            return st != NULL ? st : sheaf_fail(SHEAF_E_STOPPED, "devices were printed");
        }
        if (flags && strcmp(argv[i], "--") == 0) {
            flags = false;
        } else if (flags && argv[i][0] == '-' && argv[i][1] != '\0') {
            char *next = i + 1 < argc ? argv[i + 1] : NULL;
            const bool had = next != NULL;
            sheaf_status *st = take_flag(cli, options, argv + i, argc - i, &next);
            if (st != NULL)
                return st;
            i += had && next == NULL;
        } else {
            sheaf_status *st = flags ? check_list(cli, argv, argc, i) : NULL;
            if (st != NULL)
                return st;
            char *const word = argv[i]; /* earlier words move on */
            memmove(words + count + 1, words + count,
                    (size_t)(argv + i - words - count) * sizeof *argv);
            words[count++] = word;
        }
    }
    sheaf_status *st = take_common(cli, &common);
    TRY(st, check_empty(cli, words, count));
    TRY(st, take_words(cli, options, words, &count));
    TRY(st, check_settings(cli, options, words, count));
    TRY(st, check_words(cli, options, words, count));
    TRY(st, take_recipe(cli, options));
    TRY(st, check_required(cli, options));
    TRY(st, check_build(cli->command));
    if (st == NULL && paths != NULL)
        *paths = (cli_paths){ .count = count,
                              .word = words,
                              .nfirst = count > 0 ? count - 1 : 0,
                              .first = words,
                              .last = count > 0 ? words[count - 1] : NULL };
    return st;
}

sheaf_status *cli_need_cpu(bool avx2, bool fma)
{
    if (avx2 && fma)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "this processor");
    sheaf_expected(st, "x86-64 with AVX2 and FMA (Intel Haswell of 2013, AMD Zen, or newer)");
    sheaf_found(st, "no %s", !avx2 && !fma ? "AVX2 and no FMA" : !avx2 ? "AVX2" : "FMA");
    return sheaf_try_this(st, "another machine; in a virtual machine, pass the host's processor "
                              "through (qemu: -cpu host)");
}
