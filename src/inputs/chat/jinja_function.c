/* jinja_function.c - the functions that every template has. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

static sheaf__jvalue range(sheaf__jcall *c)
{
    sheaf__j *j = c->j;
    int64_t bounds[3] = { 0, 0, 1 };
    const sheaf__jlist given = c->args->at;
    if (given.count == 0 || given.count > 3 || c->args->named.keys.count > 0)
        sheaf__j_raise(j, "range takes 1 to 3 arguments");
    for (size_t i = 0; i < given.count; i++)
        bounds[given.count == 1 ? 1 : i] = sheaf__j_int_argument(j, &given.at[i], 0);
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
static sheaf__jvalue members(sheaf__jcall *c)
{
    sheaf__j *j = c->j;
    const sheaf__jarguments *args = c->args;
    sheaf__jvalue out = sheaf__j_dict(j);
    const sheaf__jlist *keys = &args->named.keys;
    if (args->at.count > 1 || (args->at.count == 1 && args->at.at[0].kind != SHEAF__J_DICT))
        sheaf__j_refuse(j, "dict() and namespace() of what is no dict");
    for (size_t i = 0; args->at.count == 1 && i < args->at.at[0].u.dict->keys.count; i++)
        sheaf__j_set(j, out.u.dict, args->at.at[0].u.dict->keys.at[i],
                     args->at.at[0].u.dict->values.at[i]);
    for (size_t i = 0; i < keys->count; i++)
        sheaf__j_set(j, out.u.dict, keys->at[i], args->named.values.at[i]);
    for (size_t i = 0; c->how == SHEAF__J_SPACE && i < out.u.dict->keys.count; i++) {
        const sheaf__jvalue key = out.u.dict->keys.at[i];
        if (key.kind == SHEAF__J_TEXT && key.u.text.size > 0 && *key.u.text.at == '_')
            sheaf__j_raise(j, "names of a namespace may not begin with _");
    }
    out.kind = c->how;
    return out;
}

static sheaf__jvalue raise_exception(sheaf__jcall *c)
{
    const sheaf__jtext text = c->at[0] == NULL ? SHEAF__J_WORD("") : sheaf__j_str(c->j, *c->at[0]);
    sheaf__j_raise(c->j, "%.*s", text.size > 200 ? 200 : (int)text.size, text.at);
}

static sheaf__jvalue today(sheaf__jcall *c)
{
    char text[SHEAF__DATE_SIZE];
    sheaf__jrun *r = c->r;
    const sheaf__jtext format = sheaf__j_text_argument(c->j, c->at[0], SHEAF__J_WORD(""));
    if (r->today == NULL)
        sheaf__j_refuse(c->j, "strftime_now(): a text that changes with the day");
    if (!sheaf__date_write(text, format.at, format.size, *r->today))
        sheaf__j_refuse(c->j, "strftime_now('%.*s')", format.size > 40 ? 40 : (int)format.size,
                        format.at);
    snprintf(r->result->date, sizeof r->result->date, "%s", text);
    sheaf__jbuffer b = { 0 };
    sheaf__j_put(c->j, &b, text, strlen(text));
    return sheaf__j_taken(&b);
}

static sheaf__jvalue refused(sheaf__jcall *c)
{
    sheaf__j_refuse(c->j, "the function %.*s()", (int)c->of.u.text.size, c->of.u.text.at);
}

static const sheaf__jbuiltin functions[] = {
    { "range", "*", range },
    { "dict", "*", members, SHEAF__J_DICT },
    { "namespace", "*", members, SHEAF__J_SPACE },
    { "raise_exception", "message", raise_exception },
    { "strftime_now", "format", today },
    { "lipsum", "*", refused },
    { "cycler", "*", refused },
    { "joiner", "*", refused },
    { NULL },
};

const sheaf__jbuiltin *sheaf__j_function(sheaf__jtext name)
{
    return sheaf__j_builtin(functions, SHEAF__J_UNDEFINED, name);
}
