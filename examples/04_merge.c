/* 04_merge.c - LoRA adapters into their base model.
 *
 *   04_merge BASE ADAPTER... DST
 *
 * DST must not exist; it appears once the whole model is written, read back and checked. */
#include <inttypes.h>
#include <stdio.h>

#include <sheaf/sheaf.h>

/* Called from any of the threads that merge. */
static void hear(void *context, const sheaf_event *event)
{
    (void)context;
    if (event->kind == SHEAF_EVENT_WARNING)
        printf("warning: %s\n", event->text);
}

int main(int argc, char **argv)
{
    if (argc < 4) {
        fprintf(stderr, "usage: 04_merge BASE ADAPTER... DST\n");
        return 2;
    }
    const sheaf_events events = { hear, NULL };
    sheaf_weights_merge_options how;
    SHEAF_INIT(&how);
    how.base = argv[1];
    how.adapters = (const char *const *)argv + 2;
    how.nadapters = argc - 3;
    how.dst = argv[argc - 1];
    how.events = &events;
    sheaf_weights_merge_report report;
    SHEAF_INIT(&report);
    sheaf_status *st = sheaf_weights_merge(&report, &how);
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        sheaf_status_free(st);
        return 3;
    }
    printf("%" PRId64 " tensors, %" PRId64 " of them adapted: %" PRId64 " elements changed\n",
           report.tensors, report.adapted, report.elements_changed);
    printf("norm of the change %.6g, of the changed weights %.6g\n", report.change_norm,
           report.base_norm);
    return 0;
}
