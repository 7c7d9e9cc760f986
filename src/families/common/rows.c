/* rows.c - see rows.h. */
#include "families/common/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/no_memory.h"
#include "base/text.h"

static const char memory_for[] = "out of memory for the names of tensors";

static void set_cut(sheaf_tensor *t, const sheaf__tensor_row *row)
{
    if (row->split == SHEAF__WHOLE)
        return;
    const int axis = row->split == SHEAF__BY_IN ? 1 : 0,
              parts = row->split == SHEAF__BY_OUT3 ? 3 : 1;
    const int64_t length = t->shape[axis] / parts, units = row->units == 0 ? length : row->units;
    t->cut.axis = axis;
    t->cut.nparts = parts;
    for (int i = 0; i < parts; i++)
        t->cut.part[i] = (sheaf_part){ units, length / units };
}

static sheaf_status *set(sheaf_tensor *t, const sheaf_schema *schema, const char *prefix, int layer,
                         const sheaf__tensor_row *row)
{
    *t = (sheaf_tensor){ .role = row->role,
                         .buffer = row->buffer,
                         .zero = row->zero,
                         .layer = layer,
                         .in_axis = -1,
                         .out_axis = -1,
                         .shape = { 1, 1, 1, 1 },
                         .cut = { .slices = schema->slices } };
    for (; t->ndim < 4 && row->shape[t->ndim] != 0; t->ndim++)
        t->shape[t->ndim] = row->shape[t->ndim];
    if (t->ndim == 2 && row->role == SHEAF_LINEAR) {
        t->in_axis = 1;
        t->out_axis = 0;
    }
    set_cut(t, row);
    if (asprintf(&t->name, "%s%s", prefix, row->name) < 0) {
        t->name = NULL;
        return sheaf__no_memory(memory_for);
    }
    t->bias = sheaf__ends_with(t->name, ".bias");
    const size_t end = t->bias ? 5 : sheaf__ends_with(t->name, ".weight") ? 7 : 0;
    t->module = strndup(t->name, strlen(t->name) - end);
    return t->module != NULL ? NULL : sheaf__no_memory(memory_for);
}

sheaf_status *sheaf__rows_add(sheaf_schema *schema, const char *prefix, int layer,
                              const sheaf__tensor_row *rows, size_t n)
{
    sheaf_tensor *more =
        realloc(schema->tensor, ((size_t)schema->count + n) * sizeof *schema->tensor);
    if (more == NULL)
        return sheaf__no_memory(memory_for);
    schema->tensor = more;
    sheaf_status *st = NULL;
    for (size_t i = 0; i < n && st == NULL; i++)
        st = set(&schema->tensor[schema->count++], schema, prefix, layer, &rows[i]);
    return st;
}

static int by_name(const void *a, const void *b, void *tensors)
{
    const sheaf_tensor *t = tensors;
    return strcmp(t[*(const int64_t *)a].name, t[*(const int64_t *)b].name);
}

sheaf_status *sheaf__rows_sort(sheaf_schema *schema)
{
    schema->by_name = malloc((size_t)schema->count * sizeof *schema->by_name);
    if (schema->by_name == NULL)
        return sheaf__no_memory(memory_for);
    for (int64_t i = 0; i < schema->count; i++)
        schema->by_name[i] = i;
    qsort_r(schema->by_name, (size_t)schema->count, sizeof *schema->by_name, by_name,
            schema->tensor);
    return NULL;
}

sheaf_status *sheaf__resampler_rows(sheaf_schema *schema, const char *prefix, int64_t from,
                                    bool table)
{
    const sheaf_resampler *r = &schema->config.resampler;
    const int64_t e = schema->config.hidden, q = r->queries;
    const sheaf__tensor_row rows[] = {
        { "query", { q, e }, SHEAF_OTHER },
        { "proj", { e, e }, SHEAF_OTHER },
        { "kv_proj.weight", { e, from }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "attn.in_proj_weight", { 3 * e, e }, SHEAF_OTHER, SHEAF__BY_OUT3, r->heads },
        { "attn.in_proj_bias", { 3 * e }, SHEAF_OTHER, SHEAF__BY_OUT3, r->heads, .zero = true },
        /* No LoRA there, as with PEFT, whose factors torch's attention would not look at. */
        { "attn.out_proj.weight", { e, e }, SHEAF_OTHER, SHEAF__BY_IN, r->heads },
        { "attn.out_proj.bias", { e }, SHEAF_OTHER },
        { "ln_q.weight", { e }, SHEAF_NORM },
        { "ln_q.bias", { e }, SHEAF_NORM },
        { "ln_kv.weight", { e }, SHEAF_NORM },
        { "ln_kv.bias", { e }, SHEAF_NORM },
        { "ln_post.weight", { e }, SHEAF_NORM },
        { "ln_post.bias", { e }, SHEAF_NORM },
        { "pos_embed", { q, e }, SHEAF_OTHER, .buffer = true },
    };
    return sheaf__rows_add(schema, prefix, -1, rows, sizeof rows / sizeof *rows - !table);
}
