/* read.c - boxes out of pieces, and the catalog as a source.
 *
 * A view's row is one index of all axes but the last. Bytes that lie together in the file and
 * go together into dst are read together, so that whole rows cost one call and not many. */
#include "base/base.h"
#include "base/file.h"
#include "catalog/coded.h"
#include "catalog/private.h"
#include "formats/safetensors.h"
#include "ops/math/round.h"
#include "ops/quant/ggml.h"

enum { NAMED = 4 }; /* of more tensors with one defect these are named beside the first */

/* ---- reading a piece ---- */

typedef struct reading {
    const sheaf_catalog_file *file;
    int fd;
    int64_t bytes; /* of an element */
    char *dst;
    int64_t from, to, size; /* the run that is open: bytes in the file, in dst, and how many */
    int64_t elements;
    /* Codes of ggml's blocks are read, of this box, instead of their values; or NULL. */
    const sheaf__quant_parts *parts;
    sheaf__quant_box box;
} reading;

static sheaf_status *flush(reading *r)
{
    sheaf_status *st = NULL;
    if (r->size > 0)
        st = sheaf__file_read_at(r->fd, r->dst + r->to, (size_t)r->size, r->from, r->file->path);
    r->size = 0;
    return st;
}

/* `count` neighbours in the file that are neighbours in dst. */
static sheaf_status *run(reading *r, int64_t from, int64_t to, int64_t count)
{
    r->elements += count;
    if (r->size > 0 && r->from + r->size == from && r->to + r->size == to) {
        r->size += count * r->bytes;
        return NULL;
    }
    sheaf_status *st = flush(r);
    r->from = from;
    r->to = to;
    r->size = count * r->bytes;
    return st;
}

