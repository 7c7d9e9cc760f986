/* tables.c - the embedding and the head that PEFT saves by itself. */
#include "base/base.h"
#include "formats/safetensors.h"
#include "lora/adapter.h"
#include "lora/check_file.h"
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

/* The table in the file; NULL: none. One of another shape is refused as an unexpected tensor. */
static const sheaf_source_entry *find_table(sheaf_source *adapter, const char *tensor)
{
    const sheaf_source_entry *e = sheaf__lora_find_part(adapter, tensor, strlen(tensor), "");
    return e != NULL && e->ndim == 2 ? e : NULL;
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

static sheaf_status *name_of(char **name, const sheaf_source_entry *e)
{
    *name = strdup(e->name);
    return *name != NULL ? NULL : sheaf__no_memory("tables of the adapter");
}

/* A tied model has one tensor for both; PEFT saves it twice. Afterwards *table is the one to use,
 * or NULL. */
static sheaf_status *join(sheaf_lora *lora, sheaf_source *adapter, const sheaf_source_entry **table,
                          const sheaf_source_entry *head)
{
    bool same = true;
    if (*table == NULL || head == NULL) {
        *table = *table != NULL ? *table : head;
        return NULL;
    }
    sheaf_status *st = sheaf__same_numbers(&same, adapter, (*table)->name, adapter, head->name);
    if (st != NULL || (same && (*table)->dtype == head->dtype))
        return st != NULL ? st : name_of(&lora->twin_name, head);
    st = sheaf_fail(SHEAF_E_LAYOUT, "'%s' and '%s'", (*table)->name, head->name);
    sheaf_expected(st, "the same numbers, as the base ties them (tie_word_embeddings)");
    sheaf_found(st, "two tensors that differ");
    return sheaf_try_this(st, "the base model this adapter was made for, which does not tie them");
}

/* Adds `e`, which may be NULL, to the saved tensors in place of `t`. */
static sheaf_status *take(const char **taken, sheaf_lora *lora, const sheaf_tensor *t,
                          const sheaf_source_entry *e)
{
    char *name = NULL;
    if (t == NULL || e == NULL)
        return NULL;
    sheaf_status *st = name_of(&name, e);
    if (st != NULL)
        return st;
    sheaf__lora_save(lora, t, name);
    *taken = name;
    return NULL;
}

sheaf_status *sheaf_lora_take_tables(const char **taken, sheaf_lora *lora,
                                     const sheaf_schema *schema, sheaf_source *adapter)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    const sheaf_tensor *t = sheaf_schema_find(schema, family->table),
                       *h = sheaf_schema_find(schema, family->head);
    const sheaf_source_entry *table = find_table(adapter, family->table),
                             *head = find_table(adapter, family->head);
    const bool ties = schema->config.tied && t != NULL && !is_known(lora, t);
    *taken = NULL;
    sheaf_status *st = ties ? join(lora, adapter, &table, head) : NULL;
    TRY(st, !ties && h != NULL && !is_known(lora, h) ? take(taken, lora, h, head) : NULL);
    TRY(st, t != NULL && !is_known(lora, t) ? take(taken, lora, t, table) : NULL);
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
        const sheaf_tensor *t = lora->module[i].base;
        const char *in_base = untied && t == head ? family->table : t->name;
        const sheaf_source_entry *copy =
            sheaf__lora_find_part(adapter, t->module, strlen(t->module), ".base_layer.weight");
        bool same = copy == NULL || base->find(base, in_base) == NULL;
        if (!same)
            st = sheaf__same_numbers(&same, adapter, copy->name, base, in_base);
        if (st != NULL || same)
            continue;
        if (untied && head != NULL && strcmp(t->name, family->table) == 0 &&
            !sheaf__lora_is_saved(lora, head)) /* PEFT has one tensor for both uses */
            st = take(taken, lora, head, copy);
        TRY(st, take(taken, lora, t, copy));
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
