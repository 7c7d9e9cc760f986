/* cogagent.c - the descriptor of CogAgent. */
#include "families/cogagent/cogagent.h"

#include "families/cog/cog.h"

static const char *const classes[] = { "CogAgentModel", "FineTuneTrainCogAgentModel",
                                       "FineTuneTestCogAgentModel", NULL };

const sheaf__family sheaf__family_cogagent = {
    .id = SHEAF_COGAGENT,
    .name = "cogagent",
    .title = "CogAgent",
    .classes = classes,
    .image = { .before = 1, .after = 1, .one_position = true, .needed = true },
    SHEAF__LIKE_COG,
};
