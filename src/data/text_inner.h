/* text_inner.h - private to text_record.c and text_messages.c: the pieces of a record. */
#pragma once

#include "base/text.h"
#include "data/text_record.h"

enum { SHEAF__TEXT_NAME = 96, SHEAF__MOST_MESSAGES = 10000 };

/* The keys and roles of a message in one form. Some data sets mix them with the other form's. */
typedef struct sheaf__text_words {
    const char *role, *content, *user, *assistant;
} sheaf__text_words;
extern const sheaf__text_words sheaf__text_openai, sheaf__text_sharegpt;
/* The words of a list: `usual`, or the other form's where only they fit its first message. */
const sheaf__text_words *sheaf__text_words_of(const json_t *list, const sheaf__text_words *usual);

/* sheaf__text_role - "user", "assistant" or "system", by any of their names; NULL: unknown. */
const char *sheaf__text_role(const char *given);

/* The JSON type of a value for messages, "a string"; does a text have blanks only? */
const char *sheaf__text_kind(const json_t *value);
bool sheaf__text_blank(const char *text, size_t size);
sheaf_status *sheaf__text_string(sheaf__text_piece *out, const json_t *value, const char *name);
/* sheaf__text_part_type - of a part of a content: its "type", or what its one key says, as Qwen's
 * templates take it; NULL: neither. */
const char *sheaf__text_part_type(const json_t *part);
/* sheaf__text_stands_for - the name of the picture or the video that a part of this type is; NULL:
 * it is neither. */
const char *sheaf__text_stands_for(const char *type);
/* sheaf__text_keep - moves an assembled string into the record, which owns it. */
sheaf_status *sheaf__text_keep(sheaf__text_piece *out, sheaf__text_record *r, sheaf_text *whole);

/* sheaf__text_room, sheaf__text_put - reserves `more` messages; appends one of them. */
sheaf_status *sheaf__text_room(sheaf__text_record *r, size_t more);
void sheaf__text_put(sheaf__text_record *r, const char *role, sheaf__text_piece content,
                     bool trained);
/* sheaf__text_put_pair - a question and its answer, the field `name`. */
sheaf_status *sheaf__text_put_pair(sheaf__text_record *r, sheaf__text_piece question,
                                   sheaf__text_piece answer, const char *name);
extern const char sheaf__text_kwargs[]; /* "chat_template_kwargs", variables of the template */
/* sheaf__text_beside - fields beside the list: the system's text, tools, and these. */
sheaf_status *sheaf__text_beside(sheaf__text_record *r, const json_t *record);
/* sheaf__text_list - the messages of a list, called `name`. */
sheaf_status *sheaf__text_list(sheaf__text_record *r, const json_t *list,
                               const sheaf__text_words *usual, const char *name);
/* sheaf__text_end - does it end with an answer, and is any answer trained? */
sheaf_status *sheaf__text_end(const sheaf__text_record *r, const char *name,
                              const sheaf__text_words *w);
/* sheaf__text_conversation - reads a record whose list is the field `name`. */
sheaf_status *sheaf__text_conversation(sheaf__text_record *r, const json_t *record,
                                       const char *name, const sheaf__text_words *w);
