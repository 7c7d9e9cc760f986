/* boxes.c - see boxes.h. */
#include "catalog/boxes.h"

#include <unistd.h>

#include "base/base.h"
#include "base/file.h"

int64_t sheaf__elements(int ndim, const int64_t *shape)
{
    int64_t n = 1;
    for (int i = 0; i < ndim; i++)
        n *= shape[i];
    return n;
}

sheaf_piece sheaf__piece_of(int file, int rank, const sheaf_torch *torch,
                            const sheaf_pickle_tensor *t)
{
    sheaf_piece p =
        sheaf__piece_dense(file, rank, t->dtype, sheaf__torch_offset(torch, t), t->ndim, t->shape);
    for (int i = 0; i < t->ndim; i++)
        p.stride[i] = t->stride[i];
    return p;
}

sheaf_status *sheaf__catalog_put(sheaf_catalog *c, sheaf_kind kind, const char *name,
                                 const sheaf_torch *torch, const sheaf_pickle_tensor *t, int rank)
{
    int file;
    sheaf_logical *l;
    sheaf_status *st = sheaf__catalog_file(&file, c, torch->path, &torch->mark);
    TRY(st, sheaf__catalog_tensor(&l, c, name, t->dtype, t->ndim, t->shape));
    if (st != NULL)
        return st;
    const sheaf_piece p = sheaf__piece_of(file, rank, torch, t);
    l->kind = kind;
    return sheaf__catalog_piece(c, l, &p);
}

bool sheaf__torch_number(double *out, const sheaf_torch *torch, const sheaf_pickle *value)
{
    const sheaf_pickle_tensor *t = sheaf__pickle_tensor(torch->doc, value);
    int fd = -1;
    int64_t size;
    float number;
    if (t == NULL)
        return sheaf__pickle_float(out, value);
    if (t->dtype != SHEAF_F32 || sheaf__elements(t->ndim, t->shape) != 1)
        return false;
    sheaf_status *st = sheaf__file_open_read(&fd, &size, torch->path);
    TRY(st, sheaf__file_read_at(fd, &number, sizeof number, sheaf__torch_offset(torch, t),
                                torch->path));
    if (fd >= 0)
        close(fd);
    const bool read = st == NULL;
    sheaf_status_free(st);
    if (read)
        *out = number;
    return read;
}

bool sheaf__piece_move(sheaf_piece *out, const sheaf_piece *piece, int ndim, const int64_t *from,
                       const int64_t *size, const int64_t *to)
{
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(piece->dtype);
    *out = *piece;
    for (int i = 0; i < ndim; i++) {
        const int64_t begin = piece->begin[i] > from[i] ? piece->begin[i] : from[i];
        const int64_t last = piece->begin[i] + piece->size[i],
                      end = from[i] + size[i] < last ? from[i] + size[i] : last;
        if (begin >= end)
            return false;
        out->offset += (begin - piece->begin[i]) * piece->stride[i] * bytes;
        out->begin[i] = to[i] + begin - from[i];
        out->size[i] = end - begin;
    }
    return true;
}

/* ---- ranges of a flat tensor ---- */

typedef struct range {
    sheaf_piece *out;
    int n, ndim;
    int64_t begin; /* the element that first->offset is about */
    const sheaf_piece *first;
    int64_t under[SHEAF_CATALOG_MAX_DIMS]; /* elements per index of each axis */
    int64_t at[SHEAF_CATALOG_MAX_DIMS];    /* indices of the outer axes */
    const int64_t *shape;
} range;

/* Indices [from, to) of `axis` at the outer indices, whole along the inner axes; `element` is where
 * it begins. */
static void emit(range *r, int axis, int64_t from, int64_t to, int64_t element)
{
    sheaf_piece *p = &r->out[r->n++];
    *p = *r->first;
    p->offset += (element - r->begin) * (int64_t)sheaf_dtype_bytes(p->dtype);
    for (int i = 0; i < r->ndim; i++) {
        p->begin[i] = i < axis ? r->at[i] : i == axis ? from : 0;
        p->size[i] = i < axis ? 1 : i == axis ? to - from : r->shape[i];
        p->stride[i] = r->under[i];
    }
}

/* Elements [begin, end), counted from `base`, under the outer indices: a part of a row, whole rows,
 * a part. */
static void split(range *r, int axis, int64_t base, int64_t begin, int64_t end)
{
    const int64_t under = r->under[axis];
    int64_t first = begin / under;
    const int64_t last = end / under;
    if (begin >= end)
        return;
    if (axis < r->ndim - 1 && begin % under != 0) {
        const int64_t stop = (first + 1) * under < end ? (first + 1) * under : end;
        r->at[axis] = first;
        split(r, axis + 1, base + first * under, begin - first * under, stop - first * under);
        first++;
    }
    if (first < last)
        emit(r, axis, first, last, base + first * under);
    if (axis < r->ndim - 1 && end % under != 0 && last >= first) {
        r->at[axis] = last;
        split(r, axis + 1, base + last * under, 0, end - last * under);
    }
}

