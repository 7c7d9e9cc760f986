/* gguf_file.c - see gguf.h. Rows stream: they are read, turned into what llama.cpp has, quantised
 * and written, some megabytes at a time. */
#include <math.h>

#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/output.h"
#include "catalog/over_source.h"
#include "checkpoint/convert/gguf.h"
#include "checkpoint/store/probe.h"
#include "ops/quant/ggml.h"
#include "schema/grid.h"

struct sheaf__gguf_view {
    sheaf__over_source over; /* first member; its own tensors are the file's */
    sheaf_source *inner;
    sheaf__gguf_made *made; /* parallel to over.own */
    int64_t most;
};

/* ---- reading ---- */

/* The row of the source that row `r` of the file is. */
static int64_t row_of(const sheaf__gguf_made *m, int64_t r)
{
    if (m->head == 0)
        return r;
    const int64_t at = r % m->head;
    return r - at + at / 2 + at % 2 * (m->head / 2);
}

/* The box of a tensor whose rows are columns of the source. */
static sheaf_status *read_turned(const sheaf__gguf_view *v, const sheaf_source_entry *e,
                                 int64_t row0, int64_t rows, int64_t col0, int64_t cols, char *dst)
{
    const size_t bytes = sheaf_dtype_bytes(e->dtype);
    char *raw = malloc((size_t)(rows * cols) * bytes + 1);
    if (raw == NULL)
        return sheaf__no_memory(e->name);
    sheaf_status *st = v->inner->read(v->inner, e->name, col0, cols, row0, rows, raw);
    for (int64_t r = 0; st == NULL && r < rows; r++)
        for (int64_t c = 0; c < cols; c++)
            memcpy(dst + (size_t)(r * cols + c) * bytes, raw + (size_t)(c * rows + r) * bytes,
                   bytes);
    free(raw);
    return st;
}

/* Rows of part `part`, as they follow in the file, in the source's dtype. */
static sheaf_status *read_rows(const sheaf__gguf_view *v, const sheaf__gguf_made *m, int64_t part,
                               int64_t row0, int64_t rows, int64_t col0, int64_t cols, char *dst)
{
    const sheaf_source_entry *e = v->inner->find(v->inner, m->from[part]);
    const int64_t bytes = cols * (int64_t)sheaf_dtype_bytes(e->dtype);
    sheaf_status *st = NULL;
    if (m->turned)
        return read_turned(v, e, row0, rows, col0, cols, dst);
    if (m->head == 0)
        return v->inner->read(v->inner, e->name, m->first + row0, rows, col0, cols, dst);
    for (int64_t r = 0; r < rows && st == NULL; r++)
        st = v->inner->read(v->inner, e->name, row_of(m, row0 + r), 1, col0, cols, dst + r * bytes);
    return st;
}

static sheaf_status *too_large(const char *name, sheaf_dtype dtype)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "tensor '%s'", name);
    sheaf_expected(st, "numbers that %s can hold", sheaf_dtype_name(dtype));
    return sheaf_try_this(sheaf_found(st, "one that would become infinite"),
                          "`dtype bfloat16` or float32");
}

/* n numbers of `from` at src as the file has them. */
static sheaf_status *change(const sheaf__gguf_made *m, const char *name, void *dst, sheaf_dtype to,
                            const void *src, sheaf_dtype from, int64_t n)
{
    if (!m->plus_one && m->factor == 0)
        return sheaf__dtype_convert(dst, to, src, from, n) ? NULL : too_large(name, to);
    float *x = malloc((size_t)n * sizeof *x + 1);
    if (x == NULL)
        return sheaf__no_memory(name);
    bool good = sheaf__dtype_convert(x, SHEAF_F32, src, from, n);
    for (int64_t i = 0; i < n; i++)
        x[i] = m->plus_one ? x[i] + 1 : (float)((double)x[i] * m->factor);
    good = sheaf__dtype_convert(dst, to, x, SHEAF_F32, n) && good;
    free(x);
    return good ? NULL : too_large(name, to);
}

static void make_grid(const sheaf__gguf_made *m, const sheaf_source_entry *e, int64_t row0,
                      int64_t rows, int64_t col0, int64_t cols, float *dst)
{
    for (int64_t r = row0; r < row0 + rows; r++)
        for (int64_t c = col0; c < col0 + cols; c++)
            *dst++ = sheaf__sincos(r * e->shape[1] + c, m->grid, e->shape[1]);
}

