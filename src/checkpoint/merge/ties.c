/* ties.c - see plan.h. The table is what bench/ties_live.py derives from transformers 5.23
 * (--rows), and the long tests hold it to that. */
#include "checkpoint/merge/plan.h"

#include "base/base.h"

#define TIED true

/* clang-format off */
static const sheaf__ties table[] = {
    { "model.embed_tokens.weight", "lm_head.weight",
      "AXK1ForCausalLM AXK2ForCausalLM AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM "
      "AriaTextForCausalLM BambaForCausalLM BitNetForCausalLM ChameleonForConditionalGeneration "
      "CwmForCausalLM DeepseekV2ForCausalLM DeepseekV32ForCausalLM DeepseekV3ForCausalLM "
      "DeepseekV4ForCausalLM DiffLlamaForCausalLM DogeForCausalLM Dots1ForCausalLM "
      "Dots3NoteForCausalLM Emu3ForCausalLM Exaone4ForCausalLM ExaoneMoeForCausalLM "
      "FalconH1ForCausalLM FlexOlmoForCausalLM FlintForCausalLM Gemma4AssistantForCausalLM "
      "Glm4ForCausalLM Glm4MoeForCausalLM Glm4MoeLiteForCausalLM GlmForCausalLM "
      "GlmMoeDsaForCausalLM GptOssForCausalLM GraniteForCausalLM GraniteMoeForCausalLM "
      "GraniteMoeHybridForCausalLM GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM "
      "HYV3ForCausalLM HYV4ForCausalLM HeliumForCausalLM HrmTextForCausalLM "
      "HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM HyperCLOVAXForCausalLM Jais2ForCausalLM "
      "JambaForCausalLM Kolibri1ForCausalLM LagunaForCausalLM Llama4ForCausalLM LlamaForCausalLM "
      "LongcatFlashForCausalLM MellumForCausalLM MiMoV2FlashForCausalLM MiniMaxForCausalLM "
      "MiniMaxM2ForCausalLM MiniMaxM3VLForCausalLM Ministral3ForCausalLM MinistralForCausalLM "
      "Mistral4ForCausalLM MistralForCausalLM MixtralForCausalLM NanoChatForCausalLM "
      "NemotronForCausalLM Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoHybridForCausalLM "
      "OlmoeForCausalLM PersimmonForCausalLM Phi3ForCausalLM Phi4MultimodalForCausalLM "
      "PhiForCausalLM PhimoeForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen3ForCausalLM "
      "Qwen3MoeForCausalLM Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM "
      "Qwen4ExpForCausalLM SeedOssForCausalLM SolarOpenForCausalLM StableLmForCausalLM" },
    { "model.language_model.embed_tokens.weight", "lm_head.weight",
      "AriaForConditionalGeneration CohereCompassForConditionalGeneration "
      "Cosmos3OmniForConditionalGeneration DeepseekOcr2ForConditionalGeneration "
      "Dots3NoteForConditionalGeneration Exaone4_5_ForConditionalGeneration "
      "FastVlmForConditionalGeneration FuyuForCausalLM Glm46VForConditionalGeneration "
      "Glm4vForConditionalGeneration Glm4vMoeForConditionalGeneration "
      "Glm5NextForConditionalGeneration GlmOcrForConditionalGeneration "
      "Granite4VisionForConditionalGeneration LlavaForConditionalGeneration "
      "LlavaNextForConditionalGeneration LlavaNextVideoForConditionalGeneration "
      "LlavaOnevisionForConditionalGeneration MiniCPMV4_6ForConditionalGeneration "
      "MiniCPMV4_7ForConditionalGeneration MiniMaxM3SparseForConditionalGeneration "
      "MistralLarge4ForConditionalGeneration MuseGlimmerForConditionalGeneration "
      "PerceptionLMForConditionalGeneration QianfanOCRForConditionalGeneration "
      "Qwen2VLForConditionalGeneration Qwen2_5OmniThinkerForConditionalGeneration "
      "Qwen2_5_VLForConditionalGeneration Qwen3VLForConditionalGeneration "
      "Qwen3VLMoeForConditionalGeneration Qwen3_5ForConditionalGeneration "
      "Qwen3_5MoeForConditionalGeneration Qwen4ExpForConditionalGeneration "
      "Step3p7ForConditionalGeneration UnlimitedOcrForConditionalGeneration "
      "VideoLlama3ForConditionalGeneration VideoLlavaForConditionalGeneration "
      "VipLlavaForConditionalGeneration" },
    { "model.embed_tokens.weight", "lm_head.weight",
      "Cohere2ForCausalLM Cohere2MoeForCausalLM CohereCompassForCausalLM CohereForCausalLM "
      "Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM "
      "Gemma3nForCausalLM Gemma4ForCausalLM Gemma4UnifiedAssistantForCausalLM "
      "Gemma4UnifiedForCausalLM GemmaForCausalLM GraniteSWAForCausalLM JetMoeForCausalLM "
      "Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm3ForCausalLM MiniCPM3ForCausalLM "
      "RecurrentGemmaForCausalLM SmolLM3ForCausalLM Starcoder2ForCausalLM VaultGemmaForCausalLM "
      "XGLMForCausalLM YoutuForCausalLM ZayaForCausalLM", TIED },
    { "model.language_model.embed_tokens.weight", "lm_head.weight",
      "AyaVisionForConditionalGeneration Cohere2VisionForConditionalGeneration "
      "DeepseekVLForConditionalGeneration DeepseekVLHybridForConditionalGeneration "
      "Ernie4_5_VLMoeForConditionalGeneration Ernie4_5_VL_MoeForConditionalGeneration "
      "Gemma3ForConditionalGeneration Gemma3nForConditionalGeneration "
      "Gemma4ForConditionalGeneration Gemma4UnifiedForConditionalGeneration "
      "HunYuanVLForConditionalGeneration HyperCLOVAXVisionV2ForConditionalGeneration "
      "InternVLForConditionalGeneration JanusForConditionalGeneration "
      "Kimi_K25ForConditionalGeneration Lfm2VlForConditionalGeneration "
      "Lfm3VlForConditionalGeneration LightOnOcrForConditionalGeneration "
      "MiniCPMOcrForConditionalGeneration Mistral3ForConditionalGeneration "
      "Ovis2ForConditionalGeneration PaddleOCRVLForConditionalGeneration "
      "PaliGemmaForConditionalGeneration", TIED },
    { "model.text_model.embed_tokens.weight", "lm_head.weight",
      "Emu3ForConditionalGeneration Idefics2ForConditionalGeneration "
      "Idefics3ForConditionalGeneration SmolVLMForConditionalGeneration" },
    { "transformer.wte.weight", "lm_head.weight",
      "GPT2LMHeadModel GPTBigCodeForCausalLM GPTNeoForCausalLM MptForCausalLM", TIED },
    { "transformer.wte.weight", "lm_head.weight",
      "CodeGenForCausalLM DbrxForCausalLM GPTJForCausalLM" },
    { "backbone.embeddings.weight", "lm_head.weight", "FalconMambaForCausalLM MambaForCausalLM",
      TIED },
    { "transformer.word_embeddings.weight", "lm_head.weight", "BloomForCausalLM FalconForCausalLM",
      TIED },
    { "backbone.embeddings.weight", "lm_head.weight", "Mamba2ForCausalLM" },
    { "gpt_neox.embed_in.weight", "lm_head.weight", "GPTNeoXForCausalLM" },
    { "gpt_neox_japanese.embed_in.weight", "embed_out.weight", "GPTNeoXJapaneseForCausalLM", TIED },
    { "language_model.model.embed_tokens.weight", "language_model.lm_head.weight",
      "Llama4ForConditionalGeneration" },
    { "model.decoder.embed_tokens.weight", "lm_head.weight", "OPTForCausalLM", TIED },
    { "model.text_model.embed_tokens.weight", "lm_head.weight",
      "GraniteDoclingForConditionalGeneration", TIED },
    { "thinker.model.language_model.embed_tokens.weight", "thinker.lm_head.weight",
      "Qwen2_5OmniForConditionalGeneration" },
    { "", "", "BailingHybridForCausalLM KimiLinearForCausalLM MllamaForCausalLM "
      "MllamaForConditionalGeneration NemotronHForCausalLM xLSTMForCausalLM" },
};
/* clang-format on */

static const sheaf__ties *row_of(const char *class)
{
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (sheaf__is_listed(table[i].classes, class, strlen(class)))
            return &table[i];
    return NULL;
}

/* transformers' classes with these endings have no head over the vocabulary. */
static bool is_headless(const char *architecture)
{
    static const char *const ends[] = { "Model", "ForSequenceClassification",
                                        "ForTokenClassification", "ForQuestionAnswering" },
                             *const models[] = { "ForCausalLM", "LMHeadModel",
                                                 "ForConditionalGeneration" };
    char class[128];
    for (size_t i = 0; i < 4; i++) {
        if (!sheaf__ends_with(architecture, ends[i]))
            continue;
        for (size_t k = 0; k < 3; k++) {
            snprintf(class, sizeof class, "%.*s%s", (int)(strlen(architecture) - strlen(ends[i])),
                     architecture, models[k]);
            if (row_of(class) != NULL)
                return true;
        }
    }
    return false;
}

const sheaf__ties *sheaf__ties_of(const char *architecture, bool own_code)
{
    static const sheaf__ties nothing = { "", "", "", false };
    const sheaf__ties *row = row_of(architecture);
    return row == NULL && !own_code && is_headless(architecture) ? &nothing : row;
}
