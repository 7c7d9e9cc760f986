/* jinja_method.c - methods of strings, dicts, lists and `loop`. Those that would change something
 * are refused, as Jinja's sandbox refuses them. */
#include "base/base.h"
#include "inputs/chat/jinja_core.h"

typedef sheaf__jvalue method(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args);

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

static sheaf__jvalue m_strip(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_strip(r->j, of.u.text, sheaf__j_argument(r->j, args, 0, NULL), true, true);
}
static sheaf__jvalue m_lstrip(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_strip(r->j, of.u.text, sheaf__j_argument(r->j, args, 0, NULL), true, false);
}
static sheaf__jvalue m_rstrip(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_strip(r->j, of.u.text, sheaf__j_argument(r->j, args, 0, NULL), false, true);
}

static bool is_at(sheaf__j *j, sheaf__jtext text, sheaf__jtext what, bool end)
{
    sheaf__j_work(j, 1 + what.size / 16);
    return text.size >= what.size &&
           memcmp(end ? text.at + text.size - what.size : text.at, what.at, what.size) == 0;
}

static sheaf__jvalue starts_or_ends(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args,
                                    bool end)
{
    if (args->at.count != 1)
        sheaf__j_refuse(r->j, "startswith and endswith with bounds");
    const sheaf__jvalue what = args->at.at[0];
    if (what.kind != SHEAF__J_TUPLE)
        return sheaf__j_bool(
            is_at(r->j, of.u.text, sheaf__j_text_argument(r->j, &what, SHEAF__J_WORD("")), end));
    for (size_t i = 0; i < what.u.list->count; i++)
        if (is_at(r->j, of.u.text,
                  sheaf__j_text_argument(r->j, &what.u.list->at[i], SHEAF__J_WORD("")), end))
            return sheaf__j_bool(true);
    return sheaf__j_bool(false);
}
static sheaf__jvalue m_startswith(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return starts_or_ends(r, of, args, false);
}
static sheaf__jvalue m_endswith(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return starts_or_ends(r, of, args, true);
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

static sheaf__jvalue m_split(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *sep = sheaf__j_argument(r->j, args, 0, "sep");
    const int64_t most =
        sheaf__j_int_argument(r->j, sheaf__j_argument(r->j, args, 1, "maxsplit"), -1);
    if (sep == NULL || sep->kind == SHEAF__J_NONE)
        return split_blanks(r->j, of.u.text, most);
    const sheaf__jtext by = sheaf__j_text_argument(r->j, sep, SHEAF__J_WORD(""));
    if (by.size == 0)
        sheaf__j_raise(r->j, "empty separator");
    sheaf__jvalue out = sheaf__j_list(r->j);
    sheaf__jtext rest = of.u.text;
    for (const char *at; (most < 0 || (int64_t)out.u.list->count < most) &&
                         (at = sheaf__j_search(r->j, rest, by)) != NULL;) {
        add_piece(r->j, &out, rest.at, at);
        rest.size -= (size_t)(at - rest.at) + by.size;
        rest.at = at + by.size;
    }
    add_piece(r->j, &out, rest.at, rest.at + rest.size);
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

static sheaf__jvalue m_rsplit(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue *sep = sheaf__j_argument(r->j, args, 0, "sep");
    const int64_t most =
        sheaf__j_int_argument(r->j, sheaf__j_argument(r->j, args, 1, "maxsplit"), -1);
    if (most < 0)
        return m_split(r, of, args);
    if (most != 1 || sep == NULL || sep->kind != SHEAF__J_TEXT || sep->u.text.size == 0)
        sheaf__j_refuse(r->j, "rsplit but with a separator, once or everywhere");
    const char *at = search_last(r->j, of.u.text, sep->u.text);
    const char *const end = of.u.text.at + of.u.text.size;
    sheaf__jvalue out = sheaf__j_list(r->j);
    if (at != NULL)
        add_piece(r->j, &out, of.u.text.at, at);
    add_piece(r->j, &out, at == NULL ? of.u.text.at : at + sep->u.text.size, end);
    return out;
}

/* Lines end at \n, \r and \r\n; Python knows more line ends, which are refused. */
static sheaf__jvalue m_splitlines(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    sheaf__jvalue out = sheaf__j_list(r->j);
    const char *from = of.u.text.at, *const end = from + of.u.text.size;
    for (const char *p = from; p < end; p++) {
        const unsigned char c = (unsigned char)*p;
        if (c == 0x0b || c == 0x0c || (c >= 0x1c && c <= 0x1e) || c == 0xc2 || c == 0xe2)
            sheaf__j_refuse(r->j, "splitlines of text with rare line ends");
        if (c != '\n' && c != '\r')
            continue;
        add_piece(r->j, &out, from, p);
        p += c == '\r' && p + 1 < end && p[1] == '\n';
        from = p + 1;
    }
    if (from < end)
        add_piece(r->j, &out, from, end);
    return out;
}

static sheaf__jvalue m_upper(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_case(r->j, of.u.text, 'u');
}
static sheaf__jvalue m_lower(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_case(r->j, of.u.text, 'l');
}
static sheaf__jvalue m_title(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_case(r->j, of.u.text, 't');
}
static sheaf__jvalue m_capitalize(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_case(r->j, of.u.text, 'c');
}

sheaf__jvalue sheaf__j_replace(sheaf__j *j, sheaf__jtext text, sheaf__jtext from, sheaf__jtext to,
                               int64_t most)
{
    sheaf__jbuffer b = { 0 };
    if (from.size == 0)
        sheaf__j_refuse(j, "replace of nothing");
    for (const char *at; most != 0 && (at = sheaf__j_search(j, text, from)) != NULL; most--) {
        sheaf__j_put(j, &b, text.at, (size_t)(at - text.at));
        sheaf__j_put(j, &b, to.at, to.size);
        text.size -= (size_t)(at - text.at) + from.size;
        text.at = at + from.size;
    }
    sheaf__j_put(j, &b, text.at, text.size);
    return sheaf__j_taken(&b);
}

static sheaf__jvalue m_replace(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jtext none = SHEAF__J_WORD("");
    if (args->at.count < 2)
        sheaf__j_raise(r->j, "replace expected at least 2 arguments");
    return sheaf__j_replace(
        r->j, of.u.text, sheaf__j_text_argument(r->j, &args->at.at[0], none),
        sheaf__j_text_argument(r->j, &args->at.at[1], none),
        sheaf__j_int_argument(r->j, sheaf__j_argument(r->j, args, 2, "count"), -1));
}

static sheaf__jvalue position(sheaf__jrun *r, sheaf__jvalue of, const char *at)
{
    if (at == NULL)
        return sheaf__j_int(-1);
    return sheaf__j_int(
        (int64_t)sheaf__j_characters((sheaf__jtext){ of.u.text.at, (size_t)(at - of.u.text.at) }));
}
static sheaf__jtext only_text(sheaf__jrun *r, const sheaf__jarguments *args)
{
    if (args->at.count != 1)
        sheaf__j_refuse(r->j, "a search with bounds");
    return sheaf__j_text_argument(r->j, &args->at.at[0], SHEAF__J_WORD(""));
}
static sheaf__jvalue m_find(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return position(r, of, sheaf__j_search(r->j, of.u.text, only_text(r, args)));
}
static sheaf__jvalue m_rfind(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jtext what = only_text(r, args);
    return what.size == 0 ? sheaf__j_int((int64_t)sheaf__j_characters(of.u.text))
                          : position(r, of, search_last(r->j, of.u.text, what));
}
static sheaf__jvalue m_index(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jvalue at = m_find(r, of, args);
    if (at.u.whole < 0)
        sheaf__j_raise(r->j, "substring not found");
    return at;
}

static sheaf__jvalue m_count(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jtext what = only_text(r, args);
    sheaf__jtext rest = of.u.text;
    int64_t n = 0;
    if (what.size == 0)
        return sheaf__j_int((int64_t)sheaf__j_characters(rest) + 1);
    for (const char *at; (at = sheaf__j_search(r->j, rest, what)) != NULL; n++) {
        rest.size -= (size_t)(at - rest.at) + what.size;
        rest.at = at + what.size;
    }
    return sheaf__j_int(n);
}

static sheaf__jvalue m_join(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    sheaf__jbuffer b = { 0 };
    if (args->at.count != 1)
        sheaf__j_raise(r->j, "join takes exactly one argument");
    const sheaf__jlist items = sheaf__j_items(r->j, args->at.at[0]);
    for (size_t i = 0; i < items.count; i++) {
        const sheaf__jtext text = sheaf__j_text_argument(r->j, &items.at[i], SHEAF__J_WORD(""));
        sheaf__j_work(r->j, 1);
        sheaf__j_put(r->j, &b, of.u.text.at, i > 0 ? of.u.text.size : 0);
        sheaf__j_put(r->j, &b, text.at, text.size);
    }
    return sheaf__j_taken(&b);
}

static sheaf__jvalue m_removeprefix(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jtext what = only_text(r, args);
    const size_t n = is_at(r->j, of.u.text, what, false) ? what.size : 0;
    return sheaf__j_text(of.u.text.at + n, of.u.text.size - n);
}
static sheaf__jvalue m_removesuffix(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    const sheaf__jtext what = only_text(r, args);
    return sheaf__j_text(of.u.text.at,
                         of.u.text.size - (is_at(r->j, of.u.text, what, true) ? what.size : 0));
}

static sheaf__jvalue m_isdigit(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    for (size_t i = 0; i < of.u.text.size; i++) {
        if ((unsigned char)of.u.text.at[i] >= 0x80)
            sheaf__j_refuse(r->j, "isdigit beyond ASCII");
        if (of.u.text.at[i] < '0' || of.u.text.at[i] > '9')
            return sheaf__j_bool(false);
    }
    return sheaf__j_bool(of.u.text.size > 0);
}

/* ---- dicts, lists, loop ---- */

static sheaf__jvalue m_keys(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_as(SHEAF__J_VIEW, &of.u.dict->keys);
}
static sheaf__jvalue m_values(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    return sheaf__j_as(SHEAF__J_VIEW, &of.u.dict->values);
}
static sheaf__jvalue m_items(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    sheaf__jvalue out = sheaf__j_list(r->j);
    for (size_t i = 0; i < of.u.dict->keys.count; i++) {
        sheaf__j_work(r->j, 1);
        sheaf__j_append(r->j, out.u.list,
                        sheaf__j_pair(r->j, of.u.dict->keys.at[i], of.u.dict->values.at[i]));
    }
    return sheaf__j_as(SHEAF__J_VIEW, out.u.list);
}
static sheaf__jvalue m_get(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    if (args->at.count == 0)
        sheaf__j_raise(r->j, "get expected at least 1 argument");
    const sheaf__jvalue *v = sheaf__j_get(r->j, of.u.dict, args->at.at[0]);
    return v != NULL ? *v : args->at.count > 1 ? args->at.at[1] : sheaf__j_none();
}

static sheaf__jvalue m_cycle(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    if (args->at.count == 0)
        sheaf__j_raise(r->j, "no items for cycling given");
    return args->at.at[of.u.loop->index % args->at.count];
}
static sheaf__jvalue m_changed(sheaf__jrun *r, sheaf__jvalue of, const sheaf__jarguments *args)
{
    sheaf__jvalue now = sheaf__j_list(r->j);
    *now.u.list = args->at;
    const bool changed = !of.u.loop->has_changed || !sheaf__j_equal(r->j, now, of.u.loop->changed);
    of.u.loop->has_changed = true;
    of.u.loop->changed = now;
    return sheaf__j_bool(changed);
}

static const struct {
    sheaf__jkind kind;
    const char *name, *arguments;
    method *run;
    bool reads; /* all of the value: charged by its size */
} methods[] = {
    { SHEAF__J_TEXT, "strip", "chars", m_strip, true },
    { SHEAF__J_TEXT, "lstrip", "chars", m_lstrip, true },
    { SHEAF__J_TEXT, "rstrip", "chars", m_rstrip, true },
    { SHEAF__J_TEXT, "startswith", "prefix", m_startswith },
    { SHEAF__J_TEXT, "endswith", "suffix", m_endswith },
    { SHEAF__J_TEXT, "split", "sep maxsplit", m_split, true },
    { SHEAF__J_TEXT, "rsplit", "sep maxsplit", m_rsplit, true },
    { SHEAF__J_TEXT, "splitlines", "", m_splitlines, true },
    { SHEAF__J_TEXT, "upper", "", m_upper, true },
    { SHEAF__J_TEXT, "lower", "", m_lower, true },
    { SHEAF__J_TEXT, "title", "", m_title, true },
    { SHEAF__J_TEXT, "capitalize", "", m_capitalize, true },
    { SHEAF__J_TEXT, "replace", "old new count", m_replace, true },
    { SHEAF__J_TEXT, "find", "sub", m_find, true },
    { SHEAF__J_TEXT, "rfind", "sub", m_rfind, true },
    { SHEAF__J_TEXT, "index", "sub", m_index, true },
    { SHEAF__J_TEXT, "count", "sub", m_count, true },
    { SHEAF__J_TEXT, "join", "iterable", m_join },
    { SHEAF__J_TEXT, "removeprefix", "prefix", m_removeprefix },
    { SHEAF__J_TEXT, "removesuffix", "suffix", m_removesuffix },
    { SHEAF__J_TEXT, "isdigit", "", m_isdigit, true },
    { SHEAF__J_DICT, "keys", "", m_keys },
    { SHEAF__J_DICT, "values", "", m_values },
    { SHEAF__J_DICT, "items", "", m_items },
    { SHEAF__J_DICT, "get", "key default", m_get },
    { SHEAF__J_LOOP, "cycle", "*", m_cycle },
    { SHEAF__J_LOOP, "changed", "*", m_changed },
};

/* Those that Python has and a template may not, or does not, call. */
static const struct {
    sheaf__jkind kind;
    const char *names;
} refused[] = {
    { SHEAF__J_TEXT,
      " format isalpha isalnum isspace isupper islower partition rpartition center ljust "
      "rjust zfill encode rindex translate swapcase casefold expandtabs " },
    { SHEAF__J_DICT, " copy pop popitem update setdefault clear fromkeys " },
    { SHEAF__J_LIST, " append extend insert pop remove reverse sort clear copy index count " },
    { SHEAF__J_TUPLE, " index count " },
};

static bool is_refused(sheaf__jvalue of, sheaf__jtext name)
{
    char word[24];
    if (name.size + 3 > sizeof word)
        return false;
    snprintf(word, sizeof word, " %.*s ", (int)name.size, name.at);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (refused[i].kind == of.kind && strstr(refused[i].names, word) != NULL)
            return true;
    return false;
}

static int find_method(sheaf__jvalue of, sheaf__jtext name)
{
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (methods[i].kind == of.kind && sheaf__j_is(name, methods[i].name))
            return (int)i;
    return -1;
}

bool sheaf__j_is_method(sheaf__jvalue of, sheaf__jtext name)
{
    return find_method(of, name) >= 0 || is_refused(of, name);
}

sheaf__jvalue sheaf__j_call_method(sheaf__jrun *r, sheaf__jvalue of, sheaf__jtext name,
                                   const sheaf__jarguments *args)
{
    const int i = find_method(of, name);
    if (i < 0)
        sheaf__j_refuse(r->j, "the method %.*s of a %s", (int)name.size, name.at,
                        sheaf__j_kind(of));
    sheaf__j_take_arguments(r->j, args, methods[i].arguments);
    if (methods[i].reads)
        sheaf__j_read(r->j, of);
    return methods[i].run(r, of, args);
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
