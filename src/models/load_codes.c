/* load_codes.c - reads the codes of what a rank owns of a quantised weight, with their scales.
 *
 * Threads share the rows as in load.c. Slices of columns are read together and taken apart here, as
 * they lie side by side in the files. */
#include <math.h>

#include "base/base.h"
#include "base/lowest.h"
#include "models/build.h"

enum { PANEL = 32 }; /* rows of a panel */

typedef struct codes {
    sheaf__context *c;
    sheaf_source *source;
    sheaf__linear *l;
    const sheaf__quant *quant;
    sheaf__quant_box box; /* that is read: all that is owned */
    int64_t groups;       /* of its rows, */
    int64_t floats;       /* and of each of these */
    int64_t fit, each;    /* rows that a thread's scratch has room for; that a thread has at once */
    sheaf__lowest failed; /* groups of rows */
} codes;

bool sheaf__linear_is_quantised(const sheaf__linear *l)
{
    return l->rows ? l->count > 0 && l->w[l->first].quantised : l->all.quantised;
}

/* Bytes of a group's parts. */
static int64_t of_group(const codes *b)
{
    return b->floats * (int64_t)sizeof(float) + 2;
}

/* Parts of `rows` rows in `memory`, which has room for them: scales first, which are aligned. */
static sheaf__quant_parts parts_in(char **memory, const codes *b, int64_t rows, int64_t cols,
                                   int64_t groups)
{
    sheaf__quant_parts p = { .scales = (float *)*memory };
    p.codes = (uint8_t *)(p.scales + rows * groups * b->floats);
    p.scale_codes = p.codes + rows * cols;
    p.zeros = p.scale_codes + rows * groups;
    const size_t bytes = (size_t)(rows * (cols + groups * of_group(b)));
    *memory += (bytes + 63) / 64 * 64;
    return p;
}

/* Of rows that were read, from row r on, what belongs to one slice of columns. */
static void split(const codes *b, const sheaf__quant_parts *to, const sheaf__quant_parts *from,
                  const sheaf__quant_box *slice, int64_t groups, int64_t r, int64_t n)
{
    const sheaf__quant *q = b->quant;
    const bool own = q->grouping != SHEAF__GROUPS_INDEXED && q->block > 0;
    const int64_t at = slice->col0 - b->box.col0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t first = own ? (sheaf__quant_phase(q, &b->box, r + i) + at) / q->block : 0,
                      have = b->groups - first < groups ? b->groups - first : groups,
                      src = i * b->groups + first, dst = i * groups;
        memcpy(to->codes + i * slice->cols, from->codes + i * b->box.cols + at,
               (size_t)slice->cols);
        const size_t scale = (size_t)b->floats * sizeof *to->scales;
        memset(to->scales + dst * b->floats, 0, (size_t)groups * scale);
        memset(to->scale_codes + dst, 0, (size_t)groups);
        if (q->doubled)
            memcpy(to->scale_codes + dst, from->scale_codes + src, (size_t)have);
        else
            memcpy(to->scales + dst * b->floats, from->scales + src * b->floats,
                   (size_t)have * scale);
        if (q->zeros) {
            memset(to->zeros + dst, 0, (size_t)groups);
            memcpy(to->zeros + dst, from->zeros + src, (size_t)have);
        }
    }
}

static sheaf_status *not_finite(const codes *b)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "tensor '%s': scales of its codes", b->l->name);
    sheaf_found(sheaf_expected(st, "finite numbers"), "NaN or infinity");
    return sheaf_try_this(st, "sheaf verify says where; load the model's files again");
}

static sheaf_status *check_scales(const codes *b, const sheaf__quant_parts *p, int64_t rows)
{
    for (int64_t i = 0; !b->quant->doubled && i < rows * b->groups * b->floats; i++)
        if (!isfinite(p->scales[i]))
            return not_finite(b);
    return NULL;
}

/* Rows [r, r + n) of the box, to where they belong; `spare`: memory for a slice of them. */
static void put(const codes *b, const sheaf__quant_parts *read, int64_t r, int64_t n, char *spare)
{
    sheaf__linear *l = b->l;
    if (!l->rows) {
        sheaf__weight_load_codes(b->c->device, &l->all, read, r, n);
        return;
    }
    for (int s = l->first; s < l->first + l->count; s++) {
        const sheaf__quant_box slice = l->w[s].box;
        const int64_t groups = sheaf__quant_groups(b->quant, &slice);
        char *memory = spare;
        const sheaf__quant_parts part = parts_in(&memory, b, n, slice.cols, groups);
        if (slice.cols == 0)
            continue;
        split(b, &part, read, &slice, groups, r, n);
        sheaf__weight_load_codes(b->c->device, &l->w[s], &part, r, n);
    }
}

