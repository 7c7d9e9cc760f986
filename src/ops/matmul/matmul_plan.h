/* matmul_plan.h - how jobs are cut into areas (matmul_products.c), and what computes an area
 * (matmul_area.c). */
#pragma once

#include "ops/matmul/matmul_private.h"

#define MM_MOST_COLS                                                                               \
    512 /* of an area: a block of B, half a MiB, should stay in the second-level cache */
#define MM_LONE_COLS 2048 /* for a B that is read once, see lone_band() */
#define MM_GROUP 16       /* bands of A transposed at a time */
/* Words of scratch for rows of A: bands of 14 rows of floats, or of 32 rows of pairs. */
#define MM_SCRATCH_A (MM_GROUP * 32 * MM_STRIDE_PAIRS)
#define MM_SCRATCH_NEAR (MM_DEPTH * MM_NEAR) /* floats */

/* ---- the order of slices and additions ---- */

typedef struct mm_visit {
    int at;     /* position among the job's slices; -1 holds nothing, which counts as +0 */
    int merges; /* subtrees that this slice completes */
    int slot;   /* slot of its sum */
    int root;   /* root that it completes: index among this rank's, else -1 */
} mm_visit;

typedef struct mm_route {
    mm_visit visit[SHEAF_MAX_SLICES];
    int visits, slots;
} mm_route;

/* ---- jobs and their areas ---- */

typedef struct mm_plan {
    const sheaf__product *job;
    int jobs; /* that run side by side, by runs_beside() of matmul_products.c */
    const mm_engine *engine;
    bool transposed;      /* B^T A^T is computed */
    int64_t m, n;         /* of what is computed; jobs side by side begin at whole panels */
    int64_t rows, cols;   /* of an area at most */
    bool packing;         /* some B has to be brought into panels */
    bool thin;            /* A is read where it lies */
    bool narrow;          /* and B is [k][lanes of a vector], as it has no more columns */
    bool outer;           /* both are, as few rows of A^T meet B */
    bool stacked;         /* the jobs read the same columns of one B, not one A */
    bool spread;          /* B is spread before use */
    bool groups;          /* codes in groups are summed so */
    bool sums;            /* rows begin with sums of their elements */
    int takes;            /* MM_COMPRESSED, MM_CODES: forms of B that kernels read as they are */
    size_t scratch_b;     /* words of scratch for B */
    int64_t down, across; /* areas; bands and panels are dealt out evenly */
    int64_t first;        /* task of the batch */
} mm_plan;

/* Term t of a job as it is computed: the job's own, or in `room` where it is transposed. A pointer,
 * as copies of structs just written make the processor wait until its stores are done. */
static inline const sheaf__term *mm_term(const mm_plan *plan, const sheaf__product *job, int t,
                                         sheaf__term *room)
{
    const sheaf__term *term = &job->term[t];
    if (!plan->transposed)
        return term;
    room->a = term->b;
    room->lda = term->ldb;
    room->a_km = term->form == SHEAF__B_KN;
    room->form = term->a_km ? SHEAF__B_KN : SHEAF__B_NK;
    room->b = term->a;
    room->ldb = term->lda;
    room->w = NULL;
    room->k = term->k;
    return room;
}

static inline int64_t mm_columns(const mm_plan *plan, const sheaf__product *job)
{
    return plan->transposed ? job->m : job->n;
}

/* Jobs that an area computes for each of its columns. */
static inline int mm_stacked(const mm_plan *plan)
{
    return plan->stacked ? plan->jobs : 1;
}

/* Whether operands are read where they lie: one block of k at a time. */
static inline bool mm_in_place(const mm_plan *plan)
{
    return plan->thin || plan->outer;
}

/* Whether rows are so few that no stretch is prefetched, as mm_engine says; tiles that take codes
 * ask for theirs themselves. */
static inline bool mm_unasked(const mm_plan *plan)
{
    return plan->m <= plan->engine->most_unasked || (plan->takes & MM_CODES) != 0;
}

/* Rows of a band of an area, at most: those of a register tile. */
static inline int mm_band_rows(const mm_plan *plan)
{
    if (plan->engine->spread && !plan->spread)
        return plan->takes & MM_CODES ? plan->engine->takes : plan->engine->few;
    return plan->thin    ? plan->engine->direct
           : plan->outer ? plan->engine->outer_rows
                         : plan->engine->rows;
}

/* sheaf__mm_area - computes area `index` of a plan in one thread's scratch. */
void sheaf__mm_area(const mm_plan *plan, const mm_route *route, int64_t index, void *scratch);
