/* 00_who_owns_what.c - which rows of which tensor lie on which rank.
 *
 *   00_who_owns_what config.json 3
 *
 * Lists, for the first layer, the rows (of the divided axis) that each of 3 ranks
 * owns. Nothing is opened but the config: shapes and cuts follow from it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sheaf/owner.h"
#include "sheaf/schema.h"

static int failed(sheaf_status *st)
{
    sheaf_status_print(st, stderr);
    sheaf_status_free(st);
    return 3;
}

static void print_tensor(const sheaf_tensor_facts *tensor, int slices, int ranks)
{
    printf("%-48s [%" PRId64 ", %" PRId64 "]", tensor->name, tensor->shape[0], tensor->shape[1]);
    if (tensor->cut.nparts == 0) {
        printf(" on every rank\n");
        return;
    }
    if (tensor->cut.nparts > 1) { /* fused: each part is divided on its own, sheaf_cut_rows() */
        printf(" in %d parts\n", tensor->cut.nparts);
        return;
    }
    printf(" %s", tensor->cut.axis == 0 ? "rows" : "columns");
    for (int rank = 0; rank < ranks; rank++) {
        /* A rank's slices are neighbours, so its rows are one range. */
        const sheaf_range own = sheaf_owner_slices(slices, ranks, rank);
        sheaf_range first, last;
        sheaf_status_free(sheaf_cut_rows(&first, &tensor->cut, 0, (int)own.begin));
        sheaf_status_free(sheaf_cut_rows(&last, &tensor->cut, 0, (int)own.end - 1));
        if (first.begin == last.end)
            printf(" none");
        else
            printf(" [%" PRId64 ", %" PRId64 ")", first.begin, last.end);
    }
    printf("\n");
}

int main(int argc, char **argv)
{
    const int slices = 8, ranks = argc == 3 ? atoi(argv[2]) : 0;
    if (ranks < 1 || ranks > slices) {
        fprintf(stderr, "usage: 00_who_owns_what config.json RANKS\n");
        return 2;
    }
    sheaf_schema *schema = NULL;
    sheaf_status *st = sheaf_schema_read(&schema, argv[1], slices);
    if (st != NULL)
        return failed(st);
    for (int64_t i = 0; i < sheaf_schema_count(schema); i++) {
        sheaf_tensor_facts tensor;
        SHEAF_INIT(&tensor);
        st = sheaf_schema_tensor(&tensor, schema, i);
        if (st != NULL)
            return failed(st);
        if (tensor.layer <= 0)
            print_tensor(&tensor, slices, ranks);
    }
    sheaf_schema_free(schema);
    return 0;
}
