/* report.c - what runs left, as JSON and as a page: sheaf/report.h. */
#include "sheaf/report.h"

#include <time.h>

#include "base/base.h"
#include "base/json_write.h"
#include "base/numeric_env.h"
#include "library/structs.h"
#include "report/facts.h"
#include "report/page.h"

struct sheaf_report {
    sheaf_report_options o;
    sheaf__report_run *run; /* [runs] */
    char *json;             /* NULL: nothing was read yet */
};

sheaf_status *sheaf_report_open(sheaf_report **out, const sheaf_report_options *options)
{
    sheaf_report_options o;
    *out = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_report_options");
    if (st == NULL && (o.run == NULL || o.runs < 1))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_report_options"), "at least one run");
    if (st != NULL)
        return st;
    sheaf_report *report = calloc(1, sizeof *report);
    sheaf__report_run *run = calloc((size_t)o.runs, sizeof *run);
    if (report == NULL || run == NULL) {
        free(report);
        free(run);
        return sheaf__no_memory("a report");
    }
    *report = (sheaf_report){ .o = o, .run = run };
    st = sheaf_report_update(report);
    if (st == NULL)
        *out = report;
    else
        sheaf_report_close(report);
    return st;
}

sheaf_status *sheaf_report_update(sheaf_report *report)
{
    SHEAF__NUMERIC_ENV;
    const sheaf_report_options *o = &report->o;
    sheaf_json_writer j = { 0 };
    sheaf_status *st = NULL;
    char *json = NULL;
    sheaf__json_begin(&j);
    sheaf__json_put(&j, "version:s written:d runs:[", SHEAF_VERSION, (int64_t)time(NULL));
    for (int i = 0; i < o->runs; i++)
        TRY(st, sheaf__report_facts(&j, &report->run[i], o->run[i],
                                    report->json == NULL ? o->events : NULL));
    sheaf__json_close(&j, ']');
    sheaf__json_end(&j);
    TRY(st, sheaf__text_take(&json, &j.text));
    sheaf__text_release(&j.text);
    if (st == NULL) {
        free(report->json);
        report->json = json;
    }
    return st;
}

const char *sheaf_report_json(const sheaf_report *report)
{
    return report->json;
}

sheaf_status *sheaf_report_page(char **html, const sheaf_report *report)
{
    return sheaf__report_page(html, report->json);
}

void sheaf_report_close(sheaf_report *report)
{
    if (report == NULL)
        return;
    for (int i = 0; i < report->o.runs; i++)
        sheaf__report_run_release(&report->run[i]);
    free(report->run);
    free(report->json);
    free(report);
}
