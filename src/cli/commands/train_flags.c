/* train_flags.c - see train_flags.h. */
#include "train_flags.h"

#include <string.h>

#include "cli/lib/shared.h"
#include "sheaf/cut.h"

static const cli_choice methods[] = {
    { "lora", SHEAF_METHOD_LORA },
    { "head", SHEAF_METHOD_HEAD },
    { "full", SHEAF_METHOD_FULL },
    { 0 },
};
static const cli_choice schedules[] = {
    { "constant", SHEAF_SCHEDULE_CONSTANT },
    { "linear", SHEAF_SCHEDULE_LINEAR },
    { "cosine", SHEAF_SCHEDULE_COSINE },
    { "sat-constant", SHEAF_SCHEDULE_SAT_CONSTANT },
    { "sat-linear", SHEAF_SCHEDULE_SAT_LINEAR },
    { "sat-cosine", SHEAF_SCHEDULE_SAT_COSINE },
    { 0 },
};
static const cli_choice transports[] = {
    { "threads", SHEAF_TRANSPORT_THREADS },
    { "mpi", SHEAF_TRANSPORT_MPI },
    { 0 },
};
static const cli_choice dtypes[] = { { "float32", SHEAF_F32 }, { "bfloat16", SHEAF_BF16 }, { 0 } };
static const cli_choice paddings[] = { { "micro-batch", SHEAF_PAD_MICRO_BATCH },
                                       { "file", SHEAF_PAD_FILE },
                                       { 0 } };
static const cli_choice biases[] = {
    { "none", SHEAF_BIAS_NONE },
    { "all", SHEAF_BIAS_ALL },
    { "lora_only", SHEAF_BIAS_LORA_ONLY },
    { 0 },
};

static int add(cli_option *to, const cli_option *from, int n)
{
    memcpy(to, from, (size_t)n * sizeof *to);
    return n;
}

static int place_flags(cli_option *to, sheaf_train_options *o, bool planning)
{
    const unsigned needed = planning ? 0 : CLI_NEEDED;
    const cli_option flags[] = {
        { "model", CLI_PATH | CLI_CONTENT | needed, &o->model,
          "folder of the base model (Hugging Face form)", "DIR" },
        { "config", CLI_PATH | CLI_CONTENT, &o->config,
          "the model's config.json, where its folder has none", "FILE" },
        { "data", CLI_PATH | CLI_CONTENT | needed, &o->data,
          "examples: JSON Lines, a folder of images, or .safetensors with input_ids and labels" },
        { "tokenizer", CLI_PATH | CLI_CONTENT, &o->tokenizer,
          "of texts, sentencepiece; default: tokenizer.model in the model's folder", "FILE" },
        { "template", CLI_TEXT | CLI_FIXED, &o->prompt_template,
          "how a question about an image is put: base, chat, vqa or chat_old; default: the model's",
          "NAME" },
        { "query", CLI_TEXT | CLI_FIXED, &o->query,
          "asked of every image of a folder (default \"CAPTCHA:\")", "TEXT" },
        { "out", CLI_PATH | CLI_CONTENT | (planning ? 0 : CLI_REQUIRED), &o->out,
          "folder for checkpoints, metrics and the result", "DIR" },
        { "adapter", CLI_PATH | CLI_CONTENT, &o->adapter, "start from this PEFT adapter", "DIR" },
        { "tp", CLI_INT, &o->tp, "ranks that share the model, at most --slices", "T", 1,
          SHEAF_MAX_SLICES },
        { "dp", CLI_INT | CLI_HIDDEN, &o->dp, "groups of ranks that share a step's micro-batches",
          "D", 1, 4096 },
        { "transport", CLI_CHOICE | CLI_HIDDEN, &o->transport, "how ranks talk",
          .choices = transports, .was = "carrier" },
        { "threads", CLI_INT, &o->threads, "compute threads in all; 0 = every core at hand",
          .max = 4096 },
        { "checkpointing", CLI_FLAG, &o->checkpointing,
          "recompute activations instead of keeping them: less memory, more time, the same bytes" },
        { "began-in", CLI_TEXT | CLI_HIDDEN | CLI_CONTENT, &o->folder,
          "folder that relative paths count from" },
        { "isa", CLI_TEXT | CLI_HIDDEN | CLI_UNSAVED, &o->isa,
          "ref, avx2, avx512, avx512bf16 or amx" },
    };
    return add(to, flags, (int)(sizeof flags / sizeof *flags));
}

