/* pieces.c - see pieces.h. */
#include "pieces.h"

#include "unicode.h"
#include "base/base.h"

/* ---- words ---- */

/* Stores the model's ids of a piece, from `first` on, in the cache. */
static void remember(sheaf__word *place, const sheaf__piece_here *p, const sheaf__work *w,
                     int64_t first)
{
    const int64_t count = w->out.count - first;
    if (w->out.failed || count > SHEAF__WORD_IDS)
        return;
    for (int64_t i = 0; i < count; i++) {
        place->id[i] = w->out.id[first + i];
        *sheaf__word_end(place, i) = w->ends[i];
    }
    memcpy(place->key, p->key, sizeof p->key);
    place->count = (uint8_t)count;
    place->size = (uint8_t)p->size;
}

static sheaf_status *encode_piece(const sheaf__queue *q, const sheaf__piece_here *p)
{
    sheaf__work *w = q->w;
    bool found = false;
    w->bytes = p->bytes;
    w->size = p->size;
    w->origin = p->origin;
    w->from = p->from;
    if (p->size > SHEAF__WORD_BYTES)
        return q->encode(q->t, w, q->raw);
    sheaf__word *word = sheaf__word_find(w->cache, p->key, p->size, p->hash, &found);
    if (found) {
        sheaf__emit_word(w, word);
        return NULL;
    }
    const int64_t first = w->out.count;
    sheaf_status *st = q->encode(q->t, w, q->raw);
    if (st == NULL)
        remember(word, p, w, first);
    return st;
}

sheaf_status *sheaf__encode_by_model(const sheaf__tokenizer *t, sheaf__work *w, bool raw)
{
    w->emitted = 0;
    return sheaf__bpe_encode(t->model, w, w->bytes, w->size, raw);
}

sheaf_status *sheaf__steps_run(const sheaf__steps *steps, int64_t count, sheaf__prepared *text)
{
    sheaf_status *st = text->failed ? sheaf__no_memory("a text") : NULL;
    for (int64_t i = 0; st == NULL && i < count; i++) {
        st = steps->step[i].kind->run(steps->step[i].state, text);
        if (st == NULL && text->failed)
            st = text->grown ? sheaf__grown(steps->step[i].kind->name, text->most)
                             : sheaf__no_memory("a text");
    }
    return st;
}

sheaf_status *sheaf__queue_end(sheaf__queue *q)
{
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < q->count; i++)
        st = encode_piece(q, &q->piece[i]);
    q->count = 0;
    return st;
}

/* A piece that is not raw, in parts as the model cuts it. */
static sheaf_status *queue_cut(sheaf__queue *q, const char *bytes, size_t size, size_t origin,
                               const sheaf__span *from)
{
    sheaf_status *st = NULL;
    for (size_t at = 0, n; st == NULL && at < size; at += n) {
        n = sheaf__bpe_cut(q->t->model, bytes + at, size - at, false);
        st = sheaf__queue_put(q, bytes + at, n, size - at + SHEAF__PREPARED_SPARE, origin + at,
                              from != NULL ? from + at : NULL);
    }
    return st;
}

/* ---- pieces that steps made ---- */

void sheaf__emit_added(sheaf__work *w, int32_t id, sheaf__text_range where)
{
    sheaf__emit(w, id, 0, 0);
    if (w->out.wanted && !w->out.failed)
        w->out.where[w->out.count - 1] = where;
}

static sheaf_status *put_piece(sheaf__queue *q, const sheaf__piece *piece)
{
    const sheaf__prepared *p = &q->w->prepared;
    const sheaf__span *from = p->aligned ? p->now.from + piece->begin : NULL;
    const char *bytes = p->now.bytes + piece->begin;
    const size_t size = piece->end - piece->begin;
    if (piece->id < 0)
        return p->raw ? sheaf__queue_put(q, bytes, size, size + SHEAF__PREPARED_SPARE,
                                         piece->origin, from)
                      : queue_cut(q, bytes, size, piece->origin, from);
    sheaf_status *st = sheaf__queue_end(q);
    sheaf__text_range where = { 0, 0 };
    if (from != NULL)
        where = (sheaf__text_range){ from[0].begin, from[size - 1].end };
    sheaf__emit_added(q->w, piece->id, where);
    return st;
}

