/* store.c - OUT/checkpoints: lock, list of steps, choice of the newest, removal of the oldest.
 * Locks are flock()'s, which end with the process. */
#include "checkpoint/store/store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "checkpoint/store/checkpoint.h"
#include "comm/all.h"

/* ---- names ---- */

const char *const sheaf__state_groups[SHEAF_STATE_GROUPS] = { "master", "exp_avg", "exp_avg_sq",
                                                              "exp_avg_absmax",
                                                              "exp_avg_sq_absmax" };

sheaf_state_group sheaf__state_group_of(const char **rest, const char *name, char separator)
{
    for (int i = 0; i < SHEAF_STATE_GROUPS; i++) {
        const size_t n = strlen(sheaf__state_groups[i]);
        if (strncmp(name, sheaf__state_groups[i], n) == 0 && name[n] == separator) {
            *rest = name + n + 1;
            return (sheaf_state_group)i;
        }
    }
    *rest = name;
    return SHEAF_STATE_GROUPS;
}

sheaf_status *sheaf__store_path(char **out, const sheaf_checkpoints *store, int64_t step)
{
    char name[SHEAF__STEP_NAME];
    return sheaf__path_join(out, store->dir, sheaf__step_name(name, step));
}

static int newest_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The steps whose names are final, newest first (malloc'd). */
static sheaf_status *list_steps(int64_t **out, int64_t *count, const sheaf_checkpoints *store)
{
    char **names = NULL;
    int64_t n = 0, found = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, store->dir);
    if (st != NULL)
        return st;
    int64_t *steps = calloc((size_t)n + 1, sizeof *steps);
    for (int64_t i = 0; i < n && steps != NULL; i++)
        found += sheaf__step_of(&steps[found], names[i], true);
    sheaf__names_free(names, n);
    if (steps == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s: out of memory", store->dir);
    qsort(steps, (size_t)found, sizeof *steps, newest_first);
    *out = steps;
    *count = found;
    return NULL;
}

/* ---- opening ---- */

static sheaf_status *is_locked(const char *path)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                                      "no other run that writes to this folder");
    sheaf_found(st, "another process holds this lock");
    return sheaf_try_this(st, "wait for it, stop it, or give another `out`");
}

enum {
    LOOK_MS = 100, /* a test whether a run is active holds the lock for a moment */
    TRIES = 100,   /* to open the newest step, which may be being removed */
};

static sheaf_status *take_lock(int *lock, const char *dir, const sheaf_events *events)
{
    char path[SHEAF_PATH_SIZE];
    sheaf_status *st = NULL;
    sheaf__path_in(path, dir, "lock");
    do
        *lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    while (*lock < 0 && errno == EINTR);
    if (*lock < 0 && errno == ELOOP)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path), "a file of this run, or nothing"),
            "a symbolic link");
    else if (*lock < 0)
        st = sheaf__io_fail(errno, path, "cannot open the lock");
    else if (sheaf__file_lock(*lock, LOOK_MS) != 0) {
        if (errno == EWOULDBLOCK)
            st = is_locked(path);
        else
            sheaf_warn(
                events,
                "%s: this file system has no locks (%s): another run that writes here at the "
                "same time would not be noticed",
                path, strerror(errno));
    } else if (!sheaf__path_holds(path, *lock)) /* a failed run removed the file */
        st = is_locked(path);
    return st;
}

