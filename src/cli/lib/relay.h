/* relay.h - what a command that talks passes on to the processes that it started: the lines it is
 * given, to the first of them, and each Ctrl-C.
 *
 * A terminal is this process's: mpirun runs in a process group of its own, and would be stopped for
 * reading it. Ctrl-C goes as SIGUSR1, which every mpirun passes on. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "sheaf/status.h"

/* The hidden flag by which those that are started know whom they talk to: none (the flag is not
 * there), or one of these. */
#define CLI_RELAYED "relayed"
enum {
    CLI_RELAYS_FILE = 1,     /* a file or a pipe */
    CLI_RELAYS_TERMINAL = 2, /* a terminal; the output goes elsewhere */
    CLI_RELAYS_BOTH = 3,     /* a terminal, which shows the output too */
};

typedef struct cli_relay {
    int from, to; /* of the pipe to the launcher; -1: closed */
    char buffer[4096];
    size_t begin, end; /* what waits in it */
    bool over;         /* the input has ended */
    double pressed[3]; /* when Ctrl-C was, the last first; 0: not yet */
} cli_relay;

/* cli_relay_kind - what this process's input and output are, as the flag has it. Static. */
const char *cli_relay_kind(void);
/* cli_relay_open - after cli_signals_install(): Ctrl-C is counted from now on. Errors: SHEAF_E_IO.
 */
sheaf_status *cli_relay_open(cli_relay *relay);
/* cli_relay_take - in the child: the pipe becomes its input. */
bool cli_relay_take(const cli_relay *relay);
/* cli_relay_pass - what is there, to `child` and into the pipe; waits `ms` at most. */
void cli_relay_pass(cli_relay *relay, pid_t child, int ms);
/* cli_relay_insists - were there three Ctrl-C within two seconds? Then nobody minds them. */
bool cli_relay_insists(const cli_relay *relay);
void cli_relay_close(cli_relay *relay);
