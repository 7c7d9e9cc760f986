/* dispatch.c - `sheaf`, `sheaf help`, `sheaf --version`, and the way to a subcommand. */
#include "base/base.h"
#include "base/print.h"
#include "cli.h"

static const cli_command *find_command(const char *name)
{
    for (const cli_command *c = cli_commands; c->name != NULL; c++)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

static void list_commands(FILE *to)
{
    sheaf__print(to, "usage: sheaf COMMAND [FLAG...] [WORD...]\n"
                     "Fine-tunes, merges and runs language models divided over several devices;\n"
                     "how many devices you use never changes a byte of the result.\n\ncommands:\n");
    for (const cli_command *c = cli_commands; c->name != NULL; c++)
        sheaf__print(to, "  %-10s %s\n", c->name, c->summary);
    sheaf__print(to, "  %-10s %s\n", "help", "this text; sheaf help COMMAND explains one");
    sheaf__print(to, "\nsheaf --version prints the version.\n");
}

/* Names of a command in other programs, and the equivalent here. */
static const char *peer_of(const char *name)
{
    static const struct {
        const char *names, *ours;
    } peers[] = {
        { "resume continue", "sheaf train --resume --out OUT" },
        { "finetune fine-tune sft pretrain pt lora qlora", "sheaf train" },
        { "export", "sheaf merge BASE ADAPTER DST makes one model, sheaf convert SRC DST --to "
                    "DIALECT another form; a run's own result is in OUT/adapter or OUT/model" },
        { "run infer inference predict complete completion", "sheaf generate, or sheaf chat" },
        { "server api webui", "sheaf serve" },
        { "pull download", "sheaf downloads nothing: hf download NAME --local-dir DIR" },
        { "quantize quantise",
          "sheaf convert SRC DST --to hf --quantize nf4; for llama.cpp --to gguf --dtype q4_k_m" },
        { "evaluate test", "sheaf eval" },
        { "bench benchmark",
          "sheaf plan MODEL --time, of training, and with --place 1 of generation" },
        { "split join shard reshard collect consolidate unpad", "sheaf convert" },
        { "repair fix", "sheaf verify PATH, which names the command that repairs it" },
        { "check validate", "sheaf verify" },
        { "status ls list show inspect", "sheaf info" },
        { "compare", "sheaf diff" },
        { "create new", "sheaf init" },
        { "translate", "python3 -m sheaf translate FILE.yaml >NAME.recipe: the Python module of "
                       "sheaf's wheel (./run wheel)" },
    };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof peers / sizeof *peers; i++)
        for (const char *at = peers[i].names; *at != '\0'; at += strspn(at, " ")) {
            const size_t length = strcspn(at, " ");
            if (length == n && strncmp(at, name, n) == 0)
                return peers[i].ours;
            at += length;
        }
    return NULL;
}

static int unknown_command(cli *cli, const char *name)
{
    const char *names[64];
    int n = 0;
    for (const cli_command *c = cli_commands; c->name != NULL && n < 62; c++)
        names[n++] = c->name;
    names[n++] = "help";
    names[n++] = "version";
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", name);
    sheaf_expected(st, "a command of sheaf");
    const char *near = sheaf__nearest(name + strspn(name, "-"), names, n);
    const char *ours = peer_of(name);
    if (ours != NULL)
        sheaf_try_this(st, "%s", ours);
    else if (near != NULL)
        sheaf_try_this(st, "sheaf %s", near);
    else
        sheaf_try_this(st, "sheaf help lists them");
    return driver_report(cli, sheaf__peer_advise_file(st, name));
}

static bool is_one_of(const char *word, const char *const *list)
{
    while (*list != NULL && strcmp(*list, word) != 0)
        list++;
    return *list != NULL;
}

static const char *const help_words[] = { "help", "--help", "-h", NULL };

static int help(cli *cli, int argc, char **argv)
{
    while (argc > 1 && (is_one_of(argv[1], help_words) || strcmp(argv[1], "--json") == 0)) {
        argc--;
        argv++;
    }
    if (argc < 2) {
        list_commands(cli->out);
        return driver_report(cli, NULL);
    }
    const cli_command *command = find_command(argv[1]);
    if (command == NULL)
        return unknown_command(cli, argv[1]);
    char flag[] = "--help", *words[] = { argv[1], flag, NULL };
    return driver_run(cli, command, 2, words);
}

int cli_main(int argc, char **argv, FILE *out, FILE *err)
{
    cli cli = { .out = out, .err = err };
    if (argc < 2) {
        list_commands(err);
        return DRIVER_USAGE;
    }
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0;
         i++) /* known before anything can be wrong */
        cli.json |= strcmp(argv[i], "--json") == 0;
    if (is_one_of(argv[1], (const char *const[]){ "--version", "-V", "version", NULL })) {
        sheaf__print(out, cli.json ? "{\"version\": \"%s\"}\n" : "sheaf %s\n", SHEAF_VERSION);
        return driver_report(&cli, NULL);
    }
    if (is_one_of(argv[1], help_words))
        return help(&cli, argc - 1, argv + 1);
    const cli_command *command = find_command(argv[1]);
    if (command == NULL)
        return unknown_command(&cli, argv[1]);
    return driver_run(&cli, command, argc - 1, argv + 1);
}
