/* responses.c - see responses.h. */
#include "serve/responses.h"

#include "base/base.h"
#include "base/json.h"
#include "base/json_write.h"

static sheaf_status *no_memory(void)
{
    return sheaf__no_memory("a response");
}

static sheaf_status *bad(const char *field, const char *expected)
{
    return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", field), "%s", expected);
}

static const char *text_of(const json_t *object, const char *key)
{
    return json_string_value(json_object_get(object, key));
}

static bool is_type(const json_t *object, const char *type)
{
    const char *given = text_of(object, "type");
    return given != NULL && strcmp(given, type) == 0;
}

/* ---- its request ---- */

/* A part of a content, in a chat's form. */
static sheaf_status *add_part(json_t *to, const json_t *part)
{
    const char *text = text_of(part, "text"), *url = text_of(part, "image_url");
    json_t *one = NULL;
    if (text != NULL && (is_type(part, "input_text") || is_type(part, "output_text")))
        one = json_pack("{s:s, s:O}", "type", "text", "text", json_object_get(part, "text"));
    else if (url != NULL && is_type(part, "input_image"))
        one = json_pack("{s:s, s:{s:s}}", "type", "image_url", "image_url", "url", url);
    else
        return bad("`input`", "contents: a text, or a list of {\"type\": \"input_text\", \"text\": "
                              "...}, of output_text alike and of {\"type\": \"input_image\", "
                              "\"image_url\": \"data:...\"}");
    return json_array_append_new(to, one) != 0 ? no_memory() : NULL;
}

/* A content: the text, or the list of parts. */
static sheaf_status *take_content(json_t **out, json_t *given)
{
    const json_t *part;
    size_t i;
    *out = json_is_array(given) ? json_array() : json_incref(given);
    sheaf_status *st = *out == NULL && given != NULL ? no_memory() : NULL;
    if (!json_is_string(given) && !json_is_array(given))
        return bad("`input`", "messages with \"role\" and \"content\"");
    json_array_foreach(given, i, part) TRY(st, add_part(*out, part));
    return st;
}

/* Messages so far, and thoughts before the next of an assistant. */
typedef struct conversation {
    json_t *messages;
    sheaf_text thoughts;
} conversation;

static sheaf_status *add_message(conversation *c, const char *role, json_t *content)
{
    json_t *one =
        json_pack("{s:s, s:o}", "role", role, "content", content == NULL ? json_null() : content);
    bool failed = json_array_append_new(c->messages, one) != 0 || c->thoughts.failed;
    if (!failed && c->thoughts.size > 0 && strcmp(role, SHEAF__ASSISTANT) == 0) {
        failed = json_object_set_new(one, "reasoning_content", json_string(c->thoughts.at)) != 0;
        c->thoughts.size = 0;
    }
    return failed ? no_memory() : NULL;
}

/* A call belongs to the message before it. */
static sheaf_status *add_call(conversation *c, const json_t *item)
{
    const char *id = text_of(item, "call_id"), *name = text_of(item, "name"),
               *arguments = text_of(item, "arguments"), *role;
    sheaf_status *st = NULL;
    if (id == NULL || name == NULL || arguments == NULL)
        return bad("`input`", "calls with \"call_id\", \"name\" and \"arguments\"");
    json_t *last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    role = text_of(last, "role");
    if (role == NULL || strcmp(role, SHEAF__ASSISTANT) != 0 || c->thoughts.size > 0) {
        st = add_message(c, SHEAF__ASSISTANT, NULL);
        last = json_array_get(c->messages, json_array_size(c->messages) - 1);
    }
    if (st == NULL && json_object_get(last, "tool_calls") == NULL)
        json_object_set_new(last, "tool_calls", json_array());
    if (st == NULL &&
        json_array_append_new(json_object_get(last, "tool_calls"),
                              json_pack("{s:s, s:s, s:{s:s, s:s}}", "id", id, "type", "function",
                                        "function", "name", name, "arguments", arguments)) != 0)
        st = no_memory();
    return st;
}

