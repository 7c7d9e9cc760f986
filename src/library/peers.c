/* peers.c - what other programs call a flag: transformers' TrainingArguments, PEFT's LoraConfig,
 * TRL, DeepSpeed, Megatron, llama.cpp and vLLM; and LLaMA-Factory's and Axolotl's as
 * translate_rules.c has them. */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "library/settings.h"
#include "library/translate_rules.h"

#define LEAVE "leave it out: "
static const char on_cpu[] =
    LEAVE "sheaf computes on processors. --tp T divides the model over ranks, "
          "--threads N says how many cores they use";
static const char stored[] =
    LEAVE "frozen weights stay in the dtype they are stored in; sheaf convert "
          "--dtype bfloat16 halves those in float32";
static const char divides[] =
    LEAVE "--tp T divides the model over ranks, --dp D the micro-batches of a step";
static const char hosts[] = LEAVE "--transport mpi with --hosts a:2,b:2 runs on several hosts";
static const char progress[] =
    LEAVE "each step is in OUT/metrics.jsonl, and sheaf info OUT says how the run goes";
static const char adamw[] =
    LEAVE "the optimizer is AdamW, with --beta1, --beta2, --eps and --weight-decay";
static const char lora[] = LEAVE "--method lora is the default";
static const char ignored[] = LEAVE "it changes no result here";
static const char measures[] =
    LEAVE "--time measures here each time, some seconds of a model of three layers";
static const char network[] =
    LEAVE "plan --json tells the bytes and the calls of a step, which the network's rate prices";
static const char begins[] = LEAVE "A begins random and B zero";

