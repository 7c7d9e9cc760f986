/* config_keys.h - keys of config.json: the three lists (docs/formats.md, "config.json"), and those
 * that all families share. Failures are kept in r->st. */
#pragma once

#include "base/json.h"
#include "base/text.h"
#include "schema/config.h"

/* Values of a known but unsupported key that change nothing. null always may. */
typedef enum sheaf_neutral {
    SHEAF_NEUTRAL_NULL,  /* nothing but null */
    SHEAF_NEUTRAL_ZERO,  /* 0, 0.0 or false */
    SHEAF_NEUTRAL_ONE,   /* 1 or 1.0 */
    SHEAF_NEUTRAL_EMPTY, /* {}, [] or false */
    SHEAF_NEUTRAL_TRUE,  /* true alone: null is taken for false */
} sheaf_neutral;

typedef struct sheaf_unsupported_key {
    const char *key;
    sheaf_neutral neutral;
    const char *why; /* its effect */
} sheaf_unsupported_key;

/* The lists of one object. Words are divided by blanks. */
typedef struct sheaf__key_lists {
    const char *own; /* neither refused nor reported, whatever the others say; or NULL */
    const char *read, *harmless;              /* or NULL */
    const sheaf_unsupported_key *unsupported; /* up to a key of NULL; or NULL */
} sheaf__key_lists;
extern const sheaf__key_lists sheaf__transformers_keys; /* of transformers' text models */

/* sheaf__config_keys - refuses unsupported keys whose value is not neutral; what is in no list is
 * added to `unknown`, divided by commas. */
void sheaf__config_keys(sheaf_json_reader *r, const sheaf__key_lists *lists, sheaf_text *unknown);
/* sheaf__config_leave - hands the first failure inside an object to the reader of the whole. */
static inline void sheaf__config_leave(sheaf_json_reader *all, const sheaf_json_reader *inner)
{
    all->st = sheaf__first_of(all->st, inner->st);
}
/* sheaf__config_names - is this its model_type, or its first architecture that class? */
bool sheaf__config_names(const json_t *object, const char *type, const char *class);
/* sheaf__config_text_object - what describes a model's text model, new, as its own config would:
 * `inner`, an object of `root`, with those of the keys (up to NULL) that it lacks and the whole
 * has; inner NULL: the whole. model_type is `family`, without architectures. NULL: no memory. */
json_t *sheaf__config_text_object(const json_t *root, const json_t *inner,
                                  const char *const *shared_keys, const char *family);
/* sheaf__config_want_word - refuses another text under `key`; absent or null is taken. */
void sheaf__config_want_word(sheaf_json_reader *r, const char *key, const char *word);
/* sheaf__config_read_id - one token id below `vocab`; -1: absent, null or -1, which mean none. */
int64_t sheaf__config_read_id(sheaf_json_reader *r, const char *key, int64_t vocab);
void sheaf__config_read_eos(sheaf_json_reader *r, sheaf_config *c);
void sheaf__config_read_tokenizer(sheaf_json_reader *r, sheaf_config *c);
/* sheaf__config_read_dtype - dtype (5.x) or torch_dtype (4.x). */
void sheaf__config_read_dtype(sheaf_json_reader *r, sheaf_config *c);
