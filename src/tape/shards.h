/* shards.h - values whose rows are divided over the ranks, each holding those of its own: the
 * residual stream, and all that is made of it row by row (Megatron's sequence parallelism,
 * Korthikanti et al. 2022). A layer cut along its input leaves the rows of its sum with their
 * ranks; one cut along its output gathers them for its products, forward and, where the weight
 * trains, once more backward. Forward it reads the rows that every rank had before they were
 * divided instead, while those are there (all_ahead). Of LoRA's dA, ranks send sums over blocks of
 * rows where those are less. Rows are independent of each other, so that no byte depends on it. */
#pragma once

#include "tape/tape.h"

/* Rows that a sum over rows adds by themselves (docs/contract.md, sections 1.1 and 1.4). */
enum { SHEAF__ROWS_BLOCK = 256 };

typedef struct sheaf__row_shards {
    int64_t rows, most;                  /* of all ranks together, of this one */
    int64_t first[SHEAF_MAX_SLICES + 1]; /* by rank; [ranks]: the end */
    bool blocks;                         /* each rank has whole ones */
    /* Of rows that a run chooses: how many of all are there, and of this rank's; known, as `first`,
     * once they are chosen. NULL: all are. */
    const int64_t *there;
    int64_t here;
} sheaf__row_shards;

/* sheaf__all_rows - the rows of a value on all ranks together, as far as they are there. */
static inline int64_t sheaf__all_rows(const sheaf__value *v)
{
    if (v->shards == NULL)
        return sheaf__rows_present(v);
    return v->shards->there == NULL ? v->shards->rows : *v->shards->there;
}
/* sheaf__first_row - of those that this rank has. */
static inline int64_t sheaf__first_row(const sheaf__context *c, const sheaf__value *v)
{
    return v->shards == NULL ? 0 : v->shards->first[c->rank];
}

/* sheaf__row_shards_new - even shares, of whole blocks where no rank has a sixteenth more than its
 * share then, or where they must be; the tape's. */
const sheaf__row_shards *sheaf__row_shards_new(sheaf__tape *tape, int64_t rows, bool blocks);
/* sheaf__value_shard - y, which nothing holds yet, is divided so; NULL: whole. */
void sheaf__value_shard(sheaf__value *y, const sheaf__row_shards *shards);

/* sheaf__record_shard - this rank's rows of x, which all have. Backward gathers. */
sheaf__value *sheaf__record_shard(sheaf__tape *tape, sheaf__value *x,
                                  const sheaf__row_shards *shards);
/* sheaf__record_whole - all rows of x on every rank; x itself where it is so. */
sheaf__value *sheaf__record_whole(sheaf__tape *tape, sheaf__value *x);

/* sheaf__gather_shards - all rows of v, of which `own` are this rank's, in scratch memory,
 * which the caller frees, after a failure too (it may be NULL then). */
sheaf_status *sheaf__gather_shards(void **all, sheaf__context *context, const sheaf__value *v,
                                   const void *own);

/* sheaf__gather_shards_to - into `all`, the caller's. */
sheaf_status *sheaf__gather_shards_to(void *all, const sheaf__context *context,
                                      const sheaf__value *v, const void *own);

/* sheaf__shard_blocks - first[r]: how many blocks lie before those of rank r, which has whole ones;
 * [ranks]: all. sheaf__shard_block - rows of this rank's i-th, counted from its first row. */
void sheaf__shard_blocks(int64_t *first, const sheaf__context *context, const sheaf__value *x);
sheaf_range sheaf__shard_block(const sheaf__context *context, const sheaf__value *x,
                               const int64_t *first, int64_t i);

/* sheaf__sum_shards - adds to `sums`, dw or db or both, the sums over all rows of x; where they are
 * divided by blocks, of which each is one rank's. Operands are of own rows; without dw sums of dy
 * alone. */
struct sheaf__norm_weight; /* ops/tensor/norm.h */
sheaf_status *sheaf__sum_shards(sheaf__context *context, const struct sheaf__norm_weight *sums,
                                const sheaf__value *x);
