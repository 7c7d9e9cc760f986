/* schema.c - the tensors of a model for other programs: sheaf/schema.h. */
#include "schema/schema.h"

#include "base/base.h"
#include "base/numeric_env.h"
#include "library/structs.h"

sheaf_status *sheaf_schema_read(sheaf_schema **out, const char *path, int slices)
{
    SHEAF__NUMERIC_ENV;
    sheaf_config config;
    *out = NULL;
    if (path == NULL || slices < 1 || slices > SHEAF_MAX_SLICES || (slices & (slices - 1)) != 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_schema_read"),
                              "a path, and slices: a power of two, at most %d", SHEAF_MAX_SLICES);
    sheaf_status *st = sheaf_config_read(&config, path);
    if (st != NULL)
        return st;
    st = sheaf_schema_new(out, &config, slices);
    sheaf_config_release(&config);
    return st;
}

int64_t sheaf_schema_count(const sheaf_schema *schema)
{
    return schema->count;
}

sheaf_status *sheaf_schema_tensor(sheaf_tensor_facts *facts, const sheaf_schema *schema,
                                  int64_t index)
{
    sheaf_status *st = sheaf__struct_check(facts, "sheaf_tensor_facts");
    if (st == NULL && (index < 0 || index >= schema->count))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_schema_tensor"), "0 to %lld",
                            (long long)schema->count - 1);
    if (st != NULL)
        return st;
    const sheaf_tensor *t = &schema->tensor[index];
    sheaf_tensor_facts is = { .name = t->name, .layer = t->layer, .ndim = t->ndim, .cut = t->cut };
    memcpy(is.shape, t->shape, sizeof is.shape);
    sheaf__struct_fill(facts, &is, sizeof is);
    return NULL;
}
