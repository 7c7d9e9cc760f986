/* cores.c - see cores.h. */
#include "base/cores.h"

#include <sched.h>

int sheaf__cores(int asked)
{
    cpu_set_t set;
    if (asked > 0)
        return asked;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
}
