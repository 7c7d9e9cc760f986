/* text.c - see text.h. */
#include "text.h"

#include <ctype.h>
#include <stdarg.h>

#include "base/base.h"

static bool reserve(sheaf_text *text, size_t more)
{
    if (text->failed || more >= SIZE_MAX / 2 - text->size) {
        text->failed = true;
        return false;
    }
    if (text->size + more + 1 <= text->capacity)
        return true;
    size_t capacity =
        text->capacity * 2 > text->size + more + 1 ? text->capacity * 2 : text->size + more + 1;
    if (capacity < 64)
        capacity = 64;
    char *at = realloc(text->at, capacity);
    if (at == NULL) {
        text->failed = true;
        return false;
    }
    text->at = at;
    text->capacity = capacity;
    return true;
}

void sheaf__text_bytes(sheaf_text *text, const void *bytes, size_t size)
{
    if (!reserve(text, size))
        return;
    if (size > 0)
        memcpy(text->at + text->size, bytes, size);
    text->size += size;
    text->at[text->size] = '\0';
}

void sheaf__text_little(sheaf_text *text, uint64_t number, int bytes)
{
    for (; bytes-- > 0; number >>= 8)
        sheaf__text_bytes(text, &(char){ (char)(number & 0xff) }, 1);
}

void sheaf__text_add(sheaf_text *text, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    char *piece = NULL;
    const int n = vasprintf(&piece, fmt, args);
    va_end(args);
    if (n < 0) {
        text->failed = true;
        return;
    }
    sheaf__text_bytes(text, piece, (size_t)n);
    free(piece);
}

void sheaf__text_word(sheaf_text *text, const char *word)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
    if (*word != '\0' && word[strspn(word, plain)] == '\0') {
        sheaf__text_bytes(text, word, strlen(word));
        return;
    }
    sheaf__text_bytes(text, "'", 1);
    for (const char *p = word; *p != '\0'; p++)
        if (*p == '\'')
            sheaf__text_bytes(text, "'\\''", 4);
        else
            sheaf__text_bytes(text, p, 1);
    sheaf__text_bytes(text, "'", 1);
}

/* The character at p, *n bytes there, as UTF-8: `length` bytes at *shown. A byte that is no part of
 * UTF-8 is U+FFFD. */
static size_t shown_character(const char **shown, size_t *n, const void *p, size_t left)
{
    const size_t length = sheaf__utf8_length(p, left);
    *n = length > 0 ? length : 1;
    *shown = length > 0 ? p : "\xEF\xBF\xBD";
    return length > 0 ? length : 3;
}

void sheaf__text_json(sheaf_text *text, const char *string)
{
    sheaf__text_json_bytes(text, string, strlen(string));
}

void sheaf__text_json_bytes(sheaf_text *text, const char *bytes, size_t size)
{
    sheaf__text_bytes(text, "\"", 1);
    const unsigned char *p = (const unsigned char *)bytes;
    for (size_t left = size, n; left > 0; p += n, left -= n) {
        static const char plain[] = "\"\\\b\f\n\r\t", letter[] = "\"\\bfnrt";
        const char *special = *p != '\0' ? strchr(plain, *p) : NULL;
        const char *shown;
        const size_t length = shown_character(&shown, &n, p, left);
        if (special != NULL)
            sheaf__text_add(text, "\\%c", letter[special - plain]);
        else if (*p < 0x20)
            sheaf__text_add(text, "\\u%04x", *p);
        else
            sheaf__text_bytes(text, shown, length);
    }
    sheaf__text_bytes(text, "\"", 1);
}

void sheaf__text_utf8(sheaf_text *text, const char *string)
{
    for (size_t left = strlen(string), n; left > 0; string += n, left -= n) {
        const char *shown;
        const size_t length = shown_character(&shown, &n, string, left);
        sheaf__text_bytes(text, shown, length);
    }
}

