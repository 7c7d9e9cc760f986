/* products_wide.c - products by wgmma and the copy engine of sm_90a, in the order mma16
 * (products.h).
 *
 * A cluster of two blocks has a tile of 256 rows, a block 128 of them, each of its last two
 * warpgroups 64, in registers. One thread of the first warpgroup has steps of 64 of k copied into a
 * ring of stages, of all parts and tiles that follow; what a tile has of B comes to both blocks,
 * half of it copied by each. Operands lie there as they are stored, [m, k] or [k, m]. What is
 * outside of an operand is zero there: along k this changes no sum, and the rest is not stored.
 *
 * All parts of these jobs begin at multiples of 16 bytes, as do their rows; maps of part p are
 * map[2 p] of A and map[2 p + 1] of B (launch_products_wide.c). */
#include "ops/devices/gpu/cuda/hopper.h"
#include "ops/devices/gpu/kernels/products_finish.h"

enum { THREADS = 384, WARPS = 8, ROWS = 128, A_BYTES = ROWS * WIDE_ROW * 2, SUMS = 128 };

/* Constants of a kernel. */
typedef struct shape {
    int cols;   /* of the tile: 256 or 128 */
    int stages; /* of the ring */
    /* Floats of each warp behind the ring: a pass of results on their way to memory, or, if
     * `keeps`, a sum that waits, which makes room for them. */
    int room;
    bool keeps; /* the top of the waiting sums is in registers, the lowest one there */
} shape;

DEVICE shape shape_of(int cols, int stages, int room, bool keeps)
{
    shape s;
    s.cols = cols;
    s.stages = stages;
    s.room = room;
    s.keeps = keeps;
    return s;
}

DEVICE int b_bytes(shape s)
{
    return s.cols * WIDE_ROW * 2;
}

/* Results of a thread. */
DEVICE int sums_of(shape s)
{
    return s.cols / 2;
}

/* ---- the ring ---- */

/* A stage is full when all that it was to get has come, and empty when both warpgroups of both
 * blocks have read it. */
typedef struct ring {
    uint64_t *full, *empty;
    int stage, phase;
} ring;

DEVICE char *stage_at(const ring *r, shape s)
{
    return shared_memory + r->stage * (A_BYTES + b_bytes(s));
}

DEVICE void next_stage(ring *r, shape s)
{
    if (++r->stage == s.stages) {
        r->stage = 0;
        r->phase ^= 1;
    }
}

DEVICE float *room_of(int warp, shape s)
{
    return (float *)(void *)(shared_memory + s.stages * (A_BYTES + b_bytes(s))) + warp * s.room;
}

DEVICE ring make_ring(shape s)
{
    ring r;
    r.full = (uint64_t *)(void *)room_of(WARPS, s);
    r.empty = r.full + s.stages;
    r.stage = r.phase = 0;
    if (threadIdx.x == 0) {
        for (int i = 0; i < s.stages; i++) {
            mbarrier_init(r.full + i, 1);
            mbarrier_init(r.empty + i, 4);
        }
        mbarriers_made();
    }
    sync_cluster();
    return r;
}

/* ---- global to shared memory ---- */

/* The place of a block's results. */
typedef struct place {
    const sheaf__products_job *job;
    int32_t row, col;
} place;

DEVICE place place_of(const sheaf__products_table *t, int32_t tile, int rank, shape s)
{
    place p;
    p.job = products_job(t, tile);
    const products_tile at = products_tile_at(p.job, tile - p.job->tile0);
    p.row = (at.row * 2 + rank) * ROWS;
    p.col = at.col * s.cols;
    return p;
}

DEVICE void copy_a(char *to, const sheaf__tensor_map *map, uint64_t *full, int32_t row, int32_t k,
                   bool across)
{
    if (!across) {
        copy_box(to, map, full, k, row, 0);
        return;
    }
    for (int i = 0; i < ROWS / 64; i++)
        copy_box(to + i * WIDE_BOX, map, full, row + i * 64, k, 0);
}

