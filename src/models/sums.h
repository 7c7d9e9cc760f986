/* sums.h - in which order a run, or a model, sums products of 16 bits. */
#pragma once

#include "base/events.h"
#include "comm/comm.h"
#include "sheaf/dtype.h"
#include "sheaf/options.h"

/* sheaf__sums_name - for results; NULL where `dtype` has no such choice: in float32, and in float16
 * but for mma8 and mma16. */
const char *sheaf__sums_name(sheaf_dtype dtype, sheaf_sums sums);
/* sheaf__sums_agree - processes on machines of several kinds take what the first one computes
 * faster: whether that is `tiles`, by sheaf__units_prefer_tiles(). Collective, once they have met;
 * later calls do nothing, and neither does one process. */
sheaf_status *sheaf__sums_agree(sheaf_comm *all, bool tiles);
/* sheaf__sums_note - events hear of an order that is asked for in another type; `before`: that of a
 * run. */
void sheaf__sums_note(const char *device, sheaf_sums asked, sheaf_sums before, sheaf_dtype dtype,
                      const sheaf_events *events);
/* sheaf__sums_slow - and how slow an order of tensor cores is on processors, or any other on a
 * device that has them. */
void sheaf__sums_slow(const char *device, sheaf_sums sums, sheaf_dtype dtype,
                      const sheaf_events *events);
/* sheaf__sums_on - what runs there: as sheaf__sums_of(), but where nothing is named that of the
 * device's tensor cores, if it has any. In float16 `pairs` is there the order of processors, which
 * has no name. */
sheaf_sums sheaf__sums_on(const char *device, sheaf_sums asked, sheaf_sums before,
                          sheaf_dtype dtype);
/* sheaf__sums_choose - the same of all processes, whose GPUs may differ: that of the first; *sums
 * is what was asked for. Whose tensor cores have another order refuses it (sheaf__device_order).
 * Collective. */
sheaf_status *sheaf__sums_choose(sheaf_sums *sums, sheaf_comm *all, const char *device,
                                 sheaf_sums before, sheaf_dtype dtype);
/* Of kernels of AVX2 and AVX-512, and of the reference, which attention still takes. */
#define SHEAF__MMA_SPEED "20 to 28 GFLOP/s with AVX2 or AVX-512, a quarter of float32"
/* sheaf__sums_of - what runs: `asked`, else what a run was trained with (`before`), else the
 * fastest where the first process is; unnamed where `dtype` has no such choice. */
sheaf_sums sheaf__sums_of(sheaf_sums asked, sheaf_sums before, sheaf_dtype dtype);
