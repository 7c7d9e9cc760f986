/* jinja_filter.c - filters: `x|trim`. */
#include "inputs/chat/jinja_core.h"

#include <errno.h>
#include <math.h>

#include "base/base.h"

typedef sheaf__jvalue filter(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args);

static const sheaf__jvalue *argument(sheaf__jrun *r, const sheaf__jarguments *args, size_t position,
                                     const char *name)
{
    return sheaf__j_argument(r->j, args, position, name);
}

/* ---- text ---- */

static sheaf__jvalue f_trim(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_strip(r->j, sheaf__j_str(r->j, of), argument(r, args, 0, "chars"), true, true);
}
/* Does a word begin behind this character of Jinja's title? Its bytes, or 0. */
static size_t separator(const char *at, size_t left)
{
    return memchr("-({[<", *at, 5) != NULL ? 1 : sheaf__utf8_blank(at, left);
}

/* Jinja's title begins words at blanks and at - ( { [ < alone, str.title() at every other sign:
 * runs of these, and what stands between them, each item[0].upper() + item[1:].lower(). */
static sheaf__jvalue f_title(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jtext text = sheaf__j_str(r->j, of);
    sheaf__jbuffer b = { 0 };
    for (size_t begin = 0, end, n; begin < text.size; begin = end) {
        for (end = begin; end < text.size && (n = separator(text.at + end, text.size - end)) > 0;)
            end += n;
        sheaf__j_put(r->j, &b, text.at + begin, end - begin);
        begin = end;
        while (end < text.size && separator(text.at + end, text.size - end) == 0)
            end += sheaf__j_character(text.at + end, text.size - end);
        const size_t one = begin < end ? sheaf__j_character(text.at + begin, end - begin) : 0;
        const sheaf__jvalue first =
                                sheaf__j_case(r->j, (sheaf__jtext){ text.at + begin, one }, 'u'),
                            rest = sheaf__j_case(
                                r->j, (sheaf__jtext){ text.at + begin + one, end - begin - one },
                                'l');
        sheaf__j_put(r->j, &b, first.u.text.at, first.u.text.size);
        sheaf__j_put(r->j, &b, rest.u.text.at, rest.u.text.size);
    }
    return sheaf__j_taken(&b);
}
static sheaf__jvalue f_string(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jtext text = sheaf__j_str(r->j, of);
    return sheaf__j_text(text.at, text.size);
}
static sheaf__jvalue f_replace(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *from = argument(r, args, 0, "old"), *to = argument(r, args, 1, "new");
    const sheaf__jvalue *count = argument(r, args, 2, "count");
    if (from == NULL || to == NULL)
        sheaf__j_raise(r->j, "replace takes two arguments");
    return sheaf__j_replace(
        r->j, sheaf__j_str(r->j, of), sheaf__j_str(r->j, *from), sheaf__j_str(r->j, *to),
        count == NULL || count->kind == SHEAF__J_NONE ? -1
                                                      : sheaf__j_int_argument(r->j, count, -1));
}

static sheaf__jvalue f_indent(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *width = argument(r, args, 0, "width");
    const bool first = sheaf__j_bool_argument(argument(r, args, 1, "first"), false);
    const bool blank = sheaf__j_bool_argument(argument(r, args, 2, "blank"), false);
    sheaf__jbuffer b = { 0 }, before = { 0 };
    if (width != NULL && width->kind == SHEAF__J_TEXT)
        sheaf__j_put(r->j, &before, width->u.text.at, width->u.text.size);
    else
        for (int64_t i = sheaf__j_int_argument(r->j, width, 4); i > 0; i--)
            sheaf__j_put(r->j, &before, " ", 1);
    const sheaf__jtext text = sheaf__j_str(r->j, of);
    const char *p = text.at, *const end = text.at + text.size;
    for (bool at_first = true;; at_first = false) {
        const char *stop = p < end ? memchr(p, '\n', (size_t)(end - p)) : NULL;
        const char *to = stop != NULL ? stop : end;
        if (at_first ? first : blank || to > p)
            sheaf__j_put(r->j, &b, before.at, before.size);
        sheaf__j_put(r->j, &b, p, (size_t)(to - p));
        if (stop == NULL)
            return sheaf__j_taken(&b);
        sheaf__j_put(r->j, &b, "\n", 1);
        p = stop + 1;
    }
}

/* ---- numbers ---- */

