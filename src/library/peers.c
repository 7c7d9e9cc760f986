/* peers.c - what other programs call a flag: transformers' TrainingArguments, PEFT's LoraConfig,
 * TRL, DeepSpeed, Megatron, llama.cpp and vLLM; and LLaMA-Factory's and Axolotl's as foreign.c has
 * them, with their files. */
#include <ctype.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "data/complaints.h"
#include "library/settings.h"
#include "sheaf/foreign.h"

#define LEAVE "leave it out: "
static const char on_cpu[] =
    LEAVE "`device cuda` computes on NVIDIA GPUs, cuda:0,2 on those, else processors do. `tp T` "
          "divides the model over ranks, `threads N` says how many cores they use";
static const char stored[] =
    LEAVE "frozen weights stay in the dtype they are stored in; sheaf convert "
          "--dtype bfloat16 halves those in float32";
static const char divides[] =
    LEAVE "`tp T` divides the model over ranks, `dp D` the micro-batches of a step";
static const char hosts[] = LEAVE "`transport mpi` with `hosts a:2,b:2` runs on several hosts";
static const char progress[] =
    LEAVE "each step is in OUT/metrics.jsonl; train has `tensorboard DIR` and, for Prometheus, "
          "`metrics-port N`; sheaf report OUT --watch shows the run in a browser";
static const char adamw[] =
    LEAVE "the optimizer is AdamW, with `beta1`, `beta2`, `eps` and `weight-decay`";
static const char lora[] = LEAVE "`method lora` is the default";
static const char ignored[] = LEAVE "it changes no result here";
static const char measures[] =
    LEAVE "`time` measures here each time, some seconds of a model of three layers";
static const char one_process[] = LEAVE "one process does it, on `threads N`";
static const char network[] =
    LEAVE "plan --json has the bytes and calls of a step: divide by the network's rate";

/* Names of peers, with blanks around each. `ours` NULL: sheaf has no such flag, and `more` says
 * what to do instead. Of several rows with one name the first whose flag the command has counts. */
