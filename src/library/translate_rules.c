/* translate_rules.c - the settings of LLaMA-Factory (0.9, examples/train_*, hparams) and Axolotl
 * (0.8 to 0.19, its page of settings), one row each, and those that mean the same in both. Where
 * the default of a program differs from ours and changes the result, `always` says so, unless the
 * file has the setting. */
#include "library/translate_rules.h"

#include "base/base.h"

#define FLAG "off=|*=true"
#define CONTRARY "off=true|*=false"
#define REFUSED "off=|*=!"
#define BITS "bitsandbytes has 4 and 8"
#define NO_DORA "DoRA is merged, not trained"
#define TOKENS "write them to a file, one a line: --add-tokens FILE"
#define FOLDER_ALONE "a folder: sheaf downloads nothing"
#define OF_ONE_DEVICE "of one device: with N of them multiply accumulate by N"
#define BY_RANKS "ranks share the model by --tp"
#define SHARE_ALONE "a share; a count of records is none"
#define ONE_FILE "one file of data, with the fields that docs/data.md has: join or rename them"
#define SCHEDULES "constant_with_warmup=constant|cosine_with_min_lr=cosine|warmup_stable_decay=wsd"
#define OPTIMIZERS                                                                                 \
    "adamw_torch=|adamw_torch_fused=|adamw_hf=|paged_adamw_32bit=|adamw_8bit=adamw8bit|"           \
    "adamw_bnb_8bit=adamw8bit|paged_adamw_8bit=adamw8bit|*=!the optimizer is AdamW"

static const sheaf__translate_rule both[] = {
    { "lora_dropout", TRANSLATE_COPY, "lora-dropout" },
    { "group_by_length", TRANSLATE_COPY, "group-by-length", FLAG },
    { "output_dir", TRANSLATE_COPY, "out" },
    { "gradient_accumulation_steps", TRANSLATE_COPY, "accumulate" },
    { "learning_rate", TRANSLATE_COPY, "lr" },
    { "max_steps", TRANSLATE_COPY, "steps" },
    { "lr_scheduler_kwargs.min_lr_rate", TRANSLATE_COPY, "min-lr-ratio" },
    { "lr_scheduler_kwargs.min_lr_ratio", TRANSLATE_COPY, "min-lr-ratio" },
    { "lr_scheduler_kwargs.min_lr", TRANSLATE_COPY, "min-lr-ratio" },
    { "lr_scheduler_kwargs.num_decay_steps", TRANSLATE_COPY, "decay-steps" },
    { "lr_scheduler_kwargs.num_stable_steps", TRANSLATE_COPY, NULL,
      REFUSED "stable are the steps between --warmup and --decay-steps" },
    { "lr_scheduler_kwargs.warmup_type", TRANSLATE_COPY, NULL, "linear=|*=!the warm-up is linear" },
    { "lr_scheduler_kwargs.decay_type", TRANSLATE_COPY, NULL,
      "cosine=|*=!wsd goes down by a cosine" },
    { "lr_scheduler_kwargs.num_cycles", TRANSLATE_COPY, NULL, "0.5=|*=!the cosine goes down once" },
    { "warmup_ratio", TRANSLATE_COPY, "warmup-ratio" },
    { "warmup_steps", TRANSLATE_COPY, "warmup" },
    { "bf16", TRANSLATE_COPY, "dtype", "off=|*=bfloat16" },
    { "fp16", TRANSLATE_COPY, "dtype", "off=|*=float16" },
    { "eval_steps", TRANSLATE_COPY, "eval-every" },
    { "load_best_model_at_end", TRANSLATE_COPY, "use-best", FLAG },
    { "save_steps", TRANSLATE_COPY, "save-every" },
    { "save_total_limit", TRANSLATE_COPY, "keep" },
    { "weight_decay", TRANSLATE_COPY, "weight-decay" },
    { "max_grad_norm", TRANSLATE_COPY, "clip" },
    { "adam_beta1", TRANSLATE_COPY, "beta1" },
    { "adam_beta2", TRANSLATE_COPY, "beta2" },
    { "adam_epsilon", TRANSLATE_COPY, "eps" },
    { "seed", TRANSLATE_COPY, "seed", NULL, "other random numbers than PyTorch's" },
    { "neftune_noise_alpha", TRANSLATE_COPY, "neftune-alpha" },
    { "label_smoothing_factor", TRANSLATE_COPY, "label-smoothing" },
    { "gradient_checkpointing", TRANSLATE_COPY, "checkpointing", FLAG },
    { "resume_from_checkpoint", TRANSLATE_COPY, NULL,
      REFUSED "sheaf goes on from checkpoints of its own, by --resume" },
    { "deepspeed|fsdp*", TRANSLATE_IGNORED, NULL, NULL, BY_RANKS },
    { "trust_remote_code|remove_unused_columns|torch_compile*|swanlab_*|use_swanlab|hub_*|ddp_*|"
      "save_only_model",
      TRANSLATE_IGNORED },
    { 0 },
};

