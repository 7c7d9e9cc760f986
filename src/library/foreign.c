/* foreign.c - the settings of LLaMA-Factory (0.9, examples/train_*, hparams) and Axolotl
 * (0.8 to 0.19, its page of settings), one row each, and those that mean the same in both. Where
 * the default of a program differs from ours and changes the result, `always` says so, unless the
 * file has the setting. */
#include "sheaf/foreign.h"

#include "base/base.h"

#define COPY SHEAF_FOREIGN_COPY
#define ONLY SHEAF_FOREIGN_ONLY
#define IGNORED SHEAF_FOREIGN_IGNORED
#define FLAG "off=|*=true"
#define CONTRARY "off=true|*=false"
#define REFUSED "off=|*=!"
#define BITS "bitsandbytes has 4 and 8"
#define TOKENS "write them to a file, one a line: `add-tokens FILE`"
#define FOLDER_ALONE "a folder: sheaf downloads nothing"
#define OF_ONE_DEVICE "of one device: with N of them multiply accumulate by N"
#define BY_RANKS "ranks share the model by `tp`"
#define BEGINS                                                                                     \
    "`init` has pissa, olora, gaussian and orthogonal; PEFT begins it otherwise and saves it as "  \
    "plain LoRA (path_initial_model_for_weight_conversion): `adapter DIR`"
#define SHARE_ALONE "a share; a count of records is none"
#define ONE_FILE "one file of data, with the fields that docs/data.md has: join or rename them"
#define SCHEDULES "constant_with_warmup=constant|cosine_with_min_lr=cosine|warmup_stable_decay=wsd"
#define OPTIMIZERS                                                                                 \
    "adamw_torch=|adamw_torch_fused=|adamw_hf=|paged_adamw_32bit=|adamw_8bit=adamw8bit|"           \
    "adamw_bnb_8bit=adamw8bit|paged_adamw_8bit=adamw8bit|*=!the optimizer is AdamW"

static const sheaf_foreign_rule both[] = {
    { "loraplus_lr_ratio", COPY, "lora-plus" },
    { "loraplus_lr_embedding", ONLY, NULL, "1e-06|1e-6|0.000001",
      "lr-scale: '*lora_embedding*=X', X as a share of `lr`" },
    { "lora_dropout", COPY, "lora-dropout" },
    { "group_by_length", COPY, "group-by-length", FLAG },
    { "output_dir", COPY, "out" },
    { "gradient_accumulation_steps", COPY, "accumulate" },
    { "learning_rate", COPY, "lr" },
    { "max_steps", COPY, "steps" },
    { "lr_scheduler_kwargs.min_lr_rate", COPY, "min-lr-ratio" },
    { "lr_scheduler_kwargs.min_lr_ratio", COPY, "min-lr-ratio" },
    { "lr_scheduler_kwargs.min_lr", COPY, "min-lr-ratio" },
    { "lr_scheduler_kwargs.num_decay_steps", COPY, "decay-steps" },
    { "lr_scheduler_kwargs.num_stable_steps", COPY, NULL,
      REFUSED "stable are the steps between `warmup` and `decay-steps`" },
    { "lr_scheduler_kwargs.warmup_type", COPY, NULL, "linear=|*=!the warm-up is linear" },
    { "lr_scheduler_kwargs.decay_type", COPY, NULL, "cosine=|*=!wsd goes down by a cosine" },
    { "lr_scheduler_kwargs.num_cycles", COPY, NULL, "0.5=|*=!the cosine goes down once" },
    { "warmup_ratio", COPY, "warmup-ratio" },
    { "warmup_steps", COPY, "warmup" },
    { "bf16", COPY, "dtype", "off=|*=bfloat16" },
    { "fp16", COPY, "dtype", "off=|*=float16" },
    { "eval_steps", COPY, "eval-every" },
    { "load_best_model_at_end", COPY, "use-best", FLAG },
    { "save_steps", COPY, "save-every" },
    { "save_total_limit", COPY, "keep" },
    { "weight_decay", COPY, "weight-decay" },
    { "max_grad_norm", COPY, "clip" },
    { "adam_beta1", COPY, "beta1" },
    { "adam_beta2", COPY, "beta2" },
    { "adam_epsilon", COPY, "eps" },
    { "seed", COPY, "seed", NULL, "other random numbers than PyTorch's" },
    { "neftune_noise_alpha", COPY, "neftune-alpha" },
    { "label_smoothing_factor", COPY, "label-smoothing" },
    { "gradient_checkpointing", COPY, "checkpointing", FLAG },
    { "resume_from_checkpoint", COPY, NULL,
      REFUSED "sheaf goes on from checkpoints of its own, by `resume`" },
    { "deepspeed|fsdp*", IGNORED, NULL, NULL, BY_RANKS },
    { "trust_remote_code|remove_unused_columns|torch_compile*|swanlab_*|use_swanlab|hub_*|ddp_*|"
      "save_only_model",
      IGNORED },
    { 0 },
};

