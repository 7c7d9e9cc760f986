/* matmul_products.c - jobs into tasks: areas of one output, or of several side by side. Neither the
 * size of the areas nor the thread that runs a task can show in the result. */
#include "ops/matmul/matmul_plan.h"

#define MOST_ROWS 1024
#define REF_ROWS 16      /* of a task of the reference */
#define MORE_COPIES 0.06 /* of the time, what twice as many areas copy more */
#define AREAS 3.0        /* of a parallel region for each thread */
#define FEWER_AREAS 2.0  /* if each brings panels */
#define UNIT_ROWS 32     /* of a tile of the tile unit; others have fewer */
#define LEAST_WORK 1e6   /* operations of an area: some microseconds, against one for a task */
#define READS 5          /* rows below which reading B takes longer than its operations */
#define MOST_THIN (2 * MM_PANEL)   /* columns of a thin product */
#define MOST_OUTER 64              /* rows of a product that copies nothing */
#define MOST_STACKED 4             /* of them that read one B */
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

double sheaf__mm_flops(const sheaf__product *job)
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

static int64_t bands_of(const mm_plan *plan)
{
    return mm_div_up(plan->m, mm_band_rows(plan));
}
static int64_t panels_of(const mm_plan *plan)
{
    return mm_div_up(plan->n, MM_PANEL);
}

/* Areas of at most `most` rows or columns, or of one band or panel. */
static void cut_rows(mm_plan *plan, int64_t most)
{
    const int64_t unit = mm_band_rows(plan), bands = bands_of(plan);
    plan->down = mm_div_up(bands, most < unit ? 1 : most / unit);
    plan->rows = mm_min(plan->m, mm_div_up(bands, plan->down) * unit);
}
static void cut_cols(mm_plan *plan, int64_t most)
{
    const int64_t panels = panels_of(plan);
    plan->across = mm_div_up(panels, most < MM_PANEL ? 1 : most / MM_PANEL);
    plan->cols = mm_div_up(panels, plan->across) * MM_PANEL;
}

/* Whether an area by fma brings its own columns of B into panels, which takes as long as copying as
 * many rows of A. */
static bool brings_panels(const mm_plan *plan)
{
    return plan->packing && plan->engine->rows < UNIT_ROWS;
}

/* Whether columns are halved before rows. An area copies its own rows of A, which should serve many
 * columns, and so should its panels many rows, if it brings them: the longer side goes first. Where
 * panels are there already it is the rows. The tile unit multiplies so fast that it copies fewer
 * rows of A and goes down to few of them. */
static bool halves_columns(const mm_plan *plan)
{
    const int64_t unit = plan->engine->rows;
    if (brings_panels(plan))
        return plan->cols > 64 && (plan->cols >= plan->rows || plan->rows <= 4 * unit);
    const int64_t enough = (unit >= UNIT_ROWS ? 4 : 16) * unit;
    return (plan->packing && plan->cols > 256) || (plan->cols > 64 && plan->rows <= enough);
}

/* Halves areas until one is no more than a fair share of work; larger ones bring fewer panels. */
static void shrink(mm_plan *plan, double k, double share)
{
    if (brings_panels(plan))
        share *= AREAS / FEWER_AREAS;
    while (2.0 * k * (double)plan->rows * (double)plan->cols > share) {
        if (halves_columns(plan))
            cut_cols(plan, mm_up(plan->cols / 2, MM_PANEL));
        else if (plan->rows > 2 * plan->engine->rows)
            cut_rows(plan, mm_up(plan->rows / 2, mm_band_rows(plan)));
        else
            return;
    }
}

/* The time of `down` x `across` areas beside a fair share for each thread: some threads have one
 * more than others, some areas a band or a panel more, and finer ones copy more. */
