/* stand_in_fence.h - the memory of GPUs that are not there faults, except while something that was
 * queued runs: what the host reads or writes by a GPU's address shows. The fence is one for the
 * process, and open while a whole queue runs: what another rank's thread touches meanwhile may go
 * unnoticed. Runs of one rank notice it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* sheaf__fence_add - memory that is mapped from now on; sheaf__fence_remove: no longer. false: the
 * system does not grant it. */
bool sheaf__fence_add(uintptr_t at, size_t bytes);
bool sheaf__fence_remove(uintptr_t at, size_t bytes);
/* sheaf__fence_enter, sheaf__fence_leave - around what a GPU does. */
void sheaf__fence_enter(void);
void sheaf__fence_leave(void);
