/* decode_steps.c - the decoders ByteFallback, Fuse, Strip and Replace. */

#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

typedef struct view {
    const char *at;
    size_t size;
} view;

static view token_of(const sheaf__strings *in, int64_t i)
{
    const size_t begin = sheaf__strings_begin(in, i);
    return (view){ in->bytes.at + begin, in->end[i] - begin };
}

static sheaf_status *done(const sheaf_text *scratch)
{
    return scratch->failed ? sheaf__no_memory("a text") : NULL;
}

/* ---- ByteFallback: tokens <0x00> to <0xFF> are bytes ---- */

/* -1: the token is none. */
static int byte_of(const char *token, size_t size)
{
    if (size != 6 || memcmp(token, "<0x", 3) != 0 || token[5] != '>')
        return -1;
    const int high = token[3] == '+' ? 0 : sheaf__hex_digit(token[3]),
              low = sheaf__hex_digit(token[4]);
    return high < 0 || low < 0 ? -1 : 16 * high + low;
}

/* Bytes in a row that are no UTF-8 are each U+FFFD. */
static void add_bytes(sheaf__strings *out, sheaf_text *bytes)
{
    size_t n = 1, at = 0;
    for (; at < bytes->size && n > 0; at += n)
        n = sheaf__utf8_length(bytes->at + at, bytes->size - at);
    if (n > 0 && bytes->size > 0)
        sheaf__strings_add(out, bytes->at, bytes->size);
    for (size_t i = 0; n == 0 && i < bytes->size; i++)
        sheaf__strings_add(out, "\xef\xbf\xbd", 3);
    bytes->size = 0;
}

static sheaf_status *run_bytes(const void *state, sheaf__strings *out, const sheaf__strings *in)
{
    sheaf_text bytes = { 0 };
    (void)state;
    for (int64_t i = 0; i < in->count; i++) {
        const view token = token_of(in, i);
        const int byte = byte_of(token.at, token.size);
        const char c = (char)byte;
        if (byte >= 0) {
            sheaf__text_bytes(&bytes, &c, 1);
            continue;
        }
        add_bytes(out, &bytes);
        sheaf__strings_add(out, token.at, token.size);
    }
    add_bytes(out, &bytes);
    sheaf_status *st = done(&bytes);
    sheaf__text_release(&bytes);
    return st;
}

static bool is_byte(const void *state, const char *token, size_t size)
{
    (void)state;
    return byte_of(token, size) >= 0;
}

const sheaf__step_kind sheaf__byte_fallback_decoder = {
    .name = "ByteFallback", .open = sheaf__open_plain, .decode = run_bytes, .open_end = is_byte
};

/* ---- Fuse: one string of all ---- */

static sheaf_status *run_fuse(const void *state, sheaf__strings *out, const sheaf__strings *in)
{
    (void)state;
    sheaf__strings_add(out, in->bytes.at, in->count > 0 ? in->end[in->count - 1] : 0);
    return NULL;
}

const sheaf__step_kind sheaf__fuse_decoder = { .name = "Fuse",
                                               .open = sheaf__open_plain,
                                               .decode = run_fuse };

/* ---- Strip: a character at the beginning and the end of strings ---- */

typedef struct strip {
    char bytes[4]; /* of the character */
    size_t size;
    int64_t start, stop; /* so many, at most */
} strip;

static sheaf_status *open_strip(void **state, sheaf_json_reader *r, sheaf__opening *how)
{
    static const char *const keys[] = { "content", "start", "stop", NULL };
    strip *s = calloc(1, sizeof *s);
    (void)how;
    *state = s;
    if (s == NULL)
        return sheaf__no_memory("Strip");
    sheaf__only_keys(r, keys);
    s->size = sheaf__unicode_put(s->bytes, sheaf__json_character(r, "content"));
    s->start = sheaf__json_int(r, "start", 0, INT64_MAX, SHEAF_JSON_NEEDED);
    s->stop = sheaf__json_int(r, "stop", 0, INT64_MAX, SHEAF_JSON_NEEDED);
    return NULL;
}

static sheaf_status *run_strip(const void *state, sheaf__strings *out, const sheaf__strings *in)
{
    const strip *s = state;
    for (int64_t i = 0; i < in->count; i++) {
        view token = token_of(in, i);
        for (int64_t k = 0;
             k < s->start && token.size >= s->size && memcmp(token.at, s->bytes, s->size) == 0; k++)
            token = (view){ token.at + s->size, token.size - s->size };
        for (int64_t k = 0; k < s->stop && token.size >= s->size &&
                            memcmp(token.at + token.size - s->size, s->bytes, s->size) == 0;
             k++)
            token.size -= s->size;
        sheaf__strings_add(out, token.at, token.size);
    }
    return NULL;
}

/* A string that Fuse made ends with the text. */
static bool strips_end(const void *state)
{
    return ((const strip *)state)->stop > 0;
}

const sheaf__step_kind sheaf__strip_decoder = {
    .name = "Strip", .open = open_strip, .decode = run_strip, .close = free, .whole = strips_end
};

/* ---- Replace ---- */

static sheaf_status *run_replace(const void *state, sheaf__strings *out, const sheaf__strings *in)
{
    const sheaf__replacing *s = state;
    for (int64_t i = 0; i < in->count; i++) {
        view token = token_of(in, i);
        sheaf__strings_add(out, "", 0);
        for (const char *at; (at = sheaf__replacing_next(s, token.at, token.size)) != NULL;) {
            sheaf__strings_append(out, token.at, (size_t)(at - token.at));
            sheaf__strings_append(out, s->content, s->size);
            token.size -= (size_t)(at - token.at) + s->literal_size;
            token.at = at + s->literal_size;
        }
        sheaf__strings_append(out, token.at, token.size);
    }
    return NULL;
}

/* After Fuse, more than one character may match over what comes next; U+FFFD may yet become
 * another. */
static bool matches_more(const void *state)
{
    const sheaf__replacing *s = state;
    size_t n;
    sheaf__unicode_take(s->literal, s->literal_size, &n);
    return n != s->literal_size || strcmp(s->literal, "\xef\xbf\xbd") == 0;
}

const sheaf__step_kind sheaf__replace_decoder = { .name = "Replace",
                                                  .open = sheaf__replacing_open,
                                                  .decode = run_replace,
                                                  .close = sheaf__replacing_close,
                                                  .whole = matches_more };