/* `count` elements that are neighbours in the file and lie `apart` bytes from each other in dst. */
static sheaf_status *scatter(reading *r, int64_t from, int64_t to, int64_t apart, int64_t count)
{
    char buffer[4096];
    sheaf_status *st = NULL;
    for (int64_t done = 0; st == NULL && done < count;) {
        const int64_t most = (int64_t)sizeof buffer / r->bytes,
                      n = count - done < most ? count - done : most;
        st = sheaf__file_read_at(r->fd, buffer, (size_t)(n * r->bytes), from + done * r->bytes,
                                 r->file->path);
        for (int64_t i = 0; st == NULL && i < n; i++)
            memcpy(r->dst + to + (done + i) * apart, buffer + i * r->bytes, (size_t)r->bytes);
        done += n;
    }
    r->elements += count;
    return st;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

enum { VALUES = 4096 }; /* whole blocks of every type */

/* The parts of elements [skip, skip + n) of blocks, `have` elements in all: from element `to` of
 * the box on, which are in one of its rows. */
static void take_parts(const reading *r, const char *blocks, sheaf__gguf_type type, int64_t have,
                       int64_t skip, int64_t n, int64_t to)
{
    const sheaf__quant *q = sheaf__ggml_form(type);
    const int64_t floats = sheaf__quant_floats(q), row = to / r->box.cols, col = to % r->box.cols,
                  first = (r->box.col0 % q->block + col) / q->block, from = skip / q->block,
                  end = (skip + n - 1) / q->block + 1;
    uint8_t codes[VALUES];
    float scales[VALUES / 16 * 2];
    sheaf__ggml_parts(codes, scales, blocks, type, have);
    memcpy(r->parts->codes + to, codes + skip, (size_t)n);
    memcpy(r->parts->scales + (row * sheaf__quant_groups(q, &r->box) + first) * floats,
           scales + from * floats, (size_t)((end - from) * floats) * sizeof *scales);
}

/* `count` elements from element `first` of a piece's numbers on, which are stored otherwise than
 * they are read. */
static sheaf_status *convert(reading *r, const sheaf_piece *p, int64_t first, int64_t to,
                             int64_t count)
{
    const int64_t each = sheaf__gguf_type_block(p->stored),
                  bytes = sheaf__gguf_type_bytes(p->stored);
    char blocks[VALUES * 4];
    float values[VALUES];
    sheaf_status *st = NULL;
    r->elements += count;
    while (st == NULL && count > 0) {
        const int64_t skip = first % each, n = least(count, VALUES - skip),
                      have = (skip + n + each - 1) / each;
        st = sheaf__file_read_at(r->fd, blocks, (size_t)(have * bytes),
                                 p->offset + first / each * bytes, r->file->path);
        if (st != NULL)
            break;
        if (r->parts != NULL)
            take_parts(r, blocks, p->stored, have * each, skip, n, to);
        else
            sheaf__ggml_values(values, blocks, p->stored, have * each);
        for (int64_t i = 0; r->parts == NULL && i < n; i++)
            sheaf__store(r->dst + to, i, values[skip + i] - (p->plus_one ? 1.0f : 0.0f), p->dtype);
        first += n;
        to += n * r->bytes;
        count -= n;
    }
    return st;
}

/* Two axes whose rows are neighbours in the file: a transposed matrix. */
static sheaf_status *read_transposed(reading *r, const sheaf_piece *p, int64_t row0, int64_t rows,
                                     int64_t col0, int64_t cols)
{
    const int64_t r0 = most(row0, p->begin[0]), r1 = least(row0 + rows, p->begin[0] + p->size[0]);
    const int64_t c0 = most(col0, p->begin[1]), c1 = least(col0 + cols, p->begin[1] + p->size[1]);
    sheaf_status *st = NULL;
    for (int64_t c = c0; st == NULL && r0 < r1 && c < c1; c++)
        st = scatter(r,
                     p->offset + ((r0 - p->begin[0]) + (c - p->begin[1]) * p->stride[1]) * r->bytes,
                     ((r0 - row0) * cols + c - col0) * r->bytes, cols * r->bytes, r1 - r0);
    return st;
}

/* The columns [c0, c1) of one row of the view; `at` is the element of column 0 of the piece. */
static sheaf_status *read_row(reading *r, const sheaf_piece *p, int last, int64_t at, int64_t c0,
                              int64_t c1, int64_t to)
{
    const bool dense = p->stride[last] == 1;
    const int64_t n = dense ? c1 - c0 : 1;
    sheaf_status *st = NULL;
    for (int64_t c = c0; st == NULL && c < c1; c += n, to += n * r->bytes) {
        const int64_t element = at + (c - p->begin[last]) * p->stride[last];
        st = p->converted ? convert(r, p, element, to, n)
                          : run(r, p->offset + element * r->bytes, to, n);
    }
    return st;
}

static sheaf_status *read_rows(reading *r, const sheaf_logical *t, const sheaf_piece *p,
                               int64_t row0, int64_t rows, int64_t col0, int64_t cols)
{
    const int last = t->entry.ndim - 1;
    const int64_t c0 = most(col0, p->begin[last]),
                  c1 = least(col0 + cols, p->begin[last] + p->size[last]);
    int64_t under[SHEAF_CATALOG_MAX_DIMS] = { 0 },
            index[SHEAF_CATALOG_MAX_DIMS] = { 0 }; /* rows of the view per index */
    int64_t n = 1;
    for (int i = last - 1; i >= 0; i--) {
        under[i] = n;
        n *= t->entry.shape[i];
    }
    if (c0 >= c1)
        return NULL;
    const int64_t first = last == 0 ? 0 : most(row0 / under[0], p->begin[0]);
    const int64_t end =
        last == 0 ? 1 : least((row0 + rows - 1) / under[0] + 1, p->begin[0] + p->size[0]);
    sheaf_status *st = NULL;
    for (int64_t outer = first; st == NULL && outer < end; outer++) {
        for (int i = 0; i < last; i++)
            index[i] = i == 0 ? outer : p->begin[i];
        for (bool more = true; st == NULL && more;) {
            int64_t row = 0, at = 0;
            for (int i = 0; i < last; i++) {
                row += index[i] * under[i];
                at += (index[i] - p->begin[i]) * p->stride[i];
            }
            if (row >= row0 && row < row0 + rows)
                st = read_row(r, p, last, at, c0, c1, ((row - row0) * cols + c0 - col0) * r->bytes);
            more = false;
            for (int i = last - 1; i > 0 && !more; i--) { /* the next row under this outer index */
                more = ++index[i] < p->begin[i] + p->size[i];
                if (!more)
                    index[i] = p->begin[i];
            }
        }
    }
    return st;
}

/* Of what `r` says, where it goes. */
static sheaf_status *read_piece(reading *r, const sheaf_catalog *c, const sheaf_logical *t,
                                const sheaf_piece *p, int64_t row0, int64_t rows, int64_t col0,
                                int64_t cols)
{
    r->file = &c->file[p->file];
    sheaf_status *st = sheaf__catalog_open(&r->fd, r->file);
    if (st != NULL)
        return st;
    if (t->entry.ndim == 0)
        st = p->converted ? convert(r, p, 0, 0, 1) : run(r, p->offset, 0, 1);
    else if (t->entry.ndim == 1)
        st = read_rows(r, t, p, 0, 1, row0, rows); /* one row of many columns */
    else if (t->entry.ndim == 2 && p->stride[0] == 1 && p->stride[1] != 1 && !p->converted)
        st = read_transposed(r, p, row0, rows, col0, cols);
    else
        st = read_rows(r, t, p, row0, rows, col0, cols);
    TRY(st, flush(r));
    return sheaf__catalog_done(r->fd, r->file, st);
}

sheaf_status *sheaf__piece_read(int64_t *elements, const sheaf_catalog *c, const sheaf_logical *t,
                                const sheaf_piece *p, int64_t row0, int64_t rows, int64_t col0,
                                int64_t cols, void *dst)
{
    reading r = { .bytes = (int64_t)sheaf_dtype_bytes(p->dtype), .dst = dst };
    sheaf_status *st = read_piece(&r, c, t, p, row0, rows, col0, cols);
    *elements = r.elements;
    return st;
}

sheaf_status *sheaf__catalog_read(const sheaf_catalog *c, const sheaf_logical *t, int64_t row0,
                                  int64_t rows, int64_t col0, int64_t cols, void *dst)
{
    int64_t got = 0;
    if (t->coded != NULL)
        return sheaf__coded_values(c, t, row0, rows, col0, cols, dst);
    sheaf_status *bad = sheaf__safetensors_check_box(t->entry.name, t->entry.dtype, t->entry.ndim,
                                                     t->entry.shape, row0, rows, col0, cols);
    if (bad != NULL || rows == 0 || cols == 0)
        return bad;
    for (int64_t i = 0; i < t->npieces; i++) {
        const sheaf_piece *p = &t->piece[i];
        int64_t n = 0;
        sheaf_status *st = NULL;
        if (p->dtype != t->entry.dtype || (t->replicated && p->rank != t->piece[0].rank))
            break;
        st = sheaf__piece_read(&n, c, t, p, row0, rows, col0, cols, dst);
        if (st != NULL)
            return sheaf_in(st, "tensor '%s'", t->entry.name);
        got += n;
    }
    if (got == rows * cols)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s', rows %" PRId64 " to %" PRId64,
                                  t->entry.name, row0, row0 + rows - 1);
    sheaf_expected(st, "each element once");
    return sheaf_found(st, "%" PRId64 " elements in the files for %" PRId64, got, rows * cols);
}

