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
    const char *pairs, *tiles; /* what computes these orders of bfloat16 sums here; static */
    const char *sums;          /* the faster one of them, "pairs" or "tiles"; static */
    int cores;                 /* this process may use */
    int64_t memory, available; /* bytes; 0: not known */
} sheaf_machine_facts;

SHEAF_API sheaf_status *sheaf_machine_info(sheaf_machine_facts *facts);

#ifdef __cplusplus
}
#endif
