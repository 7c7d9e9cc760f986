/* rows.c - a family's tensors from its tables; see rows.h. */
#include "families/common/rows.h"

#include "base/base.h"

/* Some ten times what the largest model has; a config may ask for 4096 layers of 1024 experts. */
enum { MOST_TENSORS = 1 << 19 };
static const char memory_for[] = "out of memory for the names of tensors";

static void set_cut(sheaf_tensor *t, const sheaf__tensor_row *row)
{
    if (row->split == SHEAF__WHOLE)
        return;
    const int axis = row->split == SHEAF__BY_IN ? 1 : 0,
              parts = row->split == SHEAF__BY_IN ? 1 : (int)row->split;
    const int64_t length = t->shape[axis] / parts, units = row->units == 0 ? length : row->units;
    t->cut.axis = axis;
    t->cut.nparts = parts;
    for (int i = 0; i < parts; i++)
        t->cut.part[i] = row->part != NULL ? row->part[i] : (sheaf_part){ units, length / units };
}

static sheaf_status *set(sheaf_tensor *t, const sheaf_schema *schema, const char *prefix, int layer,
                         const sheaf__tensor_row *row)
{
    *t = (sheaf_tensor){ .role = row->role,
                         .buffer = row->buffer,
                         .zero = row->zero,
                         .bare = row->bare,
                         .layer = layer,
                         .in_axis = -1,
                         .out_axis = -1,
                         .shape = { 1, 1, 1, 1, 1 },
                         .cut = { .slices = schema->slices } };
    for (; t->ndim < SHEAF_TENSOR_MAX_DIMS && row->shape[t->ndim] != 0; t->ndim++)
        t->shape[t->ndim] = row->shape[t->ndim];
    if (t->ndim == 2 && row->role != SHEAF_OTHER) {
        /* A table maps a token to a hidden vector. */
        t->in_axis = row->role == SHEAF_EMBED ? 0 : 1;
        t->out_axis = 1 - t->in_axis;
    }
    set_cut(t, row);
    if (asprintf(&t->name, "%s%s", prefix, row->name) < 0) {
        t->name = NULL;
        return sheaf__no_memory(memory_for);
    }
    t->bias = sheaf__ends_with(t->name, ".bias");
    const size_t end = t->bias ? 5 : sheaf__ends_with(t->name, ".weight") ? 7 : 0;
    t->module = strndup(t->name, strlen(t->name) - end);
    t->stack.ndim = row->members > 0 ? 3 : 2;
    t->stack.member = row->member;
    t->stack.members = row->members > 0 ? row->members : 1;
    t->stack.row = row->stack_row;
    t->stack.rows = row->members > 0 ? row->stack_rows : t->shape[0];
    if (row->stack != NULL && asprintf(&t->stack.of, "%s%s", prefix, row->stack) < 0)
        t->stack.of = NULL;
    return t->module != NULL && (row->stack == NULL || t->stack.of != NULL)
               ? NULL
               : sheaf__no_memory(memory_for);
}

/* Tensors that a list of `count` has memory for: a power of two, so that it seldom moves. */
static int64_t space_of(int64_t count)
{
    int64_t space = 1;
    while (space < count)
        space *= 2;
    return count == 0 ? 0 : space;
}

sheaf_status *sheaf__rows_add(sheaf_schema *schema, const char *prefix, int layer,
                              const sheaf__tensor_row *rows, size_t n)
{
    sheaf_status *st = NULL;
    if (schema->count > MOST_TENSORS - (int64_t)n)
        return sheaf_expected(
            sheaf_fail(SHEAF_E_UNSUPPORTED, "config: layers, and experts of each"),
            "at most %d tensors of them all", MOST_TENSORS);
    int64_t space = space_of(schema->count);
    if (!SHEAF_GROW(&schema->tensor, &space, space_of(schema->count + (int64_t)n)))
        return sheaf__no_memory(memory_for);
    for (size_t i = 0; i < n && st == NULL; i++)
        st = set(&schema->tensor[schema->count++], schema, prefix, layer, &rows[i]);
    return st;
}

sheaf_status *sheaf__rows_size(const char *name, int64_t value, int64_t most)
{
    if (value >= 1 && value <= most)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "config: %s", name);
    return sheaf_found(sheaf_expected(st, "1 to %" PRId64, most), "%" PRId64, value);
}

sheaf_status *sheaf__resampler_rows(sheaf_schema *schema, const char *prefix, int64_t from,
                                    bool table)
{
    const sheaf_resampler *r = &schema->config.resampler;
    const int64_t e = schema->config.hidden, q = r->queries;
    /* No LoRA where it is torch's attention, which would not look at the factors. Upstream's own,
     * which came with the versions that compute their table, asks the layer. */
    const sheaf_role out = table ? SHEAF_OTHER : SHEAF_LINEAR;
    /* Each table ends with what only some have; upstream's kv_proj is Identity where both widths
     * are the same. */
    const sheaf__tensor_row first[] = {
        { "query", { q, e }, SHEAF_OTHER },
        { "proj", { e, e }, SHEAF_OTHER },
        { "kv_proj.weight", { e, from }, SHEAF_LINEAR, SHEAF__BY_IN },
    };
    const sheaf__tensor_row rows[] = {
        { "attn.in_proj_weight", { 3 * e, e }, SHEAF_OTHER, SHEAF__BY_OUT3, r->heads },
        { "attn.in_proj_bias", { 3 * e }, SHEAF_OTHER, SHEAF__BY_OUT3, r->heads, .zero = true },
        { "attn.out_proj.weight", { e, e }, out, SHEAF__BY_IN, r->heads },
        { "attn.out_proj.bias", { e }, SHEAF_OTHER },
        { "ln_q.weight", { e }, SHEAF_NORM },
        { "ln_q.bias", { e }, SHEAF_NORM },
        { "ln_kv.weight", { e }, SHEAF_NORM },
        { "ln_kv.bias", { e }, SHEAF_NORM },
        { "ln_post.weight", { e }, SHEAF_NORM },
        { "ln_post.bias", { e }, SHEAF_NORM },
        { "pos_embed", { q, e }, SHEAF_OTHER, .buffer = true },
    };
    sheaf_status *st =
        sheaf__rows_add(schema, prefix, -1, first, sizeof first / sizeof *first - (from == e));
    return TRY(st, sheaf__rows_add(schema, prefix, -1, rows, sizeof rows / sizeof *rows - !table));
}
