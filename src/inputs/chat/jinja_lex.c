/* jinja_lex.c - the text of a template as tokens, as Jinja's lexer divides it.
 *
 * Line ends become \n; the last one is dropped. A block and a comment take the line end after them
 * with them (trim_blocks), and blanks before them on a line of their own (lstrip_blocks); "-" takes
 * all blanks on its side, "+" none. */
#include "inputs/chat/jinja_core.h"

#include <utf8proc.h>

#include "base/base.h"

typedef struct lexer {
    sheaf__j *j;
    const char *at, *end;
    int line;
    bool line_begins; /* the last token ended with a line */
    sheaf__jtoken *token;
    size_t count, capacity;
    char open[SHEAF__J_NESTING];
    int opened;
} lexer;

_Noreturn static void fail(lexer *l, const char *expected)
{
    l->j->line = l->line;
    sheaf__j_fail(l->j,
                  sheaf_expected(sheaf_fail(SHEAF_E_FORMAT, "chat template"), "%s", expected));
}

static void add(lexer *l, sheaf__jtoken_kind kind, sheaf__jtext text)
{
    if (l->count == l->capacity) {
        const size_t capacity = l->capacity * 2 + 64;
        sheaf__jtoken *more = sheaf__j_take(l->j, capacity * sizeof *more);
        if (l->count > 0)
            memcpy(more, l->token, l->count * sizeof *more);
        l->token = more;
        l->capacity = capacity;
    }
    l->token[l->count++] = (sheaf__jtoken){ kind, l->line, text };
}

static bool starts(const lexer *l, const char *word)
{
    const size_t n = strlen(word);
    return (size_t)(l->end - l->at) >= n && memcmp(l->at, word, n) == 0;
}

/* Advances to `to` and counts lines. */
static void go_to(lexer *l, const char *to)
{
    for (; l->at < to; l->at++)
        l->line += *l->at == '\n';
}
static void skip_blanks(lexer *l)
{
    for (size_t n; (n = sheaf__utf8_blank(l->at, (size_t)(l->end - l->at))) > 0;)
        go_to(l, l->at + n);
}

/* ---- text between marks ---- */

static void add_data(lexer *l, const char *from, size_t size, char sign, bool block)
{
    if (sign == '-') {
        const char *at = from;
        size_t left = size;
        sheaf__utf8_strip(&at, &left);
        size = left == 0 ? 0 : (size_t)(at - from) + left;
    } else if (sign != '+' && block) {
        size_t begin = size;
        while (begin > 0 && from[begin - 1] != '\n')
            begin--;
        const char *at = from + begin;
        size_t left = size - begin;
        sheaf__utf8_strip(&at, &left);
        if (left == 0 && (begin > 0 || l->line_begins))
            size = begin;
    }
    if (size > 0)
        add(l, SHEAF__T_DATA, (sheaf__jtext){ from, size });
}

/* The end of a mark: "%}", "-%}" or "+%}", and the line end after it. False: not here. */
static bool take_end(lexer *l, const char *mark, bool trim)
{
    const char *p = l->at;
    const char sign = p < l->end && (*p == '-' || *p == '+') ? *p : '\0';
    if (sign == '+' && !trim)
        return false; /* "+}}" ends nothing */
    p += sign != '\0';
    if (l->end - p < 2 || memcmp(p, mark, 2) != 0)
        return false;
    const char *const end = p + 2;
    go_to(l, end);
    if (sign == '-')
        skip_blanks(l);
    else if (trim && sign == '\0' && l->at < l->end && *l->at == '\n')
        go_to(l, l->at + 1);
    l->line_begins = l->at > end && l->at[-1] == '\n';
    return true;
}

static char take_sign(lexer *l)
{
    const char sign = l->at < l->end && (*l->at == '-' || *l->at == '+') ? *l->at : '\0';
    l->at += sign != '\0';
    return sign;
}

/* A comment that opens at the very end needs no end, as in Jinja. */
static void take_comment(lexer *l)
{
    if (l->at == l->end)
        return;
    for (; l->at < l->end; go_to(l, l->at + 1))
        if (take_end(l, "#}", true))
            return;
    fail(l, "an end of the comment: #}");
}

/* ---- raw ---- */

static bool take_word(lexer *l, const char *word)
{
    skip_blanks(l);
    if (!starts(l, word))
        return false;
    l->at += strlen(word);
    skip_blanks(l);
    return true;
}

/* After "{%" and its sign: is this {% raw %}? Then all up to {% endraw %} is text. */
static bool take_raw(lexer *l)
{
    const lexer before = *l;
    if (!take_word(l, "raw") || !take_end(l, "%}", false)) { /* the line end after it stays */
        *l = before;
        return false;
    }
    for (const char *from = l->at; l->at < l->end; go_to(l, l->at + 1)) {
        const lexer here = *l;
        if (!starts(l, "{%"))
            continue;
        l->at += 2;
        const char sign = take_sign(l);
        if (take_word(l, "endraw") && take_end(l, "%}", true)) {
            const bool line_begins = l->line_begins;
            l->line_begins = false;
            add_data(l, from, (size_t)(here.at - from), sign, true);
            l->line_begins = line_begins;
            return true;
        }
        *l = here;
    }
    fail(l, "{% endraw %}");
}

