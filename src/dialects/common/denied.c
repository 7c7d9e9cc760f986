/* denied.c - files without read permission, which are not reported as damaged. See dialects.h. */
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "dialects/common/dialects.h"

enum { MOST_LEVELS = 4, MOST_ENTRIES = 20000 };

static bool is_denied(const char *path)
{
    const bool folder = sheaf__path_kind(path) == SHEAF_PATH_DIR;
    return faccessat(AT_FDCWD, path, folder ? R_OK | X_OK : R_OK, AT_EACCESS) != 0 &&
           (errno == EACCES || errno == EPERM);
}

static sheaf_status *refuse(const char *path)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s: cannot be read", path);
    sheaf_expected(st, "permission to read it");
    sheaf__found_errno(st, EACCES);
    return sheaf_try_this(
        st, "ask its owner, or run as a user who may read it; its contents are not known");
}

static sheaf_status *search(const char *path, int level, int *left)
{
    char **names = NULL;
    int64_t n = 0;
    if (is_denied(path))
        return refuse(path);
    if (level == MOST_LEVELS || sheaf__path_kind(path) != SHEAF_PATH_DIR)
        return NULL;
    sheaf_status *st = sheaf__list_dir(&names, &n, path);
    for (int64_t i = 0; st == NULL && i < n && --*left > 0; i++) {
        char inner[SHEAF_PATH_SIZE];
        st = search(sheaf__path_in(inner, path, names[i]), level + 1, left);
    }
    sheaf__names_free(names, n);
    return st;
}

sheaf_status *sheaf__dialect_denied(const char *path, const sheaf_catalog *c)
{
    int left = MOST_ENTRIES;
    for (int64_t i = 0; c != NULL && i < c->nfindings; i++)
        if (c->finding[i].severity == SHEAF_DEFECT && *c->finding[i].path != '\0' &&
            is_denied(c->finding[i].path))
            return refuse(c->finding[i].path);
    return search(path, 0, &left);
}
