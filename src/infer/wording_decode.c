/* wording_decode.c - tokens back to texts: where an answer ends, what it is, and when two are
 * equal. See wording.h. */
#include "base/base.h"
#include "infer/wording.h"

static sheaf_status *decode_bytes(char **out, const int32_t *ids, int64_t n)
{
    unsigned char *bytes = malloc((size_t)n + 1);
    size_t size = 0;
    sheaf_text text = { 0 };
    if (bytes == NULL)
        return sheaf__no_memory("generated text");
    for (int64_t i = 0; i < n && ids[i] < 256; i++)
        bytes[size++] = (unsigned char)ids[i];
    for (size_t i = 0; i < size;) {
        const size_t k = bytes[i] == 0 ? 0 : sheaf__utf8_length(bytes + i, size - i);
        sheaf__text_bytes(&text, k == 0 ? "\xEF\xBF\xBD" : (const char *)bytes + i, k == 0 ? 3 : k);
        i += k == 0 ? 1 : k;
    }
    free(bytes);
    return sheaf__text_take(out, &text);
}

void sheaf__wording_without_nul(sheaf_text *text, const char *bytes, size_t size)
{
    while (size > 0) {
        const size_t n = strnlen(bytes, size);
        sheaf__text_bytes(text, bytes, n);
        if (n == size)
            return;
        sheaf__text_bytes(text, "\xEF\xBF\xBD", 3);
        bytes += n + 1;
        size -= n + 1;
    }
}

/* NUL cannot stand in a C string. */
static sheaf_status *decode_text(char **out, const sheaf__wording *w, const int32_t *ids, int64_t n)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__tokenizer_decode(&text, &size, w->tokenizer, ids, n, true);
    if (st == NULL && strlen(text) < size) {
        sheaf_text whole = { 0 };
        sheaf__wording_without_nul(&whole, text, size);
        free(text);
        return sheaf__text_take(out, &whole);
    }
    *out = text;
    return st;
}

sheaf_status *sheaf__wording_decode(char **out, const sheaf__wording *w, const int32_t *ids,
                                    int64_t n)
{
    *out = NULL;
    if (w->model != NULL)
        return sheaf__sentencepiece_decode(out, w->model, ids, n);
    if (w->tokenizer != NULL)
        return decode_text(out, w, ids, n);
    return w->config->byte_vocab ? decode_bytes(out, ids, n) : NULL;
}

/* ---- where an answer ends ---- */

static bool is_among(const int64_t *ids, int n, int64_t id)
{
    for (int i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

void sheaf__wording_end_at(sheaf__wording *w, const int64_t *id, int n)
{
    const int64_t taught = w->tokenizer == NULL || w->stored.eos == NULL
                               ? -1
                               : sheaf__tokenizer_find(w->tokenizer, w->stored.eos);
    memcpy(w->stop, id, (size_t)n * sizeof *id);
    w->nstop = n;
    if (n == 0 && w->eos >= 0)
        w->stop[w->nstop++] = w->eos;
    if (taught >= 0 && !is_among(w->stop, w->nstop, taught))
        w->stop[w->nstop++] = taught;
}

void sheaf__wording_stops(int64_t stop[SHEAF_MAX_EOS + 2], int *nstop, int *nturn,
                          const sheaf__wording *w)
{
    memcpy(stop, w->stop, (size_t)w->nstop * sizeof *stop);
    *nstop = w->nstop;
    *nturn = w->end >= 0;
    stop[w->nstop] = w->end;
    if (w->templated) {
        *nstop += *nturn;
        *nturn = 0;
    }
}

bool sheaf__wording_ends(const sheaf__wording *w, int64_t id, bool laid_out)
{
    return is_among(w->stop, w->nstop, id) || (laid_out && w->end >= 0 && id == w->end);
}

/* ---- its text, and when two are equal ---- */

sheaf__text_piece sheaf__wording_inner(bool *more, const sheaf__wording *w, const char *text,
                                       size_t size)
{
    sheaf__text_piece inner = { text, size };
    *more = false;
    if (w->chat != NULL) {
        const size_t lead = sheaf__chat_no_thoughts(more, w->chat, text, size);
        inner = (sheaf__text_piece){ text + lead, size - lead };
    }
    sheaf__utf8_strip(&inner.at, &inner.size);
    return inner;
}

sheaf_status *sheaf__wording_answer(char **out, const sheaf__wording *w, bool laid_out,
                                    const char *text)
{
    bool more;
    sheaf__text_piece answer = { text, strlen(text) };
    if (w->templated && w->chat == NULL)
        return sheaf__template_answer(out, w->version, text);
    if (laid_out)
        answer = sheaf__wording_inner(&more, w, text, answer.size);
    *out = strndup(answer.at, answer.size);
    return *out == NULL ? sheaf__no_memory("an answer") : NULL;
}

sheaf_status *sheaf__wording_expected(char **out, const sheaf__wording *w, bool laid_out,
                                      const char *text)
{
    int32_t *ids = NULL;
    int64_t n = 0, end = 0;
    *out = NULL;
    if (text == NULL || !w->specials || w->tokenizer == NULL)
        return NULL;
    sheaf_status *st = sheaf__tokenizer_encode(&ids, NULL, &n, w->tokenizer, text, strlen(text),
                                               &(sheaf__encode_options){ 0 });
    while (st == NULL && end < n && !sheaf__wording_ends(w, ids[end], laid_out))
        end++;
    TRY(st, sheaf__wording_decode(out, w, ids, end));
    free(ids);
    return st;
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c + 'a' - 'A') : c;
}

static bool same(sheaf__text_piece a, sheaf__text_piece b, bool any_case)
{
    sheaf__utf8_strip(&a.at, &a.size);
    sheaf__utf8_strip(&b.at, &b.size);
    if (a.size != b.size)
        return false;
    for (size_t i = 0; i < a.size; i++)
        if (any_case ? lower(a.at[i]) != lower(b.at[i]) : a.at[i] != b.at[i])
            return false;
    return true;
}

bool sheaf__wording_same(const sheaf__wording *w, const char *a, const char *b, bool any_case)
{
    if (a == NULL || b == NULL)
        return false;
    sheaf__text_piece thoughts[2] = { { "", 0 }, { "", 0 } },
                      rest[2] = { { a, strlen(a) }, { b, strlen(b) } };
    for (int i = 0; i < 2 && w->chat != NULL; i++)
        sheaf__chat_divide(&thoughts[i], &rest[i], w->chat);
    return same(thoughts[0], thoughts[1], any_case) && same(rest[0], rest[1], any_case);
}
