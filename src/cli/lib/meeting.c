/* meeting.c - see meeting.h. */
#include "meeting.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "cli.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "launch.h"
#include "signals.h"

/* The first says it; the others after it, and where nothing ended them by then. */
enum { LONGEST_S = 300, TURN_S = 2, TURNS = 3, MOST_S = 1 << 30 };

static bool in_json;
static char *said, *in_words; /* what the handler writes; NULL: nothing */

static unsigned seconds(void)
{
    const char *given = getenv("SHEAF_MEET_WITHIN");
    const double s = given == NULL ? 0 : strtod(given, NULL);
    return s >= MOST_S ? MOST_S : s >= 1 ? (unsigned)s : s > 0 ? 1 : LONGEST_S;
}

static void on_alarm(int number)
{
    (void)number;
    cli_write_all(STDOUT_FILENO, said);
    cli_write_all(STDERR_FILENO, in_words);
    cli_launch_tell(NULL, CLI_FAILED);
    cli_launch_end();
    _exit(CLI_FAILED);
}

void cli_meeting_clock(void)
{
    const struct sigaction action = { .sa_handler = on_alarm };
    const unsigned within = seconds();
    int number = 0;
    char host[64] = "";
    const char *launcher = sheaf__launched(NULL, &number);
    if (launcher == NULL || sigaction(SIGALRM, &action, NULL) != 0)
        return;
    gethostname(host, sizeof host - 1);
    sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "rank %d on %s: the processes that %s started",
                                  number, host, launcher);
    sheaf_expected(st, "all together within %u s (SHEAF_MEET_WITHIN)", within);
    sheaf_found(st, "one at least that did not come: it was stopped, or its host is lost; all end");
    sheaf_try_this(st, "each host must be up, and reach the others");
    in_words = cli_error_text(st);
    said = in_json && number == 0 ? cli_error_json(st) : NULL;
    sheaf_status_free(st);
    alarm(within + TURN_S * (unsigned)(number < TURNS ? number : TURNS));
}

void cli_meeting_begin(bool json)
{
    in_json = json;
}

void cli_meeting_over(void)
{
    alarm(0);
}
