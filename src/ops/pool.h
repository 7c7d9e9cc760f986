/* pool.h - the compute threads of one rank.
 *
 * The calling thread is worker 0 and works too; a pool of one starts no thread.
 * Every worker (and the caller, while inside run) has DAZ and FTZ set, as the
 * numeric contract asks. Tasks must not depend on which worker runs them or in
 * which order: results may never show the thread count. */
#pragma once

#include <stdint.h>

#include "sheaf/status.h"

typedef struct sheaf__pool sheaf__pool;

/* sheaf__pool_new - `threads` >= 1 workers, idle ones sleep after a short spin. */
sheaf_status *sheaf__pool_new(sheaf__pool **out, int threads);
void sheaf__pool_free(sheaf__pool *pool);
int sheaf__pool_threads(const sheaf__pool *pool);

/* sheaf__pool_run - task(context, index, worker) for every index in [0, tasks);
 * returns when all are done. Only one caller at a time. */
void sheaf__pool_run(sheaf__pool *pool, int64_t tasks,
                     void (*task)(void *context, int64_t index, int worker), void *context);

/* sheaf__pool_rows - cuts [0, rows) into chunks of `grain` and runs
 * body(context, begin, end, worker) on each. */
void sheaf__pool_rows(sheaf__pool *pool, int64_t rows, int64_t grain,
                      void (*body)(void *context, int64_t begin, int64_t end, int worker),
                      void *context);
