/* launch_products.c - the jobs of PRODUCTS as a table of parts (kernels/products.h), those
 * that have the same kernel in one launch. */
#include <assert.h>

#include "ops/devices/gpu/kernels/products.h"
#include "ops/devices/gpu/kernels/codes.h"
#include "ops/devices/gpu/launch_products.h"
#include "ops/devices/gpu/cuda/tensor_map.h"
#include "ops/matmul/matmul_private.h"
#include "ops/matmul/mma.h"

_Static_assert(PRODUCTS_CHAIN == SHEAF__MMA_CHAIN, "parts of coded terms");

/* Elements of a part, at most, where no chain ends: a multiple of a block. */
#define MOST_K ((int64_t)1 << 30)

/* Parts of a call with maps, at most: what is staged of them. */
#define MOST_MAPPED 4096

/* The table of a call while it is made. */
typedef struct table {
    sheaf__products_part *part;
    float **root;
    sheaf__tensor_map *map; /* two a part; NULL: none can be made */
    int parts, roots;
    int mapped;                /* behind the last part that has some */
    bool mma;                  /* of the job whose parts are added */
    int64_t scratch;           /* bytes for sums that wait */
    const sheaf__packed *of;   /* turn_of() the job whose parts are added */
    sheaf__codes_matrix *code; /* of terms that a kernel reads as codes, or scales of */
    int codes;
} table;

typedef struct chosen {
    const sheaf__products_kernel *kernel;
    sheaf__products_job job;
    int waits; /* sums that wait at once, at most */
} chosen;

/* ---- parts ---- */

/* Of each of a job's terms, as sheaf__products_turn has it; or NULL. */
static const sheaf__packed *turn_of(const sheaf__products_call *call, const sheaf__product *job)
{
    return call->turn == NULL ? NULL : call->turn->of[job - call->job];
}

static int64_t part_k(const table *t)
{
    return t->mma ? SHEAF__MMA_CHAIN : MOST_K;
}

static bool even(const void *at, int64_t ld, sheaf_dtype dtype)
{
    return ((uintptr_t)at | (uintptr_t)ld * (uintptr_t)mm_size(dtype)) % 16 == 0;
}

/* Elements [k0, k0 + k) of a term. */
static sheaf__products_part part_of(const sheaf__product *job, const sheaf__term *t, int64_t k0,
                                    int64_t k)
{
    const sheaf_dtype type = t->w == NULL ? job->dtype : t->w->dtype;
    const bool b_kn = t->form == SHEAF__B_KN || t->form == SHEAF__B_BACK;
    const char *b = t->w == NULL ? t->b : mm_row_at(t->w, 0);
    sheaf__products_part p = { .lda = t->lda,
                               .ldb = t->w == NULL ? t->ldb : t->w->k,
                               .k = (int32_t)k,
                               .out = -1,
                               .a_km = t->a_km,
                               .b_kn = b_kn,
                               .b_type = (uint8_t)type };
    p.a = (const char *)t->a + k0 * (t->a_km ? t->lda : 1) * mm_size(job->dtype);
    p.b = b + k0 * (b_kn ? p.ldb : 1) * mm_size(type);
    p.a_even = even(p.a, p.lda, job->dtype);
    p.b_even = even(p.b, p.ldb, type);
    return p;
}

/* The same of a weight that is read as codes, its matrix being the last one. */
static sheaf__products_part coded_part_of(const table *t, const sheaf__product *job,
                                          const sheaf__term *term, int64_t k0, int64_t k)
{
    sheaf__products_part p = part_of(job, term, k0, k);
    p.b = NULL;
    p.ldb = t->codes - 1;
    p.coded = 1;
    p.chain = (uint16_t)(k0 / PRODUCTS_CHAIN);
    return p;
}

/* The parts of a term of numbers of codes in groups: its blocks. */
static void add_blocks(table *t, const sheaf__product *job, const sheaf__term *term,
                       const sheaf__packed *of)
{
    sheaf__term codes = *term;
    codes.w = of;
    sheaf__codes_matrix_of(&t->code[t->codes++], of);
    for (int64_t k0 = 0, k; k0 < term->k; k0 += k) {
        k = mm_block(&codes, k0, true);
        sheaf__products_part *p = &t->part[t->parts++];
        *p = part_of(job, term, k0, k);
        p->scaled = t->codes;
        p->col = (int32_t)k0;
    }
}

static bool add_codes(table *t, const sheaf__term *term)
{
    if (term->w == NULL || !term->w->quantised)
        return false;
    sheaf__codes_matrix_of(&t->code[t->codes++], term->w);
    return true;
}

