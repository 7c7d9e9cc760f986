/* verify_zeros.c - see verify.h.
 *
 * Some tensors of a sound model may be zero (added blocks, biases). Not so: all of them, norms,
 * embedding tables, neighbours in a file, a whole file or its end. */
#include "base/base.h"
#include "checkpoint/tools/verify.h"

#include "catalog/boxes.h"
#include "catalog/coded.h"
#include "catalog/private.h"
#include "dialects/common/vocabulary.h"

void sheaf__find_nonzero(_Atomic unsigned char *seen, const void *data, size_t bytes)
{
    const char *at = data;
    if (bytes == 0 || atomic_load(seen) == SHEAF__HAS_NONZERO)
        return;
    if (at[0] != 0 || memcmp(at, at + 1, bytes - 1) != 0)
        atomic_store(seen, SHEAF__HAS_NONZERO);
    else {
        unsigned char not_read = SHEAF__NOT_READ;
        atomic_compare_exchange_strong(seen, &not_read, SHEAF__ALL_ZERO);
    }
}

/* A piece of a weight that was read. */
typedef struct place {
    const sheaf_logical *tensor;
    int file;
    int64_t offset;
    bool zero;
} place;

static int by_place(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return x->file != y->file ? x->file - y->file
                              : (x->offset > y->offset) - (x->offset < y->offset);
}

static sheaf_status *tell(sheaf_catalog *c, sheaf_severity severity, const char *path,
                          const char *tensor, const char *found)
{
    return sheaf__finding(c, severity, "zeros", path, tensor, "numbers other than zero",
                          "download or copy the file again, unless they are meant", "%s", found);
}

/* Norms of these models add 1 to their weights, which start at 0. */
static bool adds_one(const sheaf_catalog *c)
{
    static const char *const words[] = { "gemma", "qwen3_next", "qwen3_5", "nemotron" };
    for (size_t i = 0; c->config != NULL && i < sizeof words / sizeof *words; i++)
        if (strstr(c->config, words[i]) != NULL)
            return true;
    return false;
}

static bool is_norm(const sheaf_source_entry *t)
{
    return t->ndim < 2 && sheaf__ends_with(t->name, ".weight") &&
           (strcasestr(t->name, "norm") != NULL || strstr(t->name, "ln_") != NULL);
}

/* Position biases are tables too; a table of one row is a vector. */
static bool is_matrix(const sheaf_logical *t)
{
    return t->entry.ndim > 1 && strstr(t->entry.name, "bias") == NULL &&
           sheaf__elements(t->entry.ndim, t->entry.shape) > t->entry.shape[t->entry.ndim - 1];
}

/* Norms and tables, one by one. */
static sheaf_status *tell_single(sheaf_catalog *c, const place *p)
{
    const sheaf_logical *t = p->tensor;
    if (is_norm(&t->entry) && !adds_one(c))
        return tell(c, SHEAF_WARNING, c->file[p->file].path, t->entry.name, "a norm of zeros");
    if (is_matrix(t) && (sheaf__is_vocabulary(t->entry.name) || strstr(t->entry.name, "embed")))
        return tell(c, SHEAF_WARNING, c->file[p->file].path, t->entry.name, "a table of zeros");
    return NULL;
}

/* How many neighbours in one file are zero, from `i` on. */
static int64_t run_of(const place *p, int64_t n, int64_t i)
{
    int64_t k = i;
    while (k < n && p[k].zero && p[k].file == p[i].file)
        k++;
    return k - i;
}

static sheaf_status *tell_runs(sheaf_catalog *c, const place *p, int64_t n)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0, run; st == NULL && i<n; i += run> 0 ? run : 1) {
        char found[400];
        bool matrix = false;
        run = run_of(p, n, i);
        for (int64_t k = i; k < i + run; k++)
            matrix = matrix || is_matrix(p[k].tensor);
        const bool ends = i + run == n || p[i + run].file != p[i].file,
                   whole = ends && (i == 0 || p[i - 1].file != p[i].file) && n > 2 * c->nfiles;
        if (!matrix || run < 1 + !whole) { /* biases lie side by side, as q's, k's and v's do */
            for (int64_t k = i; st == NULL && k < i + run; k++)
                st = tell_single(c, &p[k]);
            continue;
        }
        snprintf(found, sizeof found,
                 "%" PRId64 " tensors side by side that are zero, %s, the last is '%.200s'", run,
                 whole  ? "all of the file"
                 : ends ? "up to the end of the file"
                        : "in the middle of the file",
                 p[i + run - 1].tensor->entry.name);
        st = tell(c, SHEAF_WARNING, c->file[p[i].file].path, p[i].tensor->entry.name, found);
    }
    return st;
}