/* The whole of a text as a decimal number; false: it is none. */
static bool read_number(sheaf__jrun *r, sheaf__jtext text, double *real, int64_t *whole,
                        bool *is_whole)
{
    char shown[64], *end;
    sheaf__utf8_strip(&text.at, &text.size);
    if (text.size == 0)
        return false;
    if (text.size >= sizeof shown || memchr(text.at, '_', text.size) != NULL)
        sheaf__j_refuse(r->j, "such a text as a number");
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

static sheaf__jvalue f_int(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *absent = argument(r, args, 0, "default");
    double real = of.kind == SHEAF__J_FLOAT ? of.u.real : 0;
    int64_t whole = 0;
    bool is_whole = false;
    sheaf__j_defined(r->j, of);
    if (argument(r, args, 1, "base") != NULL)
        sheaf__j_refuse(r->j, "int with a base");
    if (of.kind == SHEAF__J_INT || of.kind == SHEAF__J_BOOL)
        return sheaf__j_int(sheaf__j_whole(of));
    if (of.kind != SHEAF__J_FLOAT &&
        (of.kind != SHEAF__J_TEXT || !read_number(r, of.u.text, &real, &whole, &is_whole)))
        return absent != NULL ? *absent : sheaf__j_int(0);
    if (!is_whole && !(fabs(real) < 9e18))
        sheaf__j_refuse(r->j, "a number beyond 64 bits");
    return sheaf__j_int(is_whole ? whole : (int64_t)real);
}

/* ---- rows ---- */

static sheaf__jvalue f_length(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    if (of.kind == SHEAF__J_TEXT) {
        sheaf__j_read(r->j, of);
        return sheaf__j_int((int64_t)sheaf__j_characters(of.u.text));
    }
    if (of.kind == SHEAF__J_GENERATOR)
        sheaf__j_raise(r->j, "object of type 'generator' has no len()");
    return sheaf__j_int((int64_t)sheaf__j_items(r->j, of).count);
}
static sheaf__jvalue f_first(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    if (of.kind == SHEAF__J_GENERATOR && items.count > 1) { /* the rest is still to come */
        of.u.list->at = items.at + 1;
        of.u.list->count = of.u.list->capacity = items.count - 1;
    }
    return items.count > 0 ? items.at[0]
                           : sheaf__j_undefined(SHEAF__J_WORD("the first of nothing"));
}
static sheaf__jvalue f_last(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    if (of.kind == SHEAF__J_GENERATOR)
        sheaf__j_raise(r->j, "'generator' object is not reversible");
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    return items.count > 0 ? items.at[items.count - 1]
                           : sheaf__j_undefined(SHEAF__J_WORD("the last of nothing"));
}
static sheaf__jvalue f_list(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    sheaf__jvalue out = sheaf__j_list(r->j);
    for (size_t i = 0; i < items.count; i++)
        sheaf__j_append(r->j, out.u.list, items.at[i]);
    return out;
}
static sheaf__jvalue f_reverse(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue all[3] = { sheaf__j_none(), sheaf__j_none(), sheaf__j_int(-1) };
    if (of.kind == SHEAF__J_TEXT)
        return sheaf__j_slice(r->j, of, all);
    const sheaf__jvalue out = sheaf__j_slice(r->j, f_list(r, of, args), all);
    return of.kind == SHEAF__J_GENERATOR ? out : sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}

/* The entry of `of`; where it is undefined `absent`, unless that is NULL or none. */
static sheaf__jvalue entry_or(sheaf__jrun *r, sheaf__jvalue of, sheaf__jvalue key,
                              const sheaf__jvalue *absent)
{
    const sheaf__jvalue v = sheaf__j_item(r->j, of, key);
    return v.kind == SHEAF__J_UNDEFINED && absent != NULL && absent->kind != SHEAF__J_NONE ? *absent
                                                                                           : v;
}

/* What of.name is, where name may be a path, "a.b.0"; every part may be absent. */
static sheaf__jvalue along(sheaf__jrun *r, sheaf__jvalue of, sheaf__jvalue path,
                           const sheaf__jvalue *absent)
{
    if (path.kind != SHEAF__J_TEXT)
        return entry_or(r, of, path, absent);
    for (sheaf__jtext rest = path.u.text;;) {
        const char *point = memchr(rest.at, '.', rest.size);
        const sheaf__jtext part = { rest.at,
                                    point == NULL ? rest.size : (size_t)(point - rest.at) };
        const bool whole = part.size > 0 && *part.at >= '0' && *part.at <= '9' && part.size < 10;
        sheaf__j_work(r->j, 1);
        of = entry_or(r, of,
                      whole ? sheaf__j_int(strtol(part.at, NULL, 10))
                            : sheaf__j_text(part.at, part.size),
                      absent);
        if (point == NULL)
            return of;
        rest.size -= part.size + 1;
        rest.at = point + 1;
    }
}

static sheaf__jvalue f_join(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *by = argument(r, args, 0, "d");
    const sheaf__jvalue *attribute = argument(r, args, 1, "attribute");
    const sheaf__jtext between = by == NULL ? SHEAF__J_WORD("") : sheaf__j_str(r->j, *by);
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    sheaf__jbuffer b = { 0 };
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jtext text = sheaf__j_str(
            r->j, attribute == NULL ? items.at[i] : along(r, items.at[i], *attribute, NULL));
        sheaf__j_put(r->j, &b, between.at, i > 0 ? between.size : 0);
        sheaf__j_put(r->j, &b, text.at, text.size);
    }
    return sheaf__j_taken(&b);
}