sheaf_status *sheaf__text_take(char **out, sheaf_text *text)
{
    if (text->at == NULL)
        reserve(text, 0);
    if (text->failed) {
        sheaf__text_release(text);
        return sheaf__no_memory("out of memory while building a text");
    }
    text->at[text->size] = '\0';
    *out = text->at;
    *text = (sheaf_text){ 0 };
    return NULL;
}

void sheaf__text_release(sheaf_text *text)
{
    free(text->at);
    *text = (sheaf_text){ 0 };
}

bool sheaf__same_shape(int ndim, const int64_t *shape, int other_ndim, const int64_t *other)
{
    return ndim == other_ndim && memcmp(shape, other, (size_t)ndim * sizeof *shape) == 0;
}

const char *sheaf__show_shape(char text[128], int ndim, const int64_t *shape)
{
    size_t n = (size_t)snprintf(text, 128, "[");
    for (int d = 0; d < ndim && n < 100; d++)
        n += (size_t)snprintf(text + n, 128 - n, "%s%" PRId64, d > 0 ? ", " : "", shape[d]);
    snprintf(text + n, 128 - n, "]");
    return text;
}

bool sheaf__is_listed(const char *list, const char *word, size_t length)
{
    for (size_t n; *list != '\0'; list += n + (list[n] == ' ')) {
        n = strcspn(list, " ");
        if (n == length && memcmp(list, word, n) == 0)
            return true;
    }
    return false;
}

int sheaf__hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static int base64_digit(char c)
{
    return c >= 'A' && c <= 'Z'   ? c - 'A'
           : c >= 'a' && c <= 'z' ? c - 'a' + 26
           : c >= '0' && c <= '9' ? c - '0' + 52
           : c == '+'             ? 62
           : c == '/'             ? 63
                                  : -1;
}

size_t sheaf__base64_decode(unsigned char *out, const char *text, size_t size)
{
    size_t n = 0;
    if (size % 4 != 0)
        return 0;
    for (size_t at = 0; at < size; at += 4) {
        const bool last = at + 4 == size;
        const int pads = !last ? 0 : (text[at + 3] == '=') + (text[at + 2] == '=');
        uint32_t group = 0;
        for (int i = 0; i < 4; i++) {
            const int digit = i >= 4 - pads ? 0 : base64_digit(text[at + (size_t)i]);
            if (digit < 0)
                return 0;
            group = group << 6 | (uint32_t)digit;
        }
        for (int i = 0; i < 3 - pads; i++)
            out[n++] = (unsigned char)(group >> (16 - 8 * i));
    }
    return n;
}

