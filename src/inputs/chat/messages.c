/* messages.c - see messages.h. */
#include "inputs/chat/messages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/json.h"
#include "base/text.h"

static sheaf_status *refuse(sheaf_code code, const char *field, const char *expected,
                            const json_t *found)
{
    char shown[96];
    sheaf_status *st = sheaf_expected(sheaf_fail(code, "'%s'", field), "%s", expected);
    return sheaf_found(st, "%s", found == NULL ? "no such field" : sheaf__json_show(shown, found));
}

/* ---- contents ---- */

static sheaf_status *add_part(sheaf_text *text, const json_t *part)
{
    const char *type = json_string_value(json_object_get(part, "type"));
    const json_t *words = json_object_get(part, "text");
    if (type == NULL || strcmp(type, "text") != 0)
        return refuse(type != NULL ? SHEAF_E_UNSUPPORTED : SHEAF_E_DATA, "content",
                      "parts of type text", type != NULL ? json_object_get(part, "type") : part);
    if (!json_is_string(words))
        return refuse(SHEAF_E_DATA, "text", "a string", words);
    sheaf__text_bytes(text, json_string_value(words), json_string_length(words));
    return NULL;
}

static sheaf_status *join_parts(sheaf__messages *c, sheaf__message *m, const json_t *parts)
{
    sheaf_text text = { 0 };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < json_array_size(parts) && st == NULL; i++)
        st = add_part(&text, json_array_get(parts, i));
    m->size = text.size;
    TRY(st, sheaf__text_take(&c->joined[c->joins], &text));
    if (st != NULL) {
        sheaf__text_release(&text);
        return st;
    }
    m->content = c->joined[c->joins++];
    return NULL;
}

static bool all_texts(const json_t *parts)
{
    bool all = true;
    for (size_t i = 0; i < json_array_size(parts); i++) {
        const char *type = json_string_value(json_object_get(json_array_get(parts, i), "type"));
        all = all && (type == NULL || strcmp(type, "text") == 0);
    }
    return all;
}

static sheaf_status *read_content(sheaf__messages *c, sheaf__message *m, const json_t *content,
                                  const char *field, bool may_be_list)
{
    const bool calls = json_array_size(json_object_get(m->json, "tool_calls")) > 0;
    if (may_be_list && json_is_array(content) && all_texts(content))
        return join_parts(c, m, content);
    if (may_be_list &&
        (json_is_array(content) || (calls && (content == NULL || json_is_null(content)))))
        return NULL; /* the program has it from the object */
    if (!json_is_string(content))
        return refuse(SHEAF_E_DATA, field,
                      may_be_list ? "a string, or a list of parts" : "a string", content);
    m->content = json_string_value(content);
    m->size = json_string_length(content);
    return NULL;
}

/* ---- messages ---- */

/* ShareGPT's names; others stand for themselves, and the template refuses them. */
static const char *role_of(const char *from)
{
    static const char *const names[][2] = {
        { "human", "user" },        { "gpt", "assistant" },  { "model", "assistant" },
        { "chatgpt", "assistant" }, { "bing", "assistant" }, { "bard", "assistant" },
        { "observation", "tool" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(from, names[i][0]) == 0)
            return names[i][1];
    return from;
}

static sheaf_status *read_message(sheaf__messages *c, const json_t *value, bool sharegpt)
{
    sheaf__message *m = &c->message[c->count];
    const char *who = sharegpt ? "from" : "role";
    const json_t *role = json_object_get(value, who);
    if (!json_is_object(value))
        return refuse(SHEAF_E_DATA, "messages", "objects", value);
    if (!json_is_string(role))
        return refuse(SHEAF_E_DATA, who, "a string", role);
    m->role = sharegpt ? role_of(json_string_value(role)) : json_string_value(role);
    m->json = sharegpt || json_object_size(value) <= 2 ? NULL : value;
    if (json_is_array(json_object_get(value, "content")))
        m->json = value;
    sheaf_status *st = sharegpt
                           ? read_content(c, m, json_object_get(value, "value"), "value", false)
                           : read_content(c, m, json_object_get(value, "content"), "content", true);
    c->count += st == NULL;
    return st;
}

static bool is_given(const json_t *value)
{
    return value != NULL && !json_is_null(value) &&
           !(json_is_array(value) && json_array_size(value) == 0) &&
           !(json_is_string(value) && json_string_length(value) == 0);
}

static sheaf_status *read_system(sheaf__messages *c, const json_t *system)
{
    if (!is_given(system))
        return NULL;
    c->message[0].role = "system";
    sheaf_status *st = read_content(c, &c->message[0], system, "system", false);
    c->count += st == NULL;
    return st;
}

sheaf_status *sheaf__messages_read(sheaf__messages *out, const json_t *record)
{
    const json_t *messages = json_object_get(record, "messages");
    const json_t *conversations = json_object_get(record, "conversations");
    const bool sharegpt = messages == NULL;
    const json_t *list = sharegpt ? conversations : messages;
    *out = (sheaf__messages){ 0 };
    if (!json_is_object(record))
        return refuse(SHEAF_E_DATA, "record", "an object", record);
    if (messages != NULL && conversations != NULL)
        return refuse(SHEAF_E_DATA, "conversations", "not beside 'messages'", conversations);
    if (list == NULL)
        return refuse(SHEAF_E_DATA, "messages", "a list of messages, or 'conversations'", NULL);
    const char *name = sharegpt ? "conversations" : "messages";
    if (!json_is_array(list) || json_array_size(list) == 0)
        return refuse(SHEAF_E_DATA, name, "a list of at least one message", list);
    if (is_given(json_object_get(record, "tools"))) {
        out->tools = json_object_get(record, "tools");
        if (!json_is_array(out->tools))
            return refuse(SHEAF_E_DATA, "tools", "a list of descriptions of tools", out->tools);
    }
    const size_t n = json_array_size(list);
    out->message = calloc(n + 1, sizeof *out->message);
    out->joined = calloc(n, sizeof *out->joined);
    if (out->message == NULL || out->joined == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "messages");
    sheaf_status *st = read_system(out, json_object_get(record, "system"));
    /* MiniCPM-V's conversations have the words of messages */
    const json_t *first = json_array_get(list, 0);
    const bool from = sharegpt && (json_object_get(first, "from") != NULL ||
                                   json_object_get(first, "role") == NULL);
    for (size_t i = 0; i < n && st == NULL; i++)
        st = sheaf_in(read_message(out, json_array_get(list, i), from), "message %zu", i + 1);
    return st;
}

void sheaf__messages_release(sheaf__messages *c)
{
    for (int64_t i = 0; i < c->joins; i++)
        free(c->joined[i]);
    free(c->joined);
    free(c->message);
    *c = (sheaf__messages){ 0 };
}
