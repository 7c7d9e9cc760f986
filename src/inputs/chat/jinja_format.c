/* jinja_format.c - 'format' % x and '{} {name}'.format(x), as Python has them: '%' with s, d, i, x
 * and f, their width and precision, and "{}" with the number or the name of an argument. Formats
 * that ask for more are refused. */
#include "inputs/chat/jinja_core.h"

#include <math.h>

#include "base/base.h"

static const char *read_digits(sheaf__j *j, int64_t *out, const char *p, const char *end)
{
    for (*out = 0; p < end && *p >= '0' && *p <= '9'; p++)
        if ((*out = *out * 10 + (*p - '0')) > INT32_MAX)
            sheaf__j_raise(j, "Too many decimal digits in format string");
    return p;
}

/* ---- 'format' % arguments ---- */

typedef struct field {
    bool left, zero;
    int64_t width, precision; /* precision -1: none */
    char type;
} field;

static void put_fill(sheaf__j *j, sheaf__jbuffer *b, char fill, int64_t times)
{
    for (; times > 0; times--) {
        sheaf__j_work(j, 1);
        sheaf__j_put(j, b, &fill, 1);
    }
}

/* Zeros stand behind the sign of a number. */
static void put_filled(sheaf__j *j, sheaf__jbuffer *b, const field *f, bool minus,
                       sheaf__jtext text)
{
    const int64_t more = f->width - minus - (int64_t)sheaf__j_characters(text);
    const bool zeros = f->zero && !f->left && f->type != 's';
    put_fill(j, b, ' ', f->left || zeros ? 0 : more);
    sheaf__j_put(j, b, "-", minus);
    put_fill(j, b, '0', zeros ? more : 0);
    sheaf__j_put(j, b, text.at, text.size);
    put_fill(j, b, ' ', f->left ? more : 0);
}

static void put_number(sheaf__j *j, sheaf__jbuffer *b, const field *f, sheaf__jvalue v)
{
    enum { DIGITS = 400, LONGEST = 1000 };
    char shown[LONGEST];
    sheaf__j_defined(j, v);
    if (!sheaf__j_is_number(v) || (v.kind == SHEAF__J_FLOAT && f->type == 'x'))
        sheaf__j_raise(j, "%%%c format: a number is required, not %s", f->type, sheaf__j_kind(v));
    const double real = sheaf__j_real(v);
    if (f->type == 'f' && f->precision > DIGITS)
        sheaf__j_refuse(j, "a precision of more than %d", DIGITS);
    if (f->type != 'f' && f->precision >= 0)
        sheaf__j_refuse(j, "the precision of a whole number");
    if (real - real != 0 || (v.kind == SHEAF__J_FLOAT && f->type != 'f' && !(fabs(real) < 9e18)))
        sheaf__j_refuse(j, "such a number in a format");
    const int64_t whole = v.kind == SHEAF__J_FLOAT && f->type != 'f' ? (int64_t)real
                          : v.kind == SHEAF__J_FLOAT                 ? 0
                                                                     : sheaf__j_whole(v);
    const uint64_t size = whole < 0 ? 0 - (uint64_t)whole : (uint64_t)whole;
    if (f->type == 'f')
        snprintf(shown, sizeof shown, "%.*f", f->precision < 0 ? 6 : (int)f->precision, fabs(real));
    else
        snprintf(shown, sizeof shown, f->type == 'x' ? "%" PRIx64 : "%" PRIu64, size);
    put_filled(j, b, f, f->type == 'f' ? signbit(real) != 0 : whole < 0,
               (sheaf__jtext){ shown, strlen(shown) });
}

static void put_text(sheaf__j *j, sheaf__jbuffer *b, const field *f, sheaf__jtext text)
{
    const sheaf__jvalue bounds[3] = { sheaf__j_none(), sheaf__j_int(f->precision),
                                      sheaf__j_none() };
    if (f->precision >= 0)
        text = sheaf__j_slice(j, sheaf__j_text(text.at, text.size), bounds).u.text;
    put_filled(j, b, f, false, text);
}

/* From behind "%" on; returns what stands behind the type. */
static const char *put_percent(sheaf__j *j, sheaf__jbuffer *b, const sheaf__jlist *args,
                               size_t *used, const char *p, const char *end)
{
    field f = { .precision = -1 };
    if (p < end && *p == '%') {
        sheaf__j_put(j, b, "%", 1);
        return p + 1;
    }
    for (; p < end && (*p == '-' || *p == '0'); p++)
        *(*p == '-' ? &f.left : &f.zero) = true;
    p = read_digits(j, &f.width, p, end);
    if (p < end && *p == '.')
        p = read_digits(j, &f.precision, p + 1, end);
    if (p == end)
        sheaf__j_raise(j, "incomplete format");
    f.type = *p == 'i' ? 'd' : *p;
    if (f.type == '\0' || strchr("sdxf", f.type) == NULL)
        sheaf__j_refuse(j, "the format %%%c", f.type > ' ' && f.type < 0x7f ? f.type : '?');
    if (*used == args->count)
        sheaf__j_raise(j, "not enough arguments for format string");
    const sheaf__jvalue v = args->at[(*used)++];
    if (f.type == 's')
        put_text(j, b, &f, sheaf__j_str(j, v));
    else
        put_number(j, b, &f, v);
    return p + 1;
}

