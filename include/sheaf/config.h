/* config.h - what config.json says about a Llama-family model.
 *
 * Reads 4.x style (rope_theta, rope_scaling, torch_dtype) and 5.x style
 * (rope_parameters, dtype). Every key is in one of three lists (read; harmless;
 * unsupported unless it has its default); others are kept and reported once. */
#ifndef SHEAF_CONFIG_H
#define SHEAF_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/dtype.h"
#include "sheaf/status.h"

typedef enum sheaf_family { SHEAF_LLAMA, SHEAF_MISTRAL, SHEAF_QWEN2 } sheaf_family;
typedef enum sheaf_rope_type { SHEAF_ROPE_DEFAULT, SHEAF_ROPE_LINEAR, SHEAF_ROPE_LLAMA3 } sheaf_rope_type;

#define SHEAF_MAX_EOS 16

typedef struct sheaf_config {
    sheaf_family family;
    int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim;
    double rms_eps;
    bool qkv_bias, o_bias, mlp_bias;
    bool tied; /* lm_head is embed_tokens */
    struct {
        sheaf_rope_type type;
        double theta, factor, low_freq_factor, high_freq_factor;
        int64_t original_length;
        double partial; /* partial_rotary_factor, 1 */
    } rope;
    int64_t window;            /* sliding window, 0 = none */
    int64_t window_from_layer; /* layers >= this one use it (Qwen2 max_window_layers; else 0) */
    int64_t max_position;
    double initializer_range;
    int64_t bos, pad;          /* -1 = none */
    int64_t eos[SHEAF_MAX_EOS];
    int neos;
    bool byte_vocab;           /* "sheaf_tokenizer": "bytes": ids 0..255 are bytes, then specials */
    sheaf_dtype dtype;         /* of the file, F32 if unsaid */
    char *json;                /* the whole object as read, owned; for copying into outputs */
    char *unknown_keys;        /* comma separated, owned, NULL if none */
} sheaf_config;

/* sheaf_config_read - parses the file at `path`. Errors name key, expected, found. */
SHEAF_API sheaf_status *sheaf_config_read(sheaf_config *out, const char *path);
SHEAF_API sheaf_status *sheaf_config_parse(sheaf_config *out, const char *text, size_t size);
SHEAF_API void sheaf_config_release(sheaf_config *config);
SHEAF_API const char *sheaf_family_name(sheaf_family family); /* model_type, "llama" */

#endif
