/* dropout_fast.c - dropout_ref.c on vectors. */
#include "ops/columns.h"

#include "base/random.h"
#include "ops/draw.h"
#include "ops/each.h"

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
            sheaf__draw_group(word, channel / 64, key);
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
    V_BY_TYPE(dtype, dropout(y, x, ldx, rows, cols, how, of));
}