/* ---- comparing ---- */

enum { COMPARE_BYTES = 1 << 20 };

/* A box of a tensor, or of the copy of it that begins with piece `first`; *elements is how many it
 * has. */
typedef struct reader {
    const sheaf_catalog *c;
    const sheaf_logical *t;
    int64_t first; /* -1: the tensor */
    int64_t row0, col0;
} reader;

static sheaf_status *read_box(int64_t *elements, const reader *r, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const sheaf_logical *t = r->t;
    sheaf_status *st = NULL;
    *elements = r->first < 0 ? rows * cols : 0;
    if (r->first < 0)
        return sheaf__catalog_read(r->c, t, r->row0 + row0, rows, r->col0 + col0, cols, dst);
    for (int64_t i = r->first;
         st == NULL && i < t->npieces && t->piece[i].rank == t->piece[r->first].rank; i++) {
        int64_t n = 0;
        st = sheaf__piece_read(&n, r->c, t, &t->piece[i], row0, rows, col0, cols, dst);
        *elements += n;
    }
    return st;
}

/* Have both the same bytes, the second in all of its view [rows, cols]? */
static sheaf_status *same_bytes(bool *same, const reader *a, const reader *b)
{
    int64_t rows, cols, n = 0;
    sheaf__catalog_view(&rows, &cols, b->t);
    *same = true;
    if (rows == 0 || cols == 0)
        return NULL;
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(b->t->entry.dtype);
    const int64_t wide = least(cols, COMPARE_BYTES / bytes),
                  tall = most(1, COMPARE_BYTES / bytes / wide);
    char *one = malloc(COMPARE_BYTES), *two = malloc(COMPARE_BYTES);
    sheaf_status *st = one == NULL || two == NULL ? sheaf__no_memory(a->c->root) : NULL;
    for (int64_t r = 0; st == NULL && *same && r < rows; r += tall)
        for (int64_t k = 0; st == NULL && *same && k < cols; k += wide) {
            const int64_t h = least(tall, rows - r), w = least(wide, cols - k);
            st = read_box(&n, a, r, h, k, w, one);
            TRY(st, read_box(&n, b, r, h, k, w, two));
            *same = st == NULL && n == h * w && memcmp(one, two, (size_t)(n * bytes)) == 0;
        }
    free(one);
    free(two);
    return st;
}

