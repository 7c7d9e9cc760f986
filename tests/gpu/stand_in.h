/* stand_in.h - a driver for GPUs that are not there: its memory is the host's, which may not touch
 * it (stand_in_fence.h), kernels run on the processor (emulation.h). For tests, and for builds of
 * -Dcuda=emulated.
 *
 * What is queued runs late: when a stream or event is waited for. So a result that is read too
 * soon, or pinned memory that is used again too soon, shows.
 *
 * SHEAF_EMULATED_GPU=8.6,9.0:24 in the environment: two GPUs, of these compute capabilities, the
 * second with 24 GiB. Without it: two of 9.0 with 80 GiB. GPUs with an odd number run threads,
 * blocks and copies in turned order (emulation.h). */
#pragma once

#include "ops/devices/gpu/cuda/driver.h"

/* sheaf__stand_in_fail - the call number `after` of a function from now on (0: the next one)
 * answers `error`, and so do all after it if it `stays`. NULL: any function but those of texts. */
void sheaf__stand_in_fail(const char *function, int after, sheaf__gpu_error error, bool stays);
/* sheaf__stand_in_use - what another process takes of GPU `number`; bytes. */
void sheaf__stand_in_use(int number, size_t bytes);
/* sheaf__stand_in_version - what the driver says it is. */
void sheaf__stand_in_version(int version);
/* sheaf__stand_in_arithmetic - what its GPUs do: products that tensor cores add at once (0: those
 * of the capability), and whether float32 is flushed to zero. */
void sheaf__stand_in_arithmetic(int group, bool flushes);
/* sheaf__stand_in_peers - GPU `apart` and the others do not reach each other (-1: all do); and
 * copies from one to another come out wrong if `loses`. */
void sheaf__stand_in_peers(int apart, bool loses);
/* sheaf__stand_in_reset - as in the beginning; reads the environment again. */
void sheaf__stand_in_reset(void);
/* sheaf__stand_in_left - what was made and not given back: blocks of memory, streams, events,
 * modules, contexts, reserved ranges. */
int sheaf__stand_in_left(void);