static const sheaf__translate_rule factory[] = {
    { "model_name_or_path", TRANSLATE_COPY, "model", NULL, FOLDER_ALONE },
    { "adapter_name_or_path", TRANSLATE_COPY, "adapter" },
    { "stage", TRANSLATE_ONLY, NULL, "sft" },
    { "do_train", TRANSLATE_ONLY, NULL, "true" },
    { "freeze_vision_tower", TRANSLATE_ONLY, NULL, "true",
      "name its tensors with --train PATTERN" },
    { "do_predict", TRANSLATE_ONLY, NULL, "false" },
    { "eval_strategy|evaluation_strategy", TRANSLATE_ONLY, NULL, "steps|no" },
    { "save_strategy", TRANSLATE_ONLY, NULL, "steps" },
    { "finetuning_type", TRANSLATE_COPY, "method",
      "freeze=!trains its last layers: --method head with --train PATTERN names them" },
    { "freeze_trainable_layers", TRANSLATE_COPY, NULL,
      REFUSED "name the layers with --train PATTERN" },
    { "lora_target", TRANSLATE_COPY, "lora-targets", "all=all-linear" },
    { "lora_rank", TRANSLATE_COPY, "lora-rank" },
    { "lora_alpha", TRANSLATE_COPY, "lora-alpha", "0=" },
    { "use_rslora", TRANSLATE_COPY, "lora-rslora", FLAG },
    { "additional_target", TRANSLATE_COPY, "modules-to-save" },
    { "add_tokens", TRANSLATE_COPY, NULL, REFUSED TOKENS },
    { "add_special_tokens|new_special_tokens", TRANSLATE_COPY, NULL,
      REFUSED "write them to a .json list, with \"special\": true: --add-tokens FILE" },
    { "use_dora", TRANSLATE_COPY, NULL, REFUSED NO_DORA },
    { "use_galore|use_badam|kt_use_lora_experts|kt_lora_*", TRANSLATE_COPY, NULL, REFUSED },
    { "loraplus_lr_ratio", TRANSLATE_COPY, NULL,
      REFUSED "--lr-scale gives tensors rates of their own" },
    { "quantization_bit", TRANSLATE_COPY, "quantize", "4=nf4-double|8=int8|off=|*=!" BITS },
    { "quantization_type", TRANSLATE_ONLY, NULL, "nf4" },
    { "quantization_method", TRANSLATE_ONLY, NULL, "bnb|bitsandbytes" },
    { "double_quantization", TRANSLATE_ONLY, NULL, "true", "quantize: nf4 has plain scales" },
    { "dataset", TRANSLATE_COPY, "data", NULL,
      "a name in dataset_info.json: put the path of its JSON file here" },
    { "mix_strategy", TRANSLATE_ONLY, NULL,
      "concat|interleave_under=#an epoch has as many samples as there are records|"
      "interleave_over=#an epoch has as many samples as there are records",
      "docs/data.md says how data sets are mixed" },
    { "interleave_probs", TRANSLATE_IGNORED },
    { "eval_dataset", TRANSLATE_COPY, "eval-data", NULL,
      "a name in dataset_info.json: put the path of its JSON file here" },
    { "template", TRANSLATE_COPY, "template",
      "qwen=qwen2.5|qwen3=qwen3-thoughts|qwen3_nothink=chatml|gemma2=gemma|"
      "mistral=mistral-v3#its system message is in the first question, here in the last or nowhere|"
      "llama2=llama2#a blank stands before each eos here|"
      "smollm2=smollm2#its own system message ends in a full stop, here as published|"
      "zephyr=!it has a system message of its own and no line breaks between turns" },
    { "cutoff_len", TRANSLATE_COPY, "seq" },
    { "max_samples", TRANSLATE_COPY, NULL, REFUSED "take the first records out of the file" },
    { "train_on_prompt", TRANSLATE_COPY, "loss-on", "off=|*=all" },
    { "mask_history", TRANSLATE_COPY, "loss-on", "off=|*=last" },
    { "packing", TRANSLATE_COPY, "pack", FLAG, "rows do not see each other, as neat_packing" },
    { "neat_packing", TRANSLATE_COPY, "pack", FLAG },
    { "per_device_train_batch_size", TRANSLATE_COPY, "micro-batch", NULL, OF_ONE_DEVICE },
    { "num_train_epochs", TRANSLATE_COPY, "epochs" },
    { "lr_scheduler_type", TRANSLATE_COPY, "schedule", SCHEDULES },
    { "optim", TRANSLATE_COPY, "optimizer", OPTIMIZERS },
    { "pure_bf16", TRANSLATE_COPY, "dtype", "off=|*=bfloat16", "masters stay float32" },
    { "val_size", TRANSLATE_COPY, "eval-split", NULL, SHARE_ALONE },
    { "disable_gradient_checkpointing", TRANSLATE_COPY, "checkpointing", CONTRARY },
    { "disable_shuffling", TRANSLATE_COPY, "shuffle", CONTRARY },
    { "dataloader_drop_last", TRANSLATE_COPY, NULL,
      REFUSED "every row counts: a step goes on in the next epoch" },
    { "tokenized_path", TRANSLATE_IGNORED, NULL, NULL, "--data-cache" },
    { "dataset_dir|do_eval|include_num_input_tokens_seen|ray_*|kt_*|use_kt|use_v1_kernels|"
      "push_to_hub*|overwrite_*|preprocessing_num_workers|dataloader_*|logging_*|"
      "log_level|plot_loss|report_to|run_name|flash_attn|enable_liger_kernel|use_unsloth|"
      "per_device_eval_batch_size|cache_dir|resize_vocab",
      TRANSLATE_IGNORED },
    { 0 },
};

