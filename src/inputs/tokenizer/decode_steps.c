/* decode_steps.c - the decoders ByteFallback, Fuse, Strip and Replace. */

#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

/* Passes on all that is held but the last `kept` bytes. */
static void give(sheaf__decoding *d, size_t kept)
{
    if (d->held.failed)
        return;
    sheaf__decoding_put(d, d->held.at, d->held.size - kept);
    memmove(d->held.at, d->held.at + d->held.size - kept, kept);
    d->held.size = kept;
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

static void decode_bytes(const void *state, sheaf__decoding *d, const char *bytes, size_t size,
                         bool end)
{
    const int byte = byte_of(bytes, size);
    const char c = (char)byte;
    if (byte >= 0) {
        sheaf__text_bytes(&d->held, &c, 1);
        return;
    }
    if (sheaf__utf8_valid(d->held.at, d->held.size) < d->held.size) /* each of a row is U+FFFD */
        for (; d->held.size > 0; d->held.size--)
            sheaf__decoding_put(d, "\xef\xbf\xbd", 3);
    else if (d->held.size > 0)
        give(d, 0);
    if (!end)
        sheaf__decoding_put(d, bytes, size);
}

const sheaf__step_kind sheaf__byte_fallback_decoder = {
    .name = "ByteFallback", .keys = "", .decode = decode_bytes, .by_string = true
};

/* ---- Fuse: one string of all ---- */

static void fuse(const void *state, sheaf__decoding *d, const char *bytes, size_t size, bool end)
{
    sheaf__decoding_put(d, bytes, size);
}

const sheaf__step_kind sheaf__fuse_decoder = {
    .name = "Fuse", .keys = "", .decode = fuse, .joins = true
};

/* ---- Strip: a character at the beginning and the end of strings ---- */

typedef struct strip {
    char bytes[4]; /* of the character */
    size_t size;
    int64_t start, stop; /* so many, at most */
} strip;

static sheaf_status *open_strip(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    strip *s = state;
    s->size = sheaf__unicode_put(s->bytes, sheaf__json_character(r, "content"));
    s->start = sheaf__json_int(r, "start", 0, INT64_MAX, SHEAF_JSON_NEEDED);
    s->stop = sheaf__json_int(r, "stop", 0, INT64_MAX, SHEAF_JSON_NEEDED);
    return NULL;
}

static bool is_here(const strip *s, const char *bytes, size_t size)
{
    return size >= s->size && memcmp(bytes, s->bytes, s->size) == 0;
}

static void decode_strip(const void *state, sheaf__decoding *d, const char *bytes, size_t size,
                         bool end)
{
    const strip *s = state;
    const sheaf_text *held = &d->held;
    size_t kept = 0; /* what is held then is what is to go */
    if (!d->one)
        d->taken = 0;
    for (; d->taken < s->start && is_here(s, bytes, size); d->taken++) {
        bytes += s->size;
        size -= s->size;
    }
    if (size == 0 && d->one)
        return;
    d->taken = s->start;
    sheaf__text_bytes(&d->held, bytes, size);
    for (int64_t k = 0; k < s->stop && held->size >= kept + s->size &&
                        is_here(s, held->at + held->size - kept - s->size, s->size);
         k++)
        kept += s->size;
    give(d, kept);
    if (!d->one)
        d->held.size = 0;
}

const sheaf__step_kind sheaf__strip_decoder = { .name = "Strip",
                                                .keys = "content start stop",
                                                .size = sizeof(strip),
                                                .open = open_strip,
                                                .decode = decode_strip };

/* ---- Replace ---- */

/* Of the one string the end may be the beginning of what is replaced. */
static void decode_replace(const void *state, sheaf__decoding *d, const char *bytes, size_t size,
                           bool end)
{
    const sheaf__replacing *s = state;
    sheaf__text_bytes(&d->held, bytes, size);
    const char *at = d->held.at, *const stop = at + d->held.size;
    d->made.size = 0;
    for (const char *here; (here = sheaf__replacing_next(s, at, (size_t)(stop - at))) != NULL;) {
        sheaf__text_bytes(&d->made, at, (size_t)(here - at));
        sheaf__text_bytes(&d->made, s->content, s->size);
        at = here + s->literal_size;
    }
    size_t kept = s->literal_size - 1;
    kept = !d->one || end ? 0 : kept < (size_t)(stop - at) ? kept : (size_t)(stop - at);
    while (kept > 0 && memcmp(stop - kept, s->literal, kept) != 0)
        kept--;
    sheaf__text_bytes(&d->made, at, (size_t)(stop - at) - kept);
    memmove(d->held.at, stop - kept, kept);
    d->held.size = kept;
    sheaf__decoding_put(d, d->made.at, d->made.size);
}

const sheaf__step_kind sheaf__replace_decoder = { .name = "Replace",
                                                  .keys = "pattern content",
                                                  .size = sizeof(sheaf__replacing),
                                                  .open = sheaf__replacing_open,
                                                  .decode = decode_replace,
                                                  .close = sheaf__replacing_close };
