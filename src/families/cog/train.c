/* train.c - what SAT trains of CogVLM and CogAgent, and how. */
#include <string.h>

#include "families/cog/cog.h"

/* The names of SAT's norm modules: input_layernorm, norm1, inner_attn_ln, ... */
static bool is_norm(const char *module, size_t size)
{
    return memmem(module, size, "norm", 4) != NULL ||
           (size > 3 && memcmp(module + size - 3, "_ln", 3) == 0);
}

bool sheaf__cog_decays(const char *name)
{
    const char *last = strrchr(name, '.');
    if (last == NULL)
        return strcmp(name, "bias") != 0;
    if (strcmp(last, ".bias") == 0)
        return false;
    const char *module = last;
    while (module > name && module[-1] != '.')
        module--;
    return !is_norm(module, (size_t)(last - module));
}

static const char *const adapted[] = { "attention.query_key_value", "attention.dense",
                                       "cross_attention.query",     "cross_attention.key_value",
                                       "cross_attention.dense",     NULL };
const sheaf__sat_layers sheaf__cog_sat_layers = { "transformer.layers.",
                                                  "mixins.eva.vit_model.transformer.layers.",
                                                  adapted };
