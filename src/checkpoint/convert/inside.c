/* inside.c - PEFT's LoRA tensors in a checkpoint of the whole model, as an adapter's folder.
 *
 * A checkpoint has the factors but not their scale. That is in the adapter_config.json which
 * Hugging Face's Trainer writes beside it, or comes from --lora-alpha; the rest of the config
 * follows from names and shapes. */
#include "base/base.h"
#include "checkpoint/convert/convert.h"

#include "dialects/common/model_folder.h"
#include "dialects/common/wrapped.h"
#include "dialects/peft/peft.h"

static sheaf_status *refused(const sheaf__converter *k, const char *name, const char *what)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s: '%s'", k->o->src, name),
                                      "one adapter of LoRA, with whole modules beside it"),
                       "%s", what);
}

/* The adapter's tensors under the names that PEFT saves, which two adapters would share. */
static sheaf_status *spell(const sheaf__converter *k, sheaf_catalog *c)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < c->count; i++) {
        char *name = NULL;
        const char *stored = c->tensor[i].entry.name;
        if (!sheaf__is_lora_tensor(stored, true))
            return refused(k, stored, "a tensor of another kind of adapter");
        st = sheaf__peft_name(&name, stored);
        if (st != NULL)
            return st;
        free((char *)stored);
        c->tensor[i].entry.name = name;
    }
    st = sheaf__catalog_sort(c);
    for (int64_t i = 1; st == NULL && i < c->count; i++)
        if (strcmp(c->tensor[i - 1].entry.name, c->tensor[i].entry.name) == 0)
            st = refused(k, c->tensor[i].entry.name, "it in several adapters");
    return st;
}

/* ---- the config ---- */

/* "MODULE" of base_model.model.MODULE.lora_A.weight and .lora_embedding_A; *rank. NULL: no A. */
static char *module_of(int64_t *rank, const sheaf_logical *t)
{
    static const char *const ends[] = { ".lora_A.weight", ".lora_embedding_A" };
    const char *name = t->entry.name + strlen("base_model.model.");
    for (int i = 0; i < 2; i++)
        if (sheaf__ends_with(name, ends[i]) && t->entry.ndim > 0) {
            *rank = t->entry.shape[0];
            return strndup(name, strlen(name) - strlen(ends[i]));
        }
    return NULL;
}

static void add_item(sheaf_text *list, const char *word)
{
    sheaf__text_add(list, list->at == NULL ? "" : ", ");
    sheaf__text_json(list, word);
}

static sheaf_status *made_config(char **out, const sheaf_catalog *c, double alpha)
{
    sheaf_text targets = { 0 }, ranks = { 0 }, saved = { 0 }, text = { 0 };
    int64_t all = 0, rank;
    bool dora = false, bias = false;
    for (int64_t i = 0; i < c->count; i++) {
        const char *name = c->tensor[i].entry.name + strlen("base_model.model.");
        char *module = module_of(&rank, &c->tensor[i]);
        dora = dora || strstr(name, ".lora_magnitude_vector") != NULL;
        bias = bias || sheaf__ends_with(name, ".lora_B.bias");
        if (module != NULL) {
            all = all == 0 ? rank : all;
            add_item(&targets, module);
            if (rank != all) {
                add_item(&ranks, module);
                sheaf__text_add(&ranks, ": %" PRId64, rank);
            }
        } else if (strstr(name, ".lora_") == NULL) {
            module = strndup(name, (size_t)(strrchr(name, '.') - name));
            if (module != NULL && sheaf__ends_with(name, ".weight"))
                add_item(&saved, module);
        }
        free(module);
    }
    sheaf__text_add(&text,
                    "{\n  \"peft_type\": \"LORA\",\n  \"r\": %" PRId64 ",\n  \"lora_alpha\": %.17g",
                    all, alpha);
    sheaf__text_add(
        &text,
        ",\n  \"target_modules\": [%s],\n  \"rank_pattern\": {%s},\n  \"alpha_pattern\": "
        "{},\n  \"modules_to_save\": %s%s%s,\n  \"use_dora\": %s,\n  \"lora_bias\": %s,\n  \"use_rslora\": "
        "false,\n  \"fan_in_fan_out\": false,\n  \"bias\": \"none\",\n  "
        "\"lora_dropout\": 0.0,\n  \"inference_mode\": true,\n  "
        "\"base_model_name_or_path\": null,\n  \"task_type\": null\n}\n",
        targets.at != NULL ? targets.at : "", ranks.at != NULL ? ranks.at : "",
        saved.at != NULL ? "[" : "null", saved.at != NULL ? saved.at : "",
        saved.at != NULL ? "]" : "", dora ? "true" : "false", bias ? "true" : "false");
    text.failed = text.failed || targets.failed || ranks.failed || saved.failed;
    sheaf__text_release(&targets);
    sheaf__text_release(&ranks);
    sheaf__text_release(&saved);
    return sheaf__text_take(out, &text);
}

static sheaf_status *find_config(sheaf__converter *k, const sheaf_catalog *c)
{
    char *config = NULL;
    const double alpha = k->o->lora_alpha;
    sheaf_status *st = sheaf__adapter_config_of(&config, k->root);
    if (st == NULL && (config != NULL) == (alpha > 0))
        st = sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", k->o->src),
                                       "the scale of its LoRA: adapter_config.json beside it, or "
                                       "`lora-alpha`"),
                        config != NULL ? "both" : "neither"),
            config != NULL ? "leave `lora-alpha` out, or move the config away if it is another's"
                           : "`lora-alpha`, with the lora_alpha of the run that wrote it");
    for (int64_t i = 0; st == NULL && config == NULL && i < c->count; i++) {
        const char *name = c->tensor[i].entry.name;
        if (strstr(name, ".trainable_tokens_delta") != NULL)
            st = refused(k, name, "rows of tokens that adapter_config.json alone numbers");
        else if (strstr(name, ".experts.lora_") != NULL ||
                 strstr(name, ".base_layer.lora_") != NULL)
            st = refused(k, name, "factors of parameters that adapter_config.json alone names");
    }
    free(k->config);
    k->config = NULL;
    if (st == NULL && config == NULL)
        st = made_config(&k->config, c, alpha);
    else if (st == NULL) /* trained biases lie in the base */
        st = sheaf_hf_config_set(&k->config, config, "bias", "\"none\"");
    free(config);
    return st;
}

sheaf_status *sheaf__convert_inside(sheaf__converter *k)
{
    sheaf_source *inner = NULL;
    sheaf_catalog *c = k->catalog;
    sheaf_status *st = sheaf__catalog_refusal(c);
    if (st != NULL)
        return st;
    sheaf__catalog_keep(c, 1u << SHEAF_LORA);
    st = spell(k, c);
    TRY(st, find_config(k, c));
    if (st != NULL)
        return st;
    k->catalog = NULL;
    st = sheaf__catalog_source(&inner, c, true);
    return st != NULL ? st : sheaf__convert_cast(k, inner);
}
