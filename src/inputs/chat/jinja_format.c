/* jinja_format.c - values as text by a format: '%5.1f' % x and '{:>5.1f}'.format(x), as Python has
 * them. Both describe a field by the same properties, so one writer serves them. */
#include "inputs/chat/jinja_core.h"

#include <math.h>

#include "base/base.h"
#include "inputs/tokenizer/unicode.h"

/* [[fill]align][sign][#][0][width][,][.precision][type] */
typedef struct field {
    sheaf__jtext fill;
    char align; /* '<' '>' '^' '='; '\0': the kind's own */
    char sign;  /* '+', ' ' or '-': of negative numbers only; '\0': that too */
    bool alternate;
    char group;               /* ',' or '_' between groups of digits, or '\0' */
    int64_t width, precision; /* precision -1: none */
    char type;                /* '\0': none */
} field;

static void put(sheaf__j *j, sheaf__jbuffer *b, sheaf__jtext text)
{
    sheaf__j_put(j, b, text.at, text.size);
}

/* ---- writing ---- */

/* `lead`: a sign and a prefix, behind which '=' puts the fill. */
static void put_filled(sheaf__j *j, sheaf__jbuffer *b, const field *f, sheaf__jtext lead,
                       sheaf__jtext text, char align)
{
    const int64_t size = (int64_t)(sheaf__j_characters(lead) + sheaf__j_characters(text));
    const int64_t more = f->width > size ? f->width - size : 0;
    align = f->align != '\0' ? f->align : align;
    const int64_t left = align == '<' ? 0 : align == '^' ? more / 2 : more;
    if (align == '=')
        put(j, b, lead);
    for (int64_t i = 0; i <= more; i++) {
        sheaf__j_work(j, 1);
        if (i == left) {
            put(j, b, align == '=' ? SHEAF__J_WORD("") : lead);
            put(j, b, text);
        }
        if (i < more)
            put(j, b, f->fill);
    }
}

/* Marks between groups of `each` digits, of those in front of a point or an exponent. */
static sheaf__jtext grouped(sheaf__j *j, sheaf__jtext digits, char mark, size_t each)
{
    sheaf__jbuffer b = { 0 };
    size_t n = 0;
    while (n < digits.size && sheaf__hex_digit(digits.at[n]) >= 0 && digits.at[n] != 'e')
        n++;
    for (size_t i = 0; i < digits.size; i++) {
        if (mark != '\0' && i > 0 && i < n && (n - i) % each == 0)
            sheaf__j_put(j, &b, &mark, 1);
        sheaf__j_put(j, &b, digits.at + i, 1);
    }
    return sheaf__j_buffer_text(&b).u.text;
}

static void put_number(sheaf__j *j, sheaf__jbuffer *b, const field *f, bool negative,
                       const char *prefix, sheaf__jtext digits, size_t each)
{
    char lead[4];
    snprintf(lead, sizeof lead, "%s%s",
             negative         ? "-"
             : f->sign == '+' ? "+"
             : f->sign == ' ' ? " "
                              : "",
             prefix);
    if (f->group != '\0' && f->align == '=' && sheaf__j_is(f->fill, "0") && f->width > 0)
        sheaf__j_refuse(j, "groups of digits beside leading zeros");
    put_filled(j, b, f, (sheaf__jtext){ lead, strlen(lead) }, grouped(j, digits, f->group, each),
               '>');
}

/* d, b, o, x, X; `precision`: least digits, as % has it. */
static void put_whole(sheaf__j *j, sheaf__jbuffer *b, const field *f, int64_t whole, char type)
{
    const unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : (type | 0x20) == 'x' ? 16 : 10;
    const char *letters = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    const char prefix[3] = { '0', type, '\0' };
    enum { MOST = 1024 };
    char digits[MOST];
    size_t at = sizeof digits;
    uint64_t rest = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
    if (f->precision > MOST - 1)
        sheaf__j_refuse(j, "a precision of more than %d", MOST - 1);
    do
        digits[--at] = letters[rest % base];
    while ((rest /= base) > 0);
    while (f->precision > 0 && sizeof digits - at < (size_t)f->precision)
        digits[--at] = '0';
    put_number(j, b, f, whole < 0, f->alternate && base != 10 ? prefix : "",
               (sheaf__jtext){ digits + at, sizeof digits - at }, base == 10 ? 3 : 4);
}

/* Without the zeros at the end of a fraction; `least`: digits of it that stay. */
static void cut_zeros(char *text, size_t least)
{
    char *point = strchr(text, '.'), *exponent = strchr(text, 'e');
    char *end = exponent != NULL ? exponent : text + strlen(text), *from = end;
    if (point == NULL)
        return;
    while (from > point + 1 + least && from[-1] == '0')
        from--;
    if (from == point + 1)
        from--;
    memmove(from, end, strlen(end) + 1);
}

