/* merge.c - adapters into their base: sheaf/checkpoint.h. */
#include "checkpoint/convert/convert.h"
#include "checkpoint/merge/merge.h"
#include "base/cores.h"
#include "library/take.h"
#include "sheaf/checkpoint.h"

static sheaf_status *check(const sheaf_merge_weights_options *o)
{
    const char *const what = "sheaf_merge_weights_options";
    if (o->dst == NULL || (o->base == NULL && o->nadapters == 0))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "dst, and base or adapters");
    if (o->nadapters < 0 || o->nadapters > SHEAF_MERGE_ADAPTERS)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "adapters"), "at most %d", SHEAF_MERGE_ADAPTERS),
            "%d", o->nadapters);
    if (o->adapter_only ? o->combine == NULL : o->weights != NULL && o->combine == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "combine beside %s",
                              o->adapter_only ? "adapter_only" : "weights");
    if (o->mode < SHEAF_MERGE_ROUND_ONCE || o->mode > SHEAF_MERGE_LIKE_PEFT_SAFE)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a mode");
    return NULL;
}

sheaf_status *sheaf_weights_merge(sheaf_merge_weights_report *report,
                                  const sheaf_merge_weights_options *options)
{
    static const sheaf_merge_mode modes[] = { SHEAF_MERGE_BEST, SHEAF_MERGE_AS_PEFT,
                                              SHEAF_MERGE_AS_PEFT_SAFE };
    sheaf_merge_weights_options o;
    sheaf_merge_options how = { 0 };
    sheaf_merge_report r = { 0 };
    sheaf_dtype room;
    double ones[SHEAF_MERGE_ADAPTERS];
    for (int i = 0; i < SHEAF_MERGE_ADAPTERS; i++)
        ones[i] = 1;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_merge_weights_options");
    if (st == NULL)
        st = sheaf__take_report(report, "sheaf_merge_weights_report");
    if (st == NULL)
        st = check(&o);
    if (st == NULL)
        st = sheaf__take_dtype(&how.dtype, &room, o.dtype);
    if (st == NULL && o.combine != NULL)
        st = sheaf_in(sheaf_combine_parse(&how.combine, o.combine), "combine");
    if (st != NULL)
        return st;
    how.base = o.base;
    how.adapters = o.adapters;
    how.nadapters = o.nadapters;
    how.dst = o.dst;
    how.config = o.config;
    how.weights = o.weights == NULL ? ones : o.weights;
    how.mode = modes[o.mode];
    how.to = o.to;
    how.tp = o.tp;
    how.threads = sheaf__cores(o.threads);
    how.events = o.events;
    how.stop = sheaf__control_stop(o.control);
    st = o.adapter_only ? sheaf_merge_adapters(&how) : sheaf_merge(&r, &how);
    if (st == NULL)
        sheaf__give_report(report,
                           &(sheaf_merge_weights_report){ .tensors = r.tensors,
                                                          .bytes = r.bytes,
                                                          .adapted = r.adapted,
                                                          .replaced = r.replaced,
                                                          .changed = r.changed,
                                                          .elements_changed = r.elements_changed,
                                                          .change_norm = r.change_norm,
                                                          .base_norm = r.base_norm,
                                                          .rows_checked = r.rows_checked,
                                                          .untied = r.untied },
                           sizeof *report);
    return st;
}
