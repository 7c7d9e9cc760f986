/* jinja_evaluate.c - the value of an expression, as Python would have it: operators, members,
 * entries and slices of values, and calls. */
#include "inputs/chat/jinja_core.h"

#include <math.h>

/* ---- arithmetic ---- */

static sheaf__jvalue repeat(sheaf__j *j, sheaf__jvalue of, int64_t times)
{
    sheaf__jbuffer b = { 0 };
    if (of.kind == SHEAF__J_TEXT) {
        for (int64_t i = 0; i < times && of.u.text.size > 0; i++) {
            sheaf__j_work(j, 1);
            sheaf__j_put(j, &b, of.u.text.at, of.u.text.size);
        }
        return sheaf__j_taken(&b);
    }
    sheaf__jvalue out = sheaf__j_list(j);
    out.kind = of.kind;
    for (int64_t i = 0; i < times && of.u.list->count > 0; i++)
        for (size_t k = 0; k < of.u.list->count; k++) {
            sheaf__j_work(j, 1);
            sheaf__j_append(j, out.u.list, of.u.list->at[k]);
        }
    return out;
}

static sheaf__jvalue joined(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b)
{
    sheaf__jbuffer text = { 0 };
    if (a.kind == SHEAF__J_TEXT) {
        sheaf__j_put(j, &text, a.u.text.at, a.u.text.size);
        sheaf__j_put(j, &text, b.u.text.at, b.u.text.size);
        return sheaf__j_taken(&text);
    }
    sheaf__jvalue out = sheaf__j_list(j);
    out.kind = a.kind;
    for (size_t i = 0; i < a.u.list->count + b.u.list->count; i++) {
        sheaf__j_work(j, 1);
        sheaf__j_append(j, out.u.list,
                        i < a.u.list->count ? a.u.list->at[i] : b.u.list->at[i - a.u.list->count]);
    }
    return out;
}

/* a // b and a % b as Python has them: fmod() is exact, a / b is not. */
typedef struct quotient {
    double whole, rest;
} quotient;

static quotient divide(double a, double b)
{
    const double rest = fmod(a, b), whole = (a - rest) / b;
    const bool past = rest != 0 && (rest < 0) != (b < 0);
    quotient q = { past ? whole - 1 : whole, past ? rest + b : rest };
    if (rest == 0)
        q.rest = copysign(0, b);
    const double below = floor(q.whole);
    q.whole = q.whole == 0 ? copysign(0, a / b) : q.whole - below > 0.5 ? below + 1 : below;
    return q;
}

static sheaf__jvalue reals(sheaf__j *j, sheaf__jtext sign, double a, double b)
{
    const bool divides = *sign.at == '/' || *sign.at == '%';
    if (divides && b == 0)
        sheaf__j_raise(j, "division by zero");
    if (sheaf__j_is(sign, "+"))
        return sheaf__j_float(a + b);
    if (sheaf__j_is(sign, "-"))
        return sheaf__j_float(a - b);
    if (sheaf__j_is(sign, "*"))
        return sheaf__j_float(a * b);
    if (sheaf__j_is(sign, "/"))
        return sheaf__j_float(a / b);
    if (sheaf__j_is(sign, "//"))
        return sheaf__j_float(divide(a, b).whole);
    if (sheaf__j_is(sign, "%"))
        return sheaf__j_float(divide(a, b).rest);
    sheaf__j_refuse(j, "powers of numbers that are not whole");
}

static int64_t power(sheaf__j *j, int64_t a, int64_t b)
{
    int64_t out = 1;
    for (; b > 0; b--) {
        sheaf__j_work(j, 1);
        if (__builtin_mul_overflow(out, a, &out))
            sheaf__j_refuse(j, "a number beyond 64 bits");
        if (out == 0 || (out == 1 && a == 1))
            break;
    }
    return out;
}

static sheaf__jvalue wholes(sheaf__j *j, sheaf__jtext sign, int64_t a, int64_t b)
{
    int64_t out = 0;
    bool over = false;
    if (sheaf__j_is(sign, "/"))
        return reals(j, sign, (double)a, (double)b);
    if (sheaf__j_is(sign, "+")) {
        over = __builtin_add_overflow(a, b, &out);
    } else if (sheaf__j_is(sign, "-")) {
        over = __builtin_sub_overflow(a, b, &out);
    } else if (sheaf__j_is(sign, "*")) {
        over = __builtin_mul_overflow(a, b, &out);
    } else if (sheaf__j_is(sign, "**")) {
        if (b < 0)
            sheaf__j_refuse(j, "negative powers");
        out = power(j, a, b);
    } else {
        if (b == 0)
            sheaf__j_raise(j, "division by zero");
        over = a == INT64_MIN && b == -1;
        const int64_t rest = over ? 0 : a % b;
        const bool down = rest != 0 && (rest < 0) != (b < 0); /* Python rounds down */
        if (!over)
            out = sheaf__j_is(sign, "%") ? rest + (down ? b : 0) : a / b - down;
    }
    if (over)
        sheaf__j_refuse(j, "a number beyond 64 bits");
    return sheaf__j_int(out);
}

