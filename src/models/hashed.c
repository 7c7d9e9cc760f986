/* hashed.c - see hashed.h. */
#include "models/hashed.h"

#include <stdatomic.h>

#include "base/base.h"
#include "base/hash.h"
#include "base/lowest.h"
#include "catalog/boxes.h"
#include "comm/process.h"
#include "ops/pool.h"
#include "ops/quant/quantise.h"

enum {
    PARTS = 8,       /* of a row that is cut; part of the definition */
    BLOCK = 1 << 20, /* bytes per read of what was not read yet */
    MOST = 64,       /* threads */
};

typedef struct item {
    const char *name; /* the entry's; first */
    const sheaf_source_entry *entry;
    int64_t rows, cols, units; /* of the view; units in a row. Of a tensor of one axis: one row */
    bool vector;
    const sheaf__quant *quant; /* NULL: plain */
    size_t bytes;              /* of an element; of codes 1 */
    int64_t *edge;             /* [units + 1] columns where they begin; NULL: a row is one */
    _Atomic uint64_t *seen;    /* a bit for each unit */
    _Atomic uint64_t sum[2];
    int64_t block_rows, first_block;
} item;

struct sheaf__hashed {
    sheaf_source source; /* first */
    sheaf_comm *all;     /* the processes that hash a share each; NULL: a single process */
    sheaf_source *inner;
    item *item; /* ascending by name */
    int64_t count, blocks;
    atomic_llong next; /* block to read */
    bool stopped;
};

static const char memory_for[] = "fingerprint of the weights";

static void little(unsigned char out[8], uint64_t x)
{
    for (int i = 0; i < 8; i++)
        out[i] = (unsigned char)(x >> 8 * i);
}

/* ---- units ---- */

static void add_unit(uint64_t sum[2], int64_t number, const void *bytes, size_t size)
{
    unsigned char both[24];
    little(both, (uint64_t)number);
    sheaf__hash_bytes(both + 8, sheaf__hash(bytes, size));
    const sheaf_hash hash = sheaf__hash(both, sizeof both);
    sum[0] += hash.high;
    sum[1] += hash.low;
}

/* All units of a tensor, with that of what belongs to all of its codes. */
static int64_t units_of(const item *t)
{
    return t->rows * t->units + (t->quant != NULL);
}

/* The part of a box that was read: units [u0, u1) of `rows` rows from row0 on, `stride` bytes from
 * row to row; `bytes` is where column col0 lies. */
typedef struct box {
    item *t;
    int64_t row0, rows, u0, u1, col0;
    size_t stride;
    const char *bytes;
    const sheaf__quant_parts *parts; /* of codes; else NULL */
    sheaf__quant_box at;
    char *unit; /* memory for the bytes of one unit */
} box;

/* The bytes of a unit of codes, rows counted in the box: see hashed.h. */
static size_t codes_of(const box *b, int64_t row, int64_t begin, int64_t end)
{
    const sheaf__quant *q = b->t->quant;
    const int64_t groups = sheaf__quant_groups(q, &b->at);
    int64_t first = 0, last = groups;
    if (q->grouping != SHEAF__GROUPS_INDEXED && q->block > 0) {
        const int64_t phase = sheaf__quant_phase(q, &b->at, row) - b->col0;
        first = (phase + begin) / q->block;
        last = (phase + end - 1) / q->block + 1;
    }
    const size_t n = (size_t)(last - first), at = (size_t)(row * groups + first);
    char *to = b->unit;
    to = (char *)memcpy(to, b->bytes + (size_t)row * b->stride + (size_t)(begin - b->col0),
                        (size_t)(end - begin)) +
         (end - begin);
    if (q->doubled)
        to = (char *)memcpy(to, b->parts->scale_codes + at, n) + n;
    else
        to = (char *)memcpy(to, b->parts->scales + at, n * sizeof(float)) + n * sizeof(float);
    if (q->zeros)
        to = (char *)memcpy(to, b->parts->zeros + at, n) + n;
    return (size_t)(to - b->unit);
}