/* The last part's sum ends, with what waits added so often. */
static void end_part(table *t, int adds)
{
    sheaf__products_part *p = &t->part[t->parts - 1];
    p->ends = 1;
    p->adds = (uint8_t)adds;
}

/* Parts of terms [first, end): how many of the slice's sums wait, 0 or 1. The last part does not
 * end. */
static int add_terms(table *t, const sheaf__product *job, int first, int end)
{
    const int before = t->parts;
    int waits = 0;
    for (int i = first; i < end; i++) {
        const sheaf__term *term = &job->term[i];
        if (t->of != NULL && t->of[i].quantised) {
            add_blocks(t, job, term, &t->of[i]);
            continue;
        }
        const bool coded = add_codes(t, term);
        for (int64_t k0 = 0; k0 < term->k; k0 += part_k(t)) {
            if (t->mma && t->parts > before && (k0 > 0 || term->apart)) {
                end_part(t, waits);
                waits = 1;
            }
            const int64_t k = mm_min(term->k - k0, part_k(t));
            t->part[t->parts++] =
                coded ? coded_part_of(t, job, term, k0, k) : part_of(job, term, k0, k);
        }
    }
    if (t->parts == before)
        t->part[t->parts++] = (sheaf__products_part){ .out = -1, .a_even = 1, .b_even = 1 };
    return waits;
}

/* The job's p-th slice; its sum waits. */
static void add_slice(table *t, const sheaf__product *job, int p)
{
    const int first = p < 0        ? 0
                      : job->first ? job->first[p]
                                   : 0,
              end = p < 0        ? 0
                    : job->first ? job->first[p + 1]
                                 : job->nterms;
    const int waits = add_terms(t, job, first, end);
    end_part(t, waits);
}

/* The last part's sum is one more sum of two. */
static void add_sibling(table *t)
{
    t->part[t->parts - 1].adds++;
}

/* Slices [begin, end), a node of the tree; false if none is present. Its sum waits. */
static bool add_node(table *t, const sheaf__product *job, int begin, int end)
{
    if (end - begin == 1) {
        int at = -1;
        for (int p = 0; p < job->nslices; p++)
            if (mm_slice_of(job, p) == begin)
                at = p;
        if (job->tree->present[begin])
            add_slice(t, job, at);
        return job->tree->present[begin];
    }
    const int middle = (begin + end) / 2;
    const bool left = add_node(t, job, begin, middle), right = add_node(t, job, middle, end);
    if (left && right)
        add_sibling(t);
    return left || right;
}

/* The waiting sum is the result. */
static void give(table *t, int out)
{
    t->part[t->parts - 1].out = (int16_t)out;
}

static void add_parts(table *t, const sheaf__product *job)
{
    int own = 0;
    for (int r = 0; job->roots != NULL && r < job->tree->nroots; r++) {
        const sheaf_root *root = &job->tree->root[r];
        if (root->rank != job->rank)
            continue;
        add_node(t, job, root->begin, root->end);
        give(t, own);
        t->root[t->roots++] = job->roots[own++];
    }
    if (job->roots != NULL)
        return;
    if (job->tree == NULL)
        add_slice(t, job, 0);
    else if (!add_node(t, job, 0, job->tree->slices))
        add_slice(t, job, -1);
    give(t, 0);
}

/* Sums that wait at once, at most. */
static int most_waits(const sheaf__products_part *part, int parts)
{
    int now = 0, most = 0;
    for (int p = 0; p < parts; p++) {
        now += part[p].ends ? (part[p].out < 0) - part[p].adds : 0;
        most = now > most ? now : most;
    }
    return most;
}

/* ---- jobs ---- */

/* Kernels of tensor cores step over 64 rows, at most, by 32 bits. */
static bool steps_fit(const sheaf__products_part *part, int parts)
{
    for (int p = 0; p < parts; p++)
        if (part[p].lda > INT32_MAX / 64 || part[p].ldb > INT32_MAX / 64)
            return false;
    return true;
}

/* By tensor cores; parts from `first` on. */
static const sheaf__products_kernel *by_mma(sheaf__gpu *gpu, table *t,
                                            const sheaf__products_call *call,
                                            const sheaf__product *job, int first, bool waits)
{
    const sheaf__products_part *part = t->part + first;
    const sheaf__products_kernel *kernel = sheaf__products_by_codes(job);
    if (kernel != NULL)
        return kernel;
    kernel = t->map == NULL || t->parts > MOST_MAPPED
                 ? NULL
                 : sheaf__products_by_wide(call, job, part, t->parts - first);
    if (kernel == NULL ||
        !sheaf__products_maps(gpu, t->map + (size_t)first * 2, job, kernel, part, t->parts - first))
        return sheaf__products_by_mma(call, job, waits);
    t->mapped = t->parts;
    return kernel;
}

