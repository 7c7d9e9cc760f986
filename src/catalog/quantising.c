/* quantising.c - see quantising.h. */
#include "catalog/quantising.h"

#include <math.h>
#include <pthread.h>

#include "base/base.h"
#include "catalog/boxes.h"
#include "catalog/coded.h"
#include "catalog/over_source.h"
#include "ops/quant/quantise.h"
#include "schema/quantization.h"

enum {
    BLOCK = 64,     /* of 4-bit codes, as bitsandbytes has it */
    PART = 1 << 15, /* bytes of the tensor that each thread quantises at once */
    KEPT = 4,       /* tensors whose doubled scales are held */
};

typedef struct item {
    const char *name; /* the entry's; first */
    const sheaf_source_entry *entry;
    sheaf__quant quant;
} item;

/* The doubled scales of a tensor; name NULL: of none. */
typedef struct doubled {
    const char *name;
    uint8_t *codes;
    float *nested, offset;
    uint64_t used;
} doubled;

typedef struct quantising {
    sheaf__over_source over; /* first; has no tensors of its own */
    item *item;              /* ascending by name */
    int64_t count;
    sheaf__map8 *map;     /* of doubled scales */
    pthread_mutex_t lock; /* over what is kept */
    doubled kept[KEPT];
    uint64_t clock;
} quantising;

static const char memory_for[] = "quantising";

sheaf__quant sheaf__quantised_as(sheaf_quantize as, sheaf_dtype stored)
{
    if (as == SHEAF_QUANTIZE_INT8)
        return (sheaf__quant){ .codes = SHEAF__INT8, .dtype = stored };
    return (sheaf__quant){ .codes = SHEAF__NF4,
                           .grouping = SHEAF__GROUPS_FLAT,
                           .block = BLOCK,
                           .doubled = as == SHEAF_QUANTIZE_NF4_DOUBLE,
                           .dtype = stored };
}

/* ---- some rows ---- */

/* A box of a tensor, in codes: codes [rows][cols], scales [rows][groups]. */
typedef struct part {
    const item *t;
    sheaf__quant_box box;
    int64_t groups;
    uint8_t *codes;
    float *scales;
    bool stored; /* of int8: scales as files have them */
} part;

static sheaf_status *refuse(const part *p, int64_t row)
{
    sheaf_status *st =
        sheaf_fail(SHEAF_E_NUMBER, "tensor '%s', row %" PRId64, p->t->name, p->box.row0 + row);
    sheaf_expected(st, "finite numbers%s, to be quantised",
                   p->t->quant.codes == SHEAF__INT8 ? " within float16's range" : "");
    sheaf_found(st, "NaN or infinity");
    return sheaf_try_this(st, "sheaf verify says which numbers are damaged");
}

/* The rows and columns to read for whole blocks of a box, and the box's place in them. */
typedef struct covering {
    int64_t row0, rows, col0, cols, skip, n, first, stride;
} covering;

/* Blocks of a tensor whose rows are whole blocks lie within a row; else whole rows are read, from
 * that in which the first block begins. */
static covering cover(const part *p)
{
    const sheaf__quant_box *b = &p->box;
    const int64_t block = p->t->quant.block, in = b->in, all = p->t->entry->shape[0] * in,
                  from = b->row0 * in + b->col0,
                  to = (b->row0 + b->rows - 1) * in + b->col0 + b->cols;
    covering c = { .row0 = b->row0, .rows = b->rows, .cols = in, .stride = in };
    if (block == 0) {
        c.first = b->col0;
        c.n = c.rows * in;
    } else if (in % block == 0) {
        c.col0 = b->col0 / block * block;
        c.cols = c.stride = (b->col0 + b->cols + block - 1) / block * block - c.col0;
        c.first = b->col0 - c.col0;
        c.n = c.rows * c.cols;
    } else {
        const int64_t begin = from / block * block, last = (to + block - 1) / block * block,
                      end = last < all ? last : all;
        c.row0 = begin / in;
        c.rows = (end - 1) / in + 1 - c.row0;
        c.skip = begin - c.row0 * in;
        c.first = from - begin;
        c.n = end - begin;
    }
    return c;
}

