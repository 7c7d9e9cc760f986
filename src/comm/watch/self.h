/* self.h - identity of a process, so that others can name it and kill it. */
#pragma once

#include "base/base.h"

typedef struct sheaf__self {
    uint64_t machine; /* kernel and namespace of processes: where `pid` is a name */
    int64_t pid;
    char host[64];
} sheaf__self;

void sheaf__self_look(sheaf__self *out);
/* sheaf__self_kernel - a number that all processes of one kernel share, whatever containers they
 * are in; by the name of its host where the kernel names itself to none. */
uint64_t sheaf__self_kernel(const char *host);
/* sheaf__self_kill - SIGKILL to a process, if it is another one of this machine. It was connected
 * until a moment ago, so its number is not yet another process's. */
void sheaf__self_kill(const sheaf__self *process);
/* sheaf__self_busy - processor seconds that this process took, but for the calling thread. */
uint64_t sheaf__self_busy(void);
