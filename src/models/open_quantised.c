/* open_quantised.c - bases whose weights are quantised while they are read, or are so in the files
 * (open.h, open_layers.h). */
#include "base/base.h"
#include "base/json.h"
#include "catalog/packing.h"
#include "catalog/quantising.h"
#include "dialects/open.h"
#include "models/open_layers.h"
#include "ops/quant/quantise.h"
#include "schema/quantization.h"

/* Selects the tensors to quantise: frozen linear layers. */
typedef struct choice {
    const sheaf__opened *o;
    bool (*trains)(void *self, const sheaf_tensor *tensor); /* may be NULL */
    void *self;
    bool bare; /* also what bitsandbytes leaves plain, as others do not */
} choice;

/* Is it one that the adapter has in full? */
static bool is_saved(const sheaf__opened *o, const sheaf_tensor *t)
{
    return o->lora != NULL && sheaf__lora_is_saved(o->lora, t);
}

static bool is_chosen(void *self, const char *name)
{
    const choice *c = self;
    const sheaf_tensor *t = sheaf_schema_find(c->o->schema, name);
    return t != NULL && (c->bare ? sheaf__is_linear_weight(t) : sheaf__is_quantisable(t)) &&
           !is_saved(c->o, t) && (c->trains == NULL || !c->trains(c->self, t));
}

/* ---- forms alone, of a base whose weights are not opened: for plans ---- */

typedef struct forms {
    sheaf_source source; /* first */
    const sheaf_schema *schema;
    sheaf__quant quant[]; /* by number in the schema; SHEAF__CODES: it is not chosen */
} forms;

static const sheaf__quant *form(sheaf_source *self, const char *name)
{
    const forms *f = (const forms *)self;
    const sheaf_tensor *t = sheaf_schema_find(f->schema, name);
    const sheaf__quant *quant = t == NULL ? NULL : &f->quant[t - f->schema->tensor];
    return t == NULL || quant->codes == SHEAF__CODES ? NULL : quant;
}

static const sheaf__quantised_source quantised = { .form = form };

static void close_forms(sheaf_source *self)
{
    free(self);
}

/* Those that are chosen have this form. */
static sheaf_status *forms_new(sheaf__opened *o, const choice *c, const sheaf__quant *quant)
{
    const sheaf_schema *schema = o->schema;
    forms *f = calloc(1, sizeof *f + (size_t)schema->count * sizeof *f->quant);
    if (f == NULL)
        return sheaf__no_memory("plan");
    f->source.close = close_forms;
    f->source.quantised = &quantised;
    f->schema = schema;
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        f->quant[i] = *quant;
        if (!is_chosen((void *)c, t->name))
            f->quant[i].codes = SHEAF__CODES;
        else if (c->bare && sheaf__quant_of_rows(quant)) /* block 0 is bitsandbytes' */
            f->quant[i].block = t->shape[t->ndim - 1];
    }
    o->forms = &f->source;
    return NULL;
}

/* ---- bases that are read ---- */

/* A tensor that is stored quantised; NULL: none. */
static const char *stored_codes(const sheaf__opened *o)
{
    sheaf_source *forms = sheaf__opened_forms(o);
    for (int64_t i = 0; forms != NULL && i < o->schema->count; i++)
        if (sheaf__source_form(forms, o->schema->tensor[i].name) != NULL)
            return o->schema->tensor[i].name;
    return NULL;
}

sheaf_status *sheaf__opened_lay_codes(sheaf__opened *o, sheaf_quantize as,
                                      bool (*trains)(void *self, const sheaf_tensor *tensor),
                                      void *self, bool shared, sheaf_comm *all)
{
    const choice c = { o, trains, self, false };
    const sheaf_dtype dtype =
        o->config.dtype == SHEAF_BF16 || o->config.dtype == SHEAF_F16 ? o->config.dtype : SHEAF_F32;
    const sheaf__quant quant = sheaf__quantised_as(as, dtype);
    const char *stored = stored_codes(o);
    o->has_codes = stored != NULL && o->as_stored;
    if (stored != NULL)
        return o->as_stored ? NULL : sheaf__quantised_twice(stored);
    if (o->base == NULL) {
        if (o->forms != NULL) /* of blocks, whose values are quantised */
            o->forms->close(o->forms);
        o->forms = NULL;
        return forms_new(o, &c, &quant);
    }
    const bool over = o->weights != o->base, hashed = o->hashed != NULL;
    sheaf_source **files = hashed ? &o->stored : &o->base;
    sheaf_status *st = sheaf__quantise(files, as, is_chosen, (void *)&c);
    if (st == NULL && hashed) {
        sheaf__hashed_free(o->hashed);
        o->hashed = NULL;
        o->base = o->stored;
        o->stored = NULL;
        free(o->config_text);
        o->config_text = NULL;
        st = sheaf__opened_lay_print(o, shared, all);
    }
    if (o->widened != NULL)
        sheaf__widened_rebase(o->widened, o->base);
    else if (over)
        sheaf__overlay_rebase(o->weights, o->base);
    else
        o->weights = o->base;
    return st;
}

