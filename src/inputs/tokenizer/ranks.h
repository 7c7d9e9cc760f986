/* ranks.h - private: the ranks of a tiktoken tokenizer, as GLM-4 keeps them in tokenizer.model: a
 * line for each token, its bytes in base64, a blank and its rank, which is its id. */
#pragma once

#include "base/text.h"
#include "sheaf/status.h"

/* sheaf__ranks_are - does the text begin with such a line? */
bool sheaf__ranks_are(const char *text, size_t size);
/* sheaf__ranks_convert - appends the tokenizer.json that is made of them, with GLM-4's pattern and
 * without merges (sheaf__tokenizer_file.by_id). Errors: SHEAF_E_FORMAT with the line,
 * SHEAF_E_MEMORY. */
sheaf_status *sheaf__ranks_convert(sheaf_text *json, const char *text, size_t size);