/* `ours` NULL: sheaf has no such flag, and `more` says what to do instead. */
static const struct {
    const char *peer, *ours, *more;
} names[] = {
    { "batch-size", "micro-batch" },
    { "batch-size", "batch" },
    { "per-device-eval-batch-size", "micro-batch" },
    { "per-device-batch-size", "micro-batch" },
    { "train-batch-size", "micro-batch" },
    { "eval-batch-size", "micro-batch" },
    { "train-micro-batch-size-per-gpu", "micro-batch" },
    { "gradient-accumulation", "accumulate" },
    { "grad-accum", "accumulate" },
    { "accumulation-steps", "accumulate" },
    { "max-epochs", "epochs" },
    { "train-epochs", "epochs" },
    { "train-iters", "steps" },
    { "num-steps", "steps" },
    { "iters", "steps" },
    { "max-length", "seq" },
    { "max-seq-length", "seq" },
    { "max-seq-len", "seq" },
    { "seq-length", "seq" },
    { "seq-len", "seq" },
    { "sequence-length", "seq" },
    { "model-max-length", "seq" },
    { "block-size", "seq" },
    { "context-length", "seq" },
    { "max-new-tokens", "max-new" },
    { "max-tokens", "max-new" },
    { "num-predict", "max-new" },
    { "output", "out" },
    { "output-path", "out" },
    { "out-dir", "out" },
    { "save-dir", "out" },
    { "save-path", "out" },
    { "target-modules", "lora-targets" },
    { "lora-modules", "lora-targets" },
    { "exclude-modules", "lora-exclude" },
    { "layers-to-transform", "lora-layers" },
    { "rank-pattern", "lora-rank-pattern" },
    { "alpha-pattern", "lora-alpha-pattern" },
    { "r", "lora-rank" },
    { "rank", "lora-rank" },
    { "lora-dim", "lora-rank" },
    { "alpha", "lora-alpha" },
    { "dropout", "lora-dropout" },
    { "rslora", "lora-rslora" },
    { "bias", "lora-bias" },
    { "model-name", "model" },
    { "model-path", "model" },
    { "model-dir", "model" },
    { "pretrained-model-name-or-path", "model" },
    { "checkpoint", "model" },
    { "adapter-path", "adapter" },
    { "lora-path", "adapter" },
    { "lora", "adapter" },
    { "peft-model", "adapter" },
    { "train-file", "data" },
    { "dataset-name", "data" },
    { "dataset-path", "data" },
    { "data-path", "data" },
    { "train-data", "data" },
    { "eval-file", "eval-data" },
    { "validation-file", "eval-data" },
    { "eval-data", "data" },
    { "eval-interval", "eval-every" },
    { "validation-split-percentage", "eval-split", ", a share between 0 and 1" },
    { "early-stopping-threshold", "min-delta" },
    { "max-duration", "max-time" },
    { "train-runtime", "max-time" },
    { "input-file", "data" },
    { "tokenizer-path", "tokenizer" },
    { "tokenizer-name", "tokenizer" },
    { "scheduler", "schedule" },
    { "lr-decay-style", "schedule" },
    { "num-warmup-steps", "warmup" },
    { "warmup-iters", "warmup" },
    { "lr-warmup-steps", "warmup" },
    { "clip-grad", "clip" },
    { "gradient-clipping", "clip" },
    { "gradient-clip-val", "clip" },
    { "max-norm", "clip" },
    { "adam-eps", "eps" },
    { "epsilon", "eps" },
    { "wd", "weight-decay" },
    { "save-interval", "save-every" },
    { "resume-from-checkpoint", "resume", ", of the run in --out" },
    { "checkpoint-activations", "checkpointing" },
    { "recompute", "checkpointing" },
    { "fp32", "dtype", " float32" },
    { "torch-dtype", "dtype" },
    { "precision", "dtype" },
    { "tensor-parallel-size", "tp" },
    { "tensor-model-parallel-size", "tp" },
    { "model-parallel-size", "tp" },
    { "tp-size", "tp" },
    { "num-threads", "threads" },
    { "nthreads", "threads" },
    { "jobs", "threads" },
    { "random-seed", "seed" },
    { "temp", "temperature" },
    { "config-file", "recipe" },
    { "max-shard-size", "shard-mb" },
    { "save-profile", NULL, measures },
    { "profile", NULL, measures },
    { "cluster", NULL, network },
    { "link", NULL, network },
    { "nnodes", NULL, hosts },
    { "num-nodes", NULL, hosts },
    { "num-machines", NULL, hosts },
    { "node-rank", NULL, hosts },
    { "machine-rank", NULL, hosts },
    { "master-addr", NULL, hosts },
    { "main-process-ip", NULL, hosts },
    { "master-port", NULL, hosts },
    { "use-peft", NULL, lora },
    { "use-lora", NULL, lora },
    { "peft-type", NULL, lora },
    { "max-model-len", "seq" },
    { "n-predict", "max-new" },
    { "m", "model" },
    { "p", "prompt" },
    { "n", "max-new" },
    { "t", "threads" },
    { "s", "seed" },
    { "o", "out" },
    { "num-workers", NULL, ignored },
    { "use-flash-attention-2", NULL, ignored },
    { "use-liger-kernel", NULL, ignored },
    { "task-type", NULL, lora },
    { "init-lora-weights", NULL, begins },
    { "completion-only-loss", "loss-on", " answers, which is the default" },
    { "assistant-only-loss", "loss-on", " answers, which is the default" },
    { "merge-and-unload", NULL, "sheaf merge BASE ADAPTER DST, when the run is done" },
    { "offload-optimizer", NULL, divides },
    { "gpu-memory-utilization", NULL, on_cpu },
    { "gpus", NULL, on_cpu },
    { "gpu", NULL, on_cpu },
    { "num-gpus", NULL, on_cpu },
    { "n-gpus", NULL, on_cpu },
    { "ngpus", NULL, on_cpu },
    { "gpu-ids", NULL, on_cpu },
    { "n-gpu-layers", NULL, on_cpu },
    { "ngl", NULL, on_cpu },
    { "device", NULL, on_cpu },
    { "devices", NULL, on_cpu },
    { "device-map", NULL, on_cpu },
    { "cuda", NULL, on_cpu },
    { "use-cpu", NULL, on_cpu },
    { "no-cuda", NULL, on_cpu },
    { "accelerator", NULL, on_cpu },
    { "nproc-per-node", NULL, on_cpu },
    { "num-processes", NULL, on_cpu },
    { "load-in-4bit", NULL, stored },
    { "load-in-8bit", NULL, stored },
    { "quantization-bit", NULL, stored },
    { "quantization", NULL, stored },
    { "quantize", NULL, stored },
    { "bits", NULL, stored },
    { "qlora", NULL, stored },
    { "bnb-4bit-compute-dtype", NULL, stored },
    { "bnb-4bit-quant-type", NULL, stored },
    { "deepspeed", NULL, divides },
    { "deepspeed-config", NULL, divides },
    { "fsdp", NULL, divides },
    { "fsdp-config", NULL, divides },
    { "zero-stage", NULL, divides },
    { "pipeline-model-parallel-size", NULL, divides },
    { "report-to", NULL, progress },
    { "logging-dir", NULL, progress },
    { "logging-steps", NULL, progress },
    { "log-interval", NULL, progress },
    { "run-name", NULL, progress },
    { "use-wandb", NULL, progress },
    { "wandb-project", NULL, progress },
    { "tensorboard-dir", NULL, progress },
    { "optim", NULL, adamw },
    { "optimizer", NULL, adamw },
    { "optimizer-type", NULL, adamw },
    { "weight-copies", NULL, LEAVE "frozen weights are held once" },
    { "head-patterns", "train" },
    { "carrier", "transport" },
};

