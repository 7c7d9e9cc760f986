/* text_inner.h - private to text_record.c and text_messages.c: the pieces of a record. */
#pragma once

#include "base/text.h"
#include "data/text_record.h"

enum { SHEAF__TEXT_NAME = 96, SHEAF__MOST_MESSAGES = 10000 };

/* What one message of a form is called. Some data sets have the words of the other form. */
typedef struct sheaf__text_words {
    const char *role, *content, *user, *assistant;
} sheaf__text_words;
extern const sheaf__text_words sheaf__text_openai, sheaf__text_sharegpt;
/* Those of a list: the usual ones, or the others where only they fit its first message. */
const sheaf__text_words *sheaf__text_words_of(const json_t *list, const sheaf__text_words *usual);

/* sheaf__text_role - "user", "assistant" or "system", by any name it is read under; NULL: none. */
const char *sheaf__text_role(const char *given);

/* The kind of a value, "a string", for messages; is a text nothing but blanks? */
const char *sheaf__text_kind(const json_t *value);
bool sheaf__text_blank(const char *text, size_t size);
sheaf_status *sheaf__text_string(sheaf__text_piece *out, const json_t *value, const char *name);
/* sheaf__text_keep - one string of several, which the record owns. */
sheaf_status *sheaf__text_keep(sheaf__text_piece *out, sheaf__text_record *r, sheaf_text *whole);

/* sheaf__text_room, sheaf__text_put - room for so many messages more, and one of them. */
sheaf_status *sheaf__text_room(sheaf__text_record *r, size_t more);
void sheaf__text_put(sheaf__text_record *r, const char *role, sheaf__text_piece content,
                     bool trained);
/* sheaf__text_put_pair - a question and its answer, the field `name`. */
sheaf_status *sheaf__text_put_pair(sheaf__text_record *r, sheaf__text_piece question,
                                   sheaf__text_piece answer, const char *name);
/* sheaf__text_beside - what a form may say beside its list: the system's text, and no tools. */
sheaf_status *sheaf__text_beside(sheaf__text_record *r, const json_t *record);
/* sheaf__text_list - the messages of a list, called `name`. */
sheaf_status *sheaf__text_list(sheaf__text_record *r, const json_t *list,
                               const sheaf__text_words *usual, const char *name);
/* sheaf__text_end - is there an answer at the end, or anything to be trained? */
sheaf_status *sheaf__text_end(const sheaf__text_record *r, const char *name,
                              const sheaf__text_words *w);
/* sheaf__text_conversation - all of a record whose list is under `name`. */
sheaf_status *sheaf__text_conversation(sheaf__text_record *r, const json_t *record,
                                       const char *name, const sheaf__text_words *w);