static int what_flags(cli_option *to, sheaf_train_options *o)
{
    const cli_option flags[] = {
        { "slices", CLI_INT | CLI_FIXED, &o->slices,
          "parts every tensor falls into, a power of two; part of the result", "S", 1,
          SHEAF_MAX_SLICES },
        { "method", CLI_CHOICE | CLI_FIXED, &o->method,
          "what is trained: an adapter, some tensors, or all", .choices = methods },
        { "train", CLI_TEXT | CLI_FIXED, &o->train,
          "patterns of tensors that are trained in full, beside an adapter or (method head) alone: *, ?, {46..54}; default none, or the output head",
          "P,P" },
        { "head-patterns", CLI_TEXT | CLI_FIXED, &o->head_patterns,
          "method head: an older name of --train", "P,P" },
        { "lora-rank", CLI_COUNT | CLI_FIXED, &o->lora_rank, "rank of A and B", "R", 1, 65536 },
        { "lora-alpha", CLI_NUMBER | CLI_FIXED, &o->lora_alpha,
          "the adapter counts alpha/rank times", "A", .above = true },
        { "lora-targets", CLI_TEXT | CLI_FIXED, &o->lora_targets,
          "modules that get an adapter: names, a regular expression for the whole path, all-linear, or sat, sat-vit (default q_proj,v_proj; of CogVLM and CogAgent sat)",
          "A,B", .min = 1 },
        { "lora-exclude", CLI_TEXT | CLI_FIXED, &o->lora_exclude,
          "of these, modules that get none: names or a regular expression", "A,B" },
        { "lora-layers", CLI_TEXT | CLI_FIXED, &o->lora_layers,
          "only these layers, counted from 0 (default all)", "N,N" },
        { "lora-rank-pattern", CLI_TEXT | CLI_FIXED, &o->lora_rank_pattern,
          "other ranks for some modules: PATTERN=RANK,...", "P=R,P=R" },
        { "lora-alpha-pattern", CLI_TEXT | CLI_FIXED, &o->lora_alpha_pattern,
          "other alphas for some modules: PATTERN=ALPHA,...", "P=A,P=A" },
        { "lora-dropout", CLI_NUMBER | CLI_FIXED, &o->lora_dropout,
          "share of the adapter's inputs set to zero", "P", .max = 1, .below = true },
        { "lora-rslora", CLI_FLAG | CLI_FIXED, &o->lora_rslora, "scale by alpha/sqrt(rank)" },
        { "lora-bias", CLI_CHOICE | CLI_FIXED, &o->lora_bias, "biases trained beside the adapter",
          .choices = biases },
        { "modules-to-save", CLI_TEXT | CLI_FIXED, &o->modules_to_save,
          "modules trained in full beside the adapter and saved with it", "A,B" },
    };
    return add(to, flags, (int)(sizeof flags / sizeof *flags));
}

