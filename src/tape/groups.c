/* groups.c - what groups of ranks with a model each exchange of what they train: sums of
 * gradients, and the weights of a set that is divided over them. See trained.h. */
#include "tape/trained.h"

#include <string.h>

#include "tape/rows.h"

enum { PART = 256, CHUNK = 1 << 15 };

/* ---- sums of gradients ---- */

sheaf_range sheaf__accumulators_own(const sheaf__context *c, int count)
{
    const int groups = c->groups > 1 ? c->groups : 1;
    return (sheaf_range){ (int64_t)count * c->group / groups,
                          (int64_t)count * (c->group + 1) / groups };
}

/* The accumulators of a group are a complete subtree, as groups divide their number. A group that
 * had no micro-batch gives nothing. */
sheaf_status *sheaf__accumulators_meet(sheaf__trained_set *set, int count, const bool *present)
{
    sheaf__context *c = set->context;
    sheaf_tree tree;
    if (c->groups < 2 || c->peers == NULL)
        return NULL;
    sheaf_tree_init(&tree, count, c->groups, present);
    sheaf_comm_purpose(c->peers, SHEAF__TRAFFIC_GRADIENTS);
    sheaf_status *st =
        sheaf__sum_among(c, c->peers, &tree, (float *[]){ set->sum[0] }, 1, set->numel);
    sheaf_comm_purpose(c->peers, SHEAF__TRAFFIC_OTHER);
    return st;
}

/* ---- weights of a divided set ---- */

typedef struct conversion {
    const sheaf__kernels *kernels;
    sheaf_dtype dtype;
    float *wide;
    char *narrow;
} conversion;

static char *narrow_at(const conversion *c, int64_t i)
{
    return c->narrow + (size_t)i * sheaf_dtype_bytes(c->dtype);
}

static void round_part(void *arg, int64_t begin, int64_t end, int worker)
{
    const conversion *c = arg;
    c->kernels->round(narrow_at(c, begin), c->dtype, c->wide + begin, end - begin);
}

/* By way of a copy: the last ones widen onto themselves. */
static void widen_part(void *arg, int64_t begin, int64_t end, int worker)
{
    const conversion *c = arg;
    uint32_t part[PART];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < PART ? end - i : PART;
        memcpy(part, narrow_at(c, i), (size_t)n * sheaf_dtype_bytes(c->dtype));
        c->kernels->widen(c->wide + i, part, c->dtype, n);
    }
}

/* n numbers at the end of an array become that array: all that is written before the next number
 * to be read may be written at once, which is half of what is left. */
static void widen_in_place(const sheaf__context *c, const conversion *of, int64_t n)
{
    int64_t begin = 0;
    for (; n - begin > CHUNK; begin += (n - begin) / 2) {
        const conversion half = { of->kernels, of->dtype, of->wide + begin, narrow_at(of, begin) };
        sheaf__rows(c, (n - begin) / 2, CHUNK / 4, widen_part, (void *)&half);
    }
    const conversion rest = { of->kernels, of->dtype, of->wide + begin, narrow_at(of, begin) };
    widen_part((void *)&rest, 0, n - begin, 0);
}

static void copy_floats(void *arg, int64_t begin, int64_t end, int worker)
{
    const conversion *c = arg;
    memcpy(c->wide + begin, c->narrow + (size_t)begin * sizeof(float),
           (size_t)(end - begin) * sizeof(float));
}

static bool is_divided(const sheaf__trained_set *set)
{
    return set->divided && set->context->groups > 1;
}

/* Where the stretch of this rank's group begins in what is cut. */
static int64_t stretch_begin(const sheaf__trained_set *set)
{
    int64_t begin = 0;
    for (int g = 0; g < set->context->group; g++)
        begin += sheaf__trained_stretch(set, g);
    return begin;
}

void sheaf__trained_take(sheaf__trained_set *set)
{
    if (!is_divided(set) || set->context->device->kind == SHEAF_DRY)
        return;
    float *const cut = set->sum[0] + set->common;
    sheaf__rows(set->context, set->common, CHUNK, copy_floats,
                &(conversion){ .wide = set->master, .narrow = (char *)set->sum[0] });
    sheaf__rows(set->context, set->kept - set->common, CHUNK, copy_floats,
                &(conversion){ .wide = set->master + set->common,
                               .narrow = (char *)(cut + stretch_begin(set)) });
}

/* Floats are exchanged where they are to lie. What is narrower goes to the end of that array, and
 * widens into it. */
sheaf_status *sheaf__trained_publish(sheaf__trained_set *set)
{
    sheaf__context *c = set->context;
    const size_t bytes = sheaf_dtype_bytes(c->dtype);
    const int64_t n = set->numel - set->common, mine = set->kept - set->common;
    size_t size[SHEAF_MAX_SLICES];
    if (!is_divided(set))
        return NULL;
    for (int g = 0; g < c->groups; g++)
        size[g] = (size_t)sheaf__trained_stretch(set, g) * bytes;
    sheaf_comm_purpose(c->peers, SHEAF__TRAFFIC_WEIGHTS);
    float *const cut = set->sum[0] + set->common;
    char *const all = (char *)cut + (size_t)n * (sizeof(float) - bytes);
    sheaf__rows(c, set->common, CHUNK, copy_floats,
                &(conversion){ .wide = set->sum[0], .narrow = (char *)set->master });
    sheaf__rows(c, mine, CHUNK, round_part,
                &(conversion){ .kernels = c->device->kernels,
                               .dtype = c->dtype,
                               .wide = set->master + set->common,
                               .narrow = all + (size_t)stretch_begin(set) * bytes });
    sheaf_status *st = sheaf_comm_gather(c->peers, all, size);
    sheaf_comm_purpose(c->peers, SHEAF__TRAFFIC_OTHER);
    if (st == NULL && bytes < sizeof(float) && c->device->kind != SHEAF_DRY)
        widen_in_place(c, &(conversion){ c->device->kernels, c->dtype, cut, all }, n);
    return st;
}
