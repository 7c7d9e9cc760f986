/* text_record.c - see text_record.h. */
#include "data/text_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/no_memory.h"
#include "base/text.h"
#include "data/complaints.h"
#include "data/json_items.h"

enum { NAME = 96, MOST_MESSAGES = 10000 };

static const char *kind_of(const json_t *value)
{
    if (value == NULL)
        return "no such field";
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_STRING: return "a string";
    case JSON_INTEGER:
    case JSON_REAL: return "a number";
    case JSON_TRUE:
    case JSON_FALSE: return "a truth value";
    default: return "null";
    }
}

static bool is_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (strchr(" \t\r\n\v\f", text[i]) == NULL || text[i] == '\0')
            return false;
    return true;
}

/* ---- texts ---- */

typedef struct text {
    const char *at;
    size_t size;
} text;

static sheaf_status *take_string(text *out, const json_t *value, const char *name)
{
    if (!json_is_string(value))
        return sheaf__bad_field(name, "a string", "%s", kind_of(value));
    *out = (text){ json_string_value(value), json_string_length(value) };
    return NULL;
}

/* One string of several, which the record owns. */
static sheaf_status *keep(text *out, sheaf__text_record *r, sheaf_text *whole)
{
    if (!SHEAF_GROW(&r->owned, NULL, r->nowned + 1))
        return sheaf__no_memory("data set");
    out->size = whole->size;
    sheaf_status *st = sheaf__text_take(&r->owned[r->nowned], whole);
    if (st == NULL)
        out->at = r->owned[r->nowned++];
    return st;
}

/* Pictures have no place in a content: they stand beside the messages. */
static sheaf_status *other_part(const char *name, const char *type, bool pictures)
{
    sheaf_status *st = sheaf__bad_field(
        name,
        pictures ? "a part of type text" : "a part of type text: this model reads nothing else",
        "type '%.40s'", type);
    return pictures ? sheaf_try_this(st, "\"images\": [PATH, ...] beside the messages, and "
                                         "\"<image>\" in a user's text where each stands")
                    : st;
}

static sheaf_status *add_part(sheaf_text *whole, const json_t *part, const char *name,
                              bool pictures)
{
    text piece;
    const char *type = json_string_value(json_object_get(part, "type"));
    if (type == NULL)
        return sheaf__bad_field(name, "an object with a string \"type\"", "%s", kind_of(part));
    if (strcmp(type, "text") != 0)
        return other_part(name, type, pictures);
    sheaf_status *st = take_string(&piece, json_object_get(part, "text"), name);
    if (st == NULL)
        sheaf__text_bytes(whole, piece.at, piece.size);
    return st;
}

/* A string, or (of messages) a list of parts. */
static sheaf_status *take_content(text *out, sheaf__text_record *r, const json_t *value,
                                  const char *name)
{
    if (!json_is_array(value))
        return take_string(out, value, name);
    sheaf_text whole = { 0 };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < json_array_size(value) && st == NULL; i++) {
        char part[NAME + 32];
        snprintf(part, sizeof part, "%s[%zu]", name, i);
        st = add_part(&whole, json_array_get(value, i), part, r->pictures);
    }
    if (st == NULL)
        st = keep(out, r, &whole);
    sheaf__text_release(&whole);
    return st;
}

/* ---- conversations ---- */

/* What one message of a form is called. Some data sets have the words of the other form. */
typedef struct words {
    const char *role, *content, *user, *assistant;
} words;

static const words openai = { "role", "content", "user", "assistant" };
static const words sharegpt = { "from", "value", "human", "gpt" };

static sheaf_status *make_room(sheaf__text_record *r, size_t more)
{
    return SHEAF_GROW(&r->message, NULL, r->messages + (int64_t)more + 1)
               ? NULL
               : sheaf__no_memory("data set");
}

static void put(sheaf__text_record *r, const char *role, text content, bool trained)
{
    r->message[r->messages++] = (sheaf__text_message){ role, content.at, content.size, trained };
}