static double excess(const mm_plan *plan, int64_t down, int64_t across, int threads)
{
    const int64_t areas = down * across, turns = mm_div_up(areas, threads), bands = bands_of(plan),
                  panels = panels_of(plan);
    double much = (double)(turns * threads) / (double)areas;
    much *= 1 + MORE_COPIES * ((double)areas / (double)(plan->down * plan->across) - 1);
    much += bands % down == 0 ? 0 : (double)down / (double)(bands * turns);
    much += panels % across == 0 ? 0 : (double)across / (double)(panels * turns);
    return much;
}

/* More areas, where that leaves fewer threads without one while others compute. */
static void level(mm_plan *plan, int threads)
{
    const int64_t most_down = mm_min(2 * plan->down, bands_of(plan)),
                  most_across = mm_min(2 * plan->across, panels_of(plan));
    int64_t down = plan->down, across = plan->across;
    double best = excess(plan, down, across, threads);
    for (int64_t d = plan->down; d <= most_down; d++)
        for (int64_t a = plan->across; a <= most_across; a++) {
            const double much = excess(plan, d, a, threads);
            if (much >= best)
                continue;
            best = much;
            down = d;
            across = a;
        }
    plan->down = down;
    plan->across = across;
}

/* With few columns, copying A would cost as much as multiplying it. A thin product reads A
 * where it lies, MM_GROUP bands at a time through all blocks of k, beside all of B. */
static bool thin_job(const mm_plan *plan, size_t words_of_b)
{
    const sheaf__product *job = plan->job;
    if (plan->n > MOST_THIN || words_of_b > THIN_B || plan->engine->direct == 0 || plan->transposed)
        return false;
    for (int t = 0; t < job->nterms; t++) /* tiles that take codes read copied rows */
        if (job->term[t].a_km || (plan->takes & mm_takes(&job->term[t])) != 0 ||
            (plan->groups && mm_in_groups(&job->term[t])))
            return false;
    return true;
}

/* A thin product whose B would leave half of each panel empty, and with it half of the sets of the
 * first-level cache. */
static bool narrow_job(const mm_plan *plan)
{
    const sheaf__product *job = plan->job;
    if (!plan->thin || plan->n > plan->engine->lanes)
        return false;
    for (int t = 0; t < job->nterms; t++)
        if (job->term[t].form != SHEAF__B_KN && job->term[t].form != SHEAF__B_NK)
            return false;
    return true;
}

/* Few rows would not pay for copying B either. */
static bool outer_job(const mm_plan *plan)
{
    const sheaf__product *job = plan->job;
    if (plan->m > MOST_OUTER || plan->engine->outer == NULL || job->nterms == 0)
        return false;
    for (int t = 0; t < job->nterms; t++) {
        sheaf__term room;
        const sheaf__term *term = mm_term(plan, job, t, &room);
        if (!term->a_km || term->form != SHEAF__B_KN)
            return false;
    }
    return true;
}

/* Whether two terms of as many elements have the same blocks, be they groups of codes or not. */
static bool same_blocks(const sheaf__term *a, const sheaf__term *b)
{
    const bool groups = mm_in_groups(a);
    if (groups != mm_in_groups(b))
        return false;
    return !groups || (a->w->quant.block == b->w->quant.block &&
                       a->w->quant.added == b->w->quant.added && a->w->box.col0 == b->w->box.col0);
}

/* Jobs of one slice that multiply the same A, block by block: the layers and the slices of layers
 * that read one input. One copy of a band's rows serves them all. */
static bool runs_beside(const sheaf__product *a, const sheaf__product *b, bool groups)
{
    if (a->nslices != 1 || b->nslices != 1 || a->tree || b->tree || a->roots || b->roots ||
        a->dtype != b->dtype || a->nterms != b->nterms || b->m <= 0 || b->n <= 0)
        return false;
    const bool transposed = is_transposed(a);
    if (transposed != is_transposed(b) || (transposed ? a->n != b->n : a->m != b->m))
        return false;
    for (int t = 0; t < a->nterms; t++)
        if (a->term[t].k != b->term[t].k || a->term[t].a_km != b->term[t].a_km ||
            a->term[t].apart != b->term[t].apart ||
            (groups && !same_blocks(&a->term[t], &b->term[t])) ||
            (transposed && a->term[t].form != b->term[t].form))
            return false;
    if (a->nterms == 0 || mm_is_uniform(a) != mm_is_uniform(b))
        return false;
    return transposed ? a->term[0].b == b->term[0].b && a->term[0].ldb == b->term[0].ldb
                      : a->term[0].a == b->term[0].a && a->term[0].lda == b->term[0].lda;
}

