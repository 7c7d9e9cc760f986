/* options.c - the keys of a step. */
#include <string.h>

#include "parts.h"

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
