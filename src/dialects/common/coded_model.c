/* coded_model.c - which weights of a model are stored in 4 or 8 bits, and its config; see
 * coded_write.h. */
#include "base/base.h"
#include "catalog/packing.h"
#include "catalog/quantising.h"
#include "dialects/common/coded_write.h"
#include "dialects/common/model_folder.h"
#include "schema/family.h"

static bool is_chosen(const sheaf_schema *schema, const char *name)
{
    const sheaf_tensor *t = sheaf_schema_find(schema, name);
    return t != NULL && sheaf__is_quantisable(t);
}

static void choose_form(sheaf__coded_tensor *t, sheaf_quantize as, int64_t group)
{
    static const sheaf__quantizer by[] = { [SHEAF_QUANTIZE_GPTQ_4] = SHEAF__GPTQ_4,
                                           [SHEAF_QUANTIZE_GPTQ_8] = SHEAF__GPTQ_8,
                                           [SHEAF_QUANTIZE_AWQ_4] = SHEAF__AWQ_4 };
    if (as <= SHEAF_QUANTIZE_INT8) {
        t->form = sheaf__quantised_as(as, t->spec.dtype);
        t->packing = sheaf__packing_of(SHEAF__BITSANDBYTES, t->form.codes);
        return;
    }
    t->packing = sheaf__packing_of(by[as], SHEAF__CODES);
    t->form = (sheaf__quant){ .codes = t->packing->codes,
                              .block = group,
                              .zeros = t->packing->codes == SHEAF__INT4,
                              .dtype = SHEAF_F16 };
}

sheaf_status *sheaf__packer_of_model(sheaf__packer **out, const sheaf_safetensors_spec *specs,
                                     int64_t count, const sheaf_schema *schema, sheaf_quantize as,
                                     int64_t group)
{
    sheaf__coded_tensor *list = calloc((size_t)count + 1, sizeof *list);
    if (list == NULL)
        return sheaf__no_memory("list of tensors");
    for (int64_t i = 0; i < count; i++) {
        list[i].spec = specs[i];
        if (is_chosen(schema, specs[i].name))
            choose_form(&list[i], as, group);
    }
    sheaf_status *st = sheaf__packer_new(out, list, count);
    free(list);
    return st;
}

/* Modules that transformers leaves plain: those on a list, if there is one; else the head, which is
 * all that stays plain in a text model. In others it would leave the last module, too. JSON: a
 * list, or for GPTQ gptqmodel's patterns; NULL: none. */
static sheaf_status *skip_list(char **out, const sheaf_schema *schema, bool patterns)
{
    sheaf_text text = { 0 };
    bool own = true;
    *out = NULL;
    sheaf__text_add(&text, patterns ? "{" : "[");
    for (int64_t i = 0; i < schema->count; i++) {
        const sheaf_tensor *t = &schema->tensor[i];
        if (sheaf__is_quantisable(t))
            own = own && strncmp(t->name, "model.layers.", 13) == 0;
        else if (t->ndim == 2 && !t->bias && sheaf__is_linear(t->role)) {
            char name[600];
            snprintf(name, sizeof name, patterns ? "-:%s$" : "%s", t->module);
            sheaf__text_add(&text, text.size > 1 ? ", " : "");
            sheaf__text_json(&text, name);
            sheaf__text_add(&text, patterns ? ": {}" : "");
        }
    }
    sheaf__text_add(&text, patterns ? "}" : "]");
    if (!own)
        return sheaf__text_take(out, &text);
    sheaf__text_release(&text);
    return NULL;
}

static void bnb_config(sheaf_text *text, const sheaf__quant *q, const char *skip)
{
    const bool four = q->codes != SHEAF__INT8;
    sheaf__text_add(text, "{\n    \"_load_in_4bit\": %s,\n    \"_load_in_8bit\": %s,\n",
                    four ? "true" : "false", four ? "false" : "true");
    /* In 8 bits what transformers has for 4 stands there with its defaults. */
    sheaf__text_add(text,
                    "    \"bnb_4bit_compute_dtype\": \"%s\",\n"
                    "    \"bnb_4bit_quant_storage\": \"uint8\",\n"
                    "    \"bnb_4bit_quant_type\": \"%s\",\n"
                    "    \"bnb_4bit_use_double_quant\": %s,\n",
                    four ? sheaf_dtype_torch_name(q->dtype) : "float32",
                    q->codes == SHEAF__NF4 ? "nf4" : "fp4", q->doubled ? "true" : "false");
    sheaf__text_add(text,
                    "    \"llm_int8_enable_fp32_cpu_offload\": false,\n"
                    "    \"llm_int8_has_fp16_weight\": false,\n"
                    "    \"llm_int8_skip_modules\": %s,\n    \"llm_int8_threshold\": 6.0,\n"
                    "    \"load_in_4bit\": %s,\n    \"load_in_8bit\": %s,\n"
                    "    \"quant_method\": \"bitsandbytes\"\n  }",
                    skip != NULL ? skip : "null", four ? "true" : "false", four ? "false" : "true");
}

static void gptq_config(sheaf_text *text, const sheaf__quant *q, const char *skip)
{
    sheaf__text_add(text,
                    "{\n    \"bits\": %d,\n    \"checkpoint_format\": \"gptq\",\n"
                    "    \"desc_act\": false,\n",
                    sheaf__code_bits(q->codes));
    if (skip != NULL)
        sheaf__text_add(text, "    \"dynamic\": %s,\n", skip);
    sheaf__text_add(text,
                    "    \"format\": \"gptq\",\n    \"group_size\": %" PRId64 ",\n"
                    "    \"lm_head\": false,\n    \"method\": \"gptq\",\n"
                    "    \"pack_dtype\": \"int32\",\n    \"quant_method\": \"gptq\",\n"
                    "    \"sym\": true\n  }",
                    q->block);
}

static void awq_config(sheaf_text *text, const sheaf__quant *q, const char *skip)
{
    sheaf__text_add(text,
                    "{\n    \"bits\": 4,\n    \"group_size\": %" PRId64 ",\n"
                    "    \"modules_to_not_convert\": %s,\n    \"quant_method\": \"awq\",\n"
                    "    \"version\": \"gemm\",\n    \"zero_point\": true\n  }",
                    q->block, skip != NULL ? skip : "null");
}

sheaf_status *sheaf__packer_set_config(char **json, const sheaf__packer *w,
                                       const sheaf_schema *schema)
{
    const sheaf__coded_tensor *of = NULL;
    char *value = NULL, *skip = NULL;
    sheaf_text text = { 0 };
    for (int64_t i = 0; of == NULL && i < schema->count; i++)
        of = sheaf__packer_tensor(w, i);
    if (of == NULL)
        return NULL;
    const bool gptq = sheaf__is_gptq(of->packing->by);
    sheaf_status *st = skip_list(&skip, schema, gptq);
    if (st == NULL)
        (gptq                              ? gptq_config
         : of->packing->by == SHEAF__AWQ_4 ? awq_config
                                           : bnb_config)(&text, &of->form, skip);
    TRY(st, sheaf__text_take(&value, &text));
    TRY(st, sheaf_hf_config_change(json, "quantization_config", value));
    sheaf__text_release(&text);
    free(skip);
    free(value);
    return st;
}
