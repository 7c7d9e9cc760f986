/* commands.h - the subcommands: one cmd_*.c each, listed in commands.c. */
#ifndef SHEAF_CLI_COMMANDS_H
#define SHEAF_CLI_COMMANDS_H

#include "cli.h"

#endif
