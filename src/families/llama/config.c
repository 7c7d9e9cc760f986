/* config.c - config.json of the families that transformers has a class of with Llama's keys. What
 * each key means is in docs/formats.md. */
#include "base/base.h"
#include "families/llama/llama.h"
#include "schema/config_keys.h"
#include "schema/config_text.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum {
    MOST_LAYERS = SHEAF_MAX_LAYERS,
    MOST_HEADS = 1 << 16,
    MOST_HEAD_DIM = 1 << 16,
    MOST_HIDDEN = 1 << 24,
    MOST_FFN = 1 << 26,
    MOST_VOCAB = INT32_MAX, /* token ids are int32_t */
    MOST_POSITION = INT32_MAX,
};

/* Families with a class in transformers: their names or those of the classes. */
enum { MOST_KNOWN = 64 };
static int known_names(const char *known[MOST_KNOWN], bool architecture)
{
    const sheaf__family *family;
    int n = 0;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL && n < MOST_KNOWN; i++)
        if (family->architecture != NULL)
            known[n++] = architecture ? family->architecture : family->name;
    return n;
}

/* "llama, mistral or qwen2" */
static void show_names(char text[512], const char *const *known, int n, const char *last)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < n && at < 511; i++)
        at += (size_t)snprintf(text + at, 512 - at, "%s%s",
                               i == 0       ? ""
                               : i + 1 == n ? last
                                            : ", ",
                               known[i]);
}

/* The family whose model_type (or architecture) is `name`; refuses others by name. */
static const sheaf__family *find_family(sheaf_json_reader *r, const char *key, const char *name,
                                        bool architecture)
{
    const char *known[MOST_KNOWN];
    char all[512];
    const sheaf__family *family;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->architecture != NULL &&
            (architecture ? sheaf__is_class(family, name) : strcmp(family->name, name) == 0))
            return family;
    const int n = known_names(known, architecture);
    const bool with_images = strcmp(name, "gemma3") == 0 || strncmp(name, "Gemma3ForCond", 13) == 0;
    const char *meant = with_images ? NULL : sheaf__misspelt(name, known, n);
    show_names(all, known, n, ", ");
    sheaf_status *st = sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "one of %s", all);
    sheaf_found(st, "\"%.100s\"", name);
    if (with_images)
        sheaf_try_this(st,
                       "its text model alone, of model_type gemma3_text: Gemma 3 with images is "
                       "not supported");
    else if (meant != NULL)
        sheaf_try_this(st, "\"%s\", if that was meant, in config.json", meant);
    else
        sheaf_try_this(
            st,
            "another model: this one is not supported. sheaf merge, verify and diff take models of any kind");
    return NULL;
}

static void read_family(sheaf_json_reader *r, sheaf_config *c)
{
    const char *type = sheaf__json_string(r, "model_type"), *known[MOST_KNOWN];
    const json_t *architectures = sheaf__json_list(r, "architectures");
    const sheaf__family *by_type = NULL, *by_class = NULL;
    if (r->st == NULL && type != NULL)
        by_type = find_family(r, "model_type", type, false);
    if (r->st == NULL && json_array_size(architectures) > 0) {
        const char *name = json_string_value(json_array_get(architectures, 0));
        if (name == NULL || json_array_size(architectures) != 1)
            sheaf__json_fail(r, SHEAF_E_FORMAT, "architectures", "a list of one string");
        else
            by_class = find_family(r, "architectures", name, true);
    }
    if (r->st == NULL && by_type == NULL && by_class == NULL) {
        char all[512];
        show_names(all, known, known_names(known, false), " or ");
        sheaf__json_fail(r, SHEAF_E_FORMAT, "model_type", "%s", all);
    }
    if (r->st == NULL && by_type != NULL && by_class != NULL && by_type != by_class)
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "architectures",
                                     "%s, as 'model_type' is %s", by_type->architecture,
                                     by_type->name),
                    "%s", by_class->architecture);
    if (r->st == NULL)
        c->family = (by_type != NULL ? by_type : by_class)->id;
}

