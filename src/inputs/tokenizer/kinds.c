/* kinds.c - the kinds of steps, by the "type" that tokenizer.json gives. */
#include "kinds.h"

const sheaf__step_kind *const sheaf__normalizers[] = { NULL };
const sheaf__step_kind *const sheaf__pre_tokenizers[] = { &sheaf__byte_level_splitting,
                                                          &sheaf__split, NULL };
const sheaf__decoder_kind *const sheaf__decoders[] = { &sheaf__byte_level_decoder, NULL };
const sheaf__post_kind *const sheaf__posts[] = { &sheaf__byte_level_post, NULL };
const sheaf__model_kind *const sheaf__models[] = { &sheaf__bpe, NULL };
