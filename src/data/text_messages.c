/* text_messages.c - conversations of text_record.h: contents of messages and their order. */
#include "base/base.h"
#include "data/complaints.h"
#include "data/text_inner.h"
#include "inputs/places.h"

const char *sheaf__text_kind(const json_t *value)
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

bool sheaf__text_blank(const char *text, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (strchr(" \t\r\n\v\f", text[i]) == NULL || text[i] == '\0')
            return false;
    return true;
}

/* ---- texts ---- */

sheaf_status *sheaf__text_string(sheaf__text_piece *out, const json_t *value, const char *name)
{
    if (!json_is_string(value))
        return sheaf__bad_field(name, "a string", "%s", sheaf__text_kind(value));
    *out = (sheaf__text_piece){ json_string_value(value), json_string_length(value) };
    return NULL;
}

/* One string of several, which the record owns. */
sheaf_status *sheaf__text_keep(sheaf__text_piece *out, sheaf__text_record *r, sheaf_text *whole)
{
    if (!SHEAF_GROW(&r->owned, NULL, r->nowned + 1))
        return sheaf__no_memory("data set");
    out->size = whole->size;
    sheaf_status *st = sheaf__text_take(&r->owned[r->nowned], whole);
    if (st == NULL)
        out->at = r->owned[r->nowned++];
    return st;
}

const char *sheaf__text_part_type(const json_t *part)
{
    static const char *const keys[] = { "image", "image_url", "video", "text" };
    const char *type = json_string_value(json_object_get(part, "type"));
    for (size_t i = 0; i < sizeof keys / sizeof *keys && type == NULL; i++) {
        const json_t *value = json_object_get(part, keys[i]);
        type = value != NULL && !json_is_null(value) ? keys[i] : NULL;
    }
    return type;
}

const char *sheaf__text_stands_for(const char *type)
{
    const bool is = type != NULL && (strcmp(type, "image") == 0 || strcmp(type, "image_url") == 0);
    return is                                           ? SHEAF__PICTURE_HERE
           : type != NULL && strcmp(type, "video") == 0 ? SHEAF__VIDEO_HERE
                                                        : NULL;
}

static sheaf_status *other_part(const char *name, const char *type, sheaf__picture_parts pictures)
{
    sheaf_status *st = sheaf__bad_field(
        name,
        pictures > SHEAF__PARTS_BESIDE    ? "a part of type text, image, image_url or video"
        : pictures == SHEAF__PARTS_BESIDE ? "a part of type text"
                                          : "a part of type text: this model reads nothing else",
        "type '%.40s'", type);
    return pictures == SHEAF__PARTS_BESIDE
               ? sheaf_try_this(st, "\"image\": PATH beside the messages")
               : st;
}

static sheaf_status *add_part(sheaf_text *whole, const sheaf__text_record *r, const json_t *part,
                              const char *name)
{
    sheaf__text_piece piece;
    const char *type = sheaf__text_part_type(part);
    if (type == NULL)
        return sheaf__bad_field(name, "an object with a string \"type\"", "%s",
                                sheaf__text_kind(part));
    if (r->pictures > SHEAF__PARTS_BESIDE && sheaf__text_stands_for(type) != NULL) {
        sheaf__text_add(whole, "%s", sheaf__text_stands_for(type));
        return NULL;
    }
    if (strcmp(type, "text") != 0)
        return r->part != NULL ? r->part(r->part_self, r, part, type, name)
                               : other_part(name, type, r->pictures);
    sheaf_status *st = sheaf__text_string(&piece, json_object_get(part, "text"), name);
    if (st == NULL)
        sheaf__text_bytes(whole, piece.at, piece.size);
    return st;
}

static bool has_picture(const json_t *parts)
{
    bool any = false;
    for (size_t i = 0; i < json_array_size(parts); i++)
        any =
            any || sheaf__text_stands_for(sheaf__text_part_type(json_array_get(parts, i))) != NULL;
    return any;
}

