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
    t->packed[i] = put_packed(t, term->w);
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
