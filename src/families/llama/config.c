/* config.c - config.json of the families that transformers has a class of with Llama's keys. What
 * each key means is in docs/formats.md. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/llama/llama.h"
#include "schema/config_keys.h"
#include "schema/config_parts.h"

/* Sizes beyond any model in sight; every product of two of them fits int64_t. */
enum {
    MOST_LAYERS = 4096,
    MOST_HEADS = 1 << 16,
    MOST_HEAD_DIM = 1 << 16,
    MOST_HIDDEN = 1 << 24,
    MOST_FFN = 1 << 26,
    MOST_VOCAB = INT32_MAX, /* token ids are int32_t */
    MOST_POSITION = INT32_MAX,
};

/* What the class in transformers takes for an absent key. */
static const struct absent {
    int64_t max_position;
    bool kv_heads; /* num_key_value_heads: as num_attention_heads */
} absent[] = {
    [SHEAF_LLAMA] = { 2048, true },
    [SHEAF_MISTRAL] = { 4096 * 32, false },
    [SHEAF_QWEN2] = { 32768, false },
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
static void show_names(char text[256], const char *const *known, int n, const char *last)
{
    size_t at = 0;
    text[0] = '\0';
    for (int i = 0; i < n && at < 255; i++)
        at += (size_t)snprintf(text + at, 256 - at, "%s%s",
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
    char all[256];
    const sheaf__family *family;
    for (int i = 0; (family = sheaf__family_at(i)) != NULL; i++)
        if (family->architecture != NULL &&
            strcmp(architecture ? family->architecture : family->name, name) == 0)
            return family;
    const int n = known_names(known, architecture);
    const char *meant = sheaf__misspelt(name, known, n);
    show_names(all, known, n, ", ");
    sheaf_status *st = sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "one of %s", all);
    sheaf_found(st, "\"%.100s\"", name);
    if (meant != NULL)
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
        char all[256];
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
    /* null means one per query head everywhere; absent does so only for Llama, the other
     * classes have a number of their own there that a file should not rely on. */
    const bool absent_ok =
        absent[c->family].kv_heads || json_object_get(r->object, "num_key_value_heads") != NULL;
    c->kv_heads = sheaf__json_int(r, "num_key_value_heads", 1, MOST_HEADS,
                                  absent_ok ? c->heads : SHEAF_JSON_NEEDED);
    c->head_dim = sheaf__json_int(r, "head_dim", 1, MOST_HEAD_DIM, 0);
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
    c->max_position = sheaf__json_int(r, "max_position_embeddings", 1, MOST_POSITION,
                                      absent[c->family].max_position);
    c->rms_eps = sheaf__json_real(r, "rms_norm_eps", 0, 1, 1e-6);
    c->initializer_range = sheaf__json_real(r, "initializer_range", 0, 1e6, 0.02);
    c->tied = sheaf__json_bool(r, "tie_word_embeddings", false);
}

/* Biases: Llama says so, Mistral has none, Qwen2 always has them on q, k and v. */
static void read_biases(sheaf_json_reader *r, sheaf_config *c)
{
    const bool llama = c->family == SHEAF_LLAMA, qwen2 = c->family == SHEAF_QWEN2;
    const bool attention = sheaf__json_bool(r, "attention_bias", qwen2);
    const bool mlp = sheaf__json_bool(r, "mlp_bias", false);
    if (!llama && attention != qwen2)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "attention_bias",
                         "%s, or no such key, for model_type %s", qwen2 ? "true" : "false",
                         sheaf_family_name(c->family));
    if (!llama && mlp)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "mlp_bias", "false for model_type %s",
                         sheaf_family_name(c->family));
    c->qkv_bias = attention;
    c->o_bias = llama && attention;
    c->mlp_bias = mlp;
}
static void read_tokens(sheaf_json_reader *r, sheaf_config *c)
{
    c->bos = sheaf__config_read_id(r, "bos_token_id", c->vocab);
    c->pad = sheaf__config_read_id(r, "pad_token_id", c->vocab);
    sheaf__config_read_eos(r, c);
    sheaf__config_read_tokenizer(r, c);
}

