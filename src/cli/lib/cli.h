/* cli.h - what every subcommand shares: one table of options gives its flags,
 * its help, its recipe keys and the settings it writes down.
 *
 * A subcommand parses, calls the library, reports:
 *
 *     const cli_option options[] = {
 *         { "to", CLI_TEXT | CLI_REQUIRED, &how.dialect, "form to write" },
 *         { "tp", CLI_INT, &how.ranks, "parts to write", .min = 1, .max = 64 },
 *         { 0 },
 *     };
 *     cli_paths paths;
 *     sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
 *     if (st == NULL)
 *         st = sheaf_checkpoint_convert(...);
 *     return cli_report(cli, st);
 *
 * --json and --help belong to every subcommand and stand in no table. Results
 * go to cli->out, everything else to cli->err. */
#ifndef SHEAF_CLI_LIB_CLI_H
#define SHEAF_CLI_LIB_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/events.h"
#include "sheaf/status.h"

enum { CLI_DONE = 0, CLI_NO = 1, CLI_USAGE = 2, CLI_FAILED = 3 }; /* exit codes */

/* What an option's value is; the pointer's type follows. */
enum {
    CLI_FLAG = 1, /* bool: --x, --no-x, --x=true, --x=false */
    CLI_INT,      /* int, within [min, max] */
    CLI_COUNT,    /* int64_t, within [min, max] */
    CLI_SEED,     /* uint64_t, any */
    CLI_NUMBER,   /* double, finite, within [min, max] */
    CLI_CHOICE,   /* int or enum: one of `choices` */
    CLI_TEXT, /* const char *, borrowed from argv or the recipe; empty means not given, unless min
                 is 1 */
    CLI_PATH, /* the same; must not be empty */
    CLI_KIND = 0xff,
    /* and how it behaves */
    CLI_REQUIRED = 0x100,
    CLI_FIXED = 0x200,   /* may not change when a run is resumed */
    CLI_CONTENT = 0x400, /* names something that may not change, but its name may (a folder) */
    CLI_UNSAVED = 0x800, /* not a setting of the run: no recipe key, not written down */
    CLI_HIDDEN = 0x1000, /* not in help */
    CLI_NEEDED = 0x2000, /* required too, but a run that goes on (--resume) has it stored */
};

typedef struct cli_choice {
    const char *name;
    int value;
} cli_choice;

typedef struct cli_option {
    const char *name; /* without dashes; also the recipe key */
    unsigned kind;
    void *value;
    const char *help;
    const char *unit; /* placeholder in help: "DIR"; NULL = by kind */
    double min,
        max; /* CLI_INT, CLI_COUNT, CLI_NUMBER; max 0 = no upper limit. CLI_TEXT: see there */
    bool above, below;         /* CLI_NUMBER: more than min, less than max */
    const cli_choice *choices; /* ends with name NULL */
    const char *advice;        /* what to try instead of a value that is refused; NULL = nothing */
    const char *was;           /* an older name, which is still understood; NULL = none */
} cli_option;

#define CLI_MAX_OPTIONS 96

typedef struct cli_paths {
    int count;   /* words that are not flags */
    char **word; /* borrowed from argv */
    /* of at least one word: all but the last, and the last */
    int nfirst;
    char **first;
    const char *last; /* NULL when count is 0 */
} cli_paths;

typedef struct cli cli;
typedef struct cli_command {
    const char *name, *summary, *usage;
    int (*run)(cli *cli, int argc, char **argv); /* argv[0] is the subcommand's name */
    int min_words, max_words;                    /* of cli_paths; -1 = any number */
    bool computes;                               /* needs AVX2 and FMA, where the build has them */
    bool trains;                                 /* or infers: not in a build without x86 */
} cli_command;

struct cli {
    FILE *out, *err;
    const cli_command *command;
    bool json;
    sheaf_events events; /* notes, warnings and progress as lines on err */
    bool helped;         /* --help was answered; nothing is left to do */
    /* what answers --help; NULL: cli_help() */
    void (*explain)(const cli_command *command, const cli_option *options, FILE *to);
    bool given[CLI_MAX_OPTIONS];     /* by a flag on the command line */
    bool from_file[CLI_MAX_OPTIONS]; /* by the recipe or by resumed settings */
    char *held[24];                  /* texts that option values point into */
    int nheld;
};

