/* jinja_method.c - methods of strings, dicts, lists and `loop`, and the functions that every
 * template has. Methods that would change something are refused, as Jinja's sandbox refuses them.
 */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

/* ---- strings ---- */

/* Is the character at `at`, `n` bytes, one of `chars`? */
static bool among(sheaf__j *j, sheaf__jtext chars, const char *at, size_t n)
{
    return sheaf__j_search(j, chars, (sheaf__jtext){ at, n }) != NULL;
}

sheaf__jvalue sheaf__j_strip(sheaf__j *j, sheaf__jtext text, const sheaf__jvalue *chars, bool left,
                             bool right)
{
    const bool blanks = chars == NULL || chars->kind == SHEAF__J_NONE;
    const sheaf__jtext of = blanks ? SHEAF__J_WORD("") : sheaf__j_text_argument(j, chars, text);
    while (left && text.size > 0) {
        size_t n =
            blanks ? sheaf__utf8_blank(text.at, text.size) : sheaf__utf8_length(text.at, text.size);
        if (n == 0 || (!blanks && !among(j, of, text.at, n)))
            break;
        text.at += n;
        text.size -= n;
    }
    while (right && text.size > 0) {
        size_t n = 1;
        while (n < text.size && n < 4 && ((unsigned char)text.at[text.size - n] & 0xc0) == 0x80)
            n++;
        const char *at = text.at + text.size - n;
        if (blanks ? sheaf__utf8_blank(at, n) != n : !among(j, of, at, n))
            break;
        text.size -= n;
    }
    return sheaf__j_text(text.at, text.size);
}

enum { LEFT = 1, RIGHT = 2 };

static sheaf__jvalue m_strip(sheaf__jcall *c)
{
    return sheaf__j_strip(c->j, c->of.u.text, c->at[0], c->how & LEFT, c->how & RIGHT);
}

static bool is_at(sheaf__j *j, sheaf__jtext text, sheaf__jtext what, bool end)
{
    sheaf__j_work(j, 1 + what.size / 16);
    return text.size >= what.size &&
           memcmp(end ? text.at + text.size - what.size : text.at, what.at, what.size) == 0;
}

/* The argument, which is a string. */
static sheaf__jtext text_of(const sheaf__jcall *c, int which)
{
    return sheaf__j_text_argument(c->j, c->at[which], SHEAF__J_WORD(""));
}

/* startswith, endswith; how: at the end */
static sheaf__jvalue m_startswith(sheaf__jcall *c)
{
    const sheaf__jvalue what = *c->at[0];
    if (what.kind != SHEAF__J_TUPLE)
        return sheaf__j_bool(is_at(c->j, c->of.u.text, text_of(c, 0), c->how));
    for (size_t i = 0; i < what.u.list->count; i++) {
        c->at[0] = &what.u.list->at[i];
        if (is_at(c->j, c->of.u.text, text_of(c, 0), c->how))
            return sheaf__j_bool(true);
    }
    return sheaf__j_bool(false);
}

static void add_piece(sheaf__j *j, sheaf__jvalue *list, const char *from, const char *to)
{
    sheaf__j_append(j, list->u.list, sheaf__j_text(from, (size_t)(to - from)));
}

static sheaf__jvalue split_blanks(sheaf__j *j, sheaf__jtext text, int64_t most)
{
    sheaf__jvalue out = sheaf__j_list(j);
    const char *p = text.at, *const end = text.at + text.size;
    for (size_t n;;) {
        while (p < end && (n = sheaf__utf8_blank(p, (size_t)(end - p))) > 0)
            p += n;
        if (p == end)
            return out;
        const char *const from = p;
        if (most >= 0 && (int64_t)out.u.list->count == most) {
            const sheaf__jvalue rest =
                sheaf__j_strip(j, (sheaf__jtext){ from, (size_t)(end - from) }, NULL, false, true);
            sheaf__j_append(j, out.u.list, rest);
            return out;
        }
        while (p < end && sheaf__utf8_blank(p, (size_t)(end - p)) == 0)
            p++;
        add_piece(j, &out, from, p);
    }
}

