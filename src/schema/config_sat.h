/* config_sat.h - the keys of SAT's model_config.json, for CogVLM and CogAgent. */
#ifndef SHEAF_SCHEMA_CONFIG_SAT_H
#define SHEAF_SCHEMA_CONFIG_SAT_H

#include "base/json.h"
#include "base/text.h"
#include "sheaf/config.h"

/* sheaf__config_is_sat - does SAT's spelling of a model's class stand there, and nobody else's? */
bool sheaf__config_is_sat(const json_t *object);
/* sheaf__config_read_sat - everything but dtype and token ids; unknown keys are added to `unknown`,
 * separated by commas. The failure is kept in r->st. */
void sheaf__config_read_sat(sheaf_json_reader *r, sheaf_config *c, sheaf_text *unknown);

#endif