static const struct {
    const char *ours, *peers, *more;
} names[] = {
    { "micro-batch",
      " batch-size per-device-eval-batch-size per-device-batch-size train-batch-size "
      "eval-batch-size train-micro-batch-size-per-gpu " },
    { "batch", " batch-size " },
    { "accumulate", " gradient-accumulation grad-accum accumulation-steps " },
    { "objective", " rlhf-type ", ", whose rm is reward" },
    { "generations", " num-generations " },
    { "reward", " reward-funcs reward-model reward-model-path ",
      ", the folder of a reward model, or a command that reads completions as JSON Lines and writes "
      "a number for each; `objective reward` trains a reward model" },
    { "reference", " ref-adapters ref-adapter-name " },
    { NULL, " steps-per-generation generation-batch-size ",
      LEAVE "a batch of completions is `micro-batch` * `accumulate`" },
    { NULL, " log-completions ", LEAVE "OUT/rollouts.jsonl has them" },
    { "beta", " dpo-beta rl-beta pref-beta orpo-alpha " },
    { "loss-type", " pref-loss " },
    { "desirable-weight", " kto-chosen-weight kto-desirable-weight " },
    { "undesirable-weight", " kto-rejected-weight kto-undesirable-weight " },
    { "epochs", " max-epochs train-epochs " },
    { "steps", " train-iters num-steps iters " },
    { "seq", " max-length max-seq-length max-seq-len seq-length seq-len sequence-length "
             "model-max-length block-size context-length max-model-len " },
    { "max-new", " max-new-tokens max-completion-length max-tokens num-predict n-predict n " },
    { "out", " output output-path out-dir save-dir save-path o " },
    { "lora-targets", " target-modules lora-modules " },
    { "lora-exclude", " exclude-modules " },
    { "lora-layers", " layers-to-transform " },
    { "lora-rank-pattern", " rank-pattern " },
    { "lora-alpha-pattern", " alpha-pattern " },
    { "lora-rank", " r rank lora-dim " },
    { "lora-alpha", " alpha " },
    { "lora-dropout", " dropout " },
    { "lora-rslora", " rslora " },
    { "lora-dora", " dora " },
    { "lora-plus", " loraplus-ratio loraplus-lr-ratio lora-plus-ratio lorap-lr-ratio " },
    { "init", " init-lora-weights peft-init-lora-weights " },
    { "lora-bias", " bias " },
    { "model", " model-name model-path model-dir pretrained-model-name-or-path checkpoint m " },
    { "adapter", " adapter-path lora-path lora peft-model " },
    { "data", " train-file dataset-name dataset-path data-path train-data eval-data input-file " },
    { "eval-data", " eval-file validation-file " },
    { "eval-every", " eval-interval " },
    { "eval-split", " validation-split-percentage ", ", a share between 0 and 1" },
    { "min-delta", " early-stopping-threshold " },
    { "max-time", " max-duration train-runtime " },
    { "tokenizer", " tokenizer-path tokenizer-name " },
    { "schedule", " scheduler lr-decay-style " },
    { "min-lr-ratio", " min-lr-rate cosine-min-lr-ratio min-lr ", ", a share of `lr`" },
    { "decay-steps", " num-decay-steps lr-wsd-decay-iters " },
    { "warmup", " num-warmup-steps warmup-iters lr-warmup-steps " },
    { "clip", " clip-grad gradient-clipping gradient-clip-val max-norm " },
    { "eps", " adam-eps epsilon " },
    { "weight-decay", " wd " },
    { "save-every", " save-interval " },
    { "quiet", " silent disable-tqdm " },
    { "tensorboard", " logging-dir tensorboard-dir " },
    { "resume", " resume-from-checkpoint ", ", of the run in `out`" },
    { "checkpointing", " checkpoint-activations recompute " },
    { "dtype", " fp32 ", " float32" },
    { "dtype", " torch-dtype precision outtype " },
    { "tp", " tensor-parallel-size tensor-model-parallel-size model-parallel-size tp-size " },
    { "threads", " num-threads nthreads jobs t " },
    { "seed", " random-seed s " },
    { "temperature", " temp " },
    { "recipe", " config-file " },
    { "shard-mb", " max-shard-size " },
    { NULL, " save-profile profile ", measures },
    { NULL, " cluster link ", network },
    { NULL, " transport mpi hosts hostfile heartbeat hang-after ", one_process },
    { NULL,
      " nnodes num-nodes num-machines node-rank machine-rank master-addr "
      "main-process-ip master-port ",
      hosts },
    { NULL, " use-peft use-lora peft-type task-type ", lora },
    { "prompt", " p " },
    { NULL,
      " num-workers use-flash-attention-2 use-liger-kernel precompute-ref-log-probs use-vllm ",
      ignored },
    { "host", " listen bind address " },
    { "max-length", " ctx-size n-ctx c max-model-len context-length " },
    { "seq", " ctx-size n-ctx c " },
    { "loss-on", " completion-only-loss assistant-only-loss ", " answers, which is the default" },
    { NULL, " merge-and-unload ", "sheaf merge BASE ADAPTER DST, when the run is done" },
    { NULL,
      " offload-optimizer deepspeed deepspeed-config fsdp fsdp-config zero-stage "
      "pipeline-model-parallel-size ",
      divides },
    { NULL,
      " gpu-memory-utilization gpus gpu num-gpus n-gpus ngpus gpu-ids n-gpu-layers ngl "
      "devices device-map cuda use-cpu no-cuda accelerator nproc-per-node "
      "num-processes ",
      on_cpu },
    { "quantize", " load-in-4bit qlora bnb-4bit-quant-type ", " nf4" },
    { "quantize", " bnb-4bit-use-double-quant double-quantization ", " nf4-double" },
    { "quantize", " load-in-8bit ", " int8" },
    { "quantize", " quantization-bit quantization bits " },
    { "dtype", " bnb-4bit-compute-dtype " },
    { NULL,
      " load-in-4bit load-in-8bit quantization-bit quantization quantize bits qlora "
      "bnb-4bit-compute-dtype bnb-4bit-quant-type ",
      stored },
    { NULL,
      " report-to logging-steps log-interval run-name use-wandb wandb wandb-project swanlab mlflow "
      "logging-dir tensorboard-dir ",
      progress },
    { "optimizer", " optim optimizer-type " },
    { NULL, " optim optimizer optimizer-type ", adamw },
};

/* A name between blanks, in small letters and with dashes. */
typedef struct spelling {
    char text[64];
} spelling;

static spelling spell(const char *word)
{
    spelling s;
    snprintf(s.text, sizeof s.text, " %.*s ", (int)strcspn(word, "="), word);
    for (char *c = s.text; *c != '\0'; c++)
        *c = *c == '_' ? '-' : (char)tolower((unsigned char)*c);
    return s;
}

static bool is(const char *name, const spelling *word)
{
    const size_t n = strlen(name);
    return strncmp(name, word->text + 1, n) == 0 && strcmp(word->text + 1 + n, " ") == 0;
}

static bool has(const sheaf__setting *options, const char *name)
{
    const sheaf__setting *o = sheaf__setting_find(options, name);
    return o != NULL && !(o->kind & SHEAF__IS_HIDDEN);
}

/* The same setting in a file of LLaMA-Factory or Axolotl; NULL: none. */
static const sheaf_foreign_rule *rule_of(const spelling *word)
{
    char key[sizeof word->text];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(word->text + 1, " "), word->text + 1);
    for (char *c = key; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
    return sheaf_foreign_rule_of(NULL, key);
}

/* The rule's answer for values that it does not name; "". */
static const char *any_of(const sheaf_foreign_rule *rule)
{
    const char *any = rule->words == NULL ? NULL : strstr(rule->words, "*=");
    return any == NULL ? "" : any + strlen("*=");
}

