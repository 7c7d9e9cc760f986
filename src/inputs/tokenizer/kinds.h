/* kinds.h - private: every kind of step, for the tables of kinds.c. */
#pragma once

#include "parts.h"

/* byte_level.c */
extern const sheaf__step_kind sheaf__byte_level_splitting;
extern const sheaf__step_kind sheaf__byte_level_decoder;
extern const sheaf__step_kind sheaf__byte_level_post;
/* split.c */
extern const sheaf__step_kind sheaf__split, sheaf__digits;
/* metaspace.c */
extern const sheaf__step_kind sheaf__metaspace;
/* forms.c */
extern const sheaf__step_kind sheaf__nfc;
/* normalize.c */
extern const sheaf__step_kind sheaf__prepend, sheaf__replace;
/* decode_steps.c */
extern const sheaf__step_kind sheaf__byte_fallback_decoder, sheaf__fuse_decoder,
    sheaf__strip_decoder, sheaf__replace_decoder;
/* post.c */
extern const sheaf__step_kind sheaf__template_post;
