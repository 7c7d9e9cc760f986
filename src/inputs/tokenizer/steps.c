/* steps.c - what all kinds of steps have: their keys, and their end. */
#include <string.h>

#include "parts.h"

void sheaf__steps_close(sheaf__steps *steps)
{
    for (int64_t i = 0; i < steps->count; i++)
        if (steps->step[i].kind->close != NULL)
            steps->step[i].kind->close(steps->step[i].state);
    steps->count = 0;
}

void sheaf__only_keys(sheaf_json_reader *r, const char *const *known)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        bool found = strcmp(key, "type") == 0 || json_is_null(value);
        for (const char *const *k = known; !found && *k != NULL; k++)
            found = strcmp(key, *k) == 0;
        if (!found)
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "no such option, or null");
    }
}
