/* matmul_products.c - jobs into tasks: areas of one output, or of several side by side. Neither the
 * size of the areas nor the thread that runs a task can show in the result. */
#include "ops/matmul/matmul_plan.h"

#define MOST_ROWS 1024
#define LEAST_WORK 1e6 /* operations of an area: some microseconds, against one for a task */
#define MOST_THIN (2 * MM_PANEL)   /* columns of a thin product */
#define THIN_B ((size_t)512 << 10) /* words of B that a thin product may keep in scratch */
#define BATCH 128                  /* jobs of one parallel region; more wait for the next */

/* ---- the order of slices and additions ---- */

static bool route_node(mm_route *route, const sheaf__product *job, int begin, int end)
{
    if (end - begin == 1) {
        mm_visit v = { .at = -1, .root = -1 };
        if (!job->tree->present[begin])
            return false;
        for (int p = 0; p < job->nslices; p++)
            if (mm_slice_of(job, p) == begin)
                v.at = p;
        route->visit[route->visits++] = v;
        return true;
    }
    const int middle = (begin + end) / 2;
    const bool left = route_node(route, job, begin, middle);
    const bool right = route_node(route, job, middle, end);
    if (left && right)
        route->visit[route->visits - 1].merges++;
    return left || right;
}

static void route_of(mm_route *route, const sheaf__product *job)
{
    route->visits = route->slots = 0;
    if (job->tree == NULL) {
        route->visit[route->visits++] = (mm_visit){ .at = 0, .root = 0 };
    } else if (job->roots == NULL) {
        if (!route_node(route, job, 0, job->tree->slices))
            route->visit[route->visits++] = (mm_visit){ .at = -1 };
        route->visit[route->visits - 1].root = 0;
    } else {
        int own = 0;
        for (int r = 0; r < job->tree->nroots; r++) {
            const sheaf_root *root = &job->tree->root[r];
            if (root->rank == job->rank && route_node(route, job, root->begin, root->end))
                route->visit[route->visits - 1].root = own++;
        }
    }
    for (int v = 0, depth = 0; v < route->visits; v++) {
        mm_visit *now = &route->visit[v];
        now->slot = depth;
        depth = now->root >= 0 ? 0 : depth + 1 - now->merges;
        if (now->slot >= route->slots)
            route->slots = now->slot + 1;
    }
}

/* ---- how a job is cut into areas ---- */

typedef struct batch {
    sheaf__device *device;
    mm_plan plan[BATCH];
    int plans;
} batch;

static double job_flops(const sheaf__product *job)
{
    double k = 0;
    for (int t = 0; t < job->nterms; t++)
        k += (double)job->term[t].k;
    return 2.0 * k * (double)job->m * (double)job->n;
}

/* A tall, thin product of a stored A^T would transpose all of A for a few columns. As
 * a * b = b * a, computing the transpose of the result gives the same bits, and A, as it lies,
 * is a B whose panels are only copied. */
static bool is_transposed(const sheaf__product *job)
{
    if (job->n > MM_PANEL || job->m < 4 * job->n)
        return false;
    for (int t = 0; t < job->nterms; t++)
        if (!job->term[t].a_km ||
            (job->term[t].form != SHEAF__B_KN && job->term[t].form != SHEAF__B_NK))
            return false;
    return job->nterms > 0;
}

static int64_t even_share(int64_t whole, int64_t most, int64_t unit)
{
    const int64_t parts = mm_div_up(whole, most);
    return mm_up(mm_div_up(whole, parts), unit);
}

/* Halves areas until one is no more than a fair share of work. Rows go first where B is in
 * panels already, else columns: an area brings its own columns of B into panels, which should
 * serve many rows. It also copies its own rows of A, which should serve many columns: the more so
 * the faster they are multiplied, so the tile unit, whose bands are wide, goes down to few of them.
 */
