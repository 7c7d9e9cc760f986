/* products_thin.c - products by plain fma of few rows or few columns (products.h): a tile of 8 x 32
 * results, of which each warp computes one block of 256 elements of the summed axis, of all the
 * parts of a job one after the other. Their sums meet in shared memory, in order. A lane has a
 * column of B, whose elements it reads itself; those of A are the same for all lanes. */
#include "ops/devices/gpu/kernels/products_fma.h"

enum { ROWS = 8, COLS = 32, WARPS = 16, THREADS = WARPS * 32, RESULTS = ROWS * COLS };

/* A block of a part; a part of no elements has one, too. */
typedef struct item {
    int32_t part, block;
} item;

DEVICE int32_t items_of(const sheaf__products_part *part)
{
    return part->k == 0 ? 1 : (part->k + PRODUCTS_BLOCK - 1) / PRODUCTS_BLOCK;
}

/* The item that is `by` behind this one; its part is job->parts where there are no more. */
DEVICE item item_behind(const sheaf__products_job *job, const sheaf__products_part *part, item at,
                        int32_t by)
{
    for (at.block += by; at.part < job->parts; at.part++) {
        const int32_t items = items_of(&part[at.part]);
        if (at.block < items)
            break;
        at.block -= items;
    }
    return at;
}

/* A lane's work: elements up to `end` of a column, of rows [row0, row0 + rows). A lane without a
 * column computes the job's last one, for nothing. */
typedef struct lane {
    const sheaf__products_part *part;
    int32_t row0, rows, col, end;
    int type; /* of A */
} lane;

enum { GROUP = 16 };

/* A lane's GROUP elements from k on, all of them there, at whole multiples of 16 bytes. */
DEVICE void fetch_group(products_run *run, const lane *l, int32_t k)
{
    const sheaf__products_part *p = l->part;
    if (!p->b_kn) {
        const int64_t at = l->col * p->ldb + k;
        UNROLL
        for (int i = 0; i < GROUP; i += 8)
            run[i / 8] = products_fetch_whole(p->b, at + i, p->b_type);
        return;
    }
    const int64_t at = k * p->ldb + l->col;
    if (p->b_type == SHEAF_F32) {
        UNROLL
        for (int i = 0; i < GROUP; i++)
            run[i / 8].word[i % 8] = ((const uint32_t *)p->b)[at + i * p->ldb];
        return;
    }
    const uint16_t *b = (const uint16_t *)p->b + at;
    UNROLL
    for (int i = 0; i < GROUP; i += 2)
        run[i / 8].word[i % 8 / 2] = b[i * p->ldb] | (uint32_t)b[(i + 1) * p->ldb] << 16;
}

/* x += a b: element number `at` of a chunk, of row r. */
DEVICE void add_one(float *x, float *odd, float a, float b, int r, int at, products_order order)
{
    if (order == PRODUCTS_TILES && at % 2 == 1)
        odd[r] = fmaf(a, b, odd[r]);
    else
        x[r] = fmaf(a, b, x[r]);
}

/* Eight elements from k on. */
DEVICE void add_eight(float *x, float *odd, const lane *l, const float *b, int32_t k,
                      products_order order)
{
    const sheaf__products_part *p = l->part;
    const int other = order == PRODUCTS_PAIRS;
    float a[8];
    UNROLL
    for (int i = 0; i < 8; i++) {
        const int64_t row = l->row0 + i, at = k + (i ^ other);
        if (!p->a_km && i >= l->rows)
            continue;
        const products_run run =
            products_fetch_whole(p->a, p->a_km ? at * p->lda + l->row0 : row * p->lda + k, l->type);
        products_widen(a, &run, l->type);
        UNROLL
        for (int j = 0; j < 8; j++)
            if (p->a_km) /* of the element i row j, else of row i the element j */
                add_one(x, odd, a[j], b[i ^ other], j, i ^ other, order);
            else
                add_one(x, odd, a[j ^ other], b[j ^ other], i, j ^ other, order);
    }
}