static sheaf__jvalue m_split(sheaf__jcall *c)
{
    const int64_t most = sheaf__j_int_argument(c->j, c->at[1], -1);
    if (c->at[0] == NULL || c->at[0]->kind == SHEAF__J_NONE)
        return split_blanks(c->j, c->of.u.text, most);
    const sheaf__jtext by = text_of(c, 0);
    if (by.size == 0)
        sheaf__j_raise(c->j, "empty separator");
    sheaf__jvalue out = sheaf__j_list(c->j);
    sheaf__jtext rest = c->of.u.text;
    for (const char *at; (most < 0 || (int64_t)out.u.list->count < most) &&
                         (at = sheaf__j_search(c->j, rest, by)) != NULL;) {
        add_piece(c->j, &out, rest.at, at);
        rest.size -= (size_t)(at - rest.at) + by.size;
        rest.at = at + by.size;
    }
    add_piece(c->j, &out, rest.at, rest.at + rest.size);
    return out;
}

static const char *search_last(sheaf__j *j, sheaf__jtext in, sheaf__jtext what)
{
    const char *last = NULL;
    for (const char *at; (at = sheaf__j_search(j, in, what)) != NULL && what.size > 0;) {
        last = at;
        in.size -= (size_t)(at - in.at) + 1;
        in.at = at + 1;
    }
    return last;
}

static sheaf__jvalue m_rsplit(sheaf__jcall *c)
{
    const sheaf__jvalue *sep = c->at[0];
    const sheaf__jtext of = c->of.u.text;
    const int64_t most = sheaf__j_int_argument(c->j, c->at[1], -1);
    if (most < 0)
        return m_split(c);
    if (most != 1 || sep == NULL || sep->kind != SHEAF__J_TEXT || sep->u.text.size == 0)
        sheaf__j_refuse(c->j, "rsplit but with a separator, once or everywhere");
    const char *at = search_last(c->j, of, sep->u.text);
    sheaf__jvalue out = sheaf__j_list(c->j);
    if (at != NULL)
        add_piece(c->j, &out, of.at, at);
    add_piece(c->j, &out, at == NULL ? of.at : at + sep->u.text.size, of.at + of.size);
    return out;
}

/* Lines end at \n, \r and \r\n; Python knows more line ends, which are refused. */
static sheaf__jvalue m_splitlines(sheaf__jcall *c)
{
    sheaf__jvalue out = sheaf__j_list(c->j);
    const char *from = c->of.u.text.at, *const end = from + c->of.u.text.size;
    for (const char *p = from; p < end; p++) {
        const unsigned char byte = (unsigned char)*p;
        if (byte == 0x0b || byte == 0x0c || (byte >= 0x1c && byte <= 0x1e) || byte == 0xc2 ||
            byte == 0xe2)
            sheaf__j_refuse(c->j, "splitlines of text with rare line ends");
        if (byte != '\n' && byte != '\r')
            continue;
        add_piece(c->j, &out, from, p);
        p += byte == '\r' && p + 1 < end && p[1] == '\n';
        from = p + 1;
    }
    if (from < end)
        add_piece(c->j, &out, from, end);
    return out;
}

static sheaf__jvalue m_case(sheaf__jcall *c)
{
    return sheaf__j_case(c->j, c->of.u.text, (char)c->how);
}

sheaf__jvalue sheaf__j_replace(sheaf__j *j, sheaf__jtext text, sheaf__jtext from, sheaf__jtext to,
                               int64_t most)
{
    sheaf__jbuffer b = { 0 };
    if (from.size == 0)
        sheaf__j_refuse(j, "replace of nothing");
    for (const char *at; most != 0 && (at = sheaf__j_search(j, text, from)) != NULL; most--) {
        if (at > text.at)
            sheaf__j_put(j, &b, text.at, (size_t)(at - text.at));
        sheaf__j_put(j, &b, to.at, to.size);
        text.size -= (size_t)(at - text.at) + from.size;
        text.at = at + from.size;
    }
    sheaf__j_put(j, &b, text.at, text.size);
    return sheaf__j_buffer_text(&b);
}

static sheaf__jvalue m_replace(sheaf__jcall *c)
{
    return sheaf__j_replace(c->j, c->of.u.text, text_of(c, 0), text_of(c, 1),
                            sheaf__j_int_argument(c->j, c->at[2], -1));
}

enum { LAST = 1, MUST = 2 };

