/* convert.c - from any checkpoint to any other: sheaf/checkpoint.h. */
#include "checkpoint/convert/convert.h"
#include "base/cores.h"
#include "library/take.h"
#include "sheaf/checkpoint.h"

sheaf_status *sheaf_weights_convert(sheaf_convert_weights_report *report,
                                    const sheaf_convert_weights_options *options)
{
    sheaf_convert_weights_options o;
    sheaf_convert_options how = { 0 };
    sheaf_convert_report r = { 0 };
    sheaf_dtype room;
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_convert_weights_options");
    if (st == NULL)
        st = sheaf__take_report(report, "sheaf_convert_weights_report");
    if (st == NULL)
        st = sheaf__take_dtype(&how.dtype, &room, o.dtype);
    if (st == NULL && (o.src == NULL || o.dst == NULL || o.to == NULL))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_convert_weights_options"),
                            "src, dst and to");
    if (st != NULL)
        return st;
    how.src = o.src;
    how.also = o.also;
    how.dst = o.dst;
    how.to = o.to;
    how.adapter = o.adapter;
    how.from = o.from;
    how.config = o.config;
    how.model_class = o.model_class;
    how.drop_unread = o.drop_unread;
    how.tp = o.tp;
    how.slices = o.slices;
    how.step = o.step > 0 ? o.step : -1;
    how.shard_bytes = o.shard_bytes;
    how.optimizer = o.optimizer;
    how.threads = sheaf__cores(o.threads);
    how.events = o.events;
    how.stop = sheaf__control_stop(o.control);
    st = sheaf_convert(&r, &how);
    if (st == NULL)
        sheaf__give_report(report,
                           &(sheaf_convert_weights_report){ .tensors = r.tensors,
                                                            .bytes = r.bytes,
                                                            .moments = r.moments,
                                                            .merged = r.merged,
                                                            .adapted = r.adapted,
                                                            .step = r.step },
                           sizeof *report);
    return st;
}
