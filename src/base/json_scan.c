/* json_scan.c - see json_scan.h. */
#include "json_scan.h"

#include <float.h>
#include <locale.h>
#include <math.h>

#include "text.h"
#include "base/base.h"

enum { DEEPEST = 127 };

static sheaf_status *fail_here(sheaf_code code, const sheaf_json_scan *scan)
{
    if (scan->one_line)
        return sheaf_fail(code, "column %td", scan->at - scan->begin + 1);
    if (!scan->by_line)
        return sheaf_fail(code, "byte %td of the JSON", scan->at - scan->begin);
    int64_t line = 1;
    const char *start = scan->begin;
    for (const char *p = scan->begin; p < scan->at; p++)
        if (*p == '\n') {
            line++;
            start = p + 1;
        }
    return sheaf_fail(code, "line %" PRId64 ", column %td", line, scan->at - start + 1);
}

static sheaf_status *check_utf8(sheaf_json_scan *scan)
{
    while (scan->at < scan->end) {
        uint64_t eight;
        if (scan->end - scan->at >= 8) { /* most is ASCII */
            memcpy(&eight, scan->at, 8);
            if ((eight & UINT64_C(0x8080808080808080)) == 0) {
                scan->at += 8;
                continue;
            }
        }
        const size_t n = sheaf__utf8_length(scan->at, (size_t)(scan->end - scan->at));
        if (n == 0)
            return sheaf_found(sheaf_expected(fail_here(SHEAF_E_FORMAT, scan), "UTF-8"),
                               "byte 0x%02x", (unsigned char)*scan->at);
        scan->at += n;
    }
    scan->at = scan->begin;
    return NULL;
}

sheaf_status *sheaf__scan_init(sheaf_json_scan *scan, const char *text, size_t size, bool by_line)
{
    *scan = (sheaf_json_scan){ text, text, text + size, .by_line = by_line };
    return check_utf8(scan);
}

sheaf_status *sheaf__scan_init_line(sheaf_json_scan *scan, const char *text, size_t size)
{
    *scan = (sheaf_json_scan){ text, text, text + size, .one_line = true, .nul = true };
    return check_utf8(scan);
}