static void read_sizes(sheaf_json_reader *r, sheaf_config *c)
{
    c->vocab = sheaf__json_int(r, "vocab_size", 1, MOST_VOCAB, SHEAF_JSON_NEEDED);
    c->hidden = sheaf__json_int(r, "hidden_size", 1, MOST_HIDDEN, SHEAF_JSON_NEEDED);
    c->ffn = sheaf__json_int(r, "intermediate_size", 1, MOST_FFN, SHEAF_JSON_NEEDED);
    c->layers = sheaf__json_int(r, "num_hidden_layers", 1, MOST_LAYERS, SHEAF_JSON_NEEDED);
    c->heads = sheaf__json_int(r, "num_attention_heads", 1, MOST_HEADS, SHEAF_JSON_NEEDED);
    /* null means one per query head everywhere; absent does so only for some, the other classes
     * have a number of their own there that a file should not rely on. */
    const sheaf__llama_form *form = sheaf__llama_form_of(c);
    const bool absent_ok =
        form->kv_heads || json_object_get(r->object, "num_key_value_heads") != NULL;
    c->kv_heads = sheaf__json_int(r, "num_key_value_heads", 1, MOST_HEADS,
                                  absent_ok ? c->heads : SHEAF_JSON_NEEDED);
    c->head_dim =
        sheaf__json_int(r, "head_dim", 1, MOST_HEAD_DIM,
                        json_object_get(r->object, "head_dim") == NULL ? form->head_dim : 0);
    if (r->st != NULL)
        return;
    if (c->heads % c->kv_heads != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "num_key_value_heads",
                         "a number that divides num_attention_heads, %" PRId64, c->heads);
    if (c->head_dim == 0 && (c->hidden % c->heads != 0 || c->hidden / c->heads > MOST_HEAD_DIM))
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "head_dim",
                         "a whole number, as hidden_size %" PRId64
                         " is not num_attention_heads %" PRId64 " times a head's width",
                         c->hidden, c->heads);
    if (c->head_dim == 0)
        c->head_dim = c->hidden / c->heads;
    c->max_position =
        sheaf__json_int(r, "max_position_embeddings", 1, MOST_POSITION, form->max_position);
    c->rms_eps = sheaf__json_real(r, "rms_norm_eps", 0, 1, form->eps == 0 ? 1e-6 : form->eps);
    c->initializer_range = sheaf__json_real(r, "initializer_range", 0, 1e6, 0.02);
    c->tied = sheaf__json_bool(r, "tie_word_embeddings", form->tied);
}

static void read_biases(sheaf_json_reader *r, sheaf_config *c)
{
    const sheaf__llama_form *form = sheaf__llama_form_of(c);
    const bool declared = form->bias == SHEAF__BIAS_KEYED, qkv = form->bias == SHEAF__BIAS_QKV,
               qkv_declared = form->bias == SHEAF__BIAS_KEYED_QKV;
    const bool attention = sheaf__json_bool(r, "attention_bias", qkv || qkv_declared);
    const bool mlp = sheaf__json_bool(r, "mlp_bias", false);
    if (!declared && !qkv_declared && attention != qkv)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "attention_bias",
                         "%s, or no such key, for model_type %s", qkv ? "true" : "false",
                         sheaf_family_name(c->family));
    if (!form->mlp_bias && mlp)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "mlp_bias", "false for model_type %s",
                         sheaf_family_name(c->family));
    c->qkv_bias = attention;
    c->o_bias = declared && attention;
    c->mlp_bias = mlp;
}

/* As transformers hands it to torch: pad_token_id, or where that is absent what the class has; a
 * negative one counts from the end. */
static int64_t padding_of(const sheaf_json_reader *r, const sheaf_config *c)
{
    const json_t *value = json_object_get(r->object, "pad_token_id");
    const int64_t row = value == NULL         ? sheaf__llama_form_of(c)->padding
                        : json_is_null(value) ? 0
                        : c->pad >= 0         ? c->pad + 1
                                              : c->vocab + json_integer_value(value) + 1;
    return row > c->vocab ? 0 : row;
}