/* ---- layers that see a window ---- */

/* layer_types of 5.x: *from is the first windowed layer, layers when none is. */
static bool read_layer_types(sheaf_json_reader *r, const sheaf_config *c, int64_t *from)
{
    const json_t *types = sheaf__json_list(r, "layer_types");
    if (types == NULL)
        return false;
    if ((int64_t)json_array_size(types) != c->layers) {
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "layer_types", "one for each of the %" PRId64 " layers",
                         c->layers);
        return false;
    }
    *from = c->layers;
    for (int64_t i = 0; i < c->layers; i++) {
        const char *type = json_string_value(json_array_get(types, (size_t)i));
        const bool full = type != NULL && strcmp(type, "full_attention") == 0;
        const bool sliding = type != NULL && strcmp(type, "sliding_attention") == 0;
        if (sliding && *from == c->layers)
            *from = i;
        if ((!full && !sliding) || (full && *from != c->layers)) {
            sheaf_found(
                sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "layer_types",
                                 "\"full_attention\" layers, then \"sliding_attention\" layers"),
                "%s%.100s%s at layer %" PRId64, type ? "\"" : "", type ? type : "no string",
                type ? "\"" : "", i);
            return false;
        }
    }
    return true;
}

static void read_window(sheaf_json_reader *r, sheaf_config *c)
{
    int64_t window = 0, from = 0, typed = 0;
    if (c->family != SHEAF_LLAMA) /* the Llama class has no window and ignores the key */
        window = sheaf__json_int(r, "sliding_window", 1, MOST_POSITION, 0);
    if (c->family != SHEAF_LLAMA && json_object_get(r->object, "sliding_window") == NULL)
        window = 4096; /* the default of both classes; null means none */
    const bool use = sheaf__json_bool(r, "use_sliding_window", false);
    const int64_t full_layers = sheaf__json_int(r, "max_window_layers", 0, INT32_MAX, 28);
    if (c->family == SHEAF_QWEN2) {
        window = use ? window : 0;
        from = full_layers < c->layers ? full_layers : c->layers;
    }
    const bool has_types = read_layer_types(r, c, &typed);
    if (r->st != NULL)
        return;
    if (has_types && c->family == SHEAF_QWEN2)
        from = typed; /* what is written out layer by layer wins over the rule */
    if (has_types && typed < c->layers && window == 0) {
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "layer_types",
                         "\"full_attention\" only, as no window is in use");
        return;
    }
    if (has_types && c->family == SHEAF_MISTRAL && typed != (window > 0 ? 0 : c->layers)) {
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "layer_types",
                         "one kind for all layers of a Mistral model");
        return;
    }
    if (window > 0 && from >= c->layers)
        window = 0;
    c->window = window;
    c->window_from_layer = window > 0 ? from : 0;
}

/* ---- rotary embedding ---- */

typedef struct rope_spelling {
    bool given;
    sheaf_rope_type type;
    double theta, factor, low, high, partial; /* 0 = not said */
    int64_t original;
} rope_spelling;

static const char *const rope_names[] = {
    [SHEAF_ROPE_DEFAULT] = "default",
    [SHEAF_ROPE_LINEAR] = "linear",
    [SHEAF_ROPE_LLAMA3] = "llama3",
};
enum { ROPE_NAMES = sizeof rope_names / sizeof *rope_names };

static void read_rope_type(sheaf_json_reader *r, rope_spelling *rope)
{
    const char *name = sheaf__json_string(r, "rope_type"), *old = sheaf__json_string(r, "type");
    const char *key = name != NULL ? "rope_type" : "type";
    if (name != NULL && old != NULL && strcmp(name, old) != 0)
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "type", "the same as 'rope_type', \"%s\"", name);
    if (name == NULL)
        name = old != NULL ? old : "default";
    for (int i = 0; i < ROPE_NAMES; i++)
        if (strcmp(name, rope_names[i]) == 0) {
            rope->type = (sheaf_rope_type)i;
            return;
        }
    if (r->st != NULL)
        return;
    const char *nearest = sheaf__nearest(name, rope_names, ROPE_NAMES);
    sheaf_status *st = sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "default, linear or llama3");
    if (nearest != NULL)
        sheaf_try_this(st, "the nearest supported name is \"%s\"", nearest);
}