static const sheaf__translate_rule axolotl[] = {
    { "base_model", TRANSLATE_COPY, "model", NULL, FOLDER_ALONE },
    { "tokenizer_config", TRANSLATE_COPY, "tokenizer" },
    { "load_in_4bit", TRANSLATE_COPY, "quantize", "off=|*=nf4-double" },
    { "load_in_8bit", TRANSLATE_COPY, "quantize", "off=|*=int8" },
    { "gptq*", TRANSLATE_IGNORED, NULL, NULL, "a folder of GPTQ says so itself" },
    { "quantize_moe_experts", TRANSLATE_COPY, NULL,
      REFUSED "experts are quantised as other layers" },
    { "adapter", TRANSLATE_COPY, "method", "qlora=lora|=full" },
    { "lora_model_dir", TRANSLATE_COPY, "adapter" },
    { "lora_r", TRANSLATE_COPY, "lora-rank" },
    { "lora_alpha", TRANSLATE_COPY, "lora-alpha" },
    { "lora_target_linear", TRANSLATE_COPY, "lora-targets", "off=|*=all-linear" },
    { "lora_target_modules", TRANSLATE_COPY, "lora-targets" },
    { "lora_layers_to_transform|peft_layers_to_transform", TRANSLATE_COPY, "lora-layers" },
    { "lora_modules_to_save", TRANSLATE_COPY, "modules-to-save" },
    { "lora_fan_in_fan_out|s2_attention", TRANSLATE_COPY, NULL, REFUSED },
    { "lora_target_parameters", TRANSLATE_COPY, NULL, REFUSED "name layers with --lora-targets" },
    { "peft_use_rslora", TRANSLATE_COPY, "lora-rslora", FLAG },
    { "peft_use_dora", TRANSLATE_COPY, NULL, REFUSED NO_DORA },
    { "unfrozen_parameters", TRANSLATE_COPY, NULL, REFUSED "name them with --train PATTERN" },
    { "datasets[0].path", TRANSLATE_COPY, "data", NULL,
      "a JSON Lines file; of a data set of the hub, write one" },
    { "datasets[*].type", TRANSLATE_ONLY, NULL,
      "chat_template|chat_template.default|sharegpt|input_output|"
      "completion=#long texts are left out or cut, there they become several rows|"
      "alpaca=!it asks in Alpaca's own words, ### Instruction, sheaf by the chat template|",
      "sheaf finds the form in the records, and uses the chat template" },
    { "datasets[*].field_messages", TRANSLATE_ONLY, NULL, "messages|conversations" },
    { "datasets[*].message_property_mappings.role|datasets[*].message_field_role", TRANSLATE_ONLY,
      NULL, "role|from" },
    { "datasets[*].message_property_mappings.content|datasets[*].message_field_content",
      TRANSLATE_ONLY, NULL, "content|value" },
    { "datasets[*].split|test_datasets[*].split", TRANSLATE_ONLY, NULL, "train",
      "take its records out of the file" },
    { "datasets[0].data_files", TRANSLATE_COPY, "data" },
    { "datasets[*].roles_to_train", TRANSLATE_ONLY, NULL, "assistant|gpt" },
    { "datasets[*].train_on_eos", TRANSLATE_ONLY, NULL, "turn" },
    { "datasets[0].chat_template|chat_template", TRANSLATE_COPY, "template",
      "tokenizer_default=|mistral_v1=mistral-v1|mistral_v3_tekken=mistral-nemo|"
      "mistral_v2v3=mistral-v3|qwen_25=qwen2.5|phi_3=phi3-2024|"
      "phi_35=phi3.5#an eos stands behind the last answer here|"
      "phi_4=!it has the system message of Phi-4-reasoning" },
    { "test_datasets[0].path", TRANSLATE_COPY, "eval-data" },
    { "test_datasets[*].type", TRANSLATE_ONLY, NULL,
      "chat_template|chat_template.default|sharegpt|input_output|completion|" },
    { "datasets[*].path|test_datasets[*].path|datasets[*].message_property_mappings|"
      "datasets[*].ds_type|test_datasets[*].ds_type",
      TRANSLATE_IGNORED },
    { "datasets[*]*|test_datasets[*]*", TRANSLATE_COPY, NULL, REFUSED ONE_FILE },
    { "pretraining_dataset*", TRANSLATE_COPY, NULL,
      REFUSED "give a file of {\"text\": ...} records as --data" },
    { "dataset_prepared_path", TRANSLATE_COPY, "data-cache" },
    { "val_set_size", TRANSLATE_COPY, "eval-split", "0=|0.0=", SHARE_ALONE },
    { "sequence_len", TRANSLATE_COPY, "seq" },
    { "sample_packing", TRANSLATE_COPY, "pack", FLAG },
    { "excess_length_strategy", TRANSLATE_COPY, "on-long", "drop=skip|truncate=cut" },
    { "train_on_inputs", TRANSLATE_COPY, "loss-on", "off=|*=all",
      "here the marks between messages are learned too" },
    { "micro_batch_size", TRANSLATE_COPY, "micro-batch", NULL, OF_ONE_DEVICE },
    { "num_epochs", TRANSLATE_COPY, "epochs" },
    { "lr_scheduler", TRANSLATE_COPY, "schedule", SCHEDULES },
    { "optimizer", TRANSLATE_COPY, "optimizer", OPTIMIZERS },
    { "cosine_min_lr_ratio", TRANSLATE_COPY, "min-lr-ratio" },
    { "warmup_ratio", TRANSLATE_COPY, "warmup-ratio", NULL, "whole steps: rounded up, there down" },
    { "bfloat16", TRANSLATE_COPY, "dtype", "off=|*=bfloat16" },
    { "float16", TRANSLATE_COPY, "dtype", "off=|*=float16" },
    { "early_stopping_patience", TRANSLATE_COPY, "patience" },
    { "evals_per_epoch", TRANSLATE_COPY, NULL,
      REFUSED "--eval-every counts steps; sheaf plan --data says how many an epoch has" },
    { "noisy_embedding_alpha", TRANSLATE_COPY, "neftune-alpha" },
    { "special_tokens.*", TRANSLATE_COPY, NULL,
      REFUSED "sheaf takes the tokenizer as it is: set them in tokenizer_config.json" },
    { "tokens", TRANSLATE_COPY, NULL, REFUSED TOKENS },
    { "eot_tokens*", TRANSLATE_COPY, NULL, REFUSED "the template says what ends a turn" },
    { "save_strategy", TRANSLATE_ONLY, NULL, "steps|epoch" },
    { "plugins", TRANSLATE_ONLY, NULL,
      "axolotl.integrations.liger.LigerPlugin|axolotl.integrations.kernels.KernelsPlugin|"
      "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin|"
      "axolotl.integrations.expert_parallel.ExpertParallelPlugin|"
      "axolotl.integrations.swanlab.SwanLabPlugin|axolotl.integrations.lm_eval.LMEvalPlugin",
      "sheaf has no plugins" },
    { "liger_use_token_scaling", TRANSLATE_COPY, NULL, REFUSED "each label counts the same" },
    { "rl", TRANSLATE_COPY, NULL, REFUSED "sheaf learns answers, not preferences or rewards" },
    { "saves_per_epoch", TRANSLATE_IGNORED, NULL, NULL, "--save-every counts steps" },
    { "dp_*", TRANSLATE_IGNORED, NULL, NULL, BY_RANKS },
    { "tensor_parallel_size", TRANSLATE_IGNORED, NULL, NULL, "--tp" },
    { "base_model_config|model_type|tokenizer_type|strict|lora_mlp_kernel|lora_qkv_kernel|"
      "lora_o_kernel|eval_sample_packing|pad_to_sequence_len|eval_batch_size|tf32|"
      "gradient_checkpointing_kwargs*|special_tokens|"
      "auto_resume_from_checkpoints|flash_attention|flash_attn_*|flex_*|fused_attn_kernel|"
      "attn_implementation|sdp_attention|xformers_attention|liger_*|logging_steps|wandb_*|"
      "mlflow_*|trackio_*|use_wandb|use_tensorboard|push_dataset_to_hub|save_safetensors|"
      "loss_watchdog_*|skip_prepare_dataset|shuffle_merged_datasets|processor_type|use_kernels|"
      "use_scattermoe|use_sonicmoe|experts_implementation|torchdistx_path|activation_offloading|"
      "experimental_skip_move_to_device|context_parallel_size|sequence_parallel_degree|"
      "expert_parallel_size|local_rank|debug|dataset_processes",
      TRANSLATE_IGNORED },
    { 0 },
};