static void read_tokens(sheaf_json_reader *r, sheaf_config *c)
{
    c->bos = sheaf__config_read_id(r, "bos_token_id", c->vocab);
    c->pad = sheaf__config_read_id(r, "pad_token_id", c->vocab);
    c->padding = padding_of(r, c);
    sheaf__config_read_eos(r, c);
    sheaf__config_read_tokenizer(r, c);
}

/* ---- layers that differ ---- */

/* no_rope_layers: 1 for each layer that turns, or every so-manieth is without. */
static void read_no_rope(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *list = sheaf__json_list(r, "no_rope_layers");
    const int64_t every = sheaf__json_int(r, "no_rope_layer_interval", 1, INT32_MAX, 4);
    if (list != NULL && (int64_t)json_array_size(list) < c->layers) {
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "no_rope_layers",
                                     "one for each of the %" PRId64 " layers", c->layers),
                    "%zu", json_array_size(list));
        return;
    }
    for (int64_t i = 0; i < c->layers; i++) {
        const json_t *turns = list == NULL ? NULL : json_array_get(list, (size_t)i);
        const json_int_t n =
            json_is_boolean(turns) ? json_is_true(turns) : json_integer_value(turns);
        if (list != NULL &&
            ((!json_is_integer(turns) && !json_is_boolean(turns)) || n < 0 || n > 1))
            sheaf__json_fail(r, SHEAF_E_FORMAT, "no_rope_layers", "1 or 0 for each layer");
        else if (list != NULL ? n == 0 : (i + 1) % every == 0)
            sheaf__layer_add(c->no_rope, i);
    }
}

/* layer_types of 5.x: which layers see a window; false: there is no such list. */
static bool read_layer_types(sheaf_json_reader *r, const sheaf_config *c,
                             uint64_t windowed[SHEAF_MAX_LAYERS / 64])
{
    const json_t *types = sheaf__json_list(r, "layer_types");
    if (types == NULL)
        return false;
    if ((int64_t)json_array_size(types) != c->layers) {
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "layer_types", "one for each of the %" PRId64 " layers",
                         c->layers);
        return false;
    }
    for (int64_t i = 0; i < c->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const bool full = type != NULL && strcmp(type, "full_attention") == 0;
        const bool sliding = type != NULL && strcmp(type, "sliding_attention") == 0;
        if (sliding)
            sheaf__layer_add(windowed, i);
        if (!full && !sliding) {
            sheaf_found(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "layer_types",
                                         "\"full_attention\" or \"sliding_attention\""),
                        "%s%.100s%s at layer %" PRId64, type ? "\"" : "", type ? type : "no string",
                        type ? "\"" : "", i);
            return false;
        }
    }
    return true;
}

/* As the first layer with a window, and those behind it without. */
static void set_windowed(sheaf_config *c, const uint64_t windowed[SHEAF_MAX_LAYERS / 64])
{
    int64_t from = 0;
    while (from < c->layers && !sheaf__layer_in(windowed, from))
        from++;
    c->window = from < c->layers ? c->window : 0;
    c->window_from_layer = c->window > 0 ? from : 0;
    for (int64_t i = from; i < c->layers && c->window > 0; i++)
        if (!sheaf__layer_in(windowed, i))
            sheaf__layer_add(c->full_layers, i);
}

/* Layers with a window, where no layer_types list them; full_layers: the number of layers before
 * them that have none, or the period of such layers. */
static void rule_of_windows(const sheaf_config *c, sheaf__window_rule rule, int64_t full_layers,
                            uint64_t windowed[SHEAF_MAX_LAYERS / 64])
{
    for (int64_t i = 0; i < c->layers && c->window > 0; i++)
        if (rule == SHEAF__WINDOW_ALL || rule == SHEAF__WINDOW_IF_USED ||
            (rule == SHEAF__WINDOW_FROM_LAYER && i >= full_layers) ||
            (rule == SHEAF__WINDOW_PATTERN && (i + 1) % full_layers != 0) ||
            (rule == SHEAF__WINDOW_NO_ROPE && sheaf__layer_in(c->no_rope, i)))
            sheaf__layer_add(windowed, i);
}

