/* matmul_products.c - jobs into tasks, and one task: an area of one output.
 *
 * A task keeps its partial sums in scratch, a stack of areas: slot d holds the
 * running sum of the slice at hand while slots below hold finished subtrees
 * that wait for their right neighbour. Slices arrive in ascending order; with
 * the last block of a slice the additions of the tree are done on the way out
 * of the registers. Neither the size of the areas nor the thread that runs a
 * task can show in the result. */
#include "ops/matmul/matmul_private.h"

#define ROOM_A ((size_t)512 << 10) /* bytes of scratch for rows of A; half of a usual L2 */
#define BATCH 128                  /* jobs of one parallel region; more go in turns */

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
    int64_t rows, cols;   /* of an area */
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

/* Are there operands that every area has to bring into panels itself? */
static bool repacks(const sheaf__product *job, const mm_engine *engine)
{
    for (int t = 0; t < job->nterms; t++)
        if (!mm_panels_in_place(&job->term[t], engine->spread))
            return true;
    return false;
}

static int64_t even_share(int64_t whole, int64_t most, int64_t unit)
{
    const int64_t parts = mm_div_up(whole, most);
    return mm_up(mm_div_up(whole, parts), unit);
}

/* Areas as large as scratch allows, smaller where threads would go without work. Returns
 * their number. */
static int64_t plan_job(plan *plan, const sheaf__product *job, const mm_engine *engine, int threads)
{
    route route;
    route_of(&route, job);
    if (route.visits == 0)
        return 0; /* this rank has no root */
    *plan = (struct plan){ .job = job, .engine = engine, .rows = job->m, .cols = job->n,
                           .down = 1, .across = 1 };
    if (engine == NULL) {
        plan->rows = 16;
        plan->down = mm_div_up(job->m, plan->rows);
        return plan->down;
    }
    const bool packing = repacks(job, engine);
    plan->cols = even_share(job->n, 256, MM_PANEL);
    const size_t room_b = packing ? mm_panel_room(job->dtype, engine->spread, plan->cols) : 0;
    const size_t room = SHEAF__THREAD_SCRATCH - ROOM_A - room_b;
    const int64_t most = (int64_t)(room / ((size_t)plan->cols * sizeof(float) * (size_t)route.slots));
    plan->across = mm_div_up(job->n, plan->cols);
    const int64_t want = mm_div_up(8 * threads, plan->across);
    const int64_t fair = mm_up(mm_div_up(job->m, want), engine->rows);
    plan->rows = even_share(job->m, mm_min(mm_min(most, 1024), fair < 112 ? 112 : fair), 1);
    plan->down = mm_div_up(job->m, plan->rows);
    return plan->down * plan->across;
}

/* ---- one area ---- */

typedef struct area {
    const plan *plan;
    const sheaf__product *job;
    const mm_engine *engine;
    int64_t i0, i1, j0, j1;
    uint32_t *room_a, *room_b;
    float *slot;       /* slots, one after the other */
    int64_t ld, slot_size;
    int64_t rows_of_a; /* that fit */
} area;

static float *slot_at(const area *area, int slot) { return area->slot + slot * area->slot_size; }

/* One block of k of one term, for all rows and columns of the area. */
static void area_block(const area *area, const sheaf__term *term, int64_t k0, int64_t kb,
                       const mm_store *store, const mm_finish *finish)
{
    const mm_engine *e = area->engine;
    const sheaf_dtype dtype = area->job->dtype;
    mm_block block = { .a = area->room_a, .cols = area->j1 - area->j0, .finish = finish,
                       .col0 = area->j0, .store = *store };
    if (kb > 0) {
        block.steps = mm_steps(dtype, kb) * (e->spread && dtype == SHEAF_BF16 ? 2 : 1);
        block.b = sheaf__mm_panels(area->room_b, &block.panel, term, dtype, area->j0, area->j1, k0,
                                   kb, e->spread);
    }
    for (int64_t i = area->i0; i < area->i1; i += area->rows_of_a) {
        const int64_t end = mm_min(area->i1, i + area->rows_of_a);
        if (kb > 0)
            sheaf__mm_rows(area->room_a, e->stride, term, dtype, i, end, k0, kb, e->spread);
        block.rows = end - i;
        block.row0 = i;
        for (int q = 0; q < store->addends; q++)
            block.store.addend[q].at =
                store->addend[q].at + (i - area->i0) * store->addend[q].ld;
        block.store.to = store->to + (i - area->i0) * store->ldto;
        e->run(&block);
    }
}

