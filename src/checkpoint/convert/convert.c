/* convert.c - see convert.h: reads, decides, and hands the tensors to the writer of the target
 * (write.c). */
#include "base/base.h"
#include "checkpoint/convert/convert.h"

#include "base/file.h"
#include "base/output.h"
#include "catalog/tiled.h"
#include "checkpoint/store/probe.h"
#include "dialects/common/class.h"
#include "dialects/common/dialects.h"
#include "dialects/common/other_form.h"
#include "dialects/common/whole.h"
#include "dialects/peft/peft.h"
#include "dialects/sat/lora.h"
#include "schema/family.h"

/* ---- reading ---- */

static void report_findings(const sheaf__converter *k)
{
    for (int64_t i = 0; i < k->catalog->nfindings; i++) {
        const sheaf_finding *f = &k->catalog->finding[i];
        if (f->severity != SHEAF_DEFECT)
            (f->severity == SHEAF_WARNING ? sheaf_warn : sheaf_note)(
                k->o->events, "%s: %s%s%s%s%s", f->code, f->path, *f->tensor != '\0' ? ": " : "",
                f->tensor, *f->found != '\0' ? ": " : "", f->found);
    }
}

static sheaf_status *read_catalog(sheaf__converter *k, bool keeps_codes)
{
    const sheaf_weights_convert_options *o = k->o;
    const sheaf_dialect_hints hints = { .from = o->from,
                                        .config = o->config,
                                        .model = o->model_class,
                                        .drop_unread = o->drop_unread,
                                        .also = o->also };
    sheaf_status *st = sheaf__any_read(&k->catalog, o->src, &hints);
    TRY(st, sheaf__convert_settle_codes(k, &hints, keeps_codes));
    if (st != NULL)
        return st;
    const sheaf_catalog *c = k->catalog;
    if (o->also != NULL && *o->also != NULL && !c->dialect->folders) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", *o->also),
                            "one SOURCE: parts of a %s checkpoint lie in one folder",
                            c->dialect->name);
        return st;
    }
    report_findings(k);
    k->report->from = c->dialect->name;
    k->dialect = c->dialect;
    k->file_names = c->file_names;
    k->report->parts = o->tp > 0 ? o->tp : o->own_lora && c->tp > 0 ? c->tp : 1;
    k->step = o->step > 0 ? o->step : c->step;
    k->root = strdup(c->root);
    k->config = c->config == NULL ? NULL : strdup(c->config);
    k->model = c->model == NULL ? NULL : strdup(c->model);
    if (k->root == NULL || (c->config != NULL && k->config == NULL) ||
        (c->model != NULL && k->model == NULL))
        return sheaf__no_memory(k->o->src);
    return NULL;
}

static int64_t count_kind(const sheaf_catalog *c, sheaf_kind kind)
{
    int64_t n = 0;
    for (int64_t i = 0; i < c->count; i++)
        n += c->tensor[i].kind == kind;
    return n;
}

/* Does the checkpoint have LoRA that SAT's own merge must add? */
static sheaf_status *check_own_lora(const sheaf__converter *k)
{
    const int64_t factors = count_kind(k->catalog, SHEAF_LORA);
    if (!k->o->own_lora || (factors > 0 && k->dialect->own_lora))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", k->o->src);
    sheaf_expected(st, "an SAT checkpoint with LoRA that is not merged, or an ADAPTER beside it");
    sheaf_found(st, factors == 0 ? "no LoRA in it" : "LoRA in a checkpoint of %s",
                k->dialect->name);
    const sheaf_finding *unmerged = sheaf__catalog_finding(k->catalog, "unmerged");
    if (unmerged != NULL)
        return sheaf_try_this(st, "%s", unmerged->cure);
    return sheaf_try_this(st, "name the adapter's folder between the two");
}

/* The model that the config describes, if sheaf knows it. */
static sheaf_status *read_model(sheaf__converter *k, int slices)
{
    if (k->config == NULL || k->dialect->adapter)
        return NULL;
    sheaf_status *st = sheaf__catalog_refuse_class(k->catalog);
    if (st != NULL)
        return st;
    st = sheaf_config_parse(&k->parsed, k->config, strlen(k->config));
    if (st == NULL) {
        k->has_config = true;
        st = sheaf_schema_new(&k->schema, &k->parsed, slices);
    }
    const bool reported = sheaf__catalog_finding(k->catalog, "unsupported") != NULL && st != NULL &&
                          sheaf_status_code(st) == SHEAF_E_FORMAT;
    if (!reported && (st == NULL || sheaf_status_code(st) != SHEAF_E_UNSUPPORTED))
        return st;
    sheaf_status_free(st); /* the reader reported it */
    return NULL;
}

