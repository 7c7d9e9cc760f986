/* quantise.c - see convert.h: weights that a conversion quantises, and those that it must not. */
#include "base/base.h"
#include "checkpoint/convert/convert.h"

/* A weight of the source that is stored in 4 or 8 bits; NULL: there is none. */
static const char *quantised_name(sheaf_source *source)
{
    for (int64_t i = 0; source->quantised != NULL && i < source->count(source); i++) {
        const char *name = source->entry(source, i)->name;
        if (sheaf__source_form(source, name) != NULL)
            return name;
    }
    return NULL;
}

static sheaf_status *refuse(const sheaf__converter *k, const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: --quantize", k->o->src);
    sheaf_found(sheaf_expected(st, "weights in float32, bfloat16 or float16"),
                "'%s' quantised already", name);
    return sheaf_try_this(st,
                          "the model that was quantised; or leave out --quantize, which copies it, "
                          "or first: sheaf convert %s PLAIN --to hf --dequantize",
                          k->o->src);
}

sheaf_status *sheaf__convert_quantise(sheaf__converter *k, const sheaf_safetensors_spec *specs,
                                      int64_t count)
{
    const char *already = quantised_name(k->source);
    if (already != NULL)
        return refuse(k, already);
    if (k->schema == NULL)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: --quantize", k->o->src),
                                       "a model that sheaf knows, and its config"),
                        k->config == NULL ? "no config" : "an architecture that is not known"),
            k->config == NULL ? "--config FILE" : "sheaf help convert; docs/families.md");
    sheaf_status *st = sheaf__bnb_of_model(&k->quantising, specs, count, k->schema, k->o->quantize);
    for (int64_t i = 0; st == NULL && i < count; i++)
        k->report->quantised += sheaf__bnb_form(k->quantising, i) != NULL;
    if (st == NULL)
        k->report->bytes = sheaf__bnb_bytes(k->quantising);
    return st;
}