enum { REAL = 1400, DIGITS = 400 };

/* Shortest with a precision, as format() has it without a type. */
static void write_short(char out[REAL], double x, int precision)
{
    snprintf(out, REAL, "%.*e", precision - 1, x);
    const int exponent = atoi(strchr(out, 'e') + 1);
    if (exponent < -4 || exponent >= precision - 1) {
        cut_zeros(out, 0);
        return;
    }
    snprintf(out, REAL, "%.*f", precision - 1 - exponent > 0 ? precision - 1 - exponent : 1, x);
    cut_zeros(out, 1);
}

static void put_real(sheaf__j *j, sheaf__jbuffer *b, const field *f, double real)
{
    const char kind = (char)(f->type | 0x20);
    const bool large = f->type == 'E' || f->type == 'F' || f->type == 'G';
    const double x = fabs(real);
    char out[REAL];
    sheaf__jbuffer shown = { 0 };
    int digits = f->precision < 0 ? 6 : f->precision > DIGITS ? -1 : (int)f->precision;
    if (digits < 0)
        sheaf__j_refuse(j, "a precision of more than %d", DIGITS);
    if (f->type == '\0' && f->precision < 0) {
        sheaf__j_put_float(j, &shown, x);
        snprintf(out, sizeof out, "%.*s", (int)shown.size, shown.at);
    } else if (x != x || isinf(x)) {
        snprintf(out, sizeof out, "%s", x != x ? "nan" : "inf");
    } else if (f->type == '\0') {
        write_short(out, x, digits > 0 ? digits : 1);
    } else if (f->type == '%') {
        snprintf(out, sizeof out, "%.*f", digits, x * 100);
    } else if (kind == 'g') {
        snprintf(out, sizeof out, f->alternate ? "%#.*g" : "%.*g", digits, x);
    } else {
        snprintf(out, sizeof out,
                 kind == 'e'    ? f->alternate ? "%#.*e" : "%.*e"
                 : f->alternate ? "%#.*f"
                                : "%.*f",
                 digits, x);
    }
    for (char *p = out; large && *p != '\0'; p++)
        *p = (char)(*p >= 'a' && *p <= 'z' ? *p - 0x20 : *p);
    if (f->type == '%')
        snprintf(out + strlen(out), sizeof out - strlen(out), "%%");
    put_number(j, b, f, signbit(real) && real == real, "", (sheaf__jtext){ out, strlen(out) }, 3);
}

static void put_text(sheaf__j *j, sheaf__jbuffer *b, const field *f, sheaf__jtext text, char align)
{
    const sheaf__jvalue bounds[3] = { sheaf__j_none(), sheaf__j_int(f->precision),
                                      sheaf__j_none() };
    if (f->precision >= 0)
        text = sheaf__j_slice(j, sheaf__j_text(text.at, text.size), bounds).u.text;
    put_filled(j, b, f, SHEAF__J_WORD(""), text, align);
}

static void put_letter(sheaf__j *j, sheaf__jbuffer *b, const field *f, int64_t code, char align)
{
    char bytes[4];
    if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000))
        sheaf__j_raise(j, "%%c arg not in range(0x110000)");
    const sheaf__jtext text = { bytes, sheaf__unicode_put(bytes, (uint32_t)code) };
    put_filled(j, b, f, SHEAF__J_WORD(""), text, align);
}

/* ---- specifications ---- */

const char *sheaf__j_read_digits(sheaf__j *j, int64_t *out, const char *p, const char *end)
{
    for (*out = 0; p < end && *p >= '0' && *p <= '9'; p++)
        if ((*out = *out * 10 + (*p - '0')) > INT32_MAX)
            sheaf__j_raise(j, "Too many decimal digits in format string");
    return p;
}

static field read_specification(sheaf__j *j, sheaf__jtext text, bool number)
{
    field f = { .fill = SHEAF__J_WORD(" "), .precision = -1 };
    const char *p = text.at, *const end = text.at + text.size;
    const size_t n = p < end ? sheaf__j_character(p, text.size) : 0;
    static const char aligns[] = "<>=^";
    if (n < text.size && n > 0 && memchr(aligns, p[n], 4) != NULL) {
        f.fill = (sheaf__jtext){ p, n };
        f.align = p[n];
        p += n + 1;
    } else if (n > 0 && memchr(aligns, *p, 4) != NULL) {
        f.align = *p++;
    }
    const bool filled = p - text.at > 1;
    if (p < end && (*p == '+' || *p == '-' || *p == ' '))
        f.sign = *p++;
    if (p < end && *p == 'z')
        sheaf__j_refuse(j, "the option z of a format");
    if (p < end && *p == '#')
        f.alternate = *p++ == '#';
    if (p < end && *p == '0' && !filled) {
        f.fill = SHEAF__J_WORD("0");
        if (f.align == '\0' && number)
            f.align = '=';
    }
    p = sheaf__j_read_digits(j, &f.width, p, end);
    if (p < end && (*p == ',' || *p == '_'))
        f.group = *p++;
    if (p < end && *p == '.') {
        const char *from = ++p;
        p = sheaf__j_read_digits(j, &f.precision, p, end);
        if (p == from)
            sheaf__j_raise(j, "Format specifier missing precision");
    }
    if (p < end)
        f.type = *p++;
    if (p < end)
        sheaf__j_raise(j, "Invalid format specifier");
    return f;
}

