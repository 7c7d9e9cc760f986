/* tokenizer_config.h - private: what lies beside a tokenizer: tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json and the model_type of config.json. */
#pragma once

#include "base/json.h"
#include "sheaf/status.h"

/* The classes of transformers that build their steps themselves, from nothing but the vocabulary
 * and the merges of a file; GENERIC (TokenizersBackend) takes the steps of tokenizer.json. */
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
    json_t *config;                     /* owned, with what special_tokens_map.json adds */
    json_t *added;                      /* owned; added_tokens.json, or NULL */
    const json_t *name[SHEAF__NAMES];   /* a string or an object; NULL: not said */
    bool none[SHEAF__NAMES];            /* said to be none */
    char *declared, *model_type;        /* owned; may be NULL */
    int add_bos, add_eos, prefix_space; /* 1, 0; -1: not said */
    bool legacy;
} sheaf__tokenizer_config;

/* sheaf__tokenizer_config_read - those of `folder`; files that are not there say nothing. */
sheaf_status *sheaf__tokenizer_config_read(sheaf__tokenizer_config *out, const char *folder);
void sheaf__tokenizer_config_release(sheaf__tokenizer_config *s);
/* sheaf__tokenizer_config_class - which class AutoTokenizer of transformers 5.23 takes. `parts`:
 * the members of the tokenizer.json, or NULL for a tokenizer.model. */
sheaf__tokenizer_class sheaf__tokenizer_config_class(const sheaf__tokenizer_config *s,
                                                     const json_t *parts);
/* sheaf__tokenizer_config_text - the text of a named token; NULL: none. */
const char *sheaf__tokenizer_config_text(const json_t *name);

/* sheaf__tokenizer_config_is_file_only - a model_type whose tokenizer.json counts as it stands,
 * whatever class is declared. */
bool sheaf__tokenizer_config_is_file_only(const sheaf__tokenizer_config *s);

/* ---- the steps that classes of transformers build themselves (classes.c) ---- */

/* sheaf__class_build - puts them into the members of a tokenizer.json, in place of the file's; of a
 * class that is not GENERIC, for which nothing is done.
 *   unknown  the named unknown token, or NULL */
sheaf_status *sheaf__class_build(json_t *parts, sheaf__tokenizer_class class,
                                 const sheaf__tokenizer_config *s, const char *unknown);

/* sheaf__class_name - the named token, SHEAF__BOS and so on, that the class has where the folder
 * names none; NULL: none. */
const char *sheaf__class_name(sheaf__tokenizer_class class, int which);
