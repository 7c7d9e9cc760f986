/* rows.c - kernels of operations that move rows (ops/tensor/rows.h). */
#include "ops/tensor/rows.h"
#include "ops/devices/gpu/kernels/rows.h"
#include "ops/devices/gpu/kernels/vectors.h"

KERNELS(move_rows, sheaf__move, 256)
{
    const int per = PER(dtype);
    const int64_t cols = a->cols, parts = (cols + per - 1) / per;
    int64_t part;
    const int64_t r = divide(own_index(), parts, &part), c = part * per;
    if (r >= a->rows)
        return;
    const int64_t wide = sheaf__row_map_at(&a->map, r), to = (a->gather ? r : wide) * cols,
                  from = (a->gather ? wide : r) * cols;
    float v[MOST] = { 0 }, was[MOST];
    if (a->row != NULL || a->from == NULL) {
        if (a->row != NULL)
            load_some(v, a->row, c, cols, SHEAF_F32, per);
        move_some(a->to, to + c, to + cols, v, dtype, per);
    } else if (a->add) {
        load_some(was, a->to, to + c, to + cols, dtype, per);
        load_some(v, a->from, from + c, from + cols, dtype, per);
        UNROLL
        for (int e = 0; e < per; e++)
            v[e] = was[e] + v[e];
        store_some(a->to, to + c, to + cols, v, dtype, per);
    } else {
        copy_some(a->to, to + c, a->from, from + c, cols - c, dtype);
    }
}

/* Place of this thread's word in both; false: there are no more. */
DEVICE bool word_of_box(const boxes_arguments *a, int64_t *to, int64_t *from)
{
    int64_t at[3], word;
    int64_t box = divide(divide(own_index(), a->words, &word), a->count[2], &at[2]);
    at[0] = divide(box, a->count[1], &at[1]);
    if (at[0] >= a->count[0])
        return false;
    *to = *from = word;
    UNROLL
    for (int i = 0; i < 3; i++) {
        *to += at[i] * a->ld_dst[i];
        *from += at[i] * a->ld_src[i];
    }
    return true;
}

KERNEL(copy_boxes, boxes_arguments, 256)
{
    int64_t to, from;
    if (!word_of_box(a, &to, &from))
        return;
    if (a->word == 16)
        store_quad((char *)a->dst + 16 * to, load_quad((const char *)a->src + 16 * from));
    else if (a->word == 4)
        ((uint32_t *)a->dst)[to] = ((const uint32_t *)a->src)[from];
    else
        ((uint16_t *)a->dst)[to] = ((const uint16_t *)a->src)[from];
}

/* A block turns 32 x 32 numbers, by way of shared memory. */
KERNEL(transpose, sheaf__transposed, 256)
{
    enum { SIDE = 32, ROW = SIDE + 1, STEP = 8 };
    float *tile = (float *)shared_memory;
    const int x = threadIdx.x % SIDE, y = threadIdx.x / SIDE;
    const int64_t across = (a->cols + SIDE - 1) / SIDE;
    int64_t at;
    const int64_t rows = divide(blockIdx.x, across, &at) * SIDE, cols = at * SIDE;
    UNROLL
    for (int i = y; i < SIDE; i += STEP)
        if (rows + i < a->rows && cols + x < a->cols)
            tile[i * ROW + x] = a->from[(rows + i) * a->cols + cols + x];
    sync_threads();
    UNROLL
    for (int i = y; i < SIDE; i += STEP)
        if (cols + i < a->cols && rows + x < a->rows)
            a->to[(cols + i) * a->rows + rows + x] = tile[x * ROW + i];
}
