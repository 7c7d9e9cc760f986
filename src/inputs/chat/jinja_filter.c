/* jinja_filter.c - filters, `x|trim`, and tests, `x is defined`. */
#include "inputs/chat/jinja_core.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"

/* ---- text ---- */

static sheaf__jvalue f_trim(sheaf__jcall *c)
{
    return sheaf__j_strip(c->j, sheaf__j_str(c->j, c->of), c->at[0], true, true);
}
/* Does a word begin behind this character of Jinja's title? Its bytes, or 0. */
static size_t separator(const char *at, size_t left)
{
    return memchr("-({[<", *at, 5) != NULL ? 1 : sheaf__utf8_blank(at, left);
}

/* Jinja's title begins words at blanks and at - ( { [ < alone, str.title() at every other sign:
 * runs of these, and what stands between them, each item[0].upper() + item[1:].lower(). */
static sheaf__jvalue f_title(sheaf__jcall *c)
{
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    sheaf__jbuffer b = { 0 };
    for (size_t begin = 0, end, n; begin < text.size; begin = end) {
        for (end = begin; end < text.size && (n = separator(text.at + end, text.size - end)) > 0;)
            end += n;
        sheaf__j_put(c->j, &b, text.at + begin, end - begin);
        begin = end;
        while (end < text.size && separator(text.at + end, text.size - end) == 0)
            end += sheaf__j_character(text.at + end, text.size - end);
        const size_t one = begin < end ? sheaf__j_character(text.at + begin, end - begin) : 0;
        const sheaf__jvalue first =
                                sheaf__j_case(c->j, (sheaf__jtext){ text.at + begin, one }, 'u'),
                            rest = sheaf__j_case(
                                c->j, (sheaf__jtext){ text.at + begin + one, end - begin - one },
                                'l');
        sheaf__j_put(c->j, &b, first.u.text.at, first.u.text.size);
        sheaf__j_put(c->j, &b, rest.u.text.at, rest.u.text.size);
    }
    return sheaf__j_buffer_text(&b);
}
static sheaf__jvalue f_string(sheaf__jcall *c)
{
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    return sheaf__j_text(text.at, text.size);
}
static sheaf__jvalue f_case(sheaf__jcall *c)
{
    sheaf__j_read(c->j, f_string(c));
    return sheaf__j_case(c->j, sheaf__j_str(c->j, c->of), (char)c->how);
}
static sheaf__jvalue f_replace(sheaf__jcall *c)
{
    const bool all = c->at[2] == NULL || c->at[2]->kind == SHEAF__J_NONE;
    return sheaf__j_replace(c->j, sheaf__j_str(c->j, c->of), sheaf__j_str(c->j, *c->at[0]),
                            sheaf__j_str(c->j, *c->at[1]),
                            all ? -1 : sheaf__j_int_argument(c->j, c->at[2], -1));
}

static sheaf__jvalue f_indent(sheaf__jcall *c)
{
    const sheaf__jvalue *width = c->at[0];
    const bool first = sheaf__j_bool_argument(c->at[1], false);
    const bool blank = sheaf__j_bool_argument(c->at[2], false);
    sheaf__jbuffer b = { 0 }, before = { 0 };
    if (width != NULL && width->kind == SHEAF__J_TEXT)
        sheaf__j_put(c->j, &before, width->u.text.at, width->u.text.size);
    else
        for (int64_t i = sheaf__j_int_argument(c->j, width, 4); i > 0; i--)
            sheaf__j_put(c->j, &before, " ", 1);
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    const char *p = text.at, *const end = text.at + text.size;
    for (bool at_first = true;; at_first = false) {
        const char *stop = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
        const char *to = stop != NULL ? stop : end;
        if (at_first ? first : blank || to > p)
            sheaf__j_put(c->j, &b, before.at, before.size);
        sheaf__j_put(c->j, &b, p, (size_t)(to - p));
        if (stop == NULL)
            return sheaf__j_buffer_text(&b);
        sheaf__j_put(c->j, &b, "\n", 1);
        p = stop + 1;
    }
}

/* ---- numbers ---- */