/* Units [first, last) of the tensor, which lie in the box: hashes those that are not hashed yet. */
static void claim(uint64_t sum[2], const box *b, int64_t first, int64_t last)
{
    item *t = b->t;
    for (int64_t w = first / 64; w * 64 < last; w++) {
        const int64_t from = first > w * 64 ? first - w * 64 : 0,
                      to = last - w * 64 < 64 ? last - w * 64 : 64;
        const uint64_t wanted =
            (to == 64 ? ~UINT64_C(0) : (UINT64_C(1) << to) - 1) & ~((UINT64_C(1) << from) - 1);
        uint64_t mine = wanted & ~atomic_load_explicit(&t->seen[w], memory_order_relaxed);
        if (mine != 0)
            mine &= ~atomic_fetch_or_explicit(&t->seen[w], mine, memory_order_relaxed);
        for (; mine != 0; mine &= mine - 1) {
            const int64_t number = w * 64 + __builtin_ctzll(mine),
                          row = t->units == 1 ? number : number / t->units,
                          u = number - row * t->units;
            const int64_t begin = t->edge == NULL ? 0 : t->edge[u],
                          end = t->edge == NULL ? t->cols : t->edge[u + 1];
            if (b->parts != NULL)
                add_unit(sum, number, b->unit, codes_of(b, row - b->row0, begin, end));
            else
                add_unit(sum, number,
                         b->bytes + (size_t)(row - b->row0) * b->stride +
                             (size_t)(begin - b->col0) * t->bytes,
                         (size_t)(end - begin) * t->bytes);
        }
    }
}

static void hash_box(const box *b)
{
    item *t = b->t;
    uint64_t sum[2] = { 0, 0 };
    if (b->u0 == 0 && b->u1 == t->units)
        claim(sum, b, b->row0 * t->units, (b->row0 + b->rows) * t->units);
    else
        for (int64_t r = b->row0; r < b->row0 + b->rows; r++)
            claim(sum, b, r * t->units + b->u0, r * t->units + b->u1);
    for (int i = 0; i < 2; i++)
        atomic_fetch_add_explicit(&t->sum[i], sum[i], memory_order_relaxed);
}

/* ---- as a source ---- */

/* Marks the units that are completely inside a box that was read. */
static void mark(box *b, int64_t cols)
{
    const item *t = b->t;
    if (t->edge == NULL && !t->vector && cols != t->cols)
        return;
    for (; t->edge != NULL && b->u0 < b->u1 && t->edge[b->u0] < b->col0; b->u0++)
        ;
    for (; t->edge != NULL && b->u1 > b->u0 && t->edge[b->u1] > b->col0 + cols; b->u1--)
        ;
    if (b->u0 < b->u1 && b->rows > 0)
        hash_box(b);
}

static void seen_box(item *t, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                     const void *bytes)
{
    box b = { .t = t,
              .row0 = row0,
              .rows = rows,
              .u1 = t->units,
              .col0 = col0,
              .stride = (size_t)cols * t->bytes,
              .bytes = bytes };
    if (t->vector) { /* its elements are rows */
        if (row0 != 0 || rows != t->cols || cols != 1)
            return;
        b.rows = 1;
    }
    mark(&b, cols);
}

static sheaf_status *seen_codes(item *t, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                const sheaf__quant_parts *parts)
{
    box b = { .t = t,
              .row0 = row0,
              .rows = rows,
              .u1 = t->units,
              .col0 = col0,
              .stride = (size_t)cols,
              .bytes = (const char *)parts->codes,
              .parts = parts,
              .at = { t->cols, row0, rows, col0, cols } };
    b.unit = malloc((size_t)cols + (size_t)sheaf__quant_groups(t->quant, &b.at) * 6 + 1);
    if (b.unit == NULL)
        return sheaf__no_memory(memory_for);
    mark(&b, cols);
    free(b.unit);
    return NULL;
}

