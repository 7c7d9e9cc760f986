/* added.h - private: added tokens, which are found in a text before all other steps. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"
#include "vocab.h"

enum { SHEAF__ADDED_MAX = 4096 }; /* bytes of one token; bounds the search at one position */

typedef struct sheaf__added_token {
    char *content; /* as it is written; ends with NUL */
    size_t size;
    char *normal; /* `content` after the normalizer; the same pointer if equal or if the token is
                     not `normalized` */
    size_t normal_size;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} sheaf__added_token;

/* Tokens to find, the longest at each position. */
typedef struct sheaf__added_list {
    struct sheaf__added_item {
        const sheaf__added_token *token;
        int64_t shorter; /* index of the longest token that is a prefix of this one; -1: none */
    } * item;            /* by `normal`, ascending */
    int64_t count, capacity;
    bool first[256]; /* some token begins with this byte */
} sheaf__added_list;

typedef struct sheaf__added {
    sheaf__added_token *token; /* by id, ascending, once opened */
    sheaf__vocab names;        /* their ids */
    int64_t count, capacity;
    sheaf__added_list plain, normalized; /* found before and after normalizing */
} sheaf__added;

void sheaf__added_release(sheaf__added *a);
/* sheaf__added_of - NULL: no added token has this id. */
const sheaf__added_token *sheaf__added_of(const sheaf__added *a, int32_t id);
const sheaf__added_token *sheaf__added_find(const sheaf__added *a, const char *token, size_t size);
/* sheaf__added_put - commits the token after the last one. Errors: as in sheaf__vocab_add(). */
sheaf_status *sheaf__added_put(sheaf__added *a);
/* sheaf__added_index - sorts the tokens and builds the two lists; each `normal` is set before. */
sheaf_status *sheaf__added_index(sheaf__added *a);

/* sheaf__added_next - the next token in bytes [from, size) of `text`. `done` is the end of the
 * previous token with the spaces that it took: lstrip takes none before that. `plain` (with its
 * context) returns up to where a special token at these bytes is text, else 0. */
typedef size_t sheaf__is_plain(const void *context, size_t begin, size_t end);
typedef struct sheaf__added_match {
    size_t begin, end; /* with the spaces that it takes */
    size_t next;       /* place to continue at */
    int32_t id;
} sheaf__added_match;
bool sheaf__added_next(sheaf__added_match *out, const sheaf__added_list *list, const char *text,
                       size_t size, size_t from, size_t done, sheaf__is_plain *plain,
                       const void *context);