bool sheaf__ends_with(const char *text, const char *end)
{
    const size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

int64_t sheaf__text_count(const char *text, const char *part)
{
    int64_t n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

size_t sheaf__utf8_length(const void *bytes, size_t left)
{
    const unsigned char *p = bytes;
    if (p[0] < 0x80)
        return 1;
    const size_t n = p[0] >= 0xc2 && p[0] < 0xe0   ? 2
                     : (p[0] & 0xf0) == 0xe0       ? 3
                     : p[0] >= 0xf0 && p[0] < 0xf5 ? 4
                                                   : 0;
    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    const bool too_long = (p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xf0 && p[1] < 0x90);
    const bool surrogate = p[0] == 0xed && p[1] >= 0xa0, beyond = p[0] == 0xf4 && p[1] >= 0x90;
    return too_long || surrogate || beyond ? 0 : n;
}

bool sheaf__is_utf8(const char *text)
{
    for (size_t size = strlen(text), n; size > 0; text += n, size -= n)
        if ((n = sheaf__utf8_length(text, size)) == 0)
            return false;
    return true;
}

size_t sheaf__utf8_blank(const char *p, size_t left)
{
    static const char *const wide[] = { "\xc2\x85", "\u00a0", "\u1680", "\u2000", "\u2001",
                                        "\u2002",   "\u2003", "\u2004", "\u2005", "\u2006",
                                        "\u2007",   "\u2008", "\u2009", "\u200a", "\u2028",
                                        "\u2029",   "\u202f", "\u205f", "\u3000" };
    if (left == 0)
        return 0;
    const unsigned char c = (unsigned char)*p;
    if (c < 0x80)
        return c == ' ' || (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x1f);
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        const size_t n = strlen(wide[i]);
        if (n <= left && memcmp(p, wide[i], n) == 0)
            return n;
    }
    return 0;
}

void sheaf__utf8_strip(const char **text, size_t *size)
{
    for (size_t n; (n = sheaf__utf8_blank(*text, *size)) > 0; *text += n)
        *size -= n;
    for (size_t n = 1; n <= 3 && n <= *size; n++)
        if (sheaf__utf8_blank(*text + *size - n, n) == n) {
            *size -= n;
            n = 0;
        }
}

enum { LONGEST_NAME = 128 }; /* a longer name is no typing error */

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Damerau-Levenshtein distance (neighbours may swap once), case folded; another letter in the place
 * of one costs `changed`. */
static int distance(const char *a, const char *b, int changed)
{
    const int na = (int)strlen(a), nb = (int)strlen(b);
    int row[3][LONGEST_NAME + 1]; /* of prefixes of a: two before, one before, this */
    int *before2 = row[0], *before = row[1], *now = row[2];
    for (int j = 0; j <= nb; j++)
        before[j] = j;
    for (int i = 1; i <= na; i++) {
        const int ca = tolower((unsigned char)a[i - 1]);
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            const int cb = tolower((unsigned char)b[j - 1]);
            int d = before[j - 1] + (ca != cb ? changed : 0);
            d = least(d, least(before[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && ca == tolower((unsigned char)b[j - 2]) &&
                cb == tolower((unsigned char)a[i - 2]))
                d = least(d, before2[j - 2] + 1);
            now[j] = d;
        }
        int *spare = before2;
        before2 = before;
        before = now;
        now = spare;
    }
    return before[nb];
}

/* `name` without what does not count into out[LONGEST_NAME + 1], its digits into digits[]. False
 * when it is too long. */
static bool fold(char *out, char *digits, const char *name)
{
    size_t n = 0, d = 0;
    for (; *name != '\0'; name++) {
        if (strchr("-_ ", *name) != NULL)
            continue;
        if (n == LONGEST_NAME)
            return false;
        out[n++] = (char)tolower((unsigned char)*name);
        if (isdigit((unsigned char)*name))
            digits[d++] = *name;
    }
    out[n] = digits[d] = '\0';
    return n > 0;
}

const char *sheaf__misspelt(const char *name, const char *const *list, int n)
{
    char a[LONGEST_NAME + 1], a_digits[LONGEST_NAME + 1], b[LONGEST_NAME + 1],
        b_digits[LONGEST_NAME + 1];
    for (int i = 0; fold(a, a_digits, name) && i < n; i++)
        if (fold(b, b_digits, list[i]) && strcmp(a_digits, b_digits) == 0 && distance(a, b, 2) <= 1)
            return list[i];
    return NULL;
}

const char *sheaf__nearest(const char *name, const char *const *list, int n)
{
    const size_t length = strlen(name);
    const char *best = NULL;
    int best_distance = 0;
    if (length == 0 || length > LONGEST_NAME)
        return NULL;
    for (int i = 0; i < n; i++) {
        const size_t other = strlen(list[i]);
        if (other == 0 || other > LONGEST_NAME)
            continue;
        const int longer = (int)(other > length ? other : length);
        const int allowed = longer / 3 > 1 ? longer / 3 : 1;
        const int d = distance(name, list[i], 1);
        if (d <= allowed && (best == NULL || d < best_distance)) {
            best = list[i];
            best_distance = d;
        }
    }
    return best;
}