void sheaf__j_put_formatted(sheaf__j *j, sheaf__jbuffer *b, sheaf__jvalue v,
                            sheaf__jtext specification)
{
    if (specification.size == 0) {
        put(j, b, sheaf__j_str(j, v));
        return;
    }
    const bool number = sheaf__j_is_number(v);
    field f = read_specification(j, specification, number);
    if (!number && v.kind != SHEAF__J_TEXT)
        sheaf__j_raise(j, "unsupported format string passed to %s.__format__", sheaf__j_kind(v));
    const bool whole = number && v.kind != SHEAF__J_FLOAT;
    if (f.type == 'n')
        f.type = whole ? 'd' : 'g';
    const char *types = whole ? "bcdoxXeEfFgG%" : number ? "eEfFgG%" : "s";
    if (f.type != '\0' && strchr(types, f.type) == NULL)
        sheaf__j_raise(j, "Unknown format code '%c' for object of type '%s'",
                       f.type >= ' ' && f.type < 0x7f ? f.type : '?', sheaf__j_kind(v));
    if (!number && (f.sign != '\0' || f.alternate || f.group != '\0' || f.align == '='))
        sheaf__j_raise(j, "a sign, '#', ',' or '=' not allowed in string format specifier");
    const bool as_whole = whole && (f.type == '\0' || strchr("bcdoxX", f.type) != NULL);
    if (as_whole && f.precision >= 0)
        sheaf__j_raise(j, "Precision not allowed in integer format specifier");
    if (as_whole && f.group == ',' && f.type != '\0' && f.type != 'd')
        sheaf__j_raise(j, "Cannot specify ',' with '%c'.", f.type);
    if (as_whole && f.type == 'c' && (f.alternate || f.sign != '\0'))
        sheaf__j_raise(j, "Sign not allowed with integer format specifier 'c'");
    if (!number)
        put_text(j, b, &f, v.u.text, '<');
    else if (as_whole && f.type == 'c')
        put_letter(j, b, &f, sheaf__j_whole(v), '<');
    else if (as_whole)
        put_whole(j, b, &f, sheaf__j_whole(v), f.type == '\0' ? 'd' : f.type);
    else
        put_real(j, b, &f, sheaf__j_real(v));
}

sheaf__jtext sheaf__j_converted(sheaf__j *j, sheaf__jvalue v, char how)
{
    const sheaf__jtext text = how == 's' ? sheaf__j_str(j, v) : sheaf__j_repr(j, v);
    for (size_t i = 0; how == 'a' && i < text.size; i++)
        if ((unsigned char)text.at[i] >= 0x80)
            sheaf__j_refuse(j, "ascii() of a text beyond ASCII");
    return text;
}

/* ---- 'format' % arguments ---- */

typedef struct percent {
    sheaf__j *j;
    sheaf__jvalue args;
    size_t used;
} percent;

static sheaf__jvalue next_argument(percent *c)
{
    const bool tuple = c->args.kind == SHEAF__J_TUPLE;
    if (c->used >= (tuple ? c->args.u.list->count : 1))
        sheaf__j_raise(c->j, "not enough arguments for format string");
    return tuple ? c->args.u.list->at[c->used++] : (c->used++, c->args);
}

