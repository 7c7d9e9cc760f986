/* products_mma.c - products by tensor cores, in the orders mma8 and mma16 (products.h).
 *
 * A block has a tile of results, a warp a part of it in registers. Steps of k go through a ring of
 * slots in shared memory: while one is multiplied, copies of those ahead are under way, also of the
 * parts that follow. Operands lie there as they are stored, [m, k] or [k, m], in chunks of 16 bytes
 * whose order in a line is turned from line to line, so that neither copies nor ldmatrix meet in a
 * bank. What is outside of an operand is zero there: along k this changes no sum, and the rest is
 * not stored. */
#include "ops/devices/gpu/kernels/products_finish.h"

/* Constants of a kernel. */
typedef struct shape {
    int rows, cols; /* of the tile */
    int depth;      /* elements of k of a step */
    int m, n;       /* of a warp */
    int stages;
    bool waits; /* sums can wait, the youngest in registers */
} shape;

DEVICE shape shape_of(int rows, int cols, int depth, int m, int n, int stages, bool waits)
{
    shape s;
    s.rows = rows;
    s.cols = cols;
    s.depth = depth;
    s.m = m;
    s.n = n;
    s.stages = stages;
    s.waits = waits;
    return s;
}

DEVICE int threads_of(shape s)
{
    return s.rows / s.m * (s.cols / s.n) * 32;
}

DEVICE int slot_bytes(shape s)
{
    return (s.rows + s.cols) * s.depth * 2;
}

/* Byte of a chunk; a line has `chunks` of them. */
DEVICE uint32_t place(int line, int chunk, int chunks)
{
    const int turned = chunks >= 8 ? chunk ^ (line & 7) : chunk ^ (line >> 1 & 3);
    return (uint32_t)(line * chunks + turned) * 16;
}

/* ---- global to shared memory ---- */

/* A thread's copies of an operand's next step: chunks at one place of several lines, `hop` elements
 * apart. */
typedef struct operand {
    const uint16_t *at;
    int32_t hop, ahead; /* ahead: elements to the next step's */
    int32_t hops;       /* along its rows: lines of this thread that are there */
    uint32_t to;        /* byte of the first chunk in the slot's part */
    uint32_t how;       /* of enum how */
} operand;

enum how {
    ACROSS = 1, /* lines go along the operand's rows, not along k */
    EVEN = 2,   /* lines begin at multiples of 16 bytes */
    WHOLE = 4   /* EVEN, and along its rows the operand ends in no chunk of this thread */
};

typedef struct reader {
    operand a, b;
    int32_t part, left; /* left: elements of k; part -1: nothing is left to copy */
} reader;

/* Contents of shared memory behind the slots. */
typedef struct side {
    const sheaf__products_job *job;
    int32_t row, col, rows_left, cols_left; /* of the tile */
} side;

DEVICE side *side_of(shape s)
{
    return (side *)(shared_memory + s.stages * slot_bytes(s));
}

/* A thread's first chunk of an operand, and the lines from it to the next one. */
typedef struct chunk_of {
    int line, chunk, each;
} chunk_of;

DEVICE chunk_of chunk_here(bool across, int rows, shape s)
{
    const int chunks = across ? rows / 8 : s.depth / 8;
    chunk_of c;
    c.line = threadIdx.x / chunks;
    c.chunk = threadIdx.x % chunks;
    c.each = threads_of(s) / chunks;
    return c;
}

/* Results from `row` on, of `rows_left` that there are. */
DEVICE void begin_operand(operand *o, const void *from, int64_t ld, int32_t row, int32_t rows_left,
                          bool across, bool even, int rows, shape s)
{
    const chunk_of c = chunk_here(across, rows, s);
    const int32_t n = rows_left - (across ? c.chunk * 8 : c.line);
    const bool whole = even && !(across && n > 0 && n < 8);
    o->how = (across ? ACROSS : 0) | (even ? EVEN : 0) | (whole ? WHOLE : 0);
    o->at = (const uint16_t *)from + (across ? row : row * ld) + c.line * ld + c.chunk * 8;
    o->hop = (int32_t)ld * c.each;
    o->hops = across ? (n > 0 ? s.depth : 0) : (n + c.each - 1) / c.each;
    o->ahead = across ? (int32_t)ld * s.depth : s.depth;
    o->to = place(c.line, c.chunk, across ? rows / 8 : s.depth / 8);
}

DEVICE void begin_part(reader *r, const sheaf__products_part *p, shape s)
{
    const side *tile = side_of(s);
    r->left = p->k;
    begin_operand(&r->a, p->a, p->lda, tile->row, tile->rows_left, p->a_km, p->a_even, s.rows, s);
    begin_operand(&r->b, p->b, p->ldb, tile->col, tile->cols_left, p->b_kn, p->b_even, s.cols, s);
}

