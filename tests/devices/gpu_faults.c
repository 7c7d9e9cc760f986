/* gpu_faults.c - what the emulated GPUs of the command with more devices (register.c) do wrong:
 * SHEAF_GPU_FAULT="FUNCTION AFTER ERROR STEP" in the environment lets the call number AFTER of a
 * function of the driver (any: any of them, from then on) answer ERROR, counted from the beginning
 * of STEP, or with -1 of the process. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/stand_in.h"
#include "tests/devices/gpu_faults.h"

static void order(long long step)
{
    static char function[40]; /* the stand-in keeps the pointer */
    const char *text = getenv("SHEAF_GPU_FAULT");
    int after, error;
    long long at;
    if (text == NULL || sscanf(text, "%39s %d %d %lld", function, &after, &error, &at) != 4 ||
        at != step)
        return;
    const bool any = strcmp(function, "any") == 0;
    sheaf__stand_in_fail(any ? NULL : function, after, error, any);
}

void gpu_faults_before(long long step)
{
    order(step);
}

__attribute__((constructor)) static void gpu_faults_begin(void)
{
    order(-1);
}

/* A process that ends has given all back, also after a failure; what is lost cannot be. */
__attribute__((destructor)) static void gpu_faults_end(void)
{
    const char *text = getenv("SHEAF_GPU_FAULT");
    if (text != NULL && strncmp(text, "any ", 4) != 0 && sheaf__stand_in_left() != 0)
        fprintf(stderr, "not given back to the GPU: %d\n", sheaf__stand_in_left());
}
