/* cogagent.c - the descriptor of CogAgent. */
#include "families/cog/cog.h"

static const char *const classes[] = { "CogAgentModel", "FineTuneTrainCogAgentModel",
                                       "FineTuneTestCogAgentModel", NULL };

static const sheaf__family_spec specs[] = {
    { "cogagent-tiny",
      "CogAgent, the same with a tower for images of 112 x 112: 2.7 million parameters" },
    { NULL },
};

static sheaf_status *spec_config(char **out, int which)
{
    return sheaf__cog_spec(out, &sheaf__family_cogagent);
}

const sheaf__family sheaf__family_cogagent = {
    .id = SHEAF_COGAGENT,
    .name = "cogagent",
    .title = "CogAgent",
    .classes = classes,
    .specs = specs,
    .spec_config = spec_config,
    .image = { .before = 1,
               .after = 1,
               .most = 1,
               .experts = true,
               .one_position = true,
               .needed = true },
    /* of a model that lost its tower, cross-attention tells */
    .tells = SHEAF__COG_TELLS " mixins.encoder.:|cross_attention:weight",
    .sizes = sheaf__cogagent_sizes,
    .tower_names = "mixins.encoder.*, mixins.eva.pos_embed",
    SHEAF__LIKE_COG,
};