sheaf_status *sheaf__encode_pieces(const sheaf__tokenizer *t, sheaf__work *w)
{
    const sheaf__prepared *p = &w->prepared;
    sheaf_status *st = NULL;
    sheaf__queue q;
    sheaf__queue_begin(&q, t, w, p->raw);
    for (int64_t i = 0; st == NULL && i < p->now.pieces; i++)
        st = put_piece(&q, &p->now.piece[i]);
    return st != NULL ? st : sheaf__queue_end(&q);
}

/* ---- texts whose blanks become bars ---- */

static const char bar[] = "\xe2\x96\x81";
enum { BAR = sizeof bar - 1 };

/* Writes the word with bars for blanks after `at` bytes of `to`; with `from`, also the origins of
 * its bytes. Returns the bytes in all. */
static size_t put_bars(char *to, sheaf__span *from, size_t at, const sheaf__work *w)
{
    for (size_t i = 0, n; i < w->size; i += n) {
        sheaf__unicode_take(w->bytes + i, w->size - i, &n);
        const bool blank = w->bytes[i] == ' ';
        const size_t put = blank ? BAR : n;
        memcpy(to + at, blank ? bar : w->bytes + i, put);
        for (size_t k = 0; from != NULL && k < put; k++)
            from[at + k] =
                (sheaf__span){ (uint32_t)(w->origin + i), (uint32_t)(w->origin + i + n) };
        at += put;
    }
    return at;
}

/* Converts ends of ids in the word with bars to ends in the word. (No id ends within a bar.) */
static void ends_without_bars(sheaf__work *w, size_t ahead)
{
    size_t at = 0, barred = ahead;
    for (int64_t i = 0; i < w->emitted; i++) {
        while (barred < w->ends[i])
            barred += w->bytes[at++] == ' ' ? BAR : 1;
        w->ends[i] = (uint8_t)at;
    }
}

/* Encodes the word in `w` with bars for blanks, and one before it if `first`. */
static sheaf_status *with_bars(const sheaf__tokenizer *t, sheaf__work *w, bool first)
{
    enum { FEW = BAR * (SHEAF__WORD_BYTES + 1) };
    char few[FEW + SHEAF__PREPARED_SPARE];
    sheaf__span few_from[FEW];
    const char *bytes = w->bytes;
    const size_t size = w->size, ahead = first ? BAR : 0;
    const bool small = size <= SHEAF__WORD_BYTES;
    char *to = small ? few : w->barred;
    sheaf__span *from = !w->out.wanted ? NULL : small ? few_from : w->barred_from;
    const int64_t most = (int64_t)(size * BAR + ahead);
    if (!small) {
        if (!SHEAF_GROW(&w->barred, &w->barred_size, most + SHEAF__PREPARED_SPARE) ||
            (w->out.wanted && !SHEAF_GROW(&w->barred_from, &w->barred_from_size, most)))
            return sheaf__no_memory("a word");
        to = w->barred;
        from = w->out.wanted ? w->barred_from : NULL;
    }
    w->size = put_bars(to, from, ahead, w);
    if (first) {
        memcpy(to, bar, BAR);
        for (size_t i = 0; from != NULL && i < BAR; i++)
            from[i] = from[BAR]; /* it shares the origin of the first character */
    }
    w->bytes = to;
    w->from = from;
    sheaf_status *st = sheaf__encode_by_model(t, w, false);
    w->bytes = bytes;
    w->size = size;
    w->from = NULL;
    if (small)
        ends_without_bars(w, ahead);
    return st;
}

static bool is_bar(const char *bytes, size_t size)
{
    return bytes[0] == ' ' || (size >= BAR && memcmp(bytes, bar, BAR) == 0);
}

/* The bytes up to the next bar, but for the first character. */
static size_t up_to_bar(const char *bytes, size_t size)
{
    size_t at = 1;
    while (at < size && bytes[at] != ' ' && (bytes[at] != bar[0] || !is_bar(bytes + at, size - at)))
        at++;
    return at;
}

static bool begins_with_bar(const sheaf__blanks *how, const char *bytes, size_t size, size_t begin)
{
    switch (how->prepend) {
    case SHEAF__BAR_ALWAYS: return true;
    case SHEAF__BAR_UNLESS_THERE: return !is_bar(bytes, size);
    case SHEAF__BAR_AT_START: return begin == 0 && !is_bar(bytes, size);
    case SHEAF__BAR_NEVER: break;
    }
    return false;
}

