/* widened.c - see widened.h. */
#include "models/widened.h"

#include <pthread.h>

#include "base/base.h"
#include "base/numeric_env.h"
#include "base/random.h"
#include "catalog/over_source.h"
#include "ops/kernels.h"
#include "schema/family.h"

enum {
    BLOCK = 1 << 18, /* numbers read at once, and at least a row */
    TABLES = 2,      /* the embedding and, where it is a tensor of its own, the head */
};

typedef struct widened {
    sheaf__over_source over; /* first; its own tensors are the larger ones */
    sheaf__added_rows added;
    float range;                         /* of random rows */
    pthread_mutex_t lock;                /* of `mean` */
    float *mean[TABLES];                 /* mean row, once it is known; owned */
    int64_t below[TABLES], cols[TABLES]; /* rows that the base has; columns */
} widened;

static void convert(void *dst, sheaf_dtype to, const void *src, sheaf_dtype from, int64_t n)
{
    sheaf__kernels_for("ref")->convert(dst, to, src, from, n);
}

/* ---- rows of new tokens ---- */

static sheaf_status *sum_rows(double *sum, const widened *w, int64_t at, void *stored, float *row)
{
    const sheaf_source_entry *e = &w->over.own[at];
    const int64_t cols = w->cols[at], most = cols < BLOCK ? BLOCK / cols : 1;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < w->added.first && st == NULL; i += most) {
        const int64_t n = w->added.first - i < most ? w->added.first - i : most;
        st = w->over.under->read(w->over.under, e->name, i, n, 0, cols, stored);
        for (int64_t k = 0; k < n && st == NULL; k++) {
            convert(row, SHEAF_F32,
                    (const char *)stored + (size_t)(k * cols) * sheaf_dtype_bytes(e->dtype),
                    e->dtype, cols);
            for (int64_t c = 0; c < cols; c++)
                sum[c] += (double)row[c];
        }
    }
    return st;
}

static sheaf_status *find_mean(widened *w, int64_t at)
{
    SHEAF__NUMERIC_ENV; /* denormal numbers count here, in whichever thread */
    const sheaf_source_entry *e = &w->over.own[at];
    const int64_t cols = w->cols[at], most = cols < BLOCK ? BLOCK / cols : 1;
    double *sum = calloc((size_t)cols, sizeof *sum);
    float *mean = calloc((size_t)cols, sizeof *mean);
    void *stored = malloc((size_t)(most * cols) * sheaf_dtype_bytes(e->dtype));
    sheaf_status *st = sum == NULL || mean == NULL || stored == NULL
                           ? sheaf__no_memory(e->name)
                           : sum_rows(sum, w, at, stored, mean);
    for (int64_t c = 0; c < cols && st == NULL; c++)
        mean[c] = (float)(sum[c] / (double)w->added.first);
    free(stored);
    free(sum);
    if (st == NULL)
        w->mean[at] = mean;
    else
        free(mean);
    return st;
}

static sheaf_status *mean_of(const float **out, widened *w, int64_t at)
{
    pthread_mutex_lock(&w->lock);
    sheaf_status *st = w->mean[at] == NULL ? find_mean(w, at) : NULL;
    *out = w->mean[at];
    pthread_mutex_unlock(&w->lock);
    return st;
}

static sheaf_status *make_rows(widened *w, int64_t at, int64_t row0, int64_t rows, int64_t col0,
                               int64_t cols, char *dst)
{
    SHEAF__NUMERIC_ENV;
    const sheaf_source_entry *e = &w->over.own[at];
    const size_t bytes = (size_t)cols * sheaf_dtype_bytes(e->dtype);
    const uint64_t key = sheaf__name_key(e->name);
    const float *mean = NULL;
    float *row = malloc((size_t)cols * sizeof *row + 1);
    sheaf_status *st = row == NULL       ? sheaf__no_memory(e->name)
                       : w->added.random ? NULL
                                         : mean_of(&mean, w, at);
    for (int64_t i = 0; i < rows && st == NULL; i++) {
        const uint64_t first = (uint64_t)((row0 + i) * w->cols[at] + col0);
        if (w->added.random)
            sheaf__random_normals(row, w->added.seed, key, first, cols);
        for (int64_t c = 0; c < cols; c++)
            row[c] = w->added.random ? row[c] * w->range : mean[col0 + c];
        convert(dst + (size_t)i * bytes, e->dtype, row, SHEAF_F32, cols);
    }
    free(row);
    return st;
}

