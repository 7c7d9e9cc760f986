/* styles.c - the published chat templates as rows (style.h).
 *
 * The program that a row was compared with lies in tests/data/templates under the row's name; the
 * last three have none: LLaMA-Factory writes Qwen3's conversations as qwen3-thoughts, MiniCPM-V 2.0
 * its own as minicpm by code of their own, plain is ours. A row gives that program's bytes, also
 * where they look odd: Mistral's third template drops the system message of a conversation that
 * ends with an answer, Llama 2's drops one that comes late. */
#include "inputs/chat/style.h"

#define BOS SHEAF__BOS
#define EOS SHEAF__EOS
#define DATE SHEAF__DATE

#define NAME(TEXT) .name = TEXT, .stored = TEXT "-stored"
#define CHATML_SYSTEM                                                                              \
    .system_open = "<|im_start|>system\n", .system_close = "<|im_end|>\n",                         \
    .later_open = "<|im_start|>system\n", .later_close = "<|im_end|>\n"
#define CHATML_TURNS                                                                               \
    .user_open = "<|im_start|>user\n", .user_close = "<|im_end|>\n",                               \
    .answer_open = "<|im_start|>assistant\n", .answer_end = "<|im_end|>", .answer_close = "\n",    \
    .prompt = "<|im_start|>assistant\n"
#define LLAMA3_TURN(ROLE) "<|start_header_id|>" ROLE "<|end_header_id|>\n\n"
#define LLAMA3_TURNS                                                                               \
    .later_open = LLAMA3_TURN("system"), .later_close = "<|eot_id|>",                              \
    .user_open = LLAMA3_TURN("user"), .user_close = "<|eot_id|>",                                  \
    .answer_open = LLAMA3_TURN("assistant"), .answer_end = "<|eot_id|>",                           \
    .prompt = LLAMA3_TURN("assistant")
#define LLAMA31_SYSTEM                                                                             \
    .system_open = LLAMA3_TURN("system") "Cutting Knowledge Date: December 2023\n"                 \
                                         "Today Date: " DATE "\n\n",                               \
    .system_close = "<|eot_id|>", .system = "", .date_format = "%d %b %Y"
#define SMOLLM3_SYSTEM                                                                             \
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face. Your role as an "       \
    "assistant involves thoroughly exploring questions through a systematic thinking process "     \
    "before providing the final precise and accurate solutions. This requires engaging in a "      \
    "comprehensive cycle of analysis, summarizing, exploration, reassessment, reflection, "        \
    "backtracking, and iteration to develop well-considered thinking process. Please structure "   \
    "your response into two main sections: Thought and Solution using the specified format: "      \
    "<think> Thought section </think> Solution section. In the Thought section, detail your "      \
    "reasoning process in steps. Each step should include detailed considerations such as "        \
    "analysing questions, summarizing relevant findings, brainstorming new ideas, verifying the "  \
    "accuracy of the current steps, refining any errors, and revisiting previous steps. In the "   \
    "Solution section, based on various attempts, explorations, and reflections from the Thought " \
    "section, systematically present the final solution that you deem correct. The Solution "      \
    "section should be logical, accurate, and concise and detail necessary steps needed to reach " \
    "the conclusion."
#define TRIM_ALL (SHEAF__TRIM_SYSTEM | SHEAF__TRIM_USER | SHEAF__TRIM_ANSWER | SHEAF__TRIM_LATER)
#define VICUNA_SYSTEM                                                                              \
    "A chat between a curious user and an artificial intelligence assistant. The assistant gives " \
    "helpful, detailed, and polite answers to the user's questions."

