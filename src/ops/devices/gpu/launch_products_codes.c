/* launch_products_codes.c - products with quantised weights. Those of a few rows read codes
 * (kernels/products_codes.c). Of others, columns of results by columns of results, the values of W
 * that these need are made, as a matrix, in half of the scratch, and meet the kernels that any
 * matrix meets. Several jobs share a turn where there is room. */
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/codes.h"
#include "ops/devices/gpu/launch_products.h"
#include "ops/matmul/matmul_private.h"
#include "ops/matmul/quant_layout.h"

/* Columns of a turn are a multiple of it, but of a job's last turn. */
#define UNIT 256

/* The memory and jobs of a turn. */
typedef struct turn {
    sheaf__gpu *gpu;
    char *room;
    size_t used;
    sheaf__product *job; /* of the columns of this turn */
    int64_t *root_ld;
    float **root; /* [SHEAF_MAX_SLICES] of each */
    sheaf__term *term;
    sheaf__packed *w;  /* of each term */
    sheaf__packed *of; /* of each, and of each job: see sheaf__products_turn */
    const sheaf__packed **job_of;
    sheaf__codes_panels panels;
    sheaf_dtype dtype; /* of the panels that wait to be launched */
    int jobs, terms;
    bool failed;
} turn;

static bool is_quantised(const sheaf__term *t)
{
    return t->w != NULL && t->w->quantised;
}

static bool have_codes(const sheaf__product *job, int jobs)
{
    for (int j = 0; j < jobs; j++)
        for (int t = 0; t < job[j].nterms; t++)
            if (is_quantised(&job[j].term[t]))
                return true;
    return false;
}

/* The panels of a list, all in type `dtype`. */
static void expand_panels(sheaf__gpu *gpu, sheaf__codes_panels *panels, sheaf_dtype dtype)
{
    const int64_t each = (int64_t)SHEAF__CODES_THREADS * SHEAF__CODES_EACH;
    int64_t blocks = 0;
    for (int i = 0; i < panels->panels; i++) {
        sheaf__codes_panel *p = &panels->panel[i];
        p->block0 = (int32_t)blocks;
        blocks += mm_div_up(p->rows * mm_up(p->cols, SHEAF__CODES_EACH), each);
    }
    SHEAF__LAUNCH(gpu, SHEAF__TYPED(codes_panels, dtype), blocks, 1, SHEAF__CODES_THREADS,
                  (16 + 256) * sizeof(float), panels);
}

/* ---- of a few rows ---- */

/* Rows from which making values once is quicker than for each eight rows. */
#define MOST_ROWS 16

static bool reads_codes(const sheaf__product *job, sheaf_sums sums)
{
    bool some = false;
    for (int t = 0; t < job->nterms; t++) {
        const sheaf__term *term = &job->term[t];
        if (!is_quantised(term))
            continue;
        sheaf__codes_matrix m;
        sheaf__codes_matrix_of(&m, term->w);
        if (term->form != SHEAF__B_AHEAD || !m.even)
            return false;
        some = true;
    }
    return some && job->m <= MOST_ROWS && mm_by_mma(job, sums);
}

/* ---- panels ---- */

static void expand(turn *t)
{
    if (t->panels.panels > 0)
        expand_panels(t->gpu, &t->panels, t->dtype);
    t->panels.panels = 0;
}

/* The columns [j0, j0 + cols) of what A meets, as a weight that is none but rows. */
static void add_panel(turn *t, sheaf__packed *to, const sheaf__term *term, int64_t j0, int64_t cols,
                      bool numbers)
{
    const sheaf__packed *w = term->w;
    const bool back = term->form == SHEAF__B_BACK;
    *to = (sheaf__packed){ .dtype = w->dtype,
                           .n = back ? w->n : cols,
                           .k = back ? cols : w->k,
                           .ahead = t->room + t->used,
                           .row_major = true };
    t->used += (size_t)mm_up(to->n * to->k * mm_size(w->dtype), 256);
    if (t->panels.panels == SHEAF__CODES_PANELS || t->dtype != w->dtype)
        expand(t);
    sheaf__codes_panel *p = &t->panels.panel[t->panels.panels++];
    *p = (sheaf__codes_panel){ .to = to->ahead,
                               .row0 = w->row0 + (back ? 0 : j0),
                               .rows = to->n,
                               .col0 = back ? j0 : 0,
                               .cols = to->k,
                               .back = back,
                               .numbers = numbers };
    sheaf__codes_matrix_of(&p->of, w);
    t->dtype = w->dtype;
}