sheaf_status *sheaf__encode_blanks(const sheaf__tokenizer *t, sheaf__work *w, const char *bytes,
                                   size_t size, size_t readable, size_t begin)
{
    sheaf_status *st = NULL;
    sheaf__queue q;
    sheaf__queue_begin(&q, t, w, false);
    q.encode = with_bars;
    for (size_t at = 0, end = 0, n; st == NULL && at < size; at += n) {
        if (at == end)
            end = t->blanks.split ? at + up_to_bar(bytes + at, size - at) : size;
        n = sheaf__bpe_cut(t->model, bytes + at, end - at, true);
        if (at > 0 || !begins_with_bar(&t->blanks, bytes, size, begin)) {
            st = sheaf__queue_put(&q, bytes + at, n, size + readable - at, begin + at, NULL);
            continue;
        }
        w->bytes = bytes;
        w->size = n;
        w->origin = begin;
        st = with_bars(t, w, true);
    }
    return st != NULL ? st : sheaf__queue_end(&q);
}

/* ---- recognising such tokenizers ---- */

/* Is the step of this type, with this text, or a pattern of it, at the key? */
static bool is_step(const json_t *step, const char *type, const char *key, const char *text)
{
    const json_t *value = json_object_get(step, key);
    const char *has =
        json_string_value(json_is_object(value) ? json_object_get(value, "String") : value);
    return strcmp(json_string_value(json_object_get(step, "type")), type) == 0 && has != NULL &&
           strcmp(has, text) == 0;
}

/* The normalizers end with Replace of blanks by bars, after Prepend or not. */
static bool by_normalizers(sheaf__blanks *how, const json_t *normalizers, const json_t *pre)
{
    const size_t n = json_array_size(normalizers), divide = json_array_size(pre);
    const json_t *last = json_array_get(normalizers, n - 1), *first = json_array_get(pre, 0);
    if (n == 0 || !is_step(last, "Replace", "pattern", " ") ||
        !is_step(last, "Replace", "content", bar))
        return false;
    /* after it there is no blank to divide at */
    if (divide > 1 || (divide == 1 && (!is_step(first, "Split", "pattern", " ") ||
                                       json_is_true(json_object_get(first, "invert")))))
        return false;
    const bool prepends =
        n > 1 && is_step(json_array_get(normalizers, n - 2), "Prepend", "prepend", bar);
    *how = (sheaf__blanks){ .on = true,
                            .prepend = prepends ? SHEAF__BAR_ALWAYS : SHEAF__BAR_NEVER,
                            .normalizers = (int64_t)n - 1 - prepends };
    return true;
}

/* The pre-tokenizers are Metaspace alone. */
static bool by_metaspace(sheaf__blanks *how, const json_t *normalizers, const json_t *pre)
{
    const json_t *m = json_array_get(pre, 0);
    if (json_array_size(pre) != 1 || !is_step(m, "Metaspace", "replacement", bar))
        return false;
    *how = (sheaf__blanks){ .on = true,
                            .prepend = SHEAF__BAR_UNLESS_THERE,
                            .split = !json_is_false(json_object_get(m, "split")),
                            .normalizers = (int64_t)json_array_size(normalizers) };
    if (is_step(m, "Metaspace", "prepend_scheme", "first"))
        how->prepend = SHEAF__BAR_AT_START;
    else if (is_step(m, "Metaspace", "prepend_scheme", "never"))
        how->prepend = SHEAF__BAR_NEVER;
    return how->prepend != SHEAF__BAR_AT_START || how->normalizers == 0;
}

void sheaf__blanks_find(sheaf_tokenizer *t, const json_t *normalizers, const json_t *pre)
{
    sheaf__blanks how = { 0 };
    const bool found =
        by_normalizers(&how, normalizers, pre) || by_metaspace(&how, normalizers, pre);
    /* A bar that is no token may become several ids, which would end within it. Added tokens that
     * are looked for in normalized text need that text. */
    if (found && sheaf__vocab_find(&t->vocab, bar, BAR) >= 0 && t->added.normalized.count == 0)
        t->blanks = how;
}
