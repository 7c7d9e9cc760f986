/* launched.h - what a process that was launched (launch.h), or that mpirun or srun started, does
 * beside its rank: it notes how it ends, meets the others within a time, lets them say how it died,
 * and comes to its end. */
#pragma once

#include "cli.h"

/* The note: a file of one byte for each of these, by which launched processes on the host of the
 * one that launched them tell it what an mpirun may lose. This variable of their environment names
 * it. */
#define CLI_NOTE "SHEAF_LAUNCHED"
typedef enum cli_note {
    CLI_NOTE_CODE,       /* '0' + what the first process ends with */
    CLI_NOTE_CODE_ELSE,  /* or another one that failed once it had met it */
    CLI_NOTE_ENDED,      /* one found that the run cannot go on: an mpirun may wait for ever for the
                            part of itself on a host that is gone */
    CLI_NOTE_STOPPED_BY, /* by the launcher: the signal that it passes on, maybe as another */
    CLI_NOTE_VERDICT,    /* a cli_verdict_kind */
} cli_note;
/* 0: no mark, or no note. */
char cli_note_read(int note, cli_note at);
void cli_note_write(int note, cli_note at, char with);

/* Is an end worth another run? */
typedef enum cli_verdict_kind { CLI_AGAIN = 1, CLI_FINAL } cli_verdict_kind;
/* cli_verdict - notes why this process ends, for the one that may begin it again (launch.h). */
void cli_verdict(const sheaf_status *st);
/* cli_launch_note_code - this process ends with `code`: notes it if it is the first, or fails. */
void cli_launch_note_code(const struct sheaf_comm *all, int code);
/* cli_launch_stopped_by - the signal for which the launcher asked this process to stop; 0: none, or
 * the launcher is elsewhere. */
int cli_launch_stopped_by(void);

/* cli_end - the hook of comm/watch/watch.h; `self` is the cli: the end of a run that cannot go on,
 * from the watching thread. Ends the process with exit code 3. */
void cli_end(void *self, const char *text);

/* cli_join_timeout - called as it joins the others: until the processes of a run watch each other
 * (comm/watch/watch.h) a timeout does, as an MPI waits for ever for one that was stopped, or whose
 * host was lost. This process ends with exit code 3, and says why, if it has not met them within
 * SHEAF_MEET_WITHIN seconds (300). */
void cli_join_timeout(void);
/* cli_join_json - with `json` the first one says so on standard output, too. */
void cli_join_json(bool json);
/* cli_joined - they are met, and watched. */
void cli_joined(void);

/* cli_split_rank - returns in the process that is the rank, before it has threads; at once where
 * nothing is launched in that way. MPICH's mpirun kills all processes the moment one of them is
 * killed, before any of the others can say which it was: the process that it started only waits for
 * another one, which is the rank, and ends with its exit code. Where the rank is killed, the others
 * have a second to report it (comm/watch), and end by themselves. */
void cli_split_rank(void);
/* cli_fail_by_signal - a process that failed before it met the others, and cannot meet them: where
 * nothing would end them, as they wait for it, it dies of a signal. */
void cli_fail_by_signal(void);
/* cli_finish_timeout - called once this process has left the others: its MPI has ten seconds to
 * come to its end, or it ends without. */
void cli_finish_timeout(void);
/* cli_finish_code - what it ends with then: the code of the command, once that is known. */
void cli_finish_code(int code);