/* The whole of a text as a decimal number; false: it is none. */
static bool read_number(sheaf__j *j, sheaf__jtext text, double *real, int64_t *whole,
                        bool *is_whole)
{
    char shown[64], *end;
    sheaf__utf8_strip(&text.at, &text.size);
    if (text.size == 0)
        return false;
    if (text.size >= sizeof shown || memchr(text.at, '_', text.size) != NULL)
        sheaf__j_refuse(j, "such a text as a number");
    memcpy(shown, text.at, text.size);
    shown[text.size] = '\0';
    if (strspn(shown, "+-.0123456789eE") != text.size)
        return false;
    errno = 0;
    *whole = strtoll(shown, &end, 10);
    *is_whole = *end == '\0' && errno == 0;
    *real = strtod(shown, &end);
    return *end == '\0';
}

static sheaf__jvalue f_int(sheaf__jcall *c)
{
    const sheaf__jvalue of = c->of;
    double real = of.kind == SHEAF__J_FLOAT ? of.u.real : 0;
    int64_t whole = 0;
    bool is_whole = false;
    sheaf__j_defined(c->j, of);
    if (c->at[1] != NULL)
        sheaf__j_refuse(c->j, "int with a base");
    if (of.kind == SHEAF__J_INT || of.kind == SHEAF__J_BOOL)
        return sheaf__j_int(sheaf__j_whole(of));
    if (of.kind != SHEAF__J_FLOAT &&
        (of.kind != SHEAF__J_TEXT || !read_number(c->j, of.u.text, &real, &whole, &is_whole)))
        return c->at[0] != NULL ? *c->at[0] : sheaf__j_int(0);
    if (!is_whole && !(fabs(real) < 9e18))
        sheaf__j_refuse(c->j, "a number beyond 64 bits");
    return sheaf__j_int(is_whole ? whole : (int64_t)real);
}

/* ---- sequences ---- */

static sheaf__jvalue f_length(sheaf__jcall *c)
{
    if (c->of.kind == SHEAF__J_TEXT) {
        sheaf__j_read(c->j, c->of);
        return sheaf__j_int((int64_t)sheaf__j_characters(c->of.u.text));
    }
    if (c->of.kind == SHEAF__J_GENERATOR)
        sheaf__j_raise(c->j, "object of type 'generator' has no len()");
    return sheaf__j_int((int64_t)sheaf__j_items(c->j, c->of).count);
}
static sheaf__jvalue f_first(sheaf__jcall *c)
{
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    if (c->of.kind == SHEAF__J_GENERATOR && items.count > 1) { /* the rest is still to come */
        c->of.u.list->at = items.at + 1;
        c->of.u.list->count = c->of.u.list->capacity = items.count - 1;
    }
    return items.count > 0 ? items.at[0]
                           : sheaf__j_undefined(SHEAF__J_WORD("the first of nothing"));
}
static sheaf__jvalue f_last(sheaf__jcall *c)
{
    if (c->of.kind == SHEAF__J_GENERATOR)
        sheaf__j_raise(c->j, "'generator' object is not reversible");
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    return items.count > 0 ? items.at[items.count - 1]
                           : sheaf__j_undefined(SHEAF__J_WORD("the last of nothing"));
}
static sheaf__jvalue f_list(sheaf__jcall *c)
{
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    sheaf__jvalue out = sheaf__j_list(c->j);
    for (size_t i = 0; i < items.count; i++)
        sheaf__j_append(c->j, out.u.list, items.at[i]);
    return out;
}
static sheaf__jvalue f_reverse(sheaf__jcall *c)
{
    const sheaf__jvalue all[3] = { sheaf__j_none(), sheaf__j_none(), sheaf__j_int(-1) };
    if (c->of.kind == SHEAF__J_TEXT)
        return sheaf__j_slice(c->j, c->of, all);
    const sheaf__jvalue out = sheaf__j_slice(c->j, f_list(c), all);
    return c->of.kind == SHEAF__J_GENERATOR ? out : sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}

