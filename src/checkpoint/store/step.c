/* step.c - see step.h. */
#include "checkpoint/store/step.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

bool sheaf__step_of(int64_t *step, const char *name, bool ours)
{
    long long number;
    int end = 0;
    if (sscanf(name, "step-%lld%n", &number, &end) != 1 || name[end] != '\0')
        return false;
    const size_t digits = strspn(name + 5, "0123456789");
    if (ours && (name[5 + digits] != '\0' || digits < 8 || digits > 18))
        return false;
    *step = number;
    return true;
}

const char *sheaf__step_name(char name[SHEAF__STEP_NAME], int64_t step)
{
    snprintf(name, SHEAF__STEP_NAME, "step-%08" PRId64, step);
    return name;
}
