/* encode.c - a text to ids, by the steps in parts.h. */

#include "kinds.h"
#include "pattern.h"
#include "pieces.h"
#include "unicode.h"
#include "base/base.h"

typedef struct encoding {
    const sheaf__tokenizer *t;
    sheaf__work *work;
    const char *text;
    size_t size;
    const sheaf__encode_options *options;
    bool aligned;                  /* pieces keep their origin */
    bool blanks;                   /* encode by t->blanks */
    const sheaf__scanner *scanner; /* if the pre-tokenizer only divides by it, or NULL */
} encoding;

/* ---- a text between added tokens ---- */

/* Encodes text that the pre-tokenizer only divides by a known pattern. */
static sheaf_status *scan(const encoding *e, size_t begin, size_t end)
{
    sheaf_status *st = NULL;
    const char *text = e->text + begin;
    sheaf__queue q;
    sheaf__queue_begin(&q, e->t, e->work, true);
    for (size_t at = 0, next; st == NULL && begin + at < end; at = next) {
        next = sheaf__scanner_next(e->scanner, text, end - begin, at);
        st = sheaf__queue_put(&q, text + at, next - at, e->size - begin - at, begin + at, NULL);
    }
    return st != NULL ? st : sheaf__queue_end(&q);
}

/* Encodes normalized pieces word by word. */
static sheaf_status *encode_normalized(const encoding *e)
{
    const sheaf__layer *l = &e->work->prepared.now;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < l->pieces; i++)
        st = sheaf__encode_blanks(e->t, e->work, l->bytes + l->piece[i].begin,
                                  l->piece[i].end - l->piece[i].begin, SHEAF__PREPARED_SPARE,
                                  l->piece[i].origin);
    return st;
}

/* ---- added tokens ---- */

/* Up to where [begin, end) is text: the end of the last range that it overlaps. Ranges are
 * ascending. */
static size_t plain_until(const encoding *e, size_t begin, size_t end)
{
    const sheaf__encode_options *o = e->options;
    int64_t low = 0;
    size_t until = 0;
    for (int64_t high = o->plain_ranges; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        if (o->plain_range[middle].end <= begin)
            low = middle + 1;
        else
            high = middle;
    }
    for (; low < o->plain_ranges && o->plain_range[low].begin < end; low++)
        until = o->plain_range[low].end;
    return until;
}

typedef struct place {
    const encoding *e;
    const sheaf__span *from; /* origins of the bytes; NULL: the text, */
    size_t begin;            /* from this offset on */
} place;

static size_t is_plain(const void *context, size_t begin, size_t end)
{
    const place *p = context;
    if (p->e->options->plain)
        return end;
    const size_t first = p->from != NULL ? p->from[begin].begin : p->begin + begin,
                 last = p->from != NULL ? p->from[end - 1].end : p->begin + end,
                 until = plain_until(p->e, first, last);
    if (p->from == NULL)
        return until > p->begin ? until - p->begin : 0;
    while (until > 0 && begin < end && p->from[begin].begin < until)
        begin++;
    return until > 0 ? begin : 0;
}

static sheaf_status *divide_at_added(const void *state, sheaf__prepared *text,
                                     const sheaf__piece *piece)
{
    const encoding *e = state;
    const char *bytes = text->now.bytes + piece->begin;
    const size_t size = piece->end - piece->begin;
    const place in = { e, text->aligned ? text->now.from + piece->begin : NULL, 0 };
    const bool plain = e->options->plain || e->options->plain_ranges > 0;
    sheaf__added_match m;
    size_t done = 0;
    for (size_t at = 0; sheaf__added_next(&m, &e->t->added.normalized, bytes, size, at, done,
                                          plain ? is_plain : NULL, &in);
         at = m.next) {
        sheaf__prepared_put(text, piece, piece->begin + done, piece->begin + m.begin, -1);
        sheaf__prepared_put(text, piece, piece->begin + m.begin, piece->begin + m.end, m.id);
        done = m.end;
    }
    sheaf__prepared_put(text, piece, piece->begin + done, piece->end, -1);
    return NULL;
}

/* Encodes bytes [begin, end) of the text: added tokens of one list, and the text between them. */
static sheaf_status *at_added(const encoding *e, const sheaf__added_list *list, size_t begin,
                              size_t end,
                              sheaf_status *(*between)(const encoding *e, size_t begin, size_t end))
{
    const place in = { e, NULL, begin };
    const bool plain = e->options->plain || e->options->plain_ranges > 0;
    sheaf__added_match m;
    sheaf_status *st = NULL;
    size_t done = 0;
    for (size_t at = 0; st == NULL && sheaf__added_next(&m, list, e->text + begin, end - begin, at,
                                                        done, plain ? is_plain : NULL, &in);
         at = m.next) {
        st = between(e, begin + done, begin + m.begin);
        sheaf__emit_added(e->work, m.id, (sheaf__text_range){ begin + m.begin, begin + m.end });
        done = m.end;
    }
    return st != NULL ? st : between(e, begin + done, end);
}

