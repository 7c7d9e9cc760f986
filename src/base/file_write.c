/* file_write.c - writing; see file.h. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "file.h"
#include "base/base.h"

enum { MOST_PER_CALL = 1 << 30, DEEPEST_TREE = 64 };

double sheaf__disk_free(const char *path)
{
    struct statvfs about;
    char *at = strdup(path), *above = NULL;
    while (at != NULL && sheaf__path_kind(at) == SHEAF_PATH_NONE && strcmp(at, ".") != 0 &&
           strcmp(at, "/") != 0) {
        sheaf_status_free(sheaf__path_parent(&above, at));
        free(at);
        at = above;
        above = NULL;
    }
    const bool known = at != NULL && statvfs(at, &about) == 0;
    free(at);
    return known ? (double)about.f_bavail * (double)about.f_frsize : -1;
}

sheaf_status *sheaf__io_fail(int error, const char *path, const char *doing)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s: %s", path, doing);
    sheaf__found_errno(st, error);
    if (error != ENOSPC && error != EDQUOT)
        return st;
    const double left = sheaf__disk_free(path);
    if (left >= 0)
        sheaf_found(st, "%s; %.1f MB are free there", strerror(error), left / 1e6);
    return sheaf_try_this(st, "free space on that file system or write to another; "
                              "files that were complete before are untouched");
}

/* A call that gives 0, or -1 with errno; again while a signal interrupts it: 0, or the error
 * number. */
#define ERROR_OF(call) (TEMP_FAILURE_RETRY(call) == 0 ? 0 : errno)

/* name: what messages call it. */
static sheaf_status *open_file(sheaf_file *out, const char *path, const char *name, int flags)
{
    *out = (sheaf_file){ .fd = -1 };
    char *copy = strdup(name);
    if (copy == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", name);
    const int fd = TEMP_FAILURE_RETRY(open(path, O_WRONLY | O_CLOEXEC | flags, 0666)),
              error = errno;
    if (fd < 0) {
        free(copy);
        return sheaf__io_fail(
            error, name, flags & O_CREAT ? "cannot create the file" : "cannot open for writing");
    }
    out->fd = fd;
    out->path = copy;
    return NULL;
}

sheaf_status *sheaf__file_create(sheaf_file *out, const char *path)
{
    return open_file(out, path, path, O_CREAT | O_EXCL);
}

sheaf_status *sheaf__file_open_write(sheaf_file *out, const char *path)
{
    return open_file(out, path, path, 0);
}

sheaf_status *sheaf__file_reserve(sheaf_file *file, int64_t size)
{
    int error = ERROR_OF(ftruncate(file->fd, (off_t)size));
    while (error == 0 && size > 0 && fallocate(file->fd, 0, 0, (off_t)size) != 0) {
        if (errno == EOPNOTSUPP || errno == ENOSYS)
            break; /* the file system cannot claim blocks; a full disk will show later */
        if (errno != EINTR)
            error = errno;
    }
    if (error == 0)
        return NULL;
    /* ext4 keeps what it could claim: others want that space, and the free space reported is
     * without it. Where this fails too, the file is removed all the same. */
    (void)ERROR_OF(ftruncate(file->fd, 0));
    return sheaf_expected(sheaf__io_fail(error, file->path, "claiming space"),
                          "room for %" PRId64 " bytes", size);
}

static sheaf_status *write_all(sheaf_file *file, const char *src, size_t size, int64_t offset)
{
    size_t done = 0;
    while (done < size) {
        const size_t want = size - done < MOST_PER_CALL ? size - done : MOST_PER_CALL;
        const ssize_t n =
            TEMP_FAILURE_RETRY(pwrite(file->fd, src + done, want, (off_t)(offset + (int64_t)done)));
        if (n <= 0) /* POSIX does not say what 0 means; it would be an endless loop */
            return sheaf_expected(sheaf__io_fail(n == 0 ? EIO : errno, file->path, "writing"),
                                  "%zu bytes written at byte %" PRId64, size, offset);
        done += (size_t)n;
    }
    return NULL;
}

/* A large part is on its way to the disk while the next one is computed: the kernel would begin
 * only when memory fills up or at the fsync, which then waits for all of it. A hint: its result
 * does not matter. */
#define SOON ((size_t)128 << 10)

sheaf_status *sheaf__file_write_at(sheaf_file *file, const void *src, size_t size, int64_t offset)
{
    sheaf_status *st = write_all(file, src, size, offset);
    if (st == NULL && size >= SOON)
        (void)sync_file_range(file->fd, offset, (off_t)size, SYNC_FILE_RANGE_WRITE);
    return st;
}

sheaf_status *sheaf__file_sync(sheaf_file *file)
{
    const int error = ERROR_OF(fsync(file->fd));
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

sheaf_status *sheaf__make_dir(const char *path)
{
    const int error = ERROR_OF(mkdir(path, 0777));
    return error == 0 ? NULL : sheaf__io_fail(error, path, "cannot make the folder");
}

/* A link that leads nowhere is in the way, as a file is. */
static int not_writable(const char *folder)
{
    struct stat about;
    if (sheaf__path_kind(folder) == SHEAF_PATH_DIR)
        return access(folder, W_OK | X_OK) == 0 ? 0 : errno;
    return lstat(folder, &about) == 0 ? ENOTDIR : errno == ENOTDIR ? ENOENT : errno;
}

sheaf_status *sheaf__path_check_new(const char *path, bool parents)
{
    char *folder = NULL;
    sheaf_status *st = sheaf__path_parent(&folder, path);
    int error = st == NULL ? not_writable(folder) : 0;
    while (st == NULL && parents && error == ENOENT) {
        char *above = NULL;
        st = sheaf__path_parent(&above, folder);
        free(folder);
        folder = above;
        error = st == NULL ? not_writable(folder) : 0;
    }
    if (st == NULL && error != 0) {
        st = sheaf_fail(SHEAF_E_IO, "%s", path);
        sheaf_expected(st, "%s",
                       parents ? "a place where a folder can be made"
                               : "a folder that is there and may be written");
        sheaf_found(st, "%s: %s", folder, strerror(error));
        if (error == ENOENT)
            sheaf_try_this(st, "mkdir -p %s", folder);
        else if (error == ENOTDIR)
            sheaf_try_this(st, "another name, or move %s away", folder);
        else
            sheaf_try_this(st, "another place, or the right to write there: ls -ld %s", folder);
    }
    free(folder);
    return st;
}

/* The entry of a new folder must outlast a power failure as what will be in it does. */
static sheaf_status *sync_parent(const char *path)
{
    char *parent = NULL;
    sheaf_status *st = sheaf__path_parent(&parent, path);
    TRY(st, sheaf__dir_sync(parent));
    free(parent);
    return st;
}

sheaf_status *sheaf__make_dirs(const char *path)
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
            const int error = ERROR_OF(mkdir(copy, 0777));
            /* another process may have made it meanwhile */
            if (error == 0 || sheaf__path_kind(copy) == SHEAF_PATH_DIR)
                st = sync_parent(copy);
            else
                st = sheaf__io_fail(error, copy, "cannot make the folder");
            if (st != NULL && error == EEXIST) /* also a link that leads nowhere */
                sheaf_found(sheaf_expected(st, "a folder, or nothing yet"), "a file");
        }
        *p = kept;
        if (kept == '\0')
            break;
    }
    free(copy);
    return st;
}

