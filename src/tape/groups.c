/* groups.c - what groups of ranks with a model each exchange of what they train: sums of
 * gradients, and the weights of a set that is divided over them. See trained.h. */
#include "tape/trained.h"

#include "tape/rows.h"

/* ---- sums of gradients ---- */

/* The accumulators of a group are a complete subtree, as groups divide their number. A group that
 * had no micro-batch gives nothing. */
sheaf_status *sheaf__accumulators_reduce(sheaf__trained_set *set, int count, const bool *present)
{
    sheaf__context *c = set->context;
    sheaf_tree tree;
    if (c->groups < 2 || c->peers == NULL)
        return NULL;
    sheaf_tree_init(&tree, count, c->groups, present);
    sheaf_comm_purpose(c->peers, SHEAF__TRAFFIC_GRADIENTS);
    sheaf_status *st =
        sheaf__sum_among(c, c->peers, &tree, (float *[]){ set->sum[0] }, 1, set->numel, NULL);
    sheaf_comm_purpose(c->peers, SHEAF__TRAFFIC_OTHER);
    return st;
}

/* ---- weights of a divided set ---- */

static bool is_divided(const sheaf__trained_set *set)
{
    return set->divided && set->context->groups > 1;
}

/* Begin of this group's stretch in the divided tensors. */
static int64_t stretch_begin(const sheaf__trained_set *set)
{
    int64_t begin = 0;
    for (int g = 0; g < set->context->group; g++)
        begin += sheaf__trained_stretch(set, g);
    return begin;
}

void sheaf__trained_from_weights(sheaf__trained_set *set)
{
    if (!is_divided(set))
        return;
    sheaf__op_convert(set->context->device, set->master, SHEAF_F32, set->sum[0], SHEAF_F32,
                      set->common);
    sheaf__op_convert(set->context->device, set->master + set->common, SHEAF_F32,
                      set->sum[0] + set->common + stretch_begin(set), SHEAF_F32,
                      set->kept - set->common);
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
    sheaf__op_convert(c->device, set->sum[0], SHEAF_F32, set->master, SHEAF_F32, set->common);
    sheaf__op_convert(c->device, all + (size_t)stretch_begin(set) * bytes, c->dtype,
                      set->master + set->common, SHEAF_F32, mine);
    sheaf_status *st = sheaf__gather_among(c, c->peers, all, size);
    sheaf_comm_purpose(c->peers, SHEAF__TRAFFIC_OTHER);
    if (st == NULL && bytes < sizeof(float))
        sheaf__op_widen(c->device, cut, n, c->dtype);
    return st;
}