sheaf__jvalue sheaf__j_binary(sheaf__j *j, sheaf__jtext sign, sheaf__jvalue a, sheaf__jvalue b)
{
    const bool numbers = sheaf__j_is_number(a) && sheaf__j_is_number(b);
    if (sheaf__j_is(sign, "~")) {
        const sheaf__jtext x = sheaf__j_str(j, a), y = sheaf__j_str(j, b);
        return joined(j, sheaf__j_text(x.at, x.size), sheaf__j_text(y.at, y.size));
    }
    if (sheaf__j_is(sign, "%") && a.kind == SHEAF__J_TEXT)
        sheaf__j_refuse(j, "%% as a format");
    sheaf__j_defined(j, a);
    sheaf__j_defined(j, b);
    if (numbers && (a.kind == SHEAF__J_FLOAT || b.kind == SHEAF__J_FLOAT))
        return reals(j, sign, sheaf__j_real(a), sheaf__j_real(b));
    if (numbers)
        return wholes(j, sign, sheaf__j_whole(a), sheaf__j_whole(b));
    const bool row_a = a.kind == SHEAF__J_TEXT || sheaf__j_is_list(a);
    const bool row_b = b.kind == SHEAF__J_TEXT || sheaf__j_is_list(b);
    if (sheaf__j_is(sign, "+") && row_a && a.kind == b.kind)
        return joined(j, a, b);
    if (sheaf__j_is(sign, "*") && row_a && sheaf__j_is_number(b) && b.kind != SHEAF__J_FLOAT)
        return repeat(j, a, sheaf__j_whole(b));
    if (sheaf__j_is(sign, "*") && row_b && sheaf__j_is_number(a) && a.kind != SHEAF__J_FLOAT)
        return repeat(j, b, sheaf__j_whole(a));
    sheaf__j_raise(j, "unsupported operand types for %.*s: '%s' and '%s'", (int)sign.size, sign.at,
                   sheaf__j_kind(a), sheaf__j_kind(b));
}

/* ---- members and entries ---- */

sheaf__jvalue sheaf__j_member(sheaf__j *j, sheaf__jvalue of, sheaf__jtext name)
{
    sheaf__j_defined(j, of);
    if (of.kind == SHEAF__J_LOOP)
        return sheaf__j_loop_member(j, of.u.loop, name);
    if (sheaf__j_is_method(of, name))
        sheaf__j_refuse(j, "the method %.*s without a call", (int)name.size, name.at);
    if (of.kind == SHEAF__J_DICT || of.kind == SHEAF__J_SPACE) {
        const sheaf__jvalue *v = sheaf__j_get(j, of.u.dict, sheaf__j_text(name.at, name.size));
        return v != NULL ? *v : sheaf__j_undefined(name);
    }
    if (of.kind == SHEAF__J_MACRO || of.kind == SHEAF__J_FUNCTION ||
        (name.size > 1 && name.at[0] == '_' && name.at[1] == '_'))
        sheaf__j_refuse(j, "members of a %s", sheaf__j_kind(of));
    return sheaf__j_undefined(name);
}

/* The entry of a row of `count` at `index`, which counts from the end where negative; -1: none. */
static int64_t place(int64_t index, size_t count)
{
    if (index < 0)
        index += (int64_t)count;
    return index < 0 || index >= (int64_t)count ? -1 : index;
}

sheaf__jvalue sheaf__j_item(sheaf__j *j, sheaf__jvalue of, sheaf__jvalue key)
{
    const bool whole = key.kind == SHEAF__J_INT || key.kind == SHEAF__J_BOOL;
    sheaf__j_defined(j, of);
    if (of.kind == SHEAF__J_VIEW)
        sheaf__j_refuse(j, "an entry of a range or of a dict's view");
    if (of.kind == SHEAF__J_DICT) {
        const sheaf__jvalue *v = sheaf__j_get(j, of.u.dict, key);
        if (v != NULL)
            return *v;
    }
    if (key.kind == SHEAF__J_TEXT)
        return sheaf__j_member(j, of, key.u.text);
    if ((sheaf__j_is_list(of) || of.kind == SHEAF__J_TEXT) && whole) {
        const sheaf__jlist items = sheaf__j_items(j, of);
        const int64_t at = place(sheaf__j_whole(key), items.count);
        if (at >= 0)
            return items.at[at];
    }
    return sheaf__j_undefined(SHEAF__J_WORD("element"));
}

/* Bounds as slice.indices() has them. */
static int64_t slice_bound(sheaf__j *j, sheaf__jvalue v, int64_t absent, int64_t count,
                           int64_t step)
{
    if (v.kind == SHEAF__J_NONE)
        return absent;
    if (v.kind != SHEAF__J_INT && v.kind != SHEAF__J_BOOL)
        sheaf__j_raise(j, "slice indices must be integers or None");
    int64_t at = sheaf__j_whole(v);
    if (at < 0)
        at = at < -count ? -1 : at + count;
    const int64_t least = step < 0 ? -1 : 0, most = step < 0 ? count - 1 : count;
    return at < least ? least : at > most ? most : at;
}

