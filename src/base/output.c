/* output.c - see output.h. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/stat.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/base.h"
#include "base/temporary.h"

struct sheaf_output {
    char *dst, *partial, *parent;
    int lock;  /* descriptor of the partial folder, locked while it is written */
    int claim; /* of DST itself, where it is filled from within: one at a time */
    bool replace;
    bool inside; /* the partial folder lies in DST */
};

enum { TRIES = 1000 };

static void output_free(sheaf_output *output)
{
    if (output->lock >= 0)
        close(output->lock);
    if (output->claim >= 0)
        close(output->claim);
    free(output->dst);
    free(output->partial);
    free(output->parent);
    free(output);
}

static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* Is it an unfinished folder of the output with this last name? */
static bool is_partial_of(const char *path, const char *last)
{
    const char *name = last_of(path);
    const size_t n = strlen(last);
    return strncmp(name, last, n) == 0 && strncmp(name + n, ".partial-", 9) == 0 &&
           sheaf__path_is_partial(name);
}

bool sheaf__path_is_mount(const char *path)
{
    struct statx about;
    return statx(AT_FDCWD, path, AT_NO_AUTOMOUNT, STATX_BASIC_STATS, &about) == 0 &&
           (about.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT) != 0 &&
           (about.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0;
}

/* Nothing but what is ours and unfinished, and what a new file system is born with. */
static bool is_empty_dir(const char *path)
{
    char **names = NULL;
    int64_t count = 0;
    sheaf_status *st = sheaf__list_dir(&names, &count, path);
    bool empty = st == NULL;
    for (int64_t i = 0; i < count && empty; i++)
        empty = is_partial_of(names[i], last_of(path)) ||
                (strcmp(names[i], "lost+found") == 0 && sheaf__path_is_mount(path));
    sheaf__names_free(names, count);
    sheaf_status_free(st);
    return empty;
}

static sheaf_status *refuse(const char *dst, const char *expected, const char *found,
                            const char *cure)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "output '%s'", dst), "%s", expected);
    return sheaf_try_this(sheaf_found(st, "%s", found), "%s", cure);
}

static sheaf_status *check_dst(const char *dst, bool replace)
{
    const char *last = last_of(dst),
               *expected = replace ? "a folder, or nothing there" : "nothing there yet";
    if (*last == '\0' || strcmp(last, ".") == 0 || strcmp(last, "..") == 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "output '%s'", dst),
                              "the name of a new folder");
    const sheaf_path_kind kind = sheaf__path_kind(dst);
    struct stat about;
    if (kind == SHEAF_PATH_NONE && lstat(dst, &about) == 0)
        return refuse(dst, expected, "a symbolic link that leads nowhere",
                      "make the folder it leads to, or remove the link");
    if (kind == SHEAF_PATH_NONE || (kind == SHEAF_PATH_DIR && (replace || is_empty_dir(dst))))
        return NULL;
    return refuse(dst, expected, kind == SHEAF_PATH_DIR ? "a folder that is not empty" : "a file",
                  "choose another name, or move it away");
}

/* `dst` without slashes at its end (malloc'd). A link to a folder that is to be filled becomes the
 * folder: the link stays. */
static sheaf_status *settle_dst(char **out, const char *dst, bool replace)
{
    size_t n = strlen(dst);
    while (n > 1 && dst[n - 1] == '/')
        n--;
    *out = strndup(dst, n);
    struct stat about;
    if (*out != NULL && !replace && lstat(*out, &about) == 0 && S_ISLNK(about.st_mode) &&
        sheaf__path_kind(*out) == SHEAF_PATH_DIR) {
        char *real = realpath(*out, NULL);
        free(*out);
        *out = real;
    }
    return *out != NULL ? NULL : sheaf__no_memory(dst);
}

sheaf_status *sheaf__output_check(const char *dst)
{
    char *settled = NULL;
    sheaf_status *st = settle_dst(&settled, dst, false);
    TRY(st, check_dst(settled, false));
    /* an empty folder may be filled from within */
    if (st == NULL && access(settled, W_OK | X_OK) != 0)
        st = sheaf__path_check_new(settled, true);
    free(settled);
    return st;
}