static void add_job(chosen *to, sheaf__gpu *gpu, table *t, const sheaf__products_call *call,
                    const sheaf__product *job)
{
    const int first = t->parts, root = t->roots;
    t->mma = mm_by_mma(job, call->sums);
    t->of = turn_of(call, job);
    add_parts(t, job);
    const int waits = most_waits(t->part + first, t->parts - first);
    const sheaf__products_kernel *kernel = NULL;
    if (!t->mma)
        kernel = sheaf__products_by_fma(call, job);
    else if (call->native && steps_fit(t->part + first, t->parts - first))
        kernel = by_mma(gpu, t, call, job, first, waits > 0);
    *to = (chosen){
        .kernel = kernel,
        .waits = waits,
        .job = { .m = (int32_t)job->m,
                 .n = (int32_t)job->n,
                 .first = first,
                 .parts = t->parts - first,
                 .rows = kernel == NULL ? 0 : (int32_t)mm_div_up(job->m, kernel->rows),
                 .cols = kernel == NULL ? 0 : (int32_t)mm_div_up(job->n, kernel->cols),
                 .dtype = (uint8_t)job->dtype,
                 .roots = job->roots != NULL,
                 .out = (uint8_t)job->out,
                 .round_to = (uint8_t)job->round_to,
                 .add = job->add,
                 .root = root,
                 .root_ld =
                     (int32_t)(call->turn == NULL ? job->n : call->turn->root_ld[job - call->job]),
                 .alpha = job->alpha,
                 .bias = job->bias,
                 .residual = job->residual,
                 .y = job->y,
                 .ldy = job->ldy,
                 .ldr = job->ldr },
    };
}

/* of: turn_of() the job. */
static int64_t most_parts(const sheaf__product *job, const sheaf__packed *of)
{
    int64_t n = job->tree == NULL ? 1 : job->tree->slices; /* one at least of each */
    for (int t = 0; t < job->nterms; t++) {
        const int64_t k = job->term[t].k;
        if (of != NULL && of[t].quantised)
            n += 3 + k / 16 + k / MM_BLOCK; /* the shortest groups, cut */
        else
            n += 1 + k / SHEAF__MMA_CHAIN;
    }
    return n;
}

/* ---- launches ---- */

/* Blocks, of which each has room for `waits` tiles in `scratch` bytes: that has some for the
 * deepest tree, so at least one. */
static int64_t blocks_of(const sheaf__products_kernel *kernel, int64_t tiles, int64_t waits,
                         int64_t scratch, int processors)
{
    const int64_t bytes = waits * kernel->rows * kernel->cols * (int64_t)sizeof(float),
                  each = kernel->cluster > 0 ? kernel->cluster : 1;
    int64_t n = tiles;
    if (kernel->cluster > 0 || bytes > 0)
        n = mm_min(n, mm_div_up((int64_t)processors * kernel->side_by_side, each));
    if (bytes > 0)
        n = mm_min(n, scratch / bytes);
    assert(n > 0);
    return n * each;
}

/* The jobs of `kernel`, at `list`: fills the launch's table. */
static int list_jobs(sheaf__products_job *list, sheaf__products_table *table,
                     const sheaf__products_kernel *kernel, chosen *of, int n)
{
    int64_t tiles = 0, waits = 0;
    int jobs = 0;
    for (int j = 0; j < n; j++) {
        if (of[j].kernel != kernel)
            continue;
        of[j].kernel = NULL;
        of[j].job.tile0 = (int32_t)tiles;
        tiles += (int64_t)of[j].job.rows * of[j].job.cols;
        waits = of[j].waits - kernel->keeps > waits ? of[j].waits - kernel->keeps : waits;
        list[jobs++] = of[j].job;
    }
    table->jobs = jobs;
    table->tiles = (int32_t)tiles;
    table->waits = (int32_t)waits;
    return jobs;
}

typedef struct launched {
    const sheaf__products_kernel *kernel;
    sheaf__products_table table;
    size_t job; /* the first one's place among all */
} launched;

/* Places of the lists that are staged as one: parts first, jobs last. */
typedef struct places {
    size_t roots, codes, jobs;
} places;

static places places_of(const table *t)
{
    places p = { .roots = (size_t)t->parts * sizeof *t->part };
    p.codes = p.roots + (size_t)t->roots * sizeof *t->root;
    p.jobs = p.codes + (size_t)t->codes * sizeof *t->code;
    return p;
}

static void fill(char *all, const table *t)
{
    const places p = places_of(t);
    memcpy(all, t->part, p.roots);
    memcpy(all + p.roots, t->root, p.codes - p.roots);
    memcpy(all + p.codes, t->code, p.jobs - p.codes);
}