/* ---- inside marks ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           (unsigned char)c >= 0x80;
}
static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static void put_utf8(lexer *l, sheaf__jbuffer *b, uint32_t c)
{
    if (c >= 0xd800 && c < 0xe000)
        sheaf__j_refuse(l->j, "a surrogate in a string");
    if (c >= 0x110000)
        fail(l, "a character up to U+10FFFF");
    utf8proc_uint8_t bytes[4];
    const utf8proc_ssize_t n = utf8proc_encode_char((utf8proc_int32_t)c, bytes);
    sheaf__j_put(l->j, b, (const char *)bytes, (size_t)n);
}

/* `digits` of `base` at *p, at least `least`. */
static uint32_t number(lexer *l, const char **p, int digits, int least, unsigned base)
{
    uint32_t value = 0;
    int n = 0;
    for (; n < digits && *p < l->end; n++, (*p)++) {
        const int d = sheaf__hex_digit(**p);
        if (d < 0 || (unsigned)d >= base)
            break;
        value = value * base + (unsigned)d;
    }
    if (n < least)
        fail(l, "digits after \\x, \\u or \\U");
    return value;
}

/* The escape behind a backslash at *p, as Python reads it. */
static void put_escape(lexer *l, sheaf__jbuffer *b, const char **p)
{
    static const char letters[] = "abfnrtv\\'\"", meant[] = "\a\b\f\n\r\t\v\\'\"";
    const char c = *(*p)++;
    const char *known = c == '\0' ? NULL : strchr(letters, c);
    if (known != NULL) {
        sheaf__j_put(l->j, b, &meant[known - letters], 1);
    } else if (c == 'x' || c == 'u' || c == 'U') {
        const int digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        put_utf8(l, b, number(l, p, digits, digits, 16));
    } else if (c >= '0' && c <= '7') {
        (*p)--;
        put_utf8(l, b, number(l, p, 3, 1, 8));
    } else if (c == 'N') {
        sheaf__j_refuse(l->j, "\\N in a string");
    } else if (c != '\n') { /* a line end is dropped, others keep their backslash */
        sheaf__j_put(l->j, b, "\\", 1);
        sheaf__j_put(l->j, b, &c, 1);
    }
}

static void take_string(lexer *l)
{
    const char quote = *l->at;
    const char *p = l->at + 1;
    sheaf__jbuffer b = { 0 };
    for (; p < l->end && *p != quote;) {
        const char *from = p;
        while (p < l->end && *p != quote && *p != '\\')
            p++;
        sheaf__j_put(l->j, &b, from, (size_t)(p - from));
        if (p < l->end && *p == '\\' && ++p < l->end)
            put_escape(l, &b, &p);
    }
    if (p >= l->end)
        fail(l, "an end of the string");
    add(l, SHEAF__T_TEXT, sheaf__j_buffer_text(&b).u.text);
    go_to(l, p + 1);
}

static const char *digits_end(const lexer *l, const char *p)
{
    while (p < l->end && (is_digit(*p) || (*p == '_' && p + 1 < l->end && is_digit(p[1]))))
        p++;
    return p;
}

/* 12, 1_000, 0x1f, 0o17, 0b1, 1.5, 1e9; behind a point no fraction: a.0.1 */
static void take_number(lexer *l)
{
    const bool behind_point = l->count > 0 && l->token[l->count - 1].kind == SHEAF__T_SIGN &&
                              sheaf__j_is(l->token[l->count - 1].text, ".") &&
                              l->token[l->count - 1].text.at + 1 == l->at;
    const char *p = digits_end(l, l->at), *q;
    bool whole = true;
    if (p == l->at + 1 && *l->at == '0' && p + 1 < l->end && strchr("xXoObB", *p) != NULL) {
        const int base = (*p | 0x20) == 'x' ? 16 : (*p | 0x20) == 'o' ? 8 : 2;
        for (q = p; q + 1 < l->end; q += 1 + (q[1] == '_')) {
            const int d = sheaf__hex_digit(q[1] == '_' && q + 2 < l->end ? q[2] : q[1]);
            if (d < 0 || d >= base)
                break;
        }
        if (q > p) {
            add(l, SHEAF__T_INT, (sheaf__jtext){ l->at, (size_t)(q + 1 - l->at) });
            l->at = q + 1;
            return;
        }
    }
    if (!behind_point && p + 1 < l->end && *p == '.' && is_digit(p[1])) {
        p = digits_end(l, p + 1);
        whole = false;
    }
    if (!behind_point && p < l->end && (*p == 'e' || *p == 'E')) {
        q = p + 1 < l->end && (p[1] == '+' || p[1] == '-') ? p + 2 : p + 1;
        if (q < l->end && is_digit(*q)) {
            p = digits_end(l, q);
            whole = false;
        }
    }
    if (whole && *l->at == '0' && strspn(l->at, "0_") < (size_t)(p - l->at))
        fail(l, "a number without zeros before it"); /* 01 are two numbers to Jinja */
    add(l, whole ? SHEAF__T_INT : SHEAF__T_FLOAT, (sheaf__jtext){ l->at, (size_t)(p - l->at) });
    l->at = p;
}

