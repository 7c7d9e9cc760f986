/* tools.c - see tools.h. */
#include "serve/tools.h"

#include "base/base.h"
#include "base/json.h"
#include "infer/answer_stream.h"
#include "infer/grammar.h"

/* The call that is rendered. */
#define NAME "sheaf_name"
#define KEY "sheaf_key"

static sheaf_status *no_memory(void)
{
    return sheaf__no_memory("calls of tools");
}

/* ---- the form ---- */

/* A value of JSON at `text`; *size: its bytes. NULL: there is none. */
static json_t *value_at(const char *text, size_t *size)
{
    json_t *value = NULL;
    sheaf_json_scan scan;
    sheaf_status *st = sheaf__scan_init(&scan, text, strlen(text), false);
    sheaf_status_free(TRY(st, sheaf__json_parse_value(&value, &scan)));
    *size = value == NULL ? 0 : (size_t)(scan.at - text);
    if (value == NULL) { /* of a key that a model repeats the last value counts */
        json_error_t end;
        value = json_loads(text, JSON_DISABLE_EOF_CHECK, &end);
        *size = value == NULL ? 0 : (size_t)end.position;
    }
    return value;
}

/* What the template writes for the first `n` messages of a question and a call. */
static sheaf_status *render(char **out, const sheaf__codec *w, const json_t *tools, int64_t n)
{
    json_t *list = json_pack("[{s:s, s:s}, {s:s, s:s, s:[{s:s, s:s, s:{s:s, s:s}}]}]", "role",
                             SHEAF__USER, "content", "a", "role", SHEAF__ASSISTANT, "content", "",
                             "tool_calls", "id", "abcdefghi", "type", "function", "function",
                             "name", NAME, "arguments", "{\"" KEY "\": \"b\"}");
    const sheaf__message message[] = {
        { SHEAF__USER, "a", 1, json_array_get(list, 0), false },
        { SHEAF__ASSISTANT, "", 0, json_array_get(list, 1), false },
    };
    const sheaf__chat_options how = {
        .generation_prompt = n == 1, .bos = w->stored.bos, .eos = w->stored.eos, .tools = tools
    };
    sheaf__rendered text = { 0 };
    sheaf_status *st = list == NULL ? no_memory() : NULL;
    TRY(st, sheaf__chat_open_arguments(list, w->chat, message, n, &how));
    TRY(st, sheaf__chat_render(&text, w->chat, message, n, &how));
    if (st == NULL && (*out = strdup(text.text)) == NULL)
        st = no_memory();
    sheaf__rendered_release(&text);
    json_decref(list);
    return st;
}

/* The keys of the object at `text` that have name and arguments. */
static size_t read_keys(sheaf__tool_form *f, const char *text)
{
    size_t size;
    json_t *call = value_at(text, &size), *value;
    const char *key;
    json_object_foreach(call, key, value)
    {
        if (json_is_string(value) && strcmp(json_string_value(value), NAME) == 0 && f->name == NULL)
            f->name = strdup(key);
        else if (json_object_get(value, KEY) != NULL && f->arguments == NULL)
            f->arguments = strdup(key);
    }
    json_decref(call);
    return f->name != NULL && f->arguments != NULL ? size : 0;
}

/* `call`: what the template writes behind the prompt for an answer. */
static void read_form(sheaf__tool_form *f, const sheaf__codec *w, const char *call)
{
    const char *name = strstr(call, NAME), *at = name, *end;
    size_t size = 0;
    while (at != NULL && at > call && *at != '{')
        at--;
    if (at != NULL && *at == '{') {
        size = read_keys(f, at);
    } else if (name != NULL && strncmp(name + strlen(NAME), "\n{", 2) == 0) {
        json_decref(value_at(name + strlen(NAME) + 1, &size));
        size += size > 0 ? strlen(NAME) + 1 : 0;
        f->lines = true;
        at = name;
    }
    if (size == 0)
        return;
    f->list = !f->lines && at > call && at[-1] == '[';
    end = at + size;
    f->before = strndup(call, (size_t)(at - call) - f->list);
    const char *stop = sheaf__chat_template_stop(w->chat, w->stored.eos),
               *mark = stop == NULL ? NULL : strstr(end, stop);
    f->after = strndup(end + (f->list && *end == ']'),
                       mark == NULL ? 0 : (size_t)(mark - end) - (f->list && *end == ']'));
    if (f->before == NULL || f->after == NULL)
        return;
    const char *special =
        w->tokenizer == NULL ? NULL
                             : sheaf__tokenizer_written(w->tokenizer, f->before, strlen(f->before));
    f->mark = special == NULL ? -1 : sheaf__tokenizer_find(w->tokenizer, special);
    f->unmarked = special != NULL || f->before[strspn(f->before, " \n")] == '\0';
}

