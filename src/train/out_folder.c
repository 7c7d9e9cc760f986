/* out_folder.c - see out_folder.h. */
#include "train/out_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/output.h"
#include "comm/plugins.h"
#include "data/row_cache.h"
#include "train/train.h"

/* ---- an earlier run ---- */

sheaf_status *sheaf__progress_of(json_t **out, const sheaf_checkpoint *checkpoint)
{
    const char *text = checkpoint->manifest->progress;
    return sheaf_in(sheaf__json_parse(out, text, strlen(text)), "progress of the run");
}

typedef struct peek {
    const char *out;
    bool locked; /* by this process */
    char *settings;
    int64_t step;
} peek;

static sheaf_status *peek_rank(void *arg, sheaf_comm *comm)
{
    peek *p = arg;
    sheaf_checkpoints *store = NULL;
    sheaf_checkpoint *latest = NULL;
    sheaf_status *st = sheaf_checkpoints_open(&store, comm, p->out,
                                              &(sheaf_checkpoints_options){ .locked = p->locked });
    TRY(st, sheaf_checkpoints_latest(&latest, store, comm));
    json_t *progress = NULL;
    if (st == NULL && latest != NULL) {
        p->step = latest->manifest->step;
        st = sheaf__progress_of(&progress, latest);
    }
    const char *text = json_string_value(json_object_get(progress, "settings"));
    if (text != NULL && (p->settings = strdup(text)) == NULL)
        st = sheaf__no_memory("settings of the run");
    json_decref(progress);
    sheaf_checkpoint_close(latest);
    sheaf_checkpoints_close(store);
    return st;
}

sheaf_status *sheaf_train_peek(char **settings, int64_t *step, const char *out)
{
    peek p = { .out = out };
    char path[SHEAF_PATH_SIZE], *all = NULL;
    size_t size;
    sheaf_status *st = NULL;
    const bool stored = sheaf__path_has(out, "settings", SHEAF_PATH_FILE);
    /* A folder without a run stays unchanged. Of several processes the first takes the lock. */
    if (sheaf__path_has(out, "checkpoints", SHEAF_PATH_DIR) &&
        (sheaf__launcher_look().number == 0 || !stored))
        st = sheaf_comm_run_threads(1, peek_rank, &p);
    if (st == NULL && stored) /* all of them, not only those in checkpoints */
        st = sheaf__file_read_all(&all, &size, sheaf__path_in(path, out, "settings"), 1 << 20);
    if (all != NULL) {
        free(p.settings);
        p.settings = all;
    }
    *settings = p.settings;
    *step = p.step;
    return st;
}

/* ---- may a run begin here? ---- */

static sheaf_status *out_is_taken(const char *out, sheaf_path_kind by)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`out %s`", out);
    sheaf_expected(st, "a folder that does not exist or is empty, for a new run");
    sheaf_found(st, "%s", by == SHEAF_PATH_DIR ? "a folder with files in it" : "a file");
    return sheaf_try_this(st, by == SHEAF_PATH_DIR
                                  ? "go on with that run: `resume`; or choose another `out`"
                                  : "another `out`");
}

/* A file that this process's output is redirected to, as in: sheaf train --out o1 > o1/train.log.
 */
static bool is_own_log(const char *out, const char *name)
{
    struct stat file, own;
    char path[SHEAF_PATH_SIZE];
    bool is = false;
    if (lstat(sheaf__path_in(path, out, name), &file) == 0 && S_ISREG(file.st_mode))
        for (int fd = STDOUT_FILENO; fd <= STDERR_FILENO && !is; fd++)
            is = fstat(fd, &own) == 0 && own.st_dev == file.st_dev && own.st_ino == file.st_ino;
    return is;
}

/* Does OUT/checkpoints have only the lock, which a run takes before it writes anything else? */
static bool holds_lock_alone(const char *out)
{
    char path[SHEAF_PATH_SIZE], **name = NULL;
    int64_t count = 0;
    sheaf_status_free(sheaf__list_dir(&name, &count, sheaf__path_in(path, out, "checkpoints")));
    const bool alone = count == 1 && strcmp(name[0], "lock") == 0;
    sheaf__names_free(name, count);
    return alone;
}

