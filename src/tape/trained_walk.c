/* trained_walk.c - the slices of trained tensors that are kept here, in order; see trained.h. */
#include "tape/trained.h"

bool sheaf__trained_next(sheaf__trained_walk *at, const sheaf__trained_set *set)
{
    const sheaf_range own = set->context->own;
    for (; at->round <= own.end - own.begin; at->round++, at->next = 0) {
        at->slice = at->round == 0 ? 0 : (int)own.begin + at->round - 1;
        while (at->next < set->count) {
            at->item = set->item[at->next++];
            if ((at->item->cut.nparts == 0) == (at->round == 0) &&
                sheaf__trained_keeps(set, at->item, at->slice))
                return true;
        }
    }
    return false;
}
