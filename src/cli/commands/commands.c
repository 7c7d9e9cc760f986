/* commands.c - the list of subcommands. */
#include "commands.h"

const cli_command cli_commands[] = {
    { "plan", "what a training run would need, before it is started", cmd_plan_usage, cmd_plan, 0,
      0, true },
    { "train", "fine-tune a model on any number of ranks", cmd_train_usage, cmd_train, 0, 0, true,
      true },
    { "eval", "loss, accuracy and logits on data", cmd_eval_usage, cmd_eval, 0, 0, true, true },
    { "generate", "tokens that continue prompts", cmd_generate_usage, cmd_generate, 0, 0, true,
      true },
    { "chat", "a conversation, about a picture or without", cmd_chat_usage, cmd_chat, 0, 0, true,
      true },
    { "tokenize", "texts to token ids, and back", cmd_tokenize_usage, cmd_tokenize, 1, 1, false },
    { "render", "conversations as the text that a model reads, with what it must learn",
      cmd_render_usage, cmd_render, 1, 1, false },
    { "init", "a new model with seeded random weights", cmd_init_usage, cmd_init, 2, 2, true },
    { "merge", "base model and LoRA adapters into one model", cmd_merge_usage, cmd_merge, 2, -1,
      true },
    { "convert", "from any checkpoint to any other: join, divide, unpad, another form or dtype",
      cmd_convert_usage, cmd_convert, 2, -1, false },
    { "verify", "is a checkpoint complete, consistent, undamaged?", cmd_verify_usage, cmd_verify, 1,
      -1, false },
    { "info", "what a folder or file holds", cmd_info_usage, cmd_info, 0, -1, false },
    { "diff", "compare two models, adapters or checkpoints", cmd_diff_usage, cmd_diff, 2, 2,
      false },
    { 0 },
};
