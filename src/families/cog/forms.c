/* forms.c - the config of CogVLM or CogAgent in the other of its two forms: SAT's
 * model_config.json, and config.json of the hub.
 *
 * What the other form has no key for travels along: the hub's has all of SAT's in `sat_config`,
 * from which SAT's is made again. Keys that both have are those of the text that is translated. */
#include "base/base.h"
#include "base/json_scan.h"
#include "families/cog/cog.h"

/* SAT's spelling of a template, and the hub's, which differ for CogVLM. */
static const char *const sat_templates[] = { "base", "chat_old", "vqa" }, *const hub_templates[] = {
    "base", "chat", "vqa"
};

static const char *template_of(const char *name, bool agent, const char *const *from,
                               const char *const *to)
{
    for (int i = 0; name != NULL && !agent && i < 3; i++)
        if (strcmp(name, from[i]) == 0)
            return to[i];
    return agent ? name : NULL;
}

/* ---- small steps ---- */

/* Sets a key unless it says the same already, so that its spelling stays. */
static void put(json_t *object, const char *key, json_t *value)
{
    const json_t *is = json_object_get(object, key);
    const bool equal = json_equal(is, value) || (json_is_number(is) && json_is_number(value) &&
                                                 json_number_value(is) == json_number_value(value));
    if (is != NULL && equal)
        json_decref(value);
    else
        json_object_set_new(object, key, value);
}

static void put_number(json_t *object, const char *key, int64_t value)
{
    put(object, key, json_integer(value));
}

/* Copies a key as it stands. */
static void take(json_t *to, const json_t *from, const char *key)
{
    json_t *value = json_object_get(from, key);
    if (value != NULL)
        put(to, key, json_deep_copy(value));
}

/* Keys that both forms have. Ids that are there stay: SAT's pad may lie outside the table. */
static void take_shared(json_t *to, const json_t *from)
{
    static const char *const shared[] = { "dtype", "torch_dtype", "sheaf_tokenizer",
                                          "encoder_override", NULL },
                             *const ids[] = { "bos_token_id", "eos_token_id", "pad_token_id",
                                              NULL };
    for (const char *const *key = shared; *key != NULL; key++)
        take(to, from, *key);
    for (const char *const *key = ids; *key != NULL; key++)
        if (json_object_get(to, *key) == NULL)
            take(to, from, *key);
}

static sheaf_status *cannot(const char *where, const char *expected)
{
    return sheaf_try_this(
        sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "the other form of this model: %s", where),
                       "%s", expected),
        "sheaf convert SRC DST --to sheaf keeps the model as it is");
}

/* With few digits where they read back as the same numbers. */
static sheaf_status *write_text(char **out, json_t *root)
{
    enum { FEW = 15 };
    json_t *again = NULL;
    sheaf_status *st = root == NULL ? sheaf__no_memory("config") : NULL;
    TRY(st, sheaf__json_text(out, root, JSON_INDENT(4) | JSON_REAL_PRECISION(FEW)));
    TRY(st, sheaf__json_parse(&again, *out, strlen(*out)));
    if (st == NULL && !json_equal(root, again)) {
        free(*out);
        st = sheaf__json_text(out, root, JSON_INDENT(4));
    }
    json_decref(again);
    json_decref(root);
    return st;
}

/* ---- SAT's config inside the hub's, as it is written ---- */

static const char inner_key[] = "sat_config";

/* `text`, of an object with keys, and `inner` in it. */
static sheaf_status *put_inside(char **text, const char *inner)
{
    sheaf_text whole = { 0 };
    const char *end = strrchr(*text, '}');
    while (end > *text && strchr(" \n", end[-1]) != NULL)
        end--;
    sheaf__text_bytes(&whole, *text, (size_t)(end - *text));
    sheaf__text_add(&whole, ",\n    \"%s\": %s\n}", inner_key, inner);
    free(*text);
    *text = NULL;
    return sheaf__text_take(text, &whole);
}

