/* train_settings.c - see train_settings.h. */
#include "library/train_settings.h"

#include "base/base.h"
#include "base/numeric_env.h"
#include "inputs/chat/chat.h"
#include "models/sums.h"
#include "sheaf/cut.h"
#include "sheaf/train.h"
#include "train/rank.h"
#include "train/scaler.h"

static const sheaf__choice beginnings[] = { { "mean", SHEAF_ADD_TOKENS_MEAN },
                                            { "random", SHEAF_ADD_TOKENS_RANDOM },
                                            { 0 } };
static const sheaf__choice methods[] = {
    { "lora", SHEAF_METHOD_LORA },
    { "head", SHEAF_METHOD_HEAD },
    { "full", SHEAF_METHOD_FULL },
    { 0 },
};
static const sheaf__choice optimizers[] = { { "adamw", SHEAF_OPTIMIZER_ADAMW },
                                            { "adamw8bit", SHEAF_OPTIMIZER_ADAMW8BIT },
                                            { 0 } };
static const sheaf__choice schedules[] = {
    { "constant", SHEAF_SCHEDULE_CONSTANT },
    { "linear", SHEAF_SCHEDULE_LINEAR },
    { "cosine", SHEAF_SCHEDULE_COSINE },
    { "wsd", SHEAF_SCHEDULE_WSD },
    { "sat-constant", SHEAF_SCHEDULE_SAT_CONSTANT },
    { "sat-linear", SHEAF_SCHEDULE_SAT_LINEAR },
    { "sat-cosine", SHEAF_SCHEDULE_SAT_COSINE },
    { 0 },
};
const sheaf__choice sheaf__transport_choices[] = {
    { "threads", SHEAF_TRANSPORT_THREADS },
    { "mpi", SHEAF_TRANSPORT_MPI },
    { 0 },
};
static const sheaf__choice dtypes[] = {
    { "float32", SHEAF_F32 }, { "bfloat16", SHEAF_BF16 }, { "float16", SHEAF_F16 }, { 0 }
};
const sheaf__choice sheaf__loss_choices[] = { { "answers", SHEAF_LOSS_ANSWERS },
                                              { "last", SHEAF_LOSS_LAST },
                                              { "all", SHEAF_LOSS_ALL },
                                              { "all-behind-prompt", SHEAF_LOSS_BEHIND },
                                              { 0 } };
const sheaf__choice sheaf__long_choices[] = {
    { "error", SHEAF_LONG_ERROR }, { "cut", SHEAF_LONG_CUT }, { "skip", SHEAF_LONG_SKIP }, { 0 }
};
const sheaf__choice sheaf__bad_choices[] = { { "error", SHEAF_BAD_ERROR },
                                             { "skip", SHEAF_BAD_SKIP },
                                             { 0 } };
static const sheaf__choice kepts[] = {
    { "all", SHEAF__KEPT_ALL },           { "int8", SHEAF__KEPT_INT8 },
    { "pairs", SHEAF__KEPT_PAIRS, true }, { "attention", SHEAF__KEPT_ATTENTION, true },
    { "none", SHEAF__KEPT_NONE, true },   { 0 },
};
static const sheaf__choice biases[] = {
    { "none", SHEAF_BIAS_NONE },
    { "all", SHEAF_BIAS_ALL },
    { "lora_only", SHEAF_BIAS_LORA_ONLY },
    { 0 },
};

const sheaf__choice sheaf__quantize_choices[] = { { "none", SHEAF_QUANTIZE_NONE },
                                                  { "nf4", SHEAF_QUANTIZE_NF4 },
                                                  { "nf4-double", SHEAF_QUANTIZE_NF4_DOUBLE },
                                                  { "int8", SHEAF_QUANTIZE_INT8 },
                                                  { 0 } };

const sheaf__choice sheaf__sums_choices[] = { { "pairs", SHEAF_SUMS_PAIRS },
                                              { "tiles", SHEAF_SUMS_TILES },
                                              { "mma8", SHEAF_SUMS_MMA8 },
                                              { "mma16", SHEAF_SUMS_MMA16 },
                                              { 0 } };

/* Offset of the field in sheaf_train_options; sheaf__train_settings() makes it an address. */
#define AT(field) ((void *)offsetof(sheaf_train_options, field))

/* Words of settings.h, for the rows. */
enum {
    CHOICE = SHEAF__IS_CHOICE,
    COMMON = SHEAF__IS_COMMON,
    CONTENT = SHEAF__IS_CONTENT,
    COUNT = SHEAF__IS_COUNT,
    FIXED = SHEAF__IS_FIXED,
    YIELDING = SHEAF__IS_YIELDING,
    FLAG = SHEAF__IS_FLAG,
    INT = SHEAF__IS_INT,
    LATE = SHEAF__IS_LATE,
    NUMBER = SHEAF__IS_NUMBER,
    PATH = SHEAF__IS_PATH,
    RUNNING = SHEAF__IS_RUNNING,
    TEXT = SHEAF__IS_TEXT,
    UNSAVED = SHEAF__IS_UNSAVED,
    ZERO = SHEAF__IS_ZERO,
};

