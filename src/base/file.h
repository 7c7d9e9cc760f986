/* file.h - the one layer through which sheaf reads and writes files.
 *
 * Reading: exact byte ranges with pread, never a mapping; a short file is an error
 * that says where. Writing: nothing appears under its final name before it is
 * complete and on disk (temporary name, fsync, rename, fsync of the directory).
 * Interrupted and short system calls are continued; the status of a full disk has
 * the bytes that were wanted and are left. */
#pragma once

#include <stdatomic.h>
#include <time.h>

#include "base/base.h"
#include "base/hash.h"
#include "sheaf/status.h"

/* ---- paths and folders ---- */

typedef enum sheaf_path_kind {
    SHEAF_PATH_NONE,
    SHEAF_PATH_FILE,
    SHEAF_PATH_DIR,
    SHEAF_PATH_OTHER
} sheaf_path_kind;

/* sheaf__temporary_parent - the folder for temporary files: $TMPDIR, else /tmp. */
const char *sheaf__temporary_parent(void);
/* sheaf__path_kind - what is there, links followed. NONE also when it cannot be looked at. */
sheaf_path_kind sheaf__path_kind(const char *path);
/* sheaf__path_what - the same in words, for messages: "a folder", "a file", "a device", "a pipe",
 * "a socket", "nothing of that name". */
const char *sheaf__path_what(const char *path);
/* sheaf__path_hub - `st`, which says that nothing is at `path`; where it reads like the name of a
 * model or a data set on a hub ("org/name", and there is no folder org), with how to get it. */
sheaf_status *sheaf__path_hub(sheaf_status *st, const char *path);
/* sheaf__path_same - do both lead to one file or folder? Links followed. */
bool sheaf__path_same(const char *a, const char *b);
/* sheaf__path_holds - is the file or folder that `fd` has open still the one of this name? Links
 * followed. */
bool sheaf__path_holds(const char *path, int fd);
/* sheaf__path_join - "dir/name" (malloc'd). Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__path_join(char **out, const char *dir, const char *name);
/* sheaf__path_in - "dir/name" in `path`, which it gives back; sheaf__path_above - the folder that
 * `of` is in, as sheaf__path_parent(). One that is too long for the system is cut to what is too
 * long for it still, so that open() fails. */
enum { SHEAF_PATH_SIZE = 4096 + 1 }; /* PATH_MAX counts the NUL */
const char *sheaf__path_in(char path[SHEAF_PATH_SIZE], const char *dir, const char *name);
const char *sheaf__path_above(char path[SHEAF_PATH_SIZE], const char *of);
/* sheaf__path_has - is DIR/NAME there, and of this kind? SHEAF_PATH_NONE: of any. */
bool sheaf__path_has(const char *dir, const char *name, sheaf_path_kind kind);
/* sheaf__path_parent - the folder that `path` is in, "." if it names none (malloc'd). */
sheaf_status *sheaf__path_parent(char **out, const char *path);
/* sheaf__path_absolute - `path` from the root: behind the working folder, without "." and doubled
 * slashes (malloc'd). A working folder that is gone leaves it as it is. */
sheaf_status *sheaf__path_absolute(char **out, const char *path);
/* sheaf__path_name - the last part of `path`, of "." that of the working folder; "/" of the root
 * (malloc'd). */
sheaf_status *sheaf__path_name(char **out, const char *path);
/* sheaf__path_check_new - can something be made at `path`, where nothing is yet? For commands that
 * work long before they write: is the folder it is to lie in there, or with `parents`, which makes
 * those that are missing, the first of them that is, and may it be written? As the system says;
 * what only the attempt shows (a full disk) passes. Errors: SHEAF_E_IO that names that folder. */
sheaf_status *sheaf__path_check_new(const char *path, bool parents);
/* sheaf__path_relative - a whole path as it is called in `folder` (malloc'd): behind it, with ".."
 * where it lies elsewhere, unchanged where that is not known. Links in the part that both share
 * are followed only for "..". */
sheaf_status *sheaf__path_relative(char **out, const char *folder, const char *path);
/* sheaf__partial_path - "PATH.WORD-PID-MARK" or, with `try` above 0, "PATH.WORD-PID.TRY-MARK"
 * (malloc'd): the name of what is not finished. MARK is 16 digits that follow from the name before
 * them, so that no other name is taken for ours. WORD is "partial" or "replaced".
 * Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__partial_path(char **out, const char *path, const char *word, int try);
/* sheaf__path_is_partial - is the last part of `path` a name that sheaf__partial_path() makes?
 * Only such things may be deleted, and only when no sheaf writes them. */
bool sheaf__path_is_partial(const char *path);
/* sheaf__list_dir - names in a folder without "." and "..", sorted by bytes. */
sheaf_status *sheaf__list_dir(char ***names, int64_t *count, const char *path);
void sheaf__names_free(char **names, int64_t count);

/* ---- reading ---- */

/* A file and what it holds: another where it was replaced or written to meanwhile. */
typedef struct sheaf_file_mark {
    uint64_t device, inode;
    int64_t size;
    struct timespec written;
} sheaf_file_mark;
void sheaf__file_mark(sheaf_file_mark *mark, int fd);
bool sheaf__file_mark_equal(const sheaf_file_mark *a, const sheaf_file_mark *b);

