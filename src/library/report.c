/* report.c - what runs left, as JSON and as a page: sheaf/report.h. */
#include "sheaf/report.h"

#include <time.h>

#include "base/base.h"
#include "base/json_write.h"
#include "base/numeric_env.h"
#include "library/structs.h"
#include "report/facts.h"
#include "report/page.h"

static sheaf_status *write_json(char **json, const sheaf_report_options *o)
{
    sheaf_json_writer j = { 0 };
    sheaf_status *st = NULL;
    if (o->run == NULL || o->runs < 1)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_report_options"), "at least one run");
    sheaf__json_begin(&j);
    sheaf__json_put_text(&j, "version", SHEAF_VERSION);
    sheaf__json_put_int(&j, "written", (int64_t)time(NULL));
    sheaf__json_open(&j, "runs", '[');
    for (int i = 0; i < o->runs; i++)
        TRY(st, sheaf__report_facts(&j, o->run[i], o->events));
    sheaf__json_close(&j, ']');
    sheaf__json_end(&j);
    TRY(st, sheaf__text_take(json, &j.text));
    sheaf__text_release(&j.text);
    return st;
}

sheaf_status *sheaf_report_json(char **json, const sheaf_report_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_report_options o;
    *json = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_report_options");
    TRY(st, write_json(json, &o));
    return st;
}

sheaf_status *sheaf_report_page(char **html, const sheaf_report_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_report_options o;
    char *json = NULL;
    *html = NULL;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_report_options");
    TRY(st, write_json(&json, &o));
    TRY(st, sheaf__report_page(html, json));
    free(json);
    return st;
}
