/* checkpoint_source.c - a training checkpoint's undivided tensors, from its slice files. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/look.h"
#include "checkpoint/store.h"
#include "formats/safetensors.h"

typedef struct slices_source {
    sheaf_source source;
    const sheaf_manifest *manifest;
    sheaf_safetensors **file;  /* [S + 1], the last replicated */
    sheaf_source_entry *entry; /* in the order of the manifest: ascending by name */
} slices_source;

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const slices_source *s = (slices_source *)self;
    const sheaf_manifest_tensor *t = sheaf__manifest_find(s->manifest, name);
    return t != NULL ? &s->entry[t - s->manifest->tensor] : NULL;
}

static int64_t count(sheaf_source *self) { return ((slices_source *)self)->manifest->count; }
static const sheaf_source_entry *entry(sheaf_source *self, int64_t i) { return &((slices_source *)self)->entry[i]; }

/* A box of the tensor, and where it goes. */
typedef struct box {
    int64_t row0, rows, col0, cols;
    float *dst; /* dense [rows, cols] */
} box;

static void meet(int64_t *begin, int64_t *end, sheaf_range a, int64_t from, int64_t n)
{
    *begin = a.begin > from ? a.begin : from;
    *end = a.end < from + n ? a.end : from + n;
}

/* What one part of one slice has of the box; it begins at `local` in the slice's file. */
static sheaf_status *read_part(const sheaf_safetensors *file, const sheaf_safetensors_entry *e, int axis,
                               sheaf_range range, int64_t local, const box *b)
{
    int64_t begin, end;
    if (axis == 0) {
        meet(&begin, &end, range, b->row0, b->rows);
        if (begin >= end)
            return NULL;
        return sheaf__safetensors_read_box(file, e, local + begin - range.begin, end - begin, b->col0, b->cols,
                                           b->dst + (begin - b->row0) * b->cols);
    }
    meet(&begin, &end, range, b->col0, b->cols);
    if (begin >= end)
        return NULL;
    const int64_t width = end - begin;
    float *columns = malloc((size_t)(b->rows * width) * sizeof *columns);
    if (columns == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", e->name);
    sheaf_status *st = sheaf__safetensors_read_box(file, e, b->row0, b->rows, local + begin - range.begin, width, columns);
    for (int64_t r = 0; r < b->rows && st == NULL; r++)
        memcpy(b->dst + r * b->cols + begin - b->col0, columns + r * width, (size_t)width * sizeof *columns);
    free(columns);
    return st;
}

static sheaf_status *read_slice(const slices_source *s, const sheaf_manifest_tensor *t, int slice, const box *b)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(s->file[slice], t->name);
    int64_t shape[2];
    sheaf__manifest_box(shape, t, slice);
    if (e == NULL || e->dtype != SHEAF_F32 || e->ndim != t->ndim || e->shape[0] != shape[0] ||
        (t->ndim == 2 && e->shape[1] != shape[1]))
        return sheaf_fail(SHEAF_E_FORMAT, "%s: '%s': not as the manifest says", s->file[slice]->path, t->name);
    if (t->cut.nparts == 0)
        return sheaf__safetensors_read_box(s->file[slice], e, b->row0, b->rows, b->col0, b->cols, b->dst);
    int64_t local = 0;
    sheaf_status *st = NULL;
    for (int part = 0; part < t->cut.nparts && st == NULL; part++) {
        sheaf_range range;
        st = sheaf_cut_rows(&range, &t->cut, part, slice);
        if (st == NULL)
            st = read_part(s->file[slice], e, t->cut.axis, range, local, b);
        local += range.end - range.begin;
    }
    return st;
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows, int64_t col0,
                              int64_t cols, void *dst)
{
    const slices_source *s = (slices_source *)self;
    const sheaf_manifest_tensor *t = sheaf__manifest_find(s->manifest, name);
    const box b = { row0, rows, col0, cols, dst };
    if (t == NULL)
        return sheaf_fail(SHEAF_E_LAYOUT, "no tensor '%s'", name);
    if (t->cut.nparts == 0)
        return read_slice(s, t, s->manifest->slices, &b);
    sheaf_status *st = NULL;
    for (int slice = 0; slice < s->manifest->slices && st == NULL; slice++)
        st = read_slice(s, t, slice, &b);
    return st;
}

static void close_source(sheaf_source *self)
{
    slices_source *s = (slices_source *)self;
    for (int i = 0; s->file != NULL && i <= s->manifest->slices; i++)
        if (s->file[i] != NULL)
            sheaf__safetensors_close(s->file[i]);
    free(s->file);
    free(s->entry);
    free(s);
}

static sheaf_status *open_files(slices_source *s, const char *dir)
{
    sheaf_status *st = NULL;
    for (int i = 0; i <= s->manifest->slices && st == NULL; i++) {
        char name[32], *path = NULL;
        st = sheaf__path_join(&path, dir, sheaf__manifest_file(name, s->manifest->slices, i));
        if (st == NULL)
            st = sheaf__safetensors_open(&s->file[i], path);
        free(path);
    }
    return st;
}

sheaf_status *sheaf__checkpoint_source(sheaf_source **out, sheaf_checkpoint *checkpoint)
{
    const sheaf_manifest *m = checkpoint->manifest;
    slices_source *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%s", checkpoint->dir);
    s->source = (sheaf_source){ find, count, entry, read_box, close_source };
    s->manifest = m;
    s->file = calloc((size_t)m->slices + 1, sizeof *s->file);
    s->entry = calloc((size_t)m->count + 1, sizeof *s->entry);
    sheaf_status *st = s->file == NULL || s->entry == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", checkpoint->dir) : NULL;
    for (int64_t i = 0; i < m->count && st == NULL; i++)
        s->entry[i] = (sheaf_source_entry){ m->tensor[i].name, SHEAF_F32, m->tensor[i].ndim,
                                            { m->tensor[i].shape[0], m->tensor[i].shape[1] } };
    if (st == NULL)
        st = open_files(s, checkpoint->dir);
    if (st != NULL) {
        close_source(&s->source);
        return st;
    }
    *out = &s->source;
    return NULL;
}