/* ---- jobs ---- */

static void add_term(turn *t, const sheaf__product *job, const sheaf__term *from, int64_t j0,
                     int64_t cols)
{
    sheaf__term *to = &t->term[t->terms];
    sheaf__packed *w = &t->w[t->terms++];
    const bool groups = mm_sums_groups(job, sheaf__gpu_sums(t->gpu)) && mm_in_groups(from);
    t->of[t->terms - 1].quantised = false;
    *to = *from;
    const int64_t size = mm_size(job->dtype);
    if (from->w == NULL) {
        to->b = (const char *)from->b + j0 * (from->form == SHEAF__B_NK ? from->ldb : 1) * size;
    } else if (is_quantised(from)) {
        to->w = w;
        add_panel(t, w, from, j0, cols, groups);
        if (groups)
            t->of[t->terms - 1] = sheaf__packed_part(from->w, j0, cols);
    } else if (from->form == SHEAF__B_AHEAD) {
        to->w = w;
        *w = sheaf__packed_part(from->w, j0, cols);
    } else {
        to->w = NULL;
        to->form = SHEAF__B_KN;
        to->b = mm_row_at(from->w, 0) + j0 * size;
        to->ldb = from->w->k;
    }
}

static void add_job(turn *t, const sheaf__product *job, int64_t j0, int64_t cols)
{
    sheaf__product *to = &t->job[t->jobs];
    float **root = &t->root[(size_t)t->jobs * SHEAF_MAX_SLICES];
    *to = *job;
    to->n = cols;
    to->term = &t->term[t->terms];
    t->job_of[t->jobs] = &t->of[t->terms];
    for (int i = 0; i < job->nterms; i++)
        add_term(t, job, &job->term[i], j0, cols);
    const int64_t out = j0 * mm_size(job->out);
    for (int r = 0, own = 0; job->roots != NULL && r < job->tree->nroots; r++)
        if (job->tree->root[r].rank == job->rank) {
            root[own] = job->roots[own] + j0;
            own++;
        }
    to->roots = job->roots == NULL ? NULL : root;
    to->y = job->y == NULL ? NULL : (char *)job->y + out;
    to->bias = job->bias == NULL ? NULL : job->bias + j0;
    to->residual = job->residual == NULL ? NULL : (const char *)job->residual + out;
    t->root_ld[t->jobs++] = job->n;
}

static void run(turn *t)
{
    expand(t);
    const sheaf__products_turn turn = { t->root_ld, t->job_of };
    if (t->jobs > 0 && !t->failed && !sheaf__products_run(t->gpu, t->job, t->jobs, &turn))
        t->failed = true;
    t->jobs = t->terms = 0;
    t->used = 0;
}

/* Bytes that a column of a job's results needs. */
static int64_t bytes_of_column(const sheaf__product *job)
{
    int64_t bytes = 0;
    for (int i = 0; i < job->nterms; i++)
        if (is_quantised(&job->term[i]))
            bytes += job->term[i].k * mm_size(job->term[i].w->dtype);
    return bytes;
}

/* Columns that there is room for, of `left`: in turns that are about the same. Panels begin at
 * multiples of 256 bytes. */
static int64_t columns_of(const turn *t, const sheaf__product *job, int64_t left)
{
    const int64_t each = bytes_of_column(job),
                  room =
                      (int64_t)(sheaf__gpu_panels(t->gpu) - t->used) - job->nterms * INT64_C(256);
    const int64_t most = each == 0 ? left : room < 0 ? 0 : room / each;
    if (most >= left)
        return left;
    if (most < UNIT)
        return t->used > 0 ? 0 : most / 8 * 8;
    return mm_min(most / UNIT * UNIT, mm_up(mm_div_up(left, mm_div_up(left, most)), UNIT));
}

