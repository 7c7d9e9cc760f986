/* products_fma.c - products by plain fma, many results to a block (products.h): a tile of tm x tn,
 * of which each thread has its own, in registers. Operands go through shared memory in steps of 16
 * elements, widened to float32, the next step's on their way meanwhile; a tile's running sums stay
 * there, too, as registers have room for those of one block of 256 alone. */
#include "ops/devices/gpu/kernels/products_fma.h"

/* GAP: what keeps rows of operands apart in shared memory. */
enum { THREADS = 256, SIDE = 16, DEEP = 16, GAP = 4, RESULTS = 64 };

typedef struct shape {
    products_order order;
    int tm, tn;
} shape;

/* The rows of a tile in one of a part's operands. */
typedef struct operand {
    const void *data;
    int64_t ld;
    int32_t row0, rows, k;
    bool turned, even; /* [k, rows] */
    int type;
} operand;

/* The places of a tile's parts. */
typedef struct progress {
    float *run;    /* in shared memory [tm][tn]: the sum of the blocks before, if `any` */
    float *chunks; /* of tiles: that of a block's chunks before */
    float *wait;   /* [waits][tm][tn] */
    float *operands;
    int32_t row0, col0;
    int level;
    bool any;
} progress;

DEVICE products_run fetch(const operand *o, int wide, int32_t k0)
{
    const int32_t t = (int32_t)threadIdx.x;
    if (t >= wide * DEEP / 8) {
        products_run none;
        UNROLL
        for (int i = 0; i < 8; i++)
            none.word[i] = 0;
        return none;
    }
    if (o->turned) {
        const int32_t k = k0 + t / (wide / 8), row = o->row0 + t % (wide / 8) * 8;
        return products_fetch(o->data, k * o->ld + row, k < o->k ? o->rows - row : 0, o->type,
                              o->even);
    }
    const int32_t k = k0 + t / wide * 8, row = o->row0 + t % wide;
    return products_fetch(o->data, row * o->ld + k, row < o->rows ? o->k - k : 0, o->type, o->even);
}

/* Into `to` [DEEP][wide + GAP]. */
DEVICE void put(float *to, const products_run *run, const operand *o, int wide)
{
    const int t = (int)threadIdx.x, ld = wide + GAP;
    float x[8];
    if (t >= wide * DEEP / 8)
        return;
    products_widen(x, run, o->type);
    if (o->turned) {
        float *at = to + t / (wide / 8) * ld + t % (wide / 8) * 8;
        UNROLL
        for (int i = 0; i < 8; i += 4)
            products_put4(at + i, x + i);
        return;
    }
    UNROLL
    for (int i = 0; i < 8; i++)
        to[(t / wide * 8 + i) * ld + t % wide] = x[i];
}

/* ---- a thread's results: quads of columns, rows and columns of quads SIDE quads apart ---- */

/* Before the quad q of a thread's results, in a tile of tn columns. */
DEVICE int place(shape s, int q)
{
    const int across = s.tn / SIDE / 4, row = q / across;
    const int ty = (int)threadIdx.x / SIDE, tx = (int)threadIdx.x % SIDE;
    return (row / 4 * SIDE * 4 + ty * 4 + row % 4) * s.tn + q % across * SIDE * 4 + tx * 4;
}

DEVICE int quads(shape s)
{
    return s.tm * s.tn / THREADS / 4;
}

DEVICE void keep(float *to, const float *x, shape s)
{
    UNROLL
    for (int q = 0; q < RESULTS / 4; q++)
        if (q < quads(s))
            products_put4(to + place(s, q), x + q * 4);
}

/* x = what is kept + x */
DEVICE void add_kept(float *x, const float *from, shape s)
{
    UNROLL
    for (int q = 0; q < RESULTS / 4; q++)
        if (q < quads(s)) {
            float kept[4];
            products_take4(kept, from + place(s, q));
            UNROLL
            for (int i = 0; i < 4; i++)
                x[q * 4 + i] = kept[i] + x[q * 4 + i];
        }
}

/* x = the sum with a scaled part's block x: row by row where sums of A's elements are added, which
 * need registers. */
