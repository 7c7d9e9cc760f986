/* products_codes.c - products of a few rows with weights of 4 bits, by tensor cores, in the orders
 * mma8 and mma16 (products.h): those that generate text.
 *
 * A block has the results of 16 columns for 8 rows, as one instruction has them, W being its first
 * operand. Its first warps bring W, each 16 rows by 128 elements of k at a time: codes from global
 * memory, two steps ahead, values to shared memory, as they lie in the registers of the
 * instruction. The last warp multiplies, and reads x. What is no whole unit of codes is brought
 * element by element. Elements behind a part's k are zeros, which change no sum. */
#include "ops/devices/gpu/kernels/codes_value.h"
#include "ops/devices/gpu/kernels/products_finish.h"

enum {
    BRING = 4, /* warps that bring W */
    THREADS = (BRING + 1) * 32,
    UNIT = 128, /* elements of k of such a warp */
    STEP = BRING * UNIT,
    ROWS = 8,
    COLS = 16,
    RESULTS = ROWS * COLS,
    BUFFER = STEP / 16 * 32 * 16 /* bytes of a step: of 16 elements of k 16 bytes a lane */
};

/* ---- shared memory: two buffers, tables ---- */

DEVICE char *buffer_at(int buffer)
{
    return shared_memory + buffer * BUFFER;
}

DEVICE float *tables(void)
{
    return (float *)(void *)(shared_memory + 2 * BUFFER);
}

DEVICE const float *table_of(int codes)
{
    return tables() + 16 * codes;
}

DEVICE void fill_tables(void)
{
    const int thread = (int)threadIdx.x;
    if (thread < 16 * SHEAF__CODES) {
        const sheaf__codes codes = (sheaf__codes)(thread / 16);
        const uint32_t code = (uint32_t)thread % 16;
        tables()[thread] = codes == SHEAF__INT4 ? (float)code : sheaf__code_value(codes, code);
    }
    sync_threads();
}

/* ---- steps of k of all parts of a job ---- */

typedef struct place {
    const sheaf__products_table *table;
    const sheaf__products_job *job;
    int32_t row, col; /* of the tile */
} place;

typedef struct step {
    int32_t part, k;
} step;

/* The first one at or behind `s`; its part is the job's last plus one where there are no more. */
DEVICE step step_from(const place *p, step s)
{
    const int32_t end = p->job->first + p->job->parts;
    while (s.part < end && s.k >= p->table->part[s.part].k) {
        s.part++;
        s.k = 0;
    }
    return s;
}

DEVICE bool is_step(const place *p, step s)
{
    return s.part < p->job->first + p->job->parts;
}

DEVICE step step_behind(const place *p, step s)
{
    s.k += STEP;
    return step_from(p, s);
}

/* ---- W ---- */

/* Codes of a lane: 32 elements of two rows, eight apart, and what scales them. */
typedef struct codes_held {
    quad code[2];
    float scale[2], zero[2];
} codes_held;

/* The lane's row of the tile, of those that there are. */
DEVICE int32_t own_row(const place *p, int i)
{
    const int32_t row = p->col + (int32_t)threadIdx.x % 32 / 4 + i * 8;
    return row < p->job->n ? row : p->job->n - 1;
}

/* Whether all elements of a unit are there, each 32 in one group: then lanes take whole words. */
DEVICE bool is_whole(const place *p, const sheaf__products_part *part, int32_t k)
{
    return part->coded && k + UNIT <= part->k && p->table->codes[part->ldb].even;
}

DEVICE void fetch_codes(codes_held *c, const place *p, const sheaf__products_part *part, int32_t k)
{
    const sheaf__codes_matrix *m = &p->table->codes[part->ldb];
    const int32_t col = part->chain * PRODUCTS_CHAIN + k + (int32_t)threadIdx.x % 4 * 32;
    UNROLL
    for (int i = 0; i < 2; i++) {
        const int64_t row = m->row0 + own_row(p, i);
        const codes_row r = codes_row_at(m, row);
        const int32_t group = codes_group(m, &r, col);
        c->code[i] = load_quad(m->code + row * m->stride + col / 2);
        c->scale[i] = codes_scale(m, &r, row, group, m->map);
        c->zero[i] = m->codes == SHEAF__INT4 ? codes_zero(m, row, group) : 0.0f;
    }
}

