/* launch_products.h - which kernel runs a product (kernels/products.h), between their
 * launch and the files that know a family of kernels. */
#pragma once

#include "ops/devices/gpu/launch.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_private.h"

/* One kernel of products. Jobs of a call that have the same one are one launch. */
typedef struct sheaf__products_kernel {
    const char *name;
    int rows, cols, threads; /* of a tile of results */
    size_t shared;           /* bytes a block */
    int side_by_side;        /* blocks of a multiprocessor */
    /* Subtrees that it keeps by itself; the table has room for those beyond that. */
    int keeps;
    int cluster; /* blocks that share a tile, and take one after the other; 0: of others */
} sheaf__products_kernel;

/* Of jobs that read panels, which are left alone. */
typedef struct sheaf__products_turn {
    const int64_t *root_ld; /* of each job's roots */
    /* Of each job NULL, or of each of its terms the weight whose numbers it is, of codes in groups;
     * not of a term where that is not quantised. */
    const sheaf__packed **of;
} sheaf__products_turn;

/* A call's jobs, as the choice of a kernel sees them. */
typedef struct sheaf__products_call {
    const sheaf__product *job;
    int jobs;
    const sheaf__products_turn *turn; /* or NULL */
    sheaf_sums sums;
    bool native; /* the GPU's tensor cores compute them */
    bool wide;   /* and it has the copy engine and wgmma */
    int processors;
} sheaf__products_call;

/* sheaf__products_by_mma - of jobs that are summed by mma8 or mma16. `waits`: whether a part of it
 * waits. */
const sheaf__products_kernel *sheaf__products_by_mma(const sheaf__products_call *call,
                                                     const sheaf__product *job, bool waits);
/* sheaf__products_by_wide - of jobs that are summed by mma16, with these parts; NULL: none of
 * products_wide.c. */
struct sheaf__products_part;
struct sheaf__tensor_map;
const sheaf__products_kernel *sheaf__products_by_wide(const sheaf__products_call *call,
                                                      const sheaf__product *job,
                                                      const struct sheaf__products_part *part,
                                                      int parts);
/* sheaf__products_maps - those of each part, two; false: one cannot be made. */
bool sheaf__products_maps(sheaf__gpu *gpu, struct sheaf__tensor_map *map, const sheaf__product *job,
                          const sheaf__products_kernel *kernel,
                          const struct sheaf__products_part *part, int parts);
/* sheaf__products_wide_kernel - that with the wide tile (0), and with the small one (1). */
const sheaf__products_kernel *sheaf__products_wide_kernel(int which, sheaf_dtype dtype);
/* Is a job thinner than half of the kernel's tile? */
static inline bool sheaf__products_thin(const sheaf__product *job,
                                        const sheaf__products_kernel *kernel)
{
    return job->m <= kernel->rows / 2 || job->n <= kernel->cols / 2;
}

/* Tiles of all jobs that are not. */
static inline int64_t sheaf__products_tiles(const sheaf__products_call *call,
                                            const sheaf__products_kernel *kernel)
{
    int64_t n = 0;
    for (int j = 0; j < call->jobs; j++)
        if (!sheaf__products_thin(&call->job[j], kernel))
            n += mm_div_up(call->job[j].m, kernel->rows) * mm_div_up(call->job[j].n, kernel->cols);
    return n;
}
/* sheaf__products_by_fma - of all others: float32, float16, and bfloat16 by pairs and tiles. */
const sheaf__products_kernel *sheaf__products_by_fma(const sheaf__products_call *call,
                                                     const sheaf__product *job);

/* sheaf__products_by_codes - of a job that has terms whose weight is read as codes; NULL: it has
 * none. */
const sheaf__products_kernel *sheaf__products_by_codes(const sheaf__product *job);
/* sheaf__products_run - jobs whose quantised weights are all read as codes; false: it has no kernel
 * for one of them, and launched nothing. turn: NULL, where no job reads panels. */
bool sheaf__products_run(sheaf__gpu *gpu, const sheaf__product *job, int jobs,
                         const sheaf__products_turn *turn);

/* sheaf__codes_matrix_of - all of the weight that W is a part of (kernels/codes.h). */
struct sheaf__codes_matrix;
void sheaf__codes_matrix_of(struct sheaf__codes_matrix *to, const sheaf__packed *w);
