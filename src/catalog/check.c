/* check.c - do the pieces of a tensor tile it?
 *
 * The volumes of boxes that do not overlap add up to the tensor's exactly when there is no
 * hole. Where all boxes differ along one axis alone, the rows that are missing are named. */
#include "base/base.h"
#include "catalog/boxes.h"
#include "catalog/private.h"

static bool overlap(const sheaf_piece *a, const sheaf_piece *b, int ndim)
{
    for (int i = 0; i < ndim; i++)
        if (a->begin[i] + a->size[i] <= b->begin[i] || b->begin[i] + b->size[i] <= a->begin[i])
            return false;
    return true;
}

static int by_begin(const void *a, const void *b)
{
    const sheaf_piece *p = a, *q = b;
    for (int i = 0; i < SHEAF_CATALOG_MAX_DIMS; i++)
        if (p->begin[i] != q->begin[i])
            return p->begin[i] < q->begin[i] ? -1 : 1;
    return 0;
}

/* The axis along which alone the boxes differ; -1 if there is no such one. */
static int cut_axis(const sheaf_logical *t)
{
    int axis = -1;
    for (int64_t k = 0; k < t->npieces; k++)
        for (int i = 0; i < t->told.ndim; i++)
            if (t->piece[k].size[i] != t->told.shape[i]) {
                if (axis >= 0 && axis != i)
                    return -1;
                axis = i;
            }
    return axis;
}

static void tell_range(sheaf_text *text, int64_t begin, int64_t end)
{
    if (begin < end)
        sheaf__text_add(text, "%s%" PRId64 "..%" PRId64, text->size > 0 ? ", " : "", begin,
                        end - 1);
}

static sheaf_status *note_missing(sheaf_catalog *c, const sheaf_logical *t, int64_t have,
                                  int64_t want)
{
    const int axis = cut_axis(t);
    sheaf_text ranges = { 0 };
    int64_t at = 0;
    if (axis >= 0)
        for (int64_t k = 0; k < t->npieces; k++) { /* sorted by begin */
            tell_range(&ranges, at, t->piece[k].begin[axis]);
            at = t->piece[k].begin[axis] + t->piece[k].size[axis];
        }
    if (axis >= 0)
        tell_range(&ranges, at, t->told.shape[axis]);
    const char *path = sheaf__catalog_path_of(c, t);
    sheaf_status *st;
    if (ranges.failed)
        st = sheaf__no_memory(c->root);
    else if (ranges.size > 0)
        st = sheaf__defect(c, "missing", path, t->told.name, "every part of the tensor", "",
                           "%s %s of %" PRId64 " are not in these files",
                           axis == 0 ? "rows" : "columns", ranges.at, t->told.shape[axis]);
    else
        st = sheaf__defect(c, "missing", path, t->told.name, "every part of the tensor", "",
                           "%" PRId64 " of %" PRId64 " elements are not in these files",
                           want - have, want);
    sheaf__text_release(&ranges);
    return st;
}

static sheaf_status *note_copy(sheaf_catalog *c, const sheaf_logical *t, const sheaf_piece *p)
{
    return sheaf__defect(c, "shape", c->file[p->file].path, t->told.name,
                         "a whole copy in every part", "", "a part of it in part %d", p->rank);
}

static sheaf_status *check_tensor(sheaf_catalog *c, sheaf_logical *t)
{
    const int ndim = t->told.ndim;
    const int64_t want = sheaf__elements(ndim, t->told.shape);
    int64_t have = 0;
    if (!t->replicated && t->npieces > 1)
        qsort(t->piece, (size_t)t->npieces, sizeof *t->piece, by_begin);
    for (int64_t k = 0; k < t->npieces; k++) {
        const sheaf_piece *p = &t->piece[k];
        if (p->dtype != t->told.dtype)
            return sheaf__defect(c, "dtype", c->file[p->file].path, t->told.name,
                                 sheaf_dtype_name(t->told.dtype), "", "a part in %s",
                                 sheaf_dtype_name(p->dtype));
        if (t->replicated && k > 0 && p->rank != t->piece[k - 1].rank) { /* the next copy */
            if (have != want)
                return note_copy(c, t, &t->piece[k - 1]);
            have = 0;
        }
        have += sheaf__elements(ndim, p->size);
        for (int64_t j = k + 1; j < t->npieces; j++) {
            if (ndim == 0 || (!t->replicated && t->piece[j].begin[0] >= p->begin[0] + p->size[0]) ||
                (t->replicated && t->piece[j].rank != p->rank))
                break;
            if (overlap(p, &t->piece[j], ndim))
                return sheaf__defect(c, "conflict", c->file[t->piece[j].file].path, t->told.name,
                                     "one place for each element", "", "another place in %s",
                                     c->file[p->file].path);
        }
    }
    if (have != want && t->replicated && t->npieces > 0 &&
        t->piece[0].rank != t->piece[t->npieces - 1].rank)
        return note_copy(c, t, &t->piece[t->npieces - 1]);
    return have == want ? NULL : note_missing(c, t, have, want);
}

sheaf_status *sheaf__catalog_check(sheaf_catalog *c)
{
    sheaf_status *st = sheaf__catalog_sort(c);
    for (int64_t i = 0; st == NULL && i < c->count; i++)
        st = check_tensor(c, &c->tensor[i]);
    return st != NULL ? st : sheaf__catalog_twins(c);
}
