/* names.c - which family, and which version of it, the names of tensors tell. */
#include <string.h>

#include "schema/family.h"

static bool any(const void *self, const char *begin, const char *inside)
{
    const sheaf__tensor_names *names = self;
    for (int64_t i = 0; i < names->count; i++) {
        const char *at = strstr(names->name(names->self, i), begin);
        if (at != NULL && strstr(at, inside) != NULL)
            return true;
    }
    return false;
}

const sheaf__family *sheaf__family_by_names(const sheaf__tensor_names *names)
{
    const sheaf__family *family, *found = NULL;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->named != NULL && family->named(any, names))
            found = family;
    return found;
}

const char *sheaf__other_variant(const sheaf__tensor_names *names, const sheaf_config *config)
{
    const sheaf__family *family = sheaf__family_for(config);
    const char *is = family->variant == NULL ? NULL : family->variant(any, names);
    return is == NULL || strcmp(is, family->variant_of(config)) == 0 ? NULL : is;
}

bool sheaf__is_spare(const sheaf_config *config, const char *name)
{
    const sheaf__family *family = sheaf__family_for(config);
    return family->spare != NULL && family->spare(name, config);
}
