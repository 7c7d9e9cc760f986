/* json_scan.c - see json_scan.h. */
#include "json_scan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEEPEST = 127 };

/* Length of the UTF-8 sequence at p (shortest form, no surrogates, up to U+10FFFF); 0 if it is none. */
static size_t utf8_length(const unsigned char *p, size_t left)
{
    if (p[0] < 0x80)
        return 1;
    const size_t n = p[0] >= 0xc2 && p[0] < 0xe0 ? 2 : (p[0] & 0xf0) == 0xe0 ? 3 : p[0] >= 0xf0 && p[0] < 0xf5 ? 4 : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    const bool too_long = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    const bool surrogate = p[0] == 0xed && p[1] >= 0xa0, beyond = p[0] == 0xf4 && p[1] >= 0x90;
    return too_long || surrogate || beyond ? 0 : n;
}

sheaf_status *sheaf__scan_init(sheaf_json_scan *scan, const char *text, size_t size)
{
    *scan = (sheaf_json_scan){ text, text, text + size };
    for (size_t i = 0; i < size;) {
        const size_t n = utf8_length((const unsigned char *)text + i, size - i);
        if (n == 0) {
            sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "byte %zu of the JSON", i);
            return sheaf_found(sheaf_expected(st, "UTF-8"), "byte 0x%02x", (unsigned char)text[i]);
        }
        i += n;
    }
    return NULL;
}

sheaf_status *sheaf__scan_fail(const sheaf_json_scan *scan, const char *expected)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_FORMAT, "byte %td of the JSON", scan->at - scan->begin);
    sheaf_expected(st, "%s", expected);
    if (scan->at == scan->end)
        return sheaf_found(st, "its end");
    const unsigned char c = (unsigned char)*scan->at;
    if (c < 0x20 || c == 0x7f)
        return sheaf_found(st, "byte 0x%02x", c);
    /* up to 24 bytes, but not half a character */
    int n = scan->end - scan->at > 24 ? 24 : (int)(scan->end - scan->at);
    for (int i = 0; i < n; i++)
        if ((unsigned char)scan->at[i] < 0x20)
            n = i;
    while (n > 1 && scan->at + n < scan->end && ((unsigned char)scan->at[n] & 0xc0) == 0x80)
        n--;
    return sheaf_found(st, "%.*s", n, scan->at);
}

