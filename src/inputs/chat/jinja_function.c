/* jinja_function.c - the functions that every template has. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

static sheaf__jvalue range(sheaf__j *j, const sheaf__jarguments *args)
{
    int64_t bounds[3] = { 0, 0, 1 };
    const size_t n = args->at.count;
    if (n == 0 || n > 3 || args->named.keys.count > 0)
        sheaf__j_raise(j, "range takes 1 to 3 arguments");
    for (size_t i = 0; i < n; i++)
        bounds[n == 1 ? 1 : i] = sheaf__j_int_argument(j, &args->at.at[i], 0);
    const int64_t step = bounds[2];
    if (step == 0)
        sheaf__j_raise(j, "range() arg 3 must not be zero");
    sheaf__jvalue out = sheaf__j_list(j);
    out.kind = SHEAF__J_VIEW;
    for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
        if (out.u.list->count == SHEAF__J_RANGE)
            sheaf__j_raise(j, "range too big");
        sheaf__j_work(j, 1);
        sheaf__j_append(j, out.u.list, sheaf__j_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return out;
}

/* dict(a=1), namespace(a=1): both also of one dict. */
static sheaf__jvalue members(sheaf__j *j, const sheaf__jarguments *args, sheaf__jkind kind)
{
    sheaf__jvalue out = sheaf__j_dict(j);
    const sheaf__jlist *keys = &args->named.keys;
    if (args->at.count > 1 || (args->at.count == 1 && args->at.at[0].kind != SHEAF__J_DICT))
        sheaf__j_refuse(j, "dict() and namespace() of what is no dict");
    for (size_t i = 0; args->at.count == 1 && i < args->at.at[0].u.dict->keys.count; i++)
        sheaf__j_set(j, out.u.dict, args->at.at[0].u.dict->keys.at[i],
                     args->at.at[0].u.dict->values.at[i]);
    for (size_t i = 0; i < keys->count; i++)
        sheaf__j_set(j, out.u.dict, keys->at[i], args->named.values.at[i]);
    for (size_t i = 0; kind == SHEAF__J_SPACE && i < out.u.dict->keys.count; i++) {
        const sheaf__jvalue key = out.u.dict->keys.at[i];
        if (key.kind == SHEAF__J_TEXT && key.u.text.size > 0 && *key.u.text.at == '_')
            sheaf__j_raise(j, "names of a namespace may not begin with _");
    }
    out.kind = kind;
    return out;
}

static sheaf__jvalue today(sheaf__jrun *r, const sheaf__jarguments *args)
{
    char text[SHEAF__DATE_SIZE];
    sheaf__j_take_arguments(r->j, args, "format");
    const sheaf__jtext format =
        sheaf__j_text_argument(r->j, sheaf__j_argument(r->j, args, 0, "format"), SHEAF__J_WORD(""));
    if (r->today == NULL)
        sheaf__j_refuse(r->j, "strftime_now(): a text that changes with the day");
    if (!sheaf__date_write(text, format.at, format.size, *r->today))
        sheaf__j_refuse(r->j, "strftime_now('%.*s')", format.size > 40 ? 40 : (int)format.size,
                        format.at);
    snprintf(r->result->date, sizeof r->result->date, "%s", text);
    sheaf__jbuffer b = { 0 };
    sheaf__j_put(r->j, &b, text, strlen(text));
    return sheaf__j_taken(&b);
}

static const char *const functions[] = { "range",        "dict",   "namespace", "raise_exception",
                                         "strftime_now", "lipsum", "cycler",    "joiner" };

bool sheaf__j_is_function(sheaf__jtext name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (sheaf__j_is(name, functions[i]))
            return true;
    return false;
}

sheaf__jvalue sheaf__j_call_function(sheaf__jrun *r, sheaf__jtext name,
                                     const sheaf__jarguments *args)
{
    if (sheaf__j_is(name, "range"))
        return range(r->j, args);
    if (sheaf__j_is(name, "dict"))
        return members(r->j, args, SHEAF__J_DICT);
    if (sheaf__j_is(name, "namespace"))
        return members(r->j, args, SHEAF__J_SPACE);
    if (sheaf__j_is(name, "raise_exception")) {
        const sheaf__jvalue *message = sheaf__j_argument(r->j, args, 0, "message");
        const sheaf__jtext text =
            message == NULL ? SHEAF__J_WORD("") : sheaf__j_str(r->j, *message);
        sheaf__j_raise(r->j, "%.*s", text.size > 200 ? 200 : (int)text.size, text.at);
    }
    if (sheaf__j_is(name, "strftime_now"))
        return today(r, args);
    sheaf__j_refuse(r->j, "the function %.*s()", (int)name.size, name.at);
}