static void read_window(sheaf_json_reader *r, sheaf_config *c)
{
    const sheaf__llama_form *form = sheaf__llama_form_of(c);
    uint64_t typed[SHEAF_MAX_LAYERS / 64] = { 0 }, ruled[SHEAF_MAX_LAYERS / 64] = { 0 };
    int64_t window = 0;
    if (form->windows != SHEAF__WINDOW_NEVER)
        window = sheaf__json_int(r, "sliding_window", 1, MOST_POSITION,
                                 json_object_get(r->object, "sliding_window") == NULL ? form->window
                                                                                      : 0);
    const bool use = sheaf__json_bool(r, "use_sliding_window", false);
    int64_t full_layers = sheaf__json_int(r, "max_window_layers", 0, INT32_MAX, 28);
    if (form->windows == SHEAF__WINDOW_PATTERN)
        full_layers = form->pattern_said ? sheaf__json_int(r, "sliding_window_pattern", 1,
                                                           INT32_MAX, form->pattern)
                                         : form->pattern;
    const bool chosen = form->windows == SHEAF__WINDOW_FROM_LAYER ||
                        form->windows == SHEAF__WINDOW_NO_ROPE ||
                        form->windows == SHEAF__WINDOW_IF_USED;
    c->window = chosen && !use ? 0 : window;
    rule_of_windows(c, form->windows, full_layers, ruled);
    const bool has_types = read_layer_types(r, c, typed);
    if (r->st != NULL)
        return;
    const bool any = memcmp(typed, (uint64_t[SHEAF_MAX_LAYERS / 64]){ 0 }, sizeof typed) != 0;
    /* SmolLM3 as well: without use_sliding_window its class makes masks by the list all the same,
     * and tells kernels that need no mask of no window. */
    if (has_types && any && c->window == 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "layer_types",
                         "\"full_attention\" only, as no window is in use");
    else if (!has_types && form->windows == SHEAF__WINDOW_PATTERN && window == 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "sliding_window", "a number, as layers see a window");
    else if (has_types &&
             (form->windows == SHEAF__WINDOW_ALL || form->windows == SHEAF__WINDOW_IF_USED) &&
             memcmp(typed, ruled, sizeof typed) != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "layer_types",
                         "one kind for all layers of a %s model", sheaf__family_for(c)->title);
    else /* a list of layers wins over the rule */
        set_windowed(c, has_types ? typed : ruled);
}

/* ---- Gemma's keys ---- */

/* null is none; absent what its class has. */
static double read_cap(sheaf_json_reader *r, const char *key, double absent)
{
    return sheaf__json_real(r, key, 1e-6, 1e9,
                            json_object_get(r->object, key) == NULL ? absent : 0);
}

static void read_gemma(sheaf_json_reader *r, sheaf_config *c)
{
    const sheaf__llama_form *form = sheaf__llama_form_of(c);
    sheaf__config_want_word(r, "hidden_activation", "gelu_pytorch_tanh");
    if (sheaf__json_bool(r, "use_bidirectional_attention", false))
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "use_bidirectional_attention",
                         "false or null: another value lets tokens see those behind them");
    if (form->query_scalar == 0)
        return; /* the first Gemma */
    c->query_scalar = sheaf__json_real(r, "query_pre_attn_scalar", 1e-6, 1e9, form->query_scalar);
    c->attention_cap =
        form->attention_caps ? read_cap(r, "attn_logit_softcapping", form->attention_cap) : 0;
    c->logit_cap = read_cap(r, "final_logit_softcapping", form->logit_cap);
}

/* ---- all keys ---- */

/* "repository--module.Class", or without the repository. */
static bool names_class(const json_t *entry, const char *code)
{
    const char *name = json_string_value(entry);
    const char *inner = name == NULL ? NULL : strstr(name, "--");
    return code != NULL && name != NULL && strcmp(inner == NULL ? name : inner + 2, code) == 0;
}

/* Code that comes with the model may compute anything, so only a tokenizer may be custom, and a
 * class that is now in transformers. */
static void check_auto_map(sheaf_json_reader *r, const char *code)
{
    const char *name;
    json_t *entry;
    json_object_foreach(json_object_get(r->object, "auto_map"), name, entry)
    {
        if (strcmp(name, "AutoTokenizer") != 0 && strcmp(name, "AutoConfig") != 0 &&
            !names_class(entry, code))
            sheaf_found(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "auto_map",
                                         "no program code of the model's own"),
                        "\"%.100s\"", name);
    }
}