/* cli_parse - fills the values of `options` from argv. Flags and words may be
 * mixed; "--" ends flags. If the table has an option "recipe" and it was given,
 * that file fills what no flag gave. Checks CLI_REQUIRED, the number of words,
 * and (for a command that computes) the CPU.
 *   options  ends with a zero entry; values hold the defaults beforehand
 *   paths    out, may be NULL for a command that takes no words
 * Errors: SHEAF_E_ARG; after --help a status that cli_report() turns into 0. */
sheaf_status *cli_parse(cli *cli, const cli_option *options, cli_paths *paths, int argc,
                        char **argv);

/* cli_say - what a model says, on standard output: a terminal gets it as sheaf__print_lines() shows
 * it, a pipe or a file exactly. */
void cli_say(const cli *cli, const char *text);
/* cli_report - prints the status to cli->err (with --json also an object with key
 * "error" to cli->out), frees it, flushes; returns the exit code. */
int cli_report(cli *cli, sheaf_status *st);
/* cli_answer - the same for a command whose answer may be no. */
int cli_answer(cli *cli, sheaf_status *st, bool yes);
int cli_exit_code(const sheaf_status *st);

/* cli_set - gives one option a value from text; `from` ("--tp", "recipe.txt:3") is for
 * the message. Errors: SHEAF_E_ARG with what is allowed. */
sheaf_status *cli_set(const cli_option *option, const char *text, const char *from);
/* cli_show - the value as text that cli_set() reads back to the same value
 * (malloc'd); an unset text gives "". */
char *cli_show(const cli_option *option);
/* cli_check_required - CLI_REQUIRED and CLI_NEEDED options that nothing gave. cli_parse()
 * has done it, but leaves out CLI_NEEDED ones after --resume. */
sheaf_status *cli_check_required(const cli *cli, const cli_option *options, bool needed_too);
/* cli_hold - `text` (malloc'd) lives as long as cli, which frees it: an option's value may point
 * into it. Takes it also after a failure. */
sheaf_status *cli_hold(cli *cli, char *text);
const cli_option *cli_find(const cli_option *options, const char *name);
/* cli_peer - the option that `word`, a flag without its dashes that sheaf has not ("=VALUE" may
 * follow), means in other programs, or by another spelling; *more says what is to be said besides.
 * NULL: none. */
const char *cli_peer(const cli_option *options, const char *word, const char **more);
/* Is it what they call --out? */
bool cli_peer_is_out(const char *word);
bool cli_was_given(const cli *cli, const cli_option *options, const char *name);

/* cli_recipe_read - `key: value` lines of a recipe fill the options no flag gave. */
sheaf_status *cli_recipe_read(cli *cli, const cli_option *options, const char *name);
/* cli_recipe_find - the file (malloc'd path) that --recipe NAME means: that file; or else, for a
 * name without a slash, NAME or NAME.recipe among the recipes that come with sheaf
 * (docs/recipes.md). Errors: SHEAF_E_IO with the nearest of those. */
sheaf_status *cli_recipe_find(char **path, const char *name);
/* cli_settings_text - every setting of the table as a recipe (malloc'd); with
 * `only_fixed` just those with CLI_FIXED, in table order: the same bytes whatever
 * the machine, the paths and the number of ranks. */
sheaf_status *cli_settings_text(char **out, const cli_option *options, bool only_fixed);
/* cli_settings_resume - takes over settings stored by cli_settings_text(): options no
 * flag or recipe gave get the stored value; a given one that differs is refused when
 * it is CLI_FIXED. `name` is for messages. */
sheaf_status *cli_settings_resume(cli *cli, const cli_option *options, const char *text,
                                  const char *name);

/* cli_need_cpu - errors: SHEAF_E_UNSUPPORTED naming what is missing. */
sheaf_status *cli_need_cpu(bool avx2, bool fma);

void cli_help(const cli_command *command, const cli_option *options, FILE *to);
/* What help says of one option: "--tp N", and its text with the default. */
#define CLI_FLAG_TEXT 160
#define CLI_HELP_TEXT 1024
void cli_flag_text(char text[CLI_FLAG_TEXT], const cli_option *option);
void cli_help_text(char text[CLI_HELP_TEXT], const cli_option *option);
void cli_release(cli *cli);

/* The commands, in the order `sheaf help` lists them; ends with name NULL. */
extern const cli_command cli_commands[];
/* cli_main - what main() does, with streams of one's own (for tests). */
int cli_main(int argc, char **argv, FILE *out, FILE *err);

#endif
