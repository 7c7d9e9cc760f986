/* matmul_area.c - one area of a product: stretches of k outside, bands of rows inside.
 *
 * Partial sums lie in scratch, a stack of slots: slot d holds the running sum of the slice at hand
 * while slots below hold finished subtrees that wait for their right neighbour. Slices arrive in
 * ascending order; with the last block of a slice the additions of the tree are done on the way
 * out of the registers.
 * A stretch is as many blocks of k as a band's rows of A have room for in the first-level cache.
 * Narrow slices have short blocks, and a stretch of several: what one writes and the next reads
 * stays in that cache too. Jobs side by side take their turns on the same rows.
 * Thin products read A where it lies, outer products both operands; their stretches are single
 * blocks. */
#include <stddef.h>

#include "ops/matmul/matmul_plan.h"
#include "ops/matmul/mma.h"

#define PIECES (MM_LONE_COLS / MM_PANEL)
#define CHAIN 4 /* blocks that stay together, see next_chain() */
#define RUNS 64 /* of memory that the next stretch reads and this one asks for */

/* ---- blocks of k, in order ---- */

typedef struct item {
    const mm_visit *visit;
    int term;
    int64_t k0, kb;   /* kb 0: a slice without elements, +0 goes the way of a sum */
    bool first, last; /* of the slice */
    bool a_km;
    bool groups; /* of codes in groups */
    int sums;    /* of a row's elements that it wants, one a group */
    /* Of mma8 and mma16: the block begins a chain, ends one, and some chain ended before it. */
    bool begins, ends, added;
} item;

typedef struct cursor {
    const mm_plan *plan;
    const mm_route *route;
    int visit, term, end; /* terms [term, end) of the slice are left, the last one not empty */
    int64_t k0;
    bool entered;
    bool begins, added; /* of the block that comes next, see item */
} cursor;

static void enter_slice(cursor *at)
{
    const mm_visit *v = &at->route->visit[at->visit];
    const sheaf__product *job = at->plan->job;
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
    at->begins = true;
    at->added = false;
}

/* Past a block, to where the next one begins; whether it is the last one of its slice. */
static bool move_on(cursor *at, int64_t kb)
{
    const sheaf__product *job = at->plan->job;
    at->k0 += kb;
    while (at->term < at->end && at->k0 == job->term[at->term].k) {
        at->term++;
        at->k0 = 0;
    }
    if (at->term == at->end)
        return true;
    at->begins = at->k0 == 0 ? job->term[at->term].apart : at->k0 % SHEAF__MMA_CHAIN == 0;
    at->added |= at->begins;
    return false;
}

/* The next block of k; false after the last one. */
static bool next_item(item *item, cursor *at)
{
    if (at->visit == at->route->visits)
        return false;
    if (!at->entered)
        enter_slice(at);
    *item = (struct item){ .visit = &at->route->visit[at->visit],
                           .first = !at->entered,
                           .last = true,
                           .begins = at->begins,
                           .added = at->added,
                           .ends = true };
    at->entered = true;
    if (at->term < at->end) {
        const sheaf__product *job = at->plan->job;
        sheaf__term room;
        const sheaf__term *term = mm_term(at->plan, job, at->term, &room);
        item->term = at->term;
        item->a_km = term->a_km;
        item->k0 = at->k0;
        item->groups = at->plan->groups && mm_in_groups(term);
        item->kb = mm_block(term, at->k0, item->groups && !(at->plan->takes & MM_CODES));
        for (int64_t k = 0; item->groups && mm_adds(term) && k < item->kb; item->sums++)
            k += mm_block(term, at->k0 + k, true);
        item->last = move_on(at, item->kb);
        item->ends = item->last || at->begins;
    }
    if (item->last) {
        at->visit++;
        at->entered = false;
    }
    return true;
}

/* ---- the area ---- */

/* The columns [j0, j1) of a job; `panel` counts those of the area before them. */
typedef struct piece {
    const sheaf__product *job;
    int64_t j0, j1, panel;
    const uint32_t *b[MM_PASSES]; /* of the stretch at hand */
    const mm_code *code[MM_PASSES];
    mm_taken taken[MM_PASSES];
    mm_finish finish; /* if it ends in a root; of several each only stores */
} piece;

