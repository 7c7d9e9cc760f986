/* 02_open_and_list.c - what lies at a path, and its tensors.
 *
 *   02_open_and_list PATH
 *
 * PATH may be a model, an adapter or a checkpoint of any program that sheaf reads: tensors are
 * listed undivided, by their canonical names, those of float32 with their first value. */
#include <inttypes.h>
#include <stdio.h>

#include <sheaf/sheaf.h>

static sheaf_status *print_tensor(const sheaf_weights *weights, const sheaf_source_entry *entry)
{
    printf("%-46s %-4s", entry->name, sheaf_dtype_name(entry->dtype));
    for (int i = 0; i < entry->ndim; i++)
        printf("%s%" PRId64, i == 0 ? " " : " x ", entry->shape[i]);
    float row[4096];
    const int64_t columns = entry->ndim < 2 ? 1 : entry->shape[entry->ndim - 1];
    sheaf_status *st = NULL;
    if (entry->dtype == SHEAF_F32 && columns > 0 && columns <= 4096) {
        st = sheaf_weights_read(row, (size_t)columns * sizeof *row, weights, entry->name, 0, 1);
        if (st == NULL)
            printf(" begins with %.6g", (double)row[0]);
    }
    printf("\n");
    return st;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: 02_open_and_list PATH\n");
        return 2;
    }
    sheaf_weights *weights = NULL;
    sheaf_weights_facts facts;
    SHEAF_INIT(&facts);
    sheaf_status *st = sheaf_weights_open(&weights, argv[1], NULL);
    if (st == NULL)
        st = sheaf_weights_info(&facts, weights);
    if (st == NULL)
        printf("%s: %" PRId64 " tensors, %" PRId64 " elements, %" PRId64 " bytes\n", facts.dialect,
               facts.tensors, facts.elements, facts.bytes);
    for (int64_t i = 0; st == NULL && i < facts.tensors; i++)
        st = print_tensor(weights, sheaf_weights_entry(weights, i));
    sheaf_weights_close(weights);
    if (st == NULL)
        return 0;
    sheaf_status_print(st, stderr);
    sheaf_status_free(st);
    return 3;
}
