/* byte_level.c - ByteLevel: each byte of a text becomes a character of an alphabet of 256 printable
 * ones (Radford et al. 2019). As a pre-tokenizer it may also put a blank before the text and divide
 * it by GPT-2's pattern. */
#include "kinds.h"

#include "base/base.h"

uint32_t sheaf__byte_char(unsigned char byte)
{
    if ((byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad))
        return byte;
    return byte <= 0x20 ? 0x100u + byte : byte <= 0xa0 ? 0x121u + (byte - 0x7f) : 0x143u;
}

/* The byte that `code` stands for; -1: none. */
static int char_byte(uint32_t code)
{
    if (code < 0x100)
        return sheaf__byte_char((unsigned char)code) == code ? (int)code : -1;
    if (code <= 0x120)
        return (int)(code - 0x100);
    return code <= 0x142 ? (int)(code - 0x121 + 0x7f) : code == 0x143 ? 0xad : -1;
}

/* ---- the pre-tokenizer ---- */

typedef struct byte_level {
    bool prefix, raw;
    sheaf__pattern *pattern; /* NULL: does not divide */
} byte_level;

static void close_byte_level(void *state)
{
    sheaf__pattern_close(((byte_level *)state)->pattern);
}

static const char keys[] = "add_prefix_space trim_offsets use_regex";

static sheaf_status *open_splitting(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    byte_level *b = state;
    b->prefix = sheaf__json_bool(r, "add_prefix_space", true);
    b->raw = how->last && how->raw;
    sheaf__json_bool(r, "trim_offsets", true); /* of no effect here */
    if (!sheaf__json_bool(r, "use_regex", true))
        return NULL;
    return sheaf__pattern_open(&b->pattern, sheaf__gpt2_pattern, false);
}

static sheaf_status *put_prefix(const void *state, sheaf__edit *e)
{
    if (e->bytes[0] != ' ')
        sheaf__edit_prepend(e, " ", 1);
    sheaf__edit_keep(e, e->size - e->at);
    return NULL;
}

static sheaf_status *divide(const void *state, sheaf__prepared *text, const sheaf__piece *piece)
{
    const byte_level *b = state;
    return sheaf__divide_by(text, piece, b->pattern, SHEAF__ISOLATED, false);
}

/* Each byte's character shares the origin of the byte's. */
static sheaf_status *to_alphabet(const void *state, sheaf__edit *e)
{
    while (e->at < e->size) {
        char bytes[4];
        const size_t n =
            sheaf__unicode_put(bytes, sheaf__byte_char((unsigned char)e->bytes[e->at]));
        sheaf__edit_replace(e, 1, bytes, n);
    }
    return NULL;
}

static sheaf_status *run_splitting(const void *state, sheaf__prepared *text)
{
    const byte_level *b = state;
    sheaf_status *st = NULL;
    if (b->prefix)
        st = sheaf__prepared_rewrite(text, b, put_prefix);
    if (st == NULL && b->pattern != NULL)
        st = sheaf__prepared_split(text, b, divide);
    text->raw = b->raw;
    if (st == NULL && !b->raw)
        st = sheaf__prepared_rewrite(text, b, to_alphabet);
    return st;
}

const sheaf__step_kind sheaf__byte_level_splitting = { "ByteLevel",        keys,
                                                       sizeof(byte_level), open_splitting,
                                                       run_splitting,      close_byte_level };

const sheaf__scanner *sheaf__byte_level_scanner(const void *state, bool *nothing)
{
    const byte_level *b = state;
    *nothing = b->raw && !b->prefix && b->pattern == NULL;
    return b->raw && !b->prefix && b->pattern != NULL ? sheaf__pattern_scanner(b->pattern) : NULL;
}

/* ---- the decoder ---- */

static sheaf_status *open_nothing(void *state, sheaf_json_reader *r, sheaf__opening *how)
{
    sheaf__json_bool(r, "add_prefix_space", true);
    sheaf__json_bool(r, "trim_offsets", true);
    sheaf__json_bool(r, "use_regex", true);
    return NULL;
}

/* The bytes of a token's characters; a token with any other character stands for itself. */
static void from_alphabet(sheaf_text *out, const char *token, size_t size)
{
    const size_t begin = out->size;
    sheaf__text_bytes(out, token, size); /* at most as many */
    if (out->failed)
        return;
    char *to = out->at + begin;
    for (size_t at = 0, n; at < size; at += n) {
        const int byte = char_byte(sheaf__unicode_take(token + at, size - at, &n));
        if (byte < 0) {
            memcpy(out->at + begin, token, size);
            return;
        }
        *to++ = (char)byte;
    }
    out->size = (size_t)(to - out->at);
}

static void decode(const void *state, sheaf__decoding *d, const char *bytes, size_t size, bool end)
{
    from_alphabet(&d->held, bytes, size);
    if (d->raw) {
        if (d->held.size > 0)
            sheaf__decoding_put(d, d->held.at, d->held.size);
        d->held.size = 0;
        return;
    }
    d->made.size = 0;
    const size_t done = sheaf__text_lossy(&d->made, d->held.at, d->held.size, end);
    d->held.size -= done;
    memmove(d->held.at, d->held.at + done, d->held.size);
    sheaf__decoding_put(d, d->made.at, d->made.size);
}

const sheaf__step_kind sheaf__byte_level_decoder = {
    .name = "ByteLevel",
    .keys = keys,
    .open = open_nothing,
    .decode = decode,
    .joins = true,
    .by_string = true,
};

/* ---- the post-processor: it trims offsets in `tokenizers`. Ours are the bytes that a token stands
 * for, its blanks included. ---- */

const sheaf__step_kind sheaf__byte_level_post = { .name = "ByteLevel",
                                                  .keys = keys,
                                                  .open = open_nothing };

/* ---- UTF-8 of any bytes ---- */

/* The bytes that one U+FFFD replaces at `p`, where no character is; *open: may be an incomplete
 * character. */
static size_t lossy_length(bool *open, const char *p, size_t left)
{
    const unsigned char *b = (const unsigned char *)p;
    const unsigned char lead = b[0];
    const size_t n = lead < 0xc2 || lead > 0xf4 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    /* Valid second bytes: no overlong forms, no surrogates, up to U+10FFFF. */
    const unsigned char least = lead == 0xe0   ? 0xa0
                                : lead == 0xf0 ? 0x90
                                               : 0x80,
                        most = lead == 0xed   ? 0x9f
                               : lead == 0xf4 ? 0x8f
                                              : 0xbf;
    size_t i = 1;
    while (i < n && i < left && (i == 1 ? b[1] >= least && b[1] <= most : (b[i] & 0xc0) == 0x80))
        i++;
    *open = i == left && i < n;
    return i;
}

size_t sheaf__text_lossy(sheaf_text *text, const char *bytes, size_t size, bool end)
{
    size_t at = 0;
    bool open = false;
    for (size_t n; at < size; at += n) {
        n = sheaf__utf8_valid(bytes + at, size - at);
        if (n > 0) {
            sheaf__text_bytes(text, bytes + at, n);
            continue;
        }
        n = lossy_length(&open, bytes + at, size - at);
        if (open && !end)
            break;
        sheaf__text_bytes(text, "\xef\xbf\xbd", 3);
    }
    return at;
}
