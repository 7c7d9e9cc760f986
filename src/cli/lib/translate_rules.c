/* translate_rules.c - the settings of LLaMA-Factory (0.9, examples/train_*, hparams) and Axolotl
 * (0.8 to 0.19, its page of settings), one row each. Where the default of a program differs from
 * ours and changes the result, `always` says so, unless the file has the setting. */
#include "translate_rules.h"

#include <stdio.h>
#include <string.h>

#define SCHEDULES "constant_with_warmup=constant"
#define RESUMES "sheaf goes on from checkpoints of its own, by --resume"

static const translate_rule factory[] = {
    { "model_name_or_path", TRANSLATE_COPY, "model", NULL, "a folder: sheaf downloads nothing" },
    { "adapter_name_or_path", TRANSLATE_COPY, "adapter" },
    { "stage", TRANSLATE_ONLY, NULL, "sft" },
    { "do_train", TRANSLATE_ONLY, NULL, "true" },
    { "finetuning_type", TRANSLATE_COPY, "method",
      "freeze=!trains its last layers: --method head with --train PATTERN names them" },
    { "freeze_trainable_layers", TRANSLATE_REFUSED, NULL, NULL,
      "name the layers with --train PATTERN" },
    { "lora_target", TRANSLATE_COPY, "lora-targets", "all=all-linear" },
    { "lora_rank", TRANSLATE_COPY, "lora-rank" },
    { "lora_alpha", TRANSLATE_COPY, "lora-alpha", "0=" },
    { "lora_dropout", TRANSLATE_COPY, "lora-dropout" },
    { "use_rslora", TRANSLATE_YES, "lora-rslora" },
    { "additional_target", TRANSLATE_COPY, "modules-to-save" },
    { "use_dora", TRANSLATE_REFUSED, NULL, NULL, "DoRA is merged, not trained" },
    { "use_galore", TRANSLATE_REFUSED },
    { "use_badam", TRANSLATE_REFUSED },
    { "loraplus_lr_ratio", TRANSLATE_REFUSED, NULL, NULL,
      "--lr-scale gives tensors rates of their own" },
    { "quantization_bit", TRANSLATE_REFUSED, NULL, NULL, "weights stay in their dtype" },
    { "dataset", TRANSLATE_COPY, "data", NULL,
      "a name in dataset_info.json: put the path of its JSON file here" },
    { "dataset_dir", TRANSLATE_IGNORED },
    { "eval_dataset", TRANSLATE_COPY, "eval-data", NULL,
      "a name in dataset_info.json: put the path of its JSON file here" },
    { "template", TRANSLATE_COPY, "template",
      "qwen=qwen2.5|qwen3=qwen3-thoughts|qwen3_nothink=chatml|gemma2=gemma|"
      "mistral=mistral-v3#its system message is in the first question, here in the last or nowhere|"
      "llama2=llama2#a blank stands before each eos here|"
      "smollm2=smollm2#its own system message ends in a full stop, here as published|"
      "zephyr=!it has a system message of its own and no line breaks between turns" },
    { "cutoff_len", TRANSLATE_COPY, "seq" },
    { "max_samples", TRANSLATE_REFUSED, NULL, NULL, "take the first records out of the file" },
    { "train_on_prompt", TRANSLATE_PRESENT, "loss-on", "*=all" },
    { "mask_history", TRANSLATE_PRESENT, "loss-on", "*=last" },
    { "packing", TRANSLATE_YES, "pack", NULL, "rows do not see each other, as neat_packing" },
    { "neat_packing", TRANSLATE_YES, "pack" },
    { "group_by_length", TRANSLATE_YES, "group-by-length" },
    { "output_dir", TRANSLATE_COPY, "out" },
    { "per_device_train_batch_size", TRANSLATE_COPY, "micro-batch", NULL,
      "of one device: with N of them multiply accumulate by N" },
    { "gradient_accumulation_steps", TRANSLATE_COPY, "accumulate" },
    { "learning_rate", TRANSLATE_COPY, "lr" },
    { "num_train_epochs", TRANSLATE_COPY, "epochs" },
    { "max_steps", TRANSLATE_COPY, "steps" },
    { "lr_scheduler_type", TRANSLATE_COPY, "schedule", SCHEDULES },
    { "warmup_ratio", TRANSLATE_COPY, "warmup-ratio" },
    { "warmup_steps", TRANSLATE_COPY, "warmup" },
    { "bf16", TRANSLATE_PRESENT, "dtype", "*=bfloat16" },
    { "pure_bf16", TRANSLATE_PRESENT, "dtype", "*=bfloat16", "masters stay float32" },
    { "fp16", TRANSLATE_PRESENT, "dtype", "*=float16" },
    { "val_size", TRANSLATE_COPY, "eval-split", NULL, "a share; a count of records is none" },
    { "eval_steps", TRANSLATE_COPY, "eval-every" },
    { "eval_strategy", TRANSLATE_ONLY, NULL, "steps|no" },
    { "evaluation_strategy", TRANSLATE_ONLY, NULL, "steps|no" },
    { "load_best_model_at_end", TRANSLATE_YES, "use-best" },
    { "save_steps", TRANSLATE_COPY, "save-every" },
    { "save_strategy", TRANSLATE_ONLY, NULL, "steps" },
    { "save_total_limit", TRANSLATE_COPY, "keep" },
    { "weight_decay", TRANSLATE_COPY, "weight-decay" },
    { "max_grad_norm", TRANSLATE_COPY, "clip" },
    { "adam_beta1", TRANSLATE_COPY, "beta1" },
    { "adam_beta2", TRANSLATE_COPY, "beta2" },
    { "adam_epsilon", TRANSLATE_COPY, "eps" },
    { "optim", TRANSLATE_ONLY, NULL, "adamw_torch|adamw_torch_fused|adamw_hf" },
    { "seed", TRANSLATE_COPY, "seed", NULL, "other random numbers than PyTorch's" },
    { "neftune_noise_alpha", TRANSLATE_COPY, "neftune-alpha" },
    { "label_smoothing_factor", TRANSLATE_COPY, "label-smoothing" },
    { "disable_gradient_checkpointing", TRANSLATE_NO, "checkpointing" },
    { "gradient_checkpointing", TRANSLATE_YES, "checkpointing" },
    { "disable_shuffling", TRANSLATE_NO, "shuffle" },
    { "resume_from_checkpoint", TRANSLATE_REFUSED, NULL, NULL, RESUMES },
    { "deepspeed", TRANSLATE_IGNORED, NULL, NULL, "ranks share the model by --tp" },
    { "fsdp*", TRANSLATE_IGNORED, NULL, NULL, "ranks share the model by --tp" },
    { "trust_remote_code", TRANSLATE_IGNORED },
    { "do_predict", TRANSLATE_ONLY, NULL, "false" },
    { "do_eval", TRANSLATE_IGNORED },
    { "include_num_input_tokens_seen", TRANSLATE_IGNORED },
    { "remove_unused_columns", TRANSLATE_IGNORED },
    { "torch_compile*", TRANSLATE_IGNORED },
    { "swanlab_*", TRANSLATE_IGNORED },
    { "use_swanlab", TRANSLATE_IGNORED },
    { "ray_*", TRANSLATE_IGNORED },
    { "kt_use_lora_experts", TRANSLATE_REFUSED },
    { "kt_lora_*", TRANSLATE_REFUSED },
    { "kt_*", TRANSLATE_IGNORED },
    { "use_kt", TRANSLATE_IGNORED },
    { "use_v1_kernels", TRANSLATE_IGNORED },
    { "tokenized_path", TRANSLATE_IGNORED, NULL, NULL, "--data-cache" },
    { "push_to_hub*", TRANSLATE_IGNORED },
    { "hub_*", TRANSLATE_IGNORED },
    { "freeze_vision_tower", TRANSLATE_ONLY, NULL, "true",
      "name its tensors with --train PATTERN" },
    { "overwrite_*", TRANSLATE_IGNORED },
    { "preprocessing_num_workers", TRANSLATE_IGNORED },
    { "dataloader_drop_last", TRANSLATE_REFUSED, NULL, NULL,
      "every row counts: a step goes on in the next epoch" },
    { "dataloader_*", TRANSLATE_IGNORED },
    { "logging_*", TRANSLATE_IGNORED },
    { "log_level", TRANSLATE_IGNORED },
    { "plot_loss", TRANSLATE_IGNORED },
    { "report_to", TRANSLATE_IGNORED },
    { "run_name", TRANSLATE_IGNORED },
    { "ddp_*", TRANSLATE_IGNORED },
    { "flash_attn", TRANSLATE_IGNORED },
    { "enable_liger_kernel", TRANSLATE_IGNORED },
    { "use_unsloth", TRANSLATE_IGNORED },
    { "per_device_eval_batch_size", TRANSLATE_IGNORED },
    { "save_only_model", TRANSLATE_IGNORED },
    { "cache_dir", TRANSLATE_IGNORED },
    { 0 },
};

