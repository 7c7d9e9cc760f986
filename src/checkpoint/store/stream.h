/* stream.h - a tensor's rows, some at a time, on several threads. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "ops/pool.h"

/* The failure of the lowest task that had one. */
typedef struct sheaf__stream_failure {
    atomic_bool failed;
    pthread_mutex_t lock;
    sheaf_status *st;
    int64_t index;
} sheaf__stream_failure;

void sheaf__stream_failure_init(sheaf__stream_failure *failure);
/* sheaf__stream_keep - takes `st`. */
void sheaf__stream_keep(sheaf__stream_failure *failure, sheaf_status *st, int64_t index);
bool sheaf__stream_failed(sheaf__stream_failure *failure);
/* sheaf__stream_failure_take - the end of it; NULL when nothing failed. */
sheaf_status *sheaf__stream_failure_take(sheaf__stream_failure *failure);

/* Rows of a chunk so that it holds about a quarter million elements. */
int64_t sheaf__stream_chunk(int64_t rows, int64_t cols);
int64_t sheaf__stream_chunks(int64_t rows, int64_t chunk);

/* sheaf__stream_rows - body(context, row0, rows, index, worker) for each chunk of [0, rows).
 * After a failure the rest is passed over; returns the failure of the lowest chunk that
 * had one. */
sheaf_status *sheaf__stream_rows(sheaf__pool *pool, int64_t rows, int64_t chunk,
                                 sheaf_status *(*body)(void *context, int64_t row0, int64_t rows,
                                                       int64_t index, int worker),
                                 void *context);
