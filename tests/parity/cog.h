/* cog.h - the golden CogVLM and CogAgent models: what the parity tests of both share.
 *
 * Every folder of $SHEAF_GOLDEN (or of the committed subset) that holds inputs.safetensors and
 * mp1/model_config.json is run; none found is a failure. Tolerances are those of the recordings'
 * README: 5e-5 for logits and what leads to them, 1e-4 relative for gradients. */
#pragma once

#include "tests/golden.h"
#include "tests/parity/trial.h"

static inline int find_models(void **state)
{
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    find_in(golden(""), "inputs.safetensors", "mp1/model_config.json");
    if (models == 0)
        fail_msg("no model with images found");
    return 0;
}