sheaf_status *sheaf__catalog_same(bool *same, const sheaf_catalog *c, const sheaf_logical *whole,
                                  int64_t row0, int64_t col0, const sheaf_catalog *other,
                                  const sheaf_logical *part)
{
    *same = whole->entry.dtype == part->entry.dtype && sheaf_dtype_bytes(part->entry.dtype) > 0;
    return *same ? same_bytes(same, &(reader){ c, whole, -1, row0, col0 },
                              &(reader){ other, part, -1, 0, 0 })
                 : NULL;
}

static sheaf_status *compare_copies(sheaf_catalog *c, sheaf_logical *t)
{
    for (int64_t i = 1; i < t->npieces; i++) {
        bool same = t->piece[i].dtype == t->piece[0].dtype;
        if (t->piece[i].rank == t->piece[i - 1].rank)
            continue; /* of the same copy */
        sheaf_status *st =
            same ? same_bytes(&same, &(reader){ c, t, 0, 0, 0 }, &(reader){ c, t, i, 0, 0 }) : NULL;
        if (st != NULL)
            return sheaf__catalog_defect(c, c->file[t->piece[i].file].path, st);
        if (!same)
            st = sheaf__warning(c, "replica", c->file[t->piece[i].file].path, t->entry.name,
                                "the same values in every part", "",
                                "part %d differs from part %d; the values of part %d are used",
                                t->piece[i].rank, t->piece[0].rank, t->piece[0].rank);
        if (st != NULL)
            return st;
    }
    return NULL;
}

sheaf_status *sheaf__catalog_compare(sheaf_catalog *c)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < c->count; i++)
        if (c->tensor[i].replicated && c->tensor[i].npieces > 1)
            st = compare_copies(c, &c->tensor[i]);
    return st;
}

