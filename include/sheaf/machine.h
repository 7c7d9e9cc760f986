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

/* One way to multiply, on one core: a product of 512 x 1024 x 1024 from panels that lie in a
 * cache. */
typedef struct sheaf_machine_rate {
    const char *name; /* "float32", "bfloat16, pairs, fma", ...; static */
    const char *key;  /* of it in JSON; static */
    double gflops;    /* 0: not on this machine */
} sheaf_machine_rate;
enum { SHEAF_MACHINE_RATES = 5 };

/* sheaf_machine_measure - the best of several repetitions of each. */
SHEAF_API sheaf_status *sheaf_machine_measure(sheaf_machine_rate rates[SHEAF_MACHINE_RATES]);

#ifdef __cplusplus
}
#endif