static const sheaf_foreign_rule factory[] = {
    { "model_name_or_path", COPY, "model", NULL, FOLDER_ALONE },
    { "adapter_name_or_path", COPY, "adapter" },
    { "stage", COPY, "objective",
      "sft=|dpo=dpo|kto=kto|rm=reward|ppo=!sheaf has no PPO|"
      "pt=!a record with a text alone is learnt whole: `loss-on all`" },
    { "pref_beta", COPY, "beta" },
    { "pref_loss", COPY, "loss-type",
      "orpo=!`objective orpo`|simpo=!`objective simpo`|kto_pair=!`objective kto`" },
    { "pref_ftx", COPY, NULL, "0=|0.0=|*=!`loss-type sigmoid,sft`: a mean over tokens, not pairs" },
    { "pref_bco_weight", COPY, NULL, "0=|0.0=|*=!`loss-type sigmoid,bco_pair`" },
    { "simpo_gamma", COPY, "simpo-gamma" },
    { "dpo_label_smoothing", COPY, "label-smoothing" },
    { "kto_chosen_weight", COPY, "desirable-weight" },
    { "kto_rejected_weight", COPY, "undesirable-weight" },
    { "ref_model|ref_model_adapters", COPY, "reference" },
    { "ld_alpha", COPY, "ld-alpha", NULL, "here the reference's tokens count so, too" },
    { "do_train", ONLY, NULL, "true" },
    { "freeze_vision_tower", ONLY, NULL, "true", "name its tensors with `train PATTERN`" },
    { "do_predict", ONLY, NULL, "false" },
    { "eval_strategy|evaluation_strategy", ONLY, NULL, "steps|no" },
    { "save_strategy", ONLY, NULL, "steps" },
    { "finetuning_type", COPY, "method",
      "freeze=!trains its last layers: `method head` with `train PATTERN` names them" },
    { "freeze_trainable_layers", COPY, NULL, REFUSED "name the layers with `train PATTERN`" },
    { "lora_target", COPY, "lora-targets", "all=all-linear" },
    { "lora_rank", COPY, "lora-rank" },
    { "lora_alpha", COPY, "lora-alpha", "0=" },
    { "use_rslora", COPY, "lora-rslora", FLAG },
    { "additional_target", COPY, "modules-to-save" },
    { "add_tokens", COPY, NULL, REFUSED TOKENS },
    { "add_special_tokens|new_special_tokens", COPY, NULL,
      REFUSED "write them to a .json list, with \"special\": true: `add-tokens FILE`" },
    { "use_dora", COPY, "lora-dora", FLAG },
    { "pissa_init", COPY, "init", "off=|*=pissa" },
    { "pissa_iter|pissa_convert", IGNORED },
    { "use_galore|use_badam|kt_use_lora_experts|kt_lora_*", COPY, NULL, REFUSED },
    { "quantization_bit", COPY, "quantize", "4=nf4-double|8=int8|off=|*=!" BITS },
    { "quantization_type", ONLY, NULL, "nf4" },
    { "quantization_method", ONLY, NULL, "bnb|bitsandbytes" },
    { "double_quantization", ONLY, NULL, "true", "quantize: nf4 has plain scales" },
    { "dataset", COPY, "data", NULL,
      "a name in dataset_info.json: put the path of its JSON file here" },
    { "mix_strategy", ONLY, NULL,
      "concat|interleave_under=#an epoch has as many samples as there are records|"
      "interleave_over=#an epoch has as many samples as there are records",
      "docs/data.md says how data sets are mixed" },
    { "interleave_probs", IGNORED },
    { "eval_dataset", COPY, "eval-data", NULL,
      "a name in dataset_info.json: put the path of its JSON file here" },
    { "template", COPY, "template",
      "qwen=qwen2.5|qwen3=qwen3-thoughts|qwen3_nothink=chatml|gemma2=gemma|"
      "mistral=mistral-v3#its system message is in the first question, here in the last or nowhere|"
      "llama2=llama2#a blank stands before each eos here|"
      "smollm2=smollm2#its own system message ends in a full stop, here as published|"
      "zephyr=!it has a system message of its own and no line breaks between turns" },
    { "cutoff_len", COPY, "seq" },
    { "max_samples", COPY, NULL, REFUSED "take the first records out of the file" },
    { "train_on_prompt", COPY, "loss-on", "off=|*=all" },
    { "mask_history", COPY, "loss-on", "off=|*=last" },
    { "packing", COPY, "pack", FLAG, "rows do not see each other, as neat_packing" },
    { "neat_packing", COPY, "pack", FLAG },
    { "per_device_train_batch_size", COPY, "micro-batch", NULL, OF_ONE_DEVICE },
    { "num_train_epochs", COPY, "epochs" },
    { "lr_scheduler_type", COPY, "schedule", SCHEDULES },
    { "optim", COPY, "optimizer", OPTIMIZERS },
    { "pure_bf16", COPY, "dtype", "off=|*=bfloat16", "masters stay float32" },
    { "val_size", COPY, "eval-split", NULL, SHARE_ALONE },
    { "disable_gradient_checkpointing", COPY, "checkpointing", CONTRARY },
    { "disable_shuffling", COPY, "shuffle", CONTRARY },
    { "dataloader_drop_last", COPY, NULL,
      REFUSED "every row counts: a step goes on in the next epoch" },
    { "tokenized_path", IGNORED, NULL, NULL, "`data-cache`" },
    { "dataset_dir|do_eval|include_num_input_tokens_seen|ray_*|kt_*|use_kt|use_v1_kernels|"
      "push_to_hub*|overwrite_*|preprocessing_num_workers|dataloader_*|logging_*|"
      "log_level|plot_loss|report_to|run_name|flash_attn|enable_liger_kernel|use_unsloth|"
      "per_device_eval_batch_size|cache_dir|resize_vocab",
      IGNORED },
    { 0 },
};

