/* linear.c - kernels of what layers do beside their products (ops/tensor/linear.h). */
#include "ops/tensor/linear.h"
#include "base/philox.h"
#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/noise/noise.h"

KERNELS(finish, sheaf__finishing, 256)
{
    const int per = PER(dtype);
    const int64_t cols = a->cols, parts = (cols + per - 1) / per;
    int64_t part;
    const int64_t row = divide(own_index(), parts, &part), c = part * per;
    if (row >= a->rows)
        return;
    float y[MOST], other[MOST];
    load_some(y, a->sum, row * a->lds + c, row * a->lds + cols, SHEAF_F32, per);
    UNROLL
    for (int e = 0; e < per; e++)
        y[e] = a->alpha * y[e];
    if (a->by != NULL) {
        load_some(other, a->by, c, cols, SHEAF_F32, per);
        UNROLL
        for (int e = 0; e < per; e++)
            y[e] = other[e] * y[e];
    }
    if (a->bias != NULL) {
        load_some(other, a->bias, c, cols, SHEAF_F32, per);
        UNROLL
        for (int e = 0; e < per; e++)
            y[e] += other[e];
    }
    if (a->residual != NULL) {
        load_some(other, a->residual, row * a->ldr + c, row * a->ldr + cols, dtype, per);
        UNROLL
        for (int e = 0; e < per; e++)
            y[e] = rounded_one(y[e], dtype) + other[e];
    }
    store_some(a->y, row * a->ldy + c, row * a->ldy + cols, y, dtype, per);
}

KERNEL(magnitudes, sheaf__magnitudes, 256)
{
    if (own_index() < a->n)
        sheaf__magnitude(a, own_index());
}

/* ---- random numbers of a row ----
 *
 * A block has a row, whose key its first thread draws. Of each 64 logical channels a thread has two
 * neighbours, and those 16, 32 and 48 after them: the eight words of two blocks of Philox. */

DEVICE uint64_t row_key(uint64_t seed, uint64_t purpose, uint64_t step, int64_t sample,
                        int64_t position)
{
    uint64_t *key = (uint64_t *)shared_memory;
    if (threadIdx.x == 0)
        *key = sheaf__philox_row(seed, purpose, step, (uint64_t)sample, (uint64_t)position);
    sync_threads();
    return *key;
}

/* Words of two neighbouring channels, and those 16, 32, 48 after them. */
DEVICE void draw_some(uint32_t word[8], int64_t channel, uint64_t key)
{
    const uint64_t block = (uint64_t)(channel / 64 * 16 + channel % 64);
    sheaf__philox_draw(word, block, 0, key);
    sheaf__philox_draw(word + 4, block + 1, 0, key);
}

/* Two neighbouring elements, of columns c and c + 1; those outside [0, cols) are zeros, and not
 * stored. */
DEVICE void load_two(float *v, const void *row, int64_t c, int64_t cols, sheaf_dtype dtype)
{
    const bool both = c >= 0 && c + 1 < cols;
    if (dtype != SHEAF_F32 && both && (((uintptr_t)row + (uintptr_t)c * 2) & 3) == 0) {
        const uint32_t bits = *(const uint32_t *)((const uint16_t *)row + c);
        for (int h = 0; h < 2; h++) {
            const uint16_t half = (uint16_t)(bits >> 16 * h);
            v[h] = dtype == SHEAF_F16 ? widened_f16(half) : sheaf__from_bf16(half);
        }
        return;
    }
    UNROLL
    for (int h = 0; h < 2; h++)
        v[h] = c + h >= 0 && c + h < cols ? load_one(row, c + h, dtype) : 0;
}

DEVICE void store_two(void *row, int64_t c, int64_t cols, const float *v, sheaf_dtype dtype)
{
    const bool both = c >= 0 && c + 1 < cols;
    if (dtype != SHEAF_F32 && both && (((uintptr_t)row + (uintptr_t)c * 2) & 3) == 0) {
        *(uint32_t *)((uint16_t *)row + c) =
            half_of(v[0], dtype, false) | half_of(v[1], dtype, false) << 16;
        return;
    }
    UNROLL
    for (int h = 0; h < 2; h++)
        if (c + h >= 0 && c + h < cols)
            put_one(row, c + h, v[h], dtype, false);
}

/* y of a row x, whose first channel is `first`: dropped by `how`, or (NULL) with noise of at most
 * `half`. */
DEVICE void draw_row(void *y, const void *x, int64_t first, int64_t cols, uint64_t key,
                     const sheaf__dropout *how, float half, sheaf_dtype dtype)
{
    for (int64_t i = threadIdx.x;; i += blockDim.x) {
        const int64_t channel = (first / 64 + i / 8) * 64 + i % 8 * 2;
        if (channel >= first + cols)
            return;
        uint32_t word[8];
        draw_some(word, channel, key);
        UNROLL
        for (int w = 0; w < 4; w++) {
            const int64_t c = channel + 16 * w - first;
            float v[2];
            load_two(v, x, c, cols, dtype);
            UNROLL
            for (int h = 0; h < 2; h++) {
                const uint32_t drawn = word[h * 4 + w];
                const float value =
                    how != NULL ? v[h] * how->scale : v[h] + half * sheaf__noise_of(drawn);
                v[h] = how == NULL || drawn >= how->threshold ? value : 0.0f;
            }
            store_two(y, c, cols, v, dtype);
        }
    }
}

KERNELS(dropout, sheaf__dropping, 256)
{
    const sheaf__dropout *how = &a->how;
    const int64_t row = blockIdx.x, at = row * a->cols;
    const uint64_t key =
        row_key(how->seed, how->purpose, how->step, how->sample[row], how->position[row]);
    draw_row(element_at(a->y, at, dtype), element_at(a->x, at, dtype), how->channel0, a->cols, key,
             how, 0, dtype);
}

KERNELS(noise, sheaf__noisy, 256)
{
    const sheaf__noise *how = &a->how;
    const int64_t row = blockIdx.x;
    const uint64_t key =
        row_key(how->seed, how->purpose, how->step, how->sample[row], how->position[row]);
    void *x = element_at(a->x, row * a->cols, dtype);
    draw_row(x, x, 0, a->cols, key, NULL, how->half[row], dtype);
}
