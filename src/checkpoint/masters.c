/* masters.c - see masters.h. */
#include "checkpoint/masters.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "checkpoint/store.h"
#include "formats/safetensors.h"

typedef struct joined {
    const char *stored;      /* name in the slice files; its tail is the tensor's own name */
    sheaf_source_entry entry;
    sheaf_cut cut;
} joined;

typedef struct masters {
    sheaf_source source;
    int slices;
    sheaf_safetensors *file[SHEAF_MAX_SLICES + 1]; /* by slice, then the replicated one */
    int64_t count;
    joined *tensor; /* ascending by name, as in the manifest */
    char **name;    /* owned */
} masters;

static int by_name(const void *key, const void *member)
{
    return strcmp(key, ((const joined *)member)->entry.name);
}

static const joined *look(const masters *m, const char *name)
{
    return bsearch(name, m->tensor, (size_t)m->count, sizeof *m->tensor, by_name);
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    const joined *t = look((const masters *)self, name);
    return t == NULL ? NULL : &t->entry;
}

static int64_t count(sheaf_source *self) { return ((const masters *)self)->count; }
static const sheaf_source_entry *entry(sheaf_source *self, int64_t i) { return &((const masters *)self)->tensor[i].entry; }

static sheaf_range overlap(sheaf_range a, int64_t begin, int64_t end)
{
    const sheaf_range both = { a.begin > begin ? a.begin : begin, a.end < end ? a.end : end };
    return both.begin < both.end ? both : (sheaf_range){ begin, begin };
}

/* The part of a box that lies in one slice; `at` is where the slice's rows begin in its file. */
typedef struct piece { sheaf_range rows, cols; int64_t row_at, col_at; } piece;

static sheaf_status *copy_piece(const masters *m, const joined *t, int slice, const piece *p, int64_t row0, int64_t col0,
                                int64_t cols, float *dst)
{
    const int64_t height = p->rows.end - p->rows.begin, width = p->cols.end - p->cols.begin;
    if (height == 0 || width == 0)
        return NULL;
    const sheaf_safetensors *file = m->file[slice];
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, t->stored);
    if (e == NULL)
        return sheaf_fail(SHEAF_E_LAYOUT, "%s: '%s' is not there", file->path, t->stored);
    float *to = dst + (p->rows.begin - row0) * cols + (p->cols.begin - col0);
    if (width == cols)
        return sheaf__safetensors_read_box(file, e, p->rows.begin - p->row_at, height, p->cols.begin - p->col_at, width, to);
    sheaf_status *st = NULL;
    float *part = malloc((size_t)(height * width) * sizeof *part);
    if (part == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "'%s'", t->stored);
    st = sheaf__safetensors_read_box(file, e, p->rows.begin - p->row_at, height, p->cols.begin - p->col_at, width, part);
    for (int64_t r = 0; r < height && st == NULL; r++)
        memcpy(to + r * cols, part + r * width, (size_t)width * sizeof *part);
    free(part);
    return st;
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows, int64_t col0,
                              int64_t cols, void *dst)
{
    const masters *m = (const masters *)self;
    const joined *t = look(m, name);
    if (t == NULL)
        return sheaf_fail(SHEAF_E_LAYOUT, "'%s' is not trained in this checkpoint", name);
    const piece whole = { { row0, row0 + rows }, { col0, col0 + cols }, 0, 0 };
    if (t->cut.nparts == 0)
        return copy_piece(m, t, m->slices, &whole, row0, col0, cols, dst);
    sheaf_status *st = NULL;
    for (int s = 0; s < m->slices && st == NULL; s++) {
        int64_t held = 0; /* rows of the cut axis that earlier parts put into this slice's file */
        for (int part = 0; part < t->cut.nparts && st == NULL; part++) {
            sheaf_range own;
            st = sheaf_cut_rows(&own, &t->cut, part, s);
            if (st != NULL)
                return st;
            piece p = whole;
            *(t->cut.axis == 0 ? &p.rows : &p.cols) = overlap(own, t->cut.axis == 0 ? row0 : col0,
                                                             t->cut.axis == 0 ? row0 + rows : col0 + cols);
            *(t->cut.axis == 0 ? &p.row_at : &p.col_at) = own.begin - held;
            st = copy_piece(m, t, s, &p, row0, col0, cols, dst);
            held += own.end - own.begin;
        }
    }
    return st;
}

static void close_source(sheaf_source *self)
{
    masters *m = (masters *)self;
    for (int s = 0; s <= m->slices; s++)
        sheaf__safetensors_close(m->file[s]);
    for (int64_t i = 0; m->name != NULL && i < m->count; i++)
        free(m->name[i]);
    free(m->name);
    free(m->tensor);
    free(m);
}

static sheaf_status *list_group(masters *m, const sheaf_manifest *manifest, const char *group)
{
    const size_t prefix = strlen(group);
    m->tensor = calloc((size_t)manifest->count + 1, sizeof *m->tensor);
    m->name = calloc((size_t)manifest->count + 1, sizeof *m->name);
    if (m->tensor == NULL || m->name == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "tensors of a checkpoint");
    for (int64_t i = 0; i < manifest->count; i++) {
        const sheaf_manifest_tensor *t = &manifest->tensor[i];
        if (strncmp(t->name, group, prefix) != 0 || t->name[prefix] != '/')
            continue;
        if ((m->name[m->count] = strdup(t->name)) == NULL)
            return sheaf_fail(SHEAF_E_MEMORY, "tensors of a checkpoint");
        m->tensor[m->count] = (joined){ .stored = m->name[m->count], .cut = t->cut,
            .entry = { .name = m->name[m->count] + prefix + 1, .dtype = SHEAF_F32, .ndim = t->ndim, .shape = { t->shape[0], t->shape[1] } } };
        m->count++;
    }
    return NULL;
}

sheaf_status *sheaf_checkpoint_source(sheaf_source **out, const sheaf_checkpoint *checkpoint, const char *group)
{
    masters *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "tensors of a checkpoint");
    m->source = (sheaf_source){ find, count, entry, read_box, close_source };
    m->slices = checkpoint->manifest->slices;
    sheaf_status *st = list_group(m, checkpoint->manifest, group);
    for (int s = 0; s <= m->slices && st == NULL; s++) {
        char name[32], *path = NULL;
        st = sheaf__path_join(&path, checkpoint->dir, sheaf__manifest_file(name, m->slices, s));
        if (st == NULL)
            st = sheaf__safetensors_open(&m->file[s], path);
        free(path);
    }
    if (st != NULL) {
        close_source(&m->source);
        return st;
    }
    *out = &m->source;
    return NULL;
}