#define AXOLOTL_TEMPLATES                                                                          \
    "tokenizer_default=|mistral_v1=mistral-v1|mistral_v3_tekken=mistral-nemo|"                     \
    "mistral_v2v3=mistral-v3|qwen_25=qwen2.5|phi_3=phi3-2024|"                                     \
    "phi_35=phi3.5#an eos stands behind the last answer here|"                                     \
    "phi_4=!it has the system message of Phi-4-reasoning"

static const translate_rule axolotl[] = {
    { "base_model", TRANSLATE_COPY, "model", NULL, "a folder: sheaf downloads nothing" },
    { "base_model_config", TRANSLATE_IGNORED },
    { "model_type", TRANSLATE_IGNORED },
    { "tokenizer_type", TRANSLATE_IGNORED },
    { "tokenizer_config", TRANSLATE_COPY, "tokenizer" },
    { "trust_remote_code", TRANSLATE_IGNORED },
    { "load_in_8bit", TRANSLATE_REFUSED, NULL, NULL, "weights stay in their dtype" },
    { "load_in_4bit", TRANSLATE_REFUSED, NULL, NULL, "weights stay in their dtype" },
    { "strict", TRANSLATE_IGNORED },
    { "adapter", TRANSLATE_COPY, "method", "qlora=lora|=full" },
    { "lora_model_dir", TRANSLATE_COPY, "adapter" },
    { "lora_r", TRANSLATE_COPY, "lora-rank" },
    { "lora_alpha", TRANSLATE_COPY, "lora-alpha" },
    { "lora_dropout", TRANSLATE_COPY, "lora-dropout" },
    { "lora_target_linear", TRANSLATE_PRESENT, "lora-targets", "*=all-linear" },
    { "lora_target_modules", TRANSLATE_COPY, "lora-targets" },
    { "lora_layers_to_transform", TRANSLATE_COPY, "lora-layers" },
    { "peft_layers_to_transform", TRANSLATE_COPY, "lora-layers" },
    { "lora_modules_to_save", TRANSLATE_COPY, "modules-to-save" },
    { "lora_fan_in_fan_out", TRANSLATE_REFUSED },
    { "lora_mlp_kernel", TRANSLATE_IGNORED },
    { "lora_qkv_kernel", TRANSLATE_IGNORED },
    { "lora_o_kernel", TRANSLATE_IGNORED },
    { "peft_use_rslora", TRANSLATE_YES, "lora-rslora" },
    { "peft_use_dora", TRANSLATE_REFUSED, NULL, NULL, "DoRA is merged, not trained" },
    { "unfrozen_parameters", TRANSLATE_REFUSED, NULL, NULL, "name them with --train PATTERN" },
    { "datasets[0].path", TRANSLATE_COPY, "data", NULL,
      "a JSON Lines file; of a data set of the hub, write one" },
    { "datasets[0].type", TRANSLATE_ONLY, NULL,
      "chat_template|chat_template.default|sharegpt|input_output|"
      "completion=#long texts are left out or cut, there they become several rows|"
      "alpaca=!it asks in Alpaca's own words, ### Instruction, sheaf by the chat template|",
      "sheaf tells the form from the records, and asks by the chat template" },
    { "datasets[0].field_messages", TRANSLATE_ONLY, NULL, "messages|conversations" },
    { "datasets[0].message_property_mappings.role", TRANSLATE_ONLY, NULL, "role|from" },
    { "datasets[0].message_property_mappings.content", TRANSLATE_ONLY, NULL, "content|value" },
    { "datasets[0].message_property_mappings", TRANSLATE_IGNORED },
    { "datasets[0].message_field_role", TRANSLATE_ONLY, NULL, "role|from" },
    { "datasets[0].message_field_content", TRANSLATE_ONLY, NULL, "content|value" },
    { "datasets[0].ds_type", TRANSLATE_IGNORED },
    { "datasets[0].split", TRANSLATE_ONLY, NULL, "train", "take its records out of the file" },
    { "datasets[0].data_files", TRANSLATE_COPY, "data" },
    { "datasets[0].roles_to_train", TRANSLATE_ONLY, NULL, "assistant|gpt" },
    { "datasets[0].train_on_eos", TRANSLATE_ONLY, NULL, "turn" },
    { "datasets[0].chat_template", TRANSLATE_COPY, "template", AXOLOTL_TEMPLATES },
    { "datasets[*]*", TRANSLATE_REFUSED, NULL, NULL,
      "one file of data, with the fields that docs/data.md has: join or rename them" },
    { "test_datasets[0].path", TRANSLATE_COPY, "eval-data" },
    { "test_datasets[0].ds_type", TRANSLATE_IGNORED },
    { "test_datasets[0].type", TRANSLATE_ONLY, NULL,
      "chat_template|chat_template.default|sharegpt|input_output|completion|" },
    { "test_datasets[0].split", TRANSLATE_ONLY, NULL, "train", "take its records out of the file" },
    { "test_datasets[*]*", TRANSLATE_REFUSED, NULL, NULL,
      "one file of data, with the fields that docs/data.md has: join or rename them" },
    { "chat_template", TRANSLATE_COPY, "template", AXOLOTL_TEMPLATES },
    { "dataset_prepared_path", TRANSLATE_COPY, "data-cache" },
    { "val_set_size", TRANSLATE_COPY, "eval-split",
      "0=|0.0=", "a share; a count of records is none" },
    { "output_dir", TRANSLATE_COPY, "out" },
    { "sequence_len", TRANSLATE_COPY, "seq" },
    { "sample_packing", TRANSLATE_YES, "pack" },
    { "eval_sample_packing", TRANSLATE_IGNORED },
    { "pad_to_sequence_len", TRANSLATE_IGNORED },
    { "excess_length_strategy", TRANSLATE_COPY, "on-long", "drop=skip|truncate=cut" },
    { "group_by_length", TRANSLATE_YES, "group-by-length" },
    { "train_on_inputs", TRANSLATE_PRESENT, "loss-on", "*=all",
      "here the marks between messages are learned too" },
    { "micro_batch_size", TRANSLATE_COPY, "micro-batch", NULL,
      "of one device: with N of them multiply accumulate by N" },
    { "gradient_accumulation_steps", TRANSLATE_COPY, "accumulate" },
    { "eval_batch_size", TRANSLATE_IGNORED },
    { "num_epochs", TRANSLATE_COPY, "epochs" },
    { "max_steps", TRANSLATE_COPY, "steps" },
    { "optimizer", TRANSLATE_ONLY, NULL, "adamw_torch|adamw_torch_fused|adamw_hf" },
    { "lr_scheduler", TRANSLATE_COPY, "schedule", SCHEDULES },
    { "learning_rate", TRANSLATE_COPY, "lr" },
    { "warmup_steps", TRANSLATE_COPY, "warmup" },
    { "warmup_ratio", TRANSLATE_COPY, "warmup-ratio", NULL, "whole steps: rounded up, there down" },
    { "weight_decay", TRANSLATE_COPY, "weight-decay" },
    { "max_grad_norm", TRANSLATE_COPY, "clip" },
    { "adam_beta1", TRANSLATE_COPY, "beta1" },
    { "adam_beta2", TRANSLATE_COPY, "beta2" },
    { "adam_epsilon", TRANSLATE_COPY, "eps" },
    { "bf16", TRANSLATE_PRESENT, "dtype", "*=bfloat16" },
    { "bfloat16", TRANSLATE_PRESENT, "dtype", "*=bfloat16" },
    { "fp16", TRANSLATE_PRESENT, "dtype", "*=float16" },
    { "float16", TRANSLATE_PRESENT, "dtype", "*=float16" },
    { "tf32", TRANSLATE_IGNORED },
    { "gradient_checkpointing", TRANSLATE_YES, "checkpointing" },
    { "gradient_checkpointing_kwargs*", TRANSLATE_IGNORED },
    { "early_stopping_patience", TRANSLATE_COPY, "patience" },
    { "load_best_model_at_end", TRANSLATE_YES, "use-best" },
    { "eval_steps", TRANSLATE_COPY, "eval-every" },
    { "save_steps", TRANSLATE_COPY, "save-every" },
    { "evals_per_epoch", TRANSLATE_REFUSED, NULL, NULL,
      "--eval-every counts steps; sheaf plan --data says how many an epoch has" },
    { "saves_per_epoch", TRANSLATE_IGNORED, NULL, NULL, "--save-every counts steps" },
    { "save_total_limit", TRANSLATE_COPY, "keep" },
    { "seed", TRANSLATE_COPY, "seed", NULL, "other random numbers than PyTorch's" },
    { "neftune_noise_alpha", TRANSLATE_COPY, "neftune-alpha" },
    { "noisy_embedding_alpha", TRANSLATE_COPY, "neftune-alpha" },
    { "label_smoothing_factor", TRANSLATE_COPY, "label-smoothing" },
    { "special_tokens.*", TRANSLATE_REFUSED, NULL, NULL,
      "sheaf takes the tokenizer as it is: set them in tokenizer_config.json" },
    { "special_tokens", TRANSLATE_IGNORED },
    { "tokens", TRANSLATE_REFUSED, NULL, NULL, "sheaf adds no tokens" },
    { "resume_from_checkpoint", TRANSLATE_REFUSED, NULL, NULL, RESUMES },
    { "auto_resume_from_checkpoints", TRANSLATE_IGNORED },
    { "deepspeed", TRANSLATE_IGNORED, NULL, NULL, "ranks share the model by --tp" },
    { "fsdp*", TRANSLATE_IGNORED, NULL, NULL, "ranks share the model by --tp" },
    { "flash_attention", TRANSLATE_IGNORED },
    { "flash_attn_*", TRANSLATE_IGNORED },
    { "flex_*", TRANSLATE_IGNORED },
    { "fused_attn_kernel", TRANSLATE_IGNORED },
    { "attn_implementation", TRANSLATE_IGNORED },
    { "sdp_attention", TRANSLATE_IGNORED },
    { "xformers_attention", TRANSLATE_IGNORED },
    { "s2_attention", TRANSLATE_REFUSED },
    { "plugins", TRANSLATE_ONLY, NULL,
      "axolotl.integrations.liger.LigerPlugin|axolotl.integrations.kernels.KernelsPlugin|"
      "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin|"
      "axolotl.integrations.expert_parallel.ExpertParallelPlugin|"
      "axolotl.integrations.swanlab.SwanLabPlugin|axolotl.integrations.lm_eval.LMEvalPlugin" },
    { "liger_use_token_scaling", TRANSLATE_REFUSED, NULL, NULL, "each label counts the same" },
    { "liger_*", TRANSLATE_IGNORED },
    { "logging_steps", TRANSLATE_IGNORED },
    { "wandb_*", TRANSLATE_IGNORED },
    { "mlflow_*", TRANSLATE_IGNORED },
    { "hub_*", TRANSLATE_IGNORED },
    { "trackio_*", TRANSLATE_IGNORED },
    { "swanlab_*", TRANSLATE_IGNORED },
    { "use_swanlab", TRANSLATE_IGNORED },
    { "use_wandb", TRANSLATE_IGNORED },
    { "use_tensorboard", TRANSLATE_IGNORED },
    { "push_dataset_to_hub", TRANSLATE_IGNORED },
    { "save_only_model", TRANSLATE_IGNORED },
    { "save_strategy", TRANSLATE_ONLY, NULL, "steps|epoch" },
    { "save_safetensors", TRANSLATE_IGNORED },
    { "loss_watchdog_*", TRANSLATE_IGNORED },
    { "remove_unused_columns", TRANSLATE_IGNORED },
    { "skip_prepare_dataset", TRANSLATE_IGNORED },
    { "shuffle_merged_datasets", TRANSLATE_IGNORED },
    { "processor_type", TRANSLATE_IGNORED },
    { "use_kernels", TRANSLATE_IGNORED },
    { "use_scattermoe", TRANSLATE_IGNORED },
    { "use_sonicmoe", TRANSLATE_IGNORED },
    { "experts_implementation", TRANSLATE_IGNORED },
    { "torchdistx_path", TRANSLATE_IGNORED },
    { "torch_compile*", TRANSLATE_IGNORED },
    { "activation_offloading", TRANSLATE_IGNORED },
    { "experimental_skip_move_to_device", TRANSLATE_IGNORED },
    { "ddp_*", TRANSLATE_IGNORED },
    { "dp_*", TRANSLATE_IGNORED, NULL, NULL, "ranks share the model by --tp" },
    { "context_parallel_size", TRANSLATE_IGNORED },
    { "sequence_parallel_degree", TRANSLATE_IGNORED },
    { "tensor_parallel_size", TRANSLATE_IGNORED, NULL, NULL, "--tp" },
    { "expert_parallel_size", TRANSLATE_IGNORED },
    { "rl", TRANSLATE_REFUSED, NULL, NULL, "sheaf learns answers, not preferences or rewards" },
    { "eot_tokens*", TRANSLATE_REFUSED, NULL, NULL, "the template says what ends a turn" },
    { "gptq*", TRANSLATE_REFUSED, NULL, NULL, "weights stay in their dtype" },
    { "quantize_moe_experts", TRANSLATE_REFUSED, NULL, NULL, "weights stay in their dtype" },
    { "cosine_min_lr_ratio", TRANSLATE_REFUSED, NULL, NULL, "the cosine ends at 0" },
    { "lora_target_parameters", TRANSLATE_REFUSED, NULL, NULL, "name layers with --lora-targets" },
    { "pretraining_dataset*", TRANSLATE_REFUSED, NULL, NULL,
      "give a file of {\"text\": ...} records as --data" },
    { "local_rank", TRANSLATE_IGNORED },
    { "debug", TRANSLATE_IGNORED },
    { "dataset_processes", TRANSLATE_IGNORED },
    { 0 },
};