static const sheaf__setting rows[] = {
    { "model", PATH | CONTENT | SHEAF__IS_NEEDED | COMMON | SHEAF__IS_WORD, AT(model),
      "folder of the base model (Hugging Face format); also as the first word", "DIR",
      .heading = "model and data" },
    { "config", PATH | CONTENT, AT(config), "the model's config.json, where its folder has none",
      "FILE" },
    { "data", PATH | SHEAF__IS_LIST | CONTENT | SHEAF__IS_NEEDED | COMMON | SHEAF__IS_WORD,
      AT(data),
      "examples as JSON Lines or a JSON array, a folder of images, or .safetensors with input_ids and labels; several with weights: a.jsonl:0.7,b.jsonl:0.3; also as the second word",
      .instead = "rollouts" },
    { "rollouts", PATH | UNSAVED, AT(data),
      "instead of `data`, of `objective grpo` and rloo: prompts with completions and their rewards, as JSON Lines",
      "FILE" },
    { "tokenizer", PATH | CONTENT, AT(tokenizer),
      "tokenizer of texts: a folder, tokenizer.json or tokenizer.model; default: in the model's folder",
      "PATH" },
    { "template", TEXT | FIXED, AT(prompt_template), SHEAF__TEMPLATE_HELP "the model's own",
      "NAME" },
    { "date", TEXT | FIXED, AT(date), SHEAF__DATE_HELP, "DATE" },
    { "query", TEXT | FIXED, AT(query), SHEAF__QUERY_HELP "CAPTCHA:", "TEXT" },
    { "loss-on", CHOICE | FIXED, AT(loss_on), SHEAF__LOSS_HELP "all answers",
      .choices = sheaf__loss_choices },
    { "on-long", CHOICE | FIXED, AT(on_long), SHEAF__LONG_HELP, .choices = sheaf__long_choices },
    { "on-bad", CHOICE | FIXED | LATE, AT(on_bad), SHEAF__BAD_HELP, .choices = sheaf__bad_choices },
    { "fields", TEXT | FIXED | LATE, AT(fields), SHEAF__FIELDS_HELP, "THEIRS=OURS,..." },
    { "specials", FLAG | FIXED | LATE, AT(specials), SHEAF__SPECIALS_HELP },
    { "data-cache", PATH, AT(data_cache), SHEAF__CACHE_HELP, "DIR", .from = sheaf__cache_from },
    { "out", PATH | CONTENT | SHEAF__IS_REQUIRED | COMMON, AT(out),
      "folder for checkpoints, metrics and the result", "DIR", .heading = "result", .letter = 'o' },
    { "tensorboard", PATH | CONTENT | LATE | RUNNING, AT(tensorboard),
      "folder for files of events that TensorBoard reads (default none)", "DIR" },
    { "metrics-port", INT | LATE | RUNNING, AT(metrics_port),
      "port of http://127.0.0.1:N/metrics, the run's numbers for Prometheus; 0 = none", "N",
      .max = 65535 },
    { "adapter", PATH | CONTENT, AT(adapter), "PEFT adapter to start from", "DIR",
      .heading = "adapter" },
    { "tp", INT | COMMON, AT(tp), "ranks that the model is divided over, at most `slices`", "T", 1,
      SHEAF_MAX_SLICES, .heading = "ranks" },
    { "dp", INT, AT(dp),
      "data-parallel groups of `tp` ranks each, which share the micro-batches of a step; a divisor of `accumulators`",
      "D", 1, SHEAF_MAX_SLICES },
    { "transport", CHOICE, AT(transport), SHEAF__TRANSPORT_HELP,
      .choices = sheaf__transport_choices },
    { "mpi", TEXT | UNSAVED | RUNNING, AT(mpi), SHEAF__MPI_HELP, "NAME" },
    { "hosts", TEXT | UNSAVED, AT(hosts), SHEAF__HOSTS_HELP, "LIST" },
    { "hostfile", PATH | UNSAVED, AT(hostfile), SHEAF__HOSTFILE_HELP, "FILE" },
    { "threads", INT, AT(threads), "compute threads of all ranks together; 0 = all cores",
      .max = 4096 },
    { "device", TEXT | UNSAVED | COMMON, AT(device), SHEAF__DEVICE_HELP, "D" },
    { "checkpointing", FLAG | COMMON, AT(checkpointing),
      "recompute activations instead of keeping them: less memory, more time, the same bytes" },
    { "offload", TEXT | LATE, AT(offload),
      "weights (frozen ones), moments (AdamW's) and activations (for the backward pass): they lie in a file, those of a GPU in the host's memory, while they are not used; less memory, more time, the same bytes (default none)",
      "LIST" },
    { "offload-dir", PATH | LATE, AT(offload_dir),
      "folder on a fast disk for the files of `offload`, which have no names and end with the run (default OUT)",
      "DIR" },
    { "keep-activations", CHOICE | FIXED | LATE, AT(kept),
      "activations that are kept for the backward pass: all; int8: all, but attention's own, in 8 bits, which changes the result; attention: MLPs are recomputed; none: all is recomputed, as by `checkpointing`; pairs: all, of both answers of a pair, which saves a forward pass (default all, or pairs where they fit)",
      .choices = kepts },
    { "began-in", TEXT | SHEAF__IS_HIDDEN | CONTENT, AT(folder),
      "folder that relative paths count from" },
    { "isa", TEXT | SHEAF__IS_HIDDEN | UNSAVED, AT(isa), "ref, avx2, avx512, avx512bf16 or amx" },
    { "slices", INT | FIXED, AT(slices),
      "slices that every tensor is divided into, a power of two; part of the result", "S", 1,
      SHEAF_MAX_SLICES },
    { "method", CHOICE | FIXED | COMMON, AT(method),
      "what is trained: an adapter, some tensors, or all", .choices = methods,
      .heading = "adapter" },
    { "train", TEXT | FIXED, AT(train),
      "patterns (*, ?, {46..54}) of tensors trained in full, beside an adapter or with `method head`; default: none, or the output head",
      "P,P" },
    { "lora-rank", COUNT | FIXED | COMMON, AT(lora_rank), "rank of A and B", "R", 1, 65536 },
    { "lora-alpha", NUMBER | FIXED | COMMON, AT(lora_alpha), "the adapter's scale is alpha / rank",
      "A", .above = true },
    { "lora-targets", TEXT | FIXED | COMMON, AT(lora_targets),
      "modules that get an adapter: names, a regular expression for the whole path, all-linear, sat or sat-vit (default of the family, mostly q_proj,v_proj)",
      "A,B", .min = 1 },
    { "lora-exclude", TEXT | FIXED, AT(lora_exclude),
      "modules of `lora-targets` that get no adapter: names or a regular expression", "A,B" },
    { "lora-layers", TEXT | FIXED, AT(lora_layers),
      "layers that get adapters, counted from 0 (default all)", "N,N" },
    { "lora-rank-pattern", TEXT | FIXED, AT(lora_rank_pattern),
      "other ranks for some modules: PATTERN=RANK,...", "P=R,P=R" },
    { "lora-alpha-pattern", TEXT | FIXED, AT(lora_alpha_pattern),
      "other alphas for some modules: PATTERN=ALPHA,...", "P=A,P=A" },
    { "lora-dropout", NUMBER | FIXED, AT(lora_dropout),
      "probability with which an input of the adapter is set to zero", "P", .max = 1,
      .below = true },
    { "lora-rslora", FLAG | FIXED, AT(lora_rslora), "the adapter's scale is alpha / sqrt(rank)" },
    { "lora-dora", FLAG | FIXED | LATE, AT(lora_dora),
      "DoRA: outputs of adapted layers also have trained magnitudes" },
    { "init", TEXT | FIXED | LATE, AT(init),
      "how new factors begin: random, gaussian, orthogonal; pissa, olora: as the largest part of the base's weights, which stay as they are: the adapter has twice the rank (default: A random, B zero)",
      "NAME" },
    { "lora-bias", CHOICE | FIXED, AT(lora_bias), "biases trained beside the adapter",
      .choices = biases },
    { "modules-to-save", TEXT | FIXED, AT(modules_to_save),
      "modules trained in full beside the adapter and saved with it", "A,B" },
    { "add-tokens", PATH | CONTENT | LATE, AT(add_tokens),
      "file of tokens that tokenizer and model get, one a line, or a .json list; their rows are trained and saved with the adapter (default none)",
      "FILE" },
    { "add-tokens-init", CHOICE | FIXED | LATE, AT(add_tokens_init),
      "how rows of `add-tokens` begin: as the mean of all rows, or random by `seed`",
      .choices = beginnings },
    { "steps", COUNT | LATE | SHEAF__IS_NEEDED | COMMON, AT(steps),
      "optimizer steps in all; or give `epochs`", .min = 1, .max = 1e15, .instead = "epochs",
      .heading = "optimizer" },
    { "epochs", NUMBER | LATE | COMMON, AT(epochs),
      "passes over the data, instead of `steps`; 1.5 is one and a half (default none)", .max = 1e9,
      .above = true },
    { "micro-batch", COUNT | FIXED | YIELDING | COMMON, AT(micro_batch), "rows of one forward",
      .min = 1, .max = 1e6, .heading = "batching" },
    { "accumulate", COUNT | FIXED | YIELDING | COMMON, AT(accumulate),
      "micro-batches of one step, over all groups", .min = 1, .max = 1e6 },
    { "accumulators", INT | FIXED | LATE | SHEAF__IS_SILENT, AT(accumulators),
      "partial sums of a step's gradients, a power of two; part of the result; default 4, of `method full` 1",
      "G", 0, SHEAF__MOST_ACCUMULATORS },
    { "seq", COUNT | FIXED | COMMON, AT(seq),
      "longest row in tokens; 0 = as long as data and model allow", .max = 1e8 },
    { "pack", FLAG | FIXED | YIELDING | LATE, AT(pack),
      "put several records into a row of `seq` tokens, without attention across them" },
    { "group-by-length", FLAG | FIXED | LATE, AT(by_length),
      "micro-batches of records of similar length, in random order" },
    { "shuffle", FLAG | FIXED, AT(shuffle), "use rows in file order" },
    { "lr", NUMBER | FIXED | COMMON, AT(lr), "learning rate after warm-up",
      .heading = "optimizer" },
    { "lr-scale", TEXT | FIXED, AT(lr_scale),
      "other learning rates for some tensors, as shares of `lr`: PATTERN=X,...; the first that matches counts",
      "P=X,P=X" },
    { "lora-plus", NUMBER | FIXED | LATE, AT(lora_plus),
      "LoRA+: learning rate of B, of magnitudes and of biases as a multiple of `lr`; mostly 16 (default 0: of A's)",
      "X", .max = 1e6 },
    { "schedule", CHOICE | FIXED, AT(schedule),
      "course of the learning rate after warm-up; wsd: constant, then down over `decay-steps`; sat-...: as SwissArmyTransformer computes it",
      .choices = schedules },
    { "warmup", COUNT | FIXED | YIELDING, AT(warmup),
      "steps over which the learning rate rises from 0", .max = 1e15 },
    { "warmup-ratio", NUMBER | FIXED | YIELDING, AT(warmup_ratio),
      "the same as a share of `steps`, instead of `warmup`", .max = 1 },
    { "min-lr-ratio", NUMBER | FIXED | LATE, AT(min_lr_ratio),
      "where `schedule cosine`, wsd or sat-cosine ends, as a share of `lr`; default 0, of sat-cosine 0.1",
      .max = 1 },
    { "decay-steps", COUNT | FIXED | LATE, AT(decay_steps),
      "last steps, over which `schedule wsd` goes down", .max = 1e15 },
    { "optimizer", CHOICE | FIXED | LATE, AT(optimizer),
      "adamw8bit: AdamW whose moments take 8 bits instead of 32, as bitsandbytes has them, in tensors of 4096 numbers or more; part of the result",
      .choices = optimizers },
    { "weight-decay", NUMBER | FIXED, AT(weight_decay),
      "AdamW's weight decay; none for biases and norms, except OmniLMM's" },
    { "beta1", NUMBER | FIXED, AT(beta1), "AdamW's beta1: decay of the first moment", .max = 1,
      .below = true },
    { "beta2", NUMBER | FIXED, AT(beta2), "AdamW's beta2: decay of the second moment", .max = 1,
      .below = true },
    { "eps", NUMBER | FIXED, AT(eps), "AdamW's epsilon, added to the divisor", .above = true },
    { "clip", NUMBER | FIXED, AT(clip), "largest gradient norm; 0 = no clipping" },
    { "label-smoothing", NUMBER | FIXED | LATE, AT(label_smoothing),
      "share of each label that is spread evenly over the vocabulary; of pairs, of those that are the wrong way round",
      .max = 1, .below = true },
    { "objective", TEXT | FIXED | LATE, AT(objective.name),
      "sft: answers are learnt (default); of pairs of a chosen and a rejected answer dpo, or its losses ipo, hinge and robust, cpo, simpo, orpo; of answers that are desirable or not kto; of completions with rewards grpo, rloo; reward makes a reward model of pairs",
      "NAME", .heading = "objective" },
    { "loss-type", TEXT | FIXED | LATE, AT(objective.loss_type),
      "losses of `objective dpo` or cpo, added up: sigmoid (default), hinge, ipo, robust, sigmoid_norm, sft, apo_zero, apo_down, nca_pair, bco_pair, sppo_hard, exo_pair, discopop; of kto: kto (default), apo_zero_unpaired; one of grpo: dapo (default), grpo, bnpo, dr_grpo, cispo, sapo, gspo",
      "A,B" },
    { "loss-weights", TEXT | FIXED | LATE, AT(objective.loss_weights),
      "weights of `loss-type`'s losses (default 1 each)", "X,Y" },
    { "beta", NUMBER | FIXED | LATE | ZERO, AT(objective.beta),
      "how far the objective lets the model go from its reference: less for larger values (default 0.1, of simpo 2, of rloo 0.05, of grpo 0); 0 of rloo and grpo: no reference",
      .min = -1 },
    { "reference", PATH | FIXED | LATE, AT(objective.reference),
      "what dpo compares the model with: start, the model as the run begins (default), base, without `adapter`, or the folder of another model or adapter",
      "WHICH", .from = sheaf__reference_from },
    { "reference-cache", PATH | LATE | RUNNING, AT(objective.cache),
      "folder in which runs share the reference's log-probabilities, by a fingerprint of all that they follow from (default: OUT alone has them)",
      "DIR", .from = sheaf__cache_from },
    { "simpo-gamma", NUMBER | FIXED | LATE | ZERO, AT(objective.simpo_gamma),
      "margin that simpo asks for (default 0.5)" },
    { "cpo-alpha", NUMBER | FIXED | LATE | ZERO, AT(objective.cpo_alpha),
      "share of the chosen answers' cross-entropy beside cpo and simpo (default 1 of cpo, 0 of simpo)",
      .min = -1 },
    { "simpo-alpha", NUMBER | FIXED | LATE, AT(objective.simpo_alpha),
      "cpo and simpo score a probability p by (1 - p^-alpha) / alpha in place of log p, as AlphaPO (default 0: log p)",
      .min = -10, .max = 10 },
    { "desirable-weight", NUMBER | FIXED | LATE | ZERO, AT(objective.desirable),
      "what desirable answers count in kto (default 1)" },
    { "undesirable-weight", NUMBER | FIXED | LATE | ZERO, AT(objective.undesirable),
      "what undesirable answers count in kto (default 1)" },
    { "orpo-answers", FLAG | FIXED | LATE, AT(objective.answers),
      "orpo's cross-entropy is that of the chosen answers alone, as in the paper; default: of their prompts, too" },
    { "ld-alpha", NUMBER | FIXED | LATE | ZERO, AT(objective.ld_alpha),
      "what tokens beyond the shorter answer of a pair count (default 1)", .max = 1 },
    { "discopop-tau", NUMBER | FIXED | LATE, AT(objective.discopop_tau),
      "temperature of `loss-type` discopop (default 0.05)", .above = true },
    { "epsilon", NUMBER | FIXED | LATE, AT(objective.group.epsilon),
      "grpo, rloo: how far below 1 a token's ratio still counts, and above (default 0.2)",
      .above = true },
    { "epsilon-high", NUMBER | FIXED | LATE, AT(objective.group.epsilon_high),
      "grpo, rloo: how far above 1 (default as `epsilon`); of cispo the largest ratio",
      .above = true },
    { "delta", NUMBER | FIXED | LATE, AT(objective.group.delta),
      "grpo: largest ratio where the advantage is negative (default none)", .above = true },
    { "scale-rewards", TEXT | FIXED | LATE, AT(objective.group.scale_rewards),
      "grpo: rewards of a group less their mean, divided by the deviation of the group (default), the batch, or none",
      "WHICH" },
    { "importance-sampling-level", TEXT | FIXED | LATE, AT(objective.group.level),
      "grpo: a ratio for each token (default), or one for the sequence, as GSPO has it", "LEVEL" },
    { "num-iterations", COUNT | FIXED | LATE, AT(objective.group.iterations),
      "grpo, rloo: steps that learn from one batch of completions (default 1)", .max = 1e6 },
    { "max-new", COUNT | FIXED | LATE, AT(objective.group.max_new),
      "grpo, rloo: most tokens of a completion, which `reward` needs (default none)", .max = 1e8 },
    { "temperature", NUMBER | FIXED | LATE, AT(objective.group.temperature),
      "grpo, rloo: what logits are divided by, in sampling and in the loss (default 1)",
      .above = true },
    { "reward", TEXT | FIXED | LATE, AT(objective.group.reward),
      "grpo, rloo: sample completions of `data`'s prompts, and judge them: exact, regex:PATTERN, a reward model's folder, or a command that reads them as JSON Lines and writes a number for each; several with ;",
      "A;B", .from = sheaf__rewards_from },
    { "reward-weights", TEXT | FIXED | LATE, AT(objective.group.reward_weights),
      "weights of `reward`'s (default 1 each)", "X,Y" },
    { "reward-time", SHEAF__IS_TIME | LATE, AT(objective.group.reward_time),
      "time that a command of `reward` has for the completions of a step (default 60s)", "TIME",
      .above = true },
    { "generations", COUNT | FIXED | LATE, AT(objective.group.generations),
      "`reward`: completions of each prompt (default 8)", .max = 1e4 },
    { "top-p", NUMBER | FIXED | LATE, AT(objective.group.top_p),
      "`reward`: sample from the most probable tokens with this mass (default all)", .max = 1,
      .above = true },
    { "mask-truncated-completions", FLAG | FIXED | LATE, AT(objective.group.mask_truncated),
      "grpo, rloo: learn nothing from completions without an end" },
    { "no-bias-correction-kl", FLAG | FIXED | LATE, AT(objective.group.plain_kl),
      "grpo: the divergence from the reference without the ratio as a factor" },
    { "normalize-advantages", FLAG | FIXED | LATE, AT(objective.group.normalize),
      "rloo: advantages with mean 0 and deviation 1 over the batch" },
    { "center-rewards-coefficient", NUMBER | FIXED | LATE, AT(objective.center),
      "what a reward model's scores away from 0 cost: this times the square of a pair's sum" },
    { "use-weighting", FLAG | FIXED | LATE, AT(objective.weighting),
      "dpo's pairs count by how sure the model is of both answers (WPO)" },
    { "f-divergence-type", TEXT | FIXED | LATE, AT(objective.divergence),
      "how dpo measures the way from its reference: reverse_kl (default), forward_kl, js_divergence or alpha_divergence",
      "NAME" },
    { "f-alpha-divergence-coef", NUMBER | FIXED | LATE | ZERO, AT(objective.divergence_alpha),
      "alpha of `f-divergence-type` alpha_divergence (default 0.5)" },
    { "neftune-alpha", NUMBER | FIXED | LATE, AT(neftune_alpha),
      "NEFTune: noise of alpha / sqrt(tokens of the row * width) on the embedding; 0 = none", "A",
      .max = 1e9 },
    { "dtype", CHOICE | FIXED | COMMON, AT(dtype),
      "type of activations and products (default the model's own); trained weights are float32 masters",
      .choices = dtypes },
    { "sums", CHOICE | FIXED | SHEAF__IS_SILENT, AT(sums), SHEAF__SUMS_HELP,
      .choices = sheaf__sums_choices },
    { "quantize", CHOICE | FIXED | LATE | COMMON, AT(quantize), SHEAF__QUANTIZE_HELP,
      .choices = sheaf__quantize_choices },
    { "loss-scale", TEXT | FIXED | LATE, AT(loss_scale),
      "float16: factor of the loss: dynamic (default), or a fixed power of two", "X" },
    { "loss-scale-init", NUMBER | FIXED | LATE, AT(loss_scale_init),
      "dynamic `loss-scale`: first value (default 65536)" },
    { "loss-scale-window", COUNT | FIXED | LATE, AT(loss_scale_window),
      "dynamic `loss-scale`: it doubles after so many steps without overflow (default 2000)",
      .max = 1e9 },
    { "loss-scale-hysteresis", COUNT | FIXED | LATE, AT(loss_scale_hysteresis),
      "dynamic `loss-scale`: it halves after so many overflows (default 1)", .max = 1e9 },
    { "loss-scale-min", NUMBER | FIXED | LATE, AT(loss_scale_min),
      "dynamic `loss-scale`: least value; an overflow at it ends the run (default 1)" },
    { "seed", SHEAF__IS_SEED | FIXED, AT(seed), "seed of all random numbers" },
    { "save-every", COUNT, AT(save_every), "steps between checkpoints; 0 = only at the end",
      .max = 1e15, .heading = "result" },
    { "export-every", COUNT, AT(export_every),
      "steps between adapters or models written to OUT/exports; 0 = only the result", .max = 1e15 },
    { "keep", COUNT, AT(keep), "checkpoints to keep, the newest; 0 = all", .max = 1e9 },
    { "eval-data", PATH | SHEAF__IS_LIST | CONTENT | COMMON, AT(eval_data),
      "examples, as `data`, that the model is evaluated on at the end, and every `eval-every` steps",
      .heading = "evaluation" },
    { "eval-split", NUMBER | FIXED | LATE, AT(eval_split),
      "instead of `eval-data`: share of `data` to hold out, chosen by `seed` (default none)",
      .max = 1, .below = true },
    { "eval-every", COUNT | FIXED | LATE, AT(eval_every),
      "steps between evaluations; 0 = only at the end", .max = 1e15 },
    { "patience", COUNT | LATE, AT(patience),
      "end the run after so many evaluations without a lower loss; 0 = never", .max = 1e9 },
    { "min-delta", NUMBER | FIXED | LATE, AT(min_delta),
      "for `patience`, a loss counts as lower when it falls by more than this" },
    { "use-best", FLAG | LATE, AT(use_best),
      "the result is the step with the lowest evaluation loss, not the last one" },
    { "max-time", SHEAF__IS_TIME | LATE, AT(max_time),
      "save and stop after so long, as with Ctrl-C: seconds, or 90s, 15m, 2h30m (default never)",
      "TIME", .heading = "failure" },
    { "heartbeat", SHEAF__IS_TIME | UNSAVED | RUNNING, AT(heartbeat), SHEAF__HEARTBEAT_HELP, "TIME",
      .heading = "failure" },
    { "hang-after", SHEAF__IS_TIME | UNSAVED | RUNNING, AT(hang_after),
      "end the run, and say what each rank does, when none progresses for so long; 0 = never",
      "TIME" },
    { "restarts", COUNT | UNSAVED | RUNNING, AT(restarts),
      "go on from the newest checkpoint after a rank or a machine failed, N times at most", "N",
      .max = 1e6 },
    { "resume", FLAG | UNSAVED | COMMON, AT(resume),
      "continue from the newest checkpoint in `out`, at any `tp` and `dp`, with the settings stored there",
      .heading = "result" },
    { "recipe", PATH | UNSAVED | COMMON, AT(recipe),
      "read settings from a file, or from a recipe that comes with sheaf (cogvlm-lora, ...)",
      "FILE" },
    { "force", FLAG | UNSAVED | RUNNING, AT(force),
      "start even if the planner says that memory does not suffice", .heading = "failure" },
};
enum { ROWS = sizeof rows / sizeof *rows };