static sheaf_status *add_item(conversation *c, const json_t *item)
{
    const char *role = text_of(item, "role");
    const json_t *part;
    json_t *content = NULL;
    size_t i;
    sheaf_status *st = NULL;
    if (is_type(item, "function_call"))
        return add_call(c, item);
    if (is_type(item, "reasoning")) {
        json_array_foreach(json_object_get(item, "content"), i, part) if (text_of(part, "text"))
            sheaf__text_add(&c->thoughts, "%s", text_of(part, "text"));
        return NULL;
    }
    if (is_type(item, "function_call_output")) {
        st = take_content(&content, json_object_get(item, "output"));
        if (st == NULL && text_of(item, "call_id") == NULL)
            st = bad("`input`", "outputs with \"call_id\" and \"output\"");
        TRY(st, add_message(c, "tool", json_incref(content)));
        if (st == NULL &&
            json_object_set(json_array_get(c->messages, json_array_size(c->messages) - 1),
                            "tool_call_id", json_object_get(item, "call_id")) != 0)
            st = no_memory();
    } else if (role != NULL &&
               (json_object_get(item, "type") == NULL || is_type(item, "message"))) {
        st = take_content(&content, json_object_get(item, "content"));
        TRY(st, add_message(c, role, json_incref(content)));
    } else {
        st = bad("`input`", "a text, or a list of messages, function_call, function_call_output "
                            "and reasoning");
    }
    json_decref(content);
    return st;
}

static sheaf_status *read_input(json_t *out, const json_t *asked)
{
    json_t *input = json_object_get(asked, "input");
    const json_t *instructions = json_object_get(asked, "instructions"), *item;
    conversation c = { .messages = json_array() };
    size_t i;
    sheaf_status *st = json_object_set_new(out, "messages", c.messages) != 0 ? no_memory() : NULL;
    if (instructions != NULL && !json_is_null(instructions) && !json_is_string(instructions))
        st = bad("`instructions`", "a text");
    if (json_is_string(instructions))
        TRY(st, add_message(&c, SHEAF__SYSTEM, json_incref((json_t *)instructions)));
    if (json_is_string(input))
        TRY(st, add_message(&c, SHEAF__USER, json_incref(input)));
    else if (json_array_size(input) == 0)
        TRY(st, bad("`input`", "a text, or a list of items"));
    json_array_foreach(input, i, item) TRY(st, add_item(&c, item));
    sheaf__text_release(&c.thoughts);
    return st;
}

/* A function's fields lie beside its type; in a chat's form within "function". */
static sheaf_status *nest(json_t **out, json_t *flat)
{
    json_t *function = json_deep_copy(flat);
    json_object_del(function, "type");
    *out = json_pack("{s:s, s:o}", "type", "function", "function", function);
    return *out == NULL ? no_memory() : NULL;
}

static sheaf_status *read_tools(json_t *out, const json_t *asked)
{
    json_t *tools = json_object_get(asked, "tools"), *tool, *one,
           *choice = json_object_get(asked, "tool_choice"), *list = json_array();
    size_t i;
    sheaf_status *st = json_object_set_new(out, "tools", list) != 0 ? no_memory() : NULL;
    if (tools != NULL && !json_is_null(tools) && !json_is_array(tools))
        st = bad("`tools`", "a list");
    json_array_foreach(tools, i, tool)
    {
        if (!is_type(tool, "function") || text_of(tool, "name") == NULL)
            TRY(st, bad("`tools`", "{\"type\": \"function\", \"name\": ...}: no other tools are "
                                   "here"));
        TRY(st, nest(&one, tool));
        if (st == NULL && json_array_append_new(list, one) != 0)
            st = no_memory();
    }
    if (json_is_object(choice)) {
        TRY(st, is_type(choice, "function") && text_of(choice, "name") != NULL
                    ? nest(&one, choice)
                    : bad("`tool-choice`",
                          "none, auto, required, or {\"type\": \"function\", \"name\": ...}"));
        if (st == NULL)
            json_object_set_new(out, "tool_choice", one);
    } else if (choice != NULL) {
        json_object_set(out, "tool_choice", choice);
    }
    return st;
}

