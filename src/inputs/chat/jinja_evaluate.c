/* jinja_evaluate.c - the value of an expression, as Python would have it. */
#include "inputs/chat/jinja_core.h"

/* ---- calls ---- */

/* *value */
static void spread_list(sheaf__j *j, sheaf__jarguments *out, sheaf__jvalue value)
{
    const sheaf__jlist items = sheaf__j_items(j, value);
    for (size_t i = 0; i < items.count; i++) {
        sheaf__j_work(j, 1);
        sheaf__j_append(j, &out->at, items.at[i]);
    }
}

/* **value */
static void spread_dict(sheaf__j *j, sheaf__jarguments *out, sheaf__jvalue value)
{
    if (value.kind != SHEAF__J_DICT)
        sheaf__j_raise(j, "the argument after ** must be a mapping, not %s", sheaf__j_kind(value));
    for (size_t i = 0; i < value.u.dict->keys.count; i++) {
        const sheaf__jvalue key = value.u.dict->keys.at[i];
        if (key.kind != SHEAF__J_TEXT)
            sheaf__j_raise(j, "keywords must be strings");
        if (sheaf__j_get(j, &out->named, key) != NULL)
            sheaf__j_raise(j, "got multiple values for the keyword argument '%.*s'",
                           (int)key.u.text.size, key.u.text.at);
        sheaf__j_set(j, &out->named, key, value.u.dict->values.at[i]);
    }
}

sheaf__jarguments sheaf__j_arguments(sheaf__jrun *r, const sheaf__jnode *args)
{
    sheaf__jarguments out = { { 0 }, { { 0 }, { 0 } } };
    for (; args != NULL; args = args->next) {
        const sheaf__jvalue value = sheaf__j_evaluate(r, args->a);
        if (sheaf__j_is(args->name, "*"))
            spread_list(r->j, &out, value);
        else if (sheaf__j_is(args->name, "**"))
            spread_dict(r->j, &out, value);
        else if (args->name.size > 0)
            sheaf__j_set(r->j, &out.named, sheaf__j_text(args->name.at, args->name.size), value);
        else
            sheaf__j_append(r->j, &out.at, value);
    }
    return out;
}

static sheaf__jvalue call(sheaf__jrun *r, const sheaf__jnode *e)
{
    const sheaf__jnode *callee = e->a;
    if (callee->kind == SHEAF__E_MEMBER) {
        const sheaf__jvalue of = sheaf__j_evaluate(r, callee->a);
        if (sheaf__j_is_method(of, callee->name)) {
            const sheaf__jarguments args = sheaf__j_arguments(r, e->args);
            return sheaf__j_call_method(r, of, callee->name, &args);
        }
        if (sheaf__j_is_unsafe(of, callee->name))
            sheaf__j_raise(r->j, "access to attribute '%.*s' of '%s' object is unsafe.",
                           (int)callee->name.size, callee->name.at, sheaf__j_kind(of));
    }
    const sheaf__jvalue what = sheaf__j_evaluate(r, callee);
    const sheaf__jarguments args = sheaf__j_arguments(r, e->args);
    if (what.kind == SHEAF__J_MACRO)
        return r->call_macro(r, what.u.macro, &args, NULL);
    if (what.kind == SHEAF__J_METHOD)
        return sheaf__j_call_method(r, what.u.method->of, what.u.method->name, &args);
    if (what.kind == SHEAF__J_LOOP)
        return r->call_loop(r, what.u.loop, &args);
    if (what.kind == SHEAF__J_JOINER) { /* nothing, then its separator each time */
        const sheaf__jvalue now = what.u.list->at[0];
        what.u.list->at[0] = what.u.list->at[1];
        return now;
    }
    if (what.kind == SHEAF__J_FUNCTION)
        return sheaf__j_call(sheaf__j_function(what.u.text), r, what, &args);
    sheaf__j_defined(r->j, what);
    sheaf__j_raise(r->j, "'%s' object is not callable", sheaf__j_kind(what));
}

static sheaf__jvalue name(sheaf__jrun *r, const sheaf__jnode *e)
{
    const sheaf__jvalue *v = sheaf__j_find(r, e->name);
    if (v != NULL)
        return *v;
    if (sheaf__j_function(e->name) != NULL)
        return (sheaf__jvalue){ SHEAF__J_FUNCTION, .u = { .text = e->name } };
    if (sheaf__is_listed("self unk_token sep_token pad_token cls_token mask_token", e->name.at,
                         e->name.size))
        sheaf__j_refuse(r->j, "the name %.*s", (int)e->name.size, e->name.at);
    r->result->lacks_eos |= sheaf__j_is(e->name, "eos_token");
    return sheaf__j_undefined(e->name);
}

/* ---- comparisons and the rest ---- */

static sheaf__jvalue comparison(sheaf__jrun *r, const sheaf__jnode *e)
{
    sheaf__jvalue a = sheaf__j_evaluate(r, e->a);
    for (const sheaf__jnode *with = e->args; with != NULL; with = with->next) {
        const sheaf__jvalue b = sheaf__j_evaluate(r, with->a);
        if (!sheaf__j_relation(r->j, with->name, a, b))
            return sheaf__j_bool(false);
        a = b;
    }
    return sheaf__j_bool(true);
}

