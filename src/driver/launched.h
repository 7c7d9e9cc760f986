/* launched.h - what a process that was launched (launch.h), or that mpirun or srun started, does
 * beside its rank: it notes how it ends, meets the others within a time, lets them say how it died,
 * and comes to its end. */
#pragma once

#include "driver/driver.h"

/* The note: a file of one byte for each of these, by which launched processes on the host of the
 * one that launched them tell it what an mpirun may lose. This variable of their environment names
 * it. */
#define DRIVER_NOTE "SHEAF_LAUNCHED"
typedef enum driver_note {
    DRIVER_NOTE_CODE,      /* '0' + what the first process ends with */
    DRIVER_NOTE_CODE_ELSE, /* or another one that failed once it had met it */
    DRIVER_NOTE_ENDED, /* one found that the run cannot go on: an mpirun may wait for ever for the
                       part of itself on a host that is gone */
    DRIVER_NOTE_STOPPED_BY, /* by the launcher: the signal that it passes on, maybe as another */
    DRIVER_NOTE_VERDICT,    /* a driver_verdict_kind */
} driver_note;
/* 0: no mark, or no note. */
char driver_note_read(int note, driver_note at);
void driver_note_write(int note, driver_note at, char with);

/* Is an end worth another run? */
typedef enum driver_verdict_kind { DRIVER_AGAIN = 1, DRIVER_FINAL } driver_verdict_kind;
/* driver_verdict - notes why this process ends, for the one that may begin it again (launch.h). */
void driver_verdict(const sheaf_status *st);
/* driver_launch_note_code - this process ends with `code`: notes it if it is the first, or fails.
 */
void driver_launch_note_code(const struct sheaf_comm *all, int code);
/* driver_launch_stopped_by - the signal for which the launcher asked this process to stop; 0: none,
 * or the launcher is elsewhere. */
int driver_launch_stopped_by(void);

/* driver_end - the hook of comm/watch/watch.h; `self` is the driver: the end of a run that cannot
 * go on, from the watching thread. Ends the process with exit code 3. */
void driver_end(void *self, const char *text);

/* driver_join_timeout - called as it joins the others: until the processes of a run watch each
 * other (comm/watch/watch.h) a timeout does, as an MPI waits for ever for one that was stopped, or
 * whose host was lost. This process ends with exit code 3, and says why, if it has not met them
 * within SHEAF_MEET_WITHIN seconds (300). */
void driver_join_timeout(void);
/* driver_join_json - with `json` the first one says so on standard output, too. */
void driver_join_json(bool json);
/* driver_joined - they are met, and watched. */
void driver_joined(void);

/* driver_split_rank - returns in the process that is the rank, before it has threads; at once where
 * nothing is launched in that way. MPICH's mpirun kills all processes the moment one of them is
 * killed, before any of the others can say which it was: the process that it started only waits for
 * another one, which is the rank, and ends with its exit code. Where the rank is killed, the others
 * have a second to report it (comm/watch), and end by themselves. */
void driver_split_rank(void);
/* driver_fail_by_signal - a process that failed before it met the others, and cannot meet them:
 * where nothing would end them, as they wait for it, it dies of a signal. */
void driver_fail_by_signal(void);
/* driver_finish_timeout - called once this process has left the others: its MPI has ten seconds to
 * come to its end, or it ends without. */
void driver_finish_timeout(void);
/* driver_finish_code - what it ends with then: the code of the command, once that is known. */
void driver_finish_code(int code);
