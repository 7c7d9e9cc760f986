/* jinja_filter.c - filters of sequences, `x|first`, and all filters by name. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

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
    return attribute == NULL || attribute->kind == SHEAF__J_NONE
               ? entry
               : along(j, entry, *attribute, NULL);
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

/* The sort key of an entry: texts without regard to case unless `cased`. */
static sheaf__jvalue key_of(sheaf__j *j, sheaf__jvalue entry, const sheaf__jvalue *attribute,
                            bool cased)
{
    const sheaf__jvalue key = of_entry(j, entry, attribute);
    return key.kind == SHEAF__J_TEXT && !cased ? sheaf__j_case(j, key.u.text, 'l') : key;
}

/* A list of the keys of all attributes, "a,b" or one or NULL: equal entries of lists need no order.
 */
static sheaf__jvalue keys_of(sheaf__j *j, sheaf__jvalue entry, const sheaf__jvalue *attribute,
                             bool cased)
{
    sheaf__jvalue keys = sheaf__j_list(j);
    if (attribute == NULL || attribute->kind != SHEAF__J_TEXT) {
        sheaf__j_append(j, keys.u.list, key_of(j, entry, attribute, cased));
        return keys;
    }
    for (sheaf__jtext rest = attribute->u.text;;) {
        const char *comma = memchr(rest.at, ',', rest.size);
        const sheaf__jvalue one =
            sheaf__j_text(rest.at, comma == NULL ? rest.size : (size_t)(comma - rest.at));
        sheaf__j_append(j, keys.u.list, key_of(j, entry, &one, cased));
        if (comma == NULL)
            return keys;
        rest.size -= one.u.text.size + 1;
        rest.at = comma + 1;
    }
}

static sheaf__jvalue f_sort(sheaf__jcall *c)
{
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    const bool cased = sheaf__j_bool_argument(c->at[1]);
    sheaf__jvalue keys = sheaf__j_list(c->j);
    for (size_t i = 0; i < items.count; i++)
        sheaf__j_append(c->j, keys.u.list, keys_of(c->j, items.at[i], c->at[2], cased));
    return sheaf__j_sort(c->j, &items, keys.u.list, sheaf__j_bool_argument(c->at[0]));
}

static sheaf__jvalue f_dictsort(sheaf__jcall *c)
{
    const bool cased = sheaf__j_bool_argument(c->at[0]);
    const sheaf__jtext by = sheaf__j_text_argument(c->j, c->at[1], SHEAF__J_WORD("key"));
    sheaf__j_defined(c->j, c->of);
    const sheaf__jvalue pairs = f_items(c), which = sheaf__j_int(sheaf__j_is(by, "value"));
    sheaf__jvalue keys = sheaf__j_list(c->j);
    if (!sheaf__j_is(by, "key") && !sheaf__j_is(by, "value"))
        sheaf__j_raise(c->j, "You can only sort by either \"key\" or \"value\"");
    for (size_t i = 0; i < pairs.u.list->count; i++)
        sheaf__j_append(c->j, keys.u.list, key_of(c->j, pairs.u.list->at[i], &which, cased));
    return sheaf__j_sort(c->j, pairs.u.list, keys.u.list, sheaf__j_bool_argument(c->at[2]));
}

/* min, max; how: 1 for max */
static sheaf__jvalue f_least(sheaf__jcall *c)
{
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    const bool cased = sheaf__j_bool_argument(c->at[0]);
    size_t best = 0;
    sheaf__jvalue best_key = sheaf__j_none();
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jvalue key = key_of(c->j, items.at[i], c->at[1], cased);
        const int order = i == 0 ? 0 : sheaf__j_compare(c->j, key, best_key);
        if (i == 0 || (c->how ? order > 0 : order < 0)) {
            best = i;
            best_key = key;
        }
    }
    return items.count > 0 ? items.at[best]
                           : sheaf__j_undefined(SHEAF__J_WORD("the least or greatest of nothing"));
}

static sheaf__jvalue f_unique(sheaf__jcall *c)
{
    const sheaf__jlist items = sheaf__j_items(c->j, c->of);
    const bool cased = sheaf__j_bool_argument(c->at[0]);
    sheaf__jvalue out = sheaf__j_list(c->j), seen = sheaf__j_dict(c->j);
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jvalue key = key_of(c->j, items.at[i], c->at[1], cased);
        if (sheaf__j_get(c->j, seen.u.dict, key) != NULL)
            continue;
        sheaf__j_set(c->j, seen.u.dict, key, sheaf__j_none());
        sheaf__j_append(c->j, out.u.list, items.at[i]);
    }
    return sheaf__j_as(SHEAF__J_GENERATOR, out.u.list);
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

/* They go over nothing where the value is false, whatever it is: none|select is empty. */
static sheaf__jlist some_of(sheaf__jcall *c)
{
    const sheaf__jlist nothing = { 0 };
    return sheaf__j_truth(c->of) ? sheaf__j_items(c->j, c->of) : nothing;
}

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
    const sheaf__jlist items = some_of(c);
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
    const sheaf__jlist items = some_of(c), given = c->args->at;
    const size_t test = (c->how & BY_MEMBER) != 0;
    const sheaf__jarguments rest = rest_of(c->args, test + 1);
    sheaf__jvalue out = sheaf__j_list(c->j);
    if (given.count < test && items.count > 0)
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
        (sheaf__j_bool_argument(c->at[1]) && !sheaf__j_truth(c->of)))
        return c->at[0] != NULL ? *c->at[0] : sheaf__j_text("", 0);
    return c->of;
}

static const sheaf__jbuiltin filters[] = {
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
    { "min", "case_sensitive attribute", f_least, 0, .reads = true },
    { "max", "case_sensitive attribute", f_least, 1, .reads = true },
    { "unique", "case_sensitive attribute", f_unique, .reads = true },
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

/* Of Jinja's, these are refused where they are reached: what they write hangs on chance, or is laid
 * out for people and for web pages. */
static const char refused[] =
    "attr batch center e escape filesizeformat forceescape groupby pprint random slice striptags "
    "truncate urlencode urlize wordcount wordwrap xmlattr";

static const sheaf__jbuiltin *find(sheaf__jtext name)
{
    const sheaf__jbuiltin *found = sheaf__j_builtin(filters, SHEAF__J_UNDEFINED, name);
    return found != NULL ? found
                         : sheaf__j_builtin(sheaf__j_scalar_filters, SHEAF__J_UNDEFINED, name);
}

bool sheaf__j_is_filter(sheaf__jtext name)
{
    return find(name) != NULL || sheaf__is_listed(refused, name.at, name.size);
}

sheaf__jvalue sheaf__j_filter(sheaf__jrun *r, sheaf__jtext name, sheaf__jvalue of,
                              const sheaf__jarguments *args)
{
    const sheaf__jbuiltin *found = find(name);
    if (found == NULL)
        sheaf__j_refuse(r->j, "the filter %.*s", (int)name.size, name.at);
    return sheaf__j_call(found, r, of, args);
}
