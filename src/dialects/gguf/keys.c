/* keys.c - what a config says, as keys; see model.h. */
#include <math.h>

#include "base/base.h"
#include "base/elementary.h"
#include "dialects/gguf/model.h"

enum { QUANTISATION_VERSION = 2 };

/* ---- what llama.cpp computes ---- */

static sheaf_status *refuse(const char *what, const char *expected, const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "`to gguf`: %s", what);
    return sheaf_found(
        sheaf_expected(st, "%s, as llama.cpp has it for this architecture", expected), "%s", found);
}

/* Are the layers without a window, or without rotary embedding, every n-th one? */
static bool every(int64_t layers, int n, bool (*has)(const sheaf_config *c, int64_t i),
                  const sheaf_config *c)
{
    bool good = true;
    for (int64_t i = 0; i < layers; i++)
        good = good && has(c, i) == (n > 0 && (i + 1) % n == 0);
    return good;
}

static bool is_full(const sheaf_config *c, int64_t i)
{
    return sheaf__window_of(c, i) == 0;
}

static bool is_unturned(const sheaf_config *c, int64_t i)
{
    return sheaf__layer_in(c->no_rope, i);
}

static sheaf_status *check_layers(const sheaf_config *c, const sheaf__gguf_form *form)
{
    char text[64];
    snprintf(text, sizeof text, "every layer whose number is a multiple of %d", form->every_full);
    if (form->every_full > 0 && !every(c->layers, form->every_full, is_full, c))
        return refuse("layers without a window", text, "others");
    snprintf(text, sizeof text, "every layer whose number is a multiple of %d",
             form->every_no_rope);
    if (!every(c->layers, form->every_no_rope, is_unturned, c))
        return refuse("layers without rotary embedding", form->every_no_rope > 0 ? text : "none",
                      "others");
    for (int64_t i = 0; i < c->layers && c->num_experts > 0; i++)
        if (sheaf__layer_in(c->mlp_layers, i))
            return refuse("mlp_only_layers, decoder_sparse_step", "experts in every layer",
                          "a layer with an MLP");
    return c->num_experts > 0 && c->shares_of_all ? refuse("norm_topk_prob", "true", "false")
                                                  : NULL;
}

double sheaf__gguf_query_scalar(const sheaf_config *c)
{
    const bool largest = c->layers == 46 || c->layers == 62;
    return largest && c->heads > 0 ? (double)c->hidden / (double)c->heads : (double)c->head_dim;
}

static sheaf_status *check_scores(const sheaf_config *c, const sheaf__gguf_form *form)
{
    if (c->query_scalar > 0 && c->query_scalar != sheaf__gguf_query_scalar(c))
        return refuse("query_pre_attn_scalar", "the width of a head", "another number");
    return strcmp(form->architecture, "gemma2") == 0 && c->attention_cap == 0
               ? refuse("attn_logit_softcapping", "a number", "null")
               : NULL;
}

static sheaf_status *check_rope(const sheaf_config *c, const sheaf__gguf_form *form,
                                const sheaf_events *events)
{
    const sheaf_rope_type type = c->rope.type;
    if ((type == SHEAF_ROPE_LLAMA3 && (form->keys & SHEAF__GGUF_ROPE_FREQS) == 0) ||
        (type == SHEAF_ROPE_LONGROPE && (form->keys & SHEAF__GGUF_ROPE_FACTORS) == 0))
        return refuse("rope_type", "default, linear or yarn",
                      type == SHEAF_ROPE_LLAMA3 ? "llama3" : "longrope");
    if (type == SHEAF_ROPE_DYNAMIC)
        sheaf_warn(events, "rope_type dynamic: llama.cpp does not stretch angles beyond "
                           "max_position_embeddings");
    return NULL;
}