static int how_flags(cli_option *to, sheaf_train_options *o, bool planning)
{
    const cli_option flags[] = {
        { "steps", CLI_COUNT | (planning ? 0 : CLI_NEEDED), &o->steps, "optimizer steps in all",
          .min = planning ? 0 : 1, .max = 1e15 },
        { "micro-batch", CLI_COUNT | CLI_FIXED, &o->micro_batch, "rows of one forward", .min = 1,
          .max = 1e6 },
        { "accumulate", CLI_COUNT | CLI_FIXED, &o->accumulate,
          "micro-batches of one step, over all groups", .min = 1, .max = 1e6 },
        { "seq", CLI_COUNT | CLI_FIXED, &o->seq,
          "longest row in tokens; 0 = as long as data and model allow", .max = 1e8 },
        { "padding", CLI_CHOICE | CLI_FIXED, &o->padding,
          "what rows are padded to: the longest of their micro-batch, or of all data (or --seq)",
          .choices = paddings },
        { "shuffle", CLI_FLAG | CLI_FIXED, &o->shuffle, "use rows in file order" },
        { "lr", CLI_NUMBER | CLI_FIXED, &o->lr, "learning rate after warm-up" },
        { "lr-scale", CLI_TEXT | CLI_FIXED, &o->lr_scale,
          "other learning rates for some tensors, as shares of --lr: PATTERN=X,...; the first that matches counts",
          "P=X,P=X" },
        { "schedule", CLI_CHOICE | CLI_FIXED, &o->schedule,
          "how the learning rate goes on after warm-up; sat-...: by the rules of SwissArmyTransformer",
          .choices = schedules },
        { "warmup", CLI_COUNT | CLI_FIXED, &o->warmup,
          "steps over which the learning rate rises from 0", .max = 1e15 },
        { "warmup-ratio", CLI_NUMBER | CLI_FIXED, &o->warmup_ratio,
          "the same as a share of --steps, instead of --warmup", .max = 1 },
        { "lr-decay-ratio", CLI_NUMBER | CLI_FIXED, &o->decay_ratio,
          "sat-cosine: it ends at this share of --lr", .max = 1, .above = true },
        { "auto-warmup", CLI_COUNT | CLI_FIXED, &o->held_steps,
          "sat-...: the first N steps learn at most --auto-warmup-rate of --lr", .max = 1e15 },
        { "auto-warmup-rate", CLI_NUMBER | CLI_FIXED, &o->held_rate, "sat-...: see --auto-warmup",
          .max = 1 },
        { "weight-decay", CLI_NUMBER | CLI_FIXED, &o->weight_decay,
          "AdamW's; biases and norms have none" },
        { "beta1", CLI_NUMBER | CLI_FIXED, &o->beta1, "AdamW's memory of gradients", .max = 1,
          .below = true },
        { "beta2", CLI_NUMBER | CLI_FIXED, &o->beta2, "AdamW's memory of squared gradients",
          .max = 1, .below = true },
        { "eps", CLI_NUMBER | CLI_FIXED, &o->eps, "AdamW's smallest divisor", .above = true },
        { "clip", CLI_NUMBER | CLI_FIXED, &o->clip, "largest gradient norm; 0 = no clipping" },
        { "dtype", CLI_CHOICE | CLI_FIXED, &o->dtype,
          "type of activations and products; trained weights are float32 masters",
          .choices = dtypes },
        { "bf16-sums", CLI_CHOICE | CLI_FIXED, &o->sums, CLI_SUMS_HELP, .choices = cli_sums },
        { "seed", CLI_SEED | CLI_FIXED, &o->seed, "start of all randomness" },
        { "save-every", CLI_COUNT, &o->save_every, "steps between checkpoints; 0 = only at the end",
          .max = 1e15 },
        { "export-every", CLI_COUNT, &o->export_every,
          "steps between adapters, or models, in OUT/exports; 0 = only the result", .max = 1e15 },
        { "keep", CLI_COUNT, &o->keep, "newest checkpoints kept; 0 = all", .max = 1e9 },
    };
    return add(to, flags, (int)(sizeof flags / sizeof *flags));
}

int train_flags(cli_option *table, sheaf_train_options *o, bool planning)
{
    int n = place_flags(table, o, planning);
    n += what_flags(table + n, o);
    n += how_flags(table + n, o, planning);
    const cli_option own[] = {
        { "resume", CLI_FLAG | CLI_UNSAVED, &o->resume,
          "go on from the newest checkpoint in --out, at any --tp; other settings stay as they were" },
        { "recipe", CLI_PATH | CLI_UNSAVED, &o->recipe,
          "read settings from a file, or from a recipe that comes with sheaf (cogvlm-lora, ...)",
          "FILE" },
        { "force", CLI_FLAG | CLI_UNSAVED | (planning ? CLI_HIDDEN : 0), &o->force,
          "begin even where the planner says that memory does not suffice" },
        { 0 },
    };
    n += add(table + n, own, 4);
    return n - 1;
}

