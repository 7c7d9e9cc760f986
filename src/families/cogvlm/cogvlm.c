/* cogvlm.c - the descriptor of CogVLM. */
#include "families/cog/cog.h"

static const char *const classes[] = { "CogVLMModel", "FineTuneTrainCogVLMModel",
                                       "FineTuneTestCogVLMModel", NULL };

static const sheaf__family_spec specs[] = {
    { "cogvlm-tiny",
      "CogVLM, byte vocabulary, hidden 128, 4 layers, images of 56 x 56: 2.4 million parameters" },
    { NULL },
};

static sheaf_status *spec_config(char **out, int which)
{
    return sheaf__cog_spec(out, &sheaf__family_cogvlm);
}

const sheaf__family sheaf__family_cogvlm = {
    .id = SHEAF_COGVLM,
    .name = "cogvlm",
    .title = "CogVLM",
    .classes = classes,
    .specs = specs,
    .spec_config = spec_config,
    .image = { .before = 1, .after = 1, .most = 1, .experts = true, .one_position = true },
    .tells = SHEAF__COG_TELLS,
    SHEAF__LIKE_COG,
};
