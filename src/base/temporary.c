/* temporary.c - see temporary.h. Who has a thing holds a lock on it, which ends with the process
 * however that ends; one that can be locked was left over. */
#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

enum { MARK = 6, TRIES = 100, NAME = 64 };

/* "sheaf-KIND.XXXXXX", this user's own. */
static bool is_of(const char *path, const char *begin)
{
    const char *name = strrchr(path, '/') + 1;
    const size_t n = strlen(begin);
    struct stat about;
    return strncmp(name, begin, n) == 0 && strlen(name + n) == MARK && lstat(path, &about) == 0 &&
           about.st_uid == geteuid();
}

sheaf_status *sheaf__sweep(const char *folder, bool (*is)(const char *path, const char *of),
                           const char *of, const sheaf_events *events)
{
    char **names = NULL, path[SHEAF_PATH_SIZE];
    int64_t count = 0;
    sheaf_status *st = sheaf__only_memory(sheaf__list_dir(&names, &count, folder));
    for (int64_t i = 0; i < count; i++) {
        int lock = -1;
        sheaf__path_in(path, folder, names[i]);
        if (is(path, of) && sheaf__lock_named(&lock, path) == 0) {
            sheaf_status *failed = sheaf__remove_tree(path);
            if (failed == NULL)
                sheaf_note(events, "%s: removed, left by a sheaf that was killed", path);
            sheaf_status_free(failed); /* it stays, and hinders nothing */
            close(lock);
        }
    }
    sheaf__names_free(names, count);
    return st;
}

static int make(char *path, bool folder)
{
    if (!folder)
        return mkostemp(path, O_CLOEXEC);
    return mkdtemp(path) == NULL ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

sheaf_status *sheaf__temporary_make(char *path, size_t size, int *lock, const char *kind,
                                    bool folder)
{
    const char *parent = sheaf__temporary_parent();
    char begin[NAME];
    snprintf(begin, sizeof begin, "sheaf-%s.", kind);
    if (strlen(parent) + strlen(begin) + MARK + 2 > size)
        parent = "/tmp";
    sheaf_status_free(sheaf__sweep(parent, is_of, begin, NULL));
    for (int i = 0; i < TRIES; i++) {
        snprintf(path, size, "%s/%sXXXXXX", parent, begin);
        *lock = make(path, folder);
        if (*lock < 0)
            break;
        /* before it was locked another process may have taken it for a dead one; a file system
         * without locks has none that takes it */
        if ((flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) &&
            sheaf__path_holds(path, *lock))
            return NULL;
        close(*lock);
    }
    *lock = -1;
    return sheaf__io_fail(errno, path, folder ? "making the folder" : "creating the file");
}

/* A file without a name; on file systems that have none, a file that loses its name at once. */
static int unnamed(const char *folder, int flags)
{
    char path[SHEAF_PATH_SIZE];
    int fd =
        TEMP_FAILURE_RETRY(open(folder, O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600));
    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR))
        return fd;
    sheaf__path_in(path, folder, "sheaf-XXXXXX");
    fd = mkostemp(path, O_CLOEXEC | flags);
    if (fd >= 0)
        (void)unlink(path);
    return fd;
}

sheaf_status *sheaf__temporary_unnamed(sheaf_file *out, const char *folder, bool *direct)
{
    *out = (sheaf_file){ .fd = -1 };
    char *path = NULL;
    sheaf_status *st = sheaf__path_join(&path, folder, "(a file without a name)");
    if (st != NULL)
        return st;
    int fd = unnamed(folder, O_DIRECT);
    *direct = fd >= 0;
    if (fd < 0 && errno == EINVAL)
        fd = unnamed(folder, 0);
    if (fd < 0) {
        st = sheaf__io_fail(errno, folder, "making a file without a name");
        free(path);
        return st;
    }
    *out = (sheaf_file){ fd, path };
    return NULL;
}