/* Outer products that read the same B: the gradients of several A of LoRA, whose layers read one
 * input. They take turns on its rows. */
static bool stacks(const sheaf__product *a, const sheaf__product *b)
{
    return !a->tree && !b->tree && !a->roots && !b->roots && a->nterms == 1 && b->nterms == 1 &&
           b->dtype == SHEAF_F32 && !is_transposed(b) && a->m == b->m && a->n == b->n &&
           a->term[0].k == b->term[0].k && b->term[0].a_km && b->term[0].form == SHEAF__B_KN &&
           a->term[0].b == b->term[0].b && a->term[0].ldb == b->term[0].ldb;
}

/* How many of `jobs` run beside the first one. */
static int count_beside(const mm_plan *plan, int jobs)
{
    int n = 1;
    if (plan->stacked) {
        while (n < jobs && n < MOST_STACKED && stacks(plan->job, &plan->job[n]))
            n++;
        return n;
    }
    int64_t columns = mm_columns(plan, plan->job);
    while (n < jobs && runs_beside(plan->job, &plan->job[n], plan->groups))
        columns += mm_columns(plan, &plan->job[n++]);
    /* Few columns are computed without a copy of A. */
    return plan->engine->direct > 0 && columns <= MOST_THIN ? 1 : n;
}

/* The forms of its weights, compressed or in codes, that few rows meet. */
static int takes(const mm_plan *plan)
{
    const int able = (plan->m <= plan->engine->codes ? MM_COMPRESSED : 0) |
                     (plan->groups && plan->m <= plan->engine->most_taken ? MM_CODES : 0);
    int some = 0;
    for (int q = 0; q < plan->jobs && able != 0; q++)
        for (int t = 0; t < plan->job[q].nterms; t++)
            some |= mm_takes(&plan->job[q].term[t]);
    return some & able;
}

/* Scratch beside the rows of A, and the rows of sums that it leaves room for. */
static void plan_scratch(mm_plan *plan, int slots)
{
    size_t all = 0; /* words of B, all blocks of k */
    plan->spread = plan->engine->spread && plan->m > plan->engine->most_in_pairs;
    plan->takes = takes(plan);
    for (int q = 0; q < plan->jobs; q++)
        for (int t = 0; t < plan->job[q].nterms; t++) {
            const sheaf__product *job = &plan->job[q];
            const int64_t steps = mm_steps(mm_computed(plan->engine, job->dtype), job->term[t].k),
                          padded = mm_padded(plan->engine, steps);
            all += (size_t)(padded * plan->cols);
            plan->sums |= plan->groups && mm_adds(&job->term[t]);
            plan->packing |=
                padded > steps || !mm_panels_in_place(plan->engine, &job->term[t], job->dtype,
                                                      plan->spread, plan->takes);
        }
    plan->thin = thin_job(plan, all);
    plan->narrow = narrow_job(plan);
    plan->scratch_b =
        !plan->packing || plan->outer ? 0
        : plan->thin
            ? all
            : (size_t)(plan->cols * (mm_widest(plan->engine) + (plan->groups ? 2 * MM_PASSES : 0)));
    const size_t capacity =
        SHEAF__THREAD_SCRATCH / sizeof(float) - MM_SCRATCH_A - MM_SCRATCH_NEAR - plan->scratch_b;
    const int64_t most = plan->engine->area_rows > 0 ? plan->engine->area_rows : MOST_ROWS;
    cut_rows(plan, mm_min((int64_t)capacity / (plan->cols * mm_stacked(plan) * slots),
                          mm_up(most, mm_band_rows(plan))));
}

/* One band of rows meets panels that lie ready, and nothing is prefetched: B goes by once and
 * stays in no cache. */