static sheaf__jvalue f_items(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jarguments none = { 0 };
    if (of.kind != SHEAF__J_UNDEFINED && of.kind != SHEAF__J_DICT)
        sheaf__j_raise(r->j, "Can only get item pairs from a mapping.");
    const sheaf__jvalue out = of.kind == SHEAF__J_UNDEFINED
                                  ? sheaf__j_list(r->j)
                                  : sheaf__j_call_method(r, of, SHEAF__J_WORD("items"), &none);
    return sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}

/* A key as Jinja sorts by it: texts without regard to case unless case_sensitive. */
static sheaf__jvalue sort_key(sheaf__jrun *r, sheaf__jvalue v, const sheaf__jvalue *attribute,
                              bool cased)
{
    if (attribute != NULL)
        v = along(r, v, *attribute, NULL);
    return v.kind == SHEAF__J_TEXT && !cased ? sheaf__j_case(r->j, v.u.text, 'l') : v;
}

static sheaf__jvalue sorted(sheaf__jrun *r, const sheaf__jlist *items,
                            const sheaf__jvalue *attribute, bool cased, bool down)
{
    sheaf__jvalue out = sheaf__j_list(r->j), keys = sheaf__j_list(r->j);
    for (size_t i = 0; i < items->count; i++) {
        const sheaf__jvalue key = sort_key(r, items->at[i], attribute, cased);
        sheaf__j_append(r->j, out.u.list, items->at[i]);
        sheaf__j_append(r->j, keys.u.list, key);
        size_t at = i;
        for (; at > 0; at--) { /* stable, in either direction */
            const int order = sheaf__j_compare(r->j, key, keys.u.list->at[at - 1]);
            if (down ? order <= 0 : order >= 0)
                break;
            keys.u.list->at[at] = keys.u.list->at[at - 1];
            out.u.list->at[at] = out.u.list->at[at - 1];
        }
        keys.u.list->at[at] = key;
        out.u.list->at[at] = items->at[i];
    }
    return out;
}

static sheaf__jvalue f_sort(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    return sorted(r, &items, argument(r, args, 2, "attribute"),
                  sheaf__j_bool_argument(argument(r, args, 1, "case_sensitive"), false),
                  sheaf__j_bool_argument(argument(r, args, 0, "reverse"), false));
}

static sheaf__jvalue f_dictsort(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue pairs = f_items(r, of, args), first = sheaf__j_int(0);
    if (argument(r, args, 1, "by") != NULL)
        sheaf__j_refuse(r->j, "dictsort by values");
    return sorted(r, pairs.u.list, &first,
                  sheaf__j_bool_argument(argument(r, args, 0, "case_sensitive"), false),
                  sheaf__j_bool_argument(argument(r, args, 2, "reverse"), false));
}

