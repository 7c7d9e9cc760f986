/* kinds.h - private: every kind of step, for the tables of kinds.c. */
#pragma once

#include "parts.h"

/* bpe.c */
extern const sheaf__model_kind sheaf__bpe;
/* byte_level.c */
extern const sheaf__step_kind sheaf__byte_level_splitting;
extern const sheaf__step_kind sheaf__byte_level_decoder;
extern const sheaf__step_kind sheaf__byte_level_post;
/* split.c */
extern const sheaf__step_kind sheaf__split;

/* metaspace.c */
extern const sheaf__step_kind sheaf__metaspace;
extern const sheaf__step_kind sheaf__metaspace_decoder;
/* forms.c */
extern const sheaf__step_kind sheaf__nfc, sheaf__nfd, sheaf__nfkc, sheaf__nfkd;
/* charsmap.c */
extern const sheaf__step_kind sheaf__precompiled;
/* normalize.c */
extern const sheaf__step_kind sheaf__strip, sheaf__prepend, sheaf__replace;
/* pre_tokenize.c */
extern const sheaf__step_kind sheaf__whitespace_split, sheaf__punctuation, sheaf__digits;
/* decode_steps.c */
extern const sheaf__step_kind sheaf__byte_fallback_decoder, sheaf__fuse_decoder,
    sheaf__strip_decoder, sheaf__replace_decoder;
/* post.c */
extern const sheaf__step_kind sheaf__template_post;
/* unigram.c */
extern const sheaf__model_kind sheaf__unigram;