static sheaf_status *read_text(json_t *out, const json_t *asked)
{
    static const char expected[] = "{\"format\": {\"type\": \"text\" or \"json_object\"}}, or "
                                   "{\"format\": {\"type\": \"json_schema\", \"name\": ..., "
                                   "\"schema\": {...}}}";
    const json_t *text = json_object_get(asked, "text"), *value;
    json_t *format = json_object_get(text, "format"), *one;
    const char *key;
    json_object_foreach((json_t *)text, key, value) if (strcmp(key, "format") != 0 &&
                                                        !json_is_null(value)) return bad("`text`",
                                                                                         expected);
    if ((text == NULL || json_is_null(text)) ||
        (json_is_object(text) && (format == NULL || json_is_null(format))))
        return NULL;
    if (!is_type(format, "text") && !is_type(format, "json_object") &&
        (!is_type(format, "json_schema") || !json_is_object(json_object_get(format, "schema"))))
        return bad("`text`", expected);
    one = json_pack("{s:O, s:O}", "type", json_object_get(format, "type"), "json_schema", format);
    return json_object_set_new(out, "response_format", one) != 0 ? no_memory() : NULL;
}

sheaf_status *sheaf__responses_request(json_t **out, const json_t *asked)
{
    static const char same[] = "model stream temperature top_p top_k seed repetition_penalty stop "
                               "max_output_tokens parallel_tool_calls";
    const char *key;
    json_t *value;
    *out = json_object();
    sheaf_status *st = *out == NULL ? no_memory() : NULL;
    json_object_foreach((json_t *)asked, key, value)
    {
        if (st == NULL && sheaf__is_listed(same, key, strlen(key)) &&
            json_object_set(*out, key, value) != 0)
            st = no_memory();
    }
    TRY(st, read_input(*out, asked));
    TRY(st, read_tools(*out, asked));
    return TRY(st, read_text(*out, asked));
}

/* ---- its reply ---- */

typedef enum kind { NOTHING, THOUGHTS, CONTENT, CALL } kind;

static const struct {
    const char *item, *prefix, *part; /* part: its own field of texts, or of events */
} kinds[] = { { 0 },
              { "reasoning", "rs", "reasoning_text" },
              { "message", "msg", "output_text" },
              { "function_call", "fc", "function_call_arguments" } };

static void item_id(char id[64], const sheaf__response *s, kind what, int64_t number)
{
    snprintf(id, 64, "%s_%016llx%02x", kinds[what].prefix, (unsigned long long)s->id,
             (unsigned)number);
}

/* The part of a text's item. */
static void put_part(sheaf_json_writer *j, const char *key, kind what, const char *text)
{
    sheaf__json_open(j, key, '{');
    sheaf__json_put(j, "type:s text:s", kinds[what].part, text);
    sheaf__json_put(j, what == CONTENT ? "annotations:[ ] logprobs:[ ] }" : "}");
}

/* Item `number`; text NULL: nothing of it is there yet. */
static void put_item(sheaf_json_writer *j, const char *key, const sheaf__response *s, kind what,
                     int64_t number, const char *text, const char *status, const json_t *call)
{
    char id[64];
    item_id(id, s, what, number);
    sheaf__json_open(j, key, '{');
    sheaf__json_put(j, "id:s type:s status:s", id, kinds[what].item, status);
    if (what == CALL) {
        sheaf__json_put(j, "call_id:s name:s arguments:s }", text_of(call, "id"),
                        text_of(call, "name"), text == NULL ? "" : text);
        return;
    }
    sheaf__json_put(j, what == THOUGHTS ? "summary:[ ]" : "role:s", SHEAF__ASSISTANT);
    sheaf__json_open(j, "content", '[');
    if (text != NULL)
        put_part(j, NULL, what, text);
    sheaf__json_put(j, "] }");
}

/* A field of the request, as it came. */
static void put_asked(sheaf_json_writer *j, const sheaf__response *s, const char *key,
                      const char *absent)
{
    const json_t *given = json_object_get(s->asked, key);
    char *text = NULL;
    if (given != NULL && !json_is_null(given))
        sheaf_status_free(sheaf__json_text(&text, given, JSON_ENCODE_ANY));
    sheaf__json_put_raw(j, key, text == NULL ? absent : text);
    free(text);
}

