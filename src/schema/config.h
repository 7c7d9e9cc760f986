/* config.h - what config.json says about a model of the Llama family and its kin, of OmniLMM and
 * MiniCPM-V, or SAT's model_config.json about CogVLM and CogAgent.
 *
 * Reads 4.x style (rope_theta, rope_scaling, torch_dtype) and 5.x style
 * (rope_parameters, dtype). A file with "model_class" and neither "model_type" nor
 * "architectures" is SAT's. Every key is in one of three lists (read; harmless;
 * unsupported unless it has its default); others are kept and reported once. */
#pragma once

#include "base/base.h"
#include "sheaf/dtype.h"
#include "sheaf/status.h"

typedef enum sheaf_family {
    SHEAF_LLAMA,
    SHEAF_MISTRAL,
    SHEAF_QWEN2,
    SHEAF_COGVLM,
    SHEAF_COGAGENT,
    SHEAF_QWEN3,
    SHEAF_SMOLLM3,
    SHEAF_OLMO2,
    SHEAF_PHI3,
    SHEAF_MIXTRAL,
    SHEAF_GEMMA2,
    SHEAF_GEMMA3,
    SHEAF_OMNILMM,
    SHEAF_MINICPMV,
    SHEAF_GEMMA,
    SHEAF_QWEN3_MOE,
    SHEAF_COGVLM2,
    SHEAF_GLM,
    SHEAF_GLM4,
    SHEAF_CHATGLM,
    SHEAF_COGVLM_HF,
    SHEAF_COGAGENT_HF,
    SHEAF_QWEN2_5_VL,
    SHEAF_QWEN3_VL,
    SHEAF_FAMILIES /* how many there are */
} sheaf_family;
typedef enum sheaf_rope_type {
    SHEAF_ROPE_DEFAULT,
    SHEAF_ROPE_LINEAR,
    SHEAF_ROPE_LLAMA3,
    SHEAF_ROPE_DYNAMIC,
    SHEAF_ROPE_YARN,
    SHEAF_ROPE_LONGROPE
} sheaf_rope_type;
enum { SHEAF_ROPE_TYPES = SHEAF_ROPE_LONGROPE + 1 };

#define SHEAF_MAX_EOS 16
#define SHEAF_MAX_LAYERS 4096     /* of a model of the Llama family */
#define SHEAF_MAX_ROPE_PAIRS 256  /* of a longrope's lists */
#define SHEAF_MAX_DEEP 14         /* of deepstack_visual_indexes */
#define SHEAF_MAX_COG_LAYERS 1024 /* of each of CogVLM's and CogAgent's stacks */

/* The vision transformer (EVA2-CLIP) that turns an image into patches: eva_args; OmniLMM's, of
 * which `layers` are those that are run. */
typedef struct sheaf_vit {
    int64_t layers, hidden, heads, ffn;
    /* rows of its two tables: 1 (the CLS vector), patches + 1 (OmniLMM: of the images that it
     * learned from, whose patches may be fewer) */
    int64_t vocab, positions;
    int64_t height, width, patch, channels; /* of an image, in pixels */
    double norm_eps;
} sheaf_vit;

/* CogAgent's second, high-resolution tower (EVA02-CLIP-L). Upstream's code fixes its sizes, so a
 * file need not state them: "encoder_override" does, or the tensors do (sheaf_config.encoder may
 * be changed before sheaf_schema_new). */
typedef struct sheaf_encoder {
    int64_t layers;                        /* that have tensors; the last is never run */
    int64_t width, head_width, ffn, embed; /* embed: rows of its unused head */
    int64_t image, patch, channels;
} sheaf_encoder;

/* One cross-attention, from learned queries to what a tower gives: an image has as many rows in the
 * sequence as there are queries, whatever its size. */
typedef struct sheaf_resampler {
    int64_t queries, heads;
    double norm_eps;
} sheaf_resampler;

/* Versions of MiniCPM-V, and of MiniCPM-o, which is read for its pictures. */
typedef enum sheaf_minicpmv {
    SHEAF_MINICPMV_NONE,
    SHEAF_MINICPMV_2_0,
    SHEAF_MINICPMV_2_5,
    SHEAF_MINICPMV_2_6,
    SHEAF_MINICPMO_2_6,
    SHEAF_MINICPMV_4_0,
    SHEAF_MINICPMV_4_5
} sheaf_minicpmv;

/* Qwen-VL's tower beside what config.vit says of it. */
typedef struct sheaf_qwen_vit {
    int64_t frames, merge; /* of a patch; patches of a side of a square that is joined */
    int64_t window;        /* side of a window, in such squares; 0: there are none */
    uint64_t full_blocks[SHEAF_MAX_LAYERS / 64]; /* bit i: block i sees the whole picture */
    int64_t deep;                                /* blocks whose rows the text model is given too */
    int64_t deep_at[SHEAF_MAX_DEEP];
    double theta;  /* of its rotary embedding */
    int64_t steps; /* 2.5: positions of a second of a video */
    /* As files beside the config say; 0: nothing */
    int64_t least, most;   /* pixels of a picture */
    float mean[3], std[3]; /* that they are normalised by */
    struct {
        int64_t least, most, few, many;
        double fps;
        bool read, all;    /* a file says how videos are seen; all frames are taken */
        char refused[240]; /* why records have no videos: what it says is not supported; or "" */
    } video;               /* as sheaf__video_form has it */
} sheaf_qwen_vit;

