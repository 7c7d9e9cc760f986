/* megatron_args.c - the model that Megatron's args describe, its config and its vocabulary; see
 * megatron_model.h. */
#include <math.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json_write.h"
#include "dialects/common/megatron_model.h"
#include "dialects/common/model.h"
#include "dialects/common/partition.h"
#include "dialects/common/vocabulary.h"

/* Args that, at another value than this, make a model that Llama's config cannot express: as Python
 * prints it; NULL: any value. */
static const struct {
    const char *key, *value;
} wanted[] = {
    { "normalization", "'RMSNorm'" },
    { "position_embedding_type", "'rope'" },
    { "swiglu", "True" },
    { "rotary_interleaved", "False" },
    { "rotary_percent", "1" },
    { "apply_layernorm_1p", "False" },
    { "layernorm_zero_centered_gamma", "False" },
    { "multi_latent_attention", "False" },
    { "qk_layernorm", "False" },
    { "attention_output_gate", "False" },
    { "apply_residual_connection_post_layernorm", "False" },
    { "squared_relu", "False" },
    { "quick_geglu", "False" },
    { "heterogeneous_layers_config_path", NULL },
    { "num_experts", NULL },
    { "window_size", NULL },
    { "no_rope_freq", NULL },
    { "rope_type", "'rope'" },
    { "softmax_type", "'vanilla'" },
    { "softmax_scale", NULL },
    { "qk_l2_norm", "False" },
    { "glu_linear_offset", "0" },
    { "activation_func_clamp_value", NULL },
    { "use_mup", "False" },
    { "glu_activation", NULL }, /* Megatron-LLM's, whose halves lie the other way round */
    { "mtp_num_layers", NULL },
};

static void show(char out[64], const sheaf_pickle *value)
{
    double number;
    const char *text = sheaf__pickle_text(value);
    if (text != NULL)
        snprintf(out, 64, "'%.40s'", text);
    else if (sheaf__pickle_is(value, SHEAF_PICKLE_BOOL))
        snprintf(out, 64, "%s", value->as.number ? "True" : "False");
    else if (sheaf__pickle_float(&number, value))
        snprintf(out, 64, "%.9g", number);
    else
        snprintf(out, 64, "another value");
}

/* Is it the value, or for True and False the equal number? */
static bool agrees(const char *shown, const char *value)
{
    return value != NULL &&
           (strcmp(shown, value) == 0 || strcmp(shown, strcmp(value, "True") == 0    ? "1"
                                                       : strcmp(value, "False") == 0 ? "0"
                                                                                     : value) == 0);
}

/* A whole number in [1, 2^40); `absent` where there is none. */
static int64_t count_of(const sheaf_pickle *args, const char *key, int64_t absent)
{
    int64_t n;
    return sheaf__pickle_int(&n, sheaf__pickle_get(args, key)) && n > 0 && n < (int64_t)1 << 40
               ? n
               : absent;
}

static bool truth_of(const sheaf_pickle *args, const char *key)
{
    int64_t n;
    return sheaf__pickle_int(&n, sheaf__pickle_get(args, key)) && n != 0;
}

static double real_of(const sheaf_pickle *args, const char *key, double absent)
{
    double x;
    return sheaf__pickle_float(&x, sheaf__pickle_get(args, key)) && x > 0 && x < 1e18 ? x : absent;
}

/* The args other than sizes. */
typedef struct settings {
    const sheaf_pickle *args;
    double eps, theta;
    double interpolation, factor; /* positions are divided by the first (RoPE's "linear"), scaled by
                                     the second: megatron/core's rotary_pos_embedding.py */
    bool llama3, bias, qkv, qwen2; /* qwen2: biases at q, k and v alone */
} settings;

static settings read_args(const sheaf_pickle *args)
{
    const bool bias = truth_of(args, "add_bias_linear"), qkv = truth_of(args, "add_qkv_bias"),
               llama3 = truth_of(args, "use_rope_scaling");
    const double interpolation = real_of(args, "rotary_seq_len_interpolation_factor", 1);
    return (settings){ .args = args,
                       .eps =
                           real_of(args, "norm_epsilon", real_of(args, "layernorm_epsilon", 1e-5)),
                       .theta = real_of(args, "rotary_base", 10000),
                       .interpolation = interpolation,
                       .factor = llama3 ? real_of(args, "rope_scaling_factor", 8) : interpolation,
                       .llama3 = llama3,
                       .bias = bias,
                       .qkv = bias || qkv,
                       .qwen2 = qkv && !bias };
}

