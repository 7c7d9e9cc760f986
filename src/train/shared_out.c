/* shared_out.c - see shared_out.h. */
#include "train/shared_out.h"

#include <dirent.h>
#include <errno.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"

enum { NAME = 256 };

static bool is_root(const char *path)
{
    return strcmp(path, ".") == 0 || strcmp(path, "/") == 0;
}

/* The parent of `path`, which is freed; NULL: no memory. */
static char *parent_of(char *path)
{
    char *parent = NULL;
    sheaf_status_free(sheaf__path_parent(&parent, path));
    free(path);
    return parent;
}

/* Number of folders, OUT and its parents, that do not exist yet. */
static int missing_folders(const char *out)
{
    int count = 0;
    char *at = strdup(out);
    for (; at != NULL && sheaf__path_kind(at) == SHEAF_PATH_NONE && !is_root(at); count++)
        at = parent_of(at);
    free(at);
    return count;
}

/* Removes them again, but for one that is not empty any more. */
static void remove_folders(const char *out, int count)
{
    char *at = strdup(out);
    for (; at != NULL && count > 0 && (rmdir(at) == 0 || errno == ENOENT); count--)
        at = parent_of(at);
    free(at);
}

/* OUT/seen-TOKEN.partial-PID-MARK. It lies in OUT, which is made for it: a process that is killed
 * meanwhile leaves one folder, which the next run sweeps (out_folder.c). */
static sheaf_status *write_proof(char **path, char name[NAME], const char *out)
{
    uint64_t token[2];
    char seen[40], *base = NULL;
    if (getrandom(token, sizeof token, 0) != (ssize_t)sizeof token)
        return sheaf_fail(SHEAF_E_IO, "random bytes");
    snprintf(seen, sizeof seen, "seen-%016" PRIx64 "%016" PRIx64, token[0], token[1]);
    sheaf_status *st = sheaf__make_dirs(out);
    TRY(st, sheaf__path_join(&base, out, seen));
    TRY(st, sheaf__partial_path(path, base, "partial", 0));
    if (st == NULL)
        snprintf(name, NAME, "%s", strrchr(*path, '/') + 1);
    TRY(st, sheaf__file_write_whole(*path, "", 0));
    free(base);
    return sheaf_in(st, "--out %s", out);
}

/* NFS caches for up to a minute that a name does not exist, but not across opening its folder: the
 * innermost parent of OUT that exists. */
static void look_anew(const char *out)
{
    char *at = strdup(out);
    DIR *folder = NULL;
    while (at != NULL && (folder = opendir(at)) == NULL && !is_root(at))
        at = parent_of(at);
    if (folder != NULL)
        closedir(folder);
    free(at);
}

static sheaf_status *look(const char *name, const char *out, double wait)
{
    const double end = sheaf__seconds() + wait;
    char *path = NULL;
    sheaf_status *st = sheaf__path_join(&path, out, name);
    bool seen = st == NULL && sheaf__path_kind(path) == SHEAF_PATH_FILE;
    while (st == NULL && !seen && sheaf__seconds() < end) {
        look_anew(out);
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        seen = sheaf__path_kind(path) == SHEAF_PATH_FILE;
    }
    free(path);
    if (st != NULL || seen)
        return st;
    st = sheaf_fail(SHEAF_E_ARG, "--out %s", out);
    sheaf_expected(st, "a folder that the hosts of all processes see");
    sheaf_found(st, "what the first process wrote into it is not there");
    return sheaf_try_this(st, "name a folder on a file system that all hosts share");
}

sheaf_status *sheaf__out_shared(sheaf_comm *all, const char *out, double wait)
{
    const bool first = sheaf_comm_rank(all) == 0;
    const int missing = first ? missing_folders(out) : 0;
    char name[NAME] = "", *path = NULL;
    sheaf_status *st = sheaf_comm_agree(all, first ? write_proof(&path, name, out) : NULL);
    TRY(st, sheaf_comm_broadcast(all, name, sizeof name, 0));
    TRY(st, sheaf_comm_agree(all, first ? NULL : look(name, out, wait)));
    if (path != NULL)
        unlink(path);
    free(path);
    remove_folders(out, missing);
    return st;
}
