/* help.c - help made from the table of options. */
#include <stdlib.h>
#include <string.h>

#include "cli.h"

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

/* What does not fit is cut. */
static void append(char text[CLI_FLAG_TEXT], const char *more)
{
    const size_t used = strlen(text);
    snprintf(text + used, CLI_FLAG_TEXT - used, "%s", more);
}

void cli_flag_text(char text[CLI_FLAG_TEXT], const cli_option *o)
{
    const bool flag = (o->kind & CLI_KIND) == CLI_FLAG;
    snprintf(text, CLI_FLAG_TEXT, "--%s%s", flag && *(const bool *)o->value ? "no-" : "", o->name);
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
    snprintf(text, CLI_HELP_TEXT, "%s", o->help);
    const size_t used = strlen(text);
    default_text(text + used, CLI_HELP_TEXT - used, o);
}

void cli_help(const cli_command *command, const cli_option *options, FILE *to)
{
    fprintf(to, "%s", command->usage);
    bool recipe = false;
    fprintf(to, "\nflags:\n");
    for (const cli_option *o = options; o->name != NULL; o++) {
        char flag[CLI_FLAG_TEXT], text[CLI_HELP_TEXT];
        if (o->kind & CLI_HIDDEN)
            continue;
        recipe |= strcmp(o->name, "recipe") == 0;
        cli_flag_text(flag, o);
        cli_help_text(text, o);
        one_option(to, flag, text);
    }
    one_option(to, "--json", "results as one JSON object on standard output");
    one_option(to, "--help", "this text");
    if (recipe)
        fprintf(to,
                "\nA recipe is a text file of `key: value` lines; its keys are the flags' names. "
                "A flag wins over it.\n");
    fprintf(to, "\nexit codes: 0 done, 1 the answer is no, 2 wrong usage, 3 could not be done\n");
}