/* One object, rope_scaling (4.x) or rope_parameters (5.x). */
static void read_rope_object(sheaf_json_reader *all, const char *key, rope_spelling *rope,
                             sheaf_text *unknown)
{
    static const char *const known[] = {
        "rope_type",
        "type",
        "rope_theta",
        "factor",
        "low_freq_factor",
        "high_freq_factor",
        "original_max_position_embeddings",
        "partial_rotary_factor",
        "finetuned",
    };
    const json_t *object = sheaf__json_object(all, key);
    if (object == NULL)
        return;
    char inside[64];
    snprintf(inside, sizeof inside, "%s.", key);
    sheaf_json_reader r = { object, inside, NULL };
    rope->given = true;
    read_rope_type(&r, rope);
    rope->theta = sheaf__json_real(&r, "rope_theta", 1e-3, 1e18, 0);
    rope->factor = sheaf__json_real(&r, "factor", 1e-6, 1e9, 0);
    rope->low = sheaf__json_real(&r, "low_freq_factor", 1e-6, 1e9, 0);
    rope->high = sheaf__json_real(&r, "high_freq_factor", 1e-6, 1e9, 0);
    rope->original = sheaf__json_int(&r, "original_max_position_embeddings", 1, MOST_POSITION, 0);
    rope->partial = sheaf__json_real(&r, "partial_rotary_factor", 1e-6, 1, 0);
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value)
    {
        bool is_known = json_is_null(value);
        for (size_t i = 0; i < sizeof known / sizeof *known; i++)
            is_known = is_known || strcmp(name, known[i]) == 0;
        if (!is_known && json_is_object(value)) /* 5.x: one rotary embedding per kind of layer */
            sheaf__json_fail(&r, SHEAF_E_UNSUPPORTED, name, "one rotary embedding for all layers");
        else if (!is_known)
            sheaf__text_add(unknown, "%s%s.%s", unknown->size > 0 ? "," : "", key, name);
    }
    if (r.st != NULL && all->st == NULL)
        all->st = r.st;
    else
        sheaf_status_free(r.st);
}

/* What the numbers of the chosen rope type must be. */
static void check_rope(sheaf_json_reader *r, const sheaf_config *c, const char *key)
{
    const char *missing = NULL;
    if (c->rope.type != SHEAF_ROPE_DEFAULT && c->rope.factor == 0)
        missing = "factor";
    if (c->rope.type == SHEAF_ROPE_LLAMA3) {
        missing = c->rope.low_freq_factor == 0 ? "low_freq_factor" : missing;
        missing = c->rope.high_freq_factor == 0 ? "high_freq_factor" : missing;
        missing = c->rope.original_length == 0 ? "original_max_position_embeddings" : missing;
    }
    if (missing != NULL) {
        sheaf_found(sheaf__json_fail(r, SHEAF_E_FORMAT, key, "'%s', which rope type \"%s\" needs",
                                     missing, rope_names[c->rope.type]),
                    "no such key");
    } else if (c->rope.type == SHEAF_ROPE_LLAMA3 &&
               c->rope.low_freq_factor >= c->rope.high_freq_factor) {
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "low_freq_factor below high_freq_factor"),
            "%g and %g", c->rope.low_freq_factor, c->rope.high_freq_factor);
    }
    const double rotated = (double)c->head_dim * c->rope.partial;
    if (r->st == NULL && ((int64_t)rotated < 2 || (int64_t)rotated % 2 != 0)) {
        sheaf_found(sheaf__json_fail(r, SHEAF_E_LAYOUT, "head_dim",
                                     "an even number of rotated elements in a head"),
                    "%" PRId64 " of a head of %" PRId64, (int64_t)rotated, c->head_dim);
    }
}

static void merge_rope(sheaf_json_reader *r, const char *key, double *into, double said)
{
    if (*into != 0 && said != 0 && *into != said) {
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_LAYOUT, key, "the same number everywhere in the file"),
            "%.17g and %.17g", *into, said);
    } else if (*into == 0)
        *into = said;
}

