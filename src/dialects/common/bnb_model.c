/* bnb_model.c - which weights of a model are stored as bitsandbytes stores them, and its config;
 * see bnb_write.h. */
#include "base/base.h"
#include "catalog/quantising.h"
#include "dialects/common/bnb_write.h"
#include "dialects/common/model_folder.h"
#include "schema/family.h"

static bool is_chosen(const sheaf_schema *schema, const char *name)
{
    const sheaf_tensor *t = sheaf_schema_find(schema, name);
    return t != NULL && sheaf__is_quantisable(t);
}

sheaf_status *sheaf__bnb_of_model(sheaf__bnb_writer **out, const sheaf_safetensors_spec *specs,
                                  int64_t count, const sheaf_schema *schema, sheaf_quantize as)
{
    sheaf__bnb_tensor *list = calloc((size_t)count + 1, sizeof *list);
    if (list == NULL)
        return sheaf__no_memory("list of tensors");
    for (int64_t i = 0; i < count; i++) {
        list[i].spec = specs[i];
        list[i].quantised = is_chosen(schema, specs[i].name);
        if (list[i].quantised)
            list[i].form = sheaf__quantised_as(as, specs[i].dtype);
    }
    sheaf_status *st = sheaf__bnb_new(out, list, count);
    free(list);
    return st;
}

/* Modules that transformers leaves plain: those on a list, if there is one; else the head, which is
 * all that stays plain in a text model. In others it would leave the last module, too. JSON; NULL:
 * no list. */
static sheaf_status *skip_list(char **out, const sheaf_schema *schema)
{
    sheaf_text text = { 0 };
    bool own = true;
    *out = NULL;
    sheaf__text_add(&text, "[");
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (sheaf__is_quantisable(t))
            own = own && strncmp(t->name, "model.layers.", 13) == 0;
        else if (t->ndim == 2 && !t->bias && sheaf__is_linear(t->role)) {
            sheaf__text_add(&text, text.size > 1 ? ", " : "");
            sheaf__text_json(&text, t->module);
        }
    }
    sheaf__text_add(&text, "]");
    if (!own)
        return sheaf__text_take(out, &text);
    sheaf__text_release(&text);
    return NULL;
}

sheaf_status *sheaf__bnb_set_config(char **json, const sheaf__bnb_writer *w,
                                    const sheaf_schema *schema)
{
    const sheaf__quant *form = NULL;
    char *value = NULL, *skip = NULL;
    for (int64_t i = 0; form == NULL && i < schema->count; i++)
        form = sheaf__bnb_form(w, i);
    if (form == NULL)
        return NULL;
    sheaf_status *st = skip_list(&skip, schema);
    TRY(st, sheaf__bnb_config(&value, form, form->dtype, skip));
    TRY(st, sheaf_hf_config_change(json, "quantization_config", value));
    free(skip);
    free(value);
    return st;
}
