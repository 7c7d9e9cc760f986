/* renames.c - see match.h. From transformers 5.23, conversion_mapping.py: only its renames. Fused
 * or stacked weights that it splits or joins on load are not here: an adapter's factors of one part
 * match no tensor of the file. Behind these, the other form of each family that has two (SAT's and
 * the hub's). */
#include "lora/match.h"

#include "base/base.h"
#include "base/regex.h"
#include "schema/family.h"

enum { MOST_RULES = 16, MOST_NAME = 4096 };

typedef struct rule {
    const char *from, *to;
} rule; /* the rules of a group follow one another */

#define TWO_PARTS                                                                                                                                              \
    { "^language_model\\.lm_head", "lm_head" },                                                                                                                \
        { "^language_model\\.model\\.", "model.language_model." },                                                                                             \
        { "^language_model\\.", "model.language_model." },                                                                                                     \
    {                                                                                                                                                          \
        "^(vision_tower|image_tower|video_tower|audio_tower|vision_model|multi_modal_projector|image_newline|vision_embed_tokens|encoder|projector)(?=\\.|$)", \
            "model.$1"                                                                                                                                         \
    }
#define QUERY_KEY_VALUE(before)                                                                    \
    { before "query", "$1q_proj" }, { before "key", "$1k_proj" },                                  \
    {                                                                                              \
        before "value", "$1v_proj"                                                                 \
    }
#define OUTPUT_AND_MLP                                                                             \
    { "attention\\.output\\.dense", "attention.o_proj" }, { "intermediate\\.dense", "mlp.fc1" },   \
    {                                                                                              \
        "output\\.dense", "mlp.fc2"                                                                \
    }
#define TWO_FC                                                                                     \
    {                                                                                              \
        "layers\\.(\\d+)\\.fc([12])", "layers.$1.mlp.fc$2"                                         \
    }

static const rule groups[][MOST_RULES] = {
    { TWO_PARTS }, /* LLaVA, PaliGemma, Gemma 3, InternVL, Mistral 3, Mllama, Qwen2-Audio, ... */
    { { "(^|\\.)((?:vision|image|video)_tower)\\.vision_model\\.", "$1$2." },
      TWO_PARTS }, /* and a tower of CLIP or SigLIP */
    { { "^thinker\\.", "" },
      { "^visual(?=\\.)", "model.visual" },
      { "^audio_tower(?=\\.)", "model.audio_tower" },
      { "^language_model(?=\\.)", "model.language_model" },
      { "^model(?=\\.)(?!\\.(language_model|visual|audio_tower))",
        "model.language_model" } }, /* Qwen2-VL, Qwen2.5-VL, Qwen2.5-Omni */
    { { "^mlp_AR(?=\\.)", "model.projector" },
      { "^visual(?=\\.)", "model.visual" },
      { "^model(?=\\.)(?!\\.(visual|projector|language_model))",
        "model.language_model" } }, /* PaddleOCR-VL */
    { { "^text_model\\.lm_head", "lm_head" },
      { "^text_model\\.model\\.", "model.text_model." },
      { "^vqmodel(?=\\.)", "model.vqmodel" } }, /* Emu3 */
    { { "encoder\\.layer\\.", "layers." },
      QUERY_KEY_VALUE("()attention\\."),
      OUTPUT_AND_MLP },                                    /* ViT, DeiT, BEiT, I-JEPA, ViViT, AST */
    { QUERY_KEY_VALUE("()attention\\."), OUTPUT_AND_MLP }, /* ViT-MAE for pre-training */
    { QUERY_KEY_VALUE("(attention\\.)attention\\."),
      { "attention\\.output\\.dense", "attention.o_proj" },
      { "mlp\\.weights_out", "mlp.down_proj" } }, /* DINOv2 */
    { QUERY_KEY_VALUE("(attention\\.)attention\\."),
      { "attention\\.output", "attention.o_proj" } },             /* LW-DETR */
    { QUERY_KEY_VALUE("(attention\\.)self\\."), OUTPUT_AND_MLP }, /* Swin */
    { { "encoder\\.patch_embeddings\\.(\\d+)\\.", "stages.$1.patch_embeddings." },
      { "encoder\\.block\\.(\\d+)\\.", "stages.$1.blocks." },
      QUERY_KEY_VALUE("(attention\\.)self\\."),
      { "attention\\.self\\.sr", "attention.sequence_reduction.sequence_reduction" },
      { "attention\\.output\\.dense", "attention.o_proj" },
      { "mlp\\.dense([12])", "mlp.fc$1" },
      { "decode_head\\.linear_c", "decode_head.linear_projections" } }, /* SegFormer */
    { { "^(vision_model|text_model)\\.", "" } }, /* CLIP's and SigLIP's towers by themselves */
    { { "^embed_out\\.", "lm_head." } },         /* GPT-NeoX */
    { TWO_FC },                                  /* MaskFormer's */
    { { "backbone\\.conv_encoder", "backbone" },
      { "out_proj", "o_proj" },
      TWO_FC },                                      /* DETR, RT-DETR */
    { { "(?<!model\\.)layer\\.", "model.layer." } }, /* DINOv3 */
    { { "^model\\.(?!language_model\\.)",
        "model.language_model." } }, /* text of several models with parts */
    { { "^model\\.language_model\\.",
        "model." } }, /* the text part of Qwen3.5 and Gemma 3n alone */
};