sheaf_status *sheaf__dir_sync(const char *path)
{
    const int fd = TEMP_FAILURE_RETRY(open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int error = fd < 0 ? errno : ERROR_OF(fsync(fd));
    if (fd >= 0 && (error == EINVAL || error == EOPNOTSUPP))
        error = 0; /* some network file systems cannot sync a folder: it is theirs to keep it */
    if (fd >= 0)
        close(fd);
    return error == 0 ? NULL : sheaf__io_fail(error, path, "fsync of the folder");
}

sheaf_status *sheaf__rename(const char *from, const char *to)
{
    char *parent = NULL;
    sheaf_status *st = sheaf__path_parent(&parent, to);
    if (st != NULL)
        return st;
    const int error = ERROR_OF(rename(from, to));
    st = error != 0 ? sheaf_in(sheaf__io_fail(error, to, "renaming to it"), "%s", from)
                    : sheaf__dir_sync(parent);
    if (st != NULL && error == EISDIR)
        sheaf_found(sheaf_expected(st, "a file, or nothing yet"), "a folder");
    free(parent);
    return st;
}

static void keep_first(sheaf_status **kept, sheaf_status *st)
{
    *kept = sheaf__first_of(*kept, st);
}

static int unlink_one(int dir, const char *name, int flags)
{
    const int error = ERROR_OF(unlinkat(dir, name, flags));
    return error == ENOENT ? 0 : error;
}

static sheaf_status *remove_at(int dir, const char *name, const char *path, int depth)
{
    struct stat about;
    if (fstatat(dir, name, &about, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? NULL : sheaf__io_fail(errno, path, "removing");
    if (!S_ISDIR(about.st_mode)) {
        const int error = unlink_one(dir, name, 0);
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
            keep_first(&st, remove_at(dirfd(list), entry->d_name, below, depth + 1));
        free(below);
    }
    closedir(list);
    const int error = st != NULL ? 0 : unlink_one(dir, name, AT_REMOVEDIR);
    if (error != 0)
        st = sheaf__io_fail(error, path, "removing");
    return st;
}

sheaf_status *sheaf__remove_tree(const char *path)
{
    return remove_at(AT_FDCWD, path, path, 0);
}

sheaf_status *sheaf__file_complete(sheaf_file *file, const void *bytes, size_t size)
{
    sheaf_status *st = sheaf__file_write_at(file, bytes, size, 0);
    TRY(st, sheaf__file_sync(file));
    keep_first(&st, sheaf__file_close(file));
    return st;
}
