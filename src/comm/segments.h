/* segments.h - shared memory that processes of Open MPI leave when they are killed.
 *
 * Each has a file in /dev/shm, "vader_segment.HOST.UID.JOB.RANK" (since Open MPI 5
 * "sm_segment..."), and removes it at its end. mpirun removes those of killed ones, but is itself
 * killed with them where memory is short, and then they hold memory until the machine ends. */
#pragma once

#define SHEAF__SEGMENTS "/dev/shm"

/* sheaf__segments_sweep - removes those in `folder` of this user and host that no process has
 * mapped. */
void sheaf__segments_sweep(const char *folder);