typedef struct stretch {
    item item[MM_PASSES];
    mm_pass pass[MM_PASSES];
    int n;
    bool a_km;
    int sums;              /* of a row's elements */
    int64_t words, stride; /* of a row of A in scratch, and between rows */
} stretch;

typedef struct area {
    const mm_plan *plan;
    const mm_engine *engine;
    sheaf_dtype dtype;
    int64_t i0, i1; /* of what is computed */
    int pieces;
    uint32_t *scratch_a, *scratch_b;
    float *near, *slot;         /* slots, one after the other */
    int64_t slot_size, slot_ld; /* floats; of a row, padded */
    int chain;                  /* slot of the chain at hand, of mma8 and mma16 */
    int64_t bands;
    int64_t begin, end; /* bands of the stripe at hand */
    /* The next stretch's operands, prefetched bit by bit: panels, before them rows of a band. */
    mm_soon panels[RUNS], rows[MM_PASSES], *panels_at;
    int64_t lines; /* of panels, each time that a kernel runs */
    mm_ending ending;
    /* Written before they are read. */
    piece piece[PIECES];
    float stored[MM_NEAR] __attribute__((aligned(64)));
} area;

static int64_t band_row(const area *area, int64_t band)
{
    return area->i0 + (area->i1 - area->i0) * band / area->bands;
}

static int64_t steps_of(const area *area, const item *item)
{
    return mm_padded(area->engine, mm_steps(mm_computed(area->engine, area->dtype), item->kb)) *
           (area->plan->spread ? 2 : 1);
}

/* Of a row of A in scratch; spreading and widening write in sixteens. */
static int64_t words_of(const area *area, const item *item)
{
    const bool pairs = area->engine->spread && !area->plan->spread;
    return mm_up(steps_of(area, item) * (pairs ? 2 : 1), 16);
}

/* The pieces of columns [c0, c1) of the plan. */
static void cut_pieces(area *area, int64_t c0, int64_t c1)
{
    const mm_plan *plan = area->plan;
    if (plan->stacked) { /* of each job */
        for (int64_t q = 0; q < plan->jobs; q++)
            area->piece[area->pieces++] = (piece){
                .job = &plan->job[q], .j0 = c0, .j1 = c1, .panel = q * mm_div_up(c1 - c0, MM_PANEL)
            };
        return;
    }
    for (int64_t q = 0, begin = 0; q < plan->jobs && begin < c1; q++) {
        const sheaf__product *job = &plan->job[q];
        const int64_t n = mm_columns(plan, job), j0 = c0 > begin ? c0 - begin : 0;
        if (j0 < n)
            area->piece[area->pieces++] = (piece){ .job = job,
                                                   .j0 = j0,
                                                   .j1 = mm_min(n, c1 - begin),
                                                   .panel = (begin + j0 - c0) / MM_PANEL };
        begin += mm_up(n, MM_PANEL);
    }
}

/* ---- stretches ---- */

/* Words of a row before its first element. */
static int64_t first_words(const mm_plan *plan)
{
    return plan->sums ? MM_ROW_SUMS : 0;
}

/* A slice's first block, and blocks that follow it and are short: a unit may add them to the sum
 * that it holds, so they stay together. */
static int next_chain(item chain[CHAIN], const area *area, cursor *at)
{
    int n = 0;
    int64_t words = first_words(area->plan);
    if (mm_in_place(area->plan))
        return next_item(&chain[0], at);
    for (; n < CHAIN; n++) {
        cursor ahead = *at;
        if (!next_item(&chain[n], &ahead))
            break;
        const item *now = &chain[n];
        words += words_of(area, now);
        if (n > 0 && (!chain->first || now->first || now->kb > MM_CHUNK ||
                      words > area->engine->stride || chain->groups || now->groups))
            break;
        *at = ahead;
    }
    return n;
}

static bool has_root(const item *item)
{
    return item->last && item->visit->root >= 0;
}

