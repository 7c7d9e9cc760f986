/* decode.c - ids to a text, at once and as they come. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/no_memory.h"
#include "byte_level.h"
#include "parts.h"

void sheaf__strings_add(sheaf__strings *s, const char *bytes, size_t size)
{
    sheaf__text_bytes(&s->bytes, bytes, size);
    s->failed = s->failed || s->bytes.failed || !SHEAF_GROW(&s->end, &s->capacity, s->count + 1);
    if (!s->failed)
        s->end[s->count++] = s->bytes.size;
}

void sheaf__strings_append(sheaf__strings *s, const char *bytes, size_t size)
{
    sheaf__text_bytes(&s->bytes, bytes, size);
    s->failed = s->failed || s->bytes.failed;
    if (!s->failed && s->count > 0)
        s->end[s->count - 1] = s->bytes.size;
}

void sheaf__strings_clear(sheaf__strings *s)
{
    s->bytes.size = 0;
    s->count = 0;
}

void sheaf__strings_release(sheaf__strings *s)
{
    sheaf__text_release(&s->bytes);
    free(s->end);
    *s = (sheaf__strings){ 0 };
}

/* ---- the strings of ids ---- */

/* What an id stands for before the decoder; NULL: nothing. */
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

static sheaf_status *check_id(int32_t id, int64_t at)
{
    if (id >= 0)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "id %" PRId64, at + 1);
    return sheaf_found(sheaf_expected(st, "a token"), "%" PRId32, id);
}

static sheaf_status *run_decoders(const sheaf__tokenizer *t, sheaf__strings *s)
{
    sheaf__strings next = { 0 };
    sheaf_status *st = s->failed ? sheaf__no_memory("a text") : NULL;
    for (int64_t i = 0; st == NULL && i < t->decoders; i++) {
        sheaf__strings_clear(&next);
        st = t->decoder[i].kind->run(t->decoder[i].state, &next, s);
        if (st == NULL && next.failed)
            st = sheaf__no_memory("a text");
        const sheaf__strings before = *s;
        *s = next;
        next = before;
    }
    sheaf__strings_release(&next);
    return st;
}

/* The text of `ids` is then in s->bytes. */
static sheaf_status *decode(sheaf__strings *s, const sheaf__tokenizer *t, const int32_t *ids,
                            int64_t n, bool skip_special)
{
    sheaf__strings_clear(s);
    for (int64_t i = 0; i < n; i++) {
        size_t size;
        const char *string = string_of(t, ids[i], skip_special, &size);
        if (string == NULL)
            continue;
        if (!t->has_decoder && s->count > 0)
            sheaf__strings_append(s, " ", 1);
        sheaf__strings_add(s, string, size);
    }
    return run_decoders(t, s);
}

sheaf_status *sheaf__tokenizer_decode(char **text, size_t *size, const sheaf__tokenizer *t,
                                      const int32_t *ids, int64_t n, bool skip_special)
{
    sheaf__strings s = { 0 };
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && i < n; i++)
        st = check_id(ids[i], i);
    if (st == NULL)
        st = decode(&s, t, ids, n, skip_special);
    const size_t bytes = s.bytes.size;
    if (st == NULL)
        st = sheaf__text_take(text, &s.bytes);
    if (st == NULL && size != NULL)
        *size = bytes;
    sheaf__strings_release(&s);
    return st;
}

/* ---- as they come ---- */

struct sheaf__token_stream {
    const sheaf__tokenizer *t;
    bool skip_special;
    int32_t *id;
    int64_t ids, capacity;
    sheaf_text shown; /* so far */
    sheaf__strings work;
};

sheaf_status *sheaf__token_stream_new(sheaf__token_stream **out, const sheaf__tokenizer *t,
                                      bool skip_special)
{
    sheaf__token_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sheaf__no_memory("a text");
    s->t = t;
    s->skip_special = skip_special;
    *out = s;
    return NULL;
}

void sheaf__token_stream_free(sheaf__token_stream *s)
{
    if (s == NULL)
        return;
    free(s->id);
    sheaf__text_release(&s->shown);
    sheaf__strings_release(&s->work);
    free(s);
}

/* May what this id gives change with those that follow? */
static bool is_open(const sheaf__token_stream *s, int32_t id)
{
    size_t size;
    const char *string = string_of(s->t, id, s->skip_special, &size);
    if (string == NULL) /* it gives nothing, and divides nothing */
        return true;
    for (int64_t i = 0; i < s->t->decoders; i++) {
        const sheaf__decoder *d = &s->t->decoder[i];
        if (d->kind->open_end != NULL && d->kind->open_end(d->state, string, size))
            return true;
    }
    return false;
}

static bool is_whole(const sheaf__tokenizer *t)
{
    for (int64_t i = 0; i < t->decoders; i++)
        if (t->decoder[i].kind->whole != NULL && t->decoder[i].kind->whole(t->decoder[i].state))
            return true;
    return false;
}

/* Is a text the texts of its parts, where none ends inside of a character? */
static bool is_local(const sheaf__tokenizer *t)
{
    for (int64_t i = 0; i < t->decoders; i++)
        if (!t->decoder[i].kind->local)
            return false;
    return t->decoders > 0;
}

/* What of the text of the first `n` ids was not shown yet; `certain`: without what may change. */
static sheaf_status *show(const char **text, size_t *size, sheaf__token_stream *s, int64_t n,
                          bool certain)
{
    sheaf_status *st = decode(&s->work, s->t, s->id, n, s->skip_special);
    *text = "";
    if (size != NULL)
        *size = 0;
    if (st != NULL)
        return st;
    const sheaf_text *all = &s->work.bytes;
    size_t end = all->size;
    while (certain && end >= 3 && memcmp(all->at + end - 3, "\xef\xbf\xbd", 3) == 0)
        end -= 3;
    const size_t begin = s->shown.size;
    const bool goes_on = end >= begin && (begin == 0 || memcmp(all->at, s->shown.at, begin) == 0);
    if (!goes_on && certain)
        return NULL;
    if (!goes_on)
        return sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "decoder"),
                              "a text that begins with what was shown of it");
    if (end == begin)
        return NULL;
    sheaf__text_bytes(&s->shown, all->at + begin, end - begin);
    if (s->shown.failed)
        return sheaf__no_memory("a text");
    *text = s->shown.at + begin;
    if (size != NULL)
        *size = end - begin;
    return NULL;
}

sheaf_status *sheaf__token_stream_push(const char **text, size_t *size, sheaf__token_stream *s,
                                       int32_t id)
{
    sheaf_status *st = check_id(id, s->ids);
    if (st != NULL)
        return st;
    if (!SHEAF_GROW(&s->id, &s->capacity, s->ids + 1))
        return sheaf__no_memory("a text");
    s->id[s->ids++] = id;
    int64_t n = is_whole(s->t) ? 0 : s->ids;
    while (n > 0 && is_open(s, s->id[n - 1]))
        n--;
    st = show(text, size, s, n, true);
    /* What is shown whole need not be decoded again with what follows. */
    if (st == NULL && n == s->ids && s->shown.size == s->work.bytes.size && is_local(s->t)) {
        s->ids = 0;
        s->shown.size = 0; /* its bytes stay until the next call */
    }
    return st;
}

sheaf_status *sheaf__token_stream_finish(const char **text, size_t *size, sheaf__token_stream *s)
{
    sheaf_status *st = show(text, size, s, s->ids, false);
    s->ids = 0;
    s->shown.size = 0; /* its bytes stay until the next call */
    return st;
}
