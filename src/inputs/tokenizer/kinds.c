/* kinds.c - the kinds of steps, by the "type" that tokenizer.json gives. */
#include "kinds.h"

const sheaf__step_kind *const sheaf__normalizers[] = { &sheaf__bert_normalizer,
                                                       &sheaf__byte_level_normalizer,
                                                       &sheaf__lowercase,
                                                       &sheaf__nfc,
                                                       &sheaf__nfd,
                                                       &sheaf__nfkc,
                                                       &sheaf__nfkd,
                                                       &sheaf__nmt,
                                                       &sheaf__precompiled,
                                                       &sheaf__prepend,
                                                       &sheaf__replace,
                                                       &sheaf__strip,
                                                       &sheaf__strip_accents,
                                                       NULL };
const sheaf__step_kind *const sheaf__pre_tokenizers[] = {
    &sheaf__bert_splitting,   &sheaf__byte_level_splitting,
    &sheaf__delimiter_split,  &sheaf__digits,
    &sheaf__fixed_length,     &sheaf__metaspace,
    &sheaf__punctuation,      &sheaf__split,
    &sheaf__unicode_scripts,  &sheaf__whitespace,
    &sheaf__whitespace_split, NULL
};
const sheaf__decoder_kind *const sheaf__decoders[] = {
    &sheaf__bpe_decoder,        &sheaf__byte_fallback_decoder,
    &sheaf__byte_level_decoder, &sheaf__ctc_decoder,
    &sheaf__fuse_decoder,       &sheaf__metaspace_decoder,
    &sheaf__replace_decoder,    &sheaf__strip_decoder,
    &sheaf__wordpiece_decoder,  NULL
};
const sheaf__post_kind *const sheaf__posts[] = { &sheaf__bert_post, &sheaf__byte_level_post,
                                                 &sheaf__roberta_post, &sheaf__template_post,
                                                 NULL };
const sheaf__model_kind *const sheaf__models[] = { &sheaf__bpe, &sheaf__unigram, &sheaf__wordlevel,
                                                   &sheaf__wordpiece, NULL };