/* ---- inside what is read? ---- */

/* `real` with the parts of `rest`, which do not exist yet, after it: ".." takes one away. */
static sheaf_status *with_parts(char **out, const char *real, const char *rest)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "%s", real);
    for (size_t part; !text.failed && *rest != '\0'; rest += part) {
        rest += strspn(rest, "/");
        part = strcspn(rest, "/");
        if (part == 2 && strncmp(rest, "..", 2) == 0) {
            while (text.size > 1 && text.at[--text.size] != '/')
                continue;
        } else if (part > 0 && !(part == 1 && *rest == '.')) {
            sheaf__text_add(&text, "%s%.*s",
                            text.size == 0 || text.at[text.size - 1] != '/' ? "/" : "", (int)part,
                            rest);
        }
    }
    return sheaf__text_take(out, &text);
}

/* The path without links that `path` will have once it is made. */
static sheaf_status *real_path(char **out, const char *path)
{
    char *at = strdup(path), *real = NULL;
    sheaf_status *st = at == NULL ? sheaf__no_memory(path) : NULL;
    while (st == NULL && (real = realpath(at, NULL)) == NULL && strcmp(at, ".") != 0 &&
           strcmp(at, "/") != 0) {
        char *parent = NULL;
        st = sheaf__path_parent(&parent, at);
        free(at);
        at = parent;
    }
    const bool relative = st == NULL && strcmp(at, ".") == 0 &&
                          (path[0] != '.' || (path[1] != '/' && path[1] != '\0'));
    TRY(st, real == NULL ? sheaf__found_errno(sheaf_fail(SHEAF_E_IO, "%s", path), errno)
                         : with_parts(out, real, relative ? path : path + strlen(at)));
    free(real);
    free(at);
    return st;
}

/* ".." behind what does not exist may have led to a link. */
static sheaf_status *settled_path(char **out, const char *path)
{
    char *once = NULL;
    *out = NULL;
    sheaf_status *st = real_path(&once, path);
    TRY(st, real_path(out, once));
    free(once);
    return st;
}

sheaf_status *sheaf__output_inside(char **out, const char *path, const char *folder)
{
    char *to = NULL, *from = NULL;
    *out = NULL;
    sheaf_status *st = settled_path(&to, path);
    TRY(st, settled_path(&from, folder));
    const size_t n = st == NULL ? strlen(from) : 0;
    if (st == NULL && strncmp(to, from, n) == 0 &&
        (to[n] == '/' || to[n] == '\0' || from[n - 1] == '/')) {
        *out = to;
        to = NULL;
    }
    free(to);
    free(from);
    return st;
}

sheaf_status *sheaf__output_outside(const char *dst, const char *src)
{
    char *to = NULL;
    if (sheaf__path_kind(src) != SHEAF_PATH_DIR)
        return NULL;
    sheaf_status *st = sheaf__output_inside(&to, dst, src);
    if (st == NULL && to != NULL) {
        st = sheaf_fail(SHEAF_E_ARG, "output '%s'", dst);
        sheaf_expected(st, "a place outside '%s', which is read", src);
        sheaf_found(st, "%s", to);
        sheaf_try_this(st, "name a folder beside it");
    }
    free(to);
    return st;
}

/* ---- beginning ---- */

sheaf_status *sheaf__output_sweep(const char *dst, const sheaf_events *events)
{
    char *settled = NULL, *parent = NULL;
    sheaf_status *st = settle_dst(&settled, dst, false);
    TRY(st, sheaf__path_parent(&parent, settled));
    TRY(st, sheaf__sweep(parent, is_partial_of, last_of(settled), events));
    TRY(st, sheaf__sweep(settled, is_partial_of, last_of(settled), events));
    free(settled);
    free(parent);
    return st;
}

/* Locks the new partial folder. *lost: another process took it for a dead one before that. Where
 * the file system has no locks no other process can take it. */