static void launch(sheaf__gpu *gpu, const launched *l, const char *staged,
                   const sheaf__tensor_map *map, const table *t)
{
    const sheaf__products_kernel *kernel = l->kernel;
    const places p = places_of(t);
    sheaf__products_table table = l->table;
    table.part = (const sheaf__products_part *)staged;
    table.root = (float *const *)(staged + p.roots);
    table.codes = (const sheaf__codes_matrix *)(staged + p.codes);
    table.job = (const sheaf__products_job *)(staged + p.jobs) + l->job;
    table.map = map;
    table.waiting = table.waits > 0 ? sheaf__gpu_scratch(gpu) : NULL;
    SHEAF__LAUNCH(
        gpu, kernel->name,
        blocks_of(kernel, table.tiles, table.waits, t->scratch, sheaf__gpu_processors(gpu)), 1,
        kernel->threads, kernel->shared, &table);
}

/* Lists are staged as one; jobs by launches, a kernel each. */
static bool launch_all(sheaf__gpu *gpu, const table *t, chosen *of, int n)
{
    const places p = places_of(t);
    char *all = malloc(p.jobs + (size_t)n * sizeof(sheaf__products_job));
    launched *each = calloc((size_t)n, sizeof *each);
    size_t launches = 0, jobs = 0;
    const bool memory = all != NULL && each != NULL;
    for (int j = 0; memory && j < n; j++)
        if (of[j].kernel != NULL) {
            launched *l = &each[launches++];
            *l = (launched){ .kernel = of[j].kernel, .job = jobs };
            jobs += (size_t)list_jobs((sheaf__products_job *)(all + p.jobs) + jobs, &l->table,
                                      l->kernel, of + j, n - j);
        }
    if (memory) {
        fill(all, t);
        const char *staged =
            sheaf__gpu_stage(gpu, all, p.jobs + jobs * sizeof(sheaf__products_job));
        const sheaf__tensor_map *map =
            staged == NULL || t->mapped == 0
                ? NULL
                : sheaf__gpu_stage(gpu, t->map, (size_t)t->mapped * 2 * sizeof *t->map);
        for (size_t l = 0; staged != NULL && (map != NULL || t->mapped == 0) && l < launches; l++)
            launch(gpu, &each[l], staged, map, t);
    }
    free(all);
    free(each);
    return memory;
}

static bool run_jobs(sheaf__gpu *gpu, const sheaf__products_call *call, table *t, chosen *of)
{
    int n = 0;
    for (int j = 0; j < call->jobs; j++) {
        if (call->job[j].m == 0 || call->job[j].n == 0)
            continue;
        add_job(&of[n], gpu, t, call, &call->job[j]);
        if (of[n].job.parts > 0 && of[n++].kernel == NULL) /* no part: no root is its own */
            return false;
    }
    return n == 0 || launch_all(gpu, t, of, n);
}

bool sheaf__products_run(sheaf__gpu *gpu, const sheaf__product *job, int jobs,
                         const sheaf__products_turn *turn)
{
    const bool native = sheaf__gpu_computes(gpu, sheaf__gpu_sums(gpu));
    const sheaf__products_call all = { .job = job,
                                       .jobs = jobs,
                                       .turn = turn,
                                       .sums = sheaf__gpu_sums(gpu),
                                       .native = native,
                                       .wide = sheaf__cuda_has_maps(gpu) && native,
                                       .processors = sheaf__gpu_processors(gpu) };
    int64_t parts = 0;
    size_t terms = 0;
    for (int j = 0; j < all.jobs; j++) {
        parts += most_parts(&all.job[j], turn_of(&all, &all.job[j]));
        terms += (size_t)all.job[j].nterms;
    }
    table t = { .part = calloc((size_t)parts + 1, sizeof *t.part),
                .root = calloc((size_t)all.jobs * SHEAF_MAX_SLICES + 1, sizeof *t.root),
                .code = calloc(terms + 1, sizeof *t.code),
                .scratch =
                    (int64_t)(SHEAF__GPU_SCRATCH - (turn == NULL ? 0 : sheaf__gpu_panels(gpu))) };
    chosen *of = calloc((size_t)all.jobs + 1, sizeof *of);
    if (all.wide)
        t.map = aligned_alloc(_Alignof(sheaf__tensor_map),
                              (size_t)mm_min(parts, MOST_MAPPED) * 2 * sizeof *t.map);
    const bool memory = t.part != NULL && t.root != NULL && t.code != NULL && of != NULL;
    const bool done = memory && run_jobs(gpu, &all, &t, of);
    free(t.part);
    free(t.root);
    free(t.code);
    free(t.map);
    free(of);
    return done;
}
