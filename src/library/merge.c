/* merge.c - merges adapters, or results of runs, into their base: sheaf/checkpoint.h. */
#include <math.h>

#include "base/base.h"
#include "base/thread.h"
#include "base/file.h"
#include "base/output.h"
#include "base/numeric_env.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/merge/merge.h"
#include "models/open.h"
#include "library/run_export.h"
#include "library/run_model.h"
#include "library/settings.h"
#include "library/structs.h"
#include "sheaf/checkpoint.h"

/* Temporary adapters of the merge. */
typedef struct steps {
    const char *adapters[SHEAF_MERGE_ADAPTERS];
    sheaf_output *beside; /* the folder of them */
    char *written[SHEAF_MERGE_ADAPTERS];
    char *base; /* of the run, where none is given; owned */
    char *config;
    sheaf__run_export_names names;
    sheaf_quantize quantize; /* of a run; its base is plain then */
    bool whole;              /* methods head and full: DST is written */
} steps;

static void release_steps(steps *s)
{
    sheaf__output_abandon(s->beside);
    for (int i = 0; i < SHEAF_MERGE_ADAPTERS; i++)
        free(s->written[i]);
    free(s->base);
    free(s->config);
}

static sheaf_status *another_quantize(const char *path, const sheaf__run_export_result *e,
                                      sheaf_quantize requested)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s: `quantize`", path);
    sheaf_expected(st, "%s, as it was trained on %s", sheaf__quantize_choices[e->quantize].name,
                   e->base);
    sheaf_found(st, "%s", sheaf__quantize_choices[requested].name);
    return sheaf_try_this(st, "without `quantize`, and runs that quantised their base in one way");
}

static sheaf_status *write_step(steps *s, int i, const char *path,
                                const sheaf_weights_merge_options *how)
{
    sheaf__run_export_result e = { 0 };
    char name[16];
    snprintf(name, sizeof name, "%d", i);
    sheaf_status *st = s->beside != NULL ? NULL : sheaf__output_begin(&s->beside, how->dst, false);
    TRY(st, sheaf__path_join(&s->written[i], sheaf__output_dir(s->beside), name));
    if (st == NULL)
        sheaf__run_export_named(&s->names, s->written[i], path);
    TRY(st, sheaf__run_export(&e, &(sheaf__run_export_options){ .path = path,
                                                                .base = how->base,
                                                                .config = how->config,
                                                                .dst = s->written[i],
                                                                .events = how->events }));
    s->adapters[i] = s->written[i];
    if (st == NULL && how->quantize != SHEAF_QUANTIZE_NONE && how->quantize != e.quantize)
        st = another_quantize(path, &e, how->quantize);
    if (st == NULL && i > 0 && !how->plain_base && e.quantize != s->quantize)
        st = another_quantize(path, &e, s->quantize);
    if (st == NULL && e.quantize != SHEAF_QUANTIZE_NONE)
        s->quantize = e.quantize;
    if (st == NULL && s->base == NULL) {
        s->base = e.base;
        s->config = e.config;
        e.base = e.config = NULL;
    }
    sheaf__run_export_result_release(&e);
    return st;
}

/* Else in Hugging Face's form. */
static bool to_sat(const sheaf_weights_merge_options *o)
{
    return o->to != NULL && strcmp(o->to, "sat") == 0;
}

/* The base with the tensors of a step, like the run's result. */
static sheaf_status *write_whole(sheaf_weights_merge_report *r, const char *path,
                                 const sheaf_weights_merge_options *how)
{
    sheaf__run_export_result e = { 0 };
    if (how->nadapters > 1 || how->combine != NULL || how->mode != SHEAF_MERGE_ROUND_ONCE ||
        how->dtype != SHEAF_BOOL || how->requantize || how->quantize != SHEAF_QUANTIZE_NONE ||
        to_sat(how)) {
        sheaf_status *st =
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                           "an adapter, for more than one, for `combine`, `as-peft`, `dtype`, "
                           "`quantize`, `requantize` and `to sat`");
        return sheaf_try_this(sheaf_found(st, "a checkpoint that holds whole tensors"),
                              "merge it alone; sheaf convert changes the dtype and writes SAT's "
                              "form");
    }
    sheaf_status *st = sheaf__run_export(&e, &(sheaf__run_export_options){ .path = path,
                                                                           .base = how->base,
                                                                           .config = how->config,
                                                                           .dst = how->dst,
                                                                           .events = how->events });
    sheaf__run_export_result_release(&e);
    *r = (sheaf_weights_merge_report){ 0 };
    return st != NULL ? st : sheaf__run_export_count(&r->tensors, &r->bytes, how->dst);
}

/* Is the base stored in 4 or 8 bits already? One that sheaf does not run is not. */
static bool has_codes(const char *base, const char *config, sheaf_quantize as)
{
    sheaf__opened opened = { 0 };
    sheaf_status *st = sheaf__open_model(
        &opened,
        &(sheaf__open_options){
            .model = base, .config = config, .slices = 1, .config_only = true, .as_stored = true });
    TRY(st, sheaf__opened_quantise(&opened, as, NULL, NULL));
    const bool is = st == NULL && opened.has_codes;
    sheaf_status_free(st);
    sheaf__opened_close(&opened);
    return is;
}