/* Those of this warp of a step, if its part has codes. */
DEVICE void fetch_step(codes_held *c, const place *p, step s)
{
    const int32_t k = s.k + (int32_t)threadIdx.x / 32 * UNIT;
    if (!is_step(p, s))
        return;
    const sheaf__products_part *part = &p->table->part[s.part];
    if (is_whole(p, part, k))
        fetch_codes(c, p, part, k);
}

/* Of a lane's four words, eight elements each, those elements that each lane of four wants: bytes d
 * of all for lane d. In the order in which they are exchanged: that for lane (own ^ r) is to[r]. */
DEVICE void sort_codes(uint32_t *to, const quad *q)
{
    const int t = (int)threadIdx.x % 4;
    uint32_t x[4];
    UNROLL
    for (int d = 0; d < 4; d++)
        x[d] = (q->word[0] >> d * 8 & 255) | (q->word[1] >> d * 8 & 255) << 8 |
               (q->word[2] >> d * 8 & 255) << 16 | (q->word[3] >> d * 8 & 255) << 24;
    UNROLL
    for (int d = 0; d < 4; d++)
        to[d] = t & 1 ? x[d ^ 1] : x[d];
    UNROLL
    for (int d = 0; d < 4; d++)
        x[d] = to[d];
    UNROLL
    for (int d = 0; d < 4; d++)
        to[d] = t & 2 ? x[d ^ 2] : x[d];
}

/* The value of the code at `shift` of a word: by the byte of the table, one instruction less. */
DEVICE float number_of(uint32_t word, int shift, const float *table)
{
    const uint32_t byte = (shift < 2 ? word << (2 - shift) : word >> (shift - 2)) & 60;
    return *(const float *)(const void *)((const char *)table + byte);
}

/* The two elements of the byte at `shift`. */
DEVICE uint32_t pair_of(uint32_t word, int shift, float scale, float zero, const float *table,
                        bool zeros, sheaf_dtype dtype)
{
    const float low = number_of(word, shift, table), high = number_of(word, shift + 4, table);
    return halves_of(sheaf__kept_product(zeros ? low - zero : low, scale),
                     sheaf__kept_product(zeros ? high - zero : high, scale), dtype);
}

/* 16 elements of k of both rows, from the bytes at `shift`, as the instruction wants them. */
DEVICE void lay_sixteen(void *to, const uint32_t *word, const codes_held *c, int shift,
                        const float *table, bool zeros, sheaf_dtype dtype)
{
    quad q;
    UNROLL
    for (int i = 0; i < 4; i++)
        q.word[i] = pair_of(word[i % 2], shift + i / 2 * 8, c->scale[i % 2], c->zero[i % 2], table,
                            zeros, dtype);
    store_quad(to, q);
}

/* Lane t of four has elements 32 t up to 32 t + 31 of the unit, and wants of each 16 the elements
 * 2 t, 2 t + 1, 2 t + 8, 2 t + 9. */
DEVICE void lay_codes(char *to, const codes_held *c, const float *table, bool zeros,
                      sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32;
    uint32_t sent[2][4];
    sort_codes(sent[0], &c->code[0]);
    sort_codes(sent[1], &c->code[1]);
    UNROLL
    for (int r = 0; r < 4; r++) {
        uint32_t word[2];
        codes_held of;
        UNROLL
        for (int i = 0; i < 2; i++) {
            word[i] = (uint32_t)shuffle_xor_i((int32_t)sent[i][r], r);
            of.scale[i] = shuffle_xor(c->scale[i], r);
            of.zero[i] = zeros ? shuffle_xor(c->zero[i], r) : 0.0f;
        }
        UNROLL
        for (int h = 0; h < 2; h++)
            lay_sixteen(to + (((lane % 4 ^ r) * 2 + h) * 32 + lane) * 16, word, &of, h * 16, table,
                        zeros, dtype);
    }
}

/* Elements k and k + 1 of a row, of `end`: [rows, k] or, across, [k, rows]. even: rows begin at
 * multiples of 16 bytes, and k is even. */