/* The value of that key (malloc'd) in the text of an object that has it. */
static sheaf_status *take_inside(char **out, const char *text)
{
    sheaf_json_scan scan;
    sheaf_status *st = sheaf__scan_init(&scan, text, strlen(text), true);
    bool more = sheaf__scan_take(&scan, '{');
    for (bool first = true; st == NULL && *out == NULL && more; first = false) {
        char *name = NULL;
        st = sheaf__scan_next_key(&scan, first, &more, &name);
        if (st == NULL && more) {
            sheaf__scan_peek(&scan); /* to the value */
            const char *begin = scan.at;
            st = sheaf__scan_skip(&scan, 1);
            if (st == NULL && strcmp(name, inner_key) == 0 &&
                (*out = strndup(begin, (size_t)(scan.at - begin))) == NULL)
                st = sheaf__no_memory("config");
        }
        free(name);
    }
    return st;
}

/* ---- SAT's to the hub's ---- */

/* The hub's classes have experts in all layers, and cross-attention in all or in none. */
static sheaf_status *check_for_hub(const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    const bool agent = sheaf__cog_is_agent(c);
    for (int64_t i = 0; i < c->layers; i++)
        if (sheaf__layer_in(c->cross_layers, i) != agent)
            return cannot("is_decoder", agent ? "cross-attention in every layer of a CogAgent"
                                              : "no cross-attention in a CogVLM");
    if (c->experts != c->layers)
        return cannot("num_layers", "visual experts in every layer: at most 32");
    if (v->height != v->width)
        return cannot("eva_args.image_size", "square pictures");
    return v->vocab == 1 && v->positions == c->patches + 1
               ? NULL
               : cannot("eva_args", "a class row and a position for each patch and for it");
}

static json_t *hub_vision(const sheaf_vit *v)
{
    return json_pack("{s:f, s:s, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:I, s:I}", "dropout_prob", 0.0,
                     "hidden_act", "gelu", "hidden_size", (json_int_t)v->hidden, "image_size",
                     (json_int_t)v->height, "in_channels", (json_int_t)v->channels,
                     "intermediate_size", (json_int_t)v->ffn, "layer_norm_eps", v->norm_eps,
                     "num_heads", (json_int_t)v->heads, "num_hidden_layers", (json_int_t)v->layers,
                     "num_positions", (json_int_t)v->positions, "patch_size", (json_int_t)v->patch);
}

sheaf_status *sheaf__cog_hub_form(char **out, const char *json, const sheaf_config *c)
{
    const bool agent = sheaf__cog_is_agent(c);
    const char *class = agent ? "CogAgentForCausalLM" : "CogVLMForCausalLM";
    json_t *sat = NULL;
    sheaf_status *st = check_for_hub(c);
    TRY(st, sheaf__json_parse(&sat, json, strlen(json)));
    if (st != NULL)
        return st;
    json_t *root = json_pack(
        "{s:[s], s:{s:s, s:s}, s:I, s:I, s:I, s:I, s:s, s:f, s:f, s:I, s:b, s:b, s:o, s:I}",
        "architectures", class, "auto_map", "AutoConfig",
        agent ? "configuration_cogagent.CogAgentConfig" : "configuration_cogvlm.CogVLMConfig",
        "AutoModelForCausalLM",
        agent ? "modeling_cogagent.CogAgentForCausalLM" : "modeling_cogvlm.CogVLMForCausalLM",
        "hidden_size", (json_int_t)c->hidden, "intermediate_size", (json_int_t)c->ffn,
        "num_hidden_layers", (json_int_t)c->layers, "num_attention_heads", (json_int_t)c->heads,
        "hidden_act", "silu", "initializer_range", c->initializer_range, "rms_norm_eps", c->rms_eps,
        "vocab_size", (json_int_t)c->vocab, "tie_word_embeddings", 0, "use_cache", 1,
        "vision_config", hub_vision(&c->vit), "max_position_embeddings",
        (json_int_t)c->max_position);
    if (agent) {
        put_number(root, "cross_hidden_size", c->cross_width);
        put_number(root, "cross_compute_hidden_size", c->heads * c->cross_head_dim);
        put_number(root, "cross_image_size", c->encoder.image);
    }
    const char *version =
        template_of(json_string_value(json_object_get(sat, "text_processor_version")), agent,
                    sat_templates, hub_templates);
    json_object_set_new(root, "template_version", json_string(version != NULL ? version : "base"));
    put_number(root, "pad_token_id", c->pad < 0 ? 0 : c->pad);
    take_shared(root, sat);
    json_decref(sat);
    st = write_text(out, root);
    return st == NULL ? put_inside(out, json) : st;
}