DEVICE void add_scaled(float *x, const sheaf__products_table *t, const sheaf__products_job *job,
                       const sheaf__products_part *part, const progress *p, shape s)
{
    const bool adds = t->codes[part->scaled - 1].added != 0;
    const int wide = s.tn / SIDE / 4, turns = adds ? s.tm / SIDE : 1; /* quads of a row; rows */
    ROLLED
    for (int r = 0; r < turns; r++) {
        const float elements =
            adds ? products_elements(job, part, p->row0 + place(s, r * wide) / s.tn) : 0.0f;
        ROLLED
        for (int i = 0; i < s.tn / SIDE; i++) { /* columns of a thread */
            const int at = place(s, i / 4) % s.tn + i % 4;
            const products_scale scale = products_scale_of(t, job, part, p->col0 + at);
            UNROLL
            for (int q = 0; q < RESULTS / 4; q++)
                UNROLL
            for (int e = 0; e < 4; e++)
                if (q < quads(s) && place(s, q) % s.tn + e == at && (!adds || q / wide == r))
                    x[q * 4 + e] = products_scaled(scale, x[q * 4 + e], elements,
                                                   p->any ? p->run[place(s, q) + e] : 0.0f, p->any);
        }
    }
}

DEVICE void clear(float *x)
{
    UNROLL
    for (int i = 0; i < RESULTS; i++)
        x[i] = 0.0f;
}

/* One element of the summed axis: x += a b, all of a thread's results. */
DEVICE void step(float *x, const float *a, const float *b, shape s)
{
    const int rows = s.tm / SIDE, cols = s.tn / SIDE;
    float left[8], right[8];
    UNROLL
    for (int i = 0; i < 8; i += 4)
        if (i < rows)
            products_take4(left + i, a + i * SIDE + (int)threadIdx.x / SIDE * 4);
    UNROLL
    for (int j = 0; j < 8; j += 4)
        if (j < cols)
            products_take4(right + j, b + j * SIDE + (int)threadIdx.x % SIDE * 4);
    UNROLL
    for (int i = 0; i < 8; i++)
        UNROLL
    for (int j = 0; j < 8; j++)
        if (i < rows && j < cols)
            x[i * cols + j] = fmaf(left[i], right[j], x[i * cols + j]);
}

/* `n` elements of what lies in shared memory. */
DEVICE void steps(float *x, float *odd, const float *a, const float *b, int32_t n, shape s)
{
    const int lda = s.tm + GAP, ldb = s.tn + GAP, other = s.order == PRODUCTS_PAIRS;
    if (n == DEEP) {
        ROLLED
        for (int i = 0; i < DEEP; i += 8) /* more at once takes registers that sm_120 has not */
            UNROLL
        for (int j = 0; j < 8; j++) {
            const int k = i + (j ^ other);
            step(s.order == PRODUCTS_TILES && j % 2 == 1 ? odd : x, a + k * lda, b + k * ldb, s);
        }
        return;
    }
    for (int i = 0; i < n; i++) { /* never of tiles */
        const int k = i ^ other;
        step(x, a + k * lda, b + k * ldb, s);
    }
}

/* ---- sums ---- */

/* Stores a finished sum, by whole rows. */
DEVICE void store(const sheaf__products_job *job, float *root, const progress *p, const float *x,
                  shape s)
{
    keep(p->run, x, s);
    sync_threads();
    ROLLED
    for (int i = (int)threadIdx.x * 8; i < s.tm * s.tn; i += THREADS * 8)
        products_store_8(job, root, p->row0 + i / s.tn, p->col0 + i % s.tn, p->run + i);
    sync_threads();
}

/* The end of a slice, whose sum is x. */
DEVICE void end_slice(const sheaf__products_table *t, const sheaf__products_job *job,
                      const sheaf__products_part *part, progress *p, float *x, shape s)
{
    for (int i = 0; i < part->adds; i++)
        add_kept(x, p->wait + (int64_t)--p->level * s.tm * s.tn, s);
    if (part->out < 0)
        keep(p->wait + (int64_t)p->level++ * s.tm * s.tn, x, s);
    else
        store(job, job->roots ? t->root[job->root + part->out] : NULL, p, x, s);
    p->any = false;
}

DEVICE operand side(const sheaf__products_job *job, const sheaf__products_part *part,
                    const progress *p, bool right)
{
    operand o;
    o.data = right ? part->b : part->a;
    o.ld = right ? part->ldb : part->lda;
    o.row0 = right ? p->col0 : p->row0;
    o.rows = right ? job->n : job->m;
    o.k = part->k;
    o.turned = right ? part->b_kn : part->a_km;
    o.even = right ? part->b_even : part->a_even;
    o.type = right ? part->b_type : job->dtype;
    return o;
}

/* The end of a chunk of `tiles`, its sum in *x: of a block's last one the block's sum is in *x. */
DEVICE void end_chunk(float *x, float *odd, const progress *p, bool first, bool last, shape s)
{
    UNROLL
    for (int i = 0; i < RESULTS; i++)
        x[i] = x[i] + odd[i];
    if (!first) {
        add_kept(x, p->chunks, s);
    } else {
        UNROLL
        for (int i = 0; i < RESULTS; i++)
            x[i] = 0.0f + x[i];
    }
    if (last)
        return;
    keep(p->chunks, x, s);
    clear(x);
    clear(odd);
}

