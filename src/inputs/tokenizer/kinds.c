/* kinds.c - the kinds of steps, by the "type" that tokenizer.json gives. */
#include "kinds.h"

static const sheaf__step_kind *const normalizers[] = { &sheaf__nfc, &sheaf__prepend,
                                                       &sheaf__replace, NULL };
static const sheaf__step_kind *const pre_tokenizers[] = { &sheaf__byte_level_splitting,
                                                          &sheaf__digits, &sheaf__metaspace,
                                                          &sheaf__split, NULL };
static const sheaf__step_kind *const decoders[] = {
    &sheaf__byte_fallback_decoder, &sheaf__byte_level_decoder, &sheaf__fuse_decoder,
    &sheaf__replace_decoder,       &sheaf__strip_decoder,      NULL
};
static const sheaf__step_kind *const posts[] = { &sheaf__byte_level_post, &sheaf__template_post,
                                                 NULL };
const sheaf__step_kind *const *const sheaf__step_kinds[SHEAF__LISTS] = { normalizers,
                                                                         pre_tokenizers, decoders,
                                                                         posts };
