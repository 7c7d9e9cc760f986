/* matmul_plan.h - how jobs are cut into areas (matmul_products.c), and what computes an area
 * (matmul_area.c). */
#ifndef SHEAF_OPS_MATMUL_PLAN_H
#define SHEAF_OPS_MATMUL_PLAN_H

#include "ops/matmul/matmul_private.h"

#define MM_MOST_COLS                                                                               \
    512 /* of an area: a block of B, half a MiB, should stay in the second-level cache */
#define MM_GROUP 16 /* bands of A transposed at a time */
/* Words of scratch for rows of A: bands of 14 rows of floats, or of 32 rows of pairs. */
#define MM_SCRATCH_A (MM_GROUP * 32 * MM_STRIDE_PAIRS)
#define MM_SCRATCH_NEAR (MM_DEPTH * MM_NEAR) /* floats */

/* ---- the order of slices and additions ---- */

typedef struct mm_visit {
    int at;     /* position among the job's slices; -1 holds nothing, which counts as +0 */
    int merges; /* subtrees that this slice completes */
    int slot;   /* where its sum grows */
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
    int64_t rows, cols;   /* of an area */
    bool packing;         /* some B has to be brought into panels */
    bool thin;            /* A is read where it lies */
    bool spread;          /* B is spread before use */
    size_t scratch_b;     /* words of scratch for B */
    int64_t down, across; /* areas */
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

/* sheaf__mm_area - computes area `index` of a plan in one thread's scratch. */
void sheaf__mm_area(const mm_plan *plan, const mm_route *route, int64_t index, void *scratch);

#endif