DEVICE uint32_t pair_at(const uint16_t *x, int64_t ld, bool across, bool even, int64_t row,
                        int32_t k, int32_t end)
{
    if (even && !across && k + 1 < end)
        return *(const uint32_t *)(const void *)(x + row * ld + k);
    const int64_t at = across ? k * ld + row : row * ld + k;
    uint32_t pair = k < end ? x[at] : 0;
    if (k + 1 < end)
        pair |= (uint32_t)x[at + (across ? ld : 1)] << 16;
    return pair;
}

/* Elements `at` and at + 1 of a row of codes, up to column `end`. */
DEVICE uint32_t coded_pair(const sheaf__codes_matrix *m, int64_t row, int32_t at, int32_t end,
                           sheaf_dtype dtype)
{
    float v[2] = { 0, 0 };
    const codes_row r = codes_row_at(m, row);
    UNROLL
    for (int e = 0; e < 2; e++)
        if (at + e < end)
            v[e] = codes_value(m, &r, row, at + e);
    return halves_of(v[0], v[1], dtype);
}

/* The elements that no lane has words of. */
DEVICE void lay_others(char *to, const place *p, const sheaf__products_part *part, int32_t k,
                       sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32;
    const int32_t chain = part->chain * PRODUCTS_CHAIN;
    ROLLED
    for (int i = 0; i < UNIT / 4; i++) {
        const int32_t at = k + i / 4 * 16 + lane % 4 * 2 + i / 2 % 2 * 8, row = own_row(p, i % 2);
        const sheaf__codes_matrix *m = &p->table->codes[part->ldb];
        uint32_t *word = (uint32_t *)(void *)(to + (i / 4 * 32 + lane) * 16) + i % 4;
        *word = part->coded ? coded_pair(m, m->row0 + row, chain + at, chain + part->k, dtype)
                            : pair_at((const uint16_t *)part->b, part->ldb, part->b_kn,
                                      part->b_even, row, at, part->k);
    }
}

DEVICE void lay_step(int buffer, const codes_held *c, const place *p, step s, sheaf_dtype dtype)
{
    const int warp = (int)threadIdx.x / 32;
    const sheaf__products_part *part = &p->table->part[s.part];
    char *to = buffer_at(buffer) + warp * (BUFFER / BRING);
    const int32_t k = s.k + warp * UNIT;
    if (k >= part->k)
        return;
    if (!is_whole(p, part, k)) {
        lay_others(to, p, part, k, dtype);
        return;
    }
    const int codes = p->table->codes[part->ldb].codes;
    if (codes == SHEAF__INT4)
        lay_codes(to, c, table_of(codes), true, dtype);
    else
        lay_codes(to, c, table_of(codes), false, dtype);
}

/* All steps of a tile; returns the buffer of the next one. */
DEVICE int bring(int buffer, const place *p, sheaf_dtype dtype)
{
    codes_held now, next;
    const step begin = { p->job->first, 0 };
    step s = step_from(p, begin);
    fetch_step(&now, p, s);
    step behind = is_step(p, s) ? step_behind(p, s) : s;
    fetch_step(&next, p, behind);
    ROLLED
    for (; is_step(p, s); buffer ^= 1) {
        lay_step(buffer, &now, p, s, dtype);
        now = next;
        s = behind;
        if (is_step(p, behind))
            behind = step_behind(p, behind);
        fetch_step(&next, p, behind);
        sync_threads();
    }
    return buffer;
}

/* ---- x, and sums ---- */

typedef struct sums {
    float sum[4];
    float *waiting; /* of this lane: [..][32][4] */
} sums;

DEVICE void multiply_sixteen(float *sum, const char *w, const uint32_t *b, sheaf_dtype dtype)
{
    const quad a = load_quad(w + threadIdx.x % 32 * 16);
    if (dtype == SHEAF_F16)
        mma_f16(sum, a.word, b);
    else
        mma_bf16(sum, a.word, b);
}

