/* stack.h - where in its code a thread of this process is: for messages about runs that hang. */
#ifndef SHEAF_CLI_LIB_STACK_H
#define SHEAF_CLI_LIB_STACK_H

#include <stddef.h>

/* cli_stack_install - the handler of SHEAF__ASKS (comm/doing.h), by which a thread is asked. */
void cli_stack_install(void);
/* cli_stack_of - the calls that thread (the kernel's number) is in, a line each, innermost first;
 * bytes written, 0: it did not answer. For one thread at a time. */
size_t cli_stack_of(int thread, char *to, size_t size);

#endif