static sheaf_status *lock_partial(sheaf_output *output, bool *lost)
{
    const int error = sheaf__lock_named(&output->lock, output->partial);
    *lost = error == EWOULDBLOCK || error == ENOENT;
    if (error == 0 || *lost || error == EOPNOTSUPP || error == ENOLCK || error == ENOSYS ||
        error == EINVAL || error == EBADF)
        return NULL;
    sheaf_status_free(sheaf__remove_tree(output->partial));
    return sheaf__io_fail(error, output->partial, "cannot lock the folder");
}

/* The partial folder; a number follows while the name is taken by a killed process of our
 * number. */
static sheaf_status *make_partial(sheaf_output *output)
{
    char path[SHEAF_PATH_SIZE];
    const char *of =
        output->inside ? sheaf__path_in(path, output->dst, last_of(output->dst)) : output->dst;
    for (int i = 0;; i++) {
        free(output->partial);
        output->partial = NULL;
        sheaf_status *st = sheaf__partial_path(&output->partial, of, "partial", i);
        if (st != NULL)
            return st;
        st = sheaf__make_dir(output->partial);
        bool taken = st != NULL && sheaf__path_kind(output->partial) != SHEAF_PATH_NONE;
        TRY(st, lock_partial(output, &taken));
        if (!taken || i == TRIES)
            return st != NULL || !taken
                       ? st
                       : sheaf_fail(SHEAF_E_IO, "%s: other processes remove it", output->partial);
        sheaf_status_free(st);
    }
}

/* From now on the folder at DST is filled, by this output alone. */
static sheaf_status *begin_inside(sheaf_output *output)
{
    const int error = sheaf__lock_named(&output->claim, output->dst);
    output->inside = true;
    if (error == EWOULDBLOCK)
        return refuse(output->dst, "an empty folder that no process writes",
                      "another process fills it", "wait for it, or choose another name");
    return make_partial(output); /* a file system without locks: as if no other process wrote */
}

static sheaf_status *begin(sheaf_output *output)
{
    sheaf_status *st = check_dst(output->dst, output->replace);
    const bool there = !output->replace && sheaf__path_kind(output->dst) == SHEAF_PATH_DIR;
    if (st == NULL && there && sheaf__path_is_mount(output->dst))
        return begin_inside(output);
    TRY(st, sheaf__path_parent(&output->parent, output->dst));
    TRY(st, sheaf__make_dirs(output->parent));
    TRY(st, make_partial(output));
    if (st == NULL || !there || sheaf_status_code(st) != SHEAF_E_IO)
        return st;
    sheaf_status_free(st); /* nothing can be made beside it */
    return begin_inside(output);
}

sheaf_status *sheaf__output_begin(sheaf_output **out, const char *dst, bool replace)
{
    sheaf_output *output = calloc(1, sizeof *output);
    if (output == NULL)
        return sheaf__no_memory(dst);
    output->lock = output->claim = -1;
    output->replace = replace;
    sheaf_status *st = settle_dst(&output->dst, dst, replace);
    TRY(st, begin(output));
    if (st == NULL)
        *out = output;
    else
        output_free(output);
    return st;
}

const char *sheaf__output_dir(const sheaf_output *output)
{
    return output->partial;
}

sheaf_status *sheaf__output_create(sheaf_file *file, sheaf_output *output, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    return sheaf__file_create(file, sheaf__path_in(path, output->partial, name));
}

sheaf_status *sheaf__output_write(sheaf_output *output, const char *name, const void *bytes,
                                  size_t size)
{
    sheaf_file file;
    sheaf_status *st = sheaf__output_create(&file, output, name);
    TRY(st, sheaf__file_complete(&file, bytes, size));
    return st;
}

static int rename_with(const char *from, const char *to, unsigned flags)
{
    return TEMP_FAILURE_RETRY(renameat2(AT_FDCWD, from, AT_FDCWD, to, flags)) == 0 ? 0 : errno;
}

static bool not_known(int error)
{
    return error == ENOSYS || error == EINVAL || error == EOPNOTSUPP;
}