sheaf_status *sheaf__gguf_can(const sheaf_config *c, const sheaf_events *events)
{
    const sheaf__gguf_form *form = sheaf__gguf_form_of(c);
    if (form == NULL || c->scores)
        return sheaf_try_this(
            sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`to gguf`"),
                               "a text model that llama.cpp has, or that of MiniCPM-V or GLM-4V"),
                "a %s of %s", c->scores ? "reward model" : "model", sheaf__family_for(c)->title),
            "`to hf`, for programs that read Hugging Face's folders");
    sheaf_status *st = check_layers(c, form);
    TRY(st, check_scores(c, form));
    TRY(st, check_rope(c, form, events));
    if (st == NULL && !c->tied && (form->keys & SHEAF__GGUF_TIED) != 0)
        st = refuse("tie_word_embeddings", "true", "false");
    const bool window = (form->keys & (SHEAF__GGUF_WINDOW | SHEAF__GGUF_WINDOW_OR_0)) != 0;
    if (st == NULL && c->window > 0 && c->window < c->max_position && !window)
        sheaf_warn(events,
                   "sliding_window %" PRId64 ": llama.cpp sees all keys for architecture %s, which "
                   "differs from there on",
                   c->window, form->architecture);
    return st;
}

/* ---- keys ---- */

typedef struct writing {
    sheaf__gguf_keys *keys;
    const char *architecture;
} writing;

static const char *key_of(char out[128], const writing *w, const char *name)
{
    snprintf(out, 128, "%s.%s", w->architecture, name);
    return out;
}

static void put_int(const writing *w, const char *name, int64_t value)
{
    char key[128];
    sheaf__gguf_put_u32(w->keys, key_of(key, w, name), value);
}

static void put_real(const writing *w, const char *name, double value)
{
    char key[128];
    sheaf__gguf_put_f32(w->keys, key_of(key, w, name), value);
}

/* LongRoPE's factor of cos and sin. */
static double longrope_factor(const sheaf_config *c)
{
    const double original = (double)c->rope.original_length,
                 scale = (double)c->max_position / original;
    if (c->rope.attention_factor > 0)
        return c->rope.attention_factor;
    return scale > 1 ? sqrt(1 + sheaf__log_d(scale) / sheaf__log_d(original)) : 1;
}

static void put_rope(const writing *w, const sheaf_config *c)
{
    char key[128];
    if (c->rope.type == SHEAF_ROPE_LINEAR || c->rope.type == SHEAF_ROPE_YARN) {
        sheaf__gguf_put_text(w->keys, key_of(key, w, "rope.scaling.type"),
                             c->rope.type == SHEAF_ROPE_LINEAR ? "linear" : "yarn");
        put_real(w, "rope.scaling.factor", c->rope.factor);
    }
    if (c->rope.type == SHEAF_ROPE_YARN) {
        put_int(w, "rope.scaling.original_context_length", c->rope.original_length);
        if (c->rope.attention_factor > 0)
            put_real(w, "rope.scaling.yarn_attn_factor", c->rope.attention_factor);
        put_real(w, "rope.scaling.yarn_beta_fast", c->rope.beta_fast);
        put_real(w, "rope.scaling.yarn_beta_slow", c->rope.beta_slow);
    }
    put_real(w, "rope.freq_base", c->rope.theta);
    if (c->local_theta > 0)
        put_real(w, "rope.freq_base_swa", c->local_theta);
}

static void put_experts(const writing *w, const sheaf_config *c)
{
    if (c->num_experts == 0)
        return;
    put_int(w, "expert_count", c->num_experts);
    put_int(w, "expert_used_count", c->top_k);
}

/* Keys of some architectures. */
static void put_others(const writing *w, const sheaf_config *c, unsigned keys)
{
    if (keys & SHEAF__GGUF_VOCAB_SIZE)
        put_int(w, "vocab_size", c->vocab);
    if (keys & SHEAF__GGUF_ROPE_SIZE)
        put_int(w, "rope.dimension_count", (int64_t)((double)c->head_dim * c->rope.partial));
    if (c->num_experts > 0 && c->expert_ffn != c->ffn)
        put_int(w, "expert_feed_forward_length", c->expert_ffn);
    if (c->attention_cap > 0)
        put_real(w, "attn_logit_softcapping", c->attention_cap);
    if (c->logit_cap > 0)
        put_real(w, "final_logit_softcapping", c->logit_cap);
    if (keys & SHEAF__GGUF_WINDOW_OR_0)
        put_int(w, "rope.scaling.original_context_length",
                c->rope.original_length > 0 ? c->rope.original_length : c->max_position);
    if ((keys & SHEAF__GGUF_WINDOW_OR_0) || (keys & SHEAF__GGUF_WINDOW && c->window > 0))
        put_int(w, "attention.sliding_window", c->window);
    if (c->rope.type == SHEAF_ROPE_LONGROPE)
        put_real(w, "rope.scaling.attn_factor", longrope_factor(c));
    if (keys & SHEAF__GGUF_SCALES) {
        put_real(w, "embedding_scale", c->scale_emb);
        put_real(w, "residual_scale",
                 c->scale_depth > 0 ? c->scale_depth / sqrt((double)c->layers) : 1);
        put_real(w, "logit_scale",
                 c->dim_model_base > 0 ? (double)c->hidden / (double)c->dim_model_base : 1);
    }
}