/* ---- as a source ---- */

typedef struct catalog_source {
    sheaf_source source; /* first */
    sheaf_catalog *catalog;
    bool all;
    int64_t count, *index; /* tensors that it shows, by name */
} catalog_source;

static bool shown(const catalog_source *s, const sheaf_logical *t)
{
    return s->all || t->kind == SHEAF_WEIGHT || t->kind == SHEAF_BUFFER;
}

static const sheaf_source_entry *source_find(sheaf_source *self, const char *name)
{
    const catalog_source *s = (catalog_source *)self;
    const sheaf_logical *t = sheaf__catalog_find(s->catalog, name);
    return t != NULL && shown(s, t) ? &t->entry : NULL;
}

static int64_t source_count(sheaf_source *self)
{
    return ((catalog_source *)self)->count;
}

static const sheaf_source_entry *source_entry(sheaf_source *self, int64_t i)
{
    const catalog_source *s = (catalog_source *)self;
    return &s->catalog->tensor[s->index[i]].entry;
}

static sheaf_status *not_here(const char *name)
{
    return sheaf_found(sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s'", name), "no tensor of this name");
}

static sheaf_status *source_read(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                 int64_t col0, int64_t cols, void *dst)
{
    const catalog_source *s = (catalog_source *)self;
    const sheaf_logical *t = sheaf__catalog_find(s->catalog, name);
    if (t == NULL)
        return not_here(name);
    return sheaf__catalog_read(s->catalog, t, row0, rows, col0, cols, dst);
}

/* ---- codes ---- */

/* Of a matrix all pieces of which are the same blocks of ggml's; else NULL. */
static const sheaf__quant *form_of_blocks(const sheaf_logical *t)
{
    const sheaf__quant *form = NULL;
    for (int64_t i = 0; i < t->npieces && t->entry.ndim == 2; i++) {
        const sheaf_piece *p = &t->piece[i];
        form = p->converted && !p->plus_one && p->stride[1] == 1 &&
                       p->size[1] == t->entry.shape[1] && p->stored == t->piece[0].stored
                   ? sheaf__ggml_form(p->stored)
                   : NULL;
        if (form == NULL)
            return NULL;
    }
    return form;
}

static const sheaf_logical *held_of(sheaf_source *self, const char *name, const sheaf__quant **form)
{
    const catalog_source *s = (catalog_source *)self;
    const sheaf_logical *t = sheaf__catalog_find(s->catalog, name);
    *form = t == NULL || !shown(s, t) ? NULL
            : t->coded != NULL        ? &t->coded->form
                                      : form_of_blocks(t);
    return *form == NULL ? NULL : t;
}

static const sheaf__quant *source_form(sheaf_source *self, const char *name)
{
    const sheaf__quant *form;
    held_of(self, name, &form);
    return form;
}

static sheaf_status *source_codes(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                  int64_t col0, int64_t cols, const sheaf__quant_parts *to)
{
    const sheaf__quant *form;
    const sheaf_logical *t = held_of(self, name, &form);
    const sheaf_catalog *c = ((catalog_source *)self)->catalog;
    if (t == NULL)
        return not_here(name);
    if (!form->blocks)
        return sheaf__coded_read(c, t, row0, rows, col0, cols, to);
    reading r = { .bytes = 1, .parts = to, .box = { t->entry.shape[1], row0, rows, col0, cols } };
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < t->npieces; i++)
        st = read_piece(&r, c, t, &t->piece[i], row0, rows, col0, cols);
    return sheaf_in(st, "tensor '%s'", t->entry.name);
}

static sheaf_status *source_whole(sheaf_source *self, const char *name, sheaf__quant_whole *to)
{
    const sheaf__quant *form;
    const sheaf_logical *t = held_of(self, name, &form);
    return t == NULL      ? not_here(name)
           : form->blocks ? NULL
                          : sheaf__coded_whole(((catalog_source *)self)->catalog, t, to);
}

