/* signals.h - the command's signal handlers. A command that has nothing to save is ended at once,
 * with an error message; for others they are requests:
 *
 *   SIGTERM, SIGINT   save at the end of the step, then stop
 *   another SIGINT    ends the process at once (saves are atomic, nothing breaks)
 *   SIGHUP            as SIGTERM: the terminal is gone. Under nohup it stays ignored
 *   SIGUSR2           as SIGTERM: LSF, Grid Engine, HTCondor and submitit send it before they kill;
 *                     Open MPI's mpirun passes it on, and ends everything at SIGTERM
 *   SIGXCPU           as SIGTERM: `ulimit -t` or a scheduler's limit of processor time is near
 *   SIGUSR1           save at the end of the step, then go on; nothing where nothing is saved
 *   SIGPIPE, SIGXFSZ  ignored: writing to a closed pipe or past `ulimit -f` is an error, not the
 *                     end */
#pragma once

#include <stdbool.h>

#include "sheaf/status.h"
#include "base/control.h"

/* driver_under_nohup - is SIGHUP ignored, and to stay so? */
bool driver_under_nohup(void);
/* driver_signals_end - from now on a request to stop ends the process at once, with exit code 3 and
 * the message of driver_report() for SHEAF_E_STOPPED: on stderr, and with `json` on stdout too. The
 * buffer of stdout is lost. Until one of the two below is called. */
void driver_signals_end(const char *command, bool json);
/* driver_signals_install - once, from one thread, before ranks start. Errors: SHEAF_E_IO. */
sheaf_status *driver_signals_install(void);
/* driver_signals_install_stops - without SIGPIPE: for a command that writes no file, which a closed
 * pipe may end. */
sheaf_status *driver_signals_install_stops(void);
/* The flags that the handlers set. */
sheaf_control *driver_signals(void);
/* driver_signals_control - for a command that writes one output and leaves nothing when it is
 * stopped: installs the handlers and gives their flags. */
sheaf_status *driver_signals_control(sheaf_control **control);
/* driver_signals_unfinished - a file that an impatient second SIGINT, which ends the process at
 * once, removes; NULL: none any more. Stays the caller's. */
void driver_signals_unfinished(const char *path);
/* driver_signals_remove_unfinished - removes it now, at an end of another kind. Any thread. */
void driver_signals_remove_unfinished(void);
/* driver_write_all - for signal handlers and threads that may take no lock; NULL: nothing. A
 * failure is ignored. */
void driver_write_all(int fd, const char *text);
/* driver_signals_explain - puts the signal's name before a status that it brought about; NULL stays
 * NULL. */
sheaf_status *driver_signals_explain(sheaf_status *st);
/* "SIGTERM", "SIGINT", ... after a request to stop, else NULL: of processes that
 * sheaf launched itself, on the host where it did, the signal that the user sent. */
const char *driver_signals_stopped_by(void);