DEVICE void end_chunk(float *x, float *even, float *odd)
{
    UNROLL
    for (int r = 0; r < ROWS; r++) {
        x[r] = x[r] + (even[r] + odd[r]);
        even[r] = odd[r] = 0.0f;
    }
}

/* Elements from k on, of groups as long as there are whole ones; returns where it ended. */
DEVICE int32_t add_groups(float *x, const lane *l, int32_t k, products_order order)
{
    const sheaf__products_part *p = l->part;
    const int32_t unit = order == PRODUCTS_TILES ? PRODUCTS_CHUNK : GROUP,
                  end = k + (l->end - k) / unit * unit;
    float odd[ROWS], even[ROWS], *to = order == PRODUCTS_TILES ? even : x;
    products_run next[GROUP / 8];
    if (end == k || !p->a_even || !(p->b_even || p->b_kn) || (p->a_km && l->rows < ROWS))
        return k;
    UNROLL
    for (int r = 0; r < ROWS; r++)
        even[r] = odd[r] = 0.0f;
    fetch_group(next, l, k);
    for (int32_t i = 0; k < end; k += GROUP, i++) {
        float b[GROUP];
        UNROLL
        for (int e = 0; e < GROUP; e += 8)
            products_widen(b + e, &next[e / 8], p->b_type);
        if (k + GROUP < end)
            fetch_group(next, l, k + GROUP);
        UNROLL
        for (int e = 0; e < GROUP; e += 8)
            add_eight(to, odd, l, b + e, k + e, order);
        if (order == PRODUCTS_TILES && i % 2 == 1)
            end_chunk(x, even, odd);
    }
    return k;
}

/* The same one by one, to the end. */
DEVICE void add_rest(float *x, const lane *l, int32_t k, products_order order)
{
    const sheaf__products_part *p = l->part;
    float odd[ROWS], even[ROWS], *to = order == PRODUCTS_TILES ? even : x;
    UNROLL
    for (int r = 0; r < ROWS; r++)
        even[r] = odd[r] = 0.0f;
    for (; k < l->end; k += PRODUCTS_CHUNK) {
        const int32_t n = products_steps(order, l->end - k, PRODUCTS_CHUNK);
        for (int32_t i = 0; i < n; i++) {
            const int32_t at = k + (order == PRODUCTS_PAIRS ? i ^ 1 : i);
            const bool there = at < l->end;
            const float b =
                there ? sheaf__load(p->b, p->b_kn ? at * p->ldb + l->col : l->col * p->ldb + at,
                                    (sheaf_dtype)p->b_type)
                      : 0.0f;
            UNROLL
            for (int r = 0; r < ROWS; r++) {
                const int64_t row = l->row0 + r;
                if (r >= l->rows)
                    continue;
                const float a =
                    there ? sheaf__load(p->a, p->a_km ? at * p->lda + row : row * p->lda + at,
                                        (sheaf_dtype)l->type)
                          : 0.0f;
                if (order == PRODUCTS_TILES && i % 2 == 1)
                    odd[r] = fmaf(a, b, odd[r]);
                else
                    to[r] = fmaf(a, b, to[r]);
            }
        }
        if (order == PRODUCTS_TILES)
            end_chunk(x, even, odd);
    }
}

/* ---- sums: a thread of the first ones has one result ---- */

typedef struct result {
    int32_t row, col;
    float *wait; /* [waits][RESULTS] */
    float sum;
    int level;
    bool any;
} result;

/* The block of a part of codes in groups. */
DEVICE void add_scaled(result *y, const sheaf__products_table *t, const sheaf__products_job *job,
                       const sheaf__products_part *part, float block)
{
    const products_scale s = products_scale_of(t, job, part, y->col);
    const float elements = s.adds ? products_elements(job, part, y->row) : 0.0f;
    y->sum = products_scaled(s, block, elements, y->sum, y->any);
}

