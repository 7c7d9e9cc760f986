/* stepped.c - see stepped.h. */
#include "train/stepped.h"

#include "base/base.h"
#include "catalog/boxes.h"

/* ---- the numbers of a tensor, one after the other ---- */

static int64_t width_of(const sheaf_source_entry *e)
{
    return e->ndim > 1 ? e->shape[e->ndim - 1] : 1;
}

static sheaf_status *read_stored(sheaf_source *source, const sheaf_source_entry *e, int64_t first,
                                 int64_t n, char *dst)
{
    const int64_t width = width_of(e), bytes = (int64_t)sheaf_dtype_bytes(e->dtype);
    sheaf_status *st = NULL;
    for (int64_t at = first; at < first + n && st == NULL;) {
        const int64_t left = first + n - at, col = at % width, whole = left / width;
        const int64_t rows = col == 0 && whole > 0 ? whole : 1;
        const int64_t cols = col == 0 && whole > 0 ? width
                             : left < width - col  ? left
                                                   : width - col;
        st = source->read(source, e->name, at / width, rows, col, cols, dst + (at - first) * bytes);
        at += rows * cols;
    }
    return st;
}

sheaf_status *sheaf__source_numbers(void *dst, sheaf_dtype dtype, sheaf_source *source,
                                    const sheaf_source_entry *e, int64_t first, int64_t n,
                                    const sheaf__kernels *kernels)
{
    if (e->dtype == dtype)
        return read_stored(source, e, first, n, dst);
    void *stored = malloc((size_t)n * sheaf_dtype_bytes(e->dtype));
    if (stored == NULL)
        return sheaf__no_memory(e->name);
    sheaf_status *st = read_stored(source, e, first, n, stored);
    if (st == NULL)
        kernels->convert(dst, dtype, stored, e->dtype, n);
    free(stored);
    return st;
}

/* ---- the source ---- */

typedef struct stepped {
    sheaf_source source;
    sheaf_source *masters, *base;
    const sheaf__kernels *kernels;
} stepped;

static const char prefix[] = "master/";

static const sheaf_source_entry *master_of(const stepped *s, const char *name)
{
    char master[600];
    return snprintf(master, sizeof master, "%s%s", prefix, name) < (int)sizeof master
               ? s->masters->find(s->masters, master)
               : NULL;
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    return ((stepped *)self)->base->find(((stepped *)self)->base, name);
}
static int64_t count(sheaf_source *self)
{
    return ((stepped *)self)->base->count(((stepped *)self)->base);
}
static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    return ((stepped *)self)->base->entry(((stepped *)self)->base, i);
}

/* A box of the base's view: rows that lie one after the other are read together. */
static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const stepped *s = (const stepped *)self;
    const sheaf_source_entry *e = s->base->find(s->base, name),
                             *m = e == NULL ? NULL : master_of(s, name);
    if (m == NULL)
        return s->base->read(s->base, name, row0, rows, col0, cols, dst);
    const int64_t width = width_of(e), together = cols == width ? rows : 1;
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < rows && st == NULL; r += together)
        st = sheaf__source_numbers((char *)dst + (size_t)(r * cols) * sheaf_dtype_bytes(e->dtype),
                                   e->dtype, s->masters, m, (row0 + r) * width + col0,
                                   together * cols, s->kernels);
    return st;
}

static void close_stepped(sheaf_source *self)
{
    free(self);
}

static sheaf_status *check_master(const sheaf_source_entry *m, sheaf_source *base)
{
    const char *name = m->name + sizeof prefix - 1;
    const sheaf_source_entry *e = base->find(base, name);
    const int64_t have = sheaf__elements(m->ndim, m->shape),
                  want = e == NULL ? 0 : sheaf__elements(e->ndim, e->shape);
    if (e != NULL && have == want)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s' in the checkpoint", m->name);
    if (e == NULL)
        return sheaf_found(sheaf_expected(st, "a tensor '%s' in the base", name), "none");
    sheaf_expected(st, "%" PRId64 " numbers, as in the base", want);
    return sheaf_found(st, "%" PRId64, have);
}

sheaf_status *sheaf__stepped_source(sheaf_source **out, sheaf_source *masters, sheaf_source *base)
{
    const int64_t n = masters->count(masters);
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *m = masters->entry(masters, i);
        sheaf_status *st =
            strncmp(m->name, prefix, sizeof prefix - 1) == 0 ? check_master(m, base) : NULL;
        if (st != NULL)
            return st;
    }
    stepped *s = malloc(sizeof *s);
    if (s == NULL)
        return sheaf__no_memory("a model and its checkpoint");
    *s = (stepped){
        { find, count, entry, read_box, close_stepped }, masters, base, sheaf__kernels_for(NULL)
    };
    *out = &s->source;
    return NULL;
}
