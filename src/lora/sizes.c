/* sizes.c - see sizes.h. */
#include "lora/sizes.h"

#include "base/base.h"
#include "catalog/boxes.h"
#include "lora/match.h"
#include "lora/paths.h"

/* The entry that names the tensor or a module around it. */
static const char *entry_of(const sheaf_lora *lora, const sheaf_schema *schema,
                            const sheaf_tensor *t)
{
    const sheaf_lora_options *o = &lora->options;
    for (int i = 0; i < o->modules_to_save.n; i++) {
        const sheaf_lora_options one = { .modules_to_save = { &o->modules_to_save.list[i], 1 } };
        if (sheaf__lora_saves_whole(&one, schema, t))
            return o->modules_to_save.list[i];
    }
    return t->bias ? "biases" : "others";
}

static int larger_first(const void *a, const void *b)
{
    const sheaf__lora_copy *x = a, *y = b;
    return x->elements != y->elements ? (x->elements < y->elements ? 1 : -1)
                                      : strcmp(x->name, y->name);
}

/* `found` has space for one more. */
static void add(sheaf__lora_copy *found, int *n, const char *name, int64_t elements)
{
    int i = 0;
    while (i < *n && strcmp(found[i].name, name) != 0)
        i++;
    if (i == *n)
        found[(*n)++] = (sheaf__lora_copy){ name, 0 };
    found[i].elements += elements;
}

void sheaf__lora_sizes_of(sheaf__lora_sizes *out, const sheaf_lora *lora,
                          const sheaf_schema *schema,
                          bool (*trains)(void *self, const sheaf_tensor *tensor), void *self)
{
    int n = 0;
    int64_t twin = 0; /* of the table's second name */
    sheaf__lora_copy *found = calloc((size_t)lora->options.modules_to_save.n + 3,
                                     sizeof *found); /* NULL: only the sums */
    *out = (sheaf__lora_sizes){ 0 };
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        out->factors +=
            (m->a_of == NULL ? m->a_shape[0] * m->a_shape[1] : 0) + m->b_shape[0] * m->file_rank;
    }
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (!sheaf__lora_is_saved(lora, t) && (t->buffer || trains == NULL || !trains(self, t)))
            continue;
        const int64_t elements = sheaf__elements(t->ndim, t->shape);
        out->copies += elements;
        if (lora->twin_name != NULL && t->role == SHEAF_EMBED)
            twin += elements;
        if (found != NULL)
            add(found, &n, entry_of(lora, schema, t), elements);
    }
    if (found != NULL)
        qsort(found, (size_t)n, sizeof *found, larger_first);
    for (int i = 0; i < n; i++) {
        if (out->n < SHEAF__LORA_COPIES)
            out->copy[out->n++] = found[i];
        else
            out->copy[SHEAF__LORA_COPIES - 1].elements += found[i].elements;
    }
    if (n > SHEAF__LORA_COPIES)
        out->copy[SHEAF__LORA_COPIES - 1].name = "others";
    out->copies_bytes = 4 * (out->copies + twin);
    out->bytes = 4 * out->factors + out->copies_bytes;
    free(found);
}

static void add_bytes(sheaf_text *text, int64_t bytes)
{
    const double mib = (double)bytes / 1048576;
    sheaf__text_add(text,
                    mib >= 1024 ? "%.2f GiB"
                    : mib >= 1  ? "%.1f MiB"
                                : "%.3f MiB",
                    mib >= 1024 ? mib / 1024 : mib);
}

static void add_count(sheaf_text *text, int64_t n)
{
    if (n >= 100000)
        sheaf__text_add(text, "%.1f million", (double)n / 1e6);
    else
        sheaf__text_add(text, "%" PRId64, n);
}

void sheaf__lora_sizes_text(sheaf_text *text, const sheaf__lora_sizes *sizes)
{
    if (sizes->copies == 0)
        return;
    sheaf__text_add(text, "the adapter's file takes ");
    add_bytes(text, sizes->bytes);
    sheaf__text_add(text, ": ");
    add_bytes(text, sizes->bytes - sizes->copies_bytes);
    sheaf__text_add(text, " of LoRA, and full copies of ");
    for (int i = 0; i < sizes->n; i++) {
        sheaf__text_add(text, "%s%s (",
                        i == 0              ? ""
                        : i + 1 == sizes->n ? " and "
                                            : ", ",
                        sizes->copy[i].name);
        add_count(text, sizes->copy[i].elements);
        sheaf__text_add(text, ")");
    }
    sheaf__text_add(text, ", which are %.3g %% of it",
                    100 * (double)sizes->copies_bytes / (double)sizes->bytes);
}
