/* chat.c - see chat.h: a conversation through the program of a template. */
#include "inputs/chat/chat.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/text.h"
#include "inputs/chat/named.h"

/* ---- the program, with what transformers hands to it ---- */

bool sheaf__chat_is_role(const sheaf__message *m, const char *role)
{
    return strcmp(m->role, role) == 0;
}

static json_t *message_object(const sheaf__message *m)
{
    json_t *one = json_object();
    bool failed = json_object_set_new(one, "role", json_string(m->role)) != 0;
    if (m->content != NULL)
        failed |=
            json_object_set_new(one, "content", json_stringn_nocheck(m->content, m->size)) != 0;
    if (m->json != NULL)
        failed |= json_object_update_missing(one, (json_t *)m->json) != 0;
    if (!failed)
        return one;
    json_decref(one);
    return NULL;
}

/* Takes `value`. */
static bool put(json_t *to, const char *name, json_t *value)
{
    return json_object_set_new(to, name, value) == 0;
}

/* NULL: the program finds it undefined. */
static bool put_text(json_t *to, const char *name, const char *text)
{
    return text == NULL || put(to, name, json_string(text));
}

static json_t *variables(const sheaf__message *message, int64_t n,
                         const sheaf__chat_options *options, const char *date_string)
{
    json_t *messages = json_array(), *out = json_object(),
           *tools = options->tools != NULL ? json_incref((json_t *)options->tools) : json_null();
    bool good = put(out, "messages", messages);
    for (int64_t i = 0; i < n && good; i++)
        good = json_array_append_new(messages, message_object(&message[i])) == 0;
    good &= put(out, "tools", tools);
    if (good && put(out, "documents", json_null()) &&
        put(out, "add_generation_prompt", json_boolean(options->generation_prompt)) &&
        put_text(out, "bos_token", options->bos) && put_text(out, "eos_token", options->eos) &&
        put_text(out, "date_string", date_string))
        return out;
    json_decref(out);
    return NULL;
}

sheaf_status *sheaf__chat_run(sheaf__jinja_text *out, const sheaf__chat_template *t,
                              const sheaf__message *message, int64_t n,
                              const sheaf__chat_options *options)
{
    const bool by_clock = t->clock && t->day.year != 0;
    json_t *all = variables(message, n, options, t->takes_date && !by_clock ? t->date : NULL);
    if (all == NULL)
        return sheaf__no_memory("chat template");
    sheaf_status *st = sheaf__jinja_render(out, t->program, all, t->day.year != 0 ? &t->day : NULL);
    json_decref(all);
    return t->file != NULL ? sheaf_in(st, "%s", t->file)
                           : sheaf_in(st, "chat template %s", t->name);
}

/* ---- roles ---- */

static sheaf_status *check_role(const sheaf__chat_template *t, const sheaf__message *m, int64_t i)
{
    static const char *const roles[] = { "system",    "user",     "assistant", "tool",
                                         "developer", "function", "ipython" };
    for (size_t k = 0; k < sizeof roles / sizeof *roles; k++)
        if (sheaf__chat_is_role(m, roles[k]))
            return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "message %" PRId64, i + 1);
    sheaf_expected(st, "role system, user, assistant or tool (chat template %s)", t->name);
    return sheaf_found(st, "role '%s'", m->role);
}

/* What a message has beside its content would be lost where the program does not look at it. */
static sheaf_status *check_fields(const sheaf__chat_template *t, const sheaf__message *m, int64_t i)
{
    static const char *const fields[] = { "tool_calls", "function_call", "reasoning_content",
                                          "reasoning", "thinking" };
    for (size_t k = 0; k < sizeof fields / sizeof *fields; k++) {
        const json_t *value = json_object_get(m->json, fields[k]);
        if (value == NULL || json_is_null(value) ||
            (json_is_array(value) && json_array_size(value) == 0) ||
            (json_is_string(value) && json_string_length(value) == 0) ||
            strstr(t->source, fields[k]) != NULL)
            continue;
        sheaf_status *st =
            sheaf_fail(SHEAF_E_UNSUPPORTED, "message %" PRId64 ": '%s'", i + 1, fields[k]);
        sheaf_expected(st, "%s",
                       k < 2 ? "no calls of tools"
                             : "thoughts in the content, between <think> and </think>");
        return sheaf_found(st, "some, which the chat template %s writes nowhere", t->name);
    }
    return NULL;
}

