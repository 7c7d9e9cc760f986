/* stream.h - streams the rows of a tensor, or all bytes of many, in chunks on several threads. */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>

#include "base/events.h"
#include "ops/pool.h"
#include "sheaf/source.h"

/* sheaf__stopped - SHEAF_E_STOPPED of `command` once *stop, which may be NULL, is not 0. */
sheaf_status *sheaf__stopped(const atomic_int *stop, const char *command);

int64_t sheaf__stream_chunks(int64_t rows, int64_t chunk);

/* sheaf__stream_rows - body(context, row0, rows, index, worker) for each chunk of [0, rows).
 * After a failure the rest is skipped; returns the failure of the lowest chunk. */
sheaf_status *sheaf__stream_rows(sheaf__pool *pool, int64_t rows, int64_t chunk,
                                 sheaf_status *(*body)(void *context, int64_t row0, int64_t rows,
                                                       int64_t index, int worker),
                                 void *context);

/* ---- all bytes of a list of tensors ---- */

typedef struct sheaf_copy_job {
    sheaf_source *source;
    const sheaf_source_entry *entry; /* [count], of the source; without a name: skipped */
    int64_t count;
    /* put - a box of the view (sheaf_source.read) of entry[index], dense. Called by several
     * threads. */
    sheaf_status *(*put)(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                         int64_t cols, const void *src);
    void *context;
    int threads;
    const atomic_int *stop; /* for sheaf__stopped() */
    const char *command;
    const sheaf_events *events;
    _Atomic int64_t *done; /* bytes, over several calls */
    int64_t total;
    const char *what; /* of the progress: "bytes converted" */
} sheaf_copy_job;

/* sheaf__copy_to_folder - a `put` whose context is a sheaf_folder of the same tensors. */
sheaf_status *sheaf__copy_to_folder(void *folder, int64_t index, int64_t row0, int64_t rows,
                                    int64_t col0, int64_t cols, const void *src);
/* sheaf__copy_all - every byte of every tensor once, in the order of the list. */
sheaf_status *sheaf__copy_all(const sheaf_copy_job *copying);
/* sheaf__copy_progress - adds to *done, and emits an event now and then. */
void sheaf__copy_progress(const sheaf_events *events, const char *what, _Atomic int64_t *done,
                          int64_t bytes, int64_t total);

int64_t sheaf__entry_bytes(const sheaf_source_entry *entry);
