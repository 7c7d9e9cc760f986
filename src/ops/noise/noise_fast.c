/* noise_fast.c - noise_ref.c on vectors. */
#include "ops/columns.h"

#include "base/random.h"
#include "ops/draw.h"
#include "ops/each.h"

/* With exponent 1 the upper 23 bits are 2 + k / 2^22; each step is exact. */
SHEAF__INLINE vec noise_unit(veci word)
{
    const vec x = v_float(vi_add(vi_right(word, 9), vi_set(0x40000000)));
    return v_add(v_sub(x, v_set(3)), v_set(0x1p-23f));
}

SHEAF__INLINE void noise_part(void *x, int64_t at, int64_t count, const uint32_t *word, vec half,
                              sheaf_dtype dtype)
{
    const vec noise = v_mul(half, noise_unit(vi_load(word)));
    v_write(x, at, v_add(v_read(x, at, count, dtype), noise), count, dtype);
}

SHEAF__INLINE void noise(void *x, int64_t ldx, int64_t rows, int64_t cols, const sheaf__noise *how,
                         sheaf_dtype dtype)
{
    uint32_t word[64];
    for (int64_t r = 0; r < rows; r++) {
        const vec half = v_set(how->half[r]);
        uint32_t key[2];
        sheaf__random_row_key(key, how->seed, how->purpose, how->step, (uint64_t)how->sample[r],
                              (uint64_t)how->position[r]);
        for (int64_t c = 0; c < cols; c += 16) {
            if (c % 64 == 0)
                sheaf__draw_group(word, (uint64_t)c / 64, key);
            noise_part(x, r * ldx + c, cols - c < 16 ? cols - c : 16, word + c % 64, half, dtype);
        }
    }
}

void SHEAF__FAST(noise)(void *x, int64_t ldx, int64_t rows, int64_t cols, const sheaf__noise *how,
                        sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, noise(x, ldx, rows, cols, how, of));
}
