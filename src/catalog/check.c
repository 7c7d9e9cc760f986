/* check.c - do the pieces of a tensor tile it? Is a file a copy of another one? What do files not
 * say?
 *
 * The volumes of boxes that do not overlap add up to the tensor's exactly when there is no
 * hole. Where all boxes differ along one axis alone, the rows that are missing are named. */
#include "base/base.h"
#include "base/file.h"
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
        for (int i = 0; i < t->entry.ndim; i++)
            if (t->piece[k].size[i] != t->entry.shape[i]) {
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
        tell_range(&ranges, at, t->entry.shape[axis]);
    const char *path = sheaf__catalog_path_of(c, t);
    sheaf_status *st;
    if (ranges.failed)
        st = sheaf__no_memory(c->root);
    else if (ranges.size > 0)
        st = sheaf__defect(c, "missing", path, t->entry.name, "every part of the tensor", "",
                           "%s %s of %" PRId64 " are not in these files",
                           axis == 0 ? "rows" : "columns", ranges.at, t->entry.shape[axis]);
    else
        st = sheaf__defect(c, "missing", path, t->entry.name, "every part of the tensor", "",
                           "%" PRId64 " of %" PRId64 " elements are not in these files",
                           want - have, want);
    sheaf__text_release(&ranges);
    return st;
}

static sheaf_status *note_copy(sheaf_catalog *c, const sheaf_logical *t, const sheaf_piece *p)
{
    return sheaf__defect(c, "shape", c->file[p->file].path, t->entry.name,
                         "a whole copy in every part", "", "a part of it in part %d", p->rank);
}

static sheaf_status *check_tensor(sheaf_catalog *c, sheaf_logical *t)
{
    const int ndim = t->entry.ndim;
    const int64_t want = sheaf__elements(ndim, t->entry.shape);
    int64_t have = 0;
    if (t->coded != NULL) /* its parts are dense, each in one place */
        return NULL;
    if (!t->replicated && t->npieces > 1)
        qsort(t->piece, (size_t)t->npieces, sizeof *t->piece, by_begin);
    for (int64_t k = 0; k < t->npieces; k++) {
        const sheaf_piece *p = &t->piece[k];
        if (p->dtype != t->entry.dtype)
            return sheaf__defect(c, "dtype", c->file[p->file].path, t->entry.name,
                                 sheaf_dtype_name(t->entry.dtype), "", "a part in %s",
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
                return sheaf__defect(c, "conflict", c->file[t->piece[j].file].path, t->entry.name,
                                     "one place for each element", "", "another place in %s",
                                     c->file[p->file].path);
        }
    }
    if (have != want && t->replicated && t->npieces > 0 &&
        t->piece[0].rank != t->piece[t->npieces - 1].rank)
        return note_copy(c, t, &t->piece[t->npieces - 1]);
    return have == want ? NULL : note_missing(c, t, have, want);
}

/* ---- is one part another's file under a wrong name? ----
 *
 * Each part of a divided tensor has values of its own. Two files of parts that begin with the same
 * bytes in most of the tensors of which both have pieces, where those are not constant, are one
 * part twice; so are two that have the same samples in tensors of other names, as a stage of a
 * pipeline under another stage's name has. A few equal ones prove nothing: programs give several
 * ranks one key/value head.
 *
 * Where each tensor has a file of its own, two that were trained apart are never equal: their
 * gradients were not. */
enum {
    SAMPLE_BYTES = 4096,
    LEAST_ALIKE = 2,
    LEAST_VALUES =
        8, /* different ones; the first step moves each one of a norm up or down by as much */
};

/* One file of the catalog. */
typedef struct part {
    int rank;           /* -1: files do not go by ranks */
    int twin, votes;    /* the file that it equals most often, by majority vote; -1 = none */
    int64_t both, same; /* tensors that both have */
    uint64_t sum;       /* of all samples, in whatever order */
    int64_t tensors;    /* that had one which is not constant */
    bool reported;
} part;

typedef struct sample {
    int file; /* or number of a tensor that has a file of its own */
    uint64_t digest;
} sample; /* digest 0: constant */

typedef struct twins {
    sheaf_catalog *c;
    part *part;     /* [nfiles] */
    sample *sample; /* [samples] of all divided tensors, one behind the other */
    int64_t samples, capacity;
    int64_t *end;  /* [count]: of the samples of a tensor */
    int64_t *last; /* [nfiles]: the tensor that a file's last sample is of */
} twins;