/* NULL: none that is read. */
static const char *role_of(const char *given)
{
    static const char *const names[][2] = {
        { "user", "user" },       { "human", "user" },        { "assistant", "assistant" },
        { "gpt", "assistant" },   { "chatgpt", "assistant" }, { "bot", "assistant" },
        { "model", "assistant" }, { "system", "system" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(given, names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

static bool is_tool(const char *role)
{
    static const char *const names[] = { "tool",        "function",    "function_call",
                                         "observation", "tool_call",   "function_response",
                                         "ipython",     "tool_result", "tool_response" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(role, names[i]) == 0)
            return true;
    return false;
}

/* Is it the turn of `role`? Counted from the first message that is no system's. */
static sheaf_status *check_turn(const sheaf__text_record *r, const char *role, const char *given,
                                const words *w, const char *name)
{
    const bool system = r->messages > 0 && strcmp(r->message[0].role, "system") == 0;
    const char *due = (r->messages - system) % 2 == 0 ? "user" : "assistant",
               *word = due[0] == 'u' ? w->user : w->assistant;
    char expected[160];
    if (role != NULL && (strcmp(role, due) == 0 || (r->messages == 0 && role[0] == 's')))
        return NULL;
    if (is_tool(given))
        snprintf(expected, sizeof expected, "system, %s and %s: calls of tools are not read",
                 w->user, w->assistant);
    else if (role == NULL)
        snprintf(expected, sizeof expected, "system, %s or %s", w->user, w->assistant);
    else if (role[0] == 's')
        snprintf(expected, sizeof expected, "system in the first message only");
    else
        snprintf(expected, sizeof expected, "%s: they take turns, %s first", word, w->user);
    return sheaf__bad_field(name, expected, "'%.40s'", given);
}

static sheaf_status *take_weight(bool *trained, const json_t *entry, const char *name)
{
    const json_t *weight = json_object_get(entry, "weight");
    if (weight == NULL || json_is_null(weight))
        return NULL;
    const double x = json_number_value(weight);
    if (!json_is_number(weight) || (x != 0 && x != 1))
        return sheaf__bad_field(name, "a weight of 0 or 1", "%s",
                                json_is_number(weight) ? "another number" : kind_of(weight));
    *trained = x != 0;
    return NULL;
}

static bool has_some(const json_t *value)
{
    return json_is_array(value) ? json_array_size(value) > 0
                                : value != NULL && !json_is_null(value);
}

static void note_other_keys(sheaf__text_record *r, json_t *entry, const words *w, const char *list)
{
    const char *key;
    json_t *value;
    if (r->ignored[0] != '\0')
        return;
    json_object_foreach(entry, key, value)
    {
        if (strcmp(key, w->role) != 0 && strcmp(key, w->content) != 0 &&
            strcmp(key, "weight") != 0 && has_some(value))
            snprintf(r->ignored, sizeof r->ignored, "%s[].%s", list, key);
    }
}

static sheaf_status *take_message(sheaf__text_record *r, json_t *entry, const words *w,
                                  const char *list, size_t index)
{
    char name[NAME];
    text content = { 0 };
    bool trained = true;
    snprintf(name, sizeof name, "%s[%zu].%s", list, index, w->role);
    const json_t *value = json_object_get(entry, w->role);
    if (!json_is_object(entry) || !json_is_string(value))
        return sheaf__bad_field(name, "a string, the name of a role", "%s",
                                json_is_object(entry) ? kind_of(value) : kind_of(entry));
    const char *given = json_string_value(value), *role = role_of(given);
    sheaf_status *st = check_turn(r, role, given, w, name);
    if (st == NULL && has_some(json_object_get(entry, "tool_calls"))) {
        snprintf(name, sizeof name, "%s[%zu].tool_calls", list, index);
        return sheaf__bad_field(name, "none: calls of tools are not read", "some");
    }
    snprintf(name, sizeof name, "%s[%zu].%s", list, index, w->content);
    if (st == NULL)
        st = take_content(&content, r, json_object_get(entry, w->content), name);
    if (st == NULL && role[0] == 'a' && is_blank(content.at, content.size))
        st = sheaf__bad_field(name, "an answer",
                              content.size == 0 ? "an empty string" : "nothing but blanks");
    if (st == NULL && role[0] == 'a') {
        snprintf(name, sizeof name, "%s[%zu].weight", list, index);
        st = take_weight(&trained, entry, name);
    }
    if (st == NULL) {
        put(r, role, content, role[0] == 'a' && trained);
        note_other_keys(r, entry, w, list);
    }
    return st;
}

static const words *words_of(const json_t *list, const words *usual)
{
    const json_t *first = json_array_get(list, 0);
    const words *other = usual == &openai ? &sharegpt : &openai;
    return json_object_get(first, usual->role) == NULL &&
                   json_object_get(first, other->role) != NULL
               ? other
               : usual;
}

static sheaf_status *take_list(sheaf__text_record *r, const json_t *list, const words *usual,
                               const char *name)
{
    const size_t n = json_array_size(list);
    const words *w = words_of(list, usual);
    if (!json_is_array(list))
        return sheaf__bad_field(name, "a list of messages", "%s", kind_of(list));
    if (n == 0 || n > MOST_MESSAGES)
        return sheaf__bad_field(name, "1 to 10000 messages", "%zu", n);
    sheaf_status *st = make_room(r, n);
    for (size_t i = 0; i < n && st == NULL; i++)
        st = take_message(r, json_array_get(list, i), w, name, i);
    return st;
}

static bool has_tools(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    return has_some(value) && !(json_is_string(value) && json_string_length(value) == 0);
}

/* What a form may say beside its list: the system's text, and tools. */
static sheaf_status *take_beside(sheaf__text_record *r, const json_t *record)
{
    static const char *const tools[] = { "tools", "functions" };
    const json_t *system = json_object_get(record, "system");
    text content;
    for (size_t i = 0; i < 2; i++)
        if (has_tools(record, tools[i]))
            return sheaf__bad_field(tools[i], "none: calls of tools are not read", "some");
    if (system == NULL || json_is_null(system))
        return NULL;
    sheaf_status *st = take_string(&content, system, "system");
    if (st == NULL && content.size > 0)
        st = make_room(r, 1);
    if (st == NULL && content.size > 0)
        put(r, "system", content, false);
    return st;
}

/* Roles before the count: what stands where it has no place is the better thing to tell. */
static sheaf_status *check_end(const sheaf__text_record *r, const char *name, const words *w)
{
    bool trained = false;
    for (int64_t i = 0; i < r->messages; i++)
        trained = trained || r->message[i].trained;
    if (r->asked)
        return NULL;
    if (r->messages > 0 && strcmp(r->message[r->messages - 1].role, "assistant") != 0)
        return sheaf__bad_field(name, "an answer at the end, to be trained",
                                "%" PRId64 " messages, the last is of %s", r->messages,
                                r->message[r->messages - 1].role[0] == 'u' ? w->user : "system");
    if (!trained)
        return sheaf__bad_field(name, "an answer that is trained", "a weight of 0 at all of them");
    return NULL;
}

static sheaf_status *take_conversation(sheaf__text_record *r, const json_t *record,
                                       const char *name, const words *w)
{
    sheaf_status *st = take_beside(r, record);
    if (st == NULL)
        st = take_list(r, json_object_get(record, name), w, name);
    return st == NULL ? check_end(r, name, w) : st;
}

/* ---- instruction, input and output ---- */

static sheaf_status *take_history(sheaf__text_record *r, const json_t *record)
{
    const json_t *history = json_object_get(record, "history");
    if (history == NULL || json_is_null(history))
        return NULL;
    if (!json_is_array(history) || json_array_size(history) > MOST_MESSAGES)
        return sheaf__bad_field("history", "a list of pairs of question and answer", "%s",
                                json_is_array(history) ? "too long a list" : kind_of(history));
    sheaf_status *st = make_room(r, 2 * json_array_size(history));
    for (size_t i = 0; i < json_array_size(history) && st == NULL; i++) {
        char name[NAME];
        text part[2];
        const json_t *pair = json_array_get(history, i);
        snprintf(name, sizeof name, "history[%zu]", i);
        if (json_array_size(pair) != 2)
            return sheaf__bad_field(name, "a pair of question and answer", "%s",
                                    json_is_array(pair) ? "a list of another length"
                                                        : kind_of(pair));
        for (size_t k = 0; k < 2 && st == NULL; k++)
            st = take_string(&part[k], json_array_get(pair, k), name);
        if (st == NULL && is_blank(part[1].at, part[1].size))
            st = sheaf__bad_field(name, "an answer", "none");
        if (st == NULL) {
            put(r, "user", part[0], false);
            put(r, "assistant", part[1], true);
        }
    }
    return st;
}

static sheaf_status *take_question(text *out, sheaf__text_record *r, const json_t *record)
{
    text input;
    const json_t *given = json_object_get(record, "input");
    sheaf_status *st = take_string(out, json_object_get(record, "instruction"), "instruction");
    if (st != NULL || given == NULL || json_is_null(given))
        return st;
    st = take_string(&input, given, "input");
    if (st != NULL || input.size == 0)
        return st;
    if (out->size == 0) {
        *out = input;
        return NULL;
    }
    sheaf_text whole = { 0 };
    sheaf__text_bytes(&whole, out->at, out->size);
    sheaf__text_bytes(&whole, "\n", 1);
    sheaf__text_bytes(&whole, input.at, input.size);
    st = keep(out, r, &whole);
    sheaf__text_release(&whole);
    return st;
}

/* An answer that may be missing, and is. */
static bool lacks(const sheaf__text_record *r, const json_t *answer)
{
    return r->asked && (answer == NULL || json_is_null(answer));
}

static sheaf_status *take_instruction(sheaf__text_record *r, const json_t *record)
{
    text question, answer;
    sheaf_status *st = take_beside(r, record);
    if (st == NULL)
        st = take_history(r, record);
    if (st == NULL)
        st = take_question(&question, r, record);
    if (st == NULL && lacks(r, json_object_get(record, "output")))
        answer = (text){ "", 0 };
    else if (st == NULL)
        st = take_string(&answer, json_object_get(record, "output"), "output");
    const bool blank = st == NULL && is_blank(answer.at, answer.size);
    if (blank && !r->asked)
        st = sheaf__bad_field("output", "an answer",
                              answer.size == 0 ? "an empty string" : "nothing but blanks");
    if (st == NULL)
        st = make_room(r, 2);
    if (st == NULL) {
        put(r, "user", question, false);
        if (!blank)
            put(r, "assistant", answer, true);
    }
    return st;
}

/* ---- prompt and completion, text ---- */

/* A dialogue that goes on: only what the completion answers is trained. */
static sheaf_status *take_message_pair(sheaf__text_record *r, const json_t *record)
{
    sheaf_status *st = take_list(r, json_object_get(record, "prompt"), &openai, "prompt");
    const int64_t read = r->messages;
    for (int64_t i = 0; i < read; i++)
        r->message[i].trained = false;
    if (st == NULL && !lacks(r, json_object_get(record, "completion")))
        st = take_list(r, json_object_get(record, "completion"), &openai, "completion");
    return st == NULL ? check_end(r, "completion", &openai) : st;
}

static sheaf_status *string_field(text *out, const json_t *record, const char *name,
                                  bool may_be_empty)
{
    const json_t *value = json_object_get(record, name);
    if (value == NULL)
        return sheaf__bad_field(name, "a record has \"prompt\" and \"completion\", or \"text\"",
                                "no such field");
    sheaf_status *st = take_string(out, value, name);
    if (st == NULL && !may_be_empty && out->size == 0)
        st = sheaf__bad_field(name, "at least one byte to train", "an empty string");
    return st;
}

static sheaf_status *take_pair(sheaf__text_record *r, const json_t *record)
{
    text prompt, completion = { 0 };
    const json_t *answer = json_object_get(record, "completion");
    if (json_is_array(json_object_get(record, "prompt")) &&
        (json_is_array(answer) || lacks(r, answer)))
        return take_message_pair(r, record);
    sheaf_status *st = string_field(&prompt, record, "prompt", true);
    if (st == NULL && !lacks(r, answer))
        st = string_field(&completion, record, "completion", r->asked);
    if (st == NULL) {
        r->prompt = prompt.at;
        r->prompt_size = prompt.size;
        r->text = completion.at;
        r->text_size = completion.size;
    }
    return st;
}

static sheaf_status *take_text(sheaf__text_record *r, const json_t *record)
{
    text whole;
    sheaf_status *st = string_field(&whole, record, "text", false);
    if (st == NULL) {
        r->text = whole.at;
        r->text_size = whole.size;
    }
    return st;
}

/* ---- one record ---- */

/* What each form reads; the first is what tells it. Those before win: real data sets of messages
 * also have a prompt, and those of instructions a text. */
static const struct {
    const char *name, *fields[6];
} forms[] = {
    [SHEAF__FORM_MESSAGES] = { "messages", { "messages", "system", "tools", "functions" } },
    [SHEAF__FORM_CONVERSATIONS] = { "conversations",
                                    { "conversations", "system", "tools", "functions" } },
    [SHEAF__FORM_INSTRUCTION] = { "instruction",
                                  { "instruction", "input", "output", "system", "history",
                                    "tools" } },
    [SHEAF__FORM_PROMPT] = { "prompt", { "prompt", "completion" } },
    [SHEAF__FORM_TEXT] = { "text", { "text" } },
};

const char *sheaf__text_form_name(sheaf__text_form form)
{
    return form == SHEAF__FORM_NONE ? "no form" : forms[form].name;
}

static sheaf_status *choose_form(sheaf__text_form *out, const json_t *record, bool asked)
{
    static const char expected[] =
        "an object, {\"prompt\": ..., \"completion\": ...} or {\"text\": ...}, or with \"messages\", "
        "\"conversations\" or \"instruction\"";
    if (!json_is_object(record))
        return sheaf__bad_field(NULL, expected, "%s", kind_of(record));
    const bool completion = json_object_get(record, "completion") != NULL,
               pair = completion || json_object_get(record, "prompt") != NULL;
    *out = SHEAF__FORM_NONE;
    for (int f = SHEAF__FORM_TEXT; f > SHEAF__FORM_NONE; f--)
        if (json_object_get(record, forms[f].name) != NULL)
            *out = (sheaf__text_form)f;
    if (*out == SHEAF__FORM_MESSAGES && json_object_get(record, "conversations") != NULL)
        return sheaf__bad_field("conversations", "either \"messages\" or \"conversations\"",
                                "both in one record");
    if (pair && (*out == SHEAF__FORM_NONE || *out == SHEAF__FORM_TEXT))
        *out = SHEAF__FORM_PROMPT;
    if (*out == SHEAF__FORM_PROMPT && json_object_get(record, "text") != NULL && !asked)
        return sheaf__bad_field("text", "either \"text\", or \"prompt\" and \"completion\"",
                                "both in one record");
    if (*out == SHEAF__FORM_NONE)
        return sheaf__bad_field("prompt",
                                "a record has \"prompt\" and \"completion\", or \"text\", or "
                                "\"messages\", \"conversations\" or \"instruction\"",
                                "no such field");
    return NULL;
}

const char *sheaf__text_other_field(json_t *record, const char *const *known, int n)
{
    const char *key;
    json_t *value;
    json_object_foreach(record, key, value)
    {
        bool other = strcmp(key, "id") != 0;
        for (int i = 0; i < n && known[i] != NULL; i++)
            other = other && strcmp(key, known[i]) != 0;
        if (other)
            return key;
    }
    return "";
}

/* Who asks tells of pictures that a model does not read. */
static void find_ignored(sheaf__text_record *r, json_t *record)
{
    enum { FIELDS = sizeof forms->fields / sizeof *forms->fields };
    const char *known[FIELDS + 2];
    int n = 0;
    while (n < FIELDS && forms[r->form].fields[n] != NULL) {
        known[n] = forms[r->form].fields[n];
        n++;
    }
    if (r->pictures || r->asked) {
        known[n++] = "image";
        known[n++] = "images";
    }
    snprintf(r->ignored, sizeof r->ignored, "%s", sheaf__text_other_field(record, known, n));
}

static sheaf_status *take_record(sheaf__text_record *out)
{
    sheaf_status *st = choose_form(&out->form, out->json, out->asked);
    if (st != NULL)
        return st;
    find_ignored(out, out->json);
    switch (out->form) {
    case SHEAF__FORM_MESSAGES: return take_conversation(out, out->json, "messages", &openai);
    case SHEAF__FORM_CONVERSATIONS:
        return take_conversation(out, out->json, "conversations", &sharegpt);
    case SHEAF__FORM_INSTRUCTION: return take_instruction(out, out->json);
    case SHEAF__FORM_PROMPT: return take_pair(out, out->json);
    default: return take_text(out, out->json);
    }
}

static sheaf_status *parse(sheaf__text_record *out, const char *json, size_t size)
{
    for (size_t i = 0; i < size;) {
        const size_t n = sheaf__utf8_length(json + i, size - i);
        if (n == 0)
            return sheaf__bad_field(NULL, "UTF-8", "byte 0x%02X at column %zu",
                                    (unsigned char)json[i], i + 1);
        i += n;
    }
    sheaf_status *st = sheaf__record_parse(&out->json, json, size);
    return st == NULL ? take_record(out) : st;
}

sheaf_status *sheaf__text_record_read(sheaf__text_record *out, const char *json, size_t size)
{
    *out = (sheaf__text_record){ 0 };
    return parse(out, json, size);
}

sheaf_status *sheaf__text_record_shown(sheaf__text_record *out, const char *json, size_t size)
{
    *out = (sheaf__text_record){ .pictures = true };
    return parse(out, json, size);
}

sheaf_status *sheaf__text_record_ask(sheaf__text_record *out, json_t *json, bool pictures)
{
    *out = (sheaf__text_record){ .asked = true, .pictures = pictures, .json = json_incref(json) };
    return take_record(out);
}

void sheaf__text_list_ignored(sheaf__text_record *out, json_t *json)
{
    const json_t *list = json_object_get(json, "messages");
    *out = (sheaf__text_record){ .asked = true, .form = SHEAF__FORM_MESSAGES };
    if (list == NULL) {
        list = json_object_get(json, "conversations");
        out->form = SHEAF__FORM_CONVERSATIONS;
    }
    const words *w = words_of(list, out->form == SHEAF__FORM_MESSAGES ? &openai : &sharegpt);
    find_ignored(out, json);
    /* "tools" the other reader refuses; of their older name it knows nothing */
    if (out->ignored[0] == '\0' && has_tools(json, "functions"))
        snprintf(out->ignored, sizeof out->ignored, "functions");
    for (size_t i = 0; i < json_array_size(list); i++)
        note_other_keys(out, json_array_get(list, i), w, forms[out->form].name);
}

void sheaf__text_record_release(sheaf__text_record *r)
{
    for (int64_t i = 0; i < r->nowned; i++)
        free(r->owned[i]);
    free(r->owned);
    free(r->message);
    json_decref(r->json);
    *r = (sheaf__text_record){ 0 };
}