static void shrink(mm_plan *plan, double k, double share)
{
    const int64_t m = plan->m, n = plan->n, rows = plan->engine->rows;
    const int64_t enough = (rows >= 32 ? 4 : 16) * rows;
    while (2.0 * k * (double)plan->rows * (double)plan->cols > share) {
        if (plan->cols > 256 && (plan->packing || plan->rows <= enough))
            plan->cols = even_share(n, plan->cols / 2, MM_PANEL);
        else if (plan->rows > enough)
            plan->rows = even_share(m, plan->rows / 2, rows);
        else if (plan->cols > 64)
            plan->cols = even_share(n, plan->cols / 2, MM_PANEL);
        else if (plan->rows > 2 * rows)
            plan->rows = even_share(m, plan->rows / 2, 1);
        else
            return;
    }
}

/* With few columns, copying A would cost as much as multiplying it. A thin product reads A
 * where it lies, a few rows from end to end through all blocks of k, beside all of B. */
static bool thin_job(const mm_plan *plan, size_t words_of_b)
{
    const sheaf__product *job = plan->job;
    if (plan->n > MOST_THIN || words_of_b > THIN_B || plan->engine->direct == 0 || plan->transposed)
        return false;
    for (int t = 0; t < job->nterms; t++)
        if (job->term[t].a_km)
            return false;
    return true;
}

/* Jobs of one slice that multiply the same A, block by block: the layers and the slices of layers
 * that read one input. One copy of a band's rows serves them all. */
static bool runs_beside(const sheaf__product *a, const sheaf__product *b)
{
    if (a->nslices != 1 || b->nslices != 1 || a->tree || b->tree || a->roots || b->roots ||
        a->dtype != b->dtype || a->nterms != b->nterms || b->m <= 0 || b->n <= 0)
        return false;
    const bool transposed = is_transposed(a);
    if (transposed != is_transposed(b) || (transposed ? a->n != b->n : a->m != b->m))
        return false;
    for (int t = 0; t < a->nterms; t++)
        if (a->term[t].k != b->term[t].k || a->term[t].a_km != b->term[t].a_km ||
            (transposed && a->term[t].form != b->term[t].form))
            return false;
    if (a->nterms == 0)
        return false;
    return transposed ? a->term[0].b == b->term[0].b && a->term[0].ldb == b->term[0].ldb
                      : a->term[0].a == b->term[0].a && a->term[0].lda == b->term[0].lda;
}

/* How many of `jobs` run side by side with the first one. */
static int count_beside(const mm_plan *plan, int jobs)
{
    int n = 1;
    int64_t columns = mm_columns(plan, plan->job);
    while (n < jobs && runs_beside(plan->job, &plan->job[n]))
        columns += mm_columns(plan, &plan->job[n++]);
    /* Few columns are computed without a copy of A. */
    return plan->engine->direct > 0 && columns <= MOST_THIN ? 1 : n;
}

/* What lies in scratch beside the rows of A, and how many rows of sums that leaves. */
static void plan_scratch(mm_plan *plan, int slots)
{
    size_t all = 0; /* words of B, all blocks of k */
    plan->spread = plan->engine->spread && plan->m > 2 * plan->engine->few;
    for (int q = 0; q < plan->jobs; q++)
        for (int t = 0; t < plan->job[q].nterms; t++) {
            const sheaf__product *job = &plan->job[q];
            const int64_t steps = mm_steps(mm_computed(job->dtype), job->term[t].k),
                          padded = mm_padded(plan->engine, steps);
            all += (size_t)(padded * plan->cols);
            plan->packing |=
                padded > steps || !mm_panels_in_place(&job->term[t], job->dtype, plan->spread);
        }
    plan->thin = thin_job(plan, all);
    plan->scratch_b = !plan->packing ? 0
                      : plan->thin   ? all
                                     : (size_t)(plan->cols * mm_widest(plan->engine));
    const size_t capacity =
        SHEAF__THREAD_SCRATCH / sizeof(float) - MM_SCRATCH_A - MM_SCRATCH_NEAR - plan->scratch_b;
    plan->rows =
        even_share(plan->m, mm_min((int64_t)capacity / (plan->cols * slots), MOST_ROWS), 1);
}

