/* peers.c - what other programs call a flag: transformers' TrainingArguments, PEFT's LoraConfig,
 * TRL, LLaMA-Factory, axolotl, DeepSpeed and Megatron. */
#include <ctype.h>
#include <string.h>

#include "library/settings.h"

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

/* `ours` NULL: sheaf has no such flag, and `more` says what to do instead. */
static const struct {
    const char *peer, *ours, *more;
} names[] = {
    { "learning-rate", "lr" },
    { "batch-size", "micro-batch" },
    { "batch-size", "batch" },
    { "per-device-train-batch-size", "micro-batch" },
    { "per-device-eval-batch-size", "micro-batch" },
    { "per-device-batch-size", "micro-batch" },
    { "train-batch-size", "micro-batch" },
    { "eval-batch-size", "micro-batch" },
    { "micro-batch-size", "micro-batch" },
    { "train-micro-batch-size-per-gpu", "micro-batch" },
    { "gradient-accumulation-steps", "accumulate" },
    { "gradient-accumulation", "accumulate" },
    { "grad-accum", "accumulate" },
    { "accumulation-steps", "accumulate" },
    { "num-train-epochs", "epochs" },
    { "num-epochs", "epochs" },
    { "max-epochs", "epochs" },
    { "train-epochs", "epochs" },
    { "max-steps", "steps" },
    { "train-iters", "steps" },
    { "num-steps", "steps" },
    { "iters", "steps" },
    { "max-length", "seq" },
    { "max-seq-length", "seq" },
    { "max-seq-len", "seq" },
    { "seq-length", "seq" },
    { "seq-len", "seq" },
    { "sequence-length", "seq" },
    { "sequence-len", "seq" },
    { "cutoff-len", "seq" },
    { "model-max-length", "seq" },
    { "block-size", "seq" },
    { "context-length", "seq" },
    { "max-new-tokens", "max-new" },
    { "max-tokens", "max-new" },
    { "num-predict", "max-new" },
    { "output-dir", "out" },
    { "output", "out" },
    { "output-path", "out" },
    { "out-dir", "out" },
    { "save-dir", "out" },
    { "save-path", "out" },
    { "target-modules", "lora-targets" },
    { "lora-target", "lora-targets" },
    { "lora-target-modules", "lora-targets" },
    { "lora-modules", "lora-targets" },
    { "exclude-modules", "lora-exclude" },
    { "layers-to-transform", "lora-layers" },
    { "rank-pattern", "lora-rank-pattern" },
    { "alpha-pattern", "lora-alpha-pattern" },
    { "r", "lora-rank" },
    { "lora-r", "lora-rank" },
    { "rank", "lora-rank" },
    { "lora-dim", "lora-rank" },
    { "alpha", "lora-alpha" },
    { "dropout", "lora-dropout" },
    { "use-rslora", "lora-rslora" },
    { "rslora", "lora-rslora" },
    { "bias", "lora-bias" },
    { "additional-target", "modules-to-save" },
    { "lora-modules-to-save", "modules-to-save" },
    { "finetuning-type", "method" },
    { "model-name-or-path", "model" },
    { "model-name", "model" },
    { "model-path", "model" },
    { "model-dir", "model" },
    { "base-model", "model" },
    { "pretrained-model-name-or-path", "model" },
    { "checkpoint", "model" },
    { "adapter-name-or-path", "adapter" },
    { "adapter-path", "adapter" },
    { "lora-path", "adapter" },
    { "lora", "adapter" },
    { "peft-model", "adapter" },
    { "train-file", "data" },
    { "dataset", "data" },
    { "dataset-name", "data" },
    { "dataset-path", "data" },
    { "data-path", "data" },
    { "train-data", "data" },
    { "eval-file", "eval-data" },
    { "validation-file", "eval-data" },
    { "eval-dataset", "eval-data" },
    { "eval-data", "data" },
    { "eval-steps", "eval-every" },
    { "eval-interval", "eval-every" },
    { "val-size", "eval-split" },
    { "val-set-size", "eval-split" },
    { "validation-split-percentage", "eval-split", ", a share between 0 and 1" },
    { "early-stopping-patience", "patience" },
    { "label-smoothing-factor", "label-smoothing" },
    { "neftune-noise-alpha", "neftune-alpha" },
    { "early-stopping-threshold", "min-delta" },
    { "load-best-model-at-end", "use-best" },
    { "max-duration", "max-time" },
    { "train-runtime", "max-time" },
    { "input-file", "data" },
    { "tokenizer-path", "tokenizer" },
    { "tokenizer-name", "tokenizer" },
    { "lr-scheduler-type", "schedule" },
    { "lr-scheduler", "schedule" },
    { "scheduler", "schedule" },
    { "lr-decay-style", "schedule" },
    { "warmup-steps", "warmup" },
    { "num-warmup-steps", "warmup" },
    { "warmup-iters", "warmup" },
    { "lr-warmup-steps", "warmup" },
    { "max-grad-norm", "clip" },
    { "clip-grad", "clip" },
    { "gradient-clipping", "clip" },
    { "gradient-clip-val", "clip" },
    { "max-norm", "clip" },
    { "adam-beta1", "beta1" },
    { "adam-beta2", "beta2" },
    { "adam-epsilon", "eps" },
    { "adam-eps", "eps" },
    { "epsilon", "eps" },
    { "wd", "weight-decay" },
    { "save-steps", "save-every" },
    { "save-interval", "save-every" },
    { "save-total-limit", "keep" },
    { "resume-from-checkpoint", "resume", ", of the run in --out" },
    { "gradient-checkpointing", "checkpointing" },
    { "checkpoint-activations", "checkpointing" },
    { "recompute", "checkpointing" },
    { "bf16", "dtype", " bfloat16" },
    { "fp16", "dtype", " float16" },
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

const char *sheaf__peer(const sheaf__setting *options, const char *word, const char **more)
{
    const size_t n = strcspn(word, "=");
    *more = "";
    for (const sheaf__setting *o = options; o->name != NULL; o++)
        if (!(o->kind & SHEAF__IS_HIDDEN) && alike(o->name, word, n))
            return o->name;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (alike(names[i].peer, word, n) &&
            (names[i].ours == NULL || has(options, names[i].ours))) {
            *more = names[i].more != NULL ? names[i].more : "";
            return names[i].ours;
        }
    return NULL;
}

bool sheaf__peer_is_out(const char *word)
{
    const size_t n = strcspn(word, "=");
    bool is = alike("out", word, n);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        is = is || (names[i].ours != NULL && strcmp(names[i].ours, "out") == 0 &&
                    alike(names[i].peer, word, n));
    return is;
}
