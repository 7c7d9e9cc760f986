/* llama.h - Llama, and the families whose decoder differs from Llama's as described by a form: text
 * models are in kin.c, others in folders of their own. */
#pragma once

#include "families/common/families.h"
#include "schema/gguf_form.h"

/* ---- how a family differs from Llama ---- */

typedef enum sheaf__bias_rule {
    SHEAF__BIAS_KEYED,     /* attention_bias: q, k, v and o */
    SHEAF__BIAS_QKV,       /* always on q, k and v, never on o */
    SHEAF__BIAS_KEYED_QKV, /* attention_bias, absent: true: q, k and v, never o */
    SHEAF__BIAS_NEVER,
} sheaf__bias_rule;

/* Layers that see a window of sliding_window keys. */
typedef enum sheaf__window_rule {
    SHEAF__WINDOW_NEVER,      /* the class has none and ignores the keys */
    SHEAF__WINDOW_ALL,        /* every layer */
    SHEAF__WINDOW_IF_USED,    /* with use_sliding_window: every layer */
    SHEAF__WINDOW_FROM_LAYER, /* with use_sliding_window: layer_types, or from max_window_layers on
                               */
    SHEAF__WINDOW_PATTERN,    /* layer_types, or all but every n-th */
    SHEAF__WINDOW_NO_ROPE,    /* with use_sliding_window: layer_types, or those without rope */
} sheaf__window_rule;

/* RMSNorm of queries and keys before the rotary embedding. */
typedef enum sheaf__qk_norm {
    SHEAF__QK_PLAIN,
    SHEAF__QK_PER_HEAD, /* over a head, one weight for all heads */
    SHEAF__QK_WHOLE,    /* over the whole projection */
} sheaf__qk_norm;

/* A mixture of experts in place of the MLP: a router chooses some for each row. */
typedef struct sheaf__mixture_form {
    const char *prefix; /* of its names inside a layer; in memory transformers 5 has "mlp." */
    const char *gate, *up, *down; /* an expert's matrices */
    int64_t count, top_k;         /* defaults of absent keys */
    const char *count_key;        /* how published files spell num_local_experts; or NULL */
    bool sized;  /* moe_intermediate_size is an expert's width; else intermediate_size is */
    bool shared; /* norm_topk_prob: else weights of experts are always shares of the chosen ones */
    bool some;   /* layers of mlp_only_layers, or by decoder_sparse_step, have an MLP instead */
    const char *keys; /* that it reads, separated by blanks */
} sheaf__mixture_form;

typedef struct sheaf__llama_form {
    /* Defaults of the class in transformers for absent keys. */
    int64_t max_position;
    double eps, theta; /* 0: 1e-6, 10000 */
    int64_t head_dim;  /* 0: hidden_size / num_attention_heads */
    bool kv_heads; /* num_key_value_heads defaults to num_attention_heads; else it is required */
    bool tied;
    int64_t window,
        original; /* original_max_position_embeddings as a key of its own; 0: no such key */
    /* Keys of the config. */
    sheaf__bias_rule bias;
    bool mlp_bias; /* mlp_bias may be true */
    sheaf__window_rule windows;
    bool no_rope;      /* no_rope_layers or no_rope_layer_interval name layers */
    int64_t pattern;   /* sliding_window_pattern for SHEAF__WINDOW_PATTERN */
    bool pattern_said; /* it is a key of the config */
    double
        local_theta; /* rope theta of layers with a window; 0: no rotary embedding of their own */
    double query_scalar;             /* query_pre_attn_scalar; 0: no such key */
    double attention_cap, logit_cap; /* attn_, final_logit_softcapping; 0: null */
    bool attention_caps;             /* its class reads the first */
    bool only_longrope;              /* rope types: default and longrope, also called su and yarn */
    bool partial;        /* partial_rotary_factor: only a part of each head may be rotated */
    double part;         /* its default; 0: 1 */
    const char *ignored; /* keys, separated by blanks, that its class ignores or reads by a rule of
                            its own; NULL: none */
    const char *prefix;  /* prefix of all tensor names; or NULL */
    const char *body;    /* next part of all names but the head's; NULL: "model." */
    int64_t section[3];  /* rotary embedding of three axes: mrope_section where it is absent */
    bool interleaved;    /* its sections take turns */
    const char *code;    /* class that auto_map may name, as transformers has it too; or NULL */
    /* Tensors and passes. */
    bool fused;        /* q, k and v are one weight */
    bool fused_mlp;    /* gate and up are one */
    bool norms_after;  /* norms stand behind attention and MLP, none before */
    bool norms_around; /* norms stand before and behind both */
    /* Of those around: names of the norms behind attention and MLP, where the one before the MLP
     * keeps Llama's; NULL: all have Gemma's. */
    const char *behind[2];
    bool norm_one;     /* y = (1 + w) * n: weights start at zero */
    bool gelu;         /* gate is hidden_activation, gelu with tanh; else hidden_act, silu */
    bool embed_scaled; /* the embedding's rows are multiplied by sqrt(hidden_size) */
    bool norm_once;    /* round(w * n), not round(w * round(n)) */
    bool rope_pairs;   /* neighbours turn, not halves (tape/layers.h) */
    bool rope_float32; /* cos and sin meet queries and keys in float32, not rounded */
    sheaf__qk_norm qk_norm;
    const sheaf__mixture_form *mixture; /* or NULL */
    int64_t padding;                    /* 1 + pad_token_id where the key is absent; 0: null */
} sheaf__llama_form;

/* sheaf__llama_form_of - of a family of Llama's kin. */
static inline const sheaf__llama_form *sheaf__llama_form_of(const sheaf_config *c)
{
    const sheaf__family *family = sheaf__family_for(c);
    return family->form_of != NULL ? family->form_of(c) : family->form;
}

/* In GGUF files (gguf.c); the last of text models inside others, whose names begin so. */
#define SHEAF__GGUF_INSIDE "llm."
extern const sheaf__gguf_form sheaf__gguf_llama, sheaf__gguf_mixtral, sheaf__gguf_smollm3,
    sheaf__gguf_qwen2, sheaf__gguf_qwen3, sheaf__gguf_qwen3_moe, sheaf__gguf_olmo2,
    sheaf__gguf_phi3, sheaf__gguf_gemma, sheaf__gguf_gemma2, sheaf__gguf_gemma3, sheaf__gguf_glm,
    sheaf__gguf_glm4;
extern const sheaf__gguf_form sheaf__gguf_inside_minicpm, sheaf__gguf_inside_llama,
    sheaf__gguf_inside_qwen2, sheaf__gguf_inside_qwen3;

/* sheaf__llama_mixture - the keys of a mixture (config_mixture.c). */
void sheaf__llama_mixture(sheaf_json_reader *r, sheaf_config *c, const sheaf__mixture_form *form);
void sheaf__llama_config(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);
/* sheaf__llama_rope - the keys of the rotary embedding (config_rope.c). */
void sheaf__llama_rope(sheaf_json_reader *r, sheaf_config *c, const sheaf__llama_form *form,
                       sheaf_text *unknown);
void sheaf__llama_text(sheaf_text *text, const sheaf_config *c);
sheaf_status *sheaf__llama_rows(sheaf_schema *schema);
sheaf_status *sheaf__llama_build(struct sheaf__model *m); /* with the tower, where there is one */