/* How the first of `jobs`, with those that run side by side with it, is cut: in areas of about
 * `share` operations; returns their number. */
static int64_t plan_jobs(mm_plan *plan, const sheaf__product *job, int jobs,
                         const mm_engine *engine, double share)
{
    mm_route route;
    *plan = (struct mm_plan){ .job = job, .jobs = 1, .engine = engine };
    route_of(&route, job);
    if (job->m <= 0 || job->n <= 0 || route.visits == 0)
        return 0; /* nothing to compute, or this rank has no root */
    plan->transposed = engine && is_transposed(job);
    plan->m = plan->transposed ? job->n : job->m;
    plan->rows = 16;
    plan->cols = plan->n = mm_columns(plan, job);
    if (engine) {
        plan->jobs = count_beside(plan, jobs);
        for (int q = 1; q < plan->jobs; q++)
            plan->n = mm_up(plan->n, MM_PANEL) + mm_columns(plan, &job[q]);
        plan->cols = even_share(plan->n, MM_MOST_COLS, MM_PANEL);
        plan_scratch(plan, route.slots);
        shrink(plan, job_flops(job) / 2 / (double)job->m / (double)job->n, share);
    }
    plan->across = mm_div_up(plan->n, plan->cols);
    plan->down = mm_div_up(plan->m, plan->rows);
    return plan->down * plan->across;
}

/* ---- running them ---- */

static void run_task(void *context, int64_t index, int worker)
{
    batch *batch = context;
    int p = 0;
    while (p + 1 < batch->plans && batch->plan[p + 1].first <= index)
        p++;
    const mm_plan *plan = &batch->plan[p];
    const int64_t area = index - plan->first;
    if (plan->engine != NULL) {
        mm_route route;
        route_of(&route, plan->job);
        sheaf__mm_area(plan, &route, area, batch->device->scratch[worker]);
        return;
    }
    const int64_t i0 = area * plan->rows;
    sheaf__product_ref_part(plan->job, batch->device->sums, i0, mm_min(plan->m, i0 + plan->rows), 0,
                            plan->n);
}
/* Of one to three rows the tile unit would compute sixteen, and be no faster than memory. */
static const mm_engine *engine_of(const mm_isa *isa, const sheaf__product *job, sheaf__sums sums)
{
    const bool few =
        job->dtype == SHEAF_BF16 && sums == SHEAF__TILES && isa->few && job->m <= isa->few->few;
    return few ? isa->few : mm_engine_of(isa, job->dtype, sums);
}

static void run_batch(const mm_isa *isa, sheaf__device *device, const sheaf__product *job, int jobs)
{
    batch batch = { .device = device };
    double flops = 0;
    for (int j = 0; j < jobs; j++)
        flops += job_flops(&job[j]);
    device->flops += flops;
    if (device->kind == SHEAF_DRY)
        return;
    /* Enough areas to level out threads that start late or run slower; more would bring the same
     * rows and columns into more areas. */
    double share = device->threads == 1 ? flops : flops / (3.0 * device->threads);
    if (share < LEAST_WORK)
        share = LEAST_WORK;
    int64_t tasks = 0;
    for (int j = 0; j < jobs;) {
        mm_plan *plan = &batch.plan[batch.plans];
        const int64_t areas =
            plan_jobs(plan, &job[j], jobs - j, engine_of(isa, &job[j], device->sums), share);
        plan->first = tasks;
        tasks += areas;
        batch.plans += areas > 0;
        j += plan->jobs;
    }
    if (tasks > 0)
        sheaf__pool_run(device->pool, tasks, run_task, &batch);
}

void sheaf__mm_products_with(const mm_isa *isa, sheaf__device *device, const sheaf__product *job,
                             int jobs)
{
    for (int first = 0; first < jobs; first += BATCH)
        run_batch(isa, device, job + first, jobs - first < BATCH ? jobs - first : BATCH);
}

void sheaf__products(sheaf__device *device, const sheaf__product *job, int jobs)
{
    sheaf__mm_products_with(sheaf__mm_isa_for(device->kernels->isa, device->units), device, job,
                            jobs);
}