/* Of the covering's codes and scales those of the box. */
static sheaf_status *take(const part *p, const covering *c, const uint8_t *codes,
                          const float *scales)
{
    const sheaf__quant_box *b = &p->box;
    const int64_t block = p->t->quant.block;
    for (int64_t r = 0; r < b->rows; r++) {
        const int64_t at = c->first + r * c->stride, first = block == 0 ? r : at / block,
                      n = block == 0 ? 1 : (at + b->cols - 1) / block - first + 1;
        float *to = p->scales + r * p->groups;
        memcpy(p->codes + r * b->cols, codes + at, (size_t)b->cols);
        for (int64_t g = 0; g < p->groups; g++) {
            to[g] = g < n ? scales[first + g] : 0;
            if (!isfinite(to[g]))
                return refuse(p, r);
            if (block == 0 && !p->stored)
                to[g] = sheaf__int8_scale(to[g]);
        }
    }
    return NULL;
}

static sheaf_status *quantise(quantising *q, const part *p)
{
    const covering c = cover(p);
    const item *t = p->t;
    const sheaf_dtype stored = t->entry->dtype;
    const size_t bytes = sheaf_dtype_bytes(stored), all = (size_t)(c.rows * c.cols);
    const int64_t scales = t->quant.block == 0 ? c.rows : (c.n + BLOCK - 1) / BLOCK;
    char *x = malloc(all * bytes + (size_t)scales * sizeof(float) + all + 64);
    if (x == NULL)
        return sheaf__no_memory(memory_for);
    float *scale = (float *)(x + (all * bytes + 15) / 16 * 16);
    uint8_t *codes = (uint8_t *)(scale + scales);
    sheaf_status *st =
        q->over.under->read(q->over.under, t->name, c.row0, c.rows, c.col0, c.cols, x);
    if (st == NULL && t->quant.block == 0)
        sheaf__quantise_rows(codes, scale, x, stored, c.rows, c.cols);
    else if (st == NULL)
        sheaf__quantise4(codes, scale, x + (size_t)c.skip * bytes, stored, c.n, t->quant.block,
                         t->quant.codes);
    TRY(st, take(p, &c, codes, scale));
    free(x);
    return st;
}

static int64_t rows_at_once(int64_t in, sheaf_dtype stored)
{
    const int64_t row = in * (int64_t)sheaf_dtype_bytes(stored);
    return row >= PART || row == 0 ? 1 : PART / row;
}

/* Calls `with` for each few rows of a box, quantised in memory of its own. */
static sheaf_status *each_part(quantising *q, const item *t, sheaf__quant_box box, bool stored,
                               sheaf_status *(*with)(void *self, const part *p), void *self)
{
    const int64_t most = rows_at_once(box.in, t->entry->dtype), end = box.row0 + box.rows,
                  groups = sheaf__quant_groups(&t->quant, &box),
                  rows = box.rows < most ? box.rows : most;
    if (box.rows == 0 || box.cols == 0)
        return NULL;
    float *scales = malloc((size_t)(rows * groups) * sizeof *scales + (size_t)(rows * box.cols));
    sheaf_status *st = scales == NULL ? sheaf__no_memory(memory_for) : NULL;
    for (int64_t r = box.row0; r < end && st == NULL; r += rows) {
        part p = { t, box, groups, (uint8_t *)(scales + rows * groups), scales, stored };
        p.box.row0 = r;
        p.box.rows = end - r < rows ? end - r : rows;
        st = quantise(q, &p);
        TRY(st, with(self, &p));
    }
    free(scales);
    return st;
}

/* ---- doubled scales ---- */

static int64_t blocks_of(const item *t)
{
    return (t->entry->shape[0] * t->entry->shape[1] + BLOCK - 1) / BLOCK;
}

/* Each thread has each_part()'s and quantise()'s; all together what make_doubled() and `kept` hold.
 */
size_t sheaf__codes_room(const sheaf__quant *q, int64_t out, int64_t in, int64_t threads)
{
    const int64_t rows = rows_at_once(in, q->dtype),
                  whole = q->block > 0 && in % BLOCK != 0 ? rows + 2 : rows,
                  value = (int64_t)sheaf_dtype_bytes(q->dtype) + 1, group = sizeof(float),
                  part = rows * (in + (in / BLOCK + 2) * group),
                  quantised = whole * (in * value + (in / BLOCK + 1) * group) + 64,
                  each = part + quantised, blocks = (out * in + BLOCK - 1) / BLOCK,
                  kept = blocks + sheaf__quant_nested(q, out * in) * group,
                  all = q->doubled ? KEPT * kept + blocks * group : 0;
    return (size_t)(threads * (each > SHEAF__CODED_ROOM ? each : SHEAF__CODED_ROOM) + all);
}

static sheaf_status *note_scales(void *self, const part *p)
{
    float *all = self;
    for (int64_t r = 0; r < p->box.rows; r++) {
        const int64_t first = sheaf__quant_first_group(&p->t->quant, &p->box, r),
                      last = ((p->box.row0 + r + 1) * p->box.in - 1) / BLOCK;
        memcpy(all + first, p->scales + r * p->groups, (size_t)(last - first + 1) * sizeof *all);
    }
    return NULL;
}