static sheaf_status *view_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const sheaf__gguf_view *v = (sheaf__gguf_view *)self;
    const int64_t at = sheaf__over_find(&v->over, name);
    const sheaf__gguf_made *m = &v->made[at];
    const sheaf_source_entry *e = &v->over.own[at];
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(e->dtype);
    sheaf_status *st = NULL;
    if (m->values != NULL) {
        memcpy(dst, m->values + row0, (size_t)(rows * bytes));
        return NULL;
    }
    if (m->grid > 0) {
        make_grid(m, e, row0, rows, col0, cols, dst);
        return NULL;
    }
    int64_t each, wide;
    sheaf__entry_view(&each, &wide, v->inner->find(v->inner, m->from[0]));
    if (m->turned)
        each = wide;
    while (rows > 0 && st == NULL) {
        const int64_t part = row0 / each, inside = row0 % each,
                      n = each - inside < rows ? each - inside : rows;
        const sheaf_dtype stored = v->inner->find(v->inner, m->from[part])->dtype;
        /* Parts may be stored in different dtypes: each has space of its own. */
        char *raw = malloc((size_t)(n * cols) * sheaf_dtype_bytes(stored) + 1);
        st = raw == NULL ? sheaf__no_memory(name)
                         : read_rows(v, m, part, inside, n, col0, cols, raw);
        TRY(st, change(m, name, dst, e->dtype, raw, stored, n * cols));
        free(raw);
        row0 += n;
        rows -= n;
        dst = (char *)dst + n * cols * bytes;
    }
    return st;
}

/* ---- the list ---- */

static void made_release(sheaf__gguf_made *m)
{
    for (int64_t i = 0; i < m->parts; i++)
        free(m->from[i]);
    free(m->from);
    free(m->values);
    *m = (sheaf__gguf_made){ 0 };
}

void sheaf__gguf_view_free(sheaf__gguf_view *v)
{
    if (v == NULL)
        return;
    for (int64_t i = 0; v->made != NULL && i < v->over.count; i++)
        made_release(&v->made[i]);
    free(v->made);
    sheaf__over_release(&v->over);
    free(v);
}

sheaf_status *sheaf__gguf_view_new(sheaf__gguf_view **out, sheaf_source *inner, int64_t most)
{
    sheaf__gguf_view *v = calloc(1, sizeof *v);
    if (v == NULL)
        return sheaf__no_memory("list of tensors");
    v->inner = inner;
    v->most = most;
    v->made = calloc((size_t)most + 1, sizeof *v->made);
    sheaf_status *st = sheaf__over_init(&v->over, most);
    v->over.source.read = view_read;
    if (st == NULL && v->made == NULL)
        st = sheaf__no_memory("list of tensors");
    if (st == NULL)
        *out = v;
    else
        sheaf__gguf_view_free(v);
    return st;
}

/* Blocks are made of float32. */
static sheaf_dtype dtype_of(sheaf__gguf_type type)
{
    return sheaf__gguf_type_at(type)->dtype;
}

sheaf_status *sheaf__gguf_view_add(sheaf__gguf_view *v, const char *name, int ndim,
                                   const int64_t *shape, sheaf__gguf_made made)
{
    sheaf_source_entry e = { .dtype = dtype_of(made.type), .ndim = ndim };
    memcpy(e.shape, shape, (size_t)ndim * sizeof *shape);
    sheaf_status *st =
        sheaf__ggml_writes(made.type)
            ? NULL
            : sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", name),
                                            "columns in whole blocks, as its type would "
                                            "be %s",
                                            sheaf__gguf_type_at(made.type)->name),
                             "`dtype q8_0`, bfloat16 or float16");
    TRY(st, sheaf__over_add(&v->over, strdup(name), e));
    if (st == NULL)
        v->made[v->over.count - 1] = made;
    else
        made_release(&made);
    return st;
}

bool sheaf__gguf_view_has(const sheaf__gguf_view *v, const char *name)
{
    return sheaf__over_find(&v->over, name) >= 0;
}

sheaf_status *sheaf__gguf_view_part(sheaf__gguf_view *v, const char *name, const char *from)
{
    const int64_t at = sheaf__over_find(&v->over, name);
    sheaf__gguf_made *m = &v->made[at];
    if (!SHEAF_GROW(&m->from, &m->capacity, m->parts + 1) ||
        (m->from[m->parts] = strdup(from)) == NULL)
        return sheaf__no_memory("list of tensors");
    m->parts++;
    if (v->over.own[at].ndim == 3)
        v->over.own[at].shape[0] = m->parts;
    return NULL;
}

/* ---- writing ---- */

typedef struct writing {
    sheaf__fill_file file;
    const sheaf__gguf_view *view;
} writing;

/* Numbers that lie side by side in the tensor, from element `begin` on. */
static sheaf_status *put_run(writing *w, int64_t index, int64_t begin, const void *src, int64_t n)
{
    const sheaf__gguf_type type = w->view->made[index].type;
    const int64_t block = sheaf__gguf_type_block(type), bytes = sheaf__gguf_type_bytes(type);
    if (block == 1)
        return sheaf__fill_write(&w->file, index, begin * bytes, src, n * bytes);
    const float *x = src;
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "tensor '%s'",
                                                         w->view->over.own[index].name),
                                              "finite numbers, to be stored as %s",
                                              sheaf__gguf_type_at(type)->name),
                               "%g at element %" PRId64, (double)x[i], begin + i);
    void *blocks = malloc((size_t)(n / block * bytes) + 1);
    if (blocks == NULL)
        return sheaf__no_memory("blocks");
    sheaf__ggml_blocks(blocks, x, type, n);
    sheaf_status *st =
        sheaf__fill_write(&w->file, index, begin / block * bytes, blocks, n / block * bytes);
    free(blocks);
    return st;
}

