/* program.c - runs the program of a template on messages, with what transformers hands to it. */
#include "inputs/chat/named.h"

#include <string.h>

#include "base/status.h"

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
