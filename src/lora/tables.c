/* tables.c - the table of tokens and the head as PEFT saves them unasked. */
#include <stdlib.h>
#include <string.h>

#include "base/no_memory.h"
#include "lora/adapter.h"
#include "lora/names.h"
#include "schema/family.h"

enum { CHUNK = 1 << 20 }; /* bytes read at once, and at least a row */

static bool is_known(const sheaf_lora *lora, const sheaf_tensor *t)
{
    for (int i = 0; i < lora->nsaved; i++)
        if (lora->saved[i] == t)
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
    if (e == NULL || e->ndim != 2) { /* of another kind it is told as what nobody asked for */
        free(*name);
        *name = NULL;
    }
    return NULL;
}

static sheaf_status *same_numbers(bool *same, sheaf_source *adapter, const char *one,
                                  const char *two)
{
    const sheaf_source_entry *a = adapter->find(adapter, one), *b = adapter->find(adapter, two);
    *same = a->dtype == b->dtype && a->shape[0] == b->shape[0] && a->shape[1] == b->shape[1];
    const int64_t rows = a->shape[0], cols = a->shape[1];
    const int64_t line = cols * (int64_t)sheaf_dtype_bytes(a->dtype);
    const int64_t most = line > 0 && line < CHUNK ? CHUNK / line : 1;
    char *buffer = malloc(2 * (size_t)(most * line) + 1);
    sheaf_status *st = buffer == NULL ? sheaf__no_memory("tables of the adapter") : NULL;
    for (int64_t at = 0; at < rows && *same && st == NULL; at += most) {
        const int64_t n = rows - at < most ? rows - at : most;
        char *other = buffer + n * line;
        st = adapter->read(adapter, one, at, n, 0, cols, buffer);
        if (st == NULL)
            st = adapter->read(adapter, two, at, n, 0, cols, other);
        *same = st == NULL && memcmp(buffer, other, (size_t)(n * line)) == 0;
    }
    free(buffer);
    return st;
}

/* A model that ties both has one tensor for them; PEFT saves it twice. *table, *head: their names
 * in the file, or NULL. Afterwards *table is the one to take. */
static sheaf_status *join(sheaf_lora *lora, sheaf_source *adapter, char **table, char **head)
{
    bool same = true;
    sheaf_status *st =
        *table != NULL && *head != NULL ? same_numbers(&same, adapter, *table, *head) : NULL;
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
    int at = lora->nsaved;
    if (t == NULL || *name == NULL || is_known(lora, t))
        return;
    for (; at > 0 && lora->saved[at - 1] > t; at--) { /* both point into the schema's array */
        lora->saved[at] = lora->saved[at - 1];
        lora->saved_name[at] = lora->saved_name[at - 1];
    }
    lora->saved[at] = t; /* there is space for every tensor of the schema */
    lora->saved_name[at] = *name;
    lora->nsaved++;
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
    if (st == NULL)
        st = find_table(&head, adapter, family->head);
    if (st == NULL && schema->config.tied && t != NULL && !is_known(lora, t))
        st = join(lora, adapter, &table, &head);
    if (st == NULL) {
        take(taken, lora, h, &head);
        take(taken, lora, t, &table);
    }
    free(table);
    free(head);
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