/* ---- the source ---- */

/* Rows before the new ones come from the base, and so do those behind them, its padding. */
static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    widened *w = (widened *)self;
    sheaf_source *under = w->over.under;
    const int64_t at = sheaf__over_find(&w->over, name);
    if (at < 0)
        return under->read(under, name, row0, rows, col0, cols, dst);
    const int64_t begin = w->added.first, end = begin + w->added.count;
    const size_t bytes = (size_t)cols * sheaf_dtype_bytes(w->over.own[at].dtype);
    sheaf_status *st = NULL;
    for (int64_t row = row0; row < row0 + rows && st == NULL;) {
        const bool made = row >= begin && row < end;
        const int64_t until = made ? end : row < begin ? begin : w->below[at];
        const int64_t n = until < row0 + rows ? until - row : row0 + rows - row;
        char *to = (char *)dst + (size_t)(row - row0) * bytes;
        st = made ? make_rows(w, at, row, n, col0, cols, to)
                  : under->read(under, name, row, n, col0, cols, to);
        row += n;
    }
    return st;
}

static void close_widened(sheaf_source *self)
{
    widened *w = (widened *)self;
    for (int i = 0; i < TABLES; i++)
        free(w->mean[i]);
    sheaf__over_release(&w->over);
    pthread_mutex_destroy(&w->lock);
    free(w);
}

/* The head of a reward model, where the base has none. */
static sheaf_status *add_score(widened *w, const sheaf_schema *schema)
{
    const sheaf_source_entry score = { .dtype = SHEAF_F32,
                                       .ndim = 2,
                                       .shape = { 1, schema->config.hidden } };
    if (!schema->config.scores || w->over.under->find(w->over.under, SHEAF__SCORE) != NULL)
        return NULL;
    w->cols[w->over.count] = schema->config.hidden;
    w->added.first = 0;
    w->added.count = 1;
    w->added.random = true;
    return sheaf__over_add(&w->over, strdup(SHEAF__SCORE), score);
}

/* Does nothing for a tensor that the model has not. */
static sheaf_status *add_table(widened *w, const sheaf_schema *schema, const char *name)
{
    const sheaf_tensor *t = sheaf_schema_find(schema, name);
    const sheaf_source_entry *e = t == NULL ? NULL : w->over.under->find(w->over.under, name);
    if (e == NULL)
        return NULL;
    sheaf_source_entry larger = *e; /* two axes: it is the schema's, but for its rows */
    w->below[w->over.count] = e->shape[0];
    w->cols[w->over.count] = e->shape[1];
    larger.shape[0] = t->shape[0];
    return sheaf__over_add(&w->over, strdup(t->name), larger);
}

sheaf_status *sheaf__widened_new(sheaf_source **out, sheaf_source *base, const sheaf_schema *schema,
                                 const sheaf__added_rows *added)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    widened *w = calloc(1, sizeof *w);
    if (w == NULL)
        return sheaf__no_memory("rows of new tokens");
    pthread_mutex_init(&w->lock, NULL);
    w->over.under = base;
    w->over.source.read = read_box;
    w->over.source.close = close_widened;
    w->added = *added;
    w->range = (float)schema->config.initializer_range;
    sheaf_status *st = sheaf__over_init(&w->over, TABLES);
    if (!schema->config.scores) {
        TRY(st, add_table(w, schema, family->table));
        TRY(st, add_table(w, schema, family->head));
    }
    TRY(st, add_score(w, schema));
    if (st == NULL)
        *out = &w->over.source;
    else
        close_widened(&w->over.source);
    return st;
}

void sheaf__widened_rebase(sheaf_source *widened_source, sheaf_source *base)
{
    ((widened *)widened_source)->over.under = base;
}
