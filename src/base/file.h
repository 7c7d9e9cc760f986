/* file.h - the one layer through which sheaf reads and writes files.
 *
 * Reading: exact byte ranges with pread, never a mapping; a short file is an error
 * that says where. Writing: nothing appears under its final name before it is
 * complete and on disk (temporary name, fsync, rename, fsync of the directory).
 * Interrupted and short system calls are continued; a full disk is told with the
 * bytes that were wanted and are left.
 *
 * Every system call here asks a fault hook first, so that tests can let the n-th
 * call fail or the process die in it. That hook is the only hidden state of the
 * library; see sheaf_faults. */
#ifndef SHEAF_BASE_FILE_H
#define SHEAF_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sheaf/status.h"

/* ---- reading ---- */

typedef enum sheaf_path_kind { SHEAF_PATH_NONE, SHEAF_PATH_FILE, SHEAF_PATH_DIR, SHEAF_PATH_OTHER } sheaf_path_kind;

/* sheaf__path_kind - what is there, links followed. NONE also when it cannot be looked at. */
sheaf_path_kind sheaf__path_kind(const char *path);
/* sheaf__path_join - "dir/name" (malloc'd). Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__path_join(char **out, const char *dir, const char *name);

/* sheaf__file_open_read - opens a regular file (a folder, pipe or device is refused
 * without blocking). The caller closes *fd. Errors: SHEAF_E_IO. */
sheaf_status *sheaf__file_open_read(int *fd, int64_t *size, const char *path);
/* sheaf__file_read_at - exactly `size` bytes from `offset`. `path` is for messages.
 * Thread-safe. Errors: SHEAF_E_IO from the system; SHEAF_E_FORMAT when the file ends early. */
sheaf_status *sheaf__file_read_at(int fd, void *dst, size_t size, int64_t offset, const char *path);
/* sheaf__file_read_all - the whole of a file of at most `limit` bytes, malloc'd, with a
 * NUL after it that `size` does not count. Errors: SHEAF_E_IO, SHEAF_E_FORMAT over the limit. */
sheaf_status *sheaf__file_read_all(char **out, size_t *size, const char *path, size_t limit);

#endif
