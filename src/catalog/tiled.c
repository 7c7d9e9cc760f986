/* tiled.c - see tiled.h. */
#include "catalog/tiled.h"

#include <pthread.h>

#include "base/base.h"
#include "catalog/coded.h"
#include "catalog/over_source.h"
#include "catalog/private.h"

enum {
    ACROSS = 16,                    /* tiles of a row, at most */
    TILES = 2 * ACROSS,             /* end of one row of tiles and begin of the next */
    TILE_BYTES = (8 << 20) / TILES, /* of a tile */
    STEP = 64,                      /* columns of a tile are a multiple, */
    WORD = 8,                       /* rows too, */
    TALL = 512,                     /* and at most so many */
};

typedef struct tile {
    const sheaf_logical *of; /* NULL: of none yet */
    int64_t row, col;        /* its first */
    int64_t used;            /* when, by the clock */
    int users;               /* threads that need it: it is not reused */
    pthread_mutex_t lock;    /* held while it is filled */
    bool full;
    char *at; /* dense; [TILE_BYTES] */
} tile;

typedef struct tiled {
    sheaf__over_source over; /* first; has no tensors of its own */
    const sheaf_catalog *catalog;
    pthread_mutex_t lock; /* of all below but what tiles hold */
    pthread_cond_t left;  /* signalled when a thread needs a tile no longer */
    int64_t clock;
    tile tile[TILES];
} tiled;

/* How a tensor is divided, and the box of it that is read. */
typedef struct reading {
    tiled *s;
    const sheaf_logical *t;
    int64_t high, wide, bytes; /* of a tile; of an element */
    int64_t row0, rows, col0, cols;
    char *dst;
} reading;

static bool by_columns(const sheaf_logical *t)
{
    return t != NULL && t->coded != NULL && t->coded->in > 0 &&
           t->coded->packing->plane[SHEAF__CODES_PART].turned;
}

static void divide(reading *r)
{
    const int64_t in = r->t->coded->in, each = (in + ACROSS - 1) / ACROSS;
    r->bytes = (int64_t)sheaf_dtype_bytes(r->t->entry.dtype);
    r->wide = (each + STEP - 1) / STEP * STEP;
    r->high = least(TALL, TILE_BYTES / (r->wide * r->bytes) / WORD * WORD);
}

/* ---- which part of which tensor a tile holds ---- */

/* The tile of this part, or the one that was used longest ago, which becomes it. NULL: threads need
 * all of them. */
static tile *find_tile(tiled *s, const sheaf_logical *of, int64_t row, int64_t col)
{
    tile *oldest = NULL;
    for (int i = 0; i < TILES; i++) {
        tile *is = &s->tile[i];
        if (is->of == of && is->row == row && is->col == col)
            return is;
        if (is->users == 0 && (oldest == NULL || is->used < oldest->used))
            oldest = is;
    }
    if (oldest != NULL) {
        oldest->of = of;
        oldest->row = row;
        oldest->col = col;
        oldest->full = false;
    }
    return oldest;
}

/* A thread that waits has no other tile, so that every wait ends. */
static tile *take_tile(tiled *s, const sheaf_logical *of, int64_t row, int64_t col)
{
    tile *is;
    pthread_mutex_lock(&s->lock);
    while ((is = find_tile(s, of, row, col)) == NULL)
        pthread_cond_wait(&s->left, &s->lock);
    is->used = ++s->clock;
    is->users++;
    pthread_mutex_unlock(&s->lock);
    return is;
}

static void leave_tile(tiled *s, tile *is)
{
    pthread_mutex_lock(&s->lock);
    is->users--;
    pthread_cond_signal(&s->left);
    pthread_mutex_unlock(&s->lock);
}

/* ---- reading ---- */