/* Keeps sums near that a later pass of the stretch reads. */
static void place_slots(stretch *s)
{
    bool wanted[MM_DEPTH] = { false }, here[MM_DEPTH] = { false };
    for (int p = s->n - 1; p >= 0; p--) {
        mm_pass *pass = &s->pass[p];
        pass->to.near = wanted[pass->to.index];
        wanted[pass->to.index] = false;
        for (int q = 0; q < pass->addends; q++)
            wanted[pass->addend[q].index] = true;
        if (pass->goes_on)
            wanted[pass->chain.index] = true;
    }
    for (int p = 0; p < s->n; p++) {
        mm_pass *pass = &s->pass[p];
        for (int q = 0; q < pass->addends; q++)
            pass->addend[q].near = here[pass->addend[q].index];
        pass->chain.near = here[pass->chain.index];
        here[pass->to.index] = true;
    }
}

/* The destination of `item`'s sums; with the last block they climb the tree. */
static mm_pass pass_of(const area *area, const item *item, int64_t at, bool chained)
{
    const mm_visit *v = item->visit;
    mm_pass pass = { .at = at,
                     .steps = steps_of(area, item),
                     .chained = chained,
                     .to.index = v->slot,
                     .scaled = item->groups,
                     .added = item->sums > 0,
                     .started = !item->first };
    if (area->engine->mma) {
        pass.goes_on = !item->begins;
        pass.ends = item->ends;
        pass.chain.index = area->chain;
        if (!item->ends)
            pass.to.index = area->chain;
    }
    if (area->engine->mma ? item->ends && item->added : !item->first)
        pass.addend[pass.addends++].index = v->slot;
    for (int m = 1; item->last && m <= v->merges; m++) {
        pass.to.index = v->slot - m;
        pass.addend[pass.addends++].index = v->slot - m;
    }
    return pass;
}

/* Adds what comes next to a stretch whose rows have room for `limit` words; false if there is no
 * room, or nothing comes, or it must not go on: a root's sum is finished at the end of a stretch.
 */
static bool add_chain(stretch *s, const area *area, cursor *at, int64_t limit)
{
    item chain[CHAIN];
    cursor ahead = *at;
    int64_t more = 0;
    if (s->n > 0 && (mm_in_place(area->plan) || has_root(&s->item[s->n - 1])))
        return false;
    const int n = next_chain(chain, area, &ahead);
    for (int i = 0; i < n; i++)
        more += words_of(area, &chain[i]);
    if (n == 0 || (s->n > 0 && (s->n + n > MM_PASSES || s->words + more > limit)))
        return false;
    for (int i = 0; i < n; i++) {
        s->item[s->n] = chain[i];
        s->a_km |= chain[i].a_km;
        s->pass[s->n] = pass_of(area, &chain[i], s->words, i > 0);
        s->pass[s->n++].sums = s->sums;
        s->sums += chain[i].sums;
        assert(s->sums <= MM_ROW_SUMS); /* a group has 8 words or more, or is the last one */
        s->words += words_of(area, &chain[i]);
    }
    *at = ahead;
    return true;
}

/* Slots whose sums wait after the last item of a stretch. */
static int waiting(const stretch *s)
{
    const item *last = &s->item[s->n - 1];
    return has_root(last) ? 0 : last->visit->slot - last->visit->merges + 1;
}

/* A stretch of whole slices, as many as leave the fewest sums waiting for the next stretch: those
 * go through more than the first-level cache. False if not one has room, or rows are transposed,
 * in groups for which scratch has less. */
static bool whole_slices(stretch *s, const area *area, cursor *at)
{
    stretch all = { .words = first_words(area->plan) };
    cursor ahead = *at;
    s->n = 0;
    while (add_chain(&all, area, &ahead, area->engine->wide))
        if (all.item[all.n - 1].last && !all.a_km && (s->n == 0 || waiting(&all) <= waiting(s))) {
            *s = all;
            *at = ahead;
        }
    s->stride = mm_up(s->words, 32) + 16; /* an odd number of lines, see MM_STRIDE_PAIRS */
    if (s->words % 32 == 16)
        s->stride = s->words;
    return s->n > 0;
}

/* False after the last one. */
static bool next_stretch(stretch *s, const area *area, cursor *at)
{
    if (area->engine->wide == 0 || mm_in_place(area->plan) || at->entered ||
        !whole_slices(s, area, at)) {
        *s = (stretch){ .words = first_words(area->plan), .stride = area->engine->stride };
        while (add_chain(s, area, at, s->stride))
            ;
    }
    place_slots(s);
    return s->n > 0;
}