static sheaf_status *seen_whole(item *t, const sheaf__quant_whole *whole)
{
    const int64_t number = t->rows * t->units, n = sheaf__quant_nested(t->quant, t->rows * t->cols);
    const size_t index = t->quant->grouping == SHEAF__GROUPS_INDEXED ? (size_t)t->cols * 2 : 0,
                 nested = (size_t)n * sizeof(float),
                 offset = t->quant->doubled ? sizeof whole->offset : 0;
    const uint64_t bit = UINT64_C(1) << number % 64;
    uint64_t sum[2] = { 0, 0 };
    if (atomic_fetch_or(&t->seen[number / 64], bit) & bit)
        return NULL;
    char *bytes = malloc(offset + nested + index + 1);
    if (bytes == NULL)
        return sheaf__no_memory(memory_for);
    memcpy(bytes, &whole->offset, offset);
    if (nested > 0)
        memcpy(bytes + offset, whole->nested, nested);
    if (index > 0)
        memcpy(bytes + offset + nested, whole->index, index);
    add_unit(sum, number, bytes, offset + nested + index);
    for (int i = 0; i < 2; i++)
        atomic_fetch_add_explicit(&t->sum[i], sum[i], memory_order_relaxed);
    free(bytes);
    return NULL;
}

static const sheaf_source_entry *find(sheaf_source *self, const char *name)
{
    return ((sheaf__hashed *)self)->inner->find(((sheaf__hashed *)self)->inner, name);
}
static int64_t count(sheaf_source *self)
{
    return ((sheaf__hashed *)self)->inner->count(((sheaf__hashed *)self)->inner);
}
static const sheaf_source_entry *entry(sheaf_source *self, int64_t i)
{
    return ((sheaf__hashed *)self)->inner->entry(((sheaf__hashed *)self)->inner, i);
}

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const sheaf__hashed *p = (const sheaf__hashed *)self;
    sheaf_status *st = p->inner->read(p->inner, name, row0, rows, col0, cols, dst);
    item *t = st != NULL || p->stopped ? NULL : SHEAF_FIND(item, name, p->item, p->count, name);
    if (t != NULL && t->quant == NULL) /* of codes their values say too little */
        seen_box(t, row0, rows, col0, cols, dst);
    return st;
}

static const sheaf__quant *form(sheaf_source *self, const char *name)
{
    return sheaf__source_held(((sheaf__hashed *)self)->inner, name);
}

static sheaf_status *read_codes(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                                int64_t col0, int64_t cols, const sheaf__quant_parts *to)
{
    const sheaf__hashed *p = (const sheaf__hashed *)self;
    sheaf_status *st = sheaf__source_codes(p->inner, name, row0, rows, col0, cols, to);
    item *t = st != NULL || p->stopped ? NULL : SHEAF_FIND(item, name, p->item, p->count, name);
    if (t == NULL || t->quant == NULL) /* of blocks values are hashed, by sheaf__hashed_rest() */
        return st;
    return seen_codes(t, row0, rows, col0, cols, to);
}

static sheaf_status *read_whole(sheaf_source *self, const char *name, sheaf__quant_whole *to)
{
    const sheaf__hashed *p = (const sheaf__hashed *)self;
    sheaf_status *st = sheaf__source_whole(p->inner, name, to);
    item *t = st != NULL || p->stopped ? NULL : SHEAF_FIND(item, name, p->item, p->count, name);
    return t == NULL || t->quant == NULL ? st : seen_whole(t, to);
}

static const sheaf__quantised_source quantised = { form, read_codes, read_whole };

static void close_nothing(sheaf_source *self)
{
    (void)self;
}

sheaf_source *sheaf__hashed_source(sheaf__hashed *p)
{
    return &p->source;
}
void sheaf__hashed_stop(sheaf__hashed *p)
{
    p->stopped = true;
}

/* ---- creating ---- */

