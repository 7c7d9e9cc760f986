/* rope_ref.c - each pair (a, b) = (x[j], x[j + rot/2]) of a head becomes
 *                (a c - b s, b c + a s), c and s of the row's position.
 *
 * Source: Su et al. 2021, eq. 34, in the half-split layout of the Hugging Face
 * files. Products and sum are float32, with one rounding at the end. A rotation
 * is orthogonal, so its gradient is the rotation by -s. Columns rot and up of
 * a head stay as they are. */
#include "ops/columns.h"

#include "ops/math/round.h"

void sheaf__rope_ref(void *x, int64_t ldx, const float *cos, const float *sin, const int32_t *pos,
                     int64_t rows, int64_t heads, int64_t head_dim, int64_t rot, bool inverse,
                     sheaf_dtype dtype)
{
    const int64_t half = rot / 2;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; h < heads; h++)
            for (int64_t j = 0; j < half; j++) {
                const int64_t at = r * ldx + h * head_dim + j;
                const float c = cos[pos[r] * half + j];
                const float s = inverse ? -sin[pos[r] * half + j] : sin[pos[r] * half + j];
                const float a = sheaf__load(x, at, dtype), b = sheaf__load(x, at + half, dtype);
                sheaf__store(x, at, a * c - b * s, dtype);
                sheaf__store(x, at + half, b * c + a * s, dtype);
            }
}

/* Pairs (a, b) = (x[2i], x[2i + 1]), with a cos and sin for each of the two columns, as
 * tables over a grid have them (others have each angle twice):
 *     (a c[2i] - b s[2i], b c[2i + 1] + a s[2i + 1]).
 * The gradient is the transpose, which takes the sin of the other column. */
void sheaf__rope_pairs_ref(void *x, int64_t ldx, const float *cos, const float *sin,
                           const int32_t *pos, int64_t rows, int64_t heads, int64_t head_dim,
                           int64_t rot, bool inverse, sheaf_dtype dtype)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t h = 0; pos[r] >= 0 && h < heads; h++)
            for (int64_t j = 0; j < rot; j += 2) {
                const int64_t at = r * ldx + h * head_dim + j;
                const float *c = cos + pos[r] * rot + j, *s = sin + pos[r] * rot + j;
                const float a = sheaf__load(x, at, dtype), b = sheaf__load(x, at + 1, dtype);
                sheaf__store(x, at, inverse ? a * c[0] + b * s[1] : a * c[0] - b * s[0], dtype);
                sheaf__store(x, at + 1, inverse ? b * c[1] - a * s[0] : b * c[1] + a * s[1], dtype);
            }
}
