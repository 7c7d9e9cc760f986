/* jinja_method.c - methods of dicts, lists and `loop`, calls of methods, and the functions that
 * every template has. Jinja's sandbox has no methods that would change something. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

/* ---- dicts, lists, loop ---- */

static sheaf__jvalue view(sheaf__jlist *list, sheaf__jform form)
{
    return (sheaf__jvalue){ SHEAF__J_VIEW, form, .u = { .list = list } };
}
static sheaf__jvalue m_keys(sheaf__jcall *c)
{
    return view(&c->of.u.dict->keys, SHEAF__J_KEYS);
}
static sheaf__jvalue m_values(sheaf__jcall *c)
{
    return view(&c->of.u.dict->values, SHEAF__J_VALUES);
}
sheaf__jvalue sheaf__j_pairs(sheaf__j *j, const sheaf__jdict *dict)
{
    sheaf__jvalue out = sheaf__j_list(j);
    for (size_t i = 0; i < dict->keys.count; i++) {
        sheaf__j_work(j, 1);
        sheaf__j_append(j, out.u.list, sheaf__j_pair(j, dict->keys.at[i], dict->values.at[i]));
    }
    return view(out.u.list, SHEAF__J_ITEMS);
}
static sheaf__jvalue m_items(sheaf__jcall *c)
{
    return sheaf__j_pairs(c->j, c->of.u.dict);
}
static sheaf__jvalue m_get(sheaf__jcall *c)
{
    const sheaf__jvalue *v = sheaf__j_get(c->j, c->of.u.dict, *c->at[0]);
    return v != NULL ? *v : c->at[1] != NULL ? *c->at[1] : sheaf__j_none();
}

static sheaf__jvalue m_cycle(sheaf__jcall *c)
{
    const sheaf__jlist given = c->args->at;
    if (given.count == 0)
        sheaf__j_raise(c->j, "no items for cycling given");
    return given.at[c->of.u.loop->index % given.count];
}
static sheaf__jvalue m_changed(sheaf__jcall *c)
{
    sheaf__jloop *loop = c->of.u.loop;
    sheaf__jvalue now = sheaf__j_list(c->j);
    *now.u.list = c->args->at;
    const bool changed = !loop->has_changed || !sheaf__j_equal(c->j, now, loop->changed);
    loop->has_changed = true;
    loop->changed = now;
    return sheaf__j_bool(changed);
}

static sheaf__jvalue m_copy(sheaf__jcall *c)
{
    sheaf__jvalue out = c->of.kind == SHEAF__J_DICT ? sheaf__j_dict(c->j) : sheaf__j_list(c->j);
    for (size_t i = 0; c->of.kind == SHEAF__J_DICT && i < c->of.u.dict->keys.count; i++) {
        sheaf__j_append(c->j, &out.u.dict->keys, c->of.u.dict->keys.at[i]);
        sheaf__j_append(c->j, &out.u.dict->values, c->of.u.dict->values.at[i]);
    }
    for (size_t i = 0; c->of.kind != SHEAF__J_DICT && i < c->of.u.list->count; i++)
        sheaf__j_append(c->j, out.u.list, c->of.u.list->at[i]);
    return out;
}
static sheaf__jvalue m_list_index(sheaf__jcall *c)
{
    const sheaf__jlist *of = c->of.u.list;
    const int64_t n = (int64_t)of->count, to = sheaf__j_bound(c->j, c->at[2], n, n, 1);
    for (int64_t i = sheaf__j_bound(c->j, c->at[1], 0, n, 1); i < to; i++)
        if (sheaf__j_equal(c->j, of->at[i], *c->at[0]))
            return sheaf__j_int(i);
    sheaf__j_raise(c->j, "the %s does not have it", sheaf__j_kind(c->of));
}
static sheaf__jvalue m_list_count(sheaf__jcall *c)
{
    int64_t n = 0;
    for (size_t i = 0; i < c->of.u.list->count; i++)
        n += sheaf__j_equal(c->j, c->of.u.list->at[i], *c->at[0]);
    return sheaf__j_int(n);
}

static const sheaf__jbuiltin methods[] = {
    { "keys", "", m_keys, 0, SHEAF__J_DICT },
    { "values", "", m_values, 0, SHEAF__J_DICT },
    { "items", "", m_items, 0, SHEAF__J_DICT },
    { "get", ".key! .default", m_get, 0, SHEAF__J_DICT },
    { "copy", "", m_copy, 0, SHEAF__J_DICT, true },
    { "copy", "", m_copy, 0, SHEAF__J_LIST, true },
    { "index", ".value! .start .stop", m_list_index, 0, SHEAF__J_LIST },
    { "count", ".value!", m_list_count, 0, SHEAF__J_LIST },
    { "index", ".value! .start .stop", m_list_index, 0, SHEAF__J_TUPLE },
    { "count", ".value!", m_list_count, 0, SHEAF__J_TUPLE },
    { "index", ".value!", m_list_index, 0, SHEAF__J_RANGE },
    { "count", ".value!", m_list_count, 0, SHEAF__J_RANGE },
    { "cycle", "*", m_cycle, 0, SHEAF__J_LOOP },
    { "changed", "*", m_changed, 0, SHEAF__J_LOOP },
    { NULL },
};

static const sheaf__jbuiltin *find(sheaf__jvalue of, sheaf__jtext name)
{
    const sheaf__jbuiltin *list = of.kind == SHEAF__J_TEXT ? sheaf__j_text_methods : methods;
    return sheaf__j_builtin(list, of.kind, name);
}

