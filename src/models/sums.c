/* sums.c - see sums.h. */
#include "models/sums.h"

#include "base/base.h"
#include "comm/all.h"
#include "ops/device.h"
#include "ops/units.h"

const char *sheaf__sums_name(sheaf_dtype dtype, sheaf_sums sums)
{
    const bool is_choice = dtype == SHEAF_BF16 || sheaf__by_mma(sums, dtype);
    return is_choice && sums != SHEAF_SUMS_UNNAMED ? sheaf__sums_text(sums) : NULL;
}

sheaf_status *sheaf__sums_agree(sheaf_comm *all, bool tiles)
{
    if (all == NULL || sheaf__units_are_set())
        return NULL;
    sheaf_status *st = sheaf__all_broadcast(all, &tiles, sizeof tiles);
    if (st == NULL)
        sheaf__units_prefer(tiles);
    return st;
}

/* In float16 the order of processors has no name. Where tensor cores would have another one, the
 * device's or that of a run (`before`), any name that float16 does not have asks for it. */
static bool is_plain(const char *device, sheaf_sums sums, sheaf_sums before, sheaf_dtype dtype)
{
    return dtype == SHEAF_F16 && sums != SHEAF_SUMS_UNNAMED &&
           sheaf__sums_name(dtype, sums) == NULL &&
           (sheaf__sums_name(dtype, before) != NULL ||
            sheaf__device_native(&(sheaf_sums){ 0 }, device));
}

void sheaf__sums_note(const char *device, sheaf_sums given, sheaf_sums before, sheaf_dtype dtype,
                      const sheaf_events *events)
{
    if (given != SHEAF_SUMS_UNNAMED && sheaf__sums_name(dtype, given) == NULL &&
        !is_plain(device, given, before, dtype))
        sheaf_note(events, "`sums %s` has no effect: %s has one order of sums%s",
                   sheaf__sums_text(given), sheaf_dtype_torch_name(dtype),
                   dtype == SHEAF_F16 ? " beside mma8 and mma16" : "");
}

void sheaf__sums_slow(const char *device, sheaf_sums sums, sheaf_dtype dtype,
                      const sheaf_events *events)
{
    const bool by_mma = sheaf__by_mma(sums, dtype);
    sheaf_sums native;
    if (sheaf__device_native(&native, device)) { /* the device refuses an order that it lacks */
        if (dtype != SHEAF_F32 && !by_mma)
            sheaf_note(
                events,
                "this order of sums is not that of the GPU's tensor cores (%s), which do not "
                "take part: products are several times slower, the bytes those of a processor",
                sheaf__sums_text(native));
    } else if (by_mma)
        sheaf_note(
            events,
            "%s: tensor cores compute this order of sums, at which processors are slow; each thread does about %s",
            sheaf__sums_text(sums), SHEAF__MMA_SPEED);
}

sheaf_status *sheaf__sums_choose(sheaf_sums *sums, sheaf_comm *all, const char *device,
                                 sheaf_sums before, sheaf_dtype dtype)
{
    const sheaf_sums order[] = { *sums, before };
    sheaf_sums native;
    const bool cores = sheaf__device_native(&native, device);
    *sums = dtype != SHEAF_F32 && cores   ? native
            : dtype != SHEAF_BF16         ? SHEAF_SUMS_UNNAMED
            : sheaf__units_prefer_tiles() ? SHEAF_SUMS_TILES
                                          : SHEAF_SUMS_PAIRS;
    for (int i = 1; i >= 0; i--)
        if (sheaf__sums_name(dtype, order[i]) != NULL)
            *sums = order[i];
        else if (is_plain(device, order[i], before, dtype))
            *sums = SHEAF_SUMS_UNNAMED;
    return cores ? sheaf__all_broadcast(all, sums, sizeof *sums) : NULL;
}