static void drop(doubled *d)
{
    free(d->codes);
    free(d->nested);
    *d = (doubled){ 0 };
}

static sheaf_status *make_doubled(doubled *d, quantising *q, const item *t)
{
    const int64_t blocks = blocks_of(t), rows = t->entry->shape[0], in = t->entry->shape[1];
    float *all = malloc((size_t)blocks * sizeof *all + 1);
    d->codes = malloc((size_t)blocks + 1);
    d->nested = malloc((size_t)sheaf__quant_nested(&t->quant, rows * in) * sizeof *d->nested + 1);
    sheaf_status *st =
        all == NULL || d->codes == NULL || d->nested == NULL ? sheaf__no_memory(memory_for) : NULL;
    TRY(st, each_part(q, t, (sheaf__quant_box){ in, 0, rows, 0, in }, false, note_scales, all));
    if (st == NULL)
        sheaf__double_scales(d->codes, d->nested, &d->offset, all, blocks, q->map);
    free(all);
    if (st == NULL)
        d->name = t->name;
    else
        drop(d);
    return st;
}

/* The lock is held: other threads that read the tensor wait until it is there. */
static sheaf_status *find_doubled(const doubled **out, quantising *q, const item *t)
{
    doubled *oldest = &q->kept[0], *is = NULL;
    for (int i = 0; i < KEPT; i++) {
        if (q->kept[i].name == t->name)
            is = &q->kept[i];
        if (q->kept[i].used < oldest->used)
            oldest = &q->kept[i];
    }
    sheaf_status *st = NULL;
    if (is == NULL) {
        is = oldest;
        drop(is);
        st = make_doubled(is, q, t);
    }
    is->used = ++q->clock;
    *out = is;
    return st;
}

/* The scales of a part as codes. */
static sheaf_status *take_doubled(uint8_t *codes, quantising *q, const part *p)
{
    const doubled *d;
    pthread_mutex_lock(&q->lock);
    sheaf_status *st = find_doubled(&d, q, p->t);
    for (int64_t r = 0; r < p->box.rows && st == NULL; r++) {
        const int64_t first = sheaf__quant_first_group(&p->t->quant, &p->box, r),
                      left = blocks_of(p->t) - first, n = left < p->groups ? left : p->groups;
        memcpy(codes + r * p->groups, d->codes + first, (size_t)n);
        memset(codes + r * p->groups + n, 0, (size_t)(p->groups - n));
    }
    pthread_mutex_unlock(&q->lock);
    return st;
}

/* ---- as a source ---- */

static const item *find_item(sheaf_source *self, const char *name)
{
    const quantising *q = (const quantising *)self;
    return SHEAF_FIND(item, name, q->item, q->count, name);
}

static const sheaf__quant *form(sheaf_source *self, const char *name)
{
    const item *t = find_item(self, name);
    return t == NULL ? NULL : &t->quant;
}

/* The destination of a box. */
typedef struct target {
    quantising *q;
    const sheaf__quant_parts *to;
    int64_t row0;
} target;

static sheaf_status *put_codes(void *self, const part *p)
{
    const target *g = self;
    const int64_t r = p->box.row0 - g->row0;
    memcpy(g->to->codes + r * p->box.cols, p->codes, (size_t)(p->box.rows * p->box.cols));
    if (p->t->quant.doubled)
        return take_doubled(g->to->scale_codes + r * p->groups, g->q, p);
    memcpy(g->to->scales + r * p->groups, p->scales,
           (size_t)(p->box.rows * p->groups) * sizeof *p->scales);
    return NULL;
}

static sheaf_status *read_codes(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, const sheaf__quant_parts *to)
{
    const item *t = find_item(self, name);
    target g = { (quantising *)self, to, row0 };
    return each_part(g.q, t, (sheaf__quant_box){ t->entry->shape[1], row0, rows, col0, cols },
                     to->stored, put_codes, &g);
}

static sheaf_status *read_whole(sheaf_source *self, const char *name, sheaf__quant_whole *to)
{
    quantising *q = (quantising *)self;
    const item *t = find_item(self, name);
    const doubled *d;
    if (!t->quant.doubled)
        return NULL;
    pthread_mutex_lock(&q->lock);
    sheaf_status *st = find_doubled(&d, q, t);
    if (st == NULL) {
        const int64_t n = sheaf__quant_nested(&t->quant, t->entry->shape[0] * t->entry->shape[1]);
        memcpy(to->nested, d->nested, (size_t)n * sizeof *to->nested);
        to->offset = d->offset;
    }
    pthread_mutex_unlock(&q->lock);
    return st;
}

