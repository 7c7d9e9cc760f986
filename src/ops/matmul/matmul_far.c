/* matmul_far.c - products where they are to run: here, or on a device that has kernels or memory of
 * its own, the jobs as one operation with operands (call.h). */
#include "ops/call.h"
#include "ops/matmul/matmul_quant.h"

/* Copies of the caller's lists, as their pointers are to be set. */
typedef struct jobs {
    mm_jobs of;
    sheaf__term *term;     /* of all jobs, one after the other */
    sheaf__packed *packed; /* of each term */
    int terms;
    float **root; /* [SHEAF_MAX_SLICES] of each job that has some */
    sheaf__operand *operand;
    int operands;
} jobs;

/* A weight that has no panels, with panels. */
static sheaf_status *into_panels(sheaf__packed *w)
{
    const sheaf__packed rows = *w;
    if (w->quantised)
        return sheaf__mm_rows_to_cells(w, &rows);
    const size_t bytes = sheaf__packed_bytes(w->dtype, w->n, w->k);
    *w = (sheaf__packed){ .dtype = w->dtype, .n = w->n, .k = w->k };
    w->ahead = aligned_alloc(64, bytes / 64 * 64 + 64);
    if (w->ahead == NULL)
        return sheaf__no_memory("panels of a weight");
    sheaf__pack(w, mm_row_at(&rows, 0), w->dtype, w->k, 0, w->n);
    return NULL;
}

static void run_jobs(sheaf__device *device, void *arguments)
{
    const jobs *all = arguments;
    const double flops = device->flops;
    sheaf_status *st = NULL;
    for (int t = 0; device->class->row_major && t < all->terms && st == NULL; t++)
        if (all->packed[t].ahead != NULL)
            st = into_panels(&all->packed[t]);
    if (st == NULL)
        sheaf__mm_products_with(sheaf__mm_isa_for(device->kernels->isa, device->units), device,
                                all->of.job, all->of.jobs);
    device->flops = flops; /* counted with the jobs */
    for (int t = 0; device->class->row_major && t < all->terms; t++)
        if (!all->packed[t].row_major)
            free(all->packed[t].ahead);
    sheaf__device_fail(device, st);
}

static void add(jobs *all, void *field, size_t bytes, bool written)
{
    all->operand[all->operands++] = (sheaf__operand){ field, bytes, written };
}

static void add_term(jobs *all, const sheaf__product *job, sheaf__term *t, sheaf__packed *w)
{
    add(all, &t->a,
        t->a_km ? sheaf__extent(t->k, t->lda, job->m, job->dtype)
                : sheaf__extent(job->m, t->lda, t->k, job->dtype),
        false);
    if (t->form == SHEAF__B_NK)
        add(all, &t->b, sheaf__extent(job->n, t->ldb, t->k, job->dtype), false);
    if (t->form == SHEAF__B_KN)
        add(all, &t->b, sheaf__extent(t->k, t->ldb, job->n, job->dtype), false);
    if (t->w == NULL)
        return;
    *w = *t->w;
    t->w = w;
    add(all, &w->ahead, sheaf__packed_size(w), false);
}

static int roots_of(const sheaf__product *job)
{
    int own = 0;
    for (int r = 0; job->roots != NULL && r < job->tree->nroots; r++)
        own += job->tree->root[r].rank == job->rank;
    return own;
}

static void add_job(jobs *all, sheaf__product *job, float **root)
{
    const int roots = roots_of(job);
    for (int r = 0; r < roots; r++) {
        root[r] = job->roots[r];
        add(all, &root[r], (size_t)(job->m * job->n) * sizeof(float), true);
    }
    if (roots > 0)
        job->roots = root;
    add(all, &job->y, sheaf__extent(job->m, job->ldy, job->n, job->out), true);
    add(all, &job->bias, (size_t)job->n * sizeof(float), false);
    add(all, &job->residual, sheaf__extent(job->m, job->ldr, job->n, job->out), false);
}

static void free_jobs(jobs *all)
{
    free(all->of.job);
    free(all->term);
    free(all->packed);
    free(all->root);
    free(all->operand);
}

static sheaf_status *copy_jobs(jobs *all, const sheaf__product *job, int n)
{
    size_t terms = 0, t = 0;
    for (int j = 0; j < n; j++)
        terms += (size_t)job[j].nterms;
    *all = (jobs){ .of = { calloc((size_t)n, sizeof *all->of.job), n },
                   .term = calloc(terms + 1, sizeof *all->term),
                   .packed = calloc(terms + 1, sizeof *all->packed),
                   .terms = (int)terms,
                   .root = calloc((size_t)n * SHEAF_MAX_SLICES, sizeof *all->root),
                   .operand = calloc(2 * terms + (size_t)n * (SHEAF_MAX_SLICES + 3),
                                     sizeof *all->operand) };
    if (all->of.job == NULL || all->term == NULL || all->packed == NULL || all->root == NULL ||
        all->operand == NULL)
        return sheaf__no_memory("list of products");
    for (int j = 0; j < n; j++) {
        all->of.job[j] = job[j];
        all->of.job[j].term = &all->term[t];
        for (int i = 0; i < job[j].nterms; i++, t++) {
            all->term[t] = job[j].term[i];
            add_term(all, &job[j], &all->term[t], &all->packed[t]);
        }
        add_job(all, &all->of.job[j], &all->root[j * SHEAF_MAX_SLICES]);
    }
    return NULL;
}

static void run_far(sheaf__device *device, const sheaf__product *job, int n)
{
    jobs all;
    sheaf_status *st = copy_jobs(&all, job, n);
    for (int j = 0; j < n; j++)
        device->flops += sheaf__mm_flops(&job[j]);
    if (st == NULL)
        sheaf__run(device, &(sheaf__call){ .operation = SHEAF__OP_PRODUCTS,
                                           .arguments = &all,
                                           .operand = all.operand,
                                           .operands = all.operands,
                                           .whole = run_jobs });
    else
        sheaf__device_fail(device, st);
    free_jobs(&all);
}

void sheaf__products(sheaf__device *device, const sheaf__product *job, int jobs)
{
    if (!device->class->shared || device->class->run != NULL) {
        run_far(device, job, jobs);
        return;
    }
    const double began = sheaf__spend_begin(device, SHEAF__SPENT_PRODUCTS);
    sheaf__mm_products_with(sheaf__mm_isa_for(device->kernels->isa, device->units), device, job,
                            jobs);
    sheaf__spend_end(device, SHEAF__SPENT_PRODUCTS, began);
}