/* The block's half of it, for both. */
DEVICE void copy_b(char *to, const sheaf__tensor_map *map, uint64_t *full, int32_t col, int32_t k,
                   bool across, int rank, shape s)
{
    const int half = s.cols / 2;
    to += rank * half * WIDE_ROW * 2;
    col += rank * half;
    if (!across) {
        copy_box(to, map, full, k, col, 3);
        return;
    }
    for (int i = 0; i < half / 64; i++)
        copy_box(to + i * WIDE_BOX, map, full, col + i * 64, k, 3);
}

DEVICE void copy_part(ring *r, const sheaf__products_part *part, const sheaf__tensor_map *map,
                      const place *p, int rank, shape s)
{
    const int32_t end = part->k;
    const bool a_km = part->a_km, b_kn = part->b_kn;
    for (int32_t k = 0; k < end; k += WIDE_ROW, next_stage(r, s)) {
        char *to = stage_at(r, s);
        uint64_t *full = r->full + r->stage;
        mbarrier_wait(r->empty + r->stage, r->phase ^ 1);
        mbarrier_expect(full, A_BYTES + b_bytes(s));
        copy_a(to, map, full, p->row, k, a_km);
        copy_b(to + A_BYTES, map + 1, full, p->col, k, b_kn, rank, s);
    }
}

/* By one thread. */
DEVICE void copy_all(const sheaf__products_table *t, ring *r, shape s)
{
    const int rank = cluster_rank();
    const sheaf__products_job *seen = NULL; /* the job of the maps */
    for (int32_t tile = blockIdx.x / 2; tile < t->tiles; tile += gridDim.x / 2) {
        const place p = place_of(t, tile, rank, s);
        const int32_t end = p.job->first + p.job->parts;
        for (int32_t i = p.job->first; i < end; i++) {
            const sheaf__tensor_map *map = t->map + (int64_t)i * 2;
            if (p.job != seen && t->part[i].k > 0) {
                map_seen(map);
                map_seen(map + 1);
            }
            copy_part(r, &t->part[i], map, &p, rank, s);
        }
        seen = p.job;
    }
}

/* ---- products of a warpgroup ---- */

DEVICE void wide(float *d, uint64_t a, uint64_t b, bool a_km, bool b_kn, shape s, sheaf_dtype dtype)
{
    if (s.cols == 256 && dtype == SHEAF_F16)
        wide_f16_256(d, a, b, 1, a_km, b_kn);
    else if (s.cols == 256)
        wide_bf16_256(d, a, b, 1, a_km, b_kn);
    else if (dtype == SHEAF_F16)
        wide_f16_128(d, a, b, 1, a_km, b_kn);
    else
        wide_bf16_128(d, a, b, 1, a_km, b_kn);
}

/* It is read, and may be written again: to both blocks, which wrote to it. */
DEVICE void give_back(const ring *r, int stage)
{
    if (threadIdx.x % 128 < 2)
        mbarrier_arrive(r->empty + stage, threadIdx.x % 128);
}

/* A part's elements, of which there are some; a_km and b_kn are constants, as a branch among the
 * products of a step would wait for them. */
DEVICE void multiply_as(float *d, ring *r, int32_t end, bool a_km, bool b_kn, shape s,
                        sheaf_dtype dtype)
{
    int before = -1;
    ROLLED
    for (int32_t k = 0; k < end; k += WIDE_ROW, next_stage(r, s)) {
        const char *a = stage_at(r, s) + ((int)threadIdx.x / 128 - 1) * WIDE_BOX,
                   *b = stage_at(r, s) + A_BYTES;
        mbarrier_wait(r->full + r->stage, r->phase);
        wide_begin();
        UNROLL
        for (int i = 0; i < WIDE_ROW; i += 16)
            wide(d, a_km ? wide_across(a, i) : wide_operand(a, i),
                 b_kn ? wide_across(b, i) : wide_operand(b, i), a_km, b_kn, s, dtype);
        wide_commit();
        if (before >= 0) {
            wide_wait(1);
            give_back(r, before);
        }
        before = r->stage;
    }
    wide_wait(0);
    give_back(r, before);
}