void sheaf__train_settings(sheaf__setting *table, sheaf_train_options *o, bool planning)
{
    o->dtype = SHEAF_BOOL;
    for (int i = 0; i < ROWS; i++) {
        sheaf__setting *row = &table[i];
        *row = rows[i];
        row->value = (char *)o + (size_t)row->value;
        if (!planning)
            continue;
        if (row->kind & SHEAF__IS_NEEDED) /* 0 steps are those of an epoch */
            row->min = 0;
        if (row->kind & SHEAF__IS_RUNNING)
            row->kind |= SHEAF__IS_HIDDEN;
        row->kind &= ~(unsigned)(SHEAF__IS_NEEDED | SHEAF__IS_REQUIRED);
    }
    table[ROWS] = (sheaf__setting){ 0 };
}

void sheaf__objective_settings(sheaf__setting *table, const sheaf__setting *train)
{
    static const char *const names[] = { "objective",
                                         "loss-type",
                                         "loss-weights",
                                         "beta",
                                         "label-smoothing",
                                         "reference",
                                         "simpo-gamma",
                                         "cpo-alpha",
                                         "simpo-alpha",
                                         "discopop-tau",
                                         "ld-alpha",
                                         "orpo-answers",
                                         "desirable-weight",
                                         "undesirable-weight",
                                         "use-weighting",
                                         "f-divergence-type",
                                         "f-alpha-divergence-coef",
                                         "center-rewards-coefficient" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        sheaf__settings_append(table,
                               (sheaf__setting[]){ *sheaf__setting_find(train, names[i]), { 0 } });
}

sheaf_status *sheaf__run_settings_open(sheaf__run_settings *run, sheaf__settings *state,
                                       bool planning)
{
    run->state = state;
    run->options = malloc(sizeof *run->options);
    if (run->options == NULL)
        return sheaf__no_memory("settings");
    sheaf_train_options_default(run->options);
    sheaf__train_settings(run->table, run->options, planning);
    return NULL;
}

void sheaf__run_settings_close(sheaf__run_settings *run)
{
    free(run->options);
    run->options = NULL;
}

sheaf_status *sheaf__train_settings_resumed(const sheaf__settings *state,
                                            const sheaf__setting *table, sheaf_train_options *o)
{
    const sheaf_train_options as_it_is = { .method = o->method };
    char means[16];
    /* the number of its method is not written down; a run that names it again is the same */
    snprintf(means, sizeof means, "%d", sheaf__accumulators_of(&as_it_is));
    sheaf_status *st = sheaf__settings_unnamed(state, table, "accumulators", means);
    if (o->dtype != SHEAF_BF16 && sheaf__sums_name(o->dtype, o->sums) == NULL) {
        o->sums = SHEAF_SUMS_UNNAMED; /* an order that means nothing is none */
        return st;
    }
    TRY(st, sheaf__settings_unnamed(state, table, "sums", ""));
    return st != NULL || sheaf__settings_named(state, table, "sums")
               ? st
               : sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "the settings of the run"),
                                "'sums', the order in which it began");
}