sheaf_status *sheaf__scan_fail(const sheaf_json_scan *scan, const char *expected)
{
    sheaf_status *st = fail_here(SHEAF_E_FORMAT, scan);
    sheaf_expected(st, "%s", expected);
    if (scan->at == scan->end)
        return sheaf_found(st, "the end of the text");
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
    while (scan->at < scan->end &&
           (*scan->at == ' ' || *scan->at == '\n' || *scan->at == '\t' || *scan->at == '\r'))
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

/* The four digits after "\u"; -1 if they are none. */
static int32_t hex4(sheaf_json_scan *scan)
{
    int32_t code = 0;
    if (scan->end - scan->at < 4)
        return -1;
    for (int i = 0; i < 4; i++) {
        const int digit = sheaf__hex_digit(scan->at[i]);
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

/* After a backslash; *to grows by at most what the escape took, as no escape is shorter than its
 * UTF-8. */
static sheaf_status *take_escape(sheaf_json_scan *scan, char **to, bool nul)
{
    static const char letter[] = "\"\\/bfnrt", meaning[] = "\"\\/\b\f\n\r\t";
    const char *known =
        scan->at < scan->end && *scan->at != '\0' ? strchr(letter, *scan->at) : NULL;
    if (known != NULL) {
        scan->at++;
        *(*to)++ = meaning[known - letter];
        return NULL;
    }
    if (scan->at == scan->end || *scan->at != 'u')
        return sheaf__scan_fail(scan, "an escape: one of \"\\/bfnrtu");
    scan->at++;
    int32_t code = hex4(scan);
    if (code >= 0xd800 && code < 0xdc00 && scan->end - scan->at >= 2 && scan->at[0] == '\\' &&
        scan->at[1] == 'u') {
        scan->at += 2;
        const int32_t low = hex4(scan);
        code =
            low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (code < 0 || (code >= 0xd800 && code < 0xe000))
        return sheaf__scan_fail(
            scan, "four hexadecimal digits of a character (a surrogate only in a pair)");
    if (code == 0 && !nul)
        return sheaf_found(
            sheaf_expected(fail_here(SHEAF_E_UNSUPPORTED, scan), "strings without NUL"), "\\u0000");
    *to = put_utf8(*to, code);
    return NULL;
}

/* A string's first quote; *close is where its last is. */
static sheaf_status *find_close(sheaf_json_scan *scan, const char **close)
{
    if (!sheaf__scan_take(scan, '"'))
        return sheaf__scan_fail(scan, "a string");
    const char *at = scan->at;
    while (at < scan->end && *at != '"')
        at += *at == '\\' && at + 1 < scan->end ? 2 : 1;
    *close = at;
    if (at < scan->end)
        return NULL;
    scan->at = scan->end;
    return sheaf__scan_fail(scan, "the end of a string");
}

/* From behind the first quote to the last one at `close`. The space needed is at most what lies
 * between them. */
static sheaf_status *decode_string(sheaf_json_scan *scan, const char *close, char *to, size_t *size,
                                   bool nul)
{
    char *const text = to;
    sheaf_status *st = NULL;
    while (st == NULL && scan->at < close) {
        const char c = *scan->at;
        if ((unsigned char)c < 0x20) {
            st = sheaf__scan_fail(scan, "no control character inside a string");
        } else {
            scan->at++;
            if (c == '\\')
                st = take_escape(scan, &to, nul);
            else
                *to++ = c;
        }
    }
    *to = '\0';
    *size = (size_t)(to - text);
    scan->at += st == NULL;
    return st;
}

static sheaf_status *take_string(sheaf_json_scan *scan, char **out, size_t *size, bool nul)
{
    const char *close;
    sheaf_status *st = find_close(scan, &close);
    if (st != NULL)
        return st;
    char *text = malloc((size_t)(close - scan->at) + 1);
    if (text == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "out of memory for a string of %td bytes",
                          close - scan->at);
    st = decode_string(scan, close, text, size, nul);
    if (st != NULL)
        free(text);
    else
        *out = text;
    return st;
}

sheaf_status *sheaf__scan_string_to(sheaf_json_scan *scan, char *to, size_t *size)
{
    const char *close;
    sheaf_status *st = find_close(scan, &close);
    return st != NULL ? st : decode_string(scan, close, to, size, true);
}

sheaf_status *sheaf__scan_string(sheaf_json_scan *scan, char **out)
{
    size_t size;
    return take_string(scan, out, &size, false);
}

sheaf_status *sheaf__scan_value_string(sheaf_json_scan *scan, char **out, size_t *size)
{
    return take_string(scan, out, size, scan->nul);
}

static size_t digits(const char *at, const char *end)
{
    size_t n = 0;
    while (at + n < end && at[n] >= '0' && at[n] <= '9')
        n++;
    return n;
}

/* A number at scan->at; *fraction says that it has a fraction or an exponent. */
static sheaf_status *take_number(sheaf_json_scan *scan, bool *fraction)
{
    const char *p = scan->at, *const end = scan->end;
    *fraction = false;
    p += p < end && *p == '-';
    const size_t n = digits(p, end);
    if (n == 0 || (n > 1 && *p == '0'))
        return sheaf__scan_fail(scan, "a number");
    p += n;
    if (p < end && *p == '.') {
        const size_t f = digits(p + 1, end);
        if (f == 0)
            return sheaf__scan_fail(scan, "a number");
        p += 1 + f;
        *fraction = true;
    }
    if (p < end && (*p == 'e' || *p == 'E')) {
        p++;
        p += p < end && (*p == '+' || *p == '-');
        const size_t e = digits(p, end);
        if (e == 0)
            return sheaf__scan_fail(scan, "a number");
        p += e;
        *fraction = true;
    }
    scan->at = p;
    return NULL;
}

/* The digits at `p`, below 2^64? */
static bool take_digits(const char *p, const char *end, uint64_t *value)
{
    for (*value = 0; p < end; p++)
        if (__builtin_mul_overflow(*value, 10, value) ||
            __builtin_add_overflow(*value, (uint64_t)(*p - '0'), value))
            return false;
    return true;
}

sheaf_status *sheaf__scan_count(sheaf_json_scan *scan, uint64_t *out)
{
    bool fraction = false;
    sheaf__scan_peek(scan);
    const sheaf_json_scan start = *scan;
    sheaf_status *st = take_number(scan, &fraction);
    if (st == NULL && !fraction && *start.at != '-' && take_digits(start.at, scan->at, out))
        return NULL;
    sheaf_status_free(st);
    return sheaf__scan_fail(&start, "a whole number, not negative, below 2^64");
}

/* strtod() reads the decimal point of the program's locale, which is not ours to choose. */
static double to_double(char *text)
{
    char *end = NULL;
    double x = strtod(text, &end);
    const char *point = localeconv()->decimal_point;
    if (*end == '.' && strlen(point) == 1) {
        *end = *point;
        x = strtod(text, &end);
    }
    return x;
}

/* The number from start->at to scan->at, malloc'd as *digits. */
static sheaf_status *take_real(double *real, char **digits, const sheaf_json_scan *start,
                               const sheaf_json_scan *scan)
{
    *digits = strndup(start->at, (size_t)(scan->at - start->at));
    if (*digits == NULL)
        return sheaf__no_memory("a number");
    *real = to_double(*digits);
    return isinf(*real) ? sheaf__scan_fail(start, "a number that a double can hold") : NULL;
}

static bool take_whole(const sheaf_json_scan *start, const char *end, int64_t *out)
{
    const bool minus = *start->at == '-';
    uint64_t size = 0;
    if (!take_digits(start->at + minus, end, &size) || size > (uint64_t)INT64_MAX + minus)
        return false;
    *out = minus ? (int64_t)(0 - size) : (int64_t)size;
    return true;
}

/* Are these digits all of x? transformers writes int(1e30) for "no limit". */
static bool writes(double x, const char *digits)
{
    char text[DBL_MAX_10_EXP + 4];
    snprintf(text, sizeof text, "%.0f", x);
    return strcmp(text, digits) == 0;
}

sheaf_status *sheaf__scan_number(sheaf_json_scan *scan, bool *whole, int64_t *integer, double *real)
{
    bool fraction = false;
    sheaf__scan_peek(scan);
    const sheaf_json_scan start = *scan;
    sheaf_status *st = take_number(scan, &fraction);
    if (st != NULL)
        return st;
    *whole = !fraction && take_whole(&start, scan->at, integer);
    if (*whole)
        return NULL;
    char *copy = NULL;
    st = take_real(real, &copy, &start, scan);
    if (copy != NULL && !fraction && !scan->one_line && !writes(*real, copy)) {
        sheaf_status_free(st);
        st = sheaf__scan_fail(&start, "a whole number from -2^63 to 2^63 - 1");
    }
    free(copy);
    return st;
}

bool sheaf__scan_word(sheaf_json_scan *scan, const char *word)
{
    const size_t n = strlen(word);
    sheaf__scan_peek(scan);
    if ((size_t)(scan->end - scan->at) < n || memcmp(scan->at, word, n) != 0)
        return false;
    scan->at += n;
    return true;
}

/* A number that is not needed: its range matters, as serde_json refuses what a double cannot hold.
 */
static sheaf_status *skip_number(sheaf_json_scan *scan)
{
    const sheaf_json_scan start = *scan;
    bool fraction;
    double real;
    char *copy = NULL;
    sheaf_status *st = take_number(scan, &fraction);
    TRY(st, take_real(&real, &copy, &start, scan));
    free(copy);
    return st;
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
    if (sheaf__scan_word(scan, "true") || sheaf__scan_word(scan, "false") ||
        sheaf__scan_word(scan, "null"))
        return NULL;
    return sheaf__scan_fail(scan, "a JSON value");
}

sheaf_status *sheaf__scan_end(sheaf_json_scan *scan)
{
    sheaf__scan_peek(scan);
    return scan->at == scan->end ? NULL
                                 : sheaf__scan_fail(scan, "nothing after the JSON but blanks");
}

/* Before a key: *more says whether one comes. */
static sheaf_status *to_key(sheaf_json_scan *scan, bool first, bool *more)
{
    *more = false;
    if (sheaf__scan_take(scan, '}'))
        return NULL;
    if (!first && !sheaf__scan_take(scan, ','))
        return sheaf__scan_fail(scan, "',' or '}'");
    *more = true;
    return NULL;
}

sheaf_status *sheaf__scan_next_key(sheaf_json_scan *scan, bool first, bool *more, char **key)
{
    sheaf_status *st = to_key(scan, first, more);
    if (st != NULL || !*more)
        return st;
    *more = false;
    st = sheaf__scan_string(scan, key);
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

sheaf_status *sheaf__scan_next_key_to(sheaf_json_scan *scan, bool first, bool *more, char *to,
                                      size_t *size)
{
    sheaf_status *st = to_key(scan, first, more);
    if (st == NULL && *more)
        st = sheaf__scan_string_to(scan, to, size);
    if (st == NULL && *more && !sheaf__scan_take(scan, ':'))
        st = sheaf__scan_fail(scan, "':'");
    return st;
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