/* Methods of Python that are not written here: of bytes, of columns, of tables and classes of
 * letters, and of numbers. */
static const struct {
    sheaf__jkind kind;
    const char *names;
} refused[] = {
    { SHEAF__J_TEXT,
      "casefold center encode expandtabs format_map isdecimal isidentifier isnumeric "
      "isprintable istitle ljust maketrans rjust swapcase translate zfill" },
    { SHEAF__J_DICT, "fromkeys" },
    { SHEAF__J_INT, "bit_count bit_length to_bytes from_bytes as_integer_ratio conjugate" },
    { SHEAF__J_BOOL, "bit_count bit_length to_bytes from_bytes as_integer_ratio conjugate" },
    { SHEAF__J_FLOAT, "as_integer_ratio conjugate fromhex hex is_integer" },
    { SHEAF__J_VIEW, "isdisjoint mapping" },
};

static bool is_listed_for(sheaf__jvalue of, sheaf__jtext name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].kind == of.kind && sheaf__is_listed(refused[i].names, name.at, name.size))
            return true;
    return false;
}

bool sheaf__j_is_method(sheaf__jvalue of, sheaf__jtext name)
{
    return find(of, name) != NULL || is_listed_for(of, name);
}

bool sheaf__j_is_unsafe(sheaf__jvalue of, sheaf__jtext name)
{
    const char *names = of.kind == SHEAF__J_DICT ? "clear pop popitem setdefault update"
                        : of.kind == SHEAF__J_LIST
                            ? "append clear extend insert pop remove reverse sort"
                            : "";
    return sheaf__is_listed(names, name.at, name.size);
}

sheaf__jvalue sheaf__j_call_method(sheaf__jrun *r, sheaf__jvalue of, sheaf__jtext name,
                                   const sheaf__jarguments *args)
{
    const sheaf__jbuiltin *found = find(of, name);
    if (found == NULL)
        sheaf__j_refuse(r->j, "the method %.*s of a %s", (int)name.size, name.at,
                        sheaf__j_kind(of));
    if (of.form == SHEAF__J_MARKUP)
        sheaf__j_refuse(r->j, "the method %s of a text that the filter safe has made", found->name);
    return sheaf__j_call(found, r, of, args);
}

/* ---- the functions that every template has ---- */

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
    out.kind = SHEAF__J_RANGE;
    for (int64_t i = bounds[0]; step > 0 ? i < bounds[1] : i > bounds[1];) {
        if (out.u.list->count == SHEAF__J_RANGE_SIZE)
            sheaf__j_raise(j, "range too big");
        sheaf__j_work(j, 1);
        sheaf__j_append(j, out.u.list, sheaf__j_int(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return out;
}

/* joiner(", ") */
static sheaf__jvalue joiner(sheaf__jcall *c)
{
    sheaf__jlist *texts = sheaf__j_list(c->j).u.list;
    sheaf__j_append(c->j, texts, sheaf__j_text("", 0));
    sheaf__j_append(c->j, texts, c->at[0] != NULL ? *c->at[0] : sheaf__j_text(", ", 2));
    return sheaf__j_as(SHEAF__J_JOINER, texts);
}

/* dict(a=1), namespace(a=1): both also of one dict, or of pairs. */
static sheaf__jvalue members(sheaf__jcall *c)
{
    sheaf__j *j = c->j;
    const sheaf__jarguments *args = c->args;
    sheaf__jvalue out = sheaf__j_dict(j);
    const sheaf__jlist *keys = &args->named.keys;
    if (args->at.count > 1)
        sheaf__j_raise(j, "dict expected at most 1 argument, got %zu", args->at.count);
    const sheaf__jvalue first = args->at.count == 1 ? args->at.at[0] : sheaf__j_dict(j);
    const sheaf__jlist pairs =
        sheaf__j_items(j, first.kind == SHEAF__J_DICT ? sheaf__j_pairs(j, first.u.dict) : first);
    for (size_t i = 0; i < pairs.count; i++) {
        const sheaf__jlist pair = sheaf__j_items(j, pairs.at[i]);
        if (pair.count != 2)
            sheaf__j_raise(j,
                           "dictionary update sequence element #%zu has length %zu; 2 is "
                           "required",
                           i, pair.count);
        sheaf__j_set(j, out.u.dict, pair.at[0], pair.at[1]);
    }
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
    const sheaf__jtext text = sheaf__j_str(c->j, *c->at[0]);
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
    return sheaf__j_buffer_text(&b);
}

static sheaf__jvalue unsupported(sheaf__jcall *c)
{
    sheaf__j_refuse(c->j, "the function %.*s()", (int)c->of.u.text.size, c->of.u.text.at);
}

static const sheaf__jbuiltin functions[] = {
    { "range", "*", range },
    { "dict", "*", members, SHEAF__J_DICT },
    { "namespace", "*", members, SHEAF__J_SPACE },
    { "raise_exception", "message!", raise_exception },
    { "strftime_now", "format!", today },
    { "lipsum", "*", unsupported },
    { "cycler", "*", unsupported },
    { "joiner", "sep", joiner },
    { NULL },
};

const sheaf__jbuiltin *sheaf__j_function(sheaf__jtext name)
{
    return sheaf__j_builtin(functions, SHEAF__J_UNDEFINED, name);
}