/* Of eight elements the first n; the others are zero. */
DEVICE void copy_eight(uint16_t *to, const uint16_t *from, int n)
{
    ROLLED
    for (int e = 0; e < 8; e++)
        to[e] = e < n ? from[e] : (uint16_t)0;
}

/* For an operand that ends within a chunk or a step, or is not EVEN: of `rows_left` rows and `left`
 * elements of k. */
DEVICE void copy_edge(const operand *o, char *to, int32_t left, int32_t rows_left, int rows,
                      shape s)
{
    const bool across = o->how & ACROSS;
    const chunk_of c = chunk_here(across, rows, s);
    const int most = rows * s.depth / 8 / threads_of(s);
    ROLLED
    for (int h = 0; h < most; h++) {
        const int line = c.line + h * c.each, n = line < (across ? left : rows_left)
                                                      ? (across ? rows_left : left) - c.chunk * 8
                                                      : 0;
        char *at = to + o->to + h * threads_of(s) * 16;
        const uint16_t *from = o->at + (int64_t)h * o->hop;
        if ((o->how & EVEN) && (n <= 0 || n >= 8))
            copy_16(at, (const void *)((uintptr_t)from & ~(uintptr_t)15), n > 0);
        else
            copy_eight((uint16_t *)at, from, n);
    }
}

DEVICE void copy_operand(operand *o, char *to, int32_t left, int32_t rows_left, int rows, shape s)
{
    const int most = rows * s.depth / 8 / threads_of(s), each = threads_of(s) * 16;
    if ((o->how & WHOLE) && left >= s.depth) {
        UNROLL
        for (int h = 0; h < most; h++)
            copy_16(to + o->to + h * each, o->at + (int64_t)h * o->hop, h < o->hops);
    } else {
        copy_edge(o, to, left, rows_left, rows, s);
    }
    o->at += o->ahead;
}

/* The next step of the parts up to one that gives a result, if there is one. */
DEVICE void copy_step(reader *r, int slot, const sheaf__products_part *part, shape s)
{
    char *to = shared_memory + slot * slot_bytes(s);
    if (r->part >= 0) {
        if (r->left > 0) {
            copy_operand(&r->a, to, r->left, side_of(s)->rows_left, s.rows, s);
            copy_operand(&r->b, to + s.rows * s.depth * 2, r->left, side_of(s)->cols_left, s.cols,
                         s);
        }
        r->left -= s.depth;
        if (r->left <= 0 && part[r->part].out >= 0)
            r->part = -1;
        else if (r->left <= 0)
            begin_part(r, &part[++r->part], s);
    }
    copies_commit();
}

/* ---- products of a warp ---- */

enum { OWN = 128 }; /* results of a thread, at most: of m16n8 [m/16][n/8][4] */

/* Address of the lane's rows for ldmatrix, in the operand's part of a slot: those of the warp's
 * first 16 lines (of 8 elements) for the first 16 elements of k. */
DEVICE uint32_t lane_a(int row, bool km, shape s)
{
    const int lane = threadIdx.x % 32;
    return km ? place(lane / 16 * 8 + lane % 8, row / 8 + lane / 8 % 2, s.rows / 8)
              : place(row + lane % 16, lane / 16, s.depth / 8);
}

DEVICE uint32_t lane_b(int col, bool kn, shape s)
{
    const int lane = threadIdx.x % 32;
    return kn ? place(lane % 16, col / 8 + lane / 16, s.cols / 8)
              : place(col + lane / 16 * 8 + lane % 8, lane / 8 % 2, s.depth / 8);
}

/* 16 x 16 elements: the i-th along the operand's rows, from element k on. */
DEVICE void load_part(uint32_t *r, const char *tile, uint32_t at, int i, int k, bool across,
                      int rows, shape s)
{
    if (across)
        load_transposed(r, tile + ((at ^ (uint32_t)(i * 32)) + (uint32_t)(k * rows * 2)));
    else
        load_matrices(r, tile + ((at ^ (uint32_t)(k * 2)) + (uint32_t)(i * 16 * s.depth * 2)));
}

