/* jinja_operate.c - operators, members, entries, slices and order of values, as Python has them. */
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
        sheaf__jvalue text = sheaf__j_buffer_text(&b);
        text.form = of.form;
        return text;
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

/* Does Markup escape some of it? */
static bool would_change(sheaf__jvalue v)
{
    for (size_t i = 0; v.form != SHEAF__J_MARKUP && i < v.u.text.size; i++)
        if (memchr("&<>'\"", v.u.text.at[i], 5) != NULL)
            return true;
    return false;
}

static sheaf__jvalue joined(sheaf__j *j, sheaf__jvalue a, sheaf__jvalue b)
{
    sheaf__jbuffer text = { 0 };
    if (a.kind == SHEAF__J_TEXT) {
        const bool markup = a.form == SHEAF__J_MARKUP || b.form == SHEAF__J_MARKUP;
        if (markup && (would_change(a) || would_change(b)))
            sheaf__j_refuse(j, "a sum that escapes a text, as the filter safe has made the other");
        sheaf__j_put(j, &text, a.u.text.at, a.u.text.size);
        sheaf__j_put(j, &text, b.u.text.at, b.u.text.size);
        sheaf__jvalue both = sheaf__j_buffer_text(&text);
        both.form = markup ? SHEAF__J_MARKUP : SHEAF__J_PLAIN;
        return both;
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
    if (a == 0 && b < 0)
        sheaf__j_raise(j, "0.0 cannot be raised to a negative power");
    if (a < 0 && b != floor(b))
        sheaf__j_refuse(j, "a power that is no real number");
    const double out = pow(a, b);
    if (isinf(out) && !isinf(a) && !isinf(b))
        sheaf__j_raise(j, "Result too large");
    return sheaf__j_float(out);
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
            return reals(j, sign, (double)a, (double)b);
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
    if (sheaf__j_is(sign, "%") && a.form == SHEAF__J_MARKUP)
        sheaf__j_refuse(j, "%% of a text that the filter safe has made Markup");
    if (sheaf__j_is(sign, "%") && a.kind == SHEAF__J_TEXT)
        return sheaf__j_percent(j, a.u.text, b);
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

static sheaf__jvalue loop_member(const sheaf__jloop *loop, sheaf__jtext name)
{
    const size_t i = loop->index, n = loop->items.count;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        { "index", (int64_t)i + 1 },      { "index0", (int64_t)i },
        { "revindex", (int64_t)(n - i) }, { "revindex0", (int64_t)(n - i) - 1 },
        { "length", (int64_t)n },         { "depth", loop->depth + 1 },
        { "depth0", loop->depth },
    };
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (sheaf__j_is(name, numbers[k].name))
            return sheaf__j_int(numbers[k].value);
    if (sheaf__j_is(name, "first"))
        return sheaf__j_bool(i == 0);
    if (sheaf__j_is(name, "last"))
        return sheaf__j_bool(i + 1 == n);
    if (sheaf__j_is(name, "previtem"))
        return i > 0 ? loop->items.at[i - 1] : sheaf__j_undefined(SHEAF__J_WORD("previtem"));
    if (sheaf__j_is(name, "nextitem"))
        return i + 1 < n ? loop->items.at[i + 1] : sheaf__j_undefined(SHEAF__J_WORD("nextitem"));
    return sheaf__j_undefined(name);
}

sheaf__jvalue sheaf__j_member(sheaf__j *j, sheaf__jvalue of, sheaf__jtext name)
{
    sheaf__j_defined(j, of);
    if (j->is_method(of, name)) {
        sheaf__jmethod *method = sheaf__j_take(j, sizeof *method);
        *method = (sheaf__jmethod){ of, name };
        return (sheaf__jvalue){ SHEAF__J_METHOD, .u = { .method = method } };
    }
    if (of.kind == SHEAF__J_LOOP)
        return loop_member(of.u.loop, name);
    if (j->is_unsafe(of, name))
        return sheaf__j_undefined(name);
    if (of.kind == SHEAF__J_DICT || of.kind == SHEAF__J_SPACE) {
        const sheaf__jvalue *v = sheaf__j_get(j, of.u.dict, sheaf__j_text(name.at, name.size));
        return v != NULL ? *v : sheaf__j_undefined(name);
    }
    if (of.kind == SHEAF__J_MACRO || of.kind == SHEAF__J_FUNCTION ||
        (sheaf__j_is_number(of) &&
         sheaf__is_listed("real imag numerator denominator", name.at, name.size)) ||
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
    if (of.kind == SHEAF__J_DICT) {
        const sheaf__jvalue *v = sheaf__j_get(j, of.u.dict, key);
        if (v != NULL)
            return *v;
    }
    if (key.kind == SHEAF__J_TEXT)
        return sheaf__j_member(j, of, key.u.text);
    if (of.kind == SHEAF__J_TEXT && whole) {
        const int64_t at = place(sheaf__j_whole(key), sheaf__j_characters(of.u.text));
        const sheaf__jvalue one[3] = { sheaf__j_int(at), sheaf__j_int(at + 1), sheaf__j_none() };
        if (at >= 0)
            return sheaf__j_slice(j, of, one); /* charges the text */
        sheaf__j_read(j, of);
    } else if ((sheaf__j_is_list(of) || of.kind == SHEAF__J_RANGE) && whole) {
        const sheaf__jlist items = sheaf__j_items(j, of);
        const int64_t at = place(sheaf__j_whole(key), items.count);
        if (at >= 0)
            return items.at[at];
    }
    return sheaf__j_undefined(SHEAF__J_WORD("element"));
}

/* ---- order ---- */

bool sheaf__j_relation(sheaf__j *j, sheaf__jtext sign, sheaf__jvalue a, sheaf__jvalue b)
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

sheaf__jvalue sheaf__j_sort(sheaf__j *j, const sheaf__jlist *items, const sheaf__jlist *keys,
                            bool down)
{
    sheaf__jvalue out = sheaf__j_list(j), by = sheaf__j_list(j);
    for (size_t i = 0; i < items->count; i++) {
        size_t at = i;
        sheaf__j_append(j, out.u.list, items->at[i]);
        sheaf__j_append(j, by.u.list, keys->at[i]);
        for (; at > 0; at--) {
            const int order = sheaf__j_compare(j, keys->at[i], by.u.list->at[at - 1]);
            if (down ? order <= 0 : order >= 0)
                break;
            by.u.list->at[at] = by.u.list->at[at - 1];
            out.u.list->at[at] = out.u.list->at[at - 1];
        }
        by.u.list->at[at] = keys->at[i];
        out.u.list->at[at] = items->at[i];
    }
    return out;
}