/* Files of a run before its first step; only some runs have the first ones. */
static const char *const before_steps[] = { "reference",     "rollouts.jsonl", "checkpoints",
                                            "metrics.jsonl", "run.json",       "settings" };
enum { OF_SOME_RUNS = 2 };

static void remove_some(const char *out)
{
    char path[SHEAF_PATH_SIZE];
    for (int i = 0; i < OF_SOME_RUNS; i++)
        remove(sheaf__path_in(path, out, before_steps[i]));
}

/* Does a folder have only what a run makes before its first step ends? */
static bool came_to_nothing(const char *out, char **name, int64_t count)
{
    bool ours = holds_lock_alone(out), other = false;
    for (int64_t i = 0; i < count && !other; i++) {
        other = !sheaf__path_is_partial(name[i]);
        for (size_t k = 0; k < sizeof before_steps / sizeof *before_steps; k++)
            other = other && strcmp(name[i], before_steps[k]) != 0;
        ours = ours || strcmp(name[i], "settings") == 0;
    }
    char metrics[SHEAF_PATH_SIZE];
    struct stat look;
    const bool steps =
        stat(sheaf__path_in(metrics, out, "metrics.jsonl"), &look) == 0 && look.st_size > 0;
    return ours && !other && !steps;
}

/* A new run needs a folder of its own, or that of a run which ended in its first step and is no
 * longer active. */
static sheaf_status *check_folder(sheaf__out_folder *f, char **name, int64_t count)
{
    peek left = { .out = f->options->out, .locked = f->lock >= 0 };
    if (!came_to_nothing(f->options->out, name, count))
        return out_is_taken(f->options->out, SHEAF_PATH_DIR);
    sheaf_status *st = sheaf_comm_run_threads(1, peek_rank, &left); /* tests the lock */
    free(left.settings);
    f->anew = left.step == 0;
    return st != NULL || f->anew ? st : out_is_taken(f->options->out, SHEAF_PATH_DIR);
}

/* Tokenised data, perhaps of an earlier try, which are used again. */
static bool is_own_cache(const char *out, const char *name)
{
    char path[SHEAF_PATH_SIZE];
    return strcmp(name, "cache") == 0 && sheaf__row_cache_is(sheaf__path_in(path, out, name));
}

/* Tokenised data elsewhere in OUT would make it a folder with files, refused for a new run only
 * after all is tokenised, or collide with the run's own files. */
static sheaf_status *check_cache(const sheaf_train_options *o)
{
    char *inside = NULL, cache[SHEAF_PATH_SIZE], *own = NULL;
    if (!sheaf__is_given(o->data_cache))
        return NULL;
    sheaf_status *st = sheaf__output_inside(&inside, o->data_cache, o->out);
    if (st == NULL && inside != NULL)
        st = sheaf__output_inside(&own, sheaf__path_in(cache, o->out, "cache"), o->data_cache);
    const bool is_own = own != NULL && inside != NULL && strcmp(own, inside) == 0;
    if (st == NULL && inside != NULL && !is_own) {
        st = sheaf_fail(SHEAF_E_ARG, "`data-cache %s`", o->data_cache);
        sheaf_expected(st, "a folder outside `out`, or %s", cache);
        sheaf_found(st, "%s", inside);
        sheaf_try_this(st, "`data-cache %s`, or a folder that several runs share", cache);
    }
    free(inside);
    free(own);
    return st;
}

/* A leftover of a run that was killed while its hosts checked whether they share OUT. */
static bool is_left_proof(const char *name)
{
    return strncmp(name, "seen-", 5) == 0 && sheaf__path_is_partial(name);
}

/* OUT, or where it would be made. */
static sheaf_status *check_writable(const char *out)
{
    char first[SHEAF_PATH_SIZE];
    return sheaf_in(sheaf__path_check_new(sheaf__path_in(first, out, "checkpoints"), true),
                    "`out`");
}