DEVICE void multiply_as(float *sum, const char *slot, uint32_t a_at, uint32_t b_at, bool a_km,
                        bool b_kn, shape s, sheaf_dtype dtype)
{
    UNROLL
    for (int k = 0; k < s.depth; k += 16) {
        uint32_t b[4][4];
        UNROLL
        for (int j = 0; j < s.n / 16; j++)
            load_part(b[j], slot + s.rows * s.depth * 2, b_at, j, k, b_kn, s.cols, s);
        UNROLL
        for (int i = 0; i < s.m / 16; i++) {
            uint32_t a[4];
            load_part(a, slot, a_at, i, k, a_km, s.rows, s);
            UNROLL
            for (int j = 0; j < s.n / 8; j++) {
                float *d = &sum[(i * (s.n / 8) + j) * 4];
                if (dtype == SHEAF_F16)
                    mma_f16(d, a, &b[j / 2][j % 2 * 2]);
                else
                    mma_bf16(d, a, &b[j / 2][j % 2 * 2]);
            }
        }
    }
}

DEVICE void multiply(float *sum, const char *slot, uint32_t a_at, uint32_t b_at, bool a_km,
                     bool b_kn, shape s, sheaf_dtype dtype)
{
    if (a_km && b_kn)
        multiply_as(sum, slot, a_at, b_at, true, true, s, dtype);
    else if (a_km)
        multiply_as(sum, slot, a_at, b_at, true, false, s, dtype);
    else if (b_kn)
        multiply_as(sum, slot, a_at, b_at, false, true, s, dtype);
    else
        multiply_as(sum, slot, a_at, b_at, false, false, s, dtype);
}

/* ---- sums ---- */

typedef struct sums {
    float sum[OWN], held[OWN]; /* held: what waits on top, if `holds` */
    bool holds;
    float *waiting; /* of this thread, of what waits below: [..][results of a thread][threads] */
} sums;

/* A chain's end: what is denormal is a zero of its sign. */
DEVICE void end_chain(sums *t, shape s)
{
    UNROLL
    for (int i = 0; i < s.m * s.n / 32; i++) {
        const uint32_t bits = sheaf__bits(t->sum[i]);
        t->sum[i] = sheaf__float((bits & 0x7f800000) == 0 ? bits & 0x80000000u : bits);
    }
}

DEVICE void add_waiting(sums *t, shape s)
{
    const int n = s.m * s.n / 32;
    if (t->holds) {
        UNROLL
        for (int i = 0; i < n; i++)
            t->sum[i] = t->held[i] + t->sum[i];
        t->holds = false;
        return;
    }
    t->waiting -= n * threads_of(s);
    UNROLL
    for (int i = 0; i < n; i++)
        t->sum[i] = t->waiting[i * threads_of(s)] + t->sum[i];
}

DEVICE void let_wait(sums *t, shape s)
{
    const int n = s.m * s.n / 32;
    if (t->holds) {
        UNROLL
        for (int i = 0; i < n; i++)
            t->waiting[i * threads_of(s)] = t->held[i];
        t->waiting += n * threads_of(s);
    }
    t->holds = true;
    UNROLL
    for (int i = 0; i < n; i++)
        t->held[i] = t->sum[i];
}

DEVICE void clear(sums *t, shape s)
{
    UNROLL
    for (int i = 0; i < s.m * s.n / 32; i++)
        t->sum[i] = 0.0f;
}

/* `n` results of the thread, whose m16n8 begin at `row` and `col` of the warp's first one. */
DEVICE void lay_rows(float *rows, const float *sum, int n, int ld, shape s)
{
    UNROLL
    for (int i = 0; i < n; i++) {
        const int tile = i / 4 / (s.n / 8), j = i / 4 % (s.n / 8);
        rows[(tile * 16 + i % 4 / 2 * 8) * ld + j * 8 + i % 2] = sum[i];
    }
}

/* The tile's results, by way of shared memory, where they are rows; half of each warp's at once
 * where that has no room for more. */
DEVICE void store_tile(const sums *t, const sheaf__products_job *job, float *root, int32_t row0,
                       int32_t col0, shape s)
{
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, ld = s.cols + 8,
              parts = s.rows * ld * 4 > s.stages * slot_bytes(s) ? 2 : 1, high = s.m / parts,
              n = s.m * s.n / 32 / parts,
              at = (warp / (s.cols / s.n) * high + lane / 4) * ld + warp % (s.cols / s.n) * s.n +
                   lane % 4 * 2;
    float *rows = (float *)shared_memory;
    ROLLED
    for (int part = 0; part < parts; part++) {
        sync_threads();
        if (part == 0)
            lay_rows(rows + at, t->sum, n, ld, s);
        else
            lay_rows(rows + at, t->sum + n, n, ld, s);
        sync_threads();
        ROLLED
        for (int i = threadIdx.x; i < s.rows / parts * (s.cols / 8); i += threads_of(s)) {
            const int r = i / (s.cols / 8), c = i % (s.cols / 8) * 8;
            products_store_8(job, root, row0 + r / high * s.m + part * high + r % high, col0 + c,
                             rows + r * ld + c);
        }
    }
}