static const sheaf__quantised_source quantised = { form, read_codes, read_whole };

typedef struct of_source {
    sheaf_source *self;
    const char *name;
} of_source;

static sheaf_status *read_parts(void *self, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                const sheaf__quant_parts *to)
{
    const of_source *of = self;
    return read_codes(of->self, of->name, row0, rows, col0, cols, to);
}

static sheaf_status *whole_of(void *self, sheaf__quant_whole *to)
{
    const of_source *of = self;
    return read_whole(of->self, of->name, to);
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    sheaf_source *under = ((quantising *)self)->over.under;
    const item *t = find_item(self, name);
    if (t == NULL)
        return under->read(under, name, row0, rows, col0, cols, dst);
    return sheaf__read_values(dst,
                              &(sheaf__codes_reader){ .quant = &t->quant,
                                                      .out = t->entry->shape[0],
                                                      .in = t->entry->shape[1],
                                                      .to = t->entry->dtype,
                                                      .self = &(of_source){ self, name },
                                                      .read = read_parts,
                                                      .whole = whole_of },
                              row0, rows, col0, cols);
}

static void release(sheaf__over_source *self)
{
    quantising *q = (quantising *)self;
    for (int i = 0; i < KEPT; i++)
        drop(&q->kept[i]);
    pthread_mutex_destroy(&q->lock);
    free(q->item);
    free(q->map);
}

/* ---- creating ---- */

static sheaf_status *check(const sheaf_source_entry *e)
{
    const bool floats = e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16;
    if (e->ndim == 2 && floats)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", e->name);
    sheaf_expected(st, "a matrix in F32, BF16 or F16, to be quantised");
    return sheaf_found(st, "%d axes in %s", e->ndim, sheaf_dtype_name(e->dtype));
}

sheaf_status *sheaf__quantised_twice(const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tensor '%s'", name);
    sheaf_expected(st, "a plain base, to be quantised");
    sheaf_found(st, "a base that is quantised already; quantised twice it would lose twice");
    return sheaf_try_this(st, "leave `quantize` out: the base is used as it is stored");
}

sheaf_status *sheaf__quantise_unknown(const char *path, const char *config)
{
    sheaf_status *st = sheaf__quantization_refusal(config);
    if (st != NULL)
        return sheaf_in(st, "%s: `quantize`", path);
    const bool has_config = config != NULL;
    st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: `quantize`", path);
    sheaf_expected(st, "a model whose architecture sheaf knows, and its config");
    sheaf_found(st, has_config ? "an architecture that is not known" : "no config");
    return sheaf_try_this(st, has_config ? "leave `quantize` out" : "`config FILE`");
}

static sheaf_status *choose(quantising *q, sheaf_quantize as,
                            bool (*chosen)(void *self, const char *name), void *self)
{
    sheaf_source *under = q->over.under;
    const int64_t n = under->count(under);
    sheaf_status *st = NULL;
    q->item = calloc((size_t)n + 1, sizeof *q->item);
    q->map = as == SHEAF_QUANTIZE_NF4_DOUBLE ? malloc(sizeof *q->map) : NULL;
    if (q->item == NULL || (as == SHEAF_QUANTIZE_NF4_DOUBLE && q->map == NULL))
        return sheaf__no_memory(memory_for);
    if (q->map != NULL)
        sheaf__map8_init(q->map, true);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const char *name = under->entry(under, i)->name;
        const sheaf_source_entry *e = under->find(under, name);
        if (sheaf__source_form(under, name) != NULL)
            st = sheaf__quantised_twice(name);
        else if (chosen(self, name) && (st = check(e)) == NULL)
            q->item[q->count++] = (item){ e->name, e, sheaf__quantised_as(as, e->dtype) };
    }
    if (st == NULL)
        qsort(q->item, (size_t)q->count, sizeof *q->item, sheaf__by_name);
    return st;
}

sheaf_status *sheaf__quantise(sheaf_source **source, sheaf_quantize as,
                              bool (*chosen)(void *self, const char *name), void *self)
{
    quantising *q = sheaf__over_new(sizeof *q, *source, 0, read_box, release);
    if (q == NULL)
        return sheaf__no_memory(memory_for);
    pthread_mutex_init(&q->lock, NULL);
    q->over.source.quantised = &quantised;
    return sheaf__over_end(source, q, choose(q, as, chosen, self));
}