sheaf__jvalue sheaf__j_percent(sheaf__j *j, sheaf__jtext format, sheaf__jvalue args)
{
    const bool tuple = args.kind == SHEAF__J_TUPLE;
    const sheaf__jlist list = tuple ? *args.u.list : (sheaf__jlist){ &args, 1, 1 };
    size_t used = 0;
    sheaf__jbuffer b = { 0 };
    const char *p = format.at, *const end = format.at + format.size;
    while (p < end) {
        const char *from = p;
        while (p < end && *p != '%')
            p++;
        sheaf__j_put(j, &b, from, (size_t)(p - from));
        sheaf__j_work(j, 1);
        if (p < end)
            p = put_percent(j, &b, &list, &used, p + 1, end);
    }
    /* one argument that is a dict, or a list, need not be used */
    if (used < list.count && (tuple || (args.kind != SHEAF__J_DICT && args.kind != SHEAF__J_LIST)))
        sheaf__j_raise(j, "not all arguments converted during string formatting");
    return sheaf__j_buffer_text(&b);
}

/* ---- 'format'.format(arguments) ---- */

typedef struct filler {
    sheaf__j *j;
    const sheaf__jarguments *args;
    int64_t next;  /* of fields without a name */
    bool numbered; /* a field had a number */
} filler;

static sheaf__jvalue argument_of(filler *f, sheaf__jtext name)
{
    int64_t at = 0;
    if (name.size > 0 && (*name.at < '0' || *name.at > '9')) {
        const sheaf__jvalue *v =
            sheaf__j_get(f->j, &f->args->named, sheaf__j_text(name.at, name.size));
        if (v == NULL)
            sheaf__j_raise(f->j, "KeyError: '%.*s'", (int)name.size, name.at);
        return *v;
    }
    if (name.size > 0 ? f->next > 0 : f->numbered)
        sheaf__j_raise(f->j, "cannot switch between manual field specification and automatic "
                             "field numbering");
    f->numbered = name.size > 0;
    if (read_digits(f->j, &at, name.at, name.at + name.size) < name.at + name.size)
        sheaf__j_raise(f->j, "KeyError: '%.*s'", (int)name.size, name.at);
    if (name.size == 0)
        at = f->next++;
    if (at >= (int64_t)f->args->at.count)
        sheaf__j_raise(f->j, "Replacement index %" PRId64 " out of range for positional args tuple",
                       at);
    return f->args->at.at[at];
}

/* From behind "{" on; returns what stands behind "}". */
static const char *put_argument(filler *f, sheaf__jbuffer *b, const char *p, const char *end)
{
    const char *const name = p;
    while (p < end && strchr("}{!:.[", *p) == NULL)
        p++;
    if (p == end || *p == '{')
        sheaf__j_raise(f->j, "expected '}' before end of string");
    if (*p != '}')
        sheaf__j_refuse(f->j, "'%c' in a field of format()", *p != '\0' ? *p : '0');
    const sheaf__jtext text =
        sheaf__j_str(f->j, argument_of(f, (sheaf__jtext){ name, (size_t)(p - name) }));
    sheaf__j_put(f->j, b, text.at, text.size);
    return p + 1;
}

sheaf__jvalue sheaf__j_fill_in(sheaf__j *j, sheaf__jtext format, const sheaf__jarguments *args)
{
    sheaf__jbuffer b = { 0 };
    filler f = { .j = j, .args = args };
    const char *p = format.at, *const end = format.at + format.size;
    while (p < end) {
        const char *from = p;
        while (p < end && *p != '{' && *p != '}')
            p++;
        sheaf__j_put(j, &b, from, (size_t)(p - from));
        sheaf__j_work(j, 1);
        if (p + 1 < end && p[1] == *p) { /* twice: the letter itself */
            sheaf__j_put(j, &b, p, 1);
            p += 2;
        } else if (p < end && (*p == '}' || p + 1 == end)) {
            sheaf__j_raise(j, "Single '%c' encountered in format string", *p);
        } else if (p < end) {
            p = put_argument(&f, &b, p + 1, end);
        }
    }
    return sheaf__j_buffer_text(&b);
}
