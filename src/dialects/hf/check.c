/* check.c - are these the tensors of this model? See hf.h.
 *
 * Rows of the two vocabulary tables are checked first: ColossalAI 0.3.7 to 0.4.7 wrote one part of
 * a divided and padded table as if it were whole, and the missing rows cannot be restored
 * (docs/formats.md). */
#include "base/base.h"
#include "dialects/common/class.h"
#include "dialects/common/config_numbers.h"
#include "dialects/common/model.h"
#include "dialects/common/vocabulary.h"
#include "dialects/hf/hf.h"
#include "schema/quantization.h"
#include "schema/family.h"

enum { NAMED = 5 };

typedef struct checking {
    sheaf_source *source;
    const sheaf_schema *schema;
    const char *json; /* of the config */
} checking;

/* Adds the family's advice for a tensor that is missing or has another shape. */
static sheaf_status *advise(sheaf_status *st, const sheaf_schema *schema, const char *name,
                            const sheaf_source_entry *e)
{
    const sheaf__family *family = sheaf__family_for(&schema->config);
    return family->advise == NULL
               ? st
               : family->advise(st, &schema->config, name, e == NULL ? NULL : e->shape,
                                e == NULL ? 0 : e->ndim);
}

/* Says which numbers of the config are wrong, where they are at least `least`; many: also where
 * they are more than a few, which speaks for another model. */
static sheaf_status *try_numbers(sheaf_status *st, const checking *x, int least, bool many)
{
    const sheaf__stored stored = sheaf__stored_source(x->source);
    sheaf_text advice = { 0 };
    int changed = 0;
    bool few = false;
    sheaf_status *bad =
        sheaf__config_advice(&advice, &changed, &few, &x->schema->config, x->json, &stored);
    if (bad == NULL && advice.size > 0 && changed >= least && (few || many))
        sheaf_try_this(st, "%s", advice.at);
    sheaf__text_release(&advice);
    if (bad == NULL)
        return st;
    sheaf_status_free(st);
    return bad;
}

/* ---- one tensor of the wrong shape ---- */

static sheaf_status *wrong_vocabulary(const checking *x, const sheaf_tensor *t,
                                      const sheaf_source_entry *e)
{
    const int64_t rows = e->shape[0], vocab = x->schema->config.vocab;
    int64_t padded = 0;
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s': axis 0", t->name);
    sheaf_expected(st, "%" PRId64 " rows, the vocabulary in config.json", vocab);
    sheaf_found(st, "%" PRId64 " rows", rows);
    const int ways = sheaf__vocabulary_ways(rows, vocab, &padded);
    if (ways > 0)
        return sheaf_try_this(
            st,
            "this looks like rank 0's part of a %d-way save (%" PRId64 " rows when padded): "
            "rows %" PRId64 " to %" PRId64 " are not in the files; save again with a corrected "
            "program, or give another copy of the model",
            ways, padded, rows, vocab - 1);
    if (rows < vocab)
        sheaf_try_this(st, "rows are missing from the files: use a complete copy of the model");
    else
        sheaf_try_this(st,
                       "if the %" PRId64 " further rows are tokens, set vocab_size to %" PRId64
                       " in config.json; if they are padding, cut them off",
                       rows - vocab, rows);
    return try_numbers(st, x, 2, true); /* more is wrong than the vocabulary */
}

static sheaf_status *wrong_shape(const checking *x, const sheaf_tensor *t,
                                 const sheaf_source_entry *e)
{
    const sheaf_config *c = &x->schema->config;
    char want[128], found[128];
    int64_t padded;
    if ((t->role == SHEAF_EMBED || t->role == SHEAF_HEAD) && e->ndim == 2 &&
        e->shape[1] == c->hidden)
        return wrong_vocabulary(x, t, e);
    sheaf__show_shape(want, t->ndim, t->shape);
    sheaf__show_shape(found, e->ndim, e->shape);
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "'%s': shape", t->name);
    sheaf_expected(st, "%s, by config.json", want);
    advise(sheaf_found(st, "%s", found), x->schema, t->name, e);
    if (*sheaf_status_try(st) != '\0')
        return st;
    const int axis = t->cut.axis;
    const bool comparable = t->cut.nparts == 1 && e->ndim == t->ndim &&
                            (t->ndim == 1 || e->shape[1 - axis] == t->shape[1 - axis]);
    if (!comparable)
        return try_numbers(st, x, 0, true);
    /* For keys and values rather the number of heads is wrong. */
    const int ways = t->role == SHEAF_K || t->role == SHEAF_V
                         ? 0
                         : sheaf__vocabulary_ways(e->shape[axis], t->shape[axis], &padded);
    if (ways > 0 && padded == t->shape[axis]) {
        sheaf_try_this(st, "this looks like one part of a %d-way save: give the whole model", ways);
        return try_numbers(st, x, 1, false);
    }
    const bool attention =
        t->role == SHEAF_Q || t->role == SHEAF_K || t->role == SHEAF_V || t->role == SHEAF_O;
    if (attention && e->shape[axis] % c->head_dim == 0)
        sheaf_try_this(st,
                       "%" PRId64 " heads of %" PRId64 " are stored; config.json says %" PRId64
                       ": correct %s there",
                       e->shape[axis] / c->head_dim, c->head_dim, t->shape[axis] / c->head_dim,
                       t->role == SHEAF_Q || t->role == SHEAF_O
                           ? "num_attention_heads or head_dim"
                           : "num_key_value_heads or head_dim");
    return try_numbers(st, x, 0, *sheaf_status_try(st) == '\0');
}