DEVICE void multiply(float *d, ring *r, const sheaf__products_part *part, shape s,
                     sheaf_dtype dtype)
{
    if (part->a_km && part->b_kn)
        multiply_as(d, r, part->k, true, true, s, dtype);
    else if (part->a_km)
        multiply_as(d, r, part->k, true, false, s, dtype);
    else if (part->b_kn)
        multiply_as(d, r, part->k, false, true, s, dtype);
    else
        multiply_as(d, r, part->k, false, false, s, dtype);
    wide_sums(d, sums_of(s));
}

/* ---- sums ---- */

typedef struct waiting {
    float held[SUMS / 2];
    bool holds;  /* the top of the waiting sums is in `held` */
    int below;   /* how many wait below it */
    float *room; /* of this thread, in the table's: [..][sums_of()][256] */
} waiting;

/* The thread's part of what waits at `level` from the bottom, whose results are `hop` apart. */
typedef struct kept {
    float *at;
    int hop;
} kept;

DEVICE kept level_of(const waiting *t, int level, shape s)
{
    kept k;
    k.hop = 256;
    if (s.keeps && level == 0) {
        k.at = room_of((int)threadIdx.x / 32 - 4, s) + threadIdx.x % 32;
        k.hop = 32;
    } else {
        k.at = t->room + (int64_t)(level - s.keeps) * sums_of(s) * 256;
    }
    return k;
}

DEVICE void add_waiting(float *sum, waiting *t, shape s)
{
    if (s.keeps && t->holds) {
        UNROLL
        for (int i = 0; i < SUMS / 2; i++)
            sum[i] = t->held[i] + sum[i];
        t->holds = false;
        return;
    }
    const kept k = level_of(t, --t->below, s);
    UNROLL
    for (int i = 0; i < sums_of(s); i++)
        sum[i] = k.at[i * k.hop] + sum[i];
}

DEVICE void let_wait(const float *sum, waiting *t, shape s)
{
    if (!s.keeps || t->holds) {
        const kept k = level_of(t, t->below++, s);
        UNROLL
        for (int i = 0; i < sums_of(s); i++)
            k.at[i * k.hop] = s.keeps ? t->held[i % (SUMS / 2)] : sum[i];
    }
    t->holds = true;
    UNROLL
    for (int i = 0; s.keeps && i < SUMS / 2; i++)
        t->held[i] = sum[i];
}

/* ---- results ---- */

/* Columns of a pass, and what keeps its rows apart. */
enum { PASS = 64, LD = PASS + 4 };

/* A chain's denormal sum becomes a zero of its sign; as a summand of others it is one anyway. */
DEVICE float flushed(float x)
{
    wide_sums(&x, 1); /* else its bits are taken among products */
    const uint32_t bits = sheaf__bits(x);
    return sheaf__float((bits & 0x7f800000) == 0 ? bits & 0x80000000u : bits);
}

/* A warp's 16 rows of a pass, whose sums are from `sum` on. */
DEVICE void lay_pass(float *rows, const float *sum)
{
    const int lane = (int)threadIdx.x % 32;
    rows += lane / 4 * LD + lane % 4 * 2;
    UNROLL
    for (int i = 0; i < PASS / 2; i++)
        rows[i / 2 % 2 * 8 * LD + i / 4 * 8 + i % 2] = flushed(sum[i]);
}

