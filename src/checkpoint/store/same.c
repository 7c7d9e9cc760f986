/* same.c - see same.h. */
#include "checkpoint/store/same.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/status.h"
#include "checkpoint/store/look.h"
#include "comm/doing.h"
#include "comm/process.h"

static const char memory_for[] = "what processes compare";

static sheaf_status *add_tensor(sheaf_hasher *hasher, sheaf_source *source,
                                const sheaf_source_entry *e)
{
    const int64_t facts[2] = { e->dtype, e->ndim };
    int64_t rows, cols;
    sheaf__look_view(&rows, &cols, e);
    const size_t bytes = (size_t)cols * sheaf_dtype_bytes(e->dtype);
    sheaf__hasher_add(hasher, e->name, strlen(e->name) + 1);
    sheaf__hasher_add(hasher, facts, sizeof facts);
    sheaf__hasher_add(hasher, e->shape, (size_t)e->ndim * sizeof *e->shape);
    if (rows == 0 || bytes == 0)
        return NULL;
    void *row = malloc(bytes);
    sheaf_status *st = row == NULL ? sheaf__no_memory(memory_for) : sheaf__process_halted();
    sheaf__doing_item(sheaf__process_doing(), e->name);
    for (int64_t at = 0; at < rows && st == NULL; at += rows > 1 ? rows - 1 : 1) {
        st = source->read(source, e->name, at, 1, 0, cols, row);
        if (st == NULL)
            sheaf__hasher_add(hasher, row, bytes);
    }
    free(row);
    return st;
}

static sheaf_status *differs(const char *first, const char *mine)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "the tensors or configs that are read");
    sheaf_expected(st, "%s, as in the first process, on %s", first, sheaf__process_host(0));
    sheaf_found(st, "%s", mine);
    return sheaf_try_this(st, "give all processes the same folders");
}

sheaf_status *sheaf__same_sources(sheaf_status *st, sheaf_source *const *source, int count,
                                  const char *also)
{
    const int me = sheaf__process_number();
    char hash[SHEAF_MAX_SLICES][33] = { "" };
    if (sheaf__process_count() == 1)
        return st;
    sheaf__doing_phase(sheaf__process_doing(), "comparing");
    sheaf_hasher *hasher = st == NULL ? sheaf__hasher_new() : NULL;
    if (st == NULL && hasher == NULL)
        st = sheaf__no_memory(memory_for);
    if (st == NULL && also != NULL)
        sheaf__hasher_add(hasher, also, strlen(also) + 1);
    for (int i = 0; i < count && st == NULL; i++)
        for (int64_t k = 0; source[i] != NULL && k < source[i]->count(source[i]) && st == NULL; k++)
            st = add_tensor(hasher, source[i], source[i]->entry(source[i], k));
    if (st == NULL)
        sheaf__hash_text(hash[me], sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    sheaf__doing_item(sheaf__process_doing(), NULL);
    st = sheaf__process_agree(st);
    TRY(st, sheaf__process_gather(hash, sizeof *hash));
    if (st == NULL && strcmp(hash[0], hash[me]) != 0)
        st = differs(hash[0], hash[me]);
    return sheaf__process_agree(st);
}