/* The entry of `of`; where it is undefined `absent`, unless that is NULL or none. */
static sheaf__jvalue entry_or(sheaf__j *j, sheaf__jvalue of, sheaf__jvalue key,
                              const sheaf__jvalue *absent)
{
    const sheaf__jvalue v = sheaf__j_item(j, of, key);
    return v.kind == SHEAF__J_UNDEFINED && absent != NULL && absent->kind != SHEAF__J_NONE ? *absent
                                                                                           : v;
}

/* The value of of.name, where name may be a path, "a.b.0"; every part may be absent. */
static sheaf__jvalue along(sheaf__j *j, sheaf__jvalue of, sheaf__jvalue path,
                           const sheaf__jvalue *absent)
{
    if (path.kind != SHEAF__J_TEXT)
        return entry_or(j, of, path, absent);
    for (sheaf__jtext rest = path.u.text;;) {
        const char *point = memchr(rest.at, '.', rest.size);
        const sheaf__jtext part = { rest.at,
                                    point == NULL ? rest.size : (size_t)(point - rest.at) };
        const bool whole = part.size > 0 && *part.at >= '0' && *part.at <= '9' && part.size < 10;
        sheaf__j_work(j, 1);
        of = entry_or(j, of,
                      whole ? sheaf__j_int(strtol(part.at, NULL, 10))
                            : sheaf__j_text(part.at, part.size),
                      absent);
        if (point == NULL)
            return of;
        rest.size -= part.size + 1;
        rest.at = point + 1;
    }
}

/* The entry, or where `attribute` is given that of it. */
static sheaf__jvalue of_entry(sheaf__j *j, sheaf__jvalue entry, const sheaf__jvalue *attribute)
{
    return attribute == NULL ? entry : along(j, entry, *attribute, NULL);
}

static sheaf__jvalue f_join(sheaf__jcall *c)
{
    const sheaf__jtext between =
        c->at[0] == NULL ? SHEAF__J_WORD("") : sheaf__j_str(c->j, *c->at[0]);
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    sheaf__jbuffer b = { 0 };
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jtext text = sheaf__j_str(c->j, of_entry(c->j, items.at[i], c->at[1]));
        sheaf__j_put(c->j, &b, between.at, i > 0 ? between.size : 0);
        sheaf__j_put(c->j, &b, text.at, text.size);
    }
    return sheaf__j_buffer_text(&b);
}

static sheaf__jvalue f_items(sheaf__jcall *c)
{
    if (c->of.kind != SHEAF__J_UNDEFINED && c->of.kind != SHEAF__J_DICT)
        sheaf__j_raise(c->j, "Can only get item pairs from a mapping.");
    const sheaf__jvalue out =
        c->of.kind == SHEAF__J_UNDEFINED ? sheaf__j_list(c->j) : sheaf__j_pairs(c->j, c->of.u.dict);
    return sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}

/* By an attribute or NULL; texts without regard to case unless `cased`, as Jinja sorts. */
static sheaf__jvalue sort_by(sheaf__j *j, const sheaf__jlist *items, const sheaf__jvalue *attribute,
                             bool cased, bool down)
{
    sheaf__jvalue keys = sheaf__j_list(j);
    for (size_t i = 0; i < items->count; i++) {
        const sheaf__jvalue key = of_entry(j, items->at[i], attribute);
        sheaf__j_append(j, keys.u.list,
                        key.kind == SHEAF__J_TEXT && !cased ? sheaf__j_case(j, key.u.text, 'l')
                                                            : key);
    }
    return sheaf__j_sort(j, items, keys.u.list, down);
}

static sheaf__jvalue f_sort(sheaf__jcall *c)
{
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    return sort_by(c->j, &items, c->at[2], sheaf__j_bool_argument(c->at[1], false),
                   sheaf__j_bool_argument(c->at[0], false));
}

static sheaf__jvalue f_dictsort(sheaf__jcall *c)
{
    const sheaf__jvalue pairs = f_items(c), first = sheaf__j_int(0);
    if (c->at[1] != NULL)
        sheaf__j_refuse(c->j, "dictsort by values");
    return sort_by(c->j, pairs.u.list, &first, sheaf__j_bool_argument(c->at[0], false),
                   sheaf__j_bool_argument(c->at[2], false));
}

