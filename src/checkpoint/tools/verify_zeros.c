/* verify_zeros.c - see verify_zeros.h.
 *
 * Some matrices of a sound model may be zero (those of blocks that were added, biases often are).
 * All of them, norms, tables of embeddings, and neighbours in a file are not. */
#include "checkpoint/tools/verify_zeros.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/no_memory.h"
#include "base/text.h"
#include "dialects/common/vocabulary.h"

void sheaf__look_for_numbers(_Atomic unsigned char *seen, const void *data, size_t bytes)
{
    const char *at = data;
    if (bytes == 0 || atomic_load(seen) == SHEAF__HAS_NUMBERS)
        return;
    if (at[0] != 0 || memcmp(at, at + 1, bytes - 1) != 0)
        atomic_store(seen, SHEAF__HAS_NUMBERS);
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
    return sheaf__catalog_note(c, severity, "zeros", path, tensor, "numbers other than zero", found,
                               "download or copy the file again, unless they are meant");
}

static bool is_norm(const char *name)
{
    return sheaf__ends_with(name, ".weight") &&
           (strstr(name, "norm") != NULL || strstr(name, "ln_") != NULL);
}

/* Norms and tables by themselves. */
static sheaf_status *tell_single(sheaf_catalog *c, const place *p)
{
    const sheaf_logical *t = p->tensor;
    if (is_norm(t->told.name))
        return tell(c, SHEAF_WARNING, c->file[p->file].path, t->told.name, "a norm of zeros");
    if (t->told.ndim == 2 && (sheaf__is_vocabulary(t->told.name) || strstr(t->told.name, "embed")))
        return tell(c, SHEAF_WARNING, c->file[p->file].path, t->told.name, "a table of zeros");
    return NULL;
}

/* From `i` on, as many neighbours in one file as are zero. */
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
            matrix = matrix || p[k].tensor->told.ndim > 1;
        if (run < 2 || !matrix) { /* biases lie side by side, as q's, k's and v's do */
            if (run > 0)
                st = tell_single(c, &p[i]);
            continue;
        }
        snprintf(found, sizeof found,
                 "%" PRId64 " tensors side by side that are zero, %s, the last is '%.200s'", run,
                 i + run == n || p[i + run].file != p[i].file ? "up to the end of the file"
                                                              : "in the middle of the file",
                 p[i + run - 1].tensor->told.name);
        st = tell(c, SHEAF_WARNING, c->file[p[i].file].path, p[i].tensor->told.name, found);
    }
    return st;
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
            any = any || is == SHEAF__HAS_NUMBERS;
            all = all && is == SHEAF__ALL_ZERO;
            if (is != SHEAF__NOT_READ && t->kind == SHEAF_WEIGHT)
                p[n++] = (place){ t, t->piece[k].file, t->piece[k].offset, is == SHEAF__ALL_ZERO };
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
    free(p);
    return st;
}