static void advise_setting(sheaf_status *st, const sheaf_foreign_rule *rule, const char *dashes)
{
    const char *any = any_of(rule);
    const bool no = strcmp(any, "false") == 0, value = !no && strcmp(any, "true") != 0;
    sheaf_try_this(st, "sheaf calls it %s%s%s%s%s", dashes, no ? "no-" : "", rule->setting,
                   value && any[0] != '\0' ? " " : "", value ? any : "");
}

static void advise_without(sheaf_status *st, const sheaf_foreign_rule *rule)
{
    const char *any = any_of(rule);
    if (rule->kind == SHEAF_FOREIGN_ONLY && rule->note == NULL)
        sheaf_try_this(st, LEAVE "here it is always %.*s", (int)strcspn(rule->words, "|="),
                       rule->words);
    else
        sheaf_try_this(st, LEAVE "%s",
                       rule->note != NULL ? rule->note
                       : any[0] != '!'    ? "it changes no result here"
                       : any[1] != '\0'   ? any + 1
                                          : "sheaf has no such thing");
}

bool sheaf__peer_advise(sheaf_status *st, const sheaf__setting *options, const char *word,
                        const char *dashes)
{
    const spelling s = spell(word);
    for (const sheaf__setting *o = options; o->name != NULL; o++)
        if (!(o->kind & SHEAF__IS_HIDDEN) && is(o->name, &s)) {
            sheaf_try_this(st, "sheaf calls it %s%s", dashes, o->name);
            return true;
        }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *ours = names[i].ours, *more = names[i].more;
        if (strstr(names[i].peers, s.text) == NULL || (ours != NULL && !has(options, ours)))
            continue;
        if (ours == NULL)
            sheaf_try_this(st, "%s", more);
        else
            sheaf_try_this(st, "sheaf calls it %s%s%s", dashes, ours, more != NULL ? more : "");
        return true;
    }
    const sheaf_foreign_rule *rule = rule_of(&s);
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
    const spelling s = spell(word);
    const sheaf_foreign_rule *rule = rule_of(&s);
    bool out = is("out", &s) ||
               (rule != NULL && rule->setting != NULL && strcmp(rule->setting, "out") == 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        out = out || (names[i].ours != NULL && strcmp(names[i].ours, "out") == 0 &&
                      strstr(names[i].peers, s.text) != NULL);
    return out;
}

/* By its keys as they stand: lines as far in as the first one, up to one that has none. */
static const sheaf_foreign_program *program_of_yaml(const char *text)
{
    const sheaf_foreign_program *found = NULL;
    size_t depth = SIZE_MAX;
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) /* by an editor, as UTF-8 */
        text += 3;
    for (size_t n; found == NULL && *text != '\0'; text += n + (text[n] != '\0')) {
        n = strcspn(text, "\n");
        const size_t blanks = strspn(text, " ");
        const char *name = text + blanks + strspn(text + blanks, "'\"");
        const int length = (int)strcspn(name, "'\" :\r\n");
        const char *colon = name + length + strspn(name + length, "'\" ");
        if (strchr("#%]}\r\n", text[blanks]) != NULL || strncmp(text, "---", 3) == 0)
            continue;
        depth = depth == SIZE_MAX ? blanks : depth;
        if (blanks != depth || *name == '-')
            continue;
        char key[64];
        if (*colon != ':' || strchr(" \t\r\n", colon[1]) == NULL)
            return NULL;
        snprintf(key, sizeof key, "%.*s", length, name);
        found = sheaf_foreign_program_of(key);
    }
    return found;
}

static const sheaf_foreign_program *program_of_json(const char *text, size_t size)
{
    const sheaf_foreign_program *found = NULL;
    json_t *root = NULL, *value;
    const char *key;
    sheaf_status_free(sheaf__json_parse(&root, text, size));
    json_object_foreach(root, key, value)
    {
        if (found == NULL)
            found = sheaf_foreign_program_of(key);
    }
    json_decref(root);
    return found;
}

sheaf_status *sheaf__peer_advise_file(sheaf_status *st, const char *path)
{
    enum { MOST_BYTES = 1 << 20 }; /* a file of settings has less */
    char *text = NULL;
    size_t size = 0;
    if (sheaf__path_kind(path) != SHEAF_PATH_FILE)
        return st;
    sheaf_status_free(sheaf__file_read_all(&text, &size, path, MOST_BYTES));
    const sheaf_foreign_program *program = text == NULL ? NULL
                                           : text[strspn(text, " \t\r\n")] == '{'
                                               ? program_of_json(text, size)
                                               : program_of_yaml(text);
    if (program != NULL) {
        sheaf_found(st, "a file of %s", program->name);
        sheaf__try_path(st, "python3 -m sheaf translate ", path,
                        " >my.recipe, then sheaf train --recipe my.recipe");
    }
    free(text);
    return st;
}