static const char *status_of(const sheaf__response *s)
{
    return s->finish == NULL                  ? "in_progress"
           : strcmp(s->finish, "length") == 0 ? "incomplete"
                                              : "completed";
}

static char *copy_of(sheaf__text_piece text)
{
    return strndup(text.at == NULL ? "" : text.at, text.size);
}

/* Is there an item of that kind? Of an answer that is over and empty: of a content. */
static bool has(const sheaf__said *said, kind what)
{
    return what == THOUGHTS ? said->thoughts.size > 0
                            : said->content.size > 0 || json_array_size(said->calls) == 0;
}

static void put_output(sheaf_json_writer *j, const sheaf__response *s, const sheaf__said *said)
{
    const json_t *call;
    int64_t n = 0;
    size_t k;
    sheaf__json_open(j, "output", '[');
    for (kind what = THOUGHTS; what <= CONTENT && s->finish != NULL; what++) {
        char *text = copy_of(what == THOUGHTS ? said->thoughts : said->content);
        if (has(said, what))
            put_item(j, NULL, s, what, n++, text, status_of(s), NULL);
        free(text);
    }
    json_array_foreach(s->finish == NULL ? NULL : said->calls, k, call)
        put_item(j, NULL, s, CALL, n++, text_of(call, "arguments"), "completed", call);
    sheaf__json_close(j, ']');
}

/* The members of a response. */
static void put_response(sheaf_json_writer *j, const sheaf__response *s, const sheaf__said *said)
{
    char id[64];
    snprintf(id, sizeof id, "resp_%016llx", (unsigned long long)s->id);
    sheaf__json_put(j, "id:s object:s created_at:d status:s error:s", id, "response", s->created,
                    status_of(s), (char *)NULL);
    if (s->finish != NULL && strcmp(s->finish, "length") == 0)
        sheaf__json_put(j, "incomplete_details:{ reason:s }", "max_output_tokens");
    else
        sheaf__json_put_text(j, "incomplete_details", NULL);
    put_asked(j, s, "instructions", "null");
    put_asked(j, s, "max_output_tokens", "null");
    sheaf__json_put_text(j, "model", s->model);
    put_output(j, s, said);
    put_asked(j, s, "parallel_tool_calls", "true");
    sheaf__json_put_text(j, "previous_response_id", NULL);
    sheaf__json_put(j, "seed:d store:b", s->seed, false);
    put_asked(j, s, "temperature", "null");
    put_asked(j, s, "text", "{\"format\": {\"type\": \"text\"}}");
    put_asked(j, s, "tool_choice", "\"auto\"");
    put_asked(j, s, "tools", "[]");
    put_asked(j, s, "top_p", "null");
    sheaf__json_put_text(j, "truncation", "disabled");
    put_asked(j, s, "metadata", "{}");
    if (s->finish == NULL)
        sheaf__json_put_text(j, "usage", NULL);
    else
        sheaf__json_put(j,
                        "usage:{ input_tokens:d input_tokens_details:{ cached_tokens:d } "
                        "output_tokens:d output_tokens_details:{ reasoning_tokens:d } "
                        "total_tokens:d }",
                        s->input, (int64_t)0, s->output, s->thinking, s->input + s->output);
}

void sheaf__response_whole(sheaf_text *to, const sheaf__response *s, const sheaf__said *said)
{
    sheaf_json_writer j = { .text = *to };
    sheaf__json_begin(&j);
    put_response(&j, s, said);
    sheaf__text_add(&j.text, "}\n");
    *to = j.text;
}

/* ---- its stream ---- */

/* The head of an event; close_event() ends it. */
static void open_event(sheaf_json_writer *j, sheaf_text *to, sheaf__response *s, const char *type)
{
    *j = (sheaf_json_writer){ .text = *to };
    sheaf__text_add(&j->text, "event: response.%s\ndata: ", type);
    sheaf__json_begin(j);
    char name[64];
    snprintf(name, sizeof name, "response.%s", type);
    sheaf__json_put(j, "type:s sequence_number:d", name, s->events++);
}

static void close_event(sheaf_json_writer *j, sheaf_text *to)
{
    sheaf__text_add(&j->text, "}\n\n");
    *to = j->text;
}

