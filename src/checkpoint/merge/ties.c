/* ties.c - see ties.h. The table is what bench/ties_live.py derives from transformers 5.23
 * (--rows), and the long tests hold it to that. */
#include "checkpoint/merge/ties.h"

#include "base/base.h"

enum { UNTIES = false, KEEPS = true }; /* keeps_flag */
enum { APART = false, TIED = true };   /* unsaid */

/* Of BERT and RoBERTa and what was made after them: behind "TABLE=". */
#define PREDICTIONS                                                                                \
    "cls.predictions.decoder.weight cls.predictions.bias=cls.predictions.decoder.bias"
#define DECODER "lm_head.decoder.weight lm_head.bias=lm_head.decoder.bias"

/* clang-format off */
static const sheaf__ties table[] = {
    { "model.embed_tokens.weight=lm_head.weight",
      "AXK1ForCausalLM AXK2ForCausalLM AfmoeForCausalLM ApertusForCausalLM ArceeForCausalLM "
      "AriaTextForCausalLM BambaForCausalLM BeamForCausalLM BitNetForCausalLM "
      "ChameleonForConditionalGeneration CwmForCausalLM DeepseekV2ForCausalLM "
      "DeepseekV32ForCausalLM DeepseekV3ForCausalLM DeepseekV4ForCausalLM DiffLlamaForCausalLM "
      "DogeForCausalLM Dots1ForCausalLM Dots3NoteForCausalLM Emu3ForCausalLM EuroBertForMaskedLM "
      "Exaone4ForCausalLM ExaoneMoeForCausalLM FalconH1ForCausalLM FlexOlmoForCausalLM "
      "FlintForCausalLM Gemma4AssistantForCausalLM Glm4ForCausalLM Glm4MoeForCausalLM "
      "Glm4MoeLiteForCausalLM GlmForCausalLM GlmMoeDsaForCausalLM GptOssForCausalLM "
      "GraniteForCausalLM GraniteMoeForCausalLM GraniteMoeHybridForCausalLM "
      "GraniteMoeSWAForCausalLM GraniteMoeSharedForCausalLM HYV3ForCausalLM HYV4ForCausalLM "
      "HeliumForCausalLM HrmTextForCausalLM HunYuanDenseV1ForCausalLM HunYuanMoEV1ForCausalLM "
      "HyperCLOVAXForCausalLM Jais2ForCausalLM JambaForCausalLM Kolibri1ForCausalLM "
      "LagunaForCausalLM Llama4ForCausalLM LlamaForCausalLM LongcatFlashForCausalLM "
      "MellumForCausalLM MiMoV2FlashForCausalLM MiniMaxForCausalLM MiniMaxM2ForCausalLM "
      "MiniMaxM3VLForCausalLM Ministral3ForCausalLM MinistralForCausalLM Mistral4ForCausalLM "
      "MistralForCausalLM MixtralForCausalLM NanoChatForCausalLM NemotronForCausalLM "
      "Olmo2ForCausalLM Olmo3ForCausalLM OlmoForCausalLM OlmoHybridForCausalLM OlmoeForCausalLM "
      "PersimmonForCausalLM Phi3ForCausalLM Phi4MultimodalForCausalLM PhiForCausalLM "
      "PhimoeForCausalLM Qwen2ForCausalLM Qwen2MoeForCausalLM Qwen3ForCausalLM Qwen3MoeForCausalLM "
      "Qwen3NextForCausalLM Qwen3_5ForCausalLM Qwen3_5MoeForCausalLM Qwen4ExpForCausalLM "
      "SeedOssForCausalLM SolarOpenForCausalLM StableLmForCausalLM", UNTIES, APART, NULL, NULL },
    { "model.language_model.embed_tokens.weight=lm_head.weight",
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
      "VibeVoiceForConditionalGeneration VideoLlama3ForConditionalGeneration "
      "VideoLlavaForConditionalGeneration VipLlavaForConditionalGeneration",
      UNTIES, APART, NULL, NULL },
    { "model.language_model.embed_tokens.weight=lm_head.weight",
      "AyaVisionForConditionalGeneration Cohere2VisionForConditionalGeneration "
      "DeepseekVLForConditionalGeneration DeepseekVLHybridForConditionalGeneration "
      "Ernie4_5_VLMoeForConditionalGeneration Ernie4_5_VL_MoeForConditionalGeneration "
      "FunAsrNanoForConditionalGeneration Gemma3ForConditionalGeneration "
      "Gemma3nForConditionalGeneration Gemma4ForConditionalGeneration "
      "Gemma4UnifiedForConditionalGeneration GlmAsrForConditionalGeneration "
      "GotOcr2ForConditionalGeneration GraniteSpeechForConditionalGeneration "
      "GraniteSpeechPlusForConditionalGeneration HunYuanVLForConditionalGeneration "
      "HyperCLOVAXVisionV2ForConditionalGeneration InternVLForConditionalGeneration "
      "JanusForConditionalGeneration Kimi_K25ForConditionalGeneration "
      "Lfm2VlForConditionalGeneration Lfm3VlForConditionalGeneration "
      "LightOnOcrForConditionalGeneration MiniCPMOcrForConditionalGeneration "
      "Mistral3ForConditionalGeneration MossTranscribeDiarizeForConditionalGeneration "
      "Ovis2ForConditionalGeneration PaddleOCRVLForConditionalGeneration "
      "PaliGemmaForConditionalGeneration Qwen3ASRForConditionalGeneration "
      "VoxtralRealtimeForConditionalGeneration", UNTIES, TIED, NULL, NULL },
    { "model.embed_tokens.weight=lm_head.weight",
      "Cohere2ForCausalLM Cohere2MoeForCausalLM CohereCompassForCausalLM CohereForCausalLM "
      "Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM "
      "Gemma3nForCausalLM Gemma4ForCausalLM Gemma4UnifiedAssistantForCausalLM "
      "Gemma4UnifiedForCausalLM GemmaForCausalLM GraniteSWAForCausalLM JetMoeForCausalLM "
      "Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm3ForCausalLM MiniCPM3ForCausalLM "
      "RecurrentGemmaForCausalLM SmolLM3ForCausalLM Starcoder2ForCausalLM VaultGemmaForCausalLM "
      "XGLMForCausalLM YoutuForCausalLM ZayaForCausalLM", UNTIES, TIED, NULL, NULL },
    { "", "BailingHybridForCausalLM BigBirdPegasusForCausalLM ElectraForPreTraining "
      "FunnelForPreTraining KimiLinearForCausalLM MllamaForCausalLM MllamaForConditionalGeneration "
      "NemotronHForCausalLM PerceiverForMaskedLM Qwen2AudioForConditionalGeneration "
      "RemBertForCausalLM RemBertForMaskedLM xLSTMForCausalLM", UNTIES, APART, NULL, NULL },
    { "shared.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight",
      "BartModel BigBirdPegasusModel BlenderbotModel BlenderbotSmallModel LEDModel M2M100Model "
      "MBartModel MvpModel NllbMoeModel PLBartModel PegasusModel PegasusXModel "
      "SwitchTransformersModel", UNTIES, TIED, NULL, NULL },
    { "model.shared.weight=lm_head.weight=model.decoder.embed_tokens.weight=model.encoder.embed_tokens.weight",
      "BartForConditionalGeneration BigBirdPegasusForConditionalGeneration "
      "BlenderbotForConditionalGeneration BlenderbotSmallForConditionalGeneration "
      "M2M100ForConditionalGeneration MBartForConditionalGeneration MvpForConditionalGeneration "
      "NllbMoeForConditionalGeneration PLBartForConditionalGeneration "
      "PegasusForConditionalGeneration PegasusXForConditionalGeneration",
      UNTIES, TIED, NULL, NULL },
    { "roberta.embeddings.word_embeddings.weight=" DECODER,
      "CamembertForCausalLM CamembertForMaskedLM JinaEmbeddingsV3ForMaskedLM RobertaForCausalLM "
      "RobertaForMaskedLM XLMRobertaForCausalLM XLMRobertaForMaskedLM XLMRobertaXLForCausalLM "
      "XLMRobertaXLForMaskedLM XmodForCausalLM XmodForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "", "DFineForObjectDetection DabDetrForObjectDetection DeformableDetrForObjectDetection "
      "Deimv2ForObjectDetection GroundingDinoForObjectDetection IBertForMaskedLM "
      "MMGroundingDinoForObjectDetection PPDocLayoutV3ForObjectDetection PPDocLayoutV3Model "
      "RTDetrV2ForObjectDetection",
      UNTIES, APART, NULL, "bbox_embed class_embed enc_bbox_head enc_score_head" },
    { "bert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "BertForMaskedLM BertForPreTraining BertLMHeadModel BigBirdForCausalLM BigBirdForMaskedLM "
      "BigBirdForPreTraining BlipTextLMHeadModel MegatronBertForCausalLM MegatronBertForMaskedLM "
      "MegatronBertForPreTraining", UNTIES, TIED, NULL, NULL },
    { "model.decoder.embed_tokens.weight=lm_head.weight",
      "BartForCausalLM BlenderbotForCausalLM BlenderbotSmallForCausalLM MBartForCausalLM "
      "MvpForCausalLM OPTForCausalLM PLBartForCausalLM PegasusForCausalLM "
      "SeamlessM4TTextToUnitForConditionalGeneration Speech2TextForConditionalGeneration",
      UNTIES, TIED, NULL, NULL },
    { "model.shared.weight=model.decoder.embed_tokens.weight=model.encoder.embed_tokens.weight",
      "BartForQuestionAnswering BartForSequenceClassification BigBirdPegasusForQuestionAnswering "
      "BigBirdPegasusForSequenceClassification MBartForQuestionAnswering "
      "MBartForSequenceClassification MvpForQuestionAnswering MvpForSequenceClassification "
      "PLBartForSequenceClassification", UNTIES, TIED, NULL, NULL },
    { "shared.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight",
      "LongT5Model MT5ForQuestionAnswering MT5Model Pop2PianoForConditionalGeneration "
      "T5ForQuestionAnswering T5Model UMT5ForQuestionAnswering UMT5Model",
      KEEPS, TIED, NULL, NULL },
    { "model.text_model.embed_tokens.weight=lm_head.weight",
      "Emu3ForConditionalGeneration Idefics2ForConditionalGeneration "
      "Idefics3ForConditionalGeneration SmolVLMForConditionalGeneration UltraVBertForMaskedLM",
      UNTIES, APART, NULL, NULL },
    { "shared.weight=lm_head.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight",
      "LongT5ForConditionalGeneration MT5ForConditionalGeneration "
      "SwitchTransformersForConditionalGeneration T5ForConditionalGeneration "
      "UMT5ForConditionalGeneration", KEEPS, TIED, NULL, NULL },
    { "transformer.wte.weight=lm_head.weight",
      "GPT2DoubleHeadsModel GPT2LMHeadModel GPTBigCodeForCausalLM GPTNeoForCausalLM MptForCausalLM",
      UNTIES, TIED, NULL, NULL },
    { "", "Zamba2ForSequenceClassification Zamba2Model ZambaForSequenceClassification ZambaModel",
      UNTIES, APART, NULL, "shared_transf shared_transformer" },
    { "model.decoder.embed_tokens.weight=proj_out.weight",
      "CanaryForConditionalGeneration MoonshineForConditionalGeneration WhisperForCausalLM "
      "WhisperForConditionalGeneration", UNTIES, TIED, NULL, NULL },
    { "shared.weight=encoder.embed_tokens.weight",
      "LongT5EncoderModel MT5EncoderModel T5EncoderModel UMT5EncoderModel",
      KEEPS, TIED, NULL, NULL },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight=text_encoder.embed_tokens.weight "
      "t2u_model.model.decoder.embed_tokens.weight=t2u_model.lm_head.weight",
      "SeamlessM4TForTextToSpeech SeamlessM4TModel SeamlessM4Tv2ForTextToSpeech SeamlessM4Tv2Model",
      UNTIES, TIED, NULL, NULL },
    { "transformer.wte.weight=lm_head.weight",
      "CodeGenForCausalLM DbrxForCausalLM GPTJForCausalLM ImageGPTForCausalImageModeling",
      UNTIES, APART, NULL, NULL },
    { "ernie.embeddings.word_embeddings.weight=" PREDICTIONS,
      "ErnieForCausalLM ErnieForMaskedLM ErnieForPreTraining", UNTIES, TIED, NULL, NULL },
    { "roc_bert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "RoCBertForCausalLM RoCBertForMaskedLM RoCBertForPreTraining", UNTIES, TIED, NULL, NULL },
    { "transformer.shared.weight=transformer.decoder.embed_tokens.weight=transformer.encoder.embed_tokens.weight",
      "MT5ForSequenceClassification T5ForSequenceClassification UMT5ForSequenceClassification",
      KEEPS, TIED, NULL, NULL },
    { "transformer.shared.weight=transformer.encoder.embed_tokens.weight",
      "MT5ForTokenClassification T5ForTokenClassification UMT5ForTokenClassification",
      KEEPS, TIED, NULL, NULL },
    { "albert.embeddings.word_embeddings.weight=predictions.decoder.weight "
      "predictions.bias=predictions.decoder.bias", "AlbertForMaskedLM AlbertForPreTraining",
      UNTIES, TIED, NULL, NULL },
    { "backbone.embeddings.weight=lm_head.weight", "FalconMambaForCausalLM MambaForCausalLM",
      UNTIES, TIED, NULL, NULL },
    { "data2vec_text.embeddings.word_embeddings.weight=" DECODER,
      "Data2VecTextForCausalLM Data2VecTextForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "deberta.embeddings.word_embeddings.weight=" PREDICTIONS,
      "DebertaForMaskedLM DebertaV2ForMaskedLM", UNTIES, TIED, "legacy", NULL },
    { "electra.embeddings.word_embeddings.weight=generator_lm_head.weight",
      "ElectraForCausalLM ElectraForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "fnet.embeddings.word_embeddings.weight=" PREDICTIONS, "FNetForMaskedLM FNetForPreTraining",
      UNTIES, TIED, NULL, NULL },
    { "mobilebert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "MobileBertForMaskedLM MobileBertForPreTraining", UNTIES, TIED, NULL, NULL },
    { "model.decoder.embed_tokens.weight=proj_out.weight",
      "CohereAsrForConditionalGeneration MoonshineStreamingForConditionalGeneration",
      UNTIES, APART, NULL, NULL },
    { "model.embed_tokens.weight=lm_head.weight", "Zamba2ForCausalLM ZambaForCausalLM",
      UNTIES, TIED, NULL, "shared_transf shared_transformer" },
    { "model.embeddings.tok_embeddings.weight=decoder.weight",
      "ModernBertDecoderForCausalLM ModernBertForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "model.encoder.text_model.embed_tokens.weight=model.decoder.embed_tokens.weight "
      "model.encoder.text_model.embed_tokens.eoi_embedding=model.decoder.embed_tokens.eoi_embedding",
      "T5Gemma2ForSequenceClassification T5Gemma2ForTokenClassification",
      UNTIES, TIED, NULL, NULL },
    { "roberta_prelayernorm.embeddings.word_embeddings.weight=" DECODER,
      "RobertaPreLayerNormForCausalLM RobertaPreLayerNormForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "roformer.embeddings.word_embeddings.weight=" PREDICTIONS,
      "RoFormerForCausalLM RoFormerForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "shared_image_embedding.positional_embedding=prompt_encoder.shared_embedding.positional_embedding",
      "SamHQModel SamModel", UNTIES, TIED, NULL, NULL },
    { "text_decoder.bert.embeddings.word_embeddings.weight=text_decoder.cls.predictions.decoder.weight "
      "text_decoder.cls.predictions.bias=text_decoder.cls.predictions.decoder.bias",
      "BlipForConditionalGeneration BlipForQuestionAnswering", UNTIES, TIED, NULL, NULL },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight",
      "SeamlessM4TForSpeechToText SeamlessM4Tv2ForSpeechToText", UNTIES, TIED, NULL, NULL },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight "
      "t2u_model.model.decoder.embed_tokens.weight=t2u_model.lm_head.weight",
      "SeamlessM4TForSpeechToSpeech SeamlessM4Tv2ForSpeechToSpeech", UNTIES, TIED, NULL, NULL },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight=text_encoder.embed_tokens.weight",
      "SeamlessM4TForTextToText SeamlessM4Tv2ForTextToText", UNTIES, TIED, NULL, NULL },
    { "text_model.model.embed_tokens.weight=text_model.lm_head.weight",
      "Kosmos2ForConditionalGeneration Kosmos2_5ForConditionalGeneration",
      UNTIES, TIED, NULL, NULL },
    { "transformer.embeddings.weight=pred_layer.proj.weight",
      "FlaubertWithLMHeadModel XLMWithLMHeadModel", UNTIES, TIED, NULL, NULL },
    { "transformer.tokens_embed.weight=lm_head.weight",
      "OpenAIGPTDoubleHeadsModel OpenAIGPTLMHeadModel", UNTIES, TIED, NULL, NULL },
    { "transformer.word_embeddings.weight=lm_head.weight", "BloomForCausalLM FalconForCausalLM",
      UNTIES, TIED, NULL, NULL },
    { "visual_bert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "VisualBertForPreTraining VisualBertForRegionToPhraseAlignment", UNTIES, TIED, NULL, NULL },
    { "backbone.embeddings.weight=lm_head.weight", "Mamba2ForCausalLM", UNTIES, APART, NULL, NULL },
    { "bert.embeddings.word_embeddings.weight=" DECODER, "BertGenerationDecoder",
      UNTIES, TIED, NULL, NULL },
    { "biogpt.embed_tokens.weight=output_projection.weight", "BioGptForCausalLM",
      UNTIES, TIED, NULL, NULL },
    { "bridgetower.text_model.embeddings.word_embeddings.weight=mlm_score.decoder.weight",
      "BridgeTowerForMaskedLM", UNTIES, APART, NULL, NULL },
    { "convbert.embeddings.word_embeddings.weight=generator_lm_head.weight", "ConvBertForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "decoder.embed_tokens.weight=decoder.lm_head.weight", "Pix2StructForConditionalGeneration",
      UNTIES, APART, NULL, NULL },
    { "distilbert.embeddings.word_embeddings.weight=vocab_projector.weight",
      "DistilBertForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "embed_tokens.weight=lm_head.weight", "Pix2StructTextModel", UNTIES, APART, NULL, NULL },
    { "encoder.embed_tokens.weight=decoder.embed_tokens.weight=decoder.output_projection.weight",
      "FSMTModel", UNTIES, APART, NULL, NULL },
    { "encoder.embed_tokens.weight=shared.weight=decoder.embed_tokens.weight", "MarianModel",
      UNTIES, TIED, "share_encoder_decoder_embeddings", NULL },
    { "encoder.out.weight=ctc_head.weight encoder.out.bias=ctc_head.bias", "GraniteSpeech5ForCTC",
      UNTIES, TIED, NULL, NULL },
    { "encoder.text_model.embed_tokens.weight=decoder.embed_tokens.weight "
      "encoder.text_model.embed_tokens.eoi_embedding=decoder.embed_tokens.eoi_embedding",
      "T5Gemma2Model", UNTIES, TIED, NULL, NULL },
    { "esm.embeddings.word_embeddings.weight=lm_head.decoder.weight", "EsmForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "funnel.embeddings.word_embeddings.weight=lm_head.weight", "FunnelForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "git.embeddings.word_embeddings.weight=output.weight", "GitForCausalLM",
      UNTIES, APART, NULL, NULL },
    { "gpt_neox.embed_in.weight=lm_head.weight", "GPTNeoXForCausalLM", UNTIES, APART, NULL, NULL },
    { "gpt_neox_japanese.embed_in.weight=embed_out.weight", "GPTNeoXJapaneseForCausalLM",
      UNTIES, TIED, NULL, NULL },
    { "gte.embeddings.word_embeddings.weight=lm_head.decoder.weight", "GteForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "language_model.model.embed_tokens.weight=language_model.lm_head.weight",
      "Llama4ForConditionalGeneration", UNTIES, APART, NULL, NULL },
    { "layoutlm.embeddings.word_embeddings.weight=" PREDICTIONS, "LayoutLMForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "led.shared.weight=led.decoder.embed_tokens.weight=led.encoder.embed_tokens.weight",
      "LEDForQuestionAnswering", UNTIES, TIED, NULL, NULL },
    { "led.shared.weight=lm_head.weight=led.decoder.embed_tokens.weight=led.encoder.embed_tokens.weight",
      "LEDForConditionalGeneration", UNTIES, TIED, NULL, NULL },
    { "longformer.embeddings.word_embeddings.weight=" DECODER, "LongformerForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "luke.entity_embeddings.entity_embeddings.weight=entity_predictions.decoder.weight "
      "lm_head.decoder.bias=lm_head.bias", "LukeForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "lxmert.embeddings.word_embeddings.weight=cls.predictions.decoder.weight",
      "LxmertForPreTraining", UNTIES, TIED, NULL, NULL },
    { "mim_head.decoder.bias=mim_head.bias mlm_head.decoder.bias=mlm_head.bias "
      "mmm_image_head.decoder.bias=mmm_image_head.bias "
      "mmm_text_head.decoder.bias=mmm_text_head.bias", "FlavaForPreTraining",
      UNTIES, TIED, NULL, NULL },
    { "model.decoder.embed_tokens.weight=lm_head.out_proj.weight",
      "T5GemmaForConditionalGeneration", UNTIES, TIED, NULL, NULL },
    { "model.decoder.embed_tokens.weight=lm_head.weight", "MarianForCausalLM",
      UNTIES, TIED, "share_encoder_decoder_embeddings", NULL },
    { "model.decoder.embed_tokens.weight=output_projection.weight", "TrOCRForCausalLM",
      UNTIES, TIED, NULL, NULL },
    { "model.embed_tokens.embed_tokens.weight=lm_head.weight",
      "KyutaiSpeechToTextForConditionalGeneration", UNTIES, APART, NULL, NULL },
    { "model.embed_tokens.weight=head.decoder.weight", "UltrabertForMaskedLM",
      UNTIES, APART, NULL, NULL },
    { "model.embed_tokens.word_embeddings.weight=lm_head.weight "
      "model.embed_tokens.embedding_projection.weight=unembedding_projection.weight",
      "NeoMMEForMaskedLM", UNTIES, TIED, NULL, NULL },
    { "model.encoder.embed_tokens.weight=model.decoder.embed_tokens.weight=model.decoder.output_projection.weight",
      "FSMTForConditionalGeneration", UNTIES, APART, NULL, NULL },
    { "model.encoder.embed_tokens.weight=model.shared.weight=lm_head.weight=model.decoder.embed_tokens.weight",
      "MarianMTModel", UNTIES, TIED, "share_encoder_decoder_embeddings", NULL },
    { "model.encoder.text_model.embed_tokens.weight=lm_head.out_proj.weight=model.decoder.embed_tokens.weight "
      "model.encoder.text_model.embed_tokens.eoi_embedding=model.decoder.embed_tokens.eoi_embedding",
      "T5Gemma2ForConditionalGeneration", UNTIES, TIED, NULL, NULL },
    { "model.text_model.embed_tokens.weight=lm_head.weight",
      "GraniteDoclingForConditionalGeneration", UNTIES, TIED, NULL, NULL },
    { "model.text_model.embeddings.tok_embeddings.weight=lm_head.weight", "ModernVBertForMaskedLM",
      UNTIES, APART, NULL, NULL },
    { "mpnet.embeddings.word_embeddings.weight=" DECODER, "MPNetForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "mra.embeddings.word_embeddings.weight=" PREDICTIONS, "MraForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "nomic_bert.embeddings.word_embeddings.weight=" PREDICTIONS, "NomicBertForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "nystromformer.embeddings.word_embeddings.weight=" PREDICTIONS, "NystromformerForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "prophetnet.decoder.word_embeddings.weight=prophetnet.word_embeddings.weight=lm_head.weight",
      "ProphetNetForCausalLM", UNTIES, TIED, NULL, NULL },
    { "prophetnet.word_embeddings.weight=lm_head.weight=prophetnet.decoder.word_embeddings.weight=prophetnet.encoder.word_embeddings.weight",
      "ProphetNetForConditionalGeneration", UNTIES, TIED, NULL, NULL },
    { "rwkv.embeddings.weight=head.weight", "RwkvForCausalLM", UNTIES, APART, NULL, NULL },
    { "shared.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight "
      "patch_embed.proj.weight=encoder.embed_patches.proj.weight "
      "patch_embed.proj.bias=encoder.embed_patches.proj.bias", "UdopModel",
      KEEPS, TIED, NULL, NULL },
    { "shared.weight=encoder.embed_tokens.weight", "SwitchTransformersEncoderModel",
      UNTIES, TIED, NULL, NULL },
    { "shared.weight=encoder.embed_tokens.weight "
      "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight=encoder.relative_bias.biases.0.relative_attention_bias.weight "
      "patch_embed.proj.weight=encoder.embed_patches.proj.weight "
      "patch_embed.proj.bias=encoder.embed_patches.proj.bias", "UdopEncoderModel",
      KEEPS, TIED, NULL, NULL },
    { "shared.weight=lm_head.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight "
      "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight=decoder.relative_bias.biases.0.relative_attention_bias.weight=encoder.relative_bias.biases.0.relative_attention_bias.weight "
      "patch_embed.proj.weight=encoder.embed_patches.proj.weight "
      "patch_embed.proj.bias=encoder.embed_patches.proj.bias", "UdopForConditionalGeneration",
      KEEPS, TIED, NULL, NULL },
    { "speecht5.decoder.prenet.embed_tokens.weight=text_decoder_postnet.lm_head.weight",
      "SpeechT5ForSpeechToText", UNTIES, TIED, NULL, NULL },
    { "tapas.embeddings.word_embeddings.weight=" PREDICTIONS, "TapasForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "thinker.model.language_model.embed_tokens.weight=thinker.lm_head.weight",
      "Qwen2_5OmniForConditionalGeneration", UNTIES, APART, NULL, NULL },
    { "transformer.embeddings.word_embeddings.weight=" PREDICTIONS, "SqueezeBertForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "transformer.w.weight=lm_head.weight", "CTRLLMHeadModel", UNTIES, TIED, NULL, NULL },
    { "transformer.word_embedding.weight=lm_loss.weight", "XLNetLMHeadModel",
      UNTIES, TIED, NULL, NULL },
    { "vilt.embeddings.text_embeddings.word_embeddings.weight=mlm_score.decoder.weight",
      "ViltForMaskedLM", KEEPS, TIED, NULL, NULL },
    { "word_embeddings.weight=decoder.word_embeddings.weight=encoder.word_embeddings.weight",
      "ProphetNetModel", UNTIES, TIED, NULL, NULL },
    { "yoso.embeddings.word_embeddings.weight=" PREDICTIONS, "YosoForMaskedLM",
      UNTIES, TIED, NULL, NULL },
    { "", "BarkCausalModel BarkCoarseModel BarkFineModel BarkModel BarkSemanticModel "
      "Blip2ForConditionalGeneration Blip2Model BltForCausalLM BltModel BltPatcher "
      "CsmBackboneModel CsmDepthDecoderForCausalLM CsmDepthDecoderModel "
      "CsmForConditionalGeneration DiffusionGemmaDecoderModel DiffusionGemmaEncoderModel "
      "DiffusionGemmaEncoderTextModel DiffusionGemmaForBlockDiffusion DiffusionGemmaModel "
      "EncoderDecoderModel Florence2ForConditionalGeneration Florence2Model "
      "IdeficsForVisionText2Text InstructBlipForConditionalGeneration "
      "InstructBlipVideoForConditionalGeneration MusicgenForConditionalGeneration "
      "MusicgenMelodyForConditionalGeneration PeAudioVideoEncoder PeAudioVideoModel "
      "Qwen3OmniMoeCode2Wav Qwen3OmniMoeCode2WavDecoderBlock Qwen3OmniMoeCode2WavTransformerModel "
      "Qwen3OmniMoeForConditionalGeneration Qwen3OmniMoePreTrainedModelForConditionalGeneration "
      "Qwen3OmniMoeTalkerCodePredictorModel "
      "Qwen3OmniMoeTalkerCodePredictorModelForConditionalGeneration "
      "Qwen3OmniMoeTalkerForConditionalGeneration Qwen3OmniMoeTalkerModel "
      "Qwen3OmniMoeThinkerForConditionalGeneration Qwen3OmniMoeThinkerModel "
      "Qwen3OmniMoeThinkerTextModel RagModel RagSequenceForGeneration RagTokenForGeneration "
      "ShieldGemma2ForImageClassification SpeechEncoderDecoderModel VisionEncoderDecoderModel",
      UNTIES, APART, NULL, "*" },
};
/* clang-format on */

/* Classes of transformers whose names end so have no head over the vocabulary, but for those in the
 * table. */
static const char without_head[] =
    "Model Encoder Decoder ForSequenceClassification ForTokenClassification ForImageClassification "
    "ForAudioClassification ForVideoClassification ForQuestionAnswering ForQuestionAnsweringSimple "
    "ForMultipleChoice ForNextSentencePrediction ForCTC";
static const sheaf__ties nothing = { .groups = "", .classes = "" };

const sheaf__ties *sheaf__ties_of(const char *architecture, bool own_code)
{
    const size_t n = strlen(architecture);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (sheaf__is_listed(table[i].classes, architecture, n))
            return &table[i];
    for (size_t i = 0; i < n && !own_code; i++)
        if (sheaf__is_listed(without_head, architecture + i, n - i))
            return &nothing;
    return NULL;
}
