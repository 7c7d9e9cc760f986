/* temporary.c - see temporary.h. Who has a thing holds a lock on it, which ends with the process
 * however that ends; one that can be locked belongs to nobody any more. */
#include "base/temporary.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"

enum { MARK = 6, TRIES = 100, NAME = 64 };

/* Is it still there under its name, and this user's own? */
static bool is_there(int fd, const char *path)
{
    struct stat mine, there;
    return fstat(fd, &mine) == 0 && lstat(path, &there) == 0 && mine.st_ino == there.st_ino &&
           mine.st_dev == there.st_dev && mine.st_uid == geteuid();
}

static void remove_dead(const char *path)
{
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0 && is_there(fd, path))
        sheaf_status_free(sheaf__remove_tree(path));
    if (fd >= 0)
        close(fd);
}

/* "sheaf-KIND.XXXXXX" */
static bool is_of(const char *name, const char *begin)
{
    const size_t n = strlen(begin);
    return strncmp(name, begin, n) == 0 && strlen(name + n) == MARK;
}

static void sweep(const char *parent, const char *begin)
{
    char **names = NULL;
    int64_t count = 0;
    sheaf_status_free(sheaf__list_dir(&names, &count, parent));
    for (int64_t i = 0; i < count; i++) {
        char *path = NULL;
        if (!is_of(names[i], begin))
            continue;
        sheaf_status_free(sheaf__path_join(&path, parent, names[i]));
        if (path != NULL)
            remove_dead(path);
        free(path);
    }
    sheaf__names_free(names, count);
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
    sweep(parent, begin);
    for (int i = 0; i < TRIES; i++) {
        snprintf(path, size, "%s/%sXXXXXX", parent, begin);
        *lock = make(path, folder);
        if (*lock < 0)
            break;
        /* before it was locked another process may have taken it for a dead one; a file system
         * without locks has none that takes it */
        if ((flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) && is_there(*lock, path))
            return NULL;
        close(*lock);
    }
    *lock = -1;
    return sheaf__io_fail(errno, path, folder ? "making the folder" : "creating the file");
}
