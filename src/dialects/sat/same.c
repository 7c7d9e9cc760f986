/* same.c - equal files in several folders; see parts.h. */
#include <xxhash.h>

#include "base/base.h"
#include "dialects/common/save.h"
#include "dialects/sat/parts.h"

/* Of everything that a part holds, by the checksums in the file where there are any. */
static sheaf_status *digest_all(uint64_t *out, sheaf__sat_part *p)
{
    const int64_t n = sheaf__pickle_count(p->module);
    int64_t size;
    sheaf_status *st = sheaf__file_open_read(&p->file->fd, &size, p->path);
    *out = 0;
    if (st != NULL)
        p->file->fd = -1;
    for (int64_t i = 0; st == NULL && i < n; i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(p->module, i));
        const sheaf_pickle_tensor *t =
            sheaf__pickle_tensor(p->file->doc, sheaf__pickle_value(p->module, i));
        uint64_t one = 0;
        if (t != NULL)
            st = sheaf__sat_digest(&one, p->file, t);
        *out = XXH64(&one, sizeof one, name != NULL ? XXH64(name, strlen(name), *out) : *out);
    }
    sheaf__torch_close_file(p->file);
    return st;
}

/* Could they be equal, by the data read when they were opened? */
static bool could_be_equal(const sheaf__sat_set *set, const sheaf__sat_part *a,
                           const sheaf__sat_part *b)
{
    return a->rank == b->rank && a->folder != b->folder && a->file != NULL && b->file != NULL &&
           a->file->size == b->file->size && a->names == b->names && a->copies == b->copies &&
           a->step == b->step && a->ways == b->ways &&
           strcmp(set->folder[a->folder].tag, set->folder[b->folder].tag) == 0;
}

static sheaf_status *same(bool *yes, sheaf__sat_part *a, sheaf__sat_part *b)
{
    uint64_t x, y;
    sheaf_status *st = digest_all(&x, a);
    TRY(st, digest_all(&y, b));
    *yes = st == NULL && x == y;
    return sheaf__only_memory(st); /* other failures are reported when it is read */
}

/* One file found twice, as when it is given with its folder: no finding. */
static bool is_itself(const sheaf__sat_set *set, const sheaf__sat_part *a, const sheaf__sat_part *b)
{
    return strcmp(sheaf__last_part(a->path), sheaf__last_part(b->path)) == 0 &&
           sheaf__path_same(set->folder[a->folder].dir, set->folder[b->folder].dir);
}

/* Prefers the part whose folder has the config, which would not be found otherwise, then the one in
 * the folder given by the user. */
static bool is_better(const sheaf__sat_set *set, const sheaf__sat_part *a, const sheaf__sat_part *b)
{
    const bool x = *set->folder[a->folder].config != '\0',
               y = *set->folder[b->folder].config != '\0';
    return x != y ? x : b->folder != set->anchor;
}

/* If all parts of the folder given by the user are also elsewhere, that other folder becomes the
 * anchor. */
static void move_anchor(sheaf__sat_set *set, int to)
{
    for (int i = 0; i < set->nparts; i++)
        if (set->anchor < 0 || set->part[i].folder == set->anchor)
            return;
    set->anchor = to;
}

sheaf_status *sheaf__sat_drop_same(sheaf__sat_set *set, sheaf_catalog *c)
{
    sheaf_status *st = NULL;
    for (int a = 0; st == NULL && a < set->nparts; a++)
        for (int b = a + 1; st == NULL && b < set->nparts; b++) {
            bool yes = false;
            const bool itself = is_itself(set, &set->part[a], &set->part[b]);
            if (itself)
                yes = true;
            else if (could_be_equal(set, &set->part[a], &set->part[b]))
                st = same(&yes, &set->part[a], &set->part[b]);
            if (st != NULL || !yes)
                continue;
            if (!is_better(set, &set->part[a], &set->part[b])) {
                const sheaf__sat_part swap = set->part[a];
                set->part[a] = set->part[b];
                set->part[b] = swap;
            }
            if (!itself)
                st = sheaf__note(c, "duplicate", set->part[b].path, "", "", "",
                                 "the same part as %s, which is used", set->part[a].path);
            sheaf__sat_part_release(&set->part[b]);
            memmove(&set->part[b], &set->part[b + 1],
                    (size_t)(set->nparts - b - 1) * sizeof *set->part);
            set->nparts--;
            b--;
            move_anchor(set, set->part[a].folder);
        }
    return st;
}