static sheaf__jvalue f_sum(sheaf__jcall *c)
{
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    sheaf__jvalue out = c->at[1] != NULL ? *c->at[1] : sheaf__j_int(0);
    for (size_t i = 0; i < items.count; i++)
        out = sheaf__j_binary(c->j, SHEAF__J_WORD("+"), out, of_entry(c->j, items.at[i], c->at[0]));
    return out;
}

/* ---- map, select and their like ---- */

/* The arguments from `first` on. */
static sheaf__jarguments rest_of(const sheaf__jarguments *args, size_t first)
{
    sheaf__jarguments rest = *args;
    first = first < rest.at.count ? first : rest.at.count;
    if (first > 0)
        rest.at.at += first;
    rest.at.count -= first;
    rest.at.capacity = rest.at.count;
    return rest;
}

static sheaf__jvalue f_map(sheaf__jcall *c)
{
    static const sheaf__jtext none = { "", 0 };
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    const sheaf__jarguments *args = c->args, rest = rest_of(args, 1);
    sheaf__jvalue out = sheaf__j_list(c->j);
    const bool by_member = items.count > 0 && args->at.count == 0;
    if (by_member) /* Jinja raises only where there is an entry */
        sheaf__j_bind(c, "attribute! default");
    for (size_t i = 0; i < items.count; i++)
        sheaf__j_append(
            c->j, out.u.list,
            by_member ? along(c->j, items.at[i], *c->at[0], c->at[1])
                      : sheaf__j_filter(c->r, sheaf__j_text_argument(c->j, &args->at.at[0], none),
                                        items.at[i], &rest));
    return sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}

/* select, reject: by a test of the entry; selectattr, rejectattr: of a member of it. */
enum { KEEP = 1, BY_MEMBER = 2 };

static sheaf__jvalue f_select(sheaf__jcall *c)
{
    static const sheaf__jtext none = { "", 0 };
    const sheaf__jlist items = sheaf__j_items(c->j, c->of), given = c->args->at;
    const size_t test = (c->how & BY_MEMBER) != 0;
    const sheaf__jarguments rest = rest_of(c->args, test + 1);
    sheaf__jvalue out = sheaf__j_list(c->j);
    if (given.count < test)
        sheaf__j_raise(c->j, "Missing parameter for attribute name");
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jvalue v = of_entry(c->j, items.at[i], test > 0 ? &given.at[0] : NULL);
        const bool yes =
            given.count <= test
                ? sheaf__j_truth(v)
                : sheaf__j_test(c->r, sheaf__j_text_argument(c->j, &given.at[test], none), v,
                                &rest);
        if (yes == ((c->how & KEEP) != 0))
            sheaf__j_append(c->j, out.u.list, items.at[i]);
    }
    return sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}

static sheaf__jvalue f_default(sheaf__jcall *c)
{
    if (c->of.kind == SHEAF__J_UNDEFINED ||
        (sheaf__j_bool_argument(c->at[1], false) && !sheaf__j_truth(c->of)))
        return c->at[0] != NULL ? *c->at[0] : sheaf__j_text("", 0);
    return c->of;
}

static const sheaf__jbuiltin filters[] = {
    { "trim", "chars", f_trim, .reads = true },
    { "title", "", f_title, .reads = true },
    { "string", "", f_string },
    { "safe", "", f_string },
    { "upper", "", f_case, 'u' },
    { "lower", "", f_case, 'l' },
    { "capitalize", "", f_case, 'c' },
    { "replace", "old! new! count", f_replace, .reads = true },
    { "indent", "width first blank", f_indent, .reads = true },
    { "int", "default base", f_int, .reads = true },
    { "length", "", f_length },
    { "count", "", f_length },
    { "first", "", f_first },
    { "last", "", f_last },
    { "list", "", f_list, .reads = true },
    { "reverse", "", f_reverse },
    { "join", "d attribute", f_join, .reads = true },
    { "items", "", f_items },
    { "sort", "reverse case_sensitive attribute", f_sort, .reads = true },
    { "dictsort", "case_sensitive by reverse", f_dictsort, .reads = true },
    { "sum", "attribute start", f_sum, .reads = true },
    { "map", "*", f_map, .reads = true },
    { "select", "*", f_select, KEEP, .reads = true },
    { "reject", "*", f_select, 0, .reads = true },
    { "selectattr", "*", f_select, KEEP | BY_MEMBER, .reads = true },
    { "rejectattr", "*", f_select, BY_MEMBER, .reads = true },
    { "default", "default_value boolean", f_default },
    { "d", "default_value boolean", f_default },
    { "tojson", "ensure_ascii indent separators sort_keys", sheaf__j_json },
    { NULL },
};