sheaf_status *sheaf__tool_form_read(sheaf__tool_form *f, const sheaf__codec *w, const json_t *tools)
{
    char *prompt = NULL, *answered = NULL;
    size_t same = 0;
    *f = (sheaf__tool_form){ .mark = -1 };
    if (w->chat == NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`tools`"),
                              "a chat template, which describes them to the model");
    sheaf_status *st = render(&prompt, w, tools, 1);
    if (st == NULL) /* a template without calls has no form */
        sheaf_status_free(render(&answered, w, tools, 2));
    while (answered != NULL && prompt[same] != '\0' && prompt[same] == answered[same])
        same++;
    if (answered != NULL) {
        const char *call = answered + same;
        bool more;
        const size_t thoughts = sheaf__chat_no_thoughts(&more, w->chat, call, strlen(call));
        call += thoughts;
        read_form(f, w, thoughts > 0 ? call + strspn(call, "\n") : call);
    }
    free(prompt);
    free(answered);
    return st;
}

void sheaf__tool_form_release(sheaf__tool_form *f)
{
    free(f->before);
    free(f->after);
    free(f->name);
    free(f->arguments);
    *f = (sheaf__tool_form){ 0 };
}

/* ---- a call that must be ---- */

static const char *name_of(const json_t *tool)
{
    return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

/* Pointers of $ref go to where the parameters lie in the whole schema. */
static sheaf_status *move_refs(json_t *schema, const char *where)
{
    const char *key, *ref = json_string_value(json_object_get(schema, "$ref"));
    json_t *value;
    size_t i;
    sheaf_status *st = NULL;
    if (ref != NULL && ref[0] == '#') {
        sheaf_text moved = { 0 };
        sheaf__text_add(&moved, "#/%s%s", where, ref + 1);
        if (moved.failed || json_object_set_new(schema, "$ref", json_string(moved.at)) != 0)
            st = no_memory();
        sheaf__text_release(&moved);
    }
    json_object_foreach(schema, key, value) TRY(st, move_refs(value, where));
    json_array_foreach(schema, i, value) TRY(st, move_refs(value, where));
    return st;
}

/* A tool's parameters; those that cannot be followed are any object, unless they are strict. */
static sheaf_status *parameters_of(json_t **out, const json_t *tool, const char *where)
{
    const json_t *function = json_object_get(tool, "function"),
                 *given = json_object_get(function, "parameters");
    sheaf__grammar_program program = { 0 };
    char *text = NULL;
    sheaf_status *st = given == NULL ? NULL : sheaf__json_text(&text, given, JSON_ENCODE_ANY);
    if (st == NULL && text != NULL)
        st = sheaf_in(sheaf__grammar_compile(&program, &(sheaf__answer_form){ .schema = text }),
                      "tool '%.60s'", name_of(tool));
    sheaf__grammar_program_release(&program);
    free(text);
    if (st != NULL && json_is_true(json_object_get(function, "strict")))
        return st;
    *out =
        st != NULL || given == NULL ? json_pack("{s:s}", "type", "object") : json_deep_copy(given);
    sheaf_status_free(st);
    return *out == NULL ? no_memory() : move_refs(*out, where);
}

static sheaf_status *add_call(json_t *any, const sheaf__tool_form *f, const json_t *tool)
{
    json_t *parameters = NULL, *call;
    sheaf_text where = { 0 };
    sheaf__text_add(&where,
                    f->lines  ? "anyOf/%zu"
                    : f->list ? "items/anyOf/%zu/properties/%s"
                              : "anyOf/%zu/properties/%s",
                    json_array_size(any), f->arguments);
    sheaf_status *st = where.failed ? no_memory() : parameters_of(&parameters, tool, where.at);
    sheaf__text_release(&where);
    if (st != NULL || f->lines) {
        call = parameters;
    } else {
        call = json_pack("{s:s, s:{s:{s:s}, s:o}, s:[s, s], s:b}", "type", "object", "properties",
                         f->name, "const", name_of(tool), f->arguments, parameters, "required",
                         f->name, f->arguments, "additionalProperties", 0);
    }
    if (st == NULL && json_array_append_new(any, call) != 0)
        st = no_memory();
    return st;
}

/* 0xFF stands before the names of special tokens. */
static sheaf_status *mark_special(char **out, const sheaf__codec *w, const char *text)
{
    sheaf_text marked = { 0 };
    const char *special, *at;
    while (w->tokenizer != NULL &&
           (special = sheaf__tokenizer_written(w->tokenizer, text, strlen(text))) != NULL &&
           (at = strstr(text, special)) != NULL) {
        sheaf__text_add(&marked, "%.*s\xFF%s", (int)(at - text), text, special);
        text = at + strlen(special);
    }
    sheaf__text_add(&marked, "%s", text);
    return sheaf__text_take(out, &marked);
}

sheaf_status *sheaf__tool_forced(char **schema, char **before, char **after,
                                 const sheaf__tool_form *f, const sheaf__codec *w,
                                 const json_t *tools, const char *name)
{
    json_t *any = json_array(), *all = NULL;
    const json_t *tool;
    const char *only = NULL;
    size_t i;
    sheaf_status *st = any == NULL ? no_memory() : NULL;
    json_array_foreach((json_t *)tools, i, tool)
    {
        if (name != NULL && strcmp(name, name_of(tool)) != 0)
            continue;
        only = name_of(tool);
        if (f->before != NULL)
            TRY(st, add_call(any, f, tool));
    }
    if (st == NULL && only == NULL)
        st = sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "`tool-choice`"), "the name of one of `tools`"),
            "'%.60s'", name == NULL ? "" : name);
    else if (st == NULL && (f->before == NULL || (f->lines && json_array_size(any) > 1)))
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "`tool-choice`"), "%s",
                            f->before == NULL ? "\"auto\" or \"none\": how this model's template "
                                                "writes calls is not known here"
                                              : "the name of one tool, with this model's template");
    if (st == NULL) {
        all = f->list ? json_pack("{s:s, s:{s:O}, s:i, s:i}", "type", "array", "items", "anyOf",
                                  any, "minItems", 1, "maxItems", 1)
                      : json_pack("{s:O}", "anyOf", any);
        st = all == NULL ? no_memory() : sheaf__json_text(schema, all, JSON_COMPACT);
    }
    TRY(st, mark_special(before, w, f->before));
    TRY(st, mark_special(after, w, f->after));
    if (st == NULL && f->lines) {
        sheaf_text named = { 0 };
        sheaf__text_add(&named, "%s%s\n", *before, only);
        free(*before);
        *before = NULL;
        st = sheaf__text_take(before, &named);
    }
    json_decref(all);
    json_decref(any);
    return st;
}

