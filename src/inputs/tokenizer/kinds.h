/* kinds.h - private: every kind of step, for the tables of kinds.c. */
#ifndef SHEAF_INPUTS_TOKENIZER_KINDS_H
#define SHEAF_INPUTS_TOKENIZER_KINDS_H

#include "parts.h"

/* bpe.c */
extern const sheaf__model_kind sheaf__bpe;
/* byte_level.c */
extern const sheaf__step_kind sheaf__byte_level_splitting;
extern const sheaf__decoder_kind sheaf__byte_level_decoder;
extern const sheaf__post_kind sheaf__byte_level_post;
/* split.c */
extern const sheaf__step_kind sheaf__split;

#endif