static bool all_texts(const json_t *parts)
{
    bool all = true;
    for (size_t i = 0; i < json_array_size(parts) && all; i++) {
        const char *type = json_string_value(json_object_get(json_array_get(parts, i), "type"));
        all = type == NULL || strcmp(type, "text") == 0;
    }
    return all;
}

/* A string, or (of messages) a list of parts. */
static sheaf_status *take_content(sheaf__text_piece *out, sheaf__text_record *r,
                                  const json_t *value, const char *name)
{
    if (r->any_parts && !all_texts(value))
        return NULL;
    if (!json_is_array(value))
        return sheaf__text_string(out, value, name);
    sheaf_text whole = { 0 };
    sheaf_status *st = NULL;
    const bool lines = r->pictures == SHEAF__PARTS_LINES && has_picture(value);
    for (size_t i = 0; i < json_array_size(value) && st == NULL; i++) {
        char part[SHEAF__TEXT_NAME + 32];
        sheaf__text_add(&whole, "%s", lines && i > 0 ? "\n" : "");
        snprintf(part, sizeof part, "%s[%zu]", name, i);
        st = add_part(&whole, r, json_array_get(value, i), part);
    }
    TRY(st, sheaf__text_keep(out, r, &whole));
    sheaf__text_release(&whole);
    return st;
}

/* ---- messages ---- */

const sheaf__text_words sheaf__text_openai = { "role", "content", "user", "assistant" };
const sheaf__text_words sheaf__text_sharegpt = { "from", "value", "human", "gpt" };

sheaf_status *sheaf__text_room(sheaf__text_record *r, size_t more)
{
    return SHEAF_GROW(&r->message, NULL, r->messages + (int64_t)more + 1)
               ? NULL
               : sheaf__no_memory("data set");
}

void sheaf__text_put(sheaf__text_record *r, const char *role, sheaf__text_piece content,
                     bool trained)
{
    r->message[r->messages++] =
        (sheaf__text_message){ role, content.at, content.size, trained, NULL };
}

const char *sheaf__text_role(const char *given)
{
    static const char *const names[][2] = {
        { "user", "user" },        { "human", "user" },        { "assistant", "assistant" },
        { "gpt", "assistant" },    { "chatgpt", "assistant" }, { "bot", "assistant" },
        { "model", "assistant" },  { "system", "system" },     { "tool", "tool" },
        { "observation", "tool" }, { "bing", "assistant" },    { "bard", "assistant" },
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(given, names[i][0]) == 0)
            return names[i][1];
    return NULL;
}

static bool is_answer(const char *role)
{
    return role != NULL && strcmp(role, "assistant") == 0;
}

static bool has_some(const json_t *value)
{
    return json_is_array(value) ? json_array_size(value) > 0
                                : value != NULL && !json_is_null(value);
}

static bool calls_tools(const json_t *entry)
{
    return has_some(json_object_get(entry, "tool_calls"));
}

/* Is it the turn of `role`, after the previous message? Of a text model its chat template decides.
 */
static sheaf_status *check_turn(const sheaf__text_record *r, const char *role, const char *given,
                                const sheaf__text_words *w, const char *name, bool first)
{
    const sheaf__text_message *last = r->messages > 0 ? &r->message[r->messages - 1] : NULL;
    const bool asks = last != NULL && last->role[0] == 'u',
               beside = first && last != NULL && role != NULL && role[0] == 's';
    const char *due = asks ? "assistant" : "user", *word = asks ? w->assistant : w->user;
    char expected[160];
    if (r->any_order || (!r->pictures && role != NULL && !beside))
        return NULL;
    if (role != NULL && !r->no_system &&
        (strcmp(role, due) == 0 || (last == NULL && role[0] == 's')))
        return NULL;
    if (role != NULL && r->no_system && strcmp(role, due) == 0)
        return NULL;
    if (role != NULL && role[0] == 's' && r->no_system)
        snprintf(expected, sizeof expected,
                 "%s and %s only: CogVLM's templates have no place for other text", w->user,
                 w->assistant);
    else if (role == NULL)
        snprintf(expected, sizeof expected, "system, %s or %s", w->user, w->assistant);
    else if (role[0] == 't')
        snprintf(expected, sizeof expected,
                 "%s: results of tools follow \"tool_calls\", which this model does not read",
                 word);
    else if (beside)
        snprintf(expected, sizeof expected, "no system: the field 'system' beside the list is one");
    else if (role[0] == 's')
        snprintf(expected, sizeof expected, "system in the first message only");
    else
        snprintf(expected, sizeof expected, "%s: they take turns, %s first", word, w->user);
    return sheaf__bad_field(name, expected, "'%.40s'", given);
}

