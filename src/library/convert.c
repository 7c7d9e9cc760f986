/* convert.c - from any checkpoint, or run, to any other form: sheaf/checkpoint.h. */
#include "base/base.h"
#include "base/thread.h"
#include "base/file.h"
#include "base/output.h"
#include "base/numeric_env.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/merge/merge.h"
#include "dialects/common/dialects.h"
#include "models/open.h"
#include "library/run_export.h"
#include "library/structs.h"
#include "schema/family.h"
#include "sheaf/checkpoint.h"
#include "sheaf/cut.h"

/* ---- a checkpoint of training ---- */

static sheaf_status *merge_step(sheaf_weights_convert_report *r,
                                const sheaf_weights_convert_options *how,
                                const sheaf__run_export_result *e, const char *adapter)
{
    sheaf_weights_merge_report merged;
    sheaf_status *st =
        sheaf_merge(&merged, &(sheaf_weights_merge_options){ .base = e->base,
                                                             .adapters = &adapter,
                                                             .nadapters = 1,
                                                             .dst = how->dst,
                                                             .config = e->config,
                                                             .quantize = e->quantize,
                                                             .dtype = how->dtype,
                                                             .threads = how->threads,
                                                             .events = how->events,
                                                             .control = how->control });
    if (st == NULL) {
        r->tensors = merged.tensors;
        r->bytes = merged.bytes;
        r->merged = merged.adapted;
        sheaf_note(how->events, "the adapter is merged into its base (`to peft` writes it alone)");
    }
    return st;
}

/* The model with its adapter merged as a temporary folder, which is then converted. */
static sheaf_status *merge_first(sheaf_weights_convert_report *r,
                                 const sheaf_weights_convert_options *how,
                                 const sheaf__run_export_result *e, const char *adapter,
                                 sheaf__run_export_names *names)
{
    sheaf_weights_convert_options into = *how, next = *how;
    char *merged = NULL;
    if (asprintf(&merged, "%s-merged", adapter) < 0)
        return sheaf__no_memory(how->dst);
    sheaf__run_export_named(names, merged, how->src);
    into.dst = next.src = merged;
    into.dtype = SHEAF_BOOL;
    into.events = next.events = &names->events;
    next.config = NULL;
    sheaf_status *st = merge_step(r, &into, e, adapter);
    const int64_t layers = r->merged;
    TRY(st, sheaf_convert(r, &next));
    r->merged = layers;
    sheaf__run_export_status(names, st);
    names->count--;
    free(merged);
    return st;
}

/* Converts a checkpoint of training in two steps: through a temporary adapter or model. */
static sheaf_status *by_way_of(sheaf_weights_convert_report *r,
                               const sheaf_weights_convert_options *how, const sheaf_dialect *to,
                               sheaf__run_export_options *from)
{
    sheaf_output *beside = NULL;
    char *between = NULL;
    sheaf__run_export_result e = { 0 };
    sheaf__run_export_names names = { .to = how->events };
    sheaf_status *st = sheaf__output_begin(&beside, how->dst, false);
    TRY(st, sheaf__path_join(&between, sheaf__output_dir(beside), "exported"));
    if (st == NULL)
        sheaf__run_export_named(&names, between, how->src);
    from->dst = between;
    TRY(st, sheaf__run_export(&e, from));
    if (st == NULL && to->own_lora && sheaf__family_at((int)e.family)->classes == NULL) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`to sat`"),
                            "CogVLM or CogAgent, for SAT's form");
        sheaf_try_this(
            sheaf_found(st, "a run on a model of family %s", sheaf_family_name(e.family)),
            "`to hf`, the whole model%s", e.adapter ? "; `to peft`, the adapter" : "");
    }
    sheaf_weights_convert_options next = *how;
    next.events = &names.events;
    const bool one_file = (to->writes & SHEAF_WRITES_BLOCKS) != 0, alone = to->adapter;
    next.src = e.adapter && !alone ? e.base : between;
    next.adapter = e.adapter && !alone ? between : NULL;
    next.base = alone ? e.base : NULL;
    next.config = e.adapter ? e.config : NULL;
    next.step = how->step > 0 ? how->step : e.step;
    TRY(st, !e.adapter || to->own_lora || alone ? sheaf_convert(r, &next)
            : one_file                          ? merge_first(r, how, &e, between, &names)
                                                : merge_step(r, &next, &e, between));
    sheaf__run_export_status(&names, st);
    r->step = next.step;
    sheaf__output_abandon(beside);
    sheaf__run_export_result_release(&e);
    free(between);
    return st;
}

