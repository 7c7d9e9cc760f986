/* help.c - help made from the table of options. */

#include "cli.h"
#include "base/base.h"

enum { NAME_WIDTH = 30, LINE_WIDTH = 96 };

static const char *unit_of(const cli_option *o)
{
    if (o->unit != NULL)
        return o->unit;
    switch (o->kind & CLI_KIND) {
    case CLI_INT:
    case CLI_COUNT:
    case CLI_SEED: return "N";
    case CLI_NUMBER: return "X";
    case CLI_PATH: return "PATH";
    default: return "TEXT";
    }
}

/* Cuts text that does not fit. */
static void append(char text[CLI_FLAG_TEXT], const char *more)
{
    const size_t used = strlen(text);
    snprintf(text + used, CLI_FLAG_TEXT - used, "%s", more);
}

void cli_flag_text(char text[CLI_FLAG_TEXT], const cli_option *o)
{
    const bool flag = (o->kind & CLI_KIND) == CLI_FLAG;
    text[0] = '\0';
    if (o->letter != '\0')
        snprintf(text, CLI_FLAG_TEXT, "-%c, ", o->letter);
    append(text, "--");
    append(text, flag && *(const bool *)o->value ? "no-" : "");
    append(text, o->name);
    if (flag)
        return;
    append(text, " ");
    if ((o->kind & CLI_KIND) != CLI_CHOICE || o->unit != NULL) {
        append(text, unit_of(o));
        return;
    }
    for (const cli_choice *c = o->choices; c->name != NULL; c++) {
        append(text, c == o->choices ? "" : "|");
        append(text, c->name);
    }
}

/* Words of `text` from column `column` on, broken at LINE_WIDTH. */
static void wrapped(FILE *to, const char *text, int column)
{
    int at = column;
    for (text += strspn(text, " "); *text != '\0'; text += strspn(text, " ")) {
        const int n = (int)strcspn(text, " ");
        if (at > column && at + 1 + n > LINE_WIDTH) {
            fprintf(to, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(to, "%s%.*s", at > column ? " " : "", n, text);
        text += n;
    }
    fputc('\n', to);
}

static void one_option(FILE *to, const char *flag, const char *help)
{
    const int n = fprintf(to, "  %s", flag);
    if (n > NAME_WIDTH - 2)
        fprintf(to, "\n%*s", NAME_WIDTH, "");
    else
        fprintf(to, "%*s", NAME_WIDTH - n, "");
    wrapped(to, help, NAME_WIDTH);
}

static void default_text(char *buf, size_t size, const cli_option *o)
{
    const unsigned kind = o->kind & CLI_KIND;
    buf[0] = '\0';
    if (o->kind & (CLI_REQUIRED | CLI_NEEDED)) {
        snprintf(buf, size, " (required)");
    } else if (kind != CLI_FLAG && strstr(o->help, "default") == NULL) {
        char *value = sheaf__setting_show(o);
        if (value != NULL && *value != '\0')
            snprintf(buf, size, " (default %s)", value);
        free(value);
    }
}

void cli_help_text(char text[CLI_HELP_TEXT], const cli_option *o)
{
    char *help = sheaf__spell_fields(o->help, NULL);
    snprintf(text, CLI_HELP_TEXT, "%s", help != NULL ? help : o->help);
    free(help);
    const size_t used = strlen(text);
    default_text(text + used, CLI_HELP_TEXT - used, o);
}

/* Of machines, which change no result, and of what all commands have, help speaks last. */
static bool is_last(const char *heading)
{
    return strcmp(heading, "ranks") == 0 || strcmp(heading, "failure") == 0 ||
           strcmp(heading, "every command") == 0;
}

/* Adds the rows under `heading`. */
static int add_rows(cli_help_row *rows, const cli_option *options, const char *heading)
{
    const char *of = "flags";
    int n = 0;
    for (const cli_option *o = options; o->name != NULL; o++) {
        of = o->heading != NULL ? o->heading : of;
        if (strcmp(of, heading) == 0 && !(o->kind & CLI_HIDDEN))
            rows[n++] = (cli_help_row){ o, heading };
    }
    return n;
}

int cli_help_rows(cli_help_row rows[CLI_MAX_OPTIONS], const cli_option *options)
{
    const char *heading[CLI_MAX_OPTIONS] = { options->heading != NULL ? NULL : "flags" };
    int n = 0, headings = options->heading == NULL;
    for (const cli_option *o = options; o->name != NULL; o++) {
        bool known = o->heading == NULL;
        for (int i = 0; i < headings; i++)
            known |= o->heading != NULL && strcmp(heading[i], o->heading) == 0;
        if (!known)
            heading[headings++] = o->heading;
    }
    for (int last = 0; last < 2; last++)
        for (int i = 0; i < headings; i++)
            if (is_last(heading[i]) == (last == 1))
                n += add_rows(rows + n, options, heading[i]);
    return n;
}

void cli_help(const cli_command *command, const cli_option *options, bool all, FILE *to)
{
    cli_help_row rows[CLI_MAX_OPTIONS];
    const int n = cli_help_rows(rows, options);
    int common = 0;
    for (int i = 0; i < n; i++)
        common += (rows[i].option->kind & CLI_COMMON) != 0;
    all |= common == 0;
    fprintf(to, "%s", command->usage);
    if (command->names != NULL) {
        sheaf_text names = { 0 };
        command->names(&names);
        fputs(names.failed ? "" : names.at, to);
        sheaf__text_release(&names);
    }
    const char *heading = "";
    for (int i = 0; i < n; i++) {
        const cli_option *o = rows[i].option;
        char flag[CLI_FLAG_TEXT], text[CLI_HELP_TEXT];
        if (!all && !(o->kind & CLI_COMMON))
            continue;
        if (strcmp(heading, rows[i].heading) != 0)
            fprintf(to, "\n%s:\n", heading = rows[i].heading);
        cli_flag_text(flag, o);
        cli_help_text(text, o);
        one_option(to, flag, text);
    }
    one_option(to, "--help", all ? "this text" : "this text; --help all: every flag");
    if (!all)
        fprintf(to, "\n%d more flags: sheaf %s --help all\n", n - common, command->name);
    if (sheaf__setting_find(options, "recipe") != NULL)
        fprintf(to,
                "\nA recipe is a text file of `key: value` lines; its keys are the flags' names. "
                "A flag wins over it.\n");
    fprintf(to, "\nexit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 could not be done\n");
}
