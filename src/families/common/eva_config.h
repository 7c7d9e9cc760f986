/* eva_config.h - the keys of EVA2-CLIP's tower (eva_clip.h): "vision_config", as the hub's programs
 * of CogVLM, CogAgent, CogVLM2 and GLM-4V have it. Data only. */
#pragma once

#include "schema/config_keys.h"

enum { SHEAF__EVA_BLOCK = 2 }; /* patches along the sides of what the convolution joins */

typedef struct sheaf__eva_form {
    bool joined;     /* there is a convolution behind the tower */
    const char *own; /* keys that the family's program has beside these, and reads; or NULL */
} sheaf__eva_form;

/* sheaf__eva_config - fills vit and patches of the config. Failures, in `all`: a key that is absent
 * or of another type or size, sizes that do not go together, and no "vision_config". */
void sheaf__eva_config(sheaf_json_reader *all, sheaf_config *c, const sheaf__eva_form *form,
                       sheaf_text *unknown);
/* sheaf__eva_text - what sheaf__config_text() says of them. */
void sheaf__eva_text(sheaf_text *text, const sheaf_config *c);
