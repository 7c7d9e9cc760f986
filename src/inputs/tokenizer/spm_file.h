/* spm_file.h - private: the parts of a sentencepiece ".model" file. */
#pragma once

#include "base/base.h"
#include "base/json.h"
#include "sheaf/status.h"

typedef struct sheaf__spm_piece {
    sheaf__text_piece text; /* 1 to 4096 bytes of UTF-8 without NUL */
    float score;
    enum {
        SHEAF__SPM_NORMAL = 1,
        SHEAF__SPM_UNKNOWN,
        SHEAF__SPM_CONTROL,
        SHEAF__SPM_USER_DEFINED,
        SHEAF__SPM_UNUSED,
        SHEAF__SPM_BYTE,
    } type;
} sheaf__spm_piece;

/* How blanks are normalised; suffix: the bar is after a text, not before it. */
typedef struct sheaf__spm_blanks {
    bool prefix, suffix, remove_extra, escape;
} sheaf__spm_blanks;

typedef struct sheaf__spm {
    sheaf__spm_piece *piece; /* owned */
    int64_t count, capacity;
    int64_t unk, bos, eos;
    sheaf__text_piece unk_piece, bos_piece, eos_piece, pad_piece;
    sheaf__spm_blanks blanks;
    bool byte_fallback;
    bool table, table_back; /* tables that replace characters; back: in decoding */
} sheaf__spm;

/* sheaf__spm_read - borrows `bytes`. Errors: SHEAF_E_FORMAT with the byte, SHEAF_E_UNSUPPORTED for
 * a model that is not BPE, SHEAF_E_MEMORY. sheaf__spm_release() in any case. */
sheaf_status *sheaf__spm_read(sheaf__spm *out, const char *bytes, size_t size);
void sheaf__spm_release(sheaf__spm *m);
/* sheaf__spm_no_table - SHEAF_E_UNSUPPORTED for a model that replaces characters of a text. */
sheaf_status *sheaf__spm_no_table(const sheaf__spm *m);

/* sheaf__spm_count - the number of pieces of a model of any type; 0 for other bytes. */
int64_t sheaf__spm_count(const char *bytes, size_t size);

/* sheaf__spm_convert - the tokenizer.json that transformers makes of it (spm.c), with the steps of
 * TokenizersBackend, which unlike sentencepiece put no blank before a text.
 *   json    appended to
 *   tokens  out: its control and user-defined pieces as added tokens; and bos_token, eos_token and
 *           unk_token: an object (json_decref)
 *   own_steps  its class has its own steps: the file's are ignored
 * Errors: SHEAF_E_FORMAT with the byte, SHEAF_E_UNSUPPORTED, SHEAF_E_MEMORY. */
sheaf_status *sheaf__spm_convert(sheaf_text *json, json_t **tokens, const char *bytes, size_t size,
                                 bool own_steps);