/* Ends of the slices of a row, of eight; empty slices are left out. */
static sheaf_status *set_edges(item *t, const sheaf_cut *cut)
{
    t->edge = calloc((size_t)(cut->nparts * cut->slices) + 1, sizeof *t->edge);
    if (t->edge == NULL)
        return sheaf__no_memory(memory_for);
    t->units = 0;
    for (int part = 0; part < cut->nparts; part++)
        for (int s = 0; s < cut->slices; s++) {
            sheaf_range range;
            sheaf_status *st = sheaf_cut_rows(&range, cut, part, s);
            if (st != NULL)
                return st;
            if (range.end > range.begin)
                t->edge[++t->units] = range.end;
        }
    return NULL;
}

static sheaf_status *set_item(item *t, sheaf_source *inner, const sheaf_source_entry *e,
                              const sheaf_tensor *schema)
{
    const int64_t all = sheaf__elements(e->ndim, e->shape);
    const sheaf__quant *quant = sheaf__source_form(inner, e->name);
    *t = (item){ .name = e->name,
                 .entry = e,
                 .vector = e->ndim <= 1,
                 .units = 1,
                 .quant = quant,
                 .bytes = quant != NULL ? 1 : sheaf_dtype_bytes(e->dtype) };
    t->cols = t->vector ? all : e->shape[e->ndim - 1];
    t->rows = all == 0 ? 0 : all / t->cols;
    sheaf_status *st = NULL;
    if (schema != NULL && e->ndim == 2 && schema->cut.nparts > 0 && schema->cut.axis == 1 &&
        all > 0)
        st = set_edges(t, &schema->cut);
    t->seen = calloc((size_t)units_of(t) / 64 + 1, sizeof *t->seen);
    return st == NULL && t->seen == NULL ? sheaf__no_memory(memory_for) : st;
}

static sheaf_status *add_items(sheaf__hashed *p, const sheaf_schema *schema)
{
    const int64_t n = schema != NULL ? schema->count : p->inner->count(p->inner);
    sheaf_status *st = NULL;
    p->item = calloc((size_t)n + 1, sizeof *p->item);
    if (p->item == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf_source_entry *e = schema != NULL
                                          ? p->inner->find(p->inner, schema->tensor[i].name)
                                          : p->inner->entry(p->inner, i);
        if (e != NULL)
            st = set_item(&p->item[p->count++], p->inner, e,
                          schema != NULL ? &schema->tensor[i] : NULL);
    }
    if (st == NULL)
        qsort(p->item, (size_t)p->count, sizeof *p->item, sheaf__by_name);
    for (int64_t i = 0; i < p->count && st == NULL; i++) {
        item *t = &p->item[i];
        const int64_t row = t->cols * (int64_t)t->bytes;
        t->block_rows = row >= BLOCK || row == 0 ? 1 : BLOCK / row;
        t->first_block = p->blocks;
        p->blocks += (t->rows + t->block_rows - 1) / t->block_rows;
    }
    return st;
}

sheaf_status *sheaf__hashed_new(sheaf__hashed **out, sheaf_source *inner,
                                const sheaf_config *config)
{
    sheaf_schema *eight = NULL;
    sheaf__hashed *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__no_memory(memory_for);
    p->source = (sheaf_source){ find, count, entry, read_box, close_nothing, &quantised };
    p->inner = inner;
    sheaf_status *st = config == NULL ? NULL : sheaf_schema_new(&eight, config, PARTS);
    TRY(st, add_items(p, eight));
    sheaf_schema_free(eight);
    if (st == NULL)
        *out = p;
    else
        sheaf__hashed_free(p);
    return st;
}

void sheaf__hashed_free(sheaf__hashed *p)
{
    for (int64_t i = 0; p != NULL && i < p->count; i++) {
        free(p->item[i].edge);
        free(p->item[i].seen);
    }
    if (p != NULL)
        free(p->item);
    free(p);
}

/* ---- the rest ---- */

