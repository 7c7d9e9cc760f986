/* 05_fine_tune.c - LoRA on a model, stopped half-way and gone on with.
 *
 *   05_fine_tune MODEL DATA OUT
 *
 * OUT/adapter is the same bytes as of a run that was not stopped, at any number of ranks. */
#include <inttypes.h>
#include <stdio.h>

#include <sheaf/sheaf.h>

/* After each step; false asks to save and stop. */
static bool step_done(void *context, const sheaf_event_step *step)
{
    const int64_t *last = (const int64_t *)context;
    printf("step %" PRId64 " of %" PRId64 ": loss %.4f, gradient norm %.4f\n", step->step,
           step->steps, step->loss, step->grad_norm);
    return step->step != *last;
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: 05_fine_tune MODEL DATA OUT\n");
        return 2;
    }
    int64_t last = 3;
    sheaf_run_train_options how;
    SHEAF_INIT(&how);
    how.model = argv[1];
    how.data = argv[2];
    how.out = argv[3];
    how.steps = 6;
    how.threads = 2;
    how.settings = "method: lora\nlora-rank: 4\nmicro-batch: 2\nlr: 1e-2\nseed: 7\n";
    how.step = step_done;
    how.context = &last;
    sheaf_run_train_report report;
    SHEAF_INIT(&report);
    sheaf_status *st = sheaf_run_train(&report, &how);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED) {
        printf("%s; now with two ranks\n", sheaf_status_where(st));
        sheaf_status_free(st);
        SHEAF_INIT(&how); /* all that is not given is as the run began */
        how.out = argv[3];
        how.resume = true;
        how.tp = 2;
        how.step = step_done;
        how.context = &last;
        last = 0;
        st = sheaf_run_train(&report, &how);
    }
    if (st != NULL) {
        sheaf_status_print(st, stderr);
        sheaf_status_free(st);
        return 3;
    }
    printf("%" PRId64 " steps, %" PRId64 " of %" PRId64 " parameters trained\n", report.step,
           report.trained, report.parameters);
    sheaf_run_train_report_release(&report);
    return 0;
}