/* ---- calls in an answer ---- */

/* The mark before a call, without blanks around it: empty where there is none. */
static sheaf__text_piece mark_of(const sheaf__tool_form *f)
{
    sheaf__text_piece mark = { "", 0 };
    if (f->before != NULL && !f->unmarked) {
        mark = (sheaf__text_piece){ f->before, strlen(f->before) };
        sheaf__utf8_strip(&mark.at, &mark.size);
    }
    return mark;
}

static bool begins_value(const sheaf__tool_form *f, const char *text)
{
    text += strspn(text, " \n");
    return *text == '{' || *text == '[' || (f->lines && *text != '\0');
}

size_t sheaf__tool_sure(const sheaf__tool_form *f, const char *text, size_t size)
{
    const sheaf__text_piece mark = mark_of(f);
    if (f->before == NULL)
        return size;
    if (mark.size == 0)
        return begins_value(f, text) || text[strspn(text, " \n")] == '\0' ? 0 : size;
    const char *at = memmem(text, size, mark.at, mark.size);
    if (at != NULL)
        return (size_t)(at - text);
    return size - sheaf__text_held(text, size, mark.at, mark.size);
}

/* One call as an object of the model's form; does a tool have its name? */
static sheaf_status *add_answered(json_t *to, bool *good, const sheaf__tool_form *f,
                                  const json_t *tools, const char *name, const json_t *arguments)
{
    const json_t *tool;
    char *text = NULL;
    size_t i;
    *good = false;
    json_array_foreach((json_t *)tools, i, tool) *good =
        *good || (name != NULL && strcmp(name, name_of(tool)) == 0);
    *good = *good && (json_is_object(arguments) || json_is_string(arguments));
    if (!*good)
        return NULL;
    sheaf_status *st = json_is_string(arguments) ? NULL : sheaf__json_text(&text, arguments, 0);
    if (st == NULL &&
        json_array_append_new(to, json_pack("{s:s, s:s}", "name", name, "arguments",
                                            text != NULL ? text : json_string_value(arguments))))
        st = no_memory();
    free(text);
    return st;
}