/* Is the second half of a file's last tensor zero? Padding is shorter. */
static sheaf_status *tell_end(sheaf_catalog *c, const place *p)
{
    enum { MOST_ROW = 64 << 20 };
    const sheaf_logical *t = p->tensor;
    int64_t rows, cols, got, row;
    sheaf__catalog_view(&rows, &cols, t);
    const int64_t bytes = cols * (int64_t)sheaf_dtype_bytes(t->entry.dtype);
    if (p->zero || !is_matrix(t) || t->npieces != 1 || rows < 4 || bytes > MOST_ROW)
        return NULL;
    char *data = calloc(1, (size_t)bytes + 1);
    sheaf_status *st = data == NULL ? sheaf__no_memory(c->root) : NULL;
    for (row = rows - 1; st == NULL && row >= rows / 2; row--) {
        _Atomic unsigned char is = SHEAF__NOT_READ;
        st = sheaf__piece_read(&got, c, t, &t->piece[0], row, 1, 0, cols, data);
        sheaf__find_nonzero(&is, data, (size_t)bytes);
        if (is == SHEAF__HAS_NONZERO)
            break;
    }
    free(data);
    return st != NULL || row >= rows / 2
               ? st
               : tell(c, SHEAF_WARNING, c->file[p->file].path, t->entry.name,
                      "the last tensor of the file, zero in its second half");
}

sheaf_status *sheaf__verify_zeros(sheaf_catalog *c, const _Atomic unsigned char *seen,
                                  const int64_t *first)
{
    int64_t n = 0, zero = 0, numbers = 0;
    place *p = calloc((size_t)first[c->count] + 1, sizeof *p);
    if (p == NULL)
        return sheaf__no_memory(c->root);
    for (int64_t i = 0; i < c->count; i++) {
        const sheaf_logical *t = &c->tensor[i];
        bool any = false, all = true;
        for (int64_t k = 0; k < t->npieces; k++) {
            const unsigned char is = atomic_load(&seen[first[i] + k]);
            any = any || is == SHEAF__HAS_NONZERO;
            all = all && is == SHEAF__ALL_ZERO;
            if (is != SHEAF__NOT_READ && t->kind == SHEAF_WEIGHT)
                p[n++] = (place){ t, t->piece[k].file, t->piece[k].offset, is == SHEAF__ALL_ZERO };
        }
        for (int k = 0; t->coded != NULL && k <= SHEAF__SCALES_PART; k++) {
            const unsigned char is = atomic_load(&seen[first[i] + k]);
            const sheaf_logical *part = &t->coded->part[k];
            any = any || is == SHEAF__HAS_NONZERO;
            if (is != SHEAF__NOT_READ)
                p[n++] = (place){ part, part->piece[0].file, part->piece[0].offset,
                                  is == SHEAF__ALL_ZERO };
        }
        if (t->kind == SHEAF_WEIGHT || t->kind == SHEAF_LORA) {
            numbers += any;
            zero += t->npieces > 0 && all;
        }
    }
    char found[64];
    snprintf(found, sizeof found, "zeros, in all of %" PRId64 " tensors", zero);
    qsort(p, (size_t)n, sizeof *p, by_place);
    sheaf_status *st =
        numbers == 0 && zero > 1 ? tell(c, SHEAF_DEFECT, c->root, "", found) : tell_runs(c, p, n);
    for (int64_t i = 0; st == NULL && numbers > 0 && i < n; i++)
        if (i + 1 == n || p[i + 1].file != p[i].file)
            st = tell_end(c, &p[i]);
    free(p);
    return st;
}