static const sheaf_foreign_rule axolotl[] = {
    { "base_model", COPY, "model", NULL, FOLDER_ALONE },
    { "tokenizer_config", COPY, "tokenizer" },
    { "load_in_4bit", COPY, "quantize", "off=|*=nf4-double" },
    { "load_in_8bit", COPY, "quantize", "off=|*=int8" },
    { "gptq*", IGNORED, NULL, NULL, "a folder of GPTQ says so itself" },
    { "quantize_moe_experts", COPY, NULL, REFUSED "experts are quantised as other layers" },
    { "adapter", COPY, "method", "qlora=lora|=full" },
    { "lora_model_dir", COPY, "adapter" },
    { "lora_r", COPY, "lora-rank" },
    { "lora_alpha", COPY, "lora-alpha" },
    { "lora_target_linear", COPY, "lora-targets", "off=|*=all-linear" },
    { "lora_target_modules", COPY, "lora-targets" },
    { "lora_layers_to_transform|peft_layers_to_transform", COPY, "lora-layers" },
    { "lora_modules_to_save", COPY, "modules-to-save" },
    { "lora_fan_in_fan_out|s2_attention", COPY, NULL, REFUSED },
    { "lora_target_parameters", COPY, NULL,
      REFUSED "add them to `lora-targets`: experts is all of them" },
    { "peft_use_rslora", COPY, "lora-rslora", FLAG },
    { "peft_use_dora", COPY, "lora-dora", FLAG },
    { "peft_init_lora_weights", COPY, "init",
      "true=|false=random|gaussian=gaussian|orthogonal=orthogonal|pissa=pissa|pissa_niter_4=pissa|"
      "pissa_niter_16=pissa|olora=olora|*=!" BEGINS },
    { "peft.loftq_config*|loftq_config*", COPY, NULL, REFUSED BEGINS },
    { "unfrozen_parameters", COPY, NULL, REFUSED "name them with `train PATTERN`" },
    { "datasets[0].path", COPY, "data", NULL,
      "a JSON Lines file; of a data set of the hub, write one" },
    { "datasets[*].type", ONLY, NULL,
      "chat_template|chat_template.default|sharegpt|input_output|"
      "completion=#long texts are left out or cut, there they become several rows|"
      "alpaca=!it asks in Alpaca's own words, ### Instruction, sheaf by the chat template|",
      "sheaf finds the form in the records, and uses the chat template" },
    { "datasets[*].field_messages", ONLY, NULL, "messages|conversations" },
    { "datasets[*].message_property_mappings.role|datasets[*].message_field_role", ONLY, NULL,
      "role|from" },
    { "datasets[*].message_property_mappings.content|datasets[*].message_field_content", ONLY, NULL,
      "content|value" },
    { "datasets[*].split|test_datasets[*].split", ONLY, NULL, "train",
      "take its records out of the file" },
    { "datasets[0].data_files", COPY, "data" },
    { "datasets[*].roles_to_train", ONLY, NULL, "assistant|gpt" },
    { "datasets[*].train_on_eos", ONLY, NULL, "turn" },
    { "datasets[0].chat_template|chat_template", COPY, "template",
      "tokenizer_default=|mistral_v1=mistral-v1|mistral_v3_tekken=mistral-nemo|"
      "mistral_v2v3=mistral-v3|qwen_25=qwen2.5|phi_3=phi3-2024|"
      "phi_35=phi3.5#an eos stands behind the last answer here|"
      "phi_4=!it has the system message of Phi-4-reasoning" },
    { "test_datasets[0].path", COPY, "eval-data" },
    { "test_datasets[*].type", ONLY, NULL,
      "chat_template|chat_template.default|sharegpt|input_output|completion|" },
    { "datasets[*].path|test_datasets[*].path|datasets[*].message_property_mappings|"
      "datasets[*].ds_type|test_datasets[*].ds_type",
      IGNORED },
    { "datasets[*]*|test_datasets[*]*", COPY, NULL, REFUSED ONE_FILE },
    { "pretraining_dataset*", COPY, NULL,
      REFUSED "give a file of {\"text\": ...} records as `data`" },
    { "dataset_prepared_path", COPY, "data-cache" },
    { "val_set_size", COPY, "eval-split", "0=|0.0=", SHARE_ALONE },
    { "sequence_len", COPY, "seq" },
    { "sample_packing", COPY, "pack", FLAG },
    { "excess_length_strategy", COPY, "on-long", "drop=skip|truncate=cut" },
    { "train_on_inputs", COPY, "loss-on", "off=|*=all",
      "here the marks between messages are learned too" },
    { "micro_batch_size", COPY, "micro-batch", NULL, OF_ONE_DEVICE },
    { "num_epochs", COPY, "epochs" },
    { "lr_scheduler", COPY, "schedule", SCHEDULES },
    { "optimizer", COPY, "optimizer", OPTIMIZERS },
    { "cosine_min_lr_ratio", COPY, "min-lr-ratio" },
    { "warmup_ratio", COPY, "warmup-ratio", NULL, "whole steps: rounded up, there down" },
    { "bfloat16", COPY, "dtype", "off=|*=bfloat16" },
    { "float16", COPY, "dtype", "off=|*=float16" },
    { "early_stopping_patience", COPY, "patience" },
    { "evals_per_epoch", COPY, NULL,
      REFUSED "`eval-every` counts steps; sheaf plan --data says how many an epoch has" },
    { "noisy_embedding_alpha", COPY, "neftune-alpha" },
    { "special_tokens.*", COPY, NULL,
      REFUSED "sheaf takes the tokenizer as it is: set them in tokenizer_config.json" },
    { "tokens", COPY, NULL, REFUSED TOKENS },
    { "eot_tokens*", COPY, NULL, REFUSED "the template says what ends a turn" },
    { "save_strategy", ONLY, NULL, "steps|epoch" },
    { "plugins", ONLY, NULL,
      "axolotl.integrations.liger.LigerPlugin|axolotl.integrations.kernels.KernelsPlugin|"
      "axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin|"
      "axolotl.integrations.expert_parallel.ExpertParallelPlugin|"
      "axolotl.integrations.swanlab.SwanLabPlugin|axolotl.integrations.lm_eval.LMEvalPlugin",
      "sheaf has no plugins" },
    { "liger_use_token_scaling", COPY, NULL, REFUSED "each label counts the same" },
    { "rl", COPY, "objective",
      "off=|dpo=dpo|ipo=ipo|kto=kto|orpo=orpo|simpo=simpo|grpo=grpo|"
      "*=!sheaf has dpo, ipo, kto, orpo, simpo, grpo" },
    { "reward_model", COPY, "objective", "off=|*=reward" },
    { "process_reward_model", COPY, NULL, REFUSED "a reward model scores whole answers" },
    { "center_rewards_coefficient", COPY, "center-rewards-coefficient" },
    { "dpo_beta|rl_beta|orpo_alpha|trl.beta", COPY, "beta" },
    { "dpo_loss_type|trl.loss_type", COPY, "loss-type" },
    { "dpo_loss_weights", COPY, "loss-weights" },
    { "trl.num_generations", COPY, "generations" },
    { "trl.max_completion_length", COPY, "max-new" },
    { "trl.temperature", COPY, "temperature" },
    { "trl.top_p", COPY, "top-p" },
    { "trl.top_k|trl.min_p|trl.repetition_penalty", COPY, NULL,
      REFUSED "completions are sampled by `temperature` and `top-p`" },
    { "trl.reward_funcs*", COPY, NULL,
      REFUSED "`reward` takes a command: it reads completions as JSON Lines, and writes numbers" },
    { "trl.reward_weights", COPY, "reward-weights" },
    { "trl.scale_rewards", COPY, "scale-rewards", "true=group|false=none" },
    { "trl.num_iterations", COPY, "num-iterations" },
    { "trl.epsilon", COPY, "epsilon" },
    { "trl.epsilon_high", COPY, "epsilon-high" },
    { "trl.delta", COPY, "delta" },
    { "trl.importance_sampling_level", COPY, "importance-sampling-level" },
    { "trl.mask_truncated_completions", COPY, "mask-truncated-completions", FLAG },
    { "trl.sync_ref_model", COPY, NULL, REFUSED "the reference stays what it is" },
    { "trl.use_vllm|trl.vllm_*|vllm.*|trl.log_completions|trl.num_completions_to_print|"
      "trl.ref_model_*|trl.use_liger_loss|precompute_ref_log_probs|dpo_use_liger_kernel|"
      "dpo_padding_free",
      IGNORED },
    { "dpo_label_smoothing", COPY, "label-smoothing" },
    { "dpo_use_weighting", COPY, "use-weighting", FLAG },
    { "rpo_alpha", COPY, NULL, REFUSED "`loss-type sigmoid,sft` with `loss-weights 1,X`" },
    { "cpo_alpha", COPY, "cpo-alpha" },
    { "simpo_gamma", COPY, "simpo-gamma" },
    { "kto_desirable_weight", COPY, "desirable-weight" },
    { "kto_undesirable_weight", COPY, "undesirable-weight" },
    { "saves_per_epoch", IGNORED, NULL, NULL, "`save-every` counts steps" },
    { "dp_*", IGNORED, NULL, NULL, BY_RANKS },
    { "tensor_parallel_size", IGNORED, NULL, NULL, "`tp`" },
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
      IGNORED },
    { 0 },
};

