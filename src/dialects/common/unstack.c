/* unstack.c - a parameter that holds the matrices of all experts of a layer, as transformers 5 has
 * them in memory, and where its save does not take it apart in files, becomes the tensors of the
 * schema: each is a box of it (sheaf_tensor.stack says which). */
#include "base/base.h"
#include "dialects/common/model.h"

/* The stack that this tensor of the schema lies in; NULL: it is stored by itself, or not at all. */
static sheaf_logical *stack_of(const sheaf_catalog *c, const sheaf_tensor *t)
{
    sheaf_logical *stack = t->stack.of == NULL || sheaf__catalog_find(c, t->name) != NULL
                               ? NULL
                               : sheaf__catalog_find(c, t->stack.of);
    return stack != NULL && stack->entry.ndim == 3 && stack->npieces <= 1 ? stack : NULL;
}

static bool fits(const sheaf_logical *stack, const sheaf_tensor *t)
{
    const int64_t *shape = stack->entry.shape;
    return shape[0] == t->stack.members && shape[1] == t->stack.rows && shape[2] == t->shape[1];
}

static sheaf_status *wrong_shape(sheaf_catalog *c, const sheaf_logical *stack,
                                 const sheaf_tensor *t)
{
    const int64_t want[3] = { t->stack.members, t->stack.rows, t->shape[1] };
    char shape[128], expected[160], found[128];
    snprintf(expected, sizeof expected, "%s, by config.json", sheaf__show_shape(shape, 3, want));
    return sheaf__defect(c, "shape", sheaf__catalog_path_of(c, stack), stack->entry.name, expected,
                         sheaf__config_cure(c), "%s",
                         sheaf__show_shape(found, 3, stack->entry.shape));
}

/* *taken: the tensor is there now, or its stack is of another shape, which is reported once. */
static sheaf_status *take(bool *taken, sheaf_catalog *c, const sheaf_tensor *t)
{
    sheaf_logical *stack = stack_of(c, t), *own = NULL;
    if (stack == NULL || stack->kind == SHEAF_TAKEN)
        return NULL;
    *taken = true;
    if (!fits(stack, t)) {
        stack->kind = SHEAF_TAKEN;
        return wrong_shape(c, stack, t);
    }
    const sheaf_dtype dtype = stack->entry.dtype;
    const bool stored = stack->npieces == 1; /* else too short to be of numbers */
    sheaf_piece p = stored ? stack->piece[0] : (sheaf_piece){ 0 };
    sheaf_status *st = sheaf__catalog_tensor(&own, c, t->name, dtype, t->ndim, t->shape);
    if (st != NULL || !stored)
        return st;
    p.offset += (t->stack.member * p.stride[0] + t->stack.row * p.stride[1]) *
                (int64_t)sheaf_dtype_bytes(dtype);
    p.digest = 0;
    for (int i = 0; i < t->ndim; i++) {
        p.begin[i] = 0;
        p.size[i] = t->shape[i];
        p.stride[i] = p.stride[i + 1];
    }
    return sheaf__catalog_piece(c, own, &p);
}

static bool any_stack(const sheaf_catalog *c)
{
    bool any = false;
    for (int64_t i = 0; i < c->count && !any; i++)
        any = c->tensor[i].entry.ndim == 3 && strstr(c->tensor[i].entry.name, ".experts.") != NULL;
    return any;
}

sheaf_status *sheaf__catalog_unstack(sheaf_catalog *c)
{
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    bool *taken = NULL, any = false; /* taken: [schema->count] */
    if (c->config == NULL || !any_stack(c))
        return NULL;
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    TRY(st, sheaf_schema_new(&schema, &config, 1));
    if (st != NULL) { /* reported where the config is needed */
        const bool memory = sheaf_status_code(st) == SHEAF_E_MEMORY;
        sheaf_config_release(&config);
        if (memory)
            return st;
        sheaf_status_free(st);
        return NULL;
    }
    taken = calloc((size_t)schema->count + 1, sizeof *taken);
    if (taken == NULL)
        st = sheaf__no_memory(c->root);
    for (int64_t i = 0; i < schema->count && st == NULL; i++)
        st = take(&taken[i], c, &schema->tensor[i]);
    /* What nothing was taken of stays, and is reported as no tensor of the model. */
    for (int64_t i = 0; i < schema->count && st == NULL; i++)
        if (taken[i]) {
            sheaf__catalog_find(c, schema->tensor[i].stack.of)->kind = SHEAF_TAKEN;
            any = true;
        }
    free(taken);
    if (st == NULL && any) {
        sheaf__catalog_keep(c, ~(1u << SHEAF_TAKEN));
        st = sheaf__catalog_sort(c);
    }
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return st;
}
