/* convert.c - `sheaf convert`: from any checkpoint to any other. */
#include "base/base.h"
#include "base/clock.h"
#include "base/print.h"
#include "commands.h"
#include "base/number.h"
#include "driver/signals.h"
#include "sheaf/checkpoint.h"

/* Types of weights; from SHEAF_DTYPE_COUNT on, ggml's, as SHEAF_QUANTIZE_... */
static const cli_choice types[] = {
    { "float32", SHEAF_F32 },
    { "bfloat16", SHEAF_BF16 },
    { "float16", SHEAF_F16 },
    { "q8_0", SHEAF_DTYPE_COUNT + SHEAF_QUANTIZE_Q8_0 },
    { "q6_k", SHEAF_DTYPE_COUNT + SHEAF_QUANTIZE_Q6_K },
    { "q5_k_m", SHEAF_DTYPE_COUNT + SHEAF_QUANTIZE_Q5_K_M },
    { "q4_k_m", SHEAF_DTYPE_COUNT + SHEAF_QUANTIZE_Q4_K_M },
    { 0 },
};

static const cli_choice packings[] = {
    { "none", SHEAF_QUANTIZE_NONE },
    { "nf4", SHEAF_QUANTIZE_NF4 },
    { "nf4-double", SHEAF_QUANTIZE_NF4_DOUBLE },
    { "int8", SHEAF_QUANTIZE_INT8 },
    { "gptq", SHEAF_QUANTIZE_GPTQ_4 },
    { "gptq-8", SHEAF_QUANTIZE_GPTQ_8 },
    { "awq", SHEAF_QUANTIZE_AWQ_4 },
    { 0 },
};

/* *type goes where it belongs. */
static sheaf_status *take_type(sheaf_weights_convert_options *how, int type)
{
    if (type < SHEAF_DTYPE_COUNT) {
        how->dtype = (sheaf_dtype)type;
        return NULL;
    }
    if (how->quantize != SHEAF_QUANTIZE_NONE)
        return sheaf_expected(
            sheaf_fail(SHEAF_E_ARG, "--quantize"),
            "none with --dtype q8_0, q6_k, q5_k_m or q4_k_m, which quantise themselves");
    how->quantize = (sheaf_quantize)(type - SHEAF_DTYPE_COUNT);
    return NULL;
}

const char cmd_convert_usage[] =
    "usage: sheaf convert SRC... DST --to DIALECT [FLAG...]\n"
    "Joins, splits, unpads or changes the form of a checkpoint of any program that docs/dialects.md\n"
    "lists. Several SRCs are parts of one checkpoint. DST must not exist, or be an empty folder; it\n"
    "appears only once it is complete. A checkpoint with parts missing is refused, and they are named.\n"
    "SRC may be a run of sheaf train or one of its checkpoints: --to peft writes its adapter, --to hf,\n"
    "sat or gguf the model with what was trained. --to gguf, gguf-lora and gguf-mmproj (the tower of\n"
    "MiniCPM-V) write the file DST for llama.cpp.\n";

static void print_report(cli *cli, const sheaf_weights_convert_options *how,
                         const sheaf_weights_convert_report *r, double seconds)
{
    if (cli->json) {
        sheaf_json_writer j = { 0 };
        sheaf__json_begin(&j);
        sheaf__json_put(
            &j, "out:s from:s to:s tensors:d moments:d merged:d adapted:d quantized:d bytes:d",
            how->dst, r->from, how->to, r->tensors, r->moments, r->merged, r->adapted, r->quantised,
            r->bytes);
        if (r->step >= 0)
            sheaf__json_put_int(&j, "step", r->step);
        else
            sheaf__json_put_text(&j, "step", NULL);
        sheaf__json_put_real(&j, "seconds", seconds);
        cli_json_end(cli->out, &j);
        return;
    }
    char bytes[SHEAF__NUMBER];
    sheaf__print(cli->out, "%s: %s to %s, %" PRId64 " tensors, %s", how->dst, r->from, how->to,
                 r->tensors, sheaf__number_bytes(bytes, (uint64_t)r->bytes));
    if (r->moments > 0)
        sheaf__print(cli->out, ", %" PRId64 " of them moments", r->moments);
    if (r->quantised > 0)
        sheaf__print(cli->out, ", %" PRId64 " weights quantised", r->quantised);
    if (r->adapted > 0)
        sheaf__print(cli->out, ", %" PRId64 " layers with LoRA", r->adapted);
    if (r->step >= 0)
        sheaf__print(cli->out, ", step %" PRId64, r->step);
    sheaf__print(cli->out, " (%.1f s, %.2f GB/s)\n", seconds,
                 seconds > 0 ? (double)r->bytes / seconds / 1e9 : 0);
}