static void take_operator(lexer *l)
{
    static const char *const signs[] = { "//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                         "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                         ">",  "<",  "=",  ".",  ":",  "|",  ",", ";" };
    static const char opening[] = "([{", closing[] = ")]}";
    for (size_t i = 0; i < sizeof signs / sizeof *signs; i++) {
        if (!starts(l, signs[i]))
            continue;
        const char *open = strchr(opening, *l->at), *close = strchr(closing, *l->at);
        if (open != NULL && l->opened == SHEAF__J_NESTING)
            sheaf__j_refuse(l->j, "more than %d brackets within each other", SHEAF__J_NESTING);
        if (open != NULL)
            l->open[l->opened++] = closing[open - opening];
        if (close != NULL && (l->opened == 0 || l->open[--l->opened] != *l->at))
            fail(l, "brackets that match");
        add(l, SHEAF__T_SIGN, (sheaf__jtext){ l->at, strlen(signs[i]) });
        l->at += strlen(signs[i]);
        return;
    }
    fail(l, "a name, a string, a number or an operator");
}

static void take_inside(lexer *l, const char *mark, sheaf__jtoken_kind end)
{
    l->opened = 0;
    while (l->at < l->end) {
        if (l->opened == 0 && take_end(l, mark, end == SHEAF__T_BLOCK_END)) {
            add(l, end, SHEAF__J_WORD(""));
            return;
        }
        if (sheaf__utf8_blank(l->at, (size_t)(l->end - l->at)) > 0) {
            skip_blanks(l);
        } else if (is_digit(*l->at)) {
            take_number(l);
        } else if (is_word(*l->at)) {
            const char *from = l->at;
            while (l->at < l->end && is_word(*l->at))
                l->at++;
            add(l, SHEAF__T_NAME, (sheaf__jtext){ from, (size_t)(l->at - from) });
        } else if (*l->at == '\'' || *l->at == '"') {
            take_string(l);
        } else {
            take_operator(l);
        }
    }
    fail(l, end == SHEAF__T_BLOCK_END ? "%}" : "}}");
}

/* ---- all of it ---- */

/* Line ends as \n, the last one dropped. */
static sheaf__jtext normal(sheaf__j *j, const char *source, size_t size)
{
    char *to = sheaf__j_take(j, size + 1);
    size_t n = 0;
    for (size_t i = 0; i < size; i++) {
        const bool pair = source[i] == '\r' && i + 1 < size && source[i + 1] == '\n';
        to[n++] = source[i] == '\r' ? '\n' : source[i];
        i += pair;
    }
    return (sheaf__jtext){ to, n > 0 && to[n - 1] == '\n' ? n - 1 : n };
}

static const char *next_mark(const lexer *l)
{
    for (const char *p = l->at; p + 1 < l->end; p++)
        if (*p == '{' && (p[1] == '%' || p[1] == '{' || p[1] == '#'))
            return p;
    return l->end;
}

sheaf__jtoken *sheaf__j_tokens(sheaf__j *j, const char *source, size_t size)
{
    const sheaf__jtext text = normal(j, source, size);
    lexer l = { .j = j, .at = text.at, .end = text.at + text.size, .line = 1, .line_begins = true };
    while (l.at < l.end) {
        const char *const from = l.at, *const mark = next_mark(&l);
        const char kind = mark < l.end ? mark[1] : '\0';
        go_to(&l, mark);
        l.at += kind == '\0' ? 0 : 2;
        const char sign = kind == '\0' ? '\0' : take_sign(&l);
        add_data(&l, from, (size_t)(mark - from), sign, kind == '%' || kind == '#');
        l.line_begins = false;
        if (kind == '#') {
            take_comment(&l);
        } else if (kind == '{') {
            add(&l, SHEAF__T_PRINT, SHEAF__J_WORD(""));
            take_inside(&l, "}}", SHEAF__T_PRINT_END);
        } else if (kind == '%' && !take_raw(&l)) {
            add(&l, SHEAF__T_BLOCK, SHEAF__J_WORD(""));
            take_inside(&l, "%}", SHEAF__T_BLOCK_END);
        }
    }
    add(&l, SHEAF__T_END, SHEAF__J_WORD(""));
    return l.token;
}