/* Encodes bytes [begin, end) of the text, without unnormalized added tokens. */
static sheaf_status *encode_between(const encoding *e, size_t begin, size_t end)
{
    const sheaf__tokenizer *t = e->t;
    sheaf__prepared *text = &e->work->prepared;
    if (begin >= end) /* or an earlier token took spaces that are a token too */
        return NULL;
    if (e->scanner != NULL)
        return at_added(e, &t->added.normalized, begin, end, scan);
    if (e->blanks && t->blanks.normalizers == 0)
        return sheaf__encode_blanks(t, e->work, e->text + begin, end - begin, e->size - end, begin);
    sheaf__prepared_begin(text, e->text + begin, end - begin, (uint32_t)begin, e->aligned);
    sheaf_status *st = sheaf__steps_run(
        &t->normalizer, e->blanks ? t->blanks.normalizers : t->normalizer.count, text);
    if (e->blanks)
        return st != NULL ? st : encode_normalized(e);
    if (st == NULL && t->added.normalized.count > 0)
        st = sheaf__prepared_split(text, e, divide_at_added);
    else if (st == NULL && text->aligned && text->now.pieces > 0)
        /* As `tokenizers`, which always divides here: a removed beginning moves the piece, for a
         * Metaspace that reads where it begins. */
        text->now.piece[0].origin = text->now.from[text->now.piece[0].begin].begin;
    TRY(st, sheaf__steps_run(&t->pre_tokenizer, t->pre_tokenizer.count, text));
    return st != NULL ? st : sheaf__encode_pieces(t, e->work);
}

const char *sheaf__tokenizer_written(const sheaf__tokenizer *t, const char *text, size_t size)
{
    const sheaf__added_list *const lists[] = { &t->added.plain, &t->added.normalized };
    sheaf__added_match m;
    for (int i = 0; i < 2; i++)
        for (size_t at = 0; sheaf__added_next(&m, lists[i], text, size, at, at, NULL, NULL);
             at = m.next) {
            const sheaf__added_token *token = sheaf__added_of(&t->added, m.id);
            if (token->special)
                return token->content;
        }
    return NULL;
}

static sheaf_status *encode_all(const encoding *e)
{
    sheaf_status *st = at_added(e, &e->t->added.plain, 0, e->size, encode_between);
    for (int64_t i = 0; st == NULL && i < e->t->post.count; i++) {
        const sheaf__step *post = &e->t->post.step[i];
        if (post->kind->post != NULL)
            post->kind->post(post->state, &e->work->out, e->options->add_special);
    }
    if (st == NULL && e->work->out.failed)
        st = sheaf__no_memory("ids of a text");
    return st;
}

/* ---- the call ---- */

/* The scanner, if the steps only divide by it. */
static const sheaf__scanner *only_scanner(const sheaf__tokenizer *t)
{
    const sheaf__steps *s = &t->pre_tokenizer;
    bool nothing = false;
    if (t->normalizer.count > 0 || s->count < 1 || s->count > 2)
        return NULL;
    const sheaf__step *last = &s->step[s->count - 1];
    if (last->kind != &sheaf__byte_level_splitting)
        return NULL;
    const sheaf__scanner *found = sheaf__byte_level_scanner(last->state, &nothing);
    if (s->count == 1)
        return found;
    return nothing && s->step[0].kind == &sheaf__split ? sheaf__split_scanner(s->step[0].state)
                                                       : NULL;
}

/* Moves the arrays to the caller. */
static sheaf_status *hand_out(int32_t **ids, sheaf__text_range **where, int64_t *count,
                              sheaf__ids_out *out)
{
    const size_t n = out->count > 0 ? (size_t)out->count : 1;
    int32_t *id = realloc(out->id, n * sizeof *id);
    sheaf__text_range *range = where == NULL ? NULL : realloc(out->where, n * sizeof *range);
    out->id = id != NULL ? id : out->id;
    out->where = range != NULL ? range : out->where;
    out->id_capacity = out->where_capacity = 0;
    if (id == NULL || (where != NULL && range == NULL))
        return sheaf__no_memory("ids of a text");
    out->id = NULL;
    out->where = NULL;
    if (where != NULL)
        *where = range;
    *ids = id;
    *count = out->count;
    return NULL;
}

sheaf_status *sheaf__tokenizer_encode(int32_t **ids, sheaf__text_range **where, int64_t *count,
                                      const sheaf__tokenizer *t, const char *text, size_t size,
                                      const sheaf__encode_options *options)
{
    static const sheaf__encode_options none = { 0 };
    sheaf_status *st = sheaf__check_text(text, size, SHEAF_TOKENIZER_TEXT_MAX);
    if (st != NULL)
        return st;
    sheaf__work *work = sheaf__work_take(t->pool);
    if (work == NULL)
        return sheaf__no_memory("ids of a text");
    encoding e = { .t = t,
                   .work = work,
                   .text = text,
                   .size = size,
                   .options = options != NULL ? options : &none };
    e.aligned = where != NULL || t->needs_origin ||
                (e.options->plain_ranges > 0 && t->added.normalized.count > 0);
    e.scanner = only_scanner(t);
    /* Normalized text keeps its own origins. */
    e.blanks = t->blanks.on && (where == NULL || t->blanks.normalizers == 0);
    if (e.blanks)
        e.aligned = false;
    work->out.wanted = where != NULL;
    work->out.count = work->out.capacity = 0; /* allocated again at the first id */
    work->out.failed = false;
    st = encode_all(&e);
    TRY(st, hand_out(ids, where, count, &work->out));
    sheaf__work_give(t->pool, work);
    return st;
}

sheaf_status *sheaf__normalize(char **out, size_t *size, const sheaf__tokenizer *t,
                               const char *text, size_t bytes)
{
    sheaf__prepared prepared = { 0 };
    sheaf_text all = { 0 };
    sheaf__prepared_begin(&prepared, text, bytes, 0, t->needs_origin);
    sheaf_status *st = sheaf__steps_run(&t->normalizer, t->normalizer.count, &prepared);
    *size = prepared.now.size;
    sheaf__text_bytes(&all, prepared.now.bytes, *size);
    TRY(st, sheaf__text_take(out, &all));
    sheaf__text_release(&all);
    sheaf__matching_free(prepared.matching);
    sheaf__prepared_release(&prepared);
    return st;
}
