/* stand_in_state.h - what the stand-in driver pretends to be, and the faults that a test ordered.
 */
#pragma once

#include <pthread.h>

#include "ops/devices/gpu/cuda/driver.h"
#include "tests/gpu/emulation.h"

enum { SHEAF__STAND_IN_GPUS = 16, SHEAF__STAND_IN_GRANULARITY = 2 << 20 };

typedef struct sheaf__stand_in_gpu {
    int major, minor;
    size_t memory, taken; /* by others */
    _Atomic size_t used;
} sheaf__stand_in_gpu;

struct sheaf__stand_in {
    pthread_mutex_t lock;
    bool is_ready;
    int gpus, version;
    sheaf__stand_in_gpu gpu[SHEAF__STAND_IN_GPUS];
    const char *fails; /* a function; "": any; NULL: none */
    int after;
    sheaf__gpu_error error;
    bool stays;
    char why[SHEAF__EMU_TEXT]; /* a kernel was stopped; "": none was */
    int group;                 /* 0: of the capability */
    bool keeps_denormals;
    int apart; /* a GPU that no other reaches; -1: none */
    bool loses;
    _Atomic int made;
};

extern struct sheaf__stand_in sheaf__stand_in;

/* sheaf__stand_in_fault - every function begins with it: the fault that was ordered, or 0. */
sheaf__gpu_error sheaf__stand_in_fault(const char *function);
/* sheaf__stand_in_stop - the emulation stopped a kernel: from now on all fails, and the driver's
 * text of the error is `why`. */
void sheaf__stand_in_stop(const char *why);