static sheaf_status *put_box(void *context, int64_t index, int64_t row0, int64_t rows, int64_t col0,
                             int64_t cols, const void *src)
{
    writing *w = context;
    const sheaf_source_entry *e = &w->view->over.own[index];
    int64_t height, width;
    sheaf_status *st = NULL;
    sheaf__entry_view(&height, &width, e);
    if (cols == width)
        return put_run(w, index, row0 * width, src, rows * cols);
    for (int64_t r = 0; r < rows && st == NULL; r++)
        st = put_run(w, index, (row0 + r) * width + col0,
                     (const char *)src + r * cols * (int64_t)sheaf_dtype_bytes(e->dtype), cols);
    return st;
}

static sheaf_status *begin(writing *w, const char *path, const sheaf__gguf_keys *keys)
{
    const sheaf__over_source *over = &w->view->over;
    sheaf__gguf_spec *spec = calloc((size_t)over->count + 1, sizeof *spec);
    if (spec == NULL)
        return sheaf__no_memory(path);
    for (int64_t i = 0; i < over->count; i++) {
        const sheaf_source_entry *e = &over->own[i];
        spec[i] = (sheaf__gguf_spec){ e->name, w->view->made[i].type, e->ndim, { 0 } };
        memcpy(spec[i].shape, e->shape, (size_t)e->ndim * sizeof *e->shape);
    }
    sheaf_status *st = sheaf__gguf_begin(&w->file, path, keys, spec, over->count);
    free(spec);
    return st;
}

static void count_tensors(sheaf__converter *k, const sheaf__gguf_view *v)
{
    k->report->bytes = k->total = 0;
    for (int64_t i = 0; i < v->over.count; i++) {
        const sheaf_source_entry *e = &v->over.own[i];
        const sheaf__gguf_type type = v->made[i].type;
        const int64_t numbers = sheaf__entry_bytes(e) / (int64_t)sheaf_dtype_bytes(e->dtype);
        k->total += sheaf__entry_bytes(e);
        k->report->bytes += numbers / sheaf__gguf_type_block(type) * sheaf__gguf_type_bytes(type);
        k->report->quantised += sheaf__gguf_type_block(type) > 1;
    }
    k->report->tensors = v->over.count;
}

/* Both or none of them; a process that is killed between the two leaves what lies beside. A rename
 * may be done though it could not be synced: then the old name is gone. */
static sheaf_status *put_in_place(sheaf_output *output, const char *path, const char *dst,
                                  const sheaf__gguf_beside *beside)
{
    char other[SHEAF_PATH_SIZE];
    if (beside->path == NULL)
        return sheaf__rename_new(path, dst);
    sheaf_status *st = sheaf__output_write(output, "beside", beside->text, strlen(beside->text));
    if (st != NULL)
        return st;
    sheaf__path_in(other, sheaf__output_dir(output), "beside");
    st = sheaf__rename_new(other, beside->path);
    TRY(st, sheaf__rename_new(path, dst));
    if (st != NULL && sheaf__path_kind(path) != SHEAF_PATH_NONE &&
        sheaf__path_kind(other) == SHEAF_PATH_NONE)
        unlink(beside->path);
    return st;
}

sheaf_status *sheaf__gguf_view_write(sheaf__converter *k, sheaf__gguf_view *v,
                                     const sheaf__gguf_keys *keys, const sheaf__gguf_beside *beside)
{
    char path[SHEAF_PATH_SIZE];
    sheaf_output *output = NULL;
    writing w = { .view = v };
    if (sheaf__path_kind(k->o->dst) != SHEAF_PATH_NONE)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", k->o->dst),
                                          "the name of a new file, as model.gguf"),
                           "%s", sheaf__path_what(k->o->dst));
    count_tensors(k, v);
    sheaf_status *st = sheaf__output_begin(&output, k->o->dst, false);
    if (st != NULL)
        return st;
    st = begin(&w, sheaf__path_in(path, sheaf__output_dir(output), "file"), keys);
    TRY(st, sheaf__convert_copy(k, (sheaf_copy_job){ .source = &v->over.source,
                                                     .entry = v->over.own,
                                                     .count = v->over.count,
                                                     .put = put_box,
                                                     .context = &w }));
    st = sheaf__fill_finish(&w.file, st);
    TRY(st, put_in_place(output, path, k->o->dst, beside));
    sheaf__output_abandon(output);
    return st;
}
