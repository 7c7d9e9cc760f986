/* sums.h - in which order a run, or a model, sums products of 16 bits. */
#pragma once

#include "base/events.h"
#include "comm/comm.h"
#include "sheaf/dtype.h"
#include "sheaf/options.h"

/* sheaf__sums_name - for results; NULL where `dtype` has no such choice: in float32, in float16 but
 * for mma8 and mma16, and of none. */
const char *sheaf__sums_name(sheaf_dtype dtype, sheaf_sums sums);
/* sheaf__sums_agree - processes on machines of several kinds take what the first one computes
 * faster: whether that is `tiles`, by sheaf__units_prefer_tiles(). Collective, once they have met;
 * later calls do nothing, and neither does one process. */
sheaf_status *sheaf__sums_agree(sheaf_comm *all, bool tiles);
/* sheaf__sums_note - events hear of a given order that `dtype` does not have; `before`: that of a
 * run. */
void sheaf__sums_note(const char *device, sheaf_sums given, sheaf_sums before, sheaf_dtype dtype,
                      const sheaf_events *events);
/* sheaf__sums_slow - events hear of an order of tensor cores on processors, and of any other on a
 * device that has them: both are slow. */
void sheaf__sums_slow(const char *device, sheaf_sums sums, sheaf_dtype dtype,
                      const sheaf_events *events);
/* Of kernels of AVX2 and AVX-512, and of the reference, which attention still takes. */
#define SHEAF__MMA_SPEED "20 to 29 GFLOP/s with AVX2 or AVX-512, a quarter of float32"
/* sheaf__sums_choose - the order that a run takes: the given one (*sums), else that of the run it
 * continues (`before`), else that of the device's tensor cores, else the processor's fastest;
 * UNNAMED where `dtype` has no such choice, which in float16 is the order of processors. Of GPUs of
 * several kinds the first process decides; a device whose tensor cores have another order refuses
 * it (sheaf__device_order). Collective; `all` may be NULL. */
sheaf_status *sheaf__sums_choose(sheaf_sums *sums, sheaf_comm *all, const char *device,
                                 sheaf_sums before, sheaf_dtype dtype);