/* The model and the factors of the adapter. `source` is closed after a failure. */
static sheaf_status *adapt(sheaf__converter *k, sheaf_source **source)
{
    if (k->schema == NULL || sheaf__family_for(&k->parsed)->classes == NULL) {
        (*source)->close(*source);
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`adapter`"),
                                             "a model of CogVLM or CogAgent, for SAT's form"),
                              "sheaf merge %s %s DST", k->o->src, k->o->adapter);
    }
    sheaf_status *st = sheaf__adapted_source(source, &k->lora_rank, *source, k->schema,
                                             k->o->adapter, k->o->events);
    for (int64_t i = 0; st == NULL && i < (*source)->count(*source); i++)
        k->report->adapted += sheaf__ends_with((*source)->entry(*source, i)->name, ".matrix_A.0");
    return st;
}

static void report_kept(const sheaf__converter *k)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < k->source->count(k->source); i++) {
        const sheaf_dtype d = k->source->entry(k->source, i)->dtype;
        kept += d != k->o->dtype && sheaf__dtype_can(d, k->o->dtype) &&
                !sheaf__is_moment(k->source->entry(k->source, i)->name);
    }
    if (kept > 0)
        sheaf_warn(k->o->events,
                   "%s: quantized weights keep their types, and so do %" PRId64
                   " tensors that they are read with (scales, zero points)",
                   k->o->src, kept);
}

/* The requested tensors: there are some, and numbers. Codes of 8 bits are in blocks that belong
 * to the slices of their run. */
static sheaf_status *check_moments(const sheaf__converter *k)
{
    const sheaf_catalog *c = k->catalog;
    if (k->o->optimizer && k->nmoments == 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", k->o->src),
                                          "moments of an optimizer, as `optimizer` asks for"),
                           "none");
    for (int64_t i = 0; k->o->optimizer && i < c->count; i++) {
        if (c->tensor[i].kind != SHEAF_MOMENT || c->tensor[i].entry.dtype != SHEAF_U8)
            continue;
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: '%s'", k->o->src, c->tensor[i].entry.name);
        sheaf_expected(st, "moments of an optimizer as numbers");
        sheaf_found(st, "codes of 8 bits, of a run with `optimizer adamw8bit`");
        return sheaf_try_this(st, "convert without `optimizer`; the run itself goes on by: sheaf "
                                  "train --resume");
    }
    return NULL;
}

/* Weights, buffers and the requested moments; SAT's unmerged LoRA is merged as SAT's own merge
 * does. */
static sheaf_status *open_source(sheaf__converter *k)
{
    sheaf_source *inner = NULL;
    sheaf_catalog *c = k->catalog;
    const int64_t factors = count_kind(c, SHEAF_LORA), weights = count_kind(c, SHEAF_WEIGHT);
    const bool sat = k->dialect->own_lora;
    k->nmoments = k->o->optimizer ? count_kind(c, SHEAF_MOMENT) : 0;
    k->nweights = weights;
    sheaf_status *cannot = check_moments(k);
    if (cannot != NULL)
        return cannot;
    if (weights == 0 && k->nmoments == 0) {
        sheaf_status *st = sheaf__catalog_refusal(c);
        if (st != NULL)
            return st;
        st = sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "%s", k->o->src), "the weights of a model");
        if (factors == 0)
            return sheaf_found(st, "none");
        return sheaf_try_this(sheaf_found(st, "LoRA factors only"),
                              "sheaf merge BASE %s MERGED, then convert MERGED; `to gguf-lora` "
                              "writes the adapter alone for llama.cpp",
                              k->o->src);
    }
    if (factors > 0 && k->o->adapter != NULL)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", k->o->src),
                                       "a base without LoRA of its own, for `adapter`"),
                        "%" PRId64 " factors", factors),
            "the base that it was trained from; or merge first: sheaf convert %s MERGED --to sat",
            k->o->src);
    if (factors > 0 && !sat)
        sheaf_warn(k->o->events,
                   "%s: %" PRId64 " LoRA factors are left out (`to peft` writes them)", k->o->src,
                   factors);
    if (factors > 0 && sat) {
        sheaf_warn(k->o->events, "%s: its LoRA is merged into the weights, as SAT's own merge does",
                   k->o->src);
        for (int64_t i = 0; i < c->count; i++) /* a fused weight has several parts */
            k->report->merged += c->tensor[i].kind == SHEAF_LORA &&
                                 sheaf__ends_with(c->tensor[i].entry.name, ".matrix_A.0");
    }
    k->catalog = NULL; /* owned by the source, also after a failure */
    if (factors == 0 || !sat)
        sheaf__catalog_keep(c, (weights > 0 ? 1u << SHEAF_WEIGHT | 1u << SHEAF_BUFFER : 0) |
                                   (k->nmoments > 0 ? 1u << SHEAF_MOMENT : 0));
    sheaf_status *st =
        factors > 0 && sat ? sheaf_sat_merged(&inner, c) : sheaf__catalog_source(&inner, c, true);
    TRY(st, sheaf__tiled(&inner, c));
    TRY(st, k->o->adapter != NULL ? adapt(k, &inner) : NULL);
    TRY(st, sheaf__convert_cast(k, inner));
    if (st == NULL && k->o->dtype != SHEAF_BOOL && !k->as_stored)
        report_kept(k);
    return st;
}