/* ---- what a stretch reads ---- */

/* Rows of A that scratch has, of one pass. */
typedef struct held {
    const void *a;
    int64_t lda;
} held;

/* The rows of bands [first, end) in scratch, unless they are there already. */
static void bring_rows(area *area, const stretch *s, const piece *piece, held *held, int64_t first,
                       int64_t end)
{
    for (int p = 0; p < s->n; p++) {
        const item *item = &s->item[p];
        if (item->kb == 0)
            continue;
        sheaf__term room;
        const sheaf__term *term = mm_term(area->plan, piece->job, item->term, &room);
        if (term->a == held[p].a && term->lda == held[p].lda)
            continue;
        held[p].a = term->a;
        held[p].lda = term->lda;
        sheaf__mm_rows(area->scratch_a + s->pass[p].at, area->engine, term, area->dtype,
                       band_row(area, first), band_row(area, end), item->k0, item->kb, s->stride);
        if (item->sums > 0)
            sheaf__mm_row_sums((float *)area->scratch_a + s->pass[p].sums, term,
                               band_row(area, first), band_row(area, end), item->k0, item->kb,
                               s->stride);
    }
}

/* The panels of all pieces; `buffer` is where those go that are not there yet, or (`made`) were put
 * before. Returns its end. */
static uint32_t *bring_panels(area *area, const stretch *s, uint32_t *buffer, bool made)
{
    const mm_plan *plan = area->plan;
    for (piece *c = area->piece; c < area->piece + area->pieces; c++)
        for (int p = 0; p < s->n; p++) {
            const item *item = &s->item[p];
            c->b[p] = NULL;
            c->code[p] = NULL;
            if (item->kb == 0)
                continue;
            sheaf__term room;
            const sheaf__term *term = mm_term(plan, c->job, item->term, &room);
            if (plan->outer) {
                c->b[p] = (const uint32_t *)term->b + item->k0 * term->ldb + c->j0;
            } else if (plan->narrow) {
                if (!made)
                    sheaf__mm_narrow(buffer, term, c->j1, area->engine->lanes, item->k0, item->kb);
                c->b[p] = buffer;
            } else {
                c->b[p] = sheaf__mm_panels(buffer, area->engine, term, area->dtype, c->j0, c->j1,
                                           item->k0, item->kb, plan->spread, plan->takes,
                                           item->groups, made);
                if (plan->takes & MM_CODES)
                    sheaf__mm_take(&c->taken[p], term, c->j0, item->k0);
                if (plan->takes & mm_takes(term) & MM_COMPRESSED)
                    c->code[p] = &term->w->code[mm_code_box(term->w, c->j0, item->k0)];
            }
            if (c->b[p] == buffer)
                buffer += mm_pass_words(&s->pass[p]) * mm_div_up(c->j1 - c->j0, MM_PANEL);
        }
    return buffer;
}

/* While a stretch is computed, the panels of the next one come from memory. */
static void ask_panels(area *area, const stretch *next)
{
    int n = 0;
    int64_t lines = 0;
    if (mm_in_place(area->plan) || mm_unasked(area->plan))
        next = NULL;
    for (const piece *c = area->piece; next && c < area->piece + area->pieces; c++)
        for (int p = 0; p < next->n && n + MM_RUNS < RUNS; p++) {
            const item *item = &next->item[p];
            if (item->kb == 0 || item->k0 % MM_BLOCK != 0) /* groups lie in a cell */
                continue;
            sheaf__term room;
            const sheaf__term *term = mm_term(area->plan, c->job, item->term, &room);
            n += sheaf__mm_panels_source(&area->panels[n], term, area->dtype, c->j0, c->j1,
                                         item->k0, item->kb);
        }
    area->panels[n] = (mm_soon){ 0 };
    for (int i = 0; i < n; i++) {
        area->panels[i].then = &area->panels[i + 1];
        lines += mm_soon_lines(&area->panels[i]);
    }
    area->panels_at = area->panels;
    area->lines = mm_div_up(lines, area->bands * area->pieces);
}

/* The same of rows, for the band that comes next: of this stretch, or the first of the next one.
 * Returns their lines. */