/* ---- is an answer learnt? ---- */

/* As OpenAI, verl, axolotl and ms-swift name it. */
static const char *const learnt[] = { "weight",    "loss_mask", "train",
                                      "trainable", "training",  "loss" };
enum { LEARNT = sizeof learnt / sizeof *learnt };

static bool is_learnt(const char *key)
{
    for (int i = 0; i < LEARNT; i++)
        if (strcmp(key, learnt[i]) == 0)
            return true;
    return false;
}

/* 1 or true, 0 or false; null is none. */
static sheaf_status *take_learnt(bool *trained, const json_t *entry, const char *list, size_t index)
{
    const char *by = NULL;
    char name[SHEAF__TEXT_NAME];
    for (int i = 0; i < LEARNT; i++) {
        const json_t *value = json_object_get(entry, learnt[i]);
        const double x = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
        if (value == NULL || json_is_null(value))
            continue;
        snprintf(name, sizeof name, "%s[%zu].%s", list, index, learnt[i]);
        if ((!json_is_number(value) && !json_is_boolean(value)) || (x != 0 && x != 1))
            return sheaf__bad_field(name, "0 or 1, false or true", "%s",
                                    json_is_number(value) ? "another number"
                                                          : sheaf__text_kind(value));
        if (by != NULL && *trained != (x != 0)) {
            char expected[64];
            snprintf(expected, sizeof expected, "what '%s' beside it says: %s", by,
                     *trained ? "learned" : "not learned");
            return sheaf__bad_field(name, expected, "%s", *trained ? "0" : "1");
        }
        *trained = x != 0;
        by = learnt[i];
    }
    return NULL;
}

/* Keys of a message beside role and content that templates read; a template that does not is an
 * error. */
static const char *const beside[] = { "tool_calls",        "function_call", "tool_call_id", "name",
                                      "reasoning_content", "reasoning",     "thinking" };

/* ShareGPT has no names. */
static bool is_beside(const char *key, const char *list)
{
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (strcmp(key, beside[i]) == 0)
            return strcmp(key, "name") != 0 || strcmp(list, "messages") == 0;
    return false;
}

static bool has_beside(const json_t *entry)
{
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (has_some(json_object_get(entry, beside[i])))
            return true;
    return false;
}

/* Must a message that is no answer be learnt? Of "weight" all have one. */
static bool asks_for(const json_t *entry, const char *key, const json_t *value,
                     const sheaf__text_words *w)
{
    const char *role = sheaf__text_role(json_string_value(json_object_get(entry, w->role)));
    return !is_answer(role) && strcmp(key, "weight") != 0 &&
           (json_is_true(value) || json_number_value(value) != 0);
}

static void other_keys(sheaf__text_record *r, json_t *entry, const sheaf__text_words *w,
                       const char *list)
{
    const char *key;
    json_t *value;
    if (r->ignored[0] != '\0')
        return;
    json_object_foreach(entry, key, value)
    {
        if (strcmp(key, w->role) != 0 && strcmp(key, w->content) != 0 &&
            (!is_learnt(key) || asks_for(entry, key, value, w)) &&
            !(r->pictures && strcmp(key, "image") == 0) && (r->pictures || !is_beside(key, list)) &&
            has_some(value))
            snprintf(r->ignored, sizeof r->ignored, "%s[].%s", list, key);
    }
}