/* ---- the whole ---- */

typedef struct target {
    const sheaf_dialect *form;
    sheaf_status *(*write)(sheaf__converter *k);
} target;

static const target targets[] = {
    { &sheaf__dialect_hf, sheaf__convert_to_hf },
    { &sheaf__dialect_sat, sheaf__convert_to_sat },
    { &sheaf__dialect_peft, sheaf__convert_to_peft },
    { &sheaf__dialect_own, sheaf__convert_to_sheaf },
    { &sheaf__dialect_gguf, sheaf__convert_to_gguf },
    { &sheaf__dialect_gguf_lora, sheaf__convert_to_gguf_lora },
    { &sheaf__dialect_gguf_mmproj, sheaf__convert_to_gguf_mmproj },
};
enum { TARGETS = sizeof targets / sizeof *targets };

static bool writes(const target *to, unsigned what)
{
    return (to->form->writes & what) != 0;
}

/* SAT's form of a model becomes the hub's on its way from SAT's files to Hugging Face's, and the
 * hub's SAT's on its way to those. */
static sheaf_status *settle_form(sheaf__converter *k, const target *to)
{
    const sheaf__family *is = k->schema == NULL ? NULL : sheaf__family_for(&k->parsed);
    if (is == NULL || is->other == NULL || k->nweights == 0)
        return NULL;
    const bool sat = is->classes != NULL, from_sat = sat && k->dialect->own_lora,
               to_hf = strcmp(to->form->name, "hf") == 0;
    return (from_sat && to_hf) || (!sat && to->form->own_lora)
               ? sheaf__translate(&k->source, &k->schema, &k->config, &k->parsed)
               : NULL;
}

static sheaf_status *find_target(const target **out, const sheaf_weights_convert_options *o)
{
    for (int i = 0; i < TARGETS; i++)
        if (o->to != NULL && strcmp(o->to, targets[i].form->name) == 0)
            *out = &targets[i];
    if (*out == NULL) {
        const char *names[TARGETS];
        for (int i = 0; i < TARGETS; i++)
            names[i] = targets[i].form->name;
        const char *near = o->to == NULL ? NULL : sheaf__nearest(o->to, names, TARGETS);
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`to`"),
                                          "hf, sat, peft, sheaf, gguf, gguf-lora or gguf-mmproj");
        sheaf_found(st, "%s", o->to == NULL ? "nothing" : o->to);
        return near != NULL ? sheaf_try_this(st, "%s", near) : st;
    }
    if (o->tp > 1 && !writes(*out, SHEAF_WRITES_RANKS))
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`tp %d`", o->tp),
                           "a target that is divided over ranks: `to sat`"),
            "`to sheaf` `slices %d`, of which any number of ranks can load theirs", o->tp);
    if (o->adapter != NULL && !(*out)->form->own_lora)
        return sheaf_try_this(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`adapter`"),
                                             "`to sat`, whose files hold a model and its LoRA"),
                              "sheaf merge %s %s DST", o->src, o->adapter);
    if (o->slices > 0 && !writes(*out, SHEAF_WRITES_SLICES))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`slices`"), "`to sheaf`");
    if (o->quantize >= SHEAF_QUANTIZE_Q8_0 && !writes(*out, SHEAF_WRITES_BLOCKS))
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`dtype q8_0`, q6_k, q5_k_m, q4_k_m"),
                           "`to gguf`, whose files have these types"),
            "`quantize int8` or nf4 for `to hf`");
    if (o->quantize != SHEAF_QUANTIZE_NONE && o->quantize < SHEAF_QUANTIZE_Q8_0 &&
        !writes(*out, SHEAF_WRITES_QUANTISED))
        return sheaf_try_this(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`quantize`"),
                           "`to hf`, whose files can hold weights in 4 or 8 bits"),
            "`to hf`; sheaf trains on its output");
    if (o->lora_alpha > 0 && !writes(*out, SHEAF_WRITES_ADAPTER))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`lora-alpha`"), "`to peft`");
    if (o->modelfile && !(writes(*out, SHEAF_WRITES_BLOCKS) && writes(*out, SHEAF_WRITES_MODEL)))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`modelfile`"), "`to gguf`");
    if (o->optimizer && !writes(*out, SHEAF_WRITES_MOMENTS))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`optimizer`"), "`to hf` or `to sheaf`");
    return NULL;
}

