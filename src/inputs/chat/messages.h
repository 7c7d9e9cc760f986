/* messages.h - the messages of one record, as people write them down.
 *
 *   {"messages": [{"role": "user", "content": "..."}, ...]}            OpenAI, Hugging Face
 *   {"conversations": [{"from": "human", "value": "..."}, ...]}        ShareGPT
 *
 * In `messages` a content may be a list of {"type": "text", "text": "..."}, whose texts are joined;
 * with parts of other types it is the program's, as it is. Calls of tools, their results ("role":
 * "tool") and thoughts in fields of their own go to the program too, and a list "tools" beside.
 * In `conversations` human and user are a user, gpt, assistant, model, chatgpt, bing and bard the
 * assistant. In both, a "system" beside the list is a system message before it. */
#ifndef SHEAF_INPUTS_CHAT_MESSAGES_H
#define SHEAF_INPUTS_CHAT_MESSAGES_H

#include <jansson.h>
#include <stdint.h>

#include "inputs/chat/chat.h"

typedef struct sheaf__messages {
    sheaf__message *message; /* roles and contents borrowed from the record, or `joined` */
    int64_t count;
    char **joined;
    int64_t joins;
    const json_t *tools; /* of the record, or NULL */
} sheaf__messages;

/* sheaf__messages_read - `record` must outlive *out. Release also after a failure. Errors:
 * SHEAF_E_DATA naming message (from 1) and field; SHEAF_E_MEMORY. */
sheaf_status *sheaf__messages_read(sheaf__messages *out, const json_t *record);
void sheaf__messages_release(sheaf__messages *c);

#endif