/* The first message with which the program raises, from 1: it does for the first n. */
static int64_t first_raised(const sheaf__chat_template *t, const sheaf__message *message, int64_t n,
                            const sheaf__chat_options *options)
{
    int64_t good = 0;
    while (n - good > 1) {
        sheaf__jinja_text text;
        const int64_t middle = good + (n - good) / 2;
        sheaf_status *st = sheaf__chat_run(&text, t, message, middle, options);
        if (st == NULL)
            good = middle;
        else
            n = middle;
        sheaf_status_free(st);
        sheaf__jinja_text_release(&text);
    }
    return n;
}

static sheaf_status *missing(const sheaf__chat_template *t, const char *what)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "chat template %s", t->name);
    sheaf_expected(st, "a tokenizer with %s token", what);
    return sheaf_found(st, "none in tokenizer_config.json or special_tokens_map.json");
}

static sheaf_status *raised(sheaf_status *st, const sheaf__chat_template *t,
                            const sheaf__message *message, int64_t n,
                            const sheaf__chat_options *options)
{
    const char *lacks = strstr(sheaf_status_where(st), "'bos_token' is undefined") != NULL ? "a bos"
                        : strstr(sheaf_status_where(st), "'eos_token' is undefined") != NULL
                            ? "an eos"
                            : NULL;
    if (lacks != NULL) {
        sheaf_status_free(st);
        return missing(t, lacks);
    }
    if (sheaf_status_code(st) == SHEAF_E_DATA)
        st = sheaf_in(st, "message %" PRId64, first_raised(t, message, n, options));
    return sheaf_status_code(st) == SHEAF_E_MEMORY
               ? st
               : sheaf_try_this(st, "leave this conversation out; or, if the model was trained on "
                                    "another template, --template NAME");
}

/* ---- a conversation ---- */

/* The contents as spans, and how many messages that say something are written nowhere. */
static sheaf_status *take_contents(sheaf__rendered *out, const sheaf__jinja_text *text,
                                   const sheaf__message *message, int64_t n)
{
    bool *written = calloc((size_t)n, sizeof *written);
    out->span = malloc(((size_t)text->pieces + 1) * sizeof *out->span);
    if (written == NULL || out->span == NULL) {
        free(written);
        return sheaf__no_memory("chat template");
    }
    for (int64_t i = 0; i < text->pieces; i++) {
        const sheaf__jpiece *p = &text->piece[i];
        out->span[out->spans++] = (sheaf__span){ p->begin, p->end, p->message, SHEAF__CONTENT };
        written[p->message] = true;
    }
    for (int64_t i = 0; i < n; i++) {
        const char *at = message[i].content;
        size_t size = message[i].size;
        if (!written[i] && at != NULL)
            sheaf__utf8_strip(&at, &size);
        out->left_out += !written[i] && at != NULL && size > 0;
    }
    free(written);
    return NULL;
}

sheaf_status *sheaf__chat_render(sheaf__rendered *out, const sheaf__chat_template *t,
                                 const sheaf__message *message, int64_t n,
                                 const sheaf__chat_options *options)
{
    sheaf__jinja_text text = { 0 };
    *out = (sheaf__rendered){ 0 };
    sheaf_status *st =
        n > 0 ? NULL : sheaf_expected(sheaf_fail(SHEAF_E_DATA, "messages"), "at least one message");
    for (int64_t i = 0; i < n && st == NULL; i++)
        if ((st = check_role(t, &message[i], i)) == NULL)
            st = check_fields(t, &message[i], i);
    if (st == NULL && options->tools != NULL && strstr(t->source, "tools") == NULL)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "'tools'"), "no tools"),
                         "some, which the chat template %s writes nowhere", t->name);
    if (st == NULL && sheaf__chat_template_wants_date(t))
        st = sheaf__chat_template_undated(t->name);
    if (st == NULL && (st = sheaf__chat_run(&text, t, message, n, options)) != NULL)
        st = raised(st, t, message, n, options);
    if (st == NULL && text.lacks_eos)
        st = missing(t, "an eos");
    TRY(st, take_contents(out, &text, message, n));
    if (options->answers)
        TRY(st, sheaf__chat_answers(out, &text, t, message, n, options));
    out->text = text.text;
    out->size = text.size;
    text.text = NULL;
    sheaf__jinja_text_release(&text);
    if (st != NULL)
        sheaf__rendered_release(out);
    return st;
}

void sheaf__rendered_release(sheaf__rendered *r)
{
    free(r->text);
    free(r->span);
    *r = (sheaf__rendered){ 0 };
}