static bool is_adapter(const char *dir)
{
    return sheaf__path_has(dir, "adapter_config.json", SHEAF_PATH_FILE);
}

/* An adapter is not a part of its base: the catalog would ignore it. */
static sheaf_status *check_also(const sheaf_weights_convert_options *o)
{
    for (const char *const *also = o->also; also != NULL && *also != NULL; also++)
        if (is_adapter(*also) && !is_adapter(o->src)) {
            sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", *also);
            sheaf_found(sheaf_expected(st, "parts of the checkpoint %s", o->src), "a PEFT adapter");
            return sheaf_try_this(
                st,
                "sheaf merge %s %s DST; or `adapter %s` with `to sat`, whose files hold a model and its LoRA",
                o->src, *also, *also);
        }
    return NULL;
}

static sheaf_status *check_dst(const sheaf_weights_convert_options *o)
{
    sheaf_status *st = sheaf__output_outside(o->dst, o->src);
    for (const char *const *also = o->also; st == NULL && also != NULL && *also != NULL; also++)
        st = sheaf__output_outside(o->dst, *also);
    TRY(st, sheaf__output_check(o->dst)); /* before hours of work */
    TRY(st, sheaf__output_sweep(o->dst, o->events));
    return st;
}

static sheaf_status *check_dtypes(const sheaf__converter *k)
{
    if (k->o->dtype == SHEAF_BOOL || k->o->dtype == SHEAF_F32 || k->o->dtype == SHEAF_BF16 ||
        k->o->dtype == SHEAF_F16)
        return NULL;
    return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`dtype`"), "float32, bfloat16 or float16");
}

static void converter_release(sheaf__converter *k)
{
    if (k->source != NULL)
        k->source->close(k->source);
    sheaf__packer_free(k->quantising);
    sheaf__catalog_free(k->catalog);
    sheaf_schema_free(k->schema);
    if (k->has_config)
        sheaf_config_release(&k->parsed);
    free(k->root);
    free(k->config);
    free(k->model);
}

sheaf_status *sheaf_convert(sheaf_weights_convert_report *report,
                            const sheaf_weights_convert_options *o)
{
    sheaf__converter k = { .o = o, .report = report };
    const target *to = NULL;
    *report = (sheaf_weights_convert_report){ .step = -1 };
    sheaf_status *st = find_target(&to, o);
    k.as_stored = st == NULL && writes(to, SHEAF_WRITES_BLOCKS);
    TRY(st, check_dtypes(&k));
    TRY(st, check_also(o));
    TRY(st, check_dst(o));
    TRY(st,
        read_catalog(&k, !writes(to, SHEAF_WRITES_MODEL) || writes(to, SHEAF_WRITES_QUANTISED)));
    TRY(st, check_own_lora(&k));
    TRY(st, read_model(&k, o->slices > 0 ? o->slices : SHEAF__CONVERT_SLICES));
    TRY(st, writes(to, SHEAF_WRITES_MODEL) ? open_source(&k) : NULL);
    TRY(st, settle_form(&k, to));
    if (st == NULL && writes(to, SHEAF_WRITES_MODEL)) {
        sheaf__convert_count(&k);
        report->step =
            writes(to, SHEAF_WRITES_SLICES) || (writes(to, SHEAF_WRITES_MOMENTS) && k.nmoments > 0)
                ? k.step
                : -1;
    }
    TRY(st, to->write(&k));
    converter_release(&k);
    return st;
}
