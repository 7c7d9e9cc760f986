/* ending.c - see ending.h. What the watching thread does here takes no lock that a waiting rank
 * could hold: no stdio, no exit handlers. */
#include "ending.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "comm/plugins.h"
#include "launch.h"
#include "shared.h"
#include "signals.h"

/* Of ranks the first one to write counts: what the others find is its consequence. The process that
 * launched them knows better than all. */
static void write_verdict(const char *verdict)
{
    const int how = sheaf__launched(NULL, NULL) != NULL ? O_APPEND : O_TRUNC;
    const char *path = getenv(CLI_VERDICT);
    const int fd = path == NULL ? -1 : open(path, O_WRONLY | how | O_CLOEXEC);
    if (fd < 0)
        return;
    cli_write_all(fd, verdict);
    close(fd);
}

/* Errors of the system that may pass: not a file that is missing, nor a disk that is full. */
static bool may_pass(const sheaf_status *st)
{
    static const int passing[] = { EIO,       ESTALE,      ETIMEDOUT,    ECONNRESET,
                                   EHOSTDOWN, ENETUNREACH, EHOSTUNREACH, ENODEV };
    for (size_t i = 0; i < sizeof passing / sizeof *passing; i++)
        if (sheaf_status_errno(st) == passing[i])
            return true;
    return false;
}

void cli_verdict(const sheaf_status *st)
{
    if (st == NULL) { /* also where its result could not be printed */
        write_verdict("final 0\n");
        return;
    }
    const sheaf_code code = sheaf_status_code(st);
    const bool again =
        code == SHEAF_E_PEER || code == SHEAF_E_MEMORY || (code == SHEAF_E_IO && may_pass(st));
    write_verdict(again ? "again 0\n" : code == SHEAF_E_STOPPED ? "stopped 0\n" : "final 0\n");
}

/* Its first line. */
static void print_json(const char *text)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_PEER, "%.*s", (int)strcspn(text, "\n"), text);
    char *line = cli_error_json(st);
    sheaf_status_free(st);
    cli_write_all(STDOUT_FILENO, line);
    free(line);
}

void cli_end(void *self, const sheaf__watch_end *why)
{
    const cli *cli = self;
    char verdict[32];
    snprintf(verdict, sizeof verdict, "again %d\n", why->gone);
    if (why->text != NULL) {
        cli_write_all(STDERR_FILENO, why->text);
        if (cli->json)
            print_json(why->text);
        write_verdict(verdict);
    }
    cli_signals_remove_unfinished();
    cli_launch_note_code(cli_all(cli), CLI_FAILED);
    cli_launch_end();
    _exit(CLI_FAILED);
}