static sheaf_status *check_tensor(const checking *x, const sheaf_tensor *t,
                                  const sheaf_source_entry *e)
{
    if (!sheaf__same_shape(e->ndim, e->shape, t->ndim, t->shape))
        return wrong_shape(x, t, e);
    if (e->dtype == SHEAF_F32 || e->dtype == SHEAF_BF16 || e->dtype == SHEAF_F16)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s': dtype", t->name);
    sheaf_found(sheaf_expected(st, "F32, BF16 or F16"), "%s", sheaf_dtype_name(e->dtype));
    return sheaf_try_this(
        st, "quantized weights and other dtypes are not read; use the model in one of those");
}

/* ---- names ---- */

/* A stored name that ends with a name of the model shows a prefix of all names. */
static sheaf_status *mention_prefix(sheaf_status *st, sheaf_source *source, const char *missing)
{
    const size_t m = strlen(missing);
    if (source->find(source, "layers.0.attention.wq.weight") != NULL)
        return sheaf_try_this(
            st, "these are names of Meta's own form: use the Hugging Face form of this model");
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

/* `n` tensors, the first of them in `names`, which is released. */
static sheaf_status *refuse_names(const char *expected, int64_t count, int64_t n, const char *what,
                                  sheaf_text *names)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "tensors of the model");
    sheaf_expected(st, "%s %" PRId64 " that config.json asks for", expected, count);
    sheaf_found(st, "%" PRId64 " %s: %s%s", n, what, names->at == NULL ? "" : names->at,
                n > NAMED ? " and others" : "");
    sheaf__text_release(names);
    return st;
}

static sheaf_status *check_missing(const checking *x)
{
    const sheaf_schema *schema = x->schema;
    sheaf_source *source = x->source;
    const bool computes = sheaf__family_for(&schema->config)->buffer != NULL;
    sheaf_text names = { 0 };
    const sheaf_tensor *first = NULL;
    int64_t n = 0;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if ((t->buffer && computes) || source->find(source, t->name) != NULL)
            continue;
        if (n++ < NAMED)
            sheaf__text_add(&names, "%s%s", n > 1 ? ", " : "", t->name);
        if (first == NULL)
            first = t;
    }
    if (n == 0)
        return NULL;
    sheaf_status *st = refuse_names("all", schema->count, n, "missing", &names);
    if (n == 1 && first->role == SHEAF_HEAD)
        return sheaf_try_this(
            st,
            "if the head is the embedding table, set tie_word_embeddings to true in config.json");
    advise(st, schema, first->name, NULL);
    if (*sheaf_status_try(st) == '\0')
        st = try_numbers(st, x, 1, false);
    return mention_prefix(st, source, first->name);
}

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

static sheaf_status *check_unexpected(const checking *x)
{
    const sheaf_schema *schema = x->schema;
    sheaf_source *source = x->source;
    sheaf_text names = { 0 };
    int64_t n = 0;
    bool biases = true;
    for (int64_t i = 0; i < source->count(source); i++) {
        const char *name = source->entry(source, i)->name;
        if (!sheaf__is_stranger(schema, name))
            continue;
        if (n++ < NAMED)
            sheaf__text_add(&names, "%s%.200s", n > 1 ? ", " : "", name);
        biases = biases && sheaf__ends_with(name, ".bias");
    }
    if (n == 0)
        return NULL;
    sheaf_status *st = refuse_names("only the", schema->count, n, "more", &names);
    sheaf_try_this(st, "%s",
                   biases ? "see attention_bias and mlp_bias in config.json"
                          : "see num_hidden_layers and architectures in config.json; the "
                            "file may be of another model");
    return try_numbers(st, x, 1, false);
}

sheaf_status *sheaf_hf_check(sheaf_source *source, const sheaf_schema *schema, const char *json)
{
    const checking x = { source, schema, json };
    sheaf_status *st = check_quantised(schema, source);
    for (int tables = 1; tables >= 0 && st == NULL; tables--) /* the tables first, see above */
        for (int64_t i = 0; i < schema->count && st == NULL; i++) {
            const sheaf_tensor *t = &schema->tensor[i];
            const sheaf_source_entry *e = source->find(source, t->name);
            if (e != NULL && (t->role == SHEAF_EMBED || t->role == SHEAF_HEAD) == (tables != 0))
                st = check_tensor(&x, t, e);
        }
    TRY(st, check_missing(&x));
    TRY(st, check_unexpected(&x));
    if (st != NULL || !schema->config.tied || source->find(source, sheaf__head_name) == NULL)
        return st;
    return sheaf__tied_head(NULL, source, sheaf_schema_get(schema, SHEAF_EMBED, -1, false)->name);
}