/* An item's block is added, and after the last one its part may end. */
DEVICE void add_item(result *y, const sheaf__products_table *t, const sheaf__products_job *job,
                     item at, float block)
{
    const sheaf__products_part *part = &t->part[job->first + at.part];
    if (part->scaled > 0)
        add_scaled(y, t, job, part, block);
    else if (part->k > 0 || !y->any)
        y->sum = part->k == 0 ? 0.0f : y->any ? y->sum + block : block;
    y->any = true;
    if (!part->ends || at.block + 1 < items_of(part))
        return;
    for (int i = 0; i < part->adds; i++)
        y->sum = y->wait[--y->level * RESULTS] + y->sum;
    if (part->out < 0)
        y->wait[y->level++ * RESULTS] = y->sum;
    else if (y->row < job->m && y->col < job->n)
        products_store(job, job->roots ? t->root[job->root + part->out] : NULL, y->row, y->col,
                       y->sum);
    y->any = false;
}

DEVICE void thin_tile(const sheaf__products_table *t, const sheaf__products_job *job, result *y,
                      int32_t row0, int32_t col0, products_order order)
{
    const sheaf__products_part *part = &t->part[job->first];
    const int32_t thread = (int32_t)threadIdx.x, warp = thread / 32;
    float *sums = (float *)(void *)shared_memory; /* [WARPS][RESULTS] */
    item at = { 0, 0 };
    for (y->level = 0, y->any = false; at.part < job->parts;
         at = item_behind(job, part, at, WARPS)) {
        const item own = item_behind(job, part, at, warp);
        if (own.part < job->parts) {
            const int32_t k = own.block * PRODUCTS_BLOCK, left = part[own.part].k - k;
            const lane l = { &part[own.part],
                             row0,
                             job->m - row0 < ROWS ? job->m - row0 : ROWS,
                             col0 + thread % 32 < job->n ? col0 + thread % 32 : job->n - 1,
                             k + (left < PRODUCTS_BLOCK ? left : PRODUCTS_BLOCK),
                             job->dtype };
            float x[ROWS];
            UNROLL
            for (int r = 0; r < ROWS; r++)
                x[r] = 0.0f;
            add_rest(x, &l, add_groups(x, &l, k, order), order);
            UNROLL
            for (int r = 0; r < ROWS; r++)
                sums[warp * RESULTS + r * COLS + thread % 32] = x[r];
        }
        sync_threads();
        item next = at;
        for (int w = 0; w < WARPS && thread < RESULTS && next.part < job->parts; w++) {
            add_item(y, t, job, next, sums[w * RESULTS + thread]);
            next = item_behind(job, part, next, 1);
        }
        sync_threads();
    }
}

DEVICE void thin_as(const sheaf__products_table *t, products_order order)
{
    result y;
    y.wait = t->waiting + (int64_t)blockIdx.x * t->waits * RESULTS + threadIdx.x % RESULTS;
    for (int32_t i = (int32_t)blockIdx.x; i < t->tiles; i += (int32_t)gridDim.x) {
        const sheaf__products_job *job = products_job(t, i);
        const products_tile at = products_tile_at(job, i - job->tile0);
        y.row = at.row * ROWS + (int32_t)threadIdx.x / COLS;
        y.col = at.col * COLS + (int32_t)threadIdx.x % COLS;
        thin_tile(t, job, &y, at.row * ROWS, at.col * COLS, order);
    }
}

KERNEL(products_plain_thin, sheaf__products_table, THREADS)
{
    thin_as(a, PRODUCTS_PLAIN);
}
KERNEL(products_pairs_thin, sheaf__products_table, THREADS)
{
    thin_as(a, PRODUCTS_PAIRS);
}
KERNEL(products_tiles_thin, sheaf__products_table, THREADS)
{
    thin_as(a, PRODUCTS_TILES);
}