bool sheaf__checkpoints_busy(const char *out_dir)
{
    char path[SHEAF_PATH_SIZE];
    const int fd =
        open(sheaf__path_in(path, out_dir, "checkpoints/lock"), O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    const bool busy = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (fd >= 0)
        close(fd);
    return busy;
}

bool sheaf__step_is_partial(const char *name)
{
    return strncmp(name, "step-", 5) == 0 && sheaf__path_is_partial(name);
}

/* Leftovers of a killed run: with the lock held, no process writes them any more. */
static sheaf_status *remove_unfinished(const sheaf_checkpoints *store)
{
    char **names = NULL, path[SHEAF_PATH_SIZE];
    int64_t n = 0;
    sheaf_status *st = sheaf__list_dir(&names, &n, store->dir);
    if (st != NULL)
        return st;
    for (int64_t i = 0; i < n; i++) {
        if (!sheaf__step_is_partial(names[i]))
            continue;
        sheaf_status *kept = sheaf__remove_tree(sheaf__path_in(path, store->dir, names[i]));
        if (kept == NULL)
            sheaf_note(store->options.events, "%s: removed, a save that was never finished", path);
        else
            sheaf_warn(store->options.events,
                       "%s: a save that was never finished, which cannot be removed: %s", path,
                       sheaf_status_found(kept));
        sheaf_status_free(kept);
    }
    sheaf__names_free(names, n);
    return NULL;
}

/* The folders must survive a crash of the machine like the checkpoint in them. */
static sheaf_status *make_folder(const char *dir, const char *out_dir)
{
    char *parent = NULL;
    sheaf_status *st = sheaf__make_dirs(dir);
    TRY(st, sheaf__path_parent(&parent, out_dir));
    TRY(st, sheaf__dir_sync(parent));
    TRY(st, sheaf__dir_sync(out_dir));
    free(parent);
    return st;
}

sheaf_status *sheaf_checkpoints_lock(int *lock, const char *out_dir, const sheaf_events *events)
{
    char dir[SHEAF_PATH_SIZE];
    *lock = -1;
    sheaf_status *st = make_folder(sheaf__path_in(dir, out_dir, "checkpoints"), out_dir);
    TRY(st, take_lock(lock, dir, events));
    if (st != NULL && *lock >= 0) {
        close(*lock);
        *lock = -1;
    }
    return st;
}

sheaf_status *sheaf_checkpoints_open(sheaf_checkpoints **out, sheaf_comm *comm, const char *out_dir,
                                     const sheaf_checkpoints_options *options)
{
    sheaf_checkpoints *store = calloc(1, sizeof *store);
    sheaf_status *st = store == NULL ? sheaf__no_memory(out_dir) : NULL;
    if (st == NULL) {
        store->lock = -1;
        store->options = *options;
        st = sheaf__path_join(&store->dir, out_dir, "checkpoints");
    }
    if (st == NULL && sheaf_comm_rank(comm) != 0)
        store->options.events = NULL; /* reported once */
    else if (st == NULL) {
        st = make_folder(store->dir, out_dir);
        TRY(st, !options->locked ? take_lock(&store->lock, store->dir, options->events) : NULL);
        TRY(st, remove_unfinished(store));
    }
    st = sheaf_comm_agree(comm, st);
    if (st == NULL)
        *out = store;
    else
        sheaf_checkpoints_close(store);
    return st;
}

void sheaf_checkpoints_close(sheaf_checkpoints *store)
{
    if (store == NULL)
        return;
    if (store->lock >= 0)
        close(store->lock); /* and unlocked */
    free(store->dir);
    free(store);
}

void sheaf_checkpoints_protect(sheaf_checkpoints *store, int64_t step)
{
    store->protect = step;
}

void sheaf_checkpoints_replace(sheaf_checkpoints *store, int64_t step)
{
    store->replace = step;
}

/* ---- the newest ---- */

static void leave_aside(const sheaf_checkpoints *store, const char *path, const sheaf_status *why)
{
    const char *expected = sheaf_status_expected(why), *found = sheaf_status_found(why);
    sheaf_warn(store->options.events, "%s is left aside: %s%s%s%s%s", path, sheaf_status_where(why),
               *expected == '\0' ? "" : "; expected ", expected, *found == '\0' ? "" : "; found ",
               found);
}

/* Checkpoints exist: only the user may decide to start from nothing. */
static sheaf_status *none_usable(const sheaf_checkpoints *store, int64_t count)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "%s", store->dir);
    sheaf_expected(st, "a complete checkpoint");
    sheaf_found(st, "%" PRId64 " that %s damaged or incomplete", count, count == 1 ? "is" : "are");
    return sheaf_try_this(
        st, "sheaf verify shows what is wrong with each; to begin anew, move them away");
}

/* The newest complete one of fewer than `below` steps; *out is NULL when nothing was ever saved. */
static sheaf_status *find_latest(sheaf_checkpoint **out, const sheaf_checkpoints *store,
                                 int64_t below)
{
    int64_t *steps = NULL, count = 0;
    sheaf_status *st = list_steps(&steps, &count, store);
    *out = NULL;
    for (int64_t i = 0; i < count && st == NULL && *out == NULL; i++) {
        char *path = NULL;
        if (steps[i] >= below)
            continue;
        st = sheaf__store_path(&path, store, steps[i]);
        sheaf_status *bad = st != NULL ? NULL : sheaf_checkpoint_open(out, path);
        if (bad != NULL && (sheaf_status_code(bad) == SHEAF_E_MEMORY ||
                            sheaf_status_code(bad) == SHEAF_E_UNSUPPORTED)) /* another version's */
            st = bad;
        else if (bad != NULL) {
            leave_aside(store, path, bad);
            sheaf_status_free(bad);
        }
        free(path);
    }
    free(steps);
    TRY(st, *out == NULL && count > 0 ? none_usable(store, count) : NULL);
    if (st == NULL && *out != NULL)
        sheaf_note(store->options.events, "%s is the newest complete checkpoint", (*out)->dir);
    return st;
}

/* Broadcasts rank 0's choice: its path and the text of its manifest. */
static sheaf_status *share(sheaf_checkpoint **out, sheaf_comm *comm, const sheaf_checkpoint *mine)
{
    char *path = mine == NULL ? NULL : strdup(mine->dir),
         *text = mine == NULL ? NULL : strdup(mine->text);
    const bool failed = mine != NULL && (path == NULL || text == NULL);
    sheaf_status *st =
        sheaf_comm_agree(comm, failed ? sheaf__no_memory("out of memory for the manifest") : NULL);
    TRY(st, sheaf__all_share(comm, &path));
    TRY(st, sheaf__all_share(comm, &text));
    if (st == NULL && mine == NULL && path != NULL) {
        st = sheaf__checkpoint_from(out, path, text, strlen(text));
        text = NULL;
    }
    free(path);
    free(text);
    return sheaf_comm_agree(comm, st);
}