static const sheaf_foreign_default axolotl_always[] = {
    { "method", "full", "adapter" }, { "seq", "512" },
    { "on-long", "skip" },           { "epochs", "1" },
    { "schedule", "cosine" },        { "warmup-ratio", "0.03 # there 100 at most" },
    { "dtype", "bfloat16", "bf16" }, { 0 },
};

static const sheaf_foreign_default factory_always[] = {
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

static const sheaf_foreign_program programs[] = {
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

static bool is_one_of(const char *names, const char *key)
{
    for (size_t n; *names != '\0'; names += n + (names[n] == '|')) {
        n = strcspn(names, "|");
        if (matches(names, n, key))
            return true;
    }
    return false;
}

const sheaf_foreign_program *sheaf_foreign_program_of(const char *key)
{
    for (const sheaf_foreign_program *p = programs; p->name != NULL; p++)
        if (is_one_of(p->signs, key))
            return p;
    return NULL;
}

const sheaf_foreign_rule *sheaf_foreign_rule_of(const sheaf_foreign_program *program,
                                                const char *key)
{
    const sheaf_foreign_rule *rule = NULL;
    if (program == NULL) {
        for (program = programs; program->name != NULL && rule == NULL; program++)
            rule = sheaf_foreign_rule_of(program, key);
        return rule;
    }
    const sheaf_foreign_rule *const tables[] = { program->rule, both };
    for (int i = 0; i < 2; i++)
        for (rule = tables[i]; rule->keys != NULL; rule++)
            if (is_one_of(rule->keys, key))
                return rule;
    return NULL;
}