static void put_argument(percent *c, sheaf__jbuffer *b, field *f, bool left, bool zero,
                         sheaf__jvalue v)
{
    const bool number = sheaf__j_is_number(v), text = strchr("sra", f->type) != NULL;
    f->align = left ? '<' : zero && !text && f->type != 'c' ? '=' : '>';
    if (f->align == '=')
        f->fill = SHEAF__J_WORD("0");
    if (text) {
        const sheaf__jtext shown = sheaf__j_converted(c->j, v, f->type);
        put_text(c->j, b, f, shown, '>');
        return;
    }
    if (f->type == 'c' && v.kind == SHEAF__J_TEXT && sheaf__j_characters(v.u.text) == 1) {
        put_filled(c->j, b, f, SHEAF__J_WORD(""), v.u.text, '>');
        return;
    }
    sheaf__j_defined(c->j, v);
    if (!number || (v.kind == SHEAF__J_FLOAT && strchr("xXoc", f->type) != NULL))
        sheaf__j_raise(c->j, "%%%c format: a number is required, not %s", f->type,
                       sheaf__j_kind(v));
    if (f->type == 'c') {
        put_letter(c->j, b, f, sheaf__j_whole(v), '>');
    } else if (strchr("diuxXo", f->type) != NULL) {
        const double real = v.kind == SHEAF__J_FLOAT ? v.u.real : 0;
        if (real != real || isinf(real))
            sheaf__j_raise(c->j, "cannot convert float to integer");
        if (fabs(real) >= 9e18)
            sheaf__j_refuse(c->j, "a number beyond 64 bits");
        put_whole(c->j, b, f, v.kind == SHEAF__J_FLOAT ? (int64_t)real : sheaf__j_whole(v),
                  strchr("diu", f->type) != NULL ? 'd' : f->type);
    } else {
        if (isinf(sheaf__j_real(v)) || sheaf__j_real(v) != sheaf__j_real(v))
            f->fill = SHEAF__J_WORD(" "), f->align = left ? '<' : '>';
        put_real(c->j, b, f, sheaf__j_real(v));
    }
}

/* From behind "%" on; returns what stands behind the type. */
static const char *put_percent(percent *c, sheaf__jbuffer *b, const char *p, const char *end)
{
    field f = { .fill = SHEAF__J_WORD(" "), .precision = -1 };
    const sheaf__jvalue *named = NULL;
    bool left = false, zero = false;
    if (p < end && *p == '(') {
        const char *from = ++p;
        int open = 1;
        while (p < end && (open += (*p == '(') - (*p == ')')) > 0)
            p++;
        if (c->args.kind != SHEAF__J_DICT)
            sheaf__j_raise(c->j, "format requires a mapping");
        if (p == end)
            sheaf__j_raise(c->j, "incomplete format key");
        named = sheaf__j_get(c->j, c->args.u.dict, sheaf__j_text(from, (size_t)(p - from)));
        if (named == NULL)
            sheaf__j_raise(c->j, "KeyError: '%.*s'", (int)(p - from), from);
        p++;
    }
    for (; p < end && memchr("-+ #0", *p, 5) != NULL; p++) {
        left |= *p == '-';
        zero |= *p == '0';
        f.alternate |= *p == '#';
        f.sign = *p == '+' || (*p == ' ' && f.sign == '\0') ? *p : f.sign;
    }
    for (int k = 0; k < 2; k++) { /* width, .precision */
        int64_t *to = k == 0 ? &f.width : &f.precision;
        if (k == 1 && (p == end || *p != '.'))
            break;
        p += k;
        if (p < end && *p == '*') {
            const sheaf__jvalue v = next_argument(c);
            *to = sheaf__j_int_argument(c->j, &v, 0);
            left |= k == 0 && *to < 0;
            *to = *to < 0 ? (k == 0 ? -*to : 0) : *to;
            p++;
        } else {
            p = sheaf__j_read_digits(c->j, to, p, end);
        }
    }
    if (p < end && strchr("hlL", *p) != NULL)
        p++;
    if (p == end)
        sheaf__j_raise(c->j, "incomplete format");
    f.type = *p;
    if (f.type == '%') {
        sheaf__j_put(c->j, b, "%", 1);
        return p + 1;
    }
    if (f.type == '\0' || strchr("diuxXoeEfFgGcsra", f.type) == NULL)
        sheaf__j_raise(c->j, "unsupported format character '%c'",
                       f.type >= ' ' && f.type < 0x7f ? f.type : '?');
    put_argument(c, b, &f, left, zero, named != NULL ? *named : next_argument(c));
    return p + 1;
}

sheaf__jvalue sheaf__j_percent(sheaf__j *j, sheaf__jtext format, sheaf__jvalue args)
{
    percent c = { .j = j, .args = args };
    sheaf__jbuffer b = { 0 };
    const char *p = format.at, *const end = format.at + format.size;
    while (p < end) {
        const char *from = p;
        while (p < end && *p != '%')
            p++;
        sheaf__j_put(j, &b, from, (size_t)(p - from));
        sheaf__j_work(j, 1);
        if (p < end)
            p = put_percent(&c, &b, p + 1, end);
    }
    /* one argument that is a dict, or a list, need not be used */
    if (args.kind == SHEAF__J_TUPLE
            ? c.used < args.u.list->count
            : c.used == 0 && args.kind != SHEAF__J_DICT && args.kind != SHEAF__J_LIST)
        sheaf__j_raise(j, "not all arguments converted during string formatting");
    return sheaf__j_buffer_text(&b);
}
