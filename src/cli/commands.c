/* commands.c - the list of subcommands. */
#include "commands.h"

const cli_command cli_commands[] = {
    { 0 },
};