static void check_keys(sheaf_json_reader *r, const sheaf_config *c, sheaf_text *unknown)
{
    const sheaf__llama_form *form = sheaf__llama_form_of(c);
    sheaf__key_lists lists = sheaf__transformers_keys;
    lists.own = form->ignored != NULL   ? form->ignored
                : form->mixture != NULL ? form->mixture->keys
                : form->no_rope         ? "no_rope_layers no_rope_layer_interval"
                                        : NULL;
    sheaf__config_keys(r, &lists, unknown);
    check_auto_map(r, form->code);
    const char *act = form->gelu ? NULL : sheaf__json_string(r, "hidden_act");
    if (act != NULL && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "hidden_act", "\"silu\" (also called \"swish\")");
}

void sheaf__llama_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    read_family(r, c);
    if (r->st == NULL)
        check_keys(r, c, unknown);
    if (r->st == NULL)
        read_sizes(r, c);
    if (r->st != NULL)
        return;
    read_biases(r, c);
    read_tokens(r, c);
    sheaf__config_read_dtype(r, c);
    if (sheaf__llama_form_of(c)->no_rope)
        read_no_rope(r, c);
    if (sheaf__llama_form_of(c)->mixture != NULL)
        sheaf__llama_mixture(r, c, sheaf__llama_form_of(c)->mixture);
    if (sheaf__llama_form_of(c)->gelu)
        read_gemma(r, c);
    read_window(r, c);
    sheaf__llama_rope(r, c, sheaf__llama_form_of(c), unknown);
}

void sheaf__llama_text(sheaf_text *t, const sheaf_config *c)
{
    sheaf__config_whole(t, "intermediate_size", c->ffn);
    sheaf__config_whole(t, "num_hidden_layers", c->layers);
    sheaf__config_whole(t, "num_key_value_heads", c->kv_heads);
    sheaf__config_whole(t, "head_dim", c->head_dim);
    sheaf__config_whole(t, "max_position_embeddings", c->max_position);
    sheaf__config_real(t, "rms_norm_eps", c->rms_eps);
    sheaf__config_yes_no(t, "attention_bias", c->qkv_bias || c->o_bias);
    sheaf__config_yes_no(t, "mlp_bias", c->mlp_bias);
    sheaf__config_yes_no(t, "tie_word_embeddings", c->tied);
    sheaf__config_rope(t, c);
    for (int i = 0; i < 3 && c->rope.section[0] > 0; i++)
        sheaf__config_whole(t, "rope_scaling.mrope_section", c->rope.section[i]);
    if (c->local_theta > 0)
        sheaf__config_real(t, "rope_local_base_freq", c->local_theta);
    if (c->query_scalar > 0) {
        sheaf__config_real(t, "query_pre_attn_scalar", c->query_scalar);
        sheaf__config_real(t, "attn_logit_softcapping", c->attention_cap);
        sheaf__config_real(t, "final_logit_softcapping", c->logit_cap);
    }
    sheaf__config_whole(t, "sliding_window", c->window);
    sheaf__config_whole(t, "max_window_layers", c->window_from_layer);
    if (c->num_experts > 0) {
        sheaf__config_whole(t, "num_local_experts", c->num_experts);
        sheaf__config_whole(t, "num_experts_per_tok", c->top_k);
        sheaf__config_whole(t, "moe_intermediate_size", c->expert_ffn);
        sheaf__config_yes_no(t, "norm_topk_prob", !c->shares_of_all);
        if (c->router_loss > 0)
            sheaf__config_real(t, "router_aux_loss_coef", c->router_loss);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        if (sheaf__layer_in(c->full_layers, i))
            sheaf__config_whole(t, "layer_types.full_attention", i);
        if (sheaf__layer_in(c->no_rope, i))
            sheaf__config_whole(t, "no_rope_layers.0", i);
        if (sheaf__layer_in(c->mlp_layers, i))
            sheaf__config_whole(t, "mlp_only_layers", i);
    }
}
