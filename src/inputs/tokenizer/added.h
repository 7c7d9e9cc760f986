/* added.h - private: tokens that are found in a text before anything else is done with it. */
#pragma once

#include "base/base.h"
#include "sheaf/status.h"
#include "vocab.h"

enum { SHEAF__ADDED_MAX = 4096 }; /* bytes of one: what a search may compare at a place */

typedef struct sheaf__added_token {
    char *content; /* as it is written; ends with NUL */
    size_t size;
    char *normal; /* `content` as the normalizer leaves it; the same pointer where that is the same,
                     and for a token that is not `normalized` */
    size_t normal_size;
    int32_t id;
    bool special, single_word, lstrip, rstrip, normalized;
} sheaf__added_token;

/* Tokens to look for, longest first at each place. */
typedef struct sheaf__added_list {
    struct sheaf__added_item {
        const sheaf__added_token *token;
        int64_t shorter; /* the longest that this one begins with; -1: none */
    } * item;            /* by `normal`, ascending */
    int64_t count, capacity;
    bool first[256]; /* some begins with this byte */
} sheaf__added_list;

typedef struct sheaf__added {
    sheaf__added_token *token; /* by id, ascending, once opened */
    sheaf__vocab names;        /* their ids */
    int64_t count, capacity;
    sheaf__added_list plain, normalized; /* looked for before and after normalizing */
} sheaf__added;

void sheaf__added_release(sheaf__added *a);
/* sheaf__added_of - NULL: no added token has this id. */
const sheaf__added_token *sheaf__added_of(const sheaf__added *a, int32_t id);
const sheaf__added_token *sheaf__added_find(const sheaf__added *a, const char *token, size_t size);
/* sheaf__added_put - counts the token behind the last one. Errors: as in sheaf__vocab_add(). */
sheaf_status *sheaf__added_put(sheaf__added *a);
/* sheaf__added_index - sorts, and makes the two lists; each `normal` is there. */
sheaf_status *sheaf__added_index(sheaf__added *a);

/* sheaf__added_next - the next token in bytes [from, size) of `text`. `done` is where the token
 * before it ended, spaces that it took included: lstrip takes none before that. `plain` (with its
 * context) says whether a special token at these bytes is text: how far that holds, else 0. */
typedef size_t sheaf__is_plain(const void *context, size_t begin, size_t end);
typedef struct sheaf__added_match {
    size_t begin, end; /* spaces that it takes included */
    size_t next;       /* where to look on */
    int32_t id;
} sheaf__added_match;
bool sheaf__added_next(sheaf__added_match *out, const sheaf__added_list *list, const char *text,
                       size_t size, size_t from, size_t done, sheaf__is_plain *plain,
                       const void *context);
