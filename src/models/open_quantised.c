/* open_quantised.c - bases whose weights are quantised while they are read, or are so in the files
 * (open.h, open_layers.h). */
#include "base/base.h"
#include "catalog/quantising.h"
#include "models/forms.h"
#include "models/open_layers.h"

/* Which tensors are quantised: of frozen linear layers. */
typedef struct choice {
    const sheaf__opened *o;
    bool (*trains)(void *self, const sheaf_tensor *tensor); /* may be NULL */
    void *self;
} choice;

static bool is_chosen(void *self, const char *name)
{
    const choice *c = self;
    const sheaf_tensor *t = sheaf_schema_find(c->o->schema, name);
    const sheaf_lora *lora = c->o->lora;
    for (int i = 0; lora != NULL && i < lora->nsaved; i++)
        if (lora->saved[i] == t)
            return false;
    return t != NULL && sheaf__is_quantisable(t) && (c->trains == NULL || !c->trains(c->self, t));
}

sheaf_status *sheaf__opened_lay_codes(sheaf__opened *o, sheaf_quantize as,
                                      bool (*trains)(void *self, const sheaf_tensor *tensor),
                                      void *self, bool shared, sheaf_comm *all)
{
    const choice c = { o, trains, self };
    const sheaf_dtype dtype =
        o->config.dtype == SHEAF_BF16 || o->config.dtype == SHEAF_F16 ? o->config.dtype : SHEAF_F32;
    const sheaf__quant quant = sheaf__quantised_as(as, dtype);
    if (o->base == NULL) {
        return o->forms != NULL
                   ? sheaf__quantised_twice(o->schema->tensor->name)
                   : sheaf__forms_new(&o->forms, o->schema, &quant, is_chosen, (void *)&c);
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
    if (over)
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
        if (!trains(self, t) || t->buffer || sheaf__source_form(forms, t->name) == NULL)
            continue;
        sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s', which is to be trained", t->name);
        sheaf_expected(st, "a plain weight: codes have no gradient");
        sheaf_found(st, "a weight that the base stores quantised");
        return sheaf_try_this(st, "--method lora, whose factors are trained instead; or a plain "
                                  "base: sheaf convert BASE PLAIN --to hf");
    }
    return NULL;
}

sheaf_source *sheaf__opened_forms(const sheaf__opened *o)
{
    return o->weights != NULL ? o->weights : o->forms;
}
