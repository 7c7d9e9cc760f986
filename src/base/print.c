/* print.c - see print.h. */
#include "base/print.h"

#include <assert.h>
#include <ctype.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>

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

void sheaf__text_shown(sheaf_text *text, const char *string, bool lines)
{
    add_shown(text, string, lines, SIZE_MAX);
}

void sheaf__print_lines(FILE *to, const char *string)
{
    sheaf_text text = { 0 };
    sheaf__text_shown(&text, string, true);
    if (text.at != NULL && !text.failed)
        fputs(text.at, to);
    sheaf__text_release(&text);
}

/* ---- formats ---- */

/* One conversion: "%-14.3lld" is flags "-", width 14, precision 3, size "ll", kind 'd'. */
typedef struct conversion {
    char flags[6], size[3], kind;
    int width, precision; /* -1: none */
} conversion;

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

static conversion read_conversion(const char **format, va_list *args)
{
    conversion c = { .width = -1, .precision = -1 };
    const char *at = *format;
    for (size_t n = 0; *at != '\0' && strchr("-+ #0", *at) != NULL; at++)
        if (n + 1 < sizeof c.flags)
            c.flags[n++] = *at;
    if (*at == '*' || isdigit((unsigned char)*at))
        c.width = number(&at, args);
    if (*at == '.') {
        at++;
        c.precision = number(&at, args);
    }
    for (size_t n = 0; *at != '\0' && strchr("hlzjt", *at) != NULL; at++)
        if (n + 1 < sizeof c.size)
            c.size[n++] = *at;
    c.kind = *at;
    *format = at + (*at != '\0');
    return c;
}

static void print_string(FILE *to, const conversion *c, const char *string)
{
    sheaf_text text = { 0 };
    add_shown(&text, string, false, c->precision >= 0 ? (size_t)c->precision : SIZE_MAX);
    const bool left = strchr(c->flags, '-') != NULL;
    const int blanks = c->width > (int)text.size ? c->width - (int)text.size : 0;
    fprintf(to, "%*s", left ? 0 : blanks, "");
    if (!text.failed)
        fputs(text.at != NULL ? text.at : "", to);
    else /* no memory, which may be what is to be said */
        for (size_t i = 0; string[i] != '\0' && (c->precision < 0 || i < (size_t)c->precision); i++)
            fputc(string[i] >= ' ' && string[i] < 0x7f ? string[i] : '?', to);
    fprintf(to, "%*s", left ? blanks : 0, "");
    sheaf__text_release(&text);
}

/* The conversion as text for fprintf(), with `size` before its kind. */
static const char *spec_text(char spec[64], const conversion *c, const char *size)
{
    char width[16] = "", precision[16] = "";
    if (c->width >= 0)
        snprintf(width, sizeof width, "%d", c->width);
    if (c->precision >= 0)
        snprintf(precision, sizeof precision, ".%d", c->precision);
    snprintf(spec, 64, "%%%s%s%s%s%c", c->flags, width, precision, size, c->kind);
    return spec;
}

static long long next_whole(const conversion *c, va_list *args)
{
    const bool is_signed = c->kind == 'd' || c->kind == 'i';
    if (c->size[0] != '\0' && c->size[0] != 'h') /* l, ll, z, j, t: 64 bits all */
        return va_arg(*args, long long);
    const int value = va_arg(*args, int);
    return is_signed ? value : (long long)(unsigned)value;
}

static void print_next(FILE *to, const conversion *c, va_list *args)
{
    char spec[64];
    switch (c->kind) {
    case 's': print_string(to, c, va_arg(*args, const char *)); break;
    case 'c': fputc(va_arg(*args, int), to); break;
    case 'd':
    case 'i':
    case 'u':
    case 'x':
    case 'X':
    case 'o': fprintf(to, spec_text(spec, c, "ll"), next_whole(c, args)); break;
    case 'e':
    case 'f':
    case 'g': fprintf(to, spec_text(spec, c, ""), va_arg(*args, double)); break;
    default: assert(c->kind == '%'); fputc('%', to);
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
        const conversion c = read_conversion(&at, &args);
        print_next(to, &c, &args);
    }
    va_end(args);
}
