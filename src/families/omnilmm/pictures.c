/* pictures.c - how OmniLMM's pictures stand in a conversation, and how its chat.py asks. */
#include "families/omnilmm/omnilmm.h"

void sheaf__omnilmm_pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    *out = (sheaf__picture_form){
        .mark = { [SHEAF__MARK_BEGIN] = { "<im_start>", "im_start_token" },
                  [SHEAF__MARK_ROW] = { "<im_patch>", "im_patch_token" },
                  [SHEAF__MARK_END] = { "<im_end>", "im_end_token" } },
        .rows = c->resampler.queries,
        .bos = true,
        .chat = "zephyr",
        .byte_chat = "zephyr",
        .system = "You are an artificial intelligence assistant, which gives helpful, detailed, "
                  "and polite answers to the human's questions.",
        .temperature = 0.6,
        .top_k = 30,
        .top_p = 0.9,
        .repetition_penalty = 1.1,
    };
}
