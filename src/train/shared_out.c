/* shared_out.c - see shared_out.h. */
#include "train/shared_out.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/status.h"
#include "base/clock.h"
#include "base/file.h"

enum { TOKEN = 32, NAME = 256 };
static const struct timespec moment = { .tv_nsec = 50000000 };

/* What the first rank tells the others. */
typedef struct proof {
    char name[NAME]; /* of the file in OUT */
    char token[TOKEN + 1];
} proof;

static sheaf_status *make_token(char token[TOKEN + 1])
{
    unsigned char bytes[TOKEN / 2];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return sheaf_fail(SHEAF_E_IO, "random bytes");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return NULL;
}

/* The folders that the first rank makes for the file, and takes away again: OUT and those above it
 * that are not there. */
typedef struct made {
    char **path; /* the outermost last */
    int count;
} made;

static sheaf_status *list_missing(made *m, const char *out)
{
    char *at = strdup(out);
    sheaf_status *st = at == NULL ? sheaf__no_memory(out) : NULL;
    while (st == NULL && sheaf__path_kind(at) == SHEAF_PATH_NONE && strcmp(at, ".") != 0 &&
           strcmp(at, "/") != 0) {
        char **longer = realloc(m->path, ((size_t)m->count + 1) * sizeof *longer), *parent = NULL;
        if (longer == NULL) {
            st = sheaf__no_memory(out);
            break;
        }
        m->path = longer;
        m->path[m->count++] = at;
        st = sheaf__path_parent(&parent, at);
        at = parent;
    }
    free(at);
    return st;
}

/* Those in which nothing else came to be. */
static void unmake(made *m)
{
    bool empty = true;
    for (int i = 0; i < m->count; i++) {
        empty = empty && (rmdir(m->path[i]) == 0 || errno == ENOENT);
        free(m->path[i]);
    }
    free(m->path);
}

/* OUT/seen.partial-PID-MARK. It lies in OUT, also where that is not there yet: who is killed before
 * it is gone leaves no more than a folder for the next run, which sweeps it (out_folder.c). */
static sheaf_status *write_proof(char **path, made *folders, proof *p, const char *out)
{
    char *base = NULL;
    sheaf_status *st = make_token(p->token);
    TRY(st, list_missing(folders, out));
    TRY(st, sheaf__make_dirs(out));
    TRY(st, sheaf__path_join(&base, out, "seen"));
    TRY(st, sheaf__partial_path(path, base, "partial", 0));
    if (st == NULL) {
        const char *name = strrchr(*path, '/') + 1;
        if (snprintf(p->name, sizeof p->name, "%s", name) >= (int)sizeof p->name)
            st = sheaf_fail(SHEAF_E_IO, "%s: its name is too long", *path);
    }
    TRY(st, sheaf__file_write_whole(*path, p->token, TOKEN));
    free(base);
    return sheaf_in(st, "--out %s", out);
}

static bool sees(const char *path, const char *token)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, TOKEN);
    const bool same = st == NULL && size == TOKEN && memcmp(text, token, TOKEN) == 0;
    sheaf_status_free(st);
    free(text);
    return same;
}

/* NFS remembers for up to a minute that a name was not there, but asks anew about a folder that is
 * opened: the innermost of those that OUT is in and that are there. */
static void look_anew(const char *out)
{
    char *at = strdup(out), *parent = NULL;
    DIR *folder = at == NULL ? NULL : opendir(at);
    while (at != NULL && folder == NULL && strcmp(at, ".") != 0 && strcmp(at, "/") != 0) {
        sheaf_status_free(sheaf__path_parent(&parent, at));
        free(at);
        at = parent;
        parent = NULL;
        folder = at == NULL ? NULL : opendir(at);
    }
    if (folder != NULL)
        closedir(folder);
    free(at);
}

static sheaf_status *look(bool *seen, const proof *p, const char *out, double wait)
{
    const double end = sheaf__seconds() + wait;
    char *path = NULL;
    sheaf_status *st = sheaf__path_join(&path, out, p->name);
    *seen = st == NULL && sees(path, p->token);
    while (st == NULL && !*seen && sheaf__seconds() < end) {
        look_anew(out);
        nanosleep(&moment, NULL);
        *seen = sees(path, p->token);
    }
    free(path);
    return st;
}

/* A bool of each rank, to all. */
static sheaf_status *gather(bool *all_of, sheaf_comm *all)
{
    size_t size[SHEAF_MAX_SLICES];
    for (int r = 0; r < sheaf_comm_ranks(all); r++)
        size[r] = sizeof *all_of;
    return sheaf_comm_gather(all, all_of, size);
}

sheaf_status *sheaf__out_shared(bool seen[SHEAF_MAX_SLICES], sheaf_comm *all, const char *out,
                                double wait)
{
    const int me = sheaf_comm_rank(all);
    proof p = { .name = "" };
    made folders = { 0 };
    char *path = NULL;
    sheaf_status *st =
        sheaf_comm_agree(all, me == 0 ? write_proof(&path, &folders, &p, out) : NULL);
    TRY(st, sheaf_comm_broadcast(all, &p, sizeof p, 0));
    seen[me] = me == 0;
    TRY(st, sheaf_comm_agree(all, me == 0 ? NULL : look(&seen[me], &p, out, wait)));
    TRY(st, gather(seen, all));
    if (path != NULL)
        unlink(path);
    free(path);
    unmake(&folders);
    return st;
}

/* ---- whose is the run? ---- */

static bool is_step(const char *name)
{
    return strncmp(name, "step-", 5) == 0 && !sheaf__path_is_partial(name);
}

/* Settings or a checkpoint: who looks for them makes the folder that these are in. */
static sheaf_status *has_run(bool *has, const char *out)
{
    char *settings = NULL, *checkpoints = NULL, **name = NULL;
    int64_t count = 0;
    *has = false;
    if (out == NULL || out[0] == '\0') /* which is refused later */
        return NULL;
    sheaf_status *st = sheaf__path_join(&settings, out, "settings");
    TRY(st, sheaf__path_join(&checkpoints, out, "checkpoints"));
    if (st == NULL && sheaf__path_kind(settings) == SHEAF_PATH_FILE)
        *has = true;
    else if (st == NULL && sheaf__path_kind(checkpoints) == SHEAF_PATH_DIR)
        st = sheaf__list_dir(&name, &count, checkpoints);
    for (int64_t i = 0; i < count; i++)
        *has |= is_step(name[i]);
    sheaf__names_free(name, count);
    free(checkpoints);
    free(settings);
    return st;
}

sheaf_status *sheaf__out_kept(bool kept[SHEAF_MAX_SLICES], sheaf_comm *all, const char *out,
                              double wait)
{
    const int me = sheaf_comm_rank(all);
    bool by_another = false;
    sheaf_status *st = sheaf_comm_agree(all, has_run(&kept[me], out));
    TRY(st, gather(kept, all));
    if (st != NULL)
        return st;
    for (int r = 1; r < sheaf_comm_ranks(all); r++)
        by_another |= kept[r];
    if (kept[0] || !by_another)
        return NULL;
    const double end = sheaf__seconds() + wait; /* the first may not see it yet */
    while (me == 0 && st == NULL && !kept[0] && sheaf__seconds() < end) {
        look_anew(out);
        nanosleep(&moment, NULL);
        st = has_run(&kept[0], out);
    }
    st = sheaf_comm_agree(all, st);
    return st == NULL ? sheaf_comm_broadcast(all, &kept[0], sizeof kept[0], 0) : st;
}