/* The tile's own lock is held. */
static sheaf_status *fill(const reading *r, tile *is)
{
    sheaf_source *under = r->s->over.under;
    if (is->full)
        return NULL;
    if (is->at == NULL)
        is->at = malloc(TILE_BYTES);
    if (is->at == NULL)
        return sheaf__no_memory(r->t->entry.name);
    sheaf_status *st =
        under->read(under, r->t->entry.name, is->row, least(r->high, r->t->coded->out - is->row),
                    is->col, least(r->wide, r->t->coded->in - is->col), is->at);
    is->full = st == NULL;
    return st;
}

static void copy_rows(const reading *r, const tile *is)
{
    const int64_t wide = least(r->wide, r->t->coded->in - is->col),
                  row0 = is->row > r->row0 ? is->row : r->row0,
                  row1 = least(is->row + r->high, r->row0 + r->rows),
                  col0 = is->col > r->col0 ? is->col : r->col0,
                  col1 = least(is->col + wide, r->col0 + r->cols);
    for (int64_t row = row0; row < row1; row++)
        memcpy(r->dst + ((row - r->row0) * r->cols + col0 - r->col0) * r->bytes,
               is->at + ((row - is->row) * wide + col0 - is->col) * r->bytes,
               (size_t)((col1 - col0) * r->bytes));
}

/* Fills a tile unless another thread is filling it. */
static void help(const reading *r, int64_t row, int64_t col)
{
    tile *is = take_tile(r->s, r->t, row, col);
    if (pthread_mutex_trylock(&is->lock) == 0) {
        sheaf_status_free(fill(r, is)); /* read_tile() tries again and reports it */
        pthread_mutex_unlock(&is->lock);
    }
    leave_tile(r->s, is);
}

static sheaf_status *read_tile(const reading *r, int64_t row, int64_t col)
{
    tile *is = take_tile(r->s, r->t, row, col);
    pthread_mutex_lock(&is->lock);
    sheaf_status *st = fill(r, is);
    pthread_mutex_unlock(&is->lock);
    if (st == NULL)
        copy_rows(r, is);
    leave_tile(r->s, is);
    return st;
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    tiled *s = (tiled *)self;
    sheaf_source *under = s->over.under;
    reading r = { .s = s,
                  .t = sheaf__catalog_find(s->catalog, name),
                  .row0 = row0,
                  .rows = rows,
                  .col0 = col0,
                  .cols = cols,
                  .dst = dst };
    if (by_columns(r.t))
        divide(&r);
    if (rows >= r.high || cols == 0)
        return under->read(under, name, row0, rows, col0, cols, dst);
    sheaf_status *st = sheaf__safetensors_check_box(name, r.t->entry.dtype, r.t->entry.ndim,
                                                    r.t->entry.shape, row0, rows, col0, cols);
    const int64_t row = row0 / r.high * r.high, col = col0 / r.wide * r.wide;
    for (int64_t i = row; st == NULL && i < row0 + rows; i += r.high) {
        for (int64_t k = col; k < col0 + cols; k += r.wide)
            help(&r, i, k);
        for (int64_t k = col; st == NULL && k < col0 + cols; k += r.wide)
            st = read_tile(&r, i, k);
    }
    return st;
}

/* ---- creating ---- */

static void release(sheaf__over_source *self)
{
    tiled *s = (tiled *)self;
    for (int i = 0; i < TILES; i++) {
        pthread_mutex_destroy(&s->tile[i].lock);
        free(s->tile[i].at);
    }
    pthread_mutex_destroy(&s->lock);
    pthread_cond_destroy(&s->left);
}

sheaf_status *sheaf__tiled(sheaf_source **source, const sheaf_catalog *catalog)
{
    sheaf_source *under = *source;
    tiled *s = sheaf__over_new(sizeof *s, under, 0, read_box, release);
    *source = s != NULL ? &s->over.source : NULL;
    if (s == NULL) {
        under->close(under);
        return sheaf__no_memory("tiles of a tensor");
    }
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->left, NULL);
    for (int i = 0; i < TILES; i++)
        pthread_mutex_init(&s->tile[i].lock, NULL);
    s->catalog = catalog;
    return NULL;
}
