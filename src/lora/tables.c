/* tables.c - the table of tokens and the head as PEFT saves them unasked. */
#include "base/base.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "lora/names.h"
#include "ops/kernels.h"
#include "schema/family.h"

enum { CHUNK = 1 << 18 }; /* numbers read at once, and at least a row */

static bool is_known(const sheaf_lora *lora, const sheaf_tensor *t)
{
    if (sheaf__lora_is_saved(lora, t))
        return true;
    for (int i = 0; i < lora->nmodules; i++)
        if (lora->module[i].base == t)
            return true;
    return false;
}

/* *name: of the tensor in the file, NULL where it is not there as a table. */
static sheaf_status *find_table(char **name, sheaf_source *adapter, const char *tensor)
{
    if (asprintf(name, SHEAF_PEFT_PREFIX "%s", tensor) < 0) {
        *name = NULL;
        return sheaf__no_memory("tables of the adapter");
    }
    const sheaf_source_entry *e = adapter->find(adapter, *name);
    if (e == NULL || e->ndim != 2) { /* of another shape it is refused as a foreign tensor */
        free(*name);
        *name = NULL;
    }
    return NULL;
}

sheaf_status *sheaf__same_numbers(bool *same, sheaf_source *a, const char *a_name, sheaf_source *b,
                                  const char *b_name)
{
    const sheaf_source_entry *one = a->find(a, a_name), *two = b->find(b, b_name);
    const size_t size = sheaf_dtype_bytes(one->dtype), wide = size > 4 ? size : 4;
    const bool mixed = one->dtype != two->dtype;
    int64_t rows, cols;
    sheaf__safetensors_view(&rows, &cols, one->ndim, one->shape);
    const int64_t most = cols > 0 && cols < CHUNK ? CHUNK / cols : 1;
    *same = sheaf__same_shape(one->ndim, one->shape, two->ndim, two->shape);
    char *x = malloc((mixed ? 4 : 2) * (size_t)(most * cols) * wide + 1);
    sheaf_status *st = x == NULL ? sheaf__no_memory(a_name) : NULL;
    char *y = x + (size_t)(most * cols) * wide, *stored = y + (size_t)(most * cols) * wide;
    for (int64_t at = 0; *same && st == NULL && at < rows; at += most) {
        const int64_t n = rows - at < most ? rows - at : most;
        st = a->read(a, a_name, at, n, 0, cols, mixed ? stored : x);
        if (st == NULL && mixed)
            sheaf__kernels_for("ref")->convert(x, SHEAF_F32, stored, one->dtype, n * cols);
        TRY(st, b->read(b, b_name, at, n, 0, cols, mixed ? stored : y));
        if (st == NULL && mixed)
            sheaf__kernels_for("ref")->convert(y, SHEAF_F32, stored, two->dtype, n * cols);
        *same = st == NULL && memcmp(x, y, (size_t)(n * cols) * (mixed ? 4 : size)) == 0;
    }
    free(x);
    return st;
}

/* A model that ties both has one tensor for them; PEFT saves it twice. *table, *head: their names
 * in the file, or NULL. Afterwards *table is the one to take. */
static sheaf_status *join(sheaf_lora *lora, sheaf_source *adapter, char **table, char **head)
{
    bool same = true;
    sheaf_status *st = *table != NULL && *head != NULL
                           ? sheaf__same_numbers(&same, adapter, *table, adapter, *head)
                           : NULL;
    if (st == NULL && *table != NULL && *head != NULL)
        same =
            same && adapter->find(adapter, *table)->dtype == adapter->find(adapter, *head)->dtype;
    if (st == NULL && !same) {
        st = sheaf_fail(SHEAF_E_LAYOUT, "'%s' and '%s'", *table, *head);
        sheaf_expected(st, "the same numbers, as the base ties them (tie_word_embeddings)");
        sheaf_found(st, "two tensors that differ");
        sheaf_try_this(st, "the base model this adapter was made for, which does not tie them");
    }
    if (st != NULL)
        return st;
    if (*table != NULL)
        lora->twin_name = *head;
    else
        *table = *head;
    *head = NULL;
    return NULL;
}

static void take(const char **taken, sheaf_lora *lora, const sheaf_tensor *t, char **name)
{
    sheaf__lora_save(lora, t, *name);
    *taken = *name;
    *name = NULL;
}

sheaf_status *sheaf_lora_take_tables(const char **taken, sheaf_lora *lora,
                                     const sheaf_schema *schema, sheaf_source *adapter)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    const sheaf_tensor *t = sheaf_schema_find(schema, family->table),
                       *h = sheaf_schema_find(schema, family->head);
    char *table = NULL, *head = NULL;
    *taken = NULL;
    sheaf_status *st = find_table(&table, adapter, family->table);
    TRY(st, find_table(&head, adapter, family->head));
    if (st == NULL && schema->config.tied && t != NULL && !is_known(lora, t))
        st = join(lora, adapter, &table, &head);
    if (st == NULL) {
        if (h != NULL && head != NULL && !is_known(lora, h))
            take(taken, lora, h, &head);
        if (t != NULL && table != NULL && !is_known(lora, t))
            take(taken, lora, t, &table);
    }
    free(table);
    free(head);
    return st;
}

/* The copy of a module's weight in the file, where it is another than the base's; else NULL. */
static sheaf_status *other_copy(char **name, const sheaf_lora_module *m, sheaf_source *adapter,
                                sheaf_source *base, const char *in_base)
{
    bool same = true;
    *name = NULL;
    char *copy = NULL;
    if (asprintf(&copy, SHEAF_PEFT_PREFIX "%s.base_layer.weight", m->base->module) < 0)
        return sheaf__no_memory("tables of the adapter");
    sheaf_status *st = adapter->find(adapter, copy) == NULL || base->find(base, in_base) == NULL
                           ? NULL
                           : sheaf__same_numbers(&same, adapter, copy, base, in_base);
    if (st == NULL && !same)
        *name = copy;
    else
        free(copy);
    return st;
}

sheaf_status *sheaf_lora_take_copies(const char **taken, sheaf_lora *lora,
                                     const sheaf_schema *schema, sheaf_source *adapter,
                                     sheaf_source *base, bool untied)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    const sheaf_tensor *head = sheaf_schema_find(schema, family->head);
    sheaf_status *st = NULL;
    for (int i = 0; i < lora->nmodules && st == NULL; i++) {
        const sheaf_lora_module *m = &lora->module[i];
        const bool is_head = m->base == head, is_table = strcmp(m->base->name, family->table) == 0;
        char *name = NULL, *twin = NULL;
        st = other_copy(&name, m, adapter, base, untied && is_head ? family->table : m->base->name);
        if (name != NULL && untied && is_table && head != NULL && (twin = strdup(name)) == NULL)
            st = sheaf__no_memory("tables of the adapter");
        if (twin != NULL &&
            !sheaf__lora_is_saved(lora, head)) /* PEFT's is the one tensor of both uses */
            take(taken, lora, head, &twin);
        if (name != NULL)
            take(taken, lora, m->base, &name);
        free(twin);
    }
    return st;
}

sheaf_status *sheaf_lora_refuse_table(const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", name);
    sheaf_expected(
        st,
        "for training, whole tables only where adapter_config.json has them in modules_to_save");
    sheaf_found(
        st,
        "a copy that PEFT saved unasked (save_embedding_layers, or a vocabulary that was resized)");
    return sheaf_try_this(
        st,
        "sheaf merge BASE ADAPTER MERGED, then train a new adapter of MERGED; to run it or to merge it, it is fine");
}