int sheaf__range_boxes(sheaf_piece out[SHEAF_RANGE_BOXES], const sheaf_piece *first, int ndim,
                       const int64_t *shape, int64_t begin, int64_t end)
{
    range r = { .out = out, .ndim = ndim, .begin = begin, .first = first, .shape = shape };
    if (begin >= end)
        return 0;
    if (ndim == 0) {
        out[0] = *first;
        return 1;
    }
    for (int64_t i = ndim - 1, n = 1; i >= 0; i--) {
        r.under[i] = n;
        n *= shape[i];
    }
    split(&r, 0, 0, begin, end);
    return r.n;
}

/* ---- what a file says of its bytes ---- */

uint64_t sheaf__torch_digest(const sheaf_torch *torch, const sheaf_pickle_tensor *t)
{
    const sheaf_torch_storage *storage = &torch->storage[t->storage];
    int64_t n = 1;
    for (int i = t->ndim - 1; i >= 0; n *= t->shape[i], i--)
        if (t->shape[i] > 1 && t->stride[i] != n)
            return 0;
    if (!storage->has_crc || t->offset != 0 ||
        n * (int64_t)sheaf_dtype_bytes(t->dtype) != storage->bytes)
        return 0;
    return (uint64_t)storage->crc << 32 | ((uint64_t)storage->bytes & 0xffffffff) | 1;
}

/* ---- what a file was called ---- */

void sheaf__torch_stem(char stem[128], const char *path)
{
    unsigned char head[30 + 127 + 1];
    int fd = -1;
    int64_t size = 0;
    stem[0] = '\0';
    sheaf_status *st = sheaf__file_open_read(&fd, &size, path);
    const size_t n = size < (int64_t)sizeof head ? (size_t)size : sizeof head;
    TRY(st, sheaf__file_read_at(fd, head, n, 0, path));
    if (fd >= 0)
        close(fd);
    const bool read = st == NULL;
    sheaf_status_free(st);
    if (!read || n < 30 || memcmp(head, "PK\3\4", 4) != 0)
        return;
    const size_t length = head[26] | (size_t)head[27]
                                         << 8; /* of the first entry's name, "STEM/data.pkl" */
    size_t i = 0;
    while (i < 127 && i < length && 30 + i < n && head[30 + i] != '/')
        i++;
    if (i >= 127 || i >= length || 30 + i >= n || memchr(head + 30, '\0', i) != NULL)
        return;
    memcpy(stem, head + 30, i);
    stem[i] = '\0';
    if (strcmp(stem, "archive") == 0)
        stem[0] = '\0';
}

/* ---- values ---- */

static bool equal(const sheaf_pickle *a, const sheaf_pickle *b, int64_t *steps)
{
    if (a == NULL || b == NULL || --*steps < 0 || a->kind != b->kind)
        return false;
    switch (a->kind) {
    case SHEAF_PICKLE_NONE: return true;
    case SHEAF_PICKLE_BOOL:
    case SHEAF_PICKLE_INT: return a->as.number == b->as.number;
    case SHEAF_PICKLE_FLOAT: return memcmp(&a->as.real, &b->as.real, sizeof a->as.real) == 0;
    case SHEAF_PICKLE_BIG:
    case SHEAF_PICKLE_STRING:
    case SHEAF_PICKLE_BYTES:
        return a->as.text.size == b->as.text.size &&
               memcmp(a->as.text.at, b->as.text.at, a->as.text.size) == 0;
    case SHEAF_PICKLE_DTYPE: return a->as.dtype == b->as.dtype;
    case SHEAF_PICKLE_GLOBAL:
        return strcmp(a->as.global.module, b->as.global.module) == 0 &&
               strcmp(a->as.global.name, b->as.global.name) == 0;
    case SHEAF_PICKLE_LIST:
    case SHEAF_PICKLE_TUPLE:
    case SHEAF_PICKLE_SET:
    case SHEAF_PICKLE_DICT:
        if (a->as.items.count != b->as.items.count)
            return false;
        for (int64_t i = 0; i < sheaf__pickle_count(a) * (a->kind == SHEAF_PICKLE_DICT ? 2 : 1);
             i++)
            if (!equal(a->as.items.at[i], b->as.items.at[i], steps))
                return false;
        return true;
    default: return false;
    }
}

bool sheaf__values_equal(const sheaf_pickle *a, const sheaf_pickle *b)
{
    int64_t steps = 1000000;
    return equal(a, b, &steps);
}
