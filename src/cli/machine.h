/* machine.h - what this machine offers. */
#ifndef SHEAF_CLI_MACHINE_H
#define SHEAF_CLI_MACHINE_H

#include <stdint.h>

typedef struct cli_machine {
    char name[64];       /* of the processor */
    const char *kernels; /* the widest instruction set sheaf has kernels for here */
    int cores;           /* this process may use */
    int64_t memory, available; /* bytes; 0 = not known */
} cli_machine;

cli_machine cli_machine_look(void);

#endif