void train_flags_resumed(const cli *cli, const cli_option *table, sheaf_train_options *o)
{
    const ptrdiff_t i = cli_find(table, "padding") - table;
    if (!cli->given[i] && !cli->from_file[i])
        o->padding = SHEAF_PAD_UNNAMED;
}

static sheaf_status *only_with_lora(const cli *cli, const cli_option *table)
{
    for (const cli_option *o = table; o->name != NULL; o++) {
        const bool lora = strncmp(o->name, "lora-", 5) == 0 ||
                          strcmp(o->name, "modules-to-save") == 0 ||
                          strcmp(o->name, "adapter") == 0;
        if (lora && cli->given[o - table])
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--%s", o->name),
                                  "--method lora beside it");
    }
    return NULL;
}

/* A run may stop while it still warms up; all else about the schedule must be sound. */
static sheaf_status *check_schedule(const cli *cli, const cli_option *table,
                                    const sheaf_train_options *o)
{
    static const char *const sat_only[] = { "lr-decay-ratio", "auto-warmup", "auto-warmup-rate" };
    sheaf_schedule schedule = sheaf_train_options_schedule(o);
    for (size_t i = 0;
         i < sizeof sat_only / sizeof *sat_only && !sheaf_schedule_is_sat(o->schedule); i++)
        if (cli_was_given(cli, table, sat_only[i]))
            return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--%s", sat_only[i]),
                                  "--schedule sat-cosine, or another of SAT's, beside it");
    if (schedule.steps < schedule.warmup)
        schedule.steps = schedule.warmup;
    return sheaf_schedule_check(&schedule);
}

sheaf_status *train_flags_check(const cli *cli, const cli_option *table,
                                const sheaf_train_options *o)
{
    sheaf_status *st = cli_check_required(cli, table, true);
    if (st != NULL)
        return st;
    if ((o->slices & (o->slices - 1)) != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--slices"),
                                          "a power of two, at most %d", SHEAF_MAX_SLICES),
                           "%d", o->slices);
    if (o->tp > o->slices) {
        st = sheaf_fail(SHEAF_E_ARG, "--tp");
        sheaf_expected(st, "at most %d, the number of slices", o->slices);
        sheaf_found(st, "%d", o->tp);
        return sheaf_try_this(st, "fewer ranks; a new run may have more --slices, up to %d",
                              SHEAF_MAX_SLICES);
    }
    const int accumulators = o->method == SHEAF_METHOD_FULL ? 1 : 4;
    if (accumulators % o->dp != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--dp"),
                                          "a divisor of %d, the accumulators of method %s",
                                          accumulators, methods[o->method].name),
                           "%d", o->dp);
    if (o->dp > 1)
        return sheaf_try_this(sheaf_fail(SHEAF_E_UNSUPPORTED, "--dp %d", o->dp),
                              "--dp 1; --tp up to %d", o->slices);
    if (o->transport != SHEAF_TRANSPORT_THREADS)
        return sheaf_try_this(sheaf_fail(SHEAF_E_UNSUPPORTED, "--transport mpi"),
                              "--transport threads");
    if (o->method != SHEAF_METHOD_HEAD && cli_was_given(cli, table, "head-patterns"))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--head-patterns"),
                              "--method head beside it");
    if (o->method == SHEAF_METHOD_FULL && cli_was_given(cli, table, "train"))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--train"),
                              "--method lora or head beside it");
    st = check_schedule(cli, table, o);
    return st != NULL || o->method == SHEAF_METHOD_LORA ? st : only_with_lora(cli, table);
}
