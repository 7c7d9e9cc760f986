/* stream.c - ids to a text as they come.
 *
 * A stream keeps the ids of a short window, whose text begins with what was shown of it. Later ids
 * add to the end of that text. From time to time the window drops its first ids. The rest decodes
 * to another text, whose beginning was shown; later ids add the same to it, because a decoder looks
 * back no further than at one string, but for Strip, which takes what a text begins with; a window
 * whose text is not empty has that behind it. */

#include "kinds.h"
#include "base/base.h"

static const char replacement[] = "\xef\xbf\xbd"; /* U+FFFD */
enum { REPLACEMENT = sizeof replacement - 1 };

struct sheaf__token_stream {
    const sheaf__tokenizer *t;
    bool skip_special;
    bool whole;  /* nothing is certain before the end */
    bool bytes;  /* the decoders are ByteLevel */
    int32_t *id; /* the window: ids that stand for something */
    int64_t ids, capacity;
    int64_t closed; /* the first ids of the window, whose text does not change any more */
    int64_t kept;   /* ids in the window when it last dropped some */
    int64_t pushed, work;
    sheaf_text shown; /* of the window's text */
    sheaf_text piece; /* what the caller looks at */
    sheaf__strings text;
};

/* Of bytes that other decoders change it is not known which are shown already. */
static bool is_whole(const sheaf__tokenizer *t)
{
    int64_t bytes = 0;
    for (int64_t i = 0; i < t->decoder.count; i++) {
        const sheaf__step *d = &t->decoder.step[i];
        bytes += d->kind == &sheaf__byte_level_decoder;
        if (d->kind->whole != NULL && d->kind->whole(d->state))
            return true;
    }
    return bytes > 0 && bytes < t->decoder.count;
}

sheaf_status *sheaf__token_stream_new(sheaf__token_stream **out, const sheaf__tokenizer *t,
                                      bool skip_special)
{
    sheaf__token_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sheaf__no_memory("a text");
    s->t = t;
    s->skip_special = skip_special;
    s->whole = is_whole(t);
    s->bytes = t->decoder.count > 0 && t->decoder.step[0].kind == &sheaf__byte_level_decoder;
    *out = s;
    return NULL;
}

void sheaf__token_stream_free(sheaf__token_stream *s)
{
    if (s == NULL)
        return;
    free(s->id);
    sheaf__text_release(&s->shown);
    sheaf__text_release(&s->piece);
    sheaf__strings_release(&s->text);
    free(s);
}

int64_t sheaf__token_stream_work(const sheaf__token_stream *s)
{
    return s->work;
}

/* May what this string gives change with those that follow? */
static bool is_open(const sheaf__token_stream *s, const char *string, size_t size)
{
    for (int64_t i = 0; i < s->t->decoder.count; i++) {
        const sheaf__step *d = &s->t->decoder.step[i];
        if (d->kind->open_end != NULL && d->kind->open_end(d->state, string, size))
            return true;
    }
    return false;
}

/* The text of `n` ids of the window, from `first` on, to s->text. */
static sheaf_status *decode(sheaf__token_stream *s, int64_t first, int64_t n)
{
    s->work += n;
    const int32_t *id = n == 0 ? NULL : s->id + first;
    return sheaf__decode_to(&s->text, s->t, id, n, s->skip_special);
}

/* Bytes of s->text that do not change any more: a character may lack its last bytes. */
static size_t certain(const sheaf__token_stream *s)
{
    const sheaf_text *all = &s->text.bytes;
    const size_t end = all->size;
    /* It is the last alone: what cannot be a beginning is a character by itself. */
    const bool open = s->bytes && end >= REPLACEMENT &&
                      memcmp(all->at + end - REPLACEMENT, replacement, REPLACEMENT) == 0;
    return open ? end - REPLACEMENT : end;
}

/* What of s->text, up to `end`, was not shown yet: to s->piece. */
static sheaf_status *show(sheaf__token_stream *s, size_t end, bool may_wait)
{
    const sheaf_text *all = &s->text.bytes;
    const size_t begin = s->shown.size;
    s->piece.size = 0;
    if (end < begin || (begin > 0 && memcmp(all->at, s->shown.at, begin) != 0))
        return may_wait ? NULL
                        : sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "decoder"),
                                         "a text that begins with what was shown of it");
    if (end == begin)
        return NULL;
    sheaf__text_bytes(&s->piece, all->at + begin, end - begin);
    sheaf__text_bytes(&s->shown, all->at + begin, end - begin);
    return s->piece.failed || s->shown.failed ? sheaf__no_memory("a text") : NULL;
}

