/* check.c - are these the tensors of this model? See hf.h. Names and shapes are checked as those of
 * any catalog (sheaf__catalog_check_schema()); but nothing is cut off here, so padded tables of the
 * vocabulary are refused too. */
#include "base/base.h"
#include "dialects/common/model.h"
#include "dialects/hf/hf.h"
#include "schema/family.h"
#include "schema/quantization.h"

/* Quantized weights that no config mentions. */
static sheaf_status *check_quantised(const sheaf_schema *schema, sheaf_source *source)
{
    const sheaf__tensor_names names = sheaf__source_names(source);
    const char *how = sheaf__quantization_by_names(names.name, source, names.count);
    if (how == NULL)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "tensors of the model");
    sheaf_expected(st, "weights in F32, BF16 or F16");
    sheaf_found(st, "quantized weights (%s)", how);
    return sheaf_try_this(st,
                          "the config.json (quantization_config) or quantize_config.json that "
                          "was saved with them; else the weights of %s in 16 or 32 bits",
                          sheaf__config_title(&schema->config));
}

static sheaf_status *check_dtype(const sheaf_source_entry *e)
{
    if (e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': dtype", e->name);
    sheaf_found(sheaf_expected(st, "F32, BF16 or F16"), "%s", sheaf_dtype_name(e->dtype));
    return sheaf_try_this(
        st, "quantized weights and other dtypes are not read; use the model in one of those");
}

/* ---- names and shapes ---- */

/* A stored name that ends with a name of the model shows a prefix of all names. */
static sheaf_status *mention_prefix(sheaf_status *st, sheaf_source *source, const char *missing)
{
    const size_t m = strlen(missing);
    for (int64_t i = 0; i < source->count(source); i++) {
        const char *name = source->entry(source, i)->name;
        const size_t n = strlen(name);
        if (n > m && strcmp(name + n - m, missing) == 0)
            return sheaf_try_this(st, "the names in the file begin with '%.*s': remove that",
                                  (int)(n - m > 100 ? 100 : n - m), name);
        if (n < m && n > 12 && strcmp(missing + m - n, name) == 0)
            return sheaf_try_this(st,
                                  "the names in the file lack '%.*s' at their beginning: add it",
                                  (int)(m - n), missing);
    }
    return st;
}

static sheaf_status *advise(sheaf_status *st, const sheaf_schema *schema, sheaf_source *source,
                            const sheaf_finding *f)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    const sheaf_source_entry *e = source->find(source, f->tensor);
    if (family->advise != NULL)
        st = family->advise(st, &schema->config, f->tensor, e == NULL ? NULL : e->shape,
                            e == NULL ? 0 : e->ndim);
    return e == NULL ? mention_prefix(st, source, f->tensor) : st;
}

static sheaf_status *refuse_padding(const sheaf_finding *f)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensor '%s': %s", f->tensor, f->code);
    sheaf_found(sheaf_expected(st, "%s", f->expected), "%s", f->found);
    return sheaf_try_this(st, "sheaf convert MODEL NEW --to hf, which cuts it off; or, if these "
                              "rows are tokens, correct vocab_size in config.json");
}

/* The tensors of a source, without their bytes. */
static sheaf_status *list(sheaf_catalog *c, sheaf_source *source)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < source->count(source) && st == NULL; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        sheaf_logical *t;
        st = sheaf__catalog_tensor(&t, c, e->name, e->dtype, e->ndim, e->shape);
        if (st == NULL)
            t->kind = SHEAF_WEIGHT;
    }
    return st;
}

static sheaf_status *check_schema(sheaf_source *source, const sheaf_schema *schema,
                                  const char *json)
{
    sheaf_catalog *c = NULL;
    sheaf_status *st = sheaf__catalog_new(&c, &sheaf__dialect_hf, "tensors of the model");
    if (st == NULL && json != NULL && (c->config = strdup(json)) == NULL)
        st = sheaf__no_memory("a config");
    TRY(st, list(c, source));
    TRY(st, sheaf__catalog_check_schema(c, schema, schema->config.vocab, false));
    if (st == NULL && (st = sheaf__catalog_refusal(c)) != NULL)
        for (int64_t i = 0; i < c->nfindings; i++)
            if (c->finding[i].severity == SHEAF_DEFECT) {
                st = advise(st, schema, source, &c->finding[i]);
                break;
            }
    const sheaf_finding *padded = st == NULL ? sheaf__catalog_finding(c, "padded") : NULL;
    if (padded != NULL)
        st = refuse_padding(padded);
    sheaf__catalog_free(c);
    return st;
}

sheaf_status *sheaf_hf_check(sheaf_source *source, const sheaf_schema *schema, const char *json)
{
    const bool computes = sheaf__family_for(&schema->config)->buffer != NULL;
    sheaf_status *st = check_quantised(schema, source);
    TRY(st, check_schema(source, schema, json));
    for (int64_t i = 0; i < schema->count && st == NULL; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        const sheaf_source_entry *e = source->find(source, t->name);
        if (e != NULL)
            st = check_dtype(e);
        else if (!t->buffer || !computes)
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "'%s'", t->name),
                                            "a tensor of this name"),
                             "none");
    }
    if (st != NULL || !schema->config.tied || source->find(source, sheaf__head_name) == NULL)
        return st;
    return sheaf__tied_head(NULL, source, sheaf_schema_get(schema, SHEAF_EMBED, -1, false)->name);
}