sheaf__jvalue sheaf__j_filter(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                              const sheaf__jarguments *args)
{
    const sheaf__jbuiltin *found = sheaf__j_builtin(filters, SHEAF__J_UNDEFINED, name);
    if (found == NULL)
        sheaf__j_refuse(r->j, "the filter %.*s", (int)name.size, name.at);
    return sheaf__j_call(found, r, of, args);
}

/* ---- tests: `x is defined` ---- */

/* By what kind of value it is: True is a number to Python. */
#define KIND(K) (1u << SHEAF__J_##K)
static const struct {
    const char *name;
    unsigned kinds;
} kinds[] = {
    { "defined", ~KIND(UNDEFINED) },
    { "undefined", KIND(UNDEFINED) },
    { "none", KIND(NONE) },
    { "boolean", KIND(BOOL) },
    { "integer", KIND(INT) },
    { "float", KIND(FLOAT) },
    { "number", KIND(BOOL) | KIND(INT) | KIND(FLOAT) },
    { "string", KIND(TEXT) },
    { "mapping", KIND(DICT) },
    { "sequence", KIND(TEXT) | KIND(DICT) | KIND(LIST) | KIND(TUPLE) | KIND(UNDEFINED) },
    { "iterable", KIND(TEXT) | KIND(DICT) | KIND(LIST) | KIND(TUPLE) | KIND(UNDEFINED) |
                      KIND(LOOP) | KIND(GENERATOR) | KIND(VIEW) },
    { "callable", KIND(MACRO) | KIND(FUNCTION) },
};

static const struct {
    const char *names, *sign;
} comparisons[] = { { "eq equalto ==", "==" },
                    { "ne !=", "!=" },
                    { "lt lessthan <", "<" },
                    { "le <=", "<=" },
                    { "gt greaterthan >", ">" },
                    { "ge >=", ">=" },
                    { "in", "in" } };

bool sheaf__j_test(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                   const sheaf__jarguments *args)
{
    sheaf__jcall c = { .r = r, .j = r->j, .name = name, .args = args };
    for (size_t i = 0; i < sizeof comparisons / sizeof *comparisons; i++)
        if (sheaf__is_listed(comparisons[i].names, name.at, name.size)) {
            const char *sign = comparisons[i].sign;
            sheaf__j_bind(&c, ".other!");
            return sheaf__j_relation(r->j, (sheaf__jtext){ sign, strlen(sign) }, of, *c.at[0]);
        }
    const bool odd = sheaf__j_is(name, "odd"), by = sheaf__j_is(name, "divisibleby");
    sheaf__j_bind(&c, by ? "num!" : "");
    if (odd || by || sheaf__j_is(name, "even"))
        return sheaf__j_equal(
            r->j, sheaf__j_binary(r->j, SHEAF__J_WORD("%"), of, by ? *c.at[0] : sheaf__j_int(2)),
            sheaf__j_int(odd));
    if (sheaf__j_is(name, "true") || sheaf__j_is(name, "false"))
        return of.kind == SHEAF__J_BOOL && of.u.truth == sheaf__j_is(name, "true");
    if (of.kind == SHEAF__J_VIEW && sheaf__j_is(name, "sequence"))
        sheaf__j_refuse(r->j, "the test sequence of a range or of a dict's view");
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (sheaf__j_is(name, kinds[i].name))
            return (kinds[i].kinds >> of.kind & 1) != 0;
    sheaf__j_refuse(r->j, "the test %.*s", (int)name.size, name.at);
}
