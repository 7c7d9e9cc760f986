/* launched.h - what a process that mpirun or srun started does beside its rank: it meets the others
 * within a time, lets them say how it died, and comes to its end. */
#pragma once

#include <stdbool.h>

/* cli_meeting_clock - called as it joins the others: until the processes of a run watch each other
 * (comm/watch/watch.h) a clock does, as an MPI waits for ever for one that was stopped, or whose
 * host was lost. This process ends with exit code 3, and says why, if it has not met them within
 * SHEAF_MEET_WITHIN seconds (300). */
void cli_meeting_clock(void);
/* cli_meeting_begin - with `json` the first one says so on standard output, too. */
void cli_meeting_begin(bool json);
/* cli_meeting_over - they are met, and watched. */
void cli_meeting_over(void);

/* cli_linger - returns in the process that is the rank, before it has threads; at once where
 * nothing is launched in that way. MPICH's mpirun kills all processes the moment one of them is
 * killed, before any of the others can say which it was: the process that it started only waits for
 * another one, which is the rank, and ends with its exit code. Where the rank is killed, the others
 * have a second to report it (comm/watch), and end by themselves. */
void cli_linger(void);
/* cli_linger_fail - a process that failed before it met the others, and cannot meet them: where
 * nothing would end them, as they wait for it, it dies of a signal. */
void cli_linger_fail(void);
/* cli_linger_end - called once this process has left the others: its MPI has ten seconds to come to
 * its end, or it ends without. */
void cli_linger_end(void);
/* cli_linger_code - what it ends with then: the code of the command, once that is known. */
void cli_linger_code(int code);