static sheaf_status *check_wanted(sheaf_catalog *c, const settings *s, const char *path)
{
    sheaf_status *st = NULL;
    if (s->interpolation != 1 && s->llama3)
        st = sheaf__defect(c, "unsupported", path, "", "one way to scale rotary positions", "",
                           "args.use_rope_scaling, and "
                           "args.rotary_seq_len_interpolation_factor = %.9g",
                           s->interpolation);
    for (size_t i = 0; st == NULL && i < sizeof wanted / sizeof *wanted; i++) {
        const sheaf_pickle *value = sheaf__pickle_get(s->args, wanted[i].key);
        char expected[96], found[64];
        if (value == NULL || sheaf__pickle_is(value, SHEAF_PICKLE_NONE))
            continue;
        show(found, value);
        if (agrees(found, wanted[i].value))
            continue;
        snprintf(expected, sizeof expected, "args.%s as Llama models have it", wanted[i].key);
        st = sheaf__defect(c, "unsupported", path, "", expected, "", "args.%s = %s", wanted[i].key,
                           found);
    }
    return st;
}

/* args as a config.json. */
static sheaf_status *make_config(char **out, const sheaf__megatron *m, const settings *s)
{
    sheaf_text t = { 0 };
    char eps[SHEAF__JSON_NUMBER], theta[SHEAF__JSON_NUMBER], factor[SHEAF__JSON_NUMBER];
    const sheaf_pickle *dtype = sheaf__pickle_get(s->args, "params_dtype");
    sheaf__text_add(&t, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
                    s->qwen2 ? "Qwen2ForCausalLM" : "LlamaForCausalLM",
                    s->qwen2 ? "qwen2" : "llama");
    sheaf__text_add(&t,
                    "  \"hidden_act\": \"silu\",\n  \"hidden_size\": %" PRId64
                    ",\n  \"intermediate_size\": %" PRId64 ",\n  \"num_hidden_layers\": %" PRId64
                    ",\n  \"num_attention_heads\": %" PRId64
                    ",\n  \"num_key_value_heads\": %" PRId64 ",\n",
                    m->hidden, m->ffn, m->layers, m->heads, m->groups);
    if (!s->qwen2 || m->heads * m->head_dim != m->hidden)
        sheaf__text_add(&t, "  \"head_dim\": %" PRId64 ",\n", m->head_dim);
    if (!s->qwen2)
        sheaf__text_add(&t, "  \"attention_bias\": %s,\n  \"mlp_bias\": %s,\n",
                        s->qkv ? "true" : "false", s->bias ? "true" : "false");
    sheaf__text_add(&t,
                    "  \"max_position_embeddings\": %" PRId64
                    ",\n  \"rms_norm_eps\": %s,\n  \"rope_theta\": %s,\n",
                    count_of(s->args, "max_position_embeddings", 2048),
                    sheaf__number_json(eps, s->eps), sheaf__number_json(theta, s->theta));
    if (s->llama3 || s->interpolation != 1)
        sheaf__text_add(&t, "  \"rope_scaling\": {\"rope_type\": \"%s\", \"factor\": %s%s},\n",
                        s->llama3 ? "llama3" : "linear", sheaf__number_json(factor, s->factor),
                        s->llama3 ? ", \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
                                    "\"original_max_position_embeddings\": 8192"
                                  : "");
    if (sheaf__pickle_is(dtype, SHEAF_PICKLE_DTYPE) &&
        sheaf_dtype_torch_name(dtype->as.dtype) != NULL)
        sheaf__text_add(&t, "  \"torch_dtype\": \"%s\",\n",
                        sheaf_dtype_torch_name(dtype->as.dtype));
    sheaf__text_add(&t, "  \"tie_word_embeddings\": %s", m->tied ? "true" : "false");
    if (m->vocab > 0 || m->padded > 0)
        sheaf__text_add(&t, ",\n  \"vocab_size\": %" PRId64, m->vocab > 0 ? m->vocab : m->padded);
    sheaf__text_add(&t, "\n}\n");
    return sheaf__text_take(out, &t);
}

/* A given config must have the sizes of the args. For numbers that shapes do not show, the config's
 * count, as old converters left defaults in the args; but it may be the config of another model of
 * the same sizes. */