sheaf_status *sheaf__rename_new(const char *from, const char *to)
{
    char *parent = NULL;
    sheaf_status *st = sheaf__path_parent(&parent, to);
    if (st != NULL)
        return st;
    int error = rename_with(from, to, RENAME_NOREPLACE);
    if (not_known(error)) /* a second name, then the first away */
        error = link(from, to) != 0 ? errno : unlink(from) != 0 ? errno : 0;
    if (error == EEXIST)
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", to), "nothing there yet"),
                        "something that came there meanwhile"),
            "another name");
    else
        st = error != 0 ? sheaf__io_fail(error, to, "renaming the complete file to it")
                        : sheaf__dir_sync(parent);
    free(parent);
    return st;
}

/* ---- one file (file.h), which is swept as a folder is ---- */

/* Locks a new file; false: a sheaf__sweep() took it before that. A file system without locks has
 * none that takes it. The lock outlasts the descriptor that is written, whose close() may fail. */
static bool lock_new(int *lock, const sheaf_file *file, const char *path)
{
    *lock = fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    if ((*lock < 0 || sheaf__file_lock(*lock, 0) == 0 || errno != EWOULDBLOCK) &&
        sheaf__path_holds(path, file->fd))
        return true;
    if (*lock >= 0)
        close(*lock);
    return false;
}

/* Messages name `path`. */
static sheaf_status *create_for(sheaf_file *file, const char *partial, const char *path)
{
    sheaf_status *st = sheaf__file_create(file, partial);
    if (st != NULL) {
        sheaf__status_replace(st, partial, path);
        return st;
    }
    char *name = strdup(path);
    if (name == NULL) {
        unlink(partial);
        return sheaf__no_memory(path);
    }
    free(file->path);
    file->path = name;
    return NULL;
}

sheaf_status *sheaf__file_create_partial(sheaf_file *file, char **partial, int *lock,
                                         const char *path)
{
    *file = (sheaf_file){ .fd = -1 };
    *partial = NULL;
    *lock = -1;
    sheaf_status *st = sheaf__output_sweep(path, NULL);
    for (int i = 0; st == NULL; i++) { /* the next name while one is taken: by another thread */
        st = sheaf__partial_path(partial, path, "partial", i);
        TRY(st, create_for(file, *partial, path));
        if (st == NULL && lock_new(lock, file, *partial))
            return NULL;
        const bool taken =
            st == NULL || (*partial != NULL && sheaf__path_kind(*partial) != SHEAF_PATH_NONE);
        sheaf_status_free(sheaf__file_close(file));
        free(*partial);
        *partial = NULL;
        if (taken && i < TRIES) {
            sheaf_status_free(st);
            st = NULL;
        }
    }
    return st;
}

sheaf_status *sheaf__file_write_whole(const char *path, const void *bytes, size_t size)
{
    sheaf_file file;
    char *temporary;
    int lock;
    sheaf_status *st = sheaf__file_create_partial(&file, &temporary, &lock, path);
    if (st != NULL)
        return st;
    st = sheaf__file_complete(&file, bytes, size);
    TRY(st, sheaf__rename(temporary, path));
    if (st != NULL)
        sheaf_status_free(sheaf__remove_tree(temporary));
    if (lock >= 0)
        close(lock);
    free(temporary);
    return st;
}

/* ---- filling a folder that is there ---- */

enum { LAST = 3 };

/* When an entry is moved: 0 first, LAST last. */
static int turn_of(const char *name)
{
    if (sheaf__is_listed("latest manifest.json", name, strlen(name)))
        return LAST;
    if (sheaf__is_listed("config.json adapter_config.json model_config.json", name, strlen(name)))
        return 2;
    return sheaf__ends_with(name, ".index.json") && *name != '.';
}

/* The error number. */
static int move(const char *to_dir, const char *from_dir, const char *name)
{
    char from[SHEAF_PATH_SIZE], to[SHEAF_PATH_SIZE];
    sheaf__path_in(from, from_dir, name);
    int error = rename_with(from, sheaf__path_in(to, to_dir, name), RENAME_NOREPLACE);
    struct stat there;
    if (not_known(error)) /* a file system that cannot promise it */
        error = lstat(to, &there) == 0 ? EEXIST : rename_with(from, to, 0);
    return error;
}