/* OUT/adapter as BASE: on the run's base. */
static sheaf_status *take_result(steps *s, sheaf_weights_merge_options *how)
{
    sheaf__run_reading r = { 0 };
    bool is = false;
    sheaf_status *st = sheaf__run_read_adapter(&r, &is, how->base);
    if (st == NULL && is) {
        s->adapters[0] = how->base;
        how->nadapters = 1;
        how->base = NULL;
        st = sheaf__run_copy(&s->base, r.options.model);
        TRY(st, sheaf__run_copy(&s->config, how->config != NULL ? how->config : r.options.config));
    }
    sheaf__run_reading_release(&r);
    return st;
}

/* The quantisation in which the run of OUT/adapter had its base, if that is plain here too. */
static sheaf_status *take_quantize(steps *s, const char *path,
                                   const sheaf_weights_merge_options *how)
{
    sheaf__run_reading r = { 0 };
    bool is = false;
    const char *base = how->base != NULL ? how->base : s->base;
    sheaf_status *st = NULL;
    if (base != NULL && how->quantize == SHEAF_QUANTIZE_NONE && !how->plain_base)
        st = sheaf__run_read_adapter(&r, &is, path);
    const sheaf_quantize as = is ? r.options.quantize : SHEAF_QUANTIZE_NONE;
    if (st == NULL && as != SHEAF_QUANTIZE_NONE &&
        !has_codes(base, how->config != NULL ? how->config : s->config, as))
        s->quantize = as;
    sheaf__run_reading_release(&r);
    return st;
}

/* Exports runs and checkpoints among the adapters to folders of adapters; `merge CKPT DST` uses the
 * run's own base. */
static sheaf_status *take_steps(steps *s, sheaf_weights_merge_options *how,
                                sheaf_weights_merge_report *r)
{
    sheaf_status *st = NULL;
    bool is = false, lora = false;
    if (how->nadapters == 0 && how->base != NULL) {
        st = sheaf__run_export_is(&is, &lora, how->base);
        if (st == NULL && is) {
            s->adapters[0] = how->base;
            how->nadapters = 1;
            how->base = NULL;
        } else if (st == NULL) {
            st = take_result(s, how);
        }
        if (st != NULL || how->base != NULL)
            return st;
        how->adapters = s->adapters;
    }
    for (int i = 0; st == NULL && i < how->nadapters && !s->whole; i++) {
        const char *path = s->adapters[i] = how->adapters[i];
        st = take_quantize(s, path, how);
        if (st != NULL)
            break;
        st = sheaf__run_export_is(&is, &lora, path);
        if (st == NULL && is && lora)
            st = write_step(s, i, path, how);
        else if (st == NULL && is) {
            s->whole = true;
            st = write_whole(r, path, how);
        }
    }
    how->adapters = s->adapters;
    if (how->base == NULL && s->base != NULL && how->combine == NULL) {
        how->base = s->base;
        how->config = s->config;
    }
    if (how->quantize == SHEAF_QUANTIZE_NONE && !how->plain_base)
        how->quantize = s->quantize; /* as in training */
    return st;
}

static sheaf_status *check_own(const sheaf_weights_merge_options *o)
{
    if (o->mode == SHEAF_MERGE_ROUND_ONCE && o->combine == NULL && !o->requantize &&
        (o->to == NULL || to_sat(o)))
        return NULL;
    return sheaf_try_this(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", o->base),
                       "an adapter beside it, for a mode, combine or hf in to: LoRA of its own is "
                       "merged in its own form"),
        "sheaf convert %s %s --to hf, which merges it too", o->base, o->dst);
}

/* LoRA inside the checkpoint itself. */
static sheaf_status *merge_own(sheaf_weights_merge_report *out,
                               const sheaf_weights_merge_options *o)
{
    const sheaf_weights_convert_options how = { .src = o->base,
                                                .dst = o->dst,
                                                .to = "sat",
                                                .own_lora = true,
                                                .tp = o->tp,
                                                .config = o->config,
                                                .dtype = o->dtype,
                                                .threads = o->threads,
                                                .events = o->events,
                                                .control = o->control };
    sheaf_weights_convert_report r;
    sheaf_status *st = sheaf_merge_check_base(o);
    TRY(st, sheaf_convert(&r, &how));
    if (st == NULL) {
        out->tensors = r.tensors;
        out->bytes = r.bytes;
        out->adapted = r.merged;
        out->parts = r.parts;
    }
    return st;
}