/* ---- the hub's to SAT's ---- */

static void put_vit(json_t *to, const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    put(to, "model_class", json_string("EVA2CLIPModel"));
    put_number(to, "num_layers", v->layers);
    put_number(to, "hidden_size", v->hidden);
    put_number(to, "num_attention_heads", v->heads);
    put_number(to, "vocab_size", 1);
    put(to, "layernorm_order", json_string("post"));
    if (json_object_get(to, "model_parallel_size") == NULL)
        put_number(to, "model_parallel_size", 1);
    put_number(to, "max_sequence_length", v->positions);
    put_number(to, "inner_hidden_size", v->ffn);
    put(to, "use_final_layernorm", json_false());
    put(to, "layernorm_epsilon", json_real(v->norm_eps));
    put(to, "row_parallel_linear_final_bias", json_false());
    put(to, "image_size", json_pack("[I, I]", (json_int_t)v->height, (json_int_t)v->width));
    put_number(to, "pre_len", 1);
    put_number(to, "post_len", 0);
    put_number(to, "in_channels", v->channels);
    put_number(to, "patch_size", v->patch);
}

/* SAT's own value of a norm's epsilon needs no key. */
static const double SAT_EPS = 1e-5;

static void put_cross(json_t *to, const sheaf_config *c)
{
    if (!json_is_array(json_object_get(to, "is_decoder")))
        put(to, "is_decoder", json_true());
    put_number(to, "cross_attn_hidden_size", c->cross_width);
    put_number(to, "cross_hidden_size_per_attention_head", c->cross_head_dim);
    put_number(to, "cross_image_pix", c->encoder.image);
}

sheaf_status *sheaf__cog_sat_form(char **out, const char *json, const sheaf_config *c)
{
    const bool agent = sheaf__cog_is_agent(c);
    json_t *hub = NULL;
    sheaf_status *st = c->layers > SHEAF__COG_EXPERT_LAYERS
                           ? cannot("num_hidden_layers", "at most 32 layers, all of which have "
                                                         "visual experts")
                           : NULL;
    TRY(st, sheaf__json_parse(&hub, json, strlen(json)));
    if (st != NULL)
        return st;
    const json_t *kept = json_object_get(hub, inner_key);
    json_t *root = json_is_object(kept) ? json_deep_copy(kept) : json_object();
    if (json_object_get(root, "model_class") == NULL)
        put(root, "model_class", json_string(agent ? "CogAgentModel" : "CogVLMModel"));
    put_number(root, "num_layers", c->layers);
    put_number(root, "hidden_size", c->hidden);
    put_number(root, "num_attention_heads", c->heads);
    put_number(root, "vocab_size", c->vocab);
    put(root, "layernorm_order", json_string("pre"));
    if (json_object_get(root, "model_parallel_size") == NULL)
        put_number(root, "model_parallel_size", 1);
    put_number(root, "max_sequence_length", c->max_position);
    if (agent)
        put_cross(root, c);
    put(root, "use_bias", json_false());
    put_number(root, "inner_hidden_size", c->ffn);
    put_number(root, "image_length", c->patches);
    if (c->rms_eps != SAT_EPS || json_object_get(root, "layernorm_epsilon") != NULL)
        put(root, "layernorm_epsilon", json_real(c->rms_eps));
    if (json_object_get(root, "eva_args") == NULL)
        json_object_set_new(root, "eva_args", json_object());
    put_vit(json_object_get(root, "eva_args"), c);
    const char *version = template_of(json_string_value(json_object_get(hub, "template_version")),
                                      agent, hub_templates, sat_templates);
    if (json_object_get(root, "text_processor_version") == NULL && version != NULL && kept == NULL)
        put(root, "text_processor_version", json_string(version));
    if (kept != NULL) /* SAT's may have none */
        json_object_del(hub, "pad_token_id");
    take_shared(root, hub);
    *out = NULL;
    if (kept != NULL && json_equal(kept, root))
        st = take_inside(out, json);
    if (st == NULL && *out == NULL)
        st = write_text(out, json_incref(root));
    json_decref(root);
    json_decref(hub);
    return st;
}