static sheaf_status *convert_run(sheaf_weights_convert_report *r,
                                 const sheaf_weights_convert_options *how, bool adapter)
{
    sheaf__run_export_options from = { .path = how->src,
                                       .base = how->base,
                                       .config = how->config,
                                       .dst = how->dst,
                                       .events = how->events };
    const sheaf_dialect *to = sheaf__dialect_named(how->to);
    const bool peft = to->adapter, same = how->dtype == SHEAF_BOOL && how->shard_bytes == 0,
               one_file = (to->writes & SHEAF_WRITES_BLOCKS) != 0;
    if ((how->quantize != SHEAF_QUANTIZE_NONE && !one_file) || how->dequantize)
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`quantize` or `dequantize`"),
                                             "a model as SRC, not a run"),
                              "sheaf convert %s MODEL --to hf, then sheaf convert MODEL DST",
                              how->src);
    if (how->adapter != NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`adapter`"),
                              "none: SRC is a checkpoint of training, which holds its own result");
    if (peft && !adapter) {
        sheaf_status *st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`to %s`", to->name), "a run of method lora"),
            "one that trained whole tensors");
        return sheaf_try_this(st, "`to %s`, the whole model", one_file ? "gguf" : "hf");
    }
    if (peft && !one_file && how->dtype != SHEAF_BOOL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`dtype`"),
                              "none: an adapter that was trained is float32");
    *r = (sheaf_weights_convert_report){ .from = "sheaf" };
    if (one_file || (!peft && (adapter || !same || !to->plain))) {
        sheaf_status *st = by_way_of(r, how, to, &from);
        r->from = "sheaf";
        return st;
    }
    sheaf__run_export_result e;
    sheaf_status *st = sheaf__run_export(&e, &from);
    r->step = e.step;
    sheaf__run_export_result_release(&e);
    return st != NULL ? st : sheaf__run_export_count(&r->tensors, &r->bytes, how->dst);
}

/* *is: SRC is a run or a checkpoint of training, and the target is another program's form. */
static sheaf_status *is_run(bool *is, bool *adapter, const sheaf_weights_convert_options *how)
{
    const sheaf_dialect *to = sheaf__dialect_named(how->to);
    const bool others = to != NULL && to->writes != 0;
    *is = *adapter = false;
    return how->also != NULL || how->from != NULL || how->optimizer || !others
               ? NULL
               : sheaf__run_export_is(is, adapter, how->src);
}

static sheaf_status *convert(sheaf_weights_convert_report *report,
                             const sheaf_weights_convert_options *how)
{
    bool run = false, lora = false;
    *report = (sheaf_weights_convert_report){ .step = -1 };
    sheaf_status *st = is_run(&run, &lora, how);
    if (st == NULL && how->base != NULL && !run && strcmp(how->to, "gguf-lora") != 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`base`"),
                            "a run or a checkpoint of training as SRC, or `to gguf-lora`");
    if (st == NULL && !run && how->adapter != NULL)
        st = sheaf__adapters_base(how->src, how->config, SHEAF_QUANTIZE_NONE, &how->adapter, 1,
                                  how->events);
    return TRY(st, run ? convert_run(report, how, lora) : sheaf_convert(report, how));
}

static sheaf_status *check(const sheaf_weights_convert_options *o)
{
    static const char what[] = "sheaf_weights_convert_options";
    sheaf_status *st = NULL;
    if (o->src == NULL || o->dst == NULL || o->to == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "src, dst and to");
    TRY(st, sheaf__check_dtype(what, o->dtype));
    TRY(st, sheaf__check_count(what, "tp", o->tp, SHEAF__MOST_PARTS));
    TRY(st, sheaf__check_count(what, "slices", o->slices, SHEAF_MAX_SLICES));
    TRY(st, sheaf__check_count(what, "step", o->step, INT64_MAX));
    TRY(st, sheaf__check_count(what, "shard_bytes", o->shard_bytes, INT64_MAX));
    TRY(st, sheaf__check_count(what, "quantize", o->quantize, SHEAF_QUANTIZE_Q6_K));
    const bool groups = o->quantize >= SHEAF_QUANTIZE_GPTQ_4 && o->quantize <= SHEAF_QUANTIZE_AWQ_4;
    if (st == NULL && o->group_size != 0 &&
        (!groups || (o->group_size != 32 && o->group_size != 64 && o->group_size != 128)))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`group-size`"),
                            "32, 64 or 128, with `quantize gptq`, gptq-8 or awq");
    if (st == NULL && o->quantize != SHEAF_QUANTIZE_NONE && o->dequantize)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`quantize` and `dequantize`"),
                            "one of the two");
    return st == NULL ? sheaf__check_count(what, "threads", o->threads, SHEAF__MOST_THREADS) : st;
}

sheaf_status *sheaf_weights_convert(sheaf_weights_convert_report *report,
                                    const sheaf_weights_convert_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_weights_convert_options o;
    sheaf_weights_convert_report r;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_weights_convert_options");
    TRY(st, sheaf__struct_check(report, "sheaf_weights_convert_report"));
    TRY(st, check(&o));
    o.threads = sheaf__cores(o.threads);
    TRY(st, convert(&r, &o));
    if (st == NULL)
        sheaf__struct_fill(report, &r, sizeof r);
    return st;
}