static const translate_default axolotl_always[] = {
    { "method", "full", "adapter" }, { "seq", "512" },
    { "on-long", "skip" },           { "epochs", "1" },
    { "schedule", "cosine" },        { "warmup-ratio", "0.03 # there 100 at most" },
    { "dtype", "bfloat16", "bf16" }, { 0 },
};

static const translate_default factory_always[] = {
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

const translate_program translate_programs[] = {
    { "Axolotl", axolotl, axolotl_always },
    { "LLaMA-Factory", factory, factory_always },
    { 0 },
};

/* "*" at the end: any that begin so. "[*]": of any number. */
static bool matches(const char *pattern, const char *key)
{
    const char *any = strstr(pattern, "[*]");
    if (any != NULL) {
        const char *close = strchr(key, ']');
        if (strncmp(key, pattern, (size_t)(any - pattern) + 1) != 0 || close == NULL)
            return false;
        return matches(any + 2, close);
    }
    const size_t n = strlen(pattern);
    return pattern[n - 1] == '*' ? strncmp(key, pattern, n - 1) == 0 : strcmp(pattern, key) == 0;
}

const translate_rule *translate_find(const translate_program *program, const char *key)
{
    const translate_rule *rule = program->rule;
    while (rule->key != NULL && !matches(rule->key, key))
        rule++;
    return rule->key == NULL ? NULL : rule;
}

bool translate_advise(sheaf_status *st, const char *flag)
{
    char key[64];
    const translate_rule *rule = NULL;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(flag, "="), flag);
    for (char *c = key; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    for (const translate_program *p = translate_programs; p->name != NULL && rule == NULL; p++)
        rule = translate_find(p, key);
    if (rule == NULL || rule->setting != NULL)
        return false;
    if (rule->note != NULL)
        sheaf_try_this(st, "leave it out: %s", rule->note);
    else if (rule->kind == TRANSLATE_ONLY)
        sheaf_try_this(st, "leave it out: sheaf does nothing but %s", rule->words);
    else
        sheaf_try_this(st, "leave it out: %s",
                       rule->kind == TRANSLATE_IGNORED ? "it changes no result here"
                                                       : "sheaf has no such thing");
    return true;
}