/* Elements of a piece that lie together in its file, from its first. */
static int64_t together(const sheaf_piece *p, int ndim)
{
    int64_t n = 1;
    for (int i = ndim - 1; i >= 0 && (p->size[i] == 1 || p->stride[i] == n); i--)
        n *= p->size[i];
    return n;
}

/* Are there `least` different elements? */
static bool is_varied(const char *at, size_t bytes, size_t each, int least)
{
    const char *seen[LEAST_VALUES];
    int n = 0;
    for (const char *end = at + bytes; n < least && at < end; at += each) {
        int k = 0;
        while (k < n && memcmp(seen[k], at, each) != 0)
            k++;
        if (k == n)
            seen[n++] = at;
    }
    return n >= least;
}

/* Of a piece's first elements; 0 where they hold less than `least` different ones. */
static sheaf_status *take_sample(uint64_t *digest, const sheaf_catalog *c, const sheaf_piece *p,
                                 int ndim, int least)
{
    char buffer[SAMPLE_BYTES];
    const size_t each = sheaf_dtype_bytes(p->dtype);
    const int64_t have = together(p, ndim), most = (int64_t)(SAMPLE_BYTES / each);
    const size_t bytes = (size_t)(have < most ? have : most) * each;
    const sheaf_catalog_file *file = &c->file[p->file];
    int fd;
    sheaf_status *st = sheaf__catalog_open(&fd, file);
    TRY(st, sheaf__file_read_at(fd, buffer, bytes, p->offset, file->path));
    st = sheaf__catalog_done(fd, file, st);
    const bool varied = st == NULL && is_varied(buffer, bytes, each, least);
    *digest =
        varied ? sheaf__fnv(sheaf__fnv(SHEAF__FNV, p->size, sizeof p->size), buffer, bytes) | 1 : 0;
    return st;
}

static int by_digest(const void *a, const void *b)
{
    const sample *p = a, *q = b;
    return p->digest != q->digest ? (p->digest > q->digest) - (p->digest < q->digest)
                                  : p->file - q->file;
}

/* Of the first piece that each file has, by digest. */
static sheaf_status *take_samples(twins *w, int64_t tensor)
{
    const sheaf_logical *t = &w->c->tensor[tensor];
    const int64_t begin = w->samples;
    sheaf_status *st = NULL;
    for (int64_t k = 0; st == NULL && k < t->npieces; k++) {
        const sheaf_piece *p = &t->piece[k];
        if ((p->rank < 0 && t->npieces < 2) || sheaf_dtype_bytes(p->dtype) == 0 ||
            w->last[p->file] == tensor)
            continue;
        if (!SHEAF_GROW(&w->sample, &w->capacity, w->samples + 1))
            return sheaf__no_memory(w->c->root);
        w->last[p->file] = tensor;
        w->part[p->file].rank = p->rank;
        w->sample[w->samples].file = p->file;
        st = take_sample(&w->sample[w->samples].digest, w->c, p, t->entry.ndim, 2);
        w->samples += st == NULL;
    }
    if (w->samples > begin + 1)
        qsort(w->sample + begin, (size_t)(w->samples - begin), sizeof *w->sample, by_digest);
    return st;
}

/* Each file votes for the first of those that it equals. */
static void vote(twins *w, int64_t begin)
{
    int64_t first = begin;
    for (int64_t i = begin; i < w->samples; i++) {
        const sample *s = &w->sample[i];
        part *of = &w->part[s->file];
        if (s->digest == 0)
            continue;
        of->sum += s->digest * 0x9e3779b97f4a7c15u;
        of->tensors++;
        if (i == begin || s->digest != w->sample[first].digest)
            first = i;
        const int twin = first < i ? w->sample[first].file : -1;
        if (of->votes > 0)
            of->votes += of->twin == twin ? 1 : -1;
        else if (twin >= 0) {
            of->twin = twin;
            of->votes = 1;
        }
    }
}

/* How often each file equals its twin. */
static void count(twins *w, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++) {
        part *of = &w->part[w->sample[i].file];
        for (int64_t k = begin; of->twin >= 0 && w->sample[i].digest != 0 && k < end; k++)
            if (w->sample[k].file == of->twin) {
                of->both++;
                of->same += w->sample[k].digest == w->sample[i].digest;
            }
    }
}