int cmd_convert(cli *cli, int argc, char **argv)
{
    sheaf_weights_convert_options how = { .size = sizeof how };
    sheaf_weights_convert_report report = { .size = sizeof report };
    int64_t shard_mb = 0;
    int type = 0;
    const cli_option options[] = {
        { "to", CLI_TEXT | CLI_REQUIRED, &how.to,
          "form to write: hf, sat, peft, sheaf, gguf, gguf-lora or gguf-mmproj", "DIALECT" },
        { "adapter", CLI_PATH, &how.adapter, "sat: PEFT adapter of SRC, to write as SAT's LoRA",
          "DIR" },
        { "lora-alpha", CLI_NUMBER, &how.lora_alpha,
          "peft: lora_alpha of LoRA inside SRC that has no adapter_config.json beside it",
          .min = 0 },
        { "base", CLI_PATH, &how.base,
          "the model that SRC, a run, its checkpoint or (gguf-lora) an adapter, was trained on (default as its settings name it)",
          "DIR" },
        { "from", CLI_TEXT, &how.from, "form of SRC, if it is not recognised", "DIALECT" },
        { "tp", CLI_INT, &how.tp, "sat: parts to write (default 1)", .min = 1, .max = 1024 },
        { "slices", CLI_INT, &how.slices, "sheaf: slices to write (default 8)", .min = 1,
          .max = 64 },
        { "dtype", CLI_CHOICE, &type,
          "type of the written weights (default as in SRC); q8_0, q6_k, q5_k_m and q4_k_m: gguf",
          .choices = types },
        { "quantize", CLI_CHOICE, &how.quantize,
          "hf: write linear layers in 4 bits (nf4-double: with scales in 8) or 8, as bitsandbytes, GPTQ (gptq-8: in 8) or AWQ stores them, each number the nearest code",
          .choices = packings,
          .advice = "blocks of llama.cpp are a type: --to gguf --dtype q8_0, or q4_k_m" },
        { "group-size", CLI_COUNT, &how.group_size,
          "gptq, gptq-8, awq: columns that share a scale, 32, 64 or 128 (default 128)", .min = 0 },
        { "dequantize", CLI_FLAG, &how.dequantize,
          "write weights of SRC that are in 4 or 8 bits as plain ones (default: --to hf copies them as they are)" },
        { "modelfile", CLI_FLAG, &how.modelfile,
          "gguf: write Ollama's Modelfile into the folder of DST too" },
        { "step", CLI_COUNT, &how.step, "step number to write to DST; 0 = as in SRC", .min = 0 },
        { "optimizer", CLI_FLAG, &how.optimizer, "hf, sheaf: write the optimizer's moments too" },
        { "config", CLI_PATH, &how.config, "the model's config.json, if SRC has none", "FILE" },
        { "model-class", CLI_TEXT, &how.model_class,
          "sat: CogVLMModel or CogAgentModel, if the config names the wrong one", "CLASS" },
        { "drop-unread", CLI_FLAG, &how.drop_unread,
          "leave out tensors of kinds that are not read (quantized, sparse, ...)" },
        { "shard-mb", CLI_COUNT, &shard_mb,
          "hf: largest size of a shard, in megabytes (default 50000)", .min = 1 },
        { "threads", CLI_INT, &how.threads, "threads; 0 = all cores", .max = 4096 },
        { 0 },
    };
    cli_paths paths;
    sheaf_status *st = cli_parse(cli, options, &paths, argc, argv);
    TRY(st, take_type(&how, type));
    how.events = &cli->events;
    TRY(st, driver_signals_control(&how.control));
    const double begin = sheaf__seconds();
    if (st == NULL) {
        how.src = paths.word[0];
        how.dst = paths.last;
        paths.word[paths.count - 1] = NULL; /* ends the list of `also` */
        how.also = paths.count > 2 ? (const char *const *)paths.word + 1 : NULL;
        how.shard_bytes = shard_mb * 1000000;
        st = driver_signals_explain(sheaf_weights_convert(&report, &how));
    }
    driver_progress_end(cli);
    if (st == NULL)
        print_report(cli, &how, &report, sheaf__seconds() - begin);
    return driver_report(cli, st);
}
