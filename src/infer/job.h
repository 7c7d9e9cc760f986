/* job.h - a job: passes over the same slots, from the leader's first order to its last. The leader
 * lets sequences into the slots (scheduler.h), and the other ranks of its group follow it. */
#pragma once

#include "infer/scheduler.h"

/* The leader's. */
typedef struct sheaf__slots_job {
    sheaf__slots slots;
    sheaf__scheduler *scheduler; /* the caller adds sequences, and steps */
} sheaf__slots_job;

/* sheaf__slots_job_open - by the leader.
 *   chunk, ready  as of sheaf__scheduler_options
 * Close also after a failure. */
sheaf_status *sheaf__slots_job_open(sheaf__slots_job *out, const sheaf__member *member,
                                    const sheaf__slots_size *size, int64_t chunk,
                                    bool (*ready)(sheaf__sequence *sequence));
/* sheaf__slots_job_close - the others' job ends, too. Returns `st`, the job's status, which is
 * consumed; SHEAF_E_NUMBER gets the name of a weight that is not finite. */
sheaf_status *sheaf__slots_job_close(sheaf__slots_job *job, sheaf_status *st,
                                     const sheaf__member *member);
/* sheaf__slots_follow - by the others: obeys the leader to the end of a job, or of a WAIT between
 * jobs; *over: there are no more. Errors: SHEAF_E_PEER: a rank is lost. */
sheaf_status *sheaf__slots_follow(bool *over, const sheaf__member *member);