static int64_t ask_rows(area *area, const stretch *s, int64_t band)
{
    int n = 0;
    int64_t lines = 0;
    for (int p = 0; s && !mm_in_place(area->plan) && p < s->n; p++) {
        const item *item = &s->item[p];
        if (item->kb == 0 || item->a_km)
            continue;
        sheaf__term room;
        const sheaf__term *term = mm_term(area->plan, area->piece->job, item->term, &room);
        sheaf__mm_rows_source(&area->rows[n], term, area->dtype, band_row(area, band),
                              band_row(area, band + 1), item->k0, item->kb);
        lines += mm_soon_lines(&area->rows[n]);
        if (n > 0)
            area->rows[n - 1].then = &area->rows[n];
        area->rows[n++].then = area->panels_at;
    }
    return lines;
}

/* ---- computing ---- */

/* Field by field, see mm_term(). */
static void finish_of(mm_finish *f, const sheaf__product *job, int root, bool transposed)
{
    const bool sums = job->roots != NULL; /* they leave as they are */
    f->y = sums ? job->roots[root] : job->y;
    f->ldy = sums ? job->n : job->ldy;
    f->out = sums ? SHEAF_F32 : job->out;
    f->alpha = sums ? 1 : job->alpha;
    f->bias = sums ? NULL : job->bias;
    f->residual = sums ? NULL : job->residual;
    f->ldr = sums ? 0 : job->ldr;
    f->add = !sums && job->add;
    f->transposed = transposed;
    f->round_to = f->out == SHEAF_F32 && !sums ? job->round_to : SHEAF_F32;
}

/* A piece's columns of bands [first, end), whose rows are in scratch unless band->stride is set.
 * `next` comes after the stripe. */
static void run_bands(area *area, const stretch *s, const stretch *next, const piece *piece,
                      mm_band *band, int64_t first, int64_t end)
{
    const bool last = piece == area->piece + area->pieces - 1;
    const char *a = band->stride > 0 ? band->a : (const char *)area->scratch_a;
    const int64_t a_step = band->stride == 0   ? band->words * 4
                           : area->plan->outer ? 4
                                               : band->stride;
    for (int64_t g = first; g < end; g++) {
        const int64_t i = band_row(area, g), from = i - band_row(area, first);
        const bool done = g + 1 == area->end;
        band->a = a + from * a_step;
        band->rows = band_row(area, g + 1) - i;
        band->row0 = i;
        band->far = area->slot + (i - band_row(area, area->begin)) * area->slot_ld +
                    piece->panel * MM_PANEL * band->rows;
        const int64_t rows = last ? ask_rows(area, done ? next : s, done ? area->begin : g + 1) : 0;
        band->soon = rows > 0 ? area->rows : area->panels_at;
        band->lines = rows + area->lines;
        (area->plan->outer ? area->engine->outer : area->engine->run)(band);
        while (area->panels_at->rows == 0 && area->panels_at->then != NULL)
            area->panels_at = area->panels_at->then;
    }
}

/* Rows that are read where they lie, if the one block is whole there. */
static void find_rows(const area *area, const stretch *s, const piece *piece, mm_band *band,
                      int64_t first)
{
    const item *item = &s->item[0];
    band->stride = 0;
    if (!mm_in_place(area->plan) || item->kb == 0 ||
        (area->dtype != SHEAF_F32 && item->kb % 2 != 0))
        return;
    sheaf__term room;
    const sheaf__term *term = mm_term(area->plan, piece->job, item->term, &room);
    mm_soon source;
    sheaf__mm_rows_source(&source, term, area->dtype, band_row(area, first), 0, item->k0, 0);
    band->a = source.at;
    band->stride = source.step;
    band->ldb = area->plan->outer ? term->ldb * 4 : 0;
}