/* Are these the same but for case, and '_' for '-'? `word` has `n` bytes. */
static bool alike(const char *name, const char *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (name[i] == '\0' || name[i] != (word[i] == '_' ? '-' : tolower((unsigned char)word[i])))
            return false;
    return name[n] == '\0';
}

static bool has(const sheaf__setting *options, const char *name)
{
    const sheaf__setting *o = sheaf__setting_find(options, name);
    return o != NULL && !(o->kind & SHEAF__IS_HIDDEN);
}

/* What a file of LLaMA-Factory or Axolotl means by it; NULL: nothing. */
static const sheaf__translate_rule *rule_of(const char *word, size_t n)
{
    char key[64];
    const sheaf__translate_rule *rule = NULL;
    snprintf(key, sizeof key, "%.*s", (int)n, word);
    for (char *c = key; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)tolower((unsigned char)*c);
    for (const sheaf__translate_program *p = sheaf__translate_programs;
         p->name != NULL && rule == NULL; p++)
        rule = sheaf__translate_find(p, key);
    return rule;
}

static void advise_setting(sheaf_status *st, const sheaf__translate_rule *rule, const char *dashes)
{
    const char *no = rule->kind == TRANSLATE_NO ? "no-" : "",
               *value = rule->kind == TRANSLATE_PRESENT ? rule->words + strlen("*=") : "";
    sheaf_try_this(st, "sheaf calls it %s%s%s%s%s", dashes, no, rule->setting,
                   value[0] != '\0' ? " " : "", value);
}

static void advise_without(sheaf_status *st, const sheaf__translate_rule *rule)
{
    if (rule->note != NULL)
        sheaf_try_this(st, LEAVE "%s", rule->note);
    else if (rule->kind == TRANSLATE_ONLY)
        sheaf_try_this(st, LEAVE "here it is always %.*s", (int)strcspn(rule->words, "|="),
                       rule->words);
    else
        sheaf_try_this(st, LEAVE "%s",
                       rule->kind == TRANSLATE_IGNORED ? "it changes no result here"
                                                       : "sheaf has no such thing");
}

bool sheaf__peer_advise(sheaf_status *st, const sheaf__setting *options, const char *word,
                        const char *dashes)
{
    const size_t n = strcspn(word, "=");
    for (const sheaf__setting *o = options; o->name != NULL; o++)
        if (!(o->kind & SHEAF__IS_HIDDEN) && alike(o->name, word, n)) {
            sheaf_try_this(st, "sheaf calls it %s%s", dashes, o->name);
            return true;
        }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *ours = names[i].ours, *more = names[i].more;
        if (!alike(names[i].peer, word, n) || (ours != NULL && !has(options, ours)))
            continue;
        if (ours == NULL)
            sheaf_try_this(st, "%s", more);
        else
            sheaf_try_this(st, "sheaf calls it %s%s%s", dashes, ours, more != NULL ? more : "");
        return true;
    }
    const sheaf__translate_rule *rule = rule_of(word, n);
    if (rule == NULL || (rule->setting != NULL && !has(options, rule->setting)))
        return false;
    if (rule->setting != NULL)
        advise_setting(st, rule, dashes);
    else
        advise_without(st, rule);
    return true;
}

bool sheaf__peer_is_out(const char *word)
{
    const size_t n = strcspn(word, "=");
    const sheaf__translate_rule *rule = rule_of(word, n);
    bool is = alike("out", word, n) ||
              (rule != NULL && rule->setting != NULL && strcmp(rule->setting, "out") == 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is = is || (names[i].ours != NULL && strcmp(names[i].ours, "out") == 0 &&
                    alike(names[i].peer, word, n));
    return is;
}