static sheaf_status *choose(sheaf_checkpoint **out, const sheaf_checkpoints *store,
                            sheaf_comm *comm, int64_t below)
{
    sheaf_checkpoint *mine = NULL, *theirs = NULL;
    const bool chooses = sheaf_comm_rank(comm) == 0;
    sheaf_status *st = sheaf_comm_agree(comm, chooses ? find_latest(&mine, store, below) : NULL);
    TRY(st, share(&theirs, comm, mine));
    if (st != NULL) {
        sheaf_checkpoint_close(mine);
        sheaf_checkpoint_close(theirs);
        return st;
    }
    *out = chooses ? mine : theirs;
    return NULL;
}

sheaf_status *sheaf_checkpoints_latest(sheaf_checkpoint **out, sheaf_checkpoints *store,
                                       sheaf_comm *comm)
{
    return choose(out, store, comm, INT64_MAX);
}

/* Loads on all ranks. *damaged: it failed, and every failing rank found damage. */
static sheaf_status *load_all(bool *damaged, sheaf_comm *comm, sheaf_checkpoint *c,
                              const sheaf_state *state)
{
    sheaf_status *st = sheaf_comm_agree(comm, sheaf_checkpoint_load(c, state));
    *damaged = false;
    if (st == NULL)
        return NULL;
    int other = sheaf_status_code(st) != SHEAF_E_FORMAT;
    sheaf_status *failed = sheaf_comm_any(comm, &other);
    *damaged = failed == NULL && !other;
    sheaf_status_free(failed);
    return st;
}

sheaf_status *sheaf_checkpoints_load_latest(
    sheaf_checkpoint **out, sheaf_checkpoints *store, sheaf_comm *comm, const sheaf_state *state,
    sheaf_status *(*check)(void *context, const sheaf_checkpoint *checkpoint), void *context)
{
    bool newest = true;
    for (int64_t below = INT64_MAX;;) {
        sheaf_checkpoint *c = NULL;
        bool damaged = false;
        sheaf_status *st = choose(&c, store, comm, below);
        if (st == NULL && c != NULL)
            st = sheaf_comm_agree(comm, check == NULL ? NULL : check(context, c));
        if (st == NULL && c != NULL)
            st = load_all(&damaged, comm, c, state);
        if (st == NULL) {
            if (c != NULL && newest && sheaf_comm_rank(comm) == 0)
                sheaf__store_prune(store); /* the run that saved it may have died before */
            *out = c;
            return NULL;
        }
        if (damaged) {
            newest = false;
            leave_aside(store, c->dir, st);
            below = c->manifest->step;
        }
        sheaf_checkpoint_close(c);
        if (!damaged)
            return st;
        sheaf_status_free(st);
    }
}

/* ---- the oldest ---- */

/* Renamed first: a folder with a final name is always whole. One that is being read is removed
 * later. */
static sheaf_status *remove_step(const sheaf_checkpoints *store, const char *path)
{
    char *gone = NULL;
    bool read;
    const int fd = sheaf__step_lock(&read, path);
    sheaf_status *st = read ? NULL : sheaf__partial_path(&gone, path, "partial", 0);
    TRY(st, !read ? sheaf__rename(path, gone) : NULL);
    if (fd >= 0)
        close(fd);
    TRY(st, !read ? sheaf__remove_tree(gone) : NULL);
    free(gone);
    return st;
}

void sheaf__store_prune(const sheaf_checkpoints *store)
{
    int64_t *steps = NULL, count = 0, complete = 0;
    if (store->options.keep <= 0)
        return;
    sheaf_status *st = list_steps(&steps, &count, store);
    for (int64_t i = 0; i < count && st == NULL; i++) {
        char *path = NULL;
        sheaf_checkpoint *checkpoint = NULL;
        st = sheaf__store_path(&path, store, steps[i]);
        sheaf_status *bad = st != NULL ? NULL : sheaf_checkpoint_open(&checkpoint, path);
        if (checkpoint != NULL && ++complete > store->options.keep && steps[i] != store->protect)
            st = remove_step(store, path);
        sheaf_status_free(bad); /* damaged ones are neither counted nor removed */
        sheaf_checkpoint_close(checkpoint);
        free(path);
    }
    free(steps);
    if (st != NULL)
        sheaf_warn(store->options.events, "older checkpoints could not be removed: %s: %s",
                   sheaf_status_where(st), sheaf_status_found(st));
    sheaf_status_free(st);
}

/* ---- the folder of one step ---- */

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