static sheaf_status *check_against(sheaf__megatron *m, sheaf_catalog *c, const sheaf_config *config,
                                   const settings *s, const char *path, const char *config_path)
{
    static const char cure[] = "give the config.json of this model with `config`";
    const sheaf_pickle *untied = sheaf__pickle_get(s->args, "untie_embeddings_and_output_weights");
    const double given = config->rope.type == SHEAF_ROPE_DEFAULT ? 1 : config->rope.factor;
    const sheaf_rope_type type = s->llama3               ? SHEAF_ROPE_LLAMA3
                                 : s->interpolation != 1 ? SHEAF_ROPE_LINEAR
                                                         : SHEAF_ROPE_DEFAULT;
    const struct {
        const char *what;
        double declared, given;
        bool shown, same; /* in shapes; further condition for equality */
        double within;    /* tolerance */
    } numbers[] = {
        { "layers", (double)m->layers, (double)config->layers, true, true },
        { "hidden size", (double)m->hidden, (double)config->hidden, true, true },
        { "attention heads", (double)m->heads, (double)config->heads, true, true },
        { "key/value heads", (double)m->groups, (double)config->kv_heads, true, true },
        { "head width", (double)m->head_dim, (double)config->head_dim, true, true },
        { "MLP width", (double)m->ffn, (double)config->ffn, true, true },
        { "rms_norm_eps", s->eps, config->rms_eps, false, true, 1e-6 * config->rms_eps },
        { "rope_theta", s->theta, config->rope.theta, false, true },
        { "a rope_scaling factor of", s->factor, given, false, config->rope.type == type },
    };
    sheaf_status *st = NULL;
    for (size_t i = 0; st == NULL && i < sizeof numbers / sizeof *numbers; i++) {
        char expected[96];
        const double apart = fabs(numbers[i].declared - numbers[i].given);
        if (numbers[i].same && apart <= numbers[i].within)
            continue;
        snprintf(expected, sizeof expected, "%s %.9g, as in the args", numbers[i].what,
                 numbers[i].declared);
        st = sheaf__finding(c, numbers[i].shown ? SHEAF_DEFECT : SHEAF_WARNING, "class",
                            config_path, "", expected, cure, "%s %.9g%s%s (args: %s)",
                            numbers[i].what, numbers[i].given, apart == 0 ? " of another type" : "",
                            numbers[i].shown ? "" : ", which counts", path);
    }
    m->vocab = config->vocab;
    if (st == NULL && config->tied && sheaf__pickle_is(untied, SHEAF_PICKLE_BOOL) && !m->tied)
        st =
            sheaf__defect(c, "class", config_path, "", "a head of its own, as in the args", cure,
                          "tie_word_embeddings, by which the stored head is lost (args: %s)", path);
    return st;
}

static sheaf_status *read_config(sheaf__megatron *m, sheaf_catalog *c, const settings *s,
                                 const char *path, const char *config_path)
{
    sheaf_config config = { 0 };
    sheaf_status *st = sheaf__catalog_take_config(c, config_path);
    if (st != NULL || c->config == NULL)
        return st;
    st = sheaf_config_parse(&config, c->config, strlen(c->config));
    if (st != NULL) {
        sheaf__catalog_drop_config(c);
        return sheaf__catalog_defect(c, config_path, st);
    }
    st = check_against(m, c, &config, s, path, config_path);
    c->model = sheaf_family_name(config.family);
    sheaf_config_release(&config);
    return st;
}

/* The rows that a vocabulary is padded to by the args; -1 = unknown. */
static int64_t rows_by_args(const sheaf__megatron *m, int64_t vocab)
{
    int64_t step;
    if (m->multiple < 1 || __builtin_mul_overflow(m->multiple, m->tp > 0 ? m->tp : 1, &step))
        return -1;
    return vocab + (step - vocab % step) % step;
}

/* Can a vocabulary of so many rows be padded to the stored rows, by the rule of the args or by
 * another program's: a converter, a save at another number of ranks? */
static bool can_pad(const sheaf__megatron *m, int64_t vocab)
{
    return m->padded < 0 || m->padded == vocab || sheaf__vocabulary_padded(m->padded, vocab) ||
           m->padded == rows_by_args(m, vocab);
}

/* The vocabulary of the args. For NullTokenizer it did not count the end of a document, the row
 * after it, until 2026. */