/* As it is. */
static void add_whole(turn *t, const sheaf__product *job)
{
    t->job[t->jobs] = *job;
    t->job_of[t->jobs] = NULL;
    t->root_ld[t->jobs++] = job->n;
}

static bool run_job(turn *t, const sheaf__product *job)
{
    if (bytes_of_column(job) == 0 || reads_codes(job, sheaf__gpu_sums(t->gpu))) {
        add_whole(t, job);
        return true;
    }
    for (int64_t j0 = 0, cols; j0 < job->n && job->m > 0; j0 += cols) {
        cols = columns_of(t, job, job->n - j0);
        if (cols == 0 && t->jobs > 0) {
            run(t);
            cols = columns_of(t, job, job->n - j0);
        }
        if (cols == 0)
            return false;
        add_job(t, job, j0, cols);
        if (j0 + cols < job->n)
            run(t);
    }
    return true;
}

/* ---- whether and how ---- */

/* Refuses before anything is written. */
static bool is_known(const sheaf__gpu *gpu, const sheaf__product *job)
{
    const sheaf_sums sums = sheaf__gpu_sums(gpu);
    const bool mma = mm_by_mma(job, sums);
    if (mma && !sheaf__gpu_computes(gpu, sums))
        return false;
    for (int i = 0; i < job->nterms; i++) {
        const sheaf__term *t = &job->term[i];
        const bool turns = t->form == SHEAF__B_BACK && !is_quantised(t) && bytes_of_column(job) > 0;
        if (mma && (t->lda > INT32_MAX / 64 || (t->w == NULL && t->ldb > INT32_MAX / 64) ||
                    (t->w != NULL && t->w->k > INT32_MAX / 64)))
            return false;
        if ((turns && t->w->dtype != job->dtype) ||
            (is_quantised(t) && bytes_of_column(job) * 8 > (int64_t)sheaf__gpu_panels(gpu) / 2))
            return false;
    }
    return true;
}

static bool with_codes(sheaf__gpu *gpu, const sheaf__product *job, int jobs)
{
    size_t terms = 0;
    for (int j = 0; j < jobs; j++) {
        terms += (size_t)job[j].nterms;
        if (!is_known(gpu, &job[j]))
            return false;
    }
    turn t = { .gpu = gpu,
               .room =
                   (char *)sheaf__gpu_scratch(gpu) + SHEAF__GPU_SCRATCH - sheaf__gpu_panels(gpu),
               .job = calloc((size_t)jobs, sizeof *t.job),
               .root_ld = calloc((size_t)jobs, sizeof *t.root_ld),
               .root = calloc((size_t)jobs * SHEAF_MAX_SLICES, sizeof *t.root),
               .term = calloc(terms + 1, sizeof *t.term),
               .w = calloc(terms + 1, sizeof *t.w),
               .of = calloc(terms + 1, sizeof *t.of),
               .job_of = calloc((size_t)jobs, sizeof *t.job_of) };
    bool done = t.job != NULL && t.root_ld != NULL && t.root != NULL && t.term != NULL &&
                t.w != NULL && t.of != NULL && t.job_of != NULL;
    for (int j = 0; j < jobs && done && !t.failed; j++)
        t.failed |= !run_job(&t, &job[j]);
    if (done && !t.failed)
        run(&t);
    if (t.failed) /* some of it may be written: the processor does not do it again */
        sheaf__device_fail(gpu->device, sheaf__no_memory("products with quantised weights"));
    free(t.job);
    free(t.root_ld);
    free(t.root);
    free(t.term);
    free(t.w);
    free(t.of);
    free(t.job_of);
    return done;
}

bool sheaf__gpu_op_products(sheaf__gpu *gpu, const sheaf__call *call)
{
    const mm_jobs *jobs = call->arguments;
    return have_codes(jobs->job, jobs->jobs)
               ? with_codes(gpu, jobs->job, jobs->jobs)
               : sheaf__products_run(gpu, jobs->job, jobs->jobs, NULL);
}
