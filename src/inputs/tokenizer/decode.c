/* decode.c - ids to a text, at once or as a stream.
 *
 * Each decoder processes the strings of a text in order, and holds back what later strings may
 * change: bytes of an incomplete character, blanks to be stripped at the end. So a stream returns
 * text as far as it is certain; decoding all at once is a stream that ends. */

#include "kinds.h"
#include "unicode.h"
#include "base/base.h"

struct sheaf__token_stream {
    const sheaf__tokenizer *t;
    bool skip_special, started; /* started: an id had a string */
    int64_t pushed;
    sheaf__decoding *at; /* [t->decoder.count + 1], the last of which holds the text */
    sheaf_text rest;
};

/* ---- the strings of ids ---- */

/* The string of an id before the decoders; NULL: none. */
static const char *string_of(const sheaf__tokenizer *t, int32_t id, bool skip_special, size_t *size)
{
    const sheaf__added_token *added = sheaf__added_of(&t->added, id);
    if (added == NULL) {
        const char *token = sheaf__vocab_token(&t->vocab, id, size);
        if (token != NULL || t->pieces == 0 || id < t->pieces)
            return token;
        *size = 3;
        return "\xef\xbf\xbd";
    }
    /* `tokenizers` compares strings, not ids, with special tokens. */
    const sheaf__added_token *same =
        added->normal == added->content
            ? added
            : sheaf__added_find(&t->added, added->normal, added->normal_size);
    if (skip_special && same != NULL && same->special)
        return NULL;
    *size = added->normal_size;
    return added->normal;
}

/* ---- running the decoders ---- */

static void take(sheaf__decoding *d, const char *bytes, size_t size)
{
    if (d->kind != NULL && !(d->one && d->kind->by_string))
        d->kind->decode(d->state, d, bytes, size, false);
    else /* the one string may continue */
        sheaf__text_bytes(d->kind == NULL ? &d->held : &d->whole, bytes, size);
}

void sheaf__decoding_put(sheaf__decoding *d, const char *bytes, size_t size)
{
    d->out += size;
    d->grown = d->grown || d->out > sheaf__growth(*d->given);
    if (!d->grown)
        take(d + 1, bytes, size);
}

static sheaf_status *check(const sheaf__token_stream *s)
{
    for (const sheaf__decoding *d = s->at;; d++) {
        if (d->held.failed || d->made.failed || d->whole.failed)
            return sheaf__no_memory("a text");
        if (d->grown)
            return sheaf__grown(d->kind->name, sheaf__growth(*d->given));
        if (d->kind == NULL)
            return NULL;
    }
}

/* Flushes the decoders. */
static sheaf_status *end_all(sheaf__token_stream *s)
{
    for (sheaf__decoding *d = s->at; d->kind != NULL; d++) {
        if (d->one && d->kind->by_string)
            d->kind->decode(d->state, d, d->whole.at, d->whole.size, false);
        d->kind->decode(d->state, d, "", 0, true);
    }
    return check(s);
}

/* ---- a stream ---- */

sheaf_status *sheaf__token_stream_new(sheaf__token_stream **out, const sheaf__tokenizer *t,
                                      bool skip_special)
{
    sheaf__token_stream *s = calloc(1, sizeof *s);
    if (s == NULL || (s->at = calloc((size_t)t->decoder.count + 1, sizeof *s->at)) == NULL) {
        free(s);
        return sheaf__no_memory("a text");
    }
    s->t = t;
    s->skip_special = skip_special;
    for (int64_t i = 0; i < t->decoder.count; i++) {
        s->at[i].kind = t->decoder.step[i].kind;
        s->at[i].state = t->decoder.step[i].state;
        s->at[i + 1].one = s->at[i].one || s->at[i].kind->joins;
    }
    for (int64_t i = 0; i <= t->decoder.count; i++)
        s->at[i].given = &s->at[0].in;
    *out = s;
    return NULL;
}

void sheaf__token_stream_free(sheaf__token_stream *s)
{
    if (s == NULL)
        return;
    for (int64_t i = 0; i <= s->t->decoder.count; i++) {
        sheaf__text_release(&s->at[i].held);
        sheaf__text_release(&s->at[i].made);
        sheaf__text_release(&s->at[i].whole);
    }
    free(s->at);
    sheaf__text_release(&s->rest);
    free(s);
}

/* Returns the text so far and resets it for the next call. */
static sheaf_status *look(const char **text, size_t *size, sheaf__token_stream *s, sheaf_status *st)
{
    sheaf_text *all = &s->at[s->t->decoder.count].held;
    *text = all->size > 0 ? all->at : "";
    if (size != NULL)
        *size = all->size;
    all->size = 0;
    return st;
}