sheaf_status *sheaf__out_check(sheaf__out_folder *f)
{
    const sheaf_train_options *o = f->options;
    char **name = NULL;
    int64_t count = 0;
    sheaf_status *st = check_cache(o);
    const sheaf_path_kind kind = sheaf__path_kind(o->out);
    if (st != NULL)
        return st;
    if (kind == SHEAF_PATH_DIR) {
        st = sheaf__list_dir(&name, &count, o->out);
        int64_t others = 0;
        for (int64_t i = 0; i < count; i++)
            if (!is_own_log(o->out, name[i]) && !is_own_cache(o->out, name[i]) &&
                !is_left_proof(name[i])) {
                char *other = name[i];
                name[i] = name[others];
                name[others++] = other;
            }
        if (st == NULL && others > 0 && !o->resume)
            st = check_folder(f, name, others);
        sheaf__names_free(name, count);
    } else if (o->resume) {
        st = sheaf_fail(SHEAF_E_ARG, "`resume` `out %s`", o->out);
        sheaf_expected(st, "the folder of a run");
        sheaf_found(st, kind == SHEAF_PATH_NONE ? "nothing there" : "a file");
    } else if (kind != SHEAF_PATH_NONE) {
        st = out_is_taken(o->out, kind);
    }
    return st == NULL ? check_writable(o->out) : st;
}

/* Takes the lock, then checks again that no other run has begun here. */
static sheaf_status *take(sheaf__out_folder *f)
{
    const bool anew = f->anew;
    sheaf_status *st = sheaf_checkpoints_lock(&f->lock, f->options->out, f->events); /* makes OUT */
    if (st == NULL) /* not listed if its owner cannot read it */
        f->dir = open(f->options->out, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    TRY(st, sheaf__out_check(f));
    f->anew = anew; /* the new folder is not an ended run */
    return st;
}

sheaf_status *sheaf__out_settings(const sheaf__out_folder *f, const char *recipe)
{
    char path[SHEAF_PATH_SIZE];
    return sheaf__file_write_whole(sheaf__path_in(path, f->options->out, "settings"), recipe,
                                   strlen(recipe));
}

sheaf_status *sheaf__out_prepare(sheaf__out_folder *f, const char *recipe)
{
    const sheaf_train_options *o = f->options;
    sheaf_status *st = sheaf__out_check(f); /* again: reading the data takes time */
    f->made = sheaf__path_kind(o->out) == SHEAF_PATH_NONE;
    if (st == NULL && f->anew)
        sheaf_note(f->events,
                   "%s: a run was ended here before its first step was done; this one begins anew",
                   o->out);
    TRY(st, take(f));
    if (st == NULL && f->anew)
        remove_some(o->out);
    TRY(st, o->resume ? NULL : sheaf__out_settings(f, recipe));
    if (st != NULL && f->lock >= 0 && !o->resume && !f->anew)
        sheaf__out_undo(f);
    return st;
}

sheaf_status *sheaf__out_check_held(const sheaf__out_folder *f)
{
    const char *out = f->options->out;
    char lock[SHEAF_PATH_SIZE];
    sheaf__path_in(lock, out, "checkpoints/lock");
    if (f->dir < 0 || (sheaf__path_holds(out, f->dir) && sheaf__path_holds(lock, f->lock)))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_IO, "%s", out);
    sheaf_expected(st, "the folder that this run holds, with its lock %s", lock);
    sheaf_found(st, "it was moved or removed, or others took its place, while the run went on");
    return sheaf_try_this(st, "nothing was written to what is there now; go on with `resume` where "
                              "it was moved to, or from a copy, or begin anew");
}

void sheaf__out_release(sheaf__out_folder *f)
{
    if (f->lock >= 0)
        close(f->lock);
    if (f->dir >= 0)
        close(f->dir);
    f->lock = f->dir = -1;
}