static sheaf_status *ask_args(sheaf__megatron *m, sheaf_catalog *c, const sheaf_pickle *args,
                              const char *path)
{
    const char *tokenizer = sheaf__pickle_text(sheaf__pickle_get(args, "tokenizer_type"));
    const bool none = tokenizer != NULL && strncmp(tokenizer, "Null", 4) == 0;
    const int64_t declared = m->vocab;
    if (declared < 0 || (!none && (declared > m->padded || can_pad(m, declared))))
        return NULL;
    m->vocab = -1;
    if (none)
        return sheaf__note(c, "conflict", path, "", "the vocabulary in args.vocab_size", "",
                           "%" PRId64 " with a %.40s, which may leave out the row of the "
                           "end of a document; not used",
                           declared, tokenizer);
    return sheaf__warning(c, "conflict", path, "", "the vocabulary in args.vocab_size",
                          "give the config.json of the model with `config`",
                          "%" PRId64 ", which no program pads to %" PRId64 " rows; not used",
                          declared, m->padded);
}

/* The tokenizer beside the parts or in the given folder comes before the args, which seldom have
 * the vocabulary. One that cannot be padded to the stored rows is another model's. */
static sheaf_status *ask_tokenizer(sheaf__megatron *m, sheaf_catalog *c, const sheaf_pickle *args,
                                   const char *path)
{
    static const char cure[] = "give the config.json of the model with `config`";
    char beside[SHEAF_PATH_SIZE], file[SHEAF_PATH_SIZE];
    const char *const dirs[] = { c->root, sheaf__path_above(beside, path) };
    int64_t rows = -1;
    sheaf_status *st = ask_args(m, c, args, path);
    for (int i = 0; st == NULL && rows < 0 && i < 2; i++)
        st = sheaf__tokenizer_rows(&rows, file, dirs[i]);
    const bool fits = can_pad(m, rows) && (m->padded < 2 * rows || m->padded == rows);
    if (st != NULL || rows <= 0)
        return st;
    if (!fits)
        return sheaf__warning(c, "conflict", file, "", "the tokenizer of this model", cure,
                              "%" PRId64 " tokens, which no program pads to %" PRId64
                              " rows; not used",
                              rows, m->padded);
    if (m->vocab >= 0 && m->vocab != rows)
        st = sheaf__warning(c, "conflict", file, "", "the vocabulary of args.vocab_size", cure,
                            "%" PRId64 " tokens, where the args say %" PRId64
                            "; the tokenizer counts",
                            rows, m->vocab);
    else
        st = sheaf__note(c, "inferred", file, "", "", "",
                         "the vocabulary, %" PRId64 " rows, from the tokenizer", rows);
    m->vocab = rows;
    return st;
}

sheaf_status *sheaf__megatron_args(sheaf__megatron *m, sheaf_catalog *c, const sheaf_pickle *args,
                                   const char *path, const char *config_path)
{
    *m = (sheaf__megatron){
        .layers = count_of(args, "num_layers", 0),
        .hidden = count_of(args, "hidden_size", 0),
        .heads = count_of(args, "num_attention_heads", 0),
        .vocab = count_of(args, "vocab_size", -1),
        .padded = count_of(args, "padded_vocab_size", -1),
        .multiple = count_of(args, "make_vocab_size_divisible_by", 0),
        .tp = count_of(args, "tensor_model_parallel_size", 0),
        .pp = count_of(args, "pipeline_model_parallel_size", 0),
    };
    const sheaf_pickle *untied = sheaf__pickle_get(args, "untie_embeddings_and_output_weights");
    const sheaf_pickle *grouped = sheaf__pickle_get(args, "group_query_attention");
    m->groups = grouped == NULL || truth_of(args, "group_query_attention")
                    ? count_of(args, "num_query_groups", m->heads)
                    : m->heads;
    m->head_dim = count_of(args, "kv_channels",
                           m->heads > 0 && m->hidden % m->heads == 0 ? m->hidden / m->heads : 0);
    m->ffn = count_of(args, "ffn_hidden_size", 0);
    m->tied = sheaf__pickle_is(untied, SHEAF_PICKLE_BOOL) && untied->as.number == 0;
    const sheaf_config sizes = { .hidden = m->hidden,
                                 .ffn = m->ffn,
                                 .heads = m->heads,
                                 .kv_heads = m->groups,
                                 .head_dim = m->head_dim };
    sheaf_status *st = m->layers < 1 ? sheaf_fail(SHEAF_E_LAYOUT, "layers")
                                     : sheaf__partition_new(&m->rows, &sizes);
    if (st != NULL) {
        if ((st = sheaf__only_memory(st)) != NULL)
            return st;
        *m = (sheaf__megatron){ .vocab = -1, .padded = -1 };
        return sheaf__defect(c, "damaged", path, "",
                             "args with the sizes of a model: num_layers, hidden_size, "
                             "ffn_hidden_size, num_attention_heads, num_query_groups, kv_channels",
                             "", "args without them, or that contradict themselves");
    }
    const settings s = read_args(args);
    st = check_wanted(c, &s, path);
    TRY(st, config_path != NULL ? read_config(m, c, &s, path, config_path)
                                : ask_tokenizer(m, c, args, path));
    TRY(st, c->config == NULL ? make_config(&c->config, m, &s) : NULL);
    if (c->model == NULL)
        c->model = s.qwen2 ? "qwen2" : "llama";
    return st;
}