/* By way of the warp's room, where they are rows. */
DEVICE void store_sums(const float *sum, const place *p, float *root, shape s)
{
    const int warp = (int)threadIdx.x / 32 - 4, lane = (int)threadIdx.x % 32;
    float *rows = room_of(warp, s);
    ROLLED
    for (int pass = 0; pass < s.cols / PASS; pass++) {
        sync_warp();
        if (pass == 0)
            lay_pass(rows, sum);
        else if (pass == 1)
            lay_pass(rows, sum + PASS / 2);
        else if (pass == 2)
            lay_pass(rows, sum + PASS);
        else
            lay_pass(rows, sum + PASS / 2 * 3);
        sync_warp();
        ROLLED
        for (int i = lane; i < 16 * (PASS / 8); i += 32)
            products_store_8(p->job, root, p->row + warp * 16 + i / 8,
                             p->col + pass * PASS + i % 8 * 8, rows + i / 8 * LD + i % 8 * 8);
    }
    sync_warp();
}

/* ---- a tile ---- */

DEVICE void clear(float *sum, int n)
{
    UNROLL
    for (int i = 0; i < n; i++)
        sum[i] = 0.0f;
}

DEVICE void end_part(const sheaf__products_table *a, float *sum, waiting *t, const place *p,
                     const sheaf__products_part *part, shape s)
{
    const int adds = part->adds, out = part->out;
    ROLLED
    for (int i = 0; i < adds; i++)
        add_waiting(sum, t, s);
    if (out < 0) {
        let_wait(sum, t, s);
    } else {
        store_sums(sum, p, p->job->roots ? a->root[p->job->root + out] : NULL, s);
        clear(t->held, SUMS / 2); /* nothing waits: so they take no registers meanwhile */
    }
    clear(sum, sums_of(s));
}

DEVICE void run_tile(const sheaf__products_table *a, waiting *t, ring *r, const place *p, shape s,
                     sheaf_dtype dtype)
{
    const int32_t end = p->job->first + p->job->parts;
    float sum[SUMS];
    clear(sum, sums_of(s));
    ROLLED
    for (int32_t i = p->job->first; i < end; i++) {
        const sheaf__products_part *part = &a->part[i];
        if (part->k > 0)
            multiply(sum, r, part, s, dtype);
        if (part->ends)
            end_part(a, sum, t, p, part, s);
    }
}

DEVICE void products_by(const sheaf__products_table *a, shape s, sheaf_dtype dtype)
{
    ring r = make_ring(s);
    if (threadIdx.x < 128) {
        registers_fewer(40);
        if (threadIdx.x == 0)
            copy_all(a, &r, s);
    } else {
        registers_more(232);
        waiting t;
        clear(t.held, SUMS / 2);
        t.holds = false;
        t.below = 0;
        t.room = a->waiting + (int64_t)blockIdx.x * a->waits * ROWS * s.cols + threadIdx.x - 128;
        for (int32_t tile = blockIdx.x / 2; tile < a->tiles; tile += gridDim.x / 2) {
            const place p = place_of(a, tile, cluster_rank(), s);
            run_tile(a, &t, &r, &p, s, dtype);
        }
    }
    sync_warp();
    sync_cluster(); /* the other block writes and arrives here no more */
}

KERNEL_OF_CLUSTERS(products_wide_256_bf16, sheaf__products_table, THREADS, 2)
{
    products_by(a, shape_of(256, 4, 16 * LD, false), SHEAF_BF16);
}
KERNEL_OF_CLUSTERS(products_wide_256_f16, sheaf__products_table, THREADS, 2)
{
    products_by(a, shape_of(256, 4, 16 * LD, false), SHEAF_F16);
}
KERNEL_OF_CLUSTERS(products_wide_128_bf16, sheaf__products_table, THREADS, 2)
{
    products_by(a, shape_of(128, 5, 2048, true), SHEAF_BF16);
}
KERNEL_OF_CLUSTERS(products_wide_128_f16, sheaf__products_table, THREADS, 2)
{
    products_by(a, shape_of(128, 5, 2048, true), SHEAF_F16);
}
