/* text_record.h - one record of a text data set, in any of the forms people have.
 *
 *   messages       {"messages": [{"role": "user", "content": Q}, {"role": "assistant", "content":
 * A}]} conversations  {"conversations": [{"from": "human", "value": Q}, {"from": "gpt", "value":
 * A}]} instruction    {"instruction": I, "input": X or none, "output": A}; I and X are one
 * question, with a line break between; "system" and "history": [[Q, A], ...] may stand beside
 *   prompt         {"prompt": P, "completion": C} (or "answer"): strings, or lists of messages
 *   text           {"text": T}
 * A "system" message comes first or not at all; then user and assistant take turns, the user first
 * and the assistant last. Behind an assistant's "tool_calls" stand the "tool" messages with their
 * results, and the assistant again; "tools" beside the list describes them. A content may be a list
 * of parts of type text. An assistant's "weight": 0 (OpenAI's) is read and not trained.
 * A field that is null is none. Texts are borrowed from the JSON, which the record holds. */
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
    const char *role; /* "system", "user", "assistant" or "tool" */
    const char *content;
    size_t size;
    bool trained;       /* an answer to be learned */
    const json_t *json; /* the message, where it has calls of tools, thoughts or a name; or NULL */
} sheaf__text_message;

typedef struct sheaf__text_record {
    sheaf__text_form form;
    /* a conversation; none: prompt and text */
    sheaf__text_message *message;
    int64_t messages;
    const json_t *tools;       /* descriptions, a list; or NULL */
    const char *prompt, *text; /* prompt NULL: all of `text` is trained */
    size_t prompt_size, text_size;
    bool answer_optional; /* its last answer may be missing */
    bool pictures;        /* "image" and "images" are read, by others */
    bool any_order;       /* whose turn it is others check, and empty answers are some */
    bool pairs;     /* a prompt and its completion are two messages, and a whole text is none */
    bool no_system; /* templates have no place for a system's message */
    bool any_parts; /* a content may be a list of parts of any type */
    /* Takes a part of a content that is no text; NULL: such are refused. `messages` are those
     * before it. */
    sheaf_status *(*part)(void *self, const struct sheaf__text_record *r, const json_t *part,
                          const char *type, const char *name);
    void *part_self;
    char ignored[64]; /* name of a field that is not read, or "" */
    /* of a picture that is not read: its field, or SHEAF__PICTURE_SPELLED; NULL: none */
    const char *lost;
    json_t *json;
    char **owned; /* texts that were put together */
    int64_t nowned;
} sheaf__text_record;

/* The word for a form, "messages". */
const char *sheaf__text_form_name(sheaf__text_form form);
/* sheaf__text_record_read - fields that have other names: `fields`; NULL: none. Errors:
 * SHEAF_E_DATA (column, or field), SHEAF_E_MEMORY. Release also after a failure. Thread-safe. */
sheaf_status *sheaf__text_record_read(sheaf__text_record *out, const char *json, size_t size,
                                      const sheaf__fields *fields);
/* sheaf__text_record_parse - the same of a struct that says what is asked of the record. */
sheaf_status *sheaf__text_record_parse(sheaf__text_record *record, const char *json, size_t size,
                                       const sheaf__fields *fields);
/* sheaf__text_record_take - the same of a record that was parsed: `json` is set, and what is asked
 * of it. */
sheaf_status *sheaf__text_record_take(sheaf__text_record *record);
/* sheaf__text_record_prompt - the same of a record that was parsed, for inference: the answer at
 * the end may be missing (`text` is then NULL, the last message a user's), and "text" beside
 * "prompt" is not read. */
sheaf_status *sheaf__text_record_prompt(sheaf__text_record *out, json_t *json, bool pictures);
/* sheaf__text_record_list - the messages of a record of messages or conversations, in any order.
 *   any_parts  contents that are lists of other parts than texts are left to `json` of a message */
sheaf_status *sheaf__text_record_list(sheaf__text_record *out, json_t *json, bool pictures,
                                      bool any_parts);
/* sheaf__text_chat_messages - out[record->messages]: as a chat template takes them. */
void sheaf__text_chat_messages(sheaf__message *out, const sheaf__text_record *record);
/* sheaf__text_other_field - the first field that is none of known[n], which a NULL may end, nor
 * "id"; "": none. Borrowed from the record. */
const char *sheaf__text_other_field(json_t *record, const char *const *known, int n);
/* sheaf__text_preference - SHEAF_E_DATA for a record with an answer that must not be learned: pairs
 * of DPO, ORPO and reward models, and one of KTO that is marked as bad. */
sheaf_status *sheaf__text_preference(const json_t *record);
/* sheaf__text_nothing_learned - SHEAF_E_DATA: why a row of `r` teaches nothing. */
sheaf_status *sheaf__text_nothing_learned(const sheaf__text_record *r, bool only_last);
void sheaf__text_record_release(sheaf__text_record *record);
