/* linger.h - a process of a run that ends a moment later than its rank.
 *
 * MPICH's mpirun kills all processes the moment one of them is killed, before any of the others can
 * say which it was. So the process that it started only waits for another one, which is the rank:
 * where that is killed, the others have a second to tell it (comm/watch), and end by themselves. */
#pragma once

/* cli_linger - returns in the process that is the rank, before it has threads; at once where
 * nothing is launched in that way. The other one ends with the rank's exit code. */
void cli_linger(void);
/* cli_linger_fail - a process that failed before it met the others, and cannot meet them: where
 * nothing would end them, as they wait for it, it dies of a signal. */
void cli_linger_fail(void);
/* cli_linger_end - called once this process has left the others: its MPI has ten seconds to come to
 * its end, or it ends without. */
void cli_linger_end(void);
/* cli_linger_code - what it ends with then: the code of the command, once that is known. */
void cli_linger_code(int code);
