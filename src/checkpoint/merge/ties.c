/* ties.c - see ties.h. The table is what bench/ties_live.py derives from transformers 5.23
 * (--rows), and the long tests hold it to that. */
#include "checkpoint/merge/ties.h"

#include "base/base.h"

#define TIED .unsaid = true
#define KEEPS .keeps_flag = true

/* BERT, RoBERTa and their successors: what follows "TABLE=". */
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
      "SeedOssForCausalLM SolarOpenForCausalLM StableLmForCausalLM" },
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
      "VideoLlavaForConditionalGeneration VipLlavaForConditionalGeneration" },
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
      "VoxtralRealtimeForConditionalGeneration", TIED },
    { "model.embed_tokens.weight=lm_head.weight",
      "Cohere2ForCausalLM Cohere2MoeForCausalLM CohereCompassForCausalLM CohereForCausalLM "
      "Ernie4_5ForCausalLM Ernie4_5_MoeForCausalLM Gemma2ForCausalLM Gemma3ForCausalLM "
      "Gemma3nForCausalLM Gemma4ForCausalLM Gemma4UnifiedAssistantForCausalLM "
      "Gemma4UnifiedForCausalLM GemmaForCausalLM GraniteSWAForCausalLM JetMoeForCausalLM "
      "Lfm2ForCausalLM Lfm2MoeForCausalLM Lfm3ForCausalLM MiniCPM3ForCausalLM "
      "RecurrentGemmaForCausalLM SmolLM3ForCausalLM Starcoder2ForCausalLM VaultGemmaForCausalLM "
      "XGLMForCausalLM YoutuForCausalLM ZayaForCausalLM", TIED },
    { "", "BailingHybridForCausalLM BigBirdPegasusForCausalLM ElectraForPreTraining "
      "FunnelForPreTraining KimiLinearForCausalLM MllamaForCausalLM MllamaForConditionalGeneration "
      "NemotronHForCausalLM PerceiverForMaskedLM Qwen2AudioForConditionalGeneration "
      "RemBertForCausalLM RemBertForMaskedLM xLSTMForCausalLM" },
    { "shared.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight",
      "BartModel BigBirdPegasusModel BlenderbotModel BlenderbotSmallModel LEDModel M2M100Model "
      "MBartModel MvpModel NllbMoeModel PLBartModel PegasusModel PegasusXModel "
      "SwitchTransformersModel", TIED },
    { "model.shared.weight=lm_head.weight=model.decoder.embed_tokens.weight=model.encoder.embed_tokens.weight",
      "BartForConditionalGeneration BigBirdPegasusForConditionalGeneration "
      "BlenderbotForConditionalGeneration BlenderbotSmallForConditionalGeneration "
      "M2M100ForConditionalGeneration MBartForConditionalGeneration MvpForConditionalGeneration "
      "NllbMoeForConditionalGeneration PLBartForConditionalGeneration "
      "PegasusForConditionalGeneration PegasusXForConditionalGeneration", TIED },
    { "roberta.embeddings.word_embeddings.weight=" DECODER,
      "CamembertForCausalLM CamembertForMaskedLM JinaEmbeddingsV3ForMaskedLM RobertaForCausalLM "
      "RobertaForMaskedLM XLMRobertaForCausalLM XLMRobertaForMaskedLM XLMRobertaXLForCausalLM "
      "XLMRobertaXLForMaskedLM XmodForCausalLM XmodForMaskedLM", TIED },
    { "", "DFineForObjectDetection DabDetrForObjectDetection DeformableDetrForObjectDetection "
      "Deimv2ForObjectDetection GroundingDinoForObjectDetection IBertForMaskedLM "
      "MMGroundingDinoForObjectDetection PPDocLayoutV3ForObjectDetection PPDocLayoutV3Model "
      "RTDetrV2ForObjectDetection",
      .unsure = "bbox_embed class_embed enc_bbox_head enc_score_head" },
    { "bert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "BertForMaskedLM BertForPreTraining BertLMHeadModel BigBirdForCausalLM BigBirdForMaskedLM "
      "BigBirdForPreTraining BlipTextLMHeadModel MegatronBertForCausalLM MegatronBertForMaskedLM "
      "MegatronBertForPreTraining", TIED },
    { "model.decoder.embed_tokens.weight=lm_head.weight",
      "BartForCausalLM BlenderbotForCausalLM BlenderbotSmallForCausalLM MBartForCausalLM "
      "MvpForCausalLM OPTForCausalLM PLBartForCausalLM PegasusForCausalLM "
      "SeamlessM4TTextToUnitForConditionalGeneration Speech2TextForConditionalGeneration", TIED },
    { "model.shared.weight=model.decoder.embed_tokens.weight=model.encoder.embed_tokens.weight",
      "BartForQuestionAnswering BartForSequenceClassification BigBirdPegasusForQuestionAnswering "
      "BigBirdPegasusForSequenceClassification MBartForQuestionAnswering "
      "MBartForSequenceClassification MvpForQuestionAnswering MvpForSequenceClassification "
      "PLBartForSequenceClassification", TIED },
    { "shared.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight",
      "LongT5Model MT5ForQuestionAnswering MT5Model Pop2PianoForConditionalGeneration "
      "T5ForQuestionAnswering T5Model UMT5ForQuestionAnswering UMT5Model", TIED, KEEPS },
    { "model.text_model.embed_tokens.weight=lm_head.weight",
      "Emu3ForConditionalGeneration Idefics2ForConditionalGeneration "
      "Idefics3ForConditionalGeneration SmolVLMForConditionalGeneration UltraVBertForMaskedLM" },
    { "shared.weight=lm_head.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight",
      "LongT5ForConditionalGeneration MT5ForConditionalGeneration "
      "SwitchTransformersForConditionalGeneration T5ForConditionalGeneration "
      "UMT5ForConditionalGeneration", TIED, KEEPS },
    { "transformer.wte.weight=lm_head.weight",
      "GPT2DoubleHeadsModel GPT2LMHeadModel GPTBigCodeForCausalLM GPTNeoForCausalLM MptForCausalLM",
      TIED },
    { "", "Zamba2ForSequenceClassification Zamba2Model ZambaForSequenceClassification ZambaModel",
      .unsure = "shared_transf shared_transformer" },
    { "model.decoder.embed_tokens.weight=proj_out.weight",
      "CanaryForConditionalGeneration MoonshineForConditionalGeneration WhisperForCausalLM "
      "WhisperForConditionalGeneration", TIED },
    { "shared.weight=encoder.embed_tokens.weight",
      "LongT5EncoderModel MT5EncoderModel T5EncoderModel UMT5EncoderModel", TIED, KEEPS },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight=text_encoder.embed_tokens.weight "
      "t2u_model.model.decoder.embed_tokens.weight=t2u_model.lm_head.weight",
      "SeamlessM4TForTextToSpeech SeamlessM4TModel SeamlessM4Tv2ForTextToSpeech SeamlessM4Tv2Model",
      TIED },
    { "transformer.wte.weight=lm_head.weight",
      "CodeGenForCausalLM DbrxForCausalLM GPTJForCausalLM ImageGPTForCausalImageModeling" },
    { "ernie.embeddings.word_embeddings.weight=" PREDICTIONS,
      "ErnieForCausalLM ErnieForMaskedLM ErnieForPreTraining", TIED },
    { "roc_bert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "RoCBertForCausalLM RoCBertForMaskedLM RoCBertForPreTraining", TIED },
    { "transformer.shared.weight=transformer.decoder.embed_tokens.weight=transformer.encoder.embed_tokens.weight",
      "MT5ForSequenceClassification T5ForSequenceClassification UMT5ForSequenceClassification",
      TIED, KEEPS },
    { "transformer.shared.weight=transformer.encoder.embed_tokens.weight",
      "MT5ForTokenClassification T5ForTokenClassification UMT5ForTokenClassification", TIED,
      KEEPS },
    { "albert.embeddings.word_embeddings.weight=predictions.decoder.weight "
      "predictions.bias=predictions.decoder.bias", "AlbertForMaskedLM AlbertForPreTraining", TIED },
    { "backbone.embeddings.weight=lm_head.weight", "FalconMambaForCausalLM MambaForCausalLM",
      TIED },
    { "data2vec_text.embeddings.word_embeddings.weight=" DECODER,
      "Data2VecTextForCausalLM Data2VecTextForMaskedLM", TIED },
    { "deberta.embeddings.word_embeddings.weight=" PREDICTIONS,
      "DebertaForMaskedLM DebertaV2ForMaskedLM", TIED, .unless = "legacy" },
    { "electra.embeddings.word_embeddings.weight=generator_lm_head.weight",
      "ElectraForCausalLM ElectraForMaskedLM", TIED },
    { "fnet.embeddings.word_embeddings.weight=" PREDICTIONS, "FNetForMaskedLM FNetForPreTraining",
      TIED },
    { "mobilebert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "MobileBertForMaskedLM MobileBertForPreTraining", TIED },
    { "model.decoder.embed_tokens.weight=proj_out.weight",
      "CohereAsrForConditionalGeneration MoonshineStreamingForConditionalGeneration" },
    { "model.embed_tokens.weight=lm_head.weight", "Zamba2ForCausalLM ZambaForCausalLM", TIED,
      .unsure = "shared_transf shared_transformer" },
    { "model.embeddings.tok_embeddings.weight=decoder.weight",
      "ModernBertDecoderForCausalLM ModernBertForMaskedLM", TIED },
    { "model.encoder.text_model.embed_tokens.weight=model.decoder.embed_tokens.weight "
      "model.encoder.text_model.embed_tokens.eoi_embedding=model.decoder.embed_tokens.eoi_embedding",
      "T5Gemma2ForSequenceClassification T5Gemma2ForTokenClassification", TIED },
    { "roberta_prelayernorm.embeddings.word_embeddings.weight=" DECODER,
      "RobertaPreLayerNormForCausalLM RobertaPreLayerNormForMaskedLM", TIED },
    { "roformer.embeddings.word_embeddings.weight=" PREDICTIONS,
      "RoFormerForCausalLM RoFormerForMaskedLM", TIED },
    { "shared_image_embedding.positional_embedding=prompt_encoder.shared_embedding.positional_embedding",
      "SamHQModel SamModel", TIED },
    { "text_decoder.bert.embeddings.word_embeddings.weight=text_decoder.cls.predictions.decoder.weight "
      "text_decoder.cls.predictions.bias=text_decoder.cls.predictions.decoder.bias",
      "BlipForConditionalGeneration BlipForQuestionAnswering", TIED },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight",
      "SeamlessM4TForSpeechToText SeamlessM4Tv2ForSpeechToText", TIED },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight "
      "t2u_model.model.decoder.embed_tokens.weight=t2u_model.lm_head.weight",
      "SeamlessM4TForSpeechToSpeech SeamlessM4Tv2ForSpeechToSpeech", TIED },
    { "text_decoder.embed_tokens.weight=shared.weight=lm_head.weight=text_encoder.embed_tokens.weight",
      "SeamlessM4TForTextToText SeamlessM4Tv2ForTextToText", TIED },
    { "text_model.model.embed_tokens.weight=text_model.lm_head.weight",
      "Kosmos2ForConditionalGeneration Kosmos2_5ForConditionalGeneration", TIED },
    { "transformer.embeddings.weight=pred_layer.proj.weight",
      "FlaubertWithLMHeadModel XLMWithLMHeadModel", TIED },
    { "transformer.tokens_embed.weight=lm_head.weight",
      "OpenAIGPTDoubleHeadsModel OpenAIGPTLMHeadModel", TIED },
    { "transformer.word_embeddings.weight=lm_head.weight", "BloomForCausalLM FalconForCausalLM",
      TIED },
    { "visual_bert.embeddings.word_embeddings.weight=" PREDICTIONS,
      "VisualBertForPreTraining VisualBertForRegionToPhraseAlignment", TIED },
    { "backbone.embeddings.weight=lm_head.weight", "Mamba2ForCausalLM" },
    { "bert.embeddings.word_embeddings.weight=" DECODER, "BertGenerationDecoder", TIED },
    { "biogpt.embed_tokens.weight=output_projection.weight", "BioGptForCausalLM", TIED },
    { "bridgetower.text_model.embeddings.word_embeddings.weight=mlm_score.decoder.weight",
      "BridgeTowerForMaskedLM" },
    { "convbert.embeddings.word_embeddings.weight=generator_lm_head.weight", "ConvBertForMaskedLM",
      TIED },
    { "decoder.embed_tokens.weight=decoder.lm_head.weight", "Pix2StructForConditionalGeneration" },
    { "distilbert.embeddings.word_embeddings.weight=vocab_projector.weight",
      "DistilBertForMaskedLM", TIED },
    { "embed_tokens.weight=lm_head.weight", "Pix2StructTextModel" },
    { "encoder.embed_tokens.weight=decoder.embed_tokens.weight=decoder.output_projection.weight",
      "FSMTModel" },
    { "encoder.embed_tokens.weight=shared.weight=decoder.embed_tokens.weight", "MarianModel", TIED,
      .unless = "share_encoder_decoder_embeddings" },
    { "encoder.out.weight=ctc_head.weight encoder.out.bias=ctc_head.bias", "GraniteSpeech5ForCTC",
      TIED },
    { "encoder.text_model.embed_tokens.weight=decoder.embed_tokens.weight "
      "encoder.text_model.embed_tokens.eoi_embedding=decoder.embed_tokens.eoi_embedding",
      "T5Gemma2Model", TIED },
    { "esm.embeddings.word_embeddings.weight=lm_head.decoder.weight", "EsmForMaskedLM", TIED },
    { "funnel.embeddings.word_embeddings.weight=lm_head.weight", "FunnelForMaskedLM", TIED },
    { "git.embeddings.word_embeddings.weight=output.weight", "GitForCausalLM" },
    { "gpt_neox.embed_in.weight=lm_head.weight", "GPTNeoXForCausalLM" },
    { "gpt_neox_japanese.embed_in.weight=embed_out.weight", "GPTNeoXJapaneseForCausalLM", TIED },
    { "gte.embeddings.word_embeddings.weight=lm_head.decoder.weight", "GteForMaskedLM", TIED },
    { "language_model.model.embed_tokens.weight=language_model.lm_head.weight",
      "Llama4ForConditionalGeneration" },
    { "layoutlm.embeddings.word_embeddings.weight=" PREDICTIONS, "LayoutLMForMaskedLM", TIED },
    { "led.shared.weight=led.decoder.embed_tokens.weight=led.encoder.embed_tokens.weight",
      "LEDForQuestionAnswering", TIED },
    { "led.shared.weight=lm_head.weight=led.decoder.embed_tokens.weight=led.encoder.embed_tokens.weight",
      "LEDForConditionalGeneration", TIED },
    { "longformer.embeddings.word_embeddings.weight=" DECODER, "LongformerForMaskedLM", TIED },
    { "luke.entity_embeddings.entity_embeddings.weight=entity_predictions.decoder.weight "
      "lm_head.decoder.bias=lm_head.bias", "LukeForMaskedLM", TIED },
    { "lxmert.embeddings.word_embeddings.weight=cls.predictions.decoder.weight",
      "LxmertForPreTraining", TIED },
    { "mim_head.decoder.bias=mim_head.bias mlm_head.decoder.bias=mlm_head.bias "
      "mmm_image_head.decoder.bias=mmm_image_head.bias "
      "mmm_text_head.decoder.bias=mmm_text_head.bias", "FlavaForPreTraining", TIED },
    { "model.decoder.embed_tokens.weight=lm_head.out_proj.weight",
      "T5GemmaForConditionalGeneration", TIED },
    { "model.decoder.embed_tokens.weight=lm_head.weight", "MarianForCausalLM", TIED,
      .unless = "share_encoder_decoder_embeddings" },
    { "model.decoder.embed_tokens.weight=output_projection.weight", "TrOCRForCausalLM", TIED },
    { "model.embed_tokens.embed_tokens.weight=lm_head.weight",
      "KyutaiSpeechToTextForConditionalGeneration" },
    { "model.embed_tokens.weight=head.decoder.weight", "UltrabertForMaskedLM" },
    { "model.embed_tokens.word_embeddings.weight=lm_head.weight "
      "model.embed_tokens.embedding_projection.weight=unembedding_projection.weight",
      "NeoMMEForMaskedLM", TIED },
    { "model.encoder.embed_tokens.weight=model.decoder.embed_tokens.weight=model.decoder.output_projection.weight",
      "FSMTForConditionalGeneration" },
    { "model.encoder.embed_tokens.weight=model.shared.weight=lm_head.weight=model.decoder.embed_tokens.weight",
      "MarianMTModel", TIED, .unless = "share_encoder_decoder_embeddings" },
    { "model.encoder.text_model.embed_tokens.weight=lm_head.out_proj.weight=model.decoder.embed_tokens.weight "
      "model.encoder.text_model.embed_tokens.eoi_embedding=model.decoder.embed_tokens.eoi_embedding",
      "T5Gemma2ForConditionalGeneration", TIED },
    { "model.text_model.embed_tokens.weight=lm_head.weight",
      "GraniteDoclingForConditionalGeneration", TIED },
    { "model.text_model.embeddings.tok_embeddings.weight=lm_head.weight",
      "ModernVBertForMaskedLM" },
    { "mpnet.embeddings.word_embeddings.weight=" DECODER, "MPNetForMaskedLM", TIED },
    { "mra.embeddings.word_embeddings.weight=" PREDICTIONS, "MraForMaskedLM", TIED },
    { "nomic_bert.embeddings.word_embeddings.weight=" PREDICTIONS, "NomicBertForMaskedLM", TIED },
    { "nystromformer.embeddings.word_embeddings.weight=" PREDICTIONS, "NystromformerForMaskedLM",
      TIED },
    { "prophetnet.decoder.word_embeddings.weight=prophetnet.word_embeddings.weight=lm_head.weight",
      "ProphetNetForCausalLM", TIED },
    { "prophetnet.word_embeddings.weight=lm_head.weight=prophetnet.decoder.word_embeddings.weight=prophetnet.encoder.word_embeddings.weight",
      "ProphetNetForConditionalGeneration", TIED },
    { "rwkv.embeddings.weight=head.weight", "RwkvForCausalLM" },
    { "shared.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight "
      "patch_embed.proj.weight=encoder.embed_patches.proj.weight "
      "patch_embed.proj.bias=encoder.embed_patches.proj.bias", "UdopModel", TIED, KEEPS },
    { "shared.weight=encoder.embed_tokens.weight", "SwitchTransformersEncoderModel", TIED },
    { "shared.weight=encoder.embed_tokens.weight "
      "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight=encoder.relative_bias.biases.0.relative_attention_bias.weight "
      "patch_embed.proj.weight=encoder.embed_patches.proj.weight "
      "patch_embed.proj.bias=encoder.embed_patches.proj.bias", "UdopEncoderModel", TIED, KEEPS },
    { "shared.weight=lm_head.weight=decoder.embed_tokens.weight=encoder.embed_tokens.weight "
      "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight=decoder.relative_bias.biases.0.relative_attention_bias.weight=encoder.relative_bias.biases.0.relative_attention_bias.weight "
      "patch_embed.proj.weight=encoder.embed_patches.proj.weight "
      "patch_embed.proj.bias=encoder.embed_patches.proj.bias", "UdopForConditionalGeneration", TIED,
      KEEPS },
    { "speecht5.decoder.prenet.embed_tokens.weight=text_decoder_postnet.lm_head.weight",
      "SpeechT5ForSpeechToText", TIED },
    { "tapas.embeddings.word_embeddings.weight=" PREDICTIONS, "TapasForMaskedLM", TIED },
    { "thinker.model.language_model.embed_tokens.weight=thinker.lm_head.weight",
      "Qwen2_5OmniForConditionalGeneration" },
    { "transformer.embeddings.word_embeddings.weight=" PREDICTIONS, "SqueezeBertForMaskedLM",
      TIED },
    { "transformer.w.weight=lm_head.weight", "CTRLLMHeadModel", TIED },
    { "transformer.word_embedding.weight=lm_loss.weight", "XLNetLMHeadModel", TIED },
    { "vilt.embeddings.text_embeddings.word_embeddings.weight=mlm_score.decoder.weight",
      "ViltForMaskedLM", TIED, KEEPS },
    { "word_embeddings.weight=decoder.word_embeddings.weight=encoder.word_embeddings.weight",
      "ProphetNetModel", TIED },
    { "yoso.embeddings.word_embeddings.weight=" PREDICTIONS, "YosoForMaskedLM", TIED },
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
      .unsure = "*" },
};
/* clang-format on */

/* transformers' classes with these suffixes have no head over the vocabulary, except those in the
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