static sheaf_status *alone(const char *flag, const char *other)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`%s`", flag), "%s beside it", other);
}

/* Flags that say nothing without another one. */
static sheaf_status *check_alone(const sheaf__settings *state, const sheaf__setting *table,
                                 const sheaf_train_options *o)
{
    static const char judging[] = "`eval-data` or `eval-split`", every[] = "`eval-every`",
                      dynamic[] = "`dtype float16` and a scale that is dynamic";
    const char *offload = o->offload == NULL || o->offload[0] == '\0' ? "none" : o->offload;
    const bool judges = sheaf__evaluates(o), half = o->dtype == SHEAF_F16,
               stays = o->loss_scale != NULL && o->loss_scale[0] != '\0' &&
                       strcmp(o->loss_scale, "dynamic") != 0;
    const struct {
        const char *flag, *other;
        bool is_there;
        bool always; /* also where a recipe has the flag */
    } rows[] = {
        { "eval-every", judging, judges || o->eval_every == 0, true },
        { "use-best", judging, judges || !o->use_best, true },
        { "patience", every, o->eval_every > 0 || o->patience == 0, true },
        { "min-delta", every, o->eval_every > 0 || o->min_delta == 0, true },
        { "train", "`method lora` or head", o->method != SHEAF_METHOD_FULL },
        { "offload-dir", "`offload`", strcmp(offload, "none") != 0 },
        { "quantize", "`method lora` or head",
          o->method != SHEAF_METHOD_FULL || o->quantize == SHEAF_QUANTIZE_NONE },
        { "loss-scale", "`dtype float16`", half },
        { "loss-scale-init", dynamic, half && !stays },
        { "loss-scale-window", dynamic, half && !stays },
        { "loss-scale-hysteresis", dynamic, half && !stays },
        { "loss-scale-min", dynamic, half && !stays },
        { "add-tokens-init", "`add-tokens`", o->add_tokens != NULL && o->add_tokens[0] != '\0' },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].is_there &&
            (rows[i].always || sheaf__settings_given(state, table, rows[i].flag)))
            return alone(rows[i].flag, rows[i].other);
    for (const sheaf__setting *x = table; x->name != NULL && o->method != SHEAF_METHOD_LORA; x++)
        if (state->given[x - table] &&
            (strncmp(x->name, "lora-", 5) == 0 || strcmp(x->name, "modules-to-save") == 0 ||
             strcmp(x->name, "adapter") == 0 || strcmp(x->name, "init") == 0))
            return alone(x->name, "`method lora`");
    return NULL;
}