const sheaf__style sheaf__styles[] = {
    { NAME("llama2"), .place = SHEAF__SYSTEM_FIRST_USER, .system_open = "<<SYS>>\n",
      .system_close = "\n<</SYS>>\n\n", .later = SHEAF__LATER_LEFT_OUT, .user_open = BOS "[INST] ",
      .user_close = " [/INST]", .answer_lead = " ", .answer_end = " " EOS,
      .flags = SHEAF__ALTERNATE | SHEAF__TRIM_TOGETHER | SHEAF__TRIM_ANSWER | SHEAF__NEEDS_BOS },
    { NAME("llama3"), .head = BOS, .system_open = LLAMA3_TURN("system"),
      .system_close = "<|eot_id|>", LLAMA3_TURNS, .flags = TRIM_ALL | SHEAF__NEEDS_BOS },
    { NAME("llama3.1"), .head = BOS, LLAMA31_SYSTEM, LLAMA3_TURNS, .date = "26 Jul 2024",
      .flags = TRIM_ALL | SHEAF__DATE_TEXT },
    { NAME("llama3.2"), .head = BOS, LLAMA31_SYSTEM, LLAMA3_TURNS,
      .flags = TRIM_ALL | SHEAF__DATE_TEXT },
    { NAME("mistral-v1"), .head = BOS, .place = SHEAF__SYSTEM_FIRST_USER, .system_close = "\n\n",
      .later = SHEAF__LATER_REFUSED, .user_open = " [INST] ", .user_close = " [/INST]",
      .answer_lead = " ", .answer_end = EOS, .flags = SHEAF__ALTERNATE },
    { NAME("mistral-v3"), .head = BOS, .place = SHEAF__SYSTEM_LAST_USER, .system_close = "\n\n",
      .later = SHEAF__LATER_REFUSED, .user_open = "[INST] ", .user_close = "[/INST]",
      .answer_lead = " ", .answer_end = EOS, .flags = SHEAF__ALTERNATE | SHEAF__TRIM_ANSWER },
    { NAME("mistral-nemo"), .head = BOS, .place = SHEAF__SYSTEM_LAST_USER, .system_close = "\n\n",
      .later = SHEAF__LATER_REFUSED, .user_open = "[INST]", .user_close = "[/INST]",
      .answer_end = EOS, .flags = SHEAF__ALTERNATE },
    { NAME("mistral-2023"), .head = BOS, .place = SHEAF__SYSTEM_REFUSED,
      .later = SHEAF__LATER_REFUSED, .user_open = "[INST] ", .user_close = " [/INST]",
      .answer_end = EOS, .flags = SHEAF__ALTERNATE },
    { NAME("mistral-2023-spaced"), .head = BOS, .place = SHEAF__SYSTEM_REFUSED,
      .later = SHEAF__LATER_REFUSED, .user_open = "[INST] ", .user_close = " [/INST]",
      .answer_end = EOS, .answer_close = " ", .flags = SHEAF__ALTERNATE },
    { NAME("chatml"), CHATML_SYSTEM, CHATML_TURNS },
    { NAME("qwen2"), .system = "You are a helpful assistant.", CHATML_SYSTEM, CHATML_TURNS },
    { NAME("qwen2.5"),
      .system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.",
      CHATML_SYSTEM, CHATML_TURNS },
    { NAME("qwen3"), CHATML_SYSTEM, CHATML_TURNS, .flags = SHEAF__THINK },
    { NAME("smollm2"),
      .system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
      CHATML_SYSTEM, CHATML_TURNS },
    { NAME("smollm3"),
      .system_open =
          "<|im_start|>system\n## Metadata\n\nKnowledge Cutoff Date: June 2025\n"
          "Today Date: " DATE "\nReasoning Mode: " SHEAF__MODE "\n\n## Custom Instructions\n\n",
      .system_close = "\n\n", /* the published one closes this turn only after tools */
      .system = SMOLLM3_SYSTEM, .later = SHEAF__LATER_LEFT_OUT, CHATML_TURNS,
      .date_format = "%d %B %Y", .quiet_prompt = "<think>\n\n</think>\n",
      .quiet_system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face.",
      .flags = SHEAF__MODES },
    { NAME("zephyr"), .system_open = "<|system|>\n", .system_close = EOS "\n",
      .later_open = "<|system|>\n", .later_close = EOS "\n", .user_open = "<|user|>\n",
      .user_close = EOS "\n", .answer_open = "<|assistant|>\n", .answer_end = EOS,
      .answer_close = "\n", .prompt = "<|assistant|>\n" },
    { NAME("vicuna"), .system = VICUNA_SYSTEM, .later = SHEAF__LATER_LEFT_OUT,
      .user_open = " USER: ", .answer_open = " ASSISTANT:", .answer_lead = " ", .answer_end = EOS,
      .prompt = " ASSISTANT:",
      .flags =
          SHEAF__ALTERNATE | SHEAF__TRIM_USER | SHEAF__TRIM_ANSWER | SHEAF__SYSTEM_NEEDS_TURN },
    { NAME("vicuna-lines"), .head = BOS, .later = SHEAF__LATER_LEFT_OUT, .system_close = "\n\n",
      .user_open = "USER: ", .user_close = "\n", .answer_open = "ASSISTANT:", .answer_lead = " ",
      .answer_end = EOS, .answer_close = "\n", .prompt = "ASSISTANT:",
      .flags = SHEAF__ALTERNATE | SHEAF__NEEDS_BOS | SHEAF__TRIM_SYSTEM | SHEAF__TRIM_USER |
               SHEAF__TRIM_ANSWER },
    { NAME("gemma"), .head = BOS, .place = SHEAF__SYSTEM_REFUSED,
      .later_open = "<start_of_turn>system\n", .later_close = "<end_of_turn>\n",
      .user_open = "<start_of_turn>user\n", .user_close = "<end_of_turn>\n",
      .answer_open = "<start_of_turn>model\n", .answer_end = "<end_of_turn>", .answer_close = "\n",
      .prompt = "<start_of_turn>model\n", .flags = SHEAF__ALTERNATE | TRIM_ALL },
    { NAME("gemma3"), .head = BOS, .place = SHEAF__SYSTEM_FIRST_USER, .system_close = "\n\n",
      .later_open = "<start_of_turn>system\n", .later_close = "<end_of_turn>\n",
      .user_open = "<start_of_turn>user\n", .user_close = "<end_of_turn>\n",
      .answer_open = "<start_of_turn>model\n", .answer_end = "<end_of_turn>", .answer_close = "\n",
      .prompt = "<start_of_turn>model\n",
      .flags = SHEAF__ALTERNATE | SHEAF__TRIM_USER | SHEAF__TRIM_ANSWER | SHEAF__TRIM_LATER },
    { NAME("phi3"), .system_open = "<|system|>\n", .system_close = "<|end|>\n",
      .later_open = "<|system|>\n", .later_close = "<|end|>\n", .user_open = "<|user|>\n",
      .user_close = "<|end|>\n", .answer_open = "<|assistant|>\n", .answer_end = "<|end|>",
      .answer_close = "\n", .prompt = "<|assistant|>\n", .tail = EOS },
    { NAME("phi3-2024"), .head = BOS, .system_open = "<|system|>\n", .system_close = "<|end|>\n",
      .later_open = "<|system|>\n", .later_close = "<|end|>\n", .user_open = "<|user|>\n",
      .user_close = "<|end|>\n<|assistant|>\n", .answer_end = "<|end|>", .answer_close = "\n" },
    { NAME("phi3.5"), .system_open = "<|system|>\n", .system_close = "<|end|>\n",
      .later_open = "<|system|>\n", .later_close = "<|end|>\n", .user_open = "<|user|>\n",
      .user_close = "<|end|>\n", .answer_open = "<|assistant|>\n", .answer_end = "<|end|>",
      .answer_close = "\n", .prompt = "<|assistant|>\n", .tail = EOS,
      .flags = SHEAF__SKIP_EMPTY_SYSTEM },
    { NAME("phi4"), .system_open = "<|im_start|>system<|im_sep|>", .system_close = "<|im_end|>",
      .later_open = "<|im_start|>system<|im_sep|>", .later_close = "<|im_end|>",
      .user_open = "<|im_start|>user<|im_sep|>", .user_close = "<|im_end|>",
      .answer_open = "<|im_start|>assistant<|im_sep|>", .answer_end = "<|im_end|>",
      .prompt = "<|im_start|>assistant<|im_sep|>" },
    { NAME("phi4-2024"), .system_open = "<|im_start|>system<|im_sep|>",
      .system_close = "<|im_end|>", .later_open = "<|im_start|>system<|im_sep|>",
      .later_close = "<|im_end|>", .user_open = "<|im_start|>user<|im_sep|>",
      .user_close = "<|im_end|><|im_start|>assistant<|im_sep|>", .answer_end = "<|im_end|>" },
    { NAME("phi4-mini"), .system_open = "<|system|>", .system_close = "<|end|>",
      .later_open = "<|system|>", .later_close = "<|end|>", .user_open = "<|user|>",
      .user_close = "<|end|>", .answer_open = "<|assistant|>", .answer_end = "<|end|>",
      .prompt = "<|assistant|>", .tail = EOS },
    { NAME("olmo2"), .head = BOS, .system_open = "<|system|>\n", .system_close = "\n",
      .later_open = "<|system|>\n", .later_close = "\n", .user_open = "<|user|>\n",
      .user_close = "\n", .answer_open = "<|assistant|>\n", .answer_end = EOS, .answer_close = "\n",
      .last_close = "", .prompt = "<|assistant|>\n" },
    { NAME("qwen3-thoughts"), CHATML_SYSTEM, CHATML_TURNS, .flags = SHEAF__THINK_EACH },
    { NAME("minicpm"), .place = SHEAF__SYSTEM_REFUSED, .later = SHEAF__LATER_REFUSED,
      .user_open = "<用户>", .answer_open = "<AI>", .last_end = EOS, .prompt = "<AI>" },
    { NAME("plain"), .answer_end = EOS },
};
const int sheaf__style_count = sizeof sheaf__styles / sizeof *sheaf__styles;
