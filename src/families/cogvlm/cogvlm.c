/* cogvlm.c - the descriptor of CogVLM. */
#include "families/cogvlm/cogvlm.h"

#include "families/cog/cog.h"

static const char *const classes[] = { "CogVLMModel", "FineTuneTrainCogVLMModel",
                                       "FineTuneTestCogVLMModel", NULL };

const sheaf__family sheaf__family_cogvlm = {
    .id = SHEAF_COGVLM,
    .name = "cogvlm",
    .title = "CogVLM",
    .classes = classes,
    .image = { .before = 1, .after = 1, .one_position = true },
    .named = sheaf__cog_named,
    SHEAF__LIKE_COG,
};