sheaf_status *sheaf__megatron_of_config(sheaf__megatron *m, sheaf_catalog *c, const char *path)
{
    sheaf_config config = { 0 };
    *m = (sheaf__megatron){ .vocab = -1, .padded = -1 };
    if (c->config == NULL)
        return sheaf__catalog_defects(c) > 0
                   ? NULL
                   : sheaf__defect(
                         c, "missing", path, "",
                         "the sizes of the model: 'args' in common.pt, or the model's config.json",
                         "give the config.json of the model with `config`",
                         "neither: Megatron-Bridge and NeMo keep them elsewhere");
    sheaf_status *st = sheaf_config_parse(&config, c->config, strlen(c->config));
    TRY(st, sheaf__partition_new(&m->rows, &config));
    if (st == NULL) {
        m->layers = config.layers;
        m->vocab = config.vocab;
    }
    sheaf_config_release(&config);
    return sheaf__catalog_defect(c, c->config_path, st);
}

void sheaf__megatron_release(sheaf__megatron *m)
{
    sheaf_schema_free(m->rows);
    m->rows = NULL;
}

/* ---- padding and completeness ---- */

static sheaf_status *report_padding(sheaf_catalog *c, const sheaf__megatron *m, const char *path)
{
    if (m->vocab < 0)
        return sheaf__warning(
            c, "padded", path, "model.embed_tokens.weight",
            "the size of the vocabulary, in a config.json, a tokenizer or args.vocab_size",
            "give the config.json of the model with `config`",
            "none of them; all %" PRId64 " rows are kept; the last ones may be padding", m->padded);
    if (!can_pad(m, m->vocab) && m->padded > m->vocab)
        return sheaf__defect(c, "shape", path, "model.embed_tokens.weight",
                             "rows of the vocabulary, and no more than padding adds",
                             "give the config.json of this model with `config`",
                             "%" PRId64 " rows, to which no program pads a vocabulary of %" PRId64,
                             m->padded, m->vocab);
    if (m->padded > m->vocab && rows_by_args(m, m->vocab) > 0 &&
        rows_by_args(m, m->vocab) != m->padded)
        return sheaf__warning(
            c, "padded", path, "model.embed_tokens.weight",
            "as many rows as args.make_vocab_size_divisible_by pads the vocabulary to",
            "see that the vocabulary is this model's; give its config.json with `config`",
            "rows %" PRId64 "..%" PRId64 " are left out as padding; the args would add those to "
            "%" PRId64 " alone",
            m->vocab, m->padded - 1, rows_by_args(m, m->vocab) - 1);
    if (m->padded > m->vocab)
        return sheaf__note(c, "padded", path, "model.embed_tokens.weight", "", "",
                           "rows %" PRId64 "..%" PRId64 " exist only as padding and are left out",
                           m->vocab, m->padded - 1);
    if (m->padded >= 0 && m->padded < m->vocab)
        return sheaf__defect(c, "shape", path, "model.embed_tokens.weight",
                             "as many rows as the vocabulary has", "",
                             "%" PRId64 " rows for a vocabulary of %" PRId64, m->padded, m->vocab);
    return NULL;
}

sheaf_status *sheaf__megatron_complete(sheaf_catalog *c, const sheaf__megatron *m, const char *path)
{
    sheaf_config config = { 0 };
    sheaf_schema *schema = NULL;
    c->vocab = m->vocab;
    c->padded_vocab = m->padded;
    sheaf_status *st = report_padding(c, m, path);
    if (st != NULL || c->config == NULL)
        return st;
    st = sheaf_config_parse(&config, c->config, strlen(c->config));
    TRY(st, sheaf_schema_new(&schema, &config, 1));
    if (st != NULL)
        st = sheaf__catalog_defect(c, path, sheaf_in(st, "the args' description of the model"));
    for (int64_t i = 0; st == NULL && schema != NULL && i < schema->count; i++)
        if (sheaf__catalog_find(c, schema->tensor[i].name) == NULL)
            st = sheaf__defect(c, "missing", path, schema->tensor[i].name,
                               "every tensor of the model", "", "none of this name");
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return st;
}
