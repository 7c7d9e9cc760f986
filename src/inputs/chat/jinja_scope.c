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
    case SHEAF__J_RANGE:
    case SHEAF__J_VIEW: sheaf__j_work(j, v.u.list->count); break;
    case SHEAF__J_DICT: sheaf__j_work(j, v.u.dict->keys.count); break;
    default: break;
    }
}

void sheaf__j_bind(sheaf__jcall *c, const char *names)
{
    const sheaf__jarguments *args = c->args;
    size_t n = 0, known = 0;
    if (*names == '*')
        return;
    for (const char *p = names; *p != '\0'; n++) {
        const bool by_place = *p == '.';
        p += by_place;
        const size_t size = strcspn(p, "! ");
        const sheaf__jvalue *named =
            by_place ? NULL : sheaf__j_get(c->j, &args->named, sheaf__j_text(p, size));
        known += named != NULL;
        if (named != NULL && n < args->at.count)
            sheaf__j_raise(c->j, "two values for the argument %.*s", (int)size, p);
        c->at[n] = n < args->at.count ? &args->at.at[n] : named;
        if (c->at[n] == NULL && p[size] == '!')
            sheaf__j_raise(c->j, "the argument %.*s is missing", (int)size, p);
        p += size + strspn(p + size, "! ");
    }
    if (args->at.count > n || known < args->named.keys.count)
        sheaf__j_raise(c->j, "%.*s takes no such arguments", (int)c->name.size, c->name.at);
}

const sheaf__jbuiltin *sheaf__j_builtin(const sheaf__jbuiltin *list, sheaf__jkind kind,
                                        sheaf__jtext name)
{
    for (; list->name != NULL; list++)
        if (list->kind == kind && sheaf__j_is(name, list->name))
            return list;
    return NULL;
}

sheaf__jvalue sheaf__j_call(const sheaf__jbuiltin *what, sheaf__jrun *r, sheaf__jvalue of,
                            const sheaf__jarguments *args)
{
    sheaf__jcall c = { .r = r, .j = r->j, .of = of, .args = args, .how = what->how };
    c.name = (sheaf__jtext){ what->name, strlen(what->name) };
    sheaf__j_down(r->j);
    sheaf__j_bind(&c, what->arguments);
    if (what->reads)
        sheaf__j_read(r->j, of);
    const sheaf__jvalue out = what->run(&c);
    r->j->depth--;
    return out;
}

int64_t sheaf__j_int_argument(sheaf__j *j, const sheaf__jvalue *v, int64_t absent)
{
    if (v == NULL)
        return absent;
    if (v->kind != SHEAF__J_INT && v->kind != SHEAF__J_BOOL)
        sheaf__j_raise(j, "an integer is required, got '%s'", sheaf__j_kind(*v));
    return sheaf__j_whole(*v);
}

bool sheaf__j_bool_argument(const sheaf__jvalue *v)
{
    return v != NULL && sheaf__j_truth(*v);
}

sheaf__jtext sheaf__j_text_argument(sheaf__j *j, const sheaf__jvalue *v, sheaf__jtext absent)
{
    if (v == NULL)
        return absent;
    if (v->kind != SHEAF__J_TEXT)
        sheaf__j_raise(j, "a string is required, got '%s'", sheaf__j_kind(*v));
    return v->u.text;
}