/* Moves all that is in `from` into `dst`, on the same file system, then removes `from` and syncs
 * `dst`. Nothing is replaced. What says that the rest is whole goes last: an index, then a config,
 * then latest or manifest.json. On failure what was moved is moved back. */
static sheaf_status *fill(const char *dst, const char *from)
{
    char **names = NULL;
    int64_t n = 0, moved = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, from);
    bool *gone = st == NULL ? calloc((size_t)n + 1, sizeof *gone) : NULL;
    if (st == NULL && gone == NULL)
        st = sheaf__no_memory(dst);
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

/* ---- replacing one ---- */

/* For file systems without the exchange: two renames, so that for a moment there is nothing
 * at DST, but the old one is whole beside it. */
static int swap_in_two_steps(const sheaf_output *output)
{
    char *old = NULL;
    sheaf_status *st = sheaf__partial_path(&old, output->dst, "replaced", 0);
    sheaf_status_free(st);
    if (st != NULL)
        return ENOMEM;
    int error = rename_with(output->dst, old, 0);
    if (error == 0) {
        error = rename_with(output->partial, output->dst, 0);
        if (error != 0)
            rename_with(old, output->dst, 0);
        else /* the old content gets the partial name, as after an exchange; if not, it is just left
                over */
            rename_with(old, output->partial, 0);
    }
    free(old);
    return error;
}

/* The error number; *old_left: there was a folder to exchange. */
static int put_once(const sheaf_output *output, bool *old_left)
{
    *old_left = output->replace && sheaf__path_kind(output->dst) == SHEAF_PATH_DIR;
    if (*old_left) {
        const int error = rename_with(output->partial, output->dst, RENAME_EXCHANGE);
        return not_known(error) ? swap_in_two_steps(output) : error;
    }
    const int error = rename_with(output->partial, output->dst, RENAME_NOREPLACE);
    /* An empty folder at DST is replaced by a plain rename; one that is not empty is refused. */
    return error == EEXIST || not_known(error) ? rename_with(output->partial, output->dst, 0)
                                               : error;
}

/* Puts the partial folder at DST; *old_left says that the old content is now at the partial name.
 * Another process may do the same at the same time: what it put there, or took away, after this one
 * had looked, is looked at again where it may be replaced. */
static sheaf_status *put_in_place(const sheaf_output *output, bool *old_left)
{
    enum { TRIES = 10 };
    int error = put_once(output, old_left);
    for (int i = 1; i < TRIES && output->replace &&
                    (*old_left ? error == ENOENT : error == EEXIST || error == ENOTEMPTY);
         i++)
        error = put_once(output, old_left);
    if (error == EEXIST || error == ENOTEMPTY || error == ENOTDIR)
        return refuse(output->dst, "nothing there yet",
                      sheaf__path_kind(output->dst) == SHEAF_PATH_DIR
                          ? "a folder that another process made meanwhile"
                          : "a file that another process made meanwhile",
                      "choose another name, or move it away");
    return error == 0 ? NULL
                      : sheaf__io_fail(error, output->dst, "renaming the complete folder to it");
}

sheaf_status *sheaf__output_commit(sheaf_output *output)
{
    bool old_left = false;
    sheaf_status *st = sheaf__dir_sync(output->partial);
    if (st == NULL && output->inside) {
        st = check_dst(output->dst, false); /* no other process wrote there meanwhile */
        TRY(st, fill(output->dst, output->partial));
    } else if (st == NULL)
        st = put_in_place(output, &old_left);
    if (st != NULL || output->inside) {
        sheaf__output_abandon(output);
        return st;
    }
    st = sheaf__dir_sync(output->parent);
    if (st != NULL)
        sheaf_try_this(st, "%s is in place, but may be lost if the machine stops now", output->dst);
    else if (old_left) /* the old one stays, under a name that says what it is, if this fails */
        sheaf_status_free(sheaf__remove_tree(output->partial));
    output_free(output);
    return st;
}

void sheaf__output_abandon(sheaf_output *output)
{
    if (output == NULL)
        return;
    sheaf_status_free(sheaf__remove_tree(output->partial));
    output_free(output);
}