static bool lone_band(const mm_plan *plan)
{
    return mm_unasked(plan) && !plan->packing && !mm_in_place(plan);
}

/* Small areas cost more than they level out. Of few rows, one for each thread is worth it all the
 * same, as it takes longer than its operations say. */
static double at_least(double share, int64_t rows, int threads)
{
    const double one_each = threads > 1 ? share * AREAS : share,
                 least = LEAST_WORK * (double)mm_min(rows, READS) / READS;
    if (share >= LEAST_WORK)
        return share;
    return one_each > LEAST_WORK ? LEAST_WORK : one_each > least ? one_each : least;
}

/* How the first of `jobs`, with those that run beside it, is cut: in areas of about `share`
 * operations; returns their number. */
static int64_t plan_jobs(mm_plan *plan, const sheaf__product *job, int jobs,
                         const mm_engine *engine, bool groups, double share, int threads)
{
    mm_route route;
    *plan =
        (struct mm_plan){ .job = job, .jobs = 1, .engine = engine, .groups = groups, .across = 1 };
    route_of(&route, job);
    if (job->m <= 0 || job->n <= 0 || route.visits == 0)
        return 0; /* nothing to compute, or this rank has no root */
    plan->transposed = engine && is_transposed(job);
    plan->m = plan->transposed ? job->n : job->m;
    plan->n = mm_columns(plan, job);
    plan->down = mm_div_up(plan->m, REF_ROWS);
    if (engine == NULL)
        return plan->down;
    plan->outer = outer_job(plan);
    plan->stacked = plan->outer && !plan->transposed;
    plan->jobs = count_beside(plan, jobs);
    for (int q = 1; q < plan->jobs && !plan->stacked; q++)
        plan->n = mm_up(plan->n, MM_PANEL) + mm_columns(plan, &job[q]);
    cut_cols(plan, MM_MOST_COLS / mm_stacked(plan));
    plan_scratch(plan, route.slots + engine->mma);
    if (lone_band(plan)) { /* the fixed cost of a stretch counts: fewer of them */
        cut_cols(plan, MM_LONE_COLS);
        plan_scratch(plan, route.slots + engine->mma);
    }
    const double k = sheaf__mm_flops(job) / 2 / (double)job->m / (double)job->n * mm_stacked(plan);
    share = at_least(share, plan->m, threads);
    shrink(plan, k, share);
    /* another product uses the threads that small ones leave idle */
    if (threads > 1 && 2 * k * (double)plan->m * (double)plan->n > share * threads)
        level(plan, threads);
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
    const int64_t i0 = area * REF_ROWS;
    sheaf__product_ref_part(plan->job, batch->device->sums, i0, mm_min(plan->m, i0 + REF_ROWS), 0,
                            plan->n);
}

static void run_batch(const mm_isa *isa, sheaf__device *device, const sheaf__product *job, int jobs)
{
    batch batch = { .device = device };
    double flops = 0;
    for (int j = 0; j < jobs; j++)
        flops += sheaf__mm_flops(&job[j]);
    device->flops += flops;
    if (device->class->counts)
        return;
    /* Enough areas to level out threads that start late or run slower; more would bring the same
     * rows and columns into more areas. */
    double share = device->threads == 1 ? flops : flops / (AREAS * device->threads);
    int64_t tasks = 0;
    for (int j = 0; j < jobs;) {
        mm_plan *plan = &batch.plan[batch.plans];
        const sheaf_sums sums =
            sheaf__by_mma(device->sums, job[j].dtype) && !mm_by_mma(&job[j], device->sums)
                ? SHEAF_SUMS_PAIRS /* float16, which is widened as ever */
                : device->sums;
        const mm_engine *engine = mm_engine_for(isa, job[j].dtype, sums, job[j].m);
        const int64_t areas =
            plan_jobs(plan, &job[j], jobs - j, engine,
                      engine != NULL && engine->groups && mm_sums_groups(&job[j], sums), share,
                      device->threads);
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
