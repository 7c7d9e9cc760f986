/* config_text.h - what a config says of a model, as lines that can be compared. */
#pragma once

#include "base/text.h"
#include "schema/config.h"

/* sheaf__config_text - "key: value" lines (malloc'd), one for each value of the config that a
 * result depends on: what is computed from weights and tokens, and how texts and pictures become
 * them. Equal models give equal texts, however their files spell it; names are those of the
 * family's own files. Left out: what only a new model is made by (initializer_range), and the
 * dtype, which is the weights'. */
sheaf_status *sheaf__config_text(char **out, const sheaf_config *config);

/* Lines of it, for the families' own parts. Numbers are the shortest decimals that read back. */
void sheaf__config_whole(sheaf_text *text, const char *key, int64_t value);
void sheaf__config_yes_no(sheaf_text *text, const char *key, bool value);
void sheaf__config_real(sheaf_text *text, const char *key, double value);
extern const char *const sheaf__rope_names[SHEAF_ROPE_TYPES];
void sheaf__config_rope(sheaf_text *text, const sheaf_config *config);