char sheaf__scan_peek(sheaf_json_scan *scan)
{
    while (scan->at < scan->end && (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
        scan->at++;
    return scan->at < scan->end ? *scan->at : '\0';
}

bool sheaf__scan_take(sheaf_json_scan *scan, char c)
{
    if (sheaf__scan_peek(scan) != c || scan->at == scan->end)
        return false;
    scan->at++;
    return true;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

/* The four digits after "\u"; -1 if they are none. */
static int32_t hex4(sheaf_json_scan *scan)
{
    int32_t code = 0;
    if (scan->end - scan->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = hex_digit(scan->at[i]);
        if (digit < 0)
            return -1;
        code = code * 16 + digit;
    }
    scan->at += 4;
    return code;
}

static char *put_utf8(char *to, int32_t code)
{
    if (code < 0x80) {
        *to++ = (char)code;
    } else if (code < 0x800) {
        *to++ = (char)(0xc0 | code >> 6);
        *to++ = (char)(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        *to++ = (char)(0xe0 | code >> 12);
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    } else {
        *to++ = (char)(0xf0 | code >> 18);
        *to++ = (char)(0x80 | (code >> 12 & 0x3f));
        *to++ = (char)(0x80 | (code >> 6 & 0x3f));
        *to++ = (char)(0x80 | (code & 0x3f));
    }
    return to;
}

/* After a backslash; *to grows by at most what the escape took, as no escape is shorter than its UTF-8. */
static sheaf_status *take_escape(sheaf_json_scan *scan, char **to)
{
    static const char letter[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *known = scan->at < scan->end && *scan->at != '\0' ? strchr(letter, *scan->at) : NULL;
    if (known != NULL) {
        scan->at++;
        *(*to)++ = meaning[known - letter];
        return NULL;
    }
    if (scan->at == scan->end || *scan->at != 'u')
        return sheaf__scan_fail(scan, "an escape: one of \"\\/bfnrtu");
    scan->at++;
    int32_t code = hex4(scan);
    if (code >= 0xd800 && code < 0xdc00 && scan->end - scan->at >= 2 && scan->at[0] == '\\' && scan->at[1] == 'u') {
        scan->at += 2;
        const int32_t low = hex4(scan);
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (code < 0 || (code >= 0xd800 && code < 0xe000))
        return sheaf__scan_fail(scan, "four hexadecimal digits of a character (a surrogate only in a pair)");
    if (code == 0)
        return sheaf_fail(SHEAF_E_UNSUPPORTED, "byte %td of the JSON: a string that contains NUL",
                          scan->at - scan->begin);
    *to = put_utf8(*to, code);
    return NULL;
}

sheaf_status *sheaf__scan_string(sheaf_json_scan *scan, char **out)
{
    if (!sheaf__scan_take(scan, '"'))
        return sheaf__scan_fail(scan, "a string");
    const char *close = scan->at; /* the room needed is at most what lies between the quotes */
    while (close < scan->end && *close != '"')
        close += *close == '\\' && close + 1 < scan->end ? 2 : 1;
    if (close == scan->end) {
        scan->at = scan->end;
        return sheaf__scan_fail(scan, "the end of a string");
    }
    char *text = malloc((size_t)(close - scan->at) + 1), *to = text;
    if (text == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "out of memory for a string of %td bytes", close - scan->at);
    sheaf_status *st = NULL;
    while (st == NULL && scan->at < close) {
        const char c = *scan->at;
        if ((unsigned char)c < 0x20) {
            st = sheaf__scan_fail(scan, "no control character inside a string");
        } else {
            scan->at++;
            if (c == '\\')
                st = take_escape(scan, &to);
            else
                *to++ = c;
        }
    }
    if (st != NULL) {
        free(text);
        return st;
    }
    *to = '\0';
    scan->at++;
    *out = text;
    return NULL;
}

static size_t digits(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] >= '0' && at[n] <= '9')
        n++;
    return n;
}

/* A number at scan->at; *whole says that it has neither sign, fraction nor exponent. */
static sheaf_status *take_number(sheaf_json_scan *scan, bool *whole)
{
    const char *p = scan->at, *const end = scan->end;
    *whole = !(p < end && *p == '-');
    p += !*whole;
    const size_t n = digits(p, end);
    if (n == 0 || (n > 1 && *p == '0'))
        return sheaf__scan_fail(scan, "a number");
    p += n;
    if (p < end && *p == '.') {
        const size_t f = digits(p + 1, end);
        if (f == 0)
            return sheaf__scan_fail(scan, "a number");
        p += 1 + f;
        *whole = false;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        const size_t e = digits(p, end);
        if (e == 0)
            return sheaf__scan_fail(scan, "a number");
        p += e;
        *whole = false;
    }
    scan->at = p;
    return NULL;
}

sheaf_status *sheaf__scan_count(sheaf_json_scan *scan, uint64_t *out)
{
    bool whole = false;
    sheaf__scan_peek(scan);
    const sheaf_json_scan start = *scan;
    sheaf_status *st = take_number(scan, &whole);
    uint64_t value = 0;
    for (const char *p = start.at; st == NULL && whole && p < scan->at; p++)
        if (__builtin_mul_overflow(value, 10, &value) || __builtin_add_overflow(value, (uint64_t)(*p - '0'), &value))
            whole = false;
    if (st != NULL || !whole) {
        sheaf_status_free(st);
        return sheaf__scan_fail(&start, "a whole number, not negative, below 2^64");
    }
    *out = value;
    return NULL;
}

/* A number nobody needs; only its range matters, as serde_json refuses what a double cannot hold. */
static sheaf_status *skip_number(sheaf_json_scan *scan)
{
    const sheaf_json_scan start = *scan;
    bool whole;
    sheaf_status *st = take_number(scan, &whole);
    if (st != NULL)
        return st;
    char *copy = strndup(start.at, (size_t)(scan->at - start.at));
    if (copy == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "out of memory for a number");
    const bool infinite = isinf(strtod(copy, NULL));
    free(copy);
    return infinite ? sheaf__scan_fail(&start, "a number that a double can hold") : NULL;
}

static sheaf_status *skip_container(sheaf_json_scan *scan, int depth, bool object)
{
    bool more = true;
    for (bool first = true;; first = false) {
        char *key = NULL;
        sheaf_status *st = object ? sheaf__scan_next_key(scan, first, &more, &key)
                                  : sheaf__scan_next_item(scan, first, &more);
        free(key);
        if (st == NULL && more)
            st = sheaf__scan_skip(scan, depth + 1);
        if (st != NULL || !more)
            return st;
    }
}

sheaf_status *sheaf__scan_skip(sheaf_json_scan *scan, int depth)
{
    static const char *const word[] = { "true", "false", "null" };
    const char c = sheaf__scan_peek(scan);
    if (c == '{' || c == '[') {
        if (depth >= DEEPEST)
            return sheaf__scan_fail(scan, "at most 127 levels");
        scan->at++;
        return skip_container(scan, depth, c == '{');
    }
    if (c == '"') {
        char *text = NULL;
        sheaf_status *st = sheaf__scan_string(scan, &text);
        free(text);
        return st;
    }
    if (c == '-' || (c >= '0' && c <= '9'))
        return skip_number(scan);
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(word[i]);
        if ((size_t)(scan->end - scan->at) >= n && memcmp(scan->at, word[i], n) == 0) {
            scan->at += n;
            return NULL;
        }
    }
    return sheaf__scan_fail(scan, "a JSON value");
}

sheaf_status *sheaf__scan_end(sheaf_json_scan *scan)
{
    sheaf__scan_peek(scan);
    return scan->at == scan->end ? NULL : sheaf__scan_fail(scan, "nothing after the JSON but blanks");
}

sheaf_status *sheaf__scan_next_key(sheaf_json_scan *scan, bool first, bool *more, char **key)
{
    *more = false;
    if (sheaf__scan_take(scan, '}'))
        return NULL;
    if (!first && !sheaf__scan_take(scan, ','))
        return sheaf__scan_fail(scan, "',' or '}'");
    sheaf_status *st = sheaf__scan_string(scan, key);
    if (st != NULL)
        return st;
    if (!sheaf__scan_take(scan, ':')) {
        free(*key);
        *key = NULL;
        return sheaf__scan_fail(scan, "':'");
    }
    *more = true;
    return NULL;
}

sheaf_status *sheaf__scan_next_item(sheaf_json_scan *scan, bool first, bool *more)
{
    *more = false;
    if (sheaf__scan_take(scan, ']'))
        return NULL;
    if (!first && !sheaf__scan_take(scan, ','))
        return sheaf__scan_fail(scan, "',' or ']'");
    *more = true;
    return NULL;
}
