/* trained8.c - moments in 8 bits, of each slice by itself, so that they are the same for every
 * number of ranks; see trained.h. */
#include "base/base.h"
#include "base/round_up.h"
#include "ops/adamw/adamw.h"
#include "ops/quant/quantise.h"
#include "ops/tensor/tensor.h"
#include "tape/trained.h"

enum { ALIGN = 64 };

/* Of one moment of a slice, each from a multiple of ALIGN on. */
static size_t bytes_of_codes(const sheaf__trained *t, int slice)
{
    return sheaf__round_up((size_t)t->numel[slice], ALIGN);
}

static size_t bytes_of_scales(const sheaf__trained *t)
{
    return sheaf__round_up((size_t)t->blocks * sizeof(float), ALIGN);
}

size_t sheaf__trained8_bytes(const sheaf__trained *t, int slice)
{
    return 2 * (bytes_of_codes(t, slice) + bytes_of_scales(t));
}

static void count_blocks(sheaf__trained *t)
{
    const int slices = t->cut.nparts == 0 ? 1 : t->cut.slices;
    t->blocks = 0;
    for (int s = 0; s < slices; s++) {
        const int64_t n = (t->numel[s] + SHEAF__ADAMW8_BLOCK - 1) / SHEAF__ADAMW8_BLOCK;
        t->blocks = n > t->blocks ? n : t->blocks;
    }
    if (t->cut.nparts > 0)
        t->blocks_cut = (sheaf_cut){ .slices = slices,
                                     .nparts = 1,
                                     .part = { { .units = slices, .rows_per_unit = t->blocks } } };
}

char *sheaf__trained8_place(sheaf__trained *t, int s, char *at)
{
    const size_t codes = bytes_of_codes(t, s), scales = bytes_of_scales(t);
    t->code1[s] = (uint8_t *)at;
    t->code2[s] = t->code1[s] + codes;
    t->absmax1[s] = (float *)(at + 2 * codes);
    t->absmax2[s] = (float *)(at + 2 * codes + scales);
    return at + sheaf__trained8_bytes(t, s);
}

sheaf_status *sheaf__trained8_prepare(sheaf__trained_set *set, size_t *bytes)
{
    *bytes = 0;
    for (int i = 0; i < set->count; i++)
        if (set->item[i]->eight)
            count_blocks(set->item[i]);
    for (sheaf__trained_walk at = { 0 }; sheaf__trained_next(&at, set);)
        *bytes += at.item->eight ? sheaf__trained8_bytes(at.item, at.slice) : 0;
    if (*bytes == 0)
        return NULL;
    set->maps8 = malloc(2 * sizeof *set->maps8);
    if (set->maps8 == NULL)
        return sheaf__no_memory("maps of 8 bits");
    sheaf__map8_init(&set->maps8[0], true);
    sheaf__map8_init(&set->maps8[1], false);
    return NULL;
}

sheaf_status *sheaf__trained8_allocate(sheaf__trained_set *set, size_t bytes)
{
    sheaf_status *st = sheaf__alloc(&set->eight, set->context, bytes, SHEAF_MEM_OPTIMIZER);
    if (st != NULL)
        return st;
    char *to = set->eight;
    for (sheaf__trained_walk at = { 0 }; sheaf__trained_next(&at, set);)
        if (at.item->eight)
            to = sheaf__trained8_place(at.item, at.slice, to);
    sheaf__op_zero(set->context->device, set->eight, (int64_t)(bytes / sizeof(float)), SHEAF_F32);
    return NULL;
}
