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

static int by_name(const void *a, const void *b, void *tensors)
{
    const sheaf_tensor *t = tensors;
    return strcmp(t[*(const int64_t *)a].name, t[*(const int64_t *)b].name);
}

static sheaf_status *sort(sheaf_schema *schema)
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
    TRY(st, sort(schema));
    if (st == NULL)
        *out = schema;
    else
        sheaf_schema_free(schema);
    return st;
}

void sheaf_schema_free(sheaf_schema *schema)
{
    if (schema == NULL)
        return;
    for (int64_t i = 0; schema->tensor != NULL && i < schema->count; i++) {
        free(schema->tensor[i].name);
        free(schema->tensor[i].module);
        free(schema->tensor[i].stack.of);
    }
    free(schema->tensor);
    free(schema->by_name);
    free(schema);
}

const sheaf_tensor *sheaf_schema_get(const sheaf_schema *schema, sheaf_role role, int layer,
                                     bool bias)
{
    /* Equal layers begin at a known place. */
    const int64_t begin = layer <= 0 || layer >= schema->config.layers
                              ? 0
                              : schema->count * layer / schema->config.layers;
    const int64_t from = begin > 3 ? begin - 3 : 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[(from + i) % schema->count];
        if (t->role == role && t->layer == layer && t->bias == bias)
            return t;
    }
    return NULL;
}

bool sheaf__is_linear_weight(const sheaf_tensor *t)
{
    static const char inside[] = ".attn.out_proj.weight"; /* torch's attention reads it itself */
    const char *dot = strrchr(t->name, '.');
    if (sheaf__ends_with(t->name, inside))
        return false;
    return t->ndim == 2 && !t->bias && !t->buffer && sheaf__is_linear(t->role) &&
           t->role != SHEAF_HEAD && dot != NULL && strcmp(dot, ".weight") == 0;
}

bool sheaf__is_quantisable(const sheaf_tensor *t)
{
    return sheaf__is_linear_weight(t) && !t->bare;
}

const sheaf_tensor *sheaf_schema_find(const sheaf_schema *schema, const char *name)
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
