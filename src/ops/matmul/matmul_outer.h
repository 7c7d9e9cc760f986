/* matmul_outer.h - products of few rows that read both operands where they lie, A stored [k, m] and
 * B [k, n]: gradients of LoRA factors, sums over the rows of a batch. Included behind
 * matmul_kernel.h.
 *
 * A step adds the outer product of a row of A and a row of B. Of A it reads some neighbouring
 * words, of B one line for each vector of a tile; nothing is copied. Rows of B lie so far apart
 * that no processor foresees the next, so a tile asks for the lines of the tile beside it; and as
 * rows often are a power of two apart, which puts them into few sets of a cache, all tiles go
 * through some rows before the next rows, their chains waiting in the near slots.
 *
 * The file that includes it defines OUTER_ROWS, the most rows of a tile, and OUTER_TILES, the tile
 * functions and `outer_tiles`, which a band's rows select. */
#include "ops/matmul/matmul_plan.h"

#define OUTER_STEPS 64
_Static_assert(OUTER_ROWS *MM_MOST_COLS <= MM_SCRATCH_NEAR, "the chains of a band are near");

/* Rows of a tile: with fewer than half of them several vectors, so that no sum waits for itself. */
static inline __attribute__((always_inline)) void
tile_outer(const operands *in, const store *s, const int rows, const int vectors, const bool part)
{
    vec c[OUTER_ROWS][MOST_VECTORS];
    const char *a = in->a, *b = (const char *)in->b;
    UNROLL for (int r = 0; r < rows; r++) UNROLL for (int v = 0; v < vectors; v++) c[r][v] =
        in->from == NULL ? ZERO() : LOAD(in->from + (r * vectors + v) * LANES);
    for (int64_t k = 0; k < in->steps; k++, a += in->stride, b += in->ldb) {
        vec bk[MOST_VECTORS];
        UNROLL for (int v = 0; v < vectors; v++)
        {
            const float *at = (const float *)b + v * LANES;
            __builtin_prefetch((const char *)at + in->ahead, 0, 2);
            bk[v] = part ? LOAD_PART(at, in->cols) : LOAD(at);
        }
        UNROLL for (int r = 0; r < rows; r++)
        {
            const vec ak = WORD(a + r * 4);
            UNROLL for (int v = 0; v < vectors; v++) c[r][v] = STEP(c[r][v], ak, bk[v]);
        }
    }
    put(c, s, rows, vectors);
}

typedef struct outer_row {
    tile_fn *whole, *part; /* `part`: the first in->cols < LANES columns of one vector */
    int vectors;           /* of `whole` */
} outer_row;

#define OUTER(rows, vectors)                                                                       \
    static void outer_##rows(const operands *in, const store *s)                                   \
    {                                                                                              \
        tile_outer(in, s, rows, vectors, false);                                                   \
    }                                                                                              \
    static void outer_part_##rows(const operands *in, const store *s)                              \
    {                                                                                              \
        tile_outer(in, s, rows, 1, true);                                                          \
    }
#define OUTER_ROW(rows, vectors)                                                                   \
    {                                                                                              \
        outer_##rows, outer_part_##rows, vectors                                                   \
    }

OUTER_TILES

/* Steps of a block for all columns of a band; `first` and `last` in it. */
static void outer_steps(const mm_band *band, bool first, bool last)
{
    const outer_row *row = &outer_tiles[band->rows - 1];
    operands in = {
        .a = band->a, .stride = band->stride, .ldb = band->ldb, .steps = band->pass->steps
    };
    for (int64_t j = 0, width; j < band->cols; j += width) {
        const int64_t left = band->cols - j;
        const bool whole = left >= row->vectors * LANES;
        tile_fn *run = whole ? row->whole : row->part;
        float *chains = band->near + j * band->rows;
        width = whole ? row->vectors * LANES : LANES;
        in.cols = mm_min(left, LANES);
        in.ahead = left > width ? width * 4 : in.steps * in.ldb - j * 4;
        in.from = first ? NULL : chains;
        if (last) {
            run_tile(band, &in, j, run, (int)(width / LANES));
            continue;
        }
        in.b = band->b[0] + j;
        run(&in, &(store){ .to = chains, .ldto = width, .across = MM_PANEL });
    }
}

void NAME(mm_outer)(const mm_band *band)
{
    mm_pass pass = *band->pass;
    const uint32_t *b = band->b[0];
    mm_band part = *band;
    part.pass = &pass;
    part.b = &b;
    for (int64_t left = band->pass->steps;; left -= OUTER_STEPS) {
        pass.steps = mm_min(left, OUTER_STEPS);
        outer_steps(&part, left == band->pass->steps, left == pass.steps);
        if (left == pass.steps)
            return;
        part.a = (const char *)part.a + OUTER_STEPS * band->stride;
        b += OUTER_STEPS * band->ldb / 4;
    }
}
