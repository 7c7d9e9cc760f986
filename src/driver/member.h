/* member.h - the duties of one of several processes beside its rank, whatever started it: it meets
 * the others within a time, and ends when the watch orders it. */
#pragma once

#include "driver/driver.h"

/* driver_member_end - the hook of comm/watch/watch.h; `self` is the driver: the end of a run that
 * cannot go on, from the watching thread. Ends the process. */
void driver_member_end(void *self, const char *text);

/* driver_member_joining - called as it joins the others: until the processes of a run watch each
 * other (comm/watch/watch.h) a timeout does, as an MPI waits for ever for one that was stopped, or
 * whose host was lost. This process ends with a report if it has not met them within
 * SHEAF_MEET_WITHIN seconds (300). */
void driver_member_joining(void);
/* driver_member_json - with `json` the first process reports that on standard output, too. */
void driver_member_json(bool json);
/* driver_member_joined - they are met, and watched. */
void driver_member_joined(void);

/* driver_member_split - returns in the process that is the rank, before it has threads; at once
 * where MPICH's mpirun started none. That one kills all processes the moment one of them is killed
 * (-disable-auto-cleanup does not always keep MPICH 4.0 from it), before any of the others can
 * report which it was: the process that it started only waits for another one, which is the rank,
 * and ends as that did, two seconds later where that was killed. */
void driver_member_split(void);

/* driver_member_finishing - called once this process has left the others: its MPI has ten seconds
 * to come to its end, or it ends without. */
void driver_member_finishing(void);
/* driver_member_code - its exit code then: that of the command, once it is known. */
void driver_member_code(int code);
