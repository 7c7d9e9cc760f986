/* file_write.c - writing; see file.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "file.h"
#include "base/status.h"

enum { MOST_PER_CALL = 1 << 30, DEEPEST_TREE = 64, TRIES = 1000 };

sheaf_status *sheaf__io_fail(int error, const char *path, const char *doing)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s: %s", path, doing);
    sheaf__found_errno(st, error);
    if (error != ENOSPC && error != EDQUOT)
        return st;
    struct statvfs about;
    char *parent = NULL;
    sheaf_status_free(sheaf__path_parent(&parent, path));
    if (parent != NULL && statvfs(parent, &about) == 0)
        sheaf_found(st, "%s; %.1f MB are free there", strerror(error),
                    (double)about.f_bavail * (double)about.f_frsize / 1e6);
    free(parent);
    return sheaf_try_this(st, "free space on that file system or write to another; "
                              "what was complete before is untouched");
}

/* The fault hook for calls that either happen or fail: 0, or an error number. EINTR is
 * the only one that a caller retries. */
static int ask(sheaf_faults *faults, sheaf_fault_op op)
{
    return sheaf__fault_errno(sheaf__fault(faults, op));
}

/* name: what messages call it. */
static sheaf_status *open_file(sheaf_file *out, const char *path, const char *name, int flags,
                               sheaf_faults *faults)
{
    *out = (sheaf_file){ .fd = -1, .faults = faults };
    char *copy = strdup(name);
    if (copy == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", name);
    int fd = -1, error;
    do {
        error = ask(faults, SHEAF_FAULT_OPEN);
        if (error == 0) {
            fd = open(path, O_WRONLY | O_CLOEXEC | flags, 0666);
            error = fd < 0 ? errno : 0;
        }
    } while (error == EINTR);
    if (error != 0) {
        free(copy);
        return sheaf__io_fail(
            error, name, flags & O_CREAT ? "cannot create the file" : "cannot open for writing");
    }
    out->fd = fd;
    out->path = copy;
    return NULL;
}

sheaf_status *sheaf__file_create(sheaf_file *out, const char *path, sheaf_faults *faults)
{
    return open_file(out, path, path, O_CREAT | O_EXCL, faults);
}

sheaf_status *sheaf__file_open_write(sheaf_file *out, const char *path, sheaf_faults *faults)
{
    return open_file(out, path, path, 0, faults);
}

sheaf_status *sheaf__file_open_append(sheaf_file *out, const char *path, sheaf_faults *faults)
{
    return open_file(out, path, path, O_CREAT | O_APPEND, faults);
}

sheaf_status *sheaf__file_reserve(sheaf_file *file, int64_t size)
{
    int error;
    do {
        error = ask(file->faults, SHEAF_FAULT_WRITE);
        if (error == 0 && ftruncate(file->fd, (off_t)size) != 0)
            error = errno;
    } while (error == EINTR);
    while (error == 0 && size > 0 && fallocate(file->fd, 0, 0, (off_t)size) != 0) {
        if (errno == EOPNOTSUPP || errno == ENOSYS)
            break; /* the file system cannot claim blocks; a full disk will show later */
        if (errno != EINTR)
            error = errno;
    }
    if (error == 0)
        return NULL;
    /* ext4 keeps what it could claim: others want that space, and what is told is free is without
     * it. Where this fails too, the file is removed all the same. */
    while (ftruncate(file->fd, 0) != 0 && errno == EINTR)
        ;
    return sheaf_expected(sheaf__io_fail(error, file->path, "claiming space"),
                          "room for %" PRId64 " bytes", size);
}

/* One write, at `offset` or appended when it is -1: bytes moved, or the error number negated. */
static ssize_t write_some(sheaf_file *file, const void *src, size_t size, int64_t offset)
{
    const sheaf_fault_action action = sheaf__fault(file->faults, SHEAF_FAULT_WRITE);
    const int error = sheaf__fault_errno(action);
    if (error != 0)
        return -error;
    if (action == SHEAF_FAULT_TORN)
        size /= 2;
    else if (action == SHEAF_FAULT_SHORT)
        size = 1;
    const ssize_t n =
        offset < 0 ? write(file->fd, src, size) : pwrite(file->fd, src, size, (off_t)offset);
    if (action == SHEAF_FAULT_TORN) {
        sheaf_faults now = { SHEAF_FAULT_ANY, SHEAF_FAULT_KILL, 1, false, 0, NULL };
        sheaf__fault(&now, SHEAF_FAULT_WRITE);
    }
    return n < 0 ? -errno : n;
}

static sheaf_status *write_all(sheaf_file *file, const char *src, size_t size, int64_t offset)
{
    size_t done = 0;
    while (done < size) {
        const size_t want = size - done < MOST_PER_CALL ? size - done : MOST_PER_CALL;
        const ssize_t n =
            write_some(file, src + done, want, offset < 0 ? -1 : offset + (int64_t)done);
        if (n == -EINTR)
            continue;
        if (n <=
            0) { /* POSIX does not say what 0 means; without this it would be an endless loop */
            sheaf_status *st = sheaf__io_fail(n == 0 ? EIO : (int)-n, file->path, "writing");
            return offset < 0
                       ? sheaf_expected(st, "%zu bytes appended", size)
                       : sheaf_expected(st, "%zu bytes written at byte %" PRId64, size, offset);
        }
        done += (size_t)n;
    }
    return NULL;
}

/* What is large is on its way to the disk while the next part is computed: the kernel would begin
 * only when memory fills up or at the fsync, which then waits for all of it. A hint: what comes of
 * it does not matter. */
#define SOON ((size_t)128 << 10)

sheaf_status *sheaf__file_write_at(sheaf_file *file, const void *src, size_t size, int64_t offset)
{
    sheaf_status *st = write_all(file, src, size, offset);
    if (st == NULL && size >= SOON)
        (void)sync_file_range(file->fd, offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
    return st;
}

sheaf_status *sheaf__file_append(sheaf_file *file, const void *src, size_t size)
{
    return write_all(file, src, size, -1);
}

static int sync_fd(int fd, sheaf_faults *faults)
{
    int error;
    do {
        error = ask(faults, SHEAF_FAULT_FSYNC);
        if (error == 0)
            error = fsync(fd) == 0 ? 0 : errno;
    } while (error == EINTR);
    return error;
}

sheaf_status *sheaf__file_sync(sheaf_file *file)
{
    const int error = sync_fd(file->fd, file->faults);
    return error == 0 ? NULL : sheaf__io_fail(error, file->path, "fsync");
}

sheaf_status *sheaf__file_close(sheaf_file *file)
{
    sheaf_status *st = NULL;
    /* Linux has released the descriptor even when close() reports EINTR. */
    if (file->path != NULL && close(file->fd) != 0 && errno != EINTR)
        st = sheaf__io_fail(errno, file->path, "closing");
    free(file->path);
    *file = (sheaf_file){ .fd = -1 };
    return st;
}

/* ---- folders ---- */

static int make_dir(const char *path, sheaf_faults *faults)
{
    int error;
    do
        error = ask(faults, SHEAF_FAULT_MKDIR);
    while (error == EINTR);
    return error != 0 ? error : mkdir(path, 0777) == 0 ? 0 : errno;
}

sheaf_status *sheaf__make_dir(const char *path, sheaf_faults *faults)
{
    const int error = make_dir(path, faults);
    return error == 0 ? NULL : sheaf__io_fail(error, path, "cannot make the folder");
}

/* The entry of a new folder must outlast a power failure as what will be in it does. */
static sheaf_status *sync_parent(const char *path, sheaf_faults *faults)
{
    char *parent = NULL;
    sheaf_status *st = sheaf__path_parent(&parent, path);
    TRY(st, sheaf__dir_sync(parent, faults));
    free(parent);
    return st;
}

sheaf_status *sheaf__make_dirs(const char *path, sheaf_faults *faults)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", path);
    sheaf_status *st = NULL;
    for (char *p = copy + 1; st == NULL && copy[0] != '\0'; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        const char kept = *p;
        *p = '\0';
        if (sheaf__path_kind(copy) != SHEAF_PATH_DIR) {
            const int error = make_dir(copy, faults);
            /* another process may have made it meanwhile */
            if (error != 0 && sheaf__path_kind(copy) != SHEAF_PATH_DIR)
                st = sheaf__io_fail(error, copy, "cannot make the folder");
            else
                st = sync_parent(copy, faults);
        }
        *p = kept;
        if (kept == '\0')
            break;
    }
    free(copy);
    return st;
}

sheaf_status *sheaf__dir_sync(const char *path, sheaf_faults *faults)
{
    int error, fd = -1;
    do {
        error = ask(faults, SHEAF_FAULT_OPEN);
        if (error == 0)
            fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (error == 0 && fd < 0)
            error = errno;
    } while (error == EINTR);
    if (error == 0)
        error = sync_fd(fd, faults);
    if (fd >= 0 && (error == EINVAL || error == EOPNOTSUPP))
        error = 0; /* some network file systems cannot sync a folder: it is theirs to keep it */
    if (fd >= 0)
        close(fd);
    return error == 0 ? NULL : sheaf__io_fail(error, path, "fsync of the folder");
}

sheaf_status *sheaf__rename(const char *from, const char *to, sheaf_faults *faults)
{
    char *parent = NULL;
    sheaf_status *st = sheaf__path_parent(&parent, to);
    if (st != NULL)
        return st;
    int error;
    do
        error = ask(faults, SHEAF_FAULT_RENAME);
    while (error == EINTR);
    if (error == 0 && rename(from, to) != 0)
        error = errno;
    st = error != 0 ? sheaf_in(sheaf__io_fail(error, to, "renaming to it"), "%s", from)
                    : sheaf__dir_sync(parent, faults);
    free(parent);
    return st;
}

static void keep_first(sheaf_status **kept, sheaf_status *st)
{
    if (*kept == NULL)
        *kept = st;
    else
        sheaf_status_free(st);
}

static int unlink_one(int dir, const char *name, int flags, sheaf_faults *faults)
{
    int error;
    do
        error = ask(faults, SHEAF_FAULT_UNLINK);
    while (error == EINTR);
    if (error == 0 && unlinkat(dir, name, flags) != 0 && errno != ENOENT)
        error = errno;
    return error;
}

static sheaf_status *remove_at(int dir, const char *name, const char *path, int depth,
                               sheaf_faults *faults)
{
    struct stat about;
    if (fstatat(dir, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? NULL : sheaf__io_fail(errno, path, "removing");
    if (!S_ISDIR(about.st_mode)) {
        const int error = unlink_one(dir, name, 0, faults);
        return error == 0 ? NULL : sheaf__io_fail(error, path, "removing");
    }
    if (depth == DEEPEST_TREE)
        return sheaf_expected(sheaf_fail(SHEAF_E_IO, "%s: removing", path),
                              "at most %d levels of folders", DEEPEST_TREE);
    const int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *list = fd < 0 ? NULL : fdopendir(fd);
    if (list == NULL) {
        sheaf_status *st = sheaf__io_fail(errno, path, "removing");
        if (fd >= 0)
            close(fd);
        return st;
    }
    sheaf_status *st = NULL;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        char *below = NULL;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        keep_first(&st, sheaf__path_join(&below, path, entry->d_name));
        if (below != NULL)
            keep_first(&st, remove_at(dirfd(list), entry->d_name, below, depth + 1, faults));
        free(below);
    }
    closedir(list);
    const int error = st != NULL ? 0 : unlink_one(dir, name, AT_REMOVEDIR, faults);
    if (error != 0)
        st = sheaf__io_fail(error, path, "removing");
    return st;
}

sheaf_status *sheaf__remove_tree(const char *path, sheaf_faults *faults)
{
    return remove_at(AT_FDCWD, path, path, 0, faults);
}

/* A new file with the name of what is not finished, the next while that is taken: by a
 * killed process that had our number, or by another thread. Messages name `path`.
 *   temporary  out: its name (malloc'd); NULL after a failure */
static sheaf_status *create_temporary(sheaf_file *file, char **temporary, const char *path,
                                      sheaf_faults *faults)
{
    for (int i = 0;; i++) {
        *temporary = NULL;
        sheaf_status *st = sheaf__partial_path(temporary, path, "partial", i);
        if (st != NULL)
            return st;
        st = open_file(file, *temporary, path, O_CREAT | O_EXCL, faults);
        if (st == NULL)
            return NULL;
        const bool taken = sheaf__path_kind(*temporary) != SHEAF_PATH_NONE;
        free(*temporary);
        *temporary = NULL;
        if (!taken || i == TRIES)
            return st;
        sheaf_status_free(st);
    }
}

sheaf_status *sheaf__file_write_whole(const char *path, const void *bytes, size_t size,
                                      sheaf_faults *faults)
{
    sheaf_file file;
    char *temporary;
    sheaf_status *st = create_temporary(&file, &temporary, path, faults);
    if (st != NULL)
        return st;
    st = sheaf__file_write_at(&file, bytes, size, 0);
    TRY(st, sheaf__file_sync(&file));
    if (st != NULL)
        sheaf_status_free(sheaf__remove_tree(temporary, faults));
    keep_first(&st, sheaf__file_close(&file));
    if (st == NULL) {
        st = sheaf__rename(temporary, path, faults);
        if (st != NULL)
            sheaf_status_free(sheaf__remove_tree(temporary, faults));
    }
    free(temporary);
    return st;
}

sheaf_status *sheaf__file_may_write(const char *path, sheaf_faults *faults)
{
    sheaf_file file;
    char *temporary;
    sheaf_status *st = create_temporary(&file, &temporary, path, faults);
    if (st != NULL)
        return st;
    st = sheaf__file_close(&file);
    keep_first(&st, sheaf__remove_tree(temporary, faults));
    free(temporary);
    return st;
}
