/* no_memory.h - the failure of an allocation. */
#ifndef SHEAF_BASE_NO_MEMORY_H
#define SHEAF_BASE_NO_MEMORY_H

#include "sheaf/status.h"

/* sheaf__no_memory - SHEAF_E_MEMORY at `what`: what the memory was for, or a path. */
static inline sheaf_status *sheaf__no_memory(const char *what)
{
    return sheaf_fail(SHEAF_E_MEMORY, "%s", what);
}

#endif
