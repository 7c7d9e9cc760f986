/* print.c - see print.h. */
#include "base/print.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>

#include "base/base.h"

/* The number of the character of `n` bytes at p. */
static uint32_t number_of(const char *bytes, size_t n)
{
    const unsigned char *p = (const unsigned char *)bytes;
    static const unsigned char first[] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
    uint32_t c = p[0] & first[n];
    for (size_t i = 1; i < n; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

static bool steers(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } range[] = {
        { 0x00, 0x1f },     { 0x7f, 0x9f },     { 0x061c, 0x061c },   { 0x200e, 0x200f },
        { 0x202a, 0x202e }, { 0x2066, 0x206f }, /* direction */
        { 0x00ad, 0x00ad }, { 0x200b, 0x200b }, { 0x2028, 0x2029 },   { 0x2060, 0x2064 },
        { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
    };
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i].from && c <= range[i].to)
            return true;
    return false;
}

/* The bytes of a character that begins with c; 0 if none does. */
static size_t length_said(char c)
{
    const unsigned char b = (unsigned char)c;
    return b >= 0xf0 && b < 0xf5 ? 4 : b >= 0xe0 ? 3 * (b < 0xf0) : b >= 0xc2 ? 2 : 0;
}

/* Of `string` at most `most` bytes are read; a character that this cuts is left out. */
static void add_shown(sheaf_text *text, const char *string, bool lines, size_t most)
{
    const size_t size = strnlen(string, most);
    for (size_t left = size, n; left > 0; string += n, left -= n) {
        const char c = *string;
        const size_t length = sheaf__utf8_length(string, left);
        if (length == 0 && size == most && length_said(c) > left)
            return;
        n = length > 0 ? length : 1;
        if (c == '\t' || (c == '\n' && lines))
            sheaf__text_bytes(text, lines ? string : " ", 1);
        else if (length == 0 || steers(number_of(string, length)))
            sheaf__text_bytes(text, "?", 1);
        else
            sheaf__text_bytes(text, string, length);
    }
}

void sheaf__print_lines(FILE *to, const char *string)
{
    sheaf_text text = { 0 };
    add_shown(&text, string, true, SIZE_MAX);
    if (text.at != NULL && !text.failed)
        fputs(text.at, to);
    sheaf__text_release(&text);
}

/* ---- formats ---- */

/* A number of the format, or for '*' the next argument. */
static int number(const char **at, va_list *args)
{
    int n = 0;
    if (**at == '*') {
        ++*at;
        return va_arg(*args, int);
    }
    for (; isdigit((unsigned char)**at); ++*at)
        n = 10 * n + **at - '0';
    return n;
}

static void print_string(FILE *to, const char *format, size_t most, const char *string)
{
    sheaf_text text = { 0 };
    add_shown(&text, string, false, most);
    if (!text.failed)
        fprintf(to, format, text.at != NULL ? text.at : "");
    else /* no memory, which may be the message */
        for (size_t i = 0; i < most && string[i] != '\0'; i++)
            fputc(string[i] >= ' ' && string[i] < 0x7f ? string[i] : '?', to);
    sheaf__text_release(&text);
}

/* One conversion, *at behind its '%': flags, width, precision, size and kind. */
static void print_next(FILE *to, const char **at, va_list *args)
{
    char format[64] = "%";
    size_t n = 1;
    int precision = -1;
    for (; **at != '\0' && strchr("-+ #0", **at) != NULL; ++*at)
        if (n < 6)
            format[n++] = **at;
    if (**at == '*' || isdigit((unsigned char)**at))
        n += (size_t)snprintf(format + n, 16, "%d", number(at, args));
    if (**at == '.') {
        ++*at;
        precision = number(at, args);
    }
    const bool wide = strchr("lzjt", **at) != NULL; /* 64 bits all */
    *at += strspn(*at, "hlzjt");
    const char kind = **at;
    *at += kind != '\0';
    if (precision >= 0 && kind != 's')
        n += (size_t)snprintf(format + n, 16, ".%d", precision);
    snprintf(format + n, 4, strchr("diuxXo", kind) != NULL ? "ll%c" : "%c", kind);
    switch (kind) {
    case 's':
        print_string(to, format, precision >= 0 ? (size_t)precision : SIZE_MAX,
                     va_arg(*args, const char *));
        break;
    case 'c': fputc(va_arg(*args, int), to); break;
    case 'd':
    case 'i': fprintf(to, format, wide ? va_arg(*args, long long) : va_arg(*args, int)); break;
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        fprintf(to, format, wide ? va_arg(*args, long long) : (long long)va_arg(*args, unsigned));
        break;
    case 'e':
    case 'f':
    case 'g': fprintf(to, format, va_arg(*args, double)); break;
    default: assert(kind == '%'); fputc('%', to);
    }
}

void sheaf__print(FILE *to, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    for (const char *at = fmt; *at != '\0';) {
        const size_t plain = strcspn(at, "%");
        fwrite(at, 1, plain, to);
        at += plain;
        if (*at == '\0')
            break;
        at++;
        print_next(to, &at, &args);
    }
    va_end(args);
}

/* ---- statuses ---- */

/* A list under one label: its lines are indented, so that none can be taken for one of ours. */
static void print_line(FILE *to, const char *label, const char *line)
{
    static const char next[] = "\n            ";
    const char *end;
    for (; (end = strstr(line, next)) != NULL; line = end + sizeof next - 1) {
        fputs(label, to);
        sheaf__print(to, "%.*s", (int)(end - line), line);
        label = next;
    }
    fputs(label, to);
    sheaf__print(to, "%s\n", line);
}

void sheaf_status_print(const sheaf_status *st, FILE *to)
{
    static const char *const label[] = { "sheaf: ", "  expected: ", "  found:    ",
                                         "  try:      " };
    const char *const line[] = { sheaf_status_where(st), sheaf_status_expected(st),
                                 sheaf_status_found(st), sheaf_status_try(st) };
    for (size_t i = 0; i < sizeof line / sizeof *line; i++)
        if (*line[i] != '\0')
            print_line(to, label[i], line[i]);
}