static sheaf_status *tell(twins *w, int a, int b, bool names)
{
    sheaf_catalog *c = w->c;
    part *of = &w->part[b];
    const char *expected = "values of its own in tensors that are divided",
               *cure = "copy part by part again from where the checkpoint was written";
    char which[96], whose[40] = "";
    of->reported = true;
    if (w->part[a].rank >= 0)
        snprintf(whose, sizeof whose, "part %d, ", w->part[a].rank);
    if (names)
        snprintf(which, sizeof which, "%" PRId64 " tensors of other names", of->tensors);
    else if (of->same == of->both)
        snprintf(which, sizeof which, "all %" PRId64 " of them", of->both);
    else
        snprintf(which, sizeof which, "%" PRId64 " of %" PRId64 " of them", of->same, of->both);
    return sheaf__defect(c, "duplicate", c->file[b].path, "", expected, cure,
                         "the values of %s%s, in %s: one of the two is a copy under a wrong name",
                         whose, c->file[a].path, which);
}

static sheaf_status *tell_twins(twins *w)
{
    sheaf_status *st = NULL;
    for (int b = 0; st == NULL && b < w->c->nfiles; b++)
        if (w->part[b].twin >= 0 && 2 * w->part[b].same > w->part[b].both)
            st = tell(w, w->part[b].twin, b, false);
    for (int b = 1; st == NULL && b < w->c->nfiles; b++)
        for (int a = 0;
             st == NULL && a < b && !w->part[b].reported && w->part[b].tensors >= LEAST_ALIKE; a++)
            if (w->part[a].sum == w->part[b].sum && w->part[a].tensors == w->part[b].tensors)
                st = tell(w, a, b, true);
    return st;
}

/* All divided tensors: first to vote, then to count. */
static sheaf_status *look(twins *w)
{
    sheaf_status *st = NULL;
    memset(w->last, 0xff, (size_t)w->c->nfiles * sizeof *w->last);
    for (int64_t i = 0; st == NULL && i < w->c->count; i++) {
        const int64_t begin = w->samples;
        if (!w->c->tensor[i].replicated)
            st = sheaf__catalog_defect(w->c, w->c->root, take_samples(w, i));
        vote(w, begin);
        w->end[i] = w->samples;
    }
    for (int64_t i = 0, begin = 0; st == NULL && i < w->c->count; begin = w->end[i++])
        count(w, begin, w->end[i]);
    return st;
}

/* ---- tensors in files of their own ---- */

/* Was it trained? Moments were, and what has moments that are not one number. */
static bool is_trained(const sheaf_catalog *c, const uint64_t *digest, const sheaf_logical *t)
{
    char *name = NULL;
    if (t->kind == SHEAF_MOMENT)
        return true;
    if (asprintf(&name, "%s%s", sheaf__moment_words[0], t->entry.name) < 0)
        return false;
    const sheaf_logical *moment = sheaf__catalog_find(c, name);
    free(name);
    return moment != NULL && digest[moment - c->tensor] != 0;
}

static sheaf_status *tell_copy(sheaf_catalog *c, const sheaf_logical *a, const sheaf_logical *b)
{
    return sheaf__defect(
        c, "duplicate", c->file[b->piece[0].file].path, b->entry.name,
        "values of its own in a tensor that was trained",
        "copy the files of both tensors again from where the checkpoint was written",
        "the values of '%s', in %s: one of the two is a copy under a wrong name", a->entry.name,
        c->file[a->piece[0].file].path);
}

static sheaf_status *tell_copies(sheaf_catalog *c, uint64_t *digest, sample *sorted)
{
    int64_t n = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < c->count; i++) {
        const sheaf_logical *t = &c->tensor[i];
        if (!t->alone || t->npieces != 1 || sheaf_dtype_bytes(t->piece[0].dtype) == 0)
            continue;
        st = sheaf__catalog_defect(
            c, c->root, take_sample(&digest[i], c, &t->piece[0], t->entry.ndim, LEAST_VALUES));
        /* a moment beside a moment of its kind */
        if (digest[i] != 0 && t->kind == SHEAF_MOMENT)
            digest[i] = sheaf__fnv(digest[i], t->entry.name, strcspn(t->entry.name, ".")) | 1;
        if (digest[i] != 0)
            sorted[n++] = (sample){ (int)i, digest[i] };
    }
    if (n > 1)
        qsort(sorted, (size_t)n, sizeof *sorted, by_digest);
    for (int64_t i = 1; st == NULL && i < n; i++) {
        const sheaf_logical *a = &c->tensor[sorted[i - 1].file], *b = &c->tensor[sorted[i].file];
        if (sorted[i].digest == sorted[i - 1].digest &&
            (is_trained(c, digest, a) || is_trained(c, digest, b)))
            st = tell_copy(c, a, b);
    }
    return st;
}