static void tell(sheaf_text *to, sheaf__response *s, const char *type, const sheaf__said *said)
{
    sheaf_json_writer j;
    open_event(&j, to, s, type);
    sheaf__json_open(&j, "response", '{');
    put_response(&j, s, said);
    sheaf__json_close(&j, '}');
    close_event(&j, to);
}

/* An event of item s->items as a whole; text NULL: it begins. */
static void tell_item(sheaf_text *to, sheaf__response *s, kind what, const char *text,
                      const json_t *call)
{
    sheaf_json_writer j;
    open_event(&j, to, s, text == NULL ? "output_item.added" : "output_item.done");
    sheaf__json_put(&j, "output_index:d", s->items);
    put_item(&j, "item", s, what, s->items, text,
             text == NULL        ? "in_progress"
             : s->finish == NULL ? "completed"
                                 : status_of(s),
             call);
    close_event(&j, to);
}

/* An event of a text, or the arguments, within it: "delta" with more of it, "done" with all. */
static void tell_text(sheaf_text *to, sheaf__response *s, kind what, const char *event,
                      const char *text)
{
    char id[64], type[64];
    sheaf_json_writer j;
    const bool delta = strcmp(event, "delta") == 0, part = strncmp(event, "content", 7) == 0;
    item_id(id, s, what, s->items);
    snprintf(type, sizeof type, "%s%s%s", part ? "" : kinds[what].part, part ? "" : ".", event);
    open_event(&j, to, s, type);
    sheaf__json_put(&j, "item_id:s output_index:d", id, s->items);
    if (what != CALL)
        sheaf__json_put_int(&j, "content_index", 0);
    if (part)
        put_part(&j, "part", what, text);
    else
        sheaf__json_put_text(&j, delta ? "delta" : what == CALL ? "arguments" : "text", text);
    if (!part && what == CONTENT)
        sheaf__json_put(&j, "logprobs:[ ]");
    close_event(&j, to);
}

static void begin_item(sheaf_text *to, sheaf__response *s, kind what)
{
    tell_item(to, s, what, NULL, NULL);
    tell_text(to, s, what, "content_part.added", "");
    s->open = (int)what;
}

static void end_item(sheaf_text *to, sheaf__response *s, const sheaf__said *said)
{
    const kind what = (kind)s->open;
    if (what == NOTHING)
        return;
    char *all = copy_of(what == THOUGHTS ? said->thoughts : said->content);
    const char *text = all == NULL ? "" : all;
    tell_text(to, s, what, "done", text);
    tell_text(to, s, what, "content_part.done", text);
    tell_item(to, s, what, text, NULL);
    s->items++;
    s->open = NOTHING;
    free(all);
}

void sheaf__response_begin(sheaf_text *to, sheaf__response *s)
{
    tell(to, s, "created", NULL);
    tell(to, s, "in_progress", NULL);
}

void sheaf__response_more(sheaf_text *to, sheaf__response *s, const sheaf__said *said)
{
    for (kind what = THOUGHTS; what <= CONTENT; what++) {
        char *piece = sheaf__said_unsent(what == THOUGHTS ? said->thoughts : said->content,
                                         &s->sent[what - THOUGHTS]);
        if (piece != NULL && s->open != (int)what) {
            end_item(to, s, said);
            begin_item(to, s, what);
        }
        if (piece != NULL)
            tell_text(to, s, what, "delta", piece);
        free(piece);
    }
}

void sheaf__response_end(sheaf_text *to, sheaf__response *s, const sheaf__said *said)
{
    const json_t *call;
    size_t k;
    if (s->open != CONTENT && has(said, CONTENT)) {
        end_item(to, s, said);
        begin_item(to, s, CONTENT);
    }
    end_item(to, s, said);
    json_array_foreach(said->calls, k, call)
    {
        const char *arguments = text_of(call, "arguments");
        tell_item(to, s, CALL, NULL, call);
        tell_text(to, s, CALL, "delta", arguments);
        tell_text(to, s, CALL, "done", arguments);
        tell_item(to, s, CALL, arguments, call);
        s->items++;
    }
    tell(to, s, status_of(s), said);
}