/* Do the given adapters belong to the base? Those of runs were checked when they were exported. */
static sheaf_status *check_base(const sheaf_weights_merge_options *how, const steps *taken)
{
    const char *given[SHEAF_MERGE_ADAPTERS];
    int n = 0;
    for (int i = 0; i < how->nadapters; i++)
        if (taken->written[i] == NULL)
            given[n++] = how->adapters[i];
    if (how->plain_base) {
        sheaf_note(
            how->events,
            "%s: the base is used as it is; the adapter learned on one that quantising rounded",
            how->base);
        return NULL;
    }
    return sheaf__adapters_base(how->base, how->config, how->quantize, given, n, how->events);
}

static sheaf_status *merge(sheaf_weights_merge_report *out,
                           const sheaf_weights_merge_options *requested)
{
    sheaf_weights_merge_options how = *requested;
    steps taken = { .names = { .to = requested->events } };
    *out = (sheaf_weights_merge_report){ 0 };
    sheaf_status *st = take_steps(&taken, &how, out);
    if (taken.names.count > 0)
        how.events = &taken.names.events;
    if (st == NULL && taken.whole)
        out->whole = true;
    else if (st == NULL && how.nadapters == 0) {
        st = check_own(&how);
        TRY(st, merge_own(out, &how));
    } else if (st == NULL && how.adapter_only)
        st = sheaf_merge_adapters(&how);
    else if (st == NULL) {
        st = sheaf_merge_check_base(&how);
        TRY(st, check_base(&how, &taken));
        TRY(st, sheaf_merge(out, &how));
    }
    sheaf__run_export_status(&taken.names, st);
    release_steps(&taken);
    return st;
}

static sheaf_status *check(const sheaf_weights_merge_options *o)
{
    const char *const what = "sheaf_weights_merge_options";
    if (o->dst == NULL || (o->base == NULL && o->nadapters == 0))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "dst, and base or adapters");
    if (o->nadapters < 0 || o->nadapters > SHEAF_MERGE_ADAPTERS)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "adapters"), "at most %d", SHEAF_MERGE_ADAPTERS),
            "%d", o->nadapters);
    if (o->adapter_only ? o->combine == NULL : o->weights != NULL && o->combine == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                              "`combine linear` or `combine cat` beside %s",
                              o->adapter_only ? "`adapter-only`" : "`weights`");
    if (o->mode < SHEAF_MERGE_ROUND_ONCE || o->mode > SHEAF_MERGE_LIKE_PEFT_SAFE)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what), "a mode");
    if (o->adapter_only && (o->base != NULL || o->to != NULL))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, what),
                              "neither base nor `to` beside adapter_only: it has PEFT's form");
    if (o->to != NULL && strcmp(o->to, "hf") != 0 && strcmp(o->to, "sat") != 0)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_weights_merge_options: to"), "hf or sat"),
            "%s", o->to);
    if (o->plain_base && (o->quantize != SHEAF_QUANTIZE_NONE || o->requantize || o->adapter_only))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`plain-base`"),
                              "a base, and neither `quantize` nor `requantize`");
    if (o->requantize && (o->adapter_only || to_sat(o)))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: requantize", what),
                              "a base, and `to hf`: other forms have no weights in 4 or 8 bits");
    if (o->tp != 0 && !to_sat(o))
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: tp", what),
                                          "`to sat` beside it: other forms have no parts"),
                           "%d", o->tp);
    for (int i = 0; i < o->nadapters; i++)
        if (o->adapters == NULL || o->adapters[i] == NULL)
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: adapters", what),
                                  "nadapters paths, %d", o->nadapters);
    for (int i = 0; i < o->nadapters && o->weights != NULL; i++)
        if (!isfinite(o->weights[i]))
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s: weights", what),
                                              "nadapters finite numbers"),
                               "%g", o->weights[i]);
    sheaf_status *st = sheaf__check_count(what, "tp", o->tp, SHEAF__MOST_PARTS);
    TRY(st, sheaf__check_count(what, "quantize", o->quantize, SHEAF_QUANTIZE_INT8));
    return st == NULL ? sheaf__check_count(what, "threads", o->threads, SHEAF__MOST_THREADS) : st;
}

sheaf_status *sheaf_weights_merge(sheaf_weights_merge_report *report,
                                  const sheaf_weights_merge_options *options)
{
    SHEAF__NUMERIC_ENV;
    static const char what[] = "sheaf_weights_merge_options";
    sheaf_weights_merge_options o;
    sheaf_weights_merge_report r;
    sheaf_combine combine;
    double ones[SHEAF_MERGE_ADAPTERS];
    for (int i = 0; i < SHEAF_MERGE_ADAPTERS; i++)
        ones[i] = 1;
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, what);
    TRY(st, sheaf__struct_check(report, "sheaf_weights_merge_report"));
    TRY(st, check(&o));
    TRY(st, sheaf__check_dtype(what, o.dtype));
    if (st == NULL && o.combine != NULL)
        st = sheaf_in(sheaf_combine_parse(&combine, o.combine), "combine");
    o.weights = o.weights == NULL ? ones : o.weights;
    o.threads = sheaf__cores(o.threads);
    TRY(st, merge(&r, &o));
    if (st == NULL)
        sheaf__struct_fill(report, &r, sizeof r);
    return st;
}