/* A file may spell it both ways; then both must say the same. */
static void read_rope(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    rope_spelling old = { 0 }, new = { 0 };
    double theta = sheaf__json_real(r, "rope_theta", 1e-3, 1e18, 0);
    double partial = sheaf__json_real(r, "partial_rotary_factor", 1e-6, 1, 0);
    read_rope_object(r, "rope_scaling", &old, unknown);
    read_rope_object(r, "rope_parameters", &new, unknown);
    if (r->st != NULL)
        return;
    if (old.given && new.given &&
        (old.type != new.type || old.factor != new.factor || old.low != new.low ||
         old.high != new.high || old.original != new.original)) {
        sheaf__json_fail(r, SHEAF_E_LAYOUT, "rope_scaling",
                         "the same as 'rope_parameters', or no such key");
        return;
    }
    const rope_spelling *used = new.given ? &new : &old;
    merge_rope(r, "rope_theta", &theta, old.theta);
    merge_rope(r, "rope_theta", &theta, new.theta);
    merge_rope(r, "partial_rotary_factor", &partial, old.partial);
    merge_rope(r, "partial_rotary_factor", &partial, new.partial);
    c->rope.type = used->type;
    c->rope.theta = theta == 0 ? 10000.0 : theta;
    c->rope.partial = partial == 0 ? 1.0 : partial;
    /* Numbers that the type does not use are left out, so that equal models are equal structs. */
    if (used->type != SHEAF_ROPE_DEFAULT)
        c->rope.factor = used->factor;
    if (used->type == SHEAF_ROPE_LLAMA3) {
        c->rope.low_freq_factor = used->low;
        c->rope.high_freq_factor = used->high;
        c->rope.original_length = used->original;
    }
    check_rope(r, c, new.given ? "rope_parameters" : "rope_scaling");
}

/* ---- all keys ---- */

/* Code that comes with the model may compute anything, so only a tokenizer may be custom. */
static void check_auto_map(sheaf_json_reader *r, const char *key, const json_t *value)
{
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)value, name, entry) if (strcmp(name, "AutoTokenizer") != 0 &&
                                                          strcmp(name, "AutoConfig") != 0)
    {
        sheaf_found(
            sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "no program code of the model's own"),
            "\"%.100s\"", name);
    }
}

static void tell_quantized(sheaf_status *st, const json_t *value)
{
    char name[SHEAF__QUANTIZATION];
    sheaf__quantization_name(name, value);
    if (*name != '\0')
        sheaf_found(st, "%s", name);
    sheaf_try_this(st, "the model that was quantized, in 16 or 32 bits");
}

static void check_keys(sheaf_json_reader *r, sheaf_text *unknown)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)r->object, key, value)
    {
        const sheaf_unsupported_key *unsupported = sheaf__config_key_unsupported(key);
        if (unsupported != NULL && !sheaf__config_value_is_neutral(unsupported->neutral, value)) {
            sheaf_status *st =
                sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "%s: another value %s",
                                 sheaf__neutral_text(unsupported->neutral), unsupported->why);
            if (strcmp(key, "quantization_config") == 0 && json_is_object(value))
                tell_quantized(st, value);
        } else if (strcmp(key, "auto_map") == 0) {
            check_auto_map(r, key, value);
        } else if (unsupported == NULL && !sheaf__config_key_is_read(key) &&
                   !sheaf__config_key_is_harmless(key)) {
            sheaf__text_add(unknown, "%s%s", unknown->size > 0 ? "," : "", key);
        }
    }
    const char *act = sheaf__json_string(r, "hidden_act");
    if (act != NULL && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, "hidden_act", "\"silu\" (also called \"swish\")");
}

void sheaf__llama_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown)
{
    read_family(r, c);
    if (r->st == NULL)
        check_keys(r, unknown);
    if (r->st == NULL)
        read_sizes(r, c);
    if (r->st != NULL)
        return;
    read_biases(r, c);
    read_tokens(r, c);
    sheaf__config_read_dtype(r, c);
    read_window(r, c);
    read_rope(r, c, unknown);
}
