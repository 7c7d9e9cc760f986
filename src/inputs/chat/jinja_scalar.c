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
/* What Markup was stays it. */
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
/* escape; forceescape: also what is Markup */
static sheaf__jvalue f_escape(sheaf__jcall *c)
{
    if (c->how && c->of.form == SHEAF__J_MARKUP)
        c->of.form = SHEAF__J_PLAIN;
    return sheaf__j_escape(c->j, c->of);
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
    const bool first = sheaf__j_bool_argument(c->at[1], false);
    const bool blank = sheaf__j_bool_argument(c->at[2], false);
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

static sheaf__jvalue f_center(sheaf__jcall *c)
{
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    sheaf__jarguments args = { { 0 }, { { 0 }, { 0 } } };
    sheaf__j_append(c->j, &args.at, c->at[0] != NULL ? *c->at[0] : sheaf__j_int(80));
    return like(c, sheaf__j_call_method(c->r, sheaf__j_text(text.at, text.size),
                                        SHEAF__J_WORD("center"), &args));
}

static sheaf__jvalue f_format(sheaf__jcall *c)
{
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    sheaf__jvalue args = sheaf__j_dict(c->j);
    *args.u.dict = c->args->named;
    if (c->of.form == SHEAF__J_MARKUP)
        sheaf__j_refuse(c->j, "format of a text that the filter safe has made Markup");
    if (c->args->at.count > 0 && c->args->named.keys.count > 0)
        sheaf__j_raise(c->j, "can't handle positional and keyword arguments at the same time");
    if (c->args->named.keys.count == 0) {
        args = sheaf__j_list(c->j);
        args.kind = SHEAF__J_TUPLE;
        *args.u.list = c->args->at;
    }
    return sheaf__j_percent(c->j, text, args);
}

static sheaf__jvalue f_truncate(sheaf__jcall *c)
{
    const sheaf__jtext end = sheaf__j_text_argument(c->j, c->at[2], SHEAF__J_WORD("..."));
    const bool none = c->at[3] == NULL || c->at[3]->kind == SHEAF__J_NONE;
    const int64_t length = sheaf__j_int_argument(c->j, c->at[0], 255),
                  leeway = none ? 5 : sheaf__j_int_argument(c->j, c->at[3], 5),
                  marks = (int64_t)sheaf__j_characters(end);
    sheaf__jbuffer b = { 0 };
    if (length < marks || leeway < 0)
        sheaf__j_raise(c->j, "expected a length of at least %" PRId64, marks);
    const size_t size = c->of.kind == SHEAF__J_TEXT ? sheaf__j_characters(c->of.u.text)
                                                    : sheaf__j_items(c->j, c->of).count;
    if (c->of.kind == SHEAF__J_GENERATOR)
        sheaf__j_raise(c->j, "object of type 'generator' has no len()");
    if ((int64_t)size <= length + leeway)
        return c->of;
    sheaf__j_text_argument(c->j, &c->of, SHEAF__J_WORD(""));
    const sheaf__jvalue bounds[3] = { sheaf__j_none(), sheaf__j_int(length - marks),
                                      sheaf__j_none() };
    sheaf__jtext part = sheaf__j_slice(c->j, c->of, bounds).u.text;
    const char *blank = part.size == 0 ? NULL : memrchr(part.at, ' ', part.size);
    if (blank != NULL && !sheaf__j_bool_argument(c->at[1], false))
        part.size = (size_t)(blank - part.at);
    const sheaf__jtext mark = c->of.form == SHEAF__J_MARKUP
                                  ? sheaf__j_escape(c->j, sheaf__j_text(end.at, end.size)).u.text
                                  : end;
    sheaf__j_put(c->j, &b, part.at, part.size);
    sheaf__j_put(c->j, &b, mark.at, mark.size);
    return like(c, sheaf__j_buffer_text(&b));
}

static sheaf__jvalue f_wordcount(sheaf__jcall *c)
{
    const sheaf__jtext text = sheaf__j_str(c->j, c->of);
    int64_t n = 0;
    bool inside = false;
    sheaf__j_work(c->j, text.size / 4);
    for (size_t at = 0; at < text.size;) {
        const bool word = sheaf__j_is_word(sheaf__j_next(text, &at));
        n += word && !inside;
        inside = word;
    }
    return sheaf__j_int(n);
}

/* ---- for other languages ---- */

static void put_quoted(sheaf__j *j, sheaf__jbuffer *b, sheaf__jvalue v, bool query)
{
    const sheaf__jtext text = sheaf__j_str(j, v);
    sheaf__j_work(j, text.size / 8);
    for (size_t i = 0; i < text.size; i++) {
        const unsigned char byte = (unsigned char)text.at[i];
        char code[4];
        snprintf(code, sizeof code, "%%%02X", byte);
        if (isalnum(byte) || (byte != '\0' && strchr(query ? "_.-~" : "_.-~/", byte) != NULL))
            sheaf__j_put(j, b, text.at + i, 1);
        else if (query && byte == ' ')
            sheaf__j_put_for(j, b, "+", 1, text.at + i);
        else
            sheaf__j_put_for(j, b, code, 3, text.at + i);
    }
}

static sheaf__jvalue f_urlencode(sheaf__jcall *c)
{
    sheaf__jbuffer b = { 0 };
    if (c->of.kind < SHEAF__J_LIST && c->of.kind != SHEAF__J_UNDEFINED) {
        put_quoted(c->j, &b, c->of, false);
        return sheaf__j_buffer_text(&b);
    }
    const sheaf__jlist pairs = sheaf__j_items(
        c->j, c->of.kind == SHEAF__J_DICT ? sheaf__j_pairs(c->j, c->of.u.dict) : c->of);
    for (size_t i = 0; i < pairs.count; i++) {
        const sheaf__jlist pair = sheaf__j_items(c->j, pairs.at[i]);
        if (pair.count != 2)
            sheaf__j_raise(c->j, "%zu values to unpack, expected 2", pair.count);
        sheaf__j_put(c->j, &b, "&", i > 0);
        put_quoted(c->j, &b, pair.at[0], true);
        sheaf__j_put(c->j, &b, "=", 1);
        put_quoted(c->j, &b, pair.at[1], true);
    }
    return sheaf__j_buffer_text(&b);
}

static sheaf__jvalue f_xmlattr(sheaf__jcall *c)
{
    sheaf__jbuffer b = { 0 };
    const bool blank = sheaf__j_bool_argument(c->at[0], true);
    if (c->of.kind != SHEAF__J_DICT)
        sheaf__j_raise(c->j, "'%s' object has no attribute 'items'", sheaf__j_kind(c->of));
    const sheaf__jdict *dict = c->of.u.dict;
    for (size_t i = 0; i < dict->keys.count; i++) {
        const sheaf__jvalue value = dict->values.at[i];
        if (value.kind == SHEAF__J_NONE || value.kind == SHEAF__J_UNDEFINED)
            continue;
        const sheaf__jtext key = sheaf__j_text_argument(c->j, &dict->keys.at[i], SHEAF__J_WORD(""));
        for (size_t k = 0; k < key.size; k++)
            if (key.at[k] != '\0' && strchr(" \t\n\r\f\v/>=", key.at[k]) != NULL)
                sheaf__j_raise(c->j, "Invalid character in attribute name");
        const sheaf__jtext name = sheaf__j_escape(c->j, dict->keys.at[i]).u.text,
                           text = sheaf__j_escape(c->j, value).u.text;
        sheaf__j_put(c->j, &b, " ", blank || b.size > 0);
        sheaf__j_put(c->j, &b, name.at, name.size);
        sheaf__j_put(c->j, &b, "=\"", 2);
        sheaf__j_put(c->j, &b, text.at, text.size);
        sheaf__j_put(c->j, &b, "\"", 1);
    }
    return sheaf__j_buffer_text(&b);
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

/* A whole number of another base: "ff", "0xff"; false: it is none. */
static bool read_in_base(sheaf__j *j, sheaf__jtext text, int64_t base, int64_t *whole)
{
    const char letter = base == 16 ? 'x' : base == 8 ? 'o' : base == 2 ? 'b' : '\0';
    char shown[80], *end;
    sheaf__utf8_strip(&text.at, &text.size);
    if (base < 2 || base > 36 || text.size >= sizeof shown || memchr(text.at, '_', text.size))
        sheaf__j_refuse(j, "such a text as a number of base %" PRId64, base);
    snprintf(shown, sizeof shown, "%.*s", (int)text.size, text.at);
    char *digits = shown + (*shown == '+' || *shown == '-');
    const bool prefix = letter != '\0' && digits[0] == '0' && (digits[1] | 0x20) == letter;
    digits += prefix ? 2 : 0;
    if (!isalnum((unsigned char)*digits))
        return false;
    errno = 0;
    *whole = strtoll(digits, &end, (int)base);
    if (errno == ERANGE)
        sheaf__j_refuse(j, "a number beyond 64 bits");
    *whole = *shown == '-' ? -*whole : *whole;
    return *end == '\0' && strlen(shown) == text.size;
}

static sheaf__jvalue f_int(sheaf__jcall *c)
{
    const sheaf__jvalue of = c->of, absent = c->at[0] != NULL ? *c->at[0] : sheaf__j_int(0);
    double real = of.kind == SHEAF__J_FLOAT ? of.u.real : 0;
    int64_t whole = 0;
    bool is_whole = false;
    sheaf__j_defined(c->j, of);
    const int64_t base = sheaf__j_int_argument(c->j, c->at[1], 10);
    if (of.kind == SHEAF__J_INT || of.kind == SHEAF__J_BOOL)
        return sheaf__j_int(sheaf__j_whole(of));
    if (of.kind == SHEAF__J_TEXT && base != 10 && read_in_base(c->j, of.u.text, base, &whole))
        return sheaf__j_int(whole);
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

/* To a multiple of `unit`, 10 ** n: the nearest, of two as near the even one. fmod() is exact. */
static double nearest(double x, double unit)
{
    const double rest = fmod(fabs(x), unit), down = fabs(x) - rest;
    const bool up = rest > unit / 2 || (rest == unit / 2 && fmod(down / unit, 2) != 0);
    return copysign(up ? down + unit : down, x);
}

static sheaf__jvalue f_round(sheaf__jcall *c)
{
    enum { MOST = 300 };
    char shown[2 * MOST + 64];
    const int64_t n = sheaf__j_int_argument(c->j, c->at[0], 0);
    const sheaf__jtext how = sheaf__j_text_argument(c->j, c->at[1], SHEAF__J_WORD("common"));
    const bool common = sheaf__j_is(how, "common"), up = sheaf__j_is(how, "ceil");
    sheaf__j_defined(c->j, c->of);
    if (!common && !up && !sheaf__j_is(how, "floor"))
        sheaf__j_raise(c->j, "method must be common, ceil or floor");
    if (!sheaf__j_is_number(c->of))
        sheaf__j_raise(c->j, "type %s doesn't define __round__ method", sheaf__j_kind(c->of));
    if (n > MOST || n < -15)
        sheaf__j_refuse(c->j, "round to %" PRId64 " digits", n);
    const double x = sheaf__j_real(c->of), power = pow(10, (double)(n < 0 ? -n : n));
    const bool whole = c->of.kind != SHEAF__J_FLOAT, finite = x - x == 0;
    if (whole && (x > 9e15 || x < -9e15))
        sheaf__j_refuse(c->j, "round of so large a number");
    if (!common && !finite)
        sheaf__j_raise(c->j, "cannot convert float to integer");
    if (!common) {
        const double scaled = n < 0 ? x / power : x * power;
        const double to = up ? ceil(scaled) : floor(scaled);
        return sheaf__j_float((n < 0 ? to * power : to / power) + 0.0);
    }
    if (whole)
        return sheaf__j_int((int64_t)(n < 0 ? nearest(x, power) : x));
    if (!finite)
        return c->of;
    if (n < 0)
        return sheaf__j_float(nearest(x, power));
    snprintf(shown, sizeof shown, "%.*f", (int)n, x); /* exact, as Python's round() */
    return sheaf__j_float(strtod(shown, NULL));
}

static sheaf__jvalue f_filesizeformat(sheaf__jcall *c)
{
    static const char letters[] = "kMGTPEZY";
    const bool binary = sheaf__j_bool_argument(c->at[0], false);
    const double base = binary ? 1024 : 1000;
    double bytes, unit = base;
    char shown[64];
    if (!as_real(c->j, c->of, &bytes))
        sheaf__j_raise(c->j, "could not convert to float");
    if (bytes - bytes != 0)
        sheaf__j_refuse(c->j, "filesizeformat of a number that is not finite");
    if (bytes == 1) {
        snprintf(shown, sizeof shown, "1 Byte");
    } else if (bytes < base) {
        snprintf(shown, sizeof shown, "%.0f Bytes", trunc(bytes) + 0.0);
    } else {
        const char *p = letters;
        for (unit *= base; bytes >= unit && p[1] != '\0'; p++)
            unit *= base;
        snprintf(shown, sizeof shown, "%.1f %c%sB", base * bytes / unit,
                 binary && *p == 'k' ? 'K' : *p, binary ? "i" : "");
    }
    sheaf__jbuffer b = { 0 };
    sheaf__j_put(c->j, &b, shown, strlen(shown));
    return sheaf__j_buffer_text(&b);
}

const sheaf__jbuiltin sheaf__j_scalar_filters[] = {
    { "trim", "chars", f_trim, .reads = true },
    { "title", "", f_title, .reads = true },
    { "string", "", f_string },
    { "safe", "", f_safe },
    { "escape", "", f_escape, false },
    { "e", "", f_escape, false },
    { "forceescape", "", f_escape, true },
    { "upper", "", f_case, 'u' },
    { "lower", "", f_case, 'l' },
    { "capitalize", "", f_case, 'c' },
    { "replace", "old! new! count", f_replace, .reads = true },
    { "indent", "width first blank", f_indent, .reads = true },
    { "center", "width", f_center },
    { "format", "*", f_format, .reads = true },
    { "truncate", "length killwords end leeway", f_truncate, .reads = true },
    { "wordcount", "", f_wordcount },
    { "urlencode", "", f_urlencode, .reads = true },
    { "xmlattr", "autospace", f_xmlattr, .reads = true },
    { "int", "default base", f_int, .reads = true },
    { "float", "default", f_float, .reads = true },
    { "abs", "", f_abs },
    { "round", "precision method", f_round },
    { "filesizeformat", "binary", f_filesizeformat },
    { NULL },
};
