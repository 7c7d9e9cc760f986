/* answer_stream.c - see answer_stream.h. */
#include "infer/answer_stream.h"

#include "base/base.h"

/* Bytes of `text` that later tokens cannot change: all but up to three final U+FFFD, each of which
 * may be a byte of an incomplete character. */
static size_t certain(const char *text, size_t size)
{
    for (int i = 0; i < 3 && size >= 3 && memcmp(text + size - 3, "\xEF\xBF\xBD", 3) == 0; i++)
        size -= 3;
    return size;
}

/* Stop text `i` of [0, nstop]; NULL: none. */
static const char *stop_at(const sheaf__answer_stream *s, int64_t i)
{
    return i < s->nstop ? s->stop[i] : s->laid_out ? s->codec->end_text : NULL;
}

/* Offset of the first stop text; `size` if there is none. */
static size_t find_stop(const sheaf__answer_stream *s, const char *text, size_t size)
{
    size_t at = size;
    for (int64_t i = 0; i <= s->nstop; i++) {
        const char *stop = stop_at(s, i),
                   *found = stop == NULL ? NULL : memmem(text, size, stop, strlen(stop));
        if (found != NULL && (size_t)(found - text) < at)
            at = (size_t)(found - text);
    }
    return at;
}

size_t sheaf__text_held(const char *text, size_t size, const char *mark, size_t n)
{
    n = n <= size ? n - (n > 0) : size;
    while (n > 0 && memcmp(text + size - n, mark, n) != 0)
        n--;
    return n;
}

/* The size without a possible beginning of a stop text. */
static size_t before_stop(const sheaf__answer_stream *s, const char *text, size_t size)
{
    size_t held = 0;
    for (int64_t i = 0; i <= s->nstop; i++) {
        const char *stop = stop_at(s, i);
        const size_t n = stop == NULL ? 0 : sheaf__text_held(text, size, stop, strlen(stop));
        held = n > held ? n : held;
    }
    return size - held;
}

/* The answer within `text`, of which `sure` bytes are certain; *from: where it begins. */
static size_t sayable(const char **from, sheaf__answer_stream *s, const char *text, size_t sure)
{
    const size_t stop = find_stop(s, text, sure);
    size_t size = stop < sure ? stop : before_stop(s, text, sure);
    s->over = s->over || stop < sure;
    *from = text;
    if (!s->laid_out)
        return size;
    bool more;
    const sheaf__text_piece inner = sheaf__codec_answer_span(&more, s->codec, text, size);
    *from = inner.at;
    return more ? 0 : inner.size;
}

/* Feeds new ids to the tokenizer's stream, which returns certain text only. */
static sheaf_status *listen(sheaf__answer_stream *s, const int32_t *ids, int64_t n)
{
    sheaf_status *st =
        s->stream != NULL ? NULL : sheaf__token_stream_new(&s->stream, s->codec->tokenizer, true);
    for (; s->taken < n && st == NULL; s->taken++) {
        const char *text;
        size_t size;
        st = sheaf__token_stream_push(&text, &size, s->stream, ids[s->taken]);
        if (st == NULL)
            sheaf__codec_add_without_nul(&s->decoded, text, size);
    }
    return st == NULL && s->decoded.failed ? sheaf__no_memory("an answer") : st;
}

/* A stop text can be complete before the bytes are certain. */
static sheaf_status *look_ahead(sheaf__answer_stream *s)
{
    const char *rest;
    size_t size, before = s->decoded.size;
    if (s->nstop == 0 && stop_at(s, 0) == NULL)
        return NULL;
    sheaf_status *st = sheaf__token_stream_rest(&rest, &size, s->stream);
    if (st != NULL || size == 0)
        return st;
    sheaf__codec_add_without_nul(&s->decoded, rest, size);
    if (s->decoded.failed)
        return sheaf__no_memory("an answer");
    s->over = s->over || find_stop(s, s->decoded.at, s->decoded.size) < s->decoded.size;
    s->decoded.at[s->decoded.size = before] = '\0';
    return NULL;
}

sheaf_status *sheaf__answer_stream_more(char **out, sheaf__answer_stream *s, const int32_t *ids,
                                        int64_t n)
{
    char *text = NULL;
    const char *from, *all = "";
    sheaf_text more = { 0 };
    size_t sure = 0;
    sheaf_status *st = s->codec->tokenizer != NULL ? listen(s, ids, n)
                                                   : sheaf__codec_decode(&text, s->codec, ids, n);
    if (st == NULL && s->stream != NULL)
        st = look_ahead(s);
    if (st != NULL)
        return st;
    if (text != NULL)
        sure = certain(all = text, strlen(text));
    else if (s->decoded.size > 0)
        sure = strlen(all = s->decoded.at);
    const size_t size = sayable(&from, s, all, sure);
    if (out != NULL && size > s->size && (s->size == 0 || memcmp(from, s->sent, s->size) == 0)) {
        sheaf__text_bytes(&more, from + s->size, size - s->size);
        if (!SHEAF_GROW(&s->sent, NULL, (int64_t)size))
            more.failed = true;
        else
            memcpy(s->sent, from, s->size = size);
    }
    free(text);
    return out != NULL ? sheaf__text_take(out, &more) : NULL;
}

sheaf_status *sheaf__answer_stream_end(char **out, char **answer, sheaf__answer_stream *s,
                                       const int32_t *ids, int64_t n)
{
    char *text = NULL;
    sheaf_text more = { 0 };
    *answer = NULL;
    sheaf_status *st = sheaf__codec_decode(&text, s->codec, ids, n);
    if (st != NULL)
        return st;
    if (text != NULL) {
        text[find_stop(s, text, strlen(text))] = '\0';
        st = sheaf__codec_answer(answer, s->codec, s->laid_out, text);
        free(text);
    }
    if (st != NULL || out == NULL)
        return st;
    const size_t size = *answer == NULL ? 0 : strlen(*answer);
    if (size >= s->size && (s->size == 0 || memcmp(*answer, s->sent, s->size) == 0))
        sheaf__text_add(&more, "%s", size == 0 ? "" : *answer + s->size);
    else
        sheaf__text_add(&more, "\n%s", *answer);
    st = sheaf__text_take(out, &more);
    if (st != NULL) {
        free(*answer);
        *answer = NULL;
    }
    return st;
}

void sheaf__answer_stream_release(sheaf__answer_stream *s)
{
    free(s->sent);
    sheaf__token_stream_free(s->stream);
    sheaf__text_release(&s->decoded);
    s->sent = NULL;
    s->stream = NULL;
    s->size = 0;
    s->taken = 0;
}
