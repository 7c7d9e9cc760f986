/* machine.h - what this machine offers to the computing: its processor, cores and memory. */
#pragma once

#include <stdint.h>

#include "sheaf/options.h"
#include "sheaf/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sheaf_machine_facts {
    size_t size;
    char processor[64];  /* its name */
    const char *kernels; /* the widest instruction set that there are kernels for here; static */
    const char *pairs, *tiles; /* units of these orders of bfloat16 sums here; static */
    const char *sums;          /* the faster one of them, "pairs" or "tiles"; static */
    int cores;                 /* this process may use */
    int64_t memory, available; /* bytes; 0: not known */
} sheaf_machine_facts;

SHEAF_API sheaf_status *sheaf_machine_info(sheaf_machine_facts *facts);

/* sheaf_machine_gpus - the NVIDIA GPUs here, as JSON, to free():
 *     {"driver": "CUDA 13.0", "gpus": [{"number": 0, "name": "...", "address": "0000:01:00.0",
 *      "capability": "9.0", "sums": "mma16", "multiprocessors": 132, "memory": 85899345920,
 *      "available": 85000000000, "usable": true, "problem": null, "links": {"1": "NVLink"}}],
 *      "kernels": {"module": "/usr/lib/sheaf/sheaf-cuda.so", "kinds": "sm_80, sm_90a"}}
 * Each is opened for a moment. `problem`: why it cannot be used, as that it computes otherwise than
 * processors. Without a driver or a GPU "gpus" is empty, and "missing" says why;
 * so "kernels", where sheaf was built without them. */
SHEAF_API sheaf_status *sheaf_machine_gpus(char **json);

#ifdef __cplusplus
}
#endif