/* sheaf__file_open_read - opens a regular file (a folder, pipe or device is refused
 * without blocking). The caller closes *fd. Errors: SHEAF_E_IO. */
sheaf_status *sheaf__file_open_read(int *fd, int64_t *size, const char *path);
/* sheaf__file_read_at - exactly `size` bytes from `offset`. `path` is for messages.
 * Thread-safe. Errors: SHEAF_E_IO from the system; SHEAF_E_FORMAT when the file ends early. */
sheaf_status *sheaf__file_read_at(int fd, void *dst, size_t size, int64_t offset, const char *path);
/* sheaf__file_hash - of `size` bytes from `offset`, also put to `into`, if that is not NULL.
 *   stop  not 0: SHEAF_E_STOPPED; may be NULL */
sheaf_status *sheaf__file_hash(sheaf_hash *out, int fd, int64_t offset, int64_t size,
                               const char *path, char *into, const atomic_int *stop);
/* sheaf__path_hash - of a file by its name. */
sheaf_status *sheaf__path_hash(sheaf_hash *out, const char *path, const atomic_int *stop);
/* sheaf__file_read_all - the whole of a file of at most `limit` bytes, malloc'd, with a
 * NUL after it that `size` does not count. Errors: SHEAF_E_IO, SHEAF_E_FORMAT over the limit. */
sheaf_status *sheaf__file_read_all(char **out, size_t *size, const char *path, size_t limit);

/* ---- writing ---- */

typedef struct sheaf_file {
    int fd;
    char *path; /* owned */
} sheaf_file;

/* sheaf__file_create - a new file; one that exists is an error. */
sheaf_status *sheaf__file_create(sheaf_file *out, const char *path);
/* sheaf__file_open_write - an existing file, for a rank that writes its part of it. */
sheaf_status *sheaf__file_open_write(sheaf_file *out, const char *path);
/* sheaf__file_reserve - sets the length and, where the file system can, claims the blocks,
 * so that a full disk is an error now and not after hours. A failure leaves the file empty. */
sheaf_status *sheaf__file_reserve(sheaf_file *file, int64_t size);
/* sheaf__file_write_at - all of it. Thread-safe for ranges that do not overlap. */
sheaf_status *sheaf__file_write_at(sheaf_file *file, const void *src, size_t size, int64_t offset);
sheaf_status *sheaf__file_sync(sheaf_file *file);
/* sheaf__file_close - releases the struct in any case; all zero or closed already is fine. */
sheaf_status *sheaf__file_close(sheaf_file *file);

/* sheaf__file_complete - writes all that the file is to hold, syncs and closes it in any case. */
sheaf_status *sheaf__file_complete(sheaf_file *file, const void *bytes, size_t size);

/* sheaf__make_dir - one folder; one that exists is an error. */
sheaf_status *sheaf__make_dir(const char *path);
/* sheaf__make_dirs - with parents, durably; those that exist are fine. */
sheaf_status *sheaf__make_dirs(const char *path);
/* sheaf__dir_sync - makes the entries of a folder durable. */
sheaf_status *sheaf__dir_sync(const char *path);
/* sheaf__rename - replaces a file at `to`; then syncs the folder of `to`. */
sheaf_status *sheaf__rename(const char *from, const char *to);
/* sheaf__remove_tree - a file, link or folder with all in it; links are not followed.
 * Nothing there is fine. Goes on after a failure and returns the first one. */
sheaf_status *sheaf__remove_tree(const char *path);
/* sheaf__file_create_partial - a new file that is not finished; those that killed processes left of
 * `path` are removed. Messages name `path`.
 *   partial  out: its name (malloc'd), by sheaf__partial_path(); NULL after a failure
 *   lock     out: a descriptor to close once the file has its own name; -1: none */
sheaf_status *sheaf__file_create_partial(sheaf_file *file, char **partial, int *lock,
                                         const char *path);
/* sheaf__file_write_whole - `path` holds these bytes, durably, or what it held before. */
sheaf_status *sheaf__file_write_whole(const char *path, const void *bytes, size_t size);

/* sheaf__file_lock - flock() of its own, of a file or folder, waiting `most_ms` at most: 0, or -1
 * and errno, which is EWOULDBLOCK where another holds it. */
int sheaf__file_lock(int fd, int most_ms);

/* sheaf__lock_named - opens the file or folder at `path` and locks it without waiting: 0, or an
 * error number: EWOULDBLOCK where another process holds it, ENOENT where it was removed or replaced
 * meanwhile. */
int sheaf__lock_named(int *out, const char *path);

/* sheaf__disk_free - bytes free on the disk where `path` lies, or would be made; -1: unknown. */
double sheaf__disk_free(const char *path);
/* sheaf__io_fail - SHEAF_E_IO for error number `error`: "path: doing", with the space left when
 * the disk is full. For this layer. */
sheaf_status *sheaf__io_fail(int error, const char *path, const char *doing);
