/* jinja_string.c - methods of strings, as Python's str has them. */
#include <utf8proc.h>

#include "base/base.h"
#include "inputs/chat/jinja_core.h"
#include "inputs/tokenizer/unicode.h"

/* ---- parts ---- */

static size_t last_character(sheaf__jtext text)
{
    size_t n = 1;
    while (n < text.size && n < 4 && ((unsigned char)text.at[text.size - n] & 0xc0) == 0x80)
        n++;
    return n;
}

/* The part of the string between the second and the third argument, which are optional, with the
 * characters before it. False: it begins behind the end of the string, or behind its own. */
static bool take_part(sheaf__jcall *c, sheaf__jtext *part, int64_t *before)
{
    *part = c->of.u.text;
    *before = 0;
    if (c->at[1] == NULL && c->at[2] == NULL)
        return true;
    const int64_t n = (int64_t)sheaf__j_characters(*part);
    const int64_t to = sheaf__j_bound(c->j, c->at[2], n, n, 1);
    *before = sheaf__j_bound(c->j, c->at[1], 0, INT64_MAX, 1);
    if (c->at[1] != NULL && c->at[1]->kind != SHEAF__J_NONE && sheaf__j_whole(*c->at[1]) < 0)
        *before = sheaf__j_bound(c->j, c->at[1], 0, n, 1);
    if (*before > n || *before > to)
        return false;
    const sheaf__jvalue bounds[3] = { sheaf__j_int(*before), sheaf__j_int(to), sheaf__j_none() };
    *part = sheaf__j_slice(c->j, c->of, bounds).u.text;
    return true;
}

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
        const size_t n = last_character(text);
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
    sheaf__jtext part;
    int64_t before;
    const bool there = take_part(c, &part, &before);
    if (what.kind != SHEAF__J_TUPLE)
        return sheaf__j_bool(is_at(c->j, part, text_of(c, 0), c->how) && there);
    for (size_t i = 0; i < what.u.list->count; i++) {
        c->at[0] = &what.u.list->at[i];
        if (is_at(c->j, part, text_of(c, 0), c->how) && there)
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
            add_piece(j, &out, from, end);
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

/* From the end on; at blanks only where all of them divide. */
static sheaf__jvalue m_rsplit(sheaf__jcall *c)
{
    const sheaf__jvalue all[3] = { sheaf__j_none(), sheaf__j_none(), sheaf__j_int(-1) };
    const int64_t most = sheaf__j_int_argument(c->j, c->at[1], -1);
    if (most < 0)
        return m_split(c);
    if (c->at[0] == NULL || c->at[0]->kind == SHEAF__J_NONE)
        sheaf__j_refuse(c->j, "rsplit at some of the blanks");
    const sheaf__jtext by = text_of(c, 0);
    if (by.size == 0)
        sheaf__j_raise(c->j, "empty separator");
    sheaf__jtext rest = c->of.u.text;
    sheaf__jvalue out = sheaf__j_list(c->j);
    for (const char *at;
         (int64_t)out.u.list->count < most && (at = search_last(c->j, rest, by)) != NULL;) {
        add_piece(c->j, &out, at + by.size, rest.at + rest.size);
        rest.size = (size_t)(at - rest.at);
    }
    add_piece(c->j, &out, rest.at, rest.at + rest.size);
    return sheaf__j_slice(c->j, out, all);
}

/* Behind a line of Python's splitlines(): its length, "\r\n" 2; 0: no line ends here. */
static size_t line_end(const char *at, size_t left)
{
    const unsigned char c = (unsigned char)*at;
    if (c == '\r')
        return left > 1 && at[1] == '\n' ? 2 : 1;
    if ((c >= '\n' && c <= '\f') || (c >= 0x1c && c <= 0x1e))
        return 1;
    if (left > 1 && memcmp(at, "\xc2\x85", 2) == 0)
        return 2;
    return left > 2 && (memcmp(at, "\u2028", 3) == 0 || memcmp(at, "\u2029", 3) == 0) ? 3 : 0;
}

sheaf__jtext sheaf__j_line(sheaf__jtext *rest, size_t *end)
{
    sheaf__jtext line = { rest->at, 0 };
    for (*end = 0; line.size < rest->size; line.size++)
        if ((*end = line_end(rest->at + line.size, rest->size - line.size)) > 0)
            break;
    rest->at += line.size + *end;
    rest->size -= line.size + *end;
    return line;
}

static sheaf__jvalue m_splitlines(sheaf__jcall *c)
{
    sheaf__jvalue out = sheaf__j_list(c->j);
    sheaf__jtext rest = c->of.u.text;
    const bool keep = sheaf__j_bool_argument(c->at[0]);
    while (rest.size > 0) {
        size_t end;
        const sheaf__jtext line = sheaf__j_line(&rest, &end);
        add_piece(c->j, &out, line.at, line.at + line.size + (keep ? end : 0));
    }
    return out;
}

/* partition, rpartition; how: at the last one */
static sheaf__jvalue m_partition(sheaf__jcall *c)
{
    const sheaf__jtext of = c->of.u.text, by = text_of(c, 0);
    if (by.size == 0)
        sheaf__j_raise(c->j, "empty separator");
    const char *const end = of.at + of.size;
    const char *at = c->how ? search_last(c->j, of, by) : sheaf__j_search(c->j, of, by);
    const char *const first = at != NULL ? at : c->how ? of.at : end;
    sheaf__jvalue out = sheaf__j_list(c->j);
    out.kind = SHEAF__J_TUPLE;
    add_piece(c->j, &out, of.at, first);
    add_piece(c->j, &out, first, at != NULL ? at + by.size : first);
    add_piece(c->j, &out, at != NULL ? at + by.size : first, end);
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
    for (; from.size == 0 && most != 0; most--) { /* stands before each character and at the end */
        const size_t n = text.size == 0 ? 0 : sheaf__j_character(text.at, text.size);
        sheaf__j_work(j, 1);
        sheaf__j_put(j, &b, to.at, to.size);
        sheaf__j_put(j, &b, text.at, n);
        if (n == 0)
            return sheaf__j_buffer_text(&b);
        text.at += n;
        text.size -= n;
    }
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

/* find, rfind, index, rindex */
static sheaf__jvalue m_find(sheaf__jcall *c)
{
    const sheaf__jtext what = text_of(c, 0);
    sheaf__jtext of;
    int64_t before;
    const char *at = !take_part(c, &of, &before) ? NULL
                     : (c->how & LAST) == 0      ? sheaf__j_search(c->j, of, what)
                     : what.size == 0            ? of.at + of.size
                                                 : search_last(c->j, of, what);
    if (at == NULL && (c->how & MUST))
        sheaf__j_raise(c->j, "substring not found");
    return sheaf__j_int(at == NULL ? -1
                                   : before + (int64_t)sheaf__j_characters(
                                                  (sheaf__jtext){ of.at, (size_t)(at - of.at) }));
}

static sheaf__jvalue m_count(sheaf__jcall *c)
{
    const sheaf__jtext what = text_of(c, 0);
    sheaf__jtext rest;
    int64_t n = 0, before;
    if (!take_part(c, &rest, &before))
        return sheaf__j_int(0);
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

/* ---- what it consists of ---- */

/* Characters of type digit beside the decimal ones: raised, lowered, in circles and the like. */
static const sheaf__code_range digits[] = {
    { 0xb2, 0xb3 },       { 0xb9, 0xb9 },       { 0x1369, 0x1371 },   { 0x19da, 0x19da },
    { 0x2070, 0x2070 },   { 0x2074, 0x2079 },   { 0x2080, 0x2089 },   { 0x2460, 0x2468 },
    { 0x2474, 0x247c },   { 0x2488, 0x2490 },   { 0x24ea, 0x24ea },   { 0x24f5, 0x24fd },
    { 0x24ff, 0x24ff },   { 0x2776, 0x277e },   { 0x2780, 0x2788 },   { 0x278a, 0x2792 },
    { 0x10a40, 0x10a43 }, { 0x10e60, 0x10e68 }, { 0x11052, 0x1105a }, { 0x1f100, 0x1f10a },
};

static bool is_letter(int32_t c)
{
    const utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
static bool is_number(int32_t c)
{
    const utf8proc_category_t k = utf8proc_category(c);
    return k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO;
}

enum { ALPHA, ALNUM, ASCII, DIGIT, SPACE };

static bool is_of(int32_t c, int kind)
{
    char bytes[4];
    switch (kind) {
    case ALPHA: return is_letter(c);
    case ALNUM: return is_letter(c) || is_number(c);
    case ASCII: return c < 0x80;
    case DIGIT:
        return utf8proc_category(c) == UTF8PROC_CATEGORY_ND ||
               SHEAF__IN_RANGES(digits, (uint32_t)c);
    default: return sheaf__utf8_blank(bytes, sheaf__unicode_put(bytes, (uint32_t)c)) > 0;
    }
}

/* Of an empty string only isascii is true. */
static sheaf__jvalue m_is(sheaf__jcall *c)
{
    const sheaf__jtext of = c->of.u.text;
    bool yes = of.size > 0 || c->how == ASCII;
    for (size_t at = 0; at < of.size && yes;)
        yes = is_of(sheaf__j_next(of, &at), c->how);
    return sheaf__j_bool(yes);
}

/* islower, isupper: some letter has the case, and none has another one. */
static sheaf__jvalue m_is_cased(sheaf__jcall *c)
{
    const sheaf__jtext of = c->of.u.text;
    bool some = false, yes = true;
    for (size_t at = 0; at < of.size && yes;) {
        const sheaf__jcased is = sheaf__j_cased(sheaf__j_next(of, &at));
        yes = is == SHEAF__J_UNCASED || is == (sheaf__jcased)c->how;
        some |= is != SHEAF__J_UNCASED;
    }
    return sheaf__j_bool(yes && some);
}

/* ---- format ---- */

static sheaf__jvalue m_format(sheaf__jcall *c)
{
    return sheaf__j_fill_in(c->j, c->of.u.text, c->args);
}
const sheaf__jbuiltin sheaf__j_text_methods[] = {
    { "strip", ".chars", m_strip, LEFT | RIGHT, SHEAF__J_TEXT, true },
    { "lstrip", ".chars", m_strip, LEFT, SHEAF__J_TEXT, true },
    { "rstrip", ".chars", m_strip, RIGHT, SHEAF__J_TEXT, true },
    { "startswith", ".prefix! .start .end", m_startswith, false, SHEAF__J_TEXT },
    { "endswith", ".suffix! .start .end", m_startswith, true, SHEAF__J_TEXT },
    { "split", "sep maxsplit", m_split, 0, SHEAF__J_TEXT, true },
    { "rsplit", "sep maxsplit", m_rsplit, 0, SHEAF__J_TEXT, true },
    { "splitlines", "keepends", m_splitlines, 0, SHEAF__J_TEXT, true },
    { "partition", ".sep!", m_partition, false, SHEAF__J_TEXT, true },
    { "rpartition", ".sep!", m_partition, true, SHEAF__J_TEXT, true },
    { "upper", "", m_case, 'u', SHEAF__J_TEXT, true },
    { "lower", "", m_case, 'l', SHEAF__J_TEXT, true },
    { "title", "", m_case, 't', SHEAF__J_TEXT, true },
    { "capitalize", "", m_case, 'c', SHEAF__J_TEXT, true },
    { "replace", ".old! .new! .count", m_replace, 0, SHEAF__J_TEXT, true },
    { "find", ".sub! .start .end", m_find, 0, SHEAF__J_TEXT, true },
    { "rfind", ".sub! .start .end", m_find, LAST, SHEAF__J_TEXT, true },
    { "index", ".sub! .start .end", m_find, MUST, SHEAF__J_TEXT, true },
    { "rindex", ".sub! .start .end", m_find, LAST | MUST, SHEAF__J_TEXT, true },
    { "count", ".sub! .start .end", m_count, 0, SHEAF__J_TEXT, true },
    { "join", ".iterable!", m_join, 0, SHEAF__J_TEXT },
    { "removeprefix", ".prefix!", m_remove, false, SHEAF__J_TEXT },
    { "removesuffix", ".suffix!", m_remove, true, SHEAF__J_TEXT },
    { "format", "*", m_format, 0, SHEAF__J_TEXT, true },
    { "isalpha", "", m_is, ALPHA, SHEAF__J_TEXT, true },
    { "isalnum", "", m_is, ALNUM, SHEAF__J_TEXT, true },
    { "isascii", "", m_is, ASCII, SHEAF__J_TEXT, true },
    { "isdigit", "", m_is, DIGIT, SHEAF__J_TEXT, true },
    { "isspace", "", m_is, SPACE, SHEAF__J_TEXT, true },
    { "islower", "", m_is_cased, SHEAF__J_LOWER, SHEAF__J_TEXT, true },
    { "isupper", "", m_is_cased, SHEAF__J_UPPER, SHEAF__J_TEXT, true },
    { NULL },
};
