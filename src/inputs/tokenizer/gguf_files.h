/* gguf_files.h - a GGUF file's tokenizer and chat template, as the files that a Hugging Face folder
 * has them in. */
#pragma once

#include "base/base.h"

/* The files that there may be, in this order; ends with NULL: tokenizer.json (byte-level) or
 * tokenizer.model (by scores, as sentencepiece has it), tokenizer_config.json. */
extern const char *const sheaf__gguf_files[];

/* sheaf__gguf_file - the bytes (malloc'd, a 0 behind them) of the file of this name that says what
 * the keys of the GGUF file at `path` say; *out NULL: it has none. Errors: those of reading it;
 * SHEAF_E_UNSUPPORTED for a kind of tokenizer, or of dividing texts, that sheaf does not know by
 * its name. */
sheaf_status *sheaf__gguf_file(char **out, size_t *size, const char *path, const char *name);
