/* tokenizer.h - text to token ids and back with the tokenizer of a Hugging Face model folder.
 *
 * Ids are those of the `tokenizers` library, for every text that is UTF-8 (docs/tokenizers.md).
 * Immutable after opening: functions that take a const tokenizer are thread-safe. */
#pragma once

#include "base/base.h"
#include "sheaf/text.h"

typedef sheaf_tokenizer sheaf__tokenizer;

/* sheaf__tokenizer_open - `path` is a folder (which of its files counts is decided as transformers
 * does), a tokenizer.json, a tokenizer.model or a GGUF file. *out untouched on failure. Errors:
 * SHEAF_E_IO; SHEAF_E_FORMAT for an invalid tokenizer; SHEAF_E_UNSUPPORTED for an unknown part or
 * option, by its name; SHEAF_E_MEMORY. */
sheaf_status *sheaf__tokenizer_open(sheaf__tokenizer **out, const char *path);
/* sheaf__tokenizer_open_pieces - a sentencepiece tokenizer.model as libsentencepiece reads it, for
 * CogVLM (Hugging Face's LlamaTokenizer, legacy behaviour). Its texts are always plain: "<s>" in
 * one is ordinary pieces. Each text begins with the model's dummy prefix; add_special puts bos
 * before it. In decoding control and unknown pieces are skipped; an id from the number of pieces on
 * (a model's table may have more rows), invalid UTF-8, and NUL give U+FFFD. Errors: SHEAF_E_IO;
 * SHEAF_E_FORMAT for an invalid model, with the byte; SHEAF_E_UNSUPPORTED for a model that has
 * user-defined or unused pieces, that is not BPE or that replaces characters (nmt_nfkc);
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__tokenizer_open_pieces(sheaf__tokenizer **out, const char *path);
void sheaf__tokenizer_close(sheaf__tokenizer *t); /* accepts NULL */

/* sheaf__tokenizer_size - the largest id + 1, added tokens included. */
int64_t sheaf__tokenizer_size(const sheaf__tokenizer *t);
/* sheaf__tokenizer_find - the id of a token by its written form; -1: there is none. */
int32_t sheaf__tokenizer_find(const sheaf__tokenizer *t, const char *token);
/* sheaf__tokenizer_token - the written form of an id, borrowed; NULL: there is none. */
const char *sheaf__tokenizer_token(const sheaf__tokenizer *t, int32_t id);
/* Ids of named special tokens, from tokenizer_config.json or special_tokens_map.json beside the
 * tokenizer; -1: none. */
int32_t sheaf__tokenizer_bos(const sheaf__tokenizer *t);
int32_t sheaf__tokenizer_eos(const sheaf__tokenizer *t);
/* sheaf__tokenizer_pad - of sheaf__tokenizer_open_pieces(): the id that pads, its unknown piece
 * where it has none for that; -1 of others. */
int32_t sheaf__tokenizer_pad(const sheaf__tokenizer *t);
/* sheaf__tokenizer_written - the first special token in a text, borrowed; NULL: none. */
const char *sheaf__tokenizer_written(const sheaf__tokenizer *t, const char *text, size_t size);

typedef sheaf_text_range sheaf__text_range;

typedef struct sheaf__encode_options {
    bool add_special; /* with the tokens of the post-processor (bos ...) */
    bool plain;       /* special tokens in the text are encoded as text */
    /* Only those that overlap one of these ranges (what people wrote, inside a template) are text;
     * ascending, disjoint. */
    const sheaf__text_range *plain_range;
    int64_t plain_ranges;
} sheaf__encode_options;

/* sheaf__tokenizer_encode - *ids is malloc'd, also when *count is 0. *where (`where` may be NULL)
 * is malloc'd too: for each id the bytes of `text` that it stands for, whole characters; begin ==
 * end for an id without text, as an added bos. `options` may be NULL: all zero. Text may contain
 * NUL. Errors: SHEAF_E_DATA for text that is not UTF-8 (with the byte) or over
 * SHEAF_TOKENIZER_TEXT_MAX; SHEAF_E_MEMORY. */
sheaf_status *sheaf__tokenizer_encode(int32_t **ids, sheaf__text_range **where, int64_t *count,
                                      const sheaf__tokenizer *t, const char *text, size_t size,
                                      const sheaf__encode_options *options);
/* sheaf__tokenizer_decode - *text is malloc'd, UTF-8, and ends with a NUL that *size (`size` may be
 * NULL) does not count. Unknown ids are skipped, as in `tokenizers`; invalid UTF-8 becomes U+FFFD.
 * Errors: SHEAF_E_DATA for a negative id; SHEAF_E_MEMORY. */
sheaf_status *sheaf__tokenizer_decode(char **text, size_t *size, const sheaf__tokenizer *t,
                                      const int32_t *ids, int64_t n, bool skip_special);

/* A streaming decoder. It never returns half a character; the concatenation of all results, and of
 * the rest at the end, equals sheaf__tokenizer_decode() of all ids. */
typedef struct sheaf__token_stream sheaf__token_stream;
/* sheaf__token_stream_new - borrows `t`. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__token_stream_new(sheaf__token_stream **out, const sheaf__tokenizer *t,
                                      bool skip_special);
/* sheaf__token_stream_set_bytes - it returns the bytes of each id at once, perhaps a part of a
 * character, which are no UTF-8 until they are joined. */
void sheaf__token_stream_set_bytes(sheaf__token_stream *stream);
/* sheaf__token_stream_push - *text, with its *size (may be NULL), is borrowed until the next call:
 * the text that is certain now, possibly empty. Errors as in sheaf__tokenizer_decode(). */
sheaf_status *sheaf__token_stream_push(const char **text, size_t *size, sheaf__token_stream *stream,
                                       int32_t id);
/* sheaf__token_stream_push_if - what push would return, without pushing. */
sheaf_status *sheaf__token_stream_push_if(const char **text, size_t *size,
                                          sheaf__token_stream *stream, int32_t id);
/* sheaf__token_stream_rest - the text that follows if no id does; more ids may. *text is borrowed
 * until the next call. */
sheaf_status *sheaf__token_stream_rest(const char **text, size_t *size,
                                       sheaf__token_stream *stream);
void sheaf__token_stream_free(sheaf__token_stream *stream); /* accepts NULL */
