/* matmul_products.c - jobs into tasks, and one task: an area of one output.
 *
 * A task keeps its partial sums in scratch, a stack of areas: slot d holds the
 * running sum of the slice at hand while slots below hold finished subtrees
 * that wait for their right neighbour. Slices arrive in ascending order; with
 * the last block of a slice the additions of the tree are done on the way out
 * of the registers. Neither the size of the areas nor the thread that runs a
 * task can show in the result. */
#include "ops/matmul/matmul_private.h"

#define MOST_COLS                                                                                  \
    512 /* of an area: a block of B, half a MiB, should stay in the second-level cache */
#define MOST_ROWS 1024
#define LEAST_WORK 1e6 /* operations of an area: some microseconds, against one for a task */
#define THIN_B ((size_t)512 << 10) /* words of B that a thin product may keep in scratch */
#define GROUP 16                   /* bands of A transposed at a time */
/* Of scratch: bands of 14 rows of floats, or of 32 rows of pairs. */
#define SCRATCH_A ((size_t)(GROUP * 32 * MM_STRIDE_PAIRS) * sizeof(float))
#define BATCH 128 /* jobs of one parallel region; more wait for the next */

/* ---- the order of slices and additions ---- */

typedef struct visit {
    int at;     /* position among the job's slices; -1 holds nothing, which counts as +0 */
    int merges; /* subtrees that this slice completes */
    int slot;   /* where its sum grows */
    int root;   /* root that it completes: index among this rank's, else -1 */
} visit;

typedef struct route {
    visit visit[SHEAF_MAX_SLICES];
    int visits, slots;
} route;

