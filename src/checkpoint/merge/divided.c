/* divided.c - see divided.h. */
#include "checkpoint/merge/divided.h"

#include <stdlib.h>
#include <string.h>

#include "comm/process.h"
#include "base/status.h"

void sheaf__merge_take_share(sheaf__merge_crew *crew, const sheaf__merge_plan *plan, int64_t total)
{
    const int processes = crew->together ? sheaf__process_count() : 1,
              me = crew->together ? sheaf__process_number() : 0;
    int64_t before = 0;
    crew->begin = crew->end = 0;
    for (int64_t i = 0; i < plan->count; i++) {
        const sheaf__merge_tensor *t = &plan->tensor[i];
        const int64_t bytes = t->rows * t->cols * (int64_t)sheaf_dtype_bytes(t->out_dtype),
                      part = total == 0 ? 0 : (before + bytes / 2) * processes / total,
                      owner = part < processes ? part : processes - 1;
        crew->begin += owner < me;
        crew->end += owner <= me;
        before += bytes;
    }
}

sheaf_status *sheaf__merge_hear_outcomes(sheaf__merge_outcome *outcome, int64_t count,
                                         _Atomic int64_t *sum, sheaf_status *st)
{
    const int processes = sheaf__process_count(), me = sheaf__process_number();
    const size_t n = (size_t)count;
    int64_t done[SHEAF_MAX_SLICES] = { 0 };
    sheaf__merge_outcome *all = calloc(n * (size_t)processes + 1, sizeof *all);
    if (st == NULL && all == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "merge");
    st = sheaf__process_agree(st);
    done[me] = atomic_load(sum);
    TRY(st, sheaf__process_gather(done, sizeof *done));
    if (st == NULL) {
        memcpy(all + n * (size_t)me, outcome, n * sizeof *all);
        st = sheaf__process_gather(all, n * sizeof *all);
    }
    for (int p = 0; p < processes && st == NULL; p++) {
        if (p != me)
            atomic_fetch_add(sum, done[p]);
        for (size_t i = 0; i < n && p != me; i++)
            if (all[n * (size_t)p + i].here)
                outcome[i] = all[n * (size_t)p + i];
    }
    free(all);
    return st;
}

/* What was looked at again. */
typedef struct checked {
    int64_t rows, products;
    double worst;
    char tensor[sizeof((sheaf_merge_report *)0)->worst_tensor];
} checked;

sheaf_status *sheaf__merge_hear_checks(sheaf_merge_report *report, sheaf_status *st)
{
    const int processes = sheaf__process_count();
    checked *all = calloc((size_t)processes, sizeof *all);
    if (st == NULL && all == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "merge");
    st = sheaf__process_agree(st);
    if (st == NULL) {
        checked *mine = &all[sheaf__process_number()];
        *mine =
            (checked){ report->rows_checked, report->products_checked, report->worst_product, "" };
        memcpy(mine->tensor, report->worst_tensor, sizeof mine->tensor);
        st = sheaf__process_gather(all, sizeof *all);
    }
    report->rows_checked = report->products_checked = 0;
    report->worst_product = 0;
    for (int p = 0; p < processes && st == NULL; p++) { /* the last of equals, as alone */
        report->rows_checked += all[p].rows;
        report->products_checked += all[p].products;
        if (all[p].tensor[0] != '\0' && all[p].worst >= report->worst_product) {
            report->worst_product = all[p].worst;
            memcpy(report->worst_tensor, all[p].tensor, sizeof all[p].tensor);
        }
    }
    free(all);
    return st;
}
