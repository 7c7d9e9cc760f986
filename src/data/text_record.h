/* text_record.h - one record of a text data set, in any of the common forms.
 *
 *   messages       {"messages": [{"role": "user", "content": Q},
 *                                {"role": "assistant", "content": A}]}
 *   conversations  {"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value": A}]}
 *   instruction    {"instruction": I, "input": X or none, "output": A}; I and X are one question,
 *                  with a line break between; "system" and "history": [[Q, A], ...] are optional
 *   prompt         {"prompt": P, "completion": C} (or "answer"): strings, or lists of messages
 *   text           {"text": T}
 *
 * A text model's chat template decides which roles there are and in which order; the last message
 * is an answer. With pictures a "system" message comes first or not at all, then user and assistant
 * take turns. "tools" beside the list describes the tools of "tool_calls". A content may be a list
 * of parts of type text, and pictures, where they are read. An assistant's message with "weight": 0
 * (OpenAI's), or another of the fields of text_messages.c that say so, has no labels. A field that
 * is null counts as absent. Texts are borrowed from the JSON, which the record holds. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "data/fields.h"
#include "inputs/chat/chat.h"
#include "sheaf/status.h"

typedef enum sheaf__text_form {
    SHEAF__FORM_NONE,
    SHEAF__FORM_MESSAGES,
    SHEAF__FORM_CONVERSATIONS,
    SHEAF__FORM_INSTRUCTION,
    SHEAF__FORM_PROMPT,
    SHEAF__FORM_TEXT
} sheaf__text_form;

typedef struct sheaf__text_message {
    const char *role; /* "system", "user", "assistant", "tool" or another */
    const char *content;
    size_t size;
    bool trained;       /* an answer with labels */
    const json_t *json; /* the message, where it has tool calls, thoughts or a name; or NULL */
} sheaf__text_message;

/* How the caller reads pictures. */
typedef enum sheaf__picture_parts {
    SHEAF__PARTS_NONE,   /* not at all */
    SHEAF__PARTS_BESIDE, /* from fields beside the messages; parts of contents by part() */
    /* from both (data/record_pictures.h); a part of a content is "<image>" in its text, as the part
     * before and behind it, or on a line of its own */
    SHEAF__PARTS_JOINED,
    SHEAF__PARTS_LINES
} sheaf__picture_parts;

typedef struct sheaf__text_record {
    sheaf__text_form form;
    /* a conversation; none: prompt and text */
    sheaf__text_message *message;
    int64_t messages;
    const json_t *tools;       /* descriptions, a list; or NULL */
    const json_t *kwargs;      /* variables of the chat template, an object; or NULL */
    const char *prompt, *text; /* prompt NULL: all of `text` is trained */
    size_t prompt_size, text_size;
    bool answer_optional; /* the last answer may be missing */
    sheaf__picture_parts pictures;
    bool any_order; /* the caller checks the order of roles; empty answers are accepted */
    bool pairs;     /* a prompt and its completion are two messages; a plain text is refused */
    bool no_system; /* templates have no place for a system's message */
    bool any_parts; /* messages are the template's whole: a content may be a list of parts of any
                       type, that of an answer missing */
    /* Called for a part of a content that is not text; NULL: such parts are refused. r->messages
     * counts the messages before it. */
    sheaf_status *(*part)(void *self, const struct sheaf__text_record *r, const json_t *part,
                          const char *type, const char *name);
    void *part_self;
    char ignored[64]; /* name of an unread field, or "" */
    /* field of an unread picture, SHEAF__PICTURE_SPELLED or SHEAF__PICTURE_SAID; NULL: none */
    const char *lost;
    json_t *json;
    char **owned; /* assembled texts */
    int64_t nowned;
} sheaf__text_record;

/* The word for a form, "messages". */
const char *sheaf__text_form_name(sheaf__text_form form);
/* sheaf__text_record_json - parses a record. `fields` renames fields; NULL: no renames. Errors:
 * SHEAF_E_DATA (column, or field), SHEAF_E_MEMORY. Thread-safe. */
sheaf_status *sheaf__text_record_json(json_t **out, const char *json, size_t size,
                                      const sheaf__fields *fields);
/* sheaf__text_record_take - reads a parsed record: `json` and the options are set. Errors as above.
 * Release also after a failure. Thread-safe. */
sheaf_status *sheaf__text_record_take(sheaf__text_record *record);
/* sheaf__text_record_prompt - the same for inference, from a parsed record: the answer at the end
 * may be missing (`text` is then NULL, the last message a user's), and "text" beside "prompt" is
 * ignored. */
sheaf_status *sheaf__text_record_prompt(sheaf__text_record *out, json_t *json,
                                        sheaf__picture_parts pictures);
/* sheaf__text_record_list - the messages of a record of messages or conversations, in any order.
 *   any_parts  contents with parts other than text stay in the message's `json` */
sheaf_status *sheaf__text_record_list(sheaf__text_record *out, json_t *json,
                                      sheaf__picture_parts pictures, bool any_parts);
/* sheaf__text_chat_messages - fills out[record->messages] for a chat template. */
void sheaf__text_chat_messages(sheaf__message *out, const sheaf__text_record *record);
/* sheaf__text_other_field - the first field other than "id" and known[n], which a NULL may end
 * earlier; "": none. Borrowed from the record. */
const char *sheaf__text_other_field(json_t *record, const char *const *known, int n);
/* sheaf__text_preference - SHEAF_E_DATA for a record with an answer that must not be trained: pairs
 * of DPO, ORPO and reward models, and bad answers of KTO. */
sheaf_status *sheaf__text_preference(const json_t *record);
/* sheaf__text_said_picture - the first message that is no user's and has the name of a picture,
 * which is text there (inputs/places.h); -1: none. */
int64_t sheaf__text_said_picture(const sheaf__text_record *record);
/* sheaf__text_nothing_learned - SHEAF_E_DATA: why the row of `r` has no label. */
sheaf_status *sheaf__text_nothing_learned(const sheaf__text_record *r, bool only_last);
void sheaf__text_record_release(sheaf__text_record *record);