static sheaf_status *check_scale(const sheaf_train_options *o)
{
    sheaf__scaler_options read;
    return o->dtype != SHEAF_F16
               ? NULL
               : sheaf__scaler_options_read(&read, o->loss_scale, o->loss_scale_init,
                                            o->loss_scale_window, o->loss_scale_hysteresis,
                                            o->loss_scale_min);
}

/* A run may stop while it still warms up; all else about the schedule must be sound. */
static sheaf_status *check_schedule(const sheaf_train_options *o)
{
    const bool wsd = o->schedule == SHEAF_SCHEDULE_WSD,
               ends = wsd || o->schedule == SHEAF_SCHEDULE_COSINE ||
                      o->schedule == SHEAF_SCHEDULE_SAT_COSINE;
    if (o->warmup != 0 && o->warmup_ratio != 0)
        return sheaf_try_this(sheaf_fail(SHEAF_E_ARG, "`warmup` and `warmup-ratio`"),
                              "one of them; the other 0");
    if (o->min_lr_ratio > 0 && !ends)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`min-lr-ratio`"),
                                          "`schedule cosine`, wsd or sat-cosine beside it"),
                           "%s", sheaf_schedule_name(o->schedule));
    if ((o->decay_steps > 0) == wsd)
        return NULL;
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_ARG, wsd ? "`schedule wsd`" : "`decay-steps`"),
                       "%s beside it", wsd ? "`decay-steps N`" : "`schedule wsd`"),
        "%s", wsd ? "none" : sheaf_schedule_name(o->schedule));
}