static sheaf_status *take_message(sheaf__text_record *r, json_t *entry, const sheaf__text_words *w,
                                  const char *list, size_t index)
{
    char name[SHEAF__TEXT_NAME];
    sheaf__text_piece content = { 0 };
    bool trained = true;
    snprintf(name, sizeof name, "%s[%zu].%s", list, index, w->role);
    const json_t *value = json_object_get(entry, w->role);
    if (!json_is_object(entry) || !json_is_string(value))
        return sheaf__bad_field(name, "a string, the name of a role", "%s",
                                json_is_object(entry) ? sheaf__text_kind(value)
                                                      : sheaf__text_kind(entry));
    /* other roles are the chat template's to know, which may have GLM's "observation" alone; the
     * words of ShareGPT are no template's */
    const char *given = json_string_value(value), *known = sheaf__text_role(given);
    const bool raw = known == NULL || strcmp(given, "observation") == 0,
               own = w == &sheaf__text_openai && !r->pictures;
    const char *role = raw && (own || (r->any_order && known == NULL)) ? given : known;
    sheaf_status *st = check_turn(r, role, given, w, name, index == 0);
    if (st == NULL && r->pictures && !r->any_parts && calls_tools(entry))
        st = sheaf__bad_field(name, "no calls of tools, which this model does not read", "some");
    snprintf(name, sizeof name, "%s[%zu].%s", list, index, w->content);
    const json_t *written = json_object_get(entry, w->content);
    const bool calls = is_answer(role) && (r->any_parts || calls_tools(entry));
    if (!calls || (written != NULL && !json_is_null(written)))
        TRY(st, take_content(&content, r, written, name));
    if (st == NULL && is_answer(role) && !calls && !r->any_order &&
        sheaf__text_blank(content.at, content.size))
        st = sheaf__bad_field(name, "an answer",
                              content.size == 0 ? "an empty string" : "nothing but blanks");
    if (st == NULL && is_answer(role))
        st = take_learnt(&trained, entry, list, index);
    if (st == NULL) {
        sheaf__text_put(r, role, content, is_answer(role) && trained);
        if ((!r->pictures || r->any_parts) &&
            (has_beside(entry) || (r->any_parts && json_object_size(entry) > 2) ||
             content.at == NULL || json_is_array(written)))
            r->message[r->messages - 1].json = entry;
        other_keys(r, entry, w, list);
    }
    return st;
}

const sheaf__text_words *sheaf__text_words_of(const json_t *list, const sheaf__text_words *usual)
{
    const json_t *first = json_array_get(list, 0);
    const sheaf__text_words *other =
        usual == &sheaf__text_openai ? &sheaf__text_sharegpt : &sheaf__text_openai;
    return json_object_get(first, usual->role) == NULL &&
                   json_object_get(first, other->role) != NULL
               ? other
               : usual;
}

sheaf_status *sheaf__text_list(sheaf__text_record *r, const json_t *list,
                               const sheaf__text_words *usual, const char *name)
{
    const size_t n = json_array_size(list);
    const sheaf__text_words *w = sheaf__text_words_of(list, usual);
    if (!json_is_array(list))
        return sheaf__bad_field(name, "a list of messages", "%s", sheaf__text_kind(list));
    if (n == 0 || n > SHEAF__MOST_MESSAGES)
        return sheaf__bad_field(name, "1 to 10000 messages", "%zu", n);
    sheaf_status *st = sheaf__text_room(r, n);
    for (size_t i = 0; i < n && st == NULL; i++)
        st = take_message(r, json_array_get(list, i), w, name, i);
    return st;
}

static bool has_tools(const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    return has_some(value) && !(json_is_string(value) && json_string_length(value) == 0);
}

/* Descriptions of tools: a list, or one as a string, as LLaMA-Factory has them. */
static sheaf_status *take_tools(sheaf__text_record *r)
{
    json_t *tools = json_object_get(r->json, "tools"), *list = NULL;
    if (!has_tools(r->json, "tools"))
        return NULL;
    if (json_is_string(tools) &&
        (list = json_loads(json_string_value(tools), JSON_REJECT_DUPLICATES, NULL)) != NULL) {
        json_object_set_new(r->json, "tools", list);
        tools = list;
    }
    if (r->pictures || !json_is_array(tools))
        return sheaf__bad_field("tools",
                                r->pictures ? "none, which this model does not read"
                                            : "a list of descriptions of tools",
                                "%s", r->pictures ? "some" : sheaf__text_kind(tools));
    r->tools = tools;
    return NULL;
}

