/* tokenizer_config.h - private: the files beside a tokenizer: tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json, and the model_type in config.json. */
#pragma once

#include "base/json.h"
#include "base/text.h"
#include "sheaf/status.h"

/* The classes of transformers that build their own steps and read only vocabulary and merges from a
 * file; GENERIC (TokenizersBackend) takes the steps of tokenizer.json. */
typedef enum sheaf__tokenizer_class {
    SHEAF__GENERIC,
    SHEAF__LLAMA_TOKENIZER,
    SHEAF__GEMMA_TOKENIZER,
    SHEAF__QWEN2_TOKENIZER,
    SHEAF__GPT2_TOKENIZER,
} sheaf__tokenizer_class;

enum {
    SHEAF__BOS,
    SHEAF__EOS,
    SHEAF__UNK,
    SHEAF__SEP,
    SHEAF__PAD,
    SHEAF__CLS,
    SHEAF__MASK,
    SHEAF__NAMES
};

extern const char *const sheaf__named_tokens[SHEAF__NAMES]; /* "bos_token" ... */

typedef struct sheaf__tokenizer_config {
    json_t *config;                     /* owned; merged with special_tokens_map.json */
    json_t *added;                      /* owned; added_tokens.json, or NULL */
    const json_t *name[SHEAF__NAMES];   /* a string or an object; NULL: not set */
    bool none[SHEAF__NAMES];            /* explicitly none */
    char *declared, *model_type;        /* owned; may be NULL */
    int add_bos, add_eos, prefix_space; /* 1, 0; -1: not set */
    bool legacy;
} sheaf__tokenizer_config;

/* sheaf__tokenizer_config_read - reads those of `folder`; missing files are skipped. */
sheaf_status *sheaf__tokenizer_config_read(sheaf__tokenizer_config *out, const char *folder);
void sheaf__tokenizer_config_release(sheaf__tokenizer_config *s);
/* sheaf__tokenizer_config_class - the class that AutoTokenizer of transformers 5.23 uses. `parts`:
 * members of the tokenizer.json, or NULL for a tokenizer.model. */
sheaf__tokenizer_class sheaf__tokenizer_config_class(const sheaf__tokenizer_config *s,
                                                     const json_t *parts);
/* sheaf__tokenizer_config_text - the text of a named token; NULL: none. */
const char *sheaf__tokenizer_config_text(const json_t *name);

/* sheaf__tokenizer_config_is_file_only - does this model_type use tokenizer.json unchanged,
 * whatever class is declared? */
bool sheaf__tokenizer_config_is_file_only(const sheaf__tokenizer_config *s);

/* ---- the steps of classes that build their own (classes.c) ---- */

/* sheaf__class_build - replaces the steps in the members of a tokenizer.json by those of the class;
 * for GENERIC does nothing.
 *   unknown  the named unknown token, or NULL */
sheaf_status *sheaf__class_build(json_t *parts, sheaf__tokenizer_class class,
                                 const sheaf__tokenizer_config *s, const char *unknown);

/* sheaf__put_byte_level, sheaf__put_bars - the members "normalizer", "pre_tokenizer" and "decoder"
 * of a tokenizer.json: of one that is byte-level; of one with bars for blanks, without
 * pre-tokenizer
 * (`bytes`: it has tokens of bytes). */
typedef struct sheaf__byte_level_form {
    const char *pattern; /* NULL: GPT-2's */
    bool digits;         /* each is divided from others before that */
    bool composed;       /* texts are brought to NFC before */
    bool prefix;         /* a blank before a text */
} sheaf__byte_level_form;
void sheaf__put_byte_level(sheaf_text *json, const sheaf__byte_level_form *form);
void sheaf__put_bars(sheaf_text *json, bool bytes);

/* sheaf__class_name - the default of the class for a named token (SHEAF__BOS ...) that the folder
 * does not name; NULL: none. */
const char *sheaf__class_name(sheaf__tokenizer_class class, int which);