/* Is `name` given, and `other`, which says the same in another way, at most by a recipe? */
static bool is_instead(const sheaf__settings *state, const sheaf__setting *table, const char *name,
                       const char *other)
{
    return sheaf__settings_given(state, table, name) && !sheaf__settings_given(state, table, other);
}

/* Of two settings that say one thing the one on the command line wins over a recipe's. */
static void let_flag_win(const sheaf__settings *state, const sheaf__setting *table,
                         sheaf_train_options *o)
{
    if (state->resumed) /* the stored settings win, and flags agree with them */
        return;
    if (is_instead(state, table, "warmup", "warmup-ratio"))
        o->warmup_ratio = 0;
    if (is_instead(state, table, "warmup-ratio", "warmup"))
        o->warmup = 0;
    if (is_instead(state, table, "eval-data", "eval-split"))
        o->eval_split = 0;
    if (is_instead(state, table, "eval-split", "eval-data"))
        o->eval_data = NULL;
}

/* Settings that little data may lower: of a new run, if no flag sets them. */
static void find_yielding(const sheaf__settings *state, const sheaf__setting *table,
                          sheaf_train_options *o)
{
    const bool warms = sheaf__settings_yields(state, table, "warmup") ||
                       sheaf__settings_yields(state, table, "warmup-ratio");
    o->yields = 0;
    if (state->resumed)
        return;
    if (sheaf__settings_yields(state, table, "pack") && o->pack)
        o->yields |= SHEAF__YIELDS_PACK;
    if (sheaf__settings_yields(state, table, "accumulate"))
        o->yields |= SHEAF__YIELDS_ACCUMULATE;
    if (sheaf__settings_yields(state, table, "micro-batch"))
        o->yields |= SHEAF__YIELDS_MICRO_BATCH;
    if (warms && !sheaf__settings_given(state, table, "warmup") &&
        !sheaf__settings_given(state, table, "warmup-ratio"))
        o->yields |= SHEAF__YIELDS_WARMUP;
}

