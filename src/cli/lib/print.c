/* print.c - what several subcommands print. */
#include <unistd.h>

#include "base/base.h"
#include "base/print.h"
#include "cli.h"
#include "sheaf/dtype.h"

void cli_say(const cli *cli, const char *text)
{
    if (isatty(fileno(cli->out)))
        sheaf__print_lines(cli->out, text);
    else
        fputs(text, cli->out);
}

void cli_print_fields(FILE *to, const char *label, const char *text)
{
    char *spelled = sheaf__spell_fields(text, NULL);
    sheaf__print(to, "%s%s\n", label, spelled != NULL ? spelled : text);
    free(spelled);
}

void cli_fact_line(FILE *to, const char *key, const char *value)
{
    char label[64];
    snprintf(label, sizeof label, "  %-14s ", key);
    cli_print_fields(to, label, value);
}

const cli_choice cli_dtypes[] = {
    { "float32", SHEAF_F32 },
    { "bfloat16", SHEAF_BF16 },
    { "float16", SHEAF_F16 },
    { 0 },
};

bool cli_json_end(FILE *to, sheaf_json_writer *j)
{
    sheaf__json_end(j);
    sheaf__text_add(&j->text, "\n");
    const bool done = !j->text.failed && fputs(j->text.at, to) >= 0;
    sheaf__text_release(&j->text);
    return done;
}
