/* init_specs.c - models that have a name here: those of the families. */
#include <stddef.h>
#include <string.h>

#include "checkpoint/tools/init.h"

static const sheaf__family *find(int *which, int i)
{
    const sheaf__family *family;
    for (int f = 0; (family = sheaf__family_at(f)) != NULL; f++)
        for (*which = 0; family->specs != NULL && family->specs[*which].name != NULL; (*which)++)
            if (i-- == 0)
                return family;
    return NULL;
}

const sheaf__family_spec *sheaf__init_spec_at(int i)
{
    int which;
    const sheaf__family *family = find(&which, i);
    return family == NULL ? NULL : &family->specs[which];
}

sheaf_status *sheaf__init_config(char **out, const char *name)
{
    const sheaf__family *family;
    int which;
    *out = NULL;
    for (int i = 0; (family = find(&which, i)) != NULL; i++)
        if (strcmp(family->specs[which].name, name) == 0)
            return family->spec_config(out, which);
    return NULL;
}