/* The command line wins over a recipe and over what is stored. */
static sheaf_status *check_length(const sheaf__settings *state, const sheaf__setting *table,
                                  sheaf_train_options *o)
{
    const bool steps = sheaf__settings_given(state, table, "steps"),
               epochs = sheaf__settings_given(state, table, "epochs");
    if (o->epochs == 0 || o->steps == 0)
        return NULL;
    if (steps == epochs)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`steps` and `epochs`"), "one of the two");
    if (steps)
        o->epochs = 0;
    else
        o->steps = 0;
    return NULL;
}

/* Groups take whole accumulators, as many each. */
static sheaf_status *check_groups(sheaf_train_options *o)
{
    if ((o->accumulators & (o->accumulators - 1)) != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`accumulators`"),
                                          "a power of two, at most %d", SHEAF__MOST_ACCUMULATORS),
                           "%d", o->accumulators);
    const sheaf_train_options as_it_is = { .method = o->method };
    const int G = sheaf__accumulators_of(o);
    if (G == sheaf__accumulators_of(&as_it_is))
        o->accumulators = 0; /* the same as the default */
    if (G % o->dp != 0) {
        sheaf_status *st =
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`dp`"), "a divisor of %d, the `accumulators`%s",
                           G, o->accumulators == 0 ? " of this method" : "");
        sheaf_found(st, "%d", o->dp);
        if ((o->dp & (o->dp - 1)) == 0 && o->dp <= SHEAF__MOST_ACCUMULATORS)
            return sheaf_try_this(st,
                                  "`accumulators %d` from the start of a run: it is part of "
                                  "the result",
                                  o->dp);
        return sheaf_try_this(st, "a power of two, up to %d", SHEAF__MOST_ACCUMULATORS);
    }
    if (o->dp > SHEAF_MAX_SLICES / o->tp)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`tp` and `dp`"),
                                          "at most %d ranks in all", SHEAF_MAX_SLICES),
                           "%d groups of %d", o->dp, o->tp);
    return NULL;
}

