/* dropout_fast.c - dropout_ref.c on vectors: sixteen Philox blocks side by side give the
 * numbers of 64 consecutive logical channels, in order. */
#include "ops/columns.h"

#include "base/random.h"
#include "ops/vec.h"

/* The words of channels 64*group .. 64*group + 63. */
SHEAF__INLINE void draw_group(uint32_t word[64], uint64_t group, const uint32_t key[2])
{
    const uint64_t block = group * 16; /* a multiple of 16: the low word never carries */
    veci c0 = vi_add(vi_set((uint32_t)block), vi_counting());
    veci c1 = vi_set((uint32_t)(block >> 32)), c2 = vi_set(0), c3 = c2;
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        veci low0, high0, low1, high1;
        vi_multiply(&low0, &high0, c0, 0xD2511F53);
        vi_multiply(&low1, &high1, c2, 0xCD9E8D57);
        c0 = vi_xor(vi_xor(high1, c1), vi_set(k0));
        c1 = low1;
        c2 = vi_xor(vi_xor(high0, c3), vi_set(k1));
        c3 = low0;
        k0 += 0x9E3779B9;
        k1 += 0xBB67AE85;
    }
    vi_store(word, c0);
    vi_store(word + 16, c1);
    vi_store(word + 32, c2);
    vi_store(word + 48, c3);
}

SHEAF__INLINE void drop_part(void *y, const void *x, int64_t at, int64_t count,
                             const uint32_t *word, vec scale, veci threshold, sheaf_dtype dtype)
{
    const vec kept = v_mul(v_read(x, at, count, dtype), scale);
    v_write(y, at, v_select(vi_at_least(vi_load(word), threshold), kept, v_zero()), count, dtype);
}

SHEAF__INLINE void dropout(void *y, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                           const sheaf__dropout *how, sheaf_dtype dtype)
{
    uint32_t word[64 + 15]; /* a load at its end may read on */
    memset(word, 0, sizeof word);
    for (int64_t r = 0; r < rows; r++) {
        uint32_t key[2];
        sheaf__random_row_key(key, how->seed, how->purpose, how->step, (uint64_t)how->sample[r],
                              (uint64_t)how->position[r]);
        for (int64_t c = 0; c < cols;) {
            const uint64_t channel = (uint64_t)(how->channel0 + c);
            int64_t from = (int64_t)(channel % 64);
            const int64_t end = cols - c < 64 - from ? cols : c + 64 - from;
            draw_group(word, channel / 64, key);
            for (; c + 16 <= end; c += 16, from += 16)
                drop_part(y, x, r * ldx + c, 16, word + from, v_set(how->scale),
                          vi_set(how->threshold), dtype);
            if (c < end)
                drop_part(y, x, r * ldx + c, end - c, word + from, v_set(how->scale),
                          vi_set(how->threshold), dtype);
            c = end;
        }
    }
}

void SHEAF__FAST(dropout)(void *y, const void *x, int64_t ldx, int64_t rows, int64_t cols,
                          const sheaf__dropout *how, sheaf_dtype dtype)
{
    if (dtype == SHEAF_BF16)
        dropout(y, x, ldx, rows, cols, how, SHEAF_BF16);
    else if (dtype == SHEAF_F16)
        dropout(y, x, ldx, rows, cols, how, SHEAF_F16);
    else
        dropout(y, x, ldx, rows, cols, how, SHEAF_F32);
}
