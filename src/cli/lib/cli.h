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
 *         st = sheaf_weights_convert(...);
 *     return driver_report(cli, st);
 *
 * --json, --quiet, --progress and --help belong to every subcommand and stand
 * in no table. Results go to cli->out, everything else to cli->err: notes,
 * warnings and progress as cli->events, which driver_progress_end() ends. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "base/json_write.h"
#include "driver/driver.h"
#include "sheaf/status.h"

/* The words of library/settings.h, which the commands' tables are made of. */
enum {
    CLI_FLAG = SHEAF__IS_FLAG,
    CLI_INT = SHEAF__IS_INT,
    CLI_COUNT = SHEAF__IS_COUNT,
    CLI_SEED = SHEAF__IS_SEED,
    CLI_NUMBER = SHEAF__IS_NUMBER,
    CLI_CHOICE = SHEAF__IS_CHOICE,
    CLI_TEXT = SHEAF__IS_TEXT,
    CLI_PATH = SHEAF__IS_PATH,
    CLI_TEXTS = SHEAF__IS_TEXTS,
    CLI_KIND = SHEAF__IS_KIND,
    CLI_REQUIRED = SHEAF__IS_REQUIRED,
    CLI_FIXED = SHEAF__IS_FIXED,
    CLI_CONTENT = SHEAF__IS_CONTENT,
    CLI_UNSAVED = SHEAF__IS_UNSAVED,
    CLI_HIDDEN = SHEAF__IS_HIDDEN,
    CLI_NEEDED = SHEAF__IS_NEEDED,
    CLI_COMMON = SHEAF__IS_COMMON,
    CLI_WORD = SHEAF__IS_WORD,
    CLI_MAX_OPTIONS = SHEAF__MAX_SETTINGS,
};

typedef sheaf__choice cli_choice;
typedef sheaf__setting cli_option;

typedef struct cli_paths {
    int count;   /* words that are not flags */
    char **word; /* borrowed from argv */
    /* of at least one word: all but the last, and the last */
    int nfirst;
    char **first;
    const char *last; /* NULL when count is 0 */
} cli_paths;

typedef driver_command cli_command;
typedef driver cli; /* as a command calls it */

/* cli_parse - fills the values of `options` from argv. Flags and words may be
 * mixed; "--" ends flags. If the table has an option "recipe" and it was given,
 * that file fills what no flag gave. Checks CLI_REQUIRED, the number of words,
 * and (for a command that computes) the CPU.
 *   options  ends with a zero entry; values hold the defaults beforehand
 *   paths    out, may be NULL for a command that takes no words
 * Errors: SHEAF_E_ARG; after --help a status that driver_report() turns into 0. */
sheaf_status *cli_parse(cli *cli, const cli_option *options, cli_paths *paths, int argc,
                        char **argv);

/* cli_say - what a model says, on standard output: a terminal gets it as sheaf__print_lines() shows
 * it, a pipe or a file exactly. */
void cli_say(const cli *cli, const char *text);

/* cli_print_fields - `label` and a text of the library, with its fields as flags (base/spell.h), as
 * a line; cli_fact_line - "  KEY  VALUE", so. */
void cli_print_fields(FILE *to, const char *label, const char *text);
void cli_fact_line(FILE *to, const char *key, const char *value);

extern const cli_choice cli_dtypes[]; /* float32, bfloat16, float16 as sheaf_dtype */

/* cli_json_end - ends the object and writes it as a line; false where memory or the stream
 * failed: then nothing of it was written, or not all. The text is released in any case. */
bool cli_json_end(FILE *to, sheaf_json_writer *j);

/* cli_recipe_read - `key: value` lines of a recipe fill the options no flag gave. */
sheaf_status *cli_recipe_read(cli *cli, const cli_option *options, const char *name);
/* cli_recipe_find - the file (malloc'd path) that --recipe NAME means: that file; or else, for a
 * name without a slash, NAME or NAME.recipe among the recipes that come with sheaf
 * (docs/recipes.md). Errors: SHEAF_E_IO with the nearest of those. */
sheaf_status *cli_recipe_find(char **path, const char *name);
/* cli_need_cpu - errors: SHEAF_E_UNSUPPORTED naming what is missing. */
sheaf_status *cli_need_cpu(bool avx2, bool fma);

/* cli_help - the usage and the flags under their headings: those that are COMMON, or `all`, as of a
 * command where none is. */
void cli_help(const cli_command *command, const cli_option *options, bool all, FILE *to);
/* A row of help. */
typedef struct cli_help_row {
    const cli_option *option;
    const char *heading; /* static */
} cli_help_row;
/* cli_help_rows - the options that are not hidden, in the order of their headings; returns how
 * many. */
int cli_help_rows(cli_help_row rows[CLI_MAX_OPTIONS], const cli_option *options);
/* The help of one option: "--tp N", and its text with the default. */
#define CLI_FLAG_TEXT 160
#define CLI_HELP_TEXT 1024
void cli_flag_text(char text[CLI_FLAG_TEXT], const cli_option *option);
void cli_help_text(char text[CLI_HELP_TEXT], const cli_option *option);

/* The commands, in the order `sheaf help` lists them; ends with name NULL. */
extern const cli_command cli_commands[];
/* cli_main - what main() does, with streams of one's own (for tests). */
int cli_main(int argc, char **argv, FILE *out, FILE *err);
