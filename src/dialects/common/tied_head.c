/* tied_head.c - see model.h. */
#include "base/base.h"
#include "dialects/common/model.h"

#include "catalog/private.h"
#include "ops/kernels.h"

enum { CHUNK = 1 << 18 }; /* elements at once */

const char sheaf__head_name[] = "lm_head.weight";

/* ---- numbers ---- */

/* Some rows of both tables, as stored and as float32. */
typedef struct numbers {
    const sheaf__kernels *kernels;
    sheaf_dtype table, head;
    bool as[3]; /* so far the head is the table; the table rounded to bfloat16, to float16 */
    void *stored;
    float *a, *b, *c; /* the table's, the head's, and the rounded table's */
} numbers;

static void compare(numbers *x, int64_t n)
{
    static const sheaf_dtype to[] = { SHEAF_F32, SHEAF_BF16, SHEAF_F16 };
    for (int i = 0; i < 3; i++)
        if (x->as[i]) {
            x->kernels->convert(x->stored, to[i], x->a, SHEAF_F32, n);
            x->kernels->convert(x->c, SHEAF_F32, x->stored, to[i], n);
            x->as[i] = memcmp(x->c, x->b, (size_t)n * sizeof *x->b) == 0;
        }
}

static bool is_float(sheaf_dtype d)
{
    return d == SHEAF_F32 || d == SHEAF_BF16 || d == SHEAF_F16;
}

/* ---- the two tables ---- */

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

static sheaf_status *compare_all(numbers *x, sheaf_source *from, const sheaf_source_entry *table)
{
    const int64_t width = table->shape[1], most = width < CHUNK ? CHUNK / width : 1;
    sheaf_status *st = NULL;
    for (int64_t row = 0; st == NULL && row < table->shape[0]; row += most) {
        const int64_t n = table->shape[0] - row < most ? table->shape[0] - row : most;
        st = from->read(from, table->name, row, n, 0, width, x->stored);
        if (st == NULL)
            x->kernels->convert(x->a, SHEAF_F32, x->stored, x->table, n * width);
        TRY(st, from->read(from, sheaf__head_name, row, n, 0, width, x->stored));
        if (st != NULL)
            return st;
        x->kernels->convert(x->b, SHEAF_F32, x->stored, x->head, n * width);
        compare(x, n * width);
        if (!x->as[0] && !x->as[1] && !x->as[2]) {
            char found[64];
            snprintf(found, sizeof found, "other values from row %" PRId64 " on", row);
            return differs(table->name, found);
        }
    }
    return st;
}

static sheaf_status *check(bool *copy, sheaf_source *from, const sheaf_source_entry *table,
                           const sheaf_source_entry *head)
{
    *copy = false;
    if (table->ndim != 2 || !sheaf__same_shape(head->ndim, head->shape, 2, table->shape) ||
        !is_float(head->dtype) || !is_float(table->dtype))
        return differs(table->name, "another shape or dtype");
    const int64_t width = table->shape[1], most = width < CHUNK ? CHUNK : width;
    float *space = malloc((size_t)most * 4 * sizeof *space);
    if (space == NULL)
        return sheaf__no_memory("out of memory to compare the tables");
    const bool rounded = table->dtype == SHEAF_F32;
    numbers x = { sheaf__kernels_for(NULL),   table->dtype,    head->dtype,
                  { true, rounded, rounded }, space,           space + most,
                  space + 2 * most,           space + 3 * most };
    sheaf_status *st = width > 0 ? compare_all(&x, from, table) : NULL;
    *copy = st == NULL && !(x.as[0] && x.table == x.head);
    free(space);
    return st;
}

sheaf_status *sheaf__tied_head(bool *copy, sheaf_source *source, const char *table)
{
    bool unused;
    return check(copy != NULL ? copy : &unused, source, source->find(source, table),
                 source->find(source, sheaf__head_name));
}

/* ---- of a catalog ---- */

typedef struct reading {
    sheaf_source source; /* first */
    const sheaf_catalog *c;
} reading;

static sheaf_status *read_rows(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                               int64_t col0, int64_t cols, void *dst)
{
    const sheaf_catalog *c = ((reading *)self)->c;
    return sheaf__catalog_read(c, sheaf__catalog_find(c, name), row0, rows, col0, cols, dst);
}

static void drop(sheaf_catalog *c, sheaf_logical *t)
{
    free((char *)t->entry.name);
    free(t->piece);
    memmove(t, t + 1, (size_t)(&c->tensor[--c->count] - t) * sizeof *t);
}

sheaf_status *sheaf__catalog_tied_head(sheaf_catalog *c)
{
    sheaf_logical *head = sheaf__catalog_find(c, sheaf__head_name),
                  *table = sheaf__catalog_find(c, "model.embed_tokens.weight");
    bool tied = false, copy = false;
    for (int64_t i = 0; i < c->nfindings; i++) /* set by the check of the model */
        tied = tied || (strcmp(c->finding[i].code, "inferred") == 0 &&
                        strcmp(c->finding[i].tensor, sheaf__head_name) == 0);
    if (!tied || head == NULL || table == NULL || sheaf__catalog_defects(c) > 0)
        return NULL;
    const char *path = sheaf__catalog_path_of(c, head);
    reading r = { .source.read = read_rows, .c = c };
    sheaf_status *st = check(&copy, &r.source, &table->entry, &head->entry);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_LAYOUT) {
        sheaf_status *noted = sheaf__defect(
            c, "conflict", path, sheaf__head_name, sheaf_status_expected(st),
            "if the stored head is meant, set tie_word_embeddings to false in config.json (`config` "
            "names another one); if the table is, remove the stored head",
            "%s", sheaf_status_found(st));
        sheaf_status_free(st);
        return noted;
    }
    if (st != NULL || !copy)
        return st;
    st = sheaf__note(c, "inferred", path, sheaf__head_name, "", "",
                     "the table of embeddings in another precision; it is left out");
    drop(c, head);
    return st != NULL ? st : sheaf__catalog_sort(c);
}