/* find, rfind, index */
static sheaf__jvalue m_find(sheaf__jcall *c)
{
    const sheaf__jtext of = c->of.u.text, what = text_of(c, 0);
    const char *at = (c->how & LAST) == 0 ? sheaf__j_search(c->j, of, what)
                     : what.size == 0     ? of.at + of.size
                                          : search_last(c->j, of, what);
    if (at == NULL && (c->how & MUST))
        sheaf__j_raise(c->j, "substring not found");
    return sheaf__j_int(
        at == NULL ? -1
                   : (int64_t)sheaf__j_characters((sheaf__jtext){ of.at, (size_t)(at - of.at) }));
}

static sheaf__jvalue m_count(sheaf__jcall *c)
{
    const sheaf__jtext what = text_of(c, 0);
    sheaf__jtext rest = c->of.u.text;
    int64_t n = 0;
    if (what.size == 0)
        return sheaf__j_int((int64_t)sheaf__j_characters(rest) + 1);
    for (const char *at; (at = sheaf__j_search(c->j, rest, what)) != NULL; n++) {
        rest.size -= (size_t)(at - rest.at) + what.size;
        rest.at = at + what.size;
    }
    return sheaf__j_int(n);
}

static sheaf__jvalue m_join(sheaf__jcall *c)
{
    const sheaf__jtext between = c->of.u.text;
    sheaf__jbuffer b = { 0 };
    const sheaf__jlist items = sheaf__j_items(c->j, *c->at[0]);
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jtext text = sheaf__j_text_argument(c->j, &items.at[i], between);
        sheaf__j_work(c->j, 1);
        sheaf__j_put(c->j, &b, between.at, i > 0 ? between.size : 0);
        sheaf__j_put(c->j, &b, text.at, text.size);
    }
    return sheaf__j_buffer_text(&b);
}

/* removeprefix, removesuffix; how: at the end */
static sheaf__jvalue m_remove(sheaf__jcall *c)
{
    const sheaf__jtext of = c->of.u.text, what = text_of(c, 0);
    const size_t n = is_at(c->j, of, what, c->how) ? what.size : 0;
    return sheaf__j_text(of.at + (c->how ? 0 : n), of.size - n);
}

static sheaf__jvalue m_isdigit(sheaf__jcall *c)
{
    const sheaf__jtext of = c->of.u.text;
    for (size_t i = 0; i < of.size; i++) {
        if ((unsigned char)of.at[i] >= 0x80)
            sheaf__j_refuse(c->j, "isdigit beyond ASCII");
        if (of.at[i] < '0' || of.at[i] > '9')
            return sheaf__j_bool(false);
    }
    return sheaf__j_bool(of.size > 0);
}

/* ---- dicts, lists, loop ---- */