sheaf__jvalue sheaf__j_slice(sheaf__j *j, sheaf__jvalue of, const sheaf__jvalue bounds[3])
{
    sheaf__j_defined(j, of);
    if (of.kind == SHEAF__J_VIEW)
        sheaf__j_refuse(j, "a slice of a range or of a dict's view");
    if (of.kind != SHEAF__J_TEXT && !sheaf__j_is_list(of))
        return sheaf__j_undefined(SHEAF__J_WORD("slice"));
    const sheaf__jlist items = sheaf__j_items(j, of);
    const int64_t count = (int64_t)items.count;
    const int64_t step = bounds[2].kind == SHEAF__J_NONE ? 1 : sheaf__j_whole(bounds[2]);
    if (bounds[2].kind != SHEAF__J_NONE && bounds[2].kind != SHEAF__J_INT)
        sheaf__j_raise(j, "slice indices must be integers or None");
    if (step == 0)
        sheaf__j_raise(j, "slice step cannot be zero");
    const int64_t from = slice_bound(j, bounds[0], step < 0 ? count - 1 : 0, count, step);
    const int64_t to = slice_bound(j, bounds[1], step < 0 ? -1 : count, count, step);
    sheaf__jbuffer b = { 0 };
    sheaf__jvalue out = sheaf__j_list(j);
    out.kind = of.kind == SHEAF__J_TEXT ? SHEAF__J_LIST : of.kind;
    for (int64_t i = from; step < 0 ? i > to : i < to;) {
        sheaf__j_work(j, 1);
        if (of.kind == SHEAF__J_TEXT)
            sheaf__j_put(j, &b, items.at[i].u.text.at, items.at[i].u.text.size);
        else
            sheaf__j_append(j, out.u.list, items.at[i]);
        if (step > count || step < -count)
            break;
        i += step;
    }
    return of.kind == SHEAF__J_TEXT ? sheaf__j_taken(&b) : out;
}

/* ---- calls ---- */

sheaf__jarguments sheaf__j_arguments(sheaf__jrun *r, const sheaf__jnode *args)
{
    sheaf__jarguments out = { { 0 }, { { 0 }, { 0 } } };
    for (; args != NULL; args = args->next) {
        const sheaf__jvalue value = sheaf__j_evaluate(r, args->a);
        if (args->name.size > 0)
            sheaf__j_set(r->j, &out.named, sheaf__j_text(args->name.at, args->name.size), value);
        else if (out.named.keys.count > 0)
            sheaf__j_raise(r->j, "positional argument follows keyword argument");
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
    }
    const sheaf__jvalue what = sheaf__j_evaluate(r, callee);
    const sheaf__jarguments args = sheaf__j_arguments(r, e->args);
    if (what.kind == SHEAF__J_MACRO)
        return r->call_macro(r, what.u.macro, &args, NULL);
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
        return (sheaf__jvalue){ SHEAF__J_FUNCTION, { .text = e->name } };
    if (sheaf__is_listed("self varargs kwargs unk_token sep_token pad_token cls_token mask_token",
                         e->name.at, e->name.size))
        sheaf__j_refuse(r->j, "the name %.*s", (int)e->name.size, e->name.at);
    r->result->lacks_eos |= sheaf__j_is(e->name, "eos_token");
    return sheaf__j_undefined(e->name);
}

/* ---- comparisons and the rest ---- */

bool sheaf__j_compared(sheaf__j *j, sheaf__jtext sign, sheaf__jvalue a, sheaf__jvalue b)
{
    if (sheaf__j_is(sign, "=="))
        return sheaf__j_equal(j, a, b);
    if (sheaf__j_is(sign, "!="))
        return !sheaf__j_equal(j, a, b);
    if (sheaf__j_is(sign, "in"))
        return sheaf__j_contains(j, b, a);
    if (sheaf__j_is(sign, "not"))
        return !sheaf__j_contains(j, b, a);
    const double x = sheaf__j_is_number(a) ? sheaf__j_real(a) : 0;
    const double y = sheaf__j_is_number(b) ? sheaf__j_real(b) : 0;
    const int order = sheaf__j_compare(j, a, b);
    if (x != x || y != y) /* nan has no order */
        return false;
    return sheaf__j_is(sign, "<")    ? order < 0
           : sheaf__j_is(sign, "<=") ? order <= 0
           : sheaf__j_is(sign, ">")  ? order > 0
                                     : order >= 0;
}

static sheaf__jvalue comparison(sheaf__jrun *r, const sheaf__jnode *e)
{
    sheaf__jvalue a = sheaf__j_evaluate(r, e->a);
    for (const sheaf__jnode *with = e->args; with != NULL; with = with->next) {
        const sheaf__jvalue b = sheaf__j_evaluate(r, with->a);
        if (!sheaf__j_compared(r->j, with->name, a, b))
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