/* A part's elements, through two buffers in shared memory. What is left in x is the slice's sum if
 * the part ends. */
DEVICE void add_part(float *x, const sheaf__products_table *t, const sheaf__products_job *job,
                     const sheaf__products_part *part, progress *p, shape s)
{
    const operand left = side(job, part, p, false), right = side(job, part, p, true);
    const int words = DEEP * (s.tm + GAP), both = words + DEEP * (s.tn + GAP);
    const int unit = s.order == PRODUCTS_TILES ? PRODUCTS_CHUNK : DEEP;
    const int32_t n = (part->k + unit - 1) / unit * (unit / DEEP);
    float odd[RESULTS];
    products_run a = fetch(&left, s.tm, 0), b = fetch(&right, s.tn, 0);
    put(p->operands, &a, &left, s.tm);
    put(p->operands + words, &b, &right, s.tn);
    sync_threads();
    for (int32_t i = 0; i < n; i++) {
        const int32_t in_block = i % (PRODUCTS_BLOCK / DEEP), k0 = i * DEEP;
        const float *from = p->operands + i % 2 * both;
        const bool last = i + 1 == n, ends = last || in_block == PRODUCTS_BLOCK / DEEP - 1;
        if (in_block == 0) {
            clear(x);
            clear(odd);
        }
        if (!last) {
            a = fetch(&left, s.tm, k0 + DEEP);
            b = fetch(&right, s.tn, k0 + DEEP);
        }
        steps(x, odd, from, from + words, products_steps(s.order, part->k - k0, DEEP), s);
        if (!last) {
            float *to = p->operands + (i + 1) % 2 * both;
            put(to, &a, &left, s.tm);
            put(to + words, &b, &right, s.tn);
        }
        sync_threads();
        if (s.order == PRODUCTS_TILES && i % 2 == 1)
            end_chunk(x, odd, p, in_block == 1, ends, s);
        if (ends && part->scaled > 0)
            add_scaled(x, t, job, part, p, s);
        else if (ends && p->any)
            add_kept(x, p->run, s);
        if (ends && !(last && part->ends))
            keep(p->run, x, s);
        p->any = p->any || ends;
    }
}

DEVICE void tile(const sheaf__products_table *t, const sheaf__products_job *job, progress *p,
                 shape s)
{
    float x[RESULTS];
    p->level = 0;
    p->any = false;
    for (int32_t i = 0; i < job->parts; i++) {
        const sheaf__products_part *part = &t->part[job->first + i];
        if (part->k > 0) {
            add_part(x, t, job, part, p, s);
        } else {
            clear(x);
            if (p->any)
                add_kept(x, p->run, s);
        }
        if (part->ends)
            end_slice(t, job, part, p, x, s);
    }
}

DEVICE void products_as(const sheaf__products_table *t, products_order order, int tm, int tn)
{
    shape s;
    s.order = order;
    s.tm = tm;
    s.tn = tn;
    progress p;
    p.run = (float *)(void *)shared_memory;
    p.chunks = p.run + tm * tn;
    p.operands = p.run + tm * tn * (order == PRODUCTS_TILES ? 2 : 1);
    p.wait = t->waiting + (int64_t)blockIdx.x * t->waits * tm * tn;
    for (int32_t i = (int32_t)blockIdx.x; i < t->tiles; i += (int32_t)gridDim.x) {
        const sheaf__products_job *job = products_job(t, i);
        const products_tile at = products_tile_at(job, i - job->tile0);
        p.row0 = at.row * tm;
        p.col0 = at.col * tn;
        tile(t, job, &p, s);
    }
}

KERNEL(products_plain, sheaf__products_table, THREADS)
{
    products_as(a, PRODUCTS_PLAIN, 128, 128);
}
KERNEL(products_plain_small, sheaf__products_table, THREADS)
{
    products_as(a, PRODUCTS_PLAIN, 64, 64);
}
KERNEL(products_pairs, sheaf__products_table, THREADS)
{
    products_as(a, PRODUCTS_PAIRS, 128, 128);
}
KERNEL(products_pairs_small, sheaf__products_table, THREADS)
{
    products_as(a, PRODUCTS_PAIRS, 64, 64);
}
KERNEL(products_tiles, sheaf__products_table, THREADS)
{
    products_as(a, PRODUCTS_TILES, 128, 64);
}
KERNEL(products_tiles_small, sheaf__products_table, THREADS)
{
    products_as(a, PRODUCTS_TILES, 64, 64);
}
