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
