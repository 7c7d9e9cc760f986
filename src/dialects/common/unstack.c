/* unstack.c - parameters as transformers 5 has them in memory, and where its save does not change
 * them in files (a torch.save, and what FSDP, DeepSpeed and torch.distributed.checkpoint write):
 * one for the matrices of all experts of a layer, and other names. They become the tensors of the
 * schema, each of which is a box of one (sheaf_tensor.stack says which). */
#include "base/base.h"
#include "dialects/common/model.h"

static void shape_of(int64_t out[3], const sheaf_tensor *t)
{
    const int64_t all[3] = { t->stack.members, t->stack.rows, t->shape[1] };
    memcpy(out, all + 3 - t->stack.ndim, (size_t)t->stack.ndim * sizeof *out);
}

static sheaf_status *wrong_shape(sheaf_catalog *c, sheaf_logical *stack, const sheaf_tensor *t)
{
    int64_t want[3];
    char shape[128], expected[160], found[128];
    stack->kind = SHEAF_TAKEN; /* reported once */
    shape_of(want, t);
    snprintf(expected, sizeof expected, "%s, by config.json",
             sheaf__show_shape(shape, t->stack.ndim, want));
    return sheaf__defect(c, "shape", sheaf__catalog_path_of(c, stack), stack->entry.name, expected,
                         sheaf__config_cure(c), "%s",
                         sheaf__show_shape(found, stack->entry.ndim, stack->entry.shape));
}

/* Cuts a piece of the parameter to this tensor's share; false: it has none. */
static bool cut(sheaf_piece *p, const sheaf_tensor *t)
{
    const int first = t->stack.ndim - 2; /* the axis of rows */
    const int64_t begin = t->stack.row - p->begin[first], end = begin + t->shape[0],
                  from = begin > 0 ? begin : 0, to = end < p->size[first] ? end : p->size[first],
                  member = first == 0 ? 0 : t->stack.member - p->begin[0];
    if (to <= from || member < 0 || (first > 0 && member >= p->size[0]))
        return false;
    p->offset += ((first == 0 ? 0 : member * p->stride[0]) + from * p->stride[first]) *
                 (int64_t)sheaf_dtype_bytes(p->dtype);
    p->digest = 0;
    p->begin[first] += from - t->stack.row;
    p->size[first] = to - from;
    for (int i = 0; i < 2 && first > 0; i++) {
        p->begin[i] = p->begin[i + 1];
        p->size[i] = p->size[i + 1];
        p->stride[i] = p->stride[i + 1];
    }
    return true;
}

typedef struct taking {
    sheaf_catalog *c;
    bool *taken; /* by number in the catalog: a tensor lies in it */
} taking;

static sheaf_status *put(taking *x, sheaf_logical *stack, const sheaf_tensor *t, const char *name)
{
    const int64_t at = stack - x->c->tensor;
    sheaf_logical *own;
    sheaf_status *st =
        sheaf__catalog_tensor(&own, x->c, name, stack->entry.dtype, t->ndim, t->shape);
    if (st != NULL)
        return st;
    stack = &x->c->tensor[at]; /* it may have moved */
    own->kind = stack->kind;
    own->replicated = stack->replicated;
    x->taken[at] = true;
    for (int64_t i = 0; i < stack->npieces && st == NULL; i++) {
        sheaf_piece p = stack->piece[i];
        if (cut(&p, t))
            st = sheaf__catalog_piece(x->c, own, &p);
    }
    return st;
}

/* Of the tensor itself, or of its moment of this word. */
static sheaf_status *take(taking *x, const sheaf_tensor *t, const char *word)
{
    char *of = NULL, *name = NULL;
    int64_t want[3];
    const bool named =
        asprintf(&of, "%s%s", word, t->stack.of) > 0 && asprintf(&name, "%s%s", word, t->name) > 0;
    sheaf_status *st = named ? NULL : sheaf__no_memory(x->c->root);
    sheaf_logical *stack = named ? sheaf__catalog_find(x->c, of) : NULL;
    shape_of(want, t);
    if (stack != NULL && stack->kind != SHEAF_TAKEN && stack->coded == NULL && !stack->drifted &&
        sheaf__catalog_find(x->c, name) == NULL)
        st = sheaf__same_shape(stack->entry.ndim, stack->entry.shape, t->stack.ndim, want)
                 ? put(x, stack, t, name)
                 : wrong_shape(x->c, stack, t);
    free(of);
    free(name);
    return st;
}

/* Does anything here have the name of such a parameter? A schema is not made without need. */
static bool any_stack(const sheaf_catalog *c)
{
    bool any = false;
    for (int64_t i = 0; i < c->count && !any; i++)
        any = strstr(c->tensor[i].entry.name, ".mlp.experts.") != NULL &&
              c->tensor[i].entry.ndim == 3;
    return any;
}

sheaf_status *sheaf__catalog_unstack_by(sheaf_catalog *c, const sheaf_schema *schema)
{
    if (!any_stack(c))
        return NULL;
    const char *const words[] = { "", sheaf__moment_words[0], sheaf__moment_words[1] };
    const int64_t stored = c->count;
    taking x = { c, calloc((size_t)stored + 1, sizeof *x.taken) };
    sheaf_status *st = x.taken == NULL ? sheaf__no_memory(c->root) : NULL;
    for (int64_t i = 0; i < schema->count; i++)
        for (int k = 0; k < 3 && schema->tensor[i].stack.of != NULL && st == NULL; k++)
            st = take(&x, &schema->tensor[i], words[k]);
    /* A tensor that gave nothing stays, and is reported as none of the model's. */
    for (int64_t i = 0; i < stored && st == NULL; i++)
        if (x.taken[i])
            c->tensor[i].kind = SHEAF_TAKEN;
    free(x.taken);
    if (st != NULL)
        return st;
    sheaf__catalog_keep(c, ~(1u << SHEAF_TAKEN));
    return sheaf__catalog_sort(c);
}

sheaf_status *sheaf__catalog_unstack(sheaf_catalog *c)
{
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    if (c->config == NULL || !any_stack(c))
        return NULL;
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    TRY(st, sheaf_schema_new(&schema, &config, 1));
    /* A config that is wrong is reported where it is needed. */
    st = schema != NULL ? sheaf__catalog_unstack_by(c, schema) : sheaf__only_memory(st);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return st;
}