struct sheaf_renames {
    int n;
    pcre2_code *code[MOST_RULES];
    const rule *rule;
    const sheaf__family *family; /* of the names in files, where those in memory are of its other
                                    form; else NULL */
};

enum { GROUPS = sizeof groups / sizeof *groups };

/* The i-th family that has two forms; NULL behind the last. */
static const sheaf__family *of_two_forms(int i)
{
    const sheaf__family *family;
    for (int k = 0; (family = sheaf__family_at(k)) != NULL; k++)
        if (family->other != NULL && i-- == 0)
            break;
    return family;
}

int sheaf__renames_groups(void)
{
    int n = GROUPS;
    while (of_two_forms(n - GROUPS) != NULL)
        n++;
    return n;
}

const char *sheaf__renames_form(const sheaf_renames *r, bool files)
{
    const bool sat = r->family != NULL && (r->family->classes != NULL) == files;
    return r->family == NULL ? NULL : sat ? "SAT's form" : "the hub's form";
}

void sheaf__renames_free(sheaf_renames *r)
{
    for (int i = 0; r != NULL && i < r->n; i++)
        pcre2_code_free(r->code[i]);
    free(r);
}

sheaf_status *sheaf__renames_new(sheaf_renames **out, int group)
{
    sheaf_renames *r = calloc(1, sizeof *r);
    if (r == NULL)
        return sheaf__no_memory("names of tensors");
    *out = r;
    if (group >= GROUPS) {
        r->family = of_two_forms(group - GROUPS);
        return NULL;
    }
    r->rule = groups[group];
    for (; r->n < MOST_RULES && r->rule[r->n].from != NULL; r->n++) {
        int code;
        size_t at;
        r->code[r->n] = pcre2_compile((PCRE2_SPTR)r->rule[r->n].from, PCRE2_ZERO_TERMINATED, 0,
                                      &code, &at, NULL);
        if (r->code[r->n] == NULL) { /* the patterns are valid: no memory */
            *out = NULL;
            sheaf__renames_free(r);
            return sheaf__no_memory("names of tensors");
        }
    }
    return NULL;
}

/* A table that one form has once, and the other with each layer, keeps its name but in one layer.
 */
static const char *of_other_form(char out[SHEAF__SPELLED], const sheaf__family *family,
                                 const char *name)
{
    char back[SHEAF__SPELLED];
    return sheaf__spell_form(out, family, true, name) &&
                   sheaf__spell_form(back, family, false, out) && strcmp(back, name) == 0
               ? out
               : name;
}

sheaf_status *sheaf__renames_apply(char **out, const sheaf_renames *r, const char *name)
{
    char one[2 * MOST_NAME], two[2 * MOST_NAME]; /* no rule adds nearly as much */
    char *from = one, *to = two, spelled[SHEAF__SPELLED];
    if (r->family != NULL)
        name = of_other_form(spelled, r->family, name);
    if (strlen(name) >= MOST_NAME) /* no model has such names: unchanged */
        return (*out = strdup(name)) != NULL ? NULL : sheaf__no_memory("names of tensors");
    strcpy(from, name);
    for (int i = 0; i < r->n; i++) {
        size_t size = sizeof one;
        const int n = pcre2_substitute(r->code[i], (PCRE2_SPTR)from, PCRE2_ZERO_TERMINATED, 0, 0,
                                       NULL, NULL, (PCRE2_SPTR)r->rule[i].to, PCRE2_ZERO_TERMINATED,
                                       (PCRE2_UCHAR *)to, &size);
        if (sheaf__regex_starved(n))
            return sheaf__no_memory("names of tensors");
        if (n > 0) {
            char *other = from;
            from = to;
            to = other;
        }
    }
    *out = strdup(from);
    return *out != NULL ? NULL : sheaf__no_memory("names of tensors");
}
