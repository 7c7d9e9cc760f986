/* machine.h - what this machine offers. */
#pragma once

#include <stdint.h>

#include "sheaf/status.h"

typedef struct cli_machine {
    char name[64];             /* of the processor */
    const char *kernels;       /* the widest instruction set sheaf has kernels for here */
    const char *pairs, *tiles; /* what computes these orders of bfloat16 sums here */
    const char *sums;          /* the faster one of them: what --bf16-sums is by default */
    int cores;                 /* this process may use */
    int64_t memory, available; /* bytes; 0 = not known */
} cli_machine;

cli_machine cli_machine_look(void);

/* One way to multiply, on one core: a product of 512 x 1024 x 1024 from panels that lie in a
 * cache. */
typedef struct cli_rate {
    const char *name; /* "float32", "pairs by fma", ... */
    const char *key;  /* of JSON */
    double gflops;    /* 0: not on this machine */
} cli_rate;
enum { CLI_RATES = 5 };
/* cli_machine_measure - the best of several repetitions of each. */
sheaf_status *cli_machine_measure(cli_rate rates[CLI_RATES]);
