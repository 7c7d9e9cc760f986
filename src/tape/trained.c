/* trained.c - see trained.h. */
#include "tape/trained.h"

#include <float.h>
#include <math.h>

#include "base/base.h"
#include "tape/moments.h"
#include "tape/rows.h"

enum { ALIGN = 16 };

static int64_t padded(int64_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

sheaf_status *sheaf__trained_set_new(sheaf__trained_set **out, sheaf__context *context)
{
    sheaf__trained_set *set = calloc(1, sizeof *set);
    if (set == NULL)
        return sheaf__no_memory("list of trained tensors");
    set->context = context;
    *out = set;
    return NULL;
}

void sheaf__trained_set_free(sheaf__trained_set *set)
{
    if (set == NULL)
        return;
    for (int i = 0; i < set->count; i++) {
        free(set->item[i]->name);
        free(set->item[i]);
    }
    free(set->item);
    sheaf__free(set->context, set->master);
    if (!set->moments_away || set->eight_bits) {
        sheaf__free(set->context, set->moment1);
        sheaf__free(set->context, set->moment2);
    }
    sheaf__moments_free(set->moments);
    sheaf__free(set->context, set->eight);
    free(set->maps8);
    for (int i = 0; i < set->nsums; i++)
        sheaf__free(set->context, set->sum[i]);
    free(set);
}

int sheaf__trained_parts(const sheaf__trained *t)
{
    return t->cut.nparts == 0 ? 1 : t->cut.nparts;
}

void sheaf__trained_box(const sheaf__trained *t, int part, int slice, sheaf_range *rows,
                        sheaf_range *cols)
{
    *rows = (sheaf_range){ 0, t->shape[0] };
    *cols = (sheaf_range){ 0, t->shape[1] };
    if (t->cut.nparts == 0)
        return;
    sheaf_range cut = { 0, 0 };
    sheaf_status_free(
        sheaf_cut_rows(&cut, &t->cut, part, slice)); /* checked when the schema was made */
    *(t->cut.axis == 0 ? rows : cols) = cut;
}

int64_t sheaf__trained_at(const sheaf__trained *t, int part, int slice)
{
    int64_t at = 0;
    for (int p = 0; p < part; p++) {
        sheaf_range rows, cols;
        sheaf__trained_box(t, p, slice, &rows, &cols);
        at += (rows.end - rows.begin) * (cols.end - cols.begin);
    }
    return at;
}

sheaf_status *sheaf__trained_add(sheaf__trained **out, sheaf__trained_set *set, const char *name,
                                 int ndim, const int64_t *shape, const sheaf_cut *cut, bool decay)
{
    if (!SHEAF_GROW(&set->item, &set->capacity, set->count + 1))
        return sheaf__no_memory("list of trained tensors");
    sheaf__trained *t = calloc(1, sizeof *t);
    if (t == NULL || (t->name = strdup(name)) == NULL) {
        free(t);
        return sheaf__no_memory(name);
    }
    t->ndim = ndim;
    t->shape[0] = shape[0];
    t->shape[1] = ndim == 1 ? 1 : shape[1];
    t->decay = decay;
    t->lr_scale = 1;
    t->count = 1;
    if (cut != NULL && cut->nparts > 0) {
        t->cut = *cut;
        t->first = (int)set->context->own.begin;
        t->count = (int)(set->context->own.end - set->context->own.begin);
    }
    for (int s = 0; s < (t->cut.nparts == 0 ? 1 : t->cut.slices); s++) {
        t->numel[s] = sheaf__trained_at(t, sheaf__trained_parts(t), s);
        if (s >= t->first && s < t->first + t->count)
            set->numel += padded(t->numel[s]);
    }
    set->item[set->count++] = t;
    *out = t;
    return NULL;
}

int64_t sheaf__trained_stretch(const sheaf__trained_set *set, int group)
{
    int64_t n = 0;
    for (int i = 0; i < set->count; i++) {
        const sheaf__trained *t = set->item[i];
        for (int s = t->first; t->cut.nparts > 0 && s < t->first + t->count; s++)
            n += s % sheaf__trained_groups(set) == group ? padded(t->numel[s]) : 0;
    }
    return n;
}

static bool is_moment(size_t field)
{
    return field == offsetof(sheaf__trained, moment1) || field == offsetof(sheaf__trained, moment2);
}

/* Points each member's slices into a flat array: of all that this rank holds, or of what it
 * keeps. */
static void spread(sheaf__trained_set *set, float *flat, size_t field, bool kept)
{
    const int groups = sheaf__trained_groups(set);
    for (int i = 0; i < set->count; i++)
        if (set->item[i]->cut.nparts == 0 && !(set->item[i]->eight && is_moment(field))) {
            *(float **)((char *)set->item[i] + field) = flat;
            flat += padded(set->item[i]->numel[0]);
        }
    const sheaf_range own = set->context->own;
    for (int64_t at = 0; at < groups * (own.end - own.begin); at++) {
        const int group = (int)(at / (own.end - own.begin)),
                  s = (int)(own.begin + at % (own.end - own.begin));
        for (int i = 0; i < set->count && s % groups == group; i++) {
            sheaf__trained *t = set->item[i];
            if (t->cut.nparts == 0 || (kept && !sheaf__trained_keeps(set, t, s)) ||
                (t->eight && is_moment(field)))
                continue;
            ((float **)((char *)t + field))[s] = flat;
            flat += padded(t->numel[s]);
        }
    }
}

/* Of what is kept, floats of tensors whose moments are float32; decides which these are. */
static int64_t float_moments(sheaf__trained_set *set)
{
    int64_t n = 0;
    for (int i = 0; i < set->count; i++) {
        sheaf__trained *t = set->item[i];
        /* in 8 bits a moment of 0 is not 0 beside others */
        t->eight =
            set->eight_bits && t->band == 0 && t->shape[0] * t->shape[1] >= SHEAF__EIGHT_BITS_FROM;
        for (int s = t->first; s < t->first + t->count && !t->eight; s++)
            n += sheaf__trained_keeps(set, t, s) ? padded(t->numel[s]) : 0;
    }
    return n;
}

/* Moments in 8 bits: here, or elsewhere. */
static sheaf_status *allocate8(sheaf__trained_set *set)
{
    size_t bytes;
    sheaf_status *st = sheaf__trained8_prepare(set, &bytes);
    if (st != NULL || bytes == 0)
        return st;
    return set->moments_away ? sheaf__moments_new(&set->moments, set)
                             : sheaf__trained8_allocate(set, bytes);
}

sheaf_status *sheaf__trained_allocate(sheaf__trained_set *set)
{
    set->common = set->numel;
    for (int g = 0; g < sheaf__trained_groups(set); g++)
        set->common -= sheaf__trained_stretch(set, g);
    set->kept =
        set->common + sheaf__trained_stretch(set, set->context->group % sheaf__trained_groups(set));
    set->moment_floats = float_moments(set);
    const size_t bytes = (size_t)set->moment_floats * sizeof(float);
    sheaf_status *st = sheaf__alloc(&set->master, set->context, (size_t)set->kept * sizeof(float),
                                    SHEAF_MEM_TRAINED);
    const bool stay = !set->moments_away || set->eight_bits; /* those of float32 */
    if (stay) {
        TRY(st, sheaf__alloc(&set->moment1, set->context, bytes, SHEAF_MEM_OPTIMIZER));
        TRY(st, sheaf__alloc(&set->moment2, set->context, bytes, SHEAF_MEM_OPTIMIZER));
        TRY(st, allocate8(set));
    } else {
        TRY(st, sheaf__moments_new(&set->moments, set));
    }
    TRY(st, sheaf__alloc(&set->sum[0], set->context, (size_t)set->numel * sizeof(float),
                         SHEAF_MEM_GRADIENTS));
    if (st != NULL)
        return sheaf_in(st, "trained tensors");
    set->nsums = 1;
    spread(set, set->master, offsetof(sheaf__trained, master), true);
    spread(set, set->moment1, offsetof(sheaf__trained, moment1), true);
    spread(set, set->moment2, offsetof(sheaf__trained, moment2), true);
    spread(set, set->sum[0], offsetof(sheaf__trained, grad), false);
    spread(set, sheaf__trained_groups(set) > 1 ? set->sum[0] : set->master,
           offsetof(sheaf__trained, weight), false);
    /* The padding, too, though nothing hashes it. */
    sheaf__op_zero(set->context->device, set->master, set->kept, SHEAF_F32);
    if (stay) { /* else their file is of zeros */
        sheaf__op_zero(set->context->device, set->moment1, set->moment_floats, SHEAF_F32);
        sheaf__op_zero(set->context->device, set->moment2, set->moment_floats, SHEAF_F32);
    }
    sheaf__op_zero(set->context->device, set->sum[0], set->numel, SHEAF_F32);
    return NULL;
}

/* Size of the smallest complete subtree that holds both [a, a+1) and [b, b+1). */
static int meeting_span(int a, int b)
{
    int span = 1;
    while (a / span != b / span)
        span *= 2;
    return span;
}

static void join_top(sheaf__trained_set *set, sheaf__accumulators *stack)
{
    const int top = stack->depth - 1;
    sheaf__op_add(set->context->device, set->sum[top - 1], set->sum[top], set->numel);
    stack->depth--;
}

sheaf_status *sheaf__accumulator_begin(sheaf__trained_set *set, sheaf__accumulators *stack, int g)
{
    /* those join that meet each other before they meet this one: no later one comes between */
    for (int top = stack->depth - 1;
         top >= 1 && meeting_span(stack->begin[top - 1], stack->begin[top]) <
                         meeting_span(stack->begin[top], g);
         top--)
        join_top(set, stack);
    if (stack->depth == set->nsums) {
        sheaf_status *st = sheaf__alloc(&set->sum[set->nsums], set->context,
                                        (size_t)set->numel * sizeof(float), SHEAF_MEM_GRADIENTS);
        if (st != NULL)
            return sheaf_in(st, "sum of gradient accumulator %d", g);
        set->nsums++;
    }
    stack->begin[stack->depth] = g;
    spread(set, set->sum[stack->depth], offsetof(sheaf__trained, grad), false);
    sheaf__op_zero(set->context->device, set->sum[stack->depth], set->numel, SHEAF_F32);
    stack->depth++;
    return NULL;
}

/* x *= by: of a slice's bands the first halves, or the second. */
static void scale_halves(const sheaf__trained_set *set, const sheaf__trained *t, int s, float *x,
                         bool second, float by)
{
    sheaf_range rows, cols;
    sheaf__trained_box(t, 0, s, &rows, &cols);
    const int64_t band = t->band * (cols.end - cols.begin);
    x += second ? band / 2 : 0;
    if (band > 0)
        sheaf__op_scale_round(set->context->device, x, x, by, t->numel[s] / band, band, band / 2,
                              SHEAF_F32);
}

void sheaf__accumulators_close(sheaf__trained_set *set, sheaf__accumulators *stack)
{
    while (stack->depth >= 2)
        join_top(set, stack);
    spread(set, set->sum[0], offsetof(sheaf__trained, grad), false);
    for (int i = 0; i < set->count; i++)
        for (int k = 0; k < set->item[i]->count; k++) {
            const sheaf__trained *t = set->item[i];
            scale_halves(set, t, t->first + k, t->grad[t->first + k], true, 0);
        }
}

struct squares {
    sheaf__trained_set *set;
    sheaf__trained **sorted;
    double *sum; /* [slices][count]: a rank's slices follow each other */
};

/* Those of this rank's slices. */
static sheaf_status *add_squares(struct squares *q)
{
    const sheaf__trained_set *set = q->set;
    int64_t n = 0, at = 0;
    for (int i = 0; i < set->count; i++)
        n += q->sorted[i]->count;
    sheaf__squares *of = calloc((size_t)n + 1, sizeof *of);
    if (of == NULL)
        return sheaf__no_memory("gradient norm");
    for (int i = 0; i < set->count; i++)
        for (int k = 0; k < q->sorted[i]->count; k++) {
            const int s = q->sorted[i]->first + k;
            of[at++] = (sheaf__squares){ q->sorted[i]->grad[s], q->sorted[i]->numel[s], 0 };
        }
    sheaf__op_squares(set->context->device, of, n);
    for (int i = set->count - 1; i >= 0; i--)
        for (int k = q->sorted[i]->count - 1; k >= 0; k--)
            q->sum[(q->sorted[i]->first + k) * set->count + i] = of[--at].sum;
    free(of);
    return sheaf__device_check(set->context->device);
}

/* The fixed tree on slice numbers, in double; empty slices contribute nothing. */
static double tree_of(const struct squares *q, int item, int begin, int end, bool *any)
{
    if (end - begin == 1) {
        *any = q->sorted[item]->numel[begin] > 0;
        return *any ? q->sum[begin * q->set->count + item] : 0;
    }
    bool left, right;
    const int mid = (begin + end) / 2;
    const double a = tree_of(q, item, begin, mid, &left), b = tree_of(q, item, mid, end, &right);
    *any = left || right;
    return left && right ? a + b : left ? a : b;
}

sheaf_status *sheaf__grad_norm(double *out, sheaf__trained_set *set)
{
    sheaf__context *c = set->context;
    const size_t count = (size_t)set->count;
    struct squares q = { set, calloc(count + 1, sizeof *q.sorted),
                         calloc(count * (size_t)c->slices + 1, sizeof *q.sum) };
    size_t size[SHEAF_MAX_SLICES];
    double total = 0;
    sheaf_status *st = q.sorted == NULL || q.sum == NULL ? sheaf__no_memory("gradient norm") : NULL;
    if (st == NULL && count > 0) {
        memcpy(q.sorted, set->item, count * sizeof *q.sorted);
        qsort(q.sorted, count, sizeof *q.sorted, sheaf__by_name_behind);
        st = add_squares(&q);
        for (int r = 0; r < c->ranks; r++) {
            const sheaf_range of = sheaf_owner_slices(c->slices, c->ranks, r);
            size[r] = count * (size_t)(of.end - of.begin) * sizeof *q.sum;
        }
        sheaf__set_purpose(c, SHEAF__TRAFFIC_NORM);
        if (c->comm != NULL)
            TRY(st, sheaf_comm_gather(c->comm, q.sum, size));
        sheaf__set_purpose(c, SHEAF__TRAFFIC_OTHER);
    }
    for (int i = 0; i < set->count && st == NULL; i++) {
        bool any;
        total += q.sorted[i]->cut.nparts == 0 ? q.sum[i] : tree_of(&q, i, 0, c->slices, &any);
    }
    *out = sqrt(total);
    free(q.sorted);
    free(q.sum);
    return st;
}

/* Elements of the flat arrays with the same update are one operation, as there may be thousands of
 * tensors. */
static void update(const sheaf__trained_set *set, sheaf__update *of)
{
    if (of->n > 0 && set->moments != NULL)
        sheaf__moments_update(set->moments, *of);
    else if (of->n > 0)
        sheaf__op_adamw(set->context->device, *of);
    of->n = 0;
}

static void update8(const sheaf__trained_set *set, const sheaf__trained *t, int s,
                    const sheaf__adamw *how)
{
    const sheaf__update8 of = { t->master[s],  t->code1[s],   t->code2[s],
                                t->absmax1[s], t->absmax2[s], t->grad[s],
                                t->numel[s],   set->maps8,    *how };
    if (of.n > 0 && set->moments != NULL)
        sheaf__moments_update8(set->moments, of);
    else if (of.n > 0)
        sheaf__op_adamw8(set->context->device, of);
}

/* Adds a slice of a tensor to a stretch that ends where it begins, or else begins another. Padding
 * between them is zeros, and stays so with an eps that is not. */
static void update_slice(const sheaf__trained_set *set, sheaf__update *of, const sheaf__trained *t,
                         int s, const sheaf__adamw *how)
{
    const int64_t end = how->eps > FLT_MIN ? padded(of->n) : of->n;
    sheaf__adamw own = *how;
    own.lr *= t->lr_scale;
    if (t->band > 0 && t->decay) /* as AdamW begins its step */
        scale_halves(set, t, s, t->master[s], false, (float)(1 - own.lr * own.weight_decay));
    if (!t->decay || t->band > 0)
        own.weight_decay = 0;
    if (t->eight) {
        update8(set, t, s, &own);
        return;
    }
    if (of->n > 0 && t->master[s] == of->master + end && t->moment1[s] == of->moment1 + end &&
        t->moment2[s] == of->moment2 + end && t->grad[s] == of->grad + end &&
        own.lr == of->how.lr && own.weight_decay == of->how.weight_decay) {
        of->n = end + t->numel[s];
        return;
    }
    update(set, of);
    *of =
        (sheaf__update){ t->master[s], t->moment1[s], t->moment2[s], t->grad[s], t->numel[s], own };
}

void sheaf__trained_update(sheaf__trained_set *set, const sheaf__adamw *how)
{
    sheaf__update of = { .n = 0 };
    if (set->moments != NULL)
        sheaf__moments_begin(set->moments);
    for (sheaf__trained_walk at = { 0 }; sheaf__trained_next(&at, set);)
        update_slice(set, &of, at.item, at.slice, how);
    update(set, &of);
    if (set->moments != NULL)
        sheaf__moments_end(set->moments);
}

/* ---- another's masters ---- */

static void move(const sheaf__trained_set *set, float *to, const float *from)
{
    sheaf__op_convert(set->context->device, to, SHEAF_F32, from, SHEAF_F32, set->kept);
}

void sheaf__trained_copy(float *out, const sheaf__trained_set *set)
{
    move(set, out, set->master);
}

void sheaf__trained_exchange(sheaf__trained_set *set, float *other)
{
    move(set, set->sum[0], set->master);
    move(set, set->master, other);
    move(set, other, set->sum[0]);
}
