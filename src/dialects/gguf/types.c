/* types.c - the type that a tensor gets; see model.h.
 *
 * Axes alone, norms, biases and routers stay float32. In Q4_K_M most matrices are Q4_K, in Q5_K_M
 * Q5_K; those that lose most by it are Q6_K: the head, and in some layers what attention and the
 * MLP end with. In Q6_K all are. Where rows are no whole blocks, llama.cpp takes a type of smaller
 * ones.
 */
#include "base/base.h"
#include "dialects/gguf/model.h"

static bool more_bits(int64_t i, int64_t n)
{
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

/* Does the part of a layer's tensor begin so? */
static bool begins(const char *part, const char *begin)
{
    return strncmp(part, begin, strlen(begin)) == 0;
}

/* `most`: the type of most matrices of the file. */
static sheaf__gguf_type in_layer(sheaf__gguf_type most, const char *part, int64_t i,
                                 const sheaf_config *c)
{
    const bool four = most == SHEAF__GGML_Q4_K, eight = c->num_experts == 8,
               more = more_bits(i, c->layers);
    /* In its 70B eight heads share a row of v. */
    const bool shared = c->layers == 80 && c->heads != c->kv_heads &&
                        strcmp(sheaf__gguf_form_of(c)->architecture, "llama") == 0;
    if (begins(part, "attn_v.weight"))
        return eight            ? SHEAF__GGML_Q8_0
               : more           ? SHEAF__GGML_Q6_K
               : shared && four ? SHEAF__GGML_Q5_K
                                : most;
    if (begins(part, "attn_k.weight"))
        return eight ? SHEAF__GGML_Q8_0 : most;
    if (begins(part, "attn_output.weight"))
        return eight && four ? SHEAF__GGML_Q5_K : most;
    if (begins(part, "attn_qkv.weight"))
        return four ? SHEAF__GGML_Q5_K : SHEAF__GGML_Q6_K;
    return begins(part, "ffn_down") && more ? SHEAF__GGML_Q6_K : most;
}

static sheaf__gguf_type mixed(sheaf__gguf_type most, const char *name, int64_t columns,
                              const sheaf_config *c, bool head)
{
    if (strcmp(name, "output.weight") == 0 || (!head && strcmp(name, "token_embd.weight") == 0))
        return columns % sheaf__gguf_type_block(most) != 0 ? SHEAF__GGML_Q8_0 : SHEAF__GGML_Q6_K;
    char *part = NULL;
    const int64_t layer = begins(name, "blk.") ? strtoll(name + 4, &part, 10) : 0;
    return part == NULL ? most : in_layer(most, part + 1, layer, c);
}

static sheaf__gguf_type with_smaller_blocks(sheaf__gguf_type type)
{
    return type == SHEAF__GGML_Q4_K   ? SHEAF__GGML_Q5_0
           : type == SHEAF__GGML_Q5_K ? SHEAF__GGML_Q5_1
           : type == SHEAF__GGML_Q6_K ? SHEAF__GGML_Q8_0
                                      : SHEAF__GGML_F16;
}

sheaf__gguf_type sheaf__gguf_type_for(sheaf__gguf_file file, const char *name, int ndim,
                                      int64_t columns, const sheaf_config *config, bool head)
{
    sheaf__gguf_type type = SHEAF__GGML_F32;
    if (ndim < 2 || !sheaf__ends_with(name, ".weight") || sheaf__ends_with(name, "_norm.weight") ||
        sheaf__ends_with(name, ".ffn_gate_inp.weight"))
        return type;
    switch (file) {
    case SHEAF__GGUF_FILE_F32: break;
    case SHEAF__GGUF_FILE_F16: type = SHEAF__GGML_F16; break;
    case SHEAF__GGUF_FILE_BF16: type = SHEAF__GGML_BF16; break;
    case SHEAF__GGUF_FILE_Q8_0: type = SHEAF__GGML_Q8_0; break;
    case SHEAF__GGUF_FILE_Q4_K_M: type = SHEAF__GGML_Q4_K; break;
    case SHEAF__GGUF_FILE_Q5_K_M: type = SHEAF__GGML_Q5_K; break;
    case SHEAF__GGUF_FILE_Q6_K: type = SHEAF__GGML_Q6_K; break;
    }
    if (sheaf__gguf_type_block(type) == 256)
        type = mixed(type, name, columns, config, head);
    while (columns % sheaf__gguf_type_block(type) != 0)
        type = with_smaller_blocks(type);
    return type;
}