void sheaf__gguf_model_keys(sheaf__gguf_keys *keys, const sheaf_config *c, const char *name,
                            sheaf__gguf_file file)
{
    const sheaf__gguf_form *form = sheaf__gguf_form_of(c);
    const writing w = { keys, form->architecture };
    sheaf__gguf_put_text(keys, "general.architecture", form->architecture);
    sheaf__gguf_put_text(keys, "general.type", "model");
    sheaf__gguf_put_text(keys, "general.name", name);
    put_int(&w, "block_count", c->layers);
    put_int(&w, "context_length", c->max_position);
    put_int(&w, "embedding_length", c->hidden);
    put_int(&w, "feed_forward_length", c->ffn);
    put_int(&w, "attention.head_count", c->heads);
    put_int(&w, "attention.head_count_kv", c->kv_heads);
    put_rope(&w, c);
    put_real(&w, "attention.layer_norm_rms_epsilon", c->rms_eps);
    put_experts(&w, c);
    if ((form->keys & SHEAF__GGUF_HEAD_SIZE) || c->head_dim * c->heads != c->hidden) {
        put_int(&w, "attention.key_length", c->head_dim);
        put_int(&w, "attention.value_length", c->head_dim);
    }
    sheaf__gguf_put_u32(keys, "general.file_type", file);
    sheaf__gguf_put_u32(keys, "general.quantization_version", QUANTISATION_VERSION);
    put_others(&w, c, form->keys);
}

/* ---- rotary embedding, as tensors ---- */

/* In float32, as llama.cpp's script has it. */
static float llama3_factor(const sheaf_config *c, int64_t j, int64_t rot)
{
    static const double PI = 3.14159265358979323846;
    const float factor = (float)c->rope.factor, low = (float)c->rope.low_freq_factor,
                high = (float)c->rope.high_freq_factor, original = (float)c->rope.original_length;
    const float exponent = (float)(2 * j) / (float)rot;
    const float f = 1.0f / (float)sheaf__pow_d((double)(float)c->rope.theta, (double)exponent);
    const float wave = (float)(2 * PI) / f;
    if (wave < original / high)
        return 1;
    if (wave > original / low)
        return factor;
    const float smooth = (original / wave - low) / (high - low);
    return 1.0f / ((1.0f - smooth) / factor + smooth);
}

int64_t sheaf__gguf_rope_factors(float *out, const char **name, const sheaf_config *c, int which)
{
    static const char *const names[] = { "rope_freqs.weight", "rope_factors_long.weight",
                                         "rope_factors_short.weight" };
    const int64_t rot = (int64_t)((double)c->head_dim * c->rope.partial);
    *name = names[which];
    if (which == 0 && c->rope.type == SHEAF_ROPE_LLAMA3) {
        const int64_t n = rot / 2 < SHEAF_MAX_ROPE_PAIRS ? rot / 2 : SHEAF_MAX_ROPE_PAIRS;
        for (int64_t j = 0; j < n; j++)
            out[j] = llama3_factor(c, j, rot);
        return n;
    }
    if (which == 0 || c->rope.type != SHEAF_ROPE_LONGROPE)
        return 0;
    for (int64_t j = 0; j < c->rope.pairs; j++)
        out[j] = (float)(which == 1 ? c->rope.long_factor[j] : c->rope.short_factor[j]);
    return c->rope.pairs;
}