static const sheaf__quantised_source with_codes = { source_form, source_codes, source_whole };

static void source_close(sheaf_source *self)
{
    catalog_source *s = (catalog_source *)self;
    sheaf__catalog_free(s->catalog);
    free(s->index);
    free(s);
}

static sheaf_code code_of(const sheaf_finding *f)
{
    return strcmp(f->code, "unsafe") == 0        ? SHEAF_E_UNSAFE
           : strcmp(f->code, "damaged") == 0     ? SHEAF_E_FORMAT
           : strcmp(f->code, "unsupported") == 0 ? SHEAF_E_UNSUPPORTED
                                                 : SHEAF_E_LAYOUT;
}

/* The further tensors of which the same is found: "; the same of a, b and 3 more". */
static void add_others(sheaf_text *text, const sheaf_catalog *c, int64_t first, int64_t defects)
{
    const sheaf_finding *is = &c->finding[first];
    int64_t others = 0;
    for (int64_t i = first + 1; *is->tensor != '\0' && i < c->nfindings; i++) {
        const sheaf_finding *f = &c->finding[i];
        if (f->severity != SHEAF_DEFECT || *f->tensor == '\0' || strcmp(f->code, is->code) != 0)
            continue;
        if (others++ < NAMED)
            sheaf__text_add(text, "%s%.200s", others > 1 ? ", " : "; the same of ", f->tensor);
    }
    if (others > NAMED)
        sheaf__text_add(text, " and %" PRId64 " more", others - NAMED);
    if (others + 1 < defects)
        sheaf__text_add(text, " (and more: see sheaf verify)");
}

sheaf_status *sheaf__catalog_refusal(const sheaf_catalog *c)
{
    const int64_t n = sheaf__catalog_defects(c);
    for (int64_t i = 0; i < c->nfindings; i++) {
        const sheaf_finding *f = &c->finding[i];
        if (f->severity != SHEAF_DEFECT)
            continue;
        sheaf_status *st =
            sheaf_fail(code_of(f), "%s%s%s%s: %s", *f->path != '\0' ? f->path : c->root,
                       *f->tensor != '\0' ? ": tensor '" : "", f->tensor,
                       *f->tensor != '\0' ? "'" : "", f->code);
        if (*f->expected != '\0')
            sheaf_expected(st, "%s", f->expected);
        sheaf_text others = { 0 };
        add_others(&others, c, i, n);
        sheaf_found(st, "%s%s", f->found, others.size > 0 && !others.failed ? others.at : "");
        sheaf__text_release(&others);
        if (*f->cure != '\0')
            return sheaf_try_this(st, "%s", f->cure);
        sheaf_text root = { 0 };
        sheaf__text_word(&root, c->root);
        sheaf_try_this(st, "sheaf verify %s", root.failed ? "PATH" : root.at);
        sheaf__text_release(&root);
        return st;
    }
    return NULL;
}

sheaf_status *sheaf__catalog_source(sheaf_source **out, sheaf_catalog *c, bool all)
{
    sheaf_status *st = sheaf__catalog_sort(c);
    TRY(st, sheaf__catalog_refusal(c));
    catalog_source *s = st == NULL ? calloc(1, sizeof *s) : NULL;
    int64_t *index = s != NULL ? calloc((size_t)c->count + 1, sizeof *index) : NULL;
    TRY(st, index == NULL ? sheaf__no_memory(c->root) : NULL);
    if (st != NULL) {
        free(s);
        sheaf__catalog_free(c);
        return st;
    }
    *s = (catalog_source){ { source_find, source_count, source_entry, source_read, source_close,
                             &with_codes },
                           c,
                           all,
                           0,
                           index };
    for (int64_t i = 0; i < c->count; i++)
        if (shown(s, &c->tensor[i]))
            index[s->count++] = i;
    *out = &s->source;
    return NULL;
}