static sheaf_status *copies(sheaf_catalog *c)
{
    uint64_t *digest = calloc((size_t)c->count + 1, sizeof *digest);
    sample *sorted = calloc((size_t)c->count + 1, sizeof *sorted);
    sheaf_status *st = digest == NULL || sorted == NULL ? sheaf__no_memory(c->root)
                                                        : tell_copies(c, digest, sorted);
    free(digest);
    free(sorted);
    return st;
}

/* ---- all of it ---- */

static sheaf_status *check_twins(sheaf_catalog *c)
{
    if (c->tensors_by_names)
        return copies(c);
    const size_t n = (size_t)c->nfiles + 1;
    if (c->nfiles < 2 || c->dialect->manifest)
        return NULL;
    twins w = { .c = c,
                .part = calloc(n, sizeof *w.part),
                .end = calloc((size_t)c->count + 1, sizeof *w.end),
                .last = calloc(n, sizeof *w.last) };
    sheaf_status *st =
        w.part == NULL || w.end == NULL || w.last == NULL ? sheaf__no_memory(c->root) : NULL;
    for (int i = 0; st == NULL && i < c->nfiles; i++)
        w.part[i].twin = w.part[i].rank = -1;
    TRY(st, look(&w));
    TRY(st, tell_twins(&w));
    free(w.part);
    free(w.sample);
    free(w.end);
    free(w.last);
    return st;
}

/* ---- all of it ---- */

sheaf_status *sheaf__catalog_check(sheaf_catalog *c)
{
    sheaf_status *st = sheaf__catalog_sort(c);
    for (int64_t i = 0; st == NULL && i < c->count; i++)
        st = check_tensor(c, &c->tensor[i]);
    return st != NULL ? st : check_twins(c);
}

/* ---- what files do not say of their parts ---- */

/* Files that hold pieces of divided tensors. */
static sheaf_status *count_parts(int *parts, const sheaf_catalog *c)
{
    bool *seen = calloc((size_t)c->nfiles + 1, sizeof *seen);
    *parts = 0;
    if (seen == NULL)
        return sheaf__no_memory(c->root);
    for (int64_t i = 0; i < c->count; i++)
        for (int64_t k = 0;
             !c->tensor[i].replicated && c->tensor[i].npieces > 1 && k < c->tensor[i].npieces;
             k++) {
            const int file = c->tensor[i].piece[k].file;
            *parts += !seen[file];
            seen[file] = true;
        }
    free(seen);
    return NULL;
}

sheaf_status *sheaf__catalog_rank_notes(bool *any, sheaf_catalog *c)
{
    int parts = 0;
    sheaf_status *st = c->dialect->whole ? NULL : count_parts(&parts, c);
    *any = st == NULL && (c->tensors_by_names || (parts > 1 && !c->copies_contradict));
    if (st == NULL && c->tensors_by_names)
        st = sheaf__note(
            c, "inferred", c->root, "", "files that say themselves which tensor they hold", "",
            "by the names of files and folders alone; files of one shape that were swapped would not be noticed");
    if (st != NULL || parts < 2)
        return st;
    if (c->by_names)
        st = sheaf__note(
            c, "inferred", c->root, "", "parts that say themselves which rank's they are", "",
            "by the names of files and folders alone; parts that were swapped would not be noticed");
    if (st != NULL || c->copies_contradict)
        return st;
    const char *one_run = "parts whose files name their run";
    if (c->copies == 0)
        return sheaf__note(
            c, "inferred", c->root, "", one_run, "",
            "by names, steps and shapes alone: there is no tensor of which each part has a copy");
    if (!c->copies_vary)
        return sheaf__note(c, "inferred", c->root, "", one_run, "",
                           "by names, steps and shapes alone: the copies of %" PRId64
                           " tensors that each part has are one number throughout, "
                           "as fresh norms are, and tell nothing",
                           c->copies);
    return sheaf__note(
        c, "inferred", c->root, "", one_run, "",
        "by the copies of %" PRId64
        " tensors that each part has; a part of another run that began with the same values and left "
        "them as they were would not be noticed",
        c->copies);
}
