/* base.c - bases that cannot be merged into: an adapter in place of the base, quantized weights. */
#include "base/base.h"
#include "checkpoint/merge/plan.h"
#include "dialects/common/dialects.h"
#include "schema/quantization.h"

/* ---- an adapter in place of the base ---- */

static void add_word(sheaf_text *text, const char *word)
{
    sheaf__text_add(text, " ");
    sheaf__text_word(text, word);
}

static bool is_adapter(const char *path)
{
    const sheaf_dialect *d = sheaf__dialect_of(path);
    return d != NULL && d->adapter;
}

sheaf_status *sheaf_merge_check_base(const sheaf_weights_merge_options *o)
{
    if (o->base == NULL || !is_adapter(o->base))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", o->base);
    sheaf_found(sheaf_expected(st, "the base model first, then its adapters"), "a PEFT adapter");
    const char *model = NULL;
    for (int i = 0; i < o->nadapters && model == NULL; i++)
        if (sheaf__path_kind(o->adapters[i]) != SHEAF_PATH_NONE && !is_adapter(o->adapters[i]))
            model = o->adapters[i];
    sheaf_text line = { 0 };
    sheaf__text_add(&line, "sheaf merge");
    if (model != NULL)
        add_word(&line, model);
    else
        sheaf__text_add(&line, " BASE");
    add_word(&line, o->base);
    for (int i = 0; i < o->nadapters; i++)
        if (o->adapters[i] != model)
            add_word(&line, o->adapters[i]);
    add_word(&line, o->dst);
    if (!line.failed)
        sheaf_try_this(st, "%s", line.at);
    sheaf__text_release(&line);
    return st;
}

/* ---- quantized weights ---- */

static const char *name_of(const void *self, int64_t i)
{
    return ((const sheaf__merge_plan *)self)->tensor[i].name;
}

void sheaf__merge_find_quantized(sheaf__merge_plan *p, const json_t *config)
{
    if (p->nquantised > 0)
        return; /* they are read */
    const json_t *how = json_object_get(config, "quantization_config");
    if (how == NULL)
        how = json_object_get(json_object_get(config, "text_config"), "quantization_config");
    const char *by_names = sheaf__quantization_by_names(name_of, p, p->count);
    if (json_is_object(how))
        sheaf__quantization_name(p->quantized, how);
    if (p->quantized[0] == '\0' && by_names != NULL)
        snprintf(p->quantized, sizeof p->quantized, "%s", by_names);
}

sheaf_status *sheaf__merge_refuse_quantized(const sheaf__merge_plan *p, const char *module)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s' of the base", module);
    sheaf_found(sheaf_expected(st, "weights in F32, BF16 or F16, to which LoRA can be added"),
                "quantized weights (%s)", p->quantized);
    return sheaf_try_this(
        st,
        "the model that was quantized, in 16 or 32 bits, as BASE; the result can be quantized again");
}
