/* jinja_scalar.c - filters of texts and numbers, `x|trim`. */
#include <ctype.h>
#include <errno.h>
#include <math.h>

#include "base/base.h"
#include "inputs/chat/jinja_core.h"

/* ---- text ---- */

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
/* Markup gives Markup. */
static sheaf__jvalue like(const sheaf__jcall *c, sheaf__jvalue v)
{
    v.form = c->of.form == SHEAF__J_MARKUP ? SHEAF__J_MARKUP : SHEAF__J_PLAIN;
    return v;
}
static sheaf__jvalue f_string(sheaf__jcall *c)
{
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    return like(c, sheaf__j_text(text.at, text.size));
}
static sheaf__jvalue f_safe(sheaf__jcall *c)
{
    sheaf__jvalue v = f_string(c);
    v.form = SHEAF__J_MARKUP;
    return v;
}
static sheaf__jvalue f_trim(sheaf__jcall *c)
{
    return like(c, sheaf__j_strip(c->j, sheaf__j_str(c->j, c->of), c->at[0], true, true));
}
static sheaf__jvalue f_case(sheaf__jcall *c)
{
    sheaf__j_read(c->j, f_string(c));
    return like(c, sheaf__j_case(c->j, sheaf__j_str(c->j, c->of), (char)c->how));
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
    const bool first = sheaf__j_bool_argument(c->at[1]);
    const bool blank = sheaf__j_bool_argument(c->at[2]);
    sheaf__jbuffer b = { 0 }, before = { 0 };
    if (width != NULL && width->kind == SHEAF__J_TEXT)
        sheaf__j_put(c->j, &before, width->u.text.at, width->u.text.size);
    else
        for (int64_t i = sheaf__j_int_argument(c->j, width, 4); i > 0; i--)
            sheaf__j_put(c->j, &before, " ", 1);
    sheaf__j_text_argument(c->j, &c->of, SHEAF__J_WORD(""));
    sheaf__jtext rest = c->of.u.text;
    for (size_t end, n = 0;; n++) {
        const sheaf__jtext line = sheaf__j_line(&rest, &end);
        sheaf__j_put(c->j, &b, "\n", n > 0);
        if (n == 0 ? first : blank || line.size > 0)
            sheaf__j_put(c->j, &b, before.at, before.size);
        sheaf__j_put(c->j, &b, line.at, line.size);
        if (end == 0)
            return like(c, sheaf__j_buffer_text(&b));
    }
}

static sheaf__jvalue f_format(sheaf__jcall *c)
{
    sheaf__jvalue args = sheaf__j_as(SHEAF__J_TUPLE, sheaf__j_list(c->j).u.list);
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    if (c->of.form == SHEAF__J_MARKUP || c->args->named.keys.count > 0)
        sheaf__j_refuse(c->j, "format with names, or of a text that the filter safe has made");
    *args.u.list = c->args->at;
    return sheaf__j_percent(c->j, text, args);
}

/* ---- numbers ---- */

/* The whole of a text as a decimal number; false: it is none. Infinities and "nan" are no whole
 * ones. */
static bool read_number(sheaf__j *j, sheaf__jtext text, double *real, int64_t *whole,
                        bool *is_whole)
{
    char shown[64], *end;
    size_t n = 0;
    sheaf__utf8_strip(&text.at, &text.size);
    *is_whole = false;
    if (text.size == 0)
        return false;
    for (size_t i = 0; i < text.size; i++) {
        const bool between = i > 0 && i + 1 < text.size && isdigit((unsigned char)text.at[i - 1]) &&
                             isdigit((unsigned char)text.at[i + 1]);
        if ((unsigned char)text.at[i] >= 0x80 || n + 1 == sizeof shown)
            sheaf__j_refuse(j, "such a text as a number");
        if (text.at[i] == '_' && !between)
            return false;
        if (text.at[i] != '_')
            shown[n++] = text.at[i];
    }
    shown[n] = '\0';
    const char *word = shown + (*shown == '+' || *shown == '-');
    if (strspn(shown, "+-.0123456789eE") != n && strcasecmp(word, "nan") != 0 &&
        strcasecmp(word, "inf") != 0 && strcasecmp(word, "infinity") != 0)
        return false;
    errno = 0;
    *whole = strtoll(shown, &end, 10);
    *is_whole = *end == '\0' && end != shown && errno == 0;
    *real = strtod(shown, &end);
    return *end == '\0';
}

