/* tied_head.c - see tied_head.h. */
#include "dialects/common/tied_head.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "catalog/private.h"
#include "ops/kernels.h"
#include "base/status.h"

enum { CHUNK = 1 << 18 }; /* elements at once */

const char sheaf__head_name[] = "lm_head.weight";

/* ---- numbers ---- */

typedef struct numbers {
    const sheaf__kernels *kernels;
    sheaf_dtype table, head;
    bool same, as_bf16, as_f16; /* so far */
    void *a, *b;                /* the table's and the head's */
    float *wide, *other;
    uint16_t *rounded;
} numbers;

static const float *widened(const numbers *x, float *wide, const void *data, sheaf_dtype dtype,
                            int64_t n)
{
    if (dtype == SHEAF_F32)
        return data;
    x->kernels->widen(wide, data, dtype, n);
    return wide;
}

static bool rounds(const numbers *x, sheaf_dtype to, int64_t n)
{
    x->kernels->round(x->rounded, to, x->a, n);
    if (x->head == to)
        return memcmp(x->rounded, x->b, (size_t)n * 2) == 0;
    return x->head == SHEAF_F32 &&
           memcmp(widened(x, x->wide, x->rounded, to, n), x->b, (size_t)n * sizeof(float)) == 0;
}

static void compare(numbers *x, int64_t n)
{
    if (x->table == x->head)
        x->same = x->same && memcmp(x->a, x->b, (size_t)n * sheaf_dtype_bytes(x->table)) == 0;
    else
        x->same = x->same &&
                  memcmp(widened(x, x->wide, x->a, x->table, n),
                         widened(x, x->other, x->b, x->head, n), (size_t)n * sizeof(float)) == 0;
    x->as_bf16 = x->as_bf16 && x->table == SHEAF_F32 && rounds(x, SHEAF_BF16, n);
    x->as_f16 = x->as_f16 && x->table == SHEAF_F32 && rounds(x, SHEAF_F16, n);
}

static bool is_float(sheaf_dtype d)
{
    return d == SHEAF_F32 || d == SHEAF_BF16 || d == SHEAF_F16;
}

/* ---- the two tables ---- */

typedef sheaf_status *(*read_rows)(const void *from, const char *name, int64_t row, int64_t rows,
                                   int64_t cols, void *dst);

static sheaf_status *differs(const char *table, const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s'", sheaf__head_name);
    sheaf_expected(st, "the values of '%s', as tie_word_embeddings is true", table);
    sheaf_found(st, "%s", found);
    return sheaf_try_this(
        st,
        "if the stored head is meant, set tie_word_embeddings to false in config.json; if not, "
        "remove '%s' from the file",
        sheaf__head_name);
}

static sheaf_status *compare_all(numbers *x, const void *from, read_rows read,
                                 const sheaf_source_entry *table)
{
    const int64_t width = table->shape[1], most = width < CHUNK ? CHUNK / width : 1;
    sheaf_status *st = NULL;
    for (int64_t row = 0; st == NULL && row < table->shape[0]; row += most) {
        const int64_t n = table->shape[0] - row < most ? table->shape[0] - row : most;
        st = read(from, table->name, row, n, width, x->a);
        TRY(st, read(from, sheaf__head_name, row, n, width, x->b));
        if (st == NULL)
            compare(x, n * width);
        if (st == NULL && !x->same && !x->as_bf16 && !x->as_f16) {
            char found[64];
            snprintf(found, sizeof found, "other values from row %" PRId64 " on", row);
            return differs(table->name, found);
        }
    }
    return st;
}

static sheaf_status *check(bool *copy, const void *from, read_rows read,
                           const sheaf_source_entry *table, const sheaf_source_entry *head)
{
    *copy = false;
    if (head->ndim != 2 || table->ndim != 2 || head->shape[1] != table->shape[1] ||
        head->shape[0] != table->shape[0] ||
        (head->dtype != table->dtype && (!is_float(head->dtype) || !is_float(table->dtype))))
        return differs(table->name, "another shape or dtype");
    const int64_t width = table->shape[1], most = width < CHUNK ? CHUNK : width;
    numbers x = { sheaf__kernels_for(NULL),
                  table->dtype,
                  head->dtype,
                  true,
                  true,
                  true,
                  malloc((size_t)most * sheaf_dtype_bytes(table->dtype)),
                  malloc((size_t)most * sheaf_dtype_bytes(head->dtype)),
                  malloc((size_t)most * sizeof(float)),
                  malloc((size_t)most * sizeof(float)),
                  malloc((size_t)most * sizeof(uint16_t)) };
    sheaf_status *st =
        x.a == NULL || x.b == NULL || x.wide == NULL || x.other == NULL || x.rounded == NULL
            ? sheaf__no_memory("out of memory to compare the tables")
        : width > 0 ? compare_all(&x, from, read, table)
                    : NULL;
    *copy = st == NULL && !(x.same && x.table == x.head);
    free(x.a);
    free(x.b);
    free(x.wide);
    free(x.other);
    free(x.rounded);
    return st;
}

static sheaf_status *of_source(const void *from, const char *name, int64_t row, int64_t rows,
                               int64_t cols, void *dst)
{
    sheaf_source *source = (sheaf_source *)from;
    return source->read(source, name, row, rows, 0, cols, dst);
}

static sheaf_status *of_catalog(const void *from, const char *name, int64_t row, int64_t rows,
                                int64_t cols, void *dst)
{
    return sheaf__catalog_read(from, sheaf__catalog_find(from, name), row, rows, 0, cols, dst);
}

sheaf_status *sheaf__tied_head(bool *copy, sheaf_source *source, const char *table)
{
    bool unused;
    return check(copy != NULL ? copy : &unused, source, of_source, source->find(source, table),
                 source->find(source, sheaf__head_name));
}

/* ---- of a catalog ---- */

static void drop(sheaf_catalog *c, sheaf_logical *t)
{
    free((char *)t->told.name);
    free(t->piece);
    memmove(t, t + 1, (size_t)(&c->tensor[--c->count] - t) * sizeof *t);
}

sheaf_status *sheaf__catalog_tied_head(sheaf_catalog *c)
{
    sheaf_logical *head = sheaf__catalog_find(c, sheaf__head_name),
                  *table = sheaf__catalog_find(c, "model.embed_tokens.weight");
    bool tied = false, copy = false;
    for (int64_t i = 0; i < c->nfindings; i++) /* so said by the check of the model */
        tied = tied || (strcmp(c->finding[i].code, "inferred") == 0 &&
                        strcmp(c->finding[i].tensor, sheaf__head_name) == 0);
    if (!tied || head == NULL || table == NULL || sheaf__catalog_defects(c) > 0)
        return NULL;
    const char *path = sheaf__catalog_path_of(c, head);
    sheaf_status *st = check(&copy, c, of_catalog, &table->told, &head->told);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_LAYOUT) {
        sheaf_status *noted = sheaf__catalog_note(
            c, SHEAF_DEFECT, "conflict", path, sheaf__head_name, sheaf_status_expected(st),
            sheaf_status_found(st),
            "if the stored head is meant, set tie_word_embeddings to false in config.json (--config "
            "names another one); if the table is, remove the stored head");
        sheaf_status_free(st);
        return noted;
    }
    if (st != NULL || !copy)
        return st;
    st = sheaf__catalog_note(c, SHEAF_NOTE, "inferred", path, sheaf__head_name, "",
                             "the table of embeddings in another precision; it is left out", "");
    drop(c, head);
    return st != NULL ? st : sheaf__catalog_sort(c);
}
