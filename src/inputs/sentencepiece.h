/* sentencepiece.h - text to token ids and back with a sentencepiece ".model" file, as Llama's and
 * Vicuna's tokenizers do (Hugging Face LlamaTokenizer, legacy behaviour).
 *
 * Text is always plain text: "<s>", "</s>", "<EOI>" in it become ordinary pieces, never ids of
 * control or user-defined pieces. Each text begins with the model's dummy prefix. Immutable after
 * opening; all functions are thread-safe. For text models tokenizer.model is read as in
 * transformers (tokenizer/spm_file.h). */
#pragma once

#include "base/base.h"
#include "inputs/tokenizer/tokenizer.h"
#include "schema/config.h"
#include "sheaf/status.h"

typedef struct sheaf__sentencepiece sheaf__sentencepiece;

enum { SHEAF__TEXT_MAX = 1 << 20 }; /* bytes of one text, more than the longest context */

/* sheaf__sentencepiece_open - errors: SHEAF_E_IO; SHEAF_E_FORMAT for an invalid model, with the
 * byte; SHEAF_E_UNSUPPORTED for a model that has user-defined or unused pieces, that is not BPE or
 * that replaces characters (nmt_nfkc); SHEAF_E_MEMORY. *out is untouched on failure. */
sheaf_status *sheaf__sentencepiece_open(sheaf__sentencepiece **out, const char *path);
void sheaf__sentencepiece_close(sheaf__sentencepiece *model);

/* sheaf__choose_tokenizer - of a model with prompts of its own: the file or folder `given`, else
 * the model's `folder` (each may be NULL or empty); in a folder tokenizer.model, else
 * tokenizer.json. A sentencepiece model is *out, another *other; both NULL when there is none.
 * Errors: those of sheaf__sentencepiece_open() and sheaf__tokenizer_open(); SHEAF_E_LAYOUT for more
 * pieces than the model has rows. */
sheaf_status *sheaf__choose_tokenizer(sheaf__sentencepiece **out, sheaf__tokenizer **other,
                                      const char *given, const char *folder,
                                      const sheaf_config *config);

int64_t sheaf__sentencepiece_pieces(const sheaf__sentencepiece *model);
/* Ids of the special pieces, -1 where the model has none. (Without pad CogVLM pads with unk.) */
int32_t sheaf__sentencepiece_bos(const sheaf__sentencepiece *model);
int32_t sheaf__sentencepiece_eos(const sheaf__sentencepiece *model);
int32_t sheaf__sentencepiece_unk(const sheaf__sentencepiece *model);
int32_t sheaf__sentencepiece_pad(const sheaf__sentencepiece *model);

/* sheaf__sentencepiece_encode - *ids is malloc'd (also when *count is 0); no bos, no eos.
 * Errors: SHEAF_E_DATA for text that is not UTF-8 or over SHEAF__TEXT_MAX bytes. */
sheaf_status *sheaf__sentencepiece_encode(int32_t **ids, int64_t *count,
                                          const sheaf__sentencepiece *model, const char *text,
                                          size_t size);
/* sheaf__sentencepiece_decode - *text is malloc'd, UTF-8, ends with NUL. Control and unknown pieces
 * are skipped; an id from the number of pieces on (a model's table may have more rows) gives
 * U+FFFD, and so does NUL. Errors: SHEAF_E_DATA for a negative id. */
sheaf_status *sheaf__sentencepiece_decode(char **text, const sheaf__sentencepiece *model,
                                          const int32_t *ids, int64_t count);
/* sheaf__sentencepiece_add - appends the bytes of one more id, perhaps a part of a character.
 *   begun  in and out: there was text before; false at first */
sheaf_status *sheaf__sentencepiece_add(sheaf_text *to, bool *begun,
                                       const sheaf__sentencepiece *model, int32_t id);