static sheaf_status *push(sheaf__token_stream *s, int32_t id)
{
    size_t size;
    if (id < 0) {
        sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "id %" PRId64, s->pushed + 1);
        return sheaf_found(sheaf_expected(st, "a token"), "%" PRId32, id);
    }
    s->pushed++;
    const char *string = string_of(s->t, id, s->skip_special, &size);
    if (string == NULL)
        return NULL;
    if (!s->t->has_decoder && s->started)
        take(s->at, " ", 1);
    s->started = true;
    s->at[0].in += size;
    take(s->at, string, size);
    return check(s);
}

sheaf_status *sheaf__token_stream_push(const char **text, size_t *size, sheaf__token_stream *s,
                                       int32_t id)
{
    return look(text, size, s, push(s, id));
}

/* A copy, whose text is empty. */
static sheaf_status *copy(sheaf__token_stream **out, const sheaf__token_stream *s)
{
    sheaf_status *st = sheaf__token_stream_new(out, s->t, s->skip_special);
    for (int64_t i = 0; st == NULL && i < s->t->decoder.count; i++) {
        const sheaf__decoding *d = &s->at[i];
        sheaf__decoding *to = &(*out)->at[i];
        sheaf__text_bytes(&to->held, d->held.at, d->held.size);
        sheaf__text_bytes(&to->whole, d->whole.at, d->whole.size);
        to->taken = d->taken;
        to->in = d->in;
        to->raw = d->raw;
    }
    if (st == NULL)
        (*out)->started = s->started;
    return st;
}

/* What a copy would give after the id, or at the end for NULL; kept until the next call. */
static sheaf_status *peek(const char **text, size_t *size, sheaf__token_stream *s,
                          const int32_t *id)
{
    sheaf__token_stream *ahead = NULL;
    const char *bytes = "";
    *size = 0;
    sheaf_status *st = copy(&ahead, s);
    TRY(st, look(&bytes, size, ahead, id == NULL ? end_all(ahead) : push(ahead, *id)));
    s->rest.size = 0;
    sheaf__text_bytes(&s->rest, bytes, *size);
    *text = s->rest.size > 0 ? s->rest.at : "";
    if (st == NULL && s->rest.failed)
        st = sheaf__no_memory("a text");
    sheaf__token_stream_free(ahead);
    return st;
}

sheaf_status *sheaf__token_stream_rest(const char **text, size_t *size, sheaf__token_stream *s)
{
    return peek(text, size, s, NULL);
}

sheaf_status *sheaf__token_stream_push_if(const char **text, size_t *size, sheaf__token_stream *s,
                                          int32_t id)
{
    return peek(text, size, s, &id);
}

void sheaf__token_stream_set_bytes(sheaf__token_stream *s)
{
    for (int64_t i = 0; i < s->t->decoder.count; i++)
        s->at[i].raw = true;
}

sheaf_status *sheaf__tokenizer_decode(char **text, size_t *size, const sheaf__tokenizer *t,
                                      const int32_t *ids, int64_t n, bool skip_special)
{
    sheaf__token_stream *s = NULL;
    sheaf_status *st = sheaf__token_stream_new(&s, t, skip_special);
    for (int64_t i = 0; st == NULL && i < n; i++)
        st = push(s, ids[i]);
    TRY(st, end_all(s));
    if (st == NULL && size != NULL)
        *size = s->at[t->decoder.count].held.size;
    TRY(st, sheaf__text_take(text, &s->at[t->decoder.count].held));
    sheaf__token_stream_free(s);
    return st;
}

/* ---- ByteFallback, Fuse, Strip and Replace ---- */

/* Passes on the held text except the last `kept` bytes. */
static void give(sheaf__decoding *d, size_t kept)
{
    if (d->held.failed)
        return;
    sheaf__decoding_put(d, d->held.at, d->held.size - kept);
    memmove(d->held.at, d->held.at + d->held.size - kept, kept);
    d->held.size = kept;
}

/* ---- ByteFallback: tokens <0x00> to <0xFF> are bytes ---- */

int sheaf__byte_of(const char *token, size_t size)
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
    const int byte = sheaf__byte_of(bytes, size);
    const char c = (char)byte;
    if (byte >= 0 && d->raw) {
        sheaf__decoding_put(d, &c, 1);
        return;
    }
    if (byte >= 0) {
        sheaf__text_bytes(&d->held, &c, 1);
        return;
    }
    if (sheaf__utf8_valid(d->held.at, d->held.size) < d->held.size) /* each of them is U+FFFD */
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
    int64_t start, stop; /* at most so many */
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
    size_t kept = 0; /* bytes held back for stripping */
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

/* The end of a part may be the beginning of a match. */
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