static sheaf__jvalue f_sum(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *attribute = argument(r, args, 0, "attribute");
    const sheaf__jvalue *start = argument(r, args, 1, "start");
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    sheaf__jvalue out = start != NULL ? *start : sheaf__j_int(0);
    for (size_t i = 0; i < items.count; i++)
        out = sheaf__j_binary(r->j, SHEAF__J_WORD("+"), out,
                              attribute == NULL ? items.at[i]
                                                : along(r, items.at[i], *attribute, NULL));
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

static sheaf__jvalue f_map(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    const sheaf__jvalue *attribute = argument(r, args, 99, "attribute");
    const sheaf__jvalue *absent = argument(r, args, 99, "default");
    const sheaf__jarguments rest = rest_of(args, 1);
    sheaf__jvalue out = sheaf__j_list(r->j);
    if (items.count > 0 && args->at.count == 0) { /* Jinja raises only where there is an entry */
        if (attribute == NULL)
            sheaf__j_raise(r->j, "map requires a filter argument");
        sheaf__j_take_arguments(r->j, args, "attribute default");
    }
    for (size_t i = 0; i < items.count; i++) {
        sheaf__jvalue v;
        if (attribute != NULL)
            v = along(r, items.at[i], *attribute, absent);
        else
            v = sheaf__j_filter(r, sheaf__j_text_argument(r->j, &args->at.at[0], SHEAF__J_WORD("")),
                                items.at[i], &rest);
        sheaf__j_append(r->j, out.u.list, v);
    }
    return sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}

/* select, reject: by a test of the entry; selectattr, rejectattr: of a member of it. */
static sheaf__jvalue chosen(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args,
                            bool by_member, bool keep)
{
    const sheaf__jlist items = sheaf__j_items(r->j, of);
    const size_t test = by_member ? 1 : 0;
    const sheaf__jarguments rest = rest_of(args, test + 1);
    sheaf__jvalue out = sheaf__j_list(r->j);
    if (by_member && args->at.count == 0)
        sheaf__j_raise(r->j, "Missing parameter for attribute name");
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jvalue v =
            by_member ? along(r, items.at[i], args->at.at[0], NULL) : items.at[i];
        const bool yes =
            args->at.count <= test
                ? sheaf__j_truth(v)
                : sheaf__j_test(r,
                                sheaf__j_text_argument(r->j, &args->at.at[test], SHEAF__J_WORD("")),
                                v, &rest);
        if (yes == keep)
            sheaf__j_append(r->j, out.u.list, items.at[i]);
    }
    return sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
}
static sheaf__jvalue f_select(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return chosen(r, of, args, false, true);
}
static sheaf__jvalue f_reject(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return chosen(r, of, args, false, false);
}
static sheaf__jvalue f_selectattr(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return chosen(r, of, args, true, true);
}
static sheaf__jvalue f_rejectattr(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return chosen(r, of, args, true, false);
}

/* ---- the rest ---- */

static sheaf__jvalue f_default(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *absent = argument(r, args, 0, "default_value");
    const bool also_false = sheaf__j_bool_argument(argument(r, args, 1, "boolean"), false);
    if (of.kind == SHEAF__J_UNDEFINED || (also_false && !sheaf__j_truth(of)))
        return absent != NULL ? *absent : sheaf__j_text("", 0);
    return of;
}
static sheaf__jvalue f_tojson(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_json(r->j, of, args);
}
static const struct {
    const char *name, *arguments;
    filter *run;
    bool reads; /* all of the value: charged by its size */
} filters[] = {
    { "trim", "chars", f_trim, true },
    { "title", "", f_title, true },
    { "string", "", f_string },
    { "safe", "", f_string },
    { "replace", "old new count", f_replace, true },
    { "indent", "width first blank", f_indent, true },
    { "int", "default base", f_int, true },
    { "length", "", f_length },
    { "count", "", f_length },
    { "first", "", f_first },
    { "last", "", f_last },
    { "list", "", f_list, true },
    { "reverse", "", f_reverse },
    { "join", "d attribute", f_join, true },
    { "items", "", f_items },
    { "sort", "reverse case_sensitive attribute", f_sort, true },
    { "dictsort", "case_sensitive by reverse", f_dictsort, true },
    { "sum", "attribute start", f_sum, true },
    { "map", "*", f_map, true },
    { "select", "*", f_select, true },
    { "reject", "*", f_reject, true },
    { "selectattr", "*", f_selectattr, true },
    { "rejectattr", "*", f_rejectattr, true },
    { "default", "default_value boolean", f_default },
    { "d", "default_value boolean", f_default },
    { "tojson", "ensure_ascii indent separators sort_keys", f_tojson },
};

sheaf__jvalue sheaf__j_filter(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                              const sheaf__jarguments *args)
{
    for (size_t i = 0; i < sizeof filters / sizeof *filters; i++)
        if (sheaf__j_is(name, filters[i].name)) {
            sheaf__j_down(r->j);
            sheaf__j_take_arguments(r->j, args, filters[i].arguments);
            if (filters[i].reads)
                sheaf__j_read(r->j, of);
            const sheaf__jvalue out = filters[i].run(r, of, args);
            r->j->depth--;
            return out;
        }
    static const char *const methods[] = { "upper", "lower", "capitalize" };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (sheaf__j_is(name, methods[i]))
            return sheaf__j_call_method(r, f_string(r, of, args), name, args);
    sheaf__j_refuse(r->j, "the filter %.*s", (int)name.size, name.at);
}