/* Some sources read many rows at once with far fewer calls. Threads have whole panels, whose rows
 * are read in several goes where they are long. */
static void share(codes *b)
{
    const int64_t row = b->box.cols + (b->groups + 1) * of_group(b) + 64; /* bytes, at most */
    const int64_t threads = sheaf__pool_threads(b->c->device->pool),
                  even = (b->box.rows + threads - 1) / threads;
    b->fit = (int64_t)SHEAF__THREAD_SCRATCH / (b->l->rows ? 2 * row : row);
    b->fit -= b->fit > PANEL ? b->fit % PANEL : 0;
    b->each = ((even < b->fit ? even : b->fit) + PANEL - 1) / PANEL * PANEL;
}

static void read_group(void *arg, int64_t group, int worker)
{
    codes *b = arg;
    const int64_t first = group * b->each,
                  last = first + b->each < b->box.rows ? first + b->each : b->box.rows;
    sheaf_status *st = b->fit > 0
                           ? NULL
                           : sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: a row of %" PRId64 " codes",
                                        b->l->name, b->box.cols);
    for (int64_t r = first; r < last && st == NULL;) {
        const int64_t n = last - r < b->fit ? last - r : b->fit;
        char *memory = b->c->device->scratch[worker];
        const sheaf__quant_parts read = parts_in(&memory, b, n, b->box.cols, b->groups);
        st = sheaf__source_codes(b->source, b->l->name, b->box.row0 + r, n, b->box.col0,
                                 b->box.cols, &read);
        TRY(st, check_scales(b, &read, n));
        if (st == NULL)
            put(b, &read, r, n, memory);
        r += n;
    }
    if (st != NULL)
        sheaf__lowest_note(&b->failed, group, st);
}

/* Values of the whole tensor, into each matrix. */
static sheaf_status *load_whole(const codes *b, int64_t out)
{
    sheaf__linear *l = b->l;
    const int64_t in = b->box.in, nested = sheaf__quant_nested(b->quant, out * in);
    sheaf__quant_whole whole = { malloc((size_t)in * sizeof *whole.index + 1),
                                 malloc((size_t)nested * sizeof *whole.nested + 1), 0 };
    sheaf_status *st =
        whole.index == NULL || whole.nested == NULL ? sheaf__no_memory(l->name) : NULL;
    TRY(st, sheaf__source_whole(b->source, l->name, &whole));
    for (int64_t i = 0; i < nested && st == NULL; i++)
        if (!isfinite(whole.nested[i]) || !isfinite(whole.offset))
            st = not_finite(b);
    if (st == NULL && !l->rows)
        sheaf__weight_load_whole(b->c->device, &l->all, &whole);
    for (int s = l->first; s < l->first + l->count && st == NULL; s++) {
        if (!l->rows)
            l->w[s] = sheaf__packed_part(&l->all, l->begin[s], l->extent[s]);
        else if (l->extent[s] > 0)
            sheaf__weight_load_whole(b->c->device, &l->w[s], &whole);
    }
    free(whole.index);
    free(whole.nested);
    return st;
}

sheaf_status *sheaf__load_codes(sheaf__context *c, sheaf_source *base, sheaf__linear *l)
{
    const sheaf_source_entry *e = base->find(base, l->name);
    codes b = { .c = c,
                .source = base,
                .l = l,
                .quant = sheaf__source_held(base, l->name),
                .box = l->rows ? (sheaf__quant_box){ l->in, 0, l->out, l->logical0, l->owned }
                               : l->all.box };
    if (b.box.rows == 0 || b.box.cols == 0)
        return NULL;
    b.groups = sheaf__quant_groups(b.quant, &b.box);
    b.floats = sheaf__quant_floats(b.quant);
    sheaf_status *st = load_whole(&b, e->shape[0]);
    if (st != NULL)
        return st;
    sheaf__lowest_begin(&b.failed);
    share(&b);
    sheaf__pool_run(c->device->pool, (b.box.rows + b.each - 1) / b.each, read_group, &b);
    return sheaf__lowest_end(&b.failed);
}
