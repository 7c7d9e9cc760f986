/* schema.c - see sheaf/schema.h. The tensors are listed by the families. */
#include "schema/schema.h"

#include "base/base.h"
#include "schema/family.h"

static sheaf_status *check_slices(int slices)
{
    if (slices >= 1 && slices <= SHEAF_MAX_SLICES && (slices & (slices - 1)) == 0)
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "slices"),
                                      "a power of two from 1 to %d", SHEAF_MAX_SLICES),
                       "%d", slices);
}

sheaf_status *sheaf_schema_new(sheaf_schema **out, const sheaf_config *config, int slices)
{
    sheaf_status *st = check_slices(slices);
    if (st != NULL)
        return st;
    sheaf_schema *schema = calloc(1, sizeof *schema);
    if (schema == NULL)
        return sheaf__no_memory("out of memory for the list of tensors");
    schema->config = *config;
    schema->config.json = schema->config.unknown_keys = NULL;
    schema->slices = slices;
    st = sheaf__family_for(config)->rows(schema);
    if (st == NULL)
        *out = schema;
    else
        sheaf_schema_free(schema);
    return st;
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const sheaf_tensor *t = tensors;
    return strcmp(t[*(const int64_t *)a].name, t[*(const int64_t *)b].name);
}

sheaf_status *sheaf__schema_sort(sheaf_schema *schema)
{
    schema->by_name = malloc((size_t)schema->count * sizeof *schema->by_name);
    if (schema->by_name == NULL)
        return sheaf__no_memory("out of memory for the names of tensors");
    for (int64_t i = 0; i < schema->count; i++)
        schema->by_name[i] = i;
    qsort_r(schema->by_name, (size_t)schema->count, sizeof *schema->by_name, by_name,
            schema->tensor);
    return NULL;
}

void sheaf_schema_free(sheaf_schema *schema)
{
    if (schema == NULL)
        return;
    for (int64_t i = 0; schema->tensor != NULL && i < schema->count; i++) {
        free(schema->tensor[i].name);
        free(schema->tensor[i].module);
    }
    free(schema->tensor);
    free(schema->by_name);
    free(schema);
}

const sheaf_tensor *sheaf_schema_get(const sheaf_schema *schema, sheaf_role role, int layer,
                                     bool bias)
{
    if (schema->by_name != NULL) {
        for (int64_t i = 0; i < schema->count; i++) {
            const sheaf_tensor *t = &schema->tensor[i];
            if (t->role == role && t->layer == layer && t->bias == bias)
                return t;
        }
        return NULL;
    }
    /* Layers are equally long, so a layer's tensors start at a known place. */
    const int64_t outside = 2 + (schema->config.tied ? 0 : 1);
    const int64_t per_layer = (schema->count - outside) / schema->config.layers;
    int64_t begin = 0, end = schema->count;
    if (layer >= schema->config.layers)
        return NULL;
    if (layer >= 0) {
        begin = 1 + per_layer * layer;
        end = begin + per_layer;
    }
    for (int64_t i = begin; i < end; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (t->role == role && t->layer == layer && t->bias == bias)
            return t;
        if (layer < 0 && i == 0) /* skip the layers */
            i += per_layer * schema->config.layers;
    }
    return NULL;
}

static const sheaf_tensor *find_sorted(const sheaf_schema *schema, const char *name)
{
    int64_t low = 0, high = schema->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const sheaf_tensor *t = &schema->tensor[schema->by_name[middle]];
        const int order = strcmp(name, t->name);
        if (order == 0)
            return t;
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return NULL;
}

const sheaf_tensor *sheaf_schema_find(const sheaf_schema *schema, const char *name)
{
    if (schema->by_name != NULL)
        return find_sorted(schema, name);
    static const char prefix[] = "model.layers.";
    int layer = -1, used = 0;
    if (strncmp(name, prefix, sizeof prefix - 1) == 0 &&
        (sscanf(name + sizeof prefix - 1, "%9d%n", &layer, &used) != 1 || layer < 0))
        return NULL;
    for (int role = 0; role < SHEAF_ROLES; role++)
        for (int bias = 0; bias < 2; bias++) {
            const sheaf_tensor *t = sheaf_schema_get(schema, (sheaf_role)role, layer, bias != 0);
            if (t != NULL && strcmp(t->name, name) == 0)
                return t;
        }
    return NULL;
}

sheaf_range sheaf_tensor_slice(const sheaf_tensor *tensor, int slice)
{
    if (tensor->cut.nparts == 0)
        return (sheaf_range){ 0, tensor->shape[tensor->cut.axis] };
    const int64_t units = tensor->cut.part[0].units, wide = tensor->cut.part[0].rows_per_unit;
    const int64_t s = slice, slices = tensor->cut.slices;
    return (sheaf_range){ units * s / slices * wide, units * (s + 1) / slices * wide };
}
