/* jinja_scope.c - names and their values, and the arguments of a call. */
#include "inputs/chat/jinja_core.h"

#include <string.h>

typedef struct sheaf__jvariable {
    struct sheaf__jvariable *next;
    sheaf__jtext name;
    sheaf__jvalue value;
} variable;

/* ---- scopes ---- */

sheaf__jscope *sheaf__j_enter(sheaf__jrun *r, sheaf__jscope *parent)
{
    sheaf__jscope *before = r->scope;
    r->scope = sheaf__j_take(r->j, sizeof *r->scope);
    r->scope->parent = parent;
    return before;
}

static variable *find_in(sheaf__j *j, const sheaf__jscope *scope, sheaf__jtext name)
{
    for (variable *v = scope->variables; v != NULL; v = v->next) {
        sheaf__j_work(j, 1);
        if (sheaf__j_same(v->name, name))
            return v;
    }
    return NULL;
}

sheaf__jvalue *sheaf__j_find(sheaf__jrun *r, sheaf__jtext name)
{
    for (const sheaf__jscope *s = r->scope; s != NULL; s = s->parent) {
        variable *v = find_in(r->j, s, name);
        if (v != NULL)
            return &v->value;
    }
    return NULL;
}

void sheaf__j_define(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue value)
{
    variable *v = find_in(r->j, r->scope, name);
    if (v == NULL) {
        v = sheaf__j_take(r->j, sizeof *v);
        v->name = name;
        v->next = r->scope->variables;
        r->scope->variables = v;
    }
    v->value = value;
}

/* ---- arguments ---- */

void sheaf__j_read(sheaf__j *j, sheaf__jvalue v)
{
    switch (v.kind) {
    case SHEAF__J_TEXT: sheaf__j_work(j, v.u.text.size / 16); break;
    case SHEAF__J_LIST:
    case SHEAF__J_TUPLE:
    case SHEAF__J_GENERATOR:
    case SHEAF__J_VIEW: sheaf__j_work(j, v.u.list->count); break;
    case SHEAF__J_DICT: sheaf__j_work(j, v.u.dict->keys.count); break;
    default: break;
    }
}

const sheaf__jvalue *sheaf__j_argument(sheaf__j *j, const sheaf__jarguments *args, size_t position,
                                       const char *name)
{
    if (position < args->at.count)
        return &args->at.at[position];
    return name == NULL ? NULL : sheaf__j_get(j, &args->named, sheaf__j_text(name, strlen(name)));
}

void sheaf__j_take_arguments(sheaf__j *j, const sheaf__jarguments *args, const char *names)
{
    if (*names == '*')
        return;
    size_t n = 0, known = 0;
    for (const char *p = names; *p != '\0'; n++) {
        const size_t size = strcspn(p, " ");
        for (size_t i = 0; i < args->named.keys.count; i++)
            if (sheaf__j_same(args->named.keys.at[i].u.text, (sheaf__jtext){ p, size })) {
                known++;
                if (n < args->at.count)
                    sheaf__j_raise(j, "two values for the argument %.*s", (int)size, p);
            }
        p += size;
        p += *p == ' ';
    }
    if (args->at.count > n || known < args->named.keys.count)
        sheaf__j_raise(j, "arguments that are not taken here");
}

int64_t sheaf__j_int_argument(sheaf__j *j, const sheaf__jvalue *v, int64_t absent)
{
    if (v == NULL)
        return absent;
    if (v->kind != SHEAF__J_INT && v->kind != SHEAF__J_BOOL)
        sheaf__j_raise(j, "an integer is required, got '%s'", sheaf__j_kind(*v));
    return sheaf__j_whole(*v);
}

bool sheaf__j_bool_argument(const sheaf__jvalue *v, bool absent)
{
    return v == NULL ? absent : sheaf__j_truth(*v);
}

sheaf__jtext sheaf__j_text_argument(sheaf__j *j, const sheaf__jvalue *v, sheaf__jtext absent)
{
    if (v == NULL)
        return absent;
    if (v->kind != SHEAF__J_TEXT)
        sheaf__j_raise(j, "a string is required, got '%s'", sheaf__j_kind(*v));
    return v->u.text;
}