void sheaf__out_sweep(const sheaf__out_folder *f)
{
    static const char *const ours[] = { "settings.", "run.json.", "best.json.", "reference.",
                                        "seen-" };
    char path[SHEAF_PATH_SIZE], **name = NULL;
    int64_t count = 0;
    sheaf_status_free(sheaf__list_dir(&name, &count, f->options->out));
    for (int64_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof ours / sizeof *ours; k++)
            if (sheaf__path_is_partial(name[i]) && strncmp(name[i], ours[k], strlen(ours[k])) == 0)
                remove(sheaf__path_in(path, f->options->out, name[i]));
    sheaf__names_free(name, count);
}

void sheaf__out_undo(const sheaf__out_folder *f)
{
    static const char *const made[] = { "checkpoints/lock", "checkpoints", "settings",
                                        "metrics.jsonl", "run.json" };
    char path[SHEAF_PATH_SIZE];
    bool gone = true;
    remove_some(f->options->out);
    for (size_t i = 0; i < sizeof made / sizeof *made && gone; i++)
        gone = remove(sheaf__path_in(path, f->options->out, made[i])) == 0;
    if (f->made)
        rmdir(f->options->out); /* only where it is empty */
}

/* ---- one folder for all hosts ---- */

enum { NAME = 256 };

static bool is_root(const char *path)
{
    return strcmp(path, ".") == 0 || strcmp(path, "/") == 0;
}

/* `path` becomes the folder that it is in. */
static void go_up(char path[SHEAF_PATH_SIZE])
{
    char above[SHEAF_PATH_SIZE];
    strcpy(path, sheaf__path_above(above, path));
}

/* How many of OUT and its parents do not exist yet. */
static int missing_folders(const char *out)
{
    int count = 0;
    char at[SHEAF_PATH_SIZE];
    snprintf(at, sizeof at, "%s", out);
    for (; sheaf__path_kind(at) == SHEAF_PATH_NONE && !is_root(at); count++)
        go_up(at);
    return count;
}

/* Removes them again, unless one is no longer empty. */
static void remove_folders(const char *out, int count)
{
    char at[SHEAF_PATH_SIZE];
    snprintf(at, sizeof at, "%s", out);
    for (; count > 0 && (rmdir(at) == 0 || errno == ENOENT); count--)
        go_up(at);
}

/* OUT/seen-TOKEN.partial-PID-MARK. It is in OUT, which is made for it: a process killed meanwhile
 * leaves one folder, which the next run sweeps. */
static sheaf_status *write_proof(char **path, char name[NAME], const char *out)
{
    uint64_t token[2];
    char seen[40], base[SHEAF_PATH_SIZE];
    if (getrandom(token, sizeof token, 0) != (ssize_t)sizeof token)
        return sheaf_fail(SHEAF_E_IO, "random bytes");
    snprintf(seen, sizeof seen, "seen-%016" PRIx64 "%016" PRIx64, token[0], token[1]);
    sheaf_status *st = sheaf__make_dirs(out);
    TRY(st, sheaf__partial_path(path, sheaf__path_in(base, out, seen), "partial", 0));
    if (st == NULL)
        snprintf(name, NAME, "%s", strrchr(*path, '/') + 1);
    TRY(st, sheaf__file_write_whole(*path, "", 0));
    return sheaf_in(st, "`out %s`", out);
}

/* NFS caches for up to a minute that a name does not exist, unless its folder is opened: opens the
 * innermost existing parent of OUT. */
static void look_anew(const char *out)
{
    char at[SHEAF_PATH_SIZE];
    DIR *folder = NULL;
    snprintf(at, sizeof at, "%s", out);
    while ((folder = opendir(at)) == NULL && !is_root(at))
        go_up(at);
    if (folder != NULL)
        closedir(folder);
}

static sheaf_status *look(const char *name, const char *out, double wait)
{
    const double end = sheaf__seconds() + wait;
    bool seen = sheaf__path_has(out, name, SHEAF_PATH_FILE);
    while (!seen && sheaf__seconds() < end) {
        look_anew(out);
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
        seen = sheaf__path_has(out, name, SHEAF_PATH_FILE);
    }
    if (seen)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`out %s`", out);
    sheaf_expected(st, "a folder that the hosts of all processes see");
    sheaf_found(st, "the file that the first process wrote is not there");
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