typedef struct sheaf_config {
    sheaf_family family;
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
    double rms_eps;
    bool qkv_bias, o_bias, mlp_bias;
    bool tied; /* lm_head is embed_tokens */
    /* A reward model, transformers' *ForSequenceClassification with one label: in place of lm_head
     * "score.weight" [1, hidden], and the score of a text is that of its last token which is not
     * `pad`. */
    bool scores;
    struct {
        sheaf_rope_type type;
        double theta, factor, low_freq_factor, high_freq_factor;
        int64_t original_length;
        double partial; /* partial_rotary_factor, 1 */
        /* yarn, longrope: what cos and sin are multiplied by; 0: by their rules */
        double attention_factor;
        double beta_fast, beta_slow, mscale, mscale_all_dim; /* yarn; mscale 0: absent */
        bool truncate;                                       /* yarn: whole numbers of dimensions */
        int64_t pairs;                                       /* longrope: of the lists */
        double short_factor[SHEAF_MAX_ROPE_PAIRS], long_factor[SHEAF_MAX_ROPE_PAIRS];
        /* Qwen-VL: how many pairs turn by time, row and column (mrope_section); else 0. */
        int64_t section[3];
        bool interleaved; /* they take turns; else one section behind the other */
    } rope;
    double local_theta;   /* rope_theta of the layers that see a window, which turn by the default
                             rule; 0: as the others */
    double query_scalar;  /* scores are q . k / sqrt of it; 0: of head_dim */
    double attention_cap; /* scores are cap * tanh(score / cap); 0: as they are */
    double logit_cap;     /* the same of logits */
    uint64_t no_rope[SHEAF_MAX_LAYERS / 64]; /* bit i: layer i has no rotary embedding */
    int64_t window;                          /* sliding window, 0 = none */
    int64_t window_from_layer; /* layers >= this one use it (Qwen2 max_window_layers; else 0), */
    uint64_t full_layers[SHEAF_MAX_LAYERS / 64]; /* but those whose bit is set */
    int64_t max_position;
    /* Mixtral, Qwen3-MoE: experts of a layer, how many a token is routed to, and how wide each is;
     * else 0. */
    int64_t num_experts, top_k, expert_ffn;
    double router_loss; /* coefficient of the router's own loss (tape/balance.h); 0: none */
    bool shares_of_all; /* weights of experts are shares of all, not of those that were chosen */
    uint64_t mlp_layers[SHEAF_MAX_LAYERS / 64]; /* bit i: layer i has an MLP in their place */
    /* CogVLM and CogAgent; all zero for others. */
    int64_t patches;        /* of an image, P */
    int64_t experts;        /* layers from the first on that have visual experts */
    int64_t cross_head_dim; /* width of a cross-attention head; there are `heads` of them */
    int64_t cross_width;    /* of what cross-attention looks at */
    uint64_t cross_layers[SHEAF_MAX_COG_LAYERS / 64]; /* bit i: layer i has cross-attention */
    sheaf_vit vit;
    sheaf_encoder encoder; /* CogAgent only */
    /* OmniLMM, MiniCPM-V: ids of the tokens that begin an image, stand for each row of it, and end
     * it; GLM-4V: the first and the last, -1: none. */
    struct {
        int64_t begin, patch, end;
        int64_t video; /* Qwen-VL: in place of `patch`, of frames */
    } image_mark;
    double image_divisor; /* GLM-4V: of an image's rows in the sequence */
    double initializer_range;
    int64_t bos, pad; /* -1 = none */
    int64_t eos[SHEAF_MAX_EOS];
    int neos;
    bool byte_vocab;    /* "sheaf_tokenizer": "bytes": ids 0..255 are bytes, then specials */
    sheaf_dtype dtype;  /* of the file, F32 by default */
    bool dtype_named;   /* the file names it */
    char *json;         /* the whole object as read, owned; for copying into outputs */
    char *unknown_keys; /* comma separated, owned, NULL if none */
    int64_t padding; /* 1 + the row of the embedding whose lookups teach it nothing (padding_idx of
                        torch); 0 = none */
    sheaf_resampler resampler; /* OmniLMM, MiniCPM-V; all zero for others */
    /* MiniCPM-V; all zero for others. */
    sheaf_minicpmv minicpmv;
    bool vit_dropped;   /* the tower's last block, which files may hold, is not in vit.layers */
    bool padding_seen;  /* of 2.5: pictures of a row are seen as long as its largest */
    double scale_emb;   /* of embeddings; 1: as they are */
    double scale_depth; /* of residual branches, over sqrt(layers); 0: as they are */
    sheaf_qwen_vit qwen_vit; /* Qwen-VL; all zero for others */
    int64_t dim_model_base;  /* logits are divided by hidden over it; 0: not */
} sheaf_config;

/* sheaf_config_read - parses the file at `path`. Errors name key, expected, found. */
sheaf_status *sheaf_config_read(sheaf_config *out, const char *path);
sheaf_status *sheaf_config_parse(sheaf_config *out, const char *text, size_t size);
void sheaf_config_release(sheaf_config *config);
const char *sheaf_family_name(sheaf_family family); /* model_type, "llama" */
const char *
sheaf_config_position_key(const sheaf_config *config); /* config.json's name of max_position */