/* The same of an object with a name and arguments. */
static sheaf_status *add_object(json_t *to, bool *good, const sheaf__tool_form *f,
                                const json_t *tools, const json_t *call)
{
    return add_answered(to, good, f, tools, json_string_value(json_object_get(call, f->name)),
                        json_object_get(call, f->arguments));
}

/* A call, or a list of some, at `text`; *size: its bytes, 0: there is none. */
static sheaf_status *take_calls(json_t *to, size_t *size, const sheaf__tool_form *f,
                                const json_t *tools, const char *text)
{
    const size_t line = f->lines ? strcspn(text, "\n") : 0;
    char *name = f->lines ? strndup(text, line) : NULL;
    json_t *value = f->lines && text[line] == '\0' ? NULL : value_at(text + line, size), *call;
    bool good = value != NULL;
    size_t i;
    sheaf_status *st = NULL;
    if (f->lines)
        st = add_answered(to, &good, f, tools, name, value);
    else if (json_is_object(value))
        st = add_object(to, &good, f, tools, value);
    json_array_foreach(f->lines ? NULL : value, i, call) if (good && st == NULL) st =
        add_object(to, &good, f, tools, call);
    *size = good ? line + *size : 0;
    json_decref(value);
    free(name);
    return st;
}

sheaf_status *sheaf__tool_calls(json_t **out, size_t *content, const sheaf__tool_form *f,
                                const json_t *tools, const char *text)
{
    const sheaf__text_piece mark = mark_of(f);
    const char *at = text;
    size_t size = 1;
    *content = sheaf__tool_sure(f, text, strlen(text));
    *out = NULL;
    if (f->before == NULL || text[*content] == '\0')
        return NULL;
    json_t *calls = json_array();
    sheaf_status *st = calls == NULL ? no_memory() : NULL;
    at += *content;
    while (st == NULL && size > 0) {
        at += strspn(at, " \n");
        if (strncmp(at, mark.at, mark.size) != 0)
            break;
        at += mark.size;
        at += strspn(at, " \n");
        size = 0;
        if (*at != '\0')
            st = take_calls(calls, &size, f, tools, at);
        at += size;
        const char *after = f->after + strspn(f->after, " \n");
        at += strspn(at, " \n;");
        if (*after != '\0' && strncmp(at, after, strlen(after)) == 0)
            at += strlen(after);
        if (mark.size == 0 && *at != '{')
            break;
    }
    if (st == NULL && json_array_size(calls) > 0) {
        *out = calls;
        return NULL;
    }
    *content = strlen(text);
    json_decref(calls);
    return st;
}

void sheaf__tool_call_ids(json_t *calls, uint64_t reply, int64_t answer)
{
    static const char digits[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    json_t *call;
    size_t k;
    json_array_foreach(calls, k, call)
    {
        uint64_t number =
            (reply << 20 | (uint64_t)answer << 14 | (k & 0x3FFF)) & ((UINT64_C(1) << 53) - 1);
        char id[10] = "";
        for (int i = 0; i < 9; i++, number /= 62)
            id[i] = digits[number % 62];
        json_object_set_new(call, "id", json_string(id));
    }
}