static mm_finish finish_of(const sheaf__product *job, int root)
{
    if (job->roots)
        return (mm_finish){ .y = job->roots[root], .ldy = job->n, .out = SHEAF_F32, .alpha = 1 };
    return (mm_finish){ .y = job->y, .ldy = job->ldy, .out = job->out, .alpha = job->alpha,
                        .bias = job->bias, .residual = job->residual, .ldr = job->ldr,
                        .add = job->add,
                        .round_bf16 = job->round_to == SHEAF_BF16 && job->out == SHEAF_F32 };
}

/* A block of the slice of `v`; the last one climbs the tree. */
static void visit_block(const area *area, const visit *v, const sheaf__term *term, int64_t k0,
                        int64_t kb, bool first, bool last)
{
    mm_store store = { .to = slot_at(area, v->slot), .ldto = area->ld };
    if (!first) {
        store.addend[0].at = slot_at(area, v->slot);
        store.addend[store.addends++].ld = area->ld;
    }
    for (int m = 1; last && m <= v->merges; m++) {
        store.to = slot_at(area, v->slot - m);
        store.addend[store.addends].at = store.to;
        store.addend[store.addends++].ld = area->ld;
    }
    const bool done = last && v->root >= 0;
    const mm_finish finish = done ? finish_of(area->job, v->root) : (mm_finish){ 0 };
    area_block(area, term, k0, kb, &store, done ? &finish : NULL);
}

static void visit_slice(const area *area, const visit *v)
{
    const sheaf__product *job = area->job;
    int term = 0, end = 0;
    if (v->at >= 0) {
        term = job->first ? job->first[v->at] : 0;
        end = job->first ? job->first[v->at + 1] : job->nterms;
    }
    while (end > term && job->term[end - 1].k == 0)
        end--;
    bool first = true;
    for (; term < end; term++) {
        const sheaf__term *t = &job->term[term];
        for (int64_t k0 = 0; k0 < t->k; k0 += MM_BLOCK) {
            const bool last = term + 1 == end && k0 + MM_BLOCK >= t->k;
            visit_block(area, v, t, k0, mm_min(MM_BLOCK, t->k - k0), first, last);
            first = false;
        }
    }
    if (first) /* no element at all: +0 goes the way of a sum */
        visit_block(area, v, NULL, 0, 0, true, true);
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
    area area = { .plan = plan, .job = job, .engine = plan->engine };
    area.i0 = down * plan->rows;
    area.i1 = mm_min(job->m, area.i0 + plan->rows);
    area.j0 = across * plan->cols;
    area.j1 = mm_min(job->n, area.j0 + plan->cols);
    if (plan->engine == NULL) {
        sheaf__product_ref_part(job, area.i0, area.i1, area.j0, area.j1);
        return;
    }
    char *room = batch->device->scratch[worker];
    area.room_a = (uint32_t *)room;
    area.rows_of_a = (int64_t)(ROOM_A / sizeof(uint32_t)) / plan->engine->stride;
    area.room_b = (uint32_t *)(room + ROOM_A);
    area.ld = mm_up(area.j1 - area.j0, MM_PANEL);
    area.slot_size = (area.i1 - area.i0) * area.ld;
    area.slot = (float *)(room + ROOM_A);
    if (repacks(job, plan->engine))
        area.slot += mm_panel_room(job->dtype, plan->engine->spread, area.ld) / sizeof(float);
    route route;
    route_of(&route, job);
    for (int v = 0; v < route.visits; v++)
        visit_slice(&area, &route.visit[v]);
}

void sheaf__mm_products_with(const mm_isa *isa, sheaf__device *device, const sheaf__product *job,
                             int jobs)
{
    batch batch = { .device = device };
    for (int first = 0; first < jobs; first += BATCH) {
        int64_t tasks = 0;
        batch.plans = 0;
        for (int j = first; j < jobs && j < first + BATCH; j++) {
            device->flops += job_flops(&job[j]);
            if (job[j].m <= 0 || job[j].n <= 0 || device->kind == SHEAF_DRY)
                continue;
            plan *plan = &batch.plan[batch.plans];
            const int64_t areas =
                plan_job(plan, &job[j], mm_engine_of(isa, job[j].dtype), device->threads);
            plan->first = tasks;
            tasks += areas;
            batch.plans += areas > 0;
        }
        if (tasks > 0)
            sheaf__pool_run(device->pool, tasks, run_area, &batch);
    }
}

void sheaf__products(sheaf__device *device, const sheaf__product *job, int jobs)
{
    sheaf__mm_products_with(sheaf__mm_isa_for(device->kernels->isa), device, job, jobs);
}