static bool route_node(route *route, const sheaf__product *job, int begin, int end)
{
    if (end - begin == 1) {
        visit v = { .at = -1, .root = -1 };
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

static void route_of(route *route, const sheaf__product *job)
{
    route->visits = route->slots = 0;
    if (job->tree == NULL) {
        route->visit[route->visits++] = (visit){ .at = 0, .root = 0 };
    } else if (job->roots == NULL) {
        if (!route_node(route, job, 0, job->tree->slices))
            route->visit[route->visits++] = (visit){ .at = -1 };
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
        visit *now = &route->visit[v];
        now->slot = depth;
        depth = now->root >= 0 ? 0 : depth + 1 - now->merges;
        if (now->slot >= route->slots)
            route->slots = now->slot + 1;
    }
}

/* ---- how a job is cut into areas ---- */

typedef struct plan {
    const sheaf__product *job;
    const mm_engine *engine;
    bool transposed;      /* B^T A^T is computed, see is_transposed() */
    int64_t m, n;         /* of what is computed */
    int64_t rows, cols;   /* of an area */
    bool packing;         /* some B has to be brought into panels */
    bool thin;            /* see thin_job() */
    bool spread;          /* B is spread before use */
    size_t scratch_b;     /* words of scratch for B */
    int64_t down, across; /* areas */
    int64_t first;        /* task of the batch */
} plan;

typedef struct batch {
    sheaf__device *device;
    plan plan[BATCH];
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

static sheaf__term transpose(const sheaf__term *t)
{
    return (sheaf__term){ .a = t->b,
                          .lda = t->ldb,
                          .a_km = t->form == SHEAF__B_KN,
                          .k = t->k,
                          .form = t->a_km ? SHEAF__B_KN : SHEAF__B_NK,
                          .b = t->a,
                          .ldb = t->lda };
}

static int64_t even_share(int64_t whole, int64_t most, int64_t unit)
{
    const int64_t parts = mm_div_up(whole, most);
    return mm_up(mm_div_up(whole, parts), unit);
}

/* Halves areas until one is no more than a fair share of work. Rows go first where B is in
 * panels already, else columns: an area brings its own columns of B into panels, which should
 * serve many rows. */
static void shrink(plan *plan, double k, double share)
{
    const int64_t m = plan->m, n = plan->n, rows = plan->engine->rows;
    while (2.0 * k * (double)plan->rows * (double)plan->cols > share) {
        if (plan->cols > 256 && (plan->packing || plan->rows <= 16 * rows))
            plan->cols = even_share(n, plan->cols / 2, MM_PANEL);
        else if (plan->rows > 16 * rows)
            plan->rows = even_share(m, plan->rows / 2, 1);
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
static bool thin_job(const plan *plan, size_t words_of_b)
{
    const sheaf__product *job = plan->job;
    if (plan->n > 2 * MM_PANEL || words_of_b > THIN_B || plan->engine->direct == 0 ||
        plan->transposed)
        return false;
    for (int t = 0; t < job->nterms; t++)
        if (job->term[t].a_km)
            return false;
    return true;
}

/* What lies in scratch beside the rows of A, and how many rows of sums that leaves. */
static void plan_scratch(plan *plan, int slots)
{
    const sheaf__product *job = plan->job;
    size_t all = 0; /* words of B, all blocks of k */
    plan->spread = plan->engine->spread && plan->m > 2 * plan->engine->few;
    for (int t = 0; t < job->nterms; t++) {
        const int64_t steps = mm_steps(mm_computed(job->dtype), job->term[t].k),
                      padded = mm_padded(plan->engine, steps);
        all += (size_t)(padded * plan->cols);
        plan->packing |=
            padded > steps || !mm_panels_in_place(&job->term[t], job->dtype, plan->spread);
    }
    plan->thin = thin_job(plan, all);
    plan->scratch_b = !plan->packing ? 0 : plan->thin ? all : (size_t)(plan->cols * MM_BLOCK);
    const size_t capacity = (SHEAF__THREAD_SCRATCH - SCRATCH_A) / sizeof(float) - plan->scratch_b;
    plan->rows =
        even_share(plan->m, mm_min((int64_t)capacity / (plan->cols * slots), MOST_ROWS), 1);
}

/* How the job is cut, in areas of about `share` operations; returns their number. */
static int64_t plan_job(plan *plan, const sheaf__product *job, const mm_engine *engine,
                        double share)
{
    route route;
    route_of(&route, job);
    if (route.visits == 0)
        return 0; /* this rank has no root */
    const bool transposed = engine && is_transposed(job);
    *plan = (struct plan){ .job = job,
                           .engine = engine,
                           .transposed = transposed,
                           .m = transposed ? job->n : job->m,
                           .n = transposed ? job->m : job->n };
    plan->rows = 16;
    plan->cols = plan->n;
    if (engine) {
        plan->cols = even_share(plan->n, MOST_COLS, MM_PANEL);
        plan_scratch(plan, route.slots);
        shrink(plan, job_flops(job) / 2 / (double)job->m / (double)job->n, share);
    }
    plan->across = mm_div_up(plan->n, plan->cols);
    plan->down = mm_div_up(plan->m, plan->rows);
    return plan->down * plan->across;
}

/* ---- the blocks of an area, in order ---- */

typedef struct item {
    const visit *visit;
    sheaf__term term;
    int64_t k0, kb;   /* kb 0: a slice without elements, +0 goes the way of a sum */
    bool first, last; /* of the slice */
} item;

typedef struct cursor {
    const sheaf__product *job;
    const route *route;
    bool transposed;
    int visit, term, end; /* terms [term, end) of the slice are left, the last one not empty */
    int64_t k0;
    bool entered;
} cursor;

static void enter_slice(cursor *at)
{
    const visit *v = &at->route->visit[at->visit];
    const sheaf__product *job = at->job;
    at->term = at->end = 0;
    if (v->at >= 0) {
        at->term = job->first ? job->first[v->at] : 0;
        at->end = job->first ? job->first[v->at + 1] : job->nterms;
    }
    while (at->end > at->term && job->term[at->end - 1].k == 0)
        at->end--;
    while (at->term < at->end && job->term[at->term].k == 0)
        at->term++;
    at->k0 = 0;
}

/* The next block of k; false after the last one. */
static bool next_item(item *item, cursor *at)
{
    if (at->visit == at->route->visits)
        return false;
    if (!at->entered)
        enter_slice(at);
    *item =
        (struct item){ .visit = &at->route->visit[at->visit], .first = !at->entered, .last = true };
    at->entered = true;
    if (at->term < at->end) {
        const sheaf__term *term = &at->job->term[at->term];
        item->term = at->transposed ? transpose(term) : *term;
        item->k0 = at->k0;
        item->kb = mm_min(MM_BLOCK, term->k - at->k0);
        at->k0 += item->kb;
        while (at->term < at->end && at->k0 == at->job->term[at->term].k) {
            at->term++;
            at->k0 = 0;
        }
        item->last = at->term == at->end;
    }
    if (item->last) {
        at->visit++;
        at->entered = false;
    }
    return true;
}

/* ---- one area ---- */

typedef struct area {
    const sheaf__product *job;
    const mm_engine *engine;
    bool transposed, thin, spread;
    int64_t i0, i1, j0, j1; /* of what is computed */
    uint32_t *scratch_a, *scratch_b;
    float *slot;                /* slots, one after the other */
    int64_t slot_size, slot_ld; /* floats; of a row, padded */
    int64_t bands;
    int64_t begin, end;      /* bands of the stripe at hand */
    mm_soon panels[MM_RUNS]; /* of the next block; asked for bit by bit */
    int64_t lines;           /* of them during each band */
} area;

static int64_t band_row(const area *area, int64_t band)
{
    return area->i0 + (area->i1 - area->i0) * band / area->bands;
}

/* Transposing a few rows reads whole lines of which it needs a part: more bands at once. */
static int64_t bands_at_once(const item *item)
{
    return item->kb > 0 && item->term.a_km ? GROUP : 1;
}

static int64_t steps_of(const area *area, const item *item)
{
    return mm_padded(area->engine, mm_steps(mm_computed(area->job->dtype), item->kb)) *
           (area->spread ? 2 : 1);
}

static mm_finish finish_of(const sheaf__product *job, int root, bool transposed)
{
    if (job->roots)
        return (mm_finish){ .y = job->roots[root],
                            .ldy = job->n,
                            .out = SHEAF_F32,
                            .alpha = 1,
                            .transposed = transposed,
                            .round_to = SHEAF_F32 };
    return (mm_finish){ .y = job->y,
                        .ldy = job->ldy,
                        .out = job->out,
                        .alpha = job->alpha,
                        .bias = job->bias,
                        .residual = job->residual,
                        .ldr = job->ldr,
                        .add = job->add,
                        .transposed = transposed,
                        .round_to = job->out == SHEAF_F32 ? job->round_to : SHEAF_F32 };
}

/* Where the sums of `item` go; with the last block they climb the tree. */
static void address(mm_band *band, const area *area, const item *item, int64_t i)
{
    const visit *v = item->visit;
    float *own = area->slot + (i - band_row(area, area->begin)) * area->slot_ld;
    band->addends = 0;
    band->to = own + v->slot * area->slot_size;
    if (!item->first)
        band->addend[band->addends++] = band->to;
    for (int m = 1; item->last && m <= v->merges; m++) {
        band->to = own + (v->slot - m) * area->slot_size;
        band->addend[band->addends++] = band->to;
    }
}

/* A group of bands has been brought to scratch_a. `next` comes after the stripe, and begins with
 * band `after_stripe`. */
static void run_group(area *area, const item *item, const struct item *next, mm_band *band,
                      int64_t first, int64_t end, int64_t after_stripe)
{
    const mm_engine *e = area->engine;
    for (int64_t g = first; g < end; g++) {
        const int64_t i = band_row(area, g), after = g + 1;
        if (band->stride == 0)
            band->a = area->scratch_a + (i - band_row(area, first)) * e->stride;
        band->rows = band_row(area, g + 1) - i;
        band->row0 = i;
        address(band, area, item, i);
        const struct item *then = after < area->end ? item : next;
        const int64_t soon = after < area->end ? after : after_stripe;
        band->soon = (mm_soon){ 0 };
        if (then && then->kb > 0 && !then->term.a_km && !area->thin)
            band->soon = sheaf__mm_rows_source(&then->term, area->job->dtype, band_row(area, soon),
                                               band_row(area, soon + 1), then->k0, then->kb);
        band->soon.then = area->panels;
        band->lines = area->lines;
        e->run(band);
    }
}

/* One block of k, for a stripe of the area; b: its panels. */
static void run_item(area *area, const item *item, const struct item *next, int64_t next_band,
                     const uint32_t *b)
{
    const mm_engine *e = area->engine;
    const sheaf_dtype dtype = area->job->dtype;
    const bool done = item->last && item->visit->root >= 0;
    const mm_finish finish =
        done ? finish_of(area->job, item->visit->root, area->transposed) : (mm_finish){ 0 };
    mm_band band = { .b = b,
                     .cols = area->j1 - area->j0,
                     .col0 = area->j0,
                     .steps = steps_of(area, item),
                     .pairs = e->spread && !area->spread,
                     .finish = done ? &finish : NULL };
    const int64_t group = bands_at_once(item);
    for (int64_t g = area->begin; g < area->end; g += group) {
        const int64_t end = mm_min(area->end, g + group);
        if (item->kb > 0 && area->thin && (dtype == SHEAF_F32 || item->kb % 2 == 0)) {
            const mm_soon source =
                sheaf__mm_rows_source(&item->term, dtype, band_row(area, g), 0, item->k0, 0);
            band.a = source.at;
            band.stride = source.step;
        } else if (item->kb > 0) {
            sheaf__mm_rows(area->scratch_a, e, &item->term, dtype, band_row(area, g),
                           band_row(area, end), item->k0, item->kb);
        }
        run_group(area, item, next, &band, g, end, next_band);
    }
}

/* While a block is computed, the panels of the next one come from memory. */
static void ask_panels(area *area, const item *next)
{
    area->panels[0] = (mm_soon){ 0 };
    area->lines = 0;
    if (next == NULL || next->kb == 0 || area->thin)
        return;
    sheaf__mm_panels_source(area->panels, &next->term, area->job->dtype, area->j0, area->j1,
                            next->k0, next->kb);
    for (const mm_soon *s = area->panels; s != NULL; s = s->then)
        area->lines += mm_soon_lines(s);
    area->lines = mm_div_up(area->lines, area->bands);
}

/* Blocks of k outside, bands of rows inside; of a thin product stripe by stripe. */
static void run_stripes(area *area, const plan *plan, const route *route, int64_t stripe)
{
    for (int64_t g = 0; g < area->bands; g += stripe) {
        cursor at = { .job = plan->job, .route = route, .transposed = plan->transposed },
               start = at;
        item now, next, first;
        uint32_t *buffer = area->scratch_b;
        area->begin = g;
        area->end = mm_min(area->bands, g + stripe);
        bool more = next_item(&next, &at);
        next_item(&first, &start);
        while (more) {
            now = next;
            more = next_item(&next, &at);
            const uint32_t *b = NULL;
            if (now.kb > 0)
                b = sheaf__mm_panels(buffer, plan->engine, &now.term, plan->job->dtype, area->j0,
                                     area->j1, now.k0, now.kb, plan->spread, g > 0);
            if (plan->thin && b == buffer)
                buffer += steps_of(area, &now) * area->slot_ld;
            ask_panels(area, more ? &next : NULL);
            const bool last = !more && area->end == area->bands;
            run_item(area, &now, more ? &next : last ? NULL : &first, more ? g : area->end, b);
        }
    }
}

static int band_rows(const plan *plan)
{
    if (plan->engine->spread && !plan->spread)
        return plan->engine->few;
    return plan->thin ? plan->engine->direct : plan->engine->rows;
}

static void run_area(void *context, int64_t index, int worker)
{
    batch *batch = context;
    int p = 0;
    while (p + 1 < batch->plans && batch->plan[p + 1].first <= index)
        p++;
    const plan *plan = &batch->plan[p];
    const sheaf__product *job = plan->job;
    const int64_t task = index - plan->first;
    const int64_t down = task % plan->down, across = task / plan->down;
    area area = { .job = job,
                  .engine = plan->engine,
                  .transposed = plan->transposed,
                  .thin = plan->thin,
                  .spread = plan->spread };
    area.i0 = down * plan->rows;
    area.i1 = mm_min(plan->m, area.i0 + plan->rows);
    area.j0 = across * plan->cols;
    area.j1 = mm_min(plan->n, area.j0 + plan->cols);
    if (plan->engine == NULL) {
        sheaf__product_ref_part(job, batch->device->sums, area.i0, area.i1, area.j0, area.j1);
        return;
    }
    char *buffer = batch->device->scratch[worker];
    area.bands = mm_div_up(area.i1 - area.i0, band_rows(plan));
    area.scratch_a = (uint32_t *)buffer;
    area.scratch_b = (uint32_t *)(buffer + SCRATCH_A);
    area.slot_ld = mm_up(area.j1 - area.j0, MM_PANEL);
    area.slot = (float *)(area.scratch_b + plan->scratch_b);
    const int64_t stripe = plan->thin ? 1 : area.bands;
    area.slot_size =
        plan->thin ? plan->engine->rows * area.slot_ld : (area.i1 - area.i0) * area.slot_ld;
    route route;
    route_of(&route, job);
    if (plan->engine->enter)
        plan->engine->enter();
    run_stripes(&area, plan, &route, stripe);
    if (plan->engine->leave)
        plan->engine->leave();
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
    /* Enough areas to level out threads that start late or run slower. */
    double share = device->threads == 1 ? flops : flops / (6.0 * device->threads);
    if (share < LEAST_WORK)
        share = LEAST_WORK;
    int64_t tasks = 0;
    for (int j = 0; j < jobs; j++) {
        if (job[j].m <= 0 || job[j].n <= 0)
            continue;
        plan *plan = &batch.plan[batch.plans];
        const int64_t areas = plan_job(plan, &job[j], engine_of(isa, &job[j], device->sums), share);
        plan->first = tasks;
        tasks += areas;
        batch.plans += areas > 0;
    }
    if (tasks > 0)
        sheaf__pool_run(device->pool, tasks, run_area, &batch);
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
