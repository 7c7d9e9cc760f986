/* shared_out.c - see shared_out.h. */
#include "train/shared_out.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"

enum { TOKEN = 32, NAME = 256 };

/* What the first rank tells the others. */
typedef struct proof {
    int32_t above;   /* in OUT, or so many folders above it */
    char name[NAME]; /* of the file there */
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

/* The folder that lies `above` folders above `out`; with a negative number the nearest that there
 * is, which is counted. */
static sheaf_status *climb(char **folder, int32_t *above, const char *out)
{
    const int32_t wanted = *above;
    *folder = strdup(out);
    sheaf_status *st = *folder == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", out) : NULL;
    for (*above = 0;
         st == NULL && (wanted < 0 ? sheaf__path_kind(*folder) == SHEAF_PATH_NONE &&
                                         strcmp(*folder, ".") != 0 && strcmp(*folder, "/") != 0
                                   : *above < wanted);
         ++*above) {
        char *parent = NULL;
        st = sheaf__path_parent(&parent, *folder);
        free(*folder);
        *folder = parent;
    }
    return st;
}

/* OUT/seen.partial-PID-MARK, which the next run there sweeps away should this one be killed. */
static sheaf_status *write_proof(char **path, proof *p, const char *out)
{
    char *base = NULL, *folder = NULL;
    sheaf_status *st = make_token(p->token);
    p->above = -1;
    if (st == NULL)
        st = climb(&folder, &p->above, out);
    if (st == NULL)
        st = sheaf__path_join(&base, folder, "seen");
    if (st == NULL)
        st = sheaf__partial_path(path, base, "partial", 0);
    if (st == NULL) {
        const char *name = strrchr(*path, '/') + 1;
        if (snprintf(p->name, sizeof p->name, "%s", name) >= (int)sizeof p->name)
            st = sheaf_fail(SHEAF_E_IO, "%s: its name is too long", *path);
    }
    if (st == NULL)
        st = sheaf__file_write_whole(*path, p->token, TOKEN, NULL);
    free(folder);
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

static sheaf_status *look(bool *seen, const proof *p, const char *out, double wait)
{
    const double end = sheaf__seconds() + wait;
    char *path = NULL, *folder = NULL;
    int32_t above = p->above;
    sheaf_status *st = climb(&folder, &above, out);
    if (st == NULL)
        st = sheaf__path_join(&path, folder, p->name);
    *seen = st == NULL && sees(path, p->token);
    while (st == NULL && !*seen && sheaf__seconds() < end) {
        nanosleep(&(struct timespec){ 0, 50000000 }, NULL);
        *seen = sees(path, p->token);
    }
    free(path);
    free(folder);
    return st;
}

sheaf_status *sheaf__out_shared(int *blind, sheaf_comm *all, const char *out, double wait)
{
    const int me = sheaf_comm_rank(all), ranks = sheaf_comm_ranks(all);
    proof p = { .name = "" };
    char *path = NULL;
    bool seen[SHEAF_MAX_SLICES] = { false };
    size_t size[SHEAF_MAX_SLICES];
    for (int r = 0; r < ranks; r++)
        size[r] = sizeof *seen;
    *blind = -1;
    sheaf_status *st = sheaf_comm_agree(all, me == 0 ? write_proof(&path, &p, out) : NULL);
    if (st == NULL)
        st = sheaf_comm_broadcast(all, &p, sizeof p, 0);
    seen[me] = me == 0;
    if (st == NULL)
        st = sheaf_comm_agree(all, me == 0 ? NULL : look(&seen[me], &p, out, wait));
    if (st == NULL)
        st = sheaf_comm_gather(all, seen, size);
    for (int r = ranks - 1; r >= 0 && st == NULL; r--)
        *blind = seen[r] ? *blind : r;
    if (path != NULL)
        unlink(path);
    free(path);
    return st;
}
