/* quantise.c - see convert.h: weights that a conversion quantises, and those that it must not. */
#include "base/base.h"
#include "base/json.h"
#include "catalog/coded.h"
#include "catalog/quantising.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/store/probe.h"
#include "dialects/common/model.h"
#include "dialects/common/model_folder.h"
#include "schema/quantization.h"

static const char *coded_name(const sheaf_catalog *c)
{
    for (int64_t i = 0; i < c->count; i++)
        if (c->tensor[i].coded != NULL)
            return c->tensor[i].entry.name;
    return NULL;
}

static sheaf_status *refuse_twice(const sheaf__converter *k, const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: `quantize`", k->o->src);
    sheaf_found(sheaf_expected(st, "weights in float32, bfloat16 or float16"),
                "'%s' quantised already", name);
    return sheaf_try_this(st,
                          "the model that was quantised; or leave out `quantize`, which copies it; "
                          "or first: sheaf convert %s PLAIN --to hf --dequantize",
                          k->o->src);
}

/* --dequantize has nothing to do: plain weights, or those of a quantizer that is not read. */
static sheaf_status *refuse_none(const sheaf__converter *k)
{
    const sheaf__tensor_names names = sheaf__catalog_names(k->catalog);
    sheaf_status *st = sheaf__quantization_refusal(k->catalog->config);
    if (st != NULL)
        return sheaf_in(st, "%s: `dequantize`", k->o->src);
    const char *how = sheaf__quantization_by_names(names.name, k->catalog, names.count);
    st = sheaf_fail(how != NULL ? SHEAF_E_UNSUPPORTED : SHEAF_E_ARG, "`dequantize`");
    sheaf_expected(st, "weights in 4 or 8 bits, which sheaf reads");
    if (how == NULL)
        return sheaf_try_this(sheaf_found(st, "none in %s", k->o->src),
                              "leave `dequantize` out where the weights are plain");
    sheaf_found(st, "quantized weights (%s) in %s, which it does not", how, k->o->src);
    return sheaf_try_this(st, "the model that was quantized, in 16 or 32 bits");
}

static sheaf_status *refuse_target(const sheaf__converter *k, const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`to %s`", k->o->to);
    sheaf_found(sheaf_expected(st, "plain weights: that form holds none in 4 or 8 bits"),
                "'%s' of %s", name, k->o->src);
    return sheaf_try_this(st, "`dequantize` beside it");
}

/* The content of quantize_config.json, a file that is not copied, moves into the config. */
static sheaf_status *keep_quantization(sheaf_catalog *c, const char *quantization)
{
    json_t *root = NULL;
    const char *part;
    if (quantization == NULL || c->config == NULL)
        return NULL;
    sheaf_status *st = sheaf__json_parse(&root, c->config, strlen(c->config));
    const bool has = sheaf__quantization_of(root, &part) != NULL;
    json_decref(root);
    return st != NULL || has
               ? st
               : sheaf_hf_config_change(&c->config, "quantization_config", quantization);
}

sheaf_status *sheaf__convert_settle_codes(sheaf__converter *k, const sheaf_dialect_hints *hints,
                                          bool keeps)
{
    sheaf_dialect_hints raw = *hints;
    const char *name = coded_name(k->catalog);
    if (name == NULL && k->o->dequantize)
        return refuse_none(k);
    if (name == NULL || k->o->dequantize)
        return NULL;
    if (k->o->quantize != SHEAF_QUANTIZE_NONE)
        return refuse_twice(k, name);
    if (!keeps)
        return refuse_target(k, name);
    sheaf_status *st = sheaf__catalog_refusal(k->catalog); /* later reads are not checked */
    for (int64_t i = 0; st == NULL && i < k->catalog->count; i++)
        if (k->catalog->tensor[i].coded != NULL)
            st = sheaf__coded_check(k->catalog, &k->catalog->tensor[i]);
    if (st != NULL)
        return st;
    char *quantization = k->catalog->quantization;
    k->catalog->quantization = NULL;
    sheaf__catalog_free(k->catalog);
    k->catalog = NULL;
    raw.as_stored = raw.raw = true;
    st = sheaf__any_read(&k->catalog, k->o->src, &raw);
    TRY(st, keep_quantization(k->catalog, quantization));
    free(quantization);
    return st;
}

sheaf_status *sheaf__convert_quantise(sheaf__converter *k, const sheaf_safetensors_spec *specs,
                                      int64_t count)
{
    if (k->schema == NULL)
        return sheaf__quantise_unknown(k->o->src, k->config);
    sheaf_status *st =
        sheaf__packer_of_model(&k->quantising, specs, count, k->schema, k->o->quantize,
                               k->o->group_size > 0 ? k->o->group_size : 128);
    for (int64_t i = 0; st == NULL && i < count; i++)
        k->report->quantised += sheaf__packer_tensor(k->quantising, i) != NULL;
    if (st == NULL)
        k->report->bytes = sheaf__packer_bytes(k->quantising);
    return st;
}
