/* appended.h - private: a file that grows by whole pieces, one after each step.
 *
 * Pieces that could not be written (a full disk) wait in `pending` and are retried with the next
 * one: a temporary failure leaves no gap and no half piece. */
#pragma once

#include "base/text.h"

typedef struct sheaf__appended {
    int fd;      /* closed: path is NULL */
    int64_t end; /* bytes of whole pieces in the file */
    char *path;  /* owned */
    sheaf_text pending;
} sheaf__appended;

static inline bool sheaf__appended_is_open(const sheaf__appended *file)
{
    return file->path != NULL;
}
/* sheaf__appended_write - the error number, 0 when all that was pending is in the file. */
int sheaf__appended_write(sheaf__appended *file);
/* sheaf__appended_sync - to disk. Errors: SHEAF_E_IO if something is still pending or the sync
 * fails, SHEAF_E_MEMORY if something was lost. Nothing to do for a closed one. */
sheaf_status *sheaf__appended_sync(sheaf__appended *file);
/* sheaf__appended_close - does not sync. Harmless on a closed one. */
void sheaf__appended_close(sheaf__appended *file);