sheaf_status *sheaf__opened_quantise(sheaf__opened *o, sheaf_quantize as,
                                     bool (*trains)(void *self, const sheaf_tensor *tensor),
                                     void *self)
{
    sheaf_source *forms = sheaf__opened_forms(o);
    if (as != SHEAF_QUANTIZE_NONE)
        return sheaf__opened_lay_codes(o, as, trains, self, false, NULL);
    for (int64_t i = 0; i < o->schema->count && forms != NULL && trains != NULL; i++) {
        const sheaf_tensor *t = &o->schema->tensor[i];
        if (!(trains(self, t) || is_saved(o, t)) || t->buffer ||
            sheaf__source_form(forms, t->name) == NULL)
            continue;
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s', which is to be trained", t->name);
        sheaf_expected(st, "a plain weight: codes have no gradient");
        sheaf_found(st, "a weight that the base stores quantised");
        return sheaf_try_this(st, "`method lora`, whose factors are trained instead; or a plain "
                                  "base: sheaf convert BASE PLAIN --to hf --dequantize");
    }
    return NULL;
}

/* ---- bases of which only the config is opened ---- */

static bool says(const json_t *value, const char *key)
{
    char hidden[64];
    snprintf(hidden, sizeof hidden, "_%s", key);
    return json_is_true(json_object_get(value, key)) ||
           json_is_true(json_object_get(value, hidden));
}

/* The form of most tensors, as a quantization_config says it. */
static sheaf__quant form_of(const json_t *value, const sheaf__quantization *q, sheaf_dtype dtype)
{
    const char *type = json_string_value(json_object_get(value, "bnb_4bit_quant_type"));
    sheaf__quant out =
        sheaf__quantised_as(says(value, "load_in_8bit")                ? SHEAF_QUANTIZE_INT8
                            : says(value, "bnb_4bit_use_double_quant") ? SHEAF_QUANTIZE_NF4_DOUBLE
                                                                       : SHEAF_QUANTIZE_NF4,
                            dtype);
    if (q->by == SHEAF__BITSANDBYTES && (type == NULL || strcmp(type, "nf4") != 0) &&
        out.codes == SHEAF__NF4)
        out.codes = SHEAF__FP4;
    const sheaf__packing *p = sheaf__packing_of(q->by, SHEAF__CODES);
    if (p != NULL && p->by != SHEAF__BITSANDBYTES)
        out = (sheaf__quant){ .codes = p->codes,
                              .block = p->squares ? q->block[1] : q->group,
                              .zeros =
                                  p->codes == SHEAF__INT4 && p->suffix[SHEAF__ZEROS_PART] != NULL,
                              .dtype = p->suffix[SHEAF__ZEROS_PART] != NULL ? SHEAF_F16 : dtype };
    return out;
}

static sheaf_status *forms_by_config(sheaf__opened *o, const json_t *value,
                                     const sheaf_events *events)
{
    sheaf__quantization q;
    sheaf_status *st = sheaf__quantization_read(&q, value);
    const choice c = { .o = o, .bare = q.by != SHEAF__BITSANDBYTES };
    if (st != NULL)
        return st;
    const sheaf__quant form = form_of(value, &q, o->config.dtype);
    sheaf_note(events, "its weights are not here: every linear layer but the head is taken to be "
                       "quantised, as quantization_config says of most");
    return forms_new(o, &c, &form);
}

sheaf_status *sheaf__opened_find_forms(sheaf__opened *o, const sheaf_catalog *found,
                                       const sheaf__open_options *how)
{
    const sheaf_dialect_hints hints = { .config = how->config,
                                        .want = SHEAF_WANT_MODEL,
                                        .as_stored = true };
    const bool folder = how->model != NULL && how->model[0] != '\0',
               blocks = found != NULL && (found->dialect->writes & SHEAF_WRITES_BLOCKS) != 0;
    const char *part = NULL;
    sheaf_catalog *c = NULL;
    json_t *root = NULL;
    sheaf_status *st = NULL;
    if (found != NULL && found->config != NULL)
        st = sheaf__json_parse(&root, found->config, strlen(found->config));
    else if (how->config != NULL && how->config[0] != '\0')
        st = sheaf__json_load(&root, how->config);
    const json_t *value = st == NULL ? sheaf__quantization_of(root, &part) : NULL;
    if (value != NULL || blocks) {
        sheaf_status *there = folder ? sheaf__open(&c, how->model, &hints) : NULL;
        if (there == NULL && c != NULL && c->count > 0)
            there = sheaf__catalog_source(&o->forms, c, false);
        else
            sheaf__catalog_free(c);
        st = sheaf__only_memory(there);
        if (st == NULL && o->forms == NULL && value != NULL)
            st = forms_by_config(o, value, how->events);
    }
    json_decref(root);
    return st;
}

sheaf_source *sheaf__opened_forms(const sheaf__opened *o)
{
    return o->weights != NULL ? o->weights : o->forms;
}