static bool all_seen(const item *t, int64_t first, int64_t last)
{
    for (int64_t i = first; i < last;) {
        const uint64_t word = atomic_load_explicit(&t->seen[i / 64], memory_order_relaxed);
        if (i % 64 == 0 && last - i >= 64 && word == ~UINT64_C(0))
            i += 64;
        else if (word >> i % 64 & 1)
            i++;
        else
            return false;
    }
    return true;
}

/* n rows of codes from `row` on, and with the first ones what belongs to all. */
static sheaf_status *read_codes_block(sheaf__hashed *p, const item *t, int64_t row, int64_t n)
{
    sheaf__dequantised d;
    sheaf_status *st = sheaf__dequantised_new(&d, t->quant, t->rows, t->cols, n, t->cols);
    if (row == 0)
        TRY(st, read_whole(&p->source, t->name, &d.whole));
    TRY(st, read_codes(&p->source, t->name, row, n, 0, t->cols, &d.parts));
    free(d.memory);
    return st;
}

static sheaf_status *read_block(sheaf__hashed *p, item *t, int64_t block)
{
    const int64_t row = block * t->block_rows,
                  n = t->rows - row < t->block_rows ? t->rows - row : t->block_rows,
                  whole = t->rows * t->units;
    if (all_seen(t, row * t->units, (row + n) * t->units) &&
        (t->quant == NULL || row > 0 || all_seen(t, whole, whole + 1)))
        return NULL;
    if (t->quant != NULL)
        return read_codes_block(p, t, row, n);
    char *bytes = malloc((size_t)(n * t->cols) * t->bytes + 1);
    if (bytes == NULL)
        return sheaf__no_memory(memory_for);
    const int64_t rows = t->vector ? t->cols : n, cols = t->vector ? 1 : t->cols;
    sheaf_status *st = p->inner->read(p->inner, t->name, row, rows, 0, cols, bytes);
    if (st == NULL)
        seen_box(t, row, rows, 0, cols, bytes);
    free(bytes);
    return st;
}

static item *block_item(const sheaf__hashed *p, int64_t block)
{
    int64_t low = 0,
            high = p->count; /* the last item that begins at or before it, and is not empty */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (p->item[middle].first_block <= block)
            low = middle;
        else
            high = middle;
    }
    return &p->item[low];
}

sheaf_status *sheaf__hashed_rest(sheaf__hashed *p)
{
    sheaf_status *st = NULL;
    while (st == NULL && !p->stopped) {
        const int64_t block = atomic_fetch_add(&p->next, 1);
        if (block >= p->blocks)
            break;
        item *t = block_item(p, block);
        st = sheaf_in(read_block(p, t, block - t->first_block), "fingerprint of '%s'", t->name);
    }
    return st;
}

typedef struct rest {
    sheaf__hashed *p;
    sheaf__lowest failed;
} rest;

static void rest_task(void *arg, int64_t index, int worker)
{
    rest *r = arg;
    sheaf_status *st = sheaf__hashed_rest(r->p);
    if (st != NULL)
        sheaf__lowest_note(&r->failed, index, st);
}

sheaf_status *sheaf__hashed_all(sheaf__hashed *p, int threads)
{
    const int want = sheaf__process_threads(p->all, threads), n = want < MOST ? want : MOST;
    sheaf__pool *pool;
    rest r = { .p = p };
    sheaf_status *st = sheaf__pool_new(&pool, n);
    if (st != NULL)
        return st;
    sheaf__lowest_begin(&r.failed);
    sheaf__pool_run(pool, n, rest_task, &r);
    sheaf__pool_free(pool);
    return sheaf__lowest_end(&r.failed);
}

/* ---- several processes ---- */