static sheaf__jvalue m_keys(sheaf__jcall *c)
{
    return sheaf__j_as(SHEAF__J_VIEW, &c->of.u.dict->keys);
}
static sheaf__jvalue m_values(sheaf__jcall *c)
{
    return sheaf__j_as(SHEAF__J_VIEW, &c->of.u.dict->values);
}
sheaf__jvalue sheaf__j_pairs(sheaf__j *j, const sheaf__jdict *dict)
{
    sheaf__jvalue out = sheaf__j_list(j);
    for (size_t i = 0; i < dict->keys.count; i++) {
        sheaf__j_work(j, 1);
        sheaf__j_append(j, out.u.list, sheaf__j_pair(j, dict->keys.at[i], dict->values.at[i]));
    }
    return sheaf__j_as(SHEAF__J_VIEW, out.u.list);
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

static const sheaf__jbuiltin methods[] = {
    { "strip", ".chars", m_strip, LEFT | RIGHT, SHEAF__J_TEXT, true },
    { "lstrip", ".chars", m_strip, LEFT, SHEAF__J_TEXT, true },
    { "rstrip", ".chars", m_strip, RIGHT, SHEAF__J_TEXT, true },
    { "startswith", ".prefix!", m_startswith, false, SHEAF__J_TEXT },
    { "endswith", ".suffix!", m_startswith, true, SHEAF__J_TEXT },
    { "split", "sep maxsplit", m_split, 0, SHEAF__J_TEXT, true },
    { "rsplit", "sep maxsplit", m_rsplit, 0, SHEAF__J_TEXT, true },
    { "splitlines", "", m_splitlines, 0, SHEAF__J_TEXT, true },
    { "upper", "", m_case, 'u', SHEAF__J_TEXT, true },
    { "lower", "", m_case, 'l', SHEAF__J_TEXT, true },
    { "title", "", m_case, 't', SHEAF__J_TEXT, true },
    { "capitalize", "", m_case, 'c', SHEAF__J_TEXT, true },
    { "replace", ".old! .new! count", m_replace, 0, SHEAF__J_TEXT, true },
    { "find", ".sub!", m_find, 0, SHEAF__J_TEXT, true },
    { "rfind", ".sub!", m_find, LAST, SHEAF__J_TEXT, true },
    { "index", ".sub!", m_find, MUST, SHEAF__J_TEXT, true },
    { "count", ".sub!", m_count, 0, SHEAF__J_TEXT, true },
    { "join", ".iterable!", m_join, 0, SHEAF__J_TEXT },
    { "removeprefix", ".prefix!", m_remove, false, SHEAF__J_TEXT },
    { "removesuffix", ".suffix!", m_remove, true, SHEAF__J_TEXT },
    { "isdigit", "", m_isdigit, 0, SHEAF__J_TEXT, true },
    { "keys", "", m_keys, 0, SHEAF__J_DICT },
    { "values", "", m_values, 0, SHEAF__J_DICT },
    { "items", "", m_items, 0, SHEAF__J_DICT },
    { "get", ".key! .default", m_get, 0, SHEAF__J_DICT },
    { "cycle", "*", m_cycle, 0, SHEAF__J_LOOP },
    { "changed", "*", m_changed, 0, SHEAF__J_LOOP },
    { NULL },
};

/* Methods of Python that templates may not call, or do not. */
static const struct {
    sheaf__jkind kind;
    const char *names;
} refused[] = {
    { SHEAF__J_TEXT,
      "format isalpha isalnum isspace isupper islower partition rpartition center ljust "
      "rjust zfill encode rindex translate swapcase casefold expandtabs" },
    { SHEAF__J_DICT, "copy pop popitem update setdefault clear fromkeys" },
    { SHEAF__J_LIST, "append extend insert pop remove reverse sort clear copy index count" },
    { SHEAF__J_TUPLE, "index count" },
};

static bool is_refused(sheaf__jvalue of, sheaf__jtext name)
{
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].kind == of.kind && sheaf__is_listed(refused[i].names, name.at, name.size))
            return true;
    return false;
}

bool sheaf__j_is_method(sheaf__jvalue of, sheaf__jtext name)
{
    return sheaf__j_builtin(methods, of.kind, name) != NULL || is_refused(of, name);
}

sheaf__jvalue sheaf__j_call_method(sheaf__jrun *r, sheaf__jvalue of, sheaf__jtext name,
                                   const sheaf__jarguments *args)
{
    const sheaf__jbuiltin *found = sheaf__j_builtin(methods, of.kind, name);
    if (found == NULL)
        sheaf__j_refuse(r->j, "the method %.*s of a %s", (int)name.size, name.at,
                        sheaf__j_kind(of));
    return sheaf__j_call(found, r, of, args);
}

/* ---- loop ---- */

sheaf__jvalue sheaf__j_loop_member(sheaf__j *j, sheaf__jloop *loop, sheaf__jtext name)
{
    const size_t i = loop->index, n = loop->items.count;
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = {
        { "index", (int64_t)i + 1 },
        { "index0", (int64_t)i },
        { "revindex", (int64_t)(n - i) },
        { "revindex0", (int64_t)(n - i) - 1 },
        { "length", (int64_t)n },
        { "depth", 1 },
        { "depth0", 0 },
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
    if (sheaf__j_is_method((sheaf__jvalue){ SHEAF__J_LOOP, { .loop = loop } }, name))
        sheaf__j_refuse(j, "loop.%.*s without a call", (int)name.size, name.at);
    return sheaf__j_undefined(name);
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
    { "raise_exception", "message", raise_exception },
    { "strftime_now", "format", today },
    { "lipsum", "*", unsupported },
    { "cycler", "*", unsupported },
    { "joiner", "*", unsupported },
    { NULL },
};

const sheaf__jbuiltin *sheaf__j_function(sheaf__jtext name)
{
    return sheaf__j_builtin(functions, SHEAF__J_UNDEFINED, name);
}
