/* step.c - see checkpoint.h. Locks are flock()'s, which end with the process. */
#include "checkpoint/store/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

enum { TRIES = 100 };

bool sheaf__step_of(int64_t *step, const char *name, bool ours)
{
    long long number;
    int end = 0;
    if (sscanf(name, "step-%lld%n", &number, &end) != 1 || name[end] != '\0')
        return false;
    const size_t digits = strspn(name + 5, "0123456789");
    if (ours && (name[5 + digits] != '\0' || digits < 8 || digits > 18))
        return false;
    *step = number;
    return true;
}

const char *sheaf__step_name(char name[SHEAF__STEP_NAME], int64_t step)
{
    snprintf(name, SHEAF__STEP_NAME, "step-%08" PRId64, step);
    return name;
}

/* Is a lock held that excludes `how`? Never on a file system without locks. */
static bool is_held(int fd, int how)
{
    return flock(fd, how | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

DIR *sheaf__step_open(const char *path)
{
    DIR *held = opendir(path);
    if (held != NULL && !is_held(dirfd(held), LOCK_SH) && sheaf__path_holds(path, dirfd(held)))
        return held;
    if (held != NULL)
        closedir(held);
    return NULL;
}

int sheaf__step_lock(bool *read, const char *path)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *read = fd >= 0 && is_held(fd, LOCK_EX);
    return fd;
}

static sheaf_status *find_newest(char **path, const char *out)
{
    char *dir = NULL, **names = NULL;
    int64_t n = 0, newest = -1, most = -1, step;
    sheaf_status *st = sheaf__path_join(&dir, out, "checkpoints");
    TRY(st, sheaf__list_dir(&names, &n, dir));
    for (int64_t i = 0; st == NULL && i < n; i++)
        if (sheaf__step_of(&step, names[i], false) && step > most) {
            most = step;
            newest = i;
        }
    TRY(st, newest >= 0 ? sheaf__path_join(path, dir, names[newest]) : NULL);
    sheaf__names_free(names, n);
    free(dir);
    return st;
}

sheaf_status *sheaf__step_newest(char **path, DIR **held, const char *out)
{
    *path = NULL;
    *held = NULL;
    for (int i = 0;; i++) {
        sheaf_status *st = find_newest(path, out);
        if (st != NULL || *path == NULL || (*held = sheaf__step_open(*path)) != NULL ||
            i == TRIES || (access(*path, R_OK | X_OK) != 0 && errno == EACCES))
            return st; /* or it cannot be opened: its reader reports why */
        free(*path);   /* it is being removed, so there is a newer one */
        *path = NULL;
        usleep(1000);
    }
}