static sheaf__jvalue sequence(sheaf__jrun *r, const sheaf__jnode *e)
{
    sheaf__jvalue out = e->kind == SHEAF__E_DICT ? sheaf__j_dict(r->j) : sheaf__j_list(r->j);
    if (e->kind == SHEAF__E_TUPLE)
        out.kind = SHEAF__J_TUPLE;
    for (const sheaf__jnode *entry = e->args; entry != NULL; entry = entry->next) {
        const sheaf__jvalue first = sheaf__j_evaluate(r, entry->a);
        if (e->kind == SHEAF__E_DICT)
            sheaf__j_set(r->j, out.u.dict, first, sheaf__j_evaluate(r, entry->b));
        else
            sheaf__j_append(r->j, out.u.list, first);
    }
    return out;
}

static sheaf__jvalue sign(sheaf__jrun *r, const sheaf__jnode *e)
{
    const sheaf__jvalue v = sheaf__j_evaluate(r, e->a);
    const bool minus = *e->name.at == '-';
    sheaf__j_defined(r->j, v);
    if (!sheaf__j_is_number(v))
        sheaf__j_raise(r->j, "bad operand type for a sign: '%s'", sheaf__j_kind(v));
    if (v.kind == SHEAF__J_FLOAT)
        return sheaf__j_float(minus ? -v.u.real : v.u.real);
    if (minus && sheaf__j_whole(v) == INT64_MIN)
        sheaf__j_refuse(r->j, "a number beyond 64 bits");
    return sheaf__j_int(minus ? -sheaf__j_whole(v) : sheaf__j_whole(v));
}

static sheaf__jvalue slice(sheaf__jrun *r, const sheaf__jnode *e)
{
    const sheaf__jvalue of = sheaf__j_evaluate(r, e->a);
    const sheaf__jnode *const parts[3] = { e->b, e->c, e->d };
    sheaf__jvalue bounds[3];
    for (int i = 0; i < 3; i++)
        bounds[i] = parts[i] != NULL ? sheaf__j_evaluate(r, parts[i]) : sheaf__j_none();
    return sheaf__j_slice(r->j, of, bounds);
}

static sheaf__jvalue filter_or_test(sheaf__jrun *r, const sheaf__jnode *e)
{
    const sheaf__jvalue of = sheaf__j_evaluate(r, e->a);
    const sheaf__jarguments args = sheaf__j_arguments(r, e->args);
    if (e->kind == SHEAF__E_TEST && sheaf__j_is(e->name, "filter") && e->args == NULL &&
        of.kind != SHEAF__J_LIST && of.kind != SHEAF__J_DICT) /* these have no hash */
        return sheaf__j_bool(of.kind == SHEAF__J_TEXT && sheaf__j_is_filter(of.u.text));
    return e->kind == SHEAF__E_FILTER ? sheaf__j_filter(r, e->name, of, &args)
                                      : sheaf__j_bool(sheaf__j_test(r, e->name, of, &args));
}

static sheaf__jvalue binary(sheaf__jrun *r, const sheaf__jnode *e)
{
    const sheaf__jvalue a = sheaf__j_evaluate(r, e->a);
    const bool and = sheaf__j_is(e->name, "and"), or = sheaf__j_is(e->name, "or");
    if ((and&&!sheaf__j_truth(a)) || (or &&sheaf__j_truth(a)))
        return a;
    const sheaf__jvalue b = sheaf__j_evaluate(r, e->b);
    return and || or ? b : sheaf__j_binary(r->j, e->name, a, b);
}

static sheaf__jvalue choice(sheaf__jrun *r, const sheaf__jnode *e)
{
    if (sheaf__j_truth(sheaf__j_evaluate(r, e->b)))
        return sheaf__j_evaluate(r, e->a);
    return e->c != NULL ? sheaf__j_evaluate(r, e->c)
                        : sheaf__j_undefined(SHEAF__J_WORD("the inline if without else"));
}

static sheaf__jvalue evaluate(sheaf__jrun *r, const sheaf__jnode *e)
{
    switch (e->kind) {
    case SHEAF__E_CONST: return e->value;
    case SHEAF__E_BODY: return r->body;
    case SHEAF__E_NAME: return name(r, e);
    case SHEAF__E_MEMBER: return sheaf__j_member(r->j, sheaf__j_evaluate(r, e->a), e->name);
    case SHEAF__E_ITEM: {
        const sheaf__jvalue of = sheaf__j_evaluate(r, e->a);
        return sheaf__j_item(r->j, of, sheaf__j_evaluate(r, e->b));
    }
    case SHEAF__E_SLICE: return slice(r, e);
    case SHEAF__E_CALL: return call(r, e);
    case SHEAF__E_FILTER:
    case SHEAF__E_TEST: return filter_or_test(r, e);
    case SHEAF__E_NOT: return sheaf__j_bool(!sheaf__j_truth(sheaf__j_evaluate(r, e->a)));
    case SHEAF__E_SIGN: return sign(r, e);
    case SHEAF__E_BINARY: return binary(r, e);
    case SHEAF__E_COMPARE: return comparison(r, e);
    case SHEAF__E_CHOICE: return choice(r, e);
    default: return sequence(r, e);
    }
}

sheaf__jvalue sheaf__j_evaluate(sheaf__jrun *r, const sheaf__jnode *e)
{
    sheaf__j_work(r->j, 1);
    sheaf__j_down(r->j);
    const sheaf__jvalue v = evaluate(r, e);
    r->j->depth--;
    return v;
}
