/* decode.c - ids to a text, all at once or as they come.
 *
 * Each decoder is at work on the strings of a text, one behind the other, and holds what later ones
 * may change: bytes of a character that lacks others, blanks that are to go at the end. So a text
 * is shown as far as it is certain, and the whole of it is a stream that ends. */

#include "kinds.h"
#include "base/base.h"

struct sheaf__token_stream {
    const sheaf__tokenizer *t;
    bool skip_special, begun; /* begun: some id stood for a string */
    int64_t pushed;
    sheaf__decoding *at; /* [t->decoder.count + 1], the last of which holds the text */
    sheaf_text rest;
};

/* ---- the strings of ids ---- */

/* What an id stands for before the decoders; NULL: nothing. */
static const char *string_of(const sheaf__tokenizer *t, int32_t id, bool skip_special, size_t *size)
{
    const sheaf__added_token *added = sheaf__added_of(&t->added, id);
    if (added == NULL)
        return sheaf__vocab_token(&t->vocab, id, size);
    /* `tokenizers` asks whether the string is that of a special token. */
    const sheaf__added_token *same =
        added->normal == added->content
            ? added
            : sheaf__added_find(&t->added, added->normal, added->normal_size);
    if (skip_special && same != NULL && same->special)
        return NULL;
    *size = added->normal_size;
    return added->normal;
}

/* ---- the decoders at work ---- */

static void take(sheaf__decoding *d, const char *bytes, size_t size)
{
    if (d->kind != NULL && !(d->one && d->kind->by_string))
        d->kind->decode(d->state, d, bytes, size, false);
    else /* of the one string there is, more may come */
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

/* All that the decoders hold. */
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

/* The text so far, which the next call takes anew. */
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
    if (!s->t->has_decoder && s->begun)
        take(s->at, " ", 1);
    s->begun = true;
    s->at[0].in += size;
    take(s->at, string, size);
    return check(s);
}

sheaf_status *sheaf__token_stream_push(const char **text, size_t *size, sheaf__token_stream *s,
                                       int32_t id)
{
    return look(text, size, s, push(s, id));
}

sheaf_status *sheaf__token_stream_finish(const char **text, size_t *size, sheaf__token_stream *s)
{
    sheaf_status *st = end_all(s);
    for (sheaf__decoding *d = s->at; d->kind != NULL; d++) {
        d->held.size = d->whole.size = d->in = d->out = 0;
        d->taken = 0;
    }
    s->begun = false;
    s->pushed = 0;
    return look(text, size, s, st);
}

sheaf_status *sheaf__token_stream_rest(const char **text, size_t *size, sheaf__token_stream *s)
{
    sheaf__token_stream *ahead = NULL;
    const char *bytes = "";
    *size = 0;
    sheaf_status *st = sheaf__token_stream_new(&ahead, s->t, s->skip_special);
    for (int64_t i = 0; st == NULL && i < s->t->decoder.count; i++) {
        const sheaf__decoding *d = &s->at[i];
        sheaf__text_bytes(&ahead->at[i].held, d->held.at, d->held.size);
        sheaf__text_bytes(&ahead->at[i].whole, d->whole.at, d->whole.size);
        ahead->at[i].taken = d->taken;
        ahead->at[i].in = d->in;
    }
    TRY(st, sheaf__token_stream_finish(&bytes, size, ahead));
    s->rest.size = 0;
    sheaf__text_bytes(&s->rest, bytes, *size);
    *text = s->rest.at;
    if (st == NULL && s->rest.failed)
        st = sheaf__no_memory("a text");
    sheaf__token_stream_free(ahead);
    return st;
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
