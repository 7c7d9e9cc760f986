/* far_products.h - for tests of products on other devices: a job with its operands there. */
#pragma once

#include "tests/devices/same.h"
#include "tests/matmul_twin.h"

enum { FAR_TERMS = 64 };

/* ---- a job's operands on a device ---- */

typedef struct there {
    sheaf__device *device;
    sheaf__term term[FAR_TERMS];
    sheaf__packed packed[FAR_TERMS];
    float *root[SHEAF_MAX_SLICES];
    void *block[3 * FAR_TERMS + SHEAF_MAX_SLICES];
    int blocks;
} there;

static inline void *put(there *t, const void *host, size_t bytes)
{
    void *at;
    if (host == NULL)
        return NULL;
    CHECK_OK(sheaf__device_alloc(&at, t->device, bytes, SHEAF_MEM_ACTIVATIONS));
    CHECK_OK(sheaf__upload(t->device, at, host, bytes));
    return t->block[t->blocks++] = at;
}

static inline void *put_matrix(there *t, const void *host, sheaf_dtype dtype, int64_t rows,
                               int64_t cols, int64_t ld)
{
    return put(t, host, (size_t)extent(rows, cols, ld) * sheaf_dtype_bytes(dtype));
}

/* A quantised weight, all of a box or a part of it, and what it was loaded with. */
typedef struct coded {
    sheaf__packed w, all;
    int64_t before; /* rows of the box */
    sheaf__quant_parts parts;
    sheaf__quant_whole whole;
} coded;

/* Onto a device, into memory of `all`; the later rows first. */
static inline sheaf__packed load_coded(sheaf__device *device, const coded *c, sheaf__packed *all,
                                       int64_t n)
{
    const int64_t groups = sheaf__quant_groups(&all->quant, &all->box),
                  cut = n / 2 / MM_PANEL * MM_PANEL;
    sheaf__quant_parts behind = c->parts;
    behind.codes += cut * all->k;
    behind.scales += cut * groups;
    behind.scale_codes += cut * groups;
    behind.zeros += cut * groups;
    sheaf__weight_load_whole(device, all, &c->whole);
    sheaf__packed w = n == all->n ? *all : sheaf__packed_part(all, c->before, n);
    sheaf__weight_load_codes(device, &w, &behind, cut, n - cut);
    sheaf__weight_load_codes(device, &w, &c->parts, 0, cut);
    return w;
}

static inline sheaf__packed put_coded(there *t, const coded *c)
{
    sheaf__packed all =
        sheaf__packed_quantised(t->device, c->all.dtype, &c->all.quant, &c->all.box);
    const size_t bytes = sheaf__packed_size(&all);
    all.ahead = put(t, memset(keep(bytes), 0xff, bytes), bytes);
    return load_coded(t->device, c, &all, c->w.n);
}

/* Row by row where the device has it so; the rows of a larger one that are not its own are NaN. */
static inline sheaf__packed put_packed(there *t, const sheaf__packed *host)
{
    sheaf__packed w = *host;
    w.row_major = t->device->class->row_major;
    const size_t bytes = sheaf__packed_size(&w);
    if (w.row_major) {
        w.ahead = memset(keep(bytes), 0xff, bytes);
        for (int64_t r = 0; r < w.n; r++)
            sheaf__packed_row(mm_row_at(&w, r), host, r);
    }
    w.ahead = put(t, w.ahead, bytes);
    return w;
}

static inline void put_term(there *t, int i, const sheaf__product *job)
{
    sheaf__term *term = &t->term[i];
    *term = job->term[i];
    const int64_t m = job->m, n = job->n, k = term->k;
    term->a = put_matrix(t, term->a, job->dtype, term->a_km ? k : m, term->a_km ? m : k, term->lda);
    if (term->w == NULL) {
        const bool rows = term->form == SHEAF__B_NK;
        term->b = put_matrix(t, term->b, job->dtype, rows ? n : k, rows ? k : n, term->ldb);
        return;
    }
    t->packed[i] =
        term->w->quantised ? put_coded(t, (const coded *)term->w) : put_packed(t, term->w);
    term->w = &t->packed[i];
}

static inline sheaf__product put_job(there *t, const sheaf__product *job)
{
    output out[SHEAF_MAX_SLICES];
    sheaf__product copy = *job;
    const int count = outputs_of(out, job);
    for (int i = 0; i < job->nterms; i++)
        put_term(t, i, job);
    copy.term = t->term;
    copy.bias = put(t, job->bias, (size_t)job->n * sizeof(float));
    copy.residual = put_matrix(t, job->residual, job->out, job->m, job->n, job->ldr);
    if (job->roots == NULL)
        copy.y = put(t, out[0].at, out[0].bytes);
    for (int r = 0; r < count && job->roots != NULL; r++)
        t->root[r] = put(t, out[r].at, out[r].bytes);
    copy.roots = job->roots == NULL ? NULL : t->root;
    return copy;
}

/* ---- results ---- */

/* Those of `copy`, there, are those of `job`, here. */
static inline void check_there(const char *name, const sheaf__product *job,
                               const sheaf__product *copy, there *on)
{
    output out[SHEAF_MAX_SLICES];
    const int count = outputs_of(out, job);
    for (int o = 0; o < count; o++) {
        void *got = keep(out[o].bytes);
        CHECK_OK(sheaf__download(on->device, got, job->roots == NULL ? copy->y : on->root[o],
                                 out[o].bytes));
        CHECK_BYTES(name, got, out[o].at, out[o].bytes);
    }
    for (int b = 0; b < on->blocks; b++)
        sheaf__device_free(on->device, on->block[b]);
}

/* The same jobs with a copy of what they add to. */
static inline void copy_jobs(sheaf__product *copy, const sheaf__product *job, int jobs)
{
    for (int j = 0; j < jobs; j++) {
        copy[j] = job[j];
        if (job[j].roots != NULL)
            continue;
        const size_t bytes = (size_t)extent(job[j].m, job[j].n, job[j].ldy) *
                             sheaf_dtype_bytes((sheaf_dtype)job[j].out);
        copy[j].y = memcpy(keep(bytes), job[j].y, bytes);
    }
}

/* The job's slices are those of `rank` in a tree; with several ranks their sums go to roots, which
 * are made here. */
static inline void give_slices(sheaf__product *job, const sheaf_tree *tree, int ranks, int rank,
                               float *root[SHEAF_MAX_SLICES])
{
    int count;
    job->tree = tree;
    job->rank = rank;
    if (ranks == 1)
        return;
    sheaf_tree_own(tree, rank, &count);
    for (int r = 0; r < count; r++)
        root[r] = random_matrix(SHEAF_F32, job->m, job->n, job->n, ORDINARY);
    job->y = NULL;
    job->bias = job->residual = NULL;
    job->add = false;
    job->roots = root;
}