/* One stretch, for a stripe of the area. */
static void run_stretch(area *area, const stretch *s, const stretch *next)
{
    const mm_plan *plan = area->plan;
    const item *last = &s->item[s->n - 1];
    /* Transposing a few rows reads whole lines of which it needs a part: more bands at once. A thin
     * product's B stays in the first-level cache for all bands of the stripe. */
    const int64_t group = plan->thin || (s->a_km && !plan->outer) ? MM_GROUP : 1;
    for (piece *c = area->piece; has_root(last) && c < area->piece + area->pieces; c++)
        finish_of(&c->finish, c->job, last->visit->root, plan->transposed);
    for (int64_t g = area->begin; g < area->end; g += group) {
        const int64_t end = mm_min(area->end, g + group);
        held held[MM_PASSES];
        for (int p = 0; p < s->n; p++)
            held[p].a = NULL;
        for (const piece *c = area->piece; c < area->piece + area->pieces; c++) {
            mm_band band = { .pass = s->pass,
                             .b = c->b,
                             .code = plan->takes & MM_COMPRESSED ? c->code : NULL,
                             .taken = plan->takes & MM_CODES ? c->taken : NULL,
                             .passes = s->n,
                             .words = s->stride,
                             .pairs = area->engine->spread && !plan->spread,
                             .narrow = plan->narrow,
                             .cols = c->j1 - c->j0,
                             .col0 = c->j0,
                             .near = area->near,
                             .far_size = area->slot_size,
                             .ending = &area->ending,
                             .stored = area->stored,
                             .finish = has_root(last) ? &c->finish : NULL };
            find_rows(area, s, c, &band, g);
            if (band.stride == 0)
                bring_rows(area, s, c, held, g, end);
            run_bands(area, s, next, c, &band, g, end);
        }
    }
}

/* Stretches outside, bands inside; of a thin product stripe by stripe. */
static void run_stripes(area *area, const mm_route *route, int64_t stripe)
{
    for (int64_t g = 0; g < area->bands; g += stripe) {
        cursor at = { .plan = area->plan, .route = route };
        stretch two[2], *now = &two[0], *next = &two[1];
        uint32_t *buffer = area->scratch_b;
        area->begin = g;
        area->end = mm_min(area->bands, g + stripe);
        for (bool more = next_stretch(now, area, &at); more;) {
            more = next_stretch(next, area, &at);
            uint32_t *end = bring_panels(area, now, buffer, g > 0);
            if (area->plan->thin) /* panels stay for the next stripe */
                buffer = end;
            ask_panels(area, more ? next : NULL);
            run_stretch(area, now, more ? next : NULL);
            stretch *done = now;
            now = next;
            next = done;
        }
    }
}

/* Begin of part `index` of `parts`: of whole units, of which the first parts may have one more, so
 * that threads which take turns get as many. */
static int64_t part_of(int64_t whole, int64_t unit, int64_t parts, int64_t index)
{
    const int64_t units = mm_div_up(whole, unit);
    return mm_min(whole, (units / parts * index + mm_min(index, units % parts)) * unit);
}

void sheaf__mm_area(const mm_plan *plan, const mm_route *route, int64_t index, void *scratch)
{
    area area;
    memset(&area, 0, offsetof(struct area, piece));
    area.plan = plan;
    area.engine = plan->engine;
    area.dtype = plan->job->dtype;
    const int64_t unit = mm_band_rows(plan), across = index / plan->down, down = index % plan->down;
    const int64_t c0 = part_of(plan->n, MM_PANEL, plan->across, across),
                  c1 = part_of(plan->n, MM_PANEL, plan->across, across + 1);
    area.i0 = part_of(plan->m, unit, plan->down, down);
    area.i1 = part_of(plan->m, unit, plan->down, down + 1);
    cut_pieces(&area, c0, c1);
    area.bands = mm_div_up(area.i1 - area.i0, unit);
    area.scratch_a = scratch;
    area.near = (float *)(area.scratch_a + MM_SCRATCH_A);
    area.scratch_b = (uint32_t *)(area.near + MM_SCRATCH_NEAR);
    area.slot = (float *)(area.scratch_b + plan->scratch_b);
    area.chain = route->slots;
    area.slot_ld = mm_up(c1 - c0, MM_PANEL) * mm_stacked(plan);
    const int64_t stripe = plan->thin ? mm_min(MM_GROUP, area.bands) : area.bands;
    area.slot_size = mm_min(stripe * unit, area.i1 - area.i0) * area.slot_ld;
    if (plan->engine->enter)
        plan->engine->enter();
    run_stripes(&area, route, stripe);
    if (plan->engine->end)
        plan->engine->end(&area.ending);
    if (plan->engine->leave)
        plan->engine->leave();
}
