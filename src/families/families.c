/* families.c - the table of families: a new one is a folder beside this file, and a row here. */

#include "families/common/families.h"

#include "base/base.h"
#include "base/embedded.h"

extern const sheaf__embedded sheaf__spec_files[]; /* specs/NAME.json */

static const sheaf__family *const table[] = {
    [SHEAF_LLAMA] = &sheaf__family_llama,
    [SHEAF_MISTRAL] = &sheaf__family_mistral,
    [SHEAF_QWEN2] = &sheaf__family_qwen2,
    [SHEAF_COGVLM] = &sheaf__family_cogvlm,
    [SHEAF_COGAGENT] = &sheaf__family_cogagent,
    [SHEAF_QWEN3] = &sheaf__family_qwen3,
    [SHEAF_SMOLLM3] = &sheaf__family_smollm3,
    [SHEAF_OLMO2] = &sheaf__family_olmo2,
    [SHEAF_PHI3] = &sheaf__family_phi3,
    [SHEAF_MIXTRAL] = &sheaf__family_mixtral,
    [SHEAF_GEMMA2] = &sheaf__family_gemma2,
    [SHEAF_GEMMA3] = &sheaf__family_gemma3,
    [SHEAF_OMNILMM] = &sheaf__family_omnilmm,
    [SHEAF_MINICPMV] = &sheaf__family_minicpmv,
    [SHEAF_GEMMA] = &sheaf__family_gemma,
    [SHEAF_QWEN3_MOE] = &sheaf__family_qwen3_moe,
    [SHEAF_COGVLM2] = &sheaf__family_cogvlm2,
    [SHEAF_COGVLM_HF] = &sheaf__family_cogvlm_hf,
    [SHEAF_COGAGENT_HF] = &sheaf__family_cogagent_hf,
    [SHEAF_GLM] = &sheaf__family_glm,
    [SHEAF_GLM4] = &sheaf__family_glm4,
    [SHEAF_CHATGLM] = &sheaf__family_chatglm,
    [SHEAF_QWEN2_5_VL] = &sheaf__family_qwen2_5_vl,
    [SHEAF_QWEN3_VL] = &sheaf__family_qwen3_vl,
};
enum { FAMILIES = sizeof table / sizeof *table };

const sheaf__family *sheaf__family_at(int i)
{
    return i >= 0 && i < FAMILIES ? table[i] : NULL;
}

const sheaf__family *sheaf__family_for(const sheaf_config *config)
{
    return table[config->family];
}

const sheaf__family *sheaf__family_named(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(table[i]->name, name) == 0)
            return table[i];
    return NULL;
}

const sheaf__family *sheaf__family_of_class(const char *model_class)
{
    for (int i = 0; i < FAMILIES; i++)
        for (const char *const *one = table[i]->classes; one != NULL && *one != NULL; one++)
            if (strcmp(*one, model_class) == 0)
                return table[i];
    return NULL;
}

const char *sheaf__spec_config(const char *name)
{
    char file[64];
    snprintf(file, sizeof file, "%s.json", name);
    const sheaf__embedded *found = sheaf__embedded_find(sheaf__spec_files, file);
    return found == NULL ? NULL : found->text;
}

bool sheaf__sat_begins(const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (table[i]->sat_begin != NULL &&
            strncmp(name, table[i]->sat_begin, strlen(table[i]->sat_begin)) == 0)
            return true;
    return false;
}

const sheaf__family *sheaf__sat_family(bool beside)
{
    int i = 0;
    while (table[i]->classes == NULL || (table[i]->tower_names != NULL) != beside)
        i++;
    return table[i];
}

bool sheaf__sat_rule_of(sheaf_sat_rule *out, const char *name)
{
    for (int i = 0; i < FAMILIES; i++)
        if (table[i]->sat_rule != NULL && table[i]->sat_rule(out, name))
            return true;
    return false;
}
