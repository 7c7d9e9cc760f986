/* spm.h - private: a sentencepiece tokenizer.model as the tokenizer.json that transformers makes of
 * it. */
#pragma once

#include <stdbool.h>

#include "base/json.h"
#include "base/text.h"
#include "sheaf/status.h"

/* sheaf__spm_convert - the steps are those of TokenizersBackend, which are not those of
 * sentencepiece: no blank is put before a text.
 *   json    appended to
 *   tokens  out: its control and user-defined pieces as added tokens; and bos_token, eos_token and
 *           unk_token: an object (json_decref)
 *   own_steps  its class has steps of its own: what the file says of them does not count
 * Errors: SHEAF_E_FORMAT with the byte, SHEAF_E_UNSUPPORTED, SHEAF_E_MEMORY. */
sheaf_status *sheaf__spm_convert(sheaf_text *json, json_t **tokens, const char *bytes, size_t size,
                                 bool own_steps);
