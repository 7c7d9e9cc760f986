/* temporary.h - files and folders that the process removes; those of a killed process are removed
 * by the next that makes one of the kind. */
#pragma once

#include "base/base.h"
#include "base/events.h"
#include "base/file.h"

/* sheaf__sweep - removes what is(path, of) in a folder and no process holds a lock on, with a note
 * for each. What cannot be listed or removed stays. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__sweep(const char *folder, bool (*is)(const char *path, const char *of),
                           const char *of, const sheaf_events *events);
/* sheaf__temporary_make - makes "sheaf-KIND.XXXXXX" in sheaf__temporary_parent(), or in /tmp where
 * that does not fit into `size`: a file, or a folder, for this user alone, and takes away those of
 * KIND whose process is gone. The caller removes it.
 *   path  out, the name
 *   lock  out, a descriptor (of a file: to read and write), open while it is in use: its
 *         lock says so to others. Not inherited by programs that are started
 * Errors: SHEAF_E_IO. */
sheaf_status *sheaf__temporary_make(char *path, size_t size, int *lock, const char *kind,
                                    bool folder);
/* sheaf__temporary_unnamed - a file in `folder` without a name, to read and write: gone once it is
 * closed, and with the process. The path in it is for messages.
 *   direct  out: it is read and written past the cache of files, in units of 4096 bytes; false
 * where the file system cannot Errors: SHEAF_E_IO. */
sheaf_status *sheaf__temporary_unnamed(sheaf_file *out, const char *folder, bool *direct);
