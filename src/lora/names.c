/* names.c - kinds of adapter tensors, by name; see names.h. */
#include "lora/names.h"

#include "base/base.h"

static const struct {
    const char *end;
    sheaf_lora_part part;
} ends[] = {
    { ".lora_A.weight", SHEAF_PART_A },
    { ".lora_B.weight", SHEAF_PART_B },
    { ".lora_B.bias", SHEAF_PART_B_BIAS },
    { ".lora_embedding_A", SHEAF_PART_TABLE_A },
    { ".lora_embedding_B", SHEAF_PART_TABLE_B },
    { ".lora_magnitude_vector", SHEAF_PART_MAGNITUDE },
    { ".token_adapter.trainable_tokens_delta", SHEAF_PART_TOKENS },
    { ".token_adapter.base_layer.weight", SHEAF_PART_COPY },
    { ".base_layer.weight", SHEAF_PART_COPY },
    { ".base_layer.bias", SHEAF_PART_BIAS },
};

sheaf_lora_part sheaf__lora_part(const char **path, size_t *length, const char *name)
{
    const size_t prefix = sizeof SHEAF_PEFT_PREFIX - 1;
    *path = strncmp(name, SHEAF_PEFT_PREFIX, prefix) == 0 ? name + prefix : name;
    *length = strlen(*path);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i].end);
        if (*length > n && memcmp(*path + *length - n, ends[i].end, n) == 0) {
            *length -= n;
            return ends[i].part;
        }
    }
    return strstr(*path, ".lora_") != NULL || strstr(*path, ".token_adapter.") != NULL
               ? SHEAF_PART_FOREIGN
               : SHEAF_PART_WHOLE;
}

bool sheaf__lora_is_table(const char *name, int ndim)
{
    static const char tables[] =
        "embed_tokens wte word_embeddings word_embedding embed_in tok_embeddings shared "
        "tokens_embed transformer.w backbone.embeddings transformer.embeddings rwkv.embeddings";
    static const char heads[] =
        "lm_head embed_out proj_out output_projection lm_head.decoder predictions.decoder "
        "generator_lm_head vocab_projector lm_loss pred_layer.proj lm_head.out_proj decoder head";
    const char *const end = ndim == 2 ? ".weight" : ndim == 1 ? ".bias" : NULL;
    if (end == NULL || !sheaf__ends_with(name, end))
        return false;
    const size_t length = strlen(name) - strlen(end);
    for (size_t i = 0; i < length; i++)
        if ((i == 0 || name[i - 1] == '.') &&
            ((ndim == 2 && sheaf__is_listed(tables, name + i, length - i)) ||
             sheaf__is_listed(heads, name + i, length - i)))
            return true;
    return false;
}