/* Marks the others' shares as seen. */
void sheaf__hashed_share(sheaf__hashed *p, sheaf_comm *all)
{
    const int64_t parts = sheaf__all_count(all), me = sheaf__all_number(all),
                  first = PARTS * me / parts, end = PARTS * (me + 1) / parts;
    p->all = all;
    for (int64_t i = 0; i < p->count; i++) {
        item *t = &p->item[i];
        const int64_t of = t->units > 1 ? t->units : t->rows, n = t->rows * t->units;
        for (int64_t u = 0; u < n; u++) {
            const int64_t at = t->units > 1 ? u % t->units : u;
            if (at < of * first / PARTS || at >= of * end / PARTS)
                t->seen[u / 64] |= UINT64_C(1) << u % 64;
        }
        if (t->quant != NULL && first > 0) /* values of the whole tensor are the first part's */
            t->seen[n / 64] |= UINT64_C(1) << n % 64;
    }
}

sheaf_status *sheaf__hashed_gather(sheaf__hashed *p)
{
    sheaf_comm *group = p->all;
    const int64_t parts = sheaf__all_count(group), me = sheaf__all_number(group), n = p->count;
    if (parts == 1)
        return NULL;
    uint64_t(*all)[2] = calloc((size_t)(parts * n) + 1, sizeof *all);
    sheaf_status *st = sheaf__all_agree(group, all == NULL ? sheaf__no_memory(memory_for) : NULL);
    for (int64_t i = 0; i < n && st == NULL; i++)
        for (int k = 0; k < 2; k++)
            all[me * n + i][k] = atomic_load(&p->item[i].sum[k]);
    TRY(st, sheaf__all_gather(group, all, (size_t)n * sizeof *all));
    for (int64_t i = 0; i < parts * n && st == NULL; i++)
        for (int k = 0; k < 2 && i / n != me; k++)
            atomic_fetch_add(&p->item[i % n].sum[k], all[i][k]);
    free(all);
    return st;
}

/* ---- hashes ---- */

static sheaf_hash tensor_hash(const item *t)
{
    /* dtype's name, axes, at most 8 sizes, two sums, six facts of codes */
    unsigned char buffer[16 + 8 * 17];
    const char *dtype = sheaf_dtype_name(t->entry->dtype);
    size_t n = strlen(dtype) < 16 ? strlen(dtype) : 16;
    memcpy(buffer, dtype, n);
    little(buffer + n, (uint64_t)t->entry->ndim);
    n += 8;
    for (int i = 0; i < t->entry->ndim && i < 8; i++, n += 8)
        little(buffer + n, (uint64_t)t->entry->shape[i]);
    for (int i = 0; i < 2; i++, n += 8)
        little(buffer + n, atomic_load(&t->sum[i]));
    if (t->quant != NULL) {
        const sheaf__quant *q = t->quant;
        const int64_t facts[] = {
            q->codes, q->grouping, q->block, q->groups, q->zeros, q->doubled
        };
        for (size_t i = 0; i < sizeof facts / sizeof *facts; i++, n += 8)
            little(buffer + n, (uint64_t)facts[i]);
    }
    return sheaf__hash(buffer, n);
}

sheaf_status *sheaf__hashed_weights(char out[33], const sheaf__hashed *p)
{
    sheaf_text all = { 0 };
    for (int64_t i = 0; i < p->count; i++) {
        unsigned char hash[16];
        sheaf__hash_bytes(hash, tensor_hash(&p->item[i]));
        sheaf__text_bytes(&all, p->item[i].name, strlen(p->item[i].name) + 1);
        sheaf__text_bytes(&all, hash, sizeof hash);
    }
    if (!all.failed)
        sheaf__hash_text(out, sheaf__hash(all.at, all.size));
    sheaf_status *st = all.failed ? sheaf__no_memory(memory_for) : NULL;
    sheaf__text_release(&all);
    return st;
}

int64_t sheaf__hashed_count(const sheaf__hashed *p)
{
    return p->count;
}

const char *sheaf__hashed_tensor(char out[33], const sheaf__hashed *p, int64_t i)
{
    sheaf__hash_text(out, tensor_hash(&p->item[i]));
    return p->item[i].name;
}
