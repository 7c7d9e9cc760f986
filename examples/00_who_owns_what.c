/* 00_who_owns_what.c - which rows of which tensor lie on which rank.
 *
 *   00_who_owns_what config.json 3
 *
 * Lists, for the first layer, the rows (of the divided axis) that each of 3 ranks
 * owns. Nothing is opened but the config: shapes and cuts follow from it. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "sheaf/config.h"
#include "sheaf/owner.h"
#include "sheaf/schema.h"

static int failed(sheaf_status *st)
{
    sheaf_status_print(st, stderr);
    sheaf_status_free(st);
    return 3;
}

static void print_tensor(const sheaf_tensor *tensor, int slices, int ranks)
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
        const sheaf_range first = sheaf_tensor_slice(tensor, (int)own.begin);
        const sheaf_range last = sheaf_tensor_slice(tensor, (int)own.end - 1);
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
    sheaf_config config;
    sheaf_status *st = sheaf_config_read(&config, argv[1]);
    if (st != NULL)
        return failed(st);
    sheaf_schema *schema = NULL;
    st = sheaf_schema_new(&schema, &config, slices);
    sheaf_config_release(&config);
    if (st != NULL)
        return failed(st);
    for (int64_t i = 0; i < schema->count; i++)
        if (schema->tensor[i].layer <= 0)
            print_tensor(&schema->tensor[i], slices, ranks);
    sheaf_schema_free(schema);
    return 0;
}
