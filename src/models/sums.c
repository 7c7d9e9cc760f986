/* sums.c - see sums.h. */
#include "models/sums.h"

#include "base/base.h"
#include "comm/all.h"
#include "ops/device.h"
#include "ops/units.h"

const char *sheaf__sums_name(sheaf_dtype dtype, sheaf_sums sums)
{
    const sheaf__sums order = sheaf__sums_order(sums);
    return dtype == SHEAF_BF16 || sheaf__by_mma(order, dtype) ? sheaf__sums_text(order) : NULL;
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

static bool names(sheaf_sums sums, sheaf_dtype dtype)
{
    return sums != SHEAF_SUMS_UNNAMED && sheaf__sums_name(dtype, sums) != NULL;
}

/* Where float16 would have an order of tensor cores, the device's or that of a run (`before`), it
 * has a choice: the order that has no name there is asked for by the name of any that it has not.
 */
static bool is_plain(const char *device, sheaf_sums sums, sheaf_sums before, sheaf_dtype dtype)
{
    return dtype == SHEAF_F16 && sums != SHEAF_SUMS_UNNAMED && !names(sums, dtype) &&
           (names(before, dtype) || sheaf__device_native(&(sheaf__sums){ 0 }, device));
}

void sheaf__sums_note(const char *device, sheaf_sums asked, sheaf_sums before, sheaf_dtype dtype,
                      const sheaf_events *events)
{
    if (asked != SHEAF_SUMS_UNNAMED && !names(asked, dtype) &&
        !is_plain(device, asked, before, dtype))
        sheaf_note(events, "--sums %s has no effect: %s has one order of sums%s",
                   sheaf__sums_name(SHEAF_BF16, asked), sheaf_dtype_torch_name(dtype),
                   dtype == SHEAF_F16 ? " beside mma8 and mma16" : "");
}

void sheaf__sums_slow(const char *device, sheaf_sums sums, sheaf_dtype dtype,
                      const sheaf_events *events)
{
    sheaf__sums native;
    if (sheaf__device_native(&native, device)) { /* what it cannot compute it refuses */
        if (dtype != SHEAF_F32 && !sheaf__by_mma(sheaf__sums_order(sums), dtype))
            sheaf_note(
                events,
                "this order of sums is not that of the GPU's tensor cores (%s), which do not "
                "take part: products are several times slower, the bytes those of a processor",
                sheaf__sums_text(native));
    } else if (sheaf__by_mma(sheaf__sums_order(sums), dtype))
        sheaf_note(
            events,
            "%s: tensor cores compute this order of sums, at which processors are slow; each thread does about %s",
            sheaf__sums_name(dtype, sums), SHEAF__MMA_SPEED);
}

sheaf_sums sheaf__sums_of(sheaf_sums asked, sheaf_sums before, sheaf_dtype dtype)
{
    if (sheaf__sums_name(dtype, asked) != NULL && asked != SHEAF_SUMS_UNNAMED)
        return asked;
    if (sheaf__sums_name(dtype, before) != NULL && before != SHEAF_SUMS_UNNAMED)
        return before;
    if (dtype != SHEAF_BF16)
        return SHEAF_SUMS_UNNAMED;
    return sheaf__units_prefer_tiles() ? SHEAF_SUMS_TILES : SHEAF_SUMS_PAIRS;
}

sheaf_sums sheaf__sums_on(const char *device, sheaf_sums asked, sheaf_sums before,
                          sheaf_dtype dtype)
{
    sheaf__sums native;
    const sheaf_sums named =
        names(asked, dtype) || is_plain(device, asked, before, dtype) ? asked : before;
    if (is_plain(device, named, before, dtype))
        return SHEAF_SUMS_UNNAMED;
    if (!names(named, dtype) && dtype != SHEAF_F32 && sheaf__device_native(&native, device))
        return (sheaf_sums)(SHEAF_SUMS_PAIRS + (int)native);
    return sheaf__sums_of(asked, before, dtype);
}

sheaf_status *sheaf__sums_choose(sheaf_sums *sums, sheaf_comm *all, const char *device,
                                 sheaf_sums before, sheaf_dtype dtype)
{
    sheaf__sums native;
    *sums = sheaf__sums_on(device, *sums, before, dtype);
    return sheaf__device_native(&native, device) ? sheaf__all_broadcast(all, sums, sizeof *sums)
                                                 : NULL;
}