static const sheaf__translate_default axolotl_always[] = {
    { "method", "full", "adapter" }, { "seq", "512" },
    { "on-long", "skip" },           { "epochs", "1" },
    { "schedule", "cosine" },        { "warmup-ratio", "0.03 # there 100 at most" },
    { "dtype", "bfloat16", "bf16" }, { 0 },
};

static const sheaf__translate_default factory_always[] = {
    { "lora-targets", "all-linear" },
    { "lora-rank", "8" },
    { "lora-alpha", NULL },
    { "seq", "2048" },
    { "on-long", "cut" },
    { "epochs", "3" },
    { "micro-batch", "8" },
    { "checkpointing", "true" },
    { 0 },
};

const sheaf__translate_program sheaf__translate_programs[] = {
    { "Axolotl", "base_model|datasets[0].path", axolotl, axolotl_always },
    { "LLaMA-Factory", "model_name_or_path|finetuning_type|stage", factory, factory_always },
    { 0 },
};

/* One name, of n bytes. "*" at the end: any that begin so. "[*]": of any number. */
static bool matches(const char *name, size_t n, const char *key)
{
    const char *any = memmem(name, n, "[*]", 3), *close = strchr(key, ']');
    if (any != NULL)
        return strncmp(key, name, (size_t)(any - name) + 1) == 0 && close != NULL &&
               matches(any + 2, n - (size_t)(any + 2 - name), close);
    return name[n - 1] == '*' ? strncmp(key, name, n - 1) == 0
                              : strncmp(key, name, n) == 0 && key[n] == '\0';
}

bool sheaf__translate_is(const char *names, const char *key)
{
    for (size_t n; *names != '\0'; names += n + (names[n] == '|')) {
        n = strcspn(names, "|");
        if (matches(names, n, key))
            return true;
    }
    return false;
}

const sheaf__translate_rule *sheaf__translate_find(const sheaf__translate_program *program,
                                                   const char *key)
{
    const sheaf__translate_rule *const tables[] = { program->rule, both };
    for (int i = 0; i < 2; i++)
        for (const sheaf__translate_rule *rule = tables[i]; rule->keys != NULL; rule++)
            if (sheaf__translate_is(rule->keys, key))
                return rule;
    return NULL;
}