/* A unit's elements from k on; of x words where all are there and even. */
DEVICE void multiply_unit(float *sum, const char *w, const place *p,
                          const sheaf__products_part *part, int32_t k, sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32;
    const int32_t row = p->row + lane / 4, end = part->k;
    const bool there = row < p->job->m, across = part->a_km, even = part->a_even;
    const uint16_t *x = (const uint16_t *)part->a;
    k += lane % 4 * 2;
    if (even && !across && k + UNIT <= end + lane % 4 * 2) {
        const uint32_t *at =
            (const uint32_t *)(const void *)(x + (there ? row : 0) * part->lda + k);
        uint32_t b[UNIT / 16][2];
        UNROLL
        for (int j = 0; j < UNIT / 8; j++)
            b[j / 2][j % 2] = there ? at[j * 4] : 0;
        UNROLL
        for (int j = 0; j < UNIT / 16; j++)
            multiply_sixteen(sum, w + j * 512, b[j], dtype);
        return;
    }
    ROLLED
    for (int j = 0; j < UNIT / 16; j++) {
        uint32_t b[2] = { 0, 0 };
        UNROLL
        for (int i = 0; i < 2; i++)
            if (there)
                b[i] = pair_at(x, part->lda, across, even, row, k + j * 16 + i * 8, end);
        multiply_sixteen(sum, w + j * 512, b, dtype);
    }
}

DEVICE void store_results(const sums *t, const place *p, const sheaf__products_part *part)
{
    const int lane = (int)threadIdx.x % 32;
    float *root = p->job->roots ? p->table->root[p->job->root + part->out] : NULL;
    UNROLL
    for (int i = 0; i < 4; i++) {
        const int32_t row = p->row + lane % 4 * 2 + i % 2, col = p->col + lane / 4 + i / 2 * 8;
        if (row < p->job->m && col < p->job->n)
            products_store(p->job, root, row, col, t->sum[i]);
    }
}

DEVICE void end_part(sums *t, const place *p, const sheaf__products_part *part)
{
    UNROLL
    for (int i = 0; i < 4; i++) { /* a denormal is a zero of its sign */
        const uint32_t bits = sheaf__bits(t->sum[i]);
        t->sum[i] = sheaf__float((bits & 0x7f800000) == 0 ? bits & 0x80000000u : bits);
    }
    ROLLED
    for (int a = 0; a < part->adds; a++) {
        t->waiting -= RESULTS;
        UNROLL
        for (int i = 0; i < 4; i++)
            t->sum[i] = t->waiting[i] + t->sum[i];
    }
    if (part->out >= 0) {
        store_results(t, p, part);
    } else {
        UNROLL
        for (int i = 0; i < 4; i++)
            t->waiting[i] = t->sum[i];
        t->waiting += RESULTS;
    }
    UNROLL
    for (int i = 0; i < 4; i++)
        t->sum[i] = 0.0f;
}

DEVICE int multiply(int buffer, const place *p, sheaf_dtype dtype)
{
    const sheaf__products_table *table = p->table;
    const int32_t end = p->job->first + p->job->parts;
    sums t;
    t.waiting =
        table->waiting + (int64_t)blockIdx.x * table->waits * RESULTS + threadIdx.x % 32 * 4;
    UNROLL
    for (int i = 0; i < 4; i++)
        t.sum[i] = 0.0f;
    ROLLED
    for (int32_t i = p->job->first; i < end; i++) {
        const sheaf__products_part *part = &table->part[i];
        ROLLED
        for (int32_t k = 0; k < part->k; k += UNIT) {
            if (k % STEP == 0)
                sync_threads();
            multiply_unit(t.sum, buffer_at(buffer) + k % STEP * (BUFFER / STEP), p, part, k, dtype);
            buffer ^= k % STEP == STEP - UNIT || k + UNIT >= part->k;
        }
        if (part->ends)
            end_part(&t, p, part);
    }
    return buffer;
}

DEVICE void products_by(const sheaf__products_table *a, sheaf_dtype dtype)
{
    int buffer = 0;
    fill_tables();
    ROLLED
    for (int32_t tile = (int32_t)blockIdx.x; tile < a->tiles; tile += (int32_t)gridDim.x) {
        place p;
        p.table = a;
        p.job = products_job(a, tile);
        const products_tile at = products_tile_at(p.job, tile - p.job->tile0);
        p.row = at.row * ROWS;
        p.col = at.col * COLS;
        if (threadIdx.x < BRING * 32)
            buffer = bring(buffer, &p, dtype);
        else
            buffer = multiply(buffer, &p, dtype);
    }
}

KERNEL(products_codes_bf16, sheaf__products_table, THREADS)
{
    products_by(a, SHEAF_BF16);
}
KERNEL(products_codes_f16, sheaf__products_table, THREADS)
{
    products_by(a, SHEAF_F16);
}
