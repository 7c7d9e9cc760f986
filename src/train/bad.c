/* bad.c - see bad.h. */
#include "train/bad.h"

#include "base/base.h"
#include "ops/tensor/tensor.h"
#include "tape/moments.h"

/* Of moments, some of which lie elsewhere. */
static bool is_sound(const sheaf__trained_set *set, float *at, int64_t n)
{
    return set->moments != NULL
               ? sheaf__moments_finite(set->moments, at, n)
               : sheaf__op_is_finite(set->context->device, at, SHEAF_F32, n, SHEAF_F32);
}

/* Of moments in 8 bits: what is not finite makes the absmax of its block so. */
static bool sound8(const sheaf__trained_set *set, const sheaf__trained *t, int slice)
{
    return t->absmax1[slice] == NULL || (is_sound(set, t->absmax1[slice], t->blocks) &&
                                         is_sound(set, t->absmax2[slice], t->blocks));
}

sheaf_status *sheaf__bad_trained(const char **name, const sheaf__trained_set *set, sheaf_comm *comm,
                                 bool gradients)
{
    sheaf__device *device = set->context->device;
    bool sound = true;
    int at = 0;
    for (; at < set->count; at++) {
        const sheaf__trained *t = set->item[at];
        float *const *const of[] = { gradients ? t->grad : t->master, t->moment1, t->moment2 };
        for (int k = 0; k < (gradients ? 1 : 3); k++)
            for (int i = t->first; i < t->first + t->count && sound; i++)
                sound = k == 0     ? sheaf__op_is_finite(device, of[k][i], SHEAF_F32, t->numel[i],
                                                         SHEAF_F32)
                        : t->eight ? sound8(set, t, i)
                                   : of[k][i] == NULL || is_sound(set, of[k][i], t->numel[i]);
        if (!sound)
            break;
    }
    float first = -(float)at; /* the least of all ranks' */
    sheaf_status *st = sheaf__device_check(device);
    if (comm != NULL)
        TRY(st, sheaf_comm_max(comm, &first, 1));
    *name = (int)-first < set->count ? set->item[(int)-first]->name : NULL;
    return st;
}

void sheaf__bad_rows(sheaf_text *text, const int64_t *row, int64_t count)
{
    enum { MOST = 8 };
    int64_t all = 0, listed = 0;
    for (int64_t i = 0; i < count; i++)
        all += row[i] >= 0;
    sheaf__text_add(text, all == 1 ? "row" : "rows");
    for (int64_t i = 0; i < count && listed < MOST; i++)
        if (row[i] >= 0)
            sheaf__text_add(text, "%s %" PRId64, listed++ > 0 ? "," : "", row[i]);
    if (all > MOST)
        sheaf__text_add(text, ", ...");
}

void sheaf__bad_describe(sheaf_text *text, const sheaf__nonfinite *bad, const char *weight)
{
    if (bad->op != NULL) {
        sheaf__text_add(text, "the first %s that is not finite is ",
                        bad->backward ? "gradient" : "value");
        if (bad->layer >= 0)
            sheaf__text_add(text, "in layer %d, ", bad->layer);
        sheaf__text_add(text, "'%s'", bad->value);
        if (strcmp(bad->value, bad->op) != 0)
            sheaf__text_add(text, ", of the op '%s'", bad->op);
    }
    if (weight != NULL)
        sheaf__text_add(text, "%sthe weight '%s' holds a number that is not finite",
                        bad->op != NULL ? "; " : "", weight);
}
