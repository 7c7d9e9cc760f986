/* train.c - `sheaf train`: fine-tune a model. */
#include "base/status.h"
#include "commands.h"

const char cmd_train_usage[] =
    "usage: sheaf train MODEL DATA -o OUT --steps N | --epochs X [FLAG...]\n"
    "       sheaf train --resume -o OUT [--tp T]\n"
    "Fine-tunes a model with LoRA, in parts or in full, on any number of ranks; the\n"
    "result is the same bytes whatever their number. OUT then holds metrics.jsonl,\n"
    "checkpoints, and adapter/ (PEFT format) or model/ (Hugging Face format).\n";

int cmd_train(cli *cli, int argc, char **argv)
{
    sheaf__run_settings run = { 0 };
    sheaf_status *st = sheaf__run_settings_open(&run, &cli->settings, false);
    TRY(st, cli_parse(cli, run.table, NULL, argc, argv));
    const int code = driver_train(cli, &run, st);
    sheaf__run_settings_close(&run);
    return code;
}
