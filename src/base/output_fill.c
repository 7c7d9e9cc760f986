/* output_fill.c - see output_fill.h. */
#include "base/status.h"
#include "base/output_fill.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool sheaf__path_is_mount(const char *path)
{
    struct statx about;
    return statx(AT_FDCWD, path, AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &about) == 0 &&
           (about.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
           (about.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

enum { LAST = 3 };

/* When an entry is moved: 0 first, LAST last. */
static int turn_of(const char *name)
{
    static const char index[] = ".index.json";
    static const char *const config[] = { "config.json", "adapter_config.json",
                                          "model_config.json" };
    const size_t n = strlen(name), m = sizeof index - 1;
    if (strcmp(name, "latest") == 0 || strcmp(name, "manifest.json") == 0)
        return LAST;
    for (size_t i = 0; i < sizeof config / sizeof *config; i++)
        if (strcmp(name, config[i]) == 0)
            return 2;
    return n > m && strcmp(name + n - m, index) == 0;
}

/* The error number. */
static int move(const char *to_dir, const char *from_dir, const char *name)
{
    char *from = NULL, *to = NULL;
    sheaf_status *st = sheaf__path_join(&from, from_dir, name);
    TRY(st, sheaf__path_join(&to, to_dir, name));
    int error = st != NULL ? ENOMEM : 0;
    if (error == 0 &&
        TEMP_FAILURE_RETRY(renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE)) != 0)
        error = errno;
    if (error == ENOSYS || error == EINVAL ||
        error == EOPNOTSUPP) { /* a file system that cannot promise it */
        struct stat there;
        error = lstat(to, &there) == 0 ? EEXIST : rename(from, to) != 0 ? errno : 0;
    }
    sheaf_status_free(st);
    free(from);
    free(to);
    return error;
}

sheaf_status *sheaf__fill(const char *dst, const char *from)
{
    char **names = NULL;
    int64_t n = 0, moved = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, from);
    bool *gone = st == NULL ? calloc((size_t)n + 1, sizeof *gone) : NULL;
    if (st == NULL && gone == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", dst);
    for (int turn = 0; turn <= LAST; turn++)
        for (int64_t i = 0; i < n && st == NULL; i++) {
            if (turn_of(names[i]) != turn)
                continue;
            const int error = move(dst, from, names[i]);
            if (error != 0)
                st = sheaf_in(sheaf__io_fail(error, names[i], "moving it into the folder"), "%s",
                              dst);
            gone[i] = error == 0;
            moved += error == 0;
        }
    for (int64_t i = 0; st != NULL && i < n && moved > 0; i++)
        if (gone[i])
            (void)move(from, dst, names[i]);
    if (st == NULL)
        sheaf_status_free(
            sheaf__remove_tree(from)); /* empty; if it stays, its name says what it is */
    if (st == NULL && (st = sheaf__dir_sync(dst)) != NULL)
        sheaf_try_this(st, "%s is in place, but may be lost if the machine stops now", dst);
    sheaf__names_free(names, n);
    free(gone);
    return st;
}