/* --checkpointing is another name of --keep-activations none, which runs store beside it. */
static sheaf_status *check_kept(const sheaf__settings *state, const sheaf__setting *table,
                                sheaf_train_options *o)
{
    const bool none = o->kept == SHEAF__KEPT_NONE,
               kept = sheaf__settings_given(state, table, "keep-activations"),
               again = sheaf__settings_given(state, table, "checkpointing");
    if (kept && again && o->checkpointing != none)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`checkpointing` and `keep-activations`"),
                              "one of the two");
    if (!kept && o->checkpointing && o->kept == SHEAF__KEPT_INT8) {
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`checkpointing`");
        sheaf_expected(st, "`keep-activations int8` alone, which is part of the result");
        return sheaf_try_this(st, "leave `checkpointing` out, or begin a new run without int8");
    }
    if (!kept && o->checkpointing)
        o->kept = SHEAF__KEPT_NONE;
    else if (again && none && !o->checkpointing)
        o->kept = SHEAF__KEPT_ALL;
    o->checkpointing = o->kept == SHEAF__KEPT_NONE;
    o->kept_given = again || sheaf__settings_named(state, table, "keep-activations");
    return NULL;
}

sheaf_status *sheaf__transport_check(const sheaf__settings *state, const sheaf__setting *table,
                                     sheaf_transport transport)
{
    static const char *const of_processes[] = { "mpi", "hosts", "hostfile" };
    for (size_t i = 0; i < sizeof of_processes / sizeof *of_processes; i++)
        if (transport == SHEAF_TRANSPORT_THREADS &&
            sheaf__settings_given(state, table, of_processes[i]))
            return alone(of_processes[i], "`transport mpi`");
    return NULL;
}

sheaf_status *sheaf__train_settings_check(const sheaf__settings *state, const sheaf__setting *table,
                                          sheaf_train_options *o)
{
    sheaf_status *st = sheaf__settings_required(state, table, true);
    let_flag_win(state, table, o);
    find_yielding(state, table, o);
    TRY(st, check_length(state, table, o));
    if (st == NULL && o->eval_split > 0 && o->eval_data != NULL && o->eval_data[0] != '\0')
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`eval-data` and `eval-split`"),
                            "one of the two");
    TRY(st, check_alone(state, table, o));
    if (st == NULL && (o->slices & (o->slices - 1)) != 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`slices`"),
                                        "a power of two, at most %d", SHEAF_MAX_SLICES),
                         "%d", o->slices);
    if (st == NULL && o->by_length && !o->shuffle)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`group-by-length`"), "rows in a random order"),
            "`no-shuffle`");
    if (st == NULL && o->tp > o->slices) {
        st = sheaf_fail(SHEAF_E_ARG, "`tp`");
        sheaf_expected(st, "at most %d, the number of slices", o->slices);
        sheaf_found(st, "%d", o->tp);
        sheaf_try_this(st, "fewer ranks; a new run may have more `slices`, up to %d",
                       SHEAF_MAX_SLICES);
    }
    TRY(st, check_kept(state, table, o));
    TRY(st, check_groups(o));
    TRY(st, sheaf__transport_check(state, table, o->transport));
    TRY(st, check_schedule(o));
    return st != NULL ? st : check_scale(o);
}

sheaf_status *sheaf_run_setting_check(const char *setting, const char *value)
{
    SHEAF__NUMERIC_ENV;
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    sheaf_train_options options;
    sheaf_train_options_default(&options);
    sheaf__train_settings(table, &options, false);
    const sheaf__setting *s = sheaf__setting_find(table, setting);
    const bool of_template = strcmp(setting, "template") == 0;
    if (s != NULL && !of_template)
        return sheaf__setting_set(s, value, setting);
    if (s != NULL && sheaf__chat_template_known(value) != NULL)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "%s", setting);
    if (s == NULL)
        return sheaf_expected(st, "a setting of sheaf train");
    return sheaf_found(sheaf_expected(st, "%s", sheaf__chat_template_names()), "%s", value);
}