/* ---- a tile ---- */

/* Parts from `first` on, up to one that gives a result, which is left in t->sum. */
DEVICE int32_t sum_parts(sums *t, const sheaf__products_part *all, int32_t first, shape s,
                         sheaf_dtype dtype)
{
    const int warp = threadIdx.x / 32, m = warp / (s.cols / s.n) * s.m,
              n = warp % (s.cols / s.n) * s.n;
    sync_threads(); /* the slots are free, and the tile is known */
    reader r;
    r.part = first;
    begin_part(&r, &all[first], s);
    ROLLED
    for (int i = 0; i < s.stages - 1; i++)
        copy_step(&r, i, all, s);
    /* Without results; not known where registers are few. */
    const bool idle = s.waits && (m >= side_of(s)->rows_left || n >= side_of(s)->cols_left);
    int slot = 0;
    clear(t, s);
    ROLLED
    for (int32_t part = first;; part++) {
        const bool a_km = all[part].a_km, b_kn = all[part].b_kn;
        const uint32_t a_at = lane_a(m, a_km, s), b_at = lane_b(n, b_kn, s);
        int32_t left = all[part].k;
        ROLLED
        do { /* once where it has no elements, as copies are made */
            if (s.stages == 4)
                copies_wait(2);
            else
                copies_wait(1);
            sync_threads();
            copy_step(&r, slot == 0 ? s.stages - 1 : slot - 1, all, s);
            if (!idle && left > 0)
                multiply(t->sum, shared_memory + slot * slot_bytes(s), a_at, b_at, a_km, b_kn, s,
                         dtype);
            slot = slot + 1 == s.stages ? 0 : slot + 1;
            left -= s.depth;
        } while (left > 0);
        if (!all[part].ends)
            continue;
        end_chain(t, s);
        for (int i = 0; s.waits && i < all[part].adds; i++)
            add_waiting(t, s);
        if (all[part].out >= 0)
            return part;
        if (s.waits)
            let_wait(t, s);
        clear(t, s);
    }
}

/* The job's tile. */
DEVICE void run_tile(const sheaf__products_table *a, int32_t tile, shape s, sheaf_dtype dtype)
{
    const sheaf__products_job *job = products_job(a, tile);
    const products_tile at = products_tile_at(job, tile - job->tile0);
    side *to = side_of(s);
    if (threadIdx.x == 0) {
        to->job = job;
        to->row = at.row * s.rows;
        to->col = at.col * s.cols;
        to->rows_left = job->m - to->row;
        to->cols_left = job->n - to->col;
    }
    sums t;
    t.holds = false;
    t.waiting = a->waiting + (int64_t)blockIdx.x * a->waits * s.rows * s.cols + threadIdx.x;
    for (int32_t part = job->first;; part++) {
        part = sum_parts(&t, a->part, part, s, dtype);
        store_tile(&t, to->job, to->job->roots ? a->root[to->job->root + a->part[part].out] : NULL,
                   to->row, to->col, s);
        if (part + 1 == to->job->first + to->job->parts)
            break;
    }
    sync_threads(); /* all have seen the tile */
}

/* With waiting sums there may be fewer blocks than tiles. */
DEVICE void products_by(const sheaf__products_table *a, shape s, sheaf_dtype dtype)
{
    if (!s.waits)
        run_tile(a, blockIdx.x, s, dtype);
    for (int32_t tile = blockIdx.x; s.waits && tile < a->tiles; tile += gridDim.x)
        run_tile(a, tile, s, dtype);
}

/* clang-format off */
#define PRODUCTS(name, threads, rows, cols, depth, m, n, stages, waits)                            \
    KERNEL(name##_bf16, sheaf__products_table, threads)                                            \
    {                                                                                              \
        products_by(a, shape_of(rows, cols, depth, m, n, stages, waits), SHEAF_BF16);              \
    }                                                                                              \
    KERNEL(name##_f16, sheaf__products_table, threads)                                             \
    {                                                                                              \
        products_by(a, shape_of(rows, cols, depth, m, n, stages, waits), SHEAF_F16);               \
    }
/* clang-format on */

PRODUCTS(products_mma_128, TWICE(128), 128, 128, 32, 64, 64, 3, false)
PRODUCTS(products_mma_128_waits, 256, 128, 128, 32, 64, 32, 4, true)
PRODUCTS(products_mma_64, TWICE(128), 64, 64, 64, 32, 32, 3, true)
PRODUCTS(products_mma_32, TWICE(128), 32, 32, 128, 16, 16, 4, true)