const char sheaf__text_kwargs[] = "chat_template_kwargs";

/* As TRL has them: what the chat template is called with. */
static sheaf_status *take_kwargs(sheaf__text_record *r)
{
    static const char *const taken[] = { "messages",
                                         "tools",
                                         "documents",
                                         "bos_token",
                                         "eos_token",
                                         "date_string",
                                         "add_generation_prompt" };
    const json_t *kwargs = json_object_get(r->json, sheaf__text_kwargs);
    if (r->pictures || (r->answer_optional && !r->any_parts) || !has_some(kwargs))
        return NULL;
    r->kwargs = kwargs;
    if (!json_is_object(kwargs))
        return sheaf__bad_field(sheaf__text_kwargs, "an object", "%s", sheaf__text_kind(kwargs));
    for (size_t i = 0; i < sizeof taken / sizeof *taken; i++)
        if (has_some(json_object_get(kwargs, taken[i])))
            return sheaf__bad_field(sheaf__text_kwargs, "variables that have no place of their own",
                                    "'%s'", taken[i]);
    return NULL;
}

/* Fields beside the list: the system's text, tools, and variables of the template. */
sheaf_status *sheaf__text_beside(sheaf__text_record *r, const json_t *record)
{
    const json_t *system = json_object_get(record, "system");
    sheaf__text_piece content;
    if (has_tools(record, "functions") && r->answer_optional && r->ignored[0] == '\0')
        snprintf(r->ignored, sizeof r->ignored, "functions");
    if (has_tools(record, "functions") && !r->answer_optional)
        return sheaf__bad_field("functions", "none: tools stand in \"tools\"", "some");
    sheaf_status *st = take_tools(r);
    TRY(st, take_kwargs(r));
    if (st != NULL || system == NULL || json_is_null(system))
        return st;
    st = sheaf__text_string(&content, system, "system");
    if (st == NULL && content.size > 0)
        st = sheaf__text_room(r, 1);
    if (st == NULL && content.size > 0)
        sheaf__text_put(r, "system", content, false);
    return st;
}

/* Roles before the count: a misplaced message is the more helpful error. */
sheaf_status *sheaf__text_end(const sheaf__text_record *r, const char *name,
                              const sheaf__text_words *w)
{
    bool trained = false;
    for (int64_t i = 0; i < r->messages; i++)
        trained = trained || r->message[i].trained;
    if (r->answer_optional)
        return NULL;
    if (r->messages > 0 && strcmp(r->message[r->messages - 1].role, "assistant") != 0)
        return sheaf__bad_field(name, "an answer at the end, to be trained",
                                "%" PRId64 " messages, the last is of %s", r->messages,
                                r->message[r->messages - 1].role[0] == 'u'
                                    ? w->user
                                    : r->message[r->messages - 1].role);
    if (!trained)
        return sheaf__bad_field(name, "an answer that is trained",
                                "none: the fields of all of them, as \"weight\": 0, exclude them");
    return NULL;
}

sheaf_status *sheaf__text_conversation(sheaf__text_record *r, const json_t *record,
                                       const char *name, const sheaf__text_words *w)
{
    sheaf_status *st = sheaf__text_beside(r, record);
    TRY(st, sheaf__text_list(r, json_object_get(record, name), w, name));
    return st == NULL ? sheaf__text_end(r, name, w) : st;
}

int64_t sheaf__text_said_picture(const sheaf__text_record *r)
{
    for (int64_t i = 0; i < r->messages; i++)
        if (r->message[i].role[0] != 'u' &&
            sheaf__picture_names_in(r->message[i].content, r->message[i].size) > 0)
            return i;
    return -1;
}
