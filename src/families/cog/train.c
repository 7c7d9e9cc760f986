/* train.c - what SAT trains of CogVLM and CogAgent, and how. */
#include "base/base.h"
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

#define TOWER "mixins.encoder.vit.model."

/* Rotary tables, and what no pass through CogAgent's tower reads: its last block, norm and head. */
bool sheaf__cog_idle(const char *name, bool (*has)(const void *self, const char *begin),
                     const void *self)
{
    char next[80];
    if (strncmp(name, TOWER, sizeof TOWER - 1) != 0)
        return false;
    const char *inside = name + sizeof TOWER - 1;
    if (strstr(inside, "rope.freqs_") != NULL || strncmp(inside, "norm.", 5) == 0 ||
        strncmp(inside, "head.", 5) == 0)
        return true;
    if (strncmp(inside, "blocks.", 7) != 0)
        return false;
    snprintf(next, sizeof next, TOWER "blocks.%ld.", strtol(inside + 7, NULL, 10) + 1);
    return !has(self, next);
}