static sheaf__jvalue f_int(sheaf__jcall *c)
{
    const sheaf__jvalue of = c->of, absent = c->at[0] != NULL ? *c->at[0] : sheaf__j_int(0);
    double real = of.kind == SHEAF__J_FLOAT ? of.u.real : 0;
    int64_t whole = 0;
    bool is_whole = false;
    sheaf__j_defined(c->j, of);
    if (sheaf__j_int_argument(c->j, c->at[1], 10) != 10)
        sheaf__j_refuse(c->j, "int of another base than 10");
    if (of.kind == SHEAF__J_INT || of.kind == SHEAF__J_BOOL)
        return sheaf__j_int(sheaf__j_whole(of));
    if (of.kind != SHEAF__J_FLOAT &&
        (of.kind != SHEAF__J_TEXT || !read_number(c->j, of.u.text, &real, &whole, &is_whole)))
        return absent;
    if (!is_whole && isinf(real) && of.kind == SHEAF__J_FLOAT)
        sheaf__j_raise(c->j, "cannot convert float infinity to integer");
    if (!is_whole && (real != real || isinf(real)))
        return absent;
    if (!is_whole && !(fabs(real) < 9e18))
        sheaf__j_refuse(c->j, "a number beyond 64 bits");
    return sheaf__j_int(is_whole ? whole : (int64_t)real);
}

static bool as_real(sheaf__j *j, sheaf__jvalue v, double *real)
{
    int64_t whole;
    bool is_whole;
    sheaf__j_defined(j, v);
    if (sheaf__j_is_number(v))
        *real = sheaf__j_real(v);
    return sheaf__j_is_number(v) ||
           (v.kind == SHEAF__J_TEXT && read_number(j, v.u.text, real, &whole, &is_whole));
}
static sheaf__jvalue f_float(sheaf__jcall *c)
{
    double real;
    return as_real(c->j, c->of, &real) ? sheaf__j_float(real)
           : c->at[0] != NULL          ? *c->at[0]
                                       : sheaf__j_float(0);
}

static sheaf__jvalue f_abs(sheaf__jcall *c)
{
    const sheaf__jvalue zero = sheaf__j_int(0);
    sheaf__j_defined(c->j, c->of);
    if (!sheaf__j_is_number(c->of))
        sheaf__j_raise(c->j, "bad operand type for abs(): '%s'", sheaf__j_kind(c->of));
    if (c->of.kind == SHEAF__J_FLOAT)
        return sheaf__j_float(fabs(c->of.u.real));
    return sheaf__j_whole(c->of) < 0 ? sheaf__j_binary(c->j, SHEAF__J_WORD("-"), zero, c->of)
                                     : sheaf__j_int(sheaf__j_whole(c->of));
}

static sheaf__jvalue f_round(sheaf__jcall *c)
{
    enum { MOST = 300 };
    char shown[2 * MOST + 64];
    const int64_t n = sheaf__j_int_argument(c->j, c->at[0], 0);
    sheaf__j_defined(c->j, c->of);
    if (!sheaf__j_is(sheaf__j_text_argument(c->j, c->at[1], SHEAF__J_WORD("common")), "common") ||
        n > MOST || n < 0)
        sheaf__j_refuse(c->j, "round by such a method, or to so many digits");
    if (!sheaf__j_is_number(c->of))
        sheaf__j_raise(c->j, "type %s doesn't define __round__ method", sheaf__j_kind(c->of));
    const double x = sheaf__j_real(c->of);
    if (c->of.kind != SHEAF__J_FLOAT)
        return sheaf__j_int(sheaf__j_whole(c->of));
    if (x - x != 0)
        return c->of;
    snprintf(shown, sizeof shown, "%.*f", (int)n, x); /* exact, as Python's round() */
    return sheaf__j_float(strtod(shown, NULL));
}

const sheaf__jbuiltin sheaf__j_scalar_filters[] = {
    { "trim", "chars", f_trim, .reads = true },
    { "title", "", f_title, .reads = true },
    { "string", "", f_string },
    { "safe", "", f_safe },
    { "upper", "", f_case, 'u' },
    { "lower", "", f_case, 'l' },
    { "capitalize", "", f_case, 'c' },
    { "replace", "old! new! count", f_replace, .reads = true },
    { "indent", "width first blank", f_indent, .reads = true },
    { "format", "*", f_format, .reads = true },
    { "int", "default base", f_int, .reads = true },
    { "float", "default", f_float, .reads = true },
    { "abs", "", f_abs },
    { "round", "precision method", f_round },
    { NULL },
};