/* ---- dropping ids ---- */

static sheaf_status *keep_last(sheaf__token_stream *s, int64_t n)
{
    memmove(s->id, s->id + s->ids - n, (size_t)n * sizeof *s->id);
    s->ids = s->closed = s->kept = n;
    s->shown.size = 0;
    sheaf__text_bytes(&s->shown, s->text.bytes.at, certain(s));
    return s->shown.failed ? sheaf__no_memory("a text") : NULL;
}

/* All of the window was shown. The least that what follows may look back at: of one decoder a
 * string; of several, which may leave strings out or strip them, ids with a text. None waits. */
static sheaf_status *drop_first(sheaf__token_stream *s)
{
    const bool one = s->t->decoder.count <= 1;
    for (int64_t n = 1; n < s->ids; n *= 2) {
        sheaf_status *st = decode(s, s->ids - n, n);
        if (st != NULL)
            return st;
        const size_t size = s->text.bytes.size;
        if (certain(s) == size && (one || size > 0))
            return keep_last(s, n);
    }
    s->kept = s->ids;
    return NULL;
}

/* Bytes that are no UTF-8 wait for others: a character has four at most, and each string has one.
 * Where a window begins inside of a character, that may be seen in its first three bytes. */
static sheaf_status *drop_bytes(sheaf__token_stream *s)
{
    enum { LONG = 32, NEEDED = 8 };
    int64_t n = 0, strings = 0;
    size_t size;
    if (s->ids < s->kept + LONG)
        return NULL;
    while (n < s->ids && strings < NEEDED) {
        n++;
        sheaf__string_of(s->t, s->id[s->ids - n], s->skip_special, &size);
        strings += size > 0;
    }
    sheaf_status *st = decode(s, s->ids - n, n);
    return st != NULL ? st : keep_last(s, n);
}

/* ---- the calls ---- */

static sheaf_status *advance(sheaf__token_stream *s)
{
    sheaf_status *st = decode(s, 0, s->closed);
    TRY(st, show(s, certain(s), true));
    const bool all = st == NULL && s->closed == s->ids && s->shown.size == s->text.bytes.size;
    if (all && s->bytes) {
        s->ids = s->closed = s->kept = 0;
        s->shown.size = 0;
    } else if (st == NULL && s->bytes)
        st = drop_bytes(s);
    else if (all && s->ids > 2 * s->kept + 2)
        st = drop_first(s);
    return st;
}

static void look(const char **text, size_t *size, const sheaf__token_stream *s)
{
    *text = s->piece.size > 0 ? s->piece.at : "";
    if (size != NULL)
        *size = s->piece.size;
}

sheaf_status *sheaf__token_stream_push(const char **text, size_t *size, sheaf__token_stream *s,
                                       int32_t id)
{
    size_t bytes;
    sheaf_status *st = sheaf__check_id(id, s->pushed);
    if (st != NULL)
        return st;
    s->pushed++;
    s->piece.size = 0;
    const char *string = sheaf__string_of(s->t, id, s->skip_special, &bytes);
    if (string != NULL) {
        if (!SHEAF_GROW(&s->id, &s->capacity, s->ids + 1))
            return sheaf__no_memory("a text");
        s->id[s->ids++] = id;
        if (!s->whole && !is_open(s, string, bytes)) {
            s->closed = s->ids;
            st = advance(s);
        }
    }
    look(text, size, s);
    return st;
}

sheaf_status *sheaf__token_stream_rest(const char **text, size_t *size, sheaf__token_stream *s)
{
    sheaf_status *st = s->closed == s->ids ? NULL : decode(s, 0, s->ids);
    const sheaf_text *all = &s->text.bytes;
    const size_t begin = s->shown.size;
    const bool some = st == NULL && s->closed < s->ids && all->size > begin &&
                      (begin == 0 || memcmp(all->at, s->shown.at, begin) == 0);
    *size = some ? all->size - begin : 0;
    *text = some ? all->at + begin : "";
    return st;
}

sheaf_status *sheaf__token_stream_finish(const char **text, size_t *size, sheaf__token_stream *s)
{
    sheaf_status *st = decode(s, 0, s->ids);
    TRY(st, show(s, s->text.bytes.size, false));
    s->ids = s->closed = s->kept = s->pushed = 0;
    s->shown.size = 0;
    look(text, size, s);
    return st;
}
